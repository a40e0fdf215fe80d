package segment

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/payload/payloadtest"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// contents are the reports of slices, as jobs number them.
func contents(t *testing.T, store payload.Store, list []Slice) (all []string) {
	t.Helper()
	for _, s := range list {
		r, err := OpenSlices(t.Context(), store, []Slice{s})
		if err != nil {
			t.Fatal(err)
		}
		for i := range r.Len() {
			all = append(all, fmt.Sprintf("%x %d %x %x %t", s.TaskID[:2], s.Bucket, r.ReportID(i), r.Report(i), r.Repeated(i)))
		}
		r.Close()
	}
	return all
}

// TestMoveSlices: slices of a log, in whatever order, have in their new object the
// reports, numbers and sums that they had, once the log is gone; and again from there. The
// object's directory says what the rows do.
func TestMoveSlices(t *testing.T) {
	mem := disktest.NewMem(1)
	_, list := requests(t, mem, 60, 20, DefaultBytes, 10)
	log := payload.OpenFiles(mem)
	slices.Reverse(list)
	list[1].Duplicates = 3
	want := contents(t, log, list)
	to := payloadtest.NewMem()
	from, rows := payload.Store(log), list
	for _, object := range []string{"slices/a.obj", "slices/b.obj"} {
		moved, err := MoveSlices(t.Context(), from, to, object, rows)
		if err != nil {
			t.Fatal(err)
		}
		if err := from.Delete(t.Context(), rows[0].Object); err != nil {
			t.Fatal(err)
		}
		if got := contents(t, to, moved); !slices.Equal(got, want) {
			t.Errorf("%s has %d reports, want %d: %q", object, len(got), len(want), got)
		}
		d, err := openDirectory(t.Context(), to, object)
		if err != nil || len(d) != len(list) {
			t.Fatalf("%d slices in the directory, %v", len(d), err)
		}
		for i, m := range moved {
			s := &list[i]
			if len(m.Pieces) != 1 || m.Object != object || m.Sum != s.Sum || m.Count != s.Count || m.Came != s.Came || m.Duplicates != s.Duplicates {
				t.Errorf("slice %d became %+v", i, m)
			}
			if !slices.ContainsFunc(d, func(e slice) bool {
				row := e.row(m.Came)
				return row.Sum == m.Sum && slices.Equal(row.Pieces, m.Pieces)
			}) {
				t.Errorf("the directory does not have slice %d", i)
			}
		}
		from, rows = to, moved
	}
}

// TestMoveDamage: slices that cannot be opened are told of, each, and nothing is put; the
// others can be moved without them.
func TestMoveDamage(t *testing.T) {
	mem := disktest.NewMem(1)
	_, list := requests(t, mem, 30, 20, DefaultBytes, 10)
	from, to := payload.OpenFiles(mem), payloadtest.NewMem()
	bad := slices.Clone(list)
	bad[1].Sum[0]++
	bad[3].Pieces = nil
	_, err := MoveSlices(t.Context(), from, to, "slices/a.obj", bad)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 2 {
		t.Fatal(err)
	}
	for i, err := range joined.Unwrap() {
		var of *SliceError
		if !errors.As(err, &of) || of.Index != 1+2*i || !of.Gone() {
			t.Errorf("error %d: %v", i, err)
		}
	}
	if _, err := to.Size(t.Context(), "slices/a.obj"); !errors.Is(err, payload.ErrNotFound) {
		t.Errorf("an object was put: %v", err)
	}
	left := []Slice{list[0], list[2]}
	moved, err := MoveSlices(t.Context(), from, to, "slices/a.obj", left)
	if err != nil || !slices.Equal(contents(t, to, moved), contents(t, from, left)) {
		t.Errorf("the others: %v", err)
	}
	before := objectBytes(t, to, "slices/a.obj")
	if _, err := MoveSlices(t.Context(), from, to, "slices/a.obj", left); err != nil || !bytes.Equal(objectBytes(t, to, "slices/a.obj"), before) {
		t.Errorf("the same move once more: %v", err)
	}
}
