package party

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
)

// FollowEvery is how often a replica reads what others have changed in the registry, and
// Fresh how old its answer may be whether a task was closed or is retired: what one replica
// has done all know within the two together.
const (
	FollowEvery = time.Second
	Fresh       = time.Second
)

// A follower is how far the registry was read.
type follower struct {
	mu     sync.Mutex
	change uint64    // all changes up to it are known
	at     time.Time // of the last look that failed in nothing
}

// Follow reads on in the registry, where other processes may change it, and where it is time
// to: tasks that came are noted, those whose terms are others are opened again when they are
// asked for next, and those that were closed are looked at.
func (p *Party) Follow(ctx context.Context) (bool, error) {
	p.follower.mu.Lock()
	last := p.follower.at
	p.follower.mu.Unlock()
	if age := p.opt.Clock.Now().Sub(last); age >= 0 && age < FollowEvery {
		return false, nil
	}
	return false, p.follow(ctx)
}

// follow is [Party.Follow] now.
func (p *Party) follow(ctx context.Context) error {
	if p.Local != nil { // nobody else has the store
		return nil
	}
	f := &p.follower
	f.mu.Lock()
	defer f.mu.Unlock()
	now := p.opt.Clock.Now()
	for page := recallPage; page == recallPage; {
		list, err := p.Store.Registrations(ctx, f.change, recallPage)
		if err != nil {
			return err
		}
		page = len(list)
		for i := range list {
			if err := p.learn(ctx, &list[i]); err != nil {
				return fmt.Errorf("task %v, which another process changed: %w", list[i].ID, err)
			}
			f.change = list[i].Change
		}
	}
	f.at = now
	return nil
}

// learn takes in one change of the registry, its own or another's: again is harmless.
func (p *Party) learn(ctx context.Context, r *store.Registration) error {
	p.States.forget(r.ID)
	if r.Closed != nil {
		p.due()
	}
	if p.Tasks.Has(r.ID) {
		return p.renew(ctx, r)
	}
	gone, err := p.Retired(ctx, r.ID)
	if err != nil || gone {
		return err
	}
	if r.Closed == nil && p.makesKeys() {
		for _, suite := range preference {
			if suite.KEM != r.KEM {
				continue
			}
			if err := p.Keys.Cover(ctx, 0, suite); err != nil {
				return err
			}
		}
	}
	p.Tasks.Note(r.ID, task.Head{Begin: r.Begin, End: r.End})
	if r.Signed {
		t, err := p.Tasks.Find(r.ID)
		if err != nil {
			return nil // it waits, and the log says why
		}
		return p.cover(ctx, t)
	}
	return nil
}

// renew has a task that is open opened again, where its terms are others now.
func (p *Party) renew(ctx context.Context, r *store.Registration) error {
	made, ok := p.terms.Load(r.ID)
	if r.Closed != nil || !ok || p.Tasks.Peek(r.ID) == nil {
		return nil
	}
	whole, err := p.Store.Registration(ctx, r.ID)
	if err == nil && made != sha256.Sum256(whole.Terms) {
		p.drop(r.ID)
	}
	return err
}

// due has the next pass look for tasks that are to be retired.
func (p *Party) due() {
	p.retiring.Lock()
	defer p.retiring.Unlock()
	p.retired.tasks = -1
}

// States tell how tasks stand, [Fresh], so that requests cost no statement each. Safe for
// concurrent use.
type States struct {
	p  *Party
	mu sync.Mutex
	m  map[dap.TaskID]seenState
}

type seenState struct {
	store.TaskState
	at time.Time
}

// maxStates is how many answers are kept: a hundred bytes each.
const maxStates = 10_000

// TaskState implements [edge.TaskStates].
func (s *States) TaskState(ctx context.Context, id dap.TaskID) (store.TaskState, error) {
	if s.p.Local != nil { // it answers from memory
		return s.p.Store.TaskState(ctx, id)
	}
	now := s.p.opt.Clock.Now()
	s.mu.Lock()
	last, ok := s.m[id]
	s.mu.Unlock()
	if age := now.Sub(last.at); ok && age >= 0 && age < Fresh {
		return last.TaskState, nil
	}
	state, err := s.p.Store.TaskState(ctx, id)
	if err != nil {
		return state, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil || len(s.m) >= maxStates {
		s.m = make(map[dap.TaskID]seenState)
	}
	s.m[id] = seenState{state, now}
	return state, nil
}

// forget has the store asked again.
func (s *States) forget(id dap.TaskID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, id)
}
