package exchange

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/dap"
)

type doer func(*http.Request) (*http.Response, error)

func (d doer) Do(r *http.Request) (*http.Response, error) { return d(r) }

func response(status int, header map[string]string, body string) *http.Response {
	h := http.Header{}
	for k, v := range header {
		h.Set(k, v)
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}

func request(t *testing.T) Request {
	t.Helper()
	u, err := url.Parse("https://leader.example/base/x")
	if err != nil {
		t.Fatal(err)
	}
	return Request{
		Method: "POST", URL: u, Media: dap.MediaUploadReq, Body: []byte("body"), Token: "secret",
		Want: dap.MediaUploadErrors, MaxBody: 10,
	}
}

var patient = Retry{Attempts: 4, First: time.Second, Longest: 30 * time.Second}

func TestDo(t *testing.T) {
	typ := map[string]string{"Content-Type": dap.ContentType(dap.MediaUploadErrors)}
	answer, err := Do(t.Context(), doer(func(r *http.Request) (*http.Response, error) {
		b, _ := io.ReadAll(r.Body)
		if r.Method != "POST" || r.URL.Path != "/base/x" || string(b) != "body" ||
			r.Header.Get("Content-Type") != dap.ContentType(dap.MediaUploadReq) || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("asked %s %s %v %q", r.Method, r.URL, r.Header, b)
		}
		return response(201, typ, "answer"), nil
	}), request(t), patient)
	if err != nil || string(answer.Body) != "answer" {
		t.Errorf("%+v, %v", answer, err)
	}
}

func TestDoRefuses(t *testing.T) {
	typ := map[string]string{"Content-Type": dap.ContentType(dap.MediaUploadErrors)}
	problem := map[string]string{"Content-Type": dap.ProblemMedia}
	status := func(n int) func(error) bool {
		return func(err error) bool {
			var s *StatusError
			return errors.As(err, &s) && s.Status == n
		}
	}
	for _, c := range []struct {
		name string
		resp *http.Response
		want func(error) bool
	}{
		{"too long", response(200, typ, "12345678901"), func(err error) bool { return errors.Is(err, ErrAnswer) }},
		{"another message", response(200, map[string]string{"Content-Type": dap.ContentType(dap.MediaUploadReq)}, "1"),
			func(err error) bool { return errors.Is(err, ErrAnswer) && errors.Is(err, dap.ErrMediaType) }},
		{"no media type", response(200, nil, "1"), func(err error) bool { return errors.Is(err, ErrAnswer) }},
		{"problem", response(400, problem, `{"type":"urn:ietf:params:ppm:dap:error:batchInvalid","status":200}`),
			func(err error) bool {
				var p *dap.Problem
				return errors.As(err, &p) && p.Type == dap.ProblemBatchInvalid && p.Status == 400
			}},
		{"problem that is not JSON", response(400, problem, `{`), status(400)},
		{"unauthorized", response(401, nil, "go away"), status(401)},
		{"redirect", response(307, map[string]string{"Location": "https://elsewhere.example/"}, ""), status(307)},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := 0
			_, err := Do(t.Context(), doer(func(*http.Request) (*http.Response, error) {
				asked++
				return c.resp, nil
			}), request(t), patient)
			if !c.want(err) || asked != 1 {
				t.Errorf("asked %d times: %v", asked, err)
			}
		})
	}
}

func TestDoRepeats(t *testing.T) {
	for _, c := range []struct {
		name        string
		fail        func() (*http.Response, error)
		least, most time.Duration // of three waits
	}{
		{"no connection", func() (*http.Response, error) { return nil, errors.New("refused") }, 3500 * time.Millisecond, 7 * time.Second},
		{"overload", func() (*http.Response, error) {
			return response(429, map[string]string{"Retry-After": "10"}, ""), nil
		}, 30 * time.Second, 30 * time.Second},
		{"an hour's wait", func() (*http.Response, error) {
			return response(503, map[string]string{"Retry-After": "3600"}, ""), nil
		}, 90 * time.Second, 90 * time.Second},
		{"problem of a broken server", func() (*http.Response, error) {
			return response(500, map[string]string{"Content-Type": dap.ProblemMedia}, "{}"), nil
		}, 3500 * time.Millisecond, 7 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked, start := 0, time.Now()
				d := doer(func(r *http.Request) (*http.Response, error) {
					if b, _ := io.ReadAll(r.Body); string(b) != "body" {
						t.Errorf("attempt %d has body %q", asked, b)
					}
					if asked++; asked < 4 {
						return c.fail()
					}
					return response(200, nil, ""), nil
				})
				if _, err := Do(t.Context(), d, request(t), patient); err != nil {
					t.Fatal(err)
				}
				if got := time.Since(start); got < c.least || got > c.most {
					t.Errorf("waited %v, want %v to %v", got, c.least, c.most)
				}
				asked = -1000
				_, err := Do(t.Context(), d, request(t), patient)
				var gone *UnavailableError
				if !errors.As(err, &gone) || gone.Attempts != 4 || asked != -996 {
					t.Errorf("asked %d times: %v", asked+1000, err)
				}
			})
		})
	}
}

// TestDoTakesNoCertificate: a server whose certificate is not taken is asked once, over a
// real handshake, and the error says which fault it was.
func TestDoTakesNoCertificate(t *testing.T) {
	asked := 0
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was sent a request") }))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	r := request(t)
	var err error
	if r.URL, err = url.Parse(srv.URL); err != nil {
		t.Fatal(err)
	}
	to := DefaultDoer(10 * time.Second)
	_, err = Do(t.Context(), doer(func(r *http.Request) (*http.Response, error) { asked++; return to.Do(r) }), r, patient)
	if asked != 1 || !errors.As(err, new(x509.UnknownAuthorityError)) || errors.As(err, new(*UnavailableError)) {
		t.Errorf("asked %d times: %v", asked, err)
	}
}

func TestDoStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
		defer cancel()
		_, err := Do(ctx, doer(func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") }),
			request(t), Retry{Attempts: 100, First: time.Second, Longest: time.Minute})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "-1": 0, "99999999999999": 0, "Wed, 21 Oct 2026 07:28:00 GMT": 0,
	} {
		if got := RetryAfter(http.Header{"Retry-After": {in}}); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
}
