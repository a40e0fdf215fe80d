package storetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

func init() {
	tests["RegisteredOnce"] = testRegisteredOnce
	tests["RegisteredAllOrNone"] = testRegisteredAllOrNone
	tests["RegistryIsReadOn"] = testRegistryIsReadOn
	tests["QuotaAtOnce"] = testQuotaAtOnce
	tests["QuotaOfAPeer"] = testQuotaOfAPeer
	tests["QuotaOfTheStore"] = testQuotaOfTheStore
	tests["Usage"] = testUsage
	tests["ClosedForGood"] = testClosedForGood
	tests["AmendedTask"] = testAmendedTask
	tests["TotalsAreSums"] = testTotalsAreSums
	tests["ClosedTaskRetires"] = testClosedTaskRetires
}

// Provision is how a task of the suite comes.
func Provision(task *store.Task) store.Provision {
	made := fmt.Appendf(nil, "recipe of %x", task.Config)
	return store.Provision{Task: task, Registration: store.Registration{
		ID: task.ID, Form: aggregator.RecipeFile, Made: made, Sum: sha256.Sum256(made), Terms: []byte(`{"peer_token":"peer.token"}`),
		Source: aggregator.Typed, By: "alice", Added: Epoch, End: Epoch.Add(time.Hour).Round(time.Second),
	}}
}

func remade(p store.Provision, made string) store.Provision {
	p.Made = []byte(made)
	p.Sum = sha256.Sum256(p.Made)
	return p
}

// testRegisteredOnce: two adds that are the same are one, whoever types them, in this life
// and the next; what is there is never replaced by something else.
func testRegisteredOnce(t *testing.T, h Harness) {
	ctx := context.Background()
	w := NewWorld(t, h)
	task := Task(t, dap.TimeInterval, 1)
	p := Provision(task)
	register := func(p store.Provision, want int) {
		t.Helper()
		made, err := w.Store.Register(ctx, p)
		if w.ok(err); made != want {
			t.Fatalf("%d tasks were made, want %d", made, want)
		}
	}
	if _, err := w.Store.Registration(ctx, task.ID); err == nil {
		t.Fatal("a task is registered before it came")
	}
	register(p, 1)
	first, err := w.Store.Registration(ctx, task.ID)
	w.ok(err)
	other := p
	other.By, other.Source, other.Added = "bob", aggregator.InBand, Epoch.Add(time.Minute)
	register(other, 0)
	register(other, 0)
	w.Reopen(t)
	register(p, 0)

	for name, p := range map[string]store.Provision{
		"other bytes": remade(p, "another recipe"),
		"other terms": func() store.Provision { p := p; p.Terms = []byte("{}"); return p }(),
		"tenant":      func() store.Provision { p := p; p.Tenant = "acme"; return p }(),
		"form":        func() store.Provision { p := p; p.Form = aggregator.Configuration; return p }(),
		"configuration": func() store.Provision {
			p, other := p, *task
			other.Config = []byte("other")
			p.Task = &other
			return p
		}(),
	} {
		if made, err := w.Store.Register(ctx, p); made != 0 || err == nil {
			t.Errorf("%s: %d made, %v", name, made, err)
		} else {
			w.is(err, store.ErrDifferent)
		}
	}
	second, err := w.Store.Registration(ctx, task.ID)
	if w.ok(err); fmt.Sprint(*first) != fmt.Sprint(*second) || string(second.Made) != string(p.Made) || string(second.Terms) != string(p.Terms) ||
		second.By != "alice" || !second.Added.Equal(Epoch) || !second.End.Equal(p.End) || second.Closed != nil {
		t.Errorf("the row was %+v, is %+v", first, second)
	}
	w.Audit()
}

