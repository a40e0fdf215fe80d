package segment

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/lost"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

func TestSortCutsByTaskBucketAndSize(t *testing.T) {
	mem, r := disktest.NewMem(1), newRows()
	l := mustStart(t, mem, r, nil)
	acked := make(map[int]bool)
	for n := 0; n < 60; n += 5 {
		mustPut(t, l, testEntries(n, n+5)...)
	}
	for n := range 60 {
		acked[n] = true
	}
	mustSort(t, l)
	checkKept(t, r, mem, acked)
	for _, m := range r.segments {
		if m.Count > 3 {
			t.Errorf("a segment has %d reports, more than MaxReports", m.Count)
		}
		s, err := Open(mem, m)
		if err != nil {
			t.Fatal(err)
		}
		if size := len(s.body); size > 600 && m.Count > 1 {
			t.Errorf("a segment has %d bytes of reports, more than MaxBytes", size)
		}
	}
	st := l.sorter.Stats()
	if st.Reports != 60 || st.Segments != int64(len(r.segments)) || st.Logs < 2 {
		t.Errorf("stats %+v, want 60 reports in %d segments from several logs", st, len(r.segments))
	}
	if u := l.inbox.Stats(); u.Unsorted != 0 || u.InFlight != 0 || u.ClosedLogs != 0 {
		t.Errorf("inbox %+v after sorting everything", u)
	}
	if logs := files(t, mem, "inbox"); len(logs) != 1 {
		t.Errorf("logs left: %v", logs)
	}
	if len(r.logs) != 0 {
		t.Errorf("%d logs were not forgotten", len(r.logs))
	}
}

// TestForgottenLogIsNotNotedAgain: a log was forgotten, and the sorter hears that it was
// not. The commit of the next log must not note it again, or the next start would count it
// as one that is lost.
func TestForgottenLogIsNotNotedAgain(t *testing.T) {
	mem, r := disktest.NewMem(1), newRows()
	l := mustStart(t, mem, r, nil)
	for n := range 2 {
		mustPut(t, l, testEntry(n))
		if err := l.inbox.Rotate(); err != nil {
			t.Fatal(err)
		}
	}
	r.forget = errInjected
	if logs, err := l.sorter.Sort(t.Context()); logs != 1 || !errors.Is(err, errInjected) {
		t.Fatalf("%d logs, %v", logs, err)
	}
	mustSort(t, l)
	if len(r.begun) != 1 || len(r.logs) != 0 {
		t.Errorf("begun are %v, sorted %v: want the log that takes uploads alone", r.begun, r.logs)
	}
	l.inbox.Close()
	mustSort(t, mustStart(t, mem, r, nil))
	if len(r.lost) != 0 {
		t.Errorf("a log that was sorted counts as lost: %+v", r.lost[0])
	}
	checkKept(t, r, mem, map[int]bool{0: true, 1: true})
}

func TestDuplicatesInOneLogAreCounted(t *testing.T) {
	mem, r := disktest.NewMem(1), newRows()
	l := mustStart(t, mem, r, nil)
	second := testEntry(0)
	second.Report = []byte("another report with the same id")
	elsewhere := testEntry(0)
	elsewhere.Bucket = 7200
	mustPut(t, l, testEntry(0), testEntry(6), second)
	mustPut(t, l, testEntry(0), elsewhere)
	mustSort(t, l)
	reports, duplicates := 0, 0
	for _, m := range r.segments {
		reports, duplicates = reports+m.Count, duplicates+m.Duplicates
		s, err := Open(mem, m)
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.Len() {
			if bytes.Equal(s.Report(i), second.Report) {
				t.Error("the later report was kept")
			}
		}
	}
	if reports != 3 || duplicates != 2 {
		t.Errorf("%d reports and %d duplicates, want 3 (one in another bucket) and 2", reports, duplicates)
	}
}

