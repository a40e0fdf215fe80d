package agreement

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

// facts of a task with verification keys of those ids.
func testFacts(ids ...uint8) *Facts {
	f := &Facts{Config: Digest{1}, Collector: Digest{2}, Calendar: Digest{3}, Noise: Digest{4}, Wire: 18, Ledger: Tally{Releases: 3, Sum: [32]byte{5}}, Seen: 2}
	for _, id := range ids {
		f.Keys = append(f.Keys, VerifyKey{id, Digest{id, 1}})
	}
	return f
}

// TestCompare: each difference is found, and named, on the side where it is; a key that
// only one has is none unless jobs begin with it.
func TestCompare(t *testing.T) {
	if d := Compare(testFacts(1, 2), testFacts(1, 2)); len(d) != 0 {
		t.Fatalf("equal facts differ: %v", d)
	}
	for name, c := range map[string]struct {
		change func(l, h *Facts)
		want   string
	}{
		"another key":          {func(_, h *Facts) { h.Keys[0].Digest[0] ^= 1 }, "verification key 1"},
		"another second key":   {func(l, _ *Facts) { l.Keys[1].Digest[0] ^= 1 }, "verification key 2"},
		"no key for jobs":      {func(_, h *Facts) { h.Keys = h.Keys[1:] }, "verification key 1"},
		"a new key there":      {func(_, h *Facts) { h.Keys = append(h.Keys, VerifyKey{3, Digest{9}}) }, ""},
		"an old key here":      {func(_, h *Facts) { h.Keys = h.Keys[:1] }, ""},
		"collector":            {func(_, h *Facts) { h.Collector[0] ^= 1 }, "the collector's public key"},
		"configuration":        {func(l, _ *Facts) { l.Config[0] ^= 1 }, "the task's configuration"},
		"draft":                {func(l, _ *Facts) { l.Wire = 19 }, "the draft of DAP"},
		"framing":              {func(l, _ *Facts) { l.Framing = dap.Janus }, "the framing"},
		"an unknown framing":   {func(_, h *Facts) { h.Framing = 77 }, "the framing"},
		"no recipe here":       {func(l, _ *Facts) { l.Calendar = Digest{} }, "the calendar of rounds"},
		"noise":                {func(l, _ *Facts) { l.Noise[0] ^= 1 }, "the noise"},
		"the ledger is not it": {func(l, _ *Facts) { l.Ledger.Releases, l.Seen = 9, 9 }, ""},
	} {
		l, h := testFacts(1, 2), testFacts(1, 2)
		c.change(l, h)
		d := Compare(l, h)
		if c.want == "" && len(d) > 0 || c.want != "" && (len(d) != 1 || d[0].What != c.want || d[0].Leader == d[0].Helper || d[0].Do == "") {
			t.Errorf("%s: %+v, want %q", name, d, c.want)
		}
		// What makes a difference to a report or a batch makes one to the fence.
		k := NewKey("a token between the two", dap.TaskID{1})
		one, ok1 := l.fence(k, 1)
		two, ok2 := h.fence(k, 1)
		if same := ok1 && ok2 && one == two; same != (c.want == "" || c.want == "verification key 2") {
			t.Errorf("%s: the fences are the same: %v", name, same)
		}
	}
}

