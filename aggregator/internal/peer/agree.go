package peer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/starling-agg/starling/aggregator/internal/agreement"
	"github.com/starling-agg/starling/dap"
)

// Where an aggregator is compared with its peer: below its base URL, and below
// tasks/{task}/. They are ours, not the draft's; package agreement has the messages.
const (
	AgreementPath = "starling_agreement"
	LedgerPath    = "starling_ledger"
)

// TaskHeader names one of the tasks that a comparison is about, so that a helper which has
// not been asked about any in its life can tell whose token it is.
const TaskHeader = "Starling-Task"

// The media of the two.
const (
	MediaAgreement dap.Media = "starling-agreement"
	MediaLedger    dap.Media = "starling-ledger"
)

// A Comparison is the way to one helper under one token, for [agreement.Book.Exchange].
type Comparison struct {
	Client *Client
	Helper *url.URL
	Secret string
	Task   dap.TaskID // one of those that it is about
}

// Agree implements [agreement.Wire].
func (c *Comparison) Agree(ctx context.Context, body []byte) ([]byte, error) {
	return c.post(ctx, AgreementPath, MediaAgreement, body)
}

// Part implements [agreement.Wire].
func (c *Comparison) Part(ctx context.Context, id dap.TaskID, body []byte) ([]byte, error) {
	return c.post(ctx, "tasks/"+id.Base64()+"/"+LedgerPath, MediaLedger, body)
}

func (c *Comparison) post(ctx context.Context, path string, m dap.Media, body []byte) ([]byte, error) {
	short := *c.Client
	short.Limit = min(short.Limit, agreement.MaxMessage)
	resp, answer, err := short.send(ctx, http.MethodPost, dap.ResourceURL(c.Helper, path), bearer{secret: c.Secret, task: c.Task}, dap.ContentType(m), body)
	if absent(err) {
		return nil, agreement.ErrSilent
	}
	var refused *Refused
	if errors.As(err, &refused) && refused.Problem.HTTPStatus() == http.StatusBadRequest && !refused.known() {
		return nil, fmt.Errorf("%w: %w", agreement.ErrUnread, err)
	}
	if err != nil {
		return nil, err
	}
	if dap.CheckContentType(resp.Header.Get("Content-Type"), m) != nil {
		return nil, fmt.Errorf("%w: of another media type", agreement.ErrMessage)
	}
	return answer, nil
}
