package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/gateway/internal/answer"
	"github.com/starling-agg/starling/anonymity/gateway/internal/forward"
	"github.com/starling-agg/starling/anonymity/gateway/internal/journal"
	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/anonymity/internal/shuffle"
	"github.com/starling-agg/starling/internal/disk"
)

// Failpoints of a round; those of the disk and of the way to targets are others.
const (
	FailBeforeLog    = "gateway.before-log"
	FailAfterLog     = "gateway.after-log-before-answer"
	FailAfterAnswer  = "gateway.after-answer-before-forward"
	FailBeforeRetire = "gateway.after-forward-before-retire"
	FailBeforeRemove = "gateway.after-retire-before-remove"
)

// Failpoints lists the places where a test may kill the gateway, in the order in which a
// round passes them.
func Failpoints() []string {
	return slices.Concat([]string{FailBeforeLog, FailAfterLog, FailAfterAnswer}, forward.Failpoints(),
		[]string{FailBeforeRetire, FailBeforeRemove})
}

// A round is what arrives between two ticks, and where it is on its way.
type round struct {
	record  journal.Round
	groups  map[kin]int // in record
	claims  map[*opened]map[[journal.RelaySize]byte]*journal.Claim
	named   []named
	leans   []*round // earlier ones, not on the disk yet, that brought reports which came again in this one
	waiting []*answer.Waiting
	strays  charge // of requests that are for no target

	written chan struct{} // closed when it is on the disk, or cannot be
	err     error         // before written is closed
}

// kin are the requests of one group.
type kin struct {
	route journal.Route
	of    uint64 // the round of their tokens
}

// named is an id that a round has added to those of a key.
type named struct {
	key *opened
	id  [journal.IDSize]byte
}

type charge struct {
	requests int
	bytes    int64
}

// live is a round on the disk.
type live struct {
	*journal.Round
	groups int // that are not credited
}

func newRound() *round {
	return &round{groups: make(map[kin]int), claims: make(map[*opened]map[[journal.RelaySize]byte]*journal.Claim),
		written: make(chan struct{})}
}

// join puts a request into the open round. The fingerprint is taken at once, the disk
// gets it with the round. A report whose name is known is what a cover is: it was taken
// before.
func (g *Gateway) join(w *answer.Waiting, it *item, k *key, from *sender, f fingerprint, size int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped || g.failure != nil {
		return &door.Error{Reason: door.Busy}
	}
	g.claims.Lock()
	defer g.claims.Unlock()
	if err := k.opened.claim(f, from); err != nil {
		return err
	}
	r := g.open
	c := r.claim(k.opened, k.raw, from)
	c.Prints = append(c.Prints, uint64(f))
	r.waiting = append(r.waiting, w)
	if !it.toTarget || !g.counted(r, &it.token, from) {
		r.strays.requests++
		r.strays.bytes += int64(size)
		return nil
	}
	of := kin{it.route, it.token.round}
	n, ok := r.groups[of]
	if !ok {
		n = len(r.record.Groups)
		r.groups[of] = n
		r.record.Groups = append(r.record.Groups, journal.Group{Route: of.route, Of: of.of})
	}
	group := &r.record.Groups[n]
	group.Requests++
	group.Bytes += uint64(size)
	if it.body == nil {
		return nil
	}
	if g.keys.Load().knows(it.name) {
		g.lean(r, it.name)
		g.counts.known.Add(1)
		return nil
	}
	g.name(r, k.opened, c, it.name)
	r.record.Items = append(r.record.Items, journal.Item{Group: n, Body: it.body})
	return nil
}

// claim is what a key opened in a round for a relay.
func (r *round) claim(o *opened, raw [journal.KeySize]byte, from *sender) *journal.Claim {
	claims := r.claims[o]
	if claims == nil {
		claims = make(map[[journal.RelaySize]byte]*journal.Claim)
		r.claims[o] = claims
	}
	c := claims[from.name]
	if c == nil {
		c = &journal.Claim{Key: raw, Relay: from.name}
		claims[from.name] = c
	}
	return c
}

// name adds an id to those of a key, on the disk with the round. g.mu and Gateway.claims
// must be held.
func (g *Gateway) name(r *round, o *opened, c *journal.Claim, id [journal.IDSize]byte) {
	o.ids[id] = struct{}{}
	g.unwritten[id] = r
	r.named = append(r.named, named{o, id})
	c.IDs = append(c.IDs, id)
}

// lean has a round in which a known id came again fail with the one that brought it, if
// that is not on the disk yet. g.mu must be held.
func (g *Gateway) lean(r *round, id [journal.IDSize]byte) {
	if first := g.unwritten[id]; first != nil && first != r {
		r.leans = append(r.leans, first)
	}
}

