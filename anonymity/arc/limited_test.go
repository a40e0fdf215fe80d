package arc_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/arc/arctest"
)

// presentLimited makes a presentation of a number, and reads it from the wire.
func presentLimited(t testing.TB, c *arc.Credential, base *arc.TagBase, b arc.Binding, number, limit int) *arc.LimitedPresentation {
	t.Helper()
	x := arctest.PresentLimited(c, base, b, number, limit, seeded(fmt.Sprint(b, number, limit)))
	x, err := arc.ReadLimitedPresentation(x.Append(nil), limit)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestLimited: a credential makes one tag for each number below the limit, all different,
// and the limit is proved.
func TestLimited(t *testing.T) {
	p := newParty(arc.Helper, 7, "issuer")
	c := p.issue(t, "device")
	base, id := p.base(3), report(1)
	seen := map[arc.Tag]int{}
	verify := func(base *arc.TagBase, b arc.Binding, x *arc.LimitedPresentation, limit int) error {
		return p.verifier.VerifyLimited(arc.LimitedItem{Base: base, Binding: b, Presentation: x}, limit)
	}
	for _, limit := range []int{2, 3, 4, 5, 6, 1000, arc.MaxLimit} {
		for _, number := range []int{0, 1, limit / 2, limit - 1} {
			x := presentLimited(t, c, base, id, number, limit)
			what := fmt.Sprintf("number %d below %d", number, limit)
			if err := verify(base, id, x, limit); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if n, ok := seen[x.Tag()]; ok && n != number {
				t.Errorf("%s has the tag of number %d", what, n)
			}
			seen[x.Tag()] = number
			refused(t, what+", another report", verify(base, report(2), x, limit), "proof", arc.ErrProof)
			refused(t, what+", another round", verify(p.base(4), id, x, limit), "proof", arc.ErrProof)
			other := limit + 1
			if limit == arc.MaxLimit {
				other = limit - 1
			}
			refused(t, what+", another limit", verify(base, id, x, other), "limit", arc.ErrProof)
		}
	}
	if len(seen) != 10 { // 0 to 5, 500, 999, 32768 and 65535
		t.Errorf("%d tags", len(seen))
	}
	// A limit of as many bits, taken for it on the wire: session and sum are others.
	wire := arctest.PresentLimited(c, base, id, 4, 6, seeded("five")).Append(nil)
	x, err := arc.ReadLimitedPresentation(wire, 5)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "number 4 below 6 as below 5", verify(base, id, x, 5), "proof", arc.ErrProof)
	// The tag is that of the limit 1 for the number 0.
	if one := present(t, c, base, id, "one").Tag(); one != presentLimited(t, c, base, id, 0, 2).Tag() {
		t.Error("number 0 has another tag than a presentation without a number")
	}
	// A repeated number is a repeated tag: what a state is there for.
	if presentLimited(t, c, base, id, 1, 2).Tag() != presentLimited(t, c, base, report(2), 1, 2).Tag() {
		t.Error("a number was shown twice with two tags")
	}
}

// TestDraft: the draft's own form under limits that its vectors do not have, and what it is
// taken for: nothing of ours, and under no other limit.
func TestDraft(t *testing.T) {
	p, other := newParty(arc.Helper, 7, "issuer"), newParty(arc.Helper, 7, "the other issuer")
	c, base := p.issue(t, "device"), p.base(3)
	for _, limit := range []int{2, 3, 5, 6, 10} {
		for number := range limit {
			what := fmt.Sprintf("number %d below %d", number, limit)
			wire := arctest.PresentDraft(c, base, number, limit, seeded(what)).Append(nil)
			x, err := arc.ReadDraftPresentation(wire, limit)
			if err != nil || len(wire) != arc.DraftSize(limit) || !bytes.Equal(x.Append(nil), wire) {
				t.Fatalf("%s: %v, or other bytes", what, err)
			}
			if err := p.verifier.VerifyDraft(base, x, limit); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if x.Tag() != presentLimited(t, c, base, report(1), number, limit).Tag() {
				t.Errorf("%s has another tag than under a binding", what)
			}
			refused(t, what+", another round", p.verifier.VerifyDraft(p.base(4), x, limit), "proof", arc.ErrProof)
			refused(t, what+", another key", other.verifier.VerifyDraft(base, x, limit), "proof", arc.ErrProof)
			refused(t, what+", another limit", p.verifier.VerifyDraft(base, x, limit+1), "limit", arc.ErrProof)
		}
	}
	// Number 4 fits below 5 and below 6, with as many bits: the sum is another.
	x, err := arc.ReadDraftPresentation(arctest.PresentDraft(c, base, 4, 6, seeded("four")).Append(nil), 5)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "number 4 below 6 as below 5", p.verifier.VerifyDraft(base, x, 5), "proof", arc.ErrProof)
	wire := arctest.PresentDraft(c, base, 1, 2, seeded("one")).Append(nil)
	copy(wire[5*33:], wire[:33])
	_, err = arc.ReadDraftPresentation(wire, 2)
	refused(t, "D is not nonceCommit", err, "D", arc.ErrProof)
}

