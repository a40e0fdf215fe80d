package store

import (
	"context"
	"time"

	"github.com/starling-agg/starling/dap"
)

// A Helper answers aggregation jobs, which are [Resources]. Requests for shares are
// answered through [Releases].
type Helper interface {
	// CommitJob commits a job's reports and makes the resource Ready with reply(verdict)
	// as its response, in one transaction. If the resource is Ready already it returns
	// the stored response and calls nothing.
	CommitJob(ctx context.Context, r *Resource, c *Commit, reply func(verdict []dap.ReportError) ([]byte, error)) ([]byte, error)
	// Advance stores the reply of a later step (jobs of VDAFs with more than one round),
	// likewise once: the current step with the same digest gives the stored response, the
	// next one commits c (which may be nil), all else is ErrStep.
	Advance(ctx context.Context, r *Resource, step uint16, digest [32]byte, c *Commit, reply func(verdict []dap.ReportError) ([]byte, error)) ([]byte, error)

	// HasJob says whether an aggregation job is there that Create would find.
	HasJob(ctx context.Context, task dap.TaskID, id string, body []byte) (bool, error)
	// UnfinishedJobs counts the jobs that were created before an instant and from whose
	// stored bytes reports are still to be opened: those that wait for a worker, and
	// those that wait for the leader's next step.
	UnfinishedJobs(ctx context.Context, before time.Time) (n uint64, err error)
	// Answers hands over the responses of the aggregation jobs that are answered and not
	// deleted.
	Answers(ctx context.Context, task dap.TaskID, fn func(response []byte) error) error
}
