package ohttp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/starling-agg/starling/internal/endpoint"
	"github.com/starling-agg/starling/internal/faults"
	"github.com/starling-agg/starling/internal/wire"
	"github.com/starling-agg/starling/signed"
)

// A Manifest is what everyone's devices must hold alike: where the relay is, the
// gateway's keys, whom the gateway serves, and the public keys that devices would
// otherwise have to fetch from the servers they wish to stay hidden from. A device that
// was given a manifest of its own could be told from all others by the keys it uses. So
// leader, helper and gateway each sign the digest of the whole, and each signs one digest
// an epoch: one honest party of the three is enough for all devices to hold the same
// ([Manifest.Verify]). Of who assembles a manifest nothing is asked.
//
// Manifests of two epochs are never in use at one time: Epoch counts in units of Length
// since 1970, and a manifest ends where the next begins at the latest. They are handed
// out ahead.
type Manifest struct {
	// Deployment is what leader, helper, gateway and relay are together, as recipes name
	// it; zero in a manifest that nobody signs, for recipes that name no signing keys.
	Deployment [32]byte
	// Epoch is NotBefore in whole units of Length, rounded down.
	Epoch uint32
	// Revision counts the manifests of one epoch, from 0: more than one is for
	// emergencies, and parts those devices that have it from those that have not.
	Revision uint16
	// Length is that of an epoch, in whole seconds, [MinEpoch] to [MaxEpoch].
	Length time.Duration
	// NotBefore and NotAfter bound its use, in whole seconds and at most Length apart;
	// devices refuse it outside.
	NotBefore, NotAfter time.Time
	// Previous is the digest of the manifest before; zero in the first.
	Previous [32]byte
	// Relay is the relay's URL.
	Relay string
	// Gateway are the gateway's keys, one or two, of different ids. Devices use the first
	// in their first try, the second in the next, and so on in turn: a key that is used
	// up has another beside it, and nobody chooses who uses which.
	Gateway []KeyConfig
	// Tries is how often a device sends one unit at most (K, 1 to [MaxTries]), and Every
	// the time between two tries (P, whole seconds from 1 s to 24 h); together at most
	// Length.
	Tries uint8
	Every time.Duration
	// Hold is how long the gateway may keep an upload for its target, in whole seconds,
	// from 1 s to [MaxHold]: leader and helper take the keys of this manifest for as long
	// after its last try.
	Hold time.Duration
	// Targets are the base URLs that the gateway passes uploads on to, as recipes name
	// them.
	Targets []string
	// Pinned are answers that devices take from here instead of asking for them: the
	// aggregators' HPKE keys.
	Pinned []Pinned
	// Recipes are the ids of the recipes that are live, rising: devices answer no other.
	Recipes [][32]byte
	// Issuers are whom devices ask for the credentials that they show in this epoch; nil
	// where none of the recipes has credentials.
	Issuers *Issuers
	// Signatures are those of leader, helper and gateway, in that order, as far as they
	// are there.
	Signatures []Cosignature
}

// Issuers say whose credentials devices show in an epoch (packages arc and voprf): one
// issuer beside leader and helper each, and the gateway. All devices must see the same
// keys, or an issuer knows the device for which it has one of its own.
type Issuers struct {
	// Leader and Helper are the issuers' public keys of this epoch, as package arc encodes
	// them. They differ from each other and from those of all other epochs. In a manifest of
	// the shuffled path they are those of the issuers beside hop 1 and hop 2.
	Leader, Helper [IssuerKeySize]byte
	// Attester is the root key of who vouches for devices to the issuers.
	Attester signed.PublicKey
	// Cap is how many devices each issuer answers in the epoch at most, 1 or more.
	Cap uint64
	// Admission are the gateway's keys for tokens of rounds, by recipe, rising.
	Admission []AdmissionKeys
}

// IssuerKeySize is the length of an issuer's public key, in bytes.
const IssuerKeySize = 99

// AdmissionKeys name the gateway's keys for all rounds of a recipe that begin in an epoch.
type AdmissionKeys struct {
	Recipe [32]byte
	// Keys is the digest of the list of keys (voprf.RoundKeys).
	Keys [32]byte
}

