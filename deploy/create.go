package deploy

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
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

// Loopback opens four free ports.
func Loopback() (*Addresses, error) {
	a := &Addresses{}
	for _, l := range []*net.Listener{&a.Leader, &a.LeaderLocal, &a.Helper, &a.HelperLocal} {
		var err error
		if *l, err = ListenLoopback(); err != nil {
			a.Close()
			return nil, err
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

// LoopbackParty opens free ports for the public and the local listener of one more party.
func LoopbackParty() (l Listeners, err error) {
	if l.Public, err = ListenLoopback(); err == nil {
		l.Local, err = ListenLoopback()
	}
	if err != nil {
		l.Close()
	}
	return l, err
}

// Close closes what is open.
func (l Listeners) Close() {
	for _, x := range []net.Listener{l.Public, l.Local, l.Peer} {
		if x != nil {
			x.Close()
		}
	}
}

// URL is the base URL of a public listener on loopback.
func (l Listeners) URL() string { return "http://" + l.Public.Addr().String() + "/" }

// LeaderURL is the base URL under which the leader is reached.
func (a *Addresses) LeaderURL() string { return "http://" + a.Leader.Addr().String() + "/" }

// HelperURL is the base URL under which the helper is reached.
func (a *Addresses) HelperURL() string { return "http://" + a.Helper.Addr().String() + "/" }

// ErrNotEmpty: the directory of a new deployment holds something already.
var ErrNotEmpty = errors.New("deploy: the directory is not empty")

// ErrDirectory: the directory of a new deployment cannot be made or read.
var ErrDirectory = errors.New("no directory for it")

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
	if err := empty(dir); err != nil {
		return err
	}
	w := &newFiles{dir: dir, dirs: []newDir{{"", 0o700}, {secretsDir, 0o700}}}
	if r.Tokens != nil {
		w.dirs = append(w.dirs, newDir{manifestsDir, 0o700}, newDir{issuerDir(signed.Leader), 0o700}, newDir{issuerDir(signed.Helper), 0o700})
	}
	recipeBytes, err := RecipeFileOf(r)
	if err != nil {
		return fmt.Errorf("deploy: recipe: %w", err)
	}
	w.add(RecipeFile, 0o644, recipeBytes)
	var collector *sealed.KeyPair
	if owners != nil {
		collector = owners.Collector
		if err := w.owners(r, owners); err != nil {
			return err
		}
	}
	if _, err := w.collector(collector); err != nil {
		return fmt.Errorf("deploy: %w", err)
	}
	var key [vdaf.VerifyKeySize]byte
	rand.Read(key[:])
	w.secret("verify.key", []byte(hex.EncodeToString(key[:])+"\n"))
	w.token("peer.token")
	w.token("collector.token")
	maxAge := "24h"
	if r.Relay != nil && owners == nil {
		maxAge = fmt.Sprintf("%.0fh", manifestLife.Hours())
	}
	for role, at := range map[Role][2]net.Listener{LeaderRole: {a.Leader, a.LeaderLocal}, HelperRole: {a.Helper, a.HelperLocal}, CollectorRole: {}} {
		s := settings{Role: role, Recipe: RecipeFile, MaxAge: maxAge, Signed: owners != nil, Issuer: r.Tokens != nil, Lab: true}
		if role != CollectorRole {
			s.Listen, s.Local = at[0].Addr().String(), at[1].Addr().String()
		}
		if _, err := w.config(s); err != nil {
			return fmt.Errorf("deploy: %w", err)
		}
	}
	_, correlated := r.Correlated()
	err = w.template(readmeFile, readme, struct {
		MinBatch, Enough uint64
		One              bool   // an answer may be a single number
		Correlated       bool   // later batches take back noise of earlier ones
		Round, Wait      string // as "10 seconds" and "1 second more"
		Keyed            bool   // the recipe names signing keys
		Counted          bool   // the recipe counts devices
	}{r.MinBatch, r.MinBatch + r.MinBatch/10 + 1, r.Query.Form() < recipe.Numbers, correlated,
		seconds(r.BatchUnits()*uint64(r.TimePrecision), ""), seconds(uint64((r.Grace()+time.Second)/time.Second), " more"), owners != nil, r.Tokens != nil})
	if err == nil {
		err = w.write()
	}
	if err != nil {
		return fmt.Errorf("deploy: %w", err)
	}
	return nil
}

// empty says whether a new deployment may be made in a directory.
func empty(dir string) error {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%w: %s", ErrNotEmpty, dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	return nil
}

// seconds writes a length of time, with a word behind it.
func seconds(n uint64, word string) string {
	if n == 1 {
		return "1 second" + word
	}
	return fmt.Sprintf("%d seconds%s", n, word)
}

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
{{else if .Counted}}  starling manifest show manifest.starling                the epoch that devices have credentials of
  starling status leader.toml helper.toml
  starling doctor leader.toml helper.toml

The recipe counts devices, and those of the lab were played: their credentials are gone, and nobody gets any of an epoch that has begun. For a device
of the next epoch:
  export STARLING_ANCHORS=anchors.starling
  starling serve attester attester.toml                   in a terminal of its own each, and so
  starling serve log log.toml                             these,
  starling serve witness witness-1.toml
  starling serve witness witness-2.toml
  starling serve relay relay.toml
  starling serve gateway gateway.toml                     once its epoch has begun
  starling attester codes --count 2 --out codes.more --codes secrets/codes.more
  tail -n +2 codes.more >>codes                           which the attester sees by itself
  head -n 1 secrets/codes.more >code
  starling enrol --credentials device --code code recipe.starling
  starling key issuer --role leader --keys leader.issuer --out leader.public recipe.starling
  starling key issuer --role helper --keys helper.issuer --out helper.public recipe.starling
  starling manifest new --previous manifest.starling --id 9 --key next.key --out manifests/next.manifest --token secrets/manifest.token \
    --every 1s --tries 2 --signing-key secrets/gateway.online --record gateway.signed --devices 100000 \
    --leader-issuer leader.public --helper-issuer helper.public recipe.starling
  starling log add --policy log.policy manifests/next.manifest
  starling visit --at-once --credentials device --policy log.policy recipe.starling
Visit again until that epoch is there: the log shows it after a second or two. And once that epoch has begun, starling log add --cohort EPOCH for leader, helper and attester, starling visit again, and starling send:
docs/credentials.md has all of it. No device shows anything before as many have credentials as the recipe wants.
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
