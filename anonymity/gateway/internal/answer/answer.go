// Package answer sends a gateway's answers to devices: one of two constants, sealed to
// each, all of a round at one time in a drawn order. It never learns the outcome of a
// request: nothing here takes a value from a target, and the package that speaks with
// targets cannot be imported (a test of the module's root holds both).
package answer

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/starling-agg/starling/anonymity/internal/shuffle"
	"github.com/starling-agg/starling/anonymity/ohttp"
)

// The two answers. Taken is for all that the gateway's door let in: reports, covers, what
// was known before and what is no upload. Misdirected is for requests whose scheme,
// authority, path, media type or method are none of its targets', which no two kinds of
// one recipe's requests differ in.
var (
	taken       = constant(http.StatusAccepted)
	misdirected = constant(http.StatusMisdirectedRequest)
)

// constant is an answer without fields or content, of the one length that all have.
func constant(status int) []byte {
	b, err := (&ohttp.Response{Status: status}).Append(nil)
	if err != nil || len(b) > ohttp.MinResponse {
		panic(fmt.Sprintf("answer: internal error: status %d takes %d bytes, %v", status, len(b), err))
	}
	return ohttp.Pad(b, ohttp.MinResponse)
}

// ErrFailed: the round could not be written down. Nobody in it is told anything but that.
var ErrFailed = errors.New("answer: the round was not kept")

// A Waiting is a sealed answer that waits for its round.
type Waiting struct {
	sealed []byte
	done   chan struct{}
	failed bool // before done is closed
}

// Seal makes the answer to one request.
func Seal(s *ohttp.ResponseSealer, toTarget bool) (*Waiting, error) {
	plain := misdirected
	if toTarget {
		plain = taken
	}
	b, err := s.Seal(plain)
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	return &Waiting{sealed: b, done: make(chan struct{})}, nil
}

// Wait returns the answer once the round is answered, whether or not anybody waits for it
// any more: a request that could be abandoned would not be held to any bound.
func (w *Waiting) Wait() ([]byte, error) {
	<-w.done
	if w.failed {
		return nil, ErrFailed
	}
	return w.sealed, nil
}

// Release answers a round in a drawn order.
func Release(round []*Waiting) { end(round, false) }

// Fail refuses a round as a whole.
func Fail(round []*Waiting) { end(round, true) }

func end(round []*Waiting, failed bool) {
	shuffle.Uniform(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
	for _, w := range round {
		w.failed = failed
		close(w.done)
	}
}
