package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/contribute"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/prose"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/shuffle/hop"
)

const (
	// mixedPrecision is the length of a round, if nothing else is said, for each started
	// mixedCrowd messages, and mixedAhead for how many rounds after the present one parties
	// have keys: devices take the first that leaves them time enough, however slow the
	// machine is.
	mixedPrecision = 3 * time.Second
	mixedCrowd     = 5000
	mixedAhead     = 30
	// mixedSample is how many devices are timed first. To send takes less than wayOfAll times
	// as long as to seal, all parties together, or wayOfEach where that is more, and
	// mixedSettles beside.
	mixedSample  = 40
	wayOfAll     = 3
	wayOfEach    = 2500 * time.Microsecond
	mixedSettles = time.Second
	// shownPrecision is the length of a round of devices that show credentials, for each
	// started shownCrowd of them, and maxShown how many there are at most: hops verify about
	// ten presentations of each.
	shownPrecision = 10 * time.Second
	shownCrowd     = 500
	maxShown       = 5000
	// visitOfOne is about how long a device takes to visit, with all parties on this machine.
	visitOfOne = 15 * time.Millisecond
	// mixedInFlight is how many devices wait for an answer at one time.
	mixedInFlight = 64
)

// A Mixed is what a lab found whose contributions are messages without proofs.
type Mixed struct {
	// MessagesPerDevice is how many messages a contribution has, each of MessageBytes;
	// ContributionBytes is what a device sends, sealed.
	MessagesPerDevice int `json:"messages_per_device"`
	MessageBytes      int `json:"message_bytes"`
	ContributionBytes int `json:"contribution_bytes"`
	// Honest is how many devices the guarantee counts on.
	Honest uint64 `json:"honest_devices"`
}

// A mixedQuestion is what such a lab asks.
type mixedQuestion struct {
	direct  bool // of an analyzer alone
	devices int
	value   func(i int) client.Value
	// choose completes the options of the recipe.
	choose func(o *account.Options) error
	// promise completes what is said beforehand, and compare what is found.
	promise func(f *frame)
	compare func(x *collector.Result)
}

// mixed is the scenario of a lab on a path without proofs. Its parties are others than the
// frame's, and so it starts them itself.
type mixed struct {
	o      Options
	asks   mixedQuestion
	mixers *deploy.Mixers
	local  []string // local listeners of hops and analyzer
	device *contribute.Contributor
	// shown are the devices in the mode tokens, each with its own credentials; nil in the other,
	// where all are device.
	shown []*contribute.Contributor
	at    time.Time // in the round
	found *Report
}

// run plays it.
func (c *mixed) run(ctx context.Context) (*Report, error) {
	if err := writable(c.o.Out); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOut, err)
	}
	f := newFrame(c.o.Frame)
	if c.o.Credentials {
		f.o.counted, f.o.rounds, f.o.shown = c.asks.devices, 1, true
		f.tempo = tempo{2 * time.Second, visitOfOne, slack}
	}
	step := func(name string, do func(context.Context, *frame) error) act {
		return act{name, func(ctx context.Context) error { return do(ctx, f) }}
	}
	acts := []act{step("upload", c.answer), step("verify", c.mixed), step("collect", c.compare), step("draw", func(context.Context, *frame) error { c.draw(f); return nil })}
	if c.o.Credentials {
		acts = slices.Insert(acts, 0, step(enrolling, c.enrol))
	}
	run := func() error {
		return f.through(ctx, func(ctx context.Context) (func() error, context.Context, error) { return c.start(ctx, f) }, acts...)
	}
	if err := f.retried(ctx, run); err != nil {
		return nil, err
	}
	f.ended(&c.found.Outcome)
	c.found.ReportsPerSecond = float64(c.found.Sent) / (f.seconds["upload"] + f.seconds["verify"] + f.seconds["collect"])
	return c.found, f.unwritten
}

