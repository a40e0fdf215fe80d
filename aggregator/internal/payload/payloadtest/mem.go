package payloadtest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/starling-agg/starling/aggregator/internal/payload"
)

// Mem is a store in memory. It is safe for many goroutines, and each that has it is a
// handle on the same data.
type Mem struct {
	mu      sync.Mutex
	objects map[string][]byte
	room    int64 // bytes that may still be put, if limited
	limited bool
}

// NewMem returns an empty store.
func NewMem() *Mem { return &Mem{objects: make(map[string][]byte)} }

// Limit bounds the bytes of all that is put from now on and not deleted.
func (m *Mem) Limit(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.room, m.limited = bytes, true
}

// Put implements [payload.Store].
func (m *Mem) Put(ctx context.Context, name string, parts ...[]byte) error {
	size, err := payload.CheckPut(name, parts)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return payload.Ended(ctx, "put "+name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.objects[name] != nil:
		return fmt.Errorf("%w: %s", payload.ErrExists, name)
	case m.limited && size > m.room:
		return fmt.Errorf("%w: put %s", payload.ErrFull, name)
	}
	m.room -= size
	m.objects[name] = slices.Concat(parts...)
	return nil
}

// ReadAt implements [payload.Store].
func (m *Mem) ReadAt(ctx context.Context, name string, p []byte, offset int64) (int, error) {
	if err := payload.CheckRead(name, p, offset); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, payload.Ended(ctx, "read "+name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	content := m.objects[name]
	if content == nil {
		return 0, fmt.Errorf("%w: %s", payload.ErrNotFound, name)
	}
	n := copy(p, content[min(offset, int64(len(content))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Delete implements [payload.Store].
func (m *Mem) Delete(ctx context.Context, name string) error {
	if err := payload.CheckName(name); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return payload.Ended(ctx, "delete "+name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.room += int64(len(m.objects[name]))
	delete(m.objects, name)
	return nil
}

// Size implements [payload.Store].
func (m *Mem) Size(ctx context.Context, name string) (int64, error) {
	if err := payload.CheckName(name); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, payload.Ended(ctx, "size of "+name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects[name] == nil {
		return 0, fmt.Errorf("%w: %s", payload.ErrNotFound, name)
	}
	return int64(len(m.objects[name])), nil
}

// List implements [payload.Store].
func (m *Mem) List(ctx context.Context, prefix, after string, n int) ([]payload.Object, error) {
	if err := payload.CheckList(prefix, after, n); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, payload.Ended(ctx, "list "+prefix)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var page []payload.Object
	for _, name := range slices.Sorted(maps.Keys(m.objects)) {
		if strings.HasPrefix(name, prefix) && name > after && len(page) < n {
			page = append(page, payload.Object{Name: name, Size: int64(len(m.objects[name]))})
		}
	}
	return page, nil
}
