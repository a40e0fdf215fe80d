package recipe

import (
	"errors"
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
)

// Estimates are what a released batch says about all devices that decided, reporting or
// not.
type Estimates struct {
	// Values are unbiased estimates of the sums over all devices that decided, one for each
	// place of an answer ([Recipe.Given]); counts, where the query counts; in units of the
	// entries for a [Vector].
	Values []float64
	// StdDev are their standard deviations: noise, randomizers and the sampling of
	// answers. They are upper bounds for sums of numbers above 1, whose spread is not
	// known.
	StdDev []float64
	// Answers is the estimated number of reports that are no dummies.
	Answers float64
	// Devices is the estimated number of devices that decided.
	Devices float64
	// Values are (sum - Baseline) * Weight. Baseline is what randomizers put into each
	// sum whoever answers what; 0 without one. Weight undoes the coins and what a
	// randomizer takes away of an answer; at least 1.
	Baseline, Weight float64

	still   float64   // variance of an estimate of 0
	perUnit []float64 // what each unit of the true value adds to it
}

// Interval holds the true value of a place if its estimate is not more than z of the
// standard deviations off that it has if that value is true (a score interval: it is
// right for small counts too). Half a unit of the released sum is added at both ends, for
// sums are whole: with z = 1.96 the interval is right 95 times in 100, or more often.
func (e *Estimates) Interval(place int, z float64) [2]float64 {
	// (estimate - v)^2 = z^2 (still + perUnit max(0, v)), solved for v from both sides.
	b := z * z * e.perUnit[place] / 2
	end := func(estimate, side float64) float64 {
		if inner := z*z*e.still + 2*b*estimate + b*b; inner >= 0 {
			if v := estimate + b + side*math.Sqrt(inner); v >= 0 {
				return v
			}
		}
		return estimate + side*z*math.Sqrt(e.still)
	}
	half, v := e.Weight/2, e.Values[place]
	return [2]float64{end(v-half, -1), end(v+half, 1)}
}

// Estimate undoes the recipe's coins, dummies and randomizer in a batch of reports,
// dummies among them: sums are the released integers, one for each place of the query.
// Everybody who decided is taken to have an answer; the estimates of Answers and Devices
// need that. Where devices wait for slots the batch is one of them, and Devices are those whose
// slot it was: as counted, or for fixed and sliding [CheckIn] as planned.
//
//   - Coins: a sum over reported answers, over the rate s of reporting (Horvitz and
//     Thompson 1952; for [Importance] the rate of answers that are not the default).
//   - Dummies: with uploads t = s + (c-s)d of all devices, s/t of reports are answers. A
//     dummy adds nothing to exact sums; to randomized ones it adds as much as no answer
//     does, which the total number of reports takes away.
func (r *Recipe) Estimate(sums []int64, reports uint64) (*Estimates, error) {
	return r.estimate(sums, reports, reports)
}

// EstimateJoined is Estimate about all contributions of a round, whatever batch they are in:
// those that are left out are as a part of the others that nobody chose, which counts as one
// of reports that each coins kept back.
func (r *Recipe) EstimateJoined(j *Joined) (*Estimates, error) {
	return r.estimate(j.Sums, j.Reports, max(j.All, j.Reports))
}

