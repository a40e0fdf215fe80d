package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/clienttest"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/client/sender"
	"github.com/starling-agg/starling/client/training"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
)

const (
	dimension = 3
	minute    = time.Minute // a round
)

// A world is servers, a training's files, and an agent between them, under a fake clock.
type world struct {
	t       *testing.T
	servers *clienttest.Servers
	checked *recipe.Checked
	key     *signed.PrivateKey
	session *session.Session
	last    *session.Announcement
	files   map[string][]byte
	before  *session.Announcement // of the round before, where a test keeps it
	asked   []string              // of files
	hold    chan struct{}         // holds uploads back until it is closed; nil: none
	slow    chan struct{}         // holds files of the training back until it is closed; nil: none
	fail    error                 // of every request
	keys    bool                  // hold holds back every request
	dir     string
	options Options
	agent   *Agent
}

// Do answers devices, once they are let.
func (w *world) Do(r *http.Request) (*http.Response, error) {
	if w.hold != nil && (r.Method == http.MethodPost || w.keys) {
		<-w.hold
	}
	if w.fail != nil {
		return nil, w.fail
	}
	return w.servers.Do(r)
}

// RoundTrip answers requests for a training's files.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	w.asked = append(w.asked, r.Method+" "+r.URL.Path)
	if w.slow != nil {
		select {
		case <-w.slow:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	rec := httptest.NewRecorder()
	if b, ok := w.files[strings.TrimPrefix(r.URL.Path, "/")]; ok {
		rec.Write(b)
	} else {
		rec.WriteHeader(http.StatusNotFound)
	}
	return rec.Result(), nil
}

// newWorld has a recipe of 20 rounds in which devices report by a coin of the rate, or
// always, or check in as recipe.ParseCheckIn has it; trains says that it is of a training.
func newWorld(t *testing.T, rate string, trains bool) *world {
	t.Helper()
	return worldOf(t, rate, trains, nil)
}

// worldOf is one whose recipe protects a unit.
func worldOf(t *testing.T, rate string, trains bool, unit *recipe.Unit) *world {
	t.Helper()
	w := &world{t: t, servers: clienttest.New(t), key: signed.Generate(), files: map[string][]byte{}, dir: t.TempDir()}
	q, err := recipe.NewVector(dimension, 1, 10, 0)
	if err != nil {
		t.Fatal(err)
	}
	o := account.Options{Name: "Training", Query: q, Leader: "https://leader.example/", Helper: "https://helper.example/", TimePrecision: 60, MinBatch: 20,
		Rounds: 20, Noise: recipe.EachDraws(recipe.Rational{Num: 1 << 30, Den: 1}), Delta: recipe.Decimal{Coefficient: 1, Scale: 5},
		Rate: &recipe.Rate{Devices: 1000, Units: 1}, Unit: unit}
	if strings.Contains(rate, ":") {
		if o.Participation, err = recipe.ParseCheckIn(rate); err == nil {
			o.RoundUnits, o.Rate = o.Participation.Units(), &recipe.Rate{Devices: 40000, Units: o.Participation.Units()}
		}
	} else if rate != "" {
		o.Participation, err = recipe.ParseBernoulli(rate)
	}
	if err != nil {
		t.Fatal(err)
	}
	terms := session.Terms{Layout: []session.Tensor{{Name: "w", Shape: []uint32{dimension}}}, Algorithm: session.FedSGD, LocalSteps: 1,
		Clipping: session.Clipping{Norm: 0.5}, Rounds: 20}
	if trains {
		hash, err := terms.Hash()
		if err != nil {
			t.Fatal(err)
		}
		o.Training = &recipe.Training{Controller: w.key.Public(), Terms: hash}
	}
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Append(nil)
	if err == nil {
		w.checked, err = recipe.Open(b, account.Prover)
	}
	if err != nil {
		t.Fatal(err)
	}
	task := Task{Sender: sender.Options{Client: client.Options{Checked: w.checked, AnyKeys: true, HTTP: w}}}
	if trains {
		if w.session, err = session.Of(r, terms); err != nil {
			t.Fatal(err)
		}
		if w.files[session.SessionPath(w.checked.ID())], err = w.session.Append(nil); err != nil {
			t.Fatal(err)
		}
		task.Remote = training.Remote{URL: "https://relay.example/", Client: &http.Client{Transport: w}}
	}
	w.options = Options{Home: sender.Home{Dir: filepath.Join(w.dir, "home"), Limits: participate.LedgerOptions{MaxEpsilon: 1000, MaxDelta: 1}}, Tasks: []Task{task}}
	return w
}

func (w *world) start() {
	w.t.Helper()
	var err error
	if w.agent, err = Open(w.t.Context(), w.options); err != nil {
		w.t.Fatal(err)
	}
}

// stop lets what is on its way arrive, and closes the agent.
func (w *world) stop() {
	w.t.Helper()
	if err := w.agent.Close(); err != nil {
		w.t.Error(err)
	}
}

// round is the one that runs.
func (w *world) round() uint64 {
	unit, err := w.checked.Recipe().TimePrecision.At(time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	return session.Round(w.checked.Recipe(), unit)
}

// announce publishes a model for the round that runs.
func (w *world) announce(clip float64, parameters ...float32) session.Hash {
	w.t.Helper()
	of, err := w.session.Hash()
	if err != nil {
		w.t.Fatal(err)
	}
	m := session.Model{Session: of, Round: w.round(), Clip: clip, Parameters: parameters}
	blob, err := m.Append(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	a := &session.Announcement{Session: of, Round: m.Round, Model: session.BlobHash(blob)}
	if w.last != nil {
		a.Index, a.Previous = w.last.Index+1, w.last.Hash()
	}
	a.Sign(w.key)
	id := w.checked.ID()
	w.files[session.AnnouncementPath(id)], w.files[session.ModelPath(id, a.Model)], w.last = a.Append(nil), blob, a
	return a.Model
}

// ask asks the agent's socket.
func (w *world) ask(method, path string, body []byte) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	w.agent.ServeHTTP(rec, httptest.NewRequestWithContext(w.t.Context(), method, path, bytes.NewReader(body)))
	return rec
}

// contribute posts updates to a round, and returns the status and the error's name.
func (w *world) contribute(round uint64, query string, updates ...[]float32) (int, string) {
	var body []byte
	for _, u := range updates {
		body = session.AppendFloats(body, u)
	}
	if len(updates) > 1 {
		query += fmt.Sprintf("&persons=%d", len(updates))
	}
	rec := w.ask("POST", fmt.Sprintf("/v1/contributions?task=%v&round=%d%s", w.checked.ID(), round, query), body)
	var said answered
	if rec.Code != http.StatusOK {
		if err := json.Unmarshal(rec.Body.Bytes(), &said); err != nil || said.Error == "" || said.Problem == "" {
			w.t.Errorf("answered %s, %v", rec.Body, err)
		}
	} else if rec.Body.String() != string(accepted) {
		w.t.Errorf("answered %s", rec.Body)
	}
	return rec.Code, said.Error
}

func (w *world) paid() (n uint32) {
	for _, e := range w.agent.account.Ledger().Entries() {
		n += e.Rounds
	}
	return n
}

var some = []float32{0.1, -0.2, 0.3}

// TestEveryAnswerIsTheSame: over rounds in which the coin says now one thing and now
// another, each answer to a contribution has the same bytes and headers, and is given
// before anything is sent; what the status and the files asked for show does not tell
// either. That nothing at all is sent in 20 rounds has probability 10^-6 at most.
func TestEveryAnswerIsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "1/2", true)
		w.start()
		defer func() { w.stop() }()
		var first *httptest.ResponseRecorder
		for range 20 {
			w.announce(0.5, 1, 2, 3)
			w.hold = make(chan struct{})
			before := w.servers.Counts().Uploads
			asked := len(w.asked)
			rec := w.ask("POST", fmt.Sprintf("/v1/contributions?task=%v&round=%d", w.checked.ID(), w.round()), session.AppendFloats(nil, some))
			if w.servers.Counts().Uploads != before {
				t.Error("sent before the answer")
			}
			synctest.Wait() // a report that is sent is held back now
			if was := w.ask("GET", fmt.Sprintf("/v1/contributions?task=%v&round=%d", w.checked.ID(), w.round()), nil); was.Body.String() != rec.Body.String() {
				t.Errorf("asked again: %s", was.Body)
			}
			status := w.ask("GET", "/v1/status", nil).Body.String()
			if told, want := strings.Count(status, `"accepted":`), 1; told != want || strings.Contains(status, "sending") {
				t.Errorf("the status tells more: %s", status)
			}
			if first == nil {
				first = rec
			} else if rec.Code != first.Code || rec.Body.String() != first.Body.String() || fmt.Sprint(rec.Header()) != fmt.Sprint(first.Header()) {
				t.Errorf("%d %v %s, before %d %v %s", rec.Code, rec.Header(), rec.Body, first.Code, first.Header(), first.Body)
			}
			close(w.hold)
			synctest.Wait()
			want := []string{"GET /" + session.AnnouncementPath(w.checked.ID()), "GET /" + session.ModelPath(w.checked.ID(), w.last.Model)}
			if got := w.asked[asked:]; !slices.Equal(got[max(0, len(got)-2):], want) || len(got) > 3 {
				t.Errorf("asked for %q", got)
			}
			time.Sleep(minute)
			synctest.Wait()
		}
		if first.Code != http.StatusOK {
			t.Fatalf("%d %s", first.Code, first.Body)
		}
		if n := w.servers.Counts().Reports; n < 1 {
			t.Errorf("%d reports of 20 rounds", n)
		}
		if got := w.agent.Status().Contributions; got["accepted"] != 20 || len(got) != 1 {
			t.Errorf("%v", got)
		}
	})
}

