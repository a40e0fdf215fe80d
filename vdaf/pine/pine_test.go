package pine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/starling-agg/starling/vdaf"
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

// small is a short instance over each field, at the finest precision for norm 1 that fits
// it or 24 bits.
func small(f Field, dim, shares int) *Pine {
	frac := map[Field]int{Field32: 15, Field40: 19, Field64: 31, Field128: 24}[f]
	return must(New(Params{Field: f, Dimension: dim, FracBits: frac, Norm: 1, Shares: shares}))
}

var allFields = []Field{Field32, Field40, Field64, Field128}

// batch is n reports as each aggregator holds them, and room for what verification makes.
type batch struct {
	v      *Pine
	in     []vdaf.Reports // by aggregator
	states []vdaf.State
	shares [][]byte
	msgs   []byte
	errs   []error
}

func newBatch(v *Pine, n int) *batch {
	b := &batch{v: v, in: make([]vdaf.Reports, v.Shares()), msgs: make([]byte, n*v.Sizes().VerifierMessage),
		errs: make([]error, n)}
	for range b.in {
		b.states = append(b.states, v.NewState(n))
		b.shares = append(b.shares, make([]byte, n*v.Sizes().VerifierShare))
	}
	return b
}

func (b *batch) add(s *vdaf.Shares, nonce [vdaf.NonceSize]byte) {
	for agg := range b.in {
		r := &b.in[agg]
		r.Nonces = append(r.Nonces, nonce)
		r.Public = append(r.Public, s.Public)
		r.Inputs = append(r.Inputs, s.Inputs[agg])
	}
}

func (b *batch) run() []*vdaf.AggShare {
	for agg := range b.in {
		b.v.VerifyInit(b.states[agg], &testKey, testCtx, agg, &b.in[agg], b.shares[agg], b.errs)
	}
	b.v.Combine(testCtx, b.shares, b.msgs, b.errs)
	for _, st := range b.states {
		b.v.Check(st, b.msgs, b.errs)
	}
	var aggs []*vdaf.AggShare
	for _, st := range b.states {
		a := b.v.NewAggShare()
		b.v.Accumulate(st, nil, nil, []*vdaf.AggShare{a}, b.errs)
		aggs = append(aggs, a)
	}
	return aggs
}

// vectorOf is the i-th of some real vectors of norm below 1.
func vectorOf(dim, i int) []float64 {
	r := rand.New(rand.NewPCG(uint64(i), 99))
	x := make([]float64, dim)
	for j := range x {
		x[j] = (r.Float64()*2 - 1) / math.Sqrt(float64(dim))
	}
	return x
}

func nonceOf(i int) (n [vdaf.NonceSize]byte) {
	binary.BigEndian.PutUint64(n[:], uint64(i))
	return n
}

func TestRoundTrip(t *testing.T) {
	for _, f := range allFields {
		for _, shares := range []int{2, 3} {
			for _, dim := range []int{1, 2, 63, 64, 65, 130} {
				v := small(f, dim, shares)
				const n = 4
				b := newBatch(v, n)
				want := make([]int64, dim)
				for i := range n {
					x, nonce := vectorOf(dim, i), nonceOf(i)
					for j, y := range x {
						want[j] += int64(math.RoundToEven(math.Ldexp(y, v.p.FracBits)))
					}
					s := must(v.Shard(testCtx, x, &nonce))
					z := v.Sizes()
					if len(s.Public) != z.Public || len(s.Inputs) != shares || len(s.Inputs[0]) != z.LeaderInput ||
						len(s.Inputs[1]) != z.HelperInput {
						t.Fatalf("field %d: shares do not have the lengths of Sizes", f)
					}
					b.add(s, nonce)
				}
				aggs := b.run()
				if err := errors.Join(b.errs...); err != nil {
					t.Fatalf("field %d, %d shares, dimension %d: %v", f, shares, dim, err)
				}
				for i, a := range aggs { // over the wire
					aggs[i] = must(v.ReadAggShare(a.Append(nil)))
				}
				got, err := v.Unshard(aggs)
				if err != nil || !slices.Equal(got, want) {
					t.Fatalf("field %d, %d shares, dimension %d: %d, %v; want %d", f, shares, dim, got, err, want)
				}
				if r := v.Reals(got); r[0] != math.Ldexp(float64(got[0]), -v.p.FracBits) || len(r) != dim {
					t.Errorf("Reals gives %v", r)
				}
			}
		}
	}
}

