//go:build postgres

package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/payload/payloadtest"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb/pgtest"
)

// marked is a helper with marks in a place of its own.
func marked(t *testing.T, objects payload.Store) (*helper, *pgtest.Schema, func(o *postgres.Options)) {
	t.Helper()
	s := pgtest.New(t)
	with := func(o *postgres.Options) { o.Marks = objects }
	h := &helper{t: t, a: openWith(t, s, with), b: openWith(t, s, with), task: storetest.Task(t, dap.TimeInterval, 1)}
	is(t, h.a.PutTask(t.Context(), h.task), nil)
	is(t, h.b.PutTask(t.Context(), h.task), nil)
	return h, s, with
}

// released commits the fewest reports in a bucket of their own, and has them released at a
// replica.
func (h *helper) released(e *postgres.Store, n int) (*store.Resource, error) {
	h.t.Helper()
	numbers := []int{5 * n, 5*n + 1, 5*n + 2, 5*n + 3, 5*n + 4}
	c := storetest.Commit(h.t, h.task, []store.Batch{{Start: dap.Time(n)}}, []dap.Time{dap.Time(n)}, [][]int{numbers})
	if _, err := h.answer(e, fmt.Sprint("job ", n), c); err != nil {
		return nil, err
	}
	return h.release(e, storetest.Interval(dap.Time(n), 1), 5, checksum(numbers...), nil)
}

// refused demands an error that ends the process, of that fault.
func refused(t *testing.T, err error, want aggregator.StoreFault) {
	t.Helper()
	var fault *aggregator.StoreError
	if !errors.As(err, &fault) || fault.Fault != want {
		t.Fatalf("got %v, want %v", err, want)
	}
}

// reopen opens a schema, and says how that fails.
func reopen(t *testing.T, s *pgtest.Schema, with func(o *postgres.Options)) error {
	t.Helper()
	opt := options(s)
	opt.Database.Connection = s.Service
	with(&opt)
	e, err := postgres.Open(t.Context(), opt)
	if err == nil {
		_ = e.Close()
	}
	return err
}

// TestPutBack: a database that is put back to before a release is found out by a replica
// that runs, before it tells a release, and by each that is opened; so is one that was in
// use since, without a release. One that was only stopped is not.
func TestPutBack(t *testing.T) {
	h, s, with := marked(t, payloadtest.NewMem())
	one, err := h.released(h.a, 1)
	is(t, err, nil)
	is(t, h.a.SaveTime(t.Context(), storetest.Epoch), nil)
	is(t, reopen(t, s, with), nil)
	backup := s.Backup(t)
	s.PutBack(t, backup)
	is(t, reopen(t, s, with), nil) // nothing happened since

	_, err = h.released(h.b, 2)
	is(t, err, nil)
	s.PutBack(t, backup)
	refused(t, reopen(t, s, with), aggregator.OlderDatabase)
	is(t, reopen(t, s, func(*postgres.Options) {}), nil) // by its marks alone

	// Another release would have the number of the one that is forgotten.
	_, err = h.released(h.a, 3)
	refused(t, err, aggregator.OlderDatabase)
	is(t, err, store.ErrUnknown)
	_, err = h.a.Resource(t.Context(), store.KindShare, h.task.ID, one.ID)
	refused(t, err, aggregator.OlderDatabase) // nothing is told any more
	refused(t, h.a.SaveTime(t.Context(), storetest.Epoch), aggregator.OlderDatabase)
	refused(t, reopen(t, s, with), aggregator.OlderDatabase)

	// What is released again, of the same reports, is another release too: noise was drawn anew.
	s.PutBack(t, backup)
	_, err = h.releasedAs(h.b, 2, "another share")
	refused(t, err, aggregator.OlderDatabase)
}

// TestPutBackBetweenBeats: a process that runs, which neither released nor was seen between
// a backup and its being put back, finds out by the mark of what another released, as soon as
// it says that it lives.
func TestPutBackBetweenBeats(t *testing.T) {
	h, s, _ := marked(t, payloadtest.NewMem())
	m := h.a.Member()
	is(t, m.Beat(t.Context(), "", []byte("x"), false), nil)
	backup := s.Backup(t)
	s.PutBack(t, backup)
	is(t, m.Beat(t.Context(), "", []byte("x"), false), nil) // nothing happened since

	backup = s.Backup(t)
	_, err := h.released(h.b, 1)
	is(t, err, nil)
	s.PutBack(t, backup)
	refused(t, m.Beat(t.Context(), "", []byte("x"), false), aggregator.OlderDatabase)
	refused(t, h.a.SaveTime(t.Context(), storetest.Epoch), aggregator.OlderDatabase)
}

