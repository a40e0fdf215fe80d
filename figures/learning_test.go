package figures

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/fl/images"
	"github.com/starling-agg/starling/fl/train"
)

// TestLearnersInOrder: of two runs each at epsilon 2, whose seeds are fixed, a trusted
// server's model is better than ours, ours than one calibrated as in paper 003, and that far
// better than with noise on each device; without noise it is best.
func TestLearnersInOrder(t *testing.T) {
	set, err := images.Digits()
	if err != nil {
		t.Fatal(err)
	}
	last := 101.0
	for _, want := range []struct {
		name  string
		below float64 // the one before by so much at least, in points
	}{{"no privacy", 0}, {"one trusted server", 2}, {"ours, one of two honest", 0.5}, {"calibrated as in paper 003", 4}, {"noise on each device, one pass", 30}} {
		i := slices.IndexFunc(learners(), func(l learner) bool { return l.name == want.name })
		l, err := learn(t.Context(), learners()[i], train.Options{Set: set}, 2, 2)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.at(0.5); got > last-want.below {
			t.Errorf("%s: %.1f, after %.1f", want.name, got, last)
		} else {
			last = got
		}
		if ours := strings.HasPrefix(want.name, "ours"); ours != (l.both > 0 && l.both < 2) {
			t.Errorf("%s: epsilon %v if both servers are honest", want.name, l.both)
		}
	}
}

// TestQuartiles are those of a sorted sample.
func TestQuartiles(t *testing.T) {
	l := learned{accuracy: []float64{10, 20, 30, 40, 60}}
	if l.at(0.25) != 20 || l.at(0.5) != 30 || l.at(0.75) != 40 || l.at(1) != 60 {
		t.Errorf("%v %v %v", l.at(0.25), l.at(0.5), l.at(0.75))
	}
	two := learned{accuracy: []float64{10, 20}}
	if two.at(0.5) != 15 {
		t.Errorf("%v", two.at(0.5))
	}
}

// TestCheckInsAreDrawn: one run of each protocol gives a row for each number of slots, with
// dummies near what is expected; and nothing of it is drawn unless it is measured.
func TestCheckInsAreDrawn(t *testing.T) {
	dir := t.TempDir()
	if _, err := Draw(t.Context(), Options{Dir: dir, Only: []string{"paper-004-check-ins"}}); !errors.Is(err, ErrOptions) {
		t.Errorf("drawn without being measured: %v", err)
	}
	if _, err := Draw(t.Context(), Options{Dir: dir, Only: []string{"paper-004-check-ins"}, Measured: true, thin: 100}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "paper-004-check-ins.csv"))
	if err != nil {
		t.Fatal(err)
	}
	if rows := strings.Count(string(b), "\n"); rows != 1+6+6+5+5 {
		t.Errorf("%d rows", rows)
	}
	for _, want := range []string{"fixed windows (algorithm 1),4000,4000,1,1,4000,", "sliding windows,4000,40,1,1,3961,", "repeated runs (corollary 3.3),4000,1500,0.375,2,3000,"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no row %q", want)
		}
	}
}
