package database_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/service/database"
)

const secret = "nobody may read this for ever"

// holds says whether any file of the database holds the secret.
func holds(t *testing.T, fsys disk.FS) bool {
	t.Helper()
	entries, err := fsys.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		content, err := disk.ReadFile(fsys, e.Name, e.Size)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte(secret)) {
			return true
		}
	}
	return false
}

// TestErase: what was deleted stays in the log, until a transaction that erases, or the
// next start, empties it.
func TestErase(t *testing.T) {
	opt := func(fsys disk.FS) database.Options {
		o := options(fsys)
		o.Statements = fstest.MapFS{"item.sql": file(statements + "\n-- name: forget\nDELETE FROM item WHERE name = ?1\n")}
		return o
	}
	forget := func(db *database.DB, erase bool) error {
		return db.Update(context.Background(), "forget", func(tx *database.Tx) error {
			if erase {
				tx.Erase()
			}
			_, err := tx.Exec("forget", "a")
			return err
		})
	}
	long := []byte(strings.Repeat(secret, 1000)) // fills pages of its own
	start := func() (*disktest.Mem, *database.DB) {
		mem := disktest.NewMem(1)
		db := open(t, opt(mem))
		if err := put(db, "a", 1, long); err != nil {
			t.Fatal(err)
		}
		return mem, db
	}

	mem, db := start()
	if err := forget(db, false); err != nil {
		t.Fatal(err)
	}
	if !holds(t, mem) {
		t.Fatal("erased without being asked: the test shows nothing")
	}
	crashed := mem.Crash()
	open(t, opt(crashed))
	if holds(t, crashed) {
		t.Error("a start leaves what an earlier life deleted")
	}

	mem, db = start()
	if err := forget(db, true); err != nil {
		t.Fatal(err)
	}
	if holds(t, mem) {
		t.Error("not erased")
	}
	if err := put(db, "b", 1, nil); err != nil {
		t.Fatal(err)
	}

	// A disk that fails while the log is emptied: the commit stands, and nothing more is
	// believed of this life.
	mem, db = start()
	syncs := 0
	mem.Inject(func(op disktest.Op, _ string) error {
		if op == disktest.OpSync {
			if syncs++; syncs > 1 {
				return errors.New("worn out")
			}
		}
		return nil
	})
	if err := forget(db, true); !errors.Is(err, database.ErrUnknown) {
		t.Fatalf("erasing on a broken disk: %v", err)
	}
	crashed = mem.Crash()
	if got := names(t, open(t, opt(crashed))); len(got) != 0 || holds(t, crashed) {
		t.Errorf("after the restart there are %q", got)
	}
}