// TestLimitedRefuses: hostile values in every field, and fields of other presentations, in
// our form and the draft's.
func TestLimitedRefuses(t *testing.T) {
	p := newParty(arc.Helper, 7, "issuer")
	c, base, id := p.issue(t, "device"), p.base(3), report(1)
	for _, limit := range []int{2, 3, 10} {
		bits, ours := map[int]int{2: 1, 3: 2, 10: 4}[limit], slices.Repeat([]string{"D"}, map[int]int{2: 0, 3: 2, 10: 4}[limit])
		fields := []string{"U", "UPrimeCommit", "m1Commit", "tag", "nonceCommit"}
		read := func(b []byte) (*arc.LimitedPresentation, error) { return arc.ReadLimitedPresentation(b, limit) }
		good := arc.LimitedItem{Base: base, Binding: id, Presentation: presentLimited(t, c, base, id, 1, limit)}
		draft := func(b []byte) (*arc.DraftPresentation, error) { return arc.ReadDraftPresentation(b, limit) }
		of := func(number int) []byte {
			return arctest.PresentLimited(c, base, id, number, limit, seeded("a")).Append(nil)
		}
		draftOf := func(number int) []byte { return arctest.PresentDraft(c, base, number, limit, seeded("a")).Append(nil) }
		for name, m := range map[string]struct {
			a, b     []byte
			from     int
			elements []string
			scalars  []string
			again    func([]byte) ([]byte, error)
			verify   func([]byte) error
			size     int
		}{
			"ours": {of(1), presentLimited(t, c, base, id, 0, limit).Append(nil), 1,
				slices.Concat(fields, ours, slices.Repeat([]string{"R"}, 4+2*bits)), slices.Repeat([]string{"response"}, 5+3*bits), rewrite(read),
				func(b []byte) error {
					x, err := read(b)
					if err != nil {
						return err
					}
					item := arc.LimitedItem{Base: base, Binding: id, Presentation: x}
					errs := p.verifier.VerifyLimitedBatch([]arc.LimitedItem{good, item, good}, limit)
					if errs[0] != nil || errs[2] != nil {
						t.Errorf("its neighbours are refused: %v", errs)
					}
					return errs[1]
				}, arc.LimitedSize(limit)},
			"the draft's": {draftOf(1), arctest.PresentDraft(c, base, 0, limit, seeded("b")).Append(nil), 0,
				slices.Concat(fields, slices.Repeat([]string{"D"}, bits)), append([]string{"challenge"}, slices.Repeat([]string{"response"}, 5+3*bits)...), rewrite(draft),
				func(b []byte) error {
					x, err := draft(b)
					if err != nil {
						return err
					}
					return p.verifier.VerifyDraft(base, x, limit)
				}, arc.DraftSize(limit)},
		} {
			if again, err := m.again(m.a); err != nil || !bytes.Equal(again, m.a) {
				t.Fatal("other bytes", err)
			}
			if err := errors.Join(m.verify(m.a), m.verify(m.b)); err != nil {
				t.Fatal(err)
			}
			at, parts := m.from, [][2]int{}
			for _, field := range m.elements {
				for what, e := range hostileElements {
					_, err := m.again(slices.Concat(m.a[:at], e, m.a[at+33:]))
					refused(t, name+": "+what, err, field, arc.ErrMalformed)
				}
				parts = append(parts, [2]int{at, at + 33})
				at += 33
			}
			for _, field := range m.scalars {
				for what, s := range hostileScalars {
					_, err := m.again(slices.Concat(m.a[:at], s, m.a[at+32:]))
					refused(t, name+": "+what, err, field, arc.ErrMalformed)
				}
				parts = append(parts, [2]int{at, at + 32})
				at += 32
			}
			if at != len(m.a) || at != m.size {
				t.Fatalf("fields end at %d of %d bytes", at, len(m.a))
			}
			for _, b := range [][]byte{nil, m.a[1:], append(bytes.Clone(m.a), 0)} {
				_, err := m.again(b)
				refused(t, name, err, "length", arc.ErrMalformed)
			}
			for i, f := range parts {
				for _, with := range [][]byte{m.b[f[0]:f[1]], m.a[parts[(i+1)%len(parts)][0]:][:f[1]-f[0]]} {
					if bytes.Equal(with, m.a[f[0]:f[1]]) {
						continue // D and nonceCommit of the draft under a limit of 2
					}
					err := m.verify(slices.Concat(m.a[:f[0]], with, m.a[f[1]:]))
					if !errors.Is(err, arc.ErrProof) && !errors.Is(err, arc.ErrMalformed) {
						t.Errorf("%s below %d: bytes from %d of another place: %v", name, limit, f[0], err)
					}
				}
			}
		}
		_, err := read(append([]byte{1}, of(1)[1:]...))
		refused(t, "version", err, "version", arc.ErrMalformed)
	}
}

