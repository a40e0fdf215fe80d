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

	"github.com/starling-agg/starling/disk"
)

// Names of files: these and a number in sixteen hexadecimal digits.
const (
	roundPrefix   = "round-"
	forwardPrefix = "forward-"
	donePrefix    = "done-"
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
	fs  disk.FS
	log *disk.Log

	mu      sync.Mutex      // guards the rest, and the order of records
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
	// Damaged is how many rounds had been acknowledged and cannot be read.
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
// at a time; names of others in it are left alone.
func Open(fsys disk.FS, o disk.LogOptions) (*Journal, *Recovered, error) {
	entries, err := fsys.ReadDir(".")
	if err != nil {
		return nil, nil, fmt.Errorf("journal: list directory: %w", err)
	}
	j := &Journal{fs: fsys, rounds: make(map[uint64]bool)}
	log := &played{batches: make(map[uint64]*Batch), known: make(map[Route]bool)}
	found := &Recovered{}
	rounds := make(map[uint64]*Round)
	var logs, rubbish []string
	for _, e := range entries {
		switch {
		case disk.IsTemp(e.Name):
			if strings.HasPrefix(e.Name, roundPrefix) || strings.HasPrefix(e.Name, forwardPrefix) {
				rubbish = append(rubbish, e.Name)
			}
			continue
		case strings.HasPrefix(e.Name, damagedPrefix):
			if n, ok := number(e.Name, damagedPrefix); ok {
				found.Next = max(found.Next, n+1)
			}
			found.Damaged++
			continue
		}
		if _, ok := number(e.Name, donePrefix); ok {
			if err := j.erase(e.Name); err != nil {
				return nil, nil, err
			}
			continue
		}
		if n, ok := number(e.Name, forwardPrefix); ok {
			logs = append(logs, e.Name)
			j.file = max(j.file, n)
		}
		n, ok := number(e.Name, roundPrefix)
		if !ok {
			continue
		}
		found.Next = max(found.Next, n+1)
		r, err := j.load(e.Name)
		if err == nil && r.Number != n {
			err = errRound
		}
		if errors.Is(err, errRound) {
			// Its name was durable after its content, so this had been whole. Nobody can
			// tell what was in it; it is not in the way again.
			if err := fsys.Rename(e.Name, name(damagedPrefix, n)); err != nil {
				return nil, nil, fmt.Errorf("journal: set a damaged round aside: %w", err)
			}
			found.Damaged++
			continue
		} else if err != nil {
			return nil, nil, err
		}
		rounds[n] = r
	}
	slices.Sort(logs)
	for _, file := range logs {
		scan, err := disk.ScanLog(fsys, file)
		if errors.Is(err, disk.ErrLogHeader) {
			continue // power was lost before it held anything
		} else if err != nil {
			return nil, nil, fmt.Errorf("journal: %w", err)
		}
		if err := scan.Err(file); err != nil {
			return nil, nil, fmt.Errorf("journal: %w", err)
		}
		for _, record := range scan.Records {
			if err := log.play(record); err != nil {
				return nil, nil, fmt.Errorf("%w in %s", err, file)
			}
		}
	}
	j.batches, j.passed, j.counts, j.known = log.batches, log.passed, log.counts, log.known
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
	j.file++
	o.MaxRecord = maxRecord
	if j.log, err = disk.CreateLog(fsys, name(forwardPrefix, j.file), o); err != nil {
		return nil, nil, fmt.Errorf("journal: %w", err)
	}
	if err := errors.Join(j.writeAll(), disk.Remove(fsys, append(rubbish, logs...)...)); err != nil {
		return nil, nil, errors.Join(err, j.log.Close())
	}
	for _, n := range slices.Sorted(maps.Keys(rounds)) {
		found.Rounds = append(found.Rounds, rounds[n])
	}
	for _, n := range slices.Sorted(maps.Keys(j.batches)) {
		found.Batches = append(found.Batches, j.batches[n])
	}
	return j, found, nil
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

func (j *Journal) load(file string) (*Round, error) {
	b, err := disk.ReadFile(j.fs, file, MaxRound)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return readRound(b)
}

// Close closes the log.
func (j *Journal) Close() error { return j.log.Close() }

// Log makes a round durable, and forgets its bodies. After an error that does not match
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
	if at > MaxRound-sha256.Size {
		return fmt.Errorf("journal: a round of %d bytes", at)
	}
	err = disk.WriteStream(j.fs, name(roundPrefix, r.Number), func(w io.Writer) error {
		sum, out := sha256.New(), bufio.NewWriterSize(w, 256<<10)
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
	j.rounds[r.Number] = true
	return nil
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

// Cut makes a new batch durable. The journal keeps it.
func (j *Journal) Cut(ctx context.Context, b *Batch) error {
	record, err := b.append(nil)
	if err != nil {
		return fmt.Errorf("journal: encode a batch: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.log.Append(ctx, record); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.batches[b.Number] = b
	return j.rewrite()
}

// GiveUp makes a batch durable of which nothing is sent any more, and what that counts.
func (j *Journal) GiveUp(ctx context.Context, b *Batch, c Counts) error {
	b.GivenUp = true
	record, err := appendGivenUp(b, c)
	if err != nil {
		return fmt.Errorf("journal: encode a batch: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.log.Append(ctx, record); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.batches[b.Number] = b
	j.counts.Add(c)
	return j.rewrite()
}

// Split halves a piece of a batch, durably, and returns the number of its second half.
func (j *Journal) Split(ctx context.Context, b *Batch, piece int) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.log.Append(ctx, appendSplit(b.Number, piece)); err != nil {
		return 0, fmt.Errorf("journal: %w", err)
	}
	return b.Split(piece), j.rewrite()
}

// Settle writes down that nothing more is to be done about a piece, and what that counts.
func (j *Journal) Settle(ctx context.Context, b *Batch, piece int, c Counts) error {
	record, err := appendSettle(b.Number, piece, c)
	if err != nil {
		return fmt.Errorf("journal: encode counts: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.log.Append(ctx, record); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	b.Pieces[piece] = nil
	j.counts.Add(c)
	return j.rewrite()
}

// Passed writes down how much time its user has seen pass, in all of its lives.
func (j *Journal) Passed(ctx context.Context, d time.Duration) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.log.Append(ctx, appendPassed(d)); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.passed = max(j.passed, d)
	return j.rewrite()
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
	if err != nil {
		return fmt.Errorf("journal: encode a route: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.log.Append(ctx, record); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.known[r] = true
	return j.rewrite()
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

// writeAll appends all that is known to the log: first the totals, which take the place
// of what earlier files count.
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
	if j.passed > 0 || len(j.counts) > 0 {
		if err := write(appendTotals(j.passed, j.counts)); err != nil {
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
	return nil
}

// Remove ends a round: its file is renamed, so that it is never taken for a damaged one,
// overwritten, synced and removed.
func (j *Journal) Remove(r *Round) error {
	done := name(donePrefix, r.Number)
	err := j.fs.Rename(name(roundPrefix, r.Number), done)
	if err == nil {
		err = j.fs.SyncDir(".")
	}
	if err != nil {
		return fmt.Errorf("journal: end a round: %w: %w", disk.ErrStateUnknown, err)
	}
	if err := j.erase(done); err != nil {
		return err
	}
	// A batch is remembered as long as any of its rounds, or what was sent would be held
	// again after a start.
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.rounds, r.Number)
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
