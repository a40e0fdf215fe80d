package plan

import (
	"errors"
	"math"

	"github.com/starling-agg/starling/internal/outward"
	"github.com/starling-agg/starling/recipe"
)

// byNoise plans noise of the devices' own on vectors: as much as the accuracy allows, or
// as little as the loss wants.
func (p *Plan) byNoise() error {
	g := &p.Goal
	n := float64(g.People)
	wanted := g.Within * g.full(n) / z(g.Confidence)
	room := wanted * wanted / n
	affordable := recipe.NoPrivacy
	var err error
	switch {
	case g.Within != 0 && room >= recipe.MinDeviceVariance:
		if p.Variance, err = below(room); err != nil {
			return err
		}
		if err := p.add(); err != nil {
			return err
		}
		if g.Epsilon == 0 || p.Loss.Epsilon <= g.Epsilon {
			p.Fits = true
			return nil
		}
		affordable = p.Loss
	case g.Epsilon == 0:
		p.Variance = recipe.Rational{Num: recipe.MinDeviceVariance, Den: 1}
		if err := p.add(); err != nil {
			return err
		}
		p.Needs = p.noisily(affordable)
		return nil
	}
	p.Variance = recipe.Rational{}
	if err := p.add(); err != nil {
		return err
	}
	if p.Fits = g.Within == 0; !p.Fits {
		p.Needs = p.noisily(affordable)
	}
	return nil
}

// add computes what the noise guarantees and how far it moves results; noise of no
// variance is calibrated to the goal's loss.
func (p *Plan) add() error {
	g := &p.Goal
	o, err := p.choose(p.Goal.parties())
	if err != nil {
		return err
	}
	if o.Epsilon = anyClaim; p.Variance.Den == 0 {
		if o.Epsilon, err = decimalBelow(g.Epsilon, 11); err != nil {
			return err
		}
	}
	if err := p.follow(o); err != nil {
		if claim := new(recipe.ClaimError); !errors.As(err, &claim) {
			return err
		}
		p.Loss = recipe.NoPrivacy
	}
	for _, f := range p.Fallbacks {
		if f.Kind == recipe.ServersCollude {
			p.Local, p.Epsilon0 = f.Loss, f.Loss.Epsilon
		}
	}
	p.spread(math.Sqrt(float64(g.People) * p.Variance.Float()))
	return nil
}

// noisily is what would do with the noise as it is: errors grow with the root of the
// number of people.
func (p *Plan) noisily(affordable recipe.Loss) *Need {
	g := &p.Goal
	one := z(g.Confidence) * math.Sqrt(p.Variance.Float()) / (g.Within * g.largest())
	need := &Need{People: uint64(math.Ceil(outward.Up(one * one))), Within: outward.Up(p.Error.Part)}
	if g.Epsilon != 0 && affordable.Finite() {
		need.Epsilon = affordable.Epsilon
	}
	return need
}
