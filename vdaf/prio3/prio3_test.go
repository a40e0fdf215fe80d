package prio3

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/internal/flp"
)

var (
	testKey = [vdaf.VerifyKeySize]byte{1, 2, 3}
	testCtx = []byte("starling test")
)

// must returns v, for constructors whose parameters are known to be good.
func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// fixture is one VDAF with a way to make good reports.
type fixture struct {
	name  string
	v     vdaf.VDAF
	shard func(i int, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) // the i-th of some measurements
	want  func(n int) []int64                                            // the result of the first n
}

// fixtures returns every type with the given number of shares.
func fixtures(shares int) []fixture {
	count, sum := must(NewCount(shares)), must(NewSum(shares, 1000))
	vec, multi := must(NewSumVec(shares, 5, 10, 3)), must(NewSumVecWithMultiproof(shares, 5, 10, 6, 3))
	hist, hot := must(NewHistogram(shares, 7, 3)), must(NewMultihotCountVec(shares, 5, 2, 2))
	l1 := must(NewL1BoundSum(shares, 4, 10, 3))
	few := func(i int) []uint64 { return []uint64{uint64(i) % 4, uint64(7*i) % 5, 0, uint64(i) % 3} }
	elems := func(i int) []uint64 { return []uint64{uint64(i) % 11, 10, 0, 1, uint64(i*i) % 11} }
	bits := func(i int) []bool { b := make([]bool, 5); b[i%5], b[i*3%5] = true, true; return b }
	sumOf := func(n, length int, f func(i int) []int64) []int64 {
		s := make([]int64, length)
		for i := range n {
			for j, x := range f(i) {
				s[j] += x
			}
		}
		return s
	}
	vecWant := func(n int) []int64 {
		return sumOf(n, 5, func(i int) (out []int64) {
			for _, x := range elems(i) {
				out = append(out, int64(x))
			}
			return
		})
	}
	return []fixture{
		{"Count", count, func(i int, nonce *[16]byte) (*vdaf.Shares, error) { return count.Shard(testCtx, i%3 == 0, nonce) },
			func(n int) []int64 { return []int64{int64(n+2) / 3} }},
		{"Sum", sum, func(i int, nonce *[16]byte) (*vdaf.Shares, error) {
			return sum.Shard(testCtx, uint64(1000-i), nonce)
		}, func(n int) []int64 { return []int64{int64(1000*n - n*(n-1)/2)} }},
		{"SumVec", vec, func(i int, nonce *[16]byte) (*vdaf.Shares, error) {
			return vec.Shard(testCtx, elems(i), nonce)
		}, vecWant},
		{"SumVecWithMultiproof", multi, func(i int, nonce *[16]byte) (*vdaf.Shares, error) {
			return multi.Shard(testCtx, elems(i), nonce)
		}, vecWant},
		{"Histogram", hist, func(i int, nonce *[16]byte) (*vdaf.Shares, error) { return hist.Shard(testCtx, i%7, nonce) },
			func(n int) []int64 {
				return sumOf(n, 7, func(i int) []int64 { b := make([]int64, 7); b[i%7] = 1; return b })
			}},
		{"MultihotCountVec", hot, func(i int, nonce *[16]byte) (*vdaf.Shares, error) {
			return hot.Shard(testCtx, bits(i), nonce)
		},
			func(n int) []int64 {
				return sumOf(n, 5, func(i int) []int64 {
					out := make([]int64, 5)
					for j, b := range bits(i) {
						out[j] = int64(bit(b))
					}
					return out
				})
			}},
		{"L1BoundSum", l1, func(i int, nonce *[16]byte) (*vdaf.Shares, error) { return l1.Shard(testCtx, few(i), nonce) },
			func(n int) []int64 {
				return sumOf(n, 4, func(i int) (out []int64) {
					for _, x := range few(i) {
						out = append(out, int64(x))
					}
					return
				})
			}},
	}
}

