package segment

import (
	"bytes"
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

	Digest SetDigest // of the ids, under the store's key
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

// each yields ids one after the other.
func each(ids []ReportID) func() (ReportID, error) {
	i := 0
	return func() (ReportID, error) {
		i++
		return ids[i-1], nil
	}
}

// ErrProof says that ids are not those of a run: their file would have another SHA-256
// than its row.
var ErrProof = errors.New("segment: the ids are not those of the run")

// RewriteRun writes a run that was damaged or lost anew, from its ids in ascending order.
// Its file is a function of them, so the SHA-256 in the row proves them; [ErrProof]
// leaves the file as it was.
func RewriteRun(fsys disk.FS, meta RunMeta, ids []ReportID, fp *disk.Failpoints) error {
	if int64(len(ids)) != meta.Count || runSize(meta.Count) != meta.Size {
		return ErrProof
	}
	_, err := writeRun(fsys, meta, nil, fp, each(ids))
	return err
}

// writeRun streams meta.Count ascending ids into a new file. Where meta has a Sum the
// file has to come to it; otherwise key makes its digest.
func writeRun(fsys disk.FS, meta RunMeta, key *SetKey, fp *disk.Failpoints, next func() (ReportID, error)) (RunMeta, error) {
	if err := fp.Hit(FailRunBeforeWrite); err != nil {
		return RunMeta{}, err
	}
	hash := sha256.New()
	count := meta.Count
	meta.Size = runSize(count)
	err := disk.WriteStream(fsys, meta.Name, func(f io.Writer) error {
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
				if key != nil {
					meta.Digest.Put(key, id)
				}
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

func runSize(count int64) int64 {
	return runHeader + count*idSize + blocksOf(count)*blockTail + sha256.Size
}

func blocksOf(count int64) int64 { return (count + blockIDs - 1) / blockIDs }

func compareIDs(a, b ReportID) int { return bytes.Compare(a[:], b[:]) }

// run is an open run file with the first id of each block in memory: 16 bytes per 4 KiB
// of file.
type run struct {
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
		return &readError{err}
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

// block reads block i into buf, of blockSize bytes, and returns its ids, back to back.
func (r *run) block(i int, buf []byte) ([]byte, error) {
	n := min(r.meta.Count-int64(i)*blockIDs, blockIDs) * idSize
	b := buf[:n+blockTail]
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
	return int64(at)*blockIDs + int64(rankIn(block, id)), nil
}

// rankIn is the index in a block of the first id that is not before id.
func rankIn(block []byte, id ReportID) int {
	return sort.Search(len(block)/idSize, func(j int) bool { return bytes.Compare(block[j*idSize:(j+1)*idSize], id[:]) >= 0 })
}

// mark sets seen[i] for each ids[i] that the run holds. order lists the i's by ascending
// id, so that each block is read at most once.
func (r *run) mark(ids []ReportID, order []int, seen []bool, buf []byte) error {
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
		j := rankIn(block, id)
		seen[i] = j < len(block)/idSize && bytes.Equal(block[j*idSize:(j+1)*idSize], id[:])
	}
	return nil
}

// Remove removes files durably, after the transaction that dropped their rows. Repeating it
// is no error.
func Remove(fsys disk.FS, names ...string) error { return disk.Remove(fsys, names...) }
