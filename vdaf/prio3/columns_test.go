package prio3

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/vdaftest"
)

// memberOf is the i-th of some measurements: all values of all groups.
func memberOf(v *Columns, i int) Member {
	return Member{i % v.outLen, valueAt(i/v.outLen%(2*v.m), v.m)}
}

// tableOf is the table of a nonce, by exchanging columns in a list, row by row.
func tableOf(v *Columns, nonce *[vdaf.NonceSize]byte) (table [][]int) {
	for g := range v.outLen {
		draws := make([]uint64, 2*v.m)
		v.draw(testCtx, nonce, g, draws)
		row := make([]int, 2*v.m)
		for column := range row {
			at := uint64(column)
			for i := uint64(1); i < uint64(2*v.m); i++ {
				switch at {
				case i:
					at = draws[i]
				case draws[i]:
					at = i
				}
			}
			row[column] = valueAt(int(at), v.m)
		}
		table = append(table, row)
	}
	return table
}

// columnsFixture has want compute what the tables say of the true columns.
func columnsFixture(v *Columns, b func() *batch) fixture {
	return fixture{"Columns", v, func(i int, nonce *[16]byte) (*vdaf.Shares, error) {
		return v.Shard(testCtx, memberOf(v, i), nonce)
	}, func(n int) []int64 {
		sum := make([]int64, v.outLen)
		for i := range n {
			table, of := tableOf(v, &b().in[0].Nonces[i]), memberOf(v, i)
			column := slices.Index(table[of.Group], of.Value)
			for g := range sum {
				sum[g] += int64(table[g][column])
			}
		}
		return sum
	}}
}

// TestColumnsRoundTrip: the result is for each group the sum of what the true columns hold
// in its row, and every row is a permutation of all values.
func TestColumnsRoundTrip(t *testing.T) {
	for _, c := range []struct{ shares, groups, m, chunk, reports int }{{2, 1, 1, 1, 8}, {2, 2, 1, 2, 12}, {3, 4, 2, 3, 30}, {2, 3, 10, 5, 60}, {2, 100, 3, 6, 20}} {
		v := must(NewColumns(c.shares, c.groups, c.m, c.chunk))
		var b *batch
		f := columnsFixture(v, func() *batch { return b })
		b = newBatch(t, f, c.reports)
		b.init()
		aggs := b.finish()
		if err := errors.Join(b.errs...); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		got, err := v.Unshard(aggs)
		if want := f.want(c.reports); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%+v: %d, %v; want %d", c, got, err, want)
		}
		for _, row := range tableOf(v, &b.in[0].Nonces[0]) {
			if slices.Sort(row); !slices.IsSorted(row) || slices.Contains(row, 0) || len(slices.Compact(row)) != 2*c.m {
				t.Fatalf("%+v: a row of %d", c, row)
			}
		}
		if z := v.Sizes(); z.OutLen != c.groups || z.AggShare != 16*c.groups {
			t.Errorf("%+v: %+v", c, z)
		}
	}
}

// TestColumnsEstimate: over 1,500 tables the mean of what one device's column holds is its
// value in its own row, always, and in another's uniform: no value's count is 5.5
// deviations off, which of 4 fair ones happens once in 6 million. So a sum is without bias, and its
// error that of the other groups' devices: their number times (m+1)(2m+1)/6.
func TestColumnsEstimate(t *testing.T) {
	const n = 1500
	v := must(NewColumns(2, 3, 2, 2))
	counts := make(map[int]int)
	for i := range n {
		var nonce [vdaf.NonceSize]byte
		binary.LittleEndian.PutUint64(nonce[:], uint64(i))
		table := tableOf(v, &nonce)
		counts[table[2][slices.Index(table[1], -1)]]++
	}
	for value, x := range counts {
		if off := math.Abs(float64(x)-n/4) / math.Sqrt(n*3./16); off > 5.5 || len(counts) != 4 {
			t.Errorf("%d stands beside -1 in %d of %d tables", value, x, n)
		}
	}
	// The sums of 40 batches of 30 devices in two groups, whose errors have variance 15 T.
	wide := must(NewColumns(2, 2, 3, 3))
	squares, runs := 0.0, 40
	for run := range runs {
		f := fixture{"Columns", wide, func(i int, nonce *[16]byte) (*vdaf.Shares, error) {
			return wide.Shard(append([]byte{byte(run)}, testCtx...), Member{i % 2, 1 + i%3}, nonce)
		}, nil}
		b := newBatch(t, f, 30)
		key := [vdaf.VerifyKeySize]byte{1}
		states, shares := []vdaf.State{wide.NewState(30), wide.NewState(30)}, make([][]byte, 2)
		ctx := append([]byte{byte(run)}, testCtx...)
		errs := make([]error, 30)
		for agg := range states {
			shares[agg] = make([]byte, 30*wide.Sizes().VerifierShare)
			wide.VerifyInit(states[agg], &key, ctx, agg, &b.in[agg], shares[agg], errs)
		}
		msgs := make([]byte, 30*wide.Sizes().VerifierMessage)
		wide.Combine(ctx, shares, msgs, errs)
		aggs := []*vdaf.AggShare{wide.NewAggShare(), wide.NewAggShare()}
		for agg, st := range states {
			wide.Check(st, msgs, errs)
			wide.Accumulate(st, nil, nil, aggs[agg:agg+1], errs)
		}
		got, err := wide.Unshard(aggs)
		if err := errors.Join(append(errs, err)...); err != nil {
			t.Fatal(err)
		}
		for _, x := range got { // 15 of each group, of 1, 2 and 3 alike
			d := float64(x - 30)
			squares += d * d / float64(2*runs)
		}
	}
	// T = 14/3; a mean of 80 squares is within a factor of 6 deviations, sqrt(2/80) each.
	if want := 15 * 14. / 3; math.Abs(squares/want-1) > 6*math.Sqrt(2./80) {
		t.Errorf("mean square %v, want %v", squares, want)
	}
}

