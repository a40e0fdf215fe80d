package collector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/sealed"
)

var (
	gauss   = recipe.DiscreteGaussian{Variance: recipe.Rational{Num: 50, Den: 1}, Share: recipe.DrawsAll}
	half    = recipe.DiscreteGaussian{Variance: recipe.Rational{Num: 50, Den: 1}, Share: recipe.DrawsHalf}
	laplace = recipe.DiscreteLaplace{Scale: recipe.Rational{Num: 10, Den: 1}}
)

func TestCollect(t *testing.T) {
	for _, c := range []struct {
		query    recipe.Query
		noise    recipe.Noise
		batch    [2][]int64
		estimate []float64
		stderr   float64
		reach    float64 // half of the 95 % interval
		sampling []float64
	}{
		{recipe.Count{}, recipe.NoNoise{}, [2][]int64{{30}, {6}}, []float64{36}, 0, 0, []float64{4.8}},
		{recipe.Sum{Max: 9}, recipe.NoNoise{}, [2][]int64{{30}, {6}}, []float64{36}, 0, 0, nil},
		{recipe.Mean{Max: 9}, gauss, [2][]int64{{250}, {100}}, []float64{3.5}, 0.1, 0.2, nil},
		{histogram, gauss, [2][]int64{{-3, 50, 40}, {-4, 0, 10}}, []float64{-7, 50, 50}, 10, 20, []float64{0, 5, 5}},
		{histogram, half, [2][]int64{{0, 0, 90}, {0, 0, 0}}, []float64{0, 0, 90}, math.Sqrt(50), 14, []float64{0, 0, 3}},
		// Variance 1/(2 sinh^2(1/20)) each; (1 + x/2) exp(-x) = 5 % at x = 4.113.
		{recipe.Sum{Max: 9}, laplace, [2][]int64{{300}, {60}}, []float64{360}, 19.99167, 42, nil},
		{recipe.Multihot{Length: 3, MaxWeight: 2, Chunk: 2}, recipe.NoNoise{}, [2][]int64{{1, 2, 3}, {1, 0, 0}},
			[]float64{2, 2, 3}, 0, 0, []float64{1.4, 1.4, math.Sqrt(2.91)}},
		{recipe.SumVec{Length: 2, Max: 7, Chunk: 2}, recipe.NoNoise{}, [2][]int64{{700, 1}, {0, 1}}, []float64{700, 2}, 0, 0, nil},
		{recipe.L1BoundSum{Length: 2, Max: 7, Chunk: 2}, gauss, [2][]int64{{400, 1}, {0, -2}}, []float64{400, -1}, 10, 20, nil},
	} {
		t.Run(fmt.Sprintf("%T with %T", c.query, c.noise), func(t *testing.T) {
			r := testRecipe(c.query, c.noise, dap.TimeInterval)
			l := newLeader(t, r, c.batch)
			cl := l.collector(r, nil)
			got, err := cl.Collect(t.Context(), day(cl))
			if err != nil {
				t.Fatal(err)
			}
			if got.ReportCount != 100 || got.Interval != (dap.Interval{Start: start, Duration: 2}) ||
				!got.From.Equal(time.Unix(int64(start)*3600, 0)) || got.To.Sub(got.From) != 2*time.Hour {
				t.Errorf("batch of %d in %v, %v to %v", got.ReportCount, got.Interval, got.From, got.To)
			}
			if !slices.Equal(got.Estimate, c.estimate) {
				t.Errorf("estimate %v, want %v", got.Estimate, c.estimate)
			}
			for i, e := range got.Estimate {
				if math.Abs(got.Stderr[i]-c.stderr) > 1e-4*c.stderr {
					t.Errorf("stderr %v, want %v", got.Stderr[i], c.stderr)
				}
				if iv := got.Interval95[i]; math.Abs(iv[0]-(e-c.reach)) > 1e-9 || math.Abs(iv[1]-(e+c.reach)) > 1e-9 {
					t.Errorf("interval %v around %v, want %v either side", iv, e, c.reach)
				}
			}
			if !slices.EqualFunc(got.SamplingStderr, c.sampling, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
				t.Errorf("sampling error %v, want %v", got.SamplingStderr, c.sampling)
			}
			if got.Guarantee.Finite() != (c.noise != recipe.NoNoise{}) {
				t.Errorf("guarantee %v", got.Guarantee.Loss)
			}
			b, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			var back map[string]any
			if err := json.Unmarshal(b, &back); err != nil || back["report_count"] != 100.0 {
				t.Errorf("%s, %v", b, err)
			}
		})
	}
}

