// Package attestertest has who vouches for people and devices, for tests: an identity provider
// that is reached over TLS, and an authority that signs certificates.
package attestertest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// Audience is the client that a provider's tokens are for.
const Audience = "starling"

// A Provider is an identity provider with a key for RS256 and one for ES256.
type Provider struct {
	Server *httptest.Server
	RSA    *rsa.PrivateKey
	EC     *ecdsa.PrivateKey
	// Asked counts the requests that came.
	Asked atomic.Int32
	// Keys is what it answers for its keys, and Down has it answer nothing else than 502.
	Keys atomic.Pointer[[]byte]
	Down atomic.Bool
}

// NewProvider starts a provider, whose keys are called rsa and ec.
func NewProvider(t testing.TB) *Provider {
	t.Helper()
	p := &Provider{EC: Key(t)}
	var err error
	if p.RSA, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.Asked.Add(1)
		switch {
		case p.Down.Load():
			w.WriteHeader(http.StatusBadGateway)
		case r.URL.Path == "/.well-known/openid-configuration":
			fmt.Fprintf(w, `{"issuer": %q, "jwks_uri": %q, "id_token_signing_alg_values_supported": ["HS256", "none", "RS256"]}`, p.Server.URL, p.Server.URL+"/keys?of=all")
		case r.URL.Path == "/keys":
			w.Write(*p.Keys.Load())
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(p.Server.Close)
	p.Publish(t, "rsa", "ec")
	return p
}

var b64 = base64.RawURLEncoding.EncodeToString

// Publish has the provider say its keys under other names.
func (p *Provider) Publish(t testing.TB, rsaName, ecName string) {
	t.Helper()
	point, err := p.EC.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := json.Marshal(map[string]any{"keys": []map[string]string{
		{"kty": "RSA", "kid": rsaName, "n": b64(p.RSA.N.Bytes()), "e": "AQAB"},
		{"kty": "EC", "kid": ecName, "crv": "P-256", "x": b64(point[1:33]), "y": b64(point[33:])}}})
	if err != nil {
		t.Fatal(err)
	}
	p.Keys.Store(&keys)
}

// CA is the certificate of who vouches for the provider's address, in PEM.
func (p *Provider) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Server.Certificate().Raw})
}

// Claims are those of a token that is taken for an enrolment with a nonce.
func (p *Provider) Claims(who, nonce string, now time.Time) map[string]any {
	return map[string]any{"iss": p.Server.URL, "aud": Audience, "sub": who, "iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(), "nonce": nonce}
}

// Token is signed as alg says, with a key of the provider or of others: RS256, ES256, HS256
// with bytes, and nothing with nil.
func (p *Provider) Token(t testing.TB, alg, kid string, claims map[string]any, by any) string {
	t.Helper()
	part := func(x any) string {
		b, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		return b64(b)
	}
	said := part(map[string]string{"alg": alg, "kid": kid, "typ": "JWT"}) + "." + part(claims)
	h := sha256.Sum256([]byte(said))
	var signature []byte
	var err error
	switch k := by.(type) {
	case *rsa.PrivateKey:
		signature, err = rsa.SignPKCS1v15(nil, k, crypto.SHA256, h[:])
	case *ecdsa.PrivateKey:
		var r, s *big.Int
		if r, s, err = ecdsa.Sign(rand.Reader, k, h[:]); err == nil {
			signature = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
		}
	case []byte:
		m := hmac.New(sha256.New, k)
		m.Write([]byte(said))
		signature = m.Sum(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return said + "." + b64(signature)
}

// Key makes a key on P-256.
func Key(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// An Authority signs certificates. The zero one has them signed by their own keys.
type Authority struct {
	key  *ecdsa.PrivateKey
	Cert *x509.Certificate
}

// NewAuthority makes an authority, which holds from an hour before to an hour after a time.
func NewAuthority(t testing.TB, now time.Time) *Authority {
	t.Helper()
	k := Key(t)
	made := new(Authority).Sign(t, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, k)
	return &Authority{k, made.Leaf}
}

// Sign signs a certificate for a key.
func (a *Authority) Sign(t testing.TB, c *x509.Certificate, of *ecdsa.PrivateKey) tls.Certificate {
	t.Helper()
	parent, by := a.Cert, a.key
	if parent == nil {
		parent, by = c, of
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &of.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: of, Leaf: leaf}
}

// Device is a device's certificate as it is taken, to be signed, whose subject has a
// serialNumber.
func Device(serial string, now time.Time) *x509.Certificate {
	return &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "device", SerialNumber: serial}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
}

// Server is the certificate of a server on this machine, to be signed.
func Server(now time.Time) *x509.Certificate {
	return &x509.Certificate{SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "server"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
}

// PEM is a certificate and its key, as files have them.
func PEM(t testing.TB, c tls.Certificate) (cert, key []byte) {
	t.Helper()
	b, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b})
}
