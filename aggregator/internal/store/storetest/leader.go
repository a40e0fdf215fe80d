package storetest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
)

func init() {
	tests["LeaderWholeWay"] = testLeaderWholeWay
	tests["LeaderSelectedWholeWay"] = testLeaderSelectedWholeWay
	tests["TasksAreKept"] = testTasksAreKept
	tests["TaskRaces"] = testTaskRaces
	tests["LogsCommitOnce"] = testLogsCommitOnce
	tests["LeasesFence"] = testLeasesFence
	tests["RetryBacksOff"] = testRetryBacksOff
	tests["SentIsFixed"] = testSentIsFixed
	tests["SentSteps"] = testSentSteps
	tests["SharedJob"] = testSharedJob
	tests["Quarantine"] = testQuarantine
	tests["Park"] = testPark
	tests["ParkedBatchIsPassedOver"] = testParkedBatchIsPassedOver
	tests["HoldAfterRefusedJobs"] = testHoldAfterRefusedJobs
	tests["HoldAfterRefusedReports"] = testHoldAfterRefusedReports
	tests["HoldByPerson"] = testHoldByPerson
	tests["ReplayAcrossJobs"] = testReplayAcrossJobs
	tests["CommitAccountsForAll"] = testCommitAccountsForAll
	tests["FailedFoldChangesNothing"] = testFailedFoldChangesNothing
	tests["ManyRuns"] = testManyRuns
	tests["Refused"] = testRefused
}

func testLeaderWholeWay(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.Upload(task, 10, 0, 9)
	w.Upload(task, 11, 10, 14)
	w.Sort()
	w.CountsAre(task, store.Counts{Acknowledged: 15, Waiting: 15})
	if done := w.Work(task); done != 3 {
		t.Fatalf("%d jobs, want 3", done)
	}
	w.CountsAre(task, store.Counts{Acknowledged: 15, Aggregated: 15})

	batches, err := w.Store.Batches(ctx, task.ID, 10)
	w.ok(err)
	want := []store.BatchStatus{
		{Batch: store.Batch{Start: 11}, Verified: 5, First: 11, Last: 11, Checksum: checksum(10, 14)},
		{Batch: store.Batch{Start: 10}, Verified: 10, First: 10, Last: 10, Checksum: checksum(0, 9)},
	}
	if !slices.Equal(batches, want) {
		t.Fatalf("batches are %+v, want %+v", batches, want)
	}

	r := w.Ask(task, "ask", Interval(5, 100))
	f := w.Hold(r)
	if f.Count != 15 || f.Checksum != checksum(0, 14) || f.Span != (dap.Interval{Start: 10, Duration: 2}) || f.Fullest != 10 {
		t.Fatalf("frozen is %+v", *f)
	}
	var got []int64
	response, err := w.Store.Release(ctx, w.ReleaseOf(task, r, f, &got))
	w.ok(err)
	w.Once(got, 0, 14)
	w.CountsAre(task, store.Counts{Acknowledged: 15, Aggregated: 15, Collected: 15})
	w.Audit()

	w.Reopen(t)
	again, err := w.Store.Resource(ctx, store.KindCollection, task.ID, r.ID)
	w.ok(err)
	if again.State != store.Ready || string(again.Response) != string(response) || string(again.Body) != "ask" {
		t.Fatalf("after reopening the collection is %+v", again)
	}
	for _, bucket := range []dap.Time{5, 10, 50, 104} {
		state, err := w.Store.BatchState(ctx, task.ID, store.Batch{Start: bucket})
		w.ok(err)
		if state != store.Closed {
			t.Errorf("bucket %d is %d, want closed", bucket, state)
		}
	}
	for _, bucket := range []dap.Time{4, 105} {
		state, err := w.Store.BatchState(ctx, task.ID, store.Batch{Start: bucket})
		w.ok(err)
		if state != store.Open {
			t.Errorf("bucket %d is %d, want open", bucket, state)
		}
	}
	w.Audit()
}

