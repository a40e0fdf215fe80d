package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
)

var inf = math.Inf(1)

var hierarchy = recipe.Hierarchy{Places: []recipe.TreePlace{
	{Depth: 1, Label: "a"}, {Depth: 2, Label: "b"}, {Depth: 2, Label: "c"}, {Depth: 1, Label: "d", Rest: true}}, Chunk: 3}

// hitters has one row, whose cells are all strings of two letters at most, hashed.
var (
	hitters     = recipe.HeavyHitters{Alphabet: "ab", Letters: 2, Step: 2, Checks: 1, Width: 5, Chunk: 3}
	wantHitters = func() []int64 {
		sums := make([]int64, 5)
		for _, letters := range [][]uint64{{1, 2}, {1, 2}, {0, 0}} {
			for i, mark := range hitters.Marks(letters) {
				if mark {
					sums[i]++
				}
			}
		}
		return sums
	}()
)

var (
	counted     = recipe.Norm{Keyed: recipe.Keyed{Width: 4, Chunk: 2}}
	wantCounted = func() []int64 {
		sums, numbers := make([]int64, 4), []uint64(nil)
		numbers, _ = counted.Spell("wren")
		for i, mark := range counted.Marks(numbers) {
			if mark {
				sums[i] = 2
			}
		}
		return sums
	}()
)

// textOf answers a query by a text.
func textOf(q recipe.Tabled, text string) Value {
	v, err := Text(q, text)
	if err != nil {
		panic(err)
	}
	return v
}

// TestText: a text that is no answer is refused, and the refusal keeps it to itself.
func TestText(t *testing.T) {
	_, err := Text(hierarchy, "a/secret")
	if bad := new(ValueError); !errors.As(err, &bad) || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "a/b") {
		t.Errorf("%v", err)
	}
	s := newServers(t, testRecipe(hierarchy))
	for _, v := range []Value{Number(1), Bucket(1), ValueOf(recipe.Text, []uint64{3}), ValueOf(recipe.Text, nil)} {
		if err := s.client(nil).Report(t.Context(), v); err == nil {
			t.Errorf("%v is taken for a leaf", v)
		}
	}
}

