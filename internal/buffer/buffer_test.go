package buffer

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// TestSizes: every length up to 1 MiB and those around the limits get a buffer that is
// large enough, not larger by more than a quarter, and that finds its way back to where
// it came from.
func TestSizes(t *testing.T) {
	check := func(n int) {
		number, size, ok := class(n)
		back, same, _ := class(size)
		switch {
		case size < n || 4*(size-n) >= max(n, 1):
			t.Fatalf("%d bytes: a buffer of %d", n, size)
		case ok && (number < 0 || number >= len(pools) || back != number || same != size):
			t.Fatalf("%d bytes: size %d of pool %d goes back as %d to pool %d", n, size, number, same, back)
		case ok != (n >= 1<<minBits && n <= 1<<maxBits):
			t.Fatalf("%d bytes: kept %v", n, ok)
		}
	}
	for n := range 1 << 20 {
		check(n)
	}
	for b := 20; b <= maxBits; b++ {
		for _, n := range []int{1<<b - 1, 1 << b, 1<<b + 1, 1<<b + 1<<(b-2), 1<<b + 1<<(b-2) + 1} {
			check(n)
		}
	}
	if n := len(pools) - 1; n != (maxBits-minBits)*4 {
		t.Errorf("%d pools", n+1)
	}
	if number, _, _ := class(1 << maxBits); number != len(pools)-1 {
		t.Errorf("the largest size is of pool %d of %d", number, len(pools))
	}
}

// TestGet: what is lent is empty and of the size that was told; what comes back may be
// anything.
func TestGet(t *testing.T) {
	for _, n := range []int{0, 1, 5000, 1 << 20, 1<<maxBits + 1} {
		for range 3 {
			b := Get(n)
			if len(b) != 0 || cap(b) != Size(n) || cap(b) < n {
				t.Fatalf("%d bytes: length %d, capacity %d, size %d", n, len(b), cap(b), Size(n))
			}
			Put(append(b, 1))
		}
	}
	Put(nil)
	Put(make([]byte, 0, 5001))
	if b := Get(5001); cap(b) != Size(5001) {
		t.Errorf("a stranger's slice of %d bytes was lent", cap(b))
	}
}

// TestReuse: what is given back is lent again. A pool may drop some (and does under the
// race detector), not all of 64; of large ones none is dropped.
func TestReuse(t *testing.T) {
	for _, size := range []int{32 << 10, 1 << 20} {
		again := 0
		for range 64 {
			b := Get(size)
			Put(b)
			if next := Get(size); &next[:1][0] == &b[:1][0] {
				again++
			}
		}
		if again == 0 || size >= large && again < 64 {
			t.Errorf("%d bytes: %d of 64 buffers were lent again", size, again)
		}
	}
}

// TestIdle: however many large buffers of however many sizes were lent at one time, no
// more than Idle bytes of them stay, those that came back last, and each is found again.
func TestIdle(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // else a pool would be emptied meanwhile
	before := live()
	var lent [][]byte
	for size := large; size <= 2<<20; size += size / 4 {
		for range 3 {
			lent = append(lent, Get(size))
		}
	}
	total := 0
	for _, b := range lent {
		total += cap(b)
		Put(b)
	}
	last := cap(lent[len(lent)-1])
	clear(lent)
	if total < 3*Idle {
		t.Fatalf("%d bytes were lent, which shows nothing", total)
	}
	if stay := live() - before; stay > Idle+64<<10 {
		t.Errorf("%d bytes stay of %d, at most %d may", stay, total, Idle)
	}
	Put(make([]byte, 0, 2*Idle)) // too large to stay, and no reason for others to go
	for range 3 {
		if takeLarge(last) == nil {
			t.Error("a buffer that came back last is gone")
		}
	}
	if stay := live() - before; stay > Idle-3*int64(last)+64<<10 {
		t.Errorf("%d bytes stay although three buffers of %d were lent", stay, last)
	}
}

// live is how many bytes the collector has to leave.
func live() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
