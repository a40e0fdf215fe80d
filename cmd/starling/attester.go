package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/anonymity/attester"
	"github.com/starling-agg/starling/anonymity/issuer"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/signed"
)

const attesterExample = `role = "attester"
data = "attester"                  # directory of which devices there are
recipe = "recipe.starling"         # of the deployment; it names the attester
manifests = "manifests"            # directory of the epochs' manifests
codes = "codes"                    # what devices enrol with; starling attester codes
key = "attester.online"            # starling key online --root attester.root --out attester.online
delegation = "attester.online.delegation"
[public]
address = "127.0.0.1:8005"         # where devices come
[local]
address = "127.0.0.1:9005"         # for the operator: /readyz /statusz /metrics`

func serveAttester() *command {
	const what = "vouches for devices, each once in an epoch, so that leader and helper give them credentials without knowing which they are"
	return serveParty("attester", what, attesterExample, func(path string) (*server, error) {
		config, err := deploy.LoadAttester(path)
		if err != nil {
			return nil, err
		}
		return &server{
			check: config.Check, holds: "an attester", level: config.Log.Level,
			parts: func(log *slog.Logger) ([]service.Part, error) { return config.Parts(log, deploy.Listeners{}), nil },
		}, nil
	})
}

func attesterCommand() *command {
	return &command{
		name:  "attester",
		short: "Make the codes that devices enrol with",
		sub:   []*command{attesterCodesCommand()},
	}
}

func attesterCodesCommand() *command {
	return &command{
		name: "codes", args: "[--json] --count N --out FILE --codes FILE",
		short: "Make one-time codes, each for one device",
		long: `--codes gets a code a line, to be handed out, one to each device; keep it nowhere after that. --out gets their hashes,
sorted, which is what attester.toml names: no line tells which code was made first, and nobody who reads it can enrol.`,
		examples: [][2]string{{"starling attester codes --count 1000 --out codes --codes codes.secret", "for a thousand devices"}},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			count := flags.Int("count", 0, "make `N` codes; required")
			out := flags.String("out", "", "write their hashes to this `FILE`; required")
			secret := flags.String("codes", "", "write the codes to this `FILE`; required")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(_ context.Context, e *env, args []string) error {
				if err := noArgs("attester codes", args); err != nil {
					return err
				}
				if *out == "" || *secret == "" {
					return usageOf("attester codes", errors.New("starling attester codes needs --count, --out and --codes"))
				}
				codes, hashes, err := attester.MakeCodes(*count)
				if err != nil {
					return usageOf("attester codes", err)
				}
				for _, path := range []string{*secret, *out} { // or codes would be left without their hashes
					if exists(path) {
						return failf(exitInput, "name another file, or move this one away", "%s exists", path)
					}
				}
				if err := writeNew(*secret, 0o600, []byte(strings.Join(codes, "\n")+"\n")); err != nil {
					return err
				}
				if err := writeNew(*out, 0o644, hashes); err != nil {
					return err
				}
				if *asJSON {
					return e.json(map[string]any{"count": len(codes), "codes": *secret, "hashes": *out})
				}
				_, err = fmt.Fprintf(e.stdout, "%s: %s to hand out, hashes %s\n", counted(len(codes), "code", "codes"), *secret, *out)
				return err
			}
		},
	}
}

