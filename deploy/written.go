package deploy

import (
	"path"
	"strings"
	"sync/atomic"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service"
)

// Kinds of files that an aggregator writes, as a metric names them. A temporary counts as
// what it is to become.
const (
	fileDatabase = "database"     // store.db
	fileWAL      = "database_log" // its write-ahead log
	fileInbox    = "inbox"        // logs of uploads
	fileSlices   = "slices"       // what was copied out of logs
	fileRun      = "run"          // ids of reports that are aggregated
	fileNoise    = "noise"        // noise that later releases lean on
	fileRecord   = "record"       // all of the record's directory
	fileRest     = "rest"         // HPKE keys, the identity, tokens, what is lost
)

// written are the bytes that an aggregator has written into its files since it started, by
// kind of file.
type written map[string]*atomic.Uint64

func newWritten() written {
	w := make(written)
	for _, kind := range []string{fileDatabase, fileWAL, fileInbox, fileSlices, fileRun, fileNoise, fileRecord, fileRest} {
		w[kind] = new(atomic.Uint64)
	}
	return w
}

// register shows the numbers.
func (w written) register(m *service.Metrics) {
	m.Counts("starling_written_bytes_total", "Bytes written into files by kind of file, as the files' writer counts them.",
		service.Label{Name: "file", Values: sortedKeys(w), Only: true}, func(kind string) float64 { return float64(w[kind].Load()) })
}

// through are the directories of files, with what is written into them counted.
func (w written) through(f *files) (data, record disk.FS) {
	if w == nil {
		return f.data, f.record
	}
	return disk.Counted(f.data, func(name string) *atomic.Uint64 { return w[kindOf(name)] }),
		disk.Counted(f.record, func(string) *atomic.Uint64 { return w[fileRecord] })
}

// kindOf is the kind of a file in the data directory.
func kindOf(name string) string {
	top, _, below := strings.Cut(name, "/")
	switch {
	case !below && path.Ext(top) == ".db":
		return fileDatabase
	case !below && strings.Contains(top, ".db-"):
		return fileWAL
	case below && top == "inbox":
		return fileInbox
	case below && top == "slices":
		return fileSlices
	case below && top == "runs" && strings.Contains(name, ".noise"):
		return fileNoise
	case below && top == "runs":
		return fileRun
	}
	return fileRest
}
