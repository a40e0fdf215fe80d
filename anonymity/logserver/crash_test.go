package logserver_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/logserver"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// crashPoints are all places where power can be lost.
func crashPoints() []string {
	return slices.Concat(logserver.Failpoints(), disk.LogFailpoints()[:3]) // the file is never rotated
}

// TestKilled: power is lost at each place, with disks that lose what was not synced, data
// and record alike. An entry whose sender was answered has its place for ever; each is in
// the log once; a device that goes along from the first bundle to the last never sees two
// trees, and neither do the witnesses.
func TestKilled(t *testing.T) {
	passed := map[string]int{}
	for _, point := range crashPoints() {
		for seed := range uint64(4) {
			synctest.Test(t, func(t *testing.T) {
				if killed(t, point, seed) {
					passed[point]++
				}
			})
		}
	}
	for _, point := range crashPoints() {
		if passed[point] == 0 {
			t.Errorf("nothing was killed at %s", point)
		}
	}
}

// killed plays one loss of power and says whether there was one.
func killed(t *testing.T, point string, seed uint64) bool {
	var hit atomic.Bool
	b := newBench(t, seed)
	points := new(disk.Failpoints)
	b.o.Failpoints = points
	b.mustRun()
	points.Arm(point, int(seed), func() error {
		hit.Store(true)
		mem(b.o.FS).Cut()
		mem(b.o.Record).Cut()
		return disktest.ErrPowerLoss
	})
	var m tlog.Memory
	places := make(map[string]int64) // that senders were told
	follow := func() {
		if b.get("bundle").Code != 200 {
			return
		}
		_, next, err := b.device(m)
		if err != nil {
			t.Fatalf("%s, seed %d: a device: %v", point, seed, err)
		}
		m = next
	}
	send := func(from, to int) {
		for i := from; i < to; i++ {
			name := fmt.Sprint("release ", i)
			if a, no := b.add(entry(t, name, 1)); no == "" {
				if old, told := places[name]; told && old != a.Index {
					t.Errorf("%s, seed %d: %s was at %d, and is at %d", point, seed, name, old, a.Index)
				}
				places[name] = a.Index
			} else if no != "broken" {
				t.Errorf("%s: %q", point, no)
			}
			if time.Sleep(20 * time.Minute); hit.Load() && points != nil {
				return // the rest would be in vain
			}
			follow()
		}
	}
	send(0, 8)
	b.stop()
	points.Disarm(point)
	points, b.o.Failpoints = nil, nil
	b.o.FS, b.o.Record = mem(b.o.FS).Crash(), mem(b.o.Record).Crash()
	if err := b.run(); err != nil {
		t.Fatalf("%s, seed %d: %v", point, seed, err)
	}
	defer func() { b.stop() }()
	time.Sleep(time.Minute)
	follow()
	send(0, 12)
	time.Sleep(2 * time.Hour)
	follow()
	w := b.checkpoint()
	tree := b.tree(w)
	for name, i := range places {
		if leaf, err := tree.Leaf(i); err != nil || leaf != tlog.LeafHash(entry(t, name, 1)) {
			t.Errorf("%s, seed %d: %s is not at %d, %v", point, seed, name, i, err)
		}
	}
	if len(places) != 12 || m.Checkpoint.Size != w.Size {
		t.Errorf("%s, seed %d: %d entries, a device at %d of %d", point, seed, len(places), m.Checkpoint.Size, w.Size)
	}
	if err := b.s.Audit(); err != nil {
		t.Errorf("%s, seed %d: %v", point, seed, err)
	}
	for _, x := range b.w {
		if s := x.Status(); len(s.Forks) > 0 || s.Outcomes["inconsistent"] > 0 {
			t.Errorf("%s, seed %d: a witness saw a fork: %+v", point, seed, s)
		}
	}
	return hit.Load()
}

// TestKilledAtStart: power is lost at each call of the disks from the first start to the
// first bundle. The log starts again.
func TestKilledAtStart(t *testing.T) {
	for at := range 30 {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, uint64(at))
			n := 0
			hook := func(disktest.Op, string) error { // both disks have one power supply
				if n++; n > at {
					return disktest.ErrPowerLoss
				}
				return nil
			}
			data := mem(b.o.FS)
			data.Inject(hook)
			b.o.Record = disk.Sub(data, "record")
			if err := disk.MakeDirs(data, "record"); err == nil {
				if err := b.run(); err == nil {
					b.add(entry(t, "one", 1))
					time.Sleep(time.Minute)
					b.stop()
				} else if !errors.Is(err, disktest.ErrPowerLoss) {
					t.Fatalf("call %d: %v", at, err)
				}
			}
			data.Cut()
			again := data.Crash()
			b.o.FS, b.o.Record = again, disk.Sub(again, "record")
			if err := disk.MakeDirs(again, "record"); err != nil {
				t.Fatal(err)
			}
			if err := b.run(); err != nil {
				t.Fatalf("call %d: %v", at, err)
			}
			defer func() { b.stop() }()
			b.add(entry(t, "one", 1))
			time.Sleep(2 * time.Hour)
			if o, _, err := b.device(tlog.Memory{}); err != nil || len(o.Entries) != 1 {
				t.Errorf("call %d: %v", at, err)
			}
		})
	}
}

