package arc_test

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/arc/arctest"
	"github.com/starling-agg/starling/anonymity/arc/internal/sigma"
	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// batch is n presentations of a few devices in a few rounds, which all hold.
func batch(t testing.TB, p *party, n int) []arc.Item {
	t.Helper()
	var devices []*arc.Credential
	for i := range 4 {
		devices = append(devices, p.issue(t, fmt.Sprint("device", i)))
	}
	bases := []*arc.TagBase{p.base(1), p.base(2)}
	items := make([]arc.Item, n)
	for i := range items {
		base := bases[i%3/2]
		items[i] = arc.Item{Base: base, Binding: report(i), Presentation: present(t, devices[i%4], base, report(i), fmt.Sprint("presentation", i))}
	}
	return items
}

// TestBatchFindsTheBad: wherever the bad ones of a batch are, they are refused and no
// other is.
func TestBatchFindsTheBad(t *testing.T) {
	p := newParty(arc.Helper, 7, "issuer")
	items := batch(t, p, 40)
	for _, bad := range [][]int{nil, {0}, {15}, {16}, {39}, {3, 20}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {16, 17, 18, 38, 39}} {
		some := slices.Clone(items)
		for _, i := range bad {
			some[i].Binding = report(-1)
		}
		for i, err := range arctest.VerifyBatch(p.verifier, some, seeded("factors")) {
			if slices.Contains(bad, i) {
				refused(t, fmt.Sprintf("%d of %v", i, bad), err, "proof", arc.ErrProof)
			} else if err != nil {
				t.Errorf("%d is refused with %v: %v", i, bad, err)
			}
		}
	}
	if errs := p.verifier.VerifyBatch(nil); len(errs) != 0 {
		t.Errorf("no presentations: %v", errs)
	}
	// One presentation in two places, bound to what it is bound to only in one.
	twice := []arc.Item{items[0], {Base: items[0].Base, Binding: report(1), Presentation: items[0].Presentation}}
	if errs := p.verifier.VerifyBatch(twice); errs[0] != nil || errs[1] == nil {
		t.Errorf("one presentation in two places: %v", errs)
	}
}

// TestBatchNeedsItsFactors: with factors that are all the same, two bad presentations
// cancel each other out. With factors of which nobody knows they do not.
func TestBatchNeedsItsFactors(t *testing.T) {
	p := newParty(arc.Helper, 7, "issuer")
	items := batch(t, p, 2)
	// Responses shifted by d in one and by -d in the other: the errors of an equation in
	// shared elements cancel. Of -r: the error is d G in the second equation.
	shift := func(i int, negative bool) {
		b := items[i].Presentation.Append(nil)
		at := len(b) - 1
		if negative {
			b[at]--
		} else {
			b[at]++
		}
		x, err := arc.ReadPresentation(b)
		if err != nil {
			t.Fatal(err)
		}
		items[i].Presentation = x
	}
	shift(0, false)
	shift(1, true)
	same := onesReader{}
	for i, err := range arctest.VerifyBatch(p.verifier, items, same) {
		if err != nil {
			t.Errorf("equal factors refuse %d, so that this test shows nothing: %v", i, err)
		}
	}
	for _, rand := range []io.Reader{seeded("factors"), seeded("other factors")} {
		for i, err := range arctest.VerifyBatch(p.verifier, items, rand) {
			refused(t, fmt.Sprint("independent factors, ", i), err, "proof", arc.ErrProof)
		}
	}
	for i, err := range p.verifier.VerifyBatch(items) {
		refused(t, fmt.Sprint("factors of its own, ", i), err, "proof", arc.ErrProof)
	}
	for i, item := range items {
		refused(t, fmt.Sprint("alone, ", i), p.verifier.Verify(item), "proof", arc.ErrProof)
	}
}

