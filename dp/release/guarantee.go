package release

import (
	"errors"
	"fmt"
)

// ErrParameter is what every *ParameterError matches.
var ErrParameter = errors.New("accountant: parameter out of range")

// ErrNoGuarantee says that no epsilon up to 10^6 is proved at the wanted delta: beyond,
// nothing is protected.
var ErrNoGuarantee = errors.New("accountant: no epsilon up to 10^6 is proved at this delta")

// ErrUnsupported says that no theorem known here covers the question.
var ErrUnsupported = errors.New("accountant: no theorem covers this")

// A ParameterError says which number is outside its range. It matches ErrParameter.
type ParameterError struct {
	Parameter string
	Value     float64
	Want      string
}

func (e *ParameterError) Error() string {
	return fmt.Sprintf("accountant: %s is %v, want %s", e.Parameter, e.Value, e.Want)
}

// Is reports whether target is ErrParameter.
func (e *ParameterError) Is(target error) bool { return target == ErrParameter }

// A Direction is one of the two ways in which AddRemove and ZeroOut neighbours differ.
// A bound for one of them alone is no differential privacy; that is the larger of both.
type Direction string

const (
	BothDirections Direction = ""
	Remove         Direction = "remove" // results with the record, against those without it
	Add            Direction = "add"    // results without the record, against those with it
)

// ParseDirection reads remove or add.
func ParseDirection(s string) (Direction, error) {
	if d := Direction(s); d == Remove || d == Add {
		return d, nil
	}
	return "", fmt.Errorf("%w: direction %q, want remove or add", ErrParameter, s)
}

// A Guarantee is a proved (Epsilon, Delta), and how far from tight it may be.
type Guarantee struct {
	// Epsilon is rounded up.
	Epsilon float64 `json:"epsilon"`
	// EpsilonLower: no epsilon below it holds at Delta. 0 if nothing is known.
	EpsilonLower float64 `json:"epsilon_lower"`
	// Delta is rounded up.
	Delta float64 `json:"delta"`
	// DeltaLower: no delta below it holds at Epsilon. 0 if nothing is known or epsilon
	// was asked for.
	DeltaLower float64 `json:"delta_lower,omitempty"`
	// Neighbours is the relation that the guarantee is about.
	Neighbours Neighbours `json:"neighbours"`
	// Direction is empty, for both directions, or the only one that this is about.
	Direction Direction `json:"direction,omitempty"`
	// Method is closed-form, zcdp, zcdp-simple, rdp, pld or a combination, "a+b".
	Method string `json:"method"`
	// Theorem names the result used.
	Theorem string `json:"theorem"`
}

func (g Guarantee) String() string {
	if g.Direction != BothDirections {
		return fmt.Sprintf("(%.6g, %.3g) in the direction %s only, %v neighbours, by %s", g.Epsilon, g.Delta, g.Direction, g.Neighbours, g.Theorem)
	}
	return fmt.Sprintf("(%.6g, %.3g)-DP, %v neighbours, by %s", g.Epsilon, g.Delta, g.Neighbours, g.Theorem)
}
