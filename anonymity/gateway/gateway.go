package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/starling-agg/starling/anonymity/gateway/internal/answer"
	"github.com/starling-agg/starling/anonymity/gateway/internal/forward"
	"github.com/starling-agg/starling/anonymity/gateway/internal/journal"
	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/voprf"
	"github.com/starling-agg/starling/internal/buffer"
	"github.com/starling-agg/starling/internal/disk"
)

// A Gateway opens encapsulated requests. It is an [http.Handler], safe for concurrent
// use; [Gateway.Run] must run beside it, and [Gateway.Close] end it.
type Gateway struct {
	o       Options
	keys    atomic.Pointer[keyset]
	rotate  sync.Mutex // held while keys are exchanged
	door    *door.Door
	room    *room
	relays  []*sender
	targets []target
	workers chan struct{}
	secret  [32]byte
	journal *journal.Journal
	forward *forward.Forwarder
	counts  *counts
	idle    *voprf.Key     // for tokens of rounds that have none
	wake    chan struct{}  // something is in retiring
	running sync.WaitGroup // writers

	drain    sync.Once
	draining chan struct{} // closed by drain
	failed   chan struct{} // closed by fail

	claims sync.Mutex // guards what the keys have opened

	mu        sync.Mutex                      // guards the rest
	open      *round                          // what has come since the last tick
	next      uint64                          // number of the next round
	writing   []*round                        // closed and not answered, in order
	unwritten map[[journal.IDSize]byte]*round // which of open and writing brought a report
	answered  []*round                        // at the last tick
	live      map[uint64]*live
	retiring  []*journal.Round // to be removed from the disk
	stopped   bool
	failure   error
}

// target is a Target taken apart.
type target struct {
	*Target
	base *url.URL
	path string // of base, with a slash at its end
}

// unknownShare is the part of the room, one in unknownShare, that requests may take of
// tasks that no target ever knew: anybody can make some up.
const unknownShare = 16

// New reads what the keys have opened so far and what rounds are not done. It fails with
// [ErrRetired] if a key was in use and then was not, and with a *[StateError] if what it
// reads is not what this gateway wrote last.
func New(o Options) (g *Gateway, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	l := o.Limits
	g = &Gateway{o: o, counts: newCounts(o), door: door.New(l.Requests, l.InFlight, l.Body, l.BodyTimeout),
		room: &room{requests: l.Held, bytes: l.HeldBytes}, relays: newRelays(o.Relays),
		workers: make(chan struct{}, l.Workers), draining: make(chan struct{}), failed: make(chan struct{}),
		wake: make(chan struct{}, 1),
		open: newRound(), unwritten: make(map[[journal.IDSize]byte]*round), live: make(map[uint64]*live)}
	for i := range o.Targets {
		t := &o.Targets[i]
		base, err := url.Parse(t.URL)
		if err != nil {
			return nil, err
		}
		g.targets = append(g.targets, target{t, base, strings.TrimRight(base.EscapedPath(), "/") + "/"})
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
			g = nil
		}
	}()
	var found *journal.Recovered
	if g.journal, found, err = journal.Open(o.FS, o.Record, disk.LogOptions{Clock: o.Clock, Failpoints: o.Failpoints}); err != nil {
		return g, stateErr(err)
	}
	g.secret, g.idle = g.journal.Secret(), voprf.GenerateKey()
	for word, c := range found.Counts {
		g.counts.add(word, c.N, c.Last)
	}
	g.counts.add(forward.Damaged, uint64(found.Damaged), o.Clock.Now())
	g.next = found.Next
	for _, r := range found.Rounds {
		g.live[r.Number] = &live{Round: r, groups: len(r.Groups)}
		for i := range r.Groups {
			g.room.charge(int(r.Groups[i].Requests), int64(r.Groups[i].Bytes))
		}
	}
	if err := g.setKeys(o.Keys, o.Admission); err != nil {
		return g, err
	}
	targets := make(map[string]forward.Target)
	for _, t := range g.targets {
		targets[t.URL] = forward.Target{Via: t.Via, Token: t.Token}
	}
	g.forward = forward.New(forward.Options{
		Journal: g.journal, Protocol: o.Protocol, Targets: targets, Transport: o.Transport, Mix: o.Mix, MinRound: o.MinRound,
		Hold: o.Hold, Unknown: max(1, l.Held/unknownShare), Timeout: l.AnswerTimeout, Answer: l.Answer, Senders: l.Senders, Joined: l.Joined,
		JoinedBytes: l.JoinedBytes, Clock: o.Clock, Failpoints: o.Failpoints, Log: o.Log, Fail: g.fail,
		Count: func(word string, n uint64) { g.counts.add(word, n, o.Clock.Now()) },
	}, found)
	for _, r := range found.Rounds {
		if len(r.Groups) == 0 {
			g.retireLater(r)
		}
	}
	return g, nil
}

