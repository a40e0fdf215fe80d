package cloak

import "fmt"

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

// A CountError says that an entry has not as many messages as all users send: some are
// missing, or too many, and the sum would be random.
type CountError struct {
	Entry     int
	Got, Want uint64
}

func (e *CountError) Error() string {
	return fmt.Sprintf("cloak: entry %d has %d messages, want %d", e.Entry, e.Got, e.Want)
}

// A MessageError says which message no user sends.
type MessageError struct {
	Index   int // in what was analyzed
	Message Message
}

func (e *MessageError) Error() string {
	return fmt.Sprintf("cloak: message %d is of no entry, or its residue is not below the modulus: %d, %d", e.Index, e.Message.Entry, e.Message.Residue)
}

// Analyze is algorithm 2: it returns an estimate for each entry, of the messages of all
// users in any order. A message that no user sends is a *MessageError, and one too few or
// too many a *CountError.
func (p *Params) Analyze(messages []Message) ([]Estimate, error) {
	return p.analyze(messages, func(uint64) uint64 { return p.users })
}

// AnalyzeSome is Analyze of the messages of as many users as there are messages of, up to
// Users: their sum modulo N is right, too. The *CountError of too many messages, or of some
// that are no whole number of users' or not the same for each entry, says what the next
// smaller number of users sends.
func (p *Params) AnalyzeSome(messages []Message) ([]Estimate, uint64, error) {
	var users uint64
	list, err := p.analyze(messages, func(count uint64) uint64 {
		users = min(p.users, count/uint64(p.messages))
		return users
	})
	return list, users, err
}

// analyze takes the number of users from that of the first entry's messages.
func (p *Params) analyze(messages []Message, of func(count uint64) (users uint64)) ([]Estimate, error) {
	sums, counts := make([]uint64, p.entries), make([]uint64, p.entries)
	for i, m := range messages {
		if uint64(m.Entry) >= uint64(p.entries) || m.Residue >= p.modulus {
			return nil, &MessageError{i, m}
		}
		sums[m.Entry] = p.add(sums[m.Entry], m.Residue)
		counts[m.Entry]++
	}
	estimates := make([]Estimate, p.entries)
	want := of(counts[0]) * uint64(p.messages)
	for entry, z := range sums {
		if counts[entry] != want {
			return nil, &CountError{entry, counts[entry], want}
		}
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
