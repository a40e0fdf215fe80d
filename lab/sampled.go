package lab

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"

	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/internal/prose"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/lab/chart"
	"github.com/starling-agg/starling/recipe"
)

// Sampled is what a lab with a population reports beside the rest of [Report]. There,
// Estimate and Truth are of the whole population, reporting or not, Estimate is the mean
// of all rounds, and Stderr is of noise and sampling together, computed with the exact
// counts, which a lab knows. Interval95 is the collector's after one round, and from
// Stderr after more.
type Sampled struct {
	Population int     `json:"population"`
	Sampling   float64 `json:"sampling"`
	Question   string  `json:"question"` // Visits or Needles
	Rounds     int     `json:"rounds"`
	// KnownSample says that there were no coins.
	KnownSample bool `json:"known_sample,omitempty"`

	// Decisions were made, one for each device and round. Answers and Dummies were
	// reported; NoOps were dropped by the gateway.
	Decisions uint64 `json:"decisions"`
	Answers   uint64 `json:"answers"`
	Dummies   uint64 `json:"dummies"`
	NoOps     uint64 `json:"no_ops"`

	// EpsilonIfRelayColludes is what is left if the relay joins who receives reports;
	// EpsilonIfEdgeWatched if someone who sees the result watches a device's network.
	// Null is no bound.
	EpsilonIfRelayColludes *float64          `json:"epsilon_if_relay_colludes"`
	EpsilonIfEdgeWatched   *float64          `json:"epsilon_if_edge_watched"`
	Fallbacks              []recipe.Fallback `json:"fallbacks"`
	// Neighbours are what the guarantee tells apart, and MinBatch is how many answers
	// each batch has at least.
	Neighbours string `json:"neighbours"`
	MinBatch   uint64 `json:"min_batch"`

	// SquaredError is the mean over all rounds of the sum over all places of the squared
	// error of the estimated share of the population. SquaredErrorForecast is what the
	// recipe lets expect, and SquaredErrorInterval holds it with 99.9 %.
	SquaredError         float64    `json:"squared_error"`
	SquaredErrorForecast float64    `json:"squared_error_forecast"`
	SquaredErrorInterval [2]float64 `json:"squared_error_interval"`
	SquaredErrorRounds   []float64  `json:"squared_error_rounds"`

	// MicrosecondsEach is what one decision took, the report made and sealed whether or
	// not it is sent.
	MicrosecondsEach float64 `json:"microseconds_per_decision"`
	// Counted says how devices came to be counted; nil where the recipe counts none.
	Counted *Counted `json:"counted,omitempty"`

	// DurableLedgers is how many devices kept their ledger on the disk; the others' was
	// in memory.
	DurableLedgers int `json:"durable_ledgers"`

	limits            [2]float64 // of SquaredError, but for once in 10^7 labs
	forwarded, joined uint64     // requests by the relay, and by the gateway to the leader
	resampled         string
}

// promise takes down what the recipe promises.
func (p *population) promise(f *frame) {
	p.histogram.promise(f)
	g := f.guarantee
	s := &Sampled{
		Population: p.o.Population, Sampling: p.o.Sampling.Float(), Question: p.o.Recipe, Rounds: p.o.Rounds, KnownSample: p.o.KnownSample,
		Fallbacks: g.Fallbacks, Neighbours: g.Neighbours.String(), MinBatch: f.recipe.MinBatch,
		DurableLedgers: min(durableDevices, p.o.Population),
	}
	for _, to := range []struct {
		kind recipe.FallbackKind
		into **float64
	}{{recipe.RelayColludes, &s.EpsilonIfRelayColludes}, {recipe.EdgeWatched, &s.EpsilonIfEdgeWatched}} {
		loss := g.Loss // nothing rests on it
		if f, ok := g.Fallback(to.kind); ok {
			loss = f.Loss
		}
		if loss.Finite() {
			*to.into = &loss.Epsilon
		}
	}
	rows := p.o.Rows
	each, more := p.o.Population/rows, p.o.Population%rows
	s.resampled = fmt.Sprintf("%s devices made of the %s rows: each row %s", prose.Count(float64(p.o.Population)),
		prose.Count(float64(rows)), times(each))
	switch {
	case each == 0:
		s.resampled = fmt.Sprintf("%s devices, each with one of the %s rows, drawn by a fixed seed",
			prose.Count(float64(p.o.Population)), prose.Count(float64(rows)))
	case more > 0:
		s.resampled += fmt.Sprintf(", and %s of them, drawn by a fixed seed, once more", prose.Count(float64(more)))
	}
	if c := f.counting; c != nil {
		s.Counted = &Counted{Leader: c.cohort.Leader, Helper: c.cohort.Helper, Attested: c.cohort.Attested, EnrolSeconds: c.visited.Seconds(), TooEarly: f.again,
			Entries: c.book.Seen().Size, Witnesses: len(c.watched.Witnesses)}
	}
	p.found.Sampled = s
	p.found.Guarantee = sampledWords(g, f.recipe, p.o.Rounds) + f.certified
}

