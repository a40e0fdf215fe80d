package recipe_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/signed"
)

// rootOf is the root key of a party.
func rootOf(name string) (k signed.PublicKey) {
	seed := sha256.Sum256([]byte(name))
	copy(k[:], ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey))
	return k
}

func shuffledPath() Shuffled {
	return Shuffled{
		First:    Party{"https://first.example/", rootOf("first")},
		Second:   Party{"https://second.example/hop", rootOf("second")},
		Analyzer: Party{"https://analyzer.example/", rootOf("analyzer")},
		Mode:     CountedMode,
	}
}

func directPath() Direct {
	return Direct{Analyzer: Party{"https://analyzer.example/", rootOf("analyzer")}}
}

// made is a recipe of options for the given path, of a thousand contributions or more.
func made(p Path, o account.Options) *Recipe {
	o.Name, o.Path = "Visits", p
	if o.MinBatch == 0 {
		o.MinBatch = 1000
	}
	r, err := account.New(o)
	if err != nil {
		panic(fmt.Sprint(o.Query, o.Randomizer, err))
	}
	return r
}

// messageVariants covers every choice of the paths without proofs, and every shape of
// their bytes. They are made once: who changes one changes a copy.
var messageVariants = sync.OnceValue(func() map[string]*Recipe {
	one, relayed, alone := Decimal{1, 0}, shuffledPath(), directPath()
	relayed.Gateway, alone.Gateway = rootOf("gateway"), rootOf("gateway")
	relay := &Relay{URL: "https://relay.example/", Gateway: "https://first.example/gateway"}
	list := map[string]*Recipe{
		"modern": made(shuffledPath(), account.Options{Query: Sum{Max: 20}, Randomizer: Cloak{Kind: ModernCloak}, Epsilon: one}),
		"half honest": made(shuffledPath(), account.Options{Query: Mean{Max: 1 << 20}, Randomizer: Cloak{Kind: ModernCloak, Users: 5000, Honest: 500},
			Epsilon: one, Delta: Decimal{1, 6}}),
		"rounds":  made(relayed, account.Options{Query: Count{}, Randomizer: Cloak{Kind: ModernCloak}, Epsilon: one, Rounds: 12, Relay: relay}),
		"buckets": made(shuffledPath(), account.Options{Query: Histogram{Length: 11}, Randomizer: Cloak{Kind: ModernCloak}, Epsilon: one}),
		"parts": made(shuffledPath(), account.Options{Query: L1BoundSum{Length: 3, Max: 20}, Randomizer: Cloak{Kind: ModernCloak, Parts: 5},
			Epsilon: one}),
		"single user": made(shuffledPath(), account.Options{Query: Sum{Max: 20}, MinBatch: 3000, Randomizer: Cloak{Kind: SingleUserCloak, Users: 3300}, Epsilon: one}),
		"exact sum":   made(shuffledPath(), account.Options{Query: Sum{Max: 20}, Randomizer: Cloak{Kind: SumPreservingCloak}}),
	}
	for name, p := range map[string]Path{"shuffled ": shuffledPath(), "direct ": directPath()} {
		list[name+"krr"] = made(p, account.Options{Query: Histogram{Length: 5}, Randomizer: KRR{Epsilon0: Decimal{2, 0}}})
		list[name+"count"] = made(p, account.Options{Query: Count{}, Randomizer: KRR{Epsilon0: Decimal{3, 0}}, Rounds: 3})
		list[name+"pgr"] = made(p, account.Options{Query: Histogram{Length: 300}, Randomizer: PGR{Epsilon0: Decimal{15, 1}}})
		list[name+"rappor"] = made(p, account.Options{Query: Multihot{Length: 13}, Randomizer: RAPPOR{Epsilon0: Decimal{3, 0}}})
		list[name+"qa"] = made(p, account.Options{Query: GroupSums{Max: 20, Groups: 4}, Randomizer: QA{Epsilon0: Decimal{1, 0}, Asks: AskSizes}, Labels: []string{"a", "b", "c", "d"}})
		list[name+"qa of sums"] = made(p, account.Options{Query: GroupSums{Min: -5, Max: 5, Groups: 3}, Randomizer: QA{Epsilon0: Decimal{2, 0}, Levels: 5, Asks: AskSums}, Rounds: 2})
		list[name+"randomized group"] = made(p, account.Options{Query: GroupSums{Min: 2, Max: 300, Groups: 5}, Randomizer: RandomizedGroup{Epsilon0: Decimal{3, 0}, Asks: AskSizes}})
	}
	shown := relayed
	shown.Mode, shown.EpochLength = TokensMode, DefaultEpochLength
	tokens := account.Options{Relay: relay, Log: &Log{Origin: "log.example"},
		Tokens: &Tokens{Attester: "https://attester.example/", Key: rootOf("attester"), Attestation: Codes, MinCohort: 1000}}
	for name, o := range map[string]account.Options{
		"tokens":            {Query: Sum{Max: 20}, Randomizer: Cloak{Kind: ModernCloak}, Epsilon: one},
		"tokens krr":        {Query: Histogram{Length: 5}, Randomizer: KRR{Epsilon0: Decimal{2, 0}}},
		"tokens, one block": {Query: Histogram{Length: 3}, Randomizer: Cloak{Kind: ModernCloak, Block: 3}, Epsilon: one},
		"tokens, blocks":    {Query: Histogram{Length: 3}, Randomizer: Cloak{Kind: ModernCloak, Block: 1}, Epsilon: one},
	} {
		o.Relay, o.Log, o.Tokens = tokens.Relay, tokens.Log, tokens.Tokens
		list[name] = made(shown, o)
	}
	logged := directPath()
	list["logged"] = made(logged, account.Options{Query: Histogram{Length: 2}, Randomizer: KRR{Epsilon0: Decimal{2, 0}}, Log: &Log{Origin: "log.example"}})
	list["direct behind a relay"] = made(alone, account.Options{Query: Histogram{Length: 2}, Randomizer: KRR{Epsilon0: Decimal{2, 0}}, Relay: relay})
	list["calibrated qa"] = made(shuffledPath(), account.Options{Query: GroupSums{Max: 20, Groups: 4}, Randomizer: QA{Asks: AskSizes}, Epsilon: one})
	list["direct and pure"] = made(directPath(), account.Options{Query: Histogram{Length: 2}, Randomizer: KRR{Epsilon0: Decimal{2, 0}}, Pure: true})
	return list
})

