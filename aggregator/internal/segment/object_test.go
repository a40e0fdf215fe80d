package segment

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/payload/payloadtest"
)

const objectName = "slices/2026112300/5f.obj"

// mixed are entries of several tasks and batch buckets as they come in, some of them
// twice.
func mixed() []Entry {
	var entries []Entry
	for i := range 40 {
		entries = append(entries, Entry{
			TaskID: TaskID{byte(i*7%3 + 1)}, Bucket: uint64(i % 2 * 3600), ReportID: ReportID{byte(i)}, Report: bytes.Repeat([]byte{byte(i)}, i+1),
		})
	}
	again := entries[5]
	again.Report = []byte("of another body")
	return append(entries, again, entries[17], entries[5])
}

// putObject cuts entries and puts the object.
func putObject(t testing.TB, store payload.Store, name string, entries []Entry) directory {
	t.Helper()
	parts, d, err := cutObject(name, entries, DefaultBytes, DefaultReports)
	if err == nil {
		err = store.Put(context.Background(), name, parts...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// openOne opens a slice of an object, alone.
func openOne(ctx context.Context, store payload.Store, s slice) (*Reports, error) {
	return OpenSlices(ctx, store, []Slice{s.row(0)})
}

func objectBytes(t testing.TB, store payload.Store, name string) []byte {
	t.Helper()
	size, err := store.Size(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if _, err := store.ReadAt(context.Background(), name, b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestObject: an object has every report of a commit once, in a slice of its task and
// batch bucket, in order of arrival; its head says what the rows have; each slice is read
// alone.
func TestObject(t *testing.T) {
	store := payloadtest.NewMem()
	entries := mixed()
	d := putObject(t, store, objectName, entries)
	if len(d) != 6 {
		t.Fatalf("%d slices", len(d))
	}
	read, err := openDirectory(t.Context(), store, objectName)
	if err != nil || !slices.Equal(read, d) {
		t.Fatalf("the head says %v, %v; want %v", read, err, d)
	}
	found, duplicates := 0, uint32(0)
	seen := make(map[member]bool)
	for _, s := range d {
		duplicates += s.duplicates
		o, err := openOne(t.Context(), store, s)
		if err != nil {
			t.Fatal(err)
		}
		last := -1
		for i := range int(s.count) {
			at := slices.IndexFunc(entries, func(e Entry) bool {
				return e.TaskID == s.task && e.Bucket == s.bucket && e.ReportID == o.ReportID(i) && bytes.Equal(e.Report, o.Report(i))
			})
			key := member{place{s.task, s.bucket}, o.ReportID(i)}
			if at <= last || at >= 40 || seen[key] {
				t.Errorf("%v has entry %d after %d", &s, at, last)
			}
			last, seen[key] = at, true
			found++
		}
		o.Close()
	}
	if found != 40 || duplicates != 3 {
		t.Errorf("%d reports, %d duplicates; want 40 and 3", found, duplicates)
	}
}

// TestObjectBytes: the format is what it was.
func TestObjectBytes(t *testing.T) {
	store := payloadtest.NewMem()
	putObject(t, store, objectName, mixed())
	b := objectBytes(t, store, objectName)
	sum := sha256.Sum256(b)
	const want = "2332 737461726c6f626a00000001000001f8 1900cdf903657560"
	if got := fmt.Sprintf("%d %x %s", len(b), b[:16], hex.EncodeToString(sum[:8])); got != want {
		t.Errorf("an object is %s, want %s", got, want)
	}
}

// TestObjectCut: slices end where jobs do, and a commit that no object can hold is
// refused.
func TestObjectCut(t *testing.T) {
	entries := testEntries(0, 10)
	for i := range entries {
		entries[i].TaskID, entries[i].Bucket, entries[i].Report = TaskID{1}, 0, make([]byte, 100)
	}
	entries = append(entries, entries[0], entries[3])
	for _, tc := range []struct {
		bytes, reports int
		want           string
	}{{1000, 10, "[10]"}, {1000, 4, "[4 4 2]"}, {350, 10, "[3 3 3 1]"}, {1, 10, "[1 1 1 1 1 1 1 1 1 1]"}} {
		parts, d, err := cutObject(objectName, entries, tc.bytes, tc.reports)
		if err != nil {
			t.Fatal(err)
		}
		var counts []uint32
		duplicates := uint32(0)
		for _, s := range d {
			counts, duplicates = append(counts, s.count), duplicates+s.duplicates
		}
		if duplicates != 2 {
			t.Errorf("%d bytes, %d reports: %d duplicates", tc.bytes, tc.reports, duplicates)
		}
		store := payloadtest.NewMem()
		if err := store.Put(t.Context(), objectName, parts...); err != nil {
			t.Fatal(err)
		}
		read, err := openDirectory(t.Context(), store, objectName)
		if got := fmt.Sprint(counts); got != tc.want || err != nil || !slices.Equal(read, d) {
			t.Errorf("%d bytes, %d reports: %s, want %s; %v", tc.bytes, tc.reports, got, tc.want, err)
		}
	}
	large := make([]byte, payload.MaxObject/8)
	for i := range entries[:9] {
		entries[i].Report = large
	}
	if _, _, err := cutObject(objectName, entries, DefaultBytes, DefaultReports); !errors.Is(err, ErrTooLarge) {
		t.Errorf("more than an object holds: %v", err)
	}
	if _, _, err := cutObject(objectName, nil, DefaultBytes, DefaultReports); !errors.Is(err, ErrCorrupt) {
		t.Errorf("an object of nothing: %v", err)
	}
}

// TestObjectOfManyTasks: a head that is longer than the first read is read on.
func TestObjectOfManyTasks(t *testing.T) {
	var entries []Entry
	for i := range 1000 {
		entries = append(entries, Entry{TaskID: TaskID{byte(i >> 8), byte(i)}, Report: []byte("report")})
	}
	store := payloadtest.NewMem()
	d := putObject(t, store, objectName, entries)
	read, err := openDirectory(t.Context(), store, objectName)
	if err != nil || len(d) != 1000 || !slices.Equal(read, d) {
		t.Errorf("%d slices of %d, %v", len(read), len(d), err)
	}
	if size := len(objectBytes(t, store, objectName)); size != objectPrefix+32+1000*(sliceEntry+reportEntry+6) {
		t.Errorf("%d bytes", size)
	}
}

// TestObjectDamage: whatever byte of an object is another, or wherever it ends, what it
// hits says so: the head, or the one slice. The others are read as before.
func TestObjectDamage(t *testing.T) {
	good := payloadtest.NewMem()
	d := putObject(t, good, objectName, mixed())
	whole := objectBytes(t, good, objectName)
	check := func(what string, b []byte, hit func(from, to int64) bool) {
		t.Helper()
		store := payloadtest.NewMem()
		if err := store.Put(t.Context(), objectName, b); err != nil {
			t.Fatal(err)
		}
		read, err := openDirectory(t.Context(), store, objectName)
		switch headHit := len(b) != len(whole) || hit(0, d[0].offset); {
		case headHit && !errors.Is(err, ErrCorrupt):
			t.Errorf("%s: the head is taken: %v, %v", what, read, err)
		case !headHit && (err != nil || !slices.Equal(read, d)):
			t.Errorf("%s: the head is not: %v", what, err)
		}
		for _, s := range d {
			o, err := openOne(t.Context(), store, s)
			switch sliceHit := hit(s.offset, s.offset+int64(s.length)); {
			case sliceHit && !errors.Is(err, ErrCorrupt):
				t.Errorf("%s: %v is taken: %v", what, &s, err)
			case !sliceHit && err != nil:
				t.Errorf("%s: %v is not: %v", what, &s, err)
			case err == nil:
				o.Close()
			}
		}
	}
	check("nothing", whole, func(_, _ int64) bool { return false })
	for at := range whole {
		b := bytes.Clone(whole)
		b[at] ^= 1 << (at % 8)
		check(fmt.Sprintf("byte %d", at), b, func(from, to int64) bool { return int64(at) >= from && int64(at) < to })
	}
	for n := 1; n < len(whole); n += 7 {
		check(fmt.Sprintf("%d bytes", n), whole[:n], func(_, to int64) bool { return to > int64(n) })
	}
	check("a byte more", append(bytes.Clone(whole), 0), func(_, _ int64) bool { return false })
}

// TestForeignSlice: a row takes no other slice for its own, also where the store answers
// with one that is whole.
func TestForeignSlice(t *testing.T) {
	store := payloadtest.NewMem()
	entries := testEntries(0, 2)
	for i := range entries {
		entries[i] = Entry{TaskID: TaskID{1}, Bucket: 3600, ReportID: ReportID{byte(i)}, Report: []byte("report")}
	}
	behind := Entry{TaskID: TaskID{2}, Report: []byte("report")}
	mine := putObject(t, store, "slices/a.obj", append(entries, behind))[0]
	for what, change := range map[string]func(e *Entry){
		"id": func(e *Entry) { e.ReportID[1]++ }, "report": func(e *Entry) { e.Report = []byte("REPORT") },
	} {
		others := append(slices.Clone(entries), behind)
		for i := range others {
			change(&others[i])
		}
		store := payloadtest.NewMem()
		other := putObject(t, store, "slices/a.obj", others)[0]
		if other.length != mine.length || other.offset != mine.offset {
			t.Fatal("the other slice is not in its place")
		}
		if _, err := openOne(t.Context(), store, mine); !errors.Is(err, ErrCorrupt) {
			t.Errorf("another %s: %v", what, err)
		}
	}
	for what, change := range map[string]func(s *slice){
		"another task": func(s *slice) { s.task[0]++ }, "another batch bucket": func(s *slice) { s.bucket += 3600 },
		"fewer reports": func(s *slice) { s.count-- }, "more reports": func(s *slice) { s.count += 1000 }, "elsewhere": func(s *slice) { s.offset-- },
		"longer": func(s *slice) { s.length++ }, "shorter": func(s *slice) { s.length-- }, "endless": func(s *slice) { s.length = 1 << 31 },
	} {
		row := mine
		change(&row)
		if _, err := openOne(t.Context(), store, row); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestObjectNewer: an object of a later version is told from one that is damaged.
func TestObjectNewer(t *testing.T) {
	store := payloadtest.NewMem()
	d := putObject(t, store, objectName, mixed())
	b := objectBytes(t, store, objectName)
	b[len(objectMagic)+3] = objectVersion + 1
	sum := sha256.Sum256(b[:d[0].offset-32])
	copy(b[d[0].offset-32:], sum[:])
	newer := payloadtest.NewMem()
	if err := newer.Put(t.Context(), objectName, b); err != nil {
		t.Fatal(err)
	}
	if _, err := openDirectory(t.Context(), newer, objectName); !errors.Is(err, ErrNewer) {
		t.Error(err)
	}
}

// TestObjectStore: what the store says of itself is not taken for damage: reports are not
// given up because a store does not answer.
func TestObjectStore(t *testing.T) {
	mem := payloadtest.NewMem()
	d := putObject(t, mem, objectName, mixed())
	faults := payloadtest.NewFaults(1)
	store := faults.Wrap(mem)
	for fault, want := range map[payloadtest.Fault]error{
		payloadtest.Refused: payload.ErrUnavailable, payloadtest.Denied: payload.ErrDenied, payloadtest.Damaged: ErrCorrupt,
	} {
		faults.Next(fault)
		if _, err := openOne(t.Context(), store, d[2]); !errors.Is(err, want) || want != ErrCorrupt && errors.Is(err, ErrCorrupt) {
			t.Errorf("slice: %v, want %v", err, want)
		}
		if fault == payloadtest.Damaged {
			continue // the head is a part of what is read: TestObjectDamage
		}
		for calls := range 2 {
			faults.Next(append(make([]payloadtest.Fault, calls), fault)...)
			if _, err := openDirectory(t.Context(), store, objectName); !errors.Is(err, want) || errors.Is(err, ErrCorrupt) {
				t.Errorf("directory: %v, want %v", err, want)
			}
		}
	}
	if err := mem.Delete(t.Context(), objectName); err != nil {
		t.Fatal(err)
	}
	if _, err := openOne(t.Context(), store, d[0]); !errors.Is(err, payload.ErrNotFound) {
		t.Error(err)
	}
	if _, err := openDirectory(t.Context(), store, objectName); !errors.Is(err, payload.ErrNotFound) {
		t.Error(err)
	}
}

func FuzzObjectHead(f *testing.F) {
	store := payloadtest.NewMem()
	d := putObject(f, store, objectName, mixed())
	f.Add(objectBytes(f, store, objectName)[:d[0].offset-32], uint16(100))
	f.Fuzz(func(t *testing.T, content []byte, body uint16) {
		sum := sha256.Sum256(content)
		head := append(bytes.Clone(content), sum[:]...)
		n, err := headLength(head)
		if err != nil || n != int64(len(head)) {
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Errorf("untyped error %v", err)
			}
			return
		}
		d, err := readHead(objectName, head, int64(len(head))+int64(body))
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
				t.Errorf("untyped error %v", err)
			}
			return
		}
		at := int64(len(head))
		for _, s := range d {
			if s.offset != at || s.count == 0 {
				t.Errorf("%v stands at %d", &s, at)
			}
			at += int64(s.length)
		}
		if at != int64(len(head))+int64(body) {
			t.Errorf("slices end at %d of %d", at, len(head)+int(body))
		}
	})
}

func FuzzSlice(f *testing.F) {
	store := payloadtest.NewMem()
	d := putObject(f, store, objectName, mixed())
	b := objectBytes(f, store, objectName)
	for _, s := range d {
		f.Add(b[s.offset:s.offset+int64(s.length)], s.count)
	}
	f.Fuzz(func(t *testing.T, data []byte, count uint32) {
		s := Slice{
			Object: objectName, Pieces: []Piece{{0, uint32(len(data)), count}}, TaskID: TaskID{1}, Count: int(count),
		}
		if len(data) == 0 || len(data) > payload.MaxObject {
			return
		}
		if end := uint64(count) * reportEntry; end <= uint64(len(data)) {
			sum := sliceSum(s.TaskID, s.Bucket)
			sum.Write(data[:end])
			s.Sum = Sum(sum.Sum(nil))
		}
		store := payloadtest.NewMem()
		if err := store.Put(t.Context(), objectName, data); err != nil {
			t.Fatal(err)
		}
		o, err := OpenSlices(t.Context(), store, []Slice{s})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("untyped error %v", err)
			}
			return
		}
		total := o.Len() * reportEntry
		for i := range o.Len() {
			total += len(o.Report(i))
		}
		if total != len(data) || o.Len() != int(count) {
			t.Errorf("%d of %d bytes, %d reports of %d", total, len(data), o.Len(), count)
		}
	})
}
