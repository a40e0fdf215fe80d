package signed

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/starling-agg/starling/internal/wire"
)

// A List is the HPKE keys that an aggregator offers, with all that says whose they are:
// signed for one deployment, role, address and time, it passes for no other.
type List struct {
	// Deployment is what the aggregator is a part of, as recipes name it.
	Deployment [32]byte
	// Role is [Leader] or [Helper].
	Role Role
	// URL is the aggregator's base URL, byte for byte as the recipe has it.
	URL string
	// Epoch is that in which NotBefore lies.
	Epoch uint32
	// NotBefore and NotAfter bound the keys' use by devices, in whole seconds.
	NotBefore, NotAfter time.Time
	// Body is the list as the aggregator gives it to anybody: DAP's HpkeConfigList.
	Body []byte
}

// ErrList: malformed, or not the list that is wanted, or not to be used now.
var ErrList = errors.New("signed: not the key list that is wanted")

const (
	// listDomain opens what is signed about a list.
	listDomain = "starling key list v1"
	// ListMessage is the message parameter of DAP's media type for an encoded list, and
	// ListMedia the whole media type.
	ListMessage = "starling-key-list"
	ListMedia   = "application/ppm-dap;message=" + ListMessage
	// MaxList bounds an encoded list, in bytes.
	MaxList = 24 << 10

	maxListURL = 2 << 10
)

func (l *List) body() ([]byte, error) {
	switch {
	case l.Role != Leader && l.Role != Helper:
		return nil, fmt.Errorf("%w: of a %v", ErrList, l.Role)
	case len(l.URL) < 1 || len(l.URL) > maxListURL || len(l.Body) == 0:
		return nil, fmt.Errorf("%w: no address or no key", ErrList)
	case !validTime(l.NotBefore) || !validTime(l.NotAfter) || !l.NotAfter.After(l.NotBefore):
		return nil, fmt.Errorf("%w: from %s until %s", ErrList, l.NotBefore, l.NotAfter)
	}
	b, err := wire.Append(nil, ErrList, l.code)
	if err == nil && len(b)+SignatureSize > MaxList {
		err = fmt.Errorf("%w: longer than %d bytes", ErrList, MaxList)
	}
	return b, err
}

// code reads and writes what is signed.
func (l *List) code(c *wire.Coder) {
	c.Fixed(l.Deployment[:], "deployment")
	c.Uint8((*uint8)(&l.Role), "role")
	c.Text16(&l.URL, "URL")
	c.Uint32(&l.Epoch, "epoch")
	c.Seconds(&l.NotBefore, "not_before")
	c.Seconds(&l.NotAfter, "not_after")
	c.Vec24(&l.Body, 0, "body")
}

// Sign returns the list's encoding with its owner's signature. It fails with [ErrList]
// and [ErrWindow].
//
//	opaque deployment[32]; uint8 role; opaque url<0..2^16-1>; uint32 epoch; uint64 not_before, not_after;
//	opaque body<0..2^24-1>; opaque signature[208]; (over the domain string, a zero byte and all before)
func (l *List) Sign(s *Signer) ([]byte, error) {
	b, err := l.body()
	if err != nil {
		return nil, err
	}
	signature, err := s.Sign(listDomain, b, l.NotBefore, l.NotAfter)
	if err != nil {
		return nil, fmt.Errorf("signed: sign a key list: %w", err)
	}
	return signature.Append(b), nil
}

// ReadList reads exactly one signed list and copies what it keeps; the signature is only
// read. It fails with [ErrList].
func ReadList(b []byte) (*List, Signature, error) {
	var s Signature
	if len(b) > MaxList || len(b) < SignatureSize {
		return nil, s, fmt.Errorf("%w: cut off or too long", ErrList)
	}
	var err error
	if s, err = ReadSignature(b[len(b)-SignatureSize:]); err != nil {
		return nil, s, fmt.Errorf("%w: %w", ErrList, err)
	}
	l := &List{}
	if err := wire.Read(bytes.Clone(b[:len(b)-SignatureSize]), ErrList, l.code); err != nil {
		return nil, s, err
	}
	if _, err := l.body(); err != nil {
		return nil, s, err
	}
	return l, s, nil
}

// OpenList reads a signed list and says whether it is the one of a deployment, role and
// address, signed for the owner of a root. It looks at no clock. It fails with [ErrList],
// [ErrSignature], [ErrWindow] or [ErrKey].
func OpenList(b []byte, root PublicKey, deployment [32]byte, role Role, url string) (*List, error) {
	l, s, err := ReadList(b)
	if err != nil {
		return nil, err
	}
	switch {
	case l.Deployment != deployment:
		return nil, fmt.Errorf("%w: of another deployment", ErrList)
	case l.Role != role:
		return nil, fmt.Errorf("%w: of the %v, want the %v's", ErrList, l.Role, role)
	case l.URL != url:
		return nil, fmt.Errorf("%w: of %q, want %q", ErrList, l.URL, url)
	}
	message, err := l.body()
	if err != nil {
		return nil, err
	}
	if err := s.Verify(root, listDomain, message, l.NotBefore, l.NotAfter); err != nil {
		return nil, fmt.Errorf("signed: the %v's key list: %w", role, err)
	}
	return l, nil
}

// ValidAt says whether the keys may be used at a time ([ErrList]).
func (l *List) ValidAt(t time.Time) error {
	if t.Before(l.NotBefore) || !t.Before(l.NotAfter) {
		return fmt.Errorf("%w: it holds from %s until %s", ErrList, l.NotBefore.Format(time.RFC3339), l.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// ListURL is where the aggregator with a base URL has its signed list for a deployment: a
// private resource beside DAP's hpke_config, over the same bytes.
func ListURL(base string, deployment [32]byte) (string, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("%w: %q is no base URL", ErrList, base)
	}
	return u.JoinPath(ListPath(deployment)).String(), nil
}

// ListPath is the path of that resource, relative to the base URL.
func ListPath(deployment [32]byte) string {
	return "deployments/" + base64.RawURLEncoding.EncodeToString(deployment[:]) + "/hpke_config"
}
