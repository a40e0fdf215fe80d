//go:build postgres

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/payload/payloadtest"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
)

// older has strays be seen, and turns be over, so long before.
func (l *leader) older(age string) {
	l.t.Helper()
	l.owner.ok("UPDATE stray SET seen = seen - interval '" + age + "'")
	l.owner.ok("UPDATE tombstone SET since = since - interval '" + age + "'")
	l.owner.ok("UPDATE object SET since = since - interval '" + age + "'")
}

// sweep looks for strays at one replica, and demands how many there are, and how many
// objects are under tombstones, after it.
func (l *leader) sweep(i, strays, tombstones int) {
	l.t.Helper()
	is(l.t, l.all[i].SweepStrays(l.t.Context()), nil)
	if s, t := l.owner.counted("stray"), l.owner.counted("tombstone"); s != strays || t != tombstones {
		l.t.Fatalf("%d strays and %d tombstones, want %d and %d", s, t, strays, tombstones)
	}
}

// has says whether an object lies in the object storage.
func (l *leader) has(name string) bool {
	l.t.Helper()
	_, err := l.objects.Size(l.t.Context(), name)
	if err != nil && !errors.Is(err, payload.ErrNotFound) {
		l.t.Fatal(err)
	}
	return err == nil
}

// names are the objects of uploads that lie in the object storage.
func (l *leader) names() (names []string) {
	l.t.Helper()
	list, err := l.objects.List(l.t.Context(), segment.ObjectFolder, "", 1000)
	is(l.t, err, nil)
	for _, o := range list {
		names = append(names, o.Name)
	}
	return names
}

// TestLatePut: an object whose put was given up, and takes effect when strays are looked for
// already, goes when it was there for long enough, by a tombstone; one that is named stays,
// however old it is.
func TestLatePut(t *testing.T) {
	task := storetest.Task(t, dap.TimeInterval, 1)
	l := newLeader(t, task)
	l.open(0, time.Hour)
	l.open(1, time.Hour)
	if _, err := l.intakes[0].Put(t.Context(), entries(task, 10, 0, 2, 1000)); err != nil {
		t.Fatal(err)
	}
	named := l.names()[0]
	l.sweep(0, 0, 0)
	l.faults.Next(payloadtest.Late)
	if _, err := l.intakes[0].Put(t.Context(), entries(task, 10, 3, 5, 1000)); !errors.Is(err, segment.ErrBusy) {
		t.Fatal(err)
	}
	l.older("25 hours")
	l.faults.Calm() // it comes
	if all := l.names(); len(all) != 2 {
		t.Fatalf("there are %q", all)
	}
	l.sweep(0, 1, 0)
	l.sweep(0, 1, 0)
	l.older("23 hours")
	l.sweep(0, 1, 0)
	l.older("2 hours")
	l.sweep(0, 0, 1)
	is(t, l.all[0].Bury(t.Context()), nil)
	l.sweep(0, 0, 1) // under its tombstone it is no stray
	if all := l.names(); len(all) != 2 {
		t.Fatalf("there are %q", all)
	}
	l.older("2 hours")
	is(t, l.all[1].Bury(t.Context()), nil)
	if all := l.names(); len(all) != 1 || all[0] != named {
		t.Fatalf("there are %q, want %q", all, named)
	}
	l.work()
	l.audit("")
	if n := l.owner.counted("object"); n != 1 {
		t.Errorf("%d objects have a row", n)
	}
}

// TestStrayIsNamed: an object that is named after it was seen as a stray is none any more.
func TestStrayIsNamed(t *testing.T) {
	ctx := t.Context()
	task := storetest.Task(t, dap.TimeInterval, 1)
	l := newLeader(t, task)
	name, list := l.put(1)
	l.sweep(0, 1, 0)
	refused, err := l.all[1].Acknowledge(ctx, "", name, nil, list(10))
	is(t, err, nil)
	if refused[0] != 0 {
		t.Fatal(refused)
	}
	l.older("25 hours")
	l.sweep(0, 0, 0)
	if !l.has(name) {
		t.Error("it is gone")
	}
	// And a stray that is gone is none either.
	gone, _ := l.put(2)
	l.sweep(0, 1, 0)
	is(t, l.objects.Delete(ctx, gone), nil)
	l.sweep(0, 0, 0)
}

// put puts an object of one report, and says how its slice in a batch bucket is named.
func (l *leader) put(n int) (name string, list func(bucket uint64) []segment.Slice) {
	l.t.Helper()
	var made []segment.Slice
	in, err := segment.NewIntake(acknowledger(func(object string, s []segment.Slice) { name, made = object, s }),
		segment.IntakeOptions{Objects: l.objects, RowBytes: 1, Delay: time.Nanosecond})
	is(l.t, err, nil)
	_, err = in.Put(l.t.Context(), entries(l.tasks[0], 10, n, n, 1000))
	is(l.t, err, nil)
	return name, func(bucket uint64) []segment.Slice {
		made[0].Bucket = bucket
		return made
	}
}

