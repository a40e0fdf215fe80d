package deploy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/deploy/invitation"
	"github.com/starling-agg/starling/signed"
)

// OuterRoles are those that [Init] makes and nobody joins: what others have to know of such a
// party is public, in a recipe, an anchors file or a policy, and it keeps no secrets with anybody
// but the tokens by which a hop is known to the next party.
var OuterRoles = []Role{AttesterRole, LogRole, WitnessRole, HopRole, AnalyzerRole, ControllerRole}

// outerOnline is for how long the online key of a new attester signs, in days.
const outerOnline = 90

// outer makes an attester, a transparency log, a witness, a hop, an analyzer or a controller.
func (h *home) outer(o InitOptions, w *newFiles, made *Made) error {
	if len(o.Join) > 0 {
		return fmt.Errorf("%w: nobody invites the %s", ErrStranger, o.Role)
	}
	if (len(o.Logs) > 0) != (o.Role == WitnessRole) {
		return errors.New("logs: required for a witness, which signs what it sees of them, and for no one else")
	}
	if (o.Role == HopRole) != (o.Number != 0) || o.Number < 0 || o.Number > 2 {
		return errors.New("number: required for a hop, 1 or 2 as recipes name it, and for no one else")
	}
	// As an anchors file has it, and so it is one line of a configuration too.
	named := signed.Anchor{Name: string(o.Role), Domain: "owner.example", Key: signed.Generate().Public(), Owner: o.Owner}
	if err := named.Validate(); err != nil {
		return fmt.Errorf("owner: %w", err)
	}
	config := string(o.Role) + ".toml"
	if _, err := os.Stat(filepath.Join(h.dir, config)); err == nil {
		return fmt.Errorf("%w: %s", ErrExists, filepath.Join(h.dir, config))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var v invitation.Invitation // which nobody gets
	f := settings{Role: o.Role, Owner: o.Owner, Recipe: cmp.Or(o.Recipe, RecipeFile), Number: o.Number}
	if err := listen(o, &v, &f, w, made); err != nil {
		return err
	}
	at, err := url.Parse(v.URL)
	if err != nil {
		return fmt.Errorf("url: %w", err)
	}
	switch o.Role {
	case AttesterRole:
		w.dirs = append(w.dirs, newDir{manifestsDir, 0o755})
		err = w.signer(string(o.Role), o, at, made)
	case HopRole:
		w.token("hop.token")
		err = w.signer(string(o.Role), o, at, made)
	case AnalyzerRole:
		w.token("collector.token")
		err = w.signer(string(o.Role), o, at, made)
	case LogRole:
		err = w.log(at, made)
	case ControllerRole:
		key := signed.Generate()
		w.secret("controller.key", key.Marshal())
		w.add(TermsFile, 0o644, []byte(termsInitText))
		made.Public = []string{key.Public().String()}
	default:
		err = w.witness(o, at, &f, made)
	}
	if err != nil {
		return err
	}
	if config, err = w.config(f); err != nil {
		return err
	}
	made.Config = filepath.Join(o.Dir, config)
	return nil
}

// signer adds what a party signs with, and the line by which devices know it.
func (w *newFiles) signer(name string, o InitOptions, at *url.URL, made *Made) error {
	root, online := signed.Generate(), signed.Generate()
	from := o.Now.UTC().Truncate(time.Second).Add(-time.Hour) // for clocks that are slow
	d, err := signed.Delegate(root, online.Public(), from, from.AddDate(0, 0, outerOnline))
	if err != nil {
		return err
	}
	a := signed.Anchor{Name: name, Domain: at.Hostname(), Key: root.Public(), Owner: o.Owner}
	if o.Number > 0 {
		a.Name = fmt.Sprintf("%s-%d", name, o.Number)
	}
	if err := a.Validate(); err != nil {
		return err
	}
	w.secret(name+".root", root.Marshal())
	w.secret(name+".online", online.Marshal())
	w.add(filepath.Join(secretsDir, name+".online.delegation"), 0o644, d.MarshalFile())
	made.Public = []string{root.Public().String()}
	made.Anchor = a.String()
	return nil
}

// log adds a log's key, and a policy without a witness, which devices do not take yet.
func (w *newFiles) log(at *url.URL, made *Made) error {
	s, err := tlog.Generate(origin(at), tlog.Ed25519)
	if err != nil {
		return err
	}
	w.secret("log.key", s.Marshal())
	w.add(PolicyFile, 0o644, fmt.Appendf(nil, policyText, s.Key(), at))
	made.Public = []string{s.Key().String()}
	return nil
}

const policyText = `log %s %s
# Each witness's owner hands out its key: put its line here, and have so many of them sign.
# witness one witness.example/+... https://witness.example/
# group enough 1 one
# quorum enough
quorum none
`

// witness adds a witness's keys.
func (w *newFiles) witness(o InitOptions, at *url.URL, f *settings, made *Made) error {
	for _, s := range o.Logs {
		if _, err := tlog.ParseKey(s); err != nil {
			return fmt.Errorf("logs: %w", err)
		}
	}
	f.Logs = o.Logs
	var file bytes.Buffer
	for _, scheme := range []tlog.Scheme{tlog.CosignEd, tlog.CosignMLDSA} {
		s, err := tlog.Generate(origin(at), scheme)
		if err != nil {
			return err
		}
		file.Write(s.Marshal())
		made.Public = append(made.Public, s.Key().String())
	}
	w.secret("witness.key", file.Bytes())
	return nil
}

// origin is the name that a log or a witness has for good: where it is reached, without the
// scheme.
func origin(at *url.URL) string { return strings.TrimSuffix(at.Host+at.Path, "/") }

// outerApart refuses an attester, a hop, an analyzer or a witness beside parties that it is to
// be apart from.
func (h *home) outerApart(made Role) error {
	there := func(role Role) bool {
		_, err := os.Stat(filepath.Join(h.dir, string(role)+".toml"))
		return err == nil || role == made
	}
	inner := slices.DeleteFunc(slices.Clone(Roles), func(r Role) bool { return r == CollectorRole || !h.own[r] })
	switch {
	case there(AttesterRole) && len(inner) > 0:
		return fmt.Errorf("%w: in %s the attester, which knows devices, would be beside the %s", ErrApart, h.dir, inner[0])
	case there(HopRole) && there(AnalyzerRole):
		return fmt.Errorf("%w: in %s a hop, which knows in which order it mixed, would be beside the analyzer, which reads what is mixed", ErrApart, h.dir)
	case there(AttesterRole) && (there(HopRole) || there(AnalyzerRole)):
		return fmt.Errorf("%w: in %s the attester, which knows devices, would be beside a party that has what they send", ErrApart, h.dir)
	case h.own[RelayRole] && (there(HopRole) || there(AnalyzerRole)):
		return fmt.Errorf("%w: in %s a relay, which sees who sends, would be beside a party that has what they send", ErrApart, h.dir)
	case h.own[RelayRole] && there(ControllerRole):
		return fmt.Errorf("%w: in %s the controller, which says what models are, would be beside the relay, which sees who fetches one", ErrApart, h.dir)
	case there(WitnessRole) && there(LogRole):
		return fmt.Errorf("%w: in %s a witness would watch its own owner's log", ErrApart, h.dir)
	}
	return nil
}

const attesterInitText = headText + `# What a device is, and what proves it: docs/credentials.md. With one-time codes, of which devices get one each, in secret:
# starling attester codes --count 1000 --out codes --codes secrets/codes
codes = "codes"
data = "attester"
recipe = "{{.Recipe}}" # which names this attester and its root key
manifests = "manifests" # of the epochs, NAME.manifest
key = "secrets/attester.online"
delegation = "secrets/attester.online.delegation" # by secrets/attester.root, which belongs offline
` + listenersText

const logInitText = headText + `data = "log"
# What must not go back when data does, to a backup say: best on another disk, and in no backup.
record = "log.record"
key = "secrets/log.key"
policy = "log.policy" # which devices have too
anchors = "anchors.starling" # the owners who may have something logged
` + listenersText

const witnessInitText = headText + `# It must never go back to an older copy of data.
data = "witness"
key = "secrets/witness.key"
logs = [{{range $i, $k := .Logs}}{{if $i}}, {{end}}"{{$k}}"{{end}}]
` + listenersText

const hopInitText = headText + `number = {{.Number}} # as recipes name it
# The next party, {{if eq .Number 1}}hop 2{{else}}the analyzer{{end}}, knows this hop by next_token: its owner gets the same file, in secret.
shuffles = [{ recipe = "{{.Recipe}}", next_token = "secrets/hop.token" }]
{{if eq .Number 1}}# The gateway's, where there is one: its owner hands it out. Without it anybody may bring contributions.
# tokens = ["secrets/gateway.token"]
{{else}}# Hop 1's, which its owner hands out.
tokens = ["secrets/hop-1.token"]
{{end}}# Where recipes name a log: the file that devices have. The keys of rounds are put there.
# policy = "log.policy"
data = "hop" # in no backup: what is put back may have keys that were destroyed
key = "secrets/hop.online"
delegation = "secrets/hop.online.delegation" # by secrets/hop.root, which belongs offline
` + listenersText + `
# Where recipes are of the mode tokens: starling key issuer --role hop-{{.Number}} --keys issuer ...
# [issuer]
# keys = "issuer"
# manifests = "manifests" # of the epochs, NAME.manifest
`

const analyzerInitText = headText + `recipes = ["{{.Recipe}}"]
tokens = ["secrets/hop-2.token"] # hop 2's, which its owner hands out; on the direct path the gateway's, or leave it out
readers = ["secrets/collector.token"] # of who may have results: the collector gets the same file, in secret
# Where recipes name a log: the file that devices have. The keys of rounds are put there, and what both hops sign.
# policy = "log.policy"
data = "analyzer" # in no backup: what is put back may have keys that were destroyed
key = "secrets/analyzer.online"
delegation = "secrets/analyzer.online.delegation" # by secrets/analyzer.root, which belongs offline
` + listenersText

const controllerInitText = headText + `data = "controller"
# What must not go back when data does, to a backup say: best on another disk, and in no backup.
record = "controller.record"
key = "secrets/controller.key" # whose public half the recipe names: starling recipe new --controller KEY --terms training.toml
terms = "training.toml"
collector = "collector.toml" # who asks for the sums of this recipe's rounds; nobody else may
# How many devices are expected to report in a round, where the recipe does not say that:
# cohort = 1000
# Relays that hand the training out are asked before each announcement, so that a journal that was put back is found out:
# published = ["https://relay.example/"]
# A training process of this machine begins rounds and reads aggregates here; docs/learning.md
# control = "controller/control.sock"

[optimizer]
kind = "sgd" # or "adam"
rate = 0.5
momentum = 0.9
` + listenersText

// termsInitText is a terms file to begin with: softmax regression on the digits.
const termsInitText = `# What devices must know of a training. The recipe has the hash of this: a change is another recipe.
algorithm = "fedsgd" # or "fedavg", with local_steps and local_rate
clip = 0.3           # updates are scaled down to this norm
rounds = 40          # at most; no more than the recipe's --rounds

# The norm moves to where half of the updates are no longer; devices then report one number more:
# [adaptive]
# quantile = 0.5

[[tensor]]
name = "weights"
shape = [10, 65]
`
