// Package recording keeps what parties say while they run, for tests that search it.
package recording

import (
	"slices"
	"sync"
)

// Bytes is what several goroutines write, one behind the other. The zero value is empty.
type Bytes struct {
	mu sync.Mutex
	b  []byte
}

// Write implements [io.Writer].
func (r *Bytes) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.b = append(r.b, p...)
	return len(p), nil
}

// Copy is what was written so far.
func (r *Bytes) Copy() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.b)
}
