package payload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/starling-agg/starling/internal/disk"
)

// Files keeps objects as files of one directory, under their names. It is the engine of
// one machine: what it acknowledged survives a loss of power, and not the loss of the
// disk.
//
// A put writes a temporary beside the name, syncs it, links it to the name, which fails
// where that is taken, and syncs the directory. Where that last sync fails nobody can
// know any more which names of the directory are durable; from then on the handle takes
// nothing, until the process opens another, as at a start.
//
// Files do not hide a put that is under way: for a moment before it returns others see
// the object, which a loss of power may then take back.
type Files struct {
	fs disk.FS

	mu     sync.Mutex
	dirs   map[string]struct{} // that are there, durably
	broken error               // set once: the sync of a directory failed
}

// OpenFiles opens a directory.
func OpenFiles(fsys disk.FS) *Files { return &Files{fs: fsys, dirs: make(map[string]struct{})} }

// tempSuffix ends the names of files that are being written; it ends no name of an
// object.
const tempSuffix = "tmp"

// SweepFiles removes what puts of earlier lives have left half-way. It is for the start
// of the one process that has the directory: a put that is under way would lose its file.
func SweepFiles(fsys disk.FS) error {
	var left []string
	for e, err := range disk.Files(fsys, ".") {
		if err != nil {
			return err
		}
		if disk.IsTemp(e.Name) {
			left = append(left, e.Name)
		}
	}
	return disk.Remove(fsys, left...)
}

// Put implements [Store].
func (f *Files) Put(ctx context.Context, name string, parts ...[]byte) error {
	if _, err := CheckPut(name, parts); err != nil {
		return err
	}
	if err := f.usable(ctx, "put "+name); err != nil {
		return err
	}
	dir := path.Dir(name)
	if err := f.ensureDir(dir); err != nil {
		return f.unput(name, err)
	}
	// Only for speed: the link below decides.
	if _, err := f.fs.Stat(name); err != nil {
		temp, err := f.stage(name, parts)
		if err != nil {
			return f.unput(name, err)
		}
		err = f.fs.Link(temp, name)
		// If it stays, it is swept at a start.
		_ = f.fs.Remove(temp)
		if err == nil {
			return f.sync("put "+name, dir)
		}
		if !errors.Is(err, fs.ErrExist) {
			return f.unput(name, err)
		}
	}
	if err := f.sync("put "+name, dir); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", ErrExists, name)
}

// stage writes a content, durably, under a name of its own beside the one that it is for.
func (f *Files) stage(name string, parts [][]byte) (temp string, err error) {
	file, temp, err := f.create(name)
	if err != nil {
		return "", err
	}
	for _, part := range parts {
		if _, err = file.Write(part); err != nil {
			break
		}
	}
	if err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = f.fs.Remove(temp) // what stays is swept at a start
		return "", err
	}
	return temp, nil
}

// create makes a temporary that nobody else has.
func (f *Files) create(name string) (disk.File, string, error) {
	for n := 0; ; n++ {
		temp := name + "." + strconv.Itoa(n) + "." + tempSuffix
		if file, err := f.fs.Create(temp); !errors.Is(err, fs.ErrExist) {
			return file, temp, err
		}
	}
}

// ReadAt implements [Store].
func (f *Files) ReadAt(ctx context.Context, name string, p []byte, offset int64) (n int, err error) {
	if err := CheckRead(name, p, offset); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, Ended(ctx, "read "+name)
	}
	file, err := f.fs.Open(name)
	if err != nil {
		return 0, failed("read "+name, err)
	}
	defer file.Close()
	n, err = file.ReadAt(p, offset)
	switch {
	case n == len(p):
		return n, nil
	case err == io.EOF:
		return n, io.EOF
	}
	return n, failed("read "+name, err)
}

// Delete implements [Store].
func (f *Files) Delete(ctx context.Context, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := f.usable(ctx, "delete "+name); err != nil {
		return err
	}
	if err := f.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failed("delete "+name, err)
	}
	return f.sync("delete "+name, path.Dir(name))
}

// Size implements [Store].
func (f *Files) Size(ctx context.Context, name string) (int64, error) {
	if err := CheckName(name); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, Ended(ctx, "size of "+name)
	}
	e, err := f.fs.Stat(name)
	if err != nil {
		return 0, failed("size of "+name, err)
	}
	return e.Size, nil
}

// List implements [Store].
func (f *Files) List(ctx context.Context, prefix, after string, n int) ([]Object, error) {
	if err := CheckList(prefix, after, n); err != nil {
		return nil, err
	}
	var page []Object
	if err := f.list(ctx, prefix, after, n, &page); err != nil {
		return nil, failed("list "+prefix, err)
	}
	return page, nil
}

// list adds to a page what a folder has.
func (f *Files) list(ctx context.Context, folder, after string, n int, page *[]Object) error {
	if ctx.Err() != nil {
		return Ended(ctx, "list")
	}
	entries, err := f.fs.ReadDir(path.Clean(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// With its slash, a folder stands where the names in it do: "a-b/c" is before "a/c".
	for i := range entries {
		entries[i].Name = folder + entries[i].Name
		if entries[i].Dir {
			entries[i].Name += "/"
		}
	}
	slices.SortFunc(entries, func(a, b disk.Entry) int { return cmp.Compare(a.Name, b.Name) })
	for _, e := range entries {
		switch {
		case len(*page) == n:
			return nil
		case e.Dir && (e.Name > after || strings.HasPrefix(after, e.Name)):
			if err := f.list(ctx, e.Name, after, n, page); err != nil {
				return err
			}
		case !e.Dir && e.Name > after && CheckName(e.Name) == nil:
			*page = append(*page, Object{e.Name, e.Size})
		}
	}
	return nil
}

// usable refuses what would change something where the handle is broken.
func (f *Files) usable(ctx context.Context, what string) error {
	if ctx.Err() != nil {
		return Ended(ctx, what)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return fmt.Errorf("%w: %s: start the process again, after an earlier failure: %w", ErrUnavailable, what, f.broken)
	}
	return nil
}

// ensureDir makes a directory, once.
func (f *Files) ensureDir(dir string) error {
	f.mu.Lock()
	_, known := f.dirs[dir]
	f.mu.Unlock()
	if known {
		return nil
	}
	if err := disk.MakeDirs(f.fs, dir); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dirs[dir] = struct{}{}
	return nil
}

// sync makes what has happened in a directory durable. One that is not there has nothing.
func (f *Files) sync(what, dir string) error {
	err := f.fs.SyncDir(dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = err
	return fmt.Errorf("%w: %s: sync its directory: %w", ErrUnavailable, what, err)
}

// unput is failed for a put. Where its directory is missing it is made again next time.
func (f *Files) unput(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		f.mu.Lock()
		delete(f.dirs, path.Dir(name))
		f.mu.Unlock()
		return fmt.Errorf("%w: put %s: %w", ErrUnavailable, name, err)
	}
	return failed("put "+name, err)
}

// failed says what an error of the file system is for the caller.
func failed(what string, err error) error {
	kind := ErrUnavailable
	switch {
	case errors.Is(err, ErrUnavailable):
		return err
	case errors.Is(err, fs.ErrNotExist):
		kind = ErrNotFound
	case errors.Is(err, fs.ErrPermission):
		kind = ErrDenied
	case disk.IsFull(err):
		kind = ErrFull
	}
	return fmt.Errorf("%w: %s: %w", kind, what, err)
}
