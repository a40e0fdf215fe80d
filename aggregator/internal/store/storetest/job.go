package storetest

import (
	"context"
	"errors"
	"io/fs"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
)

func init() {
	tests["JobsTakeSlicesOfManyLogs"] = testJobsTakeSlices
	tests["JobsKeepTheirSlices"] = testJobsKeepSlices
	tests["JobsFillBatches"] = testJobsFillBatches
	tests["SetAside"] = testSetAside
	tests["AsideForAReason"] = testAsideForAReason
	tests["SlicesAreListed"] = testSlicesAreListed
	tests["SlicesMove"] = testSlicesMove
	tests["LeftoverIsBroughtTogether"] = testLeftover
}

// log uploads reports first to last of a bucket, which come into a log of their own.
func (w *World) log(task *store.Task, bucket dap.Time, first, last int) {
	w.t.Helper()
	w.Upload(task, bucket, first, last)
	w.Sort()
}

// testJobsTakeSlices: a job has the oldest slices of its task and bucket, of whatever logs,
// up to what a job takes, and one slice at least.
func testJobsTakeSlices(t *testing.T, h Harness) {
	task, other := Task(t, dap.TimeInterval, 1), Task(t, dap.TimeInterval, 2)
	w := NewWorld(t, h, task, other)
	w.log(task, 10, 0, 2)
	w.log(other, 10, 0, 1)
	w.log(task, 11, 3, 4)
	w.log(task, 10, 5, 7)
	w.log(task, 10, 8, 9)   // fills the first job
	w.log(task, 10, 10, 17) // is as large as a job
	w.log(task, 10, 18, 18)
	var got [][]int
	for _, j := range w.Claim(9) {
		got = append(got, w.Numbers(j))
		if want := task.ID; j.Slices[0].TaskID != segment.TaskID(j.Task) || j.Batch.Start != dap.Time(j.Slices[0].Bucket) {
			t.Errorf("a job of %v has slices of others: %+v", want, j)
		}
	}
	want := [][]int{{0, 1, 2, 5, 6, 7, 8, 9}, {0, 1}, {3, 4}, {10, 11, 12, 13, 14, 15, 16, 17}, {18}}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("jobs are of %v, want %v", got, want)
	}
	jobs, err := w.Store.ClaimJobs(context.Background(), w.Now.Add(time.Minute), time.Minute, 9, store.Most{Bytes: 1, Reports: 1}, store.Except{Task: other.ID})
	w.ok(err)
	if len(jobs) != 4 || !slices.Equal(w.Numbers(jobs[0]), want[0]) {
		t.Fatalf("claimed again are %d jobs, and the first is of other slices", len(jobs))
	}
	w.exceptBuckets(task, other)
	w.log(task, 12, 20, 21)
	w.log(task, 12, 22, 22)
	jobs, err = w.Store.ClaimJobs(context.Background(), w.Now, time.Minute, 9, store.Most{Bytes: 1, Reports: 1})
	w.ok(err)
	if len(jobs) != 2 || len(jobs[0].Slices) != 1 || jobs[0].Reports() != 2 {
		t.Fatalf("%d jobs of slices that are all larger than a job takes", len(jobs))
	}
	w.Audit()
}

// exceptBuckets claims all jobs and slices but those of some batch buckets of a task: they
// are left where they are, free or in a job, and others of the task are not.
func (w *World) exceptBuckets(task, other *store.Task) {
	w.t.Helper()
	later := w.Now.Add(2 * time.Hour)
	most := store.Most{Bytes: 1 << 20, Reports: 100}
	claim := func(except ...store.Except) (jobs []*store.Job, buckets []uint64) {
		w.t.Helper()
		jobs, err := w.Store.ClaimJobs(context.Background(), later, time.Minute, 99, most, except...)
		w.ok(err)
		for _, j := range jobs {
			if j.Task == task.ID {
				buckets = append(buckets, j.Slices[0].Bucket)
			}
		}
		return jobs, buckets
	}
	w.log(task, 20, 900, 900)
	w.log(task, 21, 901, 901)
	w.log(task, 23, 902, 902)
	if _, got := claim(store.Except{Task: task.ID, From: 0, To: 21}, store.Except{Task: other.ID, From: 0, To: 999}); !slices.Equal(got, []uint64{23}) {
		w.t.Fatalf("claimed buckets %v, without those to 21", got)
	}
	later = later.Add(time.Hour)
	_, got := claim(store.Except{Task: task.ID, From: 22, To: 23}, store.Except{Task: task.ID, From: 0, To: 20}, store.Except{Task: other.ID, From: 21, To: 21})
	if !slices.Equal(got, []uint64{21}) { // 23 is a job that is due
		w.t.Fatalf("claimed buckets %v, want 21 alone", got)
	}
	later = later.Add(time.Hour)
	jobs, got := claim(store.Except{Task: task.ID, From: 0, To: 19})
	slices.Sort(got)
	if !slices.Equal(got, []uint64{20, 21, 23}) {
		w.t.Fatalf("claimed buckets %v, want 20, 21 and 23", got)
	}
	for _, j := range jobs { // out of the way of what follows
		w.ok(w.Store.RetryJob(context.Background(), j, later.Add(time.Hour), "later"))
	}
}

