package attester

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/starling-agg/starling/internal/endpoint"
)

// OIDCOptions make an [OIDC].
type OIDCOptions struct {
	// Issuer is the provider's URL, as its tokens have it; its configuration lies beneath.
	// Required.
	Issuer string
	// Audience is the client that tokens are made for. Required.
	Audience string
	// Claim names the person, and never another; default "sub".
	Claim string
	// MaxAge is how long ago a token was made at most; default 10 min.
	MaxAge time.Duration
	// Key hides who they are. Required.
	Key NameKey
	// Transport asks the provider; default one of its own.
	Transport http.RoundTripper
	// Now is the clock; default time.Now.
	Now func() time.Time
}

const (
	defaultAge = 10 * time.Minute
	// skew is by how much a provider's clock may be ahead.
	skew = time.Minute
	// maxClaim bounds who a token is of, in bytes.
	maxClaim = 255
	// maxProvided bounds an answer of a provider, in bytes, and providerTime how long it may
	// take.
	maxProvided  = 256 << 10
	providerTime = 10 * time.Second
	// keysAge is how long what a provider said of itself holds: a key that it took back is not
	// taken for longer.
	keysAge = time.Hour
	// askAgain is how long an answer, or none, stands, whatever strangers bring: a token under a
	// key that is not known would have the provider asked.
	askAgain = 10 * time.Second
)

// signatures are those that a token may have: of public keys all.
var signatures = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA}

// OIDC is an organisation's identity provider (OpenID Connect Core 1.0): the device is whoever
// brings an ID token of its, with the nonce of the enrolment. One person has one name, on
// however many devices; that no person has two accounts is the provider's word.
type OIDC struct {
	o    OIDCOptions
	asks *asks

	mu   sync.Mutex
	keys oidc.KeySet // of the provider; nil: it was not asked yet
	read time.Time   // when it was
}

// NewOIDC makes the attestation by a provider, which it asks once the first device comes.
func NewOIDC(o OIDCOptions) (*OIDC, error) {
	if err := endpoint.CheckPeer(o.Issuer); err != nil {
		return nil, fmt.Errorf("attester: identity provider: %w", err)
	}
	if o.Audience == "" || o.Key == (NameKey{}) || o.MaxAge < 0 {
		return nil, errors.New("attester: identity provider: no audience or key, or a negative age")
	}
	if o.Claim == "" {
		o.Claim = "sub"
	}
	if o.MaxAge == 0 {
		o.MaxAge = defaultAge
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Transport == nil {
		o.Transport = &http.Transport{TLSHandshakeTimeout: providerTime, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}
	}
	return &OIDC{o: o, asks: &asks{next: o.Transport, now: o.Now, said: make(map[string]said)}}, nil
}

// Device implements [Attestation].
func (p *OIDC) Device(ctx context.Context, e *Evidence) (id [32]byte, err error) {
	refuse := func(format string, args ...any) ([32]byte, error) {
		return id, fmt.Errorf("%w: %w", ErrProof, fmt.Errorf(format, args...))
	}
	keys, err := p.provider()
	if err != nil {
		return id, err
	}
	under := &signedBy{keys: keys}
	token, err := oidc.NewVerifier(p.o.Issuer, under, &oidc.Config{ClientID: p.o.Audience, SupportedSigningAlgs: signatures, Now: p.o.Now}).
		Verify(ctx, string(bytes.TrimSpace(e.Proof)))
	switch {
	case errors.Is(under.err, ErrAway) || under.err != nil && ctx.Err() != nil:
		return id, fmt.Errorf("%w: %w", ErrAway, under.err)
	case err != nil:
		return refuse("%w", err)
	}
	now := p.o.Now()
	switch made := token.IssuedAt; {
	case made.Before(now.Add(-p.o.MaxAge)) || made.After(now.Add(skew)):
		return refuse("the token was made at %s", made.UTC().Format(time.RFC3339))
	case e.Nonce == "" || subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(e.Nonce)) != 1:
		return refuse("the token is for another enrolment")
	}
	var claims map[string]json.RawMessage
	if err := token.Claims(&claims); err != nil {
		return refuse("%w", err)
	}
	// For several audiences who asked for the token is said apart (OpenID Connect Core, 3.1.3.7).
	if by, ok := textOf(claims["azp"]); len(token.Audience) > 1 && !ok || ok && by != p.o.Audience {
		return refuse("the token was asked for by another client")
	}
	who, ok := textOf(claims[p.o.Claim])
	if !ok || who == "" || len(who) > maxClaim {
		return refuse("its claim %q is no text of 1 to %d bytes", p.o.Claim, maxClaim)
	}
	return p.o.Key.name(oidcDomain, p.o.Issuer, p.o.Claim, who), nil
}