// testRegisteredAllOrNone: of several tasks of which one is refused none is there.
func testRegisteredAllOrNone(t *testing.T, h Harness) {
	ctx := context.Background()
	w := NewWorld(t, h)
	a, b, c := Provision(Task(t, dap.TimeInterval, 1)), Provision(Task(t, dap.LeaderSelected, 2)), Provision(Task(t, dap.TimeInterval, 3))
	made, err := w.Store.Register(ctx, b)
	if w.ok(err); made != 1 {
		t.Fatalf("%d made", made)
	}
	_, err = w.Store.Register(ctx, a, remade(b, "another"), c)
	w.is(err, store.ErrDifferent)
	bad := c
	bad.By = ""
	if _, err = w.Store.Register(ctx, a, bad); err == nil {
		t.Error("a task that nobody added is taken")
	}
	for range 2 {
		ids, err := w.Store.Tasks(ctx)
		if w.ok(err); !slices.Equal(ids, []dap.TaskID{b.ID}) {
			t.Fatalf("tasks are %v", ids)
		}
		w.Reopen(t)
	}
	made, err = w.Store.Register(ctx, a, b, a, c)
	if w.ok(err); made != 2 {
		t.Errorf("%d made, want 2: one is there, one is named twice", made)
	}
	w.Audit()
}

// testRegistryIsReadOn: whoever reads the registry page by page, and on from there, misses
// no change, across lives.
func testRegistryIsReadOn(t *testing.T, h Harness) {
	ctx := context.Background()
	w := NewWorld(t, h)
	var at uint64
	seen := make(map[dap.TaskID]bool) // whether it is closed
	read := func(want int) {
		t.Helper()
		n := 0
		for {
			page, err := w.Store.Registrations(ctx, at, 2)
			w.ok(err)
			for i := range page {
				r := &page[i]
				if r.Change <= at || r.Made != nil || r.Terms != nil || r.Sum == [32]byte{} {
					t.Fatalf("after %d came %+v", at, r)
				}
				at, seen[r.ID] = r.Change, r.Closed != nil
				n++
			}
			if len(page) < 2 {
				break
			}
		}
		if n != want {
			t.Fatalf("%d changes, want %d", n, want)
		}
	}
	read(0)
	var ids []dap.TaskID
	for n := range byte(5) {
		p := Provision(Task(t, dap.TimeInterval, n))
		ids = append(ids, p.ID)
		_, err := w.Store.Register(ctx, p)
		w.ok(err)
	}
	read(5)
	read(0)
	w.Reopen(t)
	_, err := w.Store.CloseTask(ctx, ids[1], store.Closing{At: w.Now, By: "bob", Why: "over"})
	w.ok(err)
	_, err = w.Store.Register(ctx, Provision(Task(t, dap.LeaderSelected, 9)))
	w.ok(err)
	_, err = w.Store.CloseTask(ctx, ids[0], store.Closing{At: w.Now, By: "bob", Why: "over"})
	w.ok(err)
	_, err = w.Store.CloseTask(ctx, ids[1], store.Closing{At: w.Now, By: "carol", Why: "again"})
	w.ok(err)
	read(3)
	if len(seen) != 6 || !seen[ids[0]] || !seen[ids[1]] || seen[ids[2]] {
		t.Errorf("seen are %v", seen)
	}
	at = 0
	read(6)
}

