package segment

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/internal/disk"
)

// InboxOptions tune an [Inbox]. The zero value is good.
type InboxOptions struct {
	// Dir holds the logs; default "inbox".
	Dir string
	// MaxReport is the largest report, in bytes; default 4 MiB.
	MaxReport int
	// MaxInFlight bounds the bytes of reports that are waiting for their fsync; above it
	// Put returns ErrBusy. Default 64 MiB.
	MaxInFlight int64
	// MaxUnsorted bounds the bytes acknowledged and not yet sorted; above it Put returns
	// ErrBusy. Default 1 GiB.
	MaxUnsorted int64
	// RotateBytes closes a log file and hands it to the sorter once it holds so much;
	// default 4 MiB.
	RotateBytes int64
	// JobBytes and JobReports bound what of one request is kept as one piece: what a job
	// takes; see [SorterOptions]. Default the same.
	JobBytes, JobReports int
	// Unnamed are copies of slices that no row names: a log that was noted, and out of which
	// one of them was copied, was sorted, and the row went back.
	Unnamed []string
	// Log tunes the group commit; its clock and failpoints are the inbox's too.
	Log disk.LogOptions
}

// Validate fills in defaults and reports values that make no sense.
func (o *InboxOptions) Validate() error {
	if o.Dir == "" {
		o.Dir = "inbox"
	}
	if o.MaxReport == 0 {
		o.MaxReport = 4 << 20
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = 64 << 20
	}
	if o.MaxUnsorted == 0 {
		o.MaxUnsorted = 1 << 30
	}
	if o.RotateBytes == 0 {
		o.RotateBytes = 4 << 20
	}
	if o.JobBytes == 0 {
		o.JobBytes = DefaultBytes
	}
	if o.JobReports == 0 {
		o.JobReports = DefaultReports
	}
	if err := o.Log.Validate(); err != nil {
		return err
	}
	switch {
	case o.MaxReport < 0 || o.MaxReport > o.Log.MaxRecord-blockHeader-reportEntry:
		return fmt.Errorf("segment: MaxReport %d does not fit into a log record of %d", o.MaxReport, o.Log.MaxRecord)
	case o.MaxInFlight < 0 || o.MaxUnsorted < 0 || o.RotateBytes < 0 || o.JobBytes < 0 || o.JobReports < 0:
		return errors.New("segment: negative limit")
	}
	return disk.CheckName(o.Dir)
}

// Inbox is where uploads become durable. The caller must Close it.
type Inbox struct {
	fs        disk.FS
	opt       InboxOptions
	committer Committer

	rotate sync.Mutex // held while files are exchanged; taken before mu

	mu       sync.Mutex
	log      *disk.Log // nil after a failure, until the next Put begins a new file
	seq      uint64    // of the newest file
	closed   []closedLog
	tasks    map[TaskID]struct{} // whose reports may be in the newest file
	inFlight int64               // bytes
	unsorted int64               // bytes acknowledged and not yet sorted
	current  int64               // bytes acknowledged since the last rotation
	// of the first acknowledgement since the last rotation; zero if there was none
	oldest time.Time
	broken error // set once: a sync failed
	ended  bool

	// reports acknowledged and not yet named
	waiting map[TaskID]uint64
	found   map[string]map[TaskID]uint64 // what closed logs hold that were read

	wake chan struct{} // something has changed for the sorter
}

// closedLog is a file that nobody writes to, to be sorted.
type closedLog struct {
	name  string
	id    disk.LogID // zero where its header does not say, and nobody noted it
	bytes int64      // its share of Inbox.unsorted
	// the first acknowledgement in it; of an earlier life's, when that was over
	oldest time.Time
	longer int64 // bytes that it is known to have had, at least
	before bool  // it is of an earlier life
	// it may hold records that are whole and were not synced, of an earlier life or after a
	// failed write: no row is to rest on them
	unsure bool
	done   bool // it is committed; what is left to do is to remove and forget it
	// whose reports may be in it; nil of an earlier life, where any task's may
	tasks map[TaskID]struct{}
}

