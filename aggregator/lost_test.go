package aggregator_test

import (
	"context"
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// filesOf lists the files below a directory, with their content.
func filesOf(t *testing.T, fsys disk.FS, dir string) map[string][]byte {
	t.Helper()
	all := make(map[string][]byte)
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return all
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name)
		if e.Dir {
			for n, b := range filesOf(t, fsys, name) {
				all[n] = b
			}
			continue
		}
		all[name] = must(disk.ReadFile(fsys, name, 1<<30))
	}
	return all
}

// missing leaves nothing of a file.
func missing([]byte) []byte { return nil }

// unnamed is a pair whose leader acknowledged and sorted n reports that the helper did
// not take, and whose database's log was damaged then, unnoticed: the rows are gone, the
// files are there. Copied: the reports were sorted by another life than that which took
// them, and lie in a copy. whole is the disk before that.
func unnamed(t *testing.T, n int, copied bool, s setup, damage func(wal []byte) []byte) (p *pair, whole *disktest.Mem) {
	t.Helper()
	p = newPair(t, s)
	if copied {
		p.accept(p.reports(n)...)
	}
	p.leader.Close() // so that the database has the task without its log
	mark := must(disk.ReadFile(p.leaderFS, "record/mark", 1<<20))
	p.startLeader()
	p.between(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	})
	if !copied {
		p.accept(p.reports(n)...)
	}
	p.step()
	if c := p.counts(); c.Acknowledged != uint64(n) || c.Waiting != uint64(n) {
		t.Fatalf("counts %+v", c)
	}
	p.leaderFS.Cut()
	whole = p.leaderFS.Crash()
	p.leader.Close()
	p.leaderFS = p.leaderFS.Crash()
	const wal = "store.db-wal"
	if left := damage(must(disk.ReadFile(p.leaderFS, wal, 1<<30))); left == nil {
		if err := disk.Remove(p.leaderFS, wal); err != nil {
			t.Fatal(err)
		}
	} else if err := disk.WriteFile(p.leaderFS, wal, left); err != nil {
		t.Fatal(err)
	}
	// The record goes back with it, for it would miss the log.
	if err := disk.WriteFile(p.leaderFS, "record/mark", mark); err != nil {
		t.Fatal(err)
	}
	p.leaderOpt.FS = p.leaderFS
	p.startLeader()
	p.between(nil)
	p.clock.advance(time.Hour) // past any back-off
	return p, whole
}

// TestMissingLog: rows of acknowledged reports are lost with a database's log. Their
// files are kept, counted and shown, and taken back as work; each report is counted once,
// also if it is done twice.
func TestMissingLog(t *testing.T) {
	p, _ := unnamed(t, 12, true, setup{}, missing)
	st := must(p.leader.Standing(context.Background()))
	if st.Lost == nil || st.Lost.Slices != 1 || !st.Lost.Reports() || len(st.Reasons()) != 1 {
		t.Fatalf("the leader says %+v, %v", st.Lost, st.Reasons())
	}
	if !strings.Contains(p.log.String(), "set aside") {
		t.Error("no word in the log")
	}
	if c := p.counts(); c.Waiting != 0 {
		t.Fatalf("counts %+v, so nothing was lost", c)
	}
	p.audit()
	take := func(files, reports int) {
		t.Helper()
		f, n, err := p.leader.TakeBack(context.Background())
		if err != nil || f != files || n != uint64(reports) {
			t.Fatalf("taken back: %d files, %d reports, %v", f, n, err)
		}
	}
	take(1, 12)
	if c := p.counts(); c.Acknowledged != 12 || c.Waiting != 12 {
		t.Fatalf("counts %+v", c)
	}
	take(0, 0)
	p.audit()
	if st := must(p.leader.Standing(context.Background())); st.Lost != nil {
		t.Errorf("still lost: %+v", st.Lost)
	}
	resp, _ := p.collect(p.query())
	if resp.ReportCount != 12 {
		t.Errorf("%d reports collected", resp.ReportCount)
	}
	if left := filesOf(t, p.leaderFS, "slices"); len(left) != 0 {
		t.Errorf("files %v are left", left)
	}
}

// TestLogIsSortedAgain: the log that reports were acknowledged in is there until the last
// of them is done, so that a database which forgot their rows learns of them again by
// itself.
func TestLogIsSortedAgain(t *testing.T) {
	p, _ := unnamed(t, 12, false, setup{}, missing)
	if st := must(p.leader.Standing(context.Background())); st.Lost != nil || len(st.Damaged) != 0 {
		t.Errorf("lost %+v, damaged %+v", st.Lost, st.Damaged)
	}
	p.step()
	if c := p.counts(); c.Acknowledged != 12 || c.Aggregated != 12 {
		t.Errorf("counts %+v", c)
	}
	p.audit()
	if resp, _ := p.collect(p.query()); resp.ReportCount != 12 {
		t.Errorf("%d reports collected", resp.ReportCount)
	}
}

