package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/exchange"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
)

// ceremony are the flags of manifest new for recipes that name signing keys.
type ceremony struct {
	second, token, previous *string
	revision, tries         *uint
	hold, lead              *time.Duration
	sign                    signFlags
	issuers                 issuerFlags
}

// signFlags are what one party signs with.
type signFlags struct{ key, delegation, record *string }

func newSignFlags(flags *flag.FlagSet, whose string) signFlags {
	return signFlags{
		key:        flags.String("signing-key", "", whose+" online key, a `FILE`"),
		delegation: flags.String("delegation", "", "the root's word for it, a `FILE`; by default the key's name and "+delegationSuffix),
		record:     flags.String("record", "", "the `FILE` that remembers what was signed; made where there is none"),
	}
}

func newCeremony(flags *flag.FlagSet) *ceremony {
	return &ceremony{
		second:   flags.String("second", "", "write a second key to this `FILE`, for when the first is used up"),
		token:    flags.String("token", "", "what leader and helper know the maker of manifests by, a `FILE`"),
		previous: flags.String("previous", "", "the manifest before, a `FILE`"),
		revision: flags.Uint("revision", 0, "another manifest of --previous's epoch, the `N`th, in an emergency"),
		tries:    flags.Uint("tries", ohttp.DefaultTries, "devices try `N` times at most"),
		hold:     flags.Duration("hold", ohttp.DefaultHold, "the gateway keeps uploads for a `TIME` at most, as hold in gateway.toml: leader's and helper's keys live as long"),
		lead:     flags.Duration("lead", 0, "begin a `TIME` from now at the earliest, in which devices visit for their credentials"),
		sign:     newSignFlags(flags, "the gateway's"),
		issuers:  newIssuerFlags(flags),
	}
}

// given says whether a flag was, that means nothing without signing keys.
func (c *ceremony) given() bool {
	return *c.second != "" || *c.token != "" || *c.previous != "" || *c.revision != 0 || *c.lead != 0 || *c.sign.key != "" || c.issuers.given()
}

// manifestFiles is what manifest new writes, and with what.
type manifestFiles struct {
	key, out string
	id       uint8
	suite    sealed.Suite
	days     uint
	every    time.Duration
	asJSON   bool
}

// deploymentOf reads recipes, which must be of one deployment.
func deploymentOf(paths []string) (*keyset.Deployment, error) {
	var d *keyset.Deployment
	for _, path := range paths {
		checked, err := deploy.OpenRecipe(path)
		if err != nil {
			return nil, ofInput(err, noRecipe)
		}
		r := checked.Recipe()
		one, err := aggregator.DeploymentOf(r)
		switch {
		case err != nil:
			return nil, failf(exitInput, "starling recipe show "+path, "%s: %w", path, err)
		case one.Relay == "":
			return nil, failf(exitInput, "starling recipe show "+path, "%s names no relay, so its devices need no manifest", path)
		case d == nil:
			d = &one
		case d.ID != one.ID:
			return nil, failf(exitInput, "make a manifest for each deployment", "%s has other servers or keys than %s", path, paths[0])
		default:
			d.Recipes = append(d.Recipes, one.Recipes...)
		}
	}
	return d, nil
}

// window is the time of the manifest that follows another, or of the first.
func (c *ceremony) window(d *keyset.Deployment, f *manifestFiles, now time.Time) (o deploy.Manifest, err error) {
	o = deploy.Manifest{Deployment: *d, Revision: uint16(*c.revision), Tries: uint8(*c.tries), Every: f.every, Hold: *c.hold, NotBefore: now.UTC().Truncate(time.Second)}
	if *c.previous != "" {
		before, err := readManifest(*c.previous)
		if err != nil {
			return o, err
		}
		if o.Previous, err = before.Digest(); err != nil {
			return o, err
		}
		if o.Revision > 0 {
			o.NotAfter = before.NotAfter
			if o.NotBefore.Before(before.NotBefore) {
				o.NotBefore = before.NotBefore // it has not begun
			}
			if ohttp.EpochAt(o.NotBefore, d.Epoch) != before.Epoch {
				o.NotBefore = before.NotBefore // the window lies over the border of two epochs
			}
			if at := now.Add(*c.lead).UTC().Truncate(time.Second); *c.lead > 0 && o.NotBefore.Before(at) {
				if o.NotBefore = at; ohttp.EpochAt(at, d.Epoch) != before.Epoch || !at.Before(o.NotAfter) {
					return o, usageOf("manifest new", fmt.Errorf("--lead %v from now the epoch of --previous is over", *c.lead))
				}
			}
			return o, nil
		}
		if o.NotBefore.Before(before.NotAfter) {
			o.NotBefore = before.NotAfter
		}
		if ohttp.EpochAt(o.NotBefore, d.Epoch) == before.Epoch {
			o.NotBefore = time.Unix(int64(before.Epoch+1)*int64(d.Epoch/time.Second), 0).UTC()
		}
	} else if o.Revision > 0 {
		return o, usageOf("manifest new", errors.New("--revision needs --previous, the manifest that it takes the place of"))
	}
	if at := now.Add(*c.lead).UTC().Truncate(time.Second); o.NotBefore.Before(at) {
		o.NotBefore = at
	}
	o.NotAfter = o.NotBefore.Add(d.Epoch)
	if f.days > 0 && time.Duration(f.days)*24*time.Hour < d.Epoch {
		o.NotAfter = o.NotBefore.Add(time.Duration(f.days) * 24 * time.Hour)
	}
	return o, nil
}

