package journal

import (
	"maps"
	"slices"
	"time"

	"golang.org/x/crypto/cryptobyte"
)

// A Count is how many uploads came to one end, and when the last of them did.
type Count struct {
	N    uint64
	Last time.Time // whole seconds, UTC
}

// Counts are what became of uploads, by a word of a closed set that the journal does not
// know. They outlive the rounds: what was lost is told after a start too.
type Counts map[string]Count

// CountsAt are counts of one time; zeros are left out.
func CountsAt(at time.Time, n map[string]uint64) Counts {
	c := make(Counts)
	for word, n := range n {
		if n > 0 {
			c[word] = Count{n, at.UTC().Truncate(time.Second)}
		}
	}
	return c
}

// Add adds others to them.
func (c *Counts) Add(more Counts) {
	if *c == nil && len(more) > 0 {
		*c = make(Counts)
	}
	for word, m := range more {
		have := (*c)[word]
		have.N += m.N
		if m.Last.After(have.Last) {
			have.Last = m.Last
		}
		(*c)[word] = have
	}
}

// add encodes them, words rising:
//
//	{opaque word<1..255>; uint64 n, last; (seconds since 1970)} counts<0..2^16-1>
func (c Counts) add(b *cryptobyte.Builder) {
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, word := range slices.Sorted(maps.Keys(c)) {
			b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(word)) })
			b.AddUint64(c[word].N)
			b.AddUint64(uint64(c[word].Last.Unix()))
		}
	})
}

func (c *Counts) read(s *cryptobyte.String) bool {
	var list cryptobyte.String
	if !s.ReadUint16LengthPrefixed(&list) {
		return false
	}
	*c = make(Counts)
	last := ""
	for !list.Empty() {
		var word cryptobyte.String
		var n, at uint64
		if !list.ReadUint8LengthPrefixed(&word) || !list.ReadUint64(&n) || !list.ReadUint64(&at) || string(word) <= last || at >= 1<<40 {
			return false
		}
		last = string(word)
		(*c)[last] = Count{n, time.Unix(int64(at), 0).UTC()}
	}
	return true
}
