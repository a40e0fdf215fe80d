package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/lab/chart"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
)

// A Frame says what all labs have in common: where their files go, how many devices work
// at a time, how long a round is, and how private it is.
type Frame struct {
	// Keep is a directory, new or empty, in which the deployment is left behind. Empty
	// uses a temporary one.
	Keep string
	// Out is the directory for starling-lab.png and starling-lab.csv; made where it is
	// missing. Default ".".
	Out string
	// Workers is how many goroutines play devices, or in a population how many devices
	// compute at a time. Default GOMAXPROCS.
	Workers int
	// Epsilon and Delta are what the recipe's noise is calibrated to; the report says what
	// it then computes to. Delta is 10^-6 by default; Epsilon's default is the lab's.
	Epsilon, Delta recipe.Decimal
	// Precision is what report times are cut to, and the length of a round: whole
	// seconds, at most an hour. The lab's own rounds are the last that are over when it
	// begins, so a kept deployment takes new reports at once. Default 10s.
	Precision time.Duration
	// Log gets what both servers log. Default: lab.log in Keep, else nothing.
	Log io.Writer
	// Progress is told how far the lab is, several times a second, by one goroutine at a
	// time. Optional.
	Progress func(Progress)

	exact   bool // devices answer a recipe without noise too
	relay   bool // devices go through a relay and a gateway
	counted int  // devices that have credentials and follow a log; 0: none
	rounds  int  // of which devices report, where they are counted
	shown   bool // to hops, without a rehearsal
	live    bool // devices report of the round that it is, and not of one that is over
}

// Files that a lab writes into [Frame.Out], in the place of an earlier lab's.
const (
	PictureFile = "starling-lab.png"
	TableFile   = "starling-lab.csv"
)

