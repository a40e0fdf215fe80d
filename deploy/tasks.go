package deploy

import (
	"context"
	"errors"
	"log/slog"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// errClosedByLeader: a helper was told to close a task.
var errClosedByLeader = errors.New("a task is closed at its leader: jobs of reports that it has acknowledged may still come to the helper")

// NewTask reads what a task is made of, for an aggregator that runs, or is opened, to add
// it. It reads no secret: the aggregator does.
func (t *Task) NewTask(by string) (*status.NewTask, error) {
	if err := t.validateSource(); err != nil {
		return nil, err
	}
	form, made, err := t.source()
	if err != nil {
		return nil, err
	}
	written, err := t.terms()
	if err != nil {
		return nil, err
	}
	return &status.NewTask{Form: uint8(form), Made: made, Terms: written, By: by}, nil
}

// AddTask opens the store of an aggregator that is not running and adds a task to it. A
// task that is refused is a *[status.BadRequest].
func (a *Aggregator) AddTask(ctx context.Context, in *status.NewTask) (done status.Added, err error) {
	err = a.withStore(ctx, slog.New(slog.DiscardHandler), func(s *opened) error {
		done, err = s.add(ctx, in)
		return err
	})
	return done, err
}

// CloseTask opens the store of a leader that is not running and closes a task of it.
func (a *Aggregator) CloseTask(ctx context.Context, in *status.Closing) (done status.Closed, err error) {
	err = a.withStore(ctx, slog.New(slog.DiscardHandler), func(s *opened) error {
		done, err = s.closeTask(ctx, in)
		return err
	})
	return done, err
}

// Registered opens the store of an aggregator that is not running and lists its tasks.
func (a *Aggregator) Registered(ctx context.Context) (tasks []status.Registered, err error) {
	err = a.withStore(ctx, slog.New(slog.DiscardHandler), func(s *opened) error {
		tasks, err = s.Registered(ctx)
		return err
	})
	return tasks, err
}

// add makes a task of its bytes and terms, and adds it.
func (s *opened) add(ctx context.Context, in *status.NewTask) (done status.Added, err error) {
	form := aggregator.Form(in.Form)
	if form != aggregator.RecipeFile && form != aggregator.Configuration || in.By == "" {
		return done, &status.BadRequest{Err: errors.New("a task has a form, and somebody adds it")}
	}
	t, err := s.config.provide(ctx, form, in.Made, in.Terms)
	if err != nil {
		return done, &status.BadRequest{Err: err}
	}
	done.Task = t.ID.Base64()
	done.New, err = s.Add(ctx, &aggregator.Provision{
		Task: t, Form: form, Made: in.Made, Terms: in.Terms, Source: aggregator.Typed, By: in.By,
	})
	if errors.As(err, new(*aggregator.TaskError)) {
		err = &status.BadRequest{Err: err}
	}
	return done, err
}

// closeTask closes a task of a leader.
func (s *opened) closeTask(ctx context.Context, in *status.Closing) (done status.Closed, err error) {
	if s.leader == nil {
		return done, &status.BadRequest{Err: errClosedByLeader}
	}
	id, err := dap.ParseTaskID(in.Task)
	if err != nil {
		return done, &status.BadRequest{Err: err}
	}
	if in.By == "" || in.Why == "" {
		return done, &status.BadRequest{Err: errors.New("a closing needs somebody and a reason")}
	}
	c, err := s.leader.CloseTask(ctx, id, in.By, in.Why)
	if errors.Is(err, leader.ErrNoTask) {
		return done, &status.BadRequest{Err: err}
	}
	return status.Closed{
		ClosedTask: status.ClosedTask{At: c.At, By: c.By, Why: c.Why}, Waiting: c.Waiting, Ready: c.Ready, Short: c.Short,
	}, err
}
