package gateway

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/uploads"
)

// TestNeverAProxy: nothing but an upload to the target goes anywhere. What is for nobody
// here gets the one answer, what is no upload the other.
func TestNeverAProxy(t *testing.T) {
	b := start(t, Options{})
	good := upload(report(t, 1))
	for name, c := range map[string]struct {
		change func(*ohttp.Request)
		want   door.Reason
	}{
		"other host":      {func(m *ohttp.Request) { m.Authority = "internal.example" }, door.Target},
		"no host":         {func(m *ohttp.Request) { m.Authority = "" }, door.Target},
		"user":            {func(m *ohttp.Request) { m.Authority = "x@leader.example" }, door.Target},
		"other port":      {func(m *ohttp.Request) { m.Authority = "leader.example:8443" }, door.Target},
		"metadata":        {func(m *ohttp.Request) { m.Authority, m.Path = "169.254.169.254", "/latest" }, door.Target},
		"plain HTTP":      {func(m *ohttp.Request) { m.Scheme = "http" }, door.Target},
		"GET":             {func(m *ohttp.Request) { m.Method = "GET" }, door.Target},
		"DELETE":          {func(m *ohttp.Request) { m.Method = "DELETE" }, door.Target},
		"other path":      {func(m *ohttp.Request) { m.Path = "/v2/tasks/x/reports" }, door.Target},
		"collection jobs": {func(m *ohttp.Request) { m.Path = "/v1/" + dap.CreationPath(dap.TaskID{5}, dap.CollectionJobsResource) }, door.Target},
		"traversal":       {func(m *ohttp.Request) { m.Path = "/v1/../admin" }, door.Target},
		"query":           {func(m *ohttp.Request) { m.Path += "?x" }, door.Target},
		"media type":      {func(m *ohttp.Request) { m.Header[0].Value = "text/html" }, door.Target},
		"no media type":   {func(m *ohttp.Request) { m.Header = nil }, door.Target},
		"cover elsewhere": {func(m *ohttp.Request) { m.Method, m.Authority = ohttp.MethodCover, "internal.example" }, door.Target},
		"no report":       {func(m *ohttp.Request) { m.Content = nil }, door.Upload},
		"half a report":   {func(m *ohttp.Request) { m.Content = m.Content[:len(m.Content)-1] }, door.Upload},
		"something more":  {func(m *ohttp.Request) { m.Content = append(m.Content, 0) }, door.Upload},
		"two reports":     {func(m *ohttp.Request) { m.Content = bytes.Repeat(m.Content, 2) }, door.Upload},
	} {
		m := *good
		m.Header, m.Content = slices.Clone(good.Header), slices.Clone(good.Content)
		c.change(&m)
		before, want := b.Status().Refused[string(c.want)], 421
		if c.want == door.Upload {
			want = 202
		}
		if a := b.ask(t, &m); a.Status != want || b.Status().Refused[string(c.want)] != before+1 {
			t.Errorf("%s: status %d, %v", name, a.Status, b.Status().Refused)
		}
	}
	if n := len(b.leader.seen()); n != 0 {
		t.Errorf("the leader got %d requests", n)
	}
	for name, plain := range map[string][]byte{
		"no message": make([]byte, 4096)[:1], "a response": {1, 0x40, 200}, "words": []byte("POST / HTTP/1.1\r\n\r\n"),
	} {
		request, opener, err := ohttp.Encapsulate(1, b.pair.Public(), plain)
		if err != nil {
			t.Fatal(err)
		}
		w := b.bring(request)
		if a := openAnswer(t, opener, w); a.Status != 421 {
			t.Errorf("%s: status %d", name, a.Status)
		}
	}
	if n := b.Status().Refused[string(door.Message)]; n != 3 {
		t.Errorf("%d messages counted", n)
	}
	if a := b.ask(t, good); a.Status != 202 || len(b.leader.await(t, 1)) != 1 {
		t.Errorf("and the good one: status %d", a.Status)
	}
}

// TestDoor: what is wrong from the outside is refused before anything is opened.
func TestDoor(t *testing.T) {
	pair := generate(t, 1)
	b := start(t, Options{Keys: []Key{{Pair: pair}}, Relays: []Relay{{Token: "sixteen or more bytes"}}, Limits: Limits{Body: 20_000}})
	request, _ := sealTo(t, pair, upload(report(t, 1)))
	for name, c := range map[string]struct {
		change func(*http.Request)
		want   door.Reason
	}{
		"GET":               {func(r *http.Request) { r.Method = "GET" }, door.Method},
		"path":              {func(r *http.Request) { r.URL.Path = "/admin" }, door.Path},
		"query":             {func(r *http.Request) { r.URL.RawQuery = "to=elsewhere" }, door.Path},
		"absolute":          {func(r *http.Request) { r.URL.Scheme, r.URL.Host = "http", "internal.example" }, door.Path},
		"media type":        {func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, door.Media},
		"around the relay":  {func(r *http.Request) { r.Header.Del("Authorization") }, door.Unauthorized},
		"another's token":   {func(r *http.Request) { r.Header.Set("Authorization", "Bearer sixteen or more bytez") }, door.Unauthorized},
		"a declared length": {func(r *http.Request) { r.ContentLength = 20_001 }, door.Oversized},
		"a long body": {func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(make([]byte, 30_000))), -1
		}, door.Oversized},
	} {
		r := httptest.NewRequest("POST", "/", bytes.NewReader(request))
		r.Header.Set("Content-Type", ohttp.RequestMedia)
		r.Header.Set("Authorization", "Bearer sixteen or more bytes")
		c.change(r)
		w := httptest.NewRecorder()
		b.ServeHTTP(w, r)
		if got := refusedAs(t, w); got != c.want || w.Code != c.want.Status() {
			t.Errorf("%s: %q, status %d", name, got, w.Code)
		}
	}
	if b.Status().Keys[0].Opened != 0 {
		t.Error("a refused request was opened")
	}
}

