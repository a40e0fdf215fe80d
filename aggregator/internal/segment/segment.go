package segment

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/starling-agg/starling/internal/buffer"
	"github.com/starling-agg/starling/internal/disk"
)

// A segment file, big-endian:
//
//	magic 8 | version u32 | count u32 | task 32 | bucket u64 | index offset u64 | body offset u64
//	index: count × (report id 16 | offset u32 | length u32 | CRC-32C of the report u32), offsets from the start of the body
//	body: the reports, one after the other
//	SHA-256 of header and index
//
// So every byte is under a checksum, and those of the reports, which are nearly all,
// under one that costs next to nothing: it is there against faults of disks. A sealed
// report is authentic by itself, or does not open.
const (
	segmentMagic   = "starlseg"
	segmentVersion = 2
	segmentHeader  = 8 + 4 + 4 + 32 + 8 + 8 + 8
	indexEntry     = 16 + 4 + 4 + 4
)

// Meta is what a row keeps of a segment. The row that names a segment holds all of it.
type Meta struct {
	Name   string // of the file, as the FS has it
	TaskID TaskID
	Bucket uint64 // DAP Time
	Count  int    // reports in the segment, at least 1
	Size   int64  // bytes of the file
	Sum    Sum    // the file's trailer
	// when the first report of its log was acknowledged, in Unix seconds; 0: not known
	Came int64
	// reports of this task and batch bucket left out of the log's segments because their
	// id came before
	Duplicates int
}

// Segment is an open segment, wholly in memory and immutable.
type Segment struct {
	meta  Meta
	index []byte
	body  []byte
	data  []byte // all of the file; nil once closed
}

// Open reads a segment into memory and verifies it against the row that names it, every
// byte. The error matches [ErrCorrupt] if it differs, [ErrNewer] if a newer version wrote
// it, and fs.ErrNotExist if it is gone. [Segment.Close] gives the memory back.
func Open(fsys disk.FS, meta Meta) (*Segment, error) {
	data, err := disk.ReadFileInto(fsys, meta.Name, meta.Size, buffer.Get(int(meta.Size)))
	if err != nil {
		if entry, statErr := fsys.Stat(meta.Name); statErr == nil && entry.Size != meta.Size {
			err = fmt.Errorf("%w: %d bytes, want %d", ErrCorrupt, entry.Size, meta.Size)
		}
		return nil, fmt.Errorf("segment: open %s: %w", meta.Name, err)
	}
	s, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("segment: open %s: %w", meta.Name, err)
	}
	s.meta.Name, s.meta.Duplicates, s.meta.Came = meta.Name, meta.Duplicates, meta.Came
	if s.meta != meta {
		return nil, fmt.Errorf("segment: open %s: %w: whole, but not the one named", meta.Name, ErrCorrupt)
	}
	return s, nil
}

// parse checks everything that a reader relies on later, so that Report cannot fail.
func parse(data []byte) (*Segment, error) {
	bad := func(what string) (*Segment, error) { return nil, fmt.Errorf("%w: %s", ErrCorrupt, what) }
	if len(data) < segmentHeader+sha256.Size {
		return bad("short file")
	}
	content, trailer := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	if string(content[:8]) != segmentMagic {
		return bad("wrong magic")
	}
	if v := binary.BigEndian.Uint32(content[8:]); v > segmentVersion && !wasOurs(content, trailer) {
		return nil, fmt.Errorf("%w: version %d, this program reads %d", ErrNewer, v, segmentVersion)
	} else if v != segmentVersion {
		return bad(fmt.Sprintf("version %d, this program reads %d", v, segmentVersion))
	}
	count := uint64(binary.BigEndian.Uint32(content[12:]))
	indexAt := binary.BigEndian.Uint64(content[56:])
	bodyAt := binary.BigEndian.Uint64(content[64:])
	if indexAt != segmentHeader || bodyAt != segmentHeader+count*indexEntry || bodyAt > uint64(len(content)) || count == 0 {
		return bad("wrong layout")
	}
	if sha256.Sum256(content[:bodyAt]) != Sum(trailer) {
		return bad("wrong checksum")
	}
	s := &Segment{
		meta: Meta{
			TaskID: TaskID(content[16:]), Bucket: binary.BigEndian.Uint64(content[48:]),
			Count: int(count), Size: int64(len(data)), Sum: Sum(trailer),
		},
		index: content[indexAt:bodyAt],
		body:  content[bodyAt:],
		data:  data,
	}
	next := uint64(0)
	for i := range s.Len() {
		offset, length := s.span(i)
		if offset != next {
			return bad("wrong index")
		}
		next = offset + length
	}
	if next != uint64(len(s.body)) {
		return bad("wrong index")
	}
	for i := range s.Len() {
		if crc32.Checksum(s.Report(i), castagnoli) != binary.BigEndian.Uint32(s.index[i*indexEntry+24:]) {
			return bad("wrong checksum of a report")
		}
	}
	return s, nil
}

