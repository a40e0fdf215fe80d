package logserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/wire"
	merkle "golang.org/x/mod/sumdb/tlog"
)

const (
	entriesFile = "entries.log"
	shownFile   = "shown"
	shownMagic  = "starling log shown v2\n"
	maxShown    = tlog.MaxNote + 16<<10
)

// A StateError: the directory of the log and its record do not belong together: one was
// put back, damaged or exchanged. The log does not start, for it would sign a second tree.
type StateError struct{ What string }

func (e *StateError) Error() string {
	return "logserver: " + e.What + ": the log would show two trees; put back the newest copy of both directories"
}

// A store has the entries of a log, and its tree. Guarded by the server's lock, but for
// reading what is there.
type store struct {
	fsys   disk.FS
	log    *disk.Log
	file   disk.File // the same, to read from
	at     []int64   // where each entry begins in the file
	end    int64     // of the last
	hashes []tlog.Hash
	held   tlog.Register
	unread int // entries of which the judge says nothing any more
	last   *tlog.Active
	// actives are the places of all active sets, of which last is the last.
	actives []int64
}

// openStore reads all entries.
func openStore(o *Options) (*store, error) {
	s := &store{fsys: o.FS, end: disk.LogHeaderSize}
	limits := disk.LogOptions{MaxRecord: tlog.MaxEntry, Failpoints: o.Failpoints}
	log, scan, err := disk.OpenLog(o.FS, entriesFile, limits, func(b []byte) error { return s.replay(o, b) })
	if err != nil {
		return nil, fmt.Errorf("logserver: %w", err)
	}
	if scan.Cut > 0 {
		o.Log.Warn("an entry whose sender was told nothing was cut off by a loss of power", slog.Int64("bytes", scan.Cut))
	}
	if s.unread > 0 {
		o.Log.Warn("entries of the log are not understood any more: no device gets them", slog.Int("entries", s.unread))
	}
	s.log = log
	if s.file, err = o.FS.Open(entriesFile); err != nil {
		return nil, errors.Join(fmt.Errorf("logserver: %w", err), log.Close())
	}
	return s, nil
}

// replay takes note of an entry that is in the file.
func (s *store) replay(o *Options, b []byte) error {
	e, err := tlog.ReadEntry(b)
	if err != nil {
		return err
	}
	var c tlog.Claim
	if e.Kind != tlog.KindActive {
		if c, err = o.Judge(e); err == nil {
			err = s.held.Check(tlog.LeafHash(b), c)
		}
		if err != nil {
			s.unread++
			c = tlog.Claim{}
		}
	}
	return s.note(b, e, c)
}

// note adds an entry that is durable to the tree and the register.
func (s *store) note(b []byte, e tlog.Entry, c tlog.Claim) error {
	more, err := merkle.StoredHashes(s.size(), b, s)
	if err != nil {
		return err
	}
	if err := s.held.Add(tlog.LeafHash(b), c); err != nil {
		return err
	}
	if e.Kind == tlog.KindActive {
		if s.last, err = tlog.ReadActive(e); err != nil {
			return err
		}
		s.actives = append(s.actives, s.size())
	}
	s.hashes = append(s.hashes, more...)
	s.at = append(s.at, s.end+disk.FrameOverhead)
	s.end += disk.FrameOverhead + int64(len(b))
	return nil
}

func (s *store) size() int64 { return int64(len(s.at)) }

// ReadHashes implements the reader of x/mod.
func (s *store) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	all := make([]tlog.Hash, len(indexes))
	for i, x := range indexes {
		if x < 0 || x >= int64(len(s.hashes)) {
			return nil, fmt.Errorf("logserver: internal error: no hash %d", x)
		}
		all[i] = s.hashes[x]
	}
	return all, nil
}

// first is the log of its first entries, to read from while it grows: what is there does
// not change.
func (s *store) first(size int64) *store {
	v := &store{file: s.file, at: s.at[:size], end: s.end, hashes: s.hashes[:merkle.StoredHashCount(size)]}
	if size < s.size() {
		v.end = s.at[size] - disk.FrameOverhead
	}
	n, _ := slices.BinarySearch(s.actives, size)
	v.actives = s.actives[:n]
	return v
}

// active is the last active set, and its place; nil before the first.
func (s *store) active() (*tlog.Active, int64, error) {
	if len(s.actives) == 0 {
		return nil, 0, nil
	}
	i := s.actives[len(s.actives)-1]
	b, err := s.entry(i)
	if err != nil {
		return nil, 0, err
	}
	e, err := tlog.ReadEntry(b)
	if err != nil {
		return nil, 0, err
	}
	a, err := tlog.ReadActive(e)
	return a, i, err
}

