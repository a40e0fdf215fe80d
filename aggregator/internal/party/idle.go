package party

import (
	"context"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
)

// IdleEvery is how often is looked which open tasks nobody uses: one that was not asked for
// during that time may be given up.
const IdleEvery = time.Minute

// GiveUp gives up open tasks that nobody uses, the longest unused first, until as many are
// open as a start may open. They are opened again when they are asked for, with the terms
// that they have then. Those that differ from the other aggregator's stay, for the operator
// to see.
func (p *Party) GiveUp(context.Context) (bool, error) {
	p.idling.Lock()
	defer p.idling.Unlock()
	now := p.opt.Clock.Now()
	if age := now.Sub(p.turned); age >= 0 && age < IdleEvery {
		return false, nil
	}
	p.turned = now
	idle := p.Tasks.Turn()
	over := len(p.Tasks.Opened()) - max(0, p.opt.Limits.HotTasks)
	if p.opt.Provide == nil || over <= 0 {
		return false, nil
	}
	var drop []dap.TaskID
	for _, id := range idle {
		if len(drop) < over && p.remakes(id) && p.Book.Quiet(id) {
			drop = append(drop, id)
		}
	}
	p.drop(drop...)
	return false, nil
}

// remakes says whether a task can be opened again: it is not one of the options.
func (p *Party) remakes(id dap.TaskID) bool {
	_, ok := p.terms.Load(id)
	return ok
}

// drop gives up tasks that are open.
func (p *Party) drop(ids ...dap.TaskID) {
	p.Tasks.Drop(ids, func(w *task.Task) {
		p.Book.Drop(w.ID)
		p.Store.LetGo(w.ID)
		p.terms.Delete(w.ID)
		if p.givenUp != nil {
			p.givenUp(w)
		}
	})
}
