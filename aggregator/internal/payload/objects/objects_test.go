package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/payload/objects"
	"github.com/starling-agg/starling/aggregator/internal/payload/payloadtest"
	"github.com/starling-agg/starling/internal/service"
)

// TestFake: a server in this process, and this engine, keep the contract; each test is
// under a prefix of its own.
func TestFake(t *testing.T) {
	f := newFake(t)
	prefixed(t, f.options(t))
}

// prefixed runs the suite, each test under a prefix of its own.
func prefixed(t *testing.T, opt objects.Options) {
	payloadtest.Run(t, func(t *testing.T) func() payload.Store {
		opt := opt
		opt.Prefix = strings.ToLower(t.Name()[strings.LastIndexByte(t.Name(), '/')+1:]) + "/of-one/"
		return func() payload.Store { return open(t, opt) }
	})
}

var content = bytes.Repeat([]byte("starling"), 1000)

// TestMishaps: whatever happens on the way of a request, the error is of its kind, a put
// has happened or not, and never something else; what is worth another try gets one,
// within bounds.
func TestMishaps(t *testing.T) {
	f := newFake(t)
	opt := f.options(t)
	opt.Attempts = 3
	s := open(t, opt)
	must(t, s.Put(t.Context(), "old.obj", content))
	again := func(m mishap) []mishap { return slices.Repeat([]mishap{m}, 6) }
	for what, tc := range map[string]struct {
		on       []mishap
		put      error // what a put of a new object, and
		read     error // a read of an old one, and
		deleted  error // a delete of one that is not there come to
		requests int   // of the put
	}{
		"nothing":            {nil, nil, nil, nil, 1},
		"lost once":          {[]mishap{lost}, nil, nil, nil, 3},
		"lost twice":         {[]mishap{lost, lost}, nil, nil, nil, 3},
		"lost always":        {again(lost), payload.ErrUnavailable, payload.ErrUnavailable, payload.ErrUnavailable, 6},
		"unheard once":       {[]mishap{unheard}, payload.ErrExists, nil, nil, 2},
		"unheard always":     {again(unheard), payload.ErrUnavailable, payload.ErrUnavailable, payload.ErrUnavailable, 6},
		"500 once":           {[]mishap{answer(500, "InternalError")}, nil, nil, nil, 2},
		"503 always":         {again(answer(503, "SlowDown")), payload.ErrUnavailable, payload.ErrUnavailable, payload.ErrUnavailable, 3},
		"429 once":           {[]mishap{answer(429, "TooManyRequests")}, nil, nil, nil, 2},
		"conflict once":      {[]mishap{answer(409, "ConditionalRequestConflict")}, nil, nil, nil, 2},
		"conflict always":    {again(answer(409, "ConditionalRequestConflict")), payload.ErrUnavailable, payload.ErrUnavailable, payload.ErrUnavailable, 3},
		"denied":             {[]mishap{answer(403, "AccessDenied")}, payload.ErrDenied, payload.ErrDenied, payload.ErrDenied, 1},
		"who is that":        {[]mishap{answer(403, "InvalidAccessKeyId")}, payload.ErrDenied, payload.ErrDenied, payload.ErrDenied, 1},
		"401 of a proxy":     {[]mishap{answer(401, "")}, payload.ErrDenied, payload.ErrDenied, payload.ErrDenied, 1},
		"no such S3 bucket":  {[]mishap{answer(404, "NoSuchBucket")}, payload.ErrUnavailable, payload.ErrUnavailable, payload.ErrUnavailable, 1},
		"404 of a proxy":     {[]mishap{answer(404, "")}, payload.ErrUnavailable, payload.ErrUnavailable, payload.ErrUnavailable, 1},
		"quota":              {[]mishap{answer(403, "QuotaExceeded")}, payload.ErrFull, payload.ErrFull, payload.ErrFull, 1},
		"507":                {[]mishap{answer(507, "XMinioStorageFull")}, payload.ErrFull, payload.ErrFull, payload.ErrFull, 1},
		"sent elsewhere":     {[]mishap{elsewhere}, payload.ErrUnavailable, payload.ErrUnavailable, payload.ErrUnavailable, 1},
		"no S3 at all":       {[]mishap{answer(501, "NotImplemented")}, payload.ErrUnavailable, payload.ErrUnavailable, payload.ErrUnavailable, 1},
		"an endless mistake": {[]mishap{endless}, payload.ErrUnavailable, payload.ErrUnavailable, payload.ErrUnavailable, 1},
	} {
		t.Run(what, func(t *testing.T) {
			name := strings.ReplaceAll(strings.ToLower(what), " ", "-") + ".obj"
			f.mishaps(tc.on...)
			err := s.Put(t.Context(), name, content[:100], content[100:])
			if !errors.Is(err, tc.put) || (err == nil) != (tc.put == nil) {
				t.Errorf("put: %v, want %v", err, tc.put)
			}
			if n := f.asked(); n != tc.requests {
				t.Errorf("put: %d requests, want %d", n, tc.requests)
			}
			f.mishaps(tc.on...)
			p := make([]byte, 20)
			n, err := s.ReadAt(t.Context(), "old.obj", p, 8)
			if !errors.Is(err, tc.read) || (err == nil) != (tc.read == nil) || err == nil && !bytes.Equal(p, content[8:28]) || err != nil && n > 0 {
				t.Errorf("read: %d, %v, want %v", n, err, tc.read)
			}
			f.mishaps(tc.on...)
			if _, err := s.Size(t.Context(), "old.obj"); !errors.Is(err, tc.read) || (err == nil) != (tc.read == nil) {
				t.Errorf("size: %v, want %v", err, tc.read)
			}
			f.mishaps(tc.on...)
			if _, err := s.List(t.Context(), "", "", 5); !errors.Is(err, tc.read) || (err == nil) != (tc.read == nil) {
				t.Errorf("list: %v, want %v", err, tc.read)
			}
			f.mishaps(tc.on...)
			if err := s.Delete(t.Context(), "never.obj"); !errors.Is(err, tc.deleted) || (err == nil) != (tc.deleted == nil) {
				t.Errorf("delete: %v, want %v", err, tc.deleted)
			}
			f.mishaps()
			must(t, payload.Keep(t.Context(), s, name, content))
			has(t, s, name, content)
		})
	}
}

