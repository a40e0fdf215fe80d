package recipe_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dp/sketch"
	. "github.com/starling-agg/starling/recipe"
)

func hitters(t *testing.T, text string) HeavyHitters {
	t.Helper()
	q, err := ParseQuery("hitters:" + text)
	if err != nil {
		t.Fatal(err)
	}
	return WithChunk(q).(HeavyHitters)
}

// TestHittersTyped: what is typed is the sketch, planned or stated.
func TestHittersTyped(t *testing.T) {
	if q := hitters(t, "a-c.0-2-:4:1:2:300:9"); q != (HeavyHitters{"abc.012-", 4, 1, 2, 300, 9, q.Chunk}) {
		t.Errorf("%+v", q)
	}
	if q := hitters(t, "a-z:8:20"); q.Letters != 8 || q.Checks != 2 || q.Aggregates() > 1<<17 || q.Width < 64*20 {
		t.Errorf("%+v", q)
	}
	for _, bad := range []string{"", "a-z", "a-z:8", "a-z:8:x", "a-z:8:1:2:3", "z-a:8:20", "a-\U0010ffff:8:20", "a-z:300:1:2:300:9", "a-z:8:20:1:1:1:1", "a-z:64:100000"} {
		if q, err := ParseQuery("hitters:" + bad); err == nil {
			t.Errorf("%q is %+v", bad, q)
		}
	}
}