// batch is n sharded reports as each aggregator holds them, and room for what
// verification makes.
type batch struct {
	v      vdaf.VDAF
	in     []vdaf.Reports // by aggregator
	states []vdaf.State
	shares [][]byte
	msgs   []byte
	errs   []error
}

func newBatch(t testing.TB, f fixture, n int) *batch {
	t.Helper()
	s := f.v.Sizes()
	b := &batch{v: f.v, in: make([]vdaf.Reports, f.v.Shares()), msgs: make([]byte, n*s.VerifierMessage),
		errs: make([]error, n)}
	for range b.in {
		b.states = append(b.states, f.v.NewState(n))
		b.shares = append(b.shares, make([]byte, n*s.VerifierShare))
	}
	for i := range n {
		var nonce [vdaf.NonceSize]byte
		binary.BigEndian.PutUint64(nonce[:], uint64(i))
		sh, err := f.shard(i, &nonce)
		if err != nil {
			t.Fatal(err)
		}
		if len(sh.Public) != s.Public || len(sh.Inputs) != f.v.Shares() || len(sh.Inputs[0]) != s.LeaderInput ||
			len(sh.Inputs[1]) != s.HelperInput {
			t.Fatalf("%s: shares do not have the lengths of Sizes", f.name)
		}
		for agg := range b.in {
			r := &b.in[agg]
			r.Nonces = append(r.Nonces, nonce)
			r.Public = append(r.Public, sh.Public)
			r.Inputs = append(r.Inputs, sh.Inputs[agg])
		}
	}
	return b
}

func (b *batch) init() {
	for agg := range b.in {
		b.v.VerifyInit(b.states[agg], &testKey, testCtx, agg, &b.in[agg], b.shares[agg], b.errs)
	}
}

func (b *batch) finish() []*vdaf.AggShare {
	b.v.Combine(testCtx, b.shares, b.msgs, b.errs)
	var aggs []*vdaf.AggShare
	for _, st := range b.states {
		b.v.Check(st, b.msgs, b.errs)
	}
	for _, st := range b.states {
		a := b.v.NewAggShare()
		b.v.Accumulate(st, nil, nil, []*vdaf.AggShare{a}, b.errs)
		aggs = append(aggs, a)
	}
	return aggs
}

func TestRoundTrip(t *testing.T) {
	for _, shares := range []int{2, 3, 5} {
		for _, f := range fixtures(shares) {
			t.Run(fmt.Sprintf("%s/%d", f.name, shares), func(t *testing.T) {
				b := newBatch(t, f, 9)
				b.init()
				aggs := b.finish()
				if err := errors.Join(b.errs...); err != nil {
					t.Fatal(err)
				}
				for i, a := range aggs { // over the wire
					c, err := f.v.ReadAggShare(a.Append(nil))
					if err != nil {
						t.Fatal(err)
					}
					aggs[i] = c
				}
				got, err := f.v.Unshard(aggs)
				if err != nil || !slices.Equal(got, f.want(9)) {
					t.Fatalf("result is %d, %v; want %d", got, err, f.want(9))
				}
			})
		}
	}
}

func TestMostShares(t *testing.T) {
	f := fixtures(MaxShares)[4]
	b := newBatch(t, f, 1)
	b.init()
	got, err := f.v.Unshard(b.finish())
	if err != nil || !slices.Equal(got, f.want(1)) {
		t.Fatalf("result is %d, %v; want %d", got, err, f.want(1))
	}
}

