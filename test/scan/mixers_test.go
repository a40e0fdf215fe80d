package scan

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/issuer"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/contribute"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/internal/service/servicetest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/shuffle/hop"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
	"github.com/starling-agg/starling/test/internal/recording"
)

// mixerPhases are the states in which a deployment of the shuffled path is searched.
var mixerPhases = []string{
	"posted",   // the gateway has acknowledged each contribution, and hop 1 has none
	"gathered", // hop 1 has all
	"mixed",    // hop 1 has flushed the round, and hop 2 does not answer
	"remixed",  // so has hop 2, and the analyzer does not answer
	"tallied",  // the analyzer has the result
}

const mixerHead = "| party of the shuffled path | where | what | from | until |"

// A mixed is a deployment of the shuffled path in the mode tokens, with all of its parties as an
// operator starts them, from files.
type mixed struct {
	*world
	mixers  *deploy.Mixers
	shuffle *onion.Shuffle
	round   uint64
	held    []*client.Held
}

func newMixed(t *testing.T) *mixed {
	t.Helper()
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "x"), gates: make(map[string]*gate), logs: make(map[string]*recording.Bytes), local: make(map[string]string),
		needles: newFinder()}
	x := &mixed{world: w}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	x.mixers, err = deploy.LoopbackMixers(false)
	ok(err)
	w.front, err = deploy.LoopbackFront()
	ok(err)
	w.watched, err = deploy.LoopbackLog()
	ok(err)
	now := time.Now().UTC().Truncate(time.Second)
	length := int64(7 * 86400) // an epoch that neither begins nor ends about now
	for in := now.Unix() % length; in < 3600 || in >= length-3600; in = now.Unix() % length {
		length -= 86400
	}
	x.mixers.Tokens = &deploy.MixerTokens{Attester: signed.Generate(), Begin: now, EpochLength: uint32(length)}
	w.front.Log, w.front.Devices = w.watched.LogURL(), people
	w.recipe, err = account.New(account.Options{
		Name: "Scan", Query: recipe.Sum{Max: 1 << 32}, Randomizer: recipe.Cloak{Kind: recipe.SumPreservingCloak, Users: 20}, MinBatch: people,
		Path: x.mixers.Path(true), Relay: &recipe.Relay{URL: w.front.RelayURL(), Gateway: w.front.GatewayURL()}, TimePrecision: 6, Grace: 2 * time.Second,
		Log:    &recipe.Log{Origin: w.watched.Origin()},
		Tokens: &recipe.Tokens{Attester: "https://attester.example/", Key: x.mixers.Tokens.Attester.Public(), Attestation: recipe.Codes, MinCohort: people},
	})
	ok(err)
	ok(deploy.CreateShuffle(w.dir, w.recipe, x.mixers, w.front, now, 5*time.Millisecond))
	ok(deploy.CreateLog(w.dir, w.watched, time.Hour))
	w.checked, err = deploy.OpenRecipe(w.in(deploy.RecipeFile))
	ok(err)
	w.anchors, err = deploy.ReadAnchors(w.in(deploy.AnchorsFile))
	ok(err)
	w.manifest, err = ohttp.ReadManifest(w.read(deploy.ManifestFile))
	ok(err)
	x.shuffle, err = w.recipe.Shuffle()
	ok(err)
	for range people {
		x.held = append(x.held, new(client.Held))
	}
	x.issue(signed.Hop1, w.manifest.Issuers.Leader, func(h *client.Held) (**arc.Credential, *arc.KeyID) { return &h.Leader, &h.LeaderKey })
	x.issue(signed.Hop2, w.manifest.Issuers.Helper, func(h *client.Held) (**arc.Credential, *arc.KeyID) { return &h.Helper, &h.HelperKey })
	return x
}

// issue has the issuer beside a hop, which does not run yet, answer all devices, as if the epoch
// had not begun.
func (x *mixed) issue(role signed.Role, public [ohttp.IssuerKeySize]byte, into func(*client.Held) (**arc.Credential, *arc.KeyID)) {
	t := x.t
	t.Helper()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	name := strings.ReplaceAll(role.String(), " ", "-")
	keys, err := disk.OS(x.in(name + ".issuer"))
	ok(err)
	register, err := disk.OS(x.in(name + "/issuer"))
	ok(err)
	i, err := issuer.New(issuer.Options{Role: role, Deployment: x.manifest.Deployment, Epoch: x.manifest.Length, Keys: keys, Register: register,
		Terms: func(uint32) (issuer.Terms, bool) {
			return issuer.Terms{Key: public, Attester: x.mixers.Tokens.Attester.Public(), Cap: people, Begin: time.Now().Add(time.Hour)}, true
		}})
	ok(err)
	attester := signedtest.Signer(t, x.mixers.Tokens.Attester, time.Now().Add(-time.Hour), 24*time.Hour)
	key, err := arc.ReadPublicKey(public[:])
	ok(err)
	for _, h := range x.held {
		p := arc.NewPending(arc.NewRequestContext(arc.Role(role), x.manifest.Deployment, uint64(x.manifest.Epoch), key.ID()))
		order := visit.Order{Role: role, Deployment: x.manifest.Deployment, Epoch: x.manifest.Epoch, Request: [arc.RequestSize]byte(p.Request().Append(nil))}
		ok(order.Sign(attester, time.Now()))
		answer, _, err := i.Issue(t.Context(), &order)
		ok(err)
		response, err := arc.ReadCredentialResponse(answer)
		ok(err)
		credential, err := p.Finalize(key, response)
		ok(err)
		c, id := into(h)
		*c, *id = credential, key.ID()
		hash := sha256.Sum256(order.Request[:])
		x.needles.needle("hash of the request", hash[:])
		x.needles.needle("request", order.Request[:])
		b := credential.Append(nil)
		x.needles.needle("credential", b[:len(b)-33]) // but for the issuer's public key
	}
	ok(errors.Join(i.Close(), keys.Close(), register.Close()))
}