// TestPutBack: a log whose data, or record, is an older copy, of another log, damaged or
// gone does not start.
func TestPutBack(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.mustRun()
		b.add(entry(t, "one", 1))
		time.Sleep(time.Minute)
		b.stop()
		oldData, oldRecord := disktest.FilesOf(t, b.o.FS), disktest.FilesOf(t, b.o.Record)
		b.mustRun()
		b.add(entry(t, "two", 1))
		time.Sleep(time.Minute)
		b.stop()
		data, record := disktest.FilesOf(t, b.o.FS), disktest.FilesOf(t, b.o.Record)
		if len(data) != 1 || len(record) != 1 {
			t.Fatalf("%d and %d files", len(data), len(record))
		}
		damaged := func(files disktest.Files, at int) disktest.Files {
			for name, f := range files {
				f = bytes.Clone(f)
				f[(at+len(f))%len(f)] ^= 1
				return files.With(name, f)
			}
			return nil
		}
		other := newBench(t, 5)
		other.mustRun()
		other.add(entry(t, "three", 1))
		other.add(entry(t, "four", 1))
		time.Sleep(time.Minute)
		other.stop()
		for name, c := range map[string]struct {
			data, record disktest.Files
			starts       bool
		}{
			"as it was":        {data, record, true},
			"an older record":  {data, oldRecord, true}, // it shows less than it has shown, and goes on from there
			"older data":       {oldData, record, false},
			"no data":          {nil, record, false},
			"no record":        {data, nil, false},
			"another's data":   {disktest.FilesOf(t, other.o.FS), record, false},
			"another's record": {data, disktest.FilesOf(t, other.o.Record), false},
			"a damaged record": {data, damaged(record, 30), false},
			"a record cut off": {data, damaged(record, -1), false},
			"an entry damaged": {damaged(data, 100), record, false},
		} {
			x := *b
			x.o.FS, x.o.Record = disktest.NewMem(7), disktest.NewMem(7)
			c.data.Put(t, x.o.FS)
			c.record.Put(t, x.o.Record)
			err := x.run()
			if err == nil {
				x.stop()
			}
			state, damaged := new(logserver.StateError), new(disk.DamagedError)
			if (err == nil) != c.starts || err != nil && !errors.As(err, &state) && !errors.As(err, &damaged) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestDiskError: after a write that failed nothing is taken until a restart, what was shown
// is still shown, and the sender asks again then.
func TestDiskError(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.mustRun()
		b.add(entry(t, "one", 1))
		time.Sleep(time.Minute)
		size := b.checkpoint().Size
		bad := true
		mem(b.o.FS).Inject(func(op disktest.Op, _ string) error {
			if bad && op == disktest.OpSync {
				return errors.New("input/output error")
			}
			return nil
		})
		if _, no := b.add(entry(t, "two", 1)); no != "broken" {
			t.Errorf("%q", no)
		}
		bad = false
		if _, no := b.add(entry(t, "three", 1)); no != "broken" {
			t.Errorf("%q", no)
		}
		time.Sleep(3 * time.Hour)
		if got := b.checkpoint(); got.Size != size || time.Since(got.Time) > 2*time.Hour {
			t.Errorf("%d entries, signed at %v", got.Size, got.Time)
		}
		if take, _ := b.s.Trouble(); take == nil || b.s.Status().Trouble == "" {
			t.Errorf("%v, %+v", take, b.s.Status())
		}
		b.stop()
		b.mustRun()
		defer func() { b.stop() }()
		two, no := b.add(entry(t, "two", 1))
		if no != "" {
			t.Errorf("after a restart: %q", no)
		}
		time.Sleep(time.Minute)
		if leaf, err := b.tree(b.checkpoint()).Leaf(two.Index); err != nil || leaf != tlog.LeafHash(entry(t, "two", 1)) {
			t.Error(err)
		}
	})
}
