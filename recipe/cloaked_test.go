package recipe_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// linears are queries of every encoding, each with a way to answer it.
func linears() map[string]struct {
	q      Query
	answer func(rng *rand.Rand) []uint64
} {
	tree, err := ParseQuery("hierarchy:north(east,west,*other),south(a,b)")
	if err != nil {
		panic(err)
	}
	one := func(n uint64) func(*rand.Rand) []uint64 {
		return func(rng *rand.Rand) []uint64 { return []uint64{rng.Uint64N(n)} }
	}
	many := func(length int, most uint64, all uint64) func(*rand.Rand) []uint64 {
		return func(rng *rand.Rand) []uint64 {
			x, left := make([]uint64, length), all
			for i := range x {
				x[i] = rng.Uint64N(min(most, left) + 1)
				left -= x[i]
			}
			return x
		}
	}
	return map[string]struct {
		q      Query
		answer func(rng *rand.Rand) []uint64
	}{
		"count":     {Count{}, one(2)},
		"histogram": {Histogram{Length: 9}, one(9)},
		"multihot":  {Multihot{Length: 7, MaxWeight: 3}, many(7, 1, 3)},
		"sumvec":    {SumVec{Length: 3, Max: 5}, many(3, 5, 15)},
		"l1":        {L1BoundSum{Length: 6, Max: 12}, many(6, 12, 12)},
		"quantiles": {Quantiles{Max: 63, Width: 4, Branching: 4}, one(70)},
		"groups":    {GroupSums{Min: -3, Max: 7, Groups: 3}, func(rng *rand.Rand) []uint64 { return []uint64{rng.Uint64N(11) - 3, rng.Uint64N(3)} }},
		"hierarchy": {tree, one(5)},
		"hitters": {HeavyHitters{Alphabet: "abc", Letters: 4, Step: 2, Checks: 1, Width: 16, Seed: 5}, func(rng *rand.Rand) []uint64 {
			return []uint64{1 + rng.Uint64N(3), 1 + rng.Uint64N(3), 1, 0}
		}},
		"distinct": {Distinct{Keyed{Width: 30, Seed: 1}}, one(20)},
		"norm":     {Norm{Keyed{Width: 30, Seed: 1}}, one(20)},
	}
}

// TestLinearQueries: of every query that is a sum of whole numbers the sums that come out of a
// cloak are those of the encodings that two servers would add up, but for the noise of the
// query's own sensitivity: of 30 runs of each no number is further off than Laplace noise of
// that scale is once in 10^8 (fewer than 10^4 numbers in all, with fixed seeds), and the mean
// square of all is within a third of its variance, where some 200 numbers or more are looked at.
func TestLinearQueries(t *testing.T) {
	const runs, n = 30, 60
	for name, c := range linears() {
		r := made(shuffledPath(), account.Options{Query: c.q, MinBatch: n, Randomizer: Cloak{Kind: ModernCloak, Users: 400}, Epsilon: Decimal{4, 0}, Delta: Decimal{1, 4}})
		s, err := r.Query.Contribution().Sensitivity(2) // one in the place of another
		if err != nil {
			t.Fatal(err)
		}
		m, rng := seeded(t, r, byte(len(name)))
		scale, squares, numbers := s.L1/4, 0.0, 0.0
		for range runs {
			answers, want := make([][]uint64, n), make([]int64, r.Query.Aggregates())
			for i := range answers {
				answers[i] = c.answer(rng)
				for j, x := range Linear(r.Query, answers[i]) {
					want[j] += int64(x)
				}
			}
			tally := collected(t, m, rng, answers)
			for j, x := range tally.Sums {
				off := float64(x - want[j])
				if math.Abs(off) > scale*math.Log(1e8)+1 {
					t.Errorf("%s: number %d is off by %v of scale %v", name, j, off, scale)
				}
				squares, numbers = squares+off*off, numbers+1
			}
			_, err1 := r.Estimate(tally.Sums, tally.Reports)
			table, err2 := r.Table(tally.Sums, tally.Reports, []string{"ab"})
			ranks, err3 := r.Distribution(tally.Sums, tally.Reports)
			groups, err4 := r.GroupTable(tally.Sums, tally.Reports)
			if err := errors.Join(err1, err2, err3, err4); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if _, tabled := c.q.(Tabled); tabled != (table != nil) || (name == "quantiles") != (ranks != nil) || (name == "groups") != (groups != nil) {
				t.Fatalf("%s: %v, %v, %v", name, table, ranks, groups)
			}
			if groups != nil && (groups.Total.Sum.Stderr < scale || groups.Groups[0].Size.Interval95[0] >= groups.Groups[0].Size.Interval95[1]) {
				t.Fatalf("%s: %+v", name, groups)
			}
		}
		q := math.Exp(-1 / scale)
		if got, want := squares/numbers, 2*q/((1-q)*(1-q)); numbers >= 200 && math.Abs(got/want-1) > max(0.33, 6*math.Sqrt(5/numbers)) {
			t.Errorf("%s: variance %v of a number, want %v", name, got, want)
		}
		_, err = m.Messages(nil)
		if _, whole := c.q.(Tabled); whole != errors.As(err, new(*AnswerError)) && name != "quantiles" && name != "groups" {
			t.Errorf("%s: no answer: %v", name, err)
		}
	}
}

