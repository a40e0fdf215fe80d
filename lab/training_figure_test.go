package lab

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/lab/internal/randhie"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/recipe/recipetest"
)

var writeTraining = flag.Bool("write-training", false, "write the tables in docs/bench/cloak-training.md anew, of 16,000 devices, in some minutes")

// A logistic model tells from nine columns of the table whether a row has many visits.
const (
	weights    = randhie.Columns // a constant, and one for each other column
	manyVisits = 2
	// clipTo bounds the L1 norm of a device's gradient, which is told in units of
	// clipTo/gradientUnits, positive and negative parts apart.
	clipTo        = 4.0
	gradientUnits = 63
	trainingSpeed = 1.0
)

type model [weights]float64

// An example is a row: a constant and standardised columns, and whether there are many visits.
type example struct {
	x    model
	many float64
}

func examples(t testing.TB) []example {
	t.Helper()
	rows, err := randhie.Table()
	if err != nil {
		t.Fatal(err)
	}
	list := make([]example, len(rows))
	for c := range weights {
		sum, squares := 0.0, 0.0
		for i := range rows {
			sum, squares = sum+rows[i][c], squares+rows[i][c]*rows[i][c]
		}
		mean := sum / float64(len(rows))
		deviation := math.Sqrt(squares/float64(len(rows)) - mean*mean)
		for i := range rows {
			if list[i].x[c] = (rows[i][c] - mean) / deviation; c == 0 {
				list[i].x[c] = 1
				if rows[i][c] >= manyVisits {
					list[i].many = 1
				}
			}
		}
	}
	return list
}

func (w *model) probability(x *model) float64 {
	z := 0.0
	for i := range w {
		z += w[i] * x[i]
	}
	return 1 / (1 + math.Exp(-z))
}

// gradient is that of one example's loss, cut to an L1 norm of clip.
func (w *model) gradient(e *example, clip float64) (g model) {
	off, norm := w.probability(&e.x)-e.many, 0.0
	for i := range g {
		g[i] = off * e.x[i]
		norm += math.Abs(g[i])
	}
	if norm > clip {
		for i := range g {
			g[i] *= clip / norm
		}
	}
	return g
}

// told are whole numbers of units for the positive and then the negative parts, rounded
// without a bias and to no more than gradientUnits in all: the differences of running sums,
// each rounded down after one random number was added to all.
func told(g *model, rng *rand.Rand) []uint64 {
	out, sum := make([]uint64, 2*weights), rng.Float64()
	for i, v := range g {
		units := math.Abs(v) / clipTo * gradientUnits
		n := uint64(math.Floor(sum+units) - math.Floor(sum))
		if sum += units; v >= 0 {
			out[i] = n
		} else {
			out[weights+i] = n
		}
	}
	return out
}

// quality is the mean log loss, and how often the likelier answer is right.
func (w *model) quality(list []example) (loss, right float64) {
	for i := range list {
		p, many := w.probability(&list[i].x), list[i].many
		loss -= (many*math.Log(p) + (1-many)*math.Log(1-p)) / float64(len(list))
		if (p > .5) == (many == 1) {
			right += 1 / float64(len(list))
		}
	}
	return loss, right
}

// trained takes steps against mean gradients, which step tells of the model as it is.
func trained(rounds int, step func(round int, w *model) model) (w model) {
	for round := range rounds {
		g := step(round, &w)
		for i := range w {
			w[i] -= trainingSpeed * g[i]
		}
	}
	return w
}

// exactly is the mean gradient.
func exactly(list []example, clip float64) func(int, *model) model {
	return func(_ int, w *model) (mean model) {
		for i := range list {
			for j, v := range w.gradient(&list[i], clip) {
				mean[j] += v / float64(len(list))
			}
		}
		return mean
	}
}

