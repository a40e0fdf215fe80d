package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/internal/pgdb"
)

// An object that no row names and no tombstone is a stray: its put was given up and took
// effect late, or whoever put it died before the transaction that was to name it. Nobody
// else knows of it, so it is looked for: by one replica at a time, part by part of what the
// object storage lists.
//
// That no row names an object is no reason to delete it, for one may do so in a moment. So
// a stray is noted, and is given up when it was seen as one for longer than any put may
// take. That transaction takes the object's name first, which is unique: one that names the
// object and is not over is waited for, and one that comes later finds the tombstone, and
// fails (buriedAlready).
const (
	// strayAge is how long a stray stays, at least; from the end of a put to the end of the
	// transaction that names the object it takes a minute or two ([segment.IntakeOptions]).
	strayAge = 24 * time.Hour
	// strayPage is how many objects one pass looks at.
	strayPage = payload.MaxPage
	// strayLease is for how long a pass has the chore.
	strayLease = 5 * time.Minute
	// ownerFolder has the names of the data sets whose objects lie in an object storage.
	ownerFolder = "owner/"
)

// ErrShared: the objects of two data sets lie in one place. To which of them an object
// belongs nobody can say, and neither looks for strays.
var ErrShared = errors.New("store: two data sets keep uploads at one place of one object storage: give each a prefix of its own (docs/operating.md)")

// SweepStrays looks at a part of what lies in object storage for what no row names, and puts
// under tombstones what it has seen there for long; [Store.Bury] deletes it. It does nothing
// where another replica is at it.
func (s *Store) SweepStrays(ctx context.Context) error {
	mine, t, err := s.turn(ctx, choreStrays, strayLease)
	if err != nil || !mine || !t.begun {
		return err
	}
	if s.objects == nil {
		return s.sweep(ctx, &t, nil)
	}
	if t.place == "" {
		if err := s.alone(ctx); err != nil {
			return err
		}
	}
	page, err := s.objects.List(ctx, segment.ObjectFolder, t.place, strayPage)
	if err != nil {
		return fmt.Errorf("store: strays: %w", err)
	}
	return s.sweep(ctx, &t, page)
}

// alone makes sure that no other data set keeps objects there.
func (s *Store) alone(ctx context.Context) error {
	var id []byte
	err := s.view(ctx, "store-id", func(tx *pgdb.Tx) error {
		_, err := tx.One("store-id", nil, &id)
		return err
	})
	if err != nil {
		return err
	}
	own := ownerFolder + hex.EncodeToString(id) + ".id"
	if err := payload.Keep(ctx, s.objects, own, id); err != nil {
		return fmt.Errorf("store: strays: %w", err)
	}
	list, err := s.objects.List(ctx, ownerFolder, "", 2)
	if err != nil {
		return fmt.Errorf("store: strays: %w", err)
	}
	for _, o := range list {
		if o.Name != own {
			return ErrShared
		}
	}
	return nil
}

// sweep judges one page of what is listed. After the last one the next pass begins anew.
func (s *Store) sweep(ctx context.Context, t *turn, page []payload.Object) error {
	names := make([][]byte, len(page))
	for i, o := range page {
		names[i] = []byte(o.Name)
	}
	last, next := "\x7f", "" // behind all names
	if len(page) == strayPage {
		last = page[len(page)-1].Name
		next = last
	}
	age := s.stray.Milliseconds()
	return s.update(ctx, "sweep-strays", func(tx *pgdb.Tx) error {
		if mine, err := t.save(tx, s, next); err != nil || !mine {
			return err
		}
		if _, err := tx.Exec("drop-unnamed-rows", age, buried); err != nil {
			return err
		}
		if _, err := tx.Exec("put-strays", names); err != nil {
			return err
		}
		if _, err := tx.Exec("drop-known-strays", t.place, last, names); err != nil {
			return err
		}
		var old [][]byte
		err := tx.Each("old-strays", []any{t.place, last, age}, func(r pgdb.Row) error {
			var name []byte
			err := r.Scan(&name)
			old = append(old, name)
			return err
		})
		if err != nil || len(old) == 0 {
			return err
		}
		return giveUp(tx, old)
	})
}

// giveUp puts strays under tombstones, but for those that are named by now.
func giveUp(tx *pgdb.Tx, old [][]byte) error {
	var rows []int64
	var names [][]byte
	err := tx.Each("claim-strays", []any{old}, func(r pgdb.Row) error {
		var row int64
		var name []byte
		err := r.Scan(&row, &name)
		rows, names = append(rows, row), append(names, name)
		return err
	})
	if err != nil {
		return err
	}
	if len(names) > 0 {
		if _, err := tx.Exec("put-tombstones", names); err != nil {
			return err
		}
		if _, err := tx.Exec("drop-claims", rows); err != nil {
			return err
		}
	}
	_, err = tx.Exec("drop-strays", old)
	return err
}

// errBuried: an object was given up before it was named. Its reports may be sent
// again.
var errBuried = fmt.Errorf("%w: the object was given up before a row named it", segment.ErrBusy)

// buriedAlready fails where an object of object storage, which the transaction has just
// given its row, is to be deleted.
func buriedAlready(tx *pgdb.Tx, object string) error {
	var one int
	found, err := tx.One("buried-object", []any{object}, &one)
	if err == nil && found {
		err = fmt.Errorf("%w: %s", errBuried, object)
	}
	return err
}
