package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
)

// Errors to branch on with [errors.Is].
var (
	// ErrStateUnknown: a write or sync failed half-way, so the data may or may not be
	// there after a restart. Not retryable on the same file.
	ErrStateUnknown = errors.New("disk: state unknown")
	// ErrBadName: a name is not slash-separated, relative and clean ([fs.ValidPath]).
	ErrBadName = errors.New("disk: invalid name")
)

// FS is a tree of files and directories. Names are slash-separated, relative and clean,
// as [fs.ValidPath] has it; "." is the root. Errors wrap fs.ErrNotExist and fs.ErrExist
// where those apply.
//
// Nothing is durable until it is synced: the bytes of a file by [File.Sync], its name by
// [FS.SyncDir] of the directory that holds it. After a power loss each unsynced change
// may be there, missing or torn, independently of the others.
type FS interface {
	// Create makes a new file for reading and writing; fs.ErrExist if the name is taken.
	Create(name string) (File, error)
	// Open opens an existing file for reading; every write to it fails.
	Open(name string) (File, error)
	// OpenAppend opens an existing file for reading and writing, with its Write starting
	// at its end.
	OpenAppend(name string) (File, error)
	// OpenWrite opens a file for reading and writing at offset 0 and makes it if it is
	// not there.
	OpenWrite(name string) (File, error)
	// Rename moves a file, replacing newName if that exists, in one step: after a crash
	// one of the two names holds it.
	Rename(oldName, newName string) error
	// Link gives a file a second name, which must be free: fs.ErrExist if it is not.
	Link(oldName, newName string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// ReadDir lists a directory, sorted by name.
	ReadDir(dir string) ([]Entry, error)
	// Stat describes a file or directory.
	Stat(name string) (Entry, error)
	// MkdirAll makes a directory and its parents; no error if it exists. Use [MakeDirs]
	// to make it durable.
	MkdirAll(dir string) error
	// SyncDir makes durable the names created, renamed and removed in a directory so far.
	SyncDir(dir string) error
}

// File is an open file. Write appends at the handle's own offset, which starts at the end
// for Create and OpenAppend and at 0 for OpenWrite; ReadAt and WriteAt do not move it.
type File interface {
	io.ReaderAt
	io.Writer
	io.WriterAt
	// Sync makes the content and the length durable. After an error the state of
	// everything written since the last successful Sync is unknown.
	Sync() error
	// Truncate sets the length, in bytes; it does not move the handle's offset.
	Truncate(size int64) error
	// Size is the length in bytes.
	Size() (int64, error)
	// Close releases the handle and syncs nothing.
	Close() error
}

// Entry describes a file or a directory.
type Entry struct {
	Name string // the last element of the path
	Dir  bool
	Size int64 // bytes; 0 for directories
}

// CheckName reports whether name may be given to an [FS]; the error matches [ErrBadName].
func CheckName(name string) error {
	if !fs.ValidPath(name) {
		return fmt.Errorf("%w: %q", ErrBadName, name)
	}
	return nil
}

// ReadFile reads a whole file of at most limit bytes.
func ReadFile(fsys FS, name string, limit int64) ([]byte, error) {
	return readFileInto(fsys, name, limit, nil)
}

// readFileInto is ReadFile into the memory of buf, from its first byte to its capacity,
// if the file fits in there.
func readFileInto(fsys FS, name string, limit int64, buf []byte) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("disk: %s has %d bytes, more than the limit of %d", name, size, limit)
	}
	if size > int64(cap(buf)) {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, size), buf); err != nil {
		return nil, fmt.Errorf("disk: read %s: %w", name, err)
	}
	return buf, nil
}

// tempSuffix marks files that are being written; whatever bears it at start-up is rubbish.
const tempSuffix = ".tmp"

// IsTemp reports whether name is a temporary that a crash of [WriteFile] may leave behind.
func IsTemp(name string) bool { return path.Ext(name) == tempSuffix }