// One bad report of each kind among good ones: it alone is refused, with the right error,
// and the result is of the rest.
func TestBatchIsolation(t *testing.T) {
	for _, f := range fixtures(2) {
		sizes := f.v.Sizes()
		flip := func(b []byte, at int) []byte { b = bytes.Clone(b); b[at] ^= 1; return b }
		spoil := []struct {
			name string
			do   func(b *batch, i int)
			want error
		}{
			{"leader's measurement", func(b *batch, i int) { b.in[0].Inputs[i] = flip(b.in[0].Inputs[i], 0) }, vdaf.ErrVerify},
			{"leader's proof", func(b *batch, i int) {
				end := sizes.LeaderInput - sizes.VerifierMessage
				b.in[0].Inputs[i] = flip(b.in[0].Inputs[i], end-8)
			}, vdaf.ErrVerify},
			{"helper's seed", func(b *batch, i int) { b.in[1].Inputs[i] = flip(b.in[1].Inputs[i], 5) }, vdaf.ErrVerify},
			{"leader's nonce", func(b *batch, i int) { b.in[0].Nonces[i][3] ^= 1 }, vdaf.ErrVerify},
			{"input not reduced", func(b *batch, i int) {
				x := bytes.Clone(b.in[0].Inputs[i])
				for j := range 16 {
					x[j] = 0xFF
				}
				b.in[0].Inputs[i] = x
			}, vdaf.ErrDecode},
			{"input too short", func(b *batch, i int) { b.in[0].Inputs[i] = b.in[0].Inputs[i][1:] }, vdaf.ErrDecode},
			{"input too long", func(b *batch, i int) {
				b.in[1].Inputs[i] = append(bytes.Clone(b.in[1].Inputs[i]), 0)
			}, vdaf.ErrDecode},
			{"input missing", func(b *batch, i int) { b.in[0].Inputs[i] = nil }, vdaf.ErrDecode},
			{"public share too long", func(b *batch, i int) {
				b.in[0].Public[i] = append(bytes.Clone(b.in[0].Public[i]), 0)
			}, vdaf.ErrDecode},
			{"refused before", func(b *batch, i int) { b.errs[i] = errOther; b.in[0].Inputs[i] = nil }, errOther},
		}
		if sizes.Public > 0 {
			spoil = append(spoil, struct {
				name string
				do   func(b *batch, i int)
				want error
			}{"public share", func(b *batch, i int) {
				for agg := range b.in {
					b.in[agg].Public[i] = flip(b.in[agg].Public[i], 40)
				}
			}, vdaf.ErrVerify})
		}
		const n = 5
		for _, s := range spoil {
			for _, bad := range []int{0, 2, n - 1} {
				b := newBatch(t, f, n)
				s.do(b, bad)
				b.init()
				aggs := b.finish()
				for i, err := range b.errs {
					if i == bad && !errors.Is(err, s.want) || i != bad && err != nil {
						t.Errorf("%s, %s in report %d: report %d has error %v", f.name, s.name, bad, i, err)
					}
				}
				got, err := f.v.Unshard(aggs)
				all, before, upto := f.want(n), f.want(bad), f.want(bad+1)
				for j := range all {
					all[j] -= upto[j] - before[j]
				}
				if err != nil || !slices.Equal(got, all) {
					t.Errorf("%s, %s in report %d: result is %d, %v; want %d", f.name, s.name, bad, got, err, all)
				}
			}
		}
		// A peer's verifier share and message, changed on the way.
		b := newBatch(t, f, n)
		b.init()
		b.shares[1][sizes.VerifierShare] ^= 1
		copy(b.shares[1][3*sizes.VerifierShare:], bytes.Repeat([]byte{0xFF}, 16))
		b.v.Combine(testCtx, b.shares, b.msgs, b.errs)
		if !errors.Is(b.errs[1], vdaf.ErrVerify) || !errors.Is(b.errs[3], vdaf.ErrDecode) || b.errs[0] != nil ||
			b.errs[2] != nil {
			t.Errorf("%s: changed verifier shares: %v", f.name, b.errs)
		}
		if sizes.VerifierMessage > 0 {
			b.msgs[4*sizes.VerifierMessage] ^= 1
			b.v.Check(b.states[0], b.msgs, b.errs)
			if !errors.Is(b.errs[4], vdaf.ErrVerify) || b.errs[0] != nil || b.errs[2] != nil {
				t.Errorf("%s: changed verifier message: %v", f.name, b.errs)
			}
		}
	}
}

var errOther = errors.New("refused before")