// pose makes the recipe.
func (c *mixed) pose(f *frame) (*recipe.Recipe, error) {
	unit, err := f.at(f.begun)
	if err != nil {
		return nil, err
	}
	o := account.Options{
		Population: &recipe.Population{
			Statement: "the participants of the RAND Health Insurance Experiment, 1974 to 1982",
			Expected:  uint64(c.asks.devices),
		},
		Unit: &recipe.Unit{Name: "person-year", Records: 1, Reduce: recipe.FirstRecord, PerPerson: yearsPerPerson},
		Path: c.mixers.Path(true), Relay: &recipe.Relay{URL: f.front.RelayURL(), Gateway: f.front.GatewayURL()},
		MinBatch:      uint64(c.asks.devices / 2),
		TimePrecision: dap.TimePrecision(f.o.Precision / time.Second), Grace: grace,
		Window:  recipe.Between{Start: unit, End: unit + dap.Time(openFor/f.o.Precision)},
		Epsilon: f.o.Epsilon, Delta: f.o.Delta,
	}
	if x := f.counting; x != nil {
		o.Log = &recipe.Log{Origin: x.watched.Origin()}
		o.Tokens = &recipe.Tokens{Attester: x.attester.URL(), Key: c.mixers.Tokens.Attester.Public(), Attestation: recipe.Codes, MinCohort: uint64(c.asks.devices)}
	}
	if err := c.asks.choose(&o); err != nil {
		return nil, err
	}
	return account.New(o)
}

// start writes the deployment and starts its parties, as a [starter].
func (c *mixed) start(ctx context.Context, f *frame) (stop func() error, _ context.Context, err error) {
	if c.mixers, err = deploy.LoopbackMixers(c.asks.direct); err != nil {
		return nil, ctx, err
	}
	c.mixers.Ahead = mixedAhead
	defer func() {
		if err != nil {
			c.mixers.Close()
			if f.front != nil {
				f.front.Close()
			}
			if f.counting != nil {
				err = errors.Join(err, f.counting.close())
			}
		}
	}()
	if f.front, err = deploy.LoopbackFront(); err != nil {
		return nil, ctx, err
	}
	if c.o.Credentials {
		if err := c.counts(f); err != nil {
			return nil, ctx, err
		}
	}
	if f.recipe, err = c.pose(f); err != nil {
		return nil, ctx, err
	}
	if err := deploy.CreateShuffle(f.dir, f.recipe, c.mixers, f.front, f.begun, frontWindow); err != nil {
		return nil, ctx, err
	}
	if f.counting != nil {
		if err := f.counting.create(f.dir); err != nil {
			return nil, ctx, err
		}
	}
	if f.file, err = os.ReadFile(filepath.Join(f.dir, deploy.RecipeFile)); err != nil {
		return nil, ctx, fmt.Errorf("lab: %w", err)
	}
	if f.guarantee, err = account.Guarantee(f.recipe); err != nil {
		return nil, ctx, err
	}
	log, closeLog, err := f.logger()
	if err != nil {
		return nil, ctx, err
	}
	parts, err := c.parts(f, log)
	if err != nil {
		return nil, ctx, errors.Join(err, closeLog())
	}
	stop, work, err := f.begin(ctx, parts, log, closeLog)
	if err != nil {
		return nil, ctx, err
	}
	if err := c.devices(f); err != nil {
		return nil, ctx, errors.Join(err, stop())
	}
	return stop, work, nil
}

// parts are all parties as they start from their files, those first to whom others send.
func (c *mixed) parts(f *frame, log *slog.Logger) ([]service.Part, error) {
	analyzer, err := deploy.LoadAnalyzer(filepath.Join(f.dir, deploy.AnalyzerFile))
	if err != nil {
		return nil, err
	}
	parts := analyzer.Parts(log, c.mixers.Analyzer)
	c.local = []string{string(analyzer.Local.Address)}
	for n := len(c.mixers.Hops); n > 0; n-- {
		config, err := deploy.LoadHop(filepath.Join(f.dir, deploy.HopFile(n)))
		if err != nil {
			return nil, err
		}
		parts = append(parts, config.Parts(log, c.mixers.Hops[n-1])...)
		c.local = append([]string{string(config.Local.Address)}, c.local...)
	}
	front, err := f.frontParts(log)
	return append(parts, front...), err
}

// devices make what all devices have: they differ in their answers, and where they show
// credentials in these.
func (c *mixed) devices(f *frame) (err error) {
	var from ohttp.Source
	if f.counting != nil {
		from = f.counting.book
	} else {
		b, err := os.ReadFile(filepath.Join(f.dir, deploy.ManifestFile))
		if err != nil {
			return fmt.Errorf("lab: %w", err)
		}
		m, err := ohttp.ReadManifest(b)
		if err != nil {
			return fmt.Errorf("lab: %w", err)
		}
		from = ohttp.Pin(m)
	}
	source, err := contribute.NewManifests(contribute.ManifestsOptions{Recipe: f.recipe, Source: from})
	if err != nil {
		return err
	}
	if f.via, err = ohttp.NewTransport(ohttp.TransportOptions{Source: source, Relay: f.http.Transport}); err != nil {
		return err
	}
	if c.device, err = contribute.New(contribute.Options{Client: c.options(f), Lists: f.http}); err != nil {
		return err
	}
	if _, f.certificate, err = recipe.SplitFile(f.file); err != nil {
		return err
	}
	f.certified = certifiedWords(len(f.certificate), c.device.Guarantee().Loss)
	c.promise(f)
	return nil
}

