package gateway

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/relay"
)

// TestHostileDevices plays devices and the network between them and the relay, against a
// relay and a gateway that listen: each attack is refused, with its reason, by the one
// who can see it; the gateway never hears of what the relay refuses.
func TestHostileDevices(t *testing.T) {
	b := start(t, Options{Relays: []Relay{{Token: "sixteen or more bytes"}}})
	var mu sync.Mutex
	arrived := 0
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		arrived++
		mu.Unlock()
		b.ServeHTTP(w, r)
	}))
	defer inside.Close()
	front := func(l relay.Limits) string {
		r, err := relay.New(relay.Options{Gateway: inside.URL + "/", Token: "sixteen or more bytes", Limits: l})
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewServer(r)
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	outside := front(relay.Limits{Body: 20_000})

	good, _ := sealTo(t, b.pair, upload(report(t, 1)))
	stale, _ := sealTo(t, generate(t, 77), upload(report(t, 2)))
	reencrypted, _ := sealTo(t, generate(t, 1), upload(report(t, 3))) // by one who has the id of the key and not the key
	altered, _ := sealTo(t, b.pair, upload(report(t, 4)))
	altered[len(altered)/2] ^= 1
	short, _ := sealTo(t, b.pair, upload(report(t, 5)))
	proxied, _ := sealTo(t, b.pair, &ohttp.Request{Method: "GET", Scheme: "http", Authority: "169.254.169.254", Path: "/"})
	whole := func(path string, body []byte) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", path, ohttp.RequestMedia, len(body), body)
	}
	for _, c := range []struct {
		name, request string
		want          door.Reason // "" for an answer sealed to the device
		by            string
	}{
		{"an upload", whole("/", good), "", ""},
		{"replayed", whole("/", good), door.Replayed, "gateway"},
		{"altered", whole("/", altered), door.Sealed, "gateway"},
		{"stale key", whole("/", stale), door.Key, "gateway"},
		{"re-encrypted", whole("/", reencrypted), door.Sealed, "gateway"},
		{"truncated", whole("/", good[:20]), door.Truncated, "gateway"},
		{"cut short", whole("/", short[:1000]), door.Sealed, "gateway"},
		{"meant for another server", whole("/", proxied), "", ""},
		{"oversized", whole("/", make([]byte, 20_001)), door.Oversized, "relay"},
		{"oversized, length unknown", "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: " + ohttp.RequestMedia +
			"\r\nTransfer-Encoding: chunked\r\n\r\n5000\r\n" + strings.Repeat("x", 0x5000) + "\r\n0\r\n\r\n", door.Oversized, "relay"},
		{"pointed elsewhere", whole("http://169.254.169.254/", good), door.Path, "relay"},
		{"pointed elsewhere by query", whole("/?to=http://169.254.169.254/", good), door.Path, "relay"},
		{"another path", whole("/admin", good), door.Path, "relay"},
	} {
		mu.Lock()
		before := arrived
		mu.Unlock()
		status, body := talk(t, outside, c.request)
		got, _ := door.Read(bytes.NewReader(body))
		mu.Lock()
		passed := arrived > before
		mu.Unlock()
		if got != c.want || c.want != "" && (status != c.want.Status() || len(body) != door.ProblemSize) {
			t.Errorf("%s: status %d, %q, want %q", c.name, status, got, c.want)
		}
		if passed != (c.by != "relay") {
			t.Errorf("%s: the gateway heard of it: %v", c.name, passed)
		}
	}
	if _, body := talk(t, inside.Listener.Addr().String(), whole("/", good)); !bytes.Equal(body, door.Document(door.Unauthorized)) {
		t.Errorf("around the relay, straight to the gateway: %s", body)
	}
	// Slow bodies, at doors that soon lose patience, so that nobody else here is slow.
	slow := strings.TrimSuffix(whole("/", good), string(good[100:]))
	if _, body := talk(t, front(relay.Limits{BodyTimeout: 50 * time.Millisecond}), slow); !bytes.Equal(body, door.Document(door.Slow)) {
		t.Errorf("a slow device: %s", body)
	}
	hasty := start(t, Options{Limits: Limits{BodyTimeout: 50 * time.Millisecond}})
	server := httptest.NewServer(hasty)
	defer server.Close()
	if _, body := talk(t, server.Listener.Addr().String(), slow); !bytes.Equal(body, door.Document(door.Slow)) {
		t.Errorf("a slow relay: %s", body)
	}
	if seen := b.leader.await(t, 1); len(seen) != 1 {
		t.Errorf("the leader got %d requests, want the one upload", len(seen))
	}
}

// talk sends bytes and reads one answer.
func talk(t *testing.T, address, request string) (status int, body []byte) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go io.WriteString(c, request) // the server may answer and close before it has read all
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

// TestRelayOfMalice plays a relay that works against its devices, with a leader that
// answers singles in sizes of its choice and refuses all else: the relay can drop
// requests and repeat them, and what comes back for one that it lets through is the same
// answer in the same number of bytes, whatever it holds and whatever the leader says.
func TestRelayOfMalice(t *testing.T) {
	b := start(t, Options{})
	b.leader.answer = func(_ int, ids []byte, _ *http.Request) (int, []byte) {
		if len(ids) > 1 {
			return 400, nil
		}
		return 200, bytes.Repeat([]byte("x"), 2000*len(ids))
	}
	elsewhere := upload(report(t, 1))
	elsewhere.Authority = "elsewhere.example"
	requests, answers := map[int]bool{}, map[int]bool{}
	for name, c := range map[string]struct {
		m    *ohttp.Request
		want int
	}{
		"report": {upload(report(t, 1)), 202}, "another": {upload(report(t, 2)), 202}, "known": {upload(report(t, 1)), 202},
		"no report": {upload(make([]byte, len(report(t, 1)))), 202}, "cover": {cover(report(t, 1)), 202}, "elsewhere": {elsewhere, 421},
	} {
		request, opener := sealTo(t, b.pair, c.m)
		w := b.bring(request)
		if w.Code != http.StatusOK {
			t.Fatalf("%s: status %d in the clear", name, w.Code)
		}
		if a := openAnswer(t, opener, w); a.Status != c.want || len(a.Header)+len(a.Content) > 0 {
			t.Errorf("%s: %d, %v, %q", name, a.Status, a.Header, a.Content)
		}
		requests[len(request)], answers[w.Body.Len()] = true, true
		if refusedAs(t, b.bring(request)) != door.Replayed {
			t.Errorf("%s: could be repeated", name)
		}
	}
	if len(requests) != 1 || len(answers) != 1 {
		t.Errorf("sizes on the way: requests %v, answers %v", requests, answers)
	}
}
