//go:build postgres

package postgres_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/payload/payloadtest"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
	"github.com/starling-agg/starling/internal/pgdb/pgtest"
)

// shown are marks of a round, from first to before last, each of a report of its own.
func shown(round uint64, first, last, shift int) (list []store.Spend) {
	for n := first; n < last; n++ {
		sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte("mark"), uint64(n)))
		list = append(list, store.Spend{Round: round, Mark: store.Mark(sum[:]), Report: storetest.ReportID(n + shift)})
	}
	return list
}

// spends demands how many of a list are another's.
func (h *helper) spends(e *postgres.Store, list []store.Spend, want int) {
	h.t.Helper()
	spent, err := e.Spend(h.t.Context(), h.task.ID, list)
	is(h.t, err, nil)
	n := 0
	for _, x := range spent {
		if x {
			n++
		}
	}
	if n != want {
		h.t.Errorf("of %d marks %d are another's, want %d", len(list), n, want)
	}
}

// marks demands the number of a round's marks, and that no more than most runs have them.
func (h *helper) marks(round uint64, want, most int) {
	h.t.Helper()
	got, err := h.b.Spent(h.t.Context(), h.task.ID, round, round)
	if is(h.t, err, nil); len(got) != 1 || got[0].Marks != uint64(want) {
		h.t.Errorf("round %d has %v marks, want %d", round, got, want)
	}
	if n := h.owner.counted(fmt.Sprintf("spent_run WHERE round = %d", round)); n > most {
		h.t.Errorf("round %d has %d runs, want %d at most", round, n, most)
	}
}

// TestMarksMerge: many lists leave few runs, at whatever replica, and each mark keeps its
// report for all of them; a round that is forgotten leaves none.
func TestMarksMerge(t *testing.T) {
	h := newHelper(t)
	const lists, each = 40, 30
	for n := range lists {
		h.spends([]*postgres.Store{h.a, h.b}[n%2], append(shown(1, n*each, (n+1)*each, 1), shown(2, n, n+1, 1)...), 0)
	}
	h.marks(1, lists*each, 9)
	h.marks(2, lists, 9)
	h.audit("")
	for _, e := range []*postgres.Store{h.a, h.b, open(t, h.schema)} {
		h.spends(e, shown(1, 0, lists*each, 1), 0)
		h.spends(e, shown(1, 0, lists*each, 2), lists*each)
		h.spends(e, shown(2, 0, lists, 2), lists)
	}
	h.marks(1, lists*each, 9)
	for more := true; more; {
		var err error
		more, err = h.a.ForgetRound(t.Context(), h.task.ID, 1, 2)
		is(t, err, nil)
		h.audit("")
	}
	h.marks(1, lists*each, 0)
	h.marks(2, lists, 9)
	h.spends(h.b, shown(1, 0, 2000, 1), 2000)
	h.spends(h.b, shown(2, 0, lists, 1), 0)
}

// TestMarkPageDamaged: a page of marks is proven whenever it is read. While one is not what
// was written, what may lie in it is given to nobody, at a handle that knows the run too;
// once it is back all goes on.
func TestMarkPageDamaged(t *testing.T) {
	h := newHelper(t)
	list := shown(1, 0, 1000, 1)
	h.spends(h.a, list, 0)
	h.spends(h.b, list, 0)
	var whole []byte
	is(t, h.owner.QueryRow(t.Context(), "SELECT entries FROM spent_run").Scan(&whole), nil)
	for at := 0; at < len(whole); at += 4096 + 160 { // in each page, in other entries
		h.owner.ok(fmt.Sprintf("UPDATE spent_run SET entries = set_byte(entries, %d, get_byte(entries, %[1]d) # 64)", at+20))
		for _, e := range []*postgres.Store{h.a, h.b} {
			for range 2 {
				spent, err := e.Spend(t.Context(), h.task.ID, shown(1, 0, 1000, 2))
				if is(t, err, store.ErrMarks); spent != nil {
					t.Error("said something of a round that is damaged")
				}
			}
			if list, err := e.DamagedTasks(t.Context()); err != nil || len(list) > 0 {
				t.Errorf("%v, %v: nobody else has marks, to mend them", list, err)
			}
		}
		h.audit("marks of round 1: ids of run")
		_, err := h.owner.Exec(t.Context(), "UPDATE spent_run SET entries = $1", whole)
		is(t, err, nil)
		h.spends(h.a, shown(1, 0, 1000, 2), 1000)
		h.spends(h.b, list, 0)
		h.audit("")
	}
	h.marks(1, 1000, 1)
	// What lies in no page that is read is no matter; and no merge takes in what is damaged.
	h.owner.ok("UPDATE spent_run SET entries = set_byte(entries, 20, get_byte(entries, 20) # 64)")
	begin := time.Now()
	for n := range 20 {
		if _, err := h.a.Spend(t.Context(), h.task.ID, shown(1, 2000+n, 2001+n, 0)); err != nil {
			is(t, err, store.ErrMarks)
		}
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("lists took %v beside a merge that cannot be", took)
	}
	_, err := h.owner.Exec(t.Context(), "UPDATE spent_run SET entries = $1 WHERE count = 1000", whole)
	is(t, err, nil)
	h.spends(h.b, list, 0)
	h.audit("")
}

