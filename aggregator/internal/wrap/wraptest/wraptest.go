// Package wraptest holds every wrapper to the contract of package wrap.
package wraptest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/wrap"
)

// Run runs the tests. flips is how many bits of a box are turned. A service, as service says
// of w, may answer that the key which a changed box names is not the caller's.
func Run(t *testing.T, w wrap.Wrapper, flips int, service bool) {
	ctx := t.Context()
	secret, aad := bytes.Repeat([]byte("s"), wrap.MaxSecret), []byte("whose, and for what")
	for _, n := range []int{1, 32, 1300, wrap.MaxSecret} {
		box, err := w.Wrap(ctx, secret[:n], aad)
		if err != nil {
			t.Fatal(err)
		}
		if newest, err := w.Newest(ctx); err != nil || newest != box.Key {
			t.Errorf("wrapped with %s, the newest is %s, %v", box.Key, newest, err)
		}
		if !box.Fits() || bytes.Contains(box.Sealed, []byte("ssss")) {
			t.Errorf("%d bytes are wrapped as %q", n, box.Sealed)
		}
		back, err := w.Unwrap(ctx, box, aad)
		if err != nil || !bytes.Equal(back, secret[:n]) {
			t.Errorf("%d bytes: got %d back, %v", n, len(back), err)
		}
	}
	for _, n := range []int{0, wrap.MaxSecret + 1} {
		if _, err := w.Wrap(ctx, make([]byte, n), aad); err == nil {
			t.Errorf("%d bytes are wrapped", n)
		}
	}
	box, err := w.Wrap(ctx, secret[:32], aad)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, box wrap.Box, aad []byte, want error) {
		t.Helper()
		got, err := w.Unwrap(ctx, box, aad)
		if service && errors.Is(err, wrap.ErrDenied) {
			err = want
		}
		if !errors.Is(err, want) || got != nil {
			t.Errorf("%s: got %q, %v, want %v", what, got, err, want)
		}
	}
	bits := 8 * len(box.Sealed)
	for i := range flips {
		bad := wrap.Box{Key: box.Key, Sealed: bytes.Clone(box.Sealed)}
		bit := i * bits / flips
		bad.Sealed[bit/8] ^= 1 << (bit % 8)
		refused("a bit turned", bad, aad, wrap.ErrBox)
	}
	refused("cut", wrap.Box{Key: box.Key, Sealed: box.Sealed[:len(box.Sealed)-1]}, aad, wrap.ErrBox)
	refused("of something else", box, []byte("whose, and for what else"), wrap.ErrBox)
	refused("of nothing", box, nil, wrap.ErrBox)
	refused("empty", wrap.Box{Key: box.Key, Sealed: nil}, aad, wrap.ErrBox)
	refused("too long", wrap.Box{Key: box.Key, Sealed: make([]byte, wrap.MaxSealed+1)}, aad, wrap.ErrBox)
	refused("a name of spaces", wrap.Box{Key: "a b", Sealed: box.Sealed}, aad, wrap.ErrBox)
	refused("a key that is not there", wrap.Box{Key: "00112233445566778899aabbccddeeff", Sealed: box.Sealed}, aad, wrap.ErrNoKey)
	other, err := w.Wrap(ctx, secret[:32], aad)
	if err != nil || bytes.Equal(other.Sealed, box.Sealed) {
		t.Errorf("the same secret is wrapped alike: %v", err)
	}
}
