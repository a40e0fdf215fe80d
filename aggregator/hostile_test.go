package aggregator_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
)

// raw sends bytes as they are to an aggregator and reads one response; nil where the
// server closes without one.
func (p *pair) raw(base, request string) *answer {
	p.t.Helper()
	host, _, _ := strings.Cut(strings.TrimPrefix(base, "http://"), "/")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		io.WriteString(conn, request)    // the server may close before it has read all
		conn.(*net.TCPConn).CloseWrite() // and does not wait for what a request lacks
	}()
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return &answer{resp.StatusCode, resp.Header, body}
}

// TestHostileRequests: requests that no client makes get an answer that blames the
// client, change nothing, and leave the server able to serve the next one.
func TestHostileRequests(t *testing.T) {
	p := newPair(t, setup{})
	upload := "/" + p.path(dap.ReportsResource)
	jobs := "/" + p.path(dap.AggregationJobsResource)
	collections := "/" + p.path(dap.CollectionJobsResource)
	body := string(must(dap.AppendUploadRequest(nil, p.reports(2))))
	const media = "Content-Type: application/ppm-dap;message=upload-req\r\n"
	head := func(method, path string, headers ...string) string {
		return method + " " + path + " HTTP/1.1\r\nHost: x\r\n" + strings.Join(headers, "") + "\r\n"
	}
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d\r\n", n) }
	for name, c := range map[string]struct {
		request string
		want    []int // empty: no answer, or any client error
	}{
		"content encoding":        {head("POST", upload, media, "Content-Encoding: gzip\r\n", length(len(body))) + body, []int{415}},
		"two content encodings":   {head("POST", upload, media, "Content-Encoding: identity, br\r\n", length(len(body))) + body, []int{415}},
		"two content types":       {head("POST", upload, media, "Content-Type: text/plain\r\n", length(len(body))) + body, []int{415}},
		"two lengths":             {head("POST", upload, media, length(3), length(4)) + "abc", []int{400}},
		"length and chunks":       {head("POST", upload, media, length(3), "Transfer-Encoding: chunked\r\n") + "3\r\nabc\r\n0\r\n\r\n", []int{400}},
		"negative length":         {head("POST", upload, media, "Content-Length: -1\r\n"), []int{400}},
		"huge length":             {head("POST", upload, media, "Content-Length: 9223372036854775807\r\n"), []int{413}},
		"length beyond 64 bits":   {head("POST", upload, media, "Content-Length: 99999999999999999999\r\n"), []int{400}},
		"huge chunk":              {head("POST", upload, media, "Transfer-Encoding: chunked\r\n") + "7fffffffffffffff\r\nabc", nil},
		"bad chunk":               {head("POST", upload, media, "Transfer-Encoding: chunked\r\n") + "xyz\r\nabc\r\n0\r\n\r\n", []int{400}},
		"gzip as transfer coding": {head("POST", upload, media, "Transfer-Encoding: gzip, chunked\r\n") + "0\r\n\r\n", []int{501}},
		"huge header":             {head("GET", "/hpke_config", "X: "+strings.Repeat("a", 2<<20)+"\r\n"), nil},
		"many headers":            {head("GET", "/hpke_config", strings.Repeat("X: y\r\n", 300_000)), nil},
		"null in path":            {head("GET", "/tasks/\x00/reports"), []int{400}},
		"encoded null":            {head("GET", "/tasks/%00/collection_jobs/%00"), []int{404}},
		"bad escape":              {head("GET", "/tasks/%zz/reports"), []int{400}},
		"no host":                 {"GET /hpke_config HTTP/1.1\r\n\r\n", []int{400}},
		"connect":                 {head("CONNECT", "x:443"), []int{404, 405}},
		"options *":               {head("OPTIONS", "*"), []int{200}},
		"trace":                   {head("TRACE", upload), []int{405}},
		"lower case method":       {head("post", upload, media, length(len(body))) + body, []int{405}},
		"method override":         {head("GET", upload, "X-HTTP-Method-Override: POST\r\n", media), []int{405}},
		"head of jobs":            {head("HEAD", collections, "Authorization: Bearer "+collectorToken+"\r\n"), []int{405}},
		"delete of a collection":  {head("DELETE", collections, "Authorization: Bearer "+collectorToken+"\r\n"), []int{405}},
		"dots":                    {head("GET", "/tasks/../hpke_config"), []int{404}},
		"encoded dots":            {head("GET", "/tasks/%2e%2e/hpke_config"), []int{404}},
		"encoded slash":           {head("POST", strings.Replace(upload, "/reports", "%2freports", 1), media, length(0)), []int{404}},
		"backslash":               {head("POST", strings.ReplaceAll(upload, "/", "\\"), media, length(0)), nil},
		"double slash":            {head("POST", "/"+upload, media, length(0)), []int{404}},
		"slash at the end":        {head("POST", upload+"/", media, length(0)), []int{404}},
		"unfinished body":         {head("POST", upload, media, length(len(body)+5), "Connection: close\r\n") + body, nil},
		"a body for GET":          {head("GET", collections+"/x", "Authorization: Bearer "+collectorToken+"\r\n", length(3)) + "abc", []int{404}},
		"old HTTP":                {"GET /hpke_config HTTP/0.9\r\n\r\n", []int{505, 400}},
		"rubbish":                 {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", []int{400}},
		"aggregation at leader":   {head("POST", jobs, "Authorization: Bearer "+peerToken+"\r\n", length(0)), []int{404}},
		"two tokens":              {head("POST", collections, "Authorization: Bearer "+collectorToken+"\r\nAuthorization: Bearer x\r\n", length(0)), []int{401}},
		"peer's token":            {head("POST", collections, "Authorization: Bearer "+peerToken+"\r\n", length(0)), []int{401}},
		"token in the query":      {head("POST", collections+"?access_token="+collectorToken, length(0)), []int{401}},
	} {
		t.Run(name, func(t *testing.T) {
			a := p.raw(p.leaderURL, c.request)
			switch {
			case a == nil && len(c.want) > 0:
				t.Errorf("no answer, want %v", c.want)
			case a == nil:
			case len(c.want) == 0 && (a.status < 400 || a.status >= 500):
				t.Errorf("status %d", a.status)
			case len(c.want) > 0 && !contains(c.want, a.status):
				t.Errorf("status %d %.200s, want %v", a.status, a.body, c.want)
			}
		})
	}
	if c := p.counts(); c.Acknowledged != 0 {
		t.Errorf("%d reports were taken", c.Acknowledged)
	}
	p.accept(p.reports(1)...)
	p.settled(1, nil)
}

func contains(list []int, n int) bool {
	for _, v := range list {
		if v == n {
			return true
		}
	}
	return false
}

// TestHostileIDs: an id has one spelling; others of the same bytes name nothing.
func TestHostileIDs(t *testing.T) {
	p := newPair(t, setup{})
	id := p.id.Base64()
	last := id[len(id)-1]
	body := must(dap.AppendUploadRequest(nil, p.reports(1)))
	for name, other := range map[string]string{
		"padded":                  id + "=",
		"padding encoded":         id + "%3D",
		"stray bits":              id[:len(id)-1] + string(rune(last+1)),
		"shorter":                 id[:len(id)-1],
		"longer":                  id + "A",
		"line break":              id[:10] + "%0A" + id[10:],
		"line break, same length": id[:len(id)-1] + "%0A",
		"space":                   "%20" + id,
		"empty":                   "",
		"long":                    strings.Repeat("A", 4000),
		"not UTF-8":               "%ff%fe",
	} {
		a := p.call("POST", p.leaderURL, "tasks/"+other+"/reports", dap.MediaUploadReq, "", body)
		if doc := p.problem(a); a.status != 404 || doc.TaskID != nil && doc.TaskID.Base64() == id {
			t.Errorf("%s: status %d", name, a.status)
		}
		for base, token := range map[string]string{p.leaderURL + "/" + p.path(dap.CollectionJobsResource): collectorToken, p.helperURL + "/" + p.path(dap.AggregationJobsResource): peerToken} {
			if a := p.call("GET", base, other, "", token, nil); a.status != 404 && a.status != 405 {
				t.Errorf("%s of a resource: status %d", name, a.status)
			}
		}
	}
	p.settled(0, nil)
}

// TestHostileDeletion: whoever deletes a job or a share while it is being made hears of
// no fault of the server's, and nothing is committed by halves.
func TestHostileDeletion(t *testing.T) {
	t.Run("job", func(t *testing.T) {
		fp := new(disk.Failpoints)
		p := newPair(t, setup{helper: func(o *helper.Options) { o.Failpoints = fp }})
		body := p.initReq(p.kit.Inits(p.reports(3)...), nil)
		fp.Arm(helper.FailBeforeCommit, 0, func() error {
			fp.Disarm(helper.FailBeforeCommit)
			again := p.postInit(body) // finishes the job, so that its name is known
			if a := p.call("DELETE", p.helperURL, again.header.Get("Location"), "", peerToken, nil); a.status != 204 {
				t.Errorf("delete: status %d", a.status)
			}
			return nil
		})
		p.refused(p.postInit(body), "", 503)
		for _, resp := range p.resps(p.postInit(body)) {
			if resp.Error != dap.ReportReplayed {
				t.Errorf("a job that was deleted answers %v %v", resp.Type, resp.Error)
			}
		}
		if c := p.helperCounts(); c.Aggregated != 3 {
			t.Errorf("%+v", c)
		}
	})
	t.Run("continuation", func(t *testing.T) {
		fp := new(disk.Failpoints)
		p := newPair(t, inRounds(2, nil, setup{helper: func(o *helper.Options) { o.Failpoints = fp }}))
		var x wire
		p.wire(&x)
		fp.Arm(helper.FailBeforeCommit, 1, func() error {
			fp.Disarm(helper.FailBeforeCommit)
			last := x.said[len(x.said)-1]
			if a := p.call("DELETE", p.helperURL, last.path, "", peerToken, nil); a.status != 204 {
				t.Errorf("delete: status %d", a.status)
			}
			return nil
		})
		p.accept(p.reports(3)...)
		p.step()
		if n := x.count(func(s *said) bool { return s.continues() && s.Code == 503 }); n != 1 {
			t.Errorf("%d continuations got 503", n)
		}
		if c := p.helperCounts(); c.Aggregated != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// TestHostileOldReports: where an operator bounds the age of reports strangers cannot
// open buckets without end.
func TestHostileOldReports(t *testing.T) {
	p := newPair(t, setup{leader: func(o *leader.Options) { o.Limits.MaxAge = 2 * time.Hour }})
	for age, code := range map[dap.Time]dap.ReportError{0: 0, 2: 0, 3: dap.ReportDropped, p.now(): dap.ReportDropped} {
		at := p.now() - age
		if r := p.report(0, spoil{Time: &at}); code == 0 {
			p.accept(r)
		} else {
			p.refusedAtUpload(r, code)
		}
	}
	p.settled(2, nil)
}

// TestHostileHelperText: what a helper says that is not the draft's neither decides what
// becomes of a job, nor reaches a log or a status.
func TestHostileHelperText(t *testing.T) {
	for _, typ := range []string{"https://evil.example/?id=SECRET", "SECRET", "urn:ietf:params:ppm:dap:error:SECRET", strings.Repeat("SECRET", 1000)} {
		p := newPair(t, setup{})
		x := &tamper{drop: true, answers: []func(http.ResponseWriter, *httptest.ResponseRecorder){
			func(w http.ResponseWriter, _ *httptest.ResponseRecorder) {
				w.Header().Set("Content-Type", dap.ProblemMedia)
				w.WriteHeader(400)
				w.Write(must(json.Marshal(map[string]any{"type": typ, "detail": "SECRET", "status": 400})))
			},
		}}
		p.tamper(x)
		p.accept(p.reports(4)...)
		p.step()
		text := p.log.String() + fmt.Sprintf("%+v %+v", p.leaderTask(), status.Why(p.leaderTask()))
		if strings.Contains(text, "SECRET") {
			t.Errorf("%.40s: a stranger's text is repeated", typ)
		}
		p.clock.advance(time.Hour)
		p.settled(4, nil) // an operator may have mended it
	}
}

// mangle changes an answer in one way or another, which r draws.
func mangle(r *rand.Rand, w http.ResponseWriter, real *httptest.ResponseRecorder) {
	h, code, body := maps.Clone(real.Header()), real.Code, bytes.Clone(real.Body.Bytes())
	switch r.IntN(12) {
	case 0:
		code = []int{100, 199, 204, 206, 299, 302, 304, 400, 401, 404, 410, 418, 451, 500, 502, 599}[1+r.IntN(15)]
	case 1:
		body = nil
	case 2:
		body = body[:r.IntN(len(body)+1)]
	case 3:
		for range 1 + r.IntN(3) {
			if len(body) > 0 {
				body[r.IntN(len(body))] ^= byte(1 << r.IntN(8))
			}
		}
	case 4:
		body = append(body, body...)
	case 5:
		h.Set("Content-Type", []string{"", "text/html", dap.ProblemMedia, dap.ContentType(dap.MediaUploadErrors)}[r.IntN(4)])
	case 6:
		h.Set("Location", []string{"", "/", "http://evil.example/tasks/x", "//", "../../..", strings.Repeat("a", 4000), "%zz"}[r.IntN(7)])
	case 7:
		h.Set("Retry-After", []string{"-1", "0", "99999999999999999999", "soon", "4000000000"}[r.IntN(5)])
		body = nil
	case 8:
		panic(http.ErrAbortHandler)
	case 9:
		h.Set("Content-Length", strconv.Itoa(len(body)+1+r.IntN(9)))
	case 10:
		h.Set("Content-Type", dap.ProblemMedia)
		code, body = 400, []byte([]string{`{"type":7,"status":"x","detail":[]}`, `[]`, `{`, `{"type":"urn:ietf:params:ppm:dap:error:stepMismatch"}`,
			`{"type":"urn:ietf:params:ppm:dap:error:unrecognizedAggregationJob"}`, `{"type":"about:blank","status":-7}`}[r.IntN(6)])
	}
	clear(w.Header())
	maps.Copy(w.Header(), h)
	w.WriteHeader(code)
	w.Write(body)
}

// TestHostileHelper: whatever a helper answers, the leader goes on, counts no report that
// the helper did not, invents none, and once the helper is itself again everything comes
// to an end: counted, or set aside in sight of the operator.
func TestHostileHelper(t *testing.T) {
	aside, counted, seed := 0, 0, uint64(0)
	if testing.Short() {
		seed = 4 // the last of them have both ends
	}
	for ; seed < 16; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 4))
			s := setup{mode: []dap.BatchMode{dap.TimeInterval, dap.LeaderSelected}[seed%2]}
			if seed%3 > 0 {
				s = inRounds(1+int(seed%3), nil, s)
			}
			p := newPair(t, s)
			var evil atomic.Bool
			var mu sync.Mutex // the leader may be gone before its answer is written
			p.between(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					// for the first see TestHostileComparison
					if compares(req) || !evil.Load() || r.IntN(3) == 0 {
						next.ServeHTTP(w, req)
						return
					}
					real := httptest.NewRecorder()
					if r.IntN(4) > 0 {
						next.ServeHTTP(real, req)
					}
					mangle(r, w, real)
				})
			})
			p.accept(p.reports(12)...)
			loc := p.ask(p.query()).header.Get("Location")
			for i := range 14 {
				evil.Store(i < 8)
				p.step()
				p.audit()
				p.clock.advance(2 * time.Hour / 14) // stays within what the query asks for
			}
			// the second, where the two sides can agree no more
			for _, drop := range []bool{false, true} {
				if p.counts().Waiting == 0 {
					break
				}
				p.resume(drop)
				for range 3 {
					p.step()
					p.clock.advance(5 * time.Minute)
				}
			}
			c := p.counts()
			if c.Waiting != 0 || c.Aggregated+c.Rejected["report_dropped"]+c.Rejected["vdaf_verify_error"] != 12 {
				t.Errorf("leader: %+v, %+v", c, p.leaderTask().Stuck)
			}
			if helper := p.helperCounts(); c.Aggregated > helper.Aggregated {
				t.Errorf("the leader counts %d reports, the helper %d", c.Aggregated, helper.Aggregated)
			}
			if a := p.poll(loc); a.status == 200 && len(a.body) > 0 {
				resp := must(dap.ReadCollectionJobResp(a.body))
				if resp.ReportCount != c.Aggregated {
					t.Errorf("%d reports collected of %d", resp.ReportCount, c.Aggregated)
				}
				counted++
			} else if len(p.leaderTask().Stuck) > 0 || a.status >= 400 {
				aside++
			}
		})
	}
	if counted == 0 || aside == 0 && !testing.Short() { // a few may all end well
		t.Errorf("%d ended set aside, %d in a result: the answers were not bad in many ways", aside, counted)
	}
}

