package vdaf

import (
	"fmt"

	"github.com/starling-agg/starling/internal/wire"
)

// PingPongType says which message of the two-party topology a [PingPong] is (VDAF-18
// section 5.7.1).
type PingPongType uint8

const (
	PingPongInitialize PingPongType = 0 // leader to helper: the first verifier share
	PingPongContinue   PingPongType = 1 // a verifier message and the next verifier share
	PingPongFinish     PingPongType = 2 // the last verifier message
)

// PingPong is one decoded message. Message is nil in an Initialize, Share is nil in a
// Finish; both alias the input of [ReadPingPong].
type PingPong struct {
	Type    PingPongType
	Message []byte // verifier message
	Share   []byte // verifier share
}

// AppendPingPongInitialize appends the leader's first message, which carries its verifier
// share.
func AppendPingPongInitialize(dst, share []byte) []byte {
	return appendItem(append(dst, byte(PingPongInitialize)), share)
}

// AppendPingPongContinue appends a message between rounds, for VDAFs of more than one.
func AppendPingPongContinue(dst, msg, share []byte) []byte {
	return appendItem(appendItem(append(dst, byte(PingPongContinue)), msg), share)
}

// AppendPingPongFinish appends the last message, which carries the last verifier message;
// that may be empty.
func AppendPingPongFinish(dst, msg []byte) []byte {
	return appendItem(append(dst, byte(PingPongFinish)), msg)
}

// appendItem appends b behind its length in 4 bytes. It panics at 4 GiB, which no instance
// reaches.
func appendItem(dst, b []byte) []byte {
	c := wire.Writer(dst, errPingPong)
	if c.Vec32(&b, 0, "item"); c.Err() != nil {
		panic("vdaf: internal error: ping-pong item too long")
	}
	return c.Bytes()
}

var errPingPong = fmt.Errorf("%w: ping-pong message", ErrDecode)

// ReadPingPong decodes one message that fills b. Errors are [ErrDecode]. The lengths of
// the items are for the VDAF to check; nothing is allocated for them.
func ReadPingPong(b []byte) (PingPong, error) {
	var m PingPong
	c := wire.Reader(b, errPingPong)
	c.Uint8((*uint8)(&m.Type), "type")
	c.Check(m.Type <= PingPongFinish, "unknown type")
	if m.Type != PingPongInitialize {
		c.Vec32(&m.Message, 0, "verifier message")
	}
	if m.Type != PingPongFinish {
		c.Vec32(&m.Share, 0, "verifier share")
	}
	if err := c.End(); err != nil {
		return PingPong{}, err
	}
	return m, nil
}
