package storetest

import (
	"errors"
	"sync"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/store"
)

// pair is a harness whose stores are two handles on one data set.
type pair struct{ Harness }

func (p pair) Open(t *testing.T) store.Engine {
	t.Helper()
	return inTurn([2]store.Engine{p.Harness.Open(t), p.Harness.Beside(t)})
}

// inTurn is an engine each of whose calls goes to the other handle than the call before.
func inTurn(handles [2]store.Engine) store.Engine {
	var mu sync.Mutex
	calls := 0
	return &via{
		do: func(_ string, call func(store.Engine) error) error {
			mu.Lock()
			calls++
			e := handles[calls%len(handles)]
			mu.Unlock()
			return call(e)
		},
		close: func() error { return errors.Join(handles[1].Close(), handles[0].Close()) },
	}
}
