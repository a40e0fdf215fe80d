package aggregator

import (
	"errors"
	"fmt"

	"github.com/starling-agg/starling/internal/disk"
)

// Dir opens a directory for one service alone, and makes it where it is missing: what the
// FS and the Record of [Options] want, a directory each. Close it after the service. It
// fails where another process has it.
func Dir(path string) (*disk.OSFS, error) {
	fsys, err := disk.OS(path)
	if err != nil {
		return nil, err
	}
	if err := fsys.Lock(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), fsys.Close())
	}
	return fsys, nil
}
