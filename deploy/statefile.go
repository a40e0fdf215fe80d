package deploy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/internal/disk"
)

// sessionState is the content of the state file. It holds no secret: answers in it are
// sealed to the collector's key.
type sessionState struct {
	Version int `json:"version"` // stateVersion
	// Job is a collection under way or the last one.
	Job *collector.State `json:"job,omitempty"`
	// Done says that Job's answer has been read.
	Done bool `json:"done"`
	// Next is the end of the last interval collected: the next one begins there.
	// Time-interval recipes only.
	Next time.Time `json:"next,omitzero"`
	// To is the end of the interval that Job asks for.
	To time.Time `json:"to,omitzero"`
	// View is the view that Job asks for, and Views are what Next is, of each view but the
	// round's. Of recipes with views.
	View  string               `json:"view,omitempty"`
	Views map[string]time.Time `json:"views,omitempty"`
	// Key is the SHA-256 of the public half of the key with which Job was asked, in
	// hexadecimal digits.
	Key string `json:"key,omitempty"`
}

// A stateMark is what stands beside the state file: the digests of what it was and is to
// be, written before each change of it, and once more when it is done. So a state file that
// is gone, damaged or put back is found out, and one whose change did not get to the disk
// is not.
type stateMark struct {
	Version int `json:"version"` // stateVersion
	// SHA-256 of the file, in hexadecimal digits; none where there was no file
	Before string `json:"before,omitempty"`
	After  string `json:"after"`
}

const (
	stateVersion = 1
	// maxState bounds a state file: two sealed shares in base64, and room for what is
	// around them.
	maxState = 1 << 30
	// markSuffix stands behind the name of the state file in that of its mark.
	markSuffix = ".mark"
	maxMark    = 1 << 10
)

// A StateError is a collector's state file that is not used as it is: it is gone, or not
// what was written last, so that a question that is pending, and how far the leader's
// releases were seen, would be forgotten. Nothing was changed.
type StateError struct {
	File  string
	What  string // is wrong with it
	Newer bool   // a newer version of this program wrote it, and nothing is wrong
}

func (e *StateError) Error() string { return "state: " + e.File + " " + e.What }

// Remedy says what a person can do about it.
func (e *StateError) Remedy() string {
	if e.Newer {
		return "start the newer version: this one reads nothing of it, and nothing is wrong with it; starling version says which this is"
	}
	return "put the newest copy of it back, with the file " + markSuffix + " beside it. If it is gone for good, nothing that was released is: move both files away, and ask " +
		"again for what was not read, with --from and --to in a time-interval recipe (starling status leader.toml); the same question gets the same answer"
}

// A stateFile is the file of a session's state, with its mark.
type stateFile struct {
	path string
	now  string // digest of the file; "" is none
	// notice is what a person should know: the mark was not there, or not readable.
	notice string
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// read reads the state, which is empty where there is none, and holds it to its mark.
func (f *stateFile) read(s *sessionState) error {
	m, marked, err := f.readMark()
	if err != nil {
		return err
	}
	b, err := readFile(f.path, maxState)
	there := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("state: %s: %w", f.path, err)
	}
	if there {
		f.now = digestOf(b)
	}
	switch {
	case marked && f.now != m.After && f.now != m.Before && !there:
		return &StateError{File: f.path, What: "is gone, and this collector has asked questions"}
	case there && json.Unmarshal(b, s) == nil && s.Version > stateVersion:
		return &StateError{File: f.path, What: "is of a newer version of this program", Newer: true}
	case marked && f.now != m.After && f.now != m.Before:
		return &StateError{File: f.path, What: "is not what was written last: it was damaged, put back or exchanged"}
	case !there:
		return nil
	}
	*s = sessionState{}
	if err := json.Unmarshal(b, s); err != nil || s.Version != stateVersion {
		return &StateError{File: f.path, What: "is not what was written: it is no state of a collector"}
	}
	if !marked {
		f.notice = fmt.Sprintf("%s was not there or not readable, and is written anew: that %s was not put back is not known", f.path+markSuffix, f.path)
	}
	return nil
}

// readMark reads the mark; one that cannot be read is none.
func (f *stateFile) readMark() (m stateMark, ok bool, err error) {
	b, err := readFile(f.path+markSuffix, maxMark)
	if errors.Is(err, fs.ErrNotExist) {
		return m, false, nil
	}
	if err != nil {
		return m, false, fmt.Errorf("state: %s: %w", f.path+markSuffix, err)
	}
	if json.Unmarshal(b, &m) != nil || m.Version < stateVersion || len(m.After) != 2*sha256.Size {
		return stateMark{}, false, nil
	}
	if m.Version > stateVersion {
		return m, false, &StateError{File: f.path + markSuffix, What: "is of a newer version of this program", Newer: true}
	}
	return m, true, nil
}

// write replaces the state: the mark first, which names both what was and what is to be.
func (f *stateFile) write(s *sessionState) (err error) {
	s.Version = stateVersion
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	fsys, err := disk.OS(filepath.Dir(f.path))
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	defer func() { err = errors.Join(err, fsys.Close()) }()
	name := filepath.Base(f.path)
	mark := func(before, after string) error {
		m, err := json.MarshalIndent(&stateMark{stateVersion, before, after}, "", "  ")
		if err == nil {
			err = disk.WriteFile(fsys, name+markSuffix, append(m, '\n'))
		}
		return err
	}
	after := digestOf(b)
	if err = mark(f.now, after); err == nil {
		if err = disk.WriteFile(fsys, name, b); err == nil {
			f.now = after
			err = mark(after, after) // what was is no more
		}
	}
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}
