package sketch

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// words are all strings of a sketch.
func words(s Strings) (list [][]uint64) {
	s.each(make([]byte, s.Letters), 0, s.Letters, func(letters []byte) {
		x := make([]uint64, len(letters))
		for i, c := range letters {
			x[i] = uint64(c)
		}
		list = append(list, x)
	})
	return list
}

// TestStringsHold: of all numbers of letters up to one too many exactly those hold that are
// walked through, each once.
func TestStringsHold(t *testing.T) {
	s := Strings{Alphabet: 2, Letters: 4, Step: 2, Checks: 2, Width: 8}
	all := words(s)
	if len(all) != 1+2+4+8+16 {
		t.Fatalf("%d strings", len(all))
	}
	held := 0
	for i := range 4 * 4 * 4 * 4 {
		x := []uint64{uint64(i % 4), uint64(i / 4 % 4), uint64(i / 16 % 4), uint64(i / 64)}
		want := slices.ContainsFunc(all, func(y []uint64) bool { return slices.Equal(x, y) })
		if s.Holds(x) != want {
			t.Errorf("%v holds: %v", x, !want)
		}
		if want {
			held++
		}
	}
	for _, bad := range [][]uint64{nil, {1, 1, 1}, {1, 1, 1, 1, 1}, {1 << 63, 0, 0, 0}, {math.MaxUint64, 0, 0, 0}, {1 << 40, 0, 0, 0}, {0, 0, 0, 1 << 32}} {
		if s.Holds(bad) {
			t.Errorf("%v holds", bad)
		}
	}
	if held != len(all) {
		t.Errorf("%d hold", held)
	}
}

// TestStringsMarks: a string marks one cell of each row, and two that begin alike the same
// ones as far as they do.
func TestStringsMarks(t *testing.T) {
	s := Strings{Alphabet: 3, Letters: 3, Step: 1, Checks: 2, Width: 50, Hash: Hash{7}}
	at := func(x []uint64) (list []int) {
		for i, m := range s.Marks(x) {
			if m {
				list = append(list, i)
			}
		}
		return list
	}
	if s.Rows() != 4 || s.Cells() != 200 {
		t.Fatalf("%d rows, %d cells", s.Rows(), s.Cells())
	}
	shared, pairs := 0, 0
	for _, x := range words(s) {
		mine := at(x)
		for row, i := range mine {
			if i/s.Width != row || len(mine) != 4 {
				t.Fatalf("%v marks %v", x, mine)
			}
		}
		for _, y := range words(s) {
			theirs, same := at(y), true
			for row := range 4 {
				if row < 3 {
					same = same && x[row] == y[row]
				}
				if same && mine[row] != theirs[row] {
					t.Errorf("%v and %v part in row %d", x, y, row)
				}
				if !same && row > 0 {
					pairs++
					if mine[row] == theirs[row] {
						shared++
					}
				}
			}
		}
	}
	// A fiftieth of 4,500 pairs or so, each counted twice.
	if part := float64(shared) / float64(pairs); part < .005 || part > .05 {
		t.Errorf("%d of %d cells are shared by chance", shared, pairs)
	}
}

// TestHash: cells are even: over 64 cells and 65,536 keys chi squared, of 63 degrees of
// freedom, is below 140 (false alarm 1e-7); and rows and seeds are independent.
func TestHash(t *testing.T) {
	for _, h := range []Hash{{0}, {1}} {
		for row := range uint32(2) {
			counts := make([]float64, 64)
			for i := range 1 << 16 {
				counts[h.Cell(row, []byte{byte(i), byte(i >> 8)}, 64)]++
			}
			chi := 0.0
			for _, c := range counts {
				chi += (c - 1024) * (c - 1024) / 1024
			}
			if chi > 140 {
				t.Errorf("chi squared %v", chi)
			}
		}
	}
	same := 0
	for i := range 1 << 16 {
		key := []byte{byte(i), byte(i >> 8)}
		if c := (Hash{}).Cell(0, key, 64); c == (Hash{}).Cell(1, key, 64) || c == (Hash{1}).Cell(0, key, 64) {
			same++
		}
	}
	if same < 1700 || same > 2400 { // 2,032 are expected, with deviation 44
		t.Errorf("%d of 65536 keys have the same cell twice", same)
	}
}

