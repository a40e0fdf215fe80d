//go:build kms

package keeper_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/wrap"
	"github.com/starling-agg/starling/aggregator/internal/wrap/kms/kmstest"
	"github.com/starling-agg/starling/aggregator/internal/wrap/wraptest"
)

// TestKMSBesideFiles: a service takes the place of files, which open what they wrapped.
func TestKMSBesideFiles(t *testing.T) {
	ctx, endpoint := t.Context(), kmstest.Start(t)
	key := kmstest.NewKey(t, endpoint)
	dir := filepath.Join(t.TempDir(), "wrapping")
	add(t, dir)
	files := open(t, &aggregator.Database{WrappingKeys: dir})
	old, err := files.Wrap(ctx, []byte("s"), []byte("aad"))
	ok(t, err)
	both := &aggregator.Database{WrappingKeys: dir, KMS: &aggregator.KMS{
		Endpoint: endpoint, Region: "eu-central-1", Keys: []string{key}, Credentials: kmstest.Credentials(t),
	}}
	k := open(t, both)
	wraptest.Run(t, k, 8, true)
	if newest, err := k.Newest(ctx); newest != key || err != nil {
		t.Errorf("%s wraps, %v", newest, err)
	}
	if s, err := k.Unwrap(ctx, old, []byte("aad")); string(s) != "s" || err != nil {
		t.Errorf("what a file wrapped: %q, %v", s, err)
	}
	if names, err := k.Keys(); err != nil || len(names) != 2 || names[0] != key || names[1] != old.Key {
		t.Errorf("%q, %v", names, err)
	}
	for _, name := range []string{key, old.Key} {
		if gone, err := k.End(name); gone || err != nil {
			t.Errorf("the end of %s: %v, %v", name, gone, err)
		}
	}
	add(t, dir)
	if gone, err := k.End(old.Key); !gone || err != nil {
		t.Errorf("the end of a file: %v, %v", gone, err)
	}
	if _, err := k.Unwrap(ctx, old, []byte("aad")); !errors.Is(err, wrap.ErrNoKey) {
		t.Errorf("after its end: %v", err)
	}
	// Without the file that there was the service alone is there.
	ok(t, k.Try(ctx))
	both.WrappingKeys = ""
	ok(t, open(t, both).Try(ctx))
	both.KMS.Keys = []string{"00112233-4455-6677-8899-aabbccddeeff"}
	if err := open(t, both).Try(ctx); !errors.Is(err, wrap.ErrNoKey) && !errors.Is(err, wrap.ErrDenied) {
		t.Errorf("a key that is not there: %v", err)
	}
}
