//go:build postgres

package postgres_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/payload/payloadtest"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb/pgtest"
	"github.com/starling-agg/starling/vdaf"
)

// leader is two replicas of one, each with an intake of its own, over one payload store.
type leader struct {
	t       *testing.T
	schema  *pgtest.Schema
	objects *payloadtest.Mem
	faults  *payloadtest.Faults // before them
	all     [2]*postgres.Store
	intakes [2]*segment.Intake
	tasks   []*store.Task
	owner   session
	now     time.Time
	turn    int
	most    store.Most
	keys    func(ctx context.Context, book datakey.Book) (postgres.Keys, error)
}

// rowBytes is the least size of an upload that is an object, and no row.
const rowBytes = 2000

func newLeader(t *testing.T, tasks ...*store.Task) *leader {
	t.Helper()
	return leaderOf(t, pgtest.New(t), tasks...)
}

func leaderOf(t *testing.T, s *pgtest.Schema, tasks ...*store.Task) *leader {
	t.Helper()
	l := &leader{t: t, schema: s, objects: payloadtest.NewMem(), faults: payloadtest.NewFaults(1), tasks: tasks, now: storetest.Epoch, keys: keys, most: store.Most{Bytes: 1 << 20, Reports: 100}}
	for i := range l.all {
		l.open(i, time.Nanosecond)
	}
	l.owner = connect(t, s, s.Owner)
	return l
}

// open opens a replica, at first or again.
func (l *leader) open(i int, grave time.Duration) {
	l.t.Helper()
	if l.all[i] != nil {
		_ = l.all[i].Close()
	}
	opt := options(l.schema)
	_, err := postgres.Migrate(l.t.Context(), opt.Database, false)
	is(l.t, err, nil)
	opt.Role, opt.Party, opt.Objects, opt.Grave, opt.Keys = dap.RoleLeader, "https://leader.example/", l.faults.Wrap(l.objects), grave, l.keys
	opt.Database.Connection, opt.Database.Connections = l.schema.Service, 6
	e, err := postgres.Open(l.t.Context(), opt)
	is(l.t, err, nil)
	l.t.Cleanup(func() { _ = e.Close() })
	for _, task := range l.tasks {
		is(l.t, e.PutTask(l.t.Context(), task), nil)
	}
	l.all[i] = e
	l.intakes[i], err = segment.NewIntake(e, segment.IntakeOptions{Objects: opt.Objects, RowBytes: rowBytes, Delay: time.Nanosecond})
	is(l.t, err, nil)
}

// next is the replica whose turn it is.
func (l *leader) next() *postgres.Store {
	l.turn++
	return l.all[l.turn%len(l.all)]
}

func entries(task *store.Task, bucket dap.Time, first, last, size int) (out []segment.Entry) {
	for n := first; n <= last; n++ {
		out = append(out, segment.Entry{
			TaskID: task.ID, Bucket: uint64(bucket), ReportID: segment.ReportID(storetest.ReportID(n)), Report: []byte(fmt.Sprintf("%0*d", size, n)),
		})
	}
	return out
}

// upload acknowledges reports first to last.
func (l *leader) upload(task *store.Task, bucket dap.Time, first, last int) {
	l.t.Helper()
	l.turn++
	refused, err := l.intakes[l.turn%2].Put(l.t.Context(), entries(task, bucket, first, last, 20))
	if is(l.t, err, nil); refused != nil {
		l.t.Fatalf("refused %v", refused)
	}
}

func (l *leader) claim(n int, except ...dap.TaskID) []*store.Job {
	l.t.Helper()
	var without []store.Except
	for _, id := range except {
		without = append(without, store.Except{Task: id})
	}
	jobs, err := l.next().ClaimJobs(l.t.Context(), l.now, time.Minute, n, l.most, without...)
	is(l.t, err, nil)
	return jobs
}

