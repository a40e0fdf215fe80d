package party

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/starling-agg/starling/internal/disk"
)

const (
	segmentPrefix = "records-"
	segmentBytes  = 16 << 20 // a file is read as a whole
	maxRecord     = 16 << 20
)

// segments is an append log in files of a bounded size, so that it never has to be in memory.
type segments struct {
	fs    disk.FS
	opt   disk.LogOptions
	limit int64 // bytes of a file, about

	log  *disk.Log
	used atomic.Int64 // bytes of the last file

	mu    sync.Mutex // guards what is below, and rotation
	files int
}

func segmentName(i int) string { return fmt.Sprintf("%s%06d", segmentPrefix, i) }

// openSegments opens a log, hands what is in it to visit in order, and makes it where it
// is not there. A file is written anew unless the next one says that all of it had been
// durable: what a crash left in memory only is on the disk then. It fails with
// *[StateError] where a file is missing, or shorter than the next one says.
func openSegments(fsys disk.FS, opt disk.LogOptions, visit func([]byte) error) (*segments, error) {
	opt.MaxRecord = maxRecord
	s := &segments{fs: fsys, opt: opt, limit: segmentBytes}
	entries, err := fsys.ReadDir(".")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if disk.IsTemp(e.Name) || !strings.HasPrefix(e.Name, segmentPrefix) {
			continue
		}
		if e.Name != segmentName(s.files) {
			return nil, &StateError{fmt.Sprintf("%s is missing", segmentName(s.files))}
		}
		s.files++
	}
	s.files = max(s.files, 1)
	whole, err := s.whole()
	if err != nil {
		return nil, err
	}
	for i := range s.files {
		if i < len(whole) && whole[i] {
			if err := s.readFile(i, visit); err != nil {
				return nil, err
			}
			continue
		}
		if s.log != nil {
			if err := s.log.Close(); err != nil {
				return nil, err
			}
		}
		if s.log, _, err = disk.OpenLog(fsys, segmentName(i), opt, visit); err != nil {
			return nil, err
		}
	}
	s.used.Store(s.log.State().Size)
	return s, nil
}

// whole says of each file but the last whether it is as the next one says. Of one that
// power was lost before, or that was written anew then, the next one says nothing.
func (s *segments) whole() (whole []bool, err error) {
	var last disk.Scan
	for i := range s.files {
		scan, err := disk.ScanLog(s.fs, segmentName(i))
		switch {
		case err != nil && i == s.files-1:
			return whole, nil // it is not there, or was being made: OpenLog knows
		case err != nil:
			return nil, err
		}
		if scan.Records = nil; i > 0 {
			told := scan.Before.ID == last.ID
			if told && last.Valid < scan.Before.Size {
				return nil, &StateError{segmentName(i-1) + " is cut"}
			}
			whole = append(whole, told && last.Valid == scan.Before.Size && last.Cut == 0)
		}
		last = scan
	}
	return whole, nil
}

// append makes a record durable.
func (s *segments) append(ctx context.Context, parts ...[]byte) error {
	if err := s.log.Append(ctx, parts...); err != nil {
		return err
	}
	n := int64(disk.FrameOverhead)
	for _, p := range parts {
		n += int64(len(p))
	}
	if s.used.Add(n) < s.limit {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used.Load() < s.limit {
		return nil // another has done it
	}
	if _, err := s.log.Rotate(segmentName(s.files)); err != nil {
		return err
	}
	s.files++
	s.used.Store(0)
	return nil
}

// close ends appending.
func (s *segments) close() error { return s.log.Close() }

// read hands all records to visit, in order, in memory of one file. A record is valid during
// visit. Nothing is appended any more.
func (s *segments) read(visit func([]byte) error) error {
	for i := range s.files {
		if err := s.readFile(i, visit); err != nil {
			return err
		}
	}
	return nil
}

func (s *segments) readFile(i int, visit func([]byte) error) error {
	scan, err := disk.ScanLog(s.fs, segmentName(i))
	if err == nil {
		err = scan.Err(segmentName(i))
	}
	if err != nil {
		return err
	}
	for _, r := range scan.Records {
		if err := visit(r); err != nil {
			return err
		}
	}
	return nil
}

// removeSegments removes all files of a log.
func removeSegments(fsys disk.FS) error {
	entries, err := fsys.ReadDir(".")
	if err != nil {
		return err
	}
	var names []string
	for i := len(entries) - 1; i >= 0; i-- { // the last first, so that no gap is ever left
		if strings.HasPrefix(entries[i].Name, segmentPrefix) {
			names = append(names, entries[i].Name)
		}
	}
	var all []error
	for _, n := range names {
		all = append(all, disk.Remove(fsys, n))
	}
	return errors.Join(all...)
}
