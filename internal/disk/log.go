package disk

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"
)

// Errors of [Log.Append] beyond [ErrStateUnknown] and the context's.
var (
	// ErrLogFailed: an earlier write or sync failed; this record was not written. The log
	// must be opened anew.
	ErrLogFailed = errors.New("disk: log failed earlier")
	// ErrLogClosed: the log was closed; this record was not written.
	ErrLogClosed = errors.New("disk: log is closed")
	// ErrRecordSize: the record is empty or larger than [LogOptions.MaxRecord].
	ErrRecordSize = errors.New("disk: record size out of bounds")
	// ErrSync stands beside ErrStateUnknown where it was the sync that failed: the medium
	// cannot be trusted.
	ErrSync = errors.New("disk: sync failed")
)

// Failpoints of the log.
const (
	failLogBeforeAppend = "log.before-append"
	failLogBeforeSync   = "log.after-append-before-sync"
	failLogBeforeAck    = "log.after-sync-before-ack"
	failLogBeforeRotate = "log.after-create-before-rotate"
)

// LogFailpoints lists the failpoints of the log.
func LogFailpoints() []string {
	return []string{failLogBeforeAppend, failLogBeforeSync, failLogBeforeAck, failLogBeforeRotate}
}

// LogOptions tune a [Log]. The zero value is good.
type LogOptions struct {
	// MaxRecord is the largest payload, in bytes; default 16 MiB, at most 1 GiB.
	MaxRecord int
	// MaxWait is how long a record may wait for others to share its fsync; default 5 ms.
	// A record that meets no concurrency does not wait at all: a group is held open only
	// until it is as large as the one before.
	MaxWait time.Duration
	// MaxGroup is the most records that share an fsync; default 1000.
	MaxGroup int
	// MaxGroupBytes closes a group early, in bytes; default 4 MiB. A larger record is a
	// group of its own.
	MaxGroupBytes int
	// Clock measures MaxWait; default [SystemClock].
	Clock Clock
	// Failpoints is nil in production.
	Failpoints *Failpoints
}

const maxRecordLimit = 1 << 30

// Validate fills in defaults and reports values that make no sense.
func (o *LogOptions) Validate() error {
	if o.MaxRecord == 0 {
		o.MaxRecord = 16 << 20
	}
	if o.MaxWait == 0 {
		o.MaxWait = 5 * time.Millisecond
	}
	if o.MaxGroup == 0 {
		o.MaxGroup = 1000
	}
	if o.MaxGroupBytes == 0 {
		o.MaxGroupBytes = 4 << 20
	}
	if o.Clock == nil {
		o.Clock = SystemClock
	}
	switch {
	case o.MaxRecord < 0 || o.MaxRecord > maxRecordLimit:
		return fmt.Errorf("disk: MaxRecord %d not in [1, %d]", o.MaxRecord, maxRecordLimit)
	case o.MaxWait < 0:
		return fmt.Errorf("disk: MaxWait %v is negative", o.MaxWait)
	case o.MaxGroup < 0:
		return fmt.Errorf("disk: MaxGroup %d is negative", o.MaxGroup)
	case o.MaxGroupBytes < 0:
		return fmt.Errorf("disk: MaxGroupBytes %d is negative", o.MaxGroupBytes)
	}
	return nil
}

// Log is an append log with group commit: many goroutines append, one goroutine writes
// and syncs for all of them. The caller must Close it.
type Log struct {
	fs  FS
	opt LogOptions

	mu     sync.Mutex
	queue  []*appendRequest // waiting, in order
	want   int              // how large the group should grow before it is committed
	err    error            // set once: the log has failed
	closed bool

	wake chan struct{} // the queue became non-empty, or the log was closed
	full chan struct{} // the queue reached want, or the log was closed
	done chan struct{} // the committer has ended

	// io is held while the current file is written or exchanged; it guards the fields
	// below. mu may be taken under it.
	io      sync.Mutex
	file    File
	name    string
	id      LogID
	durable int64 // bytes of the file known to be durable, which is also its length unless the log failed
	records int64 // durable records in the file
	buf     []byte
}

