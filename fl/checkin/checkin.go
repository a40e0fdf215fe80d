// Package checkin plays the protocols of paper 004 (Balle, Kairouz, McMahan, Thakkar and
// Thakurta 2020) as they are stated: stochastic gradient descent by clients who check in at
// random, of whom a slot uses one, or the mean of all, and by dummy gradients where nobody
// has come. It measures what the paper states of their updates and of the excess risk.
//
// A recipe's check-ins ([recipe.CheckIn]) are other than algorithm 1 and sliding windows in
// one thing: a slot adds up all of its reports, for a batch of one report is below the least
// that servers release. So the choice of one client and dummy gradients run here alone.
//
// The problem is linear: clients hold points x of norm 1, the loss is -<x, theta> over the
// unit ball, which is convex and 1-Lipschitz, and its optimum mu/|mu|, for the mean mu, is
// known. Local randomizers add Gaussian noise. All that is random follows from a seed.
package checkin

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/fl/internal/stream"
)

// Options are a protocol and its problem.
type Options struct {
	Schedule release.Schedule
	// Clients are n, and Slots m: of the run for fixed and averaged windows, of a client's
	// window for sliding ones, whose run has n-m+1 updates.
	Clients, Slots int
	// Rate is p0, with which a client of a fixed window checks in at all; 1 for others.
	Rate float64
	// Dimension p of the points, and Lean their mean's norm: above 0, at most 1.
	Dimension int
	Lean      float64
	// Sigma is the deviation of a client's noise on each entry of its gradient.
	Sigma float64
	// Runs in a row, each from the model of the one before on, by the same clients
	// (corollary 3.3); 1 if zero.
	Runs int
	Seed uint64
}

// Validate says what is out of bounds.
func (o *Options) Validate() error {
	switch {
	case o.Schedule < release.FixedWindow || o.Schedule > release.SlidingWindow:
		return fmt.Errorf("checkin: schedule %v", o.Schedule)
	case o.Clients < 1 || o.Slots < 1 || o.Dimension < 1 || o.Runs < 0:
		return fmt.Errorf("checkin: %d clients, %d slots, %d entries, %d runs", o.Clients, o.Slots, o.Dimension, o.Runs)
	case o.Schedule == release.SlidingWindow && o.Slots > o.Clients:
		return fmt.Errorf("checkin: windows of %d slots, and %d clients", o.Slots, o.Clients)
	case !(o.Rate > 0 && o.Rate <= 1) || o.Schedule != release.FixedWindow && o.Rate != 1:
		return fmt.Errorf("checkin: a rate of %v", o.Rate)
	case !(o.Lean > 0 && o.Lean <= 1) || !(o.Sigma >= 0):
		return fmt.Errorf("checkin: a mean of norm %v, and noise of deviation %v", o.Lean, o.Sigma)
	}
	return nil
}

// A Result is what a run came to.
type Result struct {
	Updates int // steps of the model, those by dummies among them
	Dummies int // slots in which nobody was there
	Used    int // clients whose gradient was used
	Came    int // clients who checked in at a slot of the run
	Largest int // clients in one slot
	// Excess is the population risk of the last model less that of the best.
	Excess float64
}

// diameter is R, of the unit ball.
const diameter = 2

// Rate is the excess risk of theorem 3.5 or 4.2 without constants and logarithms, and the
// first step size; false where the theorem says nothing: at most ln 2 clients a slot are
// expected, so that 1 - 2 exp(-n p0/m) is not above 0. Of sliding windows the paper states
// none, and 3.5 is taken with n = m.
func (o *Options) theorem() (rate, first float64, ok bool) {
	n, m, p := float64(o.Clients), float64(o.Slots), float64(o.Dimension)
	noise := p * o.Sigma * o.Sigma
	if o.Schedule == release.AveragedWindow {
		return diameter * math.Sqrt(noise/n+1/m), diameter * math.Sqrt(n/(m*noise+n)), true
	}
	load, updates := n*o.Rate/m, m*float64(max(1, o.Runs))
	if o.Schedule == release.SlidingWindow {
		load, updates = 1, n-m+1
	}
	share := 1 - 2*math.Exp(-load)
	if share <= 0 {
		return 0, diameter / math.Sqrt(noise+1), false
	}
	return math.Sqrt(noise+1) * diameter / (share * math.Sqrt(updates)), diameter * share / math.Sqrt(noise+1), true
}

