package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// A flight is a commit under way, whose ids are neither aggregated nor free. It ends with
// the transaction that appends its run; one that is gone before that was too long under way,
// or the server crashed, and the commit begins again.
type flight struct {
	token [16]byte
	seen  []bool // of each id: it is aggregated already
	due   bool   // a merge of the task's runs
}

const (
	// flightTime is how long a commit may take from its look at the runs to its end, and
	// how long another one waits for it whose replica died.
	flightTime = time.Minute
	// flightPause is about how long a commit waits at first for another one with an id in
	// common, doubled up to 64 times that.
	flightPause = time.Millisecond
	// cleanup bounds what is done after a caller's context may be over.
	cleanup = 5 * time.Second
)

// errGrounded: the flight of a commit is gone.
var errGrounded = errors.New("the commit was too long under way")

// takeOff waits until no commit under way has one of the ids, finds out which are new, and
// claims them all. A commit that waits has claimed nothing.
func (s *Store) takeOff(ctx context.Context, id dap.TaskID, ids []dap.ReportID, token [16]byte) (*flight, error) {
	f := &flight{token: token}
	if token == ([16]byte{}) {
		if _, err := rand.Read(f.token[:]); err != nil {
			return nil, fmt.Errorf("store: random bytes: %w", err)
		}
	}
	for n := 0; ; n++ {
		var busy bool
		err := s.outcome("take-off", s.rooted(ctx, func() error {
			return s.db.Pass(ctx, "take-off", func(tx *pgdb.Tx) (err error) {
				busy, err = f.enter(tx, s, id, ids)
				return err
			})
		}))
		if err != nil || !busy {
			return f, err
		}
		timer := time.NewTimer(flightPause << min(n, 6))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("store: a commit with the same reports is under way: %w", context.Cause(ctx))
		case <-timer.C:
		}
	}
}

// enter is one look at the runs and flights of a task, in its turn. All that takes time and
// leans on nothing that may change comes before the turn, so that others have it soon.
func (f *flight) enter(tx *pgdb.Tx, s *Store, id dap.TaskID, ids []dap.ReportID) (busy bool, err error) {
	t, err := live(tx, reading, id)
	if err != nil {
		return false, err
	}
	// A flight of before the task had a secret has the ids as they are.
	of := idsOf(id).found(t)
	under, err := s.hidden(of)
	if err != nil {
		return false, err
	}
	q := s.query(under, ids)
	sorted := ascending(q.form(t.own()).ids)
	if _, err := s.load(tx, of); err != nil { // so that few are new in the turn
		return errors.Is(err, errNoSecret), unless(err, errNoSecret)
	}
	var one int
	found, err := tx.One("replay-turn", []any{t.row}, &one)
	if err = expect(found, err, "turn of the task"); err != nil {
		return false, err
	}
	// Those of an earlier attempt of the same commit go, too.
	if _, err := tx.Exec("drop-expired-flights", t.row, f.token[:]); err != nil {
		return false, err
	}
	// Flights come before runs: the ids of one that ends in between are in the runs.
	err = tx.Each("flights", []any{t.row}, func(r pgdb.Row) error {
		var theirs []byte
		var own bool
		if err := r.Scan(&theirs, &own); err != nil {
			return err
		}
		switch {
		case own == t.own():
			busy = busy || meet(sorted, theirs)
		case own:
			busy = true // the task has its secret since a moment ago
		default:
			busy = busy || meet(ascending(ids), theirs)
		}
		return nil
	})
	if err != nil || busy {
		return busy, err
	}
	seen, rs, err := s.look(tx, of, q, false)
	if err != nil {
		return errors.Is(err, errNoSecret), unless(err, errNoSecret)
	}
	f.seen, f.due = seen, rs.plan() != nil
	_, err = tx.Exec("put-flight", f.token[:], t.row, sorted, t.own(), int(flightTime/time.Second))
	return false, err
}

// unless is an error, but for one that is none here.
func unless(err, none error) error {
	if errors.Is(err, none) {
		return nil
	}
	return err
}

// end is the part of the transaction that appends the flight's run.
func (f *flight) end(tx *pgdb.Tx) error {
	if f == nil {
		return nil
	}
	n, err := tx.Exec("drop-flight", f.token[:])
	if err == nil && n != 1 {
		err = errGrounded
	}
	return err
}

// giveUp frees the ids of a commit that did not take place. Where that fails its flight ends
// by the clock.
func (s *Store) giveUp(ctx context.Context, f *flight) {
	if f == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	_ = s.db.Pass(ctx, "give-up", func(tx *pgdb.Tx) error {
		_, err := tx.Exec("drop-flight", f.token[:])
		return err
	})
}
