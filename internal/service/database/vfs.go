package database

import (
	"errors"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/starling-agg/starling/internal/disk"
)

// vfsSerial makes the names in SQLite's process-wide registry unique.
var vfsSerial atomic.Uint64

func registerVFS(fsys disk.FS) string {
	name := "starling-" + strconv.FormatUint(vfsSerial.Add(1), 10)
	vfs.Register(name, &fsVFS{fsys})
	return name
}

// fsVFS gives SQLite the files of a disk.FS. Locks are no-ops: the database has one
// connection, and the directory one process ([disk.OSFS.Lock]).
type fsVFS struct {
	fs disk.FS
}

// kept are the kinds of file that must survive; all others are scratch and stay in memory.
const kept = vfs.OPEN_MAIN_DB | vfs.OPEN_MAIN_JOURNAL | vfs.OPEN_SUPER_JOURNAL | vfs.OPEN_WAL

func (v *fsVFS) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	if flags&kept == 0 || name == "" {
		return new(vfsutil.SliceFile), flags | vfs.OPEN_MEMORY, nil
	}
	name = relative(name)
	_, err := v.fs.Stat(name)
	fresh := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !fresh:
		return nil, flags, vfs.SystemError(err, sqlite3.CANTOPEN)
	case fresh && flags&vfs.OPEN_CREATE == 0:
		return nil, flags, vfs.SystemError(err, sqlite3.CANTOPEN)
	case !fresh && flags&vfs.OPEN_EXCLUSIVE != 0:
		return nil, flags, sqlite3.CANTOPEN
	}
	open := v.fs.OpenWrite
	if flags&vfs.OPEN_READONLY != 0 {
		open = v.fs.Open
	}
	f, err := open(name)
	if err != nil {
		return nil, flags, vfs.SystemError(err, sqlite3.CANTOPEN)
	}
	file := &vfsFile{fs: v.fs, file: f, name: name, syncName: fresh}
	if flags&vfs.OPEN_DELETEONCLOSE != 0 {
		file.deleteOnClose = true
	}
	if flags&vfs.OPEN_WAL != 0 {
		return newLogFile(file), flags, nil
	}
	return file, flags, nil
}

func (v *fsVFS) Delete(name string, syncDir bool) error {
	name = relative(name)
	err := v.fs.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return sqlite3.IOERR_DELETE_NOENT
	}
	if err != nil {
		return vfs.SystemError(err, sqlite3.IOERR_DELETE)
	}
	if syncDir {
		return vfs.SystemError(v.fs.SyncDir(path.Dir(name)), sqlite3.IOERR_DIR_FSYNC)
	}
	return nil
}

func (v *fsVFS) Access(name string, _ vfs.AccessFlag) (bool, error) {
	_, err := v.fs.Stat(relative(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, vfs.SystemError(err, sqlite3.IOERR_ACCESS)
}

// FullPathname makes names absolute, as SQLite expects of it; relative undoes it.
func (v *fsVFS) FullPathname(name string) (string, error) { return "/" + relative(name), nil }

func relative(name string) string { return strings.TrimPrefix(name, "/") }

// vfsFile is one open file. SQLite uses it from one goroutine at a time.
type vfsFile struct {
	fs            disk.FS
	file          disk.File
	name          string
	syncName      bool // the name is new: the next Sync makes it durable too
	deleteOnClose bool
	lock          vfs.LockLevel
}

func (f *vfsFile) ReadAt(b []byte, off int64) (int, error) { return f.file.ReadAt(b, off) }

// WriteAt tells a full disk from other failures, as SQLite's own file systems do.
func (f *vfsFile) WriteAt(b []byte, off int64) (int, error) {
	n, err := f.file.WriteAt(b, off)
	if disk.IsFull(err) {
		return n, sqlite3.FULL
	}
	return n, err
}

func (f *vfsFile) Size() (int64, error)      { return f.file.Size() }
func (f *vfsFile) Truncate(size int64) error { return f.file.Truncate(size) }

func (f *vfsFile) Sync(vfs.SyncFlag) error {
	if err := f.file.Sync(); err != nil {
		return vfs.SystemError(err, sqlite3.IOERR_FSYNC)
	}
	if f.syncName {
		if err := f.fs.SyncDir(path.Dir(f.name)); err != nil {
			return vfs.SystemError(err, sqlite3.IOERR_DIR_FSYNC)
		}
		f.syncName = false
	}
	return nil
}

func (f *vfsFile) Close() error {
	err := f.file.Close()
	if f.deleteOnClose {
		err = errors.Join(err, f.fs.Remove(f.name))
	}
	return err
}

func (f *vfsFile) Lock(l vfs.LockLevel) error       { f.lock = max(f.lock, l); return nil }
func (f *vfsFile) Unlock(l vfs.LockLevel) error     { f.lock = min(f.lock, l); return nil }
func (f *vfsFile) CheckReservedLock() (bool, error) { return f.lock >= vfs.LOCK_RESERVED, nil }
func (f *vfsFile) LockState() vfs.LockLevel         { return f.lock }
func (f *vfsFile) SectorSize() int                  { return 4096 }

// DeviceCharacteristics claims what every disk of this century does: a write cut by power
// loss damages no byte outside of the range written.
func (f *vfsFile) DeviceCharacteristics() vfs.DeviceCharacteristic {
	return vfs.IOCAP_POWERSAFE_OVERWRITE | vfs.IOCAP_SUBPAGE_READ
}
