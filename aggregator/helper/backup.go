package helper

import (
	"context"
	"io"

	"github.com/starling-agg/starling/aggregator/backup"
)

// Backup writes a backup of the helper while it runs; see [backup.Send].
func (h *Helper) Backup(ctx context.Context, w io.Writer) error {
	return backup.Send(ctx, h.store, h.opt.FS, h.opt.Clock, w)
}
