package aggregator_test

import (
	"bytes"
	"errors"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/sealed"
)

// scheduled has both aggregators make keys of the suites by themselves: one a day, taken
// for a day and an hour more, and at the helper good for jobs for two days after that.
func scheduled(s setup, suites ...sealed.Suite) setup {
	l, h := s.leader, s.helper
	s.leader = func(o *leader.Options) {
		o.Keys, o.KeySchedule = nil, &keyset.Schedule{Suites: suites}
		if l != nil {
			l(o)
		}
	}
	s.helper = func(o *helper.Options) {
		o.Keys, o.KeySchedule = nil, &keyset.Schedule{Suites: suites, Delay: 48 * time.Hour}
		if h != nil {
			h(o)
		}
	}
	return s
}

// Times of scheduled.
const (
	keyPeriod = 24 * time.Hour
	keyTaken  = 25 * time.Hour // after the next one
	keyDelay  = 48 * time.Hour
)

// newScheduledPair is a pair whose reports are sealed to the keys that it offers.
func newScheduledPair(t testing.TB, s setup, suites ...sealed.Suite) *pair {
	t.Helper()
	p := newPair(t, scheduled(s, suites...))
	p.fetchKeys()
	return p
}

// fetchKeys has later reports sealed to what is offered now.
func (p *pair) fetchKeys() {
	p.t.Helper()
	for i, cfg := range p.configs() {
		p.offered[i] = &cfg
	}
}

// configs are the keys that leader and helper offer.
func (p *pair) configs() (to []dap.HpkeConfig) {
	p.t.Helper()
	for _, base := range []string{p.leaderURL, p.helperURL} {
		a := p.call("GET", base, dap.HpkeConfigPath, "", "", nil)
		if a.status != http.StatusOK {
			p.t.Fatalf("keys: status %d", a.status)
		}
		to = append(to, must(must(dap.ReadHpkeConfigList(a.body)).Choose()))
	}
	return to
}

// keys are the states of an aggregator's keys, by id.
func (p *pair) keys(role dap.Role) map[uint8]status.Key {
	p.t.Helper()
	read := p.leader.Status
	if role == dap.RoleHelper {
		read = p.helper.Status
	}
	m := make(map[uint8]status.Key)
	for _, k := range must(read(p.t.Context())).Keys {
		m[k.ID] = k
	}
	return m
}

// keyIs demands a state of the key that reports were sealed to.
func (p *pair) keyIs(role dap.Role, id uint8, state string) {
	p.t.Helper()
	if k := p.keys(role)[id]; k.State != state {
		p.t.Errorf("the %v's key is %+v, want it %s", role, k, state)
	}
}

// content is what every file of a disk holds, by name.
func content(t testing.TB, fsys disk.FS, dir string) map[string][]byte {
	t.Helper()
	all := make(map[string][]byte)
	for _, e := range must(fsys.ReadDir(dir)) {
		name := path.Join(dir, e.Name)
		if !e.Dir {
			all[name] = must(disk.ReadFile(fsys, name, e.Size))
			continue
		}
		for name, b := range content(t, fsys, name) {
			all[name] = b
		}
	}
	return all
}

// unavailable stands for a helper that is down.
func unavailable(http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
}