// TestMessagePaths: every recipe of the paths without proofs is read from its bytes as it
// was written, has a certificate that a device checks, and is told with what it lacks first.
func TestMessagePaths(t *testing.T) {
	ids := map[ID]string{}
	for name, r := range messageVariants() {
		t.Run(name, func(t *testing.T) {
			if err := account.Validate(r); err != nil {
				t.Fatal(err)
			}
			b := mustAppend(t, r)
			got, err := Read(b)
			if err != nil {
				t.Fatal(err)
			}
			if again := mustAppend(t, got); !bytes.Equal(again, b) {
				t.Errorf("read and written again:\n got %x\nwant %x", again, b)
			}
			for n := range b {
				if _, err := Read(b[:n]); !errors.Is(err, ErrMalformed) {
					t.Fatalf("cut to %d bytes: %v", n, err)
				}
			}
			id, _ := r.ID()
			if ids[id] != "" {
				t.Errorf("has the id of %s", ids[id])
			}
			ids[id] = name
			if _, err := r.Task(); !isInvalid(err, "path") {
				t.Errorf("a DAP task: %v", err)
			}
			if d, err := r.Deployment(); err != nil || d == ([32]byte{}) {
				t.Errorf("no deployment: %v", err)
			}
			file := b
			if !r.Exact() {
				c, err := account.Certify(r)
				if err != nil {
					t.Fatal(err)
				}
				file = append(bytes.Clone(b), c...)
			}
			checked, err := OpenFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if _, config := checked.Task(); config != nil {
				t.Error("checked, it has a DAP task")
			}
			holdsAgainst(t, r, checked)
			var text strings.Builder
			if err := describe(r, &text); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(text.String(), "\n")
			if !strings.HasPrefix(lines[2], "Not given       - n") {
				t.Errorf("begins with %q", lines[:3])
			}
			for _, line := range lines {
				if len([]rune(line)) > 110 {
					t.Errorf("a line of %d characters", len([]rune(line)))
				}
			}
			for _, want := range []string{"\ntwo-server ", "\nshuffled ", "\ndirect ", "a contribution is ", "analyzer: "} {
				if !strings.Contains(text.String(), want) {
					t.Errorf("no %q in\n%s", want, text.String())
				}
			}
			for _, word := range []string{"leader", "helper"} {
				if n := strings.Count(text.String(), word); n > 1 {
					t.Errorf("speaks of a %s %d times:\n%s", word, n, text.String())
				}
			}
			js, err := marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			var said map[string]any
			if err := json.Unmarshal(js, &said); err != nil || said["task_id"] != nil || said["path"].(map[string]any)["params"] == nil {
				t.Errorf("%v: %s", err, js)
			}
		})
	}
}

