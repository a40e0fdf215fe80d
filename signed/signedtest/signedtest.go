// Package signedtest makes signers for tests.
package signedtest

import (
	"testing"
	"time"

	"github.com/starling-agg/starling/signed"
)

// Signer makes an online key that root lets sign from a time on, for so long.
func Signer(t testing.TB, root *signed.PrivateKey, from time.Time, d time.Duration) *signed.Signer {
	t.Helper()
	online := signed.Generate()
	delegation, err := signed.Delegate(root, online.Public(), from, from.Add(d))
	if err != nil {
		t.Fatal(err)
	}
	s, err := signed.NewSigner(online, delegation)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
