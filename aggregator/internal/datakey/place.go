package datakey

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/starling-agg/starling/aggregator/keyset/vault"
	"github.com/starling-agg/starling/internal/disk"
)

// A place is where the keys are, by the names of their files without the suffix.
type place interface {
	// names lists the keys that are there whole.
	names(ctx context.Context) ([]string, error)
	// get is a key's bytes; [fs.ErrNotExist] where it is not there.
	get(ctx context.Context, name string) ([]byte, error)
	// put keeps a new key durably; [vault.ErrStale] where another replica has made one.
	put(ctx context.Context, name string, b []byte) error
	// destroy ends a key for good; [fs.ErrNotExist] where it is not there.
	destroy(ctx context.Context, name string) error
	// sweep destroys what a crash left half written, which was never used.
	sweep(ctx context.Context) error
	// call is what people call a key.
	call(name string) string
}

// directory is the place of one process.
type directory struct {
	fs   disk.FS
	dir  string
	fail *disk.Failpoints
}

func (d *directory) call(name string) string { return path.Join(d.dir, name+fileSuffix) }

// entries are the keys' files, whole or half written.
func (d *directory) entries() (files []string, err error) {
	entries, err := d.fs.ReadDir(d.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.Dir && isKeyFile(e.Name) {
			files = append(files, e.Name)
		}
	}
	return files, nil
}

func (d *directory) names(context.Context) ([]string, error) {
	files, err := d.entries()
	if err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, disk.IsTemp)
	for i, name := range files {
		files[i] = strings.TrimSuffix(name, fileSuffix)
	}
	return files, nil
}

func (d *directory) get(_ context.Context, name string) ([]byte, error) {
	return disk.ReadFile(d.fs, d.call(name), int64(fileSize))
}

func (d *directory) put(_ context.Context, name string, b []byte) error {
	return disk.WriteFile(d.fs, d.call(name), b)
}

func (d *directory) destroy(_ context.Context, name string) error { return d.shred(d.call(name)) }

func (d *directory) shred(file string) error {
	return disk.Shred(d.fs, file, func() error { return d.fail.Hit(failAfterOverwrite) })
}

func (d *directory) sweep(context.Context) error {
	files, err := d.entries()
	if err != nil {
		return err
	}
	for _, name := range files {
		if !disk.IsTemp(name) {
			continue
		}
		if err := d.shred(path.Join(d.dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// shared is a vault that replicas have together. Its state is empty: the book says what
// there is, and versions see to it that of two keys of one time the second is not kept.
type shared struct{ vault.Vault }

func (shared) call(name string) string { return "data key " + strings.TrimLeft(name, "0") }

func (s shared) names(ctx context.Context) ([]string, error) { return s.Names(ctx) }

// get is none where it cannot be unwrapped: its row is damaged, or its wrapping key ended.
func (s shared) get(ctx context.Context, name string) ([]byte, error) { return s.Get(ctx, name) }

func (s shared) put(ctx context.Context, name string, b []byte) error {
	_, version, err := s.State(ctx)
	if err != nil {
		return err
	}
	// Another replica may have made the key before that version.
	there, err := s.Names(ctx)
	if err != nil {
		return err
	}
	if slices.Contains(there, name) {
		return vault.ErrStale
	}
	if err := s.Put(ctx, name, b); err != nil {
		return err
	}
	return s.Save(ctx, nil, version)
}

func (s shared) destroy(ctx context.Context, name string) error {
	for {
		_, version, err := s.State(ctx)
		if err != nil {
			return err
		}
		names, err := s.Names(ctx)
		if err != nil {
			return err
		}
		i := slices.Index(names, name)
		if i < 0 {
			return fs.ErrNotExist
		}
		err = s.Keep(ctx, slices.Delete(names, i, i+1), version)
		if !errors.Is(err, vault.ErrStale) {
			return err
		}
	}
}

func (shared) sweep(context.Context) error { return nil }
