package lab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/client/training"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/fl/round"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/fl/simulator"
	"github.com/starling-agg/starling/fl/train"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// TrainingOptions say how a lab of training runs.
type TrainingOptions struct {
	Frame
	// Train is what is trained, and with it epsilon, delta and the rounds: those of Frame
	// follow.
	Train train.Options
	// Credentials has the recipe count devices and stand in a transparency log, as
	// [Options.Credentials].
	Credentials bool

	// seen, if not nil, gets what became of each round that was released.
	seen func(*released)
}

// released is a round of a training: its number in the recipe, which of its devices sent
// answers, what came of it, and the model after it.
type released struct {
	number   uint64
	answered []bool
	sum      *simulator.Sum
	next     *train.Model
}

const (
	// eachTrainee and eachEntry are what a device takes at most.
	eachTrainee = 4 * time.Millisecond
	eachEntry   = 200 * time.Nanosecond
	// trainingGrace is the recipe's: all is on one machine.
	trainingGrace = time.Second
	// settling is how long after its end a round is released and collected: grace, the clock
	// skew of deploy.Create, and a question a second.
	settling = trainingGrace + time.Second + 1500*time.Millisecond
	// slackRounds are rounds more that devices have tokens of, beside half as many again: of
	// those that go by while the machine is busy.
	slackRounds = 10
)

// Bounds of a training with servers: for longer ones there is the simulator.
const (
	maxTrainingRounds  = 100
	maxTrainingDevices = 5000
)

// WithDefaults fills in what is not said. A round lasts as long as it takes to collect the
// one before, on whose sum its model waits, and then as its devices may take on a machine
// that has other things to do too: so one of the recipe's rounds follows another.
func (o TrainingOptions) WithDefaults() TrainingOptions {
	o.Train = o.Train.WithDefaults()
	o.Epsilon, o.Delta = o.Train.Epsilon, o.Train.Delta
	if o.Precision == 0 && o.Train.Set != nil {
		each := eachTrainee + time.Duration(o.Train.Terms().Entries())*eachEntry
		o.Precision = settling + time.Second + time.Duration(o.Train.Devices)*each
		o.Precision = (o.Precision + time.Second - 1).Truncate(time.Second)
	}
	o.Frame = o.Frame.withDefaults("")
	o.relay, o.live = true, true
	if o.Credentials {
		o.counted, o.rounds = o.Train.Devices, o.Train.Rounds*3/2+slackRounds
	}
	return o
}

// Validate says what is wrong, once defaults are filled in: *[train.OptionError] for what is
// trained.
func (o TrainingOptions) Validate() error {
	if err := o.Train.Validate(); err != nil {
		return err
	}
	o = o.WithDefaults()
	switch {
	case o.Train.Rounds > maxTrainingRounds:
		return &train.OptionError{Option: "rounds", Problem: fmt.Sprintf("are %d; want 1 to %d through servers", o.Train.Rounds, maxTrainingRounds)}
	case o.Train.Devices > maxTrainingDevices:
		return &train.OptionError{Option: "devices", Problem: fmt.Sprintf("are %d; want at most %d through servers", o.Train.Devices, maxTrainingDevices)}
	case o.Train.NoiseScale != (recipe.Rational{}):
		return &train.OptionError{Option: "noise scale", Problem: "is the simulator's: real servers draw all of the noise"}
	case o.Train.Attackers > 0 || o.Train.Unvalidated:
		return &train.OptionError{Option: "attackers", Problem: "are the simulator's: real servers verify proofs, as starling lab --recipe vector --malicious shows"}
	}
	return o.Frame.validate()
}

// RunTraining trains through all parties, each round by reports of devices that decide, pay
// and send as real ones do. It ends early with ctx, and as [train.Run] with a
// [*simulator.BudgetError].
func RunTraining(ctx context.Context, o TrainingOptions) (*train.Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.WithDefaults()
	s := &course{o: o}
	f := newFrame(o.Frame)
	acts := []act{{"train", func(ctx context.Context) error { return s.train(ctx, f) }}}
	run := f.run
	if o.Credentials {
		run, acts = f.counted, append([]act{{enrolling, f.enrol}}, acts...)
	}
	if err := run(ctx, s.pose, acts...); err != nil {
		return nil, err
	}
	s.report.Real, s.report.Seconds, s.report.SecondsByStep = true, f.total, f.seconds
	return s.report, s.over
}

