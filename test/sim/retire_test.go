package sim

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
)

// Where cfg.window is set the task ends a day after the world begins, long after all of
// its results are there, and is kept for a little while.
const (
	windowUnits = 24
	retention   = 2 * time.Hour
)

func (w *world) window() recipe.Window {
	if !w.cfg.window {
		return recipe.NoWindow{}
	}
	first := must(dap.TimePrecision(precision).At(w.start))
	return recipe.Between{Start: first, End: first + windowUnits}
}

// retire lets the task's end come, with a loss of power at each node, and demands that
// nothing of it is left and that nothing ever said to leader or helper has an effect on
// it any more.
func (w *world) retire() {
	w.logf("the task ends")
	before := w.oracle.status(w.first(w.leader))
	if before == nil {
		w.oracle.violate("no status before the end of the task")
		return
	}
	for _, n := range w.nodes() {
		if w.cfg.tour {
			continue
		}
		w.arm(&crash{node: n.name, skip: w.rng.IntN(2), point: transactions("retire-task", "sweep-task")[w.rng.IntN(4)]})
	}
	w.crashes = w.cfg.crashes
	for _, c := range w.crashes {
		if c.point != "" && !w.struck(c) {
			w.node(c.node).life.Load().set(c)
		}
	}
	skew := aggregator.Limits{}.WithDefaults().ClockSkew
	due := w.unit(must(dap.TimePrecision(precision).At(w.start)) + windowUnits).Add(skew + retention)
	if time.Now().After(due) {
		w.oracle.violate("the task ended before its results were there")
		return
	}
	for i := 0; !w.failed(); i++ {
		retired := 0
		for _, n := range w.nodes() {
			n.settle(w.rng)
			n.step()
			w.revive() // where a failure was reported only the next life tells what came of it
			if s := w.oracle.status(n.life.Load()); s != nil && s.Phase == status.Retired {
				retired++
			} else if s != nil && time.Now().After(due.Add(time.Hour)) {
				w.oracle.violate("%s is %s an hour after its end", n.name, s.Phase)
			}
		}
		w.bury()
		switch {
		case i > 1000:
			w.oracle.violate("the task is not retired in the end")
		case time.Now().Before(due) && retired > 0:
			w.oracle.violate("retired before the retention has passed")
		case retired == len(w.nodes()) && time.Now().After(due.Add(2*maxBackOff)):
			w.forgotten(before)
			return
		}
		time.Sleep(max(maxBackOff, time.Until(due)-time.Second))
	}
}

// forgotten looks at what is left, and says everything again that was ever said.
func (w *world) forgotten(before *status.Task) {
	w.oracle.check()
	for _, n := range w.nodes() {
		l := n.life.Load()
		for _, dir := range []string{"runs", "slices"} {
			if files := count(l, dir); files > 0 {
				w.oracle.violate("%s: %d files in %s are left", n.name, files, dir)
			}
		}
	}
	for _, j := range w.jobs {
		if j.state.JobID == "" {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		state := j.state
		state.Response = nil
		_, err := must(w.collector(j).Resume(state)).Wait(ctx)
		cancel()
		if p := new(dap.Problem); !errors.As(err, &p) || p.Type != dap.ProblemUnrecognizedTask {
			w.oracle.violate("a collection of a retired task: %v", err)
		}
	}
	w.oracle.retired = true
	w.net.mu.Lock()
	kept := w.net.kept
	w.net.mu.Unlock()
	for _, m := range kept {
		a, err := w.net.deliver(m)
		switch {
		case err != nil:
			w.oracle.violate("%s after the end: %v", m.name(), err)
		case path.Base(m.url.Path) != string(dap.ReportsResource) && !compares(m) && a.status != 404:
			w.oracle.violate("%s after the end: status %d", m.name(), a.status)
		}
	}
	w.oracle.check()
	after := w.oracle.status(w.first(w.leader))
	if after == nil || after.Counts.Acknowledged != before.Counts.Acknowledged || after.Counts.Aggregated != before.Counts.Aggregated ||
		after.Counts.Collected != before.Counts.Collected {
		w.oracle.violate("the counts of a retired task have changed: %+v, before %+v", after, before)
	}
}

// count counts the files below a directory.
func count(l *life, dir string) (n int) {
	entries, err := l.disk.ReadDir(dir)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		if e.Dir {
			n += count(l, path.Join(dir, e.Name))
		} else {
			n++
		}
	}
	return n
}