func testLeaderSelectedWholeWay(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.LeaderSelected, 1)
	w := NewWorld(t, h, task)
	w.Upload(task, 10, 0, 2)
	w.Sort()
	w.Work(task)
	r := w.Ask(task, "next", nil)
	_, _, err := w.Store.Drain(ctx, r)
	w.is(err, store.ErrTooSmall)

	w.Upload(task, 11, 3, 5) // the same batch: it has 3 of 5
	w.Sort()
	w.Work(task)
	w.Upload(task, 12, 6, 13) // the next batch
	w.Sort()
	w.Work(task)
	batches, err := w.Store.Batches(ctx, task.ID, 10)
	w.ok(err)
	if len(batches) != 2 || batches[1].Verified != 6 || batches[0].Verified != 8 {
		t.Fatalf("batches are %+v", batches)
	}
	if batches[0].Batch.ID == batches[1].Batch.ID || batches[0].Batch.ID == (dap.BatchID{}) {
		t.Fatal("batch ids are not random")
	}

	f := w.Hold(r)
	if f.Selection.ID != batches[1].Batch.ID || f.Span != (dap.Interval{Start: 10, Duration: 2}) {
		t.Fatalf("frozen is %+v, want the oldest batch", f)
	}
	var got []int64
	_, err = w.Store.Release(ctx, w.ReleaseOf(task, r, f, &got))
	w.ok(err)
	w.Once(got, 0, 5)
	w.Audit()

	// The same body is the same collection until it is deleted; then it is a fresh one,
	// with the next batch.
	if same := w.Ask(task, "next", nil); same.ID != r.ID || same.State != store.Ready {
		t.Fatalf("asked again: %+v", same)
	}
	w.is(w.Store.Withdraw(ctx, task.ID, r.ID), store.ErrBusy) // it has its answer
	w.ok(w.Store.Delete(ctx, store.KindCollection, task.ID, r.ID))
	_, err = w.Store.Resource(ctx, store.KindCollection, task.ID, r.ID)
	w.is(err, store.ErrNotFound)
	w.is(w.Store.Withdraw(ctx, task.ID, r.ID), store.ErrNotFound)
	r2 := w.Ask(task, "next", nil)
	if r2.ID == r.ID || r2.State != store.Pending {
		t.Fatalf("asked after deletion: %+v", r2)
	}
	_, err = w.Store.Release(ctx, w.ReleaseOf(task, r2, w.Hold(r2), &got))
	w.ok(err)
	w.Once(got, 6, 13)
	state, err := w.Store.BatchState(ctx, task.ID, batches[0].Batch)
	w.ok(err)
	if state != store.Closed {
		t.Fatalf("released batch is %d", state)
	}
	w.Audit()
}

func testTasksAreKept(t *testing.T, h Harness) {
	ctx := context.Background()
	a, b := Task(t, dap.TimeInterval, 1), Task(t, dap.LeaderSelected, 2)
	w := NewWorld(t, h, a, b)
	w.Reopen(t)
	ids, err := w.Store.Tasks(ctx)
	w.ok(err)
	if !slices.Equal(ids, []dap.TaskID{a.ID, b.ID}) {
		t.Fatalf("tasks are %v", ids)
	}
	other := *a
	other.MinBatch++
	w.is(w.Store.PutTask(ctx, &other), store.ErrDifferent)
	_, err = w.Store.Counts(ctx, dap.TaskID{9})
	w.is(err, store.ErrNotFound)
	_, err = w.Store.Seen(ctx, dap.TaskID{9}, nil)
	w.is(err, store.ErrNotFound)
	_, err = w.Store.BatchState(ctx, dap.TaskID{9}, store.Batch{})
	w.is(err, store.ErrNotFound)
	_, _, err = w.Store.Create(ctx, store.KindShare, dap.TaskID{9}, "", nil, false, nil, w.Now)
	w.is(err, store.ErrNotFound)
}

// testTaskRaces: processes that start together provision the same task, and one that was
// configured otherwise hears of it.
func testTaskRaces(t *testing.T, h Harness) {
	w := NewWorld(t, h)
	const at = "store.put-task.before-commit" // where the others get their turn
	h.Failpoints().Arm(at, 0, func() error {
		for range 100 {
			runtime.Gosched()
		}
		return nil
	})
	defer h.Failpoints().Disarm(at)
	const races = 8
	for n := range byte(races) {
		var same, other [8]error
		var wg sync.WaitGroup
		begin := make(chan struct{}) // closed when all are ready
		for i := range same {
			wg.Go(func() {
				task := Task(t, dap.TimeInterval, n)
				<-begin
				same[i] = w.Store.PutTask(context.Background(), task)
			})
		}
		close(begin)
		wg.Wait()
		changed := Task(t, dap.TimeInterval, n)
		changed.MinBatch++
		for i := range other {
			wg.Go(func() { other[i] = w.Store.PutTask(context.Background(), changed) })
		}
		wg.Wait()
		for i := range same {
			w.ok(same[i])
			w.is(other[i], store.ErrDifferent)
		}
	}
	ids, err := w.Store.Tasks(context.Background())
	if w.ok(err); len(ids) != races {
		t.Errorf("tasks are %v", ids)
	}
	w.Audit()
}

