package journal

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/wire"
)

// A StateError is a directory that is not used as it is: it was damaged, exchanged, put
// back or lost, so that a request could be opened a second time, or acknowledged uploads
// be lost without a word. Nothing of it was changed.
type StateError struct {
	File string // in the directory, or "record/" and its name in the record
	What string // is wrong with it
	// Newer says that a newer version of this program wrote it, and nothing is wrong.
	Newer bool
}

func (e *StateError) Error() string { return "gateway: state: " + e.File + " " + e.What }

// Remedy says what a person can do about it.
func (e *StateError) Remedy() string {
	if e.Newer {
		return "start the newer version: this one reads nothing of it, and nothing is wrong with it; starling version says which this is"
	}
	return "put the newest copies of both directories back, `data` and `record` in gateway.toml say where. If they are gone for good, this gateway has " +
		"forgotten what its keys have opened: move both directories and its keys away, and make new ones with starling manifest new " +
		"(docs/recovery.md)"
}

// Faults of a file, in a [StateError].
const (
	IsGone     = "is gone, and this gateway has been used"
	IsDamaged  = "is not what was written"
	IsAnothers = "is another gateway's, or the record is"
	IsNewer    = "is of a newer version of this program"
	IsBack     = "was put back: it is older than the record says that it has been"

	missingRound = "is gone, and its uploads were acknowledged; an empty file %s in its place says that they are lost, and all else is what it was last"
)

// Names of the files that say whose state a directory is, and how far it has come.
const (
	secretFile = "secret"
	markFile   = "mark"
)

// Versions are the last byte before the end of the line of a magic.
const (
	secretMagic = "starling gateway secret v1\n"
	markMagic   = "starling gateway mark v1\n"
	stateDomain = "starling gateway state v1"
)

const (
	secretSize = 32
	// place is the size of one of the mark's two places, in bytes: of a sector or more, so
	// that a torn write of one leaves the other.
	place = 4096
)

// newer says whether a file begins with a magic but for its version, which is above.
func newer(file []byte, magic string) bool {
	stem := magic[:len(magic)-2]
	return len(file) > len(stem) && strings.HasPrefix(string(file), stem) && file[len(stem)] > magic[len(stem)] && file[len(stem)] <= '9'
}

// readSecret reads the secret: its magic, 32 random bytes, the SHA-256 of both.
func readSecret(fsys disk.FS) (secret [secretSize]byte, there bool, err error) {
	file, err := disk.ReadFile(fsys, secretFile, 1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return secret, false, nil
	}
	if err != nil {
		return secret, false, fmt.Errorf("journal: %w", err)
	}
	const size = len(secretMagic) + secretSize
	if len(file) == size+sha256.Size && sha256.Sum256(file[:size]) == [sha256.Size]byte(file[size:]) {
		if newer(file, secretMagic) {
			return secret, false, &StateError{File: secretFile, What: IsNewer, Newer: true}
		}
		if bytes.HasPrefix(file, []byte(secretMagic)) {
			copy(secret[:], file[len(secretMagic):])
			return secret, true, nil
		}
	}
	return secret, false, &StateError{File: secretFile, What: IsDamaged}
}

