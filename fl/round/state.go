package round

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"

	"github.com/starling-agg/starling/fl/optimizer"
	"github.com/starling-agg/starling/fl/session"
)

// Directories of models and states, named by their SHA-256, and of sums, and the record.
const (
	modelsDir  = "models"
	sumsDir    = "sums"
	statesDir  = "states"
	recordFile = "announced"
)

var dirs = []string{modelsDir, sumsDir, statesDir}

const (
	stateMagic = "starling training state v1\n"
	sumMagic   = "starling training sum v1\n"
	// maxFile is the length of the longest of them: a state of four times the parameters.
	maxFile = 1<<10 + 4*8*(session.MaxDimension+1)
)

// A model under training.
type training struct {
	clip       float64
	parameters []float64
	optimizer  optimizer.State
	mean       []float64 // of the parameters after the last steps; empty before these
	averaged   uint32    // how many are in mean
}

// append appends { magic; float64 clip; uint32 steps, averaged; float64 lists parameters<>,
// first<>, second<>, mean<> }, each list behind its length, uint32.
func (t *training) append(b []byte) []byte {
	b = append(b, stateMagic...)
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(t.clip))
	b = binary.BigEndian.AppendUint32(b, t.optimizer.Steps)
	b = binary.BigEndian.AppendUint32(b, t.averaged)
	for _, list := range [][]float64{t.parameters, t.optimizer.First, t.optimizer.Second, t.mean} {
		b = appendFloats(b, list)
	}
	return b
}

func appendFloats(b []byte, list []float64) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(list)))
	for _, x := range list {
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(x))
	}
	return b
}

var errShape = fmt.Errorf("%w: a file of another shape", ErrJournal)

func readFloats(b []byte) (list []float64, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, errShape
	}
	n := binary.BigEndian.Uint32(b)
	if b = b[4:]; uint64(len(b)) < 8*uint64(n) {
		return nil, nil, errShape
	}
	list = make([]float64, n)
	for i := range list {
		list[i] = math.Float64frombits(binary.BigEndian.Uint64(b[8*i:]))
	}
	return list, b[8*n:], nil
}

func readTraining(b []byte) (*training, error) {
	if len(b) < len(stateMagic)+16 || string(b[:len(stateMagic)]) != stateMagic {
		return nil, errShape
	}
	b = b[len(stateMagic):]
	t := &training{clip: math.Float64frombits(binary.BigEndian.Uint64(b))}
	t.optimizer.Steps, t.averaged = binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])
	b = b[16:]
	for _, list := range []*[]float64{&t.parameters, &t.optimizer.First, &t.optimizer.Second, &t.mean} {
		var err error
		if *list, b, err = readFloats(b); err != nil {
			return nil, err
		}
	}
	if len(b) > 0 {
		return nil, errShape
	}
	return t, nil
}

func appendSum(values []float64) []byte { return appendFloats([]byte(sumMagic), values) }

func readSum(b []byte) ([]float64, error) {
	if len(b) < len(sumMagic) || string(b[:len(sumMagic)]) != sumMagic {
		return nil, errShape
	}
	list, rest, err := readFloats(b[len(sumMagic):])
	if err == nil && len(rest) > 0 {
		err = errShape
	}
	return list, err
}

// keep writes a file that is named by its hash.
func (c *Controller) keep(ctx context.Context, dir string, content []byte) (session.Hash, error) {
	h := session.BlobHash(content)
	if err := c.o.Store.Put(ctx, path.Join(dir, h.String()), content); err != nil {
		return h, fmt.Errorf("round: %w", err)
	}
	return h, nil
}

// sumFile is the file of a round's sum, which has one for ever.
func sumFile(index uint32) string { return path.Join(sumsDir, strconv.FormatUint(uint64(index), 10)) }

// keepSum writes the sum of a round. It fails with a *[ContradictionError] where there is
// another one, which was not in the journal yet.
func (c *Controller) keepSum(ctx context.Context, r *record, content []byte) (session.Hash, error) {
	h, name := session.BlobHash(content), sumFile(r.Index)
	switch old, err := c.o.Store.Get(ctx, name); {
	case err == nil && session.BlobHash(old) != h:
		return h, &ContradictionError{r.Round}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return h, fmt.Errorf("round: %w", err)
	}
	if err := c.o.Store.Put(ctx, name, content); err != nil {
		return h, fmt.Errorf("round: %w", err)
	}
	return h, nil
}

// sumOf reads the sum of a round that was collected.
func (c *Controller) sumOf(ctx context.Context, r *record) ([]float64, error) {
	b, err := c.get(ctx, sumFile(r.Index))
	if err != nil {
		return nil, fmt.Errorf("sum of round %d: %w", r.Round, err)
	}
	if session.BlobHash(b) != r.sum {
		return nil, fmt.Errorf("%w: the sum of round %d is not the one that was collected", ErrJournal, r.Round)
	}
	return readSum(b)
}

// get reads a file that has to be there.
func (c *Controller) get(ctx context.Context, name string) ([]byte, error) {
	b, err := c.o.Store.Get(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrJournal, err)
	}
	return b, err
}

// read reads a file that is named by its hash and holds it to that.
func (c *Controller) read(ctx context.Context, dir string, h session.Hash) ([]byte, error) {
	b, err := c.get(ctx, path.Join(dir, h.String()))
	if err != nil {
		return nil, fmt.Errorf("%s of hash %v: %w", dir, h, err)
	}
	if session.BlobHash(b) != h {
		return nil, fmt.Errorf("%w: %s of hash %v has another content", ErrJournal, dir, h)
	}
	return b, nil
}

// sweep removes files that no round of the last ones, and no later state, names.
func (c *Controller) sweep(ctx context.Context) error {
	c.mu.Lock()
	keep := map[string]bool{path.Join(statesDir, c.book.state.String()): true}
	for i := max(0, min(c.book.stepped, len(c.book.rounds))-c.o.Keep); i < len(c.book.rounds); i++ {
		r := &c.book.rounds[i]
		keep[path.Join(modelsDir, r.Model.String())] = true
		keep[sumFile(r.Index)] = true
	}
	c.mu.Unlock()
	return c.o.Store.Retain(ctx, keep)
}
