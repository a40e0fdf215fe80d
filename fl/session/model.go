package session

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/starling-agg/starling/internal/wire"
)

// A Model is what devices compute with in one round. As a blob it is
//
//	"starling model v1\n"; opaque session[32]; uint64 round; float64 clip; uint32 dimension;
//	float32 parameters[dimension], little-endian
//
// and its name is the SHA-256 of that.
type Model struct {
	Session Hash
	Round   uint64  // the one that it was made for
	Clip    float64 // C: longer updates are scaled down to this norm
	// Parameters are finite, in the order of the layout.
	Parameters []float32
}

const (
	modelMagic  = "starling model v1\n"
	modelHeader = len(modelMagic) + 32 + 8 + 8 + 4
)

// ModelBytes is the length of the blobs of a session.
func (t *Terms) ModelBytes() int { return modelHeader + 4*t.Dimension() }

func (m *Model) header(c *wire.Coder) {
	c.Const(modelMagic, "is not of this version")
	c.Fixed(m.Session[:], "session")
	c.Uint64(&m.Round, "round")
	float64At(c, &m.Clip, "clipping norm")
	c.Check(m.Clip >= MinNorm && m.Clip <= MaxNorm, "clipping norm is out of bounds")
	n := uint32(len(m.Parameters))
	c.Uint32(&n, "dimension")
	c.Check(n >= 1 && n <= MaxDimension && len(m.Parameters) <= MaxDimension, "dimension is out of bounds")
	if !c.Writing() {
		c.Check(len(c.Bytes()) == 4*int(n), "parameters have another length")
	}
}

// Append appends the blob. It fails with what wraps [ErrModel] for what is out of bounds
// and for numbers that are not finite.
func (m *Model) Append(dst []byte) ([]byte, error) {
	b, err := wire.Append(dst, ErrModel, m.header)
	if err != nil {
		return dst, err
	}
	for i, x := range m.Parameters {
		if notFinite(math.Float32bits(x)) {
			return dst, fmt.Errorf("%w: parameter %d is %v", ErrModel, i, x)
		}
	}
	return AppendFloats(b, m.Parameters), nil
}

// notFinite says whether a binary32 is an infinity or no number.
func notFinite(bits uint32) bool { return bits&0x7f800000 == 0x7f800000 }

// ReadModel reads a blob, all of it. Errors wrap [ErrModel]. Whether it is the one that was
// announced, [Session.ReadModel] says.
func ReadModel(b []byte) (*Model, error) {
	m, c := new(Model), wire.Reader(b, ErrModel)
	if m.header(&c); c.Err() != nil {
		return nil, c.Err()
	}
	var err error
	if m.Parameters, err = ReadFloats(c.Bytes()); err != nil {
		return nil, err
	}
	return m, nil
}

// BlobHash names a blob.
func BlobHash(blob []byte) Hash { return sha256.Sum256(blob) }

// AppendFloats appends numbers as parameters of a model are written.
func AppendFloats(dst []byte, list []float32) []byte {
	for _, x := range list {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(x))
	}
	return dst
}

// ReadFloats reads numbers as parameters of a model are written, all of b. It fails with
// what wraps [ErrModel] where they are not finite, or b ends in one.
func ReadFloats(b []byte) ([]float32, error) {
	if len(b)%4 != 0 {
		return nil, fmt.Errorf("%w: %d bytes are no numbers of four", ErrModel, len(b))
	}
	list := make([]float32, len(b)/4)
	for i := range list {
		bits := binary.LittleEndian.Uint32(b[4*i:])
		if notFinite(bits) {
			return nil, fmt.Errorf("%w: number %d is not finite", ErrModel, i)
		}
		list[i] = math.Float32frombits(bits)
	}
	return list, nil
}
