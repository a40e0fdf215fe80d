//go:build postgres

package postgres_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres/pgtest"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/releases"
	"github.com/starling-agg/starling/vdaf"
)

// helper is two replicas of one, with a task, and a session of the tables' owner.
type helper struct {
	t     *testing.T
	a, b  *postgres.Store
	task  *store.Task
	owner session
}

func newHelper(t *testing.T) *helper {
	t.Helper()
	s := pgtest.New(t)
	h := &helper{t: t, a: open(t, s), b: open(t, s), task: storetest.Task(t, dap.TimeInterval, 1)}
	is(t, h.a.PutTask(t.Context(), h.task), nil)
	is(t, h.b.PutTask(t.Context(), h.task), nil)
	h.owner = connect(t, s, s.Owner)
	return h
}

func (h *helper) commit(numbers ...int) *store.Commit {
	return storetest.Commit(h.t, h.task, []store.Batch{{Start: 10}}, []dap.Time{10}, [][]int{numbers})
}

// answer commits a job of that body at a replica.
func (h *helper) answer(e *postgres.Store, body string, c *store.Commit) (string, error) {
	h.t.Helper()
	r, _, err := e.Create(h.t.Context(), store.KindAggregation, h.task.ID, "", []byte(body), false, nil, storetest.Epoch)
	is(h.t, err, nil)
	b, err := e.CommitJob(h.t.Context(), r, c, func(verdict []dap.ReportError) ([]byte, error) {
		out := []byte("r")
		for _, v := range verdict {
			out = append(out, '0'+byte(v))
		}
		return out, nil
	})
	return string(b), err
}

// answered demands that answer of a job.
func (h *helper) answered(e *postgres.Store, body, want string, c *store.Commit) {
	h.t.Helper()
	if got, err := h.answer(e, body, c); err != nil || got != want {
		h.t.Fatalf("job %s was answered %q, %v, want %q", body, got, err, want)
	}
}

func (h *helper) audit(want string) {
	h.t.Helper()
	problems, err := h.b.Audit(h.t.Context())
	is(h.t, err, nil)
	if got := strings.Join(problems, "; "); want == "" && got != "" || !strings.Contains(got, want) {
		h.t.Fatalf("the audit says %q, want %q", got, want)
	}
}

// aggregated demands how many reports are aggregated.
func (h *helper) aggregated(want uint64) {
	h.t.Helper()
	c, err := h.b.Counts(h.t.Context(), h.task.ID)
	if is(h.t, err, nil); c.Aggregated != want {
		h.t.Fatalf("%+v, want %d aggregated", c, want)
	}
}

// release asks a replica for the share of buckets that hold reports first to last.
func (h *helper) release(e *postgres.Store, sel *store.Selection, count uint64, checksum dap.Checksum, kept *store.Kept) (*store.Resource, error) {
	h.t.Helper()
	r, _, err := e.Create(h.t.Context(), store.KindShare, h.task.ID, "", fmt.Append(nil, *sel), true, sel, storetest.Epoch)
	is(h.t, err, nil)
	_, err = e.Release(h.t.Context(), &store.Release{
		Resource: r.ID, Task: h.task.ID, Kind: store.KindShare, Selection: *sel, Count: count, Checksum: checksum,
		Build: func(*vdaf.AggShare, store.Frozen, []int64) ([]byte, *store.Kept, error) {
			return []byte("share"), kept, nil
		},
	})
	return r, err
}

func checksum(numbers ...int) (sum dap.Checksum) {
	for _, n := range numbers {
		sum.Add(storetest.ReportID(n))
	}
	return sum
}

// TestFlightIsGone: a commit that was too long under way, or whose server lost its flights,
// begins again, and folds once. One whose reports another replica took meanwhile is not
// committed, and is answered when it is asked again.
func TestFlightIsGone(t *testing.T) {
	h := newHelper(t)
	during := func(c *store.Commit, other func()) *store.Commit {
		fold := c.Fold
		c.Fold = func(verdict []dap.ReportError) ([]*vdaf.AggShare, error) {
			other()
			return fold(verdict)
		}
		return c
	}
	empty := func() { h.owner.ok("DELETE FROM flight") }
	h.answered(h.a, "one", "r00", during(h.commit(0, 1), empty))
	h.aggregated(2)
	h.audit("")
	_, err := h.answer(h.a, "two", during(h.commit(1, 2, 3), func() {
		empty()
		h.answered(h.b, "three", "r0", h.commit(3))
	}))
	if err == nil || !strings.Contains(err.Error(), "ask again") {
		t.Fatalf("a commit whose reports were taken meanwhile: %v", err)
	}
	h.aggregated(3)
	h.answered(h.a, "two", "r202", h.commit(1, 2, 3))
	h.aggregated(4)
	h.audit("")
	// What a replica left that died goes by the clock.
	id := storetest.ReportID(4)
	h.owner.ok(fmt.Sprintf("INSERT INTO flight (token, task, ids, expires) VALUES (decode(repeat('00', 16), 'hex'), 1, decode('%x', 'hex'), now() - interval '1 second')", id[:]))
	h.answered(h.b, "four", "r02", h.commit(4, 0))
	var left int
	if err := h.owner.QueryRow(t.Context(), "SELECT count(*) FROM flight").Scan(&left); err != nil || left != 0 {
		t.Fatalf("%d flights are left, %v", left, err)
	}
}

