// Package release holds the words in which a release is described to everybody who speaks
// of its privacy: recipes, the accountant and the checker of certificates. It imports
// nothing of this module.
package release

import (
	"errors"
	"fmt"
)

// ErrNeighbours is what every error about a name or a number of [Neighbours] matches.
var ErrNeighbours = errors.New("release: no relation of neighbours")

// Neighbours says which two data sets a guarantee makes hard to tell apart.
type Neighbours uint8

const (
	// AddRemove: one person's record is present or absent.
	AddRemove Neighbours = iota + 1
	// ReplaceOne: one person's record is replaced by any other. The number of records is
	// public.
	ReplaceOne
	// ZeroOut: one person's record is replaced by one that contributes zero. The number of
	// records is public.
	ZeroOut
)

func (n Neighbours) String() string {
	switch n {
	case AddRemove:
		return "add-remove"
	case ReplaceOne:
		return "replace"
	case ZeroOut:
		return "zero-out"
	}
	return fmt.Sprintf("Neighbours(%d)", uint8(n))
}

// MarshalText writes add-remove, replace or zero-out.
func (n Neighbours) MarshalText() ([]byte, error) {
	if n < AddRemove || n > ZeroOut {
		return nil, fmt.Errorf("%w: %d, want AddRemove, ReplaceOne or ZeroOut", ErrNeighbours, uint8(n))
	}
	return []byte(n.String()), nil
}

// ParseNeighbours reads what String writes.
func ParseNeighbours(s string) (Neighbours, error) {
	for n := AddRemove; n <= ZeroOut; n++ {
		if s == n.String() {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%w: %q, want add-remove, replace or zero-out", ErrNeighbours, s)
}
