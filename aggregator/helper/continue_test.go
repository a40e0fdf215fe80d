package helper

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/aggregatortest"
	"github.com/starling-agg/starling/aggregator/internal/rounds"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/verify"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// twoRounds makes a VDAF of two rounds out of Prio3: the first answer asks for a word,
// the second commits whoever gave it.
type twoRounds struct{ rounds.Engine }

const word = "the word"

func (twoRounds) Rounds() int { return 2 }

func (e twoRounds) Begin(ctx context.Context, prm verify.Params, reports []verify.Report) (rounds.Job, error) {
	one, err := e.Engine.Begin(ctx, prm, reports)
	return &twoRoundsJob{Job: one}, err
}

type twoRoundsJob struct {
	rounds.Job
	final bool
}

func (j *twoRoundsJob) Final() bool { return j.final }

func (j *twoRoundsJob) Message(int) []byte {
	if j.final {
		return nil
	}
	return vdaf.AppendPingPongContinue(nil, []byte("say it"), nil)
}

func (j *twoRoundsJob) Take(said []rounds.Said) error {
	j.final = true
	for i, s := range said {
		if string(s.Payload) != word {
			j.Refuse(i, dap.VDAFVerifyError)
		}
	}
	return nil
}

func check[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// rig is a helper of two rounds, and a leader by hand.
type rig struct {
	*testing.T
	h    *Helper
	task *aggregatortest.Task
	key  *sealed.KeyPair // the helper's
	vdaf *prio3.Count
}

func newRig(t *testing.T) *rig { return newRigWith(t, func(*Options) {}) }

func newRigWith(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	config := check[*dap.TaskConfiguration](t)(dap.NewTaskConfiguration(dap.TaskConfiguration{
		TaskInfo: []byte("x"), Leader: []byte("https://leader.example/"), Helper: []byte("https://helper.example/"),
		TimePrecision: 3600, MinBatchSize: 1, BatchMode: dap.TimeInterval, VDAFType: dap.TypePrio3Count,
	}))
	r := &rig{T: t, task: check[*aggregatortest.Task](t)(aggregatortest.NewTask(config, dap.Standard)), vdaf: check[*prio3.Count](t)(prio3.NewCount(2))}
	r.key = r.task.Helper
	o := Options{Options: aggregator.Options{
		Base: "https://helper.example/", FS: disktest.NewMem(1), Record: disktest.NewMem(2), Keys: check[*sealed.Keyring](t)(sealed.NewKeyring(r.key)),
		Tasks: []aggregator.Task{r.task.Aggregator()},
	}}
	change(&o)
	h, err := New(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	r.h = h
	h.engine = twoRounds{h.engine}
	t.Cleanup(func() {
		if faults, err := h.Audit(context.Background()); err != nil || len(faults) > 0 {
			t.Errorf("audit: %v %q", err, faults)
		}
		h.Close()
	})
	return r
}

// request makes the init request of n reports.
func (r *rig) request(n int) (body []byte, ids []dap.ReportID) {
	r.Helper()
	reports := make([]dap.Report, n)
	now := check[dap.Time](r.T)(r.task.Config.TimePrecision.At(time.Now()))
	for i := range reports {
		reports[i] = check[dap.Report](r.T)(r.task.Report(now, func(ctx []byte, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
			return r.vdaf.Shard(ctx, true, nonce)
		}, aggregatortest.Spoil{To: []dap.HpkeConfig{dap.NewHpkeConfig(r.task.Leader), dap.NewHpkeConfig(r.key)}}))
		ids = append(ids, reports[i].Metadata.ID)
	}
	inits := r.task.Inits(reports...)
	req := dap.AggregationJobInitReq{VerificationKeyID: aggregatortest.VerifyKeyID, Inits: check[[]byte](r.T)(dap.AppendVerifyInits(nil, inits))}
	return check[[]byte](r.T)(dap.Dialect{}.AppendAggregationJobInitReq(nil, &req)), ids
}

func (r *rig) post(body []byte) *httptest.ResponseRecorder {
	return r.do("POST", "/tasks/"+r.task.ID.Base64()+"/aggregation_jobs", dap.MediaAggregationJobInitReq, body)
}

// start opens a job of n reports and returns its path and its ids.
func (r *rig) start(n int) (path string, ids []dap.ReportID) {
	r.Helper()
	body, ids := r.request(n)
	a := r.post(body)
	if a.Code != 201 {
		r.Fatalf("init: status %d %s", a.Code, a.Body)
	}
	for _, resp := range r.resps(a) {
		if resp.Type != dap.Continue {
			r.Fatalf("init: %v %v", resp.Type, resp.Error)
		}
	}
	if got := r.aggregated(); got != 0 {
		r.Fatalf("%d aggregated before the last round", got)
	}
	return a.Header().Get("Location"), ids
}

func (r *rig) do(method, path string, m dap.Media, body []byte) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, bytes.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+aggregatortest.PeerToken)
	req.Header.Set("Content-Type", dap.ContentType(m))
	w := httptest.NewRecorder()
	r.h.Handler().ServeHTTP(w, req)
	return w
}

