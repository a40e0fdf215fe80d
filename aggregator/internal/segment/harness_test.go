package segment

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/lost"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

var errInjected = errors.New("injected")

// rows stands in for the database: it survives a power loss whole, and each of its calls
// may be made to fail before or after it took effect.
type rows struct {
	mu       sync.Mutex
	logs     map[disk.LogID]bool
	begun    map[disk.LogID]string // and not sorted
	segments map[string]Meta
	lost     []*LogDamage
	fail     func(after bool) error // of CommitLog; nil never fails
	forget   error                  // of ForgetLog, once, after it took effect
}

func newRows() *rows {
	return &rows{logs: make(map[disk.LogID]bool), begun: make(map[disk.LogID]string), segments: make(map[string]Meta)}
}

func (r *rows) SegmentsOfLog(_ context.Context, log disk.LogID) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.logs[log], nil
}

func (r *rows) CommitLog(_ context.Context, log disk.LogID, metas []Meta, lost *LogDamage, others []Begun) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		if err := r.fail(false); err != nil {
			return err
		}
	}
	if r.logs[log] {
		panic("a log that is recorded as sorted was sorted again")
	}
	r.logs[log] = true
	delete(r.begun, log)
	r.begin(others)
	if lost != nil {
		r.lost = append(r.lost, lost)
	}
	for _, m := range metas {
		if _, ok := r.segments[m.Name]; ok {
			panic("two rows with one name")
		}
		r.segments[m.Name] = m
	}
	if r.fail != nil {
		return r.fail(true)
	}
	return nil
}

func (r *rows) begin(logs []Begun) {
	for _, b := range logs {
		if !r.logs[b.ID] {
			r.begun[b.ID] = b.File
		}
	}
}

func (r *rows) BeginLogs(_ context.Context, logs []Begun) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(logs)
	return nil
}

func (r *rows) BegunLogs(context.Context) (logs []Begun, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, file := range r.begun {
		logs = append(logs, Begun{id, file})
	}
	return logs, nil
}

func (r *rows) ForgetLog(_ context.Context, log disk.LogID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.logs, log)
	err := r.forget
	r.forget = nil
	return err
}

func (r *rows) live() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.segments))
}

// kept counts in how many committed segments each report is, and checks that each report
// is whole and in its place.
func (r *rows) kept(t *testing.T, fsys disk.FS) map[ReportID]int {
	t.Helper()
	count := make(map[ReportID]int)
	for _, m := range r.segments {
		s, err := Open(fsys, m)
		if err != nil {
			t.Errorf("a row names a segment that does not open: %v", err)
			continue
		}
		for i := range s.Len() {
			want := testEntry(int(binary.BigEndian.Uint64(s.reportID(i))))
			if s.ReportID(i) != want.ReportID || string(s.Report(i)) != string(want.Report) || m.TaskID != want.TaskID ||
				m.Bucket != want.Bucket {
				t.Errorf("segment %s: report %d is not what was put", m.Name, i)
			}
			count[s.ReportID(i)]++
		}
	}
	return count
}

func (s *Segment) reportID(i int) []byte { id := s.ReportID(i); return id[:] }

// testEntry is the n-th report; it follows from n alone, and its id begins with n.
func testEntry(n int) Entry {
	var e Entry
	binary.BigEndian.PutUint64(e.ReportID[:], uint64(n))
	e.ReportID[15] = byte(n * 31)
	e.TaskID[31] = byte(n % 3)
	e.Bucket = 3600 * uint64(n%2)
	e.Report = []byte(fmt.Sprintf("report %d %s", n, strings.Repeat("x", n*37%300)))
	return e
}

func testEntries(from, to int) []Entry {
	var entries []Entry
	for n := from; n < to; n++ {
		entries = append(entries, testEntry(n))
	}
	return entries
}

// life is one run of the process.
type life struct {
	inbox  *Inbox
	sorter *Sorter
}

func start(fsys disk.FS, r *rows, fp *disk.Failpoints) (*life, error) {
	room := lost.Room{FS: fsys, Newest: func() uint64 { return 1 }, Again: NewWaiting(fsys, "inbox", r).Holds, Failpoints: fp}
	if _, err := room.Sweep(context.Background(), r.live(), "segments"); err != nil {
		return nil, err
	}
	in, err := OpenInbox(context.Background(), fsys, r, InboxOptions{RotateBytes: 2000, Log: disk.LogOptions{Failpoints: fp}})
	if err != nil {
		return nil, err
	}
	s, err := NewSorter(in, SorterOptions{MaxReports: 3, MaxBytes: 600, Failpoints: fp})
	if err != nil {
		in.Close()
		return nil, err
	}
	return &life{in, s}, nil
}

func mustStart(t *testing.T, fsys disk.FS, r *rows, fp *disk.Failpoints) *life {
	t.Helper()
	l, err := start(fsys, r, fp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.inbox.Close() })
	return l
}

func mustSort(t *testing.T, l *life) {
	t.Helper()
	if _, err := l.sorter.Sort(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func mustPut(t *testing.T, l *life, entries ...Entry) {
	t.Helper()
	if err := l.inbox.Put(context.Background(), entries); err != nil {
		t.Fatal(err)
	}
}

// files lists every file below dir.
func files(t *testing.T, fsys disk.FS, dir string) []string {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if name := path.Join(dir, e.Name); e.Dir {
			names = append(names, files(t, fsys, name)...)
		} else {
			names = append(names, name)
		}
	}
	return names
}

// checkKept demands that the acknowledged reports are in exactly one segment each and the
// others in at most one.
func checkKept(t *testing.T, r *rows, fsys disk.FS, acked map[int]bool) {
	t.Helper()
	kept := r.kept(t, fsys)
	for n, ok := range acked {
		if got := kept[testEntry(n).ReportID]; ok && got != 1 || got > 1 {
			t.Errorf("report %d (acknowledged: %v) is in %d segments", n, ok, got)
		}
	}
}

func cutAt(mem *disktest.Mem, fp *disk.Failpoints, point string, skip int) {
	fp.Arm(point, skip, func() error { mem.Cut(); return disktest.ErrPowerLoss })
}