// OpenInbox takes over the folder, in which logs of earlier lives wait to be sorted, and
// begins a new log, which the committer has noted before the first upload comes. A log that
// was noted and is gone waits to be sorted too: as one of which all is lost.
func OpenInbox(ctx context.Context, fsys disk.FS, committer Committer, opt InboxOptions) (*Inbox, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	if err := disk.MakeDirs(fsys, opt.Dir); err != nil {
		return nil, err
	}
	in := &Inbox{fs: fsys, opt: opt, committer: committer, wake: make(chan struct{}, 1), waiting: make(map[TaskID]uint64),
		found: make(map[string]map[TaskID]uint64)}
	if err := in.takeOver(ctx); err != nil {
		return nil, fmt.Errorf("segment: open inbox: %w", err)
	}
	if err := in.begin(); err != nil {
		return nil, err
	}
	if err := committer.BeginLogs(ctx, in.begun(disk.LogID{})); err != nil {
		return nil, errors.Join(fmt.Errorf("segment: open inbox: %w", err), in.log.Close())
	}
	return in, nil
}

// takeOver hands the logs of earlier lives to the sorter. A crash may leave a file without
// a header, which nobody has noted; it goes at once.
func (in *Inbox) takeOver(ctx context.Context) error {
	noted, err := in.committer.BegunLogs(ctx)
	if err != nil {
		return err
	}
	entries, err := in.fs.ReadDir(in.opt.Dir)
	if err != nil {
		return err
	}
	marks, err := in.marks()
	if err != nil {
		return err
	}
	there := make(map[disk.LogID]bool)
	headless := make(map[string]int64) // bytes, by name, of files that no header names
	for _, e := range entries {
		name, seq, isLog := in.logName(e)
		if !isLog {
			continue
		}
		in.seq = max(in.seq, seq)
		if fate, err := in.committer.LogFate(ctx, Begun{File: name}); err != nil {
			return err
		} else if fate == Named {
			continue
		}
		id, _, err := disk.ReadLogHeader(in.fs, name)
		isEmpty := e.Size <= disk.LogHeaderSize && marks[id] <= disk.LogHeaderSize
		switch {
		case errors.Is(err, disk.ErrLogVersion) && !isEmpty:
			return fmt.Errorf("a log of acknowledged reports is of a newer version of this program: "+
				"start that one and let it sort what waits, before you go back to this: %w", err)
		case err != nil:
			headless[name] = e.Size
		default:
			there[id] = true
			in.retire(closedLog{name: name, id: id, bytes: e.Size, longer: marks[id]})
		}
	}
	copied := make(map[disk.LogID]bool)
	for _, name := range in.opt.Unnamed {
		if id, ok := copiedFrom(name); ok {
			copied[id] = true
		}
	}
	for _, log := range noted {
		size, isHeadless := headless[log.File]
		switch {
		case there[log.ID]:
			continue
		case !isHeadless && copied[log.ID]:
			if err := in.committer.CommitLog(ctx, log, nil, nil, nil); err != nil {
				return err
			}
			continue
		case isHeadless:
			delete(headless, log.File)
		default:
			log.File = in.newName()
		}
		if size <= disk.LogHeaderSize {
			if err := standIn(in.fs, log, marks[log.ID]); err != nil {
				return err
			}
		}
		in.retire(closedLog{name: log.File, id: log.ID, bytes: size, longer: marks[log.ID]})
	}
	for _, name := range slices.Sorted(maps.Keys(headless)) {
		if size := headless[name]; size > disk.LogHeaderSize {
			in.retire(closedLog{name: name, bytes: size})
		} else if err := disk.Remove(in.fs, name); err != nil {
			return err
		}
	}
	slices.SortFunc(in.closed, func(a, b closedLog) int { return strings.Compare(a.name, b.name) })
	return nil
}

// begun are the logs that have a file, but for one that is being sorted and those that are
// committed: such a one may be forgotten already, though that was reported as failed, and
// noted again it would count as lost at the next start.
func (in *Inbox) begun(but disk.LogID) (logs []Begun) {
	in.mu.Lock()
	log := in.log
	for _, c := range in.closed {
		if c.id != but && c.id != (disk.LogID{}) && !c.done {
			logs = append(logs, Begun{c.id, c.name})
		}
	}
	in.mu.Unlock()
	if log != nil {
		state := log.State()
		logs = append(logs, Begun{state.ID, state.Name})
	}
	return logs
}

const logSuffix = ".log"

