package agent

import (
	"bytes"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/signed"
)

// TestLies: each thing that a controller, or a relay, may hand out of a training, and by
// which name an update on it is refused. Nothing is paid or sent, the task is shown as not
// allowed or without a model, and the log has what was found once, with the evidence where
// there is any. Good files afterwards are good again, but for what the controller itself has
// signed.
func TestLies(t *testing.T) {
	for name, c := range map[string]struct {
		lie    func(w *world)
		code   int
		want   string
		logged string
		stays  bool // no good file makes it good again
	}{
		"a model of one device's own": {func(w *world) { // after a look at that of all others
			if s, err := w.agent.TaskStatus(w.t.Context(), w.checked.ID()); err != nil || s.Model == nil {
				w.t.Fatalf("%+v, %v", s, err)
			}
			time.Sleep(minute)
			w.instead(0.5, 9, 9, 9)
		}, 502, "contradiction", "second=01", true},
		"a model that does not match its hash": {func(w *world) {
			w.files[session.ModelPath(w.checked.ID(), w.last.Model)][70] ^= 1
		}, 502, "bad_model", "SHA-256", false},
		"a model of one number more": {func(w *world) { w.instead(0.5, 1, 2, 3, 4) }, 502, "bad_model", "", true},
		"a model of another type": {func(w *world) { // binary64, by its length
			w.blob(append([]byte(nil), append(w.files[session.ModelPath(w.checked.ID(), w.last.Model)], make([]byte, 4*dimension)...)...))
		}, 502, "bad_model", "", true},
		"a model with no number": {func(w *world) {
			b := bytes.Clone(w.files[session.ModelPath(w.checked.ID(), w.last.Model)])
			copy(b[len(b)-4:], session.AppendFloats(nil, []float32{float32(math.NaN())}))
			w.blob(b)
		}, 502, "bad_model", "not finite", true},
		"a model that is too long": {func(w *world) {
			w.files[session.ModelPath(w.checked.ID(), w.last.Model)] = make([]byte, 1<<20)
		}, 502, "bad_model", "", false},
		"a model of another clipping norm": {func(w *world) { w.instead(0.25, 1, 2, 3) }, 502, "bad_model", "", true},
		"an announcement of another key": {func(w *world) {
			key := w.key
			w.key = signed.Generate()
			w.instead(0.5, 1, 2, 3)
			w.key = key
		}, 502, "bad_model", "not signed", false},
		"an announcement that is none": {func(w *world) {
			w.files[session.AnnouncementPath(w.checked.ID())] = []byte("none")
		}, 502, "bad_model", "", false},
		"the model is gone": {func(w *world) {
			delete(w.files, session.ModelPath(w.checked.ID(), w.last.Model))
		}, 503, "unavailable", "", false},
		"an announcement of before": {func(w *world) {
			w.files[session.AnnouncementPath(w.checked.ID())] = w.before.Append(nil)
		}, 409, "no_model", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "", true)
				var log bytes.Buffer
				w.options.Log = slog.New(slog.NewTextHandler(&log, nil))
				w.start()
				defer func() { w.stop() }()
				w.announce(0.5, 1, 2, 3)
				if code, said := w.contribute(w.round(), "", some); code != http.StatusOK {
					t.Fatalf("%d %s", code, said)
				}
				time.Sleep(minute)
				synctest.Wait()
				w.before = w.last
				w.announce(0.5, 4, 5, 6)
				good := *w.last
				files := map[string][]byte{}
				for path, b := range w.files {
					files[path] = bytes.Clone(b)
				}
				paid, sent := w.paid(), w.servers.Counts().Uploads
				c.lie(w)
				for range 3 {
					if code, said := w.contribute(w.round(), "", some); code != c.code || said != c.want {
						t.Errorf("%d %s, want %d %s", code, said, c.code, c.want)
					}
					time.Sleep(2 * fresh)
				}
				if n := w.paid(); n != paid || w.servers.Counts().Uploads != sent {
					t.Errorf("%d paid, %d before; %d sent, %d before", n, paid, w.servers.Counts().Uploads, sent)
				}
				if s, err := w.agent.TaskStatus(t.Context(), w.checked.ID()); err != nil || s.Model != nil || s.Allowed != (c.want == "no_model") || s.Allowed != (s.Reason == "") {
					t.Errorf("%+v, %v", s, err)
				}
				if n := strings.Count(log.String(), "level=ERROR"); (n > 0) != (c.code == 502) || n > 1 || !strings.Contains(log.String(), c.logged) {
					t.Errorf("%d lines are logged:\n%s", n, log.String())
				}
				w.files, w.last = files, &good
				time.Sleep(2 * fresh)
				code, said := w.contribute(w.round(), "", some)
				if ok := code == http.StatusOK; ok == c.stays {
					t.Errorf("afterwards: %d %s", code, said)
				}
			})
		})
	}
}

// TestOtherSession: a session that is not the recipe's has the same name.
func TestOtherSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", true)
		w.start()
		defer func() { w.stop() }()
		w.announce(0.5, 1, 2, 3)
		path := session.SessionPath(w.checked.ID())
		good := w.files[path]
		other := *w.session
		other.Terms.Clipping.Norm = 5 // with which an update would be ten times as long
		var err error
		if w.files[path], err = other.Append(nil); err != nil {
			t.Fatal(err)
		}
		if code, name := w.contribute(w.round(), "", some); code != http.StatusBadGateway || name != "bad_model" {
			t.Errorf("another session: %d %s", code, name)
		}
		w.files[path] = []byte("none")
		if code, name := w.contribute(w.round(), "", some); code != http.StatusBadGateway || name != "bad_model" {
			t.Errorf("no session: %d %s", code, name)
		}
		w.files[path] = good
		if code, name := w.contribute(w.round(), "", some); code != http.StatusOK || w.paid() != 1 {
			t.Errorf("the session: %d %s", code, name)
		}
	})
}

// instead publishes another model in the place of the newest.
func (w *world) instead(clip float64, parameters ...float32) {
	w.last = w.before
	w.announce(clip, parameters...)
}

// blob publishes other bytes as the model of the newest announcement, which is signed anew.
func (w *world) blob(b []byte) {
	w.last.Model = session.BlobHash(b)
	w.last.Sign(w.key)
	w.files[session.ModelPath(w.checked.ID(), w.last.Model)] = b
	w.files[session.AnnouncementPath(w.checked.ID())] = w.last.Append(nil)
}
