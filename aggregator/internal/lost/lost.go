// Package lost keeps whole files that nothing names. A file that an aggregator does not
// know is not therefore needless: a database that was replaced, put back or copied
// without its log knows nothing of reports that it acknowledged.
//
// # What is deleted, and what is not
//
// A file goes when a tombstone says so, a row written in the transaction that made the
// file needless (see store.Files), or when it was never whole: a temporary of
// [disk.WriteFile]. One more kind goes at a start: a copy of slices that was written and
// not yet named when the process ended, if each of its slices waits elsewhere, in a log or
// in another file that a row names ([Room.Again]). That is safe because what it was copied
// from stays until the copy that is made the next time is named.
//
// Every other file without a row is moved, by a durable rename, to
//
//	lost/<n>/<its name>
//
// where n is the serial of the newest HPKE key at that time. Nothing in it was sealed to a
// later one, so once every key up to n is destroyed the folder opens to nobody, and is
// emptied ([Room.Empty]). Files come back when a row names them again ([Room.Sweep]), or
// when a person says so (`starling doctor --take-back`).
//
// # What a crash leaves here
//
// Between the file of a commit's report ids, or of a release's noise, and the transaction
// that names it, a loss of power leaves a whole file that no row names. From a file whose
// row was lost it cannot be told apart, so it comes here too: at most one a job under way.
package lost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/internal/disk"
)

// Dir is where lost files lie, in an aggregator's directory.
const Dir = "lost"

// Failpoints of this package: a crash at each must neither lose a file nor bring one back
// that was to go.
const (
	failBeforeMove = "lost.before-move"
	failAfterMove  = "lost.after-move"
)

// FailpointNames lists the failpoints of this package.
func FailpointNames() []string { return []string{failBeforeMove, failAfterMove} }

// A Room is the folder of lost files of one aggregator, which owns it alone.
type Room struct {
	// FS is the aggregator's. Required.
	FS disk.FS
	// Newest is the serial of the newest HPKE key; 0 where the keys are the operator's.
	// Required.
	Newest func() uint64
	// Again says of a file that no row names whether all that it has waits elsewhere.
	// Optional.
	Again func(ctx context.Context, name string) (bool, error)
	// Failpoints is nil in production.
	Failpoints *disk.Failpoints
}

// A File is one lost file.
type File struct {
	Name string // where it was
	Path string // where it is
	Size int64  // bytes
	Key  uint64 // serial of the newest key when it was set aside
}

// Moved is what a sweep did.
type Moved struct {
	Lost    []File // set aside now
	Back    int    // files that a row names again
	Removed int    // temporaries, and what waits elsewhere
}

// Sweep brings back what named names and is here, and sets aside what lies in the
// directories and is not named. It runs at a start, before anything writes there; a crash
// in it is repaired by the next.
func (r *Room) Sweep(ctx context.Context, named []string, dirs ...string) (m Moved, err error) {
	here, err := List(r.FS)
	if err != nil {
		return m, err
	}
	live := make(map[string]bool, len(named))
	for _, name := range named {
		live[name] = true
	}
	for _, f := range here {
		if !live[f.Name] {
			continue
		}
		if _, err := r.FS.Stat(f.Name); err == nil {
			continue // that one was written anew
		} else if !errors.Is(err, fs.ErrNotExist) {
			return m, fmt.Errorf("lost: %w", err)
		}
		if err := r.putBack(f); err != nil {
			return m, err
		}
		m.Back++
	}
	var rubbish []string
	for _, dir := range dirs {
		// Taking one moves it out of the directory: all are listed first.
		var unnamed []disk.Entry
		for f, err := range disk.Files(r.FS, dir) {
			if err != nil {
				return m, fmt.Errorf("lost: %w", err)
			}
			if !live[f.Name] {
				unnamed = append(unnamed, f)
			}
		}
		for _, f := range unnamed {
			again := disk.IsTemp(f.Name)
			if !again && r.Again != nil {
				if again, err = r.Again(ctx, f.Name); err != nil {
					return m, err
				}
			}
			if again {
				rubbish = append(rubbish, f.Name)
				continue
			}
			set, err := r.Take(f.Name)
			if err != nil {
				return m, err
			}
			set.Size = f.Size
			m.Lost = append(m.Lost, set)
		}
	}
	m.Removed = len(rubbish)
	return m, disk.Remove(r.FS, rubbish...)
}

