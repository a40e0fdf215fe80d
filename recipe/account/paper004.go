package account

import (
	"github.com/starling-agg/starling/dp/amplify"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
)

// paper004 is what the paper states of the recipe's check-ins, at the claim's delta: theorem
// 3.2, 4.1 or 4.3; nil where it states nothing. With noise of the servers alone no report is
// private by itself, which all of them suppose.
func (r subject) paper004() *recipe.CheckInBound {
	z, local := r.Randomizer.(recipe.LocalRandomizer)
	c, checksIn := recipe.SlottingOf(r.Participation)
	claim, claimed := r.Claim.(recipe.ApproxDP)
	if !local || !checksIn || !claimed {
		return nil
	}
	own, err := r.OwnNoise(z, claim.Delta, 1)
	if err != nil {
		return nil
	}
	theorem, of := "3.2", amplify.CheckIn{Schedule: c.Schedule, Slots: uint64(c.Steps), Rate: 1}
	delta, sizes := claim.Delta.FloatDown(), 0.0
	switch c.Schedule {
	case release.FixedWindow:
		of.Rate = c.Rate.Float()
	case release.SlidingWindow: // theorem 4.3 is for a rate of 1, which a coin beside it only improves
		theorem = "4.3"
	case release.AveragedWindow: // of the fewest reports of which all slots are released
		theorem, of.People = "4.1", r.MinBatch*uint64(c.Slots)
		delta, sizes = delta/2, delta/2 // sizes: that of the numbers of slots
	}
	g, err := of.Theorem(amplify.LocalDP{Report: release.AnyReport(own.Epsilon)}, delta, sizes)
	if err != nil {
		return nil
	}
	return &recipe.CheckInBound{Epsilon0: own.Epsilon, Loss: recipe.Loss{Epsilon: g.Epsilon, Delta: g.Delta}, Theorem: theorem,
		Averaged: c.Schedule == release.AveragedWindow}
}
