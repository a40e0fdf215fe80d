package dap

import (
	"fmt"

	"github.com/starling-agg/starling/vdaf"
)

// VDAF types that tasks may use: those of the VDAF registry (VDAF-18 section 10), and
// ours of its private range.
const (
	TypePrio3Count            uint32 = 1
	TypePrio3Sum              uint32 = 2
	TypePrio3SumVec           uint32 = 3
	TypePrio3Histogram        uint32 = 4
	TypePrio3MultihotCountVec uint32 = 5
	TypePrio3L1BoundSum       uint32 = 7 // draft-ietf-ppm-l1-bound-sum-02

	TypePine32  uint32 = vdaf.IDPine32
	TypePine40  uint32 = vdaf.IDPine40
	TypePine64  uint32 = vdaf.IDPine64
	TypePine128 uint32 = vdaf.IDPine128
	TypeL2Vec16 uint32 = vdaf.IDL2Vec16
	TypeL2Vec32 uint32 = vdaf.IDL2Vec32
	TypeL2Vec64 uint32 = vdaf.IDL2Vec64
	TypeColumns uint32 = vdaf.IDColumns
)

// VDAFConfig is the configuration of one VDAF type: one of the structs below. The order
// of their fields is the order on the wire (appendix B; for the private types
// docs/registry.md).
type VDAFConfig interface {
	// Type is the vdaf_type of the task configuration.
	Type() uint32
	// Append appends the vdaf_configuration.
	Append(dst []byte) ([]byte, error)
}

// CountConfig counts how many measurements are true.
type CountConfig struct{}

// SumConfig sums integers in 0..MaxMeasurement.
type SumConfig struct{ MaxMeasurement uint64 }

// SumVecConfig sums vectors of Length integers in 0..MaxMeasurement.
type SumVecConfig struct {
	Length         uint32
	MaxMeasurement uint64
	ChunkLength    uint32
}

// HistogramConfig counts which of Length buckets each measurement is in.
type HistogramConfig struct{ Length, ChunkLength uint32 }

// MultihotCountVecConfig counts, for each of Length flags, the measurements that set it;
// one sets at most MaxWeight.
type MultihotCountVecConfig struct {
	Length      uint32
	ChunkLength uint32
	MaxWeight   uint64
}

// L1BoundSumConfig sums vectors of Length integers from 0 on, of which each adds up to at
// most MaxValue (draft-ietf-ppm-l1-bound-sum-02, section 4).
type L1BoundSumConfig struct {
	Length      uint32
	MaxValue    uint64
	ChunkLength uint32
}

// PineConfig sums integer vectors of L2 norm at most Bound, which stand for reals in
// units of 2^-FracBits.
type PineConfig struct {
	// Field is the vdaf_type, one of TypePine32, 40, 64 and 128: it is not part of the
	// vdaf_configuration.
	Field     uint32
	Dimension uint32
	FracBits  uint8
	Bound     uint64
}

// L2VecConfig sums vectors of Length fixed-point numbers and L2 norm below 1.
type L2VecConfig struct {
	// Width is the vdaf_type, one of TypeL2Vec16, 32 and 64: it is not part of the
	// vdaf_configuration.
	Width  uint32
	Length uint32
}

// ColumnsConfig sums values from -Largest to Largest but 0 by one of Groups secret groups, by
// a column of a table of each report.
type ColumnsConfig struct{ Groups, Largest, ChunkLength uint32 }

func (*CountConfig) code(*coder) {}

func (v *SumConfig) code(c *coder) {
	c.Uint64(&v.MaxMeasurement, "max_measurement")
	c.Check(v.MaxMeasurement > 0, "max_measurement is zero")
}

func (v *SumVecConfig) code(c *coder) {
	codeLength(c, &v.Length, "length")
	c.Uint64(&v.MaxMeasurement, "max_measurement")
	c.Check(v.MaxMeasurement > 0, "max_measurement is zero")
	codeLength(c, &v.ChunkLength, "chunk_length")
}

func (v *HistogramConfig) code(c *coder) {
	codeLength(c, &v.Length, "length")
	codeLength(c, &v.ChunkLength, "chunk_length")
}

func (v *MultihotCountVecConfig) code(c *coder) {
	codeLength(c, &v.Length, "length")
	codeLength(c, &v.ChunkLength, "chunk_length")
	c.Uint64(&v.MaxWeight, "max_weight")
	c.Check(v.MaxWeight > 0 && v.MaxWeight <= uint64(v.Length), "max_weight is not in 1..length")
}

