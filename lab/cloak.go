package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
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
	"github.com/starling-agg/starling/lab/chart"
	"github.com/starling-agg/starling/lab/internal/randhie"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/shuffle/hop"
)

// Cloak asks for the mean of the visits, each at most 20, through a shuffler: relay, gateway,
// two hops and an analyzer. No server adds noise; every device adds a share of it, and splits
// what it then has into messages of which only the sum of everybody's tells anything.
const Cloak = "cloak"

// CloakVisits asks for the histogram of [Visits] in the same way.
const CloakVisits = "cloak-visits"

// cloaks says whether the lab is one through a shuffler.
func (o *Options) cloaks() bool { return o.Recipe == Cloak || o.Recipe == CloakVisits }

const (
	// defaultCloaked is how many of the table's first rows contribute, and
	// defaultCloakedVisits how many to a histogram, of three times as many messages each.
	defaultCloaked       = 2000
	defaultCloakedVisits = 1000
	// cloakPrecision is the length of a round, if nothing else is said, for each started
	// 5,000 devices, and cloakAhead for how many rounds after the present one hops have
	// keys: devices take the first that leaves them time enough, however slow the machine
	// is.
	cloakPrecision = 3 * time.Second
	cloakCrowd     = 5000
	cloakAhead     = 30
	// cloakSample is how many devices are timed first. To send takes less than wayOfAll times
	// as long as to seal, all parties together, and cloakSettles more.
	cloakSample  = 40
	wayOfAll     = 3
	cloakSettles = time.Second
	// cloakInFlight is how many devices wait for an answer at one time.
	cloakInFlight = 64
)

// A Cloaked is what a lab found that goes through a shuffler. Sum is in [Report.Estimate].
type Cloaked struct {
	// MessagesPerDevice is how many messages a contribution has, each of MessageBytes;
	// ContributionBytes is what a device sends, sealed.
	MessagesPerDevice int `json:"messages_per_device"`
	MessageBytes      int `json:"message_bytes"`
	ContributionBytes int `json:"contribution_bytes"`
	// Honest is how many devices the guarantee counts on.
	Honest uint64 `json:"honest_devices"`
	// Mean is the mean of the visits, where that is asked for.
	Mean *MeanCell `json:"mean,omitempty"`
}

// A MeanCell is an estimated mean beside the truth.
type MeanCell struct {
	Estimate   float64    `json:"estimate"`
	Truth      float64    `json:"truth"`
	Stderr     float64    `json:"stderr"`
	Interval95 [2]float64 `json:"interval95"`
}

// withCloakDefaults fills in what is not said of such a lab.
func (o Options) withCloakDefaults() Options {
	if o.Population == 0 {
		o.Population = defaultCloaked
		if o.Recipe == CloakVisits {
			o.Population = defaultCloakedVisits
		}
	}
	if o.Precision == 0 {
		o.Precision = cloakPrecision * time.Duration(max(1, (o.Population+cloakCrowd-1)/cloakCrowd))
	}
	return o
}

// validateCloak says what is wrong with such a lab.
func (o *Options) validateCloak() error {
	switch {
	case o.Population < MinRows || o.Population > AllRows:
		return fmt.Errorf("lab: recipe %s goes with a population of %d to %d, a row each", o.Recipe, MinRows, AllRows)
	case o.Malicious != 0 || o.Sampling != (recipe.Rational{}) || o.KnownSample || o.Credentials || o.Rounds != 0 || o.Rows != AllRows:
		return fmt.Errorf("lab: recipe %s goes with --population, and no rows, malicious reports, coins, rounds or credentials", o.Recipe)
	}
	return nil
}

// cloaked is the scenario of such a lab. Its parties are others than the frame's, and so it
// starts them itself.
type cloaked struct {
	o      Options
	values []int // visits, capped, or their buckets
	value  func(int) client.Value
	mixers *deploy.Mixers
	local  []string // local listeners of hop 1, hop 2 and analyzer
	device *contribute.Contributor
	at     time.Time // in the round
	found  *Report
}

