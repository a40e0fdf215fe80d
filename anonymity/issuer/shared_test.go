package issuer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/signed"
)

// aRegister is the register of several processes, which cannot be asked to forget while away
// is set.
type aRegister struct {
	away      bool
	now       time.Time
	forgotten []uint32
}

func (*aRegister) Enter(context.Context, uint32, [32]byte, uint64) (repeated, entered bool, err error) {
	return false, true, nil
}
func (*aRegister) Count(context.Context, uint32, bool) (n uint64, counted bool, err error) {
	return 0, true, nil
}
func (r *aRegister) Now(context.Context) (time.Time, error) { return r.now, nil }
func (*aRegister) None(context.Context, uint32) (bool, error) { return false, nil }
func (*aRegister) Keep(context.Context, uint32) error         { return nil }
func (*aRegister) Close() error                               { return nil }

func (r *aRegister) Forget(_ context.Context, last uint32) error {
	if r.away {
		return errors.New("the database is away")
	}
	r.forgotten = append(r.forgotten, last)
	return nil
}

// TestKeyBeforeItsManifest: a process that made a key of its own where another's was to be
// verifies nothing with it, before the manifest comes or after, at one process or several;
// before it comes a single process may.
func TestKeyBeforeItsManifest(t *testing.T) {
	for _, shared := range []bool{true, false} {
		var manifest *Terms
		o := Options{Role: signed.Leader, Deployment: [32]byte{9}, Epoch: testEpoch, Keys: disktest.NewMem(1), Register: disktest.NewMem(2),
			Terms: func(uint32) (Terms, bool) {
				if manifest == nil {
					return Terms{}, false
				}
				return *manifest, true
			}}
		if shared {
			o.Register, o.Shared = nil, new(aRegister)
		}
		own, err := MakeKey(o.Keys, signed.Leader, [32]byte{9}, 100)
		if err != nil {
			t.Fatal(err)
		}
		theirs := arc.GenerateKey().PublicKey()
		x, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		demand := func(when string, refused bool) {
			t.Helper()
			_, id, err := x.Verifier(t.Context(), [32]byte{9}, 100)
			if refused && (!errors.Is(err, ErrKey) || errors.Is(err, ErrNoKey)) || !refused && (err != nil || id != own.ID()) {
				t.Errorf("several processes %v, %s: %v", shared, when, err)
			}
		}
		demand("without a manifest", shared)
		manifest = &Terms{Key: [arc.PublicKeySize]byte(theirs.Append(nil))}
		demand("by a manifest of another key", true)
		manifest.Key = [arc.PublicKeySize]byte(own.Append(nil))
		demand("by its own manifest", false)
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestForgottenLater: what could not be forgotten when its key was destroyed goes at the next
// turn, when no key is left to destroy.
func TestForgottenLater(t *testing.T) {
	keys, register := disktest.NewMem(1), &aRegister{away: true, now: time.Unix(110*86400, 0)}
	if _, err := MakeKey(keys, signed.Leader, [32]byte{9}, 100); err != nil {
		t.Fatal(err)
	}
	x, err := New(Options{Role: signed.Leader, Deployment: [32]byte{9}, Epoch: testEpoch, Keys: keys, Shared: register,
		Terms: func(uint32) (Terms, bool) { return Terms{}, false }})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, _, err := x.Retire(t.Context()); err == nil {
			t.Error("nothing is said of a register that forgets nothing")
		}
	}
	register.away = false
	if _, _, err := x.Retire(t.Context()); err != nil || len(register.forgotten) != 1 || register.forgotten[0] != 100 {
		t.Errorf("forgotten up to %v, %v", register.forgotten, err)
	}
}
