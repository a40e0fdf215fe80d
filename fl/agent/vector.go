package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/starling-agg/starling/client/training"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/internal/buffer"
	"github.com/starling-agg/starling/internal/disk"
)

// A VectorError is an update that nothing can be made of.
type VectorError struct {
	Person  int // counted from 0
	Problem string
}

func (e *VectorError) Error() string {
	return fmt.Sprintf("agent: the update of person %d %s", e.Person, e.Problem)
}

// entries is how many numbers an update has.
func (t *task) entries(s *session.Session) int {
	if s != nil {
		return s.Terms.Dimension()
	}
	q, _ := t.recipe.Vector()
	if p := t.recipe.Projection; p != nil {
		return int(p.Entries)
	}
	return int(q.Dimension)
}

// longest is the memory that the longest body of a contribution takes.
func (t *task) longest() int64 {
	n := 4 * t.Policy.persons() * t.entries(nil)
	return int64(max(n, buffer.Size(n)))
}

// shares is of how many equal parts of the bound each person has one.
func (t *task) shares() int {
	if n := t.recipe.Shares(); n > 0 {
		return n
	}
	return t.Policy.persons()
}

// vector makes what is reported of a contribution: of several persons' updates the P-th part
// of the sum, each cut to the clipping norm. Of a recipe about one of several persons, whose
// update has a number that is none or infinite counts as zeros. t.mu must be held.
func (t *task) vector(ctx context.Context, c *Contribution) ([]float64, error) {
	q, _ := t.recipe.Vector()
	clip := q.Norm()
	var s *session.Session
	if t.follower != nil {
		m, of, err := t.current(ctx, c.Round)
		if err != nil {
			return nil, err
		}
		clip, s = m.Clip, of
	}
	n, persons := t.entries(s), t.shares()
	if len(c.Updates) == 0 {
		return nil, &VectorError{0, "is missing: a contribution has one at least"}
	}
	updates := make([][]float32, 0, len(c.Updates))
	for i, u := range c.Updates {
		if len(u) != n {
			return nil, &VectorError{i, fmt.Sprintf("has %d numbers, want %d", len(u), n)}
		}
		j := slices.IndexFunc(u, func(x float32) bool { return math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) })
		switch {
		case j < 0:
		case t.recipe.Shares() > 0: // else one person decides whether a site reports
			u = make([]float32, n)
		default:
			return nil, &VectorError{i, fmt.Sprintf("has %v as number %d", u[j], j)}
		}
		updates = append(updates, u)
	}
	update := updates[0]
	if persons > 1 {
		update = meanOfPersons(updates, clip, persons)
	}
	if s == nil {
		return within(update, clip), nil
	}
	vector := make([]float64, s.Terms.Entries())
	if err := s.Terms.Vector(vector, update, clip, q.Norm()); err != nil {
		return nil, err
	}
	return vector, nil
}

// meanOfPersons adds up updates, each scaled down to a norm of at most bound, and divides by
// how many there may be.
func meanOfPersons(updates [][]float32, bound float64, most int) []float32 {
	sum := make([]float64, len(updates[0]))
	for _, u := range updates {
		for i, x := range within(u, bound) {
			sum[i] += x
		}
	}
	out := make([]float32, len(sum))
	for i, x := range sum {
		out[i] = float32(x / float64(most))
	}
	return out
}

// within is an update scaled down to a norm of at most bound, where it is longer.
func within(update []float32, bound float64) []float64 {
	squares := 0.0
	for _, x := range update {
		squares += float64(x) * float64(x)
	}
	scale := 1.0
	if length := math.Sqrt(squares); length > bound {
		scale = bound / length
	}
	out := make([]float64, len(update))
	for i, x := range update {
		out[i] = scale * float64(x)
	}
	return out
}

// current is the model that updates of a round are made on, and its session. t.mu must be
// held.
func (t *task) current(ctx context.Context, round uint64) (*session.Model, *session.Session, error) {
	s, err := t.follower.Session(ctx)
	if err != nil {
		t.tell(err)
		return nil, nil, err
	}
	if t.newest == nil || t.newest.Round != round {
		if _, err := t.look(ctx); err != nil {
			return nil, nil, err
		}
	}
	switch a := t.newest; {
	case a == nil:
		return nil, nil, ErrNoModel
	case a.Round != round: // the model of the one before, or of one to come
		return nil, nil, fmt.Errorf("%w for round %d, and one is for round %d", ErrNoModel, round, a.Round)
	case s.Terms.Clipping.Adaptive != nil && t.shares() > 1:
		return nil, nil, &PolicyError{"persons", "the clipping norm of this training adapts to single updates, and sums of persons' are always shorter"}
	}
	if t.model == nil || t.model.Round != round {
		if t.model, err = t.follower.Model(ctx, t.newest); err != nil {
			t.tell(err)
			return nil, nil, err
		}
		t.shown.Store(&named{t.newest.Model, t.model})
	}
	return t.model, s, nil
}

// look asks for the newest announcement, unless that was just done. The same is
// fetched whoever asks. t.mu must be held.
func (t *task) look(ctx context.Context) (*session.Announcement, error) {
	now := time.Now()
	if now.Sub(t.asked) < fresh {
		return t.newest, t.trouble
	}
	t.asked = now
	a, err := t.follower.Newest(ctx)
	if errors.Is(err, training.ErrNotYet) {
		a, err = t.newest, nil
	}
	if err == nil && a != nil && (t.newest == nil || a.Hash() != t.newest.Hash()) {
		err = disk.WriteFile(t.files, seenFile(t.id), a.Append(nil))
	}
	if err == nil {
		t.newest = a
	}
	if s := t.shown.Load(); s != nil && t.newest != nil && s.name != t.newest.Model {
		t.shown.Store(nil) // an update on it counts for nothing
	}
	t.trouble = err
	t.tell(err)
	return t.newest, err
}

// tell writes down what is a lie of a training's, once, and of a controller that was found
// lying the two announcements, by which anybody can see it (session.Evidence). All devices
// could be shown the same, so that the log tells nothing of this one. t.mu must be held.
func (t *task) tell(err error) {
	name := outcomeOf(err)
	if name != "contradiction" && name != "bad_model" {
		return
	}
	if text := err.Error(); text != t.told {
		t.told = text
	} else {
		return
	}
	about := []any{"recipe", t.id.String(), "outcome", name, "error", err}
	if lie := new(session.ContradictionError); errors.As(err, &lie) {
		about = append(about, "first", fmt.Sprintf("%x", lie.Evidence.First.Append(nil)), "second", fmt.Sprintf("%x", lie.Evidence.Second.Append(nil)))
	}
	t.log.Error("what was fetched of a training is not what was announced", about...)
}
