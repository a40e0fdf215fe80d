package postgres

import (
	"context"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/rows"
	"github.com/starling-agg/starling/internal/pgdb"
)

// KeysWereMade says whether NoteKeys was ever called; see [store.Engine].
func (s *Store) KeysWereMade(ctx context.Context) (made bool, err error) {
	err = s.view(ctx, "keys-were-made", func(tx *pgdb.Tx) error {
		_, err := tx.One("keys-were-made", nil, &made)
		return err
	})
	return made, err
}

// NoteKeys remembers that the aggregator makes its HPKE keys by itself; see [store.Engine].
func (s *Store) NoteKeys(ctx context.Context) error {
	return s.update(ctx, "note-keys", func(tx *pgdb.Tx) error {
		_, err := tx.Exec("note-keys")
		return err
	})
}

// SeenTime is the time that was saved last, by any replica; see [store.Engine].
func (s *Store) SeenTime(ctx context.Context) (t time.Time, err error) {
	err = s.view(ctx, "seen-time", func(tx *pgdb.Tx) (err error) {
		t, err = rows.SeenTime(tx)
		return err
	})
	return t, err
}

// SaveTime saves the time at which the store is in use; see [store.Engine].
func (s *Store) SaveTime(ctx context.Context, t time.Time) error {
	if s.marks != nil {
		return s.saveAge(ctx, t.UnixNano())
	}
	return s.update(ctx, "save-time", func(tx *pgdb.Tx) error {
		_, err := tx.Exec("save-time", t.UnixNano())
		return err
	})
}

const (
	// forgetEvery is how often a handle has the outcomes of old transactions forgotten.
	forgetEvery = 10 * time.Minute
	// outcomesKept is longer than any replica looks for an outcome.
	outcomesKept = 2 * time.Hour
)

// forget has the outcomes of old transactions forgotten, now and then.
func (s *Store) forget(ctx context.Context) error {
	now := s.clock.Now()
	last := s.forgot.Load()
	if now.Sub(time.Unix(0, last)).Abs() < forgetEvery || !s.forgot.CompareAndSwap(last, now.UnixNano()) {
		return nil
	}
	_, err := s.db.ForgetOutcomes(ctx, now.Add(-outcomesKept))
	return outcome("forget-outcomes", err)
}

// Damages lists no logs: nothing that was acknowledged is in a log of one machine. See
// [store.Watch].
func (s *Store) Damages(context.Context) ([]store.Damage, error) { return nil, nil }
