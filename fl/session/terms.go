package session

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/starling-agg/starling/internal/wire"
)

// Bounds of [Terms].
const (
	MaxTensors    = 1024
	MaxTensorName = 128     // bytes
	MaxRank       = 8       // dimensions of a tensor
	MaxDimension  = 1 << 20 // parameters of a model
	MaxRounds     = 1 << 20
	MaxLocalSteps = 1 << 16
	// MaxTerms is the length of the longest terms, in bytes.
	MaxTerms = 1<<8 + MaxTensors*(1+MaxTensorName+1+4*MaxRank)
	// Norms are from MinNorm to MaxNorm, so that scaling never overflows.
	MinNorm = 1e-12
	MaxNorm = 1e12
)

// Errors of reading and checking; each wraps the reason.
var (
	ErrTerms        = errors.New("session: bad terms")
	ErrSession      = errors.New("session: bad session")
	ErrModel        = errors.New("session: bad model")
	ErrAnnouncement = errors.New("session: bad announcement")
)

// A Tensor is a named part of a model's flat vector of parameters, in row-major order.
type Tensor struct {
	Name  string   // 1 to MaxTensorName printable bytes, no other tensor's
	Shape []uint32 // sizes, each at least 1; none for a single number
}

// Size is how many parameters the tensor has; over MaxDimension where they are more.
func (t Tensor) Size() int {
	n := uint64(1)
	for _, d := range t.Shape {
		if n *= uint64(d); n > MaxDimension {
			return MaxDimension + 1
		}
	}
	return int(n)
}

// Algorithm is what devices compute.
type Algorithm uint8

const (
	// FedSGD is one gradient of the loss of a device's data.
	FedSGD Algorithm = 1
	// FedAvg is the model minus what it becomes by LocalSteps steps of rate LocalRate, so
	// that server and sign are as for a gradient.
	FedAvg Algorithm = 2
)

func (a Algorithm) String() string {
	switch a {
	case FedSGD:
		return "fedsgd"
	case FedAvg:
		return "fedavg"
	}
	return fmt.Sprintf("algorithm %d", uint8(a))
}

// ParseAlgorithm reads fedsgd or fedavg.
func ParseAlgorithm(s string) (Algorithm, error) {
	for a := FedSGD; a <= FedAvg; a++ {
		if a.String() == s {
			return a, nil
		}
	}
	return 0, fmt.Errorf("%w: algorithm %q, want fedsgd or fedavg", ErrTerms, s)
}

// Clipping is the norm to which devices scale longer updates down.
type Clipping struct {
	// Norm is that of the first model; of all of them where it is not Adaptive.
	Norm float64
	// Adaptive moves the norm to where Quantile of the updates are no longer than it
	// (Andrew, Thakkar, McMahan and Ramaswamy, Differentially Private Learning with
	// Adaptive Clipping, 2021): nil keeps it. The vector then has one coordinate more, the
	// last: see [Terms.Vector].
	Adaptive *Adaptive
}

// Adaptive is how a clipping norm moves: C' = C exp(-Rate (b - Quantile)) where b is the
// share of updates of norm C at most, as it was released.
type Adaptive struct {
	Quantile float64 // above 0, below 1; 0.5 usually
	Rate     float64 // above 0, at most 1; 0.2 usually
	// Weight is the share of the recipe's bound that the bit takes: above 0, below 1. The
	// update has the square root of 1 - Weight^2 of it. 0.1 costs the update 0.5 %.
	Weight float64
}

// Terms are what devices must know of a training beside the recipe. Their bytes are
//
//	uint8 version = 1; Tensor layout<1..2^24-1>;
//	uint8 algorithm; uint32 local_steps; float64 local_rate;
//	float64 norm; uint8 adaptive; (float64 quantile, rate, weight) if adaptive;
//	uint32 rounds; uint64 first_round
//
//	Tensor: struct { opaque name<1..2^8-1>; uint8 rank; uint32 shape[rank]; }
//
// where float64 is the bits of an IEEE 754 binary64, and their name is the SHA-256 of
// "starling training terms v1" and the bytes.
type Terms struct {
	Layout    []Tensor
	Algorithm Algorithm
	// LocalSteps and LocalRate are advice to whoever computes updates: 1 and 0 for FedSGD.
	LocalSteps uint32
	LocalRate  float64
	Clipping   Clipping
	// Rounds is how many are announced at most.
	Rounds uint32
	// FirstRound is the number of the first that may be announced; 0 is any.
	FirstRound uint64
}

// termsDomain opens the hash that names terms.
const termsDomain = "starling training terms v1"

// Dimension is how many parameters a model has.
func (t *Terms) Dimension() int {
	n := 0
	for _, x := range t.Layout {
		n = min(n+x.Size(), MaxDimension+1)
	}
	return n
}

// Entries is the length of the vector that a device reports: Dimension, and one more for
// adaptive clipping.
func (t *Terms) Entries() int {
	if t.Clipping.Adaptive != nil {
		return t.Dimension() + 1
	}
	return t.Dimension()
}

