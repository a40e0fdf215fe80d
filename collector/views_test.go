package collector

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// TestViewResults: a batch of a view has that view's noise in its errors, its name, and the
// ends of its span, whatever rounds its reports are of; what is no batch is not asked for.
func TestViewResults(t *testing.T) {
	r, err := account.New(account.Options{
		Name: "views", Query: recipe.Histogram{Length: 3}, Leader: "https://leader.example/", Helper: "https://helper.example/", MinBatch: 10,
		Noise: recipe.EachDraws(recipe.Rational{Num: 50, Den: 1}), DAP: speaks,
		Views: &recipe.Views{Round: "hour", Keep: 5, Wider: []recipe.View{{Name: "day", Rounds: 24, Parameter: recipe.Rational{Num: 200, Den: 1}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := newLeader(t, r).collector(r, nil)
	const start = 24 * 20000
	for _, v := range []struct {
		name     string
		rounds   dap.Duration
		variance float64
	}{{"hour", 1, 100}, {"day", 24, 400}} {
		q := dap.Query{Mode: dap.TimeInterval, Interval: dap.Interval{Start: start, Duration: v.rounds}}
		result, err := c.result(q, &dap.CollectionJobResp{ReportCount: 12, Interval: dap.Interval{Start: start, Duration: 1}}, []int64{3, 4, 5})
		if err != nil {
			t.Fatal(err)
		}
		if result.View != v.name || math.Abs(result.Stderr[0]*result.Stderr[0]-v.variance) > 1 || result.To.Sub(result.From) != time.Duration(v.rounds)*time.Hour {
			t.Errorf("%s: %q, error %v, from %v to %v", v.name, result.View, result.Stderr, result.From, result.To)
		}
		b, err := json.Marshal(result)
		if err != nil || !strings.Contains(string(b), `"view":"`+v.name+`"`) {
			t.Errorf("%s, %v", b, err)
		}
		if err := c.check(q); err != nil {
			t.Error(err)
		}
	}
	for _, odd := range []dap.Interval{{Start: start, Duration: 2}, {Start: start + 1, Duration: 24}, {Start: start, Duration: 48}} {
		var batch *recipe.BatchError
		if err := c.check(dap.Query{Mode: dap.TimeInterval, Interval: odd}); !errors.As(err, &batch) || !errors.Is(err, ErrQuery) {
			t.Errorf("%v: %v", odd, err)
		}
	}
}
