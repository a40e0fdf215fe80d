package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/disk"
	"github.com/starling-agg/starling/sealed"
)

// ErrRetired: a key that was in use before and then was not. What it opened is forgotten, so it may not come back.
var ErrRetired = errors.New("gateway: the key was retired")

// Names of files in the gateway's directory; the rest of each is the key's name.
const (
	openedPrefix  = "opened-"
	retiredPrefix = "retired-"
)

// fingerprint names a request within its key's life.
type fingerprint uint64

const fingerprintSize = 8

const (
	replayDomain = "starling ohttp replay v1"
	keyDomain    = "starling ohttp key v1"
)

func fingerprintOf(enc []byte) fingerprint {
	h := sha256.New()
	h.Write([]byte(replayDomain))
	h.Write(enc)
	return fingerprint(binary.BigEndian.Uint64(h.Sum(nil)))
}

// keyName is 16 bytes in hexadecimal that only this public key has.
func keyName(k *sealed.KeyPair) (string, error) {
	config, err := ohttp.NewKeyConfig(k).Append([]byte(keyDomain))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(config)
	return hex.EncodeToString(sum[:16]), nil
}

// opened are the requests that one key has opened. Memory follows the log: what is in seen is in the log or on its way.
type opened struct {
	log *disk.Log
	max int

	using sync.RWMutex // held for reading by requests that are being opened, for writing to end
	ended bool         // under using

	mu   sync.Mutex // guards seen
	seen map[fingerprint]struct{}
}

// openOpened reads the fingerprints of the key of that name.
func openOpened(fsys disk.FS, name string, limit int, options disk.LogOptions) (*opened, error) {
	if _, err := fsys.Stat(retiredPrefix + name); err == nil {
		return nil, ErrRetired
	}
	o := &opened{max: limit, seen: make(map[fingerprint]struct{})}
	options.MaxRecord = fingerprintSize
	log, _, err := disk.OpenLog(fsys, openedPrefix+name, options, func(b []byte) error {
		if len(b) != fingerprintSize {
			return fmt.Errorf("gateway: a record of %d bytes among the fingerprints", len(b))
		}
		o.seen[fingerprint(binary.BigEndian.Uint64(b))] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("gateway: opened requests: %w", err)
	}
	o.log = log
	return o, nil
}

// retire forgets what keys other than those named have opened, and notes that they may not come back: first the note.
func retire(fsys disk.FS, names map[string]bool) error {
	entries, err := fsys.ReadDir(".")
	if err != nil {
		return fmt.Errorf("gateway: list directory: %w", err)
	}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name, openedPrefix)
		if !ok || disk.IsTemp(e.Name) || names[name] {
			continue
		}
		if err := disk.WriteFile(fsys, retiredPrefix+name, []byte("retired\n")); err != nil {
			return fmt.Errorf("gateway: retire key: %w", err)
		}
		if err := disk.Remove(fsys, e.Name); err != nil {
			return fmt.Errorf("gateway: retire key: %w", err)
		}
	}
	return nil
}

// enter says whether the key is still in use; if so, it stays until leave.
func (o *opened) enter() bool {
	o.using.RLock()
	if o.ended {
		o.using.RUnlock()
		return false
	}
	return true
}

func (o *opened) leave() { o.using.RUnlock() }

// end waits for the requests that are being opened, lets no other in, and closes the log.
func (o *opened) end() error {
	o.using.Lock()
	o.ended = true
	o.using.Unlock()
	return o.log.Close()
}

// has is a first look, before the costly opening.
func (o *opened) has(f fingerprint) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.seen[f]
	return ok
}

// claim returns nil to one caller for each fingerprint, ever, once that is durable. It refuses with [door.Replayed],
// [door.Full], and [door.Busy] where the disk fails.
func (o *opened) claim(ctx context.Context, f fingerprint) error {
	o.mu.Lock()
	if _, ok := o.seen[f]; ok {
		o.mu.Unlock()
		return &door.Error{Reason: door.Replayed}
	}
	if len(o.seen) >= o.max {
		o.mu.Unlock()
		return &door.Error{Reason: door.Full}
	}
	o.seen[f] = struct{}{}
	o.mu.Unlock()
	err := o.log.Append(ctx, binary.BigEndian.AppendUint64(nil, uint64(f)))
	if err == nil {
		return nil
	}
	if !errors.Is(err, disk.ErrStateUnknown) { // not written, so the device may send these bytes again
		o.mu.Lock()
		delete(o.seen, f)
		o.mu.Unlock()
	}
	return errors.Join(&door.Error{Reason: door.Busy}, err)
}

func (o *opened) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.seen)
}
