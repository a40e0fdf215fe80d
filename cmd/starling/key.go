package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
)

func keyCommand() *command {
	return &command{
		name:  "key",
		short: "Make the keys of owners, the lines that devices know them by, a collector's key, what parties share, verification keys and tokens, what wraps the keys of processes that share a database, and the keys of issuers and of tokens; wrap these again",
		sub:   []*command{keyRootCommand(), keyOnlineCommand(), keyAnchorCommand(), keyCollectorCommand(), keyVerifyCommand(), keyTokenCommand(), keyWrappingCommand(), keyIssuerCommand(), keyAdmissionCommand(), keyListCommand(), keyRewrapCommand()},
	}
}

func keyRootCommand() *command {
	return &command{
		name: "root", args: "[--json] --out FILE",
		short: "Make an owner's root key, which stays offline",
		long: `Recipes name the root's public half, and devices have it among their anchors. It signs online keys, which servers sign with, and
nothing else: keep FILE away from every server. An owner whose FILE is lost or stolen has to make new recipes.`,
		examples: [][2]string{{"starling key root --out leader.root", "once, for each owner and role"}},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			out := flags.String("out", "", "write the key to this `FILE`; required")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(_ context.Context, e *env, args []string) error {
				if err := noArgs("key root", args); err != nil {
					return err
				}
				if *out == "" {
					return usageOf("key root", errors.New("starling key root needs --out"))
				}
				k := signed.Generate()
				if err := writeNew(*out, 0o600, k.Marshal()); err != nil {
					return err
				}
				if *asJSON {
					return e.json(map[string]any{"key": *out, "public": k.Public(), "fingerprint": k.Public().Fingerprint()})
				}
				_, err := fmt.Fprintf(e.stdout, "root %s\npublic key %s\nfingerprint %s\n", *out, k.Public(), k.Public().Fingerprint())
				return err
			}
		},
	}
}

func keyOnlineCommand() *command {
	return &command{
		name: "online", args: "[--days N] [--json] --root FILE --out FILE",
		short: "Make an online key, and have the root vouch for it",
		long: `Beside the key it writes the root's word, with .delegation behind the name, which is public. Both go to the server; the root does
not. A thief of the key may sign as the server until its end, and no longer: make the next one before that.`,
		examples: [][2]string{{"starling key online --root leader.root --out secrets/leader.online", "for 90 days"}},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			root := flags.String("root", "", "the owner's root key, a `FILE`; required")
			out := flags.String("out", "", "write the key to this `FILE`; required")
			days := flags.Uint("days", 90, "it may sign for `N` days, at most 90")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(_ context.Context, e *env, args []string) error {
				if err := noArgs("key online", args); err != nil {
					return err
				}
				if *root == "" || *out == "" || *days < 1 || *days > 90 {
					return usageOf("key online", errors.New("starling key online needs --root and --out, and --days from 1 to 90"))
				}
				owner, err := readSigningKey(*root)
				if err != nil {
					return err
				}
				k := signed.Generate()
				// An hour back, for clocks that are slow.
				from := time.Now().UTC().Truncate(time.Second).Add(-time.Hour)
				d, err := signed.Delegate(owner, k.Public(), from, from.AddDate(0, 0, int(*days)))
				if err != nil {
					return err
				}
				if err := writeNew(*out, 0o600, k.Marshal()); err != nil {
					return err
				}
				if err := writeNew(*out+delegationSuffix, 0o644, d.MarshalFile()); err != nil {
					return err
				}
				if *asJSON {
					return e.json(map[string]any{"key": *out, "delegation": *out + delegationSuffix, "root": d.Root, "not_after": d.NotAfter})
				}
				_, err = fmt.Fprintf(e.stdout, "online key %s, delegation %s%s, until %s\n", *out, *out, delegationSuffix, d.NotAfter.Format(time.RFC3339))
				return err
			}
		},
	}
}

// delegationSuffix stands behind the name of an online key.
const delegationSuffix = ".delegation"

