package recipe

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/vdaf/pine"
)

// Vector asks each device for a vector of Dimension real numbers of L2 norm at most
// Bound*2^-FracBits; the answer is their sum. Devices scale longer vectors down, and
// prove the bound to the servers. The private value is the integer vector, in units of
// 2^-FracBits, whose norm is at most Bound whatever rounding did: Bound is the
// sensitivity of the sum, and twice that where one vector replaces another. With noise of
// the devices' own, [Gaussian], vectors are scaled to less and Bound is about vector and
// noise together. See docs/pine.md.
type Vector struct {
	Dimension uint32 // entries, 1 to MaxElements
	Bound     uint64 // B, in units of 2^-FracBits
	FracBits  uint8  // 0 to pine.MaxFracBits
	// Proof is how the bound is proved, and in which field. account.New takes the
	// smallest field with room where it is zero.
	Proof VectorProof
	// Rounding is how entries become multiples of 2^-FracBits. account.New takes the one
	// that goes with Proof where it is zero.
	Rounding Rounding
}

// VectorProof is how the norm of a [Vector] is proved.
type VectorProof uint8

const (
	// Pine32 to Pine128 are package pine over the field of 32 to 128 bits.
	Pine32  VectorProof = 1
	Pine40  VectorProof = 2
	Pine64  VectorProof = 3
	Pine128 VectorProof = 4
	// L2Fixed16 and L2Fixed32 are prio3.L2Vec, about 32 times as long: for comparison and
	// for short vectors. They take norm 1, and 15 or 31 fractional bits. (Sums of 64-bit
	// entries would leave 64-bit integers.)
	L2Fixed16 VectorProof = 5
	L2Fixed32 VectorProof = 6
)

// ParseVectorProof reads pine32, pine40, pine64, pine128, l2fixed16 or l2fixed32.
func ParseVectorProof(s string) (VectorProof, error) {
	if s == "l2fixed64" {
		return 0, errors.New("recipe: l2fixed64 is in no recipe: sums of entries with 63 binary places leave the 64-bit integers of results; " +
			"take l2fixed32 or pine128, which have more places than numbers of 32 bits")
	}
	for p := Pine32; p <= L2Fixed32; p++ {
		if p.String() == s {
			return p, nil
		}
	}
	return 0, fmt.Errorf("recipe: vector proof %q, want pine32, pine40, pine64, pine128, l2fixed16 or l2fixed32", s)
}

func (p VectorProof) String() string { return nameOf("vector-proof", uint16(p)) }

// pineTypes are the DAP types of the proofs of package pine.
var pineTypes = map[VectorProof]uint32{
	Pine32: dap.TypePine32, Pine40: dap.TypePine40, Pine64: dap.TypePine64, Pine128: dap.TypePine128,
}

// fixed is the number of bits of an entry of the proofs of prio3.L2Vec, 0 for others.
func (p VectorProof) fixed() int {
	switch p {
	case L2Fixed16:
		return 16
	case L2Fixed32:
		return 32
	}
	return 0
}

// Rounding is how an entry of a [Vector] becomes a whole number of units.
type Rounding uint8

const (
	// RoundNearest rounds to the nearest, ties to even: the least error of one vector.
	RoundNearest Rounding = 1
	// RoundRandomly rounds up with the odds of the fraction, else down: no bias that many
	// vectors could share.
	RoundRandomly Rounding = 2
	// RoundTowardsZero is that of the L2Fixed proofs.
	RoundTowardsZero Rounding = 3
)

func (r Rounding) String() string { return nameOf("rounding", uint16(r)) }

// NewVector returns the query for vectors of the given norm, rounded down to a multiple
// of 2^-fracBits. A proof of zero is left for account.New to choose. It fails with an
// [InvalidError] where the norm is no positive number or makes no 64-bit bound.
func NewVector(dimension uint32, norm float64, fracBits uint8, proof VectorProof) (Vector, error) {
	b := math.Floor(math.Ldexp(norm, int(fracBits)))
	if !(b >= 1 && b <= 1<<62) {
		return Vector{}, &InvalidError{"query.bound", fmt.Sprintf("would be %v units for norm %v and %d fractional bits, want 1 to 2^62",
			b, norm, fracBits)}
	}
	return Vector{Dimension: dimension, Bound: uint64(b), FracBits: fracBits, Proof: proof}, nil
}

// Vector returns the recipe's query if it is a [Vector].
func (r *Recipe) Vector() (Vector, bool) {
	q, ok := r.Query.(Vector)
	return q, ok
}

// Form is [Reals].
func (Vector) Form() Form       { return Reals }
func (q Vector) Wanted() string { return fmt.Sprintf("a vector of %d finite numbers", q.Dimension) }