// draftSuffix stands behind the name of a manifest that not everybody has signed.
const draftSuffix = ".draft"

// run assembles a manifest, has it signed, and writes it beside the gateway's new keys.
// A stop leaves a draft, and the same command goes on with that: a party that has signed
// it signs nothing else in this epoch.
func (c *ceremony) run(ctx context.Context, e *env, f manifestFiles, recipes []string) error {
	if *c.revision > 1<<16-1 || *c.lead < 0 {
		return usageOf("manifest new", errors.New("--revision wants 16 bits, and --lead is not negative"))
	}
	d, err := deploymentOf(recipes)
	if err != nil {
		return err
	}
	token := ""
	if *c.token != "" {
		if token, err = service.Secret(*c.token).Text(); err != nil {
			return ofInput(err, "--token FILE holds what the leader's and the helper's [signing] token does")
		}
	}
	if err := c.warn(e, recipes); err != nil {
		return err
	}
	var m *ohttp.Manifest
	if exists(f.out + draftSuffix) {
		if m, err = readManifest(f.out + draftSuffix); err == nil {
			err = c.same(m, &f, d)
		}
	} else {
		m, err = c.assemble(ctx, f, d, token)
	}
	if err != nil {
		return err
	}
	if err := d.CheckSending(m); err != nil { // before anybody is asked to sign it
		return &failure{exitCheck, err, hintOf(err)}
	}
	missing := func(role signed.Role) bool {
		return !slices.ContainsFunc(m.Signatures, func(c ohttp.Cosignature) bool { return c.Role == role })
	}
	var failed error
	for _, p := range []struct {
		role signed.Role
		base string
	}{{signed.Leader, d.Leader}, {signed.Helper, d.Helper}} {
		if !missing(p.role) {
			continue
		}
		b, err := m.Append(nil)
		if err != nil {
			return err
		}
		answer, err := askToSign(ctx, p.base, d.ID, "manifest", token, ohttp.CosignatureMessage, b)
		if err == nil {
			var one ohttp.Cosignature
			if one, err = ohttp.ReadCosignature(answer); err == nil {
				m.Add(one)
			}
		}
		if err != nil && failed == nil {
			failed = unsigned(p.role.String(), err)
		}
	}
	// The gateway signs last: it signs one an epoch, and this one may be refused.
	if failed == nil && *c.sign.key != "" && missing(signed.Gateway) {
		failed = c.sign.run(m, signed.Gateway, d, f.key, *c.second)
	}
	if err := m.Verify(d.Roots); err != nil && failed == nil {
		failed = failf(exitCheck, "--signing-key and --record sign for the gateway; starling manifest sign --help for who is not here", "%w", err)
	}
	b, err := m.Append(nil)
	if err != nil {
		return err
	}
	if failed != nil {
		if err := replace(f.out+draftSuffix, b); err != nil {
			return err
		}
		fmt.Fprintf(e.stderr, "not everybody has signed: %s stays, and the same command goes on with it\n", f.out+draftSuffix)
		return failed
	}
	if err := writeNew(f.out, 0o644, b); err != nil {
		return err
	}
	if err := os.Remove(f.out + draftSuffix); err != nil {
		return err
	}
	if f.asJSON {
		return e.json(map[string]any{"epoch": m.Epoch, "revision": m.Revision, "key": f.key, "manifest": f.out, "not_before": m.NotBefore,
			"not_after": m.NotAfter, "signed": signers(m)})
	}
	_, err = fmt.Fprintf(e.stdout, "epoch %d: key %s, manifest %s, from %s until %s\nsigned by %s\n", m.Epoch, f.key, f.out,
		m.NotBefore.Format(time.RFC3339), m.NotAfter.Format(time.RFC3339), strings.Join(signers(m), ", "))
	return err
}

