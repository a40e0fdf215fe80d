package journal

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/internal/disk"
)

// Names of files: these and a number in sixteen hexadecimal digits.
const (
	roundPrefix   = "round-"
	forwardPrefix = "forward-"
	damagedPrefix = "damaged-"
)

const (
	// rewriteAt is the length in bytes from which on the log is written anew, when it is
	// twice as long as what is under way.
	rewriteAt = 1 << 20
	// maxRecord bounds a record, in bytes: a cut of 2^20 requests, each of a round and in
	// a piece of its own, has 28 MiB.
	maxRecord = 64 << 20
)

// A Journal keeps rounds until they are done. Its methods may be called concurrently; no
// two for one round or batch. Errors that match [disk.ErrStateUnknown] end its use: only
// [Open] finds out what is there.
type Journal struct {
	fs     disk.FS
	log    *disk.Log
	secret [secretSize]byte

	mu      sync.Mutex // guards the rest, and the order of records
	witness *witness   // of how far it has come
	next    uint64     // number of the next round
	opened  map[[KeySize]byte]Opened
	rounds  map[uint64]bool // that are on the disk
	batches map[uint64]*Batch
	passed  time.Duration
	counts  Counts
	known   map[Route]bool
	file    uint64 // number of the log's file
	fresh   int64  // its length when it was written anew, in bytes
}

// Recovered is what [Open] found.
type Recovered struct {
	// Rounds that are not done, in order, and the batches into which their groups were
	// cut. Rounds of a batch that are gone were done, or are damaged; pieces hold nothing
	// of them.
	Rounds  []*Round
	Batches []*Batch
	// Next is a number for the next round: above those of all rounds that are there,
	// damaged ones too, or that a batch remembers, which would take another of that
	// number for what it has sent.
	Next uint64
	// Damaged is how many rounds had been acknowledged and cannot be read, or are gone by
	// what an operator says.
	Damaged int
	// Passed is the latest of [Journal.Passed] and of the rounds, and Counts are all that
	// was ever counted.
	Passed time.Duration
	Counts Counts
	// Known are the routes of [Journal.Know].
	Known []Route
}

func name(prefix string, n uint64) string { return fmt.Sprintf("%s%016x", prefix, n) }

// number reads the number in a name.
func number(file, prefix string) (uint64, bool) {
	digits, ok := strings.CutPrefix(file, prefix)
	if !ok || len(digits) != 16 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 16, 64)
	return n, err == nil
}

// Open reads the directory, and writes the log anew. The directory belongs to one journal
// at a time; names of others in it are left alone. The record is another directory, which
// is not put back with the first. Damage, exchange or an older copy, after which nobody
// can tell what is lost, is a [*StateError].
func Open(fsys, record disk.FS, o disk.LogOptions) (*Journal, *Recovered, error) {
	entries, err := fsys.ReadDir(".")
	if err != nil {
		return nil, nil, fmt.Errorf("journal: list directory: %w", err)
	}
	j := &Journal{fs: fsys, rounds: make(map[uint64]bool)}
	if j.secret, j.witness, err = openState(fsys, record, entries); err != nil {
		return nil, nil, err
	}
	found, err := j.recover(entries, o)
	if err != nil {
		if j.log != nil {
			err = errors.Join(err, j.log.Close())
		}
		return nil, nil, errors.Join(err, j.witness.out.Close())
	}
	return j, found, nil
}

