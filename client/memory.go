package client

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/internal/disk"
)

// Errors of a device's memory, to branch on with errors.Is.
var (
	// ErrClock: the device's clock is before a time that it has seen, and may have been
	// put back to make an old manifest hold again. Nothing is sent before that time
	// comes.
	ErrClock = errors.New("client: the clock is before a time that was seen")
	// ErrConflict is what every *ConflictError matches.
	ErrConflict = errors.New("client: a manifest contradicts one that was seen")
	// ErrMemory: what the device has seen cannot be read or written. Do not delete it:
	// put it back, or find out who changed it.
	ErrMemory = errors.New("client: what was seen of manifests cannot be used")
)

// A ConflictError: leader, helper and gateway have signed two manifests of which a device
// may hold one. Both are kept, to show to others: the signatures prove what the three
// have done.
type ConflictError struct {
	Seen, Given [32]byte // digests
	Why         string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("client: a manifest contradicts one that was seen: %s; %x was seen, and now %x", e.Why, e.Seen[:8], e.Given[:8])
}

// Is reports whether target is [ErrConflict].
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// MemoryDir is the directory, beside a device's ledger, of what it has seen of manifests.
const MemoryDir = "manifests"

const (
	clockFile      = "clock"
	clockMagic     = "starling clock v2\n"
	evidenceSuffix = ".evidence"
	maxEvidence    = 16 // files, over all deployments
	maxSeen        = 64 // deployments
)

// A Memory is what a device remembers of manifests: the last of each deployment, those
// that contradict one, and the largest time seen. Safe for concurrent use; the directory
// is one process's, as the ledger beside it.
//
//	manifests/clock                     below
//	manifests/<deployment>              the last manifest, as it was given
//	manifests/<deployment>-<digest>.evidence   one that contradicts it
//
// The clock vouches for the manifests, so that one that is gone or was put back is found
// out:
//
//	struct {
//	  opaque magic[18];          // "starling clock v2\n"
//	  uint64 latest;             // seconds since 1970
//	  struct {
//	    opaque deployment[32];
//	    opaque before[32];       // SHA-256 of its file, as it was; zero is none
//	    opaque after[32];        // the same, once the change under way is done
//	  } manifests[...];          // deployments rising
//	  opaque checksum[32];       // SHA-256 of all before it
//	};
type Memory struct {
	fsys disk.FS // nil: nothing outlives the process

	mu     sync.Mutex
	latest int64 // seconds since 1970
	seen   map[[32]byte]*ohttp.Manifest
	files  map[[32]byte]change // by deployment
}

// A change is of a manifest's file: the digests of what it was and is to be.
type change struct{ before, after [32]byte }

// OpenMemory reads what is remembered in a file system, and makes the directory if there
// is none. It fails with [ErrMemory].
func OpenMemory(fsys disk.FS) (*Memory, error) {
	m := &Memory{fsys: fsys, seen: make(map[[32]byte]*ohttp.Manifest), files: make(map[[32]byte]change)}
	if err := disk.MakeDirs(fsys, MemoryDir); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMemory, err)
	}
	there, err := m.readClock()
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrMemory, clockFile, err)
	}
	entries, err := fsys.ReadDir(MemoryDir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMemory, err)
	}
	for _, e := range entries {
		id, err := hex.DecodeString(e.Name)
		if err != nil || len(id) != 32 || e.Dir {
			continue
		}
		if !there {
			return nil, fmt.Errorf("%w: %s is gone, and manifests were seen", ErrMemory, clockFile)
		}
		b, err := disk.ReadFile(fsys, path.Join(MemoryDir, e.Name), ohttp.MaxManifest)
		c := m.files[[32]byte(id)]
		if sum := sha256.Sum256(b); err == nil && sum != c.after && sum != c.before {
			err = errors.New("is not the manifest that was seen last")
		}
		if err == nil {
			m.seen[[32]byte(id)], err = ohttp.ReadManifest(b)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrMemory, e.Name, err)
		}
		m.files[[32]byte(id)] = change{sha256.Sum256(b), c.after}
	}
	for id, c := range m.files {
		if m.seen[id] == nil && c.before != ([32]byte{}) {
			return nil, fmt.Errorf("%w: %x is gone, and it was seen", ErrMemory, id)
		}
	}
	return m, nil
}

// Forgetful is a memory that ends with the process: of a device that is made up, or has
// no directory of its own.
func Forgetful() *Memory {
	return &Memory{seen: make(map[[32]byte]*ohttp.Manifest), files: make(map[[32]byte]change)}
}

// readClock reads the clock, if there is one.
func (m *Memory) readClock() (there bool, err error) {
	const head, entry = len(clockMagic) + 8, 3 * 32
	b, err := disk.ReadFile(m.fsys, path.Join(MemoryDir, clockFile), int64(head+maxSeen*entry+sha256.Size))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	n := len(b) - sha256.Size
	if n < head || sha256.Sum256(b[:n]) != [32]byte(b[n:]) {
		return false, errors.New("is not what was written")
	}
	if !bytes.HasPrefix(b, []byte(clockMagic)) || (n-head)%entry != 0 {
		return false, errors.New("is of a newer version of this program, or is no clock")
	}
	m.latest = int64(binary.BigEndian.Uint64(b[len(clockMagic):head]))
	for list := b[head:n]; len(list) > 0; list = list[entry:] {
		m.files[[32]byte(list)] = change{[32]byte(list[32:]), [32]byte(list[64:])}
	}
	return true, nil
}

