package aggregator_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/internal/releases"
)

// askRaw posts any bytes as a collection request.
func (p *pair) askRaw(body []byte) answer {
	p.t.Helper()
	return p.create(p.leaderURL, dap.CollectionJobsResource, dap.MediaCollectionJobReq, collectorToken, body)
}

func TestCollectionUnrecognizedTask(t *testing.T) {
	p := newPair(t, setup{})
	body := must(p.query().Append(nil))
	a := p.call("POST", p.leaderURL, dap.CreationPath(dap.TaskID{5}, dap.CollectionJobsResource), dap.MediaCollectionJobReq, collectorToken, body)
	p.refused(a, dap.ProblemUnrecognizedTask, 404)
}

func TestCollectionUnauthenticated(t *testing.T) {
	p := newPair(t, setup{})
	body := must(p.query().Append(nil))
	for _, token := range []string{"", peerToken, collectorToken + "x"} {
		p.refused(p.create(p.leaderURL, dap.CollectionJobsResource, dap.MediaCollectionJobReq, token, body), "", 401)
		p.refused(p.call("GET", p.leaderURL, p.path(dap.CollectionJobsResource)+"/abc", "", token, nil), "", 401)
		p.refused(p.call("DELETE", p.leaderURL, p.path(dap.CollectionJobsResource)+"/abc", "", token, nil), "", 401)
	}
}

func TestCollectionMalformed(t *testing.T) {
	p := newPair(t, setup{})
	good := must(p.query().Append(nil))
	p.refused(p.askRaw(good[:len(good)-1]), dap.ProblemInvalidMessage, 400)
	p.refused(p.askRaw(append(slices.Clone(good), 0)), dap.ProblemInvalidMessage, 400)
	p.refused(p.askRaw(nil), dap.ProblemInvalidMessage, 400)
}

func TestCollectionOtherBatchMode(t *testing.T) {
	p := newPair(t, setup{})
	p.refused(p.ask(dap.CollectionJobReq{Query: dap.Query{Mode: dap.LeaderSelected}}), dap.ProblemInvalidMessage, 400)
}

func TestCollectionInvalidAggregationParameter(t *testing.T) {
	p := newPair(t, setup{})
	q := p.query()
	q.AggParam = []byte{1}
	p.refused(p.ask(q), dap.ProblemInvalidAggregationParameter, 400)
}

func TestCollectionBatchInvalid(t *testing.T) {
	p := newPair(t, setup{})
	q := p.query()
	q.Query.Interval.Duration = 0
	p.refused(p.ask(q), dap.ProblemBatchInvalid, 400)
	q.Query.Interval = dap.Interval{Start: math.MaxUint64, Duration: 2}
	p.refused(p.ask(q), dap.ProblemBatchInvalid, 400)
}

func TestCollectionUnsupportedExtension(t *testing.T) {
	p := newPair(t, setup{})
	q := p.query()
	q.Extensions = must(must(q.Extensions.With(3, nil)).With(0xff00, nil))
	a := p.ask(q)
	p.refused(a, dap.ProblemUnsupportedExtension, 400)
	if got := p.problem(a).UnsupportedExtensions; !slices.Equal(got, []uint16{3, 0xff00}) {
		t.Errorf("unsupported_extensions %v", got)
	}
}

// TestCollectionInvalidExtension: a list out of order is invalidExtension here, unlike in
// aggregation jobs.
func TestCollectionInvalidExtension(t *testing.T) {
	p := newPair(t, setup{})
	q := p.query()
	q.Extensions = must(dap.ReadExtensions([]byte{0, 8, 0, 5, 0, 0, 0, 5, 0, 0}))
	p.refused(p.ask(q), dap.ProblemInvalidExtension, 400)
}

func TestCollectionBatchOverlap(t *testing.T) {
	p := newPair(t, setup{})
	p.accept(p.reports(12)...)
	p.collect(p.query())
	q := p.query()
	q.Query.Interval.Duration++
	p.refused(p.ask(q), dap.ProblemBatchOverlap, 400)
	q.Query.Interval = dap.Interval{Start: p.now() + 10, Duration: 1}
	if a := p.ask(q); a.status != 201 {
		t.Errorf("an interval beside it: status %d", a.status)
	}
}

