package gateway

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// TestNumbersOfRounds: a batch is remembered as long as any of its rounds, and a round as
// long as any of its tasks, which a stranger may make up, has not answered. What is still
// to come over starts of the gateway takes no number that such a batch knows, or it would
// be taken for what was sent long ago, and erased unsent.
func TestNumbersOfRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader := &fakeLeader{}
		leader.answer = func(_ int, ids []byte, r *http.Request) (int, []byte) {
			if !strings.HasSuffix("/inside/"+dap.CreationPath(dap.TaskID{5}, dap.ReportsResource), r.URL.Path) {
				return 503, nil // it is never there for the other task
			}
			return 200, nil
		}
		o := Options{FS: disktest.NewMem(1), Keys: []Key{{Pair: generate(t, 1)}}, Window: time.Second, Mix: time.Minute, Transport: leader}
		life := func(more time.Duration, rounds ...[]*ohttp.Request) {
			b := start(t, o)
			for _, messages := range rounds {
				for _, m := range messages {
					request, _ := sealTo(t, b.pair, m)
					go b.bring(request)
				}
				time.Sleep(3 * time.Second)
			}
			time.Sleep(more)
			b.stop()
			o.FS = o.FS.(*disktest.Mem).Crash()
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 100*time.Millisecond)))
		other := upload(report(t, 1))
		other.Path = "/v1/" + dap.CreationPath(dap.TaskID{6}, dap.ReportsResource)
		one := func(n byte) []*ohttp.Request { return []*ohttp.Request{upload(report(t, n))} }
		// one batch of three rounds; the first stays for the other task
		life(2*time.Minute, append(one(2), other), one(3), one(4))
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 100*time.Millisecond)))
		life(0, one(5), one(6)) // acknowledged, and not passed on yet
		life(5 * time.Minute)
		var got []byte
		for _, ids := range leader.seen() {
			got = append(got, ids...)
		}
		got = slices.DeleteFunc(got, func(id byte) bool { return id == 1 })
		slices.Sort(got)
		if want := []byte{2, 3, 4, 5, 6}; !slices.Equal(got, want) {
			t.Errorf("of what was acknowledged the leader got %v, want %v", got, want)
		}
	})
}

// TestStatusMissesNothing: at each step of its way an upload that was acknowledged is held
// or passed on.
func TestStatusMissesNothing(t *testing.T) {
	for _, point := range Failpoints() {
		synctest.Test(t, func(t *testing.T) {
			points := new(disk.Failpoints)
			b := start(t, Options{Window: time.Second, Failpoints: points})
			var acknowledged atomic.Bool
			points.Arm(point, 0, func() error {
				if s := b.Status(); acknowledged.Load() && s.Held == 0 && s.Passed == 0 {
					t.Errorf("%s: nothing is held, and nothing was passed on", point)
				}
				return nil
			})
			b.ask(t, upload(report(t, 1)))
			acknowledged.Store(true)
			time.Sleep(time.Minute)
			if s := b.Status(); s.Held != 0 || s.Passed != 1 {
				t.Errorf("%s: %d held, %d passed on", point, s.Held, s.Passed)
			}
			b.stop()
		})
	}
}
