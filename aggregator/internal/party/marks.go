package party

import (
	"context"
	"errors"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/retire"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/anonymity/arc"
)

const (
	roundsAtOnce = 64   // of a task, in one look
	marksAtOnce  = 2000 // or files of them: erased by one transaction, for which others wait
)

// forgetMarks erases what credentials have shown in rounds of which no report is taken any
// more, since the issuer has destroyed the key of their epoch. It looks at the tasks that
// are open, once in a while; those of others go when they are opened, or retired.
func (p *Party) forgetMarks(ctx context.Context) (more bool, err error) {
	if p.opt.Issuer == nil {
		return false, nil
	}
	p.forgetting.Lock()
	defer p.forgetting.Unlock()
	now := p.opt.Clock.Now()
	if age := now.Sub(p.forgot); age >= 0 && age < retire.Every {
		return false, nil
	}
	for _, t := range p.Tasks.Opened() {
		if t.Credentials == nil {
			continue
		}
		left, err := p.forgetMarksOf(ctx, t)
		if err != nil {
			return false, err
		}
		more = more || left
	}
	if p.forgot = now; more {
		p.forgot = time.Time{}
	}
	return more, nil
}

func (p *Party) forgetMarksOf(ctx context.Context, t *task.Task) (more bool, err error) {
	c := t.Credentials
	rounds, err := p.Store.SpentRounds(ctx, t.ID, roundsAtOnce)
	if err != nil {
		return false, err
	}
	for _, round := range rounds {
		epoch, err := arc.EpochOf(round, c.Units*uint64(t.Precision()), c.Epoch)
		if err != nil {
			return false, err
		}
		// Where the key is there, or cannot be read now, reports of the round may come, and
		// of those after it.
		if _, _, err := p.opt.Issuer.Verifier(ctx, c.Deployment, epoch); !errors.Is(err, aggregator.ErrNoIssuerKey) {
			return false, nil
		}
		more, err = p.Store.ForgetRound(ctx, t.ID, round, marksAtOnce)
		if errors.Is(err, store.ErrNotFound) {
			return false, nil // retired meanwhile: they go with the rest
		}
		if more || err != nil {
			return more, err
		}
	}
	return len(rounds) == roundsAtOnce, nil
}
