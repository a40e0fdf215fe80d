package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
)

// failpoints are the named places at which a node can fail. Those of packages that only
// the aggregators may import are written down here; TestFailpoints fails if these lists
// and what its tours pass differ.
var failpoints = map[string][]string{
	"leader": slices.Concat(leader.FailpointNames(), disk.LogFailpoints(), segmentPoints, runPoints, transactions(
		"open", "put-task", "begin-logs", "commit-log", "forget-log", "claim-jobs", "save-sent", "retry-job", "finish-job",
		"create-resource", "delete-resource", "forgo-collection", "fail-resource", "drain", "freeze", "release", "merge-runs", "add-refused",
		"note-data-key", "retire-task", "sweep-task", "drop-tombstones", "save-time", "note-keys"), noisePoints, buryPoints),
	"helper": slices.Concat(helper.FailpointNames(), runPoints, transactions(
		"open", "put-task", "create-resource", "delete-resource", "fail-resource", "commit-job", "advance-job", "release",
		"merge-runs", "note-data-key", "retire-task", "sweep-task", "drop-tombstones", "save-time", "note-keys"), noisePoints, buryPoints),
}

// unreached are the failpoints that no run without damaged files and lies can pass:
// "store.quarantine-job.*", "store.set-aside.*", "store.park-job.*", "store.hold-task.*",
// "store.resume.*" and "store.forget-damage.*" at the leader; "lost.*", which only
// crashes and damage lead to; "store.reseal.*", "store.end-data-key.*" and the ends of
// data keys, which take another key of the collector's and months of time.
var (
	segmentPoints = []string{
		"segment.before-move", "segment.after-move", "segment.before-commit", "segment.after-commit", "segment.after-remove",
	}
	runPoints   = []string{"run.before-write", "run.after-write"}
	noisePoints = []string{"store.noise.after-write", "datakeys.after-file", "datakeys.after-make"}
	buryPoints  = []string{"store.bury.after-remove"}
)

// replicaPoints are those of a helper's replica on PostgreSQL.
var replicaPoints = slices.Concat(helper.FailpointNames(), transactions(
	"open", "put-task", "create-resource", "delete-resource", "fail-resource", "take-off", "commit-job", "advance-job", "release", "merge-runs",
	"merge-parts", "sum-tallies", "note-data-key", "save-vault", "beat", "retire-task", "sweep-task", "save-time", "note-keys"))

// leaderReplicaPoints are those of a leader's.
var leaderReplicaPoints = slices.Concat(leader.FailpointNames(), transactions(
	"open", "put-task", "acknowledge", "claim-jobs", "save-sent", "retry-job", "finish-job", "take-off", "create-resource", "delete-resource",
	"forgo-collection", "fail-resource", "drain", "freeze", "release", "merge-runs", "merge-parts", "sum-tallies", "add-refused", "bury-rows",
	"drop-tombstones", "note-data-key", "save-vault", "beat", "retire-task", "sweep-task", "save-time", "note-keys", "set-aside", "move-slices"))

// transactions are the failpoints of the store's transactions.
func transactions(names ...string) (points []string) {
	for _, n := range names {
		points = append(points, "store."+n+".before-commit", "store."+n+".after-commit")
	}
	return points
}

// tours are deployments whose fixed lists of operations together pass every failpoint.
var tours = []config{
	{tour: true, seed: 1, mode: dap.TimeInterval, min: 5, segment: 3, patience: -1, window: true},
	{tour: true, seed: 2, version: dap.Draft19, mode: dap.TimeInterval, min: 5, segment: 3, patience: -1, deferred: helper.Always},
	{tour: true, seed: 3, framing: dap.Janus, mode: dap.LeaderSelected, min: 5, segment: 3, patience: -1},
	{tour: true, seed: 4, version: dap.Draft19, mode: dap.TimeInterval, min: 5, segment: 3, patience: -1, rounds: 3},
	{tour: true, seed: 5, version: dap.Draft19, mode: dap.TimeInterval, min: 5, segment: 3, patience: -1, deferred: helper.Always, rotate: true},
	{tour: true, seed: 6, mode: dap.TimeInterval, min: 5, segment: 3, patience: -1, series: true, window: true},
}

