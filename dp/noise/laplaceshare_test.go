package noise

import (
	"errors"
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/noise/internal/twin"
)

func share(t testing.TB, num, den, users uint64, seed byte) *DiscreteLaplaceShare {
	t.Helper()
	l, err := NewDiscreteLaplaceShare(num, den, users)
	if err != nil {
		t.Fatal(err)
	}
	return twin.WithSource(l, seeded(seed)).(*DiscreteLaplaceShare)
}

// Sums of the shares of all users are discrete Laplace: 2^14 sums for each case;
// false-reject rate 1e-6 each. Of one user too few they are not.
func TestSharesAddUp(t *testing.T) {
	draws := make([]int64, 1<<14)
	for i, tc := range []struct {
		t, s, users uint64
		r           int64
	}{{1, 1, 1, 5}, {10, 1, 2, 35}, {7, 2, 3, 15}, {10, 1, 9, 35}, {1, 3, 4, 1}} {
		l := share(t, tc.t, tc.s, tc.users, byte(100+i))
		one := make([]int64, tc.users)
		rate := float64(tc.s) / float64(tc.t)
		weight := func(y int64) float64 { return math.Exp(-math.Abs(float64(y)) * rate) }
		fill := func(n uint64) {
			for j := range draws {
				l.Sample(one[:n])
				draws[j] = 0
				for _, y := range one[:n] {
					draws[j] += y
				}
			}
		}
		fill(tc.users)
		if stat, limit := chiSquare(draws, tc.r, weight); stat > limit {
			t.Errorf("%d shares of scale %d/%d: chi-square %.1f > %.1f", tc.users, tc.t, tc.s, stat, limit)
		}
		if tc.users == 1 || tc.users > 4 {
			continue
		}
		fill(tc.users - 1)
		if stat, limit := chiSquare(draws, tc.r, weight); stat <= limit {
			t.Errorf("%d shares of %d pass for all: chi-square %.1f", tc.users-1, tc.users, stat)
		}
	}
}

// A share by itself is the difference of two negative binomial variables: 2^17 draws;
// false-reject rate 1e-6.
func TestShareIsNegativeBinomial(t *testing.T) {
	const users, scale, reach = 5, 4, 100
	nb := [reach + 1]float64{1}
	for j := 1; j <= reach; j++ {
		nb[j] = nb[j-1] * (1.0/users + float64(j) - 1) / float64(j) * math.Exp(-1.0/scale)
	}
	weight := func(y int64) (w float64) {
		for j := max(0, -y); j <= reach && y+j <= reach; j++ {
			w += nb[j] * nb[y+j]
		}
		return w
	}
	draws := make([]int64, 1<<17)
	share(t, scale, 1, users, 9).Sample(draws)
	if stat, limit := chiSquare(draws, 12, weight); stat > limit {
		t.Errorf("chi-square %.1f > %.1f", stat, limit)
	}
}

// Large scales: variance within 6 standard errors (the kurtosis of a share is about 3 h),
// and the tail is beyond reach.
func TestLargeShares(t *testing.T) {
	const users, n = 100, 1 << 15
	for _, scale := range []uint64{1 << 20, 1 << 40} {
		l := share(t, scale, 1, users, 3)
		draws := make([]int64, n)
		l.Sample(draws)
		sum := 0.0
		beyond := l.Tail(1e-9)
		for _, y := range draws {
			sum += float64(y) * float64(y)
			if y > beyond || y < -beyond {
				t.Errorf("drew %d, beyond %d", y, beyond)
			}
		}
		if r := sum / n / l.Variance(); math.Abs(r-1) > 6*math.Sqrt(3*users/float64(n)) {
			t.Errorf("scale %d: %v of the variance", scale, r)
		}
	}
}

func TestShareRanges(t *testing.T) {
	var e *RangeError
	for _, c := range [][3]uint64{{0, 1, 1}, {1, 0, 1}, {1 << 63, 1, 1}, {1, 1, 0}, {1, 1, MaxShares + 1}} {
		if _, err := NewDiscreteLaplaceShare(c[0], c[1], c[2]); !errors.As(err, &e) {
			t.Errorf("scale %d/%d, %d users: %v", c[0], c[1], c[2], err)
		}
	}
	dst := make([]int64, 50)
	for _, c := range [][3]uint64{{1 << 40, 1, 1}, {1<<63 - 1, 1 << 23, MaxShares}, {1, 1<<63 - 1, 3}, {1<<63 - 1, 1<<63 - 2, 7}} {
		share(t, c[0], c[1], c[2], 3).Sample(dst)
	}
	a, b := make([]int64, 50), make([]int64, 50)
	l, _ := NewDiscreteLaplaceShare(50, 1, 2)
	(&Key{1}).Sample(l, a, []byte("x"))
	(&Key{1}).Sample(l, b, []byte("x"))
	for i := range a {
		if a[i] != b[i] {
			t.Fatal("a key's draws differ")
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a stuck source does not panic")
		}
	}()
	twin.WithSource(l, fixed(0)).(*DiscreteLaplaceShare).Sample(dst)
}

func BenchmarkShare(b *testing.B) {
	l, err := NewDiscreteLaplaceShare(1<<20, 1, 9000)
	if err != nil {
		b.Fatal(err)
	}
	dst := make([]int64, 1)
	for b.Loop() {
		l.Sample(dst)
	}
}
