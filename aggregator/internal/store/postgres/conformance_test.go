//go:build postgres

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/pgdb/pgtest"
)

// replica is a handle as the suite has it, whose uploads come through logs.
type replica struct {
	*postgres.Store
	*logs
	all *[]*postgres.Store
}

// PutTask provisions a task at all handles, as each replica does for itself.
func (p replica) PutTask(ctx context.Context, t *store.Task) error {
	for _, e := range *p.all {
		if e != p.Store {
			if err := e.PutTask(ctx, t); err != nil {
				return err
			}
		}
	}
	return p.Store.PutTask(ctx, t)
}

func (p replica) Close() error {
	*p.all = slices.DeleteFunc(*p.all, func(e *postgres.Store) bool { return e == p.Store })
	return p.Store.Close()
}

// logs has the logs of the suite, each of which is an object here: what it has of a batch
// bucket that takes nothing more was acknowledged before, and counts as rejected.
type logs struct {
	mu    sync.Mutex
	begun map[disk.LogID]segment.Begun
	fates map[disk.LogID]segment.Fate
	named map[string]bool // objects
}

func (l *logs) LogFate(_ context.Context, log segment.Begun) (segment.Fate, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fates[log.ID], nil
}

func (l *logs) BeginLogs(_ context.Context, list []segment.Begun) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range list {
		if l.fates[b.ID] == segment.Unsorted {
			l.begun[b.ID] = b
		}
	}
	return nil
}

func (l *logs) BegunLogs(context.Context) ([]segment.Begun, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Values(l.begun), func(a, b segment.Begun) int { return strings.Compare(a.File, b.File) }), nil
}

func (p replica) ForgetLog(ctx context.Context, _ disk.LogID) error { return p.Pass(ctx, "forget-log") }

// CommitLog names the slices of a log once.
func (p replica) CommitLog(ctx context.Context, log segment.Begun, list []segment.Slice, lost *segment.LogDamage, others []segment.Begun) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fates[log.ID] != segment.Unsorted {
		return nil
	}
	if lost != nil && len(lost.Reports) > 0 {
		return fmt.Errorf("a log that lost reports: %+v", *lost)
	}
	fate := segment.Named
	for len(list) > 0 { // in the log, or in objects that it was copied to
		object := list[0].Object
		if object != log.File {
			fate = segment.Replaced
		}
		n := slices.IndexFunc(list, func(s segment.Slice) bool { return s.Object != object })
		if n < 0 {
			n = len(list)
		}
		if err := p.name(ctx, object, list[:n]); err != nil {
			return err
		}
		list = list[n:]
	}
	delete(p.begun, log.ID)
	p.fates[log.ID] = fate
	if err := p.Pass(ctx, "commit-log"); err != nil {
		return err
	}
	for _, b := range others {
		p.begun[b.ID] = b
	}
	return nil
}

// name names the slices of an object once.
func (p replica) name(ctx context.Context, object string, list []segment.Slice) error {
	if p.named[object] {
		return nil
	}
	refused, err := p.Acknowledge(ctx, "", object, nil, list)
	if err != nil {
		return err
	}
	p.named[object] = true
	for i, why := range refused {
		if why == 0 {
			continue
		}
		err := p.CountLate(ctx, dap.TaskID(list[i].TaskID), why, list[i].Count+list[i].Duplicates)
		if err != nil {
			return err
		}
	}
	return nil
}

// harness is a schema whose replicas are the handles.
type harness struct {
	*pgtest.Schema
	fs   disk.FS
	fail *disk.Failpoints
	all  []*postgres.Store // that are open
	logs *logs

	attempts int // at a transaction; zero is the default
}

func (h *harness) FS() disk.FS                  { return h.fs }
func (h *harness) Failpoints() *disk.Failpoints { return h.fail }

func (h *harness) Open(t *testing.T) store.Engine {
	t.Helper()
	if h.logs == nil {
		h.logs = &logs{begun: make(map[disk.LogID]segment.Begun), fates: make(map[disk.LogID]segment.Fate), named: make(map[string]bool)}
	}
	e := openWith(t, h.Schema, func(o *postgres.Options) {
		o.Objects, o.Grave = payload.OpenFiles(h.fs), time.Nanosecond
		o.Database.Failpoints, o.Database.Prefix, o.Database.Attempts = h.fail, "store", h.attempts
	})
	h.all = append(h.all, e)
	return replica{Store: e, logs: h.logs, all: &h.all}
}

