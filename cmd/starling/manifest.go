package main

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/exchange"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/sealed"
)

// kems are the names of the KEMs that a gateway's key may have.
var kems = map[string]sealed.Suite{"x25519": sealed.SuiteX25519, "x-wing": sealed.SuiteXWing}

func manifestCommand() *command {
	return &command{
		name:  "manifest",
		short: "Make and read manifests: the relay, the gateway's key and the aggregators' keys, the same for every device",
		sub:   []*command{manifestNewCommand(), manifestSignCommand(), manifestVerifyCommand(), manifestShowCommand()},
	}
}

func manifestNewCommand() *command {
	return &command{
		name: "new", args: "[--relay URL] --key FILE [--second FILE] [--id N] [--days N] [--kem KEM] [--json] --out FILE RECIPE...",
		short: "Make a gateway's key for an epoch, and the manifest that tells devices of it",
		long: `The recipe says who leader and helper are; their current public keys are asked for and written into the manifest, so that
no device needs to ask: both must run. Key and manifest must not exist. A key is made once, and a new epoch needs a new one. Where both are
written into the gateway's directory of epochs, under one name with .key and .manifest behind it, the gateway uses the key at once
and destroys it after the manifest's end: make the next epoch's some days before that, and give devices the new manifest.
Without --days the manifest ends when leader or helper no longer promise to take the keys (hpke_key_max_age), after a week
at most.
Where the recipes name signing keys, leader and helper sign the manifest for who brings --token, and the gateway's owner with
--signing-key. Until all three have, there is a draft, FILE.draft, with which the same command goes on, and which others sign
by starling manifest sign. Each signs one manifest an epoch, and none by which devices would still try when their round is released. It holds for one epoch of the recipes', from now or from the end
of --previous on. Where recipes count devices, these visit for their credentials before it begins: a first one, or a --revision, has them do so in its
--lead. Name all recipes of the deployment: devices answer no other. On a path without leader and helper the gateway signs alone, and where contributions
show credentials --leader-issuer and --helper-issuer are those beside hop 1 and hop 2.`,
		examples: [][2]string{
			{"starling manifest new --relay https://relay.example/ --key gateway.key --out manifest.starling recipe.starling", "for a week"},
			{"starling manifest new --relay https://relay.example/ --id 2 --key epochs/2.key --out epochs/2.manifest recipe.starling",
				"another, while the gateway runs"},
			{"starling manifest new --key epochs/3.key --second epochs/3.second.key --out epochs/3.manifest --previous epochs/2.manifest " +
				"--token manifest.token --signing-key gateway.online --record gateway.signed recipe.starling", "the next epoch, signed by all three"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			relay := flags.String("relay", "", "the relay's `URL`; required where the recipe does not name it")
			ceremony := newCeremony(flags)
			key := flags.String("key", "", "write the gateway's key to this `FILE`; required")
			out := flags.String("out", "", "write the manifest to this `FILE`; required")
			id := flags.Uint("id", 1, "the key's id `N`, another than those of keys still in use")
			days := flags.Uint("days", 0, "devices may use the manifest for `N` days, at most 7, whatever the aggregators promise")
			every := flags.Duration("every", ohttp.DefaultEvery, "devices try this `TIME` apart until the gateway answers, within the recipe's grace: whole seconds")
			asJSON := flags.Bool("json", false, "print one JSON object")
			kem := flags.String("kem", "x25519", "the key's `KEM`: x25519, or x-wing against later quantum computers")
			return func(ctx context.Context, e *env, args []string) error {
				suite, known := kems[*kem]
				switch {
				case len(args) < 1 || *key == "" || *out == "":
					return usageOf("manifest new", errors.New("starling manifest new needs --key, --out and a recipe"))
				case !known:
					return usageOf("manifest new", fmt.Errorf("--kem %q: want x25519 or x-wing", *kem))
				case *ceremony.tries < 1 || *ceremony.tries > ohttp.MaxTries:
					return usageOf("manifest new", fmt.Errorf("--tries wants 1 to %d", ohttp.MaxTries))
				case *id > 255 || *days > 7:
					return usageOf("manifest new", errors.New("--id wants 0 to 255, --days 1 to 7"))
				}
				checked, err := deploy.OpenRecipe(args[0])
				if err != nil {
					return ofInput(err, noRecipe)
				}
				r := checked.Recipe()
				pace := &ohttp.Manifest{Tries: uint8(*ceremony.tries), Every: *every}
				if err := pace.CheckSending(r.MaxSending()); err != nil {
					return &failure{exitCheck, fmt.Errorf("%s: %w", args[0], err), hintOf(err)}
				}
				files := manifestFiles{key: *key, out: *out, id: uint8(*id), suite: suite, days: *days, every: *every, asJSON: *asJSON}
				if !r.Path.Proofs() && r.Relay != nil {
					if *relay != "" && *relay != r.Relay.URL {
						return failf(exitInput, "leave --relay out", "%s names another relay", args[0])
					}
					return ceremony.front(e, files, args)
				}
				if r.ServerKeys != nil {
					if *relay != "" && (r.Relay == nil || *relay != r.Relay.URL) {
						return failf(exitInput, "leave --relay out", "%s names another relay, or none", args[0])
					}
					return ceremony.run(ctx, e, files, args)
				}
				for _, path := range []string{*key, *out} {
					if exists(path) {
						return failf(exitInput, "name another file, or move this one away", "%s exists", path)
					}
				}
				if len(args) != 1 || *relay == "" || ceremony.given() {
					return usageOf("manifest new", errors.New("the recipe names no signing keys: starling manifest new needs --relay and one recipe, and signs nothing"))
				}
				path, ok := r.Path.(recipe.TwoServer)
				if !ok {
					return failf(exitInput, "starling recipe show "+args[0], "%s: the recipe does not go through a leader and a helper", args[0])
				}
				pair, err := sealed.Generate(uint8(*id), suite)
				if err != nil {
					return err
				}
				now := time.Now().UTC().Truncate(time.Second)
				m := &ohttp.Manifest{
					Epoch: ohttp.EpochAt(now, ohttp.DefaultEpoch), Length: ohttp.DefaultEpoch, NotBefore: now, NotAfter: now.Add(longestManifest),
					Relay: *relay, Gateway: []ohttp.KeyConfig{ohttp.NewKeyConfig(pair)}, Tries: pace.Tries, Every: *every, Hold: *ceremony.hold,
					Targets: []string{path.Leader},
				}
				for _, base := range []string{path.Leader, path.Helper} {
					p, promised, err := pinnedKeys(ctx, base)
					if err != nil && (*days == 0 || !errors.Is(err, errNoPromise)) {
						return &failure{exitUnreachable, fmt.Errorf("keys of %s: %w", base, err), hintOfAway(err, base, path)}
					}
					m.Pinned = append(m.Pinned, p)
					if end := now.Add(promised); end.Before(m.NotAfter) {
						m.NotAfter = end
					}
				}
				if *days > 0 {
					m.NotAfter = now.AddDate(0, 0, int(*days))
				}
				b, err := m.Append(nil)
				if err != nil {
					return &failure{exitInput, err, "starling manifest new --help"}
				}
				secret, err := pair.Marshal()
				if err != nil {
					return err
				}
				if err := writeNew(*key, 0o600, secret); err != nil {
					return err
				}
				if err := writeNew(*out, 0o644, b); err != nil {
					return err
				}
				if *asJSON {
					return e.json(map[string]any{"epoch": m.Epoch, "key": *key, "manifest": *out, "not_after": m.NotAfter})
				}
				fmt.Fprintf(e.stdout, "epoch %d: key %s, manifest %s, until %s\n", m.Epoch, *key, *out, m.NotAfter.Format(time.RFC3339))
				return nil
			}
		},
	}
}

// hintOfAway says whom to ask after an aggregator that did not answer.
func hintOfAway(err error, base string, path recipe.TwoServer) string {
	if hint := hintOfCertificate(err); hint != "" {
		return hint
	}
	name := "leader"
	if base == path.Helper {
		name = "helper"
	}
	return fmt.Sprintf("nothing was written; start the %s, or have its owner look: starling doctor %s.toml; then type the same again", name, name)
}

// longestManifest is how long devices may use a manifest unless its maker says otherwise.
const longestManifest = ohttp.DefaultEpoch

// pinnedKeys asks an aggregator for its keys, and how long it promises to take them.
func pinnedKeys(ctx context.Context, base string) (p ohttp.Pinned, promised time.Duration, err error) {
	u, err := dap.BaseURL([]byte(base))
	if err != nil {
		return p, 0, err
	}
	u = dap.ResourceURL(u, dap.HpkeConfigPath)
	const maxList = 32 << 10
	answer, err := exchange.Do(ctx, exchange.DefaultDoer(10*time.Second), exchange.Request{
		Method: http.MethodGet, URL: u, Want: dap.MediaHpkeConfigList, MaxBody: maxList,
	}, exchange.Retry{Attempts: 2, First: time.Second, Longest: time.Second})
	if err != nil {
		return p, 0, err
	}
	list, err := dap.ReadHpkeConfigList(answer.Body)
	if err != nil {
		return p, 0, err
	}
	if _, err := list.Choose(); err != nil {
		return p, 0, err
	}
	promised, err = promise(answer.Header.Get("Cache-Control"))
	return ohttp.Pinned{URL: u.String(), Media: dap.ContentType(dap.MediaHpkeConfigList), Body: answer.Body}, promised, err
}

// promise is the max-age of a Cache-Control.
func promise(control string) (time.Duration, error) {
	for directive := range strings.SplitSeq(control, ",") {
		if seconds, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(directive)), "max-age="); ok {
			if n, err := strconv.ParseUint(seconds, 10, 31); err == nil && n > 0 {
				return time.Duration(n) * time.Second, nil
			}
		}
	}
	return 0, errNoPromise
}

