package tlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/anonymity/tlog/tlogtest"
)

// A world is a log with two witnesses, both of whom a device wants.
type world struct {
	*tlogtest.Log
	w      []*tlog.Secret
	policy *tlog.Policy
}

func newWorld(t testing.TB) *world {
	w := &world{Log: tlogtest.New(t, "log.example"), w: []*tlog.Secret{tlogtest.Secret(t, "w1", tlog.CosignEd), tlogtest.Secret(t, "w2", tlog.CosignMLDSA)}}
	w.policy = policy(t, w.Log, "group g all w1 w2\nquorum g", w.w...)
	return w
}

// fork is the same log under the same keys, which goes its own way.
func (w *world) fork() *world { return &world{w.Log.Fork(), w.w, w.policy} }

// bundle is that of the last entry, an active set, signed by all at a time.
func (w *world) bundle(t testing.TB, at time.Time, steps ...int64) *tlog.Bundle {
	t.Helper()
	return w.Bundle(t, w.Sign(t, at, w.w...), w.Size()-1, steps...)
}

// period appends a release that no device needs, and the active set of the period that
// begins at an hour, with what holds.
func (w *world) period(t testing.TB, hour int, places ...int64) {
	t.Helper()
	w.Add(t, release(t, int(w.Size())))
	w.Hold(t, at(hour), at(hour+1), places...)
}

func at(hour int) time.Time { return now.Add(time.Duration(hour) * time.Hour) }

// open opens a bundle as a device that has it from a file.
func (w *world) open(t testing.TB, b *tlog.Bundle, m tlog.Memory, now time.Time) (*tlog.Opened, tlog.Memory, error) {
	t.Helper()
	file, err := b.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	read, err := tlog.ReadBundle(file)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := read.Append(nil); err != nil || !bytes.Equal(again, file) {
		t.Fatalf("it has another encoding: %v", err)
	}
	return read.Open(w.policy, m, now, nil)
}

