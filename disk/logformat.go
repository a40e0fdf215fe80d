package disk

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

const (
	logMagic   = "starling log 001"
	logVersion = 1
	// LogHeaderSize is the length of a log file without records, in bytes.
	LogHeaderSize = 64
	// FrameOverhead is how many bytes a record takes in a log file beyond its payload.
	FrameOverhead = 20
	// maxLogFile bounds what ScanLog reads into memory.
	maxLogFile = 4 << 30
)

// ErrLogHeader: the file does not begin with a whole log header. Since a header is durable before the first record is
// acknowledged, such a file of at most 64 bytes holds nothing.
var ErrLogHeader = errors.New("disk: not a log file")

// LogID identifies one log file for ever: it is drawn at random when the file is made.
type LogID [16]byte

func (id LogID) String() string { return hex.EncodeToString(id[:]) }

func newLogID() LogID {
	var id LogID
	rand.Read(id[:]) // never fails
	return id
}

func (id LogID) marker() []byte { return id[:4] }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendLogHeader(b []byte, id LogID) []byte {
	start := len(b)
	b = append(b, logMagic...)
	b = binary.BigEndian.AppendUint32(b, logVersion)
	b = append(b, id[:]...)
	b = append(b, make([]byte, LogHeaderSize-4-(len(b)-start))...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

func readLogHeader(b []byte) (LogID, error) {
	if len(b) < LogHeaderSize {
		return LogID{}, fmt.Errorf("%w: %d bytes", ErrLogHeader, len(b))
	}
	b = b[:LogHeaderSize]
	if string(b[:len(logMagic)]) != logMagic {
		return LogID{}, fmt.Errorf("%w: wrong magic", ErrLogHeader)
	}
	if crc32.Checksum(b[:LogHeaderSize-4], castagnoli) != binary.BigEndian.Uint32(b[LogHeaderSize-4:]) {
		return LogID{}, fmt.Errorf("%w: wrong checksum", ErrLogHeader)
	}
	if v := binary.BigEndian.Uint32(b[len(logMagic):]); v != logVersion {
		return LogID{}, fmt.Errorf("%w: version %d, this program reads %d", ErrLogHeader, v, logVersion)
	}
	return LogID(b[len(logMagic)+4:]), nil
}

// appendFrame encodes one record for the given offset of the file id.
func appendFrame(b []byte, id LogID, offset, durable int64, parts [][]byte) []byte {
	length := 0
	for _, p := range parts {
		length += len(p)
	}
	start := len(b)
	b = append(b, id.marker()...)
	b = binary.BigEndian.AppendUint32(b, uint32(length))
	b = binary.BigEndian.AppendUint64(b, uint64(durable))
	b = append(b, 0, 0, 0, 0)
	for _, p := range parts {
		b = append(b, p...)
	}
	crc := frameCRC(id, offset, b[start:])
	binary.BigEndian.PutUint32(b[start+16:], crc)
	return b
}

// frameCRC is taken over id, offset and the frame without its marker and its CRC.
func frameCRC(id LogID, offset int64, frame []byte) uint32 {
	var pre [24]byte
	copy(pre[:], id[:])
	binary.BigEndian.PutUint64(pre[16:], uint64(offset))
	crc := crc32.Update(0, castagnoli, pre[:])
	crc = crc32.Update(crc, castagnoli, frame[4:16])
	return crc32.Update(crc, castagnoli, frame[FrameOverhead:])
}

// readFrame parses the frame at offset of the whole file; ok is false if there is none.
func readFrame(file []byte, id LogID, offset int64) (payload []byte, durable int64, ok bool) {
	b := file[offset:]
	if len(b) < FrameOverhead || !bytes.Equal(b[:4], id.marker()) {
		return nil, 0, false
	}
	length := int64(binary.BigEndian.Uint32(b[4:]))
	if length == 0 || length > int64(len(b)-FrameOverhead) {
		return nil, 0, false
	}
	b = b[: FrameOverhead+length : FrameOverhead+length]
	if frameCRC(id, offset, b) != binary.BigEndian.Uint32(b[16:]) {
		return nil, 0, false
	}
	return b[FrameOverhead:], int64(binary.BigEndian.Uint64(b[8:])), true
}

// ReadLogID reads the id of a log file. The error matches [ErrLogHeader] if this is none.
func ReadLogID(fsys FS, name string) (LogID, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return LogID{}, err
	}
	defer f.Close() // read only
	header := make([]byte, LogHeaderSize)
	n, err := f.ReadAt(header, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return LogID{}, fmt.Errorf("disk: read log %s: %w", name, err)
	}
	return readLogHeader(header[:n])
}

// Scan is what [ScanLog] found.
type Scan struct {
	ID      LogID
	Records [][]byte // payloads in order; they alias one buffer that the caller owns
	Valid   int64    // bytes up to the end of the last good frame
	Cut     int64    // bytes behind it that were given up
	// Damaged: a good frame behind the cut says that the bytes at the cut had been durable. Acknowledged records are
	// lost; a mere power loss cannot do that.
	Damaged bool
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

// ScanLog reads a log file that nobody writes to, into memory, up to its first bad frame. A torn tail is normal and no
// error; see [Scan.Damaged] for what is not. The error matches [ErrLogHeader] if this is no log file.
func ScanLog(fsys FS, name string) (Scan, error) { return ScanLogInto(fsys, name, nil) }

// ScanLogInto is ScanLog into the memory of buf, from its first byte to its capacity, if the file fits in there; the
// records then alias it.
func ScanLogInto(fsys FS, name string, buf []byte) (Scan, error) {
	file, err := ReadFileInto(fsys, name, maxLogFile, buf)
	if err != nil {
		return Scan{}, err
	}
	id, err := readLogHeader(file)
	if err != nil {
		return Scan{}, fmt.Errorf("disk: scan %s: %w", name, err)
	}
	s := Scan{ID: id, Valid: LogHeaderSize}
	for s.Valid < int64(len(file)) {
		payload, _, ok := readFrame(file, id, s.Valid)
		if !ok {
			break
		}
		s.Records = append(s.Records, payload)
		s.Valid += FrameOverhead + int64(len(payload))
	}
	s.Cut = int64(len(file)) - s.Valid
	for at := s.Valid + 1; at < int64(len(file)); at++ {
		next := bytes.Index(file[at:], id.marker())
		if next < 0 {
			break
		}
		at += int64(next)
		if _, durable, ok := readFrame(file, id, at); ok && durable > s.Valid {
			s.Damaged = true
			break
		}
	}
	return s, nil
}

// Err is a [*DamagedError] if acknowledged records were lost, else nil.
func (s Scan) Err(name string) error {
	if !s.Damaged {
		return nil
	}
	return &DamagedError{Name: name, Offset: s.Valid, Cut: s.Cut}
}
