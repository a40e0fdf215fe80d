package recipe

import (
	"fmt"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// Shuffled sends the messages of each contribution through two hops, each of which mixes
// those of a whole round, to an analyzer that reads them all ([Recipe.Messenger]). As long
// as one of the hops tells nobody in which order, nobody knows which messages are whose.
type Shuffled struct {
	// First, Second and Analyzer are parties of three owners, in the order in which
	// messages reach them.
	First, Second, Analyzer Party
	// Gateway is the root key of the gateway where the recipe names a relay, and zero where
	// it names none.
	Gateway signed.PublicKey
	// Mode is how it is known that the contributions are of devices.
	Mode ShuffleMode
	// EpochLength is that of the epochs of the issuers' keys, in seconds, [MinEpochLength] to
	// [MaxEpochLength], in [TokensMode], and zero in the other.
	EpochLength uint32
}

// A Party is where one of those is reached that messages pass.
type Party struct {
	// URL is as those of [TwoServer].
	URL string `json:"url"`
	// Key is the root key that vouches for the keys that messages are encrypted to.
	Key signed.PublicKey `json:"key"`
}

// A ShuffleMode is how it is known that the contributions of a batch are of devices.
type ShuffleMode uint8

const (
	// CountedMode: the hops sign how many contributions there were, and the first is trusted
	// not to put its own in the place of others.
	CountedMode ShuffleMode = 1
	// TokensMode: a contribution shows a credential to hop 1, and each of its messages one to
	// hop 2 (package anonymity/arc; docs/proofs/tokens.md, theorems 8 to 11), so that
	// neither is trusted not to pad.
	TokensMode ShuffleMode = 2
)

func (m ShuffleMode) String() string { return nameOf("shuffle-mode", uint16(m)) }

func (p Shuffled) String() string {
	return fmt.Sprintf("shuffled by two hops, %s and %s, for the analyzer %s; contributions are %s", p.First.URL, p.Second.URL, p.Analyzer.URL, p.Mode)
}

// Proofs is false.
func (Shuffled) Proofs() bool { return false }

// Honest is one of the hops.
func (Shuffled) Honest() (least, most uint8) { return 1, 1 }

func (Shuffled) path() uint8 { return tagShuffled }

func (p Shuffled) append(b *cryptobyte.Builder) {
	addParty(b, p.First)
	addParty(b, p.Second)
	addParty(b, p.Analyzer)
	addKey(b, p.Gateway)
	b.AddUint8(uint8(p.Mode))
	if p.Mode == TokensMode {
		b.AddUint32(p.EpochLength)
	}
}

func readShuffled(d *decoder) Path {
	p := Shuffled{First: readParty(d, "first"), Second: readParty(d, "second"), Analyzer: readParty(d, "analyzer"), Gateway: readKey(d, "gateway")}
	p.Mode = ShuffleMode(d.known("shuffle-mode"))
	if p.Mode == TokensMode {
		p.EpochLength = d.u32("epoch-length")
	}
	return p
}

func (p Shuffled) params() any {
	return struct {
		First    Party             `json:"first"`
		Second   Party             `json:"second"`
		Analyzer Party             `json:"analyzer"`
		Gateway  *signed.PublicKey `json:"gateway,omitempty"`
		Mode     string            `json:"mode"`
		Epoch    uint32            `json:"epoch_length,omitempty"`
	}{p.First, p.Second, p.Analyzer, some(p.Gateway), p.Mode.String(), p.EpochLength}
}

func (p Shuffled) validate(v *validator, r *Recipe) {
	v.parties(r)
	switch p.Mode {
	case CountedMode:
		if p.EpochLength != 0 {
			v.add("path.epoch_length", "is for mode %v", TokensMode)
		}
	case TokensMode:
		v.between("path.epoch_length", uint64(p.EpochLength), MinEpochLength, MaxEpochLength)
		if r.Tokens == nil || r.Log == nil {
			v.add("path.mode", "is %v, which needs tokens, and a log: only that shows that all devices have the same keys of the issuers", TokensMode)
		}
		if r.Parts() > 1 {
			v.add("randomizer.parts", "goes with mode %v: credentials count a device once a batch, and of a round's batches each would count it", CountedMode)
		}
	default:
		v.add("path.mode", "is %d, want %d or %d", p.Mode, CountedMode, TokensMode)
	}
	v.withoutProofs(r)
}

func (p Shuffled) shows() bool          { return p.Mode == TokensMode }
func (p Shuffled) epoch(*Recipe) uint32 { return p.EpochLength }

func (p Shuffled) servers(*Recipe) []server {
	return []server{p.First.server("first hop", "first"), p.Second.server("second hop", "second"), p.Analyzer.server("analyzer", "analyzer")}
}

func (p Shuffled) gatewayKey(*Recipe) (signed.PublicKey, string) { return p.Gateway, "path.gateway" }
func (Shuffled) keyed(*Recipe) bool                              { return true }
func (Shuffled) task(*Recipe) (*dap.TaskConfiguration, error)    { return nil, errNoTask }
func (p Shuffled) deployment(r *Recipe) ([32]byte, error)        { return mixedDeployment(r, p.EpochLength) }

func (p Shuffled) shuffle(r *Recipe) (*onion.Shuffle, error) {
	return shuffleOf(r, p.First.Key, p.Second.Key, p.Analyzer.Key)
}

func (Shuffled) leaderSelected() bool { return false }
func (Shuffled) joins() bool          { return false }
func (Shuffled) keepers() string      { return "both hops see to" }
func (Shuffled) mixes() bool          { return true }

// message is whole, as the analyzer sees it.
func (Shuffled) message(z LocalRandomizer, q Query) (release.Message, float64, error) {
	return z.whole(q)
}

func (p Shuffled) assumptions(r *Recipe, _ int) []string {
	const mixes = "one of the two hops, whichever it is, mixes the messages of a batch and tells nobody in which order"
	if p.shows() {
		list := []string{mixes + ", and its issuer gives nobody credentials beside those that the attester orders; no hop is trusted not to put messages of its own " +
			"in the place of devices', for each counts credentials (tokens)"}
		if z, ok := r.Randomizer.(Cloak); ok && r.Query.Aggregates() > int(z.Block) { // docs/proofs/tokens.md, theorem 11
			list = append(list, "the first hop keeps back no single messages of contributions: whole ones it may, and what is left hides devices all the same")
		}
		return list
	}
	return []string{mixes, "the first hop puts no contributions of its own in the place of devices', which nobody else could see (counted)"}
}

func (p Shuffled) failures() []Fallback {
	list := []Fallback{{
		Kind: HopsCollude,
		When: "the two hops put together in which order they mixed, and the analyzer what it reads",
		Loss: NoPrivacy,
		Note: "they know which messages are of one device, and these give its answer",
	}}
	if p.shows() {
		return list
	}
	return append(list, Fallback{
		Kind: FirstHopPads,
		When: "the first hop puts contributions of its own in the place of others', and the analyzer knows them",
		Loss: NoPrivacy,
		Note: "a device is alone in the batch, and its messages give its answer",
	})
}

func (p Shuffled) lacks(r *Recipe) []string {
	batch := fmt.Sprintf("no two servers keep the least batch: that nothing is released about fewer than %d is up to the hops, which sign the number, "+
		"and to the first of them alone that these are devices", r.MinBatch)
	if p.shows() {
		batch = fmt.Sprintf("no two servers keep the least batch: that nothing is released about fewer than %d is up to the hops, of which one that is honest hands "+
			"on no batch of fewer devices with credentials", r.MinBatch)
	}
	return []string{
		batch,
		"the analyzer reads every message, and the result as soon as there is one; with two servers nobody reads any part of an answer that is not random",
		"devices prove nothing: one of them, or one in many guises, may send what is no answer",
	}
}

func (p Shuffled) views(r *Recipe) (list [][2]string) {
	first := "the network address and time of each contribution, "
	if r.Relay != nil {
		list, first = edgeViews(), ""
	}
	if p.shows() {
		defer func() { list = append(list, attesterView) }()
	}
	return append(list,
		[2]string{"first hop", first + "which closed messages are of one contribution, and how many there are; nothing inside"},
		[2]string{"second hop", "closed messages, each by itself and in no order; not whose they are, nor which belong together"},
		[2]string{"analyzer", "every message, each by itself and in no order; not whose it is, nor which belong together"},
		[2]string{"collector", "the result, and the number of contributions"})
}

func (Shuffled) row() [3]string {
	return [3]string{
		"the hops closed messages, of which the second cannot say which belong together; the analyzer all messages, mixed",
		"one of the two hops, not to tell its order; the first, not to pad a batch (counted), or none (tokens); and a number of honest devices. Devices prove nothing",
		"the devices' own: of sums little more than a server would add (cloak); of counts an error that grows with the root of their number",
	}
}

func (Shuffled) owned() string  { return "the hops' and the analyzer's are three owners' keys" }
func (Shuffled) danger() string { return "would see what the hops are to keep apart" }
