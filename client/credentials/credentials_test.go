package credentials_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/attester"
	"github.com/starling-agg/starling/anonymity/issuer"
	"github.com/starling-agg/starling/anonymity/mint"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/credentials"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

func is(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// none demands that no credentials are shown, and the reason.
func none(t *testing.T, err error, why credentials.Reason) {
	t.Helper()
	is(t, err, client.ErrNoCredentials)
	if e := new(credentials.NoneError); !errors.As(err, &e) || e.Reason != why {
		t.Errorf("got %v, want %q", err, why)
	}
}

// refused demands a word of the attester's.
func refused(t *testing.T, err error, word string) {
	t.Helper()
	var r *credentials.RefusedError
	if !errors.As(err, &r) || r.Word != word {
		t.Errorf("got %v, want %q", err, word)
	}
}

// TestCredentials is the way of a device to its credentials, and their end: enrolled, visited
// in time, shown once the epoch has begun and enough others have some, destroyed after it.
func TestCredentials(t *testing.T) {
	w := newWorld(t)
	m := w.manifest()
	var wallets []*credentials.Wallet
	for i := range 3 {
		fsys := disktest.NewMem(uint64(i))
		x := w.wallet(fsys)
		is(t, x.Visit(t.Context(), m), credentials.ErrNotEnrolled)
		if x.Enrolled() {
			t.Error("it is enrolled before it has enrolled")
		}
		is(t, x.Enrol(t.Context(), []byte(" "+strings.ToLower(w.codes[i])+"\n")), nil)
		if !w.wallet(fsys).Enrolled() {
			t.Error("it does not know that it is enrolled")
		}
		at, err := x.Plan(m)
		if err != nil || at.Before(w.time()) || !at.Before(begin) {
			t.Errorf("planned for %v, %v", at, err)
		}
		x = w.wallet(fsys) // it was restarted
		if again, err := x.Plan(m); err != nil || !again.Equal(at) {
			t.Errorf("planned for %v, and then for %v, %v", at, again, err)
		}
		is(t, x.Visit(t.Context(), m), nil)
		is(t, x.Visit(t.Context(), m), nil) // has them
		wallets = append(wallets, w.wallet(fsys))
	}
	one := wallets[0].For(2)
	_, err := w.wallet(disktest.NewMem(9)).For(2).Held(coming)
	none(t, err, credentials.ReasonNotEnrolled)
	_, err = one.Held(coming)
	none(t, err, credentials.ReasonNotBegun)
	issued := func(epoch uint32) (uint64, error) { return w.issuers[signed.Leader].Count(t.Context(), epoch) }
	for _, count := range []func(uint32) (uint64, error){issued, w.attester.Count} {
		if n, err := count(coming); err == nil {
			t.Errorf("%d devices are told of before the epoch begins", n)
		}
	}
	w.at(begin)
	_, err = one.Held(coming)
	none(t, err, credentials.ReasonUncounted)
	c := w.counts()
	if c != (arc.Cohort{Leader: 3, Helper: 3, Attested: 3}) {
		t.Errorf("%+v", c)
	}
	is(t, wallets[0].Told(m, c), nil)
	is(t, wallets[0].Told(m, arc.Cohort{}), nil) // what was said first holds
	_, err = wallets[0].For(4).Held(coming)
	none(t, err, credentials.ReasonFew)
	held, err := one.Held(coming)
	if err != nil {
		t.Fatal(err)
	}
	first := w.verified(held)
	is(t, wallets[1].Told(m, c), nil)
	other, err := wallets[1].For(2).Held(coming)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.verified(other); got[0] == first[0] || got[1] == first[1] {
		t.Error("two devices have one tag")
	}
	for _, epoch := range []uint64{coming - 1, coming + 1, coming + 1<<32} {
		_, err := one.Held(epoch)
		none(t, err, credentials.ReasonNone)
	}
	at, err := wallets[0].Plan(m)
	is(t, err, nil)
	want := credentials.Epoch{Number: coming, Visit: at, Begin: begin, Until: begin.Add(2 * length), Held: true, Counted: true, Cohort: c}
	if got := wallets[0].Epochs(); !slices.Equal(got, []credentials.Epoch{want}) {
		t.Errorf("%+v, want %+v", got, want)
	}
	w.at(begin.Add(2 * length)) // rounds that began in the epoch are over
	_, err = one.Held(coming)
	none(t, err, credentials.ReasonOver)
	if n, err := wallets[0].Forget(); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for i := range w.codes { // nothing of a device stands in a log
		if strings.Contains(w.log.String(), w.codes[i]) {
			t.Error("a code is logged")
		}
	}
}

// TestLostAnswers: whatever fails on the way of a visit, and whoever loses power, the same
// visit again has its credentials, and everybody counts one device.
func TestLostAnswers(t *testing.T) {
	points := slices.Concat(attester.Failpoints(), issuer.Failpoints(), mint.Failpoints())
	for _, at := range append(points, disk.LogFailpoints()...) {
		for skip := range 2 {
			t.Run(fmt.Sprintf("%s/%d", at, skip), func(t *testing.T) {
				w := newWorld(t)
				x := w.wallet(disktest.NewMem(1))
				is(t, x.Enrol(t.Context(), []byte(w.codes[0])), nil)
				var struck atomic.Bool // by both issuers
				w.fp.Arm(at, skip, func() error { struck.Store(true); return errors.New("no power") })
				err := x.Visit(t.Context(), w.manifest())
				w.fp.Disarm(at)
				if struck.Load() && err == nil && !strings.HasPrefix(at, "log.") {
					t.Error("the visit was answered, and did not hear of it")
				}
				w.crash()
				is(t, x.Visit(t.Context(), w.manifest()), nil)
				w.crash() // what was answered is on the disks
				w.at(begin)
				if c := w.counts(); c != (arc.Cohort{Leader: 1, Helper: 1, Attested: 1}) {
					t.Errorf("%+v", c)
				}
			})
		}
	}
	for _, party := range []string{"leader", "helper", "attester", "gateway"} {
		t.Run("answer of the "+party, func(t *testing.T) {
			w := newWorld(t)
			x := w.wallet(disktest.NewMem(1))
			is(t, x.Enrol(t.Context(), []byte(w.codes[0])), nil)
			for name, f := range map[string]func(http.ResponseWriter, *http.Request, http.Handler){
				"lost": func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
					next.ServeHTTP(httptest.NewRecorder(), r)
					panic(http.ErrAbortHandler)
				},
				"an error": func(rw http.ResponseWriter, r *http.Request, _ http.Handler) {
					http.Error(rw, "later", http.StatusInternalServerError)
				},
				"cut": func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
					got := httptest.NewRecorder()
					next.ServeHTTP(got, r)
					rw.Header().Set("Content-Type", got.Header().Get("Content-Type"))
					rw.Write(got.Body.Bytes()[:got.Body.Len()/2])
				},
				"too long": func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
					next.ServeHTTP(rw, r)
					rw.Write(make([]byte, 1<<20))
				},
			} {
				w.stand(party, func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
						rw.Header().Del("Content-Length")
						f(noLength{rw}, r, next)
					})
				})
				if err := x.Visit(t.Context(), w.manifest()); err == nil {
					t.Fatalf("%s: the visit is answered", name)
				}
				w.stand(party, nil)
			}
			is(t, x.Visit(t.Context(), w.manifest()), nil)
			w.at(begin)
			if c := w.counts(); c != (arc.Cohort{Leader: 1, Helper: 1, Attested: 1}) {
				t.Errorf("%+v", c)
			}
		})
	}
}

