package deploy

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/vdaf"
)

// Names of the files of a deployment.
const (
	RecipeFile    = "recipe.starling"
	LeaderFile    = "leader.toml"
	HelperFile    = "helper.toml"
	CollectorFile = "collector.toml"
	readmeFile    = "README.txt"
	secretsDir    = "secrets"
)

// Addresses are four listeners on loopback, open so that no one else takes their ports
// before the parties do.
type Addresses struct {
	Leader, LeaderLocal, Helper, HelperLocal net.Listener
}

// Loopback opens four ports that the system picks.
func Loopback() (*Addresses, error) {
	a := &Addresses{}
	for _, l := range []*net.Listener{&a.Leader, &a.LeaderLocal, &a.Helper, &a.HelperLocal} {
		var err error
		if *l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			a.Close()
			return nil, fmt.Errorf("deploy: open a port on loopback: %w", err)
		}
	}
	return a, nil
}

// Close closes what is open.
func (a *Addresses) Close() {
	for _, l := range []net.Listener{a.Leader, a.LeaderLocal, a.Helper, a.HelperLocal} {
		if l != nil {
			l.Close()
		}
	}
}

// LeaderURL is the base URL under which the leader is reached.
func (a *Addresses) LeaderURL() string { return "http://" + a.Leader.Addr().String() + "/" }

// HelperURL is the base URL under which the helper is reached.
func (a *Addresses) HelperURL() string { return "http://" + a.Helper.Addr().String() + "/" }

// ErrNotEmpty: the directory of a new deployment holds something already.
var ErrNotEmpty = errors.New("deploy: the directory is not empty")

// ErrDirectory: the directory of a new deployment cannot be made or read.
var ErrDirectory = errors.New("deploy: no directory for it")

// Create writes a new deployment of one recipe into dir, which is made or must be empty:
// fresh keys and tokens, the recipe and three configurations. The recipe names no signing
// keys; [CreateFor] is for one that does.
func Create(dir string, r *recipe.Recipe, a *Addresses) error { return CreateFor(dir, r, a, nil) }

