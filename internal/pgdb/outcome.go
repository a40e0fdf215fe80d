package pgdb

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A token names one attempt at a transaction: six bytes of milliseconds, so that indexes
// grow at one end and old tokens are a range, and ten random ones.
type token [16]byte

func (db *DB) token() (t token, err error) {
	if _, err := rand.Read(t[6:]); err != nil {
		return t, fmt.Errorf("random bytes: %w", err)
	}
	t.at(db.opt.Clock.Now())
	return t, nil
}

// at makes it a token of that time.
func (t *token) at(when time.Time) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(when.UnixMilli()))
	copy(t[:6], b[2:])
}

// resolve finds out what became of a transaction whose commit got no answer, because of
// cause. It is nil if the transaction took place, errAgain if not.
func (db *DB) resolve(ctx context.Context, name string, t token, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), db.opt.Resolve)
	defer cancel()
	outcome := pgx.Identifier{db.opt.Schema, "outcome"}.Sanitize()
	var done bool
	for n := 1; ; n++ {
		err := db.alone(ctx, name, func(ctx context.Context, c *pgx.Conn) error {
			// It waits for a transaction that has the token and is under way.
			if _, err := c.Exec(ctx, "INSERT INTO "+outcome+" (token, done) VALUES ($1, false) ON CONFLICT (token) DO NOTHING", t[:]); err != nil {
				return err
			}
			return c.QueryRow(ctx, "SELECT done FROM "+outcome+" WHERE token = $1", t[:]).Scan(&done)
		})
		switch {
		case err == nil && done:
			return nil
		case err == nil:
			return fmt.Errorf("%w: it did not take place: %w", errAgain, cause)
		case over(ctx):
			return fmt.Errorf("%w: %w: and then: %w", ErrUnknown, cause, err)
		}
		if db.pause(ctx, n) != nil {
			return fmt.Errorf("%w: %w: and then: %w", ErrUnknown, cause, err)
		}
	}
}

// ForgetOutcomes deletes what is remembered of transactions that began before a time, which
// is at least an hour ago: longer than any outcome is looked for. It says of how many.
func (db *DB) ForgetOutcomes(ctx context.Context, before time.Time) (n int64, err error) {
	if least := db.opt.Clock.Now().Add(-time.Hour); before.After(least) {
		before = least
	}
	var t token
	t.at(before)
	err = db.alone(ctx, "forget-outcomes", func(ctx context.Context, c *pgx.Conn) error {
		tag, err := c.Exec(ctx, "DELETE FROM "+pgx.Identifier{db.opt.Schema, "outcome"}.Sanitize()+" WHERE token < $1", t[:])
		n = tag.RowsAffected()
		return err
	})
	return n, err
}