// warn says that a recipe's devices would show nothing, for no more get credentials than too
// few.
func (c *ceremony) warn(e *env, recipes []string) error {
	for _, path := range recipes {
		checked, err := deploy.OpenRecipe(path)
		if err != nil {
			return ofInput(err, noRecipe)
		}
		if t := checked.Recipe().Tokens; t != nil && *c.issuers.most > 0 && *c.issuers.most < t.MinCohort {
			fmt.Fprintf(e.stderr, "warning: --devices %d: no device of %s shows credentials before %d have some, which can never be\n", *c.issuers.most, path, t.MinCohort)
		}
	}
	return nil
}

// same says by its flag what a draft has otherwise than the command that is to go on with it.
// When the manifest begins and ends was drawn up when the draft was made.
func (c *ceremony) same(m *ohttp.Manifest, f *manifestFiles, d *keyset.Deployment) error {
	var previous [32]byte
	if *c.previous != "" {
		before, err := readManifest(*c.previous)
		if err == nil {
			previous, err = before.Digest()
		}
		if err != nil {
			return err
		}
	}
	ids := map[[32]byte]bool{}
	for _, r := range d.Recipes {
		ids[r.ID] = true
	}
	issuers, err := c.issuers.read(d)
	if err != nil {
		return err
	}
	if issuers == nil {
		issuers = new(ohttp.Issuers)
	}
	drafted := m.Issuers
	if drafted == nil {
		drafted = new(ohttp.Issuers)
	}
	keys := 1
	if *c.second != "" {
		keys = 2
	}
	others := m.Deployment != d.ID || len(m.Recipes) != len(ids)
	for _, id := range m.Recipes {
		others = others || !ids[id]
	}
	for _, x := range []struct {
		flag   string
		differ bool
	}{
		{"the recipes", others}, {"--previous", m.Previous != previous}, {"--revision", uint(m.Revision) != *c.revision},
		{"--second", len(m.Gateway) != keys}, {"--id", m.Gateway[0].ID != f.id}, {"--kem", m.Gateway[0].KEM != f.suite.KEM},
		{"--tries", uint(m.Tries) != *c.tries}, {"--every", m.Every != f.every}, {"--hold", m.Hold != *c.hold},
		{"--days", f.days > 0 && m.NotAfter.Sub(m.NotBefore) > time.Duration(f.days)*24*time.Hour},
		{"--devices", drafted.Cap != issuers.Cap}, {"--leader-issuer", drafted.Leader != issuers.Leader}, {"--helper-issuer", drafted.Helper != issuers.Helper},
		{"--admission", !slices.Equal(drafted.Admission, issuers.Admission)},
	} {
		if x.differ {
			draft := f.out + draftSuffix
			return failf(exitInput, fmt.Sprintf("type the same as then; or, where nobody has signed it, remove %s and %s and begin anew: starling manifest show %s", draft, f.key, draft),
				"%s was made with another value: %s", draft, x.flag)
		}
	}
	return nil
}

// assemble makes the gateway's keys, asks for the signed lists, and writes keys and draft.
func (c *ceremony) assemble(ctx context.Context, f manifestFiles, d *keyset.Deployment, token string) (*ohttp.Manifest, error) {
	o, err := c.window(d, &f, time.Now())
	if err != nil {
		return nil, err
	}
	if o.Issuers, err = c.issuers.read(d); err != nil {
		return nil, err
	}
	files := []string{f.key}
	if *c.second != "" {
		files = append(files, *c.second)
	}
	for _, path := range append(slices.Clone(files), f.out) {
		if exists(path) {
			return nil, failf(exitInput, "name another file, or move this one away", "%s exists", path)
		}
	}
	var secrets [][]byte
	for i := range files {
		pair, err := sealed.Generate(f.id+uint8(i), f.suite)
		if err != nil {
			return nil, err
		}
		secret, err := pair.Marshal()
		if err != nil {
			return nil, err
		}
		o.Gateway, secrets = append(o.Gateway, ohttp.NewKeyConfig(pair)), append(secrets, secret)
	}
	var lists [][]byte
	for _, p := range []struct{ name, base string }{{"leader", d.Leader}, {"helper", d.Helper}} {
		window := binary.BigEndian.AppendUint64(nil, uint64(o.NotBefore.Unix()))
		list, err := askToSign(ctx, p.base, d.ID, "hpke_config", token, signed.ListMessage, binary.BigEndian.AppendUint64(window, uint64(o.NotAfter.Unix())))
		if err != nil {
			return nil, unsigned(p.name, err)
		}
		lists = append(lists, list)
	}
	m, err := o.Assemble(lists[0], lists[1])
	if err != nil {
		return nil, &failure{exitCheck, err, "starling doctor, at the party that it names"}
	}
	b, err := m.Append(nil)
	if err != nil {
		return nil, err
	}
	for i, file := range files {
		if err := writeNew(file, 0o600, secrets[i]); err != nil {
			return nil, err
		}
	}
	return m, replace(f.out+draftSuffix, b)
}

