package round

import (
	"bytes"
	"errors"
	"testing"

	"github.com/starling-agg/starling/fl/optimizer"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/internal/wire"
)

// FuzzFiles: what is read of a journal, a state or a sum is written as the same bytes.
func FuzzFiles(f *testing.F) {
	for _, e := range []event{
		{kind: created, session: session.Hash{1}, state: session.Hash{2}, batch: 1},
		{kind: announced, announced: session.Announcement{Session: session.Hash{1}, Index: 1, Round: 9, Previous: session.Hash{3}}},
		{kind: collected, index: 1, reports: 7, sum: session.Hash{4}},
		{kind: skipped, index: 2, why: uint8(Unavailable)},
		{kind: stepped, index: 1, last: 2, state: session.Hash{5}},
		{kind: given, state: session.Hash{6}},
	} {
		b, err := wire.Append(nil, ErrJournal, e.code)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	t := training{clip: 0.5, parameters: []float64{1, 2}, optimizer: optimizer.State{Steps: 3, First: []float64{1, 2}}, mean: []float64{0, 1}, averaged: 2}
	f.Add(t.append(nil))
	f.Add(appendSum([]float64{1, -2}))
	f.Fuzz(func(t *testing.T, b []byte) {
		e := new(event)
		if err := wire.Read(b, ErrJournal, e.code); err == nil {
			if again, err := wire.Append(nil, ErrJournal, e.code); err != nil || !bytes.Equal(again, b) {
				t.Errorf("event %x became %x, %v", b, again, err)
			}
		} else if !errors.Is(err, ErrJournal) {
			t.Error(err)
		}
		if x, err := readTraining(b); err == nil {
			if again := x.append(nil); !bytes.Equal(again, b) {
				t.Errorf("state %x became %x", b, again)
			}
		}
		if x, err := readSum(b); err == nil {
			if again := appendSum(x); !bytes.Equal(again, b) {
				t.Errorf("sum %x became %x", b, again)
			}
		}
	})
}

// TestImpossible: a journal in which events stand that cannot have happened is refused.
func TestImpossible(t *testing.T) {
	at := func(i uint32, round uint64, before *session.Announcement) session.Announcement {
		a := session.Announcement{Session: session.Hash{1}, Index: i, Round: round}
		if before != nil {
			a.Previous = before.Hash()
		}
		return a
	}
	first := at(0, 5, nil)
	second := at(1, 6, &first)
	begin := event{kind: created, session: session.Hash{1}, batch: 1}
	one, two := event{kind: announced, announced: first}, event{kind: announced, announced: second}
	sum := event{kind: collected, index: 0}
	step := event{kind: stepped}
	for name, list := range map[string][]event{
		"nothing before":        {one},
		"begun twice":           {begin, begin},
		"another training":      {{kind: created, session: session.Hash{9}, batch: 1}},
		"no batch":              {{kind: created, session: session.Hash{1}}},
		"announced twice":       {begin, one, one},
		"one left out":          {begin, two},
		"another past":          {begin, one, {kind: announced, announced: at(1, 6, &second)}},
		"an earlier round":      {begin, one, {kind: announced, announced: at(1, 5, &first)}},
		"collected twice":       {begin, one, sum, sum},
		"collected and skipped": {begin, one, sum, {kind: skipped, index: 0, why: 1}},
		"collected too early":   {begin, sum},
		"stepped twice":         {begin, one, sum, step, step},
		"stepped too early":     {begin, one, step},
		"a step of two":         {begin, one, two, sum, {kind: collected, index: 1}, {kind: stepped, last: 1}},
		"a step backwards":      {begin, one, two, sum, {kind: collected, index: 1}, step, {kind: stepped, index: 1, last: 0}},
	} {
		b := &book{session: session.Hash{1}}
		var err error
		for i := range list {
			if err = b.apply(&list[i]); err != nil && i < len(list)-1 {
				t.Errorf("%s: event %d: %v", name, i, err)
			}
		}
		if !errors.Is(err, ErrJournal) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
