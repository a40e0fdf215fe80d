package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/disk"
	"github.com/starling-agg/starling/sealed"
)

// A Protocol is what the gateway must know of the requests that it passes on. It is safe for concurrent use and keeps no
// reference to what it is given. Its errors are for nobody's eyes but the log's, where they must tell nothing of a report.
type Protocol interface {
	// Route says whether the path, below a target's base and without a slash at its start, and the media type are those of
	// an upload, and returns the media type as the leader is to get it.
	Route(path, media string) (string, error)
	// Check says whether the body is an upload of one device, complete and well-formed.
	Check(body []byte) error
	// Join makes one upload of many that passed Check: its body in pieces, which may be those bodies.
	Join(bodies [][]byte) [][]byte
	// Split deals the body of the answer to a joined upload to its parts, in order.
	Split(bodies [][]byte, answer []byte) ([][]byte, error)
}

// A Key opens requests until its end.
type Key struct {
	Pair *sealed.KeyPair
	// NotAfter ends its use. The zero value is never.
	NotAfter time.Time
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

// Limits bound what strangers can make a gateway hold or do. Zero fields take the defaults.
type Limits struct {
	// Body is the largest encapsulated request, in bytes; default 8 MiB.
	Body int64
	// Requests are held at one time, those that wait for a round included; default 8192.
	Requests int
	// InFlight bounds the bytes of all request bodies held at one time; default 256 MiB.
	InFlight int64
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
	// Joined is how many uploads at most, and JoinedBytes how many bytes, become one request to a target; default 256
	// and 1 MiB. A larger upload goes alone.
	Joined      int
	JoinedBytes int
}

// WithDefaults fills in the zero fields.
func (l Limits) WithDefaults() Limits {
	for _, f := range []struct {
		v *int64
		d int64
	}{{&l.Body, 8 << 20}, {&l.InFlight, 256 << 20}, {&l.Answer, 1 << 20}} {
		if *f.v == 0 {
			*f.v = f.d
		}
	}
	for _, f := range []struct{ v, d *int }{
		{&l.Requests, ptr(8192)}, {&l.Workers, ptr(runtime.GOMAXPROCS(0))}, {&l.Senders, ptr(4)}, {&l.Joined, ptr(256)},
		{&l.JoinedBytes, ptr(1 << 20)},
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
		l.Workers < 0 || l.Senders < 0 || l.Joined < 0 || l.JoinedBytes < 0 {
		return errors.New("gateway: limits: negative")
	}
	if d := l.WithDefaults(); d.InFlight < d.Body {
		return errors.New("gateway: limits: InFlight is smaller than one body")
	}
	return nil
}

// Bounds of the window: shorter, rounds would be of one request each; longer, devices would give up.
const (
	defaultWindow    = time.Second
	minWindow        = time.Millisecond
	maxWindow        = 20 * time.Second
	defaultMaxOpened = 4 << 20
)

// Options make a gateway.
type Options struct {
	// Keys open requests, the current one first. Required, at least one; ids distinct.
	Keys []Key
	// Targets are whom uploads may be for. Required, at least one.
	Targets []Target
	// Protocol knows uploads. Required.
	Protocol Protocol
	// FS holds the fingerprints of opened requests and nothing else. Required; on a real disk the caller has taken its lock
	// ([disk.OSFS.Lock]).
	FS disk.FS
	// Window is how long uploads are gathered before they go on together; default 1 s, from 1 ms to 20 s.
	Window time.Duration
	// MinRound is how many requests, covers included, must have come before any of them goes on; default 1, at most
	// Limits.Requests. Rounds are looked at as windows end.
	MinRound int
	// MaxDelay is how long the first request of a round waits for the others; then, all that came are refused and none goes on.
	// Default 20 s, from Window to 20 s.
	MaxDelay time.Duration
	// MaxOpened is how many requests a key opens in its life; default 4,194,304, which take about 100 MB. The count
	// survives restarts.
	MaxOpened int
	// Path is where the gateway's one resource is; default "/".
	Path string
	// RelayToken is the bearer token that the relay must bring. Empty lets anybody in.
	RelayToken string
	// Transport carries requests to targets; default one of its own. It must add nothing to them.
	Transport http.RoundTripper
	// Limits bound what requests can do.
	Limits Limits
	// Clock is the time; default the system's.
	Clock disk.Clock
	// Failpoints is nil in production.
	Failpoints *disk.Failpoints
	// Log is told of failures of targets and of the disk, never of a request; default none.
	Log *slog.Logger
}

// minToken is the length in bytes below which a bearer token is taken for a mistake.
const minToken = 16

// Validate fills in defaults and reports what is missing.
func (o *Options) Validate() error {
	if o.Clock == nil {
		o.Clock = disk.SystemClock
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Window == 0 {
		o.Window = defaultWindow
	}
	if o.MinRound == 0 {
		o.MinRound = 1
	}
	if o.MaxDelay == 0 {
		o.MaxDelay = maxWindow
	}
	if o.MaxOpened == 0 {
		o.MaxOpened = defaultMaxOpened
	}
	if o.Path == "" {
		o.Path = "/"
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
	case o.FS == nil:
		return errors.New("gateway: no file system")
	case o.Window < minWindow || o.Window > maxWindow:
		return fmt.Errorf("gateway: the window must be from %v to %v", minWindow, maxWindow)
	case o.MinRound < 0 || o.MinRound > o.Limits.Requests:
		return fmt.Errorf("gateway: a round of %d requests; at most %d are held at one time", o.MinRound, o.Limits.Requests)
	case o.MaxDelay < o.Window || o.MaxDelay > maxWindow:
		return fmt.Errorf("gateway: the longest delay must be from the window to %v", maxWindow)
	case o.MaxOpened < 0:
		return errors.New("gateway: MaxOpened is negative")
	case o.Path[0] != '/':
		return errors.New("gateway: Path must begin with a slash")
	case o.RelayToken != "" && len(o.RelayToken) < minToken:
		return fmt.Errorf("gateway: the relay's token needs %d bytes or more", minToken)
	}
	seen := make(map[string]bool)
	for i := range o.Targets {
		t := &o.Targets[i]
		if t.Via == "" {
			t.Via = t.URL
		}
		for _, u := range []string{t.URL, t.Via} {
			if _, err := door.ParseURL(u); err != nil {
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
