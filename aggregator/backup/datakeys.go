package backup

import (
	"context"
	"errors"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/store/sqlite"
	"github.com/starling-agg/starling/aggregator/status"
)

// ErrDataKeys: the data keys are not those that the store has used, and it does not start.
var ErrDataKeys = datakey.ErrDamaged

// LostDataKeys says which data keys have no file, or a damaged one, and with giveUp ends
// them: nothing of their time is released any more, and an aggregator whose newest key is
// among them starts again. It must not run.
func LostDataKeys(ctx context.Context, o Options, giveUp bool) (lost []status.DataKey, err error) {
	s, err := sqlite.Open(ctx, sqlite.Options{FS: o.Data, Record: o.Record, Role: o.Role, Party: o.Party, File: DatabaseFile, Clock: o.Clock})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return datakey.GiveUp(ctx, datakey.Options{FS: o.Record, Book: s, Clock: o.Clock}, giveUp)
}