// TestRefusedBeforeTheCoin: each mistake has a name and a status of its own, and costs
// nothing: no coin was tossed.
func TestRefusedBeforeTheCoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", true)
		w.options.Tasks[0].Policy = Policy{Data: []string{"digits"}, Persons: 2}
		w.start()
		defer func() { w.stop() }()
		nan, inf := float32(math.NaN()), float32(math.Inf(1))
		now := w.round()
		if code, name := w.contribute(now, "&data=digits", some); code != http.StatusConflict || name != "no_model" {
			t.Errorf("before a model: %d %s", code, name)
		}
		w.announce(0.5, 1, 2, 3)
		time.Sleep(2 * fresh)
		for _, c := range []struct {
			name    string
			round   uint64
			query   string
			updates [][]float32
			code    int
			want    string
		}{
			{"an old round", now - 1, "&data=digits", [][]float32{some}, 409, "round_over"},
			{"a round to come", now + 1, "&data=digits", [][]float32{some}, 409, "round_not_begun"},
			{"one number more", now, "&data=digits", [][]float32{{1, 2, 3, 4}}, 400, "bad_vector"},
			{"nothing", now, "&data=digits", [][]float32{{}}, 400, "bad_vector"},
			{"no number", now, "&data=digits", [][]float32{{1, nan, 3}}, 400, "bad_vector"},
			{"infinite", now, "&data=digits", [][]float32{{1, inf, 3}}, 400, "bad_vector"},
			{"infinite, of the second person", now, "&data=digits", [][]float32{some, {1, inf, 3}}, 400, "bad_vector"},
			{"other data", now, "&data=letters", [][]float32{some}, 403, "policy"},
			{"no data", now, "", [][]float32{some}, 403, "policy"},
			{"three persons", now, "&data=digits", [][]float32{some, some, some}, 403, "policy"},
		} {
			if code, name := w.contribute(c.round, c.query, c.updates...); code != c.code || name != c.want {
				t.Errorf("%s: %d %s, want %d %s", c.name, code, name, c.code, c.want)
			}
		}
		for _, c := range []struct {
			method, path string
			body         string
			code         int
		}{
			{"POST", "/v1/contributions?task=x&round=1", "", 400},
			{"POST", fmt.Sprintf("/v1/contributions?task=%v&round=-1", w.checked.ID()), "", 400},
			{"POST", fmt.Sprintf("/v1/contributions?task=%v&round=%d&persons=9999", w.checked.ID(), now), "", 400},
			{"POST", fmt.Sprintf("/v1/contributions?task=%v&round=%d&data=digits", w.checked.ID(), now), "odd", 400},
			{"POST", fmt.Sprintf("/v1/contributions?task=%v&round=%d&data=digits", w.checked.ID(), now), strings.Repeat("x", 4*dimension+4), 400},
			{"POST", fmt.Sprintf("/v1/contributions?task=%v&round=%d", recipe.ID{1}, now), "", 404},
			{"DELETE", "/v1/contributions", "", 405},
			{"GET", "/v1/contributions", "", 400},
			{"GET", fmt.Sprintf("/v1/contributions?task=%v&round=x", w.checked.ID()), "", 400},
			{"GET", fmt.Sprintf("/v1/contributions?task=%v&round=%d", recipe.ID{1}, now), "", 404},
			{"POST", "/v1/ledger", "", 405},
			{"GET", "/v1/ledger?" + strings.Repeat("x", 2000), "", 400},
			{"GET", "/v2/ledger", "", 404},
			{"GET", "/v1/tasks/" + recipe.ID{1}.String(), "", 404},
			{"GET", "/v1/models/x", "", 400},
			{"GET", "/v1/models/" + session.Hash{}.String(), "", 404},
		} {
			if rec := w.ask(c.method, c.path, []byte(c.body)); rec.Code != c.code {
				t.Errorf("%s %s: %d %s, want %d", c.method, c.path, rec.Code, rec.Body, c.code)
			}
		}
		if n := w.paid(); n != 0 || w.servers.Counts().Uploads != 0 {
			t.Errorf("%d rounds are paid for, %d sent", n, w.servers.Counts().Uploads)
		}
		was := func() string {
			return w.ask("GET", fmt.Sprintf("/v1/contributions?task=%v&round=%d", w.checked.ID(), now), nil).Body.String()
		}
		if got := was(); got != "{\"accepted\":false}\n" {
			t.Errorf("before a good one: %s", got)
		}
		if code, name := w.contribute(now, "&data=digits", some); code != http.StatusOK {
			t.Errorf("a good one: %d %s", code, name)
		}
		if got := was(); got != "{\"accepted\":true}\n" {
			t.Errorf("after a good one: %s", got)
		}
	})
}

