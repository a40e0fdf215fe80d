package collector

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/projection"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/vdaf"
)

// A Result is one batch: what was asked, with its error.
type Result struct {
	// RecipeID and TaskID say what was asked; on a path that is not DAP's the second is the
	// first, as it stands in its URLs.
	RecipeID recipe.ID
	TaskID   dap.TaskID
	// ReportCount is the number of reports in the batch; public and exact.
	ReportCount uint64
	// Interval is the tight span of the reports' times, in units of the recipe's time
	// precision. From and To are the ends of the rounds that it touches.
	Interval dap.Interval
	From, To time.Time
	// View is the name of the view that the batch is of; empty where the recipe has none. From
	// and To are then the ends of its span.
	View string
	// Raw is the sum that the servers released, noise included: one integer for each
	// aggregate of the query; or what an analyzer made of the answers of a round.
	Raw []int64
	// Estimate is the answer to the query, of the same length as Raw: unbiased, so it may
	// be below zero. It is about the reports of the batch, or, with Sampled, about all
	// devices that decided whether to report. For a vector it is the sum in units of the
	// entries; see [Result.Mean]. Where the recipe projects vectors, Raw is the projected
	// sum, and Estimate, of the length of the vectors, is what it estimates.
	Estimate []float64
	// Stderr is the standard deviation of each Estimate: of what both servers' noise adds
	// together, from the recipe, and with Sampled of coins and randomizers too; with a
	// projection also of what that loses, from the length of the sum.
	Stderr []float64
	// Interval95 holds the exact result with probability 95 % or more, for each Estimate
	// by itself.
	Interval95 [][2]float64
	// SamplingStderr estimates how far the batch is from the population that it came
	// from, as a simple random sample would be, in units of Estimate. Nil where the query
	// does not show the spread of the answers (sums and means), and with Sampled, where
	// Stderr has it.
	SamplingStderr []float64
	// Sampled is what was undone to get there; nil where devices neither toss coins nor
	// randomize.
	Sampled *Sampled
	// Distribution has the deciles of numbers, where the query asks for them; else nil.
	// It is about the reports of the batch. Estimate is then of nodes, as released, whose
	// counts Distribution makes consistent.
	Distribution *recipe.Distribution
	// Groups has the sum, size and mean of each group, where the query asks for them; else
	// nil. Estimate is then of the numbers that were released, two of each group, or where
	// devices blur number and group themselves, of the sum of each group.
	Groups *recipe.GroupTable
	// Table is what texts were asked for; nil where they were not. It is about the reports
	// of the batch; Estimate is then of what devices mark, as released.
	Table *recipe.Table
	// Labels are the names of a histogram's buckets, or of groups; nil where the recipe
	// gives none.
	Labels []string
	// LeftOut are the independent batches of a round that its result leaves out, and why.
	// ReportCount and Raw are of the others, as are Distribution, Groups and Table; Estimate
	// is about the contributions of all, and its intervals hold what these few might have
	// changed. Nil where none are left out.
	LeftOut []recipe.Part
	// Guarantee is what the people in the batch have.
	Guarantee *recipe.Guarantee

	joined *recipe.Joined // nil of two servers
}

// open opens both aggregate shares of a job's answer, adds them up and works out the
// estimate.
//
// Step 13 of one report: from two sealed sums of a batch, to an estimate with its error.
func (c *Collector) open(q dap.Query, request, response []byte) (*Result, error) {
	resp, err := dap.ReadCollectionJobResp(response)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	if err := c.checkBatch(q, &resp); err != nil {
		return nil, err
	}
	shares := make([]*vdaf.AggShare, 2)
	aad := dap.AggregateShareAAD(c.taskID, c.task.Bytes(), request)
	for i, from := range []struct {
		role   dap.Role
		sealed *dap.HpkeCiphertext
	}{{dap.RoleLeader, &resp.Leader}, {dap.RoleHelper, &resp.Helper}} {
		if id := c.o.Key.ID(); from.sealed.ConfigID != id {
			return nil, fmt.Errorf("%w: the %s sealed its share to key %d, the collector has key %d", ErrSealed, from.role,
				from.sealed.ConfigID, id)
		}
		share, err := c.o.Key.Open(from.sealed.Enc, c.task.Version.AggregateShareInfo(from.role), aad, from.sealed.Payload)
		if err != nil {
			return nil, fmt.Errorf("%w: the %s's share does not open with key %d: %w", ErrSealed, from.role, from.sealed.ConfigID, err)
		}
		if shares[i], err = c.vdaf.ReadAggShare(share); err != nil {
			return nil, fmt.Errorf("%w: the %s's share: %w", ErrAnswer, from.role, err)
		}
	}
	raw, err := c.vdaf.Unshard(shares)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return c.result(q, &resp, raw)
}