func TestAccumulateMasksAndBuckets(t *testing.T) {
	f := fixtures(2)[4]
	b := newBatch(t, f, 7) // report i is in bucket i of the histogram
	b.init()
	b.v.Combine(testCtx, b.shares, b.msgs, b.errs)
	b.errs[3] = errOther
	keep := []bool{true, false, true, true, true, true, true}
	to := []int32{0, 0, 1, 1, 1, 0, 0}
	var sums [2][]*vdaf.AggShare
	for _, st := range b.states {
		aggs := []*vdaf.AggShare{b.v.NewAggShare(), b.v.NewAggShare()}
		b.v.Accumulate(st, keep, to, aggs, b.errs)
		sums[0], sums[1] = append(sums[0], aggs[0]), append(sums[1], aggs[1])
	}
	for i, want := range [][]int64{{1, 0, 0, 0, 0, 1, 1}, {0, 0, 1, 0, 1, 0, 0}} {
		if got, err := b.v.Unshard(sums[i]); err != nil || !slices.Equal(got, want) {
			t.Errorf("bucket %d is %d, %v; want %d", i, got, err, want)
		}
	}
}

// After warm-up a batch allocates nothing, whatever its size.
func TestNoAllocations(t *testing.T) {
	for _, f := range fixtures(2) {
		b := newBatch(t, f, 8)
		aggs := []*vdaf.AggShare{f.v.NewAggShare()}
		run := map[string]func(){
			"VerifyInit leader": func() { f.v.VerifyInit(b.states[0], &testKey, testCtx, 0, &b.in[0], b.shares[0], b.errs) },
			"VerifyInit helper": func() { f.v.VerifyInit(b.states[1], &testKey, testCtx, 1, &b.in[1], b.shares[1], b.errs) },
			"Combine":           func() { f.v.Combine(testCtx, b.shares, b.msgs, b.errs) },
			"Check":             func() { f.v.Check(b.states[0], b.msgs, b.errs) },
			"Accumulate":        func() { f.v.Accumulate(b.states[0], nil, nil, aggs, b.errs) },
		}
		b.init()
		b.finish()
		for name, fn := range run {
			// AllocsPerRun rounds down, so a rare collection that empties Combine's pool
			// does not count.
			if got := testing.AllocsPerRun(100, fn); got != 0 && !raceEnabled {
				t.Errorf("%s: %s allocates %v times a batch", f.name, name, got)
			}
		}
		if err := errors.Join(b.errs...); err != nil {
			t.Error(err)
		}
	}
}

