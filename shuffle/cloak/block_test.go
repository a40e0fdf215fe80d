package cloak_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/starling-agg/starling/shuffle/cloak"
	"github.com/starling-agg/starling/shuffle/cloak/cloaktest"
)

// oneHot is of a histogram of 13 buckets.
func oneHot(block int) cloak.Options {
	return cloak.Options{Users: 300, Precision: 1, Entries: 13, Changed: 2, Moved: 2, Block: block, Epsilon: 1, Delta: 1e-6}
}

// Sums are right whatever the block that entries are sent in: 13 counts of 300 users, in
// blocks of which the last is shorter, are off by no more than Laplace noise of scale 2 is
// with probability 1 - 10^-7 (seeds are fixed).
func TestBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, block := range []int{1, 2, 5, 12, 13} {
		p := cloaktest.Seeded(params(t, cloak.Modern, oneHot(block)), [32]byte{7, byte(block)})
		if want := (13 + block - 1) / block; p.Blocks() != want {
			t.Fatalf("%d blocks of %d, want %d", p.Blocks(), block, want)
		}
		var all []cloak.Message
		want := make([]int64, 13)
		for range 300 {
			units := make([]uint64, 13)
			at := rng.IntN(13) * rng.IntN(13) / 13
			units[at] = 1
			want[at]++
			messages, err := p.EncodeUnits(units)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, messages...)
		}
		if len(all) != 300*p.Blocks()*p.Messages() {
			t.Fatalf("block %d: %d messages, want %d each of %d blocks", block, len(all), p.Messages(), p.Blocks())
		}
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		got, err := p.Analyze(all)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range got {
			if off := e.Units - want[i]; math.Abs(float64(off)) > 2*math.Log(13e7) {
				t.Errorf("block %d: entry %d is off by %d", block, i, off)
			}
		}
		var count *cloak.CountError
		if _, err := p.Analyze(all[1:]); !errors.As(err, &count) || count.Block != 0 && int(all[0].Block) != count.Block {
			t.Errorf("block %d, one message lost: %v", block, err)
		}
	}
}

// What is charged is what changes: the noise of a histogram is that of two counts, however
// many there are; larger blocks have fewer messages in all and more each; and by the paper's
// own theorems there are none.
func TestCharged(t *testing.T) {
	all, each := math.MaxInt, 0
	for _, block := range []int{1, 3, 13} {
		p := params(t, cloak.Modern, oneHot(block))
		if math.Abs(300*p.Variance()-8) > 0.2 {
			t.Errorf("block %d: variance %v of a sum, want about 8", block, 300*p.Variance())
		}
		if n := p.Messages() * p.Blocks(); n >= all || p.Messages() <= each {
			t.Errorf("block %d: %d messages of each of %d blocks, after %d in all and %d of each", block, p.Messages(), p.Blocks(), all, each)
		} else {
			all, each = n, p.Messages()
		}
	}
	box := oneHot(1)
	box.Changed, box.Moved = 0, 0
	if p := params(t, cloak.Modern, box); math.Abs(300*p.Variance()/(2*13*13)-1) > 0.02 {
		t.Errorf("13 entries that may all change: variance %v", 300*p.Variance())
	}
	var out *cloak.RangeError
	for name, construct := range constructors {
		if _, err := construct(oneHot(2)); name != "modern" && !errors.As(err, &out) {
			t.Errorf("%s: messages of two entries: %v", name, err)
		}
	}
	// Of the same sums everything may change, and of one user two entries.
	if a, b := params(t, cloak.SumPreserving, oneHot(1)), params(t, cloak.SumPreserving, box); a.Messages() != b.Messages() {
		t.Errorf("%d and %d messages for changes of all users' values", a.Messages(), b.Messages())
	}
	if a, b := params(t, cloak.SingleUser, oneHot(1)), params(t, cloak.SingleUser, box); !(a.RMS() < b.RMS()/6) {
		t.Errorf("errors %v and %v by theorem 1", a.RMS(), b.RMS())
	}
}
