package sim

import "testing"

// TestViews plays worlds whose task has a wider view, and demands that results of two views
// of one round came of some: that they have the same reports is the oracle's to see.
func TestViews(t *testing.T) {
	crossed := 0
	for s, left := uint64(0), patient(12, 4); left > 0; s++ {
		if c := draw(s); c.views {
			w := try(t, c)
			crossed += w.oracle.crossed
			left--
			t.Logf("seed %d: %d", s, w.oracle.crossed)
		}
	}
	if crossed == 0 {
		t.Error("no round came in two views")
	}
}

// TestOracleSeesViews has leader and helper hold to a calendar whose wider view is another,
// and demands that the oracle sees what they release.
func TestOracleSeesViews(t *testing.T) {
	for s, left := uint64(0), 12; ; s++ {
		c := draw(s)
		if !c.views {
			continue
		}
		w := run(t, c, func(w *world) {
			w.net.apart = true
			other := *w.calendar()
			views := *other.Views
			views.Wider[0].Rounds = 3
			other.Views = &views
			w.leader.given, w.helper.given = &other, &other
			w.extra = append(w.extra, op{20, (*world).opOdd, true})
		})
		if len(w.oracle.violations) > 0 {
			return
		}
		if left--; left == 0 {
			t.Fatal("servers that release another view were not seen")
		}
	}
}