// noLength lets a handler write more or less than it said.
type noLength struct{ http.ResponseWriter }

func (w noLength) WriteHeader(status int) {
	w.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(status)
}

func (w noLength) Write(b []byte) (int, error) {
	w.Header().Del("Content-Length")
	return w.ResponseWriter.Write(b)
}

// TestSecondCredential: no device has two credentials: not by another visit, another secret, a
// code used again, or a wallet that was lost; and nobody has any without a code.
func TestSecondCredential(t *testing.T) {
	w := newWorld(t)
	m := w.manifest()
	fsys := disktest.NewMem(1)
	x := w.wallet(fsys)
	is(t, x.Enrol(t.Context(), []byte(w.codes[0])), nil)
	copied := disktest.NewMem(2)
	disktest.FilesOf(t, fsys).Put(t, copied)
	is(t, x.Visit(t.Context(), m), nil)
	refused(t, w.wallet(copied).Visit(t.Context(), m), "second-visit") // it has the secret, and makes another request
	refused(t, w.wallet(disktest.NewMem(3)).Enrol(t.Context(), []byte(w.codes[0])), "enrolled-other")
	for _, code := range []string{"", "x", strings.Repeat("A", 26), w.codes[1] + "A", string(w.codesFile[30:94])} {
		if err := w.wallet(disktest.NewMem(4)).Enrol(t.Context(), []byte(code)); err == nil {
			t.Errorf("enrolled with %q", code)
		}
	}
	w.crash()
	refused(t, w.wallet(copied).Visit(t.Context(), m), "second-visit")

	// As many as the manifest says, and no more: at the attester, and at an issuer whose
	// attester lets in more.
	w.most = 2
	y, z := w.wallet(disktest.NewMem(5)), w.wallet(disktest.NewMem(6))
	is(t, y.Enrol(t.Context(), []byte(w.codes[1])), nil)
	is(t, z.Enrol(t.Context(), []byte(w.codes[2])), nil)
	is(t, y.Visit(t.Context(), m), nil)
	refused(t, z.Visit(t.Context(), m), "full")
	is(t, x.Visit(t.Context(), m), nil)

	w.at(begin)
	late := w.wallet(disktest.NewMem(7))
	is(t, late.Enrol(t.Context(), []byte(w.codes[3])), nil)
	is(t, late.Visit(t.Context(), m), credentials.ErrTooLate)
	if c := w.counts(); c != (arc.Cohort{Leader: 2, Helper: 2, Attested: 2}) {
		t.Errorf("%+v", c)
	}
}