// releasedAs is released, with that answer.
func (h *helper) releasedAs(e *postgres.Store, n int, answer string) (r *store.Resource, err error) {
	h.t.Helper()
	h.answerAs = answer
	defer func() { h.answerAs = "" }()
	return h.released(e, n)
}

// TestPutBackInUse: the time is saved now and then, which a database that is put back has
// forgotten.
func TestPutBackInUse(t *testing.T) {
	h, s, with := marked(t, payloadtest.NewMem())
	is(t, h.a.SaveTime(t.Context(), storetest.Epoch), nil)
	backup := s.Backup(t)
	for range 3 {
		is(t, h.b.SaveTime(t.Context(), storetest.Epoch), nil)
	}
	s.PutBack(t, backup)
	refused(t, reopen(t, s, with), aggregator.OlderDatabase)
	refused(t, h.a.SaveTime(t.Context(), storetest.Epoch), aggregator.OlderDatabase)
	_, err := h.a.Counts(t.Context(), h.task.ID)
	refused(t, err, aggregator.OlderDatabase)
	// The other one finds out by itself.
	_, err = h.b.Counts(t.Context(), h.task.ID)
	is(t, err, nil)
	refused(t, h.b.SaveTime(t.Context(), storetest.Epoch), aggregator.OlderDatabase)
}

// TestUnmarked: a release whose mark cannot be put is told to nobody until it can, by
// whatever replica, and a crash in between changes nothing.
func TestUnmarked(t *testing.T) {
	objects := payloadtest.NewMem()
	faults := payloadtest.NewFaults(1)
	h, s, with := marked(t, faults.Wrap(objects))
	faults.Next(payloadtest.Refused, payloadtest.Refused)
	r, err := h.released(h.a, 1)
	is(t, err, payload.ErrUnavailable)
	if _, err := h.b.Resource(t.Context(), store.KindShare, h.task.ID, r.ID); !errors.Is(err, payload.ErrUnavailable) {
		t.Fatalf("a release without a mark was told: %v", err)
	}
	if has(t, objects, "releases/") != 0 {
		t.Fatal("a mark is there")
	}
	is(t, reopen(t, s, with), nil) // which puts it
	if has(t, objects, "releases/") != 1 {
		t.Fatal("no mark is there")
	}
	r, err = h.b.Resource(t.Context(), store.KindShare, h.task.ID, r.ID)
	if is(t, err, nil); string(r.Response) != "share" {
		t.Fatalf("%+v", r)
	}
	l, err := h.a.Ledger(t.Context(), h.task.ID)
	if is(t, err, nil); l.Length != 1 {
		t.Fatalf("%+v", l)
	}
}

// has counts marks of a kind.
func has(t *testing.T, objects payload.Store, kind string) (n int) {
	t.Helper()
	list, err := objects.List(t.Context(), "", "", payload.MaxPage)
	is(t, err, nil)
	for _, o := range list {
		if strings.Contains(o.Name, kind) {
			n++
		}
	}
	return n
}

