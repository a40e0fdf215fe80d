//go:build postgres

package postgres_test

import (
	"crypto/sha256"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/payload/payloadtest"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/internal/pgdb/pgtest"
)

// register opens the register of an issuer, as a process that serves does.
func register(t *testing.T, s *pgtest.Schema, deployment byte) *postgres.Issued {
	t.Helper()
	opt := options(s).Database
	opt.Connection = s.Service
	x, err := postgres.OpenIssued(t.Context(), opt, [32]byte{deployment})
	is(t, err, nil)
	t.Cleanup(func() { _ = x.Close() })
	return x
}

func request(n int) [32]byte { return sha256.Sum256([]byte{byte(n), byte(n >> 8)}) }

// counted demands what is said of an epoch.
func counted(t *testing.T, x *postgres.Issued, epoch uint32, begun bool, want uint64, known bool) {
	t.Helper()
	if n, ok, err := x.Count(t.Context(), epoch, begun); err != nil || n != want || ok != known {
		t.Errorf("epoch %d is counted as %d, %v, %v; want %d, %v", epoch, n, ok, err, want, known)
	}
}

// TestIssuedAtSeveral: of requests that come to two processes at one time, each twice, as many
// are entered as may be, each once, and no more after either has counted.
func TestIssuedAtSeveral(t *testing.T) {
	s, service := schema(t)
	both := []*postgres.Issued{register(t, s, 9), register(t, s, 9)}
	const most, requests = 12, 16
	var fresh, again, full atomic.Uint64
	var wait sync.WaitGroup
	for n := range 2 * requests {
		wait.Go(func() {
			switch repeated, entered, err := both[n%2].Enter(t.Context(), 100, request(n/2), most); {
			case err != nil:
				t.Error(err)
			case repeated && entered:
				again.Add(1)
			case entered:
				fresh.Add(1)
			default:
				full.Add(1)
			}
		})
	}
	wait.Wait()
	if fresh.Load() != most || again.Load() != most || full.Load() != 2*(requests-most) {
		t.Errorf("%d are entered, %d repeated and %d too many", fresh.Load(), again.Load(), full.Load())
	}
	counted(t, both[0], 100, false, 0, false)
	counted(t, both[0], 100, true, most, true)
	counted(t, both[1], 100, false, most, true)
	for n := range requests { // by whose clock the epoch has not begun
		if repeated, entered, err := both[1].Enter(t.Context(), 100, request(n), 2*most); repeated || entered || err != nil {
			t.Errorf("a request of an epoch that is counted: %v, %v, %v", repeated, entered, err)
		}
	}
	counted(t, register(t, s, 9), 100, false, most, true)
	counted(t, register(t, s, 8), 100, true, 0, true) // another deployment's
	for _, sql := range []string{"DELETE FROM issuance", "TRUNCATE issuance CASCADE", "UPDATE issued SET request = request", "TRUNCATE issued", "UPDATE issuance SET epoch = 1"} {
		service.refused(sql, denied, "")
	}
}

