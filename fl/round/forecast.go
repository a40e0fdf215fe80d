package round

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/binomial"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// Asked is a training that is not published yet.
type Asked struct {
	Devices uint64 // that are there in a round. Required
	// Sample is with which probability each of them reports; 1 where zero.
	Sample recipe.Rational
	Rounds uint32 // Required
	// Epsilon and Delta of all rounds together. Required.
	Epsilon, Delta recipe.Decimal
	Dimension      int // of a device's vector. Required
	// MinBatch is what a round has to have; half of what is expected where zero.
	MinBatch uint64
	// Length of a round, its Grace, and how long servers take to release a sum: of seconds.
	Length, Grace, Collect time.Duration
}

// A Forecast is what is known of a training before anything of it is published.
type Forecast struct {
	Devices  uint64  `json:"devices"`
	Sample   float64 `json:"sample"`
	Rounds   uint32  `json:"rounds"`
	Epsilon  float64 `json:"epsilon"` // of all rounds, as computed
	Delta    float64 `json:"delta"`
	First    float64 `json:"epsilon_first_round"`
	Known    float64 `json:"epsilon_if_known_who_reports"` // the same where no coin is secret
	MinBatch uint64  `json:"min_batch"`
	// Sigma is the standard deviation of one server's noise in a number of the sum, in units
	// of the clipping norm: the noise multiplier of the claim. Both servers add so much.
	Sigma float64 `json:"sigma"`
	// Expected reports of a round that answer, and dummies beside them.
	Expected float64 `json:"expected_reports"`
	Dummies  float64 `json:"expected_dummies"`
	// Skipped is the probability, at most, with which a round has too few reports.
	Skipped float64 `json:"skipped_round_probability"`
	// Signal is the length of the mean update over that of both servers' noise in it, where
	// all updates are as long as the clipping norm and point one way: the most that it can
	// be.
	Signal float64 `json:"signal_to_noise"`
	// Seconds from one step to the next.
	Seconds float64 `json:"seconds_per_round"`
	Upload  int     `json:"upload_bytes"` // of a device in a round
}

// ErrAsked is wrapped by what is wrong with what is asked.
var ErrAsked = errors.New("round: no such training")

const forecastBits = 10 // binary places, as in fl/train

// Plan computes what a training would cost and give. Errors wrap [ErrAsked], or are
// account.New's.
func Plan(a Asked) (*Forecast, error) {
	if a.Sample == (recipe.Rational{}) {
		a.Sample = recipe.Rational{Num: 1, Den: 1}
	}
	q := a.Sample.Float()
	switch {
	case a.Devices < 2 || a.Rounds < 1 || a.Dimension < 1:
		return nil, fmt.Errorf("%w: want 2 devices, a round and a number at least", ErrAsked)
	case !(q > 0 && q <= 1):
		return nil, fmt.Errorf("%w: a sample of %v, want above 0, at most 1", ErrAsked, a.Sample)
	case a.Length < time.Second || a.Grace < 0 || a.Collect < 0:
		return nil, fmt.Errorf("%w: rounds of %v with a grace of %v, want a second at least", ErrAsked, a.Length, a.Grace)
	}
	expected := float64(a.Devices) * q
	if a.MinBatch == 0 {
		a.MinBatch = max(recipe.MinBatchFloor, uint64(expected/2))
	}
	query, err := recipe.NewVector(uint32(a.Dimension), 1, forecastBits, 0)
	if err != nil {
		return nil, err
	}
	o := account.Options{Name: "A training", Query: query, Leader: "https://leader.example/", Helper: "https://helper.example/", MinBatch: a.MinBatch,
		Epsilon: a.Epsilon, Delta: a.Delta, Rounds: a.Rounds, TimePrecision: dap.TimePrecision(a.Length / time.Second), Grace: a.Grace}
	if q < 1 {
		if o.Participation, err = recipe.ParseBernoulli(a.Sample.String()); err != nil {
			return nil, err
		}
		o.Rate = &recipe.Rate{Devices: a.Devices, Units: 1}
		o.Relay = &recipe.Relay{URL: "https://relay.example/", Gateway: "https://gateway.example/"}
	}
	r, err := account.New(o)
	if err != nil {
		return nil, err
	}
	f := &Forecast{Devices: a.Devices, Sample: q, Rounds: a.Rounds, Delta: a.Delta.Float(), MinBatch: a.MinBatch, Expected: expected}
	for _, x := range []struct {
		into *float64
		loss func() (recipe.Loss, error)
	}{
		{&f.Epsilon, func() (recipe.Loss, error) { return account.LossAfter(r, a.Rounds) }},
		{&f.First, func() (recipe.Loss, error) { return account.LossAfter(r, 1) }},
		{&f.Known, func() (recipe.Loss, error) { return account.UnconditionalAfter(r, a.Rounds) }},
	} {
		l, err := x.loss()
		if err != nil {
			return nil, err
		}
		*x.into = l.Epsilon
	}
	v, _ := r.Vector()
	both := r.Noise.Spread().Deviation / float64(v.Bound)
	f.Sigma = both / math.Sqrt2
	f.Signal = expected / (both * math.Sqrt(float64(a.Dimension)))
	if p := uploading(r); p < 1 {
		_, few := binomial.Tail(float64(a.Devices-r.Threshold()+1), float64(a.Devices), 1-p, p)
		f.Skipped = few // P(X < B) = P(n-X >= n-B+1)
		f.Dummies = float64(a.Devices)*p - expected
	} else if a.Devices < r.Threshold() {
		f.Skipped = 1
	}
	if f.Upload, err = r.UploadBytes(); err != nil {
		return nil, err
	}
	// The next round begins where one does, once the sum is there.
	late := a.Length / 10
	f.Seconds = math.Ceil(max(1, (a.Length+r.Grace()+a.Collect-late).Seconds()/a.Length.Seconds())) * a.Length.Seconds()
	return f, nil
}

// uploading is the probability with which a device sends something that counts, a report or
// a dummy.
func uploading(r *recipe.Recipe) float64 {
	c := r.Chances(recipe.OtherAnswer)
	cover, _ := c.Cover.Float64()
	report, _ := c.Report.Float64()
	dummy, _ := c.Dummy.Float64()
	return cover * (report + (1-report)*dummy)
}
