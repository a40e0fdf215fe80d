package recipe

import (
	"math/bits"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/signed"
)

// Tokens say that a device contributes once a round, and only if an attester has vouched
// for it: a report shows a credential at the leader and another at the helper, each of
// which can be shown once in a round of the task and tells nothing else of the device
// (package anonymity/arc; docs/proofs/tokens.md).
type Tokens struct {
	// Attester is the base URL of who knows the devices and lets each have one credential of
	// each issuer in an epoch of ServerKeys.EpochLength.
	Attester string `json:"attester"`
	// Key is the attester's root key; it is one of the anchors.
	Key signed.PublicKey `json:"key"`
	// Attestation is how the attester tells one device from another.
	Attestation Attestation `json:"attestation"`
	// MinCohort is how many devices must hold credentials of an epoch before any of them
	// shows one, 1 to [MaxCohort].
	MinCohort uint64 `json:"min_cohort"`
	// Admission says that requests show the gateway a token of the round too, covers like
	// reports, so that what it mixes counts devices.
	Admission bool `json:"admission"`
}

// Bounds and default of Tokens.MinCohort.
const (
	MaxCohort     = 1 << 40
	DefaultCohort = 1000
)

// An Attestation is how an attester tells one device from another.
type Attestation uint8

const (
	// Codes are given out by the attester's operator, each for one device, and used up once.
	Codes Attestation = 1 + iota
	// OIDC: an organisation's identity provider says, by OpenID Connect, who a person is.
	OIDC
	// MTLS: devices have certificates of an authority of the attester's operator.
	MTLS
)

// proves is what a kind of attestation proves of who enrols, and what it does not: that a
// device is genuine is not yet that its owner has one.
var proves = map[Attestation][2]string{
	Codes: {"whoever has a one-time code of its is one", "that no person has two codes is its operator's word"},
	OIDC:  {"whoever logs in at its identity provider is one, on however many devices", "that no person has two accounts is the provider's word"},
	MTLS:  {"whoever holds the key of a certificate of its authority is one", "that no person has two devices or certificates is the authority's word"},
}

func (a Attestation) String() string { return nameOf("attestation", uint16(a)) }

// MarshalText writes the name.
func (a Attestation) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// A Log says that the recipe, and all keys that its devices use, stand in a transparency
// log: a device takes part only if its own policy knows that log and asks witnesses of it.
type Log struct {
	// Origin is the log's name, 1 to [MaxOrigin] bytes of printable ASCII.
	Origin string `json:"origin"`
}

// MaxOrigin bounds Log.Origin, in bytes.
const MaxOrigin = 255

func addTokens(b *cryptobyte.Builder, t *Tokens) {
	addBytes16(b, t.Attester)
	b.AddBytes(t.Key[:])
	b.AddUint8(uint8(t.Attestation))
	b.AddUint64(t.MinCohort)
	admission := uint8(0)
	if t.Admission {
		admission = 1
	}
	b.AddUint8(admission)
}

func readTokens(d *decoder) *Tokens {
	t := &Tokens{Attester: string(d.bytes16("tokens"))}
	d.field("tokens", func() bool { return d.s.CopyBytes(t.Key[:]) })
	t.Attestation = Attestation(d.u8("tokens"))
	if d.err == nil && !isKnown("attestation", uint16(t.Attestation)) {
		d.err = &UnknownError{"attestation", uint16(t.Attestation)}
	}
	t.MinCohort = d.u64("tokens")
	admission := d.u8("tokens")
	if t.Admission = admission == 1; d.err == nil && admission > 1 {
		d.fail("tokens: admission is neither 0 nor 1")
	}
	return t
}

// tokens checks what goes with credentials: their key epochs are those of the manifests
// that name their issuers, and a manifest is for recipes with a relay.
func (v *validator) tokens(r *Recipe) {
	if l := r.Log; l != nil {
		v.text("log.origin", l.Origin, 1, MaxOrigin, false)
		for _, c := range []byte(l.Origin) {
			if c <= ' ' || c >= 0x7f {
				v.add("log.origin", "is not printable ASCII without spaces")
				break
			}
		}
		if r.on().Proofs() && (r.ServerKeys == nil || r.Relay == nil) {
			v.add("log", "needs server_keys and a relay: what stands in a log is the manifest")
		}
	}
	t := r.Tokens
	if t == nil {
		return
	}
	v.url("tokens.attester", t.Attester)
	if !isKnown("attestation", uint16(t.Attestation)) {
		v.add("tokens.attestation", "is %d, which is none", t.Attestation)
	}
	v.between("tokens.min_cohort", t.MinCohort, 1, MaxCohort)
	if !r.Keyed() || r.Relay == nil {
		v.add("tokens", "needs server_keys and a relay: the manifest names the issuers, and who sends directly is known without credentials")
		return
	}
	if hi, seconds := bits.Mul64(r.RoundUnits(), uint64(r.TimePrecision)); hi != 0 || seconds > uint64(r.EpochLength()) {
		v.add("tokens", "needs rounds that are no longer than an epoch of the issuers' keys, %d seconds", r.EpochLength())
	}
}

// EpochLength is that of the epochs of the issuers' keys, in seconds; zero where the recipe
// has none.
func (r *Recipe) EpochLength() uint32 { return r.on().epoch(r) }

// describeTokens says who counts devices, and who could count more than there are.
func (r *Recipe) describeTokens(line func(string, string, ...any)) {
	if l := r.Log; l != nil {
		line("Log", "this recipe, and all keys that devices use, stand in the log %s: a device takes part only if witnesses of its own choice have seen the same log", l.Origin)
	}
	t := r.Tokens
	if t == nil {
		line("Devices", "are not counted: nothing keeps one of them, or a server, from sending many reports")
		return
	}
	forgers := "leader and helper together, or the attester"
	if r.on().Proofs() {
		line("Devices", "each has one report a round, or none: it shows leader and helper a credential each, which tells nothing else of it")
	} else {
		forgers = "both hops together, or the attester"
		line("Devices", "each has one contribution a round, or none: it shows hop 1 a credential for it, and hop 2 one for each message, which cannot be told from "+
			"another's; no hop is trusted not to pad a batch")
	}
	said := proves[t.Attestation]
	line("", "the attester %s vouches for devices (%s): %s, and %s", t.Attester, t.Attestation, said[0], said[1])
	line("", "forging takes %s: %d counts devices that the attester vouches for", forgers, r.MinBatch)
	line("", "no device shows a credential before %s of the epoch", count(t.MinCohort, "device has one", "devices have those"))
	if !r.on().Proofs() {
		line("", "a batch is of %d devices or more if one of the hops is honest, whichever it is, and so is the attester; that enough of them follow the recipe stays the author's word", r.MinBatch)
	} else if ok, why := r.Counted(); ok {
		line("", "the devices that the guarantee counts on are counted by credentials: they are on nobody's word but the attester's")
	} else if len(r.said()) > 0 {
		line("", "the devices that the guarantee counts on are not counted by credentials, and stay the author's word: %s", why)
	}
	if t.Admission {
		line("", "the gateway is shown a token too, by every request: what it mixes counts devices")
	}
}
