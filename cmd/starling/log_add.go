package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/starling-agg/starling/anonymity/logserver"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/logged"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

func logAddCommand() *command {
	return &command{
		name: "add", args: "[--log URL] [--signing-key FILE] [--release | --key-list | --batch | --withdraw | --census | --cohort N] [--proof FILE] [--wait TIME] [--json] --policy FILE FILE",
		short: "Have a manifest, a recipe, a key list or a release logged, or one withdrawn",
		long: `FILE is a manifest that all three have signed, or of the shuffled path its gateway, or a recipe, which the command tells apart; with
--key-list a key list of a leader or helper as it hands it out, or the file rounds/N/list of a hop's or an analyzer's data,
which puts it there itself; with --batch the manifest of a round that both hops have signed, which the analyzer puts there
itself; with --cohort the configuration of a running leader, helper, hop or attester, which says for how many devices there are credentials of epoch N; with --release any file, of which the log gets name and SHA-256; with --census a
targeted recipe, of whose attributes the owner says that so many devices have them: devices ask for the word of leader and of helper
before they take the recipe. With --withdraw FILE is a proof
(.tlog-proof) of an entry that is to hold no more. Recipes, releases, censuses and withdrawals are signed with an owner's online key; the
log takes what the owners among its anchors have signed. When the command returns, the entry is on the log's disk and has its
place for ever. It waits until enough witnesses have signed, and writes the proof with --proof: whoever has policy and proof
can verify it without asking anybody.`,
		examples: [][2]string{
			{"starling log add --policy log.policy --proof next.tlog-proof epochs/2.manifest", "the next epoch's manifest"},
			{"starling log add --policy log.policy --signing-key secrets/leader.online --proof recipe.tlog-proof recipe.starling", "a recipe, by the leader's owner"},
			{"starling log add --policy log.policy --signing-key secrets/leader.online --withdraw recipe.tlog-proof", "the recipe holds no more"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			policyFile := flags.String("policy", "", policyUsage)
			at := flags.String("log", "", "the log's `URL`, where the policy has none")
			key := flags.String("signing-key", "", "an owner's online key, a `FILE`")
			delegation := flags.String("delegation", "", "the root's word for it, a `FILE`; default that of --signing-key with "+delegationSuffix+" behind it")
			isList := flags.Bool("key-list", false, "FILE is a key list")
			isBatch := flags.Bool("batch", false, "FILE is what both hops signed of a round's batch")
			isRelease := flags.Bool("release", false, "log name and SHA-256 of FILE")
			isCensus := flags.Bool("census", false, "say that the devices which the recipe FILE asks are as many as it says")
			isEnd := flags.Bool("withdraw", false, "FILE is the proof of what is withdrawn")
			epoch := flags.Uint64("cohort", 0, "log how many devices there are of epoch `N`, by the party whose configuration FILE is")
			proofFile := flags.String("proof", "", "write the proof to this `FILE`")
			wait := flags.Duration("wait", 2*time.Minute, "wait this `TIME` for the witnesses; 0 waits for none")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				path, err := oneFile("log add", args, "")
				if err != nil {
					return err
				}
				if path == "" || *wait < 0 || *proofFile != "" && *wait == 0 {
					return usageOf("log add", errors.New("starling log add needs a file, and time to wait for a proof"))
				}
				p, err := readPolicyFile("log add", *policyFile)
				if err != nil {
					return err
				}
				remote, err := logURL(p, *at)
				if err != nil {
					return err
				}
				if *proofFile != "" && exists(*proofFile) {
					return failf(exitInput, "name another file, or move this one away", "%s exists", *proofFile)
				}
				m := entryMaker{list: *isList, batch: *isBatch, release: *isRelease, withdraw: *isEnd, census: *isCensus, key: *key, delegation: *delegation}
				var entry tlog.Entry
				if *epoch > 0 {
					var deployment [32]byte
					var content []byte
					if deployment, m.owner, content, err = cohort(ctx, path, *epoch); err == nil {
						m.of = path
						entry, err = m.state(tlog.KindCohort, deployment, content)
					}
				} else {
					entry, err = m.make(path, p)
				}
				if err != nil {
					return err
				}
				b, err := entry.Append(nil)
				if err != nil {
					return failf(exitInput, fmt.Sprintf("an entry holds %d bytes at most", tlog.MaxBody), "%s: %w", path, err)
				}
				index, known, err := remote.Add(ctx, logserver.EntryMedia, b)
				if err != nil {
					return away(err)
				}
				leaf := tlog.LeafHash(b)
				var w *tlog.Witnessed
				if *wait > 0 {
					if w, err = awaitEntry(ctx, remote, p, index, b, *wait, *proofFile); err != nil {
						return err
					}
				}
				if *asJSON {
					fields := map[string]any{"kind": entry.Kind.String(), "index": index, "known": known, "hash": hex.EncodeToString(leaf[:]), "witnessed": w != nil}
					if *proofFile != "" {
						fields["proof"] = *proofFile
					}
					return e.json(fields)
				}
				fmt.Fprintf(e.stdout, "entry %d, %s", index, entry.Kind)
				if known {
					fmt.Fprint(e.stdout, ", which was there before")
				}
				if w != nil {
					fmt.Fprintf(e.stdout, ": under a checkpoint of %d entries, signed by %s", w.Size, signersOf(w))
				}
				if *proofFile != "" {
					fmt.Fprintf(e.stdout, "\nproof %s", *proofFile)
				}
				_, err = fmt.Fprintln(e.stdout)
				return err
			}
		},
	}
}

