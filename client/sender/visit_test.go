package sender

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/client/credentials"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
)

// An attester has both issuers' keys, and answers as often as it is told to.
type attester struct {
	keys   [2]*arc.PrivateKey
	away   int                  // how many visits get no answer
	answer func() (int, string) // in place of an answer; nil is none
	visits []time.Time
	during func() // a visit
}

func (a *attester) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	say := func(status int, b []byte) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(b))}, nil
	}
	if strings.HasSuffix(r.URL.Path, "/enrol") {
		return say(http.StatusOK, nil)
	}
	a.visits = append(a.visits, time.Now())
	if a.during != nil {
		a.during()
	}
	if len(a.visits) <= a.away {
		time.Sleep(700 * time.Millisecond) // until it is given up: no later visit moves with it
		return nil, errors.New("no route to the attester")
	}
	if a.answer != nil {
		status, word := a.answer()
		return say(status, []byte(word))
	}
	v, err := visit.Read(body)
	if err != nil {
		return nil, err
	}
	var out visit.Answer
	for i, of := range []struct {
		request []byte
		into    *[arc.ResponseSize]byte
	}{{v.Leader[:], &out.Leader}, {v.Helper[:], &out.Helper}} {
		request, err := arc.ReadCredentialRequest(of.request)
		if err != nil {
			return nil, err
		}
		response, err := a.keys[i].Respond(request)
		if err != nil {
			return nil, err
		}
		copy(of.into[:], response.Append(nil))
	}
	return say(http.StatusOK, out.Append(nil))
}

