package agreement

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/permit"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

// memory is a store's releases and frozen batches. Its value can be kept and put back.
type memory struct {
	released, frozen []store.Released
	read             func() // called before each reading
}

func (m *memory) TaskState(context.Context, dap.TaskID) (store.TaskState, error) {
	return store.TaskState{}, nil
}

func (m *memory) Registration(context.Context, dap.TaskID) (*store.Registration, error) {
	return nil, store.ErrNotFound
}

func (m *memory) ReleasesAfter(_ context.Context, _ dap.TaskID, after int64, n int) (out []store.Released, err error) {
	if m.read != nil {
		m.read()
	}
	for _, r := range m.released {
		if r.Seq > after && len(out) < n {
			out = append(out, r)
		}
	}
	return out, nil
}

func (m *memory) Frozen(context.Context, dap.TaskID) ([]store.Released, error) {
	if m.read != nil {
		m.read()
	}
	return slices.Clone(m.frozen), nil
}

func (m *memory) clone() *memory {
	return &memory{released: slices.Clone(m.released), frozen: slices.Clone(m.frozen)}
}

func batch(x byte) store.Released {
	return store.Released{Batch: []byte{x, 15: 0}, Count: 10}
}

func (m *memory) freeze(x byte) { m.frozen = append(m.frozen, batch(x)) }

func (m *memory) release(x byte) {
	r := batch(x)
	r.Seq = int64(len(m.released) + 1)
	m.released = append(m.released, r)
	m.frozen = slices.DeleteFunc(m.frozen, func(f store.Released) bool { return f.Batch[0] == x })
}

func (m *memory) has(x byte) bool {
	return slices.ContainsFunc(m.released, func(r store.Released) bool { return r.Batch[0] == x })
}

func (m *memory) asked(x byte) bool {
	return slices.ContainsFunc(m.frozen, func(r store.Released) bool { return r.Batch[0] == x })
}

var testTask = dap.TaskID{42}

// testBook is a life of an aggregator over a store.
func testBook(role dap.Role, s Store) *Book {
	b := &Book{role: role, store: s, board: new(permit.Board), log: slog.New(slog.DiscardHandler), pages: make(map[dap.TaskID]*leaf)}
	b.pages[testTask] = &leaf{id: testTask, key: NewKey("a token between the two", testTask), static: *testFacts(1)}
	b.pages[testTask].static.Ledger, b.pages[testTask].static.Seen = Tally{}, 0
	b.write(b.pages[testTask])
	return b
}

// TestDroppedPage: of a task that is given up nothing is known, whoever asks, but what its
// helper was shown once; and what was found of it last is on the board no more.
func TestDroppedPage(t *testing.T) {
	ctx := context.Background()
	b := testBook(dap.RoleHelper, new(memory))
	l := b.pages[testTask]
	l.seen = 7
	b.Refused(testTask, time.Unix(1, 0))
	if b.Quiet(testTask) || b.board.May(testTask, permit.Take) == nil {
		t.Error("a difference that nobody sees")
	}
	b.Drop(testTask)
	b.Drop(testTask)
	if !b.Quiet(testTask) || b.board.May(testTask, permit.All) != nil || b.seen[testTask] != 7 {
		t.Errorf("dropped: %v", b.seen)
	}
	b.Refused(testTask, time.Unix(1, 0))
	b.set(l, Standing{Behind: 1}) // of an exchange that was under way
	if b.board.May(testTask, permit.All) != nil || b.Pass(testTask, nil) || b.Passed(testTask) || b.Agrees(testTask) || b.Status(testTask) != nil ||
		!b.Takes(testTask, time.Time{}, time.Unix(1, 0), 0) {
		t.Error("something is known of a task that was given up")
	}
	if freed := b.Fail([]dap.TaskID{testTask}, ErrSilent); freed != 0 {
		t.Errorf("freed %v", freed)
	}
	if _, err := b.Part(ctx, testTask, new(Part)); err == nil {
		t.Error("a part of its ledger")
	}
	if list, _, err := b.entries(ctx, []dap.TaskID{testTask}, Newest); len(list) != 0 || err != nil {
		t.Errorf("entries %v, %v", list, err)
	}
}