var errOther = errors.New("refused before")

// One bad report of each kind among good ones: it alone is refused, with the right error,
// and the result is of the rest.
func TestBatchIsolation(t *testing.T) {
	const n, dim = 4, 20
	for _, f := range allFields {
		v := small(f, dim, 2)
		z := v.Sizes()
		flip := func(b []byte, at int) []byte { b = bytes.Clone(b); b[at] ^= 1; return b }
		var shares []*vdaf.Shares
		for i := range n {
			nonce := nonceOf(i)
			shares = append(shares, must(v.Shard(testCtx, vectorOf(dim, i), &nonce)))
		}
		proofs := v.measLen * v.f.Size()
		for k, s := range []struct {
			name string
			do   func(b *batch, i int)
			want error
		}{
			{"leader's vector", func(b *batch, i int) { b.in[0].Inputs[i] = flip(b.in[0].Inputs[i], 0) }, vdaf.ErrVerify},
			{"leader's bits", func(b *batch, i int) { b.in[0].Inputs[i] = flip(b.in[0].Inputs[i], proofs-10) }, vdaf.ErrVerify},
			{"leader's norm proof", func(b *batch, i int) { b.in[0].Inputs[i] = flip(b.in[0].Inputs[i], proofs) }, vdaf.ErrVerify},
			{"leader's main proof", func(b *batch, i int) {
				b.in[0].Inputs[i] = flip(b.in[0].Inputs[i], z.LeaderInput-2*v.prof.seed-2*v.f.Size())
			}, vdaf.ErrVerify},
			{"helper's seed", func(b *batch, i int) { b.in[1].Inputs[i] = flip(b.in[1].Inputs[i], 5) }, vdaf.ErrVerify},
			{"leader's blinds", func(b *batch, i int) { b.in[0].Inputs[i] = flip(b.in[0].Inputs[i], z.LeaderInput-40) }, vdaf.ErrVerify},
			{"helper's blinds", func(b *batch, i int) { b.in[1].Inputs[i] = flip(b.in[1].Inputs[i], 95) }, vdaf.ErrVerify},
			{"leader's nonce", func(b *batch, i int) { b.in[0].Nonces[i][3] ^= 1 }, vdaf.ErrVerify},
			{"public share, tests", func(b *batch, i int) {
				b.in[0].Public[i] = flip(b.in[0].Public[i], 40)
			}, vdaf.ErrVerify},
			{"public share, proofs", func(b *batch, i int) {
				b.in[1].Public[i] = flip(b.in[1].Public[i], 70)
			}, vdaf.ErrVerify},
			{"input not reduced", func(b *batch, i int) {
				x := bytes.Clone(b.in[0].Inputs[i])
				copy(x, bytes.Repeat([]byte{0xFF}, 16))
				b.in[0].Inputs[i] = x
			}, vdaf.ErrDecode},
			{"proof not reduced", func(b *batch, i int) {
				x := bytes.Clone(b.in[0].Inputs[i])
				copy(x[proofs:], bytes.Repeat([]byte{0xFF}, 16))
				b.in[0].Inputs[i] = x
			}, vdaf.ErrDecode},
			{"input too short", func(b *batch, i int) { b.in[0].Inputs[i] = b.in[0].Inputs[i][1:] }, vdaf.ErrDecode},
			{"input too long", func(b *batch, i int) { b.in[1].Inputs[i] = append(bytes.Clone(b.in[1].Inputs[i]), 0) }, vdaf.ErrDecode},
			{"input missing", func(b *batch, i int) { b.in[0].Inputs[i] = nil }, vdaf.ErrDecode},
			{"public share too short", func(b *batch, i int) { b.in[1].Public[i] = b.in[1].Public[i][1:] }, vdaf.ErrDecode},
			{"refused before", func(b *batch, i int) { b.errs[i] = errOther; b.in[0].Inputs[i] = nil }, errOther},
		} {
			b := newBatch(v, n)
			for i, s := range shares {
				b.add(s, nonceOf(i))
			}
			bad := k % n
			s.do(b, bad)
			aggs := b.run()
			want := make([]int64, dim)
			for i, err := range b.errs {
				if i == bad && !errors.Is(err, s.want) || i != bad && err != nil {
					t.Errorf("field %d, %s in report %d: report %d has error %v", f, s.name, bad, i, err)
				}
				if i != bad {
					for j, e := range must(Encode(v, vectorOf(dim, i), Encoding{})) {
						want[j] += e
					}
				}
			}
			if got, err := v.Unshard(aggs); err != nil || !slices.Equal(got, want) {
				t.Errorf("field %d, %s: result is %d, %v; want %d", f, s.name, got, err, want)
			}
		}
		// A peer's verifier share and message, changed on the way.
		b := newBatch(v, n)
		for i, s := range shares {
			b.add(s, nonceOf(i))
		}
		b.run()
		b.errs = make([]error, n)
		b.shares[1][z.VerifierShare] ^= 1
		copy(b.shares[1][3*z.VerifierShare:], bytes.Repeat([]byte{0xFF}, 16))
		v.Combine(testCtx, b.shares, b.msgs, b.errs)
		if !errors.Is(b.errs[1], vdaf.ErrVerify) || !errors.Is(b.errs[3], vdaf.ErrDecode) || b.errs[0] != nil {
			t.Errorf("field %d: changed verifier shares: %v", f, b.errs)
		}
		for _, at := range []int{0, 40} {
			b.errs = make([]error, n)
			b.msgs[2*z.VerifierMessage+at] ^= 1
			v.Check(b.states[0], b.msgs, b.errs)
			if !errors.Is(b.errs[2], vdaf.ErrVerify) || b.errs[0] != nil {
				t.Errorf("field %d: verifier message changed at %d: %v", f, at, b.errs)
			}
			b.msgs[2*z.VerifierMessage+at] ^= 1
		}
	}
}

