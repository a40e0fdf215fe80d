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
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/endpoint"
	"github.com/starling-agg/starling/internal/logged"
	"github.com/starling-agg/starling/recipe"
)

func logCommand() *command {
	return &command{
		name:  "log",
		short: "Make the keys of transparency logs and witnesses, have something logged, look at a log and verify what it says",
		sub:   []*command{logKeyCommand(), logAddCommand(), logShowCommand(), logVerifyCommand()},
	}
}

const (
	noPolicy    = "docs/log.md says how a policy is written; who runs the log hands it out"
	policyUsage = "the log, its witnesses and which of them must have signed, a `FILE`; required"
)

func logKeyCommand() *command {
	return &command{
		name: "key", args: "[--witness] [--json] --name NAME --out FILE",
		short: "Make the key of a log, or of a witness",
		long: `A log's NAME is its origin: the address at which it is reached, without https://. It prints what a policy names the key by.
A witness's FILE has two keys, of which a policy names either: Ed25519, which everybody takes, and ML-DSA-44, against later
quantum computers. A witness signs with both.`,
		examples: [][2]string{
			{"starling log key --name log.example/2026 --out secrets/log.key", "for log.toml"},
			{"starling log key --witness --name witness.example/1 --out secrets/witness.key", "for witness.toml"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			name := flags.String("name", "", "the log's origin or the witness's `NAME`; required")
			out := flags.String("out", "", "write the key to this `FILE`; required")
			isWitness := flags.Bool("witness", false, "of a witness")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(_ context.Context, e *env, args []string) error {
				if err := noArgs("log key", args); err != nil {
					return err
				}
				if *name == "" || *out == "" {
					return usageOf("log key", errors.New("starling log key needs --name and --out"))
				}
				schemes := []tlog.Scheme{tlog.Ed25519}
				if *isWitness {
					schemes = []tlog.Scheme{tlog.CosignEd, tlog.CosignMLDSA}
				}
				var file []byte
				var public []string
				for _, scheme := range schemes {
					s, err := tlog.Generate(*name, scheme)
					if err != nil {
						return usageOf("log key", err)
					}
					file, public = append(file, s.Marshal()...), append(public, s.Key().String())
				}
				if err := writeNew(*out, 0o600, file); err != nil {
					return err
				}
				if *asJSON {
					return e.json(map[string]any{"key": *out, "public": public})
				}
				_, err := fmt.Fprintf(e.stdout, "key %s\n%s\n", *out, strings.Join(public, "\n"))
				return err
			}
		},
	}
}

// logURL is where the policy's log is, or what a flag says instead.
func logURL(p *tlog.Policy, given string) (logged.Remote, error) {
	if given == "" {
		for _, l := range p.Logs() {
			if l.URL != "" {
				given = l.URL
			}
		}
	}
	if given == "" {
		return logged.Remote{}, failf(exitUsage, "--log https://log.example/", "the policy does not say where the log is")
	}
	if _, err := endpoint.Parse(given); err != nil {
		return logged.Remote{}, failf(exitUsage, "--log https://log.example/", "the log's address: %w", err)
	}
	return logged.Remote{URL: given, Client: &http.Client{Timeout: 30 * time.Second}}, nil
}

// readPolicyFile reads the policy that a flag names.
func readPolicyFile(command, path string) (*tlog.Policy, error) {
	if path == "" {
		return nil, usageOf(command, fmt.Errorf("starling %s needs --policy", command))
	}
	p, err := deploy.ReadPolicy(path)
	if err != nil {
		return nil, ofInput(err, noPolicy)
	}
	return p, nil
}

// away is an error of a log that was asked.
func away(err error) error {
	refused, status := new(logged.RefusedError), new(logged.StatusError)
	switch {
	case errors.As(err, &refused):
		return &failure{exitCheck, err, "docs/log.md says what a log takes, and of whom"}
	case errors.As(err, &status) && status.Status == http.StatusServiceUnavailable:
		return &failure{exitNotYet, err, "try again in a minute; starling doctor log.toml says which witness is missing"}
	case hintOfCertificate(err) != "":
		return &failure{exitUnreachable, err, hintOfCertificate(err)}
	}
	return &failure{exitUnreachable, fmt.Errorf("the log: %w", err), "check the address, or have its owner look: starling doctor log.toml"}
}

const manifestStart = "starling manifest v"

// readLimited reads a file of at most a number of bytes, which a command names.
func readLimited(command, path string, limit int64) ([]byte, error) {
	hint := "starling " + command + " --help says which files are meant"
	if err := notDirectory(command, path); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, ofInput(err, hint)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, ofInput(err, hint)
	}
	if int64(len(b)) > limit {
		return nil, failf(exitInput, hint, "%s has more than %d bytes", path, limit)
	}
	return b, nil
}

