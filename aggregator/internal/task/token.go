package task

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// A Token is what a bearer token is compared with: its digest, so that neither the
// comparison nor a dump of memory gives it away. The zero value matches nothing.
type Token struct {
	digest [sha256.Size]byte
	set    bool
}

// NewToken returns the token of that text; the empty text gives the zero Token.
func NewToken(secret string) Token {
	return Token{sha256.Sum256([]byte(secret)), secret != ""}
}

// Set says whether the token can match anything.
func (t Token) Set() bool { return t.set }

// Bears says whether the request carries the token (RFC 6750 section 2.1). The time it
// takes depends on the request alone.
func (t Token) Bears(r *http.Request) bool { return Borne(r)(t) }

// Borne says of each token whether the request carries it, as [Token.Bears] does, and
// reads the request once for all.
func Borne(r *http.Request) func(Token) bool {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return func(Token) bool { return false }
	}
	scheme, secret, ok := strings.Cut(values[0], " ")
	digest := sha256.Sum256([]byte(secret))
	ok = ok && strings.EqualFold(scheme, "Bearer")
	return func(t Token) bool {
		same := subtle.ConstantTimeCompare(digest[:], t.digest[:]) == 1
		return ok && t.set && same
	}
}