// testQuotaOfAPeer: a peer has as many live tasks, and brings as many in a time, as its quota
// says, by what is in the store, across lives; other peers, persons and what is there
// already do not count, and a refused task leaves nothing behind.
func testQuotaOfAPeer(t *testing.T, h Harness) {
	ctx := context.Background()
	w := NewWorld(t, h)
	now := Epoch
	n := byte(0)
	bring := func(by string, live, added int) (store.Provision, error) {
		n++
		p := Provision(Task(t, dap.TimeInterval, n))
		p.Source, p.By, p.Added, p.End = aggregator.InBand, by, now, now.Add(10*time.Hour).Round(time.Second)
		p.Quota = &store.Quota{Now: now, Live: live, Since: now.Add(-time.Hour), Added: added}
		_, err := w.Store.Register(ctx, p)
		return p, err
	}
	full := func(err error, live bool, free time.Time) {
		t.Helper()
		var e *store.FullError
		if !errors.As(err, &e) || e.Live != live || !e.Free.Equal(free) {
			t.Fatalf("%v, want a full quota, of live ones: %v, until %v", err, live, free)
		}
	}
	typed := Provision(Task(t, dap.TimeInterval, 100))
	typed.By = "peer"
	_, err := w.Store.Register(ctx, typed)
	w.ok(err)
	first, err := bring("peer", 3, 2)
	w.ok(err)
	now = now.Add(20 * time.Minute)
	_, err = bring("peer", 3, 2)
	w.ok(err)
	_, err = bring("other peer", 1, 1)
	w.ok(err)
	refused, err := bring("peer", 3, 2)
	full(err, false, Epoch.Add(time.Hour))
	if _, err := w.Store.Registration(ctx, refused.ID); err == nil {
		t.Error("a refused task is registered")
	}
	w.Reopen(t)
	_, err = bring("peer", 3, 2)
	full(err, false, Epoch.Add(time.Hour))
	first.Quota = &store.Quota{Now: now, Since: now.Add(-time.Hour)} // nothing more may come
	made, err := w.Store.Register(ctx, first)
	if w.ok(err); made != 0 {
		t.Error("a task that is there is made again")
	}
	now = Epoch.Add(time.Hour)
	_, err = bring("peer", 3, 2)
	w.ok(err)
	_, err = bring("peer", 3, 9)
	full(err, true, time.Time{})
	_, err = w.Store.CloseTask(ctx, first.ID, store.Closing{At: now, By: "bob", Why: "over"})
	w.ok(err)
	_, err = bring("peer", 3, 9)
	w.ok(err)
	now = now.Add(10 * time.Hour) // all have ended
	_, err = bring("peer", 1, 9)
	w.ok(err)
	p := Provision(Task(t, dap.TimeInterval, 101))
	p.Source, p.End = aggregator.InBand, time.Time{}
	if _, err := w.Store.Register(ctx, p); err == nil {
		t.Error("a task without an end came in band")
	}
	w.Audit()
}

