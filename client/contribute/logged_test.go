package contribute_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/contribute"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/shuffle/hop"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// named is what a log has one key list of.
type named struct {
	role  onion.Role
	round uint64
	root  signed.PublicKey
}

// A held is a log as a device has seen it, and as parties put keys into it.
type held struct {
	mu       sync.Mutex
	keys     map[named][]byte
	manifest *ohttp.Manifest
}

var errHeld = errors.New("the log does not have it")

func (l *held) Manifest(context.Context) (*ohttp.Manifest, error) {
	if l.manifest == nil {
		return nil, errHeld
	}
	return l.manifest, nil
}
func (l *held) Holds(recipe.ID) error        { return nil }
func (l *held) Counted(*recipe.Recipe) error { return nil }

func (l *held) ShuffleKeys(_ [32]byte, role onion.Role, round uint64, root signed.PublicKey) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.keys[named{role, round, root}]; b != nil {
		return b, nil
	}
	return nil, errHeld
}

func (l *held) publish(role onion.Role, root signed.PublicKey) func(context.Context, *hop.Publication) error {
	return func(_ context.Context, p *hop.Publication) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if p.KeyList != nil {
			l.keys[named{role, p.Round, root}] = bytes.Clone(p.KeyList)
		}
		return nil
	}
}

// TestLoggedKeys: devices of a recipe that names a log take keys from there, and ask no party
// for any; what they send is counted.
func TestLoggedKeys(t *testing.T) {
	in(t, kind{logged: true}, func(t *testing.T, w *world) {
		c := w.contributor()
		if err := c.Report(t.Context(), client.Number(1), client.Number(2), client.Number(3), client.Number(4)); err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(w.requests(), func(s string) bool { return s[:3] == http.MethodGet }) {
			t.Errorf("a device of a logged recipe asks: %v", w.requests())
		}
		if _, err := c.Prepare(client.Number(1), time.Now().Add(w.shuffle.Length)); err != nil {
			t.Errorf("the keys of the next round, which the log has: %v", err)
		}
		n := w.flushed()
		if got, err := w.reader().Round(t.Context(), n); err != nil || got.ReportCount != 4 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestLoggedKeysRefused: a party that shows this device a key of its own is not asked, and a
// device to which the log shows no key, or one that its owner has not signed for this round,
// seals to none.
func TestLoggedKeysRefused(t *testing.T) {
	in(t, kind{logged: true}, func(t *testing.T, w *world) {
		now := w.shuffle.Round(time.Now())
		at := named{onion.Analyzer, now, w.signers[onion.Analyzer].Root()}
		good := w.log.keys[at]
		list := func(by *signed.Signer, role onion.Role, round uint64) []byte {
			b, err := (&onion.KeyList{Recipe: w.shuffle.Recipe, Role: role, First: round, Keys: [][32]byte{{9, 9}}, Issued: time.Now(), Until: w.shuffle.Flush(round)}).Sign(by)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		// What the analyzer itself hands out is a key for this device alone.
		w.answer = func(host string, r *http.Request) *http.Response {
			if r.Method == http.MethodGet {
				return replies(onion.KeysMedia, list(w.signers[onion.Analyzer], onion.Analyzer, now))
			}
			return nil
		}
		for name, c := range map[string]struct {
			list []byte
			want error
		}{
			"none":              {nil, contribute.ErrNotLogged},
			"of another round":  {list(w.signers[onion.Analyzer], onion.Analyzer, now+1), contribute.ErrStale},
			"of another party":  {list(w.signers[onion.Analyzer], onion.Second, now), onion.ErrKeys},
			"signed by another": {list(w.signers[onion.First], onion.Analyzer, now), signed.ErrSignature},
			"cut":               {good[:len(good)-1], onion.ErrKeys},
		} {
			if w.log.keys[at] = c.list; c.list == nil {
				delete(w.log.keys, at)
			}
			err := w.contributor().Refresh(t.Context())
			odd := new(contribute.KeysError)
			if !errors.Is(err, c.want) || !errors.As(err, &odd) || odd.Party != onion.Analyzer {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
		w.log.keys[at] = good
		if err := w.contributor().Refresh(t.Context()); err != nil {
			t.Error(err)
		}
		if len(w.requests()) > 0 {
			t.Errorf("a device of a logged recipe asks: %v", w.requests())
		}
	})
}

// TestLoggedOptions: a recipe that names a log needs one that holds key lists, and behind a
// relay manifests of that log.
func TestLoggedOptions(t *testing.T) {
	in(t, kind{logged: true, relayed: true}, func(t *testing.T, w *world) {
		_, m := w.relay()
		w.log.manifest = m
		o, err := w.through(w.log)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := contribute.New(o); err != nil {
			t.Error(err)
		}
		bare := o
		bare.Client.Log = struct{ client.Log }{w.log}
		if _, err := contribute.New(bare); err == nil {
			t.Error("a log without key lists is taken")
		}
		bare.Client.Log = nil
		if refused := new(client.RefusedError); !errors.As(second(contribute.New(bare)), &refused) || refused.Reason != client.ReasonNotLogged {
			t.Errorf("without a log: %v", refused)
		}
		if o, err = w.through(ohttp.Pin(m)); err != nil {
			t.Fatal(err)
		}
		if _, err := contribute.New(o); err == nil {
			t.Error("a manifest of elsewhere is taken")
		}
	})
}

func second[T any](_ T, err error) error { return err }
