// Package visit has the messages by which a device comes to its credentials, without a
// network, a disk or a clock.
//
// A device visits the attester, which knows it, once for each key epoch, with a blinded
// request for each of the two issuers, and where recipes ask for admission one to the
// gateway for each round's token (a [Visit]). The attester sends each issuer its request
// in an [Order], and the gateway all of its own in a [TokenOrder], which its signature
// under the key that the manifest names makes worth an answer; neither learns of a
// device. The device gets all answers, or none (an [Answer]). A visit is as long as the
// manifest makes it, for all devices alike.
//
// When the epoch begins both issuers say how many devices they have answered, and the
// attester how many it let ask: a [Count] each, signed by its owner and logged, on which it
// depends whether a device shows what it has (arc.Cohort).
package visit

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/internal/wire"
	"github.com/starling-agg/starling/signed"
)

// Media types of the messages.
const (
	VisitMedia    = "application/starling-visit"
	AnswerMedia   = "application/starling-visit-answer"
	OrderMedia    = "application/starling-issue-order"
	ResponseMedia = "application/starling-issue-response" // arc.CredentialResponse
	EnrolMedia    = "application/starling-enrolment"
)

// Lengths, in bytes.
const (
	// Size and AnswerSize are those of a visit without tokens and of its answer; each token
	// adds [AskSize] and [TokenSize].
	Size       = len(visitMagic) + 32 + 4 + 2*arc.RequestSize + 3
	AnswerSize = len(answerMagic) + 2*arc.ResponseSize + 3
	// MaxSize bounds a visit.
	MaxSize    = Size + MaxTokens*AskSize
	OrderSize  = len(orderDomain) + 1 + 32 + 4 + arc.RequestSize + signed.SignatureSize
	SecretSize = 32
	// MaxProof bounds what a device enrols with.
	MaxProof = 8 << 10
	// MaxEnrolment bounds an enrolment.
	MaxEnrolment = len(enrolMagic) + SecretSize + 2 + MaxProof
)

const (
	visitMagic  = "starling visit v1"
	answerMagic = "starling visit answer v1"
	orderDomain = "starling issue order v1"
	enrolMagic  = "starling enrolment v1"
	nonceDomain = "starling enrolment nonce v1"
)

// ErrMalformed: not the one encoding of a message.
var ErrMalformed = errors.New("visit: malformed")

// ErrOrder: an order of another attester, or for another issuer, deployment or time.
var ErrOrder = errors.New("visit: the order is not for this issuer, or not of its attester")

// A Visit is what a device asks the attester for. Its secrets stay on the device.
type Visit struct {
	Deployment [32]byte
	Epoch      uint32
	// Leader and Helper are requests to the two issuers, as arc encodes them: on the shuffled
	// path to those beside hop 1 and hop 2.
	Leader, Helper [arc.RequestSize]byte
	// Asks are requests to the gateway, as in [TokenOrder]; none where no recipe asks for
	// admission.
	Asks []byte
}

func (v *Visit) code(c *wire.Coder) {
	c.Const(visitMagic, "not a visit of version 1")
	c.Fixed(v.Deployment[:], "deployment")
	c.Uint32(&v.Epoch, "epoch")
	c.Fixed(v.Leader[:], "leader's request")
	c.Fixed(v.Helper[:], "helper's request")
	c.Vec24(&v.Asks, 0, "requests for tokens")
	c.Check(len(v.Asks)%AskSize == 0 && len(v.Asks) <= MaxTokens*AskSize, "requests for tokens of another length")
}

// Tokens is how many are asked for.
func (v *Visit) Tokens() int { return len(v.Asks) / AskSize }

// Append appends the encoding: opaque magic[17] = "starling visit v1",
// deployment[32]; uint32 epoch; opaque leader[226], helper[226], asks<0..2^24-1>.
func (v *Visit) Append(dst []byte) []byte { return wire.MustAppend(dst, v.code) }

// Read reads exactly one visit ([ErrMalformed]). Its requests are not looked at: issuers and
// gateway do that. Those for tokens alias b.
func Read(b []byte) (v Visit, err error) {
	err = wire.Read(b, ErrMalformed, v.code)
	return v, err
}

// Digest names a visit: an attester answers one for each device and epoch.
func (v *Visit) Digest() [32]byte { return sha256.Sum256(v.Append(nil)) }

// Issuers are the roles of the two issuers of a deployment, in the order of a visit's requests:
// those beside leader and helper, or hops, beside hop 1 and hop 2.
func Issuers(hops bool) [2]signed.Role {
	if hops {
		return [2]signed.Role{signed.Hop1, signed.Hop2}
	}
	return [2]signed.Role{signed.Leader, signed.Helper}
}

// Request is that to the issuer of a role.
func (v *Visit) Request(role signed.Role) []byte {
	if role == signed.Leader || role == signed.Hop1 {
		return v.Leader[:]
	}
	return v.Helper[:]
}

