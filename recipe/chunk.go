package recipe

import (
	"github.com/starling-agg/starling/vdaf/prio3"
)

// WithChunk fills in the chunk length that makes reports shortest.
func WithChunk(q Query) Query {
	switch q := q.(type) {
	case Histogram:
		if q.Chunk == 0 {
			q.Chunk = optimalChunk(uint64(q.Length))
		}
		return q
	case Multihot:
		if q.Chunk == 0 {
			q.Chunk = optimalChunk(q.elements())
		}
		return q
	case SumVec:
		if q.Chunk == 0 {
			q.Chunk = optimalChunk(q.elements())
		}
		return q
	case L1BoundSum:
		if q.Chunk == 0 {
			q.Chunk = optimalChunk(q.elements())
		}
		return q
	}
	return q
}

func optimalChunk(elements uint64) uint32 {
	return uint32(prio3.OptimalChunk(int(min(elements, MaxElements))))
}
