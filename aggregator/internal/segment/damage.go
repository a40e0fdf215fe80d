package segment

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"

	"github.com/starling-agg/starling/internal/disk"
)

// LogDamage is what is lost of a log: acknowledged reports that no record holds any more.
type LogDamage struct {
	File    string // the log's, where it was
	Bytes   int64  // that are no record
	Records int    // at least; a record is one request, of one report or more
	// at least, by the task that is named in what is left; it may be no task of the
	// store's
	Reports map[TaskID]int
	Exact   bool // the numbers are right, as far as what is left is
}

// logDamageOf is what a scan says is lost; nil if nothing is. longer is how long the log
// is known to have been, in bytes.
func logDamageOf(name string, scan *disk.Scan, longer int64) *LogDamage {
	d := &LogDamage{File: name, Reports: make(map[TaskID]int), Exact: true}
	for _, g := range scan.Gaps {
		if !g.Durable && g.Offset >= longer {
			continue // torn, as far as anybody can tell
		}
		d.add(&g)
	}
	if end := scan.Valid + scan.Cut; end < longer { // an acknowledged end was cut off
		if n := len(scan.Gaps); n == 0 || scan.Gaps[n-1].Offset+scan.Gaps[n-1].Size < end {
			d.Records++ // else the first of them is the last gap's
		}
		d.Bytes += longer - end
		d.Exact = false
	}
	if d.Bytes == 0 {
		return nil
	}
	return d
}

// standIn writes a file for a log that was noted and is missing or emptied, for the
// sorter to count and to set aside: a log whose header names itself as the one before it.
// longer is how long the log is known to have been, in bytes; whether a report was in it
// nobody can tell, unless that says so.
func standIn(fsys disk.FS, log Begun, longer int64) error {
	return disk.WriteLogHeader(fsys, log.File, log.ID, disk.Mark{ID: log.ID, Size: max(longer, disk.LogHeaderSize)})
}

func isStandIn(fsys disk.FS, name string) bool {
	id, before, err := disk.ReadLogHeader(fsys, name)
	return err == nil && before.ID == id
}

// add counts what a gap held.
func (d *LogDamage) add(g *disk.Gap) {
	d.Bytes += g.Size
	d.Records += max(1, len(g.Pieces))
	d.Exact = d.Exact && g.Exact
	for _, p := range g.Pieces {
		d.Exact = countLeft(p, d.Reports) && d.Exact
	}
}

// malformed adds a record that is whole, and cannot be read; d may be nil.
func (d *LogDamage) malformed(name string, record []byte) *LogDamage {
	if d == nil {
		d = &LogDamage{File: name, Reports: make(map[TaskID]int)}
	}
	d.Bytes += int64(len(record))
	d.Records++
	d.Exact = false
	countLeft(record, d.Reports)
	return d
}

// sum is how many reports they are at least.
func (d *LogDamage) sum() (n int) {
	for _, r := range d.Reports {
		n += r
	}
	return n
}

// countLeft counts the reports that a damaged record says it has, as far as it makes sense,
// and says whether all of it does.
func countLeft(b []byte, by map[TaskID]int) bool {
	for len(b) > 0 {
		if len(b) < blockHeader {
			return false
		}
		task, count := TaskID(b), binary.BigEndian.Uint32(b[40:])
		b = b[blockHeader:]
		if uint64(count)*reportEntry > uint64(len(b)) {
			return false
		}
		by[task] += int(count)
		body := uint64(0)
		for i := range uint64(count) {
			body += uint64(binary.BigEndian.Uint32(b[i*reportEntry+16:]))
		}
		if b = b[uint64(count)*reportEntry:]; body > uint64(len(b)) {
			return false
		}
		b = b[body:]
	}
	return true
}

