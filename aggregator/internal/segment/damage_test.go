package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/lost"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// damaged is a folder with a log of four records, of one report each, whose end is told
// by the log after it, if followed.
func damaged(t *testing.T, r *rows, followed bool) (mem *disktest.Mem, name string, content []byte) {
	t.Helper()
	mem = disktest.NewMem(1)
	in, err := OpenInbox(t.Context(), mem, r, InboxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		if err := in.Put(t.Context(), []Entry{testEntry(n)}); err != nil {
			t.Fatal(err)
		}
	}
	name = in.log.State().Name
	if followed {
		if err := in.Rotate(); err != nil {
			t.Fatal(err)
		}
		if err := in.Put(t.Context(), []Entry{testEntry(4)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if content, err = disk.ReadFile(mem, name, 1<<20); err != nil {
		t.Fatal(err)
	}
	return mem, name, content
}

// offset is where record n of damaged begins.
func offset(n int) int {
	at := disk.LogHeaderSize
	for i := range n {
		e := testEntry(i)
		at += disk.FrameOverhead + e.encodedSize()
	}
	return at
}

// TestLogDamage: each whole record of a log is committed, wherever the damage is; what
// was lost is counted as far as it can be known, and the log is kept.
func TestLogDamage(t *testing.T) {
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte { b[at] ^= 4; return b }
	}
	for _, c := range []struct {
		name     string
		followed bool
		change   func([]byte) []byte
		kept     []int
		records  int // lost; 0 is none
		reports  int
		exact    bool
		torn     bool // a line says that the end may have been a record
	}{
		{"whole", true, func(b []byte) []byte { return b }, []int{0, 1, 2, 3}, 0, 0, false, false},
		{"a flip in a report", false, flip(offset(2) - 1), []int{0, 2, 3}, 1, 1, true, false},
		{"a flip in a marker", false, flip(offset(1)), []int{0, 2, 3}, 1, 1, true, false},
		{"a flip in a length", false, flip(offset(1) + 5), []int{0, 2, 3}, 1, 1, false, false},
		{"a flip in a checksum", false, flip(offset(1) + 16), []int{0, 2, 3}, 1, 1, true, false},
		{"a flip in the number of reports", false, flip(offset(1) + disk.FrameOverhead + 40), []int{0, 2, 3}, 1, 0, false, false},
		{"flips in two", false, func(b []byte) []byte { return flip(offset(0) + 30)(flip(offset(2) + 30)(b)) }, []int{1, 3}, 2, 2, true, false},
		{"zeros over two", false, func(b []byte) []byte { clear(b[offset(1):offset(3)]); return b }, []int{0, 3}, 1, 0, false, false},
		{"a flip at the end", false, flip(offset(4) - 1), []int{0, 1, 2}, 0, 0, false, true},
		{"a flip at the end, which the next log tells of", true, flip(offset(4) - 1), []int{0, 1, 2}, 1, 1, true, false},
		{"cut", false, func(b []byte) []byte { return b[:offset(3)+9] }, []int{0, 1, 2}, 0, 0, false, true},
		{"cut, which the next log tells of", true, func(b []byte) []byte { return b[:offset(3)+9] }, []int{0, 1, 2}, 1, 0, false, false},
		{"cut between two, which the next log tells of", true, func(b []byte) []byte { return b[:offset(2)] }, []int{0, 1}, 1, 0, false, false},
		{"cut to its header, which the next log tells of", true, func(b []byte) []byte { return b[:disk.LogHeaderSize] }, nil, 1, 0, false, false},
		{"a flip in the header", false, flip(3), []int{0, 1, 2, 3}, 0, 0, false, false},
		{"a flip in the id", false, flip(22), []int{0, 1, 2, 3}, 0, 0, false, false},
		{"no header", false, func(b []byte) []byte { clear(b[:disk.LogHeaderSize]); return b }, []int{}, 4, 4, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRows()
			mem, name, content := damaged(t, r, c.followed)
			if err := disk.WriteFile(mem, name, c.change(content)); err != nil {
				t.Fatal(err)
			}
			var logged bytes.Buffer
			sorted := func() *Sorter {
				t.Helper()
				in, err := OpenInbox(t.Context(), mem, r, InboxOptions{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { in.Close() })
				s, err := NewSorter(in, SorterOptions{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Sort(t.Context()); err != nil {
					t.Fatal(err)
				}
				return s
			}
			s := sorted()
			want := make(map[ReportID]int)
			for _, n := range c.kept {
				want[testEntry(n).ReportID] = 1
			}
			if c.followed {
				want[testEntry(4).ReportID] = 1
			}
			if kept := r.kept(t, mem); !maps.Equal(kept, want) {
				t.Errorf("kept %d reports, want %d", len(kept), len(want))
			}
			if strings.Contains(logged.String(), "looks the same") != c.torn {
				t.Errorf("log %q, torn %v", logged.String(), c.torn)
			}
			files, err := lost.List(mem)
			if err != nil {
				t.Fatal(err)
			}
			if c.records == 0 {
				if len(r.lost) != 0 || len(files) != 0 || s.Stats().Damaged != 0 {
					t.Errorf("lost %+v, files %v", r.lost, files)
				}
				return
			}
			if len(r.lost) != 1 || len(files) != 1 || files[0].Name != name || s.Stats().Damaged != 1 {
				t.Fatalf("lost %+v, files %v", r.lost, files)
			}
			if d := r.lost[0]; d.Records != c.records || d.sum() != c.reports || d.Exact != c.exact || d.Bytes == 0 || d.File != name {
				t.Errorf("lost %+v", d)
			}
			if !strings.Contains(logged.String(), "acknowledged reports are lost") {
				t.Errorf("log %q", logged.String())
			}
			sorted() // what is set aside is not sorted again
			if kept := r.kept(t, mem); !maps.Equal(kept, want) || len(r.lost) != 1 {
				t.Errorf("kept %d reports in the next life, lost %+v", len(kept), r.lost)
			}
		})
	}
}

// TestDamageAndCrash loses power at each step on the way of a damaged log: it is counted
// once, and kept.
func TestDamageAndCrash(t *testing.T) {
	points := append(slices.DeleteFunc(segmentFailpoints(), func(p string) bool { return strings.HasPrefix(p, "log.") }), lost.FailpointNames()...)
	for _, point := range points {
		r, struck := newRows(), false
		mem, name, content := damaged(t, r, false)
		content[offset(1)-1] ^= 1
		if err := disk.WriteFile(mem, name, content); err != nil {
			t.Fatal(err)
		}
		for life := range 2 {
			fp := new(disk.Failpoints)
			if life == 0 {
				fp.Arm(point, 0, func() error { struck = true; mem.Cut(); return disktest.ErrPowerLoss })
			}
			in, err := OpenInbox(t.Context(), mem, r, InboxOptions{})
			if err != nil {
				t.Fatal(err)
			}
			s, err := NewSorter(in, SorterOptions{Failpoints: fp,
				Lost: &lost.Room{FS: mem, Newest: func() uint64 { return 3 }, Failpoints: fp}})
			if err != nil {
				t.Fatal(err)
			}
			s.Sort(t.Context()) // the first fails
			in.Close()
			if life == 0 {
				mem = mem.Crash()
			}
		}
		files, err := lost.List(mem)
		if !struck || err != nil || len(files) != 1 || len(r.lost) != 1 || len(r.kept(t, mem)) != 3 {
			t.Errorf("%s: struck %v, files %v, lost %d times, %d reports kept, %v", point, struck, files, len(r.lost), len(r.kept(t, mem)), err)
		}
	}
}

// TestGoneLog takes a log away between two lives: that it is gone is told and counted once,
// wherever the power is lost, and an empty file is kept in its place.
func TestGoneLog(t *testing.T) {
	points := append([]string{""}, slices.DeleteFunc(segmentFailpoints(), func(p string) bool {
		return strings.HasPrefix(p, "log.")
	})...)
	points = append(points, lost.FailpointNames()...)
	for _, c := range []struct {
		name     string
		followed bool // by a log of one report
		noted    bool // only the sort of an earlier log has noted it
		change   func(t *testing.T, mem *disktest.Mem, name string)
	}{
		{"missing", false, false, func(t *testing.T, mem *disktest.Mem, name string) {
			if err := disk.Remove(mem, name); err != nil {
				t.Fatal(err)
			}
		}},
		{"missing, noted by a sort", false, true, func(t *testing.T, mem *disktest.Mem, name string) {
			if err := disk.Remove(mem, name); err != nil {
				t.Fatal(err)
			}
		}},
		{"missing before another", true, false, func(t *testing.T, mem *disktest.Mem, name string) {
			if err := disk.Remove(mem, name); err != nil {
				t.Fatal(err)
			}
		}},
		{"emptied", false, false, func(t *testing.T, mem *disktest.Mem, name string) {
			if err := disk.WriteFile(mem, name, nil); err != nil {
				t.Fatal(err)
			}
		}},
		{"cut in its header", false, false, func(t *testing.T, mem *disktest.Mem, name string) {
			b, err := disk.ReadFile(mem, name, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if err := disk.WriteFile(mem, name, b[:20]); err != nil {
				t.Fatal(err)
			}
		}},
		{"another log's in its place", false, false, func(t *testing.T, mem *disktest.Mem, name string) {
			_, _, other := damaged(t, newRows(), false)
			if err := disk.WriteFile(mem, name, other); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		for _, point := range points {
			t.Run(c.name+"/"+point, func(t *testing.T) {
				r := newRows()
				mem, name, _ := damaged(t, r, c.followed)
				want := 0
				if c.noted {
					l := mustStart(t, mem, r, nil)
					mustSort(t, l)
					mustPut(t, l, testEntry(7))
					mustSort(t, l) // notes the next
					mustPut(t, l, testEntry(8))
					name = l.inbox.log.State().Name
					l.inbox.Close()
					want = 5
				}
				c.change(t, mem, name)
				switch {
				case c.followed:
					want = 1
				case strings.HasPrefix(c.name, "another"):
					want = 4
				}
				for life := range 3 {
					fp, struck := new(disk.Failpoints), point == ""
					if life == 0 && point != "" {
						fp.Arm(point, 0, func() error { struck = true; mem.Cut(); return disktest.ErrPowerLoss })
					}
					in, err := OpenInbox(t.Context(), mem, r, InboxOptions{})
					if err != nil {
						t.Fatal(err)
					}
					s, err := NewSorter(in, SorterOptions{Failpoints: fp,
						Lost: &lost.Room{FS: mem, Newest: func() uint64 { return 3 }, Failpoints: fp}})
					if err != nil {
						t.Fatal(err)
					}
					if _, err := s.Sort(t.Context()); life > 0 && err != nil {
						t.Fatal(err)
					}
					in.Close()
					if life == 0 {
						if !struck && point != FailSegmentBeforeMove && point != FailSegmentAfterMove && point != FailSegmentAfterRemove {
							t.Fatalf("%s was not come by", point)
						}
						mem = mem.Crash()
					}
				}
				files, err := lost.List(mem)
				if err != nil || len(files) != 1 || len(r.lost) != 1 || len(r.kept(t, mem)) != want {
					t.Fatalf("files %v, lost %+v, %d reports kept, %v", files, r.lost, len(r.kept(t, mem)), err)
				}
				d := r.lost[0]
				if d.Exact || d.Bytes < disk.LogHeaderSize || len(d.Reports) != 0 || d.File != files[0].Name || (d.Records > 0) != c.followed {
					t.Errorf("lost %+v, files %v", d, files)
				}
			})
		}
	}
}

// TestEmptyLogIsNoLoss: a log that took nothing goes, and is not missed.
func TestEmptyLogIsNoLoss(t *testing.T) {
	mem, r := disktest.NewMem(1), newRows()
	for range 3 {
		l := mustStart(t, mem, r, nil)
		mustSort(t, l)
		r.bury(t, mem)
		l.inbox.Close()
		mem = mem.Crash()
	}
	if len(r.lost) != 0 || len(r.begun) != 1 || len(files(t, mem, "inbox")) != 1 {
		t.Errorf("lost %+v, noted %v, files %v", r.lost, r.begun, files(t, mem, "inbox"))
	}
}

// TestNewerLog: a log that a newer version wrote refuses the start and stays as it is.
func TestNewerLog(t *testing.T) {
	r := newRows()
	mem, name, content := damaged(t, r, false)
	binary.BigEndian.PutUint32(content[16:], 99)
	sum := crc32.Checksum(content[:disk.LogHeaderSize-4], crc32.MakeTable(crc32.Castagnoli))
	binary.BigEndian.PutUint32(content[disk.LogHeaderSize-4:], sum)
	if err := disk.WriteFile(mem, name, content); err != nil {
		t.Fatal(err)
	}
	_, err := OpenInbox(t.Context(), mem, r, InboxOptions{})
	if !errors.Is(err, disk.ErrLogVersion) || !strings.Contains(fmt.Sprint(err), "start that one") {
		t.Fatalf("opened: %v", err)
	}
	if b, err := disk.ReadFile(mem, name, 1<<20); err != nil || !bytes.Equal(b, content) {
		t.Errorf("the log has changed: %v", err)
	}
}

// TestOneUnreadableLog: a log that cannot be read keeps those tasks waiting whose reports
// may be in it, and no other.
func TestOneUnreadableLog(t *testing.T) {
	mem, r := disktest.NewMem(1), newRows()
	l := mustStart(t, mem, r, nil)
	one, two := testEntry(0), testEntry(1) // of two tasks
	mustPut(t, l, one)
	bad := l.inbox.log.State().Name
	if err := l.inbox.Rotate(); err != nil {
		t.Fatal(err)
	}
	mustPut(t, l, two)
	fails := func(op disktest.Op, name string) error {
		if name == bad && op == disktest.OpOpen {
			return syscall.EIO
		}
		return nil
	}
	mem.Inject(fails)
	n, err := l.sorter.Sort(t.Context())
	if n != 1 || !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), bad) {
		t.Fatalf("sorted %d logs, %v", n, err)
	}
	if !Blocks(err, one.TaskID) || Blocks(err, two.TaskID) {
		t.Errorf("blocks the one %v, the other %v", Blocks(err, one.TaskID), Blocks(err, two.TaskID))
	}
	// In the next life nobody knows whose reports it has.
	l.inbox.Close()
	next := mustStart(t, mem, r, nil)
	if _, err = next.sorter.Sort(t.Context()); !Blocks(err, two.TaskID) {
		t.Errorf("%v does not block", err)
	}
	mem.Inject(nil)
	mustSort(t, next)
	if kept := r.kept(t, mem); len(kept) != 2 {
		t.Errorf("kept %d reports", len(kept))
	}
	if Blocks(nil, one.TaskID) || !Blocks(errInjected, one.TaskID) {
		t.Error("no error blocks, or another does not")
	}
}
