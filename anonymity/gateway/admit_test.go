package gateway

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/voprf"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// tokenKeys are those of three rounds of an hour for the task of taskPath; now is in the
// first.
func tokenKeys(now time.Time) *admission.Keys {
	k := &admission.Keys{Deployment: [32]byte{1}, Recipe: [32]byte{2}, Task: dap.TaskID{5}, First: uint64(now.Unix()) / 3600, Length: 3600, Grace: 900}
	k.Generate(3)
	return k
}

// issued is a token as a device gets it, of the n-th round.
func issued(t testing.TB, k *admission.Keys, n int) voprf.Token {
	t.Helper()
	key := k.Keys[n]
	request := voprf.NewTokenRequest(k.Round(k.First + uint64(n)))
	e, err := key.Issue(request.Request())
	if err != nil {
		t.Fatal(err)
	}
	token, err := request.Finalize(key.PublicKey(), e)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// fresh is what a device shows that has a token of the n-th round.
func fresh(t testing.TB, k *admission.Keys, n int) string {
	return admission.Value(k.First+uint64(n), issued(t, k, n))
}

// showing is a request with values of the field.
func showing(m *ohttp.Request, values ...string) *ohttp.Request {
	for _, v := range values {
		m.Header = append(m.Header, ohttp.Field{Name: admission.Field, Value: v})
	}
	return m
}

// TestFilledRound: who brings what it likes fills no round of a task that asks for tokens:
// the one device in it is not passed on before as many devices as min_round says have
// come, which may send covers. What does not count takes no room for longer than its
// answer does, and none of it goes to the leader.
func TestFilledRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := tokenKeys(time.Now())
		b := start(t, Options{Window: time.Second, MinRound: 5, Admission: []Admission{{Keys: keys}}, Limits: Limits{Held: 60}})
		defer b.stop()
		spent := fresh(t, keys, 0)
		b.ask(t, showing(upload(report(t, 1)), spent))
		for range 3 { // many more than there is room for
			var all sync.WaitGroup
			for i := range byte(40) {
				all.Go(func() {
					m := upload(report(t, 100+i))
					switch i % 4 {
					case 1:
						m = cover(m.Content)
					case 2:
						m = showing(m, admission.Value(keys.First, voprf.Token{Nonce: [32]byte{i}}))
					case 3:
						m = showing(m, spent)
					}
					if a := b.ask(t, m); a.Status != 202 {
						t.Errorf("status %d", a.Status)
					}
				})
			}
			all.Wait()
			time.Sleep(time.Minute)
		}
		s := b.Status()
		if got := b.leader.seen(); len(got) > 0 || s.Charged != 1 || s.Waiting != 1 {
			t.Errorf("the leader got %v; %d requests are held, %d wait", got, s.Charged, s.Waiting)
		}
		if s.Admission["counted"] != 1 || s.Admission["again"] != 30 || s.Admission["not_admitted"] != 90 {
			t.Errorf("counted as %v", s.Admission)
		}
		for i := range byte(4) {
			m := upload(report(t, 2+i))
			if i == 3 {
				m = cover(m.Content)
			}
			b.ask(t, showing(m, fresh(t, keys, 0)))
		}
		time.Sleep(time.Minute)
		got := slices.Concat(b.leader.seen()...)
		slices.Sort(got)
		if !bytes.Equal(got, []byte{1, 2, 3, 4}) {
			t.Errorf("the leader got %v", got)
		}
	})
}

