package lost

import (
	"log/slog"
	"path"
	"strings"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/internal/disk"
)

// Status counts what is lost, for the operator; nil if nothing is.
func Status(fsys disk.FS) (*status.Lost, error) {
	files, err := List(fsys)
	if len(files) == 0 || err != nil {
		return nil, err
	}
	s := &status.Lost{Files: len(files)}
	for _, f := range files {
		s.Bytes += f.Size
		switch {
		case strings.HasPrefix(f.Name, "slices/"):
			s.Slices++
		case strings.HasPrefix(f.Name, "inbox/"):
			s.Logs++
		case path.Ext(f.Name) == ".run":
			s.Runs++
		}
	}
	return s, nil
}

// Keys are the aggregator's HPKE keys, as far as lost files end with them.
type Keys interface {
	Serials() (oldest, newest uint64, ends bool)
}

// Expire empties what no key opens any more.
func (r *Room) Expire(keys Keys, log *slog.Logger) error {
	oldest, _, ends := keys.Serials()
	if !ends {
		return nil
	}
	n, err := r.Empty(oldest)
	if n > 0 {
		log.Info("lost files removed: the keys that open them are destroyed", "files", n)
	}
	return err
}
