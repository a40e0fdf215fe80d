package plan

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
)

const (
	// seriesBands is the most bands that are planned: a server keeps the noise of one
	// batch less.
	seriesBands = 32
	// seriesBits loses less than one per cent of accuracy.
	seriesBits = 8
)

func (g *Goal) checkSeries() error {
	switch {
	case g.Batches == 0 && g.Separation == 0:
		return nil
	case g.Batches < 2 || g.Batches > correlated.MaxRounds:
		return wrong("correlated noise over %d batches, want 2 to %d", g.Batches, correlated.MaxRounds)
	case g.Separation < 2 || g.Separation > math.MaxUint32:
		return wrong("people stay away %d rounds, want 2 or more: only as far can noise be correlated", g.Separation)
	case g.Population != 0:
		return wrong("correlated noise is planned for people who all answer, and needs no sample")
	case g.Randomizer != "" && g.Randomizer != Servers:
		return wrong("correlated noise is the servers'")
	}
	return nil
}

// Series chooses how noise is correlated over batches, for people who stay away
// separation rounds: the strategy of as many bands, up to 32, that is best for sums over
// the batches.
func Series(batches, separation uint64) (correlated.Series, error) {
	if batches > correlated.MaxRounds {
		return correlated.Series{}, wrong("correlated noise over %d batches, want at most %d", batches, correlated.MaxRounds)
	}
	s, err := correlated.Optimize(int(min(separation, batches, seriesBands)), int(batches), seriesBits)
	if err != nil {
		return correlated.Series{}, err
	}
	out := correlated.Series{Strategy: s, Separation: separation, Rounds: batches}
	return out, out.Validate()
}

// correlate chooses the strategy.
func (p *Plan) correlate() (err error) {
	g := &p.Goal
	if g.Batches == 0 {
		return nil
	}
	if p.Series, err = Series(g.Batches, g.Separation); err != nil {
		return err
	}
	s := p.Series.Strategy
	const wide = 1e12 // beside which roundings are nothing
	e := s.Forecast(wide, int(g.Batches))
	n := float64(g.Batches)
	p.share, p.single = e.Prefix[len(e.Prefix)-1]/(n*n)/wide, e.Round[len(e.Round)-1]/wide
	return nil
}

// ofMean is how much of a draw's variance is in the number that the accuracy is about:
// all of it, or what a fit to all sums has of it where ranks or tables are asked for, or
// the sum of a group; of correlated noise, what is left of that in the mean of all
// batches.
func (p *Plan) ofMean() float64 {
	part := 1.0
	if q, ok := p.Goal.Query.(interface{ FitVariance() float64 }); ok {
		part = q.FitVariance()
	}
	if q, ok := p.Goal.Query.(grouped); ok {
		part = q.SumVariance()
	}
	if p.Goal.Batches == 0 {
		return part
	}
	return part * p.share
}

// noise is that of a recipe.
func (p *Plan) noise() recipe.Noise {
	if p.Goal.Batches > 0 {
		return recipe.CorrelatedGaussian{Variance: p.Variance, Series: p.Series}
	}
	if p.laplace {
		return p.laplaceNoise()
	}
	return recipe.EachDraws(p.Variance)
}

// norm2 is the squared norm of the strategy's columns.
func (p *Plan) norm2() release.Rational {
	num, den := p.Series.Strategy.Norm2()
	return release.Rational{Num: num, Den: den}
}

// A SeriesError is what correlated noise does, in units of the result, with the goal's
// confidence; [Plan.Error] is of the mean of all batches.
type SeriesError struct {
	// Batch is how far one number of one batch may be off, the last and worst.
	Batch float64 `json:"batch"`
	// Independent and IndependentBatch are the same of noise of each batch's own, under
	// the same guarantee.
	Independent      float64 `json:"independent"`
	IndependentBatch float64 `json:"independent_batch"`
	Bands            int     `json:"bands"`
	Separation       uint64  `json:"separation"`
	Batches          uint64  `json:"batches"`
}

// series computes it, or nil where noise is not correlated.
func (p *Plan) series() *SeriesError {
	g := &p.Goal
	if g.Batches == 0 {
		return nil
	}
	unit := p.Error.Each / math.Sqrt(2*p.Variance.Float()*p.share) // of the result, with the confidence
	own := p.Variance.Float() / p.norm2().Float()
	if p.Loss.Epsilon > 0 && p.Loss.Finite() {
		// Independent noise of some queries has a better accounting than correlated noise.
		v, _, err := accountant.CalibrateDiscreteGaussian(p.Loss.Epsilon, g.Delta, g.contribution(), release.ReplaceOne, uint64(g.Rounds))
		if err == nil {
			own = min(own, v.Float())
		}
	}
	alone := unit * math.Sqrt(2*own)
	return &SeriesError{
		Batch: unit * math.Sqrt(2*p.Variance.Float()*p.single), Independent: alone / math.Sqrt(float64(g.Batches)), IndependentBatch: alone,
		Bands: p.Series.Strategy.Bands(), Separation: g.Separation, Batches: g.Batches,
	}
}

func (s *SeriesError) words() []string {
	return []string{
		fmt.Sprintf("this is of the mean of all %d batches; with noise of each batch's own and the same guarantee it would be %s", s.Batches, atMost(s.Independent)),
		fmt.Sprintf("each number of one batch is within %s; with noise of its own %s", atMost(s.Batch), atMost(s.IndependentBatch)),
	}
}
