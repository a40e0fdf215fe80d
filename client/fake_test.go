package client

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/vdaf"
)

// servers plays leader and helper in one: it accepts reports as a leader does, opens and
// verifies both shares with the real VDAF, and adds up. Its fields are set before
// requests come.
type servers struct {
	t      testing.TB
	recipe *recipe.Recipe
	task   *dap.TaskConfiguration
	v      vdaf.VDAF
	key    [vdaf.VerifyKeySize]byte

	mu        sync.Mutex
	leader    *sealed.KeyPair
	helper    *sealed.KeyPair
	cache     string                                        // Cache-Control of the keys
	configs   func(role dap.Role) []byte                    // nil: the real list
	intercept func(http.ResponseWriter, *http.Request) bool // true: it has answered
	refuse    map[dap.ReportID]dap.ReportError
	fetches   map[dap.Role]int
	uploads   int
	seen      map[dap.ReportID]bool
	times     []dap.Time
	aggs      []*vdaf.AggShare
}

const helperPath = "/helper-base/"

var now = time.Date(2026, 11, 21, 12, 34, 56, 0, time.UTC)

func testRecipe(q recipe.Query) *recipe.Recipe {
	return &recipe.Recipe{
		Name: "test", Query: q, Randomizer: recipe.NoRandomizer{}, Participation: recipe.Always{},
		Path: recipe.TwoServer{
			Leader: "https://leader.example/v1", Helper: "https://helper.example" + helperPath, BatchMode: dap.TimeInterval,
		},
		Noise: recipe.NoNoise{}, Claim: recipe.NoClaim{}, DAP: speaks, MinBatch: 2, TimePrecision: 3600, Window: recipe.NoWindow{},
	}
}

func noisy(r *recipe.Recipe, epsilon string) *recipe.Recipe {
	eps, err := recipe.ParseDecimal(epsilon)
	if err != nil {
		panic(err)
	}
	r.Noise = recipe.DiscreteGaussian{Variance: recipe.Rational{Num: 50, Den: 1}, Share: recipe.DrawsAll}
	r.Claim = recipe.ApproxDP{
		Epsilon: eps, Delta: recipe.Decimal{Coefficient: 1, Scale: 9}, Neighbours: release.ReplaceOne, HonestServers: 1, Rounds: 1,
	}
	return r
}

