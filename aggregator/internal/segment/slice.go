package segment

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"

	"golang.org/x/sync/errgroup"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/internal/buffer"
	"github.com/starling-agg/starling/internal/wire"
)

// A Slice is what a row keeps of reports of one task and batch bucket that were
// acknowledged together: where they are, and what they are. Reports are never copied to
// make one.
type Slice struct {
	Object string  // a log, or an object of a payload store
	Pieces []Piece // in the order of the object, apart from one another
	TaskID TaskID
	Bucket uint64 // DAP Time
	Count  int    // reports in the pieces, at least 1; in a log an id may come twice
	// reports left out of an object, because their id came before in the commit
	Duplicates int
	// SHA-256("starling slice v1" || task || batch bucket || the tables of the pieces)
	Sum Sum
	// when the first report of its object was acknowledged, in Unix seconds; 0: not known
	Came int64
}

// A Piece is a part of an object: a table of reports, and the reports.
type Piece struct {
	Offset int64 // bytes
	Length uint32
	Count  uint32 // reports
}

// end is where the piece ends.
func (p Piece) end() int64 { return p.Offset + int64(p.Length) }

// Size is how many bytes the pieces have.
func (s *Slice) Size() (n int64) {
	for _, p := range s.Pieces {
		n += int64(p.Length)
	}
	return n
}

func (s *Slice) String() string {
	return fmt.Sprintf("%s, %d reports from byte %d", s.Object, s.Count, s.Start())
}

// Start is where the first piece begins: no other slice of the object has one there.
func (s *Slice) Start() int64 {
	if len(s.Pieces) == 0 {
		return 0
	}
	return s.Pieces[0].Offset
}

// End is where the last piece ends: the object is as long at least.
func (s *Slice) End() (end int64) {
	if n := len(s.Pieces); n > 0 {
		end = s.Pieces[n-1].end()
	}
	return end
}

// Check says whether a row makes sense, before memory is lent for it. The error matches
// [ErrCorrupt].
func (s *Slice) Check() error {
	count, size, end := uint64(0), int64(0), int64(0)
	for _, p := range s.Pieces {
		if p.Offset < end || p.end() < p.Offset || p.Count == 0 || uint64(p.Length) < uint64(p.Count)*(reportEntry+1) {
			return fmt.Errorf("%w: pieces that no object has", ErrCorrupt)
		}
		count, size, end = count+uint64(p.Count), size+int64(p.Length), p.end()
	}
	if count == 0 || count != uint64(s.Count) || size > payload.MaxObject {
		return fmt.Errorf("%w: %d reports in %d bytes, and %d in its row", ErrCorrupt, count, size, s.Count)
	}
	return nil
}

// AppendPieces appends the pieces as a row keeps them: of each the bytes between it and
// the one before, its length and its reports, as unsigned varints.
func AppendPieces(b []byte, pieces []Piece) []byte {
	end := int64(0)
	for _, p := range pieces {
		b = binary.AppendUvarint(b, uint64(p.Offset-end))
		b = binary.AppendUvarint(b, uint64(p.Length))
		b = binary.AppendUvarint(b, uint64(p.Count))
		end = p.end()
	}
	return b
}

// ReadPieces reads what AppendPieces wrote. The error matches [ErrCorrupt].
func ReadPieces(b []byte) (pieces []Piece, err error) {
	end := int64(0)
	for len(b) > 0 {
		var v [3]uint64
		for i := range v {
			n := 0
			if v[i], n = binary.Uvarint(b); n <= 0 {
				return nil, fmt.Errorf("%w: pieces end in a number", ErrCorrupt)
			}
			b = b[n:]
		}
		const most = 1<<62 - payload.MaxObject // bytes of an object, far from where sums end
		if v[0] > uint64(most-end) || v[1] > payload.MaxObject || v[2] > v[1] {
			return nil, fmt.Errorf("%w: pieces that no object has", ErrCorrupt)
		}
		p := Piece{end + int64(v[0]), uint32(v[1]), uint32(v[2])}
		pieces, end = append(pieces, p), p.end()
	}
	return pieces, nil
}

// sliceSum begins the sum of a slice; the tables of its pieces follow.
func sliceSum(task TaskID, bucket uint64) hash.Hash {
	h := sha256.New()
	h.Write([]byte(sliceDomain))
	h.Write(task[:])
	h.Write(binary.BigEndian.AppendUint64(nil, bucket))
	return h
}

// Reports are those of several slices of one task and batch bucket, in memory and
// immutable: what one job takes. They are numbered through the slices in their order, so
// that a job made again is the same.
type Reports struct {
	rows     []reportRow
	at       []int // where each begins in data
	repeated []bool
	data     []byte // all pieces; nil once closed
}

// A SliceError is a slice that could not be opened, of several.
type SliceError struct {
	Index int // among those that were asked for
	Slice Slice
	Err   error
}

func (e *SliceError) Error() string { return fmt.Sprintf("segment: open %s: %v", &e.Slice, e.Err) }
func (e *SliceError) Unwrap() error { return e.Err }

// Gone says whether the reports of the slice are lost: it is not what its row says, or its
// object is gone. All else may pass.
func (e *SliceError) Gone() bool {
	return errors.Is(e.Err, ErrCorrupt) || errors.Is(e.Err, payload.ErrNotFound)
}

const (
	// sliceReads is how many slices are read at once: an object store answers each in its
	// own time.
	sliceReads = 8
	// spanBytes is how much of an object is read at once where that has several pieces: in a
	// log they are as small as requests.
	spanBytes = 64 << 10
)

