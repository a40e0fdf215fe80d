// Package rounds stands between DAP's aggregation jobs, which may take any number of
// continuation steps (DAP-18 section 4.5.4), and the VDAF, which says how many rounds it
// needs. Leader and helper drive both ends of a job through one interface; Prio3 takes
// one round, and package aggregatortest makes VDAFs of more out of it.
//
// # What is kept between steps
//
// Nothing of a [Job]: verify state is never stored. A later step is computed again from
// the beginning, from the sealed reports and what the peer has said since, all of which
// is stored before the next message leaves. So a VDAF's steps must be functions of those
// alone, and a repetition sends the same bytes.
package rounds

import (
	"context"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/verify"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf"
)

// An Engine is a VDAF as aggregation jobs see it. Safe for concurrent use.
type Engine interface {
	// Rounds is how many answers the helper gives at most: 1 for Prio3, 2 for Poplar1.
	// With more than 1 leader and helper keep what they have said to each other until the
	// job is over.
	Rounds() int
	// Begin is step 0 of a job, in the role that prm names: the leader's first messages,
	// or what the helper makes of them. It fails with the context, and as
	// [verify.Pool.Begin]. The caller closes the job.
	Begin(ctx context.Context, prm verify.Params, reports []verify.Report) (Job, error)
}

// A Job is one aggregation job in memory, at one aggregator. Reports go by their index.
// Not safe for concurrent use.
type Job interface {
	// Verdicts has the verdict of each report so far; zero where it still holds. It is
	// only read.
	Verdicts() []dap.ReportError
	// Refuse settles report i by hand; it stays refused.
	Refuse(i int, code dap.ReportError)
	// Spends are what the reports without a verdict show, and their indices; Spent settles
	// one whose device has another report, and Uncredited counts why credentials were not
	// taken. See [verify.Batch].
	Spends() ([]store.Spend, []int)
	Spent(i int)
	Uncredited() map[aggregator.Uncredited]uint64
	// Message is the ping-pong message for the peer about report i, which has no verdict;
	// nil where nothing is left to say.
	Message(i int) []byte
	// Final says that the output shares are out. The helper commits then; the leader does
	// once it has nothing left to say.
	Final() bool
	// Take is the next step, with what the peer said of each report; zero for those that
	// it was not asked about, or left out, which must not be used any more.
	Take(said []Said) error
	// Fold adds up output shares, once the job is final; see [verify.Batch.Fold].
	Fold(keep []bool, bucket []int32, n int) ([]*vdaf.AggShare, error)
	// Close gives memory back; again is harmless.
	Close()
}

// Said is what the peer said about one report.
type Said struct {
	Kind    Kind
	Payload []byte // ping-pong message, for Message
}

// A Kind tells what was said.
type Kind uint8

const (
	Nothing  Kind = iota // not asked, left out or refused
	Message              // a ping-pong message
	Finished             // the helper has finished, without a message
)