// recover reads what the directory holds of rounds. It changes nothing before all that can
// be refused was read.
func (j *Journal) recover(entries []disk.Entry, o disk.LogOptions) (*Recovered, error) {
	found := &Recovered{Next: j.witness.rounds}
	var logs, rubbish, ended []string
	var files, damaged []uint64 // rounds
	for _, e := range entries {
		if disk.IsTemp(e.Name) {
			if strings.HasPrefix(e.Name, roundPrefix) || strings.HasPrefix(e.Name, forwardPrefix) {
				rubbish = append(rubbish, e.Name)
			}
			continue
		}
		if n, ok := number(e.Name, damagedPrefix); ok {
			found.Next = max(found.Next, n+1)
			found.Damaged++
			damaged = append(damaged, n)
		}
		if n, ok := number(e.Name, forwardPrefix); ok {
			logs = append(logs, e.Name)
			j.file = max(j.file, n)
		}
		if n, ok := number(e.Name, roundPrefix); ok {
			files = append(files, n)
		}
	}
	slices.Sort(logs)
	log, err := j.play(logs)
	if err != nil {
		return nil, err
	}
	rounds := make(map[uint64]*Round)
	var lost []uint64
	for _, n := range files {
		if !log.lives(n) { // the power went before it was erased, or somebody put it back
			ended = append(ended, name(roundPrefix, n))
			continue
		}
		found.Next = max(found.Next, n+1)
		r, err := j.load(n)
		switch {
		case errors.Is(err, errRound):
			lost = append(lost, n)
		case err != nil:
			return nil, err
		default:
			rounds[n] = r
		}
	}
	damaged = append(damaged, lost...)
	for n := log.first(); n < j.witness.rounds; n++ {
		// It was acknowledged, and is gone: with it the whole directory may have been put
		// back, and what was opened since be forgotten.
		if log.lives(n) && rounds[n] == nil && !slices.Contains(damaged, n) {
			return nil, &StateError{File: name(roundPrefix, n), What: fmt.Sprintf(missingRound, name(damagedPrefix, n))}
		}
	}
	for _, n := range lost {
		// Its name was durable after its content, so this had been whole. Nobody can
		// tell what was in it; it is not in the way again.
		if err := j.fs.Rename(name(roundPrefix, n), name(damagedPrefix, n)); err != nil {
			return nil, fmt.Errorf("journal: set a damaged round aside: %w", err)
		}
		found.Damaged++
	}
	for _, file := range ended {
		if err := j.erase(file); err != nil {
			return nil, err
		}
	}
	j.batches, j.passed, j.counts, j.known, j.opened = log.batches, log.passed, log.counts, log.known, log.opened
	for n, r := range rounds {
		j.rounds[n] = true
		j.passed = max(j.passed, r.Passed)
	}
	found.Passed, found.Counts, found.Known = j.passed, maps.Clone(j.counts), slices.Collect(maps.Keys(j.known))
	for n, b := range j.batches {
		if !b.lives(rounds) {
			delete(j.batches, n)
			continue
		}
		for _, m := range b.Members {
			found.Next = max(found.Next, m.Round+1)
		}
	}
	j.next = found.Next
	j.file++
	o.MaxRecord = maxRecord
	if j.log, err = disk.CreateLog(j.fs, name(forwardPrefix, j.file), o); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if err := errors.Join(j.writeAll(), disk.Remove(j.fs, append(rubbish, logs...)...)); err != nil {
		return nil, err
	}
	for _, n := range slices.Sorted(maps.Keys(rounds)) {
		found.Rounds = append(found.Rounds, rounds[n])
	}
	for _, n := range slices.Sorted(maps.Keys(j.batches)) {
		found.Batches = append(found.Batches, j.batches[n])
	}
	return found, nil
}

// play reads the log's files, in order, and holds them against the mark.
func (j *Journal) play(logs []string) (*played, error) {
	log, marked := newPlayed(), name(forwardPrefix, j.witness.file)
	if j.witness.serial > 0 && !slices.Contains(logs, marked) {
		switch {
		case len(logs) == 0:
			return nil, &StateError{File: marked, What: IsGone}
		case logs[0] > marked:
			return nil, &StateError{File: "record/" + markFile, What: "was put back: the directory has gone on since"}
		}
		return nil, &StateError{File: logs[len(logs)-1], What: IsBack}
	}
	for _, file := range logs {
		vouched := j.witness.serial > 0 && file == marked
		scan, err := disk.ScanLog(j.fs, file)
		switch {
		case errors.Is(err, disk.ErrLogVersion):
			return nil, &StateError{File: file, What: IsNewer, Newer: true}
		case errors.Is(err, disk.ErrLogHeader) && !vouched:
			continue // power was lost before it held anything
		case err != nil && !errors.Is(err, disk.ErrLogHeader):
			return nil, fmt.Errorf("journal: %w", err)
		case err != nil || scan.Damaged || vouched && scan.Valid < int64(j.witness.size) && scan.Cut > 0:
			return nil, &StateError{File: file, What: IsDamaged}
		case vouched && scan.Valid < int64(j.witness.size):
			return nil, &StateError{File: file, What: IsBack}
		}
		for _, record := range scan.Records {
			if log.play(record) != nil {
				return nil, &StateError{File: file, What: IsDamaged}
			}
		}
	}
	return log, nil
}

// lives says whether a round of a batch is there, and leaves out what is not: of a round
// that was done nothing is left to do, and of a damaged one nothing can be done.
func (b *Batch) lives(rounds map[uint64]*Round) bool {
	for i, p := range b.Pieces {
		b.Pieces[i] = slices.DeleteFunc(p, func(ref Ref) bool {
			r := rounds[ref.Round]
			return r == nil || ref.Item >= len(r.Items)
		})
	}
	return slices.ContainsFunc(b.Members, func(m Member) bool {
		r := rounds[m.Round]
		return r != nil && m.Group < len(r.Groups)
	})
}

