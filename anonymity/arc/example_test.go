package arc_test

import (
	"bytes"
	"fmt"

	"github.com/starling-agg/starling/anonymity/arc"
)

// A device gets a credential once in a key epoch, and shows it once in a round. The
// aggregator verifies it, and knows it again only if it is shown a second time in that
// round.
func Example() {
	var deployment, task [32]byte
	const round, roundLength, epochLength = 490_868, 3600, 7 * 86400
	epoch, err := arc.EpochOf(round, roundLength, epochLength)
	if err != nil {
		fmt.Println(err)
		return
	}

	// The issuer beside the helper. Its public key is logged.
	issuer := arc.GenerateKey()
	public := issuer.PublicKey()

	// The device asks, and keeps the pending request until it has the answer.
	context := arc.NewRequestContext(arc.Helper, deployment, epoch, public.ID())
	pending := arc.NewPending(context)
	answer, err := issuer.Respond(pending.Request())
	if err != nil {
		fmt.Println(err)
		return
	}
	credential, err := pending.Finalize(public, answer)
	if err != nil {
		fmt.Println(err)
		return
	}

	// In a round it presents, bound to the report that it makes and the helper's share.
	base := arc.NewTagBase(arc.NewPresentationContext(arc.Helper, task, round, public.ID()))
	binding := arc.Bind(arc.Helper, []byte("the share's AAD"), []byte("the share"))
	sent := credential.Present(base, binding).Append(nil)

	// The helper, after it has opened the share.
	verifier := issuer.Verifier(context)
	p, err := arc.ReadPresentation(sent)
	if err != nil {
		fmt.Println(err)
		return
	}
	errs := verifier.VerifyBatch([]arc.Item{{Base: base, Binding: binding, Presentation: p}})
	again := credential.Present(base, arc.Bind(arc.Helper, []byte("another AAD"), []byte("another share")))
	fmt.Println(len(sent), "bytes:", errs[0], "- a second report has the same tag:", again.Tag() == p.Tag())
	// Output: 328 bytes: <nil> - a second report has the same tag: true
}

// Where a device sends several messages in a round it shows its credential with each, as
// often as the limit says, and nobody sees which messages are of one device.
func ExamplePresentationState() {
	var deployment, recipe [32]byte
	const round, epoch, limit = 490_868, 2921, 3

	issuer := arc.GenerateKey() // beside hop 2
	request := arc.NewRequestContext(arc.Hop2, deployment, epoch, issuer.PublicKey().ID())
	pending := arc.NewPending(request)
	answer, err := issuer.Respond(pending.Request())
	if err != nil {
		fmt.Println(err)
		return
	}
	credential, err := pending.Finalize(issuer.PublicKey(), answer)
	if err != nil {
		fmt.Println(err)
		return
	}

	// The device makes the state durable before anything is shown.
	context := arc.NewPresentationContext(arc.Hop2, recipe, round, issuer.PublicKey().ID())
	var kept []byte
	keep := func(state []byte) error {
		kept = bytes.Clone(state) // a file, written and synced
		return nil
	}
	var bindings []arc.Binding
	for i := range limit {
		bindings = append(bindings, arc.Bind(arc.Hop2, []byte("what the layer is sealed under"), fmt.Appendf(nil, "onion %d", i)))
	}
	state := credential.NewPresentationState(context, limit)
	presentations, err := state.Present(keep, bindings...)
	if err != nil {
		fmt.Println(err)
		return
	}

	// The hop, which has the messages of many devices in any order.
	verifier, base := issuer.Verifier(request), arc.NewTagBase(context)
	var items []arc.LimitedItem
	for i, p := range presentations {
		p, err := arc.ReadLimitedPresentation(p.Append(nil), limit)
		if err != nil {
			fmt.Println(err)
			return
		}
		items = append(items, arc.LimitedItem{Base: base, Binding: bindings[i], Presentation: p})
	}
	tags := map[arc.Tag]bool{}
	for i, err := range verifier.VerifyLimitedBatch(items, limit) {
		if err == nil {
			tags[items[i].Presentation.Tag()] = true
		}
	}
	again, err := credential.ReadPresentationState(kept, context, limit)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = again.Present(keep, bindings[0])
	fmt.Println(len(tags), "tags, and then:", err)
	// Output: 3 tags, and then: arc: the limit of presentations is reached: 0 of 3 are left, not 1
}
