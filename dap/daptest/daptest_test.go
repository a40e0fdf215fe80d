package daptest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dap"
)

// plan names two of the tests of a package that has many.
var plan = Plan{
	Dialects: []dap.Dialect{{}, {Version: dap.Draft19}, {Framing: dap.Janus}},
	Only:     map[string]int{"TestOfOne": 2},
	InTurn:   []string{"TestLong", "TestLonger", "TestLongest"},
}

// dialects are those in which a test runs.
func dialects(name string, turn int, all bool) (at []int) {
	for i := range plan.Dialects {
		if plan.runs(name, i, turn, all) {
			at = append(at, i)
		}
	}
	return at
}

// TestEachTestRuns: no test is left out, whatever the turn is. What is about one dialect
// runs in that one; what is long runs in one, neighbours of a list in different ones, and
// comes round; the others run in all, or share the dialects out.
func TestEachTestRuns(t *testing.T) {
	for _, all := range []bool{true, false} {
		for turn := range 9 {
			if at := dialects("TestOfOne", turn, all); !slices.Equal(at, []int{2}) {
				t.Errorf("all %v, turn %d: a test of the third dialect runs in %v", all, turn, at)
			}
			for i, name := range plan.InTurn {
				if at := dialects(name, turn, all); !slices.Equal(at, []int{(i + turn) % 3}) {
					t.Errorf("all %v, turn %d: %s runs in %v", all, turn, name, at)
				}
			}
			if at := dialects("TestOther", turn, true); !slices.Equal(at, []int{0, 1, 2}) {
				t.Errorf("turn %d: a test that the plan does not name runs in %v, not in all", turn, at)
			}
			var of [3]int
			for i := range 99 {
				at := dialects(fmt.Sprint("Test", i), turn, false)
				if len(at) != 1 {
					t.Fatalf("turn %d: test %d runs in %v, not in one", turn, i, at)
				}
				of[at[0]]++
			}
			if slices.Min(of[:]) < 20 {
				t.Errorf("turn %d: the dialects have %v of 99 tests", turn, of)
			}
		}
	}
}

// TestPlanFitsTheTests: a plan that names what is no test, or leaves a test without a
// dialect, is refused.
func TestPlanFitsTheTests(t *testing.T) {
	tests := []string{"TestOfOne", "TestLong", "TestLonger", "TestLongest", "TestOther"}
	if err := plan.check(tests); err != nil {
		t.Error(err)
	}
	for says, p := range map[string]Plan{
		"TestNone is no test":                {Only: map[string]int{"TestNone": 0}},
		"TestNever is no test":               {InTurn: []string{"TestNever"}},
		"TestOther is no test, or runs in":   {Only: map[string]int{"TestOther": 3}},
		"TestLong is no test, or runs in":    {Only: map[string]int{"TestLong": -1}},
		"TestLong is no test, or has its":    {Only: map[string]int{"TestLong": 0}, InTurn: []string{"TestLong"}},
		"TestLonger is no test, or has its":  {Only: map[string]int{"TestLonger": 1}, InTurn: []string{"TestLong", "TestLonger"}},
		"TestNone is no test, or runs in no": {Only: map[string]int{"TestNone": 0}, InTurn: []string{"TestLong"}},
	} {
		p.Dialects = plan.Dialects
		if err := p.check(tests); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
}

// TestNames: the tests of a package are found in its files, those of this one for example.
func TestNames(t *testing.T) {
	got, err := names()
	if want := []string{"TestEachTestRuns", "TestPlanFitsTheTests", "TestNames"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}
