package store

import (
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf"
)

// A Candidate is a report whose proof held, waiting for the commit to say whether it is
// new: whether the task has aggregated no report of that id, whatever its time (DAP-18
// section 4.5.3.4).
type Candidate struct {
	ID     dap.ReportID
	Time   dap.Time // floored to the batch bucket
	Batch  int32    // index into Commit.Batches
	Report int32    // the caller's own index, untouched
}

// A Commit adds a job's verified reports to their batches, once.
type Commit struct {
	Task       dap.TaskID
	Batches    []Batch
	Candidates []Candidate
	Rejected   map[dap.ReportError]uint64 // refused before the commit, counted with it

	// Conduct is how the peer answered, which FinishJob enters; nil where it was not
	// asked.
	Conduct *Conduct

	// Life is that of the replica when it took the keys that opened the reports, which must
	// go on; else ErrCutOff. Empty where the keys are one process's. See package
	// keyset/vault.
	Life string

	// Final says that no step follows in this aggregation job: the body kept with the
	// resource is dropped, which still held the sealed reports.
	Final bool

	// Fold is called once, when replays (report_replayed) and closed batches
	// (batch_collected) are known. verdict[i] is zero for a kept candidate. It returns
	// one share per batch, nil where nothing was kept.
	Fold func(verdict []dap.ReportError) ([]*vdaf.AggShare, error)
}