func testLogsCommitOnce(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	fate := func(log segment.Begun, want segment.Fate) {
		t.Helper()
		if got, err := w.Store.LogFate(ctx, log); got != want || err != nil {
			t.Fatalf("the fate of %s is %d, want %d: %v", log.File, got, want, err)
		}
	}
	begun := func(want ...segment.Begun) {
		t.Helper()
		logs, err := w.Store.BegunLogs(ctx)
		w.ok(err)
		logs = slices.DeleteFunc(logs, func(b segment.Begun) bool { return b.ID != (disk.LogID{b.ID[0]}) }) // the world's own
		if !slices.Equal(logs, want) {
			t.Fatalf("begun are %v, want %v", logs, want)
		}
	}
	first, next := segment.Begun{ID: disk.LogID{1}, File: "inbox/1.log"}, segment.Begun{ID: disk.LogID{3}, File: "inbox/3.log"}
	slice := segment.Slice{
		Object: first.File, TaskID: task.ID, Bucket: 3, Count: 4, Duplicates: 2, Sum: segment.Sum{1}, Came: 7,
		Pieces: []segment.Piece{{Offset: 64, Length: 120, Count: 3}, {Offset: 400, Length: 40, Count: 1}},
	}
	list := []segment.Slice{slice}
	fate(first, segment.Unsorted)
	begun()
	w.ok(w.Store.BeginLogs(ctx, []segment.Begun{first}))
	w.ok(w.Store.BeginLogs(ctx, []segment.Begun{first}))
	begun(first)
	fate(first, segment.Unsorted)
	w.ok(w.Store.CommitLog(ctx, first, list, nil, []segment.Begun{next}))
	begun(next)
	w.ok(w.Store.CommitLog(ctx, first, list, nil, nil))
	w.ok(w.Store.BeginLogs(ctx, []segment.Begun{first}))
	begun(next) // what is sorted is not begun again
	fate(first, segment.Named)
	fate(segment.Begun{File: first.File}, segment.Named) // whatever has become of its header
	fate(segment.Begun{ID: first.ID}, segment.Named)
	want := store.Counts{Acknowledged: 6, Waiting: 4, Rejected: map[dap.ReportError]uint64{dap.ReportReplayed: 2}}
	w.CountsAre(task, want)
	live, err := w.Store.LiveFiles(ctx)
	w.ok(err)
	if !slices.Contains(live, first.File) {
		t.Fatalf("live files are %v", live)
	}
	jobs := w.Claim(5)
	if len(jobs) != 1 || !reflect.DeepEqual(jobs[0].Slices, list) {
		t.Fatalf("claimed %+v", jobs)
	}
	problems, err := w.Store.Audit(ctx)
	w.ok(err)
	if len(problems) != 1 {
		t.Fatalf("one file is missing, but the audit says %q", problems)
	}
	second := segment.Begun{ID: disk.LogID{2}, File: "inbox/2.log"}
	foreign := slice
	foreign.Object, foreign.TaskID = second.File, dap.TaskID{9}
	w.is(w.Store.CommitLog(ctx, second, []segment.Slice{foreign}, nil, nil), segment.ErrForeign)
	fate(second, segment.Unsorted)

	// What is whole of a damaged log lies elsewhere.
	moved := slice
	moved.Object, moved.Sum = "slices/2.obj", segment.Sum{2}
	lost := &segment.LogDamage{File: second.File, Bytes: 9, Records: 1, Reports: map[segment.TaskID]int{segment.TaskID(task.ID): 5}, Exact: true}
	w.ok(w.Store.CommitLog(ctx, second, []segment.Slice{moved}, lost, nil))
	fate(second, segment.Replaced)
	want.Acknowledged, want.Waiting, want.Rejected = 17, 8, map[dap.ReportError]uint64{dap.ReportReplayed: 4, dap.ReportDropped: 5}
	w.CountsAre(task, want)
	w.ok(w.Store.ForgetLog(ctx, second.ID))
	fate(second, segment.Unsorted)

	// One that has nothing goes at once, and is forgotten with its file.
	w.ok(disk.WriteFile(h.FS(), next.File, []byte("a log")))
	w.ok(w.Store.CommitLog(ctx, next, nil, nil, nil))
	fate(next, segment.Named)
	w.ok(w.Store.Bury(ctx))
	fate(next, segment.Unsorted)
	if _, err := h.FS().Stat(next.File); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the log of nothing: %v", err)
	}
	begun()
}

