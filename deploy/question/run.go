package question

import (
	"context"
	"errors"
	"time"

	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe"
)

// fewTwice is how many answers in a row have to say that too few reports came: the first
// may be older than a report that was verified since.
const fewTwice = 2

// errTooFew: the time that was asked for is over, and too few reports of it came.
var errTooFew = errors.New("too few reports")

// A Listener hears how a run goes on, from the goroutine that called [Run.Ask].
type Listener interface {
	// Resumed: the run goes on with a question that an earlier one asked.
	Resumed()
	// Waits: the question that was asked some time ago is not answered yet.
	Waits(asked time.Duration, p collector.Progress)
	// Waited: the wait for a question is over.
	Waited()
	// LeftOut: the round up to end was passed over.
	LeftOut(end time.Time)
	// Widened: too few reports came up to end, and those up to later are asked for.
	Widened(end, later time.Time)
	// Notice says what a person should know of the collector's state file.
	Notice(words string)
}

// Options make a [Run].
type Options struct {
	// Timeout bounds the wait for one question; required.
	Timeout time.Duration
	// Skip passes rounds that are over and not ready.
	Skip bool
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Listener is told how the run goes on; required.
	Listener Listener
}

// A Run asks one question after the other.
type Run struct {
	o       Options
	session *deploy.Session
	about   Span // zero: all that has come since the last collection

	begun time.Time // of the question under way
	waits collector.Waiting
	few   int // answers in a row that too few reports came
	stop  context.CancelCauseFunc
}

// Open opens the collector's session for a run.
func Open(config *deploy.Collector, c collector.Options, o Options) (*Run, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Run{o: o}
	c.Progress = r.watch
	var err error
	r.session, err = config.Open(c)
	return r, err
}

// About has the run ask about a time; without it, it asks about all that has come since
// the last collection.
func (r *Run) About(s Span) { r.about = s }

// Session is the collector's.
func (r *Run) Session() *deploy.Session { return r.session }

// watch ends a question that can never be answered.
func (r *Run) watch(p collector.Progress) {
	r.waits = p.For
	r.o.Listener.Waits(time.Since(r.begun), p)
	if end := r.session.Asked(); p.For != collector.ForReports || end.IsZero() || !r.session.Over(end, r.o.Now()) {
		r.few = 0
		return
	}
	if r.few++; r.few >= fewTwice {
		r.stop(errTooFew)
	}
}

// ask asks one question, or goes on with the pending one, for at most the timeout. The
// error is errTooFew where it can never be answered.
func (r *Run) ask(ctx context.Context, s Span) (*collector.Result, error) {
	ctx, r.stop = context.WithCancelCause(ctx)
	defer r.stop(nil)
	wait, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	r.begun, r.few, r.waits = time.Now(), 0, ""
	result, err := r.session.Collect(wait, s.From, s.To)
	r.o.Listener.Waited()
	r.notice()
	if err != nil && errors.Is(context.Cause(ctx), errTooFew) {
		return nil, errTooFew
	}
	return result, err
}

func (r *Run) notice() {
	if words := r.session.Notice(); words != "" {
		r.o.Listener.Notice(words)
	}
}

// Ask asks one question after the other and hands out the results. It fails with
// *[TooFewError], *[AskError], [ErrNoneReady], with what show returned, before a question
// is asked with *[WindowError], *[FutureError] and *[EarlyError], and as [Run.Questions]
// where it goes on behind a round that it skipped.
func (r *Run) Ask(ctx context.Context, spans []Span, show func(*collector.Result) error) error {
	released, passed := 0, false
	r.notice()
	if r.session.Pending() {
		r.o.Listener.Resumed()
	}
	for len(spans) > 0 {
		s, pending := spans[0], r.session.Pending()
		if !pending {
			if err := early(r.recipe(), r.session.Units(), s, r.o.Now(), r.o.Timeout); err != nil {
				return err
			}
		}
		result, err := r.ask(ctx, s)
		end := r.session.Asked()
		switch {
		case err == nil:
			spans, released = spans[1:], released+1
			if err := show(result); err != nil {
				return err
			}
		case r.o.Skip && (errors.Is(err, errTooFew) || r.late(ctx, err, end)):
			gone, err := r.session.Skip(ctx)
			if err != nil {
				return r.failed(s, err)
			} else if !gone {
				continue // its answer is there
			}
			r.o.Listener.LeftOut(end)
			spans, passed = spans[1:], true
			// what comes behind it was not asked for yet
			if pending && len(spans) == 0 && r.about.IsZero() {
				if spans, err = r.Questions(); err != nil && !errors.Is(err, deploy.ErrNothingNew) {
					return err
				}
			}
		case errors.Is(err, errTooFew):
			gone, err := r.session.Withdraw(ctx)
			if err != nil {
				return r.failed(s, err)
			} else if !gone {
				continue
			}
			wider, ok := Span{}, false
			if pending { // this one was asked earlier
				wider, ok = r.wider(end)
			}
			if !ok {
				return r.tooFew(s, end)
			}
			r.o.Listener.Widened(end, wider.To)
			spans = []Span{wider}
		default:
			return r.failed(s, err)
		}
	}
	if released == 0 && passed {
		return ErrNoneReady
	}
	return nil
}

