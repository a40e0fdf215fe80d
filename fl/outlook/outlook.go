// Package outlook says what the rounds of a training will be like before anything is
// published: the noise of each round beside the longest signal that there can be, how many
// devices take part, how often a round is skipped, what devices upload and compute, and
// what privacy costs by round.
//
// All of it follows from the recipe, by the same code that sets a round's threshold and
// computes its guarantee; nothing is simulated.
package outlook

import (
	"errors"
	"fmt"
	"math"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/binomial"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/vdaf/pine"
)

// ErrRecipe is for recipes that no training is planned with, wrapped with the reason.
var ErrRecipe = errors.New("outlook: it is about vector recipes with noise that say how many devices decide in a round")

// A Point is what a number of rounds cost.
type Point struct {
	Rounds  uint32  `json:"rounds"`
	Epsilon float64 `json:"epsilon"`
}

// An Outlook is what is known of a training's rounds. A release is that of a round, or
// of one of its slots. JSON keys are only added to.
type Outlook struct {
	Dimension int    `json:"dimension"`
	Devices   uint64 `json:"devices"` // that decide in a round
	Rounds    uint32 `json:"rounds"`  // that the guarantee covers
	Releases  uint32 `json:"releases_of_a_round"`
	// Answers are how many devices are expected to report in a release, the planned
	// cohort by which its sum is divided; Reports has the dummies beside them.
	Answers float64 `json:"expected_answers"`
	Reports float64 `json:"expected_reports"`
	// Least reports are released; fewer come with probability at most Skipped, where
	// everybody is honest and has an answer.
	Least   uint64  `json:"least_reports"`
	Skipped float64 `json:"skipped"`

	// Sigma is the standard deviation of each server's noise on an entry of the sum, and
	// Deviation that of both servers' on an entry of the mean: each where the clipping norm
	// is 1.
	Sigma     float64 `json:"sigma"`
	Deviation float64 `json:"noise_deviation"`
	// Signal is the length of the longest mean, 1, over the expected length of the noise on
	// it: what is left where all updates point the same way and are as long as is allowed.
	// Unrelated is that of updates at right angles to each other.
	Signal    float64 `json:"signal_to_noise"`
	Unrelated float64 `json:"signal_to_noise_unrelated"`
	// Agreement is how long a mean update must be, as a part of the clipping norm, to
	// outweigh the noise of all rounds if it is the same in each; above 1 none can be.
	Agreement float64 `json:"agreement"`

	// UploadBytes of one report, and what it costs on this machine: zero where no speed
	// was measured.
	UploadBytes   int     `json:"upload_bytes"`
	DeviceSeconds float64 `json:"device_seconds,omitempty"`
	ServerSeconds float64 `json:"server_seconds,omitempty"`
	// RoundSeconds is how long a round is, and BusySeconds how long one core of a server
	// verifies the reports of a release.
	RoundSeconds float64 `json:"round_seconds"`
	BusySeconds  float64 `json:"busy_seconds,omitempty"`

	// Epsilon, at Delta, is what all rounds cost if one server is honest. Null is no bound.
	Epsilon    *float64 `json:"epsilon"`
	Delta      float64  `json:"delta"`
	Neighbours string   `json:"neighbours"`
	// BothHonest is epsilon where both servers are honest, and Known where it is known who
	// reports in which round.
	BothHonest *float64 `json:"epsilon_if_both_servers_are_honest"`
	Known      *float64 `json:"epsilon_if_it_is_known_who_reports"`
	Spent      []Point  `json:"spent"`
}

// points is of how many rounds Spent tells.
const points = 8

