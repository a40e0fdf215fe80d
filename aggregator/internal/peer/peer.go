// Package peer sends the leader's requests to the helper: it posts, polls and deletes,
// and tells apart the three kinds of failure that need different answers.
//
//   - [Refused] with a DAP type: the helper understood and will not. Sending the same
//     bytes again changes nothing.
//   - [Refused] for the deployment's own reasons (authentication, a task not provisioned
//     yet): an operator must act, and then the same bytes will do. [Refused.Definite]
//     tells the two apart.
//   - [Retry]: the outcome is unknown or the helper is busy. Sending the same bytes again
//     is the only safe recovery: the helper may have committed and its answer got lost.
package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/agreement"
	"github.com/starling-agg/starling/aggregator/internal/mend"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dap/taskprov"
)

// A Client talks to the helpers of all tasks. Safe for concurrent use.
type Client struct {
	HTTP    *http.Client
	Timeout time.Duration // of one request, answer included
	Limit   int64         // bytes of an answer
	// Heard, if not nil, is told of each request how it ended.
	Heard func(error)
}

// NewClient returns a client over rt that follows no redirects: a token goes to the
// provisioned origin only.
func NewClient(rt http.RoundTripper, timeout time.Duration, limit int64) *Client {
	return &Client{
		HTTP: &http.Client{
			Transport:     rt,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		Timeout: timeout,
		Limit:   limit,
	}
}

// A Resource is something that the helper makes for the leader.
type Resource struct {
	// Name is the leader's for the work that it is made for: where the leader chooses the
	// id, two works never share one.
	Name       string
	Task       *task.Task
	Collection dap.Collection
	Request    dap.Media
	Response   dap.Media
}

// AggregationJob is the kind of resource that verifies reports.
func AggregationJob(t *task.Task, name string) Resource {
	return Resource{name, t, dap.AggregationJobsResource, dap.MediaAggregationJobInitReq, dap.MediaAggregationJobResp}
}

// AggregateShare is the kind of resource that collects a batch.
func AggregateShare(t *task.Task, name string) Resource {
	return Resource{name, t, dap.AggregateSharesResource, dap.MediaAggregateShareReq, dap.MediaAggregateShare}
}

// A Reply is a success. Body is nil while the answer is deferred.
type Reply struct {
	Body       []byte
	ID         string        // of the resource, from the Location; may be empty where the body is there
	Step       uint16        // of an aggregation job that was created or found, from the Location; 0 where that names none
	RetryAfter time.Duration // zero if the helper did not say
}

// Refused is a client-error answer.
type Refused struct{ Problem *dap.Problem }

// Error leaves out the document's detail, and a type that is not the draft's: they are a
// stranger's text, of any length, and may hold what no log may.
func (e *Refused) Error() string {
	uri := "a problem of its own"
	if e.Problem.Type == "" || e.known() {
		uri = e.Problem.Type.URI()
	}
	said := fmt.Sprintf("helper refused: %s (status %d)", uri, e.Problem.HTTPStatus())
	if e.Fenced() {
		said += "; leader and helper do not hold the same of the task"
	}
	if e.Closed() {
		said += "; the task was closed there, and it takes no new jobs of it unless this leader says that some wait, which it does at once"
	}
	if s := e.Problem.HTTPStatus(); e.Problem.Type == "" && (s == http.StatusNotFound || s == http.StatusMethodNotAllowed) {
		said += "; it may be another's, who frames messages otherwise: see that both sides have the same framing"
	}
	return said
}

// ProblemClosed is the type with which our helper refuses a new job of a task that was
// closed there, once nothing of what its leader acknowledged is to come.
const ProblemClosed dap.ProblemType = "urn:starling:task:closed"

// Closed says that the helper takes no new job of a task that was closed.
func (e *Refused) Closed() bool { return e.Problem.Type == ProblemClosed }

// Fenced says that the helper did not look into the request, since it does not hold what
// the leader does; see package agreement.
func (e *Refused) Fenced() bool {
	return e.Problem.HTTPStatus() == http.StatusPreconditionFailed && !e.known()
}

// absent says whether an answer means that the helper has no such resource at all.
func absent(err error) bool {
	var refused *Refused
	if !errors.As(err, &refused) || refused.known() {
		return false
	}
	s := refused.Problem.HTTPStatus()
	return s == http.StatusNotFound || s == http.StatusMethodNotAllowed
}

// known says whether the type is the draft's.
func (e *Refused) known() bool   { return slices.Contains(dap.ProblemTypes, e.Problem.Type) }
func (e *Refused) Unwrap() error { return e.Problem }

// Behind says that the helper does not know the aggregation job that it was asked to
// continue, or not at that step.
func (e *Refused) Behind() bool {
	return e.Problem.Type == dap.ProblemUnrecognizedAggregationJob || e.Problem.Type == dap.ProblemStepMismatch
}

// Definite says that the protocol itself refused: the answer to the same bytes will stay
// the same. An unknown task may yet be provisioned, and types that are not the draft's
// are the deployment's.
func (e *Refused) Definite() bool {
	switch e.Problem.Type {
	case dap.ProblemUnrecognizedTask, dap.ProblemUnrecognizedAggregationJob:
		return false
	}
	return e.known()
}

// Retry is a failure after which the same request must be sent again.
type Retry struct {
	After time.Duration // what the helper asked for, or zero
	Err   error
}

func (e *Retry) Error() string { return "helper did not answer: " + e.Err.Error() }
func (e *Retry) Unwrap() error { return e.Err }

// Create creates a resource, in the way of the task's framing. The same bytes again are
// harmless and give the current state.
func (c *Client) Create(ctx context.Context, r Resource, body []byte) (*Reply, error) {
	id := r.Task.Dialect.ChooseID(r.Task.ID, r.Collection, body, []byte(r.Name))
	u := dap.ResourceURL(r.Task.Helper, dap.CreationPathOf(r.Task.ID, r.Collection, id))
	reply, err := c.do(ctx, r.Task.Dialect.CreationMethod(), u, r, body)
	if err == nil && id != "" {
		reply.ID = id
	}
	if err == nil && reply.Body == nil && reply.ID == "" {
		return nil, &Retry{Err: errors.New("deferred without a usable Location")}
	}
	return reply, err
}

// Continue posts a later step to the aggregation job of that id. Posting the same bytes
// again is harmless: while the job is at that step they get the same answer.
func (c *Client) Continue(ctx context.Context, r Resource, id string, body []byte) (*Reply, error) {
	r.Request = dap.MediaAggregationJobContinueReq
	return c.of(ctx, http.MethodPost, r, id, "", body)
}

// Poll asks for a deferred answer; step is that of an aggregation job, and 0 for all
// else. The URL is built from the helper's base URL and the id, never followed from a
// header.
func (c *Client) Poll(ctx context.Context, r Resource, id string, step uint16) (*Reply, error) {
	query := ""
	if r.Collection == dap.AggregationJobsResource {
		query = dap.StepQuery(step)
	}
	return c.of(ctx, http.MethodGet, r, id, query, nil)
}

// of makes a request to the resource of that id.
func (c *Client) of(ctx context.Context, method string, r Resource, id, query string, body []byte) (*Reply, error) {
	u := dap.ResourceURL(r.Task.Helper, dap.ResourcePath(r.Task.ID, r.Collection, id))
	u.RawQuery = query
	reply, err := c.do(ctx, method, u, r, body)
	if reply != nil {
		reply.ID = id
	}
	return reply, err
}

// Ask polls the resource of that id, or creates it where the id is empty or the helper
// does not know it any more: the same bytes make the same resource again.
func (c *Client) Ask(ctx context.Context, r Resource, id string, body []byte) (*Reply, error) {
	if id != "" {
		reply, err := c.Poll(ctx, r, id, 0)
		var refused *Refused
		// Of a resource at a later step the helper tells its last answer to whoever asks for it
		// by the request.
		if !errors.As(err, &refused) || refused.Definite() && refused.Problem.Type != dap.ProblemStepMismatch {
			return reply, err
		}
	}
	return c.Create(ctx, r, body)
}

// Delete has the helper forget the resource of that id.
func (c *Client) Delete(ctx context.Context, r Resource, id string) error {
	u := dap.ResourceURL(r.Task.Helper, dap.ResourcePath(r.Task.ID, r.Collection, id))
	_, _, err := c.send(ctx, http.MethodDelete, u, ofTask(r.Task), "", nil)
	return err
}

// ErrNoProgress: the helper has no such resource, as no helper but ours has.
var ErrNoProgress = errors.New("peer: the helper does not report progress")

// Progress is the helper's own view of the task, as JSON; [ErrNoProgress] where it keeps
// that to itself.
func (c *Client) Progress(ctx context.Context, t *task.Task, v any) error {
	u := dap.ResourceURL(t.Helper, "tasks/"+t.ID.Base64()+"/"+ProgressPath)
	_, body, err := c.send(ctx, http.MethodGet, u, ofTask(t), "", nil)
	if absent(err) {
		return ErrNoProgress
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}

// ProgressPath is where an aggregator shows its peer how far it is, below tasks/{task}/.
// It is ours, not the draft's.
const ProgressPath = "starling_progress"

// ErrNoReplay: the helper has no way to mend replay protection, as no helper but ours has.
var ErrNoReplay = errors.New("peer: the helper is another implementation's, or older, and gives no report ids")

// Replay asks below [mend.Path]: what the helper lacks, with the empty sub path, or one
// of its requests. A Retry or a Refused is of the one question.
func (c *Client) Replay(ctx context.Context, t *task.Task, sub string, body []byte) ([]byte, error) {
	path, method := "tasks/"+t.ID.Base64()+"/"+mend.Path, http.MethodGet
	if sub != "" {
		path, method = path+"/"+sub, http.MethodPost
	}
	resp, answer, err := c.send(ctx, method, dap.ResourceURL(t.Helper, path), ofTask(t), mend.Media, body)
	if absent(err) {
		return nil, ErrNoReplay
	}
	if err == nil && resp.Header.Get("Content-Type") != mend.Media {
		return nil, &Retry{Err: errors.New("the answer is no message of " + mend.Path)}
	}
	if err == nil && len(answer) > mend.MaxMessage {
		return nil, &Retry{Err: mend.ErrMessage}
	}
	return answer, err
}

func (c *Client) do(ctx context.Context, method string, u *url.URL, r Resource, body []byte) (*Reply, error) {
	resp, answer, err := c.send(ctx, method, u, ofTask(r.Task), dap.ContentType(r.Request), body)
	if err != nil {
		return nil, err
	}
	reply := &Reply{RetryAfter: retryAfter(resp)}
	if loc := resp.Header.Get("Location"); loc != "" {
		if id, err := dap.LocationID(loc, r.Task.ID, r.Collection); err == nil {
			reply.ID = id
		}
		if u, err := url.Parse(loc); err == nil && r.Collection == dap.AggregationJobsResource {
			if step, err := dap.ParseStep(u.Query().Get("step")); err == nil {
				reply.Step = step
			}
		}
	}
	if len(answer) == 0 {
		return reply, nil
	}
	if err := dap.CheckContentType(resp.Header.Get("Content-Type"), r.Response); err != nil {
		return nil, &Retry{Err: err}
	}
	reply.Body = answer
	return reply, nil
}

// bearer is who a request comes from.
type bearer struct {
	secret string
	fence  string     // see package agreement; empty for none
	advert string     // see package taskprov; empty for none
	task   dap.TaskID // see TaskHeader; zero for none
}

func ofTask(t *task.Task) bearer {
	return bearer{secret: t.PeerSecret, fence: t.Fence, advert: t.Advert}
}

// send makes one request and sorts the failures; a nil error means a 2xx answer.
func (c *Client) send(ctx context.Context, method string, u *url.URL, from bearer, contentType string, body []byte) (*http.Response, []byte, error) {
	resp, answer, err := c.exchange(ctx, method, u, from, contentType, body)
	if c.Heard != nil && !errors.Is(ctx.Err(), context.Canceled) {
		c.Heard(err)
	}
	return resp, answer, err
}

func (c *Client) exchange(ctx context.Context, method string, u *url.URL, from bearer, contentType string, body []byte) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, nil, fmt.Errorf("peer: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+from.secret)
	if from.fence != "" {
		req.Header.Set(agreement.FenceHeader, from.fence)
	}
	if from.advert != "" {
		req.Header.Set(taskprov.Header, from.advert)
	}
	if from.task != (dap.TaskID{}) {
		req.Header.Set(TaskHeader, from.task.Base64())
	}
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, nil, &Retry{Err: withoutURL(err)}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, c.Limit+1))
	if err != nil {
		return nil, nil, &Retry{Err: withoutURL(err)}
	}
	if int64(len(answer)) > c.Limit {
		return nil, nil, &Retry{Err: fmt.Errorf("the answer exceeds %d bytes", c.Limit)}
	}
	switch status := resp.StatusCode; {
	case status >= 200 && status < 300:
		return resp, answer, nil
	case status >= 400 && status < 500 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout:
		return nil, nil, &Refused{problem(resp, answer)}
	default:
		return nil, nil, &Retry{After: retryAfter(resp), Err: fmt.Errorf("status %d", status)}
	}
}

