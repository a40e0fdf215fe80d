package store

import (
	"context"

	"github.com/starling-agg/starling/aggregator/internal/segment"
)

// Files are those beside the rows that rows name.
type Files interface {
	// LiveFiles are the names of all files that a row names. One that is not among them may
	// be named in a moment, and is no reason to remove anything.
	LiveFiles(ctx context.Context) ([]string, error)
	// Bury removes the files that lost their last row, in whatever life, and then forgets
	// them. The transaction that takes a file its last row notes that it is needless, and
	// only so does a file of the store ever go; a file that was named nowhere is not the
	// store's to judge.
	Bury(ctx context.Context) error
}

// Embedded is what only an engine has whose files lie beside it and are its alone.
type Embedded interface {
	segment.Committer
	// ForgetDamage ends the entry of a log in [Watch.Damages].
	ForgetDamage(ctx context.Context, file string) error
	// Copy copies the database between two transactions into a file beside it, whole and
	// by itself, and says of what. Transactions wait meanwhile.
	Copy(ctx context.Context, to string) (Copied, error)
}
