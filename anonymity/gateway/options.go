package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/starling-agg/starling/anonymity/gateway/internal/forward"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/endpoint"
	"github.com/starling-agg/starling/sealed"
)

// A Protocol is what the gateway must know of the requests that it passes on. It is safe
// for concurrent use and keeps no reference to what it is given. Its errors are for
// nobody's eyes but the log's, where they must tell nothing of a report.
type Protocol interface {
	// Route says whether the path, below a target's base and without a slash at its
	// start, and the media type are those of an upload, and returns the media type as the
	// target is to get it. Uploads of one task have one path.
	Route(path, media string) (string, error)
	// Name says whether the body is an upload of one report, complete and well-formed,
	// and returns what names that report among all: a second one of the same name is not
	// passed on.
	Name(path string, body []byte) ([]byte, error)
	// Task is what names the task of a path that Route has taken, of 32 bytes.
	Task(path string) ([32]byte, error)
	forward.Protocol
}

// A Key opens requests until its end.
type Key struct {
	Pair *sealed.KeyPair
	// NotAfter ends its use. The zero value is never.
	NotAfter time.Time
	// Note is a file beside the key's own in which the gateway writes which state knows
	// what the key has opened: without that state it takes the key no more. Optional.
	Note string
}

// A Target is a leader that uploads may go to.
type Target struct {
	// URL is the base URL by which recipes and manifests name it. Required.
	URL string
	// Via is the base URL under which the gateway reaches it; default URL.
	Via string
	// Token is a bearer token for uploads. Optional.
	Token string
}

// Limits bound what strangers can make a gateway hold or do. Zero fields take the
// defaults.
type Limits struct {
	// Body is the largest encapsulated request, in bytes; default 8 MiB.
	Body int64
	// Requests are worked on or waiting for their answer at one time; default 8192.
	Requests int
	// InFlight bounds the bytes of all request bodies held at one time; default 256 MiB.
	InFlight int64
	// Held is how many requests, and HeldBytes how many bytes of requests, may have come
	// in rounds that are not done: covers count like reports, for room that they did not
	// take would tell them apart. Above that all are refused. Default 262,144 requests,
	// at most 1,048,576, and 1 GiB, which is on the disk.
	Held      int
	HeldBytes int64
	// MinFree is how many bytes are to be left free on the disk: below it everybody is
	// refused, as where the room is full. Default 256 MiB; negative: no bound.
	MinFree int64
	// BodyTimeout is how long the relay may take over a request's body; default 15 s.
	BodyTimeout time.Duration
	// AnswerTimeout is how long a target may take; default 30 s.
	AnswerTimeout time.Duration
	// Answer is the largest answer of a target, in bytes; default 1 MiB.
	Answer int64
	// Workers open requests at one time; default GOMAXPROCS.
	Workers int
	// Senders are requests to targets at one time; default 4.
	Senders int
	// Joined is how many uploads at most, and JoinedBytes how many bytes, become one
	// request to a target; default 256 and 1 MiB. A larger upload goes alone.
	Joined      int
	JoinedBytes int
}

// WithDefaults fills in the zero fields.
func (l Limits) WithDefaults() Limits {
	for _, f := range []struct {
		v *int64
		d int64
	}{{&l.Body, 8 << 20}, {&l.InFlight, 256 << 20}, {&l.Answer, 1 << 20}, {&l.HeldBytes, 1 << 30}, {&l.MinFree, 256 << 20}} {
		if *f.v == 0 {
			*f.v = f.d
		}
	}
	for _, f := range []struct{ v, d *int }{
		{&l.Requests, ptr(8192)}, {&l.Workers, ptr(runtime.GOMAXPROCS(0))}, {&l.Senders, ptr(4)}, {&l.Joined, ptr(256)},
		{&l.JoinedBytes, ptr(1 << 20)}, {&l.Held, ptr(256 << 10)},
	} {
		if *f.v == 0 {
			*f.v = *f.d
		}
	}
	if l.BodyTimeout == 0 {
		l.BodyTimeout = 15 * time.Second
	}
	if l.AnswerTimeout == 0 {
		l.AnswerTimeout = 30 * time.Second
	}
	return l
}

