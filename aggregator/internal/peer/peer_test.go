package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
)

func testTask(t *testing.T, base string) *task.Task {
	t.Helper()
	u, err := dap.BaseURL([]byte(base))
	if err != nil {
		t.Fatal(err)
	}
	return &task.Task{ID: dap.TaskID{1}, Helper: u, PeerSecret: "the-secret-of-the-peer"}
}

// TestSortsFailures: which answers are refusals, and which prove nothing.
func TestSortsFailures(t *testing.T) {
	problem := func(typ dap.ProblemType) string {
		b, _ := (&dap.Problem{Type: typ, Status: 400}).MarshalJSON()
		return string(b)
	}
	for name, c := range map[string]struct {
		status   int
		media    string
		body     string
		refused  bool
		definite bool
	}{
		"invalidMessage":       {400, dap.ProblemMedia, problem(dap.ProblemInvalidMessage), true, true},
		"batchMismatch":        {400, dap.ProblemMedia, problem(dap.ProblemBatchMismatch), true, true},
		"with a charset":       {400, dap.ProblemMedia + "; charset=utf-8", problem(dap.ProblemBatchMismatch), true, true},
		"unrecognizedTask":     {404, dap.ProblemMedia, problem(dap.ProblemUnrecognizedTask), true, false},
		"unauthorized":         {401, dap.ProblemMedia, problem(""), true, false},
		"foreign type":         {400, dap.ProblemMedia, `{"type":"https://cdn.example/blocked"}`, true, false},
		"a proxy's page":       {403, "text/html", "<h1>no</h1>", true, false},
		"not JSON":             {400, dap.ProblemMedia, "{", true, false},
		"too many requests":    {429, dap.ProblemMedia, problem(dap.ProblemInvalidMessage), false, false},
		"request timeout":      {408, "", "", false, false},
		"internal error":       {500, dap.ProblemMedia, problem(dap.ProblemInvalidMessage), false, false},
		"redirect":             {302, "", "", false, false},
		"success, wrong label": {200, "text/plain", "x", false, false},
		"success, too long":    {200, dap.ContentType(dap.MediaAggregationJobResp), strings.Repeat("x", 5000), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", c.media)
				w.Header().Set("Retry-After", "7")
				w.Header().Set("Location", "https://stranger.example/")
				w.WriteHeader(c.status)
				w.Write([]byte(c.body))
			}))
			defer srv.Close()
			client := NewClient(http.DefaultTransport, time.Minute, 4096)
			_, err := client.Create(context.Background(), AggregationJob(testTask(t, srv.URL), ""), []byte("x"))
			var refused *Refused
			var retry *Retry
			switch {
			case err == nil:
				t.Error("no error")
			case errors.As(err, &refused) != c.refused, errors.As(err, &retry) == c.refused:
				t.Errorf("got %v", err)
			case c.refused && refused.Definite() != c.definite:
				t.Errorf("definite: %v", refused.Definite())
			case !c.refused && c.status != 200 && retry.After != 7*time.Second:
				t.Errorf("retry after %v", retry.After)
			}
		})
	}
}

// TestErrorsNameNoAddress: errors reach logs and the status.
func TestErrorsNameNoAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	client := NewClient(http.DefaultTransport, time.Minute, 4096)
	_, err = client.Create(context.Background(), AggregateShare(testTask(t, "http://"+addr+"/base"), ""), []byte("x"))
	var retry *Retry
	if !errors.As(err, &retry) {
		t.Fatalf("nobody listens: %v", err)
	}
	if s := err.Error(); strings.Contains(s, "127.0.0.1") || strings.Contains(s, "secret") || strings.Contains(s, "base") {
		t.Errorf("the error tells where: %s", s)
	}
	if !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("the error does not tell why: %v", err)
	}
	secret := &Refused{&dap.Problem{Type: dap.ProblemInvalidMessage, Status: 400, Detail: "report AAAA"}}
	if strings.Contains(secret.Error(), "AAAA") {
		t.Errorf("the error repeats a stranger's text: %s", secret)
	}
}

// TestCertificates: whose certificate is wrong is said, and no name or address that stands
// in it.
func TestCertificates(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	right := srv.Client().Transport.(*http.Transport)
	ask := func(change func(*tls.Config)) string {
		t.Helper()
		rt := right.Clone()
		defer rt.CloseIdleConnections()
		change(rt.TLSClientConfig)
		_, err := NewClient(rt, time.Minute, 4096).Create(t.Context(), AggregateShare(testTask(t, srv.URL+"/"), ""), []byte("x"))
		var retry *Retry
		if !errors.As(err, &retry) || strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "example") {
			t.Errorf("%v; want to come again, and no name", err)
		}
		return err.Error()
	}
	for want, change := range map[string]func(*tls.Config){
		"signed by nobody who is known here":    func(c *tls.Config) { c.RootCAs = x509.NewCertPool() },
		"its certificate is for another name":   func(c *tls.Config) { c.ServerName = "helper.test" },
		"its certificate has ended, or has not": func(c *tls.Config) { c.Time = func() time.Time { return time.Unix(1<<40, 0) } },
		"tls: protocol version not supported":   func(c *tls.Config) { c.MaxVersion, c.MinVersion = tls.VersionTLS10, tls.VersionTLS10 },
	} {
		if got := ask(change); !strings.Contains(got, want) {
			t.Errorf("%q; want %q", got, want)
		}
	}
}

func TestTimeout(t *testing.T) {
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer srv.Close()
	defer close(release)
	client := NewClient(http.DefaultTransport, 20*time.Millisecond, 4096)
	_, err := client.Poll(context.Background(), AggregationJob(testTask(t, srv.URL), ""), "id", 0)
	var retry *Retry
	if !errors.As(err, &retry) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestPollBuildsItsURL: base, id and step, and the token.
func TestPollBuildsItsURL(t *testing.T) {
	var got *http.Request
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = r }))
	defer srv.Close()
	client := NewClient(http.DefaultTransport, time.Minute, 4096)
	tk := testTask(t, srv.URL+"/a/b/")
	reply, err := client.Poll(context.Background(), AggregationJob(tk, ""), "the-id", 7)
	if err != nil || reply.Body != nil || reply.ID != "the-id" {
		t.Fatalf("%+v %v", reply, err)
	}
	if want := "/a/b/tasks/" + tk.ID.Base64() + "/aggregation_jobs/the-id?step=7"; got.URL.String() != want {
		t.Errorf("polled %s, want %s", got.URL, want)
	}
	if got.Header.Get("Authorization") != "Bearer the-secret-of-the-peer" {
		t.Error("no token")
	}
}