// TestCloakedTables: what a sketch says of cloaked sums holds as often as it says: of 1,000
// intervals of ranks, places and cells 930 or more are right (950 and a deviation of 7 are
// expected; a false alarm has a probability below 1 in 10^6, as neighbours are correlated and
// most are wider).
func TestCloakedTables(t *testing.T) {
	tree, err := ParseQuery("hierarchy:a(b,c,d),e(f,g)")
	if err != nil {
		t.Fatal(err)
	}
	const n = 90
	rng := rand.New(rand.NewPCG(8, 9))
	right, all := 0, 0
	r := made(shuffledPath(), account.Options{Query: tree, MinBatch: 60, Randomizer: Cloak{Kind: ModernCloak, Users: 400}, Epsilon: Decimal{2, 0}, Delta: Decimal{1, 4}})
	for run := range 150 {
		m, shuffle := seeded(t, r, byte(run))
		answers, exact := make([][]uint64, n), make([]float64, 7)
		for i := range answers {
			leaf := min(rng.Uint64N(5), rng.Uint64N(5))
			answers[i] = []uint64{leaf}
			for j, x := range Linear(r.Query, answers[i]) {
				exact[j] += float64(x)
			}
		}
		tally := collected(t, m, shuffle, answers)
		table, err := r.Table(tally.Sums, tally.Reports, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range table.Rows {
			if all++; exact[i] >= row.Cell.Interval95[0] && exact[i] <= row.Cell.Interval95[1] {
				right++
			}
		}
	}
	if all < 1000 || float64(right) < 0.93*float64(all) {
		t.Errorf("%d of %d intervals are right", right, all)
	}
	t.Logf("%d of %d", right, all)

	q := Quantiles{Max: 63, Width: 1, Branching: 8}
	r = made(shuffledPath(), account.Options{Query: q, MinBatch: 150, Randomizer: Cloak{Kind: ModernCloak, Users: 400}, Epsilon: Decimal{8, 0}, Delta: Decimal{1, 4}})
	right, all = 0, 0
	for run := range 12 {
		m, shuffle := seeded(t, r, byte(run))
		answers, below := make([][]uint64, 200), make([]int, 65)
		for i := range answers {
			x := rng.Uint64N(40)
			answers[i] = []uint64{x}
			for v := x; v < 64; v++ {
				below[v]++
			}
		}
		tally := collected(t, m, shuffle, answers)
		d, err := r.Distribution(tally.Sums, tally.Reports)
		if err != nil {
			t.Fatal(err)
		}
		for i, decile := range d.Deciles {
			exact := uint64(0)
			for below[exact] < (i+1)*20 {
				exact++
			}
			if all++; exact >= decile.Interval95[0] && exact <= decile.Interval95[1] {
				right++
			}
		}
	}
	// Of 108 no more than 20 are wrong: 5.4 are expected, correlated within a batch.
	if all-right > 20 {
		t.Errorf("%d of %d deciles are within their intervals", right, all)
	}
}

// TestLaplaceTails: what is said of several draws of Laplace noise is the law by adding up 10^5
// draws, to a part that they are off by once in 10^8, and Chernoff's distance is beyond it.
func TestLaplaceTails(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 11))
	for _, n := range []int{1, 2, 3, 7, 20} {
		s := LaplaceSpread(math.Sqrt(2*float64(n)), 1, float64(n))
		const draws = 100_000
		within := s.Within(1e-3)
		out, far := 0, 0
		for range draws {
			x := 0.0
			for range n {
				x += rng.ExpFloat64() - rng.ExpFloat64()
			}
			if math.Abs(x) > s.Reach95 {
				out++
			}
			if math.Abs(x) > within {
				far++
			}
		}
		if off := math.Abs(float64(out) - .05*draws); off > 5.8*math.Sqrt(.05*.95*draws) {
			t.Errorf("%d draws: %d of %d are beyond the reach of 95 %%", n, out, draws)
		}
		if far > 160 { // 100 at most are expected
			t.Errorf("%d draws: %d of %d are beyond 10^-3", n, far, draws)
		}
	}
}

