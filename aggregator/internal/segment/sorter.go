package segment

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/lost"
	"github.com/starling-agg/starling/internal/buffer"
	"github.com/starling-agg/starling/internal/disk"
)

// Failpoints of this package, beside those of the log.
const (
	FailSegmentBeforeWrite  = "segment.before-write"
	FailSegmentAfterWrite   = "segment.after-write"   // one file is whole, its name not yet durable
	FailSegmentBeforeCommit = "segment.before-commit" // all files are durable
	FailSegmentAfterCommit  = "segment.after-commit"  // before the log is removed
	FailSegmentAfterRemove  = "segment.after-remove"  // before the log is forgotten
	FailRunBeforeWrite      = "run.before-write"
	FailRunAfterWrite       = "run.after-write"
)

// segmentFailpoints lists the failpoints on the way from an upload to a committed
// segment, those of the log included.
func segmentFailpoints() []string {
	return append(disk.LogFailpoints(), FailSegmentBeforeWrite, FailSegmentAfterWrite, FailSegmentBeforeCommit,
		FailSegmentAfterCommit, FailSegmentAfterRemove)
}

// runFailpoints lists the failpoints of replay runs.
func runFailpoints() []string { return []string{FailRunBeforeWrite, FailRunAfterWrite} }

// Committer is the database that names segments. It is called by one goroutine at a time.
//
// Durability: when CommitLog returns nil the rows survive a power loss. An error may mean
// that nothing happened or that the transaction took place all the same; the sorter asks
// SegmentsOfLog before it tries again.
type Committer interface {
	// SegmentsOfLog reports whether the log was committed before.
	SegmentsOfLog(ctx context.Context, log disk.LogID) (done bool, err error)
	// CommitLog inserts rows for all segments and records the log as sorted, in one
	// transaction. Committing a log that is recorded already changes nothing and is no
	// error. There may be no segments. The reports that the log lost, unless lost is nil,
	// count as acknowledged and dropped. Others are the logs that take uploads or wait,
	// noted as BeginLogs does. The error matches ErrForeign where a segment is of a task
	// that was never known.
	CommitLog(ctx context.Context, log disk.LogID, segments []Meta, lost *LogDamage, others []Begun) error
	// BeginLogs notes logs that take uploads; those that are noted or sorted stay as they
	// are.
	BeginLogs(ctx context.Context, logs []Begun) error
	// BegunLogs lists the logs that were noted and are not recorded as sorted: each of them
	// has a file, unless somebody took it away.
	BegunLogs(ctx context.Context) ([]Begun, error)
	// ForgetLog is called after the log file is gone for good: its record serves no purpose
	// any more. It need not be durable, and may be called for a log that is not recorded.
	ForgetLog(ctx context.Context, log disk.LogID) error
}

// Begun is a log that was durable, with its header, when it was noted.
type Begun struct {
	ID   disk.LogID
	File string
}

// SorterOptions tune a [Sorter].
type SorterOptions struct {
	// Dir holds the segments; default "segments".
	Dir string
	// Lost is where damaged logs go; default one in the same file system.
	Lost *lost.Room
	// Latency is how long an acknowledged report may wait for company before its log is
	// sorted; default 250 ms.
	Latency time.Duration
	// MaxBytes bounds the reports of one segment, in bytes; default 6 MiB, at most 1
	// GiB. A larger report is alone. Where it is somewhat above
	// [InboxOptions.RotateBytes], a log of one batch bucket becomes one segment and no
	// second, small one. From 256 KiB a report on it is 4 MiB at most: what a job costs
	// besides its reports is nothing then, and memory is not.
	MaxBytes int
	// MaxReports bounds the reports of one segment; default 4096.
	MaxReports int
	// Retry is the first pause after a failure, doubled up to 64 times it; default 100 ms.
	Retry time.Duration
	// Logger gets one line per failure and per damaged log; default none.
	Logger *slog.Logger
	// Failpoints is nil in production.
	Failpoints *disk.Failpoints
}

// Validate fills in defaults and reports values that make no sense.
func (o *SorterOptions) Validate() error {
	if o.Dir == "" {
		o.Dir = "segments"
	}
	if o.Latency == 0 {
		o.Latency = 250 * time.Millisecond
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultBytes
	}
	if o.MaxReports == 0 {
		o.MaxReports = DefaultReports
	}
	if o.Retry == 0 {
		o.Retry = 100 * time.Millisecond
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case o.Latency < 0 || o.Retry < 0:
		return errors.New("segment: negative duration")
	case o.MaxBytes < 0 || o.MaxBytes > 1<<30:
		return fmt.Errorf("segment: MaxBytes %d not in [1, %d]", o.MaxBytes, 1<<30)
	case o.MaxReports < 0:
		return fmt.Errorf("segment: MaxReports %d is negative", o.MaxReports)
	}
	return disk.CheckName(o.Dir)
}

// Sorter cuts closed logs into segments.
type Sorter struct {
	fs    disk.FS
	inbox *Inbox
	opt   SorterOptions

	sort sync.Mutex // held during Sort; guards dirs
	dirs map[string]struct{}

	mu    sync.Mutex
	stats SorterStats
}

