//go:build race

package pine

// The race detector makes each trial of an attack ten times as long; it looks for races, not for odds.
const raceEnabled = true
