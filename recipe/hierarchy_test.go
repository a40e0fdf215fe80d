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

// tree is a hierarchy as it is typed.
func tree(t *testing.T, text string) Hierarchy {
	t.Helper()
	q, err := ParseQuery("hierarchy:" + text)
	if err != nil {
		t.Fatal(err)
	}
	return WithChunk(q).(Hierarchy)
}

const regions = "north(east,west(1,2,*3)),south(a,b),*elsewhere"

// marked are the sums of texts that devices answer with, and noise.
func marked(t *testing.T, q Tabled, texts []string, noise func() int64) []int64 {
	t.Helper()
	sums := make([]int64, q.Aggregates())
	for i := range sums {
		sums[i] = noise()
	}
	for _, text := range texts {
		numbers, ok := q.Spell(text)
		if !ok || !q.Holds(numbers) {
			t.Fatalf("%q is no answer", text)
		}
		for i, mark := range q.Marks(numbers) {
			if mark {
				sums[i]++
			}
		}
	}
	return sums
}

// TestHierarchyMarks: each leaf marks itself and all above it, which is one place of each
// level down to its own.
func TestHierarchyMarks(t *testing.T) {
	q := tree(t, regions)
	want := map[string]string{
		"north/east": "110000000000", "north/west/1": "101100000000", "north/west/2": "101010000000", "north/west/3": "101001000000",
		"south/a": "000000110000", "south/b": "000000101000", "elsewhere": "000000000100",
	}
	for text, marks := range want {
		numbers, ok := q.Spell(text)
		if !ok || !q.Holds(numbers) {
			t.Fatalf("%q is no answer", text)
		}
		got := ""
		for _, mark := range q.Marks(numbers) {
			got += map[bool]string{true: "1", false: "0"}[mark]
		}
		if got != marks[:len(q.Places)] {
			t.Errorf("%q marks %s, want %s", text, got, marks[:len(q.Places)])
		}
	}
	if q.Holds([]uint64{7}) || q.Holds([]uint64{0, 0}) || q.Holds(nil) || !q.Holds([]uint64{6}) {
		t.Error("numbers of leaves")
	}
}

// TestHierarchySpell: what is not named goes to everything else where there is such a
// place, and is refused where there is none.
func TestHierarchySpell(t *testing.T) {
	q := tree(t, regions)
	spelled := func(text string) int {
		if n, ok := q.Spell(text); ok {
			return int(n[0])
		}
		return -1
	}
	for text, want := range map[string]int{
		"north": -1, "north/": -1, "north/middle": -1, "north/east/x": -1, "north/west": 3, "north/west/": 3, "north/west/9": 3, "north/west/9/x": 3,
		"north/west/3/x": 3, "south": -1, "south/c": -1, "east": 6, "": 6, "mars/a": 6, "elsewhere/x": 6, "North/east": 6, "south/b": 5,
	} {
		if got := spelled(text); got != want {
			t.Errorf("%q is leaf %d, want %d", text, got, want)
		}
	}
	if q = tree(t, "Zaunko\u0308nig,b"); spelled("Zaunk\u00f6nig") != 0 || spelled("c") != -1 || spelled("") != -1 {
		t.Error("leaves without a rest")
	}
}

// TestHierarchyTyped: what is typed is the tree, and what is no tree is refused.
func TestHierarchyTyped(t *testing.T) {
	q := tree(t, "12: x ( y , *z ) ,\n w")
	want := []TreePlace{{1, "x", false}, {2, "y", false}, {2, "z", true}, {1, "w", false}}
	if q.Floor != 12 || !slices.Equal(q.Places, want) {
		t.Errorf("%+v", q)
	}
	for _, bad := range []string{"", "a,", ",a", "a(b", "a)b", "a(b))", "()", "a()", "a(b)c", "a(b)(c)", "a,*", "-1:a,b", "x:a,b", "a((b))",
		strings.Repeat("a(", 20) + "b" + strings.Repeat(")", 20), strings.Repeat("a,", MaxPlaces) + "a"} {
		if got, err := ParseQuery("hierarchy:" + bad); err == nil {
			t.Errorf("%.40q is %+v", bad, got)
		}
	}
}

