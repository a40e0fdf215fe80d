package sqlite

import "sync"

// keyed is a set of locks by key; a key that nobody holds costs nothing. The zero value
// is ready.
type keyed[K comparable] struct {
	mu    sync.Mutex
	locks map[K]*keyedLock
}

type keyedLock struct {
	sync.Mutex
	users int // holders and waiters; guarded by keyed.mu
}

// lock waits for the lock of k and returns what releases it.
func (s *keyed[K]) lock(k K) (unlock func()) {
	s.mu.Lock()
	if s.locks == nil {
		s.locks = make(map[K]*keyedLock)
	}
	l := s.locks[k]
	if l == nil {
		l = new(keyedLock)
		s.locks[k] = l
	}
	l.users++
	s.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		s.mu.Lock()
		if l.users--; l.users == 0 {
			delete(s.locks, k)
		}
		s.mu.Unlock()
	}
}
