package wrap

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/wire"
)

const (
	// fileMagic opens the file of a wrapping key and holds the version of its format.
	fileMagic  = "starling wrapping key v1\n"
	fileSuffix = ".wrap"
	// endingSuffix is that of a key that has ended, whose file is about to go.
	endingSuffix = ".ended"
	keySize      = 32
	fileSize     = len(fileMagic) + 2*8 + keySize + sha256.Size

	// domainSecret and domainName are in docs/registry.md.
	domainSecret = "starling wrapped secret v1"
	domainName   = "starling wrapping key name v1"

	// maxKeys bounds how many wrapping keys a directory has.
	maxKeys = 4096
)

// Failpoints of this package.
const (
	failAfterAdd       = "wrap.after-add"       // a new key's file is durable
	failAfterOverwrite = "wrap.after-overwrite" // the file of a key that ends holds zeros
)

// FailpointNames lists the failpoints of this package.
func FailpointNames() []string { return []string{failAfterAdd, failAfterOverwrite} }

var _ Wrapper = (*Files)(nil)

// Files are wrapping keys in a directory, one a file; they wrap with AES-256-GCM. The
// directory is read for each call, so keys that come or go need no restart. All replicas
// have the same files, and no database and no backup of it has them.
type Files struct {
	fs   disk.FS
	dir  string
	fail *disk.Failpoints
}

// A file is what is in one.
type file struct {
	serial  uint64 // counts the keys; the highest is the newest
	created time.Time
	key     [keySize]byte
}

func (f *file) code(c *wire.Coder) {
	c.Const(fileMagic, "not a starling wrapping key of version 1")
	c.Uint64(&f.serial, "serial")
	n := f.created.Unix()
	if c.Int64(&n, "time"); !c.Writing() {
		f.created = time.Unix(n, 0).UTC()
	}
	c.Fixed(f.key[:], "key")
}

// name is what boxes call the key.
func (f *file) name() string {
	sum := sha256.Sum256(append([]byte(domainName), f.key[:]...))
	return hex.EncodeToString(sum[:16])
}

func serialFile(dir string, serial uint64) string {
	return path.Join(dir, fmt.Sprintf("%016x%s", serial, fileSuffix))
}

func (f *file) aead() cipher.AEAD {
	block, err := aes.NewCipher(f.key[:])
	if err == nil {
		var a cipher.AEAD
		if a, err = cipher.NewGCMWithRandomNonce(block); err == nil {
			return a
		}
	}
	panic("wrap: internal error: " + err.Error()) // 32 bytes are a key
}

// errFile is about the bytes of a wrapping key's file.
var errFile = errors.New("not what was written")

// OpenFiles opens a directory of wrapping keys, which may have none yet ([Files.Add]).
func OpenFiles(fsys disk.FS, dir string, fail *disk.Failpoints) (*Files, error) {
	if err := disk.CheckName(dir); err != nil {
		return nil, fmt.Errorf("wrap: %w", err)
	}
	f := &Files{fs: fsys, dir: dir, fail: fail}
	if err := disk.MakeDirs(fsys, dir); err != nil {
		return nil, fmt.Errorf("wrap: %w", err)
	}
	_, err := f.serials()
	return f, err
}

// serials are those of the keys that are there, the newest first.
func (f *Files) serials() (list []uint64, err error) {
	entries, err := f.fs.ReadDir(f.dir)
	if err != nil {
		return nil, fmt.Errorf("wrap: %w", err)
	}
	for _, e := range entries {
		text, ok := strings.CutSuffix(e.Name, fileSuffix)
		b, err := hex.DecodeString(text)
		if !ok || e.Dir || err != nil || len(b) != 8 {
			continue
		}
		list = append(list, binary.BigEndian.Uint64(b))
	}
	if len(list) > maxKeys {
		return nil, fmt.Errorf("wrap: %s has %d wrapping keys, and at most %d are read", f.dir, len(list), maxKeys)
	}
	slices.Sort(list)
	slices.Reverse(list)
	return list, nil
}

// read reads one key. One that ended meanwhile is [fs.ErrNotExist].
func (f *Files) read(serial uint64) (*file, error) {
	name := serialFile(f.dir, serial)
	if err := disk.CheckPrivate(f.fs, name); err != nil {
		return nil, fmt.Errorf("wrap: %w", err)
	}
	b, err := disk.ReadFile(f.fs, name, int64(fileSize))
	if err != nil {
		return nil, fmt.Errorf("wrap: %w", err)
	}
	defer clear(b)
	key := new(file)
	content, ok := wire.CutSum(b)
	if !ok {
		err = fmt.Errorf("%w: wrong checksum", errFile)
	} else if err = wire.Read(content, errFile, key.code); err == nil && key.serial != serial {
		err = fmt.Errorf("%w: it is key %d", errFile, key.serial)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w: put it back as it was", ErrNoKey, name, err)
	}
	return key, nil
}

