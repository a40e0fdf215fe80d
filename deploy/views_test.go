package deploy

import (
	"errors"
	"testing"
	"time"

	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// TestViewsAreReadApart: a session that is asked for a view goes on behind its last span, and
// begins with the last one that is over; a question about another view is not gone on with.
func TestViewsAreReadApart(t *testing.T) {
	make := func(w recipe.Window) *Session {
		r, err := account.New(account.Options{
			Name: "views", Query: recipe.Count{}, Leader: "https://leader.example/", Helper: "https://helper.example/", MinBatch: 10,
			TimePrecision: 86400, Epsilon: recipe.Decimal{Coefficient: 1}, Window: w, Grace: time.Hour,
			Views: &recipe.Views{Round: "day", Keep: 5, Wider: []recipe.View{{Name: "week", Rounds: 7}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		s := &Session{recipe: r, view: r.Granularities()[0]}
		return s
	}
	day := func(n int) time.Time { return time.Unix(int64(n)*86400, 0).UTC() }
	const week = 7 * 2900
	span := func(s *Session, now time.Time, from, to int) {
		t.Helper()
		f, u, err := s.Interval(now, time.Minute)
		if err != nil || !f.Equal(day(from)) || !u.Equal(day(to)) {
			t.Errorf("%v to %v, %v, want %v to %v", f, u, err, day(from), day(to))
		}
	}
	s := make(recipe.NoWindow{})
	var unknown *recipe.ViewError
	if err := s.AskView("year"); !errors.As(err, &unknown) {
		t.Errorf("%v", err)
	}
	if err := s.AskView("week"); err != nil || s.Units() != 7 {
		t.Fatal(err)
	}
	span(s, day(week+9), week, week+7)
	span(s, day(week+7).Add(30*time.Minute), week-7, week) // the grace is not over
	s.moved("week", day(week+7))
	span(s, day(week+30), week+7, week+28)
	if !s.state.Next.IsZero() {
		t.Error("the week has moved the days")
	}
	s.moved("day", day(week+2))
	if err := s.AskView("day"); err != nil {
		t.Fatal(err)
	}
	span(s, day(week+5), week+2, week+5)
	s.state.Job, s.state.View = new(collector.State), "day"
	if err := s.AskView("week"); !errors.Is(err, ErrPending) {
		t.Errorf("a question about a day is pending: %v", err)
	}
	if err := s.AskView("day"); err != nil {
		t.Error(err)
	}
	s = make(recipe.Between{Start: week, End: week + 28})
	if err := s.AskView("week"); err != nil {
		t.Fatal(err)
	}
	span(s, day(week+15), week, week+14)
	span(s, day(week+100), week, week+28)
}
