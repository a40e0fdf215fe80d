package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/credentials"
	"github.com/starling-agg/starling/client/logbook"
	"github.com/starling-agg/starling/client/sender"
	"github.com/starling-agg/starling/internal/endpoint"
	"github.com/starling-agg/starling/internal/exchange"
	"github.com/starling-agg/starling/internal/logged"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/signed"
)

const (
	credentialsUsage = "the directory `DIR` of the device's credentials"
	// maxCode bounds a file with one code, and maxToken one with a token, in bytes.
	maxCode  = 256
	maxToken = visit.MaxProof
)

// A countedRecipe is a recipe that counts devices or names a log, as a device takes it.
type countedRecipe struct {
	file    string
	recipe  *recipe.Recipe
	anchors *signed.Anchors
	purse   sender.Purse
	relayed bool // the log's bundle is fetched from the relay
}

// openCounted opens a recipe that counts devices or names a log, whose keys are anchors.
func openCounted(command, file, dir, anchors string) (*countedRecipe, error) {
	if file == "" || dir == "" {
		return nil, usageOf(command, fmt.Errorf("starling %s needs --credentials and a recipe", command))
	}
	checked, err := openCertified(file)
	if err != nil {
		return nil, err
	}
	x := &countedRecipe{file: file, recipe: checked.Recipe()}
	if x.recipe.Tokens == nil && (x.recipe.Log == nil || command == "enrol") {
		return nil, failf(exitInput, "starling send "+file+" VALUE", "%s counts no devices: its reports show no credentials", file)
	}
	if x.anchors, err = readAnchors(anchors); err != nil {
		return nil, err
	}
	if err := x.recipe.CheckAnchors(x.anchors); err != nil {
		return nil, &failure{exitCheck, err, cmp.Or(hintOfTrust(err), "starling recipe show "+file)}
	}
	x.purse = sender.Purse{Dir: dir, Recipe: x.recipe}
	// A device has its directory from what it does first: a name that was mistyped afterwards
	// would make another device of it.
	switch {
	case exists(dir) || command == "enrol":
	case x.recipe.Tokens != nil:
		return nil, failf(exitInput, x.enrol(), "%s does not exist: a device has it from starling enrol on", dir)
	case command == "send":
		return nil, failf(exitInput, fmt.Sprintf("starling visit --credentials %s --policy log.policy %s", dir, file), "%s does not exist: a device has it from starling visit on", dir)
	}
	return x, nil
}

// enrol is how a device enrols.
func (x *countedRecipe) enrol() string { return howToEnrol(x.recipe, x.purse.Dir, x.file) }

// howToEnrol is the command by which a device becomes known to a recipe's attester.
func howToEnrol(r *recipe.Recipe, dir, file string) string {
	by := "--code FILE"
	switch r.Tokens.Attestation {
	case recipe.OIDC:
		by = "--nonce" // and then --oidc-token
	case recipe.MTLS:
		by = "--cert FILE --key FILE"
	}
	return fmt.Sprintf("starling enrol --credentials %s %s %s", dir, by, file)
}

// open opens the directory of credentials.
func (x *countedRecipe) open() (*sender.OpenPurse, error) {
	p, err := x.purse.Open()
	if err != nil {
		return nil, ofPurse(err, x.purse.Dir)
	}
	return p, nil
}

// follow opens what the device has seen of the recipe's log, by the policy in a file. Options
// say where a bundle is fetched from.
func (x *countedRecipe) follow(command string, p *sender.OpenPurse, policy string, from logbook.Options) (*logbook.Logbook, error) {
	if policy == "" {
		return nil, failf(exitUsage, fmt.Sprintf("starling %s --policy FILE ...; %s", command, noPolicy), "%s stands in the log %s: --policy is missing", x.file, x.recipe.Log.Origin)
	}
	knows, err := readPolicyFile(command, policy)
	if err != nil {
		return nil, err
	}
	from.Anchors, from.Policy = x.anchors, knows
	book, err := p.Logbook(from)
	if err != nil {
		return nil, x.ofBook(err)
	}
	return book, nil
}