// TestLimitedForeign: what was made for another role, round, binding or key, alone and
// between good ones.
func TestLimitedForeign(t *testing.T) {
	const limit = 5
	p, other := newParty(arc.Hop2, 7, "issuer"), newParty(arc.Hop1, 7, "the other issuer")
	c, foreign := p.issue(t, "device"), other.issue(t, "device")
	context := func(role arc.Role, round uint64) *arc.TagBase {
		return arc.NewTagBase(arc.NewPresentationContext(role, deployment, round, p.key.PublicKey().ID()))
	}
	bind := func(role arc.Role, aad, payload string) arc.Binding {
		return arc.Bind(role, []byte(aad), []byte(payload))
	}
	base, id := context(arc.Hop2, 3), bind(arc.Hop2, "aad", "onion")
	nextEpoch := p.key.Verifier(arc.NewRequestContext(arc.Hop2, deployment, 8, p.key.PublicKey().ID()))
	otherRole := p.key.Verifier(arc.NewRequestContext(arc.Hop1, deployment, 7, p.key.PublicKey().ID()))
	x := presentLimited(t, c, base, id, 3, limit)
	good := arc.LimitedItem{Base: base, Binding: id, Presentation: presentLimited(t, c, base, id, 4, limit)}
	for what, v := range map[string]struct {
		verifier *arc.Verifier
		item     arc.LimitedItem
	}{
		"another payload":     {p.verifier, arc.LimitedItem{Base: base, Binding: bind(arc.Hop2, "aad", "Onion"), Presentation: x}},
		"another layer":       {p.verifier, arc.LimitedItem{Base: base, Binding: bind(arc.Hop2, "Aad", "onion"), Presentation: x}},
		"another role's bond": {p.verifier, arc.LimitedItem{Base: base, Binding: bind(arc.Hop1, "aad", "onion"), Presentation: x}},
		"another role":        {p.verifier, arc.LimitedItem{Base: context(arc.Hop1, 3), Binding: id, Presentation: x}},
		"another round":       {p.verifier, arc.LimitedItem{Base: context(arc.Hop2, 4), Binding: id, Presentation: x}},
		"another epoch":       {nextEpoch, arc.LimitedItem{Base: base, Binding: id, Presentation: x}},
		"another role's key":  {otherRole, arc.LimitedItem{Base: base, Binding: id, Presentation: x}},
		"another verifier":    {other.verifier, arc.LimitedItem{Base: base, Binding: id, Presentation: x}},
		"foreign issuer's": {p.verifier, arc.LimitedItem{Base: base, Binding: id,
			Presentation: presentLimited(t, foreign, base, id, 3, limit)}},
	} {
		refused(t, what, v.verifier.VerifyLimited(v.item, limit), "proof", arc.ErrProof)
		if v.verifier != p.verifier {
			continue
		}
		errs := v.verifier.VerifyLimitedBatch([]arc.LimitedItem{good, v.item, good}, limit)
		refused(t, what+", in a batch", errs[1], "proof", arc.ErrProof)
		if errs[0] != nil || errs[2] != nil {
			t.Errorf("%s: its neighbours are refused: %v", what, errs)
		}
	}
	// Without a limit it is another message, and under one that without a limit is.
	wire := x.Append(nil)
	_, err := arc.ReadPresentation(wire)
	refused(t, "as one without a limit", err, "length", arc.ErrMalformed)
	if errs := p.verifier.VerifyLimitedBatch(nil, limit); len(errs) != 0 {
		t.Errorf("no presentations: %v", errs)
	}
}

