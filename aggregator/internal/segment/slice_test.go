package segment

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/payload/payloadtest"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// commits puts n objects, each of five reports of one task and batch bucket, of which two
// came in the object before too, and one of another task.
func commits(t *testing.T, store payload.Store, n int) (rows []Slice, others []Slice) {
	t.Helper()
	for i := range n {
		entries := []Entry{{TaskID: TaskID{9}, Bucket: 300, ReportID: ReportID{byte(i)}, Report: []byte("other")}}
		for j := range 5 {
			entries = append(entries, Entry{
				TaskID: TaskID{1}, Bucket: 300, ReportID: ReportID{byte(3*i + j)}, Report: fmt.Appendf(nil, "report %d of %d", j, i),
			})
		}
		d := putObject(t, store, fmt.Sprintf("slices/%d.obj", i), entries)
		rows, others = append(rows, d[0].row(0)), append(others, d[1].row(0))
	}
	return rows, others
}

// TestOpenSlices: a job has the reports of several objects in the order of its slices, and
// knows those whose id came before, however often it is made.
func TestOpenSlices(t *testing.T) {
	store := payloadtest.NewMem()
	rows, _ := commits(t, store, 20)
	for range 3 {
		r, err := OpenSlices(t.Context(), store, rows)
		if err != nil || r.Len() != 100 {
			t.Fatal(err)
		}
		for i := range r.Len() {
			object, report := i/5, i%5
			id, body := ReportID{byte(3*object + report)}, fmt.Sprintf("report %d of %d", report, object)
			if r.ReportID(i) != id || string(r.Report(i)) != body || r.Repeated(i) != (object > 0 && report < 2) {
				t.Errorf("report %d is %x, %q, repeated %t", i, r.ReportID(i), r.Report(i), r.Repeated(i))
			}
		}
		r.Close()
		r.Close()
	}
}

// TestOpenSlicesErrors: each slice that cannot be opened is told of, and why, and whether
// its reports are lost; all others are left as they are. A slice of another task or batch
// bucket is never taken in.
func TestOpenSlicesErrors(t *testing.T) {
	mem := payloadtest.NewMem()
	rows, others := commits(t, mem, 5)
	if err := mem.Delete(t.Context(), rows[1].Object); err != nil {
		t.Fatal(err)
	}
	rows[3].Sum[0]++
	rows[4] = others[4]
	later := putObject(t, mem, "slices/later.obj", []Entry{{TaskID: TaskID{1}, Bucket: 600, Report: []byte("later")}})
	rows = append(rows, later[0].row(0))
	_, err := OpenSlices(t.Context(), mem, rows)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%v", err)
	}
	want := []struct {
		index int
		is    error
	}{{1, payload.ErrNotFound}, {3, ErrCorrupt}, {4, ErrCorrupt}, {5, ErrCorrupt}}
	for i, err := range joined.Unwrap() {
		var of *SliceError
		if i >= len(want) || !errors.As(err, &of) || of.Index != want[i].index || of.Slice.Object != rows[of.Index].Object ||
			!errors.Is(err, want[i].is) || !of.Gone() {
			t.Errorf("error %d: %v", i, err)
		}
	}
	if n := len(joined.Unwrap()); n != len(want) {
		t.Errorf("%d errors", n)
	}
	faults := payloadtest.NewFaults(1)
	store := faults.Wrap(mem)
	faults.Next(payloadtest.Refused)
	var of *SliceError
	if _, err := OpenSlices(t.Context(), store, rows[:1]); !errors.As(err, &of) || of.Gone() {
		t.Errorf("a store that does not answer: %v", err)
	}
	r, err := OpenSlices(t.Context(), store, []Slice{rows[0], rows[2]})
	if err != nil || r.Len() != 10 {
		t.Fatalf("what is left: %v", err)
	}
	r.Close()
}

