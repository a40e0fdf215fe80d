// Package certificate checks proofs of (epsilon, delta) on the device that relies on them.
//
// A certificate lists the releases (terms). Where one formula says all, Check evaluates it. Else the certificate holds, for each way
// in which neighbours may differ, a discretised law of each term's privacy loss, rounded outward, and Check convinces itself that
//
//   - each law dominates its term: at every grid point its curve sum_i p_i max(0, 1 - e^(l - l_i)) is at least the term's, taken
//     from the mechanism's definition. Between grid points the term's curve, convex in e^epsilon, lies below the chord;
//   - the laws' composition has delta(Epsilon) <= Delta, by a transform whose errors are bounded and added.
//
// The argument, with the bound on every rounding, is docs/proofs/certificates.md. That Terms (which are comparable) are the releases
// agreed to is for the caller to compare. A formula takes some 100 bytes, laws 4 for each mass. This package imports nothing of this
// module, least of all the accountant whose work it checks, and has fewer than 500 lines of code.
package certificate

import (
	"fmt"
	"math"
)

// A Mechanism is a way to add noise to a release.
type Mechanism uint8

const (
	Gaussian           Mechanism = iota + 1 // Mu: distance of neighbours over the noise's standard deviation
	Laplace                                 // Mu: distance over the scale
	DiscreteGaussian                        // variance Num/Den from each of Honest servers; each of Coordinates moves by Shift
	DiscreteLaplace                         // scale Num/Den, one coordinate, moved by Shift
	RandomizedResponse                      // Mu: epsilon0, of Answers; 2 Answers: any (Mu, Fail)-DP release
	ZCDP                                    // Mu: rho
)

// A Sampling says how records are kept, each with probability Rate, in secret: a PoissonSample independently, while the count is secret
// too, for add-remove and zero-out neighbours; a FixedSample as a uniform subset of public size, for replace neighbours.
type Sampling uint8

const Everyone, PoissonSample, FixedSample Sampling = 0, 1, 2

// Neighbours says which data sets are hard to tell apart; Terms already account for it in their distances.
type Neighbours uint8

const AddRemove, Replace, ZeroOut Neighbours = 1, 2, 3

// A Term is Count releases by one mechanism. Fields that the mechanism does not name are 0; Rate is 1 for Everyone.
type Term struct {
	Mechanism                                    Mechanism
	Sampling                                     Sampling
	Honest                                       uint8
	Count, Num, Den, Shift, Coordinates, Answers uint64
	Mu, Fail, Rate                               float64
}

// A Law is a discretised privacy loss: probability Masses[i] at Origin + i Step, Infinite beyond.
type Law struct {
	Origin, Infinite float64
	Masses           []float32
}

// A Direction is one way in which neighbours differ, with a law for each term.
type Direction struct {
	Hints
	Laws []Law
}

// Hints for the composition: bad ones make a true certificate fail, never a false one pass. Tilt is the exponent of the weight of a
// loss, Order a larger one, for the tail above the window, of 2^LogSize steps, First steps above the least possible loss.
type Hints struct {
	Added       bool // the record is added; else it is removed or replaced
	LogSize     uint8
	First       uint64
	Tilt, Order float64
}

// A Certificate is a claim of (Epsilon, Delta) with its proof. Step and Directions are empty where a formula suffices.
type Certificate struct {
	Epsilon, Delta float64
	Neighbours     Neighbours
	Terms          []Term
	Step           float64
	Directions     []Direction
}

// A Reason is why a certificate is refused.
type Reason uint8

const (
	Malformed     Reason = iota + 1 // bytes or shape: not an encoding, wrong number of laws, too large
	BadClaim                        // epsilon, delta or neighbours out of range
	BadTerm                         // a mechanism's parameters, or a sampling that the neighbours do not allow
	BadLaw                          // masses or losses out of range, or not all of the probability
	NotDominating                   // a law is more optimistic than its mechanism
	BadWindow                       // hints for the composition out of range
	Unproved                        // all is well-formed, but delta comes out larger than claimed
)

// An Error says what a certificate fails to show.
type Error struct {
	Reason Reason
	text   string
}

func (e *Error) Error() string { return "certificate: " + e.text }

func fail(r Reason, format string, args ...any) error { return &Error{r, fmt.Sprintf(format, args...)} }

const maxTerms, maxMasses, maxLogSize, ulp = 64, 1 << 17, 19, 0x1p-52

func within(x, lo, hi float64) bool { return x >= lo && x <= hi } // false for NaN