// TestReceipts: a filter's handler says what the agent's own does of a task and a round, and
// has nothing else.
func TestReceipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", false)
		w.start()
		defer func() { w.stop() }()
		ask := func(method, path string, body []byte) *httptest.ResponseRecorder {
			rec := httptest.NewRecorder()
			w.agent.Receipts(rec, httptest.NewRequest(method, path, bytes.NewReader(body)))
			return rec
		}
		id, now := w.checked.ID(), w.round()
		at := fmt.Sprintf("/v1/contributions?task=%v&round=%d", id, now)
		for _, c := range []struct {
			method, path string
			code         int
		}{
			{"POST", at, 405}, {"PUT", at, 405}, {"DELETE", at, 405}, {"HEAD", at, 405}, {"GET", at + "&x=" + strings.Repeat("x", 2000), 400},
			{"GET", "/v1/status", 404}, {"GET", "/v1/tasks", 404}, {"GET", "/v1/tasks/" + id.String(), 404}, {"GET", "/v1/ledger", 404},
			{"GET", "/v1/ledger/" + id.String(), 404}, {"GET", "/v1/models/" + session.Hash{}.String(), 404}, {"GET", "/", 404},
			{"GET", strings.Replace(at, "?", "/?", 1), 404}, {"GET", strings.Replace(at, "v1", "v2", 1), 404}, {"POST", "/v1/ledger", 404},
		} {
			if rec := ask(c.method, c.path, session.AppendFloats(nil, some)); rec.Code != c.code {
				t.Errorf("%s %s: %d %s, want %d", c.method, c.path, rec.Code, rec.Body, c.code)
			}
		}
		if n := w.paid(); n != 0 {
			t.Errorf("%d rounds are paid for", n)
		}
		same := func(when, want string) {
			t.Helper()
			for _, path := range []string{
				at, fmt.Sprintf("/v1/contributions?task=%v&round=%d", id, now+1), fmt.Sprintf("/v1/contributions?task=%v&round=%d", recipe.ID{1}, now),
				"/v1/contributions", fmt.Sprintf("/v1/contributions?task=%v&round=-1", id),
			} {
				rec, own := ask("GET", path, nil), w.ask("GET", path, nil)
				if rec.Code != own.Code || rec.Body.String() != own.Body.String() {
					t.Errorf("%s, %s: %d %s, and %d %s at the agent's own", when, path, rec.Code, rec.Body, own.Code, own.Body)
				}
			}
			if got := ask("GET", at, nil).Body.String(); got != want {
				t.Errorf("%s: %s", when, got)
			}
		}
		same("before a contribution", "{\"accepted\":false}\n")
		if code, name := w.contribute(now, "", some); code != http.StatusOK {
			t.Fatalf("%d %s", code, name)
		}
		same("after one", "{\"accepted\":true}\n")
	})
}