// TestDistribution: where numbers are asked for the result has their deciles, in JSON
// too, and elsewhere none.
func TestDistribution(t *testing.T) {
	q := recipe.Quantiles{Max: 3, Width: 1, Branching: 2, Chunk: 3}
	r := testRecipe(q, recipe.NoNoise{}, dap.TimeInterval)
	l := newLeader(t, r, [2][]int64{{70, 30, 40, 20, 30, 0}, {0, 0, 0, 10, 0, 0}})
	cl := l.collector(r, nil)
	got, err := cl.Collect(t.Context(), day(cl))
	if err != nil {
		t.Fatal(err)
	}
	var values []uint64
	for _, d := range got.Distribution.Deciles {
		values = append(values, d.Value)
	}
	if want := []uint64{0, 0, 0, 0, 1, 1, 1, 2, 2}; !slices.Equal(values, want) {
		t.Errorf("deciles %v, want %v", values, want)
	}
	b, err := json.Marshal(got)
	if err != nil || !strings.Contains(string(b), `"deciles":[{"share":0.1,"value":0,"interval95":[0,0],"detected":true}`) {
		t.Errorf("%s, %v", b, err)
	}
	b, err = json.Marshal(&Result{Guarantee: new(recipe.Guarantee)})
	if err != nil || strings.Contains(string(b), "distribution") {
		t.Errorf("%s, %v", b, err)
	}
}

