package release

import (
	"fmt"
	"math/big"
	"strings"
)

// A Family says which formula bounds the privacy loss of a [Term]: that of its mechanism,
// or of one that is no more private.
type Family uint8

// The families, by the parameters that each has. The zero value is none of them; the
// numbers stand in certificates.
const (
	FamilyGaussian         Family = iota + 1 // Mu: distance of neighbours over the noise's standard deviation
	FamilyLaplace                            // Mu: distance over the scale
	FamilyDiscreteGaussian                   // variance Num/Den from each of Honest servers; each of Coordinates moves by Shift
	FamilyDiscreteLaplace                    // scale Num/Den, one coordinate, moved by Shift
	FamilyResponse                           // Mu: epsilon0, of Answers; 2 Answers: any (Mu, Fail)-DP release
	FamilyZCDP                               // Mu: rho
	// Reports shuffled: of any Local-DP randomizer, or of response among Answers, 2 also
	// for sums of RAPPOR. Chance: 1, or for check-ins of any randomizer among Reports slots
	// that of taking part. Redraw: with which a RAPPOR is drawn again
	// (docs/proofs/device-noise.md, theorem 2). Of the curve the point (Mu, Fail) counts.
	FamilyShuffled
	FamilyCheckedIn // the like for check-ins, present against absent
)

var families = [...]string{
	FamilyGaussian:         "gaussian",
	FamilyLaplace:          "laplace",
	FamilyDiscreteGaussian: "discrete-gaussian",
	FamilyDiscreteLaplace:  "discrete-laplace",
	FamilyResponse:         "randomized-response",
	FamilyZCDP:             "zcdp",
	FamilyShuffled:         "shuffled",
	FamilyCheckedIn:        "checked-in",
}

func (f Family) String() string {
	if f.valid() {
		return families[f]
	}
	return fmt.Sprintf("Family(%d)", uint8(f))
}

func (f Family) valid() bool { return f > 0 && int(f) < len(families) }

// MarshalText is String, for families that there are.
func (f Family) MarshalText() ([]byte, error) {
	if !f.valid() {
		return nil, &ParameterError{"family", float64(f), "1 to 8"}
	}
	return []byte(families[f]), nil
}

// A Sample says how a [Term] keeps records, each with probability Rate, in secret.
type Sample uint8

// The samples. The numbers stand in certificates.
const (
	SampleEveryone Sample = iota
	// SamplePoisson keeps each record independently, while the count is secret too: for
	// AddRemove and ZeroOut neighbours.
	SamplePoisson
	// SampleFixed keeps a uniform subset of public size: for ReplaceOne neighbours.
	SampleFixed
)

var samples = [...]string{SampleEveryone: "everyone", SamplePoisson: "poisson", SampleFixed: "fixed-size"}

func (s Sample) String() string {
	if int(s) < len(samples) {
		return samples[s]
	}
	return fmt.Sprintf("Sample(%d)", uint8(s))
}

// MarshalText is String, for samples that there are.
func (s Sample) MarshalText() ([]byte, error) {
	if int(s) >= len(samples) {
		return nil, &ParameterError{"sample", float64(s), "0 to 2"}
	}
	return []byte(samples[s]), nil
}

// A Term is what bounds the privacy loss of Count releases by one mechanism for one
// relation of neighbours, whose distance its parameters already hold. Certificates list
// terms. Fields that the family does not name are 0; Rate is 1 for SampleEveryone. If
// Dummies is not 0, the count of a SamplePoisson is published: of what is sampled, and of
// what Dummies others send of nobody, each with DummyRate.
type Term struct {
	Family                                                         Family
	Sample                                                         Sample
	Honest                                                         uint8
	Count, Num, Den, Shift, Coordinates, Answers, Reports, Dummies uint64
	Mu, Fail, Rate, Local, Chance, Redraw, DummyRate               float64
}

// String names the family, the count, the sample, and each parameter that is not 0.
func (t Term) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %v", t.Count, t.Family)
	add := func(name string, value any, given bool) {
		if given {
			fmt.Fprintf(&b, ", %s %v", name, value)
		}
	}
	add("mu", t.Mu, t.Mu != 0)
	add("delta", t.Fail, t.Fail != 0)
	add("parameter", Rational{t.Num, t.Den}, t.Num != 0 || t.Den != 0)
	add("shift", t.Shift, t.Shift != 0)
	add("coordinates", t.Coordinates, t.Coordinates != 0)
	add("honest servers", t.Honest, t.Honest != 0)
	add("answers", t.Answers, t.Answers != 0)
	add("reports", t.Reports, t.Reports != 0)
	add("local epsilon", t.Local, t.Local != 0)
	add("chance", t.Chance, t.Chance != 0)
	add("redrawn", t.Redraw, t.Redraw != 0)
	if t.Sample != SampleEveryone {
		add("sample", t.Sample, true)
	}
	add("rate", t.Rate, t.Rate != 1)
	add("dummies", t.Dummies, t.Dummies != 0)
	add("dummy rate", t.DummyRate, t.DummyRate != 0)
	return b.String()
}

// Loss is the most that the privacy loss of one release of the term can be, exactly,
// without what its sample takes off. It is false where there is no such bound, or none
// that is said.
func (t Term) Loss() (*big.Rat, bool) {
	switch {
	case t.Family == FamilyLaplace, t.Family == FamilyResponse && t.Fail == 0:
		loss := new(big.Rat).SetFloat64(t.Mu)
		return loss, loss != nil
	case t.Family == FamilyDiscreteLaplace && t.Num != 0:
		loss := Rational{t.Den, t.Num}.Rat()
		return loss.Mul(loss, new(big.Rat).SetInt(new(big.Int).SetUint64(t.Shift))), true
	case t.Family == FamilyShuffled: // what every report gives by itself
		loss, again := new(big.Rat).SetFloat64(t.Local), new(big.Rat).SetFloat64(t.Redraw)
		if loss == nil || again == nil {
			return nil, false
		}
		return loss.Add(loss, twice(again)), true
	}
	return nil, false
}

// Pure states by its loss alone what has one and says more: as a response among two
// answers, which is less private than any other release of that loss. A proof may be of
// that as well, and is where the pure loss of all releases is as good as what the release
// itself gives.
func (t Term) Pure() (Term, bool) {
	loss, ok := t.Loss()
	if !ok || t.Family == FamilyResponse {
		return t, false
	}
	return Term{
		Family: FamilyResponse, Answers: 2, Mu: Above(loss), Count: t.Count,
		Sample: t.Sample, Rate: t.Rate, Dummies: t.Dummies, DummyRate: t.DummyRate,
	}, true
}
