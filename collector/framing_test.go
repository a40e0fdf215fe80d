package collector

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
)

// janus is a leader that has collection jobs created by PUT under an id of the
// collector's choice, and names no Location.
func janus(t *testing.T, mode dap.BatchMode, batches int, saved *[]State) (*leader, *Collector) {
	t.Helper()
	r := testRecipe(histogram, recipe.NoNoise{}, mode)
	r.DAP = dap.Draft18
	l := newLeader(t, r, slices.Repeat([][2][]int64{{{1, 2, 3}, {4, 5, 6}}}, batches)...)
	l.framing = dap.Janus
	return l, l.collector(r, func(o *Options) {
		o.Framing, o.Attempts = dap.Janus, 1
		o.Save = func(s State) error { *saved = append(*saved, s); return nil }
	})
}

// TestFramingOfItsDraft: Janus's framing is one of draft 18, and nobody frames draft 19 so.
func TestFramingOfItsDraft(t *testing.T) {
	for version, fits := range map[dap.Version]bool{dap.Draft18: true, dap.Draft19: false} {
		for framing, refused := range map[dap.Framing]bool{dap.Standard: false, dap.Janus: !fits} {
			r := testRecipe(histogram, recipe.NoNoise{}, dap.TimeInterval)
			r.DAP = version
			_, err := New(Options{Recipe: encode(t, r), Token: token, Key: newLeader(t, r).key, Framing: framing})
			if (err != nil) != refused || refused && !strings.Contains(err.Error(), "draft 18") {
				t.Errorf("%v framed %v: %v", version, framing, err)
			}
		}
	}
}

// Each collection has an id of its own, saved before the leader hears of it.
func TestChosenIDs(t *testing.T) {
	var saved []State
	l, c := janus(t, dap.LeaderSelected, 2, &saved)
	for range 2 {
		res, err := c.Collect(t.Context(), c.NextBatch())
		if err != nil || res.Raw[0] != 5 {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	first, second := saved[0].JobID, saved[len(saved)-1].JobID
	if want := []string{"PUT " + first, "DELETE " + first, "PUT " + second, "DELETE " + second}; !slices.Equal(l.requests, want) {
		t.Errorf("asked %q, want %q", l.requests, want)
	}
	if first == second || !saved[0].Unsure || saved[0].Response != nil || saved[1].Unsure || saved[1].Response == nil {
		t.Errorf("saved %+v", saved)
	}
}

// A job whose creation got no answer is found under its name, whether or not the leader
// has it; and once the leader is known to have had it, it is not created again.
func TestUnsureJob(t *testing.T) {
	for name, arrives := range map[string]bool{"the request is lost": false, "the answer is lost": true} {
		t.Run(name, func(t *testing.T) {
			var saved []State
			l, c := janus(t, dap.LeaderSelected, 2, &saved)
			l.intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != "PUT" {
					return false
				}
				l.intercept = nil
				if arrives {
					l.create(http.ResponseWriter(discarded{}), r)
				}
				w.WriteHeader(http.StatusBadGateway)
				return true
			}
			var unavailable *UnavailableError
			if _, err := c.Start(t.Context(), c.NextBatch()); !errors.As(err, &unavailable) {
				t.Fatal(err)
			}
			j, err := c.Resume(saved[len(saved)-1])
			if err != nil {
				t.Fatal(err)
			}
			if res, err := j.Wait(t.Context()); err != nil || res.Raw[0] != 5 || l.made != 1 {
				t.Fatalf("%+v, %v after %d jobs", res, err, l.made)
			}
			// As the collector knew it before the leader answered for good: deleted jobs
			// stay deleted.
			state := j.State()
			state.Response = nil
			if err := j.Delete(t.Context()); err != nil {
				t.Fatal(err)
			}
			if j, err = c.Resume(state); err != nil {
				t.Fatal(err)
			}
			if _, err := j.Wait(t.Context()); !gone(err) || l.made != 1 {
				t.Errorf("%v after %d jobs", err, l.made)
			}
			for _, r := range l.requests {
				if id := r[strings.IndexByte(r, ' ')+1:]; id != state.JobID {
					t.Errorf("asked %q of the job %s", r, state.JobID)
				}
			}
		})
	}
}

// discarded is an answer that nobody hears.
type discarded struct{}

func (discarded) Header() http.Header         { return http.Header{} }
func (discarded) Write(b []byte) (int, error) { return len(b), nil }
func (discarded) WriteHeader(int)             {}