// TestMarksPutBack: the runs of a round as they were before, all of them whole, are found
// out, and so is a run that is there twice.
func TestMarksPutBack(t *testing.T) {
	h := newHelper(t)
	h.spends(h.a, shown(1, 0, 50, 1), 0)
	h.owner.ok("CREATE TABLE before AS SELECT * FROM spent_run")
	h.spends(h.b, shown(1, 50, 100, 1), 0)
	h.owner.ok("CREATE TABLE since AS SELECT * FROM spent_run")
	const columns = "task, round, count, entries, pages, filter, veil, digest, sum"
	put := func(from string) {
		h.owner.ok("DELETE FROM spent_run")
		h.owner.ok("INSERT INTO spent_run (" + columns + ") SELECT " + columns + " FROM " + from)
	}
	for _, from := range []string{"before", "since WHERE id = (SELECT max(id) FROM since)", "(SELECT * FROM since UNION ALL SELECT * FROM before) AS x",
		"(SELECT * FROM before UNION ALL SELECT * FROM before) AS x"} {
		put(from)
		for _, e := range []*postgres.Store{h.a, h.b} {
			_, err := e.Spend(t.Context(), h.task.ID, shown(1, 500, 501, 0))
			is(t, err, store.ErrMarks)
		}
		h.audit("the marks of round 1 are not what was written")
	}
	put("since")
	h.spends(h.a, shown(1, 0, 100, 2), 100)
	// Nor do those of one round stand for another's, with all that is kept of them.
	h.owner.ok("UPDATE spent_run SET round = 2; UPDATE spent_round SET round = 2")
	_, err := h.a.Spend(t.Context(), h.task.ID, shown(2, 500, 501, 0))
	is(t, err, store.ErrMarks)
	h.audit("marks of round 2: ")
	h.owner.ok("UPDATE spent_run SET round = 1; UPDATE spent_round SET round = 1")
	h.spends(h.b, shown(1, 0, 100, 2), 100)
	h.audit("")
}

// TestRoundEndsBesideAMerge: a round that is forgotten while its runs are merged leaves none
// of them, and one that is over is merged no more.
func TestRoundEndsBesideAMerge(t *testing.T) {
	h, fail := newFailing(t)
	merged, done := false, make(chan error, 1)
	fail.Arm("store.merge-runs.before-commit", 0, func() error {
		fail.Disarm("store.merge-runs.before-commit")
		merged = true
		go func() {
			_, err := h.b.ForgetRound(context.Background(), h.task.ID, 1, 1000)
			done <- err
		}()
		for h.owner.counted("pg_locks WHERE NOT granted") == 0 { // it waits for the merge
			select {
			case err := <-done:
				t.Error("did not wait:", err)
				done <- err
				return nil
			default:
			}
		}
		return nil
	})
	for n := 0; !merged; n++ {
		if n == 20 {
			t.Fatal("nothing was merged")
		}
		h.spends(h.a, shown(1, n, n+1, 1), 0)
	}
	is(t, <-done, nil)
	if n := h.owner.counted("spent_run"); n != 0 {
		t.Errorf("%d runs of a round that is over", n)
	}
	h.audit("")
	h.spends(h.a, shown(1, 0, 20, 1), 20)
}

