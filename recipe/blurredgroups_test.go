package recipe_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/dp/sketch"
	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// visitsOf is the answers of a crowd of n: numbers from Min to Max that lean to the first,
// in groups that get smaller.
func visitsOf(q GroupSums, rng *rand.Rand, n int) (answers [][]uint64, sums, sizes []float64) {
	sums, sizes = make([]float64, q.Groups+1), make([]float64, q.Groups+1)
	for range n {
		g := min(uint64(rng.ExpFloat64()*1.2), uint64(q.Groups)-1)
		v := min(q.Min+int64(rng.ExpFloat64()*float64(q.Max-q.Min)/4), q.Max)
		answers = append(answers, []uint64{uint64(v), g})
		for _, at := range []uint64{g, uint64(q.Groups)} {
			sums[at] += float64(v)
			sizes[at]++
		}
	}
	return answers, sums, sizes
}

// TestBlurredGroups: of what 6,000 devices send, mixed, each cell of the table is within
// 5.73 standard errors, which one is beyond once in 10^8 (of 200 cells once in 500,000, by
// seeds that are fixed); its 95 % interval is that of its standard error; and an analyzer
// of other probabilities, as a check that the test sees them, gets a table that is off.
func TestBlurredGroups(t *testing.T) {
	checked := 0
	for name, r := range messageVariants() {
		z, ok := r.Randomizer.(GroupRandomizer)
		if !ok {
			continue
		}
		q := r.Query.(GroupSums)
		m, rng := seeded(t, r, byte(len(name)))
		answers, sums, sizes := visitsOf(q, rng, 6000)
		tally := collected(t, m, rng, answers)
		table, err := r.GroupTable(tally.Sums, tally.Reports)
		if err != nil {
			t.Fatal(err)
		}
		asked := !strings.Contains(name, "of sums")
		worst := func(table *GroupTable) (off float64) {
			i := 0
			table.Each(func(row *GroupRow, what string, c *Cell) {
				at := i / 3
				i++
				want := map[string]float64{"sum": sums[at], "size": sizes[at], "mean": sums[at] / sizes[at]}[what]
				if last := at == int(q.Groups); !asked && what != "sum" && !last {
					if c.State != sketch.None || c.Known() || c.Bounded() {
						t.Errorf("%s: nobody was asked for the %s of %s: %+v", name, what, row.Group, c)
					}
					return
				}
				if what == "mean" && !c.Known() {
					if c.State != sketch.BelowDetection {
						t.Errorf("%s: a mean that is not known is %v", name, c.State)
					}
					return
				}
				checked++
				if c.Stderr > 0 {
					off = max(off, math.Abs(c.Estimate-want)/c.Stderr)
				} else if c.Estimate != want {
					t.Errorf("%s: exactly %v, want %v", name, c.Estimate, want)
				}
				if in := c.Interval95; what == "sum" && math.Abs((in[1]-in[0])/2/c.Stderr-Normal95) > 1e-9 {
					t.Errorf("%s: %+v", name, c)
				}
			})
			return off
		}
		if off := worst(table); off > 5.73 {
			t.Errorf("%s (%v): %v standard errors off: %+v", name, z, off, table)
		}
		other := *r
		other.Randomizer = z.At(Decimal{z.Local0().Coefficient, z.Local0().Scale + 1}) // a tenth
		if rg, is := other.Randomizer.(RandomizedGroup); is {
			rg.Lie = Decimal{35, 2}
			other.Randomizer = rg
		}
		if table, err := other.GroupTable(tally.Sums, tally.Reports); err != nil || !tells(table, sums) {
			t.Errorf("%s: another randomizer is not told, %v", name, err)
		}
	}
	if checked < 60 {
		t.Errorf("%d cells", checked)
	}
}

// tells says whether the sum of all is far from the truth, as one by other lies is.
func tells(table *GroupTable, sums []float64) bool {
	truth := sums[len(sums)-1]
	return math.Abs(table.Total.Sum.Estimate-truth) > 0.15*math.Abs(truth)
}

