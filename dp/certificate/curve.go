package certificate

import "math"

// fold turns many releases into one where they add up exactly, so that one formula answers.
func (t Term) fold() Term {
	if t.Sampling != Everyone || !within(float64(t.Count), 1, 1<<40) {
		return t
	}
	switch {
	case t.Mechanism == Gaussian:
		t.Mu *= math.Sqrt(float64(t.Count)) * (1 + 4*ulp)
	case t.Mechanism == ZCDP:
		t.Mu *= float64(t.Count) * (1 + 4*ulp)
	case t.Mechanism == DiscreteGaussian && t.ratio() >= 4 && t.Coordinates <= 1<<40/t.Count:
		t.Coordinates *= t.Count
	default:
		return t
	}
	t.Count = 1
	return t
}

// valid reports whether the parameters of a folded term are in range, and those of other mechanisms 0.
func (t Term) valid() bool {
	ok, mu := false, within(t.Mu, 1e-9, 100) && t.Fail == 0 && t.Answers == 0
	ratio := t.Num > 0 && t.Den > 0 && within(float64(t.Shift), 1, 1<<40) && t.Mu == 0 && t.Fail == 0 && t.Answers == 0
	grid := t.Num == 0 && t.Den == 0 && t.Shift == 0 && t.Coordinates == 0 && t.Honest == 0
	k, v := float64(t.Coordinates), t.ratio()
	switch t.Mechanism {
	case Gaussian, Laplace:
		ok = mu && grid
	case ZCDP:
		ok = mu && grid && t.Count == 1 && t.Sampling == Everyone
	case RandomizedResponse:
		ok = grid && within(t.Mu, 1e-9, 100) && within(t.Fail, 0, 0.999) && t.Answers >= 2 && t.Answers <= 1<<32
	case DiscreteLaplace:
		ok = ratio && t.Coordinates == 0 && t.Honest == 0 && within(float64(t.Shift)/v, 1e-9, 100)
	case DiscreteGaussian:
		ok = ratio && t.Honest > 0 && within(v, 0.25, 1<<62) && within(k, 1, 1<<40) && (v >= 4 || k == 1 && t.Honest == 1) &&
			within(float64(t.Shift)*math.Sqrt(k/v), 1e-9, 100)
	}
	return ok && within(float64(t.Count), 1, 1<<40) && within(t.Rate, 1e-12, 1) && (t.Rate == 1) == (t.Sampling == Everyone) &&
		t.Sampling <= FixedSample
}

func (t Term) ratio() float64 { return float64(t.Num) / float64(t.Den) }

// A profile bounds a curve: its value is at most value + err, which is at most 2 err above the truth.
type profile func(l float64) (value, err float64)

// curve returns an upper bound on the curve of one release of a folded term: the most of P(S) - e^l Q(S), at any loss l.
func (t Term) curve(added bool) func(l float64) float64 {
	d := t.everyone()
	r := t.Rate
	switch {
	case t.Sampling == FixedSample: // r D(ln(1 + (e^l - 1)/r)) for l >= 0, and its mirror image
		base := d
		d = mirrored(func(l float64) (float64, float64) {
			x := math.Log1p(math.Expm1(l) / r)
			v, e := base(x - 8*ulp*(1+x))
			return r * v, r * e
		})
	case t.Sampling == PoissonSample && !added: // (1-r) Q + r P against Q: r D(ln(1 + (e^l - 1)/r)), or 1 - e^l
		base := d
		d = func(l float64) (float64, float64) {
			y := math.Expm1(l) / r
			if y <= -1 {
				return -math.Expm1(l), 4 * ulp
			}
			x := math.Log1p(y)
			if y < -0.5 { // x may be far off, but the value hardly moves
				v, e := base(x)
				return r * v, r*e + 8*ulp*r
			}
			v, e := base(x - 8*ulp*(1+math.Abs(x)))
			return r * v, r * e
		}
	case t.Sampling == PoissonSample: // Q against (1-r) Q + r P: f D(ln(e^l r/f)), f = 1 - e^l (1-r), or 0; it grows with f
		base := d
		d = func(l float64) (float64, float64) {
			rest := math.Log1p(-r)
			f := -math.Expm1(l+rest) + 8*ulp*(1+math.Abs(l)+math.Abs(rest))
			if f <= 0 {
				return 0, 0
			}
			x := l + math.Log(r) - math.Log(f)
			v, e := base(x - 8*ulp*(1+math.Abs(l)+math.Abs(math.Log(r))+math.Abs(math.Log(f))))
			return f * v, f*e + 2*ulp*f*v
		}
	}
	return func(l float64) float64 {
		v, e := d(l)
		return (v + e) * (1 + 8*ulp)
	}
}

// mirrored extends a curve to negative losses, where P and Q are mirror images: D(-l) = 1 - e^-l + e^-l D(l).
func mirrored(above profile) profile {
	return func(l float64) (float64, float64) {
		if l >= 0 {
			return above(l)
		}
		v, e := above(-l)
		return -math.Expm1(l) + math.Exp(l)*v, math.Exp(l)*e + 4*ulp
	}
}

