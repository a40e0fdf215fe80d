package disk

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
)

// OSFS is the operating system's file system below one directory. It never leaves that
// directory, not even through symbolic links ([os.Root]).
type OSFS struct {
	root *os.Root
	lock *os.File // nil unless Lock was called
}

// OS opens the directory dir as an [FS] and makes it, readable by its owner only, if it
// is not there.
func OS(dir string) (*OSFS, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("disk: make root: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("disk: open root: %w", err)
	}
	return &OSFS{root: root}, nil
}

// Close releases the directory and its lock; open files stay usable.
func (o *OSFS) Close() error {
	if o.lock != nil {
		o.lock.Close() // nothing was written to it
		o.lock = nil
	}
	return o.root.Close()
}

func (o *OSFS) open(name string, flag int) (*osFile, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	f, err := o.root.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return &osFile{f}, nil
}

// Create implements [FS].
func (o *OSFS) Create(name string) (File, error) {
	return asFile(o.open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL))
}

// Open implements [FS].
func (o *OSFS) Open(name string) (File, error) { return asFile(o.open(name, os.O_RDONLY)) }

// OpenWrite implements [FS].
func (o *OSFS) OpenWrite(name string) (File, error) {
	return asFile(o.open(name, os.O_RDWR|os.O_CREATE))
}

// OpenAppend implements [FS]. It does not use O_APPEND, which would forbid WriteAt.
func (o *OSFS) OpenAppend(name string) (File, error) {
	f, err := o.open(name, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// asFile keeps a nil *osFile from becoming a non-nil File.
func asFile(f *osFile, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Rename implements [FS].
func (o *OSFS) Rename(oldName, newName string) error {
	if err := CheckName(oldName); err != nil {
		return err
	}
	if err := CheckName(newName); err != nil {
		return err
	}
	return o.root.Rename(oldName, newName)
}

// Link implements [FS].
func (o *OSFS) Link(oldName, newName string) error {
	if err := CheckName(oldName); err != nil {
		return err
	}
	if err := CheckName(newName); err != nil {
		return err
	}
	return o.root.Link(oldName, newName)
}

// Remove implements [FS].
func (o *OSFS) Remove(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	return o.root.Remove(name)
}

// ReadDir implements [FS].
func (o *OSFS) ReadDir(dir string) ([]Entry, error) {
	if err := CheckName(dir); err != nil {
		return nil, err
	}
	d, err := o.root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	infos, err := d.Readdir(-1)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, len(infos))
	for i, info := range infos {
		entries[i] = entryOf(info)
	}
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	return entries, nil
}

// Stat implements [FS].
func (o *OSFS) Stat(name string) (Entry, error) {
	if err := CheckName(name); err != nil {
		return Entry{}, err
	}
	info, err := o.root.Stat(name)
	if err != nil {
		return Entry{}, err
	}
	return entryOf(info), nil
}

func entryOf(info os.FileInfo) Entry {
	e := Entry{Name: info.Name(), Dir: info.IsDir()}
	if !e.Dir {
		e.Size = info.Size()
	}
	return e
}

// MkdirAll implements [FS].
func (o *OSFS) MkdirAll(dir string) error {
	if err := CheckName(dir); err != nil {
		return err
	}
	if dir == "." {
		return nil
	}
	return o.root.MkdirAll(dir, 0o700)
}

// SyncDir implements [FS].
func (o *OSFS) SyncDir(dir string) error {
	if err := CheckName(dir); err != nil {
		return err
	}
	d, err := o.root.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return syncDirectory(d)
}

type osFile struct {
	*os.File
}

// Sync implements [File].
func (f *osFile) Sync() error { return syncData(f.File) }

// Size implements [File].
func (f *osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
