package cloak

import (
	"fmt"
	"slices"
)

// An Estimate is what the analyzer learns of one entry.
type Estimate struct {
	// Sum is the estimated sum of all users' values: 0 to n, a multiple of 1/k.
	Sum float64
	// Unlike says that no sum with its noise is where this one was found, but for noise
	// of more than nk: a user lied about a residue. Algorithm 2 still returns a sum,
	// which means nothing then. A lie may as well go unseen.
	Unlike bool
	// Units is the sum in units of 1/k without a bias, noise and all: -nk to 2nk, and 0
	// where it is Unlike.
	Units int64
}

// A CountError says that a block has not as many messages as all users send: some are
// missing, or too many, and its sums would be random.
type CountError struct {
	Block     int
	Got, Want uint64
}

func (e *CountError) Error() string {
	return fmt.Sprintf("cloak: block %d has %d messages, want %d", e.Block, e.Got, e.Want)
}

// A MessageError says which message no user sends.
type MessageError struct {
	Index   int // in what was analyzed
	Message Message
}

func (e *MessageError) Error() string {
	return fmt.Sprintf("cloak: message %d is of no block, or its residues are not as many as the block has entries and below the modulus: %d, %d",
		e.Index, e.Message.Block, e.Message.Residues)
}

// Analyze is algorithm 2: it returns an estimate for each entry, of the messages of all
// users in any order. A message that no user sends is a *MessageError, and one too few or
// too many a *CountError.
func (p *Params) Analyze(messages []Message) ([]Estimate, error) {
	return p.analyze(messages, func(uint64) uint64 { return p.users })
}

// AnalyzeSome is Analyze of the messages of as many users as there are messages of, up to
// Users: their sum modulo N is right, too. The *CountError of too many messages, or of some
// that are no whole number of users' or not the same for each block, says what the next
// smaller number of users sends.
func (p *Params) AnalyzeSome(messages []Message) ([]Estimate, uint64, error) {
	var users uint64
	list, err := p.analyze(messages, func(count uint64) uint64 {
		users = min(p.users, count/uint64(p.messages))
		return users
	})
	return list, users, err
}

// analyze takes the number of users from that of the first block's messages.
func (p *Params) analyze(messages []Message, of func(count uint64) (users uint64)) ([]Estimate, error) {
	sums, counts := make([]uint64, p.entries), make([]uint64, p.Blocks())
	for i, m := range messages {
		if uint64(m.Block) >= uint64(len(counts)) {
			return nil, &MessageError{i, m}
		}
		from, to := p.Block(int(m.Block))
		if len(m.Residues) != to-from || slices.ContainsFunc(m.Residues, func(x uint64) bool { return x >= p.modulus }) {
			return nil, &MessageError{i, m}
		}
		for j, x := range m.Residues {
			sums[from+j] = p.add(sums[from+j], x)
		}
		counts[m.Block]++
	}
	want := of(counts[0]) * uint64(p.messages)
	for block, n := range counts {
		if n != want {
			return nil, &CountError{block, n, want}
		}
	}
	estimates := make([]Estimate, p.entries)
	for entry, z := range sums {
		estimates[entry] = p.estimate(z)
	}
	return estimates, nil
}

// estimate reads a sum modulo N: up to nk as it is, up to 2nk as n, and the rest, which
// is below 0, as 0.
func (p *Params) estimate(z uint64) Estimate {
	switch reach := p.reach(); {
	case z <= reach:
		return Estimate{Sum: float64(z) / float64(p.precision), Units: int64(z)}
	case z <= 2*reach:
		return Estimate{Sum: float64(p.users), Units: int64(z)}
	case z < p.modulus-reach:
		return Estimate{Unlike: true}
	default:
		return Estimate{Units: -int64(p.modulus - z)}
	}
}