// checkBatch refuses an answer that the recipe or the query does not allow.
func (c *Collector) checkBatch(q dap.Query, resp *dap.CollectionJobResp) error {
	switch {
	case resp.ReportCount < c.task.MinBatchSize:
		return fmt.Errorf("%w: a batch of %d reports, at least %d are needed", ErrAnswer, resp.ReportCount, c.task.MinBatchSize)
	case resp.ReportCount > math.MaxInt64:
		return fmt.Errorf("%w: a batch of %d reports", ErrAnswer, resp.ReportCount)
	case !resp.Interval.Valid():
		return fmt.Errorf("%w: the batch's interval is empty or without end", ErrAnswer)
	case q.Mode == dap.TimeInterval && !q.Interval.Covers(resp.Interval):
		return fmt.Errorf("%w: the batch's interval is not within the one asked for", ErrAnswer)
	}
	if most, ok := c.recipe.MostReports(); ok && resp.ReportCount > most {
		return fmt.Errorf("%w: a batch of %d reports, but sums have room for %d: they may have wrapped around", ErrAnswer,
			resp.ReportCount, most)
	}
	if window, bounded := c.task.Interval(); bounded && !window.Covers(resp.Interval) {
		return fmt.Errorf("%w: the batch's interval is not within the recipe's window", ErrAnswer)
	}
	return nil
}

func (c *Collector) result(q dap.Query, resp *dap.CollectionJobResp, raw []int64) (*Result, error) {
	end, _ := resp.Interval.End()
	first, last := c.recipe.ReportTime(resp.Interval.Start), c.recipe.ReportTime(end-1)+dap.Time(c.recipe.BatchUnits())
	view, viewed := c.recipe.ViewOf(q.Interval)
	if viewed {
		first = q.Interval.Start
		last, _ = q.Interval.End()
	}
	from, err1 := c.recipe.TimePrecision.Begin(first)
	to, err2 := c.recipe.TimePrecision.Begin(last)
	if err1 != nil || err2 != nil {
		return nil, fmt.Errorf("%w: the batch's interval is beyond the calendar", ErrAnswer)
	}
	r := &Result{
		RecipeID: c.id, TaskID: c.taskID, ReportCount: resp.ReportCount, Interval: resp.Interval, From: from, To: to, Raw: raw, View: view.Name,
	}
	return r, r.fill(c.checked)
}

// Of is the recipe as estimates from the batch need it: with the noise of its view.
func (r *Result) Of(of *recipe.Recipe) *recipe.Recipe {
	if g, err := of.View(r.View); err == nil {
		return of.InView(g)
	}
	return of
}

// fill works out what the sums of a batch say.
func (r *Result) fill(checked *recipe.Checked) error {
	of := r.Of(checked.Recipe())
	r.Labels, r.Guarantee = of.Labels, checked.Guarantee()
	if _, ok := of.Randomizer.(recipe.GroupRandomizer); ok {
		return r.bySums(of)
	}
	if decides(of) {
		if err := r.estimate(of); err != nil {
			return err
		}
		if !of.Sampled() {
			if err := r.tabulate(of); err != nil {
				return err
			}
		}
		return r.lengthen(of)
	}
	r.Estimate = make([]float64, len(r.Raw))
	r.Stderr = make([]float64, len(r.Raw))
	r.Interval95 = make([][2]float64, len(r.Raw))
	n := float64(r.ReportCount)
	unit := of.Query.Unit() // of an estimate, in those of the sum
	if of.Query.Averages() {
		unit /= n
	}
	noise := of.Noise.Spread()
	reach := math.Ceil(noise.Reach95)
	for i, x := range r.Raw {
		v := float64(x)
		r.Estimate[i] = v * unit
		r.Stderr[i] = noise.Deviation * unit
		r.Interval95[i] = [2]float64{(v - reach) * unit, (v + reach) * unit}
	}
	r.SamplingStderr = samplingStderr(of.Query, r.Estimate, n)
	if err := r.tabulate(of); err != nil {
		return err
	}
	return r.lengthen(of)
}

// tabulate makes of the sums what the query asks for besides.
func (r *Result) tabulate(of *recipe.Recipe) (err error) {
	if r.Distribution, err = of.Distribution(r.Raw, r.ReportCount); err != nil {
		return fmt.Errorf("collector: %w", err)
	}
	if r.Groups, err = of.GroupTable(r.Raw, r.ReportCount); err != nil {
		return fmt.Errorf("collector: %w", err)
	}
	if r.Table, err = of.Table(r.Raw, r.ReportCount, nil); err != nil {
		return fmt.Errorf("collector: %w", err)
	}
	return nil
}

