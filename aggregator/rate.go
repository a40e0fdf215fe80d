package aggregator

import (
	"errors"

	"github.com/starling-agg/starling/internal/binomial"
	"github.com/starling-agg/starling/recipe"
)

// A Rate is what devices send in one batch of a sampled recipe's task, which is a round,
// or a slot: each that decides sends one report or dummy, or none, by a draw of its own.
// Leader and helper each compare with it what came, by the times of rounds and not of
// arrival (Feldman et al., Samplable Anonymous Aggregation, section 4.8).
type Rate struct {
	// Senders is how many honest devices decide in a round at least: what the guarantee
	// counts on.
	Senders uint64
	// Least and Most bound the probability with which a device that decides sends, whatever
	// its answer: 0 <= Least <= Most <= 1, rounded outward.
	Least, Most float64
}

// RateOf is that of a recipe; nil where nothing is sampled.
func RateOf(r *recipe.Recipe) *Rate {
	if r.Dummies == nil {
		return nil
	}
	x := &Rate{Senders: r.Dummies.Senders}
	x.Least, x.Most = r.Sends()
	return x
}

// Validate refuses what is no rate.
func (r *Rate) Validate() error {
	switch {
	case r.Senders > binomial.MaxCount:
		return errors.New("more senders than can be computed with")
	case !(0 <= r.Least && r.Least <= r.Most && r.Most <= 1):
		return errors.New("no probabilities, or the least is above the most")
	}
	return nil
}

// FalseAlarm bounds the probability with which a batch of honest devices is told as
// [status.TooFew], and that with which it is told as [status.TooMany].
const FalseAlarm = 0x1p-40

// Few says whether fewer than Senders devices have decided in a batch of a number of
// reports: if they have, and are honest, it says so with probability at most
// [FalseAlarm], whatever their answers and however many others sent.
func (r *Rate) Few(reports uint64) bool {
	return reports < r.Senders && rare(r.Senders-reports, r.Senders, 1-r.Least, r.Least) // so many do not send
}

// Many says whether more reports came than a number of devices draw to send: if no more
// than these have decided and are honest, it says so with probability at most
// [FalseAlarm].
func (r *Rate) Many(reports, devices uint64) bool {
	return reports > devices || rare(reports, devices, r.Most, 1-r.Most)
}

// rare says whether at least k of n devices toss what each does with probability p, q =
// 1-p, with probability at most [FalseAlarm].
func rare(k, n uint64, p, q float64) bool {
	switch {
	case k == 0 || q == 0:
		return false
	case p == 0:
		return true
	}
	_, odds := binomial.Tail(float64(k), float64(n), p, q)
	return odds <= FalseAlarm
}

// Flood says whether a batch has more than holdFactor times as many reports as that
// number of devices send on average.
func (r *Rate) Flood(reports, devices uint64) bool {
	return float64(reports) > holdFactor*float64(devices)*r.Most
}