func runCloak(ctx context.Context, o Options, visits []int) (*Report, error) {
	c := &cloaked{o: o, found: &Report{Labels: []string{"visits"}, Truth: []int64{0}}, value: func(n int) client.Value { return client.Number(uint64(n)) }}
	if o.Recipe == CloakVisits {
		c.found.Labels, c.found.Truth = randhie.Labels(), make([]int64, randhie.Buckets)
		c.value = func(n int) client.Value { return client.Bucket(uint32(n)) }
	}
	for _, v := range visits[:o.Population] {
		if o.Recipe == CloakVisits {
			v = randhie.Bucket(v)
			c.found.Truth[v]++
		} else {
			v = min(v, mostVisits)
			c.found.Truth[0] += int64(v)
		}
		c.values = append(c.values, v)
	}
	if err := writable(o.Out); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOut, err)
	}
	f := newFrame(o.Frame)
	act := func(name string, do func(context.Context, *frame) error) act {
		return act{name, func(ctx context.Context) error { return do(ctx, f) }}
	}
	err := f.through(ctx, func(ctx context.Context) (func() error, context.Context, error) { return c.start(ctx, f) },
		act("upload", c.answer), act("verify", c.mixed), act("collect", c.compare), act("draw", func(context.Context, *frame) error { c.draw(f); return nil }))
	if err != nil {
		return nil, err
	}
	f.ended(&c.found.Outcome)
	c.found.ReportsPerSecond = float64(c.found.Sent) / (f.seconds["upload"] + f.seconds["verify"] + f.seconds["collect"])
	return c.found, f.unwritten
}

// pose makes the recipe.
func (c *cloaked) pose(f *frame) (*recipe.Recipe, error) {
	unit, err := f.at(f.begun)
	if err != nil {
		return nil, err
	}
	o := account.Options{
		Name:        "Visits to a doctor in a year, on average",
		Description: fmt.Sprintf("How many times did you see a doctor in the past year, %d if more?", mostVisits),
		Population: &recipe.Population{
			Statement: "the participants of the RAND Health Insurance Experiment, 1974 to 1982",
			Expected:  uint64(c.o.Population),
		},
		Unit:  &recipe.Unit{Name: "person-year", Records: 1, Reduce: recipe.FirstRecord, PerPerson: yearsPerPerson},
		Query: recipe.Mean{Max: mostVisits}, Randomizer: recipe.Cloak{Kind: recipe.ModernCloak},
		Path: c.mixers.Path(true), Relay: &recipe.Relay{URL: f.front.RelayURL(), Gateway: f.front.GatewayURL()},
		MinBatch:      uint64(c.o.Population / 2),
		TimePrecision: dap.TimePrecision(f.o.Precision / time.Second), Grace: grace,
		Window:  recipe.Between{Start: unit, End: unit + dap.Time(openFor/f.o.Precision)},
		Epsilon: f.o.Epsilon, Delta: f.o.Delta,
	}
	if c.o.Recipe == CloakVisits {
		visitsRecipe(&o)
	}
	return account.New(o)
}

