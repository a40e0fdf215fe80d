package release

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
)

// A Release is Count results by one mechanism, each with noise of its own, about those of
// the people's records that its sampling takes. Releases are comparable. A list of them is
// everything that is told, each chosen knowing the results before it.
type Release struct {
	Mechanism Mechanism
	// Sampling is nil where every record is in every result.
	Sampling Sampling
	// Count is 1 or more. One result of an Allocation is a run of all its steps, and of
	// CheckIns one of all their slots.
	Count uint64
}

// One is a single release about everybody.
func One(m Mechanism) Release { return Release{Mechanism: m, Count: 1} }

// Times is count releases about everybody.
func Times(count uint64, m Mechanism) Release { return Release{Mechanism: m, Count: count} }

// String describes the release in words that begin a sentence.
func (r Release) String() string {
	var b strings.Builder
	_, series := r.Mechanism.(CorrelatedGaussian)
	switch {
	case series && r.Count == 1:
		b.WriteString("one person's round")
	case series:
		fmt.Fprintf(&b, "%d of one person's rounds", r.Count)
	case r.Count == 1:
		b.WriteString("one release")
	default:
		fmt.Fprintf(&b, "%d releases", r.Count)
	}
	runs, run := r.Sampling.(Allocation)
	if run {
		fmt.Fprintf(&b, " in %d steps", runs.Of)
		if r.Count > 1 {
			b.WriteString(" each")
		}
	}
	fmt.Fprintf(&b, " %v", r.Mechanism)
	if run && r.Count > 1 && runs.Rate != 1 {
		b.WriteString(", each time")
		fmt.Fprint(&b, strings.TrimPrefix(runs.String(), ","))
	} else if r.Sampling != nil {
		b.WriteString(r.Sampling.String())
	}
	return b.String()
}

// Sampled is the release about those records that s takes, as it is where they took part
// all before.
func (r Release) Sampled(s Sampling) Release {
	r.Sampling = s
	return r
}

// Repeated is a list count times over.
func Repeated(list []Release, count uint64) []Release {
	out := make([]Release, len(list))
	for i, r := range list {
		if over, n := bits.Mul64(r.Count, count); over == 0 {
			r.Count = n
		} else {
			r.Count = math.MaxUint64 // more than anybody accounts for
		}
		out[i] = r
	}
	return out
}

// A Sampling says how a person's record comes to be in a result, or its origin to be
// hidden. The samplings of this package are the only ones.
type Sampling interface {
	fmt.Stringer // words that follow those of the mechanism

	sampling()
}

// Poisson keeps each record independently with probability Rate, in secret, and so that
// the number of records tells nothing by itself. Where it is published, Dummies honest
// people send an empty report with probability DummyRate each, and the number of both is
// accounted for; if Dummies is 0, it is hidden by other means.
type Poisson struct {
	Rate      float64
	Dummies   uint64
	DummyRate float64
}

// Fixed keeps a uniform subset of public size, Rate of all records.
type Fixed struct{ Rate float64 }

// CountedPoisson keeps each of People records independently with probability Rate, in
// secret, while everybody learns how many were kept.
type CountedPoisson struct {
	Rate   float64
	People uint64
}

// Allocation is a run of Of releases, of which each record is in Picks, chosen uniformly
// and in secret: balls in bins. A record takes part in a run with probability Rate. How
// many records each release has must be hidden.
type Allocation struct {
	Picks, Of uint64
	Rate      float64
}

// CheckIns are random check-ins: a person is there, with probability Rate, at one of Slots
// slots, uniform and in secret, and each slot publishes the report of one of those who are
// there, or of a dummy, or of all of them as the schedule says. People is how many honest
// people check in where all of a slot are averaged.
type CheckIns struct {
	Schedule Schedule
	Slots    uint64
	Rate     float64
	People   uint64
}

// Shuffle hides the origins of the reports of People honest people, the person's own
// included, who are a uniform subset of public size, Rate of all. Columns says that of
// RAPPOR's vectors the sums alone are released.
type Shuffle struct {
	People  uint64
	Rate    float64
	Columns bool
}

func (Poisson) sampling()        {}
func (Fixed) sampling()          {}
func (CountedPoisson) sampling() {}
func (Allocation) sampling()     {}
func (CheckIns) sampling()       {}
func (Shuffle) sampling()        {}

// about describes a secret sample of which the rate is not 1.
func about(rate float64) string {
	if rate == 1 {
		return ""
	}
	return fmt.Sprintf(", about a secret random sample of %.6g %% of the people", 100*rate)
}

func (s Poisson) String() string        { return about(s.Rate) }
func (s Fixed) String() string          { return about(s.Rate) }
func (s CountedPoisson) String() string { return about(s.Rate) }

func (s Allocation) String() string {
	return about(s.Rate) + fmt.Sprintf(", each person in %d of the %d, at random and in secret", s.Picks, s.Of)
}

func (s CheckIns) String() string {
	if s.Schedule == AveragedWindow {
		return fmt.Sprintf(", by %d people who check in at random slots of %d, averaged", s.People, s.Slots)
	}
	return fmt.Sprintf(", by people who check in with probability %.6g at a random slot of a %v window of %d", s.Rate, s.Schedule, s.Slots)
}

func (s Shuffle) String() string {
	return about(s.Rate) + fmt.Sprintf(", shuffled among %d people", s.People)
}
