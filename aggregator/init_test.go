package aggregator_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/aggregatortest"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/vdaf"
)

// initReq is the request of a job.
func (p *pair) initReq(inits []dap.VerifyInit, change func(*dap.AggregationJobInitReq)) []byte {
	p.t.Helper()
	req := dap.AggregationJobInitReq{VerificationKeyID: aggregatortest.VerifyKeyID, Inits: must(dap.AppendVerifyInits(nil, inits))}
	if p.cfg.BatchMode == dap.LeaderSelected {
		req.Extensions = must(req.Extensions.WithLeaderSelectedBatch(dap.BatchID{1}))
	}
	if change != nil {
		change(&req)
	}
	return must(p.dialect.AppendAggregationJobInitReq(nil, &req))
}

func (p *pair) postInit(body []byte) answer {
	p.t.Helper()
	return p.create(p.helperURL, dap.AggregationJobsResource, dap.MediaAggregationJobInitReq, peerToken, body)
}

// resps reads the answer to a job.
func (p *pair) resps(a answer) []dap.VerifyResp {
	p.t.Helper()
	if a.status/100 != 2 {
		p.t.Fatalf("status %d %q", a.status, a.body)
	}
	if err := dap.CheckContentType(a.header.Get("Content-Type"), dap.MediaAggregationJobResp); err != nil {
		p.t.Fatal(err)
	}
	return must(dap.Collect(p.dialect.VerifyResps(a.body, nil)))
}

// untouched demands that the helper has aggregated and rejected nothing.
func (p *pair) untouched() {
	p.t.Helper()
	if c := p.helperCounts(); c.Aggregated != 0 || len(c.Rejected) != 0 || c.Acknowledged != 0 {
		p.t.Errorf("the helper's store changed: %+v", c)
	}
}

// refusedJob demands a refusal of the whole job that changes nothing.
func (p *pair) refusedJob(body []byte, typ dap.ProblemType) answer {
	p.t.Helper()
	a := p.postInit(body)
	p.refused(a, typ, 400)
	p.untouched()
	return a
}

func TestHelperInitUnrecognizedTask(t *testing.T) {
	p := newPair(t, setup{})
	path := dap.CreationPath(dap.TaskID{9}, dap.AggregationJobsResource)
	body := p.initReq(p.kit.Inits(p.reports(1)...), nil)
	p.refused(p.call("POST", p.helperURL, path, dap.MediaAggregationJobInitReq, peerToken, body), dap.ProblemUnrecognizedTask, 404)
}

func TestHelperInitMalformed(t *testing.T) {
	p := newPair(t, setup{})
	good := p.initReq(p.kit.Inits(p.reports(2)...), nil)
	p.refusedJob(good[:len(good)-1], dap.ProblemInvalidMessage)
	p.refusedJob(append(bytes.Clone(good), 0), dap.ProblemInvalidMessage)
	p.refusedJob(good[:3], dap.ProblemInvalidMessage)
	p.refusedJob(nil, dap.ProblemInvalidMessage)
	p.refusedJob(p.initReq(nil, nil), dap.ProblemInvalidMessage) // no report at all
}

func TestHelperInitUnsupportedExtension(t *testing.T) {
	p := newPair(t, setup{})
	// The batch id belongs to leader-selected tasks.
	p.refusedJob(p.initReq(p.kit.Inits(p.reports(1)...), func(r *dap.AggregationJobInitReq) {
		r.Extensions = must(r.Extensions.WithLeaderSelectedBatch(dap.BatchID{1}))
	}), dap.ProblemUnsupportedExtension)
	if p.dialect.Framing == dap.Janus {
		return // has no place for others
	}
	a := p.refusedJob(p.initReq(p.kit.Inits(p.reports(1)...), func(r *dap.AggregationJobInitReq) {
		r.Extensions = must(must(r.Extensions.With(7, nil)).With(9, []byte("x")))
	}), dap.ProblemUnsupportedExtension)
	if got := p.problem(a).UnsupportedExtensions; len(got) != 2 || got[0] != 7 || got[1] != 9 {
		t.Errorf("unsupported_extensions %v", got)
	}
}