// TestSavedLogIsShredded: who copies a log while its reports wait, and later has all that
// leader and helper hold, their disks and what they still open, reads nothing in it once
// its keys have ended.
func TestSavedLogIsShredded(t *testing.T) {
	for name, suite := range map[string]sealed.Suite{"X25519": sealed.SuiteX25519, "X-Wing": sealed.SuiteXWing} {
		t.Run(name, func(t *testing.T) {
			p := newScheduledPair(t, setup{}, suite)
			if p.offered[0].KEM != suite.KEM || p.offered[1].KEM != suite.KEM {
				t.Fatalf("offered KEMs %#x and %#x", p.offered[0].KEM, p.offered[1].KEM)
			}
			rs := p.reports(12)
			p.between(unavailable)
			p.accept(rs...)
			p.step()
			p.between(nil)
			// The thief's copies: the log, and the disks as they are now.
			var saved []byte
			for _, b := range content(t, p.leaderFS, "inbox") {
				saved = append(saved, b...)
			}
			then := map[dap.Role]map[string][]byte{
				dap.RoleLeader: content(t, p.leaderFS, "."), dap.RoleHelper: content(t, p.helperFS, "."),
			}
			for i := range rs {
				for _, ct := range []dap.HpkeCiphertext{rs[i].Leader, rs[i].Helper} {
					if !bytes.Contains(saved, ct.Payload) {
						t.Fatal("the log does not hold what was sealed")
					}
				}
			}
			// opened counts the shares in the log that keys among the files open.
			opened := func(role dap.Role, files map[string][]byte) (n int) {
				var pairs []*sealed.KeyPair
				magic := []byte("starling hpke key v1\n")
				for _, b := range files {
					for ; bytes.Contains(b, magic); b = b[len(magic):] {
						b = b[bytes.Index(b, magic):]
						for end := len(b); end > len(magic); end-- { // whatever follows it
							if k, err := sealed.ParseKeyPair(b[:end]); err == nil {
								pairs = append(pairs, k)
								break
							}
						}
					}
				}
				for i := range rs {
					ct := rs[i].Leader
					if role == dap.RoleHelper {
						ct = rs[i].Helper
					}
					aad := dap.InputShareAAD(p.id, p.cfg.Bytes(), &rs[i].Metadata, rs[i].PublicShare)
					for _, k := range pairs {
						if _, err := k.Open(ct.Enc, p.dialect.InputShareInfo(role), aad, ct.Payload); err == nil {
							n++
						}
					}
				}
				return n
			}
			for role, files := range then {
				if n := opened(role, files); n != len(rs) {
					t.Fatalf("the %v's disk of then opens %d of %d: the attack is no attack", role, n, len(rs))
				}
			}
			ids := map[dap.Role]uint8{dap.RoleLeader: p.offered[0].ID, dap.RoleHelper: p.offered[1].ID}
			old := p.offered

			p.clock.advance(time.Hour)
			p.step()
			if c := p.counts(); c.Aggregated != 12 || c.Waiting != 0 {
				t.Fatalf("%+v", c)
			}
			p.clock.advance(keyPeriod)
			p.step()
			p.fetchKeys()
			for i, role := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
				p.keyIs(role, ids[role], status.KeyAccepted)
				p.keyIs(role, p.offered[i].ID, status.KeyCurrent)
				if p.offered[i].ID == old[i].ID {
					t.Errorf("the %v still offers the old key", role)
				}
			}
			p.clock.advance(keyTaken)
			p.step()
			p.keyIs(dap.RoleLeader, ids[dap.RoleLeader], status.KeyDestroyed)
			p.keyIs(dap.RoleHelper, ids[dap.RoleHelper], status.KeyRetiring)
			p.clock.advance(keyDelay)
			p.step()
			p.keyIs(dap.RoleHelper, ids[dap.RoleHelper], status.KeyDestroyed)

			for role, fsys := range map[dap.Role]disk.FS{dap.RoleLeader: p.leaderFS, dap.RoleHelper: p.helperFS} {
				if n := opened(role, content(t, fsys, ".")); n != 0 {
					t.Errorf("the %v's disk opens %d reports of the saved log", role, n)
				}
				// Nor does a piece of the key lie anywhere, in whatever file.
				for name, file := range then[role] {
					if !strings.HasSuffix(name, ".hpke") {
						continue
					}
					secret := file[30:62]
					for name, b := range content(t, fsys, ".") {
						if bytes.Contains(b, secret) {
							t.Errorf("%v: the key lies in %s", role, name)
						}
					}
				}
			}
			// The service itself, asked to open it: the log's reports in a job to the
			// helper, and in an upload to the leader.
			reject := p.uploadErrors(p.upload(rs[0]))
			if len(reject) != 1 || !reject[0].Error.Outdated() {
				t.Errorf("uploaded again: %+v", reject)
			}
			p.settled(12, nil)
		})
	}
}

// TestUploadRetiredKey: a key that was followed by another is taken as long as a client
// may have it, and an hour more; after that a report gets the reason that brings the
// client back with the new one.
func TestUploadRetiredKey(t *testing.T) {
	p := newScheduledPair(t, setup{})
	r := p.reports(4)
	old := p.offered
	p.clock.advance(keyPeriod)
	p.step()
	p.accept(r[0])
	p.clock.advance(keyTaken - time.Second)
	p.accept(r[1])
	p.clock.advance(time.Second)
	p.refusedAtUpload(r[2], dap.OutdatedConfig) // by the clock, not by the next step
	p.step()
	p.refusedAtUpload(r[2], dap.OutdatedConfig)
	p.fetchKeys()
	if p.offered[0].ID == old[0].ID {
		t.Fatal("the old key is offered")
	}
	p.accept(p.report(0, spoil{}))
	p.settled(3, nil)
}