// testJobsKeepSlices: what comes later is not of a job that was made before, sent or not,
// and its slices stay, in their order, over crashes.
func testJobsKeepSlices(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.log(task, 10, 0, 1)
	w.log(task, 10, 2, 3)
	first := w.Claim(1)[0]
	w.ok(w.Store.SaveSent(ctx, first, &store.Sent{Accepted: []byte{0b1011}, Digest: [32]byte{1}}, w.Now))
	w.log(task, 10, 4, 5)
	w.ok(w.Store.RetryJob(ctx, first, w.Now, "later"))
	flights, err := w.Store.Sent(ctx, task.ID)
	w.ok(err)
	if len(flights) != 1 || !reflect.DeepEqual(flights[0].Slices, first.Slices) || !slices.Equal(flights[0].Accepted, []byte{0b1011}) {
		t.Fatalf("sent are %+v", flights)
	}
	w.Reopen(t)
	jobs := w.Claim(5)
	if len(jobs) != 2 || jobs[0].ID != first.ID || !reflect.DeepEqual(jobs[0].Slices, first.Slices) || jobs[0].Sent == nil {
		t.Fatalf("claimed %+v, want %+v first", jobs, first)
	}
	if jobs[1].ID <= first.ID || !slices.Equal(w.Numbers(jobs[1]), []int{4, 5}) {
		t.Fatalf("the second is of %v", w.Numbers(jobs[1]))
	}
	w.ok(w.Store.FinishJob(ctx, jobs[0], w.CommitOf(task, jobs[0])))
	w.ok(w.Store.FinishJob(ctx, jobs[1], w.CommitOf(task, jobs[1])))
	w.CountsAre(task, store.Counts{Acknowledged: 6, Aggregated: 6})
	w.dead(3)
	w.Audit()
}

// testJobsFillBatches: a leader-selected job takes no more slices than its batch wants.
func testJobsFillBatches(t *testing.T, h Harness) {
	task := Task(t, dap.LeaderSelected, 1) // batches of 5
	w := NewWorld(t, h, task)
	for n := range 4 {
		w.log(task, 10, 2*n, 2*n+1)
	}
	jobs := w.Claim(9)
	if len(jobs) != 2 || jobs[0].Reports() != 6 || jobs[1].Reports() != 2 || jobs[0].Batch == jobs[1].Batch {
		t.Fatalf("jobs are %+v, want one of three slices, and one of the last in the next batch", jobs)
	}
	w.ok(w.Store.FinishJob(context.Background(), jobs[1], w.CommitOf(task, jobs[1])))
	w.log(task, 11, 8, 9)
	w.log(task, 11, 10, 11)
	w.log(task, 11, 12, 13)
	if next := w.Claim(1)[0]; next.Batch != jobs[1].Batch || next.Reports() != 4 {
		t.Fatalf("the next is %+v, want two slices for the batch that has 2 of 5", next)
	}
	w.Audit()
}

// testSetAside: slices of a job that was not sent are set aside, and what is left is the
// job; of one that was sent none is.
func testSetAside(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	for n := range 3 {
		w.log(task, 10, 2*n, 2*n+1)
	}
	job := w.Claim(1)[0]
	for range 2 { // the second finds what the first has done
		left, err := w.Store.SetAside(ctx, job, []int{1}, dap.ReportDropped, "a file is gone")
		w.ok(err)
		if left == nil || left.ID != job.ID || left.Lease != job.Lease || !slices.Equal(w.Numbers(left), []int{0, 1, 4, 5}) {
			t.Fatalf("left is %+v", left)
		}
		w.CountsAre(task, store.Counts{Acknowledged: 6, Waiting: 4, Rejected: map[dap.ReportError]uint64{dap.ReportDropped: 2}})
		stuck, err := w.Store.Stuck(ctx, task.ID)
		w.ok(err)
		if len(stuck) != 1 || !stuck[0].Quarantined || stuck[0].Reports != 2 || stuck[0].Why != "a file is gone" {
			t.Fatalf("stuck is %+v", stuck)
		}
		w.Audit()
	}
	w.dead(1)
	left, err := w.Store.SetAside(ctx, job, []int{1}, dap.ReportDropped, "a file is gone")
	w.ok(err)
	w.ok(w.Store.SaveSent(ctx, left, &store.Sent{Accepted: []byte{0b11}, Digest: [32]byte{1}}, w.Now))
	_, err = w.Store.SetAside(ctx, left, []int{0}, dap.ReportDropped, "a file is gone")
	w.is(err, store.ErrDifferent)
	w.ok(w.Store.FinishJob(ctx, left, w.CommitOf(task, left)))

	w.log(task, 10, 6, 7)
	w.log(task, 10, 8, 9)
	job = w.Claim(1)[0]
	if left, err = w.Store.SetAside(ctx, job, []int{0, 1}, dap.ReportDropped, "all are gone"); left != nil || err != nil {
		t.Fatalf("left is %+v, %v", left, err)
	}
	_, err = w.Store.SetAside(ctx, job, []int{0, 1}, dap.ReportDropped, "all are gone")
	w.is(err, store.ErrStaleLease)
	if more := w.Claim(9); len(more) != 0 {
		t.Fatalf("claimed %+v", more)
	}
	w.CountsAre(task, store.Counts{Acknowledged: 10, Aggregated: 4, Rejected: map[dap.ReportError]uint64{dap.ReportDropped: 6}})
	w.Audit()
}

