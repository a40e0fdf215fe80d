package agreement

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/permit"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// A Store is what is read of an aggregator's releases; see [store.Tasks] and
// [store.Releases].
type Store interface {
	TaskState(ctx context.Context, task dap.TaskID) (store.TaskState, error)
	ReleasesAfter(ctx context.Context, task dap.TaskID, after int64, n int) ([]store.Released, error)
	Frozen(ctx context.Context, task dap.TaskID) ([]store.Released, error)
	Registration(ctx context.Context, task dap.TaskID) (*store.Registration, error)
}

// A Book is what one aggregator knows of its tasks and of how it stands to the other; the
// consequences it writes on a board. It lives as long as the service: after a restart
// nothing has been compared. A task without a page was given up this moment, and nothing is
// known of it. Safe for concurrent use.
type Book struct {
	role   dap.Role
	store  Store
	board  *permit.Board
	closer Closer
	log    *slog.Logger

	mu    sync.RWMutex // guards the maps; leaves guard themselves
	pages map[dap.TaskID]*leaf
	seen  map[dap.TaskID]uint64 // Facts.Seen of pages that were closed
}

// A leaf is of one task.
type leaf struct {
	id     dap.TaskID
	key    Key
	static Facts // without ledger and seen
	// brought says that the leader advertises the task, so that its helper may take it.
	brought bool
	end     time.Time // of its last report; zero: never
	ledger  Ledger

	mu       sync.Mutex
	standing Standing
	seen     uint64 // see Facts.Seen
	// releases that the leader showed and this helper lacks, by part of 2^bits
	missing map[uint8]int
	bits    uint8
	vouched bool         // see Pass
	dropped bool         // nobody finds it any more
	other   ClosingState // as the other said last
	why     string       // the reason of the closing here, once it was read
}

// NewBook opens the book of a service, with no page.
func NewBook(role dap.Role, s Store, board *permit.Board, closer Closer, log *slog.Logger) *Book {
	return &Book{role: role, store: s, board: board, closer: closer, log: log, pages: make(map[dap.TaskID]*leaf)}
}

// Add opens the page of a task, of which nothing has been compared; one that is open stays.
func (b *Book) Add(ctx context.Context, t *task.Task) error {
	if b.page(t.ID) != nil {
		return nil
	}
	l := &leaf{id: t.ID, key: NewKey(t.PeerSecret, t.ID)}
	facts, err := Of(t, l.key)
	if err != nil {
		return err
	}
	l.static, l.brought, l.end = *facts, t.Advert != "", t.End(0)
	state, err := b.store.TaskState(ctx, t.ID)
	if err != nil {
		return fmt.Errorf("agreement: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pages[t.ID] != nil {
		return nil
	}
	if l.static.ClosedIn = state.ClosedIn; l.static.ClosedIn != 0 {
		b.board.Put(t.ID, permit.Restore, closed(b.role, l.static.ClosedIn))
	}
	l.seen = b.seen[t.ID]
	b.pages[t.ID] = l
	b.write(l)
	return nil
}

// Quiet says whether nothing differs in a task and nothing of its ledgers is missing, as far as
// is known: else whoever reads a status would miss it.
func (b *Book) Quiet(id dap.TaskID) bool {
	l := b.page(id)
	if l == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.standing.Differences) == 0 && l.standing.Behind == 0 && l.standing.Ahead == 0
}

// Drop closes the page of a task that is given up: it opens again with the task, and nothing
// has been compared then. A helper remembers what it was shown once.
func (b *Book) Drop(id dap.TaskID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.pages[id]
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen > 0 {
		if b.seen == nil {
			b.seen = make(map[dap.TaskID]uint64)
		}
		b.seen[id] = l.seen
	}
	delete(b.pages, id)
	l.dropped = true
	b.board.Forget(id, permit.Agreement)
}

// page is that of a task; nil where there is none.
func (b *Book) page(id dap.TaskID) *leaf {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.pages[id]
}

// closed is why a task does nothing any more that a restore closed here.
func closed(role dap.Role, epoch uint32) permit.Reason {
	return permit.Reason{
		Stops: permit.All,
		Why:   fmt.Sprintf("this %v was restored from a backup (restore epoch %d): what was released since is not known, so the task takes and releases nothing more", role, epoch),
		Do:    "make its recipe again and give it to leader, helper, collector and devices: starling recipe again OLD NEW",
	}
}

