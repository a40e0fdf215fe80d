package training_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/starling-agg/starling/client/training"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
)

// world is a training, and a place that hands out files of it, good or bad.
type world struct {
	recipe  *recipe.Recipe
	id      recipe.ID
	key     *signed.PrivateKey
	session *session.Session
	hash    session.Hash
	files   map[string][]byte // by path
	slow    func()            // before a model is answered
	asked   []string
	server  *httptest.Server
	now     time.Time
}

const first = 178_000_000 // round, of ten seconds

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{key: signed.Generate(), files: map[string][]byte{}, now: time.Unix(first*10+1, 0)}
	terms := session.Terms{Layout: []session.Tensor{{Name: "w", Shape: []uint32{3}}}, Algorithm: session.FedSGD, LocalSteps: 1,
		Clipping: session.Clipping{Norm: 0.5}, Rounds: 5}
	hash, err := terms.Hash()
	if err != nil {
		t.Fatal(err)
	}
	q, err := recipe.NewVector(3, 1, 10, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.recipe, err = account.New(account.Options{Name: "Training", Query: q, Leader: "https://leader.example/", Helper: "https://helper.example/", TimePrecision: 10,
		MinBatch: 10, Rounds: 5, Epsilon: recipe.Decimal{Coefficient: 4}, Training: &recipe.Training{Controller: w.key.Public(), Terms: hash}})
	if err != nil {
		t.Fatal(err)
	}
	if w.session, err = session.Of(w.recipe, terms); err != nil {
		t.Fatal(err)
	}
	w.id = w.session.Recipe
	if w.hash, err = w.session.Hash(); err != nil {
		t.Fatal(err)
	}
	b, err := w.session.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.files[session.SessionPath(w.id)] = b
	w.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.asked = append(w.asked, fmt.Sprint(r.Method, " ", r.URL, " ", r.Header))
		b, ok := w.files[r.URL.Path[len("/below/"):]]
		if w.slow != nil && r.URL.Path[len(r.URL.Path)-64-7:len(r.URL.Path)-64] == "models/" {
			w.slow()
		}
		switch {
		case !ok:
			rw.WriteHeader(http.StatusNotFound)
		case string(b) == "redirect":
			http.Redirect(rw, r, "/below/"+session.SessionPath(w.id), http.StatusFound)
		default:
			rw.Write(b)
		}
	}))
	t.Cleanup(w.server.Close)
	return w
}

