package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/internal/disk"
)

// Rows lists slices that rows name, some at a time, and begins at a cursor of 0; see
// store.Jobs.
type Rows func(ctx context.Context, cursor int64, n int) (some []Slice, next int64, err error)

// Waiting knows the reports that wait, at a start: in logs that are to be sorted, and in
// slices that rows name. It tells the copies that a crash left between their writing and
// the transaction that names them from those whose rows were lost.
type Waiting struct {
	FS        disk.FS
	Inbox     string // the directory of the logs
	Committer Committer
	Rows      Rows
	// what the sorter makes of logs; see [SorterOptions]
	MaxBytes, MaxReports int

	sums map[Sum]bool // of the slices; nil until it is needed
}

// Holds says whether the reports of the object in a file wait elsewhere, each slice of it
// by its sum. Then it needs no keeping.
func (w *Waiting) Holds(ctx context.Context, name string) (bool, error) {
	d, err := openDirectory(ctx, payload.OpenFiles(w.FS), name)
	switch {
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrNewer), errors.Is(err, payload.ErrInvalid):
		return false, nil // what it was is not to be seen
	case err != nil:
		return false, err
	}
	if w.sums == nil {
		if err := w.list(ctx); err != nil {
			return false, err
		}
	}
	for i := range d {
		if !w.sums[d[i].sum] {
			return false, nil
		}
	}
	return true, nil
}

// list reads what waits.
func (w *Waiting) list(ctx context.Context) error {
	sums := make(map[Sum]bool)
	for cursor := int64(0); ; {
		some, next, err := w.Rows(ctx, cursor, 1000)
		if err != nil {
			return err
		}
		for i := range some {
			sums[some[i].Sum] = true
		}
		if cursor = next; len(some) == 0 {
			break
		}
	}
	entries, err := w.FS.ReadDir(w.Inbox)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("segment: %w", err)
	}
	for _, e := range entries {
		if e.Dir || path.Ext(e.Name) != logSuffix {
			continue
		}
		name := path.Join(w.Inbox, e.Name)
		if fate, err := w.Committer.LogFate(ctx, Begun{File: name}); err != nil {
			return err
		} else if fate != Unsorted {
			continue
		}
		scan, err := disk.ScanLog(w.FS, name)
		if err != nil && scan.ID == (disk.LogID{}) {
			continue // nothing is to be had of it
		}
		list, _ := logSlices(name, &scan, 0, w.MaxBytes, w.MaxReports)
		for i := range list {
			sums[list[i].Sum] = true
		}
	}
	w.sums = sums
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

// ReadObject reads the reports of an object that is whole, slice by slice; they belong to
// the caller.
func ReadObject(ctx context.Context, store payload.Store, name string) (entries []Entry, err error) {
	d, err := openDirectory(ctx, store, name)
	if err != nil {
		return nil, err
	}
	for i := range d {
		row := d[i].row(0)
		r, err := OpenSlices(ctx, store, []Slice{row})
		if err != nil {
			return nil, err
		}
		for k := range r.Len() {
			entries = append(entries, Entry{
				TaskID: row.TaskID, Bucket: row.Bucket, ReportID: r.ReportID(k), Report: bytes.Clone(r.Report(k)),
			})
		}
		r.Close()
	}
	return entries, nil
}