func testLeasesFence(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.Upload(task, 10, 0, 5)
	w.Sort()
	old := w.Claim(5)
	if len(old) != 1 || old[0].Lease.Attempts != 1 || !old[0].Lease.Expires.Equal(w.Now.Add(time.Minute)) {
		t.Fatalf("claimed %+v", old)
	}
	if more := w.Claim(5); len(more) != 0 {
		t.Fatalf("claimed twice: %+v", more)
	}
	// Sending extends the lease, and never shortens it.
	sent := &store.Sent{Accepted: []byte{63}, Digest: [32]byte{1}}
	later := w.Now.Add(90 * time.Second)
	w.ok(w.Store.SaveSent(ctx, old[0], sent, later))
	w.ok(w.Store.SaveSent(ctx, old[0], sent, w.Now))
	if !old[0].Lease.Expires.Equal(later) {
		t.Errorf("the lease expires at %v, want %v", old[0].Lease.Expires, later)
	}
	w.Now = w.Now.Add(time.Minute)
	if more := w.Claim(5); len(more) != 0 {
		t.Fatalf("claimed while the lease was extended: %+v", more)
	}
	// And so does a worker that lives.
	w.ok(w.Store.RenewJob(ctx, old[0], w.Now))
	renewed := later.Add(30 * time.Second)
	w.ok(w.Store.RenewJob(ctx, old[0], renewed))
	w.Now = later
	if more := w.Claim(5); len(more) != 0 {
		t.Fatalf("claimed while the lease was renewed: %+v", more)
	}
	w.Now = renewed
	fresh := w.Claim(5)
	if len(fresh) != 1 || fresh[0].Lease.Attempts != 2 || fresh[0].Lease.Token == old[0].Lease.Token {
		t.Fatalf("claimed after the lease ran out: %+v", fresh)
	}
	w.is(w.Store.SaveSent(ctx, old[0], &store.Sent{Accepted: []byte{1}}, w.Now), store.ErrStaleLease)
	w.is(w.Store.RenewJob(ctx, old[0], w.Now.Add(time.Hour)), store.ErrStaleLease)
	w.is(w.Store.RetryJob(ctx, old[0], w.Now, "x"), store.ErrStaleLease)
	w.is(w.Store.QuarantineJob(ctx, old[0], dap.InvalidMessage, "x"), store.ErrStaleLease)
	w.is(w.Store.FinishJob(ctx, old[0], w.CommitOf(task, old[0])), store.ErrStaleLease)
	w.CountsAre(task, store.Counts{Acknowledged: 6, Waiting: 6})
	w.ok(w.Store.FinishJob(ctx, fresh[0], w.CommitOf(task, fresh[0])))
	w.is(w.Store.FinishJob(ctx, fresh[0], w.CommitOf(task, fresh[0])), store.ErrStaleLease)
	w.CountsAre(task, store.Counts{Acknowledged: 6, Aggregated: 6})
	w.Audit()
}

func testRetryBacksOff(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.Upload(task, 10, 0, 5)
	w.Sort()
	job := w.Claim(1)[0]
	w.ok(w.Store.RetryJob(ctx, job, w.Now.Add(time.Hour), "peer is down"))
	if jobs := w.Claim(1); len(jobs) != 0 {
		t.Fatal("claimed before its time")
	}
	stuck, err := w.Store.Stuck(ctx, task.ID)
	w.ok(err)
	want := store.Stuck{Job: job.ID, Reports: 6, Attempts: 1, Why: "peer is down", Next: w.Now.Add(time.Hour).UTC()}
	if len(stuck) != 1 || stuck[0] != want {
		t.Fatalf("stuck is %+v, want %+v", stuck, want)
	}
	w.Now = w.Now.Add(time.Hour)
	if jobs := w.Claim(1); len(jobs) != 1 || jobs[0].Lease.Attempts != 2 {
		t.Fatalf("claimed %+v", jobs)
	}
}

