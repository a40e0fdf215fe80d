package prose

import (
	"slices"
	"testing"
)

func TestColumns(t *testing.T) {
	for width, want := range map[int]int{0: 108, 1: 40, 60: 60, 108: 108, 300: 108} {
		if got := Columns(width, 108); got != want {
			t.Errorf("%d columns: %d, want %d", width, got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 10, []string{""}},
		{"no one can follow a bird", 10, []string{"no one can", "follow a", "bird"}},
		{"a  guarantee\tof 1", 11, []string{"a guarantee", "of 1"}},
		{"unlinkability is hard", 5, []string{"unlinkability", "is", "hard"}},
		{"Q ≤ ½ −1 ε", 8, []string{"Q ≤ ½ −1", "ε"}},
		{"one\n\ntwo three", 5, []string{"one", "", "two", "three"}},
	} {
		if got := Wrap(c.text, c.width); !slices.Equal(got, c.want) {
			t.Errorf("Wrap(%q, %d) = %q, want %q", c.text, c.width, got, c.want)
		}
	}
}

func TestCount(t *testing.T) {
	for x, want := range map[float64]string{0: "0", -0.4: "0", 999.5: "1,000", 6308: "6,308", -1234567: "-1,234,567", 12: "12"} {
		if got := Count(x); got != want {
			t.Errorf("Count(%v) = %q, want %q", x, got, want)
		}
	}
}