// TestHostileBlocks: of messages of two numbers each, the last with one and a zero, those that
// no device sends are not added to any block, and then the blocks are not as many as each
// other; nor are more contributions taken than there is room for.
func TestHostileBlocks(t *testing.T) {
	r := made(shuffledPath(), account.Options{Query: Histogram{Length: 5}, MinBatch: 20, Randomizer: Cloak{Kind: ModernCloak, Users: 60, Block: 2},
		Epsilon: Decimal{8, 0}, Delta: Decimal{1, 3}})
	m, rng := seeded(t, r, 3)
	var good [][]byte
	for range 20 {
		list, err := m.Messages([]uint64{rng.Uint64N(5)})
		if err != nil {
			t.Fatal(err)
		}
		good = append(good, list...)
	}
	if _, err := m.Tally(good); err != nil || m.MessageSize() != 3 {
		t.Fatalf("messages of %d bytes: %v", m.MessageSize(), err)
	}
	last := slices.IndexFunc(good, func(b []byte) bool { return b[0] == 2 })
	for name, b := range map[string][]byte{
		"no block": {3, 0, 0}, "another block": {1, 0, 0}, "a residue": {2, 0xff, 0}, "what is not there": {2, 0, 1}, "long": {2, 0, 0, 0}, "short": {2, 0}, "none": nil,
	} {
		list := slices.Clone(good)
		list[last] = b
		if got, err := m.Tally(list); !isOfMessages(err) || got.Sums != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	var many [][]byte
	for range 4 {
		many = append(many, good...)
	}
	e := new(MessagesError)
	if _, err := m.Tally(many); !errors.As(err, &e) || !strings.Contains(e.Problem, "more than 60 contributions") {
		t.Errorf("80 contributions of 60: %v", err)
	}
	if _, err := m.Tally(many[:60*m.MessagesPerContribution()]); err != nil {
		t.Errorf("60 contributions of 60: %v", err)
	}
}

// TestBlockChosen: the block that is chosen makes contributions as short as any does, but for
// 3 in 100, as not every one is tried.
func TestBlockChosen(t *testing.T) {
	for _, q := range []Query{Histogram{Length: 23}, SumVec{Length: 5, Max: 9}} {
		z := Cloak{Kind: ModernCloak, Users: 6000, Honest: 2000, Epsilon: Decimal{1, 0}, Delta: Decimal{1, 6}}
		chosen, err := z.Fit(q, 2000, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, _, got := chosen.Sizes(q)
		for z.Block = 1; int(z.Block) <= q.Aggregates(); z.Block++ {
			other, err := z.Fit(q, 2000, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, bytes := other.Sizes(q); float64(got) > 1.03*float64(bytes) {
				t.Errorf("%v: %d bytes in blocks of %d, %d of %d", q, got, chosen.Block, bytes, other.Block)
			}
		}
	}
}

// FuzzCloakMessage: a message that is taken is written as it was read.
func FuzzCloakMessage(f *testing.F) {
	r := made(shuffledPath(), account.Options{Query: Histogram{Length: 5}, MinBatch: 20, Randomizer: Cloak{Kind: ModernCloak, Users: 60, Block: 2},
		Epsilon: Decimal{8, 0}, Delta: Decimal{1, 3}})
	for _, b := range [][]byte{{0, 0, 0}, {1, 180, 7}, {2, 1, 0}, {2, 1, 1}, {3, 0, 0}, {0, 255, 0}, nil, {1}} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		again, ok, err := Rewrapped(r, b)
		if err != nil {
			t.Fatal(err)
		}
		if ok && !bytes.Equal(again, b) {
			t.Errorf("%x is read, and %x written", b, again)
		}
	})
}

// parted is a histogram that is collected in 5 batches.
func parted(t testing.TB) (*Recipe, Cloak) {
	t.Helper()
	r := made(shuffledPath(), account.Options{Query: Histogram{Length: 4}, MinBatch: 60, Randomizer: Cloak{Kind: ModernCloak, Users: 1000, Honest: 300, Parts: 5},
		Epsilon: Decimal{8, 0}, Delta: Decimal{1, 3}})
	return r, r.Randomizer.(Cloak)
}

// TestParts: a round that is collected in batches counts all of them; one that is missing,
// spoiled or far from the others is left out and named, and the estimate of all contributions
// holds the truth: of 60 rounds 4 numbers each, no interval of 4.9 deviations misses (false
// alarm 10^-6 of each of 240; seeds are fixed).
func TestParts(t *testing.T) {
	r, z := parted(t)
	if n := LeastOf(z); n < 20 || n > 40 {
		t.Fatalf("%d of 300 are sure to be in one of 5 batches", n)
	}
	from, to := r.PartRounds(7)
	if s, err := r.Shuffle(); err != nil || from != 40 || to != 45 || s.Length.Seconds() != 720 || s.MinBatch != 60 {
		t.Fatalf("rounds %d to %d of %v, %v", from, to, s, err)
	}
	spoil := map[string]struct {
		do   func(o *Outcome)
		why  LeftOut
		part int
	}{
		"nothing":  {func(*Outcome) {}, "", -1},
		"missing":  {func(o *Outcome) { *o = Outcome{Problem: MessagesMissing} }, LeftMissing, 2},
		"unusable": {func(o *Outcome) { *o = Outcome{Problem: MessagesUnusable} }, LeftUnusable, 0},
		"random":   {func(o *Outcome) { o.Tally.Sums[1] = 700 }, LeftApart, 4},
		"negative": {func(o *Outcome) { o.Tally.Sums[3] = -700 }, LeftApart, 3},
	}
	rng := rand.New(rand.NewPCG(12, 13))
	for run := range 12 {
		for name, c := range spoil {
			m, shuffle := seeded(t, r, byte(run))
			answers, exact, sizes := make([][][]uint64, 5), make([]float64, 4), 0
			for range 500 {
				part, x := rng.IntN(5), min(rng.Uint64N(4), rng.Uint64N(4))
				answers[part] = append(answers[part], []uint64{x})
				exact[x]++
			}
			var parts []Part
			for i, list := range answers {
				tally := collected(t, m, shuffle, list)
				o := Outcome{Tally: &tally}
				if i == c.part {
					c.do(&o)
				} else {
					sizes += len(list)
				}
				parts = append(parts, PartOf(i, uint64(len(list)), o))
			}
			j, err := r.Join(parts)
			if err != nil {
				t.Fatal(err)
			}
			if left := fmt.Sprint(j.Left); c.why == "" && j.Left != nil || c.why != "" && (len(j.Left) != 1 || j.Left[0].Why != c.why || j.Left[0].Number != c.part) ||
				int(j.Reports) != sizes || j.All != 500 {
				t.Fatalf("%s: left out %v, %d counted of %d", name, left, j.Reports, j.All)
			}
			e, err := r.EstimateJoined(j)
			if err != nil {
				t.Fatal(err)
			}
			if e.Devices < 499.9 || e.Devices > 500.1 {
				t.Errorf("%s: %v devices", name, e.Devices)
			}
			plain, err := r.Estimate(j.Sums, j.Reports)
			if err != nil {
				t.Fatal(err)
			}
			// Each is a share of as many as are sure to be in one batch.
			q := math.Exp(-8. / 2)
			if v := plain.StdDev[0] * plain.StdDev[0]; math.Abs(v/(float64(j.Reports)/float64(LeastOf(z))*2*q/((1-q)*(1-q)))-1) > 1e-3 {
				t.Errorf("%s: variance %v of the noise of %d", name, v, j.Reports)
			}
			for x, want := range exact {
				if in := e.Interval(x, 4.9); want < in[0] || want > in[1] {
					t.Errorf("%s: %v devices have %d, estimated %v", name, want, x, in)
				}
				if wider := e.StdDev[x] > 1.2*plain.StdDev[x]; wider != (c.why != "") {
					t.Errorf("%s: deviation %v, and %v of those counted alone", name, e.StdDev[x], plain.StdDev[x])
				}
			}
		}
	}
	none := []Part{{Number: 0, Why: LeftNone}, {Number: 1, Why: LeftNone}, {Number: 2, Why: LeftNone}, {Number: 3, Why: LeftNone}, {Number: 4, Why: LeftNone}}
	if _, err := r.Join(none); !isOfMessages(err) {
		t.Errorf("no batch: %v", err)
	}
	if _, err := r.Join(none[:3]); err == nil {
		t.Error("3 of 5 batches are joined")
	}
}

// TestPartsHonest: of 300 that are counted on and draw one of 5 batches each, in 20,000 rounds
// no more have fewer companions in the first one's batch than delta allows, by a binomial of
// which more has a probability below 10^-6.
func TestPartsHonest(t *testing.T) {
	_, z := parted(t)
	rng := rand.New(rand.NewPCG(14, 15))
	few := 0
	for range 20_000 {
		with := uint64(1)
		for range z.Honest - 1 {
			if rng.IntN(5) == 0 {
				with++
			}
		}
		if with < LeastOf(z) {
			few++
		}
	}
	if miss := 20_000 * z.Delta.FloatDown() / 2; float64(few) > miss+5*math.Sqrt(miss)+5 {
		t.Errorf("%d of 20,000 have fewer than %d, want %v", few, LeastOf(z), miss)
	}
}
