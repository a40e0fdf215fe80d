package pine

import (
	"encoding/binary"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/internal/field"
	"github.com/starling-agg/starling/vdaf/internal/flp"
	"github.com/starling-agg/starling/vdaf/internal/xof"
)

// Usages of the XOF (VDAF-18 section 7.2; 8 to 10 are draft-chen-cfrg-vdaf-pine-02's).
const (
	usageMeasShare  = 1
	usageProofShare = 2
	usageJointRand  = 3
	usageProveRand  = 4
	usageQueryRand  = 5
	usageVerifySeed = 6
	usageVerifyPart = 7
	usageTestRand   = 8
	usageTestSeed   = 9
	usageTestPart   = 10
)

// stream is one XOF stream of either kind.
type stream struct {
	aes   bool
	turbo xof.XOF
	hmac  xof.HMAC
}

// start18 begins a stream in the framing of VDAF-18 section 6.2.3: version, class 0,
// algorithm, usage.
func start18(x *stream, id uint32, usage uint16, ctx, seed []byte) {
	var tag [8]byte
	tag[0] = vdaf.Version
	binary.BigEndian.PutUint32(tag[2:], id)
	binary.BigEndian.PutUint16(tag[6:], usage)
	if x.aes {
		x.hmac.Init(&tag, ctx, seed)
	} else {
		x.turbo.Init(&tag, ctx, seed)
	}
}

func (x *stream) absorbByte(b byte) {
	if x.aes {
		x.hmac.AbsorbByte(b)
	} else {
		x.turbo.AbsorbByte(b)
	}
}

func (x *stream) absorb(b []byte) {
	if x.aes {
		x.hmac.Absorb(b)
	} else {
		x.turbo.Absorb(b)
	}
}

// absorbVec adds a vector, given as elements and as their encoding. Only fields whose
// words are their encoding are used with TurboSHAKE.
func (x *stream) absorbVec(v []uint64, enc []byte) {
	if x.aes {
		x.hmac.Absorb(enc)
	} else {
		x.turbo.AbsorbWords(v)
	}
}

func (x *stream) read(b []byte) {
	if x.aes {
		x.hmac.Read(b)
	} else {
		x.turbo.Read(b)
	}
}

func (x *stream) expand(f field.Field, dst []uint64) {
	if x.aes {
		x.hmac.Expand(f, dst)
	} else {
		x.turbo.Expand(f, dst)
	}
}

// profile is how the XOF is framed and how shares are laid out. This module's products
// have one profile; tests have the one of the published vectors too.
type profile struct {
	seed  int // bytes in a seed and in a verification key
	start func(x *stream, id uint32, usage uint16, ctx, seed []byte)
	// splitSeeds gives a helper two seeds, one for its measurement share and one for its
	// proofs.
	splitSeeds bool
	// If not nil, toWire turns a proof into what is sent, and fromWire a share of that
	// into a share of the proof.
	toWire, fromWire func(c *flp.Circuit, proof []uint64)
}

var profile18 = &profile{seed: vdaf.SeedSize, start: start18}