func testSentIsFixed(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.Upload(task, 10, 0, 5)
	w.Sort()
	job := w.Claim(1)[0]
	if job.Sent != nil {
		t.Fatal("sent before it was")
	}
	sent := &store.Sent{Accepted: []byte{0b101}, Digest: [32]byte{7}}
	if err := w.Store.SaveSent(ctx, job, &store.Sent{Accepted: []byte{1, 1}}, w.Now); err == nil {
		t.Fatal("a bitmap of the wrong length passed")
	}
	w.ok(w.Store.SaveSent(ctx, job, sent, w.Now))
	w.ok(w.Store.SaveSent(ctx, job, sent, w.Now))
	w.ok(w.Store.SaveSent(ctx, job, &store.Sent{Accepted: sent.Accepted, Digest: sent.Digest, Location: "/x/1"}, w.Now))
	w.ok(w.Store.SaveSent(ctx, job, sent, w.Now)) // forgets no location
	w.is(w.Store.SaveSent(ctx, job, &store.Sent{Accepted: []byte{1}, Digest: [32]byte{8}}, w.Now), store.ErrDifferent)
	w.Now = w.Now.Add(time.Hour)
	got := w.Claim(1)[0].Sent
	if got == nil || got.Digest != sent.Digest || got.Location != "/x/1" || !slices.Equal(got.Accepted, sent.Accepted) {
		t.Fatalf("sent is %+v", got)
	}
}

// testSentSteps: a later step is stored with the answer to the one before, and a step
// back, a step left out, or other bytes in the same step are refused. Answers go with the
// job.
func testSentSteps(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	for _, end := range []string{"commit", "quarantine"} {
		w := NewWorld(t, h, task)
		w.Upload(task, 10, 0, 5)
		w.Sort()
		job := w.Claim(1)[0]
		answers := [][]byte{{0xA0}, {}, {0xA2, 0xA2}}
		at := func(step uint16, digest byte, said [][]byte) error {
			return w.Store.SaveSent(ctx, job, &store.Sent{
				Accepted: []byte{0b111}, Step: step, Digest: [32]byte{digest}, Location: "job", Answers: said,
			}, w.Now)
		}
		w.is(at(1, 1, answers[:1]), store.ErrDifferent) // nothing was sent yet
		w.ok(at(0, 0, nil))
		if err := at(1, 1, nil); err == nil {
			t.Fatal("a step was taken without the answer to the one before")
		}
		w.is(at(2, 2, answers[:2]), store.ErrDifferent)
		for step := uint16(1); step <= 3; step++ {
			w.ok(at(step, byte(step), answers[:step]))
			w.ok(at(step, byte(step), answers[:step]))
			w.is(at(step, 9, answers[:step]), store.ErrDifferent)
			w.is(at(step-1, byte(step-1), answers[:step-1]), store.ErrDifferent)
			w.Audit()
		}
		w.Now = w.Now.Add(time.Hour)
		job = w.Claim(1)[0]
		got := job.Sent
		if got == nil || got.Step != 3 || got.Digest != [32]byte{3} || got.Location != "job" || !slices.EqualFunc(got.Answers, answers, bytes.Equal) {
			t.Fatalf("sent is %+v", got)
		}
		if end == "commit" {
			w.ok(w.Store.FinishJob(ctx, job, &store.Commit{Task: task.ID, Batches: []store.Batch{job.Batch},
				Rejected: map[dap.ReportError]uint64{dap.VDAFVerifyError: uint64(job.Reports())}}))
		} else {
			w.ok(w.Store.QuarantineJob(ctx, job, dap.ReportDropped, "no more"))
		}
		w.Audit()
	}
}

