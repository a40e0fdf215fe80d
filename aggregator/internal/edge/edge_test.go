package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/body"
)

// TestRefusedBodies: a body that is refused is answered with its own status, whose peer
// may come again only where the trouble is the server's.
func TestRefusedBodies(t *testing.T) {
	post := func(body io.Reader, declared int64) *http.Request {
		r := httptest.NewRequest("POST", "/", body)
		r.ContentLength = declared
		return r
	}
	for name, c := range map[string]struct {
		r      *http.Request
		budget int64
		status int
		again  bool
	}{
		"larger than the limit":  {post(strings.NewReader(strings.Repeat("x", 1001)), -1), 2000, 413, false},
		"declared larger":        {post(strings.NewReader("x"), 1001), 2000, 413, false},
		"above the budget":       {post(strings.NewReader(strings.Repeat("x", 600)), 600), 500, 503, true},
		"broken off":             {post(iotest.ErrReader(io.ErrUnexpectedEOF), 5), 2000, 400, false},
		"not there at its time":  {post(iotest.ErrReader(os.ErrDeadlineExceeded), 5), 2000, 408, false},
		"as it should be, small": {post(strings.NewReader("x"), 1), 2000, 0, false},
	} {
		s := &Server{Budget: body.NewBudget(c.budget), Limits: aggregator.Limits{BodyTimeout: time.Minute}}
		_, release, err := s.read(httptest.NewRecorder(), c.r, 1000)
		var e *Error
		switch {
		case c.status == 0 && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.status != 0 && (!errors.As(err, &e) || e.Problem.Status != c.status || (e.RetryAfter > 0) != c.again):
			t.Errorf("%s: %v, want status %d", name, err, c.status)
		}
		release()
		if free := s.Budget.Free(); free != c.budget {
			t.Errorf("%s: %d bytes are left of the budget", name, free)
		}
	}
}

func TestGate(t *testing.T) {
	g := NewGate(1, 1)
	leave, err := g.Enter(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	entered := make(chan func())
	go func() {
		l, err := g.Enter(context.Background())
		if err != nil {
			t.Error(err)
		}
		entered <- l
	}()
	for len(g.queue) < 2 { // the second waits now, or soon
		select {
		case <-entered:
			t.Fatal("two work at once")
		default:
		}
	}
	var e *Error
	if _, err := g.Enter(context.Background()); !errors.As(err, &e) || e.Problem.Status != 429 {
		t.Errorf("the third: %v", err)
	}
	leave()
	(<-entered)()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	leave, _ = g.Enter(context.Background())
	if _, err := g.Enter(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	leave()
	if leave, err = g.Enter(context.Background()); err != nil {
		t.Errorf("a caller that gave up kept its place: %v", err)
	}
	leave()
}

// TestOneProblemForEachError: what a peer sees of each kind of error, and nothing of our
// insides.
func TestOneProblemForEachError(t *testing.T) {
	inner := errors.New("secret path /var/lib")
	for _, c := range []struct {
		err    error
		status int
		typ    dap.ProblemType
		retry  bool
	}{
		{inner, 500, "", false},
		{fmt.Errorf("wrapped: %w", Refuse(dap.ProblemBatchInvalid, "x")), 400, dap.ProblemBatchInvalid, false},
		{&dap.Problem{Type: dap.ProblemBatchMismatch, Status: 400}, 400, dap.ProblemBatchMismatch, false},
		{context.Canceled, 503, "", true},
		{fmt.Errorf("%w: %w", store.ErrAgain, inner), 503, "", true},
		{fmt.Errorf("%w: %w", store.ErrUnknown, inner), 503, "", true},
		{Overloaded(429), 429, "", true},
		{Unauthorized(), 401, "", false},
	} {
		w := httptest.NewRecorder()
		writeProblem(w, toError(c.err), &dap.TaskID{1})
		var p dap.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != c.status || p.Type != c.typ || p.TaskID == nil {
			t.Errorf("%v: %d %s", c.err, w.Code, w.Body)
		}
		if strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%v: insides in %s", c.err, w.Body)
		}
		if (w.Header().Get("Retry-After") != "") != c.retry {
			t.Errorf("%v: Retry-After %q", c.err, w.Header().Get("Retry-After"))
		}
	}
}

func TestBasePath(t *testing.T) {
	for base, want := range map[string]string{
		"https://x.example": "", "https://x.example/": "", "https://x.example/a/b/": "/a/b", "http://x.example/a%20b": "/a%20b",
	} {
		if got, err := BasePath(base); err != nil || got != want {
			t.Errorf("%s: %q %v", base, got, err)
		}
	}
	for _, base := range []string{"ftp://x", "https://x//a", "https://x/a/../b", "https://x/./a"} {
		if _, err := BasePath(base); err == nil {
			t.Errorf("%s is a base", base)
		}
	}
}

func TestRefusedAreCounted(t *testing.T) {
	s := &Server{Budget: body.NewBudget(1), Log: slog.New(slog.DiscardHandler)}
	s.Handle("POST", "reports", nil, func(*Request) error { return nil })
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("POST", "/tasks/x/reports", http.NoBody))
	if got := s.Refused(); w.Code != 404 || got["unrecognizedTask"] != 1 {
		t.Errorf("status %d, counted %v", w.Code, got)
	}
}

// TestQuiet: of a flood of refused requests the log has some of each second, and how many
// it has not; refusals are counted all the same.
func TestQuiet(t *testing.T) {
	var q quiet
	at := time.Unix(1000, 0)
	told := 0
	for range 5000 {
		if yes, untold := q.tell(at); yes {
			if told++; untold != 0 {
				t.Errorf("%d are untold before the limit", untold)
			}
		}
	}
	if yes, untold := q.tell(at.Add(time.Second)); told != mostRefusals || !yes || untold != 5000-mostRefusals {
		t.Errorf("%d events in a second, and then %v and %d untold", told, yes, untold)
	}

	var log bytes.Buffer
	s := &Server{Log: slog.New(slog.NewTextHandler(&log, nil))}
	s.handle("GET", "/odd", "GET odd", func(http.ResponseWriter, *http.Request) (*dap.TaskID, error) { return nil, TooLarge() })
	for i := range 2000 {
		path := []string{"/odd", "/none"}[i%2]
		s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
	}
	// Under 40 s, for one second more or less.
	if n := bytes.Count(log.Bytes(), []byte("\n")); n < mostRefusals || n >= 2000 {
		t.Errorf("%d events of 2000 refused requests", n)
	}
	refused := uint64(0)
	for _, n := range s.Refused() {
		refused += n
	}
	if refused != 2000 {
		t.Errorf("%d of 2000 were counted", refused)
	}
}
