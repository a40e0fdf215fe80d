package segment

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/starling-agg/starling/internal/disk"
)

// Waiting knows the logs that wait to be sorted, at a start, before any is. It tells the
// segments that a crash left between their writing and the transaction that names them from
// those whose rows were lost.
type Waiting struct {
	fs        disk.FS
	dir       string // of the logs
	committer Committer
	logs      map[disk.LogID]string // nil until it is needed
	reports   map[disk.LogID]map[member][]byte
}

type place struct {
	task   TaskID
	bucket uint64
}

type member struct {
	place
	id ReportID
}

// NewWaiting looks for logs in a directory when it is asked for the first time.
func NewWaiting(fsys disk.FS, dir string, committer Committer) *Waiting {
	return &Waiting{fs: fsys, dir: dir, committer: committer, reports: make(map[disk.LogID]map[member][]byte)}
}

// Holds says whether each report of the segment in a file, byte for byte, is in the log
// that it was cut from, and that log is still to be sorted. Then the file will be made
// again, and needs no keeping.
func (w *Waiting) Holds(ctx context.Context, name string) (bool, error) {
	id, ok := logOf(name)
	if !ok {
		return false, nil
	}
	reports, err := w.of(ctx, id)
	if reports == nil || err != nil {
		return false, err
	}
	seg, err := Peek(w.fs, name)
	if errors.Is(err, ErrCorrupt) {
		return false, nil // what it was is not to be seen
	}
	if err != nil {
		return false, err
	}
	defer seg.Close()
	for i := range seg.Len() {
		m := member{place{seg.meta.TaskID, seg.meta.Bucket}, seg.ReportID(i)}
		if report, ok := reports[m]; !ok || !bytes.Equal(report, seg.Report(i)) {
			return false, nil
		}
	}
	return true, nil
}

// logOf is the log that a segment's name says it was cut from.
func logOf(name string) (id disk.LogID, ok bool) {
	base, isSegment := strings.CutSuffix(path.Base(name), segmentSuffix)
	text, _, isPart := strings.Cut(base, "-")
	b, err := hex.DecodeString(text)
	if !isSegment || !isPart || err != nil || len(b) != len(id) {
		return id, false
	}
	return disk.LogID(b), true
}

// of are the reports in a log that waits; nil if it does not.
func (w *Waiting) of(ctx context.Context, id disk.LogID) (map[member][]byte, error) {
	if reports, known := w.reports[id]; known {
		return reports, nil
	}
	if w.logs == nil {
		if err := w.list(); err != nil {
			return nil, err
		}
	}
	name, waits := w.logs[id]
	if !waits {
		return nil, nil
	}
	if sorted, err := w.committer.SegmentsOfLog(ctx, id); err != nil || sorted {
		return nil, err
	}
	scan, err := disk.ScanLog(w.fs, name)
	if err != nil {
		return nil, err
	}
	entries, _ := decode(scan.Records) // up to a record that is malformed
	reports := make(map[member][]byte, len(entries))
	for i := range entries {
		e := &entries[i]
		m := member{place{e.TaskID, e.Bucket}, e.ReportID}
		if _, twice := reports[m]; !twice { // the first is the one that is kept
			reports[m] = e.Report
		}
	}
	w.reports[id] = reports
	return reports, nil
}

// list reads the ids of the logs that lie there.
func (w *Waiting) list() error {
	w.logs = make(map[disk.LogID]string)
	entries, err := w.fs.ReadDir(w.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("segment: %w", err)
	}
	for _, e := range entries {
		if e.Dir || path.Ext(e.Name) != logSuffix || e.Size <= disk.LogHeaderSize {
			continue
		}
		name := path.Join(w.dir, e.Name)
		id, _, err := disk.ReadLogHeader(w.fs, name)
		if errors.Is(err, disk.ErrLogHeader) {
			continue
		}
		if err != nil {
			return err
		}
		w.logs[id] = name
	}
	return nil
}

// ReadLog reads the reports of a log that is whole, in order; they belong to the caller.
func ReadLog(fsys disk.FS, name string) ([]Entry, error) {
	scan, err := disk.ScanLog(fsys, name)
	if err != nil {
		return nil, err // also where its records can be read
	}
	if err := scan.Err(name); err != nil {
		return nil, err
	}
	if isStandIn(fsys, name) {
		return nil, fmt.Errorf("segment: %s stands for a log that is gone", name)
	}
	return decode(scan.Records)
}
