package helper

import (
	"bytes"
	"context"
	"path"
	"strings"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/store"
)

// job is a job as it is stored.
func (r *rig) job(location string) *store.Resource {
	r.Helper()
	return check[*store.Resource](r.T)(r.h.store.Resource(
		context.Background(), store.KindAggregation, r.task.ID, path.Base(location[:len(location)-len("?step=0")])))
}

// TestSealedReportsGoWithTheLastStep: what a job keeps of the clients' sealed shares is
// gone once no step needs it.
func TestSealedReportsGoWithTheLastStep(t *testing.T) {
	t.Run("one round", func(t *testing.T) {
		r := newRig(t)
		r.h.engine = r.h.engine.(twoRounds).Engine
		r.h.opt.Deferred = Always
		loc, ids := r.start(3)
		if j := r.job(loc); j.State != store.Pending || !bytes.Contains(j.Body, ids[0][:]) {
			t.Fatalf("the deferred job is not stored: state %d, %d bytes", j.State, len(j.Body))
		}
		check[bool](t)(r.h.Step(context.Background()))
		if j := r.job(loc); j.State != store.Ready || j.Body != nil {
			t.Errorf("state %d, %d bytes of the request are kept", j.State, len(j.Body))
		}
		if got := r.aggregated(); got != 3 {
			t.Errorf("%d aggregated", got)
		}
	})
	t.Run("two rounds", func(t *testing.T) {
		r := newRig(t)
		r.h.opt.Deferred = Always
		loc, ids := r.start(3)
		request := r.job(loc).Body
		check[bool](t)(r.h.Step(context.Background()))
		if j := r.job(loc); j.Body == nil || !bytes.Contains(j.Response, request) {
			t.Fatal("the next round has nothing to compute from")
		}
		at, _, _ := strings.Cut(loc, "?")
		if w := r.next(at, 1, word, ids...); w.Code != 200 || len(r.resps(w)) != 3 {
			t.Fatalf("step 1: status %d %s", w.Code, w.Body)
		}
		first := r.next(at, 1, word, ids...).Body.Bytes() // again: the stored answer
		if j := r.job(loc); j.Body != nil || len(j.Response) != 2+len(first) {
			t.Errorf("%d bytes of the request and %d beside the answer of %d are kept", len(j.Body), len(j.Response), len(first))
		}
	})
}
