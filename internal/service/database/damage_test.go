package database_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/service/database"
)

// flip turns one bit of a file.
func flip(t *testing.T, fsys disk.FS, name string, bit int64) {
	t.Helper()
	f, err := fsys.OpenWrite(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, bit/8); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	b[0] ^= 1 << (bit % 8)
	if _, err := f.WriteAt(b, bit/8); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

func size(t *testing.T, fsys disk.FS, name string) int64 {
	t.Helper()
	e, err := fsys.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return e.Size
}

// filled is a database of pages of every sort; closed, or with the last transactions in
// its log.
func filled(t *testing.T, closed bool) (*disktest.Mem, []string) {
	t.Helper()
	mem := disktest.NewMem(1)
	db := open(t, options(mem))
	for i := range 60 {
		if err := put(db, fmt.Sprintf("%02d", i), uint64(i), make([]byte, 100*i)); err != nil {
			t.Fatal(err)
		}
		if closed && i == 40 {
			db.Close()
			db = open(t, options(mem))
		}
	}
	all := names(t, db)
	if closed {
		db.Close()
		// A log would repair pages; what a loss of power brings back is one.
		alone := disktest.NewMem(2)
		content, err := disk.ReadFile(mem, "test.db", 1<<20)
		if err == nil {
			err = disk.WriteFile(alone, "test.db", content)
		}
		if err != nil {
			t.Fatal(err)
		}
		return alone, all
	}
	return mem.Crash(), all
}

// TestEveryFlipInTheFileIsSeen: whatever bit of the database turns, in tables, indexes,
// free pages or the header, it is not opened, and the error says what cannot be read.
func TestEveryFlipInTheFileIsSeen(t *testing.T) {
	mem, _ := filled(t, true)
	length := size(t, mem, "test.db")
	rng := rand.New(rand.NewPCG(1, 2))
	tables := 0
	// the mark of checksums, the length, the first byte
	bits := []int64{20 * 8, 20*8 + 3, 28*8 + 31, 0}
	for range 150 {
		bits = append(bits, rng.Int64N(8*length))
	}
	for _, bit := range bits {
		broken := mem.Crash()
		flip(t, broken, "test.db", bit)
		db, err := database.Open(options(broken))
		if err == nil {
			db.Close()
		}
		// not the first bytes of any database
		if !errors.Is(err, database.ErrDamaged) && !errors.Is(err, database.ErrForeign) {
			t.Errorf("bit %d of %d: %v", bit, 8*length, err)
			continue
		}
		if strings.Contains(err.Error(), ", in item") {
			tables++
		}
	}
	if tables < 100 {
		t.Errorf("only %d errors name the table", tables)
	}
	short := mem.Crash()
	f, err := short.OpenWrite("test.db")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(length - 4096); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := database.Open(options(short)); !errors.Is(err, database.ErrDamaged) {
		t.Errorf("a page less: %v", err)
	}
}

// TestFlipsInTheLog: a bit that turns in a log that a process left is seen, or costs its
// last transaction at most, which looks like one that a loss of power tore.
func TestFlipsInTheLog(t *testing.T) {
	mem, all := filled(t, false)
	length := size(t, mem, "test.db-wal")
	rng := rand.New(rand.NewPCG(3, 4))
	// header: magic, salt, checksum; the first frame's
	bits := []int64{0, 8*17 + 1, 8*24 + 5, 8 * (32 + 8), 8 * (32 + 16)}
	for range 150 {
		bits = append(bits, rng.Int64N(8*length))
	}
	seen := 0
	for _, bit := range bits {
		broken := mem.Crash()
		flip(t, broken, "test.db-wal", bit)
		db, err := database.Open(options(broken))
		if errors.Is(err, database.ErrDamaged) {
			seen++
			continue
		}
		if err != nil {
			t.Errorf("bit %d: %v", bit, err)
			continue
		}
		if got := names(t, db); !slices.Equal(got, all) && !slices.Equal(got, all[:len(all)-1]) {
			t.Errorf("bit %d of %d: %d of %d rows in silence", bit, 8*length, len(got), len(all))
		}
		db.Close()
	}
	if seen < 140 {
		t.Errorf("only %d of %d flips were seen", seen, len(bits))
	}
}

// TestDamageWhileOpen: a page that turns under an open database is never read as
// something else, from the file or from the log, and ends the database.
func TestDamageWhileOpen(t *testing.T) {
	ended := func(t *testing.T, db *database.DB, err error) {
		t.Helper()
		if !errors.Is(err, database.ErrDamaged) || !errors.Is(err, database.ErrUnknown) {
			t.Fatalf("the damaged page: %v", err)
		}
		if err := put(db, "late", 1, nil); !errors.Is(err, database.ErrDamaged) {
			t.Errorf("afterwards: %v", err)
		}
	}
	t.Run("file", func(t *testing.T) {
		mem, _ := filled(t, true)
		db := open(t, options(mem))
		flip(t, mem, "test.db", 8*(size(t, mem, "test.db")-2000))
		err := db.View(context.Background(), "all", func(tx *database.Tx) error {
			for i := range 60 {
				if _, err := tx.One("get", []any{fmt.Sprintf("%02d", i)}, new(int), new([]byte)); err != nil {
					return nil // said nothing of it
				}
			}
			t.Error("everything was read")
			return nil
		})
		ended(t, db, err)
	})
	t.Run("log", func(t *testing.T) {
		mem := disktest.NewMem(1)
		db := open(t, options(mem))
		if err := put(db, "a", 1, make([]byte, 20000)); err != nil {
			t.Fatal(err)
		}
		flip(t, mem, "test.db-wal", 8*(32+2*4120+24+100))
		ended(t, db, db.Update(context.Background(), "erase", func(tx *database.Tx) error {
			tx.Erase() // moves the log into the file
			return nil
		}))
	})
}
