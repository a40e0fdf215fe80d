package database

import (
	"context"
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/ncruces/go-sqlite3"

	"github.com/starling-agg/starling/internal/disk/disktest"
)

// planned opens a database whose statement's plan could depend on the value bound: one of
// a partial index and a range.
func planned(t testing.TB) *DB {
	t.Helper()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	db, err := Open(Options{
		FS: disktest.NewMem(1), Name: "test.db",
		Migrations: fstest.MapFS{"0001_start.sql": file(`
CREATE TABLE item (id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, at INTEGER NOT NULL, open INTEGER NOT NULL) STRICT;
CREATE INDEX item_open ON item (kind, at) WHERE open = 1;
CREATE INDEX item_at ON item (at);`)},
		Statements: fstest.MapFS{"item.sql": file(`
-- name: put
INSERT INTO item (kind, at, open) VALUES (?1, ?2, ?3)

-- name: find
SELECT id FROM item WHERE kind = ?1 AND at BETWEEN ?2 AND ?3 AND open = ?4 ORDER BY at LIMIT ?5
`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	err = db.Update(context.Background(), "fill", func(tx *Tx) error {
		for i := range 64 {
			if _, err := tx.Exec("put", i%4, i, i%2); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func (db *DB) find(i int) error {
	return db.View(context.Background(), "find", func(tx *Tx) error {
		var id int
		found, err := tx.One("find", []any{i % 4, 0, 64, i % 4 % 2, 1 + i%3}, &id)
		if err == nil && !found {
			err = fmt.Errorf("nothing of kind %d", i%4)
		}
		return err
	})
}

// TestStatementsAreParsedOnce: a statement is parsed and planned at its first use and
// never again.
func TestStatementsAreParsedOnce(t *testing.T) {
	db := planned(t)
	for i := range 32 {
		if err := db.find(i); err != nil {
			t.Fatal(err)
		}
	}
	for name, stmt := range db.stmts {
		if n := stmt.Status(sqlite3.STMTSTATUS_REPREPARE, false); n != 0 {
			t.Errorf("statement %q was prepared again %d times", name, n)
		}
	}
}

// BenchmarkView is one read transaction with one statement that gives one row.
func BenchmarkView(b *testing.B) {
	db := planned(b)
	for i := 0; b.Loop(); i++ {
		if err := db.find(i); err != nil {
			b.Fatal(err)
		}
	}
}
