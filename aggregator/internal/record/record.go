// Package record keeps who an aggregator's store is and how far it has come, on a file
// system outside of the store's own, so that a store that was put back, exchanged or lost
// is found out. It knows nothing of what is in the store.
//
// The file "mark" has two places that are written in turn, each with a checksum: one small
// write and one sync, and a crash in the middle leaves the mark before. The store writes it
// after what it speaks of is durable and before anybody else learns of that. So a mark may
// be behind its store, never ahead of it: a store that is behind its mark has been put
// back.
package record

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/wire"
)

// Errors to branch on with errors.Is.
var (
	// ErrNone: there is no mark.
	ErrNone = errors.New("record: there is none")
	// ErrDamaged: neither place of the mark can be read.
	ErrDamaged = errors.New("record: damaged")
	// ErrBack: the mark would go back.
	ErrBack = errors.New("record: a mark never goes back")
)

// An Identity says whose store it is. It never changes.
type Identity struct {
	Role  dap.Role
	Party string // the URL under which the aggregator is reached
	ID    [16]byte
}

// A State is what a store was doing when its mark was written.
type State uint8

const (
	Begun     State = iota // it is being made: nothing was ever taken
	Resting                // it was closed in order, and its write-ahead log was empty
	InUse                  // it was opened, and has a write-ahead log
	Restoring              // a backup is being put in its place: there is no store yet
)

// A Mark is how far a store has come. Epoch counts how often it was restored from a backup.
// In an epoch nothing of it ever goes down.
type Mark struct {
	State    State
	Epoch    uint32
	Age      uint64 // changes of the store, as it counts them
	Releases uint64
	Total    [32]byte // the digest over all releases
}

// Behind says whether a store that has come as far as m was put back: it is behind other.
func (m *Mark) Behind(other *Mark) bool {
	if m.Epoch != other.Epoch {
		return m.Epoch < other.Epoch
	}
	return m.Age < other.Age || m.Releases < other.Releases
}

// A Record is an open record. Its methods are not for concurrent use.
type Record struct {
	Identity
	Mark

	file   disk.File
	serial uint64 // of the place that was written last
}

const (
	// Name is the file of the mark.
	Name = "mark"
	// magic opens a place and holds the version of its format.
	magic = "starling mark v1\n"
	// place is the size of a place, in bytes: of a sector, so that a torn write of one
	// leaves the other.
	place = 4096
	// maxParty bounds a party's name, in bytes.
	maxParty = 2048
)

// Open reads the mark. It fails with [ErrNone], [ErrDamaged] and the disk's errors.
func Open(fsys disk.FS) (*Record, error) {
	b, err := disk.ReadFile(fsys, Name, 2*place)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	var r *Record
	for len(b) > 0 {
		n := min(place, len(b))
		if next := parse(b[:n]); next != nil && (r == nil || next.serial > r.serial) {
			r = next
		}
		b = b[n:]
	}
	if r == nil {
		return nil, ErrDamaged
	}
	if r.file, err = fsys.OpenWrite(Name); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	return r, nil
}

// Begin makes the mark of a new store.
func Begin(fsys disk.FS, id Identity) (*Record, error) {
	return replace(fsys, id, Mark{State: Begun})
}

// replace writes a mark whatever was there.
func replace(fsys disk.FS, id Identity, m Mark) (*Record, error) {
	if err := disk.MakeDirs(fsys, "."); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	r := &Record{Identity: id, Mark: m}
	b, err := r.append(nil)
	if err != nil {
		return nil, err
	}
	if err := disk.WriteFile(fsys, Name, b, make([]byte, place)); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	if r.file, err = fsys.OpenWrite(Name); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	return r, nil
}

// Write makes a mark durable. It fails with [ErrBack] rather than forget anything. After
// another error, what the disk holds is not known.
func (r *Record) Write(m Mark) error {
	if m.State == Begun || m.Behind(&r.Mark) {
		return ErrBack
	}
	next := *r
	next.Mark, next.serial = m, r.serial+1
	b, err := next.append(nil)
	if err != nil {
		return err
	}
	if _, err := r.file.WriteAt(b, int64(next.serial%2)*place); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if err := r.file.Sync(); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	*r = next
	return nil
}

