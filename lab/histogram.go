package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/lab/internal/randhie"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// Options say how a lab of one histogram runs. The zero value is the whole demonstration.
type Options struct {
	Frame
	// Malicious is how many invalid reports are sent among the honest ones: 0 to
	// [MaxMalicious].
	Malicious int
	// Rows takes only the first rows of the table, at least [MinRows]; 0 takes all.
	Rows int
	// Population makes so many devices of the table's rows, each row as often as any
	// other or once more, by a fixed seed. Each then decides by a secret coin whether to
	// report, and sends through a relay and a gateway. From [MinPopulation] to
	// [MaxPopulation]; 0 is the plain lab, unless one of the next four is given: then
	// 60,000.
	Population int
	// Sampling is the probability of reporting, over all devices. Default 1/10.
	Sampling recipe.Rational
	// Recipe is what is asked: [Visits], the default, [Health], [Groups], [Quantiles],
	// or, of a population, [Needles]. [Cloak] and [CloakVisits] go with Population alone, by
	// default 2,000 and 1,000.
	Recipe string
	// Path is how reports of [Groups] travel: "" or two-server, shuffled or direct. On the
	// last two Population says how many of the rows take part, by default 5,000, and
	// Randomizer is qa, randomized-group, or "" for the one with the smaller error.
	Path, Randomizer string
	// Rounds is how many collections are taken of the same population, all within Epsilon
	// together. Default 1.
	Rounds int
	// KnownSample plays the same without secret coins, for comparison: in each round a
	// part Sampling of the devices is asked, in turn and known to all, and all of them
	// report (paper 000's AGG).
	KnownSample bool
	// Credentials has the recipe count devices and stand in a transparency log: every device
	// enrols at an attester, is given credentials by two issuers, and shows them. It needs a
	// population. Rounds are 1 s then, if nothing else is said, and begin with a key epoch.
	// It is for all devices or none: those that visited the attester only to send would tell
	// it their coins, and a round of fewer than its dummies count on is held.
	Credentials bool
	// answer, if not nil, is what a device answers instead of the table's row, and seen
	// gets what each collection returned.
	answer func(device, round int) client.Value
	seen   func(round int, result *collector.Result)
}

// Bounds of Options.
const (
	MaxMalicious = 20000
	MinRows      = 200
	AllRows      = randhie.Rows
)

// WithDefaults fills in what is not said. Epsilon is 1.
func (o Options) WithDefaults() Options {
	if o.Credentials && o.Precision == 0 {
		o.Precision = time.Second
	}
	if o.unproved() {
		o = o.withMixedDefaults()
	}
	o.Frame = o.Frame.withDefaults("1")
	if o.Rows == 0 {
		o.Rows = randhie.Rows
	}
	if o.Recipe == "" {
		o.Recipe = Visits
	}
	if o.unproved() {
		return o
	}
	if o.Population == 0 {
		if o.Sampling == (recipe.Rational{}) && o.Recipe != Needles && o.Rounds == 0 && !o.KnownSample {
			return o
		}
		o.Population = defaultPopulation
	}
	if o.Sampling == (recipe.Rational{}) {
		o.Sampling = recipe.Rational{Num: 1, Den: 10}
	}
	if o.Rounds == 0 {
		o.Rounds = 1
	}
	o.relay = true
	if o.Credentials {
		o.counted, o.rounds = o.Population, o.Rounds
	}
	return o
}

// Validate says what is wrong, once defaults are filled in.
func (o Options) Validate() error {
	o = o.WithDefaults()
	switch o.Recipe {
	case Visits, Needles, Health, Groups, Quantiles, Cloak, CloakVisits:
	default:
		return fmt.Errorf("lab: no recipe %q; want %s, %s, %s, %s, %s, %s or %s", o.Recipe, Visits, Health, Groups, Quantiles, Needles, Cloak, CloakVisits)
	}
	switch {
	case o.unproved():
		return errors.Join(o.validateGroupsPath(), o.validateMixed(), o.Frame.validate())
	case o.Randomizer != "" || o.Path != "" && o.Path != "two-server":
		return fmt.Errorf("lab: path and randomizer go with recipe %s, and a randomizer with the path shuffled or direct", Groups)
	}
	if o.Population != 0 {
		if err := o.validatePopulation(); err != nil {
			return err
		}
	}
	switch {
	case o.Credentials && o.Population == 0:
		return errors.New("lab: credentials go with a population")
	case o.Malicious < 0 || o.Malicious > MaxMalicious:
		return fmt.Errorf("lab: %d malicious reports; want 0 to %d", o.Malicious, MaxMalicious)
	case o.Rows < MinRows || o.Rows > randhie.Rows:
		return fmt.Errorf("lab: %d rows; want %d to %d", o.Rows, MinRows, randhie.Rows)
	}
	return o.Frame.validate()
}

// validatePopulation does the same for what a lab with secret coins adds.
func (o *Options) validatePopulation() error {
	switch {
	case o.Credentials && (o.KnownSample || o.Population > MaxCounted):
		return fmt.Errorf("lab: credentials go with secret coins, and with at most %d devices", MaxCounted)
	case o.Population < MinPopulation || o.Population > MaxPopulation:
		return fmt.Errorf("lab: a population of %d; want %d to %d", o.Population, MinPopulation, MaxPopulation)
	case o.Sampling.Num == 0 || o.Sampling.Num >= o.Sampling.Den:
		return fmt.Errorf("lab: sampling %s; want a probability above 0 and below 1", o.Sampling)
	case o.Recipe == Health || o.Recipe == Groups || o.Recipe == Quantiles:
		return fmt.Errorf("lab: recipe %s goes with the plain lab only", o.Recipe)
	case o.Rounds < 1 || o.Rounds > MaxRounds:
		return fmt.Errorf("lab: %d rounds; want 1 to %d", o.Rounds, MaxRounds)
	case o.sample() < recipe.SampledBatchFloor:
		return fmt.Errorf("lab: sampling %s takes %d of %d devices; want %d or more", o.Sampling, o.sample(), o.Population,
			recipe.SampledBatchFloor)
	case o.Malicious != 0:
		return errors.New("lab: malicious reports go with the plain lab only; the gateway keeps strangers' bytes from the leader")
	}
	if o.KnownSample {
		return nil
	}
	_, usual, err := o.rates()
	if err != nil {
		return err
	}
	return o.roomForAnswers(usual)
}

