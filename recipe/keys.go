package recipe

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/signed"
)

// ServerKeys say whose signatures vouch for the keys that reports are encrypted to: the
// root keys of leader, helper and gateway. A recipe without them leaves that to whoever
// answers for the servers' addresses, or hands out manifests.
type ServerKeys struct {
	Leader signed.PublicKey `json:"leader"`
	Helper signed.PublicKey `json:"helper"`
	// Gateway is there where the recipe names a relay, and zero where it names none.
	Gateway signed.PublicKey `json:"gateway"`
	// Collector is the SHA-256 of the collector's HPKE configuration, as DAP encodes it:
	// results are sealed to no other key.
	Collector Hash `json:"collector"`
	// EpochLength is that of the epochs of manifests and key lists, in seconds,
	// [MinEpochLength] to [MaxEpochLength].
	EpochLength uint32 `json:"epoch_length"`
}

// Bounds of ServerKeys.EpochLength, in seconds.
const (
	MinEpochLength     = 60
	MaxEpochLength     = 90 * 86400
	DefaultEpochLength = 7 * 86400
)

// deploymentDomain opens the hash that names a deployment.
const deploymentDomain = "starling deployment v1"

// ErrNoServerKeys: the recipe does not say whose signatures vouch for the keys that
// reports are encrypted to.
var ErrNoServerKeys = errors.New("recipe: it names no signing keys of its servers")

// Deployment names what leader, helper, gateway and relay are together: all recipes with
// the same keys and addresses are one deployment, and share its manifests. It is the
// SHA-256 of
//
//	"starling deployment v1"; opaque leader_url<0..2^16-1>, helper_url<0..2^16-1>, relay_url<0..2^16-1>; (empty without a relay)
//	opaque leader[32], helper[32], gateway[32]; (zeros without a relay) uint32 epoch_length
//
// It fails with [ErrNoServerKeys].
func (r *Recipe) Deployment() ([32]byte, error) { return r.on().deployment(r) }

// Epoch is the length of an epoch.
func (k *ServerKeys) Epoch() time.Duration { return time.Duration(k.EpochLength) * time.Second }

func addServerKeys(b *cryptobyte.Builder, k *ServerKeys) {
	b.AddBytes(k.Leader[:])
	b.AddBytes(k.Helper[:])
	b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) {
		if !k.Gateway.IsZero() {
			b.AddBytes(k.Gateway[:])
		}
	})
	b.AddBytes(k.Collector[:])
	b.AddUint32(k.EpochLength)
}

func readServerKeys(d *decoder) *ServerKeys {
	k := new(ServerKeys)
	d.field("server-keys", func() bool { return d.s.CopyBytes(k.Leader[:]) && d.s.CopyBytes(k.Helper[:]) })
	if gateway := d.bytes8("server-keys"); d.err == nil && len(gateway) > 0 {
		if copy(k.Gateway[:], gateway); len(gateway) != signed.KeySize || k.Gateway.IsZero() {
			d.fail("server-keys: the gateway's key is not one")
		}
	}
	d.field("server-keys", func() bool { return d.s.CopyBytes(k.Collector[:]) })
	k.EpochLength = d.u32("server-keys")
	return k
}

// serverKeys checks each key, that no two are one, and that they are those of the
// recipe's servers.
func (v *validator) serverKeys(r *Recipe) {
	k := r.ServerKeys
	if k == nil {
		return
	}
	v.keys(r.signers())
	if r.Relay == nil && !k.Gateway.IsZero() {
		v.add("server_keys.gateway", "makes no sense without a relay")
	}
	if k.Collector == (Hash{}) {
		v.add("server_keys.collector", "is missing: the SHA-256 of the collector's HPKE configuration")
	}
	v.between("server_keys.epoch_length", uint64(k.EpochLength), MinEpochLength, MaxEpochLength)
}

// OnLoopback says whether the servers and the relay, if there is one, are all on this
// machine, as in a laboratory.
func (r *Recipe) OnLoopback() bool {
	list := r.on().servers(r)
	if r.Relay != nil {
		list = append(list, server{url: r.Relay.URL})
	}
	return r.Path != nil && !slices.ContainsFunc(list, func(s server) bool {
		u, err := url.Parse(s.url)
		return err != nil || !loopback(u.Hostname())
	})
}

// An AnchorError: the anchors do not bear out what a recipe says of one of its servers.
type AnchorError struct {
	Server string // as "leader", "gateway" or "first hop"
	Why    string
}

func (e *AnchorError) Error() string { return "recipe: the " + e.Server + "'s key " + e.Why }

// CheckAnchors holds a recipe against keys that came by another way: each of its servers'
// root keys is an anchor, for a domain in which the server's address lies, and no two of
// the servers that a report reaches are one owner's. (The gateway opens no report and may
// be of either's owner.) It fails with [ErrNoServerKeys] and *[AnchorError].
func (r *Recipe) CheckAnchors(a *signed.Anchors) error {
	p := r.on()
	if !p.keyed(r) {
		return ErrNoServerKeys
	}
	found := make(map[string]signed.Anchor)
	for _, s := range r.signers() {
		anchor, ok := a.Find(s.key)
		if !ok {
			return &AnchorError{s.name, s.key.String() + " is not among the anchors"}
		}
		u, err := url.Parse(s.url)
		if err != nil || !anchor.Holds(u.Hostname()) {
			return &AnchorError{s.name, fmt.Sprintf("is that of %s, for %s, and %s is not there", anchor.Owner, anchor.Domain, s.url)}
		}
		found[s.name] = anchor
	}
	list := p.servers(r)
	for i, s := range list {
		for _, other := range list[:i] {
			if anchor := found[other.name]; anchor.SameOwner(found[s.name]) {
				return &AnchorError{s.name, fmt.Sprintf("and the %s's have one owner, %s, who %s", other.name, anchor.Owner, p.danger())}
			}
		}
	}
	return nil
}

// describeKeys says whose word it is that reports are encrypted to the servers, and to
// nobody else.
func (r *Recipe) describeKeys(line func(string, string, ...any)) {
	if !r.on().keyed(r) {
		who := "whoever answers for the servers' addresses"
		if r.Relay != nil {
			who = "whoever hands out the manifest"
		}
		line("Keys", "none are named: %s can put keys of its own in the servers' place, and read every answer. "+
			"All that is said here holds if that is an owner whom you trust with the answers", who)
		return
	}
	for i, s := range r.signers() {
		label := ""
		if i == 0 {
			label = "Keys"
		}
		line(label, "%s: fingerprint %s", s.name, s.key.Fingerprint())
	}
	line("", "All that is said here holds if %s: devices ask their anchors, and refuse any other", r.on().owned())
	if k := r.ServerKeys; k != nil {
		line("", "collector: results are sealed to the key of SHA-256 %x and to no other", k.Collector[:])
	}
}
