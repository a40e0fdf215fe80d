package database_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/service/database"
)

// TestFullDisk fills a disk at every place of a transaction's writes: what was refused is
// not there, what was not refused is, now and after a power loss, and the database goes on
// by itself once there is room.
func TestFullDisk(t *testing.T) {
	for _, erase := range []bool{false, true} {
		refused := 0
		for room := int64(0); room < 40<<10; room += 1531 {
			mem := disktest.NewMem(uint64(room) + 1)
			db := open(t, options(mem))
			var there []string
			add := func(name string) error {
				err := db.Update(t.Context(), "put", func(tx *database.Tx) error {
					if erase {
						tx.Erase()
					}
					_, err := tx.Exec("put", name, uint64(1), make([]byte, 3000))
					return err
				})
				if err == nil {
					there = append(there, name)
				}
				return err
			}
			for i := range 3 {
				if err := add(fmt.Sprintf("before %d", i)); err != nil {
					t.Fatal(err)
				}
			}
			mem.SetSize(mem.Used() + room)
			full := false
			for i := range 12 {
				switch err := add(fmt.Sprintf("full %02d", i)); {
				case errors.Is(err, database.ErrNoRoom):
					full = true
					refused++
				case err != nil:
					t.Fatalf("room for %d: %v", room, err)
				}
			}
			if !full {
				t.Fatalf("room for %d was never full", room)
			}
			slices.Sort(there)
			if got := names(t, db); !slices.Equal(got, there) {
				t.Errorf("room for %d: it has %q, want %q", room, got, there)
			}
			lost := open(t, options(mem.Crash()))
			if got := names(t, lost); !slices.Equal(got, there) {
				t.Errorf("room for %d, after a power loss: it has %q, want %q", room, got, there)
			}
			lost.Close()
			db.Close()
		}
		if refused < 50 {
			t.Errorf("only %d transactions found no room", refused)
		}
	}
}

// TestRoomComesBack: the database that refused goes on when there is room.
func TestRoomComesBack(t *testing.T) {
	mem := disktest.NewMem(1)
	db := open(t, options(mem))
	db.KeepFree(64 << 10)
	if err := put(db, "before", 1, nil); err != nil {
		t.Fatal(err)
	}
	for _, room := range []int64{0, 1 << 10, 64<<10 - 1} {
		mem.SetSize(mem.Used() + room)
		writes := mem.Writes()
		if err := put(db, "full", 1, nil); !errors.Is(err, database.ErrNoRoom) {
			t.Errorf("with room for %d: %v", room, err)
		}
		if mem.Writes() != writes {
			t.Errorf("with room for %d it wrote", room)
		}
	}
	mem.SetSize(mem.Used() + 64<<10)
	if err := put(db, "after", 1, nil); err != nil {
		t.Error(err)
	}
	if got := names(t, db); !slices.Equal(got, []string{"after", "before"}) {
		t.Errorf("it has %q", got)
	}
}
