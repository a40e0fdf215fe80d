package journal

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

func sample() *Round {
	return &Round{
		Number: 7, Closed: time.Unix(1000, 5), Passed: time.Hour,
		Groups: []Group{{Route{"https://leader.example/", "tasks/x/reports", "m"}, 490_000, 3, 12_000}, {Route{"t", "p", ""}, 0, 1, 1}},
		Claims: []Claim{{Key: [KeySize]byte{1}, Relay: [RelaySize]byte{2}, Prints: []uint64{1, 2, 1 << 63}, IDs: [][IDSize]byte{{9}}}, {}},
		Items:  []Item{{Group: 0, Body: []byte("first")}, {Group: 1}, {Group: 0, Body: bytes.Repeat([]byte{7}, 5000)}},
	}
}

func open(t *testing.T, fsys disk.FS) (*Journal, *Recovered) {
	t.Helper()
	j, found, err := Open(fsys, disk.Sub(fsys, "record"), disk.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	if found.Next == 0 { // new: its first round has the number of the sample
		j.next = sample().Number
		if err := j.writeAll(); err != nil {
			t.Fatal(err)
		}
	}
	return j, found
}

// TestRound: what was logged is found as it was, without its bodies, which are read by
// place; what was removed is gone.
func TestRound(t *testing.T) {
	mem := disktest.NewMem(1)
	j, _ := open(t, mem)
	r := sample()
	bodies := [][]byte{r.Items[2].Body, r.Items[0].Body, {}}
	if err := j.Log(r); err != nil {
		t.Fatal(err)
	}
	j, found := open(t, mem)
	if len(found.Rounds) != 1 || !reflect.DeepEqual(found.Rounds[0].Groups, r.Groups) || !reflect.DeepEqual(found.Rounds[0].Claims, r.Claims) ||
		!found.Rounds[0].Closed.Equal(r.Closed) || found.Rounds[0].Passed != r.Passed || found.Passed != r.Passed || !reflect.DeepEqual(found.Rounds[0].Items, r.Items) {
		t.Errorf("found %+v", found.Rounds)
	}
	got, err := j.Bodies(found.Rounds[0], []int{2, 0, 1})
	if err != nil || !reflect.DeepEqual(got, bodies) {
		t.Errorf("%d bodies, %v", len(got), err)
	}
	if err := j.Remove(r); err != nil {
		t.Fatal(err)
	}
	if _, found := open(t, mem); len(found.Rounds)+found.Damaged != 0 {
		t.Errorf("after the end: %+v", found)
	}
}

// TestDamagedRound: a round of which any byte is another is set aside, kept and counted,
// at each start.
func TestDamagedRound(t *testing.T) {
	r := sample()
	for at := 0; at < 5300; at += 97 {
		mem := disktest.NewMem(1)
		j, _ := open(t, mem)
		fresh := sample()
		if err := j.Log(fresh); err != nil {
			t.Fatal(err)
		}
		f, err := mem.OpenAppend(name(roundPrefix, r.Number))
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1)
		if _, err := f.ReadAt(b, int64(at)); err != nil {
			break
		}
		b[0] ^= 1
		if _, err := f.WriteAt(b, int64(at)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, found := open(t, mem); len(found.Rounds) != 0 || found.Damaged != 1 {
				t.Fatalf("byte %d: %d rounds, %d damaged", at, len(found.Rounds), found.Damaged)
			}
		}
	}
}

