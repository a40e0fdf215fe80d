package sqlite_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/sqlite"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/service/database"
)

// registered is the disk of a store with a live task (1) and a closed one (2).
func registered(t *testing.T) *disktest.Mem {
	ctx := context.Background()
	h := newHarness(1)
	w := storetest.NewWorld(t, h)
	live, closed := storetest.Provision(storetest.Task(t, dap.TimeInterval, 1)), storetest.Provision(storetest.Task(t, dap.TimeInterval, 2))
	_, err := w.Store.Register(ctx, live, closed)
	if err == nil {
		_, err = w.Store.CloseTask(ctx, closed.ID, store.Closing{At: storetest.Epoch, By: "bob", Why: "over"})
	}
	if err != nil {
		t.Fatal(err)
	}
	return h.mem.Crash()
}

// TestRulesOfTheRegistry tries what no code may do: the database refuses it by itself.
func TestRulesOfTheRegistry(t *testing.T) {
	mem := registered(t)
	for _, statement := range []string{
		"DELETE FROM registration",
		"UPDATE registration SET closed = NULL, closed_by = NULL, closed_why = NULL WHERE task = 2",
		"UPDATE registration SET closed = closed + 1 WHERE task = 2",
		"UPDATE registration SET closed_why = 'another' WHERE task = 2",
		"UPDATE registration SET closed = 1 WHERE task = 1", // nobody did
		"UPDATE registration SET made = x'00' WHERE task = 1",
		"UPDATE registration SET terms = x'00' WHERE task = 2", // it is closed
		"UPDATE registration SET terms = NULL WHERE task = 1",
		"UPDATE registration SET first = zeroblob(32) WHERE task = 1",
		"UPDATE registration SET kem = 1 WHERE task = 1",
		"UPDATE registration SET begins = 1 WHERE task = 1",
		"UPDATE registration SET made = NULL, terms = NULL WHERE task = 1", // it is not retired
		"UPDATE registration SET sum = zeroblob(32) WHERE task = 1",
		"UPDATE registration SET tenant = 'acme' WHERE task = 1",
		"UPDATE registration SET added_by = 'bob' WHERE task = 1",
		"UPDATE registration SET change = 1 WHERE task = 2", // back, and another's
		"UPDATE identity SET registry = 1",
		"INSERT INTO registration SELECT task, 9, form, made, sum, terms, first, tenant, source, added_by, added, begins, ends, kem, signed, NULL, NULL, NULL FROM registration WHERE task = 2",
	} {
		if err := change(t, mem, statement); !errors.Is(err, database.ErrConstraint) {
			t.Errorf("%s: %v", statement, err)
		}
	}
	if err := change(t, mem, "UPDATE registration SET change = 4, closed = 1, closed_by = 'x', closed_why = 'x' WHERE task = 1"); err != nil {
		t.Errorf("what closing does: %v", err)
	}
}

// TestAuditSeesWrongRegistry changes rows in a way that the schema cannot forbid.
func TestAuditSeesWrongRegistry(t *testing.T) {
	ctx := context.Background()
	mem := registered(t)
	if err := change(t, mem, "UPDATE registration SET change = 99 WHERE task = 1"); err != nil {
		t.Fatal(err)
	}
	st, err := sqlite.Open(ctx, options(mem, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	problems, err := st.Audit(ctx)
	if err != nil || len(problems) != 1 || !strings.Contains(problems[0], "has one of number 99") {
		t.Errorf("the audit says %q, %v", problems, err)
	}
}
