package payload_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/payload/payloadtest"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// TestMem: the store that tests have keeps the contract.
func TestMem(t *testing.T) {
	payloadtest.Run(t, func(t *testing.T) func() payload.Store {
		mem := payloadtest.NewMem()
		return func() payload.Store { return mem }
	})
}

// TestFiles: files keep the contract, on the simulated disk and on the real one.
func TestFiles(t *testing.T) {
	t.Run("mem", func(t *testing.T) {
		payloadtest.Run(t, func(t *testing.T) func() payload.Store {
			mem := disktest.NewMem(1)
			return func() payload.Store { return payload.OpenFiles(mem) }
		})
	})
	t.Run("os", func(t *testing.T) {
		payloadtest.Run(t, func(t *testing.T) func() payload.Store {
			fsys, err := disk.OS(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { fsys.Close() })
			return func() payload.Store { return payload.OpenFiles(fsys) }
		})
	})
}

// content is large enough to be torn.
var content = bytes.Repeat([]byte("starling"), 4*disktest.SectorSize/8)

// after plays do on a disk whose power goes after a number of calls, and returns what is
// found then; finished says that do needed no more.
func after(t *testing.T, seed uint64, at int, do func(payload.Store) error) (found *disktest.Mem, err error, finished bool) {
	t.Helper()
	mem := disktest.NewMem(seed)
	if err := payload.OpenFiles(mem).Put(t.Context(), "a/old.obj", content); err != nil {
		t.Fatal(err)
	}
	calls, s := 0, payload.OpenFiles(mem)
	mem.Inject(func(op disktest.Op, _ string) error {
		if op == disktest.OpRead || op == disktest.OpOpen {
			return nil
		}
		if calls++; calls > at {
			return disktest.ErrPowerLoss
		}
		return nil
	})
	err = do(s)
	mem.Inject(nil)
	return mem.Crash(), err, calls <= at
}

// TestPowerLoss: whenever the power goes during a put, the object is whole or not there,
// and there if the put had returned; the next life puts it, and sweeps what the first one
// left. A delete that has returned is not undone.
func TestPowerLoss(t *testing.T) {
	for seed := range uint64(20) {
		for at := 0; ; at++ {
			found, err, finished := after(t, seed, at, func(s payload.Store) error { return s.Put(t.Context(), "a/b/new.obj", content[1:]) })
			if err == nil != finished {
				t.Fatalf("seed %d, cut at call %d: %v", seed, at, err)
			}
			s := payload.OpenFiles(found)
			p := make([]byte, len(content))
			n, readErr := s.ReadAt(t.Context(), "a/b/new.obj", p, 0)
			switch there := !errors.Is(readErr, payload.ErrNotFound); {
			case there && !bytes.Equal(p[:n], content[1:]):
				t.Fatalf("seed %d, cut at call %d: %d bytes are there", seed, at, n)
			case !there && finished:
				t.Fatalf("seed %d: acknowledged and gone", seed)
			}
			if err := payload.Keep(t.Context(), s, "a/b/new.obj", content[1:]); err != nil {
				t.Fatalf("seed %d, cut at call %d: the next life: %v", seed, at, err)
			}
			if page, err := s.List(t.Context(), "", "", 9); err != nil || len(page) != 2 {
				t.Fatalf("seed %d, cut at call %d: %v, %v", seed, at, page, err)
			}
			if err := payload.SweepFiles(found); err != nil {
				t.Fatal(err)
			}
			for f, err := range disk.Files(found, ".") {
				if err != nil || disk.IsTemp(f.Name) {
					t.Errorf("seed %d, cut at call %d: %v is left, %v", seed, at, f, err)
				}
			}
			if finished {
				if at < 6 {
					t.Errorf("only %d calls", at)
				}
				break
			}
		}
		found, err, _ := after(t, seed, 9, func(s payload.Store) error { return s.Delete(t.Context(), "a/old.obj") })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := payload.OpenFiles(found).Size(t.Context(), "a/old.obj"); !errors.Is(err, payload.ErrNotFound) {
			t.Errorf("seed %d: deleted, and there again: %v", seed, err)
		}
	}
}

