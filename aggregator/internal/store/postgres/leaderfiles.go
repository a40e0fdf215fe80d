package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// Payload is where the objects of slices lie: those whose names are in [segment.RowFolder]
// in rows of the data set, and all others in [Options.Objects]. It reads and deletes; what
// is put is put by those who acknowledge.
func (s *Store) Payload() payload.Store { return objects{s: s} }

// objects is a payload store over both places.
type objects struct {
	s   *Store
	all bool // of them are rows: for tests
}

var _ payload.Store = objects{}

// inRow says whether the object of a name is a row.
func (o objects) inRow(name string) bool { return o.all || strings.HasPrefix(name, segment.RowFolder) }

// refused is a payload error of what the database said.
func refused(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNoRoom):
		return fmt.Errorf("%w: %s: %w", payload.ErrFull, what, err)
	case errors.Is(err, pgdb.ErrDenied):
		return fmt.Errorf("%w: %s: %w", payload.ErrDenied, what, err)
	}
	return fmt.Errorf("%w: %s: %w", payload.ErrUnavailable, what, err)
}

// Put implements [payload.Store]. A row that is put so has no slices.
func (o objects) Put(ctx context.Context, name string, parts ...[]byte) error {
	if _, err := payload.CheckPut(name, parts); err != nil {
		return err
	}
	if !o.inRow(name) {
		return o.beside(name, func(p payload.Store) error { return p.Put(ctx, name, parts...) })
	}
	var made int64
	err := o.s.update(ctx, "put-payload", func(tx *pgdb.Tx) (err error) {
		made, err = tx.Exec("put-body", name, join(parts))
		return err
	})
	if err == nil && made == 0 {
		return fmt.Errorf("%w: %s", payload.ErrExists, name)
	}
	return refused("put "+name, err)
}

