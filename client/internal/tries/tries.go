// Package tries sends what goes through a relay: one request of a device, at times that are
// fixed when it begins, whatever is in it and whatever becomes of it.
package tries

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/internal/exchange"
)

// Tries say how a device sends what goes through a relay: at times that are fixed when it
// begins, until the first answer that the gateway sealed, whatever that is, and alike for
// reports, dummies and covers. So how often a device sends, and when, tells nothing but
// how relay and gateway did. No refusal in the clear is read for more than that it is
// one, and none says when to try again.
//
// All devices should do alike, and what the manifest says is for all: fields that are not
// zero are for tests.
type Tries struct {
	// Count is how often at most; zero is what the manifest says.
	Count int
	// Every is the time from the beginning of one try to that of the next; zero is what
	// the manifest says.
	Every time.Duration
	// Timeout bounds one try; zero is 45 s. It is never longer than Every.
	Timeout time.Duration
}

const defaultTimeout = 45 * time.Second

// Validate says what is wrong with tries.
func (t Tries) Validate() error {
	if t.Count < 0 || t.Every < 0 || t.Timeout < 0 {
		return errors.New("client: tries: negative")
	}
	return nil
}

// Or fills in what is not said.
func (t Tries) Or(count int, every time.Duration) Tries {
	if t.Count == 0 {
		t.Count = count
	}
	if t.Every == 0 {
		t.Every = every
	}
	if t.Timeout == 0 {
		t.Timeout = defaultTimeout
	}
	t.Timeout = min(t.Timeout, t.Every)
	return t
}

// ErrMisdirected: the gateway does not serve whom the recipe names.
var ErrMisdirected = errors.New("client: the gateway serves another leader")

// A Way leads requests through a relay and a gateway.
type Way interface {
	Do(*http.Request) (*http.Response, error)
	Pace(context.Context) (tries int, every time.Duration, err error)
}

// A Request is what is sent, the same bytes in each try.
type Request struct {
	Method string
	URL    *url.URL
	Type   string // media type of the body
	// Header has further fields; empty values are not sent.
	Header map[string]string
	Body   []byte
}

// Deliver sends a request. An error says that no answer came that the gateway sealed, or
// is [ErrMisdirected].
func (t Tries) Deliver(ctx context.Context, via Way, r Request) error {
	begin := time.Now()
	count, every, err := via.Pace(ctx)
	if err != nil {
		return err
	}
	t = t.Or(count, every)
	var last error
	for k := range t.Count {
		if err := exchange.Sleep(ctx, time.Until(begin.Add(time.Duration(k)*t.Every))); err != nil {
			return err
		}
		status, err := once(ohttp.WithTry(ctx, k), via, r, t.Timeout)
		direct := new(ohttp.DirectError)
		switch {
		case err == nil && status/100 == 2:
			return nil
		case err == nil:
			return ErrMisdirected
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &direct), errors.Is(err, ohttp.ErrManifest):
			return err // nothing was sent, nor will be
		}
		last = err
	}
	return &exchange.UnavailableError{Attempts: t.Count, Err: last}
}

// once sends a request once and returns the status of the answer that the gateway sealed.
func once(ctx context.Context, via Way, r Request, timeout time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, r.Method, r.URL.String(), bytes.NewReader(r.Body))
	if err != nil {
		return 0, fmt.Errorf("client: %w", err)
	}
	q.Header.Set("Content-Type", r.Type)
	for name, value := range r.Header {
		if value != "" {
			q.Header.Set(name, value)
		}
	}
	resp, err := via.Do(q)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, ohttp.MinResponse)); err != nil {
		return 0, fmt.Errorf("client: %w", err)
	}
	return resp.StatusCode, nil
}
