package segment

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/lost"
	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

var errInjected = errors.New("injected")

// rows stands in for the database: it survives a power loss whole, and each of its calls
// may be made to fail before or after it took effect.
type rows struct {
	mu     sync.Mutex
	fates  map[disk.LogID]Fate
	files  map[string]disk.LogID // of the logs that have a fate
	begun  map[disk.LogID]string // and not sorted
	slices []Slice               // that wait
	lost   []*LogDamage
	fail   func(after bool) error // of CommitLog; nil never fails
	forget error                  // of ForgetLog, once, after it took effect
}

func newRows() *rows {
	return &rows{fates: make(map[disk.LogID]Fate), files: make(map[string]disk.LogID), begun: make(map[disk.LogID]string)}
}

func (r *rows) LogFate(_ context.Context, log Begun) (Fate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id, ok := r.files[log.File]; ok {
		return r.fates[id], nil
	}
	return r.fates[log.ID], nil
}

func (r *rows) CommitLog(_ context.Context, log Begun, list []Slice, lost *LogDamage, others []Begun) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		if err := r.fail(false); err != nil {
			return err
		}
	}
	if r.fates[log.ID] != Unsorted {
		panic("a log that is recorded as sorted was sorted again")
	}
	r.fates[log.ID], r.files[log.File] = Named, log.ID
	if lost != nil || len(list) > 0 && list[0].Object != log.File {
		r.fates[log.ID] = Replaced
	}
	delete(r.begun, log.ID)
	r.begin(others)
	if lost != nil {
		r.lost = append(r.lost, lost)
	}
	r.slices = append(r.slices, list...)
	if r.fail != nil {
		return r.fail(true)
	}
	return nil
}

func (r *rows) begin(logs []Begun) {
	for _, b := range logs {
		if r.fates[b.ID] == Unsorted {
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
	delete(r.fates, log)
	maps.DeleteFunc(r.files, func(_ string, id disk.LogID) bool { return id == log })
	err := r.forget
	r.forget = nil
	return err
}

// live are the files that rows name, but for those of logs.
func (r *rows) live() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.slices {
		if name := r.slices[i].Object; strings.HasPrefix(name, "slices/") {
			names = append(names, name)
		}
	}
	return names
}

// page is [Rows].
func (r *rows) page(_ context.Context, cursor int64, n int) ([]Slice, int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := min(cursor+int64(n), int64(len(r.slices)))
	return slices.Clone(r.slices[cursor:end]), end, nil
}

// bury does what tombstones do for logs that have no slice any more.
func (r *rows) bury(t *testing.T, fsys disk.FS) {
	t.Helper()
	for name, id := range r.files {
		if r.fates[id] == Named && !slices.ContainsFunc(r.slices, func(s Slice) bool { return s.Object == name }) {
			if err := disk.Remove(fsys, name); err != nil {
				t.Fatal(err)
			}
			delete(r.files, name)
			delete(r.fates, id)
		}
	}
}

// kept counts in how many named slices each report is, and checks that each is whole and in
// its place.
func (r *rows) kept(t *testing.T, fsys disk.FS) map[ReportID]int {
	t.Helper()
	count := make(map[ReportID]int)
	for _, s := range r.slices {
		reports, err := OpenSlices(t.Context(), payload.OpenFiles(fsys), []Slice{s})
		if err != nil {
			t.Errorf("a row names a slice that does not open: %v", err)
			continue
		}
		for i := range reports.Len() {
			id := reports.ReportID(i)
			want := testEntry(int(binary.BigEndian.Uint64(id[:])))
			if id != want.ReportID || string(reports.Report(i)) != string(want.Report) || s.TaskID != want.TaskID ||
				s.Bucket != want.Bucket {
				t.Errorf("%s: report %d is not what was put", &s, i)
			}
			count[id]++
		}
	}
	return count
}

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
	waiting := &Waiting{FS: fsys, Inbox: "inbox", Committer: r, Rows: r.page, MaxBytes: 600, MaxReports: 3}
	room := lost.Room{FS: fsys, Newest: func() uint64 { return 1 }, Again: waiting.Holds, Failpoints: fp}
	if _, err := room.Sweep(context.Background(), r.live(), "slices"); err != nil {
		return nil, err
	}
	in, err := OpenInbox(context.Background(), fsys, r, InboxOptions{RotateBytes: 2000, JobReports: 3, JobBytes: 600, Log: disk.LogOptions{Failpoints: fp}})
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
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
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

// checkKept demands that the acknowledged reports are in exactly one slice each and the
// others in at most one.
func checkKept(t *testing.T, r *rows, fsys disk.FS, acked map[int]bool) {
	t.Helper()
	kept := r.kept(t, fsys)
	for n, ok := range acked {
		if got := kept[testEntry(n).ReportID]; ok && got != 1 || got > 1 {
			t.Errorf("report %d (acknowledged: %v) is in %d slices", n, ok, got)
		}
	}
}

func cutAt(mem *disktest.Mem, fp *disk.Failpoints, point string, skip int) {
	fp.Arm(point, skip, func() error { mem.Cut(); return disktest.ErrPowerLoss })
}
