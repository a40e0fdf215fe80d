package hop_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/shuffle/analyzer"
	"github.com/starling-agg/starling/shuffle/hop"
	"github.com/starling-agg/starling/shuffle/onion"
)

// TestThrough: all messages of all devices come through both hops to the analyzer, with the
// signatures of all, and then nothing of the round is left anywhere but the result.
func TestThrough(t *testing.T) {
	in(t, false, func(t *testing.T, b *bench) {
		n := b.round()
		for _, e := range b.envelopes(n, 0, 7) {
			if code := b.contribute(e); code != 200 {
				t.Fatalf("status %d", code)
			}
		}
		time.Sleep(time.Until(b.s.Flush(n)) - time.Second)
		if b.roundStatus(onion.First).Stage != "gathering" || b.result(n) != nil {
			t.Error("flushed before the time")
		}
		b.flushed(n)
		b.holdDevices(n, upTo(7)...)
		if c := b.result(n).Counts; c != (onion.Counts{Contributions: 7, Messages: 21}) {
			t.Errorf("%+v", c)
		}
		for _, p := range b.parties {
			if left := b.left(p, n+1); len(left) > 0 {
				t.Errorf("%v keeps %v", p.role, left)
			}
		}
		s := b.recipeStatus(onion.First)
		if s.Totals.Rounds["delivered"] != 1 || s.Totals.Contributions != 7 || s.Totals.Messages != 21 || s.Requests["taken"] != 7 {
			t.Errorf("%+v", s)
		}
		if s := b.recipeStatus(onion.Analyzer); s.Totals.Rounds["tallied"] != 1 || s.Totals.Messages != 21 {
			t.Errorf("%+v", s)
		}
		b.contribute(b.envelopes(n+1, 20, 26)...) // and again
		b.flushed(n + 1)
		b.holdDevices(n+1, 20, 21, 22, 23, 24, 25)
	})
}

// TestDirect: the same without hops.
func TestDirect(t *testing.T) {
	in(t, true, func(t *testing.T, b *bench) {
		n := b.round()
		all := b.envelopes(n, 0, 6)
		b.contribute(all...)
		b.contribute(all[2], all[2])
		b.contribute(make([]byte, 0))
		bad := bytes.Clone(all[0])
		bad[60] ^= 1
		b.contribute(bad)
		b.restart(b.parties[0])
		b.contribute(all[1])
		b.flushed(n)
		b.holdDevices(n, upTo(6)...)
		if c := b.result(n).Counts; c != (onion.Counts{Contributions: 6, Messages: 18, Refused: 1}) {
			t.Errorf("%+v", c)
		}
		b.contribute(b.envelopes(n+1, 0, 4)...)
		b.flushed(n + 1)
		if b.result(n+1) != nil || b.tallied() != 1 {
			t.Errorf("a result of four contributions, after %d tallies", b.tallied())
		}
		if left := b.left(b.parties[0], n+2); len(left) > 0 {
			t.Errorf("it keeps %v", left)
		}
	})
}

