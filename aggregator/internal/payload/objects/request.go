package objects

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/amazon"
	"github.com/starling-agg/starling/aggregator/internal/payload"
)

// Bounds of answers that are not ranges of objects, in bytes: a page of 1,000 keys has
// some 300 KiB, a refusal 1 KiB.
const (
	maxAnswer  = 4 << 20
	maxRefusal = 64 << 10
)

// Codes of S3's errors, and of stores that speak S3.
var (
	codesFull   = []string{"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "InsufficientCapacity"}
	codesDenied = []string{
		"AccessDenied", "AllAccessDisabled", "AccountProblem", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "InvalidSecurity",
		"NotSignedUp", "RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired",
	}
	// two puts of one name at once, of which the store cannot tell yet which was first; a
	// body that came too slowly
	codesAgain = []string{"ConditionalRequestConflict", "OperationAborted", "RequestTimeout"}
)

// A refusal is an answer other than the one that was hoped for.
type refusal struct {
	status  int
	Code    string
	Message string
}

func (r *refusal) Error() string {
	s := fmt.Sprintf("HTTP status %d", r.status)
	if r.Code != "" {
		s += ", " + r.Code
	}
	if r.Message != "" {
		s += fmt.Sprintf(": %.300q", r.Message)
	}
	return s
}

// kind is what a refusal is for the caller.
func (r *refusal) kind() error {
	switch {
	case r.status == http.StatusPreconditionFailed:
		return payload.ErrExists
	case r.Code == "NoSuchKey":
		return payload.ErrNotFound
	case slices.Contains(codesFull, r.Code) || r.status == http.StatusInsufficientStorage:
		return payload.ErrFull
	case slices.Contains(codesDenied, r.Code) || r.status == http.StatusForbidden || r.status == http.StatusUnauthorized:
		return payload.ErrDenied
	}
	return payload.ErrUnavailable
}

// again says whether the same request may fare better.
func (r *refusal) again(creds *amazon.Credentials) bool {
	switch r.status {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return slices.Contains(codesAgain, r.Code) || r.kind() == payload.ErrDenied && creds.Changed()
}

// request is what is asked of the store, as often as it takes.
type request struct {
	method string
	name   string // of an object; empty for all of the S3 bucket
	query  url.Values
	header http.Header
	parts  [][]byte
	// read takes a good answer. An error that is none of payload's is an answer that
	// ended early, and the request is made again.
	read func(*http.Response) error
	// broken, if there is one, is called after an attempt whose connection broke before an
	// answer came; an error of it ends the request.
	broken func() error
}

// do makes a request until it is answered for good, a bounded number of times.
func (s *Store) do(ctx context.Context, what string, r *request) error {
	hash := sha256.New()
	for _, part := range r.parts {
		hash.Write(part)
	}
	sum := hex.EncodeToString(hash.Sum(nil))
	for attempt := 1; ; attempt++ {
		err := s.once(ctx, r, sum)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return payload.Ended(ctx, what)
		}
		kind, again := payload.ErrUnavailable, true
		var refused *refusal
		switch {
		case errors.Is(err, payload.ErrCorrupt):
			return fmt.Errorf("%w: %s", err, what)
		case errors.As(err, &refused):
			kind, again = refused.kind(), refused.again(s.creds)
		case r.broken != nil && !isTimeout(err):
			if err := r.broken(); err != nil {
				return err
			}
		}
		if !again || attempt >= s.opt.Attempts {
			return fmt.Errorf("%w: %s: %w", kind, what, err)
		}
		if s.opt.wait(ctx, attempt) != nil {
			return payload.Ended(ctx, what)
		}
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// once makes a request once, signed with the credentials of the moment.
func (s *Store) once(ctx context.Context, r *request, sum string) error {
	u := s.base
	if r.name != "" {
		// No name, prefix or S3 bucket has a character that a URL would escape.
		u.Path += "/" + s.opt.Prefix + r.name
	}
	u.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), newBody(r.parts))
	if err != nil {
		return err
	}
	req.GetBody = func() (io.ReadCloser, error) { return newBody(r.parts), nil }
	for _, part := range r.parts {
		req.ContentLength += int64(len(part))
	}
	if req.ContentLength == 0 {
		req.Body, req.GetBody = http.NoBody, nil
	}
	for key, values := range r.header {
		req.Header[key] = values
	}
	req.Header.Set("X-Amz-Content-Sha256", sum)
	creds, err := s.creds.Current()
	if err != nil {
		return fmt.Errorf("objects: %w", err)
	}
	if err := s.signer.SignHTTP(ctx, creds, req, sum, "s3", s.opt.Region, time.Now()); err != nil {
		return err
	}
	response, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 == 2 {
		return r.read(response)
	}
	refused := &refusal{status: response.StatusCode}
	// A page of a proxy, say, is no refusal of S3's and has its status alone.
	if b, err := io.ReadAll(io.LimitReader(response.Body, maxRefusal)); err == nil {
		_ = xml.NewDecoder(bytes.NewReader(b)).Decode(refused)
	}
	return refused
}

// drained reads an answer that says no more than its status, so that the connection can
// be used again.
func drained(response *http.Response) error {
	_, err := io.Copy(io.Discard, io.LimitReader(response.Body, maxRefusal))
	return err
}

// body reads parts one after the other.
type body struct {
	io.Reader
}

func newBody(parts [][]byte) *body {
	readers := make([]io.Reader, len(parts))
	for i, part := range parts {
		readers[i] = bytes.NewReader(part)
	}
	return &body{io.MultiReader(readers...)}
}

// Close implements [io.Closer].
func (*body) Close() error { return nil }

// pause is how long to wait after an attempt, from 1: at random, so that replicas that
// failed together do not come back together.
func (o *Options) pause(attempt int) time.Duration {
	longest := o.Pause << min(attempt, 5)
	var random [8]byte
	rand.Read(random[:]) // never fails
	return longest/4 + time.Duration(binary.BigEndian.Uint64(random[:])%uint64(max(1, 3*longest/4)))
}

// wait waits for the pause after an attempt.
func (o *Options) wait(ctx context.Context, attempt int) error {
	timer := time.NewTimer(o.pause(attempt))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