// TestBatch: splits and settlements are found as they were, also after the log was
// written anew; a batch is remembered as long as one of its rounds.
func TestBatch(t *testing.T) {
	mem := disktest.NewMem(1)
	j, _ := open(t, mem)
	first, second := sample(), sample()
	second.Number = 8
	for _, r := range []*Round{first, second} {
		if err := j.Log(r); err != nil {
			t.Fatal(err)
		}
	}
	b := &Batch{Number: 3, Route: first.Groups[0].Route, Members: []Member{{7, 0}, {8, 0}}, Pieces: [][]Ref{{{7, 0}, {8, 2}, {8, 0}}, {{7, 2}}}}
	ctx := context.Background()
	if err := j.Cut(ctx, b); err != nil {
		t.Fatal(err)
	}
	if n, err := j.Split(ctx, b, 0); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	if err := j.Settle(ctx, b, 1, nil); err != nil {
		t.Fatal(err)
	}
	for range 3 { // each start writes the log anew
		var found *Recovered
		j, found = open(t, mem)
		want := [][]Ref{{{7, 0}}, nil, {{8, 2}, {8, 0}}}
		if len(found.Batches) != 1 || len(found.Batches[0].Pieces) != 3 {
			t.Fatalf("%+v", found.Batches)
		}
		for i, p := range found.Batches[0].Pieces {
			if len(p) != len(want[i]) || len(p) > 0 && !reflect.DeepEqual(p, want[i]) {
				t.Errorf("piece %d is %v, want %v", i, p, want[i])
			}
		}
	}
	if err := j.Remove(first); err != nil {
		t.Fatal(err)
	}
	j, found := open(t, mem)
	if len(found.Batches) != 1 || len(found.Batches[0].Pieces[0]) != 0 || len(found.Batches[0].Pieces[2]) != 2 {
		t.Errorf("without its first round: %+v", found.Batches)
	}
	if err := j.Remove(second); err != nil {
		t.Fatal(err)
	}
	if _, found := open(t, mem); len(found.Batches) != 0 {
		t.Errorf("without its rounds: %+v", found.Batches)
	}
}