// courier carries messages to a helper's book; at is called before and after each is taken.
type courier struct {
	helper *Book
	at     func()
}

var noon = time.Unix(1_800_000_000, 0)

func (w *courier) Agree(ctx context.Context, body []byte) ([]byte, error) {
	w.at()
	defer w.at()
	in, err := ReadMessage(body)
	if err != nil {
		return nil, err
	}
	out, err := w.helper.Answer(ctx, w.helper.Tasks(), in, Service{Now: Millis(noon)}, noon)
	if err != nil {
		return nil, err
	}
	return out.Append(nil)
}

func (w *courier) Part(ctx context.Context, id dap.TaskID, body []byte) ([]byte, error) {
	w.at()
	defer w.at()
	in, err := ReadPart(body)
	if err != nil {
		return nil, err
	}
	out, err := w.helper.Part(ctx, id, in)
	if err != nil {
		return nil, err
	}
	return out.Append(nil)
}

func (b *Book) standingOf() Standing { return b.pages[testTask].standing }

// exchange runs one, and says how both stand then.
func run(t *testing.T, l, h *Book, at func()) (leader, helper Standing) {
	t.Helper()
	if at == nil {
		at = func() {}
	}
	if _, err := l.Exchange(t.Context(), &courier{h, at}, l.Tasks(), Service{}, func() time.Time { return noon }); err != nil {
		t.Fatal(err)
	}
	return l.standingOf(), h.standingOf()
}

// orders are all in which the steps of two releases can follow one another: each is frozen,
// released by the helper, and released by the leader.
func orders() (all []string) {
	var extend func(done, one, two string)
	extend = func(done, one, two string) {
		if one == "" && two == "" {
			all = append(all, done)
			return
		}
		if one != "" {
			extend(done+one[:1], one[1:], two)
		}
		if two != "" {
			extend(done+two[:1], one, two[1:])
		}
	}
	extend("", "fhl", "FHL")
	return all
}

// step does one step; a capital is of the second batch.
func step(s byte, leader, helper *memory) {
	x := byte(2)
	if s < 'a' {
		x, s = 3, s+'a'-'A'
	}
	switch s {
	case 'f':
		leader.freeze(x)
	case 'h':
		helper.release(x)
	case 'l':
		leader.release(x)
	}
}

