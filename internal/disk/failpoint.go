package disk

import (
	"maps"
	"slices"
	"sync"
)

// Failpoints is a registry of the named places between the durable steps of the code,
// where a test may make it fail or lose power. The nil registry is what production uses:
// every place costs one comparison. Safe for many goroutines.
type Failpoints struct {
	mu    sync.Mutex
	hits  map[string]int
	armed map[string]armed
}

type armed struct {
	skip   int
	action func() error
}

// Hit is called by the code at the place name. It returns the error that the code must
// fail with, or nil.
func (f *Failpoints) Hit(name string) error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	if f.hits == nil {
		f.hits = make(map[string]int)
	}
	f.hits[name]++
	a, ok := f.armed[name]
	if ok && a.skip > 0 {
		f.armed[name] = armed{a.skip - 1, a.action}
		ok = false
	}
	f.mu.Unlock()
	if !ok {
		return nil
	}
	return a.action()
}

// Arm makes Hit(name) call action, after skip hits that pass. It stays armed until
// Disarm. A test that simulates a loss of power gives an action that cuts the simulated
// disk and returns an error, so that nothing later has an effect.
func (f *Failpoints) Arm(name string, skip int, action func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.armed == nil {
		f.armed = make(map[string]armed)
	}
	f.armed[name] = armed{skip, action}
}

// Disarm undoes Arm.
func (f *Failpoints) Disarm(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.armed, name)
}

// Hits is how often each place has been passed so far.
func (f *Failpoints) Hits() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.hits)
}

// Seen lists the places passed so far, sorted, so that a test can run once to learn them
// and then fail at each.
func (f *Failpoints) Seen() []string { return slices.Sorted(maps.Keys(f.Hits())) }
