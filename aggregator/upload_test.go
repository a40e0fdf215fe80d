package aggregator_test

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// counts are the leader's counts of the task.
func (p *pair) counts() status.Counts {
	p.t.Helper()
	return p.leaderTask().Counts
}

func (p *pair) helperCounts() status.Counts {
	p.t.Helper()
	s, err := p.helper.Status(context.Background())
	if err != nil {
		p.t.Fatal(err)
	}
	return s.Tasks[0].Counts
}

// settled works until rest and demands what became of the acknowledged reports.
func (p *pair) settled(aggregated uint64, rejected map[string]uint64) {
	p.t.Helper()
	p.step()
	c := p.counts()
	if c.Waiting != 0 || c.Aggregated != aggregated || !equalCounts(c.Rejected, rejected) {
		p.t.Errorf("leader: %d wait, %d aggregated, rejected %v; want 0, %d, %v", c.Waiting, c.Aggregated, c.Rejected, aggregated, rejected)
	}
	sum := c.Aggregated
	for _, n := range c.Rejected {
		sum += n
	}
	if c.Acknowledged != sum {
		p.t.Errorf("leader: %d acknowledged, %d accounted for", c.Acknowledged, sum)
	}
}

func equalCounts(a, b map[string]uint64) bool {
	for k, n := range a {
		if b[k] != n {
			return false
		}
	}
	for k, n := range b {
		if a[k] != n {
			return false
		}
	}
	return true
}

// refusedAtUpload demands one refusal, with that code or what says it in the dialect, and
// that it is counted and nothing else is.
func (p *pair) refusedAtUpload(r dap.Report, code dap.ReportError) {
	p.t.Helper()
	code = p.dialect.Said(code)
	before := p.counts()
	got := p.uploadErrors(p.upload(r))
	if len(got) != 1 || got[0].ID != r.Metadata.ID || got[0].Error != code {
		p.t.Fatalf("upload errors %v, want one %v", got, code)
	}
	after := p.counts()
	if after.Refused[code.String()] != before.Refused[code.String()]+1 {
		p.t.Errorf("refused %v, before %v", after.Refused, before.Refused)
	}
	if after.Acknowledged != before.Acknowledged {
		p.t.Error("a refused report was acknowledged")
	}
}

func TestUploadAcceptedIsEmptyBody(t *testing.T) {
	p := newPair(t, setup{})
	a := p.upload(p.reports(3)...)
	if a.status != http.StatusOK || len(a.body) != 0 || a.header.Get("Content-Type") != "" {
		t.Errorf("status %d, body %q, type %q", a.status, a.body, a.header.Get("Content-Type"))
	}
	p.settled(3, nil)
}

func TestUploadErrorsOnlyFailuresInOrder(t *testing.T) {
	p := newPair(t, setup{})
	future := p.now() + 10
	rs := p.reports(6)
	rs[1] = p.report(0, spoil{Time: &future})
	rs[4] = p.report(0, spoil{Report: func(r *dap.Report) { r.Leader.ConfigID = 99 }})
	got := p.uploadErrors(p.upload(rs...))
	want := []dap.ReportUploadStatus{{ID: rs[1].Metadata.ID, Error: dap.ReportTooEarly}, {ID: rs[4].Metadata.ID, Error: p.dialect.Said(dap.OutdatedConfig)}}
	if !slices.Equal(got, want) {
		t.Errorf("upload errors do not name the two failures in order")
	}
	p.settled(4, nil)
}

func TestUploadMalformed(t *testing.T) {
	p := newPair(t, setup{})
	good := must(dap.AppendUploadRequest(nil, p.reports(2)))
	for name, body := range map[string][]byte{
		"truncated": good[:len(good)-1],
		"trailing":  append(slices.Clone(good), 0),
		"rubbish":   []byte("rubbish"),
	} {
		t.Run(name, func(t *testing.T) {
			p.refused(p.call("POST", p.leaderURL, p.path(dap.ReportsResource), dap.MediaUploadReq, "", body), dap.ProblemInvalidMessage, 400)
		})
	}
	p.settled(0, nil)
}

