package segment

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sort"
	"sync"

	"github.com/starling-agg/starling/disk"
)

// A run file, big-endian:
//
//	magic 8 | version u32 | zero u32 | count u64
//	blocks of 255 ids (the last may be shorter): ids ascending, then CRC-32C of the block's ids and zeros up to 16 bytes
//	SHA-256 of all before
//
// so that a full block is one page of 4096 bytes, checked whenever it is read.
const (
	runMagic   = "starlrun"
	runVersion = 1
	runHeader  = 8 + 4 + 4 + 8
	blockIDs   = 255
	idSize     = 16
	blockTail  = 16
	blockSize  = blockIDs*idSize + blockTail
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// RunMeta is what a row keeps of a run.
type RunMeta struct {
	Name  string // of the file, as the FS has it
	Count int64  // distinct ids, at least 1
	Size  int64  // bytes of the file
	Sum   Sum    // the file's trailer: SHA-256 of all bytes before it
}

// WriteRun makes a run of ids, in any order, durable under name; the caller then names it in the transaction that
// commits the job. Repeated ids count once. It replaces a file of that name, which no row may name.
func WriteRun(fsys disk.FS, name string, ids []ReportID, fp *disk.Failpoints) (RunMeta, error) {
	if len(ids) == 0 {
		return RunMeta{}, errors.New("segment: a run needs at least one id")
	}
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, compareIDs)
	sorted = slices.Compact(sorted)
	i := 0
	return writeRun(fsys, name, int64(len(sorted)), fp, func() (ReportID, error) {
		i++
		return sorted[i-1], nil
	})
}

// Merge makes one durable run of the ids of several, reading each file once with little memory. The caller names it and
// drops the rows of the others in one transaction, then calls [Runs.Replace] and [Remove].
func Merge(fsys disk.FS, name string, runs []RunMeta, fp *disk.Failpoints) (meta RunMeta, err error) {
	if len(runs) == 0 {
		return RunMeta{}, errors.New("segment: nothing to merge")
	}
	// Twice over the input: the header says how many distinct ids follow.
	count := int64(0)
	for pass := range 2 {
		m, err := newMerger(fsys, runs)
		if err != nil {
			return RunMeta{}, err
		}
		if pass == 0 {
			for err == nil {
				if _, err = m.next(); err == nil {
					count++
				}
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
		} else {
			meta, err = writeRun(fsys, name, count, fp, m.next)
		}
		m.close()
		if err != nil {
			return RunMeta{}, fmt.Errorf("segment: merge runs: %w", err)
		}
	}
	return meta, nil
}

// writeRun streams count ascending ids into a new file.
func writeRun(fsys disk.FS, name string, count int64, fp *disk.Failpoints, next func() (ReportID, error)) (RunMeta, error) {
	if err := fp.Hit(FailRunBeforeWrite); err != nil {
		return RunMeta{}, err
	}
	hash := sha256.New()
	meta := RunMeta{Name: name, Count: count, Size: runSize(count)}
	err := disk.WriteStream(fsys, name, func(f io.Writer) error {
		w := io.MultiWriter(f, hash)
		b := append([]byte(runMagic), 0, 0, 0, runVersion, 0, 0, 0, 0)
		b = binary.BigEndian.AppendUint64(b, uint64(count))
		for left := count; left > 0; {
			n := min(left, blockIDs)
			start := len(b)
			for range n {
				id, err := next()
				if err != nil {
					return err
				}
				b = append(b, id[:]...)
			}
			b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
			b = append(b, make([]byte, blockTail-4)...)
			left -= n
			if left == 0 || len(b) >= 64<<10 {
				if _, err := w.Write(b); err != nil {
					return err
				}
				b = b[:0]
			}
		}
		meta.Sum = Sum(hash.Sum(nil))
		_, err := f.Write(meta.Sum[:])
		return err
	})
	if err != nil {
		return RunMeta{}, fmt.Errorf("segment: write run: %w", err)
	}
	return meta, fp.Hit(FailRunAfterWrite)
}

func runSize(count int64) int64 {
	return runHeader + count*idSize + blocksOf(count)*blockTail + sha256.Size
}

func blocksOf(count int64) int64 { return (count + blockIDs - 1) / blockIDs }

func compareIDs(a, b ReportID) int { return bytes.Compare(a[:], b[:]) }

// run is an open run file with the first id of each block in memory: 16 bytes per 4 KiB of file.
type run struct {
	meta  RunMeta
	file  disk.File
	first []ReportID
}

// openRun reads the whole file once, to verify it against the row and to build the index.
func openRun(fsys disk.FS, meta RunMeta) (*run, error) {
	f, err := fsys.Open(meta.Name)
	if err != nil {
		return nil, fmt.Errorf("segment: open run: %w", err)
	}
	r := &run{meta: meta, file: f}
	if err := r.load(); err != nil {
		f.Close()
		return nil, fmt.Errorf("segment: open run %s: %w", meta.Name, err)
	}
	return r, nil
}

func (r *run) load() error {
	size, err := r.file.Size()
	if err != nil {
		return err
	}
	if r.meta.Count < 1 || size != r.meta.Size || size != runSize(r.meta.Count) {
		return fmt.Errorf("%w: %d bytes, want %d", ErrCorrupt, size, r.meta.Size)
	}
	hash := sha256.New()
	in := io.TeeReader(io.NewSectionReader(r.file, 0, size-sha256.Size), hash)
	var header [runHeader]byte
	if _, err := io.ReadFull(in, header[:]); err != nil {
		return err
	}
	if string(header[:8]) != runMagic || binary.BigEndian.Uint32(header[8:]) != runVersion ||
		binary.BigEndian.Uint64(header[16:]) != uint64(r.meta.Count) {
		return fmt.Errorf("%w: wrong header", ErrCorrupt)
	}
	r.first = make([]ReportID, 0, blocksOf(r.meta.Count))
	buf := make([]byte, blockSize)
	for left := r.meta.Count; left > 0; left -= blockIDs {
		n := min(left, blockIDs)
		if _, err := io.ReadFull(in, buf[:n*idSize+blockTail]); err != nil {
			return err
		}
		r.first = append(r.first, ReportID(buf))
	}
	var trailer Sum
	if _, err := r.file.ReadAt(trailer[:], size-sha256.Size); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if sum := Sum(hash.Sum(nil)); sum != trailer || sum != r.meta.Sum {
		return fmt.Errorf("%w: wrong checksum", ErrCorrupt)
	}
	return nil
}

// block reads block i into buf, of blockSize bytes, and returns its ids, back to back.
func (r *run) block(i int, buf []byte) ([]byte, error) {
	n := min(r.meta.Count-int64(i)*blockIDs, blockIDs) * idSize
	b := buf[:n+blockTail]
	if _, err := r.file.ReadAt(b, runHeader+int64(i)*blockSize); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("segment: read run %s: %w", r.meta.Name, err)
	}
	if crc32.Checksum(b[:n], castagnoli) != binary.BigEndian.Uint32(b[n:]) {
		return nil, fmt.Errorf("segment: read run %s: %w: block %d", r.meta.Name, ErrCorrupt, i)
	}
	return b[:n], nil
}