// TestMarksAtOnce: replicas that release at one time leave marks without a gap, and find no
// fault with one another; ages that are needless go.
func TestMarksAtOnce(t *testing.T) {
	objects := payloadtest.NewMem()
	h, s, with := marked(t, objects)
	var work sync.WaitGroup
	for i, e := range []*postgres.Store{h.a, h.b} {
		for k := range 2 {
			work.Go(func() {
				for n := range 8 {
					if _, err := h.released(e, 1+n+8*(2*i+k)); err != nil {
						t.Error(err)
					}
					for range 4 {
						if err := e.SaveTime(t.Context(), storetest.Epoch); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		work.Go(func() {
			for range 5 {
				if err := reopen(t, s, with); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	if n := has(t, objects, "releases/"); n != 32 {
		t.Errorf("%d marks of 32 releases", n)
	}
	if n := has(t, objects, "ages/"); n != 100 {
		t.Errorf("%d marks of 128 ages, want the last 100", n)
	}
}

// TestMarksElsewhere: marks that are gone, another aggregator's, or of another database of
// this one are refused.
func TestMarksElsewhere(t *testing.T) {
	objects := payloadtest.NewMem()
	_, s, with := marked(t, objects)
	is(t, reopen(t, s, with), nil)
	refused(t, reopen(t, s, func(o *postgres.Options) { o.Marks = payloadtest.NewMem() }), aggregator.MarksLost)

	other := pgtest.New(t)
	open(t, other) // the database was lost, and made anew
	refused(t, reopen(t, other, with), aggregator.OlderDatabase)

	const party = "https://elsewhere.example/"
	stranger := pgtest.New(t)
	openWith(t, stranger, func(o *postgres.Options) { o.Party = party })
	refused(t, reopen(t, stranger, func(o *postgres.Options) { o.Marks, o.Party = objects, party }), aggregator.MarksLost)
	is(t, reopen(t, s, with), nil)
}

// TestRestore: a database that was put back is taken again once that is said. Its tasks are
// closed and its ledger and answers stay; a task that released after the backup and is not
// in it never comes again, however often older backups are put back; new tasks go on.
func TestRestore(t *testing.T) {
	objects := payloadtest.NewMem()
	h, s, with := marked(t, objects)
	ctx := t.Context()
	one, err := h.released(h.a, 1)
	is(t, err, nil)
	backup := s.Backup(t)
	_, err = h.released(h.b, 2)
	is(t, err, nil)
	later := &helper{t: t, a: h.a, b: h.b, task: storetest.Task(t, dap.TimeInterval, 2)}
	is(t, later.a.PutTask(ctx, later.task), nil)
	_, err = later.released(h.a, 3)
	is(t, err, nil)
	is(t, h.a.SaveTime(ctx, storetest.Epoch), nil)

	restore := func() (postgres.Restored, error) {
		opt := options(s)
		opt.Database.Connection = s.Service
		with(&opt)
		return postgres.Restore(ctx, opt)
	}
	for epoch := uint64(1); epoch <= 2; epoch++ {
		s.PutBack(t, backup)
		refused(t, reopen(t, s, with), aggregator.OlderDatabase)
		done, err := restore()
		is(t, err, nil)
		want := postgres.Restored{Epoch: epoch, Tasks: 1, Forgotten: int(epoch)} // and the fresh one of the epoch before
		if done != want {
			t.Fatalf("restored %+v, want %+v", done, want)
		}
		is(t, reopen(t, s, with), nil)
		e := openWith(t, s, with)
		state, err := e.TaskState(ctx, h.task.ID)
		if is(t, err, nil); uint64(state.ClosedIn) != epoch {
			t.Fatalf("the task is %+v", state)
		}
		is(t, e.PutTask(ctx, h.task), nil)
		is(t, e.PutTask(ctx, later.task), store.ErrEnded)
		r, err := e.Resource(ctx, store.KindShare, h.task.ID, one.ID)
		if is(t, err, nil); string(r.Response) != "share" {
			t.Fatalf("%+v", r)
		}
		l, err := e.Ledger(ctx, h.task.ID)
		if is(t, err, nil); l.Length != 1 {
			t.Fatalf("the ledger is %+v", l)
		}
		problems, err := e.Audit(ctx)
		if is(t, err, nil); len(problems) > 0 {
			t.Fatal(problems)
		}
		fresh := &helper{t: t, a: e, b: e, task: storetest.Task(t, dap.TimeInterval, 2+byte(epoch))}
		is(t, e.PutTask(ctx, fresh.task), nil)
		_, err = fresh.released(e, 4)
		is(t, err, nil)
		is(t, e.SaveTime(ctx, storetest.Epoch), nil)
		is(t, reopen(t, s, with), nil)
		// A process of the epoch before does nothing more that anybody learns of.
		_, err = h.a.Resource(ctx, store.KindShare, h.task.ID, one.ID)
		refused(t, err, aggregator.OlderDatabase)
	}
}

// TestRestoreTwice: a database that was restored, of which nothing was lost, is another one
// than its backup of before; HPKE keys, which the backup may have and which were destroyed
// since, are gone from it.
func TestRestoreTwice(t *testing.T) {
	h, s, with := marked(t, payloadtest.NewMem())
	_, err := h.released(h.a, 1)
	is(t, err, nil)
	owner := connect(t, s, s.Owner)
	owner.ok("INSERT INTO secret (purpose, name, wrapping, box, made) VALUES (1, 'one', 'key', 'box', 0), (2, 'two', 'key', 'box', 0)")
	backup := s.Backup(t)
	opt := options(s)
	opt.Database.Connection = s.Service
	with(&opt)
	if done, err := postgres.Restore(t.Context(), opt); err != nil || done.Forgotten != 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	is(t, reopen(t, s, with), nil)
	var left string
	if err := owner.QueryRow(t.Context(), "SELECT string_agg(name, ' ') FROM secret WHERE purpose < 4").Scan(&left); err != nil || left != "two" {
		t.Errorf("secrets %q, %v", left, err)
	}
	s.PutBack(t, backup)
	refused(t, reopen(t, s, with), aggregator.OlderDatabase)
}
