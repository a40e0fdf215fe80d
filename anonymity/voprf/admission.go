package voprf

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// TokenSize is the length of a token, in bytes: a nonce and an output.
const TokenSize = 32 + OutputSize

// ErrToken: a token that the key of its round did not make.
var ErrToken = errors.New("voprf: the token is not of this round's key")

// A Round is what a token admits to: a round of a deployment's gateway.
type Round struct {
	Deployment [32]byte
	Number     uint64
}

// input is what the function is evaluated on: every field has a fixed length. The round is
// in it although each has a key of its own, so that a key that an operator uses twice
// does not let tokens of one round into another.
func (r Round) input(nonce [32]byte) []byte {
	b := append([]byte("starling admission v1"), r.Deployment[:]...)
	b = binary.BigEndian.AppendUint64(b, r.Number)
	return append(b, nonce[:]...)
}

// A Token admits one request of a device to a round. It lies inside what the relay
// forwards sealed, so that the gateway alone sees it.
type Token struct {
	// Nonce is 32 random bytes. A gateway that has admitted a nonce in a round refuses it
	// under any other request.
	Nonce  [32]byte
	Output [OutputSize]byte
}

// TokenRequestSize is the length of what a device keeps of a request, in bytes.
const TokenRequestSize = 32 + p256.ScalarSize

// Lengths of the messages for one token, in bytes: of a [Request] and of an [Evaluation].
const (
	AskSize    = 2 + p256.ElementSize
	AnswerSize = 2 + p256.ElementSize + 2*p256.ScalarSize
)

// A TokenRequest is a device's side of a request for a token until it is answered. The
// device keeps it before it sends the request, and sends the same request if an answer is
// lost: a new one would be for a second token.
type TokenRequest struct {
	nonce    [32]byte
	blinding *Blinding
}

// NewTokenRequest begins a request for a token of a round.
func NewTokenRequest(r Round) *TokenRequest {
	t := new(TokenRequest)
	rand.Read(t.nonce[:])
	t.blinding = Blind(r.input(t.nonce))
	return t
}

// Issue answers a request for one token, with the key of the round that it is for. It is
// the caller's duty to do so once for each device and round: nothing of the round or the
// device shows in a request. A request for more than one token is refused; the error wraps
// [ErrMalformed].
func (k *Key) Issue(r *Request) (*Evaluation, error) {
	if len(r.elements) != 1 {
		return nil, fmt.Errorf("request: %w: %d elements, where a token needs 1", ErrMalformed, len(r.elements))
	}
	return k.Evaluate(r), nil
}

// Request is what is sent.
func (t *TokenRequest) Request() *Request { return t.blinding.Request() }

// Append appends what a device keeps of the request, [TokenRequestSize] bytes, to b: the
// nonce and the blind, both secret. The round is not among them.
func (t *TokenRequest) Append(b []byte) []byte {
	return t.blinding.blinds[0].Append(append(b, t.nonce[:]...))
}

// ReadTokenRequest reads what [TokenRequest.Append] wrote of a request for a token of a
// round. The error wraps [ErrMalformed].
func ReadTokenRequest(r Round, b []byte) (*TokenRequest, error) {
	if len(b) != TokenRequestSize {
		return nil, fmt.Errorf("%w request for a token: %d bytes, not %d", ErrMalformed, len(b), TokenRequestSize)
	}
	t := &TokenRequest{nonce: [32]byte(b)}
	blind, err := p256.ReadScalar(b[len(t.nonce):])
	if err != nil {
		return nil, fmt.Errorf("%w request for a token: %w", ErrMalformed, err)
	}
	t.blinding = blindWith([]p256.Scalar{blind}, [][]byte{r.input(t.nonce)})
	return t, nil
}

// Finalize makes a token of the answer, if it is proved under the round's key. The error
// is [ErrProof].
func (t *TokenRequest) Finalize(k PublicKey, e *Evaluation) (Token, error) {
	outputs, err := t.blinding.Finalize(k, e)
	if err != nil {
		return Token{}, err
	}
	return Token{t.nonce, outputs[0]}, nil
}

// Admit checks a token against the key of the round. The error is [ErrToken]. Whether the
// nonce was admitted before is the caller's to know.
func (k *Key) Admit(r Round, t Token) error {
	want := k.Output(r.input(t.Nonce))
	if subtle.ConstantTimeCompare(want[:], t.Output[:]) != 1 {
		return ErrToken
	}
	return nil
}

