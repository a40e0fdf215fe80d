package training

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/recipe"
)

// A LateError says that a round was over before its model was there: a report on it would
// count for nothing.
type LateError struct {
	Round, Now uint64 // rounds, as [session.Round] counts
}

func (e *LateError) Error() string {
	return fmt.Sprintf("training: the model is of round %d, and it is round %d", e.Round, e.Now)
}

// A Follower follows the training of one recipe. It is safe for concurrent use.
type Follower struct {
	remote Remote
	recipe *recipe.Recipe
	now    func() time.Time

	mu      sync.Mutex
	session *session.Session      // once it was had
	last    *session.Announcement // the newest that was seen
}

// Follow follows a recipe that was checked, from the newest announcement on that was seen
// before; nil for none. now is the clock, time.Now where nil. It asks nobody. It fails with
// [session.ErrNoTraining].
func Follow(r *recipe.Recipe, remote Remote, seen *session.Announcement, now func() time.Time) (*Follower, error) {
	if r.Training == nil {
		return nil, session.ErrNoTraining
	}
	id, err := r.ID()
	if err != nil {
		return nil, err
	}
	if remote.Recipe = id; now == nil {
		now = time.Now
	}
	return &Follower{remote: remote, recipe: r, now: now, last: seen}, nil
}

// Session returns the recipe's session, which is fetched once. It fails as [Remote.Session]
// and as [session.Session.Check].
func (f *Follower) Session(ctx context.Context) (*session.Session, error) {
	f.mu.Lock()
	s := f.session
	f.mu.Unlock()
	if s != nil {
		return s, nil
	}
	b, err := f.remote.Session(ctx)
	if err != nil {
		return nil, err
	}
	if s, err = session.Read(b); err != nil {
		return nil, err
	}
	if err := s.Check(f.recipe); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.session = s
	return s, nil
}

// Newest fetches the newest announcement, and remembers it. It fails as
// [session.Session.Follow]: with *[session.OldError] for one of before, and with
// *[session.ContradictionError], whose evidence is worth keeping, for one that cannot
// stand beside what was seen.
func (f *Follower) Newest(ctx context.Context) (*session.Announcement, error) {
	s, err := f.Session(ctx)
	if err != nil {
		return nil, err
	}
	b, err := f.remote.Announcement(ctx)
	if err != nil {
		return nil, err
	}
	a, err := session.ReadAnnouncement(b)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := s.Follow(f.last, a); err != nil {
		return nil, err
	}
	f.last = a
	return a, nil
}

// Seen is the newest announcement that was seen; nil for none. A device that keeps it, and
// follows from it on, finds out a controller that tells another story later.
func (f *Follower) Seen() *session.Announcement {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// Model fetches the model that an announcement names. It fails with *[LateError] where the
// round is over, before or after, with [ErrTooLarge], and as [session.Session.ReadModel].
func (f *Follower) Model(ctx context.Context, a *session.Announcement) (*session.Model, error) {
	s, err := f.Session(ctx)
	if err != nil {
		return nil, err
	}
	if err := f.late(a); err != nil {
		return nil, err
	}
	b, err := f.remote.Model(ctx, a.Model, s.Terms.ModelBytes())
	if err != nil {
		return nil, err
	}
	m, err := s.ReadModel(a, b)
	if err != nil {
		return nil, err
	}
	return m, f.late(a)
}

// late says that a round is over.
func (f *Follower) late(a *session.Announcement) error {
	unit, err := f.recipe.TimePrecision.At(f.now())
	if err != nil {
		return err
	}
	if now := session.Round(f.recipe, unit); now > a.Round {
		return &LateError{Round: a.Round, Now: now}
	}
	return nil
}

// Ends is when the round of an announcement ends.
func (f *Follower) Ends(a *session.Announcement) (time.Time, error) {
	return f.recipe.TimePrecision.Begin(dap.Time((a.Round + 1) * f.recipe.BatchUnits()))
}
