//go:build !unix

package parties

import "errors"

// A Database is none: the servers of PostgreSQL that tools start end with a pipe of Unix.
type Database struct{ Role string }

var errUnix = errors.New("parties: several processes, on PostgreSQL, run on Unix")

// Kill fails.
func (*Database) Kill() error { return errUnix }

// Again fails.
func (*Database) Again() error { return errUnix }

func (*Replicas) add(*Pair, *Party) error { return errUnix }
