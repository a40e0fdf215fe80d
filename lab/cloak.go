package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/internal/prose"
	"github.com/starling-agg/starling/lab/internal/randhie"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// Cloak asks for the mean of the visits, each at most 20, through a shuffler: relay, gateway,
// two hops and an analyzer. No server adds noise; every device adds a share of it, and splits
// what it then has into messages of which only the sum of everybody's tells anything.
const Cloak = "cloak"

// CloakVisits asks for the histogram of [Visits] in the same way.
const CloakVisits = "cloak-visits"

// cloaks says whether the lab is one of a cloak.
func (o *Options) cloaks() bool { return o.Recipe == Cloak || o.Recipe == CloakVisits }

// defaultCloaked is how many of the table's first rows contribute, defaultCloakedVisits how
// many to a histogram, of three times as many messages each, and defaultMixed where each
// sends one message.
const defaultCloaked, defaultCloakedVisits, defaultMixed = 2000, 1000, 5000

// A Cloaked is what a lab found that goes through a shuffler by a cloak. Sum is in
// [Report.Estimate].
type Cloaked struct {
	// Mean is the mean of the visits, where that is asked for.
	Mean *MeanCell `json:"mean,omitempty"`
}

// A MeanCell is an estimated mean beside the truth.
type MeanCell struct {
	Estimate   float64    `json:"estimate"`
	Truth      float64    `json:"truth"`
	Stderr     float64    `json:"stderr"`
	Interval95 [2]float64 `json:"interval95"`
}

// withMixedDefaults fills in what is not said of a lab on a path without proofs.
func (o Options) withMixedDefaults() Options {
	if o.Population == 0 {
		switch o.Population = defaultMixed; o.Recipe {
		case Cloak:
			o.Population = defaultCloaked
		case CloakVisits:
			o.Population = defaultCloakedVisits
		}
	}
	if o.Precision == 0 && o.Credentials {
		o.Precision = shownPrecision * time.Duration(max(1, (o.Population+shownCrowd-1)/shownCrowd))
	}
	if o.Precision == 0 {
		o.Precision = mixedPrecision * time.Duration(max(1, (o.Population+mixedCrowd-1)/mixedCrowd))
	}
	return o
}

// validateMixed says what is wrong with such a lab.
func (o *Options) validateMixed() error {
	switch {
	case o.Population < MinRows || o.Population > AllRows:
		return fmt.Errorf("lab: recipe %s goes with a population of %d to %d here, a row each", o.Recipe, MinRows, AllRows)
	case o.Malicious != 0 || o.Sampling != (recipe.Rational{}) || o.Rounds != 0 || o.KnownSample || o.Rows != AllRows:
		return fmt.Errorf("lab: recipe %s goes with --population here, and no rows, malicious reports, coins or rounds", o.Recipe)
	case o.Credentials && o.Recipe != Cloak:
		return fmt.Errorf("lab: credentials go with recipe %s, whose devices send few messages, and not with %s here", Cloak, o.Recipe)
	case o.Credentials && o.Population > maxShown:
		return fmt.Errorf("lab: recipe %s goes with credentials of at most %d devices, of which each shows one with every message", Cloak, maxShown)
	case o.cloaks() && o.Path != "":
		return fmt.Errorf("lab: recipe %s has a path of its own", o.Recipe)
	case o.cloaks() && o.Randomizer != "":
		return fmt.Errorf("lab: recipe %s has a randomizer of its own", o.Recipe)
	}
	return nil
}

// runCloak plays the lab of a cloak.
func runCloak(ctx context.Context, o Options, visits []int) (*Report, error) {
	c := &mixed{o: o, found: &Report{Labels: []string{"visits"}, Truth: []int64{0}, Cloaked: &Cloaked{}}}
	r, values, histogram := c.found, make([]int, 0, o.Population), o.Recipe == CloakVisits
	if histogram {
		r.Labels, r.Truth = randhie.Labels(), make([]int64, randhie.Buckets)
	}
	for _, v := range visits[:o.Population] {
		if histogram {
			v = randhie.Bucket(v)
			r.Truth[v]++
		} else {
			v = min(v, mostVisits)
			r.Truth[0] += int64(v)
		}
		values = append(values, v)
	}
	c.asks = mixedQuestion{
		devices: len(values),
		value: func(i int) client.Value {
			if histogram {
				return client.Bucket(uint32(values[i]))
			}
			return client.Number(uint64(values[i]))
		},
		choose: func(o *account.Options) error {
			o.Name = "Visits to a doctor in a year, on average"
			o.Description = fmt.Sprintf("How many times did you see a doctor in the past year, %d if more?", mostVisits)
			o.Query, o.Randomizer = recipe.Mean{Max: mostVisits}, recipe.Cloak{Kind: recipe.ModernCloak}
			if histogram {
				visitsRecipe(o)
			}
			return nil
		},
		promise: func(f *frame) {
			if z, ok := f.recipe.Randomizer.(recipe.Cloak); ok {
				r.Honest = z.Honest
			}
			through := fmt.Sprintf("RAND Health Insurance Experiment: %s devices, each of which sent %d messages through two hops; nobody knows whose any of them is",
				prose.Count(float64(o.Population)), r.MessagesPerDevice)
			r.words = chartWords{title: fmt.Sprintf("Visits to a doctor in a year, %d at most: their sum", mostVisits), x: "", y: "visits of all", subtitle: through}
			if histogram {
				r.words = chartWords{title: "Visits to a doctor in a year", x: "visits", y: "devices", subtitle: through}
			}
		},
		compare: func(x *collector.Result) {
			if r.Estimate, r.Stderr, r.Interval95 = x.Estimate, x.Stderr, x.Interval95; histogram {
				return
			}
			n := float64(x.ReportCount)
			r.Mean = &MeanCell{x.Estimate[0], float64(r.Truth[0]) / float64(len(values)), x.Stderr[0], x.Interval95[0]}
			r.Estimate, r.Stderr = []float64{float64(x.Raw[0])}, []float64{x.Stderr[0] * n}
			r.Interval95 = [][2]float64{{x.Interval95[0][0] * n, x.Interval95[0][1] * n}}
		},
	}
	return c.run(ctx)
}

// writeCloak writes what only such a lab has, and nothing where it is another.
func (r *Report) writeCloak(w io.Writer) {
	if r.Cloaked == nil {
		return
	}
	write := func(what string, estimate, truth, stderr float64, interval [2]float64) {
		fmt.Fprintf(w, "%-6s %.6g, and in truth %.6g; standard error %.3g, 95 %% interval %.6g to %.6g\n", what, estimate, truth, stderr, interval[0], interval[1])
	}
	if m := r.Mean; m != nil {
		write("sum", r.Estimate[0], float64(r.Truth[0]), r.Stderr[0], r.Interval95[0])
		write("mean", m.Estimate, m.Truth, m.Stderr, m.Interval95)
	}
}

// checkCloak says what must not be in such a report.
func (r *Report) checkCloak() error {
	if m := r.Mean; m != nil {
		if off := math.Abs(m.Estimate-m.Truth) / m.Stderr; !(off <= r.reach()) {
			return fmt.Errorf("lab: the mean is %.1f standard errors off; more than %g is no noise", off, r.reach())
		}
	}
	if r.MessagesPerDevice < 1 {
		return errors.New("lab: devices sent nothing")
	}
	return nil
}
