package helper

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/rounds"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/verify"
	"github.com/starling-agg/starling/dap"
)

// begin takes the first step of a job, in which the reports that hold spend what they show.
func (h *Helper) begin(ctx context.Context, j *job) (rounds.Job, error) {
	reports := make([]verify.Report, len(j.inits))
	for i := range j.inits {
		reports[i] = verify.Report{Share: j.inits[i].ReportShare, Peer: j.inits[i].Payload}
	}
	run, err := h.engine.Begin(ctx, verify.Params{
		Task: j.task, Role: dap.RoleHelper, KeyID: j.req.VerificationKeyID, Keys: j.keys.Keyring(),
		Issuer: h.opt.Issuer, Now: h.steady.Latest(), Skew: h.opt.Limits.ClockSkew,
	}, reports)
	if h.party.Lacks(j.task.ID, err) {
		h.opt.Log.Error("a job waits, for the issuer's key is not here", "task", j.task.ID, "why", err.Error())
		return nil, edge.Keyless(err)
	}
	if err != nil {
		return nil, err
	}
	if err := rounds.Spend(ctx, h.store, j.task.ID, run); err != nil {
		run.Close()
		if errors.Is(err, store.ErrMarks) {
			h.opt.Log.Error("marks of credentials are damaged: reports of the round wait", "task", j.task.ID, "why", err.Error())
		}
		return nil, err
	}
	return run, nil
}

// errDamaged is about our own stored bytes.
var errDamaged = errors.New("helper: the stored answer of a job is damaged")

// joinRounds is what is stored as the response of a job of a VDAF with several rounds:
// the requests so far, from which the next step is computed, go before the answer; after
// the last round there are none.
func joinRounds(requests [][]byte, answer []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(requests)))
	for _, r := range requests {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(r))), r...)
	}
	return append(b, answer...)
}

// splitRounds undoes joinRounds. It aliases stored.
func splitRounds(stored []byte) (requests [][]byte, answer []byte, err error) {
	if len(stored) < 2 {
		return nil, nil, errDamaged
	}
	n, rest := binary.BigEndian.Uint16(stored), stored[2:]
	for range n {
		if len(rest) < 4 || uint64(len(rest)-4) < uint64(binary.BigEndian.Uint32(rest)) {
			return nil, nil, errDamaged
		}
		size := 4 + int(binary.BigEndian.Uint32(rest))
		requests, rest = append(requests, rest[4:size:size]), rest[size:]
	}
	return requests, rest, nil
}

func withRequests(requests [][]byte, reply replier) replier {
	return func(verdict []dap.ReportError) ([]byte, error) {
		answer, err := reply(verdict)
		if err != nil {
			return nil, err
		}
		return joinRounds(requests, answer), nil
	}
}
