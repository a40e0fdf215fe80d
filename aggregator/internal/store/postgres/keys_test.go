//go:build postgres

package postgres_test

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// keys are the data keys of all tests. Their book is none of a data set, in which the suite
// notes keys of its own.
func keys(context.Context, datakey.Book) (postgres.Keys, error) { return testKeys() }

var testKeys = sync.OnceValues(func() (*datakey.Set, error) {
	return datakey.Open(context.Background(), datakey.Options{FS: disktest.NewMem(1), Book: new(book), Keep: -1})
})

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
