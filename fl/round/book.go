package round

import (
	"fmt"

	"github.com/starling-agg/starling/fl/session"
)

// State is how far a round is.
type State uint8

// The states of a round.
const (
	Announced State = iota // its model is published, and nothing of it collected
	Collected              // its sum is there
	Skipped                // nothing is released of it
)

func (s State) String() string { return [...]string{"announced", "collected", "skipped"}[s] }

// Reason is why a round was skipped.
type Reason uint8

// The reasons.
const (
	TooFew      Reason = 1 // fewer reports than anything is released about
	Unavailable Reason = 2 // leader or helper gave no sum in time
)

func (r Reason) known() bool { return r == TooFew || r == Unavailable }

func (r Reason) String() string {
	switch r {
	case TooFew:
		return "too few reports"
	case Unavailable:
		return "no sum in time"
	}
	return ""
}

// A record is what is known of one round.
type record struct {
	session.Announcement
	State   State
	Reason  Reason
	Reports uint64
	sum     session.Hash
	stepped bool
}

// A book is what the journal says.
type book struct {
	session session.Hash
	created bool
	state   session.Hash // of parameters and optimizer
	batch   uint32
	rounds  []record
	stepped int // how many rounds, the first ones, the model was stepped with
}

func (b *book) at(index uint32) *record {
	if int(index) >= len(b.rounds) {
		return nil
	}
	return &b.rounds[index]
}

// last is the newest announcement.
func (b *book) last() *session.Announcement {
	if len(b.rounds) == 0 {
		return nil
	}
	return &b.rounds[len(b.rounds)-1].Announcement
}

// waiting is the first round of which nothing was collected; nil for none.
func (b *book) waiting() *record {
	for i := b.stepped; i < len(b.rounds); i++ {
		if b.rounds[i].State == Announced {
			return &b.rounds[i]
		}
	}
	return nil
}

// ready are the rounds of the next step, in order; none while one of them is missing. The
// last step of a training may be of fewer.
func (b *book) ready(all uint32) []record {
	end := min(b.stepped+int(b.batch), int(all))
	if b.stepped == end || len(b.rounds) < end {
		return nil
	}
	for _, r := range b.rounds[b.stepped:end] {
		if r.State == Announced {
			return nil
		}
	}
	return b.rounds[b.stepped:end]
}

// open is how many rounds were announced and not stepped with.
func (b *book) open() int { return len(b.rounds) - b.stepped }

// knows says whether an announcement is one of the journal's.
func (b *book) knows(a *session.Announcement) bool {
	r := b.at(a.Index)
	return r != nil && r.Announcement.Hash() == a.Hash()
}

// A PutBackError says that an announcement was published that the journal does not know:
// the journal is an older one, or somebody else has the controller's key.
type PutBackError struct {
	Where     string // where it was found
	Published session.Announcement
	Rounds    int // that the journal knows
}

func (e *PutBackError) Error() string {
	return fmt.Sprintf("round: %s has an announcement for round %d, step %d of the training, and the journal knows %d: it was put back to an older state, or another "+
		"process has the controller's key. Nothing is announced any more, for devices would be shown two models for one round", e.Where, e.Published.Round,
		e.Published.Index, e.Rounds)
}

// A ContradictionError says that leader and helper released two different sums of one
// round.
type ContradictionError struct{ Round uint64 }

func (e *ContradictionError) Error() string {
	return fmt.Sprintf("round: the sum of round %d is another than the one that was collected before: one of the servers lost its memory, or lies", e.Round)
}
