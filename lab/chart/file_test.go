package chart

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// A file that cannot be written whole leaves the one before as it was, and nothing else.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "picture")
	says := func(text string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
	}
	half := errors.New("half of it")
	for _, text := range []string{"first", "second"} {
		if err := WriteFile(path, says(text)); err != nil {
			t.Fatal(err)
		}
		err := WriteFile(path, func(w io.Writer) error { return errors.Join(says("th")(w), half) })
		if !errors.Is(err, half) {
			t.Errorf("failed to write: %v", err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != text {
			t.Errorf("%q, %v; want %q", b, err, text)
		}
	}
	if err := WriteFile(dir, says("x")); err == nil {
		t.Error("written over a directory")
	}
	if err := WriteFile(filepath.Join(dir, "none", "x"), says("x")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in no directory: %v", err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("left behind: %v, %v", list, err)
	}
}