// TestOnceARound: the same bytes again are answered alike and charge nothing, other bytes
// are refused, and after a restart all are: nothing is sent twice, and a report that was
// not sent is lost.
func TestOnceARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", false)
		w.start()
		if code, name := w.contribute(w.round()-1, "", some); code != 409 || name != "round_over" || w.paid() != 0 {
			t.Errorf("another round: %d %s", code, name)
		}
		for range 3 {
			if code, name := w.contribute(w.round(), "", some); code != http.StatusOK {
				t.Errorf("the same again: %d %s", code, name)
			}
		}
		if code, name := w.contribute(w.round(), "", []float32{1, 0, 0}); code != 409 || name != "already_contributed" {
			t.Errorf("another: %d %s", code, name)
		}
		if n := w.paid(); n != 1 {
			t.Errorf("%d rounds are paid for", n)
		}
		w.stop()
		if n := w.servers.Counts().Reports; n != 1 {
			t.Fatalf("%d reports", n)
		}
		w.start()
		if code, name := w.contribute(w.round(), "", some); code != 409 || name != "already_contributed" {
			t.Errorf("after a restart: %d %s", code, name)
		}
		// A stop while nothing can be sent: it was paid for, and is not sent later.
		time.Sleep(minute)
		w.hold = make(chan struct{})
		if code, name := w.contribute(w.round(), "", some); code != http.StatusOK {
			t.Fatalf("%d %s", code, name)
		}
		closed := make(chan error)
		go func() { closed <- w.agent.Close() }()
		time.Sleep(2 * awaits)
		close(w.hold)
		<-closed
		sent := w.servers.Counts().Reports
		w.start()
		if code, name := w.contribute(w.round(), "", some); code != 409 || name != "already_contributed" {
			t.Errorf("after a stop: %d %s", code, name)
		}
		time.Sleep(minute)
		if n := w.servers.Counts().Reports; n != sent || w.paid() != 2 {
			t.Errorf("%d reports, %d before; %d paid", n, sent, w.paid())
		}
		w.stop()
		if _, err := os.Stat(filepath.Join(w.dir, "home", bornFile)); err != nil {
			t.Error(err)
		}
	})
}