// Raise begins a restore: the next epoch, of a store that has done nothing yet. Until the
// restore is done, whatever lies in the store's place is no store.
func (r *Record) Raise() error {
	if r.Epoch == math.MaxUint32 {
		return ErrBack
	}
	return r.Write(Mark{State: Restoring, Epoch: r.Epoch + 1})
}

// Close releases the file.
func (r *Record) Close() error { return r.file.Close() }

// code reads and writes a place up to its checksum.
func (r *Record) code(c *wire.Coder) {
	c.Const(magic, "not a starling mark of version 1")
	c.Uint8((*uint8)(&r.Role), "role")
	c.Text16(&r.Party, "party")
	c.Fixed(r.ID[:], "id")
	c.Uint64(&r.serial, "serial")
	c.Uint8((*uint8)(&r.State), "state")
	c.CheckRead(r.State <= Restoring, "unknown state")
	c.Uint32(&r.Epoch, "epoch")
	c.Uint64(&r.Age, "age")
	c.Uint64(&r.Releases, "releases")
	c.Fixed(r.Total[:], "total")
}

// append writes a place: the magic; role u8, party<0..2^16-1>, id; serial u64, state u8,
// epoch u32, age u64, releases u64, total; the SHA-256 of all before; zeros.
func (r *Record) append(to []byte) ([]byte, error) {
	if len(r.Party) > maxParty {
		return nil, fmt.Errorf("record: a party's name of %d bytes, and %d are the most", len(r.Party), maxParty)
	}
	b := wire.AppendSum(wire.MustAppend(to, r.code), len(to))
	return append(b, make([]byte, place-(len(b)-len(to)))...), nil
}

// parse reads the one encoding of a place, or nil.
func parse(b []byte) *Record {
	r := new(Record)
	c := wire.Reader(b, ErrDamaged)
	if r.code(&c); c.Err() != nil {
		return nil
	}
	if again, err := r.append(nil); err != nil || !bytes.Equal(again, b) {
		return nil
	}
	return r
}

const (
	// beside is the file that says whose store a directory is.
	beside = "identity"
	// storeMagic is its first line, and holds the version of its format.
	storeMagic = "starling store v1"
)

// ErrNoIdentity: a directory does not say whose store it is, or not readably.
var ErrNoIdentity = errors.New("record: no identity")

// text is the identity as a file of a few lines, for people and for this package.
func (id *Identity) text() []byte {
	b := fmt.Appendf(nil, storeMagic+"\nrole %v\nparty %q\nid %x\n", id.Role, id.Party, id.ID)
	return fmt.Appendf(b, "check %x\n", sha256.Sum256(b))
}

// ReadIdentity reads whose store a directory is. It fails with [ErrNoIdentity] and the
// disk's errors.
func ReadIdentity(fsys disk.FS) (id Identity, err error) {
	b, err := disk.ReadFile(fsys, beside, 4*maxParty)
	if errors.Is(err, fs.ErrNotExist) {
		return id, fmt.Errorf("%w: %s is gone", ErrNoIdentity, beside)
	}
	if err != nil {
		return id, fmt.Errorf("record: %w", err)
	}
	var role string
	var raw []byte
	_, err = fmt.Fscanf(bytes.NewReader(b), storeMagic+"\nrole %s\nparty %q\nid %x\n", &role, &id.Party, &raw)
	switch role {
	case dap.RoleLeader.String():
		id.Role = dap.RoleLeader
	case dap.RoleHelper.String():
		id.Role = dap.RoleHelper
	}
	if err != nil && !errors.Is(err, io.EOF) || copy(id.ID[:], raw) != len(id.ID) || !bytes.Equal(b, id.text()) {
		return Identity{}, fmt.Errorf("%w: %s is damaged", ErrNoIdentity, beside)
	}
	return id, nil
}

// WriteIdentity says whose store a directory is.
func WriteIdentity(fsys disk.FS, id Identity) error {
	if err := disk.WriteFile(fsys, beside, id.text()); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}
