package recipe_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/certificate"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
)

// frozenRecipes is how many random recipes testdata/frozen.txt is about. Of frozenSample
// one is computed again by a test that somebody waits for, and of frozenSampleCI one where
// CI is true; -frozen.all computes each.
const (
	frozenRecipes  = 2216
	frozenBefore   = 2000 // lines from here on are of [recipe.Quantiles]
	frozenGroups   = 2040 // and from here on of [recipe.GroupSums]
	frozenTables   = 2070 // and from here on of those that are [recipe.Tabled]
	frozenBlurred  = 2166 // and from here on sums by group that devices blur
	frozenSample   = 200
	frozenSampleCI = 16
)

var (
	frozenUpdate = flag.Int("frozen.update", -1, "write testdata/frozen.txt anew from this line on, for a change that NEWS.md states")
	frozenAll    = flag.Bool("frozen.all", false, "compute every line of testdata/frozen.txt, which takes some minutes")
	frozenShow   = flag.Int("frozen.show", -1, "print the whole of the recipe of this line of testdata/frozen.txt, and compare nothing")
)

var frozenFile = filepath.Join("testdata", "frozen.txt")

// frozenHead says what the columns are.
const frozenHead = `# Random recipes of every kind, and what is computed of them, so that no change of the code
# changes a figure unseen. go test ./recipe -run 'TestFrozen$' -frozen.all compares all of them,
# -frozen.show N prints all that is said of line N, -frozen.update 0 writes the file.
# line.draw: of the draws from the line's seed the first that is a recipe; then the total
# epsilon; then the first ten hexadecimal digits of the id, and of the SHA-256 of the guarantee
# as JSON, of the certificate, and of what ledgers charge and the text asks beside.
`

// TestFrozen holds ids, guarantees, certificates and charges of random recipes to a file.
// It computes a sample of them, and all with -frozen.all.
func TestFrozen(t *testing.T) {
	if *frozenShow >= 0 {
		showFrozen(t, *frozenShow)
		return
	}
	if *frozenUpdate >= 0 {
		updateFrozen(t)
	}
	lines := readFrozen(t)
	if len(lines) != frozenRecipes {
		t.Fatalf("%d lines, want %d", len(lines), frozenRecipes)
	}
	kinds, every := make(map[string]int), frozenSample
	switch {
	case *frozenAll:
		every = 1
	case os.Getenv("CI") == "true":
		every = frozenSampleCI
	}
	for i, line := range lines {
		for _, k := range kindsOf(drawOptions(i, line.draw)) {
			kinds[k]++
		}
		if *frozenUpdate >= 0 || i%every != 0 {
			continue
		}
		o := drawOptions(i, line.draw)
		r, err := account.New(o)
		if err != nil {
			t.Errorf("line %d is no recipe any more: %v", i, err)
			continue
		}
		if got := freeze(t, i, line.draw, r); !got.agrees(line) {
			t.Errorf("line %d (%s) was\n%s\nand is\n%s", i, strings.Join(kindsOf(o), ", "), line, got)
		}
	}
	for _, k := range frozenKinds {
		if kinds[k] < 20 {
			t.Errorf("%d recipes have %s, want 20", kinds[k], k)
		}
	}
}

// A frozenLine is what the file holds of one recipe.
type frozenLine struct {
	line, draw                           int
	epsilon                              float64
	id, guarantee, certificate, accounts string
}

func (f frozenLine) String() string {
	return fmt.Sprintf("%d.%d %.9g %s %s %s %s", f.line, f.draw, f.epsilon, f.id, f.guarantee, f.certificate, f.accounts)
}

// agrees compares to the last bit, but on other processors than those the file was made
// on, whose floating point may fuse other operations, the id and epsilon alone.
func (f frozenLine) agrees(with frozenLine) bool {
	if runtime.GOARCH == "amd64" {
		return f.String() == with.String()
	}
	near := f.epsilon == with.epsilon || math.Abs(f.epsilon-with.epsilon) <= 1e-7*with.epsilon
	return f.id == with.id && near
}

