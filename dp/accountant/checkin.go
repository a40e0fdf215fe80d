package accountant

import (
	"fmt"

	"github.com/starling-agg/starling/dp/release"
)

// checkedIn is a run of random check-ins (Balle, Kairouz, McMahan, Thakkar and Thakurta
// 2020): a person is there, with probability Rate, at one of Slots slots, uniform and
// kept secret, and each slot publishes the report of one of those who are there, or of a
// dummy. So in each slot another's input, or a dummy's, may be reported in place of the
// person's, which is the premise that Report stands for, whatever the neighbours asked
// about are. AddRemove and ZeroOut: the person never checks in. ReplaceOne: the person's
// input is another, which needs a pure report and Rate 1.
type checkedIn struct {
	Report release.Report
	Slots  uint64
	Rate   float64
}

const (
	checkedTheorem = "random check-ins, a slot replaced (docs/proofs/check-ins.md, theorem 4)"
	clonedTheorem  = "clone bound on the slots of a check-in (docs/proofs/check-ins.md, theorem 2)"
)

func (checkedIn) event() {}

func (c checkedIn) check(n release.Neighbours) error {
	if c.Slots == 0 || c.Slots > maxSteps {
		return parameter("number of slots", float64(c.Slots), "1 to 2^30")
	}
	if err := checkSampling(c.Rate); err != nil {
		return err
	}
	if n == release.ReplaceOne && c.Rate < 1 {
		return fmt.Errorf("%w: a privacy loss distribution of check-ins that may be left out, for replace-one neighbours", release.ErrUnsupported)
	}
	return nil
}

func (c checkedIn) dominating(n release.Neighbours) (dominance, error) {
	if err := c.check(n); err != nil {
		return dominance{}, err
	}
	if n == release.ReplaceOne {
		d, err := shuffled{c.Report.Any(), c.Slots}.dominating(release.ReplaceOne)
		d.theorem = clonedTheorem
		return d, err
	}
	d, err := replacing(c.Report)
	if err != nil {
		return dominance{}, err
	}
	if d, err = d.allocated(c.Slots); err != nil {
		return dominance{}, fmt.Errorf("check-ins: %w", err)
	}
	if c.Rate < 1 {
		d = d.sampled(c.Rate)
	}
	d.theorem = checkedTheorem
	return d, nil
}
