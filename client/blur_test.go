package client

import (
	"errors"
	"math"
	"testing"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/sealed"
)

// blurred is a recipe whose devices blur their answers.
func blurred(q recipe.Query, z recipe.Randomizer) *recipe.Recipe {
	r := testRecipe(q)
	r.Randomizer, r.MinBatch = z, 1000
	r.Claim = recipe.ApproxDP{
		Epsilon: recipe.Decimal{Coefficient: 2, Scale: 0}, Delta: recipe.Decimal{Coefficient: 1, Scale: 6},
		Neighbours: r.Neighbours(), HonestServers: 1, Rounds: 1,
	}
	return r
}

// sampled is a recipe of coins, which has dummies.
func sampled(q recipe.Query) *recipe.Recipe {
	r := testRecipe(q)
	r.Participation, r.MinBatch = recipe.Bernoulli{Rate: recipe.Rational{Num: 1, Den: 2}}, 20
	r.Rate = &recipe.Rate{Devices: 1000, Units: 1}
	r.Dummies = &recipe.Dummies{Rate: recipe.Rational{Num: 1, Den: 4}, Senders: 1000, Allowance: 270}
	r.Relay = &recipe.Relay{URL: "https://relay.example/", Gateway: "https://leader.example/g"}
	r.Noise = recipe.DiscreteGaussian{Variance: recipe.Rational{Num: 500, Den: 1}, Share: recipe.DrawsAll}
	r.Claim = recipe.ApproxDP{
		Epsilon: recipe.Decimal{Coefficient: 2, Scale: 0}, Delta: recipe.Decimal{Coefficient: 1, Scale: 6},
		Neighbours: release.AddRemove, HonestServers: 1, Rounds: 1,
	}
	return r
}

// What randomizers make passes the proof, and debiases to what went in: one-hot for
// randomized response, bounded weight for RAPPOR, dummies among them. Each sum lies
// within 6 standard deviations: a false alarm once in 5e8 sums.
func TestBlurredReports(t *testing.T) {
	const n, k = 600, 4
	epsilon := recipe.Decimal{Coefficient: 1, Scale: 0}
	e := math.E
	for _, c := range []struct {
		name       string
		r          *recipe.Recipe
		answer     Value
		keep, lie  float64
		none       float64
		exactTotal bool
	}{
		{"krr", blurred(recipe.Histogram{Length: k, Chunk: 2}, recipe.KRR{Epsilon0: epsilon}), Bucket(1), e / (e + k - 1), 1 / (e + k - 1), 1. / k, true},
		{"rappor", blurred(recipe.Multihot{Length: k, MaxWeight: k, Chunk: 3}, recipe.RAPPOR{Epsilon0: epsilon}), Vector([]uint64{0, 1, 0, 0}),
			e / (e + 1), 1 / (e + 1), 1 / (e + 1), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServers(t, c.r)
			cl := s.client(nil)
			for i := range n {
				v := c.answer
				if i%2 == 1 {
					v = NoValue()
				}
				if err := cl.Report(t.Context(), v); err != nil {
					t.Fatal(err)
				}
			}
			total := int64(0)
			for i, got := range s.sums() {
				p := c.lie
				if i == 1 {
					p = c.keep
				}
				mean, sd := n/2*(p+c.none), math.Sqrt(n/2*(p*(1-p)+c.none*(1-c.none)))
				if math.Abs(float64(got)-mean) > 6*sd {
					t.Errorf("place %d: %d, want %.1f +- %.1f", i, got, mean, sd)
				}
				total += got
			}
			if c.exactTotal && total != n {
				t.Errorf("%d ones in %d one-hot reports", total, n)
			}
			estimate, err := c.r.Estimate(s.sums(), n)
			if err != nil {
				t.Fatal(err)
			}
			if c.name == "rappor" && math.Abs(estimate.Values[1]-n/2) > 6*estimate.StdDev[1] { // the total count debiases dummies
				t.Errorf("estimated %v +- %v, want %d", estimate.Values[1], estimate.StdDev[1], n/2)
			}
			var bad *ValueError
			for _, v := range []Value{Bool(true), Bucket(k), Vector([]uint64{1, 1, 0, 0}), Vector([]uint64{1})} {
				if err := cl.Report(t.Context(), v); !errors.As(err, &bad) {
					t.Errorf("a bad value gives %v", err)
				}
			}
		})
	}
}

