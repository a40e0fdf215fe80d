package deploy_test

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"net/http/httptest"
	"testing"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
)

// TestProjectiveResponse asks for one of 5 buckets by projective geometry response, on the
// whole path: recipe and its certificate, both aggregators, 400 devices, the result. Each
// estimate lies within 6 of its standard errors (false alarms: 1e-8 in all), the first is
// told from the others, and the sums are of the points that were sent.
func TestProjectiveResponse(t *testing.T) {
	const devices = 400
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	first, second := httptest.NewUnstartedServer(nil), httptest.NewUnstartedServer(nil)
	url := func(s *httptest.Server) string { return "http://" + s.Listener.Addr().String() + "/" }
	r := must(account.New(account.Options{Name: "Ages", Query: recipe.Histogram{Length: 5}, Labels: []string{"a", "b", "c", "d", "e"},
		Randomizer: must(recipe.ParseRandomizer("pgr:3")), Leader: url(first), Helper: url(second), MinBatch: devices, BatchMode: dap.LeaderSelected}))
	points := r.Query.Aggregates()
	if points <= 5 {
		t.Fatalf("%d points", points)
	}
	asked := must(recipe.Open(must(r.Append(nil)), account.Prover))

	key, verify := must(sealed.Generate(1, sealed.SuiteX25519)), [32]byte{}
	rand.Read(verify[:])
	shared := aggregator.Secrets{VerifyKeys: map[uint8][32]byte{1: verify}, PeerToken: rand.Text(), CollectorToken: rand.Text(), CollectorHPKE: dap.NewHpkeConfig(key)}
	tasks := []aggregator.Task{must(aggregator.TaskOf(asked, shared))}
	at := func(base string, seed uint64) aggregator.Options {
		return aggregator.Options{Base: base, Tasks: tasks, KeySchedule: &keyset.Schedule{}, FS: disktest.NewMem(seed), Record: disktest.NewMem(seed + 1)}
	}
	l := must(leader.New(ctx, leader.Options{Options: at(url(first), 1)}))
	h := must(helper.New(ctx, helper.Options{Options: at(url(second), 3)}))
	first.Config.Handler, second.Config.Handler = l.Handler(), h.Handler()
	first.Start()
	second.Start()
	defer first.Close()
	defer second.Close()
	go l.Run(ctx)
	go h.Run(ctx)

	device := must(client.New(client.Options{
		Recipe: must(deploy.RecipeFileOf(r)), MaxEpsilon: 3, MinBatch: devices, AnyKeys: true,
	}))
	values := make([]client.Value, devices)
	for i := range values {
		values[i] = client.Bucket(uint32(max(0, i%8-4))) // 5 of 8 are the first, then one each
	}
	if err := device.Report(ctx, values...); err != nil {
		t.Fatal(err)
	}
	if bad := new(client.ValueError); !errors.As(device.Report(ctx, client.Bucket(5)), &bad) {
		t.Error("a point is taken for an answer")
	}
	c := must(collector.New(collector.Options{Checked: asked, Token: shared.CollectorToken, Key: key}))
	result := must(c.Collect(ctx, c.NextBatch()))
	if len(result.Raw) != points || len(result.Estimate) != 5 || len(result.Stderr) != 5 || len(result.Interval95) != 5 || len(result.Labels) != 5 {
		t.Fatalf("%d sums, %d estimates, %d labels", len(result.Raw), len(result.Estimate), len(result.Labels))
	}
	for i, v := range result.Estimate {
		want := devices / 8.
		switch i {
		case 0:
			want *= 5
		case 4:
			want = 0
		}
		if off := math.Abs(v-want) / result.Stderr[i]; off > 6 {
			t.Errorf("bucket %d: %v +- %v, want %v", i, v, result.Stderr[i], want)
		}
	}
	if first := result.Estimate[0]; first < result.Estimate[1] {
		t.Errorf("estimates %v", result.Estimate)
	}
}
