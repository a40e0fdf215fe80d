package lab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/anonymity/gateway"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/fl/simulator"
	"github.com/starling-agg/starling/fl/train"
	"github.com/starling-agg/starling/internal/service"
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

	// seen, if not nil, gets what each round released, and which of its devices sent
	// answers.
	seen func(round int, answered []bool, sum *simulator.Sum)
}

// Bounds of a training with servers: for longer ones there is the simulator.
const (
	MaxTrainingRounds  = 100
	MaxTrainingDevices = 5000
)

// WithDefaults fills in what is not said. A round is of a second.
func (o TrainingOptions) WithDefaults() TrainingOptions {
	o.Train = o.Train.WithDefaults()
	o.Epsilon, o.Delta = o.Train.Epsilon, o.Train.Delta
	if o.Precision == 0 {
		o.Precision = time.Second
	}
	o.Frame = o.Frame.withDefaults("")
	o.relay = true
	if o.rounds = o.Train.Rounds; o.Credentials {
		o.counted = o.Train.Devices
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
	case o.Train.Rounds > MaxTrainingRounds:
		return &train.OptionError{Option: "rounds", Problem: fmt.Sprintf("are %d; want 1 to %d through servers", o.Train.Rounds, MaxTrainingRounds)}
	case o.Train.Devices > MaxTrainingDevices:
		return &train.OptionError{Option: "devices", Problem: fmt.Sprintf("are %d; want at most %d through servers", o.Train.Devices, MaxTrainingDevices)}
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
	s := &training{o: o}
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

// training is the scenario of a model that is trained round by round. It is the
// [train.World] of its rounds.
type training struct {
	o      TrainingOptions
	f      *frame
	plans  []*participate.Plan
	ledger []participate.Device
	config *deploy.Collector
	counts
	spent  uint32
	report *train.Report
	over   error // the budget ended
}

// counts are of all rounds so far.
type counts struct {
	sent, noOps uint64
	accepted    uint64
}

// pose makes the recipe, with this lab's servers and hours.
func (s *training) pose(f *frame, a *deploy.Addresses) (*recipe.Recipe, error) {
	asked, err := s.o.Train.Asked()
	if err != nil {
		return nil, err
	}
	if asked.Window, err = f.window(s.o.Train.Rounds); err != nil {
		return nil, err
	}
	asked.Leader, asked.Helper = a.LeaderURL(), a.HelperURL()
	asked.BatchMode, asked.TimePrecision, asked.Grace = dap.TimeInterval, dap.TimePrecision(f.o.Precision/time.Second), grace
	asked.Relay = &recipe.Relay{URL: f.front.RelayURL(), Gateway: f.front.GatewayURL()}
	if asked.Rate == nil {
		each := max(1, asked.Series.Separation) // devices take turns over as many rounds
		asked.Rate = &recipe.Rate{Devices: (asked.Population.Expected + each - 1) / each, Units: 1}
	}
	return account.New(asked)
}

// train trains once all parties run.
func (s *training) train(ctx context.Context, f *frame) (err error) {
	s.f = f
	if s.config, err = f.collector(); err != nil {
		return err
	}
	if err := f.client.Refresh(ctx); err != nil {
		return err
	}
	devices := s.o.Train.Devices
	s.plans, s.ledger = make([]*participate.Plan, devices), make([]participate.Device, devices)
	err = crowd(ctx, devices, f.o.Workers, func(ctx context.Context, i int) (err error) {
		if f.counting == nil && i > 0 {
			return nil // all have the first one's
		}
		c := f.client
		if f.counting != nil {
			if c, err = f.clientOf(ctx, i); err != nil {
				return err
			}
		}
		s.plans[i], err = participate.NewPlan(participate.PlanOptions{Client: c})
		return err
	})
	if err != nil {
		return err
	}
	budget := participate.LedgerOptions{MaxEpsilon: math.Inf(1), MaxDelta: min(1, f.guarantee.Delta*ledgerRoom)}
	if !f.o.exact {
		budget.MaxEpsilon = f.guarantee.Epsilon * ledgerRoom
	}
	for i := range s.ledger {
		if s.plans[i] == nil {
			s.plans[i] = s.plans[0]
		}
		if s.ledger[i].Ledger, err = participate.MemoryLedger(budget); err != nil {
			return err
		}
	}
	s.report, err = train.RunIn(ctx, s.o.Train, f.recipe, s)
	if over := new(simulator.BudgetError); errors.As(err, &over) {
		s.over, err = over, nil
	}
	return err
}

// Rounds implements [train.World].
func (s *training) Rounds() uint32 { return s.spent }

// Round implements [train.World]: devices decide and send, and what the servers released of
// the round is collected.
func (s *training) Round(ctx context.Context, _ *train.Model, _ int, answer simulator.Answer) (*simulator.Sum, *train.Model, error) {
	if covered := simulator.Covered(s.f.recipe); s.spent >= covered {
		return nil, nil, &simulator.BudgetError{Rounds: covered}
	}
	round := int(s.spent)
	s.spent++
	at, before := s.f.roundTime(round, s.o.Train.Rounds), s.counts
	sum, answered, err := s.send(ctx, uint32(round), at, answer)
	if err != nil {
		return nil, nil, err
	}
	if err := s.arrived(ctx); err != nil {
		return nil, nil, err
	}
	sum.Reports = s.accepted - before.accepted
	if least := s.f.recipe.Threshold(); sum.Reports < least {
		return sum, nil, &simulator.TooFewError{Count: sum.Reports, Least: least} // the leader would wait for more
	}
	result, err := s.collect(ctx, round, at)
	if err != nil {
		return nil, nil, fmt.Errorf("round %d: %w", round+1, err)
	}
	if result.ReportCount != sum.Reports {
		return nil, nil, fmt.Errorf("round %d: %d reports were released and %d verified", round+1, result.ReportCount, sum.Reports)
	}
	sum.Raw, sum.Estimate = result.Raw, result.Estimate
	if s.o.seen != nil {
		s.o.seen(round, answered, sum)
	}
	return sum, nil, nil
}

// send has all devices decide about a round, and send what their coins say.
func (s *training) send(ctx context.Context, round uint32, at time.Time, answer simulator.Answer) (*simulator.Sum, []bool, error) {
	q, _ := s.f.recipe.Vector()
	var all participate.Tally
	var shape, notFinite atomic.Int64
	devices := len(s.ledger)
	answered := make([]bool, devices)
	cpu := make(chan struct{}, s.f.o.Workers) // held while a device computes
	decide := func(ctx context.Context, i int) (*participate.Decision, error) {
		cpu <- struct{}{}
		defer func() { <-cpu }()
		report, err := answer(i, make([]float64, q.Dimension))
		switch {
		case err != nil:
			return nil, err
		case len(report.Vector) != int(q.Dimension):
			shape.Add(1)
			return nil, nil
		case !finite(report.Vector):
			notFinite.Add(1)
			return nil, nil
		}
		return s.ledger[i].Decide(ctx, s.plans[i], client.Reals(report.Vector), at)
	}
	err := crowd(ctx, devices, inFlight, func(ctx context.Context, i int) error {
		if !simulator.Turn(s.f.recipe, i, round) {
			return nil
		}
		decision, err := decide(ctx, i)
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
	s.sent += all.Reports() + all.Dummies()
	s.noOps += all.NoOps()
	return &simulator.Sum{Dummies: all.Dummies(), Unsent: simulator.Unsent{Shape: int(shape.Load()), NotFinite: int(notFinite.Load())}}, answered, err
}

func finite(v []float64) bool {
	for _, x := range v {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
	}
	return true
}

// arrived waits until the gateway has passed on all reports, and the servers have verified
// them.
func (s *training) arrived(ctx context.Context) error {
	if err := s.passed(ctx); err != nil {
		return err
	}
	f := s.f
	f.sent, f.acknowledged, f.rejected = s.sent, s.sent, map[string]uint64{}
	if err := f.verify(ctx); err != nil {
		return err
	}
	s.accepted = s.sent
	for _, n := range f.rejected {
		s.accepted -= n
	}
	return nil
}

// passed waits until the gateway holds nothing.
func (s *training) passed(ctx context.Context) error {
	ticker := time.NewTicker(frontWindow)
	defer ticker.Stop()
	for {
		var behind gateway.Status
		if err := s.f.readStatus(ctx, s.f.front.GatewayLocal.Addr().String(), &behind); err != nil {
			return err
		}
		if behind.Held == 0 {
			if behind.Passed != s.sent || len(behind.Verdicts)+len(behind.Lost) > 0 {
				return fmt.Errorf("the gateway passed on %d reports, and devices sent %d; of others %v, %v", behind.Passed, s.sent, behind.Verdicts, behind.Lost)
			}
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// collect asks for a round. The last one leaves its state where who goes on with a kept
// deployment looks for it.
func (s *training) collect(ctx context.Context, round int, at time.Time) (*collector.Result, error) {
	own := *s.config
	if round < s.o.Train.Rounds-1 {
		own.State += service.Path(fmt.Sprintf(".%d", round+1))
	}
	return s.f.collect(ctx, &own, at)
}