func TestUploadEmptyCiphertext(t *testing.T) {
	p := newPair(t, setup{})
	r := p.report(0, spoil{})
	b := must(r.Append(nil))
	// The helper's ciphertext is last: cut its payload and write a length of zero.
	b = append(b[:len(b)-4-len(r.Helper.Payload)], 0, 0, 0, 0)
	p.refused(p.call("POST", p.leaderURL, p.path(dap.ReportsResource), dap.MediaUploadReq, "", b), dap.ProblemInvalidMessage, 400)
}

func TestUploadUnrecognizedTask(t *testing.T) {
	p := newPair(t, setup{})
	var other dap.TaskID
	body := must(dap.AppendUploadRequest(nil, p.reports(1)))
	for _, path := range []string{dap.CreationPath(other, dap.ReportsResource), "tasks/not-an-id/reports"} {
		p.refused(p.call("POST", p.leaderURL, path, dap.MediaUploadReq, "", body), dap.ProblemUnrecognizedTask, 404)
	}
}

func TestUploadOutdatedConfig(t *testing.T) {
	p := newPair(t, setup{})
	r := p.report(1, spoil{})
	bad := r
	bad.Leader.ConfigID = 99
	p.refusedAtUpload(bad, dap.OutdatedConfig)
	// The leader must not have remembered the id: the client seals the same report again.
	p.accept(r)
	p.settled(1, nil)
}

func TestUploadOutsideTaskInterval(t *testing.T) {
	now := must(dap.TimePrecision(precision).At(today()))
	p := newPair(t, setup{interval: &dap.Interval{Start: now - 3, Duration: 3}})
	before, first, last, end := now-4, now-3, now-1, now
	p.refusedAtUpload(p.report(0, spoil{Time: &before}), dap.ReportDropped)
	p.refusedAtUpload(p.report(0, spoil{Time: &end}), dap.ReportDropped) // half-open
	p.accept(p.report(0, spoil{Time: &first}), p.report(0, spoil{Time: &last}))
	p.settled(2, nil)
}

func TestUploadTooEarly(t *testing.T) {
	p := newPair(t, setup{leader: func(o *leader.Options) { o.Limits.ClockSkew = precision * time.Second }})
	allowed, beyond := p.now()+1, p.now()+3
	p.refusedAtUpload(p.report(0, spoil{Time: &beyond}), dap.ReportTooEarly)
	p.accept(p.report(0, spoil{Time: &allowed}))
}

func TestUploadBatchCollected(t *testing.T) {
	p := newPair(t, setup{})
	p.accept(p.reports(12)...)
	p.collect(p.query())
	p.refusedAtUpload(p.report(0, spoil{}), dap.BatchCollected)
}

func TestUploadUnknownExtension(t *testing.T) {
	p := newPair(t, setup{})
	p.refusedAtUpload(p.report(0, spoil{Metadata: func(m *dap.ReportMetadata) {
		m.PublicExtensions = must(m.PublicExtensions.With(0x1234, nil))
	}}), dap.UnsupportedExtension)
}

func TestUploadRepeatedExtension(t *testing.T) {
	p := newPair(t, setup{})
	p.refusedAtUpload(p.report(0, spoil{Metadata: func(m *dap.ReportMetadata) {
		m.PublicExtensions = must(dap.ReadExtensions([]byte{0, 8, 0, 5, 0, 0, 0, 5, 0, 0}))
	}}), dap.InvalidMessage)
}

func TestUploadRepeatedReportIsIdempotent(t *testing.T) {
	p := newPair(t, setup{})
	r := p.report(2, spoil{})
	p.accept(r, r)
	p.accept(r)
	p.step()
	p.accept(r)
	p.settled(1, map[string]uint64{"report_replayed": 3})
	if c := p.helperCounts(); c.Aggregated != 1 {
		t.Errorf("the helper aggregated %d", c.Aggregated)
	}
}

// TestUploadOpensNothing: what only a key can tell is found after the acknowledgement,
// and counted.
func TestUploadOpensNothing(t *testing.T) {
	p := newPair(t, setup{})
	p.accept(p.report(0, spoil{AAD: func(b []byte) []byte { return append(b, 1) }}), p.report(1, spoil{}))
	p.settled(1, map[string]uint64{"hpke_decrypt_error": 1})
}

