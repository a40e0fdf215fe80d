package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/lab/chart"
	"github.com/starling-agg/starling/lab/internal/randhie"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
)

// Options say how the lab runs. The zero value is the whole demonstration.
type Options struct {
	// Keep is a directory, new or empty, in which the deployment is left behind. Empty uses a temporary one.
	Keep string
	// Out is the directory for starling-lab.png and starling-lab.csv; made where it is missing. Default ".".
	Out string
	// Malicious is how many invalid reports are sent among the honest ones: 0 to [MaxMalicious].
	Malicious int
	// Rows takes only the first rows of the table, at least [MinRows]; 0 takes all.
	Rows int
	// Population makes so many devices of the table's rows, each row as often as any other or once more, by a fixed seed.
	// Each then decides by a secret coin whether to report, and sends through a relay and a gateway. From [MinPopulation]
	// to [MaxPopulation]; 0 is the plain lab, unless one of the next four is given: then 60,000.
	Population int
	// Sampling is the probability of reporting, over all devices. Default 1/10.
	Sampling recipe.Rational
	// Recipe is what is asked: [Visits], the default, [Health], or, of a population, [Needles].
	Recipe string
	// Rounds is how many collections are taken of the same population, all within Epsilon together. Default 1.
	Rounds int
	// KnownSample plays the same without secret coins, for comparison: in each round a part Sampling of the devices is
	// asked, in turn and known to all, and all of them report (paper 000's AGG).
	KnownSample bool
	// Workers is how many goroutines play devices, or in a population how many devices compute at a time. Default GOMAXPROCS.
	Workers int
	// Epsilon and Delta are what the recipe's noise is calibrated to; the report says what it then computes to.
	// Defaults 1 and 10^-6.
	Epsilon, Delta recipe.Decimal
	// Precision is what report times are cut to, and the length of a round: whole
	// seconds, at most an hour. The lab's own rounds are the last that are over when it
	// begins, so a kept deployment takes new reports at once. Default 10s.
	Precision time.Duration
	// answer, if not nil, is what a device answers instead of the table's row, and seen gets what each collection returned.
	answer func(device, round int) client.Value
	seen   func(round int, result *collector.Result)

	// Log gets what both servers log. Default: lab.log in Keep, else nothing.
	Log io.Writer
	// Progress is told how far the lab is, several times a second, by one goroutine at a time. Optional.
	Progress func(Progress)
}

// What a lab writes into [Options.Out], in the place of what an earlier one wrote.
const (
	PictureFile = "starling-lab.png"
	TableFile   = "starling-lab.csv"
)

// Bounds of Options.
const (
	MaxMalicious = 20000
	MinRows      = 200
	AllRows      = randhie.Rows
	maxWorkers   = 256

	defaultPrecision = 10 * time.Second
	// openFor is how long the recipe takes reports.
	openFor = 24 * time.Hour
	// grace of recipes with a relay, in which devices have two tries: all is on one
	// machine, and nobody tries again after a minute.
	grace = 2 * time.Second
	// settled is how long after its end a round may be released: grace, and the clock
	// skew of deploy.Create. So that a lab need not wait for it, its devices report of
	// rounds that are over.
	settled = grace + time.Second
)

// labTries are more patient than a manifest may say: a lab's devices report of rounds
// that are over, and it collects when they are done, on a machine that may be busy.
var labTries = client.Tries{Count: 3, Every: 10 * time.Second}

