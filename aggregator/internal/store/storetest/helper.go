package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf"
)

func init() {
	tests["JobOnce"] = testJobOnce
	tests["JobsMixBuckets"] = testJobsMixBuckets
	tests["JobAgainstClosedBatch"] = testJobAgainstClosedBatch
	tests["JobSteps"] = testJobSteps
	tests["JobFailures"] = testJobFailures
	tests["UnfinishedJobs"] = testUnfinishedJobs
	tests["HasJob"] = testHasJob
	tests["LetGo"] = testLetGo
	tests["ShareReleases"] = testShareReleases
	tests["LeaderSelectedShare"] = testLeaderSelectedShare
	tests["CreateRaces"] = testCreateRaces
	tests["JobRaces"] = testJobRaces
	tests["ReleaseWaitsForCommits"] = testReleaseWaitsForCommits
	tests["OneReportInTwoJobsAtOnce"] = testOneReportInTwoJobsAtOnce
	tests["CommitsOfOneBatch"] = testCommitsOfOneBatch
	tests["CallbacksMayRead"] = testCallbacksMayRead
	tests["OneIDAtTwoTimes"] = testOneIDAtTwoTimes
	tests["SameJobAtOnce"] = testSameJobAtOnce
	tests["CommitsRaceWithRelease"] = testCommitsRaceWithRelease
}

// job makes a helper's aggregation job resource.
func (w *World) job(task *store.Task, body string) *store.Resource {
	w.t.Helper()
	r, _, err := w.Store.Create(context.Background(), store.KindAggregation, task.ID, "", []byte(body), false, nil, w.Now)
	w.ok(err)
	return r
}

// reply encodes verdicts, so that tests see them in the response.
func reply(verdict []dap.ReportError) ([]byte, error) {
	out := []byte("r")
	for _, v := range verdict {
		out = append(out, '0'+byte(v))
	}
	return out, nil
}

// help commits reports first to last of one bucket as a helper's job and returns its
// response.
func (w *World) help(task *store.Task, body string, bucket dap.Time, first, last int) string {
	w.t.Helper()
	var numbers []int
	for n := first; n <= last; n++ {
		numbers = append(numbers, n)
	}
	batch := store.Batch{Start: bucket}
	if task.Mode == dap.LeaderSelected {
		batch = store.Batch{ID: dap.BatchID{byte(bucket)}}
	}
	c := Commit(w.t, task, []store.Batch{batch}, []dap.Time{bucket}, [][]int{numbers})
	response, err := w.Store.CommitJob(context.Background(), w.job(task, body), c, reply)
	w.ok(err)
	return string(response)
}

func testJobOnce(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	if got := w.help(task, "one", 10, 0, 2); got != "r000" {
		t.Fatalf("response is %q", got)
	}
	if got := w.help(task, "two", 10, 2, 3); got != "r20" {
		t.Fatalf("response is %q, want a replay", got)
	}
	w.CountsAre(task, store.Counts{Acknowledged: 5, Aggregated: 4, Rejected: map[dap.ReportError]uint64{dap.ReportReplayed: 1}})
	w.Reopen(t)
	r := w.job(task, "one")
	if r.State != store.Ready || string(r.Response) != "r000" {
		t.Fatalf("asked again: %+v", r)
	}
	c := &store.Commit{Task: task.ID, Fold: func([]dap.ReportError) ([]*vdaf.AggShare, error) {
		t.Error("Fold of a job that is done")
		return nil, nil
	}}
	response, err := w.Store.CommitJob(ctx, r, c, func([]dap.ReportError) ([]byte, error) {
		t.Error("reply of a job that is done")
		return nil, nil
	})
	if err != nil || string(response) != "r000" {
		t.Fatal(string(response), err)
	}
	// Ids are remembered after the job is deleted.
	w.ok(w.Store.Delete(ctx, store.KindAggregation, task.ID, r.ID))
	if again := w.job(task, "one"); !again.Again || again.ID == r.ID {
		t.Fatalf("the same body after an answer and its deletion: %+v", again)
	}
	if got := w.help(task, "one", 10, 0, 2); got != "r222" {
		t.Fatalf("response after deletion is %q", got)
	}
	w.Audit()
}

