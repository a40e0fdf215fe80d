package signed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/wire"
)

// A Statement is what a party says by signing a manifest: in this epoch of a deployment,
// it is this one.
type Statement struct {
	Deployment          [32]byte
	Epoch               uint32
	Revision            uint16
	NotBefore, NotAfter time.Time // whole seconds
	Digest              [32]byte
}

// Errors of a record, to branch on with errors.Is.
var (
	// ErrSigned: something else was signed for that epoch, or for a later one, or for the
	// same time. The party signs nothing.
	ErrSigned = errors.New("signed: another statement stands in its way")
	// ErrRecord: the record cannot be read or written, so that nothing may be signed.
	ErrRecord = errors.New("signed: the record cannot be used")
)

// recordMagic opens a record and holds the version of its format.
const recordMagic = "starling signed record v1\n"

const (
	maxDeployments = 1024
	statementSize  = 32 + 4 + 2 + 8 + 8 + 32
	maxRecord      = len(recordMagic) + 2 + maxDeployments*statementSize + sha256.Size
)

// A Record remembers durably what one party has said last about each deployment, so that
// it never says two things about one epoch, over restarts too. It must not be put back to
// an older copy. Safe for concurrent use; a file is one process's, and a [Place] is shared by
// the processes of a party.
type Record struct {
	place Place
	mu    sync.Mutex
}

// A Place has the bytes of a record. Its methods are called one at a time by each process.
type Place interface {
	// State is what was saved last, and its version; 0 where nothing was.
	State(ctx context.Context) (b []byte, version uint64, err error)
	// Save replaces what has that version, durably when it returns nil. After an error it may
	// have taken place, and State tells; it did not where the version is another one.
	Save(ctx context.Context, b []byte, after uint64) error
}

// OpenRecord returns the record in a file, which need not be there yet. It fails with
// [ErrRecord].
func OpenRecord(fsys disk.FS, name string) (*Record, error) {
	return SharedRecord(&file{fsys, name})
}

// SharedRecord returns the record in a place. It fails with [ErrRecord].
func SharedRecord(p Place) (*Record, error) {
	r := &Record{place: p}
	_, _, err := r.read()
	return r, err
}

// file is the place of one process: what is there is replaced.
type file struct {
	fsys disk.FS
	name string
}

func (f *file) State(context.Context) ([]byte, uint64, error) {
	b, err := disk.ReadFile(f.fsys, f.name, int64(maxRecord))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", f.name, err)
	}
	return b, 1, nil
}

func (f *file) Save(_ context.Context, b []byte, _ uint64) error {
	return disk.WriteFile(f.fsys, f.name, b)
}

// Last returns what was said last about a deployment.
func (r *Record) Last(deployment [32]byte) (s Statement, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list, _, err := r.read()
	if err != nil {
		return s, false, err
	}
	i := slices.IndexFunc(list, func(s Statement) bool { return s.Deployment == deployment })
	if i < 0 {
		return s, false, nil
	}
	return list[i], true, nil
}

// Say makes a statement durable; the party may sign it when Say returns. To say the same
// again is allowed. It fails with [ErrSigned] where the party has said something else
// about this epoch and revision, something about a later one, or something about an
// earlier epoch that lasts into this one's time, which a revision may not reach back into
// either; with [ErrRecord] if the disk fails.
func (r *Record) Say(s Statement) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !validTime(s.NotBefore) || !validTime(s.NotAfter) {
		return fmt.Errorf("%w: time out of bounds", ErrSigned)
	}
	s.NotBefore, s.NotAfter = time.Unix(s.NotBefore.Unix(), 0).UTC(), time.Unix(s.NotAfter.Unix(), 0).UTC()
	for {
		// The last write may or may not be there if it failed: the place knows.
		list, version, err := r.read()
		if err != nil {
			return err
		}
		if err := r.say(list, version, s); err == nil || !errors.Is(err, ErrRecord) {
			return err
		} else if _, now, failed := r.read(); failed != nil || now == version {
			return err
		}
		// Another process was first, or the answer was lost.
	}
}

