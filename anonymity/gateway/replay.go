package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/starling-agg/starling/anonymity/gateway/internal/journal"
	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/sealed"
)

// ErrRetired: a key that was in use before and then was not. The record of its requests
// is forgotten, so the key may not come back.
var ErrRetired = errors.New("gateway: the key was retired")

// Names of files in the gateway's directory; the rest of each is the key's name.
const (
	openedPrefix  = "opened-"
	retiredPrefix = "retired-"
)

// fingerprint names a request within its key's life.
type fingerprint uint64

const (
	replayDomain = "starling ohttp replay v1"
	keyDomain    = "starling ohttp key v1"
	reportDomain = "starling gateway report v1"
	relayDomain  = "starling gateway relay v1"
)

func fingerprintOf(enc []byte) fingerprint {
	h := sha256.New()
	h.Write([]byte(replayDomain))
	h.Write(enc)
	return fingerprint(binary.BigEndian.Uint64(h.Sum(nil)))
}

// keyName is what only this public key has.
func keyName(k *sealed.KeyPair) (name [journal.KeySize]byte, err error) {
	config, err := ohttp.NewKeyConfig(k).Append([]byte(keyDomain))
	if err != nil {
		return name, err
	}
	sum := sha256.Sum256(config)
	return [journal.KeySize]byte(sum[:]), nil
}

// opened is what one key has opened: fingerprints of requests, and the names of the
// reports in them. Entries not in its log yet are on their way there, behind their round.
type opened struct {
	log *disk.Log
	max int

	using sync.RWMutex // held for reading by requests that are being opened, for writing to end
	ended bool         // under using

	// The rest is guarded by Gateway.claims.
	at     journal.Opened // the end of the log
	seen   map[fingerprint]struct{}
	ids    map[[journal.IDSize]byte]struct{}
	relays map[[journal.RelaySize]byte]int // how many of seen each relay brought
}

// maxClaim bounds a record of a key's log, in bytes: what may come between two ticks is
// far below.
const maxClaim = 256 << 20

// openOpened reads what a key has opened. It fails with a *[StateError] where that is less
// than the journal vouches for, or something else.
func (g *Gateway) openOpened(raw [journal.KeySize]byte, name string) (*opened, error) {
	if _, err := g.o.FS.Stat(retiredPrefix + name); err == nil {
		return nil, ErrRetired
	}
	file := openedPrefix + name
	vouched, known := g.journal.Opened(raw)
	if known {
		if err := vouches(g.o.FS, file, vouched); err != nil {
			return nil, err
		}
	}
	o := &opened{at: journal.Opened{Key: raw}, max: g.o.MaxOpened, seen: make(map[fingerprint]struct{}), ids: make(map[[journal.IDSize]byte]struct{}),
		relays: make(map[[journal.RelaySize]byte]int)}
	log, _, err := disk.OpenLog(g.o.FS, file, disk.LogOptions{Clock: g.o.Clock, Failpoints: g.o.Failpoints, MaxRecord: maxClaim}, func(b []byte) error {
		c, err := journal.ReadClaim(b)
		if err == nil {
			o.add(c)
			o.at.Add(b)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("gateway: opened requests: %w", err)
	}
	o.log = log
	if !known { // from now on it has to be there
		if err := g.journal.Vouch(context.Background(), o.at); err != nil {
			return nil, errors.Join(fmt.Errorf("gateway: %w", err), log.Close())
		}
	}
	return o, nil
}

// vouches holds the log of a key to what the journal says of it. Nothing is changed.
func vouches(fsys disk.FS, file string, vouched journal.Opened) error {
	scan, err := disk.ScanLog(fsys, file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &StateError{File: file, What: journal.IsGone}
	case errors.Is(err, disk.ErrLogVersion):
		return &StateError{File: file, What: journal.IsNewer, Newer: true}
	case errors.Is(err, disk.ErrLogHeader) || err == nil && scan.Damaged:
		return &StateError{File: file, What: journal.IsDamaged}
	case err != nil:
		return fmt.Errorf("gateway: opened requests: %w", err)
	}
	at := journal.Opened{Key: vouched.Key}
	for _, record := range scan.Records {
		if at == vouched {
			return nil // what comes behind was written since
		}
		if at.Add(record); at.Records == vouched.Records && at.Chain != vouched.Chain {
			return &StateError{File: file, What: journal.IsAnothers}
		}
	}
	switch {
	case at == vouched:
		return nil
	case scan.Cut > 0:
		return &StateError{File: file, What: journal.IsDamaged}
	}
	return &StateError{File: file, What: journal.IsBack}
}

// add takes what was opened before. A claim may come twice: from a round and from the log.
func (o *opened) add(c *journal.Claim) {
	for _, p := range c.Prints {
		if _, ok := o.seen[fingerprint(p)]; !ok {
			o.seen[fingerprint(p)] = struct{}{}
			o.relays[c.Relay]++
		}
	}
	for _, id := range c.IDs {
		o.ids[id] = struct{}{}
	}
}

// retire forgets what keys other than those named have opened, and notes that they may
// not come back: first the note.
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

// has is a first look, before the costly opening. Gateway.claims must be held, as for
// the next.
func (o *opened) has(f fingerprint) bool {
	_, ok := o.seen[f]
	return ok
}

// claim returns nil to one caller for each fingerprint, ever. It refuses with
// [door.Replayed], and with [door.Spent] what is more than the key opens in its life, for
// all or for that relay.
func (o *opened) claim(f fingerprint, from *sender) error {
	if o.has(f) {
		return &door.Error{Reason: door.Replayed}
	}
	if len(o.seen) >= o.max || o.relays[from.name] >= from.PerKey {
		return &door.Error{Reason: door.Spent}
	}
	o.seen[f] = struct{}{}
	o.relays[from.name]++
	return nil
}

// count is how many requests a key has opened.
func (g *Gateway) count(o *opened) int {
	g.claims.Lock()
	defer g.claims.Unlock()
	return len(o.seen)
}