// TestSealedBadly: stale, truncated, altered and re-encrypted requests.
func TestSealedBadly(t *testing.T) {
	current, old := generate(t, 2), generate(t, 1)
	clock := &fixedClock{now: time.Unix(1000, 0)}
	b := start(t, Options{Keys: []Key{{Pair: current}, {Pair: old, NotAfter: time.Unix(2000, 0)}}, Clock: clock})
	m := upload(report(t, 1))
	fresh := func() []byte { r, _ := sealTo(t, current, m); return r }
	forOld, _ := sealTo(t, old, m)
	forNobody, _ := sealTo(t, generate(t, 3), m)
	otherKeySameID, _ := sealTo(t, generate(t, 2), m)
	relabelled := fresh()
	relabelled[0] = 1 // the outer id of the old key
	otherSuite := fresh()
	otherSuite[6] = 3 // ChaCha20Poly1305, which is not on offer
	altered := fresh()
	altered[len(altered)-1] ^= 1
	head, tail := fresh(), fresh()
	for name, c := range map[string]struct {
		request []byte
		want    door.Reason
	}{
		"empty":                     {nil, door.Truncated},
		"half a head":               {fresh()[:6], door.Truncated},
		"no message":                {fresh()[:7+32+15], door.Truncated},
		"cut short":                 {fresh()[:200], door.Sealed},
		"unknown key":               {forNobody, door.Key},
		"another's key, our id":     {otherKeySameID, door.Sealed},
		"sent under another id":     {relabelled, door.Sealed},
		"another suite":             {otherSuite, door.Key},
		"altered":                   {altered, door.Sealed},
		"spliced from two":          {append(slices.Clone(head[:7+32]), tail[7+32:]...), door.Sealed},
		"the old key, in its time":  {forOld, ""},
		"padding of zeros appended": {append(fresh(), 0), door.Sealed},
	} {
		if got := refusedAs(t, b.bring(c.request)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := refusedAs(t, b.bring(forOld)); got != door.Replayed {
		t.Errorf("the same, a second time: %q", got)
	}
	clock.set(time.Unix(2000, 0))
	late, _ := sealTo(t, old, m)
	if got := refusedAs(t, b.bring(late)); got != door.Key {
		t.Errorf("the old key, past its time: %q", got)
	}
	// Re-encrypted by one who knows the plaintext: that is its owner, and the leader
	// knows the report by its id.
	for range 2 {
		if got := refusedAs(t, b.bring(fresh())); got != "" {
			t.Errorf("encapsulated anew: %q", got)
		}
	}
}

func TestOptions(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no key":         func(o *Options) { o.Keys = nil },
		"two of one id":  func(o *Options) { o.Keys = append(o.Keys, Key{Pair: generate(t, 1)}) },
		"no target":      func(o *Options) { o.Targets = nil },
		"target's query": func(o *Options) { o.Targets = []Target{{URL: "https://leader.example/?x"}} },
		"target twice":   func(o *Options) { o.Targets = append(o.Targets, o.Targets[0]) },
		"no protocol":    func(o *Options) { o.Protocol = nil },
		"no directory":   func(o *Options) { o.FS = nil },
		"long window":    func(o *Options) { o.Window = time.Hour },
		"long hold":      func(o *Options) { o.Hold = 31 * 24 * time.Hour },
		"short hold":     func(o *Options) { o.Window, o.Hold = 2*time.Second, time.Second },
		"short mix":      func(o *Options) { o.Window, o.Mix = 2*time.Second, time.Second },
		"large round":    func(o *Options) { o.MinRound, o.Limits.Held = 101, 100 },
		"short token":    func(o *Options) { o.Relays = []Relay{{Token: "x"}} },
		"token twice":    func(o *Options) { r := Relay{Token: "sixteen or more bytes"}; o.Relays = []Relay{r, r} },
		"one without":    func(o *Options) { o.Relays = []Relay{{Token: "sixteen or more bytes"}, {}} },
		"small memory":   func(o *Options) { o.Limits.InFlight = 1 },
		"path":           func(o *Options) { o.Path = "x" },
	} {
		o := Options{Keys: []Key{{Pair: generate(t, 1)}}, Targets: []Target{{URL: leaderURL}}, Protocol: nothing{}, FS: disktest.NewMem(1)}
		change(&o)
		if g, err := New(o); err == nil {
			t.Errorf("%s: accepted", name)
			g.Close()
		}
	}
}

type nothing struct{ uploads.DAP }
