package lab

import (
	"context"
	"crypto/rand"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/prose"
	"github.com/starling-agg/starling/lab/internal/randhie"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// Vectors is the name of the recipe of [RunVectors].
const Vectors = "vector"

// VectorOptions say how a lab of vectors runs, in which no picture is drawn. The zero
// value is the whole demonstration.
type VectorOptions struct {
	Frame
	// Shape is by default of 2,000 devices, and of 10,000 numbers.
	Shape
	// FracBits is the precision in binary places; default 12.
	FracBits int
	// Proof is how the norm is proved; the smallest field of package pine with room if
	// zero.
	Proof recipe.VectorProof
	// Half has each server draw half of the noise: both must be honest for the guarantee.
	Half bool
	// Projection is how many numbers of a random projection devices send instead of their
	// vectors, 64 or more and less than Dimension; 0 sends them whole.
	Projection int
	// Device has each device add its own noise before it sends, and the servers none.
	Device bool
	// Malicious is how many attackers send reports too, 0 to 1,000: each the worst that
	// its proof lets through, and one that is over the proved bound by a hundredth. For
	// proofs of package pine.
	Malicious int
}

const (
	minVectors    = 100
	rowsPerDevice = 10
	maxVectors    = randhie.Rows / rowsPerDevice
	maxVectorDim  = 100_000
	minProjection = 64 // below it errors stray far from their forecast
	maxPushes     = 1000
)

// WithDefaults fills in what is not said. Epsilon is 8: the noise of ten thousand numbers
// is that of one, and with two thousand devices epsilon 1 would leave little of the mean.
func (o VectorOptions) WithDefaults() VectorOptions {
	o.Frame, o.Shape = o.Frame.withDefaults("8"), o.Shape.withDefaults(2000, 10_000)
	if o.FracBits == 0 {
		o.FracBits = 12
		if b, ok := benchFracBits[o.Proof]; ok && (o.Proof == recipe.L2Fixed16 || o.Proof == recipe.L2Fixed32) {
			o.FracBits = b
		}
	}
	return o
}

// Validate says what is wrong, once defaults are filled in.
func (o VectorOptions) Validate() error {
	o = o.WithDefaults()
	if err := o.Shape.validate(); err != nil {
		return err
	}
	switch {
	case o.Projection != 0 && (o.Projection < minProjection || o.Projection >= o.Dimension):
		return fmt.Errorf("lab: projection to %d numbers; want %d or more, and less than the dimension, %d", o.Projection, minProjection, o.Dimension)
	case o.FracBits < 1 || o.FracBits > 31:
		return fmt.Errorf("lab: %d binary places; want 1 to 31", o.FracBits)
	case o.Device && o.Half:
		return errors.New("lab: noise is the devices' or the servers'")
	case o.Malicious > 0 && o.Projection > 0:
		return errors.New("lab: attackers push an entry of what is sent, which a projection spreads; leave one of the two out")
	case o.Malicious < 0 || o.Malicious > maxPushes:
		return fmt.Errorf("lab: %d attackers; want 0 to %d", o.Malicious, maxPushes)
	case (o.Device || o.Malicious > 0) && (o.Proof == recipe.L2Fixed16 || o.Proof == recipe.L2Fixed32):
		return fmt.Errorf("lab: noise of devices and attackers go with proofs of package pine, not %v", o.Proof)
	}
	return o.Frame.validate()
}

// A VectorReport is what a lab of vectors found. Its JSON keys are only added to. Errors
// are Euclidean distances of means, in units of the entries.
type VectorReport struct {
	Outcome
	Devices   int    `json:"devices"`
	Dimension int    `json:"dimension"`
	Proof     string `json:"proof"`
	FracBits  int    `json:"frac_bits"`
	// UploadBytes is the mean size of a report, and Ratio that over 4 bytes an entry.
	UploadBytes float64 `json:"upload_bytes"`
	Ratio       float64 `json:"upload_over_plaintext"`

	// MeanNorm is the length of the exact mean, Error how far the released mean is from
	// it, Forecast how far the servers' noise and the projection are expected to move it,
	// and WorstError the largest error of one entry in its standard errors.
	MeanNorm   float64 `json:"mean_norm"`
	Error      float64 `json:"error"`
	Forecast   float64 `json:"error_forecast"`
	WorstError float64 `json:"worst_entry_in_standard_errors"`
	// Stderr is the standard error of each entry of the mean.
	Stderr float64 `json:"stderr"`
	// Projection is how many numbers were sent for a vector, 0 if it was sent whole. Then
	// NoiseForecast is the part of Forecast that the noise has, and ProjectionForecast
	// the projection's; ProjectionError is what projecting the exact mean there and back
	// loses, and SentError how far the mean of what was sent is from the exact mean's
	// projection, which only noise explains.
	Projection         int     `json:"projection,omitempty"`
	NoiseForecast      float64 `json:"noise_forecast,omitempty"`
	ProjectionForecast float64 `json:"projection_forecast,omitempty"`
	ProjectionError    float64 `json:"projection_error,omitempty"`
	SentError          float64 `json:"sent_error,omitempty"`
	// Influence is the most that one device can move the mean: the proved bound over the
	// number of reports.
	Influence float64 `json:"influence_of_one_device"`
	// Attackers sent a report each that was accepted and one that was rejected. Moved is
	// how far that took the mean in the direction they chose, up to the noise of one
	// entry, and MovedAtMost their number times Influence.
	Attackers   int     `json:"attackers,omitempty"`
	Moved       float64 `json:"moved_by_attackers,omitempty"`
	MovedAtMost float64 `json:"moved_at_most,omitempty"`
	// Proved is what devices with noise of their own prove; nil where the servers add the
	// noise.
	Proved *recipe.ProvedBound `json:"proved_bound,omitempty"`
	// Alone is epsilon of one report of a device with noise of its own, for who reads it;
	// HalfHonest that of the sum if half of the devices give their noise away.
	Alone      *float64 `json:"epsilon_of_one_report,omitempty"`
	HalfHonest *float64 `json:"epsilon_if_half_of_the_devices_are_dishonest,omitempty"`

	// BothHonest is epsilon where both servers are honest, and OneHonest where one is.
	BothHonest *float64 `json:"epsilon_if_both_servers_are_honest,omitempty"`
	OneHonest  *float64 `json:"epsilon_if_one_server_is_honest,omitempty"`

	mean, truth []float64
	honest      float64 // sum of the first entry of the honest vectors
}

// Check says what must not be in a report: a lost or a spurious report, or an error that
// no noise explains.
func (r *VectorReport) Check() error {
	// The square of the error over that of an entry is chi-square with as many degrees d
	// as entries: beyond 2 sqrt(18 d) + 36 above d, or 2 sqrt(18 d) below, once in 6*10^7
	// (Laurent and Massart 2000, lemma 1). Rounding adds about 0.3 units an entry over
	// the root of the devices, which is well below the noise.
	d, off, each := float64(r.Dimension), r.Error, r.Stderr
	if r.Projection > 0 {
		// The numbers sent have noise alone; noise in the result is as much in each
		// entry, but not independent. The rest is within a factor of two of the forecast,
		// as the squared length of half the transformed mean is.
		d, off, each = float64(r.Projection), r.SentError, r.NoiseForecast/math.Sqrt(d)
		if !(r.Error > r.Forecast/2 && r.Error < r.Forecast*2) || !(r.ProjectionError > r.ProjectionForecast/2 && r.ProjectionError < r.ProjectionForecast*2) {
			return fmt.Errorf("lab: the mean is off by %g and the projection by %g, and %g and %g were expected", r.Error, r.ProjectionError, r.Forecast,
				r.ProjectionForecast)
		}
	}
	x := off * off / (each * each)
	switch {
	case r.Accepted != uint64(r.Devices+r.Attackers) || r.Sent != r.Accepted+uint64(r.Attackers) || r.rejected() != uint64(r.Attackers):
		return fmt.Errorf("lab: %d of %d reports were accepted, and %d attackers were there: %v", r.Accepted, r.Sent, r.Attackers, r.Rejected)
	case !(math.Abs(r.Moved) <= r.MovedAtMost+6*r.Stderr):
		return fmt.Errorf("lab: %d attackers moved the mean by %g, and they can by %g", r.Attackers, r.Moved, r.MovedAtMost)
	case !(x-d <= 2*math.Sqrt(18*d)+36+0.01*d) || d-x > 2*math.Sqrt(18*d):
		return fmt.Errorf("lab: the mean is off by %g, and %g was expected of the noise", off, each*math.Sqrt(d))
	}
	return nil
}

// usualWorst is the median of the largest of n errors, in standard errors, where each is
// normal: what half of all labs stay below.
func usualWorst(n int) float64 {
	return math.Sqrt2 * math.Erfinv(math.Exp2(-1/float64(n)))
}

// WriteText writes the report for people, prose in it at most width columns wide.
func (r *VectorReport) WriteText(w io.Writer, width int) error {
	whose := "servers'"
	if r.Proved != nil {
		whose = "devices'"
	}
	var others []string
	other := func(epsilon *float64, who string) {
		if epsilon != nil {
			others = append(others, fmt.Sprintf("%s %s", recipe.Above(*epsilon), who))
		}
	}
	other(r.BothHonest, "if both servers are honest")
	other(r.OneHonest, "if only one server is honest")
	other(r.HalfHonest, "if half of the devices give their noise away")
	other(r.Alone, "for who reads one report")
	guarantee := r.Guarantee
	if len(others) > 0 {
		guarantee += " Epsilon is " + strings.Join(others, "; ") + "."
	}
	var points strings.Builder
	point := func(label, format string, args ...any) {
		points.WriteString(wrappedPoint(label, width, format, args...))
	}
	entries := prose.Count(float64(r.Dimension))
	point("Length of the exact mean", "%.4f", r.MeanNorm)
	if r.Projection > 0 {
		point("Error of the released mean", "%.4f, %.4f was expected: %.4f for the noise, %.4f for the projection", r.Error, r.Forecast, r.NoiseForecast,
			r.ProjectionForecast)
		point("Projection alone", "to %s numbers and back moves the exact mean by %.4f", prose.Count(float64(r.Projection)), r.ProjectionError)
	} else {
		point("Error of the released mean", "%.4f, of which the %s noise was expected to make %.4f", r.Error, whose, r.Forecast)
	}
	point("Standard error of an entry", "%.2g; the worst of %s is %.1f standard errors off, where %.1f is usual", r.Stderr, entries, r.WorstError,
		usualWorst(r.Dimension))
	point("One device moves the mean by", "at most %.2g, which its proof (%s) shows", r.Influence, r.Proof)
	if r.Proved != nil {
		point("Proved of vector and noise", "%.4g times the length of a vector; drawn again once in %.3g, for %.2g of delta", r.Proved.Ratio, 1/r.Proved.Redraw,
			r.Proved.Delta)
	}
	if r.Attackers > 0 {
		point(fmt.Sprintf("%d attackers moved it by", r.Attackers), "%.4f: at most %.4f by what they prove, and noise makes the rest, %+.4f; their %d reports "+
			"over the bound were rejected", r.Moved, r.MovedAtMost, r.Moved-r.MovedAtMost, r.rejected())
	}
	_, err := fmt.Fprintf(w, "%s\n%s\n%s\n\n%s\n%s",
		wrapped(fmt.Sprintf("The mean of %s vectors of %s numbers, which no server ever saw", prose.Count(float64(r.Devices)), entries), width), &points,
		wrapped(fmt.Sprintf("Reports: %s accepted of %s; %s bytes each, %.2f times 4 bytes an entry", prose.Count(float64(r.Accepted)), prose.Count(float64(r.Sent)),
			prose.Count(r.UploadBytes), r.Ratio), width),
		wrapped(guarantee, width), ending(r.SecondsByStep, r.SecondsTotal, r.Table, width))
	return err
}

// features makes the vectors: random Fourier features (Rahimi and Recht 2007) of a
// person's rows of the RAND table, whose mean over people is the mean embedding of their
// distribution, a common input of learning.
//
// Each of the ten columns is shifted and scaled to mean 0 and variance 1 over the table.
// Entries 2j and 2j+1 of a device's vector are cos(w.z) and sin(w.z), w the j-th of
// Dimension/2 frequencies, averaged over the device's rows z and times sqrt(2/Dimension),
// so that no vector is longer than 1. Frequencies are normal with variance 1/10, each
// from one hash by the method of Box and Muller. Device i of n has rows i, i+n, ...,
// i+9n.
type features struct {
	rows  [][randhie.Columns]float64
	w     [][randhie.Columns]float64
	n     int
	scale float64
}

func newFeatures(devices, dimension int) (*features, error) {
	rows, err := randhie.Table()
	if err != nil {
		return nil, err
	}
	for c := range randhie.Columns {
		var sum, squares float64
		for i := range rows {
			sum += rows[i][c]
			squares += rows[i][c] * rows[i][c]
		}
		mean := sum / float64(len(rows))
		deviation := math.Sqrt(squares/float64(len(rows)) - mean*mean)
		for i := range rows {
			rows[i][c] = (rows[i][c] - mean) / deviation
		}
	}
	f := &features{rows: rows, w: make([][randhie.Columns]float64, dimension/2), n: devices}
	f.scale = math.Sqrt(2/float64(dimension)) / rowsPerDevice
	for j := range f.w {
		for c := range f.w[j] {
			f.w[j][c] = normal(draw("frequencies", j, c)) / math.Sqrt(randhie.Columns)
		}
	}
	return f, nil
}

// normal turns 64 bits into a normal number, of which a half is the length and the other
// the angle.
func normal(bits uint64) float64 {
	u, v := (float64(bits>>32)+0.5)/(1<<32), float64(uint32(bits))/(1<<32)
	return math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*v)
}