// TestSlammed: a store that closes the connection on a body which it does not want, before
// its refusal can be heard, refuses all the same.
func TestSlammed(t *testing.T) {
	f := newFake(t)
	s := open(t, f.options(t))
	large := bytes.Repeat(content, 400)
	must(t, s.Put(t.Context(), "a.obj", large))
	f.always = func(w http.ResponseWriter, r *http.Request, real http.Handler) {
		if r.Method == http.MethodPut {
			slam(t, w)
			return
		}
		real.ServeHTTP(w, r)
	}
	is(t, s.Put(t.Context(), "a.obj", large), payload.ErrExists)
	must(t, payload.Keep(t.Context(), s, "a.obj", large))
	is(t, payload.Keep(t.Context(), s, "a.obj", large[1:]), payload.ErrExists)
	has(t, s, "a.obj", large)
}

// slam ends a connection with what the client has sent unread, of which it learns by a
// reset.
func slam(t *testing.T, w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	if err := errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close()); err != nil {
		t.Error(err)
	}
}

// elsewhere sends the client to another object.
func elsewhere(w http.ResponseWriter, r *http.Request, real http.Handler) {
	w.Header().Set("Location", "/reports/elsewhere.obj")
	answer(http.StatusTemporaryRedirect, "TemporaryRedirect")(w, r, real)
}

// endless answers a refusal that never ends.
func endless(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusBadRequest)
	for {
		if _, err := w.Write(make([]byte, 1<<16)); err != nil {
			return
		}
	}
}

