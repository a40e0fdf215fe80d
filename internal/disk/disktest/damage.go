package disktest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/internal/disk"
)

// Files are the content of files, by their names.
type Files map[string][]byte

// FilesOf reads all files of a file system, but for those that are being made.
func FilesOf(t testing.TB, fsys disk.FS) Files {
	t.Helper()
	all := make(Files)
	var read func(dir string)
	read = func(dir string) {
		entries, err := fsys.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name := path.Join(dir, e.Name)
			if e.Dir {
				read(name)
				continue
			}
			if all[name], err = disk.ReadFile(fsys, name, e.Size); err != nil {
				t.Fatal(err)
			}
		}
	}
	read(".")
	return all
}

// Put writes the files, durably, on a file system.
func (f Files) Put(t testing.TB, fsys disk.FS) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if err := errors.Join(disk.MakeDirs(fsys, path.Dir(name)), disk.WriteFile(fsys, name, f[name])); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
}

// With is the files with one exchanged, or without it where it is nil.
func (f Files) With(name string, b []byte) Files {
	f = maps.Clone(f)
	if f[name] = b; b == nil {
		delete(f, name)
	}
	return f
}

// A Matrix does to each kind of file of a party what disks and people do, one kind after
// the other, and writes down what comes of it.
type Matrix struct {
	Whole  Files // in use, and killed
	Older  Files // what they were some time before
	Others Files // of another party in the same role
	// Kind names the kind of a file; "" leaves it out.
	Kind func(name string) string
	// Newer is a file as a later version of the program would write it, or nil.
	Newer func(name string, b []byte) []byte
	// Dirs are directories, or files of one stem, that are damaged as wholes, some
	// together: beginnings of kinds.
	Dirs [][]string
	// Unseen are cells that are not played, "ROW, DAMAGE", since nobody can tell.
	Unseen []string
	// Play starts the party on the files, has it finish, and says in a word what came of
	// it. "harmless" needs no words. "fails" is a loss or a second time without a word.
	Play func(t *testing.T, f Files) (class, words string)
}

// damages are what is done to a file, as often as places are drawn for it. Each returns
// what becomes of it, nil for a file that is gone, and whether it applies.
var damages = []struct {
	name  string
	times int
	to    func(m *Matrix, rng *rand.Rand, name string) (now []byte, applies bool)
}{
	{"missing", 1, func(*Matrix, *rand.Rand, string) ([]byte, bool) { return nil, true }},
	{"empty", 1, func(*Matrix, *rand.Rand, string) ([]byte, bool) { return []byte{}, true }},
	{"cut", 6, func(m *Matrix, rng *rand.Rand, name string) ([]byte, bool) {
		return m.Whole[name][:1+rng.IntN(len(m.Whole[name])-1)], true
	}},
	{"one bit turned", 6, func(m *Matrix, rng *rand.Rand, name string) ([]byte, bool) {
		b := bytes.Clone(m.Whole[name])
		bit := rng.IntN(8 * len(b))
		b[bit/8] ^= 1 << (bit % 8)
		return b, true
	}},
	{"older", 1, func(m *Matrix, _ *rand.Rand, name string) ([]byte, bool) {
		b, ok := m.Older[name]
		return b, ok && !bytes.Equal(b, m.Whole[name])
	}},
	{"another party's", 1, func(m *Matrix, _ *rand.Rand, name string) ([]byte, bool) {
		if b, ok := m.Others[name]; ok {
			return b, !bytes.Equal(b, m.Whole[name])
		}
		for _, other := range slices.Sorted(maps.Keys(m.Others)) { // names may be random
			if m.Kind(other) == m.Kind(name) {
				return m.Others[other], true
			}
		}
		return nil, false
	}},
	{"of a later version", 1, func(m *Matrix, _ *rand.Rand, name string) ([]byte, bool) {
		b := m.Newer(name, bytes.Clone(m.Whole[name]))
		return b, b != nil
	}},
}

// Run plays all cells and returns them as the rows of a table in Markdown. A cell that
// fails, or says nothing where something came of it, fails the test.
func (m *Matrix) Run(t *testing.T) (table string, cells int) {
	t.Helper()
	kinds := make(map[string][]string)
	for _, name := range slices.Sorted(maps.Keys(m.Whole)) {
		if kind := m.Kind(name); kind != "" && len(m.Whole[name]) > 1 {
			kinds[kind] = append(kinds[kind], name)
		}
	}
	var b strings.Builder
	b.WriteString("| file |")
	for _, d := range damages {
		b.WriteString(" " + d.name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(damages)) + "\n")
	if class, words := m.Play(t, m.Whole); class != "harmless" {
		t.Fatalf("with nothing damaged: %s: %s", class, words)
	}
	rng := rand.New(rand.NewPCG(2026, 11))
	row := func(kind string, damage func(i int) (f Files, applies bool)) {
		fmt.Fprintf(&b, "| `%s` |", kind)
		for i, d := range damages {
			if cell := kind + ", " + d.name; slices.Contains(m.Unseen, cell) {
				b.WriteString(" unseen |")
				continue
			}
			classes := make(map[string]bool)
			for range d.times {
				f, applies := damage(i)
				if !applies {
					break
				}
				class, words := m.Play(t, f)
				t.Logf("%s, %s: %s: %s", kind, d.name, class, words)
				if class == "fails" || class != "harmless" && words == "" {
					t.Errorf("%s, %s: %s: %s", kind, d.name, class, words)
				}
				classes[class] = true
			}
			if len(classes) > 0 {
				cells++
			}
			b.WriteString(strings.TrimRight(" "+strings.Join(slices.Sorted(maps.Keys(classes)), " or "), " ") + " |")
		}
		b.WriteString("\n")
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		row(kind, func(i int) (f Files, applies bool) {
			f = m.Whole
			for _, name := range kinds[kind] {
				if now, ok := damages[i].to(m, rng, name); ok {
					f, applies = f.With(name, now), true
				}
			}
			return f, applies
		})
	}
	for _, dirs := range m.Dirs {
		in := func(name string) bool {
			return slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(m.Kind(name), dir) })
		}
		title := strings.Join(dirs, "` and `")
		if len(dirs) == 1 && !strings.HasSuffix(title, "/") {
			title += "*"
		}
		row(title, func(i int) (f Files, applies bool) {
			var instead Files
			switch damages[i].name {
			case "missing":
			case "older":
				instead = m.Older
			case "another party's":
				instead = m.Others
			default:
				return nil, false
			}
			f = maps.Clone(m.Whole)
			maps.DeleteFunc(f, func(name string, _ []byte) bool { return in(name) })
			for name, b := range instead {
				if in(name) {
					f[name] = b
				}
			}
			return f, true
		})
	}
	return b.String(), cells
}

// HoldTable holds a table to the one between two comments in a page, "<!-- NAME -->" and
// "<!-- end -->", or writes it there.
func HoldTable(t *testing.T, page, name, table string, write bool) {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- end -->\n"
	before, rest, ok1 := strings.Cut(string(b), begin)
	had, after, ok2 := strings.Cut(rest, end)
	switch {
	case !ok1 || !ok2:
		t.Fatalf("%s has no table %s", page, name)
	case write:
		if err := os.WriteFile(page, []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case had != table:
		t.Errorf("%s says\n%s\nand it is\n%s", page, had, table)
	}
}