// TestSpendersDoNotWaitForMerges: while a round's runs are merged others spend in it.
func TestSpendersDoNotWaitForMerges(t *testing.T) {
	h, fail := newFailing(t)
	merged, done := false, make(chan error, 1)
	fail.Arm("store.merge-runs.before-commit", 0, func() error {
		fail.Disarm("store.merge-runs.before-commit")
		merged = true
		go func() { // the merge that it would do then waits for this one
			spent, err := h.b.Spend(context.Background(), h.task.ID, append(shown(1, 100, 200, 1), shown(1, 0, 3, 2)...))
			if err == nil && slices.Index(spent, true) != 100 {
				err = fmt.Errorf("%v", spent)
			}
			done <- err
		}()
		for begin := time.Now(); h.owner.counted("spent_round WHERE marks > 100") == 0; {
			if time.Since(begin) > time.Minute {
				t.Error("it waits for the merge")
				break
			}
		}
		return nil
	})
	for n := range 9 {
		h.spends(h.a, shown(1, n, n+1, 1), 0)
	}
	if !merged {
		t.Fatal("nothing was merged")
	}
	is(t, <-done, nil)
	h.marks(1, 109, 9)
	h.audit("")
}

// TestMarksMergedBetweenLooks: a merge that ends after the runs of a round were listed, and
// before the page is read that a mark would be in, makes no mark new again.
func TestMarksMergedBetweenLooks(t *testing.T) {
	h, merge := newMerging(t, "substring(r.entries", "spent_run", func(h *helper) error { return h.b.MergeMarks(context.Background(), h.task.ID, 1) })
	for n := range 8 { // as many as are merged
		h.spends(h.b, shown(1, n, n+1, 1), 0)
	}
	h.marks(1, 8, 8)
	merge.Store(true)
	h.spends(h.a, shown(1, 0, 9, 2), 8)
	if merge.Load() {
		t.Error("no page was read")
	}
	h.marks(1, 9, 2)
	h.audit("")
}

// TestMarksAreHidden: rows have neither marks nor reports in the clear, and nothing that
// tells of those whether they are there; under the task's secret they have.
func TestMarksAreHidden(t *testing.T) {
	h := newHelper(t)
	list := shown(1, 0, 200, 1)
	h.spends(h.a, list, 0)
	var digest, veil, entries []byte
	is(t, h.owner.QueryRow(t.Context(), "SELECT digest, veil, entries FROM spent_run").Scan(&digest, &veil, &entries), nil)
	for _, x := range list {
		if strings.Contains(string(entries), string(x.Mark[:])) || strings.Contains(string(entries), string(x.Report[:])) {
			t.Fatal("a mark or a report lies in the clear")
		}
	}
	var sum []byte
	is(t, h.owner.QueryRow(t.Context(), "SELECT sum FROM spent_round").Scan(&sum), nil)
	if len(veil) != 16 || string(sum) == string(digest) {
		t.Error("the digest of a run is not covered")
	}
	// A commit of the same reports is under another key.
	h.answered(h.a, "job", "r"+strings.Repeat("0", 9), h.commit(1, 2, 3, 4, 5, 6, 7, 8, 9))
	var ids []byte
	is(t, h.owner.QueryRow(t.Context(), "SELECT ids FROM run").Scan(&ids), nil)
	for id := range slices.Chunk(ids, 16) {
		if strings.Contains(string(entries), string(id)) {
			t.Error("a report of a mark is told by the runs of ids")
		}
	}
}

