package segment

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/wire"
)

// An object holds what one group commit acknowledges, of all tasks, cut into slices:
// reports of one task and batch bucket. So a commit is one put, however many tasks it is
// of, and no report is written twice. A row names each slice, a job takes several, of
// several objects, and the object goes with the row of its last slice. Numbers are
// big-endian:
//
//	"starlobj" | version u32 | length of the directory u32
//	directory: slices × (task 32 | batch bucket u64 | count u32 | duplicates u32 | length u32 | sum 32)
//	SHA-256 of all before
//	slices, in the order of the directory, by task and bucket:
//	  count × (report id 16 | length u32 | CRC-32C of the report u32), then the reports
//
// The sum of a slice is that of its row ([Slice]): a row takes no other slice for its own,
// whatever an object store answers. Reports are under what costs next to nothing, for those that devices sealed
// are authentic by themselves, or do not open. The directory repeats what the rows have,
// for the day on which they are lost.
const (
	objectMagic   = "starlobj"
	objectVersion = 1
	sliceDomain   = "starling slice v1"

	objectPrefix = len(objectMagic) + 4 + 4 // before the directory
	sliceEntry   = 32 + 8 + 4 + 4 + 4 + 32
	reportEntry  = 16 + 4 + 4
)

// slice is an entry of the directory.
type slice struct {
	object     string // its name
	offset     int64  // in the object
	task       TaskID
	bucket     uint64 // DAP Time
	count      uint32 // reports, at least 1
	duplicates uint32 // of them left out, because their id came before in the commit
	length     uint32 // bytes
	sum        Sum
}

// code is a slice's entry in the directory.
func (s *slice) code(c *wire.Coder) {
	c.Fixed(s.task[:], "task")
	c.Uint64(&s.bucket, "bucket")
	c.Uint32(&s.count, "count")
	c.Uint32(&s.duplicates, "duplicates")
	c.Uint32(&s.length, "length")
	c.Fixed(s.sum[:], "sum")
	c.Check(s.count > 0 && uint64(s.length) >= uint64(s.count)*(reportEntry+1) && s.length <= payload.MaxObject, "count and length of a slice")
}

func (s *slice) String() string {
	return fmt.Sprintf("%s, %d bytes from %d", s.object, s.length, s.offset)
}

// before says whether a slice may stand before another.
func (s *slice) before(next *slice) bool {
	return cmp.Or(bytes.Compare(s.task[:], next.task[:]), cmp.Compare(s.bucket, next.bucket)) <= 0
}

// directory lists the slices of an object in their order.
type directory []slice

// code is the head of an object, but for its sum.
func (d *directory) code(c *wire.Coder) {
	version := uint32(objectVersion)
	c.Const(objectMagic, "wrong magic")
	c.Uint32(&version, "version")
	c.Check(version == objectVersion, "wrong version")
	c.Nested32("directory", func() {
		wire.Items(c, (*[]slice)(d), func(i int, s *slice) {
			s.code(c)
			c.Check(i == 0 || (*d)[i-1].before(s), "slices out of order")
		})
	})
	c.Check(len(*d) > 0, "no slice")
}

// ObjectName is a name for an object in a directory, of which no other is or was.
func ObjectName(dir string) string {
	var own [16]byte
	rand.Read(own[:]) // never fails
	return fmt.Sprintf("%s/%x%s", dir, own, objectSuffix)
}

// copyName is that of an object of what one log has.
func copyName(dir string, log disk.LogID) string {
	return strings.TrimSuffix(ObjectName(dir), objectSuffix) + "-" + log.String() + objectSuffix
}

// copiedFrom is the log that an object's name says it was copied out of.
func copiedFrom(name string) (log disk.LogID, ok bool) {
	base, isObject := strings.CutSuffix(path.Base(name), objectSuffix)
	_, text, isCopy := strings.Cut(base, "-")
	id, err := hex.DecodeString(text)
	if !isObject || !isCopy || err != nil || len(id) != len(log) {
		return log, false
	}
	return disk.LogID(id), true
}

// place sets where the slices of an object are.
func (d directory) place(object string) (size int64) {
	size = int64(objectPrefix + len(d)*sliceEntry + sha256.Size)
	for i := range d {
		d[i].object, d[i].offset = object, size
		size += int64(d[i].length)
	}
	return size
}

// reportRow is one report in the table of a slice.
type reportRow struct {
	id     ReportID
	length uint32
	crc    uint32
}

func (r *reportRow) code(c *wire.Coder) {
	c.Fixed(r.id[:], "report id")
	c.Uint32(&r.length, "length")
	c.Uint32(&r.crc, "checksum")
	c.Check(r.length > 0, "an empty report")
}

// row is what a row keeps of the slice.
func (s *slice) row(came int64) Slice {
	return Slice{
		Object: s.object, Pieces: []Piece{{s.offset, s.length, s.count}}, TaskID: s.task, Bucket: s.bucket,
		Count: int(s.count), Duplicates: int(s.duplicates), Sum: s.sum, Came: came,
	}
}