// Check returns nil if the certificate proves its claim, or an *Error.
func (c *Certificate) Check() error {
	switch {
	case !within(c.Epsilon, 0, 1e6) || !within(c.Delta, 1e-100, 1) || c.Delta == 1 || c.Neighbours < AddRemove || c.Neighbours > ZeroOut:
		return fail(BadClaim, "the claim (%v, %v) for neighbours %d is out of range", c.Epsilon, c.Delta, c.Neighbours)
	case len(c.Terms) == 0 || len(c.Terms) > maxTerms:
		return fail(Malformed, "%d terms", len(c.Terms))
	}
	ways := []bool{false} // every mechanism is its own mirror image, but for Poisson sampling
	terms := make([]Term, len(c.Terms))
	for i, t := range c.Terms {
		if t.Sampling == PoissonSample {
			ways = []bool{false, true}
		}
		bad := t.Sampling == PoissonSample && c.Neighbours == Replace || t.Sampling == FixedSample && c.Neighbours != Replace
		if terms[i] = t.fold(); bad || !terms[i].valid() {
			return fail(BadTerm, "term %d, %+v, is not for neighbours %d or out of range", i, t, c.Neighbours)
		}
	}
	if t := terms[0]; len(terms) == 1 && t.Count == 1 {
		if c.Step != 0 || len(c.Directions) != 0 {
			return fail(Malformed, "laws beside a formula")
		}
		for _, added := range ways {
			if delta := t.curve(added)(c.Epsilon); !(delta <= c.Delta) {
				return fail(Unproved, "delta is %v at epsilon %v, claimed %v", delta, c.Epsilon, c.Delta)
			}
		}
		return nil
	}
	if !within(c.Step, 1e-9, 1e3) || len(c.Directions) != len(ways) {
		return fail(Malformed, "%d directions of step %v, want %d", len(c.Directions), c.Step, len(ways))
	}
	for i, d := range c.Directions {
		if d.Added != ways[i] || len(d.Laws) != len(terms) {
			return fail(Malformed, "direction %d is the other one, or has %d laws for %d terms", i, len(d.Laws), len(terms))
		}
		if err := c.direction(d, terms); err != nil {
			return err
		}
	}
	return nil
}

func (c *Certificate) direction(d Direction, terms []Term) error {
	if !within(d.Tilt, 0, 1e6) || !within(d.Order, d.Tilt, 1e7) || d.LogSize < 2 || d.LogSize > maxLogSize || d.First > 1<<50 {
		return fail(BadWindow, "hints %+v are out of range", d.Hints)
	}
	for i, t := range terms {
		l := d.Laws[i]
		n := float64(len(l.Masses))
		if n == 0 || n > maxMasses || !within(l.Origin, -700, 700) || !within(l.Origin+n*c.Step, -700, 1700) || !within(l.Infinite, 0, 1) {
			return fail(BadLaw, "law %d is out of range", i)
		}
		total := l.Infinite
		for _, p := range l.Masses {
			if total += float64(p); !(p >= 0) {
				return fail(BadLaw, "law %d has a mass of %v", i, p)
			}
		}
		if !within(total, 1+n*ulp, 1+1e-6) {
			return fail(BadLaw, "law %d has a total mass of %v", i, total)
		}
		if err := l.dominates(t.curve(d.Added), c.Step); err != nil {
			return err
		}
	}
	delta, err := c.compose(d, terms)
	if err == nil && !(delta <= c.Delta) {
		err = fail(Unproved, "delta is %v at epsilon %v, claimed %v", delta, c.Epsilon, c.Delta)
	}
	return err
}

// dominates checks the curve of l against truth at every grid point, from the top.
func (l *Law) dominates(truth func(loss float64) float64, step float64) error {
	curve, mass := 0.0, 0.0
	fall, rise := math.Exp(-step)*(1-ulp), -math.Expm1(-step)*(1-ulp)
	slack := 1 - 2*ulp*float64(len(l.Masses)+16)
	for i := len(l.Masses) - 1; i >= 0; i-- {
		// C(x) = e^-h C(x+h) + (1 - e^-h) P(loss >= x+h), all terms positive
		curve = fall*curve + rise*mass
		mass += float64(l.Masses[i])
		at := l.Origin + float64(i)*step
		want := truth(at - 4*ulp*(math.Abs(l.Origin)+float64(i)*step))
		if have := curve*slack + l.Infinite; !(have >= want) {
			return fail(NotDominating, "a law's curve at %v is %v, below the mechanism's %v", at, have, want)
		}
	}
	return nil
}

