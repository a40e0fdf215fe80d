package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
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

const (
	defaultTimeout = 45 * time.Second
	// clockSkew is by how much a device's clock may differ from those that made its
	// manifest.
	clockSkew = time.Minute
)

// Validate says what is wrong with tries.
func (t Tries) Validate() error {
	if t.Count < 0 || t.Every < 0 || t.Timeout < 0 {
		return errors.New("client: tries: negative")
	}
	return nil
}

// or fills in what is not said.
func (t Tries) or(count int, every time.Duration) Tries {
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

// ErrMisdirected: the gateway does not serve the recipe's leader.
var ErrMisdirected = errors.New("client: the gateway serves another leader")

// Lasts says whether a manifest can be used until the last try of an upload that begins
// now is over, on clocks that differ. A caller that pays for an upload asks before. It
// fails with [ohttp.ErrManifest].
func (c *Client) Lasts(m *ohttp.Manifest) error {
	now := c.o.Now()
	if err := m.ValidAt(now); err != nil {
		return err
	}
	return m.ValidAt(now.Add(m.Sending() + clockSkew))
}

// deliver sends the request of a unit of a time through the relay to the gateway, by
// [Tries], with one token in all of them. An error says that no answer came that the
// gateway sealed, or is [ErrMisdirected], or of [Options.Admission]: then nothing is sent.
func (c *Client) deliver(ctx context.Context, unit dap.Time, method string, body []byte) error {
	shown, err := c.admission(unit)
	if err != nil {
		return err
	}
	begin := time.Now()
	count, every, err := c.o.Via.Pace(ctx)
	if err != nil {
		return err
	}
	tries := c.o.Tries.or(count, every)
	var last error
	for k := range tries.Count {
		if err := exchange.Sleep(ctx, time.Until(begin.Add(time.Duration(k)*tries.Every))); err != nil {
			return err
		}
		status, err := c.try(ohttp.WithTry(ctx, k), method, shown, body, tries.Timeout)
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
	return &UnavailableError{Attempts: tries.Count, Err: last}
}

// try sends a request once and returns the status of the answer that the gateway sealed.
func (c *Client) try(ctx context.Context, method, shown string, body []byte, timeout time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, c.UploadURL().String(), bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("client: %w", err)
	}
	r.Header.Set("Content-Type", dap.ContentType(dap.MediaUploadReq))
	if shown != "" {
		r.Header.Set(admission.Field, shown)
	}
	resp, err := c.o.Via.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, ohttp.MinResponse)); err != nil {
		return 0, fmt.Errorf("client: %w", err)
	}
	return resp.StatusCode, nil
}
