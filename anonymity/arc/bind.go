package arc

import "crypto/sha256"

// A Binding is what a presentation holds for: one report and one share of it, or one layer
// of an onion. Under any other its proof does not hold, so that nobody who opens a share,
// by a stolen key or a crash dump, can move the presentation to another report, or another
// payload under the report.
type Binding [sha256.Size]byte

// Bind returns the binding of a share for the aggregator of a role. aad is the bytes of
// DAP's InputShareAad, under which the share is sealed: task, report id, time, extensions,
// public share. payload is the VDAF's input share in the clear. Not bound is what sealing
// adds, so that a share that is sealed anew keeps its presentation; nor are the private
// extensions beside the input share, of which the presentation is to be the only one: a
// verifier refuses a share that has another.
//
// For a hop of the shuffler aad is all that its layer of the onion is sealed under and
// beside, and payload what the layer holds but for the presentation: what the hop passes
// on.
func Bind(role Role, aad, payload []byte) Binding {
	role.check()
	a, p := sha256.Sum256(aad), sha256.Sum256(payload)
	b := append([]byte("starling arc bind v1"), byte(role))
	return sha256.Sum256(append(append(b, a[:]...), p[:]...))
}

// check panics for the zero Binding, which [Bind] returns of nothing.
func (b Binding) check() {
	if b == (Binding{}) {
		panic("arc: internal error: a presentation that is bound to no report")
	}
}