func writeSecret(fsys disk.FS, secret [secretSize]byte) error {
	file := append([]byte(secretMagic), secret[:]...)
	sum := sha256.Sum256(file)
	if err := disk.WriteFile(fsys, secretFile, file, sum[:]); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// A mark says whose state the directory is, and how far it has come. It lies outside of
// the directory, in the record, and is raised after what it speaks of is durable and
// before any device learns of that. So it may be behind the directory, never ahead.
type mark struct {
	state  [32]byte // of the secret
	serial uint64   // of this mark
	rounds uint64   // every round below it was acknowledged
	file   uint64   // number of the log's file
	size   uint64   // bytes of it that were durable, at least
}

func (m *mark) code(c *wire.Coder) {
	c.Const(markMagic, "wrong magic")
	c.Fixed(m.state[:], "state")
	c.Uint64(&m.serial, "serial")
	c.Uint64(&m.rounds, "rounds")
	c.Uint64(&m.file, "file")
	c.Uint64(&m.size, "size")
}

// append writes a place: the magic; state, serial, rounds, file, size; the SHA-256 of all
// before; zeros.
func (m mark) append(dst []byte) []byte {
	start := len(dst)
	dst = wire.AppendSum(wire.MustAppend(dst, m.code), start)
	return append(dst, make([]byte, place-(len(dst)-start))...)
}

// readPlace reads the one encoding of a place.
func readPlace(b []byte) (m mark, ok bool) {
	c := wire.Reader(b, errRecord)
	m.code(&c)
	return m, c.Err() == nil && bytes.Equal(m.append(nil), b)
}

// witness keeps the mark: two places that are written in turn, each with one small write
// and one sync.
type witness struct {
	mark
	out disk.File
}

// readMark reads the newer place, if there is a mark.
func readMark(record disk.FS) (m mark, there bool, err error) {
	file, err := disk.ReadFile(record, markFile, 2*place)
	if errors.Is(err, fs.ErrNotExist) {
		return m, false, nil
	}
	if err != nil {
		return m, false, fmt.Errorf("journal: %w", err)
	}
	later := false
	for ; len(file) > 0; file = file[min(place, len(file)):] {
		b := file[:min(place, len(file))]
		if next, ok := readPlace(b); ok && (!there || next.serial > m.serial) {
			m, there = next, true
		}
		later = later || newer(b, markMagic)
	}
	switch {
	case later && !there:
		return m, false, &StateError{File: "record/" + markFile, What: IsNewer, Newer: true}
	case !there:
		return m, false, &StateError{File: "record/" + markFile, What: IsDamaged}
	}
	return m, true, nil
}

// raise makes a mark durable.
func (w *witness) raise(m mark) error {
	m.serial = w.serial + 1
	if _, err := w.out.WriteAt(m.append(nil), int64(m.serial%2)*place); err != nil {
		return fmt.Errorf("journal: record: %w: %w", disk.ErrStateUnknown, err)
	}
	if err := w.out.Sync(); err != nil {
		return fmt.Errorf("journal: record: %w: %w", disk.ErrStateUnknown, err)
	}
	w.mark = m
	return nil
}

// openState finds out whose state the directory is, and how far it has been; it makes what
// a new one needs. Entries are the names in the directory.
func openState(fsys, record disk.FS, entries []disk.Entry) (secret [secretSize]byte, w *witness, err error) {
	m, marked, err := readMark(record)
	if err != nil {
		return secret, nil, err
	}
	secret, there, err := readSecret(fsys)
	if err != nil {
		return secret, nil, err
	}
	used := ""
	for _, e := range entries {
		if inUse(e.Name) {
			used = e.Name
		}
	}
	switch {
	case marked && !there:
		return secret, nil, &StateError{File: secretFile, What: IsGone}
	case marked && m.state != stateOf(secret):
		return secret, nil, &StateError{File: secretFile, What: IsAnothers}
	case !marked && used != "": // the mark is made before any of it
		return secret, nil, &StateError{File: "record/" + markFile, What: IsGone}
	case !there:
		rand.Read(secret[:]) // never fails
		if err := writeSecret(fsys, secret); err != nil {
			return secret, nil, err
		}
	}
	w = &witness{mark: m}
	if !marked {
		w.state = stateOf(secret)
		if err := disk.MakeDirs(record, "."); err != nil {
			return secret, nil, fmt.Errorf("journal: record: %w", err)
		}
		if err := disk.WriteFile(record, markFile, w.append(nil), make([]byte, place)); err != nil {
			return secret, nil, fmt.Errorf("journal: record: %w", err)
		}
	}
	if w.out, err = record.OpenWrite(markFile); err != nil {
		return secret, nil, fmt.Errorf("journal: record: %w", err)
	}
	return secret, w, nil
}

// inUse says whether a gateway makes a file of that name once its mark stands.
func inUse(name string) bool {
	for _, prefix := range []string{forwardPrefix, roundPrefix, damagedPrefix, "opened-", "retired-"} {
		if strings.HasPrefix(name, prefix) && !disk.IsTemp(name) {
			return true
		}
	}
	return false
}

// stateOf names the state that a secret is of, and tells nothing of it.
func stateOf(secret [secretSize]byte) [32]byte {
	h := sha256.New()
	h.Write([]byte(stateDomain))
	h.Write(secret[:])
	return [32]byte(h.Sum(nil))
}

// Secret is what the directory's names of reports are made with.
func (j *Journal) Secret() [secretSize]byte { return j.secret }

// State names this state among all gateways', for whoever keeps something of it elsewhere.
func (j *Journal) State() [32]byte { return j.witness.state }