// testQuotaAtOnce: tasks of one peer that come at several handles at the same time are not
// more than its quota, and one that comes at all of them is made once.
func testQuotaAtOnce(t *testing.T, h Harness) {
	ctx := context.Background()
	w := NewWorld(t, h)
	var wait sync.WaitGroup
	var made, full atomic.Int32
	bring := func(n byte) {
		p := Provision(Task(t, dap.TimeInterval, n))
		p.Source, p.By, p.Added, p.End = aggregator.InBand, "peer", Epoch, Epoch.Add(time.Hour).Round(time.Second)
		p.Quota = &store.Quota{Now: Epoch, Live: 3, Since: Epoch.Add(-time.Hour), Added: 9}
		wait.Go(func() {
			n, err := w.Store.Register(ctx, p)
			if made.Add(int32(n)); errors.As(err, new(*store.FullError)) {
				full.Add(1)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	for range 6 {
		bring(1)
	}
	wait.Wait()
	if made.Load() != 1 || full.Load() != 0 {
		t.Errorf("one task was made %d times, and was one too many %d times", made.Load(), full.Load())
	}
	for n := range byte(6) {
		bring(2 + n)
	}
	wait.Wait()
	if made.Load() != 3 || full.Load() != 4 {
		t.Errorf("%d tasks were made where 3 may be, and %d were too many", made.Load(), full.Load())
	}
	w.Audit()
}

// testQuotaOfTheStore: no more tasks are live than Most, whoever adds them and at however
// many handles at once, imported ones all or none; one that is there is not one too many, and
// those that are closed, or have ended, make place.
func testQuotaOfTheStore(t *testing.T, h Harness) {
	ctx := context.Background()
	w := NewWorld(t, h)
	task := func(n byte, now time.Time) store.Provision {
		p := Provision(Task(t, dap.TimeInterval, n))
		p.Most, p.Added, p.End = 3, now, now.Add(time.Hour).Round(time.Second)
		return p
	}
	full := func(err error, id dap.TaskID) {
		t.Helper()
		var e *store.FullError
		if !errors.As(err, &e) || e.Most != 3 || !e.Live || e.Task != id {
			t.Fatalf("%v, want that %v is one more than 3", err, id)
		}
	}
	live := func(now time.Time, want int) {
		t.Helper()
		if u, err := w.Store.Usage(ctx, now); err != nil || u.Tasks != want {
			t.Fatalf("%d tasks are live, want %d: %v", u.Tasks, want, err)
		}
	}
	var four []store.Provision
	for n := range byte(4) {
		four = append(four, task(n+1, Epoch))
	}
	_, err := w.Store.Register(ctx, four...)
	full(err, four[3].ID)
	live(Epoch, 0)
	var wait sync.WaitGroup
	var made, refused atomic.Int32
	for _, p := range four {
		wait.Go(func() {
			n, err := w.Store.Register(ctx, p)
			if made.Add(int32(n)); errors.As(err, new(*store.FullError)) {
				refused.Add(1)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if made.Load() != 3 || refused.Load() != 1 {
		t.Fatalf("%d of 4 tasks were made at once, and %d refused; 3 may be", made.Load(), refused.Load())
	}
	w.Reopen(t)
	live(Epoch, 3)
	var there []store.Provision
	for _, p := range four {
		if _, err := w.Store.Registration(ctx, p.ID); err == nil {
			there = append(there, p)
		}
	}
	again, err := w.Store.Register(ctx, there[0])
	if w.ok(err); again != 0 {
		t.Error("a task that is there is made again")
	}
	endless := task(10, Epoch)
	endless.End = time.Time{}
	_, err = w.Store.Register(ctx, endless)
	full(err, endless.ID)
	_, err = w.Store.CloseTask(ctx, there[0].ID, store.Closing{At: Epoch, By: "bob", Why: "over"})
	w.ok(err)
	live(Epoch, 2)
	_, err = w.Store.Register(ctx, endless)
	w.ok(err)
	live(Epoch, 3)
	later := Epoch.Add(2 * time.Hour) // but for the endless one all have ended
	live(later, 1)
	for n := range byte(2) {
		_, err = w.Store.Register(ctx, task(20+n, later))
		w.ok(err)
	}
	last := task(22, later)
	_, err = w.Store.Register(ctx, last)
	full(err, last.ID)
	last.Most = 0
	_, err = w.Store.Register(ctx, last)
	w.ok(err)
	w.Audit()
}

// testUsage: the bytes that a quota bounds are those of what waits, of the replay protection
// and of open shares, in this life and the next; they grow with what comes, and all but the
// replay protection goes.
func testUsage(t *testing.T, h Harness) {
	ctx := context.Background()
	w := NewWorld(t, h)
	task := Task(t, dap.TimeInterval, 1)
	w.ok(w.Store.PutTask(ctx, task))
	bytes := func() int64 {
		t.Helper()
		u, err := w.Store.Usage(ctx, Epoch)
		w.ok(err)
		return u.Bytes
	}
	if n := bytes(); n != 0 {
		t.Errorf("an empty store has %d bytes", n)
	}
	w.Upload(task, 7, 0, 39)
	w.Sort()
	waiting := bytes()
	w.Upload(task, 7, 40, 79)
	w.Sort()
	if twice := bytes(); waiting < 40*16 || twice < waiting*19/10 || twice > waiting*21/10 {
		t.Fatalf("40 reports have %d bytes, 80 have %d", waiting, twice)
	}
	w.Reopen(t)
	w.ok(w.Store.PutTask(ctx, task))
	if again := bytes(); again < waiting*19/10 || again > waiting*21/10 {
		t.Errorf("another life counts %d bytes, where 40 reports have %d", again, waiting)
	}
	w.Work(task)
	if c, err := w.Store.Counts(ctx, task.ID); err != nil || c.Aggregated != 80 {
		t.Fatalf("of 80 reports %+v: %v", c, err)
	}
	after := bytes()
	if after < 80*16 {
		t.Errorf("of 80 reports %d bytes are left, want their ids and a share at least", after)
	}
	w.Upload(task, 7, 0, 39) // once more, which leaves nothing
	w.Sort()
	if n := bytes(); n < after+waiting*9/10 {
		t.Errorf("%d bytes, with 40 reports more than in %d", n, after)
	}
	w.Work(task)
	if n := bytes(); n != after {
		t.Errorf("replays leave %d bytes, where there were %d", n, after)
	}
	w.Reopen(t)
	if n := bytes(); n != after {
		t.Errorf("another life counts %d bytes, and this one counted %d", n, after)
	}
	w.Audit()
}

// testClosedForGood: the first closing holds, whatever comes after it, and no add opens the
// task again.
func testClosedForGood(t *testing.T, h Harness) {
	ctx := context.Background()
	w := NewWorld(t, h)
	p := Provision(Task(t, dap.TimeInterval, 1))
	bare := Task(t, dap.TimeInterval, 2) // provisioned, and never registered
	w.ok(w.Store.PutTask(ctx, bare))
	_, err := w.Store.Register(ctx, p)
	w.ok(err)
	c := store.Closing{At: Epoch.Add(time.Minute), By: "bob", Why: "the study is over"}
	for _, id := range []dap.TaskID{bare.ID, {77}} {
		_, err = w.Store.CloseTask(ctx, id, c)
		w.is(err, store.ErrNotFound)
	}
	if _, err = w.Store.CloseTask(ctx, p.ID, store.Closing{At: Epoch, By: "bob"}); err == nil {
		t.Error("closed without a reason")
	}
	state, err := w.Store.TaskState(ctx, p.ID)
	if w.ok(err); !state.Closed.IsZero() {
		t.Fatalf("state is %+v before it was closed", state)
	}
	for n := range 4 {
		was, err := w.Store.CloseTask(ctx, p.ID, store.Closing{At: c.At.Add(time.Duration(n) * time.Hour), By: "bob" + "by"[:n%2], Why: c.Why})
		if w.ok(err); !was.At.Equal(c.At) || was.By != c.By || was.Why != c.Why {
			t.Fatalf("closed as %+v", was)
		}
		if state, err = w.Store.TaskState(ctx, p.ID); err != nil || !state.Closed.Equal(c.At) || state.Retired {
			t.Fatalf("state is %+v, %v", state, err)
		}
		r, err := w.Store.Registration(ctx, p.ID)
		if w.ok(err); r.Closed == nil || r.Closed.By != c.By || !r.Closed.At.Equal(c.At) {
			t.Fatalf("the row is %+v", r)
		}
		_, err = w.Store.Register(ctx, p)
		w.is(err, store.ErrEnded)
		w.Reopen(t)
	}
	w.Audit()
}

// testClosedTaskRetires: a task without an end is retired from its closing on, and no
// sooner; what it was made of goes with the rest, and the row stays.
func testClosedTaskRetires(t *testing.T, h Harness) {
	ctx := context.Background()
	w := NewWorld(t, h)
	task := Task(t, dap.TimeInterval, 1)
	p := Provision(task)
	p.End = time.Time{}
	_, err := w.Store.Register(ctx, p)
	w.ok(err)
	w.tasks = append(w.tasks, task) // the audit reads it as it is in use
	w.is(w.Store.Retire(ctx, task.ID, Epoch.Add(1000*time.Hour)), store.ErrBusy)
	c := store.Closing{At: Epoch.Add(time.Minute), By: "bob", Why: "over"}
	_, err = w.Store.CloseTask(ctx, task.ID, c)
	w.ok(err)
	w.is(w.Store.Retire(ctx, task.ID, c.At.Add(-1)), store.ErrBusy)
	w.Reopen(t)
	w.ok(w.Store.Retire(ctx, task.ID, c.At))
	more, err := w.Store.Sweep(ctx, task.ID, 100)
	if w.ok(err); more {
		t.Error("there is more to sweep")
	}
	r, err := w.Store.Registration(ctx, task.ID)
	if w.ok(err); r.Made != nil || r.Terms != nil || r.Sum != p.Sum || r.Closed == nil {
		t.Errorf("the row is %+v", r)
	}
	_, err = w.Store.Register(ctx, p)
	w.is(err, store.ErrEnded)
	w.Audit()
}

// testAmendedTask: other terms take the place of a live task's, over restarts, and a reader
// of the registry learns of it; nothing else of the row changes, and a closed one keeps its.
func testAmendedTask(t *testing.T, h Harness) {
	ctx := context.Background()
	w := NewWorld(t, h)
	p, other := Provision(Task(t, dap.TimeInterval, 1)), Provision(Task(t, dap.TimeInterval, 2))
	_, err := w.Store.Register(ctx, p, other)
	w.ok(err)
	next := []byte(`{"peer_token":"next.token"}`)
	w.is(w.Store.Amend(ctx, dap.TaskID{77}, next), store.ErrNotFound)
	if err := w.Store.Amend(ctx, p.ID, nil); err == nil {
		t.Error("a task without terms")
	}
	before, err := w.Store.Registration(ctx, p.ID)
	w.ok(err)
	for range 2 {
		w.ok(w.Store.Amend(ctx, p.ID, next))
		r, err := w.Store.Registration(ctx, p.ID)
		if w.ok(err); string(r.Terms) != string(next) || r.Change <= before.Change || r.Change > before.Change+2 || r.Sum != before.Sum || r.By != before.By {
			t.Fatalf("the row is %+v", r)
		}
		w.Reopen(t)
	}
	last, err := w.Store.Registrations(ctx, before.Change+1, 10)
	if w.ok(err); len(last) != 1 || last[0].ID != p.ID {
		t.Errorf("changes since are %+v", last)
	}
	_, err = w.Store.Register(ctx, p)
	w.is(err, store.ErrDifferent)
	_, err = w.Store.CloseTask(ctx, p.ID, store.Closing{At: w.Now, By: "bob", Why: "over"})
	w.ok(err)
	w.is(w.Store.Amend(ctx, p.ID, p.Terms), store.ErrEnded)
	w.Audit()
}

// testTotalsAreSums: the counts over all tasks are the sums of theirs, after each change.
func testTotalsAreSums(t *testing.T, h Harness) {
	ctx := context.Background()
	w := NewWorld(t, h)
	a, b := Task(t, dap.TimeInterval, 1), Task(t, dap.LeaderSelected, 2)
	for _, task := range []*store.Task{a, b} {
		w.ok(w.Store.PutTask(ctx, task))
	}
	for n := range 4 {
		want := store.Counts{Refused: map[dap.ReportError]uint64{}}
		for _, task := range []*store.Task{a, b} {
			c, err := w.Store.Counts(ctx, task.ID)
			w.ok(err)
			for code, k := range c.Refused {
				want.Refused[code] += k
			}
		}
		got, err := w.Store.Totals(ctx)
		if w.ok(err); fmt.Sprint(got.Refused) != fmt.Sprint(want.Refused) || got.Acknowledged+got.Waiting+got.Aggregated+got.Collected != 0 || len(got.Refused) != min(n, 2) {
			t.Fatalf("totals are %+v, want %+v", got, want)
		}
		w.ok(w.Store.AddRefused(ctx, []*store.Task{a, b}[n%2].ID, map[dap.ReportError]uint64{[]dap.ReportError{dap.ReportTooEarly, dap.ReportReplayed}[n%2]: uint64(n + 1)}))
		if n == 2 {
			w.Reopen(t)
		}
	}
}