// cloakedSteps are mean gradients that come out of a recipe's cloak. Each is held to the exact
// one: with fixed seeds no number is further off than 7 deviations of noise and rounding, which
// Laplace noise is once in 10^4 and the sum of shares of two numbers in 10^5 and less.
func cloakedSteps(t testing.TB, r *recipe.Recipe, list []example, s uint64) func(int, *model) model {
	rng := rand.New(rand.NewPCG(s, 2))
	return func(round int, w *model) (mean model) {
		m, err := recipetest.Messenger(r, seed(s, uint64(round)))
		if err != nil {
			t.Fatal(err)
		}
		tally := overall(t, r, m, rng, len(list), func(i int) []uint64 {
			g := w.gradient(&list[i], clipTo)
			return told(&g, rng)
		})
		e, err := r.Estimate(tally.Sums, tally.Reports)
		if err != nil {
			t.Fatal(err)
		}
		unit, n := clipTo/gradientUnits, float64(len(list))
		exact := exactly(list, clipTo)(round, w)
		for j := range mean {
			mean[j] = (e.Values[j] - e.Values[weights+j]) * unit / n
			deviation := math.Sqrt(e.StdDev[j]*e.StdDev[j]+e.StdDev[weights+j]*e.StdDev[weights+j]+n/2) * unit / n
			if off := math.Abs(mean[j] - exact[j]); off > 8*deviation {
				t.Errorf("round %d: gradient %d is %v off, %.1f deviations", round, j, off, off/deviation)
			}
		}
		return mean
	}
}

// gradients is a recipe that asks for them in every round.
func gradients(t testing.TB, devices, rounds int, epsilon string) *recipe.Recipe {
	return overCloak(t, account.Options{Query: recipe.L1BoundSum{Length: 2 * weights, Max: gradientUnits}, MinBatch: uint64(devices), Rounds: uint32(rounds),
		Epsilon: decimal(epsilon), Delta: decimal("0.000001"), Randomizer: recipe.Cloak{Kind: recipe.ModernCloak, Users: uint64(devices), Honest: uint64(devices * 9 / 10)}})
}

// TestTrainingFigure trains a logistic model over the cloak, in full batches: each device
// sends its clipped gradient in each round, and nothing else. With -write-training it writes
// what models of 16,000 devices are worth on 4,190 rows that they never saw, and what they
// cost; without it 600 devices take three rounds, whose gradients are held to the exact ones.
func TestTrainingFigure(t *testing.T) {
	list := examples(t)
	if !*writeTraining {
		r := gradients(t, 600, 3, "8")
		w := trained(3, cloakedSteps(t, r, list[:600], 1))
		if loss, _ := w.quality(list); !(loss < .69) {
			t.Errorf("the log loss is %v after three rounds, and %v before", loss, math.Ln2)
		}
		return
	}
	const devices, rounds = 16_000, 10
	train, test := list[:devices], list[devices:]
	text := "| gradients | rounds | epsilon over all | of a round | log loss | right | distance from the noiseless weights |\n|---|---:|---:|---:|---:|---:|---:|\n"
	constant := trained(40, func(_ int, w *model) (g model) {
		g[0] = exactly(train, math.Inf(1))(0, w)[0]
		return g
	})
	noiseless := trained(rounds, exactly(train, math.Inf(1)))
	row := func(words string, rounds int, all, each string, w *model) {
		loss, right := w.quality(test)
		distance := 0.0
		for i := range w {
			distance += (w[i] - noiseless[i]) * (w[i] - noiseless[i])
		}
		text += fmt.Sprintf("| %s | %d | %s | %s | %.4f | %.1f %% | %.3f |\n", words, rounds, all, each, loss, 100*right, math.Sqrt(distance))
	}
	row("none: a constant", 40, "", "", &constant)
	row("exact", rounds, "", "", &noiseless)
	clipped := trained(rounds, exactly(train, clipTo))
	row("exact, clipped", rounds, "", "", &clipped)
	cost := "| epsilon over all | messages | bytes of a message | sealed bytes, a round | sealed bytes, all rounds |\n|---:|---:|---:|---:|---:|\n"
	for i, epsilon := range []string{"0.2", "0.5", "1", "4"} {
		r := gradients(t, devices, rounds, epsilon)
		g, err := account.Guarantee(r)
		if err != nil {
			t.Fatal(err)
		}
		z := r.Randomizer.(recipe.Cloak)
		w := trained(rounds, cloakedSteps(t, r, train, uint64(i)))
		row("cloaked", rounds, fmt.Sprintf("%.3g", g.Loss.Epsilon), z.Epsilon.String(), &w)
		messages, size, bytes := z.Sizes(r.Query)
		cost += fmt.Sprintf("| %.3g | %d | %d | %d | %d |\n", g.Loss.Epsilon, messages, size, bytes, rounds*bytes)
	}
	page := filepath.Join("..", "docs", "bench", "cloak-training.md")
	disktest.HoldTable(t, page, "models", text, true)
	disktest.HoldTable(t, page, "cost", cost, true)
	t.Logf("\n%s\n%s", text, cost)
}
