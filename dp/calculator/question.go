package calculator

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
)

// A Question asks about releases for epsilon at Delta; or for delta at Epsilon, if Delta is
// zero; or for the value of the parameter Solve at which (Epsilon, Delta) holds, which is
// then of the only release. [Ask] makes one of flags.
type Question struct {
	// Releases are all that is told. Where their sampling rate, sigma or scale is looked
	// for, the value is of no account.
	Releases []release.Release
	// Neighbours is required.
	Neighbours release.Neighbours
	// Count is required where a release is sampled: AddRemove neighbours differ in it.
	Count Count

	Method accountant.Method
	// Orders are the Renyi orders that the method rdp tries; accountant.DefaultOrders() if
	// empty.
	Orders []float64
	// Direction, if not zero, asks about one direction only in which add-remove or zero-out
	// neighbours differ.
	Direction release.Direction

	Epsilon, Delta float64
	Solve          Parameter
}

// A Count says whether anyone who sees the releases also learns how many records took part.
type Count string

const (
	CountHidden Count = "hidden"
	CountPublic Count = "public"
)

// A Parameter is what a question may ask for in place of epsilon.
type Parameter string

const (
	SolveSigma    Parameter = "sigma"
	SolveScale    Parameter = "scale"
	SolveSampling Parameter = "sampling"
	SolveSteps    Parameter = "steps"
)

// An Error says why a question has no answer, and what to ask instead.
type Error struct {
	Problem string
	Hint    string // what to change, by the flags of starling account
	Err     error  // may be nil
	Event   int    // which of [Ask.Lines] makes no sense by itself, from 1; 0 if that is not what is wrong
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Problem
	}
	inner := strings.TrimPrefix(strings.TrimPrefix(e.Err.Error(), "accountant: "), "amplify: ")
	if e.Problem == "" {
		return inner
	}
	return e.Problem + ": " + inner
}

func (e *Error) Unwrap() error { return e.Err }

func refuse(hint, format string, args ...any) error {
	return &Error{Problem: fmt.Sprintf(format, args...), Hint: hint}
}

// explain gives an error of the packages below a hint.
func explain(err error) error {
	var known *Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(err, release.ErrNoGuarantee):
		return &Error{Err: err, Hint: "more noise, a larger --delta or fewer --steps"}
	case errors.Is(err, release.ErrUnsupported):
		return &Error{Err: err, Hint: "--method auto, or --neighbours add-remove, zero-out or replace"}
	case errors.Is(err, release.ErrParameter):
		return &Error{Err: err, Hint: "a number in that range"}
	}
	return &Error{Err: err, Hint: "ask a smaller question"}
}

// asks checks what is wanted.
func (q *Question) asks() error {
	if q.Solve == "" {
		switch {
		case q.Epsilon == 0 && q.Delta == 0:
			return refuse("--delta 1e-9 asks for epsilon, --epsilon 1 for delta", "neither delta nor epsilon is given")
		case q.Epsilon != 0 && q.Delta != 0:
			return refuse("leave one out, or add --solve sigma, sampling or steps", "both epsilon and delta are given, so nothing is asked")
		}
	}
	if q.Delta != 0 && !(q.Delta > 0 && q.Delta < 1) {
		return refuse("--delta 1e-9, say: well below one in the number of people", "delta is %v, want a number between 0 and 1", q.Delta)
	}
	if q.Epsilon != 0 && !(q.Epsilon > 0 && q.Epsilon <= release.MaxEpsilon) {
		return refuse("--epsilon 1, say", "epsilon is %v, want a number above 0 and at most 10^6", q.Epsilon)
	}
	switch q.Solve {
	case "":
		return nil
	case SolveSigma, SolveScale, SolveSampling, SolveSteps:
	default:
		return refuse("--solve sigma, scale, sampling or steps", "cannot solve for %q", q.Solve)
	}
	if q.Epsilon == 0 || q.Delta == 0 {
		return refuse("--epsilon 1 --delta 1e-9, say", "solving for %s needs epsilon and delta", q.Solve)
	}
	return nil
}

// check refuses what makes no sense, and what no theorem covers.
func (q *Question) check() error {
	if err := q.asks(); err != nil {
		return err
	}
	if len(q.Releases) == 0 {
		return refuse("--mechanism gaussian --sigma 5.1, say", "nothing is released")
	}
	if q.Solve != "" && len(q.Releases) > 1 {
		return refuse("leave --solve out", "a list of events has no %s to solve for", q.Solve)
	}
	if m := q.Releases[0].Mechanism; (q.Solve == SolveSigma || q.Solve == SolveScale) && strength(m) != q.Solve {
		return refuse("leave --solve out", "%s takes no %s", m.Name(), q.Solve)
	}
	if q.Solve == SolveSampling && !rates(q.Releases[0].Sampling) {
		return refuse("leave --solve out", "nothing is sampled")
	}
	if q.Count == CountPublic {
		if err := q.publicCount(); err != nil {
			return err
		}
	}
	if q.Neighbours == release.ReplaceOne {
		if err := q.replaced(); err != nil {
			return err
		}
	}
	return q.method()
}

// sampled says whether a sampling leaves records out, and keeps which secret.
func sampled(s release.Sampling) bool {
	switch s := s.(type) {
	case release.Poisson, release.Fixed, release.CountedPoisson:
		return true
	case release.Shuffle:
		return s.Rate != 1
	case release.Allocation:
		return s.Rate != 1
	}
	return false
}