// SorterStats counts since the sorter was made.
type SorterStats struct {
	Logs       int64 // sorted
	Segments   int64 // committed
	Reports    int64 // in them
	Duplicates int64 // left out because the same log, task and batch bucket had the id before
	Damaged    int64 // logs set aside because acknowledged records in them are damaged
	Dropped    int64 // reports in those records, at least
	Failures   int64 // attempts to sort a log that ended in an error
}

// NewSorter makes a sorter for the logs of an inbox.
func NewSorter(inbox *Inbox, opt SorterOptions) (*Sorter, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	if err := disk.MakeDirs(inbox.fs, opt.Dir); err != nil {
		return nil, err
	}
	if opt.Lost == nil {
		opt.Lost = &lost.Room{FS: inbox.fs, Newest: func() uint64 { return 0 }}
	}
	return &Sorter{fs: inbox.fs, inbox: inbox, opt: opt, dirs: make(map[string]struct{})}, nil
}

// Stats describes the sorter now.
func (s *Sorter) Stats() SorterStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Run sorts until the context ends, whose error it returns. Failures are logged, counted
// and tried again.
func (s *Sorter) Run(ctx context.Context) error {
	retry := s.opt.Retry
	for {
		if err := s.inbox.ready(ctx, s.opt.Latency); err != nil {
			return err
		}
		_, err := s.Sort(ctx)
		if err == nil {
			retry = s.opt.Retry
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.opt.Logger.LogAttrs(ctx, slog.LevelError, "sorting the inbox failed", slog.Any("error", Brief(err)),
			slog.Duration("retry_in", retry))
		timer := s.inbox.opt.Log.Clock.NewTimer(retry)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		}
		retry = min(2*retry, 64*s.opt.Retry)
	}
}

// Sort closes the current log and sorts every closed one, now. It returns how many logs
// were dealt with. One log that fails does not keep the others waiting; [Blocks] says of
// whose reports the error leaves some behind.
func (s *Sorter) Sort(ctx context.Context) (logs int, err error) {
	s.sort.Lock()
	defer s.sort.Unlock()
	var errs []error
	if err := s.inbox.Rotate(); err != nil {
		errs = append(errs, s.inbox.unrotated(err))
	}
	waiting := s.inbox.toSort()
	if len(waiting) == 0 {
		return 0, errors.Join(errs...)
	}
	marks, err := s.inbox.marks()
	if err != nil {
		return 0, errors.Join(append(errs, err)...)
	}
	for _, log := range waiting {
		if err := ctx.Err(); err != nil {
			return logs, err
		}
		if err := s.sortLog(ctx, log, marks); err != nil {
			errs = append(errs, &LogError{Name: log.name, Err: err, tasks: log.tasks})
			s.count(func(st *SorterStats) { st.Failures++ })
			continue
		}
		s.inbox.sorted(log)
		logs++
	}
	return logs, errors.Join(errs...)
}

func (s *Sorter) count(f func(*SorterStats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.stats)
}

// sortLog takes one closed log from whatever point an earlier attempt reached to its end:
// committed and gone.
func (s *Sorter) sortLog(ctx context.Context, log closedLog, marks map[disk.LogID]int64) error {
	name := log.name
	entry, err := s.fs.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // an earlier attempt removed it
	}
	if err != nil {
		return err
	}
	file := buffer.Get(int(entry.Size))
	defer buffer.Put(file)
	scan, err := disk.ScanLogInto(s.fs, name, file)
	switch {
	case errors.Is(err, disk.ErrLogHeader) && scan.ID != (disk.LogID{}):
		// its records are bound to an id that is known
	case errors.Is(err, disk.ErrLogHeader):
		whole, err := disk.ReadFile(s.fs, name, entry.Size)
		if err != nil {
			return err
		}
		salvage(whole, &scan)
		if log.id != (disk.LogID{}) {
			scan.ID = log.id
		}
	case err != nil:
		return err
	}
	damage := logDamageOf(name, &scan, marks[scan.ID])
	if damage == nil && isStandIn(s.fs, name) {
		damage = &LogDamage{File: name, Bytes: disk.LogHeaderSize, Reports: make(map[TaskID]int)}
	}
	if damage == nil {
		s.tellTorn(ctx, name, &scan)
	}
	var entries []Entry
	for _, record := range slices.Concat(scan.Records, scan.Behind) {
		before := len(entries)
		// whole, and yet no record of ours
		if entries, err = readEntries(entries, record); err != nil {
			entries = entries[:before]
			damage = damage.malformed(name, record)
		}
	}
	done, err := s.inbox.committer.SegmentsOfLog(ctx, scan.ID)
	if err != nil {
		return err
	}
	if !done {
		s.inbox.read(name, entries)
		if err := s.commit(ctx, scan.ID, entries, damage, log.oldest); errors.Is(err, ErrForeign) {
			return s.takeForeign(ctx, name, err)
		} else if err != nil {
			return err
		}
	}
	s.inbox.committed(name)
	if err := s.opt.Failpoints.Hit(FailSegmentAfterCommit); err != nil {
		return err
	}
	if damage != nil {
		err = s.setAside(ctx, damage)
	} else {
		err = disk.Remove(s.fs, name)
	}
	if err != nil {
		return err
	}
	if err := s.opt.Failpoints.Hit(FailSegmentAfterRemove); err != nil {
		return err
	}
	s.count(func(st *SorterStats) { st.Logs++ })
	return s.inbox.committer.ForgetLog(ctx, scan.ID)
}

