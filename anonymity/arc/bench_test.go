//go:build unix

package arc_test

import (
	"fmt"
	"testing"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/arc/arctest"
	"github.com/starling-agg/starling/anonymity/internal/p256/p256test"
)

func BenchmarkCredential(b *testing.B) {
	p := newParty(arc.Helper, 7, "issuer")
	pending := arc.NewPending(p.context)
	response, err := p.key.Respond(pending.Request())
	if err != nil {
		b.Fatal(err)
	}
	c := p.issue(b, "device")
	base := p.base(1)
	wire := pending.Request().Append(nil)
	for name, f := range map[string]func(){
		"request": func() { arc.NewPending(p.context) },
		"issue": func() {
			q, err := arc.ReadCredentialRequest(wire)
			if err != nil {
				b.Fatal(err)
			}
			r, err := p.key.Respond(q)
			if err != nil {
				b.Fatal(err)
			}
			r.Append(nil)
		},
		"finalize": func() {
			if _, err := pending.Finalize(p.key.PublicKey(), response); err != nil {
				b.Fatal(err)
			}
		},
		"tag base": func() { p.base(1) },
		"present":  func() { c.Present(base, report(1)).Append(nil) },
	} {
		b.Run(name, func(b *testing.B) { p256test.InUnits(b, 1, f) })
	}
}

// BenchmarkVerify reads and verifies presentations, of one context, alone and in batches;
// "bad" has one that does not hold in every n.
func BenchmarkVerify(b *testing.B) {
	p := newParty(arc.Helper, 7, "issuer")
	c, base := p.issue(b, "device"), p.base(1)
	const most = 256
	var wires [most][]byte
	for i := range wires {
		wires[i] = c.Present(base, report(i)).Append(nil)
	}
	read := func(i int) arc.Item {
		x, err := arc.ReadPresentation(wires[i])
		if err != nil {
			b.Fatal(err)
		}
		return arc.Item{Base: base, Binding: report(i), Presentation: x}
	}
	b.Run("alone", func(b *testing.B) {
		p256test.InUnits(b, 1, func() {
			if err := p.verifier.Verify(read(0)); err != nil {
				b.Fatal(err)
			}
		})
	})
	for _, n := range []int{1, 4, 16, 64, most} {
		for _, bad := range []int{0, 1, most / 16, most} {
			if bad > 0 && n < most {
				continue
			}
			b.Run(fmt.Sprintf("batch of %d, %d bad", n, bad), func(b *testing.B) {
				p256test.InUnits(b, n, func() {
					items := make([]arc.Item, n)
					for i := range items {
						items[i] = read(i)
						if bad > 0 && i%(n/bad) == 0 {
							items[i].Binding = report(-1)
						}
					}
					wrong := 0
					for _, err := range p.verifier.VerifyBatch(items) {
						if err != nil {
							wrong++
						}
					}
					if wrong != bad {
						b.Fatalf("%d are refused, not %d", wrong, bad)
					}
				})
			})
		}
	}
}

// BenchmarkLimited presents under limits, and reads and verifies, alone and in batches, as
// BenchmarkVerify does; "draft" is the draft's form.
func BenchmarkLimited(b *testing.B) {
	p := newParty(arc.Hop2, 7, "issuer")
	c, base := p.issue(b, "device"), p.base(1)
	const most = 256
	for _, limit := range []int{2, 10, 100} {
		var wires [most][]byte
		for i := range wires {
			wires[i] = arctest.PresentLimited(c, base, report(i), i%limit, limit, seeded(fmt.Sprint(i))).Append(nil)
		}
		run := func(name string, n int, f func()) {
			b.Run(fmt.Sprintf("%d/%s", limit, name), func(b *testing.B) { p256test.InUnits(b, n, f) })
		}
		context, kept := arc.NewPresentationContext(arc.Hop2, deployment, 1, arc.KeyID{}), func([]byte) error { return nil }
		run("present", 1, func() {
			all, err := c.NewPresentationState(context, limit).Present(kept, report(1))
			if err != nil {
				b.Fatal(err)
			}
			all[0].Append(nil)
		})
		draft := arctest.PresentDraft(c, base, 1, limit, seeded("draft")).Append(nil)
		run("draft alone", 1, func() {
			x, err := arc.ReadDraftPresentation(draft, limit)
			if err != nil {
				b.Fatal(err)
			}
			if err := p.verifier.VerifyDraft(base, x, limit); err != nil {
				b.Fatal(err)
			}
		})
		for _, of := range []struct{ n, bad int }{{1, 0}, {4, 0}, {10, 0}, {16, 0}, {64, 0}, {most, 0}, {most, 1}, {most, most / 16}, {most, most}} {
			run(fmt.Sprintf("batch of %d, %d bad", of.n, of.bad), of.n, func() {
				items := make([]arc.LimitedItem, of.n)
				for i := range items {
					x, err := arc.ReadLimitedPresentation(wires[i], limit)
					if err != nil {
						b.Fatal(err)
					}
					items[i] = arc.LimitedItem{Base: base, Binding: report(i), Presentation: x}
					if of.bad > 0 && i%(of.n/of.bad) == 0 {
						items[i].Binding = report(-1)
					}
				}
				wrong := 0
				for _, err := range p.verifier.VerifyLimitedBatch(items, limit) {
					if err != nil {
						wrong++
					}
				}
				if wrong != of.bad {
					b.Fatalf("%d are refused, not %d", wrong, of.bad)
				}
			})
		}
	}
}