// newest is the key to wrap with. A newest file that is damaged is an error and not a
// reason to take an older one, which may be about to end.
func (f *Files) newest() (*file, error) {
	serials, err := f.serials()
	if err != nil {
		return nil, err
	}
	if len(serials) == 0 {
		return nil, fmt.Errorf("%w: %s has none", ErrNoKey, f.dir)
	}
	return f.read(serials[0])
}

// Newest implements [Wrapper].
func (f *Files) Newest(context.Context) (string, error) {
	key, err := f.newest()
	if err != nil {
		return "", err
	}
	defer clear(key.key[:])
	return key.name(), nil
}

// bound is the additional data of a box.
func bound(key string, aad []byte) []byte {
	b := append([]byte(domainSecret), byte(len(key)))
	return append(append(b, key...), aad...)
}

// Wrap implements [Wrapper].
func (f *Files) Wrap(_ context.Context, secret, aad []byte) (Box, error) {
	if err := Check(secret); err != nil {
		return Box{}, err
	}
	key, err := f.newest()
	if err != nil {
		return Box{}, err
	}
	defer clear(key.key[:])
	name := key.name()
	return Box{Key: name, Sealed: key.aead().Seal(nil, nil, secret, bound(name, aad))}, nil
}

// Unwrap implements [Wrapper]. A damaged file hides no other key.
func (f *Files) Unwrap(_ context.Context, box Box, aad []byte) ([]byte, error) {
	if !box.Fits() {
		return nil, ErrBox
	}
	serials, err := f.serials()
	if err != nil {
		return nil, err
	}
	var damaged error
	for _, serial := range serials {
		key, err := f.read(serial)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, ErrNoKey):
			damaged = err
			continue
		case err != nil:
			return nil, err
		}
		defer clear(key.key[:])
		if key.name() != box.Key {
			continue
		}
		secret, err := key.aead().Open(nil, nil, box.Sealed, bound(box.Key, aad))
		if err != nil {
			return nil, ErrBox
		}
		return secret, nil
	}
	if damaged != nil {
		return nil, fmt.Errorf("%w: %s, unless it is the damaged one: %w", ErrNoKey, box.Key, damaged)
	}
	return nil, fmt.Errorf("%w: %s has no key %s", ErrNoKey, f.dir, box.Key)
}

// Keys are the names of the keys that are there, the newest first. It fails where one is
// damaged.
func (f *Files) Keys() (names []string, err error) {
	serials, err := f.serials()
	if err != nil {
		return nil, err
	}
	for _, serial := range serials {
		key, err := f.read(serial)
		if err != nil {
			return nil, err
		}
		names = append(names, key.name())
		clear(key.key[:])
	}
	return names, nil
}

// Add makes a key of crypto/rand, which is the newest one from now on, and says its name.
// Where there are several replicas, each is to have the file before anybody wraps with it:
// it is made elsewhere, and copied.
func (f *Files) Add(now time.Time) (name string, err error) {
	serials, err := f.serials()
	if err != nil {
		return "", err
	}
	key := &file{serial: 1, created: now}
	if len(serials) > 0 {
		key.serial = serials[0] + 1
	}
	rand.Read(key.key[:])
	defer clear(key.key[:])
	b := wire.AppendSum(wire.MustAppend(nil, key.code), 0)
	defer clear(b)
	if err := disk.WriteFile(f.fs, serialFile(f.dir, key.serial), b); err != nil {
		return "", fmt.Errorf("wrap: %w", err)
	}
	return key.name(), f.fail.Hit(failAfterAdd)
}

// ErrInUse: the newest wrapping key does not end.
var ErrInUse = errors.New("wrap: the newest wrapping key is in use: add a newer one first")

// End overwrites and removes a key, other than the newest. Boxes of its own are lost for
// good. Again is harmless, and ends what a crash left.
func (f *Files) End(name string) error {
	if err := f.sweep(); err != nil {
		return err
	}
	serials, err := f.serials()
	if err != nil {
		return err
	}
	for i, serial := range serials {
		key, err := f.read(serial)
		if err != nil {
			return err
		}
		found := key.name() == name
		clear(key.key[:])
		if !found {
			continue
		}
		if i == 0 {
			return ErrInUse
		}
		// Under another name first: half overwritten, it would be a damaged key.
		from := serialFile(f.dir, serial)
		err = f.fs.Rename(from, strings.TrimSuffix(from, fileSuffix)+endingSuffix)
		if err == nil {
			err = f.fs.SyncDir(f.dir)
		}
		if err != nil {
			return fmt.Errorf("wrap: end a wrapping key: %w", err)
		}
		return f.sweep()
	}
	return nil
}

// sweep destroys the files of keys that have ended.
func (f *Files) sweep() error {
	entries, err := f.fs.ReadDir(f.dir)
	if err != nil {
		return fmt.Errorf("wrap: %w", err)
	}
	for _, e := range entries {
		if e.Dir || path.Ext(e.Name) != endingSuffix {
			continue
		}
		err := disk.Shred(f.fs, path.Join(f.dir, e.Name), func() error { return f.fail.Hit(failAfterOverwrite) })
		if err != nil {
			return fmt.Errorf("wrap: end a wrapping key: %w", err)
		}
	}
	return nil
}
