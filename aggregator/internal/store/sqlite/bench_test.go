package sqlite_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/sqlite"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/vdaf"
)

const benchJob = 1000 // reports

func benchStore(b *testing.B) (*sqlite.Store, *store.Task) {
	fsys, err := disk.OS(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	st, err := sqlite.Open(b.Context(), options(fsys, nil))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		st.Close()
		fsys.Close()
	})
	task := storetest.Task(b, dap.TimeInterval, 1)
	if err := st.PutTask(b.Context(), task); err != nil {
		b.Fatal(err)
	}
	return st, task
}

// BenchmarkOpen makes a store on a simulated disk, and opens one that is there.
func BenchmarkOpen(b *testing.B) {
	for _, made := range []bool{false, true} {
		b.Run(map[bool]string{false: "new", true: "made"}[made], func(b *testing.B) {
			mem := disktest.NewMem(1)
			for b.Loop() {
				if !made {
					mem = disktest.NewMem(1)
				}
				s, err := sqlite.Open(b.Context(), options(mem, nil))
				if err != nil {
					b.Fatal(err)
				}
				s.Close()
			}
		})
	}
}

// benchCommit is the commit of job number n, whose share is that of nothing: folding is
// the VDAF's cost.
func benchCommit(task *store.Task, n int, bucket dap.Time) *store.Commit {
	c := &store.Commit{Task: task.ID, Batches: []store.Batch{{Start: bucket}}, Candidates: make([]store.Candidate, benchJob)}
	for i := range c.Candidates {
		cand := &c.Candidates[i]
		cand.Time = bucket
		// Spread like random ids.
		binary.BigEndian.PutUint64(cand.ID[:], uint64(n*benchJob+i)*0x9e3779b97f4a7c15)
	}
	c.Fold = func([]dap.ReportError) ([]*vdaf.AggShare, error) {
		return []*vdaf.AggShare{task.VDAF.NewAggShare()}, nil
	}
	return c
}

func help(ctx context.Context, st store.Engine, task *store.Task, n int, bucket dap.Time) error {
	r, _, err := st.Create(ctx, store.KindAggregation, task.ID, "", fmt.Append(nil, n), false, nil, storetest.Epoch)
	if err != nil {
		return err
	}
	_, err = st.CommitJob(ctx, r, benchCommit(task, n, bucket), func([]dap.ReportError) ([]byte, error) {
		return make([]byte, 21*benchJob), nil
	})
	return err
}

// BenchmarkCommitJob measures whole jobs of 1,000 reports on the real disk, fsyncs
// included; merges are a part of it.
func BenchmarkCommitJob(b *testing.B) {
	for _, buckets := range []int{1, 64} {
		b.Run(fmt.Sprintf("buckets=%d", buckets), func(b *testing.B) {
			st, task := benchStore(b)
			n := 0
			for b.Loop() {
				if err := help(b.Context(), st, task, n, dap.Time(n%buckets)); err != nil {
					b.Fatal(err)
				}
				n++
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "commits/s")
			b.ReportMetric(float64(n)*benchJob/b.Elapsed().Seconds(), "reports/s")
		})
	}
}

// BenchmarkSeen measures looking up 1,000 new ids in a bucket that has 64,000.
func BenchmarkSeen(b *testing.B) {
	st, task := benchStore(b)
	for n := range 64 {
		if err := help(b.Context(), st, task, n, 1); err != nil {
			b.Fatal(err)
		}
	}
	ids := make([]dap.ReportID, benchJob)
	for i := range ids {
		binary.BigEndian.PutUint64(ids[i][:], uint64(1<<40+i)*0x9e3779b97f4a7c15)
	}
	for b.Loop() {
		if _, err := st.Seen(b.Context(), task.ID, ids); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*benchJob/b.Elapsed().Seconds(), "ids/s")
}

// BenchmarkCommitIntoMany measures commits of 4,096 new ids, merges included, into a task
// that has many already.
func BenchmarkCommitIntoMany(b *testing.B) {
	for _, ids := range []int{1_000_000, 10_000_000} {
		b.Run(fmt.Sprintf("ids=%d", ids), func(b *testing.B) {
			st, task := benchStore(b)
			n := 0
			commit := func() {
				many(b, st, task, store.Batch{Start: 1}, n, n+4095, func(int) dap.Time { return 1 })
				n += 4096
			}
			for n < ids {
				commit()
			}
			for b.Loop() {
				commit()
			}
		})
	}
}

// BenchmarkAudit measures the audit of a store that has many ids.
func BenchmarkAudit(b *testing.B) {
	for _, ids := range []int{1_000_000, 10_000_000} {
		b.Run(fmt.Sprintf("ids=%d", ids), func(b *testing.B) {
			st, task := benchStore(b)
			for n := 0; n < ids; n += 4096 {
				many(b, st, task, store.Batch{Start: 1}, n, n+4095, func(int) dap.Time { return 1 })
			}
			for b.Loop() {
				if faults, err := st.Audit(b.Context()); err != nil || len(faults) > 0 {
					b.Fatal(faults, err)
				}
			}
		})
	}
}