// The power fails at every place between durable steps, at each of its first passes, with
// many outcomes; the next life may lose power too. In the end each acknowledged report is
// in exactly one segment and nothing is in two.
func TestPowerLossAtEveryFailpoint(t *testing.T) {
	for _, point := range segmentFailpoints() {
		t.Run(point, func(t *testing.T) {
			reached := 0
			for seed := range uint64(48) {
				mem, r := disktest.NewMem(seed), newRows()
				acked := make(map[int]bool)
				next := 0
				for range 3 {
					var fp disk.Failpoints
					cutAt(mem, &fp, point, int(seed%4))
					next = livesUntilCut(mem, r, &fp, acked, next)
					if fp.Hits()[point] > int(seed%4) {
						reached++
					}
					mem = mem.Crash()
				}
				l := mustStart(t, mem, r, nil)
				mustSort(t, l)
				checkKept(t, r, mem, acked)
				if left, err := lost.List(mem); err != nil || len(left) != 0 {
					t.Errorf("seed %d: a power loss was taken for a lost row: %v %v", seed, left, err)
				}
				if extra := len(files(t, mem, "segments")) - len(r.segments); extra != 0 {
					t.Errorf("seed %d: %d segment files without a row", seed, extra)
				}
				if logs := files(t, mem, "inbox"); len(logs) != 1 {
					t.Errorf("seed %d: logs left: %v", seed, logs)
				}
				if st := l.sorter.Stats(); st.Damaged != 0 {
					t.Errorf("seed %d: a power loss was taken for damage", seed)
				}
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			if reached == 0 {
				t.Error("never reached")
			}
		})
	}
}

// livesUntilCut puts reports from several goroutines and sorts until the power fails; it
// notes what was acknowledged.
func livesUntilCut(mem *disktest.Mem, r *rows, fp *disk.Failpoints, acked map[int]bool, next int) int {
	l, err := start(mem, r, fp)
	if err != nil {
		return next
	}
	defer l.inbox.Close()
	var mu sync.Mutex
	for range 6 {
		var wg sync.WaitGroup
		for range 3 {
			from := next
			next += 3
			wg.Go(func() {
				err := l.inbox.Put(context.Background(), testEntries(from, from+3))
				mu.Lock()
				defer mu.Unlock()
				for n := from; n < from+3; n++ {
					acked[n] = err == nil
				}
			})
		}
		wg.Wait()
		l.sorter.Sort(context.Background())
	}
	return next
}

// Every single call that changes the disk fails once, in turn, without a power loss: the
// same process goes on, or after a failed sync of the log the next one does.
func TestEveryDiskErrorOnce(t *testing.T) {
	for _, thenCrash := range []bool{false, true} {
		for at := 1; ; at++ {
			mem, r := disktest.NewMem(uint64(at)), newRows()
			calls, failed := 0, false
			mem.Inject(func(op disktest.Op, _ string) error {
				if op == disktest.OpRead || op == disktest.OpOpen {
					return nil
				}
				calls++
				if calls == at {
					failed = true
					return errInjected
				}
				return nil
			})
			acked := make(map[int]bool)
			livesUntilCut(mem, r, nil, acked, 0)
			mem.Inject(nil)
			if thenCrash {
				mem = mem.Crash()
			}
			l := mustStart(t, mem, r, nil)
			mustSort(t, l)
			checkKept(t, r, mem, acked)
			if t.Failed() {
				t.Fatalf("with call %d failing (crash after: %v)", at, thenCrash)
			}
			if !failed {
				if at < 30 {
					t.Errorf("only %d calls", at)
				}
				break
			}
		}
	}
}

// The commit fails without effect, or took effect and is reported as failed.
func TestCommitLostOrReportedLost(t *testing.T) {
	for _, after := range []bool{false, true} {
		mem, r := disktest.NewMem(1), newRows()
		l := mustStart(t, mem, r, nil)
		mustPut(t, l, testEntries(0, 4)...)
		fails := 2
		r.fail = func(a bool) error {
			if a == after && fails > 0 {
				fails--
				return errInjected
			}
			return nil
		}
		if _, err := l.sorter.Sort(context.Background()); !errors.Is(err, errInjected) {
			t.Errorf("sort: %v", err)
		}
		mustPut(t, l, testEntries(4, 8)...)
		l.sorter.Sort(context.Background())
		mustSort(t, l)
		acked := make(map[int]bool)
		for n := range 8 {
			acked[n] = true
		}
		checkKept(t, r, mem, acked)
	}
}

func TestFullDiskHeals(t *testing.T) {
	mem, r := disktest.NewMem(3), newRows()
	l := mustStart(t, mem, r, nil)
	mustPut(t, l, testEntries(0, 3)...)
	full := true
	mem.Inject(func(op disktest.Op, _ string) error {
		if full && op == disktest.OpWrite {
			return errInjected
		}
		return nil
	})
	if err := l.inbox.Put(t.Context(), testEntries(3, 6)); !errors.Is(err, disk.ErrStateUnknown) {
		t.Errorf("first Put on a full disk: %v, want ErrStateUnknown", err)
	}
	if err := l.inbox.Put(t.Context(), testEntries(6, 9)); !errors.Is(err, ErrBusy) {
		t.Errorf("second Put on a full disk: %v, want ErrBusy", err)
	}
	full = false
	mustPut(t, l, testEntries(9, 12)...)
	mustSort(t, l)
	acked := map[int]bool{0: true, 1: true, 2: true, 3: false, 6: false, 9: true, 10: true, 11: true}
	checkKept(t, r, mem, acked)
	if r.kept(t, mem)[testEntry(6).ReportID] != 0 {
		t.Error("a report refused with ErrBusy was kept")
	}
}

func TestFailedSyncStopsTheInbox(t *testing.T) {
	mem, r := disktest.NewMem(3), newRows()
	l := mustStart(t, mem, r, nil)
	mustPut(t, l, testEntries(0, 3)...)
	mem.Inject(func(op disktest.Op, _ string) error {
		if op == disktest.OpSync {
			return errInjected
		}
		return nil
	})
	if err := l.inbox.Put(t.Context(), testEntries(3, 6)); !errors.Is(err, disk.ErrStateUnknown) {
		t.Errorf("Put: %v, want ErrStateUnknown", err)
	}
	mem.Inject(nil)
	if err := l.inbox.Put(t.Context(), testEntries(6, 9)); !errors.Is(err, disk.ErrLogFailed) {
		t.Errorf("Put after the failed sync: %v, want ErrLogFailed", err)
	}
	if l.inbox.Err() == nil {
		t.Error("the inbox does not say that it is broken")
	}
	l.inbox.Close()
	next := mustStart(t, mem, r, nil)
	mustSort(t, next)
	checkKept(t, r, mem, map[int]bool{0: true, 1: true, 2: true, 3: false, 4: false, 5: false})
}

func TestOpenRefusesWhatTheRowDoesNotName(t *testing.T) {
	mem, r := disktest.NewMem(1), newRows()
	l := mustStart(t, mem, r, nil)
	mustPut(t, l, testEntry(0), testEntry(6))
	mustSort(t, l)
	var meta Meta
	for _, meta = range r.segments {
	}
	whole, err := disk.ReadFile(mem, meta.Name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		flipped := bytes.Clone(whole)
		flipped[n] ^= 1
		if err := disk.WriteFile(mem, meta.Name, flipped); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(mem, meta); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d flipped: %v, want ErrCorrupt", n, err)
		}
	}
	for _, n := range []int{0, 1, len(whole) - 1} {
		if err := disk.WriteFile(mem, meta.Name, whole[:n]); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(mem, meta); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v, want ErrCorrupt", n, err)
		}
	}
	if err := disk.WriteFile(mem, meta.Name, whole, []byte{0}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(mem, meta); !errors.Is(err, ErrCorrupt) {
		t.Errorf("one byte longer: %v, want ErrCorrupt", err)
	}
	if err := disk.WriteFile(mem, meta.Name, whole); err != nil {
		t.Fatal(err)
	}
	other := meta
	other.Bucket++
	if _, err := Open(mem, other); !errors.Is(err, ErrCorrupt) {
		t.Errorf("opened as another bucket: %v, want ErrCorrupt", err)
	}
	if _, err := Open(mem, meta); err != nil {
		t.Error(err)
	}
	if err := Remove(mem, meta.Name, meta.Name); err != nil {
		t.Error(err)
	}
	if _, err := Open(mem.Crash(), meta); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Remove and a power loss: %v, want fs.ErrNotExist", err)
	}
}

func TestPutLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := disktest.NewMem(1)
		mem.Inject(func(op disktest.Op, _ string) error {
			if op == disktest.OpSync {
				time.Sleep(time.Second)
			}
			return nil
		})
		in, err := OpenInbox(t.Context(), mem, newRows(), InboxOptions{MaxReport: 1000, MaxInFlight: 1500, MaxUnsorted: 3000})
		if err != nil {
			t.Fatal(err)
		}
		e := Entry{Report: make([]byte, 1001)}
		if err := in.Put(t.Context(), []Entry{e}); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v, want ErrTooLarge", err)
		}
		e.Report = e.Report[:1000]
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := in.Put(t.Context(), []Entry{e}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if err := in.Put(t.Context(), []Entry{e}); !errors.Is(err, ErrBusy) {
			t.Errorf("with another in flight: %v, want ErrBusy", err)
		}
		wg.Wait()
		if err := in.Put(t.Context(), []Entry{e}); err != nil {
			t.Errorf("after it landed: %v", err)
		}
		if err := in.Put(t.Context(), []Entry{e}); !errors.Is(err, ErrBusy) {
			t.Errorf("with too much unsorted: %v, want ErrBusy", err)
		}
		in.Close()
		if err := in.Put(t.Context(), []Entry{{Report: []byte("x")}}); !errors.Is(err, disk.ErrLogClosed) {
			t.Errorf("after Close: %v, want ErrLogClosed", err)
		}
	})
}

