package gateway

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// wallClock is the bubble's clock, set wrong by an offset: as one on a wall, without the
// count of time by which Go sees through that.
type wallClock struct{ offset atomic.Int64 }

func (c *wallClock) Now() time.Time {
	return time.Now().Round(0).Add(time.Duration(c.offset.Load()))
}

func (c *wallClock) NewTimer(d time.Duration) disk.Timer { return disk.SystemClock.NewTimer(d) }

func (c *wallClock) set(d time.Duration) { c.offset.Store(int64(d)) }

// switched is a leader that gives one answer until it is told to give another.
type switched struct {
	mu     sync.Mutex
	status int
	body   []byte
}

func (s *switched) set(status int, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.body = status, body
}

func (s *switched) answer(int, []byte, *http.Request) (int, []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status, s.body
}

// TestClockJumps: while the leader is away the gateway's clock is set ahead and back by
// much more than hold, and the gateway is off for that long. What it has acknowledged is
// there when the leader is.
func TestClockJumps(t *testing.T) {
	const hold = time.Hour
	for name, jump := range map[string]func(b *bed, c *wallClock, again func()){
		"ahead":                   func(_ *bed, c *wallClock, _ func()) { c.set(100 * hold) },
		"back":                    func(_ *bed, c *wallClock, _ func()) { c.set(-100 * hold) },
		"ahead and back":          func(_ *bed, c *wallClock, _ func()) { c.set(100 * hold); time.Sleep(time.Minute); c.set(0) },
		"ahead, and a start":      func(_ *bed, c *wallClock, again func()) { c.set(100 * hold); again() },
		"ahead during a stop":     func(b *bed, c *wallClock, again func()) { b.stop(); c.set(100 * hold); again() },
		"back during a stop":      func(b *bed, c *wallClock, again func()) { b.stop(); c.set(-100 * hold); again() },
		"a stop longer than hold": func(b *bed, _ *wallClock, again func()) { b.stop(); time.Sleep(100 * hold); again() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock, s := new(wallClock), &switched{}
				leader := &fakeLeader{answer: s.answer}
				o := Options{FS: disktest.NewMem(1), Keys: []Key{{Pair: generate(t, 1)}}, Window: time.Second, Hold: hold, Transport: leader, Clock: clock}
				b := start(t, o)
				defer func() { b.stop() }()
				b.ask(t, upload(report(t, 1)))
				time.Sleep(10 * time.Minute)
				jump(b, clock, func() {
					b.stop()
					o.FS = o.FS.(*disktest.Mem).Crash()
					b = start(t, o)
				})
				b.ask(t, upload(report(t, 2)))
				time.Sleep(30 * time.Minute)
				if got := b.Status(); got.Held != 2 || len(got.Lost) > 0 {
					t.Errorf("while the leader is away: %+v", got)
				}
				s.set(200, nil)
				time.Sleep(3 * time.Minute)
				if got := b.Status(); got.Held != 0 || got.Passed != 2 || len(got.Lost) > 0 {
					t.Errorf("when the leader is back: %+v", got)
				}
			})
		})
	}
}

// TestHoldOverStarts: what no leader takes is given up after hold, counted in time that
// the gateway ran, over kills that lose what was not synced too; and the count of it is
// there after the next start, once, with its time.
func TestHoldOverStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hold = time.Hour
		told := map[string]uint64{}
		o := Options{FS: disktest.NewMem(1), Keys: []Key{{Pair: generate(t, 1)}}, Window: 20 * time.Second, Hold: hold,
			Transport: &fakeLeader{answer: func(int, []byte, *http.Request) (int, []byte) { return 503, nil }},
			Observe:   Observer{Uploads: func(outcome string, n uint64) { told[outcome] += n }}}
		b := start(t, o)
		defer func() { b.stop() }()
		b.ask(t, upload(report(t, 1)))
		for life := range 5 {
			time.Sleep(15 * time.Minute)
			if held := b.Status().Held; life < 3 && held != 1 {
				t.Fatalf("given up after %d quarters of hold", life+1)
			}
			if life < 4 {
				o.FS.(*disktest.Mem).Cut()
				b.stop()
				time.Sleep(7 * time.Hour)
				o.FS = o.FS.(*disktest.Mem).Crash()
				b = start(t, o)
			}
		}
		last := b.Status()
		if last.Lost["expired"] != 1 || last.Held != 0 || time.Since(last.LastLost["expired"]) > 15*time.Minute {
			t.Fatalf("%+v", last)
		}
		for range 2 {
			b.stop()
			o.FS = o.FS.(*disktest.Mem).Crash()
			clear(told)
			time.Sleep(24 * time.Hour)
			b = start(t, o)
			if got := b.Status(); len(got.Lost) != 1 || got.Lost["expired"] != 1 || !got.LastLost["expired"].Equal(last.LastLost["expired"].Truncate(time.Second)) {
				t.Errorf("after a start: %v at %v", got.Lost, got.LastLost)
			}
			if told["expired"] != 1 || len(told) != 1 {
				t.Errorf("metrics are told %v", told)
			}
			if troubles := b.Status().Troubles(); len(troubles) != 1 || !troubles[0].Lost {
				t.Errorf("troubles %v", troubles)
			}
		}
		time.Sleep(7 * 24 * time.Hour)
		if got := b.Status(); got.Lost["expired"] != 1 || len(got.Troubles()) > 0 {
			t.Errorf("a week later: %v, troubles %v", got.Lost, got.Troubles())
		}
	})
}

