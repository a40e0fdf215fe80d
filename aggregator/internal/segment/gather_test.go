package segment

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/payload/payloadtest"
)

// commits puts n objects, each of five reports of one task and batch bucket, of which two
// came in the object before too, and one of another task.
func commits(t *testing.T, store payload.Store, n int) (rows []slice, others []slice) {
	t.Helper()
	for i := range n {
		entries := []Entry{{TaskID: TaskID{9}, Bucket: 300, ReportID: ReportID{byte(i)}, Report: []byte("other")}}
		for j := range 5 {
			entries = append(entries, Entry{
				TaskID: TaskID{1}, Bucket: 300, ReportID: ReportID{byte(3*i + j)}, Report: fmt.Appendf(nil, "report %d of %d", j, i),
			})
		}
		d := putObject(t, store, fmt.Sprintf("slices/%d.obj", i), entries)
		rows, others = append(rows, d[0]), append(others, d[1])
	}
	return rows, others
}

// TestGather: a job has the reports of several objects in the order of its slices, and
// each id once, however often it is made.
func TestGather(t *testing.T) {
	store := payloadtest.NewMem()
	rows, _ := commits(t, store, 20)
	var want []string
	for i := range 20 {
		for j := range 5 {
			if i == 0 || j >= 2 {
				want = append(want, fmt.Sprintf("%d: report %d of %d", 3*i+j, j, i))
			}
		}
	}
	for range 3 {
		g, err := gather(t.Context(), store, rows)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range g.len() {
			got = append(got, fmt.Sprintf("%d: %s", g.id(i)[0], g.report(i)))
		}
		g.close()
		if !slices.Equal(got, want) || g.duplicates != 38 {
			t.Errorf("%d duplicates, %q, want %q", g.duplicates, got, want)
		}
	}
}

// TestGatherErrors: each slice that cannot be opened is told of, and why; all others are
// left as they are. A slice of another task or batch bucket is never taken in.
func TestGatherErrors(t *testing.T) {
	store := payloadtest.NewMem()
	rows, others := commits(t, store, 5)
	if err := store.Delete(t.Context(), rows[1].object); err != nil {
		t.Fatal(err)
	}
	rows[3].sum[0]++
	rows[4] = others[4]
	rows = append(rows, putObject(t, store, "slices/later.obj", []Entry{{TaskID: TaskID{1}, Bucket: 600, Report: []byte("later")}})...)
	_, err := gather(t.Context(), store, rows)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%v", err)
	}
	want := []struct {
		object string
		is     error
	}{{rows[1].object, payload.ErrNotFound}, {rows[3].object, ErrCorrupt}, {rows[4].object, ErrCorrupt}, {rows[5].object, ErrCorrupt}}
	for i, err := range joined.Unwrap() {
		var of *sliceError
		if i >= len(want) || !errors.As(err, &of) || of.slice.object != want[i].object || !errors.Is(err, want[i].is) {
			t.Errorf("error %d: %v", i, err)
		}
	}
	if n := len(joined.Unwrap()); n != len(want) {
		t.Errorf("%d errors", n)
	}
	g, err := gather(t.Context(), store, []slice{rows[0], rows[2]})
	if err != nil || g.len() != 10 {
		t.Fatalf("what is left: %v", err)
	}
	g.close()
}
