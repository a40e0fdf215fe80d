package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/internal/endpoint"
)

// Media types of RFC 9458. The relay knows no more of it.
const (
	requestMedia  = "message/ohttp-req"
	responseMedia = "message/ohttp-res"
	bundleMedia   = "application/octet-stream" // as the log itself has it
)

// Limits bound what strangers can make a relay hold or do. Zero fields take the defaults.
type Limits struct {
	// Body is the largest encapsulated request, in bytes; default 8 MiB.
	Body int64
	// Answer is the largest encapsulated answer, in bytes; default 1 MiB.
	Answer int64
	// Requests are worked on at one time, those that wait for the gateway included;
	// default 4096.
	Requests int
	// InFlight bounds the bytes of all request bodies held at one time; default 128 MiB.
	InFlight int64
	// BodyTimeout is how long a device may take over a request's body; default 15 s.
	BodyTimeout time.Duration
	// AnswerTimeout is how long the gateway may take; default 60 s. It must be longer
	// than twice the gateway's window.
	AnswerTimeout time.Duration
	// Rate bounds the requests of one part of the network.
	Rate Rate
}

// WithDefaults fills in the zero fields.
func (l Limits) WithDefaults() Limits {
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	set(&l.Body, 8<<20)
	set(&l.Answer, 1<<20)
	set(&l.InFlight, 128<<20)
	if l.Requests == 0 {
		l.Requests = 4096
	}
	if l.BodyTimeout == 0 {
		l.BodyTimeout = 15 * time.Second
	}
	if l.AnswerTimeout == 0 {
		l.AnswerTimeout = time.Minute
	}
	return l
}

// Validate refuses limits that no request could meet.
func (l Limits) Validate() error {
	if l.Body < 0 || l.Answer < 0 || l.Requests < 0 || l.InFlight < 0 || l.BodyTimeout < 0 || l.AnswerTimeout < 0 {
		return errors.New("relay: limits: negative")
	}
	if d := l.WithDefaults(); d.InFlight < d.Body {
		return errors.New("relay: limits: InFlight is smaller than one body")
	}
	return l.Rate.Validate()
}

// Options make a relay.
type Options struct {
	// Gateway is the URL of the one gateway. Required.
	Gateway string
	// Token is the bearer token that the gateway knows this relay by. Optional.
	Token string
	// Path is where requests are sent to; default "/".
	Path string
	// Bundle is the transparency log's bundle as it was had last, nil where it was not had
	// yet. With it a GET of [bundlePath] below Path answers with these bytes, the same for
	// everybody, so that the log sees no device. It is not verified: devices do that.
	// Optional; it must be safe for concurrent use.
	Bundle func() []byte
	// Training is a file of the trainings that the relay has, nil where it has none of that
	// path, which is below [trainingPath]. With it a GET of trainingPath and a path, below
	// Path, answers with these bytes, the same for everybody, so that a controller sees no
	// device. Optional; it must be safe for concurrent use.
	Training func(path string) []byte
	// SenderOf is the address, as host:port, that a request comes from; default the
	// connection's. Behind a proxy it is what the proxy says of it.
	SenderOf func(*http.Request) string
	// Transport carries requests to the gateway; default one of its own. It must add
	// nothing to them.
	Transport http.RoundTripper
	// Limits bound what requests can do.
	Limits Limits
	// Now is the clock of the rate limit; default time.Now.
	Now func() time.Time
	// Log is told of failures of the gateway, never of a request; default none.
	Log *slog.Logger
	// Unplaced is told of each request whose sender's address cannot be read; default
	// nobody.
	Unplaced func()
}