// shownPast is the checkpoint that a log shows, if an entry is under it.
func shownPast(ctx context.Context, remote logged.Remote, p *tlog.Policy, index int64) (*tlog.Witnessed, error) {
	note, err := remote.Checkpoint(ctx)
	status := new(logged.StatusError)
	if ctx.Err() != nil || errors.As(err, &status) && status.Status == http.StatusServiceUnavailable {
		return nil, nil
	}
	if err != nil {
		return nil, away(err)
	}
	w, err := p.Open(note, time.Now())
	if err != nil {
		return nil, &failure{exitCheck, err, noPolicy}
	}
	if w.Size <= index {
		return nil, nil
	}
	return w, nil
}

// openEntryProof reads a proof's file that has its entry along, and verifies it.
func openEntryProof(b []byte, p *tlog.Policy) (*tlog.Witnessed, []byte, error) {
	proof, err := tlog.ReadProof(b)
	if err != nil {
		return nil, nil, failf(exitInput, "starling log add --proof writes one", "%w", err)
	}
	w, err := p.OpenProof(proof, proof.Extra, time.Now())
	if err != nil {
		return nil, nil, &failure{exitCheck, err, "the proof is of another entry or log, or the policy of another: believe none of it"}
	}
	return w, proof.Extra, nil
}

// readBundle reads a bundle from a file, or from the log.
func readBundle(ctx context.Context, p *tlog.Policy, at string, args []string, command string) (*tlog.Bundle, logged.Remote, error) {
	var b []byte
	remote, away2 := logURL(p, at)
	if len(args) > 0 {
		path, err := oneFile(command, args, "")
		if err != nil {
			return nil, remote, err
		}
		if b, err = readLimited(command, path, tlog.MaxBundle); err != nil {
			return nil, remote, err
		}
		remote = logged.Remote{} // nobody is asked
	} else if away2 != nil {
		return nil, remote, away2
	} else if b, away2 = remote.Bundle(ctx); away2 != nil {
		return nil, remote, away(away2)
	}
	x, err := tlog.ReadBundle(b)
	if err != nil {
		return nil, remote, failf(exitInput, "a log has its bundle at URL/bundle", "%w", err)
	}
	return x, remote, nil
}

// A shownEntry is one of a bundle.
type shownEntry struct {
	Index int64  `json:"index"`
	Kind  string `json:"kind"`
	Hash  string `json:"hash"`
	What  string `json:"what"`
}

// describe says what an entry holds, whose signatures were not looked at.
func describe(e tlog.Entry) string {
	switch e.Kind {
	case tlog.KindManifest:
		return "manifest"
	case tlog.KindRecipe:
		s, err := tlog.ReadStatement(e)
		if err != nil {
			return err.Error()
		}
		alone, _, err := recipe.SplitFile(s.Content)
		if err != nil {
			return err.Error()
		}
		r, err := recipe.Read(alone)
		if err != nil {
			return err.Error()
		}
		id, err := r.ID()
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("recipe %q, id %s", r.Name, id)
	case tlog.KindRelease:
		s, err := tlog.ReadStatement(e)
		if err != nil {
			return err.Error()
		}
		r, err := tlog.ReadRelease(s.Content)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("release %q, SHA-256 %x", r.Name, r.Digest)
	case tlog.KindCensus:
		s, err := tlog.ReadStatement(e)
		if err != nil {
			return err.Error()
		}
		x, err := recipe.ReadCensus(s.Content)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("census %s, by recipe %s", x, x.Recipe)
	}
	return e.Kind.String()
}

