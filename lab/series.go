package lab

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/internal/prose"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// SeriesOptions say how a lab of correlated noise runs, in which no picture is drawn.
// Epsilon is over all rounds. The zero value is the whole demonstration.
type SeriesOptions struct {
	Frame
	// Shape is by default of 200 devices, and of 1,000 numbers. Device i answers in the
	// rounds that leave the remainder i over Separation.
	Shape
	// Rounds is how many batches are released, 2 to 100; default 32. Each is one unit of
	// time, in the past.
	Rounds int
	// Separation is how many rounds a device stays away, 2 to Rounds and at most a
	// twentieth of Devices; default 8, or less where that is too much. It is also the
	// number of bands.
	Separation int
}

const (
	maxSeriesRounds = 100
	leastOfRound    = 20 // devices
	seriesFracBits  = 12
	seriesBits      = 8
)

// WithDefaults fills in what is not said. Epsilon is 8.
func (o SeriesOptions) WithDefaults() SeriesOptions {
	o.Frame, o.Shape = o.Frame.withDefaults("8"), o.Shape.withDefaults(200, 1000)
	if o.Rounds == 0 {
		o.Rounds = 32
	}
	if o.Separation == 0 {
		o.Separation = max(2, min(8, o.Rounds, o.Devices/leastOfRound))
	}
	return o
}

// Validate says what is wrong, once defaults are filled in.
func (o SeriesOptions) Validate() error {
	o = o.WithDefaults()
	if err := o.Shape.validate(); err != nil {
		return err
	}
	switch {
	case o.Rounds < 2 || o.Rounds > maxSeriesRounds:
		return fmt.Errorf("lab: %d rounds; want 2 to %d", o.Rounds, maxSeriesRounds)
	case o.Separation < 2 || o.Separation > o.Rounds || o.Separation > o.Devices/leastOfRound:
		return fmt.Errorf("lab: devices stay away %d rounds; want 2 to %d", o.Separation, min(o.Rounds, o.Devices/leastOfRound))
	}
	return o.Frame.validate()
}

// participations is how often the busiest device answers.
func (o *SeriesOptions) participations() int { return (o.Rounds + o.Separation - 1) / o.Separation }

// A SeriesRound is what is known after a round. Errors are root mean squares over the
// entries, in units of the entries.
type SeriesRound struct {
	Reports uint64 `json:"reports"`
	// Error of the round's sum, and what was expected.
	Error    float64 `json:"error"`
	Forecast float64 `json:"forecast"`
	// PrefixError of the sum over all rounds so far, what was expected, and what would be
	// expected of noise of each round's own under the same guarantee.
	PrefixError       float64 `json:"prefix_error"`
	PrefixForecast    float64 `json:"prefix_forecast"`
	PrefixIndependent float64 `json:"prefix_independent"`
}

// A SeriesReport is what a lab of correlated noise found. Its JSON keys are only added to.
type SeriesReport struct {
	Outcome            // over all rounds
	Devices        int `json:"devices"`
	Dimension      int `json:"dimension"`
	Separation     int `json:"separation"`
	Bands          int `json:"bands"`
	Participations int `json:"participations"`
	// Early are the answers that devices were asked for a round too soon, and Refused those
	// of them that their ledgers refused.
	Early   uint64 `json:"asked_too_soon"`
	Refused uint64 `json:"refused_by_ledgers"`

	Rounds []SeriesRound `json:"rounds"`
	// Gain is how much smaller the error of prefix sums was than independent noise's is
	// expected to be, and GainForecast how much it was expected to be: roots of mean
	// squares over all rounds.
	Gain         float64 `json:"gain"`
	GainForecast float64 `json:"gain_forecast"`
}

