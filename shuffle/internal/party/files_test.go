package party

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// TestScratch: what is put in comes out, in any order, and nothing of it can be read on
// the disk, nor where two items are the same.
func TestScratch(t *testing.T) {
	fsys := disktest.NewMem(1)
	s, err := newScratch(fsys, 40)
	if err != nil {
		t.Fatal(err)
	}
	item := func(i int) []byte { return bytes.Repeat([]byte{byte(i % 7)}, 40) }
	for i := 0; i < 100; i += 5 {
		if err := s.add(bytes.Join([][]byte{item(i), item(i + 1), item(i + 2), item(i + 3), item(i + 4)}, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.flush(); err != nil {
		t.Fatal(err)
	}
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(100) {
		b := make([]byte, 40)
		if err := s.item(uint64(i), b); err != nil || !bytes.Equal(b, item(i)) {
			t.Errorf("item %d is %x, %v", i, b, err)
		}
	}
	content := disktest.FilesOf(t, fsys)[scratchFile]
	seen := make(map[string]bool)
	for i := 0; i+8 <= len(content); i += 8 {
		if seen[string(content[i:i+8])] {
			t.Fatal("the same twice on the disk")
		}
		seen[string(content[i:i+8])] = true
	}
	if len(content) != 4000 {
		t.Errorf("%d bytes", len(content))
	}
	if err := errors.Join(s.close(), s.close()); err != nil {
		t.Error(err)
	}
	if files := disktest.FilesOf(t, fsys); len(files) > 0 {
		t.Errorf("%v is left", files)
	}
}

// TestScratchCut: an item that is not all there is an error, and not the one before it again.
func TestScratchCut(t *testing.T) {
	fsys := disktest.NewMem(1)
	s, err := newScratch(fsys, 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.add([]byte("first itemsecond ite")), s.flush(), s.file.Truncate(15)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 10)
	if err := s.item(0, b); err != nil || string(b) != "first item" {
		t.Errorf("%q, %v", b, err)
	}
	if err := s.item(1, b); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v", b, err)
	}
	s.close()
}

// TestSegments: records of a log in many files are all there, in order, over rotations,
// starts and losses of power at each of them.
func TestSegments(t *testing.T) {
	const limit = 300
	for seed := range uint64(30) {
		fsys := disktest.NewMem(seed)
		points := new(disk.Failpoints)
		points.Arm(disk.LogFailpoints()[seed%4], int(seed), func() error { fsys.Cut(); return disktest.ErrPowerLoss })
		s, err := openSegments(fsys, disk.LogOptions{Failpoints: points}, func([]byte) error { return errors.New("there is something") })
		if err != nil {
			t.Fatal(err)
		}
		s.limit = limit
		acked := make(map[string]bool)
		for i := range 60 {
			r := fmt.Sprintf("record %d of some length", i)
			err := s.append(context.Background(), []byte(r[:5]), []byte(r[5:]))
			if err != nil {
				break
			}
			acked[r] = true
		}
		s.close()
		fsys = fsys.Crash()
		var found []string
		if s, err = openSegments(fsys, disk.LogOptions{}, func(b []byte) error { found = append(found, string(b)); return nil }); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		s.limit = limit
		got := make(map[string]bool)
		for _, r := range found {
			if got[r] {
				t.Errorf("seed %d: %q twice", seed, r)
			}
			got[r] = true
		}
		for r := range acked {
			if !got[r] {
				t.Errorf("seed %d: %q is lost", seed, r)
			}
		}
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				if err := s.append(context.Background(), fmt.Appendf(nil, "later record %d", i)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for i := range 20 { // all those together may have been one group, and one rotation
			if err := s.append(context.Background(), fmt.Appendf(nil, "last record %d", i)); err != nil {
				t.Fatal(err)
			}
		}
		var read []string
		if err := s.read(func(b []byte) error { read = append(read, string(b)); return nil }); err != nil {
			t.Fatal(err)
		}
		if len(read) != len(found)+70 || !slices.Equal(read[:len(found)], found) || s.files < 3 {
			t.Errorf("seed %d: %d records after %d, in %d files", seed, len(read), len(found), s.files)
		}
		s.close()
		if err := removeSegments(fsys); err != nil || len(disktest.FilesOf(t, fsys)) > 0 {
			t.Errorf("%v", err)
		}
	}
	fsys := disktest.NewMem(1)
	if err := disk.WriteFile(fsys, segmentName(1), []byte("x")); err != nil {
		t.Fatal(err)
	}
	state := new(StateError)
	if _, err := openSegments(fsys, disk.LogOptions{}, nil); !errors.As(err, &state) {
		t.Errorf("a file is missing: %v", err)
	}
}

// TestSegmentCut: what is gone of a file that was full is missed, over starts: no loss of
// power takes it.
func TestSegmentCut(t *testing.T) {
	fsys := disktest.NewMem(1)
	s, err := openSegments(fsys, disk.LogOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.limit = 300
	for i := range 40 {
		if err := s.append(context.Background(), fmt.Appendf(nil, "record %d of some length", i)); err != nil {
			t.Fatal(err)
		}
	}
	s.close()
	if s, err = openSegments(fsys, disk.LogOptions{}, func([]byte) error { return nil }); err != nil { // a start changes nothing of it
		t.Fatal(err)
	}
	s.close()
	files := disktest.FilesOf(t, fsys)
	if len(files) < 4 {
		t.Fatalf("%d files", len(files))
	}
	for name := range files {
		if name == segmentName(s.files-1) {
			continue
		}
		x := disktest.NewMem(2)
		files.With(name, files[name][:len(files[name])/2]).Put(t, x)
		n := 0
		again, err := openSegments(x, disk.LogOptions{}, func([]byte) error { n++; return nil })
		if state := new(StateError); !errors.As(err, &state) {
			t.Errorf("%s is cut, and it opens with %d of 40 records: %v", name, n, err)
		}
		if err == nil {
			again.close()
		}
	}
}