func TestMeasurementsRefused(t *testing.T) {
	var nonce [vdaf.NonceSize]byte
	sum, vec := must(NewSum(2, 9)), must(NewSumVec(2, 2, 9, 2))
	hist, hot := must(NewHistogram(2, 4, 2)), must(NewMultihotCountVec(2, 3, 1, 2))
	l1, full := must(NewL1BoundSum(2, 3, 9, 2)), must(NewL1BoundSum(2, 3, math.MaxUint64, 8))
	bad := map[string]func() (*vdaf.Shares, error){
		"sum above max":    func() (*vdaf.Shares, error) { return sum.Shard(nil, 10, &nonce) },
		"sum far above":    func() (*vdaf.Shares, error) { return sum.Shard(nil, math.MaxUint64, &nonce) },
		"vector short":     func() (*vdaf.Shares, error) { return vec.Shard(nil, []uint64{1}, &nonce) },
		"vector long":      func() (*vdaf.Shares, error) { return vec.Shard(nil, []uint64{1, 2, 3}, &nonce) },
		"vector above max": func() (*vdaf.Shares, error) { return vec.Shard(nil, []uint64{1, 10}, &nonce) },
		"bucket negative":  func() (*vdaf.Shares, error) { return hist.Shard(nil, -1, &nonce) },
		"bucket past end":  func() (*vdaf.Shares, error) { return hist.Shard(nil, 4, &nonce) },
		"bits short":       func() (*vdaf.Shares, error) { return hot.Shard(nil, []bool{true}, &nonce) },
		"bits heavy":       func() (*vdaf.Shares, error) { return hot.Shard(nil, []bool{true, true, false}, &nonce) },
		"L1 short":         func() (*vdaf.Shares, error) { return l1.Shard(nil, []uint64{1, 2}, &nonce) },
		"L1 above":         func() (*vdaf.Shares, error) { return l1.Shard(nil, []uint64{5, 0, 5}, &nonce) },
		"L1 one far above": func() (*vdaf.Shares, error) { return l1.Shard(nil, []uint64{math.MaxUint64, 1, 0}, &nonce) },
		"L1 wraps around":  func() (*vdaf.Shares, error) { return full.Shard(nil, []uint64{math.MaxUint64, 1, 5}, &nonce) },
	}
	for name, f := range bad {
		if s, err := f(); !errors.Is(err, vdaf.ErrMeasurement) || s != nil {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	if _, err := sum.Shard(make([]byte, 1<<16), 1, &nonce); err == nil {
		t.Error("a context too long for its length bytes was taken")
	}
}

func TestParametersRefused(t *testing.T) {
	big := MaxElements + 1
	bad := map[string]func() (any, error){
		"one share":         func() (any, error) { return NewCount(1) },
		"256 shares":        func() (any, error) { return NewCount(256) },
		"negative shares":   func() (any, error) { return NewSum(-1, 1) },
		"sum of nothing":    func() (any, error) { return NewSum(2, 0) },
		"sum too large":     func() (any, error) { return NewSum(2, 1<<63) },
		"vec of nothing":    func() (any, error) { return NewSumVec(2, 1, 0, 1) },
		"vec empty":         func() (any, error) { return NewSumVec(2, 0, 1, 1) },
		"vec too long":      func() (any, error) { return NewSumVec(2, big, 1, 1000) },
		"vec of bits":       func() (any, error) { return NewSumVec(2, MaxElements/2, 7, 1000) },
		"vec overflow":      func() (any, error) { return NewSumVec(2, math.MaxInt, math.MaxUint64, 1000) },
		"vec chunk 0":       func() (any, error) { return NewSumVec(2, 3, 1, 0) },
		"vec chunk huge":    func() (any, error) { return NewSumVec(2, 3, 1, math.MaxInt) },
		"vec proof long":    func() (any, error) { return NewSumVec(2, 3, 1, MaxProofElements) },
		"negative proofs":   func() (any, error) { return NewSumVecWithMultiproof(2, 3, 1, 1, -1) },
		"two proofs":        func() (any, error) { return NewSumVecWithMultiproof(2, 3, 1, 1, 2) },
		"256 proofs":        func() (any, error) { return NewSumVecWithMultiproof(2, 3, 1, 1, 256) },
		"proofs too long":   func() (any, error) { return NewSumVecWithMultiproof(2, 1<<20, 1, 1<<10, 255) },
		"multiproof max":    func() (any, error) { return NewSumVecWithMultiproof(2, 3, 1<<63, 1, 3) },
		"no buckets":        func() (any, error) { return NewHistogram(2, 0, 1) },
		"negative buckets":  func() (any, error) { return NewHistogram(2, -5, 1) },
		"buckets":           func() (any, error) { return NewHistogram(2, big, 1) },
		"histogram chunk":   func() (any, error) { return NewHistogram(2, 5, -1) },
		"weight 0":          func() (any, error) { return NewMultihotCountVec(2, 5, 0, 1) },
		"weight above":      func() (any, error) { return NewMultihotCountVec(2, 5, 6, 1) },
		"bits too many":     func() (any, error) { return NewMultihotCountVec(2, big, 1, 1) },
		"bits far too many": func() (any, error) { return NewMultihotCountVec(2, math.MaxInt, 1, 1) },
		"L1 one share":      func() (any, error) { return NewL1BoundSum(1, 3, 5, 2) },
		"L1 of nothing":     func() (any, error) { return NewL1BoundSum(2, 3, 0, 2) },
		"L1 empty":          func() (any, error) { return NewL1BoundSum(2, 0, 5, 2) },
		"L1 too long":       func() (any, error) { return NewL1BoundSum(2, MaxElements, 1, 1000) },
		"L1 of bits":        func() (any, error) { return NewL1BoundSum(2, MaxElements/2, 7, 1000) },
		"L1 overflow":       func() (any, error) { return NewL1BoundSum(2, math.MaxInt, math.MaxUint64, 1000) },
		"L1 chunk":          func() (any, error) { return NewL1BoundSum(2, 3, 5, 0) },
	}
	for name, f := range bad {
		if _, err := f(); !errors.Is(err, ErrParameter) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// Every integer up to each small maximum encodes to bits that weigh to it, and all bit
// vectors stay within the maximum.
func TestRangeEncoding(t *testing.T) {
	f := must(NewSum(2, 1)).c.F
	for max := uint64(1); max < 70; max++ {
		w := rangeWeights(max)
		dst := make([]uint64, len(w))
		for x := range max + 1 {
			encodeRange(f, dst, x, max)
			var got uint64
			for i, b := range dst {
				if b > 1 {
					t.Fatalf("max %d: %d has element %d", max, x, b)
				}
				got += b * w[i]
			}
			if got != x {
				t.Fatalf("max %d: %d encodes as %d", max, x, got)
			}
		}
		var all uint64
		for _, x := range w {
			all += x
		}
		if all != max {
			t.Fatalf("weights of %d add up to %d", max, all)
		}
	}
	for _, max := range []uint64{math.MaxUint64, 1 << 63, 1<<63 - 1, 1<<63 + 1} {
		w := rangeWeights(max)
		dst := make([]uint64, len(w))
		for _, x := range []uint64{0, 1, max / 2, max/2 + 1, max - 1, max} {
			encodeRange(f, dst, x, max)
			got := new(big.Int)
			for i, b := range dst {
				got.Add(got, new(big.Int).Mul(new(big.Int).SetUint64(b), new(big.Int).SetUint64(w[i])))
			}
			if !got.IsUint64() || got.Uint64() != x {
				t.Fatalf("max %d: %d encodes as %d", max, x, got)
			}
		}
	}
}

func TestOptimalChunk(t *testing.T) {
	for n := range 200 {
		best, size := 1, 0
		for c := 1; c <= n; c++ {
			if s := flp.ChunkedProofLen(n, c); size == 0 || s < size {
				best, size = c, s
			}
		}
		if got := OptimalChunk(n); got != best {
			t.Errorf("OptimalChunk(%d) = %d, want %d", n, got, best)
		}
	}
	// The extremes must return at once and within bounds.
	if c := OptimalChunk(MaxElements); c < 1000 || c > 5000 {
		t.Errorf("OptimalChunk(%d) = %d", MaxElements, c)
	}
}

func TestUnshardRange(t *testing.T) {
	v := must(NewSumVec(2, 2, math.MaxUint64, 8))
	a, b := v.NewAggShare(), v.NewAggShare()
	if err := a.AddSigned([]int64{math.MaxInt64, -3}); err != nil {
		t.Fatal(err)
	}
	if got, err := v.Unshard([]*vdaf.AggShare{a, b}); err != nil || !slices.Equal(got, []int64{math.MaxInt64, -3}) {
		t.Errorf("result is %d, %v", got, err)
	}
	if err := b.AddSigned([]int64{1, 0}); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Unshard([]*vdaf.AggShare{a, b}); !errors.Is(err, vdaf.ErrRange) {
		t.Errorf("2^63: error is %v", err)
	}
	if _, err := v.Unshard([]*vdaf.AggShare{a}); !errors.Is(err, vdaf.ErrMismatch) {
		t.Errorf("one share: error is %v", err)
	}
	if _, err := v.Unshard([]*vdaf.AggShare{a, must(NewCount(2)).NewAggShare()}); !errors.Is(err, vdaf.ErrMismatch) {
		t.Errorf("share of another type: error is %v", err)
	}
}