// ofBook is why a device cannot go by the log.
func (x *countedRecipe) ofBook(err error) error {
	dir := filepath.Join(x.purse.Dir, sender.LogDir)
	switch {
	case errors.Is(err, logbook.ErrPolicy):
		return &failure{exitCheck, err, noPolicy}
	case errors.Is(err, logbook.ErrState):
		return &failure{exitCheck, err, "do not delete it: put the newest copy of " + dir + " back, for a device that forgets can be shown an older log; docs/log.md"}
	case errors.Is(err, logbook.ErrNothing):
		return &failure{exitNotYet, err, fmt.Sprintf("starling visit --credentials %s --policy log.policy %s", x.purse.Dir, x.file)}
	case slices.ContainsFunc([]error{tlog.ErrFork, tlog.ErrRolledBack, tlog.ErrStale, tlog.ErrQuorum, tlog.ErrClock, tlog.ErrGap, tlog.ErrBundle, tlog.ErrOrigin,
		tlog.ErrCheckpoint, tlog.ErrUnsigned, tlog.ErrEntry, tlog.ErrDuplicate, logged.ErrAuthor, logged.ErrContent}, func(is error) bool { return errors.Is(err, is) }):
		return ofLog(err)
	case errors.As(err, new(*failure)):
		return err
	case x.relayed:
		code := exitUnreachable
		if status := new(logged.StatusError); errors.As(err, &status) && status.Status == http.StatusServiceUnavailable {
			code = exitNotYet
		}
		return &failure{code, fmt.Errorf("the relay %s, which hands the log's bundle out: %w", x.recipe.Relay.URL, err),
			cmp.Or(hintOfCertificate(err), "type the same again; the relay's owner sees more with starling doctor relay.toml")}
	}
	return away(err)
}

// ofPurse is why a directory of credentials cannot be used.
func ofPurse(err error, dir string) error {
	switch {
	case errors.As(err, new(*sender.DirError)):
		return &failure{exitInput, err, "--credentials DIR names a directory of yours, made where there is none"}
	case errors.As(err, new(*sender.BusyError)):
		return &failure{exitFailed, err, "wait for the other starling send, enrol or visit to end"}
	case errors.Is(err, credentials.ErrState):
		return &failure{exitCheck, err, dir + " is of one deployment: name another for another; what is damaged, put back as it was last, " +
			"or begin anew with a code that nobody has used: starling enrol --help; docs/credentials.md"}
	}
	return err
}