func testJobsMixBuckets(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	c := Commit(t, task, []store.Batch{{Start: 7}, {Start: 3}, {Start: 5}}, []dap.Time{7, 3, 5}, [][]int{{0, 1}, {2, 3, 4}, {}})
	c.Rejected = map[dap.ReportError]uint64{dap.InvalidMessage: 2}
	_, err := w.Store.CommitJob(ctx, w.job(task, "mixed"), c, reply)
	w.ok(err)
	w.CountsAre(task, store.Counts{Acknowledged: 7, Aggregated: 5, Rejected: map[dap.ReportError]uint64{dap.InvalidMessage: 2}})
	batches, err := w.Store.Batches(ctx, task.ID, 9)
	w.ok(err)
	if len(batches) != 2 || batches[0].Batch.Start != 7 || batches[0].Verified != 2 || batches[1].Verified != 3 {
		t.Fatalf("batches are %+v", batches)
	}
	if batches, err = w.Store.Batches(ctx, task.ID, 1); err != nil || len(batches) != 1 {
		t.Fatalf("one batch asked, got %d, %v", len(batches), err)
	}
	w.Audit()
}

func (w *World) share(task *store.Task, body string, sel *store.Selection) *store.Resource {
	w.t.Helper()
	r, _, err := w.Store.Create(context.Background(), store.KindShare, task.ID, "", []byte(body), false, sel, w.Now)
	w.ok(err)
	return r
}

// shareRelease is the helper's release of a selection that holds reports first to last.
func (w *World) shareRelease(task *store.Task, r *store.Resource, sel *store.Selection, span dap.Interval, first, last int, got *[]int64) *store.Release {
	return w.ReleaseOf(task, r, &store.Frozen{
		Selection: *sel, Count: uint64(last - first + 1), Checksum: checksum(first, last), Span: span,
	}, got)
}

func testJobAgainstClosedBatch(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.help(task, "one", 10, 0, 5)
	sel := Interval(10, 1)
	r := w.share(task, "share", sel)
	_, err := w.Store.Release(ctx, w.shareRelease(task, r, sel, dap.Interval{Start: 10, Duration: 1}, 0, 5, new([]int64)))
	w.ok(err)
	c := Commit(t, task, []store.Batch{{Start: 10}, {Start: 11}}, []dap.Time{10, 11}, [][]int{{0, 6}, {7, 8}})
	response, err := w.Store.CommitJob(ctx, w.job(task, "two"), c, reply)
	w.ok(err)
	if string(response) != "r1100" {
		t.Fatalf("response is %q", response)
	}
	w.CountsAre(task, store.Counts{
		Acknowledged: 10, Aggregated: 8, Collected: 6, Rejected: map[dap.ReportError]uint64{dap.BatchCollected: 2},
	})
	w.Audit()
}

// testReleaseWaitsForCommits: a release that begins while a job is between its verdicts
// and its commit must count it.
func testReleaseWaitsForCommits(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.help(task, "one", 10, 0, 5)
	sel := Interval(10, 1)
	r := w.share(task, "share", sel)
	var got []int64
	rel := w.shareRelease(task, r, sel, dap.Interval{Start: 10, Duration: 1}, 0, 6, &got)
	c := Commit(t, task, []store.Batch{{Start: 10}}, []dap.Time{10}, [][]int{{6}})
	wait := w.during(task, c, func() {
		if _, err := w.Store.Release(ctx, rel); err != nil {
			t.Errorf("release: %v", err)
		}
	})
	_, err := w.Store.CommitJob(ctx, w.job(task, "two"), c, reply)
	wait()
	w.ok(err)
	w.Once(got, 0, 6)
	w.Audit()
}

