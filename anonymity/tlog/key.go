package tlog

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"filippo.io/mldsa"
	"github.com/starling-agg/starling/signed"
)

// A Scheme is how a key signs, by the number that signed-note has for it.
type Scheme uint8

// The schemes. A log signs checkpoints by the first; the others are witnesses', and hold
// the time of signing.
const (
	Ed25519     Scheme = 0x01
	CosignEd    Scheme = 0x04 // cosignature/v1
	CosignMLDSA Scheme = 0x06 // ML-DSA-44, subtree/v1
)

// ErrKey: not a key of a log or witness, or one that must not be used.
var ErrKey = errors.New("tlog: not a usable key")

// timeSize is the length of the time before a cosignature, in bytes.
const timeSize = 8

// maxName bounds the name of a key, in bytes: ML-DSA-44 cosignatures have one byte of
// length.
const maxName = 255

// A Key is the public key of a log or witness, and its name. It is immutable and
// implements note.Verifier.
type Key struct {
	name   string
	scheme Scheme
	public []byte
	post   *mldsa.PublicKey // of CosignMLDSA
}

// newKey checks a key.
func newKey(name string, scheme Scheme, public []byte) (*Key, error) {
	k := &Key{name: name, scheme: scheme, public: public}
	if err := checkName(name); err != nil {
		return nil, err
	}
	switch scheme {
	case Ed25519, CosignEd:
		if _, err := signed.ReadPublicKey(public); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrKey, err)
		}
	case CosignMLDSA:
		var err error
		if k.post, err = mldsa.NewPublicKey(mldsa.MLDSA44(), public); err != nil {
			return nil, fmt.Errorf("%w: no ML-DSA-44 key", ErrKey)
		}
	default:
		return nil, fmt.Errorf("%w: of an unknown type %#02x", ErrKey, uint8(scheme))
	}
	return k, nil
}

func checkName(name string) error {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(r rune) bool { return r == '+' || unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return fmt.Errorf("%w: the name %.100q: want 1 to %d bytes without space, plus or control characters, such as log.example/2026", ErrKey, name, maxName)
	}
	return nil
}

// ParseKey reads a verifier key as signed-note writes it: name, plus, key id, plus, base64
// of type and public key. It fails with [ErrKey].
func ParseKey(vkey string) (*Key, error) {
	name, rest, _ := strings.Cut(vkey, "+")
	id, encoded, _ := strings.Cut(rest, "+")
	b, err := decodeBase64(encoded)
	if err != nil || len(b) < 2 {
		return nil, fmt.Errorf("%w: %.60q: want NAME+ID+BASE64, as starling log key prints it", ErrKey, vkey)
	}
	k, err := newKey(name, Scheme(b[0]), b[1:])
	if err != nil {
		return nil, err
	}
	if fmt.Sprintf("%08x", k.KeyHash()) != id {
		return nil, fmt.Errorf("%w: %s: its id is %08x, not %.20q: a part was changed", ErrKey, name, k.KeyHash(), id)
	}
	return k, nil
}

// decodeBase64 takes one encoding only.
func decodeBase64(s string) ([]byte, error) {
	if strings.ContainsAny(s, "\r\n") {
		return nil, errors.New("a line break in base64")
	}
	return base64.StdEncoding.Strict().DecodeString(s)
}

// Name is the key's name: a log's origin, or a witness.
func (k *Key) Name() string { return k.name }

// Scheme is how the key signs.
func (k *Key) Scheme() Scheme { return k.scheme }

// KeyHash is the key's id in a note.
func (k *Key) KeyHash() uint32 { return keyHash(k.name, k.scheme, k.public) }

func keyHash(name string, scheme Scheme, public []byte) uint32 {
	h := sha256.New()
	h.Write([]byte(name + "\n" + string([]byte{byte(scheme)})))
	h.Write(public)
	return binary.BigEndian.Uint32(h.Sum(nil))
}

// String is the verifier key, which [ParseKey] reads.
func (k *Key) String() string {
	return fmt.Sprintf("%s+%08x+%s", k.name, k.KeyHash(), base64.StdEncoding.EncodeToString(append([]byte{byte(k.scheme)}, k.public...)))
}

// same says whether two keys are one, whatever their names and types.
func (k *Key) same(o *Key) bool { return bytes.Equal(k.public, o.public) }

// Verify implements note.Verifier.
func (k *Key) Verify(text, sig []byte) bool {
	if k.scheme == Ed25519 {
		return ed25519.Verify(k.public, text, sig)
	}
	at, ok := cosignedAt(sig)
	if !ok || at == 0 {
		return false
	}
	message, err := cosigned(k.name, k.scheme, text, at)
	if err != nil {
		return false
	}
	if k.scheme == CosignEd {
		return ed25519.Verify(k.public, message, sig[timeSize:])
	}
	return mldsa.Verify(k.post, message, sig[timeSize:], nil) == nil
}

// cosignedAt is the time of a cosignature, in seconds since 1970.
func cosignedAt(sig []byte) (at uint64, ok bool) {
	if len(sig) < timeSize {
		return 0, false
	}
	at = binary.BigEndian.Uint64(sig)
	return at, at < 1<<63
}

