package arc_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"testing"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/arc/arctest"
)

// TestContexts: the bytes are those of docs/registry.md, and no two of different facts are
// equal.
func TestContexts(t *testing.T) {
	var of [32]byte
	var key arc.KeyID
	for i := range of {
		of[i], key[i] = 0xaa, 0xbb
	}
	seen := map[string]bool{}
	for _, role := range []arc.Role{arc.Leader, arc.Helper, arc.Hop1, arc.Hop2} {
		for _, n := range []uint64{0, 1, 1 << 40} {
			seen[string(arc.NewRequestContext(role, of, n, key))] = true
			seen[string(arc.NewPresentationContext(role, of, n, key))] = true
			seen[string(arc.NewRequestContext(role, key, n, of))] = true
			seen[string(arc.NewPresentationContext(role, key, n, of))] = true
		}
	}
	if len(seen) != 4*3*4 {
		t.Errorf("%d contexts, not %d", len(seen), 4*3*4)
	}
	got := arc.NewPresentationContext(arc.Helper, of, 258, key)
	want := "0015" + hex.EncodeToString([]byte("starling arc round v1")) + "03" + "0020" + hex.EncodeToString(of[:]) + "0000000000000102" + "0020" + hex.EncodeToString(key[:])
	if hex.EncodeToString(got) != want {
		t.Errorf("the context is %x", got)
	}
	if bytes.Equal(got, arc.NewRequestContext(arc.Helper, of, 258, key)) {
		t.Error("a round is an epoch")
	}
}

func TestBindings(t *testing.T) {
	seen := map[arc.Binding]bool{}
	for _, role := range []arc.Role{arc.Leader, arc.Helper, arc.Hop1, arc.Hop2} {
		for _, parts := range [][2]string{{"aad", "share"}, {"aads", "hare"}, {"", "aadshare"}, {"share", "aad"}, {"aad", ""}} {
			seen[arc.Bind(role, []byte(parts[0]), []byte(parts[1]))] = true
		}
	}
	if len(seen) != 20 {
		t.Errorf("%d bindings, not 20", len(seen))
	}
}

// TestForgotten: a binding or a role that is left at its zero value would be alike for maker
// and verifier, so that nothing would be refused. Both panic.
func TestForgotten(t *testing.T) {
	p := newParty(arc.Helper, 7, "issuer")
	c, base := p.issue(t, "device"), p.base(1)
	x, l := c.Present(base, report(1)), arctest.PresentLimited(c, base, report(1), 0, 2, seeded("limited"))
	state := c.NewPresentationState(arc.NewPresentationContext(arc.Hop2, [32]byte{}, 1, arc.KeyID{}), 2)
	kept := func([]byte) error { return nil }
	var binding arc.Binding
	for what, f := range map[string]func(){
		"present":                func() { c.Present(base, binding) },
		"present limited":        func() { state.Present(kept, report(1), binding) },
		"verify":                 func() { p.verifier.Verify(arc.Item{Base: base, Presentation: x}) },
		"verify a batch":         func() { p.verifier.VerifyBatch([]arc.Item{{Base: base, Presentation: x}}) },
		"verify limited":         func() { p.verifier.VerifyLimited(arc.LimitedItem{Base: base, Presentation: l}, 2) },
		"a limit of 1":           func() { arc.LimitedSize(1) },
		"a limit of too many":    func() { arc.LimitedSize(arc.MaxLimit + 1) },
		"bind":                   func() { arc.Bind(0, []byte("aad"), []byte("share")) },
		"a request context":      func() { arc.NewRequestContext(0, [32]byte{}, 1, arc.KeyID{}) },
		"a presentation context": func() { arc.NewPresentationContext(4, [32]byte{}, 1, arc.KeyID{}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: a zero value is taken", what)
				}
			}()
			f()
		}()
	}
	if state.Left() != 2 {
		t.Errorf("%d numbers are left of 2 of which none was used", state.Left())
	}
}

// TestEpochOf: every round belongs to one epoch, all rounds of an epoch are neighbours, and
// the last one is the last.
func TestEpochOf(t *testing.T) {
	for _, lengths := range [][2]uint64{{1, 1}, {1, 7}, {3, 7}, {7, 7}, {5, 11}, {3600, 86400}, {86400, 7 * 86400}, {50000, 86400}} {
		round, epoch := lengths[0], lengths[1]
		last := uint64(0)
		for n := range uint64(500) {
			e, err := arc.EpochOf(n, round, epoch)
			if err != nil || e != n*round/epoch || e < last || e > last+1 {
				t.Fatalf("round %d of %d in epochs of %d: %d after %d, %v", n, round, epoch, e, last, err)
			}
			end, err := arc.LastRound(e, round, epoch)
			if err != nil || n > end {
				t.Fatalf("round %d of %d is after the last of epoch %d: %d, %v", n, round, e, end, err)
			}
			if next, _ := arc.EpochOf(end+1, round, epoch); next != e+1 {
				t.Fatalf("round %d of %d follows the last of epoch %d and is of %d", end+1, round, e, next)
			}
			last = e
		}
	}
	for what, f := range map[string]func() (uint64, error){
		"a round longer than an epoch":  func() (uint64, error) { return arc.EpochOf(1, 8, 7) },
		"a round of no time":            func() (uint64, error) { return arc.EpochOf(1, 0, 7) },
		"a round after the end of time": func() (uint64, error) { return arc.EpochOf(math.MaxUint64, 2, 7) },
		"the last of a long round":      func() (uint64, error) { return arc.LastRound(1, 8, 7) },
		"the last of a far epoch":       func() (uint64, error) { return arc.LastRound(math.MaxUint64, 2, 7) },
	} {
		if n, err := f(); !errors.Is(err, arc.ErrEpoch) {
			t.Errorf("%s: %d, %v", what, n, err)
		}
	}
}

func TestCohort(t *testing.T) {
	for _, c := range []struct {
		leader, helper, attested, min uint64
		open                          bool
	}{
		{1000, 1000, 1000, 1000, true}, {999, 1000, 1000, 1000, false}, {1000, 999, 1000, 1000, false},
		{1000, 980, 1000, 900, true}, {1000, 979, 1000, 900, false}, {980, 1000, 1000, 900, true}, {979, 1000, 1000, 900, false},
		{1, 1, 1, 1, true}, {0, 0, 0, 0, false}, {5, 5, 5, 0, false}, {1, 2, 2, 1, false},
		{math.MaxUint64, math.MaxUint64, math.MaxUint64, 1000, true}, {math.MaxUint64, math.MaxUint64 / 2, math.MaxUint64, 1000, false},
		// Of 1,500 attested, 1,000 and 1,000 have 500 in common at least, of 2,000 none.
		{1000, 1000, 1500, 500, true}, {1000, 1000, 1500, 501, false}, {1000, 1000, 2000, 1, false}, {1000, 1000, 1999, 1, true},
		{1000, 1000, 5000, 1, false}, {1000, 1000, math.MaxUint64, 1, false},
		// An issuer that answered more devices than there were.
		{1000, 1000, 999, 1, false}, {1000, 990, 995, 1, false}, {math.MaxUint64, math.MaxUint64, 3, 1, false},
	} {
		cohort := arc.Cohort{Leader: c.leader, Helper: c.helper, Attested: c.attested}
		if got := cohort.Open(c.min); got != c.open {
			t.Errorf("%+v of at least %d: %v", cohort, c.min, got)
		}
	}
}
