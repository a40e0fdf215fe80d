package search

import (
	"errors"
	"math"
	"testing"
)

func TestLeast(t *testing.T) {
	for name, c := range map[string]struct {
		cost func(float64) float64
		want float64
		most int // looks
	}{
		"inverse": {func(x float64) float64 { return 3 / x }, 3, 9},
		"steep":   {func(x float64) float64 { return 300 * math.Exp(-x) }, math.Log(300), 16},
		"zero":    {func(x float64) float64 { return max(0, 2-x) }, 1, 16},
		"infinite": {func(x float64) float64 {
			if x < 5 {
				return math.Inf(1)
			}
			return 7 / x
		}, 7, 40},
		"jump": {func(x float64) float64 {
			if x < 7 {
				return 2
			}
			return 0.5
		}, 7, 60},
	} {
		for _, guess := range []float64{1e-9, 0.01, 1, 2.9, 3.1, 50, 1e9} {
			looks := 0
			got, ok, err := Least(Options{Guess: guess, Low: 1e-3, High: 1e3, Precision: 1e-5, Budget: 1}, func(x float64) (float64, error) {
				looks++
				return c.cost(x), nil
			})
			if err != nil || !ok || c.cost(got) > 1 || math.Abs(got/c.want-1) > 1.1e-5 {
				t.Errorf("%s from %v: %v, %v, %v; want %v", name, guess, got, ok, err, c.want)
			}
			if guess > 1 && guess < 50 && looks > c.most {
				t.Errorf("%s from %v: %d looks", name, guess, looks)
			}
		}
	}
}

func TestBounds(t *testing.T) {
	o := Options{Guess: 2, Low: 1, High: 4, Precision: 1e-6, Budget: 1}
	if x, ok, err := Least(o, func(x float64) (float64, error) { return 100 / x, nil }); x != 4 || ok || err != nil {
		t.Errorf("too dear everywhere: %v, %v, %v", x, ok, err)
	}
	if x, ok, err := Least(o, func(x float64) (float64, error) { return 0.1 / x, nil }); x != 1 || !ok || err != nil {
		t.Errorf("cheap everywhere: %v, %v, %v", x, ok, err)
	}
	broken := errors.New("broken")
	for at := 1; at < 6; at++ {
		looks := 0
		_, _, err := Least(o, func(x float64) (float64, error) {
			if looks++; looks == at {
				return 0, broken
			}
			return 3 / math.Sqrt(x*5), nil
		})
		if !errors.Is(err, broken) {
			t.Errorf("an error at look %d is lost: %v", at, err)
		}
	}
}
