package wrap

import (
	"context"
	"errors"
)

// A Box is a wrapped secret.
type Box struct {
	// Key names the wrapping key: at most [MaxName] bytes of printable ASCII.
	Key string
	// Sealed is at most [MaxSealed] bytes.
	Sealed []byte
}

// Bounds, in bytes.
const (
	// MaxSecret bounds a secret: key management services take no more in a request.
	MaxSecret = 4096
	MaxName   = 256
	MaxSealed = 8192
)

// A Wrapper wraps secrets and unwraps them. Methods may be called from many goroutines.
//
// Errors are, by [errors.Is]: [ErrBox] for good, [ErrNoKey] until the key is there,
// [ErrDenied] until somebody allows it, and [ErrUnavailable] for now. An error of the
// context is itself.
type Wrapper interface {
	// Newest is the name of the wrapping key that Wrap takes.
	Newest(ctx context.Context) (key string, err error)
	// Wrap wraps a secret of 1 to [MaxSecret] bytes. aad says what it is.
	Wrap(ctx context.Context, secret, aad []byte) (Box, error)
	// Unwrap is the secret that was wrapped with the same aad. The caller clears it.
	Unwrap(ctx context.Context, box Box, aad []byte) ([]byte, error)
}

// Errors of a [Wrapper].
var (
	// ErrBox: a box is not what was wrapped, or is of something else.
	ErrBox = errors.New("wrap: the wrapped secret is not what was written there, or is another's")
	// ErrNoKey: there is no such wrapping key here.
	ErrNoKey = errors.New("wrap: the wrapping key is not here")
	// ErrDenied: the key management service refuses.
	ErrDenied = errors.New("wrap: the key management service refuses")
	// ErrUnavailable: the key management service cannot be reached, or fails.
	ErrUnavailable = errors.New("wrap: the key management service is not available")
)

// Check refuses a secret that no [Wrapper] takes.
func Check(secret []byte) error {
	if len(secret) == 0 || len(secret) > MaxSecret {
		return errors.New("wrap: internal error: a secret is empty or too long")
	}
	return nil
}

// Fits says whether a box may be one.
func (b *Box) Fits() bool {
	for _, c := range []byte(b.Key) {
		if c < 0x21 || c > 0x7e {
			return false
		}
	}
	return b.Key != "" && len(b.Key) <= MaxName && len(b.Sealed) > 0 && len(b.Sealed) <= MaxSealed
}
