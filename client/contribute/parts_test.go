package contribute_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/shuffle/onion"
)

// TestIndependentBatches: of 90 devices that answer in a round each draws one of three batches, which the
// hops count apart; the collector adds the three up, and where a message of one is lost it
// names that batch, leaves it out, and scales the others to all. The chance that a batch is
// not drawn by at least 8 of 90 is below 10^-6, and that a number is off by more than is
// allowed below 10^-9.
func TestIndependentBatches(t *testing.T) {
	in(t, kind{parted: true}, func(t *testing.T, w *world) {
		c, reader := w.contributor(), w.reader()
		r := w.checked.Recipe()
		begin := time.Now()
		round, _, end, due := reader.RoundAt(begin)
		from, to := r.PartRounds(round)
		if to-from != 3 || !w.shuffle.Begin(from).Equal(end) || !due.Equal(w.shuffle.Flush(to-1)) {
			t.Fatalf("round %d ends at %v, its batches are %d to %d, due at %v", round, end, from, to, due)
		}
		report := func() {
			var values []client.Value
			for i := range 90 {
				values = append(values, client.Bucket(uint32(i%9/4))) // 4, 4 and 1 of 9
			}
			if err := c.Report(t.Context(), values...); err != nil {
				t.Fatal(err)
			}
		}
		report()
		if _, err := reader.Round(t.Context(), round); !errors.Is(err, collector.ErrNoResult) {
			t.Errorf("before its end: %v", err)
		}
		wait := func(until time.Time) {
			time.Sleep(time.Until(until) + 10*time.Second)
			synctest.Wait()
		}
		wait(w.shuffle.Flush(to - 2))
		if _, err := reader.Round(t.Context(), round); !errors.Is(err, collector.ErrNoResult) {
			t.Errorf("with one batch to come: %v", err)
		}
		wait(due)
		x, err := reader.Round(t.Context(), round)
		if err != nil {
			t.Fatal(err)
		}
		check := func(x *collector.Result, reach float64) {
			t.Helper()
			for i, want := range []float64{40, 40, 10} {
				if off := math.Abs(x.Estimate[i] - want); off > reach || x.Interval95[i][0] > x.Estimate[i] || x.Interval95[i][1] < x.Estimate[i] {
					t.Errorf("bucket %d: %v within %v, want %v", i, x.Estimate[i], x.Interval95[i], want)
				}
			}
		}
		if x.ReportCount != 90 || x.LeftOut != nil || !x.From.Equal(end.Add(-time.Hour)) {
			t.Errorf("%+v", x)
		}
		check(x, 12)

		round, _, _, due = reader.RoundAt(time.Now())
		from, _ = r.PartRounds(round)
		report()
		w.spoil(from + 1)
		wait(due)
		y, err := reader.Round(t.Context(), round)
		if err != nil {
			t.Fatal(err)
		}
		if len(y.LeftOut) != 1 || y.LeftOut[0].Number != 1 || y.LeftOut[0].Why != recipe.LeftMissing || y.ReportCount+y.LeftOut[0].Contributions != 91 {
			t.Fatalf("%+v of %d", y.LeftOut, y.ReportCount)
		}
		if y.Stderr[0] < 2*x.Stderr[0] || y.Stderr[0] > 20*x.Stderr[0] {
			t.Errorf("the standard error is %v without a third, and %v with all", y.Stderr[0], x.Stderr[0])
		}
		check(y, 6.2*y.Stderr[0]+1)
		if b, err := json.Marshal(y); err != nil || !strings.Contains(string(b), `"left_out":[{"number":1,"contributions":`) {
			t.Errorf("%s, %v", b, err)
		}

		round, _, _, due = reader.RoundAt(time.Now())
		from, _ = r.PartRounds(round)
		report()
		w.spoil(from)
		w.spoil(from + 2)
		wait(due)
		ruined := new(collector.RuinedError)
		if _, err := reader.Round(t.Context(), round); !errors.As(err, &ruined) || ruined.Contributions != 92 {
			t.Errorf("with one of three left: %v", err)
		}
	})
}

// TestPartsAllKeys: a device that has no keys of some batch of the next round draws none of
// the others either.
func TestPartsAllKeys(t *testing.T) {
	in(t, kind{parted: true}, func(t *testing.T, w *world) {
		// A third of the round later there are the keys of the first batch of the fourth round
		// from then on.
		time.Sleep(w.shuffle.Length + time.Second)
		synctest.Wait()
		c := w.contributor()
		if err := c.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if list := w.list(onion.First, "first.example"); (list.First+uint64(len(list.Keys)))%3 != 1 {
			t.Fatalf("there are keys of %d rounds from %d on", len(list.Keys), list.First)
		}
		if _, err := c.Prepare(client.Bucket(1), time.Now()); err != nil {
			t.Fatal(err)
		}
		later := time.Now().Add(3 * time.Hour)
		for range 40 {
			if _, err := c.Prepare(client.Bucket(1), later); !errors.Is(err, client.ErrNoKeys) {
				t.Fatalf("in a round of which not all keys are there: %v", err)
			}
		}
	})
}

// spoil sends a contribution of which no message opens at the second hop.
func (w *world) spoil(n uint64) {
	w.t.Helper()
	first, err := w.list(onion.First, "first.example").Key(n)
	if err != nil {
		w.t.Fatal(err)
	}
	messages := make([][]byte, w.shuffle.Messages)
	for i := range messages {
		messages[i] = make([]byte, w.shuffle.Size)
	}
	bad, err := w.shuffle.Shape(n).Seal(onion.Keys{First: first, Second: first, Analyzer: first}, messages, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.contributor().Send(w.t.Context(), bad); err != nil {
		w.t.Fatal(err)
	}
}