// of is the vector of device i, 0 <= i < n.
func (f *features) of(i int) []float64 {
	x := make([]float64, 2*len(f.w))
	for k := range rowsPerDevice {
		z := &f.rows[i+k*f.n]
		for j := range f.w {
			angle := 0.0
			for c, w := range f.w[j] {
				angle += w * z[c]
			}
			sin, cos := math.Sincos(angle)
			x[2*j] += cos * f.scale
			x[2*j+1] += sin * f.scale
		}
	}
	return x
}

// RunVectors averages vectors of real numbers through the same services as [Run]: no
// server sees a vector, each vector's norm is proved, and the mean is shown beside the
// exact one. It ends early with ctx.
func RunVectors(ctx context.Context, o VectorOptions) (*VectorReport, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.WithDefaults()
	return play(ctx, o.Frame, &vectors{o, &VectorReport{Devices: o.Devices, Dimension: o.Dimension}})
}

// vectors is the scenario of one mean.
type vectors struct {
	o     VectorOptions
	found *VectorReport
}

// projected is how many numbers devices send of vectors of d, and by which projection:
// all of them by none where to is 0.
func projected(d, to int) (sent int, p *recipe.Projection) {
	if to == 0 {
		return d, nil
	}
	p = &recipe.Projection{Entries: uint32(d)}
	rand.Read(p.Seed[:])
	return to, p
}

