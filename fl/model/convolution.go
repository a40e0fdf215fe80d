package model

import (
	"fmt"
	"math"
)

// convolution slides filters over a square image; its methods keep to one order of the
// parameters: of each filter its weights, row by row, and a constant; then of each class the
// weights of all pooled cells, the filters of a cell side by side, and a constant.
type convolution struct {
	side, filter, stride, filters, classes int
	cells                                  int // pooled cells in a row
}

// pool is the side of the squares of positions over which a filter's answers are averaged.
const pool = 2

// Filters are held in units of 1/gain, and cells are scaled by damp: of a clipped gradient,
// that is how much filters and classes have. Chosen on the tuning images of MNIST.
const (
	gain = 8
	damp = 0.3
)

// NewConvolution returns a network of one hidden layer of tanh, whose neurons are filters of
// filter x filter pixels that slide over a square image of side x side by stride; their
// answers are averaged over 2 x 2 positions, with softmax regression on that. Positions that
// fill no square are left out.
func NewConvolution(side, filter, stride, filters, classes int) Model {
	positions := (side-filter)/stride + 1
	return convolution{side, filter, stride, filters, classes, positions / pool}
}

// weights of a filter, with its constant.
func (m convolution) weights() int { return m.filter*m.filter + 1 }

// first is how many parameters the filters have.
func (m convolution) first() int { return m.filters * m.weights() }

// pooled is how many numbers classes see.
func (m convolution) pooled() int { return m.cells * m.cells * m.filters }

func (m convolution) Parameters() int { return m.first() + m.classes*(m.pooled()+1) }

func (m convolution) Shape() string {
	return fmt.Sprintf("%d filters of %d x %d weights and a constant, %d classes of %d x %d x %d and a constant", m.filters, m.filter, m.filter, m.classes,
		m.cells, m.cells, m.filters)
}

// Start draws the filters and leaves the rest at 0.
func (m convolution) Start(normal func() float64) []float64 {
	p := make([]float64, m.Parameters())
	for f := range m.filters {
		for i := range m.weights() - 1 {
			p[f*m.weights()+i] = normal()
		}
	}
	return p
}

// patch copies the pixels under the filters at a position.
func (m convolution) patch(dst, input []float64, row, column int) {
	for i := range m.filter {
		copy(dst[i*m.filter:(i+1)*m.filter], input[(row*m.stride+i)*m.side+column*m.stride:])
	}
}

// scores returns those of the classes, what they see, and the answers of the filters at all
// positions.
func (m convolution) scores(parameters, input []float64) (scores, pooled, answers []float64) {
	sized("parameters", len(parameters), m.Parameters())
	sized("inputs", len(input), m.side*m.side)
	positions := m.cells * pool
	scores, pooled, answers = make([]float64, m.classes), make([]float64, m.pooled()), make([]float64, positions*positions*m.filters)
	patch := make([]float64, m.weights()-1)
	for row := range positions {
		for column := range positions {
			m.patch(patch, input, row, column)
			at := answers[(row*positions+column)*m.filters:][:m.filters]
			cell := pooled[(row/pool*m.cells+column/pool)*m.filters:][:m.filters]
			for f := range at {
				weights := parameters[f*m.weights():][:m.weights()]
				s := 0.0
				for i, x := range patch {
					s += weights[i] * x
				}
				at[f] = math.Tanh(gain*s + weights[len(patch)])
				cell[f] += at[f] * (damp / (pool * pool))
			}
		}
	}
	layer(scores, parameters[m.first():], pooled, 1)
	return scores, pooled, answers
}

func (m convolution) Gradient(dst, parameters, input []float64, label int) float64 {
	sized("entries", len(dst), m.Parameters())
	scores, pooled, answers := m.scores(parameters, input)
	l := loss(scores, label)
	outer(dst[m.first():], scores, pooled, 1)
	back := pooled // what the loss has by each cell, over the share of a position
	for c := range back {
		back[c] = 0
		for k, s := range scores {
			back[c] += s * parameters[m.first()+k*(m.pooled()+1)+c]
		}
		back[c] *= damp / (pool * pool)
	}
	clear(dst[:m.first()])
	positions, patch := m.cells*pool, make([]float64, m.weights()-1)
	for row := range positions {
		for column := range positions {
			m.patch(patch, input, row, column)
			at := answers[(row*positions+column)*m.filters:][:m.filters]
			cell := back[(row/pool*m.cells+column/pool)*m.filters:][:m.filters]
			for f, h := range at {
				weights := dst[f*m.weights():][:m.weights()]
				z := cell[f] * (1 - h*h)
				for i, x := range patch {
					weights[i] += gain * z * x
				}
				weights[len(patch)] += z
			}
		}
	}
	return l
}

func (m convolution) Classify(parameters, input []float64) int {
	scores, _, _ := m.scores(parameters, input)
	return largest(scores)
}