// Counted says how the devices of a lab came to their credentials.
type Counted struct {
	// Leader and Helper are how many the issuer beside each has given some, and Attested how
	// many the attester let ask.
	Leader   uint64 `json:"leader"`
	Helper   uint64 `json:"helper"`
	Attested uint64 `json:"attested"`
	// EnrolSeconds is what enrolments and visits took, before the epoch began.
	EnrolSeconds float64 `json:"enrol_seconds"`
	// TooEarly is how many epochs began before all devices had visited, so that the lab began
	// anew with a later one: the machine was slower than when that was chosen.
	TooEarly int `json:"too_early,omitempty"`
	// Admitted are requests, covers among them, that the gateway let into rounds, each by
	// the one token of its device and round.
	Admitted uint64 `json:"admitted"`
	// Entries of the log, and the witnesses who must sign them.
	Entries   int64 `json:"log_entries"`
	Witnesses int   `json:"witnesses"`
}

func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// sampledWords says the guarantee in words for people.
func sampledWords(g *recipe.Guarantee, r *recipe.Recipe, rounds int) string {
	const replacing, answering = "for replacing the report of any one device by any other", "for any one device's answer against no answer"
	about := replacing
	if r.Dummies != nil {
		about = answering
	}
	over := ""
	if rounds > 1 {
		over = fmt.Sprintf(" over all %d collections", rounds)
	}
	words := fmt.Sprintf("%s%s, %s", g.Loss, over, about)
	if len(g.Conditions) > 0 {
		words = fmt.Sprintf("%s%s, %s, even where it is known who sent what; and %s, holds if %s", g.Unconditional, over, replacing, words,
			strings.Join(g.Conditions, ", and "))
	}
	return fmt.Sprintf("Guarantee: %s. It is computed from the recipe and not typed in, and assumes that %s. Noise: %s.",
		words, strings.Join(g.Assumptions, "; "), r.Noise)
}

// collecting is how many rounds are asked for at a time: each waits a second or so for an
// answer.
const collecting = 8

// askRounds asks for every round, each with a state file of its own.
func (p *population) askRounds(ctx context.Context, f *frame) ([]*collector.Result, error) {
	config, err := f.collector()
	if err != nil {
		return nil, err
	}
	results := make([]*collector.Result, p.o.Rounds)
	var done uint64   // under mu
	var mu sync.Mutex // Progress is told by one at a time
	return results, crowd(ctx, p.o.Rounds, collecting, func(ctx context.Context, round int) (err error) {
		own := *config
		if round < p.o.Rounds-1 { // the last leaves its state to who goes on with a kept deployment
			own.State += service.Path(fmt.Sprintf(".%d", round+1))
		}
		if results[round], err = f.collect(ctx, &own, f.roundTime(round, p.o.Rounds)); err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
		mu.Lock()
		defer mu.Unlock()
		done++
		f.o.Progress(Progress{Phase: f.phase, Phases: f.phases(), Name: "collect", Counts: []Count{{"collections", done, uint64(p.o.Rounds)}}})
		return nil
	})
}

