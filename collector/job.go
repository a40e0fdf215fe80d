package collector

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/exchange"
	"github.com/starling-agg/starling/internal/releases"
	"github.com/starling-agg/starling/recipe"
)

// A State is a job as it must survive the collector's stop. It holds no secret: the
// answer is sealed.
type State struct {
	// Recipe names the recipe that the job is about.
	Recipe string `json:"recipe"`
	// Request is the body that created the job; the shares are bound to it.
	Request []byte `json:"request"`
	// JobID is the leader's name for the job, or ours where we choose it.
	JobID string `json:"job_id"`
	// Unsure: we chose the id, and have not heard that the leader has the job.
	Unsure bool `json:"unsure,omitempty"`
	// Response is the leader's answer, absent until it has one.
	Response []byte `json:"response,omitempty"`
	// Releases is how far the leader's releases are, as far as was seen; see
	// [Options.Releases].
	Releases string `json:"releases,omitempty"`
}

// A Job is a collection at the leader. Its methods are not for concurrent use.
type Job struct {
	c     *Collector
	query dap.Query
	state State
}

// State is what [Collector.Resume] needs.
func (j *Job) State() State { return j.state }

// Start creates a collection job, or finds it if the leader has one of the same query. A leader-selected task has one at a
// time: [ErrBusy]. A refusal by the leader is a *[dap.Problem].
//
// Step 11 of one report: from a question, to a collection job at the leader.
func (c *Collector) Start(ctx context.Context, q dap.Query) (*Job, error) {
	if err := c.check(q); err != nil {
		return nil, err
	}
	body, err := dap.CollectionJobReq{Query: q}.Append(nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrQuery, err)
	}
	j := &Job{c: c, query: q, state: State{Recipe: c.id.String(), Request: body}}
	if err := c.claim(j); err != nil {
		return nil, err
	}
	if err := j.choose(); err != nil {
		c.release(j)
		return nil, err
	}
	if err := j.create(ctx); err != nil {
		c.release(j) // asking again finds the same job, if there is one
		return nil, err
	}
	return j, nil
}

// choose names the job where that is ours to do, and saves it before the leader hears of
// it: the name of a job that was deleted may not come again, so it is random, and nobody
// could find the job by another.
func (j *Job) choose() error {
	c, salt := j.c, make([]byte, 16)
	rand.Read(salt)
	if j.state.JobID = c.o.Framing.ChooseID(c.taskID, dap.CollectionJobsResource, j.state.Request, salt); j.state.JobID == "" {
		return nil
	}
	j.state.Unsure = true
	return j.keep(nil)
}

func (j *Job) create(ctx context.Context) error {
	c := j.c
	path := dap.CreationPathOf(c.taskID, dap.CollectionJobsResource, j.state.JobID)
	answer, err := exchange.Do(ctx, c.o.HTTP, exchange.Request{
		Method: c.o.Framing.CreationMethod(), URL: dap.ResourceURL(c.leader, path),
		Media: dap.MediaCollectionJobReq, Body: j.state.Request, Token: c.o.Token, Header: c.header(),
		Want: dap.MediaCollectionJobResp, MaxBody: c.maxResponse(),
	}, c.retry)
	if err != nil {
		return fmt.Errorf("collector: create a collection job: %w", err)
	}
	if j.state.JobID == "" {
		j.state.JobID, err = dap.LocationID(answer.Header.Get("Location"), c.taskID, dap.CollectionJobsResource)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrAnswer, err)
		}
	}
	j.state.Unsure = false
	if err := c.learn(answer); err != nil {
		return err
	}
	return j.keep(answer.Body)
}

// header tells the leader how far its releases were seen.
func (c *Collector) header() map[string]string {
	return map[string]string{releases.Header: c.remembered()}
}

// learn takes note of how far the leader says that its releases are.
func (c *Collector) learn(answer *exchange.Answer) error {
	if err := c.remember(answer.Header.Get(releases.Header)); err != nil {
		return fmt.Errorf("%w: %s is malformed", ErrAnswer, releases.Header)
	}
	return nil
}

// keep saves the state, with the leader's answer if there is one. An answer that cannot
// be used is not kept.
func (j *Job) keep(response []byte) error {
	s := j.state
	s.Releases = j.c.remembered()
	if len(response) > 0 {
		if _, err := j.c.open(j.query, s.Request, response); err != nil {
			return err
		}
		s.Response = response
	}
	if j.c.o.Save != nil {
		if err := j.c.o.Save(s); err != nil {
			return fmt.Errorf("collector: save: %w", err)
		}
	}
	j.state = s
	return nil
}

// Resume goes on with a saved job. It fails with [ErrState] if the state is not of this
// recipe, and with [ErrBusy] as [Collector.Start] does.
func (c *Collector) Resume(s State) (*Job, error) {
	if id, err := recipe.ParseID(s.Recipe); err != nil || id != c.id {
		return nil, fmt.Errorf("%w: it is of another recipe", ErrState)
	}
	req, err := dap.ReadCollectionJobReq(s.Request)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	if err := c.check(req.Query); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	if err := dap.CheckResourceID(s.JobID); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	if len(s.Response) > 0 {
		if _, err := c.open(req.Query, s.Request, s.Response); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrState, err)
		}
	}
	if err := c.remember(s.Releases); err != nil {
		return nil, err
	}
	j := &Job{c: c, query: req.Query, state: s}
	return j, c.claim(j)
}

