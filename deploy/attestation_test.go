package deploy

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/attester"
	"github.com/starling-agg/starling/anonymity/attester/attestertest"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/client/credentials"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// An attesting is an attester of a recipe by a kind of attestation, and its files.
type attesting struct {
	*logWorld
	at         Listeners
	url        string
	deployment [32]byte
}

// newAttesting writes an attester's files, with more in its configuration in the place of
// codes, and [public] where it speaks TLS.
func newAttesting(t *testing.T, kind recipe.Attestation, more, public string) *attesting {
	t.Helper()
	w := &attesting{logWorld: &logWorld{t: t, dir: filepath.Join(t.TempDir(), "x")}}
	var err error
	if w.at, err = LoopbackParty(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.at.Close)
	if w.owners, err = NewOwners(); err != nil {
		t.Fatal(err)
	}
	w.url = w.at.URL()
	if public != "" {
		w.url = strings.Replace(w.url, "http:", "https:", 1)
	}
	o := account.Options{Name: "Test", Query: recipe.Count{}, Leader: "https://leader.example/", Helper: "https://helper.example/", MinBatch: 100,
		Epsilon: recipe.Decimal{Coefficient: 1}, Relay: &recipe.Relay{URL: "https://relay.example/", Gateway: "https://gateway.example/"},
		Tokens: &recipe.Tokens{Attester: w.url, Key: w.owners.Attester.Public(), Attestation: kind, MinCohort: 1}}
	if o.ServerKeys, err = w.owners.ServerKeys(true); err != nil {
		t.Fatal(err)
	}
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if w.deployment, err = r.Deployment(); err != nil {
		t.Fatal(err)
	}
	servers, err := Loopback()
	if err != nil {
		t.Fatal(err)
	}
	servers.Close()
	if err := CreateFor(w.dir, r, servers, w.owners); err != nil {
		t.Fatal(err)
	}
	if _, err = CreateAttester(w.dir, w.at, 3); err != nil {
		t.Fatal(err)
	}
	w.write("secrets/names", strings.Repeat("5a", 32)+"\n")
	b, err := os.ReadFile(w.in(AttesterFile))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), "codes = \"codes\"", "names = \"secrets/names\"", 1)
	text = strings.Replace(text, "[public]\n", "[public]\n"+public, 1)
	w.write(AttesterFile, text+more)
	return w
}

func (w *attesting) start() *Attester {
	w.t.Helper()
	c, err := LoadAttester(w.in(AttesterFile))
	if err != nil {
		w.t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		w.t.Fatal(err)
	}
	w.serve(c.Parts(service.NewLogger(new(bytes.Buffer), 99), w.at))
	return c
}

func (w *attesting) wallet(fsys disk.FS, over *http.Client) *credentials.Wallet {
	w.t.Helper()
	o := credentials.Options{Attester: w.url, Deployment: w.deployment, FS: fsys}
	if over != nil {
		o.HTTP = over
	}
	x, err := credentials.Open(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return x
}

func refusedAs(t *testing.T, what string, err error, word string) {
	t.Helper()
	if said := new(credentials.RefusedError); !errors.As(err, &said) || said.Word != word {
		t.Errorf("%s: %v, want %q", what, err, word)
	}
}

// TestAttestOIDC: an attester goes by an identity provider as its file has it. A device that
// got no answer enrols with another token and is the same; another of the same person, and one
// with the token of another, is none.
func TestAttestOIDC(t *testing.T) {
	p := attestertest.NewProvider(t)
	w := newAttesting(t, recipe.OIDC, "[oidc]\nissuer = \""+p.Server.URL+"\"\naudience = \""+attestertest.Audience+"\"\nca = \"provider.pem\"\n", "")
	w.write("provider.pem", string(p.CA()))
	w.start()
	token := func(x *credentials.Wallet, who string) []byte {
		nonce, err := x.Nonce()
		if err != nil {
			t.Fatal(err)
		}
		return []byte(p.Token(t, "ES256", "ec", p.Claims(who, nonce, time.Now()), p.EC))
	}
	fsys := disktest.NewMem(1)
	lost := token(w.wallet(fsys, nil), "ada") // on its way the connection breaks
	if err := w.wallet(fsys, &http.Client{Transport: breaks{}}).EnrolAs(t.Context(), lost); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	ada := w.wallet(fsys, nil)
	if ada.Enrolled() {
		t.Error("it believes what it was not told")
	}
	if err := ada.EnrolAs(t.Context(), token(ada, "ada")); err != nil || !w.wallet(fsys, nil).Enrolled() {
		t.Errorf("%v", err)
	}
	second := w.wallet(disktest.NewMem(2), nil)
	refusedAs(t, "ada's second device", second.EnrolAs(t.Context(), token(second, "ada")), "enrolled-other")
	refusedAs(t, "a stolen token", second.EnrolAs(t.Context(), lost), "unproved")
	refusedAs(t, "a code", w.wallet(disktest.NewMem(3), nil).Enrol(t.Context(), []byte("CODE")), "unproved")
	if err := second.EnrolAs(t.Context(), token(second, "bob")); err != nil {
		t.Error(err)
	}
	b, err := disk.ReadFile(fsys, "wallet", 1<<16)
	if err != nil || bytes.Contains(b, lost[:20]) {
		t.Errorf("the wallet keeps the token, or %v", err)
	}
}

var errBroken = errors.New("broken")

// breaks brings a request and loses the answer.
type breaks struct{}

func (breaks) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := http.DefaultTransport.RoundTrip(r); err != nil {
		return nil, err
	}
	return nil, errBroken
}

