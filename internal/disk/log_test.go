package disk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

var errInjected = errors.New("injected")

func scanStrings(t *testing.T, fsys disk.FS, name string) []string {
	t.Helper()
	scan, err := disk.ScanLog(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range scan.Records {
		got = append(got, string(r))
	}
	return got
}

func mustCreateLog(t *testing.T, fsys disk.FS, name string, opt disk.LogOptions) *disk.Log {
	t.Helper()
	l, err := disk.CreateLog(fsys, name, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestLogKeepsOrderAcrossRotation(t *testing.T) {
	mem := disktest.NewMem(1)
	l := mustCreateLog(t, mem, "a", disk.LogOptions{})
	ctx := context.Background()
	for i := range 5 {
		if i == 3 {
			if old, err := l.Rotate("b"); err != nil || old.Name != "a" || old.Records != 3 || old.Payload() != 24 {
				t.Fatal(old, err)
			}
		}
		if err := l.Append(ctx, []byte("record "), fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	if s := l.State(); s.Name != "b" || s.Records != 2 || s.Size != 64+2*(disk.FrameOverhead+8) {
		t.Errorf("state %+v", s)
	}
	mem = mem.Crash()
	got := fmt.Sprint(scanStrings(t, mem, "a"), scanStrings(t, mem, "b"))
	if want := "[record 0 record 1 record 2] [record 3 record 4]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A thousand goroutines must share few syncs, a lone one must not wait for company.
func TestLogGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := disktest.NewMem(1)
		syncs := 0
		mem.Inject(func(op disktest.Op, _ string) error {
			if op == disktest.OpSync {
				syncs++
				time.Sleep(time.Millisecond) // the bubble's time: what a sync costs
			}
			return nil
		})
		l := mustCreateLog(t, mem, "log", disk.LogOptions{MaxGroup: 100})
		start := time.Now()
		for range 10 {
			if err := l.Append(t.Context(), []byte("lone")); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took != 10*time.Millisecond {
			t.Errorf("ten lone records took %v, want ten syncs of 1ms", took)
		}
		syncs = 0
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if err := l.Append(t.Context(), []byte("crowd")); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if syncs < 10 || syncs > 12 {
			t.Errorf("1000 concurrent records took %d syncs, want 10 to 12 with groups of 100", syncs)
		}
		// The last group was large, so a lone record now waits for company, but no longer
		// than MaxWait.
		start = time.Now()
		if err := l.Append(t.Context(), []byte("late")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 6*time.Millisecond {
			t.Errorf("a lone record after a crowd took %v, want MaxWait and one sync", took)
		}
		if s := l.State(); s.Records != 1011 {
			t.Errorf("%d records, want 1011", s.Records)
		}
		l.Close()
	})
}

func TestLogContextStopsOnlyTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := disktest.NewMem(1)
		l := mustCreateLog(t, mem, "log", disk.LogOptions{MaxWait: time.Hour})
		mem.Inject(func(op disktest.Op, _ string) error {
			if op == disktest.OpSync {
				time.Sleep(time.Millisecond)
			}
			return nil
		})
		// One record is being synced while two queue up: the next group has two, and the
		// one after waits for as many.
		var wg sync.WaitGroup
		wg.Go(func() { l.Append(t.Context(), []byte("first")) })
		synctest.Wait()
		for range 2 {
			wg.Go(func() { l.Append(t.Context(), []byte("second")) })
		}
		wg.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := l.Append(ctx, []byte("cancelled")); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("append: %v, want the deadline", err)
		}
		l.Close()
		for _, r := range scanStrings(t, mem, "log") {
			if r == "cancelled" {
				t.Error("a record whose context ended while it was queued was written")
			}
		}
		if err := l.Append(t.Context(), []byte("x")); !errors.Is(err, disk.ErrLogClosed) {
			t.Errorf("append after Close: %v", err)
		}
	})
}

func TestLogFailsForGood(t *testing.T) {
	for _, op := range []disktest.Op{disktest.OpWrite, disktest.OpSync} {
		t.Run(string(op), func(t *testing.T) {
			mem := disktest.NewMem(7)
			l := mustCreateLog(t, mem, "log", disk.LogOptions{})
			if err := l.Append(t.Context(), []byte("good")); err != nil {
				t.Fatal(err)
			}
			mem.Inject(func(o disktest.Op, _ string) error {
				if o == op {
					return errInjected
				}
				return nil
			})
			err := l.Append(t.Context(), []byte("bad"))
			if !errors.Is(err, disk.ErrStateUnknown) || !errors.Is(err, errInjected) {
				t.Errorf("append: %v, want ErrStateUnknown", err)
			}
			if got := errors.Is(err, disk.ErrSync); got != (op == disktest.OpSync) {
				t.Errorf("ErrSync is %v after a failed %s", got, op)
			}
			mem.Inject(nil)
			err = l.Append(t.Context(), []byte("later"))
			if !errors.Is(err, disk.ErrLogFailed) || errors.Is(err, disk.ErrStateUnknown) {
				t.Errorf("append after the failure: %v, want ErrLogFailed", err)
			}
			if _, err := l.Rotate("next"); !errors.Is(err, disk.ErrLogFailed) {
				t.Errorf("rotate after the failure: %v, want ErrLogFailed", err)
			}
			got := scanStrings(t, mem.Crash(), "log")
			if len(got) == 0 || got[0] != "good" || len(got) > 2 || len(got) == 2 && got[1] != "bad" {
				t.Errorf("found %q", got)
			}
		})
	}
}

func TestLogRecordSize(t *testing.T) {
	l := mustCreateLog(t, disktest.NewMem(1), "log", disk.LogOptions{MaxRecord: 4})
	for _, size := range []int{0, 5} {
		if err := l.Append(t.Context(), make([]byte, size)); !errors.Is(err, disk.ErrRecordSize) {
			t.Errorf("%d bytes: %v, want ErrRecordSize", size, err)
		}
	}
	if err := l.Append(t.Context(), []byte("ab"), []byte("cd")); err != nil {
		t.Error(err)
	}
}

// Every cut of the file and every flipped byte leaves a prefix of the records; a flip in
// a group that a later group shows to have been durable is damage, and a cut is not.
func TestScanCutsAtFirstBadFrame(t *testing.T) {
	mem := disktest.NewMem(1)
	l := mustCreateLog(t, mem, "log", disk.LogOptions{})
	const records, size = 4, disk.FrameOverhead + 1
	for i := range records {
		if err := l.Append(t.Context(), []byte{'a' + byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := disk.ReadFile(mem, "log", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	scan := func(content []byte) (disk.Scan, error) {
		fsys := disktest.NewMem(1)
		if err := disk.WriteFile(fsys, "log", content); err != nil {
			t.Fatal(err)
		}
		return disk.ScanLog(fsys, "log")
	}
	for n := range whole {
		s, err := scan(whole[:n])
		if n < 64 {
			if !errors.Is(err, disk.ErrLogHeader) {
				t.Fatalf("%d bytes: %v, want ErrLogHeader", n, err)
			}
			continue
		}
		want := (n - 64) / size
		if err != nil || len(s.Records) != want || s.Cut != int64(n-64-want*size) || s.Damaged {
			t.Fatalf("%d bytes: %+v, %v; want %d records", n, s, err, want)
		}
	}
	for n := range whole {
		flipped := bytes.Clone(whole)
		flipped[n] ^= 0x10
		s, err := scan(flipped)
		if n < 64 { // the records say which id they are bound to
			if len(s.Records) != records || s.Damaged || !errors.Is(err, disk.ErrLogHeader) {
				t.Fatalf("byte %d flipped: %+v, %v, want all records", n, s, err)
			}
			continue
		}
		want := (n - 64) / size
		damaged := want < records-1
		if err != nil || len(s.Records) != want || s.Damaged != damaged || len(s.Behind) != records-want-1 {
			t.Fatalf("byte %d flipped: %+v, %v; want %d records, damaged %v", n, s, err, want, damaged)
		}
		if len(s.Gaps) != 1 || s.Gaps[0].Durable != damaged || s.Gaps[0].Offset != int64(64+want*size) || s.Gaps[0].Size != size || len(s.Gaps[0].Pieces) != 1 {
			t.Fatalf("byte %d flipped: gaps %+v", n, s.Gaps)
		}
		var de *disk.DamagedError
		if got := errors.As(s.Err("log"), &de); got != damaged {
			t.Fatalf("byte %d flipped: Err is %v", n, s.Err("log"))
		}
	}
}

// A log says how long the one before it was at least, and a newer version says what it is.
func TestLogHeader(t *testing.T) {
	mem := disktest.NewMem(1)
	l := mustCreateLog(t, mem, "a", disk.LogOptions{})
	if err := l.Append(t.Context(), []byte("one")); err != nil {
		t.Fatal(err)
	}
	first := l.State()
	if _, err := l.Rotate("b"); err != nil {
		t.Fatal(err)
	}
	id, before, err := disk.ReadLogHeader(mem, "b")
	if err != nil || id != l.State().ID || before != (disk.Mark{ID: first.ID, Size: first.Size}) {
		t.Errorf("%v after %+v, %v", id, before, err)
	}
	if _, before, err := disk.ReadLogHeader(mem, "a"); err != nil || before != (disk.Mark{}) {
		t.Errorf("the first is after %+v, %v", before, err)
	}
	if err := disk.WriteFile(mem, "zeros", make([]byte, 200)); err != nil {
		t.Fatal(err)
	}
	if s, err := disk.ScanLog(mem, "zeros"); !errors.Is(err, disk.ErrLogHeader) || len(s.Records) != 0 {
		t.Errorf("zeros: %+v, %v", s, err)
	}
}

// Frames of another log file, or of another place in the same one, never parse.
func TestScanRefusesStaleFrames(t *testing.T) {
	mem := disktest.NewMem(1)
	for _, name := range []string{"a", "b"} {
		l := mustCreateLog(t, mem, name, disk.LogOptions{})
		for _, r := range []string{"one", "two"} {
			if err := l.Append(t.Context(), []byte(r+name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	a, _ := disk.ReadFile(mem, "a", 1<<20)
	b, _ := disk.ReadFile(mem, "b", 1<<20)
	frame := (len(a) - 64) / 2
	for name, content := range map[string][]byte{
		"foreign": append(bytes.Clone(a[:64+frame]), b[64+frame:]...),
		"moved":   append(bytes.Clone(a[:64+frame]), a[64:64+frame]...),
	} {
		if err := disk.WriteFile(mem, "mixed", content); err != nil {
			t.Fatal(err)
		}
		if got := scanStrings(t, mem, "mixed"); len(got) != 1 || got[0] != "onea" {
			t.Errorf("%s: found %q, want only onea", name, got)
		}
	}
}

// The log is driven into a power loss at each failpoint, with many seeds for what the
// loss leaves: what was acknowledged is there, in order, and what was not is there at
// most once.
func TestLogPowerLoss(t *testing.T) {
	for _, point := range append(disk.LogFailpoints(), "none") {
		for seed := range uint64(60) {
			mem := disktest.NewMem(seed)
			var fp disk.Failpoints
			fp.Arm(point, int(seed%5), func() error { mem.Cut(); return disktest.ErrPowerLoss })
			opt := disk.LogOptions{Failpoints: &fp}
			l, err := disk.CreateLog(mem, "0", opt)
			if err != nil {
				t.Fatal(err)
			}
			var acked []string
			var mu sync.Mutex
			files := []string{"0"}
			for round := range 4 {
				var wg sync.WaitGroup
				for i := range 8 {
					wg.Go(func() {
						r := fmt.Sprintf("%d.%d %s", round, i, bytes.Repeat([]byte("x"), int(seed)*17))
						if l.Append(t.Context(), []byte(r)) == nil {
							mu.Lock()
							acked = append(acked, r)
							mu.Unlock()
						}
					})
				}
				wg.Wait()
				next := fmt.Sprint(round + 1)
				if _, err := l.Rotate(next); err == nil {
					files = append(files, next)
				}
			}
			l.Close()
			if point == "none" && len(acked) != 32 || point != "none" && len(fp.Hits()) == 0 {
				t.Fatalf("%s: %d acknowledged, hits %v", point, len(acked), fp.Hits())
			}
			mem = mem.Crash()
			found := make(map[string]int)
			for _, name := range files {
				scan, err := disk.ScanLog(mem, name)
				if err != nil {
					t.Fatalf("%s, seed %d: %v", point, seed, err)
				}
				if scan.Damaged {
					t.Errorf("%s, seed %d: %s: a power loss taken for damage", point, seed, name)
				}
				for _, r := range scan.Records {
					found[string(r)]++
				}
			}
			for _, r := range acked {
				if found[r] != 1 {
					t.Errorf("%s, seed %d: acknowledged %.4q found %d times", point, seed, r, found[r])
				}
			}
			for r, n := range found {
				if n != 1 {
					t.Errorf("%s, seed %d: %.4q found %d times", point, seed, r, n)
				}
			}
		}
	}
}

func TestOpenLogRecovers(t *testing.T) {
	for seed := range uint64(40) {
		mem := disktest.NewMem(seed)
		if err := disk.MakeDirs(mem, "d"); err != nil {
			t.Fatal(err)
		}
		var want []string
		for life := range 4 {
			var got []string
			l, _, err := disk.OpenLog(mem, "d/log", disk.LogOptions{}, func(p []byte) error {
				got = append(got, string(p))
				return nil
			})
			if err != nil {
				t.Fatalf("seed %d, life %d: %v", seed, life, err)
			}
			// The record whose sync failed may have survived.
			if len(got) == len(want)+1 && got[len(want)] == fmt.Sprint("lost", life-1) {
				want = got
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("seed %d, life %d: found %q, want %q", seed, life, got, want)
			}
			r := fmt.Sprint("kept", life)
			if err := l.Append(t.Context(), []byte(r)); err != nil {
				t.Fatal(err)
			}
			want = append(want, r)
			mem.Inject(func(op disktest.Op, _ string) error {
				if op == disktest.OpSync {
					return errInjected
				}
				return nil
			})
			if err := l.Append(t.Context(), []byte(fmt.Sprint("lost", life))); err == nil {
				t.Fatal("append succeeded though its sync failed")
			}
			mem.Inject(nil)
			l.Close()
			if seed%2 == 0 {
				mem = mem.Crash()
			}
		}
	}
}

func TestOpenLogRefusesDamage(t *testing.T) {
	mem := disktest.NewMem(1)
	l := mustCreateLog(t, mem, "log", disk.LogOptions{})
	for _, r := range []string{"one", "two", "three"} {
		if err := l.Append(t.Context(), []byte(r)); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	f, err := mem.OpenWrite("log")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0}, 64+disk.FrameOverhead+3+disk.FrameOverhead); err != nil {
		t.Fatal(err)
	}
	before, _ := disk.ReadFile(mem, "log", 1<<20)
	var got []string
	_, _, err = disk.OpenLog(mem, "log", disk.LogOptions{}, func(p []byte) error { got = append(got, string(p)); return nil })
	var damaged *disk.DamagedError
	if !errors.As(err, &damaged) || fmt.Sprint(got) != "[one]" {
		t.Errorf("found %q, error %v", got, err)
	}
	if after, _ := disk.ReadFile(mem, "log", 1<<20); !bytes.Equal(before, after) {
		t.Error("the damaged log was changed")
	}
}

// A group is written whole and synced once: a bad frame before a good one of the same
// group is what a power loss may leave. Before a good one of a later group it is damage.
func TestScanKnowsGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := disktest.NewMem(1)
		l := mustCreateLog(t, mem, "log", disk.LogOptions{})
		mem.Inject(func(op disktest.Op, _ string) error {
			if op == disktest.OpSync {
				time.Sleep(time.Millisecond)
			}
			return nil
		})
		var wg sync.WaitGroup
		wg.Go(func() { l.Append(t.Context(), []byte("a")) })
		synctest.Wait() // a is being synced
		wg.Go(func() { l.Append(t.Context(), []byte("b")) })
		wg.Go(func() { l.Append(t.Context(), []byte("c")) })
		wg.Wait()
		l.Close()
		mem.Inject(nil)
		whole, err := disk.ReadFile(mem, "log", 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		const frame = disk.FrameOverhead + 1
		for bad, damaged := range []bool{true, false, false} {
			content := bytes.Clone(whole)
			content[disk.LogHeaderSize+(bad+1)*frame-1] ^= 1
			if err := disk.WriteFile(mem, "bad", content); err != nil {
				t.Fatal(err)
			}
			s, err := disk.ScanLog(mem, "bad")
			if err != nil || s.Damaged != damaged || len(s.Records) != bad || s.Cut != int64((3-bad)*frame) {
				t.Errorf("frame %d bad: %+v, %v; want damaged %v", bad, s, err, damaged)
			}
		}
	})
}