// Theorem is the excess risk of theorem 3.5, or for averages 4.2, without constants and
// logarithms; false where the theorem says nothing.
func (o *Options) Theorem() (float64, bool) {
	rate, _, ok := o.theorem()
	return rate, ok
}

// Play plays the protocol, by the theorem's step sizes: the first over the root of the
// number of the step.
func Play(o Options) (*Result, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	r := new(Result)
	_, step, _ := o.theorem()
	theta := make([]float64, o.Dimension)
	gradient := make([]float64, o.Dimension)
	done := 0
	for run := range max(1, o.Runs) {
		slots, came := o.draw(run)
		r.Came += came
		for _, there := range slots {
			done++
			r.Largest = max(r.Largest, len(there))
			noise := stream.New(o.Seed, "noise", uint64(done))
			clear(gradient)
			switch {
			case len(there) == 0:
				r.Dummies++
				if o.Schedule == release.AveragedWindow {
					continue // no update at all
				}
				o.blur(gradient, noise) // of zeros: algorithm 1's dummy
			case o.Schedule == release.AveragedWindow:
				for _, client := range there {
					o.add(gradient, client)
					o.blur(gradient, noise)
				}
				for i := range gradient {
					gradient[i] /= float64(len(there))
				}
				r.Used += len(there)
			default:
				o.add(gradient, there[int(noise.Uint64()%uint64(len(there)))])
				o.blur(gradient, noise)
				r.Used++
			}
			r.Updates++
			eta := step / math.Sqrt(float64(done))
			norm := 0.0
			for i := range theta {
				theta[i] -= eta * gradient[i]
				norm += theta[i] * theta[i]
			}
			if norm > 1 {
				for i := range theta {
					theta[i] /= math.Sqrt(norm)
				}
			}
		}
	}
	along := 0.0
	for _, x := range theta {
		along += x / math.Sqrt(float64(o.Dimension))
	}
	r.Excess = o.Lean * (1 - along)
	return r, nil
}

// draw has each client check in, and returns who is there in each slot of a run.
func (o *Options) draw(run int) (slots [][]int, came int) {
	n := o.Slots
	if o.Schedule == release.SlidingWindow {
		n = o.Clients - o.Slots + 1
	}
	slots = make([][]int, n)
	for client := range o.Clients {
		coins := stream.New(o.Seed, "check-in", uint64(run)<<32|uint64(client))
		if o.Rate < 1 && coins.Uniform() >= o.Rate {
			continue
		}
		at := int(coins.Uint64() % uint64(o.Slots))
		if o.Schedule == release.SlidingWindow {
			// Client j is there in [j, j+m-1]; the run is of the slots in m windows.
			if at += client - (o.Slots - 1); at < 0 || at >= n {
				continue
			}
		}
		slots[at], came = append(slots[at], client), came+1
	}
	return slots, came
}

// add adds a client's gradient, which is its point negated: each entry is 1/sqrt(p) or its
// opposite, the former with probability (1+Lean)/2, so that mu has norm Lean.
func (o *Options) add(gradient []float64, client int) {
	point := stream.New(o.Seed, "point", uint64(client))
	size := 1 / math.Sqrt(float64(o.Dimension))
	for i := range gradient {
		if point.Uniform() < (1+o.Lean)/2 {
			gradient[i] -= size
		} else {
			gradient[i] += size
		}
	}
}

// blur adds a client's noise.
func (o *Options) blur(gradient []float64, noise *stream.Stream) {
	if o.Sigma == 0 {
		return
	}
	for i := range gradient {
		gradient[i] += o.Sigma * noise.Normal()
	}
}
