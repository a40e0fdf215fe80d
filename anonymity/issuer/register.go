package issuer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/orders"
	"github.com/starling-agg/starling/internal/disk"
)

// A Register has the SHA-256 of each request that was answered, by epoch. A method that
// has returned has done its work durably; after an error it may be done or not, and the same
// call again is harmless. It is safe for concurrent use, by all processes of the issuer.
type Register interface {
	// Now is the time by which epochs begin: of several processes, by the clock that they
	// share.
	Now(ctx context.Context) (time.Time, error)
	// Enter enters a request of an epoch, unless it is there, the epoch is counted, or most
	// are there: then entered is false, and true of one that was there.
	Enter(ctx context.Context, epoch uint32, request [32]byte, most uint64) (repeated, entered bool, err error)
	// Count says how many requests of an epoch there are, once no more are entered. begun has
	// it counted now; else counted is false where nobody has yet.
	Count(ctx context.Context, epoch uint32, begun bool) (n uint64, counted bool, err error)
	// None says whether nothing can hold that is shown of an epoch without a key: nothing of
	// it was answered, or its key is destroyed.
	None(ctx context.Context, epoch uint32) (bool, error)
	// Keep has the number of an epoch stay when its requests are forgotten.
	Keep(ctx context.Context, epoch uint32) error
	// Forget drops the requests of epochs up to one, whose keys are destroyed.
	Forget(ctx context.Context, last uint32) error
	Close() error
}

// files are the register of one process, beside its keys.
type files struct {
	keys, dir disk.FS
	now       func() time.Time
	*orders.Registers
}

// Now implements [Register].
func (f *files) Now(context.Context) (time.Time, error) { return f.now(), nil }

// Count implements [Register].
func (f *files) Count(_ context.Context, epoch uint32, begun bool) (n uint64, counted bool, err error) {
	n, kept, err := orders.ReadCount(f.dir, epoch)
	if kept || err != nil {
		return n, kept, err
	}
	if last, any, err := lastGone(f.keys); err != nil || any && epoch <= last {
		return 0, false, errors.Join(fmt.Errorf("how many there were of epoch %d is not known", epoch), err)
	}
	if !begun {
		return 0, false, nil
	}
	n, pending, err := f.Registers.Count(epoch)
	if pending > 0 { // one that began to be entered before the epoch did
		return 0, false, err
	}
	return n, err == nil, err
}

// None implements [Register]. Where some keys are there, those of epochs before them never
// were.
func (f *files) None(_ context.Context, epoch uint32) (bool, error) {
	list, err := epochs(f.keys, keySuffix)
	return len(list) > 0 && epoch < slices.Min(list), err
}

// Keep implements [Register].
func (f *files) Keep(_ context.Context, epoch uint32) error {
	return orders.KeepCount(f.dir, epoch, func() (uint64, error) {
		n, _, err := f.Registers.Count(epoch)
		return n, err
	})
}

// Forget implements [Register].
func (f *files) Forget(_ context.Context, last uint32) error { return f.Registers.Forget(last) }
