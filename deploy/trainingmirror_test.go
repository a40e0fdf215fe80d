package deploy

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/signed"
)

// TestTrainingMirror: a relay has the model of an announcement before it shows the
// announcement, goes on with what it had while the controller is away, hands out neither
// older nor contradicting ones, nor another model, and keeps the evidence.
func TestTrainingMirror(t *testing.T) {
	key := signed.Generate()
	s := &session.Session{Recipe: recipe.ID{7}, Controller: key.Public(), Terms: session.Terms{Layout: []session.Tensor{{Name: "w", Shape: []uint32{2}}},
		Algorithm: session.FedSGD, LocalSteps: 1, Clipping: session.Clipping{Norm: 1}, Rounds: 9}}
	hash, err := s.Hash()
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // guards files
	files, away := map[string][]byte{"/" + session.SessionPath(s.Recipe): b}, false
	controller := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if b, ok := files[r.URL.Path]; !away && ok {
			w.Write(b)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	defer controller.Close()
	announce := func(last *session.Announcement, round uint64, value float32) *session.Announcement {
		blob, err := (&session.Model{Session: hash, Round: round, Clip: 1, Parameters: []float32{value, 0}}).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		a := &session.Announcement{Session: hash, Round: round, Model: session.BlobHash(blob)}
		if last != nil {
			a.Index, a.Previous = last.Index+1, last.Hash()
		}
		a.Sign(key)
		mu.Lock()
		defer mu.Unlock()
		files["/"+session.ModelPath(s.Recipe, a.Model)] = blob
		files["/"+session.AnnouncementPath(s.Recipe)] = a.Append(nil)
		return a
	}
	var logged bytes.Buffer
	all := newTrainingMirrors([]RelayTraining{{Controller: controller.URL, Recipe: s.Recipe.String(), Every: service.Duration(time.Hour)}}, slog.New(slog.NewTextHandler(&logged, nil)))
	m := all[0]
	shown := func() []byte { return all.file(strings.TrimPrefix(session.AnnouncementPath(s.Recipe), session.Dir)) }
	turn := func(want any, a *session.Announcement) {
		t.Helper()
		if err := m.turn(t.Context()); (want == nil) != (err == nil) || want != nil && !errors.As(err, want) {
			t.Errorf("%v, want %T", err, want)
		}
		switch {
		case a == nil:
			if shown() != nil {
				t.Error("something is shown")
			}
		case !bytes.Equal(shown(), a.Append(nil)) || all.file(strings.TrimPrefix(session.ModelPath(s.Recipe, a.Model), session.Dir)) == nil:
			t.Errorf("round %d and its model are not shown", a.Round)
		}
	}
	turn(nil, nil) // nothing was announced yet
	if all.file(strings.TrimPrefix(session.SessionPath(s.Recipe), session.Dir)) == nil {
		t.Error("no session")
	}
	a := announce(nil, 10, 1)
	mu.Lock()
	blob := files["/"+session.ModelPath(s.Recipe, a.Model)]
	files["/"+session.ModelPath(s.Recipe, a.Model)] = append(bytes.Clone(blob[:len(blob)-1]), 1)
	mu.Unlock()
	turn(new(*session.BlobError), nil)
	mu.Lock()
	files["/"+session.ModelPath(s.Recipe, a.Model)] = blob
	mu.Unlock()
	turn(nil, a)
	b2 := announce(a, 11, 2)
	turn(nil, b2)
	c := announce(b2, 12, 3)
	turn(nil, c)
	if all.file(strings.TrimPrefix(session.ModelPath(s.Recipe, a.Model), session.Dir)) != nil {
		t.Error("an old model is kept")
	}
	if all.file(strings.TrimPrefix(session.ModelPath(s.Recipe, b2.Model), session.Dir)) == nil {
		t.Error("the model before is not kept")
	}
	mu.Lock()
	away = true
	mu.Unlock()
	turn(nil, c) // there is nothing, as of a controller that begins
	mu.Lock()
	away = false
	files["/"+session.AnnouncementPath(s.Recipe)] = a.Append(nil)
	mu.Unlock()
	turn(new(*session.OldError), c)
	announce(b2, 12, 4)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- m.run(ctx, func() {}) }()
	for all.trouble() == nil && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if lie := new(session.ContradictionError); !errors.As(all.trouble(), &lie) || lie.Evidence.Verify(s) != nil || !strings.Contains(logged.String(), "second=01") {
		t.Errorf("%v\n%s", all.trouble(), logged.String())
	}
	if !bytes.Equal(shown(), c.Append(nil)) {
		t.Error("the lie is shown")
	}
	if all.file("training") != nil || all.file(strings.Repeat("0", 64)+"/session") != nil {
		t.Error("a file of no training")
	}
}