// TestLimitedBatchFindsTheBad: wherever the bad ones of a batch are, they are refused and
// no other is, and they are looked at as often as those without a limit.
func TestLimitedBatchFindsTheBad(t *testing.T) {
	const limit, checks = 3, 4 + 2*2 + 1
	p := newParty(arc.Hop2, 7, "issuer")
	c, bases := p.issue(t, "device"), []*arc.TagBase{p.base(1), p.base(2)}
	items := make([]arc.LimitedItem, 18)
	for i := range items {
		base := bases[i%3/2]
		items[i] = arc.LimitedItem{Base: base, Binding: report(i), Presentation: presentLimited(t, c, base, report(i), i%limit, limit)}
	}
	for _, of := range []struct {
		bad   []int
		looks int
	}{{nil, 18}, {[]int{0}, 18 + 18 + 16}, {[]int{17}, 18 + 18 + 2}, {[]int{3, 16}, 18 + 18 + 16 + 2}} {
		some := slices.Clone(items)
		for _, i := range of.bad {
			some[i].Binding = report(-1)
		}
		drawn := &recorded{Reader: seeded("factors")}
		for i, err := range arctest.VerifyLimitedBatch(p.verifier, some, limit, drawn) {
			if slices.Contains(of.bad, i) {
				refused(t, fmt.Sprintf("%d of %v", i, of.bad), err, "proof", arc.ErrProof)
			} else if err != nil {
				t.Errorf("%d is refused with %v: %v", i, of.bad, err)
			}
		}
		if len(drawn.all) != checks*16*of.looks {
			t.Errorf("with %v bad %d bytes of factors are drawn, not %d", of.bad, len(drawn.all), checks*16*of.looks)
		}
	}
}

// TestLimitedBatchNeedsItsFactors: two presentations whose responses are shifted by 1 and
// -1 cancel each other under equal factors, and under no others.
func TestLimitedBatchNeedsItsFactors(t *testing.T) {
	const limit = 5
	p := newParty(arc.Hop2, 7, "issuer")
	c, base := p.issue(t, "device"), p.base(1)
	items := make([]arc.LimitedItem, 2)
	for i := range items {
		b := arctest.PresentLimited(c, base, report(i), i, limit, seeded(fmt.Sprint("shifted", i))).Append(nil)
		at := len(b) - 3*3*32 - 2*32 - 32 + 31 // the last byte of the response for -r, an equation in G
		if i == 0 {
			b[at]++
		} else {
			b[at]--
		}
		x, err := arc.ReadLimitedPresentation(b, limit)
		if err != nil {
			t.Fatal(err)
		}
		items[i] = arc.LimitedItem{Base: base, Binding: report(i), Presentation: x}
	}
	for i, err := range arctest.VerifyLimitedBatch(p.verifier, items, limit, onesReader{}) {
		if err != nil {
			t.Errorf("equal factors refuse %d, so that this test shows nothing: %v", i, err)
		}
	}
	for i, err := range p.verifier.VerifyLimitedBatch(items, limit) {
		refused(t, fmt.Sprint("factors of its own, ", i), err, "proof", arc.ErrProof)
		refused(t, fmt.Sprint("alone, ", i), p.verifier.VerifyLimited(items[i], limit), "proof", arc.ErrProof)
	}
}

func FuzzLimitedPresentation(f *testing.F) {
	p := newParty(arc.Hop2, 7, "issuer")
	c := p.issue(f, "device")
	for _, limit := range []int{2, 3, 9} {
		f.Add(limit, arctest.PresentLimited(c, p.base(1), report(1), 1, limit, seeded("ours")).Append(nil))
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

func FuzzDraftPresentation(f *testing.F) {
	p := newParty(arc.Hop2, 7, "issuer")
	c := p.issue(f, "device")
	for _, limit := range []int{2, 3, 9} {
		f.Add(limit, arctest.PresentDraft(c, p.base(1), 1, limit, seeded("draft")).Append(nil))
	}
	f.Fuzz(func(t *testing.T, limit int, b []byte) {
		if limit < arc.MinLimit || limit > arc.MaxLimit {
			return
		}
		x, err := arc.ReadDraftPresentation(b, limit)
		var refusal *arc.Refusal
		if err == nil && !bytes.Equal(x.Append(nil), b) {
			t.Errorf("%x is written as %x", b, x.Append(nil))
		} else if err != nil && !errors.As(err, &refusal) {
			t.Errorf("%x: %v", b, err)
		}
	})
}
