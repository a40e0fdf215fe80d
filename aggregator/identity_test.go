package aggregator_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/releases"
	"github.com/starling-agg/starling/internal/service/database"
)

var errCut = errors.New("the power is gone")

// cutAfter cuts a disk's power after so many calls that change something.
func cutAfter(mem *disktest.Mem, calls int) {
	mem.Inject(func(op disktest.Op, _ string) error {
		if op == disktest.OpRead || op == disktest.OpOpen {
			return nil
		}
		if calls--; calls < 0 {
			return errCut
		}
		return nil
	})
}

// A tree is what a disk holds, by name.
type tree map[string][]byte

// dataOf is the aggregator's data directory, without the record that harness disks have
// in it.
func dataOf(t testing.TB, fsys disk.FS) tree {
	all := tree(content(t, fsys, "."))
	maps.DeleteFunc(all, func(name string, _ []byte) bool { return strings.HasPrefix(name, "record/") })
	return all
}

// recordOf is the record of a harness disk.
func recordOf(t testing.TB, fsys disk.FS) tree {
	all := tree(content(t, fsys, "."))
	maps.DeleteFunc(all, func(name string, _ []byte) bool { return !strings.HasPrefix(name, "record/") })
	return all
}

// diskOf is a disk that holds some trees, durably.
func diskOf(t testing.TB, trees ...tree) *disktest.Mem {
	t.Helper()
	mem := disktest.NewMem(5)
	for _, files := range trees {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if err := errors.Join(disk.MakeDirs(mem, path.Dir(name)), disk.WriteFile(mem, name, files[name])); err != nil {
				t.Fatal(err)
			}
		}
	}
	return mem
}

// stopped closes both and gives what their disks hold.
func (p *pair) stopped() (leader, helper *disktest.Mem) {
	p.t.Helper()
	if err := errors.Join(p.leader.Close(), p.helper.Close()); err != nil {
		p.t.Fatal(err)
	}
	return p.leaderFS, p.helperFS
}

// onDisks starts both on the disks that they have then.
func (p *pair) onDisks(leader, helper *disktest.Mem) {
	p.t.Helper()
	p.leaderFS, p.leaderOpt.FS, p.helperFS, p.helperOpt.FS = leader, leader, helper, helper
	p.startLeader()
	p.startHelper()
}

// starts says with which error a leader or a helper begins on a disk, and that the disk
// is as it was where it refuses.
func (p *pair) starts(role dap.Role, mem *disktest.Mem) error {
	p.t.Helper()
	before := content(p.t, mem, ".")
	var err error
	if role == dap.RoleLeader {
		o := p.leaderOpt
		o.FS, o.Record = mem, recordOn(mem)
		var l *leader.Leader
		if l, err = leader.New(context.Background(), o); err == nil {
			return l.Close()
		}
	} else {
		o := p.helperOpt
		o.FS, o.Record = mem, recordOn(mem)
		var h *helper.Helper
		if h, err = helper.New(context.Background(), o); err == nil {
			return h.Close()
		}
	}
	opened := errors.Is(err, keyset.ErrDamaged) // after the store
	for name, now := range content(p.t, mem, ".") {
		if !bytes.Equal(now, before[name]) && !strings.HasSuffix(name, "-wal") && !(opened && (name == "store.db" || name == "record/mark")) {
			p.t.Errorf("a store that was refused: %s was changed", name)
		}
		delete(before, name)
	}
	for name := range before {
		p.t.Errorf("a store that was refused: %s was removed", name)
	}
	return err
}

// unfit demands a fault, and words that say what to do about it.
func unfit(t *testing.T, err error, want aggregator.StoreFault) {
	t.Helper()
	var e *aggregator.StoreError
	if !errors.As(err, &e) || e.Fault != want {
		t.Errorf("got %v, want a store refused: %v", err, want)
		return
	}
	if !strings.Contains(e.Remedy(), e.Role+".toml") || e.Detail == "" {
		t.Errorf("%v: remedy %q", e, e.Remedy())
	}
}

