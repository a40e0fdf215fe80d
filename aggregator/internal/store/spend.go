package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/starling-agg/starling/dap"
)

// A Mark stands for what a credential shows in one round (arc.Verifier.Mark). Zero is none.
type Mark [16]byte

// A Spend is what a report shows: it is to be the one report of its device in a round.
type Spend struct {
	Round  uint64
	Mark   Mark
	Report dap.ReportID
}

// Spending is the protection against second contributions: in each round of a task a mark
// belongs to one report.
type Spending interface {
	// Spend gives each mark of a round to the report that shows it, for good, unless another
	// has it, and says which are another's; of two in the list the first has it. It is called
	// for reports that hold, before anybody is told that they do: a leader before it asks the
	// helper, a helper before it answers. So no two reports with one mark are ever counted,
	// whichever of the two the peer would take. The same report has its mark again. Of a
	// round that ForgetRound has ended all marks are another's. It fails with [ErrMarks], and
	// changes nothing, where the marks of a round of the list are not what was written, as far
	// as it has to look at them.
	Spend(ctx context.Context, task dap.TaskID, list []Spend) (spent []bool, err error)
	// Spent counts the marks of a task's rounds, from the first to the last: those that have
	// any, in the order of time, and those too that ForgetRound has erased.
	Spent(ctx context.Context, task dap.TaskID, first, last uint64) ([]Spent, error)
	// SpentRounds lists the rounds of a task of which there are marks, ascending, n at most.
	SpentRounds(ctx context.Context, task dap.TaskID, n int) ([]uint64, error)
	// ForgetRound ends a round of which no report can be taken any more, if it has marks, and
	// erases n at most of the files or rows that they lie in; more says that there may be
	// others.
	ForgetRound(ctx context.Context, task dap.TaskID, round uint64, n int) (more bool, err error)
}

// Spent is how many marks a round has.
type Spent struct{ Round, Marks uint64 }

// LastRound is after all rounds that have marks.
const LastRound = math.MaxInt64

// Ascending is the order of a list by round and mark, in which engines take it; what comes
// first of the same stays first. It refuses a round beyond 63 bits, and a mark that is none.
func Ascending(list []Spend) ([]int, error) {
	order := make([]int, len(list))
	for i := range list {
		if order[i] = i; list[i].Round > math.MaxInt64 || list[i].Mark == (Mark{}) {
			return nil, errors.New("store: spend: no such round, or no mark")
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := &list[i], &list[j]
		return cmp.Or(cmp.Compare(a.Round, b.Round), bytes.Compare(a.Mark[:], b.Mark[:]))
	})
	return order, nil
}
