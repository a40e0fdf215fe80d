package hostile

import (
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// servers are those who must not be able to tell a device that takes no part from one
// that is not there.
var servers = []string{"leader", "helper"}

// sight is all that leader and helper have seen: what came in from the network and what
// they logged, byte for byte.
func (w *world) sight() map[string]string {
	s := map[string]string{}
	for _, party := range servers {
		s[party+"'s network"], s[party+"'s log"] = string(w.heard[party].Copy()), string(w.logs[party].Copy())
	}
	return s
}

// state is the leader's status, with the helper's in it, without what the clock alone
// changes.
func (w *world) state(t *testing.T) string {
	t.Helper()
	s := w.status(t)
	s.Now = time.Time{}
	for i := range s.Tasks {
		s.Tasks[i].ReportsPerSec, s.Tasks[i].SecondsLeft = 0, 0
	}
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestSilentDevices: 300 devices decide, by their own coins. Those whose coin says no,
// about 75, do all that they do before the others do anything: not a byte reaches leader
// or helper, no line is logged there, no count changes. With cover they send no-ops,
// which end at the gateway: what the leader hears of a round of them is one empty
// request, and not of how many. Then the others send: the same eyes see every one of
// them, so that they are no blind ones, and the collector's batch holds exactly these
// reports.
//
// Coins: fewer than the 180 reports of a batch, or no silent device, come once in 10^9
// runs (6 standard deviations).
func TestSilentDevices(t *testing.T) {
	for _, c := range []struct {
		name  string
		cover *recipe.Cover
	}{{"nothing is sent", nil}, {"cover is sent", &recipe.Cover{Rate: recipe.Rational{Num: 1, Den: 1}}}} {
		t.Run(c.name, func(t *testing.T) {
			o := options()
			o.BatchMode, o.Cover = dap.TimeInterval, c.cover
			w, stop, err := begin(filepath.Join(t.TempDir(), "world"), o)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := stop(); err != nil {
					t.Error(err)
				}
			}()
			now := time.Now().Add(-2 * time.Hour) // of a round that is over, so that it can be collected
			via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(w.manifest)})
			if err != nil {
				t.Fatal(err)
			}
			cl, err := client.New(client.Options{Prover: account.Prover, Recipe: w.bytes, Via: via, Tries: tries})
			if err != nil {
				t.Fatal(err)
			}
			plan, err := participate.NewPlan(participate.PlanOptions{Client: cl})
			if err != nil {
				t.Fatal(err)
			}

			state, before := w.state(t), w.sight() // in this order: to read the status makes the leader ask the helper
			atGateway := len(w.heard["gateway"].Copy())
			var silent, others []*participate.Decision
			for range 300 {
				ledger, err := participate.MemoryLedger(participate.LedgerOptions{MaxEpsilon: math.Inf(1), MaxDelta: 1})
				if err != nil {
					t.Fatal(err)
				}
				d, err := (&participate.Device{Ledger: ledger}).Decide(t.Context(), plan, answer, now)
				if err != nil {
					t.Fatal(err)
				}
				var said participate.Tally
				if said.Add(d); said.Reports()+said.Dummies() > 0 {
					others = append(others, d)
				} else {
					silent = append(silent, d)
				}
			}
			if len(silent) == 0 {
				t.Fatal("no device is silent")
			}
			sendAll(t, silent)
			w.passedOn(t)
			after := w.sight()
			for what, seen := range before {
				if c.cover != nil && strings.HasPrefix(what, "leader") {
					unprobed(t, what, strings.TrimPrefix(after[what], seen))
					continue
				}
				if after[what] != seen {
					t.Errorf("the %s told of %d silent devices: %q", what, len(silent), after[what][min(len(seen), len(after[what])):])
				}
			}
			if got := w.state(t); got != state {
				t.Errorf("the status is\n%s\nand was\n%s", got, state)
			}
			if reached := len(w.heard["gateway"].Copy()) > atGateway; reached != (c.cover != nil) {
				t.Errorf("the gateway heard of silent devices: %v", reached)
			}

			sendAll(t, others)
			w.passedOn(t)
			w.acknowledged.Add(uint64(len(others)))
			seen := w.sight()
			for _, what := range []string{"leader's network", "leader's log"} {
				if seen[what] == after[what] {
					t.Errorf("the %s shows nothing of devices that report", what)
				}
			}
			config, err := deploy.LoadCollector(filepath.Join(w.dir, deploy.CollectorFile))
			if err != nil {
				t.Fatal(err)
			}
			session, err := config.Open(collector.Options{Poll: 20 * time.Millisecond, MaxPoll: 200 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			precision := w.recipe.TimePrecision
			unit, err := precision.At(now)
			if err != nil {
				t.Fatal(err)
			}
			from, err := precision.Begin(unit)
			if err != nil {
				t.Fatal(err)
			}
			result, err := session.Collect(t.Context(), from, from.Add(time.Duration(precision)*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			if result.ReportCount != uint64(len(others)) {
				t.Errorf("the collector's batch has %d reports, %d were sent by others than the %d silent devices", result.ReportCount,
					len(others), len(silent))
			}
		})
	}
}

// unprobed fails the test for anything that the leader saw beside empty uploads.
func unprobed(t *testing.T, what, seen string) {
	t.Helper()
	for line := range strings.Lines(seen) {
		known := false
		for _, part := range []string{"POST /tasks/", "Host: ", "Content-Type: ", "Content-Length: 0\r\n", "Accept-Encoding: "} {
			known = known || strings.HasPrefix(line, part)
		}
		if what == "leader's log" {
			known = strings.Contains(line, `"request":"POST reports"`) && strings.Contains(line, `"status":200`)
		}
		if !known && line != "\r\n" {
			t.Errorf("the %s told of silent devices: %q", what, line)
		}
	}
}

// sendAll lets devices do what they decided, many at a time: the gateway gathers.
func sendAll(t *testing.T, decisions []*participate.Decision) {
	t.Helper()
	next := make(chan *participate.Decision)
	var devices sync.WaitGroup
	for range 32 {
		devices.Go(func() {
			for d := range next {
				if err := d.Send(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, d := range decisions {
		next <- d
	}
	close(next)
	devices.Wait()
}
