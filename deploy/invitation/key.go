package invitation

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/starling-agg/starling/dap"
)

// keyMagic opens the file of a key.
const keyMagic = "starling agreement key v1\n"

// Domain strings of what is derived from a secret; each is followed by a zero byte and a
// task's id.
const (
	agreementDomain      = "starling agreement v1"
	seedDomain           = "starling verify key seed v1"
	peerTokenDomain      = "starling peer token v1"
	collectorTokenDomain = "starling collector token v1"
	relayTokenDomain     = "starling relay token v1"
)

// Errors of agreement.
var (
	// ErrKey: a file is no key.
	ErrKey = errors.New("invitation: not a key file, or damaged")
	// ErrOwn: an invitation is of the key itself.
	ErrOwn = errors.New("invitation: it is one's own")
	// ErrRoles: two parties of these roles share nothing.
	ErrRoles = errors.New("invitation: the two share no secret")
)

// A Key is the long-term key of one party.
type Key struct{ private *ecdh.PrivateKey }

// NewKey makes a key.
func NewKey() (*Key, error) {
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("invitation: make a key: %w", err)
	}
	return &Key{k}, nil
}

// Public is its public half, as invitations have it.
func (k *Key) Public() [32]byte { return [32]byte(k.private.PublicKey().Bytes()) }

// Marshal is the key's file. It holds the secret.
func (k *Key) Marshal() []byte {
	return fmt.Appendf([]byte(keyMagic), "%x\n", k.private.Bytes())
}

// ParseKey reads a key's file, all of it, or fails with [ErrKey].
func ParseKey(file []byte) (*Key, error) {
	text, ok := bytes.CutPrefix(file, []byte(keyMagic))
	if !ok || len(text) != 65 {
		return nil, ErrKey
	}
	b, err := hex.DecodeString(string(text[:64]))
	if err != nil {
		return nil, ErrKey // the cause might quote it
	}
	private, err := ecdh.X25519().NewPrivateKey(b)
	if err != nil {
		return nil, ErrKey
	}
	k := &Key{private}
	if !bytes.Equal(k.Marshal(), file) {
		return nil, ErrKey
	}
	return k, nil
}

// A Secret is what two parties share.
type Secret struct {
	root  [32]byte
	roles string // both, as "helper leader"
}

// Agree computes the secret of the party of a role that has the key, and of who made an
// invitation; both sides get the same. It fails with [ErrOwn] or [ErrRoles].
func (k *Key) Agree(role string, theirs *Invitation) (*Secret, error) {
	if err := theirs.Validate(); err != nil {
		return nil, err
	}
	mine := k.Public()
	if mine == theirs.Key {
		return nil, ErrOwn
	}
	a, b := role, theirs.Role
	aKey, bKey := mine, theirs.Key
	if a > b {
		a, b, aKey, bKey = b, a, bKey, aKey
	}
	roles := a + " " + b
	switch roles {
	case "helper leader", "collector leader", "gateway relay":
	default:
		return nil, fmt.Errorf("%w: %s and %s", ErrRoles, role, theirs.Role)
	}
	public, err := ecdh.X25519().NewPublicKey(theirs.Key[:])
	if err != nil {
		return nil, fmt.Errorf("%w: key", ErrFormat)
	}
	shared, err := k.private.ECDH(public) // refuses keys of small order
	if err != nil {
		return nil, fmt.Errorf("%w: key: %w", ErrFormat, err)
	}
	salt := sha256.Sum256([]byte(agreementDomain))
	info := strings.Join([]string{agreementDomain, a, string(aKey[:]), b, string(bKey[:])}, "\x00")
	root, err := hkdf.Key(sha256.New, shared, salt[:], info, 32)
	if err != nil {
		return nil, fmt.Errorf("invitation: derive: %w", err)
	}
	return &Secret{[32]byte(root), roles}, nil
}

// derive is a key of 32 bytes for one use.
func (s *Secret) derive(use, context string) ([]byte, error) {
	b, err := hkdf.Expand(sha256.New, s.root[:], use+"\x00"+context, 32)
	if err != nil {
		return nil, fmt.Errorf("invitation: derive: %w", err)
	}
	return b, nil
}

// Token is the bearer token with which one of the two comes to the other for a task: the
// leader to the helper, or the collector to the leader. A relay comes to its gateway with
// the one of the zero task.
func (s *Secret) Token(task dap.TaskID) (string, error) {
	use := map[string]string{"helper leader": peerTokenDomain, "collector leader": collectorTokenDomain, "gateway relay": relayTokenDomain}[s.roles]
	b, err := s.derive(use, string(task[:]))
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// VerifyKey is the VDAF verification key of a task of leader and helper, or [ErrRoles].
func (s *Secret) VerifyKey(task dap.TaskID) (key [dap.VerifyKeySize]byte, err error) {
	if s.roles != "helper leader" {
		return key, fmt.Errorf("%w: a verification key is leader's and helper's", ErrRoles)
	}
	seed, err := s.derive(seedDomain, "")
	if err != nil {
		return key, err
	}
	return dap.DeriveVerifyKey(seed, task)
}

// Format, LogValue and MarshalText keep keys and secrets out of what is printed.
func (*Key) Format(f fmt.State, _ rune)      { io.WriteString(f, "redacted") }
func (*Key) LogValue() slog.Value            { return slog.StringValue("redacted") }
func (*Key) MarshalText() ([]byte, error)    { return []byte("redacted"), nil }
func (*Secret) Format(f fmt.State, _ rune)   { io.WriteString(f, "redacted") }
func (*Secret) LogValue() slog.Value         { return slog.StringValue("redacted") }
func (*Secret) MarshalText() ([]byte, error) { return []byte("redacted"), nil }
