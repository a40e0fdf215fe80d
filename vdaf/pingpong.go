package vdaf

import (
	"fmt"

	"golang.org/x/crypto/cryptobyte"
)

// PingPongType says which message of the two-party topology a [PingPong] is (VDAF-18 section 5.7.1).
type PingPongType uint8

const (
	PingPongInitialize PingPongType = 0 // leader to helper: the first verifier share
	PingPongContinue   PingPongType = 1 // a verifier message and the next verifier share
	PingPongFinish     PingPongType = 2 // the last verifier message
)

// PingPong is one decoded message. Message is nil in an Initialize, Share is nil in a Finish; both alias the input of
// [ReadPingPong].
type PingPong struct {
	Type    PingPongType
	Message []byte // verifier message
	Share   []byte // verifier share
}

// AppendPingPongInitialize appends the leader's first message, which carries its verifier share.
func AppendPingPongInitialize(dst, share []byte) []byte {
	return appendItem(append(dst, byte(PingPongInitialize)), share)
}

// AppendPingPongContinue appends a message between rounds, for VDAFs of more than one.
func AppendPingPongContinue(dst, msg, share []byte) []byte {
	return appendItem(appendItem(append(dst, byte(PingPongContinue)), msg), share)
}

// AppendPingPongFinish appends the last message, which carries the last verifier message; that may be empty.
func AppendPingPongFinish(dst, msg []byte) []byte {
	return appendItem(append(dst, byte(PingPongFinish)), msg)
}

// appendItem appends b behind its length in 4 bytes, big-endian. It panics at 4 GiB, which no instance reaches.
func appendItem(dst, b []byte) []byte {
	if uint64(len(b)) >= 1<<32 {
		panic("vdaf: internal error: ping-pong item too long")
	}
	n := uint32(len(b))
	dst = append(dst, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	return append(dst, b...)
}

// ReadPingPong decodes one message that fills b. Errors are [ErrDecode]. The lengths of the items are for the VDAF to
// check; nothing is allocated for them.
func ReadPingPong(b []byte) (PingPong, error) {
	s := cryptobyte.String(b)
	var t uint8
	var m PingPong
	ok := s.ReadUint8(&t)
	m.Type = PingPongType(t)
	switch {
	case !ok:
		return PingPong{}, fmt.Errorf("%w: empty ping-pong message", ErrDecode)
	case m.Type > PingPongFinish:
		return PingPong{}, fmt.Errorf("%w: ping-pong message of type %d", ErrDecode, t)
	}
	if m.Type != PingPongInitialize {
		ok = readItem(&s, &m.Message)
	}
	if ok && m.Type != PingPongFinish {
		ok = readItem(&s, &m.Share)
	}
	if !ok || !s.Empty() {
		return PingPong{}, fmt.Errorf("%w: ping-pong message of wrong length", ErrDecode)
	}
	return m, nil
}

func readItem(s *cryptobyte.String, out *[]byte) bool {
	var n uint32
	if !s.ReadUint32(&n) || uint64(n) > uint64(len(*s)) {
		return false
	}
	return s.ReadBytes(out, int(n))
}
