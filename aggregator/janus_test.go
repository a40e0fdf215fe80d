package aggregator_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/aggregatortest"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// An exchange between leader and helper, as it went over the wire.
type exchanged struct {
	method, path, media string
	body, answer        []byte
	status              int
}

// listen keeps what leader and helper say from now on.
func (p *pair) listen() func() []exchanged {
	var mu sync.Mutex
	var all []exchanged
	p.between(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			x := exchanged{method: r.Method, path: r.URL.Path, media: r.Header.Get("Content-Type"), body: must(io.ReadAll(r.Body))}
			r.Body = io.NopCloser(bytes.NewReader(x.body))
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, r)
			x.answer, x.status = rec.Body.Bytes(), rec.Code
			mu.Lock()
			all = append(all, x)
			mu.Unlock()
			for k, v := range rec.Header() {
				if k != "Location" { // Janus names none where the answer is there
					w.Header()[k] = v
				}
			}
			w.WriteHeader(x.status)
			w.Write(x.answer)
		})
	})
	return func() []exchanged {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

var framedAsJanus = dap.Dialect{Framing: dap.Janus}

// chosen takes the id from the path of a resource in a task, and demands that a peer
// could have chosen it.
func (p *pair) chosen(path string, c dap.Collection) string {
	p.t.Helper()
	prefix := "/" + p.path(c) + "/"
	id, ok := strings.CutPrefix(path, prefix)
	if !ok || len(id) != 22 || dap.CheckChosenID(id) != nil {
		p.t.Errorf("%q is not below %q under a chosen id", path, prefix)
	}
	return id
}

// TestJanusWire: what a leader, a helper and a collector of the framing say, byte for
// byte where it differs from the draft's.
func TestJanusWire(t *testing.T) {
	for _, mode := range []dap.BatchMode{dap.TimeInterval, dap.LeaderSelected} {
		p := newPair(t, setup{mode: mode, dialect: &framedAsJanus})
		heard := p.listen()
		rs := append(p.reports(11), p.report(0, spoil{Report: func(r *dap.Report) { r.Helper.Payload[0] ^= 1 }}))
		p.accept(rs...)
		p.step()
		all := heard()
		job := all[slices.IndexFunc(all, func(x exchanged) bool { return x.method == "PUT" })]
		id := p.chosen(job.path, dap.AggregationJobsResource)
		if job.status != 201 || job.media != "application/ppm-dap;message=aggregation-job-init-req" {
			t.Errorf("%s %q: %d", job.method, job.media, job.status)
		}
		head := "07" + "00000000" + "01" + "0000"
		if mode == dap.LeaderSelected {
			head = "07" + "00000000" + "02" + "0020"
		}
		if got := hex.EncodeToString(job.body[:8]); got != head {
			t.Errorf("%v: the request begins with %s, want %s", mode, got, head)
		}
		rest := job.body[8:]
		if mode == dap.LeaderSelected {
			rest = rest[32:]
		}
		if n := binary.BigEndian.Uint32(rest); int(n) != len(rest)-4 {
			t.Errorf("%v: %d bytes of reports, the length says %d", mode, len(rest)-4, n)
		}
		inits := dap.AggregationJobInitReq{Inits: rest[4:]}
		if got, err := dap.Collect(inits.VerifyInits(nil)); err != nil || len(got) != 12 {
			t.Errorf("%v: %d reports, %v", mode, len(got), err)
		}
		if n := binary.BigEndian.Uint32(job.answer); int(n) != len(job.answer)-4 {
			t.Errorf("%v: %d bytes of answers, the length says %d", mode, len(job.answer)-4, n)
		}
		if got, err := dap.Collect(dap.Dialect{}.VerifyResps(job.answer[4:], nil)); err != nil || len(got) != 12 || got[11].Error != dap.HpkeDecryptError {
			t.Errorf("%v: answers %+v, %v", mode, got, err)
		}
		if !slices.ContainsFunc(all, func(x exchanged) bool { return x.method == "DELETE" && strings.HasSuffix(x.path, "/"+id) }) {
			t.Errorf("%v: the job was not deleted", mode)
		}

		q := p.query()
		resp, _ := p.collect(q)
		if resp.ReportCount != 11 {
			t.Errorf("%v: %d reports", mode, resp.ReportCount)
		}
		all = heard()
		share := all[len(all)-1]
		p.chosen(share.path, dap.AggregateSharesResource)
		if share.method != "PUT" || share.media != "application/ppm-dap;message=aggregate-share-req" || share.status != 201 {
			t.Errorf("%s %q: %d", share.method, share.media, share.status)
		}
		if req, err := dap.ReadAggregateShareReq(share.body); err != nil || !bytes.Equal(req.CollectionJobReq.Bytes(), must(q.Append(nil))) {
			t.Errorf("%v: the request for a share holds another question: %v", mode, err)
		}
		if _, err := dap.ReadAggregateShare(share.answer); err != nil {
			t.Error(err)
		}
		p.between(nil)

		// An upload error that the framing has no number for.
		stale := p.report(0, spoil{Report: func(r *dap.Report) { r.Leader.ConfigID = 99 }})
		if a := p.upload(stale); !bytes.Equal(a.body, append(stale.Metadata.ID[:], 4)) {
			t.Errorf("an unknown config: %x", a.body)
		}
	}
}

// TestJanusBatches: where the collector chooses names, each name of a leader-selected
// task is a batch of its own, also beside others that live, and one name is one question.
func TestJanusBatches(t *testing.T) {
	p := newPair(t, setup{mode: dap.LeaderSelected, dialect: &framedAsJanus})
	q := p.query()
	p.accept(p.reports(12)...)
	p.step()
	p.accept(p.reports(13)...)
	p.step()
	first, _ := p.collect(q)
	location := p.ask(q).header.Get("Location")
	p.anew()
	second, _ := p.collect(q)
	if first.ReportCount != 12 || second.ReportCount != 13 {
		t.Errorf("%d and %d reports", first.ReportCount, second.ReportCount)
	}
	if next := p.ask(q).header.Get("Location"); next == location {
		t.Error("two names are one job")
	}
	other := dap.CollectionJobReq{Query: dap.Query{Mode: dap.LeaderSelected}, AggParam: nil, Extensions: must(dap.Extensions{}.With(9, nil))}
	a := p.call("PUT", p.leaderURL, location, dap.MediaCollectionJobReq, collectorToken, must(other.Append(nil)))
	p.refused(a, dap.ProblemUnsupportedExtension, 400)
	if again, _ := p.open(q, p.poll(location).body); again.ReportCount != 12 {
		t.Errorf("%d reports in the first batch, asked again", again.ReportCount)
	}
}

// TestJanusDeleted: a request for a collection that comes again after its job was deleted
// opens none: it would take a batch that nobody asks for, and its reports with it.
func TestJanusDeleted(t *testing.T) {
	p := newPair(t, setup{mode: dap.LeaderSelected, dialect: &framedAsJanus})
	q := p.query()
	p.accept(p.reports(12)...)
	p.step()
	p.collect(q)
	location := p.ask(q).header.Get("Location")
	if a := p.call("DELETE", p.leaderURL, location, "", collectorToken, nil); a.status != 204 {
		t.Fatalf("status %d", a.status)
	}
	p.accept(p.reports(13)...)
	p.refused(p.ask(q), "", 404)
	p.step()
	p.step()
	if c := p.leaderTask().Counts; c.Collected != 12 || c.Aggregated != 25 {
		t.Errorf("%+v", c)
	}
	p.anew()
	if second, _ := p.collect(q); second.ReportCount != 13 {
		t.Errorf("%d reports under another name", second.ReportCount)
	}
}

// TestJanusForgone: a collection that is given up before its request has come, which was
// held up on its way, is not opened by it.
func TestJanusForgone(t *testing.T) {
	for _, mode := range []dap.BatchMode{dap.TimeInterval, dap.LeaderSelected} {
		p := newPair(t, setup{mode: mode, dialect: &framedAsJanus})
		q := p.query()
		location := dap.CreationPathOf(p.id, dap.CollectionJobsResource,
			p.dialect.ChooseID(p.id, dap.CollectionJobsResource, must(q.Append(nil)), []byte{p.names}))
		for range 2 {
			p.refused(p.call("DELETE", p.leaderURL, location, "", collectorToken, nil), "", 404)
		}
		p.accept(p.reports(12)...)
		p.step()
		p.refused(p.ask(q), "", 404)
		p.step()
		if c := p.leaderTask().Counts; c.Collected != 0 || c.Aggregated != 12 {
			t.Errorf("%v: %+v", mode, c)
		}
		p.anew()
		if resp, _ := p.collect(q); resp.ReportCount != 12 {
			t.Errorf("%v: %d reports under another name", mode, resp.ReportCount)
		}
	}
}

// TestJanusHostile: what no peer of the framing says is refused and changes nothing.
func TestJanusHostile(t *testing.T) {
	p := newPair(t, setup{dialect: &framedAsJanus})
	jobs := p.path(dap.AggregationJobsResource)
	rs := p.reports(3)
	good := p.initReq(p.kit.Inits(rs...), nil)
	put := func(id string, body []byte) answer {
		return p.call("PUT", p.helperURL, jobs+"/"+id, dap.MediaAggregationJobInitReq, peerToken, body)
	}
	const id = "AAECAwQFBgcICQoLDA0ODw"
	for _, bad := range []string{"abc", strings.Repeat("A", 43), id[:21] + "x", id + "==", strings.Repeat("A", 9000)} {
		if a := put(bad, good); a.status != 400 && a.status != 404 {
			t.Errorf("under the id %.50q: status %d", bad, a.status)
		}
	}
	head := good[:8] // key, parameter, time interval
	inits := good[12:]
	framed := func(n int, inits []byte) []byte {
		return append(binary.BigEndian.AppendUint32(bytes.Clone(head), uint32(n)), inits...)
	}
	standard := must(dap.Dialect{}.AppendAggregationJobInitReq(nil, &dap.AggregationJobInitReq{VerificationKeyID: aggregatortest.VerifyKeyID, Inits: inits}))
	for name, body := range map[string][]byte{
		"the draft's framing": standard,
		"no reports":          framed(0, nil),
		"a length too short":  framed(len(inits)-1, inits),
		"a length too long":   framed(len(inits)+1, inits),
		"4 GiB of reports":    framed(1<<32-1, inits),
		"half a report":       framed(len(inits)-9, inits[:len(inits)-9]),
		"no length":           append(bytes.Clone(head), inits...),
		"a batch":             slices.Concat(head[:5], []byte{2, 0, 32}, make([]byte, 32), good[8:]),
		"a batch mode of 0":   slices.Concat(head[:5], []byte{0, 0, 0}, good[8:]),
		"a batch mode of 3":   slices.Concat(head[:5], []byte{3, 0, 0}, good[8:]),
		"a config":            slices.Concat(head[:5], []byte{1, 0, 1, 0}, good[8:]),
		"another key":         append([]byte{8}, good[1:]...),
		"a report twice":      framed(2*len(inits), append(bytes.Clone(inits), inits...)),
	} {
		if a := put(id, body); a.status != 400 {
			t.Errorf("%s: status %d %s", name, a.status, a.body)
		}
	}
	if a := p.call("POST", p.helperURL, jobs, dap.MediaAggregationJobInitReq, peerToken, standard); a.status != 404 {
		t.Errorf("a job by POST: status %d", a.status)
	}
	for _, c := range []dap.Collection{dap.AggregationJobsResource, dap.AggregateSharesResource} {
		p.refused(p.call("PUT", p.helperURL, p.path(c)+"/"+id, dap.MediaAggregationJobInitReq, "", good), "", 401)
	}
	p.untouched()

	first := put(id, good)
	if got := p.resps(first); len(got) != 3 || got[0].Type != dap.Continue {
		t.Fatalf("%+v", got)
	}
	if again := put(id, good); !bytes.Equal(again.body, first.body) {
		t.Error("the same request got another answer")
	}
	p.refused(put(id, p.initReq(p.kit.Inits(p.reports(1)...), nil)), "", 409)
	// The same reports under another name are replays, and count nothing.
	for _, resp := range p.resps(put(id[:20]+"ww", good)) {
		if resp.Error != dap.ReportReplayed {
			t.Errorf("the same reports under another name: %v %v", resp.Type, resp.Error)
		}
	}
	if c := p.helperCounts(); c.Aggregated != 3 {
		t.Errorf("%d aggregated", c.Aggregated)
	}
}

// TestChosenIDsElsewhere: a task of the draft's own framing has no resources whose id the
// peer chose.
func TestChosenIDsElsewhere(t *testing.T) {
	p := newPair(t, setup{dialect: &dap.Dialect{Version: speaks.Version}})
	body := p.initReq(p.kit.Inits(p.reports(1)...), nil)
	for c, want := range map[dap.Collection]string{
		dap.AggregationJobsResource: "DELETE, GET, HEAD, POST", dap.AggregateSharesResource: "DELETE, GET, HEAD",
	} {
		a := p.call("PUT", p.helperURL, p.path(c)+"/AAECAwQFBgcICQoLDA0ODw", dap.MediaAggregationJobInitReq, peerToken, body)
		p.refused(a, "", 405)
		allowed := strings.Split(a.header.Get("Allow"), ", ")
		slices.Sort(allowed)
		if got := strings.Join(allowed, ", "); got != want {
			t.Errorf("%s: Allow %q, want %q", c, got, want)
		}
	}
	p.untouched()
}

// TestFramingMended: leader and helper of which one frames otherwise agree on nothing and
// lose nothing; once the operator has mended that, what waited counts.
func TestFramingMended(t *testing.T) {
	for _, wrong := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
		t.Run(fmt.Sprint("at the ", wrong), func(t *testing.T) {
			s := setup{dialect: &framedAsJanus}
			if wrong == dap.RoleLeader {
				s.leader = func(o *leader.Options) {
					o.Tasks = slices.Clone(o.Tasks)
					o.Tasks[0].Framing = dap.Standard
				}
			} else {
				s.helper = func(o *helper.Options) {
					o.Tasks = slices.Clone(o.Tasks)
					o.Tasks[0].Framing = dap.Standard
				}
			}
			p := newPair(t, s)
			p.accept(p.reports(12)...)
			p.step()
			if c := p.counts(); c.Waiting != 12 {
				t.Errorf("counts %+v", c)
			}
			if why := status.Why(p.leaderTask()); len(why) == 0 || !strings.Contains(why[0].Blocks, "the framing (at the leader: ") {
				t.Errorf("why: %+v", why)
			}
			p.leader.Close()
			p.between(strangers) // who do not compare themselves
			p.startLeader()
			p.step()
			if s := p.leaderTask(); len(s.Stuck) != 1 || s.Stuck[0].Quarantined || !strings.Contains(s.Stuck[0].Why, "framing") {
				t.Errorf("stuck: %+v", s.Stuck)
			}
			p.between(nil)
			p.leader.Close()
			p.helper.Close()
			p.leaderOpt.Tasks[0].Framing, p.helperOpt.Tasks[0].Framing = dap.Janus, dap.Janus
			p.startLeader()
			p.startHelper()
			p.clock.advance(2 * time.Hour)
			p.settled(12, nil)
			q := p.query()
			q.Query.Interval.Start -= 2
			if resp, _ := p.collect(q); resp.ReportCount != 12 {
				t.Errorf("%d reports", resp.ReportCount)
			}
		})
	}
}