// TestAnswerBits: an answer is as long as paper 002 says, ceil(log2 2m) bits beside its
// nonce, and ceil(log2 2mk) of the randomized group: of all messages that have one nonce, or
// of all, and of those of two bytes of some, exactly as many are taken as there are answers, and they are the first, so that all
// bits above are zero; a device sends each of them.
func TestAnswerBits(t *testing.T) {
	for _, c := range []struct {
		z       GroupRandomizer
		q       GroupSums
		bits    int
		answers uint64
	}{
		{QA{Levels: 1, Asks: AskSums}, GroupSums{Max: 1, Groups: 2}, 1, 2},
		{QA{Levels: 1, Asks: AskSums}, GroupSums{Min: -1, Max: 1, Groups: 100}, 1, 2},
		{QA{Levels: 2, Asks: AskSums}, GroupSums{Max: 20, Groups: 4}, 2, 4},
		{QA{Levels: 3, Asks: AskSums}, GroupSums{Max: 20, Groups: 4}, 3, 6},
		{QA{Levels: 20, Asks: AskSums}, GroupSums{Max: 20, Groups: 3}, 6, 40},
		{QA{Levels: 128, Asks: AskSums}, GroupSums{Max: 1000, Groups: 3}, 8, 256},
		{QA{Levels: 129, Asks: AskSums}, GroupSums{Max: 1000, Groups: 3}, 9, 258},
		{RandomizedGroup{Levels: 1, Asks: AskSums}, GroupSums{Max: 20, Groups: 4}, 3, 8},
		{RandomizedGroup{Levels: 3, Asks: AskSums}, GroupSums{Max: 20, Groups: 5}, 5, 30},
		{RandomizedGroup{Levels: 40, Asks: AskSums}, GroupSums{Max: 40, Groups: 5}, 9, 400},
	} {
		r := made(directPath(), account.Options{Query: c.q, Randomizer: c.z.At(Decimal{1, 0}), MinBatch: 2})
		z := r.Randomizer.(GroupRandomizer)
		if z.Bits(c.q) != c.bits || math.Ceil(math.Log2(float64(c.answers))) != float64(c.bits) {
			t.Errorf("%v: %d bits, want %d", z, z.Bits(c.q), c.bits)
		}
		m, err := r.Messenger()
		if err != nil {
			t.Fatal(err)
		}
		nonce := 0
		if _, ok := z.(QA); ok {
			nonce = NonceSize
		}
		if m.MessageSize() != nonce+(c.bits+7)/8 || m.MessagesPerContribution() != 1 {
			t.Fatalf("%v: %d bytes", z, m.MessageSize())
		}
		good := [][]byte{make([]byte, m.MessageSize()), make([]byte, m.MessageSize())}
		if nonce > 0 {
			good[1][0] = 1 // another nonce
		}
		one := make([]byte, m.MessageSize())
		if nonce > 0 {
			one[0] = 2
		}
		for x := range uint64(1) << (8 * (m.MessageSize() - nonce)) {
			if x > c.answers+100 && x%997 != 0 {
				continue
			}
			for i := nonce; i < len(one); i++ {
				one[i] = byte(x >> (8 * (len(one) - 1 - i)))
			}
			got, err := m.Tally(append(good, one))
			if err != nil || (got.Reports == 3) != (x < c.answers) || got.Reports+got.Rejected != 3 {
				t.Fatalf("%v: answer %d: %+v, %v", z, x, got, err)
			}
		}
		seen := make(map[string]bool)
		for range 40 * min(c.answers, 40) {
			list, err := m.Messages([]uint64{1, 1})
			if err != nil {
				t.Fatal(err)
			}
			seen[string(list[0][nonce:])] = true
		}
		if c.answers <= 40 && len(seen) != int(c.answers) { // one is missed with probability below 1e-12
			t.Errorf("%v: devices send %d answers of %d", z, len(seen), c.answers)
		}
	}
}

