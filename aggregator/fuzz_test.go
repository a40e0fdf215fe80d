package aggregator_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/starling-agg/starling/dap"
)

// FuzzRequests sends any bytes as the body of any message, with the right tokens: the
// answer is a success, a problem document of the client's making, or nothing at all;
// never an internal error, never a panic.
func FuzzRequests(f *testing.F) {
	p := newPair(f, setup{})
	kinds := []struct {
		h     func() http.Handler
		path  string
		m     dap.Media
		token string
	}{
		{p.leader.Handler, p.path(dap.ReportsResource), dap.MediaUploadReq, ""},
		{p.leader.Handler, p.path(dap.CollectionJobsResource), dap.MediaCollectionJobReq, collectorToken},
		{p.helper.Handler, p.path(dap.AggregationJobsResource), dap.MediaAggregationJobInitReq, peerToken},
		{p.helper.Handler, p.path(dap.AggregateSharesResource), dap.MediaAggregateShareReq, peerToken},
		{p.helper.Handler, p.path(dap.AggregationJobsResource) + "/abc", dap.MediaAggregationJobContinueReq, peerToken},
	}
	rs := p.reports(2)
	for kind, body := range [][]byte{
		must(dap.AppendUploadRequest(nil, rs)), must(p.query().Append(nil)), p.initReq(p.kit.Inits(rs...), nil), p.shareReq(nil, rs...), {0, 1, 0},
	} {
		f.Add(uint8(kind), body)
		f.Add(uint8(kind), body[:len(body)/2])
	}
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		k := kinds[int(kind)%len(kinds)]
		r := httptest.NewRequest("POST", "/"+k.path, bytes.NewReader(body))
		r.Header.Set("Content-Type", dap.ContentType(k.m))
		if k.token != "" {
			r.Header.Set("Authorization", "Bearer "+k.token)
		}
		w := httptest.NewRecorder()
		k.h().ServeHTTP(w, r)
		switch {
		case w.Code >= 500:
			t.Errorf("status %d %s", w.Code, w.Body)
		case w.Code >= 400 && w.Header().Get("Content-Type") != dap.ProblemMedia:
			t.Errorf("status %d without a problem document", w.Code)
		}
	})
}
