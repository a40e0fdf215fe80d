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
	"sync/atomic"

	"github.com/starling-agg/starling/internal/disk"
)

// A run file, big-endian:
//
//	magic 8 | version u32 | zero u32 | count u64
//	blocks of 255 ids (the last may be shorter): ids ascending, then CRC-32C of the block's ids and zeros up to 16 bytes
//	SHA-256 of all before
//
// so that a full block is one page of 4096 bytes, checked whenever it is read. Where each id
// has an owner that follows it, a block has 127, and zeros up to 32 bytes.
const (
	runVersion = 1
	runHeader  = 8 + 4 + 4 + 8
	idSize     = 16
	blockSize  = 4096
)

// A layout is of the files of one kind of run.
type layout struct {
	magic string
	entry int // bytes of an id, with its owner where it has one
	per   int // entries in a block
}

var (
	plainRun = &layout{"starlrun", idSize, 255}
	ownedRun = &layout{"starlown", 2 * idSize, 127}
)

// tail is how many bytes of a block come after its entries.
func (l *layout) tail() int { return blockSize - l.per*l.entry }

func (l *layout) size(count int64) int64 {
	return runHeader + count*int64(l.entry) + l.blocks(count)*int64(l.tail()) + sha256.Size
}

func (l *layout) blocks(count int64) int64 { return (count + int64(l.per) - 1) / int64(l.per) }

// An Owned is an id that belongs to another for good.
type Owned struct{ ID, Owner ReportID }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Range is a part of the ids, both ends included.
type Range struct{ Low, High ReportID }

// AllIDs is the range of the run that one commit writes.
var AllIDs = Range{High: ReportID(bytes.Repeat([]byte{0xff}, idSize))}

// Contains says whether id lies in the range.
func (r Range) Contains(id ReportID) bool {
	return compareIDs(r.Low, id) <= 0 && compareIDs(id, r.High) <= 0
}

// of finds the part of ids, which ascend by order, that lies in the range.
func (r Range) of(ids []ReportID, order []int) []int {
	from := sort.Search(len(order), func(i int) bool { return compareIDs(ids[order[i]], r.Low) >= 0 })
	to := sort.Search(len(order), func(i int) bool { return compareIDs(ids[order[i]], r.High) > 0 })
	return order[from:to]
}

// RunMeta is what a row keeps of a run.
type RunMeta struct {
	Name  string // of the file, as the FS has it
	Range Range  // the ids lie in it
	Count int64  // distinct ids, at least 1
	Size  int64  // bytes of the file
	Sum   Sum    // the file's trailer: SHA-256 of all bytes before it
	Owned bool   // each id has an owner, see [WriteOwned]

	Digest SetDigest // of the ids, under the store's key
}

func (m *RunMeta) layout() *layout {
	if m.Owned {
		return ownedRun
	}
	return plainRun
}

// WriteRun makes a run of ids, in any order, durable under name; the caller then names it
// in the transaction that commits the job. Repeated ids count once. It replaces a file of
// that name, which no row may name.
func WriteRun(fsys disk.FS, name string, key *SetKey, ids []ReportID, fp *disk.Failpoints) (RunMeta, error) {
	if len(ids) == 0 {
		return RunMeta{}, errors.New("segment: a run needs at least one id")
	}
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, compareIDs)
	sorted = slices.Compact(sorted)
	return writeRun(fsys, RunMeta{Name: name, Range: AllIDs, Count: int64(len(sorted))}, key, fp, each(sorted))
}

// WriteOwned is WriteRun of ids that have owners, ascending and distinct.
func WriteOwned(fsys disk.FS, name string, key *SetKey, list []Owned, fp *disk.Failpoints) (RunMeta, error) {
	if len(list) == 0 || !slices.IsSortedFunc(list, func(a, b Owned) int { return cmp.Or(compareIDs(a.ID, b.ID), -1) }) {
		return RunMeta{}, errors.New("segment: a run needs at least one id, and each once, ascending")
	}
	i := 0
	next := func(b []byte) ([]byte, error) {
		i++
		return append(append(b, list[i-1].ID[:]...), list[i-1].Owner[:]...), nil
	}
	return writeRun(fsys, RunMeta{Name: name, Range: AllIDs, Count: int64(len(list)), Owned: true}, key, fp, next)
}

