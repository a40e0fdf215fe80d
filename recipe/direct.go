package recipe

import (
	"fmt"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// Direct sends each contribution to an analyzer, which reads it by itself
// ([Recipe.Messenger]). Nothing but the device's own noise protects an answer, and nobody
// has to be trusted with it.
type Direct struct {
	Analyzer Party
	// Gateway is as that of [Shuffled].
	Gateway signed.PublicKey
}

func (p Direct) String() string { return fmt.Sprintf("to the analyzer %s alone", p.Analyzer.URL) }

// Proofs is false.
func (Direct) Proofs() bool { return false }

// Honest is nobody.
func (Direct) Honest() (least, most uint8) { return 0, 0 }

func (Direct) path() uint8 { return tagDirect }

func (p Direct) append(b *cryptobyte.Builder) {
	addParty(b, p.Analyzer)
	addKey(b, p.Gateway)
}

func readDirect(d *decoder) Path {
	return Direct{Analyzer: readParty(d, "analyzer"), Gateway: readKey(d, "gateway")}
}

func (p Direct) params() any {
	return struct {
		Analyzer Party             `json:"analyzer"`
		Gateway  *signed.PublicKey `json:"gateway,omitempty"`
	}{p.Analyzer, some(p.Gateway)}
}

func (p Direct) validate(v *validator, r *Recipe) {
	v.parties(r)
	v.withoutProofs(r)
}

func (p Direct) servers(*Recipe) []server {
	return []server{p.Analyzer.server("analyzer", "analyzer")}
}

func (p Direct) gatewayKey(*Recipe) (signed.PublicKey, string) { return p.Gateway, "path.gateway" }
func (Direct) keyed(*Recipe) bool                              { return true }
func (Direct) task(*Recipe) (*dap.TaskConfiguration, error)    { return nil, errNoTask }
func (Direct) shows() bool                                     { return false }
func (Direct) epoch(*Recipe) uint32                            { return 0 }
func (Direct) deployment(r *Recipe) ([32]byte, error)          { return mixedDeployment(r, 0) }

func (p Direct) shuffle(r *Recipe) (*onion.Shuffle, error) {
	return shuffleOf(r, signed.PublicKey{}, signed.PublicKey{}, p.Analyzer.Key)
}

func (Direct) leaderSelected() bool { return false }
func (Direct) joins() bool          { return false }
func (Direct) keepers() string      { return "the analyzer may see to, and nothing hangs on it" }
func (Direct) mixes() bool          { return false }

// message is whole, as the analyzer sees it.
func (Direct) message(z LocalRandomizer, q Query) (release.Message, float64, error) {
	return z.whole(q)
}

func (Direct) assumptions(*Recipe, int) []string { return nil }
func (Direct) failures() []Fallback              { return nil }

func (Direct) lacks(r *Recipe) []string {
	who := "each device's report by itself, with its network address"
	if r.Relay != nil {
		who = "each report by itself, if not from whom"
	}
	return []string{
		"nothing is mixed or added up on the way: the analyzer reads " + who + ", and only the noise of the device itself protects the answer",
		"no least batch is kept by anybody: the analyzer may look at any number of reports",
		"devices prove nothing: one of them, or one in many guises, may send what is no answer",
	}
}

func (Direct) views(r *Recipe) (list [][2]string) {
	first := "the network address and time of each report, and "
	if r.Relay != nil {
		list, first = edgeViews(), ""
	}
	return append(list,
		[2]string{"analyzer", first + "each report by itself, blurred by the device"},
		[2]string{"collector", "the result, and the number of reports"})
}

func (Direct) row() [3]string {
	return [3]string{
		"the analyzer each report by itself, as the device blurred it",
		"nobody, for privacy. Devices prove nothing",
		"the devices' own, enough for each by itself: the largest error, which grows with the root of their number",
	}
}

func (Direct) owned() string  { return "the analyzer's key is its owner's" }
func (Direct) danger() string { return "" }