func TestStringsRefused(t *testing.T) {
	good := Strings{Alphabet: 3, Letters: 3, Step: 1, Checks: 2, Width: 50}
	for _, change := range []func(s *Strings){
		func(s *Strings) { s.Alphabet = 0 }, func(s *Strings) { s.Alphabet = 256 }, func(s *Strings) { s.Letters = 0 }, func(s *Strings) { s.Letters = 65 },
		func(s *Strings) { s.Step = 0 }, func(s *Strings) { s.Step = 4 }, func(s *Strings) { s.Checks = 0 }, func(s *Strings) { s.Checks = 5 },
		func(s *Strings) { s.Width = 1 }, func(s *Strings) { s.Width = MaxLeaves },
	} {
		s := good
		if change(&s); !errors.Is(s.Validate(), ErrStrings) {
			t.Errorf("%+v is taken", s)
		}
		if _, _, err := s.Search(nil, Noise{}, 1, .1, nil); err == nil {
			t.Errorf("%+v is searched", s)
		}
	}
	for _, wrong := range []float64{0, 1, math.NaN()} {
		if _, _, err := good.Search(make([]int64, good.Cells()), Noise{}, 1, wrong, nil); !errors.Is(err, ErrStrings) {
			t.Errorf("false finds %v: %v", wrong, err)
		}
	}
	if _, _, err := good.Search(make([]int64, 3), Noise{}, 1, .1, nil); !errors.Is(err, ErrStrings) {
		t.Error("three sums")
	}
	if _, err := PlanStrings(26, 12, 100, 1000, 2, Hash{}); !errors.Is(err, ErrStrings) {
		t.Error("a plan of too few cells")
	}
}

// crowd is people who have strings, frequent ones and a long tail of rare ones.
type crowd struct {
	s      Strings
	exact  []int64
	people uint64
	counts map[string]int64
}

func newCrowd(s Strings, r *rand.Rand, frequent map[string]int64, rare int) *crowd {
	c := &crowd{s, make([]int64, s.Cells()), 0, make(map[string]int64)}
	add := func(letters []byte, count int64) {
		for row := range s.Rows() {
			c.exact[s.cell(row, letters)] += count
		}
		c.people += uint64(count)
		c.counts[string(letters)] += count
	}
	for letters, count := range frequent {
		add([]byte(letters), count)
	}
	for range rare {
		letters := make([]byte, s.Letters)
		for i := range letters {
			letters[i] = byte(1 + r.IntN(s.Alphabet))
		}
		add(letters, 1)
	}
	return c
}

func (c *crowd) noisy(draw func() float64) []int64 {
	sums := make([]int64, len(c.exact))
	for i, x := range c.exact {
		sums[i] = x + int64(math.Round(draw()))
	}
	return sums
}

// TestSearchExact: without noise and with nobody else every string of a few is found with
// its exact count, for 500 sets of strings, as long as the cells of no row are full; and none
// else.
func TestSearchExact(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	for i := range 500 {
		s := Strings{Alphabet: 1 + r.IntN(6), Letters: 1 + r.IntN(6), Checks: 2 + r.IntN(2), Width: 2000, Hash: Hash{uint64(i)}}
		s.Step = 1 + r.IntN(min(3, s.Letters))
		want := make(map[string]int64)
		for range 1 + r.IntN(5) {
			letters := make([]byte, s.Letters)
			for j := range r.IntN(s.Letters + 1) {
				letters[j] = byte(1 + r.IntN(s.Alphabet))
			}
			want[string(letters)] = 1 + r.Int64N(1000)
		}
		c := newCrowd(s, r, want, 0)
		got, asked, err := s.Search(c.exact, Noise{}, c.people, .05, [][]byte{make([]byte, s.Letters)})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range got.Found {
			if n := want[string(f.Letters)]; math.Abs(f.Count-float64(n)) > 1e-6 || !f.Clean {
				t.Errorf("%+v: found %+v of %d", s, f, n)
			}
		}
		if len(got.Found) != len(want) || got.Cut || math.Abs(asked[0].Count-float64(want[string(asked[0].Letters)])) > 1e-6 {
			t.Errorf("%+v: found %d of %d", s, len(got.Found), len(want))
		}
	}
}

