package deploy

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/sealed"
)

// Names of the files of a deployment whose recipe names a relay.
const (
	RelayFile    = "relay.toml"
	GatewayFile  = "gateway.toml"
	ManifestFile = "manifest.starling"
)

// A Front is four listeners on loopback for a relay and a gateway, as [Addresses] are for
// the servers.
type Front struct {
	Relay, RelayLocal, Gateway, GatewayLocal net.Listener
}

// LoopbackFront opens four ports that the system picks.
func LoopbackFront() (*Front, error) {
	f := &Front{}
	for _, l := range []*net.Listener{&f.Relay, &f.RelayLocal, &f.Gateway, &f.GatewayLocal} {
		var err error
		if *l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			f.Close()
			return nil, fmt.Errorf("deploy: open a port on loopback: %w", err)
		}
	}
	return f, nil
}

// Close closes what is open.
func (f *Front) Close() {
	for _, l := range []net.Listener{f.Relay, f.RelayLocal, f.Gateway, f.GatewayLocal} {
		if l != nil {
			l.Close()
		}
	}
}

// RelayURL is where devices send to.
func (f *Front) RelayURL() string { return "http://" + f.Relay.Addr().String() + "/" }

// GatewayURL is where the relay sends to.
func (f *Front) GatewayURL() string { return "http://" + f.Gateway.Addr().String() + "/" }

// manifestLife is how long devices may use the manifest of a new deployment.
const manifestLife = ohttp.DefaultEpoch

// labEvery is how long a lab's devices wait between two tries at most: a lab is in a
// hurry.
const labEvery = 10 * time.Second

// pace is how often devices try, and how long they wait in between, so that the last of
// it is over in the time in which their reports count.
func pace(r *recipe.Recipe) (tries uint8, every time.Duration) {
	most := r.MaxSending()
	every = min(labEvery, max(time.Second, (most/ohttp.DefaultTries).Truncate(time.Second)))
	return uint8(min(ohttp.DefaultTries, max(1, most/every))), every
}

// CreateFront adds relay and gateway to a deployment that [Create] has written: two
// configurations, the gateway's key, the token between the two and the manifest, valid
// for a week from now. Window is the gateway's.
func CreateFront(dir string, r *recipe.Recipe, f *Front, now time.Time, window time.Duration) error {
	path, ok := r.Path.(recipe.TwoServer)
	if !ok {
		return errors.New("deploy: the recipe does not go through a leader and a helper")
	}
	now = now.UTC().Truncate(time.Second)
	pair, err := sealed.Generate(uint8(ohttp.EpochAt(now, ohttp.DefaultEpoch)), sealed.SuiteX25519)
	if err != nil {
		return fmt.Errorf("deploy: make a key: %w", err)
	}
	key, err := pair.Marshal()
	if err != nil {
		return fmt.Errorf("deploy: %w", err)
	}
	gateway := []ohttp.KeyConfig{ohttp.NewKeyConfig(pair)}
	tries, every := pace(r)
	var m *ohttp.Manifest
	if r.ServerKeys == nil {
		m, err = unsigned(dir, f.RelayURL(), path, gateway, now)
		if err == nil {
			m.Tries, m.Every = tries, every
			err = m.CheckSending(r.MaxSending())
		}
	} else {
		var d keyset.Deployment
		if d, err = aggregator.DeploymentOf(r); err == nil {
			m, err = cosigned(dir, Manifest{Deployment: d, NotBefore: now, NotAfter: now.Add(d.Epoch), Gateway: gateway,
				Tries: tries, Every: every, Hold: ohttp.DefaultHold})
		}
	}
	if err != nil {
		return err
	}
	manifest, err := m.Append(nil)
	if err != nil {
		return fmt.Errorf("deploy: %w", err)
	}
	var senders uint64
	if r.Dummies != nil {
		senders = r.Dummies.Senders
	}
	w := &newFiles{dir: dir}
	w.secret("gateway.hpke", key)
	w.token("relay.token")
	w.add(ManifestFile, 0o644, manifest)
	for _, party := range []settings{
		{Role: RelayRole, Listen: f.Relay.Addr().String(), Local: f.RelayLocal.Addr().String(), Gateway: f.GatewayURL(), Lab: true},
		{Role: GatewayRole, Listen: f.Gateway.Addr().String(), Local: f.GatewayLocal.Addr().String(), Leader: path.Leader, Window: window, Lab: true},
	} {
		if _, err := w.config(party); err != nil {
			return fmt.Errorf("deploy: %w", err)
		}
	}
	text, err := filled(frontReadme, struct {
		*Front
		Manifest string
		Coins    bool
		Senders  uint64 // how many devices the guarantee counts on
		Unit     dap.TimePrecision
		Keyed    bool
	}{f, ManifestFile, r.Dummies != nil, senders, r.TimePrecision, r.ServerKeys != nil})
	if err != nil {
		return fmt.Errorf("deploy: %w", err)
	}
	w.replace(readmeFile, text)
	if err := w.write(); err != nil {
		return fmt.Errorf("deploy: %w", err)
	}
	return nil
}