// pose implements scenario.
func (v *vectors) pose(f *frame, a *deploy.Addresses) (*recipe.Recipe, error) {
	o := &v.o
	window, err := f.window(1)
	if err != nil {
		return nil, err
	}
	sent, projection := projected(o.Dimension, o.Projection)
	query, err := recipe.NewVector(uint32(sent), 1, uint8(o.FracBits), o.Proof)
	if err != nil {
		return nil, err
	}
	options := account.Options{
		Name:        "What use of health care looks like",
		Description: "Random Fourier features of your years in the study, of which only the mean over all people is released.",
		Population: &recipe.Population{
			Statement: "the participants of the RAND Health Insurance Experiment, 1974 to 1982, ten rows each",
			Expected:  uint64(o.Devices),
		},
		Query: query, Projection: projection,
		Leader: a.LeaderURL(), Helper: a.HelperURL(),
		BatchMode:     dap.TimeInterval,
		MinBatch:      uint64(o.Devices / 2),
		TimePrecision: dap.TimePrecision(f.o.Precision / time.Second),
		Window:        window,
		Kind:          account.GaussianNoise, Epsilon: f.o.Epsilon, Delta: f.o.Delta,
	}
	if o.Device {
		if options.Randomizer, err = recipe.ParseRandomizer("gaussian"); err != nil {
			return nil, err
		}
	}
	options.Population.Expected += uint64(o.Malicious) // the field has room for them
	if o.Half {
		options.Share, options.HonestServers = recipe.DrawsHalf, 2
	}
	return account.New(options)
}

