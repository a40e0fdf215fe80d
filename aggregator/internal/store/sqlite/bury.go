package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service/database"
)

// failBuryAfterRemove is the failpoint between the end of files and that of their
// tombstones.
const failBuryAfterRemove = "store.bury.after-remove"

// buried is how many files go at one time.
const buried = 512

// Bury implements [store.Files].
func (s *Store) Bury(ctx context.Context) error {
	s.burial.Lock()
	defer s.burial.Unlock()
	for {
		var names []string
		err := s.view(ctx, "tombstones", func(tx *database.Tx) error {
			names = nil
			return tx.Each("tombstones", []any{buried}, func(r database.Row) error {
				var name string
				err := r.Scan(&name)
				names = append(names, name)
				return err
			})
		})
		if err != nil || len(names) == 0 {
			return err
		}
		if err := s.removeAll(names); err != nil {
			return fmt.Errorf("store: bury: %w", err)
		}
		if err := s.opt.Failpoints.Hit(failBuryAfterRemove); err != nil {
			return err
		}
		err = s.update(ctx, "drop-tombstones", func(tx *database.Tx) error {
			for _, name := range names {
				if _, err := tx.Exec("drop-tombstone", name); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || len(names) < buried {
			return err
		}
	}
}

// removeAll removes files durably, also where somebody removed their directory.
func (s *Store) removeAll(names []string) error {
	gone := make(map[string]bool)
	var there []string
	for _, name := range names {
		dir := path.Dir(name)
		missing, known := gone[dir]
		if !known {
			_, err := s.opt.FS.Stat(dir)
			missing = errors.Is(err, fs.ErrNotExist)
			gone[dir] = missing
		}
		if !missing {
			there = append(there, name)
		}
	}
	return disk.Remove(s.opt.FS, there...)
}