// promise takes down what the recipe promises.
func (c *mixed) promise(f *frame) {
	g, r, s := f.guarantee, c.found, c.device.Shuffle()
	r.Epsilon, r.Delta, r.Guarantee = g.Epsilon, g.Delta, c.words(g, f.recipe)+f.certified
	r.Conditions, r.RecipeID = append([]string{}, g.Conditions...), c.device.RecipeID().String()
	r.Unit, r.Certificate = g.Unit, f.certificate
	if g.PerPerson > 0 {
		r.UnitsPerPerson, r.Person = g.PerPerson, &g.Person
	}
	r.Mixed = &Mixed{MessagesPerDevice: s.Messages, MessageBytes: s.Size}
	c.asks.promise(f)
}

// words say the guarantee.
func (c *mixed) words(g *recipe.Guarantee, r *recipe.Recipe) string {
	words := fmt.Sprintf("Guarantee: %s, for replacing the contribution of any one %s by any other, computed from the recipe and not typed in. %s ",
		g.Loss, g.Unit, sure(g.Epsilon, g.Unit))
	if !r.CountsOnDevices() {
		return words + "It holds against whoever reads the contributions: nobody is trusted. No server adds noise: the devices do."
	}
	return words + fmt.Sprintf("It holds if %s, %s. No server adds noise: the devices do.",
		strings.Join(g.Conditions, ", "), c.trust())
}

// errLate: the machine was so busy that a round was over before all devices had sent.
var errLate = errors.New("longer than the round: give it a longer one with --precision")

// answer has every device contribute to the first round that leaves time enough; it fails
// with errLate where that was too little.
func (c *mixed) answer(ctx context.Context, f *frame) error {
	if err := c.ready(ctx, f); err != nil {
		return err
	}
	s := c.device.Shuffle()
	begin := time.Now()
	err := crowd(ctx, mixedSample, f.o.Workers, func(_ context.Context, i int) error {
		_, err := c.of(i).Prepare(c.asks.value(0), begin)
		return err
	})
	if errors.Is(err, client.ErrWindow) {
		return fmt.Errorf("%d devices took %w", mixedSample, errLate)
	} else if err != nil {
		return err
	}
	ways := time.Duration(wayOfAll)
	if c.shown != nil {
		ways = 2 // sealing is most of it, and hops verify after the flush
	}
	took := max(time.Since(begin)*ways/mixedSample, wayOfEach) * time.Duration(c.asks.devices)
	enough, round := time.Now().Add(took+mixedSettles), s.Round(time.Now())
	if c.shown != nil {
		round = max(round, s.Round(begin)+1) // of that round the sample has shown what it may
	}
	for last := s.Round(begin) + mixedAhead; round < last && s.Flush(round).Before(enough); {
		round++
	}
	c.at = s.Begin(round)
	var done, bytes atomic.Uint64
	stop := f.tick("upload", uint64(c.asks.devices), &done)
	defer stop()
	computing := make(chan struct{}, f.o.Workers) // the rest wait for the gateway
	err = crowd(ctx, c.asks.devices, max(f.o.Workers, mixedInFlight), func(ctx context.Context, i int) error {
		computing <- struct{}{}
		envelope, err := c.of(i).Prepare(c.asks.value(i), c.at)
		<-computing
		if err != nil {
			return err
		}
		if err := c.of(i).Send(ctx, envelope); err != nil {
			return err
		}
		bytes.Store(uint64(len(envelope)))
		done.Add(1)
		return nil
	})
	if late := time.Since(s.Flush(round)); late > 0 && (err == nil || errors.Is(err, client.ErrWindow)) {
		err = fmt.Errorf("the devices took %v %w", late.Truncate(time.Millisecond), errLate)
	}
	f.sent, f.acknowledged = done.Load(), done.Load()
	c.found.Sent, c.found.ContributionBytes = f.sent, int(bytes.Load())
	return err
}

