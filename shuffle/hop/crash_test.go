package hop_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/shuffle/analyzer"
	"github.com/starling-agg/starling/shuffle/hop"
	"github.com/starling-agg/starling/shuffle/onion"
)

// points are the places where a party can be killed.
func points(p *place) []string {
	log := disk.LogFailpoints()[:3] // no file is large enough to be rotated
	switch p.role {
	case onion.First:
		return slices.Concat(hop.Failpoints(1), log)
	case onion.Second:
		return slices.Concat(hop.Failpoints(2), log)
	}
	return slices.Concat(analyzer.Failpoints(p.role == onion.Direct), log)
}

// TestKilled: power is lost at each place of each party, with disks that lose what was
// not synced. Each contribution that was acknowledged is in the result once, with all its
// messages, and nothing is left of the rounds.
func TestKilled(t *testing.T) {
	for _, direct := range []bool{false, true} {
		for at := range newBench(t, direct, 0).parties {
			for _, point := range points(newBench(t, direct, 0).parties[at]) {
				hit := 0
				for seed := range uint64(2) {
					synctest.Test(t, func(t *testing.T) {
						b := smallBench(t, direct, 10*seed)
						p := b.parties[at]
						p.points = new(disk.Failpoints)
						p.points.Arm(point, int(seed), func() error {
							hit++
							p.fs.Cut()
							return disktest.ErrPowerLoss
						})
						play(t, b, p, fmt.Sprintf("%v, %s, seed %d", p.role, point, seed))
					})
				}
				if hit == 0 {
					t.Errorf("nothing was killed at %s", point)
				}
			}
		}
	}
}

var every = flag.Int("every", 8, "of the calls that change a disk, which ones TestKilledAtEachWrite tries")

// TestKilledAtEachWrite: the same at each call of each disk that changes it: lost, or
// done and reported as failed, as the seed has it. Every eighth call is enough for the
// gate; -every 1 has all of them.
func TestKilledAtEachWrite(t *testing.T) {
	for _, direct := range []bool{false, true} {
		for at := range newBench(t, direct, 0).parties {
			n := 0
			for going := true; going; n += *every {
				going = false
				synctest.Test(t, func(t *testing.T) {
					b := smallBench(t, direct, uint64(n))
					p := b.parties[at]
					left := n
					p.fs.Inject(func(op disktest.Op, _ string) error {
						if op == disktest.OpOpen || op == disktest.OpRead {
							return nil
						}
						if left--; left < 0 {
							going = true
							return disktest.ErrPowerLoss
						}
						return nil
					})
					play(t, b, p, fmt.Sprintf("%v, call %d", p.role, n))
				})
			}
			if n < 50 {
				t.Errorf("%v: only %d calls", b0(t, direct, at), n)
			}
		}
	}
}

func b0(t *testing.T, direct bool, at int) onion.Role { return newBench(t, direct, 0).parties[at].role }

// smallBench has a small batch.
func smallBench(t *testing.T, direct bool, seed uint64) *bench {
	b := newBench(t, direct, seed)
	b.s.Messages, b.s.MinBatch = 2, 3
	return b
}

