package deploy

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"

	"github.com/starling-agg/starling/deploy/invitation"
	"github.com/starling-agg/starling/internal/endpoint"
	"github.com/starling-agg/starling/internal/service"
)

// Via is another way to a party than its URL, such as a listener that is its peer's
// alone.
type Via struct {
	// URL is where its requests go instead; the path stays that of the party's URL.
	// Optional; https unless it stays on this machine.
	URL string `toml:"url"`
	// TLSCertificate is a PEM file, shown to a listener that asks for one. Both it and
	// TLSKey, or none.
	TLSCertificate service.Path `toml:"tls_certificate"`
	// TLSKey is the certificate's key, a PEM file.
	TLSKey service.Secret `toml:"tls_key"`
	// TLSCA are the certificates, in a PEM file, of those who sign the listener's.
	// Optional; the machine's if not given.
	TLSCA service.Path `toml:"tls_ca"`
}

func (v Via) validate() error {
	if (v.TLSCertificate == "") != (v.TLSKey == "") {
		return errors.New("tls_certificate: goes together with tls_key")
	}
	if v.URL == "" {
		return nil
	}
	u, err := endpoint.Parse(v.URL)
	if err != nil || u.Path != "" && u.Path != "/" {
		return errors.New("url: want https://host:port/")
	}
	if err := endpoint.CheckPeer(v.URL); err != nil {
		return fmt.Errorf("url: %w", err)
	}
	return nil
}

// transport is nil where there is nothing to do. The party's invitation, which may be
// nil, says which certificate is its own.
func (v Via) transport(party *invitation.Invitation) (http.RoundTripper, error) {
	pool, err := trusts(party)
	if err != nil {
		return nil, err
	}
	if v == (Via{}) && pool == nil {
		return nil, nil
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool}
	if v.TLSCertificate != "" {
		key, err := v.TLSKey.Read()
		if err != nil {
			return nil, fmt.Errorf("tls_key: %w", err)
		}
		cert, err := readFile(string(v.TLSCertificate), maxPublicKey)
		if err != nil {
			return nil, fmt.Errorf("tls_certificate: %w", err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("tls_certificate: %w", err)
		}
		t.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	if v.TLSCA != "" {
		b, err := os.ReadFile(string(v.TLSCA))
		if err != nil {
			return nil, fmt.Errorf("tls_ca: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("tls_ca: no certificate in %s", v.TLSCA)
		}
		t.TLSClientConfig.RootCAs = pool
	}
	if v.URL == "" {
		return t, nil
	}
	u, err := url.Parse(v.URL)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	return viaTransport{u, t}, nil
}

// viaTransport sends all requests to one place.
type viaTransport struct {
	to   *url.URL
	next http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (v viaTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	host := r.URL.Host
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host, r.Host = v.to.Scheme, v.to.Host, host
	return v.next.RoundTrip(r)
}
