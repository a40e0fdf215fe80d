//go:build postgres

package postgres_test

import (
	"fmt"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb/pgtest"
	"github.com/starling-agg/starling/vdaf"
)

// BenchmarkTaskKeys commits jobs of 1,000 reports, in turn in a task that has keys of its
// own and in one that has none, as before there were any, and says how the times compare.
func BenchmarkTaskKeys(b *testing.B) {
	const reports = 1000
	ctx := b.Context()
	s := pgtest.NewServer(b).Schema(b)
	e := openWith(b, s, func(*postgres.Options) {})
	var tasks [2]*store.Task
	for i := range tasks {
		tasks[i] = storetest.Task(b, dap.TimeInterval, byte(1+i))
		if err := e.PutTask(ctx, tasks[i]); err != nil {
			b.Fatal(err)
		}
	}
	connect(b, s, s.Owner).ok("DELETE FROM task_secret WHERE task = (SELECT max(id) FROM task)")
	v := tasks[0].VDAF
	n := 0
	var took [2]float64
	for b.Loop() {
		for i, task := range tasks {
			n++
			c := &store.Commit{Task: task.ID, Batches: []store.Batch{{Start: 10}}}
			for r := range reports {
				c.Candidates = append(c.Candidates, store.Candidate{ID: dap.ReportID{byte(n >> 16), byte(n >> 8), byte(n), byte(r >> 8), byte(r)}, Time: 10, Report: int32(r)})
			}
			c.Fold = func([]dap.ReportError) ([]*vdaf.AggShare, error) { return []*vdaf.AggShare{v.NewAggShare()}, nil }
			r, _, err := e.Create(ctx, store.KindAggregation, task.ID, "", fmt.Append(nil, n), false, nil, storetest.Epoch)
			if err != nil {
				b.Fatal(err)
			}
			begin := b.Elapsed()
			if _, err := e.CommitJob(ctx, r, c, func([]dap.ReportError) ([]byte, error) { return []byte("r"), nil }); err != nil {
				b.Fatal(err)
			}
			took[i] += (b.Elapsed() - begin).Seconds()
		}
	}
	b.ReportMetric(1000*took[0]/float64(b.N), "ms/own")
	b.ReportMetric(1000*took[1]/float64(b.N), "ms/before")
	b.ReportMetric(took[0]/took[1], "own/before")
}
