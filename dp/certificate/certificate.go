// Package certificate checks proofs of (epsilon, delta) on the device that relies on them.
//
// A certificate lists the releases (terms). Where one formula says all, Check evaluates
// it. Else the certificate holds, for each way in which neighbours may differ, a
// discretised privacy loss distribution of each term, rounded outward, and Check
// convinces itself that
//
//   - each distribution dominates its term: at every grid point its curve
//     sum_i p_i max(0, 1 - e^(l - l_i)) is at least the term's, taken from the
//     mechanism's definition. Between grid points the term's curve, convex in e^epsilon,
//     lies below the chord;
//   - their composition has delta(Epsilon) <= Delta, by sums of products of
//     probabilities, in which nothing cancels.
//
// A claim of Delta 0 needs neither: the largest losses of its terms are added up exactly.
//
// A device checks the bytes behind a recipe so:
//
//	c := new(certificate.Certificate)
//	err := c.UnmarshalBinary(b)
//	err = c.Check() // an *Error unless it proves c.Claim of c.Terms
//
// The argument, with the bound on every rounding, is docs/proofs/certificates.md. That
// Terms (which are comparable) are the releases agreed to is for the caller to compare. A
// formula takes some 160 bytes, a distribution 4 for each mass. Of this module the
// package imports dp/release alone, the words in which a term is stated, and least of all
// the accountant whose work it checks; it has fewer than 580 lines of code.
package certificate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"

	"github.com/starling-agg/starling/dp/release"
)

// A Law is a discretised privacy loss distribution: of the next Size of the certificate's
// masses the i-th is at Origin + i Step, Infinite beyond.
type Law struct {
	Origin, Infinite float64
	Size             uint32
}

// A Claim is what a certificate proves.
type Claim struct {
	Epsilon, Delta float64
	Neighbours     release.Neighbours
}

// A Certificate is a claim with its proof: a distribution for each term, for the record
// removed or replaced, and again, where anything is Poisson sampled, for the record
// added. Step, Laws and Masses are empty where a formula suffices.
type Certificate struct {
	Claim
	Step   float64
	Terms  []release.Term
	Laws   []Law
	Masses []float32
}

// A Reason is why a certificate is refused.
type Reason uint8

const (
	Malformed     Reason = iota + 1 // bytes or shape: not an encoding, wrong number of distributions, too large
	BadClaim                        // epsilon, delta or neighbours out of range
	BadTerm                         // a mechanism's parameters, or a sampling that the neighbours do not allow
	BadLaw                          // masses or losses out of range, or not all of the probability
	NotDominating                   // a distribution is more optimistic than its mechanism
	Unproved                        // all is well-formed, but delta comes out larger than claimed
)

// An Error says what a certificate fails to show.
type Error struct {
	Reason Reason
	text   string
}

func (e *Error) Error() string { return "certificate: " + e.text }

func fail(r Reason, format string, args ...any) error { return &Error{r, fmt.Sprintf(format, args...)} }

// Limits; the unit in the last place; and by how much sums grow for what float64 may have
// lost of them, where that is not counted in ulps beside them: sums of 2048 positive terms;
// tables of 2^22, each an upper bound already; check-ins, whose likelihood ratios have odds
// that are off by some ulps; blocks of shuffled reports, seven times what the odds of 2^32
// messages do to a table. A table serves for fewer others up to reuse, and a distribution
// may have massSlack more than all mass. docs/proofs/certificates.md has the reasons. The
// module's package for such numbers, internal/outward, is not asked: what a device
// believes must be readable without it.
const maxTerms, maxMasses, maxPoints, maxSums, maxTables, ulp, sumSlack, tableSlack, checkInSlack, blockSlack, reuse, massSlack = 64, 1 << 14, 2048, 256, 1 << 17, 0x1p-52, 1e-12, 1e-9, 1e-7, 1e-5, 1e-4, 1e-6

// MaxSize bounds the bytes of a certificate. Room is by how much, relative to itself, a
// claim should be above what is proved: more than the rounding that Check charges to
// formulas. Coarse grids and blocks take more.
const MaxSize, Room = 1 << 17, 1e-9

type header struct {
	Magic       uint32
	Claim       Claim
	Step        float64
	Terms, Laws uint8
	Masses      uint32
}