// answer implements scenario. Devices make their vectors one at a time; only the sums stay.
func (v *vectors) answer(ctx context.Context, f *frame) error {
	found := v.found
	if err := f.client.Refresh(ctx); err != nil {
		return err
	}
	x, err := newFeatures(found.Devices, found.Dimension)
	if err != nil {
		return err
	}
	g := &gauge{total: uint64(found.Devices)}
	stop := f.watch(ctx, g)
	defer stop()
	var mu sync.Mutex // guards the rest
	truth, size := make([]float64, found.Dimension), 0
	err = crowd(ctx, found.Devices, f.o.Workers, func(ctx context.Context, i int) error {
		vector := x.of(i)
		bytes, err := uploadVector(ctx, f, vector)
		if err != nil {
			return err
		}
		g.done.Add(1)
		mu.Lock()
		defer mu.Unlock()
		size += bytes
		for j, x := range vector {
			truth[j] += x
		}
		return nil
	})
	if err != nil {
		return err
	}
	f.sent, f.acknowledged = g.total, g.total
	found.UploadBytes, found.honest = float64(size)/float64(found.Devices), truth[0]
	if v.o.Malicious > 0 {
		pushed, err := v.attack(ctx, f)
		if err != nil {
			return err
		}
		truth[0] += pushed
	}
	found.Sent, found.Attackers = f.sent, v.o.Malicious
	for j := range truth {
		truth[j] /= float64(found.Devices + found.Attackers)
	}
	found.truth = truth
	return nil
}