// TestCollectionDeletedStaysCollected: the same time-interval request is a new one after
// DELETE, and the batch is gone.
func TestCollectionDeletedStaysCollected(t *testing.T) {
	p := newPair(t, setup{})
	p.accept(p.reports(12)...)
	q := p.query()
	p.collect(q)
	loc := p.ask(q).header.Get("Location")
	if a := p.call("DELETE", p.leaderURL, loc, "", collectorToken, nil); a.status != 204 {
		t.Fatalf("delete: status %d", a.status)
	}
	p.refused(p.poll(loc), "", 404)
	p.refused(p.ask(q), dap.ProblemBatchOverlap, 400)
}

// TestCollectionDeleteWhileReleased: once the batch is frozen the helper may have closed
// it. Deleting the job then would open the batch again at the leader alone, and what came
// into it later would be lost.
func TestCollectionDeleteWhileReleased(t *testing.T) {
	for _, mode := range []dap.BatchMode{dap.TimeInterval, dap.LeaderSelected} {
		p := newPair(t, setup{mode: mode})
		p.accept(p.reports(12)...)
		// The helper closes the batch, and its answer is lost.
		p.between(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if creates(r, "aggregate_shares") {
					w = httptest.NewRecorder()
					defer panic(http.ErrAbortHandler)
				}
				next.ServeHTTP(w, r)
			})
		})
		q := p.query()
		loc := p.ask(q).header.Get("Location")
		p.step()
		a := p.call("DELETE", p.leaderURL, loc, "", collectorToken, nil)
		p.refused(a, "", 503)
		if a.header.Get("Retry-After") == "" || !strings.Contains(p.problem(a).Detail, "afterwards") {
			t.Errorf("%v: Retry-After %q, %s", mode, a.header.Get("Retry-After"), a.body)
		}
		if mode == dap.TimeInterval {
			p.refusedAtUpload(p.report(0, spoil{}), dap.BatchCollected)
		}
		p.between(nil)
		p.clock.advance(2 * time.Hour)
		p.step()
		if resp, _ := p.open(q, p.poll(loc).body); resp.ReportCount != 12 {
			t.Errorf("%v: %d reports", mode, resp.ReportCount)
		}
		if a := p.call("DELETE", p.leaderURL, loc, "", collectorToken, nil); a.status != 204 {
			t.Errorf("%v: delete afterwards: status %d", mode, a.status)
		}
	}
}

// TestCollectionWaitsForMinimum: never below it; the answer is deferred with a Retry-After.
func TestCollectionWaitsForMinimum(t *testing.T) {
	p := newPair(t, setup{})
	p.accept(p.reports(9)...)
	q := p.query()
	a := p.ask(q)
	loc := a.header.Get("Location")
	if a.status != 201 || len(a.body) != 0 || a.header.Get("Retry-After") == "" || !strings.HasPrefix(loc, "/tasks/") {
		t.Fatalf("status %d, %d bytes, location %q", a.status, len(a.body), loc)
	}
	p.step()
	if a := p.poll(loc); a.status != 200 || len(a.body) != 0 || a.header.Get("Retry-After") == "" {
		t.Fatalf("below the minimum: status %d, %d bytes", a.status, len(a.body))
	}
	if why := status.Why(p.leaderTask()); !slices.ContainsFunc(why, func(r status.Reason) bool {
		return strings.Contains(r.Blocks, "fewer than 10 verified reports")
	}) {
		t.Errorf("why: %+v", why)
	}
	// Invalid reports do not make up the number.
	p.accept(p.report(0, spoil{Context: []byte("x")}))
	p.step()
	if a := p.poll(loc); len(a.body) != 0 {
		t.Fatal("released below the minimum of valid reports")
	}
	p.accept(p.reports(1)...) // the bucket takes uploads still
	p.step()
	resp, _ := p.open(q, p.poll(loc).body)
	if resp.ReportCount != 10 {
		t.Errorf("%d reports", resp.ReportCount)
	}
}

