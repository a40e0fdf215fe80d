package deploy

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service"
)

// record is the directory of what must not go back when the data does.
func (a *Aggregator) record() string { return recordOf(a.Data, a.Record) }

// recordOf is the directory of a record, which may be left out.
func recordOf(data, record service.Path) string {
	if record != "" {
		return string(record)
	}
	return strings.TrimRight(string(data), string(filepath.Separator)) + ".record"
}

var errRecord = errors.New("record: it lies in data, or data in it, and would be put back together with it: give it a directory of its own")

// apart says whether neither a record lies in the data nor the data in the record.
func apart(data, record service.Path) bool {
	dir := recordOf(data, record)
	return !within(dir, string(data)) && !within(string(data), dir)
}

// within says whether a path is a directory, or below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// files are a party's directories, which this process has for itself.
type files struct{ data, record *disk.OSFS }

// files opens the aggregator's directories, and makes them if they are not there.
func (a *Aggregator) files() (*files, error) { return openFiles(a.Data, a.Record) }

func openFiles(data, record service.Path) (*files, error) {
	f := new(files)
	var err error
	if f.data, err = locked("data", string(data)); err != nil {
		return nil, err
	}
	if f.record, err = locked("record", recordOf(data, record)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// locked opens a directory for this process alone.
func locked(what, dir string) (*disk.OSFS, error) {
	fsys, err := aggregator.Dir(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
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
