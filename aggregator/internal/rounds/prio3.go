package rounds

import (
	"bytes"
	"context"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/verify"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf"
)

// For returns the engine of a service that is opened in ctx. It is that of VDAFs with one
// round, in which the helper commits with its first answer, which is of type continue,
// around a ping-pong finish; unless [With] made something else of it.
func For(ctx context.Context, p *verify.Pool) Engine {
	one := prio3{p}
	if of, ok := ctx.Value(trial{}).(func(Engine) Engine); ok {
		return of(one)
	}
	return one
}

// With returns a context in which services open with the engine that of makes of theirs.
// It is for tests (package aggregatortest), and for no option of a service: who runs one
// has no other engine to name.
func With(ctx context.Context, of func(one Engine) Engine) context.Context {
	return context.WithValue(ctx, trial{}, of)
}

type trial struct{}

type prio3 struct{ pool *verify.Pool }

func (prio3) Rounds() int { return 1 }

func (e prio3) Begin(ctx context.Context, prm verify.Params, reports []verify.Report) (Job, error) {
	b, err := e.pool.Begin(ctx, prm, reports)
	if err != nil {
		return nil, err
	}
	return &prio3Job{Batch: b, helper: prm.Role == dap.RoleHelper}, nil
}

type prio3Job struct {
	*verify.Batch
	helper, answered bool
}

func (j *prio3Job) Spends() ([]store.Spend, []int) { return j.Batch.Spends() }
func (j *prio3Job) Verdicts() []dap.ReportError    { return j.Errs }
func (j *prio3Job) Final() bool                    { return j.helper || j.answered }

func (j *prio3Job) Message(i int) []byte {
	switch {
	case j.helper:
		return vdaf.AppendPingPongFinish(nil, j.Batch.Message(i))
	case j.answered:
		return nil
	}
	return vdaf.AppendPingPongInitialize(nil, j.Share(i))
}

// Take finishes the leader's side. The helper's only message about a good report is a
// finish; all else proves nothing.
func (j *prio3Job) Take(said []Said) error {
	if j.Final() {
		panic("rounds: internal error: a job of one round was continued")
	}
	j.answered = true
	messages := make([][]byte, len(said))
	for i, s := range said {
		if s.Kind != Message {
			continue
		}
		if m, err := vdaf.ReadPingPong(s.Payload); err == nil && m.Type == vdaf.PingPongFinish {
			if messages[i] = bytes.Clone(m.Message); messages[i] == nil {
				messages[i] = []byte{} // some VDAFs' messages are empty
			}
		}
	}
	return j.Check(messages)
}
