package segment

import (
	"context"
	"encoding/binary"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/internal/buffer"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// TestBacklogMemory: what the way from log to job keeps in memory does not grow with the
// reports that wait. Of a short and of a long backlog of logs of many sizes, each is
// sorted, and its slices are read as two jobs would. While the last log is sorted, and
// the last two slices are open, memory holds these and the buffers that may wait.
func TestBacklogMemory(t *testing.T) {
	// Collected only where it is measured, as a pause of the collector would hide much.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const largest = 3 << 20 // of a log, and of its slice
	before := liveNow()
	short, long := liveAt(t, 12, largest)-before, liveAt(t, 36, largest)-before
	t.Logf("live with 12 logs: %d KiB, with 36: %d KiB", short>>10, long>>10)
	// a log in the sorter and two slices, each in a buffer of its size
	if most := int64(buffer.Idle + 3*buffer.Size(largest) + 1<<20); short > most || long > most {
		t.Errorf("live with 12 logs: %d bytes, with 36: %d; at most %d may be", short, long, most)
	}
	if long > short+1<<20 {
		t.Errorf("memory grows with the backlog: %d bytes live with 12 logs, %d with 36", short, long)
	}
}

// liveAt is how much memory is live when the last of so many logs is about to be
// committed.
func liveAt(t *testing.T, logs, largest int) (live int64) {
	const size, sizes, request = 5 << 10, 12, 100 // bytes of a report; sizes of logs; reports of a request
	fsys, err := disk.OS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close()
	r := newRows()
	in, err := OpenInbox(context.Background(), fsys, r, InboxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	sorter, err := NewSorter(in, SorterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	report := make([]byte, size)
	n := uint64(0)
	for i := range logs {
		entries := make([]Entry, largest/size*(i%sizes+1)/sizes)
		for k := range entries {
			n++
			entries[k] = Entry{Bucket: 3600, Report: report}
			binary.BigEndian.PutUint64(entries[k].ReportID[:], n)
		}
		for part := range slices.Chunk(entries, request) {
			if err := in.Put(context.Background(), part); err != nil {
				t.Fatal(err)
			}
		}
		if err := in.Rotate(); err != nil {
			t.Fatal(err)
		}
	}
	var jobs []*Reports // under way
	store, read := payload.OpenFiles(fsys), 0
	commits := 0
	r.fail = func(after bool) error {
		if after {
			return nil
		}
		for ; read < len(r.slices); read++ {
			s, err := OpenSlices(context.Background(), store, r.slices[read:read+1])
			if err != nil {
				return err
			}
			if jobs = append(jobs, s); len(jobs) > 2 {
				jobs[0].Close()
				jobs = jobs[1:]
			}
		}
		if commits++; commits == logs {
			live = liveNow()
		}
		return nil
	}
	if sorted, err := sorter.Sort(context.Background()); err != nil || sorted != logs || read != logs-1 {
		t.Fatalf("%d logs sorted, %d slices read, %v", sorted, read, err)
	}
	for _, s := range jobs {
		s.Close()
	}
	return live
}

// TestJobMemory: a job's reports take the bytes of its slices once, and little beside, of
// however many pieces and logs.
func TestJobMemory(t *testing.T) {
	mem := disktest.NewMem(1)
	var list []Slice
	size, reports := 0, 0
	for range 3 {
		log, err := OpenInbox(t.Context(), mem, newRows(), InboxOptions{})
		if err != nil {
			t.Fatal(err)
		}
		name := log.log.State().Name
		for i := range 500 {
			var e [4]Entry
			for j := range e {
				reports++
				e[j] = Entry{Bucket: uint64(j % 2), Report: make([]byte, 1<<10)}
				binary.BigEndian.PutUint64(e[j].ReportID[:], uint64(reports))
			}
			if err := log.Put(t.Context(), e[:1+3*(i%2)]); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		scan, err := disk.ScanLog(mem, name)
		if err != nil {
			t.Fatal(err)
		}
		all, _ := logSlices(name, &scan, 0, DefaultBytes, DefaultReports)
		list = append(list, all[0])
		size += int(all[0].Size())
	}
	reports = list[0].Count + list[1].Count + list[2].Count
	store := payload.OpenFiles(mem)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := OpenSlices(t.Context(), store, list)
	runtime.ReadMemStats(&after)
	if err != nil || r.Len() != reports {
		t.Fatal(r, err)
	}
	took := int(after.TotalAlloc - before.TotalAlloc)
	t.Logf("%d reports of %d bytes in %d pieces: %d KiB", reports, size, len(list[0].Pieces)*len(list), took>>10)
	if most := buffer.Size(size) + 120*reports + len(list)*spanBytes + 64<<10; took > most {
		t.Errorf("%d bytes allocated, at most %d may be", took, most)
	}
	r.Close()
}

// liveNow is how many bytes the collector has to leave.
func liveNow() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