// TestTurnOfARound: a device that shows a token of either round at their turn is one
// device: the number that min_round says has to come with tokens of one round, over a
// restart too.
func TestTurnOfARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := tokenKeys(time.Now())
		o := Options{FS: disktest.NewMem(1), Window: time.Second, MinRound: 5, Admission: []Admission{{Keys: keys}}, Keys: []Key{{Pair: generate(t, 1)}}}
		b := start(t, o)
		defer func() { b.stop() }()
		time.Sleep(time.Hour) // the second round has begun, and the first takes reports until its grace is over
		for i := range byte(3) {
			b.ask(t, showing(upload(report(t, 10+i)), fresh(t, keys, 0)))
			b.ask(t, showing(upload(report(t, 20+i)), fresh(t, keys, 1)))
		}
		b.ask(t, showing(upload(report(t, 1)), fresh(t, keys, 1)))
		time.Sleep(time.Minute)
		for range 2 {
			if got := b.leader.seen(); len(got) > 0 || b.Status().Waiting != 7 {
				t.Fatalf("of four devices with seven tokens the leader got %v, %d wait", got, b.Status().Waiting)
			}
			b.stop()
			b = start(t, o)
			time.Sleep(time.Minute)
		}
		b.ask(t, showing(cover(report(t, 30)), fresh(t, keys, 1)))
		time.Sleep(time.Minute)
		got := slices.Concat(b.leader.seen()...)
		if slices.Sort(got); !bytes.Equal(got, []byte{1, 10, 11, 12, 20, 21, 22}) {
			t.Errorf("of five devices the leader got %v", got)
		}
	})
}

// TestTokenOnce: a token counts once, for the first request with it, a report or a cover:
// another report with it does not go on, and the same one is known. Other tasks ask for
// nothing.
func TestTokenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := tokenKeys(time.Now())
		b := start(t, Options{Window: time.Second, MinRound: 3, Admission: []Admission{{Keys: keys}}})
		defer b.stop()
		one, two := fresh(t, keys, 0), fresh(t, keys, 0)
		for _, m := range []*ohttp.Request{
			showing(upload(report(t, 1)), one), showing(upload(report(t, 1)), one), showing(upload(report(t, 2)), one), showing(cover(report(t, 1)), one),
			showing(cover(report(t, 3)), two), showing(cover(report(t, 3)), two), showing(upload(report(t, 3)), two),
		} {
			b.ask(t, m)
		}
		time.Sleep(time.Minute)
		if got := b.leader.seen(); len(got) > 0 || b.Status().Waiting != 2 {
			t.Fatalf("of two devices the leader got %v, %d wait", got, b.Status().Waiting)
		}
		for i := range byte(3) {
			m := upload(report(t, 20+i))
			m.Path = "/v1/" + dap.CreationPath(dap.TaskID{6}, dap.ReportsResource)
			b.ask(t, m)
		}
		time.Sleep(time.Minute)
		got := slices.Concat(b.leader.seen()...)
		if slices.Sort(got); !bytes.Equal(got, []byte{20, 21, 22}) {
			t.Errorf("of a task that asks for none the leader got %v", got)
		}
		b.ask(t, showing(upload(report(t, 4)), fresh(t, keys, 0)))
		time.Sleep(time.Minute)
		got = slices.Concat(b.leader.seen()[len(b.leader.seen())-1:]...)
		if slices.Sort(got); !bytes.Equal(got, []byte{1, 4}) {
			t.Errorf("the leader got %v", got)
		}
	})
}

