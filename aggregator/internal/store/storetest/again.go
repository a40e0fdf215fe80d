package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
)

func init() {
	tests["AskedAgain"] = testAskedAgain
}

// testAskedAgain: every call took place, and its caller, who did not hear of it, makes it
// once more. The answer is the one that the package comment of store promises, and nothing
// is done twice but what it says.
func testAskedAgain(t *testing.T, h Harness) {
	ctx := context.Background()
	lead, help := Task(t, dap.TimeInterval, 1), Task(t, dap.LeaderSelected, 2)
	lead.End = Epoch.Add(time.Hour)
	w := NewWorld(t, h, lead, help)
	again := func(name string, want error, call func() (any, error)) {
		t.Helper()
		first, err := call()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		second, err := call()
		switch {
		case want != nil:
			w.is(err, want)
		case err != nil || fmt.Sprint(first) != fmt.Sprint(second):
			t.Errorf("%s: at first %v, then %v, %v", name, first, second, err)
		}
		w.Audit()
	}
	do := func(name string, want error, call func() error) {
		t.Helper()
		again(name, want, func() (any, error) { return nil, call() })
	}

	do("PutTask", nil, func() error { return w.Store.PutTask(ctx, lead) })
	do("NoteKeys", nil, func() error { return w.Store.NoteKeys(ctx) })
	do("SaveTime", nil, func() error { return w.Store.SaveTime(ctx, w.Now) })
	do("HoldTask", nil, func() error { return w.Store.HoldTask(ctx, lead.ID, "a person", w.Now) })
	again("Resume", nil, func() (any, error) { return w.Store.Resume(ctx, []dap.TaskID{lead.ID}, false) })
	key := datakey.Record{Serial: 1, From: Epoch, Until: Epoch.Add(time.Hour)}
	do("NoteDataKey", nil, func() error { return w.Store.NoteDataKey(ctx, datakey.SetID{1}, key) })
	do("EndDataKey", nil, func() error { return w.Store.EndDataKey(ctx, 1) })
	do("CommitLog", nil, func() error { return w.Store.CommitLog(ctx, disk.LogID{1}, nil, nil, nil) })
	do("ForgetLog", nil, func() error { return w.Store.ForgetLog(ctx, disk.LogID{1}) })

	// Four segments: one is committed, one set aside, one parked and one given back.
	for n := range 4 {
		w.Upload(lead, dap.Time(10+n), 6*n, 6*n+5)
	}
	w.Sort()
	jobs := w.Claim(4)
	sent := &store.Sent{Accepted: make([]byte, 1), Digest: [32]byte{1}}
	do("SaveSent", nil, func() error { return w.Store.SaveSent(ctx, jobs[0], sent, w.Now.Add(time.Hour)) })
	do("CommitSegment", store.ErrStaleLease, func() error { return w.Store.CommitSegment(ctx, jobs[0], w.CommitOf(lead, jobs[0])) })
	do("Quarantine", store.ErrStaleLease, func() error { return w.Store.Quarantine(ctx, jobs[1], dap.InvalidMessage, "why") })
	do("Park", store.ErrStaleLease, func() error { return w.Store.Park(ctx, jobs[2], "why", w.Now) })
	do("RetrySegment", store.ErrStaleLease, func() error { return w.Store.RetrySegment(ctx, jobs[3], w.Now, "why") })
	reports, err := w.Store.Resume(ctx, []dap.TaskID{lead.ID}, false)
	if w.ok(err); reports != 6 {
		t.Errorf("%d reports go on, want 6", reports)
	}
	again("Resume", nil, func() (any, error) { return w.Store.Resume(ctx, []dap.TaskID{lead.ID}, false) })
	w.Work(lead)
	do("Bury", nil, func() error { return w.Store.Bury(ctx) })
	w.CountsAre(lead, store.Counts{Acknowledged: 24, Aggregated: 18, Rejected: map[dap.ReportError]uint64{dap.InvalidMessage: 6}})

	r := w.Ask(lead, "first", Interval(10, 1))
	again("Create", nil, func() (any, error) { return w.Ask(lead, "first", Interval(10, 1)).ID, nil })
	again("Drain", nil, func() (any, error) {
		sel, waiting, err := w.Store.Drain(ctx, r)
		return fmt.Sprint(sel, waiting), err
	})
	var f *store.Frozen
	again("Freeze", nil, func() (_ any, err error) {
		f, err = w.Store.Freeze(ctx, r, *Interval(10, 1))
		return *f, err
	})
	var got []int64
	again("Release", nil, func() (any, error) { return w.Store.Release(ctx, w.ReleaseOf(lead, r, f, &got)) })
	w.Once(got, 0, 5)
	do("Delete", store.ErrNotFound, func() error { return w.Store.Delete(ctx, r.Kind, lead.ID, r.ID) })
	second, third := w.Ask(lead, "second", Interval(12, 1)), w.Ask(lead, "third", Interval(13, 1))
	do("Withdraw", store.ErrNotFound, func() error { return w.Store.Withdraw(ctx, lead.ID, second.ID) })
	do("Fail", nil, func() error { return w.Store.Fail(ctx, third, &dap.Problem{Type: dap.ProblemBatchInvalid}) })

	job := w.job(help, "job")
	commit := func(first int) *store.Commit {
		c := Commit(t, help, []store.Batch{{ID: dap.BatchID{1}}}, []dap.Time{10}, [][]int{{first, first + 1}})
		return c
	}
	again("CommitJob", nil, func() (any, error) { return w.Store.CommitJob(ctx, job, commit(0), reply) })
	again("Advance", nil, func() (any, error) { return w.Store.Advance(ctx, job, 1, [32]byte{1}, commit(2), reply) })
	w.CountsAre(help, store.Counts{Acknowledged: 4, Aggregated: 4})

	refused := map[dap.ReportError]uint64{dap.ReportTooEarly: 3}
	do("AddRefused", nil, func() error { return w.Store.AddRefused(ctx, help.ID, refused) })
	w.CountsAre(help, store.Counts{Acknowledged: 4, Aggregated: 4, Refused: map[dap.ReportError]uint64{dap.ReportTooEarly: 6}})

	do("Retire", nil, func() error { return w.Store.Retire(ctx, lead.ID, lead.End) })
	again("Sweep", nil, func() (any, error) { return w.Store.Sweep(ctx, lead.ID, 1000) })
}