// Open is [Room.Sweep] at the start of an aggregator, with a line for what it found.
func (r *Room) Open(ctx context.Context, s Names, log *slog.Logger, dirs ...string) error {
	named, err := s.LiveFiles(ctx)
	if err != nil {
		return err
	}
	m, err := r.Sweep(ctx, named, dirs...)
	if err != nil {
		return err
	}
	if len(m.Lost) > 0 {
		bytes := int64(0)
		for _, f := range m.Lost {
			bytes += f.Size
		}
		log.LogAttrs(ctx, slog.LevelError, "whole files that no row names were set aside: see starling doctor",
			slog.Int("files", len(m.Lost)), slog.Int64("bytes", bytes), slog.String("directory", Dir))
	}
	if m.Back > 0 {
		log.LogAttrs(ctx, slog.LevelWarn, "files that were set aside are named again and were put back", slog.Int("files", m.Back))
	}
	return nil
}

// Names is the store, as far as it tells which files it names.
type Names interface {
	LiveFiles(context.Context) ([]string, error)
}

// Take sets one file aside.
func (r *Room) Take(name string) (File, error) {
	newest := r.Newest()
	to := path.Join(Dir, fmt.Sprintf("%016x", newest), name)
	for {
		_, err := r.FS.Stat(to)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return File{}, fmt.Errorf("lost: %w", err)
		}
		to += again // another file of that name is here: it stays too
	}
	return File{Name: name, Path: to, Key: newest}, r.move(name, to)
}

// again tells files of one name apart.
const again = "~"

// putBack puts a lost file where it was. Nothing may lie there.
func (r *Room) putBack(f File) error { return r.move(f.Path, f.Name) }

// move renames a file durably.
func (r *Room) move(from, to string) error {
	if err := r.Failpoints.Hit(failBeforeMove); err != nil {
		return err
	}
	if err := disk.MakeDirs(r.FS, path.Dir(to)); err != nil {
		return fmt.Errorf("lost: %w", err)
	}
	if err := r.FS.Rename(from, to); err != nil {
		return fmt.Errorf("lost: move %s: %w", from, err)
	}
	// The new name first: a crash between the two leaves the file at one place or at both.
	for _, dir := range []string{path.Dir(to), path.Dir(from)} {
		if err := r.FS.SyncDir(dir); err != nil {
			return fmt.Errorf("lost: move %s: %w", from, err)
		}
	}
	return r.Failpoints.Hit(failAfterMove)
}

// Empty removes for good what was set aside before the key of serial oldest was made: every
// key that could open it is destroyed. It says how many files went.
func (r *Room) Empty(oldest uint64) (removed int, err error) {
	files, err := List(r.FS)
	if err != nil {
		return 0, err
	}
	var names []string
	for _, f := range files {
		if f.Key < oldest {
			names = append(names, f.Path)
		}
	}
	return len(names), disk.Remove(r.FS, names...)
}

// List lists what is lost, by the age of its folder and then by name.
func List(fsys disk.FS) (files []File, err error) {
	folders, err := fsys.ReadDir(Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lost: %w", err)
	}
	for _, folder := range folders {
		serial, err := strconv.ParseUint(folder.Name, 16, 64)
		if err != nil || !folder.Dir {
			continue // not ours
		}
		root := path.Join(Dir, folder.Name)
		for f, err := range disk.Files(fsys, root) {
			if err != nil {
				return nil, fmt.Errorf("lost: %w", err)
			}
			name := strings.TrimRight(strings.TrimPrefix(f.Name, root+"/"), again)
			files = append(files, File{Name: name, Path: f.Name, Size: f.Size, Key: serial})
		}
	}
	return files, nil
}