// Every query's answers reach the aggregators as they were given, verified by the real
// VDAF.
func TestReport(t *testing.T) {
	for _, c := range []struct {
		query  recipe.Query
		values []Value
		want   []int64
	}{
		{recipe.Count{}, []Value{Bool(true), Bool(false), Bool(true)}, []int64{2}},
		{recipe.Sum{Max: 10}, []Value{Number(0), Number(10), Number(7)}, []int64{17}},
		{recipe.Mean{Max: 255}, []Value{Number(255), Number(1)}, []int64{256}},
		{recipe.Histogram{Length: 4, Chunk: 2}, []Value{Bucket(0), Bucket(3), Bucket(3)}, []int64{1, 0, 0, 2}},
		{recipe.Multihot{Length: 4, MaxWeight: 2, Chunk: 3}, []Value{
			Vector([]uint64{1, 0, 0, 1}), Vector([]uint64{0, 0, 0, 1}), Vector([]uint64{0, 0, 0, 0}),
		}, []int64{1, 0, 0, 2}},
		{recipe.Quantiles{Min: 2, Max: 7, Width: 2, Branching: 2, Chunk: 3}, []Value{Number(0), Number(3), Number(4), Number(1 << 63)}, []int64{3, 1, 2, 1, 1}},
		// what is above -2 in three groups, and what is below 5
		{recipe.GroupSums{Min: -2, Max: 5, Groups: 3, Chunk: 4}, []Value{InGroup(-2, 0), InGroup(5, 2), InGroup(-1, 2), InGroup(0, 0)}, []int64{2, 0, 8, 12, 0, 6}},
		{hierarchy, []Value{textOf(hierarchy, "a/b"), textOf(hierarchy, "a/b"), textOf(hierarchy, "d"), textOf(hierarchy, "x/y")}, []int64{2, 2, 0, 2}},
		{hitters, []Value{textOf(hitters, "ab"), textOf(hitters, "abba"), textOf(hitters, "")}, wantHitters},
		{counted, []Value{textOf(counted, "wren"), textOf(counted, "wren")}, wantCounted},
		{recipe.SumVec{Length: 3, Max: 5, Chunk: 4}, []Value{Vector([]uint64{5, 0, 1}), Vector([]uint64{5, 2, 0})}, []int64{10, 2, 1}},
		{recipe.L1BoundSum{Length: 3, Max: 6, Chunk: 4}, []Value{Vector([]uint64{5, 0, 1}), Vector([]uint64{0, 6, 0}), Vector(make([]uint64, 3))},
			[]int64{5, 6, 1}},
	} {
		t.Run(fmt.Sprintf("%T", c.query), func(t *testing.T) {
			s := newServers(t, testRecipe(c.query))
			cl := s.client(nil)
			for _, v := range c.values {
				if err := cl.Report(t.Context(), v); err != nil {
					t.Fatal(err)
				}
			}
			if got := s.sums(); !slices.Equal(got, c.want) {
				t.Errorf("sum %v, want %v", got, c.want)
			}
			if s.fetches[dap.RoleLeader] != 1 || s.fetches[dap.RoleHelper] != 1 {
				t.Errorf("keys fetched %v times", s.fetches)
			}
			for _, unit := range s.times {
				if want := dap.Time(now.Unix() / 3600); unit != want {
					t.Errorf("report time %d, want %d: the precision's unit", unit, want)
				}
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	good := noisy(testRecipe(recipe.Histogram{Length: 4, Chunk: 2}), "2")
	bytes := encode(t, good)
	unknown := slices.Clone(bytes)
	unknown[0] = 2
	certify := func(r *recipe.Recipe) []byte {
		b, err := account.Certify(r)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	quieter := noisy(testRecipe(recipe.Histogram{Length: 4, Chunk: 2}), "2")
	quieter.Noise = recipe.DiscreteGaussian{Variance: recipe.Rational{Num: 500, Den: 1}, Share: recipe.DrawsAll}
	certified, stronger, bare := certify(good), certify(quieter), encode(t, testRecipe(recipe.Count{}))
	file := func(parts ...[]byte) Options {
		return Options{AnyKeys: true, Recipe: slices.Concat(parts...), MaxEpsilon: inf}
	}
	change := func(f func(*recipe.Recipe)) *recipe.Recipe {
		r := sampled(recipe.Count{})
		f(r)
		return r
	}
	for _, c := range []struct {
		name   string
		o      Options
		reason Reason
	}{
		{"no recipe at all", Options{Prover: account.Prover, Recipe: []byte("hello")}, ReasonMalformed},
		{"a cut recipe", Options{Prover: account.Prover, Recipe: bytes[:20]}, ReasonMalformed},
		{"another version", Options{Prover: account.Prover, Recipe: unknown}, ReasonUnknown},
		{"out of bounds", Options{Prover: account.Prover, Recipe: encode(t, func() *recipe.Recipe {
			r := testRecipe(recipe.Histogram{Length: 4, Chunk: 2})
			r.MinBatch = 1
			return r
		}())}, ReasonInvalid},
		{"a false claim", Options{Prover: account.Prover, Recipe: encode(t, noisy(testRecipe(recipe.Histogram{Length: 4, Chunk: 2}), "0.5"))}, ReasonClaim},
		{"no privacy", Options{Prover: account.Prover, Recipe: encode(t, testRecipe(recipe.Count{}))}, ReasonEpsilon},
		{"no privacy, a bound", Options{Prover: account.Prover, Recipe: encode(t, testRecipe(recipe.Count{})), MaxEpsilon: 1e6}, ReasonEpsilon},
		{"coins without dummies", Options{Prover: account.Prover, Recipe: encode(t, change(func(r *recipe.Recipe) { r.Dummies = nil }))}, ReasonInvalid},
		{"a sample of a few", Options{Prover: account.Prover, Recipe: encode(t, change(func(r *recipe.Recipe) { r.MinBatch = 5 }))}, ReasonInvalid},
		{"the leader's own relay", Options{Prover: account.Prover, Recipe: encode(t, change(func(r *recipe.Recipe) {
			r.Relay.URL = "https://leader.example/relay"
		}))}, ReasonInvalid},
		{"aimed at one person", Options{Prover: account.Prover, Recipe: encode(t, change(func(r *recipe.Recipe) {
			r.Targeting = &recipe.Targeting{
				Clauses:     []recipe.Clause{{Attribute: recipe.AppVersion, Values: []string{"9.9-for-alice"}}},
				Certificate: recipe.Certificate{Recipe: recipe.ID{1}, Entry: recipe.Hash{1}, LowerBound: 1},
			}
		}))}, ReasonInvalid},
		{"an epsilon that the rate does not bear out", Options{Prover: account.Prover, Recipe: encode(t, change(func(r *recipe.Recipe) {
			r.Participation, r.Dummies.Allowance = recipe.Bernoulli{Rate: recipe.Rational{Num: 9, Den: 10}}, 260
			r.Noise = recipe.DiscreteGaussian{Variance: recipe.Rational{Num: 5, Den: 1}, Share: recipe.DrawsAll}
		}))}, ReasonClaim},
		{"too little privacy", Options{Prover: account.Prover, Recipe: bytes, MaxEpsilon: 1}, ReasonEpsilon},
		{"small batches", Options{Prover: account.Prover, Recipe: bytes, MinBatch: 3}, ReasonBatch},
		{"no certificate", file(bytes), ReasonCertificate},
		{"noise for a certificate", file(bytes, []byte("true")), ReasonCertificate},
		{"half a certificate", file(bytes, certified[:len(certified)/2]), ReasonCertificate},
		{"a certificate and a byte", file(bytes, certified, []byte{0}), ReasonCertificate},
		{"two certificates", file(bytes, certified, certified), ReasonCertificate},
		{"a certificate of more noise", file(bytes, stronger), ReasonCertificate},
		{"a certificate of a recipe that has none", file(bare, certified), ReasonCertificate},
		{"a cut recipe with its certificate", file(bytes[:20], certified), ReasonMalformed},
		{"another version with a certificate", file(unknown, certified), ReasonUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := New(c.o)
			var refused *RefusedError
			if !errors.As(err, &refused) || refused.Reason != c.reason {
				t.Errorf("%v, want reason %s", err, c.reason)
			}
		})
	}
	if _, err := New(Options{AnyKeys: true, Prover: account.Prover, Recipe: bytes}); err != nil {
		t.Errorf("a finite guarantee is refused: %v", err)
	}
	c, err := New(file(bytes, certified))
	if err != nil {
		t.Fatalf("the recipe's own certificate is refused: %v", err)
	}
	id, err := good.ID()
	if g := c.Guarantee(); err != nil || c.RecipeID() != id || !(g.Epsilon > 1 && g.Epsilon < 1.2) || g.Unconditional != g.Loss {
		t.Errorf("certified %+v of %v", g, c.RecipeID())
	}
	if _, err := New(file(bare)); err != nil {
		t.Errorf("a recipe that claims nothing, without a certificate: %v", err)
	}
	if c, err := New(Options{AnyKeys: true, Prover: account.Prover, Recipe: bytes, MaxEpsilon: 1.2, MinBatch: 2}); err != nil {
		t.Errorf("a recipe within bounds is refused: %v", err)
	} else if g := c.Guarantee(); !(g.Epsilon > 1 && g.Epsilon < 1.2) {
		t.Errorf("guarantee %v", g.Loss)
	}
	for _, o := range []Options{
		{}, {Prover: account.Prover, Recipe: bytes, MaxEpsilon: -1}, {Recipe: bytes, MaxEpsilon: math.NaN()}, {Recipe: bytes, Attempts: -1},
		{Recipe: bytes, MaxRequest: -1},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("options %+v accepted", o)
		}
	}
}

func TestValuesAreChecked(t *testing.T) {
	for _, c := range []struct {
		query  recipe.Query
		values []Value
	}{
		{recipe.Count{}, []Value{{}, Number(1), Bucket(0), Vector([]uint64{1})}},
		{recipe.Sum{Max: 10}, []Value{{}, Number(11), Number(math.MaxUint64), Bool(true)}},
		{recipe.Mean{Max: 10}, []Value{Number(11), Bucket(1)}},
		{recipe.Histogram{Length: 4, Chunk: 2}, []Value{Bucket(4), Bucket(math.MaxUint32), Number(1)}},
		{recipe.Multihot{Length: 3, MaxWeight: 1, Chunk: 2}, []Value{
			Vector(nil), Vector([]uint64{1, 0}), Vector([]uint64{1, 1, 0}), Vector([]uint64{2, 0, 0}), Bucket(1),
		}},
		{recipe.SumVec{Length: 2, Max: 5, Chunk: 4}, []Value{Vector([]uint64{6, 0}), Vector([]uint64{1}), Number(1)}},
		{recipe.L1BoundSum{Length: 2, Max: 5, Chunk: 4}, []Value{Vector([]uint64{6, 0}), Vector([]uint64{3, 3}), Vector([]uint64{math.MaxUint64, 1}),
			Vector([]uint64{1}), Number(1)}},
		{recipe.GroupSums{Min: -2, Max: 5, Groups: 3, Chunk: 4}, []Value{InGroup(-3, 0), InGroup(6, 0), InGroup(0, 3), InGroup(math.MinInt64, 1),
			InGroup(math.MaxInt64, 1), InGroup(0, math.MaxUint32), Number(1), Vector([]uint64{1, 1}), Vector(make([]uint64, 6)), {}}},
	} {
		s := newServers(t, testRecipe(c.query))
		cl := s.client(nil)
		for i, v := range c.values {
			err := cl.Report(t.Context(), v)
			var bad *ValueError
			if !errors.As(err, &bad) {
				t.Errorf("%T, value %d: %v, want a ValueError", c.query, i, err)
			}
		}
		if s.uploads != 0 {
			t.Errorf("%T: a bad value was uploaded", c.query)
		}
	}
}

// What a person answered is in no print, log line or document.
func TestValueIsNotPrinted(t *testing.T) {
	v := Number(4711)
	var b strings.Builder
	slog.New(slog.NewJSONHandler(&b, nil)).Info("value", "v", v)
	j, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%v %+v %#v %s %d %x", v, v, v, v, v, v) + b.String() + string(j)
	for _, secret := range []string{"4711", "1267"} {
		if strings.Contains(text, secret) {
			t.Errorf("printed: %s", text)
		}
	}
}

func TestPrepareNeedsKeys(t *testing.T) {
	s := newServers(t, testRecipe(recipe.Count{}))
	if _, err := s.client(nil).Prepare(Bool(true), now); !errors.Is(err, ErrNoKeys) {
		t.Error(err)
	}
}

// TestReportTime: whenever in a round a device answers, its report says the same.
func TestReportTime(t *testing.T) {
	r := testRecipe(recipe.Count{})
	r.Rounds = &recipe.Rounds{Units: 24}
	s := newServers(t, r)
	c := s.client(nil)
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := dap.Time(now.Unix()/3600) / 24 * 24
	begin := time.Unix(int64(first)*3600, 0)
	for at, want := range map[time.Duration]dap.Time{
		0: first, time.Second: first, 13*time.Hour + 25*time.Minute: first, 24*time.Hour - time.Second: first,
		24 * time.Hour: first + 24, -time.Second: first - 24,
	} {
		made, err := c.Prepare(Bool(true), begin.Add(at))
		if err != nil || made.Metadata.Time != want {
			t.Errorf("%v into a round: %d, want %d, %v", at, made.Metadata.Time, want, err)
		}
	}
}

func TestWindow(t *testing.T) {
	r := testRecipe(recipe.Count{})
	unit := dap.Time(now.Unix() / 3600)
	r.Window = recipe.Between{Start: unit, End: unit + 2}
	s := newServers(t, r)
	c := s.client(nil)
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	start := time.Unix(int64(unit)*3600, 0)
	for _, at := range []struct {
		t  time.Time
		ok bool
	}{
		{start.Add(-time.Second), false}, {start, true}, {start.Add(2*time.Hour - time.Second), true}, {start.Add(2 * time.Hour), false},
	} {
		_, err := c.Prepare(Bool(true), at.t)
		if at.ok && err != nil || !at.ok && !errors.Is(err, ErrWindow) {
			t.Errorf("at %v: %v", at.t, err)
		}
	}
	if _, err := c.Prepare(Bool(true), time.Unix(-1, 0)); err == nil {
		t.Error("a time before 1970 was accepted")
	}
}

func TestReportsAreFresh(t *testing.T) {
	s := newServers(t, testRecipe(recipe.Histogram{Length: 4, Chunk: 2}))
	c := s.client(nil)
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, err1 := c.Prepare(Bucket(1), now)
	b, err2 := c.Prepare(Bucket(1), now)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if a.Metadata.ID == b.Metadata.ID || slices.Equal(a.PublicShare, b.PublicShare) || slices.Equal(a.Leader.Enc, b.Leader.Enc) ||
		slices.Equal(a.Leader.Payload, b.Leader.Payload) || slices.Equal(a.Helper.Payload, b.Helper.Payload) {
		t.Error("two reports share an id or randomness")
	}
}

func TestUpload(t *testing.T) {
	s := newServers(t, testRecipe(recipe.Count{}))
	c := s.client(func(o *Options) { o.MaxRequest = 2000 })
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	var reports []dap.Report
	for range 25 {
		r, err := c.Prepare(Bool(true), now)
		if err != nil {
			t.Fatal(err)
		}
		reports = append(reports, r)
	}
	s.refuse[reports[3].Metadata.ID] = dap.ReportTooEarly
	later := dap.Dialect{Version: s.task.Version}.ReportError(200)
	s.refuse[reports[7].Metadata.ID] = later // of a later draft: a refusal like others
	s.refuse[reports[20].Metadata.ID] = dap.BatchCollected
	got, err := c.Upload(t.Context(), reports)
	if err != nil {
		t.Fatal(err)
	}
	want := []dap.ReportUploadStatus{
		{ID: reports[3].Metadata.ID, Error: dap.ReportTooEarly}, {ID: reports[7].Metadata.ID, Error: later},
		{ID: reports[20].Metadata.ID, Error: dap.BatchCollected},
	}
	if !slices.Equal(got, want) || s.sums()[0] != 22 {
		t.Errorf("%d refusals, %d counted", len(got), s.sums()[0])
	}
	size := reports[0].Size()
	if least := (25*size + 1999) / 2000; s.uploads < least || s.uploads > 2*least {
		t.Errorf("%d requests for %d bytes", s.uploads, 25*size)
	}
	if _, err := c.Upload(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// A request that was lost on its way back is sent again, and counted once.
func TestUploadRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t, testRecipe(recipe.Count{}))
		lost := 0
		s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if !isUpload(r) || lost == 2 {
				return false
			}
			lost++
			s.accept(&discard{http.Header{}}, r)
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		start := time.Now()
		if err := s.client(nil).Report(t.Context(), Bool(true)); err != nil {
			t.Fatal(err)
		}
		if s.uploads != 3 || s.sums()[0] != 1 {
			t.Errorf("%d uploads, counted %d", s.uploads, s.sums()[0])
		}
		if waited := time.Since(start); waited != 4*time.Second {
			t.Errorf("waited %v, want the 2 s that the server asked for, twice", waited)
		}
	})
}

type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

func TestUploadFails(t *testing.T) {
	answer := func(list ...dap.ReportUploadStatus) func(http.ResponseWriter, []dap.Report) {
		return func(w http.ResponseWriter, _ []dap.Report) {
			b, err := dap.Dialect{}.AppendUploadErrors(nil, list)
			if err != nil {
				panic(err)
			}
			w.Header().Set("Content-Type", dap.ContentType(dap.MediaUploadErrors))
			w.Write(b)
		}
	}
	refusal := func(r dap.Report) dap.ReportUploadStatus {
		return dap.ReportUploadStatus{ID: r.Metadata.ID, Error: dap.ReportDropped}
	}
	for _, c := range []struct {
		name string
		send func(http.ResponseWriter, []dap.Report)
		want func(error) bool
	}{
		{"unrecognized task", func(w http.ResponseWriter, _ []dap.Report) {
			problem(w, &dap.Problem{Type: dap.ProblemUnrecognizedTask, Status: 404})
		}, func(err error) bool { return errors.Is(err, &dap.Problem{Type: dap.ProblemUnrecognizedTask}) }},
		{"a report that was not sent", answer(dap.ReportUploadStatus{ID: dap.ReportID{1}, Error: dap.ReportDropped}),
			func(err error) bool { return errors.Is(err, ErrAnswer) }},
		{"out of order", func(w http.ResponseWriter, sent []dap.Report) {
			answer(refusal(sent[1]), refusal(sent[0]))(w, nil)
		}, func(err error) bool { return errors.Is(err, ErrAnswer) }},
		{"twice", func(w http.ResponseWriter, sent []dap.Report) {
			answer(refusal(sent[0]), refusal(sent[0]))(w, nil)
		}, func(err error) bool { return errors.Is(err, ErrAnswer) }},
		{"half a status", func(w http.ResponseWriter, _ []dap.Report) {
			w.Header().Set("Content-Type", dap.ContentType(dap.MediaUploadErrors))
			w.Write(make([]byte, 16))
		}, func(err error) bool { return errors.Is(err, ErrAnswer) && errors.Is(err, dap.ErrMalformed) }},
		{"endless", func(w http.ResponseWriter, _ []dap.Report) {
			w.Header().Set("Content-Type", dap.ContentType(dap.MediaUploadErrors))
			w.Write(make([]byte, 1<<20))
		}, func(err error) bool { return err != nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServers(t, testRecipe(recipe.Count{}))
			cl := s.client(nil)
			if err := cl.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			var reports []dap.Report
			for range 2 {
				r, err := cl.Prepare(Bool(true), now)
				if err != nil {
					t.Fatal(err)
				}
				reports = append(reports, r)
			}
			s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
				c.send(w, reports)
				return true
			}
			_, err := cl.Upload(t.Context(), reports)
			var failed *UploadError
			if !errors.As(err, &failed) || failed.Acknowledged != 0 || !c.want(err) {
				t.Error(err)
			}
		})
	}
}

