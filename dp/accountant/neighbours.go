package accountant

import "github.com/starling-agg/starling/dp/release"

// The words of package release that questions and answers are made of.
type (
	Neighbours     = release.Neighbours
	Contribution   = release.Contribution
	Sensitivity    = release.Sensitivity
	Rational       = release.Rational
	Guarantee      = release.Guarantee
	Direction      = release.Direction
	ParameterError = release.ParameterError
	Message        = release.Message
)

const (
	AddRemove  = release.AddRemove
	ReplaceOne = release.ReplaceOne
	ZeroOut    = release.ZeroOut

	BothDirections = release.BothDirections
	Remove         = release.Remove
	Add            = release.Add
)

var (
	ErrParameter   = release.ErrParameter
	ErrNoGuarantee = release.ErrNoGuarantee
	ErrUnsupported = release.ErrUnsupported

	ParseNeighbours = release.ParseNeighbours
	ParseDirection  = release.ParseDirection

	OneHot   = release.OneHot
	MultiHot = release.MultiHot
	Interval = release.Interval
	Vector   = release.Vector
	Signed   = release.Signed
	Ball     = release.Ball
	Simplex  = release.Simplex
)

func parameter(name string, value float64, want string) error {
	return &ParameterError{Parameter: name, Value: value, Want: want}
}