// Close closes the logs. No request may be under way and Run must have returned.
func (g *Gateway) Close() error {
	var errs []error
	if g.forward != nil {
		g.forward.Stop()
	}
	if keys := g.keys.Load(); keys != nil {
		for _, k := range keys.all {
			errs = append(errs, k.opened.log.Close())
		}
	}
	if g.journal != nil {
		errs = append(errs, g.journal.Close())
	}
	return errors.Join(errs...)
}

// Ready is nil while the gateway can take requests.
func (g *Gateway) Ready() error {
	if err := g.err(); err != nil {
		return err
	}
	usable := 0
	for _, k := range g.keys.Load().list {
		if err := k.opened.log.Err(); err != nil {
			return err
		}
		if k.usable(g.o.Clock) && g.count(k.opened) < k.opened.max {
			usable++
		}
	}
	if usable == 0 {
		return errors.New("gateway: every key is past its time or spent")
	}
	return nil
}

func (g *Gateway) err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failure
}

// fail ends the gateway: only a start finds out what the disk holds.
func (g *Gateway) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failure == nil {
		g.failure = fmt.Errorf("gateway: %w", err)
		close(g.failed)
	}
}

// ServeHTTP opens an encapsulated request, keeps its upload with its round, and answers
// it as all others of the round. A fault found before the request is open, or independent
// of its content, is told in the clear, to the relay too; the content decides nothing
// that a device or anybody before the gateway can see.
//
// Step 6 of one report: from an encapsulated request without an address, to an upload
// among many that is kept and passed on until it is taken.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sealed, err := g.serve(w, r)
	if err != nil {
		refusal := new(door.Error)
		if !errors.As(err, &refusal) {
			refusal = &door.Error{Reason: door.Busy} // the relay went away, the disk failed, or the service stops
		}
		g.counts.refuse(refusal.Reason)
		door.Refuse(w, refusal.Reason)
		return
	}
	h := w.Header()
	h.Set("Content-Type", ohttp.ResponseMedia)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	w.Write(sealed)
}

func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if err := door.Check(r, g.o.Path, ohttp.RequestMedia); err != nil {
		return nil, err
	}
	relay := g.relayOf(r)
	if relay == nil {
		return nil, &door.Error{Reason: door.Unauthorized}
	}
	if !relay.enter() {
		return nil, &door.Error{Reason: door.Rate}
	}
	leave, err := g.door.Enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	body, release, err := g.door.ReadBody(w, r)
	defer release()
	if err != nil {
		return nil, err
	}
	size := int64(len(body))
	// From here on the request is charged for, be it a report or not, until its round is
	// credited.
	if g.diskFull() || !g.room.take(size) {
		return nil, &door.Error{Reason: door.Full}
	}
	waiting, err := g.enter(r.Context(), relay, body)
	if err != nil {
		g.room.give(1, size)
		return nil, err
	}
	return waiting.Wait()
}