// TestStrayRace: of the transaction that names an object and the one that gives it up the
// first counts, and the second does nothing; in either order.
func TestStrayRace(t *testing.T) {
	ctx := t.Context()
	task := storetest.Task(t, dap.TimeInterval, 1)
	l := newLeader(t, task)
	fail := new(disk.Failpoints)
	e := openWith(t, l.schema, func(o *postgres.Options) {
		o.Role, o.Party, o.Objects = dap.RoleLeader, "https://leader.example/", l.objects
		o.Database.Failpoints, o.Database.Prefix = fail, "store"
	})
	is(t, e.PutTask(ctx, task), nil)
	first, list := l.put(1)
	l.sweep(0, 1, 0)
	l.older("25 hours")
	begun, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fail.Arm("store.acknowledge.before-commit", 0, func() error {
		once.Do(func() { close(begun) })
		<-goOn
		return nil
	})
	var wg sync.WaitGroup
	var named, swept error
	wg.Go(func() { _, named = e.Acknowledge(ctx, "", first, nil, list(10)) })
	<-begun
	wg.Go(func() { swept = l.all[0].SweepStrays(ctx) })
	l.blocked()
	close(goOn)
	wg.Wait()
	is(t, named, nil)
	is(t, swept, nil)
	if n := l.owner.counted("tombstone"); n != 0 {
		t.Fatalf("%d tombstones", n)
	}

	second, list := l.put(2)
	l.sweep(0, 1, 0)
	l.older("25 hours")
	l.sweep(0, 0, 1)
	if _, err := e.Acknowledge(ctx, "", second, nil, list(10)); !errors.Is(err, segment.ErrBusy) {
		t.Fatalf("named what is given up: %v", err)
	}
	l.work()
	l.left(0, 1) // the name of the data set
	l.audit("")
	if l.has(first) || l.has(second) {
		t.Error("they are still there")
	}
}

// acknowledger notes what would be named.
type acknowledger func(object string, list []segment.Slice)

func (a acknowledger) Acknowledge(_ context.Context, _, object string, _ [][]byte, list []segment.Slice) ([]segment.Refusal, error) {
	a(object, list)
	return make([]segment.Refusal, len(list)), nil
}

// TestSweepInTurn: one replica at a time looks for strays, a page in each pass, and the next
// one goes on where it ended.
func TestSweepInTurn(t *testing.T) {
	l := newLeader(t, storetest.Task(t, dap.TimeInterval, 1))
	for n := range payload.MaxPage + 3 {
		is(t, l.objects.Put(t.Context(), fmt.Sprintf("%s%05d.obj", segment.ObjectFolder, n), []byte("x")), nil)
	}
	l.sweep(0, payload.MaxPage, 0)
	l.sweep(1, payload.MaxPage, 0) // the other one has the turn
	l.owner.ok("UPDATE chore SET until = now()")
	l.sweep(1, payload.MaxPage+3, 0)
	l.sweep(0, payload.MaxPage+3, 0)
	l.older("25 hours")
	l.sweep(1, 3, payload.MaxPage)
	l.sweep(1, 0, payload.MaxPage+3)
}

// TestSharedPlace: where another data set has its objects too nobody looks for strays, for
// they may be the other one's.
func TestSharedPlace(t *testing.T) {
	l := newLeader(t, storetest.Task(t, dap.TimeInterval, 1))
	l.put(1)
	l.sweep(0, 1, 0)
	l.older("25 hours")
	other := "owner/00000000000000000000000000000000.id"
	is(t, l.objects.Put(t.Context(), other, []byte("x")), nil)
	is(t, l.all[0].SweepStrays(t.Context()), postgres.ErrShared)
	if s, n := l.owner.counted("stray"), l.owner.counted("tombstone"); s != 1 || n != 0 {
		t.Fatalf("%d strays, %d tombstones", s, n)
	}
	is(t, l.objects.Delete(t.Context(), other), nil)
	l.sweep(0, 0, 1)
}

// TestUnnamedRows: a row that slices were to be moved to, and were not, goes as well.
func TestUnnamedRows(t *testing.T) {
	l := newLeader(t, storetest.Task(t, dap.TimeInterval, 1))
	l.upload(l.tasks[0], 10, 0, 0)
	is(t, l.all[0].Payload().Put(t.Context(), segment.RowFolder+"a.obj", []byte("x")), nil)
	l.sweep(0, 0, 0)
	l.older("25 hours")
	if n := l.owner.counted("object"); n != 2 {
		t.Fatalf("%d rows", n)
	}
	l.sweep(0, 0, 0)
	if n := l.owner.counted("object"); n != 1 {
		t.Fatalf("%d rows", n)
	}
	l.work()
	l.left(0, 1)
}
