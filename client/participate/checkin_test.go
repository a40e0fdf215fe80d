package participate

import (
	"fmt"
	"testing"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// checkIns has rounds of a day, with slots of three hours.
func checkIns(s release.Schedule) account.Options {
	o := options()
	p := recipe.CheckIn{Schedule: s, Rate: recipe.Rational{Num: 1, Den: 2}, Slots: 8, Length: 3}
	o.Dummies.Senders = 5000
	if s == release.SlidingWindow {
		p.Window = 4
		o.Dummies.Senders = 600
	}
	o.Participation = p
	o.Dummies.Allowance = 300
	return o
}

// TestCheckIns: with an answer and without one, a device draws a uniform slot of its window
// and sends in it, never outside; the report carries the first unit of the slot. One with
// an answer sends it with probability 1/2, and either sends dummies with the same
// probability, (1-1/2)/8. Each frequency is within six deviations, which fails once in
// 10^8 runs.
func TestCheckIns(t *testing.T) {
	const n = 1500
	for _, c := range []struct {
		schedule    release.Schedule
		round       time.Time
		first, last int // slots that may be drawn: now is in slot 4 of its round
		lost        float64
	}{
		{release.FixedWindow, donationStart, 0, 7, 0},
		{release.AveragedWindow, donationStart, 0, 7, 0},
		{release.SlidingWindow, donationStart.AddDate(0, 0, -1), 5, 7, 0.25},
	} {
		s := newServers(t)
		p := s.plan(checkIns(c.schedule))
		window := 8.0
		if c.schedule == release.SlidingWindow {
			window = 4
		}
		for i, v := range []client.Value{one(1), client.NoValue()} {
			drawn := make(map[int]int)
			var reports, dummies, lost int
			for range n {
				decision, err := (&Device{Ledger: memory(t)}).Decide(t.Context(), p, v, now)
				if err != nil {
					t.Fatal(err)
				}
				if begin, _ := decision.Round(); !begin.Equal(c.round) {
					t.Fatalf("%v: round from %v", c.schedule, begin)
				}
				from, to, ok := decision.Slot()
				if !ok {
					lost++
				} else {
					slot := int(from.Sub(c.round) / (3 * time.Hour))
					if at := decision.At(); slot < c.first || slot > c.last || at.Before(from) || !at.Before(to) || to.Sub(from) != 3*time.Hour {
						t.Fatalf("%v: at %v in slot %d, %v to %v", c.schedule, at, slot, from, to)
					}
					drawn[slot]++
				}
				unit, err := decision.take()
				if err != nil {
					t.Fatal(err)
				}
				if unit == nil {
					continue
				}
				if !ok {
					t.Fatalf("%v: sent without a slot", c.schedule)
				}
				if begin, _ := p.recipe.TimePrecision.Begin(unit.carrier.(*sealedReport).report.Metadata.Time); !begin.Equal(from) {
					t.Fatalf("%v: a report of the slot from %v says %v", c.schedule, from, begin)
				}
				if decision.what == report {
					reports++
				} else {
					dummies++
				}
			}
			for slot := c.first; slot <= c.last; slot++ {
				within6(t, fmt.Sprint(c.schedule, " slot ", slot), drawn[slot], n, 1/window)
			}
			within6(t, fmt.Sprint(c.schedule, " lost"), lost, n, c.lost)
			answers := []float64{0.5, 0}[i]
			within6(t, fmt.Sprint(c.schedule, " reports"), reports, n, answers*(1-c.lost))
			within6(t, fmt.Sprint(c.schedule, " dummies"), dummies, n, 0.5/8*(1-c.lost))
		}
	}
}

// TestSlidingCheckInOnce: a device that woke once in a round does not draw in it again, and
// goes on with its slot after a restart.
func TestSlidingCheckInOnce(t *testing.T) {
	s := newServers(t)
	p := s.plan(checkIns(release.SlidingWindow))
	d := Device{Ledger: memory(t)}
	first, err := d.Decide(t.Context(), p, one(1), now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Decide(t.Context(), p, one(1), now.Add(4*time.Hour)); err == nil {
		t.Error("decided twice in a round")
	}
	again, err := d.Resume(t.Context(), p, one(1), now.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	a, _, okA := first.Slot()
	b, _, okB := again.Slot()
	if okA != okB || !a.Equal(b) {
		t.Errorf("slot from %v, and after a restart from %v", a, b)
	}
	if _, err := d.Decide(t.Context(), p, one(1), donationStart.Add(time.Hour)); err != nil {
		t.Errorf("the next round: %v", err)
	}
}