// Run plays one private histogram from the devices to the picture. It ends early with ctx.
// Where only picture or table could not be written, the report comes beside the error.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.WithDefaults()
	visits, err := randhie.Visits()
	if err != nil {
		return nil, err
	}
	switch {
	case o.cloaks():
		return runCloak(ctx, o, visits)
	case o.unproved():
		return runMixedGroups(ctx, o)
	}
	visits = visits[:o.Rows]
	h := &histogram{o: o, found: &Report{}, value: func(bucket int) client.Value { return client.Bucket(uint32(bucket)) }, query: visitsRecipe}
	switch {
	case o.Population > 0:
		h.ask(resample(visits, o.Population))
		return play(ctx, o.Frame, &population{histogram: h})
	case o.Recipe == Quantiles:
		h.askQuantiles(visits)
	case o.Recipe == Groups:
		if err := h.askGroups(); err != nil {
			return nil, err
		}
	case o.Recipe == Health:
		if err := h.askHealth(); err != nil {
			return nil, err
		}
	default:
		h.ask(visits)
	}
	return play(ctx, o.Frame, h)
}

// A histogram is the scenario in which every row answers by itself.
type histogram struct {
	o      Options
	query  func(*account.Options)
	values []int                  // the bucket of each row, or the place in the answer of each device; -1 is the default answer
	value  func(int) client.Value // of such a value
	// distribution takes down what a result has of one, with its truth; nil where counts
	// of buckets are asked for.
	distribution func(*collector.Result)
	found        *Report
}

// ask takes down what each device would answer.
func (h *histogram) ask(visits []int) {
	q := h.o.question()
	h.found.Labels = q.labels()
	h.found.Truth = make([]int64, len(h.found.Labels))
	for _, v := range visits {
		at := q.place(v)
		if h.values = append(h.values, at); at >= 0 {
			h.found.Truth[at]++
		}
	}
}

// yearsPerPerson is how many rows a person has at most: families were enrolled for three
// years or for five.
const yearsPerPerson = 5

// pose implements scenario.
func (h *histogram) pose(f *frame, a *deploy.Addresses) (*recipe.Recipe, error) {
	window, err := f.window(1)
	if err != nil {
		return nil, err
	}
	o := account.Options{
		Population: &recipe.Population{
			Statement: "the participants of the RAND Health Insurance Experiment, 1974 to 1982",
			Expected:  uint64(h.o.Rows),
		},
		Unit:   &recipe.Unit{Name: "person-year", Records: 1, Reduce: recipe.FirstRecord, PerPerson: yearsPerPerson},
		Leader: a.LeaderURL(), Helper: a.HelperURL(),
		BatchMode:     dap.TimeInterval,
		MinBatch:      uint64(h.o.Rows / 2),
		TimePrecision: dap.TimePrecision(f.o.Precision / time.Second),
		Window:        window,
		Kind:          account.GaussianNoise, Epsilon: f.o.Epsilon, Delta: f.o.Delta,
	}
	h.query(&o)
	return account.New(o)
}

// visitsRecipe asks for the number of visits.
func visitsRecipe(o *account.Options) {
	o.Name = "Visits to a doctor in a year"
	o.Description = "How many times did you see a doctor in the past year: 0, 1, ..., 19, or 20 and more?"
	o.Query, o.Labels = recipe.Histogram{Length: randhie.Buckets}, randhie.Labels()
}

// promise takes down what the recipe promises.
func (h *histogram) promise(f *frame) {
	g, r := f.guarantee, h.found
	f.promised(&r.Outcome, guaranteeWords(g, f.recipe))
	r.Unit, r.Certificate = g.Unit, f.certificate
	if g.PerPerson > 0 {
		r.UnitsPerPerson, r.Person = g.PerPerson, &g.Person
	}
}

// compare implements scenario.
func (h *histogram) compare(ctx context.Context, f *frame) error {
	config, err := f.collector()
	if err != nil {
		return err
	}
	result, err := f.collect(ctx, config, f.asked)
	if err != nil {
		return err
	}
	h.found.Accepted = result.ReportCount
	h.found.Estimate, h.found.Stderr, h.found.Interval95 = result.Estimate, result.Stderr, result.Interval95
	if h.distribution != nil {
		h.distribution(result)
	}
	h.found.see(f.client, f.recipe)
	return nil
}

// draw implements scenario.
func (h *histogram) draw(f *frame) {
	h.found.Rejected = f.rejected
	h.found.Table = f.table(h.found.WriteCSV)
	h.found.Picture = f.write(PictureFile, h.found.Chart().WritePNG)
}

// report implements scenario.
func (h *histogram) report(f *frame) *Report {
	r := h.found
	f.ended(&r.Outcome)
	r.ReportsPerSecond = float64(r.Sent) / (f.seconds["upload"] + f.seconds["verify"] + f.seconds["collect"])
	return r
}