func TestCollectionInvalidBatchSizeWhenTaskIsOver(t *testing.T) {
	now := must(dap.TimePrecision(precision).At(today()))
	p := newPair(t, setup{interval: &dap.Interval{Start: now, Duration: 1}})
	p.accept(p.reports(9)...)
	q := p.query()
	loc := p.ask(q).header.Get("Location")
	p.step()
	if a := p.poll(loc); a.status != 200 || len(a.body) != 0 {
		t.Fatalf("while the task runs: status %d", a.status)
	}
	p.clock.advance(2 * precision * time.Second)
	p.step()
	p.refused(p.poll(loc), dap.ProblemInvalidBatchSize, 400)
	p.refused(p.poll(loc), dap.ProblemInvalidBatchSize, 400) // it keeps answering so
	p.refused(p.ask(q), dap.ProblemInvalidBatchSize, 400)
}

// TestCollectionSaysWhatItWaitsFor: that too few reports came, once none is on its way
// through the servers any more, and never how many.
func TestCollectionSaysWhatItWaitsFor(t *testing.T) {
	p := newPair(t, setup{})
	p.between(says(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	p.accept(p.reports(9)...)
	a := p.ask(p.query())
	loc := a.header.Get("Location")
	waits := func() string { return p.poll(loc).header.Get(releases.WaitingHeader) }
	if got := a.header.Get(releases.WaitingHeader); got != "" {
		t.Errorf("not looked at yet: %q", got)
	}
	p.step()
	if got := waits(); got != "" {
		t.Errorf("with reports that the helper has not verified: %q", got)
	}
	p.between(nil)
	p.clock.advance(2 * time.Hour)
	p.step()
	if got := waits(); got != string(releases.ForReports) {
		t.Errorf("below the minimum: %q", got)
	}
	p.accept(p.reports(1)...)
	if got := waits(); got != "" {
		t.Errorf("with a report that is not verified: %q", got)
	}
	p.step()
	if got := p.poll(loc); len(got.body) == 0 || got.header.Get(releases.WaitingHeader) != "" {
		t.Errorf("released: %d bytes, %q", len(got.body), got.header.Get(releases.WaitingHeader))
	}
	// Nor of a batch whose reports were all verified before it was asked for, and do.
	full := newPair(t, setup{})
	full.accept(full.reports(10)...)
	full.step()
	if got := full.ask(full.query()).header.Get(releases.WaitingHeader); got != "" {
		t.Errorf("with enough reports: %q", got)
	}
}

// TestCollectionWithdrawn: a question is given up for want of an answer, and not with the
// answer that it got meanwhile: that is never had again.
func TestCollectionWithdrawn(t *testing.T) {
	p := newPair(t, setup{})
	p.accept(p.reports(9)...)
	q := p.query()
	withdraw := func(location string) answer {
		t.Helper()
		req := must(http.NewRequest("DELETE", must(url.Parse(p.leaderURL)).ResolveReference(must(url.Parse(location))).String(), nil))
		req.Header.Set("Authorization", "Bearer "+collectorToken)
		req.Header.Set("If-None-Match", "*")
		resp := must(http.DefaultClient.Do(req))
		defer resp.Body.Close()
		return answer{resp.StatusCode, resp.Header, must(io.ReadAll(resp.Body))}
	}
	first := p.ask(q).header.Get("Location")
	p.step()
	if a := withdraw(first); a.status != http.StatusNoContent {
		t.Fatalf("without an answer: status %d %s", a.status, a.body)
	}
	p.refused(p.poll(first), "", http.StatusNotFound)
	p.accept(p.reports(1)...)
	p.anew()
	second := p.ask(q).header.Get("Location")
	p.step()
	want := p.poll(second).body
	if len(want) == 0 {
		t.Fatal("not ready")
	}
	p.refused(withdraw(second), "", http.StatusPreconditionFailed)
	if got := p.poll(second).body; !bytes.Equal(got, want) {
		t.Error("the answer is gone")
	}
}

// TestCollectionFinishesAcknowledgedReports: what was acknowledged before a collection is
// in it.
func TestCollectionFinishesAcknowledgedReports(t *testing.T) {
	p := newPair(t, setup{})
	late := p.reports(5)
	var once sync.Once
	p.between(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// While the first ten are verified, five more are acknowledged: they are in
			// the log only when the collection finds its minimum.
			once.Do(func() { p.accept(late...) })
			next.ServeHTTP(w, r)
		})
	})
	p.accept(p.reports(10)...)
	resp, _ := p.collect(p.query())
	if resp.ReportCount != 15 {
		t.Errorf("%d reports, want all that were acknowledged", resp.ReportCount)
	}
}

