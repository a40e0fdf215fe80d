package gateway

import (
	"bytes"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/sealed"
)

// TestRelayLimits: what strangers bring through one relay is bounded between two ticks,
// and over a key's life, also over a restart; another relay's devices lose nothing by it.
func TestRelayLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const one, two = "one relay of sixteen", "two relays of sixteen"
		o := Options{Window: time.Second, Keys: []Key{{Pair: generate(t, 1)}, {Pair: generate(t, 2)}},
			Relays: []Relay{{Token: one, PerTick: 3, PerKey: 5}, {Token: two}}}
		b := start(t, o)
		defer func() { b.stop() }()
		o.FS = b.o.FS
		n := byte(0)
		// bring brings requests at one time, and counts how they are answered.
		bring := func(token string, key *sealed.KeyPair, requests int) map[door.Reason]int {
			answers := make(chan door.Reason, requests)
			for range requests {
				n++
				request, _ := sealTo(t, key, upload(report(t, n)))
				go func() {
					w := httptest.NewRecorder()
					r := httptest.NewRequest("POST", "/", bytes.NewReader(request))
					r.Header.Set("Content-Type", ohttp.RequestMedia)
					r.Header.Set("Authorization", "Bearer "+token)
					b.ServeHTTP(w, r)
					answers <- refusedAs(t, w)
				}()
			}
			got := map[door.Reason]int{}
			for range requests {
				got[<-answers]++
			}
			time.Sleep(1500 * time.Millisecond) // past the next tick
			return got
		}
		expect := func(what string, got map[door.Reason]int, taken, rate, spent int) {
			t.Helper()
			if got[""] != taken || got[door.Rate] != rate || got[door.Spent] != spent {
				t.Errorf("%s: %v, want %d taken, %d above the rate, %d above the key", what, got, taken, rate, spent)
			}
		}
		first, second := o.Keys[0].Pair, o.Keys[1].Pair
		expect("between two ticks", bring(one, first, 5), 3, 2, 0)
		expect("the other relay", bring(two, first, 5), 5, 0, 0)
		expect("between two others", bring(one, first, 3), 2, 0, 1)
		expect("the other key", bring(one, second, 3), 3, 0, 0)
		b.stop()
		b = start(t, o)
		time.Sleep(100 * time.Millisecond)
		expect("after a restart", bring(one, first, 2), 0, 0, 2)
		expect("after a restart, the other relay", bring(two, first, 2), 2, 0, 0)
		expect("nobody's token", bring("a third one of sixteen", first, 2), 0, 0, 0)
	})
}

// TestSpentBesideFull: a gateway with a key that is spent and another that is not is
// ready, and refuses under the first alone.
func TestSpentBesideFull(t *testing.T) {
	first, second := generate(t, 1), generate(t, 2)
	b := start(t, Options{Keys: []Key{{Pair: first}, {Pair: second}}, MaxOpened: 2})
	var got []door.Reason
	for i, k := range []*sealed.KeyPair{first, first, first, second, first, second} {
		request, _ := sealTo(t, k, upload(report(t, byte(i))))
		got = append(got, refusedAs(t, b.bring(request)))
	}
	if want := []door.Reason{"", "", door.Spent, "", door.Spent, ""}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if b.Ready() == nil { // now both are
		t.Error("ready without a key")
	}
}