func (j *Journal) load(n uint64) (*Round, error) {
	file := name(roundPrefix, n)
	b, err := disk.ReadFile(j.fs, file, maxRound)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	r, err := readRound(j.witness.state, b)
	if state := new(StateError); errors.As(err, &state) {
		state.File = file
	}
	if err == nil && r.Number != n {
		err = errRound
	}
	return r, err
}

// Close closes the log. After a close in order the record vouches for all of it.
func (j *Journal) Close() error {
	err := j.log.Close()
	if j.log.Err() == nil && err == nil {
		err = j.raise()
	}
	return errors.Join(err, j.witness.out.Close())
}

// raise makes the mark durable of all that the journal has come to. j.mu must be held, or
// nobody else have the journal.
func (j *Journal) raise() error {
	m := j.witness.mark
	m.rounds, m.file, m.size = j.next, j.file, uint64(j.log.State().Size)
	return j.witness.raise(m)
}

// Log makes a round durable, has the record say so, and forgets its bodies. Its number is
// the one after the last round that was logged. After an error that does not match
// [disk.ErrStateUnknown] the round is not there.
func (j *Journal) Log(r *Round) error {
	head, err := r.head()
	if err != nil {
		return fmt.Errorf("journal: encode a round: %w", err)
	}
	at := int64(len(head))
	for i := range r.Items {
		it := &r.Items[i]
		it.offset, it.size = at, int64(len(it.Body))
		at += it.size
	}
	if at > maxRound-sha256.Size {
		return fmt.Errorf("journal: a round of %d bytes", at)
	}
	err = disk.WriteStream(j.fs, name(roundPrefix, r.Number), func(w io.Writer) error {
		sum, out := sha256.New(), bufio.NewWriterSize(w, 256<<10)
		state := j.State()
		sum.Write(state[:])
		both := io.MultiWriter(sum, out)
		both.Write(head) // bufio keeps its first error
		for i := range r.Items {
			both.Write(r.Items[i].Body)
		}
		out.Write(sum.Sum(nil))
		return out.Flush()
	})
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	for i := range r.Items {
		r.Items[i].Body = nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.rounds[r.Number], j.next = true, r.Number+1
	return j.raise()
}

// Bodies reads the bodies of items of a round that was logged.
func (j *Journal) Bodies(r *Round, items []int) ([][]byte, error) {
	f, err := j.fs.Open(name(roundPrefix, r.Number))
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	defer f.Close()
	bodies := make([][]byte, len(items))
	for i, n := range items {
		it := &r.Items[n]
		bodies[i] = make([]byte, it.size)
		if _, err := f.ReadAt(bodies[i], it.offset); err != nil {
			return nil, fmt.Errorf("journal: read a body: %w", err)
		}
	}
	return bodies, nil
}

// note writes a record down and then changes the state by it, in one step for whoever
// looks. err is that of encoding the record.
func (j *Journal) note(ctx context.Context, record []byte, err error, change func()) error {
	if err != nil {
		return fmt.Errorf("journal: encode a record: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.log.Append(ctx, record); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	change()
	return j.rewrite()
}

// Cut makes a new batch durable. The journal keeps it.
func (j *Journal) Cut(ctx context.Context, b *Batch) error {
	record, err := b.append(nil)
	return j.note(ctx, record, err, func() { j.batches[b.Number] = b })
}

// GiveUp makes a batch durable of which nothing is sent any more, and what that counts.
func (j *Journal) GiveUp(ctx context.Context, b *Batch, c Counts) error {
	b.GivenUp = true
	record, err := appendGivenUp(b, c)
	return j.note(ctx, record, err, func() {
		j.batches[b.Number] = b
		j.counts.Add(c)
	})
}

// Split halves a piece of a batch, durably, and returns the number of its second half.
func (j *Journal) Split(ctx context.Context, b *Batch, piece int) (second int, err error) {
	err = j.note(ctx, appendSplit(b.Number, piece), nil, func() { second = b.Split(piece) })
	return second, err
}

// Settle writes down that nothing more is to be done about a piece, and what that counts.
func (j *Journal) Settle(ctx context.Context, b *Batch, piece int, c Counts) error {
	record, err := appendSettle(b.Number, piece, c)
	return j.note(ctx, record, err, func() {
		b.Pieces[piece] = nil
		j.counts.Add(c)
	})
}

// Passed writes down how much time its user has seen pass, in all of its lives.
func (j *Journal) Passed(ctx context.Context, d time.Duration) error {
	return j.note(ctx, appendPassed(d), nil, func() { j.passed = max(j.passed, d) })
}

// Pieces are those of a batch that are not settled, and how many there are in all.
func (j *Journal) Pieces(b *Batch) (open []int, all int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, p := range b.Pieces {
		if len(p) > 0 {
			open = append(open, i)
		}
	}
	return open, len(b.Pieces)
}

// Piece is what a piece refers to.
func (j *Journal) Piece(b *Batch, piece int) []Ref {
	j.mu.Lock()
	defer j.mu.Unlock()
	return b.Pieces[piece]
}

// Know writes down that a target has taken something by a route.
func (j *Journal) Know(ctx context.Context, r Route) error {
	record, err := appendKnown(r)
	return j.note(ctx, record, err, func() { j.known[r] = true })
}

// rewrite begins the log anew where it has grown. j.mu must be held.
func (j *Journal) rewrite() error {
	if j.log.State().Size < max(rewriteAt, 2*j.fresh) {
		return nil
	}
	j.file++
	old, err := j.log.Rotate(name(forwardPrefix, j.file))
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := j.writeAll(); err != nil {
		return err
	}
	return disk.Remove(j.fs, old.Name)
}

// writeAll appends all that is known to the log, and has the record vouch for it: first
// the totals, which take the place of what earlier files count.
func (j *Journal) writeAll() error {
	write := func(record []byte, err error) error {
		if err == nil {
			err = j.log.Append(context.Background(), record)
		}
		if err != nil {
			return fmt.Errorf("journal: write the log anew: %w", err)
		}
		return nil
	}
	if err := write(appendTotals(j.passed, j.counts, j.next, slices.Sorted(maps.Keys(j.rounds)))); err != nil {
		return err
	}
	for _, o := range j.opened {
		if err := write(appendOpened(o), nil); err != nil {
			return err
		}
	}
	for r := range j.known {
		if err := write(appendKnown(r)); err != nil {
			return err
		}
	}
	for _, n := range slices.Sorted(maps.Keys(j.batches)) {
		b := j.batches[n]
		record, err := b.append(nil)
		if b.GivenUp {
			record, err = appendGivenUp(b, nil) // the totals have its counts
		}
		if err := write(record, err); err != nil {
			return err
		}
	}
	j.fresh = j.log.State().Size
	return j.raise()
}

// Opened says how far the log of what a key has opened has come; false for a key that this
// state has never used.
func (j *Journal) Opened(key [KeySize]byte) (Opened, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	o, ok := j.opened[key]
	return o, ok
}

// Vouch writes down how far the log of what a key has opened has come; that is durable.
func (j *Journal) Vouch(ctx context.Context, o Opened) error {
	return j.note(ctx, appendOpened(o), nil, func() { j.opened[o.Key] = o })
}

// Remove ends a round: that it is done is written down, so that it is never taken for one
// that was lost, and its file is overwritten, synced and removed. The lengths that its
// claims have brought the logs of keys to are written down with that.
func (j *Journal) Remove(r *Round, opened ...Opened) error {
	record, err := appendEnded(r.Number, opened)
	err = j.note(context.Background(), record, err, func() {
		delete(j.rounds, r.Number)
		for _, o := range opened {
			j.opened[o.Key] = o
		}
	})
	if err != nil {
		return err
	}
	if err := j.erase(name(roundPrefix, r.Number)); err != nil {
		return err
	}
	// A batch is remembered as long as any of its rounds, or what was sent would be held
	// again after a start.
	j.mu.Lock()
	defer j.mu.Unlock()
	for n, b := range j.batches {
		if !slices.ContainsFunc(b.Members, func(m Member) bool { return j.rounds[m.Round] }) {
			delete(j.batches, n)
		}
	}
	return nil
}

// erase overwrites a file and removes it.
func (j *Journal) erase(file string) error {
	f, err := j.fs.OpenAppend(file)
	if err != nil {
		return fmt.Errorf("journal: erase a round: %w", err)
	}
	size, err := f.Size()
	const step = 64 << 10
	zeros := make([]byte, min(size, step))
	for at := int64(0); err == nil && at < size; at += step {
		_, err = f.WriteAt(zeros[:min(step, size-at)], at)
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("journal: erase a round: %w", err)
	}
	return disk.Remove(j.fs, file)
}
