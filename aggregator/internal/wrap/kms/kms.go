// Package kms wraps with the keys of a key management service that speaks as Amazon's does,
// which gives them to nobody. It makes two requests, Encrypt and Decrypt, by hand, and takes
// what signs them from Amazon's SDK, whose client of the service has over fifty.
//
// Associated data goes there as an encryption context, by its SHA-256: contexts are written
// to logs. Each secret that was wrapped is unwrapped once before anybody relies on it, so
// that a service which loses it is found out at once.
package kms

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/starling-agg/starling/aggregator/internal/amazon"
	"github.com/starling-agg/starling/aggregator/internal/wrap"
	"github.com/starling-agg/starling/internal/endpoint"
	"github.com/starling-agg/starling/internal/service"
)

// Options say where the service is.
type Options struct {
	// Endpoint is its URL, such as https://kms.eu-central-1.amazonaws.com: https, or http
	// on this machine.
	Endpoint string
	Region   string
	// Keys are the ids or ARNs of the wrapping keys, the newest first. A box that names
	// another one is not sent anywhere: whoever writes rows has no say in which key opens
	// them. An alias is refused, for it may come to mean another key. At least one.
	Keys []string
	// Credentials is a file in the format of ~/.aws/credentials, of which Profile is read;
	// default "default".
	Credentials service.Secret
	Profile     string
	// RootCAs vouch for the service; default the system's.
	RootCAs *x509.CertPool
	// Attempts is how often a request is made, at most; default 4.
	Attempts int
	// Timeout bounds one attempt; default 10 s.
	Timeout time.Duration
	// Pause is how long the first pause between attempts is, doubled each time; default
	// 100 ms.
	Pause time.Duration
}

