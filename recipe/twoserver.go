package recipe

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// TwoServer is DAP: each report is split in two shares, and a leader and a helper that do
// not collude see one each.
type TwoServer struct {
	// Leader and Helper are base URLs, ASCII, https (http only to a loopback address),
	// kept byte for byte.
	Leader, Helper string
	// BatchMode is dap.TimeInterval (the collector names a time interval) or
	// dap.LeaderSelected (the leader cuts batches of MinBatch or more reports as they
	// come).
	BatchMode dap.BatchMode
}

func (p TwoServer) String() string {
	mode := "the collector names the time interval of each batch"
	if p.leaderSelected() {
		mode = "the leader cuts batches as reports arrive"
	}
	return fmt.Sprintf("two servers, leader %s and helper %s; %s", p.Leader, p.Helper, mode)
}

// Proofs is true: the servers verify their shares.
func (TwoServer) Proofs() bool { return true }

// Honest is one of the servers, or both.
func (TwoServer) Honest() (least, most uint8) { return 1, 2 }

func (TwoServer) path() uint8 { return tagTwoServer }

func (p TwoServer) append(b *cryptobyte.Builder) {
	addBytes16(b, p.Leader)
	addBytes16(b, p.Helper)
	b.AddUint8(uint8(p.BatchMode))
}

func readTwoServer(d *decoder) Path {
	p := TwoServer{Leader: string(d.bytes16("leader")), Helper: string(d.bytes16("helper"))}
	p.BatchMode = dap.BatchMode(d.known("batch-mode"))
	return p
}

func (p TwoServer) params() any {
	return map[string]string{"leader": p.Leader, "helper": p.Helper, "batch_mode": nameOf("batch-mode", uint16(p.BatchMode))}
}

func (p TwoServer) validate(v *validator, _ *Recipe) {
	v.url("path.leader", p.Leader)
	v.url("path.helper", p.Helper)
	if p.BatchMode != dap.TimeInterval && !p.leaderSelected() {
		v.add("path.batch_mode", "is %d, want %d or %d", p.BatchMode, dap.TimeInterval, dap.LeaderSelected)
	}
}

func (p TwoServer) servers(r *Recipe) []server {
	k := r.ServerKeys
	if k == nil {
		k = new(ServerKeys)
	}
	return []server{
		{"leader", p.Leader, k.Leader, "path.leader", "server_keys.leader"},
		{"helper", p.Helper, k.Helper, "path.helper", "server_keys.helper"},
	}
}

func (TwoServer) gatewayKey(r *Recipe) (key signed.PublicKey, field string) {
	if r.ServerKeys != nil {
		key = r.ServerKeys.Gateway
	}
	return key, "server_keys.gateway"
}

func (TwoServer) keyed(r *Recipe) bool { return r.ServerKeys != nil }

func (p TwoServer) task(r *Recipe) (*dap.TaskConfiguration, error) {
	id, err := r.ID()
	if err != nil {
		return nil, err
	}
	function, err := r.VDAFConfig()
	if err != nil {
		return nil, err
	}
	config, err := function.Append(nil)
	if err != nil {
		return nil, fmt.Errorf("recipe: task: %w", err)
	}
	t := dap.TaskConfiguration{
		Version:       r.DAP,
		TaskInfo:      id[:],
		Leader:        []byte(p.Leader),
		Helper:        []byte(p.Helper),
		TimePrecision: r.TimePrecision,
		MinBatchSize:  r.Threshold(),
		BatchMode:     p.BatchMode,
		VDAFType:      function.Type(),
		VDAFConfig:    config,
	}
	if w, ok := r.Window.(Between); ok {
		length, ok := w.End.Sub(w.Start)
		if !ok {
			return nil, errors.New("recipe: task: the window ends before it starts")
		}
		t.Extensions, err = t.Extensions.WithTaskInterval(dap.Interval{Start: w.Start, Duration: length})
		if err != nil {
			return nil, fmt.Errorf("recipe: task: %w", err)
		}
	}
	task, err := dap.NewTaskConfiguration(t)
	if err != nil {
		return nil, fmt.Errorf("recipe: task: %w", err)
	}
	return task, nil
}

