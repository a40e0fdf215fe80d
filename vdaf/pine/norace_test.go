//go:build !race

package pine

const raceEnabled = false