// order is one for an issuer, made by whoever has a root key.
func (w *world) order(root *signed.PrivateKey, role signed.Role) *visit.Order {
	w.t.Helper()
	p := arc.NewPending(arc.NewRequestContext(arc.Role(role), w.deployment, coming, w.public[role].ID()))
	o := &visit.Order{Role: role, Deployment: w.deployment, Epoch: coming, Request: [arc.RequestSize]byte(p.Request().Append(nil))}
	if err := o.Sign(signedtest.Signer(w.t, root, begin.AddDate(0, 0, -30), 60*24*time.Hour), w.time()); err != nil {
		w.t.Fatal(err)
	}
	return o
}

// TestForgedOrders: an issuer answers its attester alone, about its own epoch, in time, and no
// more than it may; whoever else asks, or sends what is no request, is refused in words of a
// closed set, and nothing is entered.
func TestForgedOrders(t *testing.T) {
	w := newWorld(t)
	post := func(path, media string, b []byte, header ...string) (int, string) {
		t.Helper()
		r, err := http.NewRequest(http.MethodPost, w.servers["leader"].URL+path, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", media)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, strings.TrimSpace(string(text))
	}
	good := func() *visit.Order { return w.order(w.root, signed.Leader) }
	resign := func(o *visit.Order) *visit.Order {
		if err := o.Sign(signedtest.Signer(t, w.root, begin.AddDate(0, 0, -30), 60*24*time.Hour), w.time()); err != nil {
			t.Fatal(err)
		}
		return o
	}
	change := func(f func(*visit.Order)) []byte { o := good(); f(o); return o.Append(nil) }
	again := func(f func(*visit.Order)) []byte { o := good(); f(o); return resign(o).Append(nil) }
	for name, x := range map[string]struct {
		body []byte
		want string
	}{
		"of another attester":             {w.order(signed.Generate(), signed.Leader).Append(nil), "not-ordered"},
		"for the helper's":                {w.order(w.root, signed.Helper).Append(nil), "not-ordered"},
		"made the leader's without it":    {change(func(o *visit.Order) { o.Epoch-- }), "unknown-epoch"},
		"another request under the order": {change(func(o *visit.Order) { o.Request = good().Request }), "not-ordered"},
		"another deployment":              {again(func(o *visit.Order) { o.Deployment[0]++ }), "not-ordered"},
		"another epoch":                   {again(func(o *visit.Order) { o.Epoch++ }), "unknown-epoch"},
		"a request of zeros":              {again(func(o *visit.Order) { o.Request = [arc.RequestSize]byte{} }), "malformed"},
		"a proof that does not hold":      {again(func(o *visit.Order) { o.Request[arc.RequestSize-1] ^= 1 }), "malformed"},
		"the identity":                    {again(func(o *visit.Order) { clear(o.Request[:33]) }), "malformed"},
		"off the curve":                   {again(func(o *visit.Order) { copy(o.Request[:33], bytes.Repeat([]byte{2}, 33)) }), "malformed"},
		"nothing":                         {nil, "malformed"},
		"cut":                             {good().Append(nil)[:100], "malformed"},
		"too long":                        {append(good().Append(nil), 0), "malformed"},
	} {
		if status, word := post("/", visit.OrderMedia, x.body); word != x.want || status/100 == 2 {
			t.Errorf("%s: %d %q, want %q", name, status, word, x.want)
		}
	}
	if status, word := post("/", "text/plain", good().Append(nil)); word != "malformed" {
		t.Errorf("as text: %d %q", status, word)
	}
	if resp, err := http.Get(w.servers["leader"].URL); err != nil || resp.StatusCode != http.StatusBadRequest {
		t.Errorf("GET: %v", err)
	}
	same := good().Append(nil)
	for _, want := range []string{"issued", "again"} {
		if status, _ := post("/", visit.OrderMedia, same); status != http.StatusOK || w.issuers[signed.Leader].Outcome(want) != 1 {
			t.Errorf("%s: %d", want, status)
		}
	}
	w.most = 1
	if _, word := post("/", visit.OrderMedia, good().Append(nil)); word != "full" {
		t.Errorf("%q", word)
	}
	w.at(begin)
	if _, word := post("/", visit.OrderMedia, same); word != "begun" {
		t.Errorf("%q", word)
	}
	if n, err := w.issuers[signed.Leader].Count(t.Context(), coming); n != 1 || err != nil {
		t.Errorf("%d are entered, %v", n, err)
	}
	for _, word := range issuer.Outcomes() {
		if n := w.issuers[signed.Leader].Outcome(word); word != "busy" && word != "failed" && n == 0 {
			t.Errorf("nothing is counted as %q", word)
		}
	}
}

// TestLyingIssuer: a device takes no credential but under the keys of the manifest, which all
// devices see; so an issuer with a key for it alone gets nothing, and what is for another
// request is none. An honest answer afterwards is taken.
func TestLyingIssuer(t *testing.T) {
	w := newWorld(t)
	x := w.wallet(disktest.NewMem(1))
	is(t, x.Enrol(t.Context(), []byte(w.codes[0])), nil)
	own := arc.GenerateKey()
	others, err := visit.ReadOrder(w.order(w.root, signed.Helper).Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	for name, answer := range map[string]func(o *visit.Order) ([]byte, error){
		"a key for this device": func(o *visit.Order) ([]byte, error) {
			q, err := arc.ReadCredentialRequest(o.Request[:])
			if err != nil {
				return nil, err
			}
			got, err := own.Respond(q)
			return got.Append(nil), err
		},
		"of another's request": func(*visit.Order) ([]byte, error) {
			got, _, err := w.issuers[signed.Helper].Issue(context.Background(), &others)
			return got, err
		},
		"zeros": func(*visit.Order) ([]byte, error) { return make([]byte, arc.ResponseSize), nil },
	} {
		w.stand("helper", func(http.Handler) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				b, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				o, err := visit.ReadOrder(b)
				if err != nil {
					t.Error(err)
				}
				got, err := answer(&o)
				if err != nil {
					t.Error(err)
				}
				rw.Header().Set("Content-Type", visit.ResponseMedia)
				rw.Write(got)
			})
		})
		if err := x.Visit(t.Context(), w.manifest()); !errors.Is(err, credentials.ErrAnswer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.stand("helper", nil)
	other := w.manifest()
	other.Issuers.Helper = [ohttp.IssuerKeySize]byte(own.PublicKey().Append(nil))
	is(t, x.Visit(t.Context(), other), credentials.ErrIssuers) // not that of when it was planned
	other.Deployment[0]++
	is(t, x.Visit(t.Context(), other), credentials.ErrIssuers)
	is(t, x.Visit(t.Context(), &ohttp.Manifest{Deployment: w.deployment}), credentials.ErrIssuers)
	is(t, x.Visit(t.Context(), w.manifest()), nil)

	// Credentials of one key are not counted with those of another, which a revision names.
	w.at(begin)
	other = w.manifest()
	other.Revision++
	other.Issuers.Leader = [ohttp.IssuerKeySize]byte(own.PublicKey().Append(nil))
	c := arc.Cohort{Leader: 90, Helper: 90, Attested: 90}
	is(t, x.Told(other, c), credentials.ErrIssuers)
	other.Issuers = nil
	is(t, x.Told(other, c), credentials.ErrIssuers)
	_, err = x.For(1).Held(coming)
	none(t, err, credentials.ReasonUncounted)
	is(t, x.Told(w.manifest(), c), nil)
	_, err = x.For(1).Held(coming)
	is(t, err, nil)
}

// TestSlowAttester: while the attester does not answer, the device shows what it has, and
// makes no second visit.
func TestSlowAttester(t *testing.T) {
	w := newWorld(t)
	m := w.manifest()
	x := w.wallet(disktest.NewMem(1))
	is(t, x.Enrol(t.Context(), []byte(w.codes[0])), nil)
	is(t, x.Visit(t.Context(), m), nil)
	w.at(begin)
	next := w.manifest()
	next.Epoch++
	next.NotBefore = begin.Add(length)
	asked, answer := make(chan struct{}), make(chan struct{})
	w.stand("attester", func(http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			asked <- struct{}{}
			<-answer
			rw.WriteHeader(http.StatusServiceUnavailable)
		})
	})
	visited := make(chan error, 1)
	go func() { visited <- x.Visit(t.Context(), next) }()
	<-asked
	shown := make(chan error, 1)
	go func() {
		err := x.Told(m, arc.Cohort{Leader: 1, Helper: 1, Attested: 1})
		if _, plan := x.Plan(next); err == nil {
			err = plan
		}
		if _, held := x.For(1).Held(coming); err == nil {
			err = held
		}
		shown <- err
	}()
	select {
	case err := <-shown:
		is(t, err, nil)
	case <-time.After(time.Minute):
		t.Error("what the device has waits for the attester")
	}
	close(answer)
	if err := <-visited; err == nil {
		t.Error("a visit without an answer")
	}
}