// TestHostileTokens: whatever stands in the place of a token, the answer is the one of all
// others, at a tick, and nothing counts.
func TestHostileTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, stranger := tokenKeys(time.Now()), tokenKeys(time.Now())
		elsewhere := tokenKeys(time.Now())
		elsewhere.Task = dap.TaskID{6}
		b := start(t, Options{Window: time.Second, Admission: []Admission{{Keys: keys}, {Keys: elsewhere}}})
		defer b.stop()
		good := fresh(t, keys, 0)
		bad := map[string][]string{
			"none": nil, "empty": {""}, "short": {good[1:]}, "long": {good + "A"}, "two": {good, good}, "two, one empty": {good, ""},
			"not base64url": {"!" + good[1:]}, "padding": {good[:95] + "="}, "zeros": {strings.Repeat("A", len(good))}, "ones": {strings.Repeat("_", len(good))},
			"16 KiB": {strings.Repeat("A", 15<<10)}, "of a key of somebody's own": {fresh(t, stranger, 0)}, "of another task": {fresh(t, elsewhere, 0)},
			"of a round to come": {fresh(t, keys, 1)}, "of a round without a key": {admission.Value(keys.First+3, issued(t, keys, 2))},
			"another round's number":  {admission.Value(keys.First, issued(t, keys, 1))},
			"the last round there is": {admission.Value(1<<64-1, issued(t, keys, 0))},
		}
		plain, err := base64.RawURLEncoding.DecodeString(good)
		if err != nil {
			t.Fatal(err)
		}
		for i := range plain {
			flipped := bytes.Clone(plain)
			flipped[i] ^= 1
			bad[fmt.Sprint("byte ", i, " changed")] = []string{base64.RawURLEncoding.EncodeToString(flipped)}
		}
		for name, values := range bad {
			if a := b.ask(t, showing(upload(report(t, 1)), values...)); a.Status != 202 || len(a.Content)+len(a.Header) > 0 {
				t.Errorf("%s: answered %+v", name, a)
			}
			if time.Now().Truncate(time.Second) != time.Now() {
				t.Errorf("%s: answered between two ticks", name)
			}
		}
		time.Sleep(time.Minute)
		s := b.Status()
		if got := b.leader.seen(); len(got) > 0 || s.Admission["not_admitted"] != uint64(len(bad)) || len(s.Admission) != 1 || s.Charged != 0 {
			t.Errorf("the leader got %v, counted as %v of %d", got, s.Admission, len(bad))
		}
		// The report was not taken for known, and the token not for spent.
		b.ask(t, showing(upload(report(t, 1)), good))
		b.leader.await(t, 1)
		// A round's tokens hold until its grace is over.
		for _, c := range []struct {
			at   time.Duration
			n    int
			want uint64
		}{{58 * time.Minute, 1, 1}, {59*time.Minute + time.Second, 1, 2}, {74 * time.Minute, 0, 3}, {75 * time.Minute, 0, 3}, {75 * time.Minute, 1, 4}} {
			start := time.Unix(int64(keys.First*3600), 0)
			time.Sleep(time.Until(start.Add(c.at)))
			b.ask(t, showing(cover(report(t, 9)), fresh(t, keys, c.n)))
			if got := b.Status().Admission["counted"]; got != c.want {
				t.Errorf("after %v with a token of round %d %d are counted, want %d", c.at, c.n, got, c.want)
			}
		}
	})
}

// TestTokensKilled: power is lost at each state of a round, and each device sends again in
// each life, answered or not, as who lost the answer does. Each counts once over all lives:
// one less than min_round goes to nobody, and with the last one all do, each once.
func TestTokensKilled(t *testing.T) {
	var hits sync.Map // two logs may be at one point at one time
	for _, point := range crashPoints() {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%s/%d", point, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const devices = 6
					keys, points, l := tokenKeys(time.Now()), new(disk.Failpoints), &fakeLeader{}
					o := Options{FS: disktest.NewMem(seed), Keys: []Key{{Pair: generate(t, 1)}}, Window: time.Second, MinRound: devices,
						Admission: []Admission{{Keys: keys}}, Failpoints: points, Transport: l}
					var tokens [devices]string
					for i := range tokens {
						tokens[i] = fresh(t, keys, 0)
					}
					b := start(t, o)
					defer func() { b.stop() }()
					points.Arm(point, int(seed%3), func() error {
						hits.Store(point, true)
						points.Disarm(point)
						o.FS.(*disktest.Mem).Cut()
						return disktest.ErrPowerLoss
					})
					taken := make([]bool, devices)
					send := func(first, end int) {
						var all sync.WaitGroup
						for i := first; i < end; i++ {
							all.Go(func() {
								time.Sleep(time.Duration(i%3) * 700 * time.Millisecond)
								m := upload(report(t, byte(i)))
								if i%3 == 1 {
									m = cover(m.Content)
								}
								request, _ := sealTo(t, b.pair, showing(m, tokens[i]))
								if reason := refusedAs(t, b.bring(request)); reason == "" {
									taken[i] = true
								} else if reason != door.Busy {
									t.Errorf("refused: %s", reason)
								}
							})
						}
						all.Wait()
						time.Sleep(time.Minute)
					}
					again := func() {
						b.stop()
						o.FS = o.FS.(*disktest.Mem).Crash()
						b = start(t, o)
					}
					for range 3 {
						send(0, devices-1)
						send(0, devices-1)
						again()
					}
					send(0, devices-1)
					if got := l.seen(); len(got) > 0 || slices.Contains(taken[:devices-1], false) {
						t.Fatalf("of %d devices, taken %v, the leader got %v", devices-1, taken, got)
					}
					for range 3 {
						if send(0, devices); b.err() != nil {
							again()
						}
					}
					time.Sleep(10 * time.Minute)
					if s := b.Status(); s.Held != 0 || s.Charged != 0 {
						t.Errorf("%+v", s)
					}
					// A piece comes again, whole, where its settling was lost.
					got := map[byte]bool{}
					for i, ids := range l.seen() {
						if i > 0 && len(ids) != len(got) {
							t.Errorf("the leader got %v", l.seen())
						}
						for _, id := range ids {
							got[id] = true
						}
					}
					if len(got) != 4 {
						t.Errorf("the leader got %v", got)
					}
				})
			})
		}
	}
	for _, point := range Failpoints() {
		if _, hit := hits.Load(point); !hit {
			t.Errorf("nothing was killed at %s", point)
		}
	}
}

