package deploy

import (
	"context"
	"errors"
	"time"

	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/fl/round"
	"github.com/starling-agg/starling/recipe"
)

// roundSource has a collector collect the rounds of a training. It is used by one goroutine.
type roundSource struct {
	session *Session
	now     func() time.Time
	few     int // answers in a row by which nothing will be released
	stop    context.CancelCauseFunc
}

// fewTimes is how many such answers are enough: the first may be of before the last report
// was verified.
const fewTimes = 2

var errFew = errors.New("too few reports")

// newRoundSource opens the collector's files.
func newRoundSource(c *Collector, poll time.Duration) (*roundSource, error) {
	s := &roundSource{now: time.Now}
	var err error
	s.session, err = c.Open(collector.Options{Poll: poll, Progress: s.watch})
	return s, err
}

// watch ends a question that can never be answered.
func (s *roundSource) watch(p collector.Progress) {
	if end := s.session.Asked(); p.For != collector.ForReports || end.IsZero() || !s.session.Over(end, s.now()) {
		s.few = 0
	} else if s.few++; s.few >= fewTimes {
		s.stop(errFew)
	}
}

// ends are the two ends of a batch.
func (s *roundSource) ends(batch dap.Interval) (from, to time.Time, err error) {
	end, _ := batch.End()
	p := s.session.Recipe().TimePrecision
	from, err1 := p.Begin(batch.Start)
	to, err2 := p.Begin(end)
	return from, to, errors.Join(err1, err2)
}

// Collect implements [round.Source]. A question about another round, which nobody waits for
// any more, is withdrawn first.
func (s *roundSource) Collect(ctx context.Context, batch dap.Interval) (*round.Sum, error) {
	from, to, err := s.ends(batch)
	if err != nil {
		return nil, err
	}
	if s.session.PendingFor(from, to) != nil {
		if _, err := s.session.Withdraw(ctx); err != nil {
			return nil, err
		}
		if err := s.session.Drop(ctx); err != nil { // its sum is there, and too late
			return nil, err
		}
	}
	for {
		result, err := s.ask(ctx, from, to)
		switch {
		case errors.Is(err, &dap.Problem{Type: dap.ProblemInvalidBatchSize}):
			return nil, &round.TooFewError{}
		case !errors.Is(err, errFew):
			if err != nil {
				return nil, err
			}
			return sumOf(s.session.Recipe(), result), nil
		}
		if gone, err := s.session.Withdraw(ctx); err != nil {
			return nil, err
		} else if gone {
			return nil, &round.TooFewError{}
		}
		// The sum is there after all.
	}
}

// ask asks once; the error is errFew where no answer will come.
func (s *roundSource) ask(ctx context.Context, from, to time.Time) (*collector.Result, error) {
	ctx, s.stop = context.WithCancelCause(ctx)
	defer s.stop(nil)
	s.few = 0
	result, err := s.session.Collect(ctx, from, to)
	if err != nil && errors.Is(context.Cause(ctx), errFew) {
		err = errFew
	}
	return result, err
}

// GiveUp implements [round.Source].
func (s *roundSource) GiveUp(ctx context.Context, batch dap.Interval) (bool, error) {
	from, to, err := s.ends(batch)
	if err != nil {
		return false, err
	}
	if !s.session.Pending() || s.session.PendingFor(from, to) != nil {
		return true, nil
	}
	return s.session.Withdraw(ctx)
}

// sumOf is the sum of the vectors that were reported. Where a projection shortens them it is
// estimated about all devices, and scaled back to those that reported.
func sumOf(r *recipe.Recipe, result *collector.Result) *round.Sum {
	s := &round.Sum{Reports: result.ReportCount}
	if r.Projection == nil {
		q, _ := r.Vector()
		s.Values = make([]float64, len(result.Raw))
		for i, x := range result.Raw {
			s.Values[i] = float64(x) * q.Unit()
		}
		return s
	}
	scale := 1.0
	if result.Sampled != nil {
		scale, _ = reporting(r).Float64()
	}
	s.Values = make([]float64, len(result.Estimate))
	for i, x := range result.Estimate {
		s.Values[i] = scale * x
	}
	return s
}

// noSource collects nothing, of a controller that is only looked at.
type noSource struct{}

var errNoSource = errors.New("deploy: internal error: a controller that is only looked at collects")

func (noSource) Collect(context.Context, dap.Interval) (*round.Sum, error) { return nil, errNoSource }
func (noSource) GiveUp(context.Context, dap.Interval) (bool, error)        { return false, errNoSource }
