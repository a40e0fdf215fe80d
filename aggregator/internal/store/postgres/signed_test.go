//go:build postgres

package postgres_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/signed"
)

// TestSignedByReplicas: replicas sign one manifest an epoch: of two that are asked to sign
// different ones at once, one does, and from then on both sign that one alone.
func TestSignedByReplicas(t *testing.T) {
	v := newVaults(t)
	v.of = postgres.PurposeSigned
	record := func() *signed.Record {
		t.Helper()
		r, err := signed.SharedRecord(v.with(t, v.files))
		is(t, err, nil)
		return r
	}
	records := []*signed.Record{record(), record(), record()}
	from := time.Unix(1_800_000_000, 0).UTC()
	statement := func(epoch, digest int) signed.Statement {
		begin := from.Add(time.Duration(epoch) * time.Hour)
		return signed.Statement{Deployment: [32]byte{byte(epoch % 2)}, Epoch: uint32(epoch), NotBefore: begin, NotAfter: begin.Add(time.Hour), Digest: [32]byte{byte(digest)}}
	}
	for epoch := range 10 {
		said := make([]error, len(records))
		var wg sync.WaitGroup
		for i, r := range records {
			wg.Go(func() { said[i] = r.Say(statement(epoch, i)) })
		}
		wg.Wait()
		first := -1
		for i, err := range said {
			switch {
			case err == nil && first < 0:
				first = i
			case err == nil:
				t.Fatalf("epoch %d: replicas %d and %d have signed different manifests", epoch, first, i)
			default:
				is(t, err, signed.ErrSigned)
			}
		}
		if first < 0 {
			t.Fatalf("epoch %d: nobody signs: %v", epoch, errors.Join(said...))
		}
		for _, r := range append(records, record()) {
			is(t, r.Say(statement(epoch, first)), nil)
			is(t, r.Say(statement(epoch, first+1)), signed.ErrSigned)
			if last, ok, err := r.Last(statement(epoch, first).Deployment); err != nil || !ok || last != statement(epoch, first) {
				t.Errorf("%+v, %v, %v", last, ok, err)
			}
		}
	}
}