// TestDamagedDatabaseLog: in whatever way the end of a database's log is lost, what was
// acknowledged under it is counted once in the end.
func TestDamagedDatabaseLog(t *testing.T) {
	for name, damage := range map[string]func(wal []byte) []byte{
		"missing":   missing,
		"empty":     func([]byte) []byte { return []byte{} },
		"truncated": func(b []byte) []byte { return b[:len(b)/2] },
		"zeros":     func(b []byte) []byte { clear(b); return b },
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := unnamed(t, 12, true, setup{}, damage)
			if _, _, err := p.leader.TakeBack(context.Background()); err != nil {
				t.Fatal(err)
			}
			if st := must(p.leader.Standing(context.Background())); st.Lost != nil {
				t.Errorf("still lost: %+v", st.Lost)
			}
			p.step()
			if c := p.counts(); c.Acknowledged != 12 || c.Aggregated != 12 {
				t.Errorf("counts %+v", c)
			}
			p.audit()
		})
	}
}

// TestTakeBackAndCrash loses power at each step of taking lost reports back: they can be
// taken again, and count once.
func TestTakeBackAndCrash(t *testing.T) {
	for _, point := range disk.LogFailpoints()[:3] { // on the way of the reports into a log
		t.Run(point, func(t *testing.T) {
			fp := new(disk.Failpoints)
			p, _ := unnamed(t, 12, true, setup{leader: func(o *leader.Options) { o.Failpoints = fp }}, missing)
			struck := false
			fp.Arm(point, 0, func() error { struck = true; p.leaderFS.Cut(); return disktest.ErrPowerLoss })
			if _, _, err := p.leader.TakeBack(context.Background()); err == nil || !struck {
				t.Fatalf("struck %v, %v", struck, err)
			}
			fp.Disarm(point)
			p.leader.Close()
			p.leaderFS = p.leaderFS.Crash()
			p.leaderOpt.FS = p.leaderFS
			p.startLeader()
			if _, _, err := p.leader.TakeBack(context.Background()); err != nil {
				t.Fatal(err)
			}
			p.step()
			// What was in the log at the crash is there, and comes again.
			c := p.counts()
			if c.Aggregated != 12 || c.Acknowledged != 12+c.Rejected["report_replayed"] || c.Waiting != 0 {
				t.Errorf("counts %+v", c)
			}
			if left := filesOf(t, p.leaderFS, "lost"); len(left) != 0 {
				t.Errorf("%d files are still lost", len(left))
			}
			p.audit()
		})
	}
}

// TestRightDatabaseComesBack: what was set aside under a database that did not know it
// goes back to its place when one names it again, without anybody's doing.
func TestRightDatabaseComesBack(t *testing.T) {
	p, whole := unnamed(t, 12, true, setup{}, missing)
	p.leader.Close()
	for _, name := range []string{"store.db", "store.db-wal"} {
		if err := disk.WriteFile(p.leaderFS, name, must(disk.ReadFile(whole, name, 1<<30))); err != nil {
			t.Fatal(err)
		}
	}
	p.startLeader()
	if st := must(p.leader.Standing(context.Background())); st.Lost != nil {
		t.Errorf("still lost: %+v", st.Lost)
	}
	if c := p.counts(); c.Acknowledged != 12 || c.Waiting != 12 {
		t.Fatalf("counts %+v", c)
	}
	if resp, _ := p.collect(p.query()); resp.ReportCount != 12 {
		t.Errorf("%d reports collected", resp.ReportCount)
	}
}

// TestLostIsNotForEver: lost reports go when the key that opens them does, and not before.
func TestLostIsNotForEver(t *testing.T) {
	p := newPair(t, setup{leader: func(o *leader.Options) { o.KeySchedule, o.Keys = new(keyset.Schedule), nil }})
	p.leader.Close()
	if err := disk.WriteFile(p.leaderFS, "slices/whole.obj", []byte("whole")); err != nil {
		t.Fatal(err)
	}
	p.startLeader()
	lost := func() int { return len(filesOf(t, p.leaderFS, "lost")) }
	for range 3 { // the first ends 24 h + 25 h after the second begins
		if p.step(); lost() != 1 {
			t.Fatalf("%d files are lost", lost())
		}
		p.clock.advance(keyset.DefaultPeriod)
	}
	p.clock.advance(2 * time.Hour)
	if p.step(); lost() != 0 {
		t.Errorf("%d files are lost after the end of the keys", lost())
	}
}