func TestHelperInitExtensionsNotIncreasing(t *testing.T) {
	p := newPair(t, setup{mode: dap.LeaderSelected, dialect: &dap.Dialect{Version: speaks.Version}})
	one := append([]byte{0, 1, 0, 32}, make([]byte, 32)...)
	twice := append([]byte{0, byte(2 * len(one))}, append(bytes.Clone(one), one...)...)
	p.refusedJob(p.initReq(p.kit.Inits(p.reports(1)...), func(r *dap.AggregationJobInitReq) {
		r.Extensions = must(dap.ReadExtensions(twice))
	}), dap.ProblemInvalidMessage)
}

func TestHelperInitLeaderSelectedNeedsBatchID(t *testing.T) {
	p := newPair(t, setup{mode: dap.LeaderSelected})
	inits := p.kit.Inits(p.reports(1)...)
	p.refusedJob(p.initReq(inits, func(r *dap.AggregationJobInitReq) { r.Extensions = dap.Extensions{} }), dap.ProblemInvalidMessage)
	if p.dialect.Framing != dap.Janus { // TestJanusHostile has those of its own
		p.refusedJob(p.initReq(inits, func(r *dap.AggregationJobInitReq) {
			r.Extensions = must(dap.Extensions{}.With(dap.ExtLeaderSelectedBatchID, make([]byte, 31)))
		}), dap.ProblemInvalidMessage)
	}
}

func TestHelperInitInvalidAggregationParameter(t *testing.T) {
	p := newPair(t, setup{})
	p.refusedJob(p.initReq(p.kit.Inits(p.reports(1)...), func(r *dap.AggregationJobInitReq) { r.AggParam = []byte{0} }),
		dap.ProblemInvalidAggregationParameter)
}

func TestHelperInitUnknownVerificationKey(t *testing.T) {
	p := newPair(t, setup{})
	rs := p.reports(2)
	body := p.initReq(p.kit.Inits(rs...), func(r *dap.AggregationJobInitReq) { r.VerificationKeyID = 8 })
	if p.dialect.Version == dap.Draft18 {
		p.refusedJob(body, dap.ProblemInvalidMessage)
		return
	}
	// Later drafts refuse each report, so that the leader may come with another key:
	// nothing of them is remembered.
	a := p.postInit(body)
	for i, resp := range p.resps(a) {
		if resp.ID != rs[i].Metadata.ID || resp.Type != dap.Reject || resp.Error != dap.UnknownVerificationKeyID {
			t.Errorf("answer %d: %v %v", i, resp.Type, resp.Error)
		}
	}
	if again := p.postInit(body); !bytes.Equal(again.body, a.body) || again.header.Get("Location") != a.header.Get("Location") {
		t.Errorf("the same request got another answer")
	}
	p.untouched()
	for i, resp := range p.resps(p.postInit(p.initReq(p.kit.Inits(rs...), nil))) {
		if resp.Type != dap.Continue {
			t.Errorf("report %d under a key that is known: %v %v", i, resp.Type, resp.Error)
		}
	}
}

func TestHelperInitDuplicateReportIDs(t *testing.T) {
	p := newPair(t, setup{})
	rs := p.reports(2)
	p.refusedJob(p.initReq(p.kit.Inits(rs[0], rs[1], rs[0]), nil), dap.ProblemInvalidMessage)
}

func TestHelperInitTooManyReports(t *testing.T) {
	p := newPair(t, setup{helper: func(o *helper.Options) { o.Limits.JobReports = 2 }})
	p.refusedJob(p.initReq(p.kit.Inits(p.reports(3)...), nil), dap.ProblemInvalidMessage)
}

func TestHelperUnauthenticated(t *testing.T) {
	p := newPair(t, setup{})
	body := p.initReq(p.kit.Inits(p.reports(1)...), nil)
	for _, token := range []string{"", collectorToken, peerToken + "x", strings.ToUpper(peerToken)} {
		for _, c := range []struct {
			method, path string
			m            dap.Media
		}{
			{"POST", p.path(dap.AggregationJobsResource), dap.MediaAggregationJobInitReq},
			{"POST", p.path(dap.AggregationJobsResource) + "/abc", dap.MediaAggregationJobContinueReq},
			{"GET", p.path(dap.AggregationJobsResource) + "/abc", ""},
			{"DELETE", p.path(dap.AggregationJobsResource) + "/abc", ""},
			{"POST", p.path(dap.AggregateSharesResource), dap.MediaAggregateShareReq},
			{"GET", p.path(dap.AggregateSharesResource) + "/abc", ""},
			{"DELETE", p.path(dap.AggregateSharesResource) + "/abc", ""},
		} {
			a := p.call(c.method, p.helperURL, c.path, c.m, token, body)
			p.refused(a, "", 401)
			if doc := string(a.body); strings.Contains(doc, "urn:ietf") {
				t.Errorf("an authentication failure has one of the draft's types: %s", doc)
			}
		}
	}
	p.untouched()
}

