package cloak

import (
	"crypto/rand"
	"fmt"
	"io"
	"math"
	"math/bits"

	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/internal/outward"
)

// Limits of Options.
const (
	maxUsers     = 1 << 32
	maxPrecision = 1 << 32
	maxEntries   = 1 << 20
	maxEpsilon   = 20
	minDelta     = 1e-30
	// maxModulus leaves room for the sum of two residues in 63 bits.
	maxModulus = 1 << 62
	// minMessages and maxMessages are the ends of the search for parameters.
	minMessages, maxMessages = 3, 512
)

// Options are what a protocol is to compute and to guarantee.
type Options struct {
	// Users is n, how many users send messages: 2 to 2^32. Required.
	Users uint64
	// Honest is how many of them are sure to follow the protocol and to tell nobody what
	// they draw: 2 to Users. Users if zero.
	Honest uint64
	// Precision is k: values are rounded at random to multiples of 1/k, without a bias. 1
	// to 2^32. Required.
	Precision uint64
	// Entries is how many sums are computed, each of one value of every user: 1 to 2^20,
	// 1 if zero. Epsilon and Delta are for all of them together.
	Entries int
	// Changed is in how many entries at most the values that one user may have differ: 1 to
	// Entries, 2 of one that counts in one of many. Entries if zero.
	Changed int
	// Moved is by how much these differ at most, added up over the entries, in units of
	// 1/Precision: 1 to Changed times Precision, which it is if zero. Values have to keep to
	// it: [Modern] adds no noise for more.
	Moved uint64
	// Block is how many entries one message is for: 1 to Entries, 1 if zero. A message of
	// more entries is longer and hides less by itself, so that there are more of a block;
	// of one entry there are fewer by far. For [Modern] alone.
	Block int
	// Epsilon and Delta are the guarantee: above 0 and at most 20, and 10^-30 to below 1.
	// Required.
	Epsilon, Delta float64
	// Messages is m, how many messages a user sends for one block, 3 to 512; the least that
	// gives the guarantee if zero. A number that does not give it is refused. Users and
	// analyzer who are told Messages and Modulus need not search alike.
	Messages int
	// Modulus is N, odd, above 3 times Users times Precision and below 2^62; the least that
	// gives the guarantee with Messages if zero.
	Modulus uint64
}

// A RangeError says which option or argument is outside its range.
type RangeError struct {
	Parameter string
	Value     float64
	Want      string
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("cloak: %s is %v, want %s", e.Parameter, e.Value, e.Want)
}

func (o *Options) setDefaults() {
	if o.Honest == 0 {
		o.Honest = o.Users
	}
	if o.Entries == 0 {
		o.Entries = 1
	}
	if o.Changed == 0 {
		o.Changed = o.Entries
	}
	if o.Moved == 0 {
		o.Moved = uint64(o.Changed) * o.Precision
	}
	if o.Block == 0 {
		o.Block = 1
	}
}

// Validate returns a *RangeError if a field is outside its range.
func (o Options) Validate() error {
	o.setDefaults()
	switch {
	case o.Users < 2 || o.Users > maxUsers:
		return &RangeError{"the number of users", float64(o.Users), "2 to 2^32"}
	case o.Honest < 2 || o.Honest > o.Users:
		return &RangeError{"the number of honest users", float64(o.Honest), "2 to the number of users"}
	case o.Precision < 1 || o.Precision > maxPrecision:
		return &RangeError{"the precision", float64(o.Precision), "1 to 2^32"}
	case o.Entries < 1 || o.Entries > maxEntries:
		return &RangeError{"the number of entries", float64(o.Entries), "1 to 2^20"}
	case o.Changed < 1 || o.Changed > o.Entries:
		return &RangeError{"the number of entries that change", float64(o.Changed), "1 to the number of entries"}
	case o.Moved < 1 || o.Moved > uint64(o.Changed)*o.Precision:
		return &RangeError{"what the values of a user move", float64(o.Moved), "1 to the precision times the entries that change"}
	case o.Block < 1 || o.Block > o.Entries:
		return &RangeError{"the number of entries of a message", float64(o.Block), "1 to the number of entries"}
	case !(o.Epsilon > 0 && o.Epsilon <= maxEpsilon):
		return &RangeError{"epsilon", o.Epsilon, "above 0, at most 20"}
	case !(o.Delta >= minDelta && o.Delta < 1):
		return &RangeError{"delta", o.Delta, "10^-30 to below 1"}
	}
	hi, most := bits.Mul64(o.Users, 3*o.Precision)
	switch {
	case hi != 0 || most >= maxModulus:
		return &RangeError{"users times precision", float64(o.Users) * float64(o.Precision), "at most 2^62/3"}
	case o.Messages != 0 && (o.Messages < minMessages || o.Messages > maxMessages):
		return &RangeError{"the number of messages", float64(o.Messages), "3 to 512"}
	case o.Modulus != 0 && (o.Modulus <= most || o.Modulus >= maxModulus || o.Modulus%2 == 0):
		return &RangeError{"the modulus", float64(o.Modulus), "odd, above 3 times users times precision and below 2^62"}
	}
	return nil
}