// A leader that has turned its key over gets a new report, once, sealed to the new key.
func TestOutdatedConfig(t *testing.T) {
	s := newServers(t, testRecipe(recipe.Count{}))
	c := s.client(nil)
	if err := c.Report(t.Context(), Bool(true)); err != nil {
		t.Fatal(err)
	}
	s.leader, s.helper = generate(t, 8), generate(t, 10)
	if err := c.Report(t.Context(), Bool(true), Bool(false), Bool(true)); err != nil {
		t.Fatal(err)
	}
	if s.sums()[0] != 3 || s.uploads != 3 || s.fetches[dap.RoleLeader] != 2 || s.fetches[dap.RoleHelper] != 2 {
		t.Errorf("sum %d, %d uploads, fetches %v", s.sums()[0], s.uploads, s.fetches)
	}

	// A leader that calls every key outdated is believed twice, not for ever.
	always := generate(t, 11)
	s.configs = func(dap.Role) []byte {
		b, err := dap.HpkeConfigList{dap.NewHpkeConfig(always)}.Append(nil)
		if err != nil {
			t.Error(err)
		}
		return b
	}
	s.leader, s.uploads = generate(t, 12), 0
	if err := c.Report(t.Context(), Bool(true)); !errors.Is(err, (dap.Dialect{Version: speaks}).Said(dap.OutdatedConfig)) || s.uploads != 2 {
		t.Errorf("%v after %d uploads", err, s.uploads)
	}
}

