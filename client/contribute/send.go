package contribute

import (
	"bytes"
	"context"
	"net/http"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/internal/tries"
	"github.com/starling-agg/starling/internal/exchange"
	"github.com/starling-agg/starling/shuffle/onion"
)

// Send sends envelopes that [Contributor.Prepare] made. An acknowledged one is stored by
// whoever takes it, or by the gateway; whether it counts nobody is told. To send the same
// ones again is safe. Through a relay each goes alone, as client.Tries says; else many go
// in a request, which is repeated where it failed for the moment.
//
// It fails with *[client.UploadError]: before anything is sent around [onion.ErrEnvelope]
// for what is no envelope of the recipe.
func (c *Contributor) Send(ctx context.Context, envelopes ...[]byte) error {
	for _, e := range envelopes {
		if _, _, rest, err := onion.ReadEnvelope(e); err != nil || len(rest) > 0 || len(e) != c.size() {
			return &client.UploadError{Err: onion.ErrEnvelope}
		}
	}
	some := max(1, c.o.MaxRequest/c.size())
	if c.o.Via != nil {
		some = 1
	}
	for done := 0; done < len(envelopes); {
		n := min(some, len(envelopes)-done)
		if err := c.post(ctx, http.MethodPost, bytes.Join(envelopes[done:done+n], nil)); err != nil {
			return &client.UploadError{Acknowledged: done, Err: err}
		}
		done += n
	}
	return nil
}

// Cover sends through the relay, in place of an envelope, a request that nobody but the
// gateway can tell from one, and that the gateway drops. It fails with [client.ErrNoRelay],
// and as Send.
func (c *Contributor) Cover(ctx context.Context) error {
	if c.o.Via == nil {
		return client.ErrNoRelay
	}
	if err := c.post(ctx, ohttp.MethodCover, make([]byte, c.size())); err != nil {
		return &client.UploadError{Err: err}
	}
	return nil
}

func (c *Contributor) post(ctx context.Context, method string, body []byte) error {
	if c.o.Via != nil {
		return c.o.Tries.Deliver(ctx, c.o.Via, tries.Request{Method: method, URL: c.URL(), Type: onion.ContributionsMedia, Body: body})
	}
	_, err := exchange.Do(ctx, c.o.HTTP, exchange.Request{Method: method, URL: c.URL(), Media: media, Body: body}, c.retry)
	return err
}

// Report sends answers of people, all given now, each as one contribution. It fails as
// [Contributor.Refresh], [Contributor.Prepare] and [Contributor.Send] do.
func (c *Contributor) Report(ctx context.Context, values ...client.Value) error {
	if err := c.Refresh(ctx); err != nil {
		return err
	}
	now := c.o.Now()
	envelopes := make([][]byte, len(values))
	for i, v := range values {
		var err error
		if envelopes[i], err = c.Prepare(v, now); err != nil {
			return err
		}
	}
	return c.Send(ctx, envelopes...)
}