var errNoPromise = errors.New("it does not say how long its keys may be used (Cache-Control); --days does that in its place")

// writeNew writes a file that must not exist yet.
func writeNew(path string, mode fs.FileMode, b []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if errors.Is(err, fs.ErrExist) {
		return failf(exitInput, "name another file, or move this one away", "%s exists", path)
	} else if err != nil {
		return ofInput(err, "name a file in a directory that can be written to")
	}
	return fillNew(f, b)
}

// fillNew writes a new file, and removes what a full disk took of it, so that the same
// command can be typed again.
func fillNew(f *os.File, b []byte) error {
	_, err := f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

const noManifest = "starling manifest new --help says how to make one"

// readManifest reads and validates a manifest file.
func readManifest(path string) (*ohttp.Manifest, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, ofInput(err, noManifest)
	}
	if info.Size() > ohttp.MaxManifest {
		return nil, failf(exitInput, noManifest, "%s: larger than %d bytes", path, ohttp.MaxManifest)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, ofInput(err, noManifest)
	}
	m, err := ohttp.ReadManifest(b)
	if err != nil {
		return nil, failf(exitInput, noManifest, "%s: %w", path, err)
	}
	return m, nil
}

// kemName is what people call the KEM of a key.
func kemName(k ohttp.KeyConfig) string {
	for name, s := range kems {
		if s.KEM == k.KEM {
			return name
		}
	}
	return fmt.Sprintf("%#04x", k.KEM)
}

