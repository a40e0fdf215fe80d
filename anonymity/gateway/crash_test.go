package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/uploads"
)

// crashPoints are all places where power can be lost.
func crashPoints() []string { return slices.Concat(Failpoints(), disk.LogFailpoints()) }

// TestKilled: power is lost at each state of a round, with a disk that loses what was not
// synced. Reports that were acknowledged come to the leader, in the requests that they
// were cut into, byte for byte, and in no other; devices that were not answered come
// again, and come to the leader once. After it nothing is left on the disk but what the
// key opened.
func TestKilled(t *testing.T) {
	passed := map[string]int{}
	for _, point := range crashPoints() {
		for seed := range uint64(6) {
			t.Run(fmt.Sprintf("%s/%d", point, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					if killed(t, point, seed) {
						passed[point]++
					}
				})
			})
		}
	}
	for _, point := range Failpoints() {
		if passed[point] == 0 {
			t.Errorf("nothing was killed at %s", point)
		}
	}
}

// killed plays one loss of power and says whether there was one.
func killed(t *testing.T, point string, seed uint64) (hit bool) {
	const devices = 12
	o := Options{FS: disktest.NewMem(seed), Keys: []Key{{Pair: generate(t, 1)}}, Window: time.Second, Limits: Limits{Joined: 4}}
	points := new(disk.Failpoints)
	o.Failpoints = points
	l := &fakeLeader{answer: func(n int, ids []byte, _ *http.Request) (int, []byte) {
		switch {
		case n%3 == 1: // as one that is overloaded now and then
			return 503, nil
		case slices.Contains(ids, 5): // whom nobody else is to suffer for
			return 400, nil
		}
		return 200, nil
	}}
	o.Transport = l
	b := start(t, o)
	defer func() { b.stop() }()
	points.Arm(point, int(seed%3), func() error {
		hit = true
		o.FS.(*disktest.Mem).Cut()
		return disktest.ErrPowerLoss
	})
	taken := map[byte]bool{}
	send := func() {
		var all sync.WaitGroup
		var mu sync.Mutex
		for id := range byte(devices) {
			if taken[id] {
				continue
			}
			all.Go(func() {
				time.Sleep(time.Duration(id%3) * 700 * time.Millisecond)
				request, opener := sealTo(t, b.pair, upload(report(t, id)))
				w := b.bring(request)
				if reason := refusedAs(t, w); reason == door.Busy {
					return
				} else if reason != "" {
					t.Errorf("refused: %s", reason)
				}
				if a := openAnswer(t, opener, w); a.Status != 202 {
					t.Errorf("status %d", a.Status)
				}
				mu.Lock()
				defer mu.Unlock()
				taken[id] = true
			})
		}
		all.Wait()
	}
	for life := 0; life < 4; life++ {
		send()
		time.Sleep(10*time.Minute + time.Millisecond)
		if len(taken) == devices && b.err() == nil {
			break
		}
		b.stop()
		points.Disarm(point)
		o.FS = o.FS.(*disktest.Mem).Crash()
		b = start(t, o)
	}
	if len(taken) != devices {
		t.Fatalf("%d devices were answered", len(taken))
	}
	time.Sleep(10 * time.Minute)
	if s := b.Status(); s.Held != 0 || s.Charged != 0 || s.Lost["damaged"] != 0 {
		t.Errorf("%+v", s)
	}
	if files := b.files(t, "round-", "done-", "damaged-"); len(files) > 0 {
		t.Errorf("%v is left", files)
	}
	// What is one request is one for ever, but for the halves of one that was refused.
	in := map[byte][]byte{} // the largest request of each id
	for i, ids := range l.requests {
		if len(ids) == 0 {
			continue
		}
		for _, id := range ids {
			if in[id] == nil {
				in[id] = l.bodies[i]
			} else if !bytes.Contains(in[id], l.bodies[i]) {
				t.Errorf("report %d came in another request than the first", id)
			}
		}
	}
	if len(in) != devices {
		t.Errorf("the leader got %d reports of %d", len(in), devices)
	}
	b.stop()
	o.Failpoints = nil
	b = start(t, o)
	s := b.Status()
	if n := s.Keys[0].Opened; n < devices {
		t.Errorf("after a start the key has opened %d requests", n)
	}
	// over all lives, each once
	if s.Passed != devices-1 || s.Lost["dropped"] != 1 || len(s.Lost) != 1 {
		t.Errorf("after a start %d are counted as taken, %v as lost", s.Passed, s.Lost)
	}
	return hit
}

