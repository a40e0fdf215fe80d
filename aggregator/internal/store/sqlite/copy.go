package sqlite

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service/database"
)

// Copy implements [store.Embedded].
func (s *Store) Copy(ctx context.Context, to string) (c store.Copied, err error) {
	err = s.snapshot(ctx, "backup", func(tx *database.Tx, file disk.File) error {
		size, err := file.Size()
		if err != nil {
			return err
		}
		if free, known := disk.Free(s.opt.FS); known && free-size < s.db.Kept() {
			return fmt.Errorf("%w: a copy has %d bytes, and %d are free", store.ErrNoRoom, size, free)
		}
		now, err := mark(tx)
		if err != nil {
			return err
		}
		c = store.Copied{Role: s.opt.Role, Party: s.opt.Party, ID: hex.EncodeToString(s.id.record.ID[:]), Epoch: now.Epoch, Releases: now.Releases}
		return disk.WriteStream(s.opt.FS, to, func(w io.Writer) error {
			_, err := io.Copy(w, io.NewSectionReader(file, 0, size))
			return err
		})
	})
	return c, err
}
