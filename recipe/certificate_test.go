package recipe

import (
	"errors"
	"testing"

	"github.com/starling-agg/starling/dp/certificate"
)

// Every recipe whose servers add all the noise has a certificate; others say that they have none, and take none.
func TestCertify(t *testing.T) {
	made, stolen := 0, mustCertify(t, doctor())
	for name, r := range variants() {
		b, err := r.Certify()
		plain := r.Noise != NoNoise{} && r.Randomizer == NoRandomizer{} && !r.sampled()
		if !plain {
			if !errors.Is(err, ErrNoCertificate) || !errors.Is(check(r, stolen), ErrNoCertificate) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		made++
		proved, err := r.CheckCertificate(b)
		if err != nil {
			t.Errorf("%s: its own certificate: %v", name, err)
		}
		g, err := r.Guarantee()
		if err != nil {
			t.Fatal(err)
		}
		if claim := r.Claim.(ApproxDP); proved.Epsilon < g.Epsilon*(1-1e-9) || proved.Epsilon > claim.Epsilon.Float()*(1+CertificateRoom) ||
			proved.Delta > claim.Delta.Float() {
			t.Errorf("%s: proves %v, the recipe gives %v", name, proved, g.Loss)
		}
	}
	if made < 10 {
		t.Errorf("only %d certificates", made)
	}
}

func check(r *Recipe, b []byte) error {
	_, err := r.CheckCertificate(b)
	return err
}

func mustCertify(t *testing.T, r *Recipe) []byte {
	t.Helper()
	b, err := r.Certify()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A certificate of anything else is refused, however true it is.
func TestCheckCertificateRefuses(t *testing.T) {
	r := doctor()
	good := mustCertify(t, r)
	changed := func(change func(*certificate.Certificate)) []byte {
		var c certificate.Certificate
		if err := c.UnmarshalBinary(good); err != nil {
			t.Fatal(err)
		}
		change(&c)
		b, err := c.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	term := func(change func(*certificate.Term)) []byte {
		return changed(func(c *certificate.Certificate) { change(&c.Terms[0]) })
	}
	for name, tc := range map[string]struct {
		b       []byte
		byProof bool // refused by package certificate
	}{
		"no bytes":         {nil, true},
		"a byte more":      {append(append([]byte(nil), good...), 0), true},
		"a smaller claim":  {changed(func(c *certificate.Certificate) { c.Epsilon *= .9 }), true},
		"a smaller delta":  {changed(func(c *certificate.Certificate) { c.Delta *= .5 }), true},
		"a larger epsilon": {changed(func(c *certificate.Certificate) { c.Epsilon *= 3 }), false},
		"a larger delta":   {changed(func(c *certificate.Certificate) { c.Delta *= 2 }), false},
		"zero-out":         {changed(func(c *certificate.Certificate) { c.Neighbours = certificate.ZeroOut }), false},
		"no term":          {changed(func(c *certificate.Certificate) { c.Terms = nil }), false},
		"a term more":      {changed(func(c *certificate.Certificate) { c.Terms = append(c.Terms, c.Terms[0]) }), false},
		"more noise":       {term(func(t *certificate.Term) { t.Num *= 2 }), false},
		"two servers":      {term(func(t *certificate.Term) { t.Honest = 2 }), false},
		"one coordinate":   {term(func(t *certificate.Term) { t.Coordinates = 1 }), false},
		"a sample":         {term(func(t *certificate.Term) { t.Sampling, t.Rate = certificate.FixedSample, .01 }), false},
		"another noise":    {term(func(t *certificate.Term) { t.Mechanism = certificate.DiscreteLaplace }), false},
		"no round":         {term(func(t *certificate.Term) { t.Count = 0 }), false},
	} {
		err := check(r, tc.b)
		var refused *CertificateError
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var proof *certificate.Error
		if errors.As(err, &proof) != tc.byProof {
			t.Errorf("%s: %v", name, err)
		}
	}
	// One round's certificate is none for two, and one vector's is none for a vector of twice the norm.
	two := doctor()
	claim := two.Claim.(ApproxDP)
	claim.Rounds, claim.Epsilon = 2, Decimal{3, 0}
	two.Claim = claim
	if err := check(two, good); err == nil {
		t.Error("two rounds pass for one")
	}
	vector := doctor()
	vector.Query = vectorVariants()["vector pine32"].Query
	noise, err := Calibrate(vector.Query, GaussianNoise, Decimal{1, 0}, Decimal{1, 9}, 1)
	if err != nil {
		t.Fatal(err)
	}
	vector.Noise, vector.Claim = noise, ApproxDP{Epsilon: Decimal{1, 0}, Delta: Decimal{1, 9}, Rounds: 1, HonestServers: 1}
	b := mustCertify(t, vector)
	q := vector.Query.(Vector)
	q.Bound++
	vector.Query = q
	if err := check(vector, b); err == nil {
		t.Error("a vector of a larger norm passes")
	}
}

// Noise that is calibrated to a claim leaves enough of it for a certificate.
func TestCalibratedNoiseHasACertificate(t *testing.T) {
	for _, kind := range []NoiseKind{GaussianNoise, LaplaceNoise} {
		for _, q := range []Query{Count{}, Sum{Max: 1000}, Histogram{Length: 21}, Multihot{Length: 40, MaxWeight: 3}, SumVec{Length: 100, Max: 255}} {
			for _, epsilon := range []Decimal{{1, 1}, {1, 0}, {4, 0}} {
				if _, sum := q.(SumVec); sum && kind == LaplaceNoise {
					continue
				}
				r := doctor()
				noise, err := Calibrate(q, kind, epsilon, Decimal{1, 9}, 1)
				if err != nil {
					t.Fatal(err)
				}
				r.Query, r.Noise, r.Claim = q, noise, ApproxDP{Epsilon: epsilon, Delta: Decimal{1, 9}, Rounds: 1, HonestServers: 1}
				_, err = r.Certify()
				// Several coordinates of Laplace noise need laws on a grid, which is coarser than the calibration.
				_, one := q.(Count)
				_, other := q.(Sum)
				if err != nil && (kind == GaussianNoise || one || other) || err != nil && !errors.Is(err, ErrNoCertificate) {
					t.Errorf("%v of %v at epsilon %v: %v", kind, q, epsilon, err)
				}
			}
		}
	}
}