// mark sets seen[i] for each ids[i] that the run holds. order lists the i's by ascending id, so that each block is read
// at most once.
func (r *run) mark(ids []ReportID, order []int, seen []bool, buf []byte) error {
	loaded := -1
	var block []byte
	for _, i := range order {
		if seen[i] {
			continue
		}
		id := ids[i]
		at := sort.Search(len(r.first), func(j int) bool { return compareIDs(r.first[j], id) > 0 }) - 1
		if at < 0 {
			continue // before the first id
		}
		if at != loaded {
			var err error
			if block, err = r.block(at, buf); err != nil {
				return err
			}
			loaded = at
		}
		_, seen[i] = sort.Find(len(block)/idSize, func(j int) int { return bytes.Compare(id[:], block[j*idSize:(j+1)*idSize]) })
	}
	return nil
}

// merger yields the distinct ids of several runs in ascending order.
type merger struct {
	sources []*cursor
	last    ReportID
	any     bool
}

type cursor struct {
	*run
	next  int    // block to read
	ids   []byte // left of the current block
	space []byte
}

func newMerger(fsys disk.FS, metas []RunMeta) (*merger, error) {
	m := new(merger)
	for _, meta := range metas {
		r, err := openRun(fsys, meta)
		if err != nil {
			m.close()
			return nil, err
		}
		c := &cursor{run: r, space: make([]byte, blockSize)}
		m.sources = append(m.sources, c)
		if err := c.fill(); err != nil {
			m.close()
			return nil, err
		}
	}
	return m, nil
}

// fill makes the next id available; c.ids stays empty at the end.
func (c *cursor) fill() error {
	if len(c.ids) > 0 || c.next == len(c.first) {
		return nil
	}
	var err error
	c.ids, err = c.block(c.next, c.space)
	c.next++
	return err
}

