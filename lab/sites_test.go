package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/recipe"
)

// over speaks HTTP at a unix socket.
func over(t *testing.T, socket, method, path string, body []byte) (int, []byte) {
	t.Helper()
	c := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://unix/v1/"+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b
}

// TestSites: a training process begins a round with a model of its own, processes of three
// sites contribute at their agents, two persons at one of them, and the process reads their
// mean, in which a person counts half. Noise has a standard deviation of 0.023 in an entry
// of the mean, so that one of the eight is off by 0.15 with a probability below 10^-9.
func TestSites(t *testing.T) {
	want := []float64{(0.5 + 0.5 + 0.5) / 3, 0.5 / 3, 0, 0, 0, 0, 0, 0}
	var mean []float32
	for try := 0; mean == nil; try++ {
		if try == 3 {
			t.Fatal("sites were late each time")
		}
		mean = playSites(t, time.Duration(3+2*try)*time.Second)
	}
	if len(mean) != len(want) {
		t.Fatal(mean)
	}
	for i := range want {
		if math.Abs(float64(mean[i])-want[i]) > 0.15 {
			t.Errorf("entry %d is %v, want %v", i, mean[i], want[i])
		}
	}
}

// TestSitesRefused: numbers that are none, and such as would be others once cut to 32 bits.
func TestSitesRefused(t *testing.T) {
	for _, o := range []SitesOptions{{Sites: 1, Dimension: 1}, {Sites: maxSites + 1, Dimension: 1}, {Sites: 2}, {Sites: 2, Dimension: session.MaxDimension + 1}, {Sites: 2, Dimension: 1, Clip: -1},
		{Sites: 2, Dimension: 1, Rounds: 1<<32 + 1}, {Sites: 2, Dimension: 1, Rounds: -1}, {Sites: 2, Dimension: 1, Persons: -1}, {Sites: 2, Dimension: 1, Sample: recipe.Rational{Num: 1 << 60, Den: 1 << 61}}} {
		if err := o.Validate(); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// playSites plays a round of a lab of sites, and returns its mean; nil where the machine was
// so busy that a site was late.
func playSites(t *testing.T, length time.Duration) []float32 {
	dir, err := os.MkdirTemp("", "sites") // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ctx, stop := context.WithCancel(t.Context())
	ready, done := make(chan Sites, 1), make(chan error, 1)
	go func() {
		done <- RunSites(ctx, SitesOptions{
			Frame: Frame{Keep: filepath.Join(dir, "s"), Epsilon: decimal("100"), Precision: length}, Sites: 3, Dimension: 8, Persons: 2, Rounds: 1, Ready: func(s Sites) { ready <- s },
		})
	}()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	var s Sites
	select {
	case s = <-ready:
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(dir, "s", "README.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`[a-z0-9/]+\.(toml|starling)`).FindAllString(string(readme), -1) {
		if _, err := os.Stat(filepath.Join(dir, "s", name)); err != nil {
			t.Errorf("README.txt: %v", err)
		}
	}
	code, b := over(t, s.Control, "POST", "rounds", session.AppendFloats(nil, []float32{1, 2, 3, 4, 5, 6, 7, 8}))
	var r struct {
		Index      int
		Round      uint64
		Begin, End time.Time
		State      string
		Reports    int
	}
	if err := json.Unmarshal(b, &r); code != http.StatusCreated || err != nil {
		t.Fatalf("%d %s %v", code, b, err)
	}
	one, two := []float32{1, 0, 0, 0, 0, 0, 0, 0}, []float32{0, 30, 0, 0, 0, 0, 0, 0} // cut to 1
	for i, agent := range s.Agents {
		body, persons := session.AppendFloats(nil, one), 1
		if i == 2 {
			body, persons = session.AppendFloats(body, two), 2
		}
		for code = 0; code != http.StatusOK && time.Now().Before(r.End); time.Sleep(20 * time.Millisecond) { // until it begins, and its announcement comes by the relay
			code, b = over(t, agent, "POST", fmt.Sprintf("contributions?task=%v&round=%d&persons=%d", s.Task, r.Round, persons), body)
		}
		if code != http.StatusOK {
			t.Logf("site %d: %d %s", i, code, b)
			return nil
		}
	}
	for r.State == "announced" {
		time.Sleep(100 * time.Millisecond)
		if _, b = over(t, s.Control, "GET", fmt.Sprintf("rounds/%d", r.Index), nil); json.Unmarshal(b, &r) != nil {
			t.Fatalf("%s", b)
		}
	}
	if r.Reports != 3 {
		t.Logf("%+v", r)
		return nil
	}
	code, b = over(t, s.Control, "GET", fmt.Sprintf("rounds/%d/aggregate", r.Index), nil)
	mean, err := session.ReadFloats(b)
	if code != http.StatusOK || err != nil {
		t.Fatalf("%d %s %v", code, b, err)
	}
	return mean
}
