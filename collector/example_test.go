package collector_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
)

// leader stands in for a leader that has one batch ready: 500 reports, of which 320 said
// yes.
type leader struct {
	task *dap.TaskConfiguration
	key  dap.HpkeConfig // the collector's
}

func (l *leader) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	v, err := l.task.VDAF()
	if err != nil {
		return
	}
	resp := dap.CollectionJobResp{ReportCount: 500, Interval: dap.Interval{Start: 480000, Duration: 5}}
	aad := dap.AggregateShareAAD(l.task.TaskID(), l.task.Bytes(), request)
	for _, s := range []struct {
		role  dap.Role
		share int64
		to    *dap.HpkeCiphertext
	}{{dap.RoleLeader, 1_000_320, &resp.Leader}, {dap.RoleHelper, -1_000_000, &resp.Helper}} {
		share := v.NewAggShare()
		if err := share.AddSigned([]int64{s.share}); err != nil {
			return
		}
		if *s.to, err = dap.Seal(l.key, l.task.Version.AggregateShareInfo(s.role), aad, share.Append(nil)); err != nil {
			return
		}
	}
	body, err := resp.Append(nil)
	if err != nil {
		return
	}
	w.Header().Set("Location", "/"+dap.ResourcePath(l.task.TaskID(), dap.CollectionJobsResource, "job"))
	w.Header().Set("Content-Type", dap.ContentType(dap.MediaCollectionJobResp))
	w.Write(body)
}

func Example() {
	l := new(leader)
	server := httptest.NewServer(l)
	defer server.Close()
	r, err := account.New(account.Options{
		Name: "Left-handedness", Query: recipe.Count{}, MinBatch: 500, Leader: server.URL, Helper: "https://helper.example/",
		Noise: recipe.DiscreteGaussian{Variance: recipe.Rational{Num: 50, Den: 1}, Share: recipe.DrawsAll},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := r.Append(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	key, err := sealed.Generate(1, sealed.SuiteX25519)
	if err != nil {
		fmt.Println(err)
		return
	}
	if l.task, err = r.Task(); err != nil {
		fmt.Println(err)
		return
	}
	l.key = dap.NewHpkeConfig(key)

	c, err := collector.New(collector.Options{Recipe: b, Token: "the leader knows it", Key: key})
	if err != nil {
		fmt.Println(err)
		return
	}
	from := time.Date(2024, 10, 4, 0, 0, 0, 0, time.UTC)
	query, err := c.Interval(from, from.Add(24*time.Hour))
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := c.Collect(context.Background(), query)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%v of %d, give or take %v\n", result.Estimate[0], result.ReportCount, result.Stderr[0])
	fmt.Println("95 %:", result.Interval95[0])
	// Output:
	// 320 of 500, give or take 10
	// 95 %: [300 340]
}
