package pine

import (
	"github.com/starling-agg/starling/vdaf/internal/field"
)

// maxCodes bounds the memory for coefficients; rows that do not fit are tested in another
// pass.
const maxCodes = 16 << 20

// tester runs the wrap-around tests on one vector of elements: a measurement, or a share
// of it. It is scratch.
type tester struct {
	v      *Pine
	stride int // bytes from row to row
	rows   int // rows at a time
	codes  []byte
	pieces []int64 // one piece of each entry, padded
	sums   []int64
}

func newTester(v *Pine) *tester {
	padded := ceilDiv(v.dim, field.TernaryBlock) * field.TernaryBlock
	t := &tester{v: v, stride: padded / 4, pieces: make([]int64, padded)}
	if t.stride >= 1<<10 {
		t.stride += 64 // or all rows would fall in the same sets of the cache
	}
	t.rows = max(1, min(v.tests, maxCodes/t.stride))
	t.codes = make([]byte, t.rows*t.stride)
	t.sums = make([]int64, v.tests*len(v.limbs))
	return t
}

// run writes the result of each test, an element, to dst. The seed is that of the tests'
// randomness.
func (t *tester) run(ctx, seed []byte, vec, dst []uint64) {
	v, f := t.v, t.v.f
	x := v.start(usageTestRand, ctx, seed)
	clear(t.sums)
	row := ceilDiv(v.dim, 4)
	for at := 0; at < v.tests; at += t.rows {
		n := min(t.rows, v.tests-at)
		for i := range n {
			x.read(t.codes[i*t.stride:][:row])
		}
		for k := range v.limbs {
			t.piece(vec, k)
			field.Ternary(t.sums[k*v.tests+at:][:n], t.pieces, t.codes, t.stride)
		}
	}
	for i := range v.tests {
		var e field.Elem
		for k, w := range v.limbs {
			e = f.Add(e, f.Mul(f.FromInt64(t.sums[k*v.tests+i]), w))
		}
		f.Put(dst, i, e)
	}
}

// piece fills t.pieces with the k-th piece of each entry.
func (t *tester) piece(vec []uint64, k int) {
	if len(t.v.limbs) == 1 {
		for i, x := range vec[:t.v.dim] {
			t.pieces[i] = int64(x)
		}
		return
	}
	l := t.v.f.Limbs()
	shift := uint(k % 2 * 32)
	for i := range t.v.dim {
		t.pieces[i] = int64(vec[i*l+k/2] >> shift & (1<<32 - 1))
	}
}
