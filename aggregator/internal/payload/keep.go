package payload

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/starling-agg/starling/internal/buffer"
)

// Keep puts an object, or finds that an earlier attempt has put it: nil means that it is
// there, durable, with this content. ErrExists means that the name has another content,
// which no honest use of names brings about.
func Keep(ctx context.Context, s Store, name string, parts ...[]byte) error {
	err := s.Put(ctx, name, parts...)
	if !errors.Is(err, ErrExists) {
		return err
	}
	same, err := holds(ctx, s, name, parts)
	switch {
	case errors.Is(err, ErrNotFound):
		return fmt.Errorf("%w: %s was there and is gone", ErrUnavailable, name)
	case err != nil:
		return err
	case !same:
		return fmt.Errorf("%w: %s, with another content", ErrExists, name)
	}
	return nil
}

// compared is how much holds reads at once.
const compared = 1 << 20

// holds says whether an object is the parts, one after the other.
func holds(ctx context.Context, s Store, name string, parts [][]byte) (bool, error) {
	want := rest(slices.Clone(parts))
	buf := buffer.Get(int(min(compared, want.size()+1)))
	defer buffer.Put(buf)
	buf = buf[:cap(buf)]
	for at := int64(0); ; {
		n, err := s.ReadAt(ctx, name, buf, at)
		if err != nil && err != io.EOF {
			return false, err
		}
		at += int64(n)
		if !want.next(buf[:n]) {
			return false, nil
		}
		if err == io.EOF {
			return want.size() == 0, nil
		}
	}
}

// rest is what is left of the parts of a content.
type rest [][]byte

func (r rest) size() (n int64) {
	for _, part := range r {
		n += int64(len(part))
	}
	return n
}

// next says whether what is left begins with b, and takes that away.
func (r *rest) next(b []byte) bool {
	for len(b) > 0 && len(*r) > 0 {
		part := (*r)[0]
		n := min(len(part), len(b))
		if !bytes.Equal(part[:n], b[:n]) {
			return false
		}
		b, (*r)[0] = b[n:], part[n:]
		if n == len(part) {
			*r = (*r)[1:]
		}
	}
	return len(b) == 0
}

// Probe asks a store for all that the contract has, on an object of its own in a folder,
// and says what it does otherwise: a store that ignores the condition of a put, or has no
// ranges, would lose reports much later. Call it at a start.
func Probe(ctx context.Context, s Store, folder string) (err error) {
	var random [16]byte
	rand.Read(random[:]) // never fails
	name := folder + hex.EncodeToString(random[:]) + ".probe"
	content := []byte(name)
	wrong := func(what string, args ...any) error {
		return fmt.Errorf("%w: %s; this store cannot keep reports", ErrCorrupt, fmt.Sprintf(what, args...))
	}
	if err := Keep(ctx, s, name, content); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	defer func() {
		deleted := s.Delete(ctx, name)
		if err == nil && deleted != nil {
			err = fmt.Errorf("delete: %w", deleted)
		}
	}()
	if err := s.Put(ctx, name, content[1:]); err == nil {
		return wrong("it replaced an object by a put that asked for none to be there (If-None-Match)")
	} else if !errors.Is(err, ErrExists) {
		return fmt.Errorf("put again: %w", err)
	}
	p := make([]byte, 8)
	if n, err := s.ReadAt(ctx, name, p, 9); err != nil {
		return fmt.Errorf("read: %w", err)
	} else if !bytes.Equal(p[:n], content[9:17]) {
		return wrong("a range of an object has other bytes than were put")
	}
	if size, err := s.Size(ctx, name); err != nil {
		return fmt.Errorf("size: %w", err)
	} else if size != int64(len(content)) {
		return wrong("an object of %d bytes has %d", len(content), size)
	}
	page, err := s.List(ctx, folder, name[:len(name)-len(".probe")], 1)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	if len(page) != 1 || page[0] != (Object{name, int64(len(content))}) {
		return wrong("it does not list an object that was put, in byte order: %v", page)
	}
	return nil
}