// TestStoresPutBack plays what made a store draw noise again for a batch that was
// released: both directories put back to before the collection, or to before the uploads;
// the databases removed; leader or helper alone put back. Nothing of it starts, whoever
// was put back, and with the right files in place again the same bytes are answered.
func TestStoresPutBack(t *testing.T) {
	p := newScheduledPair(t, setup{noise: must(noise.NewDiscreteGaussian(100, 1))})
	type point struct{ leader, helper tree }
	save := func() point {
		l, h := p.stopped()
		at := point{dataOf(t, l), dataOf(t, h)}
		p.onDisks(l, h)
		return at
	}
	empty := save()
	p.accept(p.reports(12)...)
	p.step()
	verified := save()
	q := p.query()
	a := p.ask(q)
	p.step()
	released := p.poll(a.header.Get("Location"))
	if released.status != http.StatusOK || len(released.body) == 0 {
		t.Fatalf("status %d", released.status)
	}
	l, h := p.stopped()
	now, leaderRecord, helperRecord := point{dataOf(t, l), dataOf(t, h)}, recordOf(t, l), recordOf(t, h)
	without := func(all tree, gone ...string) tree {
		all = maps.Clone(all)
		for _, name := range gone {
			delete(all, name)
		}
		return all
	}
	with := func(all tree, name string, b []byte) tree {
		all = maps.Clone(all)
		all[name] = b
		return all
	}
	for _, x := range []struct {
		what   string
		data   point
		fault  aggregator.StoreFault
		record bool // the record goes with it
	}{
		{"before the collection", verified, aggregator.OlderStore, false},
		{"before the uploads", empty, aggregator.OlderStore, false},
		{"no database", point{without(now.leader, "store.db", "store.db-wal"), without(now.helper, "store.db", "store.db-wal")}, aggregator.DatabaseLost, false},
		{"an empty database", point{with(now.leader, "store.db", nil), with(now.helper, "store.db", nil)}, aggregator.DatabaseLost, false},
		{"nothing at all", point{}, aggregator.DatabaseLost, false},
		{"a file of another program", point{with(now.leader, "store.db", bytes.Repeat([]byte("text "), 2000)),
			with(now.helper, "store.db", bytes.Repeat([]byte("text "), 2000))}, aggregator.ForeignStore, false},
		{"the other party's database", point{with(now.leader, "store.db", now.helper["store.db"]), with(now.helper, "store.db", now.leader["store.db"])},
			aggregator.ForeignStore, false},
		{"the other party's directory", point{now.helper, now.leader}, aggregator.ForeignStore, false},
		{"no database and no record", point{without(now.leader, "store.db", "store.db-wal", "identity"), without(now.helper, "store.db", "store.db-wal", "identity")},
			aggregator.DatabaseLost, true},
		{"an empty database and no record", point{tree{"store.db": nil}, tree{"store.db": nil}}, aggregator.DatabaseLost, true},
		{"a name, no database and no record", point{tree{"identity": now.leader["identity"]}, tree{"identity": now.helper["identity"]}}, aggregator.DatabaseLost, true},
		{"no record", now, aggregator.RecordLost, true},
	} {
		t.Run(x.what, func(t *testing.T) {
			lr, hr := leaderRecord, helperRecord
			if x.record {
				lr, hr = nil, nil
			}
			unfit(t, p.starts(dap.RoleLeader, diskOf(t, x.data.leader, lr)), x.fault)
			unfit(t, p.starts(dap.RoleHelper, diskOf(t, x.data.helper, hr)), x.fault)
		})
	}
	t.Run("a damaged record", func(t *testing.T) {
		for name, b := range map[string][]byte{
			"empty": nil, "cut": leaderRecord["record/mark"][:100], "zeros": make([]byte, 8192), "later": bytes.ReplaceAll(leaderRecord["record/mark"], []byte("mark v1"), []byte("mark v2")),
		} {
			err := p.starts(dap.RoleLeader, diskOf(t, now.leader, with(leaderRecord, "record/mark", b)))
			if unfit(t, err, aggregator.RecordLost); t.Failed() {
				t.Fatal(name)
			}
		}
	})
	t.Run("another store's record", func(t *testing.T) {
		other := newPair(t, setup{})
		other.leaderOpt.Base = p.leaderOpt.Base
		mem := disktest.NewMem(6)
		if err := other.starts(dap.RoleLeader, mem); err != nil {
			t.Fatal(err)
		}
		unfit(t, p.starts(dap.RoleLeader, diskOf(t, now.leader, recordOf(t, mem))), aggregator.ForeignStore)
		unfit(t, p.starts(dap.RoleLeader, diskOf(t, with(now.leader, "identity", content(t, mem, ".")["identity"]), leaderRecord)), aggregator.ForeignStore)
		base := p.leaderOpt.Base
		p.leaderOpt.Base = "https://other.example/"
		unfit(t, p.starts(dap.RoleLeader, diskOf(t, now.leader, leaderRecord)), aggregator.ForeignStore)
		p.leaderOpt.Base = base
	})
	// What harms nothing is mended: the name beside the database, and a record that is
	// older.
	if err := p.starts(dap.RoleLeader, diskOf(t, with(now.leader, "identity", []byte("starling")), leaderRecord)); err != nil {
		t.Errorf("a damaged name: %v", err)
	}
	p.onDisks(diskOf(t, without(now.leader, "identity"), leaderRecord), diskOf(t, now.helper, helperRecord))
	again := p.ask(q)
	if got := p.poll(again.header.Get("Location")); !bytes.Equal(got.body, released.body) {
		t.Error("with the right files in place again the answer is another")
	}
	if rs := p.uploadErrors(p.upload(p.report(1, spoil{}))); len(rs) != 1 || rs[0].Error != dap.BatchCollected {
		t.Errorf("an upload for the batch: %v", rs)
	}
}