func (h *harness) Beside(t *testing.T) store.Engine { return h.Open(t) }

func (h *harness) Tamper(t *testing.T, statement string) {
	t.Helper()
	connect(t, h.Schema, h.Owner).ok(statement)
}

func (h *harness) MarkDamage() []string {
	const one = "WHERE id = (SELECT min(id) FROM spent_run WHERE round = %d)"
	return []string{
		"DELETE FROM spent_run " + one,
		"DELETE FROM spent_run WHERE round = %d",
		"UPDATE spent_run SET entries = set_byte(entries, 3, get_byte(entries, 3) # 1) " + one,   // a mark
		"UPDATE spent_run SET entries = set_byte(entries, 19, get_byte(entries, 19) # 1) " + one, // its report
		"UPDATE spent_run SET pages = set_byte(pages, 20, get_byte(pages, 20) # 1) " + one,
		"UPDATE spent_run SET filter = decode(repeat('00', length(filter)), 'hex') " + one,
		"UPDATE spent_run SET digest = set_byte(digest, 0, get_byte(digest, 0) # 1) " + one,
		"UPDATE spent_run SET veil = set_byte(veil, 0, get_byte(veil, 0) # 1) " + one,
		"UPDATE spent_run SET round = round - 1 " + one,
		"DELETE FROM spent_round WHERE round = %d",
		"UPDATE spent_round SET marks = marks + 1 WHERE round = %d",
		"UPDATE spent_round SET sum = set_byte(sum, 31, get_byte(sum, 31) # 1) WHERE round = %d",
	}
}

// Noise counts the releases whose noise has rows.
func (h *harness) Noise(t *testing.T) (n int) {
	t.Helper()
	c := connect(t, h.Schema, h.Owner)
	if err := c.QueryRow(t.Context(), "SELECT count(DISTINCT noise) FROM noise_part").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Sums counts the closed batches that have parts.
func (h *harness) Sums(t *testing.T) (n int) {
	t.Helper()
	c := connect(t, h.Schema, h.Owner)
	if err := c.QueryRow(t.Context(), "SELECT count(*) FROM batch WHERE closed AND EXISTS (SELECT 1 FROM part WHERE part.batch = batch.id)").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// open migrates as the owner and opens a handle of the replicas' role.
func open(t testing.TB, s *pgtest.Schema) *postgres.Store {
	t.Helper()
	return openWith(t, s, func(*postgres.Options) {})
}

func openWith(t testing.TB, s *pgtest.Schema, change func(o *postgres.Options)) *postgres.Store {
	t.Helper()
	opt := options(s)
	if _, err := postgres.Migrate(t.Context(), opt.Database, false); err != nil {
		t.Fatal(err)
	}
	opt.Database.Connection, opt.Database.Connections = s.Service, 4
	change(&opt)
	e, err := postgres.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// transactions are those that write.
var transactions = []string{
	"take-off", "commit-job", "advance-job", "create-resource", "delete-resource", "fail-resource", "release", "put-task", "retire-task",
	"sweep-task", "merge-runs", "merge-parts", "sum-tallies", "give-up",
	"acknowledge", "claim-jobs", "save-sent", "renew-job", "retry-job", "quarantine-job", "park-job", "finish-job", "set-aside", "resume", "give-up-task", "hold-task",
	"spend", "forget-round", "drain", "freeze", "bury-rows", "drop-tombstones", "move-slices",
}

// storm has the answer to each transaction's commit lost now and then. Where the server is
// to be killed, it is after the commit, and before others.
func (h *harness) storm(seed uint64, odds int, kill func()) {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 3))
	struck := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(odds) == 0
	}
	for _, name := range transactions {
		h.fail.Arm("store."+name+".after-commit", 0, func() error {
			if !struck() {
				return nil
			}
			if kill != nil {
				kill()
			}
			return storetest.ErrFault
		})
		if kill != nil {
			h.fail.Arm("store."+name+".before-commit", 0, func() error {
				if struck() {
					kill()
				}
				return nil
			})
		}
	}
}

