package keyset

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/wire"
	"github.com/starling-agg/starling/sealed"
)

// ErrDamaged: the directory does not hold what the set wrote there. A report sealed to a
// key that is gone cannot be opened; to go on without the key, move the directory away,
// and the next start makes new keys.
var ErrDamaged = errors.New("keyset: damaged")

// A record is what the state says of one key.
type record struct {
	serial     uint64 // counts keys; names the file
	id         uint8
	suite      sealed.Suite
	created    time.Time
	superseded time.Time // zero: it is the current key of its suite
	// uploads are taken until then, if it is there: a signed list said so
	promised  time.Time
	destroyed time.Time // zero: it lives
	// of the public key's bytes: ids are few, and another set has the same
	public [sha256.Size]byte
}

func (r *record) file(dir string) string {
	return path.Join(dir, fmt.Sprintf("%016x%s", r.serial, fileSuffix))
}

func (r *record) lives() bool { return r.destroyed.IsZero() }

const (
	stateName  = "state"
	fileSuffix = ".hpke"
	// stateMagic opens the state and holds the version of its format.
	stateMagic = "starling hpke keys v3\n"
	// maxState bounds the state, in bytes; there are at most 256 ids.
	maxState = 1 << 16
	// maxKeyFile bounds a key's file, in bytes: an X-Wing key pair has about 1.3 KB.
	maxKeyFile = 1 << 14
)

// A keyState is the records of all keys.
type keyState []record

// errState is about the file of a keyState.
var errState = fmt.Errorf("%w: state", ErrDamaged)

// code reads and writes
//
//	opaque magic[22] = "starling hpke keys v3\n";
//	struct {
//	  uint64 serial; uint8 id; uint16 kem, kdf, aead;
//	  uint64 created, superseded, promised, destroyed; (nanoseconds since 1970; 0: not yet)
//	  opaque public[32]; (SHA-256 of the public key)
//	} records<0..2^16-1>;
func (s *keyState) code(c *wire.Coder) {
	var taken [ids]bool
	c.Const(stateMagic, "not a starling HPKE key state of version 3")
	c.Nested16("records", func() {
		wire.Items(c, (*[]record)(s), func(i int, r *record) {
			c.Uint64(&r.serial, "serial")
			c.Uint8(&r.id, "id")
			c.Uint16(&r.suite.KEM, "KEM")
			c.Uint16(&r.suite.KDF, "KDF")
			c.Uint16(&r.suite.AEAD, "AEAD")
			codeTime(c, &r.created)
			codeTime(c, &r.superseded)
			codeTime(c, &r.promised)
			codeTime(c, &r.destroyed)
			c.Fixed(r.public[:], "digest of the public key")
			c.Check(!taken[r.id] && (i == 0 || (*s)[i-1].serial < r.serial), "an id is there twice, or keys are out of order")
			taken[r.id] = true
		})
	})
}

// codeTime is a time in nanoseconds; 0 stands for none.
func codeTime(c *wire.Coder, t *time.Time) {
	var nanos int64
	if c.Writing() && !t.IsZero() {
		nanos = t.UnixNano()
	}
	if c.Int64(&nanos, "time"); !c.Writing() && nanos != 0 {
		*t = time.Unix(0, nanos).UTC()
	}
}

// appendState writes the records, and the SHA-256 of that.
func appendState(records []record) ([]byte, error) {
	b, err := wire.Append(nil, errState, (*keyState)(&records).code)
	if err != nil {
		return nil, err
	}
	return wire.AppendSum(b, 0), nil
}

// parseState reads the one encoding of a state, or fails with [ErrDamaged].
func parseState(file []byte) ([]record, error) {
	content, ok := wire.CutSum(file)
	if !ok {
		return nil, fmt.Errorf("%w: wrong checksum", errState)
	}
	var records keyState
	if err := wire.Read(content, errState, records.code); err != nil {
		return nil, err
	}
	return records, nil
}

// readState reads the state, where there is one.
func (s *Set) readState() (records []record, found bool, err error) {
	name := path.Join(s.opt.Dir, stateName)
	file, err := disk.ReadFile(s.opt.FS, name, maxState)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("keyset: %w", err)
	}
	records, err = parseState(file)
	return records, err == nil, err
}

