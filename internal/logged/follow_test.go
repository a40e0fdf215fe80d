package logged_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/anonymity/tlog/tlogtest"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/logged"
	"github.com/starling-agg/starling/internal/logged/loggedtest"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// A followed log is one with a witness, an attester, and who follows it.
type followed struct {
	t        *testing.T
	trio     *loggedtest.Trio
	log      *tlogtest.Log
	witness  *tlog.Secret
	attester *signed.Signer
	manifest *ohttp.Manifest
	options  logged.FollowOptions
	now      time.Time
	fetch    func(context.Context) ([]byte, error)
	places   []int64
}

func follow(t *testing.T) *followed {
	t.Helper()
	w := &followed{t: t, trio: loggedtest.New(t, ""), log: tlogtest.New(t, "log.example"), witness: tlogtest.Secret(t, "witness.example", tlog.CosignEd), now: loggedtest.Now}
	root := signed.Generate()
	w.attester = signedtest.Signer(t, root, w.now.AddDate(0, 0, -30), 90*24*time.Hour)
	anchors, err := signed.ReadAnchors(signed.MarshalAnchors(append(slices.Clone(w.trio.Anchors),
		signed.Anchor{Name: "attester", Domain: "attester.example", Key: root.Public(), Owner: "another"})...))
	if err != nil {
		t.Fatal(err)
	}
	policy, err := tlog.ReadPolicy(fmt.Appendf(nil, "log %s\nwitness w %s\nquorum w\n", w.log.Key.Key(), w.witness.Key()))
	if err != nil {
		t.Fatal(err)
	}
	e := w.trio.Manifest(func(m *ohttp.Manifest) {
		m.Issuers = &ohttp.Issuers{Attester: root.Public(), Cap: 100}
		copy(m.Issuers.Leader[:], arc.GenerateKey().PublicKey().Append(nil))
		copy(m.Issuers.Helper[:], arc.GenerateKey().PublicKey().Append(nil))
	})
	if w.manifest, err = ohttp.ReadManifest(e.Body); err != nil {
		t.Fatal(err)
	}
	w.places = append(w.places, w.log.Add(t, e))
	w.options = logged.FollowOptions{Origin: "log.example", Policy: policy, Judge: logged.Judge{Anchors: anchors}, FS: disktest.NewMem(1),
		Fetch:     func(ctx context.Context) ([]byte, error) { return w.fetch(ctx) },
		Manifests: func() []*ohttp.Manifest { return []*ohttp.Manifest{w.manifest} }, Now: func() time.Time { return w.now }}
	return w
}

func (w *followed) open() *logged.Follower {
	w.t.Helper()
	f, err := logged.Follow(w.options)
	if err != nil {
		w.t.Fatal(err)
	}
	return f
}