// salvage is the scan of a log whose header is lost, and with it what its records are bound
// to: all of it is a gap. Its id is that of what is left.
func salvage(file []byte, scan *disk.Scan) {
	sum := sha256.Sum256(file)
	scan.ID = disk.LogID(sum[:])
	for i := range scan.Gaps {
		scan.Gaps[i].Durable = true // the header was durable before any record, so nothing tore it
		scan.Gaps[i].Exact = false
	}
}

// marks are how long logs of earlier lives are known to have been at least, by what the
// logs after them say.
func (in *Inbox) marks() (map[disk.LogID]int64, error) {
	entries, err := in.fs.ReadDir(in.opt.Dir)
	if err != nil {
		return nil, err
	}
	marks := make(map[disk.LogID]int64)
	for _, e := range entries {
		name, _, isLog := in.logName(e)
		if !isLog {
			continue
		}
		if _, before, err := disk.ReadLogHeader(in.fs, name); err == nil && before.Size > 0 {
			marks[before.ID] = max(marks[before.ID], before.Size)
		}
	}
	return marks, nil
}

// setAside keeps a damaged log where no later start sorts it and an operator finds it.
func (s *Sorter) setAside(ctx context.Context, d *LogDamage) error {
	to, err := s.opt.Lost.Take(d.File)
	if err != nil {
		return err
	}
	s.count(func(st *SorterStats) { st.Damaged++; st.Dropped += int64(d.sum()) })
	what := "acknowledged reports are lost: a log is damaged and was set aside"
	if isStandIn(s.fs, to.Path) {
		what = "acknowledged reports may be lost: a log is gone or was emptied, and another was set aside in its place"
	}
	s.opt.Logger.LogAttrs(ctx, slog.LevelError, what,
		slog.String("file", to.Path), slog.Int64("bytes", d.Bytes), slog.Int("records", d.Records), slog.Int("reports", d.sum()),
		slog.Bool("exact", d.Exact))
	return nil
}

// takeForeign keeps a log of another party's where it keeps nothing waiting.
func (s *Sorter) takeForeign(ctx context.Context, name string, why error) error {
	to, err := s.opt.Lost.Take(name)
	if err != nil {
		return err
	}
	s.count(func(st *SorterStats) { st.Damaged++ })
	s.opt.Logger.LogAttrs(ctx, slog.LevelError, "a log was set aside: it holds reports of a task that was never provisioned here",
		slog.String("file", to.Path), slog.Any("error", why))
	return nil
}

// tellTorn says that a log ends in what is no record, and may have been one.
func (s *Sorter) tellTorn(ctx context.Context, name string, scan *disk.Scan) {
	if scan.Cut > 0 {
		s.opt.Logger.LogAttrs(ctx, slog.LevelWarn,
			"a log ends in bytes that are no record: a loss of power tears what was not acknowledged, and damage at the end looks the same",
			slog.String("file", name), slog.Int64("bytes", scan.Cut))
	}
}

// Brief is an error of [Sorter.Sort] for a log line: of many logs that cannot be sorted,
// as on a full disk, the first, and how many more.
func Brief(err error) error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		if errs := many.Unwrap(); len(errs) > 1 {
			return fmt.Errorf("%w; and %d more", errs[0], len(errs)-1)
		}
	}
	return err
}

// A LogError is why one log cannot be sorted now.
type LogError struct {
	Name  string
	Err   error
	tasks map[TaskID]struct{} // whose reports may be in it; nil: any task's
}

func (e *LogError) Error() string {
	return fmt.Sprintf("%s, which holds acknowledged reports, cannot be sorted: %v", e.Name, e.Err)
}

func (e *LogError) Unwrap() error { return e.Err }

// Blocks says whether acknowledged reports of a task may be in a log that [Sorter.Sort]
// could not sort.
func Blocks(err error, task TaskID) bool {
	if err == nil {
		return false
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range all.Unwrap() {
			if Blocks(err, task) {
				return true
			}
		}
		return false
	}
	e := new(LogError)
	if !errors.As(err, &e) || e.tasks == nil {
		return true
	}
	_, may := e.tasks[task]
	return may
}