// Held implements client.Credentials for one device.
type showing struct{ held *client.Held }

func (s showing) Held(uint64) (*client.Held, error) { return s.held, nil }

// start serves all from their files.
func (x *mixed) start() {
	t := x.t
	t.Helper()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	log := func(party string) *slog.Logger {
		x.logs[party] = new(recording.Bytes)
		return service.NewLogger(x.logs[party], slog.LevelDebug)
	}
	at := func(party string, public, local net.Listener) deploy.Listeners {
		x.gates[party] = newGate(public)
		x.local[party] = local.Addr().String()
		return deploy.Listeners{Public: x.gates[party], Local: local}
	}
	var parts []service.Part
	for i, l := range x.watched.Witnesses {
		c, err := deploy.LoadWitness(x.in(deploy.WitnessFile(i + 1)))
		ok(err)
		party := fmt.Sprint("witness-", i+1)
		parts = append(parts, c.Parts(log(party), at(party, l.Public, l.Local))...)
	}
	shows, err := deploy.LoadLog(x.in(deploy.LogFile))
	ok(err)
	parts = append(parts, shows.Parts(log("log"), at("log", x.watched.Log.Public, x.watched.Log.Local))...)
	a, err := deploy.LoadAnalyzer(x.in(deploy.AnalyzerFile))
	ok(err)
	parts = append(parts, a.Parts(log("analyzer"), at("analyzer", x.mixers.Analyzer.Public, x.mixers.Analyzer.Local))...)
	for n := 2; n > 0; n-- {
		h, err := deploy.LoadHop(x.in(deploy.HopFile(n)))
		ok(err)
		party := fmt.Sprint("hop-", n)
		parts = append(parts, h.Parts(log(party), at(party, x.mixers.Hops[n-1].Public, x.mixers.Hops[n-1].Local))...)
	}
	behind, err := deploy.LoadGateway(x.in(deploy.GatewayFile))
	ok(err)
	parts = append(parts, behind.Parts(log("gateway"), at("gateway", x.front.Gateway, x.front.GatewayLocal))...)
	ahead, err := deploy.LoadRelay(x.in(deploy.RelayFile))
	ok(err)
	front, err := ahead.Parts(log("relay"), at("relay", x.front.Relay, x.front.RelayLocal))
	ok(err)
	x.stopped, err = servicetest.Start(append(parts, front...)...)
	ok(err)
	t.Cleanup(func() { x.stopped() })
}

// A files is the log as a device that follows it has seen it: here the files that parties put
// there.
type files struct{ *mixed }

func (f files) Manifest(context.Context) (*ohttp.Manifest, error) { return f.manifest, nil }
func (files) Holds(recipe.ID) error                               { return nil }
func (files) Counted(*recipe.Recipe) error                        { return nil }

func (f files) ShuffleKeys(_ [32]byte, role onion.Role, round uint64, _ signed.PublicKey) ([]byte, error) {
	return os.ReadFile(f.in(f.roundFile(role, round, "list")))
}

func (x *mixed) roundFile(role onion.Role, round uint64, name string) string {
	party := map[onion.Role]string{onion.First: "hop-1", onion.Second: "hop-2", onion.Analyzer: "analyzer"}[role]
	return party + "/" + hex.EncodeToString(x.shuffle.Recipe[:]) + "/rounds/" + strconv.FormatUint(round, 10) + "/" + name
}

// opener is that of a party's key of the round.
func (x *mixed) opener(role onion.Role) (*onion.Opener, error) {
	k, err := sealed.ParseKeyPair(x.read(x.roundFile(role, x.round, "key")))
	if err != nil {
		return nil, err
	}
	return x.shuffle.Shape(x.round).Opener(role, k)
}

