package outward

import "testing"

// TestPaddingIsOutward: each bound stays on its side, by more than the error that it is
// for.
func TestPaddingIsOutward(t *testing.T) {
	for _, x := range []float64{1e-280, 1e-9, 0.3, 1, 77, 1e6} {
		if !(Up(x) > x*(1+1e-13) && Down(x) < x*(1-1e-13)) {
			t.Errorf("Up and Down of %v are %v and %v", x, Up(x), Down(x))
		}
		if !(Above(x) > x*(1+30*0x1p-53) && Beneath(x) < x*(1-30*0x1p-53)) {
			t.Errorf("Above and Beneath of %v are %v and %v", x, Above(x), Beneath(x))
		}
		if got := Widened(x, 0.25); got != 1.25*x {
			t.Errorf("%v by a quarter is %v", x, got)
		}
		if d := Off(x, -x); !(d > x*60*0x1p-53) {
			t.Errorf("parts %v that cancel are off by %v", x, d)
		}
		p := min(x, 0.5)
		if lo, hi := Padded(p, 0.01, 1e-3); lo > p*0.99 || hi < p*1.01+1e-3 || lo < 0 {
			t.Errorf("%v is padded to [%v, %v]", p, lo, hi)
		}
	}
	if Above(-1) < -1 || Beneath(-1) > -1 {
		t.Error("Above and Beneath turn round below zero")
	}
	if lo, hi := Padded(0.999, 0.5, 1); lo != 0 || hi != 1 {
		t.Errorf("a probability is padded to [%v, %v]", lo, hi)
	}
}

// TestWhole: a quotient that is whole but for rounding is that number, and no other is.
func TestWhole(t *testing.T) {
	for _, c := range []struct{ x, want float64 }{
		{0, 0}, {3, 3}, {0.1 * 3 / 0.1, 3}, {3 * (1 + 0x1p-52), 3}, {3 * (1 - 0x1p-52), 3}, {3 + 1e-9, 4}, {2 + 1e-9, 3}, {1e-9, 1},
	} {
		if got := Whole(c.x); got != c.want {
			t.Errorf("%v is rounded to %v, want %v", c.x, got, c.want)
		}
	}
}

// TestSummed: a sum of n terms, each from the one before, is off by less.
func TestSummed(t *testing.T) {
	const n, ratio = 1000, 0.999
	sum, term, exact := 0.0, 1.0, 0.0
	for range n {
		sum += term
		term *= ratio
	}
	exact = (1 - term) / (1 - ratio)
	if lo, hi := sum*(1-Summed(n)), Widened(sum, Summed(n)); !(lo < exact && exact < hi) {
		t.Errorf("%v is not in [%v, %v]", exact, lo, hi)
	}
}
