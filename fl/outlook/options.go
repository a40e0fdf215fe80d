package outlook

import (
	"fmt"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// Options of a training that has no recipe yet. Zero fields take the defaults of
// [Options.Recipe].
type Options struct {
	// Dimension is how many parameters the model has, and Devices how many decide in a
	// round. Both are required.
	Dimension uint32
	Devices   uint64
	// Participation is how they decide; always when nil.
	Participation recipe.Participation
	// Rounds is how many there are; 100 when zero.
	Rounds uint32
	// Epsilon and Delta bound what all rounds tell of one device; 4 and 10^-5 when zero.
	Epsilon, Delta recipe.Decimal
	// MinBatch is B; half of the expected answers of a release when zero, as far as a
	// sample may be so small.
	MinBatch uint64
	// Precision is DAP's time_precision in seconds, a minute when zero; Round is the length
	// of a round in these, 1 or all slots when zero.
	Precision dap.TimePrecision
	Round     uint64
}

// fracBits is the precision of what devices send, in binary places at norm 1.
const fracBits = 14

func (o Options) withDefaults() Options {
	if o.Rounds == 0 {
		o.Rounds = 100
	}
	if o.Epsilon == (recipe.Decimal{}) {
		o.Epsilon = recipe.Decimal{Coefficient: 4}
	}
	if o.Delta == (recipe.Decimal{}) {
		o.Delta = recipe.Decimal{Coefficient: 1, Scale: 5}
	}
	if o.Precision == 0 {
		o.Precision = 60
	}
	if o.Round == 0 {
		o.Round = 1
		if o.Participation != nil {
			o.Round = max(1, o.Participation.Units())
		}
	}
	return o
}

// Recipe returns the recipe that a training of the options would have, of servers that are
// still to be named; its noise is calibrated to Epsilon. It fails with a
// *[recipe.InvalidError] for what no recipe says.
func (o Options) Recipe() (*recipe.Recipe, error) {
	o = o.withDefaults()
	q, err := recipe.NewVector(o.Dimension, 1, fracBits, 0)
	if err != nil {
		return nil, fmt.Errorf("outlook: %w", err)
	}
	made := account.Options{
		Name: "A training", Query: q, MinBatch: o.MinBatch, Leader: "https://leader.example/", Helper: "https://helper.example/",
		Participation: o.Participation, Kind: account.GaussianNoise, Epsilon: o.Epsilon, Delta: o.Delta, Rounds: o.Rounds,
		TimePrecision: o.Precision, RoundUnits: o.Round, Rate: &recipe.Rate{Devices: o.Devices, Units: o.Round}, Oversized: true,
	}
	of := recipe.Recipe{Participation: o.Participation, Rate: made.Rate}
	sampled := of.Sampled()
	if sampled {
		made.Relay = &recipe.Relay{URL: "https://relay.example/", Gateway: "https://gateway.example/"}
	}
	if made.MinBatch == 0 {
		_, answers, _ := of.Expected(o.Round)
		made.MinBatch = max(uint64(answers/float64(of.Slots())/2), recipe.MinBatchFloor)
		if sampled {
			made.MinBatch = max(made.MinBatch, recipe.SampledBatchFloor)
		}
	}
	r, err := account.New(made)
	if err != nil {
		return nil, fmt.Errorf("outlook: %w", err)
	}
	return r, nil
}
