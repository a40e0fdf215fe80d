package aggregator_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// works counts what requests cost at aggregators: transactions of their stores, reading
// ones too, and what they do with files. It is what a clock would tell, on an idle machine.
type works struct{ transactions, files atomic.Int64 }

// A work is what was done.
type work struct{ transactions, files int64 }

// counted has the transactions of a pair counted.
func (w *works) counted(s setup) setup {
	each := func(string, time.Duration, error) { w.transactions.Add(1) }
	s.leader = func(o *leader.Options) { o.Observe.Transaction = each }
	s.helper = func(o *helper.Options) { o.Observe.Transaction = each }
	return s
}

// watch counts what is done with the files of a disk.
func (w *works) watch(mem *disktest.Mem) {
	mem.Inject(func(disktest.Op, string) error {
		w.files.Add(1)
		return nil
	})
}

// take is what was done since it was last asked.
func (w *works) take() work { return work{w.transactions.Swap(0), w.files.Swap(0)} }

// TestPathsOfOneHost: two leaders, and two helpers, each with a path of one host. A task of
// one path is answered at the other as no task is, byte for byte, whatever token is shown,
// after the same work, and cannot be added there.
func TestPathsOfOneHost(t *testing.T) {
	var work works
	acme, zeta := newPair(t, work.counted(setup{base: "/acme"})), newPair(t, work.counted(setup{base: "/zeta"}))
	for _, p := range []*pair{acme, zeta} {
		work.watch(p.leaderFS)
		work.watch(p.helperFS)
	}
	host := func(acme, zeta http.Handler) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/acme/") {
				acme.ServeHTTP(w, r)
			} else {
				zeta.ServeHTTP(w, r)
			}
		}))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	leaders := host(acme.leader.Handler(), zeta.leader.Handler())
	helpers := host(acme.helper.Handler(), zeta.helper.Handler())

	theirs := &aggregator.Provision{
		Task: zeta.kit.Aggregator(), Form: aggregator.Configuration, Made: zeta.kit.Config.Bytes(), Terms: []byte(`{"test":1}`),
		Source: aggregator.Typed, By: "alice",
	}
	for name, add := range map[string]func() (bool, error){
		"leader": func() (bool, error) { return acme.leader.Add(t.Context(), theirs) },
		"helper": func() (bool, error) { return acme.helper.Add(t.Context(), theirs) },
	} {
		var refused *aggregator.TaskError
		if _, err := add(); !errors.As(err, &refused) || refused.Fault != aggregator.TaskOfOthers {
			t.Errorf("%s: added a task of another path: %v", name, err)
		}
	}

	// say is the answer at path to a request for task id, as it was on the wire, with the
	// id and the date, which differ between any two requests, written out.
	say := func(method, base, id, rest string, m dap.Media, token string, body []byte) string {
		req, err := http.NewRequest(method, base+"/tasks/"+id+"/"+rest, strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		if m != "" {
			req.Header.Set("Content-Type", dap.ContentType(m))
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.Header.Get("Date") != "" {
			resp.Header.Set("Date", "DATE")
		}
		raw, err := httputil.DumpResponse(resp, true)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(raw), id, "ID")
	}
	var none dap.TaskID
	copy(none[:], "no task of anybody")
	chosen := dap.TaskID{1}.Base64()[:22]
	most := int64(0) // what a task costs that is there, for this to count something
	upload := must(dap.AppendUploadRequest(nil, zeta.reports(1)))
	for _, c := range []struct {
		host, method, path string
		m                  dap.Media
		body               []byte
	}{
		{leaders, "POST", "reports", dap.MediaUploadReq, upload},
		{leaders, "POST", "reports", "", nil},
		{leaders, "PUT", "reports", dap.MediaUploadReq, upload},
		{leaders, "POST", "collection_jobs", dap.MediaCollectionJobReq, []byte{1}},
		{leaders, "PUT", "collection_jobs/" + chosen, dap.MediaCollectionJobReq, []byte{1}},
		{leaders, "GET", "collection_jobs/" + chosen, "", nil},
		{leaders, "DELETE", "collection_jobs/" + chosen, "", nil},
		{helpers, "POST", "aggregation_jobs", dap.MediaAggregationJobInitReq, []byte{1}},
		{helpers, "PUT", "aggregation_jobs/" + chosen, dap.MediaAggregationJobInitReq, []byte{1}},
		{helpers, "GET", "aggregation_jobs/" + chosen, "", nil},
		{helpers, "DELETE", "aggregation_jobs/" + chosen, "", nil},
		{helpers, "POST", "aggregate_shares", dap.MediaAggregateShareReq, []byte{1}},
		{helpers, "GET", "aggregate_shares/" + chosen, "", nil},
		{helpers, "DELETE", "aggregate_shares/" + chosen, "", nil},
		{helpers, "POST", "starling_ledger", "", nil},
		{helpers, "GET", "starling_progress", "", nil},
		{helpers, "GET", "starling_replay", "", nil},
	} {
		differs := false
		for _, token := range []string{"", "a stranger's", peerToken, collectorToken} {
			work.take()
			other := say(c.method, c.host+"/acme", zeta.id.Base64(), c.path, c.m, token, c.body)
			cost := work.take()
			nobodys := say(c.method, c.host+"/acme", none.Base64(), c.path, c.m, token, c.body)
			if other != nobodys {
				t.Errorf("%s %s with token %q: a task of another path is answered\n%s\nand none\n%s", c.method, c.path, token, other, nobodys)
			}
			if costs := work.take(); costs != cost || cost.transactions > 0 || cost.files > 0 {
				t.Errorf("%s %s with token %q: a task of another path costs %+v, and none %+v; want nothing of either", c.method, c.path, token, cost, costs)
			}
			there := say(c.method, c.host+"/zeta", zeta.id.Base64(), c.path, c.m, token, c.body)
			differs = differs || there != nobodys
			most = max(most, work.take().transactions)
		}
		if !differs && !(c.method == "PUT" && c.path == "reports") {
			t.Errorf("%s %s: at its own path the task is answered as none, so that this shows nothing", c.method, c.path)
		}
	}
	if most == 0 {
		t.Error("no request to a task that is there had a transaction, so that this counts nothing")
	}
	for _, p := range []*pair{acme, zeta} {
		p.accept(p.reports(10)...)
		p.step()
	}
}