func testQuarantine(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.Upload(task, 10, 0, 5)
	w.Sort()
	job := w.Claim(1)[0]
	w.ok(w.Store.QuarantineJob(ctx, job, dap.InvalidMessage, "cannot be rebuilt"))
	w.CountsAre(task, store.Counts{Acknowledged: 6, Rejected: map[dap.ReportError]uint64{dap.InvalidMessage: 6}})
	w.Now = w.Now.Add(time.Hour)
	if jobs := w.Claim(1); len(jobs) != 0 {
		t.Fatal("claimed what was set aside")
	}
	stuck, err := w.Store.Stuck(ctx, task.ID)
	w.ok(err)
	if len(stuck) != 1 || !stuck[0].Quarantined || stuck[0].Why != "cannot be rebuilt" || stuck[0].Reports != 6 {
		t.Fatalf("stuck is %+v", stuck)
	}
	w.Audit()
}

func testPark(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	for _, drop := range []bool{false, true} {
		w := NewWorld(t, h, task)
		before, err := w.Store.Counts(ctx, task.ID)
		w.ok(err)
		w.Upload(task, 10, int(before.Acknowledged), int(before.Acknowledged)+5)
		w.Sort()
		job := w.Claim(1)[0]
		w.ok(w.Store.ParkJob(ctx, job, "a wrong answer", w.Now))
		w.is(w.Store.ParkJob(ctx, job, "a wrong answer", w.Now), store.ErrStaleLease)
		w.Audit()
		w.Reopen(t)
		w.Now = w.Now.Add(1000 * time.Hour)
		if jobs := w.Claim(1); len(jobs) != 0 {
			t.Fatal("claimed what is parked")
		}
		stuck, err := w.Store.Stuck(ctx, task.ID)
		w.ok(err)
		if n := len(stuck); n == 0 || !stuck[n-1].Parked || stuck[n-1].Quarantined || stuck[n-1].Why != "a wrong answer" || stuck[n-1].Reports != 6 {
			t.Fatalf("stuck is %+v", stuck)
		}
		if files, err := w.Store.LiveFiles(ctx); err != nil || !slices.Contains(files, job.Slices[0].Object) {
			t.Fatalf("live are %q, %v", files, err)
		}
		n, err := w.Store.Resume(ctx, []dap.TaskID{task.ID}, drop)
		w.ok(err)
		if n != 6 {
			t.Fatalf("resumed %d reports", n)
		}
		if n, err = w.Store.Resume(ctx, []dap.TaskID{task.ID}, drop); n != 0 || err != nil {
			t.Fatalf("resumed %d reports again, %v", n, err)
		}
		if drop {
			w.CountsAre(task, store.Counts{Acknowledged: 12, Aggregated: 6, Rejected: map[dap.ReportError]uint64{dap.ReportDropped: 6}})
			if dead := w.unnamed(); !slices.Contains(dead, job.Slices[0].Object) {
				t.Fatalf("dead are %q", dead)
			}
			w.dead(1)
		} else if done := w.Work(task); done != 1 {
			t.Fatalf("%d jobs", done)
		}
		w.Audit()
		w.close()
	}
}

func testParkedBatchIsPassedOver(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.LeaderSelected, 1)
	w := NewWorld(t, h, task)
	var jobs []*store.Job
	for i, n := range []int{3, 6, 6} { // the first two go into one batch, which overshoots, the last into another
		w.Upload(task, dap.Time(10+i), 10*i, 10*i+n-1)
		w.Sort()
		jobs = append(jobs, w.Claim(1)...)
	}
	if jobs[0].Batch != jobs[1].Batch || jobs[1].Batch == jobs[2].Batch {
		t.Fatal("the jobs are not where this test wants them")
	}
	w.ok(w.Store.FinishJob(ctx, jobs[1], w.CommitOf(task, jobs[1])))
	drain := func(name string) (dap.BatchID, uint64, error) {
		sel, waiting, err := w.Store.Drain(ctx, w.Ask(task, name, nil))
		return sel.ID, waiting, err
	}
	if id, waiting, err := drain("first"); err != nil || id != jobs[0].Batch.ID || waiting != 3 {
		t.Fatalf("the batch with its minimum is not drained: %d wait, %v", waiting, err)
	}
	w.ok(w.Store.ParkJob(ctx, jobs[0], "a wrong answer", w.Now))
	for _, name := range []string{"first", "second"} { // one that holds the batch, and one that looks for one
		_, _, err := drain(name)
		w.is(err, store.ErrTooSmall)
	}
	w.ok(w.Store.FinishJob(ctx, jobs[2], w.CommitOf(task, jobs[2])))
	if id, waiting, err := drain("first"); err != nil || id != jobs[2].Batch.ID || waiting != 0 {
		t.Fatalf("a batch that waits for nobody is passed over too: %d wait, %v", waiting, err)
	}
	if n, err := w.Store.Resume(ctx, []dap.TaskID{task.ID}, false); n != 3 || err != nil {
		t.Fatalf("resumed %d, %v", n, err)
	}
	if id, waiting, err := drain("second"); err != nil || id != jobs[0].Batch.ID || waiting != 3 {
		t.Fatalf("a resumed batch is passed over: %d wait, %v", waiting, err)
	}
	w.Work(task)
	w.Audit()
}

