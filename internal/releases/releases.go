// Package releases digests what an aggregator has released of a task, so that others can
// tell whether it has forgotten some of it. A [Digest] chains the releases in the order in
// which one aggregator made them, with the bytes of each answer: its owner, its peer and a
// collector who holds those answers can each say which digest stood after n of them.
package releases

import (
	"crypto/sha256"
	"encoding/binary"
	"math"

	"github.com/starling-agg/starling/dap"
)

// A Digest is the chained digest of a task's releases, from the first up to one of them.
type Digest [sha256.Size]byte

// Domain strings; docs/registry.md lists them.
const (
	domainBegin   = "starling releases v1"
	domainRelease = "starling release v1"
	domainTotal   = "starling all releases v1"
)

// Begin is the digest of a task of which nothing was released.
func Begin(task dap.TaskID) Digest {
	return sha256.Sum256(append([]byte(domainBegin), task[:]...))
}

// A Release is one entry of a ledger of releases.
type Release struct {
	Batch  Batch
	Count  uint64   // reports
	Answer [32]byte // SHA-256 of the answer, as it was given out first
}

// Next is the digest after one more release.
func (d Digest) Next(r *Release) Digest {
	b := append([]byte(domainRelease), d[:]...)
	b = r.Batch.append(b)
	b = binary.BigEndian.AppendUint64(b, r.Count)
	return sha256.Sum256(append(b, r.Answer[:]...))
}

// A Total digests all releases of a store, whatever their tasks. Before the first it is
// zero.
type Total [sha256.Size]byte

// Next is the total after one more release, up to which the chain is that of its task.
func (t Total) Next(chain Digest) Total {
	b := append([]byte(domainTotal), t[:]...)
	return sha256.Sum256(append(b, chain[:]...))
}

// A Batch is what was released at one time: a run of time units, both ends included, or a
// leader-selected batch. Make one with [Units] or [ID].
type Batch struct {
	mode        dap.BatchMode
	first, last uint64
	id          dap.BatchID
}

// Units is the batch of an interval that is not empty. Times beyond 2^63 are cut off, as
// no report has one.
func Units(iv dap.Interval) Batch {
	last := dap.Time(math.MaxInt64)
	if end, ok := iv.End(); ok {
		last = min(end-1, last)
	}
	return Batch{mode: dap.TimeInterval, first: uint64(min(iv.Start, math.MaxInt64)), last: uint64(last)}
}

// ID is a batch that the leader selected.
func ID(id dap.BatchID) Batch { return Batch{mode: dap.LeaderSelected, id: id} }

func (b Batch) append(to []byte) []byte {
	to = append(to, byte(b.mode))
	if b.mode == dap.LeaderSelected {
		return append(to, b.id[:]...)
	}
	to = binary.BigEndian.AppendUint64(to, b.first)
	return binary.BigEndian.AppendUint64(to, b.last)
}
