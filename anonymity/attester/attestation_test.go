package attester

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/attester/attestertest"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

var (
	now        = time.Unix(1_795_000_000, 0)
	deployment = [32]byte{9}
)

// A front is an attester as devices reach it, over TLS that asks them for a certificate.
type front struct {
	t        *testing.T
	attester *Attester
	server   *httptest.Server
	log      bytes.Buffer
}

func serve(t *testing.T, attestation Attestation, fsys disk.FS) *front {
	t.Helper()
	f := &front{t: t}
	var err error
	f.attester, err = New(Options{Deployment: deployment, Signer: signedtest.Signer(t, signed.Generate(), now, time.Hour), Attestation: attestation,
		Leader: "https://leader.example/issue", Helper: "https://helper.example/issue", FS: fsys,
		Terms: func(uint32) (Terms, bool) { return Terms{}, false }, Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(&f.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	f.server = httptest.NewUnstartedServer(f.attester)
	f.server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	f.server.StartTLS()
	t.Cleanup(f.close)
	return f
}

func (f *front) close() {
	f.server.Close()
	f.attester.Close()
}

// enrol returns what the attester answers: "200", or a status and the word of a refusal.
func (f *front) enrol(secret byte, proof string, shown ...tls.Certificate) string {
	f.t.Helper()
	b, err := (&visit.Enrolment{Secret: [32]byte{secret}, Proof: []byte(proof)}).Append(nil)
	if err != nil {
		f.t.Fatal(err)
	}
	transport := f.server.Client().Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if len(shown) == 0 {
			return new(tls.Certificate), nil
		}
		return &shown[0], nil
	}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Post(f.server.URL+"/enrol", visit.EnrolMedia, bytes.NewReader(b))
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, bytes.TrimSpace(said)))
}

// claims are those of a token that is taken, for an enrolment with a secret.
func claims(p *attestertest.Provider, who string, secret byte) map[string]any {
	return p.Claims(who, visit.Nonce(deployment, [32]byte{secret}), now)
}

