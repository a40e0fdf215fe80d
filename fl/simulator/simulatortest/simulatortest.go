// Package simulatortest plays rounds of other parties again in the simulator: with the
// coins that fell there, and the noise that was drawn there. It is for tests that hold the
// one against the other.
package simulatortest

import (
	"github.com/starling-agg/starling/fl/simulator"
	"github.com/starling-agg/starling/fl/simulator/internal/twin"
)

// Coins has decide say whether a device sends an answer in a round, or else a dummy, in the
// place of the coins of the seed. Rounds are counted from 0.
func Coins(s *simulator.Simulator, decide func(device int, round uint32) (answer, dummy bool)) {
	twin.Choose(s, twin.Choices{Decide: decide})
}

// Draws has draw fill dst with what a server, 0 for the leader and 1 for the helper, draws
// for a round: its noise, or where that is correlated what it is made of.
func Draws(s *simulator.Simulator, draw func(server int, round uint32, dst []int64)) {
	twin.Choose(s, twin.Choices{Draw: draw})
}
