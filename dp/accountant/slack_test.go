package accountant

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSlackIsSaidOnce holds what slack.go says of itself: no other file has a factor 1 +
// 1e-12, or the like, of its own.
func TestSlackIsSaidOnce(t *testing.T) {
	factor := regexp.MustCompile(`\b1 ?[-+] ?[0-9.]+e-[0-9]+`)
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for i, line := range strings.Split(string(text), "\n") {
			if code, _, _ := strings.Cut(line, "//"); factor.MatchString(code) {
				t.Errorf("%s:%d has a slack of its own: %s", name, i+1, strings.TrimSpace(line))
			}
		}
	}
}

// TestPaddingIsOutward: each bound stays on its side, by more than the error that it is for.
func TestPaddingIsOutward(t *testing.T) {
	for _, x := range []float64{1e-280, 1e-9, 0.3, 1, 77, 1e6} {
		if !(up(x) > x*(1+1e-13) && down(x) < x*(1-1e-13)) {
			t.Errorf("up and down of %v are %v and %v", x, up(x), down(x))
		}
		if !(above(x) > x*(1+30*0x1p-53) && beneath(x) < x*(1-30*0x1p-53)) {
			t.Errorf("above and beneath of %v are %v and %v", x, above(x), beneath(x))
		}
		if d := off(x, -x); !(d > x*60*0x1p-53) {
			t.Errorf("parts %v that cancel are off by %v", x, d)
		}
		p := min(x, 0.5)
		if lo, hi := padded(p, 0.01, 1e-3); lo > p*0.99 || hi < p*1.01+1e-3 || lo < 0 {
			t.Errorf("%v is padded to [%v, %v]", p, lo, hi)
		}
	}
	if above(-1) < -1 || beneath(-1) > -1 {
		t.Error("above and beneath turn round below zero")
	}
	if lo, hi := padded(0.999, 0.5, 1); lo != 0 || hi != 1 {
		t.Errorf("a probability is padded to [%v, %v]", lo, hi)
	}
}