func isInvalid(err error, field string) bool {
	invalid := new(InvalidError)
	return errors.As(err, &invalid) && invalid.Field == field
}

// holdsAgainst: the certificate's losses are those of the accountant, or a little above, and
// what is left on nobody's word is none for a cloak and the report's own for others.
func holdsAgainst(t *testing.T, r *Recipe, checked *Checked) {
	t.Helper()
	want, err := account.Guarantee(r)
	if err != nil {
		t.Fatal(err)
	}
	got := checked.Guarantee()
	within := func(what string, got, want Loss, slack float64) {
		if got.Finite() != want.Finite() || got.Finite() && (got.Epsilon < want.Epsilon || got.Epsilon > slack*want.Epsilon || got.Delta != want.Delta) {
			t.Errorf("%s: certified %v, computed %v", what, got, want)
		}
	}
	within("in all", got.Loss, want.Loss, 1.02)
	within("a round", got.PerRound, want.PerRound, 1.05)
	within("on no condition", got.Unconditional, want.Unconditional, 1.02)
	z, isCloak := r.Randomizer.(Cloak)
	_, direct := r.Path.(Direct)
	switch {
	case isCloak:
		// One round costs what the theorem says and no less; with half of the devices honest
		// it says nothing.
		if f, ok := want.Fallback(HalfAreDishonest); !r.Exact() && (!ok || f.Loss.Finite() || want.PerRound.Epsilon < z.Epsilon.FloatDown()*0.99 ||
			want.Loss.Epsilon < z.Epsilon.FloatDown()*0.99) {
			t.Errorf("of epsilon %s a round: %v, %v a round, half honest %+v", z.Epsilon, want.Loss, want.PerRound, f)
		}
		if want.Unconditional.Finite() || (len(want.Conditions) == 0) != (z.Kind == SumPreservingCloak) {
			t.Errorf("on no condition %v, on %v", want.Unconditional, want.Conditions)
		}
		said := fmt.Sprintf("at least %d of the devices in each batch follow the recipe", z.Honest)
		if z.Parts > 1 {
			said = fmt.Sprintf("at least %d of the devices in the %d batches of a round follow the recipe", z.Honest, z.Parts)
		}
		if !strings.Contains(
			strings.Join(append(want.Assumptions, want.Conditions...), "\n"), said) {
			t.Errorf("it says nothing of %d honest devices: %q", z.Honest, want.Assumptions)
		}
	case direct:
		if len(want.Conditions) != 0 || want.Unconditional != want.Loss || len(want.Fallbacks) != 0 {
			t.Errorf("of one report by itself: %+v", want)
		}
	default:
		if len(want.Conditions) != 1 || want.Unconditional.Epsilon < want.Epsilon {
			t.Errorf("among others: %+v", want)
		}
	}
	if z, ok := r.Randomizer.(RAPPOR); ok && (want.Unconditional.Epsilon < 1.999*z.Epsilon0.FloatDown() || want.UnconditionalNeighbours != release.ReplaceOne) {
		t.Errorf("whole reports of two bits that differ: %v, %v", want.Unconditional, want.UnconditionalNeighbours)
	}
	if shuffled, ok := r.Path.(Shuffled); ok && shuffled.Mode == CountedMode {
		for _, kind := range []FallbackKind{HopsCollude, FirstHopPads} {
			if f, ok := want.Fallback(kind); !ok || f.Loss.Finite() == isCloak {
				t.Errorf("%s: %+v, %v", kind, f, ok)
			}
		}
	}
	if _, ok := want.Fallback(ServersCollude); ok {
		t.Error("two servers collude, and there are none")
	}
	if r.Exact() {
		return
	}
	rounds := r.Claim.(ApproxDP).Rounds
	for n := uint32(1); n <= rounds; n++ {
		l, err := checked.LossAfter(n)
		more, err2 := account.LossAfter(r, n)
		if err != nil || err2 != nil || l.Epsilon < more.Epsilon || l.Epsilon > 1.05*more.Epsilon {
			t.Errorf("after %d of %d rounds: certified %v (%v), computed %v (%v)", n, rounds, l, err, more, err2)
		}
	}
}

