package client

import (
	"context"
	"errors"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
)

// ErrNoRelay: cover hides a device from who watches its network, and there is something to hide behind only on the way
// through a relay ([Options.Via]).
var ErrNoRelay = errors.New("client: no relay to send cover through")

// Cover sends, in place of a report, a request that nobody but the gateway can tell from the upload of one, and that the
// gateway drops. The report is only measured: it may hold any answer, as [Client.Prepare] makes it, and none of its bytes
// are sent. Errors are those of [Client.Upload].
func (c *Client) Cover(ctx context.Context, like *dap.Report) error {
	if c.o.Via == nil {
		return ErrNoRelay
	}
	if err := c.deliver(ctx, c.o.Via, ohttp.MethodCover, c.UploadURL(), make([]byte, like.Size())); err != nil {
		return &UploadError{0, err}
	}
	return nil
}
