package payloadtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/payload"
)

// Run runs the suite. Each test has a data set of its own, empty, from fresh, and opens
// two handles on it.
func Run(t *testing.T, fresh func(t *testing.T) (open func() payload.Store)) {
	for _, test := range slices.Sorted(maps.Keys(tests)) {
		t.Run(test, func(t *testing.T) {
			t.Parallel()
			open := fresh(t)
			tests[test](t, open(), open())
		})
	}
}

var tests = map[string]func(t *testing.T, a, b payload.Store){
	"Put": testPut, "Once": testOnce, "Race": testRace, "Ranges": testRanges, "Delete": testDelete, "List": testList,
	"Pages": testPages, "Invalid": testInvalid, "Ended": testEnded, "Keep": testKeep, "Probe": testProbe,
	"Interleaved": testInterleaved,
}

// content is n bytes that a seed gives.
func content(seed string, n int) []byte {
	var b []byte
	for i := 0; len(b) < n; i++ {
		sum := sha256.Sum256(fmt.Append(nil, seed, i))
		b = append(b, sum[:]...)
	}
	return b[:n]
}

// whole reads all of an object, and asks for more.
func whole(ctx context.Context, s payload.Store, name string) ([]byte, error) {
	size, err := s.Size(ctx, name)
	if err != nil {
		return nil, err
	}
	p := make([]byte, size+1)
	n, err := s.ReadAt(ctx, name, p, 0)
	if err == nil {
		return nil, fmt.Errorf("an object of %d bytes has more", size)
	}
	if err != io.EOF {
		return nil, err
	}
	return p[:n], nil
}

// has wants an object with a content behind each of the handles.
func has(t *testing.T, name string, want []byte, handles ...payload.Store) {
	t.Helper()
	for i, s := range handles {
		if got, err := whole(t.Context(), s, name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("handle %d: %s has %d bytes, %v; want the %d that were put", i, name, len(got), err, len(want))
		}
	}
}