// TestHostileAnswers: messages that are too short or too long, answers out of range, and
// columns that the question about sizes has not, count for nothing; of messages with one
// nonce one counts, whatever the order they come in; and one that counts moves the sum and
// the size of each group by no more than is said.
func TestHostileAnswers(t *testing.T) {
	for _, name := range []string{"direct qa", "shuffled qa", "direct qa of sums", "direct randomized group"} {
		r := *messageVariants()[name]
		r.MinBatch = 2
		q, z := r.Query.(GroupSums), r.Randomizer.(GroupRandomizer)
		m, rng := seeded(t, &r, 9)
		answers, _, _ := visitsOf(q, rng, 500)
		var all [][]byte
		for _, a := range answers {
			list, err := m.Messages(a)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, list...)
		}
		before, err := m.Tally(all)
		if err != nil {
			t.Fatal(err)
		}
		table, err := r.GroupTable(before.Sums, before.Reports)
		if err != nil {
			t.Fatal(err)
		}
		// What is none.
		for n := range 40 {
			if n == m.MessageSize() {
				continue
			}
			if got, err := m.Tally(append(slices.Clone(all), bytes.Repeat([]byte{0}, n))); err != nil || got.Rejected != 1 || !slices.Equal(got.Sums, before.Sums) {
				t.Errorf("%s: a message of %d bytes: %+v, %v", name, n, got, err)
			}
		}
		_, asks := z.(QA)
		if asks {
			twice := append(slices.Clone(all), all[3], all[3], all[7])
			rng.Shuffle(len(twice), func(i, j int) { twice[i], twice[j] = twice[j], twice[i] })
			if got, err := m.Tally(twice); err != nil || got.Rejected != 3 || got.Reports != 500 || !slices.Equal(got.Sums, before.Sums) {
				t.Errorf("%s: messages again: %+v, %v", name, got, err)
			}
			other := bytes.Clone(all[5])
			other[NonceSize] ^= 1
			first, err1 := m.Tally(append(slices.Clone(all), other))
			last, err2 := m.Tally(append([][]byte{other}, all...))
			if errors.Join(err1, err2) != nil || first.Rejected != 1 || !slices.Equal(first.Sums, last.Sums) {
				t.Errorf("%s: another answer to one nonce: %+v and %+v", name, first, last)
			}
		}
		// What counts, of 300 messages that a liar may send.
		sum, size := spoils(t, &r)
		most := 0.0
		for range 300 {
			b := make([]byte, m.MessageSize())
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			if asks {
				for i := NonceSize; i < len(b); i++ {
					b[i] = 0
				}
				b[len(b)-1] = byte(rng.IntN(2))
			} else {
				b[len(b)-1] = byte(rng.IntN(2 * int(z.Rounded()) * int(q.Groups)))
			}
			after, err := m.Tally(append(slices.Clone(all), b))
			if err != nil || after.Reports != 501 {
				t.Fatalf("%s: %+v, %v", name, after, err)
			}
			liar, err := r.GroupTable(after.Sums, after.Reports)
			if err != nil {
				t.Fatal(err)
			}
			for g := range liar.Groups {
				moved := math.Abs(liar.Groups[g].Sum.Estimate - table.Groups[g].Sum.Estimate)
				// That there are 501 reports and not 500 moves what half of them say, and it
				// is not quite half that were asked.
				slack := 0.02*math.Abs(table.Groups[g].Sum.Estimate) + 0.2*sum
				if !asks || z.(QA).Asks == AskSums {
					slack = 1e-3 * sum // what is said is rounded
				}
				if most = max(most, moved); moved > sum+slack {
					t.Errorf("%s: one message moves a sum by %v, more than %v", name, moved, sum)
				}
				if size > 0 {
					if moved := math.Abs(liar.Groups[g].Size.Estimate - table.Groups[g].Size.Estimate); moved > 1.2*size+0.02*500 {
						t.Errorf("%s: one message moves a size by %v, more than %v", name, moved, size)
					}
				}
			}
		}
		if most < sum/3 {
			t.Errorf("%s: messages move sums by %v at most, and %v is said", name, most, sum)
		}
	}
	// A column that only the question about numbers has.
	r := made(directPath(), account.Options{Query: GroupSums{Max: 20, Groups: 2}, Randomizer: QA{Epsilon0: Decimal{3, 0}, Levels: 4, Asks: AskSizes}, MinBatch: 2})
	m, rng := seeded(t, r, 4)
	taken, n := 0, 1000
	for range n {
		b := make([]byte, m.MessageSize())
		for i := range NonceSize {
			b[i] = byte(rng.Uint32())
		}
		b[NonceSize] = 7
		if got, err := m.Tally([][]byte{b, make([]byte, 17), append([]byte{1}, make([]byte, 16)...)}); err != nil {
			t.Fatal(err)
		} else if got.Reports == 3 {
			taken++
		}
	}
	if off := math.Abs(float64(taken)-float64(n)/2) / math.Sqrt(float64(n)/4); off > 5.5 {
		t.Errorf("of column 7 %d in %d are taken, want the half that is about numbers", taken, n)
	}
}