func readFrozen(t *testing.T) []frozenLine {
	t.Helper()
	b, err := os.ReadFile(frozenFile)
	if err != nil {
		t.Fatal(err)
	}
	var lines []frozenLine
	for text := range strings.Lines(string(b)) {
		if strings.HasPrefix(text, "#") {
			continue
		}
		var f frozenLine
		fields := strings.Fields(text)
		if len(fields) != 6 {
			t.Fatalf("%q has %d fields, want 6", text, len(fields))
		}
		if _, err := fmt.Sscanf(fields[0], "%d.%d", &f.line, &f.draw); err != nil || f.line != len(lines) {
			t.Fatalf("%q: %v", text, err)
		}
		if f.epsilon, err = strconv.ParseFloat(fields[1], 64); err != nil {
			t.Fatal(err)
		}
		f.id, f.guarantee, f.certificate, f.accounts = fields[2], fields[3], fields[4], fields[5]
		lines = append(lines, f)
	}
	return lines
}

// updateFrozen writes each line when it is known: what took minutes is not lost.
func updateFrozen(t *testing.T) {
	t.Helper()
	var keep []frozenLine
	if *frozenUpdate > 0 {
		keep = readFrozen(t)[:*frozenUpdate]
	}
	f, err := os.Create(frozenFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fmt.Fprint(f, frozenHead)
	for _, line := range keep {
		fmt.Fprintln(f, line)
	}
	for i := len(keep); i < frozenRecipes; i++ {
		draw, r := firstRecipe(t, i)
		if _, err := fmt.Fprintln(f, freeze(t, i, draw, r)); err != nil {
			t.Fatal(err)
		}
	}
}

// firstRecipe returns the first draw of a line that is a recipe.
func firstRecipe(t *testing.T, line int) (int, *recipe.Recipe) {
	t.Helper()
	for draw := range 1000 {
		if r, err := account.New(drawOptions(line, draw)); err == nil {
			return draw, r
		}
	}
	t.Fatalf("line %d: none of a thousand draws is a recipe", line)
	return 0, nil
}

func freeze(t *testing.T, line, draw int, r *recipe.Recipe) frozenLine {
	t.Helper()
	id, err := r.ID()
	if err != nil {
		t.Fatal(err)
	}
	g := guaranteeOf(t, r)
	f := frozenLine{line: line, draw: draw, epsilon: g.Epsilon, id: id.String()[:10]}
	f.guarantee, f.accounts = digest(asJSON(t, g)), digest(asJSON(t, accountsOf(t, r)))
	c, err := account.Certify(r)
	switch {
	case errors.Is(err, recipe.ErrNoCertificate):
		f.certificate = "none"
	case err != nil:
		t.Fatal(err)
	default:
		f.certificate = digest(c)
	}
	return f
}

func guaranteeOf(t *testing.T, r *recipe.Recipe) *recipe.Guarantee {
	t.Helper()
	g, err := account.Guarantee(r)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// accounts is what is computed of a recipe beside its guarantee.
type accounts struct {
	Half, First, Unconditional recipe.Loss
	Both                       *recipe.Loss
	Proved                     *recipe.ProvedBound
	Threshold, Most            uint64
	Expected                   [2]float64
	Conditions                 []string
}

func accountsOf(t *testing.T, r *recipe.Recipe) accounts {
	t.Helper()
	a := accounts{Threshold: r.Threshold(), Conditions: r.Conditions()}
	half := max(1, r.DecisionRounds()/2)
	for _, x := range []struct {
		of     *recipe.Loss
		after  func(*recipe.Recipe, uint32) (recipe.Loss, error)
		rounds uint32
	}{{&a.Half, account.LossAfter, half}, {&a.First, account.LossAfter, 1}, {&a.Unconditional, account.UnconditionalAfter, half}} {
		l, err := x.after(r, x.rounds)
		if err != nil {
			t.Fatal(err)
		}
		*x.of = l
	}
	if l, ok := account.BothHonest(r); ok {
		a.Both = &l
	}
	if p, ok := account.ProvedBound(r); ok {
		a.Proved = &p
	}
	a.Most, _ = r.MostReports()
	a.Expected[0], a.Expected[1], _ = r.Expected(24)
	return a
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func digest(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b))[:10] }

func showFrozen(t *testing.T, line int) {
	t.Helper()
	draw, r := firstRecipe(t, line)
	out := func(format string, args ...any) { fmt.Fprintf(t.Output(), format+"\n", args...) }
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	out("%s\n%s\n%x", freeze(t, line, draw, r), strings.Join(kindsOf(drawOptions(line, draw)), ", "), b)
	if err := account.Describe(r, t.Output()); err != nil {
		t.Fatal(err)
	}
	out("%s\n%s", asJSON(t, guaranteeOf(t, r)), asJSON(t, accountsOf(t, r)))
	proof, err := account.Certify(r)
	if err != nil {
		out("%v", err)
		return
	}
	c := new(certificate.Certificate)
	if err := c.UnmarshalBinary(proof); err != nil {
		t.Fatal(err)
	}
	out("%d bytes, claim %+v, terms %+v, step %v, laws %+v", len(proof), c.Claim, c.Terms, c.Step, c.Laws)
}

// frozenKinds are the kinds that the file has to hold 20 of each at least.
var frozenKinds = []string{
	"count", "sum", "mean", "histogram", "multihot", "sumvec", "l1-bound-sum", "quantiles", "group-sums",
	"hierarchy", "heavy-hitters", "distinct", "norm", "vector",
	"no randomizer", "krr", "rappor", "device gaussian", "qa", "randomized-group",
	"always", "bernoulli", "importance", "donation-time",
	"time-interval", "leader-selected", "direct", "relay",
	"no noise", "discrete-gaussian", "discrete-laplace", "correlated-gaussian", "half of the noise",
	"calibrated", "one round", "rounds", "round", "window", "population", "targeting", "stated dummies", "cover", "x-wing", "unit", "per person",
	"projection", "server keys", "draft 19",
}

func kindsOf(o account.Options) []string {
	var list []string
	add := func(present bool, name string) {
		if present {
			list = append(list, name)
		}
	}
	list = append(list, map[string]string{
		"recipe.Count": "count", "recipe.Sum": "sum", "recipe.Mean": "mean", "recipe.Histogram": "histogram", "recipe.Multihot": "multihot",
		"recipe.SumVec": "sumvec", "recipe.L1BoundSum": "l1-bound-sum", "recipe.Quantiles": "quantiles", "recipe.GroupSums": "group-sums",
		"recipe.Hierarchy": "hierarchy", "recipe.HeavyHitters": "heavy-hitters", "recipe.Distinct": "distinct", "recipe.Norm": "norm", "recipe.Vector": "vector",
	}[fmt.Sprintf("%T", o.Query)])
	list = append(list, map[string]string{
		"<nil>": "no randomizer", "recipe.KRR": "krr", "recipe.RAPPOR": "rappor", "recipe.Gaussian": "device gaussian",
		"recipe.QA": "qa", "recipe.RandomizedGroup": "randomized-group",
	}[fmt.Sprintf("%T", o.Randomizer)])
	list = append(list, map[string]string{
		"<nil>": "always", "recipe.Bernoulli": "bernoulli", "recipe.Importance": "importance", "recipe.DonationTime": "donation-time",
	}[fmt.Sprintf("%T", o.Participation)])
	switch n := o.Noise.(type) {
	case recipe.DiscreteGaussian:
		add(true, "discrete-gaussian")
		add(n.Share == recipe.DrawsHalf, "half of the noise")
	case recipe.DiscreteLaplace:
		add(true, "discrete-laplace")
	case recipe.CorrelatedGaussian:
		add(true, "correlated-gaussian")
	}
	add(o.Noise == nil && o.Epsilon == recipe.Decimal{} && o.Randomizer == nil, "no noise")
	add(o.Noise == nil && o.Epsilon != recipe.Decimal{}, "calibrated")
	add(o.BatchMode == dap.LeaderSelected, "leader-selected")
	add(o.BatchMode != dap.LeaderSelected, "time-interval")
	add(o.Relay != nil, "relay")
	add(o.Relay == nil, "direct")
	add(o.Rounds <= 1, "one round")
	add(o.Rounds > 1, "rounds")
	add(o.RoundUnits > 0, "round")
	add(o.Window != nil, "window")
	add(o.Population != nil, "population")
	add(o.Targeting != nil, "targeting")
	add(o.Dummies != nil, "stated dummies")
	add(o.Cover != nil, "cover")
	add(o.KEM == recipe.XWing, "x-wing")
	add(o.Unit != nil, "unit")
	add(o.Unit != nil && o.Unit.PerPerson > 1, "per person")
	add(o.Projection != nil, "projection")
	add(o.ServerKeys != nil, "server keys")
	add(o.DAP == dap.Draft19, "draft 19")
	return list
}

// A drawer draws options from a seed of their own.
type drawer struct{ *rand.Rand }

// chance is true in so many of a hundred.
func (d drawer) chance(percent int) bool { return d.IntN(100) < percent }

// between is log-uniform.
func (d drawer) between(low, high float64) float64 {
	return low * math.Exp(d.Float64()*math.Log(high/low))
}

func (d drawer) whole(low, high uint64) uint64 {
	return uint64(math.Round(d.between(float64(low), float64(high))))
}

func (d drawer) decimal(low, high float64) recipe.Decimal {
	x, err := recipe.DecimalAbove(d.between(low, high), 1+d.IntN(4))
	if err != nil {
		panic(err)
	}
	return x
}

// rational is near x, with a small denominator or a binary one.
func (d drawer) rational(x float64) recipe.Rational {
	den := []uint64{1, 3, 10, 1 << 10, 1 << 16}[d.IntN(5)]
	for x*float64(den) < 8 {
		den *= 16
	}
	r, err := recipe.NewRational(uint64(math.Ceil(x*float64(den))), den)
	if err != nil {
		panic(err)
	}
	return r
}

// drawOptions is one draw of one line. Most are recipes; the others show which are refused.
func drawOptions(line, draw int) account.Options {
	d := drawer{rand.New(rand.NewPCG(uint64(line), uint64(draw)))}
	o := account.Options{
		Name: fmt.Sprintf("Frozen %d", line), Leader: "https://leader.example/", Helper: "https://helper.example/a",
		MinBatch: d.whole(20, 20000), DAP: []dap.Version{dap.Draft18, dap.Draft18, dap.Draft19}[d.IntN(3)],
	}
	if d.chance(50) {
		o.Description = "What it is for."
	}
	if d.chance(30) {
		o.Delta = d.decimal(1e-12, 1e-4)
	}
	if d.chance(60) {
		o.Rounds = uint32(d.whole(2, 60))
	}
	switch {
	case line < frozenBefore:
		d.query(&o)
	case line < frozenGroups:
		o.Query = d.quantiles()
	case line < frozenTables:
		o.Query = d.groups()
	case line < frozenBlurred:
		o.Query = d.tabled(line)
	default:
		d.blurred(&o, line)
		return o
	}
	d.participation(&o)
	if o.Randomizer == nil {
		d.noise(&o)
	}
	d.extensions(&o)
	return o
}

// query draws a query with a randomizer for it, or none.
func (d drawer) query(o *account.Options) {
	randomized := d.chance(40)
	length := uint32(d.whole(2, 120))
	switch d.IntN(9) {
	case 0:
		o.Query = recipe.Count{}
	case 1:
		o.Query = recipe.Sum{Max: d.whole(1, 1<<20)}
	case 2:
		o.Query = recipe.Mean{Max: d.whole(1, 500)}
	case 3:
		o.Query = recipe.Histogram{Length: length}
		if randomized {
			o.Randomizer = recipe.KRR{Epsilon0: d.decimal(0.2, 8)}
		}
	case 4:
		o.Query = recipe.Multihot{Length: length, MaxWeight: d.whole(1, uint64(length))}
	case 5:
		o.Query = recipe.SumVec{Length: 1 + length/4, Max: d.whole(1, 1000)}
	case 6:
		o.Query = recipe.L1BoundSum{Length: 1 + length/2, Max: d.whole(1, 1000)}
	case 7:
		q, err := recipe.NewVector(length, d.between(0.5, 50), uint8(6+d.IntN(15)), []recipe.VectorProof{0, 0, 0, recipe.Pine64}[d.IntN(4)])
		if err != nil {
			panic(err)
		}
		if d.chance(10) {
			q = recipe.Vector{Dimension: length, Bound: 1 << 15, FracBits: 15, Proof: recipe.L2Fixed16}
		}
		o.Query = q
		if randomized {
			clip := float64(q.Bound)
			o.Randomizer = recipe.Gaussian{Variance: d.rational(max(8, clip*clip/float64(o.MinBatch)*d.between(1, 1e4)))}
			if d.chance(10) {
				o.Randomizer, o.Epsilon, o.Rounds = recipe.Gaussian{}, d.decimal(0.3, 8), min(o.Rounds, 4)
			}
		}
	case 8: // of weight 1, for importance sampling and RAPPOR
		o.Query = recipe.Multihot{Length: length, MaxWeight: 1}
		if randomized {
			o.Query, o.Randomizer = recipe.Multihot{Length: length}, recipe.RAPPOR{Epsilon0: d.decimal(0.2, 8)}
		}
	}
}

// blurred draws sums by group on a path without proofs, half of them by question & answer.
func (d drawer) blurred(o *account.Options, line int) {
	party := func(name string) recipe.Party {
		p := recipe.Party{URL: "https://" + name + ".example/"}
		seed := sha256.Sum256([]byte(name))
		copy(p.Key[:], ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey))
		return p
	}
	q := recipe.GroupSums{Min: int64(d.whole(1, 200)) - 100, Groups: uint32(d.whole(2, 60))}
	q.Max = q.Min + int64(d.whole(1, 1000))
	asks := recipe.GroupAsks(1 + d.IntN(2))
	o.Query, o.Leader, o.Helper, o.DAP = q, "", "", 0
	e := d.decimal(0.1, 8)
	if d.chance(20) {
		e, o.Epsilon = recipe.Decimal{}, d.decimal(0.1, 4)
	}
	if o.Randomizer = (recipe.QA{Epsilon0: e, Levels: uint32(d.IntN(5)), Asks: asks}); line%2 == 0 {
		o.Randomizer = recipe.RandomizedGroup{Epsilon0: e, Levels: uint32(d.IntN(5)), Asks: asks}
	}
	if o.Path = (recipe.Direct{Analyzer: party("analyzer")}); d.chance(50) {
		o.Path = recipe.Shuffled{First: party("first"), Second: party("second"), Analyzer: party("analyzer"), Mode: recipe.CountedMode}
	}
	d.extensions(o)
	o.ServerKeys = nil
}

