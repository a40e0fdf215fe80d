package sim

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
)

var (
	seeds  = flag.Int("seeds", 12, "how many seeds TestSeeds runs")
	from   = flag.Int("from", 0, "the first of them; so many runs are shared among processes")
	disks  = flag.Int("disks", patient(6, 4), "at how many calls of the disk TestDiskCalls fails")
	every  = flag.Int("every", patient(8, 14), "TestFailpoints crashes at one failpoint of so many")
	lively = flag.Int("lively", patient(3, 1), "how many seeds TestLively runs")
	seed   = flag.Int64("seed", -1, "run this seed alone")
)

// patient is the first where CI is true, as in the gate, and else the second, so that
// nobody waits for all of it at every change.
func patient(all, some int) int {
	if os.Getenv("CI") == "true" {
		return all
	}
	return some
}

// run plays one world in a bubble and returns it when it has ended.
func run(t *testing.T, cfg config, change func(*world)) (w *world) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, cfg.seed)
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(cfg)
		defer func() {
			if p := recover(); p != nil {
				fmt.Fprintln(os.Stderr, reproduce(cfg.seed), "\n", w.dump())
				panic(p)
			}
			w.close()
		}()
		if change != nil {
			change(w)
		}
		w.play()
	})
	return w
}

func reproduce(seed uint64) string {
	return "reproduce with: go test ./test/sim -run TestSeeds -count 1 -v -seed " + strconv.FormatUint(seed, 10)
}

// try runs a world that must be without fault.
func try(t *testing.T, cfg config) *world {
	t.Helper()
	w := run(t, cfg, nil)
	if len(w.oracle.violations) > 0 {
		t.Errorf("seed %d: %q\n%s\n%s", cfg.seed, w.oracle.violations, reproduce(cfg.seed), w.dump())
	} else if testing.Verbose() && *seed >= 0 {
		t.Log(w.dump())
	}
	return w
}

func TestSeeds(t *testing.T) {
	if *seed >= 0 {
		try(t, draw(uint64(*seed)))
		return
	}
	var total tally
	for s := range uint64(*seeds) {
		s += uint64(*from)
		t.Run(strconv.FormatUint(s, 10), func(t *testing.T) { total.add(try(t, draw(s))) })
	}
	t.Logf("%d seeds: %+v", *seeds, total)
	if *seeds >= 12 {
		total.check(t)
	}
}

// TestFound runs the seeds that once found something, by what they found.
func TestFound(t *testing.T) {
	for name, seed := range map[string]uint64{
		"a request for a collection comes again when that was deleted":      577,
		"reports of which some were refused come again, their job is kept":  5789,
		"a collection is deleted while its batch is being released":         211,
		"of two correlated rounds asked for, the longer is looked at first": 150,
		"a collection is deleted, and then asked for":                       6325,
		"a job of some refused reports is over, and asked for by its name":  7714,
		"a job is deleted, which the helper hears has failed":               3063,
	} {
		t.Run(name, func(t *testing.T) { try(t, draw(seed)) })
	}
}

// tally is what happened in some runs: faults that never strike prove nothing.
type tally struct {
	reports, results, counted, rejected int // rejected counts the kinds of reports that are not valid
	lives, struck                       int // beginnings of a service; failpoints that struck
	late                                int // duplicates of aggregation jobs that were deleted
	ended                               int // keys destroyed lately at the end
	// times that a server said that it agrees with the other
	agreed int
	// with a calendar: reports, shares and collections that were refused or made to wait
	inside, early, odd int
	rounds, crossed    int // with a calendar: releases of either server; pairs of results of two views of a round
	leaning            int // releases whose noise leans on others
	explained          int // worlds that ended with a batch that waits for a person
	trouble            map[string]int
}

// trouble is how the trace begins to tell of each kind.
var trouble = []string{
	"net: lost the answer", "net: lost", "net: held", "net: a proxy", "net: the answer", "meanwhile", "leader: power lost at",
	"helper: power lost at", "leader: down", "helper: down", "leader: stopped", "helper: stopped",
}

func (a *tally) add(w *world) {
	if a.trouble == nil {
		a.trouble = make(map[string]int)
	}
	a.reports += len(w.oracle.reports)
	a.results += len(w.oracle.results)
	a.struck += len(w.fired)
	a.late += int(w.oracle.late.Load())
	a.ended += w.ended
	a.leaning += w.oracle.leaning
	a.agreed += w.oracle.agreed
	if w.oracle.explained {
		a.explained++
	}
	a.inside += w.oracle.insideSeen
	a.early += w.oracle.ahead
	a.odd += w.oracle.odd
	a.crossed += w.oracle.crossed
	if w.cfg.units > 0 {
		a.rounds += len(w.oracle.released[w.leader]) + len(w.oracle.released[w.helper])
	}
	for _, r := range w.oracle.reports {
		if r.result != "" {
			a.counted++
		} else if !r.valid {
			a.rejected++
		}
	}
	for _, line := range w.trace {
		_, what, _ := strings.Cut(line, " ")
		what = strings.TrimSpace(what)
		if strings.HasSuffix(what, ": up") {
			a.lives++
		}
		for _, kind := range trouble {
			if strings.HasPrefix(what, kind) {
				a.trouble[kind]++
				break
			}
		}
	}
}

func (a *tally) check(t *testing.T) {
	for _, kind := range trouble {
		if a.trouble[kind] == 0 {
			t.Errorf("nothing of this kind happened: %s", kind)
		}
	}
	if a.results == 0 || a.counted == 0 || a.rejected == 0 || a.struck == 0 || a.late == 0 || a.ended == 0 || a.leaning == 0 || a.agreed == 0 ||
		a.inside == 0 || a.early == 0 || a.odd == 0 || a.rounds == 0 {
		t.Errorf("too little happened: %+v", *a)
	}
}

// TestSame runs a seed twice: only what can be repeated can be repaired.
func TestSame(t *testing.T) {
	for _, cfg := range []config{draw(2), draw(3), draw(10)}[:patient(3, 1)] {
		var first []string
		for i := range 2 {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				w := try(t, cfg)
				if i == 0 {
					first = w.trace
					return
				}
				for k, line := range w.trace {
					if k >= len(first) || first[k] != line {
						t.Fatalf("line %d: %q, and the first time %q", k, line, first[min(k, len(first)-1)])
					}
				}
			})
		}
	}
}

// TestLively runs leader and helper with their own workers, side by side, as in
// production. What happens then depends on the scheduler too, so that a seed alone may
// not repeat it.
func TestLively(t *testing.T) {
	for s := range uint64(*lively) {
		t.Run(strconv.FormatUint(s, 10), func(t *testing.T) {
			cfg := draw(1000 + s)
			cfg.lively = true
			w := run(t, cfg, nil)
			if len(w.oracle.violations) > 0 {
				t.Errorf("seed %d, lively: %q\n%s", cfg.seed, w.oracle.violations, w.dump())
			}
		})
	}
}