func TestAccumulateMasksAndBuckets(t *testing.T) {
	v := small(Field40, 3, 2)
	b := newBatch(v, 5)
	for i := range 5 {
		nonce := nonceOf(i)
		b.add(must(v.ShardIntegers(testCtx, []int64{1 << i, -int64(i), 0}, &nonce)), nonce)
	}
	b.run()
	b.errs[3] = errOther
	var sums [2][]*vdaf.AggShare
	for _, st := range b.states {
		aggs := []*vdaf.AggShare{v.NewAggShare(), v.NewAggShare()}
		v.Accumulate(st, []bool{true, false, true, true, true}, []int32{0, 0, 1, 1, 1}, aggs, b.errs)
		sums[0], sums[1] = append(sums[0], aggs[0]), append(sums[1], aggs[1])
	}
	for i, want := range [][]int64{{1, 0, 0}, {4 + 16, -6, 0}} {
		if got, err := v.Unshard(sums[i]); err != nil || !slices.Equal(got, want) {
			t.Errorf("bucket %d is %d, %v; want %d", i, got, err, want)
		}
	}
	if _, err := v.Unshard(sums[0][:1]); !errors.Is(err, vdaf.ErrMismatch) {
		t.Errorf("one share: %v", err)
	}
}

// A state is used again after batches of other sizes and of bad reports: nothing of them
// stays.
func TestStateReused(t *testing.T) {
	v := small(Field32, 70, 2)
	b := newBatch(v, 3)
	for i := range 3 {
		nonce := nonceOf(i)
		b.add(must(v.Shard(testCtx, vectorOf(70, i), &nonce)), nonce)
	}
	b.in[0].Inputs[1] = nil
	b.run()
	first := slices.Clone(b.shares[1])
	c := newBatch(v, 1)
	nonce := nonceOf(2)
	c.add(&vdaf.Shares{Public: b.in[0].Public[2], Inputs: [][]byte{b.in[0].Inputs[2], b.in[1].Inputs[2]}}, nonce)
	c.states = b.states
	got, err := v.Unshard(c.run())
	if err != nil || c.errs[0] != nil || !slices.Equal(got, must(Encode(v, vectorOf(70, 2), Encoding{}))) {
		t.Fatalf("result is %d, %v, %v", got, err, c.errs)
	}
	if !bytes.Equal(c.shares[1], first[2*v.Sizes().VerifierShare:]) {
		t.Error("the verifier share differs in another batch")
	}
}