func keyIssuerCommand() *command {
	return &command{
		name: "issuer", args: "[--epoch N] [--json] --role ROLE --keys DIR --out FILE RECIPE",
		short: "Make an issuer's key for an epoch, for devices' credentials",
		long: `Leader and helper, or both hops, each have an issuer beside them, whose key of an epoch stands in the epoch's manifest: make it before
that, at each of them, in the directory that its [issuer] names, and give FILE, which is public, to who makes the manifest
(starling manifest new --leader-issuer, --helper-issuer; of hop 1 the first, and of hop 2 the second). Without --epoch it is for the next one. An epoch has one key, ever; the
party destroys it when the last round of the epoch is long over.`,
		examples: [][2]string{{"starling key issuer --role leader --keys leader.issuer --out leader.issuer.public recipe.starling", "for the next epoch"}},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			role := flags.String("role", "", "whose issuer, leader, helper, hop-1 or hop-2: `ROLE`; required")
			keys := flags.String("keys", "", "the directory of its keys, `DIR`; required")
			out := flags.String("out", "", "write the public key to this `FILE`; required")
			epoch := flags.Uint("epoch", 0, "of epoch `N`; by default the next one")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(_ context.Context, e *env, args []string) error {
				as, known := map[string]signed.Role{"leader": signed.Leader, "helper": signed.Helper, "hop-1": signed.Hop1, "hop-2": signed.Hop2}[*role]
				if len(args) != 1 || !known || *keys == "" || *out == "" || *epoch > 1<<32-1 {
					return usageOf("key issuer", errors.New("starling key issuer needs --role leader, helper, hop-1 or hop-2, --keys, --out and a recipe"))
				}
				checked, err := deploy.OpenRecipe(args[0])
				if err != nil {
					return ofInput(err, noRecipe)
				}
				r := checked.Recipe()
				if r.Tokens == nil {
					return failf(exitInput, "starling recipe show "+args[0], "%s counts no devices", args[0])
				}
				if hops := !r.Path.Proofs(); hops != (as == signed.Hop1 || as == signed.Hop2) {
					return usageOf("key issuer", fmt.Errorf("--role %s: %s is on another path, %v", *role, args[0], r.Path))
				}
				id, err := r.Deployment()
				if err != nil {
					return ofInput(err, noRecipe)
				}
				length := time.Duration(r.EpochLength()) * time.Second
				if exists(*out) {
					return failf(exitInput, "name another file, or move this one away", "%s exists", *out)
				}
				number, current := uint32(*epoch), ohttp.EpochAt(time.Now(), length)
				if number == 0 {
					number = current + 1
				}
				if number < current || number-current > maxAhead {
					return failf(exitInput, fmt.Sprintf("epoch %d is now, and %d the next, which it is for without --epoch", current, current+1),
						"--epoch %d is over, or more than %d ahead", number, maxAhead)
				}
				if name, err := foreign(*keys); err != nil {
					return ofInput(err, "name the directory that keys of [issuer] in "+*role+".toml names, made where there is none")
				} else if name != "" {
					return failf(exitInput, "name the directory that keys of [issuer] in "+*role+".toml names, made where there is none",
						"%s has %s in it, and is no directory of an issuer's keys", *keys, name)
				}
				public, err := deploy.MakeIssuerKey(*keys, as, id, number)
				switch {
				case errors.Is(err, issuer.ErrKeyExists):
					public, err = deploy.IssuerKey(*keys, as, id, number)
					if err != nil {
						return &failure{exitInput, err, "a key that was destroyed is never made again: name a later --epoch"}
					}
				case err != nil:
					return ofInput(err, "name a directory that nobody else writes to")
				}
				text := hex.EncodeToString(public.Append(nil)) + "\n"
				if err := writeNew(*out, 0o644, []byte(text)); err != nil {
					return err
				}
				if *asJSON {
					return e.json(map[string]any{"role": *role, "epoch": number, "keys": *keys, "public": *out})
				}
				_, err = fmt.Fprintf(e.stdout, "the %s's issuer, epoch %d: key in %s, public key %s\n", *role, number, *keys, *out)
				return err
			}
		},
	}
}

// maxAhead is how many epochs ahead of now an issuer's key is made at most.
const maxAhead = 8

// foreign is what lies in a directory in which no issuer has a key or had one; "" where there
// is nothing, or no directory.
func foreign(dir string) (name string, err error) {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	for _, x := range list {
		if issuer.IsKeyFile(x.Name()) {
			return "", nil
		}
		name = x.Name()
	}
	return name, err
}

// issuerFlags are what manifest new says of issuers.
type issuerFlags struct {
	leader, helper, admission *string
	most                      *uint64
}

func newIssuerFlags(flags *flag.FlagSet) issuerFlags {
	return issuerFlags{
		leader:    flags.String("leader-issuer", "", "the public key of the leader's issuer, a `FILE` of starling key issuer"),
		helper:    flags.String("helper-issuer", "", "that of the helper's, a `FILE`"),
		admission: flags.String("admission", "", "the digests of the gateway's keys for tokens, a `FILE` of starling key admission"),
		most:      flags.Uint64("devices", 0, "`N` devices at most get credentials in the epoch"),
	}
}

func (f *issuerFlags) given() bool {
	return *f.leader != "" || *f.helper != "" || *f.admission != "" || *f.most != 0
}

// read is what the manifest says of issuers; nil where its recipes count no devices.
func (f *issuerFlags) read(d *keyset.Deployment) (*ohttp.Issuers, error) {
	attester := attesterOf(d)
	if attester == (signed.PublicKey{}) {
		if f.given() {
			return nil, usageOf("manifest new", errors.New("none of the recipes counts devices: no issuers"))
		}
		return nil, nil
	}
	if *f.leader == "" || *f.helper == "" || *f.most == 0 {
		return nil, usageOf("manifest new", errors.New("a recipe counts devices: starling manifest new needs --leader-issuer, --helper-issuer and --devices"))
	}
	x := &ohttp.Issuers{Attester: attester, Cap: *f.most}
	var err error
	if x.Admission, err = readAdmission(*f.admission, d.Recipes); err != nil {
		return nil, err
	}
	for _, of := range []struct {
		file string
		into *[ohttp.IssuerKeySize]byte
	}{{*f.leader, &x.Leader}, {*f.helper, &x.Helper}} {
		b, err := readLimited("manifest new", of.file, 4096)
		if err != nil {
			return nil, err
		}
		key, err := hex.DecodeString(strings.TrimSpace(string(b)))
		if err != nil || len(key) != len(of.into) {
			return nil, failf(exitInput, "starling key issuer --help", "%s holds no issuer's public key", of.file)
		}
		copy(of.into[:], key)
	}
	return x, nil
}