// TestRecordIsOlder: a record that was put back, or that a crash kept behind, is brought
// up to its store; it lets no older store start from then on.
func TestRecordIsOlder(t *testing.T) {
	p := newPair(t, setup{})
	l, h := p.stopped()
	early, old := recordOf(t, l), dataOf(t, l)
	p.onDisks(l, h)
	p.accept(p.reports(12)...)
	p.step()
	p.collect(p.query())
	l, h = p.stopped()
	mem := diskOf(t, dataOf(t, l), early)
	if err := p.starts(dap.RoleLeader, mem); err != nil {
		t.Fatal(err)
	}
	unfit(t, p.starts(dap.RoleLeader, diskOf(t, old, recordOf(t, mem))), aggregator.OlderStore)
	p.onDisks(mem, h)
}

// TestForkedStore: a store that was put back together with its record, and went on, is
// not taken for the one that it was.
func TestForkedStore(t *testing.T) {
	p := newPair(t, setup{noise: must(noise.NewDiscreteGaussian(100, 1))})
	p.accept(p.reports(12)...)
	p.step()
	l, h := p.stopped()
	then := [2]tree{content(t, l, "."), content(t, h, ".")}
	p.onDisks(l, h)
	p.collect(p.query())
	l, h = p.stopped()
	one := recordOf(t, l)
	p.onDisks(diskOf(t, then[0]), diskOf(t, then[1]))
	p.collect(p.query())
	p.leader.Close()
	p.startLeader() // further than the other ever was
	fork, helperFS := p.stopped()
	unfit(t, p.starts(dap.RoleLeader, diskOf(t, dataOf(t, fork), one)), aggregator.OlderStore)
	p.onDisks(fork, helperFS)
	_ = h
}

