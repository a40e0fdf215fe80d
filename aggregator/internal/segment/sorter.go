package segment

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/lost"
	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/internal/buffer"
	"github.com/starling-agg/starling/internal/disk"
)

// Failpoints of this package, beside those of the log.
const (
	FailSegmentBeforeMove   = "segment.before-move"
	FailSegmentAfterMove    = "segment.after-move" // the copy is durable, and no row names it
	FailSegmentBeforeCommit = "segment.before-commit"
	FailSegmentAfterCommit  = "segment.after-commit" // before a log whose reports lie elsewhere is removed
	FailSegmentAfterRemove  = "segment.after-remove" // before that log is forgotten
	FailRunBeforeWrite      = "run.before-write"
	FailRunAfterWrite       = "run.after-write"
)

// segmentFailpoints lists the failpoints on the way from an upload to named slices, those
// of the log included.
func segmentFailpoints() []string {
	return append(disk.LogFailpoints(), FailSegmentBeforeMove, FailSegmentAfterMove, FailSegmentBeforeCommit,
		FailSegmentAfterCommit, FailSegmentAfterRemove)
}

// runFailpoints lists the failpoints of replay runs.
func runFailpoints() []string { return []string{FailRunBeforeWrite, FailRunAfterWrite} }

// Fate is what became of a log.
type Fate uint8

const (
	Unsorted Fate = iota
	Named         // its slices lie in it, or did: it goes by a tombstone
	Replaced      // its slices lie elsewhere, and nobody reads it again
)

// Committer is the database that names slices. It is called by one goroutine at a time.
//
// Durability: when CommitLog returns nil the rows survive a power loss. An error may mean
// that nothing happened or that the transaction took place all the same; the sorter asks
// for the log's fate before it tries again.
type Committer interface {
	// LogFate says what became of a log, which it knows by its id or by its file: an id
	// that cannot be read is zero.
	LogFate(ctx context.Context, log Begun) (Fate, error)
	// CommitLog inserts rows for all slices and records the log as sorted, in one
	// transaction. The slices lie in the log, which is Named then, or all in other
	// files; without slices it is Named unless it is damaged. Committing a log that is
	// recorded already changes nothing and is no error. Slices of closed batch buckets and
	// of retired tasks count as rejected and get no row; a file that gets none has its
	// tombstone at once. The reports that the log lost, unless lost is nil, count as
	// acknowledged and dropped. Others are the logs that take uploads or wait, noted as
	// BeginLogs does. The error matches ErrForeign where a slice is of a task that was
	// never known.
	CommitLog(ctx context.Context, log Begun, slices []Slice, lost *LogDamage, others []Begun) error
	// BeginLogs notes logs that take uploads; those that are noted or sorted stay as they
	// are.
	BeginLogs(ctx context.Context, logs []Begun) error
	// BegunLogs lists the logs that were noted and are not recorded as sorted: each of them
	// has a file, unless somebody took it away.
	BegunLogs(ctx context.Context) ([]Begun, error)
	// ForgetLog is called after a log that was Replaced is gone for good: its record serves
	// no purpose any more. It need not be durable, and may be called for a log that is not
	// recorded.
	ForgetLog(ctx context.Context, log disk.LogID) error
}

// Begun is a log that was durable, with its header, when it was noted.
type Begun struct {
	ID   disk.LogID
	File string
}