// wasOurs says whether a file that names another version was written by this one, and is
// damaged in that field.
func wasOurs(content, trailer []byte) bool {
	bodyAt := binary.BigEndian.Uint64(content[64:])
	if bodyAt < segmentHeader || bodyAt > uint64(len(content)) {
		return false
	}
	head := bytes.Clone(content[:bodyAt])
	binary.BigEndian.PutUint32(head[8:], segmentVersion)
	return sha256.Sum256(head) == Sum(trailer)
}

func (s *Segment) span(i int) (offset, length uint64) {
	e := s.index[i*indexEntry:]
	return uint64(binary.BigEndian.Uint32(e[16:])), uint64(binary.BigEndian.Uint32(e[20:]))
}

// Close gives the segment's memory back for others to use: nothing that Report returned
// may be read any more. It may be left out, and repeated.
func (s *Segment) Close() {
	buffer.Put(s.data)
	s.data, s.index, s.body = nil, nil, nil
}

// Meta is what the segment was opened with.
func (s *Segment) Meta() Meta { return s.meta }

// Len is the number of reports.
func (s *Segment) Len() int { return s.meta.Count }

// ReportID is the id of report i, 0 <= i < Len. Ids within a segment are distinct.
func (s *Segment) ReportID(i int) ReportID { return ReportID(s.index[i*indexEntry:]) }

// Report is report i as the client sent it, 0 <= i < Len. It aliases the segment's one
// buffer; do not change it.
func (s *Segment) Report(i int) []byte {
	offset, length := s.span(i)
	return s.body[offset : offset+length : offset+length]
}

// encode lays out a segment of entries, which share task and batch bucket; the returned
// Meta lacks Name and Duplicates. The content is lent: it may be given back by
// [buffer.Put].
func encode(entries []Entry) ([]byte, Meta) {
	body := 0
	for i := range entries {
		body += len(entries[i].Report)
	}
	bodyAt := segmentHeader + len(entries)*indexEntry
	b := buffer.Get(bodyAt + body + sha256.Size)
	b = append(b, segmentMagic...)
	b = binary.BigEndian.AppendUint32(b, segmentVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(len(entries)))
	b = append(b, entries[0].TaskID[:]...)
	b = binary.BigEndian.AppendUint64(b, entries[0].Bucket)
	b = binary.BigEndian.AppendUint64(b, segmentHeader)
	b = binary.BigEndian.AppendUint64(b, uint64(bodyAt))
	offset := uint32(0)
	for i := range entries {
		b = append(b, entries[i].ReportID[:]...)
		b = binary.BigEndian.AppendUint32(b, offset)
		b = binary.BigEndian.AppendUint32(b, uint32(len(entries[i].Report)))
		b = binary.BigEndian.AppendUint32(b, crc32.Checksum(entries[i].Report, castagnoli))
		offset += uint32(len(entries[i].Report))
	}
	sum := sha256.Sum256(b)
	for i := range entries {
		b = append(b, entries[i].Report...)
	}
	b = append(b, sum[:]...)
	return b, Meta{
		TaskID: entries[0].TaskID, Bucket: entries[0].Bucket, Count: len(entries), Size: int64(len(b)), Sum: sum,
	}
}

// Remove removes segment or run files durably, after the transaction that dropped their
// rows. Repeating it is no error.
func Remove(fsys disk.FS, names ...string) error { return disk.Remove(fsys, names...) }
