package deploy

import (
	"bytes"
	"path/filepath"
	"text/template"
	"time"
)

// The texts of configurations, of init and of the lab alike. Every key, with its default,
// is in docs/configuration.md.

// settings are what the text of a configuration is filled with.
type settings struct {
	Role          Role
	Owner         string // empty for a lab's
	Recipe        string // file
	Listen, Local string // addresses
	// Certificate and TLSKey are files; Proxied says that a proxy in front speaks TLS.
	Certificate, TLSKey string
	Proxied             bool
	MaxAge              string // of HPKE keys
	// Agreed says that tokens and keys follow from an agreement; where they do not they
	// are files in secrets/.
	Agreed bool
	Signed bool // recipes name the keys that vouch
	Issuer bool // recipes count devices
	// Lab says that all parties are on one machine, which has one clock, and in a hurry.
	Lab     bool
	Gateway string        // URL, in a lab's relay
	Log     string        // URL, in a lab's relay whose devices follow a log
	Leader  string        // URL of the target, in a lab's gateway
	Takes   string        // what the target takes, in a lab's gateway, if no reports
	Window  time.Duration // of a lab's gateway
	Tokens  bool          // a lab's gateway gives some out
	Logs    []string      // public keys, in a witness's
	Number  int           // of a hop
}

// Does says what the party is for, and Comers who come to its public listener.
func (s settings) Does() string   { return parties[s.Role].does }
func (s settings) Comers() string { return parties[s.Role].comers }

// Command is the command that plays the party.
func (s settings) Command() string {
	if s.Role == CollectorRole {
		return "collect"
	}
	return "serve " + string(s.Role)
}

// Retire says when an aggregator destroys a key that clients use no more: a leader knows
// what it has not folded, a helper has to guess how long its leader takes.
func (s settings) Retire() string {
	if s.Role == HelperRole {
		return "hpke_key_delay after that, by when the leader has come with every job"
	}
	return "once no report needs it"
}

// parties say what each party does, in the words of its configuration.
var parties = map[Role]struct{ does, comers string }{
	LeaderRole:     {"Clients upload to it, the collector asks it; it verifies with the helper.", "clients, helper and collector"},
	HelperRole:     {"It verifies with the leader and holds the other half of every sum.", "clients and leader"},
	CollectorRole:  {"It asks the leader, and alone can open what leader and helper release.", ""},
	RelayRole:      {"It sees who sends and not what. It must not be run by the owner of any other party.", "devices"},
	GatewayRole:    {"It sees what is sent and not by whom, and passes it on to the leader.", "the relay"},
	AttesterRole:   {"It knows devices, has each given credentials once in an epoch, and sees nothing that they send.", "devices"},
	LogRole:        {"Recipes, keys and counts of devices stand in it, for everybody to see alike.", "everybody"},
	HopRole:        {"It mixes the messages of a round and hands them on; it reads none. Hops and analyzer must be of three owners.", "devices or their gateway, or the hop before"},
	AnalyzerRole:   {"It reads every message of a round, and makes the result of them.", "the second hop or devices, and collectors"},
	ControllerRole: {"It announces the models of a training, has rounds collected and steps the model; it sees no report.", "relays, or devices where there is none"},
	WitnessRole:    {"It signs what it sees of a log if that continues what it saw. Anybody can be one.", "the logs"},
}

const headText = `# The {{.Role}}{{with .Owner}} of {{.}}{{end}}: starling {{.Command}} {{.Role}}.toml
# {{.Does}}
# docs/configuration.md has every key.
role = "{{.Role}}"
`

const listenersText = `
# For {{.Comers}}.
[public]
address = "{{.Listen}}"
{{if .Proxied}}tls_terminated_upstream = true # a proxy in front speaks TLS
# forwarded_header = "X-Forwarded-For" # in which the proxy writes the sender's address
{{else if .Certificate}}tls_certificate = "{{.Certificate}}"
tls_key = "{{.TLSKey}}"
{{end}}
[local] # /readyz /statusz /metrics /debug/pprof, for the operator alone
address = "{{.Local}}"
`

const agreementText = `{{if .Agreed}}
# What is shared with others follows from these: starling init --join puts an invitation there.
[agreement]
key = "secrets/{{.Role}}.key"
invitations = "invitations"
{{end}}`