// spoils is what is said of one that lies.
func spoils(t *testing.T, r *Recipe) (sum, size float64) {
	t.Helper()
	var text strings.Builder
	if err := describe(r, &text); err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(text.String())
	number := func(after ...string) float64 {
		for i := range words {
			if i+len(after)+1 < len(words) && slices.Equal(words[i:i+len(after)], after) {
				at := i + len(after)
				if words[at] == "about" {
					at++
				}
				return decimalOf(t, strings.TrimRight(words[at], ","))
			}
		}
		return 0
	}
	return number("moves", "the", "sum", "of", "a", "group", "by"), number("and", "its", "size", "by")
}

func decimalOf(t *testing.T, s string) float64 {
	t.Helper()
	d, err := ParseDecimal(s)
	if err != nil {
		t.Fatal(err)
	}
	return d.Float()
}

// TestHostileTallies: numbers of a tally that answers cannot have are refused by who reads
// a result, and none ends a program.
func TestHostileTallies(t *testing.T) {
	for _, name := range []string{"direct qa", "direct qa of sums", "direct randomized group"} {
		r := messageVariants()[name]
		m, rng := seeded(t, r, 11)
		answers, _, _ := visitsOf(r.Query.(GroupSums), rng, 1000)
		tally := collected(t, m, rng, answers)
		if _, err := r.GroupTable(tally.Sums, tally.Reports); err != nil {
			t.Fatal(err)
		}
		if m.Sums() != len(tally.Sums) {
			t.Errorf("%s: %d numbers, want %d", name, len(tally.Sums), m.Sums())
		}
		refused := 0
		for i := range tally.Sums {
			for _, x := range []int64{math.MinInt64, math.MaxInt64, -1 << 40, 1 << 40, -1} {
				sums := slices.Clone(tally.Sums)
				sums[i] = x
				if _, err := r.GroupTable(sums, tally.Reports); err != nil {
					refused++
				} else if x != -1 {
					t.Errorf("%s: number %d may be %d", name, i, x)
				}
			}
		}
		if refused < 4*len(tally.Sums) {
			t.Errorf("%s: %d refused", name, refused)
		}
		for _, n := range []int{0, len(tally.Sums) - 1, len(tally.Sums) + 1} {
			if _, err := r.GroupTable(make([]int64, n), 1000); err == nil {
				t.Errorf("%s: %d numbers", name, n)
			}
		}
		for _, n := range []uint64{0, 1, 999_999_999_999, math.MaxUint64} {
			if _, err := r.GroupTable(tally.Sums, n); err == nil {
				t.Errorf("%s: of %d reports", name, n)
			}
		}
	}
}