// signersOf are the witnesses that have signed, in words.
func signersOf(w *tlog.Witnessed) string {
	var names []string
	for _, c := range w.Cosigned {
		names = append(names, c.Witness)
	}
	if names == nil {
		return "the log alone"
	}
	return strings.Join(names, ", ")
}

// An entryMaker makes an entry of a file.
type entryMaker struct {
	list, batch, release, withdraw, census bool
	key, delegation                        string
	// owner is whose root key has to say it, in hexadecimal digits, and of the party that the
	// configuration is of; "" for anybody.
	owner, of string
}

func (m entryMaker) make(path string, p *tlog.Policy) (tlog.Entry, error) {
	var none tlog.Entry
	if one := map[bool]int{true: 1}; one[m.list]+one[m.batch]+one[m.release]+one[m.withdraw]+one[m.census] > 1 {
		return none, usageOf("log add", errors.New("--key-list, --batch, --release, --census and --withdraw are five ways to read FILE: name one"))
	}
	if m.release {
		return m.ofRelease(path)
	}
	limit := int64(tlog.MaxBody)
	if m.withdraw {
		limit = tlog.MaxProof
	}
	b, err := readLimited("log add", path, limit)
	if err != nil {
		return none, err
	}
	switch {
	case m.list:
		kind := tlog.KindKeyList
		if _, _, err := onion.ReadKeyList(b); err == nil {
			kind = tlog.KindShuffleKeys
		}
		return tlog.Entry{Kind: kind, Body: b}, nil
	case m.batch:
		return tlog.Entry{Kind: tlog.KindBatch, Body: b}, nil
	case m.withdraw:
		_, entry, err := openEntryProof(b, p)
		if err != nil {
			return none, err
		}
		leaf := tlog.LeafHash(entry)
		return m.state(tlog.KindWithdrawal, [32]byte{}, leaf[:])
	case bytes.HasPrefix(b, []byte(manifestStart)):
		kind := tlog.KindManifest
		if x, err := ohttp.ReadManifest(b); err == nil && len(x.Signatures) == 1 && x.Signatures[0].Role == signed.Gateway {
			kind = tlog.KindFrontManifest
		}
		return tlog.Entry{Kind: kind, Body: b}, nil
	case len(b) > 0 && b[0] == recipe.Version:
		alone, _, err := recipe.SplitFile(b)
		var r *recipe.Recipe
		if err == nil {
			r, err = recipe.Read(alone)
		}
		var deployment [32]byte
		if err == nil {
			deployment, err = r.Deployment()
		}
		if err != nil {
			return none, ofInput(fmt.Errorf("%s: %w", path, err), "a recipe that is logged names its servers' signing keys: starling recipe new --help")
		}
		if !m.census {
			return m.state(tlog.KindRecipe, deployment, b)
		}
		return m.ofCensus(path, r, deployment)
	}
	return none, failf(exitInput, "starling log add --help says what can be logged, and which flag says so", "%s is no manifest and no recipe", path)
}

