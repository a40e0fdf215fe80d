package release

import "fmt"

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
		return nil, &ParameterError{"neighbours", float64(n), "AddRemove, ReplaceOne or ZeroOut"}
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
	return 0, fmt.Errorf("%w: neighbours %q, want add-remove, replace or zero-out", ErrParameter, s)
}
