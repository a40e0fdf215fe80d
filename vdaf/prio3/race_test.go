//go:build race

package prio3

// The race detector allocates on its own and drops pooled memory at random.
const raceEnabled = true
