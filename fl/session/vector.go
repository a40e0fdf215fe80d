package session

import (
	"fmt"
	"math"
)

// A ShapeError is an update of another length than the model's.
type ShapeError struct{ Got, Want int }

func (e *ShapeError) Error() string {
	return fmt.Sprintf("session: an update of %d numbers, the model has %d", e.Got, e.Want)
}

// A NotFiniteError is an update with an entry that is infinite or no number.
type NotFiniteError struct{ Entry int }

func (e *NotFiniteError) Error() string {
	return fmt.Sprintf("session: entry %d of the update is not finite", e.Entry)
}

// share is the part of the recipe's bound that updates have.
func (t *Terms) share() float64 {
	if a := t.Clipping.Adaptive; a != nil {
		return math.Sqrt(1 - a.Weight*a.Weight)
	}
	return 1
}

// Vector overwrites dst, of [Terms.Entries] numbers, with what a device reports of an
// update, of [Terms.Dimension] numbers, where the model's clipping norm is clip and the
// recipe's bound in units of its entries is norm ([recipe.Vector.Norm]). The update is
// scaled by s = share norm/clip, and down to share norm where it is longer than clip.
//
// With fixed clipping share is 1. With adaptive clipping it is sqrt(1-w^2) for the weight w,
// and the last entry is w norm where the update was no longer than clip, and -w norm where
// it was: together they are of norm at most norm, so that the bit needs no noise or account
// of its own. A vector of zeros, as dummies are, says nothing of either.
//
// It fails with *[ShapeError] and *[NotFiniteError].
func (t *Terms) Vector(dst []float64, update []float32, clip, norm float64) error {
	switch {
	case len(update) != t.Dimension():
		return &ShapeError{len(update), t.Dimension()}
	case len(dst) != t.Entries():
		return &ShapeError{len(dst), t.Entries()}
	}
	for i, x := range update {
		if notFinite(math.Float32bits(x)) {
			return &NotFiniteError{i}
		}
	}
	// Squares of binary32 neither overflow nor vanish in binary64.
	sum := 0.0
	for _, x := range update {
		sum += float64(x) * float64(x)
	}
	length, to := math.Sqrt(sum), t.share()*norm
	scale := to / max(clip, length)
	for i, x := range update {
		dst[i] = scale * float64(x)
	}
	if a := t.Clipping.Adaptive; a != nil {
		bit := a.Weight * norm
		if length > clip {
			bit = -bit
		}
		dst[len(dst)-1] = bit
	}
	return nil
}

// Mean overwrites dst, of [Terms.Dimension] numbers, with the mean update that a released
// sum of vectors estimates, over a cohort of the planned size: divided by that and not by
// the number of reports, which would cost privacy of its own. For adaptive clipping it also
// returns the estimated share of updates that were no longer than clip, within 0 and 1.
func (t *Terms) Mean(dst, sum []float64, clip, norm, cohort float64) (below float64, err error) {
	switch {
	case len(sum) != t.Entries():
		return 0, &ShapeError{len(sum), t.Entries()}
	case len(dst) != t.Dimension():
		return 0, &ShapeError{len(dst), t.Dimension()}
	}
	scale := clip / (t.share() * norm * cohort)
	for i := range dst {
		dst[i] = scale * sum[i]
	}
	if a := t.Clipping.Adaptive; a != nil {
		below = (sum[len(sum)-1]/(a.Weight*norm*cohort) + 1) / 2
		below = min(1, max(0, below))
	}
	return below, nil
}

// NextClip is the clipping norm after one at which a share of the updates were no longer
// than it.
func (c *Clipping) NextClip(clip, below float64) float64 {
	if c.Adaptive == nil {
		return c.Norm
	}
	next := clip * math.Exp(-c.Adaptive.Rate*(below-c.Adaptive.Quantile))
	return min(MaxNorm, max(MinNorm, next))
}
