package pine

import (
	"crypto/rand"
	"fmt"
	"math"
	"time"

	"github.com/starling-agg/starling/vdaf"
)

// A Speed is what reports cost on one machine. It is immutable.
type Speed struct{ by map[Field]timing }

// speedDims are the dimensions that Calibrate measures; costs are taken to lie on the
// line through both. Vectors that fit no cache take somewhat more.
var speedDims = [2]int{64, 8192}

// repeats is how many reports of a kind are measured.
const repeats = 5

// Calibrate measures reports of two lengths over each field, each five times of which the
// shortest counts, in less than half a second. clock is a stopwatch: other work that
// holds up all five shows.
func Calibrate(clock func() time.Duration) (*Speed, error) {
	s := &Speed{by: map[Field]timing{}}
	for f := range fields {
		var at [2][3]float64
		for i, d := range speedDims {
			var err error
			if at[i], err = measure(f, d, clock); err != nil {
				return nil, fmt.Errorf("pine: calibrating: %w", err)
			}
		}
		through := func(role int) line {
			d := [2]float64{float64(speedDims[0]), float64(speedDims[1])}
			each := max(0, (at[1][role]-at[0][role])/(d[1]-d[0]))
			return line{max(0, at[0][role]-each*d[0]), each}
		}
		s.by[f] = timing{through(0), through(1), through(2)}
	}
	return s, nil
}

// measure returns the least seconds of client, leader and helper over some reports.
func measure(f Field, dim int, clock func() time.Duration) (least [3]float64, err error) {
	v, err := New(Params{Field: f, Dimension: dim, FracBits: 15, Norm: 1})
	if err != nil {
		return least, err
	}
	x := make([]float64, dim)
	for i := range x {
		x[i] = math.Sin(float64(i)) / math.Sqrt(float64(dim))
	}
	for i := range least {
		least[i] = math.Inf(1)
	}
	var key [vdaf.VerifyKeySize]byte
	var nonce [vdaf.NonceSize]byte
	rand.Read(nonce[:])
	states := [2]vdaf.State{v.NewState(1), v.NewState(1)}
	out, errs := make([]byte, v.Sizes().VerifierShare), make([]error, 1)
	for range repeats {
		begun := clock()
		lap := func(role int) {
			now := clock()
			least[role] = min(least[role], (now - begun).Seconds())
			begun = now
		}
		e, err := Encode(v, x, Encoding{Clip: true, Randomized: true})
		if err != nil {
			return least, err
		}
		shares, err := v.ShardIntegers(nil, e, &nonce)
		if err != nil {
			return least, err
		}
		lap(0)
		for agg, state := range states {
			in := vdaf.Reports{Nonces: [][vdaf.NonceSize]byte{nonce}, Public: [][]byte{shares.Public}, Inputs: [][]byte{shares.Inputs[agg]}}
			v.VerifyInit(state, &key, nil, agg, &in, out, errs)
			lap(1 + agg)
		}
		if errs[0] != nil {
			return least, errs[0]
		}
	}
	return least, nil
}

// Plan is [Plan] with the seconds of this machine.
func (s *Speed) Plan(p Params) (*Cost, error) {
	c, err := Plan(p)
	if err == nil {
		c.take(s.by[c.Params.Field])
	}
	return c, err
}

// take fills in the seconds.
func (c *Cost) take(t timing) {
	d := float64(c.Params.Dimension)
	c.ClientSeconds, c.LeaderSeconds, c.HelperSeconds = t.client.at(d), t.leader.at(d), t.helper.at(d)
}