// TestHostileLeader: whatever a leader with the right token sends, the helper blames it
// and not itself, commits no report twice, and its store stays sound.
func TestHostileLeader(t *testing.T) {
	refused := map[int]int{}
	for seed := range uint64(16) {
		r := rand.New(rand.NewPCG(seed, 5))
		s := setup{mode: []dap.BatchMode{dap.TimeInterval, dap.LeaderSelected}[seed%2]}
		if seed%3 > 0 {
			s = inRounds(1+int(seed%3), nil, s)
		}
		p := newPair(t, s)
		p.between(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				body := must(io.ReadAll(req.Body))
				for range r.IntN(4) { // before the true one
					bad := bytes.Clone(body)
					other := req.Clone(req.Context())
					switch r.IntN(7) {
					case 0:
						bad = bad[:r.IntN(len(bad)+1)]
					case 1:
						bad = append(bad, bad...)
					case 2:
						other.Method = []string{"PUT", "PATCH", "HEAD", "GET", "OPTIONS"}[r.IntN(5)]
					case 3:
						other.URL.RawQuery = []string{"step=1", "step=-1", "step=70000", "step=00", "step", ";", "%zz"}[r.IntN(7)]
					case 4:
						other.URL.Path += []string{"A", "/x", "x?", "/"}[r.IntN(4)]
					default:
						for range 1 + r.IntN(2) {
							if len(bad) > 0 {
								bad[r.IntN(len(bad))] ^= byte(1 << r.IntN(8))
							}
						}
					}
					other.Body, other.ContentLength = io.NopCloser(bytes.NewReader(bad)), int64(len(bad))
					rec := httptest.NewRecorder()
					next.ServeHTTP(rec, other)
					refused[rec.Code]++
					if rec.Code >= 500 {
						t.Errorf("seed %d: %s %s: status %d %s", seed, other.Method, other.URL, rec.Code, rec.Body)
					}
				}
				req.Body = io.NopCloser(bytes.NewReader(body))
				next.ServeHTTP(w, req)
			})
		})
		p.accept(p.reports(12)...)
		p.ask(p.query())
		for range 4 {
			p.step()
			p.clock.advance(10 * time.Minute)
		}
		p.audit()
		if c := p.helperCounts(); c.Aggregated > 12 {
			t.Errorf("seed %d: the helper counts %d reports of 12", seed, c.Aggregated)
		}
	}
	if len(refused) < 4 || refused[400] == 0 {
		t.Errorf("answers by status: %v", refused)
	}
}