func TestColumnsRefuses(t *testing.T) {
	var nonce [vdaf.NonceSize]byte
	v := must(NewColumns(2, 3, 2, 2))
	for _, m := range []Member{{-1, 1}, {3, 1}, {0, 0}, {0, 3}, {0, -3}, {math.MaxInt, 1}, {0, math.MinInt}, {1, math.MaxInt}} {
		if s, err := v.Shard(nil, m, &nonce); !errors.Is(err, vdaf.ErrMeasurement) || s != nil {
			t.Errorf("%+v: %v", m, err)
		}
	}
	for _, m := range []Member{{0, 2}, {2, -2}, {1, 1}, {1, -1}} {
		if _, err := v.Shard(nil, m, &nonce); err != nil {
			t.Errorf("%+v: %v", m, err)
		}
	}
	for name, f := range map[string]func() (any, error){
		"one share":     func() (any, error) { return NewColumns(1, 3, 2, 2) },
		"no groups":     func() (any, error) { return NewColumns(2, 0, 2, 2) },
		"no values":     func() (any, error) { return NewColumns(2, 3, 0, 2) },
		"no chunk":      func() (any, error) { return NewColumns(2, 3, 2, 0) },
		"a large table": func() (any, error) { return NewColumns(2, 300, 300, 20) },
		"far":           func() (any, error) { return NewColumns(2, math.MaxInt, math.MaxInt, 20) },
		"negative":      func() (any, error) { return NewColumns(2, -3, -3, 2) },
	} {
		if _, err := f(); !errors.Is(err, ErrParameter) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// TestColumnsAttacks: shares of two columns, of none, of one twice or less one of another,
// of anything at random, and a report under another nonce, are refused in 120 of 120 trials.
func TestColumnsAttacks(t *testing.T) {
	v := must(NewColumns(2, 3, 2, 2))
	fl, r := v.c.F, rand.New(rand.NewPCG(3, 4))
	var b *batch
	b = newBatch(t, columnsFixture(v, func() *batch { return b }), 120)
	for i := range 120 {
		meas := make([]uint64, v.c.MeasLen*fl.Limbs())
		put := func(at int, x int64) { fl.Put(meas, at, fl.FromInt64(x)) }
		nonce := b.in[0].Nonces[i]
		switch i % 6 {
		case 0:
			put(r.IntN(2), 1)
			put(2+r.IntN(2), 1)
		case 1: // nothing
		case 2:
			put(r.IntN(4), 2)
		case 3:
			put(0, 1)
			put(1, 1)
			put(2+r.IntN(2), -1)
		case 4:
			for at := range 4 {
				put(at, r.Int64N(1000))
			}
		case 5:
			put(r.IntN(4), 1)
			nonce[3] ^= 1
		}
		s, err := v.shard(testCtx, meas, &nonce, v.fresh())
		if err != nil {
			t.Fatal(err)
		}
		for agg := range b.in {
			b.in[agg].Public[i], b.in[agg].Inputs[i] = s.Public, s.Inputs[agg]
		}
	}
	b.init()
	b.finish()
	for i, err := range b.errs {
		if !errors.Is(err, vdaf.ErrVerify) {
			t.Fatalf("trial %d: error is %v", i, err)
		}
	}
}

// columnsPinned is a hash of all that passes between the parties for one report: no one
// else speaks this codepoint, so a change is one of the wire and needs a new one.
const columnsPinned = "673e9e35b2b62f831be77d83e4be02e3c3f8562e15d80ccd0dcf61c1b57d2db8"

func TestColumnsPinned(t *testing.T) {
	registry, err := os.ReadFile(filepath.Join("..", "..", "docs", "registry.md"))
	if err != nil {
		t.Fatal(err)
	}
	v := must(NewColumns(2, 4, 3, 2))
	if line := fmt.Sprintf("| `0x%08X` | Columns | `vdaf/codepoints.go` |\n", v.ID()); !bytes.Contains(registry, []byte(line)) {
		t.Errorf("docs/registry.md misses %s", line)
	}
	random := make([]byte, v.randSize())
	for i := range random {
		random[i] = byte(i)
	}
	f := fixture{"Columns", v, func(i int, nonce *[16]byte) (*vdaf.Shares, error) {
		return vdaftest.Shard(v, testCtx, Member{2, -3}, nonce, random)
	}, nil}
	b := newBatch(t, f, 1)
	b.init()
	aggs := b.finish()
	if b.errs[0] != nil {
		t.Fatal(b.errs[0])
	}
	h := sha256.New()
	for _, part := range [][]byte{b.in[0].Public[0], b.in[0].Inputs[0], b.in[1].Inputs[0], b.shares[0], b.shares[1], b.msgs,
		aggs[0].Append(nil), aggs[1].Append(nil)} {
		h.Write(part)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != columnsPinned {
		t.Errorf("the transcript hashes to %s, want %s", got, columnsPinned)
	}
}

func TestColumnsNoAllocations(t *testing.T) {
	v := must(NewColumns(2, 3, 2, 2))
	var b *batch
	b = newBatch(t, columnsFixture(v, func() *batch { return b }), 4)
	b.init()
	if got := testing.AllocsPerRun(20, b.init); got != 0 && !raceEnabled {
		t.Errorf("VerifyInit allocates %v times a batch", got)
	}
}