// cutObject lays out an object of entries, in parts to be written one after the other,
// and says what its rows keep. The reports are not copied. A slice has at most maxBytes
// bytes of reports and maxReports reports, what a job takes; a report that alone is
// larger is alone.
func cutObject(object string, entries []Entry, maxBytes, maxReports int) (parts [][]byte, d directory, err error) {
	parts = [][]byte{nil} // the head, when all else is known
	size := 0
	for _, g := range group(entries) {
		duplicates := uint32(g.duplicates)
		for part := range cutGroup(g.entries, maxBytes, maxReports) {
			s := slice{task: part[0].TaskID, bucket: part[0].Bucket, count: uint32(len(part)), duplicates: duplicates}
			duplicates = 0
			table := make([]byte, 0, len(part)*reportEntry)
			length := len(part) * reportEntry
			parts = append(parts, nil)
			at := len(parts) - 1
			for i := range part {
				row := reportRow{part[i].ReportID, uint32(len(part[i].Report)), crc32.Checksum(part[i].Report, castagnoli)}
				if table, err = wire.Append(table, ErrCorrupt, row.code); err != nil {
					return nil, nil, fmt.Errorf("segment: cut %s: %w", object, err)
				}
				parts = append(parts, part[i].Report)
				length += len(part[i].Report)
			}
			if size += length; size > payload.MaxObject {
				return nil, nil, fmt.Errorf("segment: cut %s: %w: over %d bytes in one object", object, ErrTooLarge, size)
			}
			parts[at] = table
			sum := sliceSum(s.task, s.bucket)
			sum.Write(table)
			s.length, s.sum = uint32(length), Sum(sum.Sum(nil))
			d = append(d, s)
		}
	}
	if parts[0], err = d.head(object); err != nil {
		return nil, nil, fmt.Errorf("segment: cut %s: %w", object, err)
	}
	return parts, d, nil
}

// head is the head of an object of these slices, which are in their place then.
func (d *directory) head(object string) ([]byte, error) {
	head, err := wire.Append(nil, ErrCorrupt, d.code)
	if n := d.place(object); err == nil && n > payload.MaxObject {
		err = fmt.Errorf("%w: %d bytes in one object", ErrTooLarge, n)
	}
	if err != nil {
		return nil, err
	}
	return wire.AppendSum(head, 0), nil
}

// headLength says how long the head of an object is that begins so.
func headLength(prefix []byte) (int64, error) {
	if len(prefix) < objectPrefix || string(prefix[:len(objectMagic)]) != objectMagic {
		return 0, fmt.Errorf("%w: wrong magic", ErrCorrupt)
	}
	n := int64(binary.BigEndian.Uint32(prefix[objectPrefix-4:])) + int64(objectPrefix+sha256.Size)
	if n > payload.MaxObject {
		return 0, fmt.Errorf("%w: a directory of %d bytes", ErrCorrupt, n)
	}
	return n, nil
}

// readHead reads the head of an object of a size.
func readHead(object string, head []byte, size int64) (directory, error) {
	content, whole := wire.CutSum(head)
	if v := binary.BigEndian.Uint32(head[len(objectMagic):]); v > objectVersion && !wasThisVersion(head) {
		return nil, fmt.Errorf("%w: version %d, this program reads %d", ErrNewer, v, objectVersion)
	}
	if !whole {
		return nil, fmt.Errorf("%w: wrong checksum", ErrCorrupt)
	}
	var d directory
	if err := wire.Read(content, ErrCorrupt, d.code); err != nil {
		return nil, err
	}
	if n := d.place(object); n != size {
		return nil, fmt.Errorf("%w: %d bytes, its slices have %d", ErrCorrupt, size, n)
	}
	return d, nil
}

// wasThisVersion says whether a head that names another version was written by this one,
// and is damaged in that field.
func wasThisVersion(head []byte) bool {
	head = bytes.Clone(head)
	binary.BigEndian.PutUint32(head[len(objectMagic):], objectVersion)
	_, whole := wire.CutSum(head)
	return whole
}

// firstRead is how much of an object openDirectory asks for at first: the heads of nearly
// all objects are shorter.
const firstRead = 16 << 10

// openDirectory lists the slices of an object, as its head has them. The error matches
// [ErrCorrupt] if the object is not whole, [ErrNewer] if a newer version wrote it, and
// what the store said where that did not answer.
func openDirectory(ctx context.Context, store payload.Store, object string) (directory, error) {
	fail := func(err error) (directory, error) {
		return nil, fmt.Errorf("segment: directory of %s: %w", object, err)
	}
	size, err := store.Size(ctx, object)
	if err != nil {
		return fail(err)
	}
	head := make([]byte, min(firstRead, size))
	if err := readFull(ctx, store, object, head, 0); err != nil {
		return fail(err)
	}
	n, err := headLength(head)
	if err != nil {
		return fail(err)
	}
	if n > size {
		return fail(fmt.Errorf("%w: %d bytes, and its head has %d", ErrCorrupt, size, n))
	}
	if more := int(n) - len(head); more > 0 {
		head = slices.Grow(head, more)[:n]
		if err := readFull(ctx, store, object, head[n-int64(more):], n-int64(more)); err != nil {
			return fail(err)
		}
	}
	d, err := readHead(object, head[:n], size)
	if err != nil {
		return fail(err)
	}
	return d, nil
}

// readFull reads all of p, or fails. An object that is shorter is not what its row says.
func readFull(ctx context.Context, store payload.Store, object string, p []byte, offset int64) error {
	n, err := store.ReadAt(ctx, object, p, offset)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it ends %d bytes early", ErrCorrupt, len(p)-n)
	}
	return err
}