func enrolCommand() *command {
	return &command{
		name: "enrol", args: "[--anchors FILE] [--json] --credentials DIR (--code FILE | --stdin | --nonce | --oidc-token FILE | --cert FILE --key FILE) RECIPE",
		short: "Have the attester of recipes that count devices know this one, by a code, a login or a certificate",
		long: `A recipe that counts devices names an attester, and how it tells devices apart (starling recipe show). DIR then stands for the device: its
secret is kept there before it is sent, and typing the same again after a failure is harmless. A device enrols once. Keep DIR, and copy it to no other
device: of two that have it one gets no credentials, or both show the same and count once.
By codes, the attester's operator gives each device one. By an identity provider, --nonce prints what the provider must put into the ID token (the
parameter nonce of the request for it), and --oidc-token brings that, within minutes: a token for another DIR is refused. By certificates, the device
shows its own to the attester.`,
		examples: [][2]string{
			{"starling enrol --credentials ~/.local/share/starling/credentials --code code.secret recipe.starling", "with the code in a file"},
			{"starling enrol --credentials ~/.local/share/starling/credentials --nonce recipe.starling", "what the ID token must hold"},
			{"starling enrol --credentials ~/.local/share/starling/credentials --oidc-token - recipe.starling", "with the ID token from standard input"},
			{"starling enrol --credentials ~/.local/share/starling/credentials --cert device.pem --key device.key recipe.starling", "with the device's certificate"},
			{"starling visit --credentials ~/.local/share/starling/credentials --policy log.policy recipe.starling", "what comes next, for every epoch"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			dir := flags.String("credentials", "", credentialsUsage+", made where there is none; required")
			code := flags.String("code", "", "the one-time code is the one line of this `FILE`")
			stdin := flags.Bool("stdin", false, "read the code from standard input")
			token := flags.String("oidc-token", "", "the ID token is in this `FILE`; - is standard input")
			nonce := flags.Bool("nonce", false, "print the nonce that the ID token must have")
			cert := flags.String("cert", "", "the device's certificate, and those between it and the authority's, a PEM `FILE`")
			key := flags.String("key", "", "the certificate's key, a PEM `FILE`")
			anchors := flags.String("anchors", "", anchorsUsage)
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) (err error) {
				file, err := oneFile("enrol", args, "")
				if err != nil {
					return err
				}
				ways := 0
				for _, way := range []bool{*code != "", *stdin, *token != "", *nonce, *cert != ""} {
					if way {
						ways++
					}
				}
				if ways != 1 || (*cert != "") != (*key != "") {
					return usageOf("enrol", errors.New("starling enrol needs --code or --stdin, --nonce or --oidc-token, or --cert with --key, and one of them only"))
				}
				x, err := openCounted("enrol", file, *dir, *anchors)
				if err != nil {
					return err
				}
				by := recipe.Codes
				switch {
				case *nonce || *token != "":
					by = recipe.OIDC
				case *cert != "":
					by = recipe.MTLS
				}
				if kind := x.recipe.Tokens.Attestation; by != kind {
					return failf(exitInput, x.enrol(), "%s tells devices apart by %v", file, kind)
				}
				var proof []byte
				switch {
				case *nonce:
				case by == recipe.OIDC:
					proof, err = readToken(e.stdin, *token)
				case by == recipe.MTLS:
					proof = []byte(visit.CertificateProof)
					x.purse.HTTP, err = showing(*cert, *key)
				default:
					proof, err = readCode(e.stdin, *code)
				}
				if err != nil {
					return err
				}
				p, err := x.open()
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, p.Close()) }()
				before := p.Wallet.Enrolled()
				if *nonce {
					said, err := p.Wallet.Nonce()
					if err != nil {
						return x.refused(ctx, err)
					}
					if *asJSON {
						return e.json(map[string]any{"nonce": said, "enrolled": before, "attester": x.recipe.Tokens.Attester, "credentials": *dir})
					}
					fmt.Fprintf(e.stderr, "next: get an ID token with this nonce, and within minutes starling enrol --credentials %s --oidc-token FILE %s\n", *dir, file)
					_, err = fmt.Fprintln(e.stdout, said)
					return err
				}
				enrol := p.Wallet.EnrolAs
				if by == recipe.Codes {
					enrol = p.Wallet.Enrol
				}
				if err := enrol(ctx, proof); err != nil {
					return x.refused(ctx, err)
				}
				if *asJSON {
					return e.json(map[string]any{"enrolled": true, "before": before, "attester": x.recipe.Tokens.Attester, "credentials": *dir})
				}
				said := "this device is enrolled"
				if before {
					said = "this device was enrolled before, and is"
				}
				_, err = fmt.Fprintf(e.stdout, "%s: %s, credentials in %s\nnext: starling visit --credentials %s --policy log.policy %s\n", said, x.recipe.Tokens.Attester, *dir, *dir, file)
				return err
			}
		},
	}
}

// readInput reads a file, or what comes in where that has no name or is -, of at most a number
// of bytes, and gives nothing of what is longer.
func readInput(in io.Reader, path string, limit int64) ([]byte, error) {
	if path != "" && path != "-" {
		return readLimited("enrol", path, limit)
	}
	b, err := io.ReadAll(io.LimitReader(in, limit+1))
	if int64(len(b)) > limit {
		b = nil
	}
	return b, err
}

// readToken reads an ID token.
func readToken(in io.Reader, path string) ([]byte, error) {
	b, err := readInput(in, path, maxToken)
	if err != nil {
		return nil, err
	}
	if b = bytes.TrimSpace(b); bytes.Count(b, []byte(".")) != 2 {
		return nil, failf(exitInput, "an ID token is three parts with dots between them, of at most "+strconv.Itoa(maxToken)+" bytes: of the provider's answer, what stands under id_token",
			"%s has no ID token", cmp.Or(strings.TrimPrefix(path, "-"), "standard input"))
	}
	return b, nil
}

// showing is a client that shows a certificate, to the recipe's attester alone.
func showing(cert, key string) (client.Doer, error) {
	const hint = "--cert FILE is the device's certificate, and --key FILE its key, both PEM"
	if err := cmp.Or(notDirectory("enrol", cert), notDirectory("enrol", key)); err != nil {
		return nil, err
	}
	chain, err := os.ReadFile(cert)
	if err != nil {
		return nil, ofInput(err, hint)
	}
	secret, err := service.Secret(key).Read()
	if err != nil {
		return nil, ofInput(err, hint)
	}
	pair, err := tls.X509KeyPair(chain, secret)
	if err != nil {
		return nil, failf(exitInput, hint, "%s, %s: %w", cert, key, err)
	}
	doer := exchange.DefaultDoer(30 * time.Second)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// The attester says itself which it does not take, whatever authorities TLS names.
	transport.TLSClientConfig = &tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
	doer.Transport = transport
	return doer, nil
}