func manifestShowCommand() *command {
	return &command{
		name: "show", args: "[--json] FILE",
		short:    "Say what a manifest holds",
		long:     `Two devices with the same digest have the same manifest. One that was given another can be told from the rest.`,
		examples: [][2]string{{"starling manifest show manifest.starling", "read and validate it"}},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(_ context.Context, e *env, args []string) error {
				path, err := oneFile("manifest show", args, "manifest.starling")
				if err != nil {
					return err
				}
				m, err := readManifest(path)
				if err != nil {
					return err
				}
				sum, err := m.Digest()
				if err != nil {
					return err
				}
				if *asJSON {
					pinned := []string{}
					for _, p := range m.Pinned {
						pinned = append(pinned, p.URL)
					}
					shown := map[string]any{"digest": hex.EncodeToString(sum[:]), "epoch": m.Epoch, "not_before": m.NotBefore,
						"not_after": m.NotAfter, "relay": m.Relay, "kem": kemName(m.Gateway[0]), "targets": m.Targets, "pinned": pinned,
						"revision": m.Revision, "signed": signers(m), "tries": m.Tries, "seconds_between_tries": m.Every / time.Second,
						"hold_seconds": m.Hold / time.Second}
					if x := m.Issuers; x != nil {
						shown["issuers"] = map[string]any{"leader": hex.EncodeToString(x.Leader[:]), "helper": hex.EncodeToString(x.Helper[:]), "attester": x.Attester, "devices": x.Cap,
							"admission": len(x.Admission)}
					}
					return e.json(shown)
				}
				fmt.Fprintf(e.stdout, "digest  %x\nepoch   %d, revision %d, from %s until %s\ntries   %d, one every %v\nhold    %v by the gateway\nrelay   %s\n", sum, m.Epoch, m.Revision,
					m.NotBefore.Format(time.RFC3339), m.NotAfter.Format(time.RFC3339), m.Tries, m.Every, m.Hold, m.Relay)
				for _, k := range m.Gateway {
					fmt.Fprintf(e.stdout, "key     %d, %s\n", k.ID, kemName(k))
				}
				for _, t := range m.Targets {
					fmt.Fprintf(e.stdout, "target  %s\n", t)
				}
				if m.Deployment != [32]byte{} {
					fmt.Fprintf(e.stdout, "deployment  %x\nprevious    %x\n", m.Deployment, m.Previous)
				}
				for _, id := range m.Recipes {
					fmt.Fprintf(e.stdout, "recipe  %x\n", id)
				}
				if x := m.Issuers; x != nil {
					fmt.Fprintf(e.stdout, "devices  %d at most get credentials, before it begins, by the attester of fingerprint %s\nleader's issuer  %x\nhelper's issuer  %x\n", x.Cap,
						x.Attester.Fingerprint(), x.Leader, x.Helper)
					for _, k := range x.Admission {
						fmt.Fprintf(e.stdout, "admission  of recipe %x by keys of digest %x\n", k.Recipe, k.Keys)
					}
				}
				for _, s := range m.Signatures {
					fmt.Fprintf(e.stdout, "signed  as %s by the root %s\n", s.Role, s.Signature.Delegation.Root.Fingerprint())
				}
				for _, p := range m.Pinned {
					fmt.Fprintf(e.stdout, "pinned  %s, %d bytes\n", p.URL, len(p.Body))
				}
				return nil
			}
		},
	}
}