// cosigned is what a witness signs about the text of a checkpoint at a time, as
// tlog-cosignature has it.
func cosigned(name string, scheme Scheme, text []byte, at uint64) ([]byte, error) {
	if scheme == CosignEd {
		return fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", at, text), nil
	}
	c, err := ReadCheckpoint(text)
	if err != nil {
		return nil, err
	}
	if len(c.Origin) > 255 {
		return nil, fmt.Errorf("%w: an origin of %d bytes", ErrCheckpoint, len(c.Origin))
	}
	b := append([]byte("subtree/v1\n\x00"), byte(len(name)))
	b = append(b, name...)
	b = binary.BigEndian.AppendUint64(b, at)
	b = append(append(b, byte(len(c.Origin))), c.Origin...)
	b = binary.BigEndian.AppendUint64(b, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(c.Size))
	return append(b, c.Root[:]...), nil
}

// A Secret is the secret key of a log or witness. All forms of printing give "redacted";
// [Secret.Marshal] gives the secret. It is immutable and safe for concurrent use.
type Secret struct {
	key  *Key
	seed []byte
	ed   ed25519.PrivateKey
	post *mldsa.PrivateKey
}

// Generate makes a key. It fails with [ErrKey] for a name or scheme that cannot be.
func Generate(name string, scheme Scheme) (*Secret, error) {
	seed := make([]byte, 32)
	rand.Read(seed)
	return newSecret(name, scheme, seed)
}

func newSecret(name string, scheme Scheme, seed []byte) (*Secret, error) {
	s := &Secret{seed: seed}
	var public []byte
	switch {
	case len(seed) != 32:
		return nil, fmt.Errorf("%w: a secret of %d bytes, want 32", ErrKey, len(seed))
	case scheme == CosignMLDSA:
		var err error
		if s.post, err = mldsa.NewPrivateKey(mldsa.MLDSA44(), seed); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrKey, err)
		}
		public = s.post.PublicKey().Bytes()
	default:
		s.ed = ed25519.NewKeyFromSeed(seed)
		public = s.ed.Public().(ed25519.PublicKey)
	}
	var err error
	s.key, err = newKey(name, scheme, public)
	return s, err
}

// secretPrefix opens a secret key, as note.GenerateKey writes it.
const secretPrefix = "PRIVATE+KEY+"

// Marshal is the line of a key file: PRIVATE+KEY+, name, plus, key id, plus, base64 of
// type and seed. It holds the secret.
func (s *Secret) Marshal() []byte {
	return fmt.Appendf(nil, "%s%s+%08x+%s\n", secretPrefix, s.key.name, s.key.KeyHash(),
		base64.StdEncoding.EncodeToString(append([]byte{byte(s.key.scheme)}, s.seed...)))
}

// ParseSecrets reads a key file: one key a line, of one name and at most one of each type.
// It fails with [ErrKey], and says nothing of what is in the file.
func ParseSecrets(file []byte) ([]*Secret, error) {
	var all []*Secret
	for line := range strings.Lines(string(file)) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), secretPrefix)
		name, rest, _ := strings.Cut(rest, "+")
		id, encoded, _ := strings.Cut(rest, "+")
		b, err := decodeBase64(encoded)
		if !ok || err != nil || len(b) < 2 {
			return nil, fmt.Errorf("%w: a line is no secret key; starling log key makes one", ErrKey)
		}
		s, err := newSecret(name, Scheme(b[0]), b[1:])
		if err != nil {
			return nil, err
		}
		if fmt.Sprintf("%08x", s.key.KeyHash()) != id {
			return nil, fmt.Errorf("%w: the file is damaged", ErrKey)
		}
		for _, o := range all {
			if o.key.name != s.key.name || o.key.scheme == s.key.scheme {
				return nil, fmt.Errorf("%w: keys of two names, or two of one type, in one file", ErrKey)
			}
			if o.key.scheme != CosignMLDSA && s.key.scheme != CosignMLDSA {
				return nil, fmt.Errorf("%w: a log's key and a witness's in one file", ErrKey)
			}
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: no key in the file; starling log key makes one", ErrKey)
	}
	return all, nil
}

// Key is the public half.
func (s *Secret) Key() *Key { return s.key }

// At is the key as note.Sign takes it, signing at a time.
func (s *Secret) At(t time.Time) Timed { return Timed{s, t} }

// Timed is a secret key that signs at one time. It implements note.Signer.
type Timed struct {
	s *Secret
	t time.Time
}

// Name implements note.Signer.
func (t Timed) Name() string { return t.s.key.name }

// KeyHash implements note.Signer.
func (t Timed) KeyHash() uint32 { return t.s.key.KeyHash() }

// Sign implements note.Signer.
func (t Timed) Sign(text []byte) ([]byte, error) {
	if t.s.key.scheme == Ed25519 {
		return ed25519.Sign(t.s.ed, text), nil
	}
	if t.t.Unix() <= 0 {
		return nil, errors.New("tlog: a cosignature needs a time")
	}
	at := uint64(t.t.Unix())
	message, err := cosigned(t.s.key.name, t.s.key.scheme, text, at)
	if err != nil {
		return nil, err
	}
	sig := binary.BigEndian.AppendUint64(nil, at)
	if t.s.key.scheme == CosignEd {
		return append(sig, ed25519.Sign(t.s.ed, message)...), nil
	}
	post, err := t.s.post.Sign(nil, message, nil)
	return append(sig, post...), err
}

// Format implements fmt.Formatter: the secret is never printed.
func (*Secret) Format(f fmt.State, _ rune) { io.WriteString(f, "redacted") }

// LogValue implements slog.LogValuer.
func (*Secret) LogValue() slog.Value { return slog.StringValue("redacted") }

// MarshalText is what other encoders, such as encoding/json, print.
func (*Secret) MarshalText() ([]byte, error) { return []byte("redacted"), nil }
