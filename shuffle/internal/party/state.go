package party

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/wire"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/shuffle/onion"
)

// Names of files. Those of a round are in a directory of its own.
const (
	stateFile    = "state"
	roundsDir    = "rounds"
	resultsDir   = "results"
	keyFile      = "key"
	beforeFile   = "before"   // the signed manifest of the batch that comes
	takenFile    = "taken"    // it is whole
	outFile      = "out"      // records in their order
	manifestFile = "manifest" // of them; the commit

	stateMagic = "starling shuffle state v1\n"
	takenMagic = "starling shuffle batch taken v1\n"
	maxState   = 1 << 20
	// maxTaken is of how many past batches a party knows that it took them.
	maxTaken = 1024
)

// A StateError: what is on the disk is not whole, and no loss of power leaves it so.
type StateError struct{ What string }

func (e *StateError) Error() string { return "shuffle: the directory is damaged: " + e.What }

// Outcomes of rounds: a closed set.
const (
	Delivered = "delivered" // the next party has signed for the batch
	Tallied   = "tallied"   // the result is there
	Few       = "few"       // below the least batch
	None      = "none"      // no contribution, or no batch, came
	Expired   = "expired"   // the next party did not take the batch
)

// Outcomes lists them.
func Outcomes() []string { return []string{Delivered, Tallied, Few, None, Expired} }

// Totals are those of all rounds that have ended, over all starts.
type Totals struct {
	// Rounds, by outcome.
	Rounds map[string]uint64 `json:"rounds"`
	// Contributions and Messages went on, or into results.
	Contributions uint64 `json:"contributions"`
	Messages      uint64 `json:"messages"`
	// Refused are contributions that did not open.
	Refused uint64 `json:"refused"`
	// LeftOver are contributions, or of a batch messages, of rounds that did not go on.
	LeftOver uint64 `json:"left_over"`
	// Dropped are messages that did not open here, Doubled those that came again.
	Dropped uint64 `json:"dropped"`
	Doubled uint64 `json:"doubled"`
}

// a taken batch, by the digest of its manifest.
type taken struct {
	round  uint64
	digest [32]byte
}

// a gap is rounds from one to another, both of them in it.
type gap struct{ from, to uint64 }

// maxGaps bounds how many are remembered; rounds of older ones get no key any more.
const maxGaps = 64

// state is what a recipe's directory says of rounds.
type state struct {
	next   uint64   // no round from here on has had a key
	gaps   []gap    // of those before it, the ones that have not either: where a clock had jumped
	ending []uint64 // rounds that have ended, and whose files may be there
	totals Totals
	taken  []taken
}

func (x *state) code(c *wire.Coder) {
	c.Const(stateMagic, "no state of a shuffle of version 1")
	c.Uint64(&x.next, "next round")
	c.Nested24("gaps", func() {
		wire.Items(c, &x.gaps, func(_ int, g *gap) {
			c.Uint64(&g.from, "first round")
			c.Uint64(&g.to, "last round")
		})
	})
	c.Nested24("ended rounds", func() {
		wire.Items(c, &x.ending, func(_ int, n *uint64) { c.Uint64(n, "round") })
	})
	for _, o := range Outcomes() {
		n := x.totals.Rounds[o]
		if c.Uint64(&n, o); !c.Writing() {
			if x.totals.Rounds == nil {
				x.totals.Rounds = make(map[string]uint64)
			}
			x.totals.Rounds[o] = n
		}
	}
	for _, n := range []*uint64{&x.totals.Contributions, &x.totals.Messages, &x.totals.Refused, &x.totals.LeftOver, &x.totals.Dropped, &x.totals.Doubled} {
		c.Uint64(n, "total")
	}
	wire.Items(c, &x.taken, func(_ int, t *taken) {
		c.Uint64(&t.round, "round")
		c.Fixed(t.digest[:], "digest")
	})
}

// had says whether a round has had a key.
func (x *state) had(n uint64) bool {
	return n < x.next && !slices.ContainsFunc(x.gaps, func(g gap) bool { return g.from <= n && n <= g.to })
}

// mark notes that a round has a key.
func (x *state) mark(n uint64) {
	var gaps []gap
	add := func(from, to uint64) { // not where to is before from, nor before the first round of all
		if from < to {
			gaps = append(gaps, gap{from, to - 1})
		}
	}
	for _, g := range x.gaps {
		if n < g.from || n > g.to {
			gaps = append(gaps, g)
			continue
		}
		add(g.from, n)
		add(n+1, g.to+1)
	}
	if n >= x.next && x.next > 0 {
		add(x.next, n)
	}
	x.gaps, x.next = gaps[max(0, len(gaps)-maxGaps):], max(x.next, n+1)
}

func (x *state) clone() *state {
	y := *x
	y.gaps = slices.Clone(x.gaps)
	y.ending, y.taken, y.totals.Rounds = slices.Clone(x.ending), slices.Clone(x.taken), maps.Clone(x.totals.Rounds)
	if y.totals.Rounds == nil {
		y.totals.Rounds = make(map[string]uint64)
	}
	return &y
}

func (x *state) save(fsys disk.FS) error {
	return disk.WriteFile(fsys, stateFile, wire.AppendSum(wire.MustAppend(nil, x.code), 0))
}

var errDamaged = errors.New("damaged")

