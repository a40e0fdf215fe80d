package task

import (
	"net/http/httptest"
	"testing"
)

func TestTokenBears(t *testing.T) {
	token := NewToken("a-token-of-some-length")
	for header, want := range map[string]bool{
		"Bearer a-token-of-some-length":  true,
		"bearer a-token-of-some-length":  true,
		"Bearer a-token-of-some-lengt":   false,
		"Bearer a-token-of-some-lengthX": false,
		"Bearer  a-token-of-some-length": false,
		"Basic a-token-of-some-length":   false,
		"a-token-of-some-length":         false,
		"Bearer":                         false,
		"Bearer ":                        false,
		"":                               false,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		if got := token.Bears(r); got != want {
			t.Errorf("%q: %v", header, got)
		}
	}
	twice := httptest.NewRequest("GET", "/", nil)
	twice.Header.Add("Authorization", "Bearer a-token-of-some-length")
	twice.Header.Add("Authorization", "Bearer a-token-of-some-length")
	if token.Bears(twice) {
		t.Error("two headers are taken")
	}
	// No token matches nothing, the empty token least of all.
	empty := httptest.NewRequest("GET", "/", nil)
	empty.Header.Set("Authorization", "Bearer ")
	if NewToken("").Bears(empty) || (Token{}).Bears(empty) {
		t.Error("the empty token is a token")
	}
}
