package participate

import "sync/atomic"

// A Tally counts what the coins of many simulated devices said, so that a laboratory can
// hold its results to the truth. Only who is handed decisions can count them: a real
// device has its own alone, and shows it to nobody. The zero value is empty; it is safe
// for concurrent use.
type Tally struct {
	reports, dummies, noOps, nothing atomic.Uint64
}

// Add counts a decision.
func (t *Tally) Add(d *Decision) {
	switch d.what {
	case report:
		t.reports.Add(1)
	case dummy:
		t.dummies.Add(1)
	case noOp:
		t.noOps.Add(1)
	default:
		t.nothing.Add(1)
	}
}

// Reports of answers.
func (t *Tally) Reports() uint64 { return t.reports.Load() }

// Dummies are reports of no answer.
func (t *Tally) Dummies() uint64 { return t.dummies.Load() }

// NoOps are cover that the gateway drops.
func (t *Tally) NoOps() uint64 { return t.noOps.Load() }

// Nothing counts devices that sent nothing.
func (t *Tally) Nothing() uint64 { return t.nothing.Load() }