// Check says what must not be in a report: a lost or a spurious report, a device that
// came back too soon, or an error that the forecast noise does not explain.
func (r *SeriesReport) Check() error {
	if r.Accepted != r.Sent || len(r.Rejected) > 0 {
		return fmt.Errorf("lab: %d of %d reports were accepted: %v", r.Accepted, r.Sent, r.Rejected)
	}
	if r.Refused != r.Early {
		return fmt.Errorf("lab: ledgers refused %d of %d answers that came too soon", r.Refused, r.Early)
	}
	// The squared error over that of an entry is chi-square with as many degrees d as
	// entries: beyond 2 sqrt(24 d) + 48 above d, or 2 sqrt(24 d) below, once in 2*10^10
	// (Laurent and Massart 2000, lemma 1), so in any of 200 sums once in 10^8. One per
	// cent of room is for the roundings of the vectors.
	d := float64(r.Dimension)
	off := func(got, want float64) bool {
		x := d * got * got / (want * want)
		return !(x <= d*1.01+2*math.Sqrt(24*d)+48) || x < d-2*math.Sqrt(24*d)
	}
	for i, x := range r.Rounds {
		if off(x.Error, x.Forecast) || off(x.PrefixError, x.PrefixForecast) {
			return fmt.Errorf("lab: round %d is off by %g, and the sum so far by %g; %g and %g were expected of the noise", i+1, x.Error, x.PrefixError,
				x.Forecast, x.PrefixForecast)
		}
	}
	return nil
}

// WriteText writes the report for people, prose in it at most width columns wide.
func (r *SeriesReport) WriteText(w io.Writer, width int) error {
	if _, err := fmt.Fprintf(w, `%s
%s%s
 round  reports    error of round  (forecast)    of the sum so far  (forecast)  (independent)
`, wrapped(fmt.Sprintf("Running sums of vectors of %s numbers, with noise that is correlated over rounds", prose.Count(float64(r.Dimension))), width),
		wrappedPoint("Rounds", width, "%d; %s devices, each of them in every %dth, at most %d times", len(r.Rounds), prose.Count(float64(r.Devices)), r.Separation,
			r.Participations),
		wrappedPoint("Their ledgers", width, "refused %s of %s answers a round too soon", prose.Count(float64(r.Refused)), prose.Count(float64(r.Early)))); err != nil {
		return err
	}
	step := max(1, len(r.Rounds)/8)
	for i, x := range r.Rounds {
		if (i+1)%step != 0 && i != 0 && i != len(r.Rounds)-1 {
			continue
		}
		if _, err := fmt.Fprintf(w, "%6d  %7d  %16.2f  %10.2f  %19.2f  %10.2f  %13.2f\n", i+1, x.Reports, x.Error, x.Forecast, x.PrefixError, x.PrefixForecast,
			x.PrefixIndependent); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, `
%s
Reports: %s accepted of %s

%s
%s`, wrapped(fmt.Sprintf("Sums so far are %.2f times as accurate as with noise of each round's own and the same guarantee (forecast %.2f)",
		r.Gain, r.GainForecast), width), prose.Count(float64(r.Accepted)), prose.Count(float64(r.Sent)), wrapped(r.Guarantee, width),
		ending(r.SecondsByStep, r.SecondsTotal, r.Table, width))
	return err
}

// RunSeries releases sums of vectors round after round through the same services as
// [RunVectors], with noise that is correlated over rounds, and shows how far the running
// sums are off. Devices answer through their ledgers, which hold them to their distance;
// each is also asked one round too soon, and must refuse. It ends early with ctx. As in
// [Run], a report may come beside an error.
func RunSeries(ctx context.Context, o SeriesOptions) (*SeriesReport, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.WithDefaults()
	return play(ctx, o.Frame, &series{o: o, found: &SeriesReport{Devices: o.Devices, Dimension: o.Dimension, Separation: o.Separation,
		Participations: o.participations()}})
}

// series is the scenario of many sums.
type series struct {
	o     SeriesOptions
	truth [][]float64 // the exact sum of each round
	found *SeriesReport
}

