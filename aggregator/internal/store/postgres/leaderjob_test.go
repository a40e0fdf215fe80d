//go:build postgres

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf"
)

// TestLeases: a lease fences every write, ends by the clock of whoever claims, and the job
// that comes back is the same, with what it sent.
func TestLeases(t *testing.T) {
	ctx := t.Context()
	task := storetest.Task(t, dap.TimeInterval, 1)
	l := newLeader(t, task)
	l.upload(task, 10, 0, 5)
	l.upload(task, 10, 6, 9)
	old := l.one()
	if len(l.claim(5)) != 0 || old.Lease.Attempts != 1 || !old.Lease.Expires.Equal(l.now.Add(time.Minute)) {
		t.Fatalf("claimed %+v", old)
	}
	before := l.numbers(old)
	if err := l.next().SaveSent(ctx, old, &store.Sent{Accepted: []byte{1}}, l.now); err == nil {
		t.Fatal("a bitmap of the wrong length passed")
	}
	sent := &store.Sent{Accepted: []byte{0xff, 1}, Digest: [32]byte{7}}
	later := l.now.Add(90 * time.Second)
	is(t, l.next().SaveSent(ctx, old, sent, later), nil)
	is(t, l.next().SaveSent(ctx, old, sent, l.now), nil) // never shorter
	is(t, l.next().SaveSent(ctx, old, &store.Sent{Accepted: sent.Accepted, Digest: sent.Digest, Location: "/1"}, l.now), nil)
	is(t, l.next().SaveSent(ctx, old, &store.Sent{Accepted: sent.Accepted, Digest: [32]byte{8}}, l.now), store.ErrDifferent)
	l.upload(task, 10, 10, 11) // of no concern to a job that is made
	l.now = l.now.Add(time.Minute)
	if jobs := l.claim(5); len(jobs) != 1 || jobs[0].Reports() != 2 {
		t.Fatalf("claimed %+v, want what came later alone", jobs)
	}
	l.now = later
	l.open(0, time.Nanosecond) // whoever claims it is another process
	l.open(1, time.Nanosecond)
	fresh := l.one()
	if fresh.ID != old.ID || fresh.Lease.Attempts != 2 || fresh.Lease.Token == old.Lease.Token || !slices.Equal(l.numbers(fresh), before) {
		t.Fatalf("claimed %+v, want the same job", fresh)
	}
	if s := fresh.Sent; s == nil || s.Digest != sent.Digest || s.Location != "/1" || !slices.Equal(s.Accepted, sent.Accepted) {
		t.Fatalf("sent is %+v", s)
	}
	is(t, l.next().SaveSent(ctx, old, sent, l.now), store.ErrStaleLease)
	is(t, l.next().RetryJob(ctx, old, l.now, "x"), store.ErrStaleLease)
	is(t, l.next().QuarantineJob(ctx, old, dap.InvalidMessage, "x"), store.ErrStaleLease)
	is(t, l.next().ParkJob(ctx, old, "x", l.now), store.ErrStaleLease)
	_, err := l.next().SetAside(ctx, old, []int{0}, dap.InvalidMessage, "x")
	is(t, err, store.ErrStaleLease)
	is(t, l.next().FinishJob(ctx, old, l.commitOf(old)), store.ErrStaleLease)
	inFlight, err := l.next().Sent(ctx, task.ID)
	if is(t, err, nil); len(inFlight) != 1 || len(inFlight[0].Slices) != 2 || !slices.Equal(inFlight[0].Accepted, sent.Accepted) {
		t.Fatalf("in flight are %+v", inFlight)
	}
	// Whoever lost the lease while it folded changes nothing.
	c := l.commitOf(fresh)
	fold := c.Fold
	c.Fold = func(v []dap.ReportError) ([]*vdaf.AggShare, error) { return fold(v) }
	x := connect(t, l.schema, l.schema.Owner)
	x.ok("UPDATE job SET lease_token = decode(repeat('00', 16), 'hex') WHERE id = " + fmt.Sprint(fresh.ID))
	is(t, l.next().FinishJob(ctx, fresh, c), store.ErrStaleLease)
	l.counts(task, store.Counts{Acknowledged: 12, Waiting: 12})
	l.now = l.now.Add(time.Hour)
	l.work()
	l.counts(task, store.Counts{Acknowledged: 12, Aggregated: 12})
	l.audit("")
}

