package dap

import (
	"errors"
	"runtime"
	"testing"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/pine"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// Every configuration makes the VDAF that its numbers describe: same sizes as the
// constructor's, on the wire and in results.
func TestNewVDAF(t *testing.T) {
	direct := func(v vdaf.VDAF, err error) vdaf.VDAF {
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	count, err := prio3.NewCount(2)
	if err != nil {
		t.Fatal(err)
	}
	pined := func(f pine.Field, dim, frac int, norm float64) vdaf.VDAF {
		return direct(made(pine.New(pine.Params{Field: f, Dimension: dim, FracBits: frac, Norm: norm})))
	}
	for _, c := range []struct {
		config VDAFConfig
		want   vdaf.VDAF
	}{
		{CountConfig{}, count},
		{SumConfig{1000}, direct(made(prio3.NewSum(2, 1000)))},
		{SumVecConfig{10, 7, 5}, direct(made(prio3.NewSumVec(2, 10, 7, 5)))},
		{HistogramConfig{21, 4}, direct(made(prio3.NewHistogram(2, 21, 4)))},
		{MultihotCountVecConfig{20, 5, 3}, direct(made(prio3.NewMultihotCountVec(2, 20, 3, 5)))},
		{L1BoundSumConfig{10, 240, 9}, direct(made(prio3.NewL1BoundSum(2, 10, 240, 9)))},
		{PineConfig{TypePine32, 70, 15, 1 << 14}, pined(pine.Field32, 70, 15, 0.5)},
		{PineConfig{TypePine40, 70, 19, 1<<19 - 1}, pined(pine.Field40, 70, 19, 1-0x1p-19)},
		{PineConfig{TypePine64, 1000, 0, 3}, pined(pine.Field64, 1000, 0, 3)},
		{PineConfig{TypePine128, 1, 49, pine.MaxBound}, pined(pine.Field128, 1, 49, 2-0x1p-49)},
		{ColumnsConfig{4, 3, 2}, direct(made(prio3.NewColumns(2, 4, 3, 2)))},
		{L2VecConfig{TypeL2Vec16, 9}, direct(made(prio3.NewL2Vec(2, 9, 16)))},
		{L2VecConfig{TypeL2Vec32, 9}, direct(made(prio3.NewL2Vec(2, 9, 32)))},
		{L2VecConfig{TypeL2Vec64, 9}, direct(made(prio3.NewL2Vec(2, 9, 64)))},
	} {
		b, err := c.config.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		task := TaskConfiguration{VDAFType: c.config.Type(), VDAFConfig: b}
		v, err := task.VDAF()
		if err != nil {
			t.Fatalf("%T: %v", c.config, err)
		}
		if v.ID() != c.config.Type() || v.Shares() != 2 || v.Sizes() != c.want.Sizes() {
			t.Errorf("%T: VDAF %d of %d shares, %+v, want %+v", c.config, v.ID(), v.Shares(), v.Sizes(), c.want.Sizes())
		}
		if p, ok := v.(*pine.Pine); ok && p.Params() != c.want.(*pine.Pine).Params() {
			t.Errorf("%+v: parameters %+v, want %+v", c.config, p.Params(), c.want.(*pine.Pine).Params())
		}
	}
}

func TestNewVDAFRefuses(t *testing.T) {
	for _, c := range []VDAFConfig{
		SumConfig{1 << 63}, SumVecConfig{1 << 31, 255, 1}, HistogramConfig{1<<32 - 1, 1}, MultihotCountVecConfig{1<<32 - 1, 1, 1},
		L1BoundSumConfig{1<<32 - 1, 1, 1}, L1BoundSumConfig{1 << 16, 1<<64 - 1, 1 << 10}, L1BoundSumConfig{3, 5, 1<<32 - 1},
		ColumnsConfig{1<<32 - 1, 1, 1}, ColumnsConfig{2, 1<<32 - 1, 1}, ColumnsConfig{1 << 16, 1, 1}, ColumnsConfig{2, 3, 1<<32 - 1},
		L2VecConfig{TypeL2Vec16, 1 << 20}, L2VecConfig{TypeL2Vec64, 1<<32 - 1},
		PineConfig{TypePine32, pine.MaxDimension + 1, 15, 1}, PineConfig{TypePine64, 1<<32 - 1, 24, 1 << 24},
		PineConfig{TypePine64, 10, pine.MaxFracBits + 1, 1}, PineConfig{TypePine128, 10, 0, pine.MaxBound + 1},
		PineConfig{TypePine128, 10, 255, 1<<64 - 1}, PineConfig{TypePine32, 10, 16, 1 << 16}, // its norm would wrap around
	} {
		b, err := c.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := NewVDAF(c.Type(), b); !errors.Is(err, prio3.ErrParameter) && !errors.Is(err, pine.ErrParameter) || v != nil {
			t.Errorf("%+v: %v, %v; want ErrParameter and nil", c, v, err)
		}
	}
	if v, err := NewVDAF(TypePrio3Sum, nil); !errors.Is(err, ErrMalformed) || v != nil {
		t.Errorf("a cut configuration: %v, %v", v, err)
	}
}

// The largest configurations that a stranger can have us build make a VDAF in little
// memory: none of it grows with the dimension.
func TestNewVDAFIsSmall(t *testing.T) {
	for _, c := range []VDAFConfig{PineConfig{TypePine128, pine.MaxDimension, 15, 1 << 15}, PineConfig{TypePine32, pine.MaxDimension, 0, 1}} {
		b, err := c.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := NewVDAF(c.Type(), b); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
			t.Errorf("%+v takes %d bytes", c, n)
		}
	}
}
