package accountant

import (
	"encoding/csv"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// patient says whether tests ask all that they have to ask, as CI does, or a part that
// was picked to take seconds.
func patient() bool { return os.Getenv("CI") == "true" }

// TestPublishedAccountants puts the questions of testdata/grid.csv to this package. The
// answers there are those of two published Python packages (named in the first line;
// test/interop/accounting made the table), as an interval where they have one. Ours must
// lie inside it, agree within 1e-3, or be lower; and it must not fall below the interval
// by more, since their lower ends are optimistic but for rounding. All rows are asked
// where CI=true; elsewhere one in eight, and of the slow kinds fewer: one allocation in
// 48, and no one or two steps at a small rate for replace neighbours.
func TestPublishedAccountants(t *testing.T) {
	text, err := os.ReadFile("testdata/grid.csv")
	if err != nil {
		t.Fatal(err)
	}
	r := csv.NewReader(strings.NewReader(string(text)))
	r.Comment = '#'
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	if rows = rows[1:]; len(rows) < 500 {
		t.Fatalf("only %d rows", len(rows))
	}
	stride, slow := 8, 48
	if patient() {
		stride, slow = 1, 1
	}
	asked, inside, close, lower := 0, 0, 0, 0
	for i := 0; i < len(rows); i += stride {
		row := rows[i]
		text := func(name string) string { return row[column[name]] }
		number := func(name string) float64 {
			if text(name) == "" {
				return 0
			}
			x, err := strconv.ParseFloat(text(name), 64)
			if err != nil {
				t.Fatalf("row %d: %v", i, err)
			}
			return x
		}
		if text("mechanism") == "allocation" && i%slow != 0 ||
			text("neighbours") == "replace" && number("sampling") < .01 && number("steps") < 3 && !patient() {
			continue
		}
		n, err := release.ParseNeighbours(text("neighbours"))
		if err != nil {
			t.Fatal(err)
		}
		var e event
		scale := number("scale")
		switch text("mechanism") {
		case "gaussian", "sampled-gaussian":
			e = gauss(scale)
		case "laplace", "sampled-laplace":
			e = lap(scale)
		case "discrete-gaussian":
			e = discrete(uint64(scale*scale), 1, release.Interval(1))
		case "discrete-laplace": // scale is the rate, a decimal
			e = discreteLaplace{release.Rational{Num: 1_000_000, Den: uint64(math.Round(scale * 1_000_000))}, release.Interval(1)}
		case "rr":
			e = randomizedResponse{scale, uint64(number("k"))}
		case "allocation":
			e = allocation{gauss(scale), uint64(number("slots")), uint64(number("selected"))}
		default:
			t.Fatalf("row %d: mechanism %q", i, text("mechanism"))
		}
		if q := number("sampling"); q != 1 {
			e = poissonSample{e, q}
		}
		g, err := Options{Method: Method(text("method"))}.epsilon(selfCompose{e, uint64(number("steps"))}, number("delta"), n)
		if err != nil {
			t.Errorf("row %d (%v): %v", i, row, err)
			continue
		}
		asked++
		theirs, upper := number("lower"), number("upper")
		switch {
		case g.Epsilon >= theirs && g.Epsilon <= upper && text("lower") != "":
			inside++
		case math.Abs(g.Epsilon-upper) <= 1e-3*upper+1e-9:
			close++
		case g.Epsilon < upper:
			lower++
		default:
			t.Errorf("row %d (%v): ours is [%v, %v]", i, row, g.EpsilonLower, g.Epsilon)
		}
		// Two proofs cannot contradict each other: our upper bound and their lower one,
		// and the other way round.
		if g.EpsilonLower > upper*(1+1e-6)+1e-9 || g.Epsilon < theirs*(1-1e-3)-1e-6 {
			t.Errorf("row %d (%v): ours is [%v, %v], a contradiction", i, row, g.EpsilonLower, g.Epsilon)
		}
	}
	if asked < len(rows)/(stride+2) {
		t.Errorf("only %d questions of %d", asked, len(rows))
	}
	t.Logf("%d questions: %d inside their interval, %d within 1e-3, %d lower", asked, inside, close, lower)
}