// tabled draws one of the queries that are answered by texts, which takes turns with others.
func (d drawer) tabled(line int) recipe.Query {
	keyed := recipe.Keyed{Width: uint32(d.whole(2, 400)), Seed: d.Uint64()}
	switch line % 4 {
	case 0:
		return d.hierarchy()
	case 1:
		return recipe.Distinct{Keyed: keyed}
	case 2:
		return recipe.Norm{Keyed: keyed}
	}
	q := recipe.HeavyHitters{Alphabet: "abcdefghijklmnopqrstuvwxyz"[:d.whole(1, 26)], Letters: uint8(d.whole(1, 12)), Checks: uint8(d.whole(1, 4)), Width: keyed.Width, Seed: keyed.Seed}
	q.Step = uint8(d.whole(1, uint64(q.Letters)))
	return q
}

// hierarchy draws a tree of up to three levels.
func (d drawer) hierarchy() recipe.Query {
	q := recipe.Hierarchy{Floor: uint32(d.IntN(2) * d.IntN(100))}
	var below func(depth uint8)
	below = func(depth uint8) {
		n := 2 + d.IntN(4)
		for i := range n {
			rest := i == n-1 && d.chance(40)
			q.Places = append(q.Places, recipe.TreePlace{Depth: depth, Label: fmt.Sprintf("place %d", i), Rest: rest})
			if depth < 3 && !rest && d.chance(40) {
				below(depth + 1)
			}
		}
	}
	below(1)
	return q
}