// writeClock makes the time, and what the files are to be, durable.
func (m *Memory) writeClock() error {
	if m.fsys == nil {
		return nil
	}
	b := binary.BigEndian.AppendUint64([]byte(clockMagic), uint64(m.latest))
	for _, id := range slices.SortedFunc(maps.Keys(m.files), func(x, y [32]byte) int { return bytes.Compare(x[:], y[:]) }) {
		c := m.files[id]
		b = append(append(append(b, id[:]...), c.before[:]...), c.after[:]...)
	}
	sum := sha256.Sum256(b)
	if err := disk.WriteFile(m.fsys, path.Join(MemoryDir, clockFile), b, sum[:]); err != nil {
		return fmt.Errorf("%w: %w", ErrMemory, err)
	}
	return nil
}

// tick takes note of a time, durably, and refuses with [ErrClock] one before the largest
// that was seen.
func (m *Memory) tick(now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	unix := now.Unix()
	switch {
	case unix < m.latest:
		return fmt.Errorf("%w: it says %s, and %s was seen", ErrClock, now.UTC().Format(time.RFC3339), time.Unix(m.latest, 0).UTC().Format(time.RFC3339))
	case unix == m.latest:
		return nil
	}
	seen := m.latest
	m.latest = unix
	if err := m.writeClock(); err != nil {
		m.latest = seen
		return err
	}
	return nil
}

// accept takes note of a manifest that all three have signed and that holds now, durably.
// It fails with *[ConflictError], [ohttp.ErrManifest] for an earlier revision, and
// [ErrMemory].
func (m *Memory) accept(x *ohttp.Manifest, roots ohttp.Roots) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	given, err := x.Digest()
	if err != nil {
		return err
	}
	if seen := m.seen[x.Deployment]; seen != nil {
		// Its own signatures are what protects the file.
		if err := seen.Verify(roots); err != nil {
			return fmt.Errorf("%w: the manifest of epoch %d was changed: %w", ErrMemory, seen.Epoch, err)
		}
		digest, err := seen.Digest()
		if err != nil {
			return err
		}
		if digest == given {
			return nil
		}
		why := ""
		switch {
		case x.Epoch < seen.Epoch:
			why = fmt.Sprintf("epoch %d, after epoch %d", x.Epoch, seen.Epoch)
		case x.Epoch == seen.Epoch && x.Revision == seen.Revision:
			why = fmt.Sprintf("two of epoch %d, revision %d", x.Epoch, x.Revision)
		case x.Epoch > seen.Epoch && x.NotBefore.Before(seen.NotAfter):
			why = fmt.Sprintf("epochs %d and %d hold at one time", seen.Epoch, x.Epoch)
		case x.Epoch == seen.Epoch && x.Revision < seen.Revision:
			return fmt.Errorf("%w: revision %d, and %d was seen", ohttp.ErrManifest, x.Revision, seen.Revision)
		}
		if why != "" {
			return errors.Join(&ConflictError{digest, given, why}, m.keep(x, given))
		}
	} else if len(m.seen) >= maxSeen {
		return fmt.Errorf("%w: more than %d deployments", ErrMemory, maxSeen)
	}
	if err := m.replace(x); err != nil {
		return err
	}
	m.seen[x.Deployment] = x
	return nil
}

// replace writes the last manifest of a deployment: the clock names it before it is there,
// and alone once it is.
func (m *Memory) replace(x *ohttp.Manifest) error {
	b, err := x.Append(nil)
	if err != nil {
		return err
	}
	c := change{m.files[x.Deployment].before, sha256.Sum256(b)}
	m.files[x.Deployment] = c
	if err := m.writeClock(); err != nil {
		return err
	}
	if err := m.write(hex.EncodeToString(x.Deployment[:]), x); err != nil {
		return err
	}
	m.files[x.Deployment] = change{c.after, c.after}
	return m.writeClock()
}

// keep writes evidence. The manifest that it contradicts stays the last.
func (m *Memory) keep(x *ohttp.Manifest, digest [32]byte) error {
	if m.fsys == nil {
		return nil
	}
	entries, err := m.fsys.ReadDir(MemoryDir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMemory, err)
	}
	n := 0
	for _, e := range entries {
		if strings.HasSuffix(e.Name, evidenceSuffix) {
			n++
		}
	}
	if n >= maxEvidence {
		return nil // enough is proved
	}
	return m.write(hex.EncodeToString(x.Deployment[:])+"-"+hex.EncodeToString(digest[:8])+evidenceSuffix, x)
}

func (m *Memory) write(name string, x *ohttp.Manifest) error {
	if m.fsys == nil {
		return nil
	}
	b, err := x.Append(nil)
	if err != nil {
		return err
	}
	if err := disk.WriteFile(m.fsys, path.Join(MemoryDir, name), b); err != nil {
		return fmt.Errorf("%w: %w", ErrMemory, err)
	}
	return nil
}
