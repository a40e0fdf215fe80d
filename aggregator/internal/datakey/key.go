package datakey

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/wire"
)

// Domain strings of the secrets expanded from a data key; docs/registry.md lists them.
const (
	infoNoise = "starling data key noise v1"
	infoShare = "starling data key share v1"
	infoTask  = "starling data key task v1"
)

// SetID names all keys of one aggregator.
type SetID [16]byte

// A Record is what the store remembers of a key, which holds no secret.
type Record struct {
	Serial uint64    // counts the keys of a set, from 1
	From   time.Time // the time that it is of; the first one is of all before, too
	Until  time.Time // not included
	Ended  bool      // it was destroyed
}

// holds says whether the key is of a time.
func (r *Record) holds(at time.Time) bool {
	return (r.Serial == 1 || !at.Before(r.From)) && at.Before(r.Until)
}

// A Key is a copy of one data key. It does not print itself.
type Key struct {
	Serial uint64
	secret [keySize]byte
}

const keySize = 32

// Format implements [fmt.Formatter]: nothing of the key.
func (k *Key) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "data key %d", k.Serial) }

func (k *Key) expand(info string) []byte {
	b, err := hkdf.Expand(sha256.New, k.secret[:], info, keySize)
	if err != nil {
		panic("datakey: internal error: " + err.Error()) // the length is fixed
	}
	return b
}

// Noise is the key that draws of noise come from.
func (k *Key) Noise() *noise.Key { return (*noise.Key)(k.expand(infoNoise)) }

// Of is the key of one task for the time that k is of, from a secret of the task's: who
// lacks either has nothing of it.
func (k *Key) Of(task [32]byte, secret []byte) *Key {
	own := &Key{Serial: k.Serial}
	b, err := hkdf.Key(sha256.New, k.secret[:], secret, infoTask+string(task[:]), keySize)
	if err != nil {
		panic("datakey: internal error: " + err.Error()) // the length is fixed
	}
	copy(own.secret[:], b)
	clear(b)
	return own
}

// Wipe forgets the key, which is not used after it.
func (k *Key) Wipe() { clear(k.secret[:]) }

func (k *Key) aead() cipher.AEAD {
	key := k.expand(infoShare)
	defer clear(key)
	block, err := aes.NewCipher(key)
	if err == nil {
		var a cipher.AEAD
		if a, err = cipher.NewGCMWithRandomNonce(block); err == nil {
			return a
		}
	}
	panic("datakey: internal error: " + err.Error()) // 32 bytes are a key
}

// Seal seals what lies on the disk for as long as the key is there. aad says what it is.
func (k *Key) Seal(aad, plain []byte) []byte { return k.aead().Seal(nil, nil, plain, aad) }

// Open opens what was sealed with the same aad; an [ErrDamaged] where that is not so.
func (k *Key) Open(aad, box []byte) ([]byte, error) {
	plain, err := k.aead().Open(nil, nil, box, aad)
	if err != nil {
		return nil, fmt.Errorf("%w: what was sealed under data key %d does not open", ErrDamaged, k.Serial)
	}
	return plain, nil
}

const (
	fileSuffix = ".key"
	// fileMagic opens a key's file and holds the version of its format.
	fileMagic = "starling data key v1\n"
	fileSize  = len(fileMagic) + len(SetID{}) + 3*8 + keySize + sha256.Size
)

// A file is what is in one.
type file struct {
	set SetID
	Record
	secret [keySize]byte
}

// name is that of the key's file, without its suffix.
func (r *Record) name() string { return fmt.Sprintf("%016x", r.Serial) }

// isKeyFile tells the files of keys, whole or half written, from what is none of ours.
func isKeyFile(name string) bool {
	if disk.IsTemp(name) {
		name = strings.TrimSuffix(name, path.Ext(name))
	}
	return path.Ext(name) == fileSuffix
}

// code reads and writes a key's file up to its checksum; times are in seconds since 1970.
func (f *file) code(c *wire.Coder) {
	c.Const(fileMagic, "not a starling data key of version 1")
	c.Fixed(f.set[:], "set")
	c.Uint64(&f.Serial, "serial")
	codeUnix(c, &f.From)
	codeUnix(c, &f.Until)
	c.CheckRead(f.Serial > 0 && f.From.Before(f.Until), "key of no time")
	c.Fixed(f.secret[:], "secret")
}

func codeUnix(c *wire.Coder, t *time.Time) {
	n := t.Unix()
	if c.Int64(&n, "time"); !c.Writing() {
		*t = time.Unix(n, 0).UTC()
	}
}

func (f *file) append() []byte {
	return wire.AppendSum(wire.MustAppend(make([]byte, 0, fileSize), f.code), 0)
}

// errFile is about the bytes of a key's file.
var errFile = errors.New("not what was written")

// parseFile reads the one encoding of a key's file.
func parseFile(b []byte) (*file, error) {
	content, ok := wire.CutSum(b)
	if !ok {
		return nil, fmt.Errorf("%w: wrong checksum", errFile)
	}
	f := new(file)
	if err := wire.Read(content, errFile, f.code); err != nil {
		return nil, err
	}
	return f, nil
}

// newFile makes a key of crypto/rand.
func newFile(set SetID, r Record) *file {
	f := &file{set: set, Record: r}
	rand.Read(f.secret[:])
	return f
}
