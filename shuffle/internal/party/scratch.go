package party

import (
	"bufio"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"

	"github.com/starling-agg/starling/internal/disk"
)

const scratchFile = "scratch"

// scratch keeps what was opened, in the order in which it was, on the disk for as long as it
// is worked on. It is enciphered under a key that is never anywhere but in memory: a file
// that is removed may stay on a disk for long, and this one would tell whose is what.
type scratch struct {
	fs    disk.FS
	file  disk.File
	w     *bufio.Writer
	block cipher.Block
	size  int // of an item, in bytes
	n     uint64
	buf   []byte
}

// newScratch makes an empty one for items of a size, in the place of one that was left.
func newScratch(fsys disk.FS, size int) (*scratch, error) {
	if err := disk.Remove(fsys, scratchFile); err != nil {
		return nil, err
	}
	f, err := fsys.Create(scratchFile)
	if err != nil {
		return nil, err
	}
	key := make([]byte, 32)
	rand.Read(key)
	block, err := aes.NewCipher(key)
	clear(key)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &scratch{fs: fsys, file: f, w: bufio.NewWriterSize(f, 1<<20), block: block, size: size, buf: make([]byte, size)}, nil
}

// code is the cipher of one item: CTR mode from a counter block that no other item has.
func (s *scratch) code(i uint64, b []byte) {
	var iv [aes.BlockSize]byte
	binary.BigEndian.PutUint64(iv[:], i)
	cipher.NewCTR(s.block, iv[:]).XORKeyStream(b, b)
}

// add appends items that stand one behind another.
func (s *scratch) add(items []byte) error {
	for ; len(items) > 0; items = items[s.size:] {
		copy(s.buf, items[:s.size])
		s.code(s.n, s.buf)
		if _, err := s.w.Write(s.buf); err != nil {
			return err
		}
		s.n++
	}
	return nil
}

// flush ends adding.
func (s *scratch) flush() error { return s.w.Flush() }

// item reads one into b, of its size.
func (s *scratch) item(i uint64, b []byte) error {
	if err := readAt(s.file, b, int64(i)*int64(s.size)); err != nil {
		return err
	}
	s.code(i, b)
	return nil
}

// readAt fills b, or fails.
func readAt(f io.ReaderAt, b []byte, offset int64) error {
	n, err := f.ReadAt(b, offset)
	switch {
	case n == len(b):
		return nil
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	}
	return err
}

// close removes it. It may be repeated.
func (s *scratch) close() error {
	if s.file == nil {
		return nil
	}
	err := errors.Join(s.file.Close(), disk.Remove(s.fs, scratchFile))
	s.file = nil
	return err
}