// readCode reads a file, or what comes in, that has one code.
func readCode(in io.Reader, path string) ([]byte, error) {
	b, err := readInput(in, path, maxCode)
	if err != nil {
		return nil, err
	}
	words := strings.Fields(string(b))
	if len(words) != 1 {
		return nil, failf(exitInput, "one code a device, on one line, as the attester's operator gave it out: starling attester codes makes them",
			"%s has not one code", cmp.Or(path, "standard input"))
	}
	return []byte(words[0]), nil
}

// refused gives what kept a device from its credentials an exit code and a hint.
func (x *countedRecipe) refused(ctx context.Context, err error) error {
	said := new(credentials.RefusedError)
	switch {
	case ctx.Err() != nil || errors.As(err, new(*sender.WaitError)):
		return &failure{exitInterrupted, err, "what was sent and the instant that was drawn are kept: type the same again"}
	case errors.Is(err, credentials.ErrState), errors.As(err, new(*sender.DirError)), errors.As(err, new(*sender.BusyError)):
		return ofPurse(err, x.purse.Dir)
	case errors.Is(err, credentials.ErrNotEnrolled):
		return &failure{exitCheck, err, x.enrol()}
	case errors.Is(err, credentials.ErrTooLate):
		return &failure{exitNotYet, err, "nobody gets credentials of an epoch that has begun: visit for the next one, once its manifest is there"}
	case errors.Is(err, credentials.ErrIssuers):
		return &failure{exitCheck, err, "starling manifest show says what the manifest names; devices are counted by one of their deployment with two issuers"}
	case errors.Is(err, credentials.ErrKeys):
		return &failure{exitCheck, err, "nothing was asked for under keys that not everybody sees: visit again, and ask the owners of gateway and attester; docs/credentials.md"}
	case errors.Is(err, credentials.ErrAnswer):
		return &failure{exitCheck, err, "an issuer or the gateway answered under another key than the manifest's, which all see: visit again, and ask the owners of leader, helper and gateway; docs/credentials.md"}
	case !errors.As(err, &said):
		return &failure{exitUnreachable, err, cmp.Or(hintOfCertificate(err), "type the same again; the attester's operator sees with starling status attester.toml what it is, and of leader and helper")}
	}
	kind := x.recipe.Tokens.Attestation
	switch said.Word {
	case "unproved", "stranger":
		hint := "the attester knows no such code: ask who gave it out, and then " + x.enrol()
		switch kind {
		case recipe.OIDC:
			hint = fmt.Sprintf("the token is too old, of another provider or client, or has another nonce: %s; get one with that, and within minutes starling enrol --credentials %s --oidc-token FILE %s",
				x.enrol(), x.purse.Dir, x.file)
		case recipe.MTLS:
			hint = "the certificate is not one of the authority's for clients, or of another time: ask who gave it out, and then " + x.enrol()
		}
		return &failure{exitCheck, err, hint}
	case "enrolled-other":
		hint := "the code is used up, by whoever has the directory that it was used with: find that, or get another code and " + x.enrol()
		if kind != recipe.Codes {
			hint = "whoever that is has enrolled with another directory, on this device or another: go on with that one, for each has one; docs/credentials.md"
		}
		return &failure{exitCheck, err, hint}
	case "second-visit":
		return &failure{exitCheck, err, "a copy of " + x.purse.Dir + " has visited for this epoch: go on with that, and with one only; docs/credentials.md"}
	case "unknown-epoch":
		return &failure{exitNotYet, err, "the attester does not have the manifest yet: type the same again before the epoch begins"}
	case "begun":
		return &failure{exitNotYet, err, "by the attester's clock the epoch has begun: visit for the next one, once its manifest is there"}
	case "full":
		return &failure{exitNotYet, err, "as many devices as the manifest says have credentials: visit for the next epoch; who makes manifests says how many with starling manifest new --devices"}
	}
	return &failure{exitCheck, err, "the attester's operator sees with starling status attester.toml what it makes of devices; docs/credentials.md"}
}

