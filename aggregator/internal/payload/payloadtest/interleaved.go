package payloadtest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/payload"
)

// fate is what is known of one name, whose content is a function of it.
type fate struct {
	tried   bool // a put was called
	there   bool // a put succeeded, or a handle saw it
	unsure  bool // a put failed, and may yet happen
	dying   bool // a delete was called
	deleted bool // a delete succeeded
}

// may says whether the object may be there, and must whether it has to.
func (f *fate) may() bool  { return f.tried && (!f.deleted || f.unsure) }
func (f *fate) must() bool { return f.there && !f.dying }

// testInterleaved: two handles put, delete, read and list by a seed, with faults between
// them and the store. What was acknowledged is there, until it is deleted; what is there
// is whole; nothing is there that nobody put; and when the faults are over, all that
// still is not known to be there can be kept.
func testInterleaved(t *testing.T, a, b payload.Store) {
	for seed := range uint64(8) {
		interleave(t, seed, a, b)
	}
}

func interleave(t *testing.T, seed uint64, a, b payload.Store) {
	rng := rand.New(rand.NewPCG(seed, 1))
	faults := NewFaults(seed)
	faults.Rates(map[Fault]float64{Refused: 0.06, Silent: 0.06, Late: 0.06, Full: 0.03, Denied: 0.03})
	handles := []payload.Store{faults.Wrap(a), faults.Wrap(b)}
	folder := fmt.Sprintf("seed-%d/", seed)
	fates := make(map[string]*fate)
	var names []string
	for i := range 12 {
		name := fmt.Sprintf("%s%x/%d.obj", folder, i%3, i)
		names = append(names, name)
		fates[name] = new(fate)
	}
	slices.Sort(names)
	of := func(name string) []byte { return content(name, 100+len(name)%7) }
	saw := func(name string, is bool) {
		f := fates[name]
		switch {
		case is && !f.may():
			t.Fatalf("seed %d: %s is there: %+v", seed, name, *f)
		case !is && f.must():
			t.Fatalf("seed %d: %s is not there: %+v", seed, name, *f)
		case is:
			f.there = true
		}
	}
	put := func(s payload.Store, name string, put func(payload.Store, string) error) {
		f := fates[name]
		f.tried = true
		switch err := put(s, name); {
		case err == nil:
			f.there = true
		case errors.Is(err, payload.ErrExists):
			saw(name, true)
		default:
			f.unsure = true
		}
	}
	seeing := func(s payload.Store, name string) {
		got, err := whole(t.Context(), s, name)
		switch {
		case err == nil && !bytes.Equal(got, of(name)):
			t.Fatalf("seed %d: %s has %d bytes, not those that were put", seed, name, len(got))
		case err == nil:
			saw(name, true)
		case errors.Is(err, payload.ErrNotFound):
			saw(name, false)
		}
	}
	listing := func(s payload.Store) {
		n := 1 + rng.IntN(len(names))
		page, err := s.List(t.Context(), folder, "", n)
		if err != nil {
			return
		}
		listed := make(map[string]bool)
		for _, o := range page {
			listed[o.Name] = true
		}
		for _, name := range names {
			if len(page) < n || name <= page[n-1].Name {
				saw(name, listed[name])
			}
		}
	}
	for range 120 {
		s, name := handles[rng.IntN(2)], names[rng.IntN(len(names))]
		f := fates[name]
		switch rng.IntN(6) {
		case 0, 1:
			if !f.dying { // no name is used again
				put(s, name, func(s payload.Store, name string) error { return s.Put(t.Context(), name, of(name)) })
			}
		case 2:
			if !f.dying {
				put(s, name, func(s payload.Store, name string) error { return payload.Keep(t.Context(), s, name, of(name)) })
			}
		case 3:
			if f.tried && rng.IntN(3) == 0 {
				f.dying = true
				if s.Delete(t.Context(), name) == nil {
					f.deleted = true
				}
			}
		case 4:
			seeing(s, name)
		case 5:
			listing(s)
		}
	}
	faults.Calm()
	for _, name := range names {
		s := handles[rng.IntN(2)]
		if f := fates[name]; f.dying {
			must(t, s.Delete(t.Context(), name))
			*f = fate{}
		} else {
			must(t, payload.Keep(t.Context(), s, name, of(name)))
			*f = fate{tried: true, there: true}
		}
	}
	for _, s := range []payload.Store{a, b} {
		for _, name := range names {
			seeing(s, name)
		}
		listing(s)
	}
}
