// Package tlogtest makes logs in memory for tests, honest ones and others.
package tlogtest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/tlog"
	merkle "golang.org/x/mod/sumdb/tlog"
)

// A Log is a log in memory, with its key. Copies by [Log.Fork] share nothing.
type Log struct {
	Key     *tlog.Secret
	Entries [][]byte
	hashes  []tlog.Hash // as x/mod stores them
}

// New makes an empty log of a name.
func New(t testing.TB, name string) *Log { return &Log{Key: Secret(t, name, tlog.Ed25519)} }

// Secret makes a key.
func Secret(t testing.TB, name string, scheme tlog.Scheme) *tlog.Secret {
	t.Helper()
	s, err := tlog.Generate(name, scheme)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Fork is a second log under the same key, which goes its own way.
func (l *Log) Fork() *Log { return &Log{l.Key, slices.Clone(l.Entries), slices.Clone(l.hashes)} }

// ReadHashes implements the reader of x/mod.
func (l *Log) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	all := make([]tlog.Hash, len(indexes))
	for i, x := range indexes {
		if x >= int64(len(l.hashes)) {
			return nil, fmt.Errorf("no hash %d", x)
		}
		all[i] = l.hashes[x]
	}
	return all, nil
}

// Size is the number of entries.
func (l *Log) Size() int64 { return int64(len(l.Entries)) }

// Add appends an entry and returns its place.
func (l *Log) Add(t testing.TB, e tlog.Entry) int64 {
	t.Helper()
	b, err := e.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return l.Append(t, b)
}

// Append appends an entry of any bytes and returns its place.
func (l *Log) Append(t testing.TB, b []byte) int64 {
	t.Helper()
	more, err := merkle.StoredHashes(l.Size(), b, l)
	if err != nil {
		t.Fatal(err)
	}
	l.hashes = append(l.hashes, more...)
	l.Entries = append(l.Entries, b)
	return l.Size() - 1
}

// Hold appends the active set of a period.
func (l *Log) Hold(t testing.TB, begin, end time.Time, places ...int64) int64 {
	t.Helper()
	e, err := (&tlog.Active{Begin: begin, End: end, Entries: places}).Entry()
	if err != nil {
		t.Fatal(err)
	}
	return l.Add(t, e)
}

// Checkpoint is the unsigned one of now.
func (l *Log) Checkpoint(t testing.TB) *tlog.Checkpoint {
	t.Helper()
	root, err := merkle.TreeHash(l.Size(), l)
	if err != nil {
		t.Fatal(err)
	}
	return &tlog.Checkpoint{Origin: l.Key.Key().Name(), Size: l.Size(), Root: root}
}

// Sign is the signed checkpoint of now, with cosignatures of a time by witnesses that look
// at nothing.
func (l *Log) Sign(t testing.TB, at time.Time, witnesses ...*tlog.Secret) []byte {
	t.Helper()
	c := l.Checkpoint(t)
	note, err := c.Sign(l.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range witnesses {
		more, err := tlog.Cosign(c.Text(), at, w)
		if err != nil {
			t.Fatal(err)
		}
		note = append(note, more...)
	}
	return note
}

// Bundle is the bundle of an active set, under a signed checkpoint of now, with steps from
// sizes before.
func (l *Log) Bundle(t testing.TB, note []byte, active int64, steps ...int64) *tlog.Bundle {
	t.Helper()
	e, err := tlog.ReadEntry(l.Entries[active])
	if err != nil {
		t.Fatal(err)
	}
	a, err := tlog.ReadActive(e)
	if err != nil {
		t.Fatal(err)
	}
	b, err := tlog.MakeBundle(note, l.Size(), steps, append(a.Entries, active), func(i int64) ([]byte, error) { return l.Entries[i], nil }, l)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
