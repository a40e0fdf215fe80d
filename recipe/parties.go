package recipe

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// This file holds the common ground of paths without proofs.

// errNoTask: DAP is for two servers.
var errNoTask = &InvalidError{"path", "is not that of two servers: it has no DAP task"}

// errNoShuffle: on that path devices send reports.
var errNoShuffle = &InvalidError{"path", "is that of two servers: nothing of it is shuffled or analyzed"}

// Shuffle is what devices, hops, analyzer and collector of a recipe without proofs agree on:
// sizes, rounds and root keys. The rounds are those of [Recipe.Round], or as many for each as
// it is collected in ([Recipe.PartRounds]). It fails with
// *[InvalidError] on a path with proofs, and for contributions larger than onion.MaxEnvelope.
func (r *Recipe) Shuffle() (*onion.Shuffle, error) { return r.on().shuffle(r) }

func shuffleOf(r *Recipe, first, second, analyzer signed.PublicKey) (*onion.Shuffle, error) {
	m, err := r.Messenger()
	if err != nil {
		return nil, err
	}
	id, err := r.ID()
	if err != nil {
		return nil, err
	}
	s := &onion.Shuffle{
		Recipe: id, Messages: m.MessagesPerContribution(), Size: m.MessageSize(), MinBatch: r.MinBatch, Grace: r.Grace(),
		Length: time.Duration(r.RoundUnits()*uint64(r.TimePrecision)/r.Parts()) * time.Second, First: first, Second: second, Analyzer: analyzer, Logged: r.Log != nil,
	}
	if parts := int(r.Parts()); parts > 1 {
		// At the begin of a round of the recipe those of the next; and two rounds more, for
		// lists that are as old, as manifests pin them.
		s.Ahead = 4*parts - 1
	}
	if r.Tokens != nil && r.on().shows() {
		s.EnvelopeToken, s.MessageToken = arc.PresentationSize, messageToken(s.Messages)
	}
	if w, ok := r.Window.(Between); ok && w.End > 0 {
		_, end := r.PartRounds(r.Round(w.End - 1))
		s.Last = end - 1
	}
	if err := s.Validate(); err != nil {
		return nil, &InvalidError{"path", "carries no such contributions: " + err.Error()}
	}
	if s.MinBatch*uint64(s.Messages) > onion.MaxBatch {
		return nil, &InvalidError{"min_batch", fmt.Sprintf("is %d, of %d messages each: a round of a shuffle has %d at most", s.MinBatch, s.Messages, onion.MaxBatch)}
	}
	return s, nil
}

// messageToken is the length of what each of the messages of a contribution shows to hop 2:
// a presentation under the limit that is their number, or where it is one without a limit.
func messageToken(messages int) int {
	if messages < arc.MinLimit {
		return arc.PresentationSize
	}
	return arc.LimitedSize(messages)
}

func (p Party) server(name, field string) server {
	return server{name, p.URL, p.Key, "path." + field + ".url", "path." + field + ".key"}
}

func addParty(b *cryptobyte.Builder, p Party) {
	addBytes16(b, p.URL)
	b.AddBytes(p.Key[:])
}

func readParty(d *decoder, name string) (p Party) {
	p.URL = string(d.bytes16(name))
	d.field(name, func() bool { return d.s.CopyBytes(p.Key[:]) })
	return p
}

// addKey writes a key that may be missing.
func addKey(b *cryptobyte.Builder, k signed.PublicKey) {
	b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) {
		if !k.IsZero() {
			b.AddBytes(k[:])
		}
	})
}

func readKey(d *decoder, name string) (k signed.PublicKey) {
	if b := d.bytes8(name); d.err == nil && len(b) > 0 {
		if copy(k[:], b); len(b) != signed.KeySize || k.IsZero() {
			d.fail(name + " is not a key")
		}
	}
	return k
}

// mixedDomain opens the hash that names a deployment of a path without proofs.
const mixedDomain = "starling shuffle deployment v1"

// mixedDeployment names what the parties of a path without proofs, gateway and relay are
// together: the SHA-256 of
//
//	"starling shuffle deployment v1"; {opaque url<0..2^16-1>, key[32]} parties[..];
//	opaque gateway[32], relay_url<0..2^16-1>; (zeros and empty without a relay) uint32 epoch_length
func mixedDeployment(r *Recipe, epoch uint32) ([32]byte, error) {
	b := cryptobyte.NewBuilder([]byte(mixedDomain))
	for _, p := range r.Parties() {
		addParty(b, p)
	}
	gateway, relay := r.GatewayKey(), ""
	if r.Relay != nil {
		relay = r.Relay.URL
	}
	b.AddBytes(gateway[:])
	addBytes16(b, relay)
	b.AddUint32(epoch)
	out, err := b.Bytes()
	if err != nil {
		return [32]byte{}, fmt.Errorf("recipe: deployment: %w", err)
	}
	return sha256.Sum256(out), nil
}

// some is a key that is there, nil for none.
func some(k signed.PublicKey) *signed.PublicKey {
	if k.IsZero() {
		return nil
	}
	return &k
}

// parties checks the addresses and keys of a path that names its parties' keys.
func (v *validator) parties(r *Recipe) {
	list := r.Path.servers(r)
	for _, s := range list {
		v.url(s.urlField, s.url)
	}
	key, field := r.Path.gatewayKey(r)
	if r.Relay == nil && !key.IsZero() {
		v.add(field, "makes no sense without a relay")
	}
	if r.Relay != nil {
		list = append(list, server{name: "gateway", key: key, keyField: field})
	}
	if r.Tokens != nil {
		list = append(list, server{name: "attester", key: r.Tokens.Key, keyField: "tokens.key"})
	}
	v.keys(list)
}

// withoutProofs refuses what two servers alone do, on a path that has none.
func (v *validator) withoutProofs(r *Recipe) {
	const only = "is for two servers, and the path has none: "
	refuse := func(field string, has bool, why string) {
		if has {
			v.add(field, "%s", only+why)
		}
	}
	refuse("noise", r.Noise != nil && r.Noisy(), "nobody adds noise but the devices")
	refuse("server_keys", r.ServerKeys != nil, "the parties' keys stand in it")
	if r.Tokens != nil && !r.Path.shows() {
		v.add("tokens", "is for two servers, or two hops in mode %v: nobody here looks at credentials", TokensMode)
	}
	if r.Tokens != nil && r.Tokens.Admission {
		v.add("tokens.admission", "%s", only+"a gateway asks for tokens of reports")
	}
	refuse("targeting", r.Targeting != nil && r.Log != nil, "leader and helper have its census logged")
	refuse("participation", r.Sampled(), "they hold back batches of too few answers among dummies")
	refuse("hpke_suite", r.KEM != X25519, "messages are sealed to X25519 keys")
	refuse("dap", r.DAP != dap.Draft18, "DAP is not spoken")
	if r.Randomizer == nil || r.Query == nil {
		return
	}
	switch z, ok := r.Randomizer.(messenger); {
	case !ok:
		v.add("randomizer", "sends nothing that an analyzer could read without the answer of one device: want krr, rappor or pgr, for "+
			"sums by group qa or randomized-group, or behind a shuffler cloak")
	case len(v.errs) == 0:
		if _, err := z.messenger(r); err != nil {
			v.add("randomizer", "has no messages: %v", err)
			return
		}
		odd := new(InvalidError)
		if _, err := r.Shuffle(); errors.As(err, &odd) {
			v.add(odd.Field, "%s", odd.Problem)
		}
	}
}