// Pinned is the answer to a GET of a URL.
type Pinned struct {
	URL   string
	Media string
	Body  []byte
}

// A Cosignature is one party's signature of a manifest's digest.
type Cosignature struct {
	Role      signed.Role
	Signature signed.Signature
}

// CosignatureMessage is the message parameter of DAP's media type for an encoded
// cosignature, CosignatureMedia the whole media type, and CosignatureSize the length in
// bytes.
const (
	CosignatureMessage = "starling-cosignature"
	CosignatureMedia   = "application/ppm-dap;message=" + CosignatureMessage
	CosignatureSize    = 1 + signed.SignatureSize
)

// code reads and writes uint8 role; opaque signature[208].
func (s *Cosignature) code(c *wire.Coder) {
	var b [signed.SignatureSize]byte
	if c.Writing() {
		s.Signature.Append(b[:0])
	}
	c.Uint8((*uint8)(&s.Role), "role")
	c.Fixed(b[:], "signature")
	if !c.Writing() && c.Err() == nil {
		var err error
		if s.Signature, err = signed.ReadSignature(b[:]); err != nil {
			c.Abort(fmt.Errorf("%w: %w", ErrManifest, err))
		}
	}
}

// Append appends the encoding: uint8 role; opaque signature[208].
func (s *Cosignature) Append(dst []byte) []byte { return wire.MustAppend(dst, s.code) }

// ReadCosignature reads exactly one ([ErrManifest]).
func ReadCosignature(b []byte) (s Cosignature, err error) {
	err = wire.Read(b, ErrManifest, s.code)
	return s, err
}

// Roots are the keys that must vouch for a manifest, as a recipe names them.
type Roots struct{ Leader, Helper, Gateway signed.PublicKey }

// list is the roots by their roles, in the order of a manifest's signatures.
func (r *Roots) list() []struct {
	role signed.Role
	root signed.PublicKey
} {
	return []struct {
		role signed.Role
		root signed.PublicKey
	}{{signed.Leader, r.Leader}, {signed.Helper, r.Helper}, {signed.Gateway, r.Gateway}}
}

// Errors of manifests, to branch on with errors.Is.
var (
	// ErrManifest: malformed, or not to be used now.
	ErrManifest = errors.New("ohttp: bad manifest")
	// ErrLater is beside ErrManifest where the manifest is of a later version, or has an
	// extension that this one does not know: it is not used, and says nothing of its maker.
	ErrLater = errors.New("it needs a later version of this software")
	// ErrUnsigned: not signed by leader, helper and gateway, each by the key that the
	// recipe names.
	ErrUnsigned = errors.New("ohttp: the manifest is not signed by all three")
)

const (
	manifestMagic = "starling manifest v3"
	// cosignDomain opens what each party signs (package signed): its role and the digest.
	cosignDomain = "starling manifest digest v3"
	// MaxManifest bounds a manifest, in bytes; an entry of a transparency log may be no
	// longer.
	MaxManifest = 60 << 10
)

// Bounds of a manifest's fields.
const (
	MinEpoch = time.Minute
	MaxEpoch = 90 * 24 * time.Hour
	MaxTries = 16
	MaxHold  = 30 * 24 * time.Hour
	// MaxRecipes is how many recipes may be live at one time.
	MaxRecipes = 1024
	// MaxAdmission is for how many of them the gateway may have keys for tokens.
	MaxAdmission = 256

	maxEvery = 24 * time.Hour
)

// Defaults of a maker of manifests.
const (
	DefaultEpoch = 7 * 24 * time.Hour
	DefaultTries = 3
	DefaultEvery = time.Minute
	DefaultHold  = 24 * time.Hour
)

// EpochAt is the number of the epoch in which a time lies.
func EpochAt(t time.Time, length time.Duration) uint32 {
	return uint32(t.Unix() / int64(length/time.Second))
}

// Types of a manifest's extensions. The second is kept for what is not built yet; a reader
// refuses it by name.
const (
	extensionIssuers   = 1
	extensionWitnesses = 2 // policy on witnesses of the log
)