func testReplayAcrossJobs(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.Upload(task, 10, 0, 5)
	w.Upload(task, 10, 5, 5) // a duplicate in the same log
	w.Sort()
	w.Work(task)
	w.Upload(task, 10, 3, 9)
	w.Upload(task, 11, 3, 3) // another bucket: the same report id
	w.Sort()
	ids := []dap.ReportID{ReportID(3), ReportID(9), ReportID(3)}
	seen, err := w.Store.Seen(ctx, task.ID, ids)
	w.ok(err)
	if !slices.Equal(seen, []bool{true, false, true}) {
		t.Fatalf("seen is %v", seen)
	}
	w.Work(task)
	want := store.Counts{Acknowledged: 15, Aggregated: 10, Rejected: map[dap.ReportError]uint64{dap.ReportReplayed: 5}}
	w.CountsAre(task, want)
	w.Audit()
	w.Reopen(t)
	if seen, err = w.Store.Seen(ctx, task.ID, ids); err != nil || !slices.Equal(seen, []bool{true, true, true}) {
		t.Fatalf("seen after reopening is %v, %v", seen, err)
	}

	// Repeats within one commit, too.
	w.Upload(task, 12, 20, 21)
	w.Sort()
	job := w.Claim(1)[0]
	c := Commit(t, task, []store.Batch{job.Batch}, []dap.Time{12}, [][]int{{20, 20}})
	var verdicts []dap.ReportError
	inner := c.Fold
	c.Fold = func(v []dap.ReportError) (shares []*shareOf, err error) {
		verdicts = slices.Clone(v)
		return inner(v)
	}
	w.ok(w.Store.FinishJob(ctx, job, c))
	if !slices.Equal(verdicts, []dap.ReportError{0, dap.ReportReplayed}) {
		t.Fatalf("verdicts are %v", verdicts)
	}
	w.Audit()
}

func testCommitAccountsForAll(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.Upload(task, 10, 0, 5)
	w.Sort()
	job := w.Claim(1)[0]
	batches, times := []store.Batch{job.Batch}, []dap.Time{10}
	bad := map[string]*store.Commit{
		"too few":       Commit(t, task, batches, times, [][]int{{0, 1, 2}}),
		"other bucket":  Commit(t, task, batches, []dap.Time{11}, [][]int{{0, 1, 2, 3, 4, 5}}),
		"other batch":   Commit(t, task, []store.Batch{{Start: 11}}, []dap.Time{11}, [][]int{{0, 1, 2, 3, 4, 5}}),
		"batch twice":   Commit(t, task, []store.Batch{job.Batch, job.Batch}, times, [][]int{{0, 1, 2, 3, 4, 5}}),
		"no such batch": {Task: task.ID, Candidates: make([]store.Candidate, 6)},
	}
	for name, c := range bad {
		if err := w.Store.FinishJob(ctx, job, c); err == nil {
			t.Errorf("%s: passed", name)
		}
	}
	w.CountsAre(task, store.Counts{Acknowledged: 6, Waiting: 6})
	w.Audit()
	good := Commit(t, task, batches, times, [][]int{{0, 1, 2}})
	good.Rejected = map[dap.ReportError]uint64{dap.VDAFVerifyError: 2, dap.HpkeDecryptError: 1}
	w.ok(w.Store.FinishJob(ctx, job, good))
	w.CountsAre(task, store.Counts{Acknowledged: 6, Aggregated: 3, Rejected: good.Rejected})
	w.Audit()
}