// TestEndedEarly: an answer that ends early is asked for again, from where it ended, a
// bounded number of times.
func TestEndedEarly(t *testing.T) {
	f := newFake(t)
	opt := f.options(t)
	opt.Attempts = 4
	s := open(t, opt)
	must(t, s.Put(t.Context(), "a.obj", content))
	f.mishaps(half, half, half)
	p := make([]byte, len(content)+10)
	n, err := s.ReadAt(t.Context(), "a.obj", p, 0)
	if err != io.EOF || !bytes.Equal(p[:n], content) || f.asked() != 4 {
		t.Errorf("%d bytes, %v, %d requests", n, err, f.asked())
	}
	f.mishaps(half, half, half, half)
	if n, err = s.ReadAt(t.Context(), "a.obj", p, 0); !errors.Is(err, payload.ErrUnavailable) || n >= len(content) || f.asked() != 4 {
		t.Errorf("%d bytes, %v, %d requests", n, err, f.asked())
	}
}

// TestContradictions: a server that answers something else than was asked is found out.
func TestContradictions(t *testing.T) {
	f := newFake(t)
	s := open(t, f.options(t))
	must(t, s.Put(t.Context(), "a.obj", content))
	ranged := func(s string) mishap {
		return edited(func(rec *httptest.ResponseRecorder) { rec.Header().Set("Content-Range", s) })
	}
	whole := func(w http.ResponseWriter, r *http.Request, real http.Handler) {
		r.Header.Del("Range")
		real.ServeHTTP(w, r)
	}
	for what, m := range map[string]mishap{
		"no range": whole, "another range": ranged("bytes 0-9/8000"), "a longer one": ranged("bytes 0-19/8000"), "a range in itself": ranged("bytes 10-19/15"),
		"a short one": ranged("bytes 10-18/8000"), "no size": ranged("bytes 10-19/*"), "no unit": ranged("10-19/8000"),
		"a large number": ranged("bytes 10-19/99999999999999999999"),
	} {
		f.mishaps(m)
		if n, err := s.ReadAt(t.Context(), "a.obj", make([]byte, 10), 10); n != 0 || !errors.Is(err, payload.ErrCorrupt) {
			t.Errorf("%s: %d, %v", what, n, err)
		}
	}
	f.mishaps(half, ranged("bytes 4000-8009/9000"))
	if n, err := s.ReadAt(t.Context(), "a.obj", make([]byte, 8010), 0); n != 4000 || !errors.Is(err, payload.ErrCorrupt) {
		t.Errorf("an object that grows: %d, %v", n, err)
	}
	f.mishaps(half, answer(416, "InvalidRange"))
	if n, err := s.ReadAt(t.Context(), "a.obj", make([]byte, 8010), 0); n != 4000 || !errors.Is(err, payload.ErrUnavailable) {
		t.Errorf("an object that shrinks: %d, %v", n, err)
	}
	must(t, s.Put(t.Context(), "b/a.obj", content))
	for what, body := range map[string]string{
		"a key of others": "<Contents><Key>a.obj</Key><Size>1</Size></Contents>",
		"a key again":     "<Contents><Key>b/a.obj</Key><Size>1</Size></Contents><Contents><Key>b/a.obj</Key><Size>1</Size></Contents>",
		"no end":          "<IsTruncated>true</IsTruncated>",
		"no XML":          "<Contents>",
		"too much of it":  strings.Repeat(" ", 4<<20),
	} {
		f.mishaps(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			fmt.Fprintf(w, "<ListBucketResult>%s</ListBucketResult>", body)
		})
		if page, err := s.List(t.Context(), "b/", "", 5); !errors.Is(err, payload.ErrCorrupt) {
			t.Errorf("%s: %v, %v", what, page, err)
		}
	}
	f.mu.Lock()
	f.always = unconditional
	f.mu.Unlock()
	f.mishaps()
	if err := payload.Probe(t.Context(), s, "probe/"); !errors.Is(err, payload.ErrCorrupt) || !strings.Contains(err.Error(), "If-None-Match") {
		t.Errorf("a server that replaces objects: %v", err)
	}
}