// Dummies add nothing where the servers add the noise, and cannot be told from answers by
// their size.
func TestDummiesAddNothing(t *testing.T) {
	for _, c := range []struct {
		query  recipe.Query
		answer Value
		kind   recipe.Answer
	}{
		{recipe.Count{}, Bool(true), recipe.OtherAnswer},
		{recipe.Sum{Max: 10}, Number(7), recipe.OtherAnswer},
		{recipe.Mean{Max: 10}, Number(7), recipe.OtherAnswer},
		{recipe.Multihot{Length: 4, MaxWeight: 1, Chunk: 3}, Vector([]uint64{0, 0, 1, 0}), recipe.OtherAnswer},
		{recipe.SumVec{Length: 3, Max: 5, Chunk: 4}, Vector([]uint64{5, 0, 1}), recipe.OtherAnswer},
		{recipe.L1BoundSum{Length: 3, Max: 6, Chunk: 4}, Vector([]uint64{5, 0, 1}), recipe.OtherAnswer},
	} {
		s := newServers(t, sampled(c.query))
		cl := s.client(nil)
		if err := cl.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		var reports []dap.Report
		for _, v := range []Value{c.answer, NoValue(), NoValue()} {
			r, err := cl.Prepare(v, now)
			if err != nil {
				t.Fatal(err)
			}
			reports = append(reports, r)
		}
		if reports[0].Size() != reports[1].Size() {
			t.Errorf("%T: an answer has %d bytes, a dummy %d", c.query, reports[0].Size(), reports[1].Size())
		}
		if _, err := cl.Upload(t.Context(), reports); err != nil {
			t.Fatal(err)
		}
		got := s.sums()
		var want []uint64
		if c.answer.kind == isVector {
			want = c.answer.vector
		} else {
			want = []uint64{c.answer.number}
		}
		for i := range want {
			if got[i] != int64(want[i]) {
				t.Errorf("%T: sums %v with dummies, want %v", c.query, got, want)
			}
		}
		if kind, err := cl.Kind(c.answer); kind != c.kind || err != nil {
			t.Errorf("%T: kind %v, %v", c.query, kind, err)
		}
		if kind, err := cl.Kind(NoValue()); kind != recipe.NoAnswer || err != nil {
			t.Errorf("%T: no answer is of kind %v, %v", c.query, kind, err)
		}
		if err := cl.Report(t.Context(), c.answer); !errors.Is(err, ErrCoins) {
			t.Errorf("%T: sent without a coin: %v", c.query, err)
		}
	}
	// Where every device answers as it is, nobody sends nothing.
	var bad *ValueError
	for _, q := range []recipe.Query{recipe.Count{}, recipe.Histogram{Length: 4, Chunk: 2}} {
		if err := newServers(t, testRecipe(q)).client(nil).Report(t.Context(), NoValue()); !errors.As(err, &bad) {
			t.Errorf("%T: %v", q, err)
		}
	}
}

func TestKindOfNeedle(t *testing.T) {
	r := sampled(recipe.Multihot{Length: 4, MaxWeight: 1, Chunk: 3})
	r.Participation = recipe.Importance{Default: recipe.Rational{Num: 1, Den: 4}, Other: recipe.Rational{Num: 1, Den: 2}}
	r.Cover = &recipe.Cover{Rate: recipe.Rational{Num: 1, Den: 1}}
	cl := newServers(t, r).client(nil)
	for i, want := range []recipe.Answer{recipe.OtherAnswer, recipe.OtherAnswer, recipe.OtherAnswer, recipe.OtherAnswer, recipe.DefaultAnswer} {
		v := make([]uint64, 5)
		v[i] = 1
		if got, err := cl.Kind(Vector(v[:4])); got != want || err != nil {
			t.Errorf("%v: %v, %v", v[:4], got, err)
		}
	}
	var bad *ValueError
	if _, err := cl.Kind(Vector([]uint64{1, 1, 0, 0})); !errors.As(err, &bad) {
		t.Error("two bits", err)
	}
}

