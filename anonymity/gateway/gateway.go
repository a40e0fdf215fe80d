package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/disk"
	"github.com/starling-agg/starling/internal/buffer"
)

// A Gateway opens encapsulated requests. It is an [http.Handler], safe for concurrent use; [Gateway.Run] must run beside
// it, and [Gateway.Close] end it.
type Gateway struct {
	o       Options
	keys    atomic.Pointer[keyset]
	rotate  sync.Mutex // held while keys are exchanged
	door    *door.Door
	token   [sha256.Size]byte // of RelayToken
	targets []target
	workers chan struct{}
	senders chan struct{}

	drain    sync.Once
	draining chan struct{} // closed by drain

	refused                  map[door.Reason]*atomic.Uint64 // fixed after New
	covers, passed, requests atomic.Uint64

	mu      sync.Mutex // guards the rest
	pending []*item
	since   time.Time // when the first of pending came
	stopped bool
}

// target is a Target taken apart.
type target struct {
	*Target
	base *url.URL
	path string // of base, with a slash at its end
}

// New reads what the keys have opened so far. It fails with [ErrRetired] if a key was in use and then was not.
func New(o Options) (g *Gateway, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	l := o.Limits
	g = &Gateway{o: o, refused: make(map[door.Reason]*atomic.Uint64),
		door:    door.New(l.Requests, l.InFlight, l.Body, l.BodyTimeout),
		token:   sha256.Sum256([]byte("Bearer " + o.RelayToken)),
		workers: make(chan struct{}, l.Workers), senders: make(chan struct{}, l.Senders),
		draining: make(chan struct{})}
	for _, reason := range door.All {
		g.refused[reason] = new(atomic.Uint64)
	}
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
	return g, g.SetKeys(o.Keys)
}

// Close closes the logs. No request may be under way and Run must have returned.
func (g *Gateway) Close() error {
	var errs []error
	if keys := g.keys.Load(); keys != nil {
		for _, k := range keys.list {
			errs = append(errs, k.opened.log.Close())
		}
	}
	return errors.Join(errs...)
}

// Ready is nil while the gateway can take requests.
func (g *Gateway) Ready() error {
	usable := 0
	for _, k := range g.keys.Load().list {
		if err := k.opened.log.Err(); err != nil {
			return err
		}
		if k.usable(g.o.Clock) && k.opened.count() < k.opened.max {
			usable++
		}
	}
	if usable == 0 {
		return errors.New("gateway: every key is past its time or full")
	}
	return nil
}

// Status is what the operator may know.
type Status struct {
	// Passed uploads were taken by a target; Requests are those that they made, joined.
	Passed   uint64 `json:"passed"`
	Requests uint64 `json:"requests"`
	// Covers were dropped.
	Covers uint64 `json:"covers"`
	// Refused requests by reason.
	Refused map[string]uint64 `json:"refused"`
	// Keys in use.
	Keys []KeyStatus `json:"keys"`
}

// KeyStatus tells of one key.
type KeyStatus struct {
	ID     uint8 `json:"id"`
	Opened int   `json:"opened"` // requests in its life
	Max    int   `json:"max"`
	Usable bool  `json:"usable"`
}

// Status counts since the start.
func (g *Gateway) Status() *Status {
	s := &Status{Passed: g.passed.Load(), Requests: g.requests.Load(), Covers: g.covers.Load(), Refused: make(map[string]uint64)}
	for reason, n := range g.refused {
		if n := n.Load(); n > 0 {
			s.Refused[string(reason)] = n
		}
	}
	for _, k := range g.keys.Load().list {
		s.Keys = append(s.Keys, KeyStatus{k.Pair.ID(), k.opened.count(), k.opened.max, k.usable(g.o.Clock)})
	}
	return s
}