// TestSharing: handles of two prefixes do not see each other, and what others keep under
// the same prefix is left out.
func TestSharing(t *testing.T) {
	f := newFake(t)
	opt := f.options(t)
	root := open(t, opt)
	opt.Prefix = "leader/"
	leader := open(t, opt)
	opt.Prefix = "helper/"
	helper := open(t, opt)
	must(t, leader.Put(t.Context(), "a/x.obj", content))
	must(t, helper.Put(t.Context(), "a/x.obj", content[1:]))
	has(t, leader, "a/x.obj", content)
	has(t, root, "leader/a/x.obj", content)
	for _, foreign := range []string{"leader/README", "leader/a/X.obj", "leader/a/w.obj.bak", "leader/a/"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, f.URL+"/reports/"+foreign, strings.NewReader("x"))
		must(t, err)
		response, err := http.DefaultClient.Do(r)
		must(t, err)
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatal(foreign, response.Status)
		}
	}
	for n := range 3 {
		page, err := leader.List(t.Context(), "", "", n+1)
		if err != nil || fmt.Sprint(page) != "[{a/x.obj 8000}]" {
			t.Errorf("%v, %v", page, err)
		}
	}
	must(t, helper.Delete(t.Context(), "a/x.obj"))
	has(t, leader, "a/x.obj", content)
}

// TestCredentials: a file that is replaced counts from the next request on; one that
// changes under a request has it made again; while nobody can read it the last ones are
// used.
func TestCredentials(t *testing.T) {
	f := newFake(t)
	opt := f.options(t)
	var mu sync.Mutex
	good, change := "first", func() {}
	f.always = func(w http.ResponseWriter, r *http.Request, real http.Handler) {
		mu.Lock()
		ok := strings.Contains(r.Header.Get("Authorization"), "Credential="+good+"/")
		change()
		mu.Unlock()
		if !ok {
			answer(403, "InvalidAccessKeyId")(w, r, real)
			return
		}
		real.ServeHTTP(w, r)
	}
	set := func(user string, on func()) {
		mu.Lock()
		defer mu.Unlock()
		good, change = user, on
	}
	rewrite(t, opt.Credentials, "first", secret)
	s := open(t, opt)
	must(t, s.Put(t.Context(), "a.obj", content))
	set("second", func() {})
	is(t, s.Put(t.Context(), "b.obj", content), payload.ErrDenied)
	if n := f.asked(); n != 2 {
		t.Errorf("%d requests: one that is denied for good was made again", n)
	}
	rewrite(t, opt.Credentials, "second", secret)
	must(t, s.Put(t.Context(), "b.obj", content))
	set("third", func() { rewrite(t, opt.Credentials, "third", secret) })
	must(t, s.Put(t.Context(), "c.obj", content))
	set("third", func() {})
	must(t, os.WriteFile(string(opt.Credentials), []byte("[default]\naws_acc"), 0o600))
	must(t, s.Put(t.Context(), "d.obj", content))
	must(t, os.Remove(string(opt.Credentials)))
	must(t, s.Put(t.Context(), "e.obj", content))
}

// TestHanging: a server that answers nothing costs an attempt its time and no more, and a
// caller who does not wait that long is let go.
func TestHanging(t *testing.T) {
	f := newFake(t)
	opt := f.options(t)
	opt.Timeout, opt.Attempts = 200*time.Millisecond, 20 // more than one, where the machine is busy
	s := open(t, opt)
	f.mishaps(hanging)
	must(t, payload.Keep(t.Context(), s, "a.obj", content))
	asked := 0
	for _, opt.Timeout = range []time.Duration{20 * time.Millisecond, time.Second, 10 * time.Second} {
		opt.Attempts = 2
		s = open(t, opt)
		f.mishaps(hanging, hanging)
		is(t, s.Put(t.Context(), "b.obj", content), payload.ErrUnavailable)
		if asked = f.asked(); asked >= 2 {
			break // where the machine is busy an attempt may end before the server hears of it
		}
	}
	if asked != 2 {
		t.Errorf("%d requests", asked)
	}
	opt.Timeout = time.Hour
	s = open(t, opt)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	f.mishaps(func(w http.ResponseWriter, r *http.Request, real http.Handler) {
		cancel(gone)
		hanging(w, r, real)
	})
	err := s.Put(ctx, "b.obj", content)
	is(t, err, payload.ErrUnavailable)
	is(t, err, gone)
}

