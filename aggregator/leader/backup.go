package leader

import (
	"context"
	"io"

	"github.com/starling-agg/starling/aggregator/backup"
)

// Backup writes a backup of the leader while it runs; see [backup.Send].
func (l *Leader) Backup(ctx context.Context, w io.Writer) error {
	return backup.Send(ctx, l.store, l.opt.FS, l.opt.Clock, w)
}
