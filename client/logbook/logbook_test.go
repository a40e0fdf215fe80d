package logbook_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/anonymity/tlog/tlogtest"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/logbook"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/logged"
	"github.com/starling-agg/starling/internal/logged/loggedtest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

const origin = "log.example/starling"

// A world is a log with its witness, what three owners and an attester have logged there, and
// a device.
type world struct {
	t        *testing.T
	trio     *loggedtest.Trio
	log      *tlogtest.Log
	witness  *tlog.Secret
	attester *signed.Signer
	anchors  *signed.Anchors
	policy   *tlog.Policy
	fs       *disktest.Mem
	now      time.Time
	served   []byte // what is fetched
	fetches  int
	places   []int64
	sizes    []int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, trio: loggedtest.New(t, ""), log: tlogtest.New(t, origin), witness: tlogtest.Secret(t, "witness.example", tlog.CosignEd),
		fs: disktest.NewMem(1), now: loggedtest.Now}
	root := signed.Generate()
	w.attester = signedtest.Signer(t, root, w.now.AddDate(0, 0, -30), 90*24*time.Hour)
	w.trio.Recipe.Log = &recipe.Log{Origin: origin}
	w.trio.Recipe.Tokens = &recipe.Tokens{Attester: "https://attester.example/", Key: root.Public(), Attestation: recipe.Codes, MinCohort: 1}
	anchors := append(slices.Clone(w.trio.Anchors), signed.Anchor{Name: "attester", Domain: "attester.example", Key: root.Public(), Owner: "another"})
	var err error
	if w.anchors, err = signed.ReadAnchors(signed.MarshalAnchors(anchors...)); err != nil {
		t.Fatal(err)
	}
	w.policy = w.read(fmt.Sprintf("log %s\nwitness w %s\nquorum w\n", w.log.Key.Key(), w.witness.Key()))
	return w
}

