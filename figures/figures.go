package figures

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/starling-agg/starling/internal/draw"
)

// ErrOptions is matched by every error about an option.
var ErrOptions = errors.New("figures: option out of range")

// Options say what to draw and where. The zero value of every field but Dir is its
// default. The defaults stand in the reference values that the accountant is tested with;
// where a paper's text gives a value they are that value.
type Options struct {
	// Dir is where the files go; it is made if missing. Required.
	Dir string
	// Only are the names of the outputs to draw, as Names lists them; none for all.
	Only []string
	// Epsilon and Delta are what all tasks of an error curve cost together: 1 and 10^-6,
	// as in paper 000.
	Epsilon, Delta float64
	// People is N, 10^6; the text of paper 000 does not say. At least 10^4 and at most
	// 10^9.
	People float64
	// Alphabets are values of K for the rows of figures 5 to 8: 10^3, 10^4, 10^5. Figures
	// 1 to 3 use the first. Up to four, each 2 to 10^9.
	Alphabets []float64
	// Tasks are values of T for the columns of figures 5 to 8: 1, 10, 100, 1000. Figures
	// 2 and 3 leave out the second if there are four. Up to four, each 1 to 10^5. Figure
	// 1 has T = 1.
	Tasks []uint64
	// Measured adds to figure 1 of paper 001 and to figure 2 of paper 002 what the running
	// encoders and analyzers give, with fresh randomness, some 20 seconds of a core; and the
	// figures of learning and of check-ins as they run, some minutes.
	Measured bool
	// Progress is told each output that is done. Optional.
	Progress func(Output)

	thin int // of measured runs one in as many is made, for tests
}

// An Output is one figure or table as it was written.
type Output struct {
	// Name is the stem of the files, as in "paper-000-figure-2".
	Name string `json:"name"`
	// Title is its headline.
	Title string `json:"title"`
	// Files are PNG, SVG and CSV, by their names in the directory.
	Files []string `json:"files"`
}

func (o *Options) setDefaults() {
	if o.Epsilon == 0 {
		o.Epsilon = 1
	}
	if o.Delta == 0 {
		o.Delta = 1e-6
	}
	if o.People == 0 {
		o.People = 1e6
	}
	if o.Alphabets == nil {
		o.Alphabets = []float64{1e3, 1e4, 1e5}
	}
	if o.Tasks == nil {
		o.Tasks = []uint64{1, 10, 100, 1000}
	}
}

// Validate returns an error that matches ErrOptions if a field is out of its range.
func (o Options) Validate() error {
	o.setDefaults()
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...)
	}
	if o.Dir == "" {
		return bad("no directory")
	}
	for _, name := range o.Only {
		i := slices.IndexFunc(jobs(), func(j job) bool { return j.name == name })
		if i < 0 {
			return bad("there is no output %q", name)
		}
		if jobs()[i].measured && !o.Measured {
			return bad("%s is measured: ask for that", name)
		}
	}
	if !(o.Epsilon >= 0.01 && o.Epsilon <= 20) {
		return bad("epsilon is %v, want 0.01 to 20", o.Epsilon)
	}
	if !(o.Delta >= 1e-12 && o.Delta <= 0.01) {
		return bad("delta is %v, want 10^-12 to 0.01", o.Delta)
	}
	if !(o.People >= 1e4 && o.People <= 1e9) {
		return bad("%v people, want 10^4 to 10^9", o.People)
	}
	if n := len(o.Alphabets); n < 1 || n > 4 || slices.ContainsFunc(o.Alphabets, func(k float64) bool { return !(k >= 2 && k <= 1e9) }) {
		return bad("alphabets %v, want one to four of 2 to 10^9", o.Alphabets)
	}
	if n := len(o.Tasks); n < 1 || n > 4 || slices.ContainsFunc(o.Tasks, func(t uint64) bool { return t < 1 || t > 1e5 }) {
		return bad("tasks %v, want one to four of 1 to 10^5", o.Tasks)
	}
	return nil
}

