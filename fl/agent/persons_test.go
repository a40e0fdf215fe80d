package agent

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/recipe"
)

// TestPersons: of a contribution of P persons, one moves the vector by at most twice a P-th
// of the bound whatever they send, comes or goes by a P-th, and the whole is within it.
func TestPersons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", false)
		w.options.Tasks[0].Policy.Persons = 4
		w.start()
		defer func() { w.stop() }()
		x := w.agent.tasks[w.checked.ID()]
		length := func(v []float64) float64 {
			sum := 0.0
			for _, y := range v {
				sum += y * y
			}
			return math.Sqrt(sum)
		}
		of := func(updates ...[]float32) []float64 {
			t.Helper()
			v, err := x.vector(t.Context(), &Contribution{Updates: updates})
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		huge := []float32{3e38, -3e38, 3e38}
		for _, u := range [][]float32{{1, 0, 0}, {-9, 2, 4}, huge, {1e-30, 0, 0}, {0, 0, 0}} {
			others := [][]float32{{5, 5, 5}, {-1, 0.01, 0}, {0.1, 0.1, 0.1}}
			without, with := of(others...), of(append(slices.Clone(others), u)...)
			moved := make([]float64, dimension)
			for i := range moved {
				moved[i] = with[i] - without[i]
			}
			if got := length(moved); got > 0.25*(1+1e-6) {
				t.Errorf("%v comes, and moves the vector by %v", u, got)
			}
			if got := length(with); got > 1+1e-6 {
				t.Errorf("%v: a vector of norm %v", u, got)
			}
		}
		if s, err := w.agent.TaskStatus(t.Context(), w.checked.ID()); err != nil || s.Persons != 4 || !strings.Contains(s.Trusts, "this site") {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// TestShares: under a recipe about one of four persons of a site each counts a quarter,
// also who is alone in a contribution, and what is sent moves by no more than the recipe
// counts on. A policy of more persons than the recipe has is refused.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := worldOf(t, "", false, &recipe.Unit{Name: "person", Records: 4, Reduce: recipe.SharedSum})
		w.options.Tasks[0].Policy.Persons = 3
		w.start()
		defer func() { w.stop() }()
		x := w.agent.tasks[w.checked.ID()]
		for _, c := range []struct {
			updates [][]float32
			want    []float64
		}{
			{[][]float32{{9, 0, 0}}, []float64{0.25, 0, 0}},
			{[][]float32{{9, 0, 0}, {0, -9, 0}, {0.1, 0, 0}}, []float64{0.275, -0.25, 0}},
			// One person does not decide whether a site reports.
			{[][]float32{{9, 0, 0}, {0, float32(math.NaN()), 0}, {float32(math.Inf(1)), 0, 1}}, []float64{0.25, 0, 0}},
			{[][]float32{{float32(math.NaN()), 0, 0}}, []float64{0, 0, 0}},
		} {
			got, err := x.vector(t.Context(), &Contribution{Updates: c.updates})
			if err != nil {
				t.Fatal(err)
			}
			for i := range c.want {
				if math.Abs(got[i]-c.want[i]) > 1e-6 {
					t.Errorf("%v: %v, want %v", c.updates, got, c.want)
				}
			}
		}
		s, err := w.agent.TaskStatus(t.Context(), w.checked.ID())
		if err != nil || s.Persons != 3 || s.Unit != "person" || !strings.Contains(s.Trusts, "this site") {
			t.Errorf("%+v, %v", s, err)
		}
		if code, name := w.contribute(w.round(), "&persons=2", []float32{1, 0, 0}, []float32{0, 1, 0}); code != http.StatusOK {
			t.Errorf("%d %s", code, name)
		}
		time.Sleep(minute)
		synctest.Wait()
		if n := w.servers.Counts().Reports; n != 1 {
			t.Errorf("%d reports", n)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := worldOf(t, "", false, &recipe.Unit{Name: "person", Records: 4, Reduce: recipe.SharedSum})
		w.options.Tasks[0].Policy.Persons = 5
		w.start()
		defer func() { w.stop() }()
		if s, err := w.agent.TaskStatus(t.Context(), w.checked.ID()); err != nil || s.Allowed || !strings.Contains(s.Reason, "has 4 at most") {
			t.Errorf("%+v, %v", s, err)
		}
	})
}