func keyAnchorCommand() *command {
	return &command{
		name: "anchor", args: "--name NAME --domain DOMAIN --owner OWNER [--json] (FILE | KEY)",
		short: "Print a root key's line for an anchors file",
		long: `An anchors file begins with the line "starling anchors v1" and comes with the devices' software, apart from recipes and
manifests. A device takes part only where a recipe's keys are among its anchors, the servers' addresses lie in the keys'
domains, and leader and helper are of two owners: whoever puts a line there says so, and should have asked.
KEY is a public key in hexadecimal digits, FILE a root key.`,
		examples: [][2]string{{"starling key anchor --name leader-example --domain leader.example --owner 'Example Foundation' leader.root", "one line"}},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			name := flags.String("name", "", "the key's `NAME`")
			domain := flags.String("domain", "", "the `DOMAIN` of the owner's servers")
			owner := flags.String("owner", "", "the `OWNER`, as people know it")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(_ context.Context, e *env, args []string) error {
				if len(args) != 1 || *name == "" || *domain == "" || *owner == "" {
					return usageOf("key anchor", errors.New("starling key anchor needs --name, --domain and --owner, and one key"))
				}
				key, err := signed.ParsePublicKey(args[0])
				if err != nil {
					k, err := readSigningKey(args[0])
					if err != nil {
						return err
					}
					key = k.Public()
				}
				a := signed.Anchor{Name: *name, Domain: *domain, Key: key, Owner: *owner}
				if err := a.Validate(); err != nil {
					return usageOf("key anchor", err)
				}
				if *asJSON {
					return e.json(map[string]any{"name": a.Name, "domain": a.Domain, "key": a.Key, "owner": a.Owner, "line": a.String()})
				}
				_, err = fmt.Fprintln(e.stdout, a)
				return err
			}
		},
	}
}

// publicSuffix stands behind the name of a collector's key.
const publicSuffix = ".public"

func keyCollectorCommand() *command {
	return &command{
		name: "collector", args: "[--kem KEM] [--json] --out FILE",
		short: "Make the key to which results are sealed",
		long: `Beside the key it writes its HPKE configuration, with .public behind the name: recipes bind it (recipe new --collector), and leader
and helper seal to it (collector_hpke of a task). The key itself stays with the collector (hpke_key).`,
		examples: [][2]string{{"starling key collector --out secrets/collector.hpke", "and secrets/collector.hpke.public"}},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			out := flags.String("out", "", "write the key to this `FILE`; required")
			kem := flags.String("kem", "x25519", "`KEM` of the key: x25519 or x-wing")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(_ context.Context, e *env, args []string) error {
				if err := noArgs("key collector", args); err != nil {
					return err
				}
				suite, known := map[string]sealed.Suite{"x25519": sealed.SuiteX25519, "x-wing": sealed.SuiteXWing}[*kem]
				switch {
				case *out == "":
					return usageOf("key collector", errors.New("starling key collector needs --out"))
				case !known:
					return usageOf("key collector", fmt.Errorf("--kem %q: want x25519 or x-wing", *kem))
				}
				pair, err := sealed.Generate(1, suite)
				if err != nil {
					return err
				}
				secret, err := pair.Marshal()
				if err != nil {
					return err
				}
				public, err := dap.NewHpkeConfig(pair).Append(nil)
				if err != nil {
					return err
				}
				if err := writeNew(*out, 0o600, secret); err != nil {
					return err
				}
				if err := writeNew(*out+publicSuffix, 0o644, public); err != nil {
					return err
				}
				if *asJSON {
					return e.json(map[string]any{"key": *out, "public": *out + publicSuffix})
				}
				_, err = fmt.Fprintf(e.stdout, "collector's key %s, HPKE configuration %s%s\n", *out, *out, publicSuffix)
				return err
			}
		},
	}
}

func readSigningKey(path string) (*signed.PrivateKey, error) {
	b, err := service.Secret(path).Read()
	if err != nil {
		return nil, ofInput(err, "starling key root --out FILE makes one")
	}
	k, err := signed.ParsePrivateKey(b)
	if err != nil {
		return nil, failf(exitInput, "starling key root --out FILE makes one", "%s: %w", path, err)
	}
	return k, nil
}

// anchorsEnv names the anchors file where --anchors does not.
const anchorsEnv = "STARLING_ANCHORS"

const anchorsUsage = "root keys that came with the software, a `FILE`; by default $" + anchorsEnv + ", or " + deploy.AnchorsFile + " beside this program"

// readAnchors reads the anchors that are given, or that come with the software.
func readAnchors(path string) (*signed.Anchors, error) {
	if path == "" {
		path = os.Getenv(anchorsEnv)
	}
	if path == "" {
		program, err := os.Executable()
		if err != nil {
			return nil, err
		}
		path = filepath.Join(filepath.Dir(program), deploy.AnchorsFile)
		if !exists(path) {
			return nil, failf(exitInput, "--anchors FILE, or export "+anchorsEnv+"=FILE: the file that came with the software; a lab has "+deploy.AnchorsFile,
				"the recipe names signing keys, and there are no anchors to hold them against")
		}
	}
	a, err := deploy.ReadAnchors(path)
	if err != nil {
		return nil, ofInput(err, "starling key anchor --help")
	}
	return a, nil
}

// keyFlags are those of recipe new about who vouches for keys.
type keyFlags struct {
	anchors, leader, helper, gateway, collector *string
	days                                        *uint
	attester, attesterKey, attestation, log     *string
	cohort                                      *uint64
	admission                                   *bool
}

