package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/lost"
	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

func TestSlicesByTaskBucketAndSize(t *testing.T) {
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
	for _, m := range r.slices {
		if m.Count > 3 {
			t.Errorf("a slice has %d reports, more than MaxReports", m.Count)
		}
		if size := m.Size() - int64(m.Count*reportEntry); size > 600 && m.Count > 1 {
			t.Errorf("a slice has %d bytes of reports, more than MaxBytes", size)
		}
		if !strings.HasPrefix(m.Object, "inbox/") {
			t.Errorf("reports of a log of this life were copied to %s", m.Object)
		}
	}
	st := l.sorter.Stats()
	if st.Reports != 60 || st.Slices != int64(len(r.slices)) || st.Logs < 2 || st.Moved != 0 {
		t.Errorf("stats %+v, want 60 reports in %d slices of several logs", st, len(r.slices))
	}
	if u := l.inbox.Stats(); u.Unsorted != 0 || u.InFlight != 0 || u.ClosedLogs != 0 {
		t.Errorf("inbox %+v after sorting everything", u)
	}
	if copies := files(t, mem, "slices"); len(copies) != 0 {
		t.Errorf("written: %v", copies)
	}
	r.slices = nil // all are done
	r.bury(t, mem)
	if logs := files(t, mem, "inbox"); len(logs) != 1 {
		t.Errorf("logs left: %v", logs)
	}
}

// TestForgottenLogIsNotNotedAgain: a log was forgotten, and the sorter hears that it was
// not. The commit of the next log must not note it again, or the next start would count it
// as one that is lost.
func TestForgottenLogIsNotNotedAgain(t *testing.T) {
	mem, r := disktest.NewMem(1), newRows()
	l := mustStart(t, mem, r, nil)
	mustPut(t, l, testEntry(0))
	l.inbox.Close()
	l = mustStart(t, mem, r, nil) // copies what the first life has left
	r.forget = errInjected
	if logs, err := l.sorter.Sort(t.Context()); logs != 0 || !errors.Is(err, errInjected) {
		t.Fatalf("%d logs, %v", logs, err)
	}
	mustPut(t, l, testEntry(1))
	mustSort(t, l)
	if len(r.begun) != 1 {
		t.Errorf("begun are %v: want the log that takes uploads alone", r.begun)
	}
	l.inbox.Close()
	mustSort(t, mustStart(t, mem, r, nil))
	if len(r.lost) != 0 {
		t.Errorf("a log that was sorted counts as lost: %+v", r.lost[0])
	}
	checkKept(t, r, mem, map[int]bool{0: true, 1: true})
}

// TestUnsureLogsAreCopied: no row rests on bytes that a loss of power could still take
// away. What another life has left was perhaps never synced, and comes into a copy that is.
func TestUnsureLogsAreCopied(t *testing.T) {
	mem, r := disktest.NewMem(1), newRows()
	l := mustStart(t, mem, r, nil)
	mustPut(t, l, testEntries(0, 9)...)
	l.inbox.Close()
	l = mustStart(t, mem, r, nil)
	mustPut(t, l, testEntries(9, 12)...)
	mustSort(t, l)
	for _, s := range r.slices {
		reports, err := OpenSlices(t.Context(), payload.OpenFiles(mem), []Slice{s})
		if err != nil {
			t.Fatal(err)
		}
		id := reports.ReportID(0)
		if old := id[7] < 9; old != strings.HasPrefix(s.Object, "slices/") {
			t.Errorf("report %d is named in %s", id[7], s.Object)
		}
		reports.Close()
	}
	r.bury(t, mem)
	if logs := files(t, mem, "inbox"); len(logs) != 2 {
		t.Errorf("logs are %v, want that which takes uploads and that which has slices", logs)
	}
	checkKept(t, r, mem.Crash(), map[int]bool{0: true, 8: true, 9: true, 11: true})
}

// TestNamedLogsStay: a log whose slices wait is left alone by the next lives, whatever
// becomes of its header.
func TestNamedLogsStay(t *testing.T) {
	mem, r := disktest.NewMem(1), newRows()
	l := mustStart(t, mem, r, nil)
	mustPut(t, l, testEntries(0, 9)...)
	mustSort(t, l)
	name := r.slices[0].Object
	l.inbox.Close()
	content, err := disk.ReadFile(mem, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	clear(content[:disk.LogHeaderSize])
	if err := disk.WriteFile(mem, name, content); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		l := mustStart(t, mem, r, nil)
		mustSort(t, l)
		l.inbox.Close()
	}
	checkKept(t, r, mem, map[int]bool{0: true, 4: true, 8: true})
	if len(r.lost) != 0 {
		t.Errorf("lost %+v", r.lost[0])
	}
}