// alike is a sketch of 6 letters out of 8, for 5 frequent strings.
var alike = Strings{Alphabet: 8, Letters: 6, Step: 1, Checks: 2, Width: 400}

// TestSearchNoise: over 1,000 draws of normal and Laplace noise and of the hash, among 3,000
// people with rare strings: a search finds a string that nobody has in at most 90 (50 are
// allowed; a false alarm has probability below 1e-7), each string of the count that it
// detects with probability 95 % in 900 or more, and its 95 % intervals hold in 905 or more
// of 1,000 (950 and their standard deviation 7 are expected).
func TestSearchNoise(t *testing.T) {
	const runs, deviation = 1000, 20.0
	for name, n := range map[string]Noise{"normal": {Deviation: deviation}, "laplace": {deviation, deviation / 2, 2}} {
		r := rand.New(rand.NewPCG(43, 44))
		draw := func() float64 { return deviation * r.NormFloat64() }
		if n.Laplace > 0 {
			draw = func() float64 {
				return n.Laplace * (r.ExpFloat64() - r.ExpFloat64() + r.ExpFloat64() - r.ExpFloat64())
			}
		}
		// Rare strings add to the noise.
		rare := 3000.0
		detected := int64(math.Ceil(alike.Detects(n, 5, .05, .95) * math.Hypot(1, math.Sqrt(rare/400)/deviation)))
		frequent := map[string]int64{
			"\x01\x02\x03\x04\x05\x06": detected, "\x01\x02\x03\x04\x05\x07": 3 * detected, "\x01\x02\x00\x00\x00\x00": 4 * detected,
			"\x08\x08\x08\x08\x08\x00": 2 * detected, "\x02\x00\x00\x00\x00\x00": 20 * detected,
		}
		wrong, hits, held, cells := 0, make(map[string]int), make(map[string]int), 0
		absent, seen := []byte("\x03\x03\x03\x00\x00\x00"), 0
		var s Strings
		var c *crowd
		for i := range runs {
			if i%40 == 0 { // crowds take the time
				s = alike
				s.Hash = Hash{uint64(i)}
				c = newCrowd(s, r, frequent, int(rare))
			}
			got, asked, err := s.Search(c.noisy(draw), n, c.people, .05, [][]byte{absent})
			if err != nil {
				t.Fatal(err)
			}
			false_ := false
			for _, f := range got.Found {
				hits[string(f.Letters)]++
				if c.counts[string(f.Letters)] == 0 {
					false_ = true
				}
				if math.Abs(f.Count-float64(c.counts[string(f.Letters)])) <= 1.96*f.Deviation {
					held[string(f.Letters)]++
				}
			}
			if false_ {
				wrong++
			}
			cells += got.Tests
			if math.Abs(asked[0].Count) <= 1.96*asked[0].Deviation {
				seen++
			}
		}
		if wrong > 90 {
			t.Errorf("%s: %d of %d searches find what is not there", name, wrong, runs)
		}
		if seen < 905 {
			t.Errorf("%s: the interval of an absent string holds none in %d of %d", name, seen, runs)
		}
		for letters, count := range frequent {
			if hits[letters] < 900 {
				t.Errorf("%s: %x of %d is found in %d of %d", name, letters, count, hits[letters], runs)
			}
			if count > detected && held[letters] < 905*hits[letters]/1000 {
				t.Errorf("%s: the interval of %x holds it in %d of %d", name, letters, held[letters], hits[letters])
			}
		}
		t.Logf("%s: detects %d, wrong %d, hits %q, held %q, %d tests a search", name, detected, wrong, fmt.Sprint(slices.Sorted(maps.Values(hits))), fmt.Sprint(slices.Sorted(maps.Values(held))), cells/runs)
	}
}

