package client

import (
	"context"
	"time"

	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client/internal/tries"
	"github.com/starling-agg/starling/dap"
)

// Tries say how a device sends what goes through a relay: how often, how far apart, and for
// how long each. Zero fields are what the manifest says, for all devices alike.
type Tries = tries.Tries

// ErrMisdirected: the gateway does not serve the recipe's leader, or its first hop or
// analyzer.
var ErrMisdirected = tries.ErrMisdirected

// clockSkew is by how much a device's clock may differ from those that made its manifest.
const clockSkew = time.Minute

// Lasts says whether a manifest can be used until the last try of an upload that begins
// now is over, on clocks that differ. A caller that pays for an upload asks before. It
// fails with [ohttp.ErrManifest].
func (c *Client) Lasts(m *ohttp.Manifest) error { return c.o.Lasts(m) }

// Lasts is that of a client with these options.
func (o *Options) Lasts(m *ohttp.Manifest) error {
	now := o.now()
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
	return c.o.Tries.Deliver(ctx, c.o.Via, tries.Request{
		Method: method, URL: c.UploadURL(), Type: dap.ContentType(dap.MediaUploadReq), Header: map[string]string{admission.Field: shown}, Body: body,
	})
}
