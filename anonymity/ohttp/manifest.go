package ohttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/anonymity/internal/door"
)

// A Manifest is what everyone's devices must hold alike: where the relay is, the gateway's key, whom the gateway serves,
// and the public keys that devices would otherwise have to fetch from the servers they wish to stay hidden from. A device
// that was given a manifest of its own could be told from all others by the key it uses, so there is one manifest an epoch.
// Today it is a file that comes with the device's software; a transparency log will hold it later, see [Source].
type Manifest struct {
	// Epoch counts manifests; the gateway's key id is Epoch mod 256.
	Epoch uint32
	// NotBefore and NotAfter bound its use, in whole seconds; devices refuse it outside.
	NotBefore, NotAfter time.Time
	// Relay is the relay's URL.
	Relay string
	// Gateway is the gateway's key.
	Gateway KeyConfig
	// Targets are the base URLs that the gateway passes uploads on to, as recipes name them.
	Targets []string
	// Pinned are answers that devices take from here instead of asking for them: the aggregators' HPKE keys.
	Pinned []Pinned
}

// Pinned is the answer to a GET of a URL.
type Pinned struct {
	URL   string
	Media string
	Body  []byte
}

// ErrManifest: malformed, or not to be used now.
var ErrManifest = errors.New("ohttp: bad manifest")

const (
	manifestMagic = "starling manifest v1"
	// MaxManifest bounds a manifest, in bytes; an entry of a transparency log may be no longer.
	MaxManifest = 60 << 10
)

// Types of a manifest's extensions; both are kept for what is not built yet. A reader refuses them by name.
const (
	extensionIssuers   = 1 // keys of the issuers of rate-limited tokens
	extensionWitnesses = 2 // policy on witnesses of the log
)

var extensionNames = map[uint16]string{extensionIssuers: "issuers", extensionWitnesses: "witnesses"}

// Validate says what is wrong with the manifest itself, whatever the time is.
func (m *Manifest) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrManifest, fmt.Sprintf(format, args...))
	}
	if !m.NotAfter.After(m.NotBefore) || m.NotBefore.Unix() < 0 {
		return bad("NotAfter must lie behind NotBefore")
	}
	if m.Gateway.ID != uint8(m.Epoch) {
		return bad("key id %d in epoch %d; the id is the epoch mod 256", m.Gateway.ID, m.Epoch)
	}
	if _, err := m.Gateway.Choose(); err != nil {
		return bad("the gateway's key: %v", err)
	}
	if _, err := door.ParseURL(m.Relay); err != nil {
		return bad("relay: %v", err)
	}
	if len(m.Targets) == 0 {
		return bad("no target")
	}
	seen := make(map[string]bool)
	for _, t := range m.Targets {
		if _, err := door.ParseURL(t); err != nil {
			return bad("target: %v", err)
		}
		if seen[t] {
			return bad("target %q stands twice", t)
		}
		seen[t] = true
	}
	clear(seen)
	for _, p := range m.Pinned {
		if _, err := door.ParseURL(p.URL); err != nil {
			return bad("pinned: %v", err)
		}
		if seen[p.URL] || p.Media == "" || len(p.Body) == 0 {
			return bad("pinned %q stands twice or is empty", p.URL)
		}
		seen[p.URL] = true
	}
	return nil
}

// ValidAt says whether the manifest may be used at time t ([ErrManifest]).
func (m *Manifest) ValidAt(t time.Time) error {
	if t.Before(m.NotBefore) || !t.Before(m.NotAfter) {
		return fmt.Errorf("%w: epoch %d is not of this time", ErrManifest, m.Epoch)
	}
	return nil
}

