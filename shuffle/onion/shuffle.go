package onion

import (
	"fmt"
	"math"
	"time"

	"github.com/starling-agg/starling/signed"
)

// A Shuffle is what all parties of a recipe's path agree on; it follows from the recipe.
type Shuffle struct {
	Recipe [32]byte // its id
	// Messages, Size and the sizes of tokens are those of each round's [Shape].
	Messages, Size              int
	EnvelopeToken, MessageToken int
	// MinBatch is the least number of contributions that are handed on together; 2 or more.
	MinBatch uint64
	// Length is that of a round, in whole seconds: round n begins n lengths after 1970.
	Length time.Duration
	// Grace is how long after its end contributions of a round may still come: then it is
	// flushed. Whole seconds.
	Grace time.Duration
	// Last is the last round; 0: there is no last.
	Last uint64
	// Ahead is for how many rounds after the present one devices need keys; 0 for those that
	// contribute to the present one.
	Ahead int
	// Logged says that devices take keys from a transparency log, and from nowhere else.
	Logged bool
	// First, Second and Analyzer are the root keys of their owners. First and Second are
	// zero on the direct path.
	First, Second, Analyzer signed.PublicKey
}

// maxRound bounds the numbers of rounds, and maxSeconds their times, since 1970.
const (
	maxRound   = 1 << 39
	maxSeconds = 1 << 39
	maxLength  = 100 * 366 * 24 * time.Hour
)

// Direct says whether there are no hops.
func (s *Shuffle) Direct() bool { return s.First.IsZero() && s.Second.IsZero() }

// Validate fails with [ErrShape].
func (s *Shuffle) Validate() error {
	if err := s.Shape(0).Validate(); err != nil {
		return err
	}
	keys := []signed.PublicKey{s.First, s.Second, s.Analyzer}
	if s.Direct() {
		keys = keys[2:]
	}
	for i, k := range keys {
		if err := k.Validate(); err != nil {
			return fmt.Errorf("%w: %w", ErrShape, err)
		}
		for _, other := range keys[:i] {
			if k == other {
				return fmt.Errorf("%w: one owner plays two parties", ErrShape)
			}
		}
	}
	switch {
	case s.MinBatch < 2 || s.MinBatch > math.MaxUint32:
		return fmt.Errorf("%w: a batch of %d contributions at least; from 2 to 2^32-1", ErrShape, s.MinBatch)
	case s.Length < time.Second || s.Length > maxLength || s.Length%time.Second != 0:
		return fmt.Errorf("%w: rounds of %v; whole seconds, at most %v", ErrShape, s.Length, maxLength)
	case s.Grace < 0 || s.Grace > maxLength || s.Grace%time.Second != 0:
		return fmt.Errorf("%w: a grace of %v; whole seconds, at most %v", ErrShape, s.Grace, maxLength)
	case s.Last > maxRound:
		return fmt.Errorf("%w: round %d", ErrShape, s.Last)
	}
	return nil
}

// Shape is that of a round.
func (s *Shuffle) Shape(round uint64) Shape {
	return Shape{s.Recipe, round, s.Messages, s.Size, s.EnvelopeToken, s.MessageToken}
}

// Round is the number of the round in which a time lies.
func (s *Shuffle) Round(t time.Time) uint64 {
	return uint64(max(t.Unix(), 0)) / uint64(s.Length/time.Second)
}

// Begin is when a round begins.
func (s *Shuffle) Begin(round uint64) time.Time {
	seconds := uint64(s.Length / time.Second)
	return time.Unix(int64(min(round, maxSeconds/seconds)*seconds), 0).UTC()
}

// Flush is when a round is flushed: at its end and grace.
func (s *Shuffle) Flush(round uint64) time.Time { return s.Begin(round + 1).Add(s.Grace) }

// root is the key that vouches for a role.
func (s *Shuffle) root(r Role) signed.PublicKey {
	switch r {
	case First:
		return s.First
	case Second:
		return s.Second
	}
	return s.Analyzer
}