func ptr(v int) *int { return &v }

// Validate refuses limits that no request could meet.
func (l Limits) Validate() error {
	if l.Body < 0 || l.Requests < 0 || l.InFlight < 0 || l.BodyTimeout < 0 || l.AnswerTimeout < 0 || l.Answer < 0 ||
		l.Workers < 0 || l.Senders < 0 || l.Joined < 0 || l.JoinedBytes < 0 || l.Held < 0 || l.HeldBytes < 0 {
		return errors.New("gateway: limits: negative")
	}
	if l.Held > maxHeld {
		return fmt.Errorf("gateway: limits: Held is above %d", maxHeld)
	}
	if d := l.WithDefaults(); d.InFlight < d.Body || d.HeldBytes < d.Body {
		return errors.New("gateway: limits: InFlight or HeldBytes is smaller than one body")
	}
	return nil
}

// A Relay brings requests. A gateway that knows none by a token lets anybody in, as one
// relay.
type Relay struct {
	// Token is the bearer token that it brings. Empty for the one relay of a gateway that
	// asks for none.
	Token string
	// PerTick is how many of its requests are let in between two ticks; default 4096.
	PerTick int
	// PerKey is how many of its requests one key opens; default as many as the key opens
	// at all.
	PerKey int
}

// Bounds of the window: shorter, rounds would be of one request each; longer, devices
// would give up.
const (
	DefaultWindow = time.Second
	MinWindow     = time.Millisecond
	MaxWindow     = 20 * time.Second
)

// Bounds of Hold.
const (
	DefaultHold = 24 * time.Hour
	MaxHold     = 30 * 24 * time.Hour
)

const (
	maxHeld          = 1 << 20
	defaultMaxOpened = 2 << 20
	defaultPerTick   = 4096
)

// Options make a gateway.
type Options struct {
	// Keys open requests, the current one first. Required, at least one; ids distinct.
	Keys []Key
	// Admission are keys for tokens of rounds. A request for a task that has, or ever
	// had, such keys counts in MinRound, and its upload goes on, only with a token of a
	// round whose time it is, and once for each.
	Admission []Admission
	// Targets are whom uploads may be for. Required, at least one.
	Targets []Target
	// Protocol knows uploads. Required.
	Protocol Protocol
	// FS holds rounds that are not done and what the keys have opened, and nothing else.
	// Required; on a real disk the caller has taken its lock ([disk.OSFS.Lock]).
	FS disk.FS
	// Record holds how far FS has come, so that a directory which was put back or lost is
	// found out; required, outside of FS or in a directory of it, and locked like it.
	Record disk.FS
	// Window is the time between two ticks, which are its multiples; default 1 s, from 1
	// ms to 20 s. The requests between two make one round.
	Window time.Duration
	// Mix is the time at whose multiples rounds go on; default Window, at most Hold.
	// Answers do not wait for it.
	Mix time.Duration
	// MinRound is how many requests of one task, covers included, must have come before any
	// of them goes on: as many devices, where the task asks for tokens; default 1, at most
	// Limits.Held.
	MinRound int
	// Hold is how long a round is kept for a target that is away, or for others to come,
	// in time that the gateway runs; default 24 h, at most 30 days. It should be the time
	// after which the target refuses a report as too old.
	Hold time.Duration
	// MaxOpened is how many requests a key opens in its life; default 2,097,152, which
	// take about 150 MB. The count survives restarts.
	MaxOpened int
	// Path is where the gateway's one resource is; default "/".
	Path string
	// Relays may bring requests. None lets anybody in.
	Relays []Relay
	// Transport carries requests to targets; default one of its own. It must add nothing
	// to them.
	Transport http.RoundTripper
	// Limits bound what requests can do.
	Limits Limits
	// Clock is the time; default the system's.
	Clock disk.Clock
	// Failpoints is nil in production.
	Failpoints *disk.Failpoints
	// Log is told of failures of targets and of the disk, never of a request; default
	// none.
	Log *slog.Logger
	// Known is told of each request of a relay that a token tells; default nobody.
	Known func(*http.Request)
	// Observe is told of each refusal and of what became of uploads, as the fields of
	// [Status] count them; default nobody.
	Observe Observer
}