// compare implements scenario: it adds up the errors of what the collector makes of all
// rounds.
func (p *population) compare(ctx context.Context, f *frame) error {
	found, n := p.found, float64(p.o.Population)
	s, expected := found.Sampled, p.forecast(f.recipe)
	results, err := p.askRounds(ctx, f)
	if err != nil {
		return err
	}
	found.Estimate = make([]float64, len(found.Truth))
	for round, result := range results {
		found.Accepted += result.ReportCount
		if p.o.seen != nil {
			p.o.seen(round, result)
		}
		scale := 1.0
		if p.o.KnownSample {
			scale = n / float64(p.o.sample())
		}
		squared := 0.0
		for i, v := range result.Estimate {
			v *= scale
			found.Estimate[i] += v / float64(p.o.Rounds)
			squared += math.Pow((v-float64(found.Truth[i]))/n, 2)
		}
		s.SquaredErrorRounds = append(s.SquaredErrorRounds, squared)
		s.SquaredError += squared / float64(p.o.Rounds)
	}
	s.SquaredErrorForecast = expected.mean
	s.SquaredErrorInterval[0], s.SquaredErrorInterval[1] = expected.interval(p.o.Rounds, outside999)
	s.limits[0], s.limits[1] = expected.interval(p.o.Rounds, outsideNever)
	for i, v := range expected.each {
		deviation := n * math.Sqrt(v/float64(p.o.Rounds))
		found.Stderr = append(found.Stderr, deviation)
		found.Interval95 = append(found.Interval95, [2]float64{found.Estimate[i] - chart.Z*deviation, found.Estimate[i] + chart.Z*deviation})
	}
	if p.o.Rounds == 1 && !p.o.KnownSample {
		found.Interval95 = results[0].Interval95 // as who does not know the counts has them
	}
	found.seeSampled(f.recipe)
	return nil
}

func (p *population) forecast(r *recipe.Recipe) *forecast {
	if p.o.KnownSample {
		return newKnownForecast(r, p.found.Truth, uint64(p.o.Population), uint64(p.o.sample()))
	}
	return newForecast(r, p.found.Truth, uint64(p.o.Population))
}

// seeSampled fills in what each party saw.
func (r *Report) seeSampled(rec *recipe.Recipe) {
	count := func(n uint64) string { return prose.Count(float64(n)) }
	device := "its own answer, the recipe, the guarantee that it computed, and its coin, which it paid for before it tossed it"
	relay := fmt.Sprintf("%s encrypted requests of one size, from whom and when; not what is in them", count(r.forwarded))
	gateway := fmt.Sprintf("%s sealed reports from nobody; it passed them on in %s requests, each in a new order", count(r.Sent), count(r.joined))
	if rec.Cover != nil {
		relay += fmt.Sprintf(", nor that %s of them were empty", count(r.NoOps))
		gateway = fmt.Sprintf("%s sealed reports and %s no-ops from nobody; it dropped these and passed those on in %s requests",
			count(r.Sent), count(r.NoOps), count(r.joined))
	}
	if r.KnownSample {
		device = "its own answer, the recipe and the guarantee that it computed"
	}
	leader := fmt.Sprintf("%s sealed reports of %s bytes from the gateway", count(r.Sent), count(r.LeaderBytes/max(1, r.Sent)))
	if rec.Dummies != nil {
		leader += ", and not which of them are dummies"
	}
	if r.Counted != nil {
		leader += ", with a credential in each that tells nothing but that it counts once"
	}
	r.Saw = []Sight{
		{"each device", device},
		{"relay", relay},
		{"gateway", gateway},
		{"leader", leader + "; its own half of each, which is uniformly random"},
		{"helper", fmt.Sprintf("the other halves, %s bytes each, from the leader alone; uniformly random too", count(r.HelperBytes/max(1, r.Sent)))},
		{"collector", fmt.Sprintf("%d numbers for each batch with both servers' noise in them, and how many reports it had", len(r.Estimate))},
	}
	if c := r.Counted; c != nil {
		r.Saw = append(r.Saw,
			Sight{"attester", fmt.Sprintf("which %s devices there are, by their codes, and that each asked once before the epoch began; nothing that they send", count(c.Attested))},
			Sight{"issuers", fmt.Sprintf("%s and %s blinded requests in the attester's name, and no device", count(c.Leader), count(c.Helper))},
			Sight{"log", fmt.Sprintf("%s entries that %d witnesses have signed, for everybody alike: recipe, keys and these counts; no device, for the relay hands them out", count(uint64(c.Entries)), c.Witnesses)})
	}
}