// withoutURL drops what net/http says around an error: addresses do not go into logs or
// into the store.
func withoutURL(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return context.Canceled
	}
	return fmt.Errorf("connection failed (%w)", opaque{err})
}

// opaque keeps an error for [errors.Is] and prints only its kind.
type opaque struct{ err error }

func (o opaque) Error() string { return kind(o.err) }
func (o opaque) Unwrap() error { return o.err }

// kind names an error in words of a closed set: those of our own, a system's error, a TLS
// alert, or the error's type.
func kind(err error) string {
	var (
		bad     *tls.CertificateVerificationError
		ca      x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
		op      *net.OpError
		no      syscall.Errno
	)
	switch {
	case errors.As(err, &bad):
		switch {
		case errors.As(err, &ca):
			return "its certificate is signed by nobody who is known here"
		case errors.As(err, &name):
			return "its certificate is for another name"
		case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
			return "its certificate has ended, or has not begun"
		}
		return "its certificate does not hold"
	case errors.As(err, &op) && op.Op == "remote error": // an alert, whose name crypto/tls has
		if alert := op.Err.Error(); strings.Contains(alert, "certificate") {
			return "it does not take our certificate: " + alert
		}
		return op.Err.Error()
	case errors.As(err, &no):
		return no.Error()
	}
	return fmt.Sprintf("%T", err)
}

// problem reads a problem document, or makes one of the status. Its detail is a
// stranger's text: it is cut and kept for the operator.
func problem(resp *http.Response, body []byte) *dap.Problem {
	p := new(dap.Problem)
	typ, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || typ != dap.ProblemMedia || json.Unmarshal(body, p) != nil {
		p = new(dap.Problem)
	}
	p.Status = resp.StatusCode
	return p
}

// maxRetryAfter bounds what a helper can make us wait.
const maxRetryAfter = 10 * time.Minute

func retryAfter(resp *http.Response) time.Duration {
	s, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 32)
	if err != nil {
		return 0
	}
	return min(time.Duration(s)*time.Second, maxRetryAfter)
}
