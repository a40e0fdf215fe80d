package arc_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/starling-agg/starling/anonymity/arc"
)

// A disk keeps the last state that was written, and may fail before or after the write.
type disk struct {
	states        [][]byte
	before, after error
}

func (d *disk) keep(state []byte) error {
	if d.before != nil {
		return d.before
	}
	d.states = append(d.states, bytes.Clone(state))
	return d.after
}

func (d *disk) last() []byte { return d.states[len(d.states)-1] }

// TestPresentationState: over restarts, lost writes, and writes that were done and reported
// failed, no number is shown twice, none beyond the limit, and what is shown holds.
func TestPresentationState(t *testing.T) {
	const limit = 7
	p := newParty(arc.Hop2, 7, "issuer")
	c := p.issue(t, "device")
	context := arc.NewPresentationContext(arc.Hop2, deployment, 3, p.key.PublicKey().ID())
	base := arc.NewTagBase(context)
	numbers := map[arc.Tag]int{}
	for n := range limit {
		numbers[presentLimited(t, c, base, report(0), n, limit).Tag()] = n
	}
	var shown []int // numbers, as verifiers' tags tell them
	show := func(all []*arc.LimitedPresentation, bindings ...arc.Binding) {
		t.Helper()
		if len(all) != len(bindings) {
			t.Fatalf("%d presentations for %d bindings", len(all), len(bindings))
		}
		for i, x := range all {
			x, err := arc.ReadLimitedPresentation(x.Append(nil), limit)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.verifier.VerifyLimited(arc.LimitedItem{Base: base, Binding: bindings[i], Presentation: x}, limit); err != nil {
				t.Error(err)
			}
			n, ok := numbers[x.Tag()]
			if !ok || slices.Contains(shown, n) {
				t.Errorf("number %d, %v, is shown after %v", n, ok, shown)
			}
			shown = append(shown, n)
		}
	}
	d := new(disk)
	restart := func() *arc.PresentationState {
		t.Helper()
		s, err := c.ReadPresentationState(d.last(), context, limit)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(s.Append(nil), d.last()) {
			t.Error("a state is written otherwise than it was read")
		}
		return s
	}

	s := c.NewPresentationState(context, limit)
	all, err := s.Present(func(state []byte) error {
		if s, err := c.ReadPresentationState(state, context, limit); err != nil || s.Left() != limit-2 {
			t.Error("two numbers are not taken before they are shown:", err)
		}
		return d.keep(state)
	}, report(1), report(2))
	if err != nil {
		t.Fatal(err)
	}
	show(all, report(1), report(2))

	// The write is lost: nothing is shown, and this process does not show the number later.
	d.before = errors.New("the disk is full")
	if all, err := s.Present(d.keep, report(3)); !errors.Is(err, d.before) || all != nil || s.Left() != limit-3 {
		t.Errorf("%d are shown with %d left, though their state was not kept: %v", len(all), s.Left(), err)
	}
	d.before = nil
	// After a restart it may be: it was not shown.
	s = restart()
	if s.Left() != limit-2 {
		t.Errorf("%d are left", s.Left())
	}
	// The write is done and reported as failed: the number is gone, here and after a restart.
	d.after = errors.New("no answer of the disk")
	if all, err := s.Present(d.keep, report(3)); !errors.Is(err, d.after) || all != nil {
		t.Errorf("%d are shown, though it is not known whether their state was kept: %v", len(all), err)
	}
	d.after = nil
	s = restart()
	if s.Left() != limit-3 {
		t.Errorf("%d are left", s.Left())
	}
	if all, err = s.Present(d.keep, report(4), report(5), report(6)); err != nil {
		t.Fatal(err)
	}
	show(all, report(4), report(5), report(6))

	// More than are left: none is taken, and nothing written.
	writes := len(d.states)
	if all, err := s.Present(d.keep, report(7), report(8)); !errors.Is(err, arc.ErrLimit) || all != nil || s.Left() != 1 || len(d.states) != writes {
		t.Errorf("%d are shown beyond the limit, %d are left: %v", len(all), s.Left(), err)
	}
	s = restart()
	if all, err = s.Present(d.keep, report(7)); err != nil {
		t.Fatal(err)
	}
	show(all, report(7))
	for range 2 {
		if _, err := s.Present(d.keep, report(8)); !errors.Is(err, arc.ErrLimit) {
			t.Errorf("an eighth of seven: %v", err)
		}
		s = restart()
	}
	if !slices.Equal(shown, []int{0, 1, 3, 4, 5, 6}) {
		t.Errorf("shown are %v", shown)
	}
	// A backup that is put back shows a number again, under its old tag: it is found out.
	old, err := c.ReadPresentationState(d.states[0], context, limit)
	if err != nil {
		t.Fatal(err)
	}
	if all, err = old.Present(d.keep, report(9), report(9)); err != nil || numbers[all[1].Tag()] != 3 {
		t.Errorf("a state that was put back shows something else: %v", err)
	}
}