// One call may be larger than a log record.
func TestPutSplitsLargeCalls(t *testing.T) {
	mem, r := disktest.NewMem(1), newRows()
	in, err := OpenInbox(t.Context(), mem, r, InboxOptions{MaxReport: 400, Log: disk.LogOptions{MaxRecord: 500}})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	s, err := NewSorter(in, SorterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Put(t.Context(), testEntries(0, 40)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sort(t.Context()); err != nil {
		t.Fatal(err)
	}
	if kept := r.kept(t, mem); len(kept) != 40 {
		t.Errorf("%d reports kept, want 40", len(kept))
	}
}

func TestRunSortsWithinLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, r := disktest.NewMem(1), newRows()
		in, err := OpenInbox(t.Context(), mem, r, InboxOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewSorter(in, SorterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		for round := range 3 {
			if err := in.Put(ctx, testEntries(round, round+1)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(249 * time.Millisecond)
			synctest.Wait()
			if got := s.Stats().Reports; got != int64(round) {
				t.Errorf("round %d: %d reports sorted before the latency is over", round, got)
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if got := s.Stats().Reports; got != int64(round+1) {
				t.Errorf("round %d: %d reports sorted when the latency is over", round, got)
			}
		}
		// A failure is tried again, later and later.
		fails := 3
		r.fail = func(bool) error {
			if fails > 0 {
				fails--
				return errInjected
			}
			return nil
		}
		if err := in.Put(ctx, testEntries(3, 4)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(250*time.Millisecond + 100*time.Millisecond + 200*time.Millisecond + 400*time.Millisecond)
		synctest.Wait()
		if st := s.Stats(); st.Reports != 4 || st.Failures != 3 {
			t.Errorf("after three failures: %+v", st)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
		in.Close()
	})
}

func FuzzReadEntries(f *testing.F) {
	whole := bytes.Join(recordParts(testEntries(0, 5), DefaultBytes, DefaultReports), nil)
	f.Add(whole)
	for n := range whole { // an end that is missing, of whatever
		if n%7 == 0 {
			f.Add(whole[:n])
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := readEntries(nil, b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("untyped error %v", err)
			}
			return
		}
		again, err := readEntries(nil, bytes.Join(recordParts(entries, DefaultBytes, DefaultReports), nil))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(entries) {
			t.Errorf("entries changed on the way: %v", err)
		}
	})
}

// mend makes the checksums of a segment without its trailer good where they can be found,
// so that a reader gets past them.
func mend(content []byte) []byte {
	b := bytes.Clone(content)
	at := len(b)
	if len(b) >= segmentHeader {
		count := uint64(binary.BigEndian.Uint32(b[12:]))
		at = int(min(uint64(at), segmentHeader+count*indexEntry))
	}
	for e := segmentHeader; e+indexEntry <= at; e += indexEntry {
		offset, length := uint64(binary.BigEndian.Uint32(b[e+16:])), uint64(binary.BigEndian.Uint32(b[e+20:]))
		if end := uint64(at) + offset + length; end <= uint64(len(b)) {
			binary.BigEndian.PutUint32(b[e+24:], crc32.Checksum(b[end-length:end], castagnoli))
		}
	}
	return append(b, sumOf(b[:at])...)
}

func FuzzParse(f *testing.F) {
	whole, _ := encode(testEntries(0, 1))
	f.Add(whole[:len(whole)-32])
	if _, err := parse(mend(whole[:len(whole)-32])); err != nil {
		f.Fatalf("what was whole does not parse: %v", err)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		s, err := parse(mend(content))
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
				t.Errorf("untyped error %v", err)
			}
			return
		}
		total := 0
		for i := range s.Len() {
			s.ReportID(i)
			total += len(s.Report(i))
		}
		if total != len(s.body) {
			t.Errorf("reports have %d bytes of %d", total, len(s.body))
		}
	})
}

// TestLargeReportsShareSmallSegments: memory is bounded by bytes, also where the default
// for small reports is generous.
func TestLargeReportsShareSmallSegments(t *testing.T) {
	for _, c := range []struct{ size, reports, want int }{
		{1 << 20, 20, 4}, {LargeReport, 40, 16}, {LargeReport - 1, 40, 24}, {5 << 20, 3, 1}, {20 << 10, 700, 307},
	} {
		entries := make([]Entry, c.reports)
		for i := range entries {
			entries[i].Report = make([]byte, c.size)
		}
		for part := range cutGroup(entries, DefaultBytes, DefaultReports) {
			if len(part) != c.want {
				t.Errorf("%d reports of %d bytes: %d in the first segment, want %d", c.reports, c.size, len(part), c.want)
			}
			break
		}
	}
}

// TestCame: a segment knows when the first report of its log was acknowledged, also where
// more came after it.
func TestCame(t *testing.T) {
	mem, r := disktest.NewMem(1), newRows()
	l := mustStart(t, mem, r, nil)
	before := time.Now().Unix()
	mustPut(t, l, testEntry(0))
	after := time.Now().Unix()
	mustPut(t, l, testEntry(6))
	mustSort(t, l)
	if len(r.segments) == 0 {
		t.Fatal("no segment")
	}
	for _, meta := range r.segments {
		if meta.Came < before || meta.Came > after {
			t.Errorf("%s came at %d, want %d to %d", meta.Name, meta.Came, before, after)
		}
	}
}