// uploadVector sends one device's report and returns its size.
func uploadVector(ctx context.Context, f *frame, x []float64) (int, error) {
	report, err := f.client.Prepare(client.Reals(x), f.asked)
	if err != nil {
		return 0, err
	}
	refused, err := f.client.Upload(ctx, []dap.Report{report})
	if err != nil {
		return 0, err
	}
	if len(refused) > 0 {
		return 0, fmt.Errorf("an honest report was refused because of %v", refused[0].Error)
	}
	return report.Size(), nil
}

// compare implements scenario: it asks for the batch and compares its mean with the exact
// one.
func (v *vectors) compare(ctx context.Context, f *frame) error {
	config, err := f.collector()
	if err != nil {
		return err
	}
	result, err := f.collect(ctx, config, f.asked)
	if err != nil {
		return err
	}
	out := v.found
	mean, stderr := result.Mean()
	out.Accepted, out.mean, out.Stderr = result.ReportCount, mean, stderr[0]
	if out.Attackers > 0 {
		out.Moved = mean[0] - out.honest/float64(out.Accepted)
	}
	for j, x := range mean {
		d := x - out.truth[j]
		out.Error += d * d
		out.MeanNorm += out.truth[j] * out.truth[j]
		out.WorstError = max(out.WorstError, math.Abs(d)/stderr[j])
	}
	out.Error, out.MeanNorm = math.Sqrt(out.Error), math.Sqrt(out.MeanNorm)
	forecast, _ := f.recipe.Forecast(result.ReportCount)
	out.Forecast = forecast.Of(out.MeanNorm)
	if f.recipe.Projection != nil {
		return out.project(f.recipe, result, forecast)
	}
	return nil
}