// TestNoFalseAlarm: two batches are released while an exchange runs, in each order that
// there is, each step at any point of the exchange, between two readings of a store
// included; neither side is ever behind, nor after a crash of either, in the next exchange.
// Then one store goes back to each state that it had: whoever lacks what the other has seen
// is found behind, by itself, and no other.
func TestNoFalseAlarm(t *testing.T) {
	runs, alarms, silent := 0, 0, 0
	for _, order := range orders() {
		// At which calls of at() the steps happen: the first from the call first on, the
		// others each gap calls later.
		for first := range 14 {
			for gap := range 5 {
				leader, helper := &memory{}, &memory{}
				step('f', leader, helper)
				leader.frozen = nil
				leader.release(1)
				helper.release(1)
				states := [][2]*memory{{leader.clone(), helper.clone()}}
				calls, next, busy := 0, 0, false
				at := func() {
					if busy {
						return
					}
					busy = true
					for next < len(order) && calls >= first+gap*next {
						step(order[next], leader, helper)
						next++
						states = append(states, [2]*memory{leader.clone(), helper.clone()})
					}
					calls++
					busy = false
				}
				leader.read, helper.read = at, at
				l, h := testBook(dap.RoleLeader, leader), testBook(dap.RoleHelper, helper)
				fine := func(when string) {
					t.Helper()
					one, two := run(t, l, h, at)
					if one.Words() != "" || two.Words() != "" || one.At.IsZero() || two.At.IsZero() {
						t.Fatalf("%s, first %d, gap %d, %s: the leader: %q, the helper: %q", order, first, gap, when, one.Words(), two.Words())
					}
				}
				fine("at the start")
				fine("then")
				l = testBook(dap.RoleLeader, leader)
				fine("after a crash of the leader")
				h = testBook(dap.RoleHelper, helper)
				fine("after a crash of the helper")
				runs++
				if gap > 0 {
					continue
				}
				leader.read, helper.read = nil, nil
				for _, s := range states {
					old := testBook(dap.RoleLeader, s[0])
					one, _ := run(t, old, testBook(dap.RoleHelper, helper), nil)
					lost := uint64(0)
					for x := byte(1); x <= 3; x++ {
						if helper.has(x) && !s[0].has(x) && !s[0].asked(x) {
							lost++
						}
					}
					if one.Behind != lost || one.Ahead != 0 || (lost > 0) != (old.board.May(testTask, permit.Release) != nil) {
						t.Fatalf("%s: the leader back at %+v: behind %d, want %d", order, s[0], one.Behind, lost)
					}
					// A helper that saw the leader's ledger finds what the frozen batches
					// hide.
					seen := testBook(dap.RoleHelper, helper)
					run(t, testBook(dap.RoleLeader, leader), seen, nil)
					one, _ = run(t, testBook(dap.RoleLeader, s[0]), seen, nil)
					if want := len(leader.released) > len(s[0].released); (one.Behind > 0) != want {
						t.Fatalf("%s: the leader back at %+v, seen before: behind %d", order, s[0], one.Behind)
					}

					back := testBook(dap.RoleHelper, s[1])
					one, two := run(t, testBook(dap.RoleLeader, leader), back, nil)
					lost = 0
					for x := byte(1); x <= 3; x++ {
						if leader.has(x) && !s[1].has(x) {
							lost++
						}
					}
					if two.Behind != lost || one.Ahead != lost || one.Behind != 0 || (lost > 0) != (back.board.May(testTask, permit.Verify) != nil) {
						t.Fatalf("%s: the helper back at %+v: behind %d, ahead %d, want %d", order, s[1], two.Behind, one.Ahead, lost)
					}
					if lost > 0 {
						alarms++
					} else {
						silent++
					}
				}
			}
		}
	}
	if runs != 20*14*5 || alarms == 0 || silent == 0 {
		t.Errorf("%d runs, %d alarms, %d without", runs, alarms, silent)
	}
}

// TestForks: two stores of which each lacks what the other has are both behind, also where
// their ledgers are as long.
func TestForks(t *testing.T) {
	leader, helper := &memory{}, &memory{}
	leader.release(1)
	helper.release(2)
	one, two := run(t, testBook(dap.RoleLeader, leader), testBook(dap.RoleHelper, helper), nil)
	if one.Behind != 1 || one.Ahead != 1 || two.Behind != 1 {
		t.Errorf("the leader %+v, the helper %+v", one, two)
	}
}

// TestLongLedgers are compared in parts.
func TestLongLedgers(t *testing.T) {
	const n = MaxPrints + 5
	long := func(without int) *memory {
		m := &memory{}
		for i := range n {
			if i != without {
				r := store.Released{Seq: int64(i + 1), Batch: fmt.Appendf(nil, "%016d", i), Count: 1}
				m.released = append(m.released, r)
			}
		}
		return m
	}
	one, two := run(t, testBook(dap.RoleLeader, long(n-1)), testBook(dap.RoleHelper, long(7)), nil)
	if one.Behind != 1 || one.Ahead != 1 || two.Behind != 1 {
		t.Errorf("the leader %q, the helper %q", one.Words(), two.Words())
	}
}

