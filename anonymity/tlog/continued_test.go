package tlog

import (
	"errors"
	"math/bits"
	"slices"
	"testing"

	merkle "golang.org/x/mod/sumdb/tlog"
)

type stored []Hash

func (s stored) ReadHashes(indexes []int64) (all []Hash, err error) {
	for _, i := range indexes {
		all = append(all, s[i])
	}
	return all, nil
}

// TestContinued: the root of an earlier tree follows from the proof that a tree continues it,
// for all sizes but powers of two, and from no other proof.
func TestContinued(t *testing.T) {
	var tree stored
	roots := []Hash{{}}
	for n := range int64(70) {
		more, err := merkle.StoredHashes(n, []byte{byte(n)}, tree)
		if err != nil {
			t.Fatal(err)
		}
		tree = append(tree, more...)
		root, err := merkle.TreeHash(n+1, tree)
		if err != nil {
			t.Fatal(err)
		}
		roots = append(roots, root)
	}
	for size := int64(1); size < int64(len(roots)); size++ {
		for old := int64(1); old < size; old++ {
			proof, err := ProveContinued(size, old, tree)
			if err != nil {
				t.Fatal(err)
			}
			got, err := continued(old, size, roots[size], proof)
			if bits.OnesCount64(uint64(old)) == 1 {
				if !errors.Is(err, ErrProof) {
					t.Fatalf("from %d to %d: %v", old, size, err)
				}
				continue
			}
			if err != nil || got != roots[old] {
				t.Fatalf("from %d to %d: %v", old, size, err)
			}
			for i := range proof {
				bad := slices.Clone(proof)
				bad[i][3] ^= 1
				if _, err := continued(old, size, roots[size], bad); !errors.Is(err, ErrProof) {
					t.Fatalf("from %d to %d, hash %d changed: %v", old, size, i, err)
				}
			}
			for _, bad := range [][]Hash{nil, proof[:len(proof)-1], append(slices.Clone(proof), Hash{})} {
				if _, err := continued(old, size, roots[size], bad); !errors.Is(err, ErrProof) {
					t.Fatalf("from %d to %d, by %d hashes: %v", old, size, len(bad), err)
				}
			}
			if _, err := continued(old, size, roots[size-1], proof); !errors.Is(err, ErrProof) {
				t.Fatalf("from %d to another tree of %d: %v", old, size, err)
			}
		}
	}
	for _, sizes := range [][2]int64{{0, 5}, {-3, 5}, {5, 5}, {6, 5}} {
		if _, err := continued(sizes[0], sizes[1], roots[5], []Hash{roots[5]}); !errors.Is(err, ErrProof) {
			t.Errorf("from %d to %d: %v", sizes[0], sizes[1], err)
		}
	}
}