// TestIssuedIsALedger: the role that serves, and the owner as long as the rules are on, lower
// no number, go back behind no state, and take no request out whose key may be there; and
// whoever looks at the rights says when the rules are off.
func TestIssuedIsALedger(t *testing.T) {
	s, service := schema(t)
	x := register(t, s, 9)
	enter := func(epoch uint32, n int) {
		t.Helper()
		_, entered, err := x.Enter(t.Context(), epoch, request(n), 10)
		if is(t, err, nil); !entered {
			t.Error("a request is not entered")
		}
	}
	enter(100, 1)
	enter(100, 2)
	enter(101, 1)
	counted(t, x, 101, true, 1, true)
	owner := connect(t, s, s.Owner)
	owner.ok("INSERT INTO issuance (deployment, epoch, known) SELECT deployment, 102, false FROM issuance WHERE epoch = 100")
	for sql, rule := range map[string]string{
		"UPDATE issuance SET requests = requests - 1 WHERE epoch = 100":                                                "issuance_grows",
		"UPDATE issuance SET requests = 0":                                                                             "issuance_grows",
		"UPDATE issuance SET requests = requests + 2 WHERE epoch = 100":                                                "issuance_grows",
		"UPDATE issuance SET requests = requests + 1 WHERE epoch = 101":                                                "issuance_grows",
		"UPDATE issuance SET state = 0 WHERE epoch = 101":                                                              "issuance_grows",
		"UPDATE issuance SET known = true WHERE epoch = 102":                                                           "issuance_grows",
		"INSERT INTO issuance (deployment, epoch, requests) SELECT deployment, 103, 1 FROM issuance WHERE epoch = 100": "issuance_grows",
		"INSERT INTO issuance (deployment, epoch, state) SELECT deployment, 103, 1 FROM issuance WHERE epoch = 100":    "issuance_grows",
		"DELETE FROM issued WHERE epoch = 100":                                                                         "issued_stays",
		"DELETE FROM issued WHERE epoch = 101":                                                                         "issued_stays",
		"INSERT INTO issued (deployment, epoch, request) SELECT deployment, 101, sha256('') FROM issuance LIMIT 1":     "issued_stays",
	} {
		service.refused(sql, checked, rule)
		owner.refused(sql, checked, rule)
	}
	owner.refused("UPDATE issuance SET epoch = 104 WHERE epoch = 102", checked, "issuance_grows")
	// Nor where the session has tables of these names of its own.
	if _, err := service.Exec(t.Context(), "CREATE TEMP TABLE issuance AS SELECT deployment, epoch, 2 AS state FROM issuance"); err == nil {
		service.ok("SET search_path = pg_temp, " + s.Name)
		service.refused("DELETE FROM "+s.Name+".issued WHERE epoch = 100", checked, "issued_stays")
	}
	enter(100, 3) // and it goes on
	_ = open(t, s)
	rights := func(want bool) {
		t.Helper()
		opt := options(s)
		opt.Database.Connection = s.Service
		e, err := postgres.OpenReading(t.Context(), opt)
		is(t, err, nil)
		defer e.Close()
		if r, err := e.Rights(t.Context()); err != nil || r.Unissue != want || r.Rewrite {
			t.Errorf("%+v, %v", r, err)
		}
	}
	rights(false)
	for off, on := range map[string]string{
		"ALTER TABLE issued DISABLE TRIGGER issued_stays":          "ALTER TABLE issued ENABLE TRIGGER issued_stays",
		"ALTER TABLE issuance DISABLE TRIGGER USER":                "ALTER TABLE issuance ENABLE TRIGGER USER",
		"GRANT DELETE ON issuance TO " + s.Role:                    "REVOKE DELETE ON issuance FROM " + s.Role,
		"GRANT TRUNCATE ON issuance TO " + s.Role:                  "REVOKE TRUNCATE ON issuance FROM " + s.Role,
		"GRANT UPDATE (request) ON issued TO " + s.Role:            "REVOKE UPDATE (request) ON issued FROM " + s.Role,
		"GRANT TRUNCATE ON issued TO " + s.Role:                    "REVOKE TRUNCATE ON issued FROM " + s.Role,
		"ALTER TRIGGER issuance_grows ON issuance RENAME TO other": "ALTER TRIGGER other ON issuance RENAME TO issuance_grows",
	} {
		owner.ok(off)
		rights(true)
		owner.ok(on)
	}
	rights(false)
}