// OpenSlices reads slices and verifies them against their rows, every byte. Where some
// cannot be opened the error has a [*SliceError] of each, in their order, and nothing
// stays open. [Reports.Close] gives the memory back.
func OpenSlices(ctx context.Context, store payload.Store, slices []Slice) (*Reports, error) {
	type room struct{ first, at int } // of a slice, among the reports and the bytes
	rooms := make([]room, len(slices))
	errs := make([]error, len(slices))
	var all room
	for i := range slices {
		s := &slices[i]
		err := s.Check()
		if err == nil && (s.TaskID != slices[0].TaskID || s.Bucket != slices[0].Bucket) {
			err = fmt.Errorf("%w: of another task or batch bucket than the first", ErrCorrupt)
		}
		if err != nil {
			errs[i] = &SliceError{i, *s, err}
			continue
		}
		rooms[i] = all
		all.first, all.at = all.first+s.Count, all.at+int(s.Size())
	}
	r := &Reports{
		rows: make([]reportRow, all.first), at: make([]int, all.first), repeated: make([]bool, all.first),
		data: buffer.Get(all.at)[:all.at],
	}
	var reads errgroup.Group
	reads.SetLimit(sliceReads)
	for i := range slices {
		if errs[i] != nil {
			continue // nothing of it is read, and all are refused
		}
		reads.Go(func() error {
			s, room := &slices[i], rooms[i]
			data := r.data[room.at:][:s.Size()]
			err := s.read(ctx, store, data)
			if err == nil {
				err = s.parse(data, r.rows[room.first:], r.at[room.first:], room.at)
			}
			if err != nil {
				errs[i] = &SliceError{i, *s, err}
			}
			return nil // every slice is tried
		})
	}
	_ = reads.Wait() // none fails
	if err := errors.Join(errs...); err != nil {
		r.Close()
		return nil, err
	}
	seen := make(map[ReportID]struct{}, len(r.rows))
	for i := range r.rows {
		_, r.repeated[i] = seen[r.rows[i].id]
		seen[r.rows[i].id] = struct{}{}
	}
	return r, nil
}

// read fills data with the pieces, one after the other.
func (s *Slice) read(ctx context.Context, store payload.Store, data []byte) error {
	var span []byte
	defer func() { buffer.Put(span) }()
	for rest := s.Pieces; len(rest) > 0; {
		from, n := rest[0].Offset, 1
		for n < len(rest) && rest[n].end()-from <= spanBytes {
			n++
		}
		if n == 1 {
			length := rest[0].Length
			if err := readFull(ctx, store, s.Object, data[:length], from); err != nil {
				return err
			}
			data, rest = data[length:], rest[1:]
			continue
		}
		if span == nil {
			span = buffer.Get(spanBytes)
		}
		read := span[:rest[n-1].end()-from]
		if err := readFull(ctx, store, s.Object, read, from); err != nil {
			return err
		}
		for _, p := range rest[:n] {
			data = data[copy(data, read[p.Offset-from:p.end()-from]):]
		}
		rest = rest[n:]
	}
	return nil
}

// parse checks what read found against the row, and says which reports it has and where in
// all bytes: data is at base of them.
func (s *Slice) parse(data []byte, rows []reportRow, at []int, base int) error {
	sum := sliceSum(s.TaskID, s.Bucket)
	for _, p := range s.Pieces {
		table := data[:p.Count*reportEntry]
		sum.Write(table)
		err := wire.Read(table, ErrCorrupt, func(c *wire.Coder) {
			for i := range p.Count {
				rows[i].code(c)
			}
		})
		if err != nil {
			return err
		}
		body, begin := data[len(table):p.Length], base+len(table)
		for i := range p.Count {
			row := &rows[i]
			if uint64(row.length) > uint64(len(body)) {
				return fmt.Errorf("%w: report %d ends behind its piece", ErrCorrupt, i)
			}
			if crc32.Checksum(body[:row.length], castagnoli) != row.crc {
				return fmt.Errorf("%w: wrong checksum of report %d", ErrCorrupt, i)
			}
			at[i] = begin
			body, begin = body[row.length:], begin+int(row.length)
		}
		if len(body) > 0 {
			return fmt.Errorf("%w: %d bytes behind the last report", ErrCorrupt, len(body))
		}
		data, base = data[p.Length:], base+int(p.Length)
		rows, at = rows[p.Count:], at[p.Count:]
	}
	if Sum(sum.Sum(nil)) != s.Sum {
		return fmt.Errorf("%w: not the slice of this row", ErrCorrupt)
	}
	return nil
}

// Len is the number of reports.
func (r *Reports) Len() int { return len(r.rows) }

// ReportID is the id of report i, 0 <= i < Len.
func (r *Reports) ReportID(i int) ReportID { return r.rows[i].id }

// Repeated says whether the id of report i is that of one before it.
func (r *Reports) Repeated(i int) bool { return r.repeated[i] }

// Report is report i as the client sent it. It aliases the one buffer; do not change it.
func (r *Reports) Report(i int) []byte {
	begin, length := r.at[i], int(r.rows[i].length)
	return r.data[begin : begin+length : begin+length]
}

// Close gives the memory back for others to use: nothing that Report returned may be read
// any more. It may be left out, and repeated.
func (r *Reports) Close() {
	buffer.Put(r.data)
	r.data = nil
}
