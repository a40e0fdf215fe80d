package participate

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"math"
	"testing"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
)

func rootOf(name string) (k signed.PublicKey) {
	seed := sha256.Sum256([]byte(name))
	copy(k[:], ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey))
	return k
}

func shuffled(o account.Options) account.Options {
	o.Name, o.MinBatch = "test", 1000
	o.Path = recipe.Shuffled{
		First:    recipe.Party{URL: "https://first.example/", Key: rootOf("first")},
		Second:   recipe.Party{URL: "https://second.example/", Key: rootOf("second")},
		Analyzer: recipe.Party{URL: "https://analyzer.example/", Key: rootOf("analyzer")},
		Mode:     recipe.CountedMode,
	}
	return o
}

// checkedFile is a recipe as a device has it, with its certificate and without an
// accountant.
func checkedFile(t *testing.T, o account.Options) (*recipe.Checked, []byte) {
	t.Helper()
	file := makeRecipe(t, o)
	r, err := recipe.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Exact() {
		c, err := account.Certify(r)
		if err != nil {
			t.Fatal(err)
		}
		file = append(file, c...)
	}
	checked, err := recipe.OpenFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return checked, file
}

// TestLedgerOfPaths: rounds of a cloak, and of reports that a shuffler mixes or nobody, are
// charged by what the certificate says under the author's word, and on nobody's.
func TestLedgerOfPaths(t *testing.T) {
	one := recipe.Decimal{Coefficient: 1}
	direct := shuffled(account.Options{Query: recipe.Count{}, Randomizer: recipe.KRR{Epsilon0: one}, Rounds: 2})
	direct.Path = recipe.Direct{Analyzer: recipe.Party{URL: "https://analyzer.example/", Key: rootOf("analyzer")}}
	asked := shuffled(account.Options{Query: recipe.GroupSums{Max: 20, Groups: 4}, Randomizer: recipe.QA{Epsilon0: one, Asks: recipe.AskSizes}, Rounds: 3})
	named := asked
	named.Path, named.Randomizer = direct.Path, recipe.RandomizedGroup{Epsilon0: one, Asks: recipe.AskSizes}
	for name, c := range map[string]struct {
		o               account.Options
		most, atLeast   float64 // of all rounds
		open            float64 // on no condition
		exact           bool
		conditions, all int
	}{
		"cloak": {o: shuffled(account.Options{Query: recipe.Sum{Max: 9}, Randomizer: recipe.Cloak{Kind: recipe.ModernCloak}, Epsilon: one, Rounds: 4}),
			most: 1, atLeast: 0.9, open: math.Inf(1), conditions: 1, all: 4},
		"shuffled": {o: shuffled(account.Options{Query: recipe.Count{}, Randomizer: recipe.KRR{Epsilon0: one}, Rounds: 2}),
			most: 0.7, atLeast: 0.3, open: 2.01, conditions: 1, all: 2},
		"question & answer": {o: asked, most: 1.5, atLeast: 0.2, open: 3.02, conditions: 1, all: 3},
		"randomized group":  {o: named, most: 3.02, atLeast: 2.9, open: 3.02, all: 3},
		"direct":            {o: direct, most: 2.01, atLeast: 1.9, open: 2.01, all: 2},
		"exact sum":         {o: shuffled(account.Options{Query: recipe.Sum{Max: 9}, Randomizer: recipe.Cloak{Kind: recipe.SumPreservingCloak}}), exact: true, all: 1},
	} {
		checked, _ := checkedFile(t, c.o)
		id := checked.ID()
		finite, err := MemoryLedger(LedgerOptions{MaxEpsilon: 50, MaxDelta: 1e-3})
		if err != nil {
			t.Fatal(err)
		}
		if err := finite.See(t.Context(), id, checked.Bytes(), now); err != nil {
			t.Fatal(err)
		}
		rule := checked.Recipe().DeviceRule()
		for round := range c.all {
			err := finite.Charge(t.Context(), id, uint64(round), rule, now, PriceOf(checked))
			if c.exact != errors.Is(err, ErrBudget) || !c.exact && err != nil {
				t.Fatalf("%s: round %d: %v", name, round, err)
			}
		}
		if c.exact {
			continue
		}
		if err := finite.Charge(t.Context(), id, uint64(c.all), rule, now, PriceOf(checked)); !errors.Is(err, ErrDecided) {
			t.Errorf("%s: one round more: %v", name, err)
		}
		e := finite.Entries()[0]
		if !(e.Loss.Epsilon >= c.atLeast && e.Loss.Epsilon <= c.most) || len(e.Conditions) != c.conditions {
			t.Errorf("%s: charged %v on %v", name, e.Loss, e.Conditions)
		}
		if !(e.Unconditional.Epsilon <= c.open) || math.IsInf(c.open, 1) != math.IsInf(e.Unconditional.Epsilon, 1) {
			t.Errorf("%s: on no condition %v, want %v at most", name, e.Unconditional, c.open)
		}
	}
}

