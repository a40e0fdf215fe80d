package aggregator_test

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"maps"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// unsorted is a pair whose leader stopped with one log of four requests of ten reports
// each, and the log.
func unsorted(t *testing.T) (p *pair, name string) {
	t.Helper()
	p = newPair(t, setup{})
	for range 4 {
		p.accept(p.reports(10)...)
	}
	p.leader.Close()
	logs := slices.Collect(maps.Keys(filesOf(t, p.leaderFS, "inbox")))
	if len(logs) != 1 {
		t.Fatalf("logs %q", logs)
	}
	return p, logs[0]
}

// TestDamagedInbox: one flipped bit in the second of four requests costs that request's
// reports, which are counted, told of and kept, and no others.
func TestDamagedInbox(t *testing.T) {
	p, name := unsorted(t)
	content := must(disk.ReadFile(p.leaderFS, name, 1<<30))
	content[len(content)*3/8] ^= 1
	if err := disk.WriteFile(p.leaderFS, name, content); err != nil {
		t.Fatal(err)
	}
	p.startLeader()
	p.step()
	p.audit()
	if c := p.counts(); c.Acknowledged != 40 || c.Aggregated != 30 || c.Rejected["report_dropped"] != 10 || c.Waiting != 0 {
		t.Errorf("counts %+v", c)
	}
	st := must(p.leader.Standing(context.Background()))
	if len(st.Damaged) != 1 || st.Damaged[0].Records != 1 || st.Damaged[0].Reports != 10 || !st.Damaged[0].Exact {
		t.Fatalf("damaged %+v", st.Damaged)
	}
	if rs := st.Reasons(); len(rs) != 1 || !strings.Contains(rs[0].Blocks, name) || !strings.Contains(p.log.String(), "acknowledged reports are lost") {
		t.Errorf("told: %+v", rs)
	}
	if resp, _ := p.collect(p.query()); resp.ReportCount != 30 {
		t.Errorf("%d reports collected", resp.ReportCount)
	}
	// A whole copy is found: what was dropped counts after all, in time for the next batch.
	kept := slices.Collect(maps.Keys(filesOf(t, p.leaderFS, "lost")))
	if len(kept) != 1 || !strings.HasSuffix(kept[0], name) {
		t.Fatalf("kept %q", kept)
	}
	content[len(content)*3/8] ^= 1
	if err := disk.WriteFile(p.leaderFS, kept[0], content); err != nil {
		t.Fatal(err)
	}
	if files, n, err := p.leader.TakeBack(context.Background()); err != nil || files != 1 || n != 40 {
		t.Fatalf("taken back %d files, %d reports, %v", files, n, err)
	}
	p.step()
	if c := p.counts(); c.Acknowledged != 80 || c.Aggregated != 30 || c.Rejected["batch_collected"] != 40 {
		t.Errorf("counts %+v", c)
	}
	p.audit()
	if st := must(p.leader.Standing(context.Background())); len(st.Damaged) != 0 || len(st.Reasons()) != 0 {
		t.Errorf("still told of: %+v", st.Reasons())
	}
}

// TestNewerInbox: a downgrade with a full inbox refuses the start, in words, and loses
// nothing.
func TestNewerInbox(t *testing.T) {
	p, name := unsorted(t)
	whole := must(disk.ReadFile(p.leaderFS, name, 1<<30))
	newer := slices.Clone(whole)
	binary.BigEndian.PutUint32(newer[16:], 99)
	binary.BigEndian.PutUint32(newer[60:], crc32.Checksum(newer[:60], crc32.MakeTable(crc32.Castagnoli)))
	if err := disk.WriteFile(p.leaderFS, name, newer); err != nil {
		t.Fatal(err)
	}
	if _, err := leader.New(context.Background(), p.leaderOpt); err == nil || !strings.Contains(err.Error(), "newer version") {
		t.Fatalf("it starts: %v", err)
	}
	if err := disk.WriteFile(p.leaderFS, name, whole); err != nil {
		t.Fatal(err)
	}
	p.startLeader()
	p.step()
	if c := p.counts(); c.Acknowledged != 40 || c.Aggregated != 40 {
		t.Errorf("counts %+v", c)
	}
}

// TestUnreadableInbox: a collection does not freeze over reports that may be in a log
// that cannot be read; it says so, and goes on when it can be.
func TestUnreadableInbox(t *testing.T) {
	p, name := unsorted(t)
	p.startLeader()
	p.accept(p.reports(12)...) // another log
	p.leaderFS.Inject(func(op disktest.Op, file string) error {
		if file == name && op == disktest.OpOpen {
			return syscall.EIO
		}
		return nil
	})
	loc := p.ask(p.query()).header.Get("Location")
	p.step()
	if c := p.counts(); c.Acknowledged != 12 || c.Aggregated != 12 {
		t.Errorf("the other log waits too: %+v", c)
	}
	if w := p.leaderTask().Collections; len(w) != 1 || !strings.Contains(w[0].Why, name+", which holds acknowledged reports, cannot be sorted") {
		t.Errorf("waits: %+v", w)
	}
	p.leaderFS.Inject(nil)
	p.clock.advance(p.leaderOpt.MaxBackOff)
	p.step()
	if a := p.poll(loc); a.status != http.StatusOK || len(a.body) == 0 {
		t.Fatalf("collection: status %d", a.status)
	}
	if c := p.counts(); c.Collected != 52 {
		t.Errorf("counts %+v", c)
	}
}