// TestCompareServices: clocks within the smaller skew are none, beyond it they are, on the
// right side; jobs have to fit.
func TestCompareServices(t *testing.T) {
	fits := func(change func(l, h *Service)) string {
		l, h := Service{Skew: 300, JobBytes: 10, JobReports: 5}, Service{Skew: 60, JobBytes: 10, JobReports: 5}
		change(&l, &h)
		var what []string
		for _, d := range compareServices(&l, &h) {
			what = append(what, d.What+": "+d.Leader)
		}
		return strings.Join(what, "; ")
	}
	for _, c := range []struct {
		change func(l, h *Service)
		want   string
	}{
		{func(l, h *Service) {}, ""},
		{func(l, h *Service) { l.Offset = 60_000 }, ""},
		{func(l, h *Service) { l.Offset = 61_000 }, "the clock: 1m1s behind the other"},
		{func(l, h *Service) { l.Offset = -61_000 }, "the clock: 1m1s ahead of the other"},
		{func(l, h *Service) { l.Offset = math.MinInt64 }, "the clock: 878400h0m0s ahead of the other"},
		{func(l, h *Service) { l.JobBytes = 11 }, "the size of a job: up to 11 bytes sent"},
		{func(l, h *Service) { h.JobReports = 4 }, "the reports of a job: up to 5 sent"},
		{func(l, h *Service) { h.JobBytes = 11 }, ""},
	} {
		if got := fits(c.change); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	at := time.UnixMilli(1_000_000)
	for _, c := range []struct {
		there uint64
		want  int64
	}{{999_999, -1}, {1_000_000, 0}, {1_000_500, 0}, {1_001_000, 0}, {1_001_001, 1}, {0, -1_000_000}} {
		if got := Offset(at, at.Add(time.Second), c.there); got != c.want {
			t.Errorf("a clock at %d: %d, want %d", c.there, got, c.want)
		}
	}
	if got := Offset(at, at, math.MaxUint64); got <= 0 {
		t.Errorf("a clock at the end of time: %d", got)
	}
}

// TestDigestsHideAndBind: a digest is the task's and the token's own, and tells a release
// by each of its parts; the order of releases does not matter.
func TestDigestsHideAndBind(t *testing.T) {
	a, b, c := NewKey("one token of some length", dap.TaskID{1}), NewKey("one token of some length", dap.TaskID{2}), NewKey("another token, as long", dap.TaskID{1})
	f := testFacts(1)
	if f.Digest(a, Newest) == f.Digest(b, Newest) || f.Digest(a, Newest) == f.Digest(c, Newest) || f.Digest(a, Newest) == f.Digest(a, Oldest) {
		t.Error("a digest that is another task's or token's")
	}
	r := store.Released{Batch: []byte("0123456789abcdef"), Count: 7}
	prints := map[Print]bool{a.print(&r): true, c.print(&r): true}
	for _, change := range []func(*store.Released){
		func(r *store.Released) { r.Count++ }, func(r *store.Released) { r.Checksum[31] = 1 }, func(r *store.Released) { r.Batch = []byte("0123456789abcdeF") },
		func(r *store.Released) { r.Batch = r.Batch[:8] },
	} {
		other := r
		change(&other)
		prints[a.print(&other)] = true
	}
	if other := r; a.print(&other) != a.print(&r) || len(prints) != 6 {
		t.Errorf("%d prints of 6 releases", len(prints))
	}
	var x, y Tally
	one, two := r, store.Released{Batch: []byte("another of 16 b."), Count: 9, Seq: 4}
	x.Add(a, &one)
	x.Add(a, &two)
	y.Add(a, &two)
	y.Add(a, &one)
	if x != y || x.Releases != 2 {
		t.Errorf("the order matters: %+v %+v", x, y)
	}
	y.Add(a, &one)
	if x == y {
		t.Error("a third release does not matter")
	}
}

func TestFenceValue(t *testing.T) {
	for _, id := range []uint8{0, 7, 255} {
		d := Digest{1, 2, 15: 255}
		if got, fence, err := readFence(fenceValue(id, d)); err != nil || got != id || fence != d {
			t.Errorf("%d: %d %v %v", id, got, fence, err)
		}
	}
	good := fenceValue(7, Digest{9})
	for _, s := range []string{"", "7", "256" + good[1:], "07" + good[1:], " " + good, good + " ", good + "00", good[:len(good)-1], strings.ToUpper(good[:4] + "AB" + good[6:]), strings.Repeat("a", 1<<16)} {
		if _, _, err := readFence(s); !errors.Is(err, ErrMessage) {
			t.Errorf("%.60q: %v", s, err)
		}
	}
}

// TestMissing against the obvious.
func TestMissing(t *testing.T) {
	for a := range 1 << 5 {
		for b := range 1 << 5 {
			var list, set []Print
			want := 0
			for i := range 5 {
				if a>>i&1 == 1 {
					list = append(list, Print(i))
					if b>>i&1 == 0 {
						want++
					}
				}
				if b>>i&1 == 1 {
					set = append(set, Print(i))
				}
			}
			if got := Missing(list, set); got != want {
				t.Fatalf("%v of %v: %d, want %d", list, set, got, want)
			}
		}
	}
}

func testMessages() []*Message {
	closed := testFacts(7)
	closed.Closing = Closing{Draining, "over"}
	return []*Message{
		{Version: Newest, Service: Service{Now: 1, Offset: -5, Skew: 300, JobBytes: 1 << 40, JobReports: 9}, Root: Digest{7}},
		{Version: Oldest, Entries: []Entry{{Task: dap.TaskID{1}, Digest: Digest{2}}, {Task: dap.TaskID{2}, State: Unknown}, {Task: dap.TaskID{3}, State: Retired},
			{Task: dap.TaskID{4}, Digest: Digest{8}, Facts: testFacts(0, 7, 255)}}},
		{Version: Newest, Entries: []Entry{{Task: dap.TaskID{4}, Digest: Digest{8}, Facts: testFacts(0)}, {Task: dap.TaskID{5}, Digest: Digest{9}, Facts: closed}}},
	}
}

// TestMessageLimits: what no reader takes no writer makes, and each bound is refused with a
// typed error.
func TestMessageLimits(t *testing.T) {
	good := must(t)(testMessages()[1].Append(nil))
	for name, change := range map[string]func([]byte) []byte{
		"nothing":         func([]byte) []byte { return nil },
		"cut":             func(b []byte) []byte { return b[:len(b)-1] },
		"longer":          func(b []byte) []byte { return append(b, 0) },
		"huge":            func(b []byte) []byte { return make([]byte, MaxMessage+1) },
		"another state":   func(b []byte) []byte { b[1+8+8+4+8+4+16+3+32] = 3; return b },
		"out of order":    func(b []byte) []byte { b[1+8+8+4+8+4+16+3] = 2; return b },
		"facts of nobody": func(b []byte) []byte { b[1+8+8+4+8+4+16+3+32] = 1; return b },
	} {
		if _, err := ReadMessage(change(bytes.Clone(good))); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := bytes.Clone(good)
	var version *VersionError
	for _, unknown := range []byte{Oldest - 1, Newest + 1} {
		other[0] = unknown
		if _, err := ReadMessage(other); !errors.As(err, &version) || version.Version != unknown {
			t.Errorf("another version: %v", err)
		}
	}
	for name, c := range map[string]Closing{"an unknown state": {State: closings}, "a reason of nothing": {Why: "over"}, "a long reason": {Draining, strings.Repeat("x", maxWhy+1)}} {
		f := testFacts(7)
		f.Closing = c
		if _, err := (&Message{Version: Newest, Entries: []Entry{{Facts: f}}}).Append(nil); err == nil {
			t.Errorf("a closing of %s", name)
		}
	}
	many := &Message{Version: Newest}
	for i := range MaxTasks + 1 {
		many.Entries = append(many.Entries, Entry{Task: dap.TaskID{byte(i >> 8), byte(i)}})
	}
	if _, err := many.Append(nil); err == nil {
		t.Error("a message of too many tasks")
	}
	many.Entries = many.Entries[:MaxTasks]
	for i := range many.Entries {
		many.Entries[i].Facts = testFacts()
		many.Entries[i].Facts.Closing = Closing{Drained, strings.Repeat("x", maxWhy)}
		many.Entries[i].Facts.Keys = nil
		for id := range 256 {
			many.Entries[i].Facts.Keys = append(many.Entries[i].Facts.Keys, VerifyKey{ID: uint8(id)})
		}
	}
	if b := must(t)(many.Append(nil)); len(b) > MaxMessage {
		t.Errorf("the largest message has %d bytes", len(b))
	}
	if _, err := (&Part{Prints: make([]Print, MaxPrints+1)}).Append(nil); err == nil {
		t.Error("a part of too many releases")
	}
	for releases, want := range map[uint64]uint8{0: 0, 1: 0, 1 << 15: 0, 1<<15 + 1: 1, 1 << 20: 5, 1 << 23: 8} {
		if bits, ok := Parts(releases); bits != want || !ok {
			t.Errorf("%d releases: 2^%d parts, %v", releases, bits, ok)
		}
	}
	if _, ok := Parts(1<<23 + 1); ok {
		t.Error("a ledger without end")
	}
}

func must(t *testing.T) func([]byte, error) []byte {
	return func(b []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

func FuzzMessage(f *testing.F) {
	for _, m := range testMessages() {
		b, err := m.Append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ReadMessage(b)
		if err != nil {
			return
		}
		if again := must(t)(m.Append(nil)); !bytes.Equal(again, b) {
			t.Errorf("another encoding:\n%x\n%x", b, again)
		}
	})
}

func FuzzPart(f *testing.F) {
	for _, p := range []*Part{{}, {Prints: []Print{1, 2, math.MaxUint64}}, {Bits: 8, Index: 255, Prints: []Print{math.MaxUint64 - 1}}} {
		b, err := p.Append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ReadPart(b)
		if err != nil {
			return
		}
		if again := must(t)(p.Append(nil)); !bytes.Equal(again, b) {
			t.Errorf("another encoding:\n%x\n%x", b, again)
		}
	})
}