// A job makes one output.
type job struct {
	name string
	// measured outputs are drawn with Options.Measured alone.
	measured bool
	// needs lists the noise that make will ask for; nil if none.
	needs func(Options) []need
	make  func(Options, *budget) (*output, error)
}

// An output before it is written.
type output struct {
	title   string
	picture draw.Picture
	rows    [][]string // of the CSV; the first is its head
}

func jobs() []job {
	all := []job{
		curveJob("paper-000-figure-1", figure1),
		curveJob("paper-000-figure-2", figure2),
		curveJob("paper-000-figure-3", figure3),
		curveJob("paper-000-figure-5", figure5),
	}
	for i, rare := range []float64{0.1, 0.01, 0.001} {
		all = append(all, curveJob("paper-000-figure-"+strconv.Itoa(6+i), func(o Options) sheet { return needles(o, rare) }))
	}
	return append(all,
		job{name: "paper-000-examples", make: examples},
		job{name: "paper-001-figure-1", make: cloaks},
		job{name: "paper-002-figure-2", make: groups},
		job{name: "paper-003-communication", make: communication},
		job{name: "paper-004-figure-2", make: shuffling},
		job{name: "paper-004-table-1", make: amplification},
		job{name: "paper-004-check-ins", measured: true, make: checkIns},
		job{name: "learning-accuracy", measured: true, make: learning},
		job{name: "learning-partitions", measured: true, make: partitions},
	)
}

// Names are the outputs, in the order in which they are drawn.
func Names() []string {
	var names []string
	for _, j := range jobs() {
		names = append(names, j.name)
	}
	return names
}

// Draw draws the outputs and writes each as PNG, SVG and CSV, replacing older files of
// the same names. It uses every core, and takes some seconds. On an error or a cancelled
// context it returns what had been written.
func Draw(ctx context.Context, o Options) ([]Output, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.setDefaults()
	if err := os.MkdirAll(o.Dir, 0o777); err != nil {
		return nil, fmt.Errorf("figures: %w", err)
	}
	b, err := newBudget(o.Epsilon, o.Delta)
	if err != nil {
		return nil, fmt.Errorf("figures: %w", err)
	}
	var done []Output
	for _, j := range jobs() {
		if j.measured && !o.Measured || len(o.Only) > 0 && !slices.Contains(o.Only, j.name) {
			continue
		}
		if j.needs != nil {
			if err := b.prepare(ctx, j.needs(o)); err != nil {
				return done, fmt.Errorf("figures: %s: %w", j.name, err)
			}
		}
		if err := ctx.Err(); err != nil {
			return done, fmt.Errorf("figures: %w", err)
		}
		out, err := j.make(o, b)
		if err != nil {
			return done, fmt.Errorf("figures: %s: %w", j.name, err)
		}
		files, err := out.write(o.Dir, j.name)
		if err != nil {
			return done, fmt.Errorf("figures: %s: %w", j.name, err)
		}
		done = append(done, Output{j.name, out.title, files})
		if o.Progress != nil {
			o.Progress(done[len(done)-1])
		}
	}
	return done, nil
}

// write writes the three files.
func (out *output) write(dir, name string) (files []string, err error) {
	for _, f := range []struct {
		suffix string
		write  func(io.Writer) error
	}{
		{".png", out.picture.WritePNG},
		{".svg", out.picture.WriteSVG},
		{".csv", func(w io.Writer) error { return csv.NewWriter(w).WriteAll(out.rows) }},
	} {
		var buf bytes.Buffer
		if err := f.write(&buf); err != nil {
			return files, err
		}
		if err := os.WriteFile(filepath.Join(dir, name+f.suffix), buf.Bytes(), 0o666); err != nil {
			return files, err
		}
		files = append(files, name+f.suffix)
	}
	return files, nil
}