func testJobSteps(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	r, _, err := w.Store.Create(ctx, store.KindAggregation, task.ID, "", []byte("body"), true, nil, w.Now)
	w.ok(err)
	_, err = w.Store.Advance(ctx, r, 1, [32]byte{1}, nil, reply)
	w.is(err, store.ErrStep)
	first := &store.Commit{Task: task.ID, Rejected: map[dap.ReportError]uint64{dap.VDAFVerifyError: 1}}
	_, err = w.Store.CommitJob(ctx, r, first, reply)
	w.ok(err)
	if r, err = w.Store.Resource(ctx, store.KindAggregation, task.ID, r.ID); err != nil || string(r.Body) != "body" || r.Step != 0 {
		t.Fatalf("after the first step: %+v, %v", r, err)
	}
	_, err = w.Store.Advance(ctx, r, 2, [32]byte{2}, nil, reply)
	w.is(err, store.ErrStep)
	_, err = w.Store.Advance(ctx, r, 0, [32]byte{2}, nil, reply)
	w.is(err, store.ErrStep)
	commit := func() *store.Commit {
		c := Commit(t, task, []store.Batch{{Start: 10}}, []dap.Time{10}, [][]int{{0, 1, 2}})
		c.Final = true
		return c
	}
	got, err := w.Store.Advance(ctx, r, 1, [32]byte{1}, commit(), reply)
	if err != nil || string(got) != "r000" {
		t.Fatal(string(got), err)
	}
	w.Reopen(t)
	if got, err = w.Store.Advance(ctx, r, 1, [32]byte{1}, commit(), reply); err != nil || string(got) != "r000" {
		t.Fatalf("the same step again: %q, %v", got, err)
	}
	_, err = w.Store.Advance(ctx, r, 1, [32]byte{9}, commit(), reply)
	w.is(err, store.ErrStep)
	if r, err = w.Store.Resource(ctx, store.KindAggregation, task.ID, r.ID); err != nil || r.Body != nil || r.Step != 1 {
		t.Fatalf("after the final step: %+v, %v", r, err)
	}
	w.CountsAre(task, store.Counts{Acknowledged: 4, Aggregated: 3, Rejected: map[dap.ReportError]uint64{dap.VDAFVerifyError: 1}})
	w.Audit()
}

// testHasJob: a job is there from its creation to its deletion, by its body and the id that
// its maker chose, whatever became of it.
func testHasJob(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	has := func(id, body string, want bool) {
		t.Helper()
		if got, err := w.Store.HasJob(ctx, task.ID, id, []byte(body)); got != want || err != nil {
			t.Errorf("job %q %q: %v, %v", id, body, got, err)
		}
	}
	has("", "body", false)
	r, _, err := w.Store.Create(ctx, store.KindAggregation, task.ID, "", []byte("body"), false, nil, w.Now)
	w.ok(err)
	has("", "body", true)
	has("", "another", false)
	has("AAAAAAAAAAAAAAAAAAAAAA", "body", false)
	w.Reopen(t)
	has("", "body", true)
	w.ok(w.Store.Delete(ctx, store.KindAggregation, task.ID, r.ID))
	has("", "body", false)
}

// testLetGo: a task that was let go of has its rows, and commits again once it was put.
func testLetGo(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	job := func(n int) error {
		t.Helper()
		r, _, err := w.Store.Create(ctx, store.KindAggregation, task.ID, "", fmt.Appendf(nil, "job %d", n), false, nil, w.Now)
		w.ok(err)
		_, err = w.Store.CommitJob(ctx, r, Commit(t, task, []store.Batch{{Start: 10}}, []dap.Time{10}, [][]int{{n}}), reply)
		return err
	}
	// A release of nothing fails otherwise where the VDAF is not known.
	knows := func(want bool) {
		t.Helper()
		for range 2 {
			_, err := w.Store.Release(ctx, &store.Release{Task: task.ID, Kind: store.KindShare, Resource: "none", Selection: *Interval(10, 1)})
			if err == nil || errors.Is(err, store.ErrNotFound) != want {
				t.Errorf("the VDAF is known, want %v: %v", want, err)
			}
		}
	}
	w.ok(job(1))
	knows(true)
	w.Store.LetGo(task.ID)
	w.Store.LetGo(task.ID)
	w.Store.LetGo(dap.TaskID{99})
	if state, err := w.Store.TaskState(ctx, task.ID); err != nil || state != (store.TaskState{}) {
		t.Errorf("state %+v, %v", state, err)
	}
	knows(false)
	w.ok(w.Store.PutTask(ctx, task))
	w.ok(w.Store.PutTask(ctx, task))
	knows(true)
	w.ok(job(2))
	counts, err := w.Store.Counts(ctx, task.ID)
	if w.ok(err); counts.Aggregated != 2 {
		t.Errorf("counts %+v", counts)
	}
}