// mixed waits until the round is over, and has gone through both hops to the analyzer.
func (c *mixed) mixed(ctx context.Context, f *frame) error {
	flush := c.device.Shuffle().Flush(c.device.Shuffle().Round(c.at))
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		p := Progress{Phase: f.phase, Phases: f.phases(), Name: "verify", Left: max(0, time.Until(flush))}
		var last hop.Totals
		for i, at := range c.local {
			var s hop.Status
			if err := f.readStatus(ctx, at, &s); err != nil {
				return err
			}
			x := s.Shuffles[0]
			last = x.Totals
			p.Counts = append(p.Counts, Count{c.names()[i], last.Contributions, f.sent})
			for _, r := range x.Rounds {
				if r.Trouble != "" {
					return errors.New(r.Trouble)
				}
			}
			if n := last.Rounds["few"]; n > 0 {
				return fmt.Errorf("fewer contributions came than the least batch of %d", f.recipe.MinBatch)
			}
		}
		f.o.Progress(p)
		if last.Rounds["tallied"] > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// compare reads the result, and holds it to the truth.
func (c *mixed) compare(ctx context.Context, f *frame) error {
	token, err := service.Secret(filepath.Join(f.dir, "secrets", "collector.token")).Text()
	if err != nil {
		return err
	}
	checked, err := deploy.OpenRecipe(filepath.Join(f.dir, deploy.RecipeFile))
	if err != nil {
		return err
	}
	reader, err := collector.NewReader(collector.ReaderOptions{Checked: checked, Token: token, HTTP: f.http})
	if err != nil {
		return err
	}
	round, _, _, _ := reader.RoundAt(c.at)
	x, err := reader.Round(ctx, round)
	if err != nil {
		return err
	}
	r, n := c.found, float64(x.ReportCount)
	r.Accepted = x.ReportCount
	c.asks.compare(x)
	messages := prose.Count(n * float64(r.MessagesPerDevice))
	r.Saw = []Sight{
		{"each client", "its own answer, the recipe, and the guarantee that it checked before it answered"},
		{"relay", "who sent something, and when; nothing of what"},
		{"gateway", fmt.Sprintf("%s sealed contributions of %s bytes each, not from whom", prose.Count(n), prose.Count(float64(r.ContributionBytes)))},
	}
	analyzer := messages + " blurred answers, not from whom"
	if !c.asks.direct {
		inside := fmt.Sprintf("which %d sealed messages are of one contribution; not from whom, nor anything inside", r.MessagesPerDevice)
		if r.MessagesPerDevice == 1 {
			inside = messages + " sealed messages; not from whom, nor anything inside"
		}
		r.Saw = append(r.Saw, Sight{"hop 1", inside}, Sight{"hop 2", messages + " sealed messages, in no order; not which belong together"})
		analyzer = messages + " blurred answers, in no order"
	}
	if r.Cloaked != nil {
		sums := "their sums, with the devices' noise in each"
		if r.Mean != nil {
			sums = "their sum, with the devices' noise in it"
		}
		analyzer = messages + " random numbers, or as many of several, in no order; " + sums
	}
	r.Saw = append(r.Saw, Sight{"analyzer", analyzer}, Sight{"collector", fmt.Sprintf("no more than that result, and that there were %s contributions", prose.Count(n))})
	c.counted(f)
	return nil
}

// names are those of hops and analyzer.
func (c *mixed) names() []string {
	if c.asks.direct {
		return []string{"analyzer"}
	}
	return []string{"hop 1", "hop 2", "analyzer"}
}

func (c *mixed) draw(f *frame) {
	c.found.Rejected = f.rejected
	c.found.Table = f.table(c.found.WriteCSV)
	c.found.Picture = f.write(PictureFile, c.found.Chart().WritePNG)
}

// writeMixed writes what devices sent, and nothing where they sent proofs.
func (r *Report) writeMixed(w io.Writer, width int) {
	if r.Mixed == nil {
		return
	}
	plural := func(n int, one string) string {
		if n == 1 {
			return "1 " + one
		}
		return fmt.Sprintf("%d %ss", n, one)
	}
	what := plural(r.MessagesPerDevice, "message") + " of " + plural(r.MessageBytes, "byte")
	counts := ""
	if r.Honest > 0 {
		counts = fmt.Sprintf("; the guarantee counts on %s of them to follow the recipe", prose.Count(float64(r.Honest)))
	}
	for _, line := range prose.Wrap(fmt.Sprintf("Each device sent %s, sealed %s bytes in all%s.", what, prose.Count(float64(r.ContributionBytes)), counts), min(max(width, 60), 100)) {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w)
}