// TestCounts: what was counted, how much time passed, and what routes are known is found
// again, over starts, over the writing anew of the log and after the rounds are gone, and
// nothing is counted twice.
func TestCounts(t *testing.T) {
	mem, ctx := disktest.NewMem(1), context.Background()
	j, _ := open(t, mem)
	first, second := sample(), sample()
	second.Number = 8
	for _, r := range []*Round{first, second} {
		if err := j.Log(r); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Unix(20_000, 7)
	b := &Batch{Number: 3, Route: first.Groups[0].Route, Members: []Member{{7, 0}, {8, 0}}, Pieces: [][]Ref{{{7, 0}, {8, 2}, {8, 0}}, {{7, 2}}}}
	up := &Batch{Number: 4, Route: first.Groups[1].Route, Members: []Member{{7, 1}, {8, 1}}}
	for _, err := range []error{
		j.Cut(ctx, b),
		j.Settle(ctx, b, 1, CountsAt(at, map[string]uint64{"dropped": 1, "taken": 0})),
		j.GiveUp(ctx, up, CountsAt(at.Add(time.Hour), map[string]uint64{"few": 2})),
		j.Settle(ctx, b, 0, CountsAt(at.Add(-time.Hour), map[string]uint64{"dropped": 2, "taken": 1})),
		j.Passed(ctx, 2*time.Hour), j.Passed(ctx, time.Minute), j.Know(ctx, b.Route),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := Counts{"dropped": {3, time.Unix(20_000, 0).UTC()}, "few": {2, time.Unix(23_600, 0).UTC()}, "taken": {1, time.Unix(16_400, 0).UTC()}}
	for life := range 4 { // each start writes the log anew
		j, found := open(t, mem)
		if !reflect.DeepEqual(found.Counts, want) || found.Passed != 2*time.Hour || !reflect.DeepEqual(found.Known, []Route{b.Route}) {
			t.Fatalf("life %d: %+v, %v passed, known %v", life, found.Counts, found.Passed, found.Known)
		}
		if life < 2 && (len(found.Batches) != 2 || !found.Batches[1].GivenUp || len(found.Batches[1].Members) != 2) {
			t.Fatalf("life %d: %+v", life, found.Batches)
		}
		if life == 1 {
			if err := errors.Join(j.Remove(first), j.Remove(second)); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Power is lost between the new file and the end of the old one: both are there.
	j, _ = open(t, mem)
	old := j.file
	kept, err := disk.ReadFile(mem, name(forwardPrefix, old), maxRecord)
	if err != nil {
		t.Fatal(err)
	}
	if _, found := open(t, mem); !reflect.DeepEqual(found.Counts, want) {
		t.Fatalf("%+v", found.Counts)
	}
	if err := disk.WriteFile(mem, name(forwardPrefix, old), kept); err != nil {
		t.Fatal(err)
	}
	if _, found := open(t, mem); !reflect.DeepEqual(found.Counts, want) {
		t.Errorf("with the file before: %+v", found.Counts)
	}
}

// summed is the content of a round with its checksum, in the state of zeros.
func summed(content []byte) []byte {
	sum := sha256.Sum256(append(make([]byte, 32), content...))
	return append(content, sum[:]...)
}

// encoded is the file of a round.
func encoded(t testing.TB, r *Round) []byte {
	t.Helper()
	b, err := r.head()
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Items {
		b = append(b, r.Items[i].Body...)
	}
	return summed(b)
}

// FuzzRound: a file is refused as malformed, or is the one encoding of what it says.
func FuzzRound(f *testing.F) {
	f.Add(encoded(f, sample())[len(roundMagic):])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, rest []byte) {
		file := summed(append([]byte(roundMagic), rest...))
		r, err := readRound([32]byte{}, file)
		if err != nil {
			if !errors.Is(err, errRound) {
				t.Error(err)
			}
			return
		}
		for i := range r.Items {
			it := &r.Items[i]
			it.Body = file[it.offset : it.offset+it.size]
		}
		if !bytes.Equal(encoded(t, r), file) {
			t.Error("another encoding of the same round")
		}
	})
}

// FuzzRecords: claims and batches have one encoding each, and no record does harm.
func FuzzRecords(f *testing.F) {
	r := sample()
	claim, err := r.Claims[0].Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	batch, err := (&Batch{Number: 1, Route: Route{"a", "b", "c"}, Members: []Member{{7, 0}}, Pieces: [][]Ref{{{7, 0}, {7, 1}}}}).append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(claim)
	f.Add(batch)
	f.Add(appendSplit(1, 0))
	settled, err := appendSettle(1, 0, CountsAt(time.Unix(5, 0), map[string]uint64{"a": 1, "b": 2}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(settled)
	givenUp, err := appendGivenUp(&Batch{Number: 1, Members: []Member{{7, 0}}, GivenUp: true}, CountsAt(time.Unix(5, 0), map[string]uint64{"few": 1}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(givenUp)
	totals, err := appendTotals(time.Hour, CountsAt(time.Unix(5, 0), map[string]uint64{"taken": 3}), 9, []uint64{2, 7})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(totals)
	f.Add(appendPassed(time.Hour))
	f.Add(appendOpened(Opened{Key: [KeySize]byte{1}, Records: 2}))
	ended, err := appendEnded(7, []Opened{{Key: [KeySize]byte{1}, Records: 2}, {}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(ended)
	known, err := appendKnown(Route{"a", "b", "c"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(known)
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := ReadClaim(b); err == nil {
			if again, err := c.Append(nil); err != nil || !bytes.Equal(again, b) {
				t.Errorf("a claim becomes %x, %v", again, err)
			}
		}
		l := newPlayed()
		if err := l.play(b); err != nil {
			return
		}
		for _, x := range l.batches {
			again, err := x.append(nil)
			if x.GivenUp {
				again, err = appendGivenUp(x, l.counts)
			}
			if err != nil || !bytes.Equal(again, b) {
				t.Errorf("a batch becomes %x, %v", again, err)
			}
		}
		if b[0] == kindTotals {
			if again, err := appendTotals(l.passed, l.counts, l.next, slices.Sorted(maps.Keys(l.live))); err != nil || !bytes.Equal(again, b) {
				t.Errorf("totals become %x, %v", again, err)
			}
		}
	})
}
