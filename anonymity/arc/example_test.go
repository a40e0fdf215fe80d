package arc_test

import (
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
