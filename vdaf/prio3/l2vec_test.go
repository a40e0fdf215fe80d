package prio3

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/vdaftest"
)

func l2Vector(length, i int) []float64 {
	r := rand.New(rand.NewPCG(uint64(i), 7))
	x := make([]float64, length)
	for j := range x {
		x[j] = (r.Float64()*2 - 1) / math.Sqrt(float64(length))
	}
	return x
}

func l2Fixture(v *L2Vec, length int) fixture {
	return fixture{"L2Vec", v, func(i int, nonce *[16]byte) (*vdaf.Shares, error) {
		return v.Shard(testCtx, l2Vector(length, i), nonce)
	}, func(n int) []int64 {
		sum := make([]int64, length)
		for i := range n {
			for j, x := range l2Vector(length, i) {
				sum[j] += int64(math.Trunc(math.Ldexp(x, v.width-1)))
			}
		}
		return sum
	}}
}

func TestL2VecRoundTrip(t *testing.T) {
	for _, width := range []int{16, 32, 64} {
		for _, shares := range []int{2, 3} {
			for _, length := range []int{1, 2, 7, 40} {
				v := must(NewL2Vec(shares, length, width))
				f := l2Fixture(v, length)
				n := 3
				if width == 64 {
					n = 1 // a sum of more may leave int64
				}
				b := newBatch(t, f, n)
				b.init()
				aggs := b.finish()
				if err := errors.Join(b.errs...); err != nil {
					t.Fatalf("%d bits, length %d: %v", width, length, err)
				}
				got, err := v.Unshard(aggs)
				if err != nil || !slices.Equal(got, f.want(n)) {
					t.Fatalf("%d bits, length %d: %d, %v; want %d", width, length, got, err, f.want(n))
				}
				if r, x := v.Reals(got)[0], math.Ldexp(float64(got[0]), 1-width); r != x {
					t.Errorf("Reals gives %v, want %v", r, x)
				}
			}
		}
	}
}

