package journal

import (
	"testing"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// TestLargeBatch: the largest batch that a gateway may hold, each request in a round and
// a piece of its own, is written down and found again; and its log is not written anew at
// each step because the batch alone is long.
func TestLargeBatch(t *testing.T) {
	const requests, steps = 1 << 20, 50
	fsys := disktest.NewMem(1)
	r := &Round{Number: requests, Groups: make([]Group, 1), Items: []Item{{Body: []byte("a")}}}
	j, _, err := Open(fsys, disk.Sub(fsys, "record"), disk.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	j.next = requests
	if err := j.writeAll(); err != nil {
		t.Fatal(err)
	}
	if err := j.Log(r); err != nil {
		t.Fatal(err)
	}
	b := &Batch{Number: 1}
	for n := range uint64(requests) {
		b.Members = append(b.Members, Member{Round: n + 1})
		b.Pieces = append(b.Pieces, []Ref{{Round: n + 1}})
	}
	if err := j.Cut(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	before := j.file
	for n := range steps {
		if err := j.Settle(t.Context(), b, n, nil); err != nil {
			t.Fatal(err)
		}
	}
	if j.file-before > 1 {
		t.Errorf("%d steps wrote the whole log anew %d times", steps, j.file-before)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, found, err := Open(fsys, disk.Sub(fsys, "record"), disk.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if len(found.Batches) != 1 || len(found.Batches[0].Pieces) != requests || len(found.Batches[0].Pieces[requests-1]) != 1 || found.Next != requests+1 {
		t.Errorf("found %d batches, and the next round is %d", len(found.Batches), found.Next)
	}
}