// Validate fills in defaults and reports values that make no sense.
func (o *Options) Validate() error {
	if o.Attempts == 0 {
		o.Attempts = 4
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Pause == 0 {
		o.Pause = 100 * time.Millisecond
	}
	switch {
	case o.Region == "":
		return errors.New("kms: no region")
	case len(o.Keys) == 0:
		return errors.New("kms: no key")
	case o.Attempts < 1 || o.Attempts > 20 || o.Timeout < 0 || o.Pause < 0:
		return fmt.Errorf("kms: %d attempts of %v with pauses of %v", o.Attempts, o.Timeout, o.Pause)
	}
	for i, key := range o.Keys {
		box := wrap.Box{Key: key, Sealed: []byte{0}}
		if !box.Fits() || slices.Contains(o.Keys[:i], key) {
			return fmt.Errorf("kms: %q is no name of a key, or there twice", key)
		}
		if strings.HasPrefix(key, "alias/") || strings.Contains(key, ":alias/") {
			return fmt.Errorf("kms: %s may come to mean another key: name the key by its id or ARN", key)
		}
	}
	if err := endpoint.CheckPeer(o.Endpoint); err != nil {
		return fmt.Errorf("kms: %w", err)
	}
	return nil
}

// Service is a key management service. It implements [wrap.Wrapper].
type Service struct {
	opt    Options
	creds  *amazon.Credentials
	signer *v4.Signer
	client *http.Client
}

var _ wrap.Wrapper = (*Service)(nil)

// Open returns a handle. It reads the credentials, and asks nothing of the service yet.
func Open(opt Options) (*Service, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	creds, err := amazon.Open(opt.Credentials, opt.Profile)
	if err != nil {
		return nil, fmt.Errorf("kms: %w", err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: opt.RootCAs}
	return &Service{opt: opt, creds: creds, signer: v4.NewSigner(), client: &http.Client{
		Transport: transport, Timeout: opt.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Newest implements [wrap.Wrapper].
func (k *Service) Newest(context.Context) (string, error) { return k.opt.Keys[0], nil }

// domainContext is the key of the encryption context; it is in docs/registry.md.
const domainContext = "starling wrapped secret v1"

func encryptionContext(aad []byte) map[string]string {
	sum := sha256.Sum256(aad)
	return map[string]string{domainContext: hex.EncodeToString(sum[:])}
}

type encryptRequest struct {
	KeyID     string            `json:"KeyId"`
	Plaintext []byte            `json:"Plaintext"`
	Context   map[string]string `json:"EncryptionContext"`
}

type encryptResponse struct {
	Sealed []byte `json:"CiphertextBlob"`
}

type decryptRequest struct {
	KeyID   string            `json:"KeyId"`
	Sealed  []byte            `json:"CiphertextBlob"`
	Context map[string]string `json:"EncryptionContext"`
}

type decryptResponse struct {
	Plaintext []byte `json:"Plaintext"`
}

// Wrap implements [wrap.Wrapper].
func (k *Service) Wrap(ctx context.Context, secret, aad []byte) (wrap.Box, error) {
	if err := wrap.Check(secret); err != nil {
		return wrap.Box{}, err
	}
	key := k.opt.Keys[0]
	var r encryptResponse
	if err := k.do(ctx, "Encrypt", encryptRequest{key, secret, encryptionContext(aad)}, &r); err != nil {
		return wrap.Box{}, err
	}
	box := wrap.Box{Key: key, Sealed: r.Sealed}
	back, err := k.Unwrap(ctx, box, aad)
	if err != nil {
		return wrap.Box{}, fmt.Errorf("kms: what was wrapped just now: %w", err)
	}
	defer clear(back)
	if subtle.ConstantTimeCompare(back, secret) != 1 {
		return wrap.Box{}, fmt.Errorf("%w: it wraps another secret than it was given", wrap.ErrUnavailable)
	}
	return box, nil
}

// Unwrap implements [wrap.Wrapper].
func (k *Service) Unwrap(ctx context.Context, box wrap.Box, aad []byte) ([]byte, error) {
	if !box.Fits() {
		return nil, wrap.ErrBox
	}
	if !slices.Contains(k.opt.Keys, box.Key) {
		return nil, fmt.Errorf("%w: %s is none of the configured keys", wrap.ErrNoKey, box.Key)
	}
	var r decryptResponse
	if err := k.do(ctx, "Decrypt", decryptRequest{box.Key, box.Sealed, encryptionContext(aad)}, &r); err != nil {
		return nil, err
	}
	if len(r.Plaintext) == 0 || len(r.Plaintext) > wrap.MaxSecret {
		return nil, wrap.ErrBox
	}
	return r.Plaintext, nil
}

// A refusal is an answer other than the one that was hoped for.
type refusal struct {
	status  int
	Type    string `json:"__type"`
	Message string `json:"message"`
}

func (r *refusal) Error() string {
	return fmt.Sprintf("HTTP status %d, %.100s %.300q", r.status, r.Type, r.Message)
}

// kind is what a refusal is for the caller.
func (r *refusal) kind() error {
	switch r.Type[strings.LastIndexByte(r.Type, '#')+1:] {
	case "InvalidCiphertextException", "IncorrectKeyException":
		return wrap.ErrBox
	case "NotFoundException", "DisabledException", "KMSInvalidStateException":
		return wrap.ErrNoKey
	case "AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException", "InvalidSignatureException",
		"InvalidClientTokenId", "MissingAuthenticationTokenException", "IncompleteSignature", "SignatureDoesNotMatch":
		return wrap.ErrDenied
	}
	if r.status == http.StatusForbidden || r.status == http.StatusUnauthorized {
		return wrap.ErrDenied
	}
	return wrap.ErrUnavailable
}

// maxAnswer bounds an answer of the service, in bytes.
const maxAnswer = 64 << 10

// do makes a request until it is answered for good, a bounded number of times.
func (k *Service) do(ctx context.Context, action string, request, response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("kms: %w", err)
	}
	defer clear(body)
	for attempt := 1; ; attempt++ {
		err := k.once(ctx, action, body, response)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("kms: %s: %w", action, ctx.Err())
		}
		kind, again := wrap.ErrUnavailable, true
		var refused *refusal
		if errors.As(err, &refused) {
			kind = refused.kind()
			again = kind == wrap.ErrUnavailable || kind == wrap.ErrDenied && k.creds.Changed()
		}
		if !again || attempt >= k.opt.Attempts {
			return fmt.Errorf("%w: %s: %w", kind, action, err)
		}
		timer := time.NewTimer(k.opt.Pause << min(attempt-1, 6))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("kms: %s: %w", action, ctx.Err())
		}
	}
}

// once makes a request once, signed with the credentials of the moment.
func (k *Service) once(ctx context.Context, action string, body []byte, response any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(k.opt.Endpoint, "/")+"/", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.1")
	req.Header.Set("X-Amz-Target", "TrentService."+action)
	creds, err := k.creds.Current()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	if err := k.signer.SignHTTP(ctx, creds, req, hex.EncodeToString(sum[:]), "kms", k.opt.Region, time.Now()); err != nil {
		return err
	}
	answer, err := k.client.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return err
	}
	defer clear(b)
	if answer.StatusCode == http.StatusOK {
		return json.Unmarshal(b, response)
	}
	refused := &refusal{status: answer.StatusCode}
	_ = json.Unmarshal(b, refused) // a page of a proxy has its status alone
	return refused
}