func (w *world) follow(t *testing.T, seen *session.Announcement) *training.Follower {
	t.Helper()
	f, err := training.Follow(w.recipe, training.Remote{URL: w.server.URL + "/below/"}, seen, func() time.Time { return w.now })
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// announce publishes a model for a round.
func (w *world) announce(t *testing.T, last *session.Announcement, round uint64, value float32) *session.Announcement {
	t.Helper()
	m := session.Model{Session: w.hash, Round: round, Clip: 0.5, Parameters: []float32{value, 0, 0}}
	blob, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &session.Announcement{Session: w.hash, Round: round, Model: session.BlobHash(blob)}
	if last != nil {
		a.Index, a.Previous = last.Index+1, last.Hash()
	}
	a.Sign(w.key)
	w.files[session.ModelPath(w.id, a.Model)] = blob
	w.files[session.AnnouncementPath(w.id)] = a.Append(nil)
	return a
}

// TestFollower: a device takes the model of the round, by requests that say nothing of it.
func TestFollower(t *testing.T) {
	w := newWorld(t)
	f := w.follow(t, nil)
	if _, err := f.Newest(t.Context()); !errors.Is(err, training.ErrNotYet) {
		t.Errorf("before the first: %v", err)
	}
	a := w.announce(t, nil, first, 1)
	got, err := f.Newest(t.Context())
	if err != nil || got.Hash() != a.Hash() || f.Seen().Hash() != a.Hash() {
		t.Fatalf("%v, %v", got, err)
	}
	m, err := f.Model(t.Context(), got)
	if err != nil || m.Parameters[0] != 1 {
		t.Fatalf("%v, %v", m, err)
	}
	if end, err := f.Ends(got); err != nil || !end.Equal(time.Unix(first*10+10, 0)) {
		t.Errorf("%v, %v", end, err)
	}
	before := len(w.asked)
	other := w.follow(t, a) // another device, which was here before
	if got, err = other.Newest(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err = other.Model(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	if again := w.asked[before:]; len(again) != 3 || again[0] != w.asked[0] || again[1] != w.asked[2] || again[2] != w.asked[3] {
		t.Errorf("one device asked %q, another %q", w.asked[:before], again)
	}
	none := *w.recipe
	none.Training = nil
	if _, err := training.Follow(&none, training.Remote{}, nil, nil); !errors.Is(err, session.ErrNoTraining) {
		t.Error(err)
	}
}

// TestLies: each thing that a controller, or who hands out its files, may do, and its name.
func TestLies(t *testing.T) {
	as := func(target any) func(error) bool { return func(err error) bool { return errors.As(err, target) } }
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	for name, c := range map[string]struct {
		lie  func(w *world, t *testing.T, a *session.Announcement)
		want func(error) bool
	}{
		"another model by its name": {func(w *world, t *testing.T, a *session.Announcement) {
			w.files[session.ModelPath(w.id, a.Model)][60] ^= 1
		}, as(new(*session.BlobError))},
		"no model": {func(w *world, t *testing.T, a *session.Announcement) {
			delete(w.files, session.ModelPath(w.id, a.Model))
		}, is(training.ErrNotYet)},
		"a model that is too large": {func(w *world, t *testing.T, a *session.Announcement) {
			w.files[session.ModelPath(w.id, a.Model)] = make([]byte, w.session.Terms.ModelBytes()+1)
		}, is(training.ErrTooLarge)},
		"a model without end": {func(w *world, t *testing.T, a *session.Announcement) {
			w.files[session.ModelPath(w.id, a.Model)] = make([]byte, 10<<20)
		}, is(training.ErrTooLarge)},
		"an older announcement": {func(w *world, t *testing.T, a *session.Announcement) {
			w.announce(t, nil, first-1, 1)
		}, as(new(*session.ContradictionError))}, // two have no announcement before them
		"two for one round": {func(w *world, t *testing.T, a *session.Announcement) { w.announce(t, nil, first, 2) }, as(new(*session.ContradictionError))},
		"another's": {func(w *world, t *testing.T, a *session.Announcement) {
			w.key = signed.Generate()
			w.announce(t, a, first+1, 2)
		}, is(session.ErrAnnouncement)},
		"rubbish": {func(w *world, t *testing.T, a *session.Announcement) {
			w.files[session.AnnouncementPath(w.id)] = []byte("no")
		}, is(session.ErrAnnouncement)},
		"a long one": {func(w *world, t *testing.T, a *session.Announcement) {
			w.files[session.AnnouncementPath(w.id)] = make([]byte, 4096)
		}, is(training.ErrTooLarge)},
		"to somebody else": {func(w *world, t *testing.T, a *session.Announcement) {
			w.files[session.AnnouncementPath(w.id)] = []byte("redirect")
		}, as(new(*training.StatusError))},
		"the round is over": {func(w *world, t *testing.T, a *session.Announcement) { w.now = w.now.Add(10 * time.Second) }, as(new(*training.LateError))},
		"a slow model": {func(w *world, t *testing.T, a *session.Announcement) {
			w.slow = func() { w.now = w.now.Add(10 * time.Second) }
		}, as(new(*training.LateError))},
	} {
		w := newWorld(t)
		f := w.follow(t, nil)
		a := w.announce(t, nil, first, 1)
		if _, err := f.Newest(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.lie(w, t, a)
		got, err := f.Newest(t.Context())
		if err == nil {
			_, err = f.Model(t.Context(), got)
		}
		if !c.want(err) {
			t.Errorf("%s: %v", name, err)
		}
		if f.Seen().Hash() != a.Hash() {
			t.Errorf("%s: the lie is believed", name)
		}
	}
	// One of before, of the same chain.
	w := newWorld(t)
	a := w.announce(t, nil, first, 1)
	b := w.announce(t, a, first+1, 2)
	f := w.follow(t, b)
	w.files[session.AnnouncementPath(w.id)] = a.Append(nil)
	if _, err := f.Newest(t.Context()); !as(new(*session.OldError))(err) {
		t.Errorf("an older one: %v", err)
	}
	// Another training's session.
	w = newWorld(t)
	w.session.Terms.Rounds++
	w.files[session.SessionPath(w.id)], _ = w.session.Append(nil)
	if _, err := w.follow(t, nil).Newest(t.Context()); !errors.Is(err, session.ErrSession) {
		t.Errorf("another session: %v", err)
	}
	w.files[session.SessionPath(w.id)] = make([]byte, session.MaxSession+1)
	if _, err := w.follow(t, nil).Newest(t.Context()); !errors.Is(err, training.ErrTooLarge) {
		t.Errorf("a long session: %v", err)
	}
	// Nobody there.
	w = newWorld(t)
	w.server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := w.follow(t, nil).Newest(ctx); err == nil {
		t.Error("nobody answered, and a session is there")
	}
	if got := session.Round(w.recipe, dap.Time(first)); got != first {
		t.Errorf("round %d", got)
	}
}
