package recipe

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"

	"github.com/starling-agg/starling/dp/accountant"
)

// A Loss is a proved (Epsilon, Delta). Epsilon is +Inf, written null in JSON, where nothing is proved.
type Loss struct{ Epsilon, Delta float64 }

// NoPrivacy is the loss that bounds nothing.
var NoPrivacy = Loss{Epsilon: math.Inf(1), Delta: 1}

// Finite says whether the loss bounds anything.
func (l Loss) Finite() bool { return !math.IsInf(l.Epsilon, 1) && l.Delta < 1 }

func (l Loss) String() string {
	if !l.Finite() {
		return "no differential privacy"
	}
	return fmt.Sprintf("epsilon %s, delta %s", Above(l.Epsilon), Above(l.Delta))
}

// Above writes a bound with four digits, never below it: a number that reads back as x, and else the next above. So the float64
// that stands for 10^-9, which is a hair above it, is written as everybody writes it and not as 1.001 times that.
func Above(x float64) string {
	if s := strconv.FormatFloat(x, 'e', 3, 64); x >= 0 {
		if d, err := ParseDecimal(s); err == nil && d.Float() == x {
			return d.String()
		}
	}
	d, err := DecimalAbove(x, 4)
	if err != nil {
		return fmt.Sprint(x)
	}
	return d.String()
}

