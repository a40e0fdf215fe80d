package dap

import (
	"errors"
	"testing"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// Every configuration makes the VDAF that its numbers describe: same sizes as the constructor's, on the wire and in results.
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
	for _, c := range []struct {
		config VDAFConfig
		want   vdaf.VDAF
	}{
		{CountConfig{}, count},
		{SumConfig{1000}, direct(made(prio3.NewSum(2, 1000)))},
		{SumVecConfig{10, 7, 5}, direct(made(prio3.NewSumVec(2, 10, 7, 5)))},
		{HistogramConfig{21, 4}, direct(made(prio3.NewHistogram(2, 21, 4)))},
		{MultihotCountVecConfig{20, 5, 3}, direct(made(prio3.NewMultihotCountVec(2, 20, 3, 5)))},
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
	}
}

func TestNewVDAFRefuses(t *testing.T) {
	for _, c := range []VDAFConfig{
		SumConfig{1 << 63}, SumVecConfig{1 << 31, 255, 1}, HistogramConfig{1<<32 - 1, 1}, MultihotCountVecConfig{1<<32 - 1, 1, 1},
	} {
		b, err := c.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := NewVDAF(c.Type(), b); !errors.Is(err, prio3.ErrParameter) || v != nil {
			t.Errorf("%+v: %v, %v; want ErrParameter and nil", c, v, err)
		}
	}
	if v, err := NewVDAF(TypePrio3Sum, nil); !errors.Is(err, ErrMalformed) || v != nil {
		t.Errorf("a cut configuration: %v, %v", v, err)
	}
}
