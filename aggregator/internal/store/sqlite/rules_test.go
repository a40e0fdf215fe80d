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
		"INSERT INTO run (task, low, high, name, ids, size, sum, digest) SELECT task, low, high, name, ids, size, sum, digest FROM run LIMIT 1",          // a file named twice
		"INSERT INTO run (task, round, low, high, name, ids, size, sum, digest) SELECT task, 1, low, high, 'x', ids, size, sum, digest FROM run LIMIT 1", // of no round
		"UPDATE run SET low = high, high = low", // a range the wrong way round
		"UPDATE run SET low = x'00'",
		"INSERT INTO slice (object, start, size, sum, task, bucket, reports, duplicates, pieces) VALUES ((SELECT max(id) FROM object), 1, 1, zeroblob(32), 9, 1, 1, 0, x'00')", // no such task
		"INSERT INTO reseal (task, kind, resource_id, whose, former, latter, at) VALUES (1, 2, 'x', 0, zeroblob(32), zeroblob(32), 0)",                                         // never released
		"INSERT INTO data_key (serial, first, until) VALUES (1, 0, 10), (2, 9, 20)",                                                                                            // of one time
		"INSERT INTO data_key (serial, first, until) VALUES (1, 10, 10)",
		"INSERT INTO kept (resource, data_key, sealed_to, asked, peer, box) VALUES (1, 77, zeroblob(32), x'', '', x'')", // under no key
		"INSERT INTO resource (task, kind, resource_id, digest, created) SELECT task, kind, 'other', digest, 0 FROM resource",
	} {
		if err := change(t, mem, statement); !errors.Is(err, database.ErrConstraint) {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

// sliced is the disk of a store that has two files of slices: slices 101 and 102 of the
// first, and 103 of the second, of task 1 and bucket 30. Job 101 has the first and the
// third.
func sliced(t *testing.T) *disktest.Mem {
	mem := lived(t)
	for _, statement := range []string{
		"INSERT INTO object (id, name, slices, since) VALUES (101, 'inbox/1.log', 2, 0), (102, 'inbox/2.log', 1, 0)",
		"INSERT INTO slice (id, object, start, size, sum, task, bucket, reports, duplicates, pieces) VALUES " +
			"(101, 101, 64, 100, zeroblob(32), 1, 30, 3, 0, x'406401'), (102, 101, 200, 100, zeroblob(32), 1, 30, 3, 0, x'00'), (103, 102, 64, 100, zeroblob(32), 1, 30, 3, 0, x'00')",
		"INSERT INTO job (id, task, bucket, reports) VALUES (101, 1, 30, 6)",
		"UPDATE slice SET job = 101 WHERE id IN (101, 103)",
	} {
		if err := change(t, mem, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return mem
}

// TestRulesOfSlices: a job takes slices of its own, as long as it was not sent; a slice's
// reports do not change; a file that is named has an end.
func TestRulesOfSlices(t *testing.T) {
	mem := sliced(t)
	refused := func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if err := change(t, mem, statement); !errors.Is(err, database.ErrConstraint) {
				t.Errorf("%s: %v", statement, err)
			}
		}
	}
	taken := func(statement string) {
		t.Helper()
		if err := change(t, mem, statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	refused(
		"INSERT INTO slice (object, start, size, sum, task, bucket, reports, duplicates, pieces) VALUES (101, 64, 1, zeroblob(32), 1, 30, 1, 0, x'00')", // named twice
		"INSERT INTO slice (object, start, size, sum, task, bucket, reports, duplicates, pieces) VALUES (99, 64, 1, zeroblob(32), 1, 30, 1, 0, x'00')",  // no such file
		"INSERT INTO object (name, slices, since) VALUES ('inbox/1.log', 1, 0)",
		"UPDATE slice SET reports = 4 WHERE id = 102",
		"UPDATE slice SET sum = randomblob(32) WHERE id = 102",
		"UPDATE slice SET job = 7 WHERE id = 102", // no such job
		"DELETE FROM job",
		"DELETE FROM object WHERE id = 101",
		"UPDATE job SET sent_digest = zeroblob(32), sent_accepted = x'0000'", // more bits than reports
		"UPDATE job SET state = 1, parked = 1",
	)
	taken("INSERT INTO job (id, task, bucket, reports) VALUES (102, 1, 31, 3)")
	refused("UPDATE slice SET job = 102 WHERE id = 102") // of another bucket
	taken("UPDATE slice SET job = NULL WHERE id = 103")
	taken("UPDATE slice SET job = 101 WHERE id = 103")
	taken("UPDATE job SET sent_digest = zeroblob(32), sent_accepted = x'3f' WHERE id = 101")
	refused("UPDATE slice SET job = 101 WHERE id = 102", "UPDATE slice SET job = NULL WHERE id = 103")
}

// TestEndOfObjects: a file goes when its last slice ends, or is moved, and not before.
func TestEndOfObjects(t *testing.T) {
	mem := sliced(t)
	for _, c := range []struct{ statement, ended string }{
		{"DELETE FROM slice WHERE id = 101", ""},
		{"INSERT INTO object (id, name, slices, since) VALUES (103, 'slices/a.obj', 2, 0)", ""},
		{"UPDATE slice SET object = 103, start = 500 WHERE id = 102", "inbox/1.log"},
		{"UPDATE slice SET object = 103, start = 700 WHERE id = 103", "inbox/2.log"},
		{"DELETE FROM slice WHERE id = 103", ""},
		{"DELETE FROM slice WHERE id = 102", "slices/a.obj"},
	} {
		if err := change(t, mem, c.statement); err != nil {
			t.Fatalf("%s: %v", c.statement, err)
		}
		for _, name := range []string{"inbox/1.log", "inbox/2.log", "slices/a.obj"} {
			// fails where there is one
			err := change(t, mem, "INSERT INTO tombstone (name) VALUES ('"+name+"')")
			if name == c.ended && !errors.Is(err, database.ErrConstraint) {
				t.Errorf("%s: %s does not end: %v", c.statement, name, err)
			}
			if err == nil {
				err = change(t, mem, "DELETE FROM tombstone WHERE name = '"+name+"'")
			} else if name != c.ended {
				t.Errorf("%s: %s ends: %v", c.statement, name, err)
			}
			if name == c.ended {
				err = change(t, mem, "DELETE FROM tombstone WHERE name = '"+name+"'")
			}
			if err != nil {
				t.Error(err)
			}
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
		"UPDATE task SET acknowledged = acknowledged + 1":           "accounted for",
		"UPDATE task SET collected = collected - 1":                 "closed batches have",
		"DELETE FROM slice":                                         "accounted for",
		"INSERT INTO job (task, bucket, reports) VALUES (1, 30, 9)": "another number of reports than its slices",
		"UPDATE batch SET verified = 0, first_time = NULL, last_time = NULL, share = NULL, sum = NULL WHERE bucket = 20": "frozen by collection",
		"UPDATE resource SET answer_sum = zeroblob(32) WHERE state = 1":                                                  "its response is not what was written",
		"UPDATE resource SET response = x'00' WHERE state = 1":                                                           "its response is not what was written",
		"UPDATE batch SET closed = 1, share = NULL, sum = NULL WHERE bucket = 30":                                        "closed without a release",
		"DELETE FROM run WHERE id = (SELECT max(id) FROM run)":                                                           "replay runs have",
		"UPDATE slice SET pieces = x'4090d00303'":                                                                        "should have",
		"UPDATE object SET name = 'inbox/none.log'":                                                                      "missing",
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
	err := w.Store.FinishJob(context.Background(), old, w.CommitOf(task, old))
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
