package deploy

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

var roundsMeasure = flag.Bool("rounds.measure", false, "print the table of docs/bench/learning.md, which takes some minutes")

// TestRoundsMeasured measures the time from one step of a training to the next, with real
// leader, helper, relay and controller on loopback.
func TestRoundsMeasured(t *testing.T) {
	if !*roundsMeasure {
		return
	}
	for _, c := range []struct {
		dimension uint32
		units     uint64 // seconds
		devices   int
	}{{650, 1, 5}, {650, 2, 5}, {650, 5, 50}, {26010, 10, 50}} {
		const rounds = 5
		x := newTrained(t, c.dimension, rounds, c.units, nil)
		stop := x.serve()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		var crew sync.WaitGroup
		crew.Go(func() {
			if err := x.devices(ctx, c.devices, func(int) []float32 { return []float32{0.1} }); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
		var steps []time.Duration
		begun, seen := time.Now(), 0
		for s := x.status(); s.Stepped+s.Skipped < rounds; s = x.status() {
			if n := s.Stepped + s.Skipped; n > seen {
				if seen > 0 {
					steps = append(steps, time.Since(begun))
				}
				begun, seen = time.Now(), n
			}
			time.Sleep(20 * time.Millisecond)
			if ctx.Err() != nil {
				t.Fatalf("%+v", s)
			}
		}
		steps = append(steps, time.Since(begun))
		s := x.status()
		cancel()
		crew.Wait()
		stop()
		slices.Sort(steps)
		fmt.Fprintf(t.Output(), "| %d | %d | %d | %.1f (%.1f to %.1f) | %d of %d |\n", c.dimension, c.devices, c.units, steps[len(steps)/2].Seconds(), steps[0].Seconds(),
			steps[len(steps)-1].Seconds(), s.Skipped, rounds)
	}
}
