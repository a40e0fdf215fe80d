// Package collectortest plays the leader for tests of what asks it for results: in one
// process, without a network.
package collectortest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/releases"
)

// A Leader takes questions and never has a result: polls are told to wait, or what is
// wrong. It is not safe for concurrent use.
type Leader struct {
	Task dap.TaskID
	// Token is what collectors must bring; empty takes anybody.
	Token string
	// Waits is what polls are told that the leader waits for.
	Waits releases.Waiting
	// Problem, if not nil, is what polls are told instead.
	Problem *dap.Problem
	// Kept: the questions have their answers, so nobody withdraws them.
	Kept bool
	// Releases is what new questions are told of the leader's releases.
	Releases string

	Asked, Polled, Deleted int               // requests that were taken
	Jobs                   map[string]string // by the question, whose name is job1, job2, ...
	Path, Seen             string            // of the last poll, and the releases that the last request had seen
}

// Do answers a request.
func (l *Leader) Do(r *http.Request) (*http.Response, error) {
	l.Seen = r.Header.Get(releases.Header)
	answer := &http.Response{StatusCode: http.StatusAccepted, Header: http.Header{}, Body: http.NoBody, Request: r}
	switch {
	case l.Token != "" && r.Header.Get("Authorization") != "Bearer "+l.Token:
		answer.StatusCode = http.StatusUnauthorized
	case r.Method == http.MethodPost:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		l.Asked++
		answer.StatusCode = http.StatusCreated
		answer.Header.Set("Location", "/"+dap.ResourcePath(l.Task, dap.CollectionJobsResource, l.job(string(body))))
		if l.Releases != "" {
			answer.Header.Set(releases.Header, l.Releases)
		}
	case r.Method == http.MethodDelete && l.Kept && r.Header.Get("If-None-Match") == "*":
		answer.StatusCode = http.StatusPreconditionFailed
	case r.Method == http.MethodDelete:
		l.Deleted++
		answer.StatusCode = http.StatusNoContent
	default:
		l.Polled++
		l.Path = r.URL.Path
		if l.Problem == nil {
			answer.Header.Set(releases.WaitingHeader, string(l.Waits))
			break
		}
		b, err := json.Marshal(l.Problem)
		if err != nil {
			return nil, err
		}
		answer.StatusCode, answer.Body = l.Problem.HTTPStatus(), io.NopCloser(bytes.NewReader(b))
		answer.Header.Set("Content-Type", dap.ProblemMedia)
	}
	return answer, nil
}

// job names a question: the same bytes are the same one.
func (l *Leader) job(question string) string {
	if l.Jobs == nil {
		l.Jobs = map[string]string{}
	}
	if l.Jobs[question] == "" {
		l.Jobs[question] = fmt.Sprintf("job%d", len(l.Jobs)+1)
	}
	return l.Jobs[question]
}