// TestHierarchyRefused: trees that say nothing or two things.
func TestHierarchyRefused(t *testing.T) {
	long := strings.Repeat("x", MaxLabel+1)
	for name, q := range map[string]Hierarchy{
		"nothing":           {},
		"one place":         {Places: []TreePlace{{1, "a", false}}},
		"an only child":     tree(t, "a(b),c"),
		"an only top":       tree(t, "a(b,c)"),
		"twins":             tree(t, "a,a"),
		"a slash":           tree(t, "a/b,c"),
		"a long name":       tree(t, long+",c"),
		"no name":           {Places: []TreePlace{{1, "", false}, {1, "b", false}}},
		"not in NFC":        {Places: []TreePlace{{1, "o\u0308", false}, {1, "b", false}}},
		"hidden characters": tree(t, "a\u202e,b"),
		"two rests":         tree(t, "*a,*b"),
		"a rest in front":   tree(t, "*a,b"),
		"below the rest":    tree(t, "a,*b(c,d)"),
		"a hole in depth":   {Places: []TreePlace{{1, "a", false}, {3, "b", false}, {3, "c", false}, {1, "d", false}}},
		"depth 0":           {Places: []TreePlace{{0, "a", false}, {1, "b", false}}},
		"a deep beginning":  {Places: []TreePlace{{2, "a", false}, {1, "b", false}}},
		"a chunk of 0":      {Places: []TreePlace{{1, "a", false}, {1, "b", false}}},
	} {
		r := doctor()
		if r.Query = WithChunk(q); name == "a chunk of 0" {
			r.Query = q
		}
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "query") {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := doctor()
	r.Query = tree(t, regions)
	r.Noise = DiscreteGaussian{Variance: Rational{Num: 4000, Den: 1}, Share: DrawsAll}
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
	r.Unit = &Unit{Name: UnitDevice, Records: 3, Reduce: ClippedSum}
	if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "unit.reduce") {
		t.Errorf("leaves are added up: %v", err)
	}
}

