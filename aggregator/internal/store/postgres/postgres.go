package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/starling-agg/starling/aggregator/internal/store/postgres/pgdb"
)

//go:embed migrations/*.sql
var files embed.FS

// Store is a handle on the data set of one aggregator.
type Store struct {
	db *pgdb.DB
}

// Open opens the data set, and makes it if there is none. Of the options Migrations and
// Statements are the engine's own.
func Open(ctx context.Context, opt pgdb.Options) (*Store, error) {
	var err error
	if opt.Migrations, err = fs.Sub(files, "migrations"); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	db, err := pgdb.Open(ctx, opt)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return &Store{db}, nil
}

// Close ends the handle when its transactions are over.
func (s *Store) Close() error {
	s.db.Close()
	return nil
}
