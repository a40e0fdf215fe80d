package recipe_test

import (
	"bytes"
	"errors"
	"math/big"
	"slices"
	"testing"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dp/release"
	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"

	"github.com/starling-agg/starling/dp/certificate"
)

// Every recipe that claims something has a certificate; others say that they have none,
// and take none.
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
		if claim := r.Claim.(ApproxDP); proved.Epsilon > claim.Epsilon.Float() || proved.Delta > claim.Delta.Float() {
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

// proofsOf are the proofs of a certificate.
func proofsOf(t *testing.T, b []byte) (proofs [][]byte) {
	t.Helper()
	for s := cryptobyte.String(b); !s.Empty(); {
		var proof cryptobyte.String
		if !s.ReadUint24LengthPrefixed(&proof) {
			t.Fatalf("%x is no certificate", b)
		}
		proofs = append(proofs, proof)
	}
	return proofs
}

func wrapped(t *testing.T, proofs ...[]byte) []byte {
	t.Helper()
	b, err := AppendCertificate(nil, proofs...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// changed is a certificate of which one proof says something else.
func changed(t *testing.T, b []byte, which int, change func(*certificate.Certificate)) []byte {
	t.Helper()
	proofs := proofsOf(t, b)
	var c certificate.Certificate
	err := c.UnmarshalBinary(proofs[which])
	if err == nil {
		change(&c)
		proofs[which], err = c.MarshalBinary()
	}
	if err != nil {
		t.Fatal(err)
	}
	return wrapped(t, proofs...)
}

// A certificate of anything else is refused, however true it is.
func TestCheckCertificateRefuses(t *testing.T) {
	r := doctor()
	good := mustCertify(t, r)
	claims := func(change func(*certificate.Certificate)) []byte { return changed(t, good, 0, change) }
	term := func(change func(*release.Term)) []byte {
		return claims(func(c *certificate.Certificate) { change(&c.Terms[0]) })
	}
	for name, tc := range map[string]struct {
		b       []byte
		byProof bool // refused by package certificate
	}{
		"no bytes":         {nil, false},
		"half of it":       {good[:len(good)/2], false},
		"a byte less":      {good[:len(good)-1], false},
		"a byte more":      {append(slices.Clone(good), 0), false},
		"twice":            {slices.Concat(good, good), false},
		"no proof":         {[]byte{0, 0, 0}, true},
		"a longer proof":   {wrapped(t, append(slices.Clone(proofsOf(t, good)[0]), 0)), true},
		"a smaller claim":  {claims(func(c *certificate.Certificate) { c.Epsilon *= .5 }), true},
		"a smaller delta":  {claims(func(c *certificate.Certificate) { c.Delta *= 1e-25 }), true},
		"a larger epsilon": {claims(func(c *certificate.Certificate) { c.Epsilon *= 3 }), false},
		"a larger delta":   {claims(func(c *certificate.Certificate) { c.Delta *= 2 }), false},
		"zero-out":         {claims(func(c *certificate.Certificate) { c.Neighbours = release.ZeroOut }), false},
		"no term":          {claims(func(c *certificate.Certificate) { c.Terms = nil }), false},
		"a term more":      {claims(func(c *certificate.Certificate) { c.Terms = append(c.Terms, c.Terms[0]) }), false},
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
	// One round's certificate is none for two, and one vector's is none for a vector of
	// twice the norm.
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
	if noise, err = noise.Stronger(1e-3); err != nil { // as New does
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
			b := changed(t, good, 0, lie)
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
	// Vectors: the servers' noise on a sample of them, and the devices' own, of all and
	// of a sample.
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
		// The next smaller claim of one digit is not proved by the same bytes, nor by any
		// if it is impossible.
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

// What is calibrated to a claim, or claims what was computed, is proved: exactly, not
// nearly.
func TestWhatIsMadeHasACertificate(t *testing.T) {
	made := func(o account.Options) {
		t.Helper()
		o.Name, o.Leader, o.Helper, o.MinBatch = "Made", "https://leader.example/", "https://helper.example/", 1000
		r, err := account.New(o)
		if err != nil {
			t.Errorf("%v of %v at epsilon %v: %v", o.Kind, o.Query, o.Epsilon, err)
			return
		}
		l, err := r.CheckCertificate(mustCertify(t, r))
		claim := r.Claim.(ApproxDP).Epsilon
		g, err2 := account.Guarantee(r)
		if err != nil || err2 != nil || new(big.Rat).SetFloat64(l.Epsilon).Cmp(claim.Rat()) > 0 || g.Epsilon > l.Epsilon*(1+1e-9) || l.Epsilon > g.Epsilon*(1+1e-3) {
			t.Errorf("%v of %v: claims %v, computed %v, proved %v: %v %v", r.Noise, o.Query, claim, g.Epsilon, l.Epsilon, err, err2)
		}
	}
	for _, kind := range []account.NoiseKind{account.GaussianNoise, account.LaplaceNoise} {
		for _, q := range []Query{Count{}, Sum{Max: 1000}, Histogram{Length: 21}, Multihot{Length: 40, MaxWeight: 3}, SumVec{Length: 100, Max: 255},
			L1BoundSum{Length: 30, Max: 15}, L1BoundSum{Length: 1, Max: 3}, Quantiles{Max: 99, Width: 1, Branching: 5}, GroupSums{Min: -5, Max: 20, Groups: 4}, tree(t, "a(b,c),d(e(f,g),h)")} {
			for _, epsilon := range []Decimal{{1, 1}, {1, 0}, {4, 0}} {
				if _, sum := q.(SumVec); sum && kind == account.LaplaceNoise {
					continue
				}
				made(account.Options{Query: q, Kind: kind, Epsilon: epsilon})
				made(account.Options{Query: q, Kind: kind, Epsilon: epsilon, Rounds: 3})
			}
		}
	}
	made(account.Options{Query: Sum{Max: 10}, Noise: DiscreteLaplace{Scale: Rational{Num: 10, Den: 1}}, Rounds: 8}) // epsilon 8, to the last bit
	made(account.Options{Query: Histogram{Length: 4}, Randomizer: KRR{Decimal{775, 2}}, Rounds: 32})
	made(account.Options{Query: Multihot{Length: 9}, Randomizer: RAPPOR{Decimal{2, 0}}, Rounds: 5})
}