func testFailedFoldChangesNothing(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.Upload(task, 10, 0, 5)
	w.Sort()
	job := w.Claim(1)[0]
	c := w.CommitOf(task, job)
	good := c.Fold
	boom := errors.New("boom")
	c.Fold = func([]dap.ReportError) ([]*shareOf, error) { return nil, boom }
	w.is(w.Store.FinishJob(ctx, job, c), boom)
	c.Fold = func([]dap.ReportError) ([]*shareOf, error) { return []*shareOf{nil}, nil }
	if err := w.Store.FinishJob(ctx, job, c); err == nil {
		t.Fatal("reports without a share passed")
	}
	w.CountsAre(task, store.Counts{Acknowledged: 6, Waiting: 6})
	w.Audit()
	c.Fold = good
	w.ok(w.Store.FinishJob(ctx, job, c))
	w.Audit()
}

// testManyRuns makes enough run files of one bucket that engines which merge them do.
func testManyRuns(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	for n := range 24 {
		w.Upload(task, 10, 2*n, 2*n+2) // one of the three is a replay, but for the first
		w.Sort()
		w.Work(task)
	}
	w.CountsAre(task, store.Counts{Acknowledged: 72, Aggregated: 49, Rejected: map[dap.ReportError]uint64{dap.ReportReplayed: 23}})
	w.Audit()
	w.Reopen(t)
	var ids []dap.ReportID
	for n := range 60 {
		ids = append(ids, ReportID(n))
	}
	seen, err := w.Store.Seen(ctx, task.ID, ids)
	w.ok(err)
	for n, s := range seen {
		if s != (n <= 48) {
			t.Fatalf("report %d: seen is %v", n, s)
		}
	}
	w.Audit()
}

func testRefused(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.ok(w.Store.AddRefused(ctx, task.ID, map[dap.ReportError]uint64{dap.ReportTooEarly: 2, dap.OutdatedConfig: 0}))
	w.ok(w.Store.AddRefused(ctx, task.ID, map[dap.ReportError]uint64{dap.ReportTooEarly: 1}))
	w.CountsAre(task, store.Counts{Refused: map[dap.ReportError]uint64{dap.ReportTooEarly: 3}})
	w.Audit()
}

// testSharedJob: of two jobs that make the same one at the helper one alone takes it past its first
// step, until it is done or set aside.
func testSharedJob(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	for _, end := range []string{"commit", "quarantine"} {
		w := NewWorld(t, h, task)
		for range 2 {
			w.Upload(task, 10, 0, 5)
			w.Sort()
		}
		jobs := w.Claim(2)
		save := func(j *store.Job, step uint16, location string) error {
			return w.Store.SaveSent(ctx, j, &store.Sent{
				Accepted: []byte{0b111}, Step: step, Digest: [32]byte{byte(step)}, Location: location, Answers: [][]byte{{0xA0}}[:step],
			}, w.Now)
		}
		shared := func(j *store.Job, location string, want bool) {
			t.Helper()
			if got, err := w.Store.Shared(ctx, j, location); got != want || err != nil {
				t.Errorf("%s: shared: %v %v, want %v", end, got, err, want)
			}
		}
		for _, j := range jobs {
			w.ok(save(j, 0, "job"))
		}
		shared(jobs[0], "job", false)
		w.ok(save(jobs[1], 1, "job"))
		shared(jobs[1], "job", false)
		shared(jobs[0], "job", true)
		shared(jobs[0], "another", false)
		shared(jobs[0], "", false)
		w.is(save(jobs[0], 1, "job"), store.ErrBusy)
		w.ok(save(jobs[0], 0, "job"))
		if end == "commit" {
			w.ok(w.Store.FinishJob(ctx, jobs[1], &store.Commit{Task: task.ID, Batches: []store.Batch{jobs[1].Batch},
				Rejected: map[dap.ReportError]uint64{dap.VDAFVerifyError: uint64(jobs[1].Reports())}}))
		} else {
			w.ok(w.Store.QuarantineJob(ctx, jobs[1], dap.ReportDropped, "no more"))
		}
		shared(jobs[0], "job", false)
		w.ok(save(jobs[0], 1, "job"))
		w.ok(w.Store.QuarantineJob(ctx, jobs[0], dap.ReportDropped, "no more"))
		w.Audit()
	}
}
