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
	sums, counts := make([]uint64, p.entries), make([]uint64, p.entries)
	for i, m := range messages {
		if uint64(m.Entry) >= uint64(p.entries) || m.Residue >= p.modulus {
			return nil, &MessageError{i, m}
		}
		sums[m.Entry] = p.add(sums[m.Entry], m.Residue)
		counts[m.Entry]++
	}
	estimates := make([]Estimate, p.entries)
	for entry, z := range sums {
		if want := p.users * uint64(p.messages); counts[entry] != want {
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
		return Estimate{Sum: float64(z) / float64(p.precision)}
	case z <= 2*reach:
		return Estimate{Sum: float64(p.users)}
	default:
		return Estimate{Unlike: z < p.modulus-reach}
	}
}
