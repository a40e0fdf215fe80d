//go:build postgres

package postgres_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
	"github.com/starling-agg/starling/internal/pgdb/pgtest"
)

func TestMain(m *testing.M) {
	if asReplica() {
		os.Exit(1)
	}
	os.Exit(pgtest.Run(m))
}

func options(s *pgtest.Schema) postgres.Options {
	return postgres.Options{Role: dap.RoleHelper, Party: "https://helper.example/", Keys: keys, Wrapper: wrapped(fixed{}), Database: pgdb.Options{
		Connection: s.Owner, Schema: s.Name, Service: s.Role, Pause: time.Millisecond, Volatile: true,
	}}
}

// session is a connection that speaks SQL to the tables itself.
type session struct {
	t testing.TB
	*pgx.Conn
}

func connect(t testing.TB, s *pgtest.Schema, connection string) session {
	t.Helper()
	c, err := pgx.Connect(t.Context(), connection)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	x := session{t, c}
	x.ok("SET search_path = " + s.Name)
	return x
}

func (x session) ok(sql string) {
	x.t.Helper()
	if _, err := x.Exec(x.t.Context(), sql); err != nil {
		x.t.Fatalf("%s: %v", sql, err)
	}
}

// refused wants a statement to fail with an error code, of that constraint if any is named.
func (x session) refused(sql, code, constraint string) {
	x.t.Helper()
	_, err := x.Exec(x.t.Context(), sql)
	var e *pgconn.PgError
	if !errors.As(err, &e) || e.Code != code || constraint != "" && e.ConstraintName != constraint {
		x.t.Errorf("%s: %v, want %s %s", sql, err, code, constraint)
	}
}

const (
	denied     = "42501"
	checked    = "23514"
	foreign    = "23503"
	twice      = "23505"
	overlapped = "23P01"
)

// schema is one that the owner has migrated, with two tasks, as the replicas see it.
func schema(t *testing.T) (*pgtest.Schema, session) {
	t.Helper()
	s := pgtest.New(t)
	if _, err := postgres.Migrate(t.Context(), options(s).Database, false); err != nil {
		t.Fatal(err)
	}
	x := connect(t, s, s.Service)
	for id := range 2 {
		x.ok(fmt.Sprintf("INSERT INTO task (task_id, config, mode, time_precision, min_batch) VALUES (decode(repeat('0%d', 32), 'hex'), '', 1, 300, 5)", id))
	}
	return s, x
}

// hash is a column of 32 bytes.
const hash = "decode(repeat('ab', 32), 'hex')"

func release(seq, task, view, first, last, count, minimum, position int) string {
	return fmt.Sprintf(`INSERT INTO release (seq, task, view, kind, resource_id, first, last, count, minimum, checksum, debit, position, answer, chain, total)
	VALUES (%d, %d, %d, 2, 'r', %d, %d, %d, %d, %s, '', %d, %s, %s, %s)`, seq, task, view, first, last, count, minimum, hash, position, hash, hash, hash)
}

// TestLedgerRules: releases of one task and view have no time unit in common, none is below
// the minimum that the task has, and positions are taken once.
func TestLedgerRules(t *testing.T) {
	_, x := schema(t)
	x.ok(release(1, 1, 0, 10, 19, 5, 5, 1))
	for _, span := range [][2]int{{10, 19}, {19, 19}, {10, 10}, {12, 13}, {0, 10}, {19, 99}, {0, 99}} {
		x.refused(release(2, 1, 0, span[0], span[1], 5, 5, 2), overlapped, "release_disjoint")
	}
	x.ok(release(2, 1, 0, 20, 20, 5, 5, 2))
	x.ok(release(3, 1, 0, 0, 9, 5, 5, 3))
	x.ok(release(4, 1, 1, 0, 99, 5, 5, 4)) // a view of its own
	x.refused(release(5, 1, 1, 99, 99, 5, 5, 5), overlapped, "release_disjoint")
	x.ok(release(5, 2, 0, 10, 19, 5, 5, 1)) // another task
	// The last unit of a task is not the first of the next one.
	huge := strings.NewReplacer("7, 7, 5", "9223372036854775807, 9223372036854775807, 5")
	x.ok(huge.Replace(release(6, 1, 0, 7, 7, 5, 5, 5)))
	x.refused(huge.Replace(release(7, 1, 0, 7, 7, 5, 5, 6)), overlapped, "release_disjoint")
	x.ok(release(7, 2, 0, 0, 0, 5, 5, 2))
	x.refused(release(8, 2, 0, 30, 30, 4, 5, 3), checked, "release_minimum")
	x.refused(release(8, 2, 0, 30, 30, 4, 4, 3), foreign, "") // a minimum that the task has not
	x.refused(release(8, 2, 0, 30, 30, 5, 5, 2), twice, "")
	x.refused(release(1, 2, 0, 30, 30, 5, 5, 3), twice, "")
}