// seal fixes a round for the disk: nothing in it tells in which order it came.
func (r *round) seal(number uint64, closed time.Time) {
	r.record.Number, r.record.Closed = number, closed
	order := make([]int, len(r.record.Groups))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := r.record.Groups[a], r.record.Groups[b]
		return cmp.Or(strings.Compare(x.Route.Target+"\x00"+x.Route.Path+"\x00"+x.Route.Media, y.Route.Target+"\x00"+y.Route.Path+"\x00"+y.Route.Media),
			cmp.Compare(x.Of, y.Of))
	})
	groups, place := make([]journal.Group, len(order)), make([]int, len(order))
	for to, from := range order {
		groups[to], place[from] = r.record.Groups[from], to
	}
	r.record.Groups = groups
	items := r.record.Items
	for i := range items {
		items[i].Group = place[items[i].Group]
	}
	shuffle.Uniform(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	for _, relays := range r.claims {
		for _, c := range relays {
			slices.Sort(c.Prints)
			slices.SortFunc(c.IDs, func(a, b [journal.IDSize]byte) int { return bytes.Compare(a[:], b[:]) })
			r.record.Claims = append(r.record.Claims, *c)
		}
	}
}

// Drain lets nothing more in: what has come is written down and answered at the next
// ticks, as ever, and what comes later is refused. A server that shuts down calls it
// first. Run goes on until its context ends.
func (g *Gateway) Drain() { g.drain.Do(func() { close(g.draining) }) }

// Run closes, answers and passes on rounds at ticks, the multiples of the window, until
// ctx ends or [Gateway.Drain] is called; then the requests that have come are answered,
// at ticks too, and when ctx has ended Run returns, two windows later at most where the
// disk keeps up. The next start passes on the rest. Run fails where the disk does:
// everybody who waits is refused then, and the gateway must be opened anew. It runs once.
func (g *Gateway) Run(ctx context.Context) error {
	over, retired := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(retired)
		g.retireAll(over)
	}()
	for g.step(ctx, g.draining) {
	}
	g.stop()
	for g.err() == nil && g.step(ctx, nil) { // a drained gateway passes on what it has as long as it may
	}
	g.forward.Stop()
	close(over)
	<-retired
	return g.err()
}

// step waits for a tick, and says whether there is to be another.
func (g *Gateway) step(ctx context.Context, draining <-chan struct{}) bool {
	now := g.o.Clock.Now()
	timer := g.o.Clock.NewTimer(now.Truncate(g.o.Window).Add(g.o.Window).Sub(now))
	defer timer.Stop()
	select {
	case <-timer.C():
		g.tick()
		return true
	case <-ctx.Done():
	case <-draining:
	case <-g.failed:
	}
	return false
}

// tick is all that happens at one: credits of earlier rounds; what was answered at an
// earlier tick may be passed on; rounds that are on the disk are answered; what has come
// is closed and written.
func (g *Gateway) tick() {
	now := g.o.Clock.Now()
	for _, c := range g.forward.Credits() {
		g.credit(c)
	}
	g.mu.Lock()
	passing := g.answered
	g.mu.Unlock()
	for _, r := range passing {
		if err := g.o.Failpoints.Hit(FailAfterAnswer); err != nil {
			g.fail(err)
			return
		}
		g.pass(r)
		g.mu.Lock()
		g.answered = g.answered[1:] // held now: the status misses it at no time
		g.mu.Unlock()
	}
	g.answer()
	for _, r := range g.relays {
		r.tick()
	}
	g.close(now)
	g.forward.Tick(now)
}

// pass hands a round over.
func (g *Gateway) pass(r *round) {
	g.room.give(r.strays.requests, r.strays.bytes)
	r.groups, r.claims, r.named = nil, nil, nil
	if len(r.record.Groups) == 0 {
		g.retireLater(&r.record)
		return
	}
	g.mu.Lock()
	g.live[r.record.Number] = &live{&r.record, len(r.record.Groups)}
	g.mu.Unlock()
	g.forward.Hold(&r.record)
}

// credit gives the room of a group back, and has its round removed if it was the last.
func (g *Gateway) credit(c forward.Credit) {
	group := &c.Round.Groups[c.Group]
	g.room.give(int(group.Requests), int64(group.Bytes))
	g.mu.Lock()
	l := g.live[c.Round.Number]
	l.groups--
	over := l.groups == 0
	g.mu.Unlock()
	if over {
		g.retireLater(c.Round)
	}
}

// answer answers the rounds that are on the disk, and refuses those that could not be
// written.
func (g *Gateway) answer() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.writing) > 0 {
		r := g.writing[0]
		select {
		case <-r.written:
		default:
			return
		}
		g.writing = g.writing[1:]
		if r.err != nil {
			g.undo(r)
			continue
		}
		answer.Release(r.waiting)
		r.waiting = nil
		for _, n := range r.named {
			delete(g.unwritten, n.id)
		}
		g.answered = append(g.answered, r)
	}
}

// undo refuses a round, and forgets the names in it: they come again. g.mu must be held.
func (g *Gateway) undo(r *round) {
	g.claims.Lock()
	for _, n := range r.named {
		delete(n.key.ids, n.id)
		delete(g.unwritten, n.id)
	}
	g.claims.Unlock()
	requests, size := r.strays.requests, r.strays.bytes
	for i := range r.record.Groups {
		requests += int(r.record.Groups[i].Requests)
		size += int64(r.record.Groups[i].Bytes)
	}
	g.room.give(requests, size)
	answer.Fail(r.waiting)
}

