package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"testing/fstest"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/sqlite"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/service/database"
)

// TestRulesOfViews tries what no code may do with views: the database refuses it by itself.
func TestRulesOfViews(t *testing.T) {
	h := newHarness(1)
	task, plain := storetest.Task(t, dap.TimeInterval, 1), storetest.Task(t, dap.TimeInterval, 2)
	task.Views = []uint64{1, 7}
	w := storetest.NewWorld(t, h, task, plain)
	w.Upload(task, 14, 0, 5)
	w.Sort()
	w.Work(task)
	r := w.Ask(task, "the day", storetest.Interval(14, 1))
	if _, err := w.Store.Release(context.Background(), func() *store.Release {
		rel := w.ReleaseOf(task, r, w.Hold(r), new([]int64))
		rel.Sums = storetest.Sums(t, w.Store)
		return rel
	}()); err != nil {
		t.Fatal(err)
	}
	mem := h.mem.Crash()
	put := func(task int, first, last, view int) string {
		return "INSERT INTO release (seq, task, kind, resource_id, first, last, count, checksum, debit, position, answer, chain, total, view) VALUES " +
			fmt.Sprintf("(2, %d, 2, 'x', %d, %d, 9, zeroblob(32), '', %d, zeroblob(32), zeroblob(32), zeroblob(32), %d)", task, first, last, 3-task, view)
	}
	for _, statement := range []string{
		put(1, 14, 14, 0), // released before
		put(1, 14, 20, 0), // a week as a day
		put(1, 15, 21, 1), // no span of a week
		put(1, 14, 27, 1), // two weeks
		put(1, 15, 15, 1), // a day as a week
		put(2, 14, 14, 1), // of a task without views
		"UPDATE task_view SET units = 2 WHERE number = 0",
		"DELETE FROM task_view",
		"UPDATE bucket_sum SET box = x'00'",
		"INSERT INTO bucket_sum (batch, data_key, box) SELECT id, 4, x'00' FROM batch", // twice
		"UPDATE task SET over = -1",
	} {
		if err := change(t, mem, statement); !errors.Is(err, database.ErrConstraint) {
			t.Errorf("%s: %v", statement, err)
		}
	}
	for _, statement := range []string{"UPDATE task SET over = 15 WHERE id = 1", "DELETE FROM bucket_sum"} {
		if err := change(t, mem, statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	for _, statement := range []string{put(1, 14, 20, 1), "UPDATE task SET over = 14 WHERE id = 1"} {
		if err := change(t, mem, statement); !errors.Is(err, database.ErrConstraint) {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

// TestSumsAreAudited: a sum that is gone although a view waits for it, or is there although
// none does, is told; without it nothing of its views is released.
func TestSumsAreAudited(t *testing.T) {
	h := newHarness(1)
	task := storetest.Task(t, dap.TimeInterval, 1)
	task.Views = []uint64{1, 7}
	w := storetest.NewWorld(t, h, task)
	w.Upload(task, 14, 0, 5)
	w.Sort()
	w.Work(task)
	r := w.Ask(task, "the day", storetest.Interval(14, 1))
	rel := w.ReleaseOf(task, r, w.Hold(r), new([]int64))
	rel.Sums = storetest.Sums(t, w.Store)
	if _, err := w.Store.Release(context.Background(), rel); err != nil {
		t.Fatal(err)
	}
	mem := h.mem.Crash()
	if err := change(t, mem, "DELETE FROM bucket_sum"); err != nil {
		t.Fatal(err)
	}
	o := options(mem, nil)
	s, err := sqlite.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	problems, err := s.Audit(context.Background())
	if want := fmt.Sprintf("task %v bucket 14: its sum is gone, and a view waits for it", task.ID); err != nil || len(problems) != 1 || problems[0] != want {
		t.Errorf("%q, %v", problems, err)
	}
	if err := s.PutTask(context.Background(), task); err != nil {
		t.Fatal(err)
	}
	share, _, err := s.Create(context.Background(), store.KindShare, task.ID, "", []byte("the week"), false, storetest.Interval(14, 7), w.Now)
	if err != nil {
		t.Fatal(err)
	}
	rel.Resource, rel.Kind, rel.Selection = share.ID, store.KindShare, *storetest.Interval(14, 7)
	if _, err := s.Release(context.Background(), rel); !errors.Is(err, database.ErrDamaged) {
		t.Errorf("a week without a day: %v", err)
	}
}

// TestRowsOfBeforeViews: what the version before has written is migrated as it is: its
// releases are of view 0 and overlap as they did.
func TestRowsOfBeforeViews(t *testing.T) {
	mem := disktest.NewMem(1)
	older := make(fstest.MapFS)
	for _, name := range []string{"0001_start.sql", "0002_spent.sql"} {
		b, err := os.ReadFile("migrations/" + name)
		if err != nil {
			t.Fatal(err)
		}
		older[name] = &fstest.MapFile{Data: b}
	}
	changeAs := func(migrations fs.FS, statement string) error {
		t.Helper()
		db, err := database.Open(database.Options{FS: mem, Name: "store.db", Migrations: migrations,
			Statements: fstest.MapFS{"x.sql": {Data: []byte("-- name: change\n" + statement)}}})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		return db.Update(context.Background(), "change", func(tx *database.Tx) error {
			_, err := tx.Exec("change")
			return err
		})
	}
	for _, statement := range []string{
		"INSERT INTO task (task_id, config, mode, time_precision, min_batch) VALUES (zeroblob(32), x'00', 1, 300, 5)",
		"INSERT INTO batch (task, bucket, closed, verified, first_time, last_time) VALUES (1, 10, 1, 9, 10, 10)",
		insertRelease("1, 1, 2, 'x', 10, 12, NULL, 9, zeroblob(32), '', 1"),
	} {
		if err := changeAs(older, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	for _, statement := range []string{
		insertRelease("2, 1, 2, 'y', 12, 12, NULL, 9, zeroblob(32), '', 2"),
		insertRelease("2, 1, 2, 'y', 9, 15, NULL, 9, zeroblob(32), '', 2"),
		"UPDATE release SET view = 1",
	} {
		if err := change(t, mem, statement); !errors.Is(err, database.ErrConstraint) {
			t.Errorf("%s: %v", statement, err)
		}
	}
	if err := change(t, mem, insertRelease("2, 1, 2, 'y', 13, 15, NULL, 9, zeroblob(32), '', 2")); err != nil {
		t.Error(err)
	}
}
