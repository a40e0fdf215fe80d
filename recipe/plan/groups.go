package plan

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// grouped is a query for sums by group.
type grouped interface {
	SumVariance() float64
	Errors(z, variance float64, reports uint64) recipe.GroupErrors
}

// eitherNoise says whether whole-number Laplace noise is planned too, and the narrower
// taken: for answers that are as far apart in the L1 norm as sqrt(2) times in the L2 norm,
// however many places they have, it is the narrower one for a few rounds.
func (g *Goal) eitherNoise() bool {
	_, ok := g.Query.(grouped)
	return ok && g.Population == 0 && g.Batches == 0
}

// byEither plans with both kinds of the servers' noise and takes the better plan.
func (p *Plan) byEither() error {
	other := *p
	if err := p.byServers(); err != nil {
		return err
	}
	other.laplace = true
	// A kind that cannot be computed is none.
	if err := other.byServers(); err == nil && other.better(p) {
		*p = other
	}
	return nil
}

// better says whether a plan serves its goal better than another: by meeting it, then by
// the loss where the accuracy is met, and else by the error.
func (p *Plan) better(than *Plan) bool {
	switch {
	case p.Fits != than.Fits:
		return p.Fits
	case p.Goal.Epsilon == 0 || p.Goal.Within != 0 && p.Fits:
		return p.Loss.Epsilon < than.Loss.Epsilon
	}
	return p.Error.Each < than.Error.Each
}

// parameter is that of the servers' noise: a variance, or the scale of Laplace noise.
func (p *Plan) parameter() recipe.Rational {
	if p.laplace {
		return p.Scale
	}
	return p.Variance
}

// drawn is the variance of what one server draws.
func (p *Plan) drawn() float64 {
	if !p.laplace {
		return p.Variance.Float()
	}
	d := p.laplaceNoise().Spread().Deviation // of both servers
	return d * d / 2
}

// laplaceNoise is that of each server.
func (p *Plan) laplaceNoise() recipe.Noise {
	none, err := recipe.NoiseNamed(string(account.LaplaceNoise))
	if err != nil {
		panic(fmt.Sprintf("plan: internal error: %v", err))
	}
	return none.Sized(p.Scale)
}

// widest takes the widest noise whose variance is at most v.
func (p *Plan) widest(v float64) (err error) {
	if !p.laplace {
		p.Variance, err = below(v)
		return err
	}
	// The variance of whole-number noise is less than that of continuous noise.
	p.Scale, err = below(math.Sqrt(v / 2))
	return err
}

// z is how many standard deviations the servers' noise stays within with probability c: as
// many as a normal number or as two Laplace draws do, as a sum of several is between.
func (p *Plan) z(c float64) float64 {
	if !p.laplace {
		return z(c)
	}
	low, high := 0.0, 800.0 // of x/b in P(|X+Y| > x) = (1 + x/2b) exp(-x/b)
	for range 80 {
		if mid := (low + high) / 2; (1+mid/2)*math.Exp(-mid) > 1-c {
			low = mid
		} else {
			high = mid
		}
	}
	return max(z(c), high/2) // both draws have deviation 2b
}

// mechanism is the servers' noise with a parameter.
func (p *Plan) mechanism(parameter release.Rational) release.Mechanism {
	if p.laplace {
		return release.DiscreteLaplace{Scale: parameter, Contribution: p.Goal.contribution()}
	}
	return release.DiscreteGaussian{Variance: parameter, Contribution: p.Goal.contribution()}
}

// calibrateLaplace finds the least scale for the wanted loss.
func (p *Plan) calibrateLaplace() error {
	g := &p.Goal
	b, err := accountant.Calibrate(p.mechanism(release.Rational{}), g.Epsilon, g.Delta, release.ReplaceOne, g.releases())
	if err != nil {
		return err
	}
	p.Scale = b
	return p.lose()
}

// groups are the errors of sizes, means and totals beside those of sums, or nil where none
// are asked for.
func (p *Plan) groups() *recipe.GroupErrors {
	q, ok := p.Goal.Query.(grouped)
	if !ok || p.Goal.Batches > 0 {
		return nil
	}
	if g := &p.Goal; g.blursGroups() {
		z, err := g.asked(g.Randomizer, p.perBit)
		if err != nil {
			return nil
		}
		sums, _ := g.Query.(recipe.SumsByGroup)
		e, err := z.Errors(sums, p.z(g.Confidence), g.People)
		if err != nil {
			return nil
		}
		return &e
	}
	e := q.Errors(p.z(p.Goal.Confidence), 2*p.drawn(), p.Goal.People)
	return &e
}

// results is how many numbers the accuracy is about.
func (p *Plan) results() int {
	n := p.Goal.Query.Aggregates()
	if _, ok := p.Goal.Query.(grouped); ok {
		return n / 2 // two places make one sum
	}
	return n
}

func groupWords(e *recipe.GroupErrors) string {
	if e.Size == 0 {
		return fmt.Sprintf("this is of the sum of each group; the sum of all is within %s, and sizes and means are not told", atMost(e.Total))
	}
	return fmt.Sprintf("this is of the sum of each group; each size is within %s, the sum of all within %s and the mean of a group of %s within %s; of a group "+
		"below %s devices no mean is told", atMost(e.Size), atMost(e.Total), number(e.Members), atMost(e.Mean), atMost(e.Size))
}
