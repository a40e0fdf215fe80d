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
	logVersion = 2
	// LogHeaderSize is the length of a log file without records, in bytes.
	LogHeaderSize = 64
	// FrameOverhead is how many bytes a record takes in a log file beyond its payload.
	FrameOverhead = 20
	// maxLogFile bounds what ScanLog reads into memory.
	maxLogFile = 4 << 30
)

// ErrLogVersion: the file begins with a whole log header of a version that is newer than
// this program's. Nothing is known of what is in it, and nothing is wrong with it.
var ErrLogVersion = errors.New("disk: log of a newer version")

// ErrLogHeader: the file does not begin with a whole log header. Since a header is
// durable before the first record is acknowledged, such a file of at most 64 bytes holds
// nothing.
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

// A header is how a log file begins:
//
//	magic 16 | version u32 | id 16 | id of the log before 16 | its length u64 | CRC-32C of all before u32
//
// The log before is the one that was appended to until this one was made, of which so many
// bytes at least were durable then; zeros if there was none. So a log that has a successor
// cannot lose what was acknowledged at its end without a trace, for no sync of its own.
type header struct {
	id     LogID
	before Mark
}

// A Mark says that a log is at least so long.
type Mark struct {
	ID   LogID
	Size int64 // bytes that were durable
}

func appendLogHeader(b []byte, id LogID, before Mark) []byte {
	start := len(b)
	b = append(b, logMagic...)
	b = binary.BigEndian.AppendUint32(b, logVersion)
	b = append(b, id[:]...)
	b = append(b, before.ID[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(before.Size))
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

func readLogHeader(b []byte) (h header, err error) {
	if len(b) < LogHeaderSize {
		return h, fmt.Errorf("%w: %d bytes", ErrLogHeader, len(b))
	}
	b = b[:LogHeaderSize]
	if string(b[:len(logMagic)]) != logMagic {
		return h, fmt.Errorf("%w: wrong magic", ErrLogHeader)
	}
	if crc32.Checksum(b[:LogHeaderSize-4], castagnoli) != binary.BigEndian.Uint32(b[LogHeaderSize-4:]) {
		return h, fmt.Errorf("%w: wrong checksum", ErrLogHeader)
	}
	switch v := binary.BigEndian.Uint32(b[len(logMagic):]); {
	case v > logVersion:
		return h, fmt.Errorf("%w: version %d, this program reads %d", ErrLogVersion, v, logVersion)
	case v < logVersion:
		return h, fmt.Errorf("%w: version %d, this program reads %d", ErrLogHeader, v, logVersion)
	}
	b = b[len(logMagic)+4:]
	return header{LogID(b), Mark{LogID(b[16:]), int64(binary.BigEndian.Uint64(b[32:]))}}, nil
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

// ReadLogHeader reads the id of a log file, and what it says of the log before it. The
// error matches [ErrLogHeader] if this is none, and [ErrLogVersion] if it is of a newer
// version.
func ReadLogHeader(fsys FS, name string) (id LogID, before Mark, err error) {
	f, err := fsys.Open(name)
	if err != nil {
		return id, before, err
	}
	defer f.Close() // read only
	b := make([]byte, LogHeaderSize)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return id, before, fmt.Errorf("disk: read log %s: %w", name, err)
	}
	h, err := readLogHeader(b[:n])
	if err != nil {
		err = fmt.Errorf("disk: log %s: %w", name, err)
	}
	return h.id, h.before, err
}
