package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/dp/noise/noisetest"
	"github.com/starling-agg/starling/internal/disk"
)

// TestOracle breaks the system in one way after the other, from outside, and demands that
// the oracle sees it.
func TestOracle(t *testing.T) {
	interval, selected := tours[0], tours[2]
	// Worlds with correlated noise: which of them shows a fault depends on every draw
	// before.
	var series []uint64
	for seed := uint64(1); len(series) < 12; seed++ {
		if c := draw(seed); c.series && !c.lively {
			series = append(series, seed)
		}
	}
	for _, c := range []struct {
		name   string
		cfg    config
		change func(*world)
		want   string
		more   []uint64 // seeds of other worlds, where what goes wrong does not show in the first
	}{
		{"a report counted twice", interval, func(w *world) { w.collide = true }, "counts 2 times", nil},
		{"another report counted twice", selected, func(w *world) { w.collide = true }, "counts 2 times", nil},
		{"a batch below the minimum", interval, func(w *world) { w.cfg.min *= 4 }, "the minimum is 20", nil},
		{"an acknowledged report that was never stored", interval, func(w *world) {
			w.net.forge = func(m *message, a *answer) {
				if strings.HasSuffix(m.url.Path, "/reports") {
					a.status, a.body = 200, nil // as if those that were refused had been taken
				}
			}
		}, "were acknowledged, the leader knows of", nil},
		{"a refusal that says too late", interval, func(w *world) {
			w.net.forge = func(m *message, a *answer) {
				if strings.HasSuffix(m.url.Path, "/reports") && len(a.body) == 0 {
					id := must(dap.Collect(dap.Reports(m.body, nil)))[0].Metadata.ID
					a.body = must(w.task.Dialect().AppendUploadErrors(nil, []dap.ReportUploadStatus{{ID: id, Error: dap.ReportDropped}}))
				}
			}
		}, "was refused", nil},
		{"a second answer to one collection", selected, func(w *world) {
			w.net.forge = func(m *message, a *answer) {
				if strings.Contains(m.url.Path, "/collection_jobs/") && len(a.body) > 0 && len(w.oracle.results) > 0 {
					a.body = slices.Clone(a.body)
					a.body[len(a.body)-1] ^= 1
				}
			}
		}, "two answers from leader", nil},
		{"a second answer to one job", interval, func(w *world) {
			n := byte(0)
			w.net.forge = func(m *message, a *answer) {
				if strings.HasSuffix(m.url.Path, "/aggregation_jobs") && a.status < 300 {
					if len(a.body) > 0 {
						a.body = append(slices.Clone(a.body), n) // the leader repeats what it cannot read
						n++
					}
				}
			}
		}, "two answers from helper", nil},
		{"a late duplicate that is verified again", draw(2), func(w *world) {
			w.net.forge = func(m *message, a *answer) {
				if !strings.HasSuffix(m.url.Path, "/aggregation_jobs") || a.status >= 300 {
					return
				}
				resps := must(dap.Collect(w.task.Dialect().VerifyResps(a.body, nil)))
				for i := range resps {
					if resps[i].Error == dap.ReportReplayed {
						resps[i].Error = dap.VDAFVerifyError
					}
				}
				a.body = must(w.task.Dialect().AppendVerifyResps(nil, resps))
			}
		}, "a late duplicate was verified again", nil},
		{"a helper that never comes back", interval, func(w *world) {
			w.net.forge = func(m *message, a *answer) {
				if m.to == w.helper && strings.HasSuffix(m.url.Path, "/aggregation_jobs") {
					a.status, a.body, a.header = 503, nil, nil
					w.helper.life.Load().shaken.Store(true) // an error that is expected
				}
			}
		}, "without faults", nil},
		{"a result with a report that nobody sent", interval, func(w *world) {
			w.net.forge = func(*message, *answer) {
				for _, r := range w.oracle.reports {
					r.acked, r.maybe = 0, 0
				}
			}
		}, "never reached the leader", nil},
		{"a result with a report that is not valid", interval, func(w *world) {
			w.net.forge = func(*message, *answer) {
				for _, r := range w.oracle.reports {
					r.valid = false
				}
			}
		}, "is not valid", nil},
		{"noise that does not lean on all that it should", draw(20), func(w *world) {
			s := w.series()
			s.Strategy = must(correlated.SquareRoot(2, 6))
			w.leader.noise.given = s
		}, "leans on 1 releases, want 2", series},
		{"noise that leans otherwise", draw(15), func(w *world) {
			s := w.series()
			s.Strategy = must(correlated.New(6, []int32{31, -5}))
			w.leader.noise.given = s
		}, "leader: noise leans on something else", series},
		{"noise that leans on a release in which the same devices may be", draw(30), func(w *world) {
			s := w.series()
			s.Separation *= 2
			w.helper.noise.given = s
		}, "leans on 2 releases, want 1", series},
		{"noise that is drawn again in the next life", draw(15), func(w *world) {
			w.helper.open = func(l *life) (service, error) {
				w.helper.noise.draw = noisetest.DiscreteGaussian(w.helper.noise.draw, seedOf("helper"))
				return w.newHelper(l)
			}
		}, "two releases have the same draws", series},
		{"noise that is not what was kept", draw(15), func(w *world) {
			w.net.forge = func(m *message, _ *answer) {
				if compares(m) {
					return
				}
				for _, k := range w.helper.noise.kept {
					k.noise[7] += 1 << 10
				}
			}
		}, "not a sum and the noise", series},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := run(t, c.cfg, c.change)
			found := func() bool {
				return slices.ContainsFunc(w.oracle.violations, func(v string) bool { return strings.Contains(v, c.want) })
			}
			seeds := c.more
			// each message there is moves what a seed does
			for seed := uint64(0); c.cfg.series && seed < 60; seed++ {
				if draw(seed).series {
					seeds = append(seeds, seed)
				}
			}
			for _, seed := range seeds {
				if found() {
					break
				}
				if draw(seed).series != c.cfg.series {
					continue // the change is for worlds of the other kind
				}
				w = run(t, draw(seed), c.change)
			}
			if !found() {
				t.Errorf("violations %q, want one with %q\n%s", w.oracle.violations, c.want, w.dump())
			}
		})
	}
}