func TestCollectionIdempotent(t *testing.T) {
	p := newPair(t, setup{noise: must(noise.NewDiscreteGaussian(100, 1))})
	p.accept(p.reports(12)...)
	q := p.query()
	first, second := p.ask(q), p.ask(q)
	loc := first.header.Get("Location")
	if loc == "" || loc != second.header.Get("Location") {
		t.Fatalf("locations %q and %q", loc, second.header.Get("Location"))
	}
	p.step()
	want := p.poll(loc).body
	if len(want) == 0 {
		t.Fatal("not ready")
	}
	if again := p.ask(q); !bytes.Equal(again.body, want) || again.header.Get("Location") != loc {
		t.Error("the same request again does not show the current state")
	}
	if err := p.leader.Close(); err != nil {
		t.Fatal(err)
	}
	p.startLeader()
	p.step()
	if got := p.poll(loc).body; !bytes.Equal(got, want) {
		t.Error("a restart changed the answer")
	}
}

// TestCollectionBindsRequestAsSent: the shares open under the collector's own bytes and
// no others.
func TestCollectionBindsRequestAsSent(t *testing.T) {
	p := newPair(t, setup{})
	p.accept(p.reports(12)...)
	q := p.query()
	loc := p.ask(q).header.Get("Location")
	p.step()
	body := p.poll(loc).body
	p.open(q, body)
	resp := must(dap.ReadCollectionJobResp(body))
	q.Query.Interval.Start--
	aad := dap.AggregateShareAAD(p.id, p.cfg.Bytes(), must(q.Append(nil)))
	if _, err := p.collector.Open(resp.Leader.Enc, p.dialect.AggregateShareInfo(dap.RoleLeader), aad, resp.Leader.Payload); err == nil {
		t.Error("a share opens under another request")
	}
}

func TestCollectionIntervalIsTight(t *testing.T) {
	p := newPair(t, setup{})
	a, b := p.now()-2, p.now()-1
	for range 6 {
		p.accept(p.report(0, spoil{Time: &a}), p.report(1, spoil{Time: &b}))
	}
	resp, _ := p.collect(p.query())
	if resp.Interval != (dap.Interval{Start: a, Duration: 2}) {
		t.Errorf("interval %v, want the two units from %d", resp.Interval, a)
	}
}

// TestLeaderSelectedTrap: one request is one job until it is deleted, and every job gets
// a batch of its own.
func TestLeaderSelectedTrap(t *testing.T) {
	p := newPair(t, setup{mode: dap.LeaderSelected})
	q := p.query()
	p.accept(p.reports(12)...)
	p.step()
	p.accept(p.reports(13)...)
	p.step()
	resp, _ := p.collect(q)
	if resp.ReportCount != 12 {
		t.Errorf("%d reports in the first batch", resp.ReportCount)
	}
	again := p.ask(q)
	if first, _ := p.open(q, again.body); first.ReportCount != 12 {
		t.Error("the same request is another job")
	}
	if a := p.call("DELETE", p.leaderURL, again.header.Get("Location"), "", collectorToken, nil); a.status != 204 {
		t.Fatalf("delete: status %d", a.status)
	}
	p.anew()
	next := p.ask(q)
	if next.header.Get("Location") == again.header.Get("Location") {
		t.Fatal("a deleted job came back")
	}
	p.step()
	if resp, _ := p.open(q, p.poll(next.header.Get("Location")).body); resp.ReportCount != 13 {
		t.Errorf("%d reports in the second batch", resp.ReportCount)
	}
	if c := p.counts(); c.Collected != 25 {
		t.Errorf("%d collected", c.Collected)
	}
}

func TestLeaderSelectedWaitsForMinimum(t *testing.T) {
	p := newPair(t, setup{mode: dap.LeaderSelected})
	q := p.query()
	p.accept(p.reports(6)...)
	loc := p.ask(q).header.Get("Location")
	p.step()
	if a := p.poll(loc); len(a.body) != 0 {
		t.Fatal("released below the minimum")
	}
	p.accept(p.reports(6)...)
	p.step()
	if resp, _ := p.open(q, p.poll(loc).body); resp.ReportCount != 12 {
		t.Errorf("%d reports", resp.ReportCount)
	}
}

