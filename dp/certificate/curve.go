package certificate

import (
	"math"
	"slices"

	"github.com/starling-agg/starling/dp/release"
)

// A term is a release.Term with what the checker asks of it.
type term struct{ release.Term }

// A curve is a bound from above on the most of P(S) - e^l Q(S), at any loss l.
type curve func(l float64) float64

// fold turns many releases into one where they add up exactly, so that one formula answers.
func (t term) fold() term {
	if n := float64(t.Count); t.Sample == release.SampleEveryone && within(n, 1, release.MaxCount) {
		switch {
		case t.Family == release.FamilyGaussian:
			t.Mu, t.Count = t.Mu*math.Sqrt(n)*(1+4*ulp), 1
		case t.Family == release.FamilyZCDP:
			t.Mu, t.Count = t.Mu*n*(1+4*ulp), 1
		case t.Family == release.FamilyDiscreteGaussian && t.ratio() >= 4 && t.Coordinates <= release.MaxCount/t.Count:
			t.Coordinates, t.Count = t.Coordinates*t.Count, 1
		}
	}
	return t
}

// valid reports whether the parameters of a folded term are in range, and those of other
// mechanisms 0.
func (t term) valid(alone bool) bool {
	own := release.Term{Family: t.Family, Sample: t.Sample, Count: t.Count, Rate: t.Rate}
	mu, k, v, n, s := within(t.Mu, 1e-9, 100), float64(t.Coordinates), t.ratio(), float64(t.Reports), float64(t.Shift)
	ok := within(float64(t.Count), 1, release.MaxCount) && within(t.Rate, 1e-12, 1) && (t.Rate == 1) == (t.Sample == release.SampleEveryone) && t.Sample <= release.SampleFixed
	switch t.Family {
	case release.FamilyGaussian, release.FamilyLaplace, release.FamilyZCDP:
		own.Mu, ok = t.Mu, ok && mu && (t.Family != release.FamilyZCDP || alone && t.Count == 1 && t.Sample == release.SampleEveryone)
	case release.FamilyResponse:
		own.Mu, own.Fail, own.Answers, ok = t.Mu, t.Fail, t.Answers, ok && mu && within(t.Fail, 0, 0.999) && t.Answers >= 2 && t.Answers <= release.MaxAnswers
	case release.FamilyDiscreteLaplace:
		own.Num, own.Den, own.Shift, ok = t.Num, t.Den, t.Shift, ok && s <= release.MaxShift && within(s/v, 1e-9, 100)
	case release.FamilyDiscreteGaussian:
		own.Num, own.Den, own.Shift, own.Coordinates, own.Honest = t.Num, t.Den, t.Shift, t.Coordinates, t.Honest
		ok = ok && t.Honest > 0 && within(v, release.MinVariance, release.MaxVariance) && s <= release.MaxShift && within(k, 1, release.MaxCount) && (v >= 1 || k == 1 && t.Honest == 1) &&
			within(s*math.Sqrt(k/v), 1e-9, 100)
	case release.FamilyShuffled, release.FamilyCheckedIn:
		own.Mu, own.Fail, own.Answers, own.Reports, own.Local, own.Chance, own.Redraw = t.Mu, t.Fail, t.Answers, t.Reports, t.Local, t.Chance, t.Redraw
		ok = ok && alone && within(n, 1, release.MaxReports) && within(t.Local, 0.01, 32) && within(t.Chance, 1e-9, 1) && t.Answers <= 1<<20 && t.Answers != 1 &&
			(t.Answers == 0 || t.Family == release.FamilyShuffled && t.Chance == 1) && mu && within(t.Fail, 1e-25, 0.999) &&
			within(n*t.Redraw, 0, 0.5) && (t.Answers == 2 && 2*t.Redraw < t.Mu || t.Redraw == 0) &&
			(t.shuffled(t.Mu-2*t.Redraw)+n*t.Redraw*math.Exp(t.Mu))/(1-n*t.Redraw)*(1+8*ulp) <= t.Fail
	}
	if m, q := float64(t.Dummies), t.DummyRate; t.Sample == release.SamplePoisson && within(q, 1e-9, 0.999) && within(m, 1, release.MaxCount) && m*q <= 1<<30 {
		own.Dummies, own.DummyRate = t.Dummies, t.DummyRate
	}
	return ok && t.Term == own && t.Family >= release.FamilyGaussian && t.Family <= release.FamilyCheckedIn
}

func (t term) ratio() float64 { return float64(t.Num) / float64(t.Den) }

// lower returns a number below x by its rounding, and that of numbers up to y.
func lower(x, y float64) float64 { return x - 8*ulp*(1+math.Abs(x)+math.Abs(y)) }