// testSlicesAreListed: all that wait are, free or in a job, in the order of their rows, a few
// at a time.
func testSlicesAreListed(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	for n := range 5 {
		w.log(task, dap.Time(10+n%2), 3*n, 3*n+2)
	}
	done := w.Claim(1)[0]
	w.ok(w.Store.FinishJob(ctx, done, w.CommitOf(task, done))) // of logs 0 and 2
	w.ok(w.Store.RetryJob(ctx, w.Claim(1)[0], w.Now, "later"))
	var all []segment.Slice
	for cursor := int64(0); ; {
		some, next, err := w.Store.Slices(ctx, cursor, 2)
		w.ok(err)
		if len(some) == 0 {
			break
		}
		all, cursor = append(all, some...), next
	}
	var numbers []int
	for _, s := range all {
		some, err := w.numbers([]segment.Slice{s})
		w.ok(err)
		numbers = append(numbers, some...)
	}
	if want := []int{3, 4, 5, 9, 10, 11, 12, 13, 14}; !slices.Equal(numbers, want) {
		t.Errorf("listed are %v, want %v", numbers, want)
	}
}

// move copies slices and has them named there, as a leader does.
func (w *World) move(list []segment.Slice) (places []store.Place) {
	w.t.Helper()
	ctx, files := context.Background(), payload.OpenFiles(w.h.FS())
	moved, err := segment.MoveSlices(ctx, files, files, segment.ObjectName("slices"), list)
	w.ok(err)
	for i := range list {
		places = append(places, store.Place{From: list[i], To: moved[i]})
	}
	w.ok(w.Store.Move(ctx, places))
	return places
}

// leftover lists what may be moved of files however new.
func (w *World) leftover() []segment.Slice {
	w.t.Helper()
	list, err := w.Store.Leftover(context.Background(), time.Now().Add(time.Hour))
	w.ok(err)
	return list
}

// testAsideForAReason: nothing is set aside without a code, by which it is counted, and a
// reason, for the operator; what was refused has changed nothing.
func testAsideForAReason(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.Upload(task, 10, 0, 4)
	w.Sort()
	job := w.Claim(1)[0]
	for _, c := range []struct {
		code dap.ReportError
		why  string
	}{{0, "a file is gone"}, {dap.ReportDropped, ""}, {0, ""}} {
		if left, err := w.Store.SetAside(ctx, job, []int{0}, c.code, c.why); left != nil || err == nil {
			t.Errorf("set aside with code %d and reason %q: %v", c.code, c.why, err)
		}
		if err := w.Store.QuarantineJob(ctx, job, c.code, c.why); err == nil {
			t.Errorf("quarantined with code %d and reason %q", c.code, c.why)
		}
	}
	counts, err := w.Store.Counts(ctx, task.ID)
	if w.ok(err); counts.Waiting != 5 || len(counts.Rejected) != 0 {
		t.Errorf("counts %+v", counts)
	}
	stuck, err := w.Store.Stuck(ctx, task.ID)
	if w.ok(err); len(stuck) != 0 {
		t.Errorf("stuck %+v", stuck)
	}
	w.ok(w.Store.FinishJob(ctx, job, w.CommitOf(task, job)))
}

