package prio3

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/internal/derand"
	"github.com/starling-agg/starling/vdaf/internal/field"
	"github.com/starling-agg/starling/vdaf/internal/flp"
	"github.com/starling-agg/starling/vdaf/internal/xof"
)

// MaxTable bounds groups times values of [Columns].
const MaxTable = 1 << 16

// usageRow is the usage of the XOF that deals a row of a table; none of VDAF-18's.
const usageRow = 8

// Columns is question & answer of paper 002 on shares: the sum, by secret group, of values
// from -m to m but 0. The nonce of a report deals a public table with a row for each
// group, a permutation of the 2m values; the client shares and proves the one-hot vector
// of the column in which its group's row holds its value (the circuit of [Histogram]), and
// each aggregator multiplies its share by the table. So an output share is linear in the
// report, and a result is for each group the sum of what the columns hold there: the true
// sum, and for each report of another group a value that is uniform. Nobody lies, and the other groups'
// rows are noise that grows with the number of reports. It serves for comparison: recipes ask for sums by group by [L1BoundSum], whose
// sums are exact (docs/bench/groups.md).
//
// A row's i-th draw, 1 <= i < 2m, is the high word of i+1 times a word of the XOF, so that
// a permutation's probability is off by a factor within 2^-47 of 1 for each draw.
type Columns struct {
	core
	m int
}

// A Member is a measurement of [Columns]: a group, from 0 on, and a value.
type Member struct{ Group, Value int }

// NewColumns returns a Columns of a number of groups, 1 or more, and values to m, 1 or more,
// where groups times 2m are at most [MaxTable], proved chunk at a time; [OptimalChunk] of 2m
// gives the shortest reports. Errors are [ErrParameter].
func NewColumns(shares, groups, m, chunk int) (*Columns, error) {
	if err := checkShares(shares); err != nil {
		return nil, err
	}
	if groups < 1 || groups > MaxTable || m < 1 || m > MaxTable || groups*2*m > MaxTable {
		return nil, fmt.Errorf("%w: %d groups of values to %d, want at most %d of both and signs", ErrParameter, groups, m, MaxTable)
	}
	if err := checkChunk(2*m, chunk, 1); err != nil {
		return nil, err
	}
	v := &Columns{newCore(vdaf.IDColumns, shares, 1, flp.NewOneHot(field.Field128{}, 2*m, chunk), groups, nil), m}
	v.values = make([]uint64, 2*m*v.c.F.Limbs())
	for i := range 2 * m {
		v.c.F.Put(v.values, i, v.c.F.ToWeight(v.c.F.FromInt64(int64(valueAt(i, m)))))
	}
	return v, nil
}

// valueAt is the i-th of -m to m but 0.
func valueAt(i, m int) int {
	if i < m {
		return i - m
	}
	return i - m + 1
}

// Shard implements [vdaf.Client]. A group or a value out of range is [vdaf.ErrMeasurement].
func (v *Columns) Shard(ctx []byte, of Member, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
	return v.ShardDerandomized(ctx, of, nonce, v.fresh())
}

// ShardDerandomized is Shard with randomness given; see package vdaftest.
func (v *Columns) ShardDerandomized(ctx []byte, of Member, nonce *[vdaf.NonceSize]byte, r derand.Rand) (*vdaf.Shares, error) {
	if of.Group < 0 || of.Group >= v.outLen || of.Value == 0 || of.Value < -v.m || of.Value > v.m {
		return nil, fmt.Errorf("%w: want a group from 0 to %d and a value to %d on either side of 0", vdaf.ErrMeasurement, v.outLen-1, v.m)
	}
	if len(ctx) > maxCtx {
		return nil, errContext
	}
	// The index of the value: of those above 0 one less.
	at := uint64(of.Value+v.m-1) + uint64(int64(of.Value))>>63
	draws := make([]uint64, 2*v.m)
	v.draw(ctx, nonce, of.Group, draws)
	// Where the exchanges of the row take it from, the last one first, without a branch or
	// an address that depends on the value or on the row.
	for i := uint64(2*v.m - 1); i >= 1; i-- {
		j := draws[i]
		here, there := equal(at, i), equal(at, j)
		at ^= -here&(at^j) | -there&(at^i)
	}
	clear(draws) // they tell the group
	meas := make([]uint64, v.c.MeasLen*v.c.F.Limbs())
	for i := range 2 * v.m {
		v.c.F.Put(meas, i, field.Elem{equal(uint64(i), at)})
	}
	return v.shard(ctx, meas, nonce, r)
}

// draw makes the draws of a row, of which the first is none: the i-th is uniform in 0..i.
func (v *core) draw(ctx []byte, nonce *[vdaf.NonceSize]byte, group int, draws []uint64) {
	var x xof.XOF
	var zero [xof.SeedSize]byte
	v.start(&x, usageRow, ctx, zero[:])
	x.Absorb(nonce[:])
	var number [4]byte
	binary.BigEndian.PutUint32(number[:], uint32(group))
	x.Absorb(number[:])
	x.Words(draws)
	for i := range draws {
		draws[i], _ = bits.Mul64(draws[i], uint64(i+1))
	}
}

// A dealer is scratch for the rows of a table.
type dealer struct {
	draws   []uint64
	columns []int    // by the index of a value: the column that holds it
	row     []uint64 // values by columns, as weights
}

func (v *core) dealer() *dealer {
	n := v.c.MeasLen
	return &dealer{make([]uint64, n), make([]int, n), make([]uint64, n*v.c.F.Limbs())}
}

// multiply writes the output share of a measurement share: its product with the table.
func (v *core) multiply(d *dealer, ctx []byte, nonce *[vdaf.NonceSize]byte, out, meas []uint64) {
	f := v.c.F
	for g := range v.outLen {
		v.draw(ctx, nonce, g, d.draws)
		for i := range d.columns {
			d.columns[i] = i
		}
		for i := 1; i < len(d.columns); i++ {
			j := d.draws[i]
			d.columns[i], d.columns[j] = d.columns[j], d.columns[i]
		}
		for i, column := range d.columns {
			f.Put(d.row, column, f.At(v.values, i))
		}
		f.Put(out, g, f.Dot(d.row, meas, 1))
	}
}

var (
	_ vdaf.VDAF           = (*Columns)(nil)
	_ vdaf.Client[Member] = (*Columns)(nil)
)
