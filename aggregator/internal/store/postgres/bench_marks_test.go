//go:build postgres && unix

package postgres_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres/pgtest"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf"
)

// BenchmarkMarksAndIDs measures lists of 4,096 new marks and commits of as many new ids, by
// turns, in a task that has a quarter of a million of either: wall time, for the work is the
// server's.
func BenchmarkMarksAndIDs(b *testing.B) {
	const most, list = 250_000, 4096
	ctx := b.Context()
	e := openWith(b, pgtest.NewServer(b).Schema(b), func(*postgres.Options) {})
	task := storetest.Task(b, dap.TimeInterval, 1)
	if err := e.PutTask(ctx, task); err != nil {
		b.Fatal(err)
	}
	id := func(n int) (id dap.ReportID) {
		sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(n)))
		return dap.ReportID(sum[:])
	}
	ids := func(n int) {
		c := &store.Commit{Task: task.ID, Batches: []store.Batch{{Start: 1}}}
		for i := range list {
			c.Candidates = append(c.Candidates, store.Candidate{ID: id(n + i), Time: 1})
		}
		c.Fold = func([]dap.ReportError) ([]*vdaf.AggShare, error) {
			return []*vdaf.AggShare{task.VDAF.NewAggShare()}, nil
		}
		r, _, err := e.Create(ctx, store.KindAggregation, task.ID, "", fmt.Append(nil, n), false, nil, storetest.Epoch)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := e.CommitJob(ctx, r, c, func([]dap.ReportError) ([]byte, error) { return []byte("done"), nil }); err != nil {
			b.Fatal(err)
		}
	}
	marks := func(n int) {
		spends := make([]store.Spend, list)
		for i := range spends {
			x := id(n + i)
			sum := sha256.Sum256(x[:])
			spends[i] = store.Spend{Round: 1, Mark: store.Mark(sum[:]), Report: x}
		}
		if _, err := e.Spend(ctx, task.ID, spends); err != nil {
			b.Fatal(err)
		}
	}
	n := 0
	for ; n < most; n += list {
		ids(n)
		marks(n)
	}
	var took [2]time.Duration
	rounds := 0
	for b.Loop() {
		for i, f := range []func(int){ids, marks} {
			begin := time.Now()
			f(n)
			took[i] += time.Since(begin)
		}
		n += list
		rounds++
	}
	for i, of := range []string{"ids", "marks"} {
		b.ReportMetric(float64(took[i].Microseconds())/1000/float64(rounds), "ms/"+of)
	}
	b.ReportMetric(0, "ns/op")
}
