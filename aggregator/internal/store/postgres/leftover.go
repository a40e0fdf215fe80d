package postgres

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

const (
	// smallBytes is the most that waits in an object that is brought together with others.
	smallBytes = store.LeftoverBytes / 8
	// manySmall of about one size are brought together: an object's reports are so written
	// again once for each of a few sizes, each leftFan times the one before, from leftLeast
	// bytes on.
	manySmall = 8
	leftFan   = 8
	leftLeast = 4 << 10
	// leftPage is how many objects one look reads, and leftPages how many looks there are in
	// one call. A backlog of large objects is looked through in several calls.
	leftPage, leftPages = 1024, 4
	// leftSlices bounds what is moved at once.
	leftSlices = 1024
)

// lefts are the objects that are worth being written again.
type lefts struct {
	worn  []int64         // others of whose slices ended
	small map[int][]int64 // by tier of what waits in them, all that was named there
	size  map[int64]int64 // bytes that wait
}

// leftTier is 0 up to leftLeast bytes, and one more for each leftFan times as many.
func leftTier(size int64) (t int) {
	for most := int64(leftLeast); size > most; most *= leftFan {
		t++
	}
	return t
}

// list are the objects to be written into one, by row: all that are worn, and with them
// those of which there are many.
func (l *lefts) list() []int64 {
	rows := l.worn
	for tier := 0; tier <= leftTier(smallBytes); tier++ {
		if small := l.small[tier]; len(small) >= manySmall {
			rows = append(rows, small...)
		}
	}
	size := int64(0)
	for i, row := range rows {
		if size += l.size[row]; size > store.LeftoverBytes && i > 0 {
			return rows[:i]
		}
	}
	return rows
}

// Leftover lists what still waits in objects others of whose slices ended, and in many small
// ones, and is no leased job's; see [store.Jobs]. A call looks at a bounded number of objects,
// behind those at which the call before looked.
func (s *Store) Leftover(ctx context.Context, before time.Time) (list []segment.Slice, err error) {
	var at int64 // behind all objects it is 0 again
	err = s.view(ctx, "leftover", func(tx *pgdb.Tx) error {
		list, at = nil, s.left.Load()
		for range leftPages {
			l, next, err := look(tx, at, before)
			if err != nil {
				return err
			}
			at = next
			if list, err = idle(tx, l.list()); err != nil || len(list) > 0 || at == 0 {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.left.Store(at)
	return list, nil
}

// look reads a page of objects after one, and says after which the next page begins; 0 where
// it was the last.
func look(tx *pgdb.Tx, after int64, before time.Time) (l *lefts, next int64, err error) {
	l = &lefts{small: make(map[int][]int64), size: make(map[int64]int64)}
	n := 0
	err = tx.Each("objects-after", []any{after, before.Unix(), leftPage}, func(r pgdb.Row) error {
		var row, named, waiting, size int64
		var old bool
		if err := r.Scan(&row, &named, &waiting, &size, &old); err != nil {
			return err
		}
		n, next = n+1, row
		switch l.size[row] = size; {
		case !old || waiting == 0:
		case waiting < named:
			l.worn = append(l.worn, row)
		case size <= smallBytes:
			l.small[leftTier(size)] = append(l.small[leftTier(size)], row)
		}
		return nil
	})
	if n < leftPage {
		next = 0
	}
	return l, next, err
}

// idle are the slices of objects that are no leased job's.
func idle(tx *pgdb.Tx, objects []int64) (list []segment.Slice, err error) {
	if len(objects) == 0 {
		return nil, nil
	}
	size := int64(0)
	err = tx.Each("idle-slices-of-objects", []any{objects, leftSlices}, func(r pgdb.Row) error {
		var task []byte
		x, err := scanSlice(r, &task)
		if err != nil {
			return err
		}
		if size += x.Size(); size <= store.LeftoverBytes || len(list) == 0 {
			x.TaskID = dap.TaskID(task)
			list = append(list, x)
		}
		return nil
	})
	return list, err
}

// Move names slices elsewhere; see [store.Jobs].
func (s *Store) Move(ctx context.Context, places []store.Place) error {
	return s.update(ctx, "move-slices", func(tx *pgdb.Tx) error {
		type move struct {
			slice, from int64
			to          *segment.Slice
		}
		var moves []move
		into := make(map[string]int64) // how many slices come to each object, and then its row
		worn := make(map[int64]bool)   // objects that lose one
		for i := range places {
			p := &places[i]
			if p.From.Object == p.To.Object || p.From.Sum != p.To.Sum || p.From.Count != p.To.Count {
				return errors.New("a slice is moved to what it is not")
			}
			slice, from, err := movable(tx, &p.From)
			if err != nil {
				return err
			}
			if slice != 0 {
				moves = append(moves, move{slice, from, &p.To})
				into[p.To.Object]++
			}
		}
		for name, n := range into {
			var row int64
			if !strings.HasPrefix(name, segment.RowFolder) {
				if _, err := tx.One("put-object", []any{name, n, nil}, &row); err != nil {
					return err
				}
				if err := buriedAlready(tx, name); err != nil {
					return err
				}
			} else if found, err := tx.One("take-object", []any{name, n}, &row); err != nil || !found {
				return expect(found, err, "row of what was moved")
			}
			into[name] = row
		}
		for _, m := range moves {
			if _, err := tx.Exec("move-slice", m.slice, into[m.to.Object], segment.AppendPieces(nil, m.to.Pieces), m.to.Size()); err != nil {
				return err
			}
			if worn[m.from] {
				continue
			}
			worn[m.from] = true
			if _, err := tx.Exec("note-ending", m.from); err != nil {
				return err
			}
		}
		return unused(tx, places, into)
	})
}

// movable is the row of a slice that waits and is no leased job's, and of its object; 0
// where there is none. No claim takes it until the transaction is over.
func movable(tx *pgdb.Tx, s *segment.Slice) (slice, object int64, err error) {
	var job int64
	found, err := tx.One("find-slice", []any{s.Object, segment.AppendPieces(nil, s.Pieces), s.Sum[:]}, &slice, &object, &job)
	if err != nil || !found || job == 0 {
		return slice, object, err
	}
	var one int
	if found, err = tx.One("idle-job", []any{job}, &one); !found {
		slice = 0
	}
	return slice, object, err
}

// unused gives their tombstones to the objects of a move that have no slice: not moved to
// now, nor before.
func unused(tx *pgdb.Tx, places []store.Place, into map[string]int64) error {
	var names [][]byte
	for _, p := range places {
		if _, used := into[p.To.Object]; used {
			continue
		}
		into[p.To.Object] = 0
		var row int64
		found, err := tx.One("find-object", []any{p.To.Object}, &row)
		if err != nil {
			return err
		}
		if !found {
			names = append(names, []byte(p.To.Object))
		}
	}
	if len(names) == 0 {
		return nil
	}
	_, err := tx.Exec("put-tombstones", names)
	return err
}