// pose implements scenario.
func (s *series) pose(f *frame, a *deploy.Addresses) (*recipe.Recipe, error) {
	o := &s.o
	window, err := f.window(o.Rounds)
	if err != nil {
		return nil, err
	}
	query, err := recipe.NewVector(uint32(o.Dimension), 1, seriesFracBits, 0)
	if err != nil {
		return nil, err
	}
	strategy, err := correlated.Optimize(o.Separation, o.Rounds, seriesBits)
	if err != nil {
		return nil, err
	}
	each := o.Devices / o.Separation
	return account.New(account.Options{
		Name:        "What use of health care looks like, round by round",
		Description: "Random Fourier features of your years in the study, of which only sums over many people are released.",
		Population: &recipe.Population{
			Statement: "the participants of the RAND Health Insurance Experiment, 1974 to 1982, ten rows each",
			Expected:  uint64(each + 1),
		},
		Query:  query,
		Leader: a.LeaderURL(), Helper: a.HelperURL(),
		BatchMode:     dap.TimeInterval,
		MinBatch:      uint64(max(recipe.MinBatchFloor, each/2)),
		TimePrecision: dap.TimePrecision(f.o.Precision / time.Second),
		Window:        window,
		Kind:          account.CorrelatedNoise, Epsilon: f.o.Epsilon, Delta: f.o.Delta, Rounds: uint32(o.participations()),
		Series: correlated.Series{Strategy: strategy, Separation: uint64(o.Separation), Rounds: uint64(o.Rounds)},
	})
}

// answer implements scenario: each device goes through all of its rounds.
func (s *series) answer(ctx context.Context, f *frame) error {
	o := &s.o
	if err := f.client.Refresh(ctx); err != nil {
		return err
	}
	x, err := newFeatures(o.Devices, o.Dimension)
	if err != nil {
		return err
	}
	plan, err := participate.NewPlan(participate.PlanOptions{Client: f.client})
	if err != nil {
		return err
	}
	s.truth = make([][]float64, o.Rounds)
	for t := range s.truth {
		s.truth[t] = make([]float64, o.Dimension)
	}
	g := &gauge{total: uint64(o.Devices * o.Rounds / o.Separation)}
	stop := f.watch(ctx, g)
	defer stop()
	var mu sync.Mutex // guards the truth, Early and Refused
	err = crowd(ctx, o.Devices, f.o.Workers, func(ctx context.Context, i int) error {
		ledger, err := participate.MemoryLedger(participate.LedgerOptions{MaxEpsilon: math.Inf(1), MaxDelta: 1})
		if err != nil {
			return err
		}
		device, x := participate.Device{Ledger: ledger}, x.of(i)
		for t := i % o.Separation; t < o.Rounds; t += o.Separation {
			if t >= o.Separation { // the round before, in which its last answer still counts
				_, err := device.Decide(ctx, plan, client.Reals(x), f.roundTime(t-1, o.Rounds))
				refused := errors.Is(err, participate.ErrTooSoon) || o.Separation == 2 && errors.Is(err, participate.ErrDecided)
				if err != nil && !refused {
					return err
				}
				mu.Lock()
				s.found.Early++
				if refused {
					s.found.Refused++
				}
				mu.Unlock()
			}
			decision, err := device.Decide(ctx, plan, client.Reals(x), f.roundTime(t, o.Rounds))
			if err != nil {
				return err
			}
			if err := decision.Send(ctx); err != nil {
				return err
			}
			g.done.Add(1)
			mu.Lock()
			for j, v := range x {
				s.truth[t][j] += v
			}
			mu.Unlock()
		}
		return nil
	})
	f.sent = g.done.Load()
	f.acknowledged, s.found.Sent = f.sent, f.sent
	return err
}

