package segment

import (
	"fmt"

	"github.com/starling-agg/starling/internal/disk"
)

// Peek reads a segment without the row that names it, for those who only wish to know
// what is in it. The error matches [ErrCorrupt] if it is not whole and fs.ErrNotExist if
// it is gone.
func Peek(fsys disk.FS, name string) (*Segment, error) {
	entry, err := fsys.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("segment: peek: %w", err)
	}
	data, err := disk.ReadFile(fsys, name, entry.Size)
	if err != nil {
		return nil, fmt.Errorf("segment: peek: %w", err)
	}
	s, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("segment: peek %s: %w", name, err)
	}
	s.meta.Name = name
	return s, nil
}
