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
}

// dialects are those in which a test runs.
func dialects(name string, all bool) (at []int) {
	for i := range plan.Dialects {
		if plan.runs(name, i, all) {
			at = append(at, i)
		}
	}
	return at
}

// TestEachTestRuns: no test is left out. What is about one dialect runs in that one; the
// others run in all, or share the dialects out.
func TestEachTestRuns(t *testing.T) {
	for _, all := range []bool{true, false} {
		if at := dialects("TestOfOne", all); !slices.Equal(at, []int{2}) {
			t.Errorf("all %v: a test of the third dialect runs in %v", all, at)
		}
	}
	if at := dialects("TestOther", true); !slices.Equal(at, []int{0, 1, 2}) {
		t.Errorf("a test that the plan does not name runs in %v, not in all", at)
	}
	var of [3]int
	for i := range 99 {
		at := dialects(fmt.Sprint("Test", i), false)
		if len(at) != 1 {
			t.Fatalf("test %d runs in %v, not in one", i, at)
		}
		of[at[0]]++
	}
	if slices.Min(of[:]) < 20 {
		t.Errorf("the dialects have %v of 99 tests", of)
	}
}

// TestPlanFitsTheTests: a plan that names what is no test, or leaves a test without a
// dialect, is refused.
func TestPlanFitsTheTests(t *testing.T) {
	tests := []string{"TestOfOne", "TestOther"}
	if err := plan.check(tests); err != nil {
		t.Error(err)
	}
	for says, p := range map[string]Plan{
		"TestNone is no test":              {Only: map[string]int{"TestNone": 0}},
		"TestOther is no test, or runs in": {Only: map[string]int{"TestOther": 3}},
		"TestOfOne is no test, or runs in": {Only: map[string]int{"TestOfOne": -1}},
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
	if want := []string{"TestEachTestRuns", "TestPlanFitsTheTests", "TestNames", "TestSkipping"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestSkipping: the pattern leaves out tests by their whole names, and what was given
// beside them; package testing, which cuts patterns at each | outside of brackets, finds
// as few to compile.
func TestSkipping(t *testing.T) {
	for _, c := range []struct {
		names []string
		given string
		want  string
	}{
		{nil, "", ""},
		{nil, "TestA", "TestA"},
		{[]string{"TestA", "TestB"}, "", "^(TestA|TestB)$"},
		{[]string{"TestA"}, "TestC|TestD", "^(TestA)$|TestC|TestD"},
	} {
		if got := skipping(c.names, c.given); got != c.want {
			t.Errorf("skipping(%q, %q) = %q, want %q", c.names, c.given, got, c.want)
		}
	}
}