// TestCommitIsTakenOver: a worker that is killed within its commit, between the two
// transactions of it, leaves its reports to whoever claims the job when the lease has ended,
// and not to the end of its flight, which is an hour off here.
func TestCommitIsTakenOver(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	task := storetest.Task(t, dap.TimeInterval, 1)
	l := newLeader(t, task)
	l.upload(task, 10, 0, 1)
	old := l.one()
	a, b := storetest.ReportID(0), storetest.ReportID(1)
	if string(a[:]) > string(b[:]) {
		a, b = b, a
	}
	l.owner.ok(fmt.Sprintf("INSERT INTO flight (token, task, ids, expires) VALUES (decode('%x', 'hex'), 1, decode('%x%x', 'hex'), now() + interval '1 hour')",
		old.Lease.Token, a[:], b[:]))
	l.now = l.now.Add(time.Minute)
	fresh := l.one()
	if fresh.ID != old.ID {
		t.Fatalf("claimed %+v", fresh)
	}
	is(t, l.next().FinishJob(ctx, fresh, l.commitOf(fresh)), nil)
	l.counts(task, store.Counts{Acknowledged: 2, Aggregated: 2})
	l.audit("")
}

// TestClaimsAtOnce: claims of many workers at both replicas take each slice once, and wait
// for nobody who holds one.
func TestClaimsAtOnce(t *testing.T) {
	ctx := t.Context()
	var tasks []*store.Task
	for seed := range 4 {
		tasks = append(tasks, storetest.Task(t, []dap.BatchMode{dap.TimeInterval, dap.LeaderSelected}[seed%2], byte(seed+1)))
	}
	l := newLeader(t, tasks...)
	l.most.Reports = 6
	for n := range 40 {
		l.upload(tasks[n%4], dap.Time(10+n%3), 3*n, 3*n+2)
	}
	x := connect(t, l.schema, l.schema.Owner)
	x.ok("BEGIN")
	x.ok("SELECT 1 FROM slice WHERE id = 1 FOR UPDATE")
	var mu sync.Mutex
	had := make(map[string]int)
	reports := 0
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for tries := 0; tries < 20; tries++ {
				jobs, err := l.all[i%2].ClaimJobs(ctx, l.now, time.Minute, 3, l.most)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				for _, j := range jobs {
					tries = 0
					for k := range j.Slices {
						had[j.Slices[k].Object]++
						reports += j.Slices[k].Count
					}
					if j.Reports() > 6 {
						t.Errorf("a job of %d reports", j.Reports())
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	x.ok("ROLLBACK")
	for object, n := range had {
		if n != 1 {
			t.Errorf("%s was claimed %d times", object, n)
		}
	}
	if reports != 39*3 {
		t.Errorf("%d reports were claimed, want all but those of the slice that somebody held", reports)
	}
	if j := l.one(); j.Reports() != 3 {
		t.Errorf("the last job has %d reports", j.Reports())
	}
	l.now = l.now.Add(time.Hour)
	l.work()
	l.left(0, 0)
	l.audit("")
	for _, task := range tasks {
		l.counts(task, store.Counts{Acknowledged: 30, Aggregated: 30})
	}
}

// TestGiveUpAtOnce: while many workers claim, send and finish at both replicas and clients
// upload, a task is closed and given up. From the closing on nothing more is acknowledged;
// after what was given up nothing waits but jobs that were sent, and each report that was
// acknowledged is aggregated or dropped, once.
func TestGiveUpAtOnce(t *testing.T) {
	ctx := t.Context()
	task := storetest.Task(t, dap.TimeInterval, 1)
	l := newLeader(t)
	p := storetest.Provision(task)
	made, err := l.all[0].Register(ctx, p)
	if is(t, err, nil); made != 1 {
		t.Fatal("not registered")
	}
	l.tasks = []*store.Task{task}
	for _, s := range l.all {
		is(t, s.PutTask(ctx, task), nil)
	}
	l.most.Reports = 6
	var closed atomic.Bool
	var wg sync.WaitGroup
	var acknowledged atomic.Int64
	begun := make(chan struct{}, 100)
	for i := range 2 {
		wg.Go(func() { // clients
			for n := 0; ; n++ {
				before := closed.Load()
				first := 3 * (2*(n%40) + i)
				refused, err := l.intakes[i].Put(ctx, entries(task, dap.Time(10+n%3), first, first+2, 20))
				if err != nil {
					t.Error(err)
					return
				}
				if refused != nil {
					if refused[0] != segment.Refusal(dap.ReportDropped) {
						t.Errorf("refused %v", refused)
					}
					return
				}
				if acknowledged.Add(3); before {
					t.Error("a report was acknowledged after the closing")
					return
				}
			}
		})
		for range 2 {
			wg.Go(func() { // workers
				for idle := 0; idle < 3; {
					jobs, err := l.all[i].ClaimJobs(ctx, l.now, time.Hour, 2, l.most)
					if err != nil {
						t.Error(err)
						return
					}
					if len(jobs) == 0 && closed.Load() {
						idle++
					}
					for k, j := range jobs {
						reports, err := segment.OpenSlices(ctx, l.all[i].Payload(), j.Slices)
						if err != nil {
							t.Error(err)
							return
						}
						var numbers []int
						for n := range reports.Len() {
							numbers = append(numbers, numberOf(dap.ReportID(reports.ReportID(n))))
						}
						c := storetest.Commit(t, task, []store.Batch{j.Batch}, []dap.Time{dap.Time(j.Slices[0].Bucket)}, [][]int{numbers})
						if k == 0 {
							err = l.all[i].SaveSent(ctx, j, &store.Sent{Accepted: make([]byte, (j.Reports()+7)/8)}, l.now.Add(time.Hour))
						}
						if err == nil {
							err = l.all[i].FinishJob(ctx, j, c)
						}
						if err != nil && !(closed.Load() && errors.Is(err, store.ErrStaleLease)) {
							t.Error(err)
						}
					}
					select {
					case begun <- struct{}{}:
					default:
					}
				}
			})
		}
	}
	for range 20 {
		<-begun
	}
	_, err = l.all[1].CloseTask(ctx, task.ID, store.Closing{At: l.now, By: "bob", Why: "over"})
	is(t, err, nil)
	closed.Store(true)
	given, err := l.all[1].GiveUp(ctx, task.ID)
	is(t, err, nil)
	var left int
	x := connect(t, l.schema, l.schema.Owner)
	is(t, x.QueryRow(ctx, `SELECT (SELECT count(*) FROM slice WHERE job IS NULL) + (SELECT count(*) FROM job WHERE state = 0 AND sent_digest IS NULL)`).Scan(&left), nil)
	if left != 0 {
		t.Errorf("%d slices and jobs wait after all was given up", left)
	}
	wg.Wait()
	again, err := l.next().GiveUp(ctx, task.ID)
	if is(t, err, nil); again != 0 {
		t.Errorf("%d more reports are given up", again)
	}
	c, err := l.next().Counts(ctx, task.ID)
	is(t, err, nil)
	if c.Acknowledged != uint64(acknowledged.Load()) || c.Waiting != 0 || c.Rejected[dap.ReportDropped] != given ||
		c.Acknowledged != c.Aggregated+given+c.Rejected[dap.ReportReplayed] {
		t.Errorf("%d were acknowledged and %d given up, counts are %+v", acknowledged.Load(), given, c)
	}
	l.left(0, 0)
	l.audit("")
}

// TestGiveUpWaitsForSend: a job that is being sent is waited for, and goes on.
func TestGiveUpWaitsForSend(t *testing.T) {
	task := storetest.Task(t, dap.TimeInterval, 1)
	l := newLeader(t, task)
	_, err := l.all[0].Register(t.Context(), storetest.Provision(task))
	is(t, err, nil)
	l.upload(task, 10, 0, 1)
	l.one()
	_, err = l.next().CloseTask(t.Context(), task.ID, store.Closing{At: l.now, By: "bob", Why: "over"})
	is(t, err, nil)
	x := connect(t, l.schema, l.schema.Owner)
	x.ok("BEGIN")
	x.ok("UPDATE job SET sent_digest = " + hash + ", sent_accepted = '\\x00'") // as SaveSent does
	done := make(chan uint64)
	go func() {
		n, err := l.all[0].GiveUp(t.Context(), task.ID)
		if err != nil {
			t.Error(err)
		}
		done <- n
	}()
	l.blocked()
	x.ok("COMMIT")
	if n := <-done; n != 0 {
		t.Errorf("%d reports of a job that was sent were given up", n)
	}
	l.counts(task, store.Counts{Acknowledged: 2, Waiting: 2})
	l.now = l.now.Add(time.Hour)
	l.work()
	l.counts(task, store.Counts{Acknowledged: 2, Aggregated: 2})
	l.audit("")
}

// TestMost: a job takes at least one slice, and no more than it may.
func TestMost(t *testing.T) {
	task, other := storetest.Task(t, dap.TimeInterval, 1), storetest.Task(t, dap.TimeInterval, 2)
	l := newLeader(t, task, other)
	sizes := func(want ...int) {
		t.Helper()
		var got []int
		for _, j := range l.claim(9) {
			got = append(got, j.Reports())
			is(t, l.next().QuarantineJob(t.Context(), j, dap.ReportDropped, "done with"), nil)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("jobs have %v reports, want %v", got, want)
		}
	}
	fill := func() {
		for n := range 5 {
			l.upload(task, 10, 4*n, 4*n+3)
		}
		l.upload(other, 10, 0, 0)
		l.upload(task, 11, 0, 0)
	}
	fill()
	l.most = store.Most{Bytes: 1 << 20, Reports: 8}
	sizes(8, 8, 4, 1, 1)
	fill()
	l.most = store.Most{Bytes: 3 * 4 * (24 + 20), Reports: 100}
	sizes(12, 8, 1, 1)
	fill()
	l.most = store.Most{Bytes: 1, Reports: 1}
	sizes(4, 4, 4, 4, 4, 1, 1)
	if jobs := l.claim(0); jobs != nil {
		t.Fatal("claimed none")
	}
	fill()
	if jobs := l.claim(9, task.ID); len(jobs) != 1 || jobs[0].Task != other.ID {
		t.Fatalf("claimed %+v of a task that was left out", jobs)
	}
	l.audit("")
}

// TestBackOff: a job that was given back is claimed when its time has come, or in a hurry,
// and is listed meanwhile.
func TestBackOff(t *testing.T) {
	ctx := t.Context()
	task := storetest.Task(t, dap.TimeInterval, 1)
	l := newLeader(t, task)
	l.upload(task, 10, 0, 5)
	j := l.one()
	is(t, l.next().RetryJob(ctx, j, l.now.Add(time.Hour), "peer is down"), nil)
	if len(l.claim(1)) != 0 {
		t.Fatal("claimed before its time")
	}
	stuck, err := l.next().Stuck(ctx, task.ID)
	want := store.Stuck{Job: j.ID, Reports: 6, Attempts: 1, Why: "peer is down", Next: l.now.Add(time.Hour).UTC()}
	if is(t, err, nil); len(stuck) != 1 || stuck[0] != want {
		t.Fatalf("stuck is %+v", stuck)
	}
	levels, err := l.next().Levels(ctx)
	if is(t, err, nil); levels.Failing != 6 || levels.Oldest.IsZero() {
		t.Fatalf("levels are %+v", levels)
	}
	is(t, l.next().Hurry(ctx, task.ID), nil)
	j = l.one()
	is(t, l.next().RetryJob(ctx, j, l.now.Add(30*time.Hour), "written by another clock"), nil)
	if j = l.one(); j.Lease.Attempts != 3 {
		t.Fatalf("claimed %+v", j)
	}
	is(t, l.next().QuarantineJob(ctx, j, dap.InvalidMessage, "cannot be rebuilt"), nil)
	l.now = l.now.Add(100 * time.Hour)
	if len(l.claim(1)) != 0 {
		t.Fatal("claimed what was set aside")
	}
	if levels, err = l.next().Levels(ctx); err != nil || levels.SetAside != 6 || levels.Failing != 0 || !levels.Oldest.IsZero() {
		t.Fatalf("levels are %+v, %v", levels, err)
	}
	l.counts(task, store.Counts{Acknowledged: 6, Rejected: map[dap.ReportError]uint64{dap.InvalidMessage: 6}})
	l.left(0, 0)
	l.audit("")
}

// TestSetAside: slices whose object is gone are taken out of their job, and the others go
// on as the same job, until it was sent.
func TestSetAside(t *testing.T) {
	ctx := t.Context()
	task := storetest.Task(t, dap.TimeInterval, 1)
	l := newLeader(t, task)
	l.upload(task, 10, 0, 2)
	_, err := l.intakes[0].Put(ctx, entries(task, 10, 3, 6, 1000))
	is(t, err, nil)
	l.upload(task, 10, 7, 8)
	j := l.one()
	is(t, l.objects.Delete(ctx, j.Slices[1].Object), nil)
	l.audit("is not there")
	_, err = segment.OpenSlices(ctx, l.next().Payload(), j.Slices)
	var gone *segment.SliceError
	if !errors.As(err, &gone) || gone.Index != 1 || !gone.Gone() {
		t.Fatalf("opened: %v", err)
	}
	for _, bad := range [][]int{nil, {3}, {-1}, {1, 1}} {
		if _, err := l.next().SetAside(ctx, j, bad, dap.ReportDropped, "gone"); err == nil {
			t.Fatalf("%v passed", bad)
		}
	}
	left, err := l.next().SetAside(ctx, j, []int{1}, dap.ReportDropped, "its object is gone")
	if is(t, err, nil); left.ID != j.ID || left.Reports() != 5 || !slices.Equal(l.numbers(left), []int{0, 1, 2, 7, 8}) {
		t.Fatalf("left is %+v", left)
	}
	again, err := l.next().SetAside(ctx, j, []int{1}, dap.ReportDropped, "its object is gone")
	if is(t, err, nil); !slices.Equal(l.numbers(again), []int{0, 1, 2, 7, 8}) {
		t.Fatalf("left is %+v the second time", again)
	}
	_, err = l.next().SetAside(ctx, j, []int{0}, dap.ReportDropped, "its object is gone") // by an old list
	is(t, err, store.ErrDifferent)
	l.counts(task, store.Counts{Acknowledged: 9, Waiting: 5, Rejected: map[dap.ReportError]uint64{dap.ReportDropped: 4}})
	is(t, l.next().SaveSent(ctx, left, &store.Sent{Accepted: []byte{31}}, l.now), nil)
	_, err = l.next().SetAside(ctx, left, []int{0}, dap.ReportDropped, "late")
	is(t, err, store.ErrDifferent)
	l.finish(left)
	l.upload(task, 10, 9, 9)
	j = l.one()
	if left, err = l.next().SetAside(ctx, j, []int{0}, dap.ReportDropped, "all of it"); left != nil || err != nil {
		t.Fatalf("left is %+v, %v", left, err)
	}
	l.now = l.now.Add(time.Hour)
	if jobs := l.claim(1); len(jobs) != 0 {
		t.Fatalf("claimed %+v", jobs)
	}
	stuck, err := l.next().Stuck(ctx, task.ID)
	if is(t, err, nil); len(stuck) != 2 || !stuck[0].Quarantined && !stuck[1].Quarantined {
		t.Fatalf("stuck is %+v", stuck)
	}
	l.left(0, 0)
	l.audit("")
}

// TestStepsAndShared: answers of the steps before are kept with a job, and of two jobs of
// the same reports one alone goes past the first step, at whatever replicas they are.
func TestStepsAndShared(t *testing.T) {
	ctx := t.Context()
	task := storetest.Task(t, dap.TimeInterval, 1)
	l := newLeader(t, task)
	l.most.Reports = 6
	l.upload(task, 10, 0, 5)
	l.upload(task, 10, 0, 5)
	jobs := l.claim(2)
	save := func(e *postgres.Store, j *store.Job, step uint16, location string) error {
		return e.SaveSent(ctx, j, &store.Sent{
			Accepted: []byte{7}, Step: step, Digest: [32]byte{byte(step)}, Location: location, Answers: [][]byte{{0xA0}, {}}[:step],
		}, l.now)
	}
	is(t, save(l.next(), jobs[0], 1, "job"), store.ErrDifferent)
	for _, j := range jobs {
		is(t, save(l.next(), j, 0, "job"), nil)
	}
	if shared, err := l.next().Shared(ctx, jobs[0], "job"); shared || err != nil {
		t.Fatal(shared, err)
	}
	// Both at once: the schema decides.
	const won = 0
	x := connect(t, l.schema, l.schema.Owner)
	x.ok("BEGIN")
	x.ok(fmt.Sprintf("UPDATE job SET sent_step = 1, sent_digest = decode('01' || repeat('00', 31), 'hex') WHERE id = %d", jobs[won].ID))
	x.ok(fmt.Sprintf("INSERT INTO answer (job, step, body) VALUES (%d, 0, decode('a0', 'hex'))", jobs[won].ID))
	second := make(chan error)
	go func() { second <- save(l.all[0], jobs[1-won], 1, "job") }()
	l.blocked()
	x.ok("COMMIT")
	is(t, <-second, store.ErrBusy)
	is(t, save(l.next(), jobs[won], 1, "job"), nil)
	if shared, err := l.next().Shared(ctx, jobs[1-won], "job"); !shared || err != nil {
		t.Fatal(shared, err)
	}
	is(t, save(l.next(), jobs[won], 2, "job"), nil)
	is(t, save(l.next(), jobs[won], 1, "job"), store.ErrDifferent)
	l.now = l.now.Add(time.Hour)
	jobs = l.claim(2)
	if i := slices.IndexFunc(jobs, func(j *store.Job) bool { return j.Sent.Step == 2 }); i < 0 || len(jobs[i].Sent.Answers) != 2 ||
		jobs[i].Sent.Answers[0][0] != 0xA0 || len(jobs[i].Sent.Answers[1]) != 0 {
		t.Fatalf("claimed %+v", jobs)
	}
	for _, j := range jobs {
		is(t, l.next().QuarantineJob(ctx, j, dap.ReportDropped, "no more"), nil)
	}
	l.left(0, 0)
	l.audit("")
}

// TestParkAndHold: a job that is parked waits for a person, and holds its task once its peer
// has refused enough of them as a whole.
func TestParkAndHold(t *testing.T) {
	ctx := t.Context()
	for _, drop := range []bool{false, true} {
		task, other := storetest.Task(t, dap.TimeInterval, 1), storetest.Task(t, dap.TimeInterval, 2)
		l := newLeader(t, task, other)
		for n := range store.FirstTurned {
			l.upload(task, 10, 2*n, 2*n+1)
			is(t, l.next().ParkJob(ctx, l.one(), "a definite refusal", l.now), nil)
		}
		holds, err := l.next().Holds(ctx)
		if is(t, err, nil); len(holds) != 1 || holds[0].Task != task.ID || holds[0].Person || !strings.Contains(holds[0].Why, "a definite refusal") {
			t.Fatalf("holds are %+v", holds)
		}
		l.upload(task, 10, 20, 20)
		l.upload(other, 10, 0, 0)
		l.now = l.now.Add(time.Hour)
		if jobs := l.claim(9); len(jobs) != 1 || jobs[0].Task != other.ID {
			t.Fatalf("claimed %+v", jobs)
		}
		levels, err := l.next().Levels(ctx)
		if is(t, err, nil); levels.Parked != 2*store.FirstTurned {
			t.Fatalf("levels are %+v", levels)
		}
		if n, err := l.next().Resume(ctx, []dap.TaskID{task.ID}, drop); n != 2*store.FirstTurned || err != nil {
			t.Fatal(n, err)
		}
		if n, err := l.next().Resume(ctx, []dap.TaskID{task.ID}, drop); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		want := store.Counts{Acknowledged: 7, Aggregated: 7}
		if drop {
			want = store.Counts{Acknowledged: 7, Aggregated: 1, Rejected: map[dap.ReportError]uint64{dap.ReportDropped: 6}}
		}
		l.now = l.now.Add(time.Hour)
		l.work()
		l.counts(task, want)
		l.left(0, 0)
		l.audit("")
	}
}

// TestConduct: over half of a window of reports that the peer refuses for its own reasons
// holds the task, half does not, and a peer that answers well is not written of.
func TestConduct(t *testing.T) {
	ctx := t.Context()
	task := storetest.Task(t, dap.TimeInterval, 1)
	l := newLeader(t, task)
	answered := func(refused uint64) {
		t.Helper()
		l.upload(task, 10, 0, 24)
		j := l.one()
		is(t, l.next().FinishJob(ctx, j, &store.Commit{Task: task.ID, Batches: []store.Batch{j.Batch},
			Rejected: map[dap.ReportError]uint64{dap.VDAFVerifyError: 25}, Conduct: &store.Conduct{Asked: 25, Refused: refused, Now: l.now}}), nil)
	}
	version := func() (xmin string) {
		is(t, l.owner.QueryRow(ctx, "SELECT xmin::text FROM conduct").Scan(&xmin), nil)
		return xmin
	}
	answered(0)
	before := version()
	for range 5 {
		answered(0)
	}
	if version() != before {
		t.Error("the row of a peer that answers well is written at each job")
	}
	for _, refused := range []uint64{25, 25, 0, 0, 25, 25, 1} {
		answered(refused)
	}
	holds, err := l.next().Holds(ctx)
	if is(t, err, nil); len(holds) != 0 {
		t.Fatalf("held after half of a window: %+v", holds)
	}
	answered(0)
	if holds, err = l.next().Holds(ctx); err != nil || len(holds) != 1 || !strings.Contains(holds[0].Why, "51 of the last 100") {
		t.Fatalf("held %+v, %v", holds, err)
	}
	is(t, l.next().HoldTask(ctx, task.ID, "we move", l.now), nil)
	if holds, err = l.next().Holds(ctx); err != nil || !holds[0].Person || holds[0].Why != "we move" {
		t.Fatalf("held %+v, %v", holds, err)
	}
	is(t, l.next().HoldTask(ctx, dap.TaskID{9}, "nobody's", l.now), store.ErrNotFound)
	if err := l.next().HoldTask(ctx, task.ID, "", l.now); err == nil {
		t.Fatal("held without a reason")
	}
}
