package amplify

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/certificate"
)

type classKind uint8

const (
	anyRandomizer classKind = iota + 1
	binaryResponse
	karyResponse
	rapporSums
)

// A Class says which local randomizers a shuffling bound is about. Make one with AnyRandomizer, BinaryResponse,
// KaryResponse or RAPPORSums; the zero value is refused.
type Class struct {
	kind classKind
	k    uint64
}

// AnyRandomizer is every local randomizer that is epsilon0-DP for replacement, one message a user, possibly adaptive:
// each user's may depend on the messages shuffled before. RAPPOR whose rows are shuffled whole belongs here with twice
// its deletion epsilon.
func AnyRandomizer() Class { return Class{anyRandomizer, 0} }

// BinaryResponse is binary randomized response with flip probability 1/(e^epsilon0+1).
func BinaryResponse() Class { return Class{binaryResponse, 2} }

// KaryResponse is k-ary randomized response: the truth with e^epsilon0 times the probability of each other value.
func KaryResponse(k uint64) Class { return Class{karyResponse, k} }

// RAPPORSums is one-hot unary encoding with every bit flipped with probability 1/(e^epsilon0+1), epsilon0-DP for
// deletion, of which only the sums of the columns are released (or each column shuffled by itself). If whole rows are
// shuffled the other bits of a row tell whose it may be, and this bound is wrong: see docs/proofs/shuffling.md.
func RAPPORSums() Class { return Class{rapporSums, 0} }

const (
	cloneTheorem  = "clone bound, summed exactly (Feldman, McMillan and Talwar, FOCS 2021, theorem 3.1)"
	strongTheorem = "fair-coin blanket of binary randomized response, summed exactly (docs/proofs/shuffling.md, theorem 2)"
	columnTheorem = "fair-coin blanket of one RAPPOR column, summed exactly (docs/proofs/shuffling.md, theorem 3)"
	karyTheorem   = "privacy blanket of %d-ary randomized response (Balle, Bell, Gascon and Nissim 2019, lemma 5.3)"
)

// Shuffle is the curve of n users who each send one message of a randomizer of the class, uniformly shuffled. The
// relation is ReplaceOne; for RAPPORSums it is ZeroOut (the reference is the report of the zero vector). n counts the
// honest users only. The lower bound is that of binary randomized response when all others hold the same value.
//
// The "stronger clone" theorem of Feldman, McMillan and Talwar (SODA 2023) is false in general (its erratum), and is
// used only where it is proved directly: BinaryResponse and RAPPORSums.
func Shuffle(c Class, epsilon0 float64, n uint64) (*Curve, error) {
	if err := checkLocal(epsilon0); err != nil {
		return nil, err
	}
	if err := checkCount("number of users", n); err != nil {
		return nil, err
	}
	out := &Curve{
		neighbours: accountant.ReplaceOne,
		lower:      allocationSum{epsilon0, float64(n), 1}.lower,
		end:        epsilon0,
		term:       certificate.Term{Mechanism: certificate.Shuffled, Local: epsilon0, Reports: n, Answers: c.k, Chance: 1},
	}
	users := float64(n)
	switch c.kind {
	case anyRandomizer:
		out.theorem = cloneTheorem
		out.upper = newCloneSum(epsilon0, users, clones(epsilon0), 1).upper
	case binaryResponse:
		out.theorem = strongTheorem
		out.upper = newCloneSum(epsilon0, users, blanket(epsilon0), 1).upper
	case rapporSums:
		out.theorem = columnTheorem
		out.neighbours = accountant.ZeroOut
		out.term.Answers = 2
		out.upper = newCloneSum(epsilon0, users, blanket(epsilon0), 1).upper
	case karyResponse:
		if c.k < 2 || c.k > 1<<32 {
			return nil, parameter("number of values", float64(c.k), "2 to 2^32")
		}
		if c.k == 2 {
			return Shuffle(BinaryResponse(), epsilon0, n)
		}
		out.theorem = fmt.Sprintf(karyTheorem, c.k)
		out.lower = nil
		out.upper = newKarySum(epsilon0, users, float64(c.k)).upper
	default:
		return nil, fmt.Errorf("%w: the class of the local randomizer is not stated", accountant.ErrParameter)
	}
	if epsilon0 > largeEpsilon {
		out.upper = func(float64) float64 { return 1 }
	}
	return out, nil
}

