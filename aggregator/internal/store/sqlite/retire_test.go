package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/sqlite"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/service/database"
)

// ended is the task of the tests here, as it is provisioned once it is over.
func ended(t *testing.T) *store.Task {
	task := storetest.Task(t, dap.TimeInterval, 1)
	task.End = storetest.Epoch
	return task
}

// openEnded opens a store of [lived].
func openEnded(t *testing.T, mem *disktest.Mem, fail *disk.Failpoints) *sqlite.Store {
	t.Helper()
	st, err := sqlite.Open(context.Background(), options(mem, fail))
	if err != nil {
		t.Fatal(err)
	}
	if err := st.PutTask(context.Background(), ended(t)); err != nil {
		t.Fatal(err)
	}
	return st
}

// retired is a disk on which the task is retired, and swept if so asked.
func retired(t *testing.T, mem *disktest.Mem, sweep bool) *disktest.Mem {
	t.Helper()
	ctx := context.Background()
	st := openEnded(t, mem, nil)
	if err := st.Retire(ctx, ended(t).ID, storetest.Epoch.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if sweep {
		if more, err := st.Sweep(ctx, ended(t).ID, 1000); more || err != nil {
			t.Fatal(more, err)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return mem.Crash()
}

// TestRetiredRules: the database itself lets nothing into a retired task and does not
// bring it back.
func TestRetiredRules(t *testing.T) {
	mem := retired(t, lived(t), false)
	for _, statement := range []string{
		"UPDATE task SET retired = NULL",
		"UPDATE task SET retired = retired + 1",
		"UPDATE task SET aggregated = aggregated - 1",
		"UPDATE task SET collected = collected + 1",
		"INSERT INTO batch (task, bucket) VALUES (1, 77)",
		"INSERT INTO slice (object, start, size, sum, task, bucket, reports, duplicates, pieces) VALUES ((SELECT max(id) FROM object), 1, 1, zeroblob(32), 1, 1, 1, 0, x'00')",
		"INSERT INTO run (task, low, high, name, ids, size, sum, digest) VALUES (1, zeroblob(16), zeroblob(16), 'x', 1, 1, zeroblob(32), zeroblob(32))",
		"INSERT INTO resource (task, kind, resource_id, digest, created) VALUES (1, 1, 'x', zeroblob(32), 0)",
		"INSERT INTO release (task, kind, resource_id, first, last, count, checksum, debit) VALUES (1, 2, 'x', 90, 90, 9, zeroblob(32), '')",
		"DELETE FROM release",
	} {
		if err := change(t, mem, statement); !errors.Is(err, database.ErrConstraint) {
			t.Errorf("%s: %v", statement, err)
		}
	}
	if err := change(t, retired(t, lived(t), true), "UPDATE task SET swept = 0"); !errors.Is(err, database.ErrConstraint) {
		t.Errorf("unswept: %v", err)
	}
	if err := change(t, lived(t), "UPDATE task SET swept = 1"); !errors.Is(err, database.ErrConstraint) {
		t.Errorf("swept without an end: %v", err)
	}
}

// TestAuditSeesWrongRetirement changes what the schema cannot forbid.
func TestAuditSeesWrongRetirement(t *testing.T) {
	audit := func(mem *disktest.Mem) []string {
		st := openEnded(t, mem, nil)
		defer st.Close()
		problems, err := st.Audit(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return problems
	}
	for _, c := range []struct {
		sweep           bool
		statement, want string
	}{
		{false, "UPDATE task SET swept = 1", "rows of it are left"},
		{true, "INSERT INTO generation (task, kind, digest, deleted) VALUES (1, 1, zeroblob(32), 1)", "rows of it are left"},
		{true, "UPDATE task SET acknowledged = acknowledged + 1", "accounted for"},
		{false, "UPDATE object SET name = 'inbox/none.log'", "missing"},
	} {
		mem := retired(t, lived(t), c.sweep)
		if problems := audit(mem.Crash()); len(problems) > 0 {
			t.Fatalf("nothing was changed, but the audit says %q", problems)
		}
		mem = mem.Crash()
		if err := change(t, mem, c.statement); err != nil {
			t.Fatal(err)
		}
		if problems := audit(mem); !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, c.want) }) {
			t.Errorf("%s: the audit says %q, want %q", c.statement, problems, c.want)
		}
	}
	mem := lived(t)
	if err := change(t, mem, "UPDATE task SET retired = 1"); err != nil {
		t.Fatal(err)
	}
	if problems := audit(mem); !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, "before its end") }) {
		t.Errorf("retired in 1970: the audit says %q", problems)
	}
}

// TestSweepLosesPower: whatever is lost in between, the next life goes on to the same end.
func TestSweepLosesPower(t *testing.T) {
	ctx := context.Background()
	for _, point := range []string{"retire-task.before-commit", "retire-task.after-commit", "sweep-task.before-commit", "sweep-task.after-commit"} {
		for skip := range 4 {
			if skip > 0 && strings.HasPrefix(point, "retire") {
				continue
			}
			mem, fail := lived(t), new(disk.Failpoints)
			struck := false
			fail.Arm("store."+point, skip, func() error {
				struck = true
				mem.Cut()
				return errPower
			})
			for life := 0; ; life++ {
				st := openEnded(t, mem, fail)
				err := st.Retire(ctx, ended(t).ID, storetest.Epoch.Add(time.Hour))
				for more := true; err == nil && more; {
					more, err = st.Sweep(ctx, ended(t).ID, 1)
				}
				if life == 0 != (err != nil) || life == 1 && !struck {
					t.Fatalf("%s: life %d: %v", point, life, err)
				}
				if err == nil {
					problems, err := st.Audit(ctx)
					live, lerr := st.LiveFiles(ctx)
					runs, rerr := mem.ReadDir("runs")
					if err := errors.Join(err, lerr, rerr, st.Close()); err != nil || len(problems)+len(live)+len(runs) > 0 {
						t.Errorf("%s after %d: %v %q, %d files named, %d runs", point, skip, err, problems, len(live), len(runs))
					}
					break
				}
				st.Close()
				mem = mem.Crash()
				fail.Disarm("store." + point)
			}
		}
	}
}

// TestSweepErases: what the database held of aggregate shares and results is in none of
// its files any more.
func TestSweepErases(t *testing.T) {
	mem := lived(t)
	response := []byte("the response") // of the release in lived
	contains := func(mem *disktest.Mem) bool {
		for _, name := range []string{"store.db", "store.db-wal"} {
			e, err := mem.Stat(name)
			if err != nil {
				continue
			}
			b, err := disk.ReadFile(mem, name, e.Size)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(b, response) {
				return true
			}
		}
		return false
	}
	h := newHarness(1)
	h.Open(t).Close()
	if !contains(mem) || contains(h.mem) {
		t.Fatal("the result is not where this test looks for it, or in every store")
	}
	st := openEnded(t, mem, nil)
	defer st.Close()
	if err := st.Retire(context.Background(), ended(t).ID, storetest.Epoch); err != nil {
		t.Fatal(err)
	}
	for more := true; more; {
		var err error
		if more, err = st.Sweep(context.Background(), ended(t).ID, 3); err != nil {
			t.Fatal(err)
		}
	}
	if contains(mem) {
		t.Error("the result is still in the files")
	}
}