// MinToken is the length in bytes below which a bearer token is taken for a mistake.
const MinToken = 16

// Validate fills in defaults and reports what is missing.
func (o *Options) Validate() error {
	if o.Clock == nil {
		o.Clock = disk.SystemClock
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Known == nil {
		o.Known = func(*http.Request) {}
	}
	if o.Window == 0 {
		o.Window = DefaultWindow
	}
	if o.MinRound == 0 {
		o.MinRound = 1
	}
	if o.Mix == 0 {
		o.Mix = o.Window
	}
	if o.Hold == 0 {
		o.Hold = DefaultHold
	}
	if o.MaxOpened == 0 {
		o.MaxOpened = defaultMaxOpened
	}
	if o.Path == "" {
		o.Path = "/"
	}
	o.Relays = slices.Clone(o.Relays)
	if len(o.Relays) == 0 {
		o.Relays = []Relay{{}}
	}
	if o.Transport == nil {
		o.Transport = &http.Transport{
			DisableCompression: true, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
			IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 32,
		}
	}
	if err := o.Limits.Validate(); err != nil {
		return err
	}
	o.Limits = o.Limits.WithDefaults()
	switch {
	case len(o.Keys) == 0:
		return errors.New("gateway: no key")
	case len(o.Targets) == 0:
		return errors.New("gateway: no target")
	case o.Protocol == nil:
		return errors.New("gateway: no protocol")
	case o.FS == nil || o.Record == nil:
		return errors.New("gateway: no file system, or none for the record")
	case o.Window < MinWindow || o.Window > MaxWindow:
		return fmt.Errorf("gateway: the window must be from %v to %v", MinWindow, MaxWindow)
	case o.Mix < o.Window || o.Mix > o.Hold:
		return errors.New("gateway: Mix must be from the window to Hold")
	case o.Hold < o.Window || o.Hold > MaxHold:
		return fmt.Errorf("gateway: Hold must be from the window to %v", MaxHold)
	case o.MinRound < 0 || o.MinRound > o.Limits.Held:
		return fmt.Errorf("gateway: a round of %d requests; at most %d are held at one time", o.MinRound, o.Limits.Held)
	case o.MaxOpened < 0:
		return errors.New("gateway: MaxOpened is negative")
	case o.Path[0] != '/':
		return errors.New("gateway: Path must begin with a slash")
	}
	for _, a := range o.Admission {
		if a.Keys == nil {
			return errors.New("gateway: admission without keys")
		}
		if err := a.Keys.Validate(); err != nil {
			return fmt.Errorf("gateway: %w", err)
		}
	}
	tokens := make(map[string]bool)
	for i := range o.Relays {
		r := &o.Relays[i]
		if r.PerTick == 0 {
			r.PerTick = defaultPerTick
		}
		if r.PerKey == 0 {
			r.PerKey = o.MaxOpened
		}
		switch {
		case r.PerTick < 0 || r.PerKey < 0:
			return errors.New("gateway: a relay's limit is negative")
		case r.Token == "" && len(o.Relays) > 1 || tokens[r.Token]:
			return errors.New("gateway: two relays with one token, or one of several without")
		case r.Token != "" && len(r.Token) < MinToken:
			return fmt.Errorf("gateway: the relay's token needs %d bytes or more", MinToken)
		}
		tokens[r.Token] = true
	}
	seen := make(map[string]bool)
	for i := range o.Targets {
		t := &o.Targets[i]
		if t.Via == "" {
			t.Via = t.URL
		}
		for _, u := range []string{t.URL, t.Via} {
			if _, err := endpoint.Parse(u); err != nil {
				return fmt.Errorf("gateway: target: %w", err)
			}
		}
		if seen[t.URL] {
			return fmt.Errorf("gateway: target %q stands twice", t.URL)
		}
		seen[t.URL] = true
	}
	return nil
}