// curve returns the curve of one release of a folded term.
func (t term) curve(added bool) curve {
	d, r, rest := t.everyone(), t.Rate, math.Log1p(-t.Rate)
	if t.Dummies > 0 {
		d = d.counted(float64(t.Dummies), t.DummyRate, added)
	}
	switch {
	case t.Sample == release.SampleFixed: // r D(ln(1 + (e^l - 1)/r)) for l >= 0, and its mirror image
		return mirrored(func(l float64) float64 { return r * d(lower(math.Log1p(min(math.Expm1(l)/r, 1e300)), 0)) * (1 + ulp) })
	case t.Sample == release.SamplePoisson && !added: // (1-r) Q + r P against Q: r D(ln(1 + (e^l - 1)/r)), or 1 - e^l
		return func(l float64) float64 {
			y := min(math.Expm1(l)/r, 1e300)
			if y <= -1 {
				return -math.Expm1(l) + 4*ulp
			} else if y < -0.5 { // the logarithm may be far off, but the value hardly moves
				return r * (d(lower(math.Log1p(y), 0)) + 16*ulp)
			}
			return r * d(lower(math.Log1p(y), 0)) * (1 + ulp)
		}
	case t.Sample == release.SamplePoisson: // Q against (1-r) Q + r P: f D(ln(e^l r/f)), f = 1 - e^l (1-r), or 0; it grows with f
		return func(l float64) float64 {
			f := -lower(math.Expm1(l+rest), math.Abs(l)-rest)
			if !(f > 0) { // also where e^l is no float64
				return 0
			}
			return f * d(lower(l+math.Log(r)-math.Log(f), math.Abs(l)-math.Log(r)-math.Log(f/2))) * (1 + 2*ulp)
		}
	}
	return d
}

// counted is the curve of the release beside the number of its records and of n others
// who each send a dummy with probability q. One more record makes x out of x - 1, so with
// losses -ln y(x), y(x) = (n+1-x)/x q/(1-q), it is the mean of d(l + ln y) over the x.
// Blocks of many go to both ends, so that the mean of y, in which d is convex, stays.
// Added, n - x takes the place of x.
func (d curve) counted(n, q float64, added bool) curve {
	odds, first, p := q/(1-q), 0.0, []float64(nil)
	if first, p = binomial(n, q); added {
		odds, first = (1-q)/q, n+1-first-float64(len(p))
		slices.Reverse(p)
	}
	size := (len(p) + 511) / 512
	var loss, mass []float64
	for i := 0; i < len(p); i += size {
		x0, x1 := first+1+float64(i), first+float64(min(i+size, len(p)))
		up, all := 0.0, 0.0
		for j, m := range p[i:min(i+size, len(p))] {
			all += m
			if x := x0 + float64(j); j > 0 { // the share of x1: (1/x0 - 1/x)/(1/x0 - 1/x1)
				up += m * (x - x0) / (x1 - x0) * x1 / x
			}
		}
		loss = append(loss, math.Log((n+1-x0)/x0*odds), math.Log((n+1-x1)/x1*odds))
		mass = append(mass, max(0, all-up), up*(1+4*ulp))
	}
	return func(l float64) float64 {
		sum := 1e-49
		for i, m := range mass {
			if y := loss[i]; m > 0 && y < -1e3 {
				sum += m
			} else if m > 0 {
				sum += m * d(lower(l+y, y))
			}
		}
		return sum * (1 + sumSlack)
	}
}

// mirrored extends a curve to negative losses, where P and Q are mirror images: D(-l) = 1 - e^-l + e^-l D(l).
func mirrored(above curve) curve {
	return func(l float64) float64 {
		if l >= 0 {
			return above(l) * (1 + 8*ulp)
		}
		return min(1, -math.Expm1(l)+math.Exp(l)*above(-l)+8*ulp)
	}
}