// closedForm is (epsilon, delta) by a formula, or epsilon0 where that is no better.
func closedForm(epsilon, epsilon0, delta float64, n accountant.Neighbours, theorem string) accountant.Guarantee {
	if epsilon = up(epsilon); !(epsilon < epsilon0) {
		epsilon, theorem = epsilon0, "no amplification: the local guarantee"
	}
	return accountant.Guarantee{Epsilon: epsilon, Delta: delta, Neighbours: n, Method: "closed-form", Theorem: theorem}
}

func checkShuffle(epsilon0 float64, n uint64, delta float64) error {
	if err := checkLocal(epsilon0); err != nil {
		return err
	}
	if err := checkCount("number of users", n); err != nil {
		return err
	}
	return checkDelta("delta", delta)
}

// ShuffleFOCS is the closed form of the clone bound for AnyRandomizer (Feldman, McMillan and Talwar, FOCS 2021,
// theorem 3.1). Outside its range, epsilon0 <= ln(n/(16 ln(2/delta))), it answers epsilon0. Shuffle is much tighter.
func ShuffleFOCS(epsilon0 float64, n uint64, delta float64) (accountant.Guarantee, error) {
	if err := checkShuffle(epsilon0, n, delta); err != nil {
		return accountant.Guarantee{}, err
	}
	users := float64(n)
	eps := math.Inf(1)
	if epsilon0 <= down(math.Log(users/(16*math.Log(2/delta)))) {
		e := math.Exp(epsilon0)
		eps = math.Log1p(math.Tanh(epsilon0/2) * (8*math.Sqrt(e*math.Log(4/delta)/users) + 8*e/users))
	}
	return closedForm(eps, epsilon0, delta, accountant.ReplaceOne,
		"closed form of the clone bound (Feldman, McMillan and Talwar, FOCS 2021, theorem 3.1)"), nil
}

// ShuffleSODA is the closed form of the stronger clone bound (Feldman, McMillan and Talwar, SODA 2023, theorem 3.2).
// It takes only the classes for which Shuffle uses that bound and answers accountant.ErrUnsupported for others. Outside
// its range, epsilon0 <= ln(n/(8 ln(2/delta)) - 1), it answers epsilon0.
func ShuffleSODA(c Class, epsilon0 float64, n uint64, delta float64) (accountant.Guarantee, error) {
	if err := checkShuffle(epsilon0, n, delta); err != nil {
		return accountant.Guarantee{}, err
	}
	relation := accountant.ReplaceOne
	switch c.kind {
	case binaryResponse:
	case rapporSums:
		relation = accountant.ZeroOut
	default:
		return accountant.Guarantee{}, fmt.Errorf("%w: the stronger clone bound, withdrawn for this class by its erratum",
			accountant.ErrUnsupported)
	}
	users := float64(n)
	eps := math.Inf(1)
	if limit := users/(8*math.Log(2/delta)) - 1; limit > 0 && epsilon0 <= down(math.Log(limit)) {
		e := math.Exp(epsilon0)
		eps = math.Log1p(math.Expm1(epsilon0) * (4*math.Sqrt(2*math.Log(4/delta)/((e+1)*users)) + 4/users))
	}
	return closedForm(eps, epsilon0, delta, relation,
		"closed form of the stronger clone bound (Feldman, McMillan and Talwar, SODA 2023, theorem 3.2)"), nil
}

// ShuffleEFMRTT is the bound of Erlingsson, Feldman, Mironov, Raghunathan, Talwar and Thakurta (SODA 2019, theorem 7),
// with which paper 004 compares its own.
func ShuffleEFMRTT(epsilon0 float64, n uint64, delta float64) (accountant.Guarantee, error) {
	if err := checkShuffle(epsilon0, n, delta); err != nil {
		return accountant.Guarantee{}, err
	}
	return closedForm(efmrtt(epsilon0, float64(n), delta), epsilon0, delta, accountant.ReplaceOne,
		"amplification by shuffling (Erlingsson et al. 2019, theorem 7)"), nil
}

func efmrtt(epsilon0, n, delta float64) float64 {
	u := 2 * math.Exp(2*epsilon0) * math.Expm1(epsilon0) / n
	return u*math.Sqrt(2*n*math.Log(1/delta)) + n*u*math.Expm1(u)
}
