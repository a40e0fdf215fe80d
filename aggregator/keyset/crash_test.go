package keyset

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/sealed"
)

// watched tells what happens to files, in order.
type watched struct {
	disk.FS
	did []string
}

func (w *watched) OpenWrite(name string) (disk.File, error) {
	f, err := w.FS.OpenWrite(name)
	return &watchedFile{f, w}, err
}

func (w *watched) Remove(name string) error {
	if strings.HasSuffix(name, fileSuffix) {
		content, err := disk.ReadFile(w.FS, name, 1<<14)
		w.did = append(w.did, fmt.Sprintf("remove, zeros: %v, %v", err == nil && len(content) > 0 && bytes.Count(content, []byte{0}) == len(content), err))
	}
	return w.FS.Remove(name)
}

func (w *watched) SyncDir(dir string) error {
	w.did = append(w.did, "sync "+dir)
	return w.FS.SyncDir(dir)
}

type watchedFile struct {
	disk.File
	w *watched
}

func (f *watchedFile) Sync() error {
	f.w.did = append(f.w.did, "sync file")
	return f.File.Sync()
}

// TestOverwritten: the state says that the key is destroyed, then zeros are on the disk,
// then the file goes, for good.
func TestOverwritten(t *testing.T) {
	clock := newClock()
	w := &watched{FS: disktest.NewMem(1)}
	s := open(t, Options{Schedule: short(0), FS: w, Clock: clock})
	clock.advance(10 * time.Minute)
	step(t, s, unneeded)
	clock.advance(5 * time.Minute)
	w.did = nil
	step(t, s, unneeded)
	want := []string{"sync keys", "sync file", "remove, zeros: true, <nil>", "sync keys"}
	if !slices.Equal(w.did, want) {
		t.Errorf("did %q, want %q", w.did, want)
	}
}

// everything is all bytes of all files.
func everything(t testing.TB, fsys disk.FS, dir string) (all []byte) {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name)
		if e.Dir {
			all = append(all, everything(t, fsys, name)...)
			continue
		}
		content, err := disk.ReadFile(fsys, name, e.Size)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, content...)
	}
	return all
}