// close ends the open round and has it written. While another is being written the round
// stays open: a disk that is slower than the ticks makes rounds larger, and not a queue
// of them.
func (g *Gateway) close(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.open
	if len(r.waiting) == 0 {
		return
	}
	if n := len(g.writing); n > 0 {
		select {
		case <-g.writing[n-1].written:
		default:
			return
		}
	}
	g.open = newRound()
	r.record.Passed = g.forward.Passed()
	r.seal(g.next, now)
	g.next++
	g.writing = append(g.writing, r)
	g.running.Go(func() {
		// nothing of it is there, and no other has come behind it
		if r.err = g.write(r); r.err != nil {
			g.mu.Lock()
			g.next = r.record.Number
			g.mu.Unlock()
		}
		r.leans = nil
		close(r.written)
	})
}

// write makes a round durable. Those before it have been written, or failed.
func (g *Gateway) write(r *round) error {
	if err := g.err(); err != nil {
		return err
	}
	for _, first := range r.leans { // it would acknowledge a report that no round holds
		if first.err != nil {
			return first.err
		}
	}
	if err := g.o.Failpoints.Hit(FailBeforeLog); err != nil {
		g.fail(err)
		return err
	}
	err := g.journal.Log(&r.record)
	if err != nil && !errors.Is(err, disk.ErrStateUnknown) {
		g.o.Log.Error("a round was refused, for it cannot be written down", slog.Any("error", err))
		return err
	}
	if err == nil {
		err = g.keep(r.record.Claims)
	}
	if err == nil {
		err = g.o.Failpoints.Hit(FailAfterLog)
	}
	if err != nil {
		g.fail(err)
	}
	return err
}

// stop lets nothing more in, and goes on to ticks until all that has come is answered: an
// answer between two would be known for one of a request that came just then. After a
// failure all are refused.
func (g *Gateway) stop() {
	g.mu.Lock()
	g.stopped = true
	g.mu.Unlock()
	for g.waiting() && g.step(context.Background(), nil) {
	}
	g.running.Wait()
	if g.err() == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range append(g.writing, g.open) {
		answer.Fail(r.waiting)
	}
	g.writing, g.open = nil, newRound()
}

// waiting says whether a request waits for its answer.
func (g *Gateway) waiting() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.open.waiting)+len(g.writing) > 0
}

// retireLater puts a round that is done on the list of those that are to end.
func (g *Gateway) retireLater(r *journal.Round) {
	g.mu.Lock()
	g.retiring = append(g.retiring, r)
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// retireAll ends rounds that are done, one after the other and beside the ticks, which
// wait for no disk.
func (g *Gateway) retireAll(over <-chan struct{}) {
	for {
		g.mu.Lock()
		list := g.retiring
		g.retiring = nil
		g.mu.Unlock()
		for _, r := range list {
			if err := g.retire(r); err != nil {
				g.fail(err)
				return
			}
		}
		if len(list) > 0 {
			continue
		}
		select {
		case <-g.wake:
		case <-over:
			return
		}
	}
}

// retire ends a round that is done: what its keys opened in it stays in their logs for as
// long as they do, which the journal vouches for from then on.
func (g *Gateway) retire(r *journal.Round) error {
	if err := g.o.Failpoints.Hit(FailBeforeRetire); err != nil {
		return err
	}
	var vouched []journal.Opened
	g.claims.Lock()
	for _, k := range g.keys.Load().all {
		if slices.ContainsFunc(r.Claims, func(c journal.Claim) bool { return c.Key == k.raw }) {
			vouched = append(vouched, k.opened.at)
		}
	}
	g.claims.Unlock()
	if err := g.o.Failpoints.Hit(FailBeforeRemove); err != nil {
		return err
	}
	if err := g.journal.Remove(r, vouched...); err != nil {
		return err
	}
	g.mu.Lock()
	delete(g.live, r.Number)
	g.mu.Unlock()
	return nil
}

// keep writes the claims of a round to the logs of their keys, but for those that are
// gone: what was opened is known then even if the round's file is damaged.
func (g *Gateway) keep(claims []journal.Claim) error {
	var all sync.WaitGroup
	keys := g.keys.Load().all
	errs := make([]error, len(keys))
	for i, k := range keys {
		all.Go(func() {
			if !k.opened.enter() {
				return
			}
			defer k.opened.leave()
			for n := range claims {
				if claims[n].Key != k.raw {
					continue
				}
				b, err := claims[n].Append(nil)
				if err == nil {
					err = k.opened.log.Append(context.Background(), b)
				}
				if err != nil {
					errs[i] = err
					return
				}
				g.claims.Lock()
				k.opened.at.Add(b)
				g.claims.Unlock()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// unsettled are the claims of rounds on the disk for one key.
func (g *Gateway) unsettled(key [journal.KeySize]byte) (claims []*journal.Claim) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(g.live)) {
		for i := range g.live[n].Claims {
			if c := &g.live[n].Claims[i]; c.Key == key {
				claims = append(claims, c)
			}
		}
	}
	return claims
}