// sees has a contribution looked for, and what each party will find in it.
func (x *mixed) sees(envelope []byte) error {
	n, shape := x.needles, x.shuffle.Shape(x.round)
	some := func(kind string, b []byte) { n.needle(kind, b[:min(len(b), 64)]) }
	some("envelope", envelope[12:])
	some("envelope", envelope[len(envelope)-64:])
	records := [][]byte{envelope}
	for role, kind := range []string{onion.First: "onion", onion.Second: "sealed message", onion.Analyzer: "message"} {
		if kind == "" {
			continue
		}
		o, err := x.opener(onion.Role(role))
		if err != nil {
			return err
		}
		var next [][]byte
		for _, opened := range o.Open(records, sealed.Serial) {
			if opened.Parts == nil {
				return fmt.Errorf("%v does not open its layer", onion.Role(role))
			}
			if len(opened.Token) > 0 {
				some("presentation", opened.Token[1:])
				n.needle("tag", opened.Token[1+3*33:1+4*33]) // behind U, UPrimeCommit, m1Commit
			}
			_, size := shape.Parts(onion.Role(role))
			for b := opened.Parts; len(b) > 0; b = b[size:] {
				some(kind, b[:size])
				next = append(next, b[:size])
			}
		}
		records = next
	}
	return nil
}

// TestWhatMixersKeep: from the gateway's acknowledgement until the result is there, what is
// known of devices and of their contributions is found in no log, page or file of the parties
// of the shuffled path but those of docs/data-model.md, from when and until when it stands
// there.
func TestWhatMixersKeep(t *testing.T) {
	list := rows(t, mixerHead, mixerPhases)
	x := newMixed(t)
	ctx := t.Context()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	phase := -1
	next := func(name string) {
		t.Helper()
		if phase++; mixerPhases[phase] != name {
			t.Fatalf("%s comes after %s", name, mixerPhases[phase])
		}
		late := time.After(2 * time.Minute)
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for {
			lines := differs(list, mixerPhases, phase, x.found())
			if len(lines) == 0 {
				return
			}
			select {
			case <-ticker.C:
			case <-late:
				t.Fatalf("%s:\n%s", name, strings.Join(lines, "\n"))
			}
		}
	}
	status := func(party string) hop.ShuffleStatus {
		t.Helper()
		var s hop.Status
		ok(json.Unmarshal(x.page(party, "/statusz"), &s))
		return s.Shuffles[0]
	}
	committed := func(party string) bool {
		return slices.ContainsFunc(status(party).Rounds, func(r hop.RoundStatus) bool { return r.Round == x.round && r.Stage == "committed" })
	}
	x.start()
	x.await("all keys are logged", func() bool {
		for _, party := range []string{"hop-1", "hop-2", "analyzer"} {
			for _, r := range status(party).Rounds {
				if !r.Logged {
					return false
				}
			}
		}
		return true
	})
	for _, party := range []string{"hop-1", "hop-2", "analyzer"} {
		x.gates[party].shut()
	}
	x.round = x.shuffle.Round(time.Now()) + 1 // of which nobody is late
	source, err := contribute.NewManifests(contribute.ManifestsOptions{Recipe: x.recipe, Source: files{x}})
	ok(err)
	for i, h := range x.held {
		dialer := &net.Dialer{}
		if runtime.GOOS == "linux" { // which takes all of 127.0.0.0/8 for its own
			dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, byte(190+i), byte(201+i), byte(130+7*i))}
		}
		from := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err == nil {
				at := c.LocalAddr().(*net.TCPAddr).AddrPort()
				if dialer.LocalAddr != nil {
					x.needles.address(at)
				}
				x.needles.text("address", at.String())
			}
			return c, err
		}}
		t.Cleanup(from.CloseIdleConnections)
		via, err := ohttp.NewTransport(ohttp.TransportOptions{Relay: from, Source: source})
		ok(err)
		c, err := contribute.New(contribute.Options{Client: client.Options{Checked: x.checked, MaxEpsilon: math.Inf(1), Anchors: x.anchors, Via: via, Log: files{x}, Credentials: showing{h},
			Tries: client.Tries{Count: 1, Every: 10 * time.Second}}})
		ok(err)
		ok(c.Refresh(ctx))
		envelope, err := c.Prepare(client.Number(uint64(i)), x.shuffle.Begin(x.round))
		ok(err)
		ok(x.sees(envelope))
		ok(c.Send(ctx, bytes.Clone(envelope)))
	}
	next("posted")
	x.gates["hop-1"].lift()
	x.await("hop 1 has all", func() bool { return status("hop-1").Requests["taken"] == people })
	next("gathered")
	x.await("hop 1 has flushed", func() bool { return committed("hop-1") })
	next("mixed")
	x.gates["hop-2"].lift()
	x.await("hop 2 has flushed", func() bool { return committed("hop-2") })
	next("remixed")
	x.gates["analyzer"].lift()
	x.await("there is a result", func() bool { return status("analyzer").Totals.Rounds["tallied"] == 1 })
	next("tallied")
	if s := status("analyzer"); s.Totals.Contributions != people || s.Totals.Dropped != 0 {
		t.Errorf("%+v", s.Totals)
	}
	for _, party := range []string{"hop-1", "hop-2"} {
		if s := status(party); s.Requests["unproved"]+s.Requests["spent"] != 0 || s.Totals.Contributions != people {
			t.Errorf("%s: %+v", party, s)
		}
	}
}
