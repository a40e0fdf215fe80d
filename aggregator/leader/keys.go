package leader

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
)

// stepKeys makes keys that are due, and destroys those that no acknowledged report needs
// any more.
func (l *Leader) stepKeys(ctx context.Context) (bool, error) {
	worked, err := l.keys.Step(ctx, l.needsKey)
	return worked, errors.Join(err, l.expire(ctx))
}

// needsKey says how many acknowledged reports that are not folded yet were sealed to a
// key. Only one call at a time, which [keyset.Set.Step] sees to.
func (l *Leader) needsKey(ctx context.Context, id uint8, _ time.Time) (why string, err error) {
	// The uploads that were taken for the key are durable: sorted, they are all in
	// segments. A log that is set aside because it is damaged keeps no key; its reports
	// are lost already.
	if _, err := l.sorter.Sort(ctx); err != nil {
		return "", err
	}
	if err := l.inbox.Err(); err != nil {
		return "", fmt.Errorf("leader: what the log holds only a restart tells: %w", err)
	}
	names, err := l.store.LiveFiles(ctx)
	if err != nil {
		return "", err
	}
	n, err := l.sealed.count(l.opt.FS, id, names)
	if n == 0 || err != nil {
		return "", err
	}
	return fmt.Sprintf("%d acknowledged reports are not folded yet", n), nil
}

// sealedTo remembers to which keys the reports of each waiting segment were sealed:
// segments do not change, so each is read once.
type sealedTo map[string]map[uint8]uint64

// count is how many reports in the segments among the files were sealed to a key.
func (s *sealedTo) count(fsys disk.FS, id uint8, files []string) (n uint64, err error) {
	next := make(sealedTo)
	for _, name := range files {
		if !strings.HasPrefix(name, segments+"/") {
			continue
		}
		keys, known := (*s)[name]
		if !known {
			if keys, err = keysOf(fsys, name); err != nil {
				return 0, err
			}
		}
		next[name] = keys
		n += keys[id]
	}
	*s = next
	return n, nil
}

// keysOf counts the reports of a segment by key. A segment that is gone was folded
// meanwhile; one that is damaged opens to nobody.
func keysOf(fsys disk.FS, name string) (map[uint8]uint64, error) {
	seg, err := segment.Peek(fsys, name)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, segment.ErrCorrupt):
		return nil, nil
	case err != nil:
		return nil, err
	}
	keys := make(map[uint8]uint64)
	for i := range seg.Len() {
		if r, err := dap.ReadReport(seg.Report(i)); err == nil {
			keys[r.Leader.ConfigID]++
		}
	}
	return keys, nil
}
