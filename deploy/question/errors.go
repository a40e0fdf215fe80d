package question

import (
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/collector"
)

// ErrNoneReady: every round that was asked for was passed over.
var ErrNoneReady = errors.New("no round is ready")

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// A WindowError: the recipe takes no reports of the time that was asked about.
type WindowError struct{ Window, Asked Span }

func (e *WindowError) Error() string {
	return fmt.Sprintf("the recipe takes reports from %s to %s, and none of %s to %s", stamp(e.Window.From), stamp(e.Window.To), stamp(e.Asked.From), stamp(e.Asked.To))
}

// A FutureError: the time that was asked about has not begun.
type FutureError struct {
	From   time.Time
	Lately Span // the rounds of the last day that are over; zero where there are none
}

func (e *FutureError) Error() string {
	return fmt.Sprintf("the time from %s on has not begun, so nothing has been reported of it", stamp(e.From))
}

// An EarlyError: the time that was asked about is released later than the run waits.
type EarlyError struct {
	Asked Span
	Due   time.Time
	Wait  time.Duration // until then
}

func (e *EarlyError) Error() string {
	return fmt.Sprintf("nothing of %s to %s is released before %s: nothing was asked", stamp(e.Asked.From), stamp(e.Asked.To), stamp(e.Due))
}

// A TooFewError: a time is over, too few reports of it came, and nothing more will come
// of it. The question was withdrawn.
type TooFewError struct {
	Threshold uint64
	Asked     Span // zero where a pending question was gone on with
	End       time.Time
	Alone     bool // each round is released by itself
	Wider     Span // the same and all that came since; zero where that is no more
}

func (e *TooFewError) Error() string {
	what := "up to " + stamp(e.End)
	if !e.Asked.From.IsZero() {
		what = fmt.Sprintf("from %s to %s", stamp(e.Asked.From), stamp(e.Asked.To))
	}
	return fmt.Sprintf("fewer than the %d reports that are released about came %s, and that time is over: nothing more will come of it", e.Threshold, what)
}

// A SpanError: the times that were given are no whole rounds, or none were given and the
// recipe does not say where to begin.
type SpanError struct {
	Err    error
	Around Span // whole rounds around what was given; zero where there are none
}

func (e *SpanError) Error() string { return e.Err.Error() }
func (e *SpanError) Unwrap() error { return e.Err }

// An AskError: a question was not answered.
type AskError struct {
	Err     error
	Asked   Span
	Pending bool              // the question is kept
	Waits   collector.Waiting // what the leader last waited for
}

func (e *AskError) Error() string { return e.Err.Error() }
func (e *AskError) Unwrap() error { return e.Err }
