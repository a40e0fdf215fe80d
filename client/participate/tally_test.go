package participate

import "testing"

func TestTally(t *testing.T) {
	var tally Tally
	for what, n := range map[outcome]int{report: 3, dummy: 2, noOp: 4, nothing: 5} {
		for range n {
			tally.Add(&Decision{what: what})
		}
	}
	if r, d, o, n := tally.Reports(), tally.Dummies(), tally.NoOps(), tally.Nothing(); r != 3 || d != 2 || o != 4 || n != 5 {
		t.Errorf("%d reports, %d dummies, %d no-ops, %d nothing", r, d, o, n)
	}
}
