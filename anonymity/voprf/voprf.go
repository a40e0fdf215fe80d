package voprf

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/anonymity/internal/derand"
	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// Lengths, in bytes.
const (
	KeySize       = p256.ScalarSize
	PublicKeySize = p256.ElementSize
	OutputSize    = sha256.Size
)

// MaxBatch is how many inputs one proof is for, at most.
//
// The RFC has no such bound, and needs one: the factor of a pair of elements is a hash of
// that pair alone, so that the other pairs can be chosen after it. False pairs that cancel
// each other out, and requests whose elements do, are then sums of independent lists that
// are 0, which Wagner's algorithm (2002) finds in 2^(256/(1+log2 m)) steps for m pairs: 2^128
// for two, and 2^23 for each of 1,024.
const MaxBatch = 2

// Errors of what a stranger sends.
var (
	// ErrMalformed: not the one encoding of a message or a key.
	ErrMalformed = errors.New("voprf: malformed")
	// ErrProof: the evaluation is not proved to be of the public key and the request.
	ErrProof = errors.New("voprf: the proof does not hold")
)

// suite is the RFC's context string for its mode 1, VOPRF.
const suite = "OPRFV1-\x01-P256-SHA256"

func hashToGroup(input []byte) *p256.Point { return p256.HashToPoint(input, "HashToGroup-"+suite) }
func hashToScalar(b []byte) p256.Scalar    { return p256.HashToScalar(b, "HashToScalar-"+suite) }

// A PublicKey is what evaluations are proved under. All clients must see the same one.
type PublicKey struct{ e p256.Element }

// Append appends the key, [PublicKeySize] bytes, to b.
func (k PublicKey) Append(b []byte) []byte { return k.e.Append(b) }

// ReadPublicKey reads a key of [PublicKeySize] bytes. The error wraps [ErrMalformed].
func ReadPublicKey(b []byte) (k PublicKey, err error) {
	if k.e, err = p256.ReadElement(b); err != nil {
		return k, fmt.Errorf("%w public key: %w", ErrMalformed, err)
	}
	return k, nil
}

// A Key evaluates the function.
type Key struct {
	k      p256.Scalar
	public PublicKey
}

// GenerateKey makes a key of cryptographic randomness.
func GenerateKey() *Key { return newKey(p256.RandomScalar(derand.Rand{}.Reader())) }

// newKey computes the public key. Constant time.
func newKey(k p256.Scalar) *Key { return &Key{k, PublicKey{affine(p256.MulBase(k))}} }

// affine is a point that is the identity with probability 2^-256 and so never.
func affine(p *p256.Point) p256.Element {
	e, ok := p.Element()
	if !ok {
		panic("voprf: internal error: a random point is the identity")
	}
	return e
}

// PublicKey returns the public part.
func (k *Key) PublicKey() PublicKey { return k.public }

// Append appends the private key, [KeySize] bytes, to b.
func (k *Key) Append(b []byte) []byte { return k.k.Append(b) }

// ReadKey reads a private key of [KeySize] bytes. The error wraps [ErrMalformed].
func ReadKey(b []byte) (*Key, error) {
	k, err := p256.ReadScalar(b)
	if err != nil {
		return nil, fmt.Errorf("%w private key: %w", ErrMalformed, err)
	}
	return newKey(k), nil
}

// Output is the function of an input of at most 65,535 bytes: what a client gets by a
// request, computed by who has the key. Constant time for inputs of one length.
func (k *Key) Output(input []byte) [OutputSize]byte {
	return output(input, p256.Mul(k.k, hashToGroup(input)))
}

// output is the RFC's last hash. Constant time.
func output(input []byte, p *p256.Point) [OutputSize]byte {
	if len(input) > 0xffff {
		panic("voprf: internal error: an input is longer than the RFC allows")
	}
	e := affine(p)
	b := framed(nil, input)
	b = framed(b, e.Append(nil))
	return sha256.Sum256(append(b, "Finalize"...))
}

// framed appends bytes behind their length.
func framed(b, s []byte) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

// framedElements appends elements, each behind its length.
func framedElements(b []byte, elements ...p256.Element) []byte {
	for i := range elements {
		b = elements[i].Append(binary.BigEndian.AppendUint16(b, p256.ElementSize))
	}
	return b
}