// TestBlurredGroupsRecipe: bytes, JSON and words of both randomizers, what account.New
// chooses, and the guarantee: epsilon of one answer on the direct path, and behind hops as
// any report of that epsilon.
func TestBlurredGroupsRecipe(t *testing.T) {
	all := messageVariants()
	for name, want := range map[string]string{
		"direct qa":               "06" + "000e" + "000000000000000100" + "00000001" + "02",
		"direct qa of sums":       "06" + "000e" + "000000000000000200" + "00000005" + "01",
		"direct randomized group": "07" + "0020" + "000000000000000300" + "00000001" + "02",
	} {
		if b := hex.EncodeToString(mustAppend(t, all[name])); !strings.Contains(b, want) {
			t.Errorf("%s: no %s in %s", name, want, b)
		}
	}
	r := all["direct qa"]
	if z := r.Randomizer.(QA); z.Levels != 1 {
		t.Errorf("%+v", z)
	}
	js, err := marshal(r)
	if err != nil || !bytes.Contains(js, []byte(`"randomizer":{"type":"qa","params":{"asks":"sizes","epsilon0":"1","levels":1}`)) {
		t.Errorf("%s, %v", js, err)
	}
	for name, list := range map[string][]string{
		"direct qa": {"has the 2 values that a number is rounded to at random", "with probability 0.2689, of another", "half of the devices", "an answer has 1 bit",
			"conditional, and charged nowhere", "the sum, the size and the mean", "of a group below", "1 message of 17 bytes"},
		"direct qa of sums":       {"of sizes nothing is asked", "the result is the sum of each group", "sizes and means are not told", "an answer has 4 bits"},
		"direct randomized group": {"names its group and that value", "randomized group, epsilon 3", "1 message of 1 byte", "and its size by"},
	} {
		var text strings.Builder
		if err := describe(all[name], &text); err != nil {
			t.Fatal(err)
		}
		words := strings.Join(strings.Fields(text.String()), " ")
		for _, want := range list {
			if !strings.Contains(words, want) {
				t.Errorf("%s lacks %q:\n%s", name, want, text.String())
			}
		}
	}
	if strings.Contains(all["direct randomized group"].Randomizer.String(), "conditional") {
		t.Error("the randomized group speaks of conditions")
	}
	for name, epsilon := range map[string]float64{"direct qa": 1, "direct qa of sums": 4, "direct randomized group": 3} { // two rounds
		g, err := account.Guarantee(all[name])
		if err != nil || g.Epsilon > epsilon*1.0001 || g.Epsilon < epsilon*0.9 || len(g.Conditions) != 0 || g.Neighbours != release.ReplaceOne {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
	for name, report := range map[string]release.Report{"shuffled qa": release.AnyReport(1), "shuffled randomized group": release.AnyReport(3)} {
		g, err := account.Guarantee(all[name])
		if err != nil {
			t.Fatal(err)
		}
		is, _ := report.Premise()
		if g.Unconditional.Epsilon < is.Epsilon0 || g.Unconditional.Epsilon > is.Epsilon0*1.001 || g.Epsilon >= 0.8*is.Epsilon0 || len(g.Conditions) != 1 {
			t.Errorf("%s: %v, without a crowd %v, on %q", name, g.Loss, g.Unconditional, g.Conditions)
		}
	}
	g, err := account.Guarantee(all["calibrated qa"])
	if err != nil || g.Epsilon > 1 || g.Epsilon < 0.99 || g.Unconditional.Epsilon < 2 {
		t.Errorf("calibrated: %+v, %v", g, err)
	}
	z, q := all["direct qa"].Randomizer.(QA), GroupSums{Max: 20, Groups: 4}
	few, err1 := z.Errors(q, Normal95, 1000)
	many, err2 := z.Errors(q, Normal95, 4000)
	if errors.Join(err1, err2) != nil || math.Abs(many.Sum/few.Sum-2) > 1e-9 || math.Abs(few.Mean/many.Mean-2) > 1e-9 || few.Members != 250 {
		t.Errorf("%+v and %+v", few, many)
	}
}

// TestBlurredGroupsRefused: what goes with neither randomizer.
func TestBlurredGroupsRefused(t *testing.T) {
	one, all := Decimal{1, 0}, messageVariants()
	change := func(name string, f func(r *Recipe)) *Recipe {
		r := *all[name]
		f(&r)
		return &r
	}
	qa := QA{Epsilon0: one, Levels: 1, Asks: AskSizes}
	rg := all["direct randomized group"].Randomizer.(RandomizedGroup)
	for what, c := range map[string]struct {
		r     *Recipe
		field string
	}{
		"two servers": {change("direct qa", func(r *Recipe) {
			r.Path = TwoServer{Leader: "https://leader.example/", Helper: "https://helper.example/", BatchMode: 1}
		}), "randomizer"},
		"a histogram":       {change("direct qa", func(r *Recipe) { r.Query, r.Labels = WithChunk(Histogram{Length: 4}), nil }), "query"},
		"no epsilon":        {change("direct qa", func(r *Recipe) { r.Randomizer = QA{Levels: 1, Asks: AskSizes} }), "randomizer.epsilon0"},
		"no levels":         {change("direct qa", func(r *Recipe) { r.Randomizer = QA{Epsilon0: one, Asks: AskSizes} }), "randomizer.levels"},
		"too many levels":   {change("direct qa", func(r *Recipe) { r.Randomizer = QA{Epsilon0: one, Levels: 21, Asks: AskSizes} }), "randomizer.levels"},
		"levels beyond all": {change("direct qa", func(r *Recipe) { r.Randomizer = QA{Epsilon0: one, Levels: math.MaxUint32, Asks: AskSizes} }), "randomizer.levels"},
		"nothing asked":     {change("direct qa", func(r *Recipe) { r.Randomizer = QA{Epsilon0: one, Levels: 1} }), "randomizer.asks"},
		"too many groups":   {change("direct qa", func(r *Recipe) { r.Query, r.Labels = WithChunk(GroupSums{Max: 1, Groups: 40000}), nil }), "query"},
		"noise":             {change("direct qa", func(r *Recipe) { r.Noise = EachDraws(Rational{Num: 9, Den: 1}) }), "noise"},
		"randomized by less": {change("direct qa", func(r *Recipe) {
			r.Query, r.Labels = GroupSums{Max: 20, Groups: 4, Chunk: 9}, nil
			r.Randomizer = RandomizedGroup{Epsilon0: one, Levels: 1, Asks: AskSizes, Stray: Decimal{1, 1}, Lie: Decimal{1, 1}}
		}), "randomizer.epsilon0"},
		"no probabilities": {change("direct randomized group", func(r *Recipe) { z := rg; z.Stray, z.Lie = Decimal{}, Decimal{}; r.Randomizer = z }), "randomizer.epsilon0"},
		"not shortest":     {change("direct randomized group", func(r *Recipe) { z := rg; z.Lie = Decimal{20, 2}; r.Randomizer = z }), "randomizer"},
		"always another":   {change("direct randomized group", func(r *Recipe) { z := rg; z.Stray = one; r.Randomizer = z }), "randomizer"},
		"sizes untold":     {change("direct randomized group", func(r *Recipe) { z := rg; z.Stray = Decimal{8, 1}; r.Randomizer = z }), "randomizer.stray"},
		"coins": {change("direct qa", func(r *Recipe) {
			r.Participation, r.Randomizer = Bernoulli{Rational{Num: 1, Den: 2}}, qa
		}), "query"},
	} {
		found := false
		for _, err := range split(c.r.Sound(true)) {
			found = found || isInvalid(err, c.field)
		}
		if !found {
			t.Errorf("%s: %v, want %s", what, c.r.Sound(true), c.field)
		}
	}
	for _, s := range []string{"qa:x", "qa:1:0", "qa:1:x", "qa:1:2:all", "qa:1:2:sums:4", "randomized-group:1:-1"} {
		if z, err := ParseRandomizer(s); err == nil {
			t.Errorf("%s is %v", s, z)
		}
	}
	for s, want := range map[string]Randomizer{
		"qa": QA{Asks: AskSizes}, "qa:1": QA{Epsilon0: one, Asks: AskSizes}, "qa:1:3": QA{Epsilon0: one, Levels: 3, Asks: AskSizes},
		"qa:1::sums": QA{Epsilon0: one, Asks: AskSums}, "qa::2:sums": QA{Levels: 2, Asks: AskSums}, "randomized-group:1:3:sizes": RandomizedGroup{Epsilon0: one, Levels: 3, Asks: AskSizes},
	} {
		if z, err := ParseRandomizer(s); err != nil || z != want {
			t.Errorf("%s is %+v, %v", s, z, err)
		}
	}
	if _, err := account.New(account.Options{Name: "x", Query: GroupSums{Max: 1, Groups: 2}, Randomizer: QA{Asks: AskSums}, Path: directPath(), MinBatch: 10}); !isInvalid(err, "randomizer.epsilon0") {
		t.Errorf("no epsilon at all: %v", err)
	}
}

// split are the errors that were joined.
func split(err error) []error {
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		return list.Unwrap()
	}
	return []error{err}
}

// TestBlurredGroupsCountAnswers: the number of reports is that of the devices in all groups,
// and every answer of the randomized group names one; so a device without an answer makes no
// report, on either path, as it makes none for sums by group with proofs. (Uniform answers of
// 10,000 such devices beside 10,000 in the first group told of 2,500 in each of four groups
// more, and doubled the sum of all.)
func TestBlurredGroupsCountAnswers(t *testing.T) {
	tried := 0
	for name, r := range messageVariants() {
		if _, ok := r.Randomizer.(GroupRandomizer); !ok {
			continue
		}
		m, err := r.Messenger()
		if err != nil {
			t.Fatal(err)
		}
		if made, err := m.Messages(nil); !r.Whole() || made != nil || !errors.As(err, new(*AnswerError)) {
			t.Errorf("%s: a device without an answer sends %x, %v", name, made, err)
		}
		tried++
	}
	if tried < 4 {
		t.Errorf("%d recipes", tried)
	}
}
