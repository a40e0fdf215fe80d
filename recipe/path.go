package recipe

import (
	"fmt"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// A Path is how reports travel from devices to who may know the result. Each has a file of
// its own, with all that there is to say of it: [TwoServer], [Shuffled] and [Direct].
type Path interface {
	fmt.Stringer

	// Proofs says whether devices prove that what they send is an answer.
	Proofs() bool
	// Honest is how many of the servers that share a trust a claim may need to be honest.
	Honest() (least, most uint8)

	path() uint8
	append(b *cryptobyte.Builder)
	// params are those of the JSON form.
	params() any
	// validate checks the path, and the choices that go with it.
	validate(v *validator, r *Recipe)

	// servers are the parties that a report reaches, in its order, with their keys where
	// the recipe names any, and gatewayKey is that of the gateway behind a relay.
	servers(r *Recipe) []server
	gatewayKey(r *Recipe) (key signed.PublicKey, field string)
	// keyed says whether the recipe names their keys.
	keyed(r *Recipe) bool
	// task is the DAP task, and deployment what names the servers together; both fail where
	// there is none.
	task(r *Recipe) (*dap.TaskConfiguration, error)
	// shuffle is what hops and analyzer agree on; it fails where there are none.
	shuffle(r *Recipe) (*onion.Shuffle, error)
	deployment(r *Recipe) ([32]byte, error)

	// shows: devices may show credentials on it. epoch is the length of the epochs of the
	// issuers' keys in seconds, 0 for none.
	shows() bool
	epoch(r *Recipe) uint32

	// leaderSelected: batches are cut by a server, and not of whole rounds.
	leaderSelected() bool
	// joins: several rounds of reports may be released as one batch.
	joins() bool
	// keepers are those who see to it that each round is released alone.
	keepers() string

	// mixes: nobody who sees a report knows whose of the batch it is.
	mixes() bool
	// message is what is proved of what the analyzer sees of one report by a local
	// randomizer, and a bound on the probability that a device draws again.
	message(z LocalRandomizer, q Query) (release.Message, float64, error)
	// assumptions are those about the servers, of which the given number is honest.
	assumptions(r *Recipe, honest int) []string
	// failures are what is left of nothing where the servers do not do as they should: the
	// loss is that of devices that blur nothing, for [Recipe.Failures].
	failures() []Fallback

	// lacks are what the path does not give, for those who know [TwoServer].
	lacks(r *Recipe) []string
	// views are who may see what.
	views(r *Recipe) [][2]string
	// row is the line of the table of paths: who sees what, who is trusted, and the noise
	// in a result.
	row() [3]string
	// owned is whose keys must be of different owners, or one's, and danger what one owner
	// of two of them would do.
	owned() string
	danger() string
}

// paths are those that this version knows, with how each is read from its bytes; in the
// order of their numbers.
var paths = []struct {
	tag  uint8
	read func(d *decoder) Path
	none Path // of nobody, for its row
}{
	{tagTwoServer, readTwoServer, TwoServer{}},
	{tagShuffled, readShuffled, Shuffled{}},
	{tagDirect, readDirect, Direct{}},
}

func readPath(tag uint8, d *decoder) (Path, bool) {
	for _, p := range paths {
		if p.tag == tag {
			return p.read(d), true
		}
	}
	return nil, false
}

// on is the path, that of two servers for a recipe that is none yet.
func (r *Recipe) on() Path {
	if r.Path == nil {
		return TwoServer{}
	}
	return r.Path
}

func (v *validator) path(r *Recipe) {
	if r.Path == nil {
		v.add("path", "is missing")
		return
	}
	r.Path.validate(v, r)
}

// Failures say what is left of a guarantee where the servers of the path do not do as they
// should. Their loss is [NoPrivacy], which holds where devices add nothing of their own.
func (r *Recipe) Failures() []Fallback { return r.on().failures() }

// CountsOnDevices says whether the guarantee needs a number of devices to follow the
// recipe, counted or not.
func (r *Recipe) CountsOnDevices() bool { return len(r.said()) > 0 }

// Keyed says whether the recipe names its servers' root keys.
func (r *Recipe) Keyed() bool { return r.on().keyed(r) }

// Entry is the server that a report reaches first, behind a gateway if there is one: its
// name, as leader, first hop or analyzer, and its address. Both are empty without a path.
func (r *Recipe) Entry() (name, url string) {
	if r.Path == nil {
		return "", ""
	}
	s := r.Path.servers(r)[0]
	return s.name, s.url
}

// Parties are the servers that a report reaches, in its order, each with its root key, which
// is zero where the recipe names none. The last of a path without proofs is the analyzer.
func (r *Recipe) Parties() []Party {
	list := make([]Party, 0, 3)
	for _, s := range r.on().servers(r) {
		list = append(list, Party{s.url, s.key})
	}
	return list
}

// GatewayKey is the root key of the gateway behind the recipe's relay; zero where it names
// none.
func (r *Recipe) GatewayKey() signed.PublicKey {
	k, _ := r.on().gatewayKey(r)
	return k
}

// server is one of those that sign.
type server struct {
	name string
	url  string
	key  signed.PublicKey
	// fields of the recipe that have the address and the key.
	urlField, keyField string
}

// signers are those that sign: the servers, with the gateway where there is a relay and the
// attester where there are credentials.
func (r *Recipe) signers() []server {
	p := r.on()
	list := p.servers(r)
	if r.Relay != nil {
		key, field := p.gatewayKey(r)
		list = append(list, server{"gateway", r.Relay.Gateway, key, "relay.gateway", field})
	}
	if r.Tokens != nil {
		list = append(list, server{"attester", r.Tokens.Attester, r.Tokens.Key, "tokens.attester", "tokens.key"})
	}
	return list
}

// keys checks the keys of servers, and that no two are one.
func (v *validator) keys(list []server) {
	seen := make(map[signed.PublicKey]string)
	for _, s := range list {
		if err := s.key.Validate(); err != nil {
			v.add(s.keyField, "cannot be used: %v", err)
		} else if other := seen[s.key]; other != "" {
			v.add(s.keyField, "is the %s's: one owner would hold both", other)
		}
		seen[s.key] = s.name
	}
}