// replace writes a file in one step.
func replace(path string, b []byte) error {
	if err := os.WriteFile(path+".new", b, 0o644); err != nil {
		return ofInput(err, "name a file in a directory that can be written to")
	}
	return os.Rename(path+".new", path)
}

// signers are the roles that have signed.
func signers(m *ohttp.Manifest) []string {
	list := []string{}
	for _, s := range m.Signatures {
		list = append(list, s.Role.String())
	}
	return list
}

// unsigned says that an aggregator has not signed.
func unsigned(name string, err error) error {
	if problem := new(dap.Problem); errors.As(err, &problem) {
		return failf(exitCheck, "what it signs is in its configuration: [signing]", "the %s does not sign: %w", name, err)
	}
	return failf(exitUnreachable, fmt.Sprintf("start the %s, or have its owner look: starling doctor %s.toml; then type the same again", name, name),
		"the %s does not sign: %w", name, err)
}

// askToSign posts to a private resource of an aggregator.
func askToSign(ctx context.Context, base string, deployment [32]byte, what, token, want string, body []byte) ([]byte, error) {
	u, err := dap.BaseURL([]byte(base))
	if err != nil {
		return nil, err
	}
	answer, err := exchange.Do(ctx, exchange.DefaultDoer(10*time.Second), exchange.Request{
		Method: http.MethodPost, URL: dap.ResourceURL(u, signed.ListPath(deployment)).JoinPath("..", what), Body: body, Token: token,
		Want: dap.Media(want), MaxBody: ohttp.MaxManifest,
	}, exchange.Retry{Attempts: 2, First: time.Second, Longest: time.Second})
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// ownKeys says whether a manifest tells devices of the gateway's keys in these files and
// of no other: with the relay, whoever has another's secret half reads who uploads what.
func ownKeys(m *ohttp.Manifest, files []string) error {
	var own []ohttp.KeyConfig
	for _, file := range files {
		if file == "" {
			continue
		}
		b, err := service.Secret(file).Read()
		if err != nil {
			return ofInput(err, "name the gateway's own key")
		}
		pair, err := sealed.ParseKeyPair(b)
		if err != nil {
			return failf(exitInput, "name the gateway's own key", "%s: %w", file, err)
		}
		own = append(own, ohttp.NewKeyConfig(pair))
	}
	for _, k := range m.Gateway {
		if !slices.ContainsFunc(own, k.Equal) {
			return failf(exitCheck, "sign no such manifest: who made it would open what devices seal to the gateway",
				"the manifest's key %d is none of the gateway's", k.ID)
		}
	}
	return nil
}

// run has a party sign, if the manifest is its deployment's, and after its record says
// so. The gateway signs for its own keys alone, which are in files.
func (f *signFlags) run(m *ohttp.Manifest, role signed.Role, d *keyset.Deployment, keys ...string) error {
	if *f.record == "" {
		return usageOf("manifest", errors.New("--signing-key needs --record: a party signs one manifest an epoch, and must remember which"))
	}
	delegation := *f.delegation
	if delegation == "" {
		delegation = *f.key + delegationSuffix
	}
	s, err := deploy.ReadSigner(service.Secret(*f.key), delegation)
	if err != nil {
		return ofInput(err, "starling key online --help")
	}
	if _, _, err := d.Check(m, time.Now()); err != nil {
		return &failure{exitCheck, err, "starling manifest show says of which deployment it is, starling recipe show which one is meant"}
	}
	if role == signed.Gateway {
		if err := ownKeys(m, keys); err != nil {
			return err
		}
	}
	if err := said(deploy.Say(m, role, s, *f.record)); err != nil {
		return err
	}
	i := slices.IndexFunc(m.Signatures, func(c ohttp.Cosignature) bool { return c.Role == role })
	root := map[signed.Role]signed.PublicKey{signed.Leader: d.Roots.Leader, signed.Helper: d.Roots.Helper, signed.Gateway: d.Roots.Gateway}[role]
	if err := m.VerifyOne(m.Signatures[i], root); err != nil {
		return failf(exitInput, "take the online key of the owner whose root the recipe names", "%w", err)
	}
	return nil
}

func manifestSignCommand() *command {
	return &command{
		name: "sign", args: "--as ROLE --signing-key FILE --record FILE [--key FILE [--second FILE]] [--json] MANIFEST RECIPE...",
		short: "Sign a manifest for one of its parties",
		long: `It adds the party's signature to the file. ROLE is leader, helper or gateway; RECIPE are all that the party takes part in. It
refuses a manifest that says something else of the deployment than the recipes, that holds other key lists than leader and
helper have signed, or a second one of an epoch, which the record remembers; as gateway, one with another key of the gateway's than those of --key
and --second. A leader or a helper that runs with a token in
its configuration signs by itself, what it holds to be true, and nothing needs to be signed for it here.`,
		examples: [][2]string{{"starling manifest sign --as gateway --key epochs/3.key --signing-key gateway.online --record gateway.signed next.manifest.draft recipe.starling",
			"where the gateway's online key is not on the machine that made the draft"}},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			as := flags.String("as", "", "the party that signs: `ROLE`")
			key := flags.String("key", "", "the gateway's key, a `FILE`; required to sign as gateway, which signs for no other")
			second := flags.String("second", "", "its second key, a `FILE`, where the manifest has two")
			sign := newSignFlags(flags, "the party's")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(_ context.Context, e *env, args []string) error {
				role := map[string]signed.Role{"leader": signed.Leader, "helper": signed.Helper, "gateway": signed.Gateway}[*as]
				switch {
				case role == 0 || len(args) < 2 || *sign.key == "":
					return usageOf("manifest sign", errors.New("starling manifest sign needs --as leader, helper or gateway, --signing-key, a manifest and recipes"))
				case (role == signed.Gateway) != (*key != "") || *second != "" && *key == "":
					return usageOf("manifest sign", errors.New("--key is for --as gateway, which needs it; --second goes with it"))
				}
				m, err := readManifest(args[0])
				if err != nil {
					return err
				}
				d, err := deploymentOf(args[1:])
				if err != nil {
					return err
				}
				if err := sign.run(m, role, d, *key, *second); err != nil {
					return err
				}
				b, err := m.Append(nil)
				if err != nil {
					return err
				}
				if err := replace(args[0], b); err != nil {
					return err
				}
				if *asJSON {
					return e.json(map[string]any{"epoch": m.Epoch, "revision": m.Revision, "signed": signers(m)})
				}
				_, err = fmt.Fprintf(e.stdout, "epoch %d, revision %d: signed by %s\n", m.Epoch, m.Revision, strings.Join(signers(m), ", "))
				return err
			}
		},
	}
}