// next returns io.EOF at the end. There are few sources (see [Runs.MergePlan]), so it looks at each.
func (m *merger) next() (ReportID, error) {
	for {
		var least *cursor
		for _, c := range m.sources {
			if len(c.ids) > 0 && (least == nil || bytes.Compare(c.ids[:idSize], least.ids[:idSize]) < 0) {
				least = c
			}
		}
		if least == nil {
			return ReportID{}, io.EOF
		}
		id := ReportID(least.ids)
		least.ids = least.ids[idSize:]
		if err := least.fill(); err != nil {
			return ReportID{}, err
		}
		if m.any && id == m.last {
			continue
		}
		if m.any && compareIDs(id, m.last) < 0 {
			return ReportID{}, fmt.Errorf("%w: run %s is not sorted", ErrCorrupt, least.meta.Name)
		}
		m.any, m.last = true, id
		return id, nil
	}
}

func (m *merger) close() {
	for _, c := range m.sources {
		c.file.Close() // read only
	}
}

// Runs is the set of ids already aggregated in one task and bucket: the union of its committed runs. It keeps one file
// open and 16 bytes in memory per 255 ids. Lookups may run together; Add, Replace and Close wait for them. What order
// they come in is the caller's matter: commits are serial per bucket.
type Runs struct {
	fs disk.FS

	mu   sync.RWMutex
	runs []*run
}

// OpenRuns opens the committed runs of one task and bucket and verifies each, every byte. There may be none.
func OpenRuns(fsys disk.FS, metas []RunMeta) (*Runs, error) {
	r := &Runs{fs: fsys}
	for _, meta := range metas {
		if err := r.Add(meta); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

// Add takes in a run after the transaction that names it.
func (r *Runs) Add(meta RunMeta) error {
	opened, err := openRun(r.fs, meta)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = append(r.runs, opened)
	return nil
}

// Contains reports whether a run holds id.
func (r *Runs) Contains(id ReportID) (bool, error) {
	seen, err := r.FilterNew([]ReportID{id})
	if err != nil {
		return false, err
	}
	return seen[0], nil
}

// FilterNew reports for each id whether it is a replay: held by a run, or equal to an id before it in the same call. It
// looks them up in sorted order, so that a batch reads each block of a run at most once. len(seen) == len(ids).
func (r *Runs) FilterNew(ids []ReportID) (seen []bool, err error) {
	seen = make([]bool, len(ids))
	order := make([]int, len(ids))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(compareIDs(ids[a], ids[b]), cmp.Compare(a, b)) })
	for i := 1; i < len(order); i++ {
		if ids[order[i]] == ids[order[i-1]] {
			seen[order[i]] = true
		}
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	buf := make([]byte, blockSize)
	for _, run := range r.runs {
		if err := run.mark(ids, order, seen, buf); err != nil {
			return nil, err
		}
	}
	return seen, nil
}

// Metas lists the runs, in no order.
func (r *Runs) Metas() []RunMeta {
	r.mu.RLock()
	defer r.mu.RUnlock()
	metas := make([]RunMeta, len(r.runs))
	for i, run := range r.runs {
		metas[i] = run.meta
	}
	return metas
}

// mergeFanIn runs of about one size make one of the next.
const mergeFanIn = 4

// MergePlan names runs worth merging now, at least 4 of similar size, or none. Merging whenever there is a plan keeps
// the number of runs logarithmic in the ids (under 4 per power of four), and rewrites each id about as often.
func (r *Runs) MergePlan() []RunMeta {
	metas := r.Metas()
	slices.SortFunc(metas, func(a, b RunMeta) int {
		return cmp.Or(cmp.Compare(a.Count, b.Count), cmp.Compare(a.Name, b.Name))
	})
	for start := 0; start < len(metas); {
		end := start
		for end < len(metas) && tier(metas[end].Count) == tier(metas[start].Count) {
			end++
		}
		if end-start >= mergeFanIn {
			return metas[start:end]
		}
		start = end
	}
	return nil
}

// tier is the power of four that count reaches, with all that fits into one block in the lowest.
func tier(count int64) int {
	t := 0
	for ; count > blockIDs; count /= mergeFanIn {
		t++
	}
	return t
}

// Replace puts a merged run in the place of those it was made of, after the transaction that did the same to the rows.
// The old files are closed; removing them is the caller's next step.
func (r *Runs) Replace(old []RunMeta, merged RunMeta) error {
	opened, err := openRun(r.fs, merged)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = slices.DeleteFunc(r.runs, func(run *run) bool {
		gone := slices.Contains(old, run.meta)
		if gone {
			run.file.Close() // read only
		}
		return gone
	})
	r.runs = append(r.runs, opened)
	return nil
}

// Close releases the files. It may be repeated.
func (r *Runs) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, run := range r.runs {
		run.file.Close() // read only
	}
	r.runs = nil
}