var noSuchTask = []byte(`{"type":"urn:ietf:params:ppm:dap:error:unrecognizedTask","status":404}`)

// TestUnknownTask: a leader that was started without a task says for hours that it has
// none; with it again it gets all that was acknowledged. One that the leader never had,
// which anybody can make up, takes no more than its share of the room, and is no harm to
// others, over a start too.
func TestUnknownTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room = 160
		s := &switched{status: 200}
		leader := &fakeLeader{answer: func(_ int, _ []byte, r *http.Request) (int, []byte) {
			if r.URL.Path != "/inside/"+taskPath[len("/v1/"):] {
				return 404, noSuchTask
			}
			return s.answer(0, nil, nil)
		}}
		o := Options{FS: disktest.NewMem(1), Keys: []Key{{Pair: generate(t, 1)}}, Window: 4 * time.Second, Transport: leader, Limits: Limits{Held: room}}
		b := start(t, o)
		defer func() { b.stop() }()
		together := func(n int, m func(i int) *ohttp.Request) {
			t.Helper()
			var all sync.WaitGroup
			for i := range n {
				all.Go(func() {
					if a := b.ask(t, m(i)); a.Status != 202 {
						t.Errorf("status %d", a.Status)
					}
				})
			}
			all.Wait()
			// no multiple of the window: who comes at a tick may be in either round
			time.Sleep(21 * time.Second)
		}
		ours := func(i int) *ohttp.Request { return upload(report(t, byte(i))) }
		theirs := func(task byte) func(i int) *ohttp.Request {
			return func(i int) *ohttp.Request {
				m := upload(report(t, byte(100+i)))
				if i%2 == 1 {
					m = cover(m.Content)
				}
				m.Path = "/v1/" + dap.CreationPath(dap.TaskID{task}, dap.ReportsResource)
				return m
			}
		}
		together(1, ours)
		if got := b.Status(); got.Passed != 1 {
			t.Fatalf("%+v", got)
		}
		s.set(404, noSuchTask)
		b.stop()
		o.FS = o.FS.(*disktest.Mem).Crash()
		b = start(t, o)
		// more than strangers may hold
		together(40, func(i int) *ohttp.Request { return ours(i + 1) })
		together(8, theirs(99))
		together(8, theirs(98))
		if got := b.Status(); got.Unknown != 40+8 || got.Charged != 40+8 || got.Lost["dropped"] != 4 || len(got.Troubles()) != 2 {
			t.Errorf("%+v, troubles %v", got, got.Troubles())
		}
		time.Sleep(20 * time.Hour)
		if got := b.Status(); got.Unknown != 40+8 {
			t.Errorf("20 hours later: %+v", got)
		}
		s.set(200, nil)
		time.Sleep(2 * time.Minute)
		if got := b.Status(); got.Passed != 41 || got.Unknown != 8 || got.Charged != 8 {
			t.Errorf("with its task again: %+v", got)
		}
		time.Sleep(4 * time.Hour)
		if got := b.Status(); got.Charged != 0 || got.Lost["expired"] != 4 || got.Lost["dropped"] != 4 {
			t.Errorf("a day later: %+v", got)
		}
	})
}