// Validate says what is wrong with terms. Errors wrap [ErrTerms].
func (t *Terms) Validate() error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrTerms}, args...)...)
	}
	if len(t.Layout) < 1 || len(t.Layout) > MaxTensors {
		return wrong("%d tensors, want 1 to %d", len(t.Layout), MaxTensors)
	}
	seen := make(map[string]bool)
	for i, x := range t.Layout {
		switch n := x.Size(); {
		case len(x.Name) < 1 || len(x.Name) > MaxTensorName || !utf8.ValidString(x.Name) || strings.ContainsFunc(x.Name, func(c rune) bool { return !unicode.IsPrint(c) }):
			return wrong("tensor %d: name %q, want 1 to %d bytes that can be shown", i, x.Name, MaxTensorName)
		case seen[x.Name]:
			return wrong("two tensors are called %q", x.Name)
		case len(x.Shape) > MaxRank:
			return wrong("tensor %q has %d dimensions, want at most %d", x.Name, len(x.Shape), MaxRank)
		case n < 1:
			return wrong("tensor %q has a dimension of 0", x.Name)
		}
		seen[x.Name] = true
	}
	if n := t.Dimension(); n > MaxDimension {
		return wrong("more than %d parameters", MaxDimension)
	}
	within := func(x, least, most float64) bool { return x >= least && x <= most }
	switch t.Algorithm {
	case FedSGD:
		if t.LocalSteps != 1 || math.Float64bits(t.LocalRate) != 0 {
			return wrong("%v takes 1 local step, of rate 0", t.Algorithm)
		}
	case FedAvg:
		if t.LocalSteps < 1 || t.LocalSteps > MaxLocalSteps {
			return wrong("%d local steps, want 1 to %d", t.LocalSteps, MaxLocalSteps)
		}
		if !within(t.LocalRate, MinNorm, MaxNorm) {
			return wrong("local rate %v, want above 0", t.LocalRate)
		}
	default:
		return wrong("no %v", t.Algorithm)
	}
	if !within(t.Clipping.Norm, MinNorm, MaxNorm) {
		return wrong("clipping norm %v, want %v to %v", t.Clipping.Norm, MinNorm, MaxNorm)
	}
	if a := t.Clipping.Adaptive; a != nil && !(a.Quantile > 0 && a.Quantile < 1 && a.Rate > 0 && a.Rate <= 1 && a.Weight > 0 && a.Weight < 1) {
		return wrong("adaptive clipping: quantile %v and weight %v, want between 0 and 1, and rate %v, want above 0 and at most 1", a.Quantile, a.Weight, a.Rate)
	}
	if t.Rounds < 1 || t.Rounds > MaxRounds {
		return wrong("%d rounds, want 1 to %d", t.Rounds, MaxRounds)
	}
	return nil
}

func float64At(c *wire.Coder, v *float64, what string) {
	n := math.Float64bits(*v)
	if c.Uint64(&n, what); !c.Writing() {
		*v = math.Float64frombits(n)
	}
}

func (t *Terms) code(c *wire.Coder) {
	c.Const("\x01", "is of another version")
	c.Nested24("layout", func() {
		wire.Items(c, &t.Layout, func(i int, x *Tensor) {
			c.Check(i < MaxTensors, "too many tensors")
			c.Text8(&x.Name, "name")
			rank := uint8(len(x.Shape))
			c.Uint8(&rank, "rank")
			c.Check(rank <= MaxRank && len(x.Shape) <= MaxRank, "too many dimensions")
			if !c.Writing() && c.Err() == nil && rank > 0 {
				x.Shape = make([]uint32, rank)
			}
			for j := range x.Shape {
				c.Uint32(&x.Shape[j], "shape")
			}
		})
	})
	c.Uint8((*uint8)(&t.Algorithm), "algorithm")
	c.Uint32(&t.LocalSteps, "local steps")
	float64At(c, &t.LocalRate, "local rate")
	float64At(c, &t.Clipping.Norm, "clipping norm")
	adaptive := t.Clipping.Adaptive != nil
	if c.Bool(&adaptive, "adaptive"); adaptive && !c.Writing() {
		t.Clipping.Adaptive = new(Adaptive)
	}
	if a := t.Clipping.Adaptive; a != nil {
		float64At(c, &a.Quantile, "quantile")
		float64At(c, &a.Rate, "rate")
		float64At(c, &a.Weight, "weight")
	}
	c.Uint32(&t.Rounds, "rounds")
	c.Uint64(&t.FirstRound, "first round")
	if c.Err() == nil {
		if err := t.Validate(); err != nil {
			c.Abort(err)
		}
	}
}

// Append appends the bytes of valid terms.
func (t *Terms) Append(dst []byte) ([]byte, error) { return wire.Append(dst, ErrTerms, t.code) }

// Hash names valid terms; a recipe's training extension holds it.
func (t *Terms) Hash() ([sha256.Size]byte, error) {
	b, err := t.Append([]byte(termsDomain))
	if err != nil {
		return [sha256.Size]byte{}, err
	}
	return sha256.Sum256(b), nil
}
