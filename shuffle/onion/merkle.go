package onion

import "crypto/sha256"

// A Tree computes the root of the Merkle tree of records (RFC 9162 section 2.1.1) as they
// come, in memory of the logarithm of their number. The zero value is the empty tree.
type Tree struct {
	n     uint64
	stack [][32]byte // roots of full subtrees, the largest first: one for each bit of n
}

// Add appends a record.
func (t *Tree) Add(record []byte) {
	h := sha256.New()
	h.Write([]byte{0})
	h.Write(record)
	var node [32]byte
	h.Sum(node[:0])
	for n := t.n; n&1 == 1; n >>= 1 {
		last := len(t.stack) - 1
		node = parent(t.stack[last], node)
		t.stack = t.stack[:last]
	}
	t.stack = append(t.stack, node)
	t.n++
}

func parent(left, right [32]byte) [32]byte {
	b := [65]byte{0: 1}
	copy(b[1:], left[:])
	copy(b[33:], right[:])
	return sha256.Sum256(b[:])
}

// Records is how many there are.
func (t *Tree) Records() uint64 { return t.n }

// Root is that of the records so far.
func (t *Tree) Root() [32]byte {
	if t.n == 0 {
		return sha256.Sum256(nil)
	}
	last := len(t.stack) - 1
	root := t.stack[last]
	for i := last - 1; i >= 0; i-- {
		root = parent(t.stack[i], root)
	}
	return root
}
