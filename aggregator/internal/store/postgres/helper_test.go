//go:build postgres

package postgres_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/pgdb/pgtest"
	"github.com/starling-agg/starling/internal/releases"
	"github.com/starling-agg/starling/vdaf"
)

// helper is two replicas of one, with a task, and a session of the tables' owner.
type helper struct {
	t     *testing.T
	a, b  *postgres.Store
	task  *store.Task
	owner session

	schema *pgtest.Schema
	series *store.Series              // of the next release; may be nil
	built  func(share *vdaf.AggShare) // called with what is released; may be nil

	answerAs string // what is released; "share" where it is empty
}

func newHelper(t *testing.T) *helper {
	t.Helper()
	return newHelperIn(t, pgtest.New(t), func(*postgres.Options) {})
}

// newHelperIn has a's options changed, in a schema.
func newHelperIn(t *testing.T, s *pgtest.Schema, with func(*postgres.Options)) *helper {
	t.Helper()
	h := &helper{t: t, a: openWith(t, s, with), b: open(t, s), task: storetest.Task(t, dap.TimeInterval, 1), schema: s, owner: connect(t, s, s.Owner)}
	is(t, h.a.PutTask(t.Context(), h.task), nil)
	is(t, h.b.PutTask(t.Context(), h.task), nil)
	return h
}

// newFailing has failpoints of a's.
func newFailing(t *testing.T) (*helper, *disk.Failpoints) {
	t.Helper()
	fail := new(disk.Failpoints)
	return newHelperIn(t, pgtest.New(t), func(o *postgres.Options) { o.Database.Failpoints, o.Database.Prefix = fail, "store" }), fail
}

// newOlder has a task that came before tasks had secrets.
func newOlder(t *testing.T) *helper {
	t.Helper()
	s := pgtest.New(t)
	older(t, s)
	h := newHelperIn(t, s, func(*postgres.Options) {})
	_, err := postgres.Migrate(t.Context(), options(s).Database, true)
	is(t, err, nil)
	return h
}

// secrets has b give the task its secret.
func (h *helper) secrets() {
	h.t.Helper()
	for more := true; more; {
		var err error
		more, err = h.b.StepSecrets(h.t.Context())
		is(h.t, err, nil)
	}
}

