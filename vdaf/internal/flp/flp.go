// Package flp implements the fully linear proof system of VDAF-18 section 7.3 (BBCGGI19,
// Theorem 4.3) for circuits with one gadget, written so that verification needs no
// transform and no inversion.
//
// A circuit calls its gadget a fixed number of times. The values of input wire j over all
// calls, after a random seed, are the values of a polynomial of degree below p at the
// p-th roots of unity (p a power of two above the number of calls); the gadget applied to
// those polynomials is one of degree below degree*(p-1)+1, and the proof is the seeds and
// that polynomial's values. An aggregator checks at a random point t that its share of
// either side agrees.
//
// # How Query avoids the work of the specification's algorithm
//
// The specification stores every wire, extends the gadget polynomial by a quadratic
// routine and evaluates every polynomial by a pass of its own. Here the weights l_k =
// L_k(t) are computed once (field.Lagrange); a wire's value at t is then sum_k
// l_k*wire_k, and since wire values are linear in the measurement the sum is taken
// straight over the measurement, with the circuit's own coefficients folded into the
// running weights. Wires are never stored.
//
// Values of the gadget polynomial that the proof leaves out are linear in those it has.
// For degree 2 exactly one is missing: with N = 2p points and degree at most N-2 the top
// coefficient is zero, so y_(N-1) = -w*sum_i y_i*w^i. In general they come by the table
// in Circuit.missing.
//
// # Timing
//
// Work depends on the circuit alone. Query reveals whether the test point was a root of
// unity, which depends on public randomness and the verification key.
package flp

import (
	"github.com/starling-agg/starling/vdaf/internal/field"
)

type kind uint8

const (
	kindCount   kind = iota // Mul; y - m
	kindPoly                // a polynomial of each element
	kindChunked             // ParallelSum(Mul, chunk): bit check of each element
	kindSquares             // ParallelSum(square, chunk): sum of squares
	kindWraps               // ParallelSum(Mul, chunk): bits, norm and wrap-around tests of PINE
	kindBounded             // ParallelSum(Mul, chunk): bits, and sums of products of what they make
)

// Circuit is a validity circuit and the lengths of its proof, all in field elements. It
// is immutable.
type Circuit struct {
	F            field.Field
	MeasLen      int
	JointRandLen int
	ProofLen     int
	ProveRandLen int
	QueryRandLen int
	VerifierLen  int

	kind    kind
	arity   int
	degree  int
	calls   int
	evalLen int          // outputs of the circuit
	chunk   int          // kindChunked
	poly    []field.Elem // kindPoly: coefficients as weights, constant first

	// kindChunked may check one linear equation beside the bits, which evalLen 2 tells:
	// the sum of the first sumLen elements, plus tail (weights) times the rest, less one
	// if sumOne, is zero; or, where there are groups, what they make under the weights of
	// group, less what the last makes, is.
	sumLen int
	tail   []uint64
	sumOne bool
	groups int // but the last
	group  []uint64

	square  *squareSum // kindSquares
	wraps   *wraps     // kindWraps
	bounded *bounded   // kindBounded

	plan    *field.Plan
	shift   []uint64
	polyLen int          // values of the gadget polynomial in a proof
	log     int          // of the points of the gadget polynomial over plan.P
	size    int          // points of the gadget polynomial: polyLen rounded up to a power of two
	missing []uint64     // one row of polyLen weights for each of the size-polyLen values not in the proof
	unshift []field.Elem // w^-r for r < 2^log, w the size-th root
	rootP   []field.Elem // w^(-r*p): what unshift[r] is after p-th powers
	invStep field.Elem   // weight 1/2^log
	one     field.Elem   // weight 1
	bigPlan *field.Plan  // kindPoly: transforms of size, to prove
}

// NewCount is the circuit m*m - m = 0 over one element (VDAF-18 section 7.4.1).
func NewCount(f field.Field) *Circuit {
	c := &Circuit{F: f, kind: kindCount, MeasLen: 1, arity: 2, degree: 2, calls: 1, evalLen: 1}
	return c.build()
}

// NewBits checks that each of n elements is 0 or 1 by x^2 - x (VDAF-18 section 7.4.2).
func NewBits(f field.Field, n int) *Circuit {
	return NewPoly(f, n, []int64{0, -1, 1})
}

// NewPoly checks that a polynomial, coefficients constant first, is zero at each of n
// elements.
func NewPoly(f field.Field, n int, coefficients []int64) *Circuit {
	c := &Circuit{F: f, kind: kindPoly, MeasLen: n, arity: 1, degree: len(coefficients) - 1, calls: n, evalLen: n}
	for _, x := range coefficients {
		c.poly = append(c.poly, f.ToWeight(f.FromInt64(x)))
	}
	return c.build()
}

// NewChunked checks that each of n elements is 0 or 1, chunk at a time under joint
// randomness (VDAF-18 section 7.4.3).
func NewChunked(f field.Field, n, chunk int) *Circuit {
	return chunked(f, n, chunk, 1).build()
}

// NewOneHot is NewChunked and that the elements add up to one (VDAF-18 section 7.4.4).
func NewOneHot(f field.Field, n, chunk int) *Circuit {
	c := chunked(f, n, chunk, 2)
	c.sumLen, c.sumOne = n, true
	return c.build()
}

