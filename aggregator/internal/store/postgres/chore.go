package postgres

import (
	"context"
	"time"

	"github.com/starling-agg/starling/internal/pgdb"
)

// Chores are work that is no replica's own, that one alone need do, and that harms nothing
// where two do it: a lease says who does, and the rows decide what comes of it.
const (
	// ChoreLeftover is to bring together what is left of objects.
	ChoreLeftover = "leftover"
	choreStrays   = "strays"
	// choresSince is the first version of a schema that has turns.
	choresSince = 6
)

// Turn says whether a chore is this handle's for some time to come: nobody else had it, or
// this one had it before. A schema of before knows of no turns, and each handle has it.
func (s *Store) Turn(ctx context.Context, chore string, lease time.Duration) (mine bool, err error) {
	mine, _, err = s.turn(ctx, chore, lease)
	return mine, err
}

// turn is Turn with the place where the pass goes on; begun is false where the schema knows
// of no chores.
func (s *Store) turn(ctx context.Context, chore string, lease time.Duration) (mine bool, t turn, err error) {
	err = s.update(ctx, "take-chore", func(tx *pgdb.Tx) error {
		mine, t = true, turn{chore: chore}
		version, err := tx.Version()
		if t.begun = version.Number >= choresSince; err != nil || !t.begun {
			return err
		}
		mine, err = tx.One("take-chore", []any{chore, s.holder[:], lease.Milliseconds()}, &t.place)
		return err
	})
	return mine && err == nil, t, err
}

// A turn is a chore that is this handle's.
type turn struct {
	chore string
	begun bool
	place string // where the pass goes on
}

// save notes in a transaction where the next pass goes on; false where the chore has become
// another's.
func (t *turn) save(tx *pgdb.Tx, s *Store, place string) (mine bool, err error) {
	n, err := tx.Exec("save-chore", t.chore, s.holder[:], place)
	return n == 1, err
}
