package issuer

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/internal/orders"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// aRegister is the register of several processes, which cannot be asked to forget while away
// is set.
type aRegister struct {
	away      bool
	slow      string // the method that does not answer until the caller has had enough
	now       time.Time
	entered   map[[32]byte]bool
	forgotten []uint32
}

func (r *aRegister) wait(ctx context.Context, method string) error {
	if r.slow != method {
		return nil
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (r *aRegister) Enter(ctx context.Context, _ uint32, request [32]byte, _ uint64) (repeated, entered bool, err error) {
	repeated = r.entered[request]
	if r.entered == nil {
		r.entered = make(map[[32]byte]bool)
	}
	r.entered[request] = true // and the answer may be lost
	return repeated, true, r.wait(ctx, "enter")
}
func (r *aRegister) Count(ctx context.Context, _ uint32, begun bool) (n uint64, counted bool, err error) {
	return uint64(len(r.entered)), begun, r.wait(ctx, "count")
}
func (r *aRegister) Now(ctx context.Context) (time.Time, error) { return r.now, r.wait(ctx, "now") }
func (r *aRegister) None(ctx context.Context, _ uint32) (bool, error) {
	return false, r.wait(ctx, "none")
}
func (*aRegister) Keep(context.Context, uint32) error { return nil }
func (*aRegister) Close() error                       { return nil }

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

// TestSlowRegister: a register that does not answer keeps nobody longer than it may, nor
// longer than the caller waits; what is refused so says that it is to come again, and when it
// does it is answered, and entered once.
func TestSlowRegister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		register, root, keys := &aRegister{now: time.Now()}, signed.Generate(), disktest.NewMem(1)
		public, err := MakeKey(keys, signed.Leader, [32]byte{9}, 100)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now().Add(time.Hour)
		x, err := New(Options{Role: signed.Leader, Deployment: [32]byte{9}, Epoch: testEpoch, Keys: keys, Shared: register,
			Terms: func(uint32) (Terms, bool) {
				return Terms{Key: [arc.PublicKeySize]byte(public.Append(nil)), Attester: root.Public(), Cap: 1, Begin: begin}, true
			}})
		if err != nil {
			t.Fatal(err)
		}
		pending := arc.NewPending(arc.NewRequestContext(arc.Leader, [32]byte{9}, 100, public.ID()))
		order := &visit.Order{Role: signed.Leader, Deployment: [32]byte{9}, Epoch: 100, Request: [arc.RequestSize]byte(pending.Request().Append(nil))}
		if err := order.Sign(signedtest.Signer(t, root, time.Now().Add(-time.Hour), 48*time.Hour), time.Now()); err != nil {
			t.Fatal(err)
		}
		tell := func() int {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(order.Append(nil)))
			r.Header.Set("Content-Type", visit.OrderMedia)
			x.ServeHTTP(w, r)
			return w.Code
		}
		for method, ask := range map[string]func(context.Context) error{
			"now":   func(ctx context.Context) error { _, _, err := x.Issue(ctx, order); return err },
			"enter": func(ctx context.Context) error { _, _, err := x.Issue(ctx, order); return err },
			"count": func(ctx context.Context) error { _, err := x.Count(ctx, 100); return err },
			"none":  func(ctx context.Context) error { _, _, err := x.Verifier(ctx, [32]byte{9}, 101); return err },
		} {
			register.slow = method
			for _, patience := range []time.Duration{time.Hour, time.Second} {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				start := time.Now()
				err := ask(ctx)
				cancel()
				if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != min(patience, askTime) || method != "none" && !errors.Is(err, ErrRegister) {
					t.Errorf("%s, for whom waits %v: after %v, %v", method, patience, took, err)
				}
			}
		}
		register.slow = "enter"
		if code := tell(); code != http.StatusServiceUnavailable {
			t.Errorf("a device is told %d", code)
		}
		register.slow = ""
		if code := tell(); code != http.StatusOK || x.Outcome(orders.Again) != 1 || len(register.entered) != 1 {
			t.Errorf("when it comes again it is told %d; %d are entered", code, len(register.entered))
		}
		register.now = begin.Add(time.Second) // its clock, whatever that of the process
		if code := tell(); code != http.StatusGone {
			t.Errorf("once the epoch has begun it is told %d", code)
		}
	})
}