// start writes the deployment and starts its parties, as a [starter].
func (c *cloaked) start(ctx context.Context, f *frame) (stop func() error, _ context.Context, err error) {
	if c.mixers, err = deploy.LoopbackMixers(false); err != nil {
		return nil, ctx, err
	}
	c.mixers.Ahead = cloakAhead
	defer func() {
		if err != nil {
			c.mixers.Close()
			if f.front != nil {
				f.front.Close()
			}
		}
	}()
	if f.front, err = deploy.LoopbackFront(); err != nil {
		return nil, ctx, err
	}
	if f.recipe, err = c.pose(f); err != nil {
		return nil, ctx, err
	}
	if err := deploy.CreateShuffle(f.dir, f.recipe, c.mixers, f.front, f.begun, frontWindow); err != nil {
		return nil, ctx, err
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
	stop, work, err := f.serve(ctx, parts, closeLog)
	if err != nil {
		return nil, ctx, err
	}
	if err := c.devices(f); err != nil {
		return nil, ctx, errors.Join(err, stop())
	}
	return stop, work, nil
}

// parts are all parties as they start from their files, those first to whom others send.
func (c *cloaked) parts(f *frame, log *slog.Logger) ([]service.Part, error) {
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

// devices make what all devices have: they differ in nothing but their answers.
func (c *cloaked) devices(f *frame) (err error) {
	if f.anchors, err = deploy.ReadAnchors(filepath.Join(f.dir, deploy.AnchorsFile)); err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(f.dir, deploy.ManifestFile))
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	m, err := ohttp.ReadManifest(b)
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	source, err := contribute.NewManifests(contribute.ManifestsOptions{Recipe: f.recipe, Source: ohttp.Pin(m)})
	if err != nil {
		return err
	}
	if f.via, err = ohttp.NewTransport(ohttp.TransportOptions{Source: source, Relay: f.http.Transport}); err != nil {
		return err
	}
	o := client.Options{Recipe: f.file, Anchors: f.anchors, MaxEpsilon: f.o.Epsilon.FloatDown() * 1.01, Via: f.via, Tries: labTries}
	if c.device, err = contribute.New(contribute.Options{Client: o, Lists: f.http}); err != nil {
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
func (c *cloaked) promise(f *frame) {
	g, r, s := f.guarantee, c.found, c.device.Shuffle()
	words := fmt.Sprintf("Guarantee: %s, for replacing the contribution of any one %s by any other, computed from the recipe and not typed in. %s "+
		"It holds if %s, one of the two hops tells nobody its order, and the first pads no batch. No server adds noise: the devices do.",
		g.Loss, g.Unit, sure(g.Epsilon, g.Unit), strings.Join(g.Conditions, ", "))
	r.Epsilon, r.Delta, r.Guarantee = g.Epsilon, g.Delta, words+f.certified
	r.Conditions, r.RecipeID = append([]string{}, g.Conditions...), c.device.RecipeID().String()
	r.Unit, r.Certificate = g.Unit, f.certificate
	if g.PerPerson > 0 {
		r.UnitsPerPerson, r.Person = g.PerPerson, &g.Person
	}
	r.Cloaked = &Cloaked{MessagesPerDevice: s.Messages, MessageBytes: s.Size}
	if z, ok := f.recipe.Randomizer.(recipe.Cloak); ok {
		r.Honest = z.Honest
	}
	through := fmt.Sprintf("RAND Health Insurance Experiment: %s devices, each of which sent %d messages through two hops; nobody knows whose any of them is",
		chart.Count(float64(c.o.Population)), s.Messages)
	if c.o.Recipe == CloakVisits {
		r.words = chartWords{title: "Visits to a doctor in a year", x: "visits", y: "devices", subtitle: through}
		return
	}
	r.words = chartWords{title: fmt.Sprintf("Visits to a doctor in a year, %d at most: their sum", mostVisits), x: "", y: "visits of all",
		subtitle: through}
}

// answer has every device contribute to the first round that leaves time enough.
func (c *cloaked) answer(ctx context.Context, f *frame) error {
	if err := c.device.Refresh(ctx); err != nil {
		return err
	}
	s := c.device.Shuffle()
	begin := time.Now()
	err := crowd(ctx, cloakSample, f.o.Workers, func(_ context.Context, i int) error {
		_, err := c.device.Prepare(c.value(0), begin)
		return err
	})
	if err != nil {
		return err
	}
	took := time.Since(begin) * time.Duration(wayOfAll*len(c.values)) / cloakSample
	enough, round := time.Now().Add(took+cloakSettles), s.Round(time.Now())
	for last := s.Round(begin) + cloakAhead; round < last && s.Flush(round).Before(enough); {
		round++
	}
	c.at = s.Begin(round)
	var done, bytes atomic.Uint64
	stop := f.tick("upload", uint64(len(c.values)), &done)
	defer stop()
	computing := make(chan struct{}, f.o.Workers) // the rest wait for the gateway
	err = crowd(ctx, len(c.values), max(f.o.Workers, cloakInFlight), func(ctx context.Context, i int) error {
		computing <- struct{}{}
		envelope, err := c.device.Prepare(c.value(c.values[i]), c.at)
		<-computing
		if err != nil {
			return err
		}
		if err := c.device.Send(ctx, envelope); err != nil {
			return err
		}
		bytes.Store(uint64(len(envelope)))
		done.Add(1)
		return nil
	})
	if late := time.Since(s.Flush(round)); err == nil && late > 0 {
		err = fmt.Errorf("the devices took %v longer than the round: give it a longer one with --precision", late.Truncate(time.Millisecond))
	}
	f.sent, f.acknowledged = done.Load(), done.Load()
	c.found.Sent, c.found.ContributionBytes = f.sent, int(bytes.Load())
	return err
}

// mixed waits until the round is over, and has gone through both hops to the analyzer.
func (c *cloaked) mixed(ctx context.Context, f *frame) error {
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
			p.Counts = append(p.Counts, Count{[]string{"hop 1", "hop 2", "analyzer"}[i], last.Contributions, f.sent})
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
func (c *cloaked) compare(ctx context.Context, f *frame) error {
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
	r.Estimate, r.Stderr, r.Interval95 = x.Estimate, x.Stderr, x.Interval95
	sums := "their sums, with the devices' noise in each"
	if c.o.Recipe == Cloak {
		r.Mean = &MeanCell{x.Estimate[0], float64(r.Truth[0]) / float64(len(c.values)), x.Stderr[0], x.Interval95[0]}
		r.Estimate, r.Stderr = []float64{float64(x.Raw[0])}, []float64{x.Stderr[0] * n}
		r.Interval95 = [][2]float64{{x.Interval95[0][0] * n, x.Interval95[0][1] * n}}
		sums = "their sum, with the devices' noise in it"
	}
	messages := chart.Count(n * float64(r.MessagesPerDevice))
	r.Saw = []Sight{
		{"each client", "its own answer, the recipe, and the guarantee that it checked before it answered"},
		{"relay", "who sent something, and when; nothing of what"},
		{"gateway", fmt.Sprintf("%s sealed contributions of %s bytes each, not from whom", chart.Count(n), chart.Count(float64(r.ContributionBytes)))},
		{"hop 1", fmt.Sprintf("which %d sealed messages are of one contribution; not from whom, nor anything inside", r.MessagesPerDevice)},
		{"hop 2", messages + " sealed messages, in no order; not which belong together"},
		{"analyzer", messages + " random numbers, or as many of several, in no order; " + sums},
		{"collector", fmt.Sprintf("no more than that result, and that there were %s contributions", chart.Count(n))},
	}
	return nil
}

func (c *cloaked) draw(f *frame) {
	c.found.Rejected = f.rejected
	c.found.Table = f.table(c.found.WriteCSV)
	c.found.Picture = f.write(PictureFile, c.found.Chart().WritePNG)
}

// writeCloak writes what only such a lab has, and nothing where it is another.
func (r *Report) writeCloak(w io.Writer, width int) {
	if r.Cloaked == nil {
		return
	}
	write := func(what string, estimate, truth, stderr float64, interval [2]float64) {
		fmt.Fprintf(w, "%-6s %.6g, and in truth %.6g; standard error %.3g, 95 %% interval %.6g to %.6g\n", what, estimate, truth, stderr, interval[0], interval[1])
	}
	if m := r.Mean; m != nil {
		write("sum", r.Estimate[0], float64(r.Truth[0]), r.Stderr[0], r.Interval95[0])
		write("mean", m.Estimate, m.Truth, m.Stderr, m.Interval95)
	}
	for _, line := range prose.Wrap(fmt.Sprintf("Each device sent %d messages of %d bytes, sealed %s bytes in all; the guarantee counts on %s of them to follow the recipe.",
		r.MessagesPerDevice, r.MessageBytes, chart.Count(float64(r.ContributionBytes)), chart.Count(float64(r.Honest))), min(max(width, 60), 100)) {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w)
}

// checkCloak says what must not be in such a report.
func (r *Report) checkCloak() error {
	if m := r.Mean; m != nil {
		if off := math.Abs(m.Estimate-m.Truth) / m.Stderr; !(off <= maxWorstError) {
			return fmt.Errorf("lab: the mean is %.1f standard errors off; more than %d is no noise", off, maxWorstError)
		}
	}
	if r.MessagesPerDevice < 1 {
		return errors.New("lab: devices sent nothing")
	}
	return nil
}