// TestInterleaved: two replicas of a leader and of a helper, through faults between them and
// the store, and answers to commits that are lost in the store itself.
func TestInterleaved(t *testing.T) {
	seed := uint64(0)
	storetest.Interleave(t, 4, func(t *testing.T) storetest.Harness {
		h := &harness{Schema: pgtest.New(t), fs: disktest.NewMem(1), fail: new(disk.Failpoints)}
		h.storm(atomic.AddUint64(&seed, 1), 12, nil)
		return h
	})
}

// TestInterleavedCrashes: and a server that is killed, before commits and after them.
func TestInterleavedCrashes(t *testing.T) {
	storetest.Interleave(t, 1, func(t *testing.T) storetest.Harness {
		server := pgtest.NewServer(t)
		h := &harness{Schema: server.Schema(t), fs: disktest.NewMem(1), fail: new(disk.Failpoints), attempts: 200}
		var mu sync.Mutex
		crashes := 0
		h.storm(1, 30, func() {
			mu.Lock()
			defer mu.Unlock()
			if crashes++; crashes <= 8 {
				server.Crash(t, func() {})
			}
		})
		t.Cleanup(func() {
			if crashes < 8 {
				t.Errorf("the server was killed %d times, want 8", crashes)
			}
		})
		return h
	})
}

func TestConformance(t *testing.T) {
	storetest.RunOnly(t, func(t *testing.T) storetest.Harness {
		return &harness{Schema: pgtest.New(t), fs: disktest.NewMem(1), fail: new(disk.Failpoints)}
	}, "CallbacksMayRead", "CommitsOfOneBatch", "CommitsRaceWithRelease", "CreateRaces", "DataKeys", "HasJob", "JobAgainstClosedBatch",
		"JobFailures", "JobOnce", "JobRaces", "JobSteps", "JobsMixBuckets", "LeaderSelectedShare", "LetGo", "OneIDAtTwoTimes",
		"OneReportInTwoJobsAtOnce", "PendingInOrder", "PendingIsFair", "QuotaAtOnce", "QuotaOfAPeer", "QuotaOfTheStore", "RegisteredAllOrNone", "RegisteredOnce", "RegistryIsReadOn", "ReleaseWaitsForCommits", "RoundForgotten", "SameJobAtOnce",
		"MarksDamaged", "ShareReleases", "SpendAtOnce", "SpendOnce", "SpendOrNot", "SpentOfRetired", "UnfinishedJobs")
}

// TestForeignStore: a schema is that of one aggregator.
func TestForeignStore(t *testing.T) {
	s := pgtest.New(t)
	open(t, s)
	for _, change := range []func(o *postgres.Options){
		func(o *postgres.Options) { o.Role = dap.RoleLeader },
		func(o *postgres.Options) { o.Party = "https://other.example/" },
	} {
		opt := options(s)
		opt.Database.Connection = s.Service
		change(&opt)
		_, err := postgres.Open(t.Context(), opt)
		var unfit *aggregator.StoreError
		if !errors.As(err, &unfit) || unfit.Fault != aggregator.ForeignSchema {
			t.Errorf("the schema of another: %v", err)
		}
	}
}