// TestReplayAfterPowerLoss: power is lost at each place; who was answered is refused from
// then on, under the same encapsulation, and under a new one its report is known.
func TestReplayAfterPowerLoss(t *testing.T) {
	for _, point := range crashPoints() {
		for seed := range uint64(4) {
			synctest.Test(t, func(t *testing.T) {
				mem, points, pair := disktest.NewMem(seed), new(disk.Failpoints), generate(t, 1)
				b := start(t, Options{FS: mem, Keys: []Key{{Pair: pair}}, Failpoints: points, Window: time.Second})
				first, _ := sealTo(t, pair, upload(report(t, 1)))
				if got := refusedAs(t, b.bring(first)); got != "" {
					t.Fatalf("%s: %s", point, got)
				}
				points.Arm(point, 0, func() error { mem.Cut(); return disktest.ErrPowerLoss })
				second, _ := sealTo(t, pair, upload(report(t, 2)))
				got := refusedAs(t, b.bring(second))
				if got != "" && got != door.Busy {
					t.Errorf("%s: %q", point, got)
				}
				time.Sleep(time.Minute)
				b.stop()
				again := start(t, Options{FS: mem.Crash(), Keys: []Key{{Pair: pair}}, Window: time.Second})
				defer again.stop()
				if got := refusedAs(t, again.bring(first)); got != door.Replayed {
					t.Errorf("%s, seed %d: after the crash the first is %q", point, seed, got)
				}
				if got2 := refusedAs(t, again.bring(second)); got == "" && got2 != door.Replayed {
					t.Errorf("%s, seed %d: after the crash the second is %q", point, seed, got2)
				}
				known := again.Status().Known
				if again.ask(t, upload(report(t, 1))); again.Status().Known != known+1 {
					t.Errorf("%s, seed %d: the first report is not known any more", point, seed)
				}
			})
		}
	}
}

// TestKilledAtStart: power is lost at each call of the disk from the first start to the
// first answer. The gateway starts again, and takes what it did not take before.
func TestKilledAtStart(t *testing.T) {
	for at := range 40 {
		mem, pair, n := disktest.NewMem(uint64(at)), generate(t, 1), 0
		mem.Inject(func(disktest.Op, string) error { // under the lock of mem
			if n++; n > at {
				return disktest.ErrPowerLoss
			}
			return nil
		})
		o := Options{FS: mem, Record: disk.Sub(mem, "record"), Keys: []Key{{Pair: pair}}, Targets: []Target{{URL: leaderURL}},
			Protocol: uploads.DAP{}, Window: time.Second, Transport: &fakeLeader{}}
		if g, err := New(o); err == nil {
			g.Close()
		} else if !errors.Is(err, disktest.ErrPowerLoss) {
			t.Fatalf("call %d: %v", at, err)
		}
		synctest.Test(t, func(t *testing.T) {
			crashed := mem.Crash()
			b := start(t, Options{FS: crashed, Keys: o.Keys, Window: time.Second})
			defer b.stop()
			if a := b.ask(t, upload(report(t, 1))); a.Status != 202 {
				t.Errorf("call %d: status %d", at, a.Status)
			}
			if s := b.Status(); s.Lost["damaged"] != 0 {
				t.Errorf("call %d: %d rounds are said to be lost", at, s.Lost["damaged"])
			}
		})
	}
}
