package segment

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
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
}

// Errors to branch on; see the package comment.
var (
	ErrBusy     = errors.New("segment: too much is waiting to be kept")
	ErrTooLarge = errors.New("segment: report is too large")
	ErrCorrupt  = errors.New("segment: file is not what its name promises")
	ErrNewer    = errors.New("segment: file of a newer version of this program")
	ErrForeign  = errors.New("segment: reports of a task that was never provisioned here")
)

// A record of the log is a sequence of blocks, one per run of entries with the same task
// and batch bucket:
//
//	task 32 | bucket u64 | count u32 | count × (report id 16 | length u32 | report)
const (
	blockHeader = 32 + 8 + 4
	entryHeader = 16 + 4
)

// encodedSize bounds what an entry takes in a record.
func (e *Entry) encodedSize() int { return blockHeader + entryHeader + len(e.Report) }

// recordParts are the parts of a record of entries, to be written one after the other:
// heads, and between them the reports, which are not copied.
func recordParts(entries []Entry) [][]byte {
	heads := make([]byte, 0, len(entries)*(blockHeader+entryHeader))
	parts := make([][]byte, 0, 2*len(entries))
	for start := 0; start < len(entries); {
		first := &entries[start]
		end := start + 1
		for end < len(entries) && entries[end].TaskID == first.TaskID && entries[end].Bucket == first.Bucket {
			end++
		}
		at := len(heads)
		heads = append(heads, first.TaskID[:]...)
		heads = binary.BigEndian.AppendUint64(heads, first.Bucket)
		heads = binary.BigEndian.AppendUint32(heads, uint32(end-start))
		for i := start; i < end; i++ {
			heads = append(heads, entries[i].ReportID[:]...)
			heads = binary.BigEndian.AppendUint32(heads, uint32(len(entries[i].Report)))
			parts = append(parts, heads[at:], entries[i].Report)
			at = len(heads)
		}
		start = end
	}
	return parts
}

// readEntries appends the entries of a record to entries; their reports alias b.
func readEntries(entries []Entry, b []byte) ([]Entry, error) {
	bad := func() ([]Entry, error) { return entries, fmt.Errorf("%w: malformed log record", ErrCorrupt) }
	for len(b) > 0 {
		if len(b) < blockHeader {
			return bad()
		}
		e := Entry{TaskID: TaskID(b), Bucket: binary.BigEndian.Uint64(b[32:])}
		count := binary.BigEndian.Uint32(b[40:])
		b = b[blockHeader:]
		for range count {
			if len(b) < entryHeader {
				return bad()
			}
			e.ReportID = ReportID(b)
			length := binary.BigEndian.Uint32(b[16:])
			b = b[entryHeader:]
			if uint64(length) > uint64(len(b)) {
				return bad()
			}
			e.Report = b[:length:length]
			b = b[length:]
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// Sum is a SHA-256 checksum.
type Sum [32]byte

func (s Sum) String() string { return hex.EncodeToString(s[:]) }