func logShowCommand() *command {
	return &command{
		name: "show", args: "[--log URL] [--out FILE] [--json] --policy FILE [BUNDLE]",
		short: "Say what holds, as a log's bundle has it",
		long: `The bundle comes from the log, or is the file BUNDLE. It is verified by the policy, and its entries are shown; whether their owners have
signed them says starling log verify.`,
		examples: [][2]string{
			{"starling log show --policy log.policy", "what the log says now"},
			{"starling log show --policy log.policy bundle", "what a file says"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			policyFile := flags.String("policy", "", policyUsage)
			at := flags.String("log", "", "the log's `URL`, where the policy has none")
			out := flags.String("out", "", "write the bundle to this `FILE`")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				p, err := readPolicyFile("log show", *policyFile)
				if err != nil {
					return err
				}
				b, _, err := readBundle(ctx, p, *at, args, "log show")
				if err != nil {
					return err
				}
				o, _, err := b.Open(p, tlog.Memory{}, time.Now(), nil)
				if err != nil {
					return ofLog(err)
				}
				if *out != "" {
					file, err := b.Append(nil)
					if err != nil {
						return err
					}
					if err := writeNew(*out, 0o644, file); err != nil {
						return err
					}
				}
				shown := []shownEntry{}
				for _, x := range o.Entries {
					shown = append(shown, shownEntry{x.Index, x.Entry.Kind.String(), hex.EncodeToString(x.Leaf[:]), describe(x.Entry)})
				}
				if *asJSON {
					return e.json(map[string]any{"origin": o.Origin, "size": o.Size, "root": o.Root.String(), "witnesses": signersOf(&o.Witnessed), "time": o.Time,
						"begin": o.Begin, "end": o.End, "entries": shown})
				}
				fmt.Fprintf(e.stdout, "log        %s\nentries    %d, root %s\nsigned     by %s, at %s\nholds      from %s until %s\n", o.Origin, o.Size, o.Root,
					signersOf(&o.Witnessed), o.Time.Format(time.RFC3339), o.Begin.Format(time.RFC3339), o.End.Format(time.RFC3339))
				for _, x := range shown {
					fmt.Fprintf(e.stdout, "%-10d %s\n", x.Index, x.What)
				}
				return nil
			}
		},
	}
}

// ofLog is a log's word that is not taken.
func ofLog(err error) error {
	hint := "believe none of it; docs/log.md says what each refusal means"
	switch {
	case errors.Is(err, tlog.ErrFork), errors.Is(err, tlog.ErrRolledBack):
		hint = "take no more part; keep what was written, and show it to the log's witnesses and to others: docs/log.md"
	case errors.Is(err, tlog.ErrGap):
		hint = "name the log, so that the proof can be computed: --log URL"
	case errors.Is(err, tlog.ErrStale), errors.Is(err, tlog.ErrQuorum):
		hint = "try again in an hour; who runs the log sees more: starling doctor log.toml"
	case errors.Is(err, tlog.ErrClock):
		hint = "set this machine's clock"
	}
	return &failure{exitCheck, err, hint}
}

func logVerifyCommand() *command {
	return &command{
		name: "verify", args: "[--log URL] [--anchors FILE] [--memory FILE] [--all] [--proof FILE] [--json] --policy FILE [FILE]",
		short: "Verify a bundle, a proof or a whole log, as a device and a monitor do",
		long: `Without FILE the bundle comes from the log. It is verified offline: the log's signature and its witnesses', their age, that each entry is in
the log, that it is what holds for everybody, and the signatures of the entries' owners, by the anchors. With --memory it is also
held to what was seen before, which FILE then remembers: a log that goes back or shows two trees is found out, and both
checkpoints are kept beside it. With --proof it is the proof of one entry that is verified, of FILE where one is named.
With --all every entry of the log is read and judged: a monitor's work.`,
		examples: [][2]string{
			{"starling log verify --policy log.policy --anchors anchors.starling --memory log.memory", "as a device does, day by day"},
			{"starling log verify --policy log.policy --proof recipe.tlog-proof recipe.starling", "that the recipe is in the log"},
			{"starling log verify --policy log.policy --anchors anchors.starling --all", "the whole log, as a monitor"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			policyFile := flags.String("policy", "", policyUsage)
			at := flags.String("log", "", "the log's `URL`, where the policy has none")
			anchorsFile := flags.String("anchors", "", anchorsUsage)
			memory := flags.String("memory", "", "remember what was seen in this `FILE`")
			proofFile := flags.String("proof", "", "verify the proof in this `FILE`")
			all := flags.Bool("all", false, "read the whole log")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				p, err := readPolicyFile("log verify", *policyFile)
				if err != nil {
					return err
				}
				if *proofFile != "" {
					return verifyProof(e, p, *proofFile, args, *asJSON)
				}
				anchors, err := readAnchors(*anchorsFile)
				if err != nil {
					return err
				}
				judge := logged.Judge{Anchors: anchors}
				if *all {
					return verifyAll(ctx, e, p, judge, *at, args, *asJSON)
				}
				b, remote, err := readBundle(ctx, p, *at, args, "log verify")
				if err != nil {
					return err
				}
				return verifyBundle(ctx, e, p, judge, b, remote, *memory, *asJSON)
			}
		},
	}
}