// tour is a short life with a bit of everything.
func (w *world) tour() {
	both := func(w *world) {
		w.leader.step()
		w.helper.step()
	}
	first := must(dap.TimePrecision(precision).At(w.start))
	ask := func(d dap.Duration) func(*world) {
		return func(w *world) {
			if w.cfg.mode == dap.LeaderSelected {
				w.opCollect()
				return
			}
			w.ask(w.newJob(dap.Query{Mode: dap.TimeInterval, Interval: dap.Interval{Start: first, Duration: d}}))
		}
	}
	upload := func(kinds ...kind) func(*world) {
		return func(w *world) {
			var reports []*report
			for _, k := range kinds {
				if r := w.make(k, 0); r != nil {
					reports = append(reports, r)
				}
			}
			w.upload(reports)
		}
	}
	wait := func(d time.Duration) func(*world) { return func(*world) { time.Sleep(d) } }
	stopLeader := func(w *world) { // the next life sorts what this one has left
		w.bury()
		if l := w.leader.life.Load(); l != nil && l.alive.Load() {
			w.leader.stop()
		}
	}
	poll := func(w *world) {
		for _, j := range w.jobs {
			if j.state.JobID != "" {
				w.poll(j)
			} else if !j.done {
				w.ask(j)
			}
		}
	}
	for _, op := range []func(*world){
		(*world).opForgo, ask(1), ask(2), // they compete: one of them fails
		upload(good, early, badLeader, badHelper), upload(badProof, badShare),
		func(w *world) { w.upload(w.oracle.reports[:min(3, len(w.oracle.reports))]) }, // replays
		func(w *world) {
			if w.helper.life.Load() != nil {
				w.helper.fall(maxBackOff / 2)
			}
			w.leader.step() // in vain
		},
		wait(maxBackOff), (*world).opForgeShare, both, both, poll,
		upload(good), both, upload(good), both, upload(good), both, // many runs, to be merged
		upload(good, good), both, wait(2 * maxBackOff), both, both, both, poll, wait(maxBackOff), both, both, poll,
		func(w *world) {
			for _, j := range w.jobs {
				if j.done && !j.deleted {
					w.delete(j)
				}
			}
		},
		wait(precision * time.Second), upload(good, good, good), both, (*world).opStop, both, upload(good), stopLeader, both, ask(3), both,
	} {
		if w.do(op); w.failed() {
			return
		}
	}
	if !w.cfg.rotate {
		return
	}
	// Keys end, first the leader's and then the helper's, beside reports that are sealed
	// to the next ones.
	for _, op := range []func(*world){
		(*world).revive, (*world).rest, wait(keyPeriod), both, upload(good), both, wait(keyMaxAge + keyOverlap), both, both,
		func(w *world) { w.upload(w.oracle.reports[:min(1, len(w.oracle.reports))]) }, upload(good, good), (*world).revive, (*world).rest,
		wait(keyDelay), both, both, (*world).opStop, upload(good), both,
	} {
		if w.do(op); w.failed() {
			return
		}
	}
}

// TestFailpoints loses power at each named failpoint of each node once, and has what is
// done there reported failed once. After that everything must still come to its right
// end.
func TestFailpoints(t *testing.T) {
	passed := make(map[string]map[string]config) // by node and failpoint: the first tour that passes it
	for _, cfg := range tours {
		w := try(t, cfg)
		if cfg.rotate && w.oracle.outdatedSeen == 0 {
			t.Error("no report was refused because of its key")
		}
		for node, points := range w.seen {
			for p := range points {
				if passed[node] == nil {
					passed[node] = make(map[string]config)
				}
				if _, ok := passed[node][p]; !ok {
					passed[node][p] = cfg
				}
			}
		}
	}
	for node, points := range failpoints {
		points := slices.Concat(points, keyset.FailpointNames())
		for p := range passed[node] {
			if !slices.Contains(points, p) {
				t.Errorf("%s passes %q, which is not in the list", node, p)
			}
		}
		for i, p := range points {
			cfg, ok := passed[node][p]
			if !ok {
				t.Errorf("%s: no tour passes %q", node, p)
				continue
			}
			if i%*every != 0 {
				continue
			}
			for _, soft := range []bool{false, true} {
				if soft && !strings.Contains(p, "after-") {
					continue // as if it had not been called
				}
				c := crash{node: node, point: p, soft: soft}
				t.Run(strings.ReplaceAll(c.String(), " ", "-"), func(t *testing.T) {
					cfg.crashes = []*crash{&c}
					if w := try(t, cfg); !w.fired[c] {
						t.Errorf("never reached")
					}
				})
			}
		}
	}
}

// TestDiskCalls loses power, or has the disk fail once, at calls spread over the tours.
func TestDiskCalls(t *testing.T) {
	calls := map[string]int{"leader": 400, "helper": 240} // every tour makes more
	for i := range *disks {
		for node, n := range calls {
			c := crash{node: node, skip: i * n / *disks, soft: i%3 == 2}
			t.Run(strings.ReplaceAll(c.String(), " ", "-"), func(t *testing.T) {
				cfg := tours[i%len(tours)]
				cfg.crashes = []*crash{&c}
				if w := try(t, cfg); !w.fired[c] {
					t.Errorf("never reached")
				}
			})
		}
	}
}
