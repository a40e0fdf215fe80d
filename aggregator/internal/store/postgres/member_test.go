//go:build postgres

package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/pgdb/pgtest"
)

// members reads what a handle has of the processes, each as its words and its state.
func members(t *testing.T, s *postgres.Store) (all []string) {
	t.Helper()
	list, _, err := s.Members(t.Context())
	is(t, err, nil)
	for _, m := range list {
		all = append(all, fmt.Sprintf("%s live=%v ended=%v", m.Said, m.Live, m.Ended))
	}
	return all
}

// TestMembers: each process has its row, which says what it said last, whether it lives, was
// stopped or is dead, and goes a day after.
func TestMembers(t *testing.T) {
	ctx, s := t.Context(), pgtest.New(t)
	a, b := open(t, s), open(t, s)
	owner := connect(t, s, s.Owner)
	want := func(want ...string) {
		t.Helper()
		if got := members(t, b); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("members %q, want %q", got, want)
		}
	}
	want()
	one, two := a.Member(), b.Member()
	is(t, one.Beat(ctx, "", []byte("one"), false), nil)
	is(t, two.Beat(ctx, "", []byte("two"), false), nil)
	is(t, one.Beat(ctx, "", []byte("one again"), false), nil)
	want("one again live=true ended=false", "two live=true ended=false")
	is(t, two.Beat(ctx, "", []byte("two leaves"), true), nil)
	owner.ok("UPDATE member SET began = began - 31000000, seen = seen - 31000000 WHERE said = 'one again'")
	want("one again live=false ended=false", "two leaves live=false ended=true")
	// One that was only cut off goes on as the same.
	is(t, one.Beat(ctx, "", []byte("one is back"), false), nil)
	want("one is back live=true ended=false", "two leaves live=false ended=true")
	owner.ok("UPDATE member SET seen = seen - 86400000000 WHERE ended")
	is(t, one.Beat(ctx, "", []byte("one"), false), nil)
	want("one live=true ended=false")
	if ahead, err := a.Ahead(ctx, disk.SystemClock); err != nil || ahead.Abs() > time.Minute { // the server is on this machine
		t.Errorf("ahead by %v, %v", ahead, err)
	}
}

// TestMemberPutBack: a process on a database that was put back finds out when it says that
// it lives, without marks and without a release, and does nothing any more: whether its row
// is older, is not there, or the schema is one of before there were such rows. One that was
// away for more than a day, whose row is gone, is none of these.
func TestMemberPutBack(t *testing.T) {
	ctx, s := t.Context(), pgtest.New(t)
	begin := func() (*postgres.Store, *postgres.Member) {
		t.Helper()
		e := open(t, s)
		return e, e.Member()
	}
	stays, early := begin()
	is(t, early.Beat(ctx, "", []byte("x"), false), nil)
	backup := s.Backup(t)
	is(t, early.Beat(ctx, "", []byte("x"), false), nil)
	after, late := begin()
	is(t, late.Beat(ctx, "", []byte("y"), false), nil)
	s.PutBack(t, backup)
	refused(t, early.Beat(ctx, "", []byte("x"), false), aggregator.OlderDatabase)
	refused(t, late.Beat(ctx, "", []byte("y"), false), aggregator.OlderDatabase)
	for _, e := range []*postgres.Store{stays, after} {
		refused(t, e.SaveTime(ctx, time.Unix(1, 0)), aggregator.OlderDatabase)
		_, err := e.Audit(ctx)
		refused(t, err, aggregator.OlderDatabase)
	}

	_, again := begin()
	is(t, again.Beat(ctx, "", []byte("z"), false), nil)
	owner := connect(t, s, s.Owner)
	owner.ok("DELETE FROM member")
	again.Away(25 * time.Hour)
	is(t, again.Beat(ctx, "", []byte("z"), false), nil)

	_, last := begin()
	is(t, last.Beat(ctx, "", []byte("last"), false), nil)
	owner.ok("DROP TABLE member")
	refused(t, last.Beat(ctx, "", []byte("last"), false), aggregator.OlderDatabase)
}

// TestNoMembers: where the schema is one of before, nobody is listed and nothing is written.
func TestNoMembers(t *testing.T) {
	ctx, s := t.Context(), pgtest.New(t)
	older(t, s)
	e := open(t, s)
	m := e.Member()
	is(t, m.Beat(ctx, "", []byte("x"), false), nil)
	if got := members(t, e); len(got) > 0 {
		t.Errorf("%q", got)
	}
	_, err := postgres.Migrate(ctx, options(s).Database, true)
	is(t, err, nil)
	is(t, m.Beat(ctx, "", []byte("x"), false), nil)
	if got := members(t, e); len(got) != 1 {
		t.Errorf("%q", got)
	}
}