// everyone is the curve without sampling.
func (t term) everyone() curve {
	mu, failed, answers := t.Mu, t.Fail, float64(t.Answers)
	switch t.Family {
	case release.FamilyGaussian:
		return mirrored(func(l float64) float64 {
			a := l/mu - mu/2
			p, q := math.Erfc(a/math.Sqrt2)/2, math.Exp(min(l, 700))*math.Erfc((a+mu)/math.Sqrt2)/2
			return max(0, p-q) + (p+q)*16*ulp*(1+a*a+mu*mu+l) + 1e-300
		})
	case release.FamilyZCDP: // whatever a > 1 (Canonne, Kamath and Steinke 2020, proposition 12)
		return mirrored(func(l float64) float64 {
			best, at, low, high := 0.0, 0, -3000, 2000 // ln delta, which has one trough
			for step := 100; step > 0; step /= 10 {
				for i := low; i <= high; i += step {
					b := math.Exp(float64(i) / 200) // a - 1
					x := b*(mu*(1+b)-l) + b*math.Log(b/(1+b)) - math.Log1p(b)
					if x += 16 * ulp * (b*(mu*(1+b)+l+math.Abs(math.Log(b/(1+b)))) + math.Log1p(b)); x < best {
						best, at = x, i
					}
				}
				low, high = at-step, at+step
			}
			return math.Exp(best)
		})
	case release.FamilyLaplace:
		return mirrored(func(l float64) float64 { return max(0, -math.Expm1((l-mu)/2)+4*ulp*(1+mu)) })
	case release.FamilyDiscreteLaplace: // outcomes y <= j have the loss (shift - 2y)/scale > l
		rate, s := 1/t.ratio(), float64(t.Shift)
		return mirrored(func(l float64) float64 {
			if l >= rate*s*(1+8*ulp) {
				return 0
			}
			j, z := min(max(math.Ceil((s-l/rate)/2)-1, 0), s-1), 1+math.Exp(-rate)
			return 1 - math.Exp(-rate*(j+1))/z - math.Exp(l-rate*(s-j))/z + 16*ulp*(1+l+rate*s)
		})
	case release.FamilyDiscreteGaussian:
		return t.lattice()
	case release.FamilyShuffled, release.FamilyCheckedIn:
		answers = 2
	}
	return mirrored(func(l float64) float64 { // p (e^mu - e^l) with p = 1/(e^mu + answers - 1)
		return failed + (1-failed)*max(0, -math.Expm1(l-mu)/(1+(answers-1)*math.Exp(-mu))+4*ulp*(1+mu))
	})
}

// lattice is the curve of discrete Gaussian noise in k coordinates, each moved by s: the
// loss depends on the sum z of the noise, (k s^2 + 2 s z)/(2v), so with n the first z
// whose loss exceeds l it is P[Z >= n] - e^l P[Z >= n + k s]. The sum is itself a
// discrete Gaussian up to a factor e^(+-slop).
func (t term) lattice() curve {
	k, s, h, v := float64(t.Coordinates), float64(t.Shift), float64(t.Honest), t.ratio()*float64(t.Honest)
	of := func(n, v float64) float64 { // draws of variance v
		return 4.5 * min(n-1, 1) * (math.Exp(-math.Pi*math.Pi*v) + math.Exp(-math.Pi*math.Pi*v*4/3) + n*math.Exp(-math.Pi*math.Pi*v*3/2))
	}
	slop := of(k, v) + k*of(h, v/h)
	tail := smoothTail(math.Sqrt(k * v))
	if k*v <= 1<<18 {
		tail = summedTail(k * v)
	}
	d := mirrored(func(l float64) float64 {
		n, e := math.Floor(l*v/s-k*s/2)+1, math.Exp(min(l, 700))
		_, p := tail(n)
		q, _ := tail(n + k*s)
		return max(0, p-q*e) + 2*p*32*ulp*(1+l+k*s*s/v)
	})
	return func(l float64) float64 { return d(l-2*slop) * math.Exp(slop) * (1 + 4*ulp) }
}

// summedTail returns bounds on P[Z >= n] for Z discrete Gaussian of variance v, term by
// term.
func summedTail(v float64) func(n float64) (low, high float64) {
	first, tail := table(0, math.Inf(-1), math.Inf(1), func(z float64) float64 { return math.Exp(-(2*z + 1) / (2 * v)) })
	tail = append(tail, 0)
	for i := len(tail) - 2; i >= 0; i-- {
		tail[i] += tail[i+1]
	}
	return func(n float64) (float64, float64) {
		p := tail[int(min(max(n-first, 0), float64(len(tail)-1)))]
		return p * (1 - 64*ulp*float64(len(tail))), p + 1e-50
	}
}

// smoothTail returns bounds on P[Z >= n] for Z discrete Gaussian of a large deviation, by
// the midpoint rule: the integral of f over [n - 1/2, infinity) is off by at most 1/8 of
// the total variation of f' there.
func smoothTail(sigma float64) func(n float64) (low, high float64) {
	return func(n float64) (float64, float64) {
		a, variation := (n-0.5)/sigma, 2.43
		if a >= 1 {
			variation = a * math.Exp(-a*a/2)
		}
		p := math.Erfc(a/math.Sqrt2) / 2
		err := p*16*ulp*(1+a*a) + variation/(8*math.Sqrt(2*math.Pi)*sigma*sigma) + 1e-300
		return p - err, p + err
	}
}