// Validate fills in defaults and reports what is missing.
func (o *Options) Validate() error {
	if _, err := endpoint.Parse(o.Gateway); err != nil {
		return fmt.Errorf("relay: Gateway: %w", err)
	}
	if o.Path == "" {
		o.Path = "/"
	}
	if o.Path[0] != '/' {
		return errors.New("relay: Path must begin with a slash")
	}
	if err := o.Limits.Validate(); err != nil {
		return err
	}
	o.Limits = o.Limits.WithDefaults()
	if o.Transport == nil {
		o.Transport = defaultTransport()
	}
	if o.SenderOf == nil {
		o.SenderOf = func(r *http.Request) string { return r.RemoteAddr }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

func defaultTransport() http.RoundTripper {
	return &http.Transport{
		DisableCompression: true, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout: 90 * time.Second, MaxIdleConns: 256, MaxIdleConnsPerHost: 256,
	}
}

// A Relay forwards encapsulated requests. It is an [http.Handler] and safe for concurrent
// use.
type Relay struct {
	o       Options
	door    *door.Door
	rate    *rate
	counts  map[door.Reason]*atomic.Uint64 // fixed after New
	forward atomic.Uint64
	bundles atomic.Uint64
	models  atomic.Uint64

	unplaced atomic.Uint64
	silent   atomic.Bool // the last request that went there got no usable answer
}

// New makes a relay. It opens no connection.
func New(o Options) (*Relay, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	l := o.Limits
	r := &Relay{o: o, door: door.New(l.Requests, l.InFlight, l.Body, l.BodyTimeout), counts: make(map[door.Reason]*atomic.Uint64)}
	if l.Rate.Requests >= 0 {
		r.rate = newRate(l.Rate)
	}
	for _, reason := range door.All {
		r.counts[reason] = new(atomic.Uint64)
	}
	return r, nil
}

// Status is what the operator may know.
type Status struct {
	// Forwarded requests were answered by the gateway, whatever it answered.
	Forwarded uint64 `json:"forwarded"`
	// Bundles of the transparency log were handed out.
	Bundles uint64 `json:"bundles"`
	// Trainings counts files of trainings that were handed out.
	Trainings uint64 `json:"trainings"`
	// Refused requests by reason; the gateway's refusals are among them.
	Refused map[string]uint64 `json:"refused"`
	// Unplaced requests came without an address that can be read. They share one limit:
	// behind a proxy, something is wrong with what it writes into the forwarded header.
	Unplaced uint64 `json:"unplaced"`
}

// Status counts since the start.
func (r *Relay) Status() *Status {
	s := &Status{Forwarded: r.forward.Load(), Bundles: r.bundles.Load(), Trainings: r.models.Load(), Refused: make(map[string]uint64), Unplaced: r.unplaced.Load()}
	for reason, n := range r.counts {
		if n := n.Load(); n > 0 {
			s.Refused[string(reason)] = n
		}
	}
	return s
}

// Trouble is why the relay cannot pass requests on at the moment, or nil.
func (r *Relay) Trouble() error {
	if r.silent.Load() {
		return errors.New("the gateway gave no usable answer to the last request")
	}
	return nil
}

// Busy answers a request for which there is no connection left.
func Busy(w http.ResponseWriter, _ *http.Request) { door.Refuse(w, door.Rate) }

// Outcomes are the words that requests are counted under: a reason of their refusal, the
// gateway's too, that they were forwarded, or that the log's bundle or a file of a training
// was handed out.
func Outcomes() []string { return append(door.Labels(), forwarded, bundled, trained) }

const (
	// forwarded is a request that the gateway answered, whatever it answered.
	forwarded = "forwarded"
	bundled   = "bundle"
	trained   = "training"
)

// bundlePath is where the transparency log's bundle is, below [Options.Path].
const bundlePath = "bundle"

// trainingPath is where files of trainings are, below [Options.Path].
const trainingPath = "training"

// Outcome counts the requests of one of the [Outcomes] since the start.
func (r *Relay) Outcome(word string) uint64 {
	switch word {
	case forwarded:
		return r.forward.Load()
	case bundled:
		return r.bundles.Load()
	case trained:
		return r.models.Load()
	}
	return r.counts[door.Reason(word)].Load()
}

// ServeHTTP forwards the body of a request to the gateway, and the gateway's answer back,
// both whole and unread. Of the request's head nothing goes on: neither the sender's
// address, under any name, nor cookies, nor what the sender's software calls itself.
// Refusals are of one size and say only a reason from a closed set, also where the
// gateway said more.
//
// Step 5 of one report: from an encapsulated request with an address, to the same bytes
// without one.
func (r *Relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	answer, media, err := r.serve(w, req)
	if err != nil {
		refusal := new(door.Error)
		if !errors.As(err, &refusal) {
			refusal = &door.Error{Reason: door.Unreachable}
			r.silent.Store(req.Context().Err() == nil)
			if req.Context().Err() == nil {
				r.o.Log.Warn("the gateway gave no usable answer", slog.Any("error", err))
			}
		}
		r.counts[refusal.Reason].Add(1)
		door.Refuse(w, refusal.Reason)
		return
	}
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	w.Write(answer)
}

func (r *Relay) serve(w http.ResponseWriter, req *http.Request) (answer []byte, media string, err error) {
	// Conditions and ranges in the request are ignored: they would say what a device has.
	plain := req.Method == http.MethodGet && req.URL.RawQuery == ""
	bundle := plain && r.o.Bundle != nil && req.URL.Path == path.Join(r.o.Path, bundlePath)
	file, training := strings.CutPrefix(req.URL.Path, path.Join(r.o.Path, trainingPath)+"/")
	training = training && plain && r.o.Training != nil
	if !bundle && !training {
		if err := door.Check(req, r.o.Path, requestMedia); err != nil {
			return nil, "", err
		}
	}
	if r.rate != nil {
		allowed, placed := r.rate.allow(r.o.SenderOf(req), r.o.Now())
		if !placed {
			r.addressless()
		}
		if !allowed {
			return nil, "", &door.Error{Reason: door.Rate}
		}
	}
	leave, err := r.door.Enter()
	if err != nil {
		return nil, "", err
	}
	defer leave()
	if bundle {
		if answer = r.o.Bundle(); answer == nil {
			return nil, "", &door.Error{Reason: door.Unreachable}
		}
		r.bundles.Add(1)
		return answer, bundleMedia, nil
	}
	if training {
		if answer = r.o.Training(file); answer == nil {
			return nil, "", &door.Error{Reason: door.Path}
		}
		r.models.Add(1)
		return answer, bundleMedia, nil
	}
	// The whole body first: the gateway never waits for a slow device, nor sees the
	// rhythm in which one sends.
	body, release, err := r.door.ReadBody(w, req)
	defer release()
	if err != nil {
		return nil, "", err
	}
	answer, err = r.ask(req.Context(), body)
	return answer, responseMedia, err
}

// addressless counts a request whose sender's address cannot be read, and says so once.
func (r *Relay) addressless() {
	if r.unplaced.Add(1) == 1 {
		r.o.Log.Warn("requests come without an address that can be read: all such share one limit; " +
			"see forwarded_header, and what the proxy in front writes there")
	}
	if r.o.Unplaced != nil {
		r.o.Unplaced()
	}
}

// ask makes a request of its own to the gateway.
func (r *Relay) ask(ctx context.Context, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Limits.AnswerTimeout)
	defer cancel()
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, r.o.Gateway, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	// An empty key is not sent. It says that the request may go out again on another
	// connection, where the gateway closed a kept one while it was on its way: devices send
	// requests again too, and the gateway opens each once.
	out.Header = http.Header{"Content-Type": {requestMedia}, "User-Agent": nil, "Idempotency-Key": {}}
	if r.o.Token != "" {
		out.Header.Set("Authorization", "Bearer "+r.o.Token)
	}
	// A RoundTripper follows no redirect: the gateway cannot point the relay elsewhere
	// either.
	resp, err := r.o.Transport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		if reason, known := door.Read(resp.Body); known {
			r.silent.Store(false)
			r.forward.Add(1)
			return nil, &door.Error{Reason: reason}
		}
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	if resp.Header.Get("Content-Type") != responseMedia {
		return nil, errors.New("another media type")
	}
	b, err := door.ReadAnswer(resp, r.o.Limits.Answer)
	if refusal := new(door.Error); errors.As(err, &refusal) {
		return nil, fmt.Errorf("more than %d bytes", r.o.Limits.Answer) // the gateway's fault, not the device's
	} else if err != nil {
		return nil, err
	}
	r.silent.Store(false)
	r.forward.Add(1)
	return b, nil
}
