package lost_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/lost"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// put writes files, each with its name in it.
func put(t *testing.T, fsys disk.FS, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := disk.MakeDirs(fsys, name[:strings.LastIndex(name, "/")]); err != nil {
			t.Fatal(err)
		}
		if err := disk.WriteFile(fsys, name, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
}

// all lists the files below a directory.
func all(t *testing.T, fsys disk.FS, dir string) (names []string) {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := strings.TrimPrefix(dir+"/"+e.Name, "./"); e.Dir {
			names = append(names, all(t, fsys, name)...)
		} else {
			names = append(names, name)
		}
	}
	return names
}

func room(fsys disk.FS, key uint64) *lost.Room {
	return &lost.Room{FS: fsys, Newest: func() uint64 { return key }}
}

func TestSweep(t *testing.T) {
	ctx, mem := context.Background(), disktest.NewMem(1)
	put(t, mem, "slices/a/live", "slices/a/whole", "slices/b/again", "slices/b/half.obj.tmp", "runs/whole", "other/file")
	r := room(mem, 7)
	r.Again = func(_ context.Context, name string) (bool, error) { return name == "slices/b/again", nil }
	m, err := r.Sweep(ctx, []string{"slices/a/live", "runs/missing"}, "slices", "runs", "absent")
	if err != nil || len(m.Lost) != 2 || m.Removed != 2 || m.Back != 0 {
		t.Fatalf("%+v, %v", m, err)
	}
	mem = mem.Crash() // durable
	want := []string{
		"lost/0000000000000007/runs/whole", "lost/0000000000000007/slices/a/whole", "other/file", "slices/a/live",
	}
	if got := all(t, mem, "."); !slices.Equal(got, want) {
		t.Fatalf("files %q, want %q", got, want)
	}
	files, err := lost.List(mem)
	if err != nil || len(files) != 2 || files[0].Name != "runs/whole" || files[0].Key != 7 || files[1].Size != int64(len("slices/a/whole")) {
		t.Fatalf("listed %+v, %v", files, err)
	}

	// Another of the same name: both stay.
	put(t, mem, "runs/whole")
	if _, err := room(mem, 7).Sweep(ctx, nil, "runs"); err != nil {
		t.Fatal(err)
	}
	if files, err = lost.List(mem); err != nil || len(files) != 3 || files[1].Name != "runs/whole" {
		t.Fatalf("listed %+v, %v", files, err)
	}

	// A row names it again.
	m, err = room(mem, 9).Sweep(ctx, []string{"slices/a/whole", "slices/a/live"}, "slices")
	if err != nil || m.Back != 1 || len(m.Lost) != 0 {
		t.Fatalf("%+v, %v", m, err)
	}
	if b, err := disk.ReadFile(mem.Crash(), "slices/a/whole", 100); string(b) != "slices/a/whole" {
		t.Fatalf("%q, %v", b, err)
	}
}

// TestCrash loses power at each step of each move, in both directions: the file is whole,
// and at one place, in the end.
func TestCrash(t *testing.T) {
	ctx := context.Background()
	for _, point := range lost.FailpointNames() {
		for _, back := range []bool{false, true} {
			for seed := range uint64(20) {
				mem, fail := disktest.NewMem(seed), new(disk.Failpoints)
				put(t, mem, "runs/whole")
				var named []string
				if back {
					if _, err := room(mem, 1).Take("runs/whole"); err != nil {
						t.Fatal(err)
					}
					named = []string{"runs/whole"}
				}
				struck := false
				fail.Arm(point, 0, func() error { struck = true; mem.Cut(); return disktest.ErrPowerLoss })
				r := room(mem, 1)
				r.Failpoints = fail
				if _, err := r.Sweep(ctx, named, "runs"); err == nil || !struck {
					t.Fatalf("%s: not struck, %v", point, err)
				}
				mem = mem.Crash()
				if _, err := room(mem, 1).Sweep(ctx, named, "runs"); err != nil {
					t.Fatal(err)
				}
				where := "lost/0000000000000001/runs/whole"
				if back {
					where = "runs/whole"
				}
				if got := all(t, mem, "."); !slices.Equal(got, []string{where}) {
					t.Fatalf("%s, back %v, seed %d: %q", point, back, seed, got)
				}
				if b, err := disk.ReadFile(mem, where, 100); string(b) != "runs/whole" {
					t.Fatalf("%q, %v", b, err)
				}
			}
		}
	}
}

// TestEmpty: what was set aside goes when the last key that it may be sealed to has, and
// not before.
func TestEmpty(t *testing.T) {
	mem := disktest.NewMem(1)
	for key := range uint64(4) {
		put(t, mem, fmt.Sprintf("runs/%d", key))
		if _, err := room(mem, key+1).Take(fmt.Sprintf("runs/%d", key)); err != nil {
			t.Fatal(err)
		}
	}
	for oldest, left := range map[uint64]int{0: 4, 1: 4, 3: 2, 5: 0} {
		disk := mem.Crash()
		n, err := room(disk, 9).Empty(oldest)
		if err != nil || n != 4-left {
			t.Errorf("oldest key %d: %d removed, %v", oldest, n, err)
		}
		if files, err := lost.List(disk.Crash()); err != nil || len(files) != left {
			t.Errorf("oldest key %d: %d files left, want %d, %v", oldest, len(files), left, err)
		}
	}
}