// TestOracleSeesCalendars has leader and helper, one or both, hold to another calendar
// than the task's, and demands that the oracle sees what comes of it.
func TestOracleSeesCalendars(t *testing.T) {
	var worlds []config
	for seed := uint64(0); len(worlds) < 12; seed++ {
		if c := draw(seed); c.units > 0 {
			worlds = append(worlds, c)
		}
	}
	// hasty waits for no grace, lax takes all that DAP does.
	hasty := func(w *world) *aggregator.Calendar { c := *w.calendar(); c.Grace = 0; return &c }
	lax := func(*world) *aggregator.Calendar { return nil }
	for name, c := range map[string]struct {
		leader, helper func(*world) *aggregator.Calendar // nil is the right one
		want           string
	}{
		"a leader that takes parts of rounds":          {lax, nil, "which is no batch"},
		"a leader that takes the time within a round":  {lax, lax, "that says when in its round"},
		"a leader that does not look at its own clock": {hasty, nil, "leader released"},
		"a helper that does not look at its own clock": {nil, hasty, "helper released"},
		"neither waits for the grace":                  {hasty, hasty, "too early"},
	} {
		t.Run(name, func(t *testing.T) {
			var all []string
			for _, cfg := range worlds {
				w := run(t, cfg, func(w *world) {
					w.net.apart = true // or the two would find each other out
					if c.leader != nil {
						w.leader.given = c.leader(w)
					}
					if c.helper != nil {
						w.helper.given = c.helper(w)
					}
				})
				if slices.ContainsFunc(w.oracle.violations, func(v string) bool { return strings.Contains(v, c.want) }) {
					return
				}
				all = append(all, w.oracle.violations...)
			}
			t.Errorf("in %d worlds: violations %q, want one with %q", len(worlds), all, c.want)
		})
	}
}

// lying is a disk that says that it has synced, and has not: what some disks do.
type lying struct{ disk.FS }

func (l lying) Create(name string) (disk.File, error)     { return wrapFile(l.FS.Create(name)) }
func (l lying) OpenAppend(name string) (disk.File, error) { return wrapFile(l.FS.OpenAppend(name)) }
func (l lying) OpenWrite(name string) (disk.File, error)  { return wrapFile(l.FS.OpenWrite(name)) }

type lyingFile struct{ disk.File }

func (lyingFile) Sync() error { return nil }

func wrapFile(f disk.File, err error) (disk.File, error) {
	if err != nil {
		return nil, err
	}
	return lyingFile{f}, nil
}

// TestOracleSeesLostWrites runs leader and helper on disks that lie about their syncs. If
// the loss of power were not felt, or what it takes were not missed, the runs would find
// nothing.
func TestOracleSeesLostWrites(t *testing.T) {
	for i, name := range []string{"leader", "helper"} {
		found := 0
		const runs = 4
		for s := range uint64(runs) {
			cfg := tours[i]
			cfg.seed = s
			w := run(t, cfg, func(w *world) {
				n := w.node(name)
				n.wrap = func(fsys disk.FS) disk.FS { return lying{fsys} }
				at := time.Now().Add(2 * maxBackOff)
				w.net.forge = func(*message, *answer) {
					if n.life.Load() != nil && time.Now().After(at) {
						at = at.Add(time.Hour)
						n.life.Load().lose()
					}
				}
			})
			if w.failed() {
				found++
			}
		}
		if found == 0 {
			t.Errorf("%s: %d losses of power on a lying disk, nothing was missed", name, runs)
		}
	}
}
