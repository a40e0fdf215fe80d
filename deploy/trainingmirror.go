package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/client/training"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/recipe"
)

const (
	trainingEvery = time.Second
	// mirrorModels are kept of a training: the newest, and what a device may still be about
	// to fetch.
	mirrorModels = 2
)

// A trainingMirror has the files of a training as they were had last, for devices, which
// verify them themselves. It asks at times of its own, so that a controller learns nothing
// of a device.
type trainingMirror struct {
	remote training.Remote
	every  time.Duration
	log    *slog.Logger

	mu      sync.Mutex
	session *session.Session
	last    *session.Announcement
	files   map[string][]byte // by path below session.Dir
	models  []string          // paths of those that are in files, the oldest first
	failed  error
}

// trainingMirrors are those of a relay; nil for none.
type trainingMirrors []*trainingMirror

func newTrainingMirrors(list []RelayTraining, log *slog.Logger) (all trainingMirrors) {
	for _, t := range list {
		id, err := recipe.ParseID(t.Recipe)
		if err != nil {
			panic("deploy: internal error: a relay's configuration that was not validated")
		}
		all = append(all, &trainingMirror{every: cmp.Or(time.Duration(t.Every), trainingEvery), log: log, files: make(map[string][]byte),
			remote: training.Remote{URL: t.Controller, Recipe: id, Client: &http.Client{Timeout: 30 * time.Second}}})
	}
	return all
}

// file is a file of one of the trainings, by its path below session.Dir; nil where it is
// not there.
func (l trainingMirrors) file(path string) []byte {
	for _, m := range l {
		if !strings.HasPrefix(path, m.remote.Recipe.String()+"/") {
			continue
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.files[path]
	}
	return nil
}

// trouble is why the last turn of one of them failed.
func (l trainingMirrors) trouble() error {
	var errs []error
	for _, m := range l {
		m.mu.Lock()
		if m.failed != nil {
			errs = append(errs, fmt.Errorf("training %v: %w", m.remote.Recipe, m.failed))
		}
		m.mu.Unlock()
	}
	return errors.Join(errs...)
}

func below(path string) string { return strings.TrimPrefix(path, session.Dir) }

// turn fetches what is new. The model of an announcement is there before it.
func (m *trainingMirror) turn(ctx context.Context) error {
	id := m.remote.Recipe
	if m.session == nil {
		b, err := m.remote.Session(ctx)
		if err != nil {
			return err
		}
		s, err := session.Read(b)
		if err != nil {
			return err
		}
		if s.Recipe != id {
			return fmt.Errorf("%w: it is of recipe %v", session.ErrSession, s.Recipe)
		}
		m.mu.Lock()
		m.session, m.files[below(session.SessionPath(id))] = s, b
		m.mu.Unlock()
	}
	b, err := m.remote.Announcement(ctx)
	if errors.Is(err, training.ErrNotYet) {
		return nil
	}
	if err != nil {
		return err
	}
	a, err := session.ReadAnnouncement(b)
	if err != nil {
		return err
	}
	if m.last != nil && a.Hash() == m.last.Hash() {
		return nil
	}
	if err := m.session.Follow(m.last, a); err != nil {
		return err
	}
	blob, err := m.remote.Model(ctx, a.Model, m.session.Terms.ModelBytes())
	if err != nil {
		return err
	}
	if _, err := m.session.ReadModel(a, blob); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	path := below(session.ModelPath(id, a.Model))
	m.files[path], m.files[below(session.AnnouncementPath(id))], m.last = blob, b, a
	if m.models = append(m.models, path); len(m.models) > mirrorModels {
		delete(m.files, m.models[0])
		m.models = m.models[1:]
	}
	return nil
}

// run asks until ctx ends, after failures too. An announcement that contradicts the one
// before is handed to nobody, and logged with it.
func (m *trainingMirror) run(ctx context.Context, ready func()) error {
	ready()
	for {
		err := m.turn(ctx)
		if ctx.Err() != nil {
			return nil
		}
		m.mu.Lock()
		first := err != nil && m.failed == nil
		m.failed = err
		m.mu.Unlock()
		if lie := new(session.ContradictionError); errors.As(err, &lie) && first {
			m.log.Error("the controller of a training shows two models for one round", "recipe", m.remote.Recipe.String(), "error", err,
				"first", fmt.Sprintf("%x", lie.Evidence.First.Append(nil)), "second", fmt.Sprintf("%x", lie.Evidence.Second.Append(nil)))
		} else if first {
			m.log.Warn("nothing new of a training was fetched", "recipe", m.remote.Recipe.String(), "error", err)
		}
		t := time.NewTimer(m.every)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
	}
}
