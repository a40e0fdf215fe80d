package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/exchange"
	"github.com/starling-agg/starling/recipe"
)

// UploadError: an upload ended early. The first Acknowledged reports of the call were
// answered, each accepted or in the list that Upload returned beside this; of the others
// nothing is known, and they may be uploaded again as they are.
type UploadError struct {
	Acknowledged int
	Err          error
}

func (e *UploadError) Error() string {
	return fmt.Sprintf("client: upload ended after %d reports: %v", e.Acknowledged, e.Err)
}
func (e *UploadError) Unwrap() error { return e.Err }

// Upload sends reports to the leader, many in a request, and repeats requests that failed
// for the moment: the leader knows reports by their ids and counts none twice. It returns
// the reports that the leader refused, in order; every other one is acknowledged, which
// means stored.
//
// Through a relay each report goes alone, as [Tries] says, and is acknowledged by the
// gateway: it is stored there and will be offered to the leader, whose word on it nobody
// is told. None is refused then, as far as a device can know.
//
// It fails with *[UploadError], whose cause is a *[dap.Problem] where the leader refused
// a whole request, and a *[recipe.TooLargeError] where it could only refuse a report:
// then nothing is sent.
func (c *Client) Upload(ctx context.Context, reports []dap.Report) ([]dap.ReportUploadStatus, error) {
	var refused []dap.ReportUploadStatus
	for i := range reports {
		if n, most := len(reports[i].Leader.Payload), dap.DefaultLimits().MaxCiphertext; n > most {
			return nil, &UploadError{0, &recipe.TooLargeError{Bytes: n, Most: most}}
		}
	}
	if c.o.Via != nil {
		return nil, c.relay(ctx, reports)
	}
	for done := 0; done < len(reports); {
		n := c.fit(reports[done:])
		some, err := c.upload(ctx, reports[done:done+n])
		if err != nil {
			return refused, &UploadError{done, err}
		}
		refused, done = append(refused, some...), done+n
	}
	return refused, nil
}

// fit is how many of the reports, at least one, go in one request.
func (c *Client) fit(reports []dap.Report) int {
	size := 0
	for i := range reports {
		size += reports[i].Size()
		if i > 0 && size > c.o.MaxRequest {
			return i
		}
	}
	return len(reports)
}

// uploadStatusSize is an upper bound on the encoding of one dap.ReportUploadStatus, in
// bytes.
const uploadStatusSize = 32

// UploadURL is where reports are posted: the leader's reports resource for the task.
func (c *Client) UploadURL() *url.URL {
	return dap.ResourceURL(c.leader.base, dap.CreationPath(c.taskID, dap.ReportsResource))
}

func (c *Client) upload(ctx context.Context, reports []dap.Report) ([]dap.ReportUploadStatus, error) {
	body, err := dap.AppendUploadRequest(nil, reports)
	if err != nil {
		return nil, err
	}
	answer, err := exchange.Do(ctx, c.o.HTTP, exchange.Request{
		Method: http.MethodPost, URL: c.UploadURL(), Media: dap.MediaUploadReq, Body: body,
		Want: dap.MediaUploadErrors, MaxBody: int64(len(reports)) * uploadStatusSize,
	}, c.retry)
	if err != nil {
		return nil, err
	}
	return refusals(dap.Dialect{Version: c.task.Version}, answer.Body, reports)
}

// refusals reads UploadErrors, which must name reports of the request, each once and in
// its order.
func refusals(d dap.Dialect, body []byte, reports []dap.Report) ([]dap.ReportUploadStatus, error) {
	limits := dap.DefaultLimits()
	limits.MaxReports = len(reports)
	var list []dap.ReportUploadStatus
	next := 0
	for status, err := range d.UploadErrors(body, limits) {
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
		}
		for next < len(reports) && reports[next].Metadata.ID != status.ID {
			next++
		}
		if next == len(reports) {
			return nil, fmt.Errorf("%w: it refuses reports that were not sent, or out of order", ErrAnswer)
		}
		next++
		list = append(list, status)
	}
	return list, nil
}

// relay sends reports through the relay, one after the other.
func (c *Client) relay(ctx context.Context, reports []dap.Report) error {
	for i := range reports {
		body, err := dap.AppendUploadRequest(nil, reports[i:i+1])
		if err == nil {
			err = c.deliver(ctx, reports[i].Metadata.Time, http.MethodPost, body)
		}
		if err != nil {
			return &UploadError{i, err}
		}
	}
	return nil
}

// ErrNoRelay: cover hides a device from who watches its network, and there is something
// to hide behind only on the way through a relay ([Options.Via]).
var ErrNoRelay = errors.New("client: no relay to send cover through")

// Cover sends, in place of a report, a request that nobody but the gateway can tell from
// the upload of one, and that the gateway drops. The report is only measured: it may hold
// any answer, as [Client.Prepare] makes it, and none of its bytes are sent; a token that
// it shows is of the report's round. Errors are
// those of [Client.Upload].
func (c *Client) Cover(ctx context.Context, like *dap.Report) error {
	if c.o.Via == nil {
		return ErrNoRelay
	}
	if err := c.deliver(ctx, like.Metadata.Time, ohttp.MethodCover, make([]byte, like.Size())); err != nil {
		return &UploadError{0, err}
	}
	return nil
}