func (d drawer) quantiles() recipe.Query {
	q := recipe.Quantiles{Min: d.whole(1, 100) - 1, Width: d.whole(1, 20)}
	bins := d.whole(2, 400)
	q.Max = q.Min + bins*q.Width - 1 // of the last bin
	q.Branching = uint32(d.whole(2, bins))
	return q
}

func (d drawer) groups() recipe.Query {
	q := recipe.GroupSums{Min: int64(d.whole(1, 200)) - 100, Groups: uint32(d.whole(2, 60))}
	q.Max = q.Min + int64(d.whole(1, 1000))
	return q
}

// participation draws coins, the relay and what hides them.
func (d drawer) participation(o *account.Options) {
	if d.chance(20) {
		d.relay(o)
	}
	q, multihot := o.Query.(recipe.Multihot)
	needles := multihot && q.MaxWeight == 1
	if !needles && d.chance(92) || needles && d.chance(45) {
		return
	}
	if d.chance(85) {
		d.relay(o)
	}
	// Rounds of sampled recipes are among the dearest to account for.
	o.Rounds = min(o.Rounds, uint32(1+d.IntN(4)))
	rate := d.rational(d.between(0.005, 0.6))
	slots := 1.0
	switch k := d.IntN(100); {
	case needles && k < 70:
		p := recipe.Importance{Default: rate, Other: d.rational(min(0.9, rate.Float()*d.between(1, 40)))}
		o.Participation = p
		d.relay(o)
	case k < 60:
		o.Participation = recipe.Bernoulli{Rate: rate}
	default:
		slots = float64(2 + d.IntN(20))
		o.Participation = recipe.DonationTime{Rate: rate, Slots: uint32(slots), Length: uint32(1 + d.IntN(4))}
	}
	o.Rate = &recipe.Rate{Devices: uint64(float64(o.MinBatch) / rate.Float() * slots * d.between(2, 60)), Units: d.whole(1, 48)}
	if p, ok := o.Participation.(recipe.DonationTime); ok {
		o.Rate.Units = uint64(p.Slots) * uint64(p.Length)
	}
	if d.chance(25) {
		senders := max(2, uint64(float64(o.Rate.Devices)*d.between(0.3, 1)))
		o.Dummies = &recipe.Dummies{Rate: d.rational(min(0.45, d.between(20, 2000)/float64(senders)*slots)), Senders: senders}
		o.Dummies.Allowance = uint64(d.between(1, 2)*o.Dummies.Rate.Float()*float64(o.Rate.Devices)/slots) + 100
	}
	if d.chance(25) {
		o.Cover = &recipe.Cover{Rate: recipe.Rational{Num: 1, Den: 1}}
		if d.chance(30) {
			o.Cover.Rate = recipe.Rational{Num: 9, Den: 10}
		}
	}
	if d.chance(35) {
		found := max(recipe.TargetFloor+2, o.Rate.Devices+1)
		o.Targeting = &recipe.Targeting{
			Clauses:     []recipe.Clause{{Attribute: recipe.Platform, Values: []string{"ios", "linux"}}},
			Certificate: recipe.Certificate{Recipe: recipe.ID{1}, Entry: recipe.Hash{2}, LowerBound: found, MinPopulation: found - 1},
		}
	}
}