// checkSampled says what must not be in the report of a population.
func (r *Report) checkSampled() error {
	s := r.Sampled
	if s.Answers+s.Dummies != r.Sent {
		return fmt.Errorf("lab: %d reports were sent, %d answers and %d dummies", r.Sent, s.Answers, s.Dummies)
	}
	if !(s.SquaredError >= s.limits[0] && s.SquaredError <= s.limits[1]) {
		return fmt.Errorf("lab: the squared error is %.3g; all but one lab in ten million are between %.3g and %.3g", s.SquaredError,
			s.limits[0], s.limits[1])
	}
	return nil
}

// writeSampled writes what is special about a population, at most width columns wide.
func (r *Report) writeSampled(w io.Writer, width int) {
	s := r.Sampled
	item := func(name, text string) {
		for i, line := range prose.Wrap(text, width-14) {
			fmt.Fprintf(w, "  %-11s %s\n", map[bool]string{true: name}[i == 0], line)
		}
	}
	if !s.KnownSample {
		fmt.Fprintln(w, "\nIf an assumption fails")
		for _, f := range s.Fallbacks {
			item(fallbackNames[f.Kind], fmt.Sprintf("%s: %s (%s)", f.When, f.Loss, f.Note))
		}
	}
	collections := "one collection"
	if s.Rounds > 1 {
		collections = fmt.Sprintf("the mean of %d collections", s.Rounds)
	}
	places := float64(len(r.Estimate))
	fmt.Fprintln(w, strings.Join(prose.Wrap(fmt.Sprintf("\nError of %s: of the proportions of the devices at all %d places, squared and added up", collections,
		len(r.Estimate)), width), "\n"))
	item("measured", fmt.Sprintf("%.4g: a proportion is about %.2g %% of the devices off (the root of the mean)", s.SquaredError,
		100*math.Sqrt(s.SquaredError/places)))
	item("forecast", fmt.Sprintf("%.4g, and between %.4g and %.4g in 999 labs of 1,000", s.SquaredErrorForecast,
		s.SquaredErrorInterval[0], s.SquaredErrorInterval[1]))

	count := func(n uint64) string { return prose.Count(float64(n)) }
	fmt.Fprintln(w, "\nDevices")
	item("who", s.resampled)
	what := fmt.Sprintf("%s decisions: %s answers, %s dummies", count(s.Decisions), count(s.Answers), count(s.Dummies))
	if s.NoOps > 0 {
		what += fmt.Sprintf(", %s no-ops", count(s.NoOps))
	}
	item("sent", what+fmt.Sprintf("; %.0f microseconds each to decide and make a report, sent or not", s.MicrosecondsEach))
	if c := s.Counted; c != nil {
		text := fmt.Sprintf("%s devices enrolled and visited the attester in %.1f s; %s and %s have credentials of leader and helper; the gateway let %s requests in, each by a token", count(c.Attested),
			c.EnrolSeconds, count(c.Leader), count(c.Helper), count(c.Admitted))
		if c.TooEarly > 0 {
			text += fmt.Sprintf("; %s an epoch began before all had visited, for the machine was slower than in the rehearsal, and all began anew with a later one", times(c.TooEarly))
		}
		item("credentials", text)
	} else if !s.KnownSample {
		item("credentials", "none: the recipe does not count devices (--credentials all has it do so)")
	}
	item("ledgers", fmt.Sprintf("%d on the disk as on a real device, the others in memory; connections are shared", s.DurableLedgers))
}

var fallbackNames = map[recipe.FallbackKind]string{
	recipe.RelayColludes: "relay", recipe.EdgeWatched: "network", recipe.HalfAreDishonest: "devices",
	recipe.ServersCollude: "servers", recipe.OneServerFails: "one server", recipe.AttesterFails: "attester",
}
