package helper

import (
	"context"

	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/internal/verify"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/vdaf"
)

// An engine is the VDAF's side of an aggregation job. Nothing of it is stored between steps: what a later step needs is
// computed again from the init request, which is stored with the answer where rounds is more than one. That suffices for
// two rounds; a VDAF of three would need the continuations stored too.
type engine interface {
	// rounds is how many messages the helper sends at most: 1 for Prio3, 2 for Poplar1.
	rounds() int
	// init is step 0.
	init(ctx context.Context, j *job) (*outcome, error)
	// next is a later step for the reports live, indices into the job's, with the leader's messages.
	next(ctx context.Context, j *job, step uint16, live []int, messages [][]byte) (*outcome, error)
}

// An outcome is what a step did to each report of a job.
type outcome struct {
	errs    []dap.ReportError  // verdicts so far, of all reports
	payload func(i int) []byte // the message to the leader; nil where there is nothing left to send
	final   bool               // output shares are out: the reports without a verdict are committed now
	fold    func(keep []bool, bucket []int32, batches int) ([]*vdaf.AggShare, error)
	close   func()
}

// prio3Engine is the engine of VDAFs with one round: the helper commits with its first answer, and the answer is of type
// continue, around a ping-pong finish.
type prio3Engine struct {
	pool *verify.Pool
	keys *sealed.Keyring
	h    *Helper
}

func (e *prio3Engine) rounds() int { return 1 }

func (e *prio3Engine) init(ctx context.Context, j *job) (*outcome, error) {
	reports := make([]verify.Report, len(j.inits))
	for i := range j.inits {
		reports[i] = verify.Report{Share: j.inits[i].ReportShare, Peer: j.inits[i].Payload}
	}
	b, err := e.pool.Begin(ctx, verify.Params{
		Task: j.task, Role: dap.RoleHelper, KeyID: j.req.VerificationKeyID, Keys: e.keys,
		Now: e.h.opt.Clock.Now(), Skew: e.h.opt.Limits.ClockSkew,
	}, reports)
	if err != nil {
		return nil, err
	}
	return &outcome{
		errs:    b.Errs,
		payload: func(i int) []byte { return vdaf.AppendPingPongFinish(nil, b.Message(i)) },
		final:   true,
		fold:    b.Fold,
		close:   b.Close,
	}, nil
}

func (e *prio3Engine) next(context.Context, *job, uint16, []int, [][]byte) (*outcome, error) {
	panic("helper: internal error: a job of one round was continued")
}

// engineOf is a seam for tests of VDAFs with more rounds than any built here.
type engineOf func(*task.Task) engine
