package gateway

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/disk/disktest"
)

// TestRound: uploads of a window become one request in another order; they and the covers among them are answered at one
// time, in one size.
func TestRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 64
		b := start(t, Options{Window: 5 * time.Second})
		defer b.stop()
		b.leader.answer = func(_ int, ids []byte, _ *http.Request) (int, []byte) {
			refused, err := dap.Dialect{}.AppendUploadErrors(nil, []dap.ReportUploadStatus{{ID: dap.ReportID{3}, Error: dap.ReportTooEarly}})
			if err != nil {
				t.Error(err)
			}
			return 200, refused
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		var at []time.Time
		for i := range n {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond) // arrival in order, on the bubble's clock
				m := upload(report(t, byte(i)))
				if i%4 == 1 {
					m.Method = ohttp.MethodCover
					clear(m.Content)
				}
				a := b.ask(t, m)
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Now())
				if want := i == 3; a.Status != 200 || (len(a.Content) > 0) != want {
					t.Errorf("upload %d: status %d and %d bytes", i, a.Status, len(a.Content))
				}
			})
		}
		all.Wait()
		for _, when := range at {
			if !when.Equal(at[0]) {
				t.Fatalf("answered at %v and %v", at[0], when)
			}
		}
		seen := b.leader.seen()
		if len(seen) != 1 || len(seen[0]) != n*3/4 {
			t.Fatalf("the leader got %d requests, the first of %d reports", len(seen), len(seen[0]))
		}
		if slices.IsSorted(seen[0]) { // 1 in 48!
			t.Error("the reports came in the order of their arrival")
		}
		slices.Sort(seen[0])
		if len(slices.Compact(seen[0])) != n*3/4 || slices.ContainsFunc(seen[0], func(id byte) bool { return id%4 == 1 }) {
			t.Errorf("the leader got %v", seen[0])
		}
		r := b.leader.last
		if r.URL.String() != "http://127.0.0.1:1/inside/"+taskPath[len("/v1/"):] || r.Header.Get("Authorization") != "Bearer a token of sixteen" ||
			r.Header.Get("Content-Type") != uploadMedia || len(r.Header) != 3 {
			t.Errorf("the leader got %s %v", r.URL, r.Header)
		}
		if s := b.Status(); s.Passed != n*3/4 || s.Covers != n/4 || s.Requests != 1 || s.Keys[0].Opened != n {
			t.Errorf("status %+v", s)
		}
	})
}

// TestSlowLeader: a round is answered at the end of a window, not when its leader is done.
func TestSlowLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Options{Window: time.Second})
		defer b.stop()
		b.leader.answer = func(int, []byte, *http.Request) (int, []byte) {
			time.Sleep(1300 * time.Millisecond)
			return 200, nil
		}
		begin := time.Now()
		if a := b.ask(t, upload(report(t, 1))); a.Status != 200 {
			t.Errorf("status %d", a.Status)
		}
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("took %v, want 3 s: sent after one, answered at the third window's end", took)
		}
	})
}

// TestStop: what waits is passed on and answered; nothing enters any more.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Options{Window: 10 * time.Second})
		done := make(chan *ohttp.Response)
		go func() { done <- b.ask(t, upload(report(t, 1))) }()
		synctest.Wait()
		go b.stop()
		if a := <-done; a.Status != 200 || len(b.leader.seen()) != 1 {
			t.Errorf("status %d after %d requests", a.Status, len(b.leader.seen()))
		}
		synctest.Wait()
	})
	b := start(t, Options{})
	request, _ := sealTo(t, b.pair, upload(report(t, 1)))
	b.mu.Lock()
	b.stopped = true
	b.mu.Unlock()
	if got := refusedAs(t, b.bring(request)); got != door.Busy {
		t.Errorf("after the stop: %q", got)
	}
}

// TestNoOneSpoilsOthers: where the leader refuses a joined request, the parts go one by one.
func TestNoOneSpoilsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Options{Window: time.Second})
		defer b.stop()
		b.leader.answer = func(_ int, ids []byte, _ *http.Request) (int, []byte) {
			if slices.Contains(ids, 9) {
				return 400, []byte(`{"type":"urn:x"}`)
			}
			return 200, nil
		}
		var all sync.WaitGroup
		for i := range byte(12) {
			all.Go(func() {
				want := 200
				if i == 9 {
					want = 400
				}
				if a := b.ask(t, upload(report(t, i))); a.Status != want {
					t.Errorf("upload %d: status %d", i, a.Status)
				}
			})
		}
		all.Wait()
		if n := len(b.leader.seen()); n != 13 {
			t.Errorf("%d requests, want one joined and twelve single ones", n)
		}
	})
}

