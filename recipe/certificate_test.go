package recipe_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/starling-agg/starling/dp/release"
	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"

	"github.com/starling-agg/starling/dp/certificate"
)

// Every recipe that claims something has a certificate; others say that they have none, and take none.
func TestCertify(t *testing.T) {
	made, stolen := 0, mustCertify(t, doctor())
	for name, r := range variants() {
		b, err := account.Certify(r)
		if r.Exact() {
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
		if claim := r.Claim.(ApproxDP); proved.Epsilon > claim.Epsilon.Float()*(1+CertificateRoom) || proved.Delta > claim.Delta.Float() {
			t.Errorf("%s: proves %v", name, proved)
		}
		t.Logf("%s: %d bytes, %v", name, len(b), proved)
	}
	if made < 17 {
		t.Errorf("only %d certificates", made)
	}
}

func check(r *Recipe, b []byte) error {
	_, err := r.CheckCertificate(b)
	return err
}

func mustCertify(t *testing.T, r *Recipe) []byte {
	t.Helper()
	b, err := account.Certify(r)
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
	term := func(change func(*release.Term)) []byte {
		return changed(func(c *certificate.Certificate) { change(&c.Terms[0]) })
	}
	for name, tc := range map[string]struct {
		b       []byte
		byProof bool // refused by package certificate
	}{
		"no bytes":         {nil, true},
		"a byte more":      {append(append([]byte(nil), good...), 0), true},
		"a smaller claim":  {changed(func(c *certificate.Certificate) { c.Epsilon *= .5 }), true},
		"a smaller delta":  {changed(func(c *certificate.Certificate) { c.Delta *= 1e-25 }), true},
		"a larger epsilon": {changed(func(c *certificate.Certificate) { c.Epsilon *= 3 }), false},
		"a larger delta":   {changed(func(c *certificate.Certificate) { c.Delta *= 2 }), false},
		"zero-out":         {changed(func(c *certificate.Certificate) { c.Neighbours = release.ZeroOut }), false},
		"no term":          {changed(func(c *certificate.Certificate) { c.Terms = nil }), false},
		"a term more":      {changed(func(c *certificate.Certificate) { c.Terms = append(c.Terms, c.Terms[0]) }), false},
		"more noise":       {term(func(t *release.Term) { t.Num *= 2 }), false},
		"two servers":      {term(func(t *release.Term) { t.Honest = 2 }), false},
		"one coordinate":   {term(func(t *release.Term) { t.Coordinates = 1 }), false},
		"a sample":         {term(func(t *release.Term) { t.Sample, t.Rate = release.SampleFixed, .01 }), false},
		"another noise":    {term(func(t *release.Term) { t.Family = release.FamilyDiscreteLaplace }), false},
		"no round":         {term(func(t *release.Term) { t.Count = 0 }), false},
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
	noise, err := account.Calibrate(vector.Query, account.GaussianNoise, Decimal{1, 0}, Decimal{1, 9}, 1)
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

// Of coins, dummies and shuffled reports no part may be better than the recipe's.
func TestCheckCertificateRefusesOtherCoins(t *testing.T) {
	lies := map[string]func(*certificate.Certificate){
		"a smaller claim":         func(c *certificate.Certificate) { c.Epsilon *= .01 },
		"a delta with the misses": func(c *certificate.Certificate) { c.Delta *= 1.01 },
		"a rarer coin":            func(c *certificate.Certificate) { c.Terms[0].Rate *= .99 },
		"no coin":                 func(c *certificate.Certificate) { c.Terms[0].Sample, c.Terms[0].Rate = release.SampleEveryone, 1 },
		"more senders of dummies": func(c *certificate.Certificate) { c.Terms[0].Dummies += c.Terms[0].Dummies / 20 },
		"more dummies":            func(c *certificate.Certificate) { c.Terms[0].DummyRate *= 1.01 },
		"no dummies":              func(c *certificate.Certificate) { c.Terms[0].Dummies = 0 },
		"a hidden count":          func(c *certificate.Certificate) { c.Terms[0].Dummies, c.Terms[0].DummyRate = 0, 0 },
		"replace-one":             func(c *certificate.Certificate) { c.Neighbours = release.ReplaceOne },
		"more reports":            func(c *certificate.Certificate) { c.Terms[0].Reports++ },
		"a more private report":   func(c *certificate.Certificate) { c.Terms[0].Local *= .99 },
		"fewer answers":           func(c *certificate.Certificate) { c.Terms[0].Answers ^= 1 },
		"shuffling that does more": func(c *certificate.Certificate) {
			if c.Terms[0].Family != release.FamilyShuffled {
				c.Terms = nil
			} else {
				c.Terms[0].Mu *= .8
			}
		},
		"a check-in":        func(c *certificate.Certificate) { c.Terms[0].Family = release.FamilyCheckedIn },
		"more noise":        func(c *certificate.Certificate) { c.Terms[0].Num++ },
		"fewer drawn again": func(c *certificate.Certificate) { c.Terms[0].Redraw /= 2 },
		"a shorter distance": func(c *certificate.Certificate) {
			if c.Terms[0].Family == release.FamilyGaussian {
				c.Terms[0].Mu *= 1 - 1e-8
			}
		},
	}
	all := sampledVariants()
	all["vector with noise"] = variants()["vector with noise"]
	for _, of := range []string{"needles", "donation time", "krr", "rappor", "vector with noise"} {
		r := all[of]
		good := mustCertify(t, r)
		for name, lie := range lies {
			var c certificate.Certificate
			if err := c.UnmarshalBinary(good); err != nil {
				t.Fatal(err)
			}
			lie(&c)
			b, err := c.MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			if err := check(r, b); !bytes.Equal(b, good) && !errors.As(err, new(*CertificateError)) {
				t.Errorf("%s: %s: %v", of, name, err)
			}
		}
	}
	// Another recipe's certificate, however little it differs.
	good := mustCertify(t, needles())
	for name, change := range map[string]func(*Recipe){
		"fewer senders":     func(r *Recipe) { r.Dummies.Senders -= 5000 },
		"a larger rate":     func(r *Recipe) { r.Participation = Importance{Rational{Num: 1, Den: 100}, Rational{Num: 51, Den: 100}} },
		"fewer dummies":     func(r *Recipe) { r.Dummies.Rate = Rational{Num: 1, Den: 130} },
		"some cover":        func(r *Recipe) { r.Cover.Rate = Rational{Num: 9, Den: 10} },
		"less noise":        func(r *Recipe) { r.Noise = DiscreteGaussian{Variance: Rational{Num: 17, Den: 2}, Share: DrawsAll} },
		"another round":     func(r *Recipe) { c := r.Claim.(ApproxDP); c.Rounds++; r.Claim = c },
		"a stronger claim":  func(r *Recipe) { c := r.Claim.(ApproxDP); c.Epsilon = Decimal{9, 1}; r.Claim = c },
		"everybody's noise": func(r *Recipe) { r.Randomizer, r.Noise = RAPPOR{Decimal{1, 0}}, NoNoise{} },
	} {
		r := needles()
		change(r)
		if err := check(r, good); !errors.As(err, new(*CertificateError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Recipes as account.New makes them, and those of several rounds.
func TestSampledRecipesHaveCertificates(t *testing.T) {
	o := account.Options{
		Name: "Coins", Query: Multihot{Length: 12, MaxWeight: 1}, Leader: "https://leader.example/", Helper: "https://helper.example/",
		MinBatch: 500, Epsilon: Decimal{1, 0}, Delta: Decimal{1, 7}, Rate: &Rate{Devices: 200000, Units: 10},
		Participation: Importance{Rational{Num: 1, Den: 100}, Rational{Num: 1, Den: 2}},
		Relay:         &Relay{URL: "https://relay.example/", Gateway: "https://leader.example/gateway"},
	}
	calibrated, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	list := sampledVariants()
	list["calibrated"] = calibrated
	several := func(name string, rounds uint32, epsilon Decimal) {
		claim := list[name].Claim.(ApproxDP)
		claim.Rounds, claim.Epsilon = rounds, epsilon
		list[name].Claim = claim
	}
	several("bernoulli", 10, Decimal{65, 2})
	several("krr", 2, Decimal{2, 0})
	several("rappor", 3, Decimal{5, 1})
	several("krr of all", 3, Decimal{3, 0})
	list["donation time"].Noise = DiscreteLaplace{Rational{Num: 3, Den: 1}}
	// Vectors: the servers' noise on a sample of them, and the devices' own, of all and of a sample.
	vector, own := list["bernoulli with some cover"], variants()["vector with noise"]
	vector.Query, vector.Noise = vectorVariants()["vector pine32"].Query, DiscreteGaussian{Variance: Rational{Num: 1 << 24, Den: 1}, Share: DrawsAll}
	several("bernoulli with some cover", 2, Decimal{4, 0})
	list["vector with noise"] = own
	sample := *list["targeted"]
	sample.Targeting, sample.Query, sample.Randomizer, sample.Noise, sample.MinBatch = nil, own.Query, own.Randomizer, own.Noise, own.MinBatch
	list["sample with noise"] = &sample
	several("sample with noise", 1, Decimal{4, 0})
	for _, name := range []string{"calibrated", "bernoulli", "krr", "rappor", "krr of all", "donation time", "bernoulli with some cover",
		"vector with noise", "sample with noise"} {
		b, err := account.Certify(list[name])
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		// The next smaller claim of one digit is not proved by the same bytes, nor by any if it is impossible.
		claim := list[name].Claim.(ApproxDP)
		claim.Epsilon = Decimal{1, 2}
		list[name].Claim = claim
		if err := check(list[name], b); !errors.As(err, new(*CertificateError)) {
			t.Errorf("%s: %v for a claim of 0.01", name, err)
		}
		if claim.Rounds == 1 {
			if b, err := account.Certify(list[name]); !errors.Is(err, ErrNoCertificate) {
				t.Errorf("%s: %d bytes, %v for a claim of 0.01", name, len(b), err)
			}
		}
	}
}

// Noise that is calibrated to a claim leaves enough of it for a certificate.
func TestCalibratedNoiseHasACertificate(t *testing.T) {
	for _, kind := range []account.NoiseKind{account.GaussianNoise, account.LaplaceNoise} {
		for _, q := range []Query{Count{}, Sum{Max: 1000}, Histogram{Length: 21}, Multihot{Length: 40, MaxWeight: 3}, SumVec{Length: 100, Max: 255},
			L1BoundSum{Length: 30, Max: 15}, L1BoundSum{Length: 1, Max: 3}} {
			for _, epsilon := range []Decimal{{1, 1}, {1, 0}, {4, 0}} {
				if _, sum := q.(SumVec); sum && kind == account.LaplaceNoise {
					continue
				}
				r := doctor()
				noise, err := account.Calibrate(q, kind, epsilon, Decimal{1, 9}, 1)
				if err != nil {
					t.Fatal(err)
				}
				r.Query, r.Noise, r.Claim = q, noise, ApproxDP{Epsilon: epsilon, Delta: Decimal{1, 9}, Rounds: 1, HonestServers: 1}
				_, err = account.Certify(r)
				// Several coordinates of Laplace noise need laws on a grid, which is coarser than the calibration.
				_, one := q.(Count)
				_, other := q.(Sum)
				_, response := q.(L1BoundSum) // one or two
				other = other || response
				if err != nil && (kind == account.GaussianNoise || one || other) || err != nil && !errors.Is(err, ErrNoCertificate) {
					t.Errorf("%v of %v at epsilon %v: %v", kind, q, epsilon, err)
				}
			}
		}
	}
}