// count has one say how many devices there are of the manifest's epoch.
func (w *followed) count(log *tlogtest.Log, role signed.Role, signer *signed.Signer, n uint64) int64 {
	w.t.Helper()
	b, err := (&tlog.Cohort{Role: role, Epoch: w.manifest.Epoch, Devices: n}).Append(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	e, err := tlog.State(tlog.KindCohort, w.trio.Deployment(), b, signer, loggedtest.Now)
	if err != nil {
		w.t.Fatal(err)
	}
	return log.Add(w.t, e)
}

// show serves what holds in a log from now on, signed by witnesses, with a step from a size
// before where there is one.
func (w *followed) show(log *tlogtest.Log, places []int64, witnesses []*tlog.Secret, steps ...int64) {
	w.t.Helper()
	active := log.Hold(w.t, w.now, w.now.Add(time.Hour), places...)
	b, err := log.Bundle(w.t, log.Sign(w.t, w.now, witnesses...), active, steps...).Append(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.fetch = func(context.Context) ([]byte, error) { return b, nil }
}

// TestFollow: what the owners of issuers and attester say is taken from a log that is
// good, and stays known, over starts too, while the log is down, slow, forked, rolled back
// or not witnessed, or says another number; and who follows says why and since when.
func TestFollow(t *testing.T) {
	w := follow(t)
	f := w.open()
	if seen, _, why := f.State(); !seen.IsZero() || why != nil || len(f.Said(w.manifest.Epoch)) != 0 {
		t.Fatalf("seen %v, %v, before anything was fetched", seen, why)
	}
	honest := []*tlog.Secret{w.witness}
	w.places = append(w.places, w.count(w.log, signed.Leader, w.trio.Signers[signed.Leader], 7), w.count(w.log, signed.Attester, w.attester, 9))
	// The gateway's owner is none who says how many devices the helper's issuer has answered.
	w.places = append(w.places, w.count(w.log, signed.Helper, w.trio.Signers[signed.Gateway], 3))
	w.show(w.log, w.places, honest)
	if err := f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	said := map[signed.Role]uint64{signed.Leader: 7, signed.Attester: 9}
	if got := f.Said(w.manifest.Epoch); !maps.Equal(got, said) {
		t.Fatalf("said %v", got)
	}
	first := w.now
	before, size := w.log.Fork(), w.log.Size()
	w.now = w.now.Add(time.Hour)
	failing := w.now
	more := append(slices.Clone(w.places), w.count(w.log, signed.Helper, w.trio.Signers[signed.Helper], 8))

	fork := before.Fork()
	forked := append(slices.Clone(w.places), w.count(fork, signed.Helper, w.trio.Signers[signed.Helper], 1))
	slow, cancel := context.WithCancel(t.Context())
	for _, c := range []struct {
		name string
		lie  func()
		want error
	}{
		{"down", func() {
			w.fetch = func(context.Context) ([]byte, error) { return nil, &logged.StatusError{Path: "bundle", Status: 503} }
		}, nil},
		{"slow", func() {
			w.fetch = func(ctx context.Context) ([]byte, error) {
				go cancel() // while it is asked
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}, context.Canceled},
		{"garbage", func() { w.fetch = func(context.Context) ([]byte, error) { return []byte("bundle"), nil } }, tlog.ErrBundle},
		{"not witnessed", func() { w.show(w.log.Fork(), more, nil, size) }, tlog.ErrQuorum},
		{"another's signature", func() {
			other := w.log.Fork()
			other.Key = tlogtest.Secret(t, "log.example", tlog.Ed25519)
			w.show(other, more, honest, size)
		}, nil},
		{"rolled back", func() {
			older := &tlogtest.Log{Key: w.log.Key}
			older.Add(t, must(tlog.ReadEntry(before.Entries[0])))
			w.show(older, []int64{0}, honest)
		}, tlog.ErrRolledBack},
		{"no proof that it continues", func() { w.show(fork, forked, honest, size-1) }, tlog.ErrGap},
		{"forked", func() {
			x := &tlogtest.Log{Key: w.log.Key}
			for _, e := range slices.Backward(before.Entries) {
				x.Add(t, must(tlog.ReadEntry(e)))
			}
			at := w.count(x, signed.Helper, w.trio.Signers[signed.Helper], 1)
			w.show(x, []int64{at}, honest, size)
		}, tlog.ErrFork},
		{"a stranger's entry", func() {
			x := w.log.Fork()
			stranger := signedtest.Signer(t, signed.Generate(), loggedtest.Now.AddDate(0, 0, -30), 90*24*time.Hour)
			w.show(x, append(slices.Clone(more), w.count(x, signed.Helper, stranger, 1)), honest, size)
		}, logged.ErrAuthor},
	} {
		c.lie()
		err := f.Refresh(slow)
		if c.name != "slow" && slow.Err() != nil {
			slow = t.Context()
			err = f.Refresh(slow)
		}
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		for name, x := range map[string]*logged.Follower{"": f, ", after a start": w.open()} {
			if got := x.Said(w.manifest.Epoch); !maps.Equal(got, said) {
				t.Errorf("%s%s: said %v", c.name, name, got)
			}
			seen, since, why := x.State()
			if !seen.Equal(first) || x == f && (why == nil || !since.Equal(failing)) {
				t.Errorf("%s%s: seen %v, failing since %v: %v", c.name, name, seen, since, why)
			}
		}
		w.now = w.now.Add(time.Second) // "since" stays
	}
	if _, err := w.options.FS.Stat("doubt"); err != nil { // whoever handed it out could have made the proof
		t.Errorf("the pair of a fork was not kept: %v", err)
	}
	w.show(w.log, more, honest, size)
	if err := f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	said[signed.Helper] = 8
	if got := w.open().Said(w.manifest.Epoch); !maps.Equal(got, said) || !maps.Equal(f.Said(w.manifest.Epoch), said) {
		t.Errorf("said %v", got)
	}
	if seen, _, why := f.State(); why != nil || !seen.Equal(w.now) {
		t.Errorf("good again: seen %v, %v", seen, why)
	}
	if got := f.Epochs(); !slices.Equal(got, []uint32{w.manifest.Epoch}) {
		t.Errorf("epochs %v", got)
	}
}

// TestFollowAnotherNumber: of two numbers of one owner, which no honest log has, the first
// stays, and it is said.
func TestFollowAnotherNumber(t *testing.T) {
	w := follow(t)
	f := w.open()
	at := w.count(w.log, signed.Leader, w.trio.Signers[signed.Leader], 7)
	w.show(w.log, append(w.places, at), []*tlog.Secret{w.witness})
	if err := f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	size := w.log.Size()
	w.now = w.now.Add(time.Hour)
	at = w.count(w.log, signed.Leader, w.trio.Signers[signed.Leader], 70)
	w.show(w.log, append(w.places, at), []*tlog.Secret{w.witness}, size)
	if err := f.Refresh(t.Context()); !errors.Is(err, logged.ErrSaid) {
		t.Errorf("%v", err)
	}
	if got := f.Said(w.manifest.Epoch); got[signed.Leader] != 7 {
		t.Errorf("said %v", got)
	}
}

// TestFollowDamaged: what was remembered and cannot be read is not forgotten in silence.
func TestFollowDamaged(t *testing.T) {
	for _, name := range []string{"memory", "known"} {
		w := follow(t)
		f := w.open()
		w.show(w.log, append(w.places, w.count(w.log, signed.Leader, w.trio.Signers[signed.Leader], 7)), []*tlog.Secret{w.witness})
		if err := f.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		b, err := disk.ReadFile(w.options.FS, name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)-40] ^= 1
		if err := disk.WriteFile(w.options.FS, name, b); err != nil {
			t.Fatal(err)
		}
		if _, err := logged.Follow(w.options); !errors.Is(err, logged.ErrFollower) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestFollowOrigin: a policy may know several logs, and one of them is followed.
func TestFollowOrigin(t *testing.T) {
	w := follow(t)
	other := tlogtest.New(t, "other.example")
	var err error
	if w.options.Policy, err = tlog.ReadPolicy(fmt.Appendf(nil, "log %s\nlog %s\nwitness w %s\nquorum w\n", w.log.Key.Key(), other.Key.Key(), w.witness.Key())); err != nil {
		t.Fatal(err)
	}
	f := w.open()
	other.Add(t, must(tlog.ReadEntry(w.log.Entries[0])))
	w.show(other, w.places, []*tlog.Secret{w.witness})
	if err := f.Refresh(t.Context()); !errors.Is(err, tlog.ErrOrigin) {
		t.Errorf("another log: %v", err)
	}
	w.options.Origin = "third.example"
	if _, err := logged.Follow(w.options); !errors.Is(err, tlog.ErrOrigin) {
		t.Errorf("a log that the policy does not know: %v", err)
	}
}

// TestFollowKeepsProof: a bundle whose proof somebody on the way has changed is no
// evidence, and does not stand in the place of a fork that the log's own signatures
// prove.
func TestFollowKeepsProof(t *testing.T) {
	w := follow(t)
	f := w.open()
	honest := []*tlog.Secret{w.witness}
	w.places = append(w.places, w.count(w.log, signed.Leader, w.trio.Signers[signed.Leader], 7))
	w.show(w.log, w.places, honest)
	if err := f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, size := w.log.Fork(), w.log.Size()
	more := append(slices.Clone(w.places), w.count(w.log, signed.Attester, w.attester, 9))
	w.now = w.now.Add(time.Hour)
	active := w.log.Hold(t, w.now, w.now.Add(time.Hour), more...)
	x := w.log.Bundle(t, w.log.Sign(t, w.now, honest...), active, size)
	x.Steps[0].Proof[0][0] ^= 1
	changed, err := x.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.fetch = func(context.Context) ([]byte, error) { return changed, nil }
	var fork *tlog.ForkError
	if err := f.Refresh(t.Context()); !errors.As(err, &fork) || fork.Proved {
		t.Fatalf("a changed proof: %v", err)
	}
	w.show(w.log, more, honest, size)
	if err := f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for before.Size() < w.log.Size()-1 {
		w.count(before, signed.Helper, w.trio.Signers[signed.Helper], 1)
	}
	w.now = w.now.Add(time.Minute)
	w.show(before, w.places, honest, size)
	if err := f.Refresh(t.Context()); !errors.As(err, &fork) || !fork.Proved {
		t.Fatalf("two trees of one size: %v", err)
	}
	if _, err := w.options.FS.Stat("fork"); err != nil {
		t.Errorf("the proof of a fork was not kept: %v", err)
	}
}