// shareReq is the leader's request for what the helper has verified in the query's
// interval.
func (p *pair) shareReq(change func(*dap.AggregateShareReq), rs ...dap.Report) []byte {
	p.t.Helper()
	q := must(dap.ReadCollectionJobReq(must(p.query().Append(nil))))
	req := dap.AggregateShareReq{
		CollectionJobReq: q, ReportCount: uint64(len(rs)),
		BatchSelector: dap.BatchSelector{Mode: p.cfg.BatchMode, Interval: q.Query.Interval},
	}
	if p.cfg.BatchMode == dap.LeaderSelected {
		req.BatchSelector.BatchID = dap.BatchID{1}
	}
	for _, r := range rs {
		req.Checksum.Add(r.Metadata.ID)
	}
	if change != nil {
		change(&req)
	}
	return must(req.Append(nil))
}

func (p *pair) postShare(body []byte) answer {
	p.t.Helper()
	return p.create(p.helperURL, dap.AggregateSharesResource, dap.MediaAggregateShareReq, peerToken, body)
}

// verified is a helper that has verified n reports.
func verified(t *testing.T, s setup, n int) (*pair, []dap.Report) {
	t.Helper()
	p := newPair(t, s)
	rs := p.reports(n)
	p.resps(p.postInit(p.initReq(p.kit.Inits(rs...), nil)))
	return p, rs
}

func TestShareMalformed(t *testing.T) {
	p, rs := verified(t, setup{}, 12)
	good := p.shareReq(nil, rs...)
	p.refused(p.postShare(good[:len(good)-1]), dap.ProblemInvalidMessage, 400)
	p.refused(p.postShare(append(slices.Clone(good), 0)), dap.ProblemInvalidMessage, 400)
	a := p.call("POST", p.helperURL, dap.CreationPath(dap.TaskID{1}, dap.AggregateSharesResource), dap.MediaAggregateShareReq, peerToken, good)
	p.refused(a, dap.ProblemUnrecognizedTask, 404)
}

func TestShareChecksRequestLikeLeader(t *testing.T) {
	p, rs := verified(t, setup{}, 12)
	for name, c := range map[string]struct {
		change func(*dap.AggregateShareReq)
		typ    dap.ProblemType
	}{
		"aggregation parameter": {func(r *dap.AggregateShareReq) { r.CollectionJobReq.AggParam = []byte{1} }, dap.ProblemInvalidMessage},
		"unknown extension": {func(r *dap.AggregateShareReq) {
			r.CollectionJobReq.Extensions = must(dap.Extensions{}.With(4, nil))
		}, dap.ProblemUnsupportedExtension},
		"extension order": {func(r *dap.AggregateShareReq) {
			r.CollectionJobReq.Extensions = must(dap.ReadExtensions([]byte{0, 8, 0, 5, 0, 0, 0, 4, 0, 0}))
		}, dap.ProblemInvalidExtension},
		"batch mode": {func(r *dap.AggregateShareReq) {
			r.CollectionJobReq.Query = dap.Query{Mode: dap.LeaderSelected}
			r.BatchSelector = dap.BatchSelector{Mode: dap.LeaderSelected}
		}, dap.ProblemInvalidMessage},
		"empty interval": {func(r *dap.AggregateShareReq) { r.CollectionJobReq.Query.Interval.Duration = 0 }, dap.ProblemBatchInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			p.refused(p.postShare(p.shareReq(c.change, rs...)), c.typ, 400)
		})
	}
	if a := p.postShare(p.shareReq(nil, rs...)); a.status != 201 || len(a.body) == 0 {
		t.Errorf("refusals burnt the batch: status %d", a.status)
	}
}

func TestShareSelectorOutsideQuery(t *testing.T) {
	p, rs := verified(t, setup{}, 12)
	for name, change := range map[string]func(*dap.AggregateShareReq){
		"begins before": func(r *dap.AggregateShareReq) { r.BatchSelector.Interval.Start-- },
		"ends after":    func(r *dap.AggregateShareReq) { r.BatchSelector.Interval.Duration++ },
		"empty":         func(r *dap.AggregateShareReq) { r.BatchSelector.Interval.Duration = 0 },
	} {
		t.Run(name, func(t *testing.T) { p.refused(p.postShare(p.shareReq(change, rs...)), dap.ProblemBatchInvalid, 400) })
	}
}