// Holds is false: answers are no whole numbers.
func (Vector) Holds([]uint64) bool { return false }

// Add leaves the sum as it is: real numbers are added, and cut at the end, by those that
// have them.
func (Vector) Add(_, _ []uint64) {}

// MadeUp is nil.
func (Vector) MadeUp(func() uint64) []uint64 { return nil }

// Contribution is a vector of norm Bound at most.
func (q Vector) Contribution() release.Contribution {
	return release.Ball(uint64(q.Dimension), float64(q.Bound))
}

func (q Vector) Largest() float64 { return float64(q.Bound) }
func (Vector) Averages() bool     { return false }
func (Vector) Counts() bool       { return false }
func (Vector) Choices() uint64    { return 0 }
func (Vector) Part() string       { return "each number" }

func (Vector) query() uint8 { return tagVector }

func (q Vector) append(b *cryptobyte.Builder) {
	b.AddUint32(q.Dimension)
	b.AddUint64(q.Bound)
	b.AddUint8(q.FracBits)
	b.AddUint8(uint8(q.Proof))
	b.AddUint8(uint8(q.Rounding))
}

func readVector(d *decoder) Query {
	return Vector{
		Dimension: d.u32("dimension"), Bound: d.u64("bound"), FracBits: d.u8("frac_bits"),
		Proof: VectorProof(d.known("vector-proof")), Rounding: Rounding(d.known("rounding")),
	}
}

func (q Vector) params() any {
	return map[string]any{"dimension": q.Dimension, "bound": q.Bound, "frac_bits": q.FracBits, "norm": q.Norm(),
		"proof": q.Proof.String(), "rounding": q.Rounding.String()}
}

func (q Vector) withChunk() Query { return q }

// spread is that of numbers of both signs: a sum says nothing of their sizes.
func (q Vector) spread(_, answers float64) float64 {
	return answers * float64(q.Bound) * float64(q.Bound)
}

// parseVector reads a length, a norm and binary places, and a proof where one is named.
func parseVector(s string) (Query, error) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 && len(parts) != 4 {
		return nil, errors.New(`vector takes a length, a norm and binary places, as in "vector:10000:1.5:15"`)
	}
	n, err1 := strconv.ParseUint(parts[0], 10, 31)
	norm, err2 := strconv.ParseFloat(parts[1], 64)
	places, err3 := strconv.ParseUint(parts[2], 10, 8)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	var proof VectorProof
	if len(parts) == 4 {
		var err error
		if proof, err = ParseVectorProof(parts[3]); err != nil {
			return nil, err
		}
	}
	q, err := NewVector(uint32(n), norm, uint8(places), proof)
	if err != nil {
		return nil, err
	}
	return q, nil
}

// Encoding is how a device makes whole numbers of an answer: scaled down where it is too
// long, and rounded.
func (q Vector) Encoding() pine.Encoding {
	return pine.Encoding{Clip: true, Randomized: q.Rounding == RoundRandomly}
}

// Aggregates is the dimension.
func (q Vector) Aggregates() int { return int(q.Dimension) }

// Norm is the bound in units of the entries.
func (q Vector) Norm() float64 { return q.Real(int64(q.Bound)) }

// Unit is 2^-FracBits, what an integer of the sum counts.
func (q Vector) Unit() float64 { return math.Ldexp(1, -int(q.FracBits)) }

// Real turns an integer of the sum into units of the entries.
func (q Vector) Real(n int64) float64 { return math.Ldexp(float64(n), -int(q.FracBits)) }

func (q Vector) String() string {
	return fmt.Sprintf("each device gives a vector of %s, of length (L2 norm) at most %.6g, to %d binary places; the result is the sum at each place",
		count(uint64(q.Dimension), "number", "numbers"), q.Norm(), q.FracBits)
}

// VDAFConfig is the configuration of its VDAF, a dap.PineConfig or a dap.L2VecConfig.
func (q Vector) VDAFConfig() dap.VDAFConfig {
	switch q.Proof.fixed() {
	case 16:
		return dap.L2VecConfig{Width: dap.TypeL2Vec16, Length: q.Dimension}
	case 32:
		return dap.L2VecConfig{Width: dap.TypeL2Vec32, Length: q.Dimension}
	}
	return dap.PineConfig{Field: pineTypes[q.Proof], Dimension: q.Dimension, FracBits: q.FracBits, Bound: q.Bound}
}

// room is the largest absolute value of an entry of a noised sum that does not wrap
// around, (q-1)/2 or the largest int64.
func (q Vector) room() (uint64, error) {
	c, ok := q.VDAFConfig().(dap.PineConfig)
	if !ok {
		return math.MaxInt64 - 1<<31, nil // Field64's; Field128 has more than an int64
	}
	cost, err := pine.Plan(c.PineParams())
	if err != nil {
		return 0, err
	}
	return cost.Room, nil
}