func (r *rig) next(path string, step uint16, said string, ids ...dap.ReportID) *httptest.ResponseRecorder {
	r.Helper()
	body := []byte{byte(step >> 8), byte(step)}
	for _, id := range ids {
		c := dap.VerifyContinue{ID: id, Payload: []byte(said)}
		body = check[[]byte](r.T)(c.Append(body))
	}
	return r.do("POST", path, dap.MediaAggregationJobContinueReq, body)
}

func (r *rig) resps(w *httptest.ResponseRecorder) []dap.VerifyResp {
	r.Helper()
	return check[[]dap.VerifyResp](r.T)(dap.Collect(dap.Dialect{}.VerifyResps(w.Body.Bytes(), nil)))
}

func (r *rig) aggregated() uint64 {
	r.Helper()
	return check[*statusOf](r.T)(r.status()).aggregated
}

type statusOf struct {
	aggregated uint64
	rejected   map[string]uint64
}

func (r *rig) status() (*statusOf, error) {
	s, err := r.h.Status(context.Background())
	if err != nil {
		return nil, err
	}
	c := s.Tasks[0].Counts
	return &statusOf{c.Aggregated, c.Rejected}, nil
}

func (r *rig) refused(w *httptest.ResponseRecorder, typ dap.ProblemType, code int) {
	r.Helper()
	var p dap.Problem
	if err := p.UnmarshalJSON(w.Body.Bytes()); err != nil || p.Type != typ || w.Code != code {
		r.Errorf("status %d %s, want %d %s", w.Code, w.Body, code, typ)
	}
	if got := r.aggregated(); got != 0 {
		r.Errorf("a refused step aggregated %d", got)
	}
}

func TestContinueFinishes(t *testing.T) {
	r := newRig(t)
	path, ids := r.start(4)
	w := r.next(path, 1, word, ids...)
	if w.Code != http.StatusOK {
		t.Fatalf("status %d %s", w.Code, w.Body)
	}
	for i, resp := range r.resps(w) {
		if resp.ID != ids[i] || resp.Type != dap.Finish {
			t.Errorf("answer %d: %v %v", i, resp.Type, resp.Error)
		}
	}
	if got := r.aggregated(); got != 4 {
		t.Errorf("%d aggregated", got)
	}
}

func TestContinueStepZero(t *testing.T) {
	r := newRig(t)
	path, ids := r.start(1)
	r.refused(r.next(path, 0, word, ids...), dap.ProblemInvalidMessage, 400)
}

func TestContinueStepMismatch(t *testing.T) {
	r := newRig(t)
	path, ids := r.start(2)
	r.refused(r.next(path, 2, word, ids...), dap.ProblemStepMismatch, 400)
	r.refused(r.next(path, 65535, word, ids...), dap.ProblemStepMismatch, 400)
	if w := r.next(path, 1, word, ids...); w.Code != 200 {
		t.Fatalf("status %d", w.Code)
	}
	// The current step with other bytes, and a step beyond the last round.
	for _, w := range []*httptest.ResponseRecorder{r.next(path, 1, word, ids[0]), r.next(path, 2, word, ids...)} {
		var p dap.Problem
		if err := p.UnmarshalJSON(w.Body.Bytes()); err != nil || p.Type != dap.ProblemStepMismatch {
			t.Errorf("status %d %s", w.Code, w.Body)
		}
	}
}