// requests makes a log of n requests, of one task and bucket or of two by turns, with
// reports of a size, and lists its slices.
func requests(t testing.TB, fsys disk.FS, n, size, maxBytes, maxReports int) (all []Entry, list []Slice) {
	t.Helper()
	in, err := OpenInbox(t.Context(), fsys, newRows(), InboxOptions{JobBytes: maxBytes, JobReports: maxReports})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		var entries []Entry
		for j := range 1 + i%3 {
			e := Entry{TaskID: TaskID{1}, Bucket: uint64(j % 2 * 300), Report: bytes.Repeat([]byte{byte(i), byte(j)}, size/2)}
			e.ReportID = ReportID{byte(i >> 8), byte(i), byte(j)}
			entries = append(entries, e)
		}
		if i == n/2 {
			entries = append(entries, all[0]) // once more
		}
		if err := in.Put(t.Context(), entries); err != nil {
			t.Fatal(err)
		}
		all = append(all, entries...)
	}
	name := in.log.State().Name
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	scan, err := disk.ScanLog(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	list, malformed := logSlices(name, &scan, 7, maxBytes, maxReports)
	if malformed != nil {
		t.Fatalf("%d records are none", len(malformed))
	}
	return all, list
}

// TestLogSlices: the slices of a log have each report that was put into it, where a job
// finds it, in order of arrival, and no slice has more than a job takes.
func TestLogSlices(t *testing.T) {
	for _, tc := range []struct{ requests, size, bytes, reports, slices int }{
		{60, 20, DefaultBytes, DefaultReports, 2}, // pieces lie close together
		{40, 50_000, 1 << 30, DefaultReports, 2},  // and far apart
		{60, 20, DefaultBytes, 10, 13},            // cut by reports
		{60, 20, 200, DefaultReports, 13},         // and by bytes
		{5, 20, 1, 1, 10},                         // not even one fits
	} {
		mem := disktest.NewMem(1)
		all, list := requests(t, mem, tc.requests, tc.size, tc.bytes, tc.reports)
		if len(list) != tc.slices {
			t.Errorf("%+v: %d slices", tc, len(list))
		}
		store := payload.OpenFiles(mem)
		found, repeated := make(map[int]int), 0
		for _, s := range list {
			if s.Came != 7 || s.Count > max(tc.reports, 1) {
				t.Errorf("%+v: slice %+v", tc, s)
			}
			r, err := OpenSlices(t.Context(), store, []Slice{s})
			if err != nil {
				t.Fatal(err)
			}
			last := -1
			for i := range r.Len() {
				at := last + 1 + slices.IndexFunc(all[last+1:], func(e Entry) bool {
					return e.TaskID == s.TaskID && e.Bucket == s.Bucket && e.ReportID == r.ReportID(i) && bytes.Equal(e.Report, r.Report(i))
				})
				if at <= last {
					t.Fatalf("%+v: report %d of %v was never put, or earlier", tc, i, &s)
				}
				if r.Repeated(i) {
					repeated++
				}
				found[at]++
				last = at
			}
			r.Close()
		}
		if n := len(all); tc.slices == 2 && (len(found) != n || repeated != 1) {
			t.Errorf("%+v: %d of %d reports are found, %d repeated", tc, len(found), n, repeated)
		}
		r, err := OpenSlices(t.Context(), store, slices.DeleteFunc(slices.Clone(list), func(s Slice) bool { return s.Bucket != 0 }))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for i := range all {
			if all[i].Bucket == 0 {
				n++
			}
		}
		if r.Len() != n {
			t.Errorf("%+v: one job of all slices of a bucket has %d reports of %d", tc, r.Len(), n)
		}
		r.Close()
	}
}

