package deploy

import (
	"fmt"
	"strings"

	"github.com/starling-agg/starling/anonymity/attester"
	"github.com/starling-agg/starling/signed"
)

// Names of what a deployment has whose recipe counts devices.
const (
	AttesterFile = "attester.toml"
	manifestsDir = "manifests" // of leader, helper and attester
	codesFile    = "codes"     // what the attester has of them; secrets/codes has them
)

// issuerDir has the keys of the issuer beside an aggregator or a hop.
func issuerDir(role signed.Role) string {
	return strings.ReplaceAll(role.String(), " ", "-") + ".issuer"
}

// CreateAttester adds an attester to a deployment of a recipe that counts devices, which
// [CreateFor] or [CreateShuffle] has written: its configuration, and a code for each of some devices, which are
// returned too.
func CreateAttester(dir string, at Listeners, devices int) (codes []string, err error) {
	codes, hashes, err := attester.MakeCodes(devices)
	if err != nil {
		return nil, fmt.Errorf("deploy: %w", err)
	}
	w := &newFiles{dir: dir}
	w.add(codesFile, 0o600, hashes)
	w.secret(codesFile, []byte(strings.Join(codes, "\n")+"\n"))
	if err = w.template(AttesterFile, attesterText, struct{ Listen, Local string }{at.Public.Addr().String(), at.Local.Addr().String()}); err == nil {
		err = w.write()
	}
	if err != nil {
		return nil, fmt.Errorf("deploy: %w", err)
	}
	return codes, nil
}

const attesterText = `# The attester: starling serve attester attester.toml
# It knows which devices there are, lets each ask once in an epoch for credentials, and sees nothing that they send.
role = "attester"
data = "attester"
recipe = "recipe.starling"
manifests = "manifests"
codes = "codes"
key = "secrets/attester.online"
delegation = "secrets/attester.online.delegation"

[public]
address = "{{.Listen}}"

[local] # /readyz /statusz /metrics /debug/pprof, for the operator alone
address = "{{.Local}}"
`