func TestShareSelectorMayBeNarrower(t *testing.T) {
	p, rs := verified(t, setup{}, 12)
	a := p.postShare(p.shareReq(func(r *dap.AggregateShareReq) { r.BatchSelector.Interval = dap.Interval{Start: p.now(), Duration: 1} }, rs...))
	if a.status != 201 || len(a.body) == 0 {
		t.Errorf("status %d", a.status)
	}
}

func TestShareInvalidBatchSize(t *testing.T) {
	p, rs := verified(t, setup{}, 9)
	p.refused(p.postShare(p.shareReq(nil, rs...)), dap.ProblemInvalidBatchSize, 400)
	// The leader's word for the count does not help.
	p.refused(p.postShare(p.shareReq(func(r *dap.AggregateShareReq) { r.ReportCount = 10 }, rs...)), dap.ProblemInvalidBatchSize, 400)
}

// TestShareMismatchBurnsNothing: a wrong count or checksum closes nothing, and the right
// one gets the share afterwards.
func TestShareMismatchBurnsNothing(t *testing.T) {
	p, rs := verified(t, setup{}, 12)
	p.refused(p.postShare(p.shareReq(func(r *dap.AggregateShareReq) { r.ReportCount++ }, rs...)), dap.ProblemBatchMismatch, 400)
	p.refused(p.postShare(p.shareReq(func(r *dap.AggregateShareReq) { r.Checksum[0] ^= 1 }, rs...)), dap.ProblemBatchMismatch, 400)
	if a := p.postShare(p.shareReq(nil, rs...)); a.status != 201 || len(a.body) == 0 {
		t.Errorf("status %d %q", a.status, a.body)
	}
}

// TestShareRetryAfterRefusal: the same bytes that were refused succeed once the helper
// has caught up.
func TestShareRetryAfterRefusal(t *testing.T) {
	p, rs := verified(t, setup{}, 9)
	more := p.reports(3)
	body := p.shareReq(nil, append(rs, more...)...)
	p.refused(p.postShare(body), dap.ProblemInvalidBatchSize, 400)
	p.resps(p.postInit(p.initReq(p.kit.Inits(more...), nil)))
	if a := p.postShare(body); a.status != 201 || len(a.body) == 0 {
		t.Errorf("status %d %q", a.status, a.body)
	}
}

// TestShareOnceAndForAll: identical requests get identical bytes, noise included; others
// get batchOverlap; later reports are refused.
func TestShareOnceAndForAll(t *testing.T) {
	p, rs := verified(t, setup{noise: must(noise.NewDiscreteLaplace(50, 1))}, 12)
	body := p.shareReq(nil, rs...)
	first := p.postShare(body)
	if first.status != 201 || len(first.body) == 0 {
		t.Fatalf("status %d %q", first.status, first.body)
	}
	again := p.postShare(body)
	polled := p.call("GET", p.helperURL, first.header.Get("Location"), "", peerToken, nil)
	if !bytes.Equal(first.body, again.body) || !bytes.Equal(first.body, polled.body) {
		t.Error("the share was released twice")
	}
	p.refused(p.postShare(p.shareReq(func(r *dap.AggregateShareReq) { r.BatchSelector.Interval.Duration-- }, rs...)), dap.ProblemBatchOverlap, 400)
	if a := p.call("DELETE", p.helperURL, first.header.Get("Location"), "", peerToken, nil); a.status != 204 {
		t.Errorf("delete: status %d", a.status)
	}
	p.refused(p.call("GET", p.helperURL, first.header.Get("Location"), "", peerToken, nil), "", 404)
	p.refused(p.postShare(body), dap.ProblemBatchOverlap, 400)
	if resp := p.resps(p.postInit(p.initReq(p.kit.Inits(p.report(0, spoil{})), nil)))[0]; resp.Error != dap.BatchCollected {
		t.Errorf("a later report: %v %v", resp.Type, resp.Error)
	}
}

func TestShareUnknownBatch(t *testing.T) {
	p, rs := verified(t, setup{mode: dap.LeaderSelected}, 12)
	a := p.postShare(p.shareReq(func(r *dap.AggregateShareReq) { r.BatchSelector.BatchID = dap.BatchID{99} }, rs...))
	if doc := p.problem(a); doc.Type != dap.ProblemInvalidBatchSize && doc.Type != dap.ProblemBatchInvalid {
		t.Errorf("problem %q", doc.Type)
	}
	if a := p.postShare(p.shareReq(nil, rs...)); a.status != 201 || len(a.body) == 0 {
		t.Errorf("status %d %q", a.status, a.body)
	}
}