// A leader that falsely calls a key outdated is left with one report: the same id, time
// and shares, which count once. With new shares and noise it would have two of one
// person, of whom the ledger was charged for one.
func TestOutdatedConfigLeavesOneReport(t *testing.T) {
	s := newServers(t, testRecipe(recipe.Count{}))
	c := s.client(nil)
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.leader = generate(t, 8)
	var uploaded []dap.Report
	var shares [][]byte
	s.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if !isUpload(r) {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		for report, err := range dap.Reports(body, nil) {
			if err != nil {
				t.Error(err)
				continue
			}
			aad := dap.InputShareAAD(s.task.TaskID(), s.task.Bytes(), &report.Metadata, report.PublicShare)
			share, err := s.helper.Open(report.Helper.Enc, s.task.Version.InputShareInfo(dap.RoleHelper), aad, report.Helper.Payload)
			if err != nil {
				t.Error(err)
			}
			uploaded, shares = append(uploaded, report), append(shares, share)
		}
		return false
	}
	if err := c.Report(t.Context(), Bool(true)); err != nil {
		t.Fatal(err)
	}
	if len(uploaded) != 2 {
		t.Fatalf("%d reports", len(uploaded))
	}
	a, b := uploaded[0], uploaded[1]
	if a.Metadata.ID != b.Metadata.ID || a.Metadata.Time != b.Metadata.Time || !bytes.Equal(a.PublicShare, b.PublicShare) || !bytes.Equal(shares[0], shares[1]) {
		t.Errorf("the leader has two reports of one answer: %+v and %+v", a.Metadata, b.Metadata)
	}
	if bytes.Equal(a.Helper.Enc, b.Helper.Enc) {
		t.Error("one encryption for two keys")
	}
}