// TestLeaderFails: what goes wrong behind the gateway is told to the device alone.
func TestLeaderFails(t *testing.T) {
	foreign, err := dap.Dialect{}.AppendUploadErrors(nil, []dap.ReportUploadStatus{{ID: dap.ReportID{99}, Error: dap.ReportDropped}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		status  int
		content []byte
		want    int
		reason  door.Reason
		joined  bool
	}{
		"unreachable":         {0, nil, 502, door.Leader, false},
		"redirect":            {307, nil, 502, door.Leader, false},
		"busy":                {503, nil, 503, "", true},
		"long problem":        {400, bytes.Repeat([]byte("x"), 5000), 400, "", false},
		"endless":             {200, bytes.Repeat([]byte("x"), 2<<20), 502, door.Leader, false},
		"refuses a stranger":  {200, foreign, 502, door.Leader, true},
		"joined, unreachable": {0, nil, 502, door.Leader, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t, Options{Window: time.Second})
				defer b.stop()
				b.leader.answer = func(int, []byte, *http.Request) (int, []byte) { return c.status, c.content }
				var all sync.WaitGroup
				for i := range byte(2) {
					if i == 1 && !c.joined {
						continue
					}
					all.Go(func() {
						if a := b.ask(t, upload(report(t, i))); a.Status != c.want || sealedReason(a) != c.reason {
							t.Errorf("status %d, reason %q", a.Status, sealedReason(a))
						}
					})
				}
				all.Wait()
			})
		})
	}
}

// TestNeverAProxy: nothing but an upload to the target goes anywhere.
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
		"many reports":    {func(m *ohttp.Request) { m.Content = bytes.Repeat(m.Content, 17) }, door.Upload},
	} {
		m := *good
		m.Header, m.Content = slices.Clone(good.Header), slices.Clone(good.Content)
		c.change(&m)
		if a := b.ask(t, &m); sealedReason(a) != c.want || a.Status != c.want.Status() {
			t.Errorf("%s: status %d, %q", name, a.Status, sealedReason(a))
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
		if a := openAnswer(t, opener, w); sealedReason(a) != door.Message {
			t.Errorf("%s: %q", name, sealedReason(a))
		}
	}
	if a := b.ask(t, good); a.Status != 200 || len(b.leader.seen()) != 1 {
		t.Errorf("and the good one: status %d", a.Status)
	}
}

// TestDoor: what is wrong from the outside is refused before anything is opened.
func TestDoor(t *testing.T) {
	pair := generate(t, 1)
	b := start(t, Options{Keys: []Key{{Pair: pair}}, RelayToken: "sixteen or more bytes", Limits: Limits{Body: 20_000}})
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
	// Re-encrypted by one who knows the plaintext: that is its owner, and the leader knows the report by its id.
	for range 2 {
		if got := refusedAs(t, b.bring(fresh())); got != "" {
			t.Errorf("encapsulated anew: %q", got)
		}
	}
}

// TestJoinLimits: no request to the leader is above the limits, and an upload that is goes alone.
func TestJoinLimits(t *testing.T) {
	g := &Gateway{o: Options{Limits: Limits{Joined: 3, JoinedBytes: 100}}}
	var items []*item
	for _, n := range []int{10, 10, 10, 10, 95, 10, 500, 1, 1} {
		items = append(items, &item{body: make([]byte, n)})
	}
	var sizes []int
	for _, part := range g.cut(items) {
		sizes = append(sizes, len(part))
	}
	if want := []int{3, 1, 1, 1, 1, 2}; !slices.Equal(sizes, want) {
		t.Errorf("cut into %v, want %v", sizes, want)
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
		"long delay":     func(o *Options) { o.MaxDelay = time.Hour },
		"short delay":    func(o *Options) { o.Window, o.MaxDelay = 2*time.Second, time.Second },
		"large round":    func(o *Options) { o.MinRound, o.Limits.Requests = 101, 100 },
		"short token":    func(o *Options) { o.RelayToken = "x" },
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

type nothing struct{ Protocol }