func visitCommand() *command {
	return &command{
		name: "visit", args: "[--log URL | --bundle FILE] [--wait | --at-once] [--anchors FILE] [--json] --credentials DIR --policy FILE RECIPE",
		short: "Follow a recipe's log, visit the attester for the coming epochs' credentials, and say which the device has",
		long: `Run it from a timer, every hour, say: nothing that it asks for then depends on what the device does. It fetches the log's bundle through the relay, at times
that were drawn once, six hours apart. For each epoch whose manifest is there and that has not begun the device visits once, at an instant that is
drawn when the command first hears of it, and kept: it visits if the instant has come, and else says when it is. --wait waits for it, and visits
again at fixed distances if nobody answers. --at-once fetches and visits now, so that when you typed it is what attester and relay see: for laboratories.
Once an epoch has begun, the log says for how many devices there are credentials of it, and no device shows any before. Of a recipe that counts no
devices and names a log, it follows that.`,
		examples: [][2]string{
			{"starling visit --credentials DIR --policy log.policy recipe.starling", "once an hour, from a timer"},
			{"starling visit --credentials DIR --policy log.policy --wait recipe.starling", "or once an epoch, for as long as it takes"},
			{"starling visit --credentials DIR --policy log.policy --bundle bundle recipe.starling", "with the log's bundle from a file"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			dir := flags.String("credentials", "", credentialsUsage+"; required")
			policy := flags.String("policy", "", policyUsage)
			at := flags.String("log", "", "ask the log at this `URL`, which sees the device, and not the relay")
			bundle := flags.String("bundle", "", "the log's bundle is in this `FILE`: nobody is asked")
			wait := flags.Bool("wait", false, "wait for the instants that were drawn")
			atOnce := flags.Bool("at-once", false, "fetch and visit now, whenever it was drawn for: the time then tells what you do")
			anchors := flags.String("anchors", "", anchorsUsage)
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				file, err := oneFile("visit", args, "")
				if err != nil {
					return err
				}
				if *wait && *atOnce || *at != "" && *bundle != "" {
					return usageOf("visit", errors.New("--wait and --at-once exclude each other, and so do --log and --bundle"))
				}
				if _, err := endpoint.Parse(*at); *at != "" && err != nil {
					return failf(exitUsage, fmt.Sprintf("starling visit --log https://log.example/ ... %s, or without --log, by the relay", file), "--log: %w", err)
				}
				x, err := openCounted("visit", file, *dir, *anchors)
				if err != nil {
					return err
				}
				if x.recipe.Log == nil {
					return failf(exitInput, "a recipe that counts devices stands in a log: starling recipe new --log NAME",
						"%s names no log, so nobody says for how many devices there are credentials, and none is shown", file)
				}
				v := &visiting{countedRecipe: x, policy: *policy, wait: *wait, atOnce: *atOnce}
				x.relayed = *at == "" && *bundle == ""
				v.now = *bundle != "" // nobody learns when
				v.from = bundleFrom(x.recipe.Relay.URL, *at, *bundle)
				if err := v.visit(ctx, e, *asJSON); err != nil {
					return err
				}
				return v.show(e, *asJSON)
			}
		},
	}
}

// bundleFrom says where a device has the log's bundle from: the relay, where nothing else
// was typed, which asks the log for it alone. Tiles show for how long the device was
// away, and to whom; so it asks for them only where it was told to ask the log, which
// sees it anyhow.
func bundleFrom(relay, log, file string) logbook.Options {
	if file != "" {
		return logbook.Options{Fetch: func(context.Context) ([]byte, error) { return readLimited("visit", file, tlog.MaxBundle) }}
	}
	remote := logged.Remote{URL: cmp.Or(log, relay), Client: &http.Client{Timeout: 30 * time.Second}}
	if log == "" {
		return logbook.Options{Fetch: remote.Bundle}
	}
	return logbook.Options{Fetch: remote.Bundle, Tiles: remote.Files}
}

// visiting is one run of starling visit.
type visiting struct {
	*countedRecipe
	policy       string
	from         logbook.Options // where the bundle is fetched from
	now          bool            // the bundle is fetched, whenever it is due
	wait, atOnce bool
	book         *logbook.Logbook
}