// perReport sends a job of a good, a bad and a good report, and demands that only the bad
// one is refused, with that code or what says it in the dialect.
func (p *pair) perReport(bad dap.Report, code dap.ReportError, change func(*dap.VerifyInit)) {
	p.t.Helper()
	code = p.dialect.Said(code)
	rs := []dap.Report{p.report(1, spoil{}), bad, p.report(2, spoil{})}
	inits := p.kit.Inits(rs...)
	if change != nil {
		change(&inits[1])
	}
	before := p.helperCounts()
	got := p.resps(p.postInit(p.initReq(inits, nil)))
	if len(got) != 3 {
		p.t.Fatalf("%d answers", len(got))
	}
	for i, resp := range got {
		if resp.ID != rs[i].Metadata.ID {
			p.t.Errorf("answer %d is of another report", i)
		}
		if i == 1 {
			if resp.Type != dap.Reject || resp.Error != code {
				p.t.Errorf("bad report: %v %v, want reject %v", resp.Type, resp.Error, code)
			}
		} else if resp.Type != dap.Continue {
			p.t.Errorf("a neighbour of the bad report: %v %v", resp.Type, resp.Error)
		}
	}
	after := p.helperCounts()
	if after.Aggregated != before.Aggregated+2 || after.Rejected[code.String()] != before.Rejected[code.String()]+1 {
		p.t.Errorf("counts %+v, before %+v", after, before)
	}
}

func TestHelperReportDecryptError(t *testing.T) {
	p := newPair(t, setup{})
	p.perReport(p.report(0, spoil{Report: func(r *dap.Report) { r.Helper.Payload[3] ^= 1 }}), dap.HpkeDecryptError, nil)
	p.perReport(p.report(0, spoil{Report: func(r *dap.Report) { r.Helper.Enc = r.Helper.Enc[:5] }}), dap.HpkeDecryptError, nil)
	// A report of another task opens under another AAD.
	p.perReport(p.report(0, spoil{AAD: func(b []byte) []byte { b[0] ^= 1; return b }}), dap.HpkeDecryptError, nil)
	// Moved to another time.
	p.perReport(p.report(0, spoil{Report: func(r *dap.Report) { r.Metadata.Time-- }}), dap.HpkeDecryptError, nil)
}

func TestHelperReportUnknownConfigID(t *testing.T) {
	p := newPair(t, setup{})
	p.perReport(p.report(0, spoil{Report: func(r *dap.Report) { r.Helper.ConfigID = 200 }}), dap.HpkeUnknownConfigID, nil)
}

// plainSealed is a report whose helper share is any bytes.
func (p *pair) plainSealed(plain []byte) dap.Report {
	p.t.Helper()
	r := p.report(0, spoil{})
	aad := dap.InputShareAAD(p.id, p.cfg.Bytes(), &r.Metadata, r.PublicShare)
	r.Helper = must(dap.Seal(dap.NewHpkeConfig(p.helperKey), p.dialect.InputShareInfo(dap.RoleHelper), aad, plain))
	return r
}

func TestHelperReportInvalidMessage(t *testing.T) {
	p := newPair(t, setup{})
	good := must(dap.PlaintextInputShare{Payload: []byte("x")}.Append(nil))
	p.perReport(p.plainSealed(good[:len(good)-1]), dap.InvalidMessage, nil)       // truncated
	p.perReport(p.plainSealed(append(good, 0)), dap.InvalidMessage, nil)          // trailing
	p.perReport(p.plainSealed([]byte{0, 0, 0, 0, 0, 0}), dap.InvalidMessage, nil) // empty payload
	p.perReport(p.plainSealed([]byte{0xff, 0xff, 0, 1}), dap.InvalidMessage, nil) // extensions longer than the share
}