func TestHittersRefused(t *testing.T) {
	good := HeavyHitters{"abc", 4, 1, 2, 300, 9, 5}
	for name, change := range map[string]func(q *HeavyHitters){
		"no letters":         func(q *HeavyHitters) { q.Alphabet = "" },
		"a letter twice":     func(q *HeavyHitters) { q.Alphabet = "aba" },
		"a mark that joins":  func(q *HeavyHitters) { q.Alphabet = "ab\u0308" },
		"hidden letters":     func(q *HeavyHitters) { q.Alphabet = "ab\u202e" },
		"not UTF-8":          func(q *HeavyHitters) { q.Alphabet = "ab\xff" },
		"many letters":       func(q *HeavyHitters) { q.Alphabet = string(slices.Collect(runes(300))) },
		"texts of nothing":   func(q *HeavyHitters) { q.Letters = 0 },
		"long texts":         func(q *HeavyHitters) { q.Letters = 65 },
		"no step":            func(q *HeavyHitters) { q.Step = 0 },
		"a step too far":     func(q *HeavyHitters) { q.Step = 5 },
		"no row of texts":    func(q *HeavyHitters) { q.Checks = 0 },
		"one cell":           func(q *HeavyHitters) { q.Width = 1 },
		"too many cells":     func(q *HeavyHitters) { q.Width = MaxElements/5 + 1 },
		"as many as can be":  func(q *HeavyHitters) { q.Width = math.MaxUint32 },
		"a chunk of nothing": func(q *HeavyHitters) { q.Chunk = 0 },
	} {
		r, q := doctor(), good
		change(&q)
		r.Query = q
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "query.") {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := doctor()
	r.Query, r.Noise = good, DiscreteGaussian{Variance: Rational{Num: 4000, Den: 1}, Share: DrawsAll}
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
}

func runes(n int) func(yield func(rune) bool) {
	return func(yield func(rune) bool) {
		for i := range n {
			if !yield(rune('\u4e00' + i)) {
				return
			}
		}
	}
}

// TestHittersSpell: texts of the alphabet are answers, of which the first letters count, and
// others are none.
func TestHittersSpell(t *testing.T) {
	q := HeavyHitters{"abö", 3, 1, 2, 300, 9, 5}
	for text, want := range map[string][]uint64{"": {0, 0, 0}, "b": {2, 0, 0}, "aöb": {1, 3, 2}, "ao\u0308b": {1, 3, 2}, "abab": {1, 2, 1}} {
		got, ok := q.Spell(text)
		if !ok || !slices.Equal(got, want) || !q.Holds(got) {
			t.Errorf("%q is %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"c", "abc", "A", " ", "a b", "ababc"} {
		if got, ok := q.Spell(text); ok {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// TestHittersTable: of 4,000 people's texts those are found that many have, with their counts
// within five deviations, and those that are asked for are counted, in all kinds of noise.
func TestHittersTable(t *testing.T) {
	r := rand.New(rand.NewPCG(61, 62))
	q := hitters(t, "a-z:6:10")
	counts := map[string]int{"robin": 900, "robins": 600, "wren": 500, "a": 1200, "": 300}
	var texts []string
	for text, n := range counts {
		texts = append(texts, slices.Repeat([]string{text}, n)...)
	}
	for range 500 {
		texts = append(texts, string([]byte{byte('a' + r.IntN(26)), byte('a' + r.IntN(26)), byte('a' + r.IntN(26)), 'q'}))
	}
	still := marked(t, q, texts, quiet)
	for _, noise := range []Noise{EachDraws(Rational{Num: 400, Den: 1}), DiscreteLaplace{Scale: Rational{Num: 14, Den: 1}}} {
		x := doctor()
		x.Query, x.Noise = q, noise
		draw := func() int64 { return int64(math.Round(28 * r.NormFloat64())) }
		if _, laplace := noise.(DiscreteLaplace); laplace {
			draw = func() int64 {
				return int64(math.Round(14 * (r.ExpFloat64() - r.ExpFloat64() + r.ExpFloat64() - r.ExpFloat64())))
			}
		}
		sums := slices.Clone(still)
		for i := range sums {
			sums[i] += draw()
		}
		table, err := x.Table(sums, uint64(len(texts)), []string{"robin", "sparro", "Wren"})
		if err != nil {
			t.Fatal(err)
		}
		n := len(table.Rows) - 3
		for _, c := range table.Rows[:n] {
			if off := math.Abs(c.Cell.Estimate - float64(counts[c.Label])); off > 5*c.Cell.Stderr || c.Cell.State != sketch.Value {
				t.Errorf("%v: %+v", noise, c)
			}
		}
		asked := table.Rows[n:]
		if n != len(counts) || table.Rows[0].Label != "a" || asked[0].Cell.State != sketch.Value || math.Abs(asked[0].Cell.Estimate-900) > 5*asked[0].Cell.Stderr ||
			math.Abs(asked[1].Cell.Estimate) > 5*asked[1].Cell.Stderr || asked[2].Cell.State != sketch.None || asked[2].Cell.Known() {
			t.Errorf("%v: %+v", noise, table.Rows)
		}
		b, err := json.Marshal(table)
		if err != nil || !strings.Contains(string(b), `"false_finds":0.05`) || table.Search.Narrow || table.Search.Threshold < 3*table.Rows[0].Cell.Stderr {
			t.Errorf("%s, %v", b, err)
		}
		if text := ExpectedErrors(x); !strings.Contains(text, "is found with probability 95 %; noise has any found that nobody has with probability 5 % at most, and where more than 29 texts are frequent rare ones") {
			t.Error(text)
		}
	}
	if _, err := (&Recipe{Query: q, Noise: NoNoise{}}).Table(make([]int64, 5), 10, nil); err == nil {
		t.Error("five sums")
	}
}

// TestHittersAskedFor: a sketch of one row counts what is asked for, and finds nothing.
func TestHittersAskedFor(t *testing.T) {
	q := hitters(t, "a-z:20:20:1:5000:0")
	x := &Recipe{Query: q, Noise: NoNoise{}}
	texts := slices.Concat(slices.Repeat([]string{"a text"[:1]}, 7), slices.Repeat([]string{"other"}, 20))
	table, err := x.Table(marked(t, q, texts, quiet), uint64(len(texts)), []string{"a", "other", "none"})
	if err != nil || table.Search != nil || len(table.Rows) != 3 || q.VDAFConfig() == nil {
		t.Fatalf("%+v, %v", table, err)
	}
	for i, want := range []float64{7, 20, 0} {
		if math.Abs(table.Rows[i].Cell.Estimate-want) > .1 {
			t.Errorf("%+v, want %v", table.Rows[i], want)
		}
	}
	if text := ExpectedErrors(x); !strings.Contains(text, "a device marks 1 of 5000") || strings.Contains(text, "found") || !strings.Contains(q.String(), "asked for") {
		t.Error(q.String(), text)
	}
}