// bySums fills in what sums of answers say whose devices blur number and group.
func (r *Result) bySums(of *recipe.Recipe) (err error) {
	if r.Groups, err = of.GroupTable(r.Raw, r.ReportCount); err != nil {
		return fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	for i := range r.Groups.Groups {
		c := &r.Groups.Groups[i].Sum
		r.Estimate, r.Stderr, r.Interval95 = append(r.Estimate, c.Estimate), append(r.Stderr, c.Stderr), append(r.Interval95, c.Interval95)
	}
	return nil
}

// lengthen turns estimates of projected sums, which all have one standard error, into
// estimates of the sums. Where the recipe projects nothing it changes nothing.
func (r *Result) lengthen(of *recipe.Recipe) error {
	if of.Projection == nil {
		return nil
	}
	q, ok := of.Vector()
	if !ok {
		return errors.New("collector: internal error: a projection of no vector")
	}
	p, err := of.Projection.Map(q)
	if err != nil {
		return fmt.Errorf("collector: %w", err)
	}
	// The squared length of the projected sum is on average that of the sum, and the
	// noise's on top.
	length2, variance := 0.0, r.Stderr[0]*r.Stderr[0]
	for _, y := range r.Estimate {
		length2 += y*y - variance
	}
	// Not less what each number itself adds: that is known too badly to be taken off.
	deviation := math.Sqrt(variance + max(0, length2)*projection.Loss(p.From(), p.To()))
	r.Estimate = p.Transpose(r.Estimate)
	r.Stderr, r.Interval95 = make([]float64, p.From()), make([][2]float64, p.From())
	for i, x := range r.Estimate {
		r.Stderr[i] = deviation
		r.Interval95[i] = [2]float64{x - recipe.Normal95*deviation, x + recipe.Normal95*deviation}
	}
	return nil
}

// Mean is the estimate over the number of reports, with its standard error: for a vector
// the mean of the batch's vectors. With Sampled it is over the estimated number of
// devices, and the standard error is an upper bound.
func (r *Result) Mean() (mean, stderr []float64) {
	n := float64(r.ReportCount)
	if r.Sampled != nil {
		n = r.Sampled.Devices
	}
	mean, stderr = make([]float64, len(r.Estimate)), make([]float64, len(r.Stderr))
	for i := range mean {
		mean[i], stderr[i] = r.Estimate[i]/n, r.Stderr[i]/n
	}
	return mean, stderr
}

// samplingStderr is sqrt(n p (1-p)) for queries that count who has a property, p the
// share that was found.
func samplingStderr(q recipe.Query, estimate []float64, n float64) []float64 {
	if !q.Counts() {
		return nil
	}
	out := make([]float64, len(estimate))
	for i, v := range estimate {
		p := min(max(v/n, 0), 1)
		out[i] = math.Sqrt(n * p * (1 - p))
	}
	return out
}

// MarshalJSON writes the result as one object with stable keys.
func (r *Result) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		RecipeID       recipe.ID            `json:"recipe_id"`
		TaskID         dap.TaskID           `json:"task_id"`
		ReportCount    uint64               `json:"report_count"`
		Interval       [2]uint64            `json:"interval_units"`
		From           time.Time            `json:"from"`
		To             time.Time            `json:"to"`
		View           string               `json:"view,omitempty"`
		Labels         []string             `json:"buckets,omitempty"`
		Raw            []int64              `json:"raw"`
		Estimate       []float64            `json:"estimate"`
		Stderr         []float64            `json:"stderr"`
		Interval95     [][2]float64         `json:"interval95"`
		SamplingStderr []float64            `json:"sampling_stderr"`
		Sampled        *Sampled             `json:"sampled"`
		Distribution   *recipe.Distribution `json:"distribution,omitempty"`
		Groups         *recipe.GroupTable   `json:"groups,omitempty"`
		Table          *recipe.Table        `json:"table,omitempty"`
		LeftOut        []recipe.Part        `json:"left_out,omitempty"`
		Guarantee      *recipe.Guarantee    `json:"guarantee"`
	}{
		r.RecipeID, r.TaskID, r.ReportCount,
		[2]uint64{uint64(r.Interval.Start), uint64(r.Interval.Start) + uint64(r.Interval.Duration)}, r.From, r.To, r.View,
		r.Labels, r.Raw, r.Estimate, r.Stderr, r.Interval95, r.SamplingStderr, r.Sampled, r.Distribution, r.Groups, r.Table, r.LeftOut, r.Guarantee,
	})
}
