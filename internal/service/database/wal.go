package database

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"

	"github.com/ncruces/go-sqlite3"

	"github.com/starling-agg/starling/internal/disk"
)

// The format of SQLite's write-ahead log.
const (
	logHeader   = 32
	frameHeader = 24
	frameSize   = frameHeader + pageSize
	logMagic    = 0x377f0682 // with its last bit set, checksums are over big-endian words
)

// frame is a page in the log.
type frame struct {
	page   uint32
	commit bool // the last of a transaction
	salt   uint64
	s0, s1 uint32
}

func readFrame(b []byte) frame {
	return frame{
		page: binary.BigEndian.Uint32(b), commit: binary.BigEndian.Uint32(b[4:]) != 0, salt: binary.BigEndian.Uint64(b[8:]),
		s0: binary.BigEndian.Uint32(b[16:]), s1: binary.BigEndian.Uint32(b[20:]),
	}
}

// checkLog tells damage from the end of a log. SQLite ends it at the first frame that is
// not right, for so it looks after a loss of power; whatever stands behind would be lost
// in silence. But a transaction is synced before the next one begins, and the header
// before the first: where two transactions end behind a frame that is not right, it was
// whole once. A wrong frame of the last transaction cannot be told from one that was
// never written.
func checkLog(fsys disk.FS, name string) error {
	f, err := fsys.Open(name + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("database: %s-wal: %w", name, err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return fmt.Errorf("database: %s-wal: %w", name, err)
	}
	b := make([]byte, frameSize)
	read := func(b []byte, at int64) error {
		_, err := io.ReadFull(io.NewSectionReader(f, at, int64(len(b))), b)
		return err
	}
	if size < logHeader+frameSize {
		return nil
	}
	if err := read(b[:logHeader], 0); err != nil {
		return fmt.Errorf("database: read %s-wal: %w", name, err)
	}
	var order binary.ByteOrder = binary.LittleEndian
	if b[3]&1 == 1 {
		order = binary.BigEndian
	}
	s0, s1 := fletcher(0, 0, b[:24], order)
	begun := binary.BigEndian.Uint32(b)&^1 == logMagic && binary.BigEndian.Uint32(b[8:]) == pageSize &&
		s0 == binary.BigEndian.Uint32(b[24:]) && s1 == binary.BigEndian.Uint32(b[28:])
	salt := binary.BigEndian.Uint64(b[16:])
	if !begun {
		order = binary.LittleEndian
	}
	good, commits, wrong := begun, 0, int64(0)
	newest := make(map[uint32]int64) // of the pages behind what is wrong: where they are
	for i := int64(0); logHeader+(i+1)*frameSize <= size; i++ {
		at := logHeader + i*frameSize
		if err := read(b, at); err != nil {
			return fmt.Errorf("database: read %s-wal: %w", name, err)
		}
		fr := readFrame(b)
		if i == 0 && !begun {
			salt, s0, s1 = fr.salt, fr.s0, fr.s1
			newest[fr.page] = at
			if fr.commit {
				commits++
			}
			continue
		}
		t0, t1 := fletcher(s0, s1, b[:8], order)
		t0, t1 = fletcher(t0, t1, b[frameHeader:], order)
		right := fr.salt == salt && fr.s0 == t0 && fr.s1 == t1
		if good && !right {
			good, wrong = false, i+1
			if fr.commit && fr.salt == salt {
				commits++
			}
		} else if !good && right {
			newest[fr.page] = at
			if fr.commit {
				commits++
			}
		}
		s0, s1 = fr.s0, fr.s1
	}
	if good || commits < 2 {
		return nil
	}
	if !begun {
		// The header may be that of the next log, torn, and this one be in the database.
		if stale, err := moved(fsys, name, read, newest); stale || err != nil {
			return err
		}
		return fmt.Errorf("%w: %s-wal: its header is not what was written, and transactions stand behind it", ErrDamaged, name)
	}
	return fmt.Errorf("%w: %s-wal: frame %d is not what was written, and transactions stand behind it", ErrDamaged, name, wrong)
}

// moved says whether the pages of the log are in the database.
func moved(fsys disk.FS, name string, read func([]byte, int64) error, newest map[uint32]int64) (bool, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return false, fmt.Errorf("database: %s: %w", name, err)
	}
	defer f.Close()
	// The driver makes the checksum when a page comes into the database.
	there, logged := make([]byte, pageSize-reserved), make([]byte, pageSize-reserved)
	for page, at := range newest {
		if err := read(logged, at+frameHeader); err != nil {
			return false, fmt.Errorf("database: read %s-wal: %w", name, err)
		}
		if _, err := f.ReadAt(there, (int64(page)-1)*pageSize); err != nil || string(there) != string(logged) {
			return false, nil
		}
	}
	return true, nil
}

// logFile is the write-ahead log while it is open: SQLite checks frames when it opens a
// log, and not when it reads pages from it or moves them into the database. So what was
// written is remembered by its hash.
type logFile struct {
	*vfsFile
	seed  maphash.Seed
	pages map[int64]uint64 // by offset
}

func newLogFile(f *vfsFile) *logFile {
	return &logFile{vfsFile: f, seed: maphash.MakeSeed(), pages: make(map[int64]uint64)}
}

// pageIn is the part of b that is a page of a frame, and its place; nil if there is none.
func pageIn(b []byte, off int64) ([]byte, int64) {
	switch at := (off - logHeader) % frameSize; {
	case off >= logHeader && at == frameHeader && len(b) == pageSize:
		return b, off
	case off >= logHeader && at == 0 && len(b) == frameSize:
		return b[frameHeader:], off + frameHeader
	}
	return nil, 0
}

func (f *logFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.vfsFile.ReadAt(b, off)
	if err != nil {
		return n, err
	}
	if p, at := pageIn(b, off); p != nil {
		if want, ok := f.pages[at]; ok && maphash.Bytes(f.seed, p) != want {
			return 0, sqlite3.IOERR_DATA
		}
	}
	return n, nil
}

func (f *logFile) WriteAt(b []byte, off int64) (int, error) {
	p, at := pageIn(b, off)
	if p != nil {
		delete(f.pages, at)
	}
	n, err := f.vfsFile.WriteAt(b, off)
	if err == nil && p != nil {
		f.pages[at] = maphash.Bytes(f.seed, p)
	}
	return n, err
}

func (f *logFile) Truncate(size int64) error {
	for at := range f.pages {
		if at >= size {
			delete(f.pages, at)
		}
	}
	return f.vfsFile.Truncate(size)
}
