package deploy

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
)

// AnalyzerFile is the name of an analyzer's configuration in a new deployment.
const AnalyzerFile = "analyzer.toml"

// HopFile is the configuration of hop 1 or 2.
func HopFile(n int) string { return fmt.Sprintf("hop-%d.toml", n) }

// A Mixers is listeners on loopback of the parties of a recipe without proofs, as [Addresses]
// are for servers, with the root keys of their owners, which the recipe names.
type Mixers struct {
	// Hops are two, or none on the direct path.
	Hops     []Listeners
	Analyzer Listeners
	// Roots are those of the hops, the analyzer, and the gateway.
	Roots []*signed.PrivateKey
	// Ahead is for how many rounds after the present one hops and analyzer have keys; 0 is
	// their default.
	Ahead int
	// Tokens are what there is more in the mode tokens; nil in the mode counted.
	Tokens *MixerTokens
}

// MixerTokens are what a deployment has more whose contributions show credentials; attester
// and log are added by [CreateAttester] and [CreateLog].
type MixerTokens struct {
	// Attester is the attester's root key, which the recipe names.
	Attester *signed.PrivateKey
	// Begin is when the epoch begins of which the manifest is, and of which the issuers beside
	// the hops have keys, and EpochLength that of epochs, in seconds.
	Begin       time.Time
	EpochLength uint32
}

// LoopbackMixers opens free ports, and makes keys.
func LoopbackMixers(direct bool) (*Mixers, error) {
	m := &Mixers{}
	if !direct {
		m.Hops = make([]Listeners, 2)
	}
	for _, at := range m.all() {
		var err error
		if *at, err = LoopbackParty(); err != nil {
			m.Close()
			return nil, err
		}
		m.Roots = append(m.Roots, signed.Generate())
	}
	m.Roots = append(m.Roots, signed.Generate())
	return m, nil
}

// all are the parties, in the order in which a message meets them.
func (m *Mixers) all() (list []*Listeners) {
	for i := range m.Hops {
		list = append(list, &m.Hops[i])
	}
	return append(list, &m.Analyzer)
}

// Close closes what is open.
func (m *Mixers) Close() {
	for _, at := range m.all() {
		at.Close()
	}
}

// Path is what a recipe says of them, behind a relay or not.
func (m *Mixers) Path(relay bool) recipe.Path {
	list := m.all()
	party := func(i int) recipe.Party { return recipe.Party{URL: list[i].URL(), Key: m.Roots[i].Public()} }
	var gateway signed.PublicKey
	if relay {
		gateway = m.Roots[len(list)].Public()
	}
	if len(list) == 1 {
		return recipe.Direct{Analyzer: party(0), Gateway: gateway}
	}
	p := recipe.Shuffled{First: party(0), Second: party(1), Analyzer: party(2), Gateway: gateway, Mode: recipe.CountedMode}
	if m.Tokens != nil {
		p.Mode, p.EpochLength = recipe.TokensMode, m.Tokens.EpochLength
	}
	return p
}

// CreateShuffle writes a new deployment of one recipe without proofs, whose path is
// [Mixers.Path], into dir, which is made or must be empty: keys, tokens, anchors, the
// recipe, and a configuration for each party; where the recipe names a relay, those of
// the two of the front too, with a manifest that its gateway has signed, valid for an
// epoch from now. Window is the gateway's. A front is nil without a relay.
func CreateShuffle(dir string, r *recipe.Recipe, m *Mixers, front *Front, now time.Time, window time.Duration) error {
	if r.Path != m.Path(r.Relay != nil) || (front != nil) != (r.Relay != nil) {
		return errors.New("deploy: the recipe is on another path")
	}
	if err := empty(dir); err != nil {
		return err
	}
	w := &newFiles{dir: dir, dirs: []newDir{{"", 0o700}, {secretsDir, 0o700}}}
	if r.Tokens != nil {
		w.dirs = append(w.dirs, newDir{manifestsDir, 0o700})
	}
	recipeBytes, err := RecipeFileOf(r)
	if err != nil {
		return fmt.Errorf("deploy: recipe: %w", err)
	}
	w.add(RecipeFile, 0o644, recipeBytes)
	if err := w.mixers(r, m, front, now, window); err != nil {
		return fmt.Errorf("deploy: %w", err)
	}
	if err := w.write(); err != nil {
		return fmt.Errorf("deploy: %w", err)
	}
	return nil
}

