package recipe

import (
	"crypto/sha256"
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
func (r *Recipe) Deployment() ([32]byte, error) {
	path, ok := r.Path.(TwoServer)
	if r.ServerKeys == nil || !ok {
		return [32]byte{}, ErrNoServerKeys
	}
	relay := ""
	if r.Relay != nil {
		relay = r.Relay.URL
	}
	b := cryptobyte.NewBuilder([]byte(deploymentDomain))
	for _, s := range []string{path.Leader, path.Helper, relay} {
		addBytes16(b, s)
	}
	k := r.ServerKeys
	for _, key := range []signed.PublicKey{k.Leader, k.Helper, k.Gateway} {
		b.AddBytes(key[:])
	}
	b.AddUint32(k.EpochLength)
	out, err := b.Bytes()
	if err != nil {
		return [32]byte{}, fmt.Errorf("recipe: deployment: %w", err)
	}
	return sha256.Sum256(out), nil
}

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
	seen := make(map[signed.PublicKey]string)
	for _, s := range k.servers(r) {
		if err := s.key.Validate(); err != nil {
			v.add(s.field(), "cannot be used: %v", err)
		} else if other := seen[s.key]; other != "" {
			v.add(s.field(), "is the %s's: one owner would hold both", other)
		}
		seen[s.key] = s.name
	}
	if r.Relay == nil && !k.Gateway.IsZero() {
		v.add("server_keys.gateway", "makes no sense without a relay")
	}
	if k.Collector == (Hash{}) {
		v.add("server_keys.collector", "is missing: the SHA-256 of the collector's HPKE configuration")
	}
	v.between("server_keys.epoch_length", uint64(k.EpochLength), MinEpochLength, MaxEpochLength)
}

// OnLoopback says whether leader, helper and the relay, if there is one, are all on this
// machine, as in a laboratory.
func (r *Recipe) OnLoopback() bool {
	path, ok := r.Path.(TwoServer)
	list := []string{path.Leader, path.Helper}
	if r.Relay != nil {
		list = append(list, r.Relay.URL)
	}
	return ok && !slices.ContainsFunc(list, func(s string) bool {
		u, err := url.Parse(s)
		return err != nil || !loopback(u.Hostname())
	})
}

// server is one of those that sign.
type server struct {
	name string
	url  string
	key  signed.PublicKey
}

// field is where a recipe has the key.
func (s *server) field() string {
	if s.name == "attester" {
		return "tokens.key"
	}
	return "server_keys." + s.name
}

// servers are those that sign, with the gateway where there is a relay and the attester
// where there are credentials.
func (k *ServerKeys) servers(r *Recipe) []server {
	path, _ := r.Path.(TwoServer)
	list := []server{{"leader", path.Leader, k.Leader}, {"helper", path.Helper, k.Helper}}
	if r.Relay != nil {
		list = append(list, server{"gateway", r.Relay.Gateway, k.Gateway})
	}
	if r.Tokens != nil {
		list = append(list, server{"attester", r.Tokens.Attester, r.Tokens.Key})
	}
	return list
}

// An AnchorError: the anchors do not bear out what a recipe says of one of its servers.
type AnchorError struct {
	Server string // "leader", "helper", "gateway" or "attester"
	Why    string
}

func (e *AnchorError) Error() string { return "recipe: the " + e.Server + "'s key " + e.Why }

// CheckAnchors holds a recipe against keys that came by another way: each of its servers'
// root keys is an anchor, for a domain in which the server's address lies, and leader and
// helper are not one owner's. (The gateway opens no share and may be of either's owner.)
// It fails with [ErrNoServerKeys] and *[AnchorError].
func (r *Recipe) CheckAnchors(a *signed.Anchors) error {
	if r.ServerKeys == nil {
		return ErrNoServerKeys
	}
	found := make(map[string]signed.Anchor)
	for _, s := range r.ServerKeys.servers(r) {
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
	if leader := found["leader"]; leader.SameOwner(found["helper"]) {
		return &AnchorError{"helper", fmt.Sprintf("and the leader's have one owner, %s, who would see whole reports", leader.Owner)}
	}
	return nil
}

// describeKeys says whose word it is that reports are encrypted to leader and helper, and
// to nobody else.
func (r *Recipe) describeKeys(line func(string, string, ...any)) {
	k := r.ServerKeys
	if k == nil {
		who := "whoever answers for the servers' addresses"
		if r.Relay != nil {
			who = "whoever hands out the manifest"
		}
		line("Keys", "none are named: %s can put keys of its own in the servers' place, and read every answer. "+
			"All that is said here holds if that is an owner whom you trust with the answers", who)
		return
	}
	for i, s := range k.servers(r) {
		label := ""
		if i == 0 {
			label = "Keys"
		}
		line(label, "%s: fingerprint %s", s.name, s.key.Fingerprint())
	}
	line("", "All that is said here holds if leader's and helper's are two owners' keys: devices ask their anchors, and refuse any other")
	line("", "collector: results are sealed to the key of SHA-256 %x and to no other", k.Collector[:])
}