// counted is a recipe that counts devices, and the manifest of its next epoch.
func counted(t *testing.T, a *attester) (*recipe.Recipe, *ohttp.Manifest) {
	t.Helper()
	k := &recipe.ServerKeys{Collector: recipe.Hash{1}, EpochLength: 86400}
	tokens := &recipe.Tokens{Attester: "https://attester.example/", Attestation: recipe.Codes, MinCohort: 1}
	for _, key := range []*signed.PublicKey{&k.Leader, &k.Helper, &k.Gateway, &tokens.Key} {
		*key = signed.Generate().Public()
	}
	r, err := account.New(account.Options{Name: "test", Query: recipe.Count{}, MinBatch: 20, Leader: "https://leader.example/", Helper: "https://helper.example/",
		Epsilon: recipe.Decimal{Coefficient: 1}, Relay: &recipe.Relay{URL: "https://relay.example/", Gateway: "https://leader.example/g"}, ServerKeys: k, Tokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	deployment, err := r.Deployment()
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
	m := &ohttp.Manifest{Deployment: deployment, Epoch: ohttp.EpochAt(begin, k.Epoch()), Length: k.Epoch(), NotBefore: begin, NotAfter: begin.Add(k.Epoch()),
		Issuers: &ohttp.Issuers{Attester: tokens.Key, Cap: 10}}
	for i, into := range []*[ohttp.IssuerKeySize]byte{&m.Issuers.Leader, &m.Issuers.Helper} {
		a.keys[i] = arc.GenerateKey()
		copy(into[:], a.keys[i].PublicKey().Append(nil))
	}
	return r, m
}

// enrolled is a device that waits, and the instant that it has drawn, which is to come: one
// that has drawn this very second, as one in 86,000 does, is put away for another.
func enrolled(t *testing.T, a *attester) (p *Purse, m *ohttp.Manifest, at time.Time) {
	t.Helper()
	for p, m, at = drawn(t, a); !at.After(time.Now()); p, m, at = drawn(t, a) {
	}
	return p, m, at
}

func drawn(t *testing.T, a *attester) (p *Purse, m *ohttp.Manifest, at time.Time) {
	t.Helper()
	r, m := counted(t, a)
	p = &Purse{Dir: filepath.Join(t.TempDir(), "x"), Recipe: r, HTTP: a}
	if err := p.VisitInTime(t.Context(), m); !errors.Is(err, credentials.ErrNotEnrolled) || len(a.visits) > 0 {
		t.Fatalf("before it has enrolled: %v", err)
	}
	err := p.with(func(w *credentials.Wallet) (err error) {
		if err = w.Enrol(t.Context(), []byte("CODE")); err == nil {
			at, err = w.Plan(m)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, m, at
}

// TestVisitInTime: a device visits at the instant that it has drawn, and again at distances
// that nothing but that moves, until there is an answer; meanwhile others have its directory.
func TestVisitInTime(t *testing.T) {
	for _, away := range []int{0, 1, 3} {
		synctest.Test(t, func(t *testing.T) {
			a := &attester{away: away}
			p, m, at := enrolled(t, a)
			done := make(chan error, 1)
			go func() { done <- p.VisitInTime(t.Context(), m) }()
			synctest.Wait()
			err := p.with(func(w *credentials.Wallet) error {
				if e := w.Epochs(); len(e) != 1 || e[0].Held {
					t.Errorf("%+v", e)
				}
				return nil
			})
			if err != nil {
				t.Errorf("while it waits: %v", err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			d := apart(at, m.NotBefore)
			for i := range away + 1 {
				if want := at.Add(time.Duration(i) * d); i >= len(a.visits) || !a.visits[i].Equal(want) {
					t.Fatalf("visits at %v, want number %d at %v", a.visits, i, want)
				}
			}
			if len(a.visits) != away+1 {
				t.Errorf("%d visits, want %d", len(a.visits), away+1)
			}
			err = p.with(func(w *credentials.Wallet) error {
				if e := w.Epochs(); len(e) != 1 || !e[0].Held {
					t.Errorf("%+v", e)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHeldIsNotWaitedFor: a device that has its credentials waits for no instant.
func TestHeldIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := new(attester)
		p, m, at := enrolled(t, a)
		if err := p.Visit(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		if err := p.VisitInTime(t.Context(), m); err != nil || len(a.visits) != 1 || !time.Now().Equal(before) || !at.After(before) {
			t.Errorf("%v, %d visits, at %v, and the instant is %v", err, len(a.visits), time.Now(), at)
		}
	})
}

// TestVisitLeavesTheDirectory: while the attester is asked, others have the directory, for as
// long as they want, and nobody makes a second visit.
func TestVisitLeavesTheDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := new(attester)
		p, m, _ := enrolled(t, a)
		a.during = func() {
			x, err := p.Open()
			if err != nil {
				t.Fatalf("during a visit: %v", err)
			}
			if err := p.Visit(t.Context(), m); !errors.As(err, new(*BusyError)) {
				t.Errorf("a second visit: %v", err)
			}
			go func() { // who sends is not through when the answer comes
				time.Sleep(time.Second)
				if err := x.Close(); err != nil {
					t.Error(err)
				}
			}()
		}
		if err := p.Visit(t.Context(), m); err != nil || len(a.visits) != 1 {
			t.Fatalf("%v, %d visits", err, len(a.visits))
		}
		a.during = nil
		if err := p.Visit(t.Context(), m); err != nil || len(a.visits) != 1 {
			t.Errorf("%v, %d visits, though it has its credentials", err, len(a.visits))
		}
		err := p.with(func(w *credentials.Wallet) error {
			if e := w.Epochs(); len(e) != 1 || !e[0].Held {
				t.Errorf("%+v", e)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestVisitInTimeEnds: an answer that would be the same again ends the visits, and so do the
// epoch's beginning and a stop; one that may be another later does not.
func TestVisitInTimeEnds(t *testing.T) {
	refusals := func(status int, word string) func() (int, string) {
		return func() (int, string) { return status, word }
	}
	for _, c := range []struct {
		a    *attester
		word string
		once bool
	}{
		{&attester{answer: refusals(http.StatusTooManyRequests, "full")}, "full", true},
		{&attester{answer: refusals(http.StatusNotFound, "unknown-epoch")}, "unknown-epoch", false},
		{&attester{away: 1 << 30}, "no route", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, m, at := enrolled(t, c.a)
			err := p.VisitInTime(t.Context(), m)
			if err == nil || !strings.Contains(err.Error(), c.word) {
				t.Errorf("%v, want %q", err, c.word)
			}
			n := len(c.a.visits)
			if c.once != (n == 1) || n == 0 || !c.a.visits[n-1].Before(m.NotBefore) {
				t.Errorf("%s: %d visits, the last at %v", c.word, n, c.a.visits)
			}
			if !c.once && c.a.visits[n-1].Add(apart(at, m.NotBefore)).Before(m.NotBefore) {
				t.Errorf("%s: it gave up at %v, before %v", c.word, c.a.visits[n-1], m.NotBefore)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		p, m, _ := enrolled(t, &attester{})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.VisitInTime(ctx, m) }()
		synctest.Wait()
		stop()
		if err := <-done; !errors.As(err, new(*WaitError)) {
			t.Errorf("stopped: %v", err)
		}
	})
}
