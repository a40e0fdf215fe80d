package account

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
)

// TestKept: a value is made once and no more than size of them are kept, the last ones; an
// error is not kept, and what was asked for at once by many is the same for all.
func TestKept(t *testing.T) {
	k := kept[int, int]{size: 3}
	var made []int
	get := func(key int) int {
		v, err := k.once(key, func() (int, error) { made = append(made, key); return 10 * key, nil })
		if err != nil || v != 10*key {
			t.Fatalf("once(%d) = %d, %v", key, v, err)
		}
		return v
	}
	for _, key := range []int{1, 2, 1, 3, 2, 4, 2, 3, 4, 1, 4} {
		get(key)
	}
	if want := []int{1, 2, 3, 4, 1}; !slices.Equal(made, want) {
		t.Errorf("made %v, want %v", made, want)
	}
	if len(k.values) != 3 || len(k.keys) != 3 {
		t.Errorf("%d values of %d keys are kept", len(k.values), len(k.keys))
	}
	for range 2 {
		broken := errors.New("broken")
		if _, err := k.once(9, func() (int, error) { return 0, broken }); err != broken {
			t.Errorf("once = %v", err)
		}
	}
	if get(9); made[len(made)-1] != 9 {
		t.Error("an error was kept")
	}
	both := kept[int, *int]{size: 1}
	var begun, wg sync.WaitGroup
	begun.Add(2)
	var got [2]*int
	for i := range got {
		wg.Go(func() {
			got[i], _ = both.once(0, func() (*int, error) { begun.Done(); begun.Wait(); return new(int), nil })
		})
	}
	wg.Wait()
	if got[0] != got[1] || len(both.keys) != 1 {
		t.Error("two callers got two values")
	}
}

// TestEpsilonKept: what is kept is what the accountant answers, by all that was asked:
// questions that differ in one part have answers of their own.
func TestEpsilonKept(t *testing.T) {
	noise := func(sigma float64) release.Release {
		return release.One(release.Gaussian{Sigma: sigma, Contribution: release.OneHot(), Honest: 1})
	}
	lists := [][]release.Release{
		{noise(20)}, {noise(30)}, {noise(20), noise(30)}, {noise(30), noise(20), noise(20)}, release.Repeated([]release.Release{noise(20)}, 3),
	}
	for range 2 {
		for _, list := range lists {
			for _, delta := range []float64{1e-6, 1e-9} {
				for _, n := range []release.Neighbours{release.AddRemove, release.ReplaceOne} {
					want, err := accountant.Epsilon(list, delta, n)
					if err != nil {
						t.Fatal(err)
					}
					if got, err := epsilon(list, delta, n); err != nil || got != want {
						t.Errorf("epsilon(%v, %v, %v) = %+v, %v; want %+v", list, delta, n, got, err, want)
					}
				}
			}
		}
	}
}