// TestCloakProvesNothingMore: a certificate that says of a cloak on none of its conditions
// what it says on them is refused.
func TestCloakProvesNothingMore(t *testing.T) {
	r := messageVariants()["modern"]
	c, err := account.Certify(r)
	if err != nil {
		t.Fatal(err)
	}
	first := c[3 : len(c)-3] // the second is empty
	twice, err := AppendCertificate(nil, first, first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFile(append(mustAppend(t, r), twice...)); !errors.As(err, new(*CertificateError)) {
		t.Errorf("taken: %v", err)
	}
	again, err := AppendCertificate(nil, first, nil)
	if err != nil || !bytes.Equal(again, c) {
		t.Errorf("the certificate is not of these two proofs: %v", err)
	}
}

// Bytes of both paths and of the cloak, each line one field, for ever.
func TestMessagePathsGolden(t *testing.T) {
	party := func(url, name string) string {
		key := rootOf(name)
		return fmt.Sprintf("%04x", len(url)) + hexOf(url) + hex.EncodeToString(key[:])
	}
	claim := func(epsilon, delta, honest string) string {
		return "02" + "0018" + epsilon + delta + "02" + honest + "00000001"
	}
	gateway, attester := rootOf("gateway"), rootOf("attester")
	for name, want := range map[string][]string{
		"modern": {
			"01", "06" + hexOf("Visits"), "0000",
			"02" + "0008" + "0000000000000014", // sum to 20
			"08" + "002d" + "01" + "00000000000007d0" + "00000000000003e8" + "0000000000000001" + "00" + "00000000000003dd" + "0c" +
				"000a" + "0000000000ffffff", // modern, 2000 users, 1000 honest, epsilon 1, delta 989e-12, 10 messages modulo 2^24-1
			"01" + "0000", // always
			"02" + "00b1" + party("https://first.example/", "first") + party("https://second.example/hop", "second") +
				party("https://analyzer.example/", "analyzer") + "00" + "01", // no gateway, counted
			"01" + "0000", // no noise
			claim("0000000000000001"+"00", "0000000000000001"+"09", "01"),
			"00000000000003e8", "0000000000000e10", "01" + "0000", "0000",
		},
		"tokens krr": {
			"01", "06" + hexOf("Visits"), "0000",
			"04" + "0008" + "00000005" + "00000002",   // five buckets
			"03" + "0009" + "0000000000000002" + "00", // krr, 2
			"01" + "0000",
			"02" + "00d5" + party("https://first.example/", "first") + party("https://second.example/hop", "second") +
				party("https://analyzer.example/", "analyzer") + "20" + hex.EncodeToString(gateway[:]) + "02" + "00093a80", // tokens, epochs of a week
			"01" + "0000",
			"02" + "0018" + "000000000000128b" + "04" + "0000000000000001" + "09" + "02" + "01" + "00000001",
			"00000000000003e8", "0000000000000e10", "01" + "0000",
			"00a3" + "0003" + "0045" + "0019" + hexOf("https://attester.example/") + hex.EncodeToString(attester[:]) + "01" + "00000000000003e8" + "00" +
				"0008" + "0037" + "0016" + hexOf("https://relay.example/") + "001d" + hexOf("https://first.example/gateway") +
				"000a" + "000b" + hexOf("log.example") + "000b" + "000c" + "0000000000000001" + "0000012c",
		},
		"direct behind a relay": {
			"01", "06" + hexOf("Visits"), "0000",
			"04" + "0008" + "00000002" + "00000002",   // two buckets
			"03" + "0009" + "0000000000000002" + "00", // krr, 2
			"01" + "0000",
			"03" + "005c" + party("https://analyzer.example/", "analyzer") + "20" + hex.EncodeToString(gateway[:]),
			"01" + "0000",
			claim("0000000000000002"+"00", "0000000000000001"+"09", "00"),
			"00000000000003e8", "0000000000000e10", "01" + "0000",
			"004b" + "0008" + "0037" + "0016" + hexOf("https://relay.example/") + "001d" + hexOf("https://first.example/gateway") +
				"000b" + "000c" + "0000000000000001" + "0000012c",
		},
	} {
		if got := hex.EncodeToString(mustAppend(t, messageVariants()[name])); got != strings.Join(want, "") {
			t.Errorf("%s:\n got %s\nwant %s", name, got, strings.Join(want, ""))
		}
	}
}

// TestMessagePathsRefuse: what belongs to two servers is refused on the other paths, and
// what belongs to these on that of two servers, each by its field.
func TestMessagePathsRefuse(t *testing.T) {
	all := messageVariants()
	// A cloak whose noise is wider than a sum of as few users.
	small, err := Cloak{Kind: ModernCloak, Users: 13, Honest: 9, Epsilon: Decimal{1, 0}, Delta: Decimal{1, 9}}.Fit(Sum{Max: 20}, 9, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		of, field string
		change    func(*Recipe)
	}{
		{"modern", "noise", func(r *Recipe) { r.Noise = EachDraws(Rational{Num: 5, Den: 1}) }},
		{"shuffled krr", "noise", func(r *Recipe) { r.Noise = DiscreteLaplace{Rational{Num: 5, Den: 1}} }},
		{"modern", "server_keys", func(r *Recipe) { r.ServerKeys = new(ServerKeys) }},
		{"modern", "tokens", func(r *Recipe) { r.Tokens = new(Tokens) }},
		{"direct krr", "tokens", func(r *Recipe) { r.Tokens = all["tokens"].Tokens }},
		{"modern", "path.epoch_length", func(r *Recipe) { p := shuffledPath(); p.EpochLength = DefaultEpochLength; r.Path = p }},
		{"tokens", "path.epoch_length", func(r *Recipe) { p := r.Path.(Shuffled); p.EpochLength = MinEpochLength - 1; r.Path = p }},
		{"tokens", "path.mode", func(r *Recipe) { r.Tokens = nil }},
		{"tokens", "path.mode", func(r *Recipe) { r.Log = nil }},
		{"tokens", "path.mode", func(r *Recipe) { p := r.Path.(Shuffled); p.Mode = 3; r.Path = p }},
		{"tokens", "tokens", func(r *Recipe) { p := r.Path.(Shuffled); p.Mode, p.EpochLength = CountedMode, 0; r.Path = p }},
		{"tokens", "tokens", func(r *Recipe) {
			p := r.Path.(Shuffled)
			p.EpochLength = MinEpochLength
			r.Path = p
		}},
		{"tokens", "tokens", func(r *Recipe) {
			p := r.Path.(Shuffled)
			p.Gateway, r.Path, r.Relay = signed.PublicKey{}, p, nil
		}},
		{"tokens", "tokens.key", func(r *Recipe) { t := *r.Tokens; t.Key = rootOf("first"); r.Tokens = &t }},
		{"tokens", "randomizer.parts", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Parts = 3 }) }},
		{"tokens", "tokens.admission", func(r *Recipe) { t := *r.Tokens; t.Admission = true; r.Tokens = &t }},
		{"tokens", "targeting", func(r *Recipe) { r.Targeting = new(Targeting) }},
		{"shuffled krr", "participation", func(r *Recipe) { r.Participation = Bernoulli{Rational{Num: 1, Den: 2}} }},
		{"modern", "hpke_suite", func(r *Recipe) { r.KEM = XWing }},
		{"modern", "dap", func(r *Recipe) { r.DAP = dap.Draft19 }},
		{"modern", "randomizer", func(r *Recipe) { r.Randomizer = NoRandomizer{} }},
		{"direct krr", "randomizer", func(r *Recipe) { r.Randomizer = NoRandomizer{} }},
		{"modern", "randomizer", func(r *Recipe) { r.Path = directPath() }},
		{"modern", "randomizer", func(r *Recipe) { r.Path = doctor().Path }},
		{"modern", "query", func(r *Recipe) { r.Query = Vector{Dimension: 3, Bound: 8, Proof: Pine64, Rounding: RoundNearest} }},
		{"modern", "randomizer", func(r *Recipe) { r.Query = SumVec{Length: 40, Max: 20, Chunk: 1} }}, // which moves more
		{"modern", "randomizer.block", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Block = 0 }) }},
		{"modern", "randomizer.block", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Block = 2 }) }},
		{"buckets", "randomizer.block", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Block = 12 }) }},
		{"buckets", "randomizer", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Messages-- }) }},
		{"buckets", "randomizer", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Kind = SingleUserCloak }) }},
		{"buckets", "randomizer.honest", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Users, z.Honest = 1000, 15 }) }},
		{"parts", "randomizer.parts", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Parts = 2 }) }},
		{"parts", "randomizer.parts", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Parts = 0 }) }},
		{"parts", "randomizer.parts", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Parts = MaxParts + 1 }) }},
		{"parts", "randomizer.parts", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Parts = 7 }) }}, // of 3600 seconds
		{"parts", "randomizer.honest", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Honest = 5001 }) }},
		{"parts", "randomizer", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Honest = 30 }) }},
		{"modern", "randomizer.parts", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Kind, z.Parts = SumPreservingCloak, 5 }) }},
		{"modern", "path.mode", func(r *Recipe) { p := shuffledPath(); p.Mode = 2; r.Path = p }},
		{"modern", "path.first.url", func(r *Recipe) { p := shuffledPath(); p.First.URL = "first"; r.Path = p }},
		{"modern", "path.second.url", func(r *Recipe) { p := shuffledPath(); p.Second.URL = "http://second.example/"; r.Path = p }},
		{"modern", "path.second.url", func(r *Recipe) { p := shuffledPath(); p.Second.URL = "https://b.first.example/"; r.Path = p }},
		{"modern", "path.analyzer.url", func(r *Recipe) { p := shuffledPath(); p.Analyzer.URL = "https://b.first.example/"; r.Path = p }},
		{"modern", "path.analyzer.url", func(r *Recipe) { p := shuffledPath(); p.Analyzer.URL = "https://b.second.example/"; r.Path = p }},
		{"modern", "path.first.key", func(r *Recipe) { p := shuffledPath(); p.First.Key = signed.PublicKey{}; r.Path = p }},
		{"modern", "path.analyzer.key", func(r *Recipe) { p := shuffledPath(); p.Analyzer.Key = p.First.Key; r.Path = p }},
		{"modern", "path.gateway", func(r *Recipe) { p := shuffledPath(); p.Gateway = rootOf("gateway"); r.Path = p }},
		{"rounds", "path.gateway", func(r *Recipe) { r.Path = shuffledPath() }},
		{"rounds", "relay.url", func(r *Recipe) { r.Relay = &Relay{URL: "https://b.second.example/", Gateway: r.Relay.Gateway} }},
		{"rounds", "relay.url", func(r *Recipe) { r.Relay = &Relay{URL: "https://b.first.example/", Gateway: r.Relay.Gateway} }},
		{"direct behind a relay", "relay.url", func(r *Recipe) { r.Relay = &Relay{URL: "https://b.analyzer.example/", Gateway: r.Relay.Gateway} }},
		{"direct krr", "path.analyzer.key", func(r *Recipe) { r.Path = Direct{Analyzer: Party{URL: "https://analyzer.example/"}} }},
		{"direct krr", "path.gateway", func(r *Recipe) { p := directPath(); p.Gateway = rootOf("gateway"); r.Path = p }},
		{"modern", "claim.honest_servers", func(r *Recipe) { honest(r, 0) }},
		{"modern", "claim.honest_servers", func(r *Recipe) { honest(r, 2) }},
		{"direct krr", "claim.honest_servers", func(r *Recipe) { honest(r, 1) }},
		{"modern", "claim.delta", func(r *Recipe) { c := r.Claim.(ApproxDP); c.Delta = Decimal{}; r.Claim = c }},
		{"shuffled krr", "claim.delta", func(r *Recipe) { c := r.Claim.(ApproxDP); c.Delta = Decimal{}; r.Claim = c }},
		{"modern", "randomizer.users", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Users = 999 }) }},
		{"modern", "randomizer.users", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Users = 1<<32 + 1 }) }},
		{"modern", "randomizer.honest", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Honest = 1 }) }},
		{"modern", "randomizer.honest", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Honest = 1001 }) }},
		{"modern", "randomizer", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Kind = 4 }) }},
		{"modern", "randomizer", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Messages-- }) }},
		{"modern", "randomizer", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Messages = 0 }) }},
		{"modern", "randomizer", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Messages = 513 }) }},
		{"modern", "randomizer", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Modulus = 0 }) }},
		{"modern", "randomizer", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Modulus-- }) }},
		{"modern", "randomizer", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Modulus = 3 * 2000 * 20 }) }},
		{"modern", "randomizer", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Epsilon = Decimal{} }) }},
		{"modern", "randomizer", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Delta = Decimal{} }) }},
		{"modern", "randomizer", func(r *Recipe) { cloaked(r, func(z *Cloak) { z.Delta = Decimal{1, 12} }) }},
		{"modern", "randomizer.users", func(r *Recipe) { r.MinBatch = 9; cloaked(r, func(z *Cloak) { *z = small }) }},
		{"exact sum", "claim", func(r *Recipe) { r.Claim = all["modern"].Claim }},
	} {
		r := *all[c.of]
		c.change(&r)
		err := r.Validate()
		if c.field == "claim" { // of which Validate says nothing
			claim := new(ClaimError)
			if _, err = account.Guarantee(&r); errors.As(err, &claim) {
				continue
			}
		}
		found := false
		for _, e := range unjoined(err) {
			found = found || isInvalid(e, c.field)
		}
		if !found {
			t.Errorf("%s with another %s: %v", c.of, c.field, err)
		}
	}
}

