// Package buffer lends memory for messages that are too large to allocate anew for each:
// request bodies, logs, segments. Fresh memory of that size has to be cleared, paged in
// and collected again, which costs more than what is done with it.
//
// Memory comes back with the bytes that the borrower left in it, and the next borrower
// may see them. So it is for bytes that arrived from outside, are written to disk as they
// are, or are sealed: never for shares, values or keys in the clear.
package buffer

import (
	"math/bits"
	"slices"
	"sync"
)

// Sizes are a quarter of a power of two apart, so at most a fifth of what is lent was not
// asked for.
const (
	minBits = 12 // smaller ones are made as they are asked for
	maxBits = 25
)

// pools holds a *[]byte of each size from 4 KiB on, the large ones excepted. The garbage
// collector empties them in its own time.
var pools [(maxBits-minBits)*4 + 1]sync.Pool

// Idle is how many bytes of large buffers wait to be lent again, at most.
//
// Pools would keep as many of each size, and for each processor, as were ever lent at one
// time. That is the more the longer the work lasts, and it slows itself: memory that waits
// counts as live, so the collector, which alone empties pools, comes the later.
const Idle = 8 << 20

// large is the least size that counts as large. No more than 32 of them wait, so that
// they can be searched one by one.
const large = 256 << 10

// reserve holds the large buffers that wait. Safe for concurrent use.
var reserve struct {
	mu    sync.Mutex
	idle  [][]byte // the one that came back last is last
	bytes int
}

// takeLarge finds the buffer of that size that came back last; nil if there is none.
func takeLarge(size int) []byte {
	r := &reserve
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, b := range slices.Backward(r.idle) {
		if cap(b) == size {
			r.idle = slices.Delete(r.idle, i, i+1)
			r.bytes -= size
			return b[:0]
		}
	}
	return nil
}

// keepLarge takes a buffer back, and leaves those that have waited longest to the
// collector where that makes too many.
func keepLarge(b []byte) {
	r := &reserve
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle = append(r.idle, b)
	r.bytes += cap(b)
	n := 0
	for ; r.bytes > Idle; n++ {
		r.bytes -= cap(r.idle[n])
	}
	r.idle = slices.Delete(r.idle, 0, n)
}

// class is the number of the smallest size of at least n bytes, and that size; ok is
// false outside of the sizes.
func class(n int) (number, size int, ok bool) {
	if n < 1<<minBits || n > 1<<maxBits {
		return 0, n, false
	}
	octave := bits.Len(uint(n)) - 1
	quarter := 1 << (octave - 2)
	above := (n - 1<<octave + quarter - 1) / quarter // 0 to 4
	return (octave-minBits)*4 + above, 1<<octave + above*quarter, true
}

// Size is how many bytes [Get] lends to who asks for n.
func Size(n int) int {
	_, size, _ := class(n)
	return size
}

// Get lends an empty slice of capacity [Size](n). It need not come back.
func Get(n int) []byte {
	number, size, ok := class(n)
	if size >= large {
		if b := takeLarge(size); b != nil {
			return b
		}
	} else if ok {
		if b, _ := pools[number].Get().(*[]byte); b != nil {
			return (*b)[:0]
		}
	}
	return make([]byte, 0, size)
}

// Put takes a slice back, which must be from its first byte on what Get lent, at whatever
// length. Nothing may refer to its memory any more. Slices of other capacities than
// Get's, nil too, are left to the garbage collector.
func Put(b []byte) {
	number, size, ok := class(cap(b))
	if !ok || size != cap(b) {
		return
	}
	b = b[:cap(b)]
	spoil(b)
	switch {
	case size > Idle: // nothing else is to go for it
		return
	case size >= large:
		keepLarge(b)
		return
	}
	pools[number].Put(&b)
}