// ofCensus is the entry of what a targeted recipe rests on.
func (m entryMaker) ofCensus(path string, r *recipe.Recipe, deployment [32]byte) (tlog.Entry, error) {
	const hint = "starling recipe new --target ... --certificate RECIPE:LOWER:LEAST makes one"
	if r.Targeting == nil {
		return tlog.Entry{}, failf(exitInput, hint, "%s asks everybody, and needs no census", path)
	}
	if err := r.Validate(); err != nil {
		return tlog.Entry{}, ofInput(fmt.Errorf("%s: %w", path, err), hint)
	}
	b, err := r.Targeting.Census().Append(nil)
	if err != nil {
		return tlog.Entry{}, ofInput(fmt.Errorf("%s: %w", path, err), hint)
	}
	return m.state(tlog.KindCensus, deployment, b)
}

// ofRelease is the entry of a file of software.
func (m entryMaker) ofRelease(path string) (tlog.Entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return tlog.Entry{}, ofInput(err, "name the file that is released")
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return tlog.Entry{}, ofInput(err, "name the file that is released")
	}
	r := tlog.Release{Name: filepath.Base(path), Digest: [32]byte(h.Sum(nil))}
	b, err := r.Append(nil)
	if err != nil {
		return tlog.Entry{}, failf(exitInput, "its name has 255 bytes at most", "%s: %w", path, err)
	}
	return m.state(tlog.KindRelease, [32]byte{}, b)
}

// state has the owner say something.
func (m entryMaker) state(kind tlog.Kind, deployment [32]byte, content []byte) (tlog.Entry, error) {
	if m.key == "" {
		return tlog.Entry{}, usageOf("log add", fmt.Errorf("a %s is signed by an owner: starling log add needs --signing-key", kind))
	}
	if m.delegation == "" {
		m.delegation = m.key + delegationSuffix
	}
	s, err := deploy.ReadSigner(service.Secret(m.key), m.delegation)
	if err != nil {
		return tlog.Entry{}, ofInput(err, "starling key online --help")
	}
	if m.owner != "" && s.Root().String() != m.owner {
		return tlog.Entry{}, failf(exitInput, fmt.Sprintf("name the online key of the owner of %s: --signing-key FILE", m.of),
			"%s is the key of another owner (root %s) than that of %s (root %s): no device would believe it", m.key, s.Root(), m.of, m.owner)
	}
	e, err := tlog.State(kind, deployment, content, s, time.Now())
	if err != nil {
		return e, ofInput(err, "make a new online key where this one has ended: starling key online --help")
	}
	return e, nil
}

// awaitEntry waits until an entry is under a checkpoint that the policy takes, and verifies
// and writes the proof of it, which has the entry along.
func awaitEntry(ctx context.Context, remote logged.Remote, p *tlog.Policy, index int64, entry []byte, wait time.Duration, file string) (*tlog.Witnessed, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		w, err := shownPast(ctx, remote, p, index)
		if err != nil {
			return nil, err
		}
		if w != nil {
			hashes, err := tlog.NewTree(&w.Checkpoint, remote.Files(ctx)).Prove(index)
			if err != nil {
				return nil, away(err)
			}
			proof := &tlog.Proof{Extra: entry, Index: index, Hashes: hashes, Note: w.Note}
			if _, err := p.OpenProof(proof, entry, time.Now()); err != nil {
				return nil, &failure{exitCheck, err, "the log says that the entry is at that place, and shows another: keep both, and tell its witnesses"}
			}
			if file == "" {
				return w, nil
			}
			return w, writeNew(file, 0o644, proof.Append(nil))
		}
		select {
		case <-ctx.Done():
			return nil, failf(exitNotYet, "type the same again, with a longer --wait: the entry keeps its place; starling doctor log.toml says which witness is missing",
				"the entry is in the log at place %d, and not yet signed by enough witnesses", index)
		case <-time.After(500 * time.Millisecond):
		}
	}
}