func encode(t testing.TB, r *recipe.Recipe) []byte {
	t.Helper()
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func generate(t testing.TB, id uint8) *sealed.KeyPair {
	t.Helper()
	k, err := sealed.Generate(id, sealed.SuiteX25519)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newServers(t testing.TB, r *recipe.Recipe) *servers {
	t.Helper()
	task, err := r.Task()
	if err != nil {
		t.Fatal(err)
	}
	v, err := task.VDAF()
	if err != nil {
		t.Fatal(err)
	}
	return &servers{
		t: t, recipe: r, task: task, v: v, key: [32]byte{1, 2, 3},
		leader: generate(t, 7), helper: generate(t, 9),
		refuse: map[dap.ReportID]dap.ReportError{}, fetches: map[dap.Role]int{}, seen: map[dap.ReportID]bool{},
		aggs: []*vdaf.AggShare{v.NewAggShare(), v.NewAggShare()},
	}
}

// Do serves in process, so that tests under a fake clock need no network.
func (s *servers) Do(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

func (s *servers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.intercept != nil && s.intercept(w, r) {
		return
	}
	id := s.task.TaskID()
	switch {
	case r.Method == "GET" && r.URL.Host == "leader.example" && r.URL.Path == "/v1/hpke_config":
		s.serveKeys(w, dap.RoleLeader, s.leader)
	case r.Method == "GET" && r.URL.Host == "helper.example" && r.URL.Path == helperPath+"hpke_config":
		s.serveKeys(w, dap.RoleHelper, s.helper)
	case r.Method == "POST" && r.URL.Host == "leader.example" && r.URL.Path == "/v1/tasks/"+id.Base64()+"/reports":
		s.accept(w, r)
	default:
		s.t.Errorf("asked for %s %s", r.Method, r.URL)
		http.NotFound(w, r)
	}
}

func (s *servers) serveKeys(w http.ResponseWriter, role dap.Role, k *sealed.KeyPair) {
	s.fetches[role]++
	// The first config is of a suite from the future, which a client passes over.
	future := dap.NewHpkeConfig(k)
	future.ID, future.KEM = 200, 0xfafa
	b, err := dap.HpkeConfigList{future, dap.NewHpkeConfig(k)}.Append(nil)
	if err != nil {
		s.t.Error(err)
	}
	if s.configs != nil {
		b = s.configs(role)
	}
	if s.cache != "" {
		w.Header().Set("Cache-Control", s.cache)
	}
	w.Header().Set("Content-Type", dap.ContentType(dap.MediaHpkeConfigList))
	w.Write(b)
}

func (s *servers) accept(w http.ResponseWriter, r *http.Request) {
	if err := dap.CheckContentType(r.Header.Get("Content-Type"), dap.MediaUploadReq); err != nil {
		s.t.Error(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	s.uploads++
	var refused []dap.ReportUploadStatus
	for report, err := range dap.Reports(body, nil) {
		if err != nil {
			s.t.Error(err)
			return
		}
		id := report.Metadata.ID
		reason, bad := s.refuse[id]
		if report.Leader.ConfigID != s.leader.ID() {
			reason, bad = dap.OutdatedConfig, true
		}
		switch {
		case bad:
			refused = append(refused, dap.ReportUploadStatus{ID: id, Error: reason})
		case !s.seen[id]:
			s.seen[id] = true
			s.verify(&report)
		}
	}
	b, err := dap.Dialect{Version: s.task.Version}.AppendUploadErrors(nil, refused)
	if err != nil {
		s.t.Error(err)
	}
	if len(b) > 0 {
		w.Header().Set("Content-Type", dap.ContentType(dap.MediaUploadErrors))
	}
	w.Write(b)
}

// verify is both aggregators' work on one report.
func (s *servers) verify(report *dap.Report) {
	aad := dap.InputShareAAD(s.task.TaskID(), s.task.Bytes(), &report.Metadata, report.PublicShare)
	open := func(k *sealed.KeyPair, role dap.Role, c dap.HpkeCiphertext) []byte {
		b, err := k.Open(c.Enc, s.task.Version.InputShareInfo(role), aad, c.Payload)
		if err != nil {
			s.t.Errorf("%v cannot open its share: %v", role, err)
			return nil
		}
		share, err := dap.ReadPlaintextInputShare(b)
		if err != nil {
			s.t.Error(err)
		}
		return slices.Clone(share.Payload)
	}
	inputs := [][]byte{open(s.leader, dap.RoleLeader, report.Leader), open(s.helper, dap.RoleHelper, report.Helper)}
	ctx, sizes, errs := s.task.Version.VDAFContext(s.task.TaskID()), s.v.Sizes(), make([]error, 1)
	states := []vdaf.State{s.v.NewState(1), s.v.NewState(1)}
	verifiers := make([][]byte, 2)
	for agg := range states {
		verifiers[agg] = make([]byte, sizes.VerifierShare)
		in := &vdaf.Reports{
			Nonces: [][16]byte{report.Metadata.ID}, Public: [][]byte{report.PublicShare}, Inputs: [][]byte{inputs[agg]},
		}
		s.v.VerifyInit(states[agg], &s.key, ctx, agg, in, verifiers[agg], errs)
	}
	message := make([]byte, sizes.VerifierMessage)
	s.v.Combine(ctx, verifiers, message, errs)
	for agg, st := range states {
		s.v.Check(st, message, errs)
		s.v.Accumulate(st, nil, nil, s.aggs[agg:agg+1], errs)
	}
	if errs[0] != nil {
		s.t.Errorf("a report does not verify: %v", errs[0])
	}
	s.times = append(s.times, report.Metadata.Time)
}

func (s *servers) sums() []int64 {
	s.t.Helper()
	out, err := s.v.Unshard(s.aggs)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

func (s *servers) client(change func(*Options)) *Client {
	s.t.Helper()
	o := Options{AnyKeys: true, Prover: account.Prover, Recipe: encode(s.t, s.recipe), MaxEpsilon: inf, HTTP: s, Now: func() time.Time { return now }}
	if change != nil {
		change(&o)
	}
	c, err := New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func problem(w http.ResponseWriter, p *dap.Problem) {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", dap.ProblemMedia)
	w.WriteHeader(p.HTTPStatus())
	w.Write(b)
}

func isUpload(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/reports") }
