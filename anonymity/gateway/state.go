package gateway

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/starling-agg/starling/anonymity/gateway/internal/journal"
	"github.com/starling-agg/starling/internal/disk"
)

// A StateError is a directory, or its record, that is not used as it is: it was damaged,
// exchanged, put back or lost, so that a request could be opened a second time, or
// acknowledged uploads be lost without a word. Nothing of it was changed.
type StateError = journal.StateError

// stateErr is an error of the journal's opening, as the gateway tells of it.
func stateErr(err error) error {
	if state := new(StateError); errors.As(err, &state) {
		return err
	}
	return fmt.Errorf("gateway: %w", err)
}

// noteText is what stands beside a key's file:
//
//	starling gateway note v1
//	key NAME     in hexadecimal digits: the key that was used, for the file's name may
//	             be used again
//	state STATE  with which
//	check SUM    the SHA-256 of the lines before
func noteText(key [journal.KeySize]byte, state [32]byte) []byte {
	b := fmt.Appendf(nil, noteMagic+"\nkey %x\nstate %x\n", key, state)
	return fmt.Appendf(b, "check %x\n", sha256.Sum256(b))
}

// readNote reads the one encoding of a note.
func readNote(b []byte) (key [journal.KeySize]byte, state [32]byte, ok bool) {
	var k, s []byte
	n, _ := fmt.Sscanf(string(b), noteMagic+"\nkey %x\nstate %x\n", &k, &s)
	ok = n == 2 && copy(key[:], k) == len(key) && copy(state[:], s) == len(state) && bytes.Equal(noteText(key, state), b)
	return key, state, ok
}

const (
	noteMagic = "starling gateway note v1"
	// maxNote bounds a note, in bytes.
	maxNote = 1 << 10
)

// note holds a key against the note beside it, which says what state it was used with, and
// writes the note for a key that is new. A state that knows the key needs no note: one that
// is gone, or damaged, is written anew.
func (g *Gateway) note(note string, raw [journal.KeySize]byte) (err error) {
	if note == "" {
		return nil
	}
	fsys, err := disk.OS(filepath.Dir(note))
	if err != nil {
		return fmt.Errorf("gateway: note of a key: %w", err)
	}
	defer func() { err = errors.Join(err, fsys.Close()) }()
	file := filepath.Base(note)
	want := noteText(raw, g.journal.State())
	have, err := disk.ReadFile(fsys, file, maxNote)
	_, known := g.journal.Opened(raw)
	switch {
	case err == nil && string(have) == string(want):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("gateway: note of a key: %w", err)
	case err == nil:
		key, state, ok := readNote(have)
		switch {
		case ok && key == raw && state != g.journal.State():
			return &StateError{File: file, What: "says that the key was used with another state: what it has opened is not known here"}
		case !ok && !known:
			return &StateError{File: file, What: "is not what was written: whether the key was used with another state cannot be told"}
		case !ok:
			g.o.Log.Warn("the note beside a key was not what was written; it is written anew", slog.String("file", file))
		}
	}
	// keys may lie where nothing is written
	if err := disk.WriteFile(fsys, file, want); err != nil {
		g.o.Log.Warn("the note beside a key cannot be written: the key would be taken again if data and record were lost", slog.String("file", file), slog.Any("error", err))
	}
	return nil
}