// TestPresentationStateRefuses: a state of another credential, context or limit, a damaged
// one, and one of no length, version or number that a state has.
func TestPresentationStateRefuses(t *testing.T) {
	const limit = 7
	p := newParty(arc.Hop2, 7, "issuer")
	c, other := p.issue(t, "device"), p.issue(t, "another device")
	context := arc.NewPresentationContext(arc.Hop2, deployment, 3, p.key.PublicKey().ID())
	next := arc.NewPresentationContext(arc.Hop2, deployment, 4, p.key.PublicKey().ID())
	d := new(disk)
	if _, err := c.NewPresentationState(context, limit).Present(d.keep, report(1), report(2)); err != nil {
		t.Fatal(err)
	}
	b := d.last()
	if len(b) != arc.PresentationStateSize {
		t.Fatalf("%d bytes, not %d", len(b), arc.PresentationStateSize)
	}
	for what, read := range map[string]func() error{
		"another credential": func() error { _, err := other.ReadPresentationState(b, context, limit); return err },
		"another context":    func() error { _, err := c.ReadPresentationState(b, next, limit); return err },
		"another limit":      func() error { _, err := c.ReadPresentationState(b, context, limit+1); return err },
	} {
		refused(t, what, read(), "mark", arc.ErrProof)
	}
	_, err := c.ReadPresentationState(b, context, 2)
	if err == nil {
		t.Error("a limit of 2 is taken")
	}
	for i := range 8 * len(b) {
		damaged := bytes.Clone(b)
		damaged[i/8] ^= 1 << (i % 8)
		_, err := c.ReadPresentationState(damaged, context, limit)
		switch {
		case i < 8:
			refused(t, fmt.Sprint("bit ", i), err, "version", arc.ErrMalformed)
		case i < 40 && i != 32 && i != 33 && i != 34: // 3, 0 and 6 of 7 are numbers of a state
			refused(t, fmt.Sprint("bit ", i), err, "numbers taken", arc.ErrMalformed)
		default:
			refused(t, fmt.Sprint("bit ", i), err, "mark", arc.ErrProof)
		}
	}
	for _, b := range [][]byte{nil, b[1:], append(bytes.Clone(b), 0)} {
		_, err := c.ReadPresentationState(b, context, limit)
		refused(t, "length", err, "length", arc.ErrMalformed)
	}
}

// TestPresentationStateIsShared: goroutines that share a state show each number once, and
// what they keep never goes back.
func TestPresentationStateIsShared(t *testing.T) {
	const limit, workers = 12, 4
	p := newParty(arc.Hop2, 7, "issuer")
	c := p.issue(t, "device")
	context := arc.NewPresentationContext(arc.Hop2, deployment, 3, p.key.PublicKey().ID())
	s, d := c.NewPresentationState(context, limit), new(disk) // the state's lock is the disk's
	keep := func(state []byte) error {
		runtime.Gosched() // others run while the disk is at work
		return d.keep(state)
	}
	tags := make(chan arc.Tag, limit)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for range limit / workers {
				x, err := s.Present(keep, report(w))
				if err != nil {
					t.Error(err)
					return
				}
				tags <- x[0].Tag()
			}
		})
	}
	all.Wait()
	close(tags)
	seen := map[arc.Tag]bool{}
	for tag := range tags {
		seen[tag] = true
	}
	if len(seen) != limit || len(d.states) != limit || s.Left() != 0 {
		t.Errorf("%d tags and %d states of %d, %d left", len(seen), len(d.states), limit, s.Left())
	}
	for i, b := range d.states {
		s, err := c.ReadPresentationState(b, context, limit)
		if err != nil || s.Left() != limit-i-1 {
			t.Errorf("state %d: %v", i, err)
		}
	}
}

func FuzzPresentationState(f *testing.F) {
	p := newParty(arc.Hop2, 7, "issuer")
	c := p.issue(f, "device")
	context := arc.NewPresentationContext(arc.Hop2, deployment, 3, p.key.PublicKey().ID())
	f.Add(3, c.NewPresentationState(context, 3).Append(nil))
	f.Fuzz(func(t *testing.T, limit int, b []byte) {
		if limit < arc.MinLimit || limit > arc.MaxLimit {
			return
		}
		s, err := c.ReadPresentationState(b, context, limit)
		var refusal *arc.Refusal
		if err == nil && !bytes.Equal(s.Append(nil), b) {
			t.Errorf("%x is written as %x", b, s.Append(nil))
		} else if err != nil && !errors.As(err, &refusal) {
			t.Errorf("%x: %v", b, err)
		}
	})
}