// start asks for all rounds; the leader releases them in the order of time.
func (s *series) start(ctx context.Context, f *frame, config *deploy.Collector) ([]*collector.Job, error) {
	o := collector.Options{HTTP: f.http, Poll: 20 * time.Millisecond, MaxPoll: 200 * time.Millisecond}
	var err error
	if o.Checked, o.Token, o.Key, err = config.Read(); err != nil {
		return nil, err
	}
	c, err := collector.New(o)
	if err != nil {
		return nil, err
	}
	jobs := make([]*collector.Job, s.o.Rounds)
	for t := range jobs {
		from, to, err := f.interval(f.roundTime(t, s.o.Rounds))
		if err != nil {
			return nil, err
		}
		query, err := c.Interval(from, to)
		if err != nil {
			return nil, err
		}
		if jobs[t], err = c.Start(ctx, query); err != nil {
			return nil, fmt.Errorf("round %d: %w", t+1, err)
		}
	}
	return jobs, nil
}

// compare implements scenario: it compares the sums with the exact ones, round by round.
func (s *series) compare(ctx context.Context, f *frame) error {
	config, err := f.collector()
	if err != nil {
		return err
	}
	jobs, err := s.start(ctx, f, config)
	if err != nil {
		return err
	}
	out, truth := s.found, s.truth
	n, ok := f.recipe.Correlated()
	if !ok {
		return errors.New("lab: internal error: the noise is not correlated")
	}
	unit := f.recipe.Query.Unit()
	forecast := n.Errors(len(truth))
	deviation := func(variance float64) float64 { return unit * math.Sqrt(2*variance) } // of both servers
	out.Bands = n.Series.Strategy.Bands()
	prefix := make([]float64, out.Dimension) // of the errors
	measured, expected, independent := 0.0, 0.0, 0.0
	for t := range truth {
		result, err := jobs[t].Wait(ctx)
		if err != nil {
			return fmt.Errorf("round %d: %w", t+1, err)
		}
		x := SeriesRound{
			Reports: result.ReportCount, Forecast: deviation(forecast.Round[t]), PrefixForecast: deviation(forecast.Prefix[t]),
			PrefixIndependent: deviation(n.Independent() * float64(t+1)),
		}
		for j, v := range result.Estimate {
			d := v - truth[t][j]
			prefix[j] += d
			x.Error += d * d
			x.PrefixError += prefix[j] * prefix[j]
		}
		x.Error, x.PrefixError = math.Sqrt(x.Error/float64(out.Dimension)), math.Sqrt(x.PrefixError/float64(out.Dimension))
		measured += x.PrefixError * x.PrefixError
		expected += x.PrefixForecast * x.PrefixForecast
		independent += x.PrefixIndependent * x.PrefixIndependent
		out.Accepted += x.Reports
		out.Rounds = append(out.Rounds, x)
	}
	out.Gain, out.GainForecast = math.Sqrt(independent/measured), math.Sqrt(independent/expected)
	return nil
}

// draw implements scenario; there is no picture.
func (s *series) draw(f *frame) { s.found.Table = f.table(s.found.writeCSV) }

// report implements scenario.
func (s *series) report(f *frame) *SeriesReport {
	g, out := f.guarantee, s.found
	f.promised(&out.Outcome, fmt.Sprintf("Guarantee: %s, for replacing all answers of any one device by any others, computed from the recipe. %s Noise: %s.",
		g.Loss, sure(g.Epsilon, g.Unit), f.recipe.Noise))
	f.ended(&out.Outcome)
	return out
}

// writeCSV writes a line for each round.
func (r *SeriesReport) writeCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	c.Write([]string{"round", "reports", "error", "forecast", "prefix_error", "prefix_forecast", "prefix_independent"})
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', 8, 64) }
	for i, x := range r.Rounds {
		c.Write([]string{strconv.Itoa(i + 1), strconv.FormatUint(x.Reports, 10), number(x.Error), number(x.Forecast), number(x.PrefixError),
			number(x.PrefixForecast), number(x.PrefixIndependent)})
	}
	c.Flush()
	return c.Error()
}
