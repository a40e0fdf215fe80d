package projection

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"testing"
)

func seedOf(i int) (seed [32]byte) {
	binary.BigEndian.PutUint64(seed[:], uint64(i))
	return seed
}

func mustNew(t testing.TB, from, to, seed int) *Projection {
	t.Helper()
	p, err := New(from, to, seedOf(seed))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The map is what its matrix says, element by element, both ways.
func TestMatrix(t *testing.T) {
	for _, c := range [][2]int{{1, 1}, {2, 1}, {3, 2}, {5, 5}, {8, 3}, {13, 7}} {
		p := mustNew(t, c[0], c[1], 1)
		if p.From() != c[0] || p.To() != c[1] {
			t.Fatalf("%d to %d: the map is from %d to %d", c[0], c[1], p.From(), p.To())
		}
		element := func(i, j int) float64 {
			e := 1 / math.Sqrt(float64(c[1]))
			if bits.OnesCount32(p.rows[i]&uint32(j))%2 == 1 {
				e = -e
			}
			if p.signs[j/8]>>(j%8)&1 == 1 {
				e = -e
			}
			return e
		}
		for j := range c[0] {
			x := make([]float64, c[0])
			x[j] = 1
			for i, y := range p.Apply(x) {
				if math.Abs(y-element(i, j)) > 1e-15 {
					t.Errorf("%v: element (%d, %d) of the map is %v, want %v", c, i, j, y, element(i, j))
				}
			}
		}
		for i := range c[1] {
			y := make([]float64, c[1])
			y[i] = 1
			for j, x := range p.Transpose(y) {
				if math.Abs(x-element(i, j)) > 1e-15 {
					t.Errorf("%v: element (%d, %d) of the transpose is %v, want %v", c, j, i, x, element(i, j))
				}
			}
		}
	}
}

// Rows are distinct, rising and within the padded length; a map onto the whole padded
// length loses nothing.
func TestRows(t *testing.T) {
	for seed := range 200 {
		p := mustNew(t, 11, 1+seed%11, seed)
		for i, row := range p.rows {
			if row >= 16 || i > 0 && row <= p.rows[i-1] {
				t.Fatalf("rows %d", p.rows)
			}
		}
	}
	p := mustNew(t, 64, 64, 3)
	x := make([]float64, 64)
	for i := range x {
		x[i] = math.Sin(float64(i))
	}
	for i, y := range p.Transpose(p.Apply(x)) {
		if math.Abs(y-x[i]) > 1e-13 {
			t.Errorf("number %d comes back as %v, want %v", i, y, x[i])
		}
	}
	if Loss(64, 64) != 0 || Loss(1, 1) != 0 || Error(1, 1) != 0 {
		t.Error("a map that keeps all has a loss")
	}
}

// Every set of 2 of 4 rows has the same odds, and every row of 8: chi-square of fixed
// seeds; false once in 10^7.
func TestRowsAreUniform(t *testing.T) {
	const n = 12_000
	sets := map[string]int{}
	var one [8]int
	for seed := range n {
		sets[fmt.Sprint(mustNew(t, 4, 2, seed).rows)]++
		one[mustNew(t, 8, 1, seed).rows[0]]++
	}
	chi := 0.0
	for _, c := range sets {
		d := float64(c) - n/6
		chi += d * d / (n / 6)
	}
	if len(sets) != 6 || chi > 42 { // 5 degrees of freedom: 5*10^-8
		t.Errorf("sets of rows: %v, chi-square %v", sets, chi)
	}
	chi = 0
	for _, c := range one {
		d := float64(c) - n/8
		chi += d * d / (n / 8)
	}
	if chi > 46 { // 7 degrees of freedom: 9*10^-8
		t.Errorf("rows: %v, chi-square %v", one, chi)
	}
}

// Over seeds the estimate is unbiased, its variance is the stated one, and so are those
// of its length and of noise; the padded lengths are hit and missed. Fixed seeds; limits
// are 6 standard errors.
func TestEstimate(t *testing.T) {
	const n = 20_000
	for _, c := range [][2]int{{8, 3}, {5, 4}, {11, 2}} {
		x := make([]float64, c[0])
		norm2 := 0.0
		for i := range x {
			x[i] = float64(i*i%7) - 2
			norm2 += x[i] * x[i]
		}
		sum, squares, fourths := make([]float64, c[0]), make([]float64, c[0]), make([]float64, c[0])
		length, total := 0.0, 0.0
		for seed := range n {
			p := mustNew(t, c[0], c[1], seed)
			y := p.Apply(x)
			for _, e := range y {
				length += e * e / n
			}
			for j, e := range p.Transpose(y) {
				d := e - x[j]
				sum[j] += d / n
				squares[j] += d * d / n
				fourths[j] += d * d * d * d / n
				total += d * d / n
			}
		}
		for j := range x {
			want := Loss(c[0], c[1]) * (norm2 - x[j]*x[j])
			spread := math.Sqrt((fourths[j] - squares[j]*squares[j]) / n)
			if math.Abs(sum[j]) > 6*math.Sqrt(want/n) || math.Abs(squares[j]-want) > 6*spread {
				t.Errorf("%v: number %d is %v off with variance %v, want 0 and %v", c, j, sum[j], squares[j], want)
			}
		}
		if want := Error(c[0], c[1]) * Error(c[0], c[1]) * norm2; math.Abs(total/want-1) > 0.1 {
			t.Errorf("%v: squared error %v, want %v", c, total, want)
		}
		if math.Abs(length/norm2-1) > 0.1 {
			t.Errorf("%v: squared length %v, want %v", c, length, norm2)
		}
	}
}

// The map is part of a recipe: these bytes, which an independent implementation of the
// definition gives too, are for ever.
func TestPinned(t *testing.T) {
	p := mustNew(t, 1000, 100, 7)
	h := sha256.New()
	h.Write(p.signs)
	for _, r := range p.rows {
		binary.Write(h, binary.BigEndian, r)
	}
	const want = "f69db74d6c663a97633f4801216fe2b495d3643fc995a59605ddbb93ff375d17"
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		t.Errorf("signs and rows hash to %s, want %s", got, want)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range [][2]int{{0, 0}, {1, 0}, {1, 2}, {-1, -1}, {MaxLength + 1, 1}} {
		if p, err := New(c[0], c[1], seedOf(0)); !errors.Is(err, ErrLength) || p != nil {
			t.Errorf("%v: %v, %v", c, p, err)
		}
	}
}

func BenchmarkApply(b *testing.B) {
	p := mustNew(b, 1<<18, 1<<14, 1)
	x := make([]float64, 1<<18)
	for b.Loop() {
		p.Apply(x)
	}
}