// CreateFor is Create for a recipe that names the keys of owners, which are written there
// too, with the anchors.
func CreateFor(dir string, r *recipe.Recipe, a *Addresses, owners *Owners) error {
	if (owners != nil) != (r.ServerKeys != nil) {
		return errors.New("deploy: keys of owners go with a recipe that names them")
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%w: %s", ErrNotEmpty, dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	recipeBytes, err := RecipeFileOf(r)
	if err != nil {
		return fmt.Errorf("deploy: recipe: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, secretsDir), 0o700); err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	w := &writer{dir: dir}
	w.file(RecipeFile, 0o644, recipeBytes)
	keyed := owners != nil
	if !keyed {
		if owners, err = NewOwners(); err != nil {
			return err
		}
	}
	collector := owners.Collector
	secret, err := collector.Marshal()
	if err != nil {
		return fmt.Errorf("deploy: %w", err)
	}
	w.file(filepath.Join(secretsDir, "collector.hpke"), 0o600, secret)
	public, err := dap.NewHpkeConfig(collector).Append(nil)
	if err != nil {
		return fmt.Errorf("deploy: %w", err)
	}
	w.file("collector.hpke", 0o644, public)
	var key [vdaf.VerifyKeySize]byte
	rand.Read(key[:])
	w.file(filepath.Join(secretsDir, "verify.key"), 0o600, []byte(hex.EncodeToString(key[:])+"\n"))
	w.token("peer.token")
	w.token("collector.token")
	if keyed {
		if err := w.owners(r, owners); err != nil {
			return err
		}
	}
	_, correlated := r.Correlated()
	fields := struct {
		*Addresses
		MinBatch, Enough uint64
		One              bool   // an answer may be a single number
		Correlated       bool   // later batches take back noise of earlier ones
		Round, Wait      string // as "10 seconds" and "1 second more"
		MaxAge           string // of HPKE keys
		Keyed            bool   // the recipe names signing keys
	}{a, r.MinBatch, r.MinBatch + r.MinBatch/10 + 1, r.Query.Form() < recipe.Numbers, correlated,
		seconds(r.BatchUnits()*uint64(r.TimePrecision), ""), seconds(uint64((r.Grace()+time.Second)/time.Second), " more"), "24h", keyed}
	if r.Relay != nil && !keyed {
		fields.MaxAge = fmt.Sprintf("%.0fh", manifestLife.Hours())
	}
	w.template(LeaderFile, leaderConfig, fields)
	w.template(HelperFile, helperConfig, fields)
	w.template(CollectorFile, collectorConfig, fields)
	w.template(readmeFile, readme, fields)
	return w.err
}

// seconds writes a length of time, with a word behind it.
func seconds(n uint64, word string) string {
	if n == 1 {
		return "1 second" + word
	}
	return fmt.Sprintf("%d seconds%s", n, word)
}

// writer keeps the first error.
type writer struct {
	dir string
	err error
}

func (w *writer) file(name string, mode fs.FileMode, b []byte) {
	if w.err != nil {
		return
	}
	if err := os.WriteFile(filepath.Join(w.dir, name), b, mode); err != nil {
		w.err = fmt.Errorf("deploy: %w", err)
	}
}

func (w *writer) template(name, text string, fields any) {
	if w.err != nil {
		return
	}
	f, err := os.OpenFile(filepath.Join(w.dir, name), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err == nil {
		err = errors.Join(template.Must(template.New(name).Parse(text)).Execute(f, fields), f.Close())
	}
	if err != nil {
		w.err = fmt.Errorf("deploy: write %s: %w", name, err)
	}
}

const leaderConfig = `# The leader: starling serve leader leader.toml
# Clients upload to it, the collector asks it; it verifies with the helper.
role = "leader"
data = "leader"
# What must not go back when data does, to a backup say: best on another disk, and in
# no backup.
record = "leader.record"
# It makes its own HPKE keys, in data: a new one each period. An old one takes uploads for as long as clients may use the keys that
# they have been given{{if ne .MaxAge "24h"}} or read in a manifest{{end}}, and is destroyed once no report needs it.
hpke_key_period = "24h"
hpke_key_max_age = "{{.MaxAge}}"
# How long after the end of its recipe's window a task is kept; then all but its counts and the ledger is erased:
# retention = "720h"

[limits] # leader and helper on one machine read one clock
clock_skew = "1s"

[public]
address = "{{.Leader.Addr}}"

[local] # /readyz /statusz /metrics /debug/pprof, for the operator alone
address = "{{.LeaderLocal.Addr}}"
{{if .Keyed}}
[signing] # it vouches for its HPKE keys, by a key that its owner's root (secrets/leader.root, which belongs offline) vouches for
key = "secrets/leader.online"
delegation = "secrets/leader.online.delegation"
token = "secrets/manifest.token" # of who makes manifests
{{end}}
[[tasks]]
recipe = "recipe.starling"
peer_token = "secrets/peer.token"
collector_token = "secrets/collector.token"
collector_hpke = "collector.hpke"
verify_keys = [{ id = 1, file = "secrets/verify.key" }]
# Hold batches with more than twice as many reports as are expected; the recipe's rate, if it states one, unless given here:
# expected = { reports = 5000, units = 24 } # in 24 units of the recipe's time precision
`

const helperConfig = `# The helper: starling serve helper helper.toml
# It verifies with the leader and holds the other half of every sum.
role = "helper"
data = "helper"
# What must not go back when data does, to a backup say: best on another disk, and in
# no backup.
record = "helper.record"
# It makes its own HPKE keys, in data: a new one each period. An old one is destroyed after the time that clients may use the keys
# that they have been given{{if ne .MaxAge "24h"}} or read in a manifest{{end}}, and the leader may wait before it comes with a job.
hpke_key_period = "24h"
hpke_key_max_age = "{{.MaxAge}}"
hpke_key_delay = "72h"
# How long after the end of its recipe's window a task is kept; then all but its counts and the ledger is erased:
# retention = "720h"

[limits] # leader and helper on one machine read one clock
clock_skew = "1s"

[public]
address = "{{.Helper.Addr}}"

[local] # /readyz /statusz /metrics /debug/pprof, for the operator alone
address = "{{.HelperLocal.Addr}}"
{{if .Keyed}}
[signing] # it vouches for its HPKE keys, by a key that its owner's root (secrets/helper.root, which belongs offline) vouches for
key = "secrets/helper.online"
delegation = "secrets/helper.online.delegation"
token = "secrets/manifest.token" # of who makes manifests
{{end}}
[[tasks]]
recipe = "recipe.starling"
peer_token = "secrets/peer.token"
collector_hpke = "collector.hpke"
verify_keys = [{ id = 1, file = "secrets/verify.key" }]
# Hold batches with more than twice as many reports as are expected; the recipe's rate, if it states one, unless given here:
# expected = { reports = 5000, units = 24 } # in 24 units of the recipe's time precision
`

const collectorConfig = `# The collector: starling collect collector.toml
role = "collector"
recipe = "recipe.starling"
token = "secrets/collector.token"
hpke_key = "secrets/collector.hpke"
state = "collector.state"
`

const readme = `A Starling deployment on loopback, made by "starling lab --keep".

Type this here, in this directory. ("go install ./cmd/starling" in Starling's source makes the command.)

In one terminal each:
  starling serve helper helper.toml
  starling serve leader leader.toml
Then, in a third:
  starling recipe show recipe.starling                    what is asked, and the guarantee
{{if .Correlated}}  starling status leader.toml helper.toml
  starling why leader.toml
  starling doctor leader.toml helper.toml

Later batches take back noise of earlier ones, for as many batches as the recipe has. All of them were collected, so there is nothing
more to be asked under it: starling recipe new --noise correlated-gaussian makes another.
{{else}}{{if .Keyed}}  export STARLING_ANCHORS=anchors.starling                whose keys this device knows
{{end}}{{if .One}}  starling send recipe.starling 1                         one answer
{{end}}  {{printf "starling send --simulate %d recipe.starling" .Enough | printf "%-54s"}}  made-up answers
  starling status leader.toml helper.toml
  starling why leader.toml                                what keeps the result back
  starling collect collector.toml
  starling doctor leader.toml helper.toml

Nothing is released about fewer than {{.MinBatch}} reports. A round is {{.Round}}; it is released after its end and
{{.Wait}}, so collect waits for it. A round that has been collected takes no more reports: the leader then answers
batch_collected until the next one begins.
{{end}}
secrets/ holds the keys and tokens of all parties at once: a lab may do that, an organisation must not. The keys that reports are
sealed to are in leader/keys and helper/keys; leader and helper make and destroy them.{{if .Keyed}} They vouch for them with
secrets/*.online, for which the roots secrets/*.root vouch, whose public halves stand in the recipe and in anchors.starling.{{end}}
`