// TestTokensOfRefusedRound: a round that cannot be written takes no token with it: those
// whom it refuses count when they come again. One who comes again before that is told is
// refused too: its report is in no round.
func TestTokensOfRefusedRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, mem := tokenKeys(time.Now()), disktest.NewMem(1)
		b := start(t, Options{FS: mem, Window: MaxWindow, Admission: []Admission{{Keys: keys}}})
		defer b.stop()
		token := fresh(t, keys, 0)
		time.Sleep(time.Until(time.Now().Truncate(MaxWindow).Add(MaxWindow + time.Second)))
		mem.Inject(func(op disktest.Op, name string) error {
			if strings.HasPrefix(name, "round-") {
				return errors.New("no space left")
			}
			return nil
		})
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				request, _ := sealTo(t, b.pair, showing(upload(report(t, 1)), token))
				if got := refusedAs(t, b.bring(request)); got != door.Busy {
					t.Errorf("refused as %q", got)
				}
			})
			time.Sleep(MaxWindow)
			mem.Inject(nil)
		}
		all.Wait()
		b.ask(t, showing(upload(report(t, 1)), token))
		b.leader.await(t, 1)
	})
}

// TestTokenState: what tokens have let in is known when its round is done and removed,
// and found out when it is gone; and a task that ever asked for tokens goes on to ask
// when no keys are there.
func TestTokenState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, keys, pair := disktest.NewMem(1), tokenKeys(time.Now()), generate(t, 1)
		o := Options{FS: mem, Record: disk.Sub(mem, "record"), Keys: []Key{{Pair: pair}}, Window: time.Second, Admission: []Admission{{Keys: keys}}}
		b := start(t, o)
		token := fresh(t, keys, 0)
		b.ask(t, showing(upload(report(t, 1)), token))
		b.leader.await(t, 1)
		time.Sleep(time.Minute)
		if left := b.files(t, "round-"); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
		b.stop()
		b = start(t, o)
		b.ask(t, showing(cover(report(t, 1)), token))
		if got := b.Status().Admission; got["again"] != 1 || len(got) != 1 {
			t.Errorf("after a start a token is counted as %v", got)
		}
		b.stop()
		o.FS = mem.Crash()
		o.Record = disk.Sub(o.FS, "record")
		name := keys.Name()
		if err := disk.Remove(o.FS, fmt.Sprintf("%s%x", openedPrefix, name)); err != nil {
			t.Fatal(err)
		}
		bad := o
		bad.Targets, bad.Protocol = []Target{{URL: leaderURL}}, b.o.Protocol
		if g, err := New(bad); !errors.As(err, new(*StateError)) {
			t.Errorf("without what was let in: %v, %v", g, err)
		}
		o.FS = mem.Crash()
		o.Record, o.Admission = disk.Sub(o.FS, "record"), nil
		b = start(t, o)
		defer b.stop()
		b.ask(t, upload(report(t, 2)))
		b.ask(t, showing(upload(report(t, 3)), fresh(t, keys, 0)))
		time.Sleep(time.Minute)
		if got, s := b.leader.seen(), b.Status(); len(got) > 0 || s.Admission["not_admitted"] != 2 {
			t.Errorf("without keys the leader got %v, counted as %v", got, s.Admission)
		}
		if err := b.setKeys([]Key{{Pair: pair}}, []Admission{{Keys: keys}}); !errors.Is(err, ErrRetired) {
			t.Errorf("a list that left is taken again: %v", err)
		}
	})
}