// TestReleasesAtOnce: of two transactions that release one time unit, the second waits and
// is refused.
func TestReleasesAtOnce(t *testing.T) {
	s, x := schema(t)
	y := connect(t, s, s.Service)
	x.ok("BEGIN")
	x.ok(release(1, 1, 0, 10, 19, 5, 5, 1))
	y.ok("BEGIN")
	y.ok("SET LOCAL lock_timeout = '50ms'")
	y.refused(release(2, 1, 0, 15, 25, 5, 5, 2), "55P03", "")
	y.ok("ROLLBACK")
	done := make(chan struct{})
	go func() {
		defer close(done)
		y.refused(release(2, 1, 0, 15, 25, 5, 5, 2), overlapped, "release_disjoint")
	}()
	x.ok("COMMIT")
	<-done
}

// TestRights: the role of the replicas appends to the ledger and can do nothing else to it,
// and neither can the owner of the tables by mistake.
func TestRights(t *testing.T) {
	s, x := schema(t)
	x.ok(release(1, 1, 0, 10, 19, 5, 5, 1))
	x.ok("INSERT INTO reseal (task, kind, resource_id, whose, former, latter, at) VALUES (1, 2, 'r', 0, " + hash + ", " + hash + ", 0)")
	x.ok("GRANT UPDATE, DELETE ON release TO " + s.Role) // which gives what one may give: nothing
	for name, role := range map[string]session{"service": x, "owner": connect(t, s, s.Owner)} {
		t.Run(name, func(t *testing.T) {
			role.t = t
			for _, table := range []string{"release", "reseal"} {
				role.refused("UPDATE "+table+" SET task = 2", denied, "")
				role.refused("DELETE FROM "+table, denied, "")
				role.refused("TRUNCATE "+table, denied, "")
			}
			role.refused("DELETE FROM task", denied, "")
			role.refused("UPDATE identity SET store_id = ''", denied, "")
			role.refused("DELETE FROM identity", denied, "")
		})
	}
	for _, sql := range []string{
		"UPDATE task SET min_batch = 1", "UPDATE task SET config = ''", "DELETE FROM data_key", "UPDATE data_key SET until = 1",
		"UPDATE part SET reports = 1", "UPDATE tally SET reports = 1", "UPDATE run SET count = 1", "UPDATE noise SET first = 1", "DELETE FROM registration",
		"UPDATE registration SET sum = sum", "UPDATE registration SET added_by = 'another'", "UPDATE registration SET first = sum", "UPDATE head SET one = true",
		"DROP TABLE release", "ALTER TABLE release DISABLE RULE x", "DROP SCHEMA " + s.Name + " CASCADE", "CREATE TABLE mine ()",
		"UPDATE version SET number = 2", "UPDATE outcome SET done = true",
	} {
		x.refused(sql, denied, "")
	}
}

// TestOneRole: where one role owns the tables and serves, the ledger is append-only too.
func TestOneRole(t *testing.T) {
	s := pgtest.New(t)
	opt := options(s)
	opt.Database.Service = ""
	open, err := postgres.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	x := connect(t, s, s.Owner)
	x.ok("INSERT INTO task (task_id, config, mode, time_precision, min_batch) VALUES (" + hash + ", '', 1, 300, 5)")
	x.ok(release(1, 1, 0, 10, 19, 5, 5, 1))
	x.refused("DELETE FROM release", denied, "")
	x.refused("UPDATE release SET count = 6", denied, "")
}

