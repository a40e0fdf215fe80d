package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/starling-agg/starling/internal/disk"
)

// Names of the files of a backup.
const (
	ManifestFile = "manifest"
	DatabaseFile = "store.db"
)

// magic is the first line of a manifest, and holds the version of its format.
const magic = "starling backup v1\n"

// maxManifest bounds a manifest, in bytes.
const maxManifest = 8192

// Errors to branch on with errors.Is.
var (
	// ErrDamaged: the backup is not as it was made, or is none.
	ErrDamaged = errors.New("backup: damaged")
	// ErrForeign: the backup is of another store.
	ErrForeign = errors.New("backup: of another store")
	// ErrExists: there is a backup already.
	ErrExists = errors.New("backup: there is one already")
	// ErrRecord: the record of the store cannot be read, and nothing is restored without
	// it.
	ErrRecord = errors.New("backup: no record")
)

// A Manifest says what a backup is of.
type Manifest struct {
	Role     string    `json:"role"`
	Party    string    `json:"party"`
	Store    string    `json:"store"` // its id, in hexadecimal digits
	Epoch    uint32    `json:"restore_epoch"`
	Releases uint64    `json:"releases"`
	Made     time.Time `json:"made"`
	Size     int64     `json:"size"`   // of the database, in bytes
	SHA256   string    `json:"sha256"` // of the database
}

// encode writes the magic, one line of JSON, and the SHA-256 of both.
func (m *Manifest) encode() ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	b = append(append([]byte(magic), b...), '\n')
	return fmt.Appendf(b, "check %x\n", sha256.Sum256(b)), nil
}

// Read reads the manifest of a backup and holds the database to it. It fails with
// [ErrDamaged].
func Read(from disk.FS) (*Manifest, error) {
	b, err := disk.ReadFile(from, ManifestFile, maxManifest)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	m, err := parse(b)
	if err != nil {
		return nil, err
	}
	return m, m.copy(from, io.Discard)
}

// parse reads the bytes of a manifest. It fails with [ErrDamaged].
func parse(b []byte) (*Manifest, error) {
	text, ok := bytes.CutPrefix(b, []byte(magic))
	line, _, _ := bytes.Cut(text, []byte("\n"))
	m := new(Manifest)
	if !ok || json.Unmarshal(line, m) != nil {
		return nil, fmt.Errorf("%w: %s is no manifest of this version", ErrDamaged, ManifestFile)
	}
	if again, err := m.encode(); err != nil || !bytes.Equal(again, b) {
		return nil, fmt.Errorf("%w: %s does not fit its checksum", ErrDamaged, ManifestFile)
	}
	return m, nil
}

// copy copies the database of a backup and fails where it is not that of the manifest.
func (m *Manifest) copy(from disk.FS, to io.Writer) error {
	size, sum, err := copyFile(from, DatabaseFile, to)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	case size != m.Size:
		return fmt.Errorf("%w: %s has %d bytes, and had %d", ErrDamaged, DatabaseFile, size, m.Size)
	case sum != m.SHA256:
		return fmt.Errorf("%w: %s does not fit its checksum", ErrDamaged, DatabaseFile)
	}
	return nil
}

// copyFile copies a file and says how long it is, and its SHA-256.
func copyFile(fsys disk.FS, name string, to io.Writer) (size int64, sum string, err error) {
	f, err := fsys.Open(name)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	if size, err = f.Size(); err != nil {
		return 0, "", err
	}
	h := sha256.New()
	if size, err = io.Copy(io.MultiWriter(to, h), io.NewSectionReader(f, 0, size)); err != nil {
		return 0, "", err
	}
	return size, hex.EncodeToString(h.Sum(nil)), nil
}