// TestModels: a process is given the model of the round that runs and no other; one of a
// later round takes its place, and an update on the old one is refused.
func TestModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", true)
		w.start()
		defer func() { w.stop() }()
		status := func() *TaskStatus {
			t.Helper()
			s := new(TaskStatus)
			rec := w.ask("GET", "/v1/tasks/"+w.checked.ID().String(), nil)
			if err := json.Unmarshal(rec.Body.Bytes(), s); err != nil || rec.Code != 200 || !s.Allowed {
				t.Fatalf("%d %s, %v", rec.Code, rec.Body, err)
			}
			return s
		}
		if s := status(); s.Model != nil || s.Numbers != dimension || s.Algorithm != "fedsgd" {
			t.Errorf("%+v", s)
		}
		time.Sleep(2 * fresh)
		first := w.announce(0.5, 1, 2, 3)
		if s := status(); s.Model == nil || *s.Model != first || s.Bound != 0.5 || s.Round != w.round() || !s.Ends.After(time.Now()) {
			t.Errorf("%+v", s)
		}
		rec := w.ask("GET", "/v1/models/"+first.String(), nil)
		if got, err := session.ReadFloats(rec.Body.Bytes()); err != nil || !slices.Equal(got, []float32{1, 2, 3}) || rec.Header().Get("Starling-Clip") != "0.5" {
			t.Errorf("%v %v %v", got, err, rec.Header())
		}
		old := w.round()
		time.Sleep(minute)
		second := w.announce(0.5, 4, 5, 6)
		if s := status(); s.Model == nil || *s.Model != second {
			t.Errorf("%+v", s)
		}
		if rec := w.ask("GET", "/v1/models/"+first.String(), nil); rec.Code != 404 {
			t.Errorf("the old model: %d", rec.Code)
		}
		if code, name := w.contribute(old, "", some); code != 409 || name != "round_over" {
			t.Errorf("on the old model: %d %s", code, name)
		}
		if code, name := w.contribute(w.round(), "", some); code != 200 {
			t.Errorf("%d %s", code, name)
		}
		// Of two announcements that contradict each other the second is refused, also by an
		// agent that has started again meanwhile.
		time.Sleep(minute)
		w.announce(0.5, 7, 8, 9)
		status()
		w.stop()
		w.start()
		lie := *w.last
		lie.Model = first
		lie.Sign(w.key)
		time.Sleep(minute)
		w.files[session.AnnouncementPath(w.checked.ID())] = lie.Append(nil)
		if code, name := w.contribute(w.round(), "", some); code != 502 || name != "contradiction" {
			t.Errorf("a lie: %d %s", code, name)
		}
	})
}