// Of is the outlook of a recipe, which has been checked. speed may be nil. Errors wrap
// [ErrRecipe] where there is none.
func Of(r *recipe.Recipe, speed *pine.Speed) (*Outlook, error) {
	q, ok := r.Vector()
	claim, claims := r.Claim.(recipe.ApproxDP)
	if !ok || !claims || r.Rate == nil || r.Noise == nil || r.Noise.Spread().Deviation == 0 {
		return nil, ErrRecipe
	}
	_, reports, ok := r.Expected(r.RoundUnits())
	if !ok {
		return nil, ErrRecipe
	}
	o := &Outlook{
		Dimension: int(q.Dimension), Devices: r.Rate.Devices, Rounds: claim.Rounds, Releases: r.Slots(), Least: r.Threshold(), Delta: claim.Delta.Float(),
		RoundSeconds: float64(r.RoundUnits()) * float64(r.TimePrecision), Neighbours: r.Neighbours().String(),
	}
	if r.Projection != nil {
		o.Dimension = int(r.Projection.Entries)
	}
	o.Reports = reports / float64(o.Releases)
	chances := r.Chances(recipe.OtherAnswer)
	answers, _ := chances.Report.Float64()
	dummies, _ := chances.Dummy.Float64()
	o.Answers = o.Reports * answers / (answers + (1-answers)*dummies)
	o.Skipped = fewer(o.Least, o.Devices, o.Reports/float64(o.Devices))

	unit := q.Unit() / q.Norm()
	o.Deviation = r.Noise.Spread().Deviation * unit / o.Answers
	o.Sigma = r.Noise.Spread().Deviation * unit / math.Sqrt2
	length := o.Deviation * math.Sqrt(float64(q.Dimension))
	o.Signal, o.Unrelated = 1/length, 1/(length*math.Sqrt(o.Answers))
	o.Agreement = length / math.Sqrt(float64(o.Rounds)*float64(o.Releases))

	if err := o.costs(r, q.VDAFConfig(), speed); err != nil {
		return nil, err
	}
	return o, o.spends(r, claim.Rounds)
}

// fewer bounds the probability that fewer than least of n devices send, each with
// probability p by itself.
func fewer(least, n uint64, p float64) float64 {
	if p >= 1 {
		if n < least {
			return 1
		}
		return 0
	}
	_, upper := binomial.Tail(float64(n)-float64(least)+1, float64(n), 1-p, p)
	return upper
}

// costs fills in what reports cost.
func (o *Outlook) costs(r *recipe.Recipe, proof dap.VDAFConfig, speed *pine.Speed) (err error) {
	if o.UploadBytes, err = r.UploadBytes(); err != nil {
		return fmt.Errorf("outlook: %w", err)
	}
	config, ok := proof.(dap.PineConfig)
	if !ok || speed == nil {
		return nil
	}
	cost, err := speed.Plan(config.PineParams())
	if err != nil {
		return fmt.Errorf("outlook: %w", err)
	}
	o.DeviceSeconds, o.ServerSeconds = cost.ClientSeconds, max(cost.LeaderSeconds, cost.HelperSeconds)
	o.BusySeconds = o.Reports * o.ServerSeconds
	return nil
}

// spends fills in what rounds cost.
func (o *Outlook) spends(r *recipe.Recipe, rounds uint32) error {
	for i := uint32(1); i <= points; i++ {
		n := uint32(uint64(rounds) * uint64(i) / points)
		if n == 0 || len(o.Spent) > 0 && o.Spent[len(o.Spent)-1].Rounds == n {
			continue
		}
		loss, err := account.LossAfter(r, n)
		if err != nil {
			return fmt.Errorf("outlook: %w", err)
		}
		if loss.Finite() {
			o.Spent = append(o.Spent, Point{n, loss.Epsilon})
		}
		if n == rounds {
			o.Epsilon = finite(loss)
		}
	}
	if both, ok := account.BothHonest(r); ok {
		o.BothHonest = finite(both)
	}
	if known, err := account.UnconditionalAfter(r, rounds); err == nil {
		o.Known = finite(known)
	}
	return nil
}

func finite(l recipe.Loss) *float64 {
	if !l.Finite() {
		return nil
	}
	return &l.Epsilon
}