// refresh fetches the bundle if it is time. A device goes on with what it had where that
// fails, as long as it holds.
func (v *visiting) refresh(ctx context.Context, e *env) error {
	if !v.now && !v.atOnce && v.book.Due().After(time.Now()) {
		return nil
	}
	err := v.book.Refresh(ctx)
	if err == nil {
		return nil
	}
	failed := v.ofBook(err)
	if f := new(failure); errors.As(failed, &f) && f.code == exitCheck || v.now || v.atOnce {
		return failed
	}
	if _, held := v.book.Coming(); held != nil {
		return failed
	}
	fmt.Fprintf(e.stderr, "the log's bundle was not to be had, and what was seen of it before still holds: %v\n", err)
	return nil
}

// visit takes down what the log says, and makes the visits that are due.
func (v *visiting) visit(ctx context.Context, e *env, asJSON bool) (err error) {
	p, err := v.open()
	if err != nil {
		return err
	}
	end := p.Close
	defer func() { err = errors.Join(err, end()) }()
	if v.book, err = v.follow("visit", p, v.policy, v.from); err != nil {
		return err
	}
	w := p.Wallet
	if w != nil && !w.Enrolled() {
		return &failure{exitCheck, fmt.Errorf("%s: %w", v.purse.Dir, credentials.ErrNotEnrolled), v.enrol()}
	}
	if err := v.refresh(ctx, e); err != nil {
		return err
	}
	if w == nil {
		return nil
	}
	if _, err := w.Forget(); err != nil {
		return v.refused(ctx, err)
	}
	holds, err := v.holds()
	if err != nil {
		return err
	}
	var failed error // the first thing that went wrong with one epoch: others are visited for all the same
	fail := func(err error) {
		if err != nil && failed == nil {
			failed = v.refused(ctx, err)
		}
	}
	// The first statement on an epoch stays, so the manifest under which it is taken has to hold.
	if m, err := v.book.Manifest(ctx); err == nil && holds.Signed(m) == nil {
		c, ok, err := v.book.Cohort(m)
		if err == nil && ok {
			err = w.Told(m, c)
		}
		fail(err)
	}
	coming, err := v.coming(holds)
	if err != nil {
		return err
	}
	held := make(map[uint32]bool)
	for _, x := range w.Epochs() {
		held[x.Number] = x.Held
	}
	var due []*ohttp.Manifest
	for _, m := range coming {
		at, err := w.Plan(m)
		if errors.Is(err, credentials.ErrFull) {
			break // its turn comes
		}
		fail(err)
		switch {
		case err != nil || held[m.Epoch]:
		case v.wait:
			due = append(due, m)
			if !asJSON {
				_, err := fmt.Fprintf(e.stdout, "epoch %d: waiting for the instant that was drawn, %s\n", m.Epoch, clock(at))
				fail(err)
			}
		case v.atOnce || !time.Now().Before(at):
			due = append(due, m)
		}
	}
	fail(end()) // while it waits, for the instant or for the attester, others may use the directory
	end = func() error { return nil }
	for _, m := range due {
		if v.wait {
			fail(v.purse.VisitInTime(ctx, m))
		} else {
			fail(v.purse.Visit(ctx, m))
		}
	}
	return failed
}

// holds holds manifests against the recipe's keys.
func (v *visiting) holds() (*client.Manifests, error) {
	holds, err := client.NewManifests(client.ManifestsOptions{Recipe: v.recipe, Anchors: v.anchors, Source: v.book, Memory: client.Forgetful()})
	if err != nil {
		return nil, &failure{exitCheck, err, "starling recipe show " + v.file}
	}
	return holds, nil
}

// coming are the manifests of the epochs to visit for, each of which holds.
func (v *visiting) coming(holds *client.Manifests) (all []*ohttp.Manifest, err error) {
	in, err := v.book.Coming()
	if err != nil {
		return nil, v.ofBook(err)
	}
	for _, m := range in {
		if m.Issuers == nil {
			continue // it is of the time before the deployment counted devices
		}
		if err := holds.Signed(m); err != nil {
			return nil, &failure{exitCheck, fmt.Errorf("the log's manifest of epoch %d: %w", m.Epoch, err), cmp.Or(hintOfTrust(err), "starling manifest verify says what is wrong with a manifest")}
		}
		all = append(all, m)
	}
	return all, nil
}

