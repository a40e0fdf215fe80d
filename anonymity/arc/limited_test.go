package arc_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/starling-agg/starling/anonymity/arc"
)

// TestLimited: a credential makes one tag for each number below the limit, all different,
// and the limit is proved.
func TestLimited(t *testing.T) {
	p := newParty(arc.Helper, 7, "issuer")
	c := p.issue(t, "device")
	base, id := p.base(3), report(1)
	seen := map[arc.Tag]int{}
	for _, limit := range []int{2, 3, 4, 5, 6, 1000} {
		for _, number := range []int{0, 1, limit / 2, limit - 1} {
			x := c.PresentLimited(base, id, number, limit)
			x, err := arc.ReadLimitedPresentation(x.Append(nil), limit)
			if err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf("number %d below %d", number, limit)
			if err := p.verifier.VerifyLimited(base, id, x, limit); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if n, ok := seen[x.Tag()]; ok && n != number {
				t.Errorf("%s has the tag of number %d", what, n)
			}
			seen[x.Tag()] = number
			refused(t, what+", another report", p.verifier.VerifyLimited(base, report(2), x, limit), "proof", arc.ErrProof)
			refused(t, what+", another round", p.verifier.VerifyLimited(p.base(4), id, x, limit), "proof", arc.ErrProof)
			refused(t, what+", bound to nothing", p.verifier.VerifyDraft(base, x, limit), "proof", arc.ErrProof)
			refused(t, what+", a limit of more bits", p.verifier.VerifyLimited(base, id, x, 4*limit), "limit", arc.ErrProof)
		}
	}
	if len(seen) != 8 { // 0 to 5, 500 and 999
		t.Errorf("%d tags", len(seen))
	}
	// A limit of as many bits: the sum of the commitments is another.
	x := c.PresentLimited(base, id, 5, 6)
	refused(t, "number 5 below 5", p.verifier.VerifyLimited(base, id, x, 5), "nonceCommit", arc.ErrProof)
	// The tag is that of the limit 1 for the number 0.
	if one := present(t, c, base, id, "one").Tag(); one != c.PresentLimited(base, id, 0, 2).Tag() {
		t.Error("number 0 has another tag than a presentation without a number")
	}
	// A repeated number is a repeated tag: what the device must not do.
	if c.PresentLimited(base, id, 1, 2).Tag() != c.PresentLimited(base, report(2), 1, 2).Tag() {
		t.Error("a number was shown twice with two tags")
	}
}

// TestLimitedRefuses: hostile values in every field, and fields of other presentations.
func TestLimitedRefuses(t *testing.T) {
	const limit = 3
	p := newParty(arc.Helper, 7, "issuer")
	c, base, id := p.issue(t, "device"), p.base(3), report(1)
	a, b := c.PresentLimited(base, id, 2, limit).Append(nil), c.PresentLimited(base, id, 1, limit).Append(nil)
	read := func(b []byte) (*arc.LimitedPresentation, error) { return arc.ReadLimitedPresentation(b, limit) }
	if again, err := rewrite(read)(a); err != nil || !bytes.Equal(again, a) {
		t.Fatal("other bytes", err)
	}
	at := 1
	for _, field := range []string{"U", "UPrimeCommit", "m1Commit", "tag", "nonceCommit", "D", "D"} {
		for what, e := range hostileElements {
			_, err := read(slices.Concat(a[:at], e, a[at+33:]))
			refused(t, what, err, field, arc.ErrMalformed)
		}
		at += 33
	}
	for i := range 1 + 5 + 3*2 {
		for what, s := range hostileScalars {
			_, err := read(slices.Concat(a[:at], s, a[at+32:]))
			refused(t, what, err, map[bool]string{true: "challenge", false: "response"}[i == 0], arc.ErrMalformed)
		}
		at += 32
	}
	if at != len(a) || at != arc.LimitedSize(limit) {
		t.Fatalf("fields end at %d of %d bytes", at, len(a))
	}
	for _, b := range [][]byte{nil, a[1:], append(bytes.Clone(a), 0)} {
		_, err := read(b)
		refused(t, "length", err, "length", arc.ErrMalformed)
	}
	_, err := read(append([]byte{1}, a[1:]...))
	refused(t, "version", err, "version", arc.ErrMalformed)
	for from := 1; from < len(a); {
		size := 33
		if from >= 1+7*33 {
			size = 32
		}
		x, err := read(slices.Concat(a[:from], b[from:from+size], a[from+size:]))
		if err == nil {
			err = p.verifier.VerifyLimited(base, id, x, limit)
		}
		if !errors.Is(err, arc.ErrProof) {
			t.Errorf("bytes from %d of another presentation: %v", from, err)
		}
		from += size
	}
}

func FuzzLimitedPresentation(f *testing.F) {
	p := newParty(arc.Helper, 7, "issuer")
	c := p.issue(f, "device")
	for _, limit := range []int{2, 3, 9} {
		f.Add(limit, c.PresentLimited(p.base(1), report(1), 1, limit).Append(nil))
	}
	f.Fuzz(func(t *testing.T, limit int, b []byte) {
		if limit < arc.MinLimit || limit > arc.MaxLimit {
			return
		}
		x, err := arc.ReadLimitedPresentation(b, limit)
		if err == nil && !bytes.Equal(x.Append(nil), b) {
			t.Errorf("%x is written as %x", b, x.Append(nil))
		} else if err != nil && !errors.Is(err, arc.ErrMalformed) {
			t.Errorf("%x: %v", b, err)
		}
	})
}