func (l *leader) one() *store.Job {
	l.t.Helper()
	jobs := l.claim(1)
	if len(jobs) != 1 {
		l.t.Fatal("nothing to claim")
	}
	return jobs[0]
}

// numbers are the reports of a job, read from wherever they lie.
func (l *leader) numbers(j *store.Job) (numbers []int) {
	l.t.Helper()
	reports, err := segment.OpenSlices(l.t.Context(), l.next().Payload(), j.Slices)
	is(l.t, err, nil)
	for i := range reports.Len() {
		id := reports.ReportID(i)
		numbers = append(numbers, numberOf(id))
	}
	return numbers
}

// numberOf is the number of a report of the suite.
func numberOf(id dap.ReportID) int { return int(binary.BigEndian.Uint32(id[:])) }

func (l *leader) commitOf(j *store.Job) *store.Commit {
	l.t.Helper()
	at := slices.IndexFunc(l.tasks, func(t *store.Task) bool { return t.ID == j.Task })
	return storetest.Commit(l.t, l.tasks[at], []store.Batch{j.Batch}, []dap.Time{dap.Time(j.Slices[0].Bucket)}, [][]int{l.numbers(j)})
}

func (l *leader) finish(j *store.Job) {
	l.t.Helper()
	is(l.t, l.next().FinishJob(l.t.Context(), j, l.commitOf(j)), nil)
}

// work finishes all that can be claimed, and says how many jobs it was.
func (l *leader) work() (done int) {
	l.t.Helper()
	for {
		jobs := l.claim(2)
		if len(jobs) == 0 {
			return done
		}
		for _, j := range jobs {
			l.finish(j)
			done++
		}
	}
}

func (l *leader) counts(task *store.Task, want store.Counts) {
	l.t.Helper()
	got, err := l.next().Counts(l.t.Context(), task.ID)
	is(l.t, err, nil)
	if got.Acknowledged != want.Acknowledged || got.Waiting != want.Waiting || got.Aggregated != want.Aggregated ||
		got.Collected != want.Collected || !maps.Equal(got.Rejected, want.Rejected) || !maps.Equal(got.Refused, want.Refused) {
		l.t.Fatalf("counts are %+v, want %+v", *got, want)
	}
}

func (l *leader) audit(want string) {
	l.t.Helper()
	problems, err := l.next().Audit(l.t.Context())
	is(l.t, err, nil)
	if got := strings.Join(problems, "; "); want == "" && got != "" || !strings.Contains(got, want) {
		l.t.Fatalf("the audit says %q, want %q", got, want)
	}
}

func (l *leader) ask(task *store.Task, body string, sel *store.Selection) *store.Resource {
	l.t.Helper()
	r, _, err := l.next().Create(l.t.Context(), store.KindCollection, task.ID, "", []byte(body), true, sel, l.now)
	is(l.t, err, nil)
	return r
}

func (l *leader) hold(r *store.Resource) *store.Frozen {
	l.t.Helper()
	sel, waiting, err := l.next().Drain(l.t.Context(), r)
	if is(l.t, err, nil); waiting != 0 {
		l.t.Fatalf("%d reports wait", waiting)
	}
	f, err := l.next().Freeze(l.t.Context(), r, sel)
	is(l.t, err, nil)
	return f
}

// release gives a frozen batch out, and demands that it has each of those reports once.
func (l *leader) release(task *store.Task, r *store.Resource, f *store.Frozen, first, last int) {
	l.t.Helper()
	_, err := l.next().Release(l.t.Context(), &store.Release{
		Resource: r.ID, Task: task.ID, Kind: r.Kind, Selection: f.Selection, Count: f.Count, Checksum: f.Checksum, Debit: "none",
		Build: func(sum *vdaf.AggShare, _ store.Frozen, _ []int64) ([]byte, *store.Kept, error) {
			values, err := task.VDAF.Unshard([]*vdaf.AggShare{sum, task.VDAF.NewAggShare()})
			for n, v := range values {
				if want := first <= n && n <= last; v != 0 && !want || v != 1 && want {
					l.t.Errorf("report %d counted %d times", n, v)
				}
			}
			return []byte("the response"), nil, err
		},
	})
	is(l.t, err, nil)
}