// play has devices contribute to two rounds, restarts the party that is killed whenever it has
// stopped, and holds what comes of it to what was acknowledged.
func play(t *testing.T, b *bench, p *place, what string) {
	t.Helper()
	for _, q := range b.parties {
		if err := b.run(q); err != nil {
			if q != p || !errors.Is(err, disktest.ErrPowerLoss) {
				t.Fatalf("%s: %v", what, err)
			}
			revive(t, b, p, what)
		}
	}
	defer b.stopAll()
	mend := func() {
		synctest.Wait()
		select {
		case err := <-p.ended:
			p.ended <- err
			b.stop(p)
			revive(t, b, p, what)
		default:
		}
	}
	n := b.round()
	acked := make(map[uint64][]int)
	for i, round := range []uint64{n, n + 1} {
		if i > 0 {
			time.Sleep(time.Until(b.s.Begin(round)))
			mend()
		}
		for d := range 3 {
			e := b.envelope(round, 10*i+d)
			for try := range 5 {
				if b.contribute(e) == 200 {
					acked[round] = append(acked[round], 10*i+d)
					break
				}
				if try == 4 {
					t.Errorf("%s: device %d is not acknowledged", what, d)
				}
				mend()
			}
		}
	}
	for range 15 {
		time.Sleep(12 * time.Minute)
		mend()
	}
	for round, want := range acked {
		got := devices(b.result(round))
		for _, d := range want {
			if got[d] != b.s.Messages {
				t.Errorf("%s: round %d: %d messages of device %d", what, round, got[d], d)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: round %d: %d devices, want %d", what, round, len(got), len(want))
		}
	}
	for _, q := range b.parties {
		if left := b.left(q, n+2); len(left) > 0 {
			t.Errorf("%s: %v keeps %v", what, q.role, left)
		}
	}
}

func revive(t *testing.T, b *bench, p *place, what string) {
	t.Helper()
	p.points = nil
	p.fs.Cut()
	p.fs = p.fs.Crash()
	if err := b.run(p); err != nil {
		t.Fatalf("%s: the start after it: %v", what, err)
	}
}

// TestSameBytesAgain: once anything of a batch has left, the same bytes leave after each
// restart, in the same order, until hop 2 has all of it. Before that an order is drawn
// anew; and after the commit neither the key nor an envelope is on the disk.
func TestSameBytesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, false, 1)
		b.limits.Piece = 500
		var mu sync.Mutex
		sent := make(map[string][]byte) // by path
		var answered atomic.Int64
		b.wire.look = func(to string, r *http.Request, body []byte) error {
			mu.Lock()
			defer mu.Unlock()
			if to != host(onion.Second) {
				return nil
			}
			if was, ok := sent[r.URL.Path]; ok && !bytes.Equal(was, body) {
				t.Errorf("%s: other bytes than before", r.URL.Path)
			}
			sent[r.URL.Path] = bytes.Clone(body)
			if answered.Add(1)%3 == 0 {
				return errors.New("the connection broke")
			}
			return nil
		}
		b.mustRun()
		defer b.stopAll()
		n := b.round()
		b.contribute(b.envelopes(n, 0, 9)...)
		time.Sleep(time.Until(b.s.Flush(n)))
		synctest.Wait()
		for i := range 6 {
			for name := range disktest.FilesOf(t, b.place(onion.First).fs) {
				if strings.Contains(name, fmt.Sprintf("rounds/%d/", n)) && !strings.HasSuffix(name, "/out") && !strings.HasSuffix(name, "/manifest") {
					t.Errorf("after the commit there is %s", name)
				}
			}
			b.restart(b.place([]onion.Role{onion.First, onion.Second}[i%2]))
			time.Sleep(700 * time.Millisecond)
			synctest.Wait()
		}
		time.Sleep(time.Hour / 2)
		synctest.Wait()
		b.holdDevices(n, upTo(9)...)
		if len(sent) < 8 {
			t.Errorf("only %d requests", len(sent))
		}
	})
}

// TestPutBack: a hop whose directory was put back to an older copy hands no second batch
// on, and says why; a damaged one does not start.
func TestPutBack(t *testing.T) {
	in(t, false, func(t *testing.T, b *bench) {
		first := b.place(onion.First)
		n := b.round()
		b.contribute(b.envelopes(n, 0, 3)...)
		b.contribute(b.envelopes(n, 3, 6)...) // a second group, so that damage to the first is known from what a loss of power leaves
		older := disktest.FilesOf(t, first.fs)
		b.flushed(n)
		b.holdDevices(n, upTo(6)...)
		b.stop(first)
		first.fs = disktest.NewMem(9)
		older.Put(t, first.fs)
		if err := b.run(first); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := b.roundStatus(onion.First); s.Round != n || s.Stage != "committed" || s.Trouble != "the next party: refused: conflict" {
			t.Errorf("%+v", s)
		}
		b.holdDevices(n, upTo(6)...)
		b.stop(first)
		files := 0
		for name, content := range older {
			if len(content) == 0 || !strings.Contains(name, fmt.Sprintf("rounds/%d/", n)) && !strings.HasSuffix(name, "state") {
				continue
			}
			files++
			for damage, to := range map[string][]byte{"a bit": flipped(content), "cut": content[:len(content)/2], "gone": nil} {
				if strings.Contains(name, "records-") && damage == "cut" {
					continue // as a loss of power leaves what was not acknowledged
				}
				x := *first
				x.fs = disktest.NewMem(8)
				changed := older.With(name, to)
				if damage == "gone" {
					delete(changed, name)
				}
				changed.Put(t, x.fs)
				if strings.HasSuffix(name, "state") && damage == "gone" {
					continue // a directory that begins
				}
				if h, err := hop.New(b.options(&x)); err == nil {
					t.Errorf("%s, %s: it starts", name, damage)
					h.Close()
				}
			}
		}
		if files < 3 {
			t.Errorf("only %d files", files)
		}
		if err := b.run(first); err != nil {
			t.Fatal(err)
		}
	})
}

func flipped(b []byte) []byte {
	c := bytes.Clone(b)
	c[len(c)/4] ^= 1
	return c
}