func TestHelperReportExtensions(t *testing.T) {
	private := func(list ...byte) func(dap.Role, *dap.PlaintextInputShare) {
		return func(_ dap.Role, s *dap.PlaintextInputShare) {
			s.PrivateExtensions = must(dap.ReadExtensions(append([]byte{0, byte(len(list))}, list...)))
		}
	}
	public := func(list ...byte) func(*dap.ReportMetadata) {
		return func(m *dap.ReportMetadata) {
			m.PublicExtensions = must(dap.ReadExtensions(append([]byte{0, byte(len(list))}, list...)))
		}
	}
	for name, c := range map[string]struct {
		s    spoil
		code dap.ReportError
	}{
		"unknown private":  {spoil{Plain: private(0, 5, 0, 0)}, dap.UnsupportedExtension},
		"unknown public":   {spoil{Metadata: public(0, 5, 0, 0)}, dap.UnsupportedExtension},
		"in both lists":    {spoil{Plain: private(0, 5, 0, 0), Metadata: public(0, 5, 0, 0)}, dap.UnsupportedExtension},
		"repeated private": {spoil{Plain: private(0, 5, 0, 0, 0, 5, 0, 0)}, dap.InvalidMessage},
		"unsorted private": {spoil{Plain: private(0, 6, 0, 0, 0, 5, 0, 0)}, dap.InvalidMessage},
		"unsorted public":  {spoil{Metadata: public(0, 6, 0, 0, 0, 5, 0, 0)}, dap.InvalidMessage},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, setup{})
			p.perReport(p.report(0, c.s), c.code, nil)
		})
	}
}

func TestHelperReportTooEarly(t *testing.T) {
	p := newPair(t, setup{})
	at := p.now() + 5
	p.perReport(p.report(0, spoil{Time: &at}), dap.ReportTooEarly, nil)
}

func TestHelperReportTaskInterval(t *testing.T) {
	now := must(dap.TimePrecision(precision).At(today()))
	p := newPair(t, setup{interval: &dap.Interval{Start: now - 5, Duration: 20}})
	before := now - 6
	p.perReport(p.report(0, spoil{Time: &before}), dap.TaskNotStarted, nil)
	p = newPair(t, setup{interval: &dap.Interval{Start: now - 20, Duration: 20}})
	expired, last := now, now-1
	rs := []dap.Report{p.report(0, spoil{Time: &last}), p.report(0, spoil{Time: &expired})}
	got := p.resps(p.postInit(p.initReq(p.kit.Inits(rs...), nil)))
	if got[0].Type != dap.Continue || got[1].Type != dap.Reject || got[1].Error != p.dialect.Said(dap.TaskExpired) {
		t.Errorf("answers %v %v, %v %v", got[0].Type, got[0].Error, got[1].Type, got[1].Error)
	}
}

func TestHelperReportVerifyError(t *testing.T) {
	p := newPair(t, setup{})
	p.perReport(p.report(0, spoil{Share: func(s *vdaf.Shares) { s.Inputs[0][0] ^= 1 }}), dap.VDAFVerifyError, nil)
	p.perReport(p.report(0, spoil{Context: []byte("another application")}), dap.VDAFVerifyError, nil)
	for name, payload := range map[string][]byte{
		"not ping-pong":  {9},
		"finish":         vdaf.AppendPingPongFinish(nil, nil),
		"short share":    vdaf.AppendPingPongInitialize(nil, []byte("short")),
		"trailing bytes": append(vdaf.AppendPingPongInitialize(nil, make([]byte, p.vdaf.Sizes().VerifierShare)), 0),
	} {
		t.Run(name, func(t *testing.T) {
			p.perReport(p.report(0, spoil{}), dap.VDAFVerifyError, func(v *dap.VerifyInit) { v.Payload = payload })
		})
	}
}

func TestHelperReportReplayed(t *testing.T) {
	p := newPair(t, setup{})
	r := p.report(0, spoil{})
	p.resps(p.postInit(p.initReq(p.kit.Inits(r), nil)))
	p.perReport(r, dap.ReportReplayed, nil)
}

func TestHelperReportBatchCollected(t *testing.T) {
	p := newPair(t, setup{})
	p.accept(p.reports(11)...)
	p.collect(p.query())
	got := p.resps(p.postInit(p.initReq(p.kit.Inits(p.report(0, spoil{})), nil)))
	if got[0].Type != dap.Reject || got[0].Error != dap.BatchCollected {
		t.Errorf("%v %v, want reject batch_collected", got[0].Type, got[0].Error)
	}
}