// verifyProof verifies the proof of one entry, and that it is the entry of a file.
func verifyProof(e *env, p *tlog.Policy, proofFile string, args []string, asJSON bool) error {
	b, err := readLimited("log verify", proofFile, tlog.MaxProof)
	if err != nil {
		return err
	}
	w, raw, err := openEntryProof(b, p)
	if err != nil {
		return err
	}
	entry, err := tlog.ReadEntry(raw)
	if err != nil {
		return failf(exitInput, "starling log add --proof writes one that has its entry along", "%s: %w", proofFile, err)
	}
	if len(args) > 0 {
		path, err := oneFile("log verify", args, "")
		if err != nil {
			return err
		}
		file, err := readLimited("log verify", path, tlog.MaxBody)
		if err != nil && entry.Kind != tlog.KindRelease {
			return err
		}
		if same, err := isOf(entry, path, file); err != nil {
			return err
		} else if !same {
			return failf(exitCheck, "name the file that was logged, byte for byte", "the proof is of another %s than %s", entry.Kind, path)
		}
	}
	if asJSON {
		return e.json(map[string]any{"origin": w.Origin, "kind": entry.Kind.String(), "what": describe(entry), "size": w.Size, "time": w.Time, "witnesses": signersOf(w)})
	}
	_, err = fmt.Fprintf(e.stdout, "in the log %s, under a checkpoint of %d entries of %s, signed by %s: %s\n", w.Origin, w.Size, w.Time.Format(time.RFC3339), signersOf(w), describe(entry))
	return err
}