// ServeHTTP opens an encapsulated request, waits for its round, and answers it. What is wrong before the request is open is
// told in the clear, to the relay too; all else is sealed to the device.
//
// Step 6 of one report: from an encapsulated request without an address, to an upload among many.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := g.serve(w, r)
	if err != nil {
		refusal := new(door.Error)
		if !errors.As(err, &refusal) {
			refusal = &door.Error{Reason: door.Busy} // the relay went away, or the service stops
		}
		if errors.Is(err, disk.ErrStateUnknown) || errors.Is(err, disk.ErrLogFailed) {
			g.o.Log.Error("the log of opened requests has failed", slog.Any("error", err))
		}
		g.refused[refusal.Reason].Add(1)
		door.Refuse(w, refusal.Reason)
		return
	}
	h := w.Header()
	h.Set("Content-Type", ohttp.ResponseMedia)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	w.Write(answer)
}

func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if err := door.Check(r, g.o.Path, ohttp.RequestMedia); err != nil {
		return nil, err
	}
	if g.o.RelayToken != "" {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if subtle.ConstantTimeCompare(got[:], g.token[:]) != 1 {
			return nil, &door.Error{Reason: door.Unauthorized}
		}
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
	message, sealer, err := g.open(r.Context(), body)
	buffer.Put(body) // its message was opened into memory of its own
	if err != nil {
		return nil, err
	}
	answer, err := g.answer(r.Context(), message)
	if err != nil {
		return nil, err
	}
	return seal(sealer, answer)
}

// open decrypts a request that was not seen before. The cheap checks come first.
func (g *Gateway) open(ctx context.Context, body []byte) ([]byte, *ohttp.ResponseSealer, error) {
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
	defer k.opened.leave()
	f := fingerprintOf(e.Enc)
	if k.opened.has(f) {
		return nil, nil, &door.Error{Reason: door.Replayed}
	}
	select {
	case g.workers <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	message, sealer, err := e.Open()
	<-g.workers
	if err != nil {
		return nil, nil, &door.Error{Reason: door.Sealed}
	}
	// Only what opens is remembered, or rubbish would fill the memory.
	if err := k.opened.claim(ctx, f); err != nil {
		return nil, nil, err
	}
	return message, sealer, nil
}

// answer reads the request, has it passed on and returns what the device is told.
func (g *Gateway) answer(ctx context.Context, message []byte) (*ohttp.Response, error) {
	it, reason := g.read(message)
	if reason != "" {
		g.refused[reason].Add(1)
		return refusal(reason), nil
	}
	if it.body == nil {
		g.covers.Add(1)
	}
	return g.wait(ctx, it)
}

// read turns a message into an item, or says why not.
func (g *Gateway) read(message []byte) (*item, door.Reason) {
	m, err := ohttp.ReadRequest(message, ohttp.MessageLimits{})
	if err != nil {
		return nil, door.Message
	}
	if m.Method != http.MethodPost && m.Method != ohttp.MethodCover {
		return nil, door.Target
	}
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
			return nil, door.Target
		}
		if m.Method == ohttp.MethodCover {
			return &item{}, ""
		}
		if err := g.o.Protocol.Check(m.Content); err != nil {
			return nil, door.Upload
		}
		return &item{route: route{t.Target, strings.TrimRight(t.Via, "/") + "/" + path, media}, body: m.Content}, ""
	}
	return nil, door.Target
}

// seal encapsulates an answer, padded. A problem document that would show as another size is left out; its status stays.
func seal(s *ohttp.ResponseSealer, answer *ohttp.Response) ([]byte, error) {
	b, err := answer.Append(make([]byte, 0, ohttp.MinResponse))
	if err == nil && answer.Status >= 400 && len(b) > ohttp.MinResponse {
		answer = &ohttp.Response{Status: answer.Status}
		b, err = answer.Append(b[:0])
	}
	if err != nil { // a header of the target's that binary HTTP cannot carry
		if b, err = refusal(door.Leader).Append(b[:0]); err != nil {
			return nil, err
		}
	}
	return s.Seal(ohttp.Pad(b, ohttp.MinResponse))
}