// Append appends the token, [TokenSize] bytes, to b.
func (t Token) Append(b []byte) []byte { return append(append(b, t.Nonce[:]...), t.Output[:]...) }

// ReadToken reads a token of [TokenSize] bytes. The error wraps [ErrMalformed].
func ReadToken(b []byte) (t Token, err error) {
	if len(b) != TokenSize {
		return t, fmt.Errorf("%w token: %d bytes, not %d", ErrMalformed, len(b), TokenSize)
	}
	copy(t.Nonce[:], b)
	copy(t.Output[:], b[len(t.Nonce):])
	return t, nil
}

// RoundKeys are the public keys of consecutive rounds, those of a key epoch.
type RoundKeys struct {
	First  uint64 // the number of the first round
	Length uint64 // of a round, in seconds: round n begins at n times Length, from 1970 on
	Keys   []PublicKey
}

// MaxRoundKeys bounds a list of keys: rounds of a minute for 45 days.
const MaxRoundKeys = 1<<16 - 1

// listHeader is what stands before the keys of a list, in bytes.
const listHeader = 8 + 8 + 2

// Of returns the key of a round, and false if the list does not have it.
func (l *RoundKeys) Of(round uint64) (PublicKey, bool) {
	if round < l.First || round-l.First >= uint64(len(l.Keys)) {
		return PublicKey{}, false
	}
	return l.Keys[round-l.First], true
}

// Digest is the list's in the manifest that the servers' owners sign, so that all devices
// have one list: SHA-256 of a domain string and the list's bytes.
func (l *RoundKeys) Digest() [sha256.Size]byte { return DigestOf(l.Append(nil)) }

// DigestOf is the [RoundKeys.Digest] of a list's bytes, whatever these are.
func DigestOf(list []byte) [sha256.Size]byte {
	return sha256.Sum256(append([]byte("starling admission keys v1"), list...))
}

// Append appends the list to b: the first round and the length in 64 bits each, the
// number of keys in 16, and the keys. It panics for a list that has none, or more than
// [MaxRoundKeys].
func (l *RoundKeys) Append(b []byte) []byte {
	if len(l.Keys) == 0 || len(l.Keys) > MaxRoundKeys {
		panic(fmt.Sprintf("voprf: internal error: a list of %d keys", len(l.Keys)))
	}
	b = binary.BigEndian.AppendUint64(b, l.First)
	b = binary.BigEndian.AppendUint64(b, l.Length)
	b = binary.BigEndian.AppendUint16(b, uint16(len(l.Keys)))
	for _, k := range l.Keys {
		b = k.Append(b)
	}
	return b
}

// ReadRoundKeys reads a list of 1 to [MaxRoundKeys] different keys, whose last round has
// a number. Under a key of two rounds a device could have two tokens of one of them, for
// a request does not show its round. The error wraps [ErrMalformed]. A reader that knows
// the list's digest compares the bytes with it first: reading one key costs as much as
// hashing a hundred.
func ReadRoundKeys(b []byte) (*RoundKeys, error) {
	if len(b) < listHeader {
		return nil, fmt.Errorf("%w list of keys: %d bytes", ErrMalformed, len(b))
	}
	l := &RoundKeys{First: binary.BigEndian.Uint64(b), Length: binary.BigEndian.Uint64(b[8:])}
	n := int(binary.BigEndian.Uint16(b[16:]))
	b = b[listHeader:]
	if n == 0 || len(b) != n*PublicKeySize || l.First+uint64(n-1) < l.First {
		return nil, fmt.Errorf("%w list of keys: %d from round %d in %d bytes", ErrMalformed, n, l.First, len(b))
	}
	l.Keys = make([]PublicKey, n)
	seen := make(map[PublicKey]bool, n)
	for i := range l.Keys {
		var err error
		if l.Keys[i], err = ReadPublicKey(b[i*PublicKeySize : (i+1)*PublicKeySize]); err != nil {
			return nil, fmt.Errorf("key %d: %w", i, err)
		}
		if seen[l.Keys[i]] {
			return nil, fmt.Errorf("%w list of keys: key %d stands in it twice", ErrMalformed, i)
		}
		seen[l.Keys[i]] = true
	}
	return l, nil
}
