package sketch

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"math/bits"
)

// HashDomain opens what cells are hashed from.
const HashDomain = "starling sketch v1"

// A Hash is one of a family of public hash functions from short strings of bytes into
// cells, one for each row of a sketch. It is SHA-256, so that nobody knows how to choose
// strings for a seed, or a seed for strings, better than by trying; whoever knows the seed
// can try.
type Hash struct {
	Seed uint64
}

// Cell is the cell, from 0 on, of a key in a row of width cells, in time that depends on
// the key's length alone. Of 2^64 hashes each cell has as many as another, or one more.
func (h Hash) Cell(row uint32, key []byte, width uint64) uint64 {
	var head [len(HashDomain) + 12]byte
	copy(head[:], HashDomain)
	binary.BigEndian.PutUint64(head[len(HashDomain):], h.Seed)
	binary.BigEndian.PutUint32(head[len(HashDomain)+8:], row)
	sum := sha256.Sum256(append(head[:], key...))
	cell, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:]), width)
	return cell
}

// Marks is the cell of a key alone, among all of a row, in time that depends on the key's
// length alone. Width is at most MaxLeaves.
func (h Hash) Marks(row uint32, key []byte, width int) []bool {
	marks := make([]bool, width)
	mark(marks, h.Cell(row, key, uint64(width)))
	return marks
}

// mark sets the one of the marks that is numbered, in time that depends on how many there
// are.
func mark(marks []bool, number uint64) {
	for i := range marks {
		marks[i] = subtle.ConstantTimeEq(int32(i), int32(number)) == 1
	}
}