type appendRequest struct {
	parts [][]byte
	size  int
	since time.Time
	done  chan error // buffered, so that the committer never waits for a caller
}

// CreateLog makes the new file name and a log that appends to it. The file's header and
// name are durable on return.
func CreateLog(fsys FS, name string, opt LogOptions) (*Log, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	f, id, err := createLogFile(fsys, name, Mark{})
	if err != nil {
		return nil, err
	}
	return startLog(fsys, opt, f, name, id, LogHeaderSize, 0), nil
}

// WriteLogHeader writes a log file that holds nothing, in the place of what was there: its
// id, and what it says of the log before it.
func WriteLogHeader(fsys FS, name string, id LogID, before Mark) error {
	return WriteFile(fsys, name, appendLogHeader(nil, id, before))
}

// OpenLog reads the log file name, hands each record to visit in order, and appends to it
// from then on; it makes the file if there is none. The records read are first written to
// a fresh file that atomically replaces the old one: after a failed sync the old file's
// bytes may be in memory only, and its torn tail goes with it. The new header says the same
// of the log before. A payload is only valid
// during visit. If the error is a [*DamagedError] the records up to the damage were
// visited and nothing was changed.
func OpenLog(fsys FS, name string, opt LogOptions, visit func(payload []byte) error) (*Log, Scan, error) {
	if err := opt.Validate(); err != nil {
		return nil, Scan{}, err
	}
	scan, err := scanOrNone(fsys, name)
	if err != nil {
		return nil, Scan{}, err
	}
	for _, r := range scan.Records {
		if err := visit(r); err != nil {
			return nil, scan, fmt.Errorf("disk: log %s: %w", name, err)
		}
	}
	if err := scan.Err(name); err != nil {
		return nil, scan, err
	}
	id := newLogID()
	content := appendLogHeader(make([]byte, 0, scan.Valid), id, scan.Before)
	for _, r := range scan.Records {
		content = appendFrame(content, id, int64(len(content)), LogHeaderSize, [][]byte{r})
	}
	if err := WriteFile(fsys, name, content); err != nil {
		return nil, scan, err
	}
	f, err := fsys.OpenAppend(name)
	if err != nil {
		return nil, scan, fmt.Errorf("disk: open log %s: %w", name, err)
	}
	records := int64(len(scan.Records))
	scan.Records = nil
	return startLog(fsys, opt, f, name, id, int64(len(content)), records), scan, nil
}

// scanOrNone is ScanLog that takes a missing file, or one that lost power before its
// header was durable, as empty.
func scanOrNone(fsys FS, name string) (Scan, error) {
	entries, err := fsys.ReadDir(path.Dir(name))
	if err != nil {
		return Scan{}, fmt.Errorf("disk: open log %s: %w", name, err)
	}
	i := slices.IndexFunc(entries, func(e Entry) bool { return e.Name == path.Base(name) })
	if i < 0 {
		return Scan{}, nil
	}
	scan, err := ScanLog(fsys, name)
	if errors.Is(err, ErrLogHeader) && entries[i].Size <= LogHeaderSize {
		return Scan{Cut: entries[i].Size}, nil
	}
	return scan, err
}

func createLogFile(fsys FS, name string, before Mark) (File, LogID, error) {
	f, err := fsys.Create(name)
	if err != nil {
		return nil, LogID{}, fmt.Errorf("disk: create log: %w", err)
	}
	id := newLogID()
	_, err = f.Write(appendLogHeader(nil, id, before))
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = fsys.SyncDir(path.Dir(name))
	}
	if err != nil {
		f.Close()
		// Best effort: a file without records is harmless.
		_ = fsys.Remove(name)
		return nil, LogID{}, fmt.Errorf("disk: create log %s: %w", name, err)
	}
	return f, id, nil
}