// TestOptions: options that could not work are refused, with the reason.
func TestOptions(t *testing.T) {
	good := objects.Options{Endpoint: "https://s3.example", Region: "eu-1", Bucket: "reports", Credentials: profile(t, user, secret)}
	if _, err := objects.Open(good); err != nil {
		t.Fatal(err)
	}
	public := profile(t, user, secret)
	must(t, os.Chmod(string(public), 0o644))
	empty := profile(t, "", "")
	for want, change := range map[string]func(*objects.Options){
		"use https":                   func(o *objects.Options) { o.Endpoint = "http://s3.example" },
		"set the path style":          func(o *objects.Options) { o.Endpoint = "https://192.0.2.1" },
		"no name of an S3 bucket":     func(o *objects.Options) { o.Bucket = "a/b" },
		"\"\" is no name":             func(o *objects.Options) { o.Bucket = "" },
		"no region":                   func(o *objects.Options) { o.Region = "" },
		"\"A\" is no name":            func(o *objects.Options) { o.Bucket = "A" },
		"endpoint":                    func(o *objects.Options) { o.Endpoint = "" },
		"no prefix":                   func(o *objects.Options) { o.Prefix = "a" },
		"-1 attempts":                 func(o *objects.Options) { o.Attempts = -1 },
		"chmod 600":                   func(o *objects.Options) { o.Credentials = public },
		"no such file":                func(o *objects.Options) { o.Credentials = "no/where" },
		"has no profile [ci]":         func(o *objects.Options) { o.Profile = "ci" },
		"has no aws_access_key_id":    func(o *objects.Options) { o.Credentials = empty },
		"aws_secret_access_key in [o": func(o *objects.Options) { o.Profile = "other" },
	} {
		opt := good
		change(&opt)
		if _, err := objects.Open(opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := objects.Open(objects.Options{Region: "eu-1", Bucket: "reports", Credentials: service.Secret("")}); err == nil {
		t.Error("no credentials, and no error")
	}
}

// TestAddress: the S3 bucket is a subdomain of the endpoint, unless it is in the path.
func TestAddress(t *testing.T) {
	for _, tc := range []struct {
		endpoint string
		inPath   bool
		want     string
	}{
		{"https://s3.example", false, "reports.s3.example:443"},
		{"https://s3.example:9000/", true, "s3.example:9000"},
	} {
		opt := objects.Options{
			Endpoint: tc.endpoint, PathStyle: tc.inPath, Region: "eu-1", Bucket: "reports", Prefix: "p/", Attempts: 1,
			Credentials: profile(t, user, secret),
		}
		ctx, cancel := context.WithCancel(t.Context())
		got := ""
		// Nobody is asked: the context ends before the name is looked up.
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GetConn: func(to string) { got = to; cancel() }})
		err := open(t, opt).Delete(ctx, "a.obj")
		is(t, err, context.Canceled)
		if got != tc.want {
			t.Errorf("%s: %s was asked, want %s", tc.endpoint, got, tc.want)
		}
	}
}

// TestVouched: a store is asked over TLS only if its certificate holds.
func TestVouched(t *testing.T) {
	f := newFake(t)
	secure := httptest.NewUnstartedServer(f)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // of the handshake that fails
	secure.StartTLS()
	defer secure.Close()
	opt := f.options(t)
	opt.Endpoint, opt.Attempts = secure.URL, 1
	if err := open(t, opt).Put(t.Context(), "a.obj", content); !errors.Is(err, payload.ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate that nobody vouches for: %v", err)
	}
	opt.RootCAs = secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	must(t, open(t, opt).Put(t.Context(), "a.obj", content))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

func has(t *testing.T, s payload.Store, name string, want []byte) {
	t.Helper()
	p := make([]byte, len(want)+1)
	if n, err := s.ReadAt(t.Context(), name, p, 0); err != io.EOF || !bytes.Equal(p[:n], want) {
		t.Errorf("%s has %d bytes, %v; want %d", name, n, err, len(want))
	}
}