// table returns the probabilities of first, first + 1, ... from a distribution of which
// ratio(x) = P(x+1)/P(x) is known and falls, rounded up. At most 1e-50 is left out on
// either side.
func table(mode, least, most float64, ratio func(x float64) float64) (first float64, p []float64) {
	for x, w := mode, 1.0; x > least && w > 1e-60; p = append(p, w) {
		x--
		w /= ratio(x)
	}
	slices.Reverse(p)
	first, p = mode-float64(len(p)), append(p, 1)
	for x, w := mode, 1.0; x < most && w > 1e-60; p = append(p, w) {
		w *= ratio(x)
		x++
	}
	scale := (1 + 32*ulp*float64(len(p))) / total(p)
	for i := range p {
		p[i] *= scale
	}
	return first, p
}

// binomial is the table of Bin(n, q).
func binomial(n, q float64) (first float64, p []float64) {
	return table(math.Floor((n+1)*q), 0, n, func(x float64) float64 { return (n - x) / (x + 1) * (q / (1 - q)) })
}

// Fewer bounds from above the probability that fewer than k of n do what each does with
// probability q.
func Fewer(k, n uint64, q float64) float64 {
	if !within(q, 0, 0.999) || !within(float64(n)*q, 0, 1<<36) {
		return 1
	}
	first, p := binomial(float64(n), q)
	return (total(p[:int(min(max(float64(k)-first, 0), float64(len(p))))]) + 1e-50) * (1 + tableSlack)
}

// shuffled bounds delta at epsilon l >= 0 of shuffled reports and of check-ins:
// docs/proofs/shuffling.md and check-ins.md.
func (t term) shuffled(l float64) float64 {
	n, e0, e, chance, total := float64(t.Reports), t.Local, math.Exp(l), t.Chance, 0.0
	if t.Family == release.FamilyCheckedIn { // the likelihood ratio s is a function of a binomial number
		added := 0.0
		for first, p := binomial(n, 1/(1+math.Exp(e0))); len(p) > 0; first, p = first+1, p[1:] {
			s := 1 - chance + chance/n*(first*math.Exp(e0)+(n-first)*math.Exp(-e0))
			total += p[0] * max(0, s*(1+16*ulp)-e)
			added += p[0] * max(0, 1-e*s*(1-16*ulp))
		}
		return max(total, added)*(1+checkInSlack) + 1e-30
	}
	// Of n messages C ~ Bin(n, q) look like either value, A ~ Bin(C, 1/2) of them like
	// the first; of the others, where there are more answers, R ~ Bin(n-C, other) like
	// none; and delta = scale (1+e^l) E max(0, A - C/2 - rho (C/2 + away + R/(e^e0+1))).
	q, other, others, rest := math.Exp(-e0)*(1-8*ulp), 0.0, -1.0, []block(nil)
	scale, rho := 2*chance/(n*q)*math.Tanh(e0/2), math.Tanh(l/2)/math.Tanh(e0/2)*(1-64*ulp)
	if k := float64(t.Answers); k > 0 {
		q, other, scale = 2/(math.Exp(e0)+k-1), (k-2)/(math.Exp(e0)+k-3), math.Expm1(e0)/n
	}
	away := (1 - chance) * n * q / (2 * chance)
	for _, c := range slices.Backward(blocks(n, q, 0)) { // A - C/2 grows with C in the convex order, and so does what it must exceed
		if n-c.most > others*(1+reuse) { // fewer others than there are raise the sum
			others, rest = n-c.most, blocks(n-c.most, other, c.least*(math.Exp(e0)+1)/2)
		}
		first, p := binomial(c.most, 0.5)
		tail, excess := make([]float64, len(p)+1), make([]float64, len(p)+1) // P(A >= a), and the mean of A - C/2 there
		for i := len(p) - 1; i >= 0; i-- {
			tail[i], excess[i] = tail[i+1]+p[i], excess[i+1]+p[i]*(first+float64(i)-c.most/2)
		}
		for _, r := range rest {
			w := rho * (c.least/2 + away + r.least/(math.Exp(e0)+1))
			i := int(min(max(c.most/2+w-first+1, 0), float64(len(p))))
			total += c.mass * r.mass * (excess[i] - w*tail[i]*(1-64*ulp*float64(len(p))))
		}
	}
	return scale*(1+e)*total*(1+blockSlack) + 1e-30
}

// A block is the probability of some numbers that are next to each other.
type block struct{ mass, least, most float64 }

// blocks cuts Bin(n, q) into blocks whose ends are within one part in 5,000, beside what
// is added to them.
func blocks(n, q, beside float64) (list []block) {
	for first, p := binomial(n, q); len(p) > 0; first, p = first+1, p[1:] {
		if k := len(list) - 1; k >= 0 && first < list[k].least+2e-4*(list[k].least+beside) {
			list[k].mass, list[k].most = list[k].mass+p[0], first
		} else {
			list = append(list, block{p[0], first, first})
		}
	}
	return list
}