// An Answer has the answers of both issuers, and of the gateway as many as tokens were asked
// for.
type Answer struct {
	Leader, Helper [arc.ResponseSize]byte
	Tokens         []byte // [TokenSize] bytes each
}

func (a *Answer) code(c *wire.Coder) {
	c.Const(answerMagic, "not an answer of version 1")
	c.Fixed(a.Leader[:], "leader's answer")
	c.Fixed(a.Helper[:], "helper's answer")
	c.Vec24(&a.Tokens, 0, "tokens")
	c.Check(len(a.Tokens)%TokenSize == 0 && len(a.Tokens) <= MaxTokens*TokenSize, "tokens of another length")
}

// Append appends the encoding: opaque magic[24] = "starling visit answer
// v1", leader[454], helper[454], tokens<0..2^24-1>.
func (a *Answer) Append(dst []byte) []byte { return wire.MustAppend(dst, a.code) }

// ReadAnswer reads exactly one answer ([ErrMalformed]). Its tokens alias b.
func ReadAnswer(b []byte) (a Answer, err error) {
	err = wire.Read(b, ErrMalformed, a.code)
	return a, err
}

// An Order is the attester's word that a device that it knows has made a request, and has
// made no other in the epoch.
type Order struct {
	Role       signed.Role // of the issuer
	Deployment [32]byte
	Epoch      uint32
	Request    [arc.RequestSize]byte
	// Signature is the attester's, over all of that.
	Signature signed.Signature
}

// code reads or writes all but the signature.
func (o *Order) code(c *wire.Coder) {
	c.Const(orderDomain, "not an order of version 1")
	c.Uint8((*uint8)(&o.Role), "role")
	c.Fixed(o.Deployment[:], "deployment")
	c.Uint32(&o.Epoch, "epoch")
	c.Fixed(o.Request[:], "request")
}

// Sign has the attester order at a time. It fails with [signed.ErrWindow].
func (o *Order) Sign(attester *signed.Signer, now time.Time) error {
	var err error
	o.Signature, err = attester.Sign(orderDomain, wire.MustAppend(nil, o.code), now, now)
	return err
}

// Append appends the encoding, [OrderSize] bytes: opaque domain[23] = "starling issue order
// v1"; uint8 role; opaque deployment[32]; uint32 epoch; opaque request[226], signature[208],
// which is over what stands before it.
func (o *Order) Append(dst []byte) []byte {
	return o.Signature.Append(wire.MustAppend(dst, o.code))
}

// ReadOrder reads exactly one order and does not verify it ([ErrMalformed]).
func ReadOrder(b []byte) (o Order, err error) {
	if len(b) != OrderSize {
		return o, fmt.Errorf("%w: an order of %d bytes", ErrMalformed, len(b))
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

// Verify says whether the attester with a root key orders that of an issuer now. It fails
// with [ErrOrder].
func (o *Order) Verify(root signed.PublicKey, role signed.Role, deployment [32]byte, now time.Time) error {
	if o.Role != role || o.Deployment != deployment {
		return fmt.Errorf("%w: it is for the %v's of deployment %x", ErrOrder, o.Role, o.Deployment[:4])
	}
	if err := o.Signature.Verify(root, orderDomain, wire.MustAppend(nil, o.code), now, now); err != nil {
		return fmt.Errorf("%w: %w", ErrOrder, err)
	}
	return nil
}

// An Enrolment is how a device comes to be known: by what proves that it is one, and a
// secret of its own that it shows from then on.
type Enrolment struct {
	Secret [SecretSize]byte
	// Proof is 1 to [MaxProof] bytes: of codes the code, of an identity provider its ID token,
	// and of a certificate, which the connection shows, [CertificateProof].
	Proof []byte
}

// CertificateProof stands in an enrolment whose connection proves who comes.
const CertificateProof = "certificate"

// Nonce is what an identity provider writes into an ID token that is for this enrolment and
// no other: unpadded base64url of SHA-256("starling enrolment nonce v1", deployment, secret),
// 43 characters, from which nobody learns the secret.
func Nonce(deployment [32]byte, secret [SecretSize]byte) string {
	b := append([]byte(nonceDomain), deployment[:]...)
	h := sha256.Sum256(append(b, secret[:]...))
	return base64.RawURLEncoding.EncodeToString(h[:])
}

func (e *Enrolment) code(c *wire.Coder) {
	c.Const(enrolMagic, "not an enrolment of version 1")
	c.Fixed(e.Secret[:], "secret")
	c.Vec16(&e.Proof, 1, "proof")
	c.Check(len(e.Proof) <= MaxProof, "a proof longer than may be")
}

// Append appends the encoding: opaque magic[21] = "starling enrolment v1", secret[32],
// proof<1..8192>. It fails with [ErrMalformed].
func (e *Enrolment) Append(dst []byte) ([]byte, error) { return wire.Append(dst, ErrMalformed, e.code) }

// ReadEnrolment reads exactly one ([ErrMalformed]). It aliases b.
func ReadEnrolment(b []byte) (e Enrolment, err error) {
	err = wire.Read(b, ErrMalformed, e.code)
	return e, err
}