// doer is an attester within the process.
type doer func(*http.Request) (*http.Response, error)

func (d doer) Do(r *http.Request) (*http.Response, error) { return d(r) }

// TestOneVisitAtATime: whoever visits while another does waits for the end of that, as long as
// its context does.
func TestOneVisitAtATime(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		asked, answer := 0, make(chan struct{})
		x, err := credentials.Open(credentials.Options{Attester: "https://attester.example", Deployment: w.deployment, FS: disktest.NewMem(1), Now: w.time,
			HTTP: doer(func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, "enrol") {
					return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
				}
				asked++
				<-answer
				return nil, errors.New("away")
			})})
		is(t, err, nil)
		is(t, x.Enrol(t.Context(), []byte("code")), nil)
		visits := make(chan error, 3)
		impatient, leave := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{t.Context(), t.Context(), impatient} {
			go func() { visits <- x.Visit(ctx, w.manifest()) }()
			synctest.Wait()
		}
		if asked != 1 {
			t.Errorf("%d visits at one time", asked)
		}
		leave()
		is(t, <-visits, context.Canceled)
		for n := range 2 {
			answer <- struct{}{}
			<-visits
			synctest.Wait()
			if want := min(2, n+2); asked != want {
				t.Errorf("%d visits, want %d", asked, want)
			}
		}
	})
}