func TestShareDeferred(t *testing.T) {
	p := newPair(t, setup{helper: func(o *helper.Options) { o.Deferred = helper.Always }})
	rs := p.reports(12)
	p.postInit(p.initReq(p.kit.Inits(rs...), nil))
	p.step()
	bad := p.postShare(p.shareReq(func(r *dap.AggregateShareReq) { r.ReportCount++ }, rs...))
	good := p.postShare(p.shareReq(nil, rs...))
	if len(good.body) != 0 || good.header.Get("Retry-After") == "" {
		t.Fatalf("status %d, %d bytes", good.status, len(good.body))
	}
	p.step()
	p.refused(p.call("GET", p.helperURL, bad.header.Get("Location"), "", peerToken, nil), dap.ProblemBatchMismatch, 400)
	got := p.call("GET", p.helperURL, good.header.Get("Location"), "", peerToken, nil)
	if _, err := dap.ReadAggregateShare(got.body); got.status != 200 || err != nil {
		t.Errorf("status %d, %v", got.status, err)
	}
}

// TestHelperRefusalReachesCollector: a mismatch is nobody's secret, and the batch is not
// lost by it.
func TestHelperRefusalReachesCollector(t *testing.T) {
	p := newPair(t, setup{})
	p.accept(p.reports(12)...)
	p.step()
	// Somebody gave the helper a report that the leader does not have.
	p.resps(p.postInit(p.initReq(p.kit.Inits(p.report(0, spoil{})), nil)))
	q := p.query()
	loc := p.ask(q).header.Get("Location")
	p.step()
	p.refused(p.poll(loc), dap.ProblemBatchMismatch, 400)
	if a := p.call("DELETE", p.leaderURL, loc, "", collectorToken, nil); a.status != 204 {
		t.Fatalf("delete: status %d", a.status)
	}
	// A narrower question that leaves the trouble out is not possible here; but the batch
	// is open still.
	p.anew()
	next := p.ask(q)
	if next.status != 201 || next.header.Get("Location") == loc {
		t.Errorf("status %d", next.status)
	}
	p.step()
	p.refused(p.poll(next.header.Get("Location")), dap.ProblemBatchMismatch, 400)
}

// TestNoiseOfBothServers: each draws its own, on every element, within the tail of its law.
func TestNoiseOfBothServers(t *testing.T) {
	g := must(noise.NewDiscreteGaussian(10_000, 1))
	p := newPair(t, setup{noise: g})
	p.accept(p.reports(20)...)
	resp, got := p.collect(p.query())
	if resp.ReportCount != 20 {
		t.Errorf("the count is public: %d", resp.ReportCount)
	}
	noisy := 0
	bound := 2 * g.Tail(1e-9) // two draws in each of five elements: a false alarm once in 10^8 runs
	for _, x := range got {
		if d := x - 4; d != 0 {
			noisy++
		}
		if d := x - 4; d > bound || d < -bound {
			t.Errorf("noise %d beyond %d", d, bound)
		}
	}
	if noisy == 0 { // sigma is 141: five zeros once in 10^12 runs
		t.Error("no noise")
	}
}

func TestHpkeConfig(t *testing.T) {
	p := newPair(t, setup{base: "/v"})
	for _, base := range []string{p.leaderURL, p.helperURL} {
		a := p.call("GET", base, dap.HpkeConfigPath, "", "", nil)
		if a.status != 200 || !strings.HasPrefix(a.header.Get("Cache-Control"), "max-age=86400") {
			t.Errorf("status %d, Cache-Control %q", a.status, a.header.Get("Cache-Control"))
		}
		if err := dap.CheckContentType(a.header.Get("Content-Type"), dap.MediaHpkeConfigList); err != nil {
			t.Error(err)
		}
		list := must(dap.ReadHpkeConfigList(a.body))
		if cfg := must(list.Choose()); len(list) != 1 || cfg.ID != map[bool]uint8{true: 1, false: 2}[base == p.leaderURL] {
			t.Errorf("list %v", list)
		}
	}
}

