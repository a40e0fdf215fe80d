package vdaf_test

import (
	"fmt"

	"github.com/starling-agg/starling/vdaf"
)

// The leader's first message in the two-party topology, and how the helper reads it.
func ExampleReadPingPong() {
	sent := vdaf.AppendPingPongInitialize(nil, []byte("verifier share"))
	m, err := vdaf.ReadPingPong(sent)
	fmt.Println(m.Type == vdaf.PingPongInitialize, string(m.Share), err)
	_, err = vdaf.ReadPingPong(append(sent, 0))
	fmt.Println(err)
	// Output:
	// true verifier share <nil>
	// vdaf: malformed encoding: ping-pong message: trailing bytes
}