// TestOneAnswer: whatever is in a request that is made of envelopes, the answer is the same,
// byte for byte, and what it came to is counted.
func TestOneAnswer(t *testing.T) {
	in(t, false, func(t *testing.T, b *bench) {
		n := b.round()
		good := b.envelope(n, 1)
		changed := func(at int) []byte {
			e := bytes.Clone(good)
			e[at] ^= 1
			return e
		}
		other := b.s.Shape(n)
		other.Size++
		big, err := other.Seal(b.keys(n), [][]byte{make([]byte, 9), make([]byte, 9), make([]byte, 9)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		stray := bytes.Clone(good)
		binary.BigEndian.PutUint64(stray[4:], n+1000)
		late := b.envelope(n, 2)
		type answer struct {
			code         int
			body, header string
		}
		var first answer
		send := func(what, word string, e []byte) {
			before := b.recipeStatus(onion.First).Requests[word]
			rec := b.ask(onion.First, "POST", "contributions", fromGateway, "application/starling-contributions", e)
			h := new(bytes.Buffer)
			rec.Header().Write(h)
			a := answer{rec.Code, rec.Body.String(), h.String()}
			if first.code == 0 {
				first = a
			}
			if a != first || a.code != 200 || a.body != "" {
				t.Errorf("%s: %+v, and the first was %+v", what, a, first)
			}
			if after := b.recipeStatus(onion.First).Requests[word]; after != before+1 {
				t.Errorf("%s: %d were counted as %s", what, after-before, word)
			}
		}
		send("a good one", "taken", good)
		send("the same again", "again", good)
		send("one that does not open", "taken", changed(50))
		send("one to another key", "taken", changed(13))
		send("one of another size", "size", big)
		send("one of a round that is far away", "stray", stray)
		send("one whose round says another", "taken", func() []byte {
			e := bytes.Clone(good)
			binary.BigEndian.PutUint64(e[4:], n+1)
			return e
		}())
		b.flushed(n)
		send("one of a round that is over", "stray", late)
	})
}

// TestRefusals: what is no request of the protocol is refused in the clear, for all that is in
// it, and changes nothing.
func TestRefusals(t *testing.T) {
	in(t, false, func(t *testing.T, b *bench) {
		n := b.round()
		good := b.envelope(n, 1)
		const media = "application/starling-contributions"
		huge := make([]byte, 9<<20)
		for name, c := range map[string]struct {
			method, rest, token, media string
			body                       []byte
			code                       int
		}{
			"a token of nobody": {"POST", "contributions", "token of somebody else", media, good, 401}, "no token": {"POST", "contributions", "", media, good, 401},
			"another media type": {"POST", "contributions", fromGateway, "application/json", good, 415}, "no media type": {"POST", "contributions", fromGateway, "", good, 415},
			"a GET": {"GET", "contributions", fromGateway, media, nil, 405}, "a byte less": {"POST", "contributions", fromGateway, media, good[:len(good)-1], 400},
			"a byte more": {"POST", "contributions", fromGateway, media, append(bytes.Clone(good), 1), 400}, "another version": {"POST", "contributions", fromGateway, media, append([]byte{2}, good[1:]...), 400},
			"rubbish behind a good one": {"POST", "contributions", fromGateway, media, append(bytes.Clone(good), make([]byte, 300)...), 400},
			"too much":                  {"POST", "contributions", fromGateway, media, huge, 413}, "elsewhere": {"POST", "contribution", fromGateway, media, good, 404},
			"a batch at hop 1": {"POST", "batches/1", fromGateway, "application/starling-shuffle-manifest", nil, 404}, "results at hop 1": {"GET", "results/1", ofCollector, "", nil, 404},
			"a number that is none": {"POST", "contributions/01", fromGateway, media, good, 404},
		} {
			if rec := b.ask(onion.First, c.method, c.rest, c.token, c.media, c.body); rec.Code != c.code || rec.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s: status %d, want %d: %s", name, rec.Code, c.code, rec.Body)
			}
		}
		if s := b.recipeStatus(onion.First).Requests; s["taken"] != 0 {
			t.Errorf("%v", s)
		}
		if rec := b.ask(onion.Analyzer, "GET", "results/1", fromSecond, "", nil); rec.Code != 401 {
			t.Errorf("results without the collector's token: %d", rec.Code)
		}
		b.s.Recipe[0]++
		if rec := b.ask(onion.First, "POST", "contributions", fromGateway, media, good); rec.Code != 404 {
			t.Errorf("another recipe: %d", rec.Code)
		}
		b.s.Recipe[0]--
	})
}

// TestFewAreDropped: below the least batch nothing leaves a hop, at no time, and nothing of it
// is kept; envelopes that do not open do not count.
func TestFewAreDropped(t *testing.T) {
	in(t, false, func(t *testing.T, b *bench) {
		var mu sync.Mutex
		asked := 0
		b.wire.look = func(string, *http.Request, []byte) error {
			mu.Lock()
			defer mu.Unlock()
			asked++
			return nil
		}
		n := b.round()
		b.contribute(b.envelopes(n, 0, 4)...)
		bad := b.envelope(n, 4)
		bad[40] ^= 1
		b.contribute(bad)
		b.flushed(n)
		b.contribute(b.envelopes(n+1, 0, 4)...)
		b.flushed(n + 1)
		time.Sleep(50 * time.Hour)
		s := b.recipeStatus(onion.First)
		if asked > 0 || s.Totals.Rounds["few"] != 2 || s.Totals.LeftOver != 8 || s.Totals.Refused != 1 || s.Totals.Contributions != 0 {
			t.Errorf("%d requests to hop 2, %+v", asked, s.Totals)
		}
		for _, p := range b.parties {
			if left := b.left(p, n+10); len(left) > 0 {
				t.Errorf("%v keeps %v", p.role, left)
			}
		}
		if s := b.recipeStatus(onion.Second); s.Totals.Rounds["none"] < 2 {
			t.Errorf("%+v", s.Totals)
		}
	})
}

// TestSameEnvelope: an envelope counts once: in one request, in several, at once, and after a
// restart.
func TestSameEnvelope(t *testing.T) {
	in(t, false, func(t *testing.T, b *bench) {
		n := b.round()
		all := b.envelopes(n, 0, 5)
		b.contribute(all[0], all[0], all[1])
		b.contribute(all[0])
		var at sync.WaitGroup
		for range 8 {
			at.Go(func() { b.contribute(all[2]) })
		}
		at.Wait()
		b.restart(b.place(onion.First))
		b.contribute(all...)
		b.restart(b.place(onion.First))
		b.contribute(all...)
		if s := b.recipeStatus(onion.First); s.Requests["again"] != 5 || s.Rounds[0].Have != 5 {
			t.Errorf("%+v", s)
		}
		b.flushed(n)
		b.holdDevices(n, upTo(5)...)
	})
}

// TestBadOnions: a contribution that has onions for nobody counts, and the analyzer is
// told how many messages are missing; an onion that came twice counts once and is missing
// once.
func TestBadOnions(t *testing.T) {
	in(t, false, func(t *testing.T, b *bench) {
		n := b.round()
		b.contribute(b.envelopes(n, 0, 7)...)
		k := b.keys(n)
		wrong := k
		wrong.Second = k.First // hop 2 cannot open them
		e, err := b.s.Shape(n).Seal(wrong, b.messages(7), nil)
		if err != nil {
			t.Fatal(err)
		}
		b.contribute(e)
		wrong = k
		wrong.Analyzer = k.First // nor these the analyzer
		if e, err = b.s.Shape(n).Seal(wrong, b.messages(8), nil); err != nil {
			t.Fatal(err)
		}
		b.contribute(e)
		b.contribute(doubled(t, b, n, k))
		var told onion.Counts
		b.tallyWith(func(x *analyzer.Batch) ([]byte, error) {
			told = x.Counts
			return tallyAll(x)
		})
		b.flushed(n)
		want := onion.Counts{Contributions: 10, Messages: 30, DroppedSecond: 3, DoubledSecond: 2, Dropped: 3}
		if got := b.result(n); got == nil || got.Counts != want || told != want || told.Missing() != 8 || uint64(len(got.Tally)) != 8*got.Counts.Tallied() || len(got.Tally) != 22*8 {
			t.Errorf("%+v, told %+v", got, told)
		}
	})
}

// doubled is an envelope of three onions that are one.
func doubled(t testing.TB, b *bench, n uint64, k onion.Keys) []byte {
	t.Helper()
	one := b.s.Shape(n)
	one.Messages = 1
	inner := b.messages(9)[0]
	enc, ct, err := k.Analyzer.Seal(info(3, b.s.Recipe, n), nil, inner)
	if err != nil {
		t.Fatal(err)
	}
	enc2, ct2, err := k.Second.Seal(info(2, b.s.Recipe, n), nil, append(enc, ct...))
	if err != nil {
		t.Fatal(err)
	}
	layer := append(enc2, ct2...)
	enc1, ct1, err := k.First.Seal(info(1, b.s.Recipe, n), nil, bytes.Repeat(layer, 3))
	if err != nil {
		t.Fatal(err)
	}
	body := append(enc1, ct1...)
	size := len(body) + 8
	head := binary.BigEndian.AppendUint64([]byte{1, byte(size >> 16), byte(size >> 8), byte(size)}, n)
	return append(head, body...)
}

// info is what the page of package onion says it is.
func info(role byte, recipe [32]byte, round uint64) []byte {
	b := append([]byte("starling shuffle v1"), role)
	return binary.BigEndian.AppendUint64(append(b, recipe[:]...), round)
}

// TestRoom: a round takes as many contributions as it may, and the rest is dropped and
// counted; a disk what there is room for, and the sender is told to come again; what had
// come is there.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, false, 1)
		b.limits.Contributions = 6
		b.mustRun()
		defer b.stopAll()
		n := b.round()
		all := b.envelopes(n, 0, 9)
		if b.contribute(all[:5]...) != 200 || b.contribute(all[5:8]...) != 200 || b.contribute(all[5]) != 200 || b.contribute(all[6]) != 200 || b.contribute(all[2]) != 200 {
			t.Error("a round of six")
		}
		if c := b.recipeStatus(onion.First).Requests; c["taken"] != 6 || c["over"] != 3 || c["again"] != 2 {
			t.Errorf("%v", c)
		}
		b.flushed(n)
		b.holdDevices(n, upTo(6)...)
		first := b.place(onion.First)
		next := b.envelopes(n+1, 0, 1)
		first.fs.SetSize(first.fs.Used() + 100<<20)
		if code := b.contribute(next...); code != 503 {
			t.Errorf("status %d where the disk is nearly full", code)
		}
		first.fs.SetSize(0)
		if code := b.contribute(next...); code != 200 {
			t.Errorf("status %d", code)
		}
	})
}