// TestMarksOfATaskWithoutSecret: marks that came before the task had its secret lie in the
// clear, are known beside those that came later, and are hidden with them once they are
// merged.
func TestMarksOfATaskWithoutSecret(t *testing.T) {
	h := newOlder(t)
	h.spends(h.a, shown(1, 0, 10, 1), 0)
	if n := h.owner.counted("spent_run WHERE veil IS NULL"); n != 1 {
		t.Errorf("%d runs in the clear, want 1", n)
	}
	h.secrets()
	h.spends(h.b, append(shown(1, 5, 15, 1), shown(1, 0, 5, 2)...), 5)
	h.spends(h.a, append(shown(1, 10, 20, 1), shown(1, 5, 15, 2)...), 10)
	if n := h.owner.counted("spent_run WHERE veil IS NOT NULL"); n != 2 {
		t.Errorf("%d runs are hidden, want 2", n)
	}
	h.marks(1, 20, 3)
	h.audit("")
	for n := range 9 {
		h.spends(h.b, shown(1, 100+n, 101+n, 1), 0)
	}
	if n := h.owner.counted("spent_run WHERE veil IS NULL"); n != 0 {
		t.Errorf("%d runs in the clear after a merge", n)
	}
	h.spends(h.a, shown(1, 0, 15, 1), 0)
	h.spends(h.a, shown(1, 0, 15, 2), 15)
	h.audit("")
}

// TestMarksAfterRestore: which marks were given after a backup nobody knows, so a restore
// ends the rounds that there are: nothing is new in them.
func TestMarksAfterRestore(t *testing.T) {
	ctx := t.Context()
	h, s, with := marked(t, payloadtest.NewMem())
	h.owner = connect(t, s, s.Owner)
	h.spends(h.a, append(shown(1, 0, 9, 1), shown(2, 0, 3, 1)...), 0)
	backup := s.Backup(t)
	h.spends(h.a, shown(1, 9, 20, 1), 0)
	is(t, h.a.SaveTime(ctx, storetest.Epoch), nil)
	s.PutBack(t, backup)
	opt := options(s)
	opt.Database.Connection = s.Service
	with(&opt)
	_, err := postgres.Restore(ctx, opt)
	is(t, err, nil)
	h.a, h.b = openWith(t, s, with), openWith(t, s, with)
	for _, e := range []*postgres.Store{h.a, h.b} {
		is(t, e.PutTask(ctx, h.task), nil)
		h.spends(e, append(shown(1, 0, 30, 1), shown(2, 2, 5, 1)...), 33)
	}
	h.owner = connect(t, s, s.Owner)
	h.marks(1, 9, 0)
	h.audit("")
}

// TestMarksOfBefore: a schema in which marks were rows ends their rounds as it is migrated,
// which programs of before go on beside; a round without marks goes on.
func TestMarksOfBefore(t *testing.T) {
	ctx, s := t.Context(), pgtest.New(t)
	before := make(fstest.MapFS)
	files, err := filepath.Glob("migrations/000[1-9]_*.sql")
	is(t, err, nil)
	for _, name := range files {
		b, err := os.ReadFile(name)
		is(t, err, nil)
		before[filepath.Base(name)] = &fstest.MapFile{Data: b}
	}
	opt := options(s).Database
	opt.Migrations = before
	db, err := pgdb.Open(ctx, opt)
	is(t, err, nil)
	db.Close()
	h := &helper{t: t, task: storetest.Task(t, dap.TimeInterval, 1), owner: connect(t, s, s.Owner)}
	one, err := postgres.Open(ctx, func() postgres.Options { o := options(s); o.Database.Connection = s.Service; return o }())
	is(t, err, nil)
	is(t, one.PutTask(ctx, h.task), nil)
	if _, err := one.Spend(ctx, h.task.ID, shown(1, 0, 1, 0)); err == nil {
		t.Error("a schema of before has no runs of marks, and took some")
	}
	is(t, one.Close(), nil)
	h.owner.ok("INSERT INTO spent (task, round, mark, report) VALUES (1, 1, decode(repeat('01', 16), 'hex'), decode(repeat('02', 16), 'hex'))")
	h.owner.ok("INSERT INTO spent_round (task, round, marks, sum, state) VALUES (1, 1, 1, " + hash + ", 0), (1, 2, 0, decode(repeat('00', 32), 'hex'), 0)")
	h.a, h.b = open(t, s), open(t, s)
	is(t, h.a.PutTask(ctx, h.task), nil)
	is(t, h.b.PutTask(ctx, h.task), nil)
	h.audit("")
	h.spends(h.a, append(shown(1, 0, 4, 1), shown(2, 0, 4, 1)...), 4)
	h.spends(h.b, append(shown(1, 0, 4, 1), shown(2, 0, 4, 1)...), 4)
	h.marks(1, 1, 0)
	h.marks(2, 4, 1)
	h.audit("")
}