// say saves a list with one more statement.
func (r *Record) say(list []Statement, version uint64, s Statement) error {
	if i := slices.IndexFunc(list, func(x Statement) bool { return x.Deployment == s.Deployment }); i >= 0 {
		if err := follows(list[i], s); err != nil {
			return err
		}
		list[i] = s
	} else if list = append(list, s); len(list) > maxDeployments {
		return fmt.Errorf("%w: more than %d deployments", ErrRecord, maxDeployments)
	}
	// Also where it is there already: a crash may have left a name that is not durable.
	ctx, cancel := context.WithTimeout(context.Background(), placeTime)
	defer cancel()
	if err := r.place.Save(ctx, appendRecord(list), version); err != nil {
		return fmt.Errorf("%w: %w", ErrRecord, err)
	}
	return nil
}

// follows says whether one statement may be made after another.
func follows(last, next Statement) error {
	why := ""
	switch {
	case next == last:
	case next.Epoch < last.Epoch:
		why = fmt.Sprintf("epoch %d was signed", last.Epoch)
	case next.Epoch == last.Epoch && next.Revision < last.Revision:
		why = fmt.Sprintf("revision %d was signed", last.Revision)
	case next.Epoch == last.Epoch && next.Revision == last.Revision:
		why = "it has another digest"
	case next.Epoch == last.Epoch && !next.NotAfter.Equal(last.NotAfter):
		why = "a revision must end when the epoch does, at " + last.NotAfter.Format(time.RFC3339)
	case next.Epoch == last.Epoch && next.NotBefore.Before(last.NotBefore):
		// Of the epoch before only this one's beginning is remembered.
		why = "a revision may not begin before " + last.NotBefore.Format(time.RFC3339)
	case next.Epoch > last.Epoch && next.NotBefore.Before(last.NotAfter):
		why = fmt.Sprintf("epoch %d lasts until %s", last.Epoch, last.NotAfter.Format(time.RFC3339))
	}
	if why != "" {
		return fmt.Errorf("%w: epoch %d, revision %d: %s", ErrSigned, next.Epoch, next.Revision, why)
	}
	return nil
}

// placeTime bounds one call of a place.
const placeTime = 10 * time.Second

func (r *Record) read() (list []Statement, version uint64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), placeTime)
	defer cancel()
	b, version, err := r.place.State(ctx)
	if err == nil && version > 0 {
		list, err = parseRecord(b)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	return list, version, nil
}

// codeRecord reads and writes the magic, the number of statements, and the statements.
func codeRecord(list *[]Statement) func(*wire.Coder) {
	return func(c *wire.Coder) {
		c.Const(recordMagic, "not a starling record of version 1")
		n := uint16(len(*list))
		c.Uint16(&n, "number of statements")
		wire.Items(c, list, func(_ int, s *Statement) {
			c.Fixed(s.Deployment[:], "deployment")
			c.Uint32(&s.Epoch, "epoch")
			c.Uint16(&s.Revision, "revision")
			c.Seconds(&s.NotBefore, "not_before")
			c.Seconds(&s.NotAfter, "not_after")
			c.Fixed(s.Digest[:], "digest")
		})
		c.Check(len(*list) == int(n), "another number of statements than it says")
	}
}

// appendRecord writes the record, and the SHA-256 of that.
func appendRecord(list []Statement) []byte {
	return wire.AppendSum(wire.MustAppend(nil, codeRecord(&list)), 0)
}

// errDamaged is about the bytes of a record.
var errDamaged = errors.New("damaged")

func parseRecord(file []byte) (list []Statement, err error) {
	content, ok := wire.CutSum(file)
	if !ok {
		return nil, fmt.Errorf("%w: wrong checksum", errDamaged)
	}
	err = wire.Read(content, errDamaged, codeRecord(&list))
	return list, err
}
