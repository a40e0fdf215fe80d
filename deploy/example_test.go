package deploy_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// The whole path as a library, every party in one process: a recipe, the task that both
// aggregators make of it, a hundred devices, and the result.
func Example_library() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	first, second := httptest.NewUnstartedServer(nil), httptest.NewUnstartedServer(nil)
	url := func(s *httptest.Server) string { return "http://" + s.Listener.Addr().String() + "/" }
	r := must(account.New(account.Options{Name: "Left-handed?", Query: recipe.Count{}, Leader: url(first), Helper: url(second),
		MinBatch: 100, BatchMode: dap.LeaderSelected, Epsilon: must(recipe.ParseDecimal("1"))}))
	asked := must(recipe.Open(must(r.Append(nil)), account.Prover)) // its guarantee, checked once

	key, verify := must(sealed.Generate(1, sealed.SuiteX25519)), [32]byte{}
	rand.Read(verify[:])
	shared := aggregator.Secrets{VerifyKeys: map[uint8][32]byte{1: verify}, PeerToken: rand.Text(), CollectorToken: rand.Text(), CollectorHPKE: dap.NewHpkeConfig(key)}
	tasks := []aggregator.Task{must(aggregator.TaskOf(asked, shared))}
	dir := must(os.MkdirTemp("", "starling"))
	defer os.RemoveAll(dir)
	at := func(base, name string) aggregator.Options {
		return aggregator.Options{Base: base, Tasks: tasks, KeySchedule: &keyset.Schedule{},
			FS: must(aggregator.Dir(filepath.Join(dir, name))), Record: must(aggregator.Dir(filepath.Join(dir, name+".record")))}
	}
	l := must(leader.New(ctx, leader.Options{Options: at(url(first), "leader")}))
	h := must(helper.New(ctx, helper.Options{Options: at(url(second), "helper")}))
	first.Config.Handler, second.Config.Handler = l.Handler(), h.Handler()
	first.Start()
	second.Start()
	go l.Run(ctx)
	go h.Run(ctx)

	device := must(client.New(client.Options{Checked: asked, MaxEpsilon: 1, MinBatch: 100, AnyKeys: true}))
	for n := range 100 {
		if err := device.Report(ctx, client.Bool(n%10 == 0)); err != nil {
			panic(err)
		}
	}
	c := must(collector.New(collector.Options{Checked: asked, Token: shared.CollectorToken, Key: key}))
	result := must(c.Collect(ctx, c.NextBatch()))
	fmt.Println(result.ReportCount, "answers; 10 said yes, and the estimate is off by less than 60:", math.Abs(result.Estimate[0]-10) < 60)
	// Output:
	// 100 answers; 10 said yes, and the estimate is off by less than 60: true
}
