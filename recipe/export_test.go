package recipe

// What tests of this package see of its inside.
var (
	Flip     = flip
	Duration = duration
	AllTags  = codepoints
)

func (p probabilities) Keep() float64 { return p.keep }
func (p probabilities) Lie() float64  { return p.lie }

func (r *Recipe) Probabilities() probabilities { return r.probabilities() }

// Apart checks what can be checked of a recipe's parts, each by itself.
func (r *Recipe) Apart() {
	v := validator{}
	v.query(r.Query)
	v.noise(r)
	v.path(r)
	v.window(r.Window, r.TimePrecision)
}

// UnitErrors are the reasons to refuse the unit, RoomErrors those to refuse a vector for
// what its field has room for.
func (r *Recipe) UnitErrors() []error {
	v := validator{}
	v.unit(r)
	return v.errs
}

func (r *Recipe) RoomErrors() []error {
	v := validator{}
	v.vectorRoom(r)
	return v.errs
}

// ProjectiveVariance is that of an estimated count of which held of all devices, none
// with a dummy, have the value.
func (r *Recipe) ProjectiveVariance(held, devices float64) float64 {
	return r.probabilities().blurVariance(devices, devices, held)
}

// ExpectedErrors says how far off a query's numbers are that are computed of what is released.
func ExpectedErrors(r *Recipe) string { return r.expectedErrors() }

// Linear is the encoding of an answer, LeastOf how many are sure to be in one batch.
func Linear(q Query, answer []uint64) []uint64 { return linear(q, answer) }
func LeastOf(z Cloak) uint64                   { return z.least() }

// LaplaceSpread is that of draws of Laplace noise, and Within a distance that it stays within.
func LaplaceSpread(deviation, scale, draws float64) Spread {
	return laplaceSpread(deviation, scale, draws)
}
func (s Spread) Within(miss float64) float64 { return s.within(miss) }