// newMerging has b merge what is in a table, to one run, when a sends its next statement with
// some text after it was armed.
func newMerging(t *testing.T, text, table string, merge func(h *helper) error) (h *helper, armed *atomic.Bool) {
	t.Helper()
	s := pgtest.New(t)
	armed = new(atomic.Bool)
	line := pgtest.NewLine(t, s.Service, func(sql string) pgtest.Fate {
		if strings.Contains(sql, text) && armed.CompareAndSwap(true, false) {
			if err := merge(h); err != nil {
				t.Error(err)
			}
			if n := h.owner.counted(table); n != 1 {
				t.Errorf("%d runs after the merge", n)
			}
		}
		return pgtest.Arrives
	}, nil)
	return newHelperIn(t, s, func(o *postgres.Options) { o.Database.Connection = line.Connection }), armed
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
		Series: h.series, Draw: func(*vdaf.AggShare, store.Frozen) ([]int64, error) { return make([]int64, storetest.Elements), nil },
		Build: func(share *vdaf.AggShare, _ store.Frozen, _ []int64) ([]byte, *store.Kept, error) {
			if h.built != nil {
				h.built(share)
			}
			return []byte(cmp.Or(h.answerAs, "share")), kept, nil
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
	if !errors.Is(err, store.ErrAgain) {
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

// TestRunIsDamaged: of what a run had that is not what was written, no commit says whether
// it is aggregated, and it is mended with its very ids and no others.
func TestRunIsDamaged(t *testing.T) {
	ctx := t.Context()
	for what, x := range map[string]struct {
		sql     string
		another bool // a report that is not aggregated is not told either
	}{
		"ids":    {"UPDATE run SET ids = decode(repeat('00', length(ids)), 'hex')", false},
		"filter": {"UPDATE run SET filter = decode(repeat('00', length(filter)), 'hex')", true},
		"pages":  {"UPDATE run SET pages = decode(repeat('00', length(pages)), 'hex')", true},
		"sum":    {"UPDATE run SET sum = decode(repeat('00', length(sum)), 'hex')", true},
	} {
		t.Run(what, func(t *testing.T) {
			h := newHelper(t)
			h.answered(h.a, "one", "r000", h.commit(0, 1, 2))
			h.owner.ok(x.sql)
			if all, err := h.b.Damaged(ctx, h.task.ID); err != nil || len(all) != 0 {
				t.Errorf("damage that was not met: %v, %v", all, err)
			}
			_, err := h.answer(h.b, "another", h.commit(3))
			if is(t, err, map[bool]error{true: store.ErrDamaged}[x.another]); !x.another {
				h.aggregated(4)
			}
			_, err = h.answer(h.b, "again", h.commit(1))
			is(t, err, store.ErrDamaged)
			h.audit("run 1")
			count := 3
			if !x.another {
				count++
			}
			for _, e := range []*postgres.Store{h.a, h.b} {
				all, err := e.CheckReplay(ctx, h.task.ID)
				if is(t, err, nil); len(all) != 1 || all[0].IDs != 3 || all[0].Files != 1 {
					t.Fatalf("damaged are %+v", all)
				}
				if same, err := e.Damaged(ctx, h.task.ID); err != nil || len(same) != 1 || same[0] != all[0] {
					t.Errorf("%+v, %v", same, err)
				}
			}
			all, err := h.a.Damaged(ctx, h.task.ID)
			is(t, err, nil)
			ids := func(numbers ...int) (ids []dap.ReportID) {
				for _, n := range numbers {
					ids = append(ids, storetest.ReportID(n))
				}
				return ids
			}
			is(t, h.a.Mend(ctx, h.task.ID, [32]byte{1}, ids(0, 1, 2)), store.ErrNotFound)
			for _, wrong := range [][]dap.ReportID{ids(0, 1), ids(0, 1, 4), ids(0, 1, 2, 2), ids(0, 1, 2, 3), nil} {
				is(t, h.a.Mend(ctx, h.task.ID, all[0].Sum, wrong), store.ErrMismatch)
			}
			is(t, h.a.Mend(ctx, h.task.ID, all[0].Sum, ids(2, 0, 1)), nil)
			is(t, h.b.Mend(ctx, h.task.ID, all[0].Sum, ids(0, 1, 2)), store.ErrNotFound)
			for _, e := range []*postgres.Store{h.a, h.b} {
				if all, err := e.CheckReplay(ctx, h.task.ID); err != nil || len(all) != 0 {
					t.Errorf("%+v, %v", all, err)
				}
			}
			h.answered(h.b, "now", "r2", h.commit(1))
			h.aggregated(uint64(count))
			h.audit("")
		})
	}
}

// TestManyIDs: of more ids than a page or a statement has, each is known by whatever way
// one asks, at a handle that read them from the rows and at the one that wrote them.
func TestManyIDs(t *testing.T) {
	ctx := t.Context()
	h := newHelper(t)
	const jobs, each = 10, 3000
	id := func(n int) dap.ReportID {
		sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(n)))
		return dap.ReportID(sum[:16])
	}
	all := make([]dap.ReportID, jobs*each)
	for n := range all {
		all[n] = id(n)
	}
	for n := range jobs {
		c := &store.Commit{Task: h.task.ID, Batches: []store.Batch{{Start: 10}}}
		for _, id := range all[n*each : (n+1)*each] {
			c.Candidates = append(c.Candidates, store.Candidate{ID: id, Time: 10})
		}
		c.Fold = func([]dap.ReportError) ([]*vdaf.AggShare, error) {
			return []*vdaf.AggShare{h.task.VDAF.NewAggShare()}, nil
		}
		_, err := h.answer(h.a, fmt.Sprint(n), c)
		is(t, err, nil)
	}
	h.aggregated(jobs * each)
	h.audit("")
	ask := slices.Clone(all[:5000])
	for n := range 5000 {
		ask = append(ask, id(jobs*each+n))
	}
	for _, e := range []*postgres.Store{h.a, h.b} {
		for _, look := range []func(context.Context, dap.TaskID, []dap.ReportID) ([]bool, error){e.Seen, e.Aggregated} {
			seen, err := look(ctx, h.task.ID, ask)
			is(t, err, nil)
			for n, seen := range seen {
				if seen != (n < 5000) {
					t.Fatalf("id %d is seen: %v", n, seen)
				}
			}
		}
		slices.SortFunc(all, func(a, b dap.ReportID) int { return bytes.Compare(a[:], b[:]) })
		got, err := e.AggregatedIDs(ctx, h.task.ID, all[100], all[len(all)-100], 1<<20)
		if is(t, err, nil); !slices.Equal(got, all[100:len(all)-99]) {
			t.Fatalf("%d ids of a range", len(got))
		}
		got, err = e.AggregatedIDs(ctx, h.task.ID, dap.ReportID{}, all[len(all)-1], 10)
		if is(t, err, nil); !slices.Equal(got, all[:10]) {
			t.Fatalf("the first ids are %v", got)
		}
	}
}

// TestTidy: many commits leave few parts and tallies, which say the same.
func TestTidy(t *testing.T) {
	h := newHelper(t)
	const jobs = 140
	for n := range jobs {
		h.answered([]*postgres.Store{h.a, h.b}[n%2], fmt.Sprint(n), "r0", h.commit(n))
	}
	h.aggregated(jobs)
	h.audit("")
	for table, most := range map[string]int{"part": 34, "tally": 132} {
		var rows int
		if err := h.owner.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&rows); err != nil || rows > most {
			t.Errorf("%d rows in %s, %v", rows, table, err)
		}
	}
	numbers := make([]int, jobs)
	for n := range numbers {
		numbers[n] = n
	}
	var sum []int64
	h.built = func(share *vdaf.AggShare) {
		sum, _ = h.task.VDAF.Unshard([]*vdaf.AggShare{share, h.task.VDAF.NewAggShare()})
	}
	_, err := h.release(h.b, storetest.Interval(10, 1), jobs, checksum(numbers...), nil)
	is(t, err, nil)
	for n, v := range sum {
		if want := n < jobs; v != 0 != want || v > 1 {
			t.Fatalf("report %d counts %d times", n, v)
		}
	}
	h.audit("")
}