func unjoined(err error) []error {
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		return list.Unwrap()
	}
	return []error{err}
}

func honest(r *Recipe, n uint8) {
	c := r.Claim.(ApproxDP)
	c.HonestServers = n
	r.Claim = c
}

func cloaked(r *Recipe, change func(*Cloak)) {
	z := r.Randomizer.(Cloak)
	change(&z)
	r.Randomizer = z
}

// TestTrustInHops: in the mode counted the guarantee trusts the first hop not to pad, and in the
// mode tokens none; each is said with the rest, and the layers have room for what is shown.
func TestTrustInHops(t *testing.T) {
	for name, c := range map[string]struct {
		trusts            bool
		envelope, message int
	}{"modern": {true, 0, 0}, "tokens": {false, 328, -1}, "shuffled krr": {true, 0, 0}, "tokens krr": {false, 328, 328}, "tokens, one block": {false, 328, -1}, "tokens, blocks": {false, 328, -1}} {
		r := messageVariants()[name]
		g, err := account.Guarantee(r)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := describe(r, &text); err != nil {
			t.Fatal(err)
		}
		if thinned := strings.Contains(strings.Join(g.Assumptions, "\n"), "keeps back no single messages"); thinned != (name == "tokens, blocks") {
			t.Errorf("%s: %q", name, g.Assumptions)
		}
		const trusted, nobody = "first hop puts no contributions of its own", "no hop is trusted not to put messages of its own"
		said := strings.Join(g.Assumptions, "\n")
		_, pads := g.Fallback(FirstHopPads)
		if strings.Contains(said, trusted) != c.trusts || strings.Contains(said, nobody) == c.trusts || pads != c.trusts {
			t.Errorf("%s assumes %q, pads %v", name, g.Assumptions, pads)
		}
		plain := strings.Join(strings.Fields(text.String()), " ")
		if strings.Contains(plain, trusted) != c.trusts || strings.Contains(plain, nobody) == c.trusts || strings.Contains(plain, "attester") == c.trusts {
			t.Errorf("%s: %s", name, text.String())
		}
		s, err := r.Shuffle()
		if err != nil {
			t.Fatal(err)
		}
		if c.message < 0 && s.MessageToken > 800 {
			c.message = s.MessageToken
		}
		if s.EnvelopeToken != c.envelope || s.MessageToken != c.message || s.Logged == c.trusts {
			t.Errorf("%s: tokens of %d and %d bytes, logged %v", name, s.EnvelopeToken, s.MessageToken, s.Logged)
		}
	}
}