func TestRefusedReport(t *testing.T) {
	s := newServers(t, testRecipe(recipe.Count{}))
	s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !isUpload(r) {
			return false
		}
		problem(w, &dap.Problem{Type: dap.ProblemInvalidMessage, Detail: "no"})
		return true
	}
	if err := s.client(nil).Report(t.Context(), Bool(true)); !errors.Is(err, &dap.Problem{Type: dap.ProblemInvalidMessage}) {
		t.Error(err)
	}
}

// TestRefusals: of many answers those that the leader refuses are named by their places;
// the others are acknowledged.
func TestRefusals(t *testing.T) {
	s := newServers(t, testRecipe(recipe.Count{}))
	s.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if !isUpload(r) {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		n := 0
		for report, err := range dap.Reports(body, nil) {
			if err != nil {
				t.Error(err)
			}
			if n++; n == 2 || n == 4 {
				s.refuse[report.Metadata.ID] = dap.ReportTooEarly
			}
		}
		return false
	}
	err, refused := s.client(nil).Report(t.Context(), Bool(true), Bool(true), Bool(false), Bool(true)), new(RefusalsError)
	if want := []Refusal{{1, dap.ReportTooEarly}, {3, dap.ReportTooEarly}}; !errors.As(err, &refused) || !slices.Equal(refused.Refused, want) {
		t.Errorf("refused %v, want %v; %v", refused.Refused, want, err)
	}
	if !errors.Is(err, dap.ReportTooEarly) || !strings.Contains(err.Error(), "refused 2 reports") || s.sums()[0] != 1 {
		t.Errorf("%v; sum %d", err, s.sums()[0])
	}
}

