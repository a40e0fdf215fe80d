package ohttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/sealed"
)

// MethodCover is the method of a request that holds nothing: a gateway drops it and
// answers as if it had been an upload. It is as long as POST, so that a cover request is
// as long as the upload whose place it takes. It never leaves an encapsulated request.
const MethodCover = "NOOP"

// admissionField is the header field in which a device shows a token of the gateway's
// (package admission).
const admissionField = "starling-admission"

// Reason is why relay or gateway refused a request; a closed set, fit for a metrics label.
type Reason = door.Reason

// The reasons that somebody tells apart; package door has them all.
const (
	ReasonPath         = door.Path
	ReasonOversized    = door.Oversized
	ReasonUnreachable  = door.Unreachable
	ReasonUnauthorized = door.Unauthorized
	ReasonKey          = door.Key
	ReasonSealed       = door.Sealed
	ReasonReplayed     = door.Replayed
)

// ReasonOf is the reason that a problem type stands for, and whether it stands for one.
func ReasonOf(problemType string) (Reason, bool) { return door.OfType(problemType) }

// A RefusedError is a refusal in the clear, of a relay or a gateway, or of whoever sits
// in the way: its reason is not authenticated. Whether the request had an effect is not
// known.
type RefusedError struct{ Reason Reason }

func (e *RefusedError) Error() string { return "ohttp: refused in the clear: " + string(e.Reason) }

// A DirectError is a request that the transport does not carry. It is never sent another
// way: whoever it was meant for would learn who asks.
type DirectError struct{ Method, Why string }

func (e *DirectError) Error() string {
	return fmt.Sprintf("ohttp: %s request not sent: %s", e.Method, e.Why)
}

// TransportOptions make a [Transport].
type TransportOptions struct {
	// Source gives the manifest. Required.
	Source Source
	// Relay carries requests to the relay. Default: a client of its own, without cookies,
	// redirects or a proxy's environment, whose requests time out after 60 s.
	Relay http.RoundTripper
	// Now is the device's clock. Default time.Now.
	Now func() time.Time
	// MaxAnswer bounds an encapsulated answer, in bytes. Default 1 MiB.
	MaxAnswer int64
}

const (
	defaultMaxAnswer = 1 << 20
	relayTimeout     = 60 * time.Second
)

// A Transport sends uploads through a relay to a gateway, so that the leader does not
// learn who uploads and the relay not what. It is an [http.RoundTripper], takes nothing
// but what its [Manifest] names, and falls back on nothing:
//
//   - POST and [MethodCover] to a target are encapsulated, padded to a [PaddedSize] and
//     sent to the relay;
//   - GET of a pinned URL is answered from the manifest, without network;
//   - anything else fails with [*DirectError].
//
// Of a request only method, URL, content type, admission and content go along. The
// response is the one that the gateway sealed; a refusal in the clear, which the relay
// could forge, is a *[RefusedError]. Each round trip encapsulates anew and sends once.
// Safe for concurrent use.
type Transport struct {
	o TransportOptions

	mu     sync.Mutex // guards the two
	ofKeys *Manifest
	keys   []*sealed.PublicKey
}