const magic = 'S'<<24 | 'P'<<16 | 'C'<<8 | 2

// MarshalBinary returns the encoding of c: a header, terms, distributions and masses,
// big-endian, fields in the order of their declarations.
func (c *Certificate) MarshalBinary() (b []byte, err error) {
	h := header{magic, c.Claim, c.Step, uint8(len(c.Terms)), uint8(len(c.Laws)), uint32(len(c.Masses))}
	for _, v := range []any{h, c.Terms, c.Laws, c.Masses} {
		b, _ = binary.Append(b, binary.BigEndian, v) // no error for data of fixed size
	}
	return b, new(Certificate).UnmarshalBinary(b)
}

// UnmarshalBinary reads what MarshalBinary writes, and nothing else, in memory
// proportional to len(b). Errors are Malformed *Errors.
func (c *Certificate) UnmarshalBinary(b []byte) error {
	h, r := header{}, bytes.NewReader(b)
	if binary.Read(r, binary.BigEndian, &h) != nil || h.Magic != magic || h.Terms > maxTerms || h.Masses > maxMasses ||
		r.Len() != int(h.Terms)*binary.Size(release.Term{})+int(h.Laws)*binary.Size(Law{})+4*int(h.Masses) {
		return fail(Malformed, "%d bytes are no certificate", len(b))
	}
	*c = Certificate{h.Claim, h.Step, make([]release.Term, h.Terms), make([]Law, h.Laws), make([]float32, h.Masses)}
	for _, v := range []any{c.Terms, c.Laws, c.Masses} {
		binary.Read(r, binary.BigEndian, v) // of the length that is there
	}
	return nil
}

func within(x, lo, hi float64) bool { return x >= lo && x <= hi } // false for NaN

// Check returns nil if the certificate proves its claim, or an *Error. It takes some
// milliseconds, and a few seconds at most.
func (c *Certificate) Check() error {
	p, err := c.Open()
	if err != nil {
		return err
	}
	return p.Holds()
}

// Holds returns nil if the proof is one of the certificate's claim, or an *Error.
func (p *Proof) Holds() error {
	c := p.of
	if c.Delta == 0 {
		if loss := p.loss(1, 1); !(loss <= c.Epsilon) {
			return fail(Unproved, "losses of up to %v are not bounded by the epsilon %v that is claimed", loss, c.Epsilon)
		}
		return nil
	}
	if delta := p.curve(1, 1, c.Delta)(c.Epsilon); !(delta <= c.Delta) {
		return fail(Unproved, "delta is %v at epsilon %v, claimed %v", delta, c.Epsilon, c.Delta)
	}
	return nil
}

// A Proof is a certificate that was found sound but for its claim: its distributions
// dominate its terms.
type Proof struct {
	of      *Certificate
	terms   []term // folded
	formula bool
}

// Open checks all that [Certificate.Check] does but for the claim itself. The certificate
// must not change from then on.
func (c *Certificate) Open() (*Proof, error) {
	if !within(c.Epsilon, 0, release.MaxEpsilon) || !within(c.Delta, 1e-40, 1) && c.Delta != 0 || c.Delta == 1 || c.Neighbours < release.AddRemove || c.Neighbours > release.ZeroOut {
		return nil, fail(BadClaim, "the claim %+v is out of range", c.Claim)
	}
	sums, tables, left, p := 0, 0.0, len(c.Masses), &Proof{of: c, terms: make([]term, len(c.Terms))}
	for i, t := range c.Terms {
		p.terms[i] = term{t}.fold()
		if (t.Sample == release.SamplePoisson) == (c.Neighbours == release.ReplaceOne) && t.Sample != release.SampleEveryone || !p.terms[i].valid(len(c.Terms) == 1) {
			return nil, fail(BadTerm, "term %d, %+v, is not for %v neighbours or out of range", i, t, c.Neighbours)
		}
		sums += 2 * bits.Len64(p.terms[i].Count)
		tables += math.Sqrt(float64(t.Dummies) * t.DummyRate) // with which the length of a table grows
	}
	for _, l := range c.Laws {
		left -= int(l.Size)
	}
	p.formula = len(p.terms) == 1 && p.terms[0].Count == 1 && c.Step == 0 && len(c.Laws) == 0 && left == 0
	if c.Delta == 0 {
		if len(p.terms) == 0 || len(p.terms) > maxTerms || c.Step != 0 || len(c.Laws) != 0 || left != 0 || math.IsInf(p.loss(1, 1), 1) {
			return nil, fail(BadClaim, "no delta is claimed, of what is not bounded by its largest losses alone")
		}
		return p, nil
	}
	if !p.formula && (len(p.terms) == 0 || len(p.terms) > maxTerms || len(c.Laws) != p.ways()*len(p.terms) || left != 0 || len(c.Masses) > maxMasses ||
		sums > maxSums || tables > maxTables || !within(c.Step, 1e-9, 1e3)) {
		return nil, fail(Malformed, "%d distributions of step %v for %d terms", len(c.Laws), c.Step, len(p.terms))
	}
	masses := c.Masses
	for i, l := range c.Laws {
		if err := l.dominates(p.terms[i%len(p.terms)].curve(i >= len(p.terms)), masses[:l.Size], c.Step); err != nil {
			return nil, err
		}
		masses = masses[l.Size:]
	}
	return p, nil
}