// counts are the numbers of messages that are tried, from first to last.
func (o *Options) counts() (first, last int) {
	if o.Messages != 0 {
		return o.Messages, o.Messages
	}
	return minMessages, maxMessages
}

// blocks is how many there are.
func (o *Options) blocks() int { return (o.Entries + o.Block - 1) / o.Block }

// share is a part of epsilon or delta for each of some blocks, by composition.
func share(x float64, blocks int) float64 {
	if blocks == 1 {
		return x
	}
	return outward.Down(x / float64(blocks))
}

// scale is a fraction t/s that is at least factor moved/epsilon, and hardly more: the scale
// of noise that hides factor^-1 of epsilon of values that move as much in all.
func (o *Options) scale(factor, moved uint64) (t, s uint64, err error) {
	hi, k := bits.Mul64(factor, moved)
	shift := min(60-bits.Len64(k), 52)
	if hi == 0 && shift >= 0 {
		s = uint64(math.Ldexp(o.Epsilon, shift))
	}
	if s == 0 || k<<shift/s >= noise.MaxLaplaceScale {
		return 0, 0, &RangeError{"the scale of the noise", float64(factor) * float64(moved) / o.Epsilon, "at most 2^40"}
	}
	return k << shift, s, nil
}

// Params are the public parameters of one protocol, which all users and the analyzer
// share. Only the constructors make them. They are safe for concurrent use.
type Params struct {
	users, precision, modulus uint64
	entries, messages, block  int

	// Users add noise with probability rate 2^-64 each, or always where rate is 0.
	noise noise.Sampler
	rate  uint64
	src   io.Reader
}

// newParams has no noise and no modulus yet.
func newParams(o Options) *Params {
	return &Params{users: o.Users, precision: o.Precision, entries: o.Entries, block: o.Block, noise: noise.Zero{}, src: rand.Reader}
}

// reach is n k, the largest sum of an entry in units of 1/k.
func (p *Params) reach() uint64 { return p.users * p.precision }

// roomy is the least odd modulus that algorithm 2 can read: above 3 n k.
func (p *Params) roomy() uint64 { return (3*p.reach() + 1) | 1 }

// Messages is m, how many messages a user sends for one block.
func (p *Params) Messages() int { return p.messages }

// Blocks is how many blocks of entries there are, each with messages of its own.
func (p *Params) Blocks() int { return (p.entries + p.block - 1) / p.block }

// Block are the entries of a block, from one to the one before another.
func (p *Params) Block(i int) (from, to int) {
	return i * p.block, min((i+1)*p.block, p.entries)
}

// Modulus is N, which is odd and above 3 n k; residues are below it.
func (p *Params) Modulus() uint64 { return p.modulus }

// RMS bounds the root of the mean squared error of the estimate of one entry's sum: that
// of noise and rounding, where all users follow the protocol. The sum is between 0 and n.
func (p *Params) RMS() float64 {
	n, k := float64(p.users), float64(p.precision)
	return outward.Up(math.Sqrt(n*(p.Variance()+0.25)) / k)
}

// Variance is that of the noise of one user in one entry, in units of 1/k squared, without
// rounding.
func (p *Params) Variance() float64 {
	rate := 1.0
	if p.rate != 0 {
		rate = float64(p.rate) * 0x1p-64
	}
	return rate * p.noise.Variance()
}

// Unlike is the probability that a wrong sum which is uniformly random shows as one:
// (N-3nk)/N, as sums and their noise are within nk of 0 to nk. See [Estimate].
func (p *Params) Unlike() float64 {
	return float64(p.modulus-3*p.reach()) / float64(p.modulus)
}
