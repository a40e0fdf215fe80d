package round

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/fl/optimizer"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/signed"
)

// A Sum is what leader and helper released of one round.
type Sum struct {
	// Values is the sum of the vectors that were reported, noise included, in units of
	// their entries.
	Values []float64
	// Reports in it, dummies among them.
	Reports uint64
}

// A TooFewError says that a round is over with fewer reports than are released about, and
// that no more can come.
type TooFewError struct{ Reports uint64 } // 0 where it is not known

func (e *TooFewError) Error() string {
	return "round: fewer reports than anything is released about"
}

// A Source has leader and helper release sums. Its methods are called by one goroutine.
type Source interface {
	// Collect waits for the sum of one batch of the recipe, which is over. The same batch
	// has the same sum for ever, also after a restart. It fails with *[TooFewError]; after
	// any other error it is asked again.
	Collect(ctx context.Context, batch dap.Interval) (*Sum, error)
	// GiveUp withdraws the question about a batch. It is false where the sum is there after
	// all: then Collect returns it.
	GiveUp(ctx context.Context, batch dap.Interval) (bool, error)
}

// Published asks what devices are shown at one place: the newest announcement, nil where
// there is none yet.
type Published struct {
	Where string
	Ask   func(context.Context) (*session.Announcement, error)
}

// Options make a [Controller].
type Options struct {
	// Session and Recipe belong together. Required.
	Session *session.Session
	Recipe  *recipe.Recipe
	// Key is the controller's. Required.
	Key *signed.PrivateKey
	// Store has the journal and the models. Required; [Open] takes it over.
	Store Store
	// Record is the directory of the newest announcement: not in Store, and best on another
	// disk, so that no backup puts both back. Required; one process has it.
	Record disk.FS
	// Source collects. Required.
	Source Source
	// Published are places at which devices are shown announcements, all of which are asked
	// before the controller signs one. Optional.
	Published []Published
	// Initial are the parameters of the first model; zeros where nil.
	Initial []float32
	// Optimizer steps the model. Required.
	Optimizer optimizer.Config
	// Cohort is how many devices are expected to report in a round, dummies not counted:
	// what sums are divided by, whatever the number of reports was. Required.
	Cohort float64
	// Batch is of how many rounds one step is; default 1.
	Batch int
	// Ahead is how many rounds may be announced that the model was not stepped with yet;
	// default Batch, which is the least. With more, rounds follow each other without a pause
	// and models lag behind.
	Ahead int
	// Late is how far into a round its model may still be announced; default a tenth of it.
	Late time.Duration
	// Patience is how long after a round, and its grace, its sum is waited for; default an
	// hour.
	Patience time.Duration
	// Retry is the wait after a collection failed; default 1 s. It doubles up to a minute.
	Retry time.Duration
	// Manual rounds begin by [Controller.Begin] alone.
	Manual bool
	// Average is the last share of the training's rounds whose models are averaged, beside
	// the newest one, 0 to 1: noise that steps one way and then the other goes out of the
	// mean. Default 0, none.
	Average float64
	// Keep is of how many rounds models and sums are kept once the model was stepped with
	// them; default 16.
	Keep int
	// Clock is the system's where nil.
	Clock disk.Clock
	// Log is told of rounds, by number; default none.
	Log *slog.Logger
	// Failpoints is nil in production.
	Failpoints *disk.Failpoints
}

// Validate fills in defaults and reports what is missing or does not fit.
func (o *Options) Validate() error {
	switch {
	case o.Session == nil || o.Recipe == nil || o.Key == nil || o.Store == nil || o.Record == nil || o.Source == nil:
		return errors.New("round: Session, Recipe, Key, Store, Record and Source are required")
	case o.Key.Public() != o.Session.Controller:
		return errors.New("round: the key is not the one that the recipe names")
	case !(o.Cohort > 0) || o.Cohort > 1e15:
		return fmt.Errorf("round: a cohort of %v devices, want above 0", o.Cohort)
	case o.Initial != nil && len(o.Initial) != o.Session.Terms.Dimension():
		return fmt.Errorf("round: a first model of %d parameters, the session's have %d", len(o.Initial), o.Session.Terms.Dimension())
	case !(o.Average >= 0 && o.Average <= 1):
		return fmt.Errorf("round: an average of the last %v of the rounds, want a share from 0 to 1", o.Average)
	case o.Batch < 0 || o.Ahead < 0 || o.Late < 0 || o.Patience < 0 || o.Retry < 0 || o.Keep < 0:
		return errors.New("round: negative")
	}
	if err := o.Session.Check(o.Recipe); err != nil {
		return err
	}
	if err := o.Optimizer.Validate(); err != nil {
		return err
	}
	if most := covered(o.Recipe); uint64(o.Session.Terms.Rounds) > most {
		return fmt.Errorf("round: the training has %d rounds, and the guarantee covers %d: devices would take part no more", o.Session.Terms.Rounds, most)
	}
	o.Batch = max(1, o.Batch)
	o.Ahead = max(o.Ahead, o.Batch)
	if o.Late == 0 {
		o.Late = length(o.Recipe) / 10
	}
	if o.Patience == 0 {
		o.Patience = time.Hour
	}
	if o.Retry == 0 {
		o.Retry = time.Second
	}
	if o.Keep == 0 {
		o.Keep = 16
	}
	if o.Clock == nil {
		o.Clock = disk.SystemClock
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// covered is how many rounds, or slots, a recipe's guarantee is about.
func covered(r *recipe.Recipe) uint64 {
	if c, ok := r.Correlated(); ok {
		return c.Series.Rounds
	}
	if _, ok := r.Claim.(recipe.ApproxDP); !ok {
		return math.MaxUint64
	}
	return uint64(r.DecisionRounds()) * uint64(r.Slots())
}

// length is that of a round.
func length(r *recipe.Recipe) time.Duration {
	return time.Duration(r.BatchUnits()) * time.Duration(r.TimePrecision) * time.Second
}