func (d drawer) relay(o *account.Options) {
	o.Relay = &recipe.Relay{URL: "https://relay.example/", Gateway: "https://leader.example/gateway"}
	if d.chance(30) {
		o.KEM = recipe.XWing
	}
}

// noise draws what servers add, of about the size that some epsilon needs.
func (d drawer) noise(o *account.Options) {
	// The root of the squared distance, and the distance, by which one report moves the
	// result.
	l2, l1 := distances(o.Query)
	rounds := float64(max(1, o.Rounds))
	epsilon := d.between(0.05, 8)
	sigma := l2 * d.between(3, 6) * math.Sqrt(rounds) / epsilon
	switch k := d.IntN(100); {
	case k < 4:
	case k < 12:
		o.Epsilon, o.Rounds = d.decimal(0.1, 8), min(o.Rounds, 4)
		if d.chance(25) {
			o.Kind = account.LaplaceNoise
		} else if d.chance(25) {
			o.Share, o.HonestServers = recipe.DrawsHalf, uint8(1+d.IntN(2))
		}
	case k < 60:
		n := recipe.DiscreteGaussian{Variance: d.rational(max(0.3, sigma*sigma)), Share: recipe.DrawsAll}
		if d.chance(30) {
			n.Share, o.HonestServers = recipe.DrawsHalf, uint8(1+d.IntN(2))
		}
		o.Noise = n
	case k < 88 || o.Participation != nil:
		o.Rounds = min(o.Rounds, 6)
		o.Noise = recipe.DiscreteLaplace{Scale: d.rational(max(0.3, l1*float64(max(1, o.Rounds))/epsilon))}
	default:
		s, err := correlated.SquareRoot(2+d.IntN(12), 16)
		if err != nil {
			panic(err)
		}
		series := correlated.Series{Strategy: s, Separation: uint64(s.Bands() + d.IntN(4)), Rounds: d.whole(20, 300)}
		o.Noise = recipe.CorrelatedGaussian{Variance: d.rational(2 * sigma * sigma), Series: series}
	}
}

