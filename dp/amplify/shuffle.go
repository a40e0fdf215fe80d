package amplify

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

const (
	cloneTheorem  = "clone bound, summed exactly (Feldman, McMillan and Talwar, FOCS 2021, theorem 3.1)"
	strongTheorem = "fair-coin blanket of binary randomized response, summed exactly (docs/proofs/shuffling.md, theorem 2)"
	columnTheorem = "fair-coin blanket of one RAPPOR column, summed exactly (docs/proofs/shuffling.md, theorem 3)"
	karyTheorem   = "privacy blanket of %d-ary randomized response (Balle, Bell, Gascon and Nissim 2019, lemma 5.3)"
)

// Shuffle is the curve of n users who each send one message, uniformly shuffled, for the
// relation that the message's premise is about: ReplaceOne for an release.Report,
// ZeroOut for accountant.Columns (the reference is the report of the zero vector). A
// report of a stated mechanism has the bound that is proved for it; one of which nothing
// but its epsilon is known, and each user's may depend on those shuffled before, the
// clone bound. n counts the honest users only. The lower bound is that of binary
// randomized response when all others hold the same value.
//
// The "stronger clone" theorem of Feldman, McMillan and Talwar (SODA 2023) is false in
// general (its erratum), and is used only where it is proved directly: for binary
// randomized response and for columns. Whole rows of RAPPOR are reports at twice its
// epsilon: their other bits tell whose they may be, and the bound for columns would be
// wrong (docs/proofs/shuffling.md).
func Shuffle(m release.Message, n uint64) (*Curve, error) {
	is, err := premise(m)
	if err != nil {
		return nil, err
	}
	if err := checkCount("number of users", n); err != nil {
		return nil, err
	}
	epsilon0, users := is.Epsilon0, float64(n)
	out := &Curve{
		neighbours: is.Neighbours,
		lower:      allocationSum{epsilon0, users, 1}.lower,
		end:        epsilon0,
		term:       release.Term{Family: release.FamilyShuffled, Local: epsilon0, Reports: n, Answers: is.Answers, Chance: 1},
	}
	switch {
	case is.Answers == 0:
		out.theorem = cloneTheorem
		out.upper = newCloneSum(epsilon0, users, clones(epsilon0), 1).upper
	case is.Answers == 2:
		if out.theorem = strongTheorem; is.Neighbours == release.ZeroOut {
			out.theorem = columnTheorem
		}
		out.upper = newCloneSum(epsilon0, users, blanket(epsilon0), 1).upper
	case is.Answers > 2:
		out.theorem = fmt.Sprintf(karyTheorem, is.Answers)
		out.lower = nil
		out.upper = newKarySum(epsilon0, users, float64(is.Answers)).upper
	default:
		return nil, fmt.Errorf("%w: shuffling of one answer", release.ErrUnsupported)
	}
	if epsilon0 > largeEpsilon {
		out.upper = func(float64) float64 { return 1 }
	}
	return out, nil
}

// premise is that of a message; nil is none.
func premise(m release.Message) (release.Premise, error) {
	if m == nil {
		return release.Premise{}, fmt.Errorf("%w: the messages are not stated", release.ErrParameter)
	}
	return m.Premise()
}

// closedForm is (epsilon, delta) by a formula, or epsilon0 where that is no better.
func closedForm(epsilon float64, is release.Premise, delta float64, theorem string) release.Guarantee {
	if epsilon = outward.Up(epsilon); !(epsilon < is.Epsilon0) {
		epsilon, theorem = is.Epsilon0, "no amplification: the local guarantee"
	}
	return release.Guarantee{Epsilon: epsilon, Delta: delta, Neighbours: is.Neighbours, Method: "closed-form", Theorem: theorem}
}

func checkShuffle(m release.Message, n uint64, delta float64) (release.Premise, error) {
	is, err := premise(m)
	if err == nil {
		err = checkCount("number of users", n)
	}
	if err == nil {
		err = checkDelta("delta", delta)
	}
	return is, err
}

// ShuffleFOCS is the closed form of the clone bound for any message (Feldman, McMillan
// and Talwar, FOCS 2021, theorem 3.1). Outside its range, epsilon0 <= ln(n/(16
// ln(2/delta))), it answers epsilon0. Shuffle is much tighter.
func ShuffleFOCS(m release.Message, n uint64, delta float64) (release.Guarantee, error) {
	is, err := checkShuffle(m, n, delta)
	if err != nil {
		return release.Guarantee{}, err
	}
	epsilon0, users := is.Epsilon0, float64(n)
	eps := math.Inf(1)
	if epsilon0 <= outward.Down(math.Log(users/(16*math.Log(2/delta)))) {
		e := math.Exp(epsilon0)
		eps = math.Log1p(math.Tanh(epsilon0/2) * (8*math.Sqrt(e*math.Log(4/delta)/users) + 8*e/users))
	}
	return closedForm(eps, is, delta,
		"closed form of the clone bound (Feldman, McMillan and Talwar, FOCS 2021, theorem 3.1)"), nil
}

// ShuffleSODA is the closed form of the stronger clone bound (Feldman, McMillan and
// Talwar, SODA 2023, theorem 3.2). It takes only the messages for which Shuffle uses that
// bound and answers release.ErrUnsupported for others. Outside its range, epsilon0 <=
// ln(n/(8 ln(2/delta)) - 1), it answers epsilon0.
func ShuffleSODA(m release.Message, n uint64, delta float64) (release.Guarantee, error) {
	is, err := checkShuffle(m, n, delta)
	if err != nil {
		return release.Guarantee{}, err
	}
	if is.Answers != 2 {
		return release.Guarantee{}, fmt.Errorf("%w: the stronger clone bound, withdrawn for this randomizer by its erratum",
			release.ErrUnsupported)
	}
	epsilon0, users := is.Epsilon0, float64(n)
	eps := math.Inf(1)
	if limit := users/(8*math.Log(2/delta)) - 1; limit > 0 && epsilon0 <= outward.Down(math.Log(limit)) {
		e := math.Exp(epsilon0)
		eps = math.Log1p(math.Expm1(epsilon0) * (4*math.Sqrt(2*math.Log(4/delta)/((e+1)*users)) + 4/users))
	}
	return closedForm(eps, is, delta,
		"closed form of the stronger clone bound (Feldman, McMillan and Talwar, SODA 2023, theorem 3.2)"), nil
}

// ShuffleEFMRTT is the bound of Erlingsson, Feldman, Mironov, Raghunathan, Talwar and
// Thakurta (SODA 2019, theorem 7), with which paper 004 compares its own.
func ShuffleEFMRTT(m release.Message, n uint64, delta float64) (release.Guarantee, error) {
	is, err := checkShuffle(m, n, delta)
	if err != nil {
		return release.Guarantee{}, err
	}
	return closedForm(efmrtt(is.Epsilon0, float64(n), delta), is, delta,
		"amplification by shuffling (Erlingsson et al. 2019, theorem 7)"), nil
}

func efmrtt(epsilon0, n, delta float64) float64 {
	u := 2 * math.Exp(2*epsilon0) * math.Expm1(epsilon0) / n
	return u*math.Sqrt(2*n*math.Log(1/delta)) + n*u*math.Expm1(u)
}
