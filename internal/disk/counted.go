package disk

import (
	"errors"
	"sync/atomic"
)

// Counted is a file system that counts the bytes written through it: those of each file go
// to the counter that of names for it, which is asked once for each opening. Changes
// of directories, lengths and names are not counted, and neither is what a disk writes
// besides.
func Counted(fsys FS, of func(name string) *atomic.Uint64) FS { return &counted{fsys, of} }

type counted struct {
	FS
	of func(name string) *atomic.Uint64
}

type countedFile struct {
	File
	written *atomic.Uint64
}

func (c *counted) open(name string, open func(string) (File, error)) (File, error) {
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	return &countedFile{f, c.of(name)}, nil
}

// Create implements [FS].
func (c *counted) Create(name string) (File, error) { return c.open(name, c.FS.Create) }

// OpenAppend implements [FS].
func (c *counted) OpenAppend(name string) (File, error) { return c.open(name, c.FS.OpenAppend) }

// OpenWrite implements [FS].
func (c *counted) OpenWrite(name string) (File, error) { return c.open(name, c.FS.OpenWrite) }

// Free implements sized, where the other file system does.
func (c *counted) Free() (int64, error) {
	bytes, known := Free(c.FS)
	if !known {
		return 0, errors.ErrUnsupported
	}
	return bytes, nil
}

func (c *counted) checkPrivate(name string) error { return CheckPrivate(c.FS, name) }

// Write implements [File].
func (f *countedFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	f.written.Add(uint64(n))
	return n, err
}

// WriteAt implements [File].
func (f *countedFile) WriteAt(b []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(b, off)
	f.written.Add(uint64(n))
	return n, err
}