// TestContinueReplayed: the same bytes get the stored answer, and so does the init
// request: the job is not rewound.
func TestContinueReplayed(t *testing.T) {
	r := newRig(t)
	path, ids := r.start(3)
	first := r.next(path, 1, word, ids...)
	again := r.next(path, 1, word, ids...)
	if again.Code != 200 || !bytes.Equal(first.Body.Bytes(), again.Body.Bytes()) {
		t.Errorf("status %d, other bytes", again.Code)
	}
	if got := r.aggregated(); got != 3 {
		t.Errorf("%d aggregated", got)
	}
	loc := again.Header().Get("Location")
	if !strings.HasSuffix(loc, "?step=1") {
		t.Errorf("location %q", loc)
	}
	if w := r.do("GET", loc, "", nil); w.Code != 200 || !bytes.Equal(w.Body.Bytes(), first.Body.Bytes()) {
		t.Errorf("poll: status %d", w.Code)
	}
}

func TestContinueInitAgainDoesNotRewind(t *testing.T) {
	r := newRig(t)
	path, ids := r.start(2)
	res := check[*store.Resource](t)(r.h.store.Resource(context.Background(), store.KindAggregation, r.task.ID, lastElement(path)))
	requests, _, err := splitRounds(res.Response)
	if err != nil || len(requests) != 1 {
		t.Fatal(len(requests), err)
	}
	step1 := r.next(path, 1, word, ids...)
	w := r.do("POST", "/tasks/"+r.task.ID.Base64()+"/aggregation_jobs", dap.MediaAggregationJobInitReq, requests[0])
	if w.Code != 201 || !bytes.Equal(w.Body.Bytes(), step1.Body.Bytes()) {
		t.Errorf("status %d, not the current state", w.Code)
	}
	if got := r.aggregated(); got != 2 {
		t.Errorf("%d aggregated", got)
	}
}

func lastElement(location string) string {
	location, _, _ = strings.Cut(location, "?")
	return location[strings.LastIndexByte(location, '/')+1:]
}

func TestContinueUnknownReport(t *testing.T) {
	r := newRig(t)
	path, ids := r.start(2)
	r.refused(r.next(path, 1, word, ids[0], dap.ReportID{1}), dap.ProblemInvalidMessage, 400)
}

func TestContinueRepeatedReport(t *testing.T) {
	r := newRig(t)
	path, ids := r.start(2)
	r.refused(r.next(path, 1, word, ids[0], ids[0]), dap.ProblemInvalidMessage, 400)
}

func TestContinueOrderKept(t *testing.T) {
	r := newRig(t)
	path, ids := r.start(3)
	slices.Reverse(ids)
	r.refused(r.next(path, 1, word, ids...), dap.ProblemInvalidMessage, 400)
}

func TestContinueMissingIsDropped(t *testing.T) {
	r := newRig(t)
	path, ids := r.start(4)
	got := r.resps(r.next(path, 1, word, ids[1], ids[3]))
	if len(got) != 2 || got[0].ID != ids[1] || got[1].ID != ids[3] {
		t.Fatalf("%d answers", len(got))
	}
	s := check[*statusOf](t)(r.status())
	if s.aggregated != 2 || s.rejected["report_dropped"] != 2 {
		t.Errorf("%+v", s)
	}
}

func TestContinueBadMessage(t *testing.T) {
	r := newRig(t)
	path, ids := r.start(2)
	for _, resp := range r.resps(r.next(path, 1, "another word", ids...)) {
		if resp.Type != dap.Reject || resp.Error != dap.VDAFVerifyError {
			t.Errorf("%v %v", resp.Type, resp.Error)
		}
	}
}

func TestContinueUnknownJob(t *testing.T) {
	r := newRig(t)
	path, ids := r.start(1)
	r.refused(r.next("/tasks/"+r.task.ID.Base64()+"/aggregation_jobs/nothing", 1, word, ids...), dap.ProblemUnrecognizedAggregationJob, 404)
	r.refused(r.do("POST", path, dap.MediaAggregationJobContinueReq, []byte{0}), dap.ProblemInvalidMessage, 400)
	r.refused(r.do("POST", path, dap.MediaAggregationJobContinueReq, []byte{0, 1, 2}), dap.ProblemInvalidMessage, 400)
	r.refused(r.next(path, 1, word), dap.ProblemInvalidMessage, 400) // no report: an empty answer would mean deferred
}

// TestContinuePrio3IsOver: a VDAF of one round has nothing to continue.
func TestContinuePrio3IsOver(t *testing.T) {
	r := newRig(t)
	path, ids := r.start(1)
	r.h.engine = r.h.engine.(twoRounds).Engine
	r.refused(r.next(path, 1, word, ids...), dap.ProblemStepMismatch, 400)
}