// TestEquationsNeedTheirOwnFactors: a proof whose first commitment is G too much and whose
// second is G too little, made so before the challenge. The sum of its equations holds, so
// that it is taken where one factor stands for all equations of a presentation.
func TestEquationsNeedTheirOwnFactors(t *testing.T) {
	p := newParty(arc.Helper, 7, "issuer")
	c, base, binding := p.issue(t, "device"), p.base(1), report(1)
	wire := arctest.Present(c, base, binding, seeded("presentation")).Append(nil)
	element := func(at int, b []byte) p256.Element {
		e, err := p256.ReadElement(b[at : at+33])
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	affine := func(q *p256.Point) p256.Element {
		e, ok := q.Element()
		if !ok {
			t.Fatal("the identity")
		}
		return e
	}
	// What the device drew, and what is not sent: H, V, X1 and T = m1 tag.
	stream := seeded("presentation")
	_, r, z := p256.WideScalar(stream), p256.WideScalar(stream), p256.WideScalar(stream)
	m1, err := p256.ReadScalar(c.Append(nil)[:32])
	if err != nil {
		t.Fatal(err)
	}
	g, x1 := p256.Generator(), element(33, p.key.PublicKey().Append(nil))
	h := p256.HashToGroup(g.Append(nil), "HashToGroup-ARCV1-P256generatorH")
	u, uPrimeCommit, m1Commit, tag := element(1, wire), element(34, wire), element(67, wire), element(100, wire)
	v := affine(p256.Mul(z, x1.Point()).Sub(p256.MulBase(r)))
	elements := []p256.Element{g, h, u, uPrimeCommit, m1Commit, v, x1, tag, affine(p256.Mul(m1, tag.Point()))}
	statement := sigma.NewStatement(3, 9,
		sigma.Equation{Image: 4, Terms: []sigma.Term{{Scalar: 0, Element: 2}, {Scalar: 1, Element: 1}}},
		sigma.Equation{Image: 5, Terms: []sigma.Term{{Scalar: 1, Element: 6}, {Scalar: 2, Element: 0}}},
		sigma.Equation{Image: 8, Terms: []sigma.Term{{Scalar: 0, Element: 7}}})
	session := append([]byte("ARCV1-P256CredentialPresentation/starling-1/"), binding[:]...)

	witness := []p256.Scalar{m1, z, r.Neg()}
	var drawn []p256.Scalar
	for range witness {
		drawn = append(drawn, p256.RandomScalar(stream))
	}
	prove := func(much *p256.Point) *arc.Presentation {
		commitments := []p256.Element{
			affine(p256.Mul(drawn[0], u.Point()).Add(p256.Mul(drawn[1], h.Point())).Add(much)),
			affine(p256.Mul(drawn[1], x1.Point()).Add(p256.MulBase(drawn[2])).Sub(much)),
			affine(p256.Mul(drawn[0], tag.Point())),
		}
		challenge := statement.Challenge(session, elements, commitments)
		b := bytes.Clone(wire[:133])
		for i := range commitments {
			b = commitments[i].Append(b)
		}
		for i := range witness {
			b = drawn[i].Add(witness[i].Mul(challenge)).Append(b)
		}
		q, err := arc.ReadPresentation(b)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	item := arc.Item{Base: base, Binding: binding, Presentation: prove(p256.MulBase(p256.ScalarOf(0)))}
	if err := p.verifier.Verify(item); err != nil {
		t.Fatalf("the test's own prover: %v", err)
	}
	item.Presentation = prove(g.Point())
	refused(t, "alone", p.verifier.Verify(item), "proof", arc.ErrProof)
	refused(t, "in a batch", p.verifier.VerifyBatch([]arc.Item{item})[0], "proof", arc.ErrProof)
	if err := arctest.VerifyBatch(p.verifier, []arc.Item{item}, onesReader{})[0]; err != nil {
		t.Errorf("equal factors refuse it, so that this test shows nothing: %v", err)
	}
}

// TestLooksAtABatch counts how often presentations are looked at, by the factors that are
// drawn: 16 bytes for each equation. Few bad ones are not looked at in two sizes that hold
// all of them.
func TestLooksAtABatch(t *testing.T) {
	p := newParty(arc.Helper, 7, "issuer")
	items := batch(t, p, 18)
	for i := range items[:17] {
		items[i].Binding = report(-1)
	}
	for _, c := range []struct {
		of    []arc.Item
		looks int
	}{{items[17:], 1}, {items[:1], 1}, {items[:16], 16 + 16}, {items[:17], 17 + 16 + 1 + 16}, {items, 18 + 16 + 2 + 16 + 2}} {
		drawn := &recorded{Reader: seeded("factors")}
		arctest.VerifyBatch(p.verifier, c.of, drawn)
		if len(drawn.all) != 3*16*c.looks {
			t.Errorf("%d presentations are looked at %d times, not %d", len(c.of), len(drawn.all)/3/16, c.looks)
		}
	}
}

// onesReader is the factor 1, again and again.
type onesReader struct{}

func (onesReader) Read(b []byte) (int, error) {
	clear(b)
	b[len(b)-1] = 1
	return len(b), nil
}