// TestLostVisit: an answer that was lost before it was kept is had again by the same
// visit, and of two answers to it the first stays: one device, and one credential.
func TestLostVisit(t *testing.T) {
	w := newWorld(t)
	m := w.manifest()
	fsys := disktest.NewMem(1)
	x := w.wallet(fsys)
	if _, err := x.Ask(m); !errors.Is(err, credentials.ErrNotEnrolled) {
		t.Errorf("got %v", err)
	}
	is(t, x.Enrol(t.Context(), []byte(w.codes[0])), nil)
	ask := func() *credentials.Asking {
		t.Helper()
		x := w.wallet(fsys) // as after a crash
		a, err := x.Ask(m)
		is(t, err, nil)
		is(t, a.FetchKeys(t.Context()), nil)
		is(t, x.Draw(a), nil)
		is(t, a.Send(t.Context()), nil)
		return a
	}
	ask() // lost
	first, second := ask(), ask()
	late := func() *credentials.Asking {
		a, err := w.wallet(fsys).Ask(m)
		is(t, err, nil)
		is(t, a.FetchKeys(t.Context()), nil)
		return a
	}()
	x = w.wallet(fsys)
	is(t, x.Keep(first), nil)
	kept := disktest.FilesOf(t, fsys)
	is(t, x.Keep(second), nil)
	is(t, w.wallet(fsys).Keep(second), nil)
	is(t, x.Draw(late), credentials.ErrState) // nothing is drawn in the place of what is held
	if !reflect.DeepEqual(disktest.FilesOf(t, fsys), kept) {
		t.Error("the second answer was kept")
	}
	if a, err := w.wallet(fsys).Ask(m); a != nil || err != nil {
		t.Errorf("%v, %v: it has its credentials", a, err)
	}
	is(t, w.wallet(disktest.NewMem(2)).Keep(first), credentials.ErrTooLate) // of a wallet that has forgotten the epoch
	w.at(begin)
	if c := w.counts(); c != (arc.Cohort{Leader: 1, Helper: 1, Attested: 1}) {
		t.Errorf("%+v", c)
	}
	is(t, w.wallet(fsys).Told(m, w.counts()), nil)
	held, err := w.wallet(fsys).For(1).Held(coming)
	is(t, err, nil)
	w.verified(held)
}