// hasNot wants no object behind either handle.
func hasNot(t *testing.T, name string, handles ...payload.Store) {
	t.Helper()
	for i, s := range handles {
		if _, err := s.Size(t.Context(), name); !errors.Is(err, payload.ErrNotFound) {
			t.Errorf("handle %d: size of %s: %v", i, name, err)
		}
		if n, err := s.ReadAt(t.Context(), name, make([]byte, 1), 0); n != 0 || !errors.Is(err, payload.ErrNotFound) {
			t.Errorf("handle %d: read %s: %d, %v", i, name, n, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// testPut: what was put is there at once, for every handle, whatever its size and its
// parts.
func testPut(t *testing.T, a, b payload.Store) {
	for _, size := range []int{1, 1 << 10, 64<<10 + 1, 8 << 20} {
		name := fmt.Sprintf("sizes/%d.obj", size)
		want := content(name, size)
		mine := bytes.Clone(want)
		hasNot(t, name, a, b)
		must(t, a.Put(t.Context(), name, mine[:size/3], nil, mine[size/3:size/2], mine[size/2:]))
		clear(mine) // the caller's again
		has(t, name, want, b, a)
	}
}

// testOnce: a name that has an object gets no other, from no handle.
func testOnce(t *testing.T, a, b payload.Store) {
	must(t, a.Put(t.Context(), "once.obj", []byte("first")))
	is(t, b.Put(t.Context(), "once.obj", []byte("second, longer")), payload.ErrExists)
	is(t, a.Put(t.Context(), "once.obj", []byte("3rd")), payload.ErrExists)
	is(t, a.Put(t.Context(), "once.obj", []byte("first")), payload.ErrExists)
	has(t, "once.obj", []byte("first"), a, b)
}

// testRace: of many that put one name at once, one succeeds, and its content is there.
func testRace(t *testing.T, a, b payload.Store) {
	const racers = 8
	for round := range 10 {
		name := fmt.Sprintf("race/%d.obj", round)
		errs := make([]error, racers)
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range racers {
			s := []payload.Store{a, b}[i%2]
			wg.Go(func() {
				<-start
				errs[i] = s.Put(t.Context(), name, content(fmt.Sprint(name, i), 3000+i))
			})
		}
		close(start)
		wg.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				t.Fatalf("round %d: %d and %d both put %s", round, winner, i, name)
			case err == nil:
				winner = i
			default:
				is(t, err, payload.ErrExists)
			}
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody put %s: %v", round, name, errs)
		}
		has(t, name, content(fmt.Sprint(name, winner), 3000+winner), a, b)
	}
}

// testRanges: a range has its bytes, as many as there are; the end is io.EOF.
func testRanges(t *testing.T, a, b payload.Store) {
	const size = 5000
	want := content("ranges", size)
	must(t, a.Put(t.Context(), "ranges.obj", want))
	for _, r := range []struct{ offset, length, n int }{
		{0, 1, 1}, {0, size, size}, {0, size + 1, size}, {1, 4998, 4998}, {17, 1000, 1000}, {4999, 1, 1}, {4999, 2, 1},
		{4000, 2000, 1000}, {size, 1, 0}, {size + 1, 10, 0}, {1 << 40, 10, 0},
	} {
		p := make([]byte, r.length)
		n, err := b.ReadAt(t.Context(), "ranges.obj", p, int64(r.offset))
		eof := error(nil)
		if r.n < r.length {
			eof = io.EOF
		}
		if n != r.n || err != eof || n > 0 && !bytes.Equal(p[:n], want[r.offset:r.offset+n]) {
			t.Errorf("%d bytes from %d: %d, %v; want %d, %v", r.length, r.offset, n, err, r.n, eof)
		}
	}
}

// testDelete: what was deleted is gone for every handle, and again is harmless.
func testDelete(t *testing.T, a, b payload.Store) {
	must(t, a.Delete(t.Context(), "never/was.obj"))
	must(t, a.Put(t.Context(), "gone/x.obj", []byte("x")))
	must(t, a.Put(t.Context(), "gone/y.obj", []byte("y")))
	must(t, b.Delete(t.Context(), "gone/x.obj"))
	hasNot(t, "gone/x.obj", a, b)
	must(t, a.Delete(t.Context(), "gone/x.obj"))
	has(t, "gone/y.obj", []byte("y"), a, b)
	must(t, b.Delete(t.Context(), "gone/y.obj"))
	must(t, a.Put(t.Context(), "gone/y.obj", []byte("as good as new")))
	has(t, "gone/y.obj", []byte("as good as new"), a, b)
}

// names are in byte order, which is not that of the folders.
var names = []string{
	"0.obj", "a-b/c.obj", "a-b/d/e.obj", "a/b-c/d.obj", "a/b.obj", "a/b/c.obj", "a/b0.obj", "a/c.obj", "a/c.old", "a0.obj", "z/z/z/z/z.obj",
}

// testList: objects are listed in byte order, below folders too, from any place on.
func testList(t *testing.T, a, b payload.Store) {
	if !slices.IsSorted(names) {
		t.Fatal("names are not in byte order")
	}
	list := func(s payload.Store, prefix, after string, n int, want ...string) {
		t.Helper()
		page, err := s.List(t.Context(), prefix, after, n)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range page {
			got = append(got, o.Name)
			if o.Size != int64(len(o.Name)) {
				t.Errorf("%s has %d bytes", o.Name, o.Size)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q after %q, %d at most: %q, want %q", prefix, after, n, got, want)
		}
	}
	list(a, "", "", 10)
	for i := range names {
		name := names[(7*i+3)%len(names)]
		must(t, a.Put(t.Context(), name, []byte(name)))
	}
	for _, s := range []payload.Store{a, b} {
		list(s, "", "", 1000, names...)
		list(s, "", "", len(names), names...)
		list(s, "", "", 3, names[:3]...)
		for i, name := range names {
			list(s, "", name, 4, names[i+1:min(i+5, len(names))]...)
		}
		list(s, "a/", "", 10, names[3:9]...)
		list(s, "a/b/", "", 10, "a/b/c.obj")
		list(s, "a/", "a/b", 2, names[3:5]...)
		list(s, "a/", "a/b.obj", 2, names[5:7]...)
		list(s, "a/", "0", 1, names[3])
		list(s, "a/", "b", 10)
		list(s, "no/such/", "", 10)
		list(s, "", "z/z/z/z/z.obj", 10)
	}
	must(t, b.Delete(t.Context(), "a/b.obj"))
	list(a, "a/", "", 10, slices.Delete(slices.Clone(names[3:9]), 1, 2)...)
}

// testPages: pages of any size, one after the other, have every object once.
func testPages(t *testing.T, a, b payload.Store) {
	var want []string
	for i := range 41 {
		name := fmt.Sprintf("pages/%x/%02d.obj", i%4, i)
		want = append(want, name)
		must(t, a.Put(t.Context(), name, []byte(name)))
	}
	slices.Sort(want)
	for _, n := range []int{1, 7, 40, 41, 42, payload.MaxPage} {
		var got []string
		for after := ""; ; {
			page, err := b.List(t.Context(), "pages/", after, n)
			must(t, err)
			for _, o := range page {
				got = append(got, o.Name)
			}
			if len(page) < n {
				break
			}
			after = page[n-1].Name
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %q", n, got)
		}
	}
}

// testInvalid: what no engine may be asked for is refused, and changes nothing.
func testInvalid(t *testing.T, a, b payload.Store) {
	long := strings.Repeat("a", payload.MaxName-4)
	bad := []string{
		"", ".", "..", "/", "a", "a/b", ".obj", "a.", "a/.obj", "/a.obj", "a//b.obj", "a/../b.obj", "../b.obj", "a.b/c.obj", "A.obj",
		"a.Obj", "a.b.obj", "a b.obj", "a_b.obj", "a\\b.obj", "a\x00.obj", "ä.obj", "a.obj/", "a.tmp", "a.o-j", long + "a.obj",
		"%2e%2e/a.obj", "a?.obj", "a.obj?x", "a.obj#", "con:.obj",
	}
	for _, name := range bad {
		is(t, a.Put(t.Context(), name, []byte("x")), payload.ErrInvalid)
		is(t, a.Delete(t.Context(), name), payload.ErrInvalid)
		_, err := a.Size(t.Context(), name)
		is(t, err, payload.ErrInvalid)
		_, err = a.ReadAt(t.Context(), name, make([]byte, 1), 0)
		is(t, err, payload.ErrInvalid)
	}
	part := make([]byte, 1<<20)
	is(t, a.Put(t.Context(), "a.obj"), payload.ErrInvalid)
	is(t, a.Put(t.Context(), "a.obj", nil, []byte{}), payload.ErrInvalid)
	is(t, a.Put(t.Context(), "a.obj", append(slices.Repeat([][]byte{part}, payload.MaxObject>>20), part[:1])...), payload.ErrInvalid)
	_, err := a.ReadAt(t.Context(), "a.obj", nil, 0)
	is(t, err, payload.ErrInvalid)
	_, err = a.ReadAt(t.Context(), "a.obj", part, -1)
	is(t, err, payload.ErrInvalid)
	for _, prefix := range []string{"a", "/", "../", "a//", "A/", "a.b/", "a/b"} {
		_, err = a.List(t.Context(), prefix, "", 1)
		is(t, err, payload.ErrInvalid)
	}
	for _, n := range []int{-1, 0, payload.MaxPage + 1} {
		_, err = a.List(t.Context(), "", "", n)
		is(t, err, payload.ErrInvalid)
	}
	if page, err := b.List(t.Context(), "", "", 1); err != nil || len(page) > 0 {
		t.Errorf("something is there: %v, %v", page, err)
	}
	must(t, a.Put(t.Context(), long+".obj", []byte("x")))
	has(t, long+".obj", []byte("x"), b)
}

// testEnded: a context that has ended ends each call, which changes nothing.
func testEnded(t *testing.T, a, b payload.Store) {
	must(t, a.Put(t.Context(), "there.obj", []byte("x")))
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	_, sizeErr := a.Size(ctx, "there.obj")
	_, readErr := a.ReadAt(ctx, "there.obj", make([]byte, 1), 0)
	_, listErr := a.List(ctx, "", "", 1)
	for what, err := range map[string]error{
		"put": a.Put(ctx, "new.obj", []byte("x")), "delete": a.Delete(ctx, "there.obj"), "size": sizeErr, "read": readErr, "list": listErr,
	} {
		if !errors.Is(err, payload.ErrUnavailable) || !errors.Is(err, cause) {
			t.Errorf("%s: %v", what, err)
		}
	}
	has(t, "there.obj", []byte("x"), b)
	hasNot(t, "new.obj", b)
}

// testKeep: a put whose answer got lost is settled by putting again: it was kept,
// whichever way it went, once; and another content is told apart.
func testKeep(t *testing.T, a, b payload.Store) {
	faults := NewFaults(1)
	s := faults.Wrap(a)
	want := content("kept", 3<<20)
	parts := [][]byte{want[:10], want[10 : 1<<20], want[1<<20:]}
	for i, fault := range []Fault{Refused, Silent, Late} {
		name := fmt.Sprintf("keep/%d.obj", i)
		faults.Next(fault)
		is(t, payload.Keep(t.Context(), s, name, parts...), payload.ErrUnavailable)
		must(t, payload.Keep(t.Context(), s, name, parts...))
		faults.Calm() // what was late comes now, and changes nothing
		must(t, payload.Keep(t.Context(), b, name, want))
		has(t, name, want, a, b)
		turned := bytes.Clone(want)
		turned[len(turned)-1] ^= 1
		for _, other := range [][]byte{want[:len(want)-1], append(want[:len(want):len(want)], 0), turned, want[1:]} {
			is(t, payload.Keep(t.Context(), s, name, other), payload.ErrExists)
		}
		has(t, name, want, a, b)
	}
	for fault, want := range map[Fault]error{Full: payload.ErrFull, Denied: payload.ErrDenied} {
		faults.Next(fault)
		is(t, payload.Keep(t.Context(), s, "keep/refused.obj", parts...), want)
	}
	faults.Next(None, Refused) // the object is there, and cannot be read
	is(t, payload.Keep(t.Context(), s, "keep/0.obj", parts...), payload.ErrUnavailable)
	hasNot(t, "keep/refused.obj", a, b)
}

// testProbe: the engine has all that the contract says, and leaves nothing of the
// question; stores that lie are found out.
func testProbe(t *testing.T, a, b payload.Store) {
	must(t, payload.Probe(t.Context(), a, "probe/"))
	if page, err := b.List(t.Context(), "", "", 1); err != nil || len(page) > 0 {
		t.Errorf("the probe has left %v, %v", page, err)
	}
	faults := NewFaults(1)
	s := faults.Wrap(a)
	for what, next := range map[string][]Fault{
		"a put that did not happen": {Lying}, "a condition that was ignored": {None, Lying}, "a turned bit": {None, None, Damaged},
	} {
		faults.Next(next...)
		if err := payload.Probe(t.Context(), s, "probe/"); !errors.Is(err, payload.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	faults.Next(Denied)
	is(t, payload.Probe(t.Context(), s, "probe/"), payload.ErrDenied)
}
