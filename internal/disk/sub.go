package disk

import (
	"errors"
	"path"
)

// Sub is the tree below a directory of another file system. The directory must be there,
// or be made by [MakeDirs] in the other one; what becomes of that becomes of this one.
func Sub(fsys FS, dir string) FS { return &sub{fsys, dir} }

type sub struct {
	fs  FS
	dir string
}

// at is a name in the other file system. One that climbs would leave the directory.
func (s *sub) at(name string) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	return path.Join(s.dir, name), nil
}

func (s *sub) open(name string, open func(string) (File, error)) (File, error) {
	at, err := s.at(name)
	if err != nil {
		return nil, err
	}
	return open(at)
}

func (s *sub) do(name string, call func(string) error) error {
	at, err := s.at(name)
	if err != nil {
		return err
	}
	return call(at)
}

// Create implements [FS].
func (s *sub) Create(name string) (File, error) { return s.open(name, s.fs.Create) }

// Open implements [FS].
func (s *sub) Open(name string) (File, error) { return s.open(name, s.fs.Open) }

// OpenAppend implements [FS].
func (s *sub) OpenAppend(name string) (File, error) { return s.open(name, s.fs.OpenAppend) }

// OpenWrite implements [FS].
func (s *sub) OpenWrite(name string) (File, error) { return s.open(name, s.fs.OpenWrite) }

// Remove implements [FS].
func (s *sub) Remove(name string) error { return s.do(name, s.fs.Remove) }

// MkdirAll implements [FS].
func (s *sub) MkdirAll(dir string) error { return s.do(dir, s.fs.MkdirAll) }

// SyncDir implements [FS].
func (s *sub) SyncDir(dir string) error { return s.do(dir, s.fs.SyncDir) }

// Rename implements [FS].
func (s *sub) Rename(oldName, newName string) error {
	return s.do(oldName, func(from string) error {
		return s.do(newName, func(to string) error { return s.fs.Rename(from, to) })
	})
}

// Link implements [FS].
func (s *sub) Link(oldName, newName string) error {
	return s.do(oldName, func(from string) error {
		return s.do(newName, func(to string) error { return s.fs.Link(from, to) })
	})
}

// ReadDir implements [FS].
func (s *sub) ReadDir(dir string) ([]Entry, error) {
	at, err := s.at(dir)
	if err != nil {
		return nil, err
	}
	return s.fs.ReadDir(at)
}

// Stat implements [FS].
func (s *sub) Stat(name string) (Entry, error) {
	at, err := s.at(name)
	if err != nil {
		return Entry{}, err
	}
	return s.fs.Stat(at)
}

// Free implements sized, where the other file system does.
func (s *sub) Free() (int64, error) {
	bytes, known := Free(s.fs)
	if !known {
		return 0, errors.ErrUnsupported
	}
	return bytes, nil
}