// TestLostLog: the write-ahead log of a store that was in use is missed where it is gone
// or emptied, although the database alone is whole; that of one that was closed in order
// is empty, and is not.
func TestLostLog(t *testing.T) {
	p := newPair(t, setup{})
	p.onDisks(p.stopped())
	p.accept(p.reports(12)...)
	p.step()
	running := map[dap.Role]tree{dap.RoleLeader: content(t, p.leaderFS, "."), dap.RoleHelper: content(t, p.helperFS, ".")}
	for role, files := range running {
		if len(files["store.db-wal"]) == 0 {
			t.Fatalf("the log of the %v is empty", role)
		}
		emptied := maps.Clone(files)
		emptied["store.db-wal"] = nil
		unfit(t, p.starts(role, diskOf(t, emptied)), aggregator.OlderStore)
		delete(files, "store.db-wal")
		unfit(t, p.starts(role, diskOf(t, files)), aggregator.LogLost)
	}
	l, h := p.stopped()
	for role, mem := range map[dap.Role]*disktest.Mem{dap.RoleLeader: l, dap.RoleHelper: h} {
		files := tree(content(t, mem, "."))
		if len(files["store.db-wal"]) > 0 {
			t.Errorf("the log of the %v is not empty", role)
		}
		delete(files, "store.db-wal")
		if err := p.starts(role, diskOf(t, files)); err != nil {
			t.Errorf("%v, closed in order: %v", role, err)
		}
	}
	p.onDisks(l, h)
}

// TestKilledFirstStart cuts the power at every call of a first start: the next one goes
// on with it, and no cut makes a store that is refused or that is two.
func TestKilledFirstStart(t *testing.T) {
	p := newScheduledPair(t, setup{})
	o := p.leaderOpt
	begin := func(mem *disktest.Mem) (*leader.Leader, error) {
		o := o
		o.FS, o.Record = mem, disk.Sub(mem, "record")
		return leader.New(context.Background(), o)
	}
	mem := disktest.NewMem(7)
	recordOn(mem)
	before := mem.Writes()
	l, err := begin(mem)
	if err != nil {
		t.Fatal(err)
	}
	calls := mem.Writes() - before
	l.Close()
	if calls < 20 {
		t.Fatalf("only %d calls", calls)
	}
	for at := 0; at < calls; at++ {
		if at > 40 {
			at += 12 // of the migrations and the keys it may be any
		}
		mem := disktest.NewMem(uint64(100 + at))
		recordOn(mem)
		cutAfter(mem, at)
		if l, err := begin(mem); err == nil {
			l.Close()
		}
		mem = mem.Crash()
		l, err := begin(mem)
		if err != nil {
			t.Errorf("cut at call %d of %d: %v", at, calls, err)
			continue
		}
		if err := l.Close(); err != nil {
			t.Errorf("cut at call %d: %v", at, err)
		}
	}
}

// TestKeysWithoutState: key files whose state is gone, and a set that is gone as a whole,
// are damage; nothing is made and nothing destroyed.
func TestKeysWithoutState(t *testing.T) {
	p := newScheduledPair(t, setup{})
	l, h := p.stopped()
	for role, mem := range map[dap.Role]*disktest.Mem{dap.RoleLeader: l, dap.RoleHelper: h} {
		files := tree(content(t, mem, "."))
		one := maps.Clone(files)
		delete(one, "keys/state")
		if err := p.starts(role, diskOf(t, one)); !errors.Is(err, keyset.ErrDamaged) {
			t.Errorf("%v without keys/state: %v", role, err)
		}
		maps.DeleteFunc(one, func(name string, _ []byte) bool { return strings.HasPrefix(name, "keys/") })
		if err := p.starts(role, diskOf(t, one)); !errors.Is(err, keyset.ErrDamaged) {
			t.Errorf("%v without keys: %v", role, err)
		}
	}
	p.onDisks(l, h)
}

