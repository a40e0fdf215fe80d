package deploy

// What starling init writes, by role. Every key, with its default, is in
// docs/configuration.md.

const initPublic = `
[public] # where {{.Comers}} come
address = "{{.Listen}}"
{{if .Proxied}}tls_terminated_upstream = true # a proxy in front speaks TLS
# forwarded_header = "X-Forwarded-For" # in which the proxy writes the sender's address
{{else if .Certificate}}tls_certificate = "{{.Certificate}}"
tls_key = "{{.TLSKey}}"
{{end}}
[local] # /readyz /statusz /metrics /debug/pprof, for the operator alone
address = "{{.Local}}"
`

const initAgreement = `
# What is shared with others follows from these: starling init --join puts an invitation there.
[agreement]
key = "secrets/{{.Role}}.key"
invitations = "invitations"
`

const initTask = `
[[tasks]] # one for each recipe
recipe = "{{.Recipe}}"
`

const initKeys = `# What must not go back when data does, to a backup say: best on another disk, and in no backup.
record = "{{.Role}}.record"
# It makes its own HPKE keys, a new one each period.
hpke_key_period = "24h"
hpke_key_max_age = "24h"
`

// initTexts are templates by role.
var initTexts = map[Role]string{
	LeaderRole: `# The leader of {{.Owner}}: starling serve leader {{.Role}}.toml
# Clients upload to it, the collector asks it; it verifies with the helper.
# docs/configuration.md has every key.
role = "leader"
data = "leader"
` + initKeys + initPublic + initAgreement + initTask,
	HelperRole: `# The helper of {{.Owner}}: starling serve helper {{.Role}}.toml
# It verifies with the leader and holds the other half of every sum.
# docs/configuration.md has every key.
role = "helper"
data = "helper"
` + initKeys + `# How long after that the leader may come with a job.
hpke_key_delay = "72h"
` + initPublic + initAgreement + initTask,
	CollectorRole: `# The collector of {{.Owner}}: starling collect {{.Role}}.toml
# It asks the leader, and alone can open what leader and helper release.
# docs/configuration.md has every key.
role = "collector"
recipe = "{{.Recipe}}"
hpke_key = "secrets/collector.hpke"
state = "collector.state"
` + initAgreement,
	RelayRole: `# The relay of {{.Owner}}: starling serve relay {{.Role}}.toml
# It sees who sends and not what. It must not be run by the owner of any other party.
# docs/configuration.md has every key.
role = "relay"
` + initPublic + initAgreement,
	GatewayRole: `# The gateway of {{.Owner}}: starling serve gateway {{.Role}}.toml
# It sees what is sent and not by whom, and passes it on to the leader.
# docs/configuration.md has every key.
role = "gateway"
data = "gateway"
epochs = "epochs" # starling manifest new --key epochs/1.key --out epochs/1.manifest
` + initPublic + initAgreement,
}

// comers are who come to a party's public listener.
var comers = map[Role]string{
	LeaderRole: "clients, helper and collector", HelperRole: "clients and leader", RelayRole: "devices", GatewayRole: "the relay",
}
