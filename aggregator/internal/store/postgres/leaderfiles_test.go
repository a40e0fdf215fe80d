//go:build postgres

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/payload/payloadtest"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/pgdb/pgtest"
	"github.com/starling-agg/starling/vdaf"
)

// TestGrave: an object goes when its tombstone is old enough, and not before; whichever of
// its slices ends last, and whoever buries meanwhile.
func TestGrave(t *testing.T) {
	ctx := t.Context()
	task, other := storetest.Task(t, dap.TimeInterval, 1), storetest.Task(t, dap.TimeInterval, 2)
	l := newLeader(t, task, other)
	l.open(0, time.Hour)
	l.open(1, time.Hour)
	if _, err := l.intakes[0].Put(ctx, append(entries(task, 10, 0, 2, 1000), entries(other, 10, 0, 2, 1000)...)); err != nil {
		t.Fatal(err)
	}
	l.upload(task, 11, 3, 3)
	jobs := l.claim(9)
	if len(jobs) != 3 || jobs[0].Slices[0].Object != jobs[1].Slices[0].Object {
		t.Fatalf("claimed %+v", jobs)
	}
	// The first one's slice ends, and the second one's, whose commit has not ended when
	// whoever buries finds the first one's.
	c := l.commitOf(jobs[1])
	fold := c.Fold
	c.Fold = func(v []dap.ReportError) ([]*vdaf.AggShare, error) {
		l.finish(jobs[0])
		is(t, l.all[0].Bury(context.WithoutCancel(ctx)), nil)
		return fold(v)
	}
	is(t, l.all[1].FinishJob(ctx, jobs[1], c), nil)
	l.left(1, 1) // the row of the other object, and the object under its tombstone
	if _, err := l.all[0].Payload().Size(ctx, jobs[0].Slices[0].Object); err != nil {
		t.Fatal(err)
	}
	l.owner.ok("UPDATE tombstone SET since = since - interval '2 hours'")
	l.left(1, 0)
	l.finish(jobs[2])
	l.left(0, 0)
	l.audit("")
}

// TestMoveSlices: what is left of an object is moved to another one, with jobs that have it
// going on, and what ended meanwhile is left out.
func TestMoveSlices(t *testing.T) {
	ctx := t.Context()
	task, other := storetest.Task(t, dap.TimeInterval, 1), storetest.Task(t, dap.TimeInterval, 2)
	l := newLeader(t, task, other)
	if _, err := l.intakes[0].Put(ctx, append(entries(task, 10, 0, 2, 1000), append(entries(task, 11, 3, 4, 1000), entries(other, 10, 0, 2, 1000)...)...)); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	if list, err := l.next().Leftover(ctx, later); len(list) != 0 || err != nil {
		t.Fatalf("left are %+v, %v", list, err)
	}
	l.finish(l.one())
	j := l.one()
	list, err := l.next().Leftover(ctx, later)
	if is(t, err, nil); len(list) != 1 || list[0].TaskID != segment.TaskID(other.ID) {
		t.Fatalf("left are %+v, want what is of no leased job", list)
	}
	is(t, l.next().SaveSent(ctx, j, &store.Sent{Accepted: []byte{3}}, l.now), nil)
	is(t, l.next().RetryJob(ctx, j, l.now, "later"), nil)
	if list, err = l.next().Leftover(ctx, later); err != nil || len(list) != 2 {
		t.Fatalf("left are %+v, %v", list, err)
	}
	if before, err := l.next().Leftover(ctx, storetest.Epoch); len(before) != 0 || err != nil {
		t.Fatalf("left before are %+v, %v", before, err)
	}
	move := func(name string) (places []store.Place) {
		t.Helper()
		moved, err := segment.MoveSlices(ctx, l.all[0].Payload(), l.all[0].Payload(), name, list)
		is(t, err, nil)
		for i := range list {
			places = append(places, store.Place{From: list[i], To: moved[i]})
		}
		return places
	}
	places := move("slices/moved.obj")
	wrong := slices.Clone(places)
	wrong[0].To.Sum[0] ^= 1
	if err := l.next().Move(ctx, wrong); err == nil {
		t.Fatal("moved to what it is not")
	}
	j = l.one() // whose worker reads where its slice is
	is(t, l.next().Move(ctx, places), nil)
	is(t, l.next().Move(ctx, places), nil)
	l.left(2, 2)
	list = j.Slices
	places = move("slices/again.obj")
	is(t, l.next().Move(ctx, places), nil) // not while it is leased
	l.left(2, 2)
	if again := l.numbers(j); !slices.Equal(again, []int{3, 4}) {
		t.Fatalf("the job has %v", again)
	}
	l.finish(j)
	l.left(1, 1)
	rest, next, err := l.next().Slices(ctx, 0, 9)
	if is(t, err, nil); len(rest) != 1 || rest[0].Object != "slices/moved.obj" || next == 0 {
		t.Fatalf("slices are %+v", rest)
	}
	if more, _, err := l.next().Slices(ctx, next, 9); len(more) != 0 || err != nil {
		t.Fatalf("after it are %+v, %v", more, err)
	}
	l.work()
	is(t, l.objects.Put(ctx, "slices/late.obj", []byte("x")), nil)
	places[0].To.Object = "slices/late.obj" // all of it has ended
	is(t, l.next().Move(ctx, places), nil)
	l.left(0, 0)
	l.counts(task, store.Counts{Acknowledged: 5, Aggregated: 5})
	l.audit("")
}