// each yields ids one after the other.
func each(ids []ReportID) func(b []byte) ([]byte, error) {
	i := 0
	return func(b []byte) ([]byte, error) {
		i++
		return append(b, ids[i-1][:]...), nil
	}
}

// ErrProof says that ids are not those of a run: their file would have another SHA-256
// than its row.
var ErrProof = errors.New("segment: the ids are not those of the run")

// RewriteRun writes a run that was damaged or lost anew, from its ids in ascending order.
// Its file is a function of them, so the SHA-256 in the row proves them; [ErrProof]
// leaves the file as it was.
func RewriteRun(fsys disk.FS, meta RunMeta, ids []ReportID, fp *disk.Failpoints) error {
	if int64(len(ids)) != meta.Count || meta.Owned || plainRun.size(meta.Count) != meta.Size {
		return ErrProof
	}
	_, err := writeRun(fsys, meta, nil, fp, each(ids))
	return err
}

// writeRun streams meta.Count ascending entries, which next appends, into a new file. Where
// meta has a Sum the file has to come to it; otherwise key makes its digest.
func writeRun(fsys disk.FS, meta RunMeta, key *SetKey, fp *disk.Failpoints, next func(b []byte) ([]byte, error)) (RunMeta, error) {
	if err := fp.Hit(FailRunBeforeWrite); err != nil {
		return RunMeta{}, err
	}
	hash := sha256.New()
	count, l := meta.Count, meta.layout()
	meta.Size = l.size(count)
	err := disk.WriteStream(fsys, meta.Name, func(f io.Writer) error {
		w := io.MultiWriter(f, hash)
		b := append([]byte(l.magic), 0, 0, 0, runVersion, 0, 0, 0, 0)
		b = binary.BigEndian.AppendUint64(b, uint64(count))
		for left := count; left > 0; {
			n := min(left, int64(l.per))
			start := len(b)
			for range n {
				var err error
				if b, err = next(b); err != nil {
					return err
				}
				if key != nil {
					meta.Digest.PutEntry(key, b[len(b)-l.entry:])
				}
			}
			b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
			b = append(b, make([]byte, l.tail()-4)...)
			left -= n
			if left == 0 || len(b) >= 64<<10 {
				if _, err := w.Write(b); err != nil {
					return err
				}
				b = b[:0]
			}
		}
		sum := Sum(hash.Sum(nil))
		if meta.Sum != (Sum{}) && sum != meta.Sum {
			return ErrProof
		}
		meta.Sum = sum
		_, err := f.Write(meta.Sum[:])
		return err
	})
	if err != nil {
		return RunMeta{}, fmt.Errorf("segment: write run: %w", err)
	}
	return meta, fp.Hit(FailRunAfterWrite)
}

func compareIDs(a, b ReportID) int { return bytes.Compare(a[:], b[:]) }

// run is an open run file with the first id of each block in memory: 16 bytes per 4 KiB
// of file.
type run struct {
	*layout
	meta  RunMeta
	file  disk.File
	first []ReportID
	reads atomic.Int64 // blocks read
	bad   atomic.Bool  // a block of it was not what it had been
}

// readError is a failure of the disk to give what it holds.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

