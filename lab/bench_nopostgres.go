//go:build !unix

package lab

import "errors"

// A benchDatabase is none: the servers of PostgreSQL that a benchmark starts end with a pipe
// of Unix.
type benchDatabase struct{}

func newBenchDatabase(string, *benchParty, string) (*benchDatabase, error) {
	return nil, errors.New("lab: a benchmark on PostgreSQL runs on Unix")
}

func (*benchDatabase) end()                   {}
func (*benchDatabase) add(*use) error         { return nil }
func (*benchDatabase) size() (float64, error) { return 0, nil }