// TestDiskFails: after a write that failed nothing is taken until a start, and then what was
// acknowledged is there.
func TestDiskFails(t *testing.T) {
	in(t, false, func(t *testing.T, b *bench) {
		n := b.round()
		all := b.envelopes(n, 0, 7)
		b.contribute(all[:5]...)
		first := b.place(onion.First)
		first.fs.Inject(func(op disktest.Op, _ string) error {
			if op == "sync" {
				return errors.New("input/output error")
			}
			return nil
		})
		if code := b.contribute(all[5]); code != 500 {
			t.Errorf("status %d", code)
		}
		first.fs.Inject(nil)
		if code := b.contribute(all[6]); code != 500 || b.status(onion.First).Trouble == "" {
			t.Errorf("status %d after a failure", code)
		}
		if err := b.stop(first); err == nil {
			t.Error("Run did not fail")
		}
		if err := b.run(first); err != nil {
			t.Fatal(err)
		}
		if code := b.contribute(all[5:]...); code != 200 {
			t.Errorf("status %d after a start", code)
		}
		b.flushed(n)
		b.holdDevices(n, upTo(7)...)
	})
}

// TestKeysEnd: the list has the keys of rounds to come, and none of one that is over; a party
// makes no key for a round that had one, whatever its clock.
func TestKeysEnd(t *testing.T) {
	in(t, false, func(t *testing.T, b *bench) {
		n := b.round()
		l := b.list(onion.First)
		if l.First != n || len(l.Keys) != 3 {
			t.Errorf("%d keys from round %d; it is %d", len(l.Keys), l.First, n)
		}
		b.flushed(n)
		later := b.list(onion.First)
		if later.First != n+1 || later.Keys[0] != l.Keys[1] || len(later.Keys) != 3 {
			t.Errorf("%d keys from round %d", len(later.Keys), later.First)
		}
		b.restart(b.place(onion.First))
		if again := b.list(onion.First); again.Keys[0] != later.Keys[0] || len(again.Keys) != 3 {
			t.Error("other keys after a restart")
		}
	})
}