// openRun reads the whole file once, to verify it against the row and to build the index.
func openRun(fsys disk.FS, meta RunMeta) (*run, error) {
	f, err := fsys.Open(meta.Name)
	if err != nil {
		return nil, fmt.Errorf("segment: open run: %w", err)
	}
	r := &run{layout: meta.layout(), meta: meta, file: f}
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
	if r.meta.Count < 1 || size != r.meta.Size || size != r.size(r.meta.Count) {
		return fmt.Errorf("%w: %d bytes, want %d", ErrCorrupt, size, r.meta.Size)
	}
	hash := sha256.New()
	in := io.TeeReader(io.NewSectionReader(r.file, 0, size-sha256.Size), hash)
	var header [runHeader]byte
	if _, err := io.ReadFull(in, header[:]); err != nil {
		return &readError{err}
	}
	if string(header[:8]) != r.magic || binary.BigEndian.Uint32(header[8:]) != runVersion ||
		binary.BigEndian.Uint64(header[16:]) != uint64(r.meta.Count) {
		return fmt.Errorf("%w: wrong header", ErrCorrupt)
	}
	r.first = make([]ReportID, 0, r.blocks(r.meta.Count))
	buf := make([]byte, blockSize)
	for left := r.meta.Count; left > 0; left -= int64(r.per) {
		n := int(min(left, int64(r.per)))
		if _, err := io.ReadFull(in, buf[:n*r.entry+r.tail()]); err != nil {
			return &readError{err}
		}
		r.first = append(r.first, ReportID(buf))
	}
	var trailer Sum
	if _, err := r.file.ReadAt(trailer[:], size-sha256.Size); err != nil && !errors.Is(err, io.EOF) {
		return &readError{err}
	}
	if sum := Sum(hash.Sum(nil)); sum != trailer || sum != r.meta.Sum {
		return fmt.Errorf("%w: wrong checksum", ErrCorrupt)
	}
	return nil
}

// block reads block i into buf, of blockSize bytes, and returns its entries, back to back.
func (r *run) block(i int, buf []byte) ([]byte, error) {
	n := int(min(r.meta.Count-int64(i)*int64(r.per), int64(r.per))) * r.entry
	b := buf[:n+r.tail()]
	r.reads.Add(1)
	if _, err := r.file.ReadAt(b, runHeader+int64(i)*blockSize); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("segment: read run %s: %w", r.meta.Name, &readError{err})
	}
	if crc32.Checksum(b[:n], castagnoli) != binary.BigEndian.Uint32(b[n:]) || ReportID(b) != r.first[i] {
		return nil, fmt.Errorf("segment: read run %s: %w: block %d", r.meta.Name, ErrCorrupt, i)
	}
	return b[:n], nil
}

// find says in which block an id would be; -1 if it comes before all.
func (r *run) find(id ReportID) int {
	return sort.Search(len(r.first), func(j int) bool { return compareIDs(r.first[j], id) > 0 }) - 1
}

// rank counts the ids of the run before id.
func (r *run) rank(id ReportID) (int64, error) {
	at := r.find(id)
	if at < 0 {
		return 0, nil
	}
	block, err := r.block(at, make([]byte, blockSize))
	if err != nil {
		return 0, err
	}
	return int64(at)*int64(r.per) + int64(r.rankIn(block, id)), nil
}

// rankIn is the index in a block of the first id that is not before id.
func (l *layout) rankIn(block []byte, id ReportID) int {
	return sort.Search(len(block)/l.entry, func(j int) bool { return bytes.Compare(block[j*l.entry:j*l.entry+idSize], id[:]) >= 0 })
}

// mark sets seen[i] for each ids[i] that the run holds, and owners[i] where they have any.
// order lists the i's by ascending id, so that each block is read at most once.
func (r *run) mark(ids []ReportID, order []int, seen []bool, owners []ReportID, buf []byte) error {
	loaded := -1
	var block []byte
	for _, i := range order {
		if seen[i] {
			continue
		}
		id := ids[i]
		at := r.find(id)
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
		entry := block[r.rankIn(block, id)*r.entry:]
		if seen[i] = len(entry) > 0 && ReportID(entry) == id; seen[i] && r.meta.Owned {
			owners[i] = ReportID(entry[idSize:])
		}
	}
	return nil
}

// Remove removes files durably, after the transaction that dropped their rows. Repeating it
// is no error.
func Remove(fsys disk.FS, names ...string) error { return disk.Remove(fsys, names...) }
