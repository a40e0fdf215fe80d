// Package aggregatortest has what tests of leader and helper share: a [Task] with the keys
// of all of its parties, by which a test plays those that it does not test, and VDAFs of
// several rounds ([Rounds]), for aggregation jobs that take continuation steps: no VDAF
// built here needs more than one.
package aggregatortest

import (
	"bytes"
	"context"
	"crypto/sha256"

	"github.com/starling-agg/starling/aggregator/internal/rounds"
	"github.com/starling-agg/starling/aggregator/internal/verify"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf"
)

// A Lie says whether an aggregator gives a wrong word about a report in a step. It must
// always say the same.
type Lie func(role dap.Role, step uint16, id dap.ReportID) bool

// Rounds returns a context in which leader.New and helper.New make a VDAF of n rounds, 2 or
// more, out of the one of a round that they have: the helper answers n times. After the
// first answer leader and helper ask each other for a word about every report; a word
// depends on the step, on who says it and on the report's proof, so that a step which was
// computed from anything else is found out. The helper commits with its last answer, which
// is of type finish. lie may be nil.
func Rounds(ctx context.Context, n int, lie Lie) context.Context {
	if n < 2 {
		panic("aggregatortest: a VDAF of one round is Prio3")
	}
	return rounds.With(ctx, func(one rounds.Engine) rounds.Engine { return &engine{one, n, lie} })
}

type engine struct {
	one rounds.Engine
	n   int
	lie Lie
}

func (e *engine) Rounds() int { return e.n }

func (e *engine) Begin(ctx context.Context, prm verify.Params, reports []verify.Report) (rounds.Job, error) {
	one, err := e.one.Begin(ctx, prm, reports)
	if err != nil {
		return nil, err
	}
	j := &job{Job: one, e: e, role: prm.Role, ids: make([]dap.ReportID, len(reports)), proofs: make([][]byte, len(reports))}
	for i := range reports {
		j.ids[i] = reports[i].Share.Metadata.ID
		if prm.Role == dap.RoleHelper && one.Verdicts()[i] == 0 {
			j.proofs[i] = one.Message(i)
		}
	}
	return j, nil
}

// A job takes the steps of the inner one with the first exchange, and exchanges words
// after it.
type job struct {
	rounds.Job
	e      *engine
	role   dap.Role
	step   uint16
	ids    []dap.ReportID
	proofs [][]byte // the inner helper's message, which both know after the first answer
}

func (j *job) last() bool { return int(j.step) == j.e.n-1 }

func (j *job) word(i int, role dap.Role, step uint16) []byte {
	h := sha256.New()
	h.Write([]byte{byte(role), byte(step)})
	h.Write(j.ids[i][:])
	h.Write(j.proofs[i])
	return h.Sum(nil)
}

// Message implements [rounds.Job].
func (j *job) Message(i int) []byte {
	switch {
	case j.role == dap.RoleLeader && j.step == 0:
		return j.Job.Message(i)
	case j.role == dap.RoleLeader && int(j.step) == j.e.n, j.role == dap.RoleHelper && j.last():
		return nil
	}
	word := j.word(i, j.role, j.step)
	if j.e.lie != nil && j.e.lie(j.role, j.step, j.ids[i]) {
		word[0] ^= 1
	}
	switch {
	case j.role == dap.RoleHelper && j.step == 0:
		return vdaf.AppendPingPongContinue(nil, j.proofs[i], word)
	case j.role == dap.RoleLeader && j.last():
		return vdaf.AppendPingPongFinish(nil, word)
	}
	return vdaf.AppendPingPongContinue(nil, word, nil)
}

// Final implements [rounds.Job].
func (j *job) Final() bool {
	if j.role == dap.RoleLeader {
		return int(j.step) >= j.e.n-1
	}
	return j.last()
}

// Take implements [rounds.Job].
func (j *job) Take(said []rounds.Said) error {
	words := make([][]byte, len(said))
	peer, from := dap.RoleLeader, j.step+1
	if j.role == dap.RoleLeader {
		peer, from = dap.RoleHelper, j.step
	}
	first := j.role == dap.RoleLeader && j.step == 0
	for i := range said {
		if said[i].Kind != rounds.Message {
			said[i] = j.silence(i, said[i])
			continue
		}
		m, err := vdaf.ReadPingPong(said[i].Payload)
		switch {
		case err != nil:
		case first && m.Type == vdaf.PingPongContinue:
			words[i], j.proofs[i] = m.Share, m.Message
		case !first:
			words[i] = m.Message
		}
		if first {
			said[i].Payload = j.proofs[i]
		}
	}
	if first {
		if err := j.Job.Take(said); err != nil {
			return err
		}
	}
	for i := range said {
		if said[i].Kind == rounds.Message && !bytes.Equal(words[i], j.word(i, peer, from)) {
			j.Refuse(i, dap.VDAFVerifyError)
		}
	}
	j.step++
	return nil
}

// silence refuses a report about which the peer had no message when one was due.
func (j *job) silence(i int, s rounds.Said) rounds.Said {
	if !(s.Kind == rounds.Finished && j.role == dap.RoleLeader && j.last()) {
		j.Refuse(i, dap.VDAFVerifyError)
	}
	return rounds.Said{}
}
