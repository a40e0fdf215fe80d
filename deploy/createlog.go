package deploy

import (
	"bytes"
	"fmt"
	"time"

	"github.com/starling-agg/starling/anonymity/tlog"
)

// Names of the files of a deployment with a transparency log.
const (
	LogFile    = "log.toml"
	PolicyFile = "log.policy" // which devices have too
	// labOrigin is the name of a lab's log.
	labOrigin = "log.lab.example/starling"
	// labWitnesses follow it, each a party of its own, and all must sign.
	labWitnesses = 2
)

// WitnessFile is the configuration of a lab's witness, from 1 on.
func WitnessFile(n int) string { return fmt.Sprintf("witness-%d.toml", n) }

// A Watched is listeners on loopback of a transparency log and of its witnesses, as
// [Addresses] are for the servers.
type Watched struct {
	Log       Listeners
	Witnesses []Listeners
}

// LoopbackLog opens free ports.
func LoopbackLog() (*Watched, error) {
	w := &Watched{Witnesses: make([]Listeners, labWitnesses)}
	for _, at := range w.all() {
		var err error
		if *at, err = LoopbackParty(); err != nil {
			w.Close()
			return nil, err
		}
	}
	return w, nil
}

func (w *Watched) all() []*Listeners {
	list := []*Listeners{&w.Log}
	for i := range w.Witnesses {
		list = append(list, &w.Witnesses[i])
	}
	return list
}

// Close closes what is open.
func (w *Watched) Close() {
	for _, at := range w.all() {
		at.Close()
	}
}

// LogURL is where everybody reads the log.
func (w *Watched) LogURL() string { return w.Log.URL() }

// Origin is the log's name.
func (w *Watched) Origin() string { return labOrigin }

// CreateLog adds a transparency log and its witnesses to a deployment that [CreateFor] has
// written, whose anchors it goes by: keys, the policy that devices have too, and a
// configuration for each. A set of what holds is made every period.
func CreateLog(dir string, w *Watched, period time.Duration) error {
	files := &newFiles{dir: dir}
	key := func(name, owner string, schemes ...tlog.Scheme) (*tlog.Key, error) {
		var file []byte
		var last *tlog.Key
		for _, scheme := range schemes {
			s, err := tlog.Generate(owner, scheme)
			if err != nil {
				return nil, fmt.Errorf("deploy: %w", err)
			}
			file, last = append(file, s.Marshal()...), s.Key()
		}
		files.secret(name+".key", file)
		return last, nil
	}
	log, err := key("log", labOrigin, tlog.Ed25519)
	if err != nil {
		return err
	}
	var policy, group bytes.Buffer
	fmt.Fprintf(&policy, "log %s %s\n", log, w.LogURL())
	for i, at := range w.Witnesses {
		name := fmt.Sprintf("witness-%d", i+1)
		k, err := key(name, name+".lab.example", tlog.CosignEd, tlog.CosignMLDSA)
		if err != nil {
			return err
		}
		fmt.Fprintf(&policy, "witness %s %s %s\n", name, k, at.URL())
		fmt.Fprintf(&group, " %s", name)
		if err := files.template(WitnessFile(i+1), witnessText, struct{ Name, Log, Listen, Local string }{
			name, log.String(), at.Public.Addr().String(), at.Local.Addr().String()}); err != nil {
			return fmt.Errorf("deploy: %w", err)
		}
	}
	fmt.Fprintf(&policy, "group all all%s\nquorum all\n", &group)
	files.add(PolicyFile, 0o644, policy.Bytes())
	err = files.template(LogFile, logText, struct {
		Policy, Anchors, Listen, Local string
		Period                         time.Duration
	}{PolicyFile, AnchorsFile, w.Log.Public.Addr().String(), w.Log.Local.Addr().String(), period})
	if err == nil {
		err = files.write()
	}
	if err != nil {
		return fmt.Errorf("deploy: %w", err)
	}
	return nil
}

const logText = `# The transparency log: starling serve log log.toml
# Recipes, manifests and counts of devices stand in it, for everybody to see alike. docs/log.md says how.
role = "log"
data = "log"
record = "log.record"
key = "secrets/log.key"
policy = "{{.Policy}}" # which devices have too
anchors = "{{.Anchors}}" # the owners who may have something logged
# A lab is in a hurry; in earnest leave out both.
interval = "50ms"
period = "{{.Period}}"

[public]
address = "{{.Listen}}"

[local] # /readyz /statusz /metrics /debug/pprof, for the operator alone
address = "{{.Local}}"
`

const witnessText = `# A witness of the transparency log: starling serve witness {{.Name}}.toml
# It signs what it sees if that continues what it saw. Anybody can be one.
role = "witness"
data = "{{.Name}}"
key = "secrets/{{.Name}}.key"
logs = ["{{.Log}}"]

[public]
address = "{{.Listen}}"

[local]
address = "{{.Local}}"
`
