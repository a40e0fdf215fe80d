package backup

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/record"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/sqlite"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
)

// Options say of which aggregator. It must not run, and its directories are the caller's
// alone.
type Options struct {
	Data, Record disk.FS
	Role         dap.Role
	Party        string // the URL under which it is reached
	Tasks        []aggregator.Task
	MakesKeys    bool // HPKE keys are made by itself, in keys/
	Clock        disk.Clock
}

func (o *Options) open(ctx context.Context, r *sqlite.Restoring) error {
	s, err := sqlite.Open(ctx, sqlite.Options{
		FS: o.Data, Record: o.Record, Role: o.Role, Party: o.Party, File: DatabaseFile, Clock: o.Clock, Restoring: r,
	})
	if err != nil {
		return err
	}
	return s.Close()
}

// Make makes a backup. It fails with [ErrExists], and with an [*aggregator.StoreError]
// where the store would not start.
func Make(ctx context.Context, o Options, to disk.FS) (*Manifest, error) {
	if err := checkEmpty(to); err != nil {
		return nil, err
	}
	if err := o.open(ctx, nil); err != nil { // closed in order, it has no write-ahead log
		return nil, err
	}
	r, err := record.Open(o.Record)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	defer r.Close()
	m := &Manifest{
		Role: r.Role.String(), Party: r.Party, Store: hex.EncodeToString(r.ID[:]), Epoch: r.Epoch, Releases: r.Releases, Made: o.Clock.Now().UTC(),
	}
	err = disk.WriteStream(to, DatabaseFile, func(w io.Writer) (err error) {
		m.Size, m.SHA256, err = copyFile(o.Data, DatabaseFile, w)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	b, err := m.encode()
	if err != nil {
		return nil, err
	}
	// Last, so that what has a manifest is whole.
	if err := disk.WriteFile(to, ManifestFile, b); err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	m2, err := Read(to)
	if err != nil {
		return nil, err
	}
	return m2, nil
}

func checkEmpty(to disk.FS) error {
	if entries, err := to.ReadDir("."); err == nil && len(entries) > 0 {
		return fmt.Errorf("%w, or other files", ErrExists)
	}
	return nil
}

// A Plan is a restore that was looked at and can be done.
type Plan struct {
	*Manifest
	Forgotten uint64 // releases that the record knows of, and the backup does not
	Next      uint32 // the restore epoch that begins
	opt       Options
	from      disk.FS
	tasks     []*store.Task
}

// Look says what a restore would do, and changes nothing. It fails with [ErrDamaged],
// [ErrForeign] and [ErrRecord].
func Look(o Options, from disk.FS) (*Plan, error) {
	m, err := Read(from)
	if err != nil {
		return nil, err
	}
	r, err := record.Open(o.Record)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	defer r.Close()
	switch beside, err := record.ReadIdentity(o.Data); {
	case r.Role != o.Role || r.Party != o.Party:
		return nil, fmt.Errorf("%w: the record is of a %v, %s", ErrForeign, r.Role, r.Party)
	case err == nil && beside != r.Identity:
		return nil, fmt.Errorf("%w: the directory is that of a %v, %s", ErrForeign, beside.Role, beside.Party)
	case m.Role != r.Role.String() || m.Party != r.Party:
		return nil, fmt.Errorf("%w: of a %s, %s", ErrForeign, m.Role, m.Party)
	case m.Store != hex.EncodeToString(r.ID[:]):
		return nil, fmt.Errorf("%w of %s", ErrForeign, m.Party)
	case m.Epoch > r.Epoch:
		return nil, fmt.Errorf("%w: it is of restore epoch %d, and the record of %d was put back", ErrForeign, m.Epoch, r.Epoch)
	}
	p := &Plan{Manifest: m, Next: r.Epoch + 1, opt: o, from: from}
	if r.Releases > m.Releases {
		p.Forgotten = r.Releases - m.Releases
	}
	set, err := task.Set(o.Tasks, o.Role)
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	for _, t := range set.Opened() {
		p.tasks = append(p.tasks, t.Stored(0))
	}
	return p, nil
}

// Restore does what was planned. Where it fails, the store is refused until a restore has
// ended; it can be done again.
func (p *Plan) Restore(ctx context.Context) error {
	o := &p.opt
	r, err := record.Open(o.Record)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRecord, err)
	}
	err = errors.Join(r.Raise(), r.Close())
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	// A log must not meet another database.
	if err := disk.MakeDirs(o.Data, "."); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if err := disk.Remove(o.Data, DatabaseFile+"-wal", DatabaseFile+"-journal"); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if o.MakesKeys {
		if err := keyset.Reset(o.Data, "keys"); err != nil {
			return err
		}
	}
	// These files belong to the store that was lost; the keys that open them are gone.
	for _, dir := range []string{"inbox", "slices", "runs"} {
		if err := removeFiles(o.Data, dir); err != nil {
			return fmt.Errorf("backup: %w", err)
		}
	}
	if err := disk.WriteStream(o.Data, DatabaseFile, func(w io.Writer) error { return p.copy(p.from, w) }); err != nil {
		return err
	}
	return o.open(ctx, &sqlite.Restoring{Tasks: p.tasks})
}

func removeFiles(fsys disk.FS, dir string) error {
	var names []string
	for f, err := range disk.Files(fsys, dir) {
		if err != nil {
			return err
		}
		names = append(names, f.Name)
	}
	return disk.Remove(fsys, names...)
}
