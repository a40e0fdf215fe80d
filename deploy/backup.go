package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/starling-agg/starling/aggregator/backup"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/internal/disk"
)

// backupOptions are those of the aggregator in its directories.
func (a *Aggregator) backupOptions(f *files) (o backup.Options, err error) {
	m, err := a.read()
	if err != nil {
		return o, err
	}
	return backup.Options{
		Data: f.data, Record: f.record, Role: a.Role, Party: m.base, Tasks: m.tasks, MakesKeys: a.makesKeys(), Clock: disk.SystemClock,
	}, nil
}

// stopped hands what a backup is made of, of an aggregator that is not running, to do.
func (a *Aggregator) stopped(do func(backup.Options) error) (err error) {
	f, err := a.files()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	o, err := a.backupOptions(f)
	if err != nil {
		return err
	}
	return do(o)
}

// Backup makes a backup of an aggregator that is not running in a directory that is empty
// or not there.
func (a *Aggregator) Backup(ctx context.Context, dir string) (m *backup.Manifest, err error) {
	if !a.Used() {
		return nil, fmt.Errorf("data: %s: %w", a.Data, fs.ErrNotExist)
	}
	err = a.stopped(func(o backup.Options) (err error) {
		to, err := disk.OS(dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, to.Close()) }()
		m, err = backup.Make(ctx, o, to)
		return err
	})
	return m, err
}

// ReceiveBackup asks the running aggregator for a backup, and reads it into a directory
// that is empty or not there.
func (a *Aggregator) ReceiveBackup(ask func() (io.ReadCloser, error), dir string) (m *backup.Manifest, err error) {
	if there, err := os.ReadDir(dir); err == nil && len(there) > 0 {
		return nil, fmt.Errorf("%w, or other files", backup.ErrExists)
	}
	from, err := ask()
	if err != nil {
		return nil, err
	}
	defer from.Close()
	to, err := disk.OS(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	return backup.Receive(from, to)
}

// LostDataKeys says which data keys of an aggregator that is not running are lost, and with
// giveUp ends them; see [backup.LostDataKeys].
func (a *Aggregator) LostDataKeys(ctx context.Context, giveUp bool) (lost []status.DataKey, err error) {
	if !a.Used() {
		return nil, fmt.Errorf("data: %s: %w", a.Data, fs.ErrNotExist)
	}
	err = a.stopped(func(o backup.Options) error {
		lost, err = backup.LostDataKeys(ctx, o, giveUp)
		return err
	})
	return lost, err
}

// Restore looks at a backup for an aggregator that is not running, and puts it back if goOn
// does not fail.
func (a *Aggregator) Restore(ctx context.Context, dir string, goOn func(*backup.Plan) error) (err error) {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	if _, err := os.Stat(a.record()); err != nil {
		return fmt.Errorf("%w: %w", backup.ErrRecord, err)
	}
	from, err := disk.OS(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	return a.stopped(func(o backup.Options) error {
		p, err := backup.Look(o, from)
		if err != nil {
			return err
		}
		if err := goOn(p); err != nil {
			return err
		}
		return p.Restore(ctx)
	})
}