// testSlicesMove: what is left of a file is named elsewhere, and the file goes; jobs go on,
// sent or not, with the same reports in the same order.
func testSlicesMove(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	for n := range 3 {
		w.Upload(task, dap.Time(10+n), 5*n, 5*n+4)
	}
	w.Sort()
	if list := w.leftover(); len(list) != 0 {
		t.Fatalf("%d slices are left over of a file that none has ended of", len(list))
	}
	jobs := w.Claim(2)
	old := jobs[0].Slices[0].Object
	w.ok(w.Store.FinishJob(ctx, jobs[0], w.CommitOf(task, jobs[0])))
	if list, err := w.Store.Leftover(ctx, time.Now().Add(-time.Hour)); len(list) != 0 || err != nil {
		t.Fatalf("%d slices are left over of a new file, %v", len(list), err)
	}

	// A worker reads its slices where they are.
	if list := w.leftover(); len(list) != 1 || list[0].Bucket != 12 {
		t.Fatalf("left over are %+v, want the slice that nobody has", list)
	}
	sent := &store.Sent{Accepted: []byte{0b10111}, Digest: [32]byte{1}}
	w.ok(w.Store.SaveSent(ctx, jobs[1], sent, w.Now))
	w.ok(w.Store.RetryJob(ctx, jobs[1], w.Now, "later"))
	list := w.leftover()
	if len(list) != 2 {
		t.Fatalf("left over are %+v", list)
	}
	held := w.Claim(1)[0] // before it is moved
	places := w.move(list)
	if live, err := w.Store.LiveFiles(ctx); err != nil || !slices.Contains(live, old) || !slices.Contains(live, places[0].To.Object) {
		t.Fatalf("live are %q, %v: want the old file, of which a worker has a slice, and the new one", live, err)
	}
	if got := w.Numbers(held); !slices.Equal(got, []int{5, 6, 7, 8, 9}) {
		t.Fatalf("the worker reads %v", got)
	}
	w.ok(w.Store.Move(ctx, places)) // again
	w.Audit()
	w.ok(w.Store.RetryJob(ctx, held, w.Now, "later"))
	w.move(w.leftover())
	w.dead(1)
	if _, err := h.FS().Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old file: %v", err)
	}
	w.Reopen(t)
	jobs = w.Claim(5)
	if len(jobs) != 2 || jobs[0].Sent == nil || !slices.Equal(w.Numbers(jobs[0]), []int{5, 6, 7, 8, 9}) || !slices.Equal(w.Numbers(jobs[1]), []int{10, 11, 12, 13, 14}) {
		t.Fatalf("claimed %+v", jobs)
	}
	for _, j := range jobs {
		w.ok(w.Store.FinishJob(ctx, j, w.CommitOf(task, j)))
	}

	// Those that ended meanwhile leave a file that nothing is in.
	w.Upload(task, 10, 20, 24)
	w.Upload(task, 11, 25, 29)
	w.Sort()
	w.ok(w.Store.FinishJob(ctx, w.Claim(1)[0], Commit(t, task, []store.Batch{{Start: 10}}, []dap.Time{10}, [][]int{{20, 21, 22, 23, 24}})))
	list = w.leftover()
	last := w.Claim(1)[0]
	w.ok(w.Store.FinishJob(ctx, last, w.CommitOf(task, last)))
	to := w.move(list)[0].To.Object
	w.ok(w.Store.Bury(ctx))
	if _, err := h.FS().Stat(to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the copy of what had ended: %v", err)
	}
	w.CountsAre(task, store.Counts{Acknowledged: 25, Aggregated: 25})
	w.Audit()
}

// testLeftover: of many small files one is made, so that a trickle of a task whose jobs wait
// keeps few, however many logs it comes in.
func testLeftover(t *testing.T, h Harness) {
	ctx := context.Background()
	task, slow := Task(t, dap.TimeInterval, 1), Task(t, dap.TimeInterval, 2)
	w := NewWorld(t, h, task, slow)
	w.ok(w.Store.HoldTask(ctx, slow.ID, "a person", w.Now))
	most := 0
	for n := range 60 {
		w.Upload(slow, dap.Time(n), 2*n, 2*n)
		w.Upload(task, 10, 2*n, 2*n+1)
		w.Sort()
		w.Work(task)
		if n%2 == 1 { // now and then
			w.move(w.leftover())
		}
		w.ok(w.Store.Bury(ctx))
		for _, dir := range []string{"inbox", "slices"} {
			entries, err := h.FS().ReadDir(dir)
			w.ok(err)
			entries = slices.DeleteFunc(entries, func(e disk.Entry) bool { return e.Size <= disk.LogHeaderSize })
			most = max(most, len(entries))
		}
	}
	if most > 12 {
		t.Errorf("a trickle has kept %d files", most)
	}
	_, err := w.Store.Resume(ctx, []dap.TaskID{slow.ID}, false)
	w.ok(err)
	w.Work(slow)
	w.CountsAre(slow, store.Counts{Acknowledged: 60, Aggregated: 60})
	w.Audit()
}
