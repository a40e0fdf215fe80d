package credentials_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/starling-agg/starling/client/credentials"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// lost has the attester do what it is asked, and nobody hear of it.
func (w *world) lost() {
	w.stand("attester", func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		})
	})
}

// TestMistypedCode: a code whose answer was lost is good still after another was tried.
func TestMistypedCode(t *testing.T) {
	w := newWorld(t)
	x := w.wallet(disktest.NewMem(1))
	w.lost()
	if err := x.Enrol(t.Context(), []byte(w.codes[0])); err == nil {
		t.Fatal("the answer was not lost")
	}
	w.stand("attester", nil)
	refused(t, x.Enrol(t.Context(), []byte(strings.Repeat("A", 26))), "unproved")
	is(t, x.Enrol(t.Context(), []byte(w.codes[0])), nil)
}

// TestVisitKnowsDevice: who answers a visit knows the device, whatever became of the
// answer to its enrolment.
func TestVisitKnowsDevice(t *testing.T) {
	w := newWorld(t)
	fsys := disktest.NewMem(1)
	x := w.wallet(fsys)
	w.lost()
	if err := x.Enrol(t.Context(), []byte(w.codes[0])); err == nil {
		t.Fatal("the answer was not lost")
	}
	w.stand("attester", nil)
	m := w.manifest()
	is(t, x.Visit(t.Context(), m), nil)
	if !x.Enrolled() || !w.wallet(fsys).Enrolled() {
		t.Error("it does not know that it is known")
	}
}

// TestTokensOfOneList: a device that has drawn requests under one list of the gateway's
// keys asks for nothing under another, of a later revision: whose token is of which would
// tell when they visited.
func TestTokensOfOneList(t *testing.T) {
	w := newWorld(t)
	x := w.wallet(disktest.NewMem(1))
	is(t, x.Enrol(t.Context(), []byte(w.codes[0])), nil)
	a, err := x.Ask(w.manifest())
	is(t, err, nil)
	is(t, a.FetchKeys(t.Context()), nil)
	is(t, x.Draw(a), nil)
	for i, k := range w.tokens {
		other := *k
		other.Keys = nil
		other.Generate(len(k.Keys))
		w.tokens[i] = &other
	}
	later := w.manifest()
	later.Revision = 1
	w.crash() // the attester hands on what the gateway has said for a minute
	is(t, x.Visit(t.Context(), later), credentials.ErrIssuers)
}