// TestFailingDisk: whichever call of a put fails, the error is of its kind, and the
// object is not there in part. Where the name could not be synced nothing is taken any
// more, for a second sync would prove nothing; another life finds out what there is.
func TestFailingDisk(t *testing.T) {
	broken := errors.New("broken")
	for _, op := range []disktest.Op{disktest.OpCreate, disktest.OpWrite, disktest.OpSync, disktest.OpLink, disktest.OpSyncDir} {
		t.Run(string(op), func(t *testing.T) {
			mem := disktest.NewMem(1)
			s := payload.OpenFiles(mem)
			if err := s.Put(t.Context(), "a/old.obj", content); err != nil {
				t.Fatal(err)
			}
			for cause, want := range map[error]error{broken: payload.ErrUnavailable, fs.ErrPermission: payload.ErrDenied, fs.ErrNotExist: payload.ErrUnavailable} {
				if op == disktest.OpSyncDir {
					cause, want = broken, payload.ErrUnavailable
				}
				mem.Inject(func(got disktest.Op, _ string) error {
					if got == op {
						return cause
					}
					return nil
				})
				if err := s.Put(t.Context(), "a/new.obj", content); !errors.Is(err, want) || errors.Is(err, payload.ErrNotFound) {
					t.Errorf("%v: %v", cause, err)
				}
				mem.Inject(nil)
			}
			err := payload.Keep(t.Context(), s, "a/new.obj", content)
			if op == disktest.OpSyncDir {
				if !errors.Is(err, payload.ErrUnavailable) {
					t.Errorf("after a directory could not be synced: %v", err)
				}
				if err := s.Delete(t.Context(), "a/old.obj"); !errors.Is(err, payload.ErrUnavailable) {
					t.Errorf("after a directory could not be synced: %v", err)
				}
				if _, err := s.Size(t.Context(), "a/old.obj"); err != nil {
					t.Errorf("reads go on, but %v", err)
				}
				s = payload.OpenFiles(mem)
				err = payload.Keep(t.Context(), s, "a/new.obj", content)
			}
			if err != nil {
				t.Error(err)
			}
			if page, err := s.List(t.Context(), "", "", 9); err != nil || fmt.Sprint(page) != "[{a/new.obj 2048} {a/old.obj 2048}]" {
				t.Errorf("%v, %v", page, err)
			}
		})
	}
}

// TestFull: a disk without room says so, keeps what it has, and takes the object when
// there is room again.
func TestFull(t *testing.T) {
	mem := disktest.NewMem(1)
	s := payload.OpenFiles(mem)
	mem.SetSize(3000)
	for i, want := range []error{nil, payload.ErrFull, payload.ErrFull} {
		if err := s.Put(t.Context(), fmt.Sprintf("%d.obj", i), content); !errors.Is(err, want) {
			t.Errorf("object %d: %v, want %v", i, err, want)
		}
	}
	if used := mem.Used(); used != 2048 {
		t.Errorf("%d bytes are used", used)
	}
	if err := s.Delete(t.Context(), "0.obj"); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "1.obj", content); err != nil {
		t.Error(err)
	}
}

// TestFolderGone: a folder that somebody took away is made again, at the second put.
func TestFolderGone(t *testing.T) {
	mem := disktest.NewMem(1)
	s := payload.OpenFiles(mem)
	if err := errors.Join(s.Put(t.Context(), "a/x.obj", content), s.Delete(t.Context(), "a/x.obj"), mem.Remove("a")); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "a/x.obj", content); !errors.Is(err, payload.ErrUnavailable) {
		t.Error(err)
	}
	if err := s.Put(t.Context(), "a/x.obj", content); err != nil {
		t.Error(err)
	}
}

// TestForeignFiles: what bears no name of ours is neither listed nor swept.
func TestForeignFiles(t *testing.T) {
	mem := disktest.NewMem(1)
	s := payload.OpenFiles(mem)
	if err := errors.Join(disk.MakeDirs(mem, "a"), disk.WriteFile(mem, "a/README", content), disk.WriteFile(mem, "lock", content),
		disk.WriteFile(mem, "a/Y.obj", content), s.Put(t.Context(), "a/x.obj", content)); err != nil {
		t.Fatal(err)
	}
	if page, err := s.List(t.Context(), "", "", 9); err != nil || fmt.Sprint(page) != "[{a/x.obj 2048}]" {
		t.Errorf("%v, %v", page, err)
	}
	if err := payload.SweepFiles(mem); err != nil {
		t.Fatal(err)
	}
	if _, err := mem.Stat("a/README"); err != nil {
		t.Error(err)
	}
}