// compose bounds delta(Epsilon) of the composition of the laws from above.
func (c *Certificate) compose(d Direction, terms []Term) (float64, error) {
	n := 1 << d.LogSize
	unit := 16 * ulp / 2 * float64(d.LogSize+2) // error of a coefficient, for inputs that sum to one
	var least, extent, finite, infinite, k, tail, slop, tailSlop float64
	product := make([]complex128, n)
	size, errs := make([]float64, n), make([]float64, n) // ln of a bound on a coefficient; the sum of relative errors
	for j := range product {
		product[j] = 1
	}
	for i, t := range terms {
		l, count := d.Laws[i], float64(t.Count)
		m, sum := l.moment(d.Tilt, c.Step), 0.0
		span := math.Abs(l.Origin) + float64(len(l.Masses))*c.Step
		k += count * m
		tail += count * l.moment(d.Order, c.Step)
		least += count * l.Origin
		extent += count * math.Abs(l.Origin)
		x := make([]complex128, n)
		for j, p := range l.Masses {
			sum += float64(p)
			x[j&(n-1)] += complex(float64(p)*math.Exp(d.Tilt*(l.Origin+float64(j)*c.Step)-m), 0)
		}
		tailSlop += count * 4 * ulp * (4 + d.Order*span + float64(len(l.Masses)))
		finite += count * math.Log(sum)
		infinite += count * math.Log1p(l.Infinite/sum)
		slop += count * 4 * ulp * (4 + d.Tilt*span + math.Abs(m) + float64(len(l.Masses)))
		for j, z := range transform(x) {
			a := math.Hypot(real(z), imag(z)) + unit
			size[j] += count * math.Log(a)
			errs[j] += count * (unit/a + 2*ulp)
			product[j] *= power(z, t.Count)
		}
	}
	noise, total := 0.0, 0.0
	for j, z := range product {
		a := math.Exp(size[j] + 1e-9)
		noise += a * math.Expm1(errs[j]+1e-12)
		total += a
		product[j] = complex(real(z), -imag(z)) // for the inverse
	}
	noise = (noise + unit*total) / float64(n) * 1.001
	product = transform(product)
	// Every loss is off by no more than this; epsilon moves down by as much.
	shift := 4 * ulp * (extent*float64(len(terms)+1) + math.Abs(c.Epsilon) + (float64(d.First)+float64(n))*c.Step)
	epsilon := c.Epsilon - shift
	first := least + float64(d.First)*c.Step
	top := first + float64(n)*c.Step - shift
	if first > epsilon {
		return 0, fail(BadWindow, "the window begins above epsilon")
	}
	delta := math.Exp(finite) * math.Expm1(infinite)
	// Losses above the window: at most e^(K(order) - order top) of them.
	delta += math.Exp(tail - d.Order*top + tailSlop + 8*ulp*(math.Abs(tail)+d.Order*math.Abs(top)))
	for j := range n {
		loss := first + float64(j)*c.Step
		if loss <= epsilon {
			continue
		}
		p := max(0, real(product[(uint64(j)+d.First)&uint64(n-1)])/float64(n)+noise)
		delta += p * math.Exp(k-d.Tilt*loss) * -math.Expm1(epsilon-loss)
	}
	slop += 8 * ulp * (math.Abs(k)*float64(len(terms)+1) + d.Tilt*(extent+math.Abs(top)+math.Abs(first)) + float64(n))
	return delta * math.Exp(slop) * (1 + 1e-12), nil
}

// moment returns ln sum p e^(order loss) over the finite losses.
func (l *Law) moment(order, step float64) float64 {
	s, r := 0.0, math.Exp(-order*step)
	for _, p := range l.Masses {
		s = s*r + float64(p)
	}
	return math.Log(s) + order*(l.Origin+float64(len(l.Masses)-1)*step)
}

// transform returns the discrete Fourier transform of x; the length is a power of two.
func transform(x []complex128) []complex128 {
	n := len(x)
	if n == 1 {
		return x
	}
	even, odd, out := make([]complex128, n/2), make([]complex128, n/2), make([]complex128, n)
	for j := range even {
		even[j], odd[j] = x[2*j], x[2*j+1]
	}
	even, odd = transform(even), transform(odd)
	for j, u := range even {
		sin, cos := math.Sincos(-2 * math.Pi * float64(j) / float64(n))
		v := odd[j] * complex(cos, sin)
		out[j], out[j+n/2] = u+v, u-v
	}
	return out
}

func power(z complex128, n uint64) complex128 {
	if n == 0 {
		return 1
	}
	r := power(z*z, n/2)
	if n%2 == 1 {
		r *= z
	}
	return r
}