// Validate says all that is wrong with the manifest itself, as a [faults.List], whatever
// the time is and whoever signed it.
func (m *Manifest) Validate() error {
	var f faults.List
	bad := func(broken bool, format string, args ...any) {
		if broken {
			f.Add("", fmt.Errorf("%w: %s", ErrManifest, fmt.Sprintf(format, args...)))
		}
	}
	whole := func(d time.Duration) bool { return d%time.Second == 0 }
	epoch := m.Length >= MinEpoch && m.Length <= MaxEpoch && whole(m.Length)
	bad(!epoch, "an epoch of %v, want whole seconds from %v to %v", m.Length, MinEpoch, MaxEpoch)
	bad(!m.NotAfter.After(m.NotBefore) || m.NotBefore.Unix() < 0 || m.NotBefore.Nanosecond() != 0 || m.NotAfter.Nanosecond() != 0,
		"NotAfter must lie behind NotBefore, both in whole seconds")
	if epoch {
		bad(m.NotAfter.Sub(m.NotBefore) > m.Length, "valid for %v, longer than an epoch", m.NotAfter.Sub(m.NotBefore))
		bad(m.NotBefore.Unix()/int64(m.Length/time.Second) != int64(m.Epoch), "epoch %d begins at another time", m.Epoch)
		bad(m.Sending() > m.Length, "tries over %v, longer than an epoch", m.Sending())
	}
	bad(m.Tries < 1 || m.Tries > MaxTries || m.Every < time.Second || m.Every > maxEvery || !whole(m.Every),
		"%d tries every %v, want 1 to %d, and whole seconds from 1s to %v", m.Tries, m.Every, MaxTries, maxEvery)
	bad(m.Hold < time.Second || m.Hold > MaxHold || !whole(m.Hold),
		"the gateway holds uploads for %v, want whole seconds from 1s to %v", m.Hold, MaxHold)
	bad(len(m.Gateway) < 1 || len(m.Gateway) > 2, "%d keys of the gateway, want one or two", len(m.Gateway))
	for _, k := range m.Gateway {
		_, err := k.Choose()
		bad(err != nil, "the gateway's key: %v", err)
	}
	bad(len(m.Gateway) == 2 && (m.Gateway[0].ID == m.Gateway[1].ID || bytes.Equal(m.Gateway[0].Key, m.Gateway[1].Key)),
		"the gateway's keys are one key, or have one id")
	_, err := endpoint.Parse(m.Relay)
	bad(err != nil, "relay: %v", err)
	bad(len(m.Targets) == 0, "no target")
	seen := make(map[string]bool)
	for _, t := range m.Targets {
		_, err := endpoint.Parse(t)
		bad(err != nil, "target: %v", err)
		bad(seen[t], "target %q stands twice", t)
		seen[t] = true
	}
	clear(seen)
	for _, p := range m.Pinned {
		_, err := endpoint.Parse(p.URL)
		bad(err != nil, "pinned: %v", err)
		bad(seen[p.URL] || p.Media == "" || len(p.Body) == 0, "pinned %q stands twice or is empty", p.URL)
		seen[p.URL] = true
	}
	bad(len(m.Recipes) > MaxRecipes || !rising(m.Recipes), "recipes do not rise, or are more than %d", MaxRecipes)
	if x := m.Issuers; x != nil {
		bad(x.Leader == x.Helper, "both issuers have one key")
		bad(x.Attester.Validate() != nil, "the attester's key cannot be used")
		bad(x.Cap < 1 || x.Cap > math.MaxInt64, "issuers that answer %d devices, want 1 to %d", x.Cap, int64(math.MaxInt64))
		bad(len(x.Admission) > MaxAdmission, "keys for tokens of %d recipes, want at most %d", len(x.Admission), MaxAdmission)
		for i := range x.Admission {
			bad(i > 0 && bytes.Compare(x.Admission[i-1].Recipe[:], x.Admission[i].Recipe[:]) >= 0, "keys for tokens, whose recipes do not rise")
			bad(!m.Live(x.Admission[i].Recipe), "keys for tokens of a recipe that is not live")
		}
	}
	for i, s := range m.Signatures {
		bad(s.Role < signed.Leader || s.Role > signed.Gateway || i > 0 && s.Role <= m.Signatures[i-1].Role,
			"signatures of other roles, or not in their order")
	}
	return f.All()
}

