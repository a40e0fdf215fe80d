package recipe_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

var writeGroups = flag.Bool("write-groups", false, "measure sums of numbers by group and write docs/bench/groups.md, which takes a minute")

var groupsPage = filepath.Join("..", "docs", "bench", "groups.md")

// TestBlurredGroupsFigure: the page has for each setting the mean square error that the
// recipe foretells, and one that was measured, which is not above it by more than 3 of its
// standard errors. -write-groups measures: devices' messages, tallies and tables, by fixed
// seeds.
func TestBlurredGroupsFigure(t *testing.T) {
	const devices, runs = 2000, 300
	b, err := os.ReadFile(groupsPage)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	for i, c := range []struct {
		q       GroupSums
		epsilon Decimal
		asks    GroupAsks
	}{
		{GroupSums{Max: 20, Groups: 4}, Decimal{5, 1}, AskSizes}, {GroupSums{Max: 20, Groups: 4}, Decimal{1, 0}, AskSizes}, {GroupSums{Max: 20, Groups: 4}, Decimal{4, 0}, AskSizes},
		{GroupSums{Max: 20, Groups: 16}, Decimal{1, 0}, AskSizes}, {GroupSums{Min: -10, Max: 10, Groups: 4}, Decimal{1, 0}, AskSums},
	} {
		for _, z := range []GroupRandomizer{QA{Epsilon0: c.epsilon, Asks: c.asks}, RandomizedGroup{Epsilon0: c.epsilon, Asks: c.asks}} {
			r := made(directPath(), account.Options{Query: c.q, Randomizer: z})
			z = r.Randomizer.(GroupRandomizer)
			e, err := z.Errors(c.q, 1, devices)
			if err != nil {
				t.Fatal(err)
			}
			name := "question & answer"
			if _, ok := z.(RandomizedGroup); ok {
				name = "randomized group"
			}
			foretold := float64(c.q.Groups) * e.Sum * e.Sum / (devices * devices)
			row := fmt.Sprintf("| %s | %d | %d to %d | %s | %s | %d | %d | %.4g |", name, c.q.Groups, c.q.Min, c.q.Max, c.epsilon, c.asks, 2*z.Rounded(), z.Bits(c.q), foretold)
			if *writeGroups {
				m, rng := seeded(t, r, byte(60+i))
				answers, sums, _ := visitsOf(c.q, rng, devices)
				first, second := 0.0, 0.0
				for range runs {
					tally := collected(t, m, rng, answers)
					got, err := r.GroupTable(tally.Sums, tally.Reports)
					if err != nil {
						t.Fatal(err)
					}
					off := 0.0
					for g, x := range got.Groups {
						off += (x.Sum.Estimate - sums[g]) * (x.Sum.Estimate - sums[g]) / (devices * devices)
					}
					first, second = first+off/runs, second+off*off/runs
				}
				fmt.Fprintf(&table, "%s %.4g | %.2g |\n", row, first, math.Sqrt((second-first*first)/runs))
				continue
			}
			_, after, ok := strings.Cut(string(b), "\n"+row)
			line, _, _ := strings.Cut(after, "\n")
			var measured, standard float64
			if _, err := fmt.Sscanf(line, " %g | %g |", &measured, &standard); !ok || err != nil {
				t.Errorf("%s has no row %s: -write-groups writes it", groupsPage, row)
			} else if measured > foretold+3*standard || measured < foretold/3 {
				t.Errorf("%s: measured %v", row, measured)
			}
		}
	}
	if !*writeGroups {
		return
	}
	begin, end := "<!-- numbers -->\n", "<!-- end -->\n"
	before, rest, ok := strings.Cut(string(b), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", groupsPage)
	}
	head := "| randomizer | groups | numbers | epsilon | asks | values | bits | foretold at most | measured | standard error |\n|---|---:|---|---:|---|---:|---:|---:|---:|---:|\n"
	if err := os.WriteFile(groupsPage, []byte(before+begin+head+table.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
