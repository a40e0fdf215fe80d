package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/sealed"
)

// Suffixes of the files of an epoch; what stands before them is the operator's choice,
// and the same for both.
const (
	keySuffix       = ".key"
	manifestSuffix  = ".manifest"
	admissionSuffix = ".admission"
	// secondSuffix stands before keySuffix where a manifest tells devices of two keys.
	secondSuffix = ".second"
)

// NoteSuffix stands behind the name of a key's file in that of its note: [Key.Note].
const NoteSuffix = ".used"

// Bounds of how long a key outlives its manifest.
const (
	DefaultOverlap = time.Hour
	MaxOverlap     = 30 * 24 * time.Hour
)

const epochsPoll = time.Second

// Epochs is a directory of keys, each beside the manifest that tells devices of it. The
// manifest says how long devices may use a key, and so how long the gateway must: until
// its end and an overlap, for requests under way and clocks that are slow.
type Epochs struct {
	Dir     string
	Overlap time.Duration
	// Admission is a directory of keys for tokens, each list in a file NAME.admission as
	// [admission.Keys.Append] makes it, from when it is there until the grace of its last
	// round is over; it may be Dir. Optional.
	Admission string
	Hold      time.Duration // of the gateway's rounds
	// Read reads the file of a key, and refuses one that others may read.
	Read func(path string) ([]byte, error)

	mu     sync.Mutex
	parsed map[string]parsedList // by the file's name; guarded by mu
}

// Keys returns the keys whose time has not ended, the newest epoch first.
func (e *Epochs) Keys(now time.Time) ([]Key, error) {
	keys, _, err := e.read(now)
	return keys, err
}

// read returns the keys whose time has not ended, the newest epoch first, and the files
// of those whose time has. A key without its manifest is not there yet: starling manifest
// new writes it first.
func (e *Epochs) read(now time.Time) (keys []Key, past []string, err error) {
	entries, err := os.ReadDir(e.Dir)
	if err != nil {
		return nil, nil, fmt.Errorf("epochs: %w", err)
	}
	type epoch struct {
		number uint32
		key    Key
	}
	var found []epoch
	for _, entry := range entries {
		base, isKey := strings.CutSuffix(entry.Name(), keySuffix)
		if !isKey {
			continue
		}
		base = strings.TrimSuffix(base, secondSuffix)
		m, err := readManifest(filepath.Join(e.Dir, base+manifestSuffix))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("epochs: %s%s: %w", base, manifestSuffix, err)
		}
		if e.Hold > m.Hold {
			return nil, nil, fmt.Errorf("epochs: %s%s lets the gateway hold uploads for %v, for leader's and helper's keys end then; hold is %v here: "+
				"a shorter one, or starling manifest new --hold", base, manifestSuffix, m.Hold, e.Hold)
		}
		end := m.NotAfter.Add(e.Overlap)
		if !now.Before(end) {
			past = append(past, entry.Name())
			continue
		}
		b, err := e.Read(filepath.Join(e.Dir, entry.Name()))
		if err != nil {
			return nil, nil, fmt.Errorf("epochs: %w", err)
		}
		pair, err := sealed.ParseKeyPair(b)
		if err != nil {
			return nil, nil, fmt.Errorf("epochs: %s: %w", entry.Name(), err)
		}
		if !slices.ContainsFunc(m.Gateway, ohttp.NewKeyConfig(pair).Equal) {
			return nil, nil, fmt.Errorf("epochs: %s is no key that %s%s tells devices of", entry.Name(), base, manifestSuffix)
		}
		for _, other := range found {
			if other.key.Pair.ID() == pair.ID() {
				return nil, nil, fmt.Errorf("epochs: %s: another key in use has its id %d", entry.Name(), pair.ID())
			}
		}
		path := filepath.Join(e.Dir, entry.Name())
		found = append(found, epoch{m.Epoch, Key{Pair: pair, NotAfter: end, Note: path + NoteSuffix}})
	}
	slices.SortFunc(found, func(a, b epoch) int { return int(int64(b.number) - int64(a.number)) })
	for _, f := range found {
		keys = append(keys, f.key)
	}
	return keys, past, nil
}

func readManifest(path string) (*ohttp.Manifest, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > ohttp.MaxManifest {
		return nil, fmt.Errorf("longer than %d bytes", ohttp.MaxManifest)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ohttp.ReadManifest(b)
}

// update has the gateway use the keys of the directory, beside those that it always has,
// and destroys those whose time is over: first what they have opened, with a note that
// they may not come back, then the key's file. The manifest stays.
func (e *Epochs) update(g *Gateway, fixed []Key) error {
	now := g.o.Clock.Now()
	keys, past, err := e.read(now)
	if err != nil {
		return err
	}
	lists, pastLists, listsErr := e.lists(now)
	if listsErr != nil { // is no reason to keep to the keys that requests are opened with
		lists = g.admissions()
	}
	if err := g.setKeys(append(keys, fixed...), lists); err != nil {
		return errors.Join(listsErr, err)
	}
	return errors.Join(listsErr, destroy(g, e.Dir, past), destroy(g, e.Admission, pastLists))
}

// destroy removes files of keys whose time is over.
func destroy(g *Gateway, dir string, past []string) error {
	if len(past) == 0 {
		return nil
	}
	fsys, err := disk.OS(dir)
	if err != nil {
		return fmt.Errorf("epochs: %w", err)
	}
	if err := errors.Join(disk.Remove(fsys, past...), fsys.Close()); err != nil {
		return fmt.Errorf("epochs: destroy: %w", err)
	}
	g.o.Log.Info("keys destroyed", slog.Int("keys", len(past)))
	return nil
}

// Watch looks at the directory again and again until ctx ends, and has the gateway use
// the keys in it before those that are fixed. While it cannot be read the keys stay as
// they are, and end at their time all the same.
func (e *Epochs) Watch(ctx context.Context, g *Gateway, fixed []Key) {
	last := ""
	for {
		timer := g.o.Clock.NewTimer(epochsPoll)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		why := ""
		if err := e.update(g, fixed); err != nil {
			if why = err.Error(); why != last { // once for each cause, not every second
				g.o.Log.Error("the keys stay as they are", slog.Any("error", err))
			}
		}
		last = why
	}
}
