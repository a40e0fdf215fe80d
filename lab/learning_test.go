package lab

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/fl/images"
	flmodel "github.com/starling-agg/starling/fl/model"
	"github.com/starling-agg/starling/fl/simulator"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// learningRound is a scenario of one round of learning, without noise: devices send their
// gradients at a model of zeros.
type learningRound struct {
	set    *images.Set
	model  flmodel.Model
	result *collector.Result
}

const gradientDevices = 24

func (g *learningRound) gradient(i int, buf []float64) {
	image := g.set.Train[i]
	g.model.Gradient(buf, make([]float64, len(buf)), image.Pixels, image.Label)
	for j := range buf {
		buf[j] *= float64(i%3) + 0.5 // some are longer than the bound
	}
}

func (g *learningRound) pose(f *frame, a *deploy.Addresses) (*recipe.Recipe, error) {
	q, err := recipe.NewVector(uint32(g.model.Parameters()), 1, 14, 0)
	if err != nil {
		return nil, err
	}
	window, err := f.window(1)
	if err != nil {
		return nil, err
	}
	return account.New(account.Options{
		Name: "A round of learning", Query: q, Leader: a.LeaderURL(), Helper: a.HelperURL(), MinBatch: 20, Window: window,
		TimePrecision: dap.TimePrecision(f.o.Precision / time.Second),
		Population:    &recipe.Population{Statement: "a test's", Expected: gradientDevices},
	})
}

func (g *learningRound) answer(ctx context.Context, f *frame) error {
	if err := f.client.Refresh(ctx); err != nil {
		return err
	}
	f.sent, f.acknowledged = gradientDevices, gradientDevices
	return crowd(ctx, gradientDevices, 2, func(ctx context.Context, i int) error {
		x := make([]float64, g.model.Parameters())
		g.gradient(i, x)
		_, err := uploadVector(ctx, f, x)
		return err
	})
}

func (g *learningRound) compare(ctx context.Context, f *frame) error {
	config, err := f.collector()
	if err != nil {
		return err
	}
	g.result, err = f.collect(ctx, config, f.asked)
	return err
}

func (*learningRound) draw(*frame) {}

func (g *learningRound) report(f *frame) *recipe.Recipe { return f.recipe }

// TestSimulatorEqualsServers: of the same gradients, clipped and rounded by the same
// devices, real leader, helper and collector release the integers that the simulator of
// training computes, and estimate the same.
func TestSimulatorEqualsServers(t *testing.T) {
	set, err := images.Digits()
	if err != nil {
		t.Fatal(err)
	}
	g := &learningRound{set: set, model: flmodel.NewLogistic(set.Pixels(), images.Classes)}
	r, err := play(t.Context(), Frame{Out: t.TempDir(), exact: true}.withDefaults("1"), g)
	if err != nil {
		t.Fatal(err)
	}
	sim, err := simulator.New(r, simulator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sum, err := sim.Round(t.Context(), gradientDevices, func(device int, buf []float64) (simulator.Report, error) {
		g.gradient(device, buf)
		return simulator.Report{Vector: buf}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if g.result.ReportCount != sum.Reports || !slices.Equal(g.result.Raw, sum.Raw) || !slices.Equal(g.result.Estimate, sum.Estimate) {
		t.Errorf("servers count %d and release %v..., the simulator %d and %v...", g.result.ReportCount, g.result.Raw[:5], sum.Reports, sum.Raw[:5])
	}
	for i, x := range sum.Raw {
		if x != 0 {
			break
		}
		if i == len(sum.Raw)-1 {
			t.Error("all sums are 0")
		}
	}
}