// write puts the consequences on the board; the leaf is locked, or nobody else's yet.
func (b *Book) write(l *leaf) permit.Act {
	if l.dropped {
		return 0
	}
	return b.board.Put(l.id, permit.Agreement, l.standing.Reasons(b.role)...)
}

// set is the new standing of a task, and returns what it may do now and might not before.
func (b *Book) set(l *leaf, s Standing) permit.Act {
	was, is := l.standing.Words(), s.Words()
	switch known := l.standing.Known(); {
	case was != is && is != "":
		b.log.Error("leader and helper do not agree: the task waits", "task", l.id, "what", is)
	case was != is || !known && s.Known():
		b.log.Info("leader and helper were compared", "task", l.id, "silent", s.Silent)
	}
	l.standing = s
	return b.write(l)
}

// Status is how a task stands, for the operator.
func (b *Book) Status(id dap.TaskID) *status.Agreement {
	l := b.page(id)
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.standing.Status()
}

// Agrees says whether nothing differs in a task, as far as is known: the two were compared,
// or cannot be.
func (b *Book) Agrees(id dap.TaskID) bool {
	l := b.page(id)
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.standing.Known() && len(l.standing.Differences) == 0
}

// Refused notes that a helper does not take a task which its leader brings.
func (b *Book) Refused(id dap.TaskID, now time.Time) {
	l := b.page(id)
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b.set(l, Standing{At: now, Differences: []status.Difference{l.absent()}})
}

// absent is what differs where the leader alone has the task.
func (l *leaf) absent() status.Difference {
	if l.brought {
		return status.Difference{
			What: "the task", Leader: "is here, and advertised", Helper: "is not there: the helper does not take it",
			Do: "compare the task with what [[taskprov]] of the helper allows this leader; its operator finds the reason in its log. It is offered again by itself",
		}
	}
	return status.Difference{
		What: "the task", Leader: "is here", Helper: "is not there, or has another peer_token",
		Do: "at the helper: starling task add --recipe FILE helper.toml, with the same peer_token; the two go on by themselves",
	}
}

// Fence is the value of [FenceHeader] in requests of a task that a leader makes.
func (b *Book) Fence(id dap.TaskID) string {
	l := b.page(id)
	first := l.static.Keys[0].ID
	fence, _ := l.static.fence(l.key, first) // it has that key
	return fenceValue(first, fence)
}