// TestRecordIsWrittenBeforeTheAnswer: a release that the record does not know of is told
// to nobody: where its disk fails, the collector and the leader get no answer, and the
// next life has the same bytes for them.
func TestRecordIsWrittenBeforeTheAnswer(t *testing.T) {
	for _, role := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
		t.Run(role.String(), func(t *testing.T) {
			p := newPair(t, setup{noise: must(noise.NewDiscreteGaussian(100, 1))})
			p.accept(p.reports(12)...)
			p.step()
			mem := p.leaderFS
			if role == dap.RoleHelper {
				mem = p.helperFS
			}
			mem.Inject(func(op disktest.Op, name string) error {
				if op == disktest.OpSync && name == "record/mark" {
					return errCut
				}
				return nil
			})
			q := p.query()
			a := p.ask(q)
			for range 3 {
				p.leader.Step(context.Background()) // fails
			}
			if got := p.poll(a.header.Get("Location")); len(got.body) > 0 && got.status == http.StatusOK {
				t.Error("an answer left before its release was in the record")
			}
			mem.Inject(nil)
			p.leader.Close()
			p.helper.Close()
			p.startLeader()
			p.startHelper()
			p.clock.advance(2 * time.Hour) // past every back-off
			p.step()
			if got := p.poll(a.header.Get("Location")); got.status != http.StatusOK || len(got.body) == 0 {
				t.Errorf("after a restart: status %d", got.status)
			}
		})
	}
}

// TestDatabaseOfALaterVersion is refused, and not taken for damage.
func TestDatabaseOfALaterVersion(t *testing.T) {
	p := newPair(t, setup{})
	l, h := p.stopped()
	files := tree(content(t, l, "."))
	db := bytes.Clone(files["store.db"])
	db[60], db[61], db[62], db[63] = 0, 0, 3, 231 // user_version
	sumPage(db[:4096])
	files["store.db"] = db
	if err := p.starts(dap.RoleLeader, diskOf(t, files)); !errors.Is(err, database.ErrTooNew) {
		t.Errorf("got %v", err)
	}
	p.onDisks(l, h)
}

// TestForgottenRelease: data and record that are put back together are a store like any
// other, which starts. A collector that has seen a release which it has forgotten gets
// nothing of it, whatever it asks; the store that made it still answers.
func TestForgottenRelease(t *testing.T) {
	p := newPair(t, setup{noise: must(noise.NewDiscreteGaussian(100, 1))})
	p.accept(p.reports(12)...)
	p.step()
	l, h := p.stopped()
	then := [2]tree{content(t, l, "."), content(t, h, ".")}
	p.onDisks(l, h)
	q := p.query()
	a := p.ask(q)
	p.step()
	released := p.poll(a.header.Get("Location"))
	seen := released.header.Get(releases.Header)
	if s, err := releases.ParseSeen(seen); err != nil || s.Length != 1 {
		t.Fatalf("%s: %q, %v", releases.Header, seen, err)
	}
	ask := func(header string) answer {
		t.Helper()
		req := must(http.NewRequest("GET", must(url.Parse(p.leaderURL)).ResolveReference(must(url.Parse(a.header.Get("Location")))).String(), nil))
		req.Header.Set("Authorization", "Bearer "+collectorToken)
		req.Header.Set(releases.Header, header)
		resp := must(http.DefaultClient.Do(req))
		defer resp.Body.Close()
		return answer{resp.StatusCode, resp.Header, must(io.ReadAll(resp.Body))}
	}
	if got := ask(seen); !bytes.Equal(got.body, released.body) {
		t.Errorf("a collector that remembers is answered %d", got.status)
	}
	p.refused(ask("rubbish"), dap.ProblemInvalidMessage, http.StatusBadRequest)
	p.refused(ask("1 "+strings.Repeat("00", 32)), releases.ProblemForgotten, http.StatusConflict)
	now, nowHelper := p.stopped()
	p.onDisks(diskOf(t, then[0]), diskOf(t, then[1]))
	p.refused(ask(seen), releases.ProblemForgotten, http.StatusConflict)
	p.stopped()
	p.onDisks(now, nowHelper)
	if got := ask(seen); !bytes.Equal(got.body, released.body) {
		t.Errorf("the right store answers %d", got.status)
	}
}