// TestRepeatedIDsStay: ids that come again in a log stay in its slices, the first one first.
func TestRepeatedIDsStay(t *testing.T) {
	mem, r := disktest.NewMem(1), newRows()
	l := mustStart(t, mem, r, nil)
	second := testEntry(0)
	second.Report = []byte("another report with the same id")
	mustPut(t, l, testEntry(0), second)
	mustPut(t, l, testEntry(0))
	mustSort(t, l)
	reports, err := OpenSlices(t.Context(), payload.OpenFiles(mem), r.slices)
	if err != nil {
		t.Fatal(err)
	}
	if reports.Len() != 3 || reports.Repeated(0) || !reports.Repeated(1) || !reports.Repeated(2) || !bytes.Equal(reports.Report(1), second.Report) {
		t.Errorf("%d reports, repeated %v", reports.Len(), reports.repeated)
	}
}

// The power fails at every place between durable steps, at each of its first passes, with
// many outcomes; the next life may lose power too. In the end each acknowledged report is
// in exactly one slice and nothing is in two.
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
				live := r.live()
				for _, name := range files(t, mem, "slices") {
					if !slices.Contains(live, name) {
						t.Errorf("seed %d: no row names %s", seed, name)
					}
				}
				r.slices = nil
				r.bury(t, mem)
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
	if err := l.inbox.Put(context.Background(), testEntries(next, next+3)); err == nil { // for the next life
		acked[next], acked[next+1], acked[next+2] = true, true, true
	}
	return next + 3
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

// TestLargeReportsShareSmallSlices: memory is bounded by bytes, also where the default
// for small reports is generous.
func TestLargeReportsShareSmallSlices(t *testing.T) {
	for _, c := range []struct{ size, reports, want int }{
		{1 << 20, 20, 4}, {LargeReport, 40, 16}, {LargeReport - 1, 40, 24}, {5 << 20, 3, 1}, {20 << 10, 700, 307},
	} {
		entries := make([]Entry, c.reports)
		for i := range entries {
			entries[i].Report = make([]byte, c.size)
		}
		for part := range cutGroup(entries, DefaultBytes, DefaultReports) {
			if len(part) != c.want {
				t.Errorf("%d reports of %d bytes: %d in the first part, want %d", c.reports, c.size, len(part), c.want)
			}
			break
		}
	}
}

// TestCame: a slice knows when the first report of its log was acknowledged, also where more
// came after it.
func TestCame(t *testing.T) {
	mem, r := disktest.NewMem(1), newRows()
	l := mustStart(t, mem, r, nil)
	before := time.Now().Unix()
	mustPut(t, l, testEntry(0))
	after := time.Now().Unix()
	mustPut(t, l, testEntry(6))
	mustSort(t, l)
	if len(r.slices) == 0 {
		t.Fatal("no slice")
	}
	for _, s := range r.slices {
		if s.Came < before || s.Came > after {
			t.Errorf("%s came at %d, want %d to %d", &s, s.Came, before, after)
		}
	}
}

// TestNamedBeforeItIsCounted: reports that rows name before Put has come to count them, for
// its goroutine was not run meanwhile, do not count as unnamed for good.
func TestNamedBeforeItIsCounted(t *testing.T) {
	in, err := OpenInbox(t.Context(), disktest.NewMem(1), newRows(), InboxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	s, err := NewSorter(in, SorterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e := []Entry{testEntry(1)}
	size := int64(e[0].encodedSize())
	// Put, in its steps.
	if err := in.reserve(size); err != nil {
		t.Fatal(err)
	}
	in.note(e)
	if err := in.append(t.Context(), recordParts(e, in.opt.JobBytes, in.opt.JobReports)); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sort(t.Context()); n != 1 || err != nil {
		t.Fatalf("%d logs were sorted: %v", n, err)
	}
	in.came(e)
	in.note(e)
	if !in.May(e[0].TaskID) {
		t.Error("while the upload is under way its reports are not counted, so that this shows nothing")
	}
	in.release(size)
	if n := in.Waiting(e[0].TaskID); n != 0 || in.May(e[0].TaskID) {
		t.Errorf("%d reports count as unnamed, and rows name them", n)
	}
}