func TestBadKeys(t *testing.T) {
	list := func(configs ...dap.HpkeConfig) []byte {
		b, err := dap.HpkeConfigList(configs).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	good := dap.NewHpkeConfig(generate(t, 1))
	future, short := good, good
	future.AEAD = 0xffff
	short.Key = good.Key[:31]
	for _, c := range []struct {
		name string
		list []byte
		want error
	}{
		{"no body", nil, dap.ErrMalformed},
		{"empty list", []byte{0, 0}, dap.ErrMalformed},
		{"trailing byte", append(list(good), 0), dap.ErrMalformed},
		{"only suites from the future", list(future), sealed.ErrSuite},
		{"a short key", list(short), sealed.ErrSuite},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServers(t, testRecipe(recipe.Count{}))
			s.configs = func(dap.Role) []byte { return c.list }
			err := s.client(nil).Report(t.Context(), Bool(true))
			var bad *KeysError
			if !errors.As(err, &bad) || bad.Aggregator != dap.RoleLeader || !errors.Is(err, c.want) {
				t.Error(err)
			}
		})
	}
}

func TestKeysAreCached(t *testing.T) {
	for _, c := range []struct {
		cache   string
		fresh   time.Duration // still used after this long
		expired time.Duration // no longer
	}{
		{"", time.Hour - 1, time.Hour},
		{"max-age=60", time.Minute - 1, time.Minute},
		{"public, MAX-AGE=\"60\"", time.Minute - 1, time.Minute},
		{"max-age=99999999", 7*24*time.Hour - 1, 7 * 24 * time.Hour},
		{"private", time.Hour - 1, time.Hour},
		{"no-cache", -1, 0},
		{"no-store, max-age=60", -1, 0},
		{"max-age=soon", -1, 0},
	} {
		t.Run(c.cache, func(t *testing.T) {
			s := newServers(t, testRecipe(recipe.Count{}))
			s.cache = c.cache
			clock := now
			cl := s.client(func(o *Options) { o.Now = func() time.Time { return clock } })
			refresh := func(after time.Duration, fetches int) {
				t.Helper()
				clock = now.Add(after)
				if err := cl.Refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
				if s.fetches[dap.RoleLeader] != fetches || s.fetches[dap.RoleHelper] != fetches {
					t.Errorf("%v after: fetched %v, want %d", after, s.fetches, fetches)
				}
			}
			refresh(0, 1)
			if c.fresh >= 0 {
				refresh(c.fresh, 1)
			}
			refresh(c.expired, 2)
		})
	}
}