// estimate is about all of the contributions that there are, of which reports were added up.
func (r *Recipe) estimate(sums []int64, reports, all uint64) (*Estimates, error) {
	if r.Query == nil || len(sums) != r.Query.Aggregates() {
		return nil, fmt.Errorf("recipe: %d sums for query %v", len(sums), r.Query)
	}
	if reports == 0 {
		return nil, errors.New("recipe: an estimate from no reports")
	}
	p := r.probabilities()
	n := float64(reports)
	if all > reports {
		p.report = n / float64(all)
		p.upload = p.report
	}
	counts := sums
	if r.Randomizer != nil {
		var err error
		if counts, err = r.Randomizer.counts(sums); err != nil {
			return nil, fmt.Errorf("recipe: estimate: %w", err)
		}
	}
	e := &Estimates{Values: make([]float64, len(counts)), StdDev: make([]float64, len(counts))}
	unblurred := make([]float64, len(counts)) // sums over reported answers
	for i, s := range counts {
		unblurred[i] = p.unblur(float64(s), n)
	}
	if r.ByAnswer() {
		// n = rare t_rare + usual t_usual, and the sums tell the rare ones.
		least, _ := r.reportRates()
		share, _ := least.Float64()
		rare := 0.0
		for _, x := range unblurred {
			rare += x / p.report
		}
		usual := max(0, n-rare*p.upload) / r.uploaded(least)
		e.Devices = rare + usual
		e.Answers = rare*p.report + usual*share
	} else {
		e.Devices, e.Answers = n/p.upload, n*p.report/p.upload
		if c, ok := r.checkIn(); ok && c.Schedule != release.AveragedWindow {
			e.Devices = float64(r.Rate.Devices) / float64(c.Slots)
		}
	}
	noise := r.noiseVariance() / (p.scale * p.scale)
	unit := r.Query.Unit()
	e.Baseline, e.Weight = p.baseline(n), unit/(p.scale*p.report)
	variance := func(x float64) float64 {
		return (noise + p.blurVariance(e.Answers, n, x) + r.Query.spread(x, e.Answers)*(1-p.report)) / (p.report * p.report) * unit * unit
	}
	e.still = variance(0)
	e.perUnit = make([]float64, len(counts))
	for i, x := range unblurred {
		e.Values[i] = x / p.report * unit
		e.StdDev[i] = math.Sqrt(variance(math.Max(0, x)))
		// The variance is linear in what a place can hold.
		if most := math.Min(e.Answers, n) * r.Query.Largest(); most > 0 {
			e.perUnit[i] = math.Max(0, (variance(most)-e.still)*p.report/most)
		}
	}
	return e, nil
}

// ForecastError is the expected squared error of an estimated distribution: the sum over
// all places of the variance of Values/devices, for a histogram (or multihot of weight 1)
// whose places have the given shares of the devices. It is what paper 000's figures 2 and
// 3 plot, with its convention that devices are a sample of a larger population unless
// finite.
func (r *Recipe) ForecastError(shares []float64, devices uint64, finite bool) float64 {
	p := r.probabilities()
	d := float64(devices)
	_, _, any := r.slotWeights()
	d *= any / float64(r.Slots()) // on average over slots
	reports, answers := d*p.upload, d*p.report
	total := 0.0
	for _, share := range shares {
		x := share * d * p.report
		sampling := x * (1 - p.report)
		if !finite {
			sampling = x * (1 - share*p.report)
		}
		total += (r.noiseVariance()/(p.scale*p.scale) + p.blurVariance(answers, reports, x) + sampling) / (p.report * p.report * d * d)
	}
	return total
}

// probabilities of a report, as an estimate needs them.
type probabilities struct {
	report, upload float64 // of an answer that counts, and of it or a dummy
	// A report of a value adds keep at its place and lie elsewhere; one of no value adds
	// none everywhere.
	keep, lie, none float64
	scale           float64 // keep - lie
	answers         float64 // the part of reports that are no dummies; for randomizers only
	added           float64 // the variance that each report's own noise adds
}

func (r *Recipe) probabilities() probabilities {
	_, most := r.reportRates()
	p := probabilities{keep: 1, scale: 1}
	p.report, _ = most.Float64()
	p.upload = r.uploaded(most)
	p.answers = p.report / p.upload
	if r.Randomizer != nil {
		r.Randomizer.blurs(&p, r.Query)
	}
	p.scale = p.keep - p.lie
	return p
}

// unblur estimates how many reported answers name a place, from the sum there over n
// reports: the sum is x keep + (answers - x) lie + (n - answers) none.
func (p probabilities) unblur(sum, n float64) float64 {
	return (sum - p.baseline(n)) / p.scale
}

// baseline is what n reports add to each place, whatever their answers.
func (p probabilities) baseline(n float64) float64 {
	answers := n * p.answers
	return answers*p.lie + (n-answers)*p.none
}

// blurVariance is the variance that the randomizer adds to an unblurred sum of x among
// the given answers and n reports.
func (p probabilities) blurVariance(answers, n, x float64) float64 {
	x = min(x, answers)
	v := func(q float64) float64 { return q * (1 - q) }
	return (x*v(p.keep)+(answers-x)*v(p.lie)+max(0, n-answers)*v(p.none))/(p.scale*p.scale) + n*p.added
}

// NoiseVariance is the variance of what both servers add to one released number; for
// [CorrelatedGaussian] in the last batch, which has the most.
func (r *Recipe) NoiseVariance() float64 { return r.noiseVariance() }

func (r *Recipe) noiseVariance() float64 { return r.Noise.variance() }