// tails is the number of standard deviations of noise that a sum has room for; one entry
// is outside with odds of 2*exp(-72).
const tails = 12

// MostReports is how many reports the sum of a [Vector] has room for: N*Bound + 12 sigma
// < q/2, with sigma the deviation of what both servers add. A sum of more could wrap
// around its field, and whoever reads it could not tell. It is false for other queries,
// whose bounds leave room for more reports than [MaxMinBatch].
func (r *Recipe) MostReports() (uint64, bool) {
	q, ok := r.Vector()
	if !ok {
		return 0, false
	}
	room, err := q.room()
	variance := r.noiseVariance()
	for _, g := range r.Granularities() {
		variance = max(variance, g.Noise.variance())
	}
	noise := math.Ceil(tails * math.Sqrt(variance))
	if err != nil || !(noise < float64(room)) {
		return 0, true
	}
	return (room - uint64(noise)) / q.Bound, true
}

func (q Vector) validate(v *validator) {
	v.between("query.dimension", uint64(q.Dimension), 1, MaxElements)
	v.between("query.frac_bits", uint64(q.FracBits), 0, pine.MaxFracBits)
	if !isKnown("rounding", uint16(q.Rounding)) {
		v.add("query.rounding", "is %d, which is no rounding", q.Rounding)
	}
	width := q.Proof.fixed()
	switch {
	case !isKnown("vector-proof", uint16(q.Proof)):
		v.add("query.proof", "is %d, which is no proof", q.Proof)
		return
	case width > 0:
		if int(q.FracBits) != width-1 || q.Bound != 1<<(width-1) {
			v.add("query.bound", "is %d units of %d fractional bits; %v has norm 1 and %d fractional bits", q.Bound, q.FracBits, q.Proof, width-1)
		}
		if q.Rounding != RoundTowardsZero {
			v.add("query.rounding", "is %v; %v rounds towards zero", q.Rounding, q.Proof)
		}
		return
	case q.Rounding == RoundTowardsZero:
		v.add("query.rounding", "is %v, which %v has not", q.Rounding, q.Proof)
	}
	v.between("query.bound", q.Bound, 1, pine.MaxBound)
	if len(v.errs) > 0 {
		return
	}
	if err := q.VDAFConfig().(dap.PineConfig).PineParams().Validate(); err != nil {
		v.add("query.proof", "of %v does not hold: %v", q.Proof, err)
	}
}

// vectorRoom holds a recipe of vectors to what its field has room for, and to noise that
// the accountant knows there.
func (v *validator) vectorRoom(r *Recipe) {
	q, ok := r.Vector()
	if !ok || len(v.errs) > 0 {
		return
	}
	if r.Noise.norm() == 1 {
		v.add("noise", "of a vector with bounded L2 norm is discrete-gaussian: discrete-laplace would need a bound of the L1 norm")
		return
	}
	wanted := r.Threshold()
	if r.on().leaderSelected() {
		wanted *= 2 // the leader takes whole segments until it has enough
	} else {
		people := uint64(0)
		if r.Population != nil {
			people = r.Population.Expected
		}
		if r.Rate != nil {
			people = max(people, r.Rate.Devices)
		}
		if r.Sampled() && r.Rate != nil && r.Dummies != nil {
			// Not all that decide report. A batch of more than twice as many as are
			// expected to is held back by the servers.
			_, most, _ := r.Expected(r.Rate.Units)
			people = min(people, uint64(math.Ceil(2*most/float64(r.Slots()))))
		}
		wanted = max(wanted, people)
	}
	if most, _ := r.MostReports(); wanted > most {
		v.add("query.proof", "of %v has room for %d reports of %d units and the noise, but a batch may have %d: take fewer fractional bits "+
			"or a larger field", q.Proof, most, q.Bound, wanted)
	}
}

// WithProof chooses the smallest field of package pine in which make finds a recipe for a
// [Vector]. Other queries it hands on as they are.
func WithProof(of Query, make func(Query) (*Recipe, error)) (*Recipe, error) {
	q, ok := of.(Vector)
	if !ok {
		return make(of)
	}
	if q.Rounding == 0 {
		q.Rounding = RoundNearest
		if q.Proof.fixed() > 0 {
			q.Rounding = RoundTowardsZero
		}
	}
	if q.Proof != 0 {
		return make(q)
	}
	for q.Proof = Pine32; ; q.Proof++ {
		r, err := make(q)
		var invalid *InvalidError
		if q.Proof == Pine128 || !errors.As(err, &invalid) || invalid.Field != "query.proof" {
			return r, err
		}
	}
}