// TestManyEpochs: a device gives up nothing that it holds or has planned for an epoch
// that comes later, and takes that when another is over.
func TestManyEpochs(t *testing.T) {
	w := newWorld(t)
	fs := disktest.NewMem(1)
	x := w.wallet(fs)
	is(t, x.Enrol(t.Context(), []byte(w.codes[0])), nil)
	is(t, x.Visit(t.Context(), w.manifest()), nil)
	of := func(i int) *ohttp.Manifest {
		m := w.manifest()
		m.Epoch += uint32(i)
		m.NotBefore = m.NotBefore.Add(time.Duration(i) * length)
		return m
	}
	n := 1
	var err error
	for ; n < 100 && err == nil; n++ {
		_, err = x.Plan(of(n))
	}
	is(t, err, credentials.ErrFull)
	if n < 4 {
		t.Errorf("room for %d epochs", n)
	}
	x = w.wallet(fs)
	w.at(begin)
	if x.Told(of(0), arc.Cohort{Leader: 1, Helper: 1, Attested: 1}) != nil {
		t.Fatal("not told")
	}
	if _, err := x.For(1).Held(coming); err != nil {
		t.Errorf("what it held: %v", err)
	}
	w.at(begin.Add(2 * length))
	if _, err := x.Plan(of(n)); err != nil {
		t.Errorf("once one is over: %v", err)
	}
}

// TestAttesterForgets: an attester that lost what it knew of a device learns it again from the
// device, by the same code and secret, before the visit.
func TestAttesterForgets(t *testing.T) {
	w := newWorld(t)
	x := w.wallet(disktest.NewMem(1))
	is(t, x.Enrol(t.Context(), []byte(w.codes[0])), nil)
	w.stop()
	w.attesterFS[signed.Attester] = disktest.NewMem(40)
	w.start()
	is(t, x.Visit(t.Context(), w.manifest()), nil)
	if n := w.attester.Devices(); n != 1 {
		t.Errorf("%d devices", n)
	}
}

// TestWalletDamage: a wallet that was cut, turned or is another deployment's is refused and
// nothing is made in its place; what cannot be written is not used.
func TestWalletDamage(t *testing.T) {
	w := newWorld(t)
	mem := disktest.NewMem(1)
	x := w.wallet(mem)
	is(t, x.Enrol(t.Context(), []byte(w.codes[0])), nil)
	is(t, x.Visit(t.Context(), w.manifest()), nil)
	files := disktest.FilesOf(t, mem)
	open := func(b []byte, deployment [32]byte) error {
		fsys := disktest.NewMem(2)
		files.With("wallet", b).Put(t, fsys)
		_, err := credentials.Open(credentials.Options{Attester: "https://attester.example/", Deployment: deployment, FS: fsys})
		return err
	}
	good := files["wallet"]
	is(t, open(good, w.deployment), nil)
	is(t, open(good, [32]byte{1}), credentials.ErrState)
	is(t, open(append(bytes.Clone(good), 0), w.deployment), credentials.ErrState)
	for _, n := range []int{0, 1, 40, len(good) / 2, len(good) - 1} {
		is(t, open(good[:n], w.deployment), credentials.ErrState)
	}
	full := disktest.NewMem(3)
	y := w.wallet(full)
	full.Inject(func(disktest.Op, string) error { return errors.New("no room") })
	is(t, y.Enrol(t.Context(), []byte(w.codes[1])), credentials.ErrState)
	if w.attester.Devices() != 1 {
		t.Error("a secret that is not on the disk was sent")
	}
}