// WriteFile writes parts, one after the other, as the whole content of name, replacing
// what was there: it writes a temporary beside it, syncs that, renames it and syncs the
// directory. A crash leaves the old content or the new, never a mixture. It may not run
// twice at once for one name.
func WriteFile(fsys FS, name string, parts ...[]byte) error {
	return WriteStream(fsys, name, func(w io.Writer) error {
		for _, p := range parts {
			if _, err := w.Write(p); err != nil {
				return err
			}
		}
		return nil
	})
}

// WriteStream is WriteFile for a content too large to hold: fill writes it, in writes as
// large as it likes.
func WriteStream(fsys FS, name string, fill func(io.Writer) error) error {
	if err := stage(fsys, name, fill); err != nil {
		return err
	}
	return syncDir(fsys, path.Dir(name))
}

func stage(fsys FS, name string, fill func(io.Writer) error) (err error) {
	if err := CheckName(name); err != nil {
		return err
	}
	temp := name + tempSuffix
	if err := fsys.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("disk: remove stale temporary: %w", err)
	}
	f, err := fsys.Create(temp)
	if err != nil {
		return fmt.Errorf("disk: create %s: %w", temp, err)
	}
	defer func() {
		if err != nil {
			// Best effort: a temporary that stays is swept at start-up.
			_ = fsys.Remove(temp)
		}
	}()
	if err := fill(f); err != nil {
		f.Close()
		return fmt.Errorf("disk: write %s: %w", temp, err)
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return fmt.Errorf("disk: sync %s: %w", temp, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("disk: close %s: %w", temp, err)
	}
	if err := fsys.Rename(temp, name); err != nil {
		return fmt.Errorf("disk: rename %s: %w", temp, err)
	}
	return nil
}

// Remove removes files durably: all of them, then one sync of each directory touched. A
// file that is already gone is no error, so it may be repeated after a crash.
func Remove(fsys FS, names ...string) error {
	dirs := make(map[string]struct{})
	for _, name := range names {
		if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("disk: remove %s: %w", name, err)
		}
		dirs[path.Dir(name)] = struct{}{}
	}
	for dir := range dirs {
		if err := syncDir(fsys, dir); err != nil {
			return err
		}
	}
	return nil
}

// Shred overwrites a file with zeros, and removes it once they are on the disk. overwritten,
// which may be nil, is called between the two, and an error of it ends the call.
func Shred(fsys FS, name string, overwritten func() error) error {
	f, err := fsys.OpenWrite(name)
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err == nil {
		_, err = f.WriteAt(make([]byte, size), 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if overwritten != nil {
		if err := overwritten(); err != nil {
			return err
		}
	}
	return Remove(fsys, name)
}

// Files lists the files in a directory and in all below it, each directory sorted by name;
// the Name of an entry is its whole name in fsys. A directory that is not there has none.
// After an error, which comes with no entry, it ends.
func Files(fsys FS, dir string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) { files(fsys, dir, yield) }
}

// files is Files, and says whether to go on.
func files(fsys FS, dir string, yield func(Entry, error) bool) bool {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil {
		yield(Entry{}, fmt.Errorf("disk: list %s: %w", dir, err))
		return false
	}
	for _, e := range entries {
		e.Name = path.Join(dir, e.Name)
		if e.Dir && !files(fsys, e.Name, yield) || !e.Dir && !yield(e, nil) {
			return false
		}
	}
	return true
}

// MakeDirs makes a directory and its parents, durably.
func MakeDirs(fsys FS, dir string) error {
	if err := fsys.MkdirAll(dir); err != nil {
		return fmt.Errorf("disk: make directory %s: %w", dir, err)
	}
	for d := dir; d != "."; {
		d = path.Dir(d)
		if err := syncDir(fsys, d); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(fsys FS, dir string) error {
	if err := fsys.SyncDir(dir); err != nil {
		return fmt.Errorf("disk: sync directory %s: %w: %w", dir, ErrStateUnknown, err)
	}
	return nil
}