// MarshalJSON writes {"epsilon":...,"delta":...}, with null for an epsilon that is not bounded.
func (l Loss) MarshalJSON() ([]byte, error) {
	out := struct {
		Epsilon *float64 `json:"epsilon"`
		Delta   float64  `json:"delta"`
	}{nil, l.Delta}
	if l.Finite() {
		out.Epsilon = &l.Epsilon
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (l *Loss) UnmarshalJSON(b []byte) error {
	var in struct {
		Epsilon *float64 `json:"epsilon"`
		Delta   float64  `json:"delta"`
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*l = NoPrivacy
	if in.Epsilon != nil {
		*l = Loss{*in.Epsilon, in.Delta}
	}
	return nil
}

// A Guarantee is what the choices of a recipe give, computed.
type Guarantee struct {
	// Loss is the total over all rounds, under the assumptions; NoPrivacy if no noise is added.
	Loss
	// PerRound is the loss of one round at the same delta.
	PerRound Loss
	// Rounds is in how many rounds one unit may have a report, one in each.
	Rounds uint32
	// Neighbours is the relation that the loss is about, between one unit's reports; 0 if
	// there is no loss to speak of.
	Neighbours accountant.Neighbours
	// Theorem names the result the loss rests on.
	Theorem string
	// Assumptions must hold for the loss to be true.
	Assumptions []string
	// Conditions must hold too, and are the word of the recipe's author, which no
	// independent party vouches for: numbers of devices, and of honest ones among those
	// that report. None if the loss counts on nobody's word.
	Conditions []string
	// Unconditional is the loss that counts on none of Conditions, over all rounds, and
	// UnconditionalNeighbours the relation that it is about: Loss and Neighbours, where
	// there are no conditions.
	Unconditional           Loss
	UnconditionalNeighbours accountant.Neighbours
	// Unit is whose data this is about. PerPerson is how many of them a person is said to
	// have, 0 if that is not said, and Person what such a person has on none of
	// Conditions, over all rounds: see [Group].
	Unit      string
	PerPerson uint32
	Person    Loss
	// Fallbacks say what is left when one does not.
	Fallbacks []Fallback
}

// A Fallback is what is left of a guarantee when an assumption fails.
type Fallback struct {
	Kind FallbackKind `json:"kind"`
	When string       `json:"when"`
	Loss Loss         `json:"loss"`
	Note string       `json:"note"`
}

// A FallbackKind names the assumption that fails; a closed set.
type FallbackKind string

const (
	OneServerFails   FallbackKind = "one-server-fails"
	ServersCollude   FallbackKind = "servers-collude"
	RelayColludes    FallbackKind = "relay-colludes"
	EdgeWatched      FallbackKind = "network-edge"
	HalfAreDishonest FallbackKind = "half-dishonest"
)

// Fallback returns what is left when an assumption fails, if the guarantee depends on it.
func (g *Guarantee) Fallback(k FallbackKind) (Fallback, bool) {
	for _, f := range g.Fallbacks {
		if f.Kind == k {
			return f, true
		}
	}
	return Fallback{}, false
}

// MarshalJSON writes the guarantee as one flat object. Its epsilon is that of Loss;
// conditions stand beside it.
func (g Guarantee) MarshalJSON() ([]byte, error) {
	out := struct {
		Epsilon       *float64   `json:"epsilon"`
		Delta         float64    `json:"delta"`
		Conditions    []string   `json:"conditions"`
		Unconditional Loss       `json:"unconditional"`
		Unit          string     `json:"unit"`
		PerPerson     uint32     `json:"units_per_person,omitempty"`
		Person        *Loss      `json:"person,omitempty"`
		PerRound      Loss       `json:"per_round"`
		Rounds        uint32     `json:"rounds"`
		Neighbours    string     `json:"neighbours,omitempty"`
		Theorem       string     `json:"theorem,omitempty"`
		Assumptions   []string   `json:"assumptions"`
		Fallbacks     []Fallback `json:"fallbacks"`
	}{nil, g.Delta, append([]string{}, g.Conditions...), g.Unconditional, g.Unit, g.PerPerson, nil, g.PerRound, g.Rounds, "", g.Theorem, g.Assumptions, g.Fallbacks}
	if g.Finite() {
		out.Epsilon = &g.Epsilon
		out.Neighbours = g.Neighbours.String()
	}
	if g.PerPerson > 0 {
		out.Person = &g.Person
	}
	return json.Marshal(out)
}

// ClaimError: the recipe promises more than its choices give.
type ClaimError struct {
	Claimed  ApproxDP
	Computed Loss
}

func (e *ClaimError) Error() string {
	return fmt.Sprintf("recipe: claim does not hold: epsilon %s at delta %s is claimed; the choices give %s",
		e.Claimed.Epsilon, e.Claimed.Delta, e.Computed)
}

// Contribution is what one report can add to the aggregate.
func Contribution(q Query) (accountant.Contribution, error) {
	switch q := q.(type) {
	case Count:
		return accountant.Interval(1), nil
	case Sum:
		return accountant.Interval(float64(q.Max)), nil
	case Mean:
		return accountant.Interval(float64(q.Max)), nil
	case Histogram:
		return accountant.OneHot(), nil
	case Multihot:
		if 2*q.MaxWeight >= uint64(q.Length) {
			return accountant.Vector(uint64(q.Length), 1), nil
		}
		return accountant.MultiHot(q.MaxWeight), nil
	case SumVec:
		return accountant.Vector(uint64(q.Length), float64(q.Max)), nil
	case L1BoundSum:
		return accountant.Simplex(uint64(q.Length), float64(q.Max)), nil
	case Vector:
		return accountant.Ball(uint64(q.Dimension), float64(q.Bound)), nil
	}
	return accountant.Contribution{}, errors.New("recipe: the query is missing")
}

// event is one release with the noise of the given number of honest servers.
func event(q Query, n Noise, honest int) (accountant.Event, error) {
	c, err := Contribution(q)
	if err != nil {
		return nil, err
	}
	switch n := n.(type) {
	case DiscreteGaussian:
		v, err := n.perServer()
		if err != nil {
			return nil, err
		}
		return accountant.DiscreteGaussian{Sigma2: accountant.Rational(v), Contribution: c, Honest: honest}, nil
	case DiscreteLaplace:
		if honest > 1 {
			return accountant.DiscreteLaplaceSum{Scale: accountant.Rational(n.Scale), Contribution: c}, nil
		}
		return accountant.DiscreteLaplace{Scale: accountant.Rational(n.Scale), Contribution: c}, nil
	case CorrelatedGaussian:
		return n.event(c), nil
	}
	return nil, errors.New("recipe: no noise to account for")
}

// loss is the proved loss of a number of rounds at the delta, of which spent is charged for what the event leaves out. The
// accountant is asked about a float64 below, and what it proves holds for the delta itself, which is reported.
func loss(e accountant.Event, rounds uint32, delta Decimal, spent float64, n accountant.Neighbours) (Loss, string, error) {
	rest := delta.FloatDown() - spent
	if !(rest > 0) {
		return NoPrivacy, "", nil
	}
	g, err := accountant.Epsilon(accountant.SelfCompose{Event: e, Count: uint64(rounds)}, rest, n)
	if errors.Is(err, accountant.ErrNoGuarantee) {
		return NoPrivacy, "", nil
	}
	if err != nil {
		return Loss{}, "", &InvalidError{"guarantee", fmt.Sprintf("cannot be computed: %v", err)}
	}
	return Loss{g.Epsilon, delta.Float()}, g.Theorem, nil
}

// Neighbours is the relation that a claim about the recipe is about. Where coins count, it is AddRemove, about answers: a
// device's answer against the same device without one, which still tosses and may send a dummy. Otherwise the number of
// reports is public: ReplaceOne, and ZeroOut for RAPPOR.
func (r *Recipe) Neighbours() accountant.Neighbours {
	if r.amplified() {
		return accountant.AddRemove
	}
	return r.knownNeighbours()
}

// knownNeighbours is the relation where it is known who takes part.
func (r *Recipe) knownNeighbours() accountant.Neighbours {
	if _, ok := r.Randomizer.(RAPPOR); ok {
		return accountant.ZeroOut
	}
	return accountant.ReplaceOne
}

// exact says whether results carry no noise at all.
func (r *Recipe) exact() bool { return r.Noise == NoNoise{} && r.Randomizer == NoRandomizer{} }

// Guarantee computes what the recipe's choices give, at the delta of its claim, for the neighbours of [Recipe.Neighbours]
// (leader, helper and collector all see the number of reports). It returns a *[ClaimError], beside the guarantee, if the
// claim is better than that. A recipe without noise has no guarantee and may claim none.
func (r *Recipe) Guarantee() (*Guarantee, error) {
	claim, claimed := r.Claim.(ApproxDP)
	if r.exact() {
		g := withoutNoise()
		g.Unit, g.PerPerson, g.Person = r.PrivacyUnit().Name, r.PrivacyUnit().PerPerson, NoPrivacy
		if claimed {
			return g, &ClaimError{claim, NoPrivacy}
		}
		return g, nil
	}
	if !claimed {
		return nil, &InvalidError{"claim", "is missing although noise is added: state epsilon and delta"}
	}
	g, err := r.compute(claim)
	if err != nil {
		return nil, err
	}
	if !g.Finite() || new(big.Rat).SetFloat64(g.Epsilon).Cmp(claim.Epsilon.Rat()) > 0 {
		return g, &ClaimError{claim, g.Loss}
	}
	return g, nil
}

func withoutNoise() *Guarantee {
	return &Guarantee{
		Loss:          NoPrivacy,
		Unconditional: NoPrivacy,
		PerRound:      NoPrivacy,
		Rounds:        1,
		Assumptions: []string{
			"the leader and the helper do not put their shares together",
		},
		Fallbacks: []Fallback{{
			Kind: ServersCollude,
			When: "the leader and the helper put their shares together",
			Loss: NoPrivacy,
			Note: "they can read every answer",
		}},
	}
}

// A NoiseKind names a family of server noise for [Calibrate].
type NoiseKind string

const (
	GaussianNoise NoiseKind = "discrete-gaussian"
	LaplaceNoise  NoiseKind = "discrete-laplace"
)

// Calibrate returns the least noise of a kind, rounded up, under which rounds releases of the query are (epsilon,
// delta)-differentially private for replace-one neighbours when one server is honest. Each server draws all of it.
func Calibrate(q Query, kind NoiseKind, epsilon, delta Decimal, rounds uint32) (Noise, error) {
	eps, dlt := epsilon.FloatDown(), delta.FloatDown()
	if !(eps > 0) || !(dlt > 0 && dlt < 1) || rounds == 0 {
		return nil, &InvalidError{"claim", "needs epsilon above 0, delta between 0 and 1, and at least 1 round"}
	}
	c, err := Contribution(q)
	if err != nil {
		return nil, err
	}
	switch kind {
	case GaussianNoise:
		v, _, err := accountant.CalibrateDiscreteGaussian(eps, dlt, c, accountant.ReplaceOne, uint64(rounds))
		if err != nil {
			return nil, fmt.Errorf("recipe: calibrate: %w", err)
		}
		return DiscreteGaussian{Variance: Rational(v), Share: DrawsAll}, nil
	case LaplaceNoise:
		return calibrateLaplace(c, eps, delta, rounds)
	}
	return nil, &InvalidError{"noise", fmt.Sprintf("kind %q is not %q or %q", kind, GaussianNoise, LaplaceNoise)}
}

// calibrateLaplace searches the scale in units of 2^-16, between a scale that surely fails or is the least, and one that
// surely holds.
func calibrateLaplace(c accountant.Contribution, epsilon float64, delta Decimal, rounds uint32) (Noise, error) {
	const unit = 1 << 16
	var failure error
	holds := func(units uint64) bool {
		e := accountant.DiscreteLaplace{Scale: accountant.Rational{Num: units, Den: unit}, Contribution: c}
		l, _, err := loss(e, rounds, delta, 0, accountant.ReplaceOne)
		if err != nil {
			failure = err
			return false
		}
		return l.Epsilon <= epsilon
	}
	low, high := uint64(0), uint64(unit)
	for !holds(high) {
		if failure != nil {
			return nil, failure
		}
		if low, high = high, 2*high; high > 1<<56 {
			return nil, fmt.Errorf("recipe: calibrate: %w", accountant.ErrNoGuarantee)
		}
	}
	for high-low > 1 {
		mid := low + (high-low)/2
		if holds(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	if failure != nil {
		return nil, failure
	}
	scale, err := NewRational(high, unit)
	return DiscreteLaplace{scale}, err
}

// count writes a number with its noun.
func count(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