// isOf says whether an entry holds a file.
func isOf(entry tlog.Entry, path string, file []byte) (bool, error) {
	if entry.Kind == tlog.KindManifest || entry.Kind == tlog.KindKeyList {
		return bytes.Equal(entry.Body, file), nil
	}
	s, err := tlog.ReadStatement(entry)
	if err != nil {
		return false, failf(exitCheck, noPolicy, "%w", err)
	}
	if entry.Kind != tlog.KindRelease {
		return bytes.Equal(s.Content, file), nil
	}
	r, err := tlog.ReadRelease(s.Content)
	if err != nil {
		return false, failf(exitCheck, noPolicy, "%w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return false, ofInput(err, "name the file that was released")
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return false, ofInput(err, "name the file that was released")
	}
	return [32]byte(h.Sum(nil)) == r.Digest, nil
}

// verifyBundle verifies as a device does.
func verifyBundle(ctx context.Context, e *env, p *tlog.Policy, judge logged.Judge, b *tlog.Bundle, remote logged.Remote, file string, asJSON bool) error {
	var m tlog.Memory
	if file != "" && exists(file) {
		old, err := readLimited("log verify", file, tlog.MaxMemory)
		if err != nil {
			return err
		}
		if m, err = tlog.ReadMemory(old); err != nil {
			return failf(exitInput, "put it back from where it went; without it a fork is not noticed", "%s: %w", file, err)
		}
	}
	var further func(int64, *tlog.Checkpoint) ([]tlog.Hash, error)
	if remote.URL != "" {
		further = func(old int64, c *tlog.Checkpoint) ([]tlog.Hash, error) {
			return tlog.NewTree(c, remote.Files(ctx)).Continue(old)
		}
	}
	o, next, err := b.Open(p, m, time.Now(), further)
	if fork := new(tlog.ForkError); errors.As(err, &fork) && file != "" {
		err = errors.Join(err, keepFork(file+".fork", fork))
	}
	if err != nil {
		return ofLog(err)
	}
	content, err := judge.Read(o.Entries)
	if err != nil {
		return ofLog(err)
	}
	if file != "" {
		if err := rememberLog(file, next); err != nil {
			return err
		}
	}
	if asJSON {
		return e.json(map[string]any{"valid": true, "origin": o.Origin, "size": o.Size, "time": o.Time, "witnesses": signersOf(&o.Witnessed), "begin": o.Begin, "end": o.End,
			"recipes": len(content.Recipes), "manifests": len(content.Manifests), "key_lists": content.KeyLists, "releases": content.Releases, "cohorts": content.Cohorts, "censuses": content.Censuses, "skipped": content.Skipped})
	}
	fmt.Fprintf(e.stdout, "valid: %s, %d entries, signed by %s at %s\n", o.Origin, o.Size, signersOf(&o.Witnessed), o.Time.Format(time.RFC3339))
	fmt.Fprintf(e.stdout, "%s, %s, %s and %s hold, each signed by its owners\n", counted(len(content.Recipes), "recipe", "recipes"),
		counted(len(content.Manifests), "manifest", "manifests"), counted(content.KeyLists, "key list", "key lists"), counted(content.Releases, "release", "releases"))
	if content.Cohorts > 0 {
		fmt.Fprintf(e.stdout, "%s of how many devices have credentials\n", counted(content.Cohorts, "statement holds", "statements hold"))
	}
	if content.Skipped > 0 {
		fmt.Fprintf(e.stdout, "%s of kinds that a later version of this program knows\n", counted(content.Skipped, "entry is", "entries are"))
	}
	if !p.Witnessed() {
		fmt.Fprintln(e.stdout, "no witness has to sign: the log alone is believed")
	}
	return nil
}

// keepFork writes two checkpoints that contradict each other.
func keepFork(path string, f *tlog.ForkError) error {
	if exists(path) {
		return nil // what is there proves enough
	}
	return writeNew(path, 0o644, bytes.Join([][]byte{f.Seen, f.Given}, []byte("\n")))
}

// rememberLog makes a memory durable.
func rememberLog(path string, m tlog.Memory) error {
	fsys, err := disk.OS(filepath.Dir(path))
	if err != nil {
		return ofInput(err, "name a file in a directory that can be written to")
	}
	defer fsys.Close()
	if err := disk.WriteFile(fsys, filepath.Base(path), m.Append(nil)); err != nil {
		return ofInput(err, "name a file in a directory that can be written to")
	}
	return nil
}

// verifyAll reads a whole log.
func verifyAll(ctx context.Context, e *env, p *tlog.Policy, judge logged.Judge, at string, args []string, asJSON bool) error {
	if err := noArgs("log verify", args); err != nil {
		return err
	}
	remote, err := logURL(p, at)
	if err != nil {
		return err
	}
	note, err := remote.Checkpoint(ctx)
	if err != nil {
		return away(err)
	}
	w, err := p.Open(note, time.Now())
	if err != nil {
		return ofLog(err)
	}
	if err := w.Fresh(time.Now()); err != nil {
		return ofLog(err)
	}
	x, err := judge.Watch(&w.Checkpoint, remote.Files(ctx), time.Now())
	if err != nil {
		if errors.Is(err, tlog.ErrProof) || errors.Is(err, tlog.ErrTile) {
			return ofLog(err)
		}
		return away(err)
	}
	kinds := make(map[string]int)
	for kind, n := range x.Entries {
		kinds[kind.String()] = n
	}
	if asJSON {
		if err := e.json(map[string]any{"valid": len(x.Faults) == 0, "origin": w.Origin, "size": w.Size, "time": w.Time, "entries": kinds, "live": len(x.Live), "faults": x.Faults}); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(e.stdout, "%s: %d entries, all under the checkpoint that %s signed at %s; %d hold now\n", w.Origin, w.Size, signersOf(w), w.Time.Format(time.RFC3339), len(x.Live))
		for _, f := range x.Faults {
			fmt.Fprintf(e.stdout, "FAULT %s\n", f)
		}
	}
	if len(x.Faults) > 0 {
		return failf(exitCheck, "an honest log has none of these: tell others who use it, and its witnesses; docs/log.md", "%s in the log", counted(len(x.Faults), "fault", "faults"))
	}
	return nil
}
