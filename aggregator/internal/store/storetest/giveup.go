package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

func init() { tests["GivenUp"] = testGivenUp }

// testGivenUp: of a task that was closed, what waits and the peer cannot have is given up
// at once, whoever holds it; jobs that were sent go on, and end with their reports.
func testGivenUp(t *testing.T, h Harness) {
	for _, mode := range []dap.BatchMode{dap.TimeInterval, dap.LeaderSelected} {
		ctx := context.Background()
		task, other := Task(t, mode, 1), Task(t, mode, 2)
		task.End, other.End = Epoch.Add(time.Hour), Epoch.Add(time.Hour)
		w := NewWorld(t, h, other)
		w.tasks = append(w.tasks, task)
		_, err := w.Store.Register(ctx, Provision(task))
		w.ok(err)
		w.ok(w.Store.PutTask(ctx, task))
		// A job of each kind, of another number of reports each.
		at := 0
		job := func(reports int) *store.Job {
			t.Helper()
			w.log(task, 10, at, at+reports-1)
			at += reports
			return w.Claim(1)[0]
		}
		send := func(j *store.Job) {
			t.Helper()
			w.ok(w.Store.SaveSent(ctx, j, &store.Sent{Accepted: []byte{0xff}, Digest: [32]byte{byte(at)}}, w.Now.Add(time.Minute)))
		}
		back := func(j *store.Job) {
			t.Helper()
			w.ok(w.Store.RetryJob(ctx, j, w.Now.Add(30*time.Second), "a timeout"))
		}
		sent, sentBefore := job(5), job(6)
		send(sent)
		send(sentBefore)
		back(sentBefore)
		leased, parked, retried := job(1), job(2), job(3)
		send(parked)
		w.ok(w.Store.ParkJob(ctx, parked, "a wrong answer", w.Now))
		back(retried)
		w.log(task, 10, 20, 23) // no job's
		w.log(task, 11, 24, 25)
		w.log(other, 10, 100, 102)
		numbers := w.Numbers(leased)

		if _, err := w.Store.GiveUp(ctx, task.ID); err == nil {
			t.Fatal("given up of a task that is live")
		}
		w.CountsAre(task, store.Counts{Acknowledged: 23, Waiting: 23})
		_, err = w.Store.CloseTask(ctx, task.ID, store.Closing{At: w.Now, By: "bob", Why: "over"})
		w.ok(err)
		w.is(second(w.Store.GiveUp(ctx, dap.TaskID{9})), store.ErrNotFound)
		n, err := w.Store.GiveUp(ctx, task.ID)
		if w.ok(err); n != 12 {
			t.Fatalf("%d reports were given up, want 12", n)
		}
		given := map[dap.ReportError]uint64{dap.ReportDropped: 12}
		w.CountsAre(task, store.Counts{Acknowledged: 23, Waiting: 11, Rejected: given})
		w.CountsAre(other, store.Counts{Acknowledged: 3, Waiting: 3})
		w.Audit()
		w.is(w.Store.SaveSent(ctx, leased, &store.Sent{Accepted: []byte{1}}, w.Now), store.ErrStaleLease)
		w.is(w.Store.FinishJob(ctx, leased, Commit(t, task, []store.Batch{leased.Batch}, []dap.Time{10}, [][]int{numbers})), store.ErrStaleLease)
		for range 2 { // the second time after a start
			if n, err := w.Store.GiveUp(ctx, task.ID); n != 0 || err != nil {
				t.Fatalf("%d reports were given up again, %v", n, err)
			}
			if n, err := w.Store.Resume(ctx, []dap.TaskID{task.ID}, false); n != 0 || err != nil {
				t.Fatalf("%d reports go on, %v", n, err)
			}
			stuck, err := w.Store.Stuck(ctx, task.ID)
			w.ok(err)
			if len(stuck) != 1 || stuck[0].Parked || stuck[0].Quarantined || stuck[0].Reports != 6 { // sentBefore
				t.Fatalf("stuck is %+v", stuck)
			}
			w.Reopen(t)
		}
		w.Now = w.Now.Add(2 * time.Minute) // the lease and the back-off are over
		jobs := w.Claim(9)
		jobs = slices.DeleteFunc(jobs, func(j *store.Job) bool {
			if j.Task == other.ID {
				w.ok(w.Store.FinishJob(ctx, j, w.CommitOf(other, j)))
			}
			return j.Task == other.ID
		})
		if len(jobs) != 2 || jobs[0].ID != sent.ID || jobs[1].ID != sentBefore.ID || jobs[0].Sent == nil || jobs[1].Sent == nil {
			t.Fatalf("claimed %d jobs of the task", len(jobs))
		}
		for _, j := range jobs {
			w.ok(w.Store.FinishJob(ctx, j, w.CommitOf(task, j)))
		}
		w.ok(w.Store.Bury(ctx))
		w.CountsAre(task, store.Counts{Acknowledged: 23, Aggregated: 11, Rejected: given})
		if names := w.unnamed(); len(names) > 0 {
			t.Errorf("files are left: %q", names)
		}
		sel := Interval(10, 1)
		if mode == dap.LeaderSelected {
			sel = nil
		}
		r := w.Ask(task, "ask", sel)
		f := w.Hold(r)
		var got []int64
		_, err = w.Store.Release(ctx, w.ReleaseOf(task, r, f, &got))
		w.ok(err)
		last := 10
		if mode == dap.LeaderSelected {
			last = 4 // a batch has its minimum with the first job
		}
		w.Once(got, 0, last)
		w.ok(w.Store.Retire(ctx, task.ID, w.Now.Add(1000*time.Hour)))
		w.is(second(w.Store.GiveUp(ctx, task.ID)), store.ErrNotFound)
		w.Audit()
		w.close()
	}
}