func rising(ids [][32]byte) bool {
	for i := 1; i < len(ids); i++ {
		if bytes.Compare(ids[i-1][:], ids[i][:]) >= 0 {
			return false
		}
	}
	return true
}

// Sending is the time from a device's first try to the end of its last, K times P.
func (m *Manifest) Sending() time.Duration { return time.Duration(m.Tries) * m.Every }

// A SendingError: devices would go on trying for longer than reports of a round are
// waited for, so that the last of them are too late to be counted.
type SendingError struct {
	// Sending is how long devices try: Tries times Every. Grace is how long after the end
	// of a round it is released.
	Sending, Grace time.Duration
	Tries          uint8
	Every          time.Duration
}

func (e *SendingError) Error() string {
	return fmt.Sprintf("ohttp: devices try for %v (%d times, one every %v), and a round is released %v after its end: what comes later is lost",
		e.Sending, e.Tries, e.Every, e.Grace)
}

// Fits is the longest time between two tries, in whole seconds, with which as many of
// them fit; zero if none does.
func (e *SendingError) Fits() time.Duration {
	return (e.Grace / time.Duration(e.Tries)).Truncate(time.Second)
}

// CheckSending says with a *[SendingError] that devices try for longer than a grace.
func (m *Manifest) CheckSending(grace time.Duration) error {
	if m.Sending() <= grace {
		return nil
	}
	return &SendingError{m.Sending(), grace, m.Tries, m.Every}
}

// Live says whether a recipe is among those that devices may answer.
func (m *Manifest) Live(recipe [32]byte) bool { return slices.Contains(m.Recipes, recipe) }

// Digest is the SHA-256 of everything but the signatures.
func (m *Manifest) Digest() ([32]byte, error) {
	b, err := m.body()
	return sha256.Sum256(b), err
}

// Sign adds a party's signature to the manifest, or puts it in the place of the one that
// is there. The caller has made sure that the party signs nothing else in this epoch. It
// fails with [ErrManifest] and [signed.ErrWindow].
func (m *Manifest) Sign(role signed.Role, s *signed.Signer) error {
	message, err := m.cosigned(role)
	if err != nil {
		return err
	}
	signature, err := s.Sign(cosignDomain, message, m.NotBefore, m.NotAfter)
	if err != nil {
		return fmt.Errorf("ohttp: sign the manifest: %w", err)
	}
	m.Add(Cosignature{role, signature})
	return nil
}

// Add puts a signature into its place; [Manifest.Verify] says whether it holds.
func (m *Manifest) Add(c Cosignature) {
	list := slices.DeleteFunc(slices.Clone(m.Signatures), func(x Cosignature) bool { return x.Role == c.Role })
	m.Signatures = append(list, c)
	slices.SortFunc(m.Signatures, func(a, b Cosignature) int { return int(a.Role) - int(b.Role) })
}

// cosigned is what one party signs.
func (m *Manifest) cosigned(role signed.Role) ([]byte, error) {
	digest, err := m.Digest()
	return append([]byte{byte(role)}, digest[:]...), err
}

// Verify says whether leader, helper and gateway have all signed this manifest, each for
// its own role and by a key that may sign for all of the manifest's time. It fails with
// [ErrUnsigned], and beside it [signed.ErrSignature], [signed.ErrWindow] or
// [signed.ErrKey]. It looks at no clock.
func (m *Manifest) Verify(r Roots) error {
	for _, party := range r.list() {
		i := slices.IndexFunc(m.Signatures, func(c Cosignature) bool { return c.Role == party.role })
		if i < 0 {
			return fmt.Errorf("%w: the %v has not signed", ErrUnsigned, party.role)
		}
		if err := m.VerifyOne(m.Signatures[i], party.root); err != nil {
			return err
		}
	}
	return nil
}