// TestHpkeConfigFollowsTheKeys: the list has one current key of each suite, best first,
// and says how long it may be used.
func TestHpkeConfigFollowsTheKeys(t *testing.T) {
	s := scheduled(setup{}, sealed.SuiteXWing, sealed.SuiteX25519)
	age := s.leader
	s.leader = func(o *leader.Options) { age(o); o.KeySchedule.MaxAge = 100 * time.Hour }
	p := newPair(t, s)
	read := func() dap.HpkeConfigList {
		a := p.call("GET", p.leaderURL, dap.HpkeConfigPath, "", "", nil)
		if got := a.header.Get("Cache-Control"); got != "max-age=360000" {
			t.Errorf("Cache-Control %q", got)
		}
		list := must(dap.ReadHpkeConfigList(a.body))
		if len(list) != 2 || list[0].KEM != sealed.KEMXWing || list[1].KEM != sealed.KEMX25519 {
			t.Fatalf("list %v", list)
		}
		return list
	}
	first := read()
	p.clock.advance(keyPeriod)
	p.step()
	for i, cfg := range read() {
		if cfg.ID == first[0].ID || cfg.ID == first[1].ID || bytes.Equal(cfg.Key, first[i].Key) {
			t.Errorf("key %d is offered again", cfg.ID)
		}
	}
}

// TestLeaderKeepsKeysOfWaitingReports: as long as an acknowledged report waits, in the
// log or in a slice, its key stays, over restarts and however late it is; then the key
// goes.
func TestLeaderKeepsKeysOfWaitingReports(t *testing.T) {
	p := newScheduledPair(t, setup{helper: func(o *helper.Options) { o.KeySchedule.Delay = 1000 * time.Hour }})
	id := p.offered[0].ID
	p.between(unavailable)
	p.accept(p.reports(6)...)
	p.clock.advance(keyPeriod)
	p.step()
	p.accept(p.reports(5)...)
	p.clock.advance(keyTaken)
	for range 3 {
		p.step()
		k := p.keys(dap.RoleLeader)[id]
		if k.State != status.KeyRetiring || k.Why != "11 acknowledged reports are not folded yet" {
			t.Fatalf("%+v", k)
		}
		p.leader.Close()
		p.startLeader()
		p.clock.advance(20 * time.Hour)
	}
	p.between(nil)
	p.fetchKeys()
	p.accept(p.reports(2)...) // of another key: they keep nothing
	p.clock.advance(time.Hour)
	p.step()
	p.keyIs(dap.RoleLeader, id, status.KeyDestroyed)
	p.settled(13, nil)
}

// TestHelperKeysEndForLateJobs: a job that was stored before the end of its key is done
// after it; a job that comes after the end gets the reason for each report, which both
// aggregators count.
func TestHelperKeysEndForLateJobs(t *testing.T) {
	p := newScheduledPair(t, setup{helper: func(o *helper.Options) { o.Deferred = helper.Always }})
	id := p.offered[1].ID
	p.clock.advance(keyPeriod)
	p.step()
	p.accept(p.reports(4)...)
	must(p.leader.Step(t.Context())) // the helper has stored the job
	p.between(unavailable)
	p.accept(p.reports(3)...)
	must(p.leader.Step(t.Context()))
	p.between(nil)
	p.clock.advance(keyTaken + keyDelay)
	p.keyIs(dap.RoleHelper, id, status.KeyRetiring)
	must(p.helper.Step(t.Context()))
	p.keyIs(dap.RoleHelper, id, status.KeyDestroyed)
	p.step()
	p.clock.advance(2 * time.Hour) // what the leader put off
	p.settled(4, map[string]uint64{"hpke_unknown_config_id": 3})
	if c := p.helperCounts(); c.Aggregated != 4 || c.Rejected["hpke_unknown_config_id"] != 3 {
		t.Errorf("helper: %+v", c)
	}
}