// testUnfinishedJobs: jobs whose reports are still to be opened are counted, by the time
// of their making.
func testUnfinishedJobs(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	count := func(before time.Time, want uint64) {
		t.Helper()
		n, err := w.Store.UnfinishedJobs(ctx, before)
		if w.ok(err); n != want {
			t.Errorf("%d unfinished, want %d", n, want)
		}
	}
	create := func(kind store.Kind, body string, keep bool, age time.Duration) *store.Resource {
		t.Helper()
		var sel *store.Selection
		if kind == store.KindShare {
			sel = &store.Selection{Interval: dap.Interval{Start: 10, Duration: 1}}
		}
		r, _, err := w.Store.Create(ctx, kind, task.ID, "", []byte(body), keep, sel, w.Now.Add(-age))
		w.ok(err)
		return r
	}
	count(w.Now.Add(1), 0)
	old := create(store.KindAggregation, "old", true, time.Hour)
	create(store.KindAggregation, "new", true, 0)
	create(store.KindAggregation, "died with its request", false, time.Hour)
	create(store.KindShare, "a share", true, time.Hour)
	count(w.Now.Add(1), 2)
	count(w.Now, 1)
	count(w.Now.Add(-time.Hour), 0)
	between := create(store.KindAggregation, "between two rounds", false, time.Hour)
	_, err := w.Store.CommitJob(ctx, between, &store.Commit{Task: task.ID}, reply)
	w.ok(err)
	count(w.Now, 2)
	w.Reopen(t)
	count(w.Now, 2)
	_, err = w.Store.Advance(ctx, between, 1, [32]byte{1}, &store.Commit{Task: task.ID, Final: true}, reply)
	w.ok(err)
	count(w.Now, 1)
	_, err = w.Store.CommitJob(ctx, old, &store.Commit{Task: task.ID, Final: true}, reply)
	w.ok(err)
	count(w.Now, 0)
	w.ok(w.Store.Fail(ctx, create(store.KindAggregation, "fails", true, time.Hour), &dap.Problem{Status: 400}))
	count(w.Now, 0)
}

func testJobFailures(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	boom := errors.New("boom")
	r := w.job(task, "one")
	c := func() *store.Commit { return Commit(t, task, []store.Batch{{Start: 1}}, []dap.Time{1}, [][]int{{0}}) }
	_, err := w.Store.CommitJob(ctx, r, c(), func([]dap.ReportError) ([]byte, error) { return nil, boom })
	w.is(err, boom)
	w.CountsAre(task, store.Counts{})
	w.Audit()
	p := &dap.Problem{Type: dap.ProblemInvalidMessage}
	w.ok(w.Store.Fail(ctx, r, p))
	_, err = w.Store.CommitJob(ctx, r, c(), reply)
	w.is(err, p)
	if again := w.job(task, "one"); again.ID != r.ID || again.State != store.Failed {
		t.Fatalf("the same body again: %+v", again)
	}
	w.ok(w.Store.Delete(ctx, store.KindAggregation, task.ID, r.ID))
	_, err = w.Store.CommitJob(ctx, r, c(), reply)
	w.is(err, store.ErrNotFound)
	if again := w.job(task, "one"); again.Again {
		t.Fatal("a job that never had an answer counts as answered")
	}
	w.CountsAre(task, store.Counts{})
	w.Audit()
}

func testShareReleases(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.help(task, "one", 10, 0, 5)
	w.help(task, "two", 12, 6, 9)
	none := w.share(task, "none", Interval(20, 5))
	_, err := w.Store.Release(ctx, w.shareRelease(task, none, Interval(20, 5), dap.Interval{}, 0, -1, new([]int64)))
	w.is(err, store.ErrTooSmall)
	few := w.share(task, "few", Interval(12, 1))
	_, err = w.Store.Release(ctx, w.shareRelease(task, few, Interval(12, 1), dap.Interval{Start: 12, Duration: 1}, 6, 9, new([]int64)))
	w.is(err, store.ErrTooSmall)
	all := w.share(task, "all", Interval(10, 5))
	span := dap.Interval{Start: 10, Duration: 3}
	_, err = w.Store.Release(ctx, w.shareRelease(task, all, Interval(10, 5), span, 0, 8, new([]int64)))
	w.is(err, store.ErrMismatch)
	w.stateIs(task, 10, store.Open)
	w.Audit()
	var got []int64
	_, err = w.Store.Release(ctx, w.shareRelease(task, all, Interval(10, 5), span, 0, 9, &got))
	w.ok(err)
	w.Once(got, 0, 9)
	_, err = w.Store.Release(ctx, w.shareRelease(task, few, Interval(12, 1), dap.Interval{Start: 12, Duration: 1}, 6, 9, new([]int64)))
	w.is(err, store.ErrOverlap)
	w.Audit()
}

