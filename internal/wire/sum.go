package wire

import "crypto/sha256"

// AppendSum appends the SHA-256 of what stands in b from a place on: the end of a file
// that is held to it ([CutSum]).
func AppendSum(b []byte, from int) []byte {
	sum := sha256.Sum256(b[from:])
	return append(b, sum[:]...)
}

// CutSum takes the SHA-256 at the end of a file off it, and says whether it is that of
// what stands before.
func CutSum(file []byte) (content []byte, ok bool) {
	n := len(file) - sha256.Size
	if n < 0 || sha256.Sum256(file[:n]) != [sha256.Size]byte(file[n:]) {
		return nil, false
	}
	return file[:n:n], true
}