// A shownEpoch is what a device has of an epoch.
type shownEpoch struct {
	Epoch uint32 `json:"epoch"`
	// State is due, not-begun, shown, sat-out, over, uncounted or few.
	State string    `json:"state"`
	Visit time.Time `json:"visit,omitzero"`
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end"`
	Held  bool      `json:"held"`
	// Of those who have credentials; null as long as nobody has said.
	Leader   *uint64 `json:"leader_devices"`
	Helper   *uint64 `json:"helper_devices"`
	Attested *uint64 `json:"attested_devices"`
}

// states are what a device has of the epochs that it heard of.
func (v *visiting) states(w *credentials.Wallet) []shownEpoch {
	list := []shownEpoch{}
	now := time.Now()
	for _, x := range w.Epochs() {
		s := shownEpoch{Epoch: x.Number, State: "shown", Visit: x.Visit, Begin: x.Begin, End: x.Until, Held: x.Held}
		if x.Counted {
			s.Leader, s.Helper, s.Attested = &x.Cohort.Leader, &x.Cohort.Helper, &x.Cohort.Attested
		}
		none := new(credentials.NoneError)
		if _, err := w.For(v.recipe.Tokens.MinCohort).Held(uint64(x.Number)); errors.As(err, &none) {
			s.State = string(none.Reason)
		}
		if !x.Held {
			if s.State = "sat-out"; now.Before(x.Begin) {
				s.State = "due"
			}
		}
		list = append(list, s)
	}
	m, err := v.book.Manifest(context.Background()) // which asks nobody
	if err == nil && m.Issuers != nil && !slices.ContainsFunc(list, func(s shownEpoch) bool { return s.Epoch == m.Epoch }) {
		list = append(list, shownEpoch{Epoch: m.Epoch, State: "sat-out", Begin: m.NotBefore, End: m.NotAfter})
	}
	return list
}

// show says how far the device has followed the log, and what it has.
func (v *visiting) show(e *env, asJSON bool) (err error) {
	seen, states := v.book.Seen(), []shownEpoch{}
	if v.recipe.Tokens != nil {
		p, err := v.open()
		if err != nil {
			return err
		}
		states = v.states(p.Wallet)
		if err := p.Close(); err != nil {
			return err
		}
	}
	if asJSON {
		return e.json(map[string]any{"log": v.recipe.Log.Origin, "log_entries": seen.Size, "log_time": seen.Time, "epochs": states})
	}
	if _, err := fmt.Fprintf(e.stdout, "log %s: %d entries, as witnesses say at %s\n", v.recipe.Log.Origin, seen.Size, clock(seen.Time)); err != nil {
		return err
	}
	for _, s := range states {
		said := ""
		switch s.State {
		case "due":
			said = fmt.Sprintf("the visit is due at %s: run this again then, or with --wait now", clock(s.Visit))
		case string(credentials.ReasonNotBegun):
			said = fmt.Sprintf("has credentials; it begins at %s", clock(s.Begin))
		case string(credentials.ReasonUncounted):
			said = "has credentials, and shows none before the log says for how many devices there are some: run this again"
		case string(credentials.ReasonFew):
			said = fmt.Sprintf("has credentials, and shows none: %s are too few, where the recipe wants %d", v.devices(s), v.recipe.Tokens.MinCohort)
		case "shown":
			said = fmt.Sprintf("shows its credentials until %s, as one of %s: starling send --credentials %s", clock(s.End), v.devices(s), v.purse.Dir)
		case "sat-out":
			said = "has no credentials, and nobody gets any once it has begun: sits it out"
		default:
			said = "is over"
		}
		if _, err := fmt.Fprintf(e.stdout, "epoch %d: %s\n", s.Epoch, said); err != nil {
			return err
		}
	}
	if len(states) == 0 && v.recipe.Tokens != nil {
		_, err = fmt.Fprintln(e.stdout, "no epoch is known: the manifest of the next is not there yet, so run this again in a day")
	}
	return err
}

func (v *visiting) devices(s shownEpoch) string {
	return fmt.Sprintf("%d devices at the leader and %d at the helper, of %d", *s.Leader, *s.Helper, *s.Attested)
}

