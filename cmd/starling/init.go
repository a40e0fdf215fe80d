package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/starling-agg/starling/deploy"
)

// several is a flag that may be given more than once.
type several []string

func (s *several) String() string { return strings.Join(*s, " ") }

func (s *several) Set(v string) error {
	*s = append(*s, v)
	return nil
}

func initCommand() *command {
	return &command{
		name: "init", args: "[--join FILE --fingerprint F]... [ROLE --owner NAME [--url URL] [--number N] [--log KEY]...] [DIR]",
		short: "Make a party of your own, or join the invitation of another",
		long: `ROLE is leader, helper, collector, relay or gateway. In DIR, . by default, init makes the party's keys, a commented ROLE.toml, and
invitations/ROLE.invitation, which is public: send it to the owners of the other parties. Private keys never leave DIR.

With --join it takes the invitation of another party, whose owner reads the fingerprint to you first, on the phone say: --fingerprint.
With a ROLE the new party's invitation answers those that are joined. Parties in one DIR are of one owner and know each other.

ROLE may also be attester, log, witness, hop, analyzer or controller, which nobody joins: what others have to know of them is public, and
init prints it. An attester's, a hop's and an analyzer's root key goes into recipes and anchors files, a controller's key into recipes, a
log's and a witness's key into policies.
--log names the log that a witness follows, --number says which hop of the two it is. Hops and analyzer are of three owners.

When both have joined each other's, tokens and verification keys of every task follow from the two keys; nothing secret is ever sent.

With an https URL and neither --certificate nor --behind-proxy the party makes a certificate for itself, which the others trust by the
invitation; devices want one of an authority, or DIR/` + deploy.CertificatesFile + `.`,
		examples: [][2]string{
			{"starling init collector --owner Ada ada", "who asks, in the directory ada"},
			{"starling init leader --owner Ada --url https://leader.example/ ada", "her leader"},
			{"starling init helper --owner Ben --url https://helper.example/ --join leader.invitation --fingerprint " + exampleFingerprint + " ben",
				"his helper, in answer to hers"},
			{"starling init --join helper.invitation --fingerprint " + exampleFingerprint + " ada", "she takes his answer"},
			{"starling init hop --number 1 --owner Gil --url https://hop.example/ gil", "who mixes the messages of a round first"},
			{"starling init attester --owner Dora --url https://attester.example/ dora", "who knows the devices, where recipes count these"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			owner := flags.String("owner", "", "who runs the party, in words: `NAME`")
			at := flags.String("url", "", "where others reach the party: `URL`")
			listen := flags.String("listen", "", "listen on this `ADDRESS`; by default the URL's port, on this machine alone if the URL is")
			local := flags.String("local", "", "listen for the operator on this `ADDRESS`; by default on this machine, 1000 ports above")
			certificate := flags.String("certificate", "", "the party's certificate, a PEM `FILE`")
			key := flags.String("certificate-key", "", "its key, a PEM `FILE`")
			proxied := flags.Bool("behind-proxy", false, "a proxy in front speaks TLS")
			recipe := flags.String("recipe", "", "the recipe's `FILE`, as the configuration names it (default "+deploy.RecipeFile+")")
			number := flags.Int("number", 0, "of a hop, `N`: 1 or 2, as recipes name it")
			var join, fingerprints, logs several
			flags.Var(&logs, "log", "the public `KEY` of a log that a witness follows; may be given several times")
			flags.Var(&join, "join", "take the invitation in this `FILE`; may be given several times")
			flags.Var(&fingerprints, "fingerprint", "what its owner has read out to you: `F`; one for each --join")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(_ context.Context, e *env, args []string) error {
				o := deploy.InitOptions{Dir: ".", Owner: *owner, URL: *at, Listen: *listen, Local: *local, Certificate: *certificate, TLSKey: *key,
					Proxied: *proxied, Recipe: *recipe, Number: *number, Logs: logs, Join: join, Fingerprints: fingerprints, Now: time.Now()}
				for _, role := range slices.Concat(deploy.Roles, deploy.OuterRoles) {
					if len(args) > 0 && args[0] == string(role) {
						o.Role, args = role, args[1:]
						break
					}
				}
				switch {
				case len(args) > 1:
					return usageOf("init", fmt.Errorf("%q: want a role, then a directory", args))
				case len(args) == 1:
					o.Dir = args[0]
				}
				if o.Role == "" && len(join) == 0 {
					return usageOf("init", errors.New("starling init needs a role, or --join"))
				}
				if o.Role != "" && o.Owner == "" {
					return usageOf("init", errors.New("starling init needs --owner: who runs the party"))
				}
				made, err := deploy.Init(o)
				if err != nil {
					return initFailure(o, err)
				}
				if *asJSON {
					return e.json(made)
				}
				return writeMade(e, o, made)
			}
		},
	}
}

// exampleFingerprint is what one looks like.
const exampleFingerprint = "c706-b247-c105-2726-d51d-bd1a-ff6d-058c"

// initFailure says what to do about an init that did nothing.
func initFailure(o deploy.InitOptions, err error) error {
	hint := "starling init --help"
	var of *deploy.InvitationError
	switch {
	case errors.Is(err, deploy.ErrFingerprint):
		hint = "call the owner, who sees it with: starling check DIR/invitations/" + filepath.Base(fileOf(err)) + "; then give it as --fingerprint, one for each --join"
	case errors.Is(err, deploy.ErrOwnInvitation):
		hint = "send it to the owner of the other party, who joins it"
	case errors.Is(err, deploy.ErrJoined):
		hint = "nothing is left to do if it is the right one; else begin anew in another directory: its keys follow from it"
	case errors.Is(err, deploy.ErrExists):
		hint = "name another directory, or --join alone"
	case o.Role == deploy.HopRole && o.Number == 0:
		hint = "starling init hop --number 1 --owner NAME --url URL DIR"
	case errors.Is(err, deploy.ErrApart) && slices.Contains(deploy.OuterRoles, o.Role):
		hint = "the " + string(o.Role) + " is for another owner, in a directory of its own: starling init " + string(o.Role) + " --owner NAME --url URL DIR"
	case errors.Is(err, deploy.ErrApart):
		hint = "the " + string(o.Role) + " is for another owner, in a directory of its own: starling init " + string(o.Role) + " --owner NAME --url URL --join FILE --fingerprint F DIR"
	case errors.Is(err, syscall.ENOSPC):
		return &failure{exitFailed, err, lastHint(err)}
	case errors.Is(err, deploy.ErrStranger):
		hint = "name the directory of the party that it is for"
	case errors.As(err, &of) && !errors.Is(err, fs.ErrNotExist):
		hint = "ask its owner to send it again, as an attachment"
	}
	return &failure{exitInput, err, hint}
}

func fileOf(err error) string {
	of := new(deploy.InvitationError)
	if errors.As(err, &of) {
		return of.File
	}
	return ""
}

// mayBeYours says whether who runs these parties may run one of that role too.
func mayBeYours(role deploy.Role, parties []deploy.Role) bool {
	for _, apart := range []deploy.Role{deploy.HelperRole, deploy.RelayRole} {
		if role == apart || slices.Contains(parties, apart) {
			return false
		}
	}
	return true
}

// writeMade says what was made, and what is next.
func writeMade(e *env, o deploy.InitOptions, made *deploy.Made) error {
	var b strings.Builder
	if slices.Contains(deploy.OuterRoles, o.Role) {
		return writeOuter(e, o, made)
	}
	for _, j := range made.Joined {
		b.WriteString(strings.TrimRight(fmt.Sprintf("joined       the %s of %s %s", j.Role, j.Owner, j.URL), " ") + "\n")
	}
	if made.Config != "" {
		fmt.Fprintf(&b, "%-12s %s\ninvitation   %s\nfingerprint  %s\n", o.Role, made.Config, made.Invitation, made.Fingerprint)
		if !made.Until.IsZero() {
			fmt.Fprintf(&b, "certificate  its own, until %s\n", made.Until.Format(time.DateOnly))
		}
		fmt.Fprintf(&b, "\nSend the invitation to the owners of the other parties, and read the fingerprint to each.\n")
	}
	for _, role := range made.Missing {
		fmt.Fprintf(&b, "Still to be joined: the invitation of the %s: starling init --join %s%s --fingerprint F %s\n", role, role, deploy.InvitationSuffix, o.Dir)
		if mayBeYours(role, made.Parties) {
			fmt.Fprintf(&b, "  or, if it is yours too: starling init %s --owner NAME%s %s\n", role, map[bool]string{role != deploy.CollectorRole: " --url URL"}[true], o.Dir)
		}
	}
	if len(made.Missing) == 0 {
		b.WriteString("Nothing is left to be joined. ")
		config := filepath.Join(o.Dir, string(o.Role)+".toml")
		switch o.Role {
		case "":
			b.WriteString("With the recipe in place:")
			for _, role := range made.Parties {
				if role != deploy.CollectorRole {
					fmt.Fprintf(&b, "\n  starling serve %s %s", role, filepath.Join(o.Dir, string(role)+".toml"))
				}
			}
			b.WriteString("\n")
		case deploy.CollectorRole:
			fmt.Fprintf(&b, "With the recipe in place: starling collect %s\n", config)
		case deploy.RelayRole:
			fmt.Fprintf(&b, "Next: starling serve relay %s\n", config)
		default:
			fmt.Fprintf(&b, "With the recipe in place: starling serve %s %s\n", o.Role, config)
		}
	}
	_, err := e.stdout.Write([]byte(b.String()))
	return err
}

// writeOuter says what is public of a party that nobody joins, where it goes, and what
// comes next.
func writeOuter(e *env, o deploy.InitOptions, made *deploy.Made) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s %s\n", o.Role, made.Config)
	for _, k := range made.Public {
		fmt.Fprintf(&b, "key          %s\n", k)
	}
	if !made.Until.IsZero() {
		fmt.Fprintf(&b, "certificate  its own, until %s\n", made.Until.Format(time.DateOnly))
	}
	serve := fmt.Sprintf("starling serve %s %s", o.Role, made.Config)
	switch o.Role {
	case deploy.AttesterRole:
		fmt.Fprintf(&b, "anchor       %s\n\nThe key is for recipes, and the anchor for the anchors file of devices' software: starling recipe new --attester %s --attester-key %s ...\n",
			made.Anchor, o.URL, made.Public[0])
		fmt.Fprintf(&b, "Take %s offline. One-time codes for devices: starling attester codes --count 1000 --out %s --codes %s\n",
			filepath.Join(o.Dir, "secrets", "attester.root"), filepath.Join(o.Dir, "codes"), filepath.Join(o.Dir, "secrets", "codes"))
		fmt.Fprintf(&b, "With the recipe in place: %s\n", serve)
	case deploy.HopRole, deploy.AnalyzerRole:
		flag, from := "--analyzer-key", "hop 2 brings batches by a token of its owner's, secrets/hop-2.token; the collector has results by secrets/collector.token"
		if o.Role == deploy.HopRole {
			flag = fmt.Sprintf("--hop%d-key", o.Number)
			from = "the next party knows this hop by secrets/hop.token, and its owner gets that file in secret"
		}
		fmt.Fprintf(&b, "anchor       %s\n\nThe key is for recipes, and the anchor for the anchors file of devices' software: starling recipe new --path shuffled %s %s ...\n",
			made.Anchor, flag, made.Public[0])
		fmt.Fprintf(&b, "Take %s offline. Tokens: %s.\n", filepath.Join(o.Dir, "secrets", string(o.Role)+".root"), from)
		fmt.Fprintf(&b, "With the recipe in place: %s\n", serve)
	case deploy.ControllerRole:
		fmt.Fprintf(&b, "\nThe key is for recipes, with the terms in %s: starling recipe new --controller %s --terms %s ...\n",
			filepath.Join(o.Dir, deploy.TermsFile), made.Public[0], filepath.Join(o.Dir, deploy.TermsFile))
		fmt.Fprintf(&b, "With the recipe and %s in place: %s\n", filepath.Join(o.Dir, deploy.CollectorFile), serve)
	case deploy.LogRole:
		fmt.Fprintf(&b, "\nEach witness's owner makes one: starling init witness --owner NAME --url URL --log '%s' DIR\n", made.Public[0])
		fmt.Fprintf(&b, "Their keys go into %s, which devices have too: none takes a log that nobody watches. The anchors of who may have something logged go to %s.\n",
			filepath.Join(o.Dir, deploy.PolicyFile), filepath.Join(o.Dir, deploy.AnchorsFile))
		fmt.Fprintf(&b, "Then: %s\n", serve)
	default:
		fmt.Fprintf(&b, "\nThe log's owner and devices need a line in their policy, with one of the keys; the second holds against quantum computers too:\n  witness NAME KEY %s\nNext: %s\n", o.URL, serve)
	}
	_, err := e.stdout.Write([]byte(b.String()))
	return err
}
