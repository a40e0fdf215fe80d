package keyset

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset/vault"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/wire"
	"github.com/starling-agg/starling/sealed"
)

// ErrDamaged: the vault does not hold what the set wrote there. A report sealed to a
// key that is gone cannot be opened; to go on without the key, move the directory away,
// and the next start makes new keys.
var ErrDamaged = errors.New("keyset: damaged")

// A record is what the state says of one key.
type record struct {
	serial     uint64 // counts keys; names the file
	id         uint8
	suite      sealed.Suite
	created    time.Time
	offered    time.Time // zero: it waits until every replica holds it
	superseded time.Time // zero: it is the current key of its suite, or is to be
	// uploads are taken until then, if it is there: a signed list said so
	promised time.Time
	// the version of the state that closed it for work at all replicas; 0: none has
	closed    uint64
	destroyed time.Time // zero: it lives
	// of the public key's bytes: ids are few, and another set has the same
	public [sha256.Size]byte
}

// name is that of its secret.
func (r *record) name() string { return fmt.Sprintf("%016x", r.serial) }

func (r *record) lives() bool { return r.destroyed.IsZero() }

// current says whether the key is offered, or waits to be and none newer is there.
func (r *record) current() bool { return r.lives() && r.superseded.IsZero() }

const (
	fileSuffix = ".hpke"
	// stateMagic opens the state and holds the version of its format.
	stateMagic = "starling hpke keys v4\n"
)

// A keyState is the records of all keys.
type keyState []record

// errState is about the file of a keyState.
var errState = fmt.Errorf("%w: state", ErrDamaged)

// code reads and writes
//
//	opaque magic[22] = "starling hpke keys v4\n";
//	struct {
//	  uint64 serial; uint8 id; uint16 kem, kdf, aead;
//	  uint64 created, offered, superseded, promised; (nanoseconds since 1970; 0: not yet)
//	  uint64 closed; (a version)
//	  uint64 destroyed;
//	  opaque public[32]; (SHA-256 of the public key)
//	} records<0..2^16-1>;
func (s *keyState) code(c *wire.Coder) {
	var taken [ids]bool
	c.Const(stateMagic, "not a starling HPKE key state of version 4")
	c.Nested16("records", func() {
		wire.Items(c, (*[]record)(s), func(i int, r *record) {
			c.Uint64(&r.serial, "serial")
			c.Uint8(&r.id, "id")
			c.Uint16(&r.suite.KEM, "KEM")
			c.Uint16(&r.suite.KDF, "KDF")
			c.Uint16(&r.suite.AEAD, "AEAD")
			codeTime(c, &r.created)
			codeTime(c, &r.offered)
			codeTime(c, &r.superseded)
			codeTime(c, &r.promised)
			c.Uint64(&r.closed, "version that closed it")
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

// NoKeys is the state of a set that has no key, for whoever destroys all keys of a vault
// and leaves its version: without a state that vault would be damaged.
func NoKeys() ([]byte, error) { return appendState(nil) }

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

// readState reads the state, where there is one: version 0 is none.
func (s *Set) readState(ctx context.Context) (records []record, version uint64, err error) {
	state, version, err := s.vault.State(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("keyset: %w", err)
	}
	if version == 0 {
		return nil, 0, nil
	}
	records, err = parseState(state)
	return records, version, err
}

// begin makes the state of a new set, which names nothing, before there is a key: keys
// without a state are then damage, and are not touched.
func (s *Set) begin(ctx context.Context) error {
	names, err := s.vault.Names(ctx)
	if err != nil {
		return fmt.Errorf("keyset: %w", err)
	}
	if len(names) > 0 {
		return fmt.Errorf("%w: the state is gone, and there are keys that it named", ErrDamaged)
	}
	if s.opt.Known {
		return fmt.Errorf("%w: the state is gone, and all keys", ErrDamaged)
	}
	return s.save(ctx, nil)
}

// readPair reads the key that a record names.
func (s *Set) readPair(ctx context.Context, r *record) (*sealed.KeyPair, error) {
	file, err := s.vault.Get(ctx, r.name())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: key %d is gone", ErrDamaged, r.id)
	case errors.Is(err, vault.ErrDamaged):
		return nil, fmt.Errorf("%w: key %d: %w", ErrDamaged, r.id, err)
	case err != nil:
		return nil, fmt.Errorf("keyset: %w", err)
	}
	defer clear(file)
	pair, err := sealed.ParseKeyPair(file)
	if err != nil || pair.ID() != r.id || pair.Public().Suite() != r.suite || sha256.Sum256(pair.Public().Bytes()) != r.public {
		return nil, fmt.Errorf("%w: key %d is not what was written", ErrDamaged, r.id)
	}
	return pair, nil
}

// makePair makes a key, has the vault keep it, and completes its record.
func (s *Set) makePair(ctx context.Context, r *record) (*sealed.KeyPair, error) {
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
	if err := s.vault.Put(ctx, r.name(), file); err != nil {
		return nil, fmt.Errorf("keyset: %w", err)
	}
	return pair, nil
}

// save makes the records the durable state. s.step must be held, or s not yet shared.
func (s *Set) save(ctx context.Context, records []record) error {
	state, err := appendState(records)
	if err != nil {
		return err
	}
	if err := s.vault.Save(ctx, state, s.version); err != nil {
		// A state that is stale is not there; whether an earlier one is, it does not say.
		s.unsure = s.unsure || !errors.Is(err, vault.ErrStale)
		return fmt.Errorf("keyset: %w", err)
	}
	s.unsure = false
	s.version++
	return nil
}

// living names the secrets of the records that live.
func living(records []record) (names []string) {
	for i := range records {
		if r := &records[i]; r.lives() {
			names = append(names, r.name())
		}
	}
	return names
}

// sweep destroys every key that no living record names: those that have ended, and what a
// crash left.
func (s *Set) sweep(ctx context.Context, records []record) error {
	if err := s.vault.Keep(ctx, living(records), s.version); err != nil {
		return fmt.Errorf("keyset: destroy a key: %w", err)
	}
	return nil
}

// directory is the vault of one process.
func (o *Options) directory() *vault.Dir {
	return &vault.Dir{
		FS: o.FS, Path: o.Dir, Suffix: fileSuffix,
		Overwritten: func() error { return o.Failpoints.Hit(failAfterOverwrite) },
		Removed:     func() error { return o.Failpoints.Hit(failAfterRemove) },
	}
}

// Reset makes the directory of a set whose keys are lost that of one that never had any,
// and destroys the keys that lie there. Reports sealed to them are lost for good. The set
// must not be open.
func Reset(fsys disk.FS, dir string) error {
	ctx := context.Background()
	opt := &Options{FS: fsys, Dir: dir}
	d := opt.directory()
	if err := d.Make(); err != nil {
		return fmt.Errorf("keyset: %w", err)
	}
	s := &Set{vault: d}
	if err := s.save(ctx, nil); err != nil {
		return err
	}
	return s.sweep(ctx, nil)
}