// issuers makes the keys of the issuers beside both hops for the epoch of the manifest.
func (m *Mixers) issuers(dir string, r *recipe.Recipe, deployment [32]byte, most uint64) (*ohttp.Issuers, error) {
	x := &ohttp.Issuers{Attester: r.Tokens.Key, Cap: most}
	epoch := ohttp.EpochAt(m.Tokens.Begin, time.Duration(m.Tokens.EpochLength)*time.Second)
	for _, of := range []struct {
		role signed.Role
		into *[ohttp.IssuerKeySize]byte
	}{{signed.Hop1, &x.Leader}, {signed.Hop2, &x.Helper}} {
		k, err := MakeIssuerKey(filepath.Join(dir, issuerDir(of.role)), of.role, deployment, epoch)
		if err != nil {
			return nil, err
		}
		copy(of.into[:], k.Append(nil))
	}
	return x, nil
}

// mixers adds all files of such a deployment but the recipe.
func (w *newFiles) mixers(r *recipe.Recipe, m *Mixers, front *Front, now time.Time, window time.Duration) error {
	parties, at := r.Parties(), m.all()
	var anchors []signed.Anchor
	vouch := func(name, base string, root *signed.PrivateKey) (*signed.Signer, error) {
		a, err := anchor(name, base, root)
		if err != nil {
			return nil, err
		}
		anchors = append(anchors, a)
		return w.owner(name, root, now)
	}
	// Each party knows who comes by a token with the name of who brings it.
	from := ""
	if front != nil {
		from = "gateway"
		w.token(from + ".token")
	}
	for i, p := range parties {
		s := mixerSettings{Log: r.Log != nil, Name: string(AnalyzerRole), Number: i + 1, From: from, Ahead: m.Ahead, Recipe: RecipeFile, Listen: at[i].Public.Addr().String(), Local: at[i].Local.Addr().String()}
		file, text := AnalyzerFile, analyzerText
		if i < len(parties)-1 {
			s.Name = fmt.Sprintf("hop-%d", i+1)
			if r.Tokens != nil {
				s.Issuer = issuerDir([...]signed.Role{signed.Hop1, signed.Hop2}[i])
			}
			file, text = HopFile(i+1), hopText
			w.token(s.Name + ".token")
		}
		if _, err := vouch(s.Name, p.URL, m.Roots[i]); err != nil {
			return err
		}
		if err := w.template(file, text, s); err != nil {
			return err
		}
		from = s.Name
	}
	if front != nil {
		gateway, err := vouch("gateway", r.Relay.Gateway, m.Roots[len(parties)])
		if err != nil {
			return err
		}
		if err := w.frontOf(r, m, front, parties[0].URL, gateway, now, window); err != nil {
			return err
		}
	}
	if r.Tokens != nil {
		if _, err := vouch(string(AttesterRole), r.Tokens.Attester, m.Tokens.Attester); err != nil {
			return err
		}
	}
	w.token("collector.token")
	_, err := w.collector(nil)
	if err == nil {
		_, err = w.config(settings{Role: CollectorRole, Recipe: RecipeFile, Lab: true})
	}
	if err != nil {
		return err
	}
	w.add(AnchorsFile, 0o644, signed.MarshalAnchors(anchors...))
	return w.template(readmeFile, mixersReadme, struct {
		Hops, Relay bool
		MinBatch    uint64
	}{len(parties) > 1, front != nil, r.MinBatch})
}

// frontOf adds relay and gateway before a hop or an analyzer, and the manifest, which the
// gateway signs alone: the others have keys of their own, for each round.
func (w *newFiles) frontOf(r *recipe.Recipe, mixers *Mixers, front *Front, target string, gateway *signed.Signer, now time.Time, window time.Duration) error {
	now = now.UTC().Truncate(time.Second)
	pair, err := sealed.Generate(uint8(ohttp.EpochAt(now, ohttp.DefaultEpoch)), sealed.SuiteX25519)
	if err != nil {
		return err
	}
	key, err := pair.Marshal()
	if err != nil {
		return err
	}
	id, err := r.ID()
	if err != nil {
		return err
	}
	tries, every := pace(r)
	m := &ohttp.Manifest{
		Epoch: ohttp.EpochAt(now, ohttp.DefaultEpoch), Length: ohttp.DefaultEpoch, NotBefore: now, NotAfter: now.Add(manifestLife), Relay: r.Relay.URL,
		Gateway: []ohttp.KeyConfig{ohttp.NewKeyConfig(pair)}, Tries: tries, Every: every, Hold: ohttp.DefaultHold, Targets: []string{target},
		Recipes: [][32]byte{id},
	}
	if r.Log != nil {
		if m.Deployment, err = r.Deployment(); err != nil {
			return err
		}
	}
	if t := mixers.Tokens; t != nil {
		m.Length = time.Duration(t.EpochLength) * time.Second
		m.Epoch, m.NotBefore, m.NotAfter = ohttp.EpochAt(t.Begin, m.Length), t.Begin, t.Begin.Add(m.Length)
		if m.Issuers, err = mixers.issuers(w.dir, r, m.Deployment, front.Devices); err != nil {
			return err
		}
	}
	if err := errors.Join(m.CheckSending(r.MaxSending()), m.Sign(signed.Gateway, gateway)); err != nil {
		return err
	}
	manifest, err := m.Append(nil)
	if err != nil {
		return err
	}
	w.secret("gateway.hpke", key)
	w.token("relay.token")
	w.add(ManifestFile, 0o644, manifest)
	if r.Tokens != nil {
		w.add(filepath.Join(manifestsDir, "lab"+manifestSuffix), 0o644, manifest)
	}
	for _, party := range []settings{
		{Role: RelayRole, Listen: front.Relay.Addr().String(), Local: front.RelayLocal.Addr().String(), Gateway: front.GatewayURL(), Log: front.Log, Lab: true},
		{Role: GatewayRole, Listen: front.Gateway.Addr().String(), Local: front.GatewayLocal.Addr().String(), Leader: target, Takes: takesContributions, Window: window, Lab: true},
	} {
		if _, err := w.config(party); err != nil {
			return err
		}
	}
	return nil
}