// TestGroups: where sums by group are asked for the result has the table, in JSON too, with
// the state of each cell and the names of groups; and elsewhere none.
func TestGroups(t *testing.T) {
	q := recipe.GroupSums{Min: -1, Max: 3, Groups: 3, Chunk: 3}
	r := testRecipe(q, recipe.NoNoise{}, dap.TimeInterval)
	r.Labels = []string{"cat", "dog", "fox"}
	// 60 cats at 1, 40 dogs at 3, and no fox.
	l := newLeader(t, r, [2][]int64{{100, 160, 0, 120, 0, 0}, {20, 0, 0, 0, 0, 0}})
	cl := l.collector(r, nil)
	got, err := cl.Collect(t.Context(), day(cl))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"groups":{"groups":[{"group":"cat","sum":{"state":"value","estimate":60,"stderr":0,"interval95":[60,60]},"size":{"state":"value","estimate":60,`,
		`"mean":{"state":"value","estimate":3,"stderr":0,"interval95":[3,3]}}`,
		`{"group":"fox","sum":{"state":"none"},"size":{"state":"none"},"mean":{"state":"none"}}],"total":{"sum":{"state":"value","estimate":180,`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s lacks %s", b, want)
		}
	}
	if b, err = json.Marshal(&Result{Guarantee: new(recipe.Guarantee)}); err != nil || strings.Contains(string(b), "groups") {
		t.Errorf("%s, %v", b, err)
	}
}

// TestTable: where texts are asked for the result has their table, in JSON too, and elsewhere
// none.
func TestTable(t *testing.T) {
	q := recipe.Hierarchy{Places: []recipe.TreePlace{{Depth: 1, Label: "a"}, {Depth: 2, Label: "b"}, {Depth: 2, Label: "c"}, {Depth: 1, Label: "d"}}, Chunk: 3}
	r := testRecipe(q, recipe.NoNoise{}, dap.TimeInterval)
	l := newLeader(t, r, [2][]int64{{70, 30, 40, 20}, {0, 0, 0, 10}})
	cl := l.collector(r, nil)
	got, err := cl.Collect(t.Context(), day(cl))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(got)
	if want := `"table":{"rows":[{"label":"a","level":1,"cell":{"state":"value","estimate":70,"stderr":0,"interval95":[70,70]}},{"label":"a/b","level":2`; err != nil || !strings.Contains(string(b), want) {
		t.Errorf("%s, %v, want %s", b, err, want)
	}
	if b, err = json.Marshal(&Result{Guarantee: new(recipe.Guarantee)}); err != nil || strings.Contains(string(b), "table") {
		t.Errorf("%s, %v", b, err)
	}
}

// The 95 % interval holds the sum of two draws with that probability, by the exact law of
// the noise that is drawn.
func TestIntervalCovers(t *testing.T) {
	law := func(weight func(y float64) float64, reach int) []float64 {
		p, total := make([]float64, 2*reach+1), 0.0
		for i := range p {
			p[i] = weight(float64(i - reach))
			total += p[i]
		}
		for i := range p {
			p[i] /= total
		}
		return p
	}
	covered := func(p []float64, within float64) float64 {
		sum, center := 0.0, len(p)-1
		for i, a := range p {
			for j, b := range p {
				if math.Abs(float64(i+j-center)) <= within {
					sum += a * b
				}
			}
		}
		return sum
	}
	for _, num := range []uint64{1, 2, 3, 4, 6, 8, 11, 16, 23, 40, 80, 200, 1001, 4000} {
		v, err := recipe.NewRational(num, 4)
		if err != nil {
			t.Fatal(err)
		}
		s2 := v.Float()
		p := law(func(y float64) float64 { return math.Exp(-y * y / (2 * s2)) }, int(10*math.Sqrt(s2))+10)
		n := recipe.DiscreteGaussian{Variance: v, Share: recipe.DrawsAll}
		reach := math.Ceil(n.Spread().Reach95)
		if got := covered(p, reach); got < 0.95 || s2 > 100 && got > 0.96 {
			t.Errorf("Gaussian of variance %v: within %v with probability %v", s2, reach, got)
		}
		scale := recipe.DiscreteLaplace{Scale: v}
		p = law(func(y float64) float64 { return math.Exp(-math.Abs(y) / s2) }, int(40*s2)+10)
		if len(p) > 5000 {
			continue
		}
		reach = math.Ceil(scale.Spread().Reach95)
		if got := covered(p, reach); got < 0.95 || s2 > 10 && got > 0.97 {
			t.Errorf("Laplace of scale %v: within %v with probability %v", s2, reach, got)
		}
	}
}

// Until both shares are there the leader answers with an empty body; the collector asks
// again when told to.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRecipe(histogram, recipe.NoNoise{}, dap.TimeInterval)
		l := newLeader(t, r, [2][]int64{{1, 2, 3}, {0, 0, 0}})
		l.defers = 4
		var progress []Progress
		c := l.collector(r, func(o *Options) { o.Progress = func(p Progress) { progress = append(progress, p) } })
		begin := time.Now()
		got, err := c.Collect(t.Context(), day(c))
		if err != nil || !slices.Equal(got.Raw, []int64{1, 2, 3}) {
			t.Fatalf("%+v, %v", got, err)
		}
		want := []Progress{{1, 3 * time.Second, ""}, {2, 3 * time.Second, ""}, {3, 3 * time.Second, ForReports}}
		if !slices.Equal(progress, want) || time.Since(begin) != 9*time.Second {
			t.Errorf("progress %v after %v", progress, time.Since(begin))
		}
	})
}

// The Location only gives the job's id: the token goes nowhere but to the recipe's leader.
func TestLocation(t *testing.T) {
	for location, ok := range map[string]bool{
		"/v1/%s": true, "/%s": true, "https://leader.example/v1/%s": true, "https://evil.example/%s": true,
		"": false, "/v1/%s/": false, "/v1/%s%%2f": false, "/elsewhere": false,
	} {
		r := testRecipe(histogram, recipe.NoNoise{}, dap.TimeInterval)
		l := newLeader(t, r, [2][]int64{{1, 2, 3}, {0, 0, 0}})
		l.location = location
		if !strings.Contains(location, "%s") {
			l.location += "%.0s"
		}
		c := l.collector(r, nil)
		j, err := c.Start(t.Context(), day(c))
		if ok {
			if err != nil {
				t.Errorf("%q: %v", location, err)
				continue
			}
			j.state.Response = nil
			if _, err := j.Wait(t.Context()); err != nil { // the fake refuses other hosts
				t.Errorf("%q: %v", location, err)
			}
		} else if !errors.Is(err, ErrAnswer) {
			t.Errorf("%q: %v, want ErrAnswer", location, err)
		}
	}
}

func TestLeaderSelected(t *testing.T) {
	r := testRecipe(recipe.Count{}, recipe.NoNoise{}, dap.LeaderSelected)
	l := newLeader(t, r, [2][]int64{{1}, {0}}, [2][]int64{{2}, {0}}, [2][]int64{{3}, {0}})
	c := l.collector(r, nil)
	for want := int64(1); want <= 2; want++ {
		got, err := c.Collect(t.Context(), c.NextBatch())
		if err != nil || got.Raw[0] != want {
			t.Fatalf("batch %d: %+v, %v", want, got, err)
		}
	}
	if want := []string{"POST collection_jobs", "DELETE job-0", "POST collection_jobs", "DELETE job-1"}; !slices.Equal(l.requests, want) {
		t.Errorf("asked %v", l.requests)
	}

	// One job at a time.
	j, err := c.Start(t.Context(), c.NextBatch())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Start(t.Context(), c.NextBatch()); !errors.Is(err, ErrBusy) {
		t.Errorf("a second job: %v", err)
	}
	if _, err := c.Collect(t.Context(), c.NextBatch()); !errors.Is(err, ErrBusy) {
		t.Errorf("a second collection: %v", err)
	}
	if _, err := c.Resume(j.State()); !errors.Is(err, ErrBusy) {
		t.Errorf("a second resume: %v", err)
	}
	if err := j.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := j.Delete(t.Context()); err != nil {
		t.Errorf("deleting twice: %v", err)
	}
	if _, err := c.Start(t.Context(), c.NextBatch()); !errors.Is(err, &dap.Problem{Type: dap.ProblemInvalidBatchSize}) {
		t.Errorf("no batch left: %v", err)
	}
	if _, err := c.Start(t.Context(), c.NextBatch()); errors.Is(err, ErrBusy) {
		t.Error("a job that was never made is still in the way")
	}
}

// A collector that stops at any saved point goes on from there, and loses and repeats
// nothing.
func TestResume(t *testing.T) {
	for stopAfter := 1; stopAfter <= 2; stopAfter++ {
		synctest.Test(t, func(t *testing.T) {
			r := testRecipe(recipe.Count{}, gauss, dap.LeaderSelected)
			l := newLeader(t, r, [2][]int64{{1}, {0}}, [2][]int64{{2}, {0}})
			l.defers = 2
			stop := errors.New("stopped")
			var saved []byte
			saves := 0
			c := l.collector(r, func(o *Options) {
				o.Save = func(s State) error {
					var err error
					if saved, err = json.Marshal(s); err != nil {
						t.Error(err)
					}
					if saves++; saves == stopAfter {
						return stop
					}
					return nil
				}
			})
			if _, err := c.Collect(t.Context(), c.NextBatch()); !errors.Is(err, stop) {
				t.Fatalf("%v, want the error of Save", err)
			}

			var s State
			if err := json.Unmarshal(saved, &s); err != nil {
				t.Fatal(err)
			}
			c = l.collector(r, nil)
			j, err := c.Resume(s)
			if err != nil {
				t.Fatal(err)
			}
			asked := len(l.requests)
			got, err := j.Wait(t.Context())
			if err != nil || got.Raw[0] != 1 {
				t.Fatalf("%+v, %v", got, err)
			}
			if stopAfter == 2 && len(l.requests) != asked {
				t.Error("asked again for an answer that was saved")
			}
			again, err := j.Wait(t.Context())
			if err != nil || again.Raw[0] != 1 {
				t.Errorf("waited again: %+v, %v", again, err)
			}
			if err := j.Delete(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got, err := c.Collect(t.Context(), c.NextBatch()); err != nil || got.Raw[0] != 2 {
				t.Errorf("next batch: %+v, %v", got, err)
			}
		})
	}
}

func TestResumeRefuses(t *testing.T) {
	r := testRecipe(histogram, recipe.NoNoise{}, dap.TimeInterval)
	l := newLeader(t, r, [2][]int64{{1, 2, 3}, {0, 0, 0}})
	c := l.collector(r, nil)
	j, err := c.Start(t.Context(), day(c))
	if err != nil {
		t.Fatal(err)
	}
	good := j.State()
	if len(good.Response) == 0 {
		t.Fatal("no answer was kept")
	}
	if _, err := c.Resume(good); err != nil {
		t.Errorf("a good state: %v", err)
	}
	for name, change := range map[string]func(*State){
		"another recipe":    func(s *State) { s.Recipe = strings.Repeat("0", 64) },
		"no recipe":         func(s *State) { s.Recipe = "" },
		"cut request":       func(s *State) { s.Request = s.Request[:3] },
		"another query":     func(s *State) { s.Request, _ = dap.CollectionJobReq{Query: c.NextBatch()}.Append(nil) },
		"another interval":  func(s *State) { s.Request = bytes.Clone(s.Request); s.Request[10]++ },
		"path as job id":    func(s *State) { s.JobID = "../../x" },
		"no job id":         func(s *State) { s.JobID = "" },
		"damaged response":  func(s *State) { s.Response = bytes.Clone(s.Response); s.Response[len(s.Response)-1]++ },
		"truncated respons": func(s *State) { s.Response = s.Response[:20] },
	} {
		s := good
		change(&s)
		if _, err := c.Resume(s); !errors.Is(err, ErrState) {
			t.Errorf("%s: %v, want ErrState", name, err)
		}
	}
}

// An answer that the recipe or the query does not allow is refused, and not saved.
func TestBadAnswers(t *testing.T) {
	for name, change := range map[string]func(*dap.CollectionJobResp){
		"fewer than the minimum": func(r *dap.CollectionJobResp) { r.ReportCount = 9 },
		"absurdly many":          func(r *dap.CollectionJobResp) { r.ReportCount = 1 << 63 },
		"empty interval":         func(r *dap.CollectionJobResp) { r.Interval.Duration = 0 },
		"endless interval":       func(r *dap.CollectionJobResp) { r.Interval.Duration = math.MaxUint64 },
		"before the query":       func(r *dap.CollectionJobResp) { r.Interval.Start-- },
		"after the query":        func(r *dap.CollectionJobResp) { r.Interval.Duration = 25 },
		"shares swapped":         func(r *dap.CollectionJobResp) { r.Leader, r.Helper = r.Helper, r.Leader },
		"one share twice":        func(r *dap.CollectionJobResp) { r.Helper = r.Leader },
		"key id":                 func(r *dap.CollectionJobResp) { r.Leader.ConfigID++ },
		"damaged share":          func(r *dap.CollectionJobResp) { r.Helper.Payload[0]++ },
		"short encapsulation":    func(r *dap.CollectionJobResp) { r.Helper.Enc = r.Helper.Enc[:31] },
	} {
		t.Run(name, func(t *testing.T) {
			r := testRecipe(histogram, recipe.NoNoise{}, dap.TimeInterval)
			l := newLeader(t, r, [2][]int64{{1, 2, 3}, {0, 0, 0}})
			l.change = change
			c := l.collector(r, func(o *Options) {
				o.Save = func(s State) error {
					if len(s.Response) > 0 {
						t.Error("a bad answer was saved")
					}
					return nil
				}
			})
			if _, err := c.Collect(t.Context(), day(c)); !errors.Is(err, ErrAnswer) {
				t.Errorf("%v, want ErrAnswer", err)
			}
		})
	}
	// A share of the wrong length that is sealed properly.
	r := testRecipe(histogram, recipe.NoNoise{}, dap.TimeInterval)
	l := newLeader(t, r, [2][]int64{{1, 2, 3}, {0, 0, 0}})
	c := l.collector(r, nil)
	body, err := dap.CollectionJobReq{Query: day(c)}.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	short, err := dap.Seal(dap.NewHpkeConfig(l.key), l.task.Version.AggregateShareInfo(dap.RoleHelper),
		dap.AggregateShareAAD(l.task.TaskID(), l.task.Bytes(), body), make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	l.change = func(resp *dap.CollectionJobResp) { resp.Helper = short }
	if _, err := c.Collect(t.Context(), day(c)); !errors.Is(err, ErrAnswer) {
		t.Errorf("a short share: %v", err)
	}
}

func TestWindow(t *testing.T) {
	r := testRecipe(recipe.Count{}, recipe.NoNoise{}, dap.LeaderSelected)
	r.Window = recipe.Between{Start: start, End: start + 1}
	l := newLeader(t, r, [2][]int64{{1}, {0}}) // its batch spans two units
	c := l.collector(r, nil)
	if _, err := c.Collect(t.Context(), c.NextBatch()); !errors.Is(err, ErrAnswer) {
		t.Errorf("a batch outside the window: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	r := testRecipe(histogram, recipe.NoNoise{}, dap.TimeInterval)
	for _, c := range []struct {
		name   string
		answer func(http.ResponseWriter)
		want   func(error) bool
	}{
		{"overlap", func(w http.ResponseWriter) { problem(w, &dap.Problem{Type: dap.ProblemBatchOverlap}) },
			func(err error) bool { return errors.Is(err, &dap.Problem{Type: dap.ProblemBatchOverlap}) }},
		{"token", func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) },
			func(err error) bool {
				var s *StatusError
				return errors.As(err, &s) && s.Status == 401
			}},
		{"endless answer", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", dap.ContentType(dap.MediaCollectionJobResp))
			w.Write(make([]byte, 1<<20))
		}, func(err error) bool { return errors.Is(err, ErrAnswer) }},
		{"no location", func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated) },
			func(err error) bool { return errors.Is(err, ErrAnswer) }},
	} {
		l := newLeader(t, r)
		l.intercept = func(w http.ResponseWriter, _ *http.Request) bool {
			c.answer(w)
			return true
		}
		cl := l.collector(r, nil)
		if _, err := cl.Collect(t.Context(), day(cl)); !c.want(err) || len(l.requests) != 1 {
			t.Errorf("%s: %v after %v", c.name, err, l.requests)
		}
	}
}

// A failed job keeps its error until it is deleted; the error of a task that is unknown
// is no deletion.
func TestDelete(t *testing.T) {
	r := testRecipe(recipe.Count{}, recipe.NoNoise{}, dap.LeaderSelected)
	l := newLeader(t, r, [2][]int64{{1}, {0}})
	c := l.collector(r, nil)
	j, err := c.Start(t.Context(), c.NextBatch())
	if err != nil {
		t.Fatal(err)
	}
	l.intercept = func(w http.ResponseWriter, _ *http.Request) bool {
		problem(w, &dap.Problem{Type: dap.ProblemUnrecognizedTask, Status: 404})
		return true
	}
	if err := j.Delete(t.Context()); !errors.Is(err, &dap.Problem{Type: dap.ProblemUnrecognizedTask}) {
		t.Error(err)
	}
	if _, err := c.Start(t.Context(), c.NextBatch()); !errors.Is(err, ErrBusy) {
		t.Errorf("after a failed deletion: %v", err)
	}
}

// TestDeleteWaits: a leader that is just releasing the batch keeps the job, and says when
// to come again.
func TestDeleteWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRecipe(recipe.Count{}, recipe.NoNoise{}, dap.LeaderSelected)
		l := newLeader(t, r, [2][]int64{{1}, {0}}, [2][]int64{{2}, {0}})
		c := l.collector(r, nil)
		j, err := c.Start(t.Context(), c.NextBatch())
		if err != nil {
			t.Fatal(err)
		}
		refusals := 2
		l.intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != "DELETE" || refusals == 0 {
				return false
			}
			refusals--
			w.Header().Set("Retry-After", "7")
			problem(w, &dap.Problem{Status: 503, Detail: "the batch is being released; delete the job afterwards"})
			return true
		}
		began := time.Now()
		if err := j.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); refusals != 0 || waited < 14*time.Second {
			t.Errorf("deleted after %v, with %d refusals to come", waited, refusals)
		}
		next, err := c.Start(t.Context(), c.NextBatch())
		if err != nil || next.State().JobID == j.State().JobID {
			t.Errorf("the next batch: %v", err)
		}
	})
}

func TestInterval(t *testing.T) {
	r := testRecipe(histogram, recipe.NoNoise{}, dap.TimeInterval)
	c := newLeader(t, r).collector(r, nil)
	hour := time.Unix(int64(start)*3600, 0)
	q, err := c.Interval(hour, hour.Add(3*time.Hour))
	if err != nil || q.Interval != (dap.Interval{Start: start, Duration: 3}) {
		t.Errorf("%v, %v", q, err)
	}
	for _, bad := range [][2]time.Time{
		{hour, hour}, {hour.Add(time.Hour), hour}, {hour, hour.Add(time.Second)}, {hour.Add(time.Nanosecond), hour.Add(time.Hour)},
		{time.Unix(-3600, 0), hour},
	} {
		if _, err := c.Interval(bad[0], bad[1]); !errors.Is(err, ErrQuery) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	for _, q := range []dap.Query{c.NextBatch(), {}, {Mode: dap.TimeInterval}} {
		if _, err := c.Start(t.Context(), q); !errors.Is(err, ErrQuery) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// TestRounds: what is no batch of the recipe is not asked for, the error says what is,
// and the result is of the whole round.
func TestRounds(t *testing.T) {
	r := testRecipe(histogram, recipe.DiscreteGaussian{Variance: recipe.Rational{Num: 1, Den: 1}, Share: recipe.DrawsAll}, dap.TimeInterval)
	r.Rounds = &recipe.Rounds{Units: 24}
	claim := r.Claim.(recipe.ApproxDP)
	claim.Rounds = 2
	r.Claim = claim
	l := newLeader(t, r, [2][]int64{{1, 2, 3}, {4, 5, 6}})
	// as all reports say
	l.change = func(resp *dap.CollectionJobResp) { resp.Interval = dap.Interval{Start: start, Duration: 1} }
	c := l.collector(r, nil)
	at := func(unit uint64) time.Time { return time.Unix(int64(uint64(start)+unit)*3600, 0).UTC() }
	for _, bad := range [][2]uint64{{0, 1}, {0, 48}, {1, 25}, {13, 14}} {
		q, err := c.Interval(at(bad[0]), at(bad[1]))
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Start(t.Context(), q)
		var batch *recipe.BatchError
		if !errors.Is(err, ErrQuery) || !errors.As(err, &batch) || !strings.Contains(err.Error(), "ask for "+at(0).Format(time.RFC3339)+" to "+at(24).Format(time.RFC3339)) {
			t.Errorf("hours %v: %v", bad, err)
		}
	}
	if len(l.requests) > 0 {
		t.Errorf("the leader was asked: %v", l.requests)
	}
	if _, err := c.Interval(at(5).Add(time.Minute), at(24)); !errors.Is(err, ErrQuery) || !strings.Contains(err.Error(), "in the round from "+at(0).Format(time.RFC3339)) {
		t.Errorf("from the middle of an hour: %v", err)
	}
	q, err := c.Interval(at(0), at(24))
	if err != nil {
		t.Fatal(err)
	}
	result, err := c.Collect(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if !result.From.Equal(at(0)) || !result.To.Equal(at(24)) {
		t.Errorf("the result is of %v to %v", result.From, result.To)
	}
}

func TestNewRefuses(t *testing.T) {
	key, err := sealed.Generate(1, sealed.SuiteX25519)
	if err != nil {
		t.Fatal(err)
	}
	r := testRecipe(histogram, recipe.NoNoise{}, dap.TimeInterval)
	good := Options{Recipe: encode(t, r), Token: "t", Key: key}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	r.MinBatch = 1
	invalid := encode(t, r)
	for name, change := range map[string]func(*Options){
		"no recipe":          func(o *Options) { o.Recipe = nil },
		"malformed recipe":   func(o *Options) { o.Recipe = o.Recipe[1:] },
		"invalid recipe":     func(o *Options) { o.Recipe = invalid },
		"no token":           func(o *Options) { o.Token = "" },
		"no key":             func(o *Options) { o.Key = nil },
		"negative poll":      func(o *Options) { o.Poll = -1 },
		"poll above maximum": func(o *Options) { o.Poll, o.MaxPoll = time.Minute, time.Second },
	} {
		o := good
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