func newKeyFlags(flags *flag.FlagSet) *keyFlags {
	return &keyFlags{
		anchors:     flags.String("anchors", "", anchorsUsage),
		leader:      flags.String("leader-key", "", "the leader's root key: its name among the anchors, or its digits: `KEY`"),
		helper:      flags.String("helper-key", "", "the helper's root key: `KEY`"),
		gateway:     flags.String("gateway-key", "", "the gateway's root key, with --relay: `KEY`"),
		collector:   flags.String("collector", "", "the collector's public HPKE key, to which results are sealed: a `FILE`"),
		days:        flags.Uint("epoch-days", recipe.DefaultEpochLength/86400, "a manifest holds for `N` days"),
		attester:    flags.String("attester", "", "count devices: the `URL` of who vouches for them, which leader and helper each give a credential for every epoch"),
		attesterKey: flags.String("attester-key", "", "the attester's root key: `KEY`"),
		attestation: flags.String("attestation", recipe.Codes.String(), "how the attester tells devices apart, `KIND`: codes, oidc or mtls"),
		cohort:      flags.Uint64("min-cohort", recipe.DefaultCohort, "devices show credentials once `N` have some"),
		admission:   flags.Bool("admission", false, "with --attester: requests show the gateway a token of the round, so that what it mixes counts devices"),
		log:         flags.String("log", "", "the transparency log that the recipe and all keys stand in, its origin: `NAME`"),
	}
}

// A typedKey is a root key as it was typed, empty for none, and where it goes.
type typedKey struct {
	text string
	key  *signed.PublicKey
}

// read reads keys by their digits, or by their names among the anchors.
func (f *keyFlags) read(list []typedKey) (err error) {
	var anchors *signed.Anchors
	for _, x := range list {
		if x.text == "" {
			continue
		}
		if *x.key, err = signed.ParsePublicKey(x.text); err == nil {
			continue
		}
		if anchors == nil {
			if anchors, err = readAnchors(*f.anchors); err != nil {
				return err
			}
		}
		found := false
		for _, a := range anchors.List() {
			if a.Name == x.text {
				*x.key, found = a.Key, true
			}
		}
		if !found {
			return failf(exitInput, "starling key anchor --help", "no anchor has the name %q", x.text)
		}
	}
	return nil
}

// kind is how the attester tells devices apart.
func (f *keyFlags) kind() (recipe.Attestation, error) {
	for _, kind := range []recipe.Attestation{recipe.Codes, recipe.OIDC, recipe.MTLS} {
		if kind.String() == *f.attestation {
			return kind, nil
		}
	}
	return 0, fmt.Errorf("--attestation %q: want codes, oidc or mtls", *f.attestation)
}

// set fills in the options' keys.
func (f *keyFlags) set(o *account.Options) error {
	if (*f.attester != "") != (*f.attesterKey != "") {
		return usageOf("recipe new", errors.New("--attester and --attester-key go together"))
	}
	if *f.admission && *f.attester == "" {
		return usageOf("recipe new", errors.New("--admission goes with --attester"))
	}
	attestation, err := f.kind()
	if err != nil {
		return usageOf("recipe new", err)
	}
	if attestation != recipe.Codes && *f.attester == "" {
		return usageOf("recipe new", errors.New("--attestation goes with --attester"))
	}
	if *f.leader == "" && *f.helper == "" && *f.gateway == "" && *f.collector == "" {
		if *f.attester != "" || *f.log != "" {
			return usageOf("recipe new", errors.New("--attester and --log need --leader-key, --helper-key, --gateway-key, --collector and --relay"))
		}
		return nil
	}
	if *f.leader == "" || *f.helper == "" || *f.collector == "" || (*f.gateway != "") != (o.Relay != nil) {
		return usageOf("recipe new", errors.New("--leader-key, --helper-key and --collector go together, and --gateway-key with --relay"))
	}
	b, err := os.ReadFile(*f.collector)
	if err != nil {
		return ofInput(err, "--collector FILE is the collector's public key: starling key collector")
	}
	hash, err := deploy.CollectorHash(b)
	if err != nil {
		return failf(exitInput, "--collector FILE is the collector's public key: starling key collector", "%s: %w", *f.collector, err)
	}
	k := &recipe.ServerKeys{Collector: hash, EpochLength: uint32(*f.days) * 86400}
	if *f.attester != "" {
		o.Tokens = &recipe.Tokens{Attester: *f.attester, Attestation: attestation, MinCohort: *f.cohort, Admission: *f.admission}
	}
	if *f.log != "" {
		o.Log = &recipe.Log{Origin: *f.log}
	}
	var attester signed.PublicKey
	if err := f.read([]typedKey{{*f.leader, &k.Leader}, {*f.helper, &k.Helper}, {*f.gateway, &k.Gateway}, {*f.attesterKey, &attester}}); err != nil {
		return err
	}
	if o.ServerKeys = k; o.Tokens != nil {
		o.Tokens.Key = attester
	}
	return nil
}
