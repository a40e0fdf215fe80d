package recipe_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/starling-agg/starling/dp/certificate"
	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// fileOf is the file of a recipe.
func fileOf(t testing.TB, r *Recipe) []byte {
	t.Helper()
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Exact() {
		return b
	}
	c, err := account.Certify(r)
	if err != nil {
		t.Fatal(err)
	}
	return append(b, c...)
}

// kindsOfRounds are recipes of several rounds, each proved in another way.
func kindsOfRounds(t testing.TB) map[string]*Recipe {
	t.Helper()
	made := func(o account.Options) *Recipe {
		t.Helper()
		o.Name, o.Leader, o.Helper = "Rounds", "https://leader.example/", "https://helper.example/"
		r, err := account.New(o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	relay := &Relay{URL: "https://relay.example/", Gateway: "https://leader.example/gateway"}
	return map[string]*Recipe{
		"a formula": made(account.Options{Query: Histogram{Length: 12}, MinBatch: 500, Epsilon: Decimal{2, 0}, Rounds: 12}),
		"vectors":   made(account.Options{Query: vectorVariants()["vector pine32"].Query, MinBatch: 500, Epsilon: Decimal{2, 0}, Rounds: 5}),
		"laws":      made(account.Options{Query: Sum{Max: 10}, MinBatch: 500, Kind: account.LaplaceNoise, Epsilon: Decimal{2, 0}, Rounds: 6}),
		"coins": made(account.Options{Query: Multihot{Length: 12, MaxWeight: 1}, MinBatch: 500, Epsilon: Decimal{1, 0}, Rounds: 4, Relay: relay,
			Participation: Importance{Rational{Num: 1, Den: 100}, Rational{Num: 1, Den: 2}}, Rate: &Rate{Devices: 200000, Units: 10}}),
	}
}

// TestChargeOfRounds: what a certificate says of the first rounds is what the accountant
// says, to one part in 2,000, and never less but where its theorem is the better one.
func TestChargeOfRounds(t *testing.T) {
	for name, r := range kindsOfRounds(t) {
		c, err := OpenFile(fileOf(t, r))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		rounds, last := r.DecisionRounds(), Loss{}
		for k := uint32(1); k <= rounds; k++ {
			got, err1 := c.LossAfter(k)
			open, err2 := c.UnconditionalAfter(k)
			want, err3 := account.LossAfter(r, k)
			wantOpen, err4 := account.UnconditionalAfter(r, k)
			if err := errors.Join(err1, err2, err3, err4); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if off := got.Epsilon/want.Epsilon - 1; !(math.Abs(off) <= 5e-4) || got.Delta != want.Delta || got.Epsilon < last.Epsilon {
				t.Errorf("%s: after %d of %d rounds %v, the accountant says %v: %.2e off", name, k, rounds, got, want, off)
			}
			if off := open.Epsilon/wantOpen.Epsilon - 1; k == rounds && !(off > -1e-6 && off <= 1e-3) || off < -1e-6 {
				t.Errorf("%s: on no conditions after %d of %d rounds %v, the accountant says %v: %.2e off", name, k, rounds, open, wantOpen, off)
			}
			last = got
		}
		g, want := c.Guarantee(), must(account.Guarantee(r))
		if g.Loss != last || g.Epsilon > r.Claim.(ApproxDP).Epsilon.Float() || g.Neighbours != want.Neighbours || g.UnconditionalNeighbours != want.UnconditionalNeighbours ||
			!slices.Equal(g.Conditions, want.Conditions) || !slices.Equal(g.Assumptions, want.Assumptions) || g.Unit != want.Unit {
			t.Errorf("%s: %+v, the accountant says %+v", name, g, want)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestSecondProof: the proof of what is left on no conditions is checked like the first,
// may be left out, which proves nothing, and takes no other's place.
func TestSecondProof(t *testing.T) {
	r := needles()
	alone := must(r.Append(nil))
	proofs := proofsOf(t, mustCertify(t, r))
	if len(proofs) != 2 || len(proofs[1]) == 0 {
		t.Fatalf("%d proofs", len(proofs))
	}
	c, err := OpenFile(append(slices.Clone(alone), wrapped(t, proofs[0], nil)...))
	if err != nil || c.Guarantee().Unconditional.Finite() || !c.Guarantee().Finite() {
		t.Errorf("without the second proof: %v", err)
	}
	for name, b := range map[string][]byte{
		"the first alone":      wrapped(t, proofs[0]),
		"the first twice":      wrapped(t, proofs[0], proofs[0]),
		"the second twice":     wrapped(t, proofs[1], proofs[1]),
		"the wrong way round":  wrapped(t, proofs[1], proofs[0]),
		"no first":             wrapped(t, nil, proofs[1]),
		"three":                wrapped(t, proofs[0], proofs[1], proofs[1]),
		"a second of too much": wrapped(t, proofs[0], slices.Concat(proofs[1], proofs[1])),
		"a rarer sign of life": changed(t, mustCertify(t, r), 1, func(c *certificate.Certificate) { c.Terms[1].Mu /= 2 }),
		"no sign of life":      changed(t, mustCertify(t, r), 1, func(c *certificate.Certificate) { c.Terms = c.Terms[:1] }),
		"noise of two servers": changed(t, mustCertify(t, r), 1, func(c *certificate.Certificate) { c.Terms[0].Honest = 2 }),
		"a smaller epsilon":    changed(t, mustCertify(t, r), 1, func(c *certificate.Certificate) { c.Epsilon *= 0.9 }),
		"a larger delta":       changed(t, mustCertify(t, r), 1, func(c *certificate.Certificate) { c.Delta *= 2 }),
	} {
		if _, err := OpenFile(append(slices.Clone(alone), b...)); !errors.As(err, new(*CertificateError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSplitFile: the recipe ends where its bytes do, whatever follows; what cannot be cut
// is the recipe's to refuse.
func TestSplitFile(t *testing.T) {
	for name, r := range variants() {
		b := must(r.Append(nil))
		for _, behind := range []string{"", "x", string(b)} {
			alone, certificate, err := SplitFile(append(slices.Clone(b), behind...))
			if err != nil || string(alone) != string(b) || string(certificate) != behind {
				t.Errorf("%s with %d bytes behind: %d and %d, %v", name, len(behind), len(alone), len(certificate), err)
			}
		}
		for n := range b {
			if alone, certificate, err := SplitFile(b[:n]); err != nil || len(alone) != n || len(certificate) != 0 {
				t.Fatalf("%s: %d of %d bytes: %d and %d, %v", name, n, len(b), len(alone), len(certificate), err)
			}
		}
	}
	if _, _, err := SplitFile(make([]byte, MaxFileSize+1)); !errors.Is(err, ErrMalformed) {
		t.Errorf("a file that is too long: %v", err)
	}
}

// BenchmarkOpenFile opens recipes as a device does, and asks what the first round costs, as
// its ledger does.
func BenchmarkOpenFile(b *testing.B) {
	list := kindsOfRounds(b)
	list["shuffled"] = variants()["krr of all"]
	if list["shuffled"] == nil {
		list["shuffled"] = sampledVariants()["krr of all"]
	}
	list["needles"] = needles()
	for name, r := range list {
		b.Run(fmt.Sprint(name), func(b *testing.B) {
			text := fileOf(b, r)
			b.ReportMetric(float64(len(text)), "bytes")
			for b.Loop() {
				c, err := OpenFile(text)
				if err == nil {
					_, err = c.LossAfter(1)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
