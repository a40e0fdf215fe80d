package participate

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/wire"
)

// A Counter is a monotone counter that lies outside of a ledger's directory and is not put
// back with it: of a secure element, or a file that no backup holds. With it a ledger that
// was put back or removed as a whole is found out. It serves one ledger, and one goroutine
// at a time.
type Counter interface {
	// Read returns the value: 0 before the first Raise.
	Read() (uint64, error)
	// Raise sets it to n, which is not below the value that Read returns. It is durable on
	// return; after an error it is either value.
	Raise(n uint64) error
}

const counterMagic = "starling counter v1"

// A FileCounter is a [Counter] in a file:
//
//	struct {
//	  opaque magic[19];        // "starling counter v1"
//	  uint64 value;
//	  opaque checksum[32];     // SHA-256 of all before it
//	};
type FileCounter struct {
	FS   disk.FS
	Name string
}

// Read returns the value.
func (c FileCounter) Read() (uint64, error) {
	b, err := disk.ReadFile(c.FS, c.Name, int64(len(counterMagic)+8+sha256.Size))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var n uint64
	content, ok := wire.CutSum(b)
	if !ok {
		err = fmt.Errorf("%w: wrong checksum", errRecord)
	} else {
		err = wire.Read(content, errRecord, codeCounter(&n))
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", c.Name, err)
	}
	return n, nil
}

func codeCounter(n *uint64) func(*wire.Coder) {
	return func(c *wire.Coder) {
		c.Const(counterMagic, "not a starling counter of version 1")
		c.Uint64(n, "value")
	}
}

// Raise replaces the file.
func (c FileCounter) Raise(n uint64) error {
	return disk.WriteFile(c.FS, c.Name, wire.AppendSum(wire.MustAppend(nil, codeCounter(&n)), 0))
}

// outside holds the mark against the counter, if there is one.
func (l *Ledger) outside() error {
	if l.o.Counter == nil {
		return nil
	}
	n, err := l.o.Counter.Read()
	if err == nil && n > l.mark.serial {
		err = fmt.Errorf("it is of change %d, and the counter outside of it says that there were %d: it was put back", l.mark.serial, n)
	}
	return err
}