// VerifyOne is [Manifest.Verify] for one signature, of the owner of a root.
func (m *Manifest) VerifyOne(c Cosignature, root signed.PublicKey) error {
	message, err := m.cosigned(c.Role)
	if err != nil {
		return err
	}
	if err := c.Signature.Verify(root, cosignDomain, message, m.NotBefore, m.NotAfter); err != nil {
		return fmt.Errorf("%w: the %v's: %w", ErrUnsigned, c.Role, err)
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

// KeyList is the signed list of one aggregator, whose base URL and root are the recipe's:
// it is pinned where a device would ask for it, and holds for all of the manifest's time.
// It fails with [signed.ErrList] and as [signed.OpenList].
func (m *Manifest) KeyList(role signed.Role, base string, root signed.PublicKey) (*signed.List, error) {
	at, err := signed.ListURL(base, m.Deployment)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(m.Pinned, func(p Pinned) bool { return p.URL == at })
	if i < 0 || m.Pinned[i].Media != signed.ListMedia {
		return nil, fmt.Errorf("%w: the %v's is not in the manifest", signed.ErrList, role)
	}
	l, err := signed.OpenList(m.Pinned[i].Body, root, m.Deployment, role, base)
	if err != nil {
		return nil, err
	}
	if l.Epoch != m.Epoch || l.NotBefore.After(m.NotBefore) || l.NotAfter.Before(m.NotAfter) {
		return nil, fmt.Errorf("%w: the %v's is of another time than the manifest", signed.ErrList, role)
	}
	return l, nil
}

// Append appends the manifest's one encoding, in TLS syntax:
//
//	opaque magic[20] = "starling manifest v3"; opaque deployment[32];
//	uint32 epoch; uint16 revision; uint32 length; uint64 not_before, not_after; (seconds, since 1970)
//	opaque previous[32]; opaque relay<0..2^16-1>; KeyConfig gateway<0..2^16-1><0..2^24-1>;
//	uint8 tries; uint32 every, hold; (seconds)
//	opaque targets<0..2^16-1><0..2^24-1>;
//	{opaque url<0..2^16-1>, media<0..2^16-1>, body<0..2^24-1>} pinned<0..2^24-1>;
//	opaque recipes[32]<0..2^24-1>, rising;
//	{uint16 type; opaque data<0..2^16-1>} extensions<0..2^16-1>, types rising; type 1 is
//	  opaque leader[99], helper[99], attester[32]; uint64 cap;
//	  {opaque recipe[32], keys[32]} admission<0..2^16-1>, recipes rising
//	{uint8 role; opaque signature[208]} signatures<0..2^16-1>, roles rising
//
// The digest is over all that stands before the signatures.
func (m *Manifest) Append(dst []byte) ([]byte, error) {
	if err := m.Validate(); err != nil {
		return dst, err
	}
	out, err := wire.Append(dst, ErrManifest, m.code)
	if err == nil && len(out)-len(dst) > MaxManifest {
		err = fmt.Errorf("%w: longer than %d bytes", ErrManifest, MaxManifest)
	}
	if err != nil {
		return dst, err
	}
	return out, nil
}

// body is the encoding without the signatures.
func (m *Manifest) body() ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return wire.Append(nil, ErrManifest, m.codeBody)
}

// ReadManifest reads exactly one manifest and validates it ([ErrManifest]); who signed it
// is for [Manifest.Verify]. It copies what it keeps.
func ReadManifest(b []byte) (*Manifest, error) {
	if len(b) > MaxManifest {
		return nil, fmt.Errorf("%w: longer than %d bytes", ErrManifest, MaxManifest)
	}
	m := &Manifest{}
	if err := wire.Read(bytes.Clone(b), ErrManifest, m.code); err != nil {
		return nil, err
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Manifest) code(c *wire.Coder) {
	m.codeBody(c)
	c.Nested16("signatures", func() {
		wire.Items(c, &m.Signatures, func(_ int, s *Cosignature) { s.code(c) })
	})
}

func (m *Manifest) codeBody(c *wire.Coder) {
	if b := c.Bytes(); !c.Writing() && later(b) {
		c.Abort(fmt.Errorf("%w: %w: version %c", ErrManifest, ErrLater, b[len(manifestMagic)-1]))
	}
	c.Const(manifestMagic, "not a starling manifest of version 3")
	c.Fixed(m.Deployment[:], "deployment")
	c.Uint32(&m.Epoch, "epoch")
	c.Uint16(&m.Revision, "revision")
	c.Duration32(&m.Length, "length")
	c.Seconds(&m.NotBefore, "not_before")
	c.Seconds(&m.NotAfter, "not_after")
	c.Fixed(m.Previous[:], "previous")
	c.Text16(&m.Relay, "relay")
	c.Nested24("gateway", func() {
		wire.Items(c, &m.Gateway, func(_ int, k *KeyConfig) { codeGateway(c, k) })
	})
	c.Uint8(&m.Tries, "tries")
	c.Duration32(&m.Every, "every")
	c.Duration32(&m.Hold, "hold")
	c.Nested24("targets", func() {
		wire.Items(c, &m.Targets, func(_ int, t *string) { c.Text16(t, "target") })
	})
	c.Nested24("pinned", func() {
		wire.Items(c, &m.Pinned, func(_ int, p *Pinned) {
			c.Text16(&p.URL, "URL")
			c.Text16(&p.Media, "media")
			c.Vec24(&p.Body, 0, "body")
		})
	})
	c.Nested24("recipes", func() {
		wire.Items(c, &m.Recipes, func(_ int, id *[32]byte) { c.Fixed(id[:], "recipe") })
	})
	c.Nested16("extensions", func() {
		kind := uint16(extensionIssuers)
		if c.Writing() && m.Issuers == nil || !c.Writing() && !c.More() {
			return
		}
		switch c.Uint16(&kind, "extension"); {
		case c.Err() != nil:
		case kind == extensionWitnesses:
			c.Abort(fmt.Errorf("%w: the extension \"witnesses\": %w", ErrManifest, ErrLater))
		case kind > extensionWitnesses:
			c.Abort(fmt.Errorf("%w: unknown extension %d: %w", ErrManifest, kind, ErrLater))
		case kind != extensionIssuers:
			c.Fail("extension 0")
		}
		if m.Issuers == nil {
			m.Issuers = new(Issuers)
		}
		c.Nested16("issuers", func() { m.Issuers.code(c) })
		if !c.Writing() && c.More() {
			c.Abort(fmt.Errorf("%w: an extension behind that of the highest type that is known: %w", ErrManifest, ErrLater))
		}
	})
}

// later says whether bytes begin as a manifest of a later version does.
func later(b []byte) bool {
	last := len(manifestMagic) - 1
	return len(b) > last && string(b[:last]) == manifestMagic[:last] && b[last] > manifestMagic[last] && b[last] <= '9'
}

func (x *Issuers) code(c *wire.Coder) {
	c.Fixed(x.Leader[:], "leader's issuer")
	c.Fixed(x.Helper[:], "helper's issuer")
	c.Fixed(x.Attester[:], "attester")
	c.Uint64(&x.Cap, "cap")
	c.Nested16("admission", func() {
		wire.Items(c, &x.Admission, func(_ int, k *AdmissionKeys) {
			c.Fixed(k.Recipe[:], "recipe")
			c.Fixed(k.Keys[:], "keys")
		})
	})
}

// codeGateway reads or writes a gateway's key in a manifest. An invalid key makes the
// manifest invalid.
func codeGateway(c *wire.Coder, k *KeyConfig) {
	var one []byte
	var err error
	if c.Writing() {
		one, err = k.Append(nil)
		c.Abort(err)
	}
	if c.Vec16(&one, 0, "key configuration"); c.Writing() || c.Err() != nil {
		return
	}
	if *k, err = ReadKeyConfig(one); err != nil {
		c.Abort(fmt.Errorf("%w: %w", ErrManifest, err))
	}
}

// A Source gives the manifest of now. It is asked before every request and keeps what it
// has; it must be safe for concurrent use. A source over a transparency log gives only
// what is proven to be in the log.
type Source interface {
	Manifest(context.Context) (*Manifest, error)
}

// Pin is the source that has one manifest.
func Pin(m *Manifest) Source { return pin{m} }

type pin struct{ m *Manifest }

func (p pin) Manifest(context.Context) (*Manifest, error) { return p.m, nil }