// left demands how many objects have a row, and how many lie in the payload store.
func (l *leader) left(rows, stored int) {
	l.t.Helper()
	is(l.t, l.next().Bury(l.t.Context()), nil)
	live, err := l.next().LiveFiles(l.t.Context())
	is(l.t, err, nil)
	var all int
	is(l.t, l.owner.QueryRow(l.t.Context(), "SELECT count(*) FROM object").Scan(&all), nil)
	if all != len(live) {
		l.t.Fatalf("%d objects have a row, and %d of them a slice", all, len(live))
	}
	list, err := l.objects.List(l.t.Context(), "", "", 1000)
	is(l.t, err, nil)
	if len(live) != rows || len(list) != stored {
		l.t.Fatalf("%d objects have a row, want %d; %d are stored, want %d", len(live), rows, len(list), stored)
	}
}

// blocked waits until a transaction waits for a lock.
func (l *leader) blocked() {
	l.t.Helper()
	for n := 0; n == 0; {
		is(l.t, l.owner.QueryRow(l.t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&n), nil)
	}
}

// TestLeaderWholeWay: reports of two batch buckets, acknowledged at either replica in rows
// and in objects, come to their batches once and are released, and nothing of them stays.
func TestLeaderWholeWay(t *testing.T) {
	task := storetest.Task(t, dap.TimeInterval, 1)
	l := newLeader(t, task)
	l.upload(task, 10, 0, 9)
	l.upload(task, 10, 10, 11)
	l.upload(task, 11, 12, 14)
	refused, err := l.intakes[0].Put(t.Context(), entries(task, 10, 15, 19, 1000)) // an object
	if is(t, err, nil); refused != nil {
		t.Fatal(refused)
	}
	again := append(entries(task, 10, 0, 2, 20), entries(task, 10, 2, 2, 20)...) // one of them twice
	if _, err := l.intakes[1].Put(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	l.counts(task, store.Counts{Acknowledged: 24, Waiting: 23, Rejected: map[dap.ReportError]uint64{dap.ReportReplayed: 1}})
	l.left(5, 1)
	l.audit("")
	batches, err := l.next().Batches(t.Context(), task.ID, 9)
	if is(t, err, nil); len(batches) != 2 || batches[0].Batch.Start != 11 || batches[0].Waiting != 3 || batches[1].Waiting != 20 {
		t.Fatalf("batches are %+v", batches)
	}
	jobs := l.claim(9)
	if len(jobs) != 2 || jobs[0].Reports() != 20 || len(jobs[0].Slices) != 4 || jobs[1].Reports() != 3 {
		t.Fatalf("claimed %+v", jobs)
	}
	for _, j := range jobs {
		c := l.commitOf(j)
		if j.Reports() == 20 { // those that came twice in the job
			c.Candidates = slices.DeleteFunc(c.Candidates, func(x store.Candidate) bool { return x.Report >= 17 && x.ID[3] < 3 })
			c.Rejected = map[dap.ReportError]uint64{dap.ReportReplayed: 3}
		}
		is(t, l.next().FinishJob(t.Context(), j, c), nil)
	}
	l.counts(task, store.Counts{Acknowledged: 24, Aggregated: 20, Rejected: map[dap.ReportError]uint64{dap.ReportReplayed: 4}})
	l.left(0, 0)
	l.audit("")
	r := l.ask(task, "ask", storetest.Interval(5, 100))
	f := l.hold(r)
	if f.Count != 20 || f.Span != (dap.Interval{Start: 10, Duration: 2}) || f.Fullest != 17 {
		t.Fatalf("frozen is %+v", *f)
	}
	again2, err := l.next().Freeze(t.Context(), r, f.Selection)
	if is(t, err, nil); *again2 != *f {
		t.Fatalf("frozen is %+v, was %+v", *again2, *f)
	}
	l.release(task, r, f, 0, 19)
	l.audit("")
}

// TestRefusedAtUpload: a batch bucket that is frozen, or collected, takes nothing more, and
// the client hears of it; one that is draining does, and so does a frozen one whose
// collection failed.
func TestRefusedAtUpload(t *testing.T) {
	ctx := t.Context()
	task, other := storetest.Task(t, dap.TimeInterval, 1), storetest.Task(t, dap.TimeInterval, 2)
	l := newLeader(t, task, other)
	l.upload(task, 10, 0, 5)
	l.work()
	r := l.ask(task, "ask", storetest.Interval(10, 1))
	_, _, err := l.next().Drain(ctx, r)
	is(t, err, nil)
	l.upload(task, 10, 6, 7)
	_, err = l.next().Freeze(ctx, r, *storetest.Interval(10, 1))
	is(t, err, store.ErrBusy)
	l.work()
	l.hold(r)
	refused := func(want string) {
		t.Helper()
		mixed := append(entries(task, 10, 8, 9, 20), append(entries(task, 11, 10, 10, 20), entries(other, 10, 0, 0, 20)...)...)
		got, err := l.intakes[0].Put(ctx, mixed)
		if is(t, err, nil); fmt.Sprint(got) != want {
			t.Fatalf("refused %v, want %s", got, want)
		}
	}
	collected := fmt.Sprintf("[%d %[1]d 0 0]", dap.BatchCollected)
	refused(collected)
	is(t, l.next().Fail(ctx, r, new(dap.Problem)), nil)
	refused("[]")
	l.work()
	r = l.ask(task, "again", storetest.Interval(10, 1))
	f := l.hold(r)
	l.release(task, r, f, 0, 9)
	refused(collected)
	if got, err := l.intakes[0].Put(ctx, entries(task, 10, 8, 9, 1000)); err != nil || len(got) != 2 { // nothing of an object
		t.Fatal(got, err)
	}
	l.work()
	l.left(0, 0)
	l.audit("")
	// The reports of 11 and of the other task came again and again, and count once.
	l.counts(task, store.Counts{Acknowledged: 13, Aggregated: 11, Collected: 10, Rejected: map[dap.ReportError]uint64{dap.ReportReplayed: 2}})
	l.owner.ok("UPDATE task SET retired = 1 WHERE id = 2")
	if got, err := l.intakes[1].Put(ctx, entries(other, 12, 8, 8, 20)); err != nil || fmt.Sprint(got) != fmt.Sprintf("[%d]", dap.ReportDropped) {
		t.Fatal(got, err)
	}
	strange := *other
	strange.ID[5] = 9
	_, err = l.intakes[1].Put(ctx, entries(&strange, 12, 8, 8, 20))
	is(t, err, segment.ErrForeign)
	_, err = l.intakes[1].Put(ctx, entries(&strange, 12, 8, 8, 3000)) // durable, and to go again
	is(t, err, segment.ErrForeign)
	l.left(0, 0)
}

// TestUploadWaitsForFreeze: an upload that meets a batch being frozen waits, and is refused
// then: no report ever waits in a frozen batch.
func TestUploadWaitsForFreeze(t *testing.T) {
	task := storetest.Task(t, dap.TimeInterval, 1)
	l := newLeader(t, task)
	l.upload(task, 10, 0, 5)
	l.work()
	r := l.ask(task, "ask", storetest.Interval(10, 1))
	_, _, err := l.next().Drain(t.Context(), r)
	is(t, err, nil)
	x := connect(t, l.schema, l.schema.Owner)
	x.ok("BEGIN")
	x.ok("SELECT 1 FROM task WHERE id = 1 FOR UPDATE") // as Freeze holds it
	done := make(chan []segment.Refusal)
	go func() {
		refused, err := l.intakes[0].Put(t.Context(), entries(task, 10, 6, 6, 20))
		if err != nil {
			t.Error(err)
		}
		done <- refused
	}()
	l.blocked()
	x.ok("UPDATE hold SET count = 6, checksum = " + hash + ", span_first = 10, span_last = 10, fullest = 6")
	x.ok("COMMIT")
	if refused := <-done; len(refused) != 1 || refused[0] != segment.Refusal(dap.BatchCollected) {
		t.Fatalf("refused %v", refused)
	}
}

// TestLeaderSelected: batches fill one after the other, the oldest that is full is drained,
// and one whose job is parked is passed over.
func TestLeaderSelected(t *testing.T) {
	ctx := t.Context()
	task := storetest.Task(t, dap.LeaderSelected, 1)
	l := newLeader(t, task)
	var jobs []*store.Job
	for i, n := range []int{3, 6, 6} { // the first two go into one batch, which overshoots
		l.upload(task, dap.Time(10+i), 10*i, 10*i+n-1)
		jobs = append(jobs, l.one())
	}
	if jobs[0].Batch != jobs[1].Batch || jobs[1].Batch == jobs[2].Batch || jobs[0].Batch == (store.Batch{}) {
		t.Fatalf("batches are %v, %v, %v", jobs[0].Batch, jobs[1].Batch, jobs[2].Batch)
	}
	l.finish(jobs[1])
	drain := func(name string) (dap.BatchID, uint64, error) {
		sel, waiting, err := l.next().Drain(ctx, l.ask(task, name, nil))
		return sel.ID, waiting, err
	}
	if id, waiting, err := drain("first"); err != nil || id != jobs[0].Batch.ID || waiting != 3 {
		t.Fatalf("%v, %d wait, %v", id, waiting, err)
	}
	is(t, l.next().ParkJob(ctx, jobs[0], "a wrong answer", l.now), nil)
	for _, name := range []string{"first", "second"} {
		_, _, err := drain(name)
		is(t, err, store.ErrTooSmall)
	}
	l.finish(jobs[2])
	if id, waiting, err := drain("first"); err != nil || id != jobs[2].Batch.ID || waiting != 0 {
		t.Fatalf("%v, %d wait, %v", id, waiting, err)
	}
	if n, err := l.next().Resume(ctx, []dap.TaskID{task.ID}, false); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	if id, waiting, err := drain("second"); err != nil || id != jobs[0].Batch.ID || waiting != 3 {
		t.Fatalf("%v, %d wait, %v", id, waiting, err)
	}
	l.work()
	first, second := l.ask(task, "first", nil), l.ask(task, "second", nil)
	f := l.hold(second)
	if f.Count != 9 || f.Fullest != 0 {
		t.Fatalf("frozen is %+v", f)
	}
	l.release(task, first, l.hold(first), 20, 25)
	// A batch that is held takes no further job; nor does any while another claim, or a
	// freeze, is at the batches of the task.
	l.upload(task, 14, 40, 42)
	x := connect(t, l.schema, l.schema.Owner)
	x.ok("BEGIN")
	x.ok("SELECT 1 FROM task FOR NO KEY UPDATE")
	if jobs := l.claim(1); len(jobs) != 0 {
		t.Fatalf("claimed %+v", jobs)
	}
	x.ok("ROLLBACK")
	if j := l.one(); j.Batch == jobs[0].Batch || j.Batch == jobs[2].Batch {
		t.Fatal("a batch that is held, or released, was assigned a job")
	}
	is(t, l.next().Withdraw(ctx, task.ID, first.ID), store.ErrBusy)  // it has its answer
	is(t, l.next().Withdraw(ctx, task.ID, second.ID), store.ErrBusy) // it is frozen
	l.audit("")
}

// TestHolds: of two collections that overlap the second waits, and has its turn when the
// first is withdrawn; none is made below the minimum.
func TestHolds(t *testing.T) {
	ctx := t.Context()
	task := storetest.Task(t, dap.TimeInterval, 1)
	l := newLeader(t, task)
	l.upload(task, 10, 0, 3)
	l.work()
	a, b := l.ask(task, "a", storetest.Interval(10, 2)), l.ask(task, "b", storetest.Interval(9, 2))
	_, _, err := l.next().Drain(ctx, a)
	is(t, err, store.ErrTooSmall)
	_, err = l.next().Freeze(ctx, a, *storetest.Interval(10, 2))
	is(t, err, store.ErrTooSmall)
	l.upload(task, 11, 4, 4)
	l.work()
	_, _, err = l.next().Drain(ctx, a)
	is(t, err, nil)
	state, err := l.next().BatchState(ctx, task.ID, store.Batch{Start: 11})
	if is(t, err, nil); state != store.Draining {
		t.Fatalf("the state is %d", state)
	}
	_, _, err = l.next().Drain(ctx, b)
	is(t, err, store.ErrBusy)
	is(t, l.next().Forgo(ctx, task.ID, a.ID), store.ErrTaken)
	is(t, l.next().Withdraw(ctx, task.ID, a.ID), nil)
	is(t, l.next().Withdraw(ctx, task.ID, a.ID), store.ErrNotFound)
	l.upload(task, 9, 5, 5)
	l.work()
	// Both at once, at two replicas: one has it.
	c := l.ask(task, "c", storetest.Interval(10, 1))
	var errs [2]error
	var wg sync.WaitGroup
	for i, r := range []*store.Resource{b, c} {
		l.upload(task, 10, 6, 6)
		wg.Go(func() { _, _, errs[i] = l.all[i].Drain(ctx, r) })
	}
	wg.Wait()
	if !errors.Is(errs[1], store.ErrTooSmall) && !errors.Is(errs[1], store.ErrBusy) || errs[0] != nil {
		t.Fatalf("%v", errs)
	}
	l.audit("")
}

// TestLeaderServerCrash: kill -9 of the server, between and during what a leader does, loses
// nothing that was acknowledged and does nothing twice.
func TestLeaderServerCrash(t *testing.T) {
	ctx := t.Context()
	task := storetest.Task(t, dap.TimeInterval, 1)
	server := pgtest.NewServer(t)
	l := leaderOf(t, server.Schema(t), task)
	crash := func() { server.Crash(t, func() {}) }
	l.upload(task, 10, 0, 4)
	crash()
	l.upload(task, 10, 5, 9)
	j := l.one()
	is(t, l.next().SaveSent(ctx, j, &store.Sent{Accepted: []byte{0xff, 3}, Digest: [32]byte{1}}, l.now.Add(time.Minute)), nil)
	crash()
	l.now = l.now.Add(time.Hour)
	again := l.one()
	if again.ID != j.ID || again.Sent == nil || again.Sent.Digest != [32]byte{1} || !slices.Equal(l.numbers(again), l.numbers(j)) {
		t.Fatalf("claimed %+v after a crash", again)
	}
	c := l.commitOf(again)
	fold := c.Fold
	c.Fold = func(v []dap.ReportError) ([]*vdaf.AggShare, error) {
		crash() // within the transaction
		return fold(v)
	}
	is(t, l.next().FinishJob(ctx, again, c), nil)
	crash()
	l.counts(task, store.Counts{Acknowledged: 10, Aggregated: 10})
	r := l.ask(task, "ask", storetest.Interval(10, 1))
	_, _, err := l.next().Drain(ctx, r)
	is(t, err, nil)
	crash()
	f := l.hold(r)
	crash()
	l.release(task, r, f, 0, 9)
	crash()
	l.owner = connect(t, l.schema, l.schema.Owner) // the one before went with the server
	l.left(0, 0)
	l.audit("")
}
