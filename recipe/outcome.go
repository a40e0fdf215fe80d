package recipe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// An Outcome is what an analyzer says of the messages of a round: a tally, or why there is
// none and never will be.
type Outcome struct {
	Tally   *Tally  `json:"tally,omitempty"`
	Problem Problem `json:"problem,omitempty"`
}

// A Problem is why a round has no result; a closed set.
type Problem string

// The problems.
const (
	// MessagesMissing: contributions lost some of their messages on the way, and sums of
	// shares are wrong.
	MessagesMissing Problem = "missing"
	// MessagesUnusable: as of *[MessagesError].
	MessagesUnusable Problem = "unusable"
)

// ErrOutcome: not an outcome, or not one of the recipe.
var ErrOutcome = errors.New("recipe: not an outcome of the recipe")

// Splits says whether a contribution is several messages that mean something together only,
// so that one that is missing ruins the sum of all.
func (m *Messenger) Splits() bool { return m.messages > 1 }

// Outcome adds up the messages of a batch, of which some are missing of contributions that
// count.
func (m *Messenger) Outcome(messages [][]byte, missing uint64) Outcome {
	if missing > 0 && m.Splits() {
		return Outcome{Problem: MessagesMissing}
	}
	t, err := m.Tally(messages)
	if err != nil {
		return Outcome{Problem: MessagesUnusable}
	}
	return Outcome{Tally: &t}
}

// Append appends the one encoding, JSON without spaces.
func (o Outcome) Append(dst []byte) ([]byte, error) {
	b, err := json.Marshal(o)
	return append(dst, b...), err
}

// ReadOutcome reads the outcome of a batch of a number of contributions, of whose messages the
// tallied ones were added up, and holds it to the recipe. It fails with [ErrOutcome].
func (m *Messenger) ReadOutcome(b []byte, contributions, tallied uint64) (Outcome, error) {
	var o Outcome
	if err := json.Unmarshal(b, &o); err != nil {
		return Outcome{}, fmt.Errorf("%w: %w", ErrOutcome, err)
	}
	again, err := o.Append(nil)
	if err != nil || !bytes.Equal(again, b) {
		return Outcome{}, fmt.Errorf("%w: written otherwise", ErrOutcome)
	}
	t := o.Tally
	if (t == nil) == (o.Problem == "") || t == nil && o.Problem != MessagesMissing && o.Problem != MessagesUnusable {
		return Outcome{}, fmt.Errorf("%w: neither a tally nor a problem", ErrOutcome)
	}
	if t == nil {
		return o, nil
	}
	fits := t.Reports == contributions && t.Rejected <= tallied
	if !m.Splits() { // a message that is none counts for nothing
		fits = t.Rejected <= tallied && t.Reports == tallied-t.Rejected
	}
	if len(t.Sums) != m.sums || !fits || t.Reports < m.least {
		return Outcome{}, fmt.Errorf("%w: %d sums of %d reports, %d rejected, from %d contributions of which %d messages came", ErrOutcome,
			len(t.Sums), t.Reports, t.Rejected, contributions, tallied)
	}
	return o, nil
}