// TestVerifyRespContinueForPrio3: the type is continue, and inside is a ping-pong finish.
func TestVerifyRespContinueForPrio3(t *testing.T) {
	p := newPair(t, setup{})
	resp := p.resps(p.postInit(p.initReq(p.kit.Inits(p.report(3, spoil{})), nil)))[0]
	if resp.Type != dap.Continue {
		t.Fatalf("answer of type %v", resp.Type)
	}
	m, err := vdaf.ReadPingPong(resp.Payload)
	if err != nil || m.Type != vdaf.PingPongFinish || len(m.Message) != p.vdaf.Sizes().VerifierMessage {
		t.Errorf("payload %v %v", m.Type, err)
	}
}

func TestHelperInitLocation(t *testing.T) {
	p := newPair(t, setup{base: "/some/base"})
	a := p.postInit(p.initReq(p.kit.Inits(p.reports(1)...), nil))
	loc := a.header.Get("Location")
	if a.status != 201 || !strings.HasPrefix(loc, "/some/base/tasks/") || !strings.HasSuffix(loc, "?step=0") {
		t.Errorf("status %d, location %q", a.status, loc)
	}
	got := p.call("GET", p.helperURL, loc, "", peerToken, nil)
	if got.status != 200 || !bytes.Equal(got.body, a.body) {
		t.Errorf("poll: status %d", got.status)
	}
	p.refused(p.call("GET", p.helperURL, strings.Replace(loc, "step=0", "step=1", 1), "", peerToken, nil), dap.ProblemStepMismatch, 400)
	p.refused(p.call("GET", p.helperURL, strings.Replace(loc, "step=0", "step=00", 1), "", peerToken, nil), dap.ProblemInvalidMessage, 400)
}

func TestHelperInitIdempotent(t *testing.T) {
	p := newPair(t, setup{})
	body := p.initReq(p.kit.Inits(p.reports(5)...), nil)
	var wg sync.WaitGroup
	answers := make([]answer, 6)
	for i := range answers {
		wg.Go(func() { answers[i] = p.postInit(body) })
	}
	wg.Wait()
	for _, a := range answers[1:] {
		if a.status != 201 || a.header.Get("Location") != answers[0].header.Get("Location") || !bytes.Equal(a.body, answers[0].body) {
			t.Errorf("racing identical requests got different answers: %d %q", a.status, a.body)
		}
	}
	for _, resp := range p.resps(answers[0]) {
		if resp.Type != dap.Continue {
			t.Errorf("%v %v", resp.Type, resp.Error)
		}
	}
	if c := p.helperCounts(); c.Aggregated != 5 || len(c.Rejected) > 0 {
		t.Errorf("counts %+v", c)
	}
}

// TestHelperDeletedIsNotForgotten: a duplicate that comes after the job was answered and
// deleted adds nothing.
func TestHelperDeletedIsNotForgotten(t *testing.T) {
	p := newPair(t, setup{})
	early := p.now() + 2
	body := p.initReq(p.kit.Inits(append(p.reports(2), p.report(0, spoil{Time: &early}))...), nil)
	first := p.postInit(body)
	if resp := p.resps(first)[2]; resp.Error != dap.ReportTooEarly {
		t.Fatalf("a report of the hour after next: %v", resp.Error)
	}
	loc := first.header.Get("Location")
	if a := p.call("DELETE", p.helperURL, loc, "", peerToken, nil); a.status != 204 {
		t.Fatalf("delete: status %d", a.status)
	}
	p.refused(p.call("GET", p.helperURL, loc, "", peerToken, nil), dap.ProblemUnrecognizedAggregationJob, 404)
	p.refused(p.call("DELETE", p.helperURL, loc, "", peerToken, nil), dap.ProblemUnrecognizedAggregationJob, 404)
	p.clock.advance(2 * time.Hour) // what was too early then is not now; the leader counted it as refused
	again := p.postInit(body)
	if again.header.Get("Location") == loc && p.dialect.Framing == dap.Standard {
		t.Error("a deleted id came back")
	}
	if c := p.helperCounts(); c.Aggregated != 2 {
		t.Errorf("%d aggregated", c.Aggregated)
	}
	for _, resp := range p.resps(again) {
		if resp.Type != dap.Reject || resp.Error != dap.ReportReplayed {
			t.Errorf("%v %v, want reject report_replayed", resp.Type, resp.Error)
		}
	}
}

