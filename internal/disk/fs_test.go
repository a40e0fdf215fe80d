package disk_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sync/atomic"
	"testing"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// The simulated disk and the real one answer alike.
func TestFSConformance(t *testing.T) {
	osfs, err := disk.OS(t.TempDir() + "/new")
	if err != nil {
		t.Fatal(err)
	}
	defer osfs.Close()
	whole := disktest.NewMem(2)
	if err := disk.MakeDirs(whole, "some/where"); err != nil {
		t.Fatal(err)
	}
	counted := disk.Counted(disktest.NewMem(3), func(string) *atomic.Uint64 { return new(atomic.Uint64) })
	for name, fsys := range map[string]disk.FS{"os": osfs, "mem": disktest.NewMem(1), "sub": disk.Sub(whole, "some/where"), "counted": counted} {
		t.Run(name, func(t *testing.T) { testFS(t, fsys) })
	}
}

func testFS(t *testing.T, fsys disk.FS) {
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	is := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	}
	content := func(name, want string) {
		t.Helper()
		got, err := disk.ReadFile(fsys, name, 100)
		if err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", name, got, err, want)
		}
	}
	ok(disk.MakeDirs(fsys, "a/b"))
	ok(disk.MakeDirs(fsys, "a/b"))
	ok(disk.MakeDirs(fsys, "."))

	f, err := fsys.Create("a/f")
	ok(err)
	_, err = f.Write([]byte("hello "))
	ok(err)
	_, err = f.Write([]byte("world"))
	ok(err)
	_, err = f.WriteAt([]byte("H"), 0)
	ok(err)
	_, err = f.Write([]byte("!"))
	ok(err)
	_, err = f.WriteAt([]byte("z"), 14)
	ok(err)
	ok(f.Sync())
	content("a/f", "Hello world!\x00\x00z")
	ok(f.Truncate(5))
	if size, err := f.Size(); size != 5 || err != nil {
		t.Errorf("size %d, %v", size, err)
	}
	var buf [8]byte
	if n, err := f.ReadAt(buf[:], 3); n != 2 || err != io.EOF {
		t.Errorf("read over the end: %d, %v", n, err)
	}
	if n, err := f.ReadAt(buf[:], 9); n != 0 || err != io.EOF {
		t.Errorf("read behind the end: %d, %v", n, err)
	}
	ok(f.Close())
	is(f.Close(), fs.ErrClosed)
	is(f.Sync(), fs.ErrClosed)

	_, err = fsys.Create("a/f")
	is(err, fs.ErrExist)
	_, err = fsys.Open("a/none")
	is(err, fs.ErrNotExist)
	_, err = fsys.OpenAppend("a/none")
	is(err, fs.ErrNotExist)
	_, err = fsys.Create("none/f")
	is(err, fs.ErrNotExist)
	is(fsys.Remove("a/none"), fs.ErrNotExist)
	is(fsys.Rename("a/none", "a/g"), fs.ErrNotExist)
	is(fsys.Link("a/none", "a/g"), fs.ErrNotExist)
	is(fsys.Link("a/f", "none/g"), fs.ErrNotExist)
	is(fsys.Link("a/f", "a/f"), fs.ErrExist)
	is(fsys.Link("a/f", "a/b"), fs.ErrExist)
	ok(fsys.Link("a/f", "a/b/linked"))
	is(fsys.Link("a/f", "a/b/linked"), fs.ErrExist)
	content("a/b/linked", "Hello")
	ok(fsys.Remove("a/b/linked"))
	content("a/f", "Hello")
	is(fsys.SyncDir("none"), fs.ErrNotExist)
	_, err = fsys.Stat("none")
	is(err, fs.ErrNotExist)
	_, err = fsys.ReadDir("none")
	is(err, fs.ErrNotExist)

	f, err = fsys.OpenAppend("a/f")
	ok(err)
	_, err = f.Write([]byte(" there"))
	ok(err)
	ok(f.Close())
	content("a/f", "Hello there")
	f, err = fsys.OpenWrite("a/f")
	ok(err)
	_, err = f.Write([]byte("J"))
	ok(err)
	ok(f.Close())
	content("a/f", "Jello there")
	f, err = fsys.OpenWrite("a/g")
	ok(err)
	ok(f.Close())
	f, err = fsys.Open("a/g")
	ok(err)
	if _, err = f.Write([]byte("x")); err == nil {
		t.Error("wrote to a file opened for reading")
	}
	ok(f.Close())

	entries, err := fsys.ReadDir("a")
	ok(err)
	if got := fmt.Sprint(entries); got != "[{b true 0} {f false 11} {g false 0}]" {
		t.Errorf("entries %s", got)
	}
	ok(fsys.Rename("a/f", "a/b/g"))
	ok(fsys.Rename("a/g", "a/b/g"))
	content("a/b/g", "")
	if err := fsys.Remove("a/b"); err == nil {
		t.Error("removed a directory with a file in it")
	}
	ok(disk.Remove(fsys, "a/b/g", "a/b/none"))
	ok(fsys.Remove("a/b"))
	if e, err := fsys.Stat("a"); err != nil || e != (disk.Entry{Name: "a", Dir: true}) {
		t.Errorf("stat: %+v, %v", e, err)
	}
	for _, bad := range []string{"", "/etc/passwd", "../x", "a/../x", "a/", "./a"} {
		_, err := fsys.Create(bad)
		is(err, disk.ErrBadName)
		_, err = fsys.Open(bad)
		is(err, disk.ErrBadName)
		is(fsys.Remove(bad), disk.ErrBadName)
		is(fsys.Rename("a", bad), disk.ErrBadName)
		is(fsys.Link("a", bad), disk.ErrBadName)
		is(fsys.MkdirAll(bad), disk.ErrBadName)
		is(fsys.SyncDir(bad), disk.ErrBadName)
	}
	ok(disk.WriteFile(fsys, "a/big", make([]byte, 101)))
	if _, err := disk.ReadFile(fsys, "a/big", 100); err == nil {
		t.Error("read a file larger than the limit")
	}
}