// TestCrashAnywhere loses power, or has a call reported failed, at every failpoint and at
// every call that changes the disk, while keys are made and destroyed. Afterwards every
// key that was offered and whose time is not over is there, none that was destroyed is,
// nor lies on the disk, and no id is that of two keys.
func TestCrashAnywhere(t *testing.T) {
	errPower := errors.New("power")
	// run is two lives: the first is disturbed, the second is not. It says how many calls
	// to the disk there were.
	run := func(t *testing.T, seed uint64, disturb func(mem *disktest.Mem, fp *disk.Failpoints)) int {
		clock, mem, fp := newClock(), disktest.NewMem(seed), new(disk.Failpoints)
		o := Options{Schedule: short(0), FS: mem, Clock: clock, Failpoints: fp}
		o.Suites = []sealed.Suite{sealed.SuiteX25519, sealed.SuiteXWing}
		type known struct {
			cfg     dap.HpkeConfig
			private []byte
			over    time.Time // not before
		}
		keys := make(map[string]*known) // that were offered
		learn := func(s *Set) {
			for _, cfg := range offered(t, s) {
				k := keys[string(cfg.Key)]
				if k == nil {
					for _, other := range keys {
						if other.cfg.ID == cfg.ID {
							t.Fatalf("id %d is of two keys", cfg.ID)
						}
					}
					k = &known{cfg: cfg}
					for _, pair := range s.Keyring().Keys() {
						if pair.ID() == cfg.ID {
							file, err := pair.Marshal()
							if err != nil {
								t.Fatal(err)
							}
							k.private = file[len(file)-len(cfg.Key)-2-32 : len(file)-len(cfg.Key)-2]
						}
					}
					keys[string(cfg.Key)] = k
				}
				k.over = clock.Now().Add(5 * time.Minute) // it may be followed now
			}
		}
		destroyed := make(map[uint8]bool)
		check := func(s *Set) {
			for _, k := range s.Status() {
				if k.State == status.KeyDestroyed {
					destroyed[k.ID] = true
				} else if destroyed[k.ID] {
					t.Fatalf("key %d has come back", k.ID)
				}
			}
			living := make(map[string]bool)
			for _, pair := range s.Keyring().Keys() {
				living[string(pair.Public().Bytes())] = true
			}
			if faults, err := s.Audit(t.Context()); err != nil || len(faults) > 0 {
				t.Errorf("audit: %v, %q", err, faults)
			}
			for _, k := range keys {
				if lives := living[string(k.cfg.Key)]; lives && destroyed[k.cfg.ID] {
					t.Errorf("key %d lives after its end", k.cfg.ID)
				} else if !lives && clock.Now().Before(k.over) {
					t.Errorf("key %d is gone before its end", k.cfg.ID)
				}
			}
		}
		disturb(mem, fp)
		s, err := Open(t.Context(), o)
		for range 10 {
			if err != nil {
				break
			}
			learn(s)
			check(s)
			clock.advance(5 * time.Minute)
			_, err = s.Step(t.Context(), unneeded)
		}
		if errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		calls := mem.Writes()
		o.FS, o.Failpoints = mem.Crash(), nil
		mem = o.FS.(*disktest.Mem)
		s = open(t, o)
		learn(s)
		check(s)
		for range 10 {
			clock.advance(5 * time.Minute)
			step(t, s, unneeded)
			learn(s)
			check(s)
		}
		living := 0
		for _, k := range s.Status() {
			if k.State != status.KeyDestroyed {
				living++
			}
		}
		if n := len(files(t, mem)); n != living {
			t.Errorf("%d files of %d keys: %v", n, living, files(t, mem))
		}
		all := everything(t, mem, ".")
		for _, k := range keys {
			if destroyed[k.cfg.ID] == bytes.Contains(all, k.private) {
				t.Errorf("key %d: destroyed %v, and its secret on the disk %v", k.cfg.ID, destroyed[k.cfg.ID], !destroyed[k.cfg.ID])
			}
		}
		return calls
	}
	calls := run(t, 1, func(*disktest.Mem, *disk.Failpoints) {})
	if calls < 100 {
		t.Fatalf("only %d calls to the disk", calls)
	}
	for n := range calls {
		for _, soft := range []bool{false, true} {
			if soft && n%3 > 0 {
				continue
			}
			t.Run(fmt.Sprintf("call %d, soft %v", n, soft), func(t *testing.T) {
				run(t, uint64(n), func(mem *disktest.Mem, _ *disk.Failpoints) {
					left := n
					mem.Inject(func(op disktest.Op, _ string) error {
						if op == disktest.OpRead || op == disktest.OpOpen {
							return nil
						}
						if left--; left == -1 || (left < -1 && !soft) {
							return errPower
						}
						return nil
					})
				})
			})
		}
	}
	for _, point := range FailpointNames() {
		for skip := range 4 {
			for _, soft := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %d, soft %v", point, skip, soft), func(t *testing.T) {
					hit := false
					run(t, uint64(skip), func(mem *disktest.Mem, fp *disk.Failpoints) {
						fp.Arm(point, skip, func() error {
							fp.Disarm(point)
							if hit = true; !soft {
								mem.Cut()
							}
							return errPower
						})
					})
					if !hit {
						t.Error("never passed")
					}
				})
			}
		}
	}
}

// TestGoesOnAfterFailure: a call that fails once costs a step, not the service, and the
// same life puts it right.
func TestGoesOnAfterFailure(t *testing.T) {
	for n := range 40 {
		clock, mem := newClock(), disktest.NewMem(uint64(n))
		s := open(t, Options{Schedule: short(0), FS: mem, Clock: clock})
		left, failed := n, false
		mem.Inject(func(op disktest.Op, _ string) error {
			if op == disktest.OpRead || op == disktest.OpOpen || failed {
				return nil
			}
			if left--; left < 0 {
				failed = true
				return errors.New("once")
			}
			return nil
		})
		for range 20 {
			clock.advance(5 * time.Minute)
			_, err := s.Step(t.Context(), unneeded) // one of them fails
			if len(offered(t, s)) != 1 {
				t.Fatal("nothing is offered")
			}
			living := 0
			for _, k := range s.Status() {
				if k.State != status.KeyDestroyed {
					living++
				}
			}
			if faults, err := s.Audit(t.Context()); err != nil || len(faults) > 0 {
				t.Errorf("audit: %v, %q", err, faults)
			}
			if err == nil && (living > 2 || len(files(t, mem)) != living) {
				t.Errorf("call %d: %d keys live, files %v", n, living, files(t, mem))
			}
		}
		if !failed {
			t.Fatal("nothing failed")
		}
	}
}
