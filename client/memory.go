package client

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/disk"
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
	clockMagic     = "starling clock v1\n"
	evidenceSuffix = ".evidence"
	maxEvidence    = 16 // files, over all deployments
	maxSeen        = 64 // deployments
)

// A Memory is what a device remembers of manifests: the last of each deployment, those
// that contradict one, and the largest time seen. Safe for concurrent use; the directory
// is one process's, as the ledger beside it.
//
//	manifests/clock                     "starling clock v1\n", uint64 seconds since 1970, SHA-256 of both
//	manifests/<deployment>              the last manifest, as it was given
//	manifests/<deployment>-<digest>.evidence   one that contradicts it
type Memory struct {
	fsys disk.FS // nil: nothing outlives the process

	mu     sync.Mutex
	latest int64 // seconds since 1970
	seen   map[[32]byte]*ohttp.Manifest
}

// OpenMemory reads what is remembered in a file system, and makes the directory if there
// is none. It fails with [ErrMemory].
func OpenMemory(fsys disk.FS) (*Memory, error) {
	m := &Memory{fsys: fsys, seen: make(map[[32]byte]*ohttp.Manifest)}
	if err := disk.MakeDirs(fsys, MemoryDir); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMemory, err)
	}
	if err := m.readClock(); err != nil {
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
		b, err := disk.ReadFile(fsys, path.Join(MemoryDir, e.Name), ohttp.MaxManifest)
		if err == nil {
			m.seen[[32]byte(id)], err = ohttp.ReadManifest(b)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrMemory, e.Name, err)
		}
	}
	return m, nil
}

// Forgetful is a memory that ends with the process: of a device that is made up, or has
// no directory of its own.
func Forgetful() *Memory { return &Memory{seen: make(map[[32]byte]*ohttp.Manifest)} }

func (m *Memory) readClock() error {
	b, err := disk.ReadFile(m.fsys, path.Join(MemoryDir, clockFile), int64(len(clockMagic)+8+sha256.Size))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	n := len(clockMagic) + 8
	if len(b) != n+sha256.Size || !bytes.HasPrefix(b, []byte(clockMagic)) || sha256.Sum256(b[:n]) != [32]byte(b[n:]) {
		return errors.New("damaged")
	}
	m.latest = int64(binary.BigEndian.Uint64(b[len(clockMagic):n]))
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
	if m.fsys != nil {
		b := binary.BigEndian.AppendUint64([]byte(clockMagic), uint64(unix))
		sum := sha256.Sum256(b)
		if err := disk.WriteFile(m.fsys, path.Join(MemoryDir, clockFile), b, sum[:]); err != nil {
			return fmt.Errorf("%w: %w", ErrMemory, err)
		}
	}
	m.latest = unix
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
	if err := m.write(hex.EncodeToString(x.Deployment[:]), x); err != nil {
		return err
	}
	m.seen[x.Deployment] = x
	return nil
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
