package buffer

import "testing"

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
// race detector), not all of 64.
func TestReuse(t *testing.T) {
	again := 0
	for range 64 {
		b := Get(1 << 20)
		Put(b)
		if next := Get(1 << 20); &next[:1][0] == &b[:1][0] {
			again++
		}
	}
	if again == 0 {
		t.Error("every buffer was made anew")
	}
}