// TestLogs: nothing that is logged has a contribution, a message, a token or an address in it.
func TestLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, false, 1)
		var out bytes.Buffer
		b.log = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		b.mustRun()
		n := b.round()
		e := b.envelopes(n, 0, 6)
		b.contribute(e...)
		b.wire.set(host(onion.Second), nil)
		b.flushed(n)
		b.wire.set(host(onion.Second), b.place(onion.Second).s)
		time.Sleep(time.Hour)
		b.stopAll()
		text := out.String()
		if !strings.Contains(text, "outcome=delivered") || !strings.Contains(text, "a round waits") {
			t.Errorf("the log has\n%s", text)
		}
		for _, secret := range []string{fromGateway, fromFirst, fromSecond, ofCollector, "192.0.2.1"} {
			if strings.Contains(text, secret) {
				t.Errorf("%q is in the log", secret)
			}
		}
		if strings.Count(text, "\n") > 12 {
			t.Errorf("a line for more than rounds:\n%s", text)
		}
	})
}

// TestStatusMeanwhile: the status can be asked at any time, also while pieces come.
func TestStatusMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, false, 1)
		b.limits.Piece = 200
		b.mustRun()
		defer b.stopAll()
		n := b.round()
		b.contribute(b.envelopes(n, 0, 40)...)
		var ended atomic.Bool
		var all sync.WaitGroup
		for _, r := range []onion.Role{onion.First, onion.Second} {
			all.Go(func() {
				for !ended.Load() {
					b.status(r)
					time.Sleep(time.Duration(50+r) * time.Minute / 1000)
				}
			})
		}
		b.place(onion.Second).fs.Inject(func(op disktest.Op, _ string) error {
			if op == disktest.OpSync { // a piece is on its way to the disk, with locks held
				all.Go(func() { b.status(onion.Second) })
				for range 1000 {
					runtime.Gosched()
				}
			}
			return nil
		})
		b.flushed(n)
		ended.Store(true)
		all.Wait()
		b.holdDevices(n, upTo(40)...)
	})
}

