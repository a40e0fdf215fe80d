package segment

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/lost"
	"github.com/starling-agg/starling/disk"
	"github.com/starling-agg/starling/disk/disktest"
)

func sumOf(b []byte) []byte { s := sha256.Sum256(b); return s[:] }

// idOf spreads n over all ids.
func idOf(n int) ReportID {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	return ReportID(sumOf(b[:]))
}

func idsOf(from, to int) []ReportID {
	var ids []ReportID
	for n := from; n < to; n++ {
		ids = append(ids, idOf(n))
	}
	return ids
}

func mustWriteRun(t *testing.T, fsys disk.FS, name string, ids []ReportID) RunMeta {
	t.Helper()
	m, err := WriteRun(fsys, name, ids, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRunsHoldExactlyTheirIDs(t *testing.T) {
	for _, n := range []int{1, 2, 254, 255, 256, 510, 511, 3000} {
		mem := disktest.NewMem(1)
		meta := mustWriteRun(t, mem, "run", append(idsOf(0, n), idsOf(0, 1)...)) // one twice
		if meta.Count != int64(n) {
			t.Errorf("%d ids, want %d", meta.Count, n)
		}
		r, err := OpenRuns(mem.Crash(), []RunMeta{meta})
		if err != nil {
			t.Fatal(err)
		}
		seen, err := r.FilterNew(idsOf(0, 2*n))
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range seen {
			if s != (i < n) {
				t.Fatalf("%d ids: id %d seen is %v", n, i, s)
			}
		}
		for _, edge := range []ReportID{{}, {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}} {
			if ok, err := r.Contains(edge); ok || err != nil {
				t.Errorf("contains %x: %v, %v", edge, ok, err)
			}
		}
		r.Close()
	}
}

func TestFilterNewMarksRepeatsWithinTheCall(t *testing.T) {
	r, err := OpenRuns(disktest.NewMem(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := r.FilterNew([]ReportID{idOf(1), idOf(2), idOf(1), idOf(1)})
	if err != nil || fmt.Sprint(seen) != "[false false true true]" {
		t.Errorf("seen %v, %v", seen, err)
	}
}

// Random jobs against a map: replays are found whatever has been merged, and the number of runs stays small.
func TestRunsAgainstMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	mem := disktest.NewMem(1)
	r, err := OpenRuns(mem, nil)
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[ReportID]bool)
	var most int
	for job := range 150 {
		ids := make([]ReportID, 1+rng.IntN(400))
		for i := range ids {
			ids[i] = idOf(rng.IntN(40000))
		}
		seen, err := r.FilterNew(ids)
		if err != nil {
			t.Fatal(err)
		}
		var fresh []ReportID
		for i, id := range ids {
			if seen[i] != known[id] {
				t.Fatalf("job %d: id %d seen is %v, want %v", job, i, seen[i], known[id])
			}
			if !seen[i] {
				fresh = append(fresh, id)
				known[id] = true
			}
		}
		if len(fresh) == 0 {
			continue
		}
		if err := r.Add(mustWriteRun(t, mem, fmt.Sprintf("job%d", job), fresh)); err != nil {
			t.Fatal(err)
		}
		for n := 0; ; n++ {
			plan := r.MergePlan()
			if plan == nil {
				break
			}
			merged, err := Merge(mem, fmt.Sprintf("merged%d.%d", job, n), plan, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Replace(plan, merged); err != nil {
				t.Fatal(err)
			}
			for _, m := range plan {
				if err := Remove(mem, m.Name); err != nil {
					t.Fatal(err)
				}
			}
		}
		most = max(most, len(r.Metas()))
	}
	total := int64(0)
	for _, m := range r.Metas() {
		total += m.Count
	}
	if total != int64(len(known)) || len(known) < 5000 {
		t.Errorf("the runs have %d ids, want %d", total, len(known))
	}
	if most > 18 {
		t.Errorf("there were up to %d runs", most)
	}
	again, err := OpenRuns(mem.Crash(), r.Metas())
	if err != nil {
		t.Fatal(err)
	}
	for id := range known {
		if ok, err := again.Contains(id); !ok || err != nil {
			t.Fatalf("lost an id: %v", err)
		}
	}
	r.Close()
	again.Close()
}

func TestMergeDropsRepeats(t *testing.T) {
	mem := disktest.NewMem(1)
	a := mustWriteRun(t, mem, "a", idsOf(0, 700))
	b := mustWriteRun(t, mem, "b", idsOf(500, 1000))
	m, err := Merge(mem, "m", []RunMeta{a, b}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := mustWriteRun(t, mem, "want", idsOf(0, 1000))
	if m.Sum != want.Sum || m.Count != 1000 || m.Size != want.Size {
		t.Errorf("merged %+v, want the run of the union %+v", m, want)
	}
}

func TestRunsRefuseCorruption(t *testing.T) {
	mem := disktest.NewMem(1)
	meta := mustWriteRun(t, mem, "run", idsOf(0, 300))
	whole, err := disk.ReadFile(mem, "run", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(whole); n += 7 {
		flipped := bytes.Clone(whole)
		flipped[n] ^= 1
		if err := disk.WriteFile(mem, "run", flipped); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenRuns(mem, []RunMeta{meta}); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d flipped: %v, want ErrCorrupt", n, err)
		}
	}
	if err := disk.WriteFile(mem, "run", whole); err != nil {
		t.Fatal(err)
	}
	r, err := OpenRuns(mem, []RunMeta{meta})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// Rot that comes later is found when the block is read, never taken for an answer.
	f, err := mem.OpenWrite("run")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{whole[100] ^ 1}, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Contains(ReportID(whole[runHeader:])); !errors.Is(err, ErrCorrupt) {
		t.Errorf("lookup in a rotten block: %v, want ErrCorrupt", err)
	}
}

// A run that was reported written is whole after a power loss; one that was not is swept, and a row never names it.
func TestRunPowerLoss(t *testing.T) {
	for _, point := range append(RunFailpoints(), "none") {
		for seed := range uint64(40) {
			mem := disktest.NewMem(seed)
			if err := disk.MakeDirs(mem, "runs"); err != nil {
				t.Fatal(err)
			}
			var fp disk.Failpoints
			cutAt(mem, &fp, point, 2)
			var metas []RunMeta
			var live []string
			for n := range 4 {
				name := fmt.Sprintf("runs/%d", n)
				if m, err := WriteRun(mem, name, idsOf(n*300, n*300+300), &fp); err == nil {
					metas = append(metas, m)
					live = append(live, name)
				}
			}
			if want := map[bool]int{true: 4, false: 2}[point == "none"]; len(metas) != want {
				t.Fatalf("%s: %d runs written, want %d", point, len(metas), want)
			}
			mem = mem.Crash()
			room := lost.Room{FS: mem, Newest: func() uint64 { return 1 }}
			if _, err := room.Sweep(context.Background(), live, "runs"); err != nil {
				t.Fatal(err)
			}
			r, err := OpenRuns(mem, metas)
			if err != nil {
				t.Fatalf("%s, seed %d: %v", point, seed, err)
			}
			r.Close()
			if left := files(t, mem, "runs"); len(left) != len(metas) { // what is whole and was not named is kept elsewhere
				t.Errorf("%s, seed %d: files %v", point, seed, left)
			}
		}
	}
}