// distances are roughly how far one answer that replaces another moves the result.
func distances(q recipe.Query) (l2, l1 float64) {
	switch q := q.(type) {
	case recipe.Sum:
		return float64(q.Max), float64(q.Max)
	case recipe.Mean:
		return float64(q.Max), float64(q.Max)
	case recipe.Histogram:
		return math.Sqrt2, 2
	case recipe.Multihot:
		n := float64(min(2*q.MaxWeight, uint64(q.Length)))
		return math.Sqrt(n), n
	case recipe.SumVec:
		return float64(q.Max) * math.Sqrt(float64(q.Length)), float64(q.Max) * float64(q.Length)
	case recipe.Quantiles, recipe.Hierarchy, recipe.HeavyHitters, recipe.Distinct, recipe.Norm:
		c := q.VDAFConfig().(dap.MultihotCountVecConfig)
		n := float64(min(2*c.MaxWeight, uint64(c.Length)))
		return math.Sqrt(n), n
	case recipe.GroupSums:
		return math.Sqrt2 * q.Largest(), 2 * q.Largest()
	case recipe.L1BoundSum:
		return math.Sqrt2 * float64(q.Max), 2 * float64(q.Max)
	case recipe.Vector:
		return 2 * float64(q.Bound), 2 * float64(q.Bound)
	}
	return 1, 1
}