// course is the scenario of a model that is trained round by round. It is the
// [train.World] of its rounds: it has the controller begin one, who announces its model;
// devices fetch that through the relay, and the controller has what they report on it
// collected and steps the model.
type course struct {
	o       TrainingOptions
	f       *frame
	devices []trainee
	eye     *training.Follower // what the lab sees of announcements
	spent   uint32
	report  *train.Report
	over    error // the budget ended
}

// A trainee is one device.
type trainee struct {
	participate.Device
	plan     *participate.Plan
	follower *training.Follower
}

// pose makes the recipe, with this lab's servers and hours, and the controller that it names.
func (s *course) pose(f *frame, a *deploy.Addresses) (*recipe.Recipe, error) {
	asked, err := s.o.Train.Asked()
	if err != nil {
		return nil, err
	}
	if f.conductor, err = newConductor(s.o.Train.Terms(), s.o.Train.Steps(), s.o.Train.Start()); err != nil {
		return nil, err
	}
	if asked.Training, err = f.conductor.names(); err != nil {
		return nil, err
	}
	if asked.Window, err = f.window(1); err != nil {
		return nil, err
	}
	asked.Leader, asked.Helper = a.LeaderURL(), a.HelperURL()
	asked.BatchMode, asked.TimePrecision, asked.Grace = dap.TimeInterval, dap.TimePrecision(f.o.Precision/time.Second), trainingGrace
	asked.Relay = &recipe.Relay{URL: f.front.RelayURL(), Gateway: f.front.GatewayURL()}
	if asked.Rate == nil {
		each := max(1, asked.Series.Separation) // devices take turns over as many rounds
		asked.Rate = &recipe.Rate{Devices: (asked.Population.Expected + each - 1) / each, Units: 1}
	}
	return account.New(asked)
}

// train trains once all parties run.
func (s *course) train(ctx context.Context, f *frame) (err error) {
	s.f = f
	if err := f.client.Refresh(ctx); err != nil {
		return err
	}
	if s.eye, err = s.follower(); err != nil {
		return err
	}
	one, err := participate.NewPlan(participate.PlanOptions{Client: f.client})
	if err != nil {
		return err
	}
	s.devices = make([]trainee, s.o.Train.Devices)
	err = crowd(ctx, len(s.devices), f.o.Workers, func(ctx context.Context, i int) (err error) {
		d := &s.devices[i]
		if d.plan = one; f.counting != nil {
			c, err := f.clientOf(ctx, i)
			if err != nil {
				return err
			}
			if d.plan, err = participate.NewPlan(participate.PlanOptions{Client: c}); err != nil {
				return err
			}
		}
		if d.Ledger, err = participate.MemoryLedger(participate.LedgerOptions{MaxEpsilon: f.guarantee.Epsilon * ledgerRoom, MaxDelta: min(1, f.guarantee.Delta*ledgerRoom)}); err != nil {
			return err
		}
		d.follower, err = s.follower()
		return err
	})
	if err != nil {
		return err
	}
	s.report, err = train.RunIn(ctx, s.o.Train, f.recipe, s)
	if over := new(simulator.BudgetError); errors.As(err, &over) {
		s.over, err = over, nil
	}
	return err
}

// follower follows the training through the relay.
func (s *course) follower() (*training.Follower, error) {
	return training.Follow(s.f.recipe, training.Remote{URL: s.f.front.RelayURL(), Client: s.f.http}, nil, nil)
}

// Rounds implements [train.World].
func (s *course) Rounds() uint32 { return s.spent }

// Round implements [train.World]: the round is announced, devices decide and send while it
// lasts, and the controller has it collected and steps the model.
func (s *course) Round(ctx context.Context, m *train.Model, _ int, answer simulator.Answer) (*simulator.Sum, *train.Model, error) {
	if covered := simulator.Covered(s.f.recipe); s.spent >= covered {
		return nil, nil, &simulator.BudgetError{Rounds: covered}
	}
	index := s.spent
	s.spent++
	sum, next, err := s.play(ctx, index, m, answer)
	if few := new(simulator.TooFewError); err != nil && !errors.As(err, &few) {
		err = fmt.Errorf("round %d: %w", index+1, err)
	}
	return sum, next, err
}