// NewWeighted is NewChunked and that the sum of the first n elements is weights (raw)
// times the rest (VDAF-18 section 7.4.5).
func NewWeighted(f field.Field, n int, weights []uint64, chunk int) *Circuit {
	c := chunked(f, n+len(weights), chunk, 2)
	c.sumLen = n
	c.tail = make([]uint64, len(weights)*f.Limbs())
	for i, w := range weights {
		f.Put(c.tail, i, f.ToWeight(f.Sub(field.Elem{}, f.FromUint64(w))))
	}
	return c.build()
}

// NewTotalled is NewChunked over groups+1 groups of elements, and that the last group
// makes, under weights (raw), the sum of what the others make
// (draft-ietf-ppm-l1-bound-sum-02).
func NewTotalled(f field.Field, groups int, weights []uint64, chunk int) *Circuit {
	c := chunked(f, (groups+1)*len(weights), chunk, 2)
	c.groups = groups
	c.group = make([]uint64, len(weights)*f.Limbs())
	for i, w := range weights {
		f.Put(c.group, i, f.ToWeight(f.FromUint64(w)))
	}
	return c.build()
}

func chunked(f field.Field, n, chunk, evalLen int) *Circuit {
	calls := (n + chunk - 1) / chunk
	return &Circuit{F: f, kind: kindChunked, MeasLen: n, JointRandLen: calls, arity: 2 * chunk, degree: 2,
		calls: calls, evalLen: evalLen, chunk: chunk}
}

func ceilLog(n int) int {
	log := 0
	for 1<<log < n {
		log++
	}
	return log
}

// ChunkedProofLen is the length of a proof by a chunked circuit over n elements, without
// building it, so that bounds can be checked first. n and chunk are positive and below
// 2^31.
func ChunkedProofLen(n, chunk int) int {
	calls := (n + chunk - 1) / chunk
	p := 1 << ceilLog(1+calls)
	return 2*chunk + 2*(p-1) + 1
}

func (c *Circuit) build() *Circuit {
	f := c.F
	logP := ceilLog(1 + c.calls)
	p := 1 << logP
	c.polyLen = c.degree*(p-1) + 1
	c.log = ceilLog(c.polyLen) - logP
	c.size = p << c.log
	c.ProofLen = c.arity + c.polyLen
	c.ProveRandLen = c.arity
	c.QueryRandLen = 1
	if c.evalLen > 1 {
		c.QueryRandLen += c.evalLen
	}
	c.VerifierLen = 2 + c.arity

	c.plan = field.NewPlan(f, logP)
	c.shift = c.plan.Shift(f)
	c.one = f.ToWeight(f.FromUint64(1))
	c.invStep = f.Inv(f.ToWeight(f.FromUint64(1 << c.log)))
	w := f.Inv(f.Root(logP + c.log))
	wp := f.Inv(f.Root(c.log))
	x, y := c.one, c.one
	for range 1 << c.log {
		c.unshift, c.rootP = append(c.unshift, x), append(c.rootP, y)
		x, y = f.Mul(x, w), f.Mul(y, wp)
	}
	if c.kind == kindPoly {
		c.bigPlan = field.NewPlan(f, logP+c.log)
	}
	c.buildMissing()
	return c
}

// buildMissing fills the table of values that the proof leaves out. Element k of row m is
// the value at x_m of the k-th Lagrange polynomial on the points that are there; as all
// points together are the roots of unity, that is
//
//	-x_k/x_m * prod_(missing j, not m) (x_k - x_j)/(x_m - x_j).
func (c *Circuit) buildMissing() {
	f, l := c.F, c.F.Limbs()
	n := c.size - c.polyLen
	if n == 0 {
		return
	}
	root := f.Root(c.plan.Log + c.log)
	xs := make([]field.Elem, c.size)
	x := c.one
	for i := range xs {
		xs[i] = x
		x = f.Mul(x, root)
	}
	c.missing = make([]uint64, n*c.polyLen*l)
	for m := range n {
		xm := xs[c.polyLen+m]
		scale := xm
		for j := range n {
			if j != m {
				scale = f.Mul(scale, f.Sub(xm, xs[c.polyLen+j]))
			}
		}
		scale = f.Sub(field.Elem{}, f.Inv(scale))
		for k := range c.polyLen {
			v := f.Mul(scale, xs[k])
			for j := range n {
				if j != m {
					v = f.Mul(v, f.Sub(xs[k], xs[c.polyLen+j]))
				}
			}
			f.Put(c.missing, m*c.polyLen+k, v)
		}
	}
}

// Scratch is memory for Query and Prove on one circuit. It is not safe for concurrent use.
type Scratch struct {
	w, run, r []uint64 // Lagrange weights; running weights; joint randomness as weights
	y         []uint64 // size values of the gadget polynomial
	ts        []field.Elem
	even, odd []uint64    // Prove: one pair of wires
	entries   [2][]uint64 // kindBounded: numbers made of bits; kindWraps: all pairs
	row       []uint64    // Query of these: one side of the wires
}

// NewScratch returns memory for c.
func (c *Circuit) NewScratch() *Scratch {
	l := c.F.Limbs()
	return &Scratch{
		w:   make([]uint64, c.plan.P*l),
		run: make([]uint64, c.JointRandLen*l),
		r:   make([]uint64, c.JointRandLen*l),
		y:   make([]uint64, c.size*l),
		ts:  make([]field.Elem, c.plan.Log),
	}
}
