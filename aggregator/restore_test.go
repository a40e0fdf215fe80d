package aggregator_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/backup"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/releases"
)

// backupOf are the options with which one of both is backed up, or restored, on a disk.
func (p *pair) backupOf(role dap.Role, mem *disktest.Mem) backup.Options {
	o := backup.Options{Data: mem, Record: recordOn(mem), Role: role, Party: p.leaderOpt.Base, Tasks: p.leaderOpt.Tasks, MakesKeys: true, Clock: p.clock}
	if role == dap.RoleHelper {
		o.Party, o.Tasks = p.helperOpt.Base, p.helperOpt.Tasks
	}
	return o
}

func restore(t *testing.T, o backup.Options, from disk.FS) {
	t.Helper()
	if err := must(backup.Look(o, from)).Restore(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// A backedUp pair made backups, collected another batch after them, has reports that wait,
// and is stopped.
type backedUp struct {
	*pair
	leaderDisk, helperDisk     *disktest.Mem
	leaderBackup, helperBackup *disktest.Mem
	old                        string // the collection that the backup knows
	released                   []byte
	forgotten                  dap.CollectionJobReq // the one after it
}

func newBackedUp(t *testing.T, running bool) *backedUp {
	t.Helper()
	b := &backedUp{pair: newScheduledPair(t, setup{noise: must(noise.NewDiscreteGaussian(100, 1))}), leaderBackup: disktest.NewMem(8), helperBackup: disktest.NewMem(9)}
	p := b.pair
	p.accept(p.reports(12)...)
	p.step()
	b.old, b.released = p.released(p.query())
	if running {
		received(t, p.leader.Backup, b.leaderBackup)
		received(t, p.helper.Backup, b.helperBackup)
	} else {
		l, h := p.stopped()
		must(backup.Make(context.Background(), p.backupOf(dap.RoleLeader, l), b.leaderBackup))
		must(backup.Make(context.Background(), p.backupOf(dap.RoleHelper, h), b.helperBackup))
		p.onDisks(l, h)
	}
	p.clock.advance(6 * time.Hour)
	p.accept(p.reports(12)...)
	p.step()
	b.forgotten = p.query()
	p.released(b.forgotten)
	p.clock.advance(6 * time.Hour)
	p.accept(p.report(1, spoil{})) // waits for ever
	b.leaderDisk, b.helperDisk = p.stopped()
	return b
}

// received has a party that runs make a backup.
func received(t *testing.T, send func(context.Context, io.Writer) error, to disk.FS) {
	t.Helper()
	var b bytes.Buffer
	if err := send(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Receive(&b, to); err != nil {
		t.Fatal(err)
	}
}

// TestRestore: a leader or a helper, or both, whose data directory is lost is restored
// from a backup that knows of one release and not of the other. The first is answered
// with the same bytes; the other, and all else, is refused for good, at both, whichever
// was restored. Put back without a restore the backup does not start.
func TestRestore(t *testing.T) {
	for _, x := range []struct {
		name           string
		leader, helper bool
		running        bool // when the backups were made
	}{
		{"leader", true, false, false}, {"helper", false, true, false}, {"both", true, true, false},
		{"leader/running", true, false, true}, {"helper/running", false, true, true}, {"both/running", true, true, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := newBackedUp(t, x.running)
			p := b.pair
			l, h := b.leaderDisk, b.helperDisk
			if x.leader {
				raw := diskOf(t, recordOf(t, l), tree{"store.db": content(t, b.leaderBackup, ".")["store.db"], "identity": content(t, l, ".")["identity"]})
				unfit(t, p.starts(dap.RoleLeader, raw), aggregator.OlderStore)
				l = diskOf(t, recordOf(t, l))
				unfit(t, p.starts(dap.RoleLeader, l), aggregator.DatabaseLost)
				restore(t, p.backupOf(dap.RoleLeader, l), b.leaderBackup)
			}
			if x.helper {
				h = diskOf(t, recordOf(t, h))
				restore(t, p.backupOf(dap.RoleHelper, h), b.helperBackup)
			}
			p.onDisks(l, h)
			p.fetchKeys()
			p.clock.advance(2 * time.Hour) // past every back-off
			p.step()
			if got := p.poll(b.old); got.status != http.StatusOK || !bytes.Equal(got.body, b.released) {
				t.Errorf("what the backup knows is answered %d, %d bytes", got.status, len(got.body))
			}
			p.clock.advance(6 * time.Hour)
			up := p.upload(p.reports(12)...)
			if x.leader {
				p.refused(up, releases.ProblemClosed, http.StatusBadRequest)
				a := p.ask(b.forgotten)
				p.step()
				p.refused(p.poll(a.header.Get("Location")), releases.ProblemClosed, http.StatusBadRequest)
			} else if up.status != http.StatusServiceUnavailable {
				t.Errorf("the leader of a helper that was restored takes reports: status %d", up.status)
			}
			p.anew()
			a := p.ask(p.query())
			p.step()
			if got := p.poll(a.header.Get("Location")); got.status == http.StatusOK && len(got.body) > 0 {
				t.Error("a batch is released after a restore")
			}
			for side, s := range map[string]*status.Task{"leader": p.leaderTask(), "helper": p.helperTask()} {
				var said string
				for _, stop := range s.Stops {
					said += stop.Why + "\n" + stop.Do + "\n"
				}
				if !strings.Contains(said, "restore") || !strings.Contains(said, "starling recipe again") {
					t.Errorf("the %s says %q", side, said)
				}
			}
		})
	}
}

// TestRestoreAgain: the same backup is restored twice, and closes what came between; with
// each restore the epoch rises, and a store of an epoch before does not start.
func TestRestoreAgain(t *testing.T) {
	b := newBackedUp(t, false)
	p := b.pair
	l := diskOf(t, recordOf(t, b.leaderDisk))
	restore(t, p.backupOf(dap.RoleLeader, l), b.leaderBackup)
	once := dataOf(t, l)
	l = diskOf(t, recordOf(t, l))
	plan := must(backup.Look(p.backupOf(dap.RoleLeader, l), b.leaderBackup))
	if plan.Next != 2 {
		t.Errorf("the second restore begins epoch %d", plan.Next)
	}
	if err := plan.Restore(context.Background()); err != nil {
		t.Fatal(err)
	}
	unfit(t, p.starts(dap.RoleLeader, diskOf(t, once, recordOf(t, l))), aggregator.OlderStore)
	unfit(t, p.starts(dap.RoleLeader, diskOf(t, dataOf(t, b.leaderDisk), recordOf(t, l))), aggregator.OlderStore)
	p.onDisks(l, b.helperDisk)
	p.refused(p.upload(p.report(1, spoil{})), releases.ProblemClosed, http.StatusBadRequest)
}

// TestKilledRestore cuts the power at every call of a restore that writes: what is there
// then is refused, with the way out, or is restored; and the same restore once more ends
// it. At no cut it starts as the store that it was.
func TestKilledRestore(t *testing.T) {
	b := newBackedUp(t, false)
	p := b.pair
	lost := tree(content(t, b.leaderDisk, "."))
	delete(lost, "store.db")
	mem := diskOf(t, lost)
	before := mem.Writes()
	restore(t, p.backupOf(dap.RoleLeader, mem), b.leaderBackup)
	calls := mem.Writes() - before
	if calls < 20 {
		t.Fatalf("only %d calls", calls)
	}
	whole := mem
	refused := 0
	for at := 0; at < calls; at++ {
		if at > 40 {
			at += 5
		}
		mem := diskOf(t, lost)
		o := p.backupOf(dap.RoleLeader, mem)
		plan := must(backup.Look(o, b.leaderBackup))
		cutAfter(mem, at)
		if plan.Restore(context.Background()) == nil {
			continue // the rest was not needed
		}
		mem = mem.Crash()
		err := p.starts(dap.RoleLeader, mem)
		if unfit := new(aggregator.StoreError); errors.As(err, &unfit) {
			refused++
			if unfit.Fault != aggregator.RestoreBegun && unfit.Fault != aggregator.DatabaseLost {
				t.Errorf("cut at call %d of %d: %v", at, calls, err)
			}
		} else if err != nil {
			t.Errorf("cut at call %d of %d: %v", at, calls, err)
		}
		restore(t, p.backupOf(dap.RoleLeader, mem), b.leaderBackup)
		if err := p.starts(dap.RoleLeader, mem); err != nil {
			t.Errorf("cut at call %d of %d, restored again: %v", at, calls, err)
		}
	}
	if refused < 5 {
		t.Errorf("only %d cuts of %d were refused", refused, calls)
	}
	p.onDisks(whole, b.helperDisk)
}

// TestRestoreRefuses damaged backups, and those of others, before anything is changed.
func TestRestoreRefuses(t *testing.T) {
	b := newBackedUp(t, false)
	p := b.pair
	good := tree(content(t, b.leaderBackup, "."))
	with := func(name string, data []byte) *disktest.Mem {
		files := maps.Clone(good)
		if files[name] = data; data == nil {
			delete(files, name)
		}
		return diskOf(t, files)
	}
	flipped := func(name string, at int) *disktest.Mem {
		data := bytes.Clone(good[name])
		data[at] ^= 1
		return with(name, data)
	}
	other := newScheduledPair(t, setup{})
	o, _ := other.stopped()
	elsewhere := disktest.NewMem(10)
	must(backup.Make(context.Background(), other.backupOf(dap.RoleLeader, o), elsewhere))
	other.onDisks(o, other.helperFS)
	db := good["store.db"]
	for _, x := range []struct {
		what string
		from *disktest.Mem
		want error
	}{
		{"nothing", disktest.NewMem(11), backup.ErrDamaged},
		{"no manifest", with("manifest", nil), backup.ErrDamaged},
		{"no database", with("store.db", nil), backup.ErrDamaged},
		{"an empty database", with("store.db", []byte{}), backup.ErrDamaged},
		{"a database cut off", with("store.db", db[:len(db)-1]), backup.ErrDamaged},
		{"a longer database", with("store.db", append(bytes.Clone(db), 0)), backup.ErrDamaged},
		{"a bit of the database", flipped("store.db", len(db)/2), backup.ErrDamaged},
		{"a bit of the manifest", flipped("manifest", 40), backup.ErrDamaged},
		{"a manifest of a later version", with("manifest", bytes.Replace(good["manifest"], []byte(" v1"), []byte(" v2"), 1)), backup.ErrDamaged},
		{"the helper's", b.helperBackup, backup.ErrForeign},
		{"another leader's", elsewhere, backup.ErrForeign},
	} {
		mem := diskOf(t, recordOf(t, b.leaderDisk))
		if _, err := backup.Look(p.backupOf(dap.RoleLeader, mem), x.from); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", x.what, err, x.want)
		}
		if !maps.EqualFunc(tree(content(t, mem, ".")), recordOf(t, b.leaderDisk), bytes.Equal) {
			t.Errorf("%s: something was changed", x.what)
		}
	}
	if _, err := backup.Look(p.backupOf(dap.RoleLeader, disktest.NewMem(12)), b.leaderBackup); !errors.Is(err, backup.ErrRecord) {
		t.Errorf("without a record: %v", err)
	}
	if _, err := backup.Make(context.Background(), p.backupOf(dap.RoleLeader, b.leaderDisk), b.leaderBackup); !errors.Is(err, backup.ErrExists) {
		t.Errorf("a backup is written over: %v", err)
	}
	p.onDisks(b.leaderDisk, b.helperDisk)
}

// TestBackupRunning: a backup of a leader that runs is the store as it was between two
// transactions, with what was only in the log; it is the same file that a stop just then
// would have left, and leaves nothing beside the database. One that is cut or changed on
// its way is none, and what a killed life left goes at the next start.
func TestBackupRunning(t *testing.T) {
	p := newScheduledPair(t, setup{})
	p.accept(p.reports(12)...)
	p.step()
	p.released(p.query())
	p.clock.advance(6 * time.Hour)
	p.accept(p.reports(12)...)
	p.step()
	var sent bytes.Buffer
	if err := p.leader.Backup(t.Context(), &sent); err != nil {
		t.Fatal(err)
	}
	to := disktest.NewMem(8)
	m := must(backup.Receive(bytes.NewReader(sent.Bytes()), to))
	if m.Role != "leader" || m.Releases != 1 || m.Epoch != 0 {
		t.Errorf("the manifest says %+v", m)
	}
	if _, err := backup.Receive(bytes.NewReader(sent.Bytes()), to); !errors.Is(err, backup.ErrExists) {
		t.Errorf("a backup is written over: %v", err)
	}
	l, h := p.stopped()
	if _, beside := content(t, l, ".")["backup.db"]; beside {
		t.Error("the copy is still there")
	}
	for name, damaged := range map[string][]byte{
		"cut":     sent.Bytes()[:sent.Len()-1],
		"empty":   nil,
		"head":    sent.Bytes()[:100],
		"longer":  append(bytes.Clone(sent.Bytes()), 0),
		"changed": append(bytes.Clone(sent.Bytes()[:sent.Len()-1]), sent.Bytes()[sent.Len()-1]^1),
	} {
		to := disktest.NewMem(9)
		if _, err := backup.Receive(bytes.NewReader(damaged), to); !errors.Is(err, backup.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := backup.Read(to); !errors.Is(err, backup.ErrDamaged) {
			t.Errorf("%s: what came is taken for a backup: %v", name, err)
		}
	}
	if err := disk.WriteFile(l, "backup.db", []byte("half")); err != nil {
		t.Fatal(err)
	}
	if err := backup.Sweep(l); err != nil {
		t.Fatal(err)
	}
	if _, beside := content(t, l, ".")["backup.db"]; beside {
		t.Error("what a life left stays")
	}
	restored := diskOf(t, recordOf(t, l))
	restore(t, p.backupOf(dap.RoleLeader, restored), to)
	p.onDisks(restored, h)
	if got := p.leaderTask().Counts; got.Aggregated != 24 {
		t.Errorf("the backup has %d reports aggregated, want 24", got.Aggregated)
	}
}

// TestBackupUnderWork: backups that are made while reports come, are verified and are
// released are each of one moment, and each can be restored.
func TestBackupUnderWork(t *testing.T) {
	p := newScheduledPair(t, setup{})
	var backups []*disktest.Mem
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			to := disktest.NewMem(uint64(20 + len(backups)))
			received(t, p.leader.Backup, to)
			backups = append(backups, to)
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	for range 6 {
		p.accept(p.reports(12)...)
		p.step()
		p.released(p.query())
		p.clock.advance(6 * time.Hour)
	}
	close(stop)
	<-done
	backups = append(backups, disktest.NewMem(19))
	received(t, p.leader.Backup, backups[len(backups)-1])
	l, h := p.stopped()
	last := uint64(0)
	for _, from := range backups[max(0, len(backups)-12):] {
		m := must(backup.Read(from))
		if m.Releases < last {
			t.Errorf("%d releases after %d", m.Releases, last)
		}
		last = m.Releases
		restored := diskOf(t, recordOf(t, l))
		restore(t, p.backupOf(dap.RoleLeader, restored), from)
		if err := p.starts(dap.RoleLeader, restored); err != nil {
			t.Error(err)
		}
	}
	if last != 6 {
		t.Errorf("the last backup knows of %d releases", last)
	}
	p.onDisks(l, h)
}