func (s *course) play(ctx context.Context, index uint32, m *train.Model, answer simulator.Answer) (*simulator.Sum, *train.Model, error) {
	if err := s.f.conductor.begin(ctx); err != nil {
		return nil, nil, err
	}
	a, err := announced(ctx, s.eye, index)
	if err != nil {
		return nil, nil, err
	}
	begin, err := s.f.recipe.TimePrecision.Begin(dap.Time(a.Round * s.f.recipe.BatchUnits()))
	if err != nil {
		return nil, nil, err
	}
	select {
	case <-time.After(time.Until(begin)):
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	sum, answered, err := s.send(ctx, index, a, m, answer)
	if err != nil {
		return nil, nil, err
	}
	r, err := s.f.conductor.ended(ctx, s.f, index)
	if err != nil {
		return nil, nil, err
	}
	if sum.Reports = r.Reports; r.State == round.Skipped.String() {
		return sum, nil, &simulator.TooFewError{Count: r.Reports, Least: s.f.recipe.Threshold()}
	}
	next, err := s.f.conductor.model(ctx)
	if err == nil && s.o.seen != nil {
		s.o.seen(&released{a.Round, answered, sum, next})
	}
	return sum, next, err
}

// send has all devices whose turn it is fetch the model that was announced, decide about its
// round, and send what their coins say.
func (s *course) send(ctx context.Context, index uint32, a *session.Announcement, m *train.Model, answer simulator.Answer) (*simulator.Sum, []bool, error) {
	q, _ := s.f.recipe.Vector()
	var all participate.Tally
	var shape, notFinite, late atomic.Int64
	answered := make([]bool, len(s.devices))
	cpu := make(chan struct{}, s.f.o.Workers) // held while a device computes
	decide := func(ctx context.Context, d *trainee, i int) (*participate.Decision, error) {
		cpu <- struct{}{}
		defer func() { <-cpu }()
		report, err := answer(i, make([]float64, q.Dimension))
		if err != nil {
			return nil, err
		}
		now := time.Now()
		ends, err := d.follower.Ends(a)
		switch {
		case err != nil:
			return nil, err
		case len(report.Vector) != int(q.Dimension):
			shape.Add(1)
			return nil, nil
		case !finite(report.Vector):
			notFinite.Add(1)
			return nil, nil
		case !now.Before(ends):
			late.Add(1)
			return nil, nil
		}
		return d.Decide(ctx, d.plan, client.Reals(report.Vector), now)
	}
	err := crowd(ctx, len(s.devices), inFlight, func(ctx context.Context, i int) error {
		if !simulator.Turn(s.f.recipe, i, index) {
			return nil
		}
		d := &s.devices[i]
		err := d.fetch(ctx, a, m)
		if old := new(training.LateError); errors.As(err, &old) {
			late.Add(1)
			return nil
		}
		var decision *participate.Decision
		if err == nil {
			decision, err = decide(ctx, d, i)
		}
		if err != nil {
			return fmt.Errorf("device %d: %w", i, err)
		}
		if decision == nil {
			return nil // it sends nothing
		}
		all.Add(decision)
		var own participate.Tally
		own.Add(decision)
		answered[i] = own.Reports() == 1
		if !decision.Uploads() {
			return nil
		}
		if err := decision.Send(ctx); err != nil {
			return fmt.Errorf("device %d: %w", i, err)
		}
		return nil
	})
	return &simulator.Sum{Dummies: all.Dummies(), Unsent: simulator.Unsent{Shape: int(shape.Load()), NotFinite: int(notFinite.Load()), Late: int(late.Load())}}, answered, err
}

// fetch has the model of a round from the relay, by its hash, and holds it to the one that
// the training goes on with: what the controller said and what it publishes are the same.
func (d *trainee) fetch(ctx context.Context, a *session.Announcement, want *train.Model) error {
	own, err := d.follower.Newest(ctx)
	if err != nil {
		return err
	}
	if own.Hash() != a.Hash() {
		return &training.LateError{Round: a.Round, Now: own.Round}
	}
	m, err := d.follower.Model(ctx, own)
	if err != nil {
		return err
	}
	if m.Clip != want.Clip || !slices.Equal(m.Parameters, want.Parameters) {
		return fmt.Errorf("the model of round %d is another than the controller said", a.Round)
	}
	return nil
}

func finite(v []float64) bool {
	return !slices.ContainsFunc(v, func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
}
