package wrap

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func openFiles(t testing.TB, fsys disk.FS) *Files {
	t.Helper()
	f, err := OpenFiles(fsys, "wrapping", nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func add(t testing.TB, f *Files) string {
	t.Helper()
	name, err := f.Add(epoch)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// TestRotation: the newest key wraps, each opens what is its own, and a key that ended is
// not on the disk.
func TestRotation(t *testing.T) {
	ctx, mem := t.Context(), disktest.NewMem(1)
	f := openFiles(t, mem)
	var names []string
	var boxes []Box
	var raw [][]byte
	for i := range 3 {
		names = append(names, add(t, f))
		key, err := f.newest()
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, key.key[:])
		box, err := f.Wrap(ctx, []byte{byte(i)}, nil)
		if err != nil || box.Key != names[i] {
			t.Fatalf("wrapped with %s, not %s: %v", box.Key, names[i], err)
		}
		boxes = append(boxes, box)
	}
	opens := func(i int) bool {
		t.Helper()
		s, err := openFiles(t, mem).Unwrap(ctx, boxes[i], nil)
		if err != nil && !errors.Is(err, ErrNoKey) {
			t.Error(err)
		}
		return err == nil && bytes.Equal(s, []byte{byte(i)})
	}
	if err := f.End(names[2]); !errors.Is(err, ErrInUse) {
		t.Errorf("the newest ends: %v", err)
	}
	for i := range 2 {
		if !opens(0) != (i > 0) || !opens(1) || !opens(2) {
			t.Errorf("after %d: %v %v %v", i, opens(0), opens(1), opens(2))
		}
		for range 2 {
			if err := f.End(names[i]); err != nil {
				t.Error(err)
			}
		}
		if opens(i) || bytes.Contains(everything(t, mem), raw[i]) {
			t.Errorf("key %d is there after its end", i)
		}
	}
	if left, err := f.Keys(); err != nil || !slices.Equal(left, names[2:]) {
		t.Errorf("%v are left, %v", left, err)
	}
}

func everything(t testing.TB, mem *disktest.Mem) (all []byte) {
	t.Helper()
	for e, err := range disk.Files(mem, ".") {
		if err != nil {
			t.Fatal(err)
		}
		b, err := disk.ReadFile(mem, e.Name, 1<<16)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

// TestCrash loses power at every call that changes the disk while a key is added and
// another one ended. Then every key that was named is there unless its end had begun, the
// same again succeeds, and the key that ended is not on the disk.
func TestCrash(t *testing.T) {
	for n := 0; ; n++ {
		mem := disktest.NewMem(uint64(n))
		f := openFiles(t, mem)
		old := add(t, f)
		first, err := f.newest()
		if err != nil {
			t.Fatal(err)
		}
		box, err := f.Wrap(t.Context(), []byte("s"), nil)
		if err != nil {
			t.Fatal(err)
		}
		left, cut := n, false
		mem.Inject(func(op disktest.Op, _ string) error {
			if op == disktest.OpRead || op == disktest.OpOpen {
				return nil
			}
			if left--; left < 0 {
				cut = true
				return errors.New("power")
			}
			return nil
		})
		name, err := f.Add(epoch)
		ending := err == nil
		if err == nil {
			err = f.End(old)
		}
		if cut == (err == nil) {
			t.Fatalf("call %d: cut %v, %v", n, cut, err)
		}
		mem = mem.Crash()
		f = openFiles(t, mem)
		if _, err := f.Unwrap(t.Context(), box, nil); err != nil && !ending {
			t.Errorf("call %d: %v", n, err)
		}
		if newest, err := f.Newest(t.Context()); err != nil || ending && newest != name {
			t.Errorf("call %d: the newest is %s, not %s: %v", n, newest, name, err)
		}
		add(t, f)
		if err := f.End(old); err != nil {
			t.Errorf("call %d: %v", n, err)
		}
		if _, err := f.Unwrap(t.Context(), box, nil); !errors.Is(err, ErrNoKey) {
			t.Errorf("call %d: the old box opens: %v", n, err)
		}
		if bytes.Contains(everything(t, mem), first.key[:]) {
			t.Errorf("call %d: the old key is on the disk", n)
		}
		if _, err := f.Keys(); err != nil {
			t.Errorf("call %d: %v", n, err)
		}
		if !cut {
			if n < 8 {
				t.Errorf("only %d calls", n)
			}
			return
		}
	}
}

// TestDamagedFiles: a newest key that is damaged is not passed over, an older one hides no
// other.
func TestDamagedFiles(t *testing.T) {
	mem := disktest.NewMem(1)
	f := openFiles(t, mem)
	add(t, f)
	first, err := f.Wrap(t.Context(), []byte("1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	add(t, f)
	second, err := f.Wrap(t.Context(), []byte("2"), nil)
	if err != nil {
		t.Fatal(err)
	}
	spoil := func(name string) func() {
		b, err := disk.ReadFile(mem, name, int64(fileSize))
		if err != nil {
			t.Fatal(err)
		}
		bad := bytes.Clone(b)
		bad[len(bad)/2] ^= 1
		if err := disk.WriteFile(mem, name, bad); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := disk.WriteFile(mem, name, b); err != nil {
				t.Fatal(err)
			}
		}
	}
	mend := spoil("wrapping/0000000000000001.wrap")
	if _, err := f.Unwrap(t.Context(), first, nil); !errors.Is(err, ErrNoKey) {
		t.Errorf("a damaged key opens: %v", err)
	}
	if _, err := f.Unwrap(t.Context(), second, nil); err != nil {
		t.Errorf("the other one: %v", err)
	}
	if _, err := f.Keys(); !errors.Is(err, ErrNoKey) {
		t.Errorf("listed: %v", err)
	}
	mend()
	mend = spoil("wrapping/0000000000000002.wrap")
	if _, err := f.Wrap(t.Context(), []byte("3"), nil); !errors.Is(err, ErrNoKey) {
		t.Errorf("wrapped beside a damaged newest: %v", err)
	}
	if _, err := f.Unwrap(t.Context(), first, nil); err != nil {
		t.Error(err)
	}
	mend()
	if err := mem.Rename("wrapping/0000000000000001.wrap", "wrapping/0000000000000003.wrap"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Newest(t.Context()); !errors.Is(err, ErrNoKey) {
		t.Errorf("an old key under a new name: %v", err)
	}
}

// TestPrivate: a file that others may read wraps nothing and opens nothing.
func TestPrivate(t *testing.T) {
	dir := t.TempDir()
	fsys, err := disk.OS(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close()
	f := openFiles(t, fsys)
	add(t, f)
	box, err := f.Wrap(t.Context(), []byte("s"), nil)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "wrapping", fmt.Sprintf("%016x.wrap", 1))
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := os.Chmod(name, 0o640); err != nil {
		t.Fatal(err)
	}
	var mode *disk.ModeError
	if _, err := f.Wrap(t.Context(), []byte("s"), nil); !errors.As(err, &mode) {
		t.Errorf("wrapped: %v", err)
	}
	if _, err := f.Unwrap(t.Context(), box, nil); !errors.As(err, &mode) {
		t.Errorf("opened: %v", err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, err := f.read(1); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
