//go:build postgres

package postgres_test

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/keyset/vault"
	"github.com/starling-agg/starling/internal/pgdb"
)

// next is the engine's schema as the version after this one has it, whose migration takes
// something away.
func (v *vaults) next(t *testing.T) (*pgdb.DB, int) {
	t.Helper()
	all := fstest.MapFS{}
	files, err := fs.Glob(os.DirFS("migrations"), "*.sql")
	is(t, err, nil)
	for _, name := range files {
		b, err := os.ReadFile("migrations/" + name)
		is(t, err, nil)
		all[name] = &fstest.MapFile{Data: b}
	}
	n := len(files) + 1
	all[fmt.Sprintf("%04d_take.sql", n)] = &fstest.MapFile{Data: fmt.Appendf(nil, "-- least: %d\nALTER TABLE clock RENAME TO watch;\n", n)}
	db, err := pgdb.Found(t.Context(), pgdb.Options{Connection: v.Owner, Schema: v.Name, Service: v.Role, Migrations: all,
		Statements: os.DirFS("statements"), Volatile: true})
	is(t, err, nil)
	t.Cleanup(db.Close)
	return db, n
}

// TestFinishWaitsForOlderPrograms: no migration takes away what a replica needs that lives;
// once it has left, or is held dead, it does, and a replica of before does nothing more.
func TestFinishWaitsForOlderPrograms(t *testing.T) {
	v := newVaults(t)
	db, n := v.next(t)
	finish := func() error { return db.Finish(t.Context(), postgres.Freed(v.Name)) }
	at := func() (number int) {
		version, err := db.Version(t.Context())
		is(t, err, nil)
		return version.Number
	}
	x := connect(t, v.Schema, v.Owner)

	one, two := v.with(t, v.files), v.with(t, v.files)
	beat(t, one)
	beat(t, two)
	err := finish()
	refused(t, err, aggregator.OlderPrograms)
	if want := fmt.Sprintf("and 2 of these live: of version %d or newer", n-1); !strings.Contains(err.Error(), want) || at() != n-1 {
		t.Fatalf("%v, want %q; it is of version %d", err, want, at())
	}
	x.ok("UPDATE " + v.Name + ".replica SET program = NULL") // as a program of before writes it
	if err := finish(); err == nil || !strings.Contains(err.Error(), "before 5, or it has not yet") {
		t.Fatal(err)
	}
	beat(t, two)
	is(t, one.Leave(t.Context()), nil)
	refused(t, finish(), aggregator.OlderPrograms)
	x.ok("UPDATE " + v.Name + ".replica SET expires = 0") // two was stopped by a signal, say
	is(t, finish(), nil)
	if at() != n {
		t.Fatalf("finished, and of version %d", at())
	}

	// It goes on.
	_, err = two.Beat(t.Context(), vault.Report{})
	refused(t, err, aggregator.NewerSchema)
	is(t, err, store.ErrUnknown)
	is(t, v.all.Pass(t.Context(), "any"), store.ErrUnknown)
	_, _, err = two.State(t.Context())
	is(t, err, store.ErrUnknown)
	refused(t, reopen(t, v.Schema, func(o *postgres.Options) { o.Wrapper = wrapped(v.files) }), aggregator.NewerSchema)
}

func beat(t *testing.T, v vault.Vault) {
	t.Helper()
	_, err := v.Beat(t.Context(), vault.Report{})
	is(t, err, nil)
}

// TestBeatMeetsFinish: a replica of before that begins a life while a migration takes away
// waits for it, and lives no more; and one that is seen in time stops the migration.
func TestBeatMeetsFinish(t *testing.T) {
	v := newVaults(t)
	db, n := v.next(t)
	late := v.with(t, v.files)
	met := make(chan error, 1)
	is(t, db.Finish(t.Context(), func(tx *pgdb.Tx, least int) error {
		if err := postgres.Freed(v.Name)(tx, least); err != nil {
			return err
		}
		go func() {
			_, err := late.Beat(t.Context(), vault.Report{})
			met <- err
		}()
		for v.Server.Ask(t, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == 0 {
			select {
			case err := <-met:
				return fmt.Errorf("a life began beside the migration: %v", err)
			case <-time.After(10 * time.Millisecond): // the server's session: there is no signal to wait for
			}
		}
		return nil
	}), nil)
	refused(t, <-met, aggregator.NewerSchema)
	if left := v.Server.Ask(t, "SELECT count(*) FROM "+v.Name+".replica"); left != 0 {
		t.Errorf("%d replicas of before live in version %d", left, n)
	}
}
