package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// An ImportError is a task of the configuration that the store, which took the tasks of the
// configuration over when it began, has otherwise or not at all.
type ImportError struct {
	Err    *aggregator.TaskError
	Source string // the file of its recipe or configuration
	Role   dap.Role
}

func (e *ImportError) Error() string { return fmt.Sprintf("[[tasks]] of %s: %v", e.Source, e.Err) }
func (e *ImportError) Unwrap() error { return e.Err }

// ofImport says which line of the configuration a start was refused for.
func (a *Aggregator) ofImport(m *material, err error) error {
	var refused *aggregator.TaskError
	if !errors.As(err, &refused) {
		return err
	}
	for i := range m.tasks {
		if m.tasks[i].ID == refused.Task {
			return &ImportError{refused, string(a.Tasks[i].Recipe) + string(a.Tasks[i].Configuration), a.Role}
		}
	}
	return err
}

// NewTask reads what a task is made of, for an aggregator that runs, or is opened, to add
// it. It reads no secret: the aggregator does. fingerprints are what the owners of the
// task's Invitations have read out.
func (a *Aggregator) NewTask(t *Task, by string, fingerprints ...string) (*status.NewTask, error) {
	if err := t.validateSource(); err != nil {
		return nil, err
	}
	if err := t.read(a, fingerprints); err != nil {
		return nil, err
	}
	form, made, err := t.source()
	if err != nil {
		return nil, err
	}
	written, err := a.terms(t)
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

// CloseTask opens the store of an aggregator that is not running and closes a task of it.
func (a *Aggregator) CloseTask(ctx context.Context, in *status.Closing) (done status.Closed, err error) {
	err = a.withStore(ctx, slog.New(slog.DiscardHandler), func(s *opened) error {
		done, err = s.closeTask(ctx, in)
		return err
	})
	return done, err
}

// GiveUpTask opens the store of a leader that is not running, closes a task of it and gives
// up its reports that wait.
func (a *Aggregator) GiveUpTask(ctx context.Context, in *status.Closing) (done status.Closed, err error) {
	err = a.withStore(ctx, slog.New(slog.DiscardHandler), func(s *opened) error {
		done, err = s.giveUp(ctx, in)
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
	if in.By == "" {
		return done, &status.BadRequest{Err: errors.New("somebody adds a task")}
	}
	p, err := s.provision(ctx, form, in)
	if err != nil {
		return done, err
	}
	done.Task = p.Task.ID.Base64()
	done.New, err = s.Add(ctx, p)
	return done, refused(err)
}

// provision makes a task of its bytes and terms.
func (s *opened) provision(ctx context.Context, form aggregator.Form, in *status.NewTask) (*aggregator.Provision, error) {
	if form != aggregator.RecipeFile && form != aggregator.Configuration {
		return nil, &status.BadRequest{Err: fmt.Errorf("no task has the form %d", form)}
	}
	t, err := s.config.provide(ctx, form, in.Made, in.Terms)
	if err == nil {
		err = s.issuer.outlives(&t)
	}
	if err != nil {
		return nil, &status.BadRequest{Err: err}
	}
	return &aggregator.Provision{Task: t, Form: form, Made: in.Made, Terms: in.Terms, Source: aggregator.Typed, By: in.By}, nil
}

// refused is the error of who asked, where a task is what is wrong.
func refused(err error) error {
	if errors.As(err, new(*aggregator.TaskError)) {
		return &status.BadRequest{Err: err}
	}
	return err
}

// show is all that the registry has of a task.
func (s *opened) show(ctx context.Context, in *status.Named) (v status.RegisteredTask, err error) {
	id, err := dap.ParseTaskID(in.Task)
	if err != nil {
		return v, &status.BadRequest{Err: err}
	}
	v, err = s.RegisteredTask(ctx, id)
	return v, refused(err)
}

// amend gives a task other terms.
func (s *opened) amend(ctx context.Context, in *status.NewTask) (done status.Amended, err error) {
	p, err := s.provision(ctx, aggregator.Form(in.Form), in)
	if err != nil {
		return done, err
	}
	done.Task = p.Task.ID.Base64()
	done.Now, err = s.Amend(ctx, p)
	return done, refused(err)
}

// ShowTask opens the store of an aggregator that is not running and tells all that it has
// of a task.
func (a *Aggregator) ShowTask(ctx context.Context, in *status.Named) (v status.RegisteredTask, err error) {
	err = a.withStore(ctx, slog.New(slog.DiscardHandler), func(s *opened) error {
		v, err = s.show(ctx, in)
		return err
	})
	return v, err
}

// AmendTask opens the store of an aggregator that is not running and gives a task of it
// other terms.
func (a *Aggregator) AmendTask(ctx context.Context, in *status.NewTask) (done status.Amended, err error) {
	err = a.withStore(ctx, slog.New(slog.DiscardHandler), func(s *opened) error {
		done, err = s.amend(ctx, in)
		done.Now = true // it is read by the next start
		return err
	})
	return done, err
}

// Amended is a request for a task to have other terms: those that it has, with what t says.
func (a *Aggregator) Amended(there *status.RegisteredTask, t *Task) (*status.NewTask, error) {
	var now, changed terms
	said, err := a.terms(t)
	if err == nil {
		err = errors.Join(json.Unmarshal(there.Terms, &now), json.Unmarshal(said, &changed))
	}
	if err != nil {
		return nil, fmt.Errorf("terms: %w", err)
	}
	for _, x := range []struct{ into, from *string }{
		{&now.PeerToken, &changed.PeerToken}, {&now.CollectorToken, &changed.CollectorToken}, {&now.CollectorHPKE, &changed.CollectorHPKE},
		{&now.VerifyKeyInit, &changed.VerifyKeyInit},
	} {
		if *x.from != "" {
			*x.into = *x.from
		}
	}
	if len(changed.VerifyKeys) > 0 {
		now.VerifyKeys = changed.VerifyKeys
	}
	if changed.Framing != 0 {
		now.Framing = changed.Framing
	}
	if changed.Expected != nil {
		now.Expected = changed.Expected
	}
	written, err := json.Marshal(now)
	return &status.NewTask{Form: there.Number, Made: there.Made, Terms: written}, err
}

// closeTask closes a task.
func (s *opened) closeTask(ctx context.Context, in *status.Closing) (status.Closed, error) {
	return s.closeBy(ctx, in, s.CloseTask)
}

// errKeepsNothing: a helper was told to give up the reports of a task.
var errKeepsNothing = errors.New("the reports of a task wait at its leader, which can give them up: starling task close --drop there")

// giveUp closes a task, and gives up what waits of it.
func (s *opened) giveUp(ctx context.Context, in *status.Closing) (status.Closed, error) {
	if s.leader == nil {
		return status.Closed{}, &status.BadRequest{Err: errKeepsNothing}
	}
	return s.closeBy(ctx, in, s.leader.GiveUp)
}

func (s *opened) closeBy(ctx context.Context, in *status.Closing, do func(context.Context, dap.TaskID, string, string) (status.Closed, error)) (done status.Closed, err error) {
	id, err := dap.ParseTaskID(in.Task)
	if err != nil {
		return done, &status.BadRequest{Err: err}
	}
	if in.By == "" || in.Why == "" {
		return done, &status.BadRequest{Err: errors.New("a closing needs somebody and a reason")}
	}
	done, err = do(ctx, id, in.By, in.Why)
	if errors.Is(err, leader.ErrNoTask) {
		return done, &status.BadRequest{Err: err}
	}
	return done, refused(err)
}