func TestParametersRefused(t *testing.T) {
	good := Params{Field: Field32, Dimension: 10, FracBits: 15, Norm: 1}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(p *Params){
		"field":               func(p *Params) { p.Field = 0 },
		"field of 33 bits":    func(p *Params) { p.Field = 33 },
		"no entries":          func(p *Params) { p.Dimension = 0 },
		"negative":            func(p *Params) { p.Dimension = -1 },
		"too many entries":    func(p *Params) { p.Dimension = MaxDimension + 1 },
		"bits":                func(p *Params) { p.FracBits = -1 },
		"bits above":          func(p *Params) { p.FracBits = MaxFracBits + 1 },
		"one share":           func(p *Params) { p.Shares = 1 },
		"256 shares":          func(p *Params) { p.Shares = 256 },
		"norm zero":           func(p *Params) { p.Norm = 0 },
		"norm negative":       func(p *Params) { p.Norm = -1 },
		"norm NaN":            func(p *Params) { p.Norm = math.NaN() },
		"norm infinite":       func(p *Params) { p.Norm = math.Inf(1) },
		"norm below one unit": func(p *Params) { p.Norm = 1e-5 },
		"precision":           func(p *Params) { p.FracBits = 16 },
		"precision of 40":     func(p *Params) { p.Field, p.FracBits = Field40, 20 },
		"precision of 64":     func(p *Params) { p.Field, p.FracBits = Field64, 32 },
		"bound":               func(p *Params) { p.Field, p.FracBits, p.Norm = Field128, 49, 2 },
	} {
		p := good
		change(&p)
		if _, err := New(p); !errors.Is(err, ErrParameter) {
			t.Errorf("%s: New: %v", name, err)
		}
		if _, err := Plan(p); !errors.Is(err, ErrParameter) {
			t.Errorf("%s: Plan: %v", name, err)
		}
	}
	for f, frac := range map[Field]int{Field32: 15, Field40: 19, Field64: 31, Field128: 49} {
		if err := (Params{Field: f, Dimension: MaxDimension, FracBits: frac, Norm: 1}).Validate(); err != nil {
			t.Errorf("field %d with %d bits: %v", f, frac, err)
		}
	}
	nonce := nonceOf(0)
	v := small(Field32, 2, 2)
	if _, err := v.Shard(make([]byte, 1<<16), []float64{0, 0}, &nonce); err == nil {
		t.Error("a context too long for its length bytes was taken")
	}
}

// The chunk lengths of shape are the best of all.
func TestShortest(t *testing.T) {
	for _, dim := range []int{1, 2, 7, 100, 1000} {
		for _, f := range allFields {
			s := Params{Field: f, Dimension: dim, FracBits: 10, Norm: 1}.shape()
			proofs := func(s shape) int {
				n, _ := s.normLens()
				m, _ := s.mainLens()
				return s.normProofs*n + s.proofs*m
			}
			best := proofs(s)
			for chunk := 1; chunk <= max(dim, s.bits()); chunk++ {
				a, b := s, s
				a.chunk = chunk
				b.normChunk = min(chunk, dim)
				if proofs(a) < best || proofs(b) < best {
					t.Errorf("field %d, dimension %d: chunk %d is shorter than %d and %d", f, dim, chunk, s.chunk, s.normChunk)
				}
			}
		}
	}
}

// What each field's upload must not exceed, in multiples of 4 bytes an entry (issue
// VECTORS).
func TestPlanSizes(t *testing.T) {
	for _, c := range []struct {
		f         Field
		frac, dim int
		most      float64
	}{{Field32, 15, 1 << 18, 1.05}, {Field32, 15, 10000, 1.50}, {Field40, 19, 1 << 18, 1.30}, {Field40, 19, 10000, 1.80}} {
		p := Params{Field: c.f, Dimension: c.dim, FracBits: c.frac, Norm: 1}
		cost := must(Plan(p))
		if cost.PlaintextRatio > c.most {
			t.Errorf("field %d, dimension %d: %.3f times the plaintext, want at most %.2f", c.f, c.dim, cost.PlaintextRatio, c.most)
		}
	}
	for _, f := range allFields {
		for _, dim := range []int{1, 100, 3000} {
			v := small(f, dim, 2)
			cost := must(Plan(v.Params()))
			nonce := nonceOf(1)
			s := must(v.ShardIntegers(testCtx, make([]int64, dim), &nonce))
			if got := len(s.Public) + len(s.Inputs[0]) + len(s.Inputs[1]); got != cost.Upload || cost.Sizes != v.Sizes() {
				t.Errorf("field %d, dimension %d: %d bytes, Plan says %d", f, dim, got, cost.Upload)
			}
			if v.norm.ProofLen != must2(v.normLens()) || v.main.ProofLen != must2(v.mainLens()) {
				t.Errorf("field %d, dimension %d: proof lengths disagree", f, dim)
			}
		}
	}
}