// TestMoveToRow: what is left of an object is moved to a row, which goes with the last of it.
func TestMoveToRow(t *testing.T) {
	ctx := t.Context()
	task, other := storetest.Task(t, dap.TimeInterval, 1), storetest.Task(t, dap.TimeInterval, 2)
	l := newLeader(t, task, other)
	if _, err := l.intakes[0].Put(ctx, append(entries(task, 10, 0, 2, 1000), entries(other, 10, 0, 2, 1000)...)); err != nil {
		t.Fatal(err)
	}
	l.finish(l.one())
	list, err := l.next().Leftover(ctx, time.Now().Add(time.Hour))
	if is(t, err, nil); len(list) != 1 {
		t.Fatalf("left are %+v", list)
	}
	const name = segment.RowFolder + "moved.obj"
	moved, err := segment.MoveSlices(ctx, l.all[0].Payload(), l.all[1].Payload(), name, list)
	is(t, err, nil)
	places := []store.Place{{From: list[0], To: moved[0]}}
	is(t, l.next().Move(ctx, places), nil)
	is(t, l.next().Move(ctx, places), nil) // whose first answer was lost
	l.audit("")
	if j := l.claim(1); len(j) != 1 || j[0].Slices[0].Object != name {
		t.Fatalf("claimed %+v", j)
	} else {
		l.finish(j[0])
	}
	l.left(0, 0)
	if _, err := l.all[0].Payload().Size(ctx, name); !errors.Is(err, payload.ErrNotFound) {
		t.Errorf("the row: %v", err)
	}
}

// bring moves what is left of objects until nothing is, as leaders do.
func (l *leader) bring() {
	l.t.Helper()
	ctx := l.t.Context()
	for {
		list, err := l.next().Leftover(ctx, time.Now().Add(time.Hour))
		if is(l.t, err, nil); len(list) == 0 {
			return
		}
		size := int64(0)
		for i := range list {
			size += list[i].Size()
		}
		l.moveTo(l.intakes[0].Place(size), list)
	}
}

// moveTo moves slices to a new object.
func (l *leader) moveTo(name string, list []segment.Slice) {
	l.t.Helper()
	moved, err := segment.MoveSlices(l.t.Context(), l.all[0].Payload(), l.all[1].Payload(), name, list)
	is(l.t, err, nil)
	var places []store.Place
	for i := range list {
		places = append(places, store.Place{From: list[i], To: moved[i]})
	}
	is(l.t, l.next().Move(l.t.Context(), places), nil)
}

// TestTrickle: reports of a task that is held, of which each comes alone or beside those of a
// task that gets on, keep few rows and few objects, however many have come; and each is
// written again a few times.
func TestTrickle(t *testing.T) {
	task, slow := storetest.Task(t, dap.TimeInterval, 1), storetest.Task(t, dap.TimeInterval, 2)
	l := newLeader(t, task, slow)
	is(t, l.next().HoldTask(t.Context(), slow.ID, "a person", l.now), nil)
	const uploads = 240
	most, written := 0, 0
	for n := range uploads {
		l.turn++
		all := entries(slow, dap.Time(n%7), n, n, 100)
		if n%3 == 0 {
			all = append(all, entries(task, 10, n, n+1, 100+1100*(n%2))...) // a row, or an object
		}
		_, err := l.intakes[l.turn%2].Put(t.Context(), all)
		is(t, err, nil)
		if l.work(); n%6 != 5 {
			continue
		}
		l.bring()
		is(t, l.next().Bury(t.Context()), nil)
		// A handful, and those that came since: of each size there are fewer than eight.
		most = max(most, l.owner.counted("object"))
	}
	if most > 24 {
		t.Errorf("%d reports that wait keep %d objects", uploads, most)
	}
	var objects int
	is(t, l.owner.QueryRow(t.Context(), "SELECT last_value FROM object_id_seq").Scan(&objects), nil)
	if written = objects - uploads; written > uploads/2 {
		t.Errorf("%d objects were written again for %d uploads", written, uploads)
	}
	_, err := l.next().Resume(t.Context(), []dap.TaskID{slow.ID}, false)
	is(t, err, nil)
	l.work()
	l.counts(slow, store.Counts{Acknowledged: uploads, Aggregated: uploads})
	l.left(0, 0)
	l.audit("")
}