func (w *world) read(policy string) *tlog.Policy {
	w.t.Helper()
	p, err := tlog.ReadPolicy([]byte(policy))
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// add has an entry logged, which holds from then on.
func (w *world) add(e tlog.Entry) { w.places = append(w.places, w.log.Add(w.t, e)) }

// show serves a bundle of what holds in the hour from a time on.
func (w *world) show(begin time.Time) {
	w.t.Helper()
	active := w.log.Hold(w.t, begin, begin.Add(time.Hour), w.places...)
	w.serve(w.log, begin, active)
}

func (w *world) serve(log *tlogtest.Log, at time.Time, active int64) {
	w.t.Helper()
	b, err := log.Bundle(w.t, log.Sign(w.t, at, w.witness), active, w.sizes...).Append(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.served = b
	if n := log.Size(); !slices.Contains(w.sizes, n) {
		w.sizes = append(w.sizes, n)
	}
}

func (w *world) options() logbook.Options {
	return logbook.Options{Recipe: w.trio.Recipe, Anchors: w.anchors, Policy: w.policy, FS: w.fs,
		Fetch: func(context.Context) ([]byte, error) { w.fetches++; return w.served, nil }, Now: func() time.Time { return w.now }}
}

func (w *world) open() *logbook.Logbook {
	w.t.Helper()
	l, err := logbook.Open(w.options())
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

func (w *world) refresh(l *logbook.Logbook) {
	w.t.Helper()
	if err := l.Refresh(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// issued gives a manifest the issuers that the recipe wants.
func (w *world) issued(m *ohttp.Manifest) {
	m.Issuers = &ohttp.Issuers{Attester: w.trio.Recipe.Tokens.Key, Cap: 100}
	copy(m.Issuers.Leader[:], arc.GenerateKey().PublicKey().Append(nil))
	copy(m.Issuers.Helper[:], arc.GenerateKey().PublicKey().Append(nil))
}

// count has one party say how many devices there are of an epoch.
func (w *world) count(role signed.Role, signer *signed.Signer, epoch uint32, n uint64) {
	w.t.Helper()
	b, err := (&tlog.Cohort{Role: role, Epoch: epoch, Devices: n}).Append(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	e, err := tlog.State(tlog.KindCohort, w.trio.Deployment(), b, signer, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	w.add(e)
}

func (w *world) id() recipe.ID {
	id, err := w.trio.Recipe.ID()
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// TestHolds: a device has recipes, manifests and counts from the log, once it has seen it,
// across a restart without asking again, and as long as it is fresh.
func TestHolds(t *testing.T) {
	w := newWorld(t)
	l := w.open()
	if err := l.Holds(w.id()); !errors.Is(err, logbook.ErrNothing) {
		t.Errorf("before anything was seen: %v", err)
	}
	w.add(w.trio.Say(tlog.KindRecipe, signed.Leader, w.trio.RecipeFile()))
	w.add(w.trio.Manifest(nil))
	next := w.trio.Manifest(func(m *ohttp.Manifest) {
		w.issued(m)
		m.Revision = 3
		m.NotBefore = m.NotBefore.Add(30 * time.Minute)
	})
	w.add(next)
	w.show(w.now)
	w.refresh(l)
	if err := l.Holds(w.id()); err != nil {
		t.Error(err)
	}
	if err := l.Holds(recipe.ID{1}); !errors.Is(err, logbook.ErrNotHeld) {
		t.Errorf("another recipe: %v", err)
	}
	m, err := l.Manifest(t.Context())
	if err != nil || m.Revision != 0 {
		t.Fatalf("%+v, %v", m, err)
	}
	coming, err := l.Coming()
	if err != nil || len(coming) != 1 || coming[0].Revision != 3 {
		t.Fatalf("coming %v, %v", coming, err)
	}
	if _, ok, err := l.Cohort(coming[0]); ok || err != nil {
		t.Errorf("counts that nobody has said: %v, %v", ok, err)
	}
	w.count(signed.Leader, w.trio.Signers[signed.Leader], m.Epoch, 7)
	w.count(signed.Helper, w.trio.Signers[signed.Helper], m.Epoch, 8)
	w.now = w.now.Add(time.Minute)
	w.now = w.now.Truncate(time.Hour).Add(time.Hour)
	w.show(w.now)
	w.refresh(l)
	if _, ok, _ := l.Cohort(coming[0]); ok {
		t.Error("the attester has said nothing")
	}
	w.count(signed.Attester, w.attester, m.Epoch, 9)
	w.now = w.now.Add(time.Hour)
	w.show(w.now)
	w.refresh(l)
	if c, ok, err := l.Cohort(coming[0]); !ok || err != nil || c != (arc.Cohort{Leader: 7, Helper: 8, Attested: 9}) {
		t.Errorf("%+v, %v, %v", c, ok, err)
	}
	// A restart asks nobody.
	asked := w.fetches
	l = w.open()
	if err := l.Holds(w.id()); err != nil || w.fetches != asked {
		t.Errorf("after a restart: %v, %d fetches", err, w.fetches-asked)
	}
	if s := l.Seen(); s.Size != w.log.Size() || s.Recipes != 1 || s.Manifests != 2 || !s.Begin.Equal(w.now) {
		t.Errorf("%+v", s)
	}
	if _, err := l.Manifest(t.Context()); !errors.Is(err, logbook.ErrNoManifest) {
		t.Errorf("manifests that are over: %v", err)
	}
	if begun, err := l.Coming(); err != nil || len(begun) != 0 {
		t.Errorf("epochs that have begun come: %v, %v", begun, err)
	}
	w.now = w.now.Add(25 * time.Hour)
	if err := l.Holds(w.id()); !errors.Is(err, tlog.ErrStale) {
		t.Errorf("a log that fell silent: %v", err)
	}
	w.now = w.now.Add(-30 * time.Hour)
	if err := l.Holds(w.id()); !errors.Is(err, tlog.ErrClock) {
		t.Errorf("a clock that was put back: %v", err)
	}
}

// TestBegunEpoch: a later revision changes no keys of an epoch that devices have visited
// for: one with other issuers is none to visit for and is not counted, and of an epoch
// that has begun none is. One by which an epoch begins to have issuers is.
func TestBegunEpoch(t *testing.T) {
	w := newWorld(t)
	length := w.trio.Recipe.ServerKeys.Epoch()
	first := new(ohttp.Issuers)
	revision := func(number uint16, epoch uint32, after time.Duration, change func(*ohttp.Manifest)) {
		w.add(w.trio.Manifest(func(m *ohttp.Manifest) {
			m.Epoch += epoch
			m.NotBefore = loggedtest.Now.Add(time.Duration(epoch)*length + after)
			m.NotAfter = m.NotBefore.Add(length)
			for i, role := range []signed.Role{signed.Leader, signed.Helper} {
				m.Pinned[i].Body = w.trio.ListAt(role, uint8(20+i), m.Epoch, m.NotBefore, m.NotAfter)
			}
			m.Revision = number
			change(m)
		}))
	}
	none := func(*ohttp.Manifest) {}
	same := func(m *ohttp.Manifest) { m.Issuers = first }
	hour := time.Hour
	revision(0, 0, 0, none) // which counts no devices, has begun
	revision(1, 0, 2*hour, func(m *ohttp.Manifest) { w.issued(m); *first = *m.Issuers })
	revision(2, 0, 3*hour, w.issued) // other keys
	revision(3, 0, 4*hour, none)     // none
	revision(0, 1, 0, same)
	l := w.open()
	look := func(want ...string) {
		t.Helper()
		w.show(w.now)
		w.refresh(l)
		coming, err := l.Coming()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range coming {
			got = append(got, fmt.Sprintf("%d/%d", m.Epoch-ohttp.EpochAt(loggedtest.Now, length), m.Revision))
			if m.Issuers == nil || m.Issuers.Leader != first.Leader {
				t.Errorf("%s has other issuers", got[len(got)-1])
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("coming %v, want %v", got, want)
		}
	}
	look("0/1", "1/0")
	revision(4, 0, 5*hour, same)                     // as the first
	revision(5, 0, 6*hour, func(m *ohttp.Manifest) { // with other keys for tokens
		x := *first
		x.Admission = []ohttp.AdmissionKeys{{Recipe: [32]byte{1}, Keys: [32]byte{2}}}
		m.Issuers, m.Recipes = &x, [][32]byte{{1}}
	})
	w.now = w.now.Add(hour)
	look("0/4", "1/0")
	w.now = w.now.Add(hour) // revision 1 begins
	look("1/0")
	w.now = w.now.Add(hour) // and so does 2
	epoch := ohttp.EpochAt(loggedtest.Now, length)
	for role, signer := range map[signed.Role]*signed.Signer{signed.Leader: w.trio.Signers[signed.Leader], signed.Helper: w.trio.Signers[signed.Helper], signed.Attester: w.attester} {
		w.count(role, signer, epoch, 9)
	}
	look("1/0")
	m, err := l.Manifest(t.Context())
	if err != nil || m.Revision != 2 {
		t.Fatalf("%+v, %v", m, err)
	}
	if _, ok, err := l.Cohort(m); ok || err != nil {
		t.Errorf("the count of other issuers' credentials is taken: %v, %v", ok, err)
	}
	m.Issuers = first
	if _, ok, err := l.Cohort(m); !ok || err != nil {
		t.Errorf("the count of the epoch's is not: %v, %v", ok, err)
	}
}

// TestLater: entries that a later version knows stop no device, which takes what it knows and
// says of what it misses that there is more.
func TestLater(t *testing.T) {
	w := newWorld(t)
	next := w.trio.RecipeFile()
	next[0]++
	w.add(w.trio.Say(tlog.KindRecipe, signed.Leader, next))
	w.add(tlog.Entry{Kind: 99, Body: []byte("x")})
	w.add(w.trio.Say(tlog.KindRecipe, signed.Leader, w.trio.RecipeFile()))
	w.places = append(w.places, w.log.Append(t, []byte("\x02 as later versions have entries")))
	w.show(w.now)
	l := w.open()
	w.refresh(l)
	if err := l.Holds(w.id()); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{"a recipe": l.Holds(recipe.ID{1}), "a manifest": func() error { _, err := l.Manifest(t.Context()); return err }()} {
		if !errors.Is(err, logbook.ErrNotHeld) && !errors.Is(err, logbook.ErrNoManifest) || !strings.Contains(err.Error(), "3 entries for a later version") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What is no entry at all, of no version, is refused.
	held := w.places
	for _, b := range []string{"\x00\x02", "\x01", "\x02"} {
		w.places = append(slices.Clone(held), w.log.Append(t, []byte(b)))
		w.now = w.now.Add(time.Hour)
		w.show(w.now)
		if err := l.Refresh(t.Context()); !errors.Is(err, tlog.ErrBundle) {
			t.Errorf("%q: %v", b, err)
		}
	}
}

// TestRefused: a log that went back, forked, fell silent or bears what no owner signed,
// and one whose witness did not sign, are refused, and the device goes on with what it
// had; of a fork it keeps both checkpoints, and a restart forgets none of it.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	w.add(w.trio.Say(tlog.KindRecipe, signed.Leader, w.trio.RecipeFile()))
	w.show(w.now)
	before := w.served
	l := w.open()
	w.refresh(l)
	fork, early := w.log.Fork(), w.log.Fork()
	w.now = w.now.Add(time.Hour)
	w.show(w.now)
	w.refresh(l)
	good := w.served

	bad := func(name string, want error) {
		t.Helper()
		for _, restart := range []bool{false, true} {
			if restart {
				l = w.open()
			}
			if err := l.Refresh(t.Context()); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
			if err := l.Holds(w.id()); err != nil {
				t.Errorf("%s: the device lost what it had: %v", name, err)
			}
		}
	}
	w.served = before
	bad("an older bundle", tlog.ErrRolledBack)
	w.served = good[:len(good)-1]
	bad("one that is cut off", tlog.ErrBundle)

	fork.Add(t, w.trio.Say(tlog.KindRelease, signed.Leader, release(t)))
	active := fork.Hold(t, w.now, w.now.Add(time.Hour), w.places...)
	w.serve(fork, w.now, active)
	bad("a fork", tlog.ErrFork)
	same := early.Fork()
	active = same.Hold(t, w.now, w.now.Add(2*time.Hour), w.places...)
	w.sizes = slices.DeleteFunc(w.sizes, func(n int64) bool { return n >= same.Size() })
	w.serve(same, w.now, active)
	bad("a fork that proves itself", tlog.ErrFork)
	for _, name := range []string{"doubt.evidence", "fork.evidence"} {
		if b, err := disk.ReadFile(w.fs, name, 1<<20); err != nil || bytes.Count(b, []byte(origin+"\n")) != 2 {
			t.Errorf("no evidence of the fork: %q, %v", b, err)
		}
	}

	stranger := loggedtest.New(t, "")
	held := w.places
	w.add(stranger.Say(tlog.KindRelease, signed.Leader, release(t)))
	w.now = w.now.Add(time.Hour)
	w.show(w.now)
	bad("what a stranger says", logged.ErrAuthor)
	w.places = held

	w.now = w.now.Add(time.Hour)
	lone := *w
	lone.witness = tlogtest.Secret(t, "witness.example", tlog.CosignEd)
	lone.show(w.now)
	w.served = lone.served
	bad("a checkpoint that the witness did not sign", tlog.ErrQuorum)
	w.served = good
	bad("the same bundle again, two hours later", nil)
}

func release(t *testing.T) []byte {
	t.Helper()
	b, err := (&tlog.Release{Name: "starling", Digest: [32]byte{1}}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestAway: a device that was away for longer than the bundle reaches back follows the log by
// its tiles, and not on its word alone.
func TestAway(t *testing.T) {
	w := newWorld(t)
	w.add(w.trio.Say(tlog.KindRecipe, signed.Leader, w.trio.RecipeFile()))
	w.show(w.now)
	l := w.open()
	w.refresh(l)
	fork := w.log.Fork()
	later := func() {
		w.now = w.now.Add(time.Hour)
		w.sizes = nil
		w.show(w.now)
	}
	later()
	if err := l.Refresh(t.Context()); !errors.Is(err, tlog.ErrGap) {
		t.Errorf("without tiles: %v", err)
	}
	read := w.log
	o := w.options()
	o.Tiles = func(context.Context) func(path string) ([]byte, error) {
		return func(path string) ([]byte, error) {
			tile, err := tlog.ParseTile(path)
			if err != nil {
				return nil, err
			}
			return tile.Hashes(read)
		}
	}
	l, err := logbook.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	w.refresh(l)
	if s := l.Seen(); s.Size != w.log.Size() {
		t.Errorf("%+v of %d", s, w.log.Size())
	}
	later()
	fork.Add(t, w.trio.Say(tlog.KindRelease, signed.Leader, release(t)))
	for fork.Size() < w.log.Size() {
		fork.Add(t, w.trio.Say(tlog.KindRelease, signed.Helper, release(t)))
	}
	read = fork
	if err := l.Refresh(t.Context()); err == nil {
		t.Error("tiles of another tree")
	}
}

// TestLongAway: a device without tiles that was away for a month goes on by the bundle
// alone, and keeps the two checkpoints between which nothing is proved.
func TestLongAway(t *testing.T) {
	w := newWorld(t)
	w.add(w.trio.Say(tlog.KindRecipe, signed.Leader, w.trio.RecipeFile()))
	l := w.open()
	for range 10 {
		w.now = w.now.Add(6 * time.Hour)
		w.show(w.now)
		w.refresh(l)
	}
	left := l.Seen()
	w.sizes = slices.DeleteFunc(w.sizes, func(n int64) bool { return n == left.Size }) // thinned
	for _, day := range []time.Duration{0, 30} {
		w.now = w.now.Add(day*24*time.Hour + time.Hour)
		w.show(w.now)
		if day == 0 {
			if err := l.Refresh(t.Context()); !errors.Is(err, tlog.ErrGap) {
				t.Errorf("after an hour: %v", err)
			}
			if err := l.Holds(w.id()); err != nil {
				t.Errorf("the device lost what it had: %v", err)
			}
		}
	}
	l = w.open()
	w.refresh(l)
	if err := l.Holds(w.id()); err != nil || l.Seen().Size != w.log.Size() {
		t.Errorf("%+v, %v", l.Seen(), err)
	}
	b, err := disk.ReadFile(w.fs, "gap.evidence", 1<<20)
	if err != nil || bytes.Count(b, []byte(origin+"\n")) != 2 || !bytes.Contains(b, fmt.Appendf(nil, "\n%d\n", left.Size)) {
		t.Errorf("no evidence of what was left: %q, %v", b, err)
	}
}

// TestOtherLog: where a policy knows several logs, a recipe's is the one that it names;
// and what held too long ago holds no more, however fresh the checkpoint over it is.
func TestOtherLog(t *testing.T) {
	w := newWorld(t)
	other := tlogtest.New(t, "other.example/log")
	w.policy = w.read(fmt.Sprintf("log %s\nlog %s\nwitness w %s\nquorum w\n", w.log.Key.Key(), other.Key.Key(), w.witness.Key()))
	l := w.open()
	w.serve(other, w.now, other.Hold(t, w.now, w.now.Add(time.Hour)))
	if err := l.Refresh(t.Context()); !errors.Is(err, tlog.ErrOrigin) {
		t.Errorf("another log's bundle: %v", err)
	}
	w.sizes = nil
	w.add(w.trio.Say(tlog.KindRecipe, signed.Leader, w.trio.RecipeFile()))
	begin := w.now
	active := w.log.Hold(t, begin, begin.Add(time.Hour), w.places...)
	w.now = begin.Add(90 * time.Minute) // signed half an hour after what holds ended
	w.serve(w.log, w.now, active)
	w.refresh(l)
	w.now = begin.Add(25 * time.Hour)
	if err := l.Holds(w.id()); err != nil {
		t.Errorf("a day after it ended: %v", err)
	}
	w.now = w.now.Add(time.Minute)
	if err := l.Holds(w.id()); !errors.Is(err, tlog.ErrStale) {
		t.Errorf("a minute later: %v", err)
	}
}

// TestPolicy: a policy that does not know the recipe's log, or asks no witness, is none.
func TestPolicy(t *testing.T) {
	w := newWorld(t)
	for name, text := range map[string]string{
		"another log": fmt.Sprintf("log %s\nwitness w %s\nquorum w\n", tlogtest.New(t, "other.example/log").Key.Key(), w.witness.Key()),
		"no witness":  fmt.Sprintf("log %s\nquorum none\n", w.log.Key.Key()),
	} {
		o := w.options()
		o.Policy = w.read(text)
		if _, err := logbook.Open(o); !errors.Is(err, logbook.ErrPolicy) {
			t.Errorf("%s: %v", name, err)
		}
	}
	o := w.options()
	o.Recipe = new(recipe.Recipe)
	if _, err := logbook.Open(o); err == nil {
		t.Error("a recipe without a log")
	}
}

// TestTimes: a device fetches at times of its own that are fixed for good, whatever it does;
// devices differ.
func TestTimes(t *testing.T) {
	w := newWorld(t)
	l := w.open()
	if due := l.Due(); due.After(w.now) {
		t.Errorf("with nothing of the log it waits until %v", due)
	}
	w.show(w.now)
	w.refresh(l)
	first := l.Due()
	if !first.After(w.now) || first.Sub(w.now) > 6*time.Hour {
		t.Errorf("due %v, now %v", first, w.now)
	}
	good := w.served
	for i := range 3 { // answered or not, and whenever it was late
		w.now = l.Due().Add(time.Duration(i) * 7 * time.Minute)
		w.served = good[:i]
		if err := l.Refresh(t.Context()); err == nil {
			t.Fatal("rubbish is taken")
		}
		if i == 1 {
			l = w.open()
		}
		if due := l.Due(); due.Sub(first)%(6*time.Hour) != 0 || !due.After(w.now) || due.Sub(w.now) > 6*time.Hour {
			t.Errorf("at %v: %v, where the first was %v", w.now, due, first)
		}
	}
	w.now = w.now.Add(48 * time.Hour)
	if l = w.open(); l.Due().After(w.now) {
		t.Errorf("what it had is too old, and it waits until %v", l.Due())
	}
	if err := l.Refresh(t.Context()); err == nil || !l.Due().Equal(w.now.Add(5*time.Minute)) {
		t.Errorf("%v, again at %v", err, l.Due())
	}
	times := make(map[time.Time]bool)
	for i := range 20 { // that all agree has a probability of 21600^-19
		w.fs = disktest.NewMem(uint64(i))
		w.sizes = nil
		w.served = good
		w.now = loggedtest.Now
		l := w.open()
		w.refresh(l)
		times[l.Due()] = true
	}
	if len(times) < 2 {
		t.Error("all devices fetch at one time")
	}
}

// TestState: what was seen may not be damaged or forgotten, and a bundle that is damaged or
// behind it is fetched anew.
func TestState(t *testing.T) {
	w := newWorld(t)
	w.add(w.trio.Say(tlog.KindRecipe, signed.Leader, w.trio.RecipeFile()))
	w.show(w.now)
	l := w.open()
	w.refresh(l)
	file := func(name string) []byte {
		b, err := disk.ReadFile(w.fs, name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	older := bytes.Clone(file("bundle"))
	w.now = w.now.Add(time.Hour)
	w.show(w.now)
	w.refresh(l)
	memory := bytes.Clone(file("memory"))
	put := func(name string, b []byte) {
		t.Helper()
		if err := disk.WriteFile(w.fs, name, b); err != nil {
			t.Fatal(err)
		}
	}
	for name, b := range map[string][]byte{"behind": older, "damaged": older[:100], "empty": nil} {
		put("bundle", b)
		l := w.open()
		if err := l.Holds(w.id()); !errors.Is(err, logbook.ErrNothing) {
			t.Errorf("a bundle that is %s: %v", name, err)
		}
		w.refresh(l)
		if err := l.Holds(w.id()); err != nil {
			t.Errorf("%s, fetched anew: %v", name, err)
		}
	}
	damaged := bytes.Clone(memory)
	damaged[len(damaged)/2] ^= 1
	for name, b := range map[string][]byte{"damaged": damaged, "cut": memory[:len(memory)-1], "empty": nil} {
		put("memory", b)
		if _, err := logbook.Open(w.options()); !errors.Is(err, logbook.ErrState) {
			t.Errorf("a memory that is %s: %v", name, err)
		}
	}
}

// TestClient: a client of a recipe that names a log needs the log, one that holds the recipe,
// and manifests that come from it.
func TestClient(t *testing.T) {
	w := newWorld(t)
	w.trio.Recipe.Tokens = nil
	b, err := w.trio.Recipe.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	l := w.open()
	manifests := func(s ohttp.Source) *ohttp.Transport {
		t.Helper()
		m, err := client.NewManifests(client.ManifestsOptions{Recipe: w.trio.Recipe, Anchors: w.anchors, Source: s, Memory: client.Forgetful()})
		if err != nil {
			t.Fatal(err)
		}
		via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: m})
		if err != nil {
			t.Fatal(err)
		}
		return via
	}
	via := manifests(l)
	o := client.Options{Recipe: b, Prover: account.Prover, Anchors: w.anchors, Via: via, MaxEpsilon: math.Inf(1)}
	refused := func(name string, o client.Options) {
		t.Helper()
		var e *client.RefusedError
		if _, err := client.New(o); !errors.As(err, &e) || e.Reason != client.ReasonNotLogged {
			t.Errorf("%s: %v", name, err)
		}
	}
	refused("no log", o)
	o.Log = l
	refused("a log of which nothing was seen", o)
	w.show(w.now)
	w.refresh(l)
	refused("a log without the recipe", o)
	w.add(w.trio.Say(tlog.KindRecipe, signed.Leader, b))
	w.now = w.now.Add(time.Hour)
	w.show(w.now)
	w.refresh(l)
	if _, err := client.New(o); err != nil {
		t.Error(err)
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	w.places = w.places[:len(w.places)-1] // withdrawn
	w.now = w.now.Add(time.Hour)
	w.show(w.now)
	w.refresh(l)
	var e *client.RefusedError
	if err := c.Refresh(t.Context()); !errors.As(err, &e) || e.Reason != client.ReasonNotLogged {
		t.Errorf("a recipe that was withdrawn: %v", err)
	}
	w.add(w.trio.Say(tlog.KindRecipe, signed.Leader, b))
	w.now = w.now.Add(time.Hour)
	w.show(w.now)
	w.refresh(l)
	o.Via = manifests(ohttp.Pin(nil))
	if _, err := client.New(o); err == nil {
		t.Error("manifests from elsewhere")
	}
	o.Via = nil
	if _, err := client.New(o); err == nil {
		t.Error("no manifests")
	}
}