// TestHelperJobMayMixBuckets: a foreign leader's job may hold reports of several buckets.
func TestHelperJobMayMixBuckets(t *testing.T) {
	p := newPair(t, setup{})
	a, b := p.now()-1, p.now()-2
	rs := []dap.Report{p.report(0, spoil{}), p.report(1, spoil{Time: &a}), p.report(2, spoil{Time: &b}), p.report(3, spoil{Time: &a})}
	p.resps(p.postInit(p.initReq(p.kit.Inits(rs...), nil)))
	s, err := p.helper.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	got := map[uint64]uint64{}
	for _, batch := range s.Tasks[0].Batches {
		got[batch.Start] = batch.Verified
	}
	if got[uint64(p.now())] != 1 || got[uint64(a)] != 2 || got[uint64(b)] != 1 {
		t.Errorf("verified by bucket: %v", got)
	}
}

func TestHelperDeferred(t *testing.T) {
	p := newPair(t, setup{helper: func(o *helper.Options) { o.Deferred = helper.Always }})
	body := p.initReq(p.kit.Inits(p.reports(2)...), nil)
	a := p.postInit(body)
	loc := a.header.Get("Location")
	if a.status/100 != 2 || len(a.body) != 0 || a.header.Get("Retry-After") == "" || !strings.HasSuffix(loc, "?step=0") {
		t.Fatalf("status %d, body %q, location %q", a.status, a.body, loc)
	}
	if a := p.call("GET", p.helperURL, loc, "", peerToken, nil); a.status != 200 || len(a.body) != 0 {
		t.Errorf("poll before the work: status %d", a.status)
	}
	if _, err := p.helper.Step(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, resp := range p.resps(p.call("GET", p.helperURL, loc, "", peerToken, nil)) {
		if resp.Type != dap.Continue {
			t.Errorf("%v %v", resp.Type, resp.Error)
		}
	}
	if again := p.postInit(body); !bytes.Equal(again.body, p.call("GET", p.helperURL, loc, "", peerToken, nil).body) {
		t.Error("the same bytes again do not show the current state")
	}
}

// TestHelperDeferredBehindAbandoned: jobs that a crash left without their request hide no
// job that a worker can finish.
func TestHelperDeferredBehindAbandoned(t *testing.T) {
	fp := new(disk.Failpoints)
	p := newPair(t, setup{helper: func(o *helper.Options) { o.Failpoints = fp }})
	fp.Arm(helper.FailBeforeCommit, 0, func() error { return errors.New("crash") })
	abandoned := make([][]byte, 20)
	for i := range abandoned {
		abandoned[i] = p.initReq(p.kit.Inits(p.reports(1)...), nil)
		p.refused(p.postInit(abandoned[i]), "", 500)
	}
	fp.Disarm(helper.FailBeforeCommit)
	if err := p.helper.Close(); err != nil {
		t.Fatal(err)
	}
	p.helperOpt.Deferred = helper.Always
	p.startHelper()
	loc := p.postInit(p.initReq(p.kit.Inits(p.reports(2)...), nil)).header.Get("Location")
	p.step()
	if got := p.resps(p.call("GET", p.helperURL, loc, "", peerToken, nil)); len(got) != 2 {
		t.Errorf("%d answers", len(got))
	}
	for _, body := range abandoned { // sent again, as a leader does
		p.resps(p.postInit(body))
	}
	if c := p.helperCounts(); c.Aggregated != 22 {
		t.Errorf("%d aggregated", c.Aggregated)
	}
}

func TestHelperBusy(t *testing.T) {
	p := newPair(t, setup{helper: func(o *helper.Options) { o.Limits.Jobs, o.Limits.Queue = 1, 1 }})
	// Many jobs at once: each is answered, or told to come later and changes nothing;
	// then all get through.
	bodies := make([][]byte, 12)
	for i := range bodies {
		bodies[i] = p.initReq(p.kit.Inits(p.reports(20)...), nil)
	}
	var wg sync.WaitGroup
	answers := make([]answer, len(bodies))
	for i := range bodies {
		wg.Go(func() { answers[i] = p.postInit(bodies[i]) })
	}
	wg.Wait()
	busy := 0
	for i, a := range answers {
		if a.status == http.StatusTooManyRequests {
			busy++
			if p.refused(a, "", 429); a.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			answers[i] = p.postInit(bodies[i])
		}
		p.resps(answers[i])
	}
	if c := p.helperCounts(); c.Aggregated != 240 || len(c.Rejected) > 0 {
		t.Errorf("%d were told to wait; counts %+v", busy, c)
	}
}
