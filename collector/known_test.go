package collector

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
)

// TestKnown: whether a leader takes the token is asked once, without making anything, and
// no answer but that there is no such job is taken for a yes.
func TestKnown(t *testing.T) {
	for status, ok := range map[int]bool{404: true, 410: true, 401: false, 403: false, 500: false, 503: false} {
		r := testRecipe(histogram, recipe.NoNoise{}, dap.TimeInterval)
		l := newLeader(t, r)
		l.intercept = func(w http.ResponseWriter, r *http.Request) bool { http.Error(w, "", status); return true }
		err := l.collector(r, nil).Known(t.Context())
		if (err == nil) != ok || len(l.requests) != 1 || len(l.jobs) != 0 {
			t.Errorf("status %d: %v after %q", status, err, l.requests)
		}
	}
	r := testRecipe(histogram, recipe.NoNoise{}, dap.TimeInterval)
	for name, answer := range map[string]func(http.ResponseWriter){
		"the task is unknown": func(w http.ResponseWriter) {
			b, err := json.Marshal(dap.Problem{Type: dap.ProblemUnrecognizedTask, Status: 404})
			if err != nil {
				t.Error(err)
			}
			w.Header().Set("Content-Type", dap.ProblemMedia)
			w.WriteHeader(404)
			w.Write(b)
		},
		"a job is there": func(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/html"); w.Write([]byte("welcome")) },
	} {
		l := newLeader(t, r)
		l.intercept = func(w http.ResponseWriter, _ *http.Request) bool { answer(w); return true }
		if err := l.collector(r, nil).Known(t.Context()); err == nil {
			t.Errorf("%s: the token is said to be taken", name)
		}
	}
	l := newLeader(t, r)
	l.intercept = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", dap.ProblemMedia)
		w.WriteHeader(401)
		w.Write([]byte(`{"type":"about:blank","status":401}`))
		return true
	}
	if err, p := l.collector(r, nil).Known(t.Context()), new(dap.Problem); !errors.As(err, &p) || p.HTTPStatus() != 401 {
		t.Errorf("%v", err)
	}
}
