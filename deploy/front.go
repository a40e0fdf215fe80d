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
	"github.com/starling-agg/starling/signed"
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
	// Log is the URL of the transparency log whose bundle devices fetch from the relay;
	// empty where they follow none.
	Log string
	// Devices have credentials at most, where the recipe counts them.
	Devices uint64
	// Rounds are those of which devices have tokens, from the manifest's begin on, where the
	// recipe asks for admission. Default: all of the epoch.
	Rounds int
}

// LoopbackFront opens four free ports.
func LoopbackFront() (*Front, error) {
	f := &Front{}
	for _, l := range []*net.Listener{&f.Relay, &f.RelayLocal, &f.Gateway, &f.GatewayLocal} {
		var err error
		if *l, err = ListenLoopback(); err != nil {
			f.Close()
			return nil, err
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

// labTokens is for how long after a round a lab's tokens are taken.
const labTokens = time.Hour

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
// for an epoch from now. Window is the gateway's. Where the recipe counts devices the
// manifest is that of an epoch that begins then, with the issuers' keys, which are made.
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
		var issuers *ohttp.Issuers
		if d, err = aggregator.DeploymentOf(r); err == nil {
			issuers, err = f.issuers(dir, r, &d, now)
		}
		if err == nil {
			m, err = cosigned(dir, Manifest{Deployment: d, NotBefore: now, NotAfter: now.Add(d.Epoch), Gateway: gateway,
				Tries: tries, Every: every, Hold: ohttp.DefaultHold, Issuers: issuers})
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
	tokens := r.Tokens != nil && r.Tokens.Admission
	if w.secret("gateway.hpke", key); tokens {
		w.add(filepath.Join(epochsDir, "lab.key"), 0o600, key)
		w.add(filepath.Join(epochsDir, "lab"+manifestSuffix), 0o644, manifest)
	}
	w.token("relay.token")
	w.add(ManifestFile, 0o644, manifest)
	if r.Tokens != nil {
		w.add(filepath.Join(manifestsDir, "lab"+manifestSuffix), 0o644, manifest)
	}
	for _, party := range []settings{
		{Role: RelayRole, Listen: f.Relay.Addr().String(), Local: f.RelayLocal.Addr().String(), Gateway: f.GatewayURL(), Log: f.Log, Lab: true},
		{Role: GatewayRole, Listen: f.Gateway.Addr().String(), Local: f.GatewayLocal.Addr().String(), Leader: path.Leader, Window: window, Lab: true,
			Tokens: tokens, Recipe: RecipeFile},
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
		Counted  bool
	}{f, ManifestFile, r.Dummies != nil, senders, r.TimePrecision, r.ServerKeys != nil, r.Tokens != nil})
	if err != nil {
		return fmt.Errorf("deploy: %w", err)
	}
	w.replace(readmeFile, text)
	if err := w.write(); err != nil {
		return fmt.Errorf("deploy: %w", err)
	}
	return nil
}

// issuers are the two of the epoch that begins at a time; nil where the recipe counts no
// devices.
func (f *Front) issuers(dir string, r *recipe.Recipe, d *keyset.Deployment, begin time.Time) (*ohttp.Issuers, error) {
	if r.Tokens == nil {
		return nil, nil
	}
	x := &ohttp.Issuers{Attester: r.Tokens.Key, Cap: f.Devices}
	for _, of := range []struct {
		role signed.Role
		into *[ohttp.IssuerKeySize]byte
	}{{signed.Leader, &x.Leader}, {signed.Helper, &x.Helper}} {
		k, err := MakeIssuerKey(filepath.Join(dir, issuerDir(of.role)), of.role, d.ID, ohttp.EpochAt(begin, d.Epoch))
		if err != nil {
			return nil, err
		}
		copy(of.into[:], k.Append(nil))
	}
	if r.Tokens.Admission {
		// A lab's devices report of rounds that are over.
		k := RoundKeys{Recipe: r, Epoch: ohttp.EpochAt(begin, d.Epoch), From: begin, Rounds: f.Rounds, Grace: labTokens}
		named, err := k.Make(filepath.Join(dir, epochsDir))
		if err != nil {
			return nil, err
		}
		x.Admission = []ohttp.AdmissionKeys{named}
	}
	return x, nil
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
{{if .Counted}}
The recipe counts devices: each shows credentials that it was given before the epoch of the manifest began, and nobody is
given any now. attester.toml, log.toml and two witnesses, witness-1.toml and witness-2.toml, are the other parties; each runs by
"starling serve PARTY FILE", and docs/credentials.md has how the next epoch is made.
{{else}}
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
{{end}}{{end}}  starling manifest show {{printf "%-32s" .Manifest}} which keys, and until when

secrets/ holds the keys and tokens of all parties at once: a lab may do that, an organisation must not.
`