// mixerSettings are what the text of a hop's or an analyzer's configuration is filled with.
type mixerSettings struct {
	Name          string // of its files
	Number        int    // of a hop
	From          string // who comes, by the name of its token; empty: anybody
	Recipe        string
	Listen, Local string
	Ahead         int
	Log           bool   // the recipe stands in a log
	Issuer        string // directory of the keys of the issuer beside a hop; empty: none
}

// mixerText is what both have in common.
const mixerText = `data = "{{.Name}}" # in no backup: what is put back may have keys that were destroyed
key = "secrets/{{.Name}}.online"
delegation = "secrets/{{.Name}}.online.delegation" # by secrets/{{.Name}}.root, which belongs offline
{{with .From}}tokens = ["secrets/{{.}}.token"] # of who brings something
{{end}}{{if .Log}}policy = "log.policy" # of the log in which the recipe stands: keys are put there
{{end}}{{with .Ahead}}ahead = {{.}} # a lab's devices choose a round that leaves them time enough; in earnest leave it out
{{end}}`

const mixerListenersText = `
[public]
address = "{{.Listen}}"

[local] # /readyz /statusz /metrics /debug/pprof, for the operator alone
address = "{{.Local}}"
{{with .Issuer}}
[issuer] # gives out the credentials that are shown to this hop, by word of the attester
keys = "{{.}}"
manifests = "manifests"
{{end}}`

const hopText = `# Hop {{.Number}}: starling serve hop {{.Name}}.toml
# It mixes the messages of a round and hands them on; it reads none. The hops and the analyzer must be of three owners.
# docs/configuration.md has every key.
role = "hop"
number = {{.Number}}
shuffles = [{ recipe = "{{.Recipe}}", next_token = "secrets/{{.Name}}.token" }]
` + mixerText + mixerListenersText

const analyzerText = `# The analyzer: starling serve analyzer analyzer.toml
# It reads every message of a round, and makes the result of them. docs/configuration.md has every key.
role = "analyzer"
recipes = ["{{.Recipe}}"]
readers = ["secrets/collector.token"] # who may have results
` + mixerText + mixerListenersText

const mixersReadme = `A Starling deployment on loopback {{if .Hops}}with two hops that mix messages{{else}}of an analyzer{{end}}, made by "starling lab --recipe cloak --keep" or the like.

Type this here, in this directory. ("go install ./cmd/starling" in Starling's source makes the command.)

In one terminal each:
  starling serve analyzer analyzer.toml
{{if .Hops}}  starling serve hop hop-2.toml
  starling serve hop hop-1.toml
{{end}}{{if .Relay}}  starling serve gateway gateway.toml
  starling serve relay relay.toml
{{end}}Then, in another:
  export STARLING_ANCHORS=anchors.starling                whose keys this device knows
  starling recipe show recipe.starling                    what is asked, the guarantee, and what this path does not give
  starling check *.toml *.starling
  starling status analyzer.toml{{if .Hops}} hop-1.toml hop-2.toml{{end}}{{if .Relay}} relay.toml gateway.toml{{end}}

  starling collect collector.toml                         the result of the last round that is over

Nothing is released about fewer than {{.MinBatch}} contributions.

secrets/ holds the keys and tokens of all parties at once: a lab may do that, an organisation must not.
`