func TestUnknownPathsGetProblems(t *testing.T) {
	p := newPair(t, setup{base: "/v"})
	p.refused(p.call("GET", p.leaderURL, "nothing/here", "", "", nil), "", 404)
	p.refused(p.call("GET", p.leaderURL, "/outside", "", "", nil), "", 404)
	a := p.call("PUT", p.leaderURL, p.path(dap.ReportsResource), dap.MediaUploadReq, "", nil)
	p.refused(a, "", 405)
	if a.header.Get("Allow") == "" {
		t.Error("no Allow")
	}
	p.refused(p.call("GET", p.leaderURL, p.path(dap.CollectionJobsResource)+"/..%2fescape", "", collectorToken, nil), "", 404)
	// A path that only looks like one of ours is not mended.
	p.refused(p.call("POST", p.leaderURL+"/", p.path(dap.ReportsResource), dap.MediaUploadReq, "", nil), "", 404)
	p.refused(p.call("POST", p.leaderURL, "tasks/x/../"+strings.TrimPrefix(p.path(dap.ReportsResource), "tasks/"), dap.MediaUploadReq, "", nil), "", 404)
	s, err := p.leader.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if got := s.RefusedRequests; got["404"] != 5 || got["405"] != 1 {
		t.Errorf("counted %v", got)
	}
}

func TestClosedServicesRefuse(t *testing.T) {
	p := newPair(t, setup{})
	body := must(dap.AppendUploadRequest(nil, p.reports(1)))
	if err := p.leader.Close(); err != nil {
		t.Fatal(err)
	}
	a := p.call("POST", p.leaderURL, p.path(dap.ReportsResource), dap.MediaUploadReq, "", body)
	p.refused(a, "", http.StatusServiceUnavailable)
	p.startLeader()
	if _, err := p.leader.Status(context.Background()); err != nil {
		t.Error(err)
	}
}

// unnoted notes no log that was begun.
type unnoted struct{ segment.Committer }

func (unnoted) LogFate(context.Context, segment.Begun) (segment.Fate, error) {
	return segment.Named, nil
}
func (unnoted) BeginLogs(context.Context, []segment.Begun) error            { return nil }
func (unnoted) BegunLogs(context.Context) (none []segment.Begun, err error) { return nil, nil }

// TestLateReportsLeaveNoFiles: reports that were acknowledged and come out of the log
// only after their batch is frozen or closed count as batch_collected, and their files go
// without a restart.
func TestLateReportsLeaveNoFiles(t *testing.T) {
	p := newPair(t, setup{})
	// late puts reports into the leader's log behind its back, where no look at the batch
	// can refuse them.
	late := func(n int) {
		t.Helper()
		if err := p.leader.Close(); err != nil {
			t.Fatal(err)
		}
		inbox := must(segment.OpenInbox(t.Context(), p.leaderFS, unnoted{}, segment.InboxOptions{}))
		var entries []segment.Entry
		for _, r := range p.reports(n) {
			entries = append(entries, segment.Entry{
				TaskID: p.id, Bucket: uint64(r.Metadata.Time), ReportID: segment.ReportID(r.Metadata.ID),
				Report: must(r.Append(nil)),
			})
		}
		if err := errors.Join(inbox.Put(context.Background(), entries), inbox.Close()); err != nil {
			t.Fatal(err)
		}
		p.startLeader()
	}
	copies := func() int { return len(must(p.leaderFS.ReadDir("slices"))) }
	p.accept(p.reports(12)...)
	p.step()
	p.between(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	})
	location := p.ask(p.query()).header.Get("Location")
	p.step()
	late(2) // frozen
	p.step()
	if n := copies(); n != 1 {
		t.Fatalf("%d files while the batch is frozen, want the late one", n)
	}
	p.between(nil)
	p.clock.advance(2 * time.Minute)
	p.step()
	if a := p.poll(location); a.status != http.StatusOK || len(a.body) == 0 {
		t.Fatalf("collection: status %d", a.status)
	}
	if n := copies(); n != 0 {
		t.Errorf("%d files after the release", n)
	}
	late(3) // closed
	p.step()
	if n := copies(); n != 0 {
		t.Errorf("%d files of a closed batch", n)
	}
	if c := p.counts(); c.Acknowledged != 17 || c.Aggregated != 12 || c.Rejected["batch_collected"] != 5 {
		t.Errorf("counts %+v", c)
	}
}
