package accountant

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
)

// A Report is a [release.Report] with the mechanism that it is of, for accounting that
// knows more of it than its epsilon. Make one with AnyReport, ApproxReport or ReportOf; the
// zero value is refused.
type Report struct {
	release.Report
	event Event // whose pair for ReplaceOne is the report's
}

// AnyReport is the report of any randomizer that is epsilon0-DP for replacing its input.
func AnyReport(epsilon0 float64) Report { return ApproxReport(epsilon0, 0) }

// ApproxReport is the report of any randomizer that is (epsilon0, delta0)-DP for
// replacing its input.
func ApproxReport(epsilon0, delta0 float64) Report {
	return Report{release.ApproxReport(epsilon0, delta0), ApproxDP{epsilon0, delta0}}
}

// ReportOf is the report of a mechanism that is run on one person's input:
// RandomizedResponse, RAPPOR (with its rows whole), the Laplaces, and the Gaussians,
// which are not pure. For others, which say of no relation what they are, see
// ApproxReport.
func ReportOf(e Event) Report {
	r := Report{event: e}
	switch e := e.(type) {
	case RandomizedResponse:
		r.Report = release.ResponseReport(e.Epsilon0, e.K)
	case RAPPOR:
		if err := e.check(); err != nil {
			return Report{Report: release.NoReport(err)}
		}
		r.Report = release.AnyReport(2 * e.Epsilon0)
	case Laplace, LaplaceSum, DiscreteLaplace, DiscreteLaplaceSum:
		x := ceilingOf(e, release.ReplaceOne)
		if math.IsInf(x, 1) {
			return Report{Report: release.NoReport(fmt.Errorf("%w: the scale or the contribution of %+v", release.ErrParameter, e))}
		}
		r.Report = release.AnyReport(x)
	case Gaussian, DiscreteGaussian:
		r.Report = release.NoReport(fmt.Errorf("%w: reports of %T, which have no pure local privacy", release.ErrUnsupported, e))
	default:
		return Report{Report: release.NoReport(fmt.Errorf("%w: %T as a report about one input", release.ErrUnsupported, e))}
	}
	return r
}

// replacing returns the pair of any two inputs.
func (r Report) replacing() (dominance, error) {
	d, ok := r.event.(dominated)
	if !ok {
		_, _, err := r.Approx()
		return dominance{}, err
	}
	return d.dominating(release.ReplaceOne)
}

// ColumnsOf is the columns of r's vectors.
func ColumnsOf(r RAPPOR) release.Columns { return release.ColumnsOf(r.Epsilon0) }

// RAPPOR is the release of a vector of bits, one of which is set, each flipped with
// probability 1/(e^Epsilon0 + 1). Saying nothing is the vector in which none is set: one
// bit away. Saying another thing is two bits away.
type RAPPOR struct{ Epsilon0 float64 }

func (RAPPOR) event() {}

func (r RAPPOR) check() error { return RandomizedResponse{r.Epsilon0, 2}.check() }

// bits is how many of them differ.
func (RAPPOR) bits(n release.Neighbours) uint64 {
	if n == release.ReplaceOne {
		return 2
	}
	return 1
}

func (r RAPPOR) exact(n release.Neighbours, count float64) (curve, string, error) {
	return RandomizedResponse{r.Epsilon0, 2}.exact(n, count*float64(r.bits(n)))
}

func (r RAPPOR) dominating(n release.Neighbours) (dominance, error) {
	if err := r.check(); err != nil {
		return dominance{}, err
	}
	bit := responsePair(r.Epsilon0, 2)
	if n != release.ReplaceOne {
		return dominance{pair: bit, symmetric: true, attained: true}, nil
	}
	both := bit.times(bit)
	both.a, both.b = -2*r.Epsilon0, 0
	return dominance{pair: both, symmetric: true, attained: true}, nil
}

func (r RAPPOR) divergence(n release.Neighbours) (func(float64) float64, error) {
	f, err := RandomizedResponse{r.Epsilon0, 2}.divergence(n)
	return func(a float64) float64 { return float64(r.bits(n)) * f(a) }, err
}
