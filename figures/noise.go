package figures

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
	"github.com/starling-agg/starling/internal/search"
)

// A need is a question of the curves: the noise with which tasks releases, each about a
// secret sample at a rate, stay within the budget by a method of accounting.
type need struct {
	rate   float64
	tasks  uint64
	method accountant.Method
}

// precision is how far above the least sigma an answer may lie, relative to it.
func (n need) precision() float64 {
	if n.method == accountant.PLD {
		return 1e-3
	}
	return 1e-4
}

// A budget is what all tasks together may cost, and the noise that it buys. Its answers
// are kept.
type budget struct {
	epsilon, delta float64
	one            float64 // sigma of a single unsampled release of sensitivity one

	mu    sync.Mutex // guards known
	known map[need]float64
}

func newBudget(epsilon, delta float64) (*budget, error) {
	one, _, err := accountant.CalibrateGaussian(epsilon, delta, release.OneHot(), release.AddRemove, 1)
	if err != nil {
		return nil, err
	}
	return &budget{epsilon: epsilon, delta: delta, one: one, known: map[need]float64{}}, nil
}

// plain returns the least sigma at which count releases about everyone stay within the
// budget. Adaptive Gaussian releases compose into one whose distance of neighbours grows
// with the root of their number, which makes it exact.
func (b *budget) plain(count float64) float64 { return outward.Up(b.one * math.Sqrt(count)) }

// secret answers a need, rounded up within its precision. Sampling never costs, so no
// more noise than plain is taken.
func (b *budget) secret(n need) (float64, error) {
	b.mu.Lock()
	sigma, ok := b.known[n]
	b.mu.Unlock()
	if ok {
		return sigma, nil
	}
	return b.solve(n, b.plain(float64(n.tasks))/2)
}

func (b *budget) solve(n need, guess float64) (float64, error) {
	sigma := b.plain(float64(n.tasks))
	if n.rate < 1 {
		// Where a method proves less than ignoring the sampling does, Least stays at the
		// upper bound, which holds anyway.
		var err error
		sigma, _, err = search.Least(search.Options{Guess: guess, Low: 1e-3, High: sigma, Precision: n.precision(), Budget: b.epsilon},
			func(sigma float64) (float64, error) {
				e, err := b.cost(n, sigma)
				if errors.Is(err, release.ErrNoGuarantee) {
					return math.Inf(1), nil
				}
				return e, err
			})
		if err != nil {
			return 0, fmt.Errorf("noise at rate %g over %d tasks: %w", n.rate, n.tasks, err)
		}
	}
	b.mu.Lock()
	b.known[n] = sigma
	b.mu.Unlock()
	return sigma, nil
}

// orders are the Rényi orders of the curves: whole, as in the moments accountant, and
// ever sparser.
var orders = sync.OnceValue(func() []float64 {
	var all []float64
	for a := 2.0; a <= 1024; a += max(1, math.Floor(a/24)) {
		all = append(all, a)
	}
	return all
})

// cost is the epsilon of a sigma.
func (b *budget) cost(n need, sigma float64) (float64, error) {
	noise := release.Gaussian{Sigma: sigma, Contribution: release.OneHot()}
	all := []release.Release{release.Times(n.tasks, noise).Sampled(release.Poisson{Rate: n.rate})}
	g, err := accountant.Options{Method: n.method, Tolerance: n.precision() / 2, Orders: orders()}.Epsilon(all, b.delta, release.AddRemove)
	return g.Epsilon, err
}

// prepare answers the needs with every core. Needs that differ in their rate alone form a
// chain, in which each answer starts from the trend of those before it.
func (b *budget) prepare(ctx context.Context, needs []need) error {
	slices.SortFunc(needs, func(x, y need) int {
		return cmp.Or(cmp.Compare(x.method, y.method), cmp.Compare(x.tasks, y.tasks), -cmp.Compare(x.rate, y.rate))
	})
	b.mu.Lock()
	needs = slices.DeleteFunc(slices.Compact(needs), func(n need) bool { _, ok := b.known[n]; return ok })
	b.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	chains := make(chan []need)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for chain := range chains {
				if err := b.chain(ctx, chain); err != nil {
					cancel(err)
				}
			}
		})
	}
	for len(needs) > 0 {
		n := 1
		for n < len(needs) && needs[n].method == needs[0].method && needs[n].tasks == needs[0].tasks {
			n++
		}
		chains <- needs[:n]
		needs = needs[n:]
	}
	close(chains)
	workers.Wait()
	return context.Cause(ctx)
}

func (b *budget) chain(ctx context.Context, chain []need) error {
	logRate, sigma, slope := 0.0, b.plain(float64(chain[0].tasks)), 1.0
	for _, n := range chain {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		x := math.Log(n.rate) - logRate
		next, err := b.solve(n, sigma*math.Exp(slope*x))
		if err != nil {
			return err
		}
		if x < 0 {
			slope = min(max(math.Log(next/sigma)/x, 0), 2)
		}
		logRate, sigma = math.Log(n.rate), next
	}
	return nil
}
