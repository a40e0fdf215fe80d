package segment

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/internal/disk"
)

func benchOS(b *testing.B) disk.FS {
	b.Helper()
	fsys, err := disk.OS(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { fsys.Close() })
	return fsys
}

func benchEntry(n uint64) Entry {
	e := Entry{Bucket: 3600, Report: make([]byte, 1024)}
	binary.BigEndian.PutUint64(e.ReportID[:], n)
	return e
}

// BenchmarkPut acknowledges 1 KiB reports, one a call, on the disk that holds the
// temporary directory.
func BenchmarkPut(b *testing.B) {
	for _, callers := range []int{1, 64, 1000} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			in, err := OpenInbox(b.Context(), benchOS(b), newRows(), InboxOptions{MaxUnsorted: 1 << 40})
			if err != nil {
				b.Fatal(err)
			}
			defer in.Close()
			b.SetBytes(1024)
			var n atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for range callers {
				wg.Go(func() {
					for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
						if err := in.Put(context.Background(), []Entry{benchEntry(uint64(i))}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reports/s")
		})
	}
}

// BenchmarkSort has the slices of logs of 8 MiB named; the rows cost nothing here.
func BenchmarkSort(b *testing.B) {
	in, err := OpenInbox(b.Context(), benchOS(b), newRows(), InboxOptions{RotateBytes: 1 << 40})
	if err != nil {
		b.Fatal(err)
	}
	defer in.Close()
	s, err := NewSorter(in, SorterOptions{})
	if err != nil {
		b.Fatal(err)
	}
	entries := make([]Entry, 8<<10)
	for i := range entries {
		entries[i] = benchEntry(uint64(i))
	}
	b.SetBytes(int64(len(entries)) << 10)
	for b.Loop() {
		b.StopTimer()
		if err := in.Put(context.Background(), entries); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if _, err := s.Sort(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLog takes a log of 4 MiB, one report of 232 bytes a request, from its file to
// reports for jobs: its slices are listed, and read where they are. Rows cost nothing here;
// what the pieces take in them is reported.
func BenchmarkLog(b *testing.B) {
	const size, reports = 232, 4 << 20 / (232 + blockHeader + reportEntry + disk.FrameOverhead)
	fsys := benchOS(b)
	log, err := disk.CreateLog(fsys, "a.log", disk.LogOptions{})
	if err != nil {
		b.Fatal(err)
	}
	var appends sync.WaitGroup
	for i := range reports {
		e := Entry{Bucket: 3600, Report: make([]byte, size)}
		binary.BigEndian.PutUint64(e.ReportID[:], uint64(i))
		appends.Go(func() {
			if err := log.Append(context.Background(), recordParts([]Entry{e}, DefaultBytes, DefaultReports)...); err != nil {
				b.Error(err)
			}
		})
	}
	appends.Wait()
	if err := log.Close(); err != nil {
		b.Fatal(err)
	}
	scanned := func() disk.Scan {
		scan, err := disk.ScanLog(fsys, "a.log")
		if err != nil || len(scan.Records) != reports {
			b.Fatal(len(scan.Records), err)
		}
		return scan
	}
	store, pieces := payload.OpenFiles(fsys), 0
	for b.Loop() {
		scan := scanned()
		list, _ := logSlices("a.log", &scan, 0, DefaultBytes, DefaultReports)
		pieces = 0
		for _, s := range list {
			pieces += len(AppendPieces(nil, s.Pieces))
			r, err := OpenSlices(b.Context(), store, []Slice{s})
			if err != nil {
				b.Fatal(err)
			}
			r.Close()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/reports, "ns/report")
	b.ReportMetric(float64(pieces)/reports, "rowB/report")
}

// BenchmarkFilterNew asks for 1000 new ids against a million known ones in 5 runs.
func BenchmarkFilterNew(b *testing.B) {
	fsys := benchOS(b)
	var metas []RunMeta
	for n := range 5 {
		m, err := WriteRun(fsys, fmt.Sprint(n), &SetKey{}, idsOf(n*200_000, (n+1)*200_000), nil)
		if err != nil {
			b.Fatal(err)
		}
		metas = append(metas, m)
	}
	r, err := OpenRuns(fsys, metas)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	ids := idsOf(1_000_000, 1_001_000)
	for b.Loop() {
		if _, err := r.FilterNew(ids); err != nil {
			b.Fatal(err)
		}
	}
}
