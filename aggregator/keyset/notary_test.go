package keyset

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset/vault"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// promising is short with lists that reach an hour ahead.
func promising(delay time.Duration) Schedule {
	s := short(delay)
	s.Promise = time.Hour
	return s
}

// TestPromise: a key in a list that was promised takes uploads until then, whatever
// follows it and over restarts, and no longer.
func TestPromise(t *testing.T) {
	clock, mem := newClock(), disktest.NewMem(1)
	o := Options{Schedule: promising(3 * time.Minute), FS: mem, Clock: clock}
	s := open(t, o)
	list, _ := s.List()
	first := offered(t, s)[0]
	until := clock.Now().Add(40 * time.Minute)
	if err := s.promise(t.Context(), list, until); err != nil {
		t.Fatal(err)
	}
	// a shorter one changes nothing
	if err := s.promise(t.Context(), list, until.Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	for minute := 1; minute <= 45; minute++ {
		clock.advance(time.Minute)
		if minute%7 == 0 {
			o.FS = mem.Crash()
			mem = o.FS.(*disktest.Mem)
			s = open(t, o)
		}
		step(t, s, unneeded)
		accepting := s.Accepting()
		if takes := accepting.Has(first.ID); takes != (minute < 40) {
			t.Fatalf("after %d minutes: taken: %v (%s)", minute, takes, state(s, first.ID))
		}
		accepting.Release()
		opening := s.Opening(clock.Now())
		if opens := opening.Keyring().Has(first.ID); opens != (minute < 43) {
			t.Fatalf("after %d minutes: opens: %v", minute, opens)
		}
		opening.Release()
	}
	if got := state(s, first.ID); got != status.KeyDestroyed {
		t.Errorf("it is %s", got)
	}
}

func TestPromiseRefused(t *testing.T) {
	clock := newClock()
	s := open(t, Options{Schedule: promising(0), FS: disktest.NewMem(1), Clock: clock})
	list, _ := s.List()
	ours := offered(t, s)[0]
	encode := func(l ...dap.HpkeConfig) []byte {
		t.Helper()
		b, err := dap.HpkeConfigList(l).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	foreign := func(id uint8) dap.HpkeConfig {
		t.Helper()
		k, err := sealed.Generate(id, sealed.SuiteX25519)
		if err != nil {
			t.Fatal(err)
		}
		return dap.NewHpkeConfig(k)
	}
	soon := clock.Now().Add(time.Minute)
	for name, c := range map[string]struct {
		list  []byte
		until time.Time
	}{
		"another key":           {encode(foreign(ours.ID + 1)), soon},
		"another under its id":  {encode(foreign(ours.ID)), soon},
		"two of one KEM":        {encode(ours, foreign(ours.ID+1)), soon},
		"no list":               {nil, soon},
		"cut off":               {list[:len(list)-1], soon},
		"further than promised": {list, clock.Now().Add(time.Hour + time.Second)},
	} {
		if err := s.promise(t.Context(), c.list, c.until); !errors.Is(err, ErrPromise) {
			t.Errorf("%s: %v", name, err)
		}
	}
	clock.advance(10 * time.Minute)
	step(t, s, unneeded)
	clock.advance(5 * time.Minute)
	if err := s.promise(t.Context(), list, clock.Now().Add(time.Minute)); !errors.Is(err, ErrPromise) {
		t.Errorf("a key that is taken no longer: %v", err)
	}
}

// TestPromiseByAFastClock: a promise that a clock far ahead made keeps no key until then.
func TestPromiseByAFastClock(t *testing.T) {
	clock, mem := newClock(), disktest.NewMem(1)
	o := Options{Schedule: promising(0), FS: mem, Clock: clock}
	s := open(t, o)
	first := offered(t, s)[0]
	list, _ := s.List()
	clock.advance(9 * time.Minute)
	year := 365 * 24 * time.Hour
	clock.advance(year)
	if err := s.promise(t.Context(), list, clock.Now().Add(30*time.Minute)); err != nil {
		t.Fatal(err)
	}
	clock.advance(-year)
	for range 80 {
		clock.advance(time.Minute)
		step(t, s, unneeded)
	}
	if got := state(s, first.ID); got != status.KeyDestroyed {
		t.Errorf("80 minutes later it is %s", got)
	}
}

// TestPromiseAtFailingDisk: what was promised is durable, whatever fails; what failed was
// not promised, or is kept all the same.
func TestPromiseAtFailingDisk(t *testing.T) {
	failed := 0
	for at := 0; ; at++ {
		clock, mem := newClock(), disktest.NewMem(uint64(at))
		o := Options{Schedule: promising(0), FS: mem, Clock: clock}
		s := open(t, o)
		first := offered(t, s)[0]
		list, _ := s.List()
		n := 0
		mem.Inject(func(disktest.Op, string) error {
			if n++; n == at+1 {
				return errors.New("no")
			}
			return nil
		})
		promised := s.promise(t.Context(), list, clock.Now().Add(30*time.Minute)) == nil
		done := n <= at
		if !promised {
			failed++
		}
		mem.Inject(nil)
		o.FS = mem.Crash()
		s = open(t, o)
		clock.advance(10 * time.Minute)
		step(t, s, unneeded)
		clock.advance(15 * time.Minute)
		accepting := s.Accepting()
		if promised && !accepting.Has(first.ID) {
			t.Errorf("operation %d: a promise is lost", at)
		}
		accepting.Release()
		if done {
			if failed < 3 {
				t.Errorf("only %d failures were played", failed)
			}
			return
		}
	}
}

// notaryOf makes a leader's notary for a deployment with epochs of 10 minutes.
func notaryOf(t *testing.T, clock disk.Clock, fsys disk.FS, now time.Time) (*Notary, *Set, *Deployment) {
	t.Helper()
	signer := func() *signed.Signer {
		return signedtest.Signer(t, signed.Generate(), now.Add(-time.Hour), 25*time.Hour)
	}
	s := signer()
	d := Deployment{ID: [32]byte{3}, Epoch: 10 * time.Minute, Leader: "https://leader.example/", Helper: "https://helper.example/", Relay: "https://relay.example/",
		Roots: ohttp.Roots{Leader: s.Root(), Helper: signer().Root(), Gateway: signer().Root()}}
	o := Signing{Signer: s, Role: signed.Leader, Deployments: []Deployment{d}, Held: 5 * time.Minute}
	schedule := promising(0)
	schedule.Promise = o.PromiseFor(schedule.Overlap)
	set := open(t, Options{Schedule: schedule, FS: fsys, Clock: clock})
	n, err := NewNotary(set, o, fsys)
	if err != nil {
		t.Fatal(err)
	}
	return n, set, &d
}

// TestNotaryList: devices that come directly get what hpke_config has, signed, for as
// long as that may be used.
func TestNotaryList(t *testing.T) {
	clock := newClock()
	n, set, d := notaryOf(t, clock, disktest.NewMem(1), clock.Now())
	b, maxAge, err := n.List(d.ID)
	if err != nil {
		t.Fatal(err)
	}
	l, err := signed.OpenList(b, d.Roots.Leader, d.ID, signed.Leader, d.Leader)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := set.List()
	if !bytes.Equal(l.Body, body) || l.Epoch != ohttp.EpochAt(l.NotBefore, d.Epoch) || l.NotAfter.Sub(l.NotBefore) > d.Epoch {
		t.Errorf("%+v", l)
	}
	if err := l.ValidAt(clock.Now()); err != nil || maxAge <= 0 || maxAge > l.NotAfter.Sub(clock.Now()) {
		t.Errorf("%v; it may be used for %v", err, maxAge)
	}
	clock.advance(10 * time.Minute)
	step(t, set, unneeded)
	again, _, err := n.List(d.ID)
	if err != nil {
		t.Fatal(err)
	}
	if l, _, err = signed.ReadList(again); err != nil || bytes.Equal(l.Body, body) {
		t.Errorf("the key before: %v", err)
	}
	if _, _, err := n.List([32]byte{9}); !errors.Is(err, ErrDeployment) {
		t.Errorf("another deployment: %v", err)
	}
}

// TestNotaryKeepsKeys: keys in a list that was signed for a manifest take uploads until
// that has ended, and those under way, and held by the gateway, have come.
func TestNotaryKeepsKeys(t *testing.T) {
	clock := newClock()
	begin := clock.Now()
	n, set, d := notaryOf(t, clock, disktest.NewMem(1), begin)
	first := offered(t, set)[0]
	from, until := begin.Add(8*time.Minute), begin.Add(18*time.Minute) // handed out ahead
	if _, err := n.ListFor(t.Context(), d.ID, from, until); err != nil {
		t.Fatal(err)
	}
	for clock.Now().Before(until.Add(6*time.Minute - 1)) { // the overlap and what is held
		clock.advance(time.Minute)
		if !clock.Now().Before(until.Add(6 * time.Minute)) {
			break
		}
		step(t, set, unneeded)
		accepting := set.Accepting()
		if !accepting.Has(first.ID) {
			t.Fatalf("taken no longer %v after the list's end", clock.Now().Sub(until))
		}
		accepting.Release()
	}
	step(t, set, unneeded)
	if got := state(set, first.ID); got != status.KeyDestroyed {
		t.Errorf("it is %s", got)
	}
	for name, c := range map[string][2]time.Duration{
		"longer than an epoch":      {0, 11 * time.Minute},
		"of the epoch after next":   {11 * time.Minute, 20 * time.Minute},
		"of the past":               {-10 * time.Minute, 0},
		"that ends where it begins": {time.Minute, time.Minute},
	} {
		if _, err := n.ListFor(t.Context(), d.ID, clock.Now().Add(c[0]), clock.Now().Add(c[1])); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNotariesShareARecord: what one replica has signed stands in the way of another.
func TestNotariesShareARecord(t *testing.T) {
	clock, shared := newClock(), &vault.Dir{FS: disktest.NewMem(9), Path: "signed", Suffix: ".none"}
	if err := shared.Make(); err != nil {
		t.Fatal(err)
	}
	begin := clock.Now().Truncate(time.Second)
	say := func(fsys disk.FS, place signed.Place, digest byte) error {
		t.Helper()
		alone, set, _ := notaryOf(t, clock, fsys, clock.Now())
		o := alone.o
		o.Record = place
		n, err := NewNotary(set, o, fsys)
		if err != nil {
			t.Fatal(err)
		}
		return n.record.Say(signed.Statement{Epoch: 1, NotBefore: begin, NotAfter: begin.Add(time.Minute), Digest: [32]byte{digest}})
	}
	for i, want := range []error{nil, nil, signed.ErrSigned} {
		if err := say(disktest.NewMem(uint64(i+1)), shared, byte(i/2)); !errors.Is(err, want) {
			t.Errorf("replica %d: %v, want %v", i, err, want)
		}
	}
	if err := say(disktest.NewMem(4), nil, 7); err != nil {
		t.Errorf("another party: %v", err)
	}
}

// TestNotaryRefuses a root that no recipe names, a schedule that keeps no promise, and
// two keys of one KEM.
func TestNotaryRefuses(t *testing.T) {
	clock := newClock()
	n, set, d := notaryOf(t, clock, disktest.NewMem(1), clock.Now())
	o := n.o
	o.Deployments = []Deployment{*d}
	o.Deployments[0].Roots.Leader = d.Roots.Helper
	if _, err := NewNotary(set, o, disktest.NewMem(2)); err == nil {
		t.Error("another root")
	}
	if _, err := NewNotary(open(t, Options{Schedule: short(0), FS: disktest.NewMem(3), Clock: clock}), n.o, disktest.NewMem(3)); err == nil {
		t.Error("a schedule without a promise")
	}
	var pairs []*sealed.KeyPair
	for id := range uint8(2) {
		k, err := sealed.Generate(id, sealed.SuiteX25519)
		if err != nil {
			t.Fatal(err)
		}
		pairs = append(pairs, k)
	}
	ring, err := sealed.NewKeyring(pairs...)
	if err != nil {
		t.Fatal(err)
	}
	two, err := Fixed(ring)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewNotary(two, n.o, disktest.NewMem(4)); !errors.Is(err, ErrPromise) {
		t.Errorf("two keys of one KEM: %v", err)
	}
}

// TestDeploymentSending: a manifest by which devices of a live recipe would try for
// longer than their reports are waited for is refused, and the error says by how much.
func TestDeploymentSending(t *testing.T) {
	quick, slow := Recipe{ID: [32]byte{1}, MaxSending: time.Minute}, Recipe{ID: [32]byte{2}, MaxSending: time.Hour}
	d := &Deployment{Recipes: []Recipe{slow, quick}}
	for _, c := range []struct {
		live   [32]byte
		tries  uint8
		every  time.Duration
		refuse bool
	}{
		{slow.ID, 3, 20 * time.Minute, false}, {slow.ID, 3, 20*time.Minute + time.Second, true},
		{quick.ID, 3, 20 * time.Second, false}, {quick.ID, 3, 21 * time.Second, true}, {quick.ID, 16, 4 * time.Second, true},
	} {
		m := &ohttp.Manifest{Tries: c.tries, Every: c.every, Recipes: [][32]byte{c.live}}
		err := d.CheckSending(m)
		var sending *ohttp.SendingError
		if refused := errors.Is(err, ErrRefused) && errors.As(err, &sending); refused != c.refuse {
			t.Errorf("%d tries every %v: %v", c.tries, c.every, err)
			continue
		}
		if c.refuse {
			if m.Every = sending.Fits(); d.CheckSending(m) != nil {
				t.Errorf("%d tries every %v do not fit either", m.Tries, m.Every)
			}
			if m.Every += time.Second; d.CheckSending(m) == nil {
				t.Errorf("%d tries every %v fit, too", m.Tries, m.Every)
			}
		}
	}
}

// TestNotaryIssuers: an aggregator signs no manifest that gives the issuer beside it another
// key than its own, nor one that names no issuers, or another attester, for a recipe whose
// devices show credentials.
func TestNotaryIssuers(t *testing.T) {
	clock := newClock()
	n, _, d := notaryOf(t, clock, disktest.NewMem(1), clock.Now())
	attester := signed.Generate().Public()
	own := [ohttp.IssuerKeySize]byte{2, 7}
	d.Recipes = []Recipe{{ID: [32]byte{1}, MaxSending: time.Hour, Attester: attester}, {ID: [32]byte{2}, MaxSending: time.Hour}}
	begin := clock.Now().Truncate(time.Second)
	k, err := sealed.Generate(1, sealed.SuiteX25519)
	if err != nil {
		t.Fatal(err)
	}
	manifest := func(recipe byte, change func(*ohttp.Issuers)) *ohttp.Manifest {
		m := &ohttp.Manifest{Deployment: d.ID, Epoch: ohttp.EpochAt(begin, d.Epoch), Length: d.Epoch, NotBefore: begin, NotAfter: begin.Add(time.Minute), Relay: d.Relay,
			Gateway: []ohttp.KeyConfig{ohttp.NewKeyConfig(k)}, Tries: 1, Every: time.Second, Hold: time.Minute, Targets: []string{d.Leader}, Recipes: [][32]byte{{recipe}},
			Pinned: []ohttp.Pinned{{URL: d.Leader, Media: "x", Body: []byte{1}}, {URL: d.Helper, Media: "x", Body: []byte{1}}}}
		if change != nil {
			m.Issuers = &ohttp.Issuers{Leader: own, Helper: [ohttp.IssuerKeySize]byte{3}, Attester: attester, Cap: 9}
			change(m.Issuers)
		}
		return m
	}
	for name, c := range map[string]struct {
		m    *ohttp.Manifest
		want error
	}{
		"none":             {manifest(1, nil), ErrRefused},
		"another attester": {manifest(1, func(x *ohttp.Issuers) { x.Attester = signed.Generate().Public() }), ErrRefused},
		"as it should be":  {manifest(1, func(*ohttp.Issuers) {}), signed.ErrList}, // the lists are looked at last
		"nobody counts":    {manifest(2, nil), signed.ErrList},
	} {
		if _, _, err := d.Check(c.m, clock.Now()); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	good := manifest(1, func(*ohttp.Issuers) {})
	if err := n.issuer(good); !errors.Is(err, ErrRefused) {
		t.Errorf("without an issuer: %v", err)
	}
	n.o.Issuer = func(deployment [32]byte, epoch uint32) ([ohttp.IssuerKeySize]byte, bool) {
		return own, deployment == d.ID && epoch == good.Epoch
	}
	for name, c := range map[string]struct {
		m    *ohttp.Manifest
		want error
	}{
		"its own":         {good, nil},
		"none":            {manifest(2, nil), nil},
		"another":         {manifest(1, func(x *ohttp.Issuers) { x.Leader[5]++ }), ErrRefused},
		"exchanged":       {manifest(1, func(x *ohttp.Issuers) { x.Leader, x.Helper = x.Helper, x.Leader }), ErrRefused},
		"another epoch's": {func() *ohttp.Manifest { m := *good; m.Epoch++; return &m }(), ErrRefused},
	} {
		if err := n.issuer(c.m); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	n.o.Role = signed.Helper
	if err := n.issuer(manifest(1, func(x *ohttp.Issuers) { x.Leader, x.Helper = x.Helper, own })); err != nil {
		t.Errorf("at the helper: %v", err)
	}
}
