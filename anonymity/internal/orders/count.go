package orders

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/wire"
)

const (
	countMagic  = "starling issuer count v1"
	CountSuffix = ".issued" // of the file, behind the epoch's number
)

// ErrCount: a count that is damaged, or of another epoch.
var ErrCount = errors.New("orders: not the count of that epoch")

// ReadCount reads how many there were of an epoch whose register is gone, if that is kept.
func ReadCount(dir disk.FS, epoch uint32) (n uint64, kept bool, err error) {
	name := strconv.FormatUint(uint64(epoch), 10) + CountSuffix
	b, err := disk.ReadFile(dir, name, 4096)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err == nil {
		err = wire.Read(b, ErrCount, countCode(&epoch, &n))
	}
	if err != nil {
		return 0, false, fmt.Errorf("%s: %w", name, err)
	}
	return n, true, nil
}

// KeepCount writes down how many there were of an epoch, before its register goes. A
// count that is there stays.
func KeepCount(dir disk.FS, epoch uint32, count func() (uint64, error)) error {
	if _, kept, err := ReadCount(dir, epoch); kept || err != nil {
		return err
	}
	n, err := count()
	if err != nil {
		return err
	}
	name := strconv.FormatUint(uint64(epoch), 10) + CountSuffix
	return disk.WriteFile(dir, name, wire.MustAppend(nil, countCode(&epoch, &n)))
}

func countCode(epoch *uint32, n *uint64) func(*wire.Coder) {
	want := *epoch
	return func(c *wire.Coder) {
		c.Const(countMagic, "not a count of credentials")
		c.Uint32(epoch, "epoch")
		c.Check(*epoch == want, "a count of another epoch")
		c.Uint64(n, "count")
	}
}