// logName is the name of a log in the folder, and its number; false for what is none.
func (in *Inbox) logName(e disk.Entry) (name string, seq uint64, ok bool) {
	base, isLog := strings.CutSuffix(e.Name, logSuffix)
	number, own, isNamed := strings.Cut(base, "-")
	seq, err := strconv.ParseUint(number, 16, 64)
	random, badHex := hex.DecodeString(own)
	isLog = isLog && isNamed && err == nil && badHex == nil && len(random) == logNonce && !e.Dir
	return path.Join(in.opt.Dir, e.Name), seq, isLog
}

// logNonce is how many random bytes a log's name has.
const logNonce = 16

// newName is the name of a log that comes after all others. The number orders them while
// they are there, and begins again where there is none: what rows and tombstones say of a
// log that is gone is told from the others by the random bytes. in.mu must be held, or in
// not yet shared.
func (in *Inbox) newName() string {
	in.seq++
	var own [logNonce]byte
	rand.Read(own[:]) // never fails
	return path.Join(in.opt.Dir, fmt.Sprintf("%016x-%x%s", in.seq, own, logSuffix))
}

// retire hands the log of an earlier life to the sorter. in must not be shared yet.
func (in *Inbox) retire(log closedLog) {
	log.oldest, log.before, log.unsure = in.opt.Log.Clock.Now(), true, true
	in.closed = append(in.closed, log)
	in.unsorted += log.bytes
}

// begin makes a new log where there is none. in.rotate must be held, or in not yet shared.
func (in *Inbox) begin() error {
	in.mu.Lock()
	name := in.newName()
	in.mu.Unlock()
	log, err := disk.CreateLog(in.fs, name, in.opt.Log)
	if err != nil {
		return err
	}
	in.mu.Lock()
	in.log = log
	in.mu.Unlock()
	return nil
}

// Put makes the entries durable and returns then; several calls share one fsync. All are
// kept or, after an error, none is acknowledged: with [disk.ErrStateUnknown] some may
// turn up all the same, with any other error none will unless the call was larger than
// one log record ([disk.LogOptions.MaxRecord]). The reports may be reused when it
// returns.
func (in *Inbox) Put(ctx context.Context, entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	size := int64(0)
	for i := range entries {
		if n := len(entries[i].Report); n > in.opt.MaxReport {
			return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, n, in.opt.MaxReport)
		}
		size += int64(entries[i].encodedSize())
	}
	if err := in.reserve(size); err != nil {
		return err
	}
	defer in.release(size)
	for len(entries) > 0 {
		n, length := 1, entries[0].encodedSize()
		for n < len(entries) && length+entries[n].encodedSize() <= in.opt.Log.MaxRecord {
			length += entries[n].encodedSize()
			n++
		}
		in.note(entries[:n])
		if err := in.append(ctx, recordParts(entries[:n], in.opt.JobBytes, in.opt.JobReports)); err != nil {
			return err
		}
		in.came(entries[:n])
		in.note(entries[:n]) // the file may be another by now
		entries = entries[n:]
	}
	return nil
}

// note remembers whose reports may be in the newest file.
func (in *Inbox) note(entries []Entry) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.tasks == nil {
		in.tasks = make(map[TaskID]struct{})
	}
	for i := range entries {
		if i == 0 || entries[i].TaskID != entries[i-1].TaskID {
			in.tasks[entries[i].TaskID] = struct{}{}
		}
	}
}

// unrotated is the error of a file that could not be closed for the sorter.
func (in *Inbox) unrotated(err error) error {
	in.mu.Lock()
	log, tasks := in.log, maps.Clone(in.tasks)
	in.mu.Unlock()
	name := in.opt.Dir
	if log != nil {
		name = log.State().Name // waits for a sync, which in.mu must not
	}
	return &LogError{Name: name, Err: err, tasks: tasks}
}

// reserve applies back-pressure. One call larger than the limit is let through when
// nothing else is in flight.
func (in *Inbox) reserve(size int64) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.inFlight > 0 && in.inFlight+size > in.opt.MaxInFlight:
		return fmt.Errorf("%w: %d bytes in flight", ErrBusy, in.inFlight)
	case in.unsorted > 0 && in.unsorted+size > in.opt.MaxUnsorted:
		return fmt.Errorf("%w: %d bytes unsorted", ErrBusy, in.unsorted)
	}
	in.inFlight += size
	return nil
}

func (in *Inbox) release(size int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.inFlight -= size
	in.settled()
}