func (TwoServer) shuffle(*Recipe) (*onion.Shuffle, error) { return nil, errNoShuffle }

func (p TwoServer) deployment(r *Recipe) ([32]byte, error) {
	if r.ServerKeys == nil {
		return [32]byte{}, ErrNoServerKeys
	}
	relay := ""
	if r.Relay != nil {
		relay = r.Relay.URL
	}
	b := cryptobyte.NewBuilder([]byte(deploymentDomain))
	for _, s := range []string{p.Leader, p.Helper, relay} {
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

func (TwoServer) shows() bool { return true }
func (TwoServer) epoch(r *Recipe) uint32 {
	if r.ServerKeys == nil {
		return 0
	}
	return r.ServerKeys.EpochLength
}

func (p TwoServer) leaderSelected() bool   { return p.BatchMode == dap.LeaderSelected }
func (TwoServer) joins() bool              { return true }
func (TwoServer) keepers() string          { return "leader and helper each see to" }
func (TwoServer) mixes() bool              { return true }
func (TwoServer) lacks(r *Recipe) []string { return nil }
func (TwoServer) owned() string            { return "leader's and helper's are two owners' keys" }
func (TwoServer) danger() string           { return "would see whole reports" }

// message is of a place of the sum, which is all that anybody sees.
func (TwoServer) message(z LocalRandomizer, q Query) (release.Message, float64, error) {
	return z.Local(q)
}

// apart is the assumption that no noise replaces.
const apart = "the leader and the helper do not put their shares together"

func (TwoServer) assumptions(r *Recipe, honest int) []string {
	switch {
	case r.Exact() || r.Randomized():
		return []string{apart}
	case honest == 1:
		return []string{"one of the leader and the helper, whichever it is, adds its noise and keeps its share and its noise to itself"}
	}
	return []string{"the leader and the helper both add their noise and keep their shares and their noise to themselves"}
}

func (TwoServer) failures() []Fallback {
	return []Fallback{{
		Kind: ServersCollude,
		When: "the leader and the helper put their shares together",
		Loss: NoPrivacy,
		Note: "they can read every answer",
	}}
}

// twoServerViews are those without a relay.
var twoServerViews = [][2]string{
	{"leader", "the network address and time of each upload, one share of each answer (random by itself), and the number of reports"},
	{"helper", "the other share of each answer (random by itself), and the number of reports; not who sent them"},
	{"collector", "the released result and the number of reports"},
}

// views are twoServerViews, behind a relay if there is one.
func (TwoServer) views(r *Recipe) [][2]string {
	if r.Relay == nil {
		return twoServerViews
	}
	list := append(edgeViews(),
		[2]string{"leader", "one share of each answer (random by itself), and the number of reports; not who sent them"},
		twoServerViews[1], twoServerViews[2])
	if r.Tokens != nil {
		list = append(list, attesterView)
	}
	return list
}

// attesterView is that of who vouches for devices.
var attesterView = [2]string{"attester", "which devices take credentials, and when, long before any round; not what they answer, nor whether"}

// edgeViews are those of a relay and its gateway.
func edgeViews() [][2]string {
	return [][2]string{
		{"relay", "the network address and time of each request, and its size, which is the same for many recipes; nothing inside"},
		{"gateway", "which requests hold a report, not from whom; the report stays closed"},
	}
}

func (TwoServer) row() [3]string {
	return [3]string{
		"leader and helper one random share of each answer; the collector the result of a batch of the least size or more",
		"one of the two servers, for privacy and for the least batch; both, for the result. Devices prove that answers are answers",
		"what the servers add, once or twice: an error that does not grow with the number of devices; or none, or the devices' own",
	}
}