// TestBundle: a device opens what holds, period after period, and remembers it over its
// encoding.
func TestBundle(t *testing.T) {
	w := newWorld(t)
	var m tlog.Memory
	var sizes []int64
	for hour := range 12 {
		var places []int64
		for i := range hour + 1 {
			places = append(places, int64(2*i))
		}
		if hour%3 == 2 {
			places = places[1:]
		}
		w.period(t, hour, places...)
		b := w.bundle(t, at(hour), sizes...)
		o, next, err := w.open(t, b, m, at(hour).Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, p := range o.Entries {
			got = append(got, p.Index)
			if again, err := p.Entry.Append(nil); err != nil || !bytes.Equal(again, w.Entries[p.Index]) || p.Leaf != tlog.LeafHash(again) {
				t.Errorf("entry %d is another", p.Index)
			}
		}
		if !slices.Equal(got, places) || !o.Begin.Equal(at(hour)) || !next.Time.Equal(at(hour)) || next.Checkpoint.Size != w.Size() {
			t.Errorf("hour %d: %v, %+v", hour, got, next.Checkpoint)
		}
		file := next.Append(nil)
		if m, err = tlog.ReadMemory(file); err != nil || !bytes.Equal(m.Append(nil), file) || m.Checkpoint.Text() != next.Checkpoint.Text() {
			t.Fatalf("hour %d: %v", hour, err)
		}
		for i := range file {
			file[i] ^= 1
			if _, err := tlog.ReadMemory(file); !errors.Is(err, tlog.ErrMemory) {
				t.Fatalf("byte %d of the memory changed: %v", i, err)
			}
			file[i] ^= 1
		}
		// The same once more, and the same from a device that has seen nothing.
		for _, m := range []tlog.Memory{m, {}} {
			_, same, err := w.open(t, b, m, at(hour).Add(time.Minute))
			if len(m.Note) == 0 { // it has seen nothing to go on from
				same.Rungs = next.Rungs
			}
			if err != nil || !bytes.Equal(same.Append(nil), next.Append(nil)) {
				t.Errorf("hour %d, again: %v", hour, err)
			}
		}
		sizes = append(sizes, w.Size())
	}
	if _, err := tlog.ReadMemory((&tlog.Memory{}).Append(nil)); err != nil {
		t.Errorf("of nothing: %v", err)
	}
}

// TestHostileLog: a log that shows a device something else is refused, each time by an
// error of its own, and the device goes on with what it has.
func TestHostileLog(t *testing.T) {
	w := newWorld(t)
	w.period(t, 0, 0)
	sizes := []int64{w.Size()}
	before := w.bundle(t, at(0))
	_, early, err := w.open(t, before, tlog.Memory{}, at(0))
	if err != nil {
		t.Fatal(err)
	}
	past := w.fork()
	w.period(t, 1, 0, 2)
	good := w.bundle(t, at(1), sizes...)
	_, m, err := w.open(t, good, early, at(1))
	if err != nil {
		t.Fatal(err)
	}
	split := func(change func(o *world)) *world { // another log from the first size on
		o := past.fork()
		change(o)
		return o
	}
	twin := split(func(o *world) { o.Hold(t, at(1), at(2), 0); o.Add(t, release(t, 9)) }) // of the same size
	// It differs in entry 2, and the set lists the same places.
	sameSet := split(func(o *world) { o.Add(t, release(t, 9)); o.Hold(t, at(1), at(2), 0, 2) })
	shorter := split(func(o *world) { o.Hold(t, at(1), at(2), 0) })
	longer := split(func(o *world) { o.Add(t, release(t, 9)); o.period(t, 1, 0) })
	again := w.fork()
	again.Hold(t, at(1), at(2), 0) // a second set for the period, in the same log
	back := w.fork()
	back.Hold(t, at(0), at(1), 0)
	late := w.fork()
	late.period(t, 30, 0)

	for name, c := range map[string]struct {
		b    *tlog.Bundle
		m    tlog.Memory
		now  time.Time
		want error
		must func(error) bool
	}{
		"a split view of the same size":  {b: twin.Bundle(t, twin.Sign(t, at(1), w.w...), 2), m: m, want: tlog.ErrFork, must: proved(true)},
		"a split view that is longer":    {b: longer.bundle(t, at(1), 4), m: m, want: tlog.ErrFork, must: proved(false)},
		"a split view without a step":    {b: longer.bundle(t, at(1), 2), m: m, want: tlog.ErrGap},
		"a split view with the same set": {b: sameSet.bundle(t, at(1)), m: m, want: tlog.ErrFork, must: proved(true)},
		"a shorter log of this period":   {b: shorter.bundle(t, at(1)), m: m, want: tlog.ErrRolledBack},
		"a rollback":                     {b: past.bundle(t, at(1)), m: m, want: tlog.ErrRolledBack},
		"the old file":                   {b: before, m: m, want: tlog.ErrRolledBack},
		"two sets in one period":         {b: again.bundle(t, at(1), 4), m: m, want: tlog.ErrFork, must: proved(true)},
		"an earlier period":              {b: back.bundle(t, at(1), 4), m: m, want: tlog.ErrRolledBack},
		"a stale cosignature":            {b: w.Bundle(t, w.Sign(t, at(1).Add(-25*time.Hour), w.w...), 3), m: early, now: at(1), want: tlog.ErrStale},
		"the last of a dead log":         {b: good, m: m, now: at(26), want: tlog.ErrStale},
		"one fresh cosignature of two": {b: w.Bundle(t, slices.Concat(w.Sign(t, at(1).Add(-25*time.Hour), w.w[0]), lines(t, w, at(1), w.w[1])), 3), m: early,
			now: at(1), want: tlog.ErrStale},
		"a missing witness":        {b: w.Bundle(t, w.Sign(t, at(1), w.w[0]), 3), m: early, want: tlog.ErrQuorum},
		"no witness":               {b: w.Bundle(t, w.Sign(t, at(1)), 3), m: early, want: tlog.ErrQuorum},
		"a witness's twin":         {b: w.Bundle(t, w.Sign(t, at(1), w.w[0], tlogtest.Secret(t, "w2", tlog.CosignMLDSA)), 3), m: early, want: tlog.ErrQuorum},
		"signed by no log":         {b: w.Bundle(t, unsigned(t, w), 3), m: early, want: tlog.ErrUnsigned},
		"cosigned in the future":   {b: w.Bundle(t, w.Sign(t, at(2), w.w...), 3), m: early, want: tlog.ErrQuorum},
		"an old set kept in front": {b: w.Bundle(t, w.Sign(t, at(3), w.w...), 1), m: early, now: at(3), want: tlog.ErrBundle},
		"a set of the future":      {b: late.bundle(t, at(1), 2), m: early, now: at(1), want: tlog.ErrBundle},
		"a clock put back":         {b: good, m: m, now: at(1).Add(-time.Hour), want: tlog.ErrQuorum}, // cosignatures of the future
		"a clock put back with an old file that holds then": {b: before, m: m, now: at(0), want: tlog.ErrClock},
		"a wrong leaf":  {b: changed(good, func(b *tlog.Bundle) { b.Records[1].Entry = w.Entries[1] }), m: early, want: tlog.ErrBundle},
		"a wrong place": {b: changed(good, func(b *tlog.Bundle) { b.Records[0].Index = 1 }), m: early, want: tlog.ErrBundle},
		"one left out":  {b: changed(good, func(b *tlog.Bundle) { b.Records = b.Records[1:] }), m: early, want: tlog.ErrBundle},
		"no set":        {b: changed(good, func(b *tlog.Bundle) { b.Records = b.Records[:2] }), m: early, want: tlog.ErrBundle},
		"nothing":       {b: changed(good, func(b *tlog.Bundle) { b.Records = nil }), m: early, want: tlog.ErrBundle},
		"one too many": {b: func() *tlog.Bundle {
			x, y := good, w.Bundle(t, w.Sign(t, at(1), w.w...), 1)
			return changed(x, func(b *tlog.Bundle) { b.Records = slices.Concat(b.Records[:1], y.Records[1:], b.Records[1:]) })
		}(), m: early, want: tlog.ErrBundle},
		"a step that proves nothing": {b: changed(good, func(b *tlog.Bundle) { b.Steps[0].Proof[0][0] ^= 1 }), m: early, want: tlog.ErrFork, must: proved(false)},
		"another log":                {b: other(t, w), m: m, want: tlog.ErrUnsigned},
	} {
		if c.now.IsZero() {
			c.now = at(1).Add(time.Minute)
		}
		kept := c.m.Append(nil)
		o, next, err := w.open(t, c.b, c.m, c.now)
		if !errors.Is(err, c.want) || o != nil || c.must != nil && !c.must(err) {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.Equal(next.Append(nil), kept) {
			t.Errorf("%s: the memory has changed", name)
		}
	}
	// Who has no memory is shown the other view once; a device with one is not, and the two
	// notes prove it.
	_, _, err = w.open(t, twin.Bundle(t, twin.Sign(t, at(1), w.w...), 2), m, at(1))
	var fork *tlog.ForkError
	if !errors.As(err, &fork) {
		t.Fatal(err)
	}
	seen, err1 := w.policy.Open(fork.Seen, at(1))
	given, err2 := w.policy.Open(fork.Given, at(1))
	if err1 != nil || err2 != nil || seen.Size != given.Size || seen.Root == given.Root {
		t.Errorf("the evidence proves nothing: %v, %v", err1, err2)
	}
}

func proved(want bool) func(error) bool {
	return func(err error) bool {
		var fork *tlog.ForkError
		return errors.As(err, &fork) && fork.Proved == want && len(fork.Seen) > 0 && len(fork.Given) > 0
	}
}

// lines are the signature lines of a witness.
func lines(t *testing.T, w *world, at time.Time, s *tlog.Secret) []byte {
	b, err := tlog.Cosign(w.Checkpoint(t).Text(), at, s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// unsigned is a checkpoint that witnesses have signed, and the log has not.
func unsigned(t *testing.T, w *world) []byte {
	return slices.Concat([]byte(w.Checkpoint(t).Text()), []byte("\n"), lines(t, w, at(1), w.w[0]), lines(t, w, at(1), w.w[1]))
}

// other is a bundle of a log of another name, which the same witnesses follow.
func other(t *testing.T, w *world) *tlog.Bundle {
	o := &world{tlogtest.New(t, "other.example"), w.w, w.policy}
	o.period(t, 1, 0)
	return o.bundle(t, at(1))
}

// changed is a copy with a change.
func changed(b *tlog.Bundle, change func(*tlog.Bundle)) *tlog.Bundle {
	c := *b
	c.Records = slices.Clone(b.Records)
	c.Steps = nil
	for _, s := range b.Steps {
		c.Steps = append(c.Steps, tlog.Step{Size: s.Size, Proof: slices.Clone(s.Proof)})
	}
	change(&c)
	return &c
}

// TestFurther: a device that was away for longer than the bundle's steps reach gets the
// proof from the log's tiles, and holds it as any other.
func TestFurther(t *testing.T) {
	w := newWorld(t)
	w.period(t, 0, 0)
	_, m, err := w.open(t, w.bundle(t, at(0)), tlog.Memory{}, at(0))
	if err != nil {
		t.Fatal(err)
	}
	fork := w.fork()
	fork.period(t, 1)
	w.period(t, 1, 0)
	w.period(t, 2, 0)
	b := w.bundle(t, at(2))
	from := func(l *world) func(int64, *tlog.Checkpoint) ([]tlog.Hash, error) {
		return func(old int64, c *tlog.Checkpoint) ([]tlog.Hash, error) {
			return tlog.NewTree(c, func(path string) ([]byte, error) {
				tile, err := tlog.ParseTile(path)
				if err != nil {
					return nil, err
				}
				return tile.Hashes(l)
			}).Continue(old)
		}
	}
	if _, next, err := b.Open(w.policy, m, at(2), from(w)); err != nil || next.Checkpoint.Size != w.Size() {
		t.Errorf("%+v, %v", next.Checkpoint, err)
	}
	if _, _, err := b.Open(w.policy, m, at(2), from(fork)); !errors.Is(err, tlog.ErrGap) {
		t.Errorf("from another tree: %v", err)
	}
	if _, _, err := b.Open(w.policy, m, at(2), nil); !errors.Is(err, tlog.ErrGap) {
		t.Errorf("from nowhere: %v", err)
	}
}

// TestBundleSize: one bundle of 1,024 entries under 256 steps names each hash once, and its
// size is one of few.
func TestBundleSize(t *testing.T) {
	w := newWorld(t)
	var steps []int64
	for i := range 1024 {
		w.Add(t, release(t, i))
		if i >= 768 {
			steps = append(steps, w.Size())
		}
	}
	w.Hold(t, at(0), at(1), upTo(1024)...)
	b := w.bundle(t, at(0), steps...)
	file, err := b.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	entries, hashes := 0, make(map[tlog.Hash]bool)
	for _, r := range b.Records {
		entries += len(r.Entry)
		for _, h := range r.Proof {
			hashes[h] = true
		}
	}
	t.Logf("%d bytes: %d of entries, %d different hashes", len(file), entries, len(hashes))
	if len(file) > entries+32*len(hashes)+80_000 {
		t.Errorf("%d bytes for %d of entries and %d hashes", len(file), entries, len(hashes))
	}
	if _, _, err := w.open(t, b, tlog.Memory{}, at(0)); err != nil {
		t.Error(err)
	}
	small := newWorld(t)
	small.period(t, 0, 0)
	one, err := small.bundle(t, at(0)).Append(nil)
	small.period(t, 0, 0, 1, 2)
	two, err2 := small.bundle(t, at(0)).Append(nil)
	if err != nil || err2 != nil || len(one) != len(two) {
		t.Errorf("%d and %d bytes, %v, %v", len(one), len(two), err, err2)
	}
}

// FuzzBundle: one encoding only, and nothing opens but what the log has made.
func FuzzBundle(f *testing.F) {
	w := newWorld(f)
	w.period(f, 0, 0)
	w.period(f, 1, 0, 1)
	b := w.bundle(f, at(1), 1, 2)
	file, err := b.Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file)
	f.Add(file[:len(file)-1])
	f.Add(append(bytes.Clone(file), 0))
	f.Add(slices.Concat(file[:len(file)-1], []byte{1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := tlog.ReadBundle(b)
		if err != nil {
			if !errors.Is(err, tlog.ErrBundle) {
				t.Fatal(err)
			}
			return
		}
		if again, err := x.Append(nil); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%x has another encoding, %v", b, err)
		}
		if o, _, err := x.Open(w.policy, tlog.Memory{}, at(1), nil); err == nil && fmt.Sprint(len(o.Entries)) != "2" {
			t.Fatalf("%x opens", b)
		}
	})
}

// TestBundleBytes: each byte of a bundle counts: changed, it is no bundle or is refused.
func TestBundleBytes(t *testing.T) {
	w := newWorld(t)
	w.period(t, 0, 0)
	_, m, err := w.open(t, w.bundle(t, at(0)), tlog.Memory{}, at(0))
	if err != nil {
		t.Fatal(err)
	}
	w.period(t, 1, 0, 2)
	b := w.bundle(t, at(1), 2)
	if _, _, err := w.open(t, b, m, at(1)); err != nil {
		t.Fatal(err)
	}
	file, err := b.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	// One hash in the place of another would be a second encoding.
	pool := 19 + 3 + len(b.Note) + 4
	twice := bytes.Clone(file)
	copy(twice[pool+32:pool+64], twice[pool:pool+32])
	if _, err := tlog.ReadBundle(twice); !errors.Is(err, tlog.ErrBundle) {
		t.Errorf("a hash twice: %v", err)
	}
	read := 0
	for i := range file {
		if i > 6000 && i%101 != 0 { // the padding
			continue
		}
		file[i] ^= 4
		if b, err := tlog.ReadBundle(file); err == nil {
			read++
			if _, _, err := b.Open(w.policy, m, at(1), nil); err == nil {
				t.Fatalf("byte %d changed, and believed", i)
			}
		}
		file[i] ^= 4
	}
	if read < 1000 {
		t.Errorf("only %d changes could be read at all", read)
	}
}
