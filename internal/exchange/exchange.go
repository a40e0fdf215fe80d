// Package exchange makes one request of a client or a collector, of DAP or of the paths
// without proofs, and reads its answer: a body of a known media type to a server that may
// be slow, overloaded or hostile. It bounds what it reads, follows no redirects, tells
// failures apart by what may be done about them, and repeats what may be repeated. Every
// DAP request may be: the same bytes are the same resource (DAP-18 section 3.2), and a
// report is known by its id.
package exchange

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/starling-agg/starling/dap"
)

// A Doer sends one HTTP request; *http.Client is one. It must be safe for concurrent use.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// DefaultDoer returns a client that gives up on one attempt after timeout. It follows no
// redirect: whoever was named in the recipe answers, or nobody.
func DefaultDoer(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// A Request is what to ask.
type Request struct {
	Method string
	URL    *url.URL
	// Media and Body go together; both empty for a request without a body. A Media is that
	// of a DAP message, or with a slash in it a whole media type.
	Media dap.Media
	Body  []byte
	// Token is sent as a bearer token unless it is empty.
	Token string
	// Header has further fields; empty values are not sent. Optional.
	Header map[string]string
	// Want is what a body of the answer must be, and MaxBody bounds it in bytes. If Want
	// is empty no body is read.
	Want    dap.Media
	MaxBody int64
}

// An Answer has a success status. Its body may be empty and is otherwise of the media
// type that was wanted.
type Answer struct {
	Header http.Header
	Body   []byte
}

// Retry says how often and how patiently to repeat after failures that pass: no
// connection, status 408, 429 and 5xx.
type Retry struct {
	Attempts int           // in all; at least 1
	First    time.Duration // before the second attempt; doubles from there, each with a random half taken off
	Longest  time.Duration // bounds every wait, also one that the server asks for with Retry-After
}

// A StatusError is an error status without a problem document; those with one are
// *[dap.Problem].
type StatusError struct{ Status int }

func (e *StatusError) Error() string {
	return fmt.Sprintf("status %d %s", e.Status, http.StatusText(e.Status))
}

// UnavailableError: every attempt failed in a way that may pass. Whether the server acted
// on one is not known; asking again with the same bytes is safe.
type UnavailableError struct {
	Attempts int
	Err      error // of the last attempt
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("no answer after %d attempts: %v", e.Attempts, e.Err)
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// ErrAnswer: a success status with a body that is too long or not what was asked for.
var ErrAnswer = errors.New("unusable answer")

// Do sends the request until it is answered, refused or out of attempts, or the server
// shows a certificate that is not taken. Its errors are *[dap.Problem] and *[StatusError]
// for a refusal, [ErrAnswer], *[UnavailableError], one that wraps a
// *[tls.CertificateVerificationError], and the context's.
func Do(ctx context.Context, d Doer, r Request, retry Retry) (*Answer, error) {
	wait := retry.First
	for attempt := 1; ; attempt++ {
		answer, after, err := once(ctx, d, r)
		if err == nil {
			return answer, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !passing(err) {
			return nil, err
		}
		if attempt >= retry.Attempts {
			return nil, &UnavailableError{attempt, err}
		}
		pause := wait/2 + upTo(wait/2)
		if after > pause {
			pause = after
		}
		if err := Sleep(ctx, min(pause, retry.Longest)); err != nil {
			return nil, err
		}
		wait = min(2*wait, retry.Longest)
	}
}

// upTo is a random duration of at most d. A modulo's bias does no harm here.
func upTo(d time.Duration) time.Duration {
	var b [8]byte
	rand.Read(b[:])
	return time.Duration(binary.BigEndian.Uint64(b[:]) % uint64(d+1))
}

// Sleep waits for d or for the end of the context, whose cause it returns.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// transportError: no answer was had.
type transportError struct{ err error }

func (e *transportError) Error() string { return e.err.Error() }
func (e *transportError) Unwrap() error { return e.err }

// passing reports whether a failure may be gone the next time. A certificate that is not
// taken will not be taken a moment later.
func passing(err error) bool {
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		return false
	}
	if transport := new(transportError); errors.As(err, &transport) {
		return true
	}
	status := 0
	if s := new(StatusError); errors.As(err, &s) {
		status = s.Status
	}
	if p := new(dap.Problem); errors.As(err, &p) {
		status = p.HTTPStatus()
	}
	return status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status >= 500
}

// maxProblem bounds a problem document, in bytes.
const maxProblem = 16 << 10

func once(ctx context.Context, d Doer, r Request) (answer *Answer, after time.Duration, err error) {
	var body io.Reader = http.NoBody
	if len(r.Body) > 0 {
		body = bytes.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL.String(), body)
	if err != nil {
		return nil, 0, fmt.Errorf("exchange: %w", err)
	}
	if r.Media != "" {
		req.Header.Set("Content-Type", contentType(r.Media))
	}
	if r.Token != "" {
		req.Header.Set("Authorization", "Bearer "+r.Token)
	}
	for name, value := range r.Header {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	resp, err := d.Do(req)
	if err != nil {
		return nil, 0, &transportError{err}
	}
	defer resp.Body.Close()
	after = RetryAfter(resp.Header)
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, after, refusal(resp)
	}
	if r.Want == "" {
		return &Answer{Header: resp.Header}, after, nil
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, r.MaxBody+1))
	if err != nil {
		return nil, after, &transportError{err}
	}
	if int64(len(b)) > r.MaxBody {
		return nil, after, fmt.Errorf("%w: more than %d bytes", ErrAnswer, r.MaxBody)
	}
	if len(b) > 0 {
		if err := checkContentType(resp.Header.Get("Content-Type"), r.Want); err != nil {
			return nil, after, fmt.Errorf("%w: %w", ErrAnswer, err)
		}
	}
	return &Answer{resp.Header, b}, after, nil
}

// contentType is how a media type is written.
func contentType(m dap.Media) string {
	if strings.Contains(string(m), "/") {
		return string(m)
	}
	return dap.ContentType(m)
}

// checkContentType says whether a field of a header names a media type.
func checkContentType(header string, want dap.Media) error {
	if !strings.Contains(string(want), "/") {
		return dap.CheckContentType(header, want)
	}
	if got, params, err := mime.ParseMediaType(header); err != nil || got != string(want) || len(params) > 0 {
		return fmt.Errorf("%w: %.100q is not %s", dap.ErrMediaType, header, want)
	}
	return nil
}

// refusal turns an error status into an error. The status line counts, not the status in
// the document.
func refusal(resp *http.Response) error {
	plain := &StatusError{resp.StatusCode}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || media != dap.ProblemMedia || resp.StatusCode < 400 {
		return plain
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err != nil {
		return plain
	}
	p := new(dap.Problem)
	if err := json.Unmarshal(b, p); err != nil {
		return plain
	}
	p.Status = resp.StatusCode
	return p
}

// RetryAfter is the wait that an answer asks for in whole seconds, or 0 for none. The
// form with a date is not read: it would trust the server's clock.
func RetryAfter(h http.Header) time.Duration {
	n, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}