// TestManyBad: a batch that is filled with contributions that do not open at hop 2 is not
// handed on where less than the least batch is left: the honest ones in it would have
// fewer to hide among.
func TestManyBad(t *testing.T) {
	in(t, false, func(t *testing.T, b *bench) {
		n := b.round()
		b.contribute(b.envelopes(n, 0, 4)...)
		wrong := b.keys(n)
		wrong.Second = wrong.First
		for d := range 3 {
			e, err := b.s.Shape(n).Seal(wrong, b.messages(4+d), nil)
			if err != nil {
				t.Fatal(err)
			}
			b.contribute(e)
		}
		b.flushed(n)
		if s := b.recipeStatus(onion.Second).Totals; s.Rounds["few"] != 1 || s.LeftOver != 12 || s.Dropped != 9 || b.result(n) != nil {
			t.Errorf("%+v", s)
		}
		if s := b.recipeStatus(onion.First).Totals; s.Rounds["delivered"] != 1 { // it is not told more
			t.Errorf("%+v", s)
		}
	})
}

// TestLate: a contribution that comes when its round is to be flushed is in no batch,
// also where the flush itself has to wait.
func TestLate(t *testing.T) {
	in(t, false, func(t *testing.T, b *bench) {
		n := b.round()
		all := b.envelopes(n, 0, 7)
		b.contribute(all[:5]...)
		time.Sleep(time.Until(b.s.Flush(n)) - time.Second)
		b.contribute(all[5])
		b.stop(b.place(onion.First))
		time.Sleep(time.Second)
		h, err := hop.New(b.options(b.place(onion.First)))
		if err != nil {
			t.Fatal(err)
		}
		b.place(onion.First).s = h // which does not run
		if code := b.contribute(all[6]); code != 200 {
			t.Errorf("status %d", code)
		}
		if s := h.Status().Shuffles[0]; s.Requests["late"] != 1 || s.Rounds[0].Have != 6 {
			t.Errorf("%+v", s)
		}
		h.Close()
		if err := b.run(b.place(onion.First)); err != nil {
			t.Fatal(err)
		}
		b.flushed(n)
		b.holdDevices(n, upTo(6)...)
	})
}

// TestClockJumps: a clock that was weeks ahead for some minutes, or is set back, costs
// the rounds that were under way, and no later one; a round that has had a key gets no
// second one.
func TestClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, false, 1)
		clock := &setClock{look: time.Minute}
		b.clock = clock
		b.mustRun()
		defer b.stopAll()
		n := b.round()
		old := b.list(onion.First)
		b.contribute(b.envelopes(n, 0, 3)...)
		clock.ahead.Store(int64(20 * 24 * time.Hour))
		time.Sleep(5 * time.Minute)
		b.restart(b.place(onion.Second))
		clock.ahead.Store(0)
		time.Sleep(5 * time.Minute)
		if s := b.recipeStatus(onion.First).Totals; s.Rounds["expired"] != 3 || s.LeftOver != 3 {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Until(b.s.Begin(n + 3)))
		time.Sleep(2 * time.Minute)
		for i, k := range b.list(onion.First).Keys {
			for _, was := range old.Keys {
				if k == was {
					t.Errorf("key %d is that of a round that was over", i)
				}
			}
		}
		b.contribute(b.envelopes(n+3, 0, 6)...)
		b.restart(b.place(onion.First))
		b.flushed(n + 3)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		b.holdDevices(n+3, upTo(6)...)
		if b.result(n) != nil {
			t.Error("a result of the round that was lost")
		}
	})
}

// TestCommittedEarly: what comes to a round that a clock which was ahead has had flushed
// is late, also where the clock is right again and the hop was started anew; and hop 2
// takes the batch at its time.
func TestCommittedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, false, 1)
		first, clock := b.place(onion.First), &setClock{look: time.Minute}
		b.clock = clock
		if err := b.run(first); err != nil {
			t.Fatal(err)
		}
		b.clock = nil
		for _, p := range b.parties[1:] {
			if err := b.run(p); err != nil {
				t.Fatal(err)
			}
		}
		defer b.stopAll()
		n := b.round()
		all := b.envelopes(n, 0, 7)
		b.contribute(all[:6]...)
		clock.ahead.Store(int64(2 * time.Hour))
		time.Sleep(2 * time.Minute)
		clock.ahead.Store(0)
		b.restart(first)
		if code := b.contribute(all...); code != 200 || b.recipeStatus(onion.First).Requests["late"] != 7 {
			t.Errorf("status %d, %v", code, b.recipeStatus(onion.First).Requests)
		}
		b.flushed(n)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		b.holdDevices(n, upTo(6)...)
	})
}
