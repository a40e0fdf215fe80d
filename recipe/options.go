package recipe

import (
	"errors"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// Options make a recipe whose claim is computed, for [New].
type Options struct {
	// Name (required) and Description tell people what is asked.
	Name, Description string
	// Population says who is asked; optional.
	Population *Population
	// Query is required. A zero chunk length becomes the one that makes reports shortest.
	Query Query
	// Leader and Helper are base URLs; required.
	Leader, Helper string
	// BatchMode is dap.TimeInterval when zero.
	BatchMode dap.BatchMode
	// MinBatch is B; required.
	MinBatch uint64
	// TimePrecision in seconds; one hour when zero.
	TimePrecision dap.TimePrecision
	// Window is no limit when nil.
	Window Window

	// Noise is what the servers add. When nil, it is calibrated to Epsilon and Kind, or there is none if Epsilon is
	// zero too.
	Noise Noise
	// Epsilon is the wanted total loss when Noise is nil, and otherwise the claim; when it is zero the claim is what is
	// computed, rounded up to four digits.
	Epsilon Decimal
	// Kind of calibrated noise; GaussianNoise when empty.
	Kind NoiseKind
	// Delta of the claim; 10^-9 when zero.
	Delta Decimal
	// Rounds is how many batches may hold one report of the same person; 1 when zero.
	Rounds uint32
	// HonestServers that the claim needs; 1 when zero.
	HonestServers uint8
}

// New makes a valid recipe, or says all that is wrong with it as [Recipe.Validate] does.
func New(o Options) (*Recipe, error) {
	if o.BatchMode == 0 {
		o.BatchMode = dap.TimeInterval
	}
	if o.TimePrecision == 0 {
		o.TimePrecision = 3600
	}
	if o.Window == nil {
		o.Window = NoWindow{}
	}
	if o.Delta == (Decimal{}) {
		o.Delta = Decimal{1, 9}
	}
	if o.Rounds == 0 {
		o.Rounds = 1
	}
	if o.HonestServers == 0 {
		o.HonestServers = 1
	}
	if o.Kind == "" {
		o.Kind = GaussianNoise
	}
	r := &Recipe{
		Name:          o.Name,
		Description:   o.Description,
		Query:         withChunk(o.Query),
		Randomizer:    NoRandomizer{},
		Participation: Always{},
		Path:          TwoServer{Leader: o.Leader, Helper: o.Helper, BatchMode: o.BatchMode},
		Noise:         NoNoise{},
		Claim:         NoClaim{},
		MinBatch:      o.MinBatch,
		TimePrecision: o.TimePrecision,
		Window:        o.Window,
		Population:    o.Population,
	}
	// The accountant is asked only about a recipe that is sound as it stands.
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if o.Noise == nil && o.Epsilon != (Decimal{}) {
		n, err := Calibrate(r.Query, o.Kind, o.Epsilon, o.Delta, o.Rounds)
		if err != nil {
			return nil, err
		}
		o.Noise = n
	}
	if o.Noise == nil || o.Noise == (NoNoise{}) {
		if o.Epsilon != (Decimal{}) {
			return nil, errors.New("recipe: epsilon is claimed without noise")
		}
		return r, nil
	}
	r.Noise = o.Noise
	claim := ApproxDP{
		Epsilon: o.Epsilon, Delta: o.Delta, Neighbours: accountant.ReplaceOne, HonestServers: o.HonestServers, Rounds: o.Rounds,
	}
	if claim.Epsilon == (Decimal{}) {
		// Any positive claim lets the rest be checked; then the computed one takes its place.
		claim.Epsilon = Decimal{1, 0}
		r.Claim = claim
		err := r.Validate()
		if refused := new(ClaimError); err != nil && !errors.As(err, &refused) {
			return nil, err
		}
		g, _ := r.Guarantee()
		if claim.Epsilon, err = DecimalAbove(g.Epsilon, 4); err != nil {
			return nil, err
		}
	}
	r.Claim = claim
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return r, nil
}

// withChunk fills in the chunk length that makes reports shortest.
func withChunk(q Query) Query {
	switch q := q.(type) {
	case Histogram:
		if q.Chunk == 0 {
			q.Chunk = optimalChunk(uint64(q.Length))
		}
		return q
	case Multihot:
		if q.Chunk == 0 {
			q.Chunk = optimalChunk(q.elements())
		}
		return q
	case SumVec:
		if q.Chunk == 0 {
			q.Chunk = optimalChunk(q.elements())
		}
		return q
	}
	return q
}

func optimalChunk(elements uint64) uint32 {
	return uint32(prio3.OptimalChunk(int(min(elements, MaxElements))))
}
