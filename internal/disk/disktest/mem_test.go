package disktest_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// outcomes runs change on a disk where the file "d/f" holds "old" durably, for many
// seeds, and collects what a loss of power leaves of the files in d.
func outcomes(t *testing.T, change func(mem *disktest.Mem) error) map[string]int {
	t.Helper()
	found := make(map[string]int)
	for seed := range uint64(300) {
		mem := disktest.NewMem(seed)
		if err := disk.MakeDirs(mem, "d"); err != nil {
			t.Fatal(err)
		}
		if err := disk.WriteFile(mem, "d/f", []byte("old")); err != nil {
			t.Fatal(err)
		}
		if err := change(mem); err != nil {
			t.Fatal(err)
		}
		mem = mem.Crash()
		entries, err := mem.ReadDir("d")
		if err != nil {
			t.Fatal(err)
		}
		state := ""
		for _, e := range entries {
			content, err := disk.ReadFile(mem, "d/"+e.Name, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			state += fmt.Sprintf("%s=%q ", e.Name, content)
		}
		found[state]++
	}
	return found
}

// Each case lists all that may be left; each of these must turn up and nothing else.
func TestPowerLossOutcomes(t *testing.T) {
	write := func(mem *disktest.Mem, name, content string, sync bool) error {
		f, err := mem.OpenWrite(name)
		if err != nil {
			return err
		}
		if _, err := f.Write([]byte(content)); err != nil {
			return err
		}
		if sync {
			err = f.Sync()
		}
		return errors.Join(err, f.Close())
	}
	for name, test := range map[string]struct {
		change func(*disktest.Mem) error
		want   []string
	}{
		"nothing": {func(*disktest.Mem) error { return nil }, []string{`f="old" `}},
		"overwrite": {
			func(mem *disktest.Mem) error { return write(mem, "d/f", "NEW", false) },
			[]string{`f="old" `, `f="Nld" `, `f="NEd" `, `f="NEW" `},
		},
		"overwrite and sync": {
			func(mem *disktest.Mem) error { return write(mem, "d/f", "NEW", true) }, []string{`f="NEW" `},
		},
		"create and sync the file only": {
			func(mem *disktest.Mem) error { return write(mem, "d/g", "x", true) }, []string{`f="old" `, `f="old" g="x" `},
		},
		"create and sync the name only": {
			func(mem *disktest.Mem) error { return errors.Join(write(mem, "d/g", "", false), mem.SyncDir("d")) },
			[]string{`f="old" g="" `},
		},
		"remove": {
			func(mem *disktest.Mem) error { return mem.Remove("d/f") }, []string{``, `f="old" `},
		},
		"rename": {
			func(mem *disktest.Mem) error { return mem.Rename("d/f", "d/g") }, []string{`f="old" `, `g="old" `},
		},
		"rename and sync": {
			func(mem *disktest.Mem) error { return errors.Join(mem.Rename("d/f", "d/g"), mem.SyncDir("d")) },
			[]string{`g="old" `},
		},
		"two names, in any order": {
			func(mem *disktest.Mem) error {
				return errors.Join(mem.Rename("d/f", "d/g"), write(mem, "d/h", "", true))
			},
			[]string{`f="old" `, `g="old" `, `f="old" h="" `, `g="old" h="" `},
		},
		"rename over another directory": {
			func(mem *disktest.Mem) error { return mem.Rename("d/f", "f") }, []string{``, `f="old" `},
		},
		"failed sync, then a good one": {
			func(mem *disktest.Mem) error {
				mem.Inject(func(op disktest.Op, _ string) error {
					if op == disktest.OpSync {
						return errors.New("bad sector")
					}
					return nil
				})
				if err := write(mem, "d/f", "N", true); err == nil {
					return errors.New("the sync did not fail")
				}
				mem.Inject(nil)
				f, err := mem.OpenAppend("d/f")
				if err != nil {
					return err
				}
				got, err := disk.ReadFile(mem, "d/f", 10)
				if string(got) != "Nld" {
					return fmt.Errorf("read %q, %v: the memory should still have it", got, err)
				}
				return errors.Join(f.Sync(), f.Close())
			},
			[]string{`f="old" `, `f="Nld" `},
		},
	} {
		t.Run(name, func(t *testing.T) {
			found := outcomes(t, test.change)
			for _, w := range test.want {
				if found[w] == 0 {
					t.Errorf("never left %s", w)
				}
				delete(found, w)
			}
			for state, n := range found {
				t.Errorf("left %s (%d times)", state, n)
			}
		})
	}
}

// A long unsynced write comes apart by sectors: some are there, a later one is not, or
// the other way round.
func TestTornSectors(t *testing.T) {
	hole, zeros, rubbish := 0, 0, 0
	for seed := range uint64(300) {
		mem := disktest.NewMem(seed)
		f, err := mem.Create("f")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Sync(), mem.SyncDir(".")); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(bytes.Repeat([]byte{'x'}, 8*disktest.SectorSize)); err != nil {
			t.Fatal(err)
		}
		got, err := disk.ReadFile(mem.Crash(), "f", 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("x")); !errors.Is(err, disktest.ErrPowerLoss) {
			t.Fatalf("write after the crash: %v", err)
		}
		lost := false
		for at := 0; at < len(got); at += disktest.SectorSize {
			switch sector := got[at:min(at+disktest.SectorSize, len(got))]; {
			case bytes.Count(sector, []byte{'x'}) == len(sector):
				if lost {
					hole++
				}
			case bytes.Count(sector, []byte{0}) == len(sector):
				lost = true
				zeros++
			default:
				lost = true
				rubbish++
			}
		}
	}
	if hole == 0 || zeros == 0 || rubbish == 0 {
		t.Errorf("%d sectors behind a hole, %d of zeros, %d of rubbish; want some of each", hole, zeros, rubbish)
	}
}

func TestSeedRepeats(t *testing.T) {
	leave := func(seed uint64) string {
		mem := disktest.NewMem(seed)
		for i := range 20 {
			f, err := mem.Create(fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write(bytes.Repeat([]byte{byte(i)}, 700)); err != nil {
				t.Fatal(err)
			}
		}
		mem = mem.Crash()
		entries, err := mem.ReadDir(".")
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(entries)
	}
	if a, b := leave(7), leave(7); a != b {
		t.Errorf("one seed, two outcomes:\n%s\n%s", a, b)
	}
	if leave(7) == leave(8) {
		t.Error("two seeds, one outcome")
	}
}