// claim makes j the one live job of a leader-selected task.
func (c *Collector) claim(j *Job) error {
	if c.mode != dap.LeaderSelected {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live != nil {
		return ErrBusy
	}
	c.live = j
	return nil
}

func (c *Collector) release(j *Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == j {
		c.live = nil
	}
}

// Wait polls until the leader has an answer, saves it and opens it. Calling it again
// opens the same answer. If the job has failed, the error is a *[dap.Problem].
func (j *Job) Wait(ctx context.Context) (*Result, error) {
	c := j.c
	for polls := 1; len(j.state.Response) == 0; polls++ {
		answer, err := exchange.Do(ctx, c.o.HTTP, exchange.Request{
			Method: http.MethodGet, URL: dap.ResourceURL(c.leader, j.path()), Token: c.o.Token, Header: c.header(),
			Want: dap.MediaCollectionJobResp, MaxBody: c.maxResponse(),
		}, c.retry)
		if err != nil && j.state.Unsure && gone(err) {
			if err := j.create(ctx); err != nil { // the first try never arrived
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("collector: ask for the result: %w", err)
		}
		j.state.Unsure = false
		if err := c.learn(answer); err != nil {
			return nil, err
		}
		if len(answer.Body) > 0 {
			if err := j.keep(answer.Body); err != nil {
				return nil, err
			}
			break
		}
		wait := min(max(exchange.RetryAfter(answer.Header), c.o.Poll), c.o.MaxPoll)
		if c.o.Progress != nil {
			c.o.Progress(Progress{Polls: polls, Wait: wait, For: Waiting(releases.ParseWaiting(answer.Header.Get(releases.WaitingHeader)))})
		}
		if err := exchange.Sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
	return c.open(j.query, j.state.Request, j.state.Response)
}

func (j *Job) path() string {
	return dap.ResourcePath(j.c.taskID, dap.CollectionJobsResource, j.state.JobID)
}

// Known asks the leader, once, for a collection job that nobody has made, and so whether it
// takes this collector's token. It fails with a *[dap.Problem] of status 401 where it does
// not, and as the leader's answers to other questions do.
func (c *Collector) Known(ctx context.Context) error {
	id := make([]byte, 16)
	rand.Read(id)
	_, err := exchange.Do(ctx, c.o.HTTP, exchange.Request{
		Method: http.MethodGet, Token: c.o.Token, Want: dap.MediaCollectionJobResp, MaxBody: c.maxResponse(),
		URL: dap.ResourceURL(c.leader, dap.ResourcePath(c.taskID, dap.CollectionJobsResource, base64.RawURLEncoding.EncodeToString(id))),
	}, exchange.Retry{Attempts: 1})
	if err != nil && !gone(err) {
		return fmt.Errorf("collector: try the token: %w", err)
	}
	return nil
}

// Delete tells the leader that the job is done with. A job that the leader no longer
// knows is deleted. In leader-selected tasks the next [Collector.Start] then opens the
// next batch.
func (j *Job) Delete(ctx context.Context) error {
	c := j.c
	_, err := exchange.Do(ctx, c.o.HTTP, exchange.Request{
		Method: http.MethodDelete, URL: dap.ResourceURL(c.leader, j.path()), Token: c.o.Token,
	}, c.retry)
	if err != nil && !gone(err) {
		return fmt.Errorf("collector: delete the collection job: %w", err)
	}
	c.release(j)
	return nil
}

// Withdraw is Delete of a job that has no answer. A leader of ours keeps one that got its
// answer meanwhile, which is never had again: then Withdraw is false, and [Job.Wait]
// returns it. Other leaders may delete that too.
func (j *Job) Withdraw(ctx context.Context) (bool, error) {
	c := j.c
	_, err := exchange.Do(ctx, c.o.HTTP, exchange.Request{
		Method: http.MethodDelete, URL: dap.ResourceURL(c.leader, j.path()), Token: c.o.Token,
		Header: map[string]string{"If-None-Match": "*"},
	}, c.retry)
	switch p, s := new(dap.Problem), new(exchange.StatusError); {
	case errors.As(err, &p) && p.HTTPStatus() == http.StatusPreconditionFailed, errors.As(err, &s) && s.Status == http.StatusPreconditionFailed:
		return false, nil
	case err != nil && !gone(err):
		return false, fmt.Errorf("collector: withdraw the collection job: %w", err)
	}
	c.release(j)
	return true, nil
}

// gone says whether the leader answered that there is no such job. A task that it does
// not know is another matter.
func gone(err error) bool {
	if errors.Is(err, &dap.Problem{Type: dap.ProblemUnrecognizedTask}) {
		return false
	}
	if p := new(dap.Problem); errors.As(err, &p) {
		return p.HTTPStatus() == http.StatusNotFound || p.HTTPStatus() == http.StatusGone
	}
	s := new(exchange.StatusError)
	return errors.As(err, &s) && (s.Status == http.StatusNotFound || s.Status == http.StatusGone)
}

// Collect asks, waits and opens; in leader-selected tasks it then deletes the job. After
// an error, a State that was saved can be resumed, and asking again with the same query
// finds the same job. If only the deletion failed, the result is returned beside the
// error; the next Collect may then return the same batch again.
func (c *Collector) Collect(ctx context.Context, q dap.Query) (*Result, error) {
	j, err := c.Start(ctx, q)
	if err != nil {
		return nil, err
	}
	result, err := j.Wait(ctx)
	if err == nil && c.mode == dap.LeaderSelected {
		err = j.Delete(ctx)
	}
	// The job may live on at the leader, where the same query finds it again.
	c.release(j)
	return result, err
}