// late says whether a question was given up by the run's timeout although its time is over.
func (r *Run) late(ctx context.Context, err error, end time.Time) bool {
	return ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && !end.IsZero() && r.session.Over(end, r.o.Now())
}

func (r *Run) failed(s Span, err error) error {
	return &AskError{Err: err, Asked: s, Pending: r.session.Pending(), Waits: r.waits}
}

func (r *Run) recipe() *recipe.Recipe { return r.session.Recipe() }

// wider is what to ask for in the place of a time in which too few reports came: the same
// and what came since, where several rounds are released together.
func (r *Run) wider(end time.Time) (Span, bool) {
	if !r.about.IsZero() || r.recipe().Alone() {
		return Span{}, false
	}
	list, err := r.Questions()
	if err != nil || len(list) != 1 || !list[0].To.After(end) || early(r.recipe(), r.session.Units(), list[0], r.o.Now(), r.o.Timeout) != nil {
		return Span{}, false
	}
	return list[0], true
}

// tooFew says that a question can never be answered, and which one may be.
func (r *Run) tooFew(s Span, end time.Time) error {
	e := &TooFewError{Threshold: r.recipe().Threshold(), Asked: s, End: end, Alone: r.recipe().Alone()}
	if !e.Alone && !r.about.IsZero() {
		if wider, err := Around(r.recipe(), r.session.Units(), s.From, r.o.Now()); err == nil && wider.To.After(end) {
			e.Wider = Span{s.From, wider.To}
		}
	}
	return e
}

// Questions are what is asked for, one after the other; one zero span in a recipe whose
// leader selects, and where a question is pending. It fails with [deploy.ErrNothingNew],
// with [deploy.ErrPending] where the times that were given are not those of the pending
// question, and with *[SpanError].
func (r *Run) Questions() ([]Span, error) {
	s, err := r.span()
	if err != nil {
		return nil, err
	}
	if s.From.IsZero() {
		return []Span{s}, nil
	}
	cut, err := r.session.Batches(s.From, s.To)
	if err != nil {
		around, odd := Around(r.recipe(), r.session.Units(), s.From, s.To)
		if odd != nil {
			around = Span{}
		}
		return nil, &SpanError{err, around}
	}
	list := make([]Span, len(cut))
	for i, b := range cut {
		list[i] = Span{b[0], b[1]}
	}
	if !r.session.Pending() {
		return list, nil
	}
	for i, b := range list { // the ones before were answered
		if err = r.session.PendingFor(b.From, b.To); err == nil {
			return list[i:], nil
		} else if !errors.Is(err, deploy.ErrPending) {
			return nil, err
		}
	}
	return nil, deploy.ErrPending
}

// span is the time that is asked about.
func (r *Run) span() (Span, error) {
	if !r.about.IsZero() || LeaderSelects(r.recipe()) || r.session.Pending() {
		return r.about, nil // what is pending is in the state
	}
	now := r.o.Now()
	from, to, err := r.session.Interval(now, r.o.Timeout)
	if err == nil || errors.Is(err, deploy.ErrNothingNew) {
		return Span{from, to}, err
	}
	around, odd := Lately(r.recipe(), r.session.Units(), now)
	if odd != nil {
		around = Span{}
	}
	return Span{}, &SpanError{err, around}
}
