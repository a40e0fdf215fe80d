package aggregator

import (
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// An Observer is told what an aggregator does, for its metrics: names from closed sets
// and numbers, nothing of a task or of a peer. Its functions must be quick and safe for
// concurrent use; nil ones are not called.
type Observer struct {
	// Transaction is told of each transaction of the store: its name, of
	// leader.TransactionNames or helper.TransactionNames, how long it took, and its
	// error. Some errors are everyday refusals, a batch below its minimum for one;
	// database.ErrUnknown never is.
	Transaction func(name string, took time.Duration, err error)
	// Reports is told, every few seconds and with each status, how many more reports
	// reached a stage. reason is zero where the stage needs none. The sums are the
	// store's own counts, so they survive a restart.
	Reports func(stage Stage, reason dap.ReportError, n uint64)
	// Job is told of each attempt at a job that has come to an end.
	Job func(kind JobKind, outcome Outcome)
	// Shed is told of each upload or job that was turned away for want of room.
	Shed func(why Shed)
	// Uncredited is told how many reports were refused for their credentials, each time that
	// a job is verified: a job that is repeated is counted again.
	Uncredited func(why Uncredited, n uint64)
	// Compared is told of each batch that was released or is held how what came of it stands
	// to what was to come, where the task has a [Rate] or [Credentials].
	Compared func(status.Verdict)
}

// A Shed is what there was no room in.
type Shed string

// Where there was no room.
const (
	ShedDisk    Shed = "disk"    // below limits.min_free
	ShedBacklog Shed = "backlog" // above limits.max_backlog
	ShedMemory  Shed = "memory"  // bodies, or reports that wait for their fsync or to be sorted
	ShedQueue   Shed = "queue"   // jobs at the helper
	// in the quota of that name
	ShedRequests Shed = "requests"
	ShedReports  Shed = "reports_per_second"
	ShedStored   Shed = "bytes_stored"
)

// Sheds lists all.
func Sheds() []Shed {
	return []Shed{ShedDisk, ShedBacklog, ShedMemory, ShedQueue, ShedRequests, ShedReports, ShedStored}
}

// Doubted tells Uncredited, if it is there.
func (o *Observer) Doubted(why map[Uncredited]uint64) {
	if o.Uncredited == nil {
		return
	}
	for reason, n := range why {
		o.Uncredited(reason, n)
	}
}

// Judged tells Compared, if it is there.
func (o *Observer) Judged(v status.Verdict) {
	if o.Compared != nil {
		o.Compared(v)
	}
}

// Turned tells Shed, if it is there.
func (o *Observer) Turned(why Shed) {
	if o.Shed != nil {
		o.Shed(why)
	}
}

// Levels are how full an aggregator is and what waits in it, for gauges and for
// readiness. Nothing in it needs the store: what is the store's was read lately.
type Levels struct {
	Backlog    uint64        // acknowledged reports that are to be verified
	Oldest     time.Duration // how long the first of them has waited, as far as that is known
	InboxBytes int64         // acknowledged and not yet sorted
	InFlight   int64         // bytes of request bodies and of reports that wait for their fsync
	DiskFree   int64         // bytes; negative: not known
	Failing    uint64        // reports whose job failed and is repeated
	Parked     uint64        // reports that wait for the operator
	SetAside   uint64        // reports that were set aside for good
	Held       int           // batches with too many reports, or too few
	// LogFailing is 1 while the log that is followed fails, else 0, and CohortAlarms how many
	// epochs it says cannot be true of: see [status.Published].
	LogFailing, CohortAlarms int
	// tasks that take nothing until a person has acted, by who or what keeps them from it
	HeldByHand, HeldApart, HeldRestored int
	Files                               Files
	Used                                Quota // of the quota
	// of the key that clients are offered; zero where it is the operator's own
	KeyAge time.Duration
	Peer   error // why the helper cannot be asked; nil: it answered last
	Store  error // why the store cannot; nil: it did lately
}

// Files are how many of an aggregator's files are not where or what they should be.
type Files struct {
	// below lost/: whole, and named by nothing
	LostSlices, LostLogs, LostRuns, LostOthers int
	// logs that lost acknowledged reports, files of the replay protection, data keys
	DamagedLogs, DamagedRuns, MissingDataKeys int
}

// A Stage is what became of reports.
type Stage string

// Stages. Acknowledged reports end as aggregated or rejected; refused ones were never
// acknowledged.
const (
	StageRefused      Stage = "refused" // at upload, with a reason
	StageAcknowledged Stage = "acknowledged"
	StageAggregated   Stage = "aggregated"
	StageRejected     Stage = "rejected" // with a reason
	StageCollected    Stage = "collected"
)

// Stages lists all.
func Stages() []Stage {
	return []Stage{StageRefused, StageAcknowledged, StageAggregated, StageRejected, StageCollected}
}

// A JobKind is what a job is for.
type JobKind string

// Kinds of jobs: aggregation is at both aggregators, collection at the leader, share at
// the helper.
const (
	JobAggregation JobKind = "aggregation"
	JobCollection  JobKind = "collection"
	JobShare       JobKind = "share"
)

// JobKinds lists all.
func JobKinds() []JobKind { return []JobKind{JobAggregation, JobCollection, JobShare} }

// An Outcome is how an attempt at a job ended.
type Outcome string

// Outcomes.
const (
	JobDone   Outcome = "done"   // committed or released
	JobAgain  Outcome = "again"  // will be repeated
	JobFailed Outcome = "failed" // set aside, or answered with a problem
	JobHeld   Outcome = "held"   // the batch has too many reports, or too few; told once in a life of the service
)

// Outcomes lists all.
func Outcomes() []Outcome { return []Outcome{JobDone, JobAgain, JobFailed, JobHeld} }

// Ended tells Job, if it is there.
func (o *Observer) Ended(kind JobKind, outcome Outcome) {
	if o.Job != nil {
		o.Job(kind, outcome)
	}
}