// publicCount refuses what a public count rules out.
func (q *Question) publicCount() error {
	const hide = "hide the count by dummy reports (charged on their own) and say --count hidden"
	some, allocated := false, false
	for _, r := range q.Releases {
		_, run := r.Sampling.(release.Allocation)
		some, allocated = some || sampled(r.Sampling), allocated || run
	}
	switch {
	case allocated:
		return &Error{Problem: "random allocation is not claimed while the count of each release is public: if all others hold -C and one " +
			"person C, the sum and the count together single that person out", Hint: hide, Err: nil}
	case q.Neighbours == release.AddRemove:
		return refuse("--neighbours replace or zero-out", "add-remove neighbours differ in the count, which is public")
	case !some:
		return nil
	case q.Neighbours != release.ReplaceOne:
		return refuse("--neighbours replace, or "+hide, "while the count is public a sample does not amplify as Poisson sampling does: if all "+
			"others hold -C and one person C, the sum and the count together single that person out; what is left is proved for replace-one "+
			"neighbours")
	}
	return nil
}

// replaced refuses what no theorem covers for replace-one neighbours.
func (q *Question) replaced() error {
	for _, r := range q.Releases {
		switch s := r.Sampling.(type) {
		case release.CheckIns:
			switch r.Mechanism.(type) {
			case release.Gaussian, release.DiscreteGaussian:
				return refuse("--neighbours zero-out or add-remove", "check-ins of %s, which is not pure, are accounted for as random allocation, which hides "+
					"presence only", r.Mechanism.Name())
			}
		case release.Allocation:
			if s.Rate != 1 {
				return refuse("--neighbours add-remove or zero-out", "an allocation that a record takes part in with some probability hides presence only")
			}
			if len(q.Releases) > 1 || !release.Local(r.Mechanism) || s.Picks != 1 {
				return refuse("--neighbours add-remove or zero-out", "random allocation of this kind hides presence, not what a record says: it has no theorem for "+
					"replace-one neighbours")
			}
		}
	}
	return nil
}

// method refuses methods, orders and directions for what they are not about.
func (q *Question) method() error {
	shuffle, shuffled := q.Releases[0].Sampling.(release.Shuffle)
	switch q.Method {
	case Clones, BKMTT, EFMRTT:
		if !shuffled {
			return refuse("--shuffle-n with the number of people, or --method auto, pld, rdp, zcdp, zcdp-simple or closed-form",
				"the method %s is about reports that are shuffled", q.Method)
		}
		if shuffle.Columns && q.Method != EFMRTT {
			return refuse("--neighbours replace, or --method auto, closed-form or efmrtt", "the method %s is about whole reports, not about the sums of "+
				"RAPPOR's columns", q.Method)
		}
	}
	if len(q.Orders) > 0 && q.Method != accountant.RDP {
		return refuse("--method rdp", "the orders are those of Renyi divergences")
	}
	if q.Direction == release.BothDirections {
		return nil
	}
	switch {
	case q.Solve != "":
		return refuse("leave --direction or --solve out", "what one direction takes is no guarantee")
	case q.Neighbours == release.ReplaceOne:
		return refuse("--neighbours add-remove or zero-out, or leave --direction out", "replaced records are neither removed nor added")
	case shuffled:
		return refuse("leave --direction out", "the bounds on what is shuffled are the same in both directions")
	}
	return nil
}

// Methods beside those of package accountant, for shuffled reports.
const (
	Clones accountant.Method = "clones" // the bound on any randomizer, whatever more is proved of this one
	BKMTT  accountant.Method = "bkmtt"  // the formula of Balle, Kairouz, McMahan, Thakkar and Thakurta 2020
	EFMRTT accountant.Method = "efmrtt" // the formula of Erlingsson and others 2019
)

// MethodNames are the methods that a Question may name.
const MethodNames = "auto, pld, rdp, zcdp, zcdp-simple, closed-form, clones, bkmtt or efmrtt"

// ParseMethod reads one of MethodNames. Its errors are *[Error].
func ParseMethod(s string) (accountant.Method, error) {
	switch m := accountant.Method(s); m {
	case "auto":
		return accountant.Auto, nil
	case accountant.PLD, accountant.RDP, accountant.ZCDPMethod, accountant.SimpleZCDP, accountant.ClosedForm, Clones, BKMTT, EFMRTT:
		return m, nil
	}
	return "", refuse("--method "+MethodNames, "--method is %q", s)
}

// maxOrders bounds a list of orders.
const maxOrders = 4096

// ParseOrders reads "integer", for accountant.IntegerOrders(), or a list of numbers above 1. Its errors are *[Error].
func ParseOrders(s string) ([]float64, error) {
	if s == "integer" {
		return accountant.IntegerOrders(), nil
	}
	const hint = "--orders integer, or a list as 1.5,2,16,64"
	var orders []float64
	for part := range strings.SplitSeq(s, ",") {
		a, err := strconv.ParseFloat(part, 64)
		if err != nil || !(a > 1 && a <= 1e6) {
			return nil, refuse(hint, "order %q is no number above 1 and at most 10^6", part)
		}
		if orders = append(orders, a); len(orders) > maxOrders {
			return nil, refuse(hint, "there are more than %d orders", maxOrders)
		}
	}
	return orders, nil
}