// settled forgets counts where nothing is left to count: of what was in a log and never
// acknowledged, and of what was named before [Inbox.Put] came to count it. in.mu must be
// held.
func (in *Inbox) settled() {
	if in.unsorted <= 0 && in.inFlight == 0 {
		clear(in.waiting)
	}
}

// append makes one record, given in parts, durable, in a new log if the current one has
// failed before this record was written.
func (in *Inbox) append(ctx context.Context, record [][]byte) error {
	size := int64(0)
	for _, part := range record {
		size += int64(len(part))
	}
	for {
		log, err := in.writable()
		if err != nil {
			return err
		}
		err = log.Append(ctx, record...)
		if err == nil {
			in.acknowledged(size)
			return nil
		}
		if log.Err() == nil {
			return err // of this record alone
		}
		in.abandon(log)
		if !errors.Is(err, disk.ErrLogFailed) {
			return err
		}
	}
}

// writable returns the current log and begins one if there is none.
func (in *Inbox) writable() (*disk.Log, error) {
	log, err := in.usable()
	if log != nil || err != nil {
		return log, err
	}
	in.rotate.Lock()
	defer in.rotate.Unlock()
	if log, err := in.usable(); log != nil || err != nil {
		return log, err
	}
	if err := in.begin(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return in.usable()
}

func (in *Inbox) usable() (*disk.Log, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.broken != nil:
		return nil, fmt.Errorf("%w: %v", disk.ErrLogFailed, in.broken) // %v: nothing of this call was written
	case in.ended:
		return nil, disk.ErrLogClosed
	}
	return in.log, nil
}

// abandon stops using a failed log. Its durable part goes to the sorter like any other
// log, except after a failed sync: then only a restart may read it.
func (in *Inbox) abandon(log *disk.Log) {
	in.rotate.Lock()
	defer in.rotate.Unlock()
	in.abandonLocked(log)
}

// abandonLocked is abandon for those who hold in.rotate.
func (in *Inbox) abandonLocked(log *disk.Log) {
	in.mu.Lock()
	mine := in.log == log
	if mine && errors.Is(log.Err(), disk.ErrSync) {
		in.broken = log.Err()
		mine = false
	}
	if mine {
		in.log = nil
	}
	in.mu.Unlock()
	if !mine {
		return
	}
	_ = log.Close() // all that counts in it is synced
	state := log.State()
	in.mu.Lock()
	in.handOver(state, in.oldest, true)
	in.mu.Unlock()
}

// handOver moves what the current file holds to the sorter. in.mu must be held.
func (in *Inbox) handOver(state disk.LogState, oldest time.Time, unsure bool) {
	in.closed = append(in.closed, closedLog{
		name: state.Name, id: state.ID, bytes: state.Payload(), longer: state.Size, oldest: oldest, unsure: unsure, tasks: in.tasks,
	})
	in.tasks = nil
	signal(in.wake)
}

func (in *Inbox) acknowledged(size int64) {
	in.mu.Lock()
	in.unsorted += size
	in.current += size
	if in.oldest.IsZero() {
		in.oldest = in.opt.Log.Clock.Now()
		signal(in.wake)
	}
	full := in.current >= in.opt.RotateBytes
	in.mu.Unlock()
	if full && in.rotate.TryLock() {
		// The reports are durable whatever becomes of the rotation; the next Put or the
		// sorter tries again.
		_ = in.rotateLocked()
		in.rotate.Unlock()
	}
}

// Rotate closes the current log file for the sorter if there is anything in it.
func (in *Inbox) Rotate() error {
	in.rotate.Lock()
	defer in.rotate.Unlock()
	return in.rotateLocked()
}

