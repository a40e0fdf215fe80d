package amplify

import (
	"errors"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// What shuffling, allocation and check-ins give is proved to a checker that shares
// nothing with this package.
func TestCertify(t *testing.T) {
	curve := func(c *Curve, err error) *Curve {
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for name, c := range map[string]*Curve{
		"any randomizer":       curve(Shuffle(release.AnyReport(2), 5000)),
		"binary":               curve(Shuffle(kary(2)(1), 1e6)),
		"answers":              curve(Shuffle(kary(20)(3), 4000)),
		"many answers of many": curve(Shuffle(kary(1000)(4), 1e8)),
		"rappor":               curve(Shuffle(columns(4), 1e5)),
		"allocation":           curve(Allocation(release.AnyPresence(1), 300, .7)),
		"fixed":                curve(CheckIn{Schedule: release.FixedWindow, Slots: 1000, Rate: .1}.Curve(release.AnyReport(1), release.AddRemove)),
		"fixed, replaced":      curve(CheckIn{Schedule: release.FixedWindow, Slots: 1000, Rate: .1}.Curve(release.AnyReport(1), release.ReplaceOne)),
		"sliding":              curve(CheckIn{Schedule: release.SlidingWindow, Slots: 400, Rate: 1}.Curve(release.AnyReport(.5), release.ZeroOut)),
		"averaged":             curve(CheckIn{Schedule: release.AveragedWindow, Slots: 100, Rate: 1, People: 1e4}.Curve(release.AnyReport(.5), release.ReplaceOne)),
	} {
		for _, delta := range []float64{1e-8} {
			want, err := c.Epsilon(delta)
			if err != nil {
				t.Fatal(err)
			}
			proof, err := c.Certify(delta)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if err := proof.Check(); err != nil || proof.Epsilon < want.EpsilonLower || proof.Epsilon > want.Epsilon*(1+2e-3) || proof.Delta != delta {
				t.Errorf("%s: %v, proves %+v, want %v", name, err, proof.Claim, want)
			}
			proof.Terms[0].Mu *= .99
			if proof.Check() == nil {
				t.Errorf("%s: a smaller epsilon than is true", name)
			}
		}
	}
	pure := curve(PureDP(1, release.AddRemove))
	for _, c := range []*Curve{pure, curve(Shuffle(release.AnyReport(40), 1e9)), curve(Shuffle(kary(1<<30)(1), 1e4))} {
		if _, err := c.Certify(1e-6); !errors.Is(err, release.ErrUnsupported) {
			t.Error(err)
		}
	}
}
