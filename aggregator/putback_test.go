package aggregator_test

import (
	"bytes"
	"context"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// A keptPair has the record of each apart from its data.
type keptPair struct {
	*pair
	records [2]*disktest.Mem // of leader and helper
}

// newKeptPair has noise that five draws tell apart: two are equal once in 10^30.
func newKeptPair(t *testing.T, s setup) *keptPair {
	t.Helper()
	k := &keptPair{records: [2]*disktest.Mem{disktest.NewMem(3), disktest.NewMem(4)}}
	if s.noise == nil {
		s.noise = must(noise.NewDiscreteGaussian(1<<40, 1))
	}
	s.apart = true
	l, h := s.leader, s.helper
	s.leader = func(o *leader.Options) {
		if o.Record = k.records[0]; l != nil {
			l(o)
		}
	}
	s.helper = func(o *helper.Options) {
		if o.Record = k.records[1]; h != nil {
			h(o)
		}
	}
	k.pair = newPair(t, s)
	return k
}

// copied is a copy of what is on a disk, as cp -a makes it, but for some directories.
func copied(t *testing.T, from *disktest.Mem, but ...string) *disktest.Mem {
	t.Helper()
	to := disktest.NewMem(9)
	copyTo(t, to, from, ".", but...)
	return to
}

func copyTo(t *testing.T, to, from *disktest.Mem, dir string, but ...string) {
	t.Helper()
	for _, e := range must(from.ReadDir(dir)) {
		name := path.Join(dir, e.Name)
		switch {
		case slices.Contains(but, name):
		case e.Dir:
			must(0, disk.MakeDirs(to, name))
			copyTo(t, to, from, name, but...)
		default:
			must(0, disk.WriteFile(to, name, must(disk.ReadFile(from, name, e.Size))))
		}
	}
}

// rekeyed is a copy of a record with the data keys of another one; nil for none.
func rekeyed(t *testing.T, record, keys *disktest.Mem) *disktest.Mem {
	t.Helper()
	to := copied(t, record, "data-keys")
	if keys != nil {
		must(0, disk.MakeDirs(to, "data-keys"))
		copyTo(t, to, keys, "data-keys")
	}
	return to
}

// dirs are a copy of one party's data and record.
type dirs struct{ data, record *disktest.Mem }

func (p *pair) stop() {
	p.leader.Close()
	p.helper.Close()
}

func (p *pair) start() {
	p.startLeader()
	p.startHelper()
}

// save copies what both have.
func (p *keptPair) save() (saved [2]dirs) {
	p.t.Helper()
	p.stop()
	defer p.start()
	for i, data := range []*disktest.Mem{p.leaderFS, p.helperFS} {
		saved[i] = dirs{copied(p.t.(*testing.T), data), copied(p.t.(*testing.T), p.records[i])}
	}
	return saved
}

// putBack puts copies in the place of what one or both have.
func (p *keptPair) putBack(leader, helper *dirs) {
	p.t.Helper()
	p.stop()
	for i, d := range []*dirs{leader, helper} {
		if d == nil {
			continue
		}
		data := copied(p.t.(*testing.T), d.data)
		p.records[i] = copied(p.t.(*testing.T), d.record)
		if i == 0 {
			p.leaderFS, p.leaderOpt.FS, p.leaderOpt.Record = data, data, p.records[i]
		} else {
			p.helperFS, p.helperOpt.FS, p.helperOpt.Record = data, data, p.records[i]
		}
	}
	p.start()
}

// opened are the noised shares of leader and helper in an answer.
func (p *pair) opened(q dap.CollectionJobReq, body []byte) (shares [2][]byte) {
	p.t.Helper()
	resp := must(dap.ReadCollectionJobResp(body))
	aad := dap.AggregateShareAAD(p.id, p.cfg.Bytes(), must(q.Append(nil)))
	for i, ct := range []dap.HpkeCiphertext{resp.Leader, resp.Helper} {
		role := []dap.Role{dap.RoleLeader, dap.RoleHelper}[i]
		plain, err := p.collector.Open(ct.Enc, p.dialect.AggregateShareInfo(role), aad, ct.Payload)
		if err != nil {
			p.t.Fatalf("%v share: %v", role, err)
		}
		shares[i] = plain
	}
	return shares
}

// released asks, works and polls.
func (p *pair) released(q dap.CollectionJobReq) (location string, body []byte) {
	p.t.Helper()
	location = p.ask(q).header.Get("Location")
	p.step()
	got := p.poll(location)
	if got.status != 200 || len(got.body) == 0 {
		p.t.Fatalf("collection: status %d, %d bytes %q", got.status, len(got.body), got.body)
	}
	return location, got.body
}

// TestPutBackMeetsTheSameNoise: whatever of leader and helper is put back, to before the
// collection or to before the reports, the same batch meets the same noise at each: the
// shares that the collector opens are the same bytes. With each server's own noise at
// half of what is needed it is the leader alone, put back, that must not draw again.
func TestPutBackMeetsTheSameNoise(t *testing.T) {
	for _, mode := range []dap.BatchMode{dap.TimeInterval, dap.LeaderSelected} {
		t.Run(mode.String(), func(t *testing.T) {
			p := newKeptPair(t, setup{mode: mode})
			p.between(strangers) // others find out that a store went back, and release nothing
			empty := p.save()
			rs := p.reports(10)
			p.accept(rs...)
			p.step()
			ready := p.save()
			q := p.query()
			_, body := p.released(q)
			want := p.opened(q, body)
			if _, sum := p.open(q, body); slices.Equal(sum, []int64{2, 2, 2, 2, 2}) {
				t.Fatal("there is no noise")
			}
			again := func(what string, wait time.Duration) {
				t.Helper()
				p.clock.advance(wait)
				_, body := p.released(q)
				got := p.opened(q, body)
				for i, name := range []string{"leader", "helper"} {
					if !bytes.Equal(got[i], want[i]) {
						t.Errorf("%s: the %s released another share of the same batch", what, name)
					}
				}
			}
			p.putBack(&ready[0], &ready[1])
			again("both before the collection", 0)
			p.putBack(&ready[0], &ready[1])
			again("both before the collection, asked months later", 100*24*time.Hour)
			p.clock.advance(-100 * 24 * time.Hour)
			if mode == dap.TimeInterval {
				p.putBack(&ready[0], nil)
				again("the leader before the collection", 0)
				p.putBack(nil, &ready[1])
				again("the helper before the collection", 0)
			}
			p.putBack(&empty[0], &empty[1])
			p.accept(rs...)
			again("both before the reports, which came again", 0)
		})
	}
}

// TestAnotherSumMeetsOtherNoise: after both were put back, a report more, or others in
// the same number, meet other noise at each server: what is released twice is two
// releases, of which neither's noise tells the other's.
func TestAnotherSumMeetsOtherNoise(t *testing.T) {
	p := newKeptPair(t, setup{})
	empty := p.save()
	q := p.query()
	noises := map[string][]int64{}
	release := func(name string, n int, m func(i int) int) {
		t.Helper()
		truth := make([]int64, buckets)
		for i := range n {
			truth[m(i)]++
			p.accept(p.report(m(i), spoil{}))
		}
		_, body := p.released(q)
		_, got := p.open(q, body)
		for i := range got {
			got[i] -= truth[i]
		}
		for other, z := range noises {
			if slices.Equal(z, got) {
				t.Errorf("%s and %s met the same noise", name, other)
			}
		}
		noises[name] = got
	}
	release("ten", 10, func(i int) int { return i % buckets })
	p.putBack(&empty[0], &empty[1])
	release("eleven", 11, func(i int) int { return i % buckets })
	p.putBack(&empty[0], &empty[1])
	release("ten others", 10, func(int) int { return 3 })
	p.putBack(&empty[0], &empty[1])
	release("the first answers in other reports", 10, func(i int) int { return i % buckets })
}

// TestPutBackSeries: where noise is correlated over rounds, rounds that come again after
// both were put back meet the noise that they had, and the order of time is kept.
func TestPutBackSeries(t *testing.T) {
	s, _ := seriesSetup(t)
	s.noise = must(s.series.Strategy.Sampler(1<<40, 1))
	p := newKeptPair(t, s)
	var saved [2]dirs
	var asked []dap.CollectionJobReq
	var want [][2][]byte
	var rounds [][]dap.Report
	for i := range 3 {
		rs := p.reports(10)
		if i == 1 {
			saved = p.save()
		}
		p.accept(rs...)
		q := p.at(0, 1)
		_, body := p.released(q)
		asked, want, rounds = append(asked, q), append(want, p.opened(q, body)), append(rounds, rs)
		p.clock.advance(precision * time.Second)
	}
	p.putBack(&saved[0], &saved[1])
	for i := 1; i < 3; i++ {
		p.accept(rounds[i]...)
		_, body := p.released(asked[i])
		if got := p.opened(asked[i], body); !bytes.Equal(got[0], want[i][0]) || !bytes.Equal(got[1], want[i][1]) {
			t.Errorf("round %d met other noise", i)
		}
	}
	// The order of time is kept: nothing behind what was released.
	p.clock.advance(-10 * precision * time.Second)
	behind := p.at(0, 1)
	p.accept(p.reports(10)...)
	p.clock.advance(10 * precision * time.Second)
	loc := p.ask(behind).header.Get("Location")
	p.step()
	p.refused(p.poll(loc), dap.ProblemBatchInvalid, 400)
}

// keyFiles are the data keys on a disk.
func keyFiles(t *testing.T, mem *disktest.Mem) (names []string) {
	t.Helper()
	for _, e := range must(mem.ReadDir("data-keys")) {
		names = append(names, "data-keys/"+e.Name)
	}
	return names
}

// TestDataKeyEnds: once a task is retired and the time of a key has been over for as
// long, the key is destroyed. A copy of the data from before the collection then releases
// nothing any more, wherever the clock is put: the noise cannot be made again, and no
// other is drawn.
func TestDataKeyEnds(t *testing.T) {
	now := must(dap.TimePrecision(precision).At(today()))
	p := newKeptPair(t, setup{interval: &dap.Interval{Start: now - 1, Duration: 3}})
	p.accept(p.reports(10)...)
	p.step()
	saved, shift := p.save(), p.clock.shift.Load()
	first := keyFiles(t, p.records[0])[0]
	q := p.query()
	p.released(q)
	// a week at most to the end of the key's time, and 30 days of retention
	p.clock.advance(44 * 24 * time.Hour)
	p.step()
	p.step()
	for i, mem := range p.records {
		if names := keyFiles(t, mem); slices.Contains(names, first) || len(names) < 2 {
			t.Fatalf("party %d has the keys %q", i, names)
		}
	}
	p.audit()
	for i := range saved { // all but the keys
		saved[i].record = rekeyed(t, saved[i].record, p.records[i])
	}
	p.putBack(&saved[0], &saved[1])
	p.clock.shift.Store(shift)
	loc := p.ask(q).header.Get("Location")
	for range 3 {
		p.clock.advance(time.Hour / 4)
		p.step()
		if a := p.poll(loc); a.status != 200 || len(a.body) != 0 {
			t.Fatalf("status %d, %d bytes: released without the key", a.status, len(a.body))
		}
	}
	if log := p.log.String(); !strings.Contains(log, "noise is never drawn with another") {
		t.Error("the log does not say why")
	}
	faults := must(p.leader.Audit(context.Background()))
	if len(faults) == 0 || !strings.Contains(faults[0], "data key 1,") {
		t.Errorf("doctor says %q", faults)
	}
	faults = must(p.helper.Audit(context.Background()))
	if len(faults) == 0 {
		t.Errorf("doctor says %q of the helper", faults)
	}
	// So that the audit at the end finds no fault: away with the copy.
	p.clock.advance(44 * 24 * time.Hour)
	p.putBack(&dirs{disktest.NewMem(5), disktest.NewMem(6)}, &dirs{disktest.NewMem(7), disktest.NewMem(8)})
}

// TestDataKeyLost: without the key of its time a batch is not released, and neither side
// closes it; with the file put back it is, and meets the noise that it was to meet.
func TestDataKeyLost(t *testing.T) {
	for i, name := range []string{"leader", "helper"} {
		t.Run(name, func(t *testing.T) {
			p := newKeptPair(t, setup{})
			p.accept(p.reports(10)...)
			p.step()
			saved := p.save()
			q := p.query()
			_, body := p.released(q)
			want := p.opened(q, body)
			p.putBack(&saved[0], &saved[1])
			p.stop()
			file := keyFiles(t, p.records[i])[0]
			content := must(disk.ReadFile(p.records[i], file, 1<<10))
			flipped := bytes.Clone(content)
			flipped[60] ^= 1
			for _, damage := range []func(){
				func() { must(0, disk.Remove(p.records[i], file)) },
				func() { must(0, disk.WriteFile(p.records[i], file, flipped)) },
				func() { must(0, disk.WriteFile(p.records[i], file, content[:50])) },
			} {
				damage()
				p.start()
				loc := p.ask(q).header.Get("Location")
				for range 2 {
					p.clock.advance(time.Hour)
					p.step()
				}
				if a := p.poll(loc); a.status != 200 || len(a.body) != 0 {
					t.Fatalf("status %d, %d bytes: released without the key", a.status, len(a.body))
				}
				if c, h := p.counts(), p.helperCounts(); c.Collected != 0 || h.Collected != 0 {
					t.Fatal("a batch was closed")
				}
				audit := p.leader.Audit
				if i == 1 {
					audit = p.helper.Audit
				}
				if faults := must(audit(context.Background())); len(faults) != 1 || !strings.Contains(faults[0], "put it back") {
					t.Errorf("doctor says %q", faults)
				}
				standing := p.leader.Standing
				if i == 1 {
					standing = p.helper.Standing
				}
				if rs := must(standing(context.Background())).Reasons(); len(rs) != 1 || !strings.Contains(rs[0].Do, "put "+file+" back") {
					t.Errorf("why says %q", rs)
				}
				p.stop()
			}
			must(0, disk.WriteFile(p.records[i], file, content))
			p.start()
			p.clock.advance(2 * time.Hour)
			_, body = p.released(q)
			if got := p.opened(q, body); !bytes.Equal(got[0], want[0]) || !bytes.Equal(got[1], want[1]) {
				t.Error("the batch met other noise")
			}
		})
	}
}

// TestDataKeysPutBack: with no key, an older copy of the place or another store's keys an
// aggregator does not start: it would draw noise for a time that has had some. A new
// store takes the keys that are there.
func TestDataKeysPutBack(t *testing.T) {
	p := newKeptPair(t, setup{})
	refused := func(what string, keys *disktest.Mem) {
		t.Helper()
		p.leader.Close()
		o := p.leaderOpt
		o.Record = rekeyed(t, p.records[0], keys)
		l, err := leader.New(context.Background(), o)
		if err == nil {
			l.Close()
			t.Errorf("%s: started", what)
		} else if !strings.Contains(err.Error(), "data-keys") || !strings.Contains(err.Error(), "put") {
			t.Errorf("%s: %v", what, err)
		}
		p.startLeader()
	}
	refused("nothing there", nil)
	refused("the helper's", p.records[1])
	old := copied(t, p.records[0])
	p.clock.advance(30 * 24 * time.Hour)
	p.step()
	if len(keyFiles(t, p.records[0])) < 3 {
		t.Fatal("no key was made in a month")
	}
	refused("an older copy", old)
	before := keyFiles(t, p.records[0])
	p.putBack(&dirs{disktest.NewMem(6), rekeyed(t, disktest.NewMem(7), p.records[0])}, nil)
	if after := keyFiles(t, p.records[0]); !slices.Equal(before, after) {
		t.Errorf("a new store has the keys %q, there were %q", after, before)
	}
}