func startLog(fsys FS, opt LogOptions, f File, name string, id LogID, durable, records int64) *Log {
	l := &Log{
		fs: fsys, opt: opt, want: 1,
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1), done: make(chan struct{}),
		file: f, name: name, id: id, durable: durable, records: records,
	}
	go l.run()
	return l
}

// Append adds one record, the concatenation of parts, and returns once it is durable. The
// parts may be reused when it returns. The context stops the wait only while the record
// is still queued; its error then means "not written". An error that matches
// [ErrStateUnknown] means that the record may or may not be found by the next scan; with
// every other error it will not.
func (l *Log) Append(ctx context.Context, parts ...[]byte) error {
	r := &appendRequest{parts: parts, since: l.opt.Clock.Now(), done: make(chan error, 1)}
	for _, p := range parts {
		r.size += len(p)
	}
	if r.size == 0 || r.size > l.opt.MaxRecord {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrRecordSize, r.size, l.opt.MaxRecord)
	}
	if err := ctx.Err(); err != nil {
		return err
	}

	l.mu.Lock()
	if err := l.refusal(); err != nil {
		l.mu.Unlock()
		return err
	}
	l.queue = append(l.queue, r)
	if len(l.queue) == 1 {
		signal(l.wake)
	}
	if len(l.queue) >= l.want {
		signal(l.full)
	}
	l.mu.Unlock()

	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
	}
	l.mu.Lock()
	i := slices.Index(l.queue, r)
	if i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
	l.mu.Unlock()
	if i >= 0 {
		return ctx.Err()
	}
	return <-r.done // being written: its fate is known within one sync
}

// refusal says why nothing may be appended. l.mu must be held.
func (l *Log) refusal() error {
	switch {
	case l.err != nil:
		return fmt.Errorf("%w: %v", ErrLogFailed, l.err) // %v: this record's own state is known
	case l.closed:
		return ErrLogClosed
	}
	return nil
}

// Rotate makes the new file name and appends to it from now on. It returns the old file
// as it was left: everything acknowledged before is durable there, it is closed and
// belongs to the caller. After an error the old file stays in use. The new file says how
// long the old one is at least.
func (l *Log) Rotate(name string) (LogState, error) {
	now := l.State()
	f, id, err := createLogFile(l.fs, name, Mark{now.ID, now.Size})
	if err != nil {
		return LogState{}, err
	}
	abandon := func(err error) (LogState, error) {
		f.Close()
		_ = l.fs.Remove(name) // best effort: it holds no record
		return LogState{}, err
	}
	if err := l.opt.Failpoints.Hit(failLogBeforeRotate); err != nil {
		return abandon(err)
	}
	l.io.Lock()
	defer l.io.Unlock()
	l.mu.Lock()
	err = l.refusal()
	l.mu.Unlock()
	if err != nil {
		return abandon(err)
	}
	_ = l.file.Close() // all that counts in it is synced
	old := l.state()
	l.file, l.name, l.id, l.durable, l.records = f, name, id, LogHeaderSize, 0
	return old, nil
}

// LogState describes the file that a log is appending to.
type LogState struct {
	Name    string
	ID      LogID
	Size    int64 // durable bytes, the header included
	Records int64 // durable records
}

// State describes the current file. It waits for a commit that is under way.
func (l *Log) State() LogState {
	l.io.Lock()
	defer l.io.Unlock()
	return l.state()
}

func (l *Log) state() LogState {
	return LogState{Name: l.name, ID: l.id, Size: l.durable, Records: l.records}
}

// Payload is the sum of the records' lengths, in bytes.
func (s LogState) Payload() int64 { return s.Size - LogHeaderSize - s.Records*FrameOverhead }

