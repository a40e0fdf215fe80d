package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/internal/service/database"
)

// readSlice reads a slice as the statements list its columns.
func (s *Store) readSlice(r database.Row) (id int64, m segment.Slice, err error) {
	var task int64
	var sum, pieces []byte
	if err := r.Scan(&id, &m.Object, &sum, &task, &m.Bucket, &m.Count, &m.Duplicates, &m.Came, &pieces); err != nil {
		return 0, m, err
	}
	m.TaskID, m.Sum = s.taskByRow(task).ID, segment.Sum(sum)
	// Pieces that cannot be read are none: the slice does not open, and is set aside.
	m.Pieces, _ = segment.ReadPieces(pieces)
	return id, m, nil
}

// readSlices reads those that a statement lists.
func (s *Store) readSlices(tx *database.Tx, statement string, args ...any) (ids []int64, list []segment.Slice, err error) {
	err = tx.Each(statement, args, func(r database.Row) error {
		id, m, err := s.readSlice(r)
		ids, list = append(ids, id), append(list, m)
		return err
	})
	return ids, list, err
}

// Slices implements [store.Jobs].
func (s *Store) Slices(ctx context.Context, cursor int64, n int) (slices []segment.Slice, next int64, err error) {
	next = cursor
	err = s.view(ctx, "slices", func(tx *database.Tx) error {
		var ids []int64
		ids, slices, err = s.readSlices(tx, "slices-after", cursor, n)
		if len(ids) > 0 {
			next = ids[len(ids)-1]
		}
		return err
	})
	return slices, next, err
}

// Where many files are small they are brought together.
const (
	smallBytes = store.LeftoverBytes / 8
	manySmall  = 8
)

// Leftover implements [store.Jobs].
func (s *Store) Leftover(ctx context.Context, before time.Time) (list []segment.Slice, err error) {
	err = s.view(ctx, "leftover", func(tx *database.Tx) error {
		list = nil
		objects, err := worn(tx, before, s.opt.Clock.Now())
		if err != nil {
			return err
		}
		size := int64(0)
		for _, object := range objects {
			_, slices, err := s.readSlices(tx, "slices-to-move", object)
			if err != nil {
				return err
			}
			for i := range slices {
				if size += slices[i].Size(); size > store.LeftoverBytes && len(list) > 0 {
					return nil
				}
				list = append(list, slices[i])
			}
		}
		return nil
	})
	return list, err
}

// worn are the files, by row, that are worth being written again. One that was named far
// ahead was by another clock, and is old.
func worn(tx *database.Tx, before, now time.Time) (worn []int64, err error) {
	var small []int64
	err = tx.Each("objects-before", []any{before.Unix(), now.Add(store.Longest).Unix()}, func(r database.Row) error {
		var id, size int64
		var ended bool
		err := r.Scan(&id, &ended, &size)
		switch {
		case ended:
			worn = append(worn, id)
		case size <= smallBytes:
			small = append(small, id)
		}
		return err
	})
	if len(small) >= manySmall {
		worn = append(worn, small...)
	}
	return worn, err
}

// Move implements [store.Jobs].
func (s *Store) Move(ctx context.Context, places []store.Place) error {
	if len(places) == 0 {
		return nil
	}
	to := places[0].To.Object
	return s.update(ctx, "move-slices", func(tx *database.Tx) error {
		var one int
		if named, err := tx.One("object-named", []any{to}, &one); err != nil || named {
			return err
		}
		type move struct {
			id int64
			to *segment.Slice
		}
		var moves []move
		for i := range places {
			from := &places[i].From
			if places[i].To.Object != to || places[i].To.Sum != from.Sum {
				return errors.New("slices are moved into one file, and stay what they are")
			}
			var id int64
			found, err := tx.One("slice-to-move", []any{from.Object, from.Start(), from.Sum[:]}, &id)
			if err != nil {
				return err
			}
			if found {
				moves = append(moves, move{id, &places[i].To})
			}
		}
		if len(moves) == 0 {
			_, err := tx.Exec("put-tombstone", to)
			return err
		}
		object, err := tx.Insert("put-object", to, len(moves), s.opt.Clock.Now().Unix())
		if err != nil {
			return err
		}
		for _, m := range moves {
			if _, err := tx.Exec("move-slice", m.id, object, m.to.Start(), segment.AppendPieces(nil, m.to.Pieces)); err != nil {
				return err
			}
		}
		return nil
	})
}
