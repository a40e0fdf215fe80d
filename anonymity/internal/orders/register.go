package orders

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/starling-agg/starling/internal/disk"
)

// Registers are what was answered in each epoch, a log of names each, which are digests of
// what was ordered. Safe for concurrent use, by one process.
type Registers struct {
	fs         disk.FS
	suffix     string // behind an epoch's number, of a file
	failpoints *disk.Failpoints

	mu     sync.Mutex
	open   map[uint32]*register
	closed bool
}

type register struct {
	log *disk.Log

	mu      sync.Mutex
	seen    map[[32]byte]struct{}
	pending uint64 // that are being entered, or may be there
}

// NewRegisters are those in a directory; each is opened when it is first asked for.
func NewRegisters(fs disk.FS, suffix string, failpoints *disk.Failpoints) *Registers {
	return &Registers{fs: fs, suffix: suffix, failpoints: failpoints, open: make(map[uint32]*register)}
}

// Close closes them. Nothing may be under way.
func (x *Registers) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	var errs []error
	for _, r := range x.open {
		errs = append(errs, r.log.Close())
	}
	return errors.Join(errs...)
}

// Enter enters a name in the register of an epoch, durably, unless it is there or as many
// are as may be: then entered is false, and true of one that was there.
func (x *Registers) Enter(ctx context.Context, epoch uint32, name [32]byte, most uint64) (repeated, entered bool, err error) {
	r, err := x.of(epoch)
	if err != nil {
		return false, false, err
	}
	r.mu.Lock()
	_, repeated = r.seen[name]
	if repeated || uint64(len(r.seen))+r.pending >= most {
		r.mu.Unlock()
		return repeated, repeated, nil
	}
	r.pending++
	r.mu.Unlock()
	err = r.log.Append(ctx, name[:])
	r.mu.Lock()
	defer r.mu.Unlock()
	if !errors.Is(err, disk.ErrStateUnknown) { // else it is pending until a start reads what there is
		r.pending--
	}
	if err != nil {
		return false, false, fmt.Errorf("register of epoch %d: %w", epoch, err)
	}
	r.seen[name] = struct{}{}
	return false, true, nil
}

// of opens that of an epoch.
func (x *Registers) of(epoch uint32) (*register, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, errors.New("registers: closed")
	}
	if r := x.open[epoch]; r != nil {
		return r, nil
	}
	r := &register{seen: make(map[[32]byte]struct{})}
	log, _, err := disk.OpenLog(x.fs, x.file(epoch), disk.LogOptions{MaxRecord: 32, Failpoints: x.failpoints}, func(b []byte) error {
		if len(b) != 32 {
			return fmt.Errorf("a record of %d bytes", len(b))
		}
		r.seen[[32]byte(b)] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("register of epoch %d: %w", epoch, err)
	}
	r.log = log
	x.open[epoch] = r
	return r, nil
}

func (x *Registers) file(epoch uint32) string {
	return strconv.FormatUint(uint64(epoch), 10) + x.suffix
}

// Count is how many names an epoch's has, and how many more are being entered.
func (x *Registers) Count(epoch uint32) (n, pending uint64, err error) {
	r, err := x.of(epoch)
	if err != nil {
		return 0, 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return uint64(len(r.seen)), r.pending, nil
}

// Forget drops the registers of epochs up to one.
func (x *Registers) Forget(last uint32) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for entry, err := range disk.Files(x.fs, ".") {
		if err != nil {
			return fmt.Errorf("registers: %w", err)
		}
		digits, ok := strings.CutSuffix(entry.Name, x.suffix)
		n, err := strconv.ParseUint(digits, 10, 32)
		if !ok || err != nil || uint32(n) > last {
			continue
		}
		if r := x.open[uint32(n)]; r != nil {
			delete(x.open, uint32(n))
			if err := r.log.Close(); err != nil {
				return fmt.Errorf("register of epoch %d: %w", n, err)
			}
		}
		if err := disk.Remove(x.fs, entry.Name); err != nil {
			return fmt.Errorf("register of epoch %d: %w", n, err)
		}
	}
	return nil
}