func manifestVerifyCommand() *command {
	return &command{
		name: "verify", args: "[--anchors FILE] [--json] MANIFEST RECIPE",
		short: "Check a manifest as a device does",
		long: `The recipe's keys are held against the anchors, and the manifest against the keys: leader, helper and gateway have all signed it,
and leader's and helper's key lists are their own. A manifest of the next epoch is looked at as if it had begun.`,
		examples: [][2]string{{"starling manifest verify manifest.starling recipe.starling", "before it is handed out"}},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			anchorsFile := flags.String("anchors", "", anchorsUsage)
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				if len(args) != 2 {
					return usageOf("manifest verify", errors.New("starling manifest verify needs a manifest and a recipe"))
				}
				m, err := readManifest(args[0])
				if err != nil {
					return err
				}
				checked, err := deploy.OpenRecipe(args[1])
				if err != nil {
					return ofInput(err, noRecipe)
				}
				anchors, err := readAnchors(*anchorsFile)
				if err != nil {
					return err
				}
				if err := deploy.VerifyManifest(ctx, m, checked.Recipe(), anchors, time.Now()); err != nil {
					return failf(exitCheck, cmp.Or(hintOfTrust(err), "starling manifest show "+args[0]), "%s: %w", args[0], err)
				}
				digest, err := m.Digest()
				if err != nil {
					return err
				}
				if *asJSON {
					return e.json(map[string]any{"valid": true, "digest": fmt.Sprintf("%x", digest), "epoch": m.Epoch, "revision": m.Revision})
				}
				_, err = fmt.Fprintf(e.stdout, "%s holds: digest %x, epoch %d, from %s until %s\n", args[0], digest, m.Epoch,
					m.NotBefore.Format(time.RFC3339), m.NotAfter.Format(time.RFC3339))
				return err
			}
		},
	}
}
