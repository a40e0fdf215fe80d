package hostile

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
	"github.com/starling-agg/starling/vdaf"
)

// A vouched world has a recipe that names the keys of its servers' owners.
type vouched struct {
	*world
	owners  *deploy.Owners
	anchors *signed.Anchors
	stop    func() error
}

// vouchedWorld starts one, once, for the attacks below; run stops it.
var vouchedWorld = sync.OnceValues(func() (*vouched, error) {
	dir, err := os.MkdirTemp("", "starling-vouched-")
	if err != nil {
		return nil, err
	}
	w := &vouched{}
	if w.owners, err = deploy.NewOwners(); err != nil {
		return nil, err
	}
	var stop func() error
	if w.world, stop, err = beginFor(filepath.Join(dir, "world"), options(), w.owners); err != nil {
		return nil, err
	}
	w.stop = func() error { return errors.Join(stop(), os.RemoveAll(dir)) }
	stopVouched = w.stop
	w.anchors, err = deploy.ReadAnchors(filepath.Join(w.dir, deploy.AnchorsFile))
	return w, err
})

// stopVouched is called when all tests have run.
var stopVouched = func() error { return nil }

func vouchedFor(t *testing.T) *vouched {
	t.Helper()
	w, err := vouchedWorld()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// signer is the online key of one of the three, as a thief or its dishonest owner has it.
func (w *vouched) signer(t *testing.T, role signed.Role) *signed.Signer {
	t.Helper()
	s, err := deploy.ReadSigner(service.Secret(filepath.Join(w.dir, "secrets", role.String()+".online")), filepath.Join(w.dir, "secrets", role.String()+".online.delegation"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// changed is the world's manifest, changed and then signed anew by those who are of the
// attacker's party, with no record that would stop them.
func (w *vouched) changed(t *testing.T, change func(*ohttp.Manifest), by ...signed.Role) *ohttp.Manifest {
	t.Helper()
	b, err := w.manifest.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ohttp.ReadManifest(b)
	if err != nil {
		t.Fatal(err)
	}
	change(m)
	for _, role := range by {
		if err := m.Sign(role, w.signer(t, role)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

var (
	allThree = []signed.Role{signed.Leader, signed.Helper, signed.Gateway}
	theMaker = []signed.Role{signed.Gateway} // of manifests, who is the gateway's owner
)

// ownList is a key list of the attacker's: its own key under the true id, signed by whom
// it has.
func (w *vouched) ownList(t *testing.T, role signed.Role, s *signed.Signer, change func(*signed.List)) ([]byte, *sealed.KeyPair) {
	t.Helper()
	path := w.recipe.Path.(recipe.TwoServer)
	i, base := 0, path.Leader
	if role == signed.Helper {
		i, base = 1, path.Helper
	}
	l, _, err := signed.ReadList(w.manifest.Pinned[i].Body)
	if err != nil {
		t.Fatal(err)
	}
	offered, err := dap.ReadHpkeConfigList(l.Body)
	if err != nil {
		t.Fatal(err)
	}
	own := pair(t, offered[0].ID)
	if l.Body, err = (dap.HpkeConfigList{dap.NewHpkeConfig(own)}).Append(nil); err != nil {
		t.Fatal(err)
	}
	l.Role, l.URL = role, base
	if change != nil {
		change(l)
	}
	b, err := l.Sign(s)
	if err != nil {
		t.Fatal(err)
	}
	return b, own
}

// stranger is an owner whom nobody knows.
func stranger(t *testing.T) *signed.Signer {
	t.Helper()
	return signedtest.Signer(t, signed.Generate(), time.Now().Add(-time.Hour).Truncate(time.Second), signed.MaxOnline)
}

// handed gives a manifest to a device with that memory, and says what it says.
func (w *vouched) handed(t *testing.T, memory *client.Memory, m *ohttp.Manifest, now time.Time) error {
	t.Helper()
	source, err := client.NewManifests(client.ManifestsOptions{Recipe: w.recipe, Anchors: w.anchors, Source: ohttp.Pin(m), Memory: memory,
		Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	_, err = source.Manifest(t.Context())
	return err
}

// decides is a device with a ledger that is handed a manifest, as a person's would be: it
// pays and sends, or fails.
func (w *vouched) decides(t *testing.T, m *ohttp.Manifest) (paid, sent int, err error) {
	t.Helper()
	fsys, err := disk.OS(filepath.Join(t.TempDir(), "device"))
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close()
	ledger, err := participate.OpenLedger(fsys, participate.LedgerOptions{MaxEpsilon: 10, MaxDelta: 1e-3})
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close()
	memory, err := client.OpenMemory(fsys)
	if err != nil {
		t.Fatal(err)
	}
	wire := &uploadsOf{next: http.DefaultTransport}
	source, err := client.NewManifests(client.ManifestsOptions{Recipe: w.recipe, Anchors: w.anchors, Source: ohttp.Pin(m), Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: source, Relay: wire})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{Prover: account.Prover, Recipe: w.bytes, Anchors: w.anchors, Via: via, Tries: tries})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := participate.NewPlan(participate.PlanOptions{Client: c})
	if err != nil {
		t.Fatal(err)
	}
	_, err = (&participate.Device{Ledger: ledger}).Decide(t.Context(), plan, answer, time.Now())
	for _, e := range ledger.Entries() {
		paid += int(e.Rounds)
	}
	return paid, wire.sent, err
}

// readReport opens both shares of a report with keys of the attacker's own, and returns
// the answer and the shares.
func readReport(t *testing.T, c *client.Client, r dap.Report, keys [2]*sealed.KeyPair) (result []int64, plain [2][]byte) {
	t.Helper()
	id, task := c.Task()
	aad := dap.InputShareAAD(id, task.Bytes(), &r.Metadata, r.PublicShare)
	v, err := task.VDAF()
	if err != nil {
		t.Fatal(err)
	}
	ctx, sizes, errs := task.Version.VDAFContext(id), v.Sizes(), make([]error, 1)
	var key [vdaf.VerifyKeySize]byte
	var states []vdaf.State
	var verifiers [][]byte
	var shares []*vdaf.AggShare
	for i, s := range []struct {
		role dap.Role
		ct   dap.HpkeCiphertext
	}{{dap.RoleLeader, r.Leader}, {dap.RoleHelper, r.Helper}} {
		if plain[i], err = keys[i].Open(s.ct.Enc, task.Version.InputShareInfo(s.role), aad, s.ct.Payload); err != nil {
			t.Fatalf("the %v's share: %v", s.role, err)
		}
		share, err := dap.ReadPlaintextInputShare(plain[i])
		if err != nil {
			t.Fatal(err)
		}
		states, verifiers = append(states, v.NewState(1)), append(verifiers, make([]byte, sizes.VerifierShare))
		in := &vdaf.Reports{Nonces: [][16]byte{r.Metadata.ID}, Public: [][]byte{r.PublicShare}, Inputs: [][]byte{slices.Clone(share.Payload)}}
		v.VerifyInit(states[i], &key, ctx, i, in, verifiers[i], errs)
		shares = append(shares, v.NewAggShare())
	}
	message := make([]byte, sizes.VerifierMessage)
	v.Combine(ctx, verifiers, message, errs)
	for i, st := range states {
		v.Check(st, message, errs)
		v.Accumulate(st, nil, nil, shares[i:i+1], errs)
	}
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	if result, err = v.Unshard(shares); err != nil {
		t.Fatal(err)
	}
	return result, plain
}

// TestManifestMakerReadsAnswers: who makes manifests puts keys of its own under leader's
// and helper's ids, opens both shares of what comes, adds them, and seals them again to
// the true keys. Where a recipe names no keys, as recipe show says, the answer is read
// and nothing shows it; where it names them, nothing is paid or sent.
func TestManifestMakerReadsAnswers(t *testing.T) {
	before := shared.settled(t)
	var own [2]*sealed.KeyPair
	var truth [2]dap.HpkeConfig
	taken := with(func(m *ohttp.Manifest) {
		for i := range own {
			list, err := dap.ReadHpkeConfigList(m.Pinned[i].Body)
			if err != nil {
				t.Fatal(err)
			}
			truth[i], own[i] = list[0], pair(t, list[0].ID)
			if m.Pinned[i].Body, err = (dap.HpkeConfigList{dap.NewHpkeConfig(own[i])}).Append(nil); err != nil {
				t.Fatal(err)
			}
		}
	})
	c := shared.client(t, taken, nil)
	r, _ := report(t, c)
	read, plain := readReport(t, c, r, own)
	if !slices.Equal(read, []int64{0, 1, 0}) {
		t.Errorf("without keys in the recipe the attacker reads %v", read)
	}
	id, task := c.Task()
	aad := dap.InputShareAAD(id, task.Bytes(), &r.Metadata, r.PublicShare)
	for i, ct := range []*dap.HpkeCiphertext{&r.Leader, &r.Helper} {
		var err error
		role := []dap.Role{dap.RoleLeader, dap.RoleHelper}[i]
		if *ct, err = dap.Seal(truth[i], task.Version.InputShareInfo(role), aad, plain[i]); err != nil {
			t.Fatal(err)
		}
	}
	shared.upload(t, shared.client(t, shared.manifest, nil), r)
	if acknowledged, aggregated, rejected, _ := gained(before, shared.settled(t)); acknowledged != 1 || aggregated != 1 || len(rejected) > 0 {
		t.Errorf("sealed again: acknowledged %d, aggregated %d, rejected %v; the recipe is described as if that worked", acknowledged, aggregated, rejected)
	}

	w := vouchedFor(t)
	for name, s := range map[string]*signed.Signer{"a root of its own": stranger(t), "the gateway's keys": w.signer(t, signed.Gateway)} {
		for _, by := range [][]signed.Role{nil, theMaker} {
			m := w.changed(t, func(m *ohttp.Manifest) {
				for i, role := range allThree[:2] {
					m.Pinned[i].Body, _ = w.ownList(t, role, s, nil)
				}
			}, by...)
			paid, sent, err := w.decides(t, m)
			if !errors.Is(err, ohttp.ErrUnsigned) || paid != 0 || sent != 0 {
				t.Errorf("%s, signed anew by %v: %v; %d rounds paid, %d requests", name, by, err, paid, sent)
			}
			// Even if nobody asked for the three signatures, the lists are not their
			// owners'.
			m = w.changed(t, func(m *ohttp.Manifest) { m.Pinned[0].Body, _ = w.ownList(t, signed.Leader, s, nil) }, allThree...)
			if err := w.handed(t, client.Forgetful(), m, time.Now()); !errors.Is(err, signed.ErrSignature) {
				t.Errorf("%s, all three tricked: %v", name, err)
			}
		}
	}
	if paid, _, err := w.decides(t, w.manifest); err != nil || paid != 1 {
		t.Errorf("the true manifest: %d rounds paid, %v", paid, err)
	}
}

// TestKeysOfOneServer: whatever one of the three does with its own keys, or with what
// others have signed elsewhere, no device takes a list that is not its owner's, for this
// deployment, role and address, and none takes two lists with one key.
func TestKeysOfOneServer(t *testing.T) {
	w := vouchedFor(t)
	leader, helper := w.signer(t, signed.Leader), w.signer(t, signed.Helper)
	list := func(role signed.Role, s *signed.Signer, change func(*signed.List)) []byte {
		b, _ := w.ownList(t, role, s, change)
		return b
	}
	bodyOf := func(i int) []byte {
		l, _, err := signed.ReadList(w.manifest.Pinned[i].Body)
		if err != nil {
			t.Fatal(err)
		}
		return l.Body
	}
	for name, c := range map[string]struct {
		change func(*ohttp.Manifest)
		by     []signed.Role
		want   error
	}{
		"the leader's list alone, by the maker": {func(m *ohttp.Manifest) { m.Pinned[0].Body = list(signed.Leader, stranger(t), nil) }, theMaker, ohttp.ErrUnsigned},
		"the helper's list alone, by the maker": {func(m *ohttp.Manifest) { m.Pinned[1].Body = list(signed.Helper, stranger(t), nil) }, theMaker, ohttp.ErrUnsigned},
		"a list for one device, by its leader":  {func(m *ohttp.Manifest) { m.Pinned[0].Body = list(signed.Leader, leader, nil) }, []signed.Role{signed.Leader, signed.Gateway}, ohttp.ErrUnsigned},
		"the helper's, by the leader":           {func(m *ohttp.Manifest) { m.Pinned[1].Body = list(signed.Helper, leader, nil) }, allThree, signed.ErrSignature},
		"lists exchanged":                       {func(m *ohttp.Manifest) { m.Pinned[0].Body, m.Pinned[1].Body = m.Pinned[1].Body, m.Pinned[0].Body }, allThree, signed.ErrList},
		"the leader's list as the helper's":     {func(m *ohttp.Manifest) { m.Pinned[1].Body = m.Pinned[0].Body }, allThree, signed.ErrList},
		"of another deployment": {func(m *ohttp.Manifest) {
			m.Pinned[0].Body = list(signed.Leader, leader, func(l *signed.List) { l.Deployment[0]++ })
		}, allThree, signed.ErrList},
		"of another address": {func(m *ohttp.Manifest) {
			m.Pinned[0].Body = list(signed.Leader, leader, func(l *signed.List) { l.URL += "v2/" })
		}, allThree, signed.ErrList},
		"of another epoch": {func(m *ohttp.Manifest) {
			m.Pinned[0].Body = list(signed.Leader, leader, func(l *signed.List) { l.Epoch-- })
		}, allThree, signed.ErrList},
		"that ends before the manifest": {func(m *ohttp.Manifest) {
			m.Pinned[0].Body = list(signed.Leader, leader, func(l *signed.List) { l.NotAfter = l.NotAfter.Add(-time.Hour) })
		}, allThree, signed.ErrList},
		"one key in both": {func(m *ohttp.Manifest) {
			m.Pinned[1].Body = list(signed.Helper, helper, func(l *signed.List) { l.Body = bodyOf(0) })
		}, allThree, client.ErrSharedKey},
		"cut off":             {func(m *ohttp.Manifest) { m.Pinned[0].Body = m.Pinned[0].Body[:len(m.Pinned[0].Body)-1] }, allThree, signed.ErrList},
		"with a byte more":    {func(m *ohttp.Manifest) { m.Pinned[0].Body = append(m.Pinned[0].Body, 0) }, allThree, signed.ErrList},
		"none for the helper": {func(m *ohttp.Manifest) { m.Pinned = m.Pinned[:1] }, allThree, signed.ErrList},
		"two keys of one KEM, to tell devices apart": {func(m *ohttp.Manifest) {
			m.Pinned[0].Body = list(signed.Leader, leader, func(l *signed.List) {
				var err error
				if l.Body, err = (dap.HpkeConfigList{dap.NewHpkeConfig(pair(t, 1)), dap.NewHpkeConfig(pair(t, 2))}).Append(nil); err != nil {
					t.Fatal(err)
				}
			})
		}, allThree, nil},
	} {
		err := w.handed(t, client.Forgetful(), w.changed(t, c.change, c.by...), time.Now())
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestGatewayKeyOfTheMaker: a gateway's key of one's own reads, with the relay, who
// uploads; a key for each device tells devices apart by its id. Without the three
// signatures no device seals to it.
func TestGatewayKeyOfTheMaker(t *testing.T) {
	w := vouchedFor(t)
	own := func(m *ohttp.Manifest) { m.Gateway = []ohttp.KeyConfig{ohttp.NewKeyConfig(pair(t, m.Gateway[0].ID))} }
	for name, by := range map[string][]signed.Role{"nobody": nil, "the gateway, for each device another": theMaker,
		"gateway and leader": {signed.Leader, signed.Gateway}, "gateway and helper": {signed.Helper, signed.Gateway}} {
		paid, sent, err := w.decides(t, w.changed(t, own, by...))
		if !errors.Is(err, ohttp.ErrUnsigned) || paid != 0 || sent != 0 {
			t.Errorf("signed by %s: %v; %d rounds paid, %d requests", name, err, paid, sent)
		}
	}
}

// TestManifestOfAnotherTime: an old epoch, one of next year, a clock that is put back to
// make an old one hold again, an online key whose time is over.
func TestManifestOfAnotherTime(t *testing.T) {
	w := vouchedFor(t)
	now := time.Now()
	moved := func(by time.Duration) func(*ohttp.Manifest) {
		return func(m *ohttp.Manifest) {
			m.NotBefore, m.NotAfter = m.NotBefore.Add(by), m.NotAfter.Add(by)
			m.Epoch = ohttp.EpochAt(m.NotBefore, m.Length)
		}
	}
	fsys, err := disk.OS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close()
	device := func() *client.Memory { // after a restart
		t.Helper()
		m, err := client.OpenMemory(fsys)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	week := w.manifest.Length
	if err := w.handed(t, device(), w.changed(t, moved(52*week)), now); !errors.Is(err, ohttp.ErrManifest) {
		t.Errorf("of next year: %v", err)
	}
	if err := w.handed(t, device(), w.changed(t, moved(-2*week)), now); !errors.Is(err, ohttp.ErrManifest) {
		t.Errorf("of the epoch before last: %v", err)
	}
	if err := w.handed(t, device(), w.manifest, now); err != nil {
		t.Fatalf("a manifest of next year stops the true one: %v", err)
	}
	// The attacker holds the old one in store, and sets the clock to its time.
	if err := w.handed(t, device(), w.manifest, now.Add(-2*time.Second)); !errors.Is(err, client.ErrClock) {
		t.Errorf("two seconds back: %v", err)
	}
	if err := w.handed(t, device(), w.manifest, now.Add(-week)); !errors.Is(err, client.ErrClock) {
		t.Errorf("a week back: %v", err)
	}
	if err := w.handed(t, device(), w.manifest, now); err != nil {
		t.Errorf("the clock is right again: %v", err)
	}
	// An online key of the leader's, taken from its server long ago.
	online := signed.Generate()
	gone, err := signed.Delegate(w.owners.Leader, online.Public(), now.Add(-signed.MaxOnline-time.Hour), now.Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := signed.Delegate(w.owners.Leader, online.Public(), now.Add(-time.Hour), now.Add(signed.MaxOnline-2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	s, err := signed.NewSigner(online, whole)
	if err != nil {
		t.Fatal(err)
	}
	m := w.changed(t, func(m *ohttp.Manifest) { m.Previous[0]++ }, signed.Helper, signed.Gateway)
	if err := m.Sign(signed.Leader, s); err != nil {
		t.Fatal(err)
	}
	if err := w.handed(t, client.Forgetful(), m, now); err != nil {
		t.Fatalf("with a key whose time is not over: %v", err)
	}
	m.Signatures[0].Signature.Delegation = gone
	if err := w.handed(t, client.Forgetful(), m, now); !errors.Is(err, signed.ErrWindow) {
		t.Errorf("with a key whose time is over: %v", err)
	}
}

// TestTwoManifestsOfOneEpoch: leader, helper and gateway together sign two for one epoch,
// to tell devices apart. Who has seen the one takes no other, whatever it restarts, and
// keeps both for everybody to see.
func TestTwoManifestsOfOneEpoch(t *testing.T) {
	w := vouchedFor(t)
	now := time.Now()
	dir := t.TempDir()
	device := func(m *ohttp.Manifest) error {
		t.Helper()
		fsys, err := disk.OS(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer fsys.Close()
		memory, err := client.OpenMemory(fsys)
		if err != nil {
			return err
		}
		return w.handed(t, memory, m, now)
	}
	if err := device(w.manifest); err != nil {
		t.Fatal(err)
	}
	own := func(m *ohttp.Manifest) { m.Gateway = []ohttp.KeyConfig{ohttp.NewKeyConfig(pair(t, 99))} }
	two := w.changed(t, own, allThree...)
	lower := w.changed(t, func(m *ohttp.Manifest) {
		m.NotBefore, m.Epoch = m.NotBefore.Add(-m.Length/2), ohttp.EpochAt(m.NotBefore.Add(-m.Length/2), m.Length)
		m.NotAfter = m.NotBefore.Add(m.Length)
	})
	if lower.Epoch == w.manifest.Epoch {
		// the epoch before, which must end within this one's time
		lower = w.changed(t, func(m *ohttp.Manifest) {
			m.NotBefore = time.Unix(int64(m.Epoch)*int64(m.Length/time.Second)-1, 0).UTC()
			m.NotAfter, m.Epoch = m.NotBefore.Add(m.Length), m.Epoch-1
		})
	}
	for i, role := range allThree[:2] { // for the time of the lower epoch
		s := w.signer(t, role)
		lower.Pinned[i].Body, _ = w.ownList(t, role, signerFrom(t, w, role), func(l *signed.List) {
			l.NotBefore, l.NotAfter, l.Epoch = lower.NotBefore, lower.NotAfter, lower.Epoch
		})
		_ = s
	}
	for _, role := range allThree {
		if err := lower.Sign(role, signerFrom(t, w, role)); err != nil {
			t.Fatal(err)
		}
	}
	for name, m := range map[string]*ohttp.Manifest{"two of one epoch": two, "a lower epoch": lower} {
		var conflict *client.ConflictError
		if err := device(m); !errors.As(err, &conflict) || !errors.Is(err, client.ErrConflict) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		kept, err := filepath.Glob(filepath.Join(dir, client.MemoryDir, fmt.Sprintf("*-%x.evidence", conflict.Given[:8])))
		if err != nil || len(kept) != 1 {
			t.Errorf("%s: kept %v, %v", name, kept, err)
			continue
		}
		b, err := os.ReadFile(kept[0])
		if err != nil {
			t.Fatal(err)
		}
		evidence, err := ohttp.ReadManifest(b)
		if err != nil {
			t.Fatal(err)
		}
		k := w.recipe.ServerKeys
		if err := evidence.Verify(ohttp.Roots{Leader: k.Leader, Helper: k.Helper, Gateway: k.Gateway}); err != nil {
			t.Errorf("%s: the evidence proves nothing: %v", name, err)
		}
	}
	if err := device(w.manifest); err != nil {
		t.Errorf("the one that was seen: %v", err)
	}
	later := w.changed(t, func(m *ohttp.Manifest) { m.Revision++ }, allThree...)
	if err := device(later); err != nil {
		t.Errorf("an emergency's: %v", err)
	}
	if err := device(w.manifest); !errors.Is(err, ohttp.ErrManifest) {
		t.Errorf("the one before the emergency: %v", err)
	}
	// Who changes what the device remembers stops it, and gets no other manifest in.
	names, err := filepath.Glob(filepath.Join(dir, client.MemoryDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".evidence") || filepath.Base(name) == "clock" {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)-300]++ // in the signatures
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := device(two); !errors.Is(err, client.ErrMemory) {
		t.Errorf("a changed memory: %v", err)
	}
}
