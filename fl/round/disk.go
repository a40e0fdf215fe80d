package round

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/starling-agg/starling/internal/disk"
)

const (
	journalFile = "journal"
	maxEvent    = 1 << 10 // bytes
)

// onDisk is a store of files. That one process has the directory is its caller's business
// ([disk.OSFS.Lock]).
type onDisk struct {
	fsys disk.FS
	fail *disk.Failpoints
	log  *disk.Log
}

// OnDisk is a store in a directory that this process has for itself: an append log of
// package disk, and files. Failpoints is nil in production.
func OnDisk(fsys disk.FS, fail *disk.Failpoints) Store { return &onDisk{fsys: fsys, fail: fail} }

// Replay implements [Store].
func (d *onDisk) Replay(_ context.Context, visit func(event []byte) error) error {
	for _, dir := range dirs {
		if err := disk.MakeDirs(d.fsys, dir); err != nil {
			return err
		}
	}
	log, _, err := disk.OpenLog(d.fsys, journalFile, disk.LogOptions{MaxRecord: maxEvent, Failpoints: d.fail}, visit)
	if damaged := new(disk.DamagedError); errors.As(err, &damaged) {
		return fmt.Errorf("%w: %w", ErrJournal, err)
	}
	d.log = log
	return err
}

// Append implements [Store].
func (d *onDisk) Append(ctx context.Context, event []byte) error {
	// Whether an event stands is decided here and not by who waits for it.
	return d.log.Append(context.WithoutCancel(ctx), event)
}

// Put implements [Store].
func (d *onDisk) Put(_ context.Context, name string, content []byte) error {
	return disk.WriteFile(d.fsys, name, content)
}

// Get implements [Store].
func (d *onDisk) Get(_ context.Context, name string) ([]byte, error) {
	b, err := disk.ReadFile(d.fsys, name, maxFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrJournal, err)
	}
	return b, err
}

// Retain implements [Store].
func (d *onDisk) Retain(_ context.Context, names map[string]bool) error {
	var errs []error
	for _, dir := range dirs {
		var old []string
		for f, err := range disk.Files(d.fsys, dir) {
			if err != nil {
				errs = append(errs, err)
				break
			}
			if !names[f.Name] {
				old = append(old, f.Name)
			}
		}
		if len(old) > 0 {
			errs = append(errs, disk.Remove(d.fsys, old...))
		}
	}
	return errors.Join(errs...)
}

// Lost implements [Store]: a directory is this process's until it ends.
func (d *onDisk) Lost() <-chan struct{} { return nil }

// Close implements [Store].
func (d *onDisk) Close() error {
	if d.log == nil {
		return nil
	}
	return d.log.Close()
}