// TestHealsByItself: a difference that was mended on one side is gone with the next
// exchange, at both; and what a helper that is away, lies or is another's leaves behind
// is nothing.
func TestHealsByItself(t *testing.T) {
	leader, helper := &memory{}, &memory{}
	l, h := testBook(dap.RoleLeader, leader), testBook(dap.RoleHelper, helper)
	if err := l.board.May(testTask, permit.Take|permit.Verify); err != nil || l.board.May(testTask, permit.Release) == nil {
		t.Errorf("before the first exchange: %v", err)
	}
	if err := h.board.May(testTask, permit.All); err != nil {
		t.Errorf("a helper that was not asked: %v", err)
	}
	l.pages[testTask].static.Keys[0].Digest[0] ^= 1
	one, two := run(t, l, h, nil)
	if len(one.Differences) != 1 || len(two.Differences) != 1 || l.board.May(testTask, permit.Take) == nil || h.board.May(testTask, permit.Verify) == nil {
		t.Fatalf("the leader %+v, the helper %+v", one, two)
	}
	l.Fail(l.Tasks(), ErrMessage)
	if s := l.standingOf(); s.Failed == "" || len(s.Differences) != 1 {
		t.Errorf("a helper that lies mends a difference: %+v", s)
	}
	l = testBook(dap.RoleLeader, leader)
	if freed, err := l.Exchange(t.Context(), &courier{h, func() {}}, l.Tasks(), Service{}, func() time.Time { return noon }); err != nil || freed != permit.Release {
		t.Errorf("mended: freed %b, %v", freed, err)
	}
	if one, two = l.standingOf(), h.standingOf(); one.Words()+two.Words() != "" {
		t.Errorf("mended: the leader %+v, the helper %+v", one, two)
	}
	l.Fail(l.Tasks(), ErrSilent)
	if s := l.standingOf(); s.Silent || s.Failed == "" || l.board.May(testTask, permit.All) != nil {
		t.Errorf("a helper that is away for a while: %+v", s)
	}
	l = testBook(dap.RoleLeader, leader)
	l.Fail(l.Tasks(), ErrSilent)
	if s := l.standingOf(); !s.Silent || l.board.May(testTask, permit.All) != nil {
		t.Errorf("another implementation's: %+v", s)
	}
}

// TestFence: a request that carries another fence does not pass, one without does, and what
// an earlier life stored waits for one that passes.
func TestFence(t *testing.T) {
	l, h := testBook(dap.RoleLeader, &memory{}), testBook(dap.RoleHelper, &memory{})
	if h.Passed(testTask) {
		t.Error("nobody has come")
	}
	good := l.Fence(testTask)
	l.pages[testTask].static.Collector[3] ^= 1
	for _, c := range []struct {
		values []string
		want   bool
	}{
		{[]string{l.Fence(testTask)}, false}, {[]string{good}, true}, {[]string{good, good}, false}, {nil, true},
		{[]string{strings.Replace(good, "1 ", "2 ", 1)}, false}, {[]string{""}, false},
	} {
		if got := h.Pass(testTask, c.values); got != c.want || h.Passed(testTask) != c.want {
			t.Errorf("%q: %v", c.values, got)
		}
	}
}

// TestLies: a helper's answer that is malformed, or of another task or part, is an error
// and changes nothing; facts that are missing are not taken for equal.
func TestLies(t *testing.T) {
	leader := &memory{}
	leader.release(1)
	for name, lie := range map[string]func(*Message){
		"no facts": func(m *Message) {
			for i := range m.Entries {
				m.Entries[i].Facts = nil
			}
		},
		"another task": func(m *Message) { m.Root[0] ^= 1; m.Entries = []Entry{{Task: dap.TaskID{9}, Digest: Digest{1}}} },
	} {
		l := testBook(dap.RoleLeader, leader)
		w := &liar{courier{testBook(dap.RoleHelper, &memory{}), func() {}}, lie}
		_, err := l.Exchange(t.Context(), w, l.Tasks(), Service{}, func() time.Time { return noon })
		switch {
		case name == "no facts" && (err == nil || l.standingOf().Known()):
			t.Errorf("%s: %v, %+v", name, err, l.standingOf())
		case name == "another task" && err != nil: // and of ours it said nothing
			t.Errorf("%s: %v", name, err)
		}
	}
}

type liar struct {
	courier
	lie func(*Message)
}

func (w *liar) Agree(ctx context.Context, body []byte) ([]byte, error) {
	b, err := w.courier.Agree(ctx, body)
	if err != nil {
		return nil, err
	}
	m, err := ReadMessage(b)
	if err != nil {
		return nil, err
	}
	w.lie(m)
	return m.Append(nil)
}
