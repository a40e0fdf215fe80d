package hop_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/shuffle/analyzer"
	"github.com/starling-agg/starling/shuffle/hop"
	"github.com/starling-agg/starling/shuffle/onion"
)

// TestTallyFails: a batch of which nothing can be said, as one device that lies may bring
// about, is opened anew now and then, and not all the time until Hold is over.
func TestTallyFails(t *testing.T) {
	in(t, false, func(t *testing.T, b *bench) {
		b.tallyWith(func(*analyzer.Batch) ([]byte, error) { return nil, errors.New("none of answers") })
		n := b.round()
		b.contribute(b.envelopes(n, 0, 6)...)
		b.flushed(n)
		time.Sleep(time.Hour)
		synctest.Wait()
		first := b.tallied()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		t.Logf("%d tallies in an hour, %d in all", first, b.tallied())
		if s := b.recipeStatus(onion.Analyzer).Totals; s.Rounds["expired"] != 1 || first < 2 || b.tallied() > 40 {
			t.Errorf("%d tallies in an hour, %d in all: %+v", first, b.tallied(), s)
		}
	})
}

// TestTalliesAgain: what stopped a tally may end before Hold is over.
func TestTalliesAgain(t *testing.T) {
	in(t, false, func(t *testing.T, b *bench) {
		b.tallyWith(func(x *analyzer.Batch) ([]byte, error) {
			if b.tallied() < 12 {
				return nil, errors.New("not now")
			}
			return tallyAll(x)
		})
		n := b.round()
		b.contribute(b.envelopes(n, 0, 6)...)
		b.flushed(n)
		time.Sleep(20 * time.Hour)
		synctest.Wait()
		b.holdDevices(n, upTo(6)...)
	})
}

// slow is a disk whose writes of contributions end all at once, once open is closed.
type slow struct {
	disk.FS
	open chan struct{}
}

type slowFile struct {
	disk.File
	open chan struct{}
}

func (f slow) OpenAppend(name string) (disk.File, error) {
	g, err := f.FS.OpenAppend(name)
	return slowFile{g, f.open}, err
}

func (f slowFile) Write(b []byte) (int, error) {
	<-f.open
	return f.File.Write(b)
}

// TestRoomOnTheWay: contributions that are on their way to the disk take room, however many
// come at once: a round never has more than it may, and than a batch may.
func TestRoomOnTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, false, 1)
		b.limits.Contributions = 8
		first := b.place(onion.First)
		open := make(chan struct{})
		b.wrap = func(fs disk.FS) disk.FS { return slow{fs, open} }
		if err := b.run(first); err != nil {
			t.Fatal(err)
		}
		b.wrap = nil
		for _, p := range b.parties[1:] {
			if err := b.run(p); err != nil {
				t.Fatal(err)
			}
		}
		defer b.stopAll()
		n := b.round()
		for e := range slices.Chunk(b.envelopes(n, 0, 30), 5) {
			go b.contribute(e...)
		}
		synctest.Wait()
		close(open)
		synctest.Wait()
		if have := b.roundStatus(onion.First).Have; have > 8 || have < 5 {
			t.Errorf("a round of eight has %d", have)
		}
	})
}

// TestFullRound: a round that is full holds up no other in one request with it: a gateway
// sends the whole of that again and again.
func TestFullRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, false, 1)
		b.limits.Contributions = 6
		b.mustRun()
		defer b.stopAll()
		n := b.round()
		later := b.envelopes(n+1, 0, 7)
		if code := b.contribute(later...); code != 200 {
			t.Errorf("status %d of one more than there is room for", code)
		}
		for i, e := range b.envelopes(n, 0, 6) {
			if code := b.contribute(later[6], e); code != 200 {
				t.Errorf("%d: status %d beside one of a round that is full", i, code)
			}
		}
		b.flushed(n)
		b.holdDevices(n, upTo(6)...)
	})
}

// TestRoomToFlush: strangers may fill a disk up to what is to be left free, and what came can
// still be flushed.
func TestRoomToFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, false, 1)
		b.limits.MinFree = 30 << 10
		b.mustRun()
		defer b.stopAll()
		first := b.place(onion.First)
		size := first.fs.Used() + 120<<10
		first.fs.SetSize(size)
		n := b.round()
		taken := 0
		for _, e := range b.envelopes(n, 0, 240) {
			if b.contribute(e) == 200 {
				taken++
			}
		}
		b.restart(first)
		first.fs.SetSize(size)
		if code := b.contribute(b.envelopes(n, taken, taken+1)...); code != 503 || taken < 50 || taken > 200 {
			t.Errorf("status %d of one after %d", code, taken)
		}
		b.flushed(n)
		if err := first.s.(*hop.Hop).Err(); err != nil {
			t.Error(err)
		}
		b.holdDevices(n, upTo(taken)...)
	})
}
