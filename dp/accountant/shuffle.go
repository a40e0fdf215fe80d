package accountant

import (
	"fmt"

	"github.com/starling-agg/starling/dp/amplify"
	"github.com/starling-agg/starling/dp/release"
)

// shuffled is a collection of N messages, each of one person, whose origins a shuffler
// hides. N counts honest messages, the person's own included. Package amplify has the
// theorems.
type shuffled struct {
	Message release.Message
	N       uint64
}

func (shuffled) event() {}

// premise returns what is known of one message, for a relation that it is about.
func (s shuffled) premise(n release.Neighbours) (release.Premise, error) {
	if s.Message == nil {
		return release.Premise{}, fmt.Errorf("%w: the messages are not stated", release.ErrParameter)
	}
	p, err := s.Message.Premise()
	if err != nil {
		return release.Premise{}, err
	}
	if !(p.Epsilon0 > 0 && p.Epsilon0 <= 50) {
		return release.Premise{}, parameter("epsilon0", p.Epsilon0, "above 0 and at most 50")
	}
	if s.N == 0 || s.N > maxCount {
		return release.Premise{}, parameter("number of reports", float64(s.N), "1 to 2*10^12")
	}
	if n != p.Neighbours {
		return release.Premise{}, fmt.Errorf("%w: shuffled reports of this randomizer for %v neighbours; ask about %v", release.ErrUnsupported, n, p.Neighbours)
	}
	return p, nil
}

// exact is the curve of one round.
func (s shuffled) exact(n release.Neighbours, count float64) (curve, string, error) {
	p, err := s.premise(n)
	if err != nil {
		return nil, "", err
	}
	if count != 1 {
		return nil, "", fmt.Errorf("%w: no formula for several shuffled rounds", release.ErrUnsupported)
	}
	c, err := amplify.Shuffle(s.Message, s.N)
	if err != nil {
		return nil, "", err
	}
	attained := p.Answers == 2 && n == release.ReplaceOne // the lower bound is that of binary responses
	return func(e float64) (lower, upper float64) {
		lower, upper = c.Bounds(e)
		if !attained {
			lower = 0
		}
		return lower, upper
	}, c.Theorem(), nil
}

func (s shuffled) dominating(n release.Neighbours) (dominance, error) {
	p, err := s.premise(n)
	if err != nil {
		return dominance{}, err
	}
	x := amplify.ShuffledPair(p, s.N)
	out := &atoms{loss: x.Loss, p: x.P, q: x.Q, pInf: x.PInf, qInf: x.QInf}
	out.sort()
	return dominance{pair: out, symmetric: true, slop: x.Slop, theorem: x.Theorem}, nil
}