// TestSearchLiars: m devices that mark what they like put no estimate of a found string up by
// more than m nor down by more than what they shift the background by, and invent a string
// only if m is above the threshold less what noise adds.
func TestSearchLiars(t *testing.T) {
	r := rand.New(rand.NewPCG(45, 46))
	n := Noise{Deviation: 20}
	c := newCrowd(alike, r, map[string]int64{"\x01\x02\x03\x04\x05\x06": 900}, 2000)
	sums := c.noisy(func() float64 { return 20 * r.NormFloat64() })
	before, _, _ := alike.Search(sums, n, c.people, .05, nil)
	forged := []byte("\x07\x07\x07\x07\x07\x07")
	finds := func(m int64) (*Search, bool) {
		bad := slices.Clone(sums)
		for row := range alike.Rows() {
			bad[alike.cell(row, forged)] += m
		}
		s, _, err := alike.Search(bad, n, c.people+uint64(m), .05, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s, slices.ContainsFunc(s.Found, func(f Found) bool { return slices.Equal(f.Letters, forged) })
	}
	few, found := finds(30)
	if found || len(few.Found) != 1 || math.Abs(few.Found[0].Count-before.Found[0].Count) > 1 {
		t.Errorf("30 liars: %+v, before %+v", few.Found, before.Found)
	}
	if _, found := finds(int64(before.Threshold) + 60); !found {
		t.Error("as many liars as three deviations above the threshold invent no string")
	}
}

// TestSearchFlood: a sketch that is full of marks is not searched for ever, and tells nothing.
func TestSearchFlood(t *testing.T) {
	s := alike
	r := rand.New(rand.NewPCG(47, 48))
	sums := make([]int64, s.Cells())
	for i := range sums {
		sums[i] = r.Int64N(1e6) * r.Int64N(2)
	}
	got, asked, err := s.Search(sums, Noise{Deviation: 20}, 5, .05, [][]byte{make([]byte, 6)})
	if err != nil || len(got.Found) > 10*s.Width {
		t.Errorf("%d found, %v", len(got.Found), err)
	}
	if math.IsNaN(asked[0].Count) {
		t.Errorf("%+v", asked[0])
	}
	for i := range sums {
		sums[i] = math.MinInt64 + int64(i)
	}
	if got, _, err = s.Search(sums, Noise{Deviation: 20}, math.MaxUint64, .05, nil); err != nil || len(got.Found) > 0 {
		t.Errorf("%v, %v", got.Found, err)
	}
}

// TestPlanStrings: the plan is within its cells, more cells make it no worse, and one that is
// searched finds what it says.
func TestPlanStrings(t *testing.T) {
	last := math.Inf(1)
	for _, cells := range []int{1 << 15, 1 << 16, 1 << 18, 1 << 20} {
		s, err := PlanStrings(27, 12, 20, cells, 2, Hash{3})
		if err != nil {
			t.Fatal(err)
		}
		d := s.Detects(Noise{Deviation: math.Sqrt(float64(s.Rows()))}, 20, .05, .95)
		if s.Cells() > cells || d > last || s.Hash != (Hash{3}) || s.Validate() != nil || !s.Searches() {
			t.Errorf("%+v of %d cells detects %v, before %v", s, s.Cells(), d, last)
		}
		last = d
		t.Logf("%d cells: %+v detects %.1f", cells, s, d)
	}
}

// TestReach: of 2,000,000 draws no more are above the reach at 1e-4 than 275 (200 are
// expected; a false alarm has probability below 1e-6), and of normal noise no fewer than
// 130.
func TestReach(t *testing.T) {
	r := rand.New(rand.NewPCG(49, 50))
	for _, n := range []Noise{{Deviation: 2}, {2, 1, 2}} {
		for k := 1; k <= 2; k++ {
			z, over := n.reach(k, 1e-4), 0
			for range 2000000 {
				x := 0.0
				for range k {
					if n.Laplace > 0 {
						x += r.ExpFloat64() - r.ExpFloat64() + r.ExpFloat64() - r.ExpFloat64()
					} else {
						x += 2 * r.NormFloat64()
					}
				}
				if x > z*2*math.Sqrt(float64(k)) {
					over++
				}
			}
			if over > 275 || n.Laplace == 0 && over < 130 {
				t.Errorf("%+v, %d: %d of 2,000,000 are above %v", n, k, over, z)
			}
		}
	}
	if z := (Noise{Deviation: 1}).reach(1, 1e-15); z < 7.94 || z > 9 {
		t.Errorf("%v", z)
	}
}
