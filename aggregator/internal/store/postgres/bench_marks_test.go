//go:build postgres && unix

package postgres_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb/pgtest"
	"github.com/starling-agg/starling/vdaf"
)

// BenchmarkMarksAndIDs measures lists of 4,096 new marks and commits of as many new ids, by
// turns, in a task that has a million of either; then both once more at another handle, with
// what they take of its memory, and of disk. What is not new is a call of the same list.
// Processor time is this process's and the server's.
func BenchmarkMarksAndIDs(b *testing.B) {
	const most, list = 1_000_000, 4096
	ctx := b.Context()
	s := pgtest.NewServer(b).Schema(b)
	task := storetest.Task(b, dap.TimeInterval, 1)
	open := func() *postgres.Store {
		e := openWith(b, s, func(*postgres.Options) {})
		if err := e.PutTask(ctx, task); err != nil {
			b.Fatal(err)
		}
		return e
	}
	e := open()
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
		if spent, err := e.Spend(ctx, task.ID, spends); err != nil || slices.Contains(spent, true) {
			b.Fatal(err)
		}
	}
	x := connect(b, s, s.Owner)
	cpu := cpuWith(b, x)
	type times struct{ wall, cpu time.Duration }
	timed := func(total *times, f func()) {
		start, spent := time.Now(), cpu()
		f()
		total.wall += time.Since(start)
		total.cpu += cpu() - spent
	}
	n := 0
	for ; n < most; n += list {
		ids(n)
		marks(n)
	}
	var disk [2]float64
	for i, table := range []string{"run", "spent_run"} {
		x.ok("VACUUM " + table) // merges leave rows behind
		var bytes int64
		if err := x.QueryRow(ctx, "SELECT sum(pg_column_size(t.*)) FROM "+table+" AS t").Scan(&bytes); err != nil {
			b.Fatal(err)
		}
		disk[i] = float64(bytes) / float64(n)
	}
	var all, again [2]times
	rounds := 0
	for b.Loop() {
		timed(&all[0], func() { ids(n) })
		timed(&all[1], func() { marks(n) })
		n += list
		rounds++
	}
	if err := e.Close(); err != nil {
		b.Fatal(err)
	}
	e = open()
	look := make([]dap.ReportID, list)
	for i := range look {
		look[i] = id(i)
	}
	memory := [3]float64{resident(b)}
	timed(&again[0], func() {
		if _, err := e.Seen(ctx, task.ID, look); err != nil {
			b.Fatal(err)
		}
	})
	memory[1] = resident(b)
	timed(&again[1], func() { marks(0) })
	memory[2] = resident(b)
	ms := func(d time.Duration, n int) float64 { return float64(d.Microseconds()) / 1000 / float64(n) }
	for i, of := range []string{"ids", "marks"} {
		b.ReportMetric(ms(all[i].wall, rounds), "ms/"+of)
		b.ReportMetric(ms(all[i].cpu, rounds), "ms-cpu/"+of)
		b.ReportMetric(ms(again[i].wall, 1), "ms-first/"+of)
		b.ReportMetric(disk[i], "disk-B/"+of)
		b.ReportMetric(memory[i+1]-memory[i], "MB/"+of)
	}
	b.ReportMetric(0, "ns/op")
}

// cpuWith says how much processor time this process and the server of a session have taken,
// as Linux tells it, in hundredths of a second.
func cpuWith(b *testing.B, x session) func() time.Duration {
	var backend int
	if err := x.QueryRow(b.Context(), "SELECT pg_backend_pid()").Scan(&backend); err != nil {
		b.Fatal(err)
	}
	const tick = time.Second / 100
	// stat has a process's parent, and its time, or with that of children who have ended.
	stat := func(pid string) (parent int, own, with time.Duration) {
		text, _ := os.ReadFile("/proc/" + pid + "/stat")
		at := strings.LastIndexByte(string(text), ')')
		fields := strings.Fields(string(text)[at+1:])
		if len(fields) < 15 {
			return 0, 0, 0 // it has ended
		}
		num := func(i int) int { n, _ := strconv.Atoi(fields[i]); return n }
		own = time.Duration(num(11)+num(12)) * tick
		return num(1), own, own + time.Duration(num(13)+num(14))*tick
	}
	server, _, _ := stat(strconv.Itoa(backend))
	if server == 0 {
		b.Skip("processor time is read as Linux has it")
	}
	return func() (total time.Duration) {
		_, total, _ = stat("self")
		_, _, with := stat(strconv.Itoa(server))
		total += with
		processes, _ := filepath.Glob("/proc/[0-9]*")
		for _, path := range processes {
			if parent, own, _ := stat(filepath.Base(path)); parent == server {
				total += own
			}
		}
		return total
	}
}

// resident is how many megabytes of memory this process has.
func resident(b *testing.B) (kb float64) {
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip("memory is read as Linux has it")
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		b.Fatal(err)
	}
	return kb / 1024
}