func (v *L1BoundSumConfig) code(c *coder) {
	codeLength(c, &v.Length, "length")
	c.Uint64(&v.MaxValue, "max_value")
	c.Check(v.MaxValue > 0, "max_value is zero")
	codeLength(c, &v.ChunkLength, "chunk_length")
}

func (v *PineConfig) code(c *coder) {
	codeLength(c, &v.Dimension, "dimension")
	c.Uint8(&v.FracBits, "frac_bits")
	c.Uint64(&v.Bound, "bound")
	c.Check(v.Bound > 0, "bound is zero")
}

func (v *L2VecConfig) code(c *coder) { codeLength(c, &v.Length, "length") }

func (v *ColumnsConfig) code(c *coder) {
	codeLength(c, &v.Groups, "groups")
	codeLength(c, &v.Largest, "largest")
	codeLength(c, &v.ChunkLength, "chunk_length")
}

func codeLength(c *coder, v *uint32, what string) {
	c.Uint32(v, what)
	c.Check(*v > 0, what+" is zero")
}

// Type is Field.
func (v PineConfig) Type() uint32 { return v.Field }

// Type is Width.
func (v L2VecConfig) Type() uint32 { return v.Width }

func (CountConfig) Type() uint32            { return TypePrio3Count }
func (SumConfig) Type() uint32              { return TypePrio3Sum }
func (SumVecConfig) Type() uint32           { return TypePrio3SumVec }
func (HistogramConfig) Type() uint32        { return TypePrio3Histogram }
func (MultihotCountVecConfig) Type() uint32 { return TypePrio3MultihotCountVec }
func (L1BoundSumConfig) Type() uint32       { return TypePrio3L1BoundSum }
func (ColumnsConfig) Type() uint32          { return TypeColumns }

func (v CountConfig) Append(dst []byte) ([]byte, error)            { return encode(dst, &v) }
func (v SumConfig) Append(dst []byte) ([]byte, error)              { return encode(dst, &v) }
func (v SumVecConfig) Append(dst []byte) ([]byte, error)           { return encode(dst, &v) }
func (v HistogramConfig) Append(dst []byte) ([]byte, error)        { return encode(dst, &v) }
func (v MultihotCountVecConfig) Append(dst []byte) ([]byte, error) { return encode(dst, &v) }
func (v L1BoundSumConfig) Append(dst []byte) ([]byte, error)       { return encode(dst, &v) }
func (v PineConfig) Append(dst []byte) ([]byte, error)             { return encode(dst, &v) }
func (v L2VecConfig) Append(dst []byte) ([]byte, error)            { return encode(dst, &v) }
func (v ColumnsConfig) Append(dst []byte) ([]byte, error)          { return encode(dst, &v) }

// ReadVDAFConfig reads exactly one configuration of the given type. Unknown types and
// parameters that make no VDAF (a zero length, a weight above it) are [ErrMalformed]; how
// large is too large is for the VDAF to say.
func ReadVDAFConfig(vdafType uint32, b []byte) (VDAFConfig, error) {
	switch vdafType {
	case TypePrio3Count:
		return readVDAFConfig[CountConfig](b)
	case TypePrio3Sum:
		return readVDAFConfig[SumConfig](b)
	case TypePrio3SumVec:
		return readVDAFConfig[SumVecConfig](b)
	case TypePrio3Histogram:
		return readVDAFConfig[HistogramConfig](b)
	case TypePrio3MultihotCountVec:
		return readVDAFConfig[MultihotCountVecConfig](b)
	case TypePrio3L1BoundSum:
		return readVDAFConfig[L1BoundSumConfig](b)
	case TypePine32, TypePine40, TypePine64, TypePine128:
		v, err := decode[PineConfig](b)
		if err != nil {
			return nil, err
		}
		v.Field = vdafType
		return v, nil
	case TypeL2Vec16, TypeL2Vec32, TypeL2Vec64:
		v, err := decode[L2VecConfig](b)
		if err != nil {
			return nil, err
		}
		v.Width = vdafType
		return v, nil
	case TypeColumns:
		return readVDAFConfig[ColumnsConfig](b)
	}
	return nil, fmt.Errorf("%w: unknown vdaf_type %#x", ErrMalformed, vdafType)
}

func readVDAFConfig[T VDAFConfig, P message[T]](b []byte) (VDAFConfig, error) {
	v, err := decode[T, P](b)
	if err != nil {
		return nil, err
	}
	return v, nil
}