// project fills in what the projection did.
func (r *VectorReport) project(rec *recipe.Recipe, result *collector.Result, forecast recipe.VectorForecast) error {
	q, _ := rec.Vector()
	p, err := rec.Projection.Map(q)
	if err != nil {
		return err
	}
	r.Projection, r.NoiseForecast, r.ProjectionForecast = p.To(), forecast.Noise, forecast.Lost*r.MeanNorm
	sent := p.Apply(r.truth)
	for i, y := range sent {
		r.SentError = math.Hypot(r.SentError, q.Real(result.Raw[i])/float64(result.ReportCount)-y)
	}
	for j, x := range p.Transpose(sent) {
		r.ProjectionError = math.Hypot(r.ProjectionError, x-r.truth[j])
	}
	return nil
}

// draw implements scenario; there is no picture.
func (v *vectors) draw(f *frame) { v.found.Table = f.table(v.found.writeCSV) }

// report implements scenario: it fills in what is known from the recipe and from the run.
func (v *vectors) report(f *frame) *VectorReport {
	out := v.found
	q, _ := f.recipe.Vector()
	g := f.guarantee
	out.Proof, out.FracBits = q.Proof.String(), int(q.FracBits)
	out.Influence = q.Norm() / float64(out.Accepted)
	out.MovedAtMost = float64(out.Attackers) * out.Influence
	if b, ok := account.ProvedBound(f.recipe); ok {
		out.Proved = &b
		if f, ok := g.Fallback(recipe.ServersCollude); ok && f.Loss.Finite() {
			out.Alone = &f.Loss.Epsilon
		}
		if f, ok := g.Fallback(recipe.HalfAreDishonest); ok && f.Loss.Finite() {
			out.HalfHonest = &f.Loss.Epsilon
		}
	}
	out.Ratio = out.UploadBytes / (4 * float64(out.Dimension))
	words := fmt.Sprintf("%s, for replacing any one vector by any other", g.Unconditional)
	if len(g.Conditions) > 0 {
		words += fmt.Sprintf(", even where it is known who sent what; %s, holds if %s", g.Loss, strings.Join(g.Conditions, ", and "))
	}
	f.promised(&out.Outcome, fmt.Sprintf("Guarantee: %s; computed from the recipe. %s Noise: %s.", words, sure(g.Unconditional.Epsilon, g.Unit), v.noiseWords(f.recipe)))
	if both, ok := account.BothHonest(f.recipe); ok {
		out.BothHonest = &both.Epsilon
	}
	if f, ok := g.Fallback(recipe.OneServerFails); ok && f.Loss.Finite() {
		out.OneHonest = &f.Loss.Epsilon
	}
	f.ended(&out.Outcome)
	return out
}

// noiseWords says whose noise is in results.
func (v *vectors) noiseWords(r *recipe.Recipe) string {
	if v.o.Device {
		return r.Randomizer.String()
	}
	return r.Noise.String()
}

// writeCSV writes a line for each entry: its number, the released mean, its standard
// error and the exact mean.
func (r *VectorReport) writeCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	c.Write([]string{"entry", "mean", "stderr", "truth"})
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', 8, 64) }
	for j, x := range r.mean {
		c.Write([]string{strconv.Itoa(j), number(x), number(r.Stderr), number(r.truth[j])})
	}
	c.Flush()
	return c.Error()
}