// A recipe that asks for X-Wing is sealed to X-Wing keys or not at all.
func TestKEM(t *testing.T) {
	xwing, err := sealed.Generate(3, sealed.SuiteXWing)
	if err != nil {
		t.Fatal(err)
	}
	list := func(keys ...*sealed.KeyPair) func(dap.Role) []byte {
		var l dap.HpkeConfigList
		for _, k := range keys {
			l = append(l, dap.NewHpkeConfig(k))
		}
		b, err := l.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		return func(dap.Role) []byte { return b }
	}
	r := sampled(recipe.Count{})
	r.KEM = recipe.XWing
	s := newServers(t, r)
	cl := s.client(nil)
	s.configs = list(s.leader)
	var keys *KeysError
	if err := cl.Refresh(t.Context()); !errors.As(err, &keys) || !errors.Is(err, sealed.ErrSuite) {
		t.Errorf("X25519 instead of X-Wing: %v", err)
	}
	s.configs = list(s.leader, xwing)
	if err := cl.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	made, err := cl.Prepare(NoValue(), now)
	if err != nil {
		t.Fatal(err)
	}
	if made.Leader.ConfigID != 3 || made.Helper.ConfigID != 3 || len(made.Leader.Enc) != 1120 {
		t.Errorf("sealed to key %d, %d, encapsulation of %d bytes", made.Leader.ConfigID, made.Helper.ConfigID, len(made.Leader.Enc))
	}
}

// B, the coins and all else that a recipe says are bound into every share: a server that
// was given another recipe, or gives out another, opens nothing.
func TestRecipeIsBoundIntoShares(t *testing.T) {
	r := sampled(recipe.Count{})
	s := newServers(t, r)
	cl := s.client(nil)
	if err := cl.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	made, err := cl.Prepare(Bool(true), now)
	if err != nil {
		t.Fatal(err)
	}
	open := func(r *recipe.Recipe) error {
		task, err := r.Task()
		if err != nil {
			t.Fatal(err)
		}
		aad := dap.InputShareAAD(task.TaskID(), task.Bytes(), &made.Metadata, made.PublicShare)
		_, err = s.leader.Open(made.Leader.Enc, s.task.Version.InputShareInfo(dap.RoleLeader), aad, made.Leader.Payload)
		return err
	}
	if err := open(r); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*recipe.Recipe){
		"a smaller B":   func(r *recipe.Recipe) { r.MinBatch-- },
		"another rate":  func(r *recipe.Recipe) { r.Participation = recipe.Bernoulli{Rate: recipe.Rational{Num: 1, Den: 3}} },
		"fewer dummies": func(r *recipe.Recipe) { r.Dummies.Rate = recipe.Rational{Num: 1, Den: 5} },
		"another relay": func(r *recipe.Recipe) { r.Relay.URL = "https://other.example/" },
		"less noise": func(r *recipe.Recipe) {
			r.Noise = recipe.DiscreteGaussian{Variance: recipe.Rational{Num: 1, Den: 1}, Share: recipe.DrawsAll}
		},
		"another query":    func(r *recipe.Recipe) { r.Query = recipe.Sum{Max: 1} },
		"a larger epsilon": func(r *recipe.Recipe) { c := r.Claim.(recipe.ApproxDP); c.Epsilon.Coefficient++; r.Claim = c },
		"another name":     func(r *recipe.Recipe) { r.Name = "something harmless" },
	} {
		other := sampled(recipe.Count{})
		change(other)
		if err := open(other); !errors.Is(err, sealed.ErrOpen) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What projective geometry response makes passes the proof of one point of all, and
// debiases to the buckets that went in: each estimate lies within 6 of its standard
// deviations (a false alarm once in 5e8). A dummy passes too.
func TestProjectiveReports(t *testing.T) {
	const n, k = 600, 4
	r := blurred(recipe.Histogram{Length: 57, Chunk: 8}, recipe.PGR{Epsilon0: recipe.Decimal{Coefficient: 2}, Values: k, Field: 7, Dimension: 3})
	s := newServers(t, r)
	cl := s.client(nil)
	for i := range n {
		if err := cl.Report(t.Context(), Bucket(uint32(1+2*(i%2)))); err != nil {
			t.Fatal(err)
		}
	}
	points := func() (total int64) {
		for _, x := range s.sums() {
			total += x
		}
		return total
	}
	if got := points(); got != n {
		t.Errorf("%d ones in %d one-hot reports", got, n)
	}
	e, err := r.Estimate(s.sums(), n)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range e.Values {
		want := float64(i%2) * n / 2
		if math.Abs(v-want) > 6*e.StdDev[i] || len(e.Values) != k {
			t.Errorf("bucket %d: %v +- %v, want %v", i, v, e.StdDev[i], want)
		}
	}
	if err := cl.Report(t.Context(), NoValue()); err != nil || points() != n+1 {
		t.Errorf("a dummy: %v, %d reports", err, points())
	}
	var bad *ValueError
	for _, v := range []Value{Bool(true), Bucket(k), Bucket(56), Number(1), Vector([]uint64{1})} {
		if err := cl.Report(t.Context(), v); !errors.As(err, &bad) {
			t.Errorf("a bad value gives %v", err)
		}
	}
}
