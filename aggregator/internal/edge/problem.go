package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
)

// An Error is a failure that the peer may know of.
type Error struct {
	Problem    dap.Problem
	RetryAfter time.Duration // zero: no header
	cause      error
	down       bool // an operator has to know the cause
}

func (e *Error) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("%v (%v)", &e.Problem, e.cause)
	}
	return e.Problem.Error()
}

func (e *Error) Unwrap() error { return e.cause }

// Refuse answers with one of the draft's types. detail goes to the peer.
func Refuse(t dap.ProblemType, detail string) *Error {
	return &Error{Problem: dap.Problem{Type: t, Status: http.StatusBadRequest, Detail: detail}}
}

// NotFound answers 404 with one of the draft's types, or without any.
func NotFound(t dap.ProblemType, detail string) *Error {
	return &Error{Problem: dap.Problem{Type: t, Status: http.StatusNotFound, Detail: detail}}
}

// Malformed answers invalidMessage with what dap says of the bytes.
func Malformed(err error) *Error {
	return &Error{Problem: dap.Problem{Type: dap.ProblemInvalidMessage, Status: http.StatusBadRequest, Detail: err.Error()}, cause: err}
}

// Unsupported answers unsupportedExtension with the types.
func Unsupported(types []uint16) *Error {
	return &Error{Problem: dap.Problem{
		Type: dap.ProblemUnsupportedExtension, Status: http.StatusBadRequest, UnsupportedExtensions: types,
	}}
}

// Unauthorized answers 401. The draft leaves authentication to the deployment, so it has
// no type of the draft's.
func Unauthorized() *Error { return plain(http.StatusUnauthorized, "a valid bearer token is needed") }

// TooLarge answers 413.
func TooLarge() *Error {
	return plain(http.StatusRequestEntityTooLarge, "the body is larger than this server takes")
}

// tooSlow answers 408.
func tooSlow() *Error { return plain(http.StatusRequestTimeout, "the body came too slowly") }

// Broken answers 400 to a body that ended early.
func Broken(err error) *Error {
	e := plain(http.StatusBadRequest, "the body could not be read")
	e.cause = err
	return e
}

// retryOverload is what an overloaded server asks for: about the time in which a full
// queue of work drains.
const retryOverload = 5 * time.Second

// retryStopped is what a server asks for whose task waits for a person, or for the other
// aggregator.
const retryStopped = 30 * time.Second

// Overloaded answers 429 or 503 with a Retry-After.
func Overloaded(status int) *Error {
	e := plain(status, "the server is busy")
	e.RetryAfter = retryOverload
	return e
}

// TooMany answers 429 to what comes too early.
func TooMany(wait time.Duration) *Error {
	e := plain(http.StatusTooManyRequests, "more reports come than are taken in this time")
	e.RetryAfter = wait
	return e
}

// IsOverload says whether an error is one of Overloaded.
func IsOverload(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.RetryAfter > 0
}

// Down answers 503 where this life of the service can do nothing more: a restart heals
// it, and clients come again.
func Down(err error) *Error {
	e := plain(http.StatusServiceUnavailable, "the server has to be restarted")
	e.RetryAfter, e.cause, e.down = retryOverload, err, true
	return e
}

// Later answers 503 with a Retry-After and says what is being waited for.
func Later(detail string, after time.Duration) *Error {
	e := plain(http.StatusServiceUnavailable, detail)
	e.RetryAfter = after
	return e
}

// Keyless answers 503 where an issuer's key is not at this process: without a Retry-After,
// for another process may have it, and jobs of other key epochs are not to wait.
func Keyless(err error) *Error {
	e := plain(http.StatusServiceUnavailable, "an issuer's key is not at this server")
	e.cause = err
	return e
}

func plain(status int, detail string) *Error {
	return &Error{Problem: dap.Problem{Status: status, Detail: detail}}
}

// toError is the one place where an inner error becomes an answer.
func toError(err error) *Error {
	var e *Error
	var p *dap.Problem
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &p):
		return &Error{Problem: *p, cause: err}
	case errors.Is(err, store.ErrNoRoom), disk.IsFull(err):
		return &Error{Problem: dap.Problem{Status: http.StatusServiceUnavailable, Detail: "the server has no room at present"},
			RetryAfter: retryOverload, cause: err}
	case errors.Is(err, store.ErrAgain), errors.Is(err, store.ErrUnknown): // it may have been done: who asks again is told
		e := Later("the server cannot answer at present", retryOverload)
		e.cause, e.down = err, true
		return e
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &Error{Problem: dap.Problem{Status: http.StatusServiceUnavailable}, RetryAfter: retryOverload, cause: err}
	}
	return &Error{Problem: dap.Problem{Status: http.StatusInternalServerError}, cause: err}
}

// writeProblem answers with the document of e.
func writeProblem(w http.ResponseWriter, e *Error, task *dap.TaskID) {
	p := e.Problem
	if p.TaskID == nil {
		p.TaskID = task
	}
	body, err := json.Marshal(&p)
	if err != nil {
		panic("edge: internal error: " + err.Error())
	}
	h := w.Header()
	h.Set("Content-Type", dap.ProblemMedia)
	h.Set("Cache-Control", "no-store")
	if p.HTTPStatus() == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if e.RetryAfter > 0 {
		setRetryAfter(w, e.RetryAfter)
	}
	w.WriteHeader(p.HTTPStatus())
	w.Write(body)
}

// setRetryAfter rounds up to whole seconds, at least one.
func setRetryAfter(w http.ResponseWriter, d time.Duration) {
	w.Header().Set("Retry-After", strconv.FormatInt(max(1, int64((d+time.Second-1)/time.Second)), 10))
}
