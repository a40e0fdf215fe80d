package leader

import (
	"context"
	"errors"
	"testing"
)

// TestPassage: who stops uploads waits for all that began before, also for those that
// another one waits for, and for none that began after.
func TestPassage(t *testing.T) {
	woken := 0
	p := passage{wake: func() { woken++ }}
	if n := p.close().left(); n != 0 {
		t.Errorf("%d uploads of none", n)
	}
	first := p.enter()
	one := p.close()
	second := p.enter()
	two := p.close()
	third := p.enter()
	three := p.close()
	late := p.enter()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	expect := func(c *crossing, left int) {
		t.Helper()
		if n := c.left(); n != left {
			t.Errorf("%d uploads are under way, want %d", n, left)
		}
		if left == 0 {
			if err := c.wait(t.Context()); err != nil {
				t.Error(err)
			}
		} else if err := c.wait(over); !errors.Is(err, context.Canceled) {
			t.Errorf("with %d left the wait ends with %v", left, err)
		}
	}
	expect(one, 1)
	expect(two, 2)
	expect(three, 3)
	second()
	expect(one, 1)
	expect(two, 1)
	expect(three, 2)
	third()
	expect(three, 1)
	done := make(chan error)
	go func() { done <- three.wait(t.Context()) }()
	first()
	if err := <-done; err != nil {
		t.Error(err)
	}
	expect(one, 0)
	expect(two, 0)
	expect(three, 0)
	if woken != 3 {
		t.Errorf("woken %d times, want once for each", woken)
	}
	late()
}