func TestConcurrentUse(t *testing.T) {
	s := newServers(t, testRecipe(recipe.Sum{Max: 7}))
	c := s.client(nil)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 4 {
				if err := c.Report(t.Context(), Number(uint64(i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if s.sums()[0] != 4*28 || s.fetches[dap.RoleLeader] != 1 {
		t.Errorf("sum %d, fetches %v", s.sums()[0], s.fetches)
	}
}

func TestContext(t *testing.T) {
	s := newServers(t, testRecipe(recipe.Count{}))
	s.intercept = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.client(nil).Report(ctx, Bool(true)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func BenchmarkPrepare(b *testing.B) {
	for _, length := range []uint32{21, 1024} {
		b.Run(fmt.Sprintf("histogram%d", length), func(b *testing.B) {
			r := testRecipe(recipe.Histogram{Length: length, Chunk: uint32(math.Sqrt(float64(length)))})
			s := newServers(b, r)
			c := s.client(nil)
			if err := c.Refresh(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				if _, err := c.Prepare(Bucket(3), now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// refusing is a prover that no claim satisfies.
type refusing struct{}

func (refusing) Prove(*recipe.Recipe) (recipe.Proof, error) { return nil, &recipe.ClaimError{} }

// A client has no accountant of its own: without a prover it takes no recipe that nothing
// proves, and what the prover refuses it refuses.
func TestProver(t *testing.T) {
	r, err := account.New(account.Options{
		Name: "Test", Query: recipe.Count{}, Leader: "http://127.0.0.1:1/", Helper: "http://127.0.0.1:2/", MinBatch: 100, Epsilon: recipe.Decimal{Coefficient: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	checked, err := recipe.Open(b, account.Prover)
	if err != nil {
		t.Fatal(err)
	}
	refused := new(RefusedError)
	for name, o := range map[string]Options{
		"nothing":          {},
		"a prover alone":   {Prover: account.Prover},
		"the recipe twice": {Recipe: b, Prover: account.Prover, Checked: checked},
	} {
		if _, err := New(o); err == nil || errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Options{Recipe: b, Prover: refusing{}}); !errors.As(err, &refused) || refused.Reason != ReasonClaim {
		t.Errorf("a claim that was refused: %v", err)
	}
	if _, err := New(Options{Recipe: b}); !errors.As(err, &refused) || refused.Reason != ReasonCertificate || !errors.Is(err, recipe.ErrUncertified) {
		t.Errorf("bytes without a prover: %v", err)
	}
	c, err := New(Options{Checked: checked})
	if err != nil || c.Checked() != checked || c.Guarantee() != checked.Guarantee() {
		t.Errorf("a recipe that was checked: %v", err)
	}
}