// TestTokenEpochs: keys that come into the directory are used while requests come in, and
// destroyed when the grace of their last round is over; a file that is no list keeps
// neither the others nor the gateway's keys from anything.
func TestTokenEpochs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		write := func(name string, k *admission.Keys) {
			t.Helper()
			b, err := k.Append(nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		e := &Epochs{Dir: dir, Admission: dir, Overlap: time.Hour, Hold: DefaultHold, Read: os.ReadFile}
		fixed := []Key{{Pair: generate(t, 1)}}
		first := tokenKeys(time.Now())
		write("one.admission", first)
		lists, err := e.AdmissionKeys(time.Now())
		if err != nil || len(lists) != 1 {
			t.Fatal(lists, err)
		}
		b := start(t, Options{Window: time.Second, Keys: fixed, Admission: lists})
		defer b.stop()
		b.ask(t, showing(upload(report(t, 1)), fresh(t, first, 0)))
		second := tokenKeys(first.End().Add(time.Hour))
		write("two.admission", second)
		if err := e.update(b.Gateway, fixed); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "bad.admission"), []byte("starling admission secret v1"), 0o600); err != nil {
			t.Fatal(err)
		}
		both := append(slices.Clone(fixed), Key{Pair: generate(t, 2)})
		if err := e.update(b.Gateway, both); !errors.Is(err, admission.ErrKeys) || len(b.admissions()) != 2 || b.Levels().Usable != 2 {
			t.Errorf("beside a file that is none: %v, %d lists, %d keys", err, len(b.admissions()), b.Levels().Usable)
		}
		b.ask(t, showing(upload(report(t, 2)), fresh(t, first, 0)))
		if err := os.Remove(filepath.Join(dir, "bad.admission")); err != nil {
			t.Fatal(err)
		}
		write("again.admission", second)
		if err := e.update(b.Gateway, fixed); err == nil || !strings.Contains(err.Error(), "holds the keys of") {
			t.Errorf("one list in two files: %v", err)
		}
		if err := os.Remove(filepath.Join(dir, "again.admission")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(first.End()))
		if err := e.update(b.Gateway, fixed); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "one.admission")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("keys are there when their time is over: %v", err)
		}
		name := first.Name()
		if left := b.files(t, fmt.Sprintf("%s%x", openedPrefix, name)); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
		time.Sleep(time.Until(time.Unix(int64(second.First*3600), 0)))
		b.ask(t, showing(upload(report(t, 3)), fresh(t, second, 0)))
		b.leader.await(t, 3)
	})
}

// TestTokensAreBounded: a list lets in as many tokens as a key opens requests, over a
// change of the gateway's key too; what comes later does not count, and is answered.
func TestTokensAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := tokenKeys(time.Now())
		lists := []Admission{{Keys: keys}}
		b := start(t, Options{Window: time.Second, MaxOpened: 3, Admission: lists})
		defer b.stop()
		for i := range byte(5) {
			if i == 2 {
				b.pair = generate(t, 2)
				if err := b.setKeys([]Key{{Pair: b.pair}}, lists); err != nil {
					t.Fatal(err)
				}
			}
			if a := b.ask(t, showing(upload(report(t, i)), fresh(t, keys, 0))); a.Status != 202 {
				t.Errorf("status %d", a.Status)
			}
		}
		time.Sleep(time.Minute)
		if s := b.Status(); s.Admission["counted"] != 3 || s.Admission["not_admitted"] != 2 || s.Passed != 3 {
			t.Errorf("counted as %v, %d passed", s.Admission, s.Passed)
		}
	})
}