// readState reads the state, or begins one.
func readState(fsys disk.FS) (*state, error) {
	b, err := disk.ReadFile(fsys, stateFile, maxState)
	if errors.Is(err, fs.ErrNotExist) {
		return &state{}, nil
	}
	if err != nil {
		return nil, err
	}
	x := &state{}
	content, ok := wire.CutSum(b)
	if ok {
		err = wire.Read(content, errDamaged, x.code)
	}
	if !ok || err != nil {
		return nil, &StateError{stateFile}
	}
	return x, nil
}

// exists says whether a file is there.
func exists(fsys disk.FS, name string) (bool, error) {
	_, err := fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// openShuffle reads what a party has of a shuffle, and goes on with what a loss of power
// stopped.
func (p *Party) openShuffle(s Shuffle) error {
	dir := hex.EncodeToString(s.Recipe[:])
	for _, sub := range []string{roundsDir, resultsDir} {
		if err := disk.MakeDirs(p.o.FS, path.Join(dir, sub)); err != nil {
			return err
		}
	}
	x := &shuffle{Shuffle: s, fs: disk.Sub(p.o.FS, dir), rounds: make(map[uint64]*round), counts: make(map[string]uint64)}
	p.shuffles[s.Recipe] = x
	var err error
	if x.state, err = readState(x.fs); err != nil {
		return err
	}
	entries, err := x.fs.ReadDir(roundsDir)
	if err != nil {
		return err
	}
	next := x.state.clone()
	next.ending = nil
	found := false
	for _, e := range entries {
		n, err := strconv.ParseUint(e.Name, 10, 64)
		if err != nil || !e.Dir || strconv.FormatUint(n, 10) != e.Name {
			return &StateError{path.Join(dir, roundsDir, e.Name)}
		}
		if slices.Contains(x.state.ending, n) {
			if err := removeRound(x.fs, n); err != nil {
				return err
			}
			continue
		}
		r, err := p.openRound(x, n)
		if err != nil {
			if r != nil && r.log != nil {
				r.log.close() // nothing was appended
			}
			return fmt.Errorf("%s, round %d: %w", dir[:8], n, err)
		}
		if r != nil {
			x.rounds[n] = r
			if !x.state.had(n) { // power was lost before that was noted
				next.mark(n)
				found = true
			}
		}
	}
	if found || len(x.state.ending) > 0 {
		if err := next.save(x.fs); err != nil {
			return err
		}
		x.state = next
	}
	return nil
}

func roundDir(n uint64) string { return path.Join(roundsDir, strconv.FormatUint(n, 10)) }

// removeRound destroys all that there is of a round.
func removeRound(fsys disk.FS, n uint64) error {
	dir := roundDir(n)
	sub := disk.Sub(fsys, dir)
	if err := destroyInput(sub); err != nil {
		return err
	}
	entries, err := sub.ReadDir(".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := disk.Remove(sub, e.Name); err != nil {
			return err
		}
	}
	return disk.Remove(fsys, dir)
}

// destroyInput destroys the key of a round, and all that came in.
func destroyInput(sub disk.FS) error {
	there, err := exists(sub, keyFile)
	if err == nil && there {
		err = disk.Shred(sub, keyFile, nil)
	}
	if err != nil {
		return err
	}
	if err := disk.Remove(sub, scratchFile, takenFile, beforeFile); err != nil {
		return err
	}
	return removeSegments(sub)
}

// openRound reads a round that has not ended; nil where its key was never in use.
func (p *Party) openRound(x *shuffle, n uint64) (*round, error) {
	r := &round{shuffle: x, number: n, fs: disk.Sub(x.fs, roundDir(n))}
	entries, err := r.fs.ReadDir(".")
	if err != nil {
		return nil, err
	}
	there := make(map[string]bool)
	for _, e := range entries {
		there[e.Name] = true
		if strings.HasSuffix(e.Name, ".tmp") {
			if err := disk.Remove(r.fs, e.Name); err != nil {
				return nil, err
			}
		}
	}
	if there[manifestFile] {
		if r.manifest, err = disk.ReadFile(r.fs, manifestFile, onion.MaxManifest); err != nil {
			return nil, err
		}
		if r.out, _, err = onion.OpenManifest(r.manifest, &x.Shuffle.Shuffle, p.o.Role, n); err != nil {
			return nil, err
		}
		r.closed = true // whatever the clock says now
		return r, destroyInput(r.fs)
	}
	if !there[keyFile] {
		if x.state.had(n) {
			return nil, &StateError{"the key is missing"}
		}
		return nil, removeRound(x.fs, n)
	}
	if err := disk.Remove(r.fs, scratchFile, outFile); err != nil {
		return nil, err
	}
	if p.o.gathers() && x.state.had(n) && !there[segmentName(0)] {
		return nil, &StateError{"the contributions are missing"}
	}
	file, err := disk.ReadFile(r.fs, keyFile, 4<<10)
	if err == nil {
		r.key, err = sealed.ParseKeyPair(file)
		clear(file)
	}
	if err != nil {
		return nil, err
	}
	if p.o.gathers() {
		r.seen = make(map[digest]struct{})
		r.log, err = openSegments(r.fs, disk.LogOptions{Failpoints: p.o.Failpoints}, func(b []byte) error {
			size := x.Shape(n).Record(p.o.Role)
			if len(b)%size != 0 {
				return &StateError{"a record that is no envelopes"}
			}
			r.input.Add(int64(len(b)))
			for ; len(b) > 0; b = b[size:] {
				r.seen[digestOf(b[:size])] = struct{}{}
			}
			return nil
		})
		return r, err
	}
	return r, p.openInbox(r, there[beforeFile], there[takenFile])
}
