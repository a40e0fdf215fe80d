package store

import (
	"time"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/dap"
)

// Longest is more than any lease or back-off.
const Longest = 24 * time.Hour

// A Lease is a claim on a piece of work. Token is random and fences every later write; a claim whose lease has run out
// may be given to another worker, after which writes with the old token fail with ErrStaleLease.
type Lease struct {
	Token    [16]byte
	Expires  time.Time
	Attempts int // claims of this work so far, this one included
}

// A SegmentJob is the leader's unit of work: one claimed segment, one aggregation job.
type SegmentJob struct {
	Lease   Lease
	Task    dap.TaskID
	Segment segment.Meta
	Batch   Batch // leader-selected: assigned at the claim
	Sent    *Sent // nil until SaveSent
}

// Sent is what makes a retry send the same bytes: which reports of the segment are in the job, what the helper has said so
// far, and the digest of the last request.
type Sent struct {
	Accepted []byte // bitmap over the segment's reports, least significant bit first
	Step     uint16 // of the last request; 0 is the init request
	Digest   [32]byte
	Location string   // the helper's job, once known
	Answers  [][]byte // the helper's, to the requests of the steps before Step
}

// Conduct is how the peer answered one aggregation job, report by report.
type Conduct struct {
	Asked uint64 // reports that it gave a verdict of
	// of these, refused for a reason that is the peer's own, and that no stranger can
	// make it say
	Refused uint64
	Now     time.Time
}

// A task is held by itself once its peer, since a person last let the task go on, has refused
//
//   - each of its first FirstTurned jobs as a whole, or
//   - RowTurned jobs as a whole one after the other, or
//   - over half of a window of WindowReports reports or more, for reasons of its own.
//
// A stranger's acts count nowhere: a report that does not open or does not hold is
// refused alone.
const (
	FirstTurned   = 3
	RowTurned     = 5
	WindowReports = 100
)

// A Hold keeps a task from taking uploads and running jobs until a person lets it go on.
// Nothing is lost by it.
type Hold struct {
	Task   dap.TaskID
	Since  time.Time
	Person bool // a person holds it, and it releases nothing either
	Why    string
}

// InFlight is a segment that was sent: Accepted says which of its reports, as in [Sent].
type InFlight struct {
	Segment  segment.Meta
	Accepted []byte
}
