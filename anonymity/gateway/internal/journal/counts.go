package journal

import (
	"maps"
	"slices"
	"time"

	"github.com/starling-agg/starling/internal/wire"
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

// code reads and writes them, words rising:
//
//	{opaque word<1..255>; uint64 n, last; (seconds since 1970)} counts<0..2^16-1>
func (c *Counts) code(w *wire.Coder) {
	type entry struct {
		word string
		Count
	}
	var list []entry
	for _, word := range slices.Sorted(maps.Keys(*c)) {
		list = append(list, entry{word, (*c)[word]})
	}
	w.Nested16("counts", func() {
		wire.Items(w, &list, func(i int, e *entry) {
			w.Text8(&e.word, "word")
			w.Uint64(&e.N, "count")
			w.Seconds(&e.Last, "time of a count")
			w.CheckRead(e.word != "" && (i == 0 || list[i-1].word < e.word), "words do not rise")
		})
	})
	if w.Writing() || w.Err() != nil {
		return
	}
	*c = make(Counts)
	for _, e := range list {
		(*c)[e.word] = e.Count
	}
}