// unsigned is the manifest for a recipe that names no keys: nobody vouches for those in
// it.
func unsigned(dir, relay string, path recipe.TwoServer, gateway []ohttp.KeyConfig, now time.Time) (*ohttp.Manifest, error) {
	m := &ohttp.Manifest{
		Epoch: ohttp.EpochAt(now, ohttp.DefaultEpoch), Length: ohttp.DefaultEpoch, NotBefore: now, NotAfter: now.Add(manifestLife), Relay: relay,
		Gateway: gateway, Hold: ohttp.DefaultHold, Targets: []string{path.Leader},
	}
	for _, a := range []struct {
		url, config string
		role        dap.Role
	}{{path.Leader, LeaderFile, dap.RoleLeader}, {path.Helper, HelperFile, dap.RoleHelper}} {
		config, err := LoadAggregator(filepath.Join(dir, a.config), a.role)
		if err != nil {
			return nil, fmt.Errorf("deploy: %w", err)
		}
		p, err := config.pinned(a.url)
		if err != nil {
			return nil, err
		}
		m.Pinned = append(m.Pinned, p)
	}
	return m, nil
}

// pinned is what the aggregator will answer to who asks for its keys.
func (a *Aggregator) pinned(base string) (ohttp.Pinned, error) {
	u, err := dap.BaseURL([]byte(base))
	if err != nil {
		return ohttp.Pinned{}, fmt.Errorf("deploy: %w", err)
	}
	list, err := a.offered()
	if err != nil {
		return ohttp.Pinned{}, fmt.Errorf("deploy: %w", err)
	}
	return ohttp.Pinned{URL: dap.ResourceURL(u, dap.HpkeConfigPath).String(),
		Media: dap.ContentType(dap.MediaHpkeConfigList), Body: list}, nil
}

const frontReadme = `A Starling deployment on loopback with a relay, made by "starling lab --population N --keep".

Type this here, in this directory. ("go install ./cmd/starling" in Starling's source makes the command.)

In one terminal each:
  starling serve helper helper.toml
  starling serve leader leader.toml
  starling serve gateway gateway.toml
  starling serve relay relay.toml
The relay takes requests at {{.RelayURL}}
and hands them to the gateway at {{.GatewayURL}}
Devices find both, the keys of gateway, leader and helper and how long they hold in {{.Manifest}}.

Then, in another:
{{if .Keyed}}  export STARLING_ANCHORS=anchors.starling                whose keys this device knows
{{end}}  starling recipe show recipe.starling                    what is asked, the guarantee, and what is left when it fails
  starling status leader.toml helper.toml
  starling why leader.toml                                what keeps the next result back
  starling budget --log devices/0                         what a device has paid for tossing its coins
  starling status gateway.toml                            what it holds, passed on and refused
  starling doctor leader.toml helper.toml gateway.toml

Sending goes through the relay with --manifest. {{if .Coins}}Devices decide by secret coins whether
to report, and each person pays for that in a ledger of their own, here the new directory me/:
  starling send --manifest {{.Manifest}} --ledger me --budget 4 --no-answer recipe.starling
The lab's own devices have decided in all of the recipe's rounds. Made-up ones have no ledger, and so many are enough for a result:
  starling send --manifest {{.Manifest}} --simulate {{.Senders}} recipe.starling
  starling collect --skip --timeout 10s collector.toml
A round is {{.Unit}} seconds, and is released alone; one that has been collected takes no more reports: send again when the next
begins. --skip leaves out the rounds in which nobody sent.
{{else}}One answer is
  starling send --manifest {{.Manifest}} recipe.starling VALUE
{{end}}  starling manifest show {{printf "%-32s" .Manifest}} which keys, and until when

secrets/ holds the keys and tokens of all parties at once: a lab may do that, an organisation must not.
`