// TestRowRules: rows that contradict themselves, or others, are refused.
func TestRowRules(t *testing.T) {
	_, x := schema(t)
	x.ok("INSERT INTO batch (task, bucket) VALUES (1, 10)")
	x.ok("INSERT INTO resource (task, kind, resource_id, digest, created) VALUES (1, 2, 'a', " + hash + ", 0), (1, 2, 'b', sha256('b'), 0), (2, 2, 'a', " + hash + ", 0)")
	hold := func(resource, task, first, last int) string {
		return fmt.Sprintf("INSERT INTO hold (resource, task, first, last, selection) VALUES (%d, %d, %d, %d, decode(repeat('00', 16), 'hex'))", resource, task, first, last)
	}
	x.ok(hold(1, 1, 10, 19))
	x.refused(hold(2, 1, 19, 20), overlapped, "hold_disjoint")
	x.ok(hold(3, 2, 19, 20))
	x.ok("INSERT INTO data_key (serial, first, until) VALUES (1, 0, 10)")
	x.ok("INSERT INTO data_key (serial, first, until) VALUES (2, 10, 20)")
	x.refused("INSERT INTO data_key (serial, first, until) VALUES (3, 19, 30)", overlapped, "data_key_disjoint")
	noise := "INSERT INTO noise (task, first, last, data_key, entries) VALUES (1, %d, %d, 1, 1)"
	x.ok(fmt.Sprintf(noise, 10, 19))
	x.refused(fmt.Sprintf(noise, 19, 19), overlapped, "noise_disjoint")
	for sql, code := range map[string]string{
		"INSERT INTO batch (task, bucket) VALUES (1, 10)":                         twice,
		"INSERT INTO batch (task) VALUES (1)":                                     checked,
		"INSERT INTO batch (task, bucket, batch_id) VALUES (1, 11, " + hash + ")": checked,
		"INSERT INTO batch (task, bucket) VALUES (9, 10)":                         foreign,
		"UPDATE batch SET closed = true":                                          checked,
		"UPDATE batch SET closed = true, verified = 3, checksum = " + hash:        checked,
		"INSERT INTO tally (task, kind, code, reports) VALUES (1, 0, 1, 1)":       checked,
		"INSERT INTO tally (task, kind, code, reports) VALUES (1, 2, 0, 1)":       checked,
		"INSERT INTO tally (task, kind, code, reports) VALUES (1, 0, 0, 0)":       checked,
		"INSERT INTO run (task, count, ids, pages, filter, sum, digest) VALUES (1, 2, decode(repeat('00', 16), 'hex'), decode(repeat('00', 48), 'hex'), '', " + hash + ", " + hash + ")": checked,
		"INSERT INTO run (task, count, ids, pages, filter, sum, digest) VALUES (1, 1, decode(repeat('00', 16), 'hex'), '', '', " + hash + ", " + hash + ")":                              checked,
		"INSERT INTO resource (task, kind, resource_id, digest, created) VALUES (1, 2, 'c', " + hash + ", 0)":                                                                            twice,
		"INSERT INTO resource (task, kind, resource_id, digest, created) VALUES (1, 2, 'a', sha256('c'), 0)":                                                                             twice,
		"UPDATE resource SET state = 1":                checked,
		"UPDATE resource SET state = 2":                checked,
		"UPDATE resource SET state = 1, response = ''": checked, // released without its hash
		"INSERT INTO job (task, bucket, reports, lease_token) VALUES (1, 10, 1, decode(repeat('00', 16), 'hex'))":                  checked,
		"INSERT INTO job (task, bucket, reports, parked, state) VALUES (1, 10, 1, true, 1)":                                        checked,
		"INSERT INTO job (task, bucket, reports, sent_digest, sent_accepted) VALUES (1, 10, 9, " + hash + ", decode('ff', 'hex'))": checked,
		"INSERT INTO conduct (task, person, why) VALUES (1, true, '')":                                                             checked,
		"UPDATE task SET swept = true": checked,
		"INSERT INTO identity (resource_key, store_id, role, party) VALUES (" + hash + ", '', 2, '')": checked,
		"INSERT INTO head DEFAULT VALUES": denied,
	} {
		x.refused(sql, code, "")
	}
}

// TestSliceRules: a job takes slices of its own task and bucket, an object stays as long as
// it has one, and two jobs of the same reports do not both go on.
func TestSliceRules(t *testing.T) {
	_, x := schema(t)
	x.ok("INSERT INTO object (name, slices) VALUES ('slices/a.obj', 2)")
	x.refused("INSERT INTO object (name, slices) VALUES ('slices/a.obj', 2)", twice, "")
	slice := "INSERT INTO slice (object, pieces, size, sum, task, bucket, reports, duplicates) VALUES (%d, decode('406401', 'hex'), 100, " + hash + ", %d, %d, 3, 0)"
	x.ok(fmt.Sprintf(slice, 1, 1, 10))
	x.ok(fmt.Sprintf(slice, 1, 2, 11))
	x.refused(fmt.Sprintf(slice, 9, 1, 10), foreign, "")
	x.ok("INSERT INTO job (task, bucket, reports) VALUES (1, 10, 3), (1, 11, 3)")
	x.ok("UPDATE slice SET job = 1 WHERE id = 1")
	x.refused("UPDATE slice SET job = 2 WHERE id = 1", foreign, "") // of another bucket
	x.refused("UPDATE slice SET job = 2 WHERE id = 2", foreign, "") // of another task
	x.refused("UPDATE slice SET job = 3 WHERE id = 1", foreign, "")
	x.refused("DELETE FROM job WHERE id = 1", foreign, "")
	x.refused("DELETE FROM object", foreign, "")
	for _, sql := range []string{"UPDATE slice SET reports = 4", "UPDATE slice SET sum = ''", "UPDATE slice SET bucket = 1", "UPDATE object SET body = ''"} {
		x.refused(sql, denied, "")
	}
	x.ok("UPDATE job SET sent_location = '/1', sent_step = 1 WHERE id = 1")
	x.refused("UPDATE job SET sent_location = '/1', sent_step = 1 WHERE id = 2", twice, "job_location")
	x.ok("DELETE FROM slice")
	x.ok("DELETE FROM object")
	x.ok("DELETE FROM job")
}
