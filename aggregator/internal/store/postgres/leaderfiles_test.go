//go:build postgres

package postgres_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/payload/payloadtest"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres/pgtest"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
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

// TestPayloadRows: rows are a payload store as any other.
func TestPayloadRows(t *testing.T) {
	payloadtest.Run(t, func(t *testing.T) func() payload.Store {
		s := pgtest.New(t)
		return func() payload.Store { return open(t, s).Rows() }
	})
}
