package aggregator

import (
	"errors"
	"fmt"

	"github.com/starling-agg/starling/internal/disk"
)

// FS is a directory for one service alone. [Dir] opens one on a disk.
type FS = disk.FS

// A Clock is the time as a service sees it: Now says what it is, and NewTimer makes a
// [Timer]. The zero value of an option is the machine's.
type Clock = disk.Clock

// A Timer of a [Clock] fires once on its channel C; Stop releases it.
type Timer = disk.Timer

// Failpoints stop a service, or have it fail, at the named places that leader and helper
// list (FailpointNames): for tests of what outlives a crash.
type Failpoints = disk.Failpoints

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