// begin makes the state of a new set, which names nothing, before there is a key: keys
// without a state are then damage, and are not touched.
func (s *Set) begin() error {
	entries, err := s.opt.FS.ReadDir(s.opt.Dir)
	if err != nil {
		return fmt.Errorf("keyset: %w", err)
	}
	state := path.Join(s.opt.Dir, stateName)
	if slices.ContainsFunc(entries, func(e disk.Entry) bool { return !e.Dir && isKeyFile(e.Name) }) {
		return fmt.Errorf("%w: %s is gone, and there are files of keys that it named", ErrDamaged, state)
	}
	if s.opt.Known {
		return fmt.Errorf("%w: %s is gone, and the files of all keys", ErrDamaged, state)
	}
	return s.save(nil)
}

// readPair reads the key that a record names.
func (s *Set) readPair(r *record) (*sealed.KeyPair, error) {
	if err := disk.CheckPrivate(s.opt.FS, r.file(s.opt.Dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("keyset: %w", err)
	}
	file, err := disk.ReadFile(s.opt.FS, r.file(s.opt.Dir), maxKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the file of key %d is gone", ErrDamaged, r.id)
	}
	if err != nil {
		return nil, fmt.Errorf("keyset: %w", err)
	}
	defer clear(file)
	pair, err := sealed.ParseKeyPair(file)
	if err != nil || pair.ID() != r.id || pair.Public().Suite() != r.suite || sha256.Sum256(pair.Public().Bytes()) != r.public {
		return nil, fmt.Errorf("%w: the file of key %d is not what was written", ErrDamaged, r.id)
	}
	return pair, nil
}

// makePair makes a key and its file, durably, and completes its record.
func (s *Set) makePair(r *record) (*sealed.KeyPair, error) {
	pair, err := sealed.Generate(r.id, r.suite)
	if err != nil {
		return nil, fmt.Errorf("keyset: %w", err)
	}
	r.public = sha256.Sum256(pair.Public().Bytes())
	file, err := pair.Marshal()
	if err != nil {
		return nil, fmt.Errorf("keyset: %w", err)
	}
	defer clear(file)
	if err := disk.WriteFile(s.opt.FS, r.file(s.opt.Dir), file); err != nil {
		return nil, fmt.Errorf("keyset: %w", err)
	}
	return pair, nil
}

// save makes the records the durable state. s.step must be held, or s not yet shared.
func (s *Set) save(records []record) error {
	state, err := appendState(records)
	if err != nil {
		return err
	}
	s.unsure = true
	if err := disk.WriteFile(s.opt.FS, path.Join(s.opt.Dir, stateName), state); err != nil {
		return fmt.Errorf("keyset: %w", err)
	}
	s.unsure = false
	return nil
}

// sweep destroys every key file that no living record names: of keys that have ended, and
// what a crash left.
func (s *Set) sweep(records []record) error {
	entries, err := s.opt.FS.ReadDir(s.opt.Dir)
	if err != nil {
		return fmt.Errorf("keyset: %w", err)
	}
	living := make(map[string]bool)
	for i := range records {
		if r := &records[i]; r.lives() {
			living[r.file(s.opt.Dir)] = true
		}
	}
	for _, e := range entries {
		name := path.Join(s.opt.Dir, e.Name)
		if e.Dir || !isKeyFile(e.Name) || living[name] {
			continue
		}
		if err := s.shred(name); err != nil {
			return fmt.Errorf("keyset: destroy a key: %w", err)
		}
	}
	return nil
}

// isKeyFile tells the files of keys, whole or half written, from what is none of ours.
func isKeyFile(name string) bool {
	if disk.IsTemp(name) {
		name = strings.TrimSuffix(name, path.Ext(name))
	}
	return path.Ext(name) == fileSuffix
}

// shred overwrites and removes a file; see the package comment for what that gives.
func (s *Set) shred(name string) error {
	err := disk.Shred(s.opt.FS, name, func() error { return s.opt.Failpoints.Hit(failAfterOverwrite) })
	if err != nil {
		return err
	}
	return s.opt.Failpoints.Hit(failAfterRemove)
}

// Reset makes the directory of a set whose keys are lost that of one that never had any,
// and destroys the key files that lie there. Reports sealed to them are lost for good.
// The set must not be open.
func Reset(fsys disk.FS, dir string) error {
	if err := disk.MakeDirs(fsys, dir); err != nil {
		return fmt.Errorf("keyset: %w", err)
	}
	s := &Set{opt: Options{FS: fsys, Dir: dir}}
	if err := s.save(nil); err != nil {
		return err
	}
	return s.sweep(nil)
}