// TestIssuedNotices: a process that goes on while its database is put back, or restored,
// enters nothing, counts nothing and says nothing of it, not what it remembers either, though
// it was idle since the backup, and other processes answered meanwhile. One that merely was
// not seen for a day goes on.
func TestIssuedNotices(t *testing.T) {
	ctx := t.Context()
	postgres.LookEvery(t, 20*time.Millisecond)
	h, s, with := marked(t, payloadtest.NewMem())
	member := h.a.Member()
	beat := func() { t.Helper(); is(t, member.Beat(ctx, "", []byte("{}"), false), nil) }
	beat()
	idle, busy := register(t, s, 9), register(t, s, 9)
	enter := func(x *postgres.Issued, epoch uint32, n int) (bool, error) {
		_, entered, err := x.Enter(ctx, epoch, request(n), 10)
		return entered, err
	}
	_, err := enter(busy, 99, 1)
	is(t, err, nil)
	counted(t, idle, 99, true, 1, true)
	backup := s.Backup(t)
	beat()
	if entered, err := enter(busy, 100, 1); err != nil || !entered {
		t.Fatal(entered, err)
	}
	for seen := idle.Seen(2); !seen(); { // it looks by itself
		_, err := busy.Now(ctx)
		is(t, err, nil)
	}
	s.PutBack(t, backup)
	for name, x := range map[string]*postgres.Issued{"idle": idle, "busy": busy} {
		entered, err := enter(x, 100, 2)
		if entered {
			t.Errorf("%s: a request is entered", name)
		}
		refused(t, err, aggregator.OlderDatabase)
		_, _, err = x.Count(ctx, 99, false) // which it remembers
		refused(t, err, aggregator.OlderDatabase)
		_, err = x.None(ctx, 98)
		refused(t, err, aggregator.OlderDatabase)
		_, err = x.Now(ctx)
		refused(t, err, aggregator.OlderDatabase)
		refused(t, x.Forget(ctx, 100), aggregator.OlderDatabase)
	}
	var n int
	if err := connect(t, s, s.Owner).QueryRow(ctx, "SELECT count(*) FROM issued WHERE epoch = 100").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d requests are in the database that was put back, %v", n, err)
	}

	// A restore, through which a process goes on that saw no other beat.
	x := register(t, s, 9)
	opt := options(s)
	opt.Database.Connection = s.Service
	with(&opt)
	_, err = postgres.Restore(ctx, opt)
	is(t, err, nil)
	_, err = enter(x, 200, 1) // which is not in doubt
	refused(t, err, aggregator.OlderDatabase)

	// A day without any process.
	e := openWith(t, s, with)
	member = e.Member()
	beat()
	owner := connect(t, s, s.Owner)
	owner.ok("UPDATE member SET seen = seen - 86400000000")
	x = register(t, s, 9)
	owner.ok("DELETE FROM member")
	if entered, err := enter(x, 200, 1); err != nil || !entered {
		t.Errorf("after a day: %v, %v", entered, err)
	}
}

// TestIssuedNoticesARestore: one that has seen no process notices a restore by its epoch.
func TestIssuedNoticesARestore(t *testing.T) {
	ctx := t.Context()
	_, s, with := marked(t, payloadtest.NewMem())
	x := register(t, s, 9)
	_, entered, err := x.Enter(ctx, 100, request(1), 10)
	if is(t, err, nil); !entered {
		t.Fatal("a request is not entered")
	}
	opt := options(s)
	opt.Database.Connection = s.Service
	with(&opt)
	_, err = postgres.Restore(ctx, opt)
	is(t, err, nil)
	_, entered, err = x.Enter(ctx, 200, request(1), 10) // which is not in doubt
	if refused(t, err, aggregator.OlderDatabase); entered {
		t.Error("a request is entered")
	}
}