// everyone is the curve without sampling.
func (t Term) everyone() profile {
	mu := t.Mu
	switch t.Mechanism {
	case Gaussian:
		return mirrored(func(l float64) (float64, float64) {
			a := l/mu - mu/2
			p, q := math.Erfc(a/math.Sqrt2)/2, math.Exp(min(l, 700))*math.Erfc((a+mu)/math.Sqrt2)/2
			return max(0, p-q), (p+q)*16*ulp*(1+a*a+mu*mu+l) + 1e-300
		})
	case ZCDP: // whatever a > 1 (Canonne, Kamath and Steinke 2020, proposition 12)
		return mirrored(func(l float64) (float64, float64) {
			best := 0.0 // ln delta
			for i := -3000; i <= 2000; i++ {
				b := math.Exp(float64(i) / 200) // a - 1
				x := b*(mu*(1+b)-l) + b*math.Log(b/(1+b)) - math.Log1p(b)
				best = min(best, x+16*ulp*(b*(mu*(1+b)+l+math.Abs(math.Log(b/(1+b))))+math.Log1p(b)))
			}
			return math.Exp(best), 0
		})
	case Laplace:
		return mirrored(func(l float64) (float64, float64) {
			if l >= mu {
				return 0, 0
			}
			return -math.Expm1((l - mu) / 2), 4 * ulp * (1 + mu)
		})
	case RandomizedResponse: // p (e^mu - e^l) with p = 1/(e^mu + answers - 1)
		return mirrored(func(l float64) (float64, float64) {
			if l >= mu {
				return t.Fail, 0
			}
			return t.Fail + (1-t.Fail)*-math.Expm1(l-mu)/(1+float64(t.Answers-1)*math.Exp(-mu)), 4 * ulp * (1 + mu)
		})
	case DiscreteLaplace: // outcomes y <= j have the loss (shift - 2y)/scale > l
		rate, s := 1/t.ratio(), float64(t.Shift)
		return mirrored(func(l float64) (float64, float64) {
			if l >= rate*s*(1+8*ulp) {
				return 0, 0
			}
			j := min(max(math.Ceil((s-l/rate)/2)-1, 0), s-1)
			z := 1 + math.Exp(-rate)
			return 1 - math.Exp(-rate*(j+1))/z - math.Exp(l-rate*(s-j))/z, 16 * ulp * (1 + l + rate*s)
		})
	}
	return t.lattice()
}

// lattice is the curve of discrete Gaussian noise in k coordinates, each moved by s: the loss depends on the sum z of the noise,
// (k s^2 + 2 s z)/(2v), so with n the first z whose loss exceeds l it is P[Z >= n] - e^l P[Z >= n + k s]. The sum is itself a
// discrete Gaussian up to a factor e^(+-slop).
func (t Term) lattice() profile {
	k, s, v := float64(t.Coordinates), float64(t.Shift), t.ratio()*float64(t.Honest)
	slop := 0.0
	if t.Coordinates > 1 || t.Honest > 1 {
		slop = 4e-17*(k+1) + 2e-33*k*float64(t.Honest)
	}
	tail := smoothTail(math.Sqrt(k * v))
	if k*v <= 1<<18 {
		tail = summedTail(k * v)
	}
	d := mirrored(func(l float64) (float64, float64) {
		n := math.Floor(l*v/s-k*s/2) + 1
		p, pErr := tail(n)
		q, qErr := tail(n + k*s)
		e := math.Exp(min(l, 700))
		q = min(p, q*e)
		return p - q, pErr + e*qErr + (p+q)*32*ulp*(1+l+k*s*s/v)
	})
	return func(l float64) (float64, float64) {
		v, e := d(l - 2*slop)
		return v, e*(1+2*slop) + v*2*slop
	}
}

// summedTail returns P[Z >= n] for Z discrete Gaussian of variance v, term by term.
func summedTail(v float64) func(n float64) (p, err float64) {
	r := int(40*math.Sqrt(v)) + 2 // where e^(-z^2/2v) has underflowed
	tail := make([]float64, 2*r+2)
	for i := 2 * r; i >= 0; i-- {
		z := float64(i - r)
		tail[i] = tail[i+1] + math.Exp(-z*z/(2*v))
	}
	return func(n float64) (float64, float64) {
		p := tail[int(min(max(n+float64(r), 0), float64(2*r+1)))] / tail[0]
		return p, p*ulp*(4*float64(r)+1024) + 1e-300
	}
}

// smoothTail returns P[Z >= n] for Z discrete Gaussian of a large deviation, by the midpoint rule: the integral of f over
// [n - 1/2, infinity) is off by at most 1/8 of the total variation of f' there.
func smoothTail(sigma float64) func(n float64) (p, err float64) {
	return func(n float64) (float64, float64) {
		a := (n - 0.5) / sigma
		variation := 2.43
		if a >= 1 {
			variation = a * math.Exp(-a*a/2)
		}
		p := math.Erfc(a/math.Sqrt2) / 2
		return p, p*16*ulp*(1+a*a) + variation/(8*math.Sqrt(2*math.Pi)*sigma*sigma) + 1e-300
	}
}