// extensions draws what changes ids more than figures.
func (d drawer) extensions(o *account.Options) {
	if d.chance(15) && o.Participation == nil {
		o.BatchMode = dap.LeaderSelected
	}
	if d.chance(30) {
		o.Population = &recipe.Population{Statement: "Everyone.", Expected: d.whole(1e6, 1e9)}
	}
	if d.chance(20) && o.Rate == nil {
		o.RoundUnits = d.whole(1, 48)
	}
	if d.chance(20) {
		o.Grace = time.Duration(d.whole(1, 3600)) * time.Second
	}
	if d.chance(20) {
		o.TimePrecision = dap.TimePrecision(d.whole(60, 86400))
	}
	if d.chance(20) {
		units := uint64(1)
		if o.RoundUnits > 0 {
			units = o.RoundUnits
		} else if o.Rate != nil {
			units = o.Rate.Units
		}
		first := d.whole(100, 1000)
		o.Window = recipe.Between{Start: dap.Time(first * units), End: dap.Time((first + d.whole(1, 100)) * units)}
	}
	if d.chance(25) {
		u := recipe.Unit{Name: []string{"person", "device", "visit", "site", "household"}[d.IntN(5)], Records: 1, Reduce: recipe.LastRecord}
		if u.Name != recipe.UnitPerson && d.chance(60) {
			u.PerPerson = uint32(d.whole(1, 9))
		}
		if _, histogram := o.Query.(recipe.Histogram); !histogram && d.chance(40) {
			u.Reduce, u.Records = recipe.ClippedSum, uint32(d.whole(2, 50))
		}
		o.Unit = &u
	}
	if q, ok := o.Query.(recipe.Vector); ok && d.chance(30) {
		o.Projection = &recipe.Projection{Entries: q.Dimension + uint32(d.whole(1, 500)), Seed: sha256.Sum256([]byte(o.Name))}
	}
	if d.chance(15) {
		key := func(role string) (k signed.PublicKey) {
			seed := sha256.Sum256([]byte(role))
			copy(k[:], ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey))
			return k
		}
		o.ServerKeys = &recipe.ServerKeys{Leader: key("leader"), Helper: key("helper"), Collector: recipe.Hash{3}, EpochLength: recipe.DefaultEpochLength}
		if o.Relay != nil {
			o.ServerKeys.Gateway = key("gateway")
		}
	}
}

// TestFrozenKinds holds the list of kinds to what can be drawn.
func TestFrozenKinds(t *testing.T) {
	found := make(map[string]bool)
	for line := range frozenRecipes {
		for _, k := range kindsOf(drawOptions(line, 0)) {
			found[k] = true
			if !slices.Contains(frozenKinds, k) {
				t.Fatalf("line %d is of kind %q, which is not on the list", line, k)
			}
		}
	}
	if len(found) != len(frozenKinds) {
		t.Errorf("%d kinds are drawn, %d on the list", len(found), len(frozenKinds))
	}
}
