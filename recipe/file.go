package recipe

import (
	"errors"
	"fmt"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dp/certificate"
)

// MaxFileSize bounds the bytes of a recipe file.
const MaxFileSize = MaxSize + 2*(3+certificate.MaxSize)

// ErrUncertified is what the *[CertificateError] of a recipe that claims a guarantee, and
// that no certificate follows, wraps.
var ErrUncertified = errors.New("the recipe stands alone, and nothing proves what it claims")

// SplitFile cuts the bytes of a recipe file:
//
//	struct {
//	  Recipe recipe;                    // see [Recipe.Append]
//	  opaque proof<0..2^24-1>;          // of the guarantee
//	  opaque plain<0..2^24-1>;          // of what is left on none of its conditions
//	} RecipeFile;
//
// The recipe's id is over the recipe alone. The bytes behind it are its certificate:
// nothing where the recipe claims nothing, and else one proof or two, as
// [Recipe.Releases] says, each in the encoding of package certificate. The second is
// empty where nothing can be proved of it. Here none of that is read: [OpenFile] does.
func SplitFile(b []byte) (recipe, certificate []byte, err error) {
	if len(b) > MaxFileSize {
		return nil, nil, fmt.Errorf("%w: longer than %d bytes", ErrMalformed, MaxFileSize)
	}
	if len(b) == 0 || b[0] != Version {
		return b, nil, nil // which Read refuses
	}
	s := cryptobyte.String(b[1:])
	var skipped cryptobyte.String
	choices := func(n int) bool {
		for range n {
			if !s.Skip(1) || !s.ReadUint16LengthPrefixed(&skipped) {
				return false
			}
		}
		return true
	}
	ok := s.ReadUint8LengthPrefixed(&skipped) && s.ReadUint16LengthPrefixed(&skipped) && // name, description
		choices(6) && s.Skip(8+8) && choices(1) && s.ReadUint16LengthPrefixed(&skipped) // window, extensions
	if !ok {
		return b, nil, nil // truncated, as Read says with where
	}
	at := len(b) - len(s)
	return b[:at:at], b[at:], nil
}

// OpenFile is [Open] of a recipe file, by the certificate that it holds: no accountant is
// asked. It fails with *[CertificateError] where there is none, one of another recipe, or
// more than one.
func OpenFile(b []byte) (*Checked, error) {
	recipe, certificate, err := SplitFile(b)
	if err != nil {
		return nil, err
	}
	c, err := Open(recipe, Certified(certificate))
	if err == nil && c.Recipe().Exact() && len(certificate) > 0 {
		return nil, &CertificateError{"follows a recipe that claims nothing", nil}
	}
	return c, err
}

// AppendCertificate appends the certificate of these proofs to a recipe's bytes.
func AppendCertificate(dst []byte, proofs ...[]byte) ([]byte, error) {
	b := cryptobyte.NewBuilder(dst)
	for _, proof := range proofs {
		b.AddUint24LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(proof) })
	}
	out, err := b.Bytes()
	if err != nil {
		return nil, fmt.Errorf("recipe: encode: %w", err)
	}
	return out, nil
}

// splitCertificate reads the n proofs of a certificate, and nothing else.
func splitCertificate(b []byte, n int) ([][]byte, error) {
	if len(b) == 0 {
		return nil, &CertificateError{"is missing", ErrUncertified}
	}
	proofs := make([][]byte, n)
	s := cryptobyte.String(b)
	for i := range proofs {
		if !s.ReadUint24LengthPrefixed((*cryptobyte.String)(&proofs[i])) {
			return nil, &CertificateError{fmt.Sprintf("is cut off: of %s, the %s is not whole", count(uint64(n), "proof", "proofs"), []string{"first", "second"}[i]), nil}
		}
		if len(proofs[i]) > certificate.MaxSize {
			return nil, &CertificateError{fmt.Sprintf("has a proof of %d bytes, want at most %d", len(proofs[i]), certificate.MaxSize), nil}
		}
	}
	if !s.Empty() {
		return nil, &CertificateError{fmt.Sprintf("is followed by %s that are no part of it", count(uint64(len(s)), "byte", "bytes")), nil}
	}
	return proofs, nil
}