func is(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

// TestTasks: a task is provisioned once, at whatever handle, and a retired one has no
// resources.
func TestTasks(t *testing.T) {
	ctx := t.Context()
	s := pgtest.New(t)
	a, b := open(t, s), open(t, s)
	task := storetest.Task(t, dap.TimeInterval, 1)
	is(t, a.PutTask(ctx, task), nil)
	is(t, b.PutTask(ctx, task), nil)
	other := *task
	other.MinBatch++
	is(t, b.PutTask(ctx, &other), store.ErrDifferent)
	ids, err := b.Tasks(ctx)
	if is(t, err, nil); len(ids) != 1 || ids[0] != task.ID {
		t.Fatalf("tasks are %v", ids)
	}
	_, err = a.TaskState(ctx, dap.TaskID{9})
	is(t, err, store.ErrNotFound)
	r, _, err := a.Create(ctx, store.KindAggregation, task.ID, "", []byte("body"), true, nil, storetest.Epoch)
	is(t, err, nil)
	connect(t, s, s.Service).ok("UPDATE task SET retired = 1, closed_in = 7")
	if state, err := b.TaskState(ctx, task.ID); err != nil || !state.Retired || state.ClosedIn != 7 {
		t.Fatalf("%+v, %v", state, err)
	}
	_, _, err = b.Create(ctx, store.KindAggregation, task.ID, "", []byte("other"), true, nil, storetest.Epoch)
	is(t, err, store.ErrNotFound)
	_, err = b.Resource(ctx, store.KindAggregation, task.ID, r.ID)
	is(t, err, store.ErrNotFound)
	is(t, b.Delete(ctx, store.KindAggregation, task.ID, r.ID), store.ErrNotFound)
	is(t, b.Fail(ctx, r, new(dap.Problem)), store.ErrNotFound)
	if all, err := b.PendingResources(ctx, store.KindAggregation, 9); err != nil || len(all) != 0 {
		t.Fatalf("%d of a retired task wait, %v", len(all), err)
	}
}

// TestResources: what one handle makes, fails or deletes the other one finds so, and no id
// comes back.
func TestResources(t *testing.T) {
	ctx := t.Context()
	s := pgtest.New(t)
	a, b := open(t, s), open(t, s)
	task := storetest.Task(t, dap.TimeInterval, 1)
	is(t, a.PutTask(ctx, task), nil)
	create := func(e *postgres.Store, kind store.Kind, id, body string) *store.Resource {
		t.Helper()
		r, _, err := e.Create(ctx, kind, task.ID, id, []byte(body), true, storetest.Interval(10, 1), storetest.Epoch)
		is(t, err, nil)
		return r
	}
	names := make(map[string]bool)
	for range 3 {
		r := create(a, store.KindAggregation, "", "body")
		if same := create(b, store.KindAggregation, "", "body"); same.ID != r.ID || same.Again || string(same.Body) != "body" {
			t.Fatalf("the same body: %+v", same)
		}
		if names[r.ID] {
			t.Fatal("an id came back")
		}
		names[r.ID] = true
		is(t, b.Delete(ctx, store.KindAggregation, task.ID, r.ID), nil)
		is(t, a.Delete(ctx, store.KindAggregation, task.ID, r.ID), store.ErrNotFound)
	}
	create(a, store.KindShare, "chosen", "one")
	if same := create(b, store.KindShare, "chosen", "one"); same.ID != "chosen" {
		t.Fatalf("%+v", same)
	}
	_, _, err := b.Create(ctx, store.KindShare, task.ID, "chosen", []byte("two"), true, nil, storetest.Epoch)
	is(t, err, store.ErrTaken)
	create(a, store.KindCollection, "chosen", "one")
	is(t, b.Delete(ctx, store.KindCollection, task.ID, "chosen"), nil)
	_, _, err = a.Create(ctx, store.KindCollection, task.ID, "chosen", []byte("one"), true, nil, storetest.Epoch)
	is(t, err, store.ErrDeleted)
	r := create(a, store.KindCollection, "", "fails")
	is(t, b.Fail(ctx, r, &dap.Problem{Status: 400, Type: dap.ProblemInvalidMessage}), nil)
	is(t, a.Fail(ctx, r, new(dap.Problem)), nil)
	if r = create(a, store.KindCollection, "", "fails"); r.State != store.Failed || r.Problem.Status != 400 || r.Body != nil {
		t.Fatalf("failed: %+v", r)
	}
	x := connect(t, s, s.Service)
	x.ok(release(1, 1, 0, 20, 29, 5, 5, 1))
	for _, sel := range []*store.Selection{storetest.Interval(20, 1), storetest.Interval(29, 1), storetest.Interval(0, 21), storetest.Interval(0, 1<<64-1)} {
		_, _, err := b.Create(ctx, store.KindShare, task.ID, "", []byte("late"), true, sel, storetest.Epoch)
		is(t, err, store.ErrOverlap)
	}
	create(b, store.KindShare, "", "beside")
	x.ok("INSERT INTO resource (task, kind, resource_id, digest, created) SELECT 1, 2, n::text, sha256(n::text::bytea), 0 FROM generate_series(1, 1024) AS n")
	_, _, err = b.Create(ctx, store.KindCollection, task.ID, "", []byte("one more"), true, nil, storetest.Epoch)
	is(t, err, store.ErrFull)
}
