package segment

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
)

// TaskID is DAP's task id.
type TaskID = [32]byte

// ReportID is DAP's report id.
type ReportID = [16]byte

// Entry is one report to keep.
type Entry struct {
	TaskID   TaskID
	Bucket   uint64 // start of the batch bucket: DAP Time, a multiple of the task's time_precision
	ReportID ReportID
	Report   []byte // as the client sent it
	// Life is that of the replica which took it, as [Acknowledger] says; it is not kept.
	Life string
}

// Errors to branch on; see the package comment.
var (
	ErrBusy     = errors.New("segment: too much is waiting to be kept")
	ErrTooLarge = errors.New("segment: report is too large")
	ErrCorrupt  = errors.New("segment: file is not what its name promises")
	ErrNewer    = errors.New("segment: file of a newer version of this program")
	ErrForeign  = errors.New("segment: reports of a task that was never provisioned here")
)

// A record of the log is a sequence of blocks. One is of entries with the same task and
// batch bucket that came one after the other, and no more than one job takes:
//
//	task 32 | bucket u64 | count u32 | piece of a slice
//
// A piece is what an object has of a slice, too: count times (report id 16 | length u32 |
// CRC-32C of the report u32), then the reports.
const blockHeader = 32 + 8 + 4

// encodedSize bounds what an entry takes in a record.
func (e *Entry) encodedSize() int { return blockHeader + reportEntry + len(e.Report) }

// recordParts are the parts of a record of entries, to be written one after the other:
// heads and tables, and between them the reports, which are not copied. A block has at
// most maxBytes bytes of reports and maxReports reports; a report that is larger is alone.
func recordParts(entries []Entry, maxBytes, maxReports int) [][]byte {
	heads := make([]byte, 0, len(entries)*(blockHeader+reportEntry))
	parts := make([][]byte, 0, 2*len(entries))
	for start := 0; start < len(entries); {
		first := &entries[start]
		end := start + 1
		for end < len(entries) && entries[end].TaskID == first.TaskID && entries[end].Bucket == first.Bucket {
			end++
		}
		for block := range cutGroup(entries[start:end], maxBytes, maxReports) {
			at := len(heads)
			heads = append(heads, first.TaskID[:]...)
			heads = binary.BigEndian.AppendUint64(heads, first.Bucket)
			heads = binary.BigEndian.AppendUint32(heads, uint32(len(block)))
			for i := range block {
				heads = append(heads, block[i].ReportID[:]...)
				heads = binary.BigEndian.AppendUint32(heads, uint32(len(block[i].Report)))
				heads = binary.BigEndian.AppendUint32(heads, crc32.Checksum(block[i].Report, castagnoli))
			}
			parts = append(parts, heads[at:])
			for i := range block {
				parts = append(parts, block[i].Report)
			}
		}
		start = end
	}
	return parts
}

// block is one of a record.
type block struct {
	place
	count int
	table []byte
	body  []byte // the reports, one after the other
}

// length is that of report i.
func (b *block) length(i int) int {
	return int(binary.BigEndian.Uint32(b.table[i*reportEntry+16:]))
}

// cutBlock takes the first block off a record. The reports are not compared with their
// checksums: a record's own covers them here.
func cutBlock(record []byte) (b block, rest []byte, err error) {
	bad := func() (block, []byte, error) {
		return block{}, nil, fmt.Errorf("%w: malformed log record", ErrCorrupt)
	}
	if len(record) < blockHeader {
		return bad()
	}
	b.place = place{TaskID(record), binary.BigEndian.Uint64(record[32:])}
	count := uint64(binary.BigEndian.Uint32(record[40:]))
	record = record[blockHeader:]
	if count == 0 || count*reportEntry > uint64(len(record)) {
		return bad()
	}
	b.count = int(count)
	b.table, record = record[:count*reportEntry], record[count*reportEntry:]
	body := uint64(0)
	for i := range b.count {
		body += uint64(b.length(i))
	}
	if body > uint64(len(record)) {
		return bad()
	}
	b.body = record[:body]
	return b, record[body:], nil
}

// readEntries appends the entries of a record to entries; their reports alias it.
func readEntries(entries []Entry, record []byte) ([]Entry, error) {
	for len(record) > 0 {
		b, rest, err := cutBlock(record)
		if err != nil {
			return entries, err
		}
		at := 0
		for i := range b.count {
			end := at + b.length(i)
			entries = append(entries, Entry{
				TaskID: b.task, Bucket: b.bucket, ReportID: ReportID(b.table[i*reportEntry:]), Report: b.body[at:end:end],
			})
			at = end
		}
		record = rest
	}
	return entries, nil
}

// Sum is a SHA-256 checksum.
type Sum [32]byte

func (s Sum) String() string { return hex.EncodeToString(s[:]) }