func decode(records [][]byte) ([]Entry, error) {
	var entries []Entry
	for _, r := range records {
		var err error
		if entries, err = readEntries(entries, r); err != nil {
			return entries, err
		}
	}
	return entries, nil
}

// commit writes the segments of a log and has them named.
func (s *Sorter) commit(ctx context.Context, log disk.LogID, entries []Entry, damage *LogDamage, oldest time.Time) error {
	came := int64(0)
	if !oldest.IsZero() {
		came = max(0, oldest.Unix())
	}
	dir := path.Join(s.opt.Dir, log.String()[:2])
	if err := s.ensureDir(dir); err != nil {
		return err
	}
	if err := s.opt.Failpoints.Hit(FailSegmentBeforeWrite); err != nil {
		return err
	}
	var metas []Meta
	for _, g := range group(entries) {
		duplicates := g.duplicates
		for part := range cutGroup(g.entries, s.opt.MaxBytes, s.opt.MaxReports) {
			content, meta := encode(part)
			meta.Came = came
			meta.Name = fmt.Sprintf("%s/%s-%06d%s", dir, log, len(metas), segmentSuffix)
			meta.Duplicates, duplicates = duplicates, 0
			err := disk.StageFile(s.fs, meta.Name, content)
			buffer.Put(content)
			if err != nil {
				return err
			}
			if err := s.opt.Failpoints.Hit(FailSegmentAfterWrite); err != nil {
				return err
			}
			metas = append(metas, meta)
		}
	}
	if err := s.fs.SyncDir(dir); err != nil {
		return err
	}
	if err := s.opt.Failpoints.Hit(FailSegmentBeforeCommit); err != nil {
		return err
	}
	if err := s.inbox.committer.CommitLog(ctx, log, metas, damage, s.inbox.begun(log)); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	s.count(func(st *SorterStats) {
		st.Segments += int64(len(metas))
		for _, m := range metas {
			st.Reports += int64(m.Count)
			st.Duplicates += int64(m.Duplicates)
		}
	})
	return nil
}

// segmentSuffix ends the names of segment files, which begin with the id of their log: see
// [Waiting.Holds].
const segmentSuffix = ".seg"

func (s *Sorter) ensureDir(dir string) error {
	if _, ok := s.dirs[dir]; ok {
		return nil
	}
	if err := disk.MakeDirs(s.fs, dir); err != nil {
		return err
	}
	s.dirs[dir] = struct{}{}
	return nil
}

// grouped are the entries of one task and batch bucket, distinct and in order of arrival.
type grouped struct {
	entries    []Entry
	duplicates int
}

// group sorts entries by task and batch bucket; the order depends on nothing but the log.
func group(entries []Entry) []grouped {
	groups := make(map[place]*grouped)
	seen := make(map[member]struct{}, len(entries))
	var keys []place
	for _, e := range entries {
		k := place{e.TaskID, e.Bucket}
		g := groups[k]
		if g == nil {
			g = new(grouped)
			groups[k] = g
			keys = append(keys, k)
		}
		m := member{k, e.ReportID}
		if _, dup := seen[m]; dup {
			g.duplicates++
			continue
		}
		seen[m] = struct{}{}
		g.entries = append(g.entries, e)
	}
	slices.SortFunc(keys, func(a, b place) int {
		return cmp.Or(bytes.Compare(a.task[:], b.task[:]), cmp.Compare(a.bucket, b.bucket))
	})
	sorted := make([]grouped, len(keys))
	for i, k := range keys {
		sorted[i] = *groups[k]
	}
	return sorted
}

// Where segments end by default, and those of large reports; see SorterOptions.MaxBytes.
const (
	DefaultBytes   = 6 << 20
	DefaultReports = 4096
	LargeReport    = 256 << 10
	LargeBytes     = 4 << 20
)

// cutGroup cuts the entries of a group so that no part has more bytes of reports, or more
// reports, than one job is to take. A report that alone is larger is alone.
func cutGroup(entries []Entry, maxBytes, maxReports int) func(yield func([]Entry) bool) {
	return func(yield func([]Entry) bool) {
		for len(entries) > 0 {
			n, size, limit := 1, len(entries[0].Report), maxBytes
			if size >= LargeReport {
				limit = min(limit, LargeBytes)
			}
			for n < len(entries) && n < maxReports && size+len(entries[n].Report) <= limit {
				size += len(entries[n].Report)
				n++
			}
			if !yield(entries[:n]) {
				return
			}
			entries = entries[n:]
		}
	}
}
