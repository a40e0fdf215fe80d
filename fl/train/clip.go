package train

import "math"

// Adaptive clipping (Andrew et al., "Differentially Private Learning with Adaptive
// Clipping", NeurIPS 2021, algorithm 1): the clipping norm C follows a quantile of the norms
// of updates. With its update a device reports whether that was within C, as one more
// coordinate of the same vector, of the size bitShare or its opposite; the update has what
// is left of the recipe's bound, the root of 1 - bitShare^2. So the bit is inside the
// norm that is proved and that noise is calibrated to, and costs no epsilon of its own but
// half a per cent of the update's length.
const (
	bitShare = 0.1
	// clipRate is the paper's eta_C: C shrinks by a factor of exp(-clipRate (b - quantile))
	// where the share b of the updates is within it.
	clipRate = 0.2
	// clipRange is how far C may go from where it began, either way.
	clipRange = 1e4
)

// updateShare is the update's part of the bound.
func (o *Options) updateShare() float64 {
	if o.AdaptiveClip == 0 {
		return 1
	}
	return math.Sqrt(1 - bitShare*bitShare)
}

// extra is how many coordinates a vector has beside the update.
func (o *Options) extra() int {
	if o.AdaptiveClip == 0 {
		return 0
	}
	return 1
}

// scale makes of an update, which buf begins with, what is reported: the clipping norm has
// the length of the update's share of the bound.
func (t *trainer) scale(buf []float64) {
	n := len(buf) - t.o.extra()
	update, unit := buf[:n], t.norm*t.o.updateShare()
	by := unit / t.clip
	if t.o.AdaptiveClip > 0 {
		norm, bit := 0.0, bitShare*t.norm
		for _, x := range update {
			norm += x * x
		}
		if norm = math.Sqrt(norm); norm > t.clip { // or all of the vector would be clipped, the bit too
			by, bit = unit/norm, -bit
		}
		buf[n] = bit
	}
	for i := range update {
		update[i] *= by
	}
}

// unscale makes of an estimate of the sum over a cohort the mean update, in units of the
// norm that clipping began with, and lets the norm follow its quantile.
func (t *trainer) unscale(estimate []float64) []float64 {
	n, cohort := len(estimate)-t.o.extra(), t.o.cohort()
	by := 1 / cohort
	if t.o.AdaptiveClip > 0 {
		by *= t.clip / t.o.Clip / t.o.updateShare()
		within := (estimate[n]/(cohort*bitShare*t.norm) + 1) / 2
		next := t.clip * math.Exp(-clipRate*(min(max(within, 0), 1)-t.o.AdaptiveClip))
		t.clip = min(max(next, t.o.Clip/clipRange), t.o.Clip*clipRange)
	}
	update := estimate[:n]
	for i := range update {
		update[i] *= by
	}
	return update
}