// TestKeysTurnUnderLoad: while clients upload and both aggregators work, keys are made
// and destroyed; what was acknowledged is counted.
func TestKeysTurnUnderLoad(t *testing.T) {
	p := newPair(t, scheduled(setup{
		leader: func(o *leader.Options) {
			o.KeySchedule.Period, o.KeySchedule.MaxAge, o.KeySchedule.Overlap = 10*time.Minute, time.Minute, time.Minute
		},
		helper: func(o *helper.Options) { o.KeySchedule.Period = 10 * time.Hour },
	}))
	var clients sync.WaitGroup
	var acknowledged, outdated atomic.Uint64
	uploads := make(chan struct{}, 3)
	for range 3 {
		clients.Go(func() {
			to := p.configs()
			ids := map[uint8]bool{to[0].ID: true}
			for n := 0; len(ids) < 5; n++ {
				r := p.report(n%buckets, spoil{To: to})
				uploads <- struct{}{} // time goes on meanwhile
				switch refused := p.uploadErrors(p.upload(r)); {
				case len(refused) == 0:
					acknowledged.Add(1)
					if n%5 > 0 {
						continue
					}
				case refused[0].Error.Outdated():
					outdated.Add(1)
				default:
					t.Errorf("refused: %v", refused[0].Error)
					return
				}
				to = p.configs()
				ids[to[0].ID] = true
			}
		})
	}
	go func() {
		clients.Wait()
		close(uploads)
	}()
	for range uploads {
		p.clock.advance(40 * time.Second)
		p.step()
	}
	p.settled(acknowledged.Load(), nil)
	if acknowledged.Load() == 0 {
		t.Error("nothing was acknowledged")
	}
	t.Logf("%d reports were acknowledged, %d sealed again", acknowledged.Load(), outdated.Load())
}

// TestKeysPassFromTheOperator: a service that was given keys and now makes its own takes
// uploads for both, offers its own, and no longer knows the operator's once they are not
// configured.
func TestKeysPassFromTheOperator(t *testing.T) {
	p := newPair(t, setup{})
	p.accept(p.reports(3)...)
	restart := func(keys bool) {
		p.leader.Close()
		p.helper.Close()
		p.leaderOpt.KeySchedule, p.helperOpt.KeySchedule = &keyset.Schedule{}, &keyset.Schedule{}
		if !keys {
			p.leaderOpt.Keys, p.helperOpt.Keys = nil, nil
		}
		p.startLeader()
		p.startHelper()
	}
	restart(true)
	p.accept(p.reports(2)...)
	p.keyIs(dap.RoleLeader, p.leaderKey.ID(), status.KeyConfigured)
	old := p.report(0, spoil{})
	p.fetchKeys()
	if slices.Contains([]uint8{p.leaderKey.ID(), p.helperKey.ID()}, p.offered[0].ID) && bytes.Equal(p.offered[0].Key, p.leaderKey.Public().Bytes()) {
		t.Error("the operator's key is offered")
	}
	p.accept(p.reports(4)...)
	p.settled(9, nil)
	restart(false)
	p.refusedAtUpload(old, dap.OutdatedConfig)
	p.accept(p.reports(1)...)
	p.settled(10, nil)
}

// TestKeysNeedFiles: without keys and without a schedule, or with a damaged directory, no
// service starts.
func TestKeysNeedFiles(t *testing.T) {
	p := newScheduledPair(t, setup{})
	p.leader.Close()
	for _, e := range must(p.leaderFS.ReadDir("keys")) {
		if e.Name != "state" {
			p.leaderFS.Remove("keys/" + e.Name)
		}
	}
	if l, err := leader.New(t.Context(), p.leaderOpt); !errors.Is(err, keyset.ErrDamaged) {
		l.Close()
		t.Errorf("a key is gone: %v", err)
	}
	o := p.leaderOpt
	o.KeySchedule = nil
	if _, err := leader.New(t.Context(), o); err == nil {
		t.Error("a leader without keys")
	}
	o.KeySchedule = &keyset.Schedule{Delay: time.Hour}
	if _, err := leader.New(t.Context(), o); err == nil {
		t.Error("a leader with a delay")
	}
	o.KeySchedule = &keyset.Schedule{Period: -1}
	if _, err := leader.New(t.Context(), o); err == nil {
		t.Error("a negative period")
	}
	p.leaderFS = disktest.NewMem(9)
	p.leaderOpt.FS = p.leaderFS
	p.startLeader()
}