func byProvider(t *testing.T, p *attestertest.Provider, change func(*OIDCOptions)) *OIDC {
	t.Helper()
	o := OIDCOptions{Issuer: p.Server.URL, Audience: "starling", Key: NameKey{1}, Transport: p.Server.Client().Transport, Now: func() time.Time { return now }}
	if change != nil {
		change(&o)
	}
	x, err := NewOIDC(o)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestOIDC: a person with an ID token made for this enrolment is one device, and one only,
// whichever key signed; nobody else is, and nothing that is kept or logged says who it is.
func TestOIDC(t *testing.T) {
	p := attestertest.NewProvider(t)
	fsys := disktest.NewMem(1)
	f := serve(t, byProvider(t, p, nil), fsys)
	ada := p.Token(t, "RS256", "rsa", claims(p, "ada", 1), p.RSA)
	for i, c := range []struct {
		name   string
		secret byte
		proof  string
		want   string
	}{
		{"the first", 1, ada, "200"},
		{"the same again", 1, ada + "\n", "200"},
		{"a token of the same person for the same enrolment", 1, p.Token(t, "ES256", "ec", claims(p, "ada", 1), p.EC), "200"},
		{"the token with another secret", 2, ada, "403 unproved"},
		{"the same person with another secret", 2, p.Token(t, "RS256", "rsa", claims(p, "ada", 2), p.RSA), "409 enrolled-other"},
		{"another person with the first's secret", 1, p.Token(t, "RS256", "rsa", claims(p, "bob", 1), p.RSA), "409 enrolled-other"},
		{"another person", 3, p.Token(t, "ES256", "ec", claims(p, "bob", 3), p.EC), "200"},
	} {
		if got := f.enrol(c.secret, c.proof); got != c.want {
			t.Errorf("%d, %s: %s, want %s", i, c.name, got, c.want)
		}
	}
	with := func(change func(map[string]any)) map[string]any {
		c := claims(p, "eve", 4)
		change(c)
		return c
	}
	set := func(key string, value any) map[string]any { return with(func(c map[string]any) { c[key] = value }) }
	public := x509.MarshalPKCS1PublicKey(&p.RSA.PublicKey)
	for name, proof := range map[string]string{
		"another audience":    p.Token(t, "RS256", "rsa", set("aud", "mail"), p.RSA),
		"asked for by others": p.Token(t, "RS256", "rsa", set("azp", "mail"), p.RSA),
		"several audiences":   p.Token(t, "RS256", "rsa", set("aud", []string{"mail", "starling"}), p.RSA),
		"another issuer":      p.Token(t, "RS256", "rsa", set("iss", "https://provider.example"), p.RSA),
		"over":                p.Token(t, "RS256", "rsa", set("exp", now.Add(-time.Second).Unix()), p.RSA),
		"old":                 p.Token(t, "RS256", "rsa", set("iat", now.Add(-defaultAge-time.Second).Unix()), p.RSA),
		"of tomorrow":         p.Token(t, "RS256", "rsa", set("iat", now.Add(skew+time.Second).Unix()), p.RSA),
		"without its time":    p.Token(t, "RS256", "rsa", with(func(c map[string]any) { delete(c, "iat") }), p.RSA),
		"without a nonce":     p.Token(t, "RS256", "rsa", with(func(c map[string]any) { delete(c, "nonce") }), p.RSA),
		"without a person":    p.Token(t, "RS256", "rsa", with(func(c map[string]any) { delete(c, "sub") }), p.RSA),
		"a person of no text": p.Token(t, "RS256", "rsa", set("sub", ""), p.RSA),
		"a long person":       p.Token(t, "RS256", "rsa", set("sub", strings.Repeat("e", maxClaim+1)), p.RSA),
		"another key":         p.Token(t, "ES256", "ec", claims(p, "eve", 4), attestertest.Key(t)),
		"under another name":  p.Token(t, "ES256", "rsa", claims(p, "eve", 4), p.EC),
		"none":                p.Token(t, "none", "rsa", claims(p, "eve", 4), nil),
		"HS256 by the key":    p.Token(t, "HS256", "rsa", claims(p, "eve", 4), public),
		"changed":             strings.Replace(p.Token(t, "RS256", "rsa", claims(p, "eve", 4), p.RSA), ".", ".A", 1),
		"no token":            "code",
	} {
		if got := f.enrol(4, proof); got != "403 unproved" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := f.enrol(4, p.Token(t, "RS256", "rsa", set("aud", []string{"starling"}), p.RSA)); got != "200" {
		t.Errorf("and yet that person could: %s", got)
	}
	kept, err := disk.ReadFile(fsys, devicesFile, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ada", "bob", "eve"} {
		h := sha256.Sum256([]byte(name))
		if bytes.Contains(kept, []byte(name)) || bytes.Contains(kept, h[:]) || strings.Contains(f.log.String(), name) {
			t.Errorf("%s is kept or logged", name)
		}
	}
}

// TestOIDCProvider: a provider that does not answer, or answers what is too long or no JSON,
// has devices come again, and is asked no more often for all that strangers bring; a key that
// it makes is known soon, and one that it takes back is not known for long.
func TestOIDCProvider(t *testing.T) {
	p := attestertest.NewProvider(t)
	clock := now
	x := byProvider(t, p, func(o *OIDCOptions) { o.Now = func() time.Time { return clock } })
	device := func(kid string) error {
		c := claims(p, "ada", 1)
		c["iat"], c["exp"] = clock.Unix(), clock.Add(time.Minute).Unix()
		_, err := x.Device(t.Context(), &Evidence{Proof: []byte(p.Token(t, "RS256", kid, c, p.RSA)), Nonce: visit.Nonce(deployment, [32]byte{1})})
		return err
	}
	want := func(what string, err, is error, asked int32) {
		t.Helper()
		if !errors.Is(err, is) {
			t.Errorf("%s: %v, want %v", what, err, is)
		}
		if n := p.Asked.Swap(0); n != asked {
			t.Errorf("%s: the provider was asked %d times, want %d", what, n, asked)
		}
	}
	p.Down.Store(true)
	want("it is down", device("rsa"), ErrAway, 1)
	want("at once again", device("rsa"), ErrAway, 0)
	p.Down.Store(false)
	want("it is back, and not asked yet", device("rsa"), ErrAway, 0)
	clock = clock.Add(askAgain)
	want("it is asked again", device("rsa"), nil, 2)
	for range 20 {
		want("a stranger's key", device("stranger"), ErrProof, 0)
	}
	p.Publish(t, "new", "ec")
	want("a new key that is not known yet", device("new"), ErrProof, 0)
	clock = clock.Add(askAgain)
	want("a new key", device("new"), nil, 1)
	want("the key that it took back", device("rsa"), ErrProof, 0)
	clock = clock.Add(keysAge)
	p.Publish(t, "newer", "ec")
	want("after an hour", device("new"), ErrProof, 2)
	for name, keys := range map[string]string{"too long": `{"keys": []}` + strings.Repeat(" ", maxProvided), "no JSON": "<html>"} {
		clock = clock.Add(askAgain)
		b := []byte(keys)
		p.Keys.Store(&b)
		want(name, device("unknown"), ErrAway, 1)
	}
	for name, o := range map[string]OIDCOptions{
		"plain HTTP": {Issuer: "http://provider.example", Audience: "a", Key: NameKey{1}}, "no audience": {Issuer: p.Server.URL, Key: NameKey{1}},
		"no key": {Issuer: p.Server.URL, Audience: "a"}} {
		if _, err := NewOIDC(o); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	f := serve(t, x, disktest.NewMem(1))
	p.Down.Store(true)
	clock = clock.Add(keysAge)
	if got := f.enrol(1, "token"); got != "503 provider-away" || f.attester.Outcome("provider-away") != 1 {
		t.Errorf("the attester says %s", got)
	}
}

func leaf(serial string) *x509.Certificate { return attestertest.Device(serial, now) }

// TestCertificates: a device is whoever holds the key of a certificate for clients that the
// operator's authority signed and that holds now; by the subject's number it stays one when
// its key is another, and by the key it stays one when its certificate is.
func TestCertificates(t *testing.T) {
	ours, others := attestertest.NewAuthority(t, now), attestertest.NewAuthority(t, now)
	roots := x509.NewCertPool()
	roots.AddCert(ours.Cert)
	key, second := attestertest.Key(t), attestertest.Key(t)
	good := ours.Sign(t, leaf("17"), key)
	with := func(change func(*x509.Certificate)) tls.Certificate {
		c := leaf("18")
		change(c)
		return ours.Sign(t, c, attestertest.Key(t))
	}
	stolen := tls.Certificate{Certificate: good.Certificate, PrivateKey: second}
	for name, by := range map[string]CertificateName{"key": CertificateKey, "serial": SubjectSerial} {
		x, err := NewCertificates(CertificateOptions{Roots: roots, Name: by, Key: NameKey{1}, Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		fsys := disktest.NewMem(1)
		f := serve(t, x, fsys)
		sameKey, sameSerial := "200", "409 enrolled-other" // with the first's secret, and with another
		if by == SubjectSerial {
			sameKey, sameSerial = "409 enrolled-other", "409 enrolled-other"
		}
		for i, c := range []struct {
			what   string
			secret byte
			shown  tls.Certificate
			want   string
		}{
			{"the first", 1, good, "200"},
			{"again", 1, good, "200"},
			{"with another secret", 2, good, "409 enrolled-other"},
			{"its key under another number", 1, ours.Sign(t, leaf("19"), key), sameKey},
			{"its number under another key, with its secret", 1, ours.Sign(t, leaf("17"), second), map[CertificateName]string{CertificateKey: sameSerial, SubjectSerial: "200"}[by]},
			{"another device", 3, ours.Sign(t, leaf("20"), attestertest.Key(t)), "200"},
			{"another authority's", 4, others.Sign(t, leaf("21"), attestertest.Key(t)), "403 unproved"},
			{"its own", 4, new(attestertest.Authority).Sign(t, leaf("21"), attestertest.Key(t)), "403 unproved"},
			{"expired", 4, with(func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Second) }), "403 unproved"},
			{"of tomorrow", 4, with(func(c *x509.Certificate) { c.NotBefore = now.Add(time.Second) }), "403 unproved"},
			{"of a server", 4, with(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), "403 unproved"},
			{"of no use", 4, with(func(c *x509.Certificate) { c.ExtKeyUsage = nil }), "403 unproved"},
		} {
			if got := f.enrol(c.secret, visit.CertificateProof, c.shown); got != c.want {
				t.Errorf("by %s, %d, %s: %s, want %s", name, i, c.what, got, c.want)
			}
		}
		if got := f.enrol(4, visit.CertificateProof); got != "403 unproved" {
			t.Errorf("by %s, without a certificate: %s", name, got)
		}
		if got := f.enrol(4, "code", good); got != "403 unproved" {
			t.Errorf("by %s, with a code: %s", name, got)
		}
		if got := f.enrol(4, visit.CertificateProof, stolen); strings.HasPrefix(got, "200") || strings.HasPrefix(got, "4") {
			t.Errorf("by %s, a certificate without its key comes as far as %s", name, got)
		}
		if by == SubjectSerial {
			if got := f.enrol(4, visit.CertificateProof, ours.Sign(t, leaf(""), attestertest.Key(t))); got != "403 unproved" {
				t.Errorf("without a number: %s", got)
			}
		}
	}
}

// TestNames: devices that are known keep their names, so an attester starts with no other
// attestation, provider, claim or key than theirs.
func TestNames(t *testing.T) {
	codes, file, err := MakeCodes(1)
	if err != nil {
		t.Fatal(err)
	}
	byCode, err := ReadCodes(file)
	if err != nil {
		t.Fatal(err)
	}
	oidcWith := func(key byte, issuer, claim string) Attestation {
		x, err := NewOIDC(OIDCOptions{Issuer: issuer, Audience: "a", Claim: claim, Key: NameKey{key}})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	certificates := func(name CertificateName) Attestation {
		x, err := NewCertificates(CertificateOptions{Roots: x509.NewCertPool(), Name: name, Key: NameKey{1}})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	start := func(x Attestation, fsys disk.FS) error {
		a, err := New(Options{Deployment: deployment, Signer: signedtest.Signer(t, signed.Generate(), now, time.Hour), Attestation: x, Leader: "https://a.example/", Helper: "https://b.example/",
			FS: fsys, Terms: func(uint32) (Terms, bool) { return Terms{}, false }})
		if err != nil {
			return err
		}
		return a.Close()
	}
	one := func() Attestation { return oidcWith(1, "https://p.example", "") }
	for i, c := range []struct {
		first, then Attestation
		want        error
	}{
		{one(), one(), nil},
		{one(), oidcWith(1, "https://p.example", "sub"), nil},
		{one(), oidcWith(2, "https://p.example", ""), ErrNames},
		{one(), oidcWith(1, "https://q.example", ""), ErrNames},
		{one(), oidcWith(1, "https://p.example", "employee"), ErrNames},
		{one(), byCode, ErrNames},
		{one(), certificates(CertificateKey), ErrNames},
		{certificates(CertificateKey), certificates(CertificateKey), nil},
		{certificates(CertificateKey), certificates(SubjectSerial), ErrNames},
	} {
		mem := disktest.NewMem(uint64(i))
		if err := start(c.first, mem); err != nil {
			t.Fatal(err)
		}
		if err := start(c.then, mem); !errors.Is(err, c.want) {
			t.Errorf("%d: %v, want %v", i, err, c.want)
		}
	}
	mem := disktest.NewMem(99)
	f := serve(t, byCode, mem)
	if err := f.attester.Enrol(context.Background(), &visit.Enrolment{Proof: []byte(codes[0])}, nil); err != nil {
		t.Fatal(err)
	}
	f.close()
	if err := start(one(), mem); !errors.Is(err, ErrNames) {
		t.Errorf("devices by codes become those of a provider: %v", err)
	}
}