func testLeaderSelectedShare(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.LeaderSelected, 1)
	w := NewWorld(t, h, task)
	w.help(task, "one", 10, 0, 5)
	if got := w.help(task, "two", 10, 5, 6); got != "r20" {
		t.Fatalf("response is %q", got)
	}
	// Another batch, the same bucket of time: still a replay.
	c := Commit(t, task, []store.Batch{{ID: dap.BatchID{99}}}, []dap.Time{10}, [][]int{{6, 7}})
	response, err := w.Store.CommitJob(ctx, w.job(task, "three"), c, reply)
	if err != nil || string(response) != "r20" {
		t.Fatal(string(response), err)
	}
	sel := &store.Selection{ID: dap.BatchID{10}}
	r := w.share(task, "share", sel)
	var got []int64
	_, err = w.Store.Release(ctx, w.shareRelease(task, r, sel, dap.Interval{Start: 10, Duration: 1}, 0, 6, &got))
	w.ok(err)
	w.Once(got, 0, 6)
	if got := w.help(task, "four", 10, 8, 9); got != "r11" {
		t.Fatalf("response of a closed batch is %q", got)
	}
	_, _, err = w.Store.Create(ctx, store.KindShare, task.ID, "", []byte("other"), false, sel, w.Now)
	w.is(err, store.ErrOverlap)
	unknown := &store.Selection{ID: dap.BatchID{77}}
	_, err = w.Store.Release(ctx, w.shareRelease(task, w.share(task, "x", unknown), unknown, dap.Interval{}, 0, -1, new([]int64)))
	w.is(err, store.ErrTooSmall)
	w.Audit()
}

func testCreateRaces(t *testing.T, h Harness) {
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	const racers = 16
	var made [racers]bool
	var ids [racers]string
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() {
			r, m, err := w.Store.Create(context.Background(), store.KindAggregation, task.ID, "", []byte("same"), false, nil, w.Now)
			if err != nil {
				t.Error(err)
				return
			}
			made[i], ids[i] = m, r.ID
		})
	}
	wg.Wait()
	makers := 0
	for i := range racers {
		if made[i] {
			makers++
		}
		if ids[i] != ids[0] {
			t.Error("the same body has two ids")
		}
	}
	if makers != 1 {
		t.Errorf("%d racers made the resource", makers)
	}
}