// Err is nil while the log works, and what broke it afterwards; see [ErrSync].
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Close commits what is queued, ends the log's goroutine and closes the file. It may be
// repeated.
func (l *Log) Close() error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	signal(l.wake)
	signal(l.full)
	l.mu.Unlock()
	<-l.done
	if !first {
		return nil
	}
	l.io.Lock()
	defer l.io.Unlock()
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("disk: close log %s: %w", l.name, err)
	}
	return nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run is the committer: it takes groups off the queue until the log is closed and empty.
func (l *Log) run() {
	defer close(l.done)
	for {
		group, ok := l.nextGroup()
		if !ok {
			return
		}
		if len(group) == 0 {
			continue
		}
		err := l.commit(group)
		for _, r := range group {
			r.done <- err
		}
		if err != nil {
			l.dropQueue(err)
		}
	}
}

// nextGroup waits for records, lets the group grow, and takes it; it may be empty. ok is
// false when the log has ended.
func (l *Log) nextGroup() (group []*appendRequest, ok bool) {
	l.mu.Lock()
	for len(l.queue) == 0 {
		if l.closed {
			l.mu.Unlock()
			return nil, false
		}
		l.mu.Unlock()
		<-l.wake
		l.mu.Lock()
	}
	if wait := l.opt.MaxWait - l.opt.Clock.Now().Sub(l.queue[0].since); len(l.queue) < l.want && !l.closed && wait > 0 {
		select { // a signal left over from an earlier group
		case <-l.full:
		default:
		}
		l.mu.Unlock()
		timer := l.opt.Clock.NewTimer(wait)
		select {
		case <-l.full:
		case <-timer.C():
		}
		timer.Stop()
		l.mu.Lock()
	}
	defer l.mu.Unlock()
	n, size := 0, 0
	for n < len(l.queue) && n < l.opt.MaxGroup && (n == 0 || size+l.queue[n].size <= l.opt.MaxGroupBytes) {
		size += l.queue[n].size
		n++
	}
	group = slices.Clone(l.queue[:n])
	l.queue = slices.Delete(l.queue, 0, n) // zeroes the rest, so that nothing written stays reachable
	l.want = max(1, n)
	return group, true
}

// commit makes a group durable.
func (l *Log) commit(group []*appendRequest) error {
	l.io.Lock()
	defer l.io.Unlock()
	// The log has failed before the io lock is released, so that no Rotate slips in
	// between.
	unknown := func(doing string, err error) error {
		err = fmt.Errorf("disk: %s log %s: %w: %w", doing, l.name, ErrStateUnknown, err)
		l.mu.Lock()
		l.err = err
		l.mu.Unlock()
		return err
	}
	if err := l.opt.Failpoints.Hit(failLogBeforeAppend); err != nil {
		return unknown("append to", err)
	}
	l.buf = l.buf[:0]
	for _, r := range group {
		l.buf = appendFrame(l.buf, l.id, l.durable+int64(len(l.buf)), l.durable, r.parts)
	}
	size := int64(len(l.buf))
	_, err := l.file.Write(l.buf)
	if cap(l.buf) > 2*l.opt.MaxGroupBytes {
		l.buf = nil // do not keep what one large record took
	}
	if err != nil {
		return unknown("append to", err)
	}
	if err := l.opt.Failpoints.Hit(failLogBeforeSync); err != nil {
		return unknown("append to", err)
	}
	if err := l.file.Sync(); err != nil {
		return unknown("sync", fmt.Errorf("%w: %w", ErrSync, err))
	}
	l.durable += size
	l.records += int64(len(group))
	if err := l.opt.Failpoints.Hit(failLogBeforeAck); err != nil {
		return unknown("append to", err)
	}
	return nil
}

// dropQueue refuses what was queued when the log failed.
func (l *Log) dropQueue(err error) {
	l.mu.Lock()
	queue := l.queue
	l.queue = nil
	l.mu.Unlock()
	for _, r := range queue {
		r.done <- fmt.Errorf("%w: %v", ErrLogFailed, err)
	}
}