// TestLeftoverIsBounded: a call looks at some objects, however many there are that cannot be
// brought together, and the calls after it at those behind them.
func TestLeftoverIsBounded(t *testing.T) {
	task := storetest.Task(t, dap.TimeInterval, 1)
	l := newLeader(t, task)
	l.upload(task, 10, 0, 0)
	// Large ones, before those that are small.
	l.owner.ok(`INSERT INTO object (name, slices, since) SELECT 'slices/large' || n || '.obj', 1, now() - interval '1 hour' FROM generate_series(1, 9000) AS n`)
	l.owner.ok(`INSERT INTO slice (object, pieces, size, sum, task, bucket, reports, duplicates)
		SELECT o.id, pieces, 6000000, sum, task, 99, 1, 0 FROM object AS o, slice WHERE o.name LIKE 'slices/large%'`)
	for n := 1; n <= 9; n++ {
		l.upload(task, 10, n, n)
	}
	later := time.Now().Add(time.Hour)
	for n := range 4 {
		list, err := l.all[0].Leftover(t.Context(), later)
		is(t, err, nil)
		if want := n == 2; want != (len(list) == 9) { // 9,010 objects, 4,096 in a call
			t.Fatalf("call %d lists %d slices", n, len(list))
		}
	}
}

// TestMoveAgainstClaims: while slices are moved no replica claims them, nor a job that has
// them, and goes on with others; afterwards it finds them where they are.
func TestMoveAgainstClaims(t *testing.T) {
	ctx := t.Context()
	task, other := storetest.Task(t, dap.TimeInterval, 1), storetest.Task(t, dap.TimeInterval, 2)
	l := newLeader(t, task, other)
	_, err := l.intakes[0].Put(ctx, append(entries(task, 10, 0, 2, 20), append(entries(task, 11, 3, 4, 20), entries(other, 10, 0, 2, 20)...)...))
	is(t, err, nil)
	l.finish(l.one())
	is(t, l.next().RetryJob(ctx, l.one(), l.now, "later"), nil)
	list, err := l.next().Leftover(ctx, time.Now().Add(time.Hour))
	if is(t, err, nil); len(list) != 2 {
		t.Fatalf("left are %+v", list)
	}
	l.upload(task, 12, 5, 6)
	fail := new(disk.Failpoints)
	mover := openWith(t, l.schema, func(o *postgres.Options) {
		o.Role, o.Party, o.Objects = dap.RoleLeader, "https://leader.example/", l.objects
		o.Database.Failpoints, o.Database.Prefix = fail, "store"
	})
	const to = segment.RowFolder + "moved.obj"
	moved, err := segment.MoveSlices(ctx, mover.Payload(), mover.Payload(), to, list)
	is(t, err, nil)
	fail.Arm("store.move-slices.before-commit", 0, func() error {
		jobs := l.claim(9)
		if len(jobs) != 1 || jobs[0].Slices[0].Bucket != 12 {
			return fmt.Errorf("claimed while slices are moved: %+v", jobs)
		}
		l.finish(jobs[0])
		return nil
	})
	is(t, mover.Move(ctx, []store.Place{{From: list[0], To: moved[0]}, {From: list[1], To: moved[1]}}), nil)
	jobs := l.claim(9)
	if len(jobs) != 2 || jobs[0].Slices[0].Object != to || jobs[1].Slices[0].Object != to {
		t.Fatalf("claimed %+v", jobs)
	}
	for _, j := range jobs {
		l.finish(j)
	}
	l.counts(task, store.Counts{Acknowledged: 7, Aggregated: 7})
	l.left(0, 0)
	l.audit("")
}

// TestPayloadRows: rows are a payload store as any other.
func TestPayloadRows(t *testing.T) {
	payloadtest.Run(t, func(t *testing.T) func() payload.Store {
		s := pgtest.New(t)
		return func() payload.Store { return open(t, s).Rows() }
	})
}