// TestClientOfPaths: what makes shares refuses a recipe that wants messages, and a manifest
// must lead to the first hop.
func TestClientOfPaths(t *testing.T) {
	o := shuffled(account.Options{Query: recipe.Count{}, Randomizer: recipe.KRR{Epsilon0: recipe.Decimal{Coefficient: 1}}})
	p := o.Path.(recipe.Shuffled)
	p.Gateway = rootOf("gateway")
	o.Path, o.Relay = p, options().Relay
	checked, file := checkedFile(t, o)
	_, err := client.New(client.Options{AnyKeys: true, Recipe: file, HTTP: newServers(t)})
	if refused := new(client.RefusedError); !errors.As(err, &refused) || refused.Reason != client.ReasonInvalid {
		t.Errorf("a client of shares: %v", err)
	}
	m := manifest()
	if err := CheckManifest(checked.Recipe(), m); !errors.Is(err, ErrManifest) {
		t.Errorf("a manifest to a leader: %v", err)
	}
	m.Targets = []string{"https://first.example/"}
	if err := CheckManifest(checked.Recipe(), m); err != nil {
		t.Errorf("a manifest to the first hop: %v", err)
	}
}

// kinds is what of answers tells whether a value is one.
type kinds struct {
	answers
	r *recipe.Recipe
}

func (k kinds) Kind(v client.Value) (recipe.Answer, error) { return client.Kind(k.r, v) }

// TestNoAnswerIsNotCharged: where results count on each contribution's being an answer, a
// device without one is told so before anything is charged.
func TestNoAnswerIsNotCharged(t *testing.T) {
	one := recipe.Decimal{Coefficient: 1}
	for name, c := range map[string]struct {
		q     recipe.Query
		z     recipe.Randomizer
		whole bool
	}{
		"question & answer": {recipe.GroupSums{Max: 20, Groups: 4}, recipe.QA{Asks: recipe.AskSizes}, true},
		"randomized group":  {recipe.GroupSums{Max: 20, Groups: 4}, recipe.RandomizedGroup{Asks: recipe.AskSums}, true},
		"cloaked groups":    {recipe.GroupSums{Max: 20, Groups: 4}, recipe.Cloak{Kind: recipe.ModernCloak}, true},
		"cloaked sum":       {recipe.Sum{Max: 9}, recipe.Cloak{Kind: recipe.ModernCloak}, false},
		"krr":               {recipe.Count{}, recipe.KRR{Epsilon0: one}, false},
	} {
		o := shuffled(account.Options{Query: c.q, Randomizer: c.z})
		if _, is := c.z.(recipe.KRR); !is {
			o.Epsilon = one
		}
		checked, _ := checkedFile(t, o)
		r := checked.Recipe()
		_, err := new(Device).ready(&Plan{recipe: r, answers: kinds{r: r}}, client.NoValue())
		if c.whole != errors.As(err, new(*client.ValueError)) || !c.whole && err != nil {
			t.Errorf("%s: no answer: %v", name, err)
		}
	}
}
