package ohttp

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"fmt"
	"hash"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/starling-agg/starling/sealed"
)

// The labels of RFC 9458 sections 4.3 and 4.4.
const (
	requestLabel  = "message/bhttp request"
	responseLabel = "message/bhttp response"
)

const (
	// headerSize is the length of key id, KEM, KDF and AEAD before every encapsulated
	// request.
	headerSize = 7
	// tagSize is the length of the tag of all AEADs that we know.
	tagSize = 16
)

// RequestOverhead is by how many bytes an encapsulated request under the suite is longer
// than its message.
func RequestOverhead(s sealed.Suite) int { return headerSize + s.EncSize() + tagSize }

// ResponseOverhead is by how many bytes an encapsulated response under the suite is
// longer than its message.
func ResponseOverhead(s sealed.Suite) int {
	key, nonce := aeadSizes(s.AEAD)
	return max(key, nonce) + tagSize
}

// aeadSizes are the lengths of key and nonce (Nk and Nn of RFC 9180) in bytes.
func aeadSizes(aead uint16) (key, nonce int) {
	if aead == sealed.AEADAES128GCM {
		return 16, 12
	}
	return 32, 12
}

func newAEAD(id uint16, key []byte) (cipher.AEAD, error) {
	if id == sealed.AEADChaCha20Poly1305 {
		return chacha20poly1305.New(key)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func kdfHash(id uint16) func() hash.Hash {
	switch id {
	case sealed.KDFSHA384:
		return sha512.New384
	case sealed.KDFSHA512:
		return sha512.New
	}
	return sha256.New
}

// header is what stands before every request, and under the HPKE info of it.
func header(id uint8, s sealed.Suite) []byte {
	b := append(make([]byte, 0, headerSize), id)
	b = binary.BigEndian.AppendUint16(b, s.KEM)
	b = binary.BigEndian.AppendUint16(b, s.KDF)
	return binary.BigEndian.AppendUint16(b, s.AEAD)
}

func requestInfo(header []byte) []byte {
	return append(append(append(make([]byte, 0, 32), requestLabel...), 0), header...)
}

// Encapsulate seals a binary HTTP request to the gateway's key, under the id by which the
// gateway knows that (RFC 9458 section 4.3). Every call is a fresh HPKE context: a
// request that is sent again must be encapsulated again.
func Encapsulate(id uint8, key *sealed.PublicKey, message []byte) ([]byte, *ResponseOpener, error) {
	suite := key.Suite()
	h := header(id, suite)
	enc, s, err := key.Sender(requestInfo(h))
	if err != nil {
		return nil, nil, fmt.Errorf("ohttp: %w", err)
	}
	sealedMessage, err := s.Seal(nil, message)
	if err != nil {
		return nil, nil, fmt.Errorf("ohttp: seal request: %w", err)
	}
	keySize, nonceSize := aeadSizes(suite.AEAD)
	secret, err := s.Export(responseLabel, max(keySize, nonceSize))
	if err != nil {
		return nil, nil, fmt.Errorf("ohttp: export: %w", err)
	}
	out := make([]byte, 0, len(h)+len(enc)+len(sealedMessage))
	out = append(append(append(out, h...), enc...), sealedMessage...)
	return out, &ResponseOpener{exchange{suite, enc, secret}}, nil
}

// A Keyring is what a gateway opens requests with. It is immutable and safe for
// concurrent use.
type Keyring struct{ keys *sealed.Keyring }

// NewKeyring takes key pairs of distinct ids, in order of preference.
func NewKeyring(keys ...*sealed.KeyPair) (*Keyring, error) {
	r, err := sealed.NewKeyring(keys...)
	if err != nil {
		return nil, fmt.Errorf("ohttp: %w", err)
	}
	return &Keyring{r}, nil
}

// Configs are the public halves, in order.
func (r *Keyring) Configs() []KeyConfig {
	var list []KeyConfig
	for _, k := range r.keys.Keys() {
		list = append(list, NewKeyConfig(k))
	}
	return list
}

// An Encapsulated request is split into its parts and not opened. Its slices alias the
// request.
type Encapsulated struct {
	// Key is the id of the key that it names.
	Key uint8
	// Enc is the encapsulated key; under one key it belongs to one request.
	Enc []byte

	header  []byte
	message []byte
	pair    *sealed.KeyPair
}

// Split reads the head of an encapsulated request and finds its key; that costs next to
// nothing. It fails with [ErrTruncated] or [ErrUnknownKey].
func (r *Keyring) Split(request []byte) (*Encapsulated, error) {
	if len(request) < headerSize {
		return nil, ErrTruncated
	}
	e := &Encapsulated{Key: request[0], header: request[:headerSize:headerSize]}
	for _, k := range r.keys.Keys() {
		// The same key under other algorithms than advertised is another key (RFC 9458
		// section 4.3).
		if k.ID() == e.Key && string(header(k.ID(), k.Public().Suite())) == string(e.header) {
			e.pair = k
		}
	}
	if e.pair == nil {
		return nil, ErrUnknownKey
	}
	n := e.pair.Public().Suite().EncSize()
	if len(request) < headerSize+n+tagSize {
		return nil, ErrTruncated
	}
	e.Enc, e.message = request[headerSize:headerSize+n], request[headerSize+n:]
	return e, nil
}

// Open decrypts the request (RFC 9458 section 4.3) or fails with [ErrSealed]. Its results
// alias nothing of the request.
func (e *Encapsulated) Open() (message []byte, answer *ResponseSealer, err error) {
	r, err := e.pair.Recipient(e.Enc, requestInfo(e.header))
	if err != nil {
		return nil, nil, ErrSealed
	}
	if message, err = r.Open(nil, e.message); err != nil {
		return nil, nil, ErrSealed
	}
	suite := e.pair.Public().Suite()
	keySize, nonceSize := aeadSizes(suite.AEAD)
	secret, err := r.Export(responseLabel, max(keySize, nonceSize))
	if err != nil {
		return nil, nil, fmt.Errorf("ohttp: export: %w", err)
	}
	return message, &ResponseSealer{exchange{suite, bytes.Clone(e.Enc), secret}}, nil
}

// exchange is what both ends know after a request.
type exchange struct {
	suite  sealed.Suite
	enc    []byte
	secret []byte
}

// response derives the keys of a response from its nonce (RFC 9458 section 4.4).
func (x *exchange) response(nonce []byte) (aead cipher.AEAD, aeadNonce []byte, err error) {
	h := kdfHash(x.suite.KDF)
	salt := append(append(make([]byte, 0, len(x.enc)+len(nonce)), x.enc...), nonce...)
	prk, err := hkdf.Extract(h, x.secret, salt)
	if err != nil {
		return nil, nil, err
	}
	keySize, nonceSize := aeadSizes(x.suite.AEAD)
	key, err := hkdf.Expand(h, prk, "key", keySize)
	if err != nil {
		return nil, nil, err
	}
	if aeadNonce, err = hkdf.Expand(h, prk, "nonce", nonceSize); err != nil {
		return nil, nil, err
	}
	aead, err = newAEAD(x.suite.AEAD, key)
	return aead, aeadNonce, err
}

// A ResponseSealer seals the one response to a request.
type ResponseSealer struct{ x exchange }

// Seal encapsulates the response.
func (s *ResponseSealer) Seal(message []byte) ([]byte, error) {
	keySize, nonceSize := aeadSizes(s.x.suite.AEAD)
	nonce := make([]byte, max(keySize, nonceSize))
	rand.Read(nonce)
	return s.seal(nonce, message)
}

// seal is Seal with the nonce given, for the RFC's example.
func (s *ResponseSealer) seal(nonce, message []byte) ([]byte, error) {
	aead, aeadNonce, err := s.x.response(nonce)
	if err != nil {
		return nil, fmt.Errorf("ohttp: seal response: %w", err)
	}
	out := make([]byte, len(nonce), len(nonce)+len(message)+tagSize)
	copy(out, nonce)
	return aead.Seal(out, aeadNonce, message, nil), nil
}

// A ResponseOpener opens the response to a request.
type ResponseOpener struct{ x exchange }

// Open decrypts an encapsulated response. It fails with [ErrTruncated] or [ErrSealed].
func (o *ResponseOpener) Open(response []byte) ([]byte, error) {
	if len(response) < ResponseOverhead(o.x.suite) {
		return nil, ErrTruncated
	}
	keySize, nonceSize := aeadSizes(o.x.suite.AEAD)
	n := max(keySize, nonceSize)
	aead, nonce, err := o.x.response(response[:n])
	if err != nil {
		return nil, fmt.Errorf("ohttp: open response: %w", err)
	}
	message, err := aead.Open(nil, nonce, response[n:], nil)
	if err != nil {
		return nil, ErrSealed
	}
	return message, nil
}
