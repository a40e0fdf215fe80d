package segment

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/lost"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
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
	m, err := WriteRun(fsys, name, testKey, ids, nil)
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

var testKey = &SetKey{1}

// namer gives merged runs their names.
func namer(prefix string) func() (string, error) {
	n := 0
	return func() (string, error) {
		n++
		return fmt.Sprintf("%s%d", prefix, n), nil
	}
}

// mergeAll carries out what is due, and removes what it was made of.
func mergeAll(t *testing.T, mem disk.FS, r *Runs, name func() (string, error)) {
	t.Helper()
	for plan := r.MergePlan(); plan != nil; plan = r.MergePlan() {
		merged, err := Merge(mem, name, testKey, plan, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Replace(plan.Runs, merged); err != nil {
			t.Fatal(err)
		}
		for _, m := range plan.Runs {
			if err := Remove(mem, m.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// checkShape demands what is said of the shape: ranges below AllIDs that cover all ids
// and do not overlap, ids within their ranges, and no run as large as a range may be.
func checkShape(t *testing.T, r *Runs, limit int64) (most int) {
	t.Helper()
	of := make(map[Range]int)
	for _, x := range r.runs {
		m := x.meta
		if of[m.Range]++; m.Count >= limit {
			t.Fatalf("a run has %d ids, want less than %d", m.Count, limit)
		}
		m2, err := newMerger([]*run{x}, ReportID{})
		if err != nil {
			t.Fatal(err)
		}
		for range m.Count {
			if id, err := m2.next(nil); err != nil || !m.Range.Contains(ReportID(id)) {
				t.Fatalf("id %x in a run of %x to %x: %v", id, m.Range.Low, m.Range.High, err)
			}
		}
	}
	var parts []Range
	deepest := 0
	for at, n := range of {
		if at != AllIDs {
			parts = append(parts, at)
			deepest = max(deepest, n)
		}
	}
	slices.SortFunc(parts, func(a, b Range) int { return compareIDs(a.Low, b.Low) })
	for i, at := range parts {
		if i == 0 && at.Low != AllIDs.Low || i == len(parts)-1 && at.High != AllIDs.High ||
			i > 0 && before(at.Low) != parts[i-1].High {
			t.Fatalf("the ranges do not make up all ids: %x", parts)
		}
	}
	return of[AllIDs] + deepest
}

// Random jobs against a map: replays are found whatever has been merged or divided, the
// number of runs stays small, and so does what an id costs.
func TestRunsAgainstMap(t *testing.T) {
	const limit = 1 << 12
	for name, id := range map[string]func(n int) ReportID{
		"spread": idOf,
		"crowded": func(n int) ReportID { // a client draws its ids as it likes
			return ReportID{7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, byte(n >> 16), byte(n >> 8), byte(n)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			mem := disktest.NewMem(1)
			r, err := OpenRuns(mem, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.SetLimit(limit)
			known := make(map[ReportID]bool)
			next := namer("merged")
			var most int
			for job := range 200 {
				ids := make([]ReportID, 1+rng.IntN(400))
				for i := range ids {
					ids[i] = id(rng.IntN(40000))
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
				mergeAll(t, mem, r, next)
				most = max(most, checkShape(t, r, limit))
			}
			total := int64(0)
			for _, m := range r.metas() {
				total += m.Count
			}
			if total != int64(len(known)) || len(known) < 5000 {
				t.Errorf("the runs have %d ids, want %d", total, len(known))
			}
			if most > MaxReads {
				t.Errorf("a lookup read up to %d runs, want at most %d", most, MaxReads)
			}
			again, err := OpenRuns(mem.Crash(), r.metas())
			if err != nil {
				t.Fatal(err)
			}
			for id := range known {
				if ok, err := again.Contains(id); !ok || err != nil {
					t.Fatalf("lost an id: %v", err)
				}
			}
			r.Close()
			if _, err := r.FilterNew([]ReportID{idOf(1)}); !errors.Is(err, ErrClosed) {
				t.Errorf("closed runs answer: %v", err)
			}
			again.Close()
		})
	}
}

// TestReads counts what a lookup reads: of each id one block of each run that may have
// it, which is at most MaxReads of them, however many ids there are.
func TestReads(t *testing.T) {
	mem := disktest.NewMem(1)
	r, err := OpenRuns(mem, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.SetLimit(1 << 14) // as if each id stood for 64
	next := namer("merged")
	worst := int64(0)
	for job := range 1200 {
		if err := r.Add(mustWriteRun(t, mem, fmt.Sprintf("job%d", job), idsOf(64*job, 64*job+64))); err != nil {
			t.Fatal(err)
		}
		mergeAll(t, mem, r, next)
		before := r.blockReads()
		if ok, err := r.Contains(idOf(-1 - job)); ok || err != nil {
			t.Fatal(ok, err)
		}
		worst = max(worst, r.blockReads()-before)
	}
	if worst > MaxReads || worst < 6 {
		t.Errorf("a lookup read up to %d blocks, want at most %d", worst, MaxReads)
	}
	ranges := make(map[Range]bool)
	for _, m := range r.metas() {
		ranges[m.Range] = true
	}
	if len(ranges) < 5 {
		t.Errorf("there are %d ranges: nothing was divided", len(ranges))
	}
}

func TestMerge(t *testing.T) {
	mem := disktest.NewMem(1)
	a := mustWriteRun(t, mem, "a", idsOf(0, 500))
	b := mustWriteRun(t, mem, "b", idsOf(500, 1000))
	m, err := Merge(mem, namer("m"), testKey, &Plan{Runs: []RunMeta{a, b}, Into: []Range{AllIDs}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := mustWriteRun(t, mem, "want", idsOf(0, 1000))
	if len(m) != 1 || m[0].Sum != want.Sum || m[0].Count != 1000 || m[0].Size != want.Size || m[0].Range != AllIDs {
		t.Errorf("merged %+v, want the run of the union %+v", m, want)
	}
	if m[0].Digest != DigestOf(testKey, idsOf(0, 1000)) || m[0].Digest == DigestOf(&SetKey{2}, idsOf(0, 1000)) {
		t.Error("the digest of a merged run is not that of its ids under the key")
	}
	both := a.Digest
	both.Add(b.Digest)
	if both != m[0].Digest || both == a.Digest {
		t.Error("the digest of a union is not the sum")
	}
	// No id is in two runs: that is what the runs are for. A merge would hide it.
	twice := mustWriteRun(t, mem, "twice", idsOf(999, 1300))
	if m, err := Merge(mem, namer("x"), testKey, &Plan{Runs: []RunMeta{want, twice}, Into: []Range{AllIDs}}, nil); !errors.Is(err, ErrCorrupt) {
		t.Errorf("an id in two runs: %+v, %v", m, err)
	}
	if _, err := mem.Stat("x1"); err == nil {
		t.Error("a merge that failed left its file")
	}
}

func TestRunsAnswerNothingWhereDamaged(t *testing.T) {
	mem := disktest.NewMem(1)
	meta := mustWriteRun(t, mem, "run", idsOf(0, 300))
	whole, err := disk.ReadFile(mem, "run", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var damaged *DamagedError
	ask := func(what string) {
		t.Helper()
		r, err := OpenRuns(mem, []RunMeta{meta})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if seen, err := r.FilterNew(idsOf(290, 310)); !errors.As(err, &damaged) || !errors.Is(err, ErrCorrupt) ||
			len(damaged.Runs) != 1 || damaged.Runs[0].RunMeta != meta || damaged.Runs[0].Why == "" {
			t.Fatalf("%s: %v, %v", what, seen, err)
		}
		if seen, err := r.FilterNew(nil); err != nil {
			t.Errorf("%s: a question about nothing: %v, %v", what, seen, err)
		}
	}
	for n := 0; n < len(whole); n += 7 {
		flipped := bytes.Clone(whole)
		flipped[n] ^= 1
		if err := disk.WriteFile(mem, "run", flipped); err != nil {
			t.Fatal(err)
		}
		ask(fmt.Sprintf("byte %d flipped", n))
	}
	for name, content := range map[string][]byte{"cut": whole[:len(whole)-100], "empty": nil, "longer": append(bytes.Clone(whole), 1)} {
		if err := disk.WriteFile(mem, "run", content); err != nil {
			t.Fatal(err)
		}
		ask(name)
	}
	if err := mem.Remove("run"); err != nil {
		t.Fatal(err)
	}
	ask("missing")
	// Another run in its place, whole and of the same length.
	other := mustWriteRun(t, mem, "run", idsOf(1000, 1300))
	if other.Size != meta.Size {
		t.Fatal("want a file of the same length")
	}
	ask("swapped")

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
	first := ReportID(whole[runHeader:])
	if _, err := r.Contains(first); !errors.As(err, &damaged) {
		t.Errorf("lookup in a rotten block: %v", err)
	}
	if len(r.Damaged()) != 1 || len(r.metas()) != 0 {
		t.Error("a rotten run is still taken for whole")
	}
	if seen, err := r.Known([]ReportID{first}); err != nil || seen[0] {
		t.Errorf("what is left of the runs knows %v, %v", seen, err)
	}
	// Mended, it answers again, and only its own ids mend it.
	ids := idsOf(0, 300)
	slices.SortFunc(ids, compareIDs)
	wrong := slices.Clone(ids)
	wrong[7][15] ^= 1
	for what, bad := range map[string][]ReportID{"another id": wrong, "one less": ids[1:], "none": nil} {
		if err := RewriteRun(mem, meta, bad, nil); !errors.Is(err, ErrProof) {
			t.Errorf("%s mends the run: %v", what, err)
		}
	}
	if err := r.Recheck(); err != nil || len(r.Damaged()) != 1 {
		t.Errorf("mended by the wrong ids: %v", err)
	}
	if err := RewriteRun(mem, meta, ids, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.Recheck(); err != nil || len(r.Damaged()) != 0 {
		t.Errorf("not mended: %v", err)
	}
	if ok, err := r.Contains(first); !ok || err != nil {
		t.Errorf("a mended run answers %v, %v", ok, err)
	}
}

// TestDamageIsOfItsRange: where one of several ranges is damaged, only its ids have no
// answer, new runs are taken in, and the range stays as it is until it is mended.
func TestDamageIsOfItsRange(t *testing.T) {
	const limit = 256
	mem := disktest.NewMem(1)
	r, err := OpenRuns(mem, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.SetLimit(limit)
	next := namer("m")
	for job := range 20 {
		if err := r.Add(mustWriteRun(t, mem, fmt.Sprint("job", job), idsOf(100*job, 100*job+100))); err != nil {
			t.Fatal(err)
		}
		mergeAll(t, mem, r, next)
	}
	i := slices.IndexFunc(r.metas(), func(m RunMeta) bool { return m.Range != AllIDs })
	bad := r.metas()[i]
	metas := r.metas()
	r.Close()
	if err := mem.Remove(bad.Name); err != nil {
		t.Fatal(err)
	}
	if r, err = OpenRuns(mem, metas); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.SetLimit(limit)
	out := func(from, to int) (ids []ReportID) {
		for _, id := range idsOf(from, to) {
			if !bad.Range.Contains(id) {
				ids = append(ids, id)
			}
		}
		return ids
	}
	for job := 20; job < 40; job++ {
		ids := out(100*job, 100*job+100)
		seen, err := r.FilterNew(ids)
		if err != nil || slices.Contains(seen, true) {
			t.Fatal(seen, err)
		}
		if err := r.Add(mustWriteRun(t, mem, fmt.Sprint("job", job), ids)); err != nil {
			t.Fatal(err)
		}
		mergeAll(t, mem, r, next)
	}
	if seen, err := r.FilterNew(out(0, 4000)); err != nil || slices.Contains(seen, false) {
		t.Error("ids of the other ranges are lost", err)
	}
	if d := r.Damaged(); len(d) != 1 || d[0].RunMeta != bad {
		t.Fatalf("damaged is %+v", d)
	}
	if _, err := r.FilterNew(idsOf(0, 4000)); err == nil {
		t.Error("ids of the damaged range are answered")
	}
}

// A run that was reported written is whole after a power loss; one that was not is swept,
// and a row never names it.
func TestRunPowerLoss(t *testing.T) {
	for _, point := range append(runFailpoints(), "none") {
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
				if m, err := WriteRun(mem, name, testKey, idsOf(n*300, n*300+300), &fp); err == nil {
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
			// what is whole and was not named is kept elsewhere
			if left := files(t, mem, "runs"); len(left) != len(metas) {
				t.Errorf("%s, seed %d: files %v", point, seed, left)
			}
		}
	}
}

// TestAddWhole: a run that was merged before whoever wrote it came to add it is an error,
// and no damage to the replay protection.
func TestAddWhole(t *testing.T) {
	mem := disktest.NewMem(1)
	runs, err := OpenRuns(mem, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer runs.Close()
	gone := RunMeta{Name: "runs/gone.run", Range: AllIDs, Count: 1, Size: 64}
	if err := runs.AddWhole(gone); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a file that is gone: %v", err)
	}
	if d := runs.Damaged(); len(d) != 0 {
		t.Errorf("damaged: %v", d)
	}
	if seen, err := runs.FilterNew([]ReportID{{1}}); err != nil || seen[0] {
		t.Errorf("an id: %v, %v", seen, err)
	}
	if err := runs.Add(gone); err != nil || len(runs.Damaged()) != 1 {
		t.Errorf("of rows: %v, %v", err, runs.Damaged())
	}
}

// TestOwners: each id of a run of marks has its owner, through merges, divisions and a loss
// of power, and such a run is none of ids.
func TestOwners(t *testing.T) {
	owned := func(from, to int) (list []Owned) {
		for n := from; n < to; n++ {
			list = append(list, Owned{idOf(n), ReportID{1, byte(n >> 8), byte(n)}})
		}
		slices.SortFunc(list, func(a, b Owned) int { return compareIDs(a.ID, b.ID) })
		return list
	}
	for _, n := range []int{1, 126, 127, 128, 254, 255, 2000} {
		mem := disktest.NewMem(1)
		r, err := OpenRuns(mem, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.SetLimit(600)
		var whole SetDigest
		next := namer("merged")
		for i := range 5 { // n of them, in five jobs
			from, to := n*i/5, n*(i+1)/5
			if from == to {
				continue
			}
			meta, err := WriteOwned(mem, fmt.Sprint("job", i), testKey, owned(from, to), nil)
			if err != nil {
				t.Fatal(err)
			}
			whole.Add(meta.Digest)
			if err := r.AddWhole(meta); err != nil {
				t.Fatal(err)
			}
			mergeAll(t, mem, r, next)
			checkShape(t, r, 600)
		}
		metas := r.metas()
		r.Close()
		mem = mem.Crash()
		if r, err = OpenRuns(mem, metas); err != nil {
			t.Fatal(err)
		}
		owners, seen, err := r.Owners(idsOf(0, 2*n))
		if err != nil {
			t.Fatal(err)
		}
		for i := range seen {
			if want := (ReportID{1, byte(i >> 8), byte(i)}); seen[i] != (i < n) || seen[i] && owners[i] != want {
				t.Fatalf("%d marks: mark %d seen is %v, of %x", n, i, seen[i], owners[i])
			}
		}
		r.Close()
		for _, m := range metas {
			m.Owned = false
			if r, err := OpenRuns(mem, []RunMeta{m}); err != nil || len(r.Damaged()) != 1 {
				t.Errorf("a run of marks is taken for one of ids, %v", err)
			}
			if err := RewriteRun(mem, RunMeta{Count: m.Count, Size: m.Size, Owned: true}, idsOf(0, int(m.Count)), nil); !errors.Is(err, ErrProof) {
				t.Errorf("a run of marks is made of ids: %v", err)
			}
		}
		var digest SetDigest
		for _, m := range metas {
			digest.Add(m.Digest)
		}
		if digest != whole {
			t.Errorf("%d marks: the digest has changed", n)
		}
	}
	mem := disktest.NewMem(1)
	twice := owned(0, 1)
	for _, bad := range [][]Owned{nil, append(twice, twice...), {{ID: ReportID{2}}, {ID: ReportID{1}}}} {
		if _, err := WriteOwned(mem, "bad", testKey, bad, nil); err == nil {
			t.Errorf("wrote a run of %d, not in order or not distinct", len(bad))
		}
	}
	a, err := WriteOwned(mem, "a", testKey, twice, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := WriteOwned(mem, "b", testKey, []Owned{{twice[0].ID, ReportID{9}}}, nil)
	if err != nil || a.Digest == b.Digest {
		t.Errorf("owners are not of the digest: %v", err)
	}
}