func TestUploadBearerToken(t *testing.T) {
	const token = "token-of-a-fleet-of-devices"
	p := newPair(t, setup{upload: token})
	body := must(dap.AppendUploadRequest(nil, p.reports(1)))
	for _, bad := range []string{"", "token-of-somebody-else-entirely", token + "x", token[:len(token)-1]} {
		a := p.call("POST", p.leaderURL, p.path(dap.ReportsResource), dap.MediaUploadReq, bad, body)
		p.refused(a, "", 401)
		if a.header.Get("WWW-Authenticate") != "Bearer" {
			t.Error("no WWW-Authenticate")
		}
	}
	p.settled(0, nil)
	if a := p.call("POST", p.leaderURL, p.path(dap.ReportsResource), dap.MediaUploadReq, token, body); a.status != 200 {
		t.Errorf("status %d with the token", a.status)
	}
}

func TestUploadMediaType(t *testing.T) {
	p := newPair(t, setup{})
	body := must(dap.AppendUploadRequest(nil, p.reports(1)))
	p.refused(p.call("POST", p.leaderURL, p.path(dap.ReportsResource), dap.MediaCollectionJobReq, "", body), dap.ProblemInvalidMessage, 415)
	p.refused(p.call("POST", p.leaderURL, p.path(dap.ReportsResource), "", "", body), dap.ProblemInvalidMessage, 415)
	req, _ := http.NewRequest("POST", p.leaderURL+"/"+p.path(dap.ReportsResource), strings.NewReader(string(body)))
	req.Header.Set("Content-Type", "Application/PPM-DAP; version=18; message=upload-req") // the hint is tolerated
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("status %d with a version hint", resp.StatusCode)
	}
}

func TestUploadTooLarge(t *testing.T) {
	p := newPair(t, setup{leader: func(o *leader.Options) { o.Limits.UploadBody = 4 << 10 }})
	body := must(dap.AppendUploadRequest(nil, p.reports(20)))
	p.refused(p.call("POST", p.leaderURL, p.path(dap.ReportsResource), dap.MediaUploadReq, "", body), "", 413)
	// Without a declared length too.
	req, _ := http.NewRequest("POST", p.leaderURL+"/"+p.path(dap.ReportsResource), io.MultiReader(strings.NewReader(string(body))))
	req.Header.Set("Content-Type", dap.ContentType(dap.MediaUploadReq))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 413 {
		t.Errorf("chunked: status %d", resp.StatusCode)
	}
	p.settled(0, nil)
}

func TestUploadTooManyReports(t *testing.T) {
	p := newPair(t, setup{leader: func(o *leader.Options) { o.Limits.UploadReports = 3 }})
	p.refused(p.upload(p.reports(4)...), dap.ProblemInvalidMessage, 400)
	p.settled(0, nil)
	p.accept(p.reports(3)...)
}

func TestUploadOverload(t *testing.T) {
	p := newPair(t, setup{leader: func(o *leader.Options) {
		o.Limits = aggregator.Limits{UploadBody: 256 << 10, JobBody: 256 << 10, InFlight: 256 << 10}
	}})
	// One sender holds the whole budget.
	pr, pw := io.Pipe()
	defer pw.Close()
	req, _ := http.NewRequest("POST", p.leaderURL+"/"+p.path(dap.ReportsResource), pr)
	req.Header.Set("Content-Type", dap.ContentType(dap.MediaUploadReq))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	filler := make([]byte, 200<<10)
	rand.Read(filler)
	if _, err := pw.Write(filler); err != nil {
		t.Fatal(err)
	}
	var a answer
	for range 1000 { // the server reads at its own pace
		if a = p.upload(p.reports(1)...); a.status != 200 {
			break
		}
	}
	p.refused(a, "", 503)
	if a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	pw.CloseWithError(io.ErrUnexpectedEOF)
	<-done
}

func TestUploadSlow(t *testing.T) {
	p := newPair(t, setup{leader: func(o *leader.Options) { o.Limits.BodyTimeout = 30 * time.Millisecond }})
	u := must(url.Parse(p.leaderURL))
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	head := "POST /" + p.path(dap.ReportsResource) + " HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nContent-Type: " +
		dap.ContentType(dap.MediaUploadReq) + "\r\n\r\nabc"
	if _, err := conn.Write([]byte(head)); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 64)
	n, err := conn.Read(b)
	if err != nil || !strings.HasPrefix(string(b[:n]), "HTTP/1.1 408 ") {
		t.Errorf("got %q, %v", b[:n], err)
	}
	p.settled(0, nil)
}
