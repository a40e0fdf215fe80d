package hop_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/shuffle/analyzer"
	"github.com/starling-agg/starling/shuffle/onion"
)

// TestTallyFails: a batch of which nothing can be said, as one device that lies may bring
// about, is opened anew now and then, and not all the time until Hold is over.
func TestTallyFails(t *testing.T) {
	in(t, false, func(t *testing.T, b *bench) {
		b.tally = func(*analyzer.Batch) ([]byte, error) { return nil, errors.New("none of answers") }
		n := b.round()
		b.contribute(b.envelopes(n, 0, 6)...)
		b.flushed(n)
		time.Sleep(time.Hour)
		synctest.Wait()
		first := b.tallies
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		t.Logf("%d tallies in an hour, %d in all", first, b.tallies)
		if s := b.recipeStatus(onion.Analyzer).Totals; s.Rounds["expired"] != 1 || first < 2 || b.tallies > 40 {
			t.Errorf("%d tallies in an hour, %d in all: %+v", first, b.tallies, s)
		}
	})
}

// TestTalliesAgain: what stopped a tally may end before Hold is over.
func TestTalliesAgain(t *testing.T) {
	in(t, false, func(t *testing.T, b *bench) {
		b.tally = func(x *analyzer.Batch) ([]byte, error) {
			if b.tallies < 12 {
				return nil, errors.New("not now")
			}
			return tallyAll(x)
		}
		n := b.round()
		b.contribute(b.envelopes(n, 0, 6)...)
		b.flushed(n)
		time.Sleep(20 * time.Hour)
		synctest.Wait()
		b.holdDevices(n, upTo(6)...)
	})
}