// TestAttestMTLS: an attester asks those who enrol for a certificate and goes by that, while
// others visit without one; and it is one of the recipe's kind alone.
func TestAttestMTLS(t *testing.T) {
	now := time.Now()
	ours, others := attestertest.NewAuthority(t, now), attestertest.NewAuthority(t, now)
	w := newAttesting(t, recipe.MTLS, "[mtls]\nca = \"devices.pem\"\nname = \"subject-serial\"\n", "tls_certificate = \"attester.pem\"\ntls_key = \"secrets/attester.key\"\n")
	cert, key := attestertest.PEM(t, ours.Sign(t, attestertest.Server(now), attestertest.Key(t)))
	w.write("attester.pem", string(cert))
	w.write("secrets/attester.key", string(key))
	ca, _ := attestertest.PEM(t, tls.Certificate{Certificate: [][]byte{ours.Cert.Raw}, PrivateKey: attestertest.Key(t)})
	w.write("devices.pem", string(ca))
	c := w.start()
	roots := x509.NewCertPool()
	roots.AddCert(ours.Cert)
	over := func(shown ...tls.Certificate) *http.Client {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if len(shown) == 0 {
				return new(tls.Certificate), nil
			}
			return &shown[0], nil
		}}}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	enrol := func(seed uint64, shown ...tls.Certificate) error {
		return w.wallet(disktest.NewMem(seed), over(shown...)).EnrolAs(t.Context(), []byte(visit.CertificateProof))
	}
	if err := enrol(1, ours.Sign(t, attestertest.Device("17", now), attestertest.Key(t))); err != nil {
		t.Error(err)
	}
	refusedAs(t, "the same device, renewed, from another directory", enrol(2, ours.Sign(t, attestertest.Device("17", now), attestertest.Key(t))), "enrolled-other")
	refusedAs(t, "another authority's", enrol(3, others.Sign(t, attestertest.Device("18", now), attestertest.Key(t))), "unproved")
	refusedAs(t, "none", enrol(4), "unproved")
	if err := enrol(5, ours.Sign(t, attestertest.Device("18", now), attestertest.Key(t))); err != nil {
		t.Error(err)
	}
	c.OIDC, c.MTLS = AttesterOIDC{Issuer: "https://provider.example", Audience: "a"}, AttesterMTLS{}
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), "by it devices enrol with mtls, and here with oidc") {
		t.Errorf("an attester of another kind than the recipe's: %v", err)
	}
	w.write("secrets/names", "5a\n")
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), "has not 64 hexadecimal digits") {
		t.Errorf("a short key: %v", err)
	}
}

// TestCodesAdded: a code whose line comes while the attester runs is one; a file that is
// damaged meanwhile takes no code away.
func TestCodesAdded(t *testing.T) {
	codes, file, err := attester.MakeCodes(2)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(file), "\n") // the head, two hashes, and nothing
	x := &codeList{path: filepath.Join(t.TempDir(), "codes")}
	put := func(text string) {
		if err := os.WriteFile(x.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		x.looked = time.Time{} // a second has gone
	}
	known := func() (n int) {
		for _, code := range codes {
			if _, err := x.Device(t.Context(), &attester.Evidence{Proof: []byte(code)}); err == nil {
				n++
			} else if !errors.Is(err, attester.ErrProof) {
				t.Error(err)
			}
			x.looked = time.Time{}
		}
		return n
	}
	put(lines[0] + lines[1])
	if err := x.read(); err != nil || known() != 1 {
		t.Fatalf("%v", err)
	}
	put(lines[0] + lines[1] + "no hash\n")
	if n := known(); n != 1 {
		t.Errorf("a damaged file leaves %d codes", n)
	}
	put(string(file))
	if n := known(); n != 2 {
		t.Errorf("%d codes are known after one was added", n)
	}
}
