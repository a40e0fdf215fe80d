package database

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ncruces/go-sqlite3"

	"github.com/starling-agg/starling/internal/disk"
)

// ErrDamaged: the files are not what was written to them, or hold what this program never
// writes. After that the database answers nothing any more, in this life and in any later
// one, until its files are put back. Every error of it is an [ErrUnknown] too once the
// database was open: stop.
var ErrDamaged = errors.New("database: damaged")

// Every page ends in a checksum over the rest of it, which the driver makes and checks. It
// wants the reserved bytes that this takes, and knows by their number that they are there.
const (
	pageSize = 4096
	reserved = 8
	// header is what of the first page checkHeader reads.
	header = 100
)

var magic = []byte("SQLite format 3\x00")

// damaged says whether an error can only come from files that are not what was written.
func damaged(err error) bool {
	if err == nil {
		return false
	}
	for _, code := range []error{ErrDamaged, sqlite3.CORRUPT, sqlite3.NOTADB, sqlite3.IOERR_DATA, sqlite3.IOERR_CORRUPTFS} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// damage ends the life of db.
func (db *DB) damage(cause error) error {
	if !errors.Is(db.broken, ErrDamaged) && !errors.Is(db.broken, ErrClosed) {
		if !errors.Is(cause, ErrDamaged) {
			cause = fmt.Errorf("%w: %s: %w", ErrDamaged, db.opt.Name, cause)
		}
		db.broken = stopError{cause}
	}
	return db.broken
}

// stopError is damage that was found while the database was open.
type stopError struct{ cause error }

func (e stopError) Error() string        { return e.cause.Error() }
func (e stopError) Unwrap() error        { return e.cause }
func (e stopError) Is(target error) bool { return target == ErrUnknown }

// checkHeader looks at the file before SQLite does: without the mark of checksums in its
// header no page would be checked. A file that is no database at all is SQLite's to refuse,
// and one that was never finished is rolled back by its journal.
func checkHeader(fsys disk.FS, name string) error {
	if e, err := fsys.Stat(name + "-journal"); err == nil && e.Size > 0 {
		return nil
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil // SQLite makes it, or says why not
	}
	defer f.Close()
	b := make([]byte, header)
	if _, err := f.ReadAt(b, 0); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return fmt.Errorf("database: %s: %w", name, err)
	}
	if string(b[:len(magic)]) != string(magic) {
		return nil
	}
	if size := binary.BigEndian.Uint16(b[16:]); size != pageSize || b[20] != reserved {
		return fmt.Errorf("%w: %s: its header is not what was written: it has no checksums", ErrDamaged, name)
	}
	return nil
}

// maxNamed is how many pages a message names.
const maxNamed = 8

// checkPages reads the whole file, whose log is empty.
func (db *DB) checkPages() error {
	f, err := db.opt.FS.Open(db.opt.Name)
	if err != nil {
		return fmt.Errorf("database: %s: %w", db.opt.Name, err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return fmt.Errorf("database: %s: %w", db.opt.Name, err)
	}
	if size == 0 {
		return nil
	}
	var bad []string
	var count, page int64
	buf := make([]byte, 64*pageSize)
	for at := int64(0); at < size; at += int64(len(buf)) {
		chunk := buf[:min(int64(len(buf)), size-at)]
		if _, err := io.ReadFull(io.NewSectionReader(f, at, int64(len(chunk))), chunk); err != nil {
			return fmt.Errorf("database: read %s: %w", db.opt.Name, err)
		}
		if at == 0 && len(chunk) >= header {
			count = int64(binary.BigEndian.Uint32(chunk[28:]))
		}
		for p := range slices.Chunk(chunk, pageSize) {
			page++
			if page <= count && !whole(p) && len(bad) <= maxNamed {
				bad = append(bad, fmt.Sprint(page))
			}
		}
	}
	if page < count {
		return fmt.Errorf("%w: %s: it ends after page %d of %d", ErrDamaged, db.opt.Name, page, count)
	}
	if len(bad) == 0 {
		return nil
	}
	if len(bad) > maxNamed {
		bad[maxNamed] = "..."
	}
	return fmt.Errorf("%w: %s: pages are not what was written: %s of %d, %s", ErrDamaged, db.opt.Name, strings.Join(bad, ", "), count,
		db.tables())
}

// whole says whether the checksum of a page is right.
func whole(p []byte) bool {
	if len(p) != pageSize {
		return false
	}
	end := pageSize - reserved
	s0, s1 := fletcher(0, 0, p[:end], binary.LittleEndian)
	return s0 == binary.LittleEndian.Uint32(p[end:]) && s1 == binary.LittleEndian.Uint32(p[end+4:])
}

// fletcher is the checksum of SQLite's logs and of its checksum VFS, continued from s0, s1.
func fletcher(s0, s1 uint32, b []byte, order binary.ByteOrder) (uint32, uint32) {
	for ; len(b) >= 8; b = b[8:] {
		s0 += order.Uint32(b) + s1
		s1 += order.Uint32(b[4:]) + s0
	}
	return s0, s1
}

// tables says in words what cannot be read, as far as that can be told.
func (db *DB) tables() string {
	const unknown = "in what tables cannot be told"
	stmt, _, err := db.conn.Prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
	if err != nil {
		return unknown
	}
	var all, bad []string
	for stmt.Step() {
		all = append(all, stmt.ColumnText(0))
	}
	if stmt.Close() != nil {
		return unknown
	}
	for _, name := range all {
		if !db.sound(name) {
			bad = append(bad, name)
		}
	}
	if len(bad) == 0 {
		return "in no table"
	}
	return "in " + strings.Join(bad, ", ")
}

// sound says whether the rows of a table can be read, with its indexes.
func (db *DB) sound(table string) bool {
	stmt, _, err := db.conn.Prepare("PRAGMA integrity_check(" + sqlite3.QuoteIdentifier(table) + ")")
	if err != nil {
		return false
	}
	ok := stmt.Step() && stmt.ColumnText(0) == "ok"
	return stmt.Close() == nil && ok
}
