package question

import (
	"errors"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
)

// A Span is the time of a question. The zero Span is the next batch of a recipe whose
// leader selects, or whatever a pending question asks for.
type Span struct{ From, To time.Time }

// IsZero says whether a span names no time.
func (s Span) IsZero() bool { return s.From.IsZero() && s.To.IsZero() }

// errEmpty: no round is in a time.
var errEmpty = errors.New("the time is empty")

// Around is the least run of whole rounds, or slots, around a time; of spans of a number of
// time units where a view is asked for.
func Around(r *recipe.Recipe, units uint64, from, to time.Time) (Span, error) {
	edge := func(t time.Time, up bool) (time.Time, error) {
		unit, err := r.TimePrecision.At(t)
		if err != nil {
			return t, err
		}
		first := unit - unit%dap.Time(units)
		begin, err := r.TimePrecision.Begin(first)
		if err != nil || !up || begin.Equal(t) {
			return begin, err
		}
		return r.TimePrecision.Begin(first + dap.Time(units))
	}
	begin, err1 := edge(from, false)
	end, err2 := edge(to, true)
	if err := errors.Join(err1, err2); err != nil {
		return Span{}, err
	}
	if !begin.Before(end) {
		return Span{}, errEmpty
	}
	return Span{begin, end}, nil
}

// Lately is the rounds of the last day that are over, or the last span of a number of time
// units.
func Lately(r *recipe.Recipe, units uint64, now time.Time) (Span, error) {
	unit, err := r.TimePrecision.At(now)
	if err != nil {
		return Span{}, err
	}
	end, err := r.TimePrecision.Begin(unit - unit%dap.Time(units))
	if err != nil {
		return Span{}, err
	}
	s, err := Around(r, units, end.Add(-24*time.Hour), end)
	return Span{s.From, end}, err
}

// LeaderSelects says whether the leader selects a recipe's batches, so that no question
// names a time.
func LeaderSelects(r *recipe.Recipe) bool {
	path, ok := r.Path.(recipe.TwoServer)
	return ok && path.BatchMode == dap.LeaderSelected
}

// early refuses a question that could not be answered within patience: it would keep
// later ones waiting. It fails with *[WindowError], *[FutureError] and *[EarlyError].
func early(r *recipe.Recipe, units uint64, s Span, now time.Time, patience time.Duration) error {
	if s.To.IsZero() {
		return nil // the leader selects
	}
	if w, bounded := r.Window.(recipe.Between); bounded {
		first, err1 := r.TimePrecision.Begin(w.Start)
		last, err2 := r.TimePrecision.Begin(w.End)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if !s.From.Before(last) || !first.Before(s.To) {
			return &WindowError{Span{first, last}, s}
		}
	}
	switch due := s.To.Add(r.Grace()); {
	case s.From.After(now.Add(patience)):
		lately, err := Lately(r, units, now)
		if err != nil {
			lately = Span{}
		}
		return &FutureError{s.From, lately}
	case due.After(now.Add(patience)):
		return &EarlyError{s, due, due.Sub(now)}
	}
	return nil
}