// TestLogSliceDamage: whatever byte of a log is another, a slice that has it in a piece is
// refused, and every other slice is read. No row needs the rest of the log.
func TestLogSliceDamage(t *testing.T) {
	mem := disktest.NewMem(1)
	_, list := requests(t, mem, 6, 8, DefaultBytes, DefaultReports)
	name := list[0].Object
	whole, err := disk.ReadFile(mem, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	hit := 0
	for at := range whole {
		b := bytes.Clone(whole)
		b[at] ^= 1 << (at % 8)
		store := payloadtest.NewMem()
		if err := store.Put(t.Context(), name, b); err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			damaged := slices.ContainsFunc(s.Pieces, func(p Piece) bool { return int64(at) >= p.Offset && int64(at) < p.end() })
			r, err := OpenSlices(t.Context(), store, []Slice{s})
			switch {
			case damaged && !errors.Is(err, ErrCorrupt):
				t.Errorf("byte %d: %v is taken: %v", at, &s, err)
			case !damaged && err != nil:
				t.Errorf("byte %d: %v is not: %v", at, &s, err)
			case damaged:
				hit++
			default:
				r.Close()
			}
		}
	}
	if hit == 0 || hit >= len(whole) {
		t.Errorf("%d of %d bytes are in slices", hit, len(whole))
	}
}

// TestDamagedLogSlices: of a log with a gap every whole record is in a slice, those behind
// the gap at their own places, and a record that is whole and none of ours is told of.
func TestDamagedLogSlices(t *testing.T) {
	mem := disktest.NewMem(1)
	log, err := disk.CreateLog(mem, "a.log", disk.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		e := testEntry(i)
		e.TaskID, e.Bucket = TaskID{1}, 300
		parts := recordParts([]Entry{e}, DefaultBytes, DefaultReports)
		if i == 3 {
			parts = append(parts, []byte("no block"))
		}
		if err := log.Append(t.Context(), parts...); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := disk.ReadFile(mem, "a.log", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	first := testEntry(0)
	file[disk.LogHeaderSize+disk.FrameOverhead+first.encodedSize()+disk.FrameOverhead+blockHeader] ^= 1 // of the second record
	if err := disk.WriteFile(mem, "a.log", file); err != nil {
		t.Fatal(err)
	}
	scan, err := disk.ScanLog(mem, "a.log")
	if err != nil || len(scan.Records) != 1 || len(scan.Behind) != 3 {
		t.Fatalf("%d records, %d behind, %v", len(scan.Records), len(scan.Behind), err)
	}
	list, malformed := logSlices("a.log", &scan, 0, DefaultBytes, DefaultReports)
	if len(list) != 1 || list[0].Count != 3 || len(malformed) != 1 {
		t.Fatalf("slices %+v, %d malformed", list, len(malformed))
	}
	r, err := OpenSlices(t.Context(), payload.OpenFiles(mem), list)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range []int{0, 2, 4} {
		if want := testEntry(n); r.ReportID(i) != want.ReportID || !bytes.Equal(r.Report(i), want.Report) {
			t.Errorf("report %d is %x", i, r.ReportID(i))
		}
	}
	r.Close()
}

// TestPieces: a row keeps pieces in few bytes, and gives back no others.
func TestPieces(t *testing.T) {
	pieces := []Piece{{64, 300, 1}, {500, 1 << 20, 4000}, {1 << 40, 25, 1}}
	b := AppendPieces(nil, pieces)
	if got, err := ReadPieces(b); err != nil || !slices.Equal(got, pieces) || len(b) > 22 {
		t.Errorf("%d bytes, %v, %v", len(b), got, err)
	}
	for n := range b {
		got, err := ReadPieces(b[:n])
		if err == nil && slices.Equal(got, pieces) || err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d bytes: %v, %v", n, got, err)
		}
	}
}

func FuzzReadPieces(f *testing.F) {
	f.Add(AppendPieces(nil, []Piece{{64, 300, 1}, {500, 1 << 20, 4000}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		pieces, err := ReadPieces(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("untyped error %v", err)
			}
			return
		}
		again, err := ReadPieces(AppendPieces(nil, pieces))
		if err != nil || !slices.Equal(again, pieces) {
			t.Errorf("%v became %v, %v", pieces, again, err)
		}
		s := Slice{Object: objectName, Pieces: pieces, Count: 1}
		if s.Check() == nil && (len(pieces) != 1 || pieces[0].Count != 1) {
			t.Errorf("a row of one report takes %v", pieces)
		}
	})
}