// TestPartIsDamaged: a part that is not what was written is found, and is never released.
func TestPartIsDamaged(t *testing.T) {
	for what, sql := range map[string]string{
		"count": "UPDATE part SET reports = reports + 1",
		"time":  "UPDATE part SET last_time = last_time + 1",
		"share": "UPDATE part SET share = decode(repeat('00', length(share)), 'hex')",
		"other": "UPDATE part SET share = (SELECT share FROM part WHERE id = 2), sum = (SELECT sum FROM part WHERE id = 2) WHERE id = 1",
	} {
		t.Run(what, func(t *testing.T) {
			h := newHelper(t)
			h.answered(h.a, "one", "r000", h.commit(0, 1, 2))
			h.answered(h.b, "two", "r000", h.commit(3, 4, 5))
			h.audit("")
			h.owner.ok(sql)
			h.audit("a part of its aggregate share is not what was written")
			count := uint64(6)
			if what == "count" {
				count = 8
			}
			if _, err := h.release(h.a, storetest.Interval(10, 1), count, checksum(0, 1, 2, 3, 4, 5), nil); err == nil {
				t.Fatal("it was released")
			}
		})
	}
}

// TestRunIsDamaged: a run that is not what was written lets no commit of its task go on.
func TestRunIsDamaged(t *testing.T) {
	h := newHelper(t)
	h.answered(h.a, "one", "r000", h.commit(0, 1, 2))
	h.owner.ok("UPDATE run SET ids = decode(repeat('00', length(ids)), 'hex')")
	_, err := h.answer(h.b, "two", h.commit(3))
	is(t, err, store.ErrDamaged)
	h.audit("run 1 is not what was written")
}

// TestRunsMerge: many commits leave few runs, at whatever replica, and each id is known to
// all of them.
func TestRunsMerge(t *testing.T) {
	h := newHelper(t)
	const jobs = 40
	for n := range jobs {
		h.answered([]*postgres.Store{h.a, h.b}[n%2], fmt.Sprint(n), "r0", h.commit(n))
	}
	var rows, ids int
	if err := h.owner.QueryRow(t.Context(), "SELECT count(*), sum(count) FROM run").Scan(&rows, &ids); err != nil || rows > 9 || ids != jobs {
		t.Fatalf("%d runs have %d ids, %v", rows, ids, err)
	}
	h.audit("")
	all := make([]int, jobs)
	for n := range all {
		all[n] = n
	}
	h.answered(h.a, "all", "r"+strings.Repeat("2", jobs)+"0", h.commit(append(all, jobs)...))
	h.answered(h.b, "again", "r"+strings.Repeat("2", jobs)+"2", h.commit(append(all, jobs)...))
	h.audit("")
}

