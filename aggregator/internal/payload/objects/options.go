package objects

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/starling-agg/starling/aggregator/internal/amazon"
	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/internal/endpoint"
	"github.com/starling-agg/starling/internal/service"
)

// Options say where the objects are.
type Options struct {
	// Endpoint is the URL of the store, such as https://s3.eu-central-1.amazonaws.com:
	// https, or http on this machine.
	Endpoint string
	// Region is the store's; many have one that they call us-east-1.
	Region string
	Bucket string
	// Prefix stands before every name: folders, each with its slash, so that parties and
	// tenants may share what is there. A handle sees nothing outside of its prefix.
	Prefix string
	// PathStyle puts the S3 bucket into the path, where it is not a name of the DNS.
	PathStyle bool
	// Credentials is a file in the format of ~/.aws/credentials, of which Profile is
	// read; default "default".
	Credentials service.Secret
	Profile     string
	// RootCAs vouch for the store; default the system's.
	RootCAs *x509.CertPool
	// Attempts is how often a request is made, at most; default 4.
	Attempts int
	// Timeout bounds one attempt, with all that it sends and receives; default 30 s.
	Timeout time.Duration
	// Pause is about how long the first pause between attempts is, doubled up to 32 times
	// it; default 50 ms.
	Pause time.Duration
}

// bucketName is how S3 buckets are named, by and large: nothing that a URL would escape.
var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// Validate fills in defaults and reports values that make no sense.
func (o *Options) Validate() error {
	if o.Attempts == 0 {
		o.Attempts = 4
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Pause == 0 {
		o.Pause = 50 * time.Millisecond
	}
	switch {
	case !bucketName.MatchString(o.Bucket):
		return fmt.Errorf("objects: %q is no name of an S3 bucket", o.Bucket)
	case o.Region == "":
		return errors.New("objects: no region; a store that has none usually takes us-east-1")
	case o.Attempts < 1 || o.Attempts > 100 || o.Timeout < 0 || o.Pause < 0:
		return fmt.Errorf("objects: %d attempts of %v with pauses of %v", o.Attempts, o.Timeout, o.Pause)
	}
	if err := payload.CheckList(o.Prefix, "", 1); err != nil {
		return fmt.Errorf("objects: prefix: %w", err)
	}
	if err := endpoint.CheckPeer(o.Endpoint); err != nil {
		return fmt.Errorf("objects: endpoint: %w", err)
	}
	u, err := endpoint.Parse(o.Endpoint)
	if err != nil {
		return fmt.Errorf("objects: endpoint: %w", err)
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil && !o.PathStyle {
		return fmt.Errorf("objects: endpoint %s is an address, of which the S3 bucket cannot be a subdomain: set the path style", o.Endpoint)
	}
	return nil
}

// Store is one prefix of one S3 bucket. It implements [payload.Store].
type Store struct {
	opt    Options
	base   url.URL // of the S3 bucket
	creds  *amazon.Credentials
	signer *v4.Signer
	client *http.Client
}

// Open returns a handle. It reads the credentials, and asks nothing of the store yet.
func Open(opt Options) (*Store, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	base, err := endpoint.Parse(opt.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("objects: endpoint: %w", err)
	}
	base.Path = strings.TrimRight(base.Path, "/")
	if opt.PathStyle {
		base.Path += "/" + opt.Bucket
	} else {
		base.Host = opt.Bucket + "." + base.Host
	}
	creds, err := amazon.Open(opt.Credentials, opt.Profile)
	if err != nil {
		return nil, fmt.Errorf("objects: %w", err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// Not 1.3 as between our own parties: object stores of one's own house are often
	// older.
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: opt.RootCAs}
	transport.MaxIdleConnsPerHost = 64
	transport.DisableCompression = true // a range has the bytes that are there
	return &Store{
		opt: opt, base: *base, creds: creds,
		signer: v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }),
		client: &http.Client{
			Transport: transport, Timeout: opt.Timeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}