func (in *Inbox) rotateLocked() error {
	in.mu.Lock()
	log, oldest, current := in.log, in.oldest, in.current
	if log == nil || in.broken != nil || in.ended {
		in.mu.Unlock()
		return nil // nothing to close
	}
	// Before the exchange: an acknowledgement that comes in between may count for a file
	// already closed, which costs an idle look of the sorter; the other way round one
	// would be forgotten.
	in.oldest, in.current = time.Time{}, 0
	name := in.newName()
	in.mu.Unlock()
	if log.State().Records == 0 {
		return nil
	}
	state, err := log.Rotate(name)
	if err != nil && log.Err() != nil {
		in.abandonLocked(log) // it had failed under a Put that has not come to this yet
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if err != nil {
		in.current += current
		if !oldest.IsZero() {
			in.oldest = oldest
		}
		return fmt.Errorf("segment: rotate inbox: %w", err)
	}
	in.handOver(state, oldest, false)
	return nil
}

// ready waits until there is something to sort: a closed log, or a report that has waited
// for latency.
func (in *Inbox) ready(ctx context.Context, latency time.Duration) error {
	for {
		in.mu.Lock()
		closed, oldest := len(in.closed), in.oldest
		in.mu.Unlock()
		if closed > 0 {
			return nil
		}
		if oldest.IsZero() {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-in.wake:
			}
			continue
		}
		clock := in.opt.Log.Clock
		wait := latency - clock.Now().Sub(oldest)
		if wait <= 0 {
			return nil
		}
		timer := clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		case <-in.wake:
			timer.Stop()
		}
	}
}

// toSort lists the closed logs, oldest first.
func (in *Inbox) toSort() []closedLog {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.closed)
}

// sorted forgets a closed log that the sorter is done with.
func (in *Inbox) sorted(log closedLog) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = slices.DeleteFunc(in.closed, func(c closedLog) bool { return c.name == log.name })
	in.unsorted -= log.bytes
	delete(in.found, log.name)
	in.settled()
}

// came counts reports that were acknowledged.
func (in *Inbox) came(entries []Entry) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for i := range entries {
		in.waiting[entries[i].TaskID]++
	}
}

// read counts what a closed log holds that is not committed; those of earlier lives were
// not counted when they came.
func (in *Inbox) read(name string, list []Slice) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.found[name] != nil {
		return
	}
	m := make(map[TaskID]uint64)
	for i := range list {
		m[list[i].TaskID] += uint64(list[i].Count)
	}
	in.found[name] = m
	if slices.ContainsFunc(in.closed, func(c closedLog) bool { return c.name == name && c.before }) {
		for task, n := range m {
			in.waiting[task] += n
		}
	}
}

// committed counts the reports of a log no longer: the store does.
func (in *Inbox) committed(name string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for task, n := range in.found[name] {
		in.waiting[task] -= min(n, in.waiting[task])
	}
	in.found[name] = map[TaskID]uint64{}
	for i := range in.closed {
		in.closed[i].done = in.closed[i].done || in.closed[i].name == name
	}
}

// Waiting is how many reports of a task are acknowledged and not yet named.
func (in *Inbox) Waiting(task TaskID) uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.waiting[task]
}

// May says whether acknowledged reports of a task may be here that are not yet named: also in
// a log of an earlier life, of which nobody knows whose it has until it is sorted.
func (in *Inbox) May(task TaskID) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.waiting[task] > 0 || slices.ContainsFunc(in.closed, func(c closedLog) bool { return !c.done && c.tasks == nil })
}

// InboxStats is a snapshot for metrics and back-pressure.
type InboxStats struct {
	InFlight   int64     // bytes waiting for their fsync
	Unsorted   int64     // bytes acknowledged and not yet named
	ClosedLogs int       // files waiting for the sorter
	Reports    uint64    // acknowledged and not yet named
	Oldest     time.Time // the first acknowledgement among them; zero if there is none
}

// Stats describes the inbox now.
func (in *Inbox) Stats() InboxStats {
	in.mu.Lock()
	defer in.mu.Unlock()
	s := InboxStats{InFlight: in.inFlight, Unsorted: in.unsorted, ClosedLogs: len(in.closed), Oldest: in.oldest}
	for _, n := range in.waiting {
		s.Reports += n
	}
	for _, c := range in.closed {
		if !c.oldest.IsZero() && (s.Oldest.IsZero() || c.oldest.Before(s.Oldest)) {
			s.Oldest = c.oldest
		}
	}
	return s
}

// Err is nil while Put can work, and the failed sync that broke the inbox for good
// afterwards.
func (in *Inbox) Err() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.broken
}

// Close lets the uploads under way finish and refuses later ones. Logs not yet sorted
// stay for the next life.
func (in *Inbox) Close() error {
	in.rotate.Lock()
	defer in.rotate.Unlock()
	in.mu.Lock()
	log, first := in.log, !in.ended
	in.ended = true
	in.mu.Unlock()
	if log == nil || !first {
		return nil
	}
	return log.Close()
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