func must2(a, _ int) int { return a }

// The floors that docs/pine.md states, at the largest dimension that the issue names.
func TestPlanSoundness(t *testing.T) {
	for f, frac := range map[Field]int{Field32: 15, Field40: 19, Field64: 31, Field128: 49} {
		for _, dim := range []int{1, 10000, 1 << 18} {
			c := must(Plan(Params{Field: f, Dimension: dim, FracBits: frac, Norm: 1}))
			s := c.Soundness
			if s.Tests != 100 || s.Main < 100 || s.Norm < 89 || s.Honest < 20 || s.Hidden < 91 {
				t.Errorf("field %d, dimension %d: %+v", f, dim, s)
			}
			if c.MaxClients*c.Bound > c.Room || (c.MaxClients+1)*c.Bound <= c.Room {
				t.Errorf("field %d: %d clients of bound %d in %d", f, c.MaxClients, c.Bound, c.Room)
			}
			if !(c.ClientSeconds > c.LeaderSeconds && c.HelperSeconds >= c.LeaderSeconds && c.LeaderSeconds > 0) {
				t.Errorf("field %d, dimension %d: seconds %v %v %v", f, dim, c.ClientSeconds, c.LeaderSeconds, c.HelperSeconds)
			}
		}
	}
}

// Sums of the most clients that Plan allows, all at the bound, stay within half the
// field; Plan's Room is that half.
func TestRoom(t *testing.T) {
	for _, f := range allFields {
		v := small(f, 1, 2)
		c := must(Plan(v.Params()))
		for _, x := range []int64{int64(c.Room), -int64(c.Room), int64(c.MaxClients * c.Bound)} {
			a, b := v.NewAggShare(), v.NewAggShare()
			if err := a.AddSigned([]int64{x}); err != nil {
				t.Fatal(err)
			}
			if got, err := v.Unshard([]*vdaf.AggShare{a, b}); err != nil || got[0] != x {
				t.Errorf("field %d: %d comes out as %d, %v", f, x, got, err)
			}
		}
	}
}

// The tests take their rows in passes where the codes would need too much memory: the
// results do not depend on that.
func TestTesterPasses(t *testing.T) {
	for _, f := range allFields {
		v := small(f, 100, 2)
		vec := make([]uint64, v.measLen*v.f.Limbs())
		r := rand.New(rand.NewPCG(4, 4))
		for i := range v.dim {
			v.f.Put(vec, i, v.f.FromInt64(r.Int64()))
		}
		var want []uint64
		for _, rows := range []int{v.tests, 1, 7, 99} {
			x := newTester(v)
			x.rows = rows
			got := make([]uint64, v.tests*v.f.Limbs())
			x.run(testCtx, testKey[:], vec, got)
			if want == nil {
				want = got
				naive := make([]byte, v.tests*25)
				s := v.start(usageTestRand, testCtx, testKey[:])
				s.read(naive)
				for i := range v.tests {
					sum := v.f.FromUint64(0)
					for j := range v.dim {
						switch naive[i*25+j/4] >> (2 * (j % 4)) & 3 {
						case 0:
							sum = v.f.Sub(sum, v.f.At(vec, j))
						case 3:
							sum = v.f.Add(sum, v.f.At(vec, j))
						}
					}
					if v.f.At(got, i) != sum {
						t.Fatalf("field %d: test %d is %x, want %x", f, i, v.f.At(got, i), sum)
					}
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("field %d: results differ with %d rows at a time", f, rows)
			}
		}
	}
}

// What a batch allocates after warm-up does not grow with the dimension: only streams
// allocate.
func TestAllocationsDoNotGrow(t *testing.T) {
	for _, f := range allFields {
		var got [2][2]float64
		for i, dim := range []int{64, 3000} {
			v := small(f, dim, 2)
			b := newBatch(v, 2)
			for k := range 2 {
				nonce := nonceOf(k)
				b.add(must(v.Shard(testCtx, vectorOf(dim, k), &nonce)), nonce)
			}
			b.run()
			for agg := range 2 {
				got[i][agg] = testing.AllocsPerRun(5, func() {
					v.VerifyInit(b.states[agg], &testKey, testCtx, agg, &b.in[agg], b.shares[agg], b.errs)
				})
			}
		}
		if got[0] != got[1] || got[0][1] > 400 {
			t.Errorf("field %d: %v allocations at dimension 64, %v at 3000", f, got[0], got[1])
		}
	}
}
