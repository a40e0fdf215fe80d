package deploy

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/starling-agg/starling/disk"
)

// record is the directory of what must not go back when the data does.
func (a *Aggregator) record() string {
	if a.Record != "" {
		return string(a.Record)
	}
	return strings.TrimRight(string(a.Data), string(filepath.Separator)) + ".record"
}

// within says whether a path is a directory, or below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// files are an aggregator's directories, which this process has for itself.
type files struct{ data, record *disk.OSFS }

// files opens the aggregator's directories, and makes them if they are not there.
func (a *Aggregator) files() (*files, error) {
	f := new(files)
	var err error
	if f.data, err = locked("data", string(a.Data)); err != nil {
		return nil, err
	}
	if f.record, err = locked("record", a.record()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// locked opens a directory for this process alone.
func locked(what, dir string) (*disk.OSFS, error) {
	fsys, err := disk.OS(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if err := fsys.Lock(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %s: %w", what, dir, err), fsys.Close())
	}
	return fsys, nil
}

// Close gives the directories up.
func (f *files) Close() error {
	err := f.data.Close()
	if f.record != nil {
		err = errors.Join(err, f.record.Close())
	}
	return err
}