// TestHelperLedger: the ledger has the releases of a task in their order, with the answer
// of each, at whatever replica, and its head is moved with it.
func TestHelperLedger(t *testing.T) {
	ctx := t.Context()
	h := newHelper(t)
	chain := releases.Begin(h.task.ID)
	chains := []releases.Digest{chain}
	for n := range 3 {
		first := 5 * n
		c := storetest.Commit(t, h.task, []store.Batch{{Start: dap.Time(10 + n)}}, []dap.Time{dap.Time(10 + n)}, [][]int{{first, first + 1, first + 2, first + 3, first + 4}})
		h.answered(h.a, fmt.Sprint(n), "r00000", c)
		e := []*postgres.Store{h.a, h.b}[n%2]
		sel := storetest.Interval(dap.Time(10+n), 1)
		_, err := h.release(e, sel, 5, checksum(first, first+1, first+2, first+3, first+4), nil)
		is(t, err, nil)
		chain = chain.Next(&releases.Release{Batch: releases.Units(sel.Interval), Count: 5, Answer: sha256.Sum256([]byte("share"))})
		chains = append(chains, chain)
	}
	if l, err := h.b.Ledger(ctx, h.task.ID); err != nil || l != (store.Ledger{Length: 3, Chain: chain}) {
		t.Errorf("%+v, %v", l, err)
	}
	for n, want := range chains {
		if got, err := h.a.LedgerAt(ctx, h.task.ID, uint64(n)); err != nil || got != want {
			t.Errorf("at %d: %x, %v", n, got, err)
		}
	}
	for _, beyond := range []uint64{4, 1 << 63} {
		_, err := h.a.LedgerAt(ctx, h.task.ID, beyond)
		is(t, err, store.ErrNotFound)
	}
	list, err := h.b.ReleasesAfter(ctx, h.task.ID, 1, 1)
	if is(t, err, nil); len(list) != 1 || list[0].Seq != 2 || list[0].Count != 5 || !bytes.Equal(list[0].Batch, []byte{7: 11, 15: 11}) {
		t.Errorf("%+v", list)
	}
	h.audit("")
	h.owner.ok("UPDATE head SET seq = 2")
	h.audit("the ledger has 3 releases, its head says 2")
}

// TestHelperKeeps: what a release keeps is there, is counted under its key, is sealed again
// by who saw the answer that is there, and goes with the resource.
func TestHelperKeeps(t *testing.T) {
	ctx := t.Context()
	h := newHelper(t)
	is(t, h.a.NoteDataKey(ctx, datakey.SetID{1}, datakey.Record{Serial: 4, From: storetest.Epoch, Until: storetest.Epoch.Add(time.Hour)}), nil)
	h.answered(h.a, "one", "r00000", h.commit(0, 1, 2, 3, 4))
	if n, err := h.a.KeptUnder(ctx, 1); n != 1 || err != nil { // the part, until it is released
		t.Errorf("%d lie under the key of now, %v", n, err)
	}
	kept := &store.Kept{Key: 4, Box: []byte("sealed"), To: [32]byte{1}, Asked: []byte("asked"), Peer: "theirs"}
	r, err := h.release(h.b, storetest.Interval(10, 1), 5, checksum(0, 1, 2, 3, 4), kept)
	is(t, err, nil)
	k, err := h.a.Kept(ctx, store.KindShare, h.task.ID, r.ID)
	if is(t, err, nil); k.Key != 4 || string(k.Box) != "sealed" || k.To != kept.To || string(k.Asked) != "asked" || k.Peer != "theirs" {
		t.Errorf("kept is %+v", k)
	}
	if n, err := h.a.KeptUnder(ctx, 4); n != 1 || err != nil {
		t.Errorf("%d lie under the key, %v", n, err)
	}
	change := store.Reseal{
		Task: h.task.ID, Kind: store.KindShare, Resource: r.ID, Whose: store.Own, From: [32]byte{1}, To: [32]byte{2},
		Former: []byte("share"), Response: []byte("again"), Now: storetest.Epoch,
	}
	for _, spoil := range []func(*store.Reseal){
		func(r *store.Reseal) { r.From = [32]byte{9} },
		func(r *store.Reseal) { r.Former = []byte("other") },
	} {
		wrong := change
		spoil(&wrong)
		is(t, h.a.Reseal(ctx, &wrong), store.ErrDifferent)
	}
	is(t, h.a.Reseal(ctx, &change), nil)
	is(t, h.b.Reseal(ctx, &change), store.ErrDifferent)
	now, err := h.b.Resource(ctx, store.KindShare, h.task.ID, r.ID)
	if is(t, err, nil); string(now.Response) != "again" {
		t.Errorf("the answer is %q", now.Response)
	}
	h.audit("")
	is(t, h.b.Delete(ctx, store.KindShare, h.task.ID, r.ID), nil)
	if kept, resealed, err := h.a.Shares(ctx, h.task.ID); kept != 0 || resealed != 1 || err != nil {
		t.Errorf("%d kept, sealed again %d times, %v", kept, resealed, err)
	}
	_, err = h.a.Kept(ctx, store.KindShare, h.task.ID, r.ID)
	is(t, err, store.ErrNotFound)
	var answers []string
	is(t, h.a.Answers(ctx, h.task.ID, func(response []byte) error { answers = append(answers, string(response)); return nil }), nil)
	if len(answers) != 1 || answers[0] != "r00000" {
		t.Errorf("answers are %q", answers)
	}
	stop := errors.New("stop")
	is(t, h.a.Answers(ctx, h.task.ID, func([]byte) error { return stop }), stop)
}