// ways in which neighbours may differ: 2 if anything is Poisson sampled; all else is its
// own mirror image.
func (p *Proof) ways() int {
	if slices.ContainsFunc(p.terms, func(t term) bool { return t.Sample == release.SamplePoisson }) {
		return 2
	}
	return 1
}

// Epsilon returns an epsilon, the least but for a part in 10^5, of part in every whole
// releases of each term at delta: +Inf if none is found, or where a term's releases, as
// they are added up, are no multiple of whole.
func (p *Proof) Epsilon(part, whole uint64, delta float64) float64 {
	for i, t := range p.terms {
		if n := p.of.Terms[i].Count; whole == 0 || n%whole != 0 || !p.formula && p.of.Delta > 0 && t.Count%whole != 0 {
			return math.Inf(1)
		}
	}
	if p.of.Delta == 0 || delta == 0 {
		return p.loss(part, whole)
	}
	d, low, high := p.curve(part, whole, delta), 0.0, max(p.of.Epsilon, 1e-6)
	for ; !(d(high) <= delta); high *= 2 {
		if low = high; high > release.MaxEpsilon {
			return math.Inf(1)
		}
	}
	for high-low > 1e-5*high {
		if mid := (low + high) / 2; d(mid) <= delta {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

// loss is the most that part in every whole releases of each term lose together, +Inf where
// nothing bounds that of a term.
func (p *Proof) loss(part, whole uint64) float64 {
	sum := new(big.Rat)
	for _, t := range p.of.Terms {
		most, ok := t.Loss()
		if !ok || t.Sample != release.SampleEveryone {
			return math.Inf(1)
		}
		sum.Add(sum, most.Mul(most, new(big.Rat).SetUint64(t.Count/whole*part)))
	}
	return release.Above(sum)
}

// curve bounds delta, at any epsilon, of part in every whole releases of each term. Near
// the delta that is given it is sharp.
func (p *Proof) curve(part, whole uint64, delta float64) curve {
	count, masses, list := 0.0, p.of.Masses, []curve(nil)
	for _, t := range p.terms {
		count += float64(t.Count / whole * part)
	}
	for way := range p.ways() {
		if p.formula {
			t := term{p.of.Terms[0]}
			t.Count = t.Count / whole * part
			list = append(list, t.fold().curve(way == 1))
			continue
		}
		all, extent := sum{step: p.of.Step, p: []float64{1}}, 0.0
		for i, t := range p.terms {
			l, n := p.of.Laws[way*len(p.terms)+i], t.Count/whole*part
			power := sum{l.Origin, p.of.Step, l.Infinite, 1, make([]float64, l.Size)}
			for j, m := range masses[:l.Size] {
				power.p[j] = float64(m)
			}
			masses = masses[l.Size:]
			extent += float64(n) * (math.Abs(l.Origin) + float64(l.Size)*p.of.Step)
			for power = power.cut(delta, count); n > 0; n /= 2 {
				if n%2 == 1 {
					all = all.plus(power).cut(delta, count)
				}
				if n > 1 {
					power = power.plus(power).cut(delta, count)
				}
			}
		}
		list = append(list, func(epsilon float64) float64 {
			d, epsilon := all.infinite, epsilon-8*maxSums*ulp*(math.Abs(epsilon)+extent)
			for j, p := range all.p {
				d += p * max(0, -math.Expm1(epsilon-all.origin-float64(j)*all.step))
			}
			return d * math.Exp(2*ulp*count*(maxPoints+64)) * (1 + sumSlack)
		})
	}
	return func(epsilon float64) (delta float64) {
		for _, d := range list {
			delta = max(delta, d(epsilon))
		}
		return delta
	}
}

// dominates checks that the masses are a distribution whose curve is not below truth at
// any grid point, from the top.
func (l *Law) dominates(truth curve, masses []float32, step float64) error {
	n, total := float64(len(masses)), l.Infinite
	for _, p := range masses {
		if total += float64(p); !(p >= 0) {
			return fail(BadLaw, "a mass of %v", p)
		}
	}
	if n == 0 || !within(l.Origin, -700, 700) || !within(n*step, 0, 1000) || !within(l.Infinite, 0, 1) || !within(total, 1+n*ulp, 1+massSlack) {
		return fail(BadLaw, "a distribution of %v masses from %v on and total mass %v is out of range", n, l.Origin, total)
	}
	have, mass, fall, rise := 0.0, 0.0, math.Exp(-step)*(1-ulp), -math.Expm1(-step)*(1-ulp)
	for i := len(masses) - 1; i >= 0; i-- {
		have = fall*have + rise*mass // C(x) = e^-h C(x+h) + (1 - e^-h) P(loss >= x+h), all terms positive
		mass += float64(masses[i])
		want := truth(l.Origin + float64(i)*step - 4*ulp*(math.Abs(l.Origin)+float64(i)*step))
		if have := have*(1-2*ulp*(n+16)) + l.Infinite; !(have >= want) {
			return fail(NotDominating, "a distribution's curve at mass %d is %v, below the mechanism's %v", i, have, want)
		}
	}
	return nil
}

// A sum is the distribution of the losses of count releases.
type sum struct {
	origin, step, infinite, count float64
	p                             []float64
}

// plus returns the distribution of the sum of both losses.
func (a sum) plus(b sum) sum {
	for a.step < b.step {
		a = a.coarser()
	}
	for b.step < a.step {
		b = b.coarser()
	}
	infinite := a.infinite*(total(b.p)+b.infinite) + total(a.p)*b.infinite
	out := sum{a.origin + b.origin, a.step, infinite, a.count + b.count, make([]float64, len(a.p)+len(b.p)-1)}
	for i, x := range a.p {
		row := out.p[i : i+len(b.p)]
		for j, y := range b.p {
			row[j] += x * y
		}
	}
	return out
}

func total(p []float64) (sum float64) {
	for _, x := range p {
		sum += x
	}
	return sum
}

// cut keeps a sum short: little mass at the top becomes infinite, at the bottom it moves
// up to the first loss that is left, and the grid becomes coarser. Each of these raises
// the curve.
func (a sum) cut(delta, all float64) sum {
	low, high, top, share := 0, len(a.p), 0.0, a.count/all*1e-6
	for ; high > 1 && top+a.p[high-1] <= delta*share; high-- {
		top += a.p[high-1]
	}
	moved := a.p[0]
	for ; low < high-1 && moved <= share; moved += a.p[low] {
		low++
	}
	a.p = append([]float64{moved}, a.p[low+1:high]...)
	a.origin, a.infinite = a.origin+float64(low)*a.step, a.infinite+top
	for len(a.p) > maxPoints {
		a = a.coarser()
	}
	return a
}

// coarser doubles the step: the mass between two points goes to both, so that the curve
// becomes its chord.
func (a sum) coarser() sum {
	p, e := make([]float64, len(a.p)/2+1), math.Exp(-a.step)
	for i, x := range a.p {
		if i%2 == 0 {
			p[i/2] += x
		} else {
			p[i/2] += x * e / (1 + e)
			p[i/2+1] += x / (1 + e)
		}
	}
	a.p, a.step = p, 2*a.step
	return a
}