// TestIssuedIsForgotten: requests go when the key of their epoch does, at whatever process,
// and their number stays; a process that lacks a key knows whether it ever counted.
func TestIssuedIsForgotten(t *testing.T) {
	ctx, s := t.Context(), pgtest.New(t)
	e := open(t, s)
	a, b := register(t, s, 9), register(t, s, 9)
	for epoch, n := range map[uint32]int{100: 3, 101: 2, 102: 1} {
		for i := range n {
			_, entered, err := a.Enter(ctx, epoch, request(i), 10)
			if is(t, err, nil); !entered {
				t.Fatal("a request is not entered")
			}
		}
	}
	none := func(epoch uint32, want bool) {
		t.Helper()
		if got, err := b.None(ctx, epoch); err != nil || got != want {
			t.Errorf("nothing of epoch %d can hold: %v, %v", epoch, got, err)
		}
	}
	none(99, true)
	none(100, false)
	is(t, a.Keep(ctx, 100), nil)
	is(t, a.Forget(ctx, 101), nil)
	is(t, b.Forget(ctx, 101), nil)
	none(100, true)
	none(101, true)
	none(102, false)
	counted(t, b, 100, false, 3, true)
	counted(t, b, 101, false, 2, true)
	counted(t, b, 102, false, 0, false)
	var left string
	owner := connect(t, s, s.Owner)
	if err := owner.QueryRow(ctx, "SELECT string_agg(epoch::text, ' ') FROM issued").Scan(&left); err != nil || left != "102" {
		t.Errorf("requests of epochs %q are left, %v", left, err)
	}
	problems, err := e.Audit(ctx)
	if is(t, err, nil); len(problems) > 0 {
		t.Errorf("%q", problems)
	}
	owner.ok("ALTER TABLE issued DISABLE TRIGGER issued_stays")
	owner.ok("DELETE FROM issued")
	if problems, err = e.Audit(ctx); err != nil || len(problems) != 1 || !strings.Contains(problems[0], "1 requests of epoch 102 were answered, and 0 ") {
		t.Errorf("%q, %v", problems, err)
	}
}

// TestIssuedPutBack: after a database was put back nobody knows how many requests were
// answered of the epochs that had not begun: none is counted, or answered again, and those
// that had been counted are as they were.
func TestIssuedPutBack(t *testing.T) {
	ctx := t.Context()
	_, s, with := marked(t, payloadtest.NewMem())
	x := register(t, s, 9)
	for _, epoch := range []uint32{100, 101} {
		_, _, err := x.Enter(ctx, epoch, request(1), 10)
		is(t, err, nil)
	}
	counted(t, x, 100, true, 1, true)
	opt := options(s)
	opt.Database.Connection = s.Service
	with(&opt)
	_, err := postgres.Restore(ctx, opt)
	is(t, err, nil)
	x = register(t, s, 9)
	counted(t, x, 100, false, 1, true)
	for _, epoch := range []uint32{101, 102, 103} { // those after the newest, too
		for n := range 2 {
			if _, entered, err := x.Enter(ctx, epoch, request(n), 10); entered || err == nil {
				t.Errorf("a request of epoch %d, of which not all are known: %v, %v", epoch, entered, err)
			}
		}
		if none, err := x.None(ctx, epoch); none || err != nil {
			t.Errorf("it is said that nothing of epoch %d was answered: %v", epoch, err)
		}
	}
	if _, entered, err := x.Enter(ctx, 104, request(1), 10); !entered || err != nil {
		t.Errorf("a request of an epoch that nobody visited for: %v, %v", entered, err)
	}
	if n, ok, err := x.Count(ctx, 101, true); err == nil || ok {
		t.Errorf("it is counted as %d", n)
	}
	is(t, x.Keep(ctx, 101), nil)
	is(t, x.Forget(ctx, 101), nil)
	if n, ok, err := x.Count(ctx, 101, true); err == nil || ok {
		t.Errorf("it is counted as %d once it is over", n)
	}
	if none, err := x.None(ctx, 101); err != nil || !none {
		t.Errorf("%v, %v", none, err)
	}
}

// TestIssuedNeedsItsTables: a schema of before issuers had registers is refused.
func TestIssuedNeedsItsTables(t *testing.T) {
	s := pgtest.New(t)
	open(t, s)
	connect(t, s, s.Owner).ok("UPDATE version SET number = 8")
	opt := options(s).Database
	opt.Connection = s.Service
	_, err := postgres.OpenIssued(t.Context(), opt, [32]byte{9})
	refused(t, err, aggregator.OlderSchema)
}