// NewTransport returns a transport. It makes no connection yet.
func NewTransport(o TransportOptions) (*Transport, error) {
	if o.Source == nil {
		return nil, errors.New("ohttp: no source of manifests")
	}
	if o.Relay == nil {
		o.Relay = &http.Transport{ // http.DefaultTransport would ask the environment for a proxy
			DisableCompression: true, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
			ResponseHeaderTimeout: relayTimeout, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 32,
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxAnswer == 0 {
		o.MaxAnswer = defaultMaxAnswer
	}
	return &Transport{o: o}, nil
}

// Pace is how often at most, and in what time from one to the next, a device sends one
// unit: what the manifest says.
func (t *Transport) Pace(ctx context.Context) (tries int, every time.Duration, err error) {
	m, err := t.o.Source.Manifest(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("ohttp: manifest: %w", err)
	}
	return int(m.Tries), m.Every, nil
}

type tryKey struct{}

// WithTry says which try of a unit, from 0, a request is.
func WithTry(ctx context.Context, n int) context.Context { return context.WithValue(ctx, tryKey{}, n) }

// TryOf is the try that a request is; 0 where nobody said so.
func TryOf(ctx context.Context) int {
	n, _ := ctx.Value(tryKey{}).(int)
	return n
}

// Source is where manifests come from.
func (t *Transport) Source() Source { return t.o.Source }

// Do is RoundTrip under the name that a client asks for.
func (t *Transport) Do(r *http.Request) (*http.Response, error) { return t.RoundTrip(r) }

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := content(r)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	m, err := t.o.Source.Manifest(ctx)
	if err != nil {
		return nil, fmt.Errorf("ohttp: manifest: %w", err)
	}
	if err := m.ValidAt(t.o.Now()); err != nil {
		return nil, err
	}
	target := r.URL.String()
	switch r.Method {
	case http.MethodGet:
		for i := range m.Pinned {
			if p := &m.Pinned[i]; p.URL == target {
				a := answer(r, http.StatusOK, p.Media, bytes.Clone(p.Body))
				// No longer than the manifest: who keeps the answer must not act on it
				// when another holds.
				a.Header.Set("Cache-Control", "max-age="+strconv.FormatInt(int64(m.NotAfter.Sub(t.o.Now())/time.Second), 10))
				return a, nil
			}
		}
		return nil, &DirectError{r.Method, "its answer is not in the manifest"}
	case http.MethodPost, MethodCover:
	default:
		return nil, &DirectError{r.Method, "only uploads are"}
	}
	if !m.serves(r.URL) {
		return nil, &DirectError{r.Method, "its target is not in the manifest"}
	}
	keys, err := t.gatewayKeys(m)
	if err != nil {
		return nil, err
	}
	message := &Request{Method: r.Method, Scheme: r.URL.Scheme, Authority: r.URL.Host, Path: r.URL.EscapedPath(), Content: body}
	if media := r.Header.Get("Content-Type"); media != "" {
		message.Header = []Field{{"content-type", media}}
	}
	if shown := r.Header.Get(admissionField); shown != "" {
		message.Header = append(message.Header, Field{admissionField, shown})
	}
	if r.Method == MethodCover {
		clear(message.Content) // the bytes of a report that is not sent are not sent
	}
	plain, err := message.Append(make([]byte, 0, MinRequest))
	if err != nil {
		return nil, err
	}
	plain = Pad(plain, MinRequest)
	// A key that is used up has another beside it, whose turn comes with the number of
	// the try and not with what anybody says: a relay could choose who uses which.
	at := TryOf(ctx) % len(keys)
	return t.exchange(ctx, r, m.Relay, m.Gateway[at].ID, keys[at], plain)
}

// exchange encapsulates once and returns the gateway's answer.
func (t *Transport) exchange(ctx context.Context, r *http.Request, relay string, id uint8, key *sealed.PublicKey, plain []byte) (*http.Response, error) {
	encapsulated, opener, err := Encapsulate(id, key, plain)
	if err != nil {
		return nil, err
	}
	outer, err := http.NewRequestWithContext(ctx, http.MethodPost, relay, bytes.NewReader(encapsulated))
	if err != nil {
		return nil, fmt.Errorf("ohttp: %w", err)
	}
	outer.Header = http.Header{"Content-Type": {RequestMedia}, "Accept": {ResponseMedia}, "User-Agent": nil}
	resp, err := t.o.Relay.RoundTrip(outer)
	if err != nil {
		return nil, fmt.Errorf("ohttp: relay: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		reason, known := door.Read(resp.Body)
		if !known {
			reason = ReasonUnreachable // a proxy before the relay, perhaps; the relay's word is worth no more than that
		}
		return nil, &RefusedError{reason}
	}
	if resp.Header.Get("Content-Type") != ResponseMedia {
		return nil, &RefusedError{ReasonUnreachable}
	}
	b, err := door.ReadAnswer(resp, t.o.MaxAnswer)
	if err != nil {
		return nil, fmt.Errorf("ohttp: read answer: %w", err)
	}
	if b, err = opener.Open(b); err != nil {
		return nil, err
	}
	inner, err := ReadResponse(b, MessageLimits{})
	if err != nil {
		return nil, err
	}
	a := answer(r, inner.Status, "", inner.Content)
	for _, f := range inner.Header {
		a.Header.Add(f.Name, f.Value)
	}
	return a, nil
}

// maxContent bounds what is encapsulated, in bytes; the relay's limit is lower.
const maxContent = 64 << 20

func content(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	defer r.Body.Close()
	b, err := io.ReadAll(io.LimitReader(r.Body, maxContent+1))
	if err != nil {
		return nil, fmt.Errorf("ohttp: read request: %w", err)
	}
	if len(b) > maxContent {
		return nil, &DirectError{r.Method, "its content is too long"}
	}
	return b, nil
}

// gatewayKeys parses the gateway's keys once a manifest.
func (t *Transport) gatewayKeys(m *Manifest) ([]*sealed.PublicKey, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ofKeys != m {
		var keys []*sealed.PublicKey
		for _, k := range m.Gateway {
			key, err := k.Choose()
			if err != nil {
				return nil, err
			}
			keys = append(keys, key)
		}
		t.ofKeys, t.keys = m, keys
	}
	return t.keys, nil
}

// serves says whether the URL lies under one of the manifest's targets.
func (m *Manifest) serves(u *url.URL) bool {
	if u.RawQuery != "" || u.ForceQuery || u.User != nil {
		return false
	}
	for _, t := range m.Targets {
		if base, err := url.Parse(t); err == nil && base.Scheme == u.Scheme && base.Host == u.Host &&
			strings.HasPrefix(u.EscapedPath(), strings.TrimRight(base.EscapedPath(), "/")+"/") {
			return true
		}
	}
	return false
}

// answer makes the response to r.
func answer(r *http.Request, status int, media string, body []byte) *http.Response {
	resp := &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Request: r,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
	if media != "" {
		resp.Header.Set("Content-Type", media)
	}
	return resp
}
