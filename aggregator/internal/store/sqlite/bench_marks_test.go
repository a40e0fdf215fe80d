//go:build unix

package sqlite_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/sqlite"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
)

// BenchmarkMarksAndIDs measures lists of 4,096 new marks and commits of as many new ids, by
// turns, in a task that has a million of either, and none that is open; then both once more
// in another life, with what they take of memory and disk. What is not new is a call of the
// same list.
func BenchmarkMarksAndIDs(b *testing.B) {
	const most, list = 1_000_000, 4096
	dir := b.TempDir()
	fsys, err := disk.OS(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer fsys.Close()
	task := storetest.Task(b, dap.TimeInterval, 1)
	open := func() *sqlite.Store {
		st, err := sqlite.Open(b.Context(), options(fsys, nil))
		if err != nil {
			b.Fatal(err)
		}
		if err := st.PutTask(b.Context(), task); err != nil {
			b.Fatal(err)
		}
		return st
	}
	st := open()
	ids := func(n int) { many(b, st, task, store.Batch{Start: 1}, n, n+list-1, func(int) dap.Time { return 1 }) }
	marks := func(n int) {
		spends := make([]store.Spend, list)
		for i := range spends {
			id := spreadID(n + i)
			sum := sha256.Sum256(id[:]) // marks are hashes, too
			spends[i] = store.Spend{Round: 1, Mark: store.Mark(sum[:]), Report: id}
		}
		if _, err := st.Spend(b.Context(), task.ID, spends); err != nil {
			b.Fatal(err)
		}
	}
	type times struct{ wall, cpu time.Duration }
	cpu := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	timed := func(total *times, f func()) {
		start, spent := time.Now(), cpu()
		f()
		total.wall += time.Since(start)
		total.cpu += cpu() - spent
	}
	bytesOf := func(dirs ...string) (n int64) {
		for _, d := range dirs {
			err := filepath.WalkDir(filepath.Join(dir, d), func(_ string, e fs.DirEntry, err error) error {
				if err != nil || e.IsDir() {
					return err
				}
				info, err := e.Info()
				if err == nil {
					n += info.Size()
				}
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		return n
	}
	n := 0
	for ; n < most; n += list {
		ids(n)
	}
	ofIDsDisk := bytesOf("runs")
	for n = 0; n < most; n += list {
		marks(n)
	}
	ofDisk := [2]float64{float64(ofIDsDisk) / float64(n), float64(bytesOf("runs")-ofIDsDisk) / float64(n)}
	var ofIDs, ofMarks, againIDs, againMarks times
	rounds := 0
	for b.Loop() {
		timed(&ofIDs, func() { ids(n) })
		timed(&ofMarks, func() { marks(n) })
		n += list
		rounds++
	}
	if err := st.Close(); err != nil {
		b.Fatal(err)
	}
	st = open()
	resident := func() float64 {
		debug.FreeOSMemory()
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			b.Skip("memory is read as Linux has it")
		}
		var kb float64
		_, rest, _ := strings.Cut(string(status), "VmRSS:")
		if _, err := fmt.Sscan(rest, &kb); err != nil {
			b.Fatal(err)
		}
		return kb / 1024
	}
	at := resident()
	look := make([]dap.ReportID, list)
	for i := range look {
		look[i] = spreadID(i)
	}
	timed(&againIDs, func() {
		if _, err := st.Seen(b.Context(), task.ID, look); err != nil {
			b.Fatal(err)
		}
	})
	withIDs := resident()
	timed(&againMarks, func() { marks(0) })
	withMarks := resident()
	for _, x := range []struct {
		of   string
		t    times
		n    int
		disk float64
		mb   float64
		once times
	}{{"ids", ofIDs, rounds, ofDisk[0], withIDs - at, againIDs}, {"marks", ofMarks, rounds, ofDisk[1], withMarks - withIDs, againMarks}} {
		ms := func(d time.Duration, n int) float64 { return float64(d.Microseconds()) / 1000 / float64(n) }
		b.ReportMetric(ms(x.t.wall, x.n), "ms/"+x.of)
		b.ReportMetric(ms(x.t.cpu, x.n), "ms-cpu/"+x.of)
		b.ReportMetric(ms(x.once.wall, 1), "ms-first/"+x.of)
		b.ReportMetric(x.disk, "disk-B/"+x.of)
		b.ReportMetric(x.mb, "MB/"+x.of)
	}
	b.ReportMetric(0, "ns/op")
	if err := st.Close(); err != nil {
		b.Fatal(err)
	}
}
