//go:build postgres

package postgres_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
)

// reads is how many rows the nodes of the plan of a statement have read or filtered at most,
// when it was run.
func (l *leader) reads(name string, args ...any) float64 {
	l.t.Helper()
	var plan []byte
	args = append([]any{pgx.QueryExecModeExec}, args...)
	is(l.t, l.owner.QueryRow(l.t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+statements(l.t)[name], args...).Scan(&plan), nil)
	var out any
	is(l.t, json.Unmarshal(plan, &out), nil)
	return most(out)
}

func most(node any) (n float64) {
	switch v := node.(type) {
	case []any:
		for _, x := range v {
			n = max(n, most(x))
		}
	case map[string]any:
		rows, _ := v["Actual Rows"].(float64)
		gone, _ := v["Rows Removed by Filter"].(float64)
		loops, _ := v["Actual Loops"].(float64)
		n = (rows + gone) * loops
		for _, x := range v {
			n = max(n, most(x))
		}
	}
	return n
}

// TestClaimsPassHeldTasks: a claim reads few slices, however many wait for tasks that are
// held; it finds what comes later, and all of them once they are let go on, at whatever
// replica.
func TestClaimsPassHeldTasks(t *testing.T) {
	ctx := t.Context()
	task, held, other := storetest.Task(t, dap.TimeInterval, 1), storetest.Task(t, dap.TimeInterval, 2), storetest.Task(t, dap.TimeInterval, 3)
	l := newLeader(t, task, held, other)
	a, b := l.all[0], l.all[1]
	is(t, a.HoldTask(ctx, held.ID, "a person", l.now), nil)
	is(t, a.HoldTask(ctx, other.ID, "a person", l.now), nil)
	l.upload(held, 5, 0, 0)
	const many = 30_000
	const more = `INSERT INTO slice (object, pieces, size, sum, task, bucket, reports, duplicates)
		SELECT object, pieces, 6000000, sum, task, 9, 1, 0 FROM (SELECT * FROM slice ORDER BY id LIMIT 1) AS s, generate_series(1, 15000)`
	l.owner.ok(more)
	l.upload(other, 7, 3, 3)
	l.owner.ok(more)
	l.owner.ok("ANALYZE slice, task, conduct, job")
	l.upload(task, 10, 1, 1)
	claim := func(s *postgres.Store, want ...int) {
		t.Helper()
		_, err := s.Holds(ctx)
		is(t, err, nil)
		jobs, err := s.ClaimJobs(ctx, l.now, time.Minute, 1, l.most)
		if is(t, err, nil); len(jobs) != len(want) {
			t.Fatalf("claimed %d jobs, want %d", len(jobs), len(want))
		}
		for i, j := range jobs {
			if at := int(j.Slices[0].Bucket); at != want[i] {
				t.Fatalf("claimed slices of bucket %d, want %d", at, want[i])
			}
			if at := want[i]; at >= 10 {
				l.finish(j)
			} else {
				is(t, s.RetryJob(ctx, j, l.now.Add(time.Hour), "later"), nil)
			}
		}
	}
	claim(a, 10)
	if n := a.After(); n < many-5000 {
		t.Fatalf("the next claim looks behind slice %d", n)
	}
	tasks, none := [][]byte{}, []int64{}
	if n := l.reads("claimable-after", int64(0), tasks, none, none); n < many {
		t.Fatalf("%v rows are read where nothing is known", n)
	}
	for _, name := range []string{"claimable", "claimable-after", "oldest-slice", "oldest-slice-after"} {
		args := map[string][]any{
			"claimable": {int64(0), int64(1), tasks, none, none, int64(256)}, "claimable-after": {a.After(), tasks, none, none},
			"oldest-slice": {tasks, none, none, int64(256)}, "oldest-slice-after": {tasks, none, none, a.After()},
		}[name]
		if n := l.reads(name, args...); n > 6000 {
			t.Errorf("%s reads %v rows of %d that wait", name, n, many)
		}
	}
	claim(a)
	l.upload(task, 11, 2, 2)
	claim(a, 11)
	claim(b)
	_, err := b.Resume(ctx, []dap.TaskID{other.ID}, false) // in the midst of the others
	is(t, err, nil)
	claim(a, 7)
	_, err = b.Resume(ctx, []dap.TaskID{held.ID}, false)
	is(t, err, nil)
	claim(a, 5)
	is(t, a.HoldTask(ctx, held.ID, "a person", l.now.Add(time.Second)), nil)
	claim(a)
	claim(b)
	_, err = a.Resume(ctx, []dap.TaskID{held.ID}, false)
	is(t, err, nil)
	claim(a, 9)
	claim(b, 9)
}

// TestFullBatches: a claim does not add up the batches of a task that have their reports,
// however many wait to be collected, and fills the oldest one that lacks some.
func TestFullBatches(t *testing.T) {
	ctx := t.Context()
	task := storetest.Task(t, dap.LeaderSelected, 2)
	task.MinBatch = 2
	l := newLeader(t, task)
	for n := range 5 {
		l.upload(task, 10, 2*n, 2*n+1)
		l.finish(l.one())
	}
	l.upload(task, 10, 10, 11)
	is(t, l.all[0].RetryJob(ctx, l.one(), l.now.Add(time.Hour), "later"), nil) // it is assigned a batch
	l.upload(task, 10, 12, 13)
	l.finish(l.one())
	l.upload(task, 10, 14, 15)
	l.finish(l.one())
	var known, want int64
	for _, e := range l.all { // of which one has claimed
		full, err := e.Full(ctx, task.ID)
		is(t, err, nil)
		known = max(known, full)
	}
	is(t, l.owner.QueryRow(ctx, "SELECT max(id) FROM batch WHERE id < (SELECT batch FROM job)").Scan(&want), nil)
	if known != want {
		t.Fatalf("batches up to %d are known to be full, want %d: the one after that has nothing that is verified", known, want)
	}
	// The assigned job ends without a report: its batch is the oldest that lacks some.
	l.now = l.now.Add(2 * time.Hour)
	j := l.one()
	is(t, l.next().QuarantineJob(ctx, j, dap.ReportDropped, "a reason"), nil)
	l.upload(task, 10, 16, 17)
	if again := l.one(); again.Batch != j.Batch {
		t.Fatalf("filled is batch %x, want %x", again.Batch.ID[:4], j.Batch.ID[:4])
	}
	l.audit("")
}