// TestSlowTraining: while the relay of one training does not answer, models of another are
// handed out, and its updates taken.
func TestSlowTraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, w := newWorld(t, "", true), newWorld(t, "1/2", true)
		w.options.Tasks = append(slow.options.Tasks, w.options.Tasks...)
		w.start()
		defer func() { w.stop() }()
		model := w.announce(0.5, 1, 2, 3)
		if s, err := w.agent.TaskStatus(t.Context(), w.checked.ID()); err != nil || s.Model == nil {
			t.Fatalf("%+v, %v", s, err)
		}
		slow.slow = make(chan struct{})
		held := make(chan struct{})
		go func() {
			defer close(held)
			w.ask("GET", "/v1/tasks/"+slow.checked.ID().String(), nil)
		}()
		synctest.Wait()
		begun := time.Now()
		if rec := w.ask("GET", "/v1/models/"+model.String(), nil); rec.Code != 200 {
			t.Errorf("a model: %d", rec.Code)
		}
		if code, name := w.contribute(w.round(), "", some); code != 200 {
			t.Errorf("an update: %d %s", code, name)
		}
		if rec := w.ask("GET", "/v1/ledger", nil); rec.Code != 200 {
			t.Errorf("the ledger: %d", rec.Code)
		}
		if d := time.Since(begun); d > 0 {
			t.Errorf("after %v", d)
		}
		close(slow.slow)
		<-held
	})
}

