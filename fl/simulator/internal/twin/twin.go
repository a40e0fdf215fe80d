// Package twin lets package simulatortest, and nothing outside fl/simulator, choose what is
// random in a simulation.
package twin

// Choices are what is random: what a server draws for a round, and whether a device sends
// an answer in it, or a dummy. Nil leaves it to the seed.
type Choices struct {
	Draw   func(server int, round uint32, dst []int64)
	Decide func(device int, round uint32) (answer, dummy bool)
}

// Choose has a *simulator.Simulator take its choices from c. Package simulator sets it.
var Choose func(simulator any, c Choices)