// Pass says whether a helper may look into a request about jobs or shares that came with
// those values of [FenceHeader]: where there is none it is another implementation's, and it
// may. It remembers that the task's leader has come and passed.
func (b *Book) Pass(id dap.TaskID, values []string) bool {
	l := b.page(id)
	if l == nil {
		return false
	}
	pass := len(values) == 0
	if len(values) == 1 {
		key, fence, err := readFence(values[0])
		own, ok := l.static.fence(l.key, key)
		pass = err == nil && ok && hmac.Equal(own[:], fence[:])
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.vouched = pass
	// they were mended since, or are another leader's
	if pass && len(l.standing.Differences) > 0 {
		s := l.standing
		s.Differences, s.At = nil, time.Time{}
		b.set(l, s)
	}
	return pass
}

// Passed says whether a request of the task's leader passed last: what an earlier life of a
// helper has stored of a task is worked on only then, for keys may have been changed since.
func (b *Book) Passed(id dap.TaskID) bool {
	l := b.page(id)
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.vouched
}

// facts are those of a task now.
func (b *Book) facts(ctx context.Context, l *leaf, state store.TaskState) (*Facts, error) {
	tally, err := l.ledger.Tally(ctx, b.store, l.id, l.key)
	if err != nil {
		return nil, fmt.Errorf("agreement: read the ledger: %w", err)
	}
	closing, err := b.closing(ctx, l, state)
	if err != nil {
		return nil, fmt.Errorf("agreement: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.static
	f.leaf, f.Closing = l, closing
	if f.Ledger = tally; b.role == dap.RoleHelper {
		f.Seen = l.seen
	}
	return &f, nil
}

// entries are those of the tasks that are not retired, in order, for messages of that
// version, and their facts by task.
func (b *Book) entries(ctx context.Context, ids []dap.TaskID, version uint8) (list []Entry, facts map[dap.TaskID]*Facts, err error) {
	facts = make(map[dap.TaskID]*Facts)
	for _, id := range slices.SortedFunc(slices.Values(ids), compareIDs) {
		state, err := b.store.TaskState(ctx, id)
		if err != nil {
			return nil, nil, fmt.Errorf("agreement: %w", err)
		}
		if state.Retired {
			continue
		}
		l := b.page(id)
		if l == nil {
			continue
		}
		f, err := b.facts(ctx, l, state)
		if err != nil {
			return nil, nil, err
		}
		facts[id] = f
		list = append(list, Entry{Task: id, Digest: f.Digest(l.key, version)})
	}
	return list, facts, nil
}

func compareIDs(a, b dap.TaskID) int { return slices.Compare(a[:], b[:]) }

// agreed notes that nothing differs in a task but what the services do: its closing neither.
func (b *Book) agreed(l *leaf, now time.Time, services []status.Difference, releases uint64, closing ClosingState) permit.Act {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.other = closing
	l.seen = max(l.seen, releases)
	l.missing = nil
	return b.set(l, Standing{At: now, Differences: services})
}

// Answer is the helper's side of an exchange about the tasks of one token.
func (b *Book) Answer(ctx context.Context, ids []dap.TaskID, in *Message, own Service, now time.Time) (*Message, error) {
	entries, facts, err := b.entries(ctx, ids, in.Version)
	if err != nil {
		return nil, err
	}
	services := compareServices(&in.Service, &own)
	out := &Message{Version: in.Version, Service: own, Root: Root(entries)}
	if len(in.Entries) == 0 {
		if in.Root == out.Root {
			for _, f := range facts {
				b.agreed(f.leaf, now, services, f.Ledger.Releases, f.said(in.Version))
			}
		}
		return out, nil
	}
	for i := range in.Entries {
		asked := &in.Entries[i]
		f, here := facts[asked.Task]
		switch {
		case !here && slices.Contains(ids, asked.Task):
			out.Entries = append(out.Entries, Entry{Task: asked.Task, State: Retired})
		case !here:
			out.Entries = append(out.Entries, Entry{Task: asked.Task, State: Unknown})
		case asked.State != Held: // the leader has ended it
		default:
			l := f.leaf
			e := Entry{Task: asked.Task, Digest: f.Digest(l.key, in.Version), Facts: f}
			if e.Digest == asked.Digest {
				b.agreed(l, now, services, f.Ledger.Releases, f.said(in.Version))
				continue
			}
			out.Entries = append(out.Entries, e)
			if asked.Facts != nil {
				b.compared(l, asked.Facts, f, now, services)
				if in.Version >= 2 {
					if err := b.heard(ctx, l, f.Closing, asked.Facts.Closing); err != nil {
						return nil, fmt.Errorf("agreement: %w", err)
					}
				}
			}
		}
	}
	return out, nil
}

// compared notes what a helper finds in its leader's facts.
func (b *Book) compared(l *leaf, leader, helper *Facts, now time.Time, services []status.Difference) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A leader has no more than we have; what it says beyond that is not kept.
	l.seen = max(l.seen, min(leader.Ledger.Releases, helper.Ledger.Releases))
	b.set(l, Standing{At: now, Differences: slices.Concat(services, Compare(leader, helper)), Behind: l.lacks()})
}

// lacks is how many releases a helper knows to be missing; the leaf is locked.
func (l *leaf) lacks() (n uint64) {
	for _, k := range l.missing {
		n += uint64(k)
	}
	return n
}

// Part is the helper's side where ledgers differ: it says what it has released, and whether
// it lacks what its leader has.
func (b *Book) Part(ctx context.Context, id dap.TaskID, in *Part) (*Part, error) {
	l := b.page(id)
	if l == nil {
		return nil, fmt.Errorf("agreement: task %v was given up this moment", id)
	}
	out := &Part{Bits: in.Bits, Index: in.Index}
	var err error
	if out.Prints, err = printsIn(ctx, b.store, id, l.key, false, out); err != nil {
		return nil, fmt.Errorf("agreement: read the ledger: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.missing == nil || l.bits != in.Bits {
		l.missing, l.bits = make(map[uint8]int), in.Bits
	}
	l.missing[in.Index] = Missing(in.Prints, out.Prints)
	s := l.standing
	s.Behind = l.lacks()
	b.set(l, s)
	return out, nil
}

// A Wire takes a leader's messages to its helper. Agree fails with [ErrSilent] where the
// helper has no such resource, and with [ErrUnread] where it does not know the message.
type Wire interface {
	Agree(ctx context.Context, body []byte) ([]byte, error)
	Part(ctx context.Context, task dap.TaskID, body []byte) ([]byte, error)
}

// ErrSilent: the other aggregator has no such exchange, as no implementation but ours has.
var ErrSilent = errors.New("agreement: the helper does not compare itself")

// ErrUnread: the helper refuses the message, as an older one does whose newest version is
// older than ours.
var ErrUnread = errors.New("agreement: the helper does not read our message")

// Exchange is the leader's side about the tasks that it has with one helper under one
// token. own is what the leader says of itself, without its clock. freed is what some
// task may do now and might not before. The error is why the two were not compared, or
// not wholly; [Book.Fail] notes it.
func (b *Book) Exchange(ctx context.Context, w Wire, ids []dap.TaskID, own Service, clock func() time.Time) (freed permit.Act, err error) {
	for version := uint8(Newest); ; version-- {
		freed, err = b.exchange(ctx, version, w, ids, own, clock)
		if version == Oldest || !errors.Is(err, ErrUnread) {
			return freed, err
		}
	}
}

// exchange is [Book.Exchange] in messages of one version: replicas of a helper may be of two.
func (b *Book) exchange(ctx context.Context, version uint8, w Wire, ids []dap.TaskID, own Service, clock func() time.Time) (freed permit.Act, err error) {
	x := &exchange{Book: b, version: version, wire: w, own: own, clock: clock}
	entries, facts, err := b.entries(ctx, ids, version)
	if err != nil || len(entries) == 0 {
		return 0, err
	}
	x.root, x.mine = Root(entries), facts
	first, err := x.ask(ctx, nil)
	if err != nil {
		return 0, err
	}
	if first.Root == x.root {
		for _, f := range facts {
			x.freed |= x.agree(f.leaf, f, f.Ledger.Releases)
		}
		return x.freed, nil
	}
	for some := range slices.Chunk(entries, MaxTasks) {
		if err := x.list(ctx, some); err != nil {
			return x.freed, err
		}
	}
	return x.freed, nil
}

// agree notes that nothing differs in a task of which both hold these facts.
func (x *exchange) agree(l *leaf, f *Facts, releases uint64) permit.Act {
	return x.agreed(l, x.clock(), x.services, releases, f.said(x.version))
}

// An exchange is one under way.
type exchange struct {
	*Book
	version  uint8
	wire     Wire
	own      Service
	clock    func() time.Time
	root     Digest
	mine     map[dap.TaskID]*Facts
	services []status.Difference // of the last answer
	freed    permit.Act
}

// ask posts one message.
func (x *exchange) ask(ctx context.Context, entries []Entry) (*Message, error) {
	begin := x.clock()
	x.own.Now = Millis(begin)
	body, err := (&Message{Version: x.version, Service: x.own, Root: x.root, Entries: entries}).Append(nil)
	if err != nil {
		return nil, err
	}
	answer, err := x.wire.Agree(ctx, body)
	if err != nil {
		return nil, err
	}
	m, err := ReadMessage(answer)
	if err != nil {
		return nil, err
	}
	if m.Version != x.version {
		return nil, &VersionError{m.Version}
	}
	x.own.Offset = Offset(begin, x.clock(), m.Service.Now)
	x.services = compareServices(&x.own, &m.Service)
	return m, nil
}

// list compares some tasks one by one.
func (x *exchange) list(ctx context.Context, entries []Entry) error {
	answer, err := x.ask(ctx, entries)
	if err != nil {
		return err
	}
	theirs := make(map[dap.TaskID]*Entry)
	for i := range answer.Entries {
		theirs[answer.Entries[i].Task] = &answer.Entries[i]
	}
	var differ []Entry // with our facts, for the helper to know
	for _, e := range entries {
		mine := x.mine[e.Task]
		l := mine.leaf
		there := theirs[e.Task]
		switch {
		case there == nil:
			x.freed |= x.agree(l, mine, mine.Ledger.Releases)
		case there.State == Retired:
			x.freed |= x.agree(l, mine, 0)
			// It was closed there, and this leader was away for longer than that is told.
			if over := !l.end.IsZero() && !x.clock().Before(l.end); !over {
				if err := x.heard(ctx, l, mine.Closing, Closing{Drained, "the task has ended there, and is erased"}); err != nil {
					return fmt.Errorf("agreement: %w", err)
				}
			}
		case there.State == Unknown:
			x.put(l, Standing{At: x.clock(), Differences: append(slices.Clone(x.services), l.absent())})
		case there.Facts == nil:
			return fmt.Errorf("%w: no facts of a task that differs", ErrMessage)
		default:
			e.Facts = mine
			differ = append(differ, e)
		}
	}
	if len(differ) == 0 {
		return nil
	}
	if _, err := x.ask(ctx, differ); err != nil {
		return err
	}
	for _, e := range differ {
		if err := x.compare(ctx, x.mine[e.Task].leaf, theirs[e.Task].Facts); err != nil {
			return err
		}
	}
	return nil
}

func (x *exchange) put(l *leaf, s Standing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x.freed |= x.set(l, s)
}

// compare judges one task, by the helper's facts and, where the ledgers differ, by their
// releases.
func (x *exchange) compare(ctx context.Context, l *leaf, helper *Facts) error {
	mine := x.mine[l.id]
	if x.version >= 2 {
		if err := x.heard(ctx, l, mine.Closing, helper.Closing); err != nil {
			return fmt.Errorf("agreement: %w", err)
		}
	}
	s := Standing{Differences: slices.Concat(x.services, Compare(mine, helper))}
	if mine.Ledger != helper.Ledger {
		var err error
		if s.Behind, s.Ahead, err = x.ledgers(ctx, l, max(mine.Ledger.Releases, helper.Ledger.Releases)); err != nil {
			return err
		}
	}
	now, err := l.ledger.Tally(ctx, x.store, l.id, l.key)
	if err != nil {
		return fmt.Errorf("agreement: read the ledger: %w", err)
	}
	if helper.Seen > now.Releases {
		s.Behind = max(s.Behind, helper.Seen-now.Releases)
	}
	s.At = x.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	x.freed |= x.set(l, s)
	return nil
}

// ledgers compares all releases; the package's documentation has the order of the reads.
func (x *exchange) ledgers(ctx context.Context, l *leaf, releases uint64) (behind, ahead uint64, err error) {
	bits, ok := Parts(releases)
	if !ok {
		return 0, 0, fmt.Errorf("agreement: ledgers of %d releases are too long to be compared", releases)
	}
	for i := range 1 << bits {
		ours := &Part{Bits: bits, Index: uint8(i)}
		if ours.Prints, err = printsIn(ctx, x.store, l.id, l.key, false, ours); err != nil {
			return 0, 0, fmt.Errorf("agreement: read the ledger: %w", err)
		}
		body, err := ours.Append(nil)
		if err != nil {
			return 0, 0, err
		}
		answer, err := x.wire.Part(ctx, l.id, body)
		if err != nil {
			return 0, 0, err
		}
		theirs, err := ReadPart(answer)
		if err != nil {
			return 0, 0, err
		}
		if theirs.Bits != ours.Bits || theirs.Index != ours.Index {
			return 0, 0, fmt.Errorf("%w: another part of the ledger than was asked for", ErrMessage)
		}
		known, err := printsIn(ctx, x.store, l.id, l.key, true, ours)
		if err != nil {
			return 0, 0, fmt.Errorf("agreement: read the ledger: %w", err)
		}
		behind += uint64(Missing(theirs.Prints, known))
		ahead += uint64(Missing(ours.Prints, theirs.Prints))
	}
	return behind, ahead, nil
}

// Fail notes why the tasks of a leader were not compared. The last comparison still
// holds: a helper that is away changes nothing. One that has no such exchange, and did
// not show it in this life, is another implementation's.
func (b *Book) Fail(ids []dap.TaskID, err error) (freed permit.Act) {
	for _, id := range ids {
		l := b.page(id)
		if l == nil {
			continue
		}
		l.mu.Lock()
		s := l.standing
		if s.Failed = err.Error(); errors.Is(err, ErrSilent) && s.At.IsZero() {
			s = Standing{Silent: true}
		}
		freed |= b.set(l, s)
		l.mu.Unlock()
	}
	return freed
}

// Tasks lists the tasks of the book, in order.
func (b *Book) Tasks() []dap.TaskID {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.SortedFunc(maps.Keys(b.pages), compareIDs)
}
