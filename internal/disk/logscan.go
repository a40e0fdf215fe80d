package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Scan is what [ScanLog] found.
type Scan struct {
	ID     LogID
	Before Mark // of the log before
	// payloads in order, up to the first bad frame; they alias one buffer that the caller
	// owns
	Records [][]byte
	// At is where each of them, and each of Behind after them, begins in the file
	At    []int64
	Valid int64 // bytes up to the end of the last of them
	Cut   int64 // bytes behind it, that are no records or stand behind such
	// Damaged: a good frame behind the cut says that the bytes at the cut had been
	// durable. Acknowledged records are lost; a mere power loss cannot do that.
	Damaged bool
	// Behind are the payloads behind the first bad frame that are whole, in order.
	Behind [][]byte
	// Gaps are the bytes that are no record, in order.
	Gaps []Gap
}

// A Gap is a part of a log file that is no record.
type Gap struct {
	Offset, Size int64 // bytes
	// Durable: a later record says that these bytes had been durable, and so, but for the
	// last instant, acknowledged. Of other gaps that is not known: a loss of power leaves
	// them, and damage may.
	Durable bool
	// Pieces are what is left of the payloads in it, one a record as far as the lengths
	// can be followed; the bytes are not to be relied on.
	Pieces [][]byte
	// Exact: the pieces fill the gap, so they are as many as the records that were in it.
	Exact bool
}

// DamagedError tells where a log lost acknowledged records.
type DamagedError struct {
	Name   string
	Offset int64 // of the first bad frame
	Cut    int64 // bytes from there to the end of the file
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("disk: log %s is damaged at byte %d: acknowledged records among the last %d bytes are lost", e.Name,
		e.Offset, e.Cut)
}

// ScanLog reads a log file that nobody writes to, into memory. A torn tail is normal and
// no error; see [Scan.Damaged] for what is not. The error matches [ErrLogHeader] if this
// is no log file, of which the one gap says what it may have held, and [ErrLogVersion] if
// it is of a newer version. Where a header is damaged and the id in it, or one that
// differs from it in one bit, is that of a record, the scan has that id, and all else,
// beside the error.
func ScanLog(fsys FS, name string) (Scan, error) { return ScanLogInto(fsys, name, nil) }

// ScanLogInto is ScanLog into the memory of buf, from its first byte to its capacity, if
// the file fits in there; the records then alias it.
func ScanLogInto(fsys FS, name string, buf []byte) (Scan, error) {
	file, err := readFileInto(fsys, name, maxLogFile, buf)
	if err != nil {
		return Scan{}, err
	}
	h, err := readLogHeader(file)
	if err != nil {
		err = fmt.Errorf("disk: scan %s: %w", name, err)
		if errors.Is(err, ErrLogVersion) {
			return Scan{}, err
		}
		var found bool
		if h.id, found = guessID(file); !found {
			return headless(file), err
		}
	}
	s := Scan{ID: h.id, Before: h.before, Valid: LogHeaderSize}
	size, known := int64(len(file)), int64(0) // so far the file was once durable
	for at := s.Valid; at < size; {
		if payload, durable, ok := readFrame(file, h.id, at); ok {
			s.At = append(s.At, at+FrameOverhead)
			if len(s.Gaps) == 0 {
				s.Records = append(s.Records, payload)
			} else {
				s.Behind = append(s.Behind, payload)
			}
			known = max(known, durable)
			at += FrameOverhead + int64(len(payload))
			if len(s.Gaps) == 0 {
				s.Valid = at
			}
			continue
		}
		end := nextFrame(file, h.id, at+1)
		g := Gap{Offset: at, Size: end - at}
		g.Pieces, g.Exact = pieces(file[at:end], h.id.marker())
		s.Gaps = append(s.Gaps, g)
		at = end
	}
	s.Cut = size - s.Valid
	for i := range s.Gaps {
		if g := &s.Gaps[i]; g.Offset < known {
			g.Durable, s.Damaged = true, true
		}
	}
	return s, err // of the header
}

// headless is what there is to say of a file without a header: nothing in it is a record.
func headless(file []byte) (s Scan) {
	if len(file) > LogHeaderSize+FrameOverhead {
		g := Gap{Offset: LogHeaderSize, Size: int64(len(file) - LogHeaderSize)}
		g.Pieces, _ = pieces(file[LogHeaderSize:], file[LogHeaderSize:LogHeaderSize+4])
		s.Gaps = []Gap{g}
	}
	return s
}

// nextFrame is where the next good frame begins, or the end of the file.
func nextFrame(file []byte, id LogID, at int64) int64 {
	for at < int64(len(file)) {
		next := bytes.Index(file[at:], id.marker())
		if next < 0 {
			break
		}
		at += int64(next)
		if _, _, ok := readFrame(file, id, at); ok {
			return at
		}
		at++
	}
	return int64(len(file))
}

// pieces follows the lengths of the frames in a gap for as long as they make sense.
func pieces(gap []byte, marker []byte) (payloads [][]byte, exact bool) {
	for len(gap) > FrameOverhead {
		length := uint64(binary.BigEndian.Uint32(gap[4:]))
		if length == 0 || length > uint64(len(gap)-FrameOverhead) || len(payloads) > 0 && !bytes.Equal(gap[:4], marker) {
			return append(payloads, gap[FrameOverhead:]), false
		}
		payloads = append(payloads, gap[FrameOverhead:FrameOverhead+length])
		gap = gap[FrameOverhead+length:]
	}
	return payloads, len(gap) == 0 && len(payloads) > 0
}

// guessID finds the id of a log whose header is damaged: the frames are bound to it.
func guessID(file []byte) (id LogID, found bool) {
	const at = len(logMagic) + 4
	if len(file) <= LogHeaderSize {
		return id, false
	}
	asItStands := LogID(file[at:])
	for bit := -1; bit < 8*len(id); bit++ {
		if id = asItStands; bit >= 0 {
			id[bit/8] ^= 1 << (bit % 8)
		}
		if nextFrame(file, id, LogHeaderSize) < int64(len(file)) {
			return id, true
		}
	}
	return LogID{}, false
}

// Err is a [*DamagedError] if acknowledged records were lost, else nil.
func (s Scan) Err(name string) error {
	if !s.Damaged {
		return nil
	}
	return &DamagedError{Name: name, Offset: s.Valid, Cut: s.Cut}
}