// cohort asks a running leader, helper, hop or attester how many devices there are of an
// epoch, and returns what its owner says of it, and whose owner's root key that is, in
// hexadecimal digits.
func cohort(ctx context.Context, path string, epoch uint64) (deployment [32]byte, owner string, content []byte, err error) {
	role, err := roleOf("log add", path)
	if err != nil {
		return deployment, "", nil, err
	}
	var at service.Address
	switch role {
	case deploy.LeaderRole, deploy.HelperRole:
		as := map[deploy.Role]dap.Role{deploy.LeaderRole: dap.RoleLeader, deploy.HelperRole: dap.RoleHelper}[role]
		c, err := deploy.LoadAggregator(path, as)
		if err != nil {
			return deployment, "", nil, ofInput(err, noDeployment)
		}
		at = c.Local.Address
	case deploy.AttesterRole:
		c, err := deploy.LoadAttester(path)
		if err != nil {
			return deployment, "", nil, ofInput(err, "starling serve attester --help shows a configuration to begin with")
		}
		at = c.Local.Address
	case deploy.HopRole:
		c, err := deploy.LoadHop(path)
		if err != nil {
			return deployment, "", nil, ofInput(err, "starling serve hop --help shows a configuration to begin with")
		}
		at = c.Local.Address
	default:
		return deployment, "", nil, failf(exitInput, "name leader.toml, helper.toml, hop.toml or attester.toml", "%s: a %s has no devices to count", path, role)
	}
	host := string(at)
	if at.IsUnix() {
		host = "local"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://%s%s?epoch=%d", host, deploy.CohortPath, epoch), bytes.NewReader([]byte("{}")))
	if err != nil {
		return deployment, "", nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := localClient(at).Do(req)
	if op := new(net.OpError); errors.As(err, &op) && op.Op == "dial" {
		return deployment, "", nil, failf(exitUnreachable, "starling serve "+string(role)+" "+path, "%s: the %s does not run", path, role)
	} else if err != nil {
		return deployment, "", nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxStatus))
	if err != nil {
		return deployment, "", nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return deployment, "", nil, failf(exitNotYet, "an epoch's number is public once it has begun: starling manifest show says when", "%s: %s", path, strings.TrimSpace(string(b)))
	}
	var said deploy.Cohort
	if err := json.Unmarshal(b, &said); err != nil {
		return deployment, "", nil, err
	}
	id, err := hex.DecodeString(said.Deployment)
	if err != nil || len(id) != len(deployment) {
		return deployment, "", nil, fmt.Errorf("%s: it names no deployment", path)
	}
	x := tlog.Cohort{Role: map[string]signed.Role{"leader": signed.Leader, "helper": signed.Helper, "attester": signed.Attester, "hop 1": signed.Hop1, "hop 2": signed.Hop2}[said.Role], Epoch: said.Epoch, Devices: said.Devices}
	content, err = x.Append(nil)
	return [32]byte(id), said.Owner, content, err
}

// outerAttester is an attester, as status and doctor look at it.
func outerAttester(path string, c *deploy.Attester) outer {
	serve := "starling serve attester " + path
	read := func(ctx context.Context) (*deploy.AttesterStatus, *service.Readiness, error) {
		s := new(deploy.AttesterStatus)
		if err := readLocal(ctx, c.Local.Address, s); err != nil {
			return nil, nil, err
		}
		ready, err := readReady(ctx, c.Local.Address)
		return s, ready, err
	}
	return outer{"attester", path, func(ctx context.Context) (any, func(io.Writer), error) {
		s, ready, err := read(ctx)
		if err != nil {
			return nil, nil, failf(exitUnreachable, serve, "%s: the attester: %w", path, err)
		}
		return map[string]any{"status": s, "ready": ready}, func(w io.Writer) {
			fmt.Fprintf(w, "attester\n  devices    %d are known\n", s.Devices)
			for _, word := range attester.Outcomes() {
				if n := s.Outcomes[word]; n > 0 {
					fmt.Fprintf(w, "  %-10s %d\n", word, n)
				}
			}
			writeReady(w, ready)
		}, nil
	}, func(ctx context.Context) []finding {
		if err := c.Check(); err != nil {
			return []finding{{Check: "files", Found: err.Error(), Hint: hintOf(err)}}
		}
		all := []finding{{Check: "files", OK: true, Found: "configuration, recipe, codes and key can be read"}}
		_, ready, err := read(ctx)
		switch {
		case errors.Is(err, errStopped):
			return append(all, finding{Check: "running", Found: "no: devices get no credentials for the next epoch", Hint: serve})
		case err != nil:
			return append(all, finding{Check: "running", Found: err.Error()})
		}
		return append(append(all, finding{Check: "running", OK: true, Found: "it answers on its local listener"}), readyFindings(ready)...)
	}}
}