// entry reads one entry from the disk, and holds it to the tree.
func (s *store) entry(i int64) ([]byte, error) {
	if i < 0 || i >= s.size() {
		return nil, fmt.Errorf("logserver: internal error: no entry %d", i)
	}
	end := s.end
	if i+1 < s.size() {
		end = s.at[i+1] - disk.FrameOverhead
	}
	b := make([]byte, end-s.at[i])
	if _, err := io.ReadFull(io.NewSectionReader(s.file, s.at[i], int64(len(b))), b); err != nil {
		return nil, fmt.Errorf("logserver: read entry %d: %w", i, err)
	}
	if tlog.LeafHash(b) != s.hashes[merkle.StoredHashIndex(0, i)] {
		return nil, fmt.Errorf("logserver: entry %d on the disk is not what was written", i)
	}
	return b, nil
}

// append makes an entry durable and gives it the next place. After an error of an unknown
// state nothing more can be appended until the log is opened again.
func (s *store) append(ctx context.Context, b []byte, e tlog.Entry, c tlog.Claim) (int64, error) {
	i := s.size()
	if err := s.log.Append(ctx, b); err != nil {
		return 0, err
	}
	return i, s.note(b, e, c)
}

func (s *store) close() error { return errors.Join(s.log.Close(), s.file.Close()) }

// shown is what the log has shown last.
type shown struct {
	note  []byte
	sizes []shownSize // of bundles, rising, as tlog.Thin leaves them
}

// A shownSize is that of a tree under which a bundle was shown first at a time.
type shownSize struct {
	size int64
	at   time.Time
}

func (x *shown) code(c *wire.Coder) {
	c.Const(shownMagic, "no checkpoint of a starling log of version 2")
	c.Vec24(&x.note, 0, "note")
	wire.Items(c, &x.sizes, func(i int, s *shownSize) {
		c.Int64(&s.size, "size")
		c.Check(s.size > 0 && (i == 0 || x.sizes[i-1].size < s.size), "sizes do not rise")
		c.Seconds(&s.at, "at")
	})
	c.Check(len(x.sizes) <= tlog.MaxSteps, "too many sizes")
}

// add takes note of a bundle's size, and says whether it is new.
func (x *shown) add(size int64, at time.Time) bool {
	if n := len(x.sizes); n > 0 && x.sizes[n-1].size >= size {
		return false
	}
	x.sizes = tlog.Thin(append(slices.Clone(x.sizes), shownSize{size, at.UTC().Truncate(time.Second)}), func(s shownSize) time.Time { return s.at })
	return true
}

var errShown = errors.New("damaged")

// readShown reads the record. A log that begins makes one first of all, so that entries
// without a record are those of a log whose record is gone.
func readShown(o *Options) (*shown, error) {
	b, err := disk.ReadFile(o.Record, shownFile, maxShown)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := o.FS.Stat(entriesFile); err == nil {
			return nil, &StateError{"there are entries, and the record of what was shown of them is gone"}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("logserver: %w", err)
		}
		x := new(shown)
		return x, x.save(o)
	}
	if err != nil {
		return nil, fmt.Errorf("logserver: %w", err)
	}
	x := new(shown)
	content, ok := wire.CutSum(b)
	if ok {
		err = wire.Read(bytes.Clone(content), errShown, x.code)
	}
	if !ok || err != nil {
		return nil, &StateError{"the record of what was shown is damaged"}
	}
	return x, nil
}

// hold says whether the entries are those of which the record has a checkpoint.
func (x *shown) hold(o *Options, s *store) error {
	if len(x.note) == 0 {
		return nil
	}
	c, err := tlog.TextOf(x.note)
	switch {
	case err != nil:
		return &StateError{"the record of what was shown is damaged"}
	case c.Origin != o.Key.Key().Name():
		return &StateError{fmt.Sprintf("the last checkpoint that was shown is of %s", c.Origin)}
	case c.Size > s.size():
		return &StateError{fmt.Sprintf("the last checkpoint that was shown is over %d entries, and there are %d", c.Size, s.size())}
	}
	root, err := merkle.TreeHash(c.Size, s)
	if err != nil {
		return err
	}
	if root != c.Root {
		return &StateError{"the last checkpoint that was shown is over other entries"}
	}
	return nil
}

func (x *shown) save(o *Options) error {
	return disk.WriteFile(o.Record, shownFile, wire.AppendSum(wire.MustAppend(nil, x.code), 0))
}

// period is the one in which a time lies.
func (o *Options) period(t time.Time) (begin, end time.Time) {
	begin = t.UTC().Truncate(time.Second).Truncate(o.Period)
	return begin, begin.Add(o.Period)
}