// openPurse has a device show its credentials, and go by the log, where the recipe asks for
// it; it says which flags are missing or too many.
func (x *sending) openPurse(policy, anchors string, values int, simulated bool) error {
	t, l := x.recipe.Tokens, x.recipe.Log
	switch {
	case t == nil && l == nil && x.credentials == "" && policy == "":
		return nil
	case t == nil && l == nil:
		return usageOf("send", fmt.Errorf("%s counts no devices and names no log: --credentials and --policy have nothing to say", x.file))
	case x.credentials == "" && t != nil:
		return failf(exitUsage, "starling send --credentials DIR ...; a device comes to its credentials by starling enrol --help and starling visit --help",
			"%s counts devices, and each shows credentials: --credentials is missing", x.file)
	case x.credentials == "":
		return failf(exitUsage, "starling send --credentials DIR --policy FILE ...; starling visit --help says how DIR follows the log",
			"%s stands in the log %s: --credentials is missing", x.file, l.Origin)
	case t != nil && (simulated || values != 1):
		return usageOf("send", fmt.Errorf("%s counts devices, and one has one report a round: one value", x.file))
	case l != nil && x.options.Manifest != nil:
		return usageOf("send", fmt.Errorf("%s stands in the log %s, and so do its manifests: --manifest is one too many", x.file, l.Origin))
	case l == nil && x.options.Manifest == nil:
		return failf(exitUsage, "starling send --manifest manifest.starling ...", "%s goes through a relay: --manifest is missing", x.file)
	}
	c, err := openCounted("send", x.file, x.credentials, anchors)
	if err != nil {
		return err
	}
	p, err := c.open()
	if err != nil {
		return err
	}
	if l != nil {
		var book *logbook.Logbook
		book, err = c.follow("send", p, policy, logbook.Options{Fetch: func(context.Context) ([]byte, error) {
			return nil, errors.New("starling send fetches nothing of the log, or its time would tell")
		}})
		x.options.Manifest, x.options.Client.Log = book, book
	}
	if t != nil {
		x.options.Client.Credentials = p.Wallet.For(t.MinCohort)
	}
	if t != nil && t.Admission {
		id, failed := x.recipe.ID()
		x.options.Client.Admission, err = p.Wallet.Admission(id), errors.Join(err, failed)
	}
	return errors.Join(err, p.Close()) // what was read is all that is needed, and starling visit may go on
}

// sitsOut is why a device without credentials sends nothing, with what to type.
func (x *sending) sitsOut(err error) error {
	none := new(credentials.NoneError)
	if !errors.As(err, &none) {
		return &failure{exitNotYet, err, "docs/credentials.md says what a device without credentials does"}
	}
	visit := fmt.Sprintf("starling visit --credentials %s --policy log.policy %s", x.credentials, x.file)
	switch none.Reason {
	case credentials.ReasonNotEnrolled:
		return &failure{exitCheck, err, howToEnrol(x.recipe, x.credentials, x.file)}
	case credentials.ReasonUncounted:
		return &failure{exitNotYet, err, "the log says it soon after an epoch begins: " + visit}
	case credentials.ReasonFew:
		return &failure{exitNotYet, err, "the device sits this epoch out, lest it be known as one of few; for the next: " + visit}
	case credentials.ReasonNoToken:
		return &failure{exitNotYet, err, "the gateway gave none of this round before the epoch began, so the device sits it out; for the next epoch: " + visit}
	case credentials.ReasonNotBegun:
		return &failure{exitNotYet, err, "send again then"}
	}
	return &failure{exitNotYet, err, "nobody gets credentials of an epoch that has begun, so the device sits it out; for the next: " + visit}
}

// ofTheLog says whether the log, as the device has seen it, is why it sends nothing.
func ofTheLog(err error) bool {
	return slices.ContainsFunc([]error{logbook.ErrNothing, logbook.ErrNoManifest, logbook.ErrNotHeld, tlog.ErrStale, tlog.ErrClock}, func(is error) bool { return errors.Is(err, is) })
}

// unlogged gives such an error its exit code and a hint.
func (x *sending) unlogged(err error) error {
	visit := fmt.Sprintf("starling visit --credentials %s --policy log.policy %s", x.credentials, x.file)
	switch {
	case errors.Is(err, logbook.ErrNotHeld):
		return &failure{exitCheck, err, "the recipe's author has not had it logged, or has withdrawn it: get the one that takes its place; to look again: " + visit}
	case errors.Is(err, tlog.ErrClock):
		return &failure{exitNotYet, err, "set the clock right"}
	case errors.Is(err, logbook.ErrNoManifest):
		return &failure{exitNotYet, err, "the epoch has not begun, or its manifest came after the device looked last: " + visit}
	}
	return &failure{exitNotYet, err, "what the device has seen of the log is too old, or nothing: " + visit}
}