const aggregatorText = headText + `data = "{{.Role}}"
# What must not go back when data does, to a backup say: best on another disk, and in
# no backup.
record = "{{.Role}}.record"
# It makes its own HPKE keys, in data: a new one each period. An old one is taken for as long as clients may use the
# keys that they were given, or read in a manifest, and is destroyed {{.Retire}}.
hpke_key_period = "24h"
hpke_key_max_age = "{{.MaxAge}}"
{{if eq .Role "helper"}}hpke_key_delay = "72h"
{{end}}# How long after the end of its recipe's window a task is kept; then all but its counts and the ledger is erased:
# retention = "720h"
{{if .Lab}}
[limits] # leader and helper on one machine read one clock
clock_skew = "1s"
{{end}}` + listenersText + `{{if .Signed}}
[signing] # it vouches for its HPKE keys, by a key that its owner's root (secrets/{{.Role}}.root, which belongs offline) vouches for
key = "secrets/{{.Role}}.online"
delegation = "secrets/{{.Role}}.online.delegation"
token = "secrets/manifest.token" # of who makes manifests
{{end}}{{if .Issuer}}
[issuer] # beside it: gives devices their credentials, whom the attester vouches for
keys = "{{.Role}}.issuer"
manifests = "manifests"
{{end}}` + agreementText + `
# One for each recipe.
[[tasks]]
recipe = "{{.Recipe}}"
{{if not .Agreed}}peer_token = "secrets/peer.token"
{{if eq .Role "leader"}}collector_token = "secrets/collector.token"
{{end}}collector_hpke = "collector.hpke"
verify_keys = [{ id = 1, file = "secrets/verify.key" }]
{{end}}# Hold batches with more than twice as many reports as are expected; the recipe's rate, if it states one, unless given here:
# expected = { reports = 5000, units = 24 } # in 24 units of the recipe's time precision
`

const collectorText = headText + `recipe = "{{.Recipe}}"
{{if not .Agreed}}token = "secrets/collector.token"
{{end}}hpke_key = "secrets/collector.hpke"
state = "collector.state"
` + agreementText

const relayText = headText + `{{if not .Agreed}}gateway = "{{.Gateway}}"
gateway_token = "secrets/relay.token"
{{end}}{{with .Log}}transparency_log = "{{.}}" # whose bundle devices fetch here
transparency_log_every = "1s" # a lab is in a hurry; in earnest leave it out
{{end}}` + listenersText + `{{if .Lab}}
[limits]
# Of one part of the network. Here all devices have one address; in earnest leave the line out, which is a limit of 600.
requests_per_minute = -1
{{end}}` + agreementText

const gatewayText = headText + `data = "gateway"
{{if .Agreed}}epochs = "epochs" # starling manifest new --key epochs/1.key --out epochs/1.manifest
{{else}}relay_token = "secrets/relay.token"
{{if .Tokens}}epochs = "epochs"
admission = "epochs" # keys for tokens that let devices into rounds
{{else}}keys = [{ file = "secrets/gateway.hpke" }]
{{end}}targets = [{ url = "{{.Leader}}"{{with .Takes}}, takes = "{{.}}", token = "secrets/gateway.token"{{end}} }]
{{end}}{{if .Lab}}# Uploads that come between two ticks are kept, answered at the next tick and then passed on together. A lab is in a
# hurry; in earnest take a second or more.
window = "{{.Window}}"
{{end}}` + listenersText + `{{if .Tokens}}
[issuer] # gives devices their tokens, whom the attester vouches for
recipe = "{{.Recipe}}"
{{end}}` + agreementText

// configTexts are templates by role.
var configTexts = map[Role]string{
	LeaderRole: aggregatorText, HelperRole: aggregatorText, CollectorRole: collectorText, RelayRole: relayText, GatewayRole: gatewayText,
	AttesterRole: attesterInitText, LogRole: logInitText, WitnessRole: witnessInitText,
	HopRole: hopInitText, AnalyzerRole: analyzerInitText, ControllerRole: controllerInitText,
}

// config adds the configuration of a party, and returns its name.
func (w *newFiles) config(s settings) (name string, err error) {
	name = string(s.Role) + ".toml"
	return name, w.template(name, configTexts[s.Role], s)
}

// template adds a public file that is made of a text.
func (w *newFiles) template(name, text string, fields any) error {
	b, err := filled(text, fields)
	w.add(name, 0o644, b)
	return err
}

// secret adds a file in secrets/.
func (w *newFiles) secret(name string, text []byte) {
	w.add(filepath.Join(secretsDir, name), 0o600, text)
}

func filled(text string, fields any) ([]byte, error) {
	var b bytes.Buffer
	err := template.Must(template.New("").Parse(text)).Execute(&b, fields)
	return b.Bytes(), err
}