// SorterOptions tune a [Sorter].
type SorterOptions struct {
	// Dir holds what was copied out of logs; default "slices".
	Dir string
	// Lost is where damaged logs go; default one in the same file system.
	Lost *lost.Room
	// Latency is how long an acknowledged report may wait for company before its log is
	// sorted; default 250 ms.
	Latency time.Duration
	// MaxBytes bounds the reports of one slice, in bytes: what a job takes; default 6 MiB,
	// at most 1 GiB. A request of one task that was kept as one piece is one slice at
	// least. From 256 KiB a report on it is 4 MiB at most: what a job costs besides its
	// reports is nothing then, and memory is not.
	MaxBytes int
	// MaxReports bounds the reports of one slice; default 4096.
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
		o.Dir = "slices"
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

// Sorter has the slices of closed logs named.
type Sorter struct {
	fs    disk.FS
	files payload.Store
	inbox *Inbox
	opt   SorterOptions

	sort sync.Mutex // held during Sort; guards moved and needless
	// copies of what is whole of a log, by its name, that are durable and may not be named
	moved    map[string][]Slice
	needless []string // copies that may be there, of which no row is to come

	mu    sync.Mutex
	stats SorterStats
}

// SorterStats counts since the sorter was made.
type SorterStats struct {
	Logs     int64 // sorted
	Slices   int64 // named
	Reports  int64 // in them
	Moved    int64 // bytes of them that were copied
	Damaged  int64 // logs set aside because acknowledged records in them are damaged
	Dropped  int64 // reports in those records, at least
	Failures int64 // attempts to sort a log that ended in an error
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
	return &Sorter{fs: inbox.fs, files: payload.OpenFiles(inbox.fs), inbox: inbox, opt: opt, moved: make(map[string][]Slice)}, nil
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
	if err := disk.Remove(s.fs, s.needless...); err == nil {
		s.needless = nil
	}
	if err := s.inbox.Rotate(); err != nil {
		errs = append(errs, s.inbox.unrotated(err))
	}
	waiting := s.inbox.toSort()
	if len(waiting) == 0 {
		return 0, errors.Join(errs...)
	}
	for _, log := range waiting {
		if err := ctx.Err(); err != nil {
			return logs, err
		}
		if err := s.sortLog(ctx, log); err != nil {
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
// its slices are named, in it or elsewhere.
func (s *Sorter) sortLog(ctx context.Context, log closedLog) error {
	at := Begun{log.id, log.name}
	fate, err := s.inbox.committer.LogFate(ctx, at)
	if err != nil {
		return err
	}
	if fate == Named {
		s.inbox.committed(log.name)
		return nil
	}
	entry, err := s.fs.Stat(log.name)
	if errors.Is(err, fs.ErrNotExist) {
		if fate == Replaced { // an earlier attempt removed it
			return s.inbox.committer.ForgetLog(ctx, at.ID)
		}
		return nil
	}
	if err != nil {
		return err
	}
	file := buffer.Get(int(entry.Size))
	defer buffer.Put(file)
	scan, err := s.scan(log, entry.Size, file)
	if err != nil {
		return err
	}
	if at.ID == (disk.LogID{}) { // by which an earlier attempt may have recorded it
		at.ID = scan.ID
		if fate, err = s.inbox.committer.LogFate(ctx, at); err != nil {
			return err
		}
	}
	list, damage := s.slices(ctx, log, &scan)
	if fate == Unsorted {
		s.inbox.read(log.name, list)
		inPlace := damage == nil && !log.unsure
		if err := s.commit(ctx, at, list, damage, inPlace); errors.Is(err, ErrForeign) {
			for _, copied := range s.moved[log.name] {
				s.needless = append(s.needless, copied.Object)
			}
			delete(s.moved, log.name)
			return s.takeForeign(ctx, log.name, err)
		} else if err != nil {
			return err
		}
		if inPlace || damage == nil && len(list) == 0 {
			fate = Named
		}
	}
	s.inbox.committed(log.name)
	delete(s.moved, log.name)
	if err := s.opt.Failpoints.Hit(FailSegmentAfterCommit); err != nil {
		return err
	}
	s.count(func(st *SorterStats) { st.Logs++ })
	if fate == Named {
		return nil
	}
	if damage != nil {
		err = s.setAside(ctx, damage)
	} else {
		err = disk.Remove(s.fs, log.name)
	}
	if err != nil {
		return err
	}
	if err := s.opt.Failpoints.Hit(FailSegmentAfterRemove); err != nil {
		return err
	}
	return s.inbox.committer.ForgetLog(ctx, at.ID)
}

// scan reads a closed log, also one whose header is damaged.
func (s *Sorter) scan(log closedLog, size int64, file []byte) (disk.Scan, error) {
	scan, err := disk.ScanLogInto(s.fs, log.name, file)
	switch {
	case errors.Is(err, disk.ErrLogHeader) && scan.ID != (disk.LogID{}):
		// its records are bound to an id that is known
	case errors.Is(err, disk.ErrLogHeader):
		whole, err := disk.ReadFile(s.fs, log.name, size)
		if err != nil {
			return scan, err
		}
		salvage(whole, &scan)
		if log.id != (disk.LogID{}) {
			scan.ID = log.id
		}
	case err != nil:
		return scan, err
	}
	return scan, nil
}

// slices are those of what is whole of a log, and what is lost of it.
func (s *Sorter) slices(ctx context.Context, log closedLog, scan *disk.Scan) (list []Slice, damage *LogDamage) {
	damage = logDamageOf(log.name, scan, log.longer)
	if damage == nil && isStandIn(s.fs, log.name) {
		damage = &LogDamage{File: log.name, Bytes: disk.LogHeaderSize, Reports: make(map[TaskID]int)}
	}
	if damage == nil {
		s.tellTorn(ctx, log.name, scan)
	}
	came := int64(0)
	if !log.oldest.IsZero() {
		came = max(0, log.oldest.Unix())
	}
	list, malformed := logSlices(log.name, scan, came, s.opt.MaxBytes, s.opt.MaxReports)
	for _, record := range malformed {
		damage = damage.malformed(log.name, record)
	}
	return list, damage
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

// commit has the slices of a log named: in it where that is whole, and durable for sure,
// else in a copy.
func (s *Sorter) commit(ctx context.Context, log Begun, list []Slice, damage *LogDamage, inPlace bool) (err error) {
	if !inPlace {
		if list, err = s.move(ctx, log, list); err != nil {
			return err
		}
	}
	if err := s.opt.Failpoints.Hit(FailSegmentBeforeCommit); err != nil {
		return err
	}
	if err := s.inbox.committer.CommitLog(ctx, log, list, damage, s.inbox.begun(log.ID)); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	s.count(func(st *SorterStats) {
		st.Slices += int64(len(list))
		for i := range list {
			st.Reports += int64(list[i].Count)
			if !inPlace {
				st.Moved += list[i].Size()
			}
		}
	})
	return nil
}

// movedBytes is how much of slices comes into one copy, and into memory meanwhile.
const movedBytes = 16 << 20

// move copies slices, once, however often their commit fails.
func (s *Sorter) move(ctx context.Context, log Begun, list []Slice) (moved []Slice, err error) {
	if moved, done := s.moved[log.File]; done {
		return moved, nil
	}
	var names []string
	defer func() {
		if err != nil {
			s.needless = append(s.needless, names...)
		}
	}()
	for len(list) > 0 {
		n, size := 1, list[0].Size()
		for n < len(list) && size+list[n].Size() <= movedBytes {
			size += list[n].Size()
			n++
		}
		if err := s.opt.Failpoints.Hit(FailSegmentBeforeMove); err != nil {
			return nil, err
		}
		names = append(names, copyName(s.opt.Dir, log.ID))
		part, err := MoveSlices(ctx, s.files, s.files, names[len(names)-1], list[:n])
		if err != nil {
			return nil, err
		}
		if err := s.opt.Failpoints.Hit(FailSegmentAfterMove); err != nil {
			return nil, err
		}
		moved, list = append(moved, part...), list[n:]
	}
	s.moved[log.File] = moved
	return moved, nil
}

// place is what the reports of a slice share.
type place struct {
	task   TaskID
	bucket uint64
}

type member struct {
	place
	id ReportID
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

// Where slices end by default, and those of large reports; see SorterOptions.MaxBytes.
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