// TestHelperRetires: a task that has ended takes nothing more at any replica, and all of it
// goes but its counts and the ledger; another keeps its own.
func TestHelperRetires(t *testing.T) {
	ctx := t.Context()
	h := newHelper(t)
	other := storetest.Task(t, dap.TimeInterval, 2)
	ended := *h.task
	ended.End = storetest.Epoch
	for _, e := range []*postgres.Store{h.a, h.b} {
		is(t, e.PutTask(ctx, other), nil)
		is(t, e.PutTask(ctx, &ended), nil)
	}
	first := h.task
	h.task = other
	h.answered(h.a, "other", "r00", h.commit(40, 41))
	h.task = first
	h.answered(h.a, "one", "r00000", h.commit(0, 1, 2, 3, 4))
	h.answered(h.b, "two", "r0", storetest.Commit(t, first, []store.Batch{{Start: 11}}, []dap.Time{11}, [][]int{{5}}))
	kept := &store.Kept{Key: 1, Box: []byte("sealed"), Asked: []byte("asked")}
	is(t, h.a.NoteDataKey(ctx, datakey.SetID{1}, datakey.Record{Serial: 1, From: storetest.Epoch, Until: storetest.Epoch.Add(time.Hour)}), nil)
	_, err := h.release(h.a, storetest.Interval(10, 1), 5, checksum(0, 1, 2, 3, 4), kept)
	is(t, err, nil)
	waits, _, err := h.a.Create(ctx, store.KindAggregation, first.ID, "", []byte("waits"), true, nil, storetest.Epoch)
	is(t, err, nil)
	is(t, h.a.Retire(ctx, first.ID, storetest.Epoch.Add(-1)), store.ErrBusy)
	is(t, h.a.Retire(ctx, other.ID, storetest.Epoch.Add(9e15)), store.ErrBusy)
	is(t, h.a.Retire(ctx, dap.TaskID{9}, storetest.Epoch), store.ErrNotFound)
	if _, err := h.b.Sweep(ctx, first.ID, 100); err == nil {
		t.Error("swept what is not retired")
	}
	is(t, h.a.Retire(ctx, first.ID, storetest.Epoch), nil)
	is(t, h.b.Retire(ctx, first.ID, storetest.Epoch.Add(time.Hour)), nil)
	_, err = h.b.CommitJob(ctx, waits, h.commit(7), func([]dap.ReportError) ([]byte, error) { return nil, nil })
	is(t, err, store.ErrNotFound)
	steps := 0
	for more := true; more; steps++ {
		more, err = []*postgres.Store{h.a, h.b}[steps%2].Sweep(ctx, first.ID, 2)
		is(t, err, nil)
		h.audit("")
	}
	if more, err := h.a.Sweep(ctx, first.ID, 2); more || err != nil || steps < 3 {
		t.Errorf("after %d steps: %v, %v", steps, more, err)
	}
	for from, want := range map[string]int{
		"run WHERE task = 1": 0, "batch WHERE task = 1": 0, "resource WHERE task = 1": 0, "generation WHERE task = 1": 0, "kept": 0, "part": 1,
	} {
		var left int
		if err := h.owner.QueryRow(ctx, "SELECT count(*) FROM "+from).Scan(&left); err != nil || left != want {
			t.Errorf("%d rows are left in %s, want %d, %v", left, from, want, err)
		}
	}
	c, err := h.b.Counts(ctx, first.ID)
	if is(t, err, nil); c.Acknowledged != 6 || c.Aggregated != 6 || c.Collected != 5 {
		t.Errorf("counts are %+v", c)
	}
	if l, err := h.b.Ledger(ctx, first.ID); err != nil || l.Length != 1 {
		t.Errorf("%+v, %v", l, err)
	}
	h.task = other
	h.answered(h.b, "again", "r22", h.commit(40, 41))
	h.audit("")
	h.owner.ok("INSERT INTO batch (task, bucket) VALUES (1, 5)")
	h.audit("retired and swept, and rows of it are left")
}

