package aggregator_test

import (
	"bytes"
	"path"
	"testing"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/disk"
)

// holding lists the files that hold any of the needles.
func holding(t *testing.T, fsys disk.FS, dir string, needles [][]byte) (names []string) {
	t.Helper()
	for _, e := range must(fsys.ReadDir(dir)) {
		name := path.Join(dir, e.Name)
		if e.Dir {
			names = append(names, holding(t, fsys, name, needles)...)
			continue
		}
		content := must(disk.ReadFile(fsys, name, e.Size))
		for _, n := range needles {
			if bytes.Contains(content, n) {
				names = append(names, name)
				break
			}
		}
	}
	return names
}

// TestRawSharesGoAsTheyAreFolded: what a client sealed, good or bad, is on the leader's disk until the report is judged and
// folded into a sub-aggregate, and on neither disk afterwards, long before anybody collects.
func TestRawSharesGoAsTheyAreFolded(t *testing.T) {
	for _, mode := range []dap.BatchMode{dap.TimeInterval, dap.LeaderSelected} {
		t.Run(mode.String(), func(t *testing.T) {
			p := newPair(t, setup{mode: mode})
			rs := append(p.reports(12), p.report(0, spoil{context: []byte("of another task")}))
			rs = append(rs, rs[0])
			var raw [][]byte
			for i := range rs {
				for _, ct := range []dap.HpkeCiphertext{rs[i].Leader, rs[i].Helper} {
					raw = append(raw, ct.Payload[:16], ct.Payload[len(ct.Payload)-16:])
				}
			}
			p.accept(rs...)
			if names := holding(t, p.leaderFS, ".", raw); len(names) == 0 {
				t.Fatal("the leader acknowledged reports that are nowhere")
			}
			p.step()
			for name, c := range map[string]status.Counts{"leader": p.counts(), "helper": p.helperCounts()} {
				if c.Aggregated != 12 || c.Waiting != 0 || c.Collected != 0 {
					t.Fatalf("%s: %+v", name, c)
				}
			}
			for name, fsys := range map[string]disk.FS{"leader": p.leaderFS, "helper": p.helperFS} {
				if names := holding(t, fsys, ".", raw); len(names) != 0 {
					t.Errorf("the %s still has sealed shares in %q", name, names)
				}
			}
		})
	}
}
