package sketch

import (
	"errors"
	"fmt"
	"math/bits"
)

// MaxLeaves bounds the bins of a tree.
const MaxLeaves = 1 << 20

// errShape is matched by every error about the shape of a tree or of its sums.
var errShape = errors.New("sketch: no such tree")

// A Tree of nodes in levels stands over bins in their order. Level 1 is the top, below
// the root, which has no node; the last level is the bins. A node of level l covers
// branching^(levels-l) bins, the last of a level what is left of them. Nodes are numbered
// from 0, the top level first, each level in the order of its bins. A Tree is immutable.
type Tree struct {
	leaves, branching int
	spans             []int // how many bins a node covers, of each level
	first             []int // number of the first node of each level; then of all nodes
}

// New returns the tree of the fewest levels over leaves bins whose nodes have at most
// branching children. It fails unless 2 <= branching <= leaves <=
// [MaxLeaves].
func New(leaves, branching int) (*Tree, error) {
	if branching < 2 || branching > leaves || leaves > MaxLeaves {
		return nil, fmt.Errorf("%w: %d bins, branching %d, want 2 <= branching <= bins <= %d", errShape, leaves, branching, MaxLeaves)
	}
	t := &Tree{leaves: leaves, branching: branching}
	for span := 1; ; span *= branching {
		t.spans = append([]int{span}, t.spans...)
		if span > (leaves-1)/branching {
			break
		}
	}
	t.first = make([]int, 1, len(t.spans)+1)
	for level, span := range t.spans {
		t.first = append(t.first, t.first[level]+(leaves+span-1)/span)
	}
	return t, nil
}

// Levels is the number of levels, which is how many nodes one person adds to.
func (t *Tree) Levels() int { return len(t.spans) }

// Nodes is the number of nodes of all levels.
func (t *Tree) Nodes() int { return t.first[len(t.spans)] }

// Marks says of each node whether it covers the bin of a number: bins are width numbers
// wide, the first begins at offset 0, and the last has no end. width is at least 1, and
// width times the number of bins is at most 2^64. It takes time that does not depend on
// offset, which is a person's answer; so all nodes are compared with it.
func (t *Tree) Marks(offset, width uint64) []bool {
	marks := make([]bool, t.Nodes())
	for level, span := range t.spans {
		inside := uint64(1) // the offset is not below the node
		for node := t.first[level]; node < t.first[level+1]; node++ {
			next := uint64(0)
			if node+1 < t.first[level+1] {
				end := uint64(node+1-t.first[level]) * uint64(span) * width
				_, below := bits.Sub64(offset, end, 0)
				next = 1 - below
			}
			marks[node] = inside&^next == 1
			inside = next
		}
	}
	return marks
}

// children are the nodes below one of a level that is not the last: from low up to, not
// including, high.
func (t *Tree) children(level, node int) (low, high int) {
	low = t.first[level+1] + (node-t.first[level])*t.branching
	return low, min(low+t.branching, t.first[level+2])
}

// covers are the bins below a node: from low up to, not including, high.
func (t *Tree) covers(level, node int) (low, high int) {
	low = (node - t.first[level]) * t.spans[level]
	return low, min(low+t.spans[level], t.leaves)
}