// TestNoiseIsDamaged: noise that is not what was written is leaned on by no release.
func TestNoiseIsDamaged(t *testing.T) {
	for what, sql := range map[string]string{
		"box":  "UPDATE noise_part SET box = decode(repeat('00', length(box)), 'hex')",
		"gone": "DELETE FROM noise_part",
		"name": "UPDATE noise SET first = first - 1",
	} {
		t.Run(what, func(t *testing.T) {
			h := newHelper(t)
			is(t, h.correlate(h.a, 10, 0), nil)
			h.audit("")
			h.owner.ok(sql)
			h.audit("the noise of its release")
			if err := h.correlate(h.b, 11, 5); err == nil {
				t.Fatal("a release leaned on it")
			}
		})
	}
}

// correlate releases five reports of a bucket with noise that is correlated with that of
// the bucket before.
func (h *helper) correlate(e *postgres.Store, bucket dap.Time, first int) error {
	h.t.Helper()
	strategy, err := correlated.SquareRoot(3, 4)
	is(h.t, err, nil)
	c := storetest.Commit(h.t, h.task, []store.Batch{{Start: bucket}}, []dap.Time{bucket}, [][]int{{first, first + 1, first + 2, first + 3, first + 4}})
	h.answered(e, fmt.Sprint(bucket), "r00000", c)
	h.series = &store.Series{Rule: correlated.Series{Strategy: strategy, Separation: 4, Rounds: 9}, Units: 1}
	_, err = h.release(e, storetest.Interval(bucket, 1), 5, checksum(first, first+1, first+2, first+3, first+4), nil)
	return err
}

// TestOutcomesAreForgotten: what is remembered of old transactions goes, and the rest stays.
func TestOutcomesAreForgotten(t *testing.T) {
	h := newHelper(t)
	old := binary.BigEndian.AppendUint64(nil, uint64(time.Now().Add(-3*time.Hour).UnixMilli()))[2:]
	token := fmt.Sprintf("decode('%x', 'hex')", append(old, make([]byte, 10)...))
	h.owner.ok("INSERT INTO outcome (token, done) VALUES (" + token + ", true)")
	is(t, h.a.Bury(t.Context()), nil)
	var late, others int
	is(t, h.owner.QueryRow(t.Context(), "SELECT count(*) FILTER (WHERE token = "+token+"), count(*) FROM outcome").Scan(&late, &others), nil)
	if late != 0 || others == 0 {
		t.Errorf("%d old outcomes are kept, and %d others", late, others)
	}
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

// TestRunsMergedBetweenLooks: a merge that ends after runs were listed, and before the pages
// are read that ids would be in, has no id counted twice.
func TestRunsMergedBetweenLooks(t *testing.T) {
	h, merge := newMerging(t, "substring(run.ids", "run", func(h *helper) error { return h.b.MergeIDs(context.Background(), h.task.ID) })
	const runs = 8 // as many as are merged
	var all []int
	for n := range runs {
		h.answered(h.b, fmt.Sprint(n), "r0", h.commit(n))
		all = append(all, n)
	}
	if n := h.owner.counted("run"); n != runs {
		t.Fatalf("%d runs", n)
	}
	merge.Store(true)
	h.answered(h.a, "again", "r"+strings.Repeat("2", runs)+"0", h.commit(append(all, runs)...))
	if merge.Load() {
		t.Error("no page was read")
	}
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