// ReadAt implements [payload.Store].
func (o objects) ReadAt(ctx context.Context, name string, p []byte, offset int64) (n int, err error) {
	if err := payload.CheckRead(name, p, offset); err != nil {
		return 0, err
	}
	if !o.inRow(name) {
		err = o.beside(name, func(s payload.Store) (err error) {
			n, err = s.ReadAt(ctx, name, p, offset)
			return err
		})
		return n, err
	}
	var part []byte
	var size int64
	var found bool
	err = o.s.view(ctx, "read-payload", func(tx *pgdb.Tx) (err error) {
		found, err = tx.One("read-body", []any{name, min(offset, payload.MaxObject), len(p)}, &part, &size)
		return err
	})
	switch {
	case err != nil:
		return 0, refused("read "+name, err)
	case !found:
		return 0, fmt.Errorf("%w: %s", payload.ErrNotFound, name)
	}
	if n = copy(p, part); n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Delete implements [payload.Store]. A row that a slice is in stays.
func (o objects) Delete(ctx context.Context, name string) error {
	if err := payload.CheckName(name); err != nil {
		return err
	}
	if !o.inRow(name) {
		return o.beside(name, func(p payload.Store) error { return p.Delete(ctx, name) })
	}
	return refused("delete "+name, o.s.update(ctx, "drop-payload", func(tx *pgdb.Tx) error {
		_, err := tx.Exec("drop-body", name)
		return err
	}))
}

// List implements [payload.Store].
func (o objects) List(ctx context.Context, prefix, after string, n int) (list []payload.Object, err error) {
	if err := payload.CheckList(prefix, after, n); err != nil {
		return nil, err
	}
	if o.inRow(prefix) {
		err = o.s.view(ctx, "list-payload", func(tx *pgdb.Tx) error {
			list = nil
			return tx.Each("list-bodies", []any{prefix, after, prefix + "\x7f", n}, func(r pgdb.Row) error {
				var x payload.Object
				err := r.Scan(&x.Name, &x.Size)
				list = append(list, x)
				return err
			})
		})
		return list, refused("list "+prefix, err)
	}
	err = o.beside(prefix, func(p payload.Store) (err error) {
		list, err = p.List(ctx, prefix, after, n)
		return err
	})
	return list, err
}

// Size implements [payload.Store].
func (o objects) Size(ctx context.Context, name string) (size int64, err error) {
	if err := payload.CheckName(name); err != nil {
		return 0, err
	}
	if !o.inRow(name) {
		err = o.beside(name, func(p payload.Store) (err error) {
			size, err = p.Size(ctx, name)
			return err
		})
		return size, err
	}
	var found bool
	err = o.s.view(ctx, "size-of-payload", func(tx *pgdb.Tx) (err error) {
		found, err = tx.One("size-of-body", []any{name}, &size)
		return err
	})
	if err == nil && !found {
		return 0, fmt.Errorf("%w: %s", payload.ErrNotFound, name)
	}
	return size, refused("size of "+name, err)
}

// beside is a call of the store of objects, if there is one.
func (o objects) beside(name string, call func(payload.Store) error) error {
	if o.s.objects == nil {
		return fmt.Errorf("%w: %s is not a row, and no object storage is configured", payload.ErrDenied, name)
	}
	return call(o.s.objects)
}

const (
	// buried is how many endings, or objects, go at one time.
	buried = 512
	// oldGrave is the default age of a tombstone at which its object goes: nobody reads for
	// longer what a row named.
	oldGrave = 10 * time.Minute
)

// Bury removes the objects that have lost their last slice; see [store.Files]. Any number of
// replicas may be at it.
func (s *Store) Bury(ctx context.Context) error {
	for more := true; more; {
		err := s.update(ctx, "bury-rows", func(tx *pgdb.Tx) (err error) {
			more, err = buryRows(tx)
			return err
		})
		if err != nil {
			return err
		}
	}
	for more := true; more; {
		var names []string
		err := s.view(ctx, "tombstones", func(tx *pgdb.Tx) error {
			names = nil
			return tx.Each("tombstones", []any{s.grave.Milliseconds(), buried}, func(r pgdb.Row) error {
				var name string
				err := r.Scan(&name)
				names = append(names, name)
				return err
			})
		})
		if err != nil {
			return err
		}
		if len(names) == 0 {
			break
		}
		for _, name := range names {
			if err := s.Payload().Delete(ctx, name); err != nil {
				return fmt.Errorf("store: bury: %w", err)
			}
		}
		err = s.update(ctx, "drop-tombstones", func(tx *pgdb.Tx) error {
			for _, name := range names {
				if _, err := tx.Exec("drop-tombstone", name); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		more = len(names) == buried
	}
	return s.forget(ctx)
}

// buryRows takes objects without a slice away, of some that have lost one. Each transaction
// that takes slices away notes that, so that whichever of two was the last to commit is seen
// here with both.
func buryRows(tx *pgdb.Tx) (more bool, err error) {
	var rows, ended []int64
	err = tx.Each("endings", []any{buried}, func(r pgdb.Row) error {
		var row, object int64
		err := r.Scan(&row, &object)
		rows, ended = append(rows, row), append(ended, object)
		return err
	})
	if err != nil || len(rows) == 0 {
		return false, err
	}
	if _, err := tx.Exec("drop-endings", rows); err != nil {
		return false, err
	}
	var names [][]byte
	err = tx.Each("drop-objects", []any{ended}, func(r pgdb.Row) error {
		var name string
		var stored bool
		err := r.Scan(&name, &stored)
		if stored {
			names = append(names, []byte(name))
		}
		return err
	})
	if err == nil && len(names) > 0 {
		_, err = tx.Exec("put-tombstones", names)
	}
	return len(rows) == buried, err
}

// LiveFiles are the names of all objects that a row names; see [store.Files].
func (s *Store) LiveFiles(ctx context.Context) (names []string, err error) {
	err = s.view(ctx, "live-objects", func(tx *pgdb.Tx) error {
		names = nil
		return tx.Each("live-objects", nil, func(r pgdb.Row) error {
			var name string
			err := r.Scan(&name)
			names = append(names, name)
			return err
		})
	})
	return names, err
}

// Slices lists slices that wait; see [store.Jobs].
func (s *Store) Slices(ctx context.Context, cursor int64, n int) (list []segment.Slice, next int64, err error) {
	err = s.view(ctx, "slices", func(tx *pgdb.Tx) error {
		list, next = nil, cursor
		return tx.Each("slices-after", []any{cursor, max(n, 0)}, func(r pgdb.Row) error {
			var task []byte
			x, err := scanSlice(r, &next, &task)
			if err == nil {
				x.TaskID = dap.TaskID(task)
				list = append(list, x)
			}
			return err
		})
	})
	if err != nil {
		return nil, cursor, err
	}
	return list, next, nil
}