func testJobRaces(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	// Jobs with the same reports, and each job twice, in several buckets at once.
	var wg sync.WaitGroup
	for i := range 12 {
		r := w.job(task, string(rune('a'+i/2)))
		c := Commit(t, task, []store.Batch{{Start: 10}, {Start: 11}}, []dap.Time{10, 11}, [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}})
		wg.Go(func() {
			if _, err := w.Store.CommitJob(ctx, r, c, reply); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	w.CountsAre(task, store.Counts{Acknowledged: 48, Aggregated: 8, Rejected: map[dap.ReportError]uint64{dap.ReportReplayed: 40}})
	sel := Interval(10, 2)
	r := w.share(task, "share", sel)
	var got []int64
	_, err := w.Store.Release(ctx, w.shareRelease(task, r, sel, dap.Interval{Start: 10, Duration: 2}, 0, 7, &got))
	w.ok(err)
	w.Once(got, 0, 7)
	w.Audit()
}

// dawdle gives other goroutines the time to do what they must not.
func (w *World) dawdle(task *store.Task) {
	for range 1000 {
		runtime.Gosched()
		if _, err := w.Store.Counts(context.Background(), task.ID); err != nil {
			w.t.Error(err)
		}
	}
}

// during runs other while the Fold of c is at work, and returns what waits for its end.
func (w *World) during(task *store.Task, c *store.Commit, other func()) (wait func()) {
	var wg sync.WaitGroup
	fold := c.Fold
	c.Fold = func(verdict []dap.ReportError) ([]*vdaf.AggShare, error) {
		started := make(chan struct{})
		wg.Go(func() {
			close(started)
			other()
		})
		<-started
		w.dawdle(task)
		return fold(verdict)
	}
	return wg.Wait
}

// testOneReportInTwoJobsAtOnce: the second waits for what becomes of the first, in
// another bucket too.
func testOneReportInTwoJobsAtOnce(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	for i, bucket := range []dap.Time{10, 11} {
		w := NewWorld(t, h, task)
		commit := func(bucket dap.Time) *store.Commit {
			return Commit(t, task, []store.Batch{{Start: bucket}}, []dap.Time{bucket}, [][]int{{2 * i, 2*i + 1}})
		}
		a, b := w.job(task, fmt.Sprint("a", i)), w.job(task, fmt.Sprint("b", i))
		first := commit(10)
		wait := w.during(task, first, func() {
			if response, err := w.Store.CommitJob(ctx, b, commit(bucket), reply); err != nil || string(response) != "r22" {
				t.Errorf("the second job was answered %q, %v", response, err)
			}
		})
		response, err := w.Store.CommitJob(ctx, a, first, reply)
		wait()
		if err != nil || string(response) != "r00" {
			t.Errorf("the first job was answered %q, %v", response, err)
		}
		w.Audit()
		w.close()
	}
}

// testCommitsOfOneBatch: two commits of one batch that have no report in common are both
// taken, side by side or one after the other.
func testCommitsOfOneBatch(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	commit := func(first int) *store.Commit {
		return Commit(t, task, []store.Batch{{Start: 10}}, []dap.Time{10}, [][]int{{first, first + 1}})
	}
	a, b := w.job(task, "a"), w.job(task, "b")
	first := commit(0)
	wait := w.during(task, first, func() {
		if response, err := w.Store.CommitJob(ctx, b, commit(2), reply); err != nil || string(response) != "r00" {
			t.Errorf("the second job was answered %q, %v", response, err)
		}
	})
	response, err := w.Store.CommitJob(ctx, a, first, reply)
	wait()
	if err != nil || string(response) != "r00" {
		t.Errorf("the first job was answered %q, %v", response, err)
	}
	w.CountsAre(task, store.Counts{Acknowledged: 4, Aggregated: 4})
	w.Audit()
}

// testCallbacksMayRead: the callbacks of many commits, of as many batches, and those of
// releases read through the engine while they run.
func testCallbacksMayRead(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	read := func() {
		_, err := w.Store.Counts(ctx, task.ID)
		if err == nil {
			_, err = w.Store.Seen(ctx, task.ID, []dap.ReportID{ReportID(0)})
		}
		if err != nil {
			t.Error(err)
		}
	}
	const jobs = 24
	var wg sync.WaitGroup
	for n := range jobs {
		bucket := dap.Time(10 + n)
		r := w.job(task, fmt.Sprint("job ", n))
		c := Commit(t, task, []store.Batch{{Start: bucket}}, []dap.Time{bucket}, [][]int{{5 * n, 5*n + 1, 5*n + 2, 5*n + 3, 5*n + 4}})
		fold := c.Fold
		c.Fold = func(verdict []dap.ReportError) ([]*vdaf.AggShare, error) {
			read()
			return fold(verdict)
		}
		wg.Go(func() {
			_, err := w.Store.CommitJob(ctx, r, c, func(verdict []dap.ReportError) ([]byte, error) {
				read()
				return reply(verdict)
			})
			if err != nil {
				t.Error(err)
				return
			}
			sel := Interval(bucket, 1)
			share, _, err := w.Store.Create(ctx, store.KindShare, task.ID, "", fmt.Append(nil, "share ", n), false, sel, w.Now)
			if err != nil {
				t.Error(err)
				return
			}
			rel := w.shareRelease(task, share, sel, dap.Interval{Start: bucket, Duration: 1}, 5*n, 5*n+4, new([]int64))
			build := rel.Build
			rel.Build = func(sum *vdaf.AggShare, f store.Frozen, noise []int64) ([]byte, *store.Kept, error) {
				read()
				return build(sum, f, noise)
			}
			if _, err := w.Store.Release(ctx, rel); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	w.CountsAre(task, store.Counts{Acknowledged: 5 * jobs, Aggregated: 5 * jobs, Collected: 5 * jobs})
	w.Audit()
}

// testOneIDAtTwoTimes: a report id counts once in its task (DAP-18 section 4.5.3.4),
// whatever times and batches the reports of that id have: in one job, in the next, after
// the first bucket was collected, and after a restart.
func testOneIDAtTwoTimes(t *testing.T, h Harness) {
	ctx := context.Background()
	for seed, mode := range []dap.BatchMode{dap.TimeInterval, dap.LeaderSelected} {
		task := Task(t, mode, byte(10+seed))
		w := NewWorld(t, h, task)
		commit := func(name string, times []dap.Time, numbers [][]int) string {
			t.Helper()
			batches := []store.Batch{{ID: dap.BatchID{1}}, {ID: dap.BatchID{2}}}
			if mode == dap.TimeInterval {
				batches = []store.Batch{{Start: times[0]}, {Start: times[1]}}
			}
			response, err := w.Store.CommitJob(ctx, w.job(task, name), Commit(t, task, batches, times, numbers), reply)
			w.ok(err)
			return string(response)
		}
		if got := commit("one job", []dap.Time{10, 11}, [][]int{{0, 1, 2, 3, 4}, {0, 5}}); got != "r0000020" {
			t.Errorf("%v: within one job: %q", mode, got)
		}
		if got := commit("another", []dap.Time{12, 13}, [][]int{{1, 6}, {5, 6, 7}}); got != "r20220" {
			t.Errorf("%v: in another job: %q", mode, got)
		}
		if mode == dap.TimeInterval {
			sel := Interval(10, 1)
			var got []int64
			_, err := w.Store.Release(ctx, w.shareRelease(task, w.share(task, "share", sel), sel, dap.Interval{Start: 10, Duration: 1}, 0, 4, &got))
			w.ok(err)
			w.Once(got, 0, 4)
		}
		w.Reopen(t)
		if got := commit("late", []dap.Time{900_000, 0}, [][]int{{0, 7, 8}, {8}}); got != "r2202" {
			t.Errorf("%v: years later: %q", mode, got)
		}
		if got := commit("older", []dap.Time{14, 15}, [][]int{{8}, {2}}); got != "r22" {
			t.Errorf("%v: %q", mode, got)
		}
		w.Audit()
		w.close()
	}
}

func testSameJobAtOnce(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	r := w.job(task, "a")
	commit := func(n int) *store.Commit { // other reports, so that only the job is the same
		return Commit(t, task, []store.Batch{{Start: 10}}, []dap.Time{10}, [][]int{{n, n + 1}})
	}
	first := commit(0)
	wait := w.during(task, first, func() {
		second := commit(2)
		second.Fold = func([]dap.ReportError) ([]*vdaf.AggShare, error) {
			t.Error("one job was folded twice")
			return nil, errors.New("folded twice")
		}
		if response, err := w.Store.CommitJob(ctx, r, second, reply); err != nil || string(response) != "r00" {
			t.Errorf("the job was answered %q, %v", response, err)
		}
	})
	_, err := w.Store.CommitJob(ctx, r, first, reply)
	wait()
	w.ok(err)
	w.CountsAre(task, store.Counts{Acknowledged: 2, Aggregated: 2})
	w.Audit()
}

func testCommitsRaceWithRelease(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.help(task, "first", 10, 0, 5)
	sel := Interval(10, 1)
	share := w.share(task, "share", sel)
	var wg sync.WaitGroup
	accepted := make([]string, 12)
	for i := range accepted {
		n := 6 + i
		r := w.job(task, string(rune('a'+i)))
		c := Commit(t, task, []store.Batch{{Start: 10}}, []dap.Time{10}, [][]int{{n}})
		wg.Go(func() {
			response, err := w.Store.CommitJob(ctx, r, c, reply)
			if err != nil {
				t.Error(err)
			}
			accepted[i] = string(response)
		})
	}
	// The leader's count is a guess until it is right: whatever was accepted must be in
	// what is released.
	var got []int64
	wg.Go(func() {
		for {
			batches, err := w.Store.Batches(ctx, task.ID, 1)
			if err != nil {
				t.Error(err)
				return
			}
			rel := w.ReleaseOf(task, share, &store.Frozen{
				Selection: *sel, Count: batches[0].Verified, Checksum: batches[0].Checksum, Span: dap.Interval{Start: 10, Duration: 1},
			}, &got)
			_, err = w.Store.Release(ctx, rel)
			if !errors.Is(err, store.ErrMismatch) {
				if err != nil {
					t.Error(err)
				}
				return
			}
		}
	})
	wg.Wait()
	for i, response := range accepted {
		want := map[string]int64{"r0": 1, "r1": 0}
		counted, ok := want[response]
		if !ok || got[6+i] != counted {
			t.Errorf("job %d was answered %q and counted %d times", i, response, got[6+i])
		}
	}
	w.Audit()
}
