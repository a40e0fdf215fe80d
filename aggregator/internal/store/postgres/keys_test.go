//go:build postgres

package postgres_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"slices"
	"sync"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/wrap"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// keys are the data keys of all tests. Their book is none of a data set, in which the suite
// notes keys of its own.
func keys(context.Context, datakey.Book) (postgres.Keys, error) { return testKeys() }

var testKeys = sync.OnceValues(func() (*datakey.Set, error) {
	return datakey.Open(context.Background(), datakey.Options{FS: disktest.NewMem(1), Book: new(book), Keep: -1})
})

// wrapped is a wrapper that is open.
func wrapped(w wrap.Wrapper) func(context.Context) (wrap.Wrapper, error) {
	return func(context.Context) (wrap.Wrapper, error) { return w, nil }
}

// fixed wraps the roots of all tests, those of other processes too, with a key that is no
// secret.
type fixed struct{}

func (fixed) aead() cipher.AEAD { return gcmOf(make([]byte, 32)) }

func gcmOf(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	a, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return a
}

func (fixed) Newest(context.Context) (string, error) { return "fixed", nil }

func (f fixed) Wrap(_ context.Context, secret, aad []byte) (wrap.Box, error) {
	return wrap.Box{Key: "fixed", Sealed: f.aead().Seal(nil, nil, secret, aad)}, nil
}

func (f fixed) Unwrap(_ context.Context, box wrap.Box, aad []byte) ([]byte, error) {
	if box.Key != "fixed" {
		return nil, wrap.ErrNoKey
	}
	secret, err := f.aead().Open(nil, nil, box.Sealed, aad)
	if err != nil {
		return nil, wrap.ErrBox
	}
	return secret, nil
}

// book is a store's memory of its keys.
type book struct {
	set  datakey.SetID
	keys []datakey.Record
}

func (b *book) DataKeys(context.Context) (datakey.SetID, []datakey.Record, error) {
	return b.set, slices.Clone(b.keys), nil
}

func (b *book) NoteDataKey(_ context.Context, set datakey.SetID, r datakey.Record) error {
	b.set, b.keys = set, append(b.keys, r)
	return nil
}

func (b *book) EndDataKey(context.Context, uint64) error { return errors.New("no key ends here") }
