// Package clienttest plays leader, helper and relay for tests of what runs on a device:
// in one process, without a network, so that they can run under a fake clock.
package clienttest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/sealed"
)

// Servers hand out keys and count what is uploaded, which they do not open.
type Servers struct {
	t    testing.TB
	keys []byte

	mu     sync.Mutex
	counts Counts
	// Refuse answers every report with a refusal, where it is not zero; set before
	// requests come.
	Refuse dap.ReportError
}

// Counts are what servers were asked for.
type Counts struct {
	Asked   []string // method and path of each request
	Uploads int      // requests with reports
	Reports int
	NoOps   int
	Sizes   map[[2]int]int // uploads by the length of method and path, and of the body
}

// New makes servers with a key of each KEM.
func New(t testing.TB) *Servers {
	t.Helper()
	var list dap.HpkeConfigList
	for i, suite := range []sealed.Suite{sealed.SuiteX25519, sealed.SuiteXWing} {
		k, err := sealed.Generate(uint8(i+1), suite)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, dap.NewHpkeConfig(k))
	}
	keys, err := list.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Servers{t: t, keys: keys, counts: Counts{Sizes: map[[2]int]int{}}}
}

// Pinned are the keys as a manifest has them, for aggregators at these URLs, each with a
// slash at its end.
func (s *Servers) Pinned(aggregators ...string) []ohttp.Pinned {
	var list []ohttp.Pinned
	for _, url := range aggregators {
		list = append(list, ohttp.Pinned{URL: url + "hpke_config", Media: dap.ContentType(dap.MediaHpkeConfigList), Body: s.keys})
	}
	return list
}

// Counts returns what came up to now.
func (s *Servers) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Do answers a request.
func (s *Servers) Do(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Asked = append(s.counts.Asked, r.Method+" "+r.URL.Path)
	if strings.HasSuffix(r.URL.Path, "/hpke_config") {
		w.Header().Set("Content-Type", dap.ContentType(dap.MediaHpkeConfigList))
		w.Write(s.keys)
		return w.Result(), nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	s.counts.Sizes[[2]int{len(r.Method) + len(r.URL.RequestURI()), len(body)}]++
	if r.Method == ohttp.MethodCover {
		s.counts.NoOps++
		return w.Result(), nil
	}
	s.upload(w, body)
	return w.Result(), nil
}

// upload counts the reports of a request.
func (s *Servers) upload(w http.ResponseWriter, body []byte) {
	s.counts.Uploads++
	var refused []dap.ReportUploadStatus
	for report, err := range dap.Reports(body, nil) {
		if err != nil {
			s.t.Error(err)
			return
		}
		s.counts.Reports++
		if s.Refuse != 0 {
			refused = append(refused, dap.ReportUploadStatus{ID: report.Metadata.ID, Error: s.Refuse})
		}
	}
	if len(refused) == 0 {
		return
	}
	b, err := dap.Dialect{Version: dap.Draft18}.AppendUploadErrors(nil, refused)
	if err != nil {
		s.t.Error(err)
	}
	w.Header().Set("Content-Type", dap.ContentType(dap.MediaUploadErrors))
	w.Write(b)
}