// TestPolicy: what the agent's own file does not allow is refused by its rule.
func TestPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := func(err error) string {
			if p := new(PolicyError); errors.As(err, &p) {
				return p.Rule
			}
			return fmt.Sprint(err)
		}
		w := newWorld(t, "", false)
		w.options.Tasks[0].Policy = Policy{Trusted: time.Hour, Every: 5 * minute}
		w.start()
		give := func() error {
			return w.agent.give(t.Context(), w.checked.ID(), &Contribution{Round: w.round(), Updates: [][]float32{some}})
		}
		if err := give(); rule(err) != "trusted" {
			t.Errorf("with a new ledger: %v", err)
		}
		time.Sleep(30 * minute)
		w.stop()
		w.start() // the ledger is not new by that
		if err := give(); rule(err) != "trusted" {
			t.Errorf("half an hour later: %v", err)
		}
		time.Sleep(31 * minute)
		if err := give(); err != nil {
			t.Errorf("an hour later: %v", err)
		}
		time.Sleep(4 * minute)
		if err := give(); rule(err) != "every" {
			t.Errorf("four minutes after another: %v", err)
		}
		time.Sleep(2 * minute)
		if err := give(); err != nil {
			t.Errorf("six minutes after another: %v", err)
		}
		w.stop()

		// A ledger that was removed knows nothing of what was paid, whatever lies beside it.
		home := w.options.Home.Dir
		for _, name := range []string{participate.LedgerFile, participate.MarkFile} {
			if err := os.Remove(filepath.Join(home, name)); err != nil {
				t.Fatal(err)
			}
		}
		w.start()
		if err := give(); rule(err) != "trusted" {
			t.Errorf("with another ledger: %v", err)
		}
		time.Sleep(61 * minute)
		if err := give(); err != nil {
			t.Errorf("an hour later: %v", err)
		}
		w.stop()
		if err := os.WriteFile(filepath.Join(home, bornFile), []byte("2000-01-01T00:00:00Z"), 0o600); err != nil {
			t.Fatal(err)
		}
		w.start() // a file that says nothing of the ledger says nothing
		if err := give(); rule(err) != "trusted" {
			t.Errorf("with a time of no ledger: %v", err)
		}
		w.stop()

		trains := newWorld(t, "", true)
		trains.options.Tasks[0].Policy.Controllers = []signed.PublicKey{signed.Generate().Public()}
		trains.start()
		if err := trains.agent.give(t.Context(), trains.checked.ID(), &Contribution{Round: trains.round(), Updates: [][]float32{some}}); rule(err) != "controllers" {
			t.Errorf("another controller: %v", err)
		}
		if s, err := trains.agent.TaskStatus(t.Context(), trains.checked.ID()); err != nil || s.Allowed || !strings.Contains(s.Reason, "controllers") {
			t.Errorf("%+v, %v", s, err)
		}
		trains.stop()
		trains.options.Tasks[0].Policy.Controllers = []signed.PublicKey{trains.key.Public()}
		trains.start()
		if s, err := trains.agent.TaskStatus(t.Context(), trains.checked.ID()); err != nil || !s.Allowed {
			t.Errorf("%+v, %v", s, err)
		}
		trains.stop()
	})
}

// TestEveryOverTasks: contributions to two recipes at once are no closer to each other than
// the policy says; one that fails does not count.
func TestEveryOverTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, other := newWorld(t, "", false), newWorld(t, "1/2", false)
		w.options.Tasks = append(w.options.Tasks, other.options.Tasks...)
		for i := range w.options.Tasks {
			w.options.Tasks[i].Policy.Every = 5 * minute
		}
		w.start()
		defer func() { w.stop() }()
		give := func(x *world, round uint64) error {
			return w.agent.give(t.Context(), x.checked.ID(), &Contribution{Round: round, Updates: [][]float32{some}})
		}
		w.fail = errors.New("nobody is there")
		if err := give(w, w.round()); !errors.Is(err, w.fail) {
			t.Errorf("without keys: %v", err)
		}
		if err := give(other, other.round()); err != nil {
			t.Errorf("after one that failed: %v", err)
		}
		w.fail = nil
		time.Sleep(6 * minute)
		w.hold, w.keys = make(chan struct{}), true
		first := make(chan error)
		go func() { first <- give(w, w.round()) }()
		synctest.Wait() // it asks for keys
		if p := new(PolicyError); !errors.As(give(other, other.round()), &p) || p.Rule != "every" {
			t.Errorf("beside another: %v", p)
		}
		close(w.hold)
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