// TestExactTable: without noise all cells are the counts by counting, and none is in doubt.
func TestExactTable(t *testing.T) {
	q := tree(t, regions)
	r := doctor()
	r.Query, r.Noise = q, NoNoise{}
	texts := slices.Concat(slices.Repeat([]string{"north/east"}, 5), slices.Repeat([]string{"north/west/2"}, 3), []string{"south/a", "moon"})
	table, err := r.Table(marked(t, q, texts, quiet), uint64(len(texts)), []string{"north", "north/west/2", "south/c", "sou", "elsewhere"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"north": 8, "north/east": 5, "north/west": 3, "north/west/2": 3, "south": 1, "south/a": 1, "elsewhere": 1}
	for i, c := range table.Rows[:len(q.Places)] {
		if math.Abs(c.Cell.Estimate-want[c.Label]) > 1e-9 || c.Cell.Stderr != 0 || c.Cell.State != sketch.Value || c.Level != 1+strings.Count(c.Label, "/") || c.Level != int(q.Places[i].Depth) {
			t.Errorf("%+v", c)
		}
	}
	asked := table.Rows[len(q.Places):]
	if len(asked) != 5 || asked[0].Cell.Estimate < 7.9 || asked[1].Cell.Estimate < 2.9 || asked[2].Cell.State != sketch.None || asked[3].Cell.State != sketch.None || asked[4].Cell.Estimate < .9 {
		t.Errorf("%+v", asked)
	}
	q.Floor = 3
	r.Query = q
	table, err = r.Table(marked(t, q, texts, quiet), uint64(len(texts)), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range table.Rows {
		hidden := c.Cell.State == sketch.Suppressed
		if hidden == slices.Contains([]string{"north", "north/east", "north/west", "north/west/2"}, c.Label) || hidden && (c.Cell.Known() || c.Cell.Bounded()) {
			t.Errorf("%+v", c)
		}
	}
	b, err := json.Marshal(table)
	if err != nil || !strings.Contains(string(b), `{"label":"south/a","level":2,"cell":{"state":"suppressed"}}`) ||
		!strings.Contains(string(b), `{"label":"north","level":1,"cell":{"state":"value","estimate":8,"stderr":0,"interval95":[8,8]}}`) {
		t.Errorf("%s, %v", b, err)
	}
	if _, err := r.Table(make([]int64, 3), 10, nil); err == nil {
		t.Error("three sums of ten places")
	}
	if table, err := doctor().Table(make([]int64, 21), 10, nil); table != nil || err != nil {
		t.Errorf("%v, %v", table, err)
	}
}

// TestNoisyTable: over 2,000 draws of both servers' noise cells add up, the 95 % interval of
// no cell leaves its count out more than 155 times, whichever the noise (100 are expected;
// over 10 cells a false alarm has probability below 1e-6), deviations are those that are
// seen, to 10 %, and of a place where nobody is nearly all draws say that nobody is seen.
func TestNoisyTable(t *testing.T) {
	const runs, allowed = 2000, 155
	r := rand.New(rand.NewPCG(31, 32))
	q := tree(t, regions)
	texts := slices.Concat(slices.Repeat([]string{"north/east"}, 900), slices.Repeat([]string{"north/west/1"}, 300), slices.Repeat([]string{"south/b"}, 500))
	still := marked(t, q, texts, quiet)
	for _, noise := range []Noise{EachDraws(Rational{Num: 300, Den: 1}), DiscreteLaplace{Scale: Rational{Num: 12, Den: 1}}} {
		x := doctor()
		x.Query, x.Noise = q, noise
		draw := func() float64 { return r.NormFloat64() * noise.Spread().Deviation / math.Sqrt2 }
		if _, laplace := noise.(DiscreteLaplace); laplace {
			draw = func() float64 { return 12 * (r.ExpFloat64() - r.ExpFloat64()) }
		}
		missed, square, seen := make([]int, len(still)), make([]float64, len(still)), make([]int, len(still))
		var table *Table
		for range runs {
			sums := slices.Clone(still)
			for i := range sums {
				sums[i] += int64(math.Round(draw() + draw()))
			}
			var err error
			if table, err = x.Table(sums, uint64(len(texts)), nil); err != nil {
				t.Fatal(err)
			}
			tops := 0.0
			for i, c := range table.Rows {
				if off := c.Cell.Estimate - float64(still[i]); off != 0 {
					square[i] += off * off / runs
				}
				if v := float64(still[i]); v < c.Cell.Interval95[0] || v > c.Cell.Interval95[1] {
					missed[i]++
				}
				if c.Cell.State == sketch.Value {
					seen[i]++
				}
				if c.Level == 1 {
					tops += c.Cell.Estimate
				}
			}
			if math.Abs(tops-float64(len(texts))) > 1e-6 {
				t.Fatalf("the top adds up to %v of %d", tops, len(texts))
			}
		}
		for i, c := range table.Rows {
			if missed[i] > allowed {
				t.Errorf("%v: the interval of %s leaves out the truth %d times in %d", noise, c.Label, missed[i], runs)
			}
			if got := math.Sqrt(square[i]); math.Abs(got/c.Cell.Stderr-1) > 0.1 {
				t.Errorf("%v: %s has deviation %v, stated %v", noise, c.Label, got, c.Cell.Stderr)
			}
			if still[i] == 0 && seen[i] > runs/20 || still[i] > 400 && seen[i] < runs*99/100 {
				t.Errorf("%v: %s with %d is seen %d times in %d", noise, c.Label, still[i], seen[i], runs)
			}
		}
	}
}

// TestHierarchyLiar: a device that marks what it likes, as many places as it may, puts no
// count of the fit off by more than 1 for each level, and one that marks nothing by no more
// than 1.
func TestHierarchyLiar(t *testing.T) {
	q := tree(t, regions)
	r := doctor()
	r.Query, r.Noise = q, NoNoise{}
	texts := slices.Repeat([]string{"north/east", "south/a"}, 20)
	sums := marked(t, q, texts, quiet)
	honest, err := r.Table(sums, 41, nil)
	if err != nil {
		t.Fatal(err)
	}
	n, levels := len(sums), 3
	for set := range 1 << n {
		bad, marks := slices.Clone(sums), 0
		for i := range bad {
			if set>>i&1 == 1 {
				bad[i]++
				marks++
			}
		}
		if marks > levels {
			continue
		}
		table, err := r.Table(bad, 41, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range table.Rows {
			if off := math.Abs(c.Cell.Estimate - honest.Rows[i].Cell.Estimate); off > float64(marks) {
				t.Fatalf("marks %b put %s off by %v", set, c.Label, off)
			}
		}
	}
}
