package noise

import (
	"encoding/hex"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func samplers(t *testing.T) map[string]Sampler {
	t.Helper()
	g, err := NewDiscreteGaussian(16, 1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewDiscreteLaplace(10, 1)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]Sampler{"gaussian": g, "laplace": l}
}

// TestKeyedIsAFunction: the same key and parts give the same draws, at any time and of
// any length; another key, another part, a byte moved over from one part to the next, or
// a part that is not there give others. 64 draws of deviation 4 agree by chance once in
// more than 2^190.
func TestKeyedIsAFunction(t *testing.T) {
	for name, s := range samplers(t) {
		draw := func(n int, k Key, parts ...string) []int64 {
			var in [][]byte
			for _, p := range parts {
				in = append(in, []byte(p))
			}
			dst := make([]int64, n)
			k.Sample(s, dst, in...)
			return dst
		}
		key := Key{1, 2, 3}
		want := draw(64, key, "task", "batch", "share")
		if !slices.Equal(draw(64, key, "task", "batch", "share"), want) {
			t.Errorf("%s: the same input has other draws", name)
		}
		for what, got := range map[string][]int64{
			"another key":        draw(64, Key{1, 2, 4}, "task", "batch", "share"),
			"another part":       draw(64, key, "task", "batch", "sharf"),
			"a byte moved over":  draw(64, key, "task", "batchs", "hare"),
			"an empty part more": draw(64, key, "task", "batch", "share", ""),
			"a part less":        draw(64, key, "task", "batchshare"),
		} {
			if slices.Equal(got, want) {
				t.Errorf("%s: %s has the same draws", name, what)
			}
		}
	}
	zero := []int64{1, 2}
	(&Key{}).Sample(Zero{}, zero, nil)
	if zero[0] != 0 || zero[1] != 0 {
		t.Error("no noise is some")
	}
}

// TestKeyedGoodnessOfFit: what a key draws follows the law that the sampler states, and
// so does the difference of the draws for two inputs follow that of independent ones. n =
// 2^19 draws each, false-reject rate 1e-6 each; the keys are fixed.
func TestKeyedGoodnessOfFit(t *testing.T) {
	const n = 1 << 19
	for i, tc := range []struct {
		num, den uint64
		r        int64
	}{{1, 1, 3}, {16, 1, 14}, {100, 7, 13}} {
		g, err := NewDiscreteGaussian(tc.num, tc.den)
		if err != nil {
			t.Fatal(err)
		}
		a, b := make([]int64, n), make([]int64, n)
		key := Key{byte(i), 7}
		key.Sample(g, a, []byte("one sum"))
		key.Sample(g, b, []byte("another sum"))
		s2 := float64(tc.num) / float64(tc.den)
		for what, draws := range map[string][]int64{"one sum": a, "another sum": b} {
			if stat, limit := chiSquare(draws, tc.r, gaussianWeight(s2)); stat > limit {
				t.Errorf("%d/%d, %s: chi-square %.1f > %.1f", tc.num, tc.den, what, stat, limit)
			}
		}
		// Were the two related, their products would not average out: |sum a b| beyond
		// 5.2 standard errors has probability below 1e-6 (normal approximation, as in
		// TestMoments).
		dot := 0.0
		for j := range a {
			dot += float64(a[j]) * float64(b[j])
		}
		if z := dot / (math.Sqrt(n) * g.Variance()); math.Abs(z) > 5.2 {
			t.Errorf("%d/%d: the draws of two sums are correlated, %.1f standard errors", tc.num, tc.den, z)
		}
	}
	l, err := NewDiscreteLaplace(7, 2)
	if err != nil {
		t.Fatal(err)
	}
	draws := make([]int64, n)
	(&Key{9}).Sample(l, draws, []byte("one sum"))
	if stat, limit := chiSquare(draws, 25, func(y int64) float64 { return math.Exp(-math.Abs(float64(y)) * 2 / 7) }); stat > limit {
		t.Errorf("laplace: chi-square %.1f > %.1f", stat, limit)
	}
}

// TestKeyedIsWhatIsWritten: the stream of a key is part of what a server must find again
// after years, so it is held here.
func TestKeyedIsWhatIsWritten(t *testing.T) {
	var key Key
	for i := range key {
		key[i] = byte(i)
	}
	got := make([]byte, 16)
	key.stream([][]byte{[]byte("a"), {}}).Read(got)
	// HMAC-SHA256 of the domain, a zero byte and two parts, and AES-256-CTR, by another
	// implementation.
	const want = "db5663326c59f0a07d1b6ea959c7c50e"
	if hex.EncodeToString(got) != want {
		t.Errorf("got %x, want %s", got, want)
	}
}

// sourced is where a sampler is given its bits.
var sourced = regexp.MustCompile(`\bsrc(?::| =) ([^},\n]+)`)

// TestSources: in what ships bits come from crypto/rand or from a key's stream, and from
// a twin's reader, which package noisetest alone can give.
func TestSources(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"gaussian.go": {"rand.Reader"}, "laplace.go": {"rand.Reader"}, "keyed.go": {"stream", "stream", "stream"}, "noise.go": {"r", "r", "r"},
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range sourced.FindAllStringSubmatch(string(text), -1) {
			got = append(got, m[1])
		}
		if !slices.Equal(got, want[name]) {
			t.Errorf("%s gives samplers %q, want %q", name, got, want[name])
		}
		if strings.Contains(string(text), "math/rand") {
			t.Errorf("%s imports another randomness", name)
		}
	}
}

func BenchmarkKeyed(b *testing.B) {
	g, err := NewDiscreteGaussian(655360*655360, 1)
	if err != nil {
		b.Fatal(err)
	}
	dst, share := make([]int64, 1<<18), make([]byte, 16<<18)
	for b.Loop() {
		(&Key{1}).Sample(g, dst, share)
	}
}