// enter opens a request that was not seen before and puts it into the round.
func (g *Gateway) enter(ctx context.Context, from *sender, body []byte) (*answer.Waiting, error) {
	size := len(body)
	e, k, err := g.split(body)
	if err != nil {
		return nil, err
	}
	defer k.opened.leave()
	f := fingerprintOf(e.Enc)
	select {
	case g.workers <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	message, sealer, err := e.Open()
	<-g.workers
	buffer.Put(body) // its message was opened into memory of its own
	if err != nil {
		return nil, &door.Error{Reason: door.Sealed}
	}
	// Everything about the message is worked out before anything branches on what kind it
	// is.
	it := g.read(message)
	defer it.leave()
	w, err := answer.Seal(sealer, it.toTarget)
	if err != nil {
		return nil, err
	}
	return w, g.join(w, it, k, from, f, size)
}

// split finds the key of a request and makes the cheap checks. The key stays in use until
// it is left.
func (g *Gateway) split(body []byte) (*ohttp.Encapsulated, *key, error) {
	keys := g.keys.Load()
	e, err := keys.ring.Split(body)
	switch {
	case errors.Is(err, ohttp.ErrTruncated):
		return nil, nil, &door.Error{Reason: door.Truncated}
	case err != nil:
		return nil, nil, &door.Error{Reason: door.Key}
	}
	k := keys.byID[e.Key]
	if !k.usable(g.o.Clock) || !k.opened.enter() {
		return nil, nil, &door.Error{Reason: door.Key}
	}
	g.claims.Lock()
	defer g.claims.Unlock()
	if k.opened.has(fingerprintOf(e.Enc)) {
		k.opened.leave()
		return nil, nil, &door.Error{Reason: door.Replayed}
	}
	return e, k, nil
}

// An item is what one request holds.
type item struct {
	toTarget bool          // else it is for nobody that the gateway serves
	route    journal.Route // of what is
	name     [journal.IDSize]byte
	body     []byte // nil for covers and for what is no upload
	token    token
}

// read turns a message into an item.
func (g *Gateway) read(message []byte) *item {
	m, err := ohttp.ReadRequest(message, ohttp.MessageLimits{})
	if err != nil {
		g.counts.refuse(door.Message)
		return &item{}
	}
	if m.Method == http.MethodPost || m.Method == ohttp.MethodCover {
		for i := range g.targets {
			t := &g.targets[i]
			path, under := strings.CutPrefix(m.Path, t.path)
			if m.Scheme != t.base.Scheme || !strings.EqualFold(m.Authority, t.base.Host) || !under {
				continue
			}
			media := ""
			for _, f := range m.Header {
				if f.Name == "content-type" {
					media = f.Value
				}
			}
			if media, err = g.o.Protocol.Route(path, media); err != nil {
				break
			}
			it := &item{toTarget: true, route: journal.Route{Target: t.URL, Path: path, Media: media}}
			name, err := g.o.Protocol.Name(path, m.Content)
			it.token = g.admit(path, m.Header)
			switch {
			case m.Method == ohttp.MethodCover:
				g.counts.covers.Add(1)
			case err != nil:
				g.counts.refuse(door.Upload)
			default:
				it.name, it.body = g.nameOf(name), m.Content
			}
			return it
		}
	}
	g.counts.refuse(door.Target)
	return &item{}
}

// nameOf is what a report is known by as long as the key under which it came.
func (g *Gateway) nameOf(name []byte) [journal.IDSize]byte {
	h := sha256.New()
	h.Write([]byte(reportDomain))
	h.Write(g.secret[:])
	h.Write(name)
	return [journal.IDSize]byte(h.Sum(nil))
}

// diskFull says whether the disk has less room than is to be left.
func (g *Gateway) diskFull() bool {
	free, known := disk.Free(g.o.FS)
	return known && free < g.o.Limits.MinFree
}

// A sender is a relay as the gateway knows it.
type sender struct {
	Relay
	token [sha256.Size]byte
	name  [journal.RelaySize]byte

	mu   sync.Mutex
	came int // since the last tick
}

func newRelays(list []Relay) (all []*sender) {
	for _, r := range list {
		name := sha256.Sum256([]byte(relayDomain + r.Token))
		all = append(all, &sender{Relay: r, token: sha256.Sum256([]byte("Bearer " + r.Token)), name: [journal.RelaySize]byte(name[:])})
	}
	return all
}

// relayOf is the relay that a request comes from, by its token, or nil.
func (g *Gateway) relayOf(r *http.Request) (found *sender) {
	got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
	for _, known := range g.relays {
		if known.Token == "" || subtle.ConstantTimeCompare(got[:], known.token[:]) == 1 {
			found = known
		}
	}
	if found != nil && found.Token != "" {
		g.o.Known(r)
	}
	return found
}

// enter counts a request, and refuses where as many have come since the last tick as may.
func (r *sender) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.came >= r.PerTick {
		return false
	}
	r.came++
	return true
}

func (r *sender) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.came = 0
}

// room bounds what is held for rounds that are not credited: requests of all kinds and
// their bytes.
type room struct {
	mu       sync.Mutex
	requests int // that may still come
	bytes    int64
}

// take charges for one request, and refuses where there is no room.
func (r *room) take(size int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.requests < 1 || r.bytes < size {
		return false
	}
	r.requests, r.bytes = r.requests-1, r.bytes-size
	return true
}

// charge takes room that may not be there: for rounds of an earlier life.
func (r *room) charge(requests int, size int64) { r.give(-requests, -size) }

func (r *room) give(requests int, size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests, r.bytes = r.requests+requests, r.bytes+size
}

// left is how much may still come.
func (r *room) left() (requests int, size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests, r.bytes
}
