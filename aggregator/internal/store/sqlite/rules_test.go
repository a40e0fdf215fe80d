package sqlite_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/sqlite"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/service/database"
	"github.com/starling-agg/starling/vdaf"
)

// lived is the disk of a store that has a released bucket (10), a frozen one (20) and an
// open one (30).
func lived(t *testing.T) *disktest.Mem {
	h := newHarness(1)
	task := storetest.Task(t, dap.TimeInterval, 1)
	w := storetest.NewWorld(t, h, task)
	first := 0
	for _, bucket := range []dap.Time{10, 20, 30} {
		w.Upload(task, bucket, first, first+5)
		w.Sort()
		w.Work(task)
		first += 6
	}
	r := w.Ask(task, "ten", storetest.Interval(10, 1))
	if _, err := w.Store.Release(context.Background(), w.ReleaseOf(task, r, w.Hold(r), new([]int64))); err != nil {
		t.Fatal(err)
	}
	w.Hold(w.Ask(task, "twenty", storetest.Interval(20, 1)))
	w.Upload(task, 30, 30, 32)
	w.Sort()
	return h.mem.Crash()
}

// change runs one statement on the rows of a store that is not open.
func change(t *testing.T, mem *disktest.Mem, statement string) error {
	t.Helper()
	db, err := database.Open(database.Options{
		FS: mem, Name: "store.db", Migrations: os.DirFS("migrations"),
		Statements: fstest.MapFS{"x.sql": {Data: []byte("-- name: change\n" + statement)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	return db.Update(context.Background(), "change", func(tx *database.Tx) error {
		_, err := tx.Exec("change")
		return err
	})
}

// insertRelease adds a row to the ledger whose digests are not what they should be.
func insertRelease(values string) string {
	return "INSERT INTO release (seq, task, kind, resource_id, first, last, batch_id, count, checksum, debit, position, answer, chain, total) " +
		"VALUES (" + values + ", zeroblob(32), zeroblob(32), zeroblob(32))"
}

// TestRulesOfTheSchema tries what no code may do: the database refuses it by itself.
func TestRulesOfTheSchema(t *testing.T) {
	mem := lived(t)
	for _, statement := range []string{
		"UPDATE release SET count = count + 1",
		"DELETE FROM release",
		"UPDATE batch SET closed = 0 WHERE bucket = 10",
		"UPDATE batch SET verified = 99 WHERE bucket = 10",
		"DELETE FROM batch WHERE bucket = 30",
		"UPDATE batch SET closed = 1 WHERE bucket = 30", // its share was kept
		"UPDATE batch SET share = NULL WHERE bucket = 30",
		insertRelease("2, 1, 2, 'x', 5, 10, NULL, 9, zeroblob(32), '', 2"),
		insertRelease("2, 1, 2, 'x', 30, 30, NULL, 4, zeroblob(32), '', 2"),
		insertRelease("3, 1, 2, 'x', 30, 30, NULL, 9, zeroblob(32), '', 2"), // a gap
		insertRelease("2, 1, 2, 'x', 30, 30, NULL, 9, zeroblob(32), '', 3"), // a gap in the task
		"INSERT INTO hold (resource, task, first, last, selection) SELECT 1, 1, 15, 25, zeroblob(16)",
		"UPDATE task SET collected = aggregated + 1",
		"UPDATE task SET acknowledged = 0",
		"INSERT INTO run SELECT 99, task, low, high, name, ids, size, sum, digest FROM run LIMIT 1", // a file named twice
		"UPDATE run SET low = high, high = low",                                                     // a range the wrong way round
		"UPDATE run SET low = x'00'",
		"INSERT INTO segment (name, size, sum, duplicates, task, bucket, reports) VALUES ('x', 1, zeroblob(32), 0, 9, 1, 1)",           // no such task
		"INSERT INTO reseal (task, kind, resource_id, whose, former, latter, at) VALUES (1, 2, 'x', 0, zeroblob(32), zeroblob(32), 0)", // never released
		"INSERT INTO data_key (serial, first, until) VALUES (1, 0, 10), (2, 9, 20)",                                                    // of one time
		"INSERT INTO data_key (serial, first, until) VALUES (1, 10, 10)",
		"INSERT INTO kept (resource, data_key, sealed_to, asked, peer, box) VALUES (1, 77, zeroblob(32), x'', '', x'')", // under no key
		"INSERT INTO resource (task, kind, resource_id, digest, created) SELECT task, kind, 'other', digest, 0 FROM resource",
	} {
		if err := change(t, mem, statement); !errors.Is(err, database.ErrConstraint) {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

// TestAuditSeesWrongRows changes rows in ways that the schema cannot forbid, and wants to
// hear of each.
func TestAuditSeesWrongRows(t *testing.T) {
	ctx := context.Background()
	mem := lived(t)
	audit := func(mem *disktest.Mem) []string {
		st, err := sqlite.Open(ctx, options(mem, nil))
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		if err := st.PutTask(ctx, storetest.Task(t, dap.TimeInterval, 1)); err != nil {
			t.Fatal(err)
		}
		problems, err := st.Audit(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return problems
	}
	if problems := audit(mem.Crash()); len(problems) > 0 {
		t.Fatalf("nothing was changed, but the audit says %q", problems)
	}
	for statement, want := range map[string]string{
		"UPDATE task SET acknowledged = acknowledged + 1": "accounted for",
		"UPDATE task SET collected = collected - 1":       "closed batches have",
		"UPDATE segment SET reports = reports - 1":        "accounted for",
		"UPDATE batch SET verified = 0, first_time = NULL, last_time = NULL, share = NULL, sum = NULL WHERE bucket = 20": "frozen by collection",
		"UPDATE resource SET answer_sum = zeroblob(32) WHERE state = 1":                                                  "its response is not what was written",
		"UPDATE resource SET response = x'00' WHERE state = 1":                                                           "its response is not what was written",
		"UPDATE batch SET closed = 1, share = NULL, sum = NULL WHERE bucket = 30":                                        "closed without a release",
		"DELETE FROM run WHERE id = (SELECT max(id) FROM run)":                                                           "replay runs have",
		"UPDATE segment SET size = size + 1":                                                                             "should have",
		"UPDATE segment SET name = 'segments/none.seg'":                                                                  "missing",
		"UPDATE resource SET state = 1, response = x'00', answer_sum = zeroblob(32) WHERE state = 0":                     "ledger",
		"UPDATE resource SET state = 2, problem = '{}' WHERE state = 0":                                                  "holds a batch",
		"UPDATE hold SET first = 5, last = 12":                                                                           "holds a batch",
		"UPDATE run SET sum = randomblob(32) WHERE id = (SELECT max(id) FROM run)":                                       "is not what was written",
		insertRelease("2, 1, 2, 'x', 40, 50, NULL, 9, zeroblob(32), 'nothing', 2"):                                       "its batches have 0",
		insertRelease("2, 1, 2, 'y', 40, 50, NULL, 9, zeroblob(32), 'nothing', 2") + " ":                                 "the ledger is damaged at release 2",
	} {
		broken := mem.Crash()
		if err := change(t, broken, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
		problems := audit(broken)
		if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, want) }) {
			t.Errorf("%s: the audit says %q, want %q", statement, problems, want)
		}
	}
}

// TestChangedSumsAreRefused: what is added up for a release is held to a hash of its own,
// before the first use of a life, whatever the pages say of themselves.
func TestChangedSumsAreRefused(t *testing.T) {
	mem := lived(t)
	for _, statement := range []string{
		"UPDATE batch SET share = (SELECT share FROM batch WHERE bucket = 20) WHERE bucket = 30",
		"UPDATE batch SET share = (SELECT share FROM batch WHERE bucket = 20), sum = (SELECT sum FROM batch WHERE bucket = 20) WHERE bucket = 30",
		"UPDATE batch SET bucket = 31 WHERE bucket = 30",
		"UPDATE batch SET verified = verified - 1 WHERE bucket = 30",
		"UPDATE batch SET verified = verified + 1 WHERE bucket = 20",
		"UPDATE batch SET first_time = first_time - 1 WHERE bucket = 20",
		"UPDATE batch SET last_time = last_time + 1 WHERE bucket = 20",
		"UPDATE batch SET checksum = randomblob(32) WHERE bucket = 30",
		"UPDATE batch SET share = zeroblob(7) WHERE bucket = 30",
		"UPDATE batch SET sum = zeroblob(32) WHERE bucket = 30",
	} {
		broken := mem.Crash()
		if err := change(t, broken, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
		st, err := sqlite.Open(t.Context(), options(broken, nil))
		if err == nil {
			st.Close()
		}
		if unfit := new(aggregator.StoreError); !errors.As(err, &unfit) || unfit.Fault != aggregator.DamagedStore ||
			!strings.Contains(err.Error(), "its aggregate share is not what was written") {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

// TestExchangedShares: rows that were exchanged under an open store are seen by its
// audit, and at their next use, after which the store answers nothing.
func TestExchangedShares(t *testing.T) {
	ctx := t.Context()
	st, err := sqlite.Open(ctx, options(lived(t), nil))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	task := storetest.Task(t, dap.TimeInterval, 1)
	if err := st.PutTask(ctx, task); err != nil {
		t.Fatal(err)
	}
	if err := st.Exchange(ctx, 20, 30); err != nil {
		t.Fatal(err)
	}
	problems, err := st.Audit(ctx)
	if err != nil || len(problems) < 2 || !strings.Contains(problems[0], "its aggregate share is not what was written") {
		t.Errorf("the audit says %q, %v", problems, err)
	}
	pending, err := st.PendingResources(ctx, store.KindCollection, 1)
	if err != nil || len(pending) != 1 || pending[0].Frozen == nil {
		t.Fatalf("%d collections: %v", len(pending), err)
	}
	f := pending[0].Frozen
	for range 2 {
		_, err := st.Release(ctx, &store.Release{
			Task: task.ID, Kind: store.KindCollection, Resource: pending[0].ID, Selection: f.Selection, Count: f.Count, Checksum: f.Checksum,
			Build: func(*vdaf.AggShare, store.Frozen, []int64) ([]byte, *store.Kept, error) {
				t.Error("a share that is another batch's is released")
				return nil, nil, nil
			},
		})
		if !errors.Is(err, database.ErrDamaged) || !errors.Is(err, store.ErrUnknown) {
			t.Errorf("released: %v", err)
		}
	}
	if _, err := st.Counts(ctx, task.ID); !errors.Is(err, database.ErrDamaged) {
		t.Errorf("the damaged store still answers: %v", err)
	}
}

// TestLeasesAreVoidAfterOpening: there is one process, so whoever held a lease before is
// gone.
func TestLeasesAreVoidAfterOpening(t *testing.T) {
	h := newHarness(1)
	task := storetest.Task(t, dap.TimeInterval, 1)
	w := storetest.NewWorld(t, h, task)
	w.Upload(task, 10, 0, 5)
	w.Sort()
	old := w.Claim(1)[0]
	w.Reopen(t)
	fresh := w.Claim(1) // at the same instant
	if len(fresh) != 1 || fresh[0].Lease.Attempts != 2 {
		t.Fatalf("claimed %+v", fresh)
	}
	err := w.Store.CommitSegment(context.Background(), old, w.CommitOf(task, old))
	if !errors.Is(err, store.ErrStaleLease) {
		t.Fatalf("a lease of an earlier life: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for name, opt := range map[string]sqlite.Options{
		"no FS":     {Record: disktest.NewMem(2), Role: dap.RoleLeader, Party: "x"},
		"no record": {FS: disktest.NewMem(1), Role: dap.RoleLeader, Party: "x"},
		"no role":   {FS: disktest.NewMem(1), Record: disktest.NewMem(2), Party: "x"},
		"no party":  {FS: disktest.NewMem(1), Record: disktest.NewMem(2), Role: dap.RoleHelper},
		"absolute":  {FS: disktest.NewMem(1), Record: disktest.NewMem(2), Role: dap.RoleLeader, Party: "x", File: "/store.db"},
		"climbing":  {FS: disktest.NewMem(1), Record: disktest.NewMem(2), Role: dap.RoleLeader, Party: "x", Runs: "../runs"},
		"few runs":  {FS: disktest.NewMem(1), Record: disktest.NewMem(2), Role: dap.RoleLeader, Party: "x", MaxRuns: -1},
	} {
		if _, err := sqlite.Open(context.Background(), opt); err == nil {
			t.Errorf("%s: passed", name)
		}
	}
}