const (
	maxWorkers = 256

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

// withDefaults fills in what is not said; epsilon is the lab's.
func (o Frame) withDefaults(epsilon string) Frame {
	if o.Out == "" {
		o.Out = "."
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Epsilon == (recipe.Decimal{}) {
		o.Epsilon = decimal(epsilon)
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
	return o
}

// validate says what is wrong with a frame that is filled in.
func (o *Frame) validate() error {
	switch {
	case o.Precision < time.Second || o.Precision > time.Hour || o.Precision%time.Second != 0:
		return fmt.Errorf("lab: precision %v; want whole seconds up to an hour", o.Precision)
	case o.Workers < 1 || o.Workers > maxWorkers:
		return fmt.Errorf("lab: %d workers; want 1 to %d", o.Workers, maxWorkers)
	}
	return nil
}

// decimal reads a constant of this package.
func decimal(s string) recipe.Decimal {
	d, err := recipe.ParseDecimal(s)
	if err != nil {
		panic("lab: internal error: " + err.Error())
	}
	return d
}

// A scenario is one lab: what is asked, how devices answer it, and how what is released
// compares with the truth, which a lab knows. The frame plays it to its report.
type scenario[R any] interface {
	// pose makes the recipe.
	pose(*frame, *deploy.Addresses) (*recipe.Recipe, error)
	// answer has every device make its value and send it, and notes the truth.
	answer(context.Context, *frame) error
	// compare asks for what is released, and holds it to the truth and to what the recipe
	// has one expect.
	compare(context.Context, *frame) error
	// draw writes the results into files.
	draw(*frame)
	// report says what was found, once the servers have stopped.
	report(*frame) *R
}

// poser is what the frame needs to begin.
type poser func(*frame, *deploy.Addresses) (*recipe.Recipe, error)

// A frame is one lab under way.
type frame struct {
	o      Frame
	dir    string
	http   *http.Client
	recipe *recipe.Recipe
	file   []byte // of the recipe, with its certificate
	client *client.Client
	// guarantee is what the accountant says; devices go by the certificate.
	guarantee *recipe.Guarantee
	config    *deploy.Aggregator // the leader's
	status    statusReader
	begun     time.Time
	asked     time.Time       // when the reports of the last round are made: it is over when the lab begins
	anchors   *signed.Anchors // that come with the devices' software
	front     *deploy.Front   // relay and gateway, where there are any
	counting  *counting       // nil where the recipe counts no devices
	tempo     tempo           // where it does
	again     int             // epochs that began too early
	conductor *conductor      // of a training
	log       *slog.Logger    // of all parties
	addresses *deploy.Addresses
	via       *ohttp.Transport // of all devices
	phase     int
	// certificate was checked by every device, and certified says what it proves; both are
	// empty where nothing is claimed.
	certificate []byte
	certified   string

	sent         uint64 // reports, malicious ones included
	acknowledged uint64 // of them, by the leader
	rejected     map[string]uint64
	seconds      map[string]float64 // by step
	total        float64            // seconds
	unwritten    error              // why picture or table could not be written
}

// ErrOut: the picture or the table cannot be written to [Frame.Out]. Without a report
// beside it nothing has been started.
var ErrOut = errors.New("lab: no place for picture and table")

// play plays a scenario from the start of the servers to its report. It ends early with
// ctx. Where only picture or table could not be written, the report comes beside the
// error.
func play[R any](ctx context.Context, o Frame, s scenario[R]) (*R, error) {
	if err := writable(o.Out); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOut, err)
	}
	f := newFrame(o)
	run := f.run
	if o.counted > 0 {
		run = f.counted
	}
	if err := run(ctx, s.pose, acts(f, s)...); err != nil {
		return nil, err
	}
	return s.report(f), f.unwritten
}

func newFrame(o Frame) *frame {
	begun := time.Now()
	return &frame{o: o, begun: begun, asked: begun.Add(-o.Precision - settled), rejected: map[string]uint64{}, seconds: map[string]float64{}}
}

// acts are all of a lab after its start.
func acts[R any](f *frame, s scenario[R]) []act {
	all := []act{
		{"upload", func(ctx context.Context) error { return s.answer(ctx, f) }},
		{"verify", f.verify},
		{"collect", func(ctx context.Context) error { return s.compare(ctx, f) }},
		{"draw", func(context.Context) error { s.draw(f); return nil }},
	}
	if f.o.counted > 0 {
		return append([]act{{enrolling, f.enrol}}, all...)
	}
	return all
}

// starting is the step in which all parties start.
const starting = "start"

// An act is a step of a lab while the servers run.
type act struct {
	name string
	do   func(context.Context) error
}

// A starter writes a deployment and starts its parties. The returned context ends when one of
// them fails, with that as its cause; stop stops them in order.
type starter func(context.Context) (stop func() error, work context.Context, err error)

// run starts leader and helper, and all that goes with them, plays the acts and stops the
// servers.
func (f *frame) run(ctx context.Context, pose poser, acts ...act) error {
	return f.through(ctx, func(ctx context.Context) (func() error, context.Context, error) { return f.start(ctx, pose) }, acts...)
}

// through starts parties, plays the acts and stops the parties.
func (f *frame) through(ctx context.Context, start starter, acts ...act) (err error) {
	f.dir = f.o.Keep
	if stopped := ctx; f.dir != "" && vacant(f.dir) {
		defer func() { // half of a deployment is no use, and would be in the way of the next
			switch late := new(lateError); {
			case err != nil && stopped.Err() != nil:
				err = errors.Join(fmt.Errorf("%w; %s was taken away again", err, f.dir), os.RemoveAll(f.dir))
			case errors.As(err, &late):
				err = errors.Join(err, os.RemoveAll(f.dir))
			}
		}()
	}
	if f.dir == "" {
		if f.dir, err = os.MkdirTemp("", "starling-lab-"); err != nil {
			return fmt.Errorf("lab: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(f.dir)) }()
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, f.o.Workers+4+inFlight
	transport.Proxy = nil // loopback only
	defer transport.CloseIdleConnections()
	f.http = &http.Client{Transport: transport, Timeout: time.Minute}

	var stop func() error
	if err := f.step(starting, func() (err error) { stop, ctx, err = start(ctx); return err }); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for _, a := range acts {
		if err := f.step(a.name, func() error { return a.do(ctx) }); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause // a server's failure explains what the clients met
			}
			return fmt.Errorf("lab: %s: %w", a.name, err)
		}
	}
	f.total = time.Since(f.begun).Seconds()
	return nil
}

// step runs one phase and notes how long it took.
func (f *frame) step(name string, do func() error) error {
	f.phase++
	f.o.Progress(Progress{Phase: f.phase, Phases: f.phases(), Name: name})
	begin := time.Now()
	err := do()
	f.seconds[name] = time.Since(begin).Seconds()
	if err == nil {
		f.o.Progress(Progress{Phase: f.phase, Phases: f.phases(), Name: name, Over: true, Took: time.Since(begin)})
	}
	return err
}

// start writes the deployment and starts leader and helper, as a [starter].
func (f *frame) start(ctx context.Context, pose poser) (stop func() error, _ context.Context, err error) {
	addresses, err := deploy.Loopback()
	if err != nil {
		return nil, ctx, err
	}
	defer func() {
		if err != nil {
			addresses.Close()
			if f.front != nil {
				f.front.Close()
			}
			if f.counting != nil {
				err = errors.Join(err, f.counting.close())
			}
			if f.conductor != nil {
				f.conductor.listeners.Close()
			}
		}
	}()
	f.addresses = addresses
	if f.o.relay {
		if f.front, err = deploy.LoopbackFront(); err != nil {
			return nil, ctx, err
		}
	}
	if f.o.counted > 0 {
		if f.counting, err = newCounting(f.o.counted, f.tempo.until(f.o.counted), f.o.Precision); err != nil {
			return nil, ctx, err
		}
		f.counting.author = signed.Leader
		f.counting.counters = []counter{{signed.Leader, addresses.LeaderLocal.Addr().String()}, {signed.Helper, addresses.HelperLocal.Addr().String()}}
		f.front.Log, f.front.Devices = f.counting.watched.LogURL(), uint64(f.o.counted)
		f.front.Rounds = f.o.rounds
		f.asked = f.roundsFrom(f.counting.begin) // not before there are credentials to show
		if f.o.live {
			f.asked = f.counting.begin.Add(-f.o.Precision)
		}
	}
	if f.recipe, err = pose(f, addresses); err != nil {
		return nil, ctx, err
	}
	owners, err := deploy.NewOwners()
	if err != nil {
		return nil, ctx, err
	}
	if f.recipe.ServerKeys, err = owners.ServerKeys(f.recipe.Relay != nil); err != nil {
		return nil, ctx, err
	}
	starts := f.begun // the manifest
	if f.counting != nil {
		f.counting.pose(f.recipe, owners)
		starts = f.counting.begin
	}
	if err := deploy.CreateFor(f.dir, f.recipe, addresses, owners); err != nil {
		return nil, ctx, err
	}
	if f.file, err = os.ReadFile(filepath.Join(f.dir, deploy.RecipeFile)); err != nil {
		return nil, ctx, fmt.Errorf("lab: %w", err)
	}
	if f.guarantee, err = account.Guarantee(f.recipe); err != nil {
		return nil, ctx, err
	}
	if f.front != nil {
		if err := deploy.CreateFront(f.dir, f.recipe, f.front, starts, frontWindow); err != nil {
			return nil, ctx, err
		}
	}
	if f.counting != nil {
		if err := f.counting.create(f.dir); err != nil {
			return nil, ctx, err
		}
	}
	if f.conductor != nil {
		if err := f.conductor.create(f.dir, f.recipe); err != nil {
			return nil, ctx, err
		}
	}
	log, closeLog, err := f.logger()
	if err != nil {
		return nil, ctx, err
	}
	f.log = log
	helper, err := deploy.LoadAggregator(filepath.Join(f.dir, deploy.HelperFile), dap.RoleHelper)
	if err != nil {
		return nil, ctx, err
	}
	if f.config, err = deploy.LoadAggregator(filepath.Join(f.dir, deploy.LeaderFile), dap.RoleLeader); err != nil {
		return nil, ctx, err
	}
	f.status = statusReader{f.http, "http://" + string(f.config.Local.Address)}
	parts := slices.Concat(
		helper.Parts(log, deploy.Listeners{Public: addresses.Helper, Local: addresses.HelperLocal}),
		f.config.Parts(log, deploy.Listeners{Public: addresses.Leader, Local: addresses.LeaderLocal}))
	if f.front != nil {
		more, err := f.frontParts(log)
		if err != nil {
			return nil, ctx, err
		}
		parts = append(parts, more...)
	}
	if f.conductor != nil { // which asks the leader, and so stops before it
		more, err := f.conductor.parts(f.dir, log)
		if err != nil {
			return nil, ctx, err
		}
		parts = append(parts, more...)
	}
	stop, work, err := f.begin(ctx, parts, log, closeLog)
	if err != nil {
		return nil, ctx, err
	}
	if f.front != nil {
		if err := f.relayed(); err != nil {
			return nil, ctx, errors.Join(err, stop())
		}
	}
	if f.client, err = client.New(f.clientOptions()); err != nil {
		return nil, ctx, errors.Join(err, stop())
	}
	if _, f.certificate, err = recipe.SplitFile(f.file); err != nil {
		return nil, ctx, errors.Join(err, stop())
	}
	if n := len(f.certificate); n > 0 {
		f.certified = certifiedWords(n, f.client.Guarantee().Loss)
	}
	return stop, work, nil
}

// begin puts log, witnesses and attester around the parties of a lab whose recipe counts
// devices, runs all of them, and reads what devices hold before they send: the anchors, and
// what the transparency log says. It is the end of a [starter].
func (f *frame) begin(ctx context.Context, parts []service.Part, log *slog.Logger, closeLog func() error) (stop func() error, work context.Context, err error) {
	if f.counting != nil {
		if parts, err = f.counting.around(parts, f.dir, log); err != nil {
			return nil, ctx, errors.Join(err, closeLog())
		}
	}
	stop, work, err = f.serve(ctx, parts, func() error {
		if f.counting != nil {
			return errors.Join(f.counting.close(), closeLog())
		}
		return closeLog()
	})
	if err != nil {
		return nil, ctx, err
	}
	if f.anchors, err = deploy.ReadAnchors(filepath.Join(f.dir, deploy.AnchorsFile)); err != nil {
		return nil, ctx, errors.Join(err, stop())
	}
	if f.counting != nil {
		if err := f.follow(work); err != nil {
			return nil, ctx, errors.Join(err, stop())
		}
	}
	return stop, work, nil
}

// serve runs parties; ended is called when they have ended.
func (f *frame) serve(ctx context.Context, parts []service.Part, ended func() error) (stop func() error, _ context.Context, err error) {
	// The servers outlive the caller's context by as long as it takes to stop them in
	// order.
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
		f.http.CloseIdleConnections()
		stopServers()
		err := <-done
		fail(context.Canceled)
		return errors.Join(err, ended())
	}
	select {
	case <-up:
		return stop, work, nil
	case err := <-done:
		stopServers()
		if ctx.Err() != nil {
			err = context.Cause(ctx) // it was stopped; what that interrupted says no more
		}
		return nil, ctx, errors.Join(err, ended())
	case <-ctx.Done():
		stop()
		return nil, ctx, context.Cause(ctx)
	}
}

// clientOptions are those of every device. One of a lab whose recipe counts devices has
// credentials of its own beside.
func (f *frame) clientOptions() client.Options {
	o := client.Options{Recipe: f.file, Anchors: f.anchors, HTTP: f.http, MaxEpsilon: f.o.Epsilon.FloatDown() * 1.01, Shares: f.recipe.Shares() > 0}
	if f.o.exact {
		o.MaxEpsilon = math.Inf(1)
	}
	if f.client != nil {
		o.Recipe, o.Checked = nil, f.client.Checked() // all have the same
	}
	if f.front != nil {
		o.HTTP, o.Via = nil, f.via // keys come from the manifest
		o.Tries = labTries
	}
	if f.counting != nil {
		one := first{f.counting}
		o.Log, o.Credentials, o.Admission = f.counting.book, one, one.Admission
	}
	return o
}

// logger returns the servers' logger and what closes its file.
func (f *frame) logger() (*slog.Logger, func() error, error) {
	nothing := func() error { return nil }
	switch {
	case f.o.Log != nil:
		return service.NewLogger(f.o.Log, slog.LevelInfo), nothing, nil
	case f.o.Keep == "":
		return slog.New(slog.DiscardHandler), nothing, nil
	}
	file, err := os.Create(filepath.Join(f.dir, "lab.log"))
	if err != nil {
		return nil, nothing, fmt.Errorf("lab: %w", err)
	}
	return service.NewLogger(file, slog.LevelInfo), file.Close, nil
}

// at is the unit of the recipe's time in which a time lies.
func (f *frame) at(t time.Time) (dap.Time, error) {
	return dap.TimePrecision(f.o.Precision / time.Second).At(t)
}

// roundTime is when the reports of one of the rounds are made: each has a unit of
// time of its own, and the last is over when the lab begins.
func (f *frame) roundTime(round, rounds int) time.Time {
	return f.asked.Add(-time.Duration(rounds-1-round) * f.o.Precision)
}

// roundsFrom is when the reports of the last round are made if those of the first are at a
// time.
func (f *frame) roundsFrom(t time.Time) time.Time {
	return t.Add(time.Duration(f.o.rounds-1) * f.o.Precision)
}

// window is the time in which the recipe takes reports, from the first of its rounds on.
func (f *frame) window(rounds int) (recipe.Between, error) {
	last, err := f.at(f.asked)
	return recipe.Between{Start: last - dap.Time(rounds-1), End: last + dap.Time(openFor/f.o.Precision)}, err
}

// collector is the configuration of the party that asks.
func (f *frame) collector() (*deploy.Collector, error) {
	return deploy.LoadCollector(filepath.Join(f.dir, deploy.CollectorFile))
}

// interval is the round in which reports of a time are released.
func (f *frame) interval(t time.Time) (from, to time.Time, err error) {
	unit, err := f.at(t)
	if err == nil {
		from, err = f.recipe.TimePrecision.Begin(unit)
	}
	return from, from.Add(f.o.Precision), err
}

// collect asks for the round of a time and opens the answer.
func (f *frame) collect(ctx context.Context, config *deploy.Collector, t time.Time) (*collector.Result, error) {
	session, err := config.Open(collector.Options{HTTP: f.http, Poll: 100 * time.Millisecond, MaxPoll: time.Second})
	if err != nil {
		return nil, err
	}
	from, to, err := f.interval(t)
	if err != nil {
		return nil, err
	}
	return session.Collect(ctx, from, to)
}

// crowd does work for each of n devices, in order and at most atOnce at a time, until one
// fails.
func crowd(ctx context.Context, n, atOnce int, work func(ctx context.Context, i int) error) error {
	group, inside := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := 0; i < n && inside.Err() == nil; i++ {
		group.Go(func() error { return work(inside, i) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// table writes the lab's CSV and says where it is.
func (f *frame) table(write func(io.Writer) error) string { return f.write(TableFile, write) }

// write writes a file of the results and says where it is. A failed write is noted: the
// results are there all the same.
func (f *frame) write(name string, write func(io.Writer) error) string {
	path := filepath.Join(f.o.Out, name)
	if err := chart.WriteFile(path, write); err != nil {
		f.unwritten = errors.Join(f.unwritten, fmt.Errorf("%w: %w", ErrOut, err))
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
