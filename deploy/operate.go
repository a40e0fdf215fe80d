package deploy

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service"
)

// errNotLeader: a helper was told to hold tasks.
var errNotLeader = errors.New("only a leader holds tasks: a helper keeps nothing of what it refuses")

// operatorFile has the token that a running aggregator wants of who has it hold a task or
// make a backup: a new one with each start. It lies in the data directory, whose owner
// alone reads it.
const operatorFile = "operator.token"

// newOperatorToken makes the token of this life.
func newOperatorToken(fsys disk.FS) (string, error) {
	b := make([]byte, 32)
	rand.Read(b) // never fails
	token := hex.EncodeToString(b)
	if err := disk.WriteFile(fsys, operatorFile, []byte(token+"\n")); err != nil {
		return "", fmt.Errorf("deploy: %s: %w", operatorFile, err)
	}
	return token, nil
}

// removeOperatorToken ends the token with the life that it was made in.
func removeOperatorToken(fsys disk.FS) error {
	if err := fsys.Remove(operatorFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("deploy: %s: %w", operatorFile, err)
	}
	return nil
}

// OperatorToken is the token of the aggregator's present life. It fails with
// [fs.ErrNotExist] where it does not run, and else where who asks may not read its files.
func (a *Aggregator) OperatorToken() (string, error) {
	return service.Secret(filepath.Join(string(a.Data), operatorFile)).Text()
}

// operations serves what an operator has an aggregator do while it runs.
func operations(current func() (*opened, error)) http.Handler {
	var one sync.Mutex // backup at a time
	mux := http.NewServeMux()
	handle := func(path string, guarded bool, do func(s *opened, w http.ResponseWriter, r *http.Request) error) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			s, err := current()
			if err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			token := ""
			if guarded {
				token = s.token
			}
			status.Operated(token, func(w http.ResponseWriter, r *http.Request) error { return do(s, w, r) }).ServeHTTP(w, r)
		})
	}
	handle(status.RepairPath, false, func(s *opened, w http.ResponseWriter, r *http.Request) error {
		if err := s.Repair(r.Context()); err != nil {
			return err
		}
		now, err := s.Status(r.Context())
		if err == nil {
			status.Answer(w, now)
		}
		return err
	})
	handle(CohortPath, false, func(s *opened, w http.ResponseWriter, r *http.Request) error {
		if s.issuer == nil {
			return &status.BadRequest{Err: errors.New("no issuer is beside this aggregator")}
		}
		return answerCohort(w, r, s.config.Role.String(), s.issuer.Deployment(), s.issuer.root, s.issuer.Count)
	})
	handle(status.BackupPath, true, func(s *opened, w http.ResponseWriter, r *http.Request) error {
		one.Lock()
		defer one.Unlock()
		// The operator's disk may be slower than requests may be.
		if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		return s.Backup(r.Context(), w)
	})
	decide := func(path string, do func(ctx context.Context, l *leader.Leader, d status.Decision, tasks []dap.TaskID) (status.Decided, error)) {
		handle(path, true, func(s *opened, w http.ResponseWriter, r *http.Request) error {
			if s.leader == nil {
				return &status.BadRequest{Err: errNotLeader}
			}
			d, err := status.ReadDecision(r)
			if err != nil {
				return err
			}
			var tasks []dap.TaskID
			for _, id := range d.Tasks {
				task, err := dap.ParseTaskID(id)
				if err != nil {
					return &status.BadRequest{Err: err}
				}
				tasks = append(tasks, task)
			}
			done, err := do(r.Context(), s.leader, d, tasks)
			if errors.Is(err, leader.ErrNoTask) {
				return &status.BadRequest{Err: err}
			}
			if err == nil {
				status.Answer(w, done)
			}
			return err
		})
	}
	decide(status.HoldPath, func(ctx context.Context, l *leader.Leader, d status.Decision, tasks []dap.TaskID) (status.Decided, error) {
		if d.Reason == "" {
			return status.Decided{}, &status.BadRequest{Err: errors.New("a hold needs a reason")}
		}
		n, err := l.HoldTask(ctx, d.Reason, tasks...)
		return status.Decided{Tasks: n}, err
	})
	for path, drop := range map[string]bool{status.ResumePath: false, status.DropPath: true} {
		decide(path, func(ctx context.Context, l *leader.Leader, _ status.Decision, tasks []dap.TaskID) (status.Decided, error) {
			held, reports, err := l.Resume(ctx, drop, tasks...)
			return status.Decided{Tasks: held, Reports: reports}, err
		})
	}
	instructed(handle, status.AddTaskPath, status.ReadNewTask, (*opened).add)
	instructed(handle, status.AmendTaskPath, status.ReadNewTask, (*opened).amend)
	instructed(handle, status.ShowTaskPath, status.ReadNamed, (*opened).show)
	instructed(handle, status.CloseTaskPath, status.ReadClosing, (*opened).closeTask)
	instructed(handle, status.GiveUpTaskPath, status.ReadClosing, (*opened).giveUp)
	handle(status.ListTasksPath, true, func(s *opened, w http.ResponseWriter, r *http.Request) error {
		tasks, err := s.Registered(r.Context())
		if err == nil {
			status.Answer(w, tasks)
		}
		return err
	})
	return mux
}

// instructed serves what is done with one message, and answered with one.
func instructed[In, Out any](handle func(string, bool, func(*opened, http.ResponseWriter, *http.Request) error), path string,
	read func(*http.Request) (In, error), do func(*opened, context.Context, *In) (Out, error)) {
	handle(path, true, func(s *opened, w http.ResponseWriter, r *http.Request) error {
		in, err := read(r)
		if err != nil {
			return err
		}
		out, err := do(s, r.Context(), &in)
		if err == nil {
			status.Answer(w, out)
		}
		return err
	})
}