func TestL2VecRefuses(t *testing.T) {
	var nonce [vdaf.NonceSize]byte
	for _, width := range []int{16, 32, 64} {
		v := must(NewL2Vec(2, 4, width))
		below := math.Nextafter(1, 0)
		for _, x := range [][]float64{{1, 0, 0, 0}, {-1, 0, 0, 0}, {0.5, 0.5, 0.5, 0.5}, {-0.5, 0.5, -0.5, 0.5},
			{math.NaN(), 0, 0, 0}, {0, math.Inf(1), 0, 0}, {0, 0, math.Inf(-1), 0}, {math.MaxFloat64, 0, 0, 0}, {0}, nil,
			{0.71, 0.71, 0, 0}, {1.01, 0, 0, 0}} {
			if s, err := v.Shard(nil, x, &nonce); !errors.Is(err, vdaf.ErrMeasurement) || s != nil {
				t.Errorf("%d bits: %v: %v", width, x, err)
			}
		}
		for _, x := range [][]float64{{below, 0, 0, 0}, {-below, 0, 0, 0}, {0.5, 0.5, 0.5, 0.499}, {0, 0, 0, 5e-324}} {
			if _, err := v.Shard(nil, x, &nonce); err != nil {
				t.Errorf("%d bits: %v: %v", width, x, err)
			}
		}
	}
	for name, f := range map[string]func() (any, error){
		"one share": func() (any, error) { return NewL2Vec(1, 4, 16) },
		"width 8":   func() (any, error) { return NewL2Vec(2, 4, 8) },
		"width 0":   func() (any, error) { return NewL2Vec(2, 4, 0) },
		"empty":     func() (any, error) { return NewL2Vec(2, 0, 16) },
		"negative":  func() (any, error) { return NewL2Vec(2, -3, 16) },
		"too long":  func() (any, error) { return NewL2Vec(2, MaxL2Elements/16, 16) },
		"far":       func() (any, error) { return NewL2Vec(2, math.MaxInt, 64) },
	} {
		if _, err := f(); !errors.Is(err, ErrParameter) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// A client whose bits say one thing and whose norm another, or whose norm is 1 % over, is
// refused in 100 of 100 trials.
func TestL2VecAttacks(t *testing.T) {
	for _, width := range []int{16, 32, 64} {
		v := must(NewL2Vec(2, 5, width))
		r := rand.New(rand.NewPCG(1, uint64(width)))
		fl := v.c.F
		honest := l2Fixture(v, 5)
		b := newBatch(t, honest, 100)
		for i := range 100 {
			entries := make([]int64, 5)
			top := math.Ldexp(1.01, width-2) // four entries of 0.505
			for j := range 4 {
				entries[j] = int64(top) * (1 - 2*r.Int64N(2))
			}
			meas := make([]uint64, v.c.MeasLen*fl.Limbs())
			if v.c.BoundedEncode(meas, entries) {
				t.Fatal("a norm of 1.01 was taken")
			}
			if i%2 == 1 { // claim less
				at := 5*width + r.IntN(2*width-2)
				fl.Put(meas, at, fl.Sub(fl.FromUint64(1), fl.At(meas, at)))
			}
			nonce := b.in[0].Nonces[i]
			s, err := v.shard(testCtx, meas, &nonce, v.fresh())
			if err != nil {
				t.Fatal(err)
			}
			for agg := range b.in {
				b.in[agg].Public[i], b.in[agg].Inputs[i] = s.Public, s.Inputs[agg]
			}
		}
		b.init()
		b.finish()
		for i, err := range b.errs {
			if !errors.Is(err, vdaf.ErrVerify) {
				t.Fatalf("%d bits: trial %d: error is %v", width, i, err)
			}
		}
	}
}

// TestL2VecSizes holds the sizes that docs/pine.md states.
func TestL2VecSizes(t *testing.T) {
	for _, c := range []struct{ length, width, upload int }{{10000, 16, 1320984}, {1 << 18, 16, 33757656},
		{10000, 32, 5158224}, {10000, 64, 10299456}} {
		z := must(NewL2Vec(2, c.length, c.width)).Sizes()
		if got := z.Public + z.LeaderInput + z.HelperInput; got != c.upload {
			t.Errorf("%d entries of %d bits: %d bytes, want %d", c.length, c.width, got, c.upload)
		}
	}
}

// l2Pinned are hashes of all that passes between the parties for one report: no one else
// speaks these codepoints, so a change is one of the wire and needs new ones.
var l2Pinned = map[int]string{
	16: "103e97ba52bbdf22ba536721f17ad8a14d0d7af00c5922e1a51adfdfc68e9dba",
	32: "24c9c068d74ff0d52fa431f0982708c27104c7488f47a87abcfed9897635aa83",
	64: "b70f4da216eee35511f15e8a31f1d91474f1920a9bd04c6910bdb0936a8988e0",
}

func TestL2VecPinned(t *testing.T) {
	registry, err := os.ReadFile(filepath.Join("..", "..", "docs", "registry.md"))
	if err != nil {
		t.Fatal(err)
	}
	for width, want := range l2Pinned {
		v := must(NewL2Vec(2, 5, width))
		line := fmt.Sprintf("| `0x%08X` | L2Vec of %d-bit entries | `vdaf/codepoints.go` |\n", v.ID(), width)
		if !bytes.Contains(registry, []byte(line)) {
			t.Errorf("docs/registry.md misses %s", line)
		}
		rand := make([]byte, v.randSize())
		for i := range rand {
			rand[i] = byte(i)
		}
		f := l2Fixture(v, 5)
		f.shard = func(i int, nonce *[16]byte) (*vdaf.Shares, error) {
			return vdaftest.Shard(v, testCtx, l2Vector(5, i), nonce, rand)
		}
		b := newBatch(t, f, 1)
		b.init()
		aggs := b.finish()
		if b.errs[0] != nil {
			t.Fatal(b.errs[0])
		}
		h := sha256.New()
		for _, part := range [][]byte{b.in[0].Public[0], b.in[0].Inputs[0], b.in[1].Inputs[0], b.shares[0], b.shares[1], b.msgs,
			aggs[0].Append(nil), aggs[1].Append(nil)} {
			h.Write(part)
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != want {
			t.Errorf("%d bits: the transcript hashes to %s, want %s", width, got, want)
		}
	}
}

func TestL2VecNoAllocations(t *testing.T) {
	v := must(NewL2Vec(2, 6, 32))
	b := newBatch(t, l2Fixture(v, 6), 4)
	b.init()
	if got := testing.AllocsPerRun(20, b.init); got != 0 && !raceEnabled {
		t.Errorf("VerifyInit allocates %v times a batch", got)
	}
}