// TestLedger: what one more round would cost is told without tossing for it, and a round
// that the budget has no room for is refused.
func TestLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", false)
		two, err := w.checked.LossAfter(2)
		if err != nil {
			t.Fatal(err)
		}
		w.options.Home.Limits.MaxEpsilon = two.Epsilon * 1.01
		w.start()
		defer func() { w.stop() }()
		for i := range 2 {
			l, err := w.agent.taskLedger(w.checked.ID())
			next, err2 := w.checked.LossAfter(uint32(i + 1))
			if err := errors.Join(err, err2); err != nil || l.WouldExceed || int(l.Rounds) != i || l.Next.Epsilon != next.Epsilon {
				t.Errorf("before round %d: %+v, %v", i, l, err)
			}
			if w.paid() != uint32(i) {
				t.Errorf("to ask costs: %d", w.paid())
			}
			if code, name := w.contribute(w.round(), "", some); code != 200 {
				t.Errorf("round %d: %d %s", i, code, name)
			}
			time.Sleep(minute)
		}
		l, err := w.agent.taskLedger(w.checked.ID())
		if err != nil || !l.WouldExceed || l.Reason == "" {
			t.Errorf("%+v, %v", l, err)
		}
		if code, name := w.contribute(w.round(), "", some); code != 403 || name != "over_budget" {
			t.Errorf("over the budget: %d %s", code, name)
		}
		rec := w.ask("GET", "/v1/ledger", nil)
		s := new(LedgerStatus)
		if err := json.Unmarshal(rec.Body.Bytes(), s); err != nil || s.Epsilon <= 0 || s.Epsilon > s.MaxEpsilon || len(s.Tasks) != 1 || !s.Tasks[0].WouldExceed {
			t.Errorf("%s, %v", rec.Body, err)
		}
	})
}

// TestNoRounds: after as many rounds as the recipe's guarantee covers it is said that there
// are no more, and not that this one was contributed to; another life of the agent knows it.
func TestNoRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", false)
		w.start()
		defer func() { w.stop() }()
		for i := range 20 {
			if code, name := w.contribute(w.round(), "", some); code != 200 {
				t.Fatalf("round %d: %d %s", i, code, name)
			}
			time.Sleep(minute)
		}
		for range 2 {
			if code, name := w.contribute(w.round(), "", some); code != 403 || name != "no_rounds" || w.paid() != 20 {
				t.Errorf("a round more: %d %s, %d paid", code, name, w.paid())
			}
			w.stop()
			w.start()
		}
	})
}

// TestTwoAgents: one home has one agent.
func TestTwoAgents(t *testing.T) {
	w := newWorld(t, "", false)
	w.start()
	defer func() { w.stop() }()
	if _, err := Open(t.Context(), w.options); !errors.As(err, new(*sender.BusyError)) {
		t.Errorf("a second agent: %v", err)
	}
}

// TestOutcomesAreNamed: each has a hint and an HTTP status, or is 503.
func TestOutcomesAreNamed(t *testing.T) {
	for _, name := range Outcomes[1:] {
		if hints[name] == "" {
			t.Errorf("%s has no hint", name)
		}
	}
	for name := range statuses {
		if !slices.Contains(Outcomes, name) {
			t.Errorf("%s is no outcome", name)
		}
	}
	if got := outcomeOf(io.ErrUnexpectedEOF); got != "unavailable" {
		t.Errorf("%s", got)
	}
}
