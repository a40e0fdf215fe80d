package issuer

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/wire"
	"github.com/starling-agg/starling/signed"
)

const (
	keyMagic  = "starling issuer key v1"
	keySuffix = ".issuer"
	goneMagic = "starling issuer key gone v1"
	goneName  = "gone" // of the last epoch whose key was destroyed
)

// IsKeyFile says whether a file in a directory of keys is named as that of a key, or of one
// that was destroyed.
func IsKeyFile(name string) bool { return name == goneName || strings.HasSuffix(name, keySuffix) }

// Errors of keys, to branch on with errors.Is.
var (
	// ErrKey: a key's file is damaged, another issuer's, or can be read by others.
	ErrKey = errors.New("issuer: not a key of this issuer")
	// ErrNoKey: there is none of that epoch.
	ErrNoKey = errors.New("issuer: no key of that epoch")
	// ErrKeyExists: there is one of that epoch, or it was destroyed.
	ErrKeyExists = errors.New("issuer: the epoch has had its key")
)

// key is the key of one epoch.
type key struct {
	Role       signed.Role
	Deployment [32]byte
	Epoch      uint32
	private    *arc.PrivateKey
}

func (k *key) code(c *wire.Coder) {
	var b [arc.PrivateKeySize]byte
	defer clear(b[:])
	if c.Writing() {
		k.private.Append(b[:0])
	}
	c.Const(keyMagic, "not an issuer's key of version 1")
	c.Uint8((*uint8)(&k.Role), "role")
	c.Fixed(k.Deployment[:], "deployment")
	c.Uint32(&k.Epoch, "epoch")
	c.Fixed(b[:], "key")
	if !c.Writing() && c.Err() == nil {
		var err error
		if k.private, err = arc.ReadPrivateKey(b[:]); err != nil {
			c.Abort(fmt.Errorf("%w: %w", ErrKey, err))
		}
	}
}

// beside fails for a role beside which there is no issuer.
func beside(role signed.Role) error {
	switch role {
	case signed.Leader, signed.Helper, signed.Hop1, signed.Hop2:
		return nil
	}
	return fmt.Errorf("issuer: the %v has none", role)
}

func keyName(epoch uint32) string { return strconv.FormatUint(uint64(epoch), 10) + keySuffix }

// MakeKey makes the key of an epoch in a directory, and returns its public half, which goes
// into the epoch's manifest. It fails with [ErrKeyExists].
func MakeKey(dir disk.FS, role signed.Role, deployment [32]byte, epoch uint32) (*arc.PublicKey, error) {
	if err := beside(role); err != nil {
		return nil, err
	}
	last, any, err := lastGone(dir)
	if err != nil {
		return nil, err
	}
	if any && epoch <= last {
		return nil, fmt.Errorf("%w: that of epoch %d was destroyed", ErrKeyExists, epoch)
	}
	switch _, err := dir.Stat(keyName(epoch)); {
	case err == nil:
		return nil, fmt.Errorf("%w: %d", ErrKeyExists, epoch)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("issuer: %w", err)
	}
	k := &key{role, deployment, epoch, arc.GenerateKey()}
	b := wire.MustAppend(nil, k.code)
	defer clear(b)
	if err := disk.WriteFile(dir, keyName(epoch), b); err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	return k.private.PublicKey(), nil
}

// readKey reads the key of an epoch, which must be this issuer's. It fails with [ErrNoKey]
// and [ErrKey].
func readKey(dir disk.FS, role signed.Role, deployment [32]byte, epoch uint32) (*arc.PrivateKey, error) {
	b, err := readFile(dir, epoch)
	if err != nil {
		return nil, err
	}
	defer clear(b)
	return parseKey(b, role, deployment, epoch)
}

// readFile reads the file of an epoch's key, which the caller clears.
func readFile(dir disk.FS, epoch uint32) ([]byte, error) {
	name := keyName(epoch)
	if err := disk.CheckPrivate(dir, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	b, err := disk.ReadFile(dir, name, 4096)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %d", ErrNoKey, epoch)
	}
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	return b, nil
}

func parseKey(b []byte, role signed.Role, deployment [32]byte, epoch uint32) (*arc.PrivateKey, error) {
	k, name := new(key), keyName(epoch)
	if err := wire.Read(b, ErrKey, k.code); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if k.Role != role || k.Deployment != deployment || k.Epoch != epoch {
		return nil, fmt.Errorf("%w: %s is that of the %v's, for epoch %d of deployment %x", ErrKey, name, k.Role, k.Epoch, k.Deployment[:4])
	}
	return k.private, nil
}

// lastGone is the last epoch whose key was destroyed.
func lastGone(dir disk.FS) (epoch uint32, any bool, err error) {
	b, err := disk.ReadFile(dir, goneName, 4096)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err == nil {
		err = wire.Read(b, ErrKey, func(c *wire.Coder) {
			c.Const(goneMagic, "not a note of destroyed keys")
			c.Uint32(&epoch, "epoch")
		})
	}
	if err != nil {
		return 0, false, fmt.Errorf("issuer: %s: %w", goneName, err)
	}
	return epoch, true, nil
}

// epochs lists the epochs of files with a suffix.
func epochs(dir disk.FS, suffix string) (list []uint32, err error) {
	for entry, err := range disk.Files(dir, ".") {
		if err != nil {
			return nil, fmt.Errorf("issuer: %w", err)
		}
		digits, ok := strings.CutSuffix(entry.Name, suffix)
		if n, err := strconv.ParseUint(digits, 10, 32); ok && err == nil {
			list = append(list, uint32(n))
		}
	}
	return list, nil
}

// destroy overwrites and removes the keys of an epoch and of all before it, after it has
// noted that they are never to be made again.
func destroy(dir disk.FS, until uint32) error {
	if last, any, err := lastGone(dir); err != nil {
		return err
	} else if !any || last < until {
		err := disk.WriteFile(dir, goneName, wire.MustAppend(nil, func(c *wire.Coder) {
			c.Const(goneMagic, "")
			c.Uint32(&until, "epoch")
		}))
		if err != nil {
			return fmt.Errorf("issuer: %w", err)
		}
	}
	list, err := epochs(dir, keySuffix)
	if err != nil {
		return err
	}
	for _, epoch := range list {
		if epoch > until {
			continue
		}
		if err := disk.Shred(dir, keyName(epoch), nil); err != nil {
			return fmt.Errorf("issuer: %w", err)
		}
	}
	return nil
}

// ReadPublicKey is the public half of the key of an epoch in a directory. It fails with
// [ErrNoKey] and [ErrKey].
func ReadPublicKey(dir disk.FS, role signed.Role, deployment [32]byte, epoch uint32) (*arc.PublicKey, error) {
	k, err := readKey(dir, role, deployment, epoch)
	if err != nil {
		return nil, err
	}
	return k.PublicKey(), nil
}