// A replacement that fails or loses power at any call leaves the old content or the new
// one, and once it was reported done, the new one.
func TestWriteFileIsAtomic(t *testing.T) {
	for _, cut := range []bool{false, true} {
		for at := 1; ; at++ {
			failed := false
			for seed := range uint64(30) {
				mem := disktest.NewMem(seed)
				if err := disk.WriteFile(mem, "f", []byte("old")); err != nil {
					t.Fatal(err)
				}
				calls := 0
				failed = false
				mem.Inject(func(disktest.Op, string) error {
					if calls++; calls == at || cut && calls > at {
						failed = true
						return errInjected
					}
					return nil
				})
				err := disk.WriteFile(mem, "f", []byte("new "), []byte("content"))
				mem.Inject(nil)
				mem = mem.Crash()
				got, readErr := disk.ReadFile(mem, "f", 100)
				if readErr != nil || string(got) != "new content" && (err == nil || string(got) != "old") {
					t.Fatalf("call %d failing, seed %d: %q, %v; WriteFile said %v", at, seed, got, readErr, err)
				}
			}
			if !failed {
				if at < 6 {
					t.Errorf("only %d calls", at)
				}
				break
			}
		}
	}
}

// unreadable is a disk of which one directory cannot be listed.
type unreadable struct {
	disk.FS
	dir string
}

var errUnreadable = errors.New("unreadable")

func (u unreadable) ReadDir(dir string) ([]disk.Entry, error) {
	if dir == u.dir {
		return nil, errUnreadable
	}
	return u.FS.ReadDir(dir)
}

// TestFiles: all files below a directory are listed with their whole names, until the loop
// ends or a directory cannot be read; one that is not there has none.
func TestFiles(t *testing.T) {
	mem := disktest.NewMem(1)
	for name, content := range map[string]string{"x": "", "top/b": "12", "top/a/f": "123", "top/a/deep/g": "", "top/c": "1"} {
		if err := errors.Join(disk.MakeDirs(mem, path.Dir(name)), disk.WriteFile(mem, name, []byte(content))); err != nil {
			t.Fatal(err)
		}
	}
	if err := disk.MakeDirs(mem, "top/empty"); err != nil {
		t.Fatal(err)
	}
	list := func(fsys disk.FS, dir string, most int) (all []string, err error) {
		for f, err := range disk.Files(fsys, dir) {
			if err != nil {
				return all, err
			}
			if all = append(all, fmt.Sprint(f.Name, " ", f.Size)); len(all) == most {
				break
			}
		}
		return all, nil
	}
	for _, tc := range []struct {
		fsys disk.FS
		dir  string
		most int
		want string
		err  error
	}{
		{mem, "top", 9, "[top/a/deep/g 0 top/a/f 3 top/b 2 top/c 1]", nil},
		{mem, ".", 9, "[top/a/deep/g 0 top/a/f 3 top/b 2 top/c 1 x 0]", nil},
		{mem, "top", 1, "[top/a/deep/g 0]", nil},
		{mem, "nowhere", 9, "[]", nil},
		{unreadable{mem, "top/a/deep"}, "top", 9, "[]", errUnreadable},
		{unreadable{mem, "top/empty"}, ".", 9, "[top/a/deep/g 0 top/a/f 3 top/b 2 top/c 1]", errUnreadable},
	} {
		got, err := list(tc.fsys, tc.dir, tc.most)
		if fmt.Sprint(got) != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s, at most %d: %v, %v; want %s, %v", tc.dir, tc.most, got, err, tc.want, tc.err)
		}
	}
}

func TestFailpoints(t *testing.T) {
	var none *disk.Failpoints
	if err := none.Hit("a"); err != nil {
		t.Errorf("the nil registry fails: %v", err)
	}
	var fp disk.Failpoints
	fp.Arm("a", 1, func() error { return errInjected })
	var got []error
	for range 3 {
		got = append(got, fp.Hit("a"), fp.Hit("b"))
	}
	fp.Disarm("a")
	got = append(got, fp.Hit("a"))
	if s := fmt.Sprint(got); s != "[<nil> <nil> injected <nil> injected <nil> <nil>]" {
		t.Errorf("hits returned %s", s)
	}
	if s := fmt.Sprint(fp.Seen(), fp.Hits()["a"]); s != "[a b] 4" {
		t.Errorf("seen %s", s)
	}
}

// TestReadFileInto: a file goes into the memory that is given if it fits, whatever was in
// there.
func TestReadFileInto(t *testing.T) {
	mem := disktest.NewMem(1)
	if err := disk.WriteFile(mem, "f", []byte("content")); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 6, 7, 8, 100} {
		buf := bytes.Repeat([]byte{'x'}, size)
		got, err := disk.ReadFileInto(mem, "f", 7, buf)
		if err != nil || string(got) != "content" {
			t.Errorf("into %d bytes: %q, %v", size, got, err)
		}
		if size >= 7 && &got[0] != &buf[0] {
			t.Errorf("into %d bytes: elsewhere", size)
		}
	}
	if _, err := disk.ReadFileInto(mem, "f", 6, make([]byte, 100)); err == nil {
		t.Error("a file above the limit was read")
	}
}