// Append appends the manifest's one encoding, in TLS syntax:
//
//	opaque magic[20] = "starling manifest v1"; uint32 epoch; uint64 not_before, not_after; (seconds since 1970)
//	opaque relay<0..2^16-1>; KeyConfig gateway<0..2^16-1>; opaque targets<0..2^16-1><0..2^24-1>;
//	{opaque url<0..2^16-1>, media<0..2^16-1>, body<0..2^24-1>} pinned<0..2^24-1>;
//	{uint16 type; opaque data<0..2^16-1>} extensions<0..2^16-1>, types rising, none defined yet
func (m *Manifest) Append(dst []byte) ([]byte, error) {
	if err := m.Validate(); err != nil {
		return dst, err
	}
	config, err := m.Gateway.Append(nil)
	if err != nil {
		return dst, err
	}
	b := cryptobyte.NewBuilder(nil)
	add16 := func(b *cryptobyte.Builder, s []byte) {
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(s) })
	}
	b.AddBytes([]byte(manifestMagic))
	b.AddUint32(m.Epoch)
	b.AddUint64(uint64(m.NotBefore.Unix()))
	b.AddUint64(uint64(m.NotAfter.Unix()))
	add16(b, []byte(m.Relay))
	add16(b, config)
	b.AddUint24LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, t := range m.Targets {
			add16(b, []byte(t))
		}
	})
	b.AddUint24LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, p := range m.Pinned {
			add16(b, []byte(p.URL))
			add16(b, []byte(p.Media))
			b.AddUint24LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(p.Body) })
		}
	})
	add16(b, nil) // extensions
	out, err := b.Bytes()
	if err != nil || len(out) > MaxManifest {
		return dst, fmt.Errorf("%w: longer than %d bytes", ErrManifest, MaxManifest)
	}
	return append(dst, out...), nil
}

// ReadManifest reads exactly one manifest and validates it ([ErrManifest]). It copies what it keeps.
func ReadManifest(b []byte) (*Manifest, error) {
	if len(b) > MaxManifest {
		return nil, fmt.Errorf("%w: longer than %d bytes", ErrManifest, MaxManifest)
	}
	s, ok := bytes.CutPrefix(bytes.Clone(b), []byte(manifestMagic))
	if !ok {
		return nil, fmt.Errorf("%w: not a starling manifest of version 1", ErrManifest)
	}
	cut := fmt.Errorf("%w: cut off or too long", ErrManifest)
	in := cryptobyte.String(s)
	m := &Manifest{}
	var from, to uint64
	var relay, config, targets, pinned, extensions cryptobyte.String
	if !in.ReadUint32(&m.Epoch) || !in.ReadUint64(&from) || !in.ReadUint64(&to) || !in.ReadUint16LengthPrefixed(&relay) ||
		!in.ReadUint16LengthPrefixed(&config) || !in.ReadUint24LengthPrefixed(&targets) ||
		!in.ReadUint24LengthPrefixed(&pinned) || !in.ReadUint16LengthPrefixed(&extensions) || !in.Empty() {
		return nil, cut
	}
	if from >= 1<<40 || to >= 1<<40 {
		return nil, fmt.Errorf("%w: time out of bounds", ErrManifest)
	}
	m.NotBefore, m.NotAfter, m.Relay = time.Unix(int64(from), 0).UTC(), time.Unix(int64(to), 0).UTC(), string(relay)
	var err error
	if m.Gateway, err = ReadKeyConfig(config); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	for !targets.Empty() {
		var t cryptobyte.String
		if !targets.ReadUint16LengthPrefixed(&t) {
			return nil, cut
		}
		m.Targets = append(m.Targets, string(t))
	}
	for !pinned.Empty() {
		var u, media, body cryptobyte.String
		if !pinned.ReadUint16LengthPrefixed(&u) || !pinned.ReadUint16LengthPrefixed(&media) || !pinned.ReadUint24LengthPrefixed(&body) {
			return nil, cut
		}
		m.Pinned = append(m.Pinned, Pinned{string(u), string(media), body})
	}
	if !extensions.Empty() {
		var kind uint16
		if !extensions.ReadUint16(&kind) {
			return nil, cut
		}
		if name := extensionNames[kind]; name != "" {
			return nil, fmt.Errorf("%w: extension %q needs a later version of this software", ErrManifest, name)
		}
		return nil, fmt.Errorf("%w: unknown extension %d", ErrManifest, kind)
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return m, nil
}

// A Source gives the manifest of now. It is asked before every request and keeps what it has; it must be safe for
// concurrent use. A source over a transparency log gives only what is proven to be in the log.
type Source interface {
	Manifest(context.Context) (*Manifest, error)
}

// Pin is the source that has one manifest.
func Pin(m *Manifest) Source { return pin{m} }

type pin struct{ m *Manifest }

func (p pin) Manifest(context.Context) (*Manifest, error) { return p.m, nil }
