package vault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/starling-agg/starling/internal/disk"
)

// Bounds, in bytes.
const (
	maxState = 1 << 20
	// maxSecret: an X-Wing key pair has about 1.3 KB.
	maxSecret = 1 << 14
)

const stateName = "state"

// Dir is a directory that one process owns. Secrets lie there as they are, a file each, for
// the owner's eyes only.
type Dir struct {
	FS disk.FS
	// Path is the directory, which is the vault's alone.
	Path string
	// Suffix ends the names of files with secrets.
	Suffix string
	// Overwritten and Removed are called while a file is destroyed, where they are set:
	// when its zeros are on the disk, and when it is gone. An error ends the call.
	Overwritten, Removed func() error

	mu      sync.Mutex
	version uint64
}

var _ Vault = (*Dir)(nil)

func (d *Dir) state() string           { return path.Join(d.Path, stateName) }
func (d *Dir) file(name string) string { return path.Join(d.Path, name+d.Suffix) }

// Make makes the directory, if it is not there.
func (d *Dir) Make() error { return disk.MakeDirs(d.FS, d.Path) }

// State implements [Vault]. The version counts the states of this life of the process.
func (d *Dir) State(context.Context) ([]byte, uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b, err := disk.ReadFile(d.FS, d.state(), maxState)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	d.version = max(d.version, 1)
	return b, d.version, nil
}

// Save implements [Vault].
func (d *Dir) Save(_ context.Context, state []byte, after uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if after != d.version {
		return ErrStale
	}
	if err := disk.WriteFile(d.FS, d.state(), state); err != nil {
		return err
	}
	d.version++
	return nil
}

// Put implements [Vault].
func (d *Dir) Put(_ context.Context, name string, secret []byte) error {
	return disk.WriteFile(d.FS, d.file(name), secret)
}

// Get implements [Vault].
func (d *Dir) Get(_ context.Context, name string) ([]byte, error) {
	if err := disk.CheckPrivate(d.FS, d.file(name)); err != nil {
		return nil, err
	}
	return disk.ReadFile(d.FS, d.file(name), maxSecret)
}

// Names implements [Vault]. A secret left half written has the name of its file.
func (d *Dir) Names(context.Context) (names []string, err error) {
	entries, err := d.FS.ReadDir(d.Path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Dir || !d.secret(e.Name) {
			continue
		}
		names = append(names, strings.TrimSuffix(e.Name, d.Suffix))
	}
	return names, nil
}

// secret tells files of secrets, whole or half written, from what is none of ours.
func (d *Dir) secret(file string) bool {
	if disk.IsTemp(file) {
		file = strings.TrimSuffix(file, path.Ext(file))
	}
	return path.Ext(file) == d.Suffix
}

// Keep implements [Vault]: each other file is overwritten and removed.
func (d *Dir) Keep(ctx context.Context, names []string, _ uint64) error {
	there, err := d.Names(ctx)
	if err != nil {
		return err
	}
	for _, name := range there {
		if slices.Contains(names, name) {
			continue
		}
		file := d.file(name)
		if disk.IsTemp(name) {
			file = path.Join(d.Path, name)
		}
		if err := d.shred(file); err != nil {
			return fmt.Errorf("destroy %s: %w", file, err)
		}
	}
	return nil
}

func (d *Dir) shred(file string) error {
	if err := disk.Shred(d.FS, file, d.Overwritten); err != nil {
		return err
	}
	if d.Removed == nil {
		return nil
	}
	return d.Removed()
}

// Beat implements [Vault]: there is one process.
func (*Dir) Beat(context.Context, Report) (Turn, error) { return Turn{Alone: true, Maker: true}, nil }

// Leave implements [Vault].
func (*Dir) Leave(context.Context) error { return nil }
