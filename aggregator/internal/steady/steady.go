// Package steady keeps the time by which an aggregator ends what cannot be begun again:
// tasks with their replay protection, HPKE keys, the rounds that it releases. That time
// follows the machine's clock as far as that is plausible.
//
// A store remembers the largest time that it was seen at. A clock that is further ahead
// of it than [Options.Absence], or behind it, may be right: a machine was off for a year,
// a battery is new. It may as well be wrong by years, and what ends by it is gone. So the
// time stands still at what was last seen until the clock comes back or a person says
// that it is right ([Clock.Confirm]); [Clock.Held] tells. Nothing else waits for that:
// uploads are taken and reports verified by whichever of the two times refuses less.
//
// A clock that runs fast, or is set ahead in steps below the limit, is followed: who sets
// the machine's clock can do that, and only other clocks could tell.
package steady

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/internal/disk"
)

// DefaultAbsence outlasts a long holiday of the machine.
const DefaultAbsence = 7 * 24 * time.Hour

// behind is how far a clock may be set back before it is worth a word. The time never goes
// back with it.
const behind = time.Hour

// saveEvery is how often the time is written down; what is not written down counts as
// absence.
const saveEvery = 10 * time.Minute

// A Keeper keeps one time durably.
type Keeper interface {
	// SeenTime is the time that was saved last, zero if none was.
	SeenTime(ctx context.Context) (time.Time, error)
	SaveTime(ctx context.Context, t time.Time) error
}

// Options make a [Clock].
type Options struct {
	// Keeper is the aggregator's store. Required.
	Keeper Keeper
	// Clock is the machine's. Required.
	Clock disk.Clock
	// Absence is how far ahead of the time last seen the clock may be; default
	// [DefaultAbsence], negative for any: then the clock is followed wherever it goes.
	Absence time.Duration
	// Log gets a line when the time begins to stand still, and when it goes on. Required.
	Log *slog.Logger
}

// A Clock is a [disk.Clock] that never goes back and never leaps. Safe for concurrent use.
type Clock struct {
	opt Options

	mu    sync.Mutex
	seen  time.Time // the largest that was plausible
	saved time.Time
	told  bool // that it stands still
}

// Open begins with what an earlier life saw, or with the machine's clock in a new store.
func Open(ctx context.Context, opt Options) (*Clock, error) {
	if opt.Absence == 0 {
		opt.Absence = DefaultAbsence
	}
	seen, err := opt.Keeper.SeenTime(ctx)
	if err != nil {
		return nil, err
	}
	c := &Clock{opt: opt, seen: seen, saved: seen}
	if seen.IsZero() {
		c.seen = wall(opt.Clock)
	}
	return c, c.Step(ctx)
}

// wall is the date alone: a monotonic reading would hide that the clock was set.
func wall(c disk.Clock) time.Time { return c.Now().Round(0).UTC() }

// Now is the time that things end by.
func (c *Clock) Now() time.Time {
	now := wall(c.opt.Clock)
	if c.opt.Absence < 0 {
		return now
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := now.Sub(c.seen); d > 0 && d <= c.opt.Absence {
		c.seen = now
	}
	return c.seen
}

// Latest is the later of the machine's clock and [Clock.Now]: what is not too early by
// either is taken.
func (c *Clock) Latest() time.Time {
	now := c.Now()
	if raw := c.opt.Clock.Now(); raw.After(now) {
		return raw
	}
	return now
}

// NewTimer implements [disk.Clock].
func (c *Clock) NewTimer(d time.Duration) disk.Timer { return c.opt.Clock.NewTimer(d) }

// Held is nil while the time goes on with the machine's clock.
func (c *Clock) Held() *status.Clock {
	if c.opt.Absence < 0 {
		return nil
	}
	seen, now := c.Now(), wall(c.opt.Clock)
	if d := now.Sub(seen); d > c.opt.Absence || d < -behind {
		return &status.Clock{Now: now, Seen: seen}
	}
	return nil
}

// Step writes the time down if that is due. Call it every minute or so.
func (c *Clock) Step(ctx context.Context) error {
	held := c.Held()
	c.mu.Lock()
	seen, told := c.seen, c.told
	due := c.saved.IsZero() || seen.Sub(c.saved) >= saveEvery
	c.told = held != nil
	c.mu.Unlock()
	switch {
	case held != nil && !told:
		c.opt.Log.LogAttrs(ctx, slog.LevelError, held.Why(), slog.Time("clock", held.Now), slog.Time("seen", held.Seen))
	case held == nil && told:
		c.opt.Log.LogAttrs(ctx, slog.LevelInfo, "the clock is plausible again")
	}
	if !due {
		return nil
	}
	return c.save(ctx, seen)
}

func (c *Clock) save(ctx context.Context, t time.Time) error {
	if err := c.opt.Keeper.SaveTime(ctx, t); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saved = t
	return nil
}

// Confirm takes the machine's clock for right, wherever it is.
func (c *Clock) Confirm(ctx context.Context) (time.Time, error) {
	now := wall(c.opt.Clock)
	if err := c.save(ctx, now); err != nil {
		return now, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = now
	return now, nil
}