// Validate fills in defaults and says what is wrong.
func (o *Options) Validate() error {
	if o.Out == "" {
		o.Out = "."
	}
	if o.Rows == 0 {
		o.Rows = randhie.Rows
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Epsilon == (recipe.Decimal{}) {
		o.Epsilon = decimal("1")
	}
	if o.Delta == (recipe.Decimal{}) {
		o.Delta = decimal("0.000001")
	}
	if o.Precision == 0 {
		o.Precision = defaultPrecision
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if err := o.validatePopulation(); err != nil {
		return err
	}
	switch {
	case o.Malicious < 0 || o.Malicious > MaxMalicious:
		return fmt.Errorf("lab: %d malicious reports; want 0 to %d", o.Malicious, MaxMalicious)
	case o.Rows < MinRows || o.Rows > randhie.Rows:
		return fmt.Errorf("lab: %d rows; want %d to %d", o.Rows, MinRows, randhie.Rows)
	case o.Precision < time.Second || o.Precision > time.Hour || o.Precision%time.Second != 0:
		return fmt.Errorf("lab: precision %v; want whole seconds up to an hour", o.Precision)
	case o.Workers < 1 || o.Workers > maxWorkers:
		return fmt.Errorf("lab: %d workers; want 1 to %d", o.Workers, maxWorkers)
	}
	return nil
}

// validatePopulation does the same for a lab with secret coins.
func (o *Options) validatePopulation() error {
	switch o.Recipe {
	case "":
		o.Recipe = Visits
	case Visits, Needles, Health:
	default:
		return fmt.Errorf("lab: no recipe %q; want %s, %s or %s", o.Recipe, Visits, Health, Needles)
	}
	if o.Population == 0 {
		if o.Sampling == (recipe.Rational{}) && o.Recipe != Needles && o.Rounds == 0 && !o.KnownSample {
			return nil
		}
		o.Population = defaultPopulation
	}
	if o.Sampling == (recipe.Rational{}) {
		o.Sampling = recipe.Rational{Num: 1, Den: 10}
	}
	if o.Rounds == 0 {
		o.Rounds = 1
	}
	switch {
	case o.Population < MinPopulation || o.Population > MaxPopulation:
		return fmt.Errorf("lab: a population of %d; want %d to %d", o.Population, MinPopulation, MaxPopulation)
	case o.Sampling.Num == 0 || o.Sampling.Num >= o.Sampling.Den:
		return fmt.Errorf("lab: sampling %s; want a probability above 0 and below 1", o.Sampling)
	case o.Recipe == Health:
		return fmt.Errorf("lab: recipe %s goes with the plain lab only", Health)
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

// decimal reads a constant of this package.
func decimal(s string) recipe.Decimal {
	d, err := recipe.ParseDecimal(s)
	if err != nil {
		panic("lab: internal error: " + err.Error())
	}
	return d
}

// A run is one lab under way.
type run struct {
	o       Options
	pose    func(*deploy.Addresses) (*recipe.Recipe, error) // makes the recipe
	dir     string
	http    *http.Client
	recipe  *recipe.Recipe
	bytes   []byte // of the recipe
	client  *client.Client
	config  *deploy.Aggregator // the leader's
	status  statusReader
	begun   time.Time
	asked   time.Time              // when the reports of the last round are made: it is over when the lab begins
	values  []int                  // the bucket of each row, or the place in the answer of each device; -1 is the default answer
	value   func(int) client.Value // of a row; nil is its bucket
	anchors *signed.Anchors        // that come with the devices' software
	front   *deploy.Front          // relay and gateway, where there is a population
	via     *ohttp.Transport       // of all devices
	report  *Report
	phase   int
	// unwritten is why picture or table could not be written.
	unwritten error
	// certified says what the devices' certificate proves; empty where none can be made.
	certified string

	vectors *VectorOptions // nil but in a lab of vectors
	series  *SeriesOptions // nil but in a lab of correlated noise
}

// ErrOut: the picture or the table cannot be written to [Options.Out]. Without a report
// beside it nothing has been started.
var ErrOut = errors.New("lab: no place for picture and table")

// Run plays one private histogram from the devices to the picture. It ends early with ctx.
// Where only picture or table could not be written, the report comes beside the error.
func Run(ctx context.Context, o Options) (*Report, error) {
	r, err := newRun(&o)
	if err != nil {
		return nil, err
	}
	visits, err := randhie.Visits()
	if err != nil {
		return nil, err
	}
	visits = visits[:o.Rows]
	devices := r.upload
	r.pose = r.newRecipe
	if o.Population > 0 {
		visits, devices, r.pose = resample(visits, o.Population), r.survey, r.newSampledRecipe
	}
	if o.Recipe == Health {
		r.pose = r.newHealthRecipe
		if err := r.askHealth(o.Rows); err != nil {
			return nil, err
		}
	} else {
		r.ask(visits)
	}
	if err := r.play(ctx, act{"upload", devices}, act{"verify", r.verify}, act{"collect", r.collect}, act{"draw", r.draw}); err != nil {
		return nil, err
	}
	s := r.report.SecondsByStep
	r.report.ReportsPerSecond = float64(r.report.Sent) / (s["upload"] + s["verify"] + s["collect"])
	r.report.Kept = o.Keep
	return r.report, r.unwritten
}

// newRun prepares a lab, of which nothing has started yet.
func newRun(o *Options) (*run, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := writable(o.Out); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOut, err)
	}
	begun := time.Now()
	return &run{o: *o, begun: begun, asked: begun.Add(-o.Precision - settled),
		report: &Report{SecondsByStep: map[string]float64{}, Rejected: map[string]uint64{}}}, nil
}

// An act is a step of a lab while the servers run.
type act struct {
	name string
	do   func(context.Context) error
}

// play starts the servers, plays the acts and stops the servers.
func (r *run) play(ctx context.Context, acts ...act) (err error) {
	r.dir = r.o.Keep
	if stopped := ctx; r.dir != "" && vacant(r.dir) {
		defer func() { // half of a deployment is no use, and would be in the way of the next
			if err != nil && stopped.Err() != nil {
				err = errors.Join(fmt.Errorf("%w; %s was taken away again", err, r.dir), os.RemoveAll(r.dir))
			}
		}()
	}
	if r.dir == "" {
		if r.dir, err = os.MkdirTemp("", "starling-lab-"); err != nil {
			return fmt.Errorf("lab: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, r.o.Workers+4+inFlight
	transport.Proxy = nil // loopback only
	defer transport.CloseIdleConnections()
	r.http = &http.Client{Transport: transport, Timeout: time.Minute}

	var stop func() error
	if err := r.step("start", func() (err error) { stop, ctx, err = r.start(ctx); return err }); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for _, a := range acts {
		if err := r.step(a.name, func() error { return a.do(ctx) }); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause // a server's failure explains what the clients met
			}
			return fmt.Errorf("lab: %s: %w", a.name, err)
		}
	}
	r.report.SecondsTotal = time.Since(r.begun).Seconds()
	return nil
}

// ask takes down what each device would answer.
func (r *run) ask(visits []int) {
	q := r.o.question()
	r.report.Labels = q.labels()
	r.report.Truth = make([]int64, len(r.report.Labels))
	for _, v := range visits {
		at := q.place(v)
		if r.values = append(r.values, at); at >= 0 {
			r.report.Truth[at]++
		}
	}
}

// step runs one phase and notes how long it took.
func (r *run) step(name string, do func() error) error {
	r.phase++
	r.o.Progress(Progress{Phase: r.phase, Phases: phases, Name: name})
	begin := time.Now()
	err := do()
	r.report.SecondsByStep[name] = time.Since(begin).Seconds()
	if err == nil {
		r.o.Progress(Progress{Phase: r.phase, Phases: phases, Name: name, Over: true, Took: time.Since(begin)})
	}
	return err
}

// start writes the deployment and starts leader and helper. The returned context ends when either of them fails, with
// that as its cause; stop stops them in order.
func (r *run) start(ctx context.Context) (stop func() error, _ context.Context, err error) {
	addresses, err := deploy.Loopback()
	if err != nil {
		return nil, ctx, err
	}
	defer func() {
		if err != nil {
			addresses.Close()
			if r.front != nil {
				r.front.Close()
			}
		}
	}()
	if r.o.Population > 0 {
		if r.front, err = deploy.LoopbackFront(); err != nil {
			return nil, ctx, err
		}
	}
	if r.recipe, err = r.pose(addresses); err != nil {
		return nil, ctx, err
	}
	owners, err := deploy.NewOwners()
	if err != nil {
		return nil, ctx, err
	}
	if r.recipe.ServerKeys, err = owners.ServerKeys(r.recipe.Relay != nil); err != nil {
		return nil, ctx, err
	}
	if r.bytes, err = r.recipe.Append(nil); err != nil {
		return nil, ctx, err
	}
	if err := deploy.CreateFor(r.dir, r.recipe, addresses, owners); err != nil {
		return nil, ctx, err
	}
	if r.front != nil {
		if err := deploy.CreateFront(r.dir, r.recipe, r.front, r.begun, frontWindow); err != nil {
			return nil, ctx, err
		}
	}
	log, closeLog, err := r.logger()
	if err != nil {
		return nil, ctx, err
	}
	helper, err := deploy.LoadAggregator(filepath.Join(r.dir, deploy.HelperFile), dap.RoleHelper)
	if err != nil {
		return nil, ctx, err
	}
	if r.config, err = deploy.LoadAggregator(filepath.Join(r.dir, deploy.LeaderFile), dap.RoleLeader); err != nil {
		return nil, ctx, err
	}
	r.status = statusReader{r.http, "http://" + string(r.config.Local.Address)}
	parts := slices.Concat(
		helper.Parts(log, deploy.Listeners{Public: addresses.Helper, Local: addresses.HelperLocal}),
		r.config.Parts(log, deploy.Listeners{Public: addresses.Leader, Local: addresses.LeaderLocal}))
	if r.front != nil {
		more, err := r.frontParts(log)
		if err != nil {
			return nil, ctx, err
		}
		parts = append(parts, more...)
	}

	// The servers outlive the caller's context by as long as it takes to stop them in order.
	servers, stopServers := context.WithCancel(context.WithoutCancel(ctx))
	work, fail := context.WithCancelCause(ctx)
	up, done := make(chan struct{}), make(chan error, 1)
	go func() {
		err := service.Run(servers, 0, func() { close(up) }, parts...)
		if err != nil {
			fail(fmt.Errorf("a server failed: %w", err))
		}
		done <- err
	}()
	stop = func() error {
		r.http.CloseIdleConnections()
		stopServers()
		err := <-done
		fail(context.Canceled)
		return errors.Join(err, closeLog())
	}
	select {
	case <-up:
	case err := <-done:
		stopServers()
		if ctx.Err() != nil {
			err = context.Cause(ctx) // it was stopped; what that interrupted says no more
		}
		return nil, ctx, errors.Join(err, closeLog())
	case <-ctx.Done():
		stop()
		return nil, ctx, context.Cause(ctx)
	}
	if r.anchors, err = deploy.ReadAnchors(filepath.Join(r.dir, deploy.AnchorsFile)); err != nil {
		return nil, ctx, errors.Join(err, stop())
	}
	certificate, err := account.Certify(r.recipe)
	if err != nil && !errors.Is(err, recipe.ErrNoCertificate) {
		return nil, ctx, errors.Join(err, stop())
	}
	o := client.Options{Prover: account.Prover, Recipe: r.bytes, Certificate: certificate, Anchors: r.anchors, HTTP: r.http, MaxEpsilon: r.o.Epsilon.FloatDown() * 1.01}
	if r.front != nil {
		if err := r.relayed(); err != nil {
			return nil, ctx, errors.Join(err, stop())
		}
		o.HTTP, o.Via = nil, r.via // keys come from the manifest
		o.Tries = labTries
	}
	if r.client, err = client.New(o); err != nil {
		return nil, ctx, errors.Join(err, stop())
	}
	g := r.client.Guarantee()
	r.report.Epsilon, r.report.Delta = g.Epsilon, g.Delta
	r.report.Unit = g.Unit
	if g.PerPerson > 0 {
		r.report.UnitsPerPerson, r.report.Person = g.PerPerson, &g.Person
	}
	r.report.Guarantee, r.report.Conditions = guaranteeWords(g, r.recipe), append([]string{}, g.Conditions...)
	if r.front != nil {
		r.describePopulation(g)
	}
	if proved, ok := r.client.Certified(); ok {
		r.report.Certificate = certificate
		r.certified = certifiedWords(len(certificate), proved)
		r.report.Guarantee += r.certified
	}
	r.report.RecipeID = r.client.RecipeID().String()
	return stop, work, nil
}

// logger returns the servers' logger and what closes its file.
func (r *run) logger() (*slog.Logger, func() error, error) {
	nothing := func() error { return nil }
	switch {
	case r.o.Log != nil:
		return service.NewLogger(r.o.Log, slog.LevelInfo), nothing, nil
	case r.o.Keep == "":
		return slog.New(slog.DiscardHandler), nothing, nil
	}
	f, err := os.Create(filepath.Join(r.dir, "lab.log"))
	if err != nil {
		return nil, nothing, fmt.Errorf("lab: %w", err)
	}
	return service.NewLogger(f, slog.LevelInfo), f.Close, nil
}

// yearsPerPerson is how many rows a person has at most: families were enrolled for three
// years or for five.
const yearsPerPerson = 5

func (r *run) newRecipe(a *deploy.Addresses) (*recipe.Recipe, error) {
	o, err := r.plainOptions(a)
	if err != nil {
		return nil, err
	}
	o.Name = "Visits to a doctor in a year"
	o.Description = "How many times did you see a doctor in the past year: 0, 1, ..., 19, or 20 and more?"
	o.Query, o.Labels = recipe.Histogram{Length: randhie.Buckets}, randhie.Labels()
	return account.New(o)
}

// plainOptions are those of a recipe that every row answers, but for what is asked.
func (r *run) plainOptions(a *deploy.Addresses) (o account.Options, err error) {
	precision := dap.TimePrecision(r.o.Precision / time.Second)
	first, err := precision.At(r.asked)
	if err != nil {
		return o, err
	}
	return account.Options{
		Population: &recipe.Population{
			Statement: "the participants of the RAND Health Insurance Experiment, 1974 to 1982",
			Expected:  uint64(r.o.Rows),
		},
		Unit:   &recipe.Unit{Name: "person-year", Records: 1, Reduce: recipe.FirstRecord, PerPerson: yearsPerPerson},
		Leader: a.LeaderURL(), Helper: a.HelperURL(),
		BatchMode:     dap.TimeInterval,
		MinBatch:      uint64(r.o.Rows / 2),
		TimePrecision: precision,
		Window:        recipe.Between{Start: first, End: first + dap.Time(openFor/r.o.Precision)},
		Kind:          account.GaussianNoise, Epsilon: r.o.Epsilon, Delta: r.o.Delta,
	}, nil
}

// collect asks for the unit of time of the reports and opens the answer.
func (r *run) collect(ctx context.Context) error {
	config, err := deploy.LoadCollector(filepath.Join(r.dir, deploy.CollectorFile))
	if err != nil {
		return err
	}
	o := collector.Options{HTTP: r.http, Poll: 100 * time.Millisecond, MaxPoll: time.Second}
	if r.front != nil {
		return r.collectRounds(ctx, config, o)
	}
	session, err := config.Open(o)
	if err != nil {
		return err
	}
	first, err := r.recipe.TimePrecision.At(r.asked)
	if err != nil {
		return err
	}
	from, err := r.recipe.TimePrecision.Begin(first)
	if err != nil {
		return err
	}
	result, err := session.Collect(ctx, from, from.Add(r.o.Precision))
	if err != nil {
		return err
	}
	r.report.Accepted = result.ReportCount
	r.report.Estimate, r.report.Stderr, r.report.Interval95 = result.Estimate, result.Stderr, result.Interval95
	r.report.see(r.client, r.recipe)
	return nil
}

// draw writes the picture and the table.
func (r *run) draw(context.Context) error {
	r.report.Table = r.table(r.report.WriteCSV)
	r.report.Picture = r.write(PictureFile, r.report.Chart().WritePNG)
	return nil
}

// table writes the lab's CSV and says where it is.
func (r *run) table(write func(io.Writer) error) string { return r.write(TableFile, write) }

// write writes a file of the results and says where it is. What cannot be written is noted:
// the results are there all the same.
func (r *run) write(name string, write func(io.Writer) error) string {
	path := filepath.Join(r.o.Out, name)
	if err := chart.WriteFile(path, write); err != nil {
		r.unwritten = errors.Join(r.unwritten, fmt.Errorf("%w: %w", ErrOut, err))
		return ""
	}
	return path
}

// vacant says whether a directory is empty or not there.
func vacant(dir string) bool {
	list, err := os.ReadDir(dir)
	return len(list) == 0 && (err == nil || errors.Is(err, fs.ErrNotExist))
}

// writable makes a directory where it is missing and tries to write there.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".starling-lab-")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
