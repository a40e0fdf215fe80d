package visit

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/starling-agg/starling/internal/wire"
	"github.com/starling-agg/starling/signed"
)

// Media types of the messages about the gateway's tokens.
const (
	KeysMedia       = "application/starling-token-keys"
	TokenOrderMedia = "application/starling-token-order"
	TokensMedia     = "application/starling-tokens" // answers one behind the other
)

// Bounds and lengths of messages about tokens, in bytes where nothing else is said.
const (
	// MaxTokens is how many tokens one visit may be for, of all recipes and rounds of an
	// epoch.
	MaxTokens = 2048
	// AskSize and TokenSize are those of a request for one token and of its answer, as
	// package voprf encodes them.
	AskSize   = 35
	TokenSize = 99
	// MaxKeys bounds the encoding of [Keys].
	MaxKeys = 96 << 10
	// MinTokenOrder and MaxTokenOrder bound that of a [TokenOrder].
	MinTokenOrder = len(tokenOrderDomain) + 32 + 4 + 3 + AskSize + signed.SignatureSize
	MaxTokenOrder = MinTokenOrder + (MaxTokens-1)*AskSize
)

const (
	keysMagic        = "starling token keys v1"
	tokenOrderDomain = "starling token order v1"
)

// Keys are the gateway's lists of keys for tokens of an epoch, the same for all devices:
// the epoch's manifest has the digest of each, and a device asks for nothing before it
// has compared them.
type Keys struct {
	Deployment [32]byte
	Epoch      uint32
	// Lists are in the order of the manifest, each as package voprf encodes it.
	Lists [][]byte
}

func (k *Keys) code(c *wire.Coder) {
	c.Const(keysMagic, "no lists of keys of version 1")
	c.Fixed(k.Deployment[:], "deployment")
	c.Uint32(&k.Epoch, "epoch")
	c.Nested24("lists", func() {
		wire.Items(c, &k.Lists, func(_ int, list *[]byte) { c.Vec24(list, 1, "list") })
	})
}

// Append appends the encoding: opaque magic[22] = "starling token keys v1", deployment[32];
// uint32 epoch; opaque lists<1..2^24-1><0..2^24-1>. It fails with [ErrMalformed].
func (k *Keys) Append(dst []byte) ([]byte, error) {
	b, err := wire.Append(dst, ErrMalformed, k.code)
	if err == nil && len(b)-len(dst) > MaxKeys {
		return dst, fmt.Errorf("%w: lists of keys longer than %d bytes", ErrMalformed, MaxKeys)
	}
	return b, err
}

// ReadKeys reads exactly one such message ([ErrMalformed]). Its lists alias b, and are not
// looked at.
func ReadKeys(b []byte) (k Keys, err error) {
	if len(b) > MaxKeys {
		return k, fmt.Errorf("%w: lists of keys longer than %d bytes", ErrMalformed, MaxKeys)
	}
	err = wire.Read(b, ErrMalformed, k.code)
	return k, err
}

// A TokenOrder is the attester's word that a device that it knows has asked the gateway for
// these tokens, and for no others in the epoch.
type TokenOrder struct {
	Deployment [32]byte
	Epoch      uint32
	// Asks are the requests for all tokens of the epoch, [AskSize] bytes each: recipes as in
	// the manifest, of each its rounds in order.
	Asks []byte
	// Signature is the attester's, over all of that.
	Signature signed.Signature
}

func (o *TokenOrder) code(c *wire.Coder) {
	c.Const(tokenOrderDomain, "not an order for tokens of version 1")
	c.Fixed(o.Deployment[:], "deployment")
	c.Uint32(&o.Epoch, "epoch")
	c.Vec24(&o.Asks, AskSize, "requests")
	c.Check(len(o.Asks)%AskSize == 0 && len(o.Asks) <= MaxTokens*AskSize, "requests for tokens of another length")
}

// Digest names what is ordered, whoever has signed it and when: the same device sends it again
// when an answer was lost.
func (o *TokenOrder) Digest() [32]byte { return sha256.Sum256(wire.MustAppend(nil, o.code)) }

// Sign has the attester order at a time. It fails with [ErrMalformed] and
// [signed.ErrWindow].
func (o *TokenOrder) Sign(attester *signed.Signer, now time.Time) error {
	b, err := wire.Append(nil, ErrMalformed, o.code)
	if err == nil {
		o.Signature, err = attester.Sign(tokenOrderDomain, b, now, now)
	}
	return err
}

// Append appends the encoding: opaque domain[23] = "starling token order v1", deployment[32];
// uint32 epoch; opaque asks<35..2^24-1>, signature[208], which is over what stands before it.
func (o *TokenOrder) Append(dst []byte) []byte {
	return o.Signature.Append(wire.MustAppend(dst, o.code))
}

// ReadTokenOrder reads exactly one order and does not verify it ([ErrMalformed]). Its requests
// alias b, and are not looked at.
func ReadTokenOrder(b []byte) (o TokenOrder, err error) {
	if len(b) < MinTokenOrder || len(b) > MaxTokenOrder {
		return o, fmt.Errorf("%w: an order for tokens of %d bytes", ErrMalformed, len(b))
	}
	at := len(b) - signed.SignatureSize
	if err := wire.Read(b[:at], ErrMalformed, o.code); err != nil {
		return o, err
	}
	if o.Signature, err = signed.ReadSignature(b[at:]); err != nil {
		return o, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return o, nil
}

// Verify says whether the attester with a root key orders tokens of a deployment now. It fails
// with [ErrOrder].
func (o *TokenOrder) Verify(root signed.PublicKey, deployment [32]byte, now time.Time) error {
	if o.Deployment != deployment {
		return fmt.Errorf("%w: it is for tokens of deployment %x", ErrOrder, o.Deployment[:4])
	}
	b, err := wire.Append(nil, ErrMalformed, o.code)
	if err == nil {
		err = o.Signature.Verify(root, tokenOrderDomain, b, now, now)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrOrder, err)
	}
	return nil
}
