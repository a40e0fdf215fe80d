package local

import (
	"fmt"
	"math"
	"math/big"
	"testing"
)

// weightLaw returns the exact law of the weight of k bits, times 2^(64 k).
func weightLaw(k int, hit, miss probability) []*big.Int {
	law := []*big.Int{big.NewInt(1)}
	for j := range k {
		p := miss
		if j == 0 {
			p = hit
		}
		one := new(big.Int).SetUint64(uint64(p))
		zero := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 64), one)
		next := make([]*big.Int, len(law)+1)
		for i := range next {
			next[i] = new(big.Int)
		}
		for i, w := range law {
			next[i].Add(next[i], new(big.Int).Mul(w, zero))
			next[i+1].Add(next[i+1], new(big.Int).Mul(w, one))
		}
		law = next
	}
	return law
}

// The bound against exact integers: it holds, the one below does not, and the stated
// probability is rounded up, but hardly.
func TestWeightBound(t *testing.T) {
	for _, k := range []int{1, 2, 5, 50, 150} {
		for _, e := range []float64{MinEpsilon, .5, 1, 4, 16, MaxEpsilon} {
			for _, form := range []Form{Symmetric, Optimised} {
				r := must(NewRAPPOR(k, e, Deletion, form))(t)
				b := r.Bounded()
				law := weightLaw(k, r.hit, r.miss)
				limit := new(big.Int).Lsh(big.NewInt(1), uint(64*k-40))
				if 64*k < 40 {
					t.Fatal("too few bits")
				}
				above := new(big.Int)
				for w := k; w > b.MaxWeight(); w-- {
					above.Add(above, law[w])
				}
				name := fmt.Sprintf("k %d, epsilon %v, form %d, weight %d", k, e, form, b.MaxWeight())
				if above.Cmp(limit) > 0 {
					t.Errorf("%s: exceeded with more than 2^-40", name)
				}
				f, _ := new(big.Rat).SetFrac(above, new(big.Int).Lsh(big.NewInt(1), uint(64*k))).Float64()
				if got := b.RedrawProbability(); got < f || got > f*(1+1e-4) || got > 0x1p-40 {
					t.Errorf("%s: probability %v, stated %v", name, f, got)
				}
				if w := r.WeightBound(0x1p-40); w != b.MaxWeight() {
					t.Errorf("%s: bound %d for the same odds", name, w)
				}
				for w, all := k, new(big.Int); w >= max(1, k-3); w-- { // exact tails, from nobody up
					f, _ := new(big.Rat).SetFrac(all, new(big.Int).Lsh(big.NewInt(1), uint(64*k))).Float64()
					if got := r.WeightOdds(w); got < f || f > 1e-290 && f < 1e-3 && got > f*(1+1e-4) {
						t.Errorf("%s: odds %v above %d, stated %v", name, f, w, got)
					}
					all.Add(all, law[w])
				}
				if r.WeightBound(0) != k {
					t.Errorf("%s: some weight below %d is never exceeded", name, k)
				}
				if above.Add(above, law[b.MaxWeight()]); b.MaxWeight() > 1 && above.Cmp(limit) <= 0 {
					t.Errorf("%s: one less would do", name)
				}
				want := 0.0
				if b.MaxWeight() < k {
					want = 0x1p-39
				}
				if got := b.Epsilon(Deletion) - r.Epsilon(Deletion); math.Abs(got-want) > 1e-14 {
					t.Errorf("%s: bounding costs %v of epsilon, want %v", name, got, want)
				}
				if b.Epsilon(Replacement) != r.Epsilon(Replacement) || r.MaxWeight() != k || r.RedrawProbability() != 0 {
					t.Errorf("%s: bounding changed more than it should", name)
				}
			}
		}
	}
	// Large ones: the weight is some seven standard deviations above the mean.
	for _, c := range []struct {
		k int
		e float64
	}{{1 << 12, 2}, {1 << 18, .1}, {MaxValues, MinEpsilon}, {MaxValues, MaxEpsilon}} {
		b := must(NewRAPPOR(c.k, c.e, Deletion, Symmetric))(t).Bounded()
		_, f := b.FlipProbability()
		mean := float64(c.k) * f
		sigma := math.Sqrt(mean * (1 - f))
		if z := (float64(b.MaxWeight()) - mean) / sigma; mean > 1000 && (z < 6.5 || z > 7.6) {
			t.Errorf("%v: weight %d is %.2f standard deviations above the mean", c, b.MaxWeight(), z)
		}
		if b.RedrawProbability() > 0x1p-40 {
			t.Errorf("%v: %v", c, b.RedrawProbability())
		}
	}
}

// A small weight bound, so that redraws happen all the time: the law is that of
// independent bits given the weight, in which any two values still are within epsilon,
// and no value within epsilon and the logarithm of the kept part.
func TestRedraws(t *testing.T) {
	r := must(NewRAPPOR(4, 1, Deletion, Symmetric))(t)
	for maxWeight := range 4 {
		b := *r
		b.maxWeight = maxWeight
		laws := map[int]law{}
		for x := NoValue; x < 4; x++ {
			script := []draw{coin(r.miss), coin(r.miss), coin(r.miss), coin(r.miss)}
			if x >= 0 {
				script[x] = coin(r.hit)
			}
			laws[x] = lawOf(t, &b, script, func(b *RAPPOR) (answer any) {
				defer func() {
					if recover() != nil {
						answer = nil // the redraw found no more words
					}
				}()
				dst := make([]bool, 4)
				if err := b.Randomize(dst, x); err != nil {
					t.Fatal(err)
				}
				return dst
			})
			if len(laws[x]) != []int{1, 5, 11, 15}[maxWeight] {
				t.Errorf("weight %d: %d answers", maxWeight, len(laws[x]))
			}
		}
		weights := weightLaw(4, r.hit, r.miss)
		above := new(big.Int)
		for _, w := range weights[maxWeight+1:] {
			above.Add(above, w)
		}
		redrawn, _ := new(big.Rat).SetFrac(above, new(big.Int).Lsh(big.NewInt(1), 256)).Float64()
		for x := range 4 {
			for y := range x {
				bounded(t, "bounded RAPPOR", laws[x], laws[y], r.Epsilon(Replacement), maxWeight > 1)
			}
			bounded(t, "bounded RAPPOR, deletion", laws[x], laws[NoValue], 1-math.Log1p(-redrawn), false)
		}
	}
	// A source that never ends in an answer ends in a panic.
	defer func() {
		if recover() == nil {
			t.Error("a stuck source gave an answer")
		}
	}()
	b := *r
	b.maxWeight = 1
	b.src = zeros{}
	_ = b.Randomize(make([]bool, 4), 0)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