// record implements [named].
func (p *OIDC) record() [32]byte { return p.o.Key.name(checkDomain, "oidc", p.o.Issuer, p.o.Claim) }

func textOf(raw json.RawMessage) (s string, ok bool) {
	return s, raw != nil && json.Unmarshal(raw, &s) == nil
}

// signedBy notes why a signature could not be verified, of which the library keeps no type.
type signedBy struct {
	keys oidc.KeySet
	err  error
}

// VerifySignature implements [oidc.KeySet].
func (s *signedBy) VerifySignature(ctx context.Context, jwt string) (payload []byte, err error) {
	payload, s.err = s.keys.VerifySignature(ctx, jwt)
	return payload, s.err
}

// provider has the keys of the provider, as it said within keysAge. It fails with [ErrAway].
func (p *OIDC) provider() (oidc.KeySet, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.o.Now()
	if p.keys != nil && !now.Before(p.read) && now.Sub(p.read) < keysAge {
		return p.keys, nil
	}
	// Not the device's context: what a provider says is for all of them.
	client := &http.Client{Transport: p.asks, Timeout: providerTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	found, err := oidc.NewProvider(oidc.ClientContext(context.Background(), client), p.o.Issuer)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAway, err)
	}
	var said struct {
		Keys string `json:"jwks_uri"`
	}
	if err := found.Claims(&said); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAway, err)
	}
	if said.Keys == "" {
		return nil, fmt.Errorf("%w: it names no jwks_uri", ErrAway)
	}
	p.keys, p.read = &keySet{client: client, url: said.Keys}, now
	return p.keys, nil
}

// A keySet is what the provider publishes of its keys. (The library's own asks beside who
// waits, and may answer who comes next by what it knew before.)
type keySet struct {
	client *http.Client
	url    string

	mu   sync.Mutex
	keys []jose.JSONWebKey
}

// VerifySignature implements [oidc.KeySet]. It asks the provider where no key that is
// known has made the signature, and fails with [ErrAway] where that does not answer.
func (s *keySet) VerifySignature(_ context.Context, jwt string) ([]byte, error) {
	algorithms := make([]jose.SignatureAlgorithm, len(signatures))
	for i, name := range signatures {
		algorithms[i] = jose.SignatureAlgorithm(name)
	}
	signed, err := jose.ParseSignedCompact(jwt, algorithms)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if payload, ok := s.verify(signed); ok {
		return payload, nil
	}
	if err := s.fetch(); err != nil {
		return nil, err
	}
	if payload, ok := s.verify(signed); ok {
		return payload, nil
	}
	return nil, errors.New("no key of the provider has made its signature")
}

func (s *keySet) verify(signed *jose.JSONWebSignature) (payload []byte, ok bool) {
	if len(signed.Signatures) != 1 {
		return nil, false
	}
	id := signed.Signatures[0].Header.KeyID
	for i := range s.keys {
		if id != "" && s.keys[i].KeyID != id {
			continue
		}
		if payload, err := signed.Verify(&s.keys[i]); err == nil {
			return payload, true
		}
	}
	return nil, false
}

// fetch asks for the keys, for whoever comes next too.
func (s *keySet) fetch() error {
	resp, err := s.client.Get(s.url)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAway, err)
	}
	defer resp.Body.Close()
	var set jose.JSONWebKeySet
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxProvided)).Decode(&set); err != nil {
		return fmt.Errorf("%w: its keys: %w", ErrAway, err)
	}
	s.keys = set.Keys
	return nil
}

// asks asks a provider for one thing once within askAgain, and bounds its answers.
type asks struct {
	next http.RoundTripper
	now  func() time.Time

	mu   sync.Mutex
	said map[string]said // by URL: of the configuration, and of the keys that it names
}

type said struct {
	at   time.Time
	body []byte
	err  error
}

// RoundTrip implements [http.RoundTripper]. It fails with [ErrAway].
func (a *asks) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := r.URL.String()
	x, ok := a.said[at]
	if now := a.now(); !ok || now.Sub(x.at) >= askAgain || now.Before(x.at) {
		x.body, x.err = a.ask(r)
		x.at = now
		a.said[at] = x
	}
	if x.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAway, x.err)
	}
	return &http.Response{Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(x.body)), Body: io.NopCloser(bytes.NewReader(x.body))}, nil
}

func (a *asks) ask(r *http.Request) ([]byte, error) {
	if err := endpoint.CheckPeer((&url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Path: "/"}).String()); err != nil {
		return nil, err
	}
	resp, err := a.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxProvided+1))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("HTTP status %d", resp.StatusCode)
	case len(b) > maxProvided || !json.Valid(b):
		return nil, fmt.Errorf("an answer of %d bytes that is no JSON of at most %d", len(b), maxProvided)
	}
	return b, nil
}
