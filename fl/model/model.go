// Package model has the models that devices train, in plain Go and float64: softmax
// regression ([NewLogistic]), and networks of one hidden layer, of which each neuron sees
// the whole input ([NewNetwork]) or slides over an image ([NewConvolution]).
//
// A model has no state. Its parameters are one flat vector, for that is what devices send
// the gradient of: [Model.Parameters] numbers, whose order [Model.Shape] says. Loss is the
// cross-entropy, -ln of the probability that the model gives the right class.
//
// Gradients are exact, by the chain rule; tests compare each entry with finite differences.
package model

import (
	"fmt"
	"math"
)

// A Model tells to which class an input belongs. Its methods do not change it, and are safe
// for concurrent use. They panic for slices of other lengths than stated.
type Model interface {
	// Parameters is the length of the flat vector.
	Parameters() int
	// Shape says in words how the flat vector is laid out.
	Shape() string
	// Start returns the parameters to begin with, of independent standard normal draws.
	Start(normal func() float64) []float64
	// Gradient overwrites dst, of Parameters numbers, with the gradient of the loss of one
	// input, and returns the loss. The label is from 0 to classes-1.
	Gradient(dst, parameters, input []float64, label int) float64
	// Classify returns the most likely class.
	Classify(parameters, input []float64) int
}

// bias is the constant that stands beside the inputs. It is small beside their norm, 1:
// what a clipped gradient spends on it, it has not for the rest.
const bias = 0.3

// softmax turns scores into probabilities.
func softmax(scores []float64) {
	most, sum := math.Inf(-1), 0.0
	for _, s := range scores {
		most = max(most, s)
	}
	for k, s := range scores {
		scores[k] = math.Exp(s - most)
		sum += scores[k]
	}
	for k := range scores {
		scores[k] /= sum
	}
}

// loss returns the loss of scores and turns them into its gradient by them.
func loss(scores []float64, label int) float64 {
	right := scores[label]
	most := math.Inf(-1)
	for _, s := range scores {
		most = max(most, s)
	}
	sum := 0.0
	for _, s := range scores {
		sum += math.Exp(s - most)
	}
	softmax(scores)
	scores[label]--
	return most + math.Log(sum) - right
}

// largest is the index of the largest score, the first of equals.
func largest(scores []float64) int {
	best := 0
	for k, s := range scores {
		if s > scores[best] {
			best = k
		}
	}
	return best
}

// layer adds the products of a matrix, whose rows end in the weight of the constant one,
// with an input.
func layer(scores, weights, input []float64, one float64) {
	width := len(input) + 1
	for k := range scores {
		row := weights[k*width : (k+1)*width]
		s := row[len(input)] * one
		for i, x := range input {
			s += row[i] * x
		}
		scores[k] = s
	}
}

// outer overwrites dst with the gradient of a layer: the products of what its scores have
// with its input.
func outer(dst, scores, input []float64, one float64) {
	width := len(input) + 1
	for k, s := range scores {
		row := dst[k*width : (k+1)*width]
		for i, x := range input {
			row[i] = s * x
		}
		row[len(input)] = s * one
	}
}

func sized(what string, got, want int) {
	if got != want {
		panic(fmt.Sprintf("model: internal error: %d %s, want %d", got, what, want))
	}
}

type logistic struct{ inputs, classes int }

// NewLogistic returns softmax regression: a score for each class that is linear in the
// inputs. It starts at 0.
func NewLogistic(inputs, classes int) Model { return logistic{inputs, classes} }

func (m logistic) Parameters() int { return m.classes * (m.inputs + 1) }

func (m logistic) Shape() string {
	return fmt.Sprintf("%d classes of %d weights and a constant", m.classes, m.inputs)
}

func (m logistic) Start(func() float64) []float64 { return make([]float64, m.Parameters()) }

func (m logistic) scores(parameters, input []float64) []float64 {
	sized("parameters", len(parameters), m.Parameters())
	sized("inputs", len(input), m.inputs)
	scores := make([]float64, m.classes)
	layer(scores, parameters, input, bias)
	return scores
}

func (m logistic) Gradient(dst, parameters, input []float64, label int) float64 {
	sized("entries", len(dst), m.Parameters())
	scores := m.scores(parameters, input)
	l := loss(scores, label)
	outer(dst, scores, input, bias)
	return l
}

func (m logistic) Classify(parameters, input []float64) int {
	return largest(m.scores(parameters, input))
}

type network struct{ inputs, hidden, classes int }

// NewNetwork returns a network of one hidden layer of tanh and of softmax regression on it.
func NewNetwork(inputs, hidden, classes int) Model { return network{inputs, hidden, classes} }

func (m network) Parameters() int { return m.first() + m.classes*(m.hidden+1) }

// first is how many parameters the hidden layer has.
func (m network) first() int { return m.hidden * (m.inputs + 1) }

func (m network) Shape() string {
	return fmt.Sprintf("%d hidden of %d weights and a constant, %d classes of %d and a constant", m.hidden, m.inputs, m.classes, m.hidden)
}

// Start draws the hidden layer, of variance 1 for inputs of norm 1, and leaves the other at
// 0.
func (m network) Start(normal func() float64) []float64 {
	p := make([]float64, m.Parameters())
	for i := range m.first() {
		p[i] = normal()
	}
	return p
}

// scores returns those of the classes and the hidden layer.
func (m network) scores(parameters, input []float64) (scores, hidden []float64) {
	sized("parameters", len(parameters), m.Parameters())
	sized("inputs", len(input), m.inputs)
	all := make([]float64, m.hidden+m.classes)
	hidden, scores = all[:m.hidden], all[m.hidden:]
	layer(hidden, parameters[:m.first()], input, bias)
	for j, z := range hidden {
		hidden[j] = math.Tanh(z)
	}
	layer(scores, parameters[m.first():], hidden, 1)
	return scores, hidden
}

func (m network) Gradient(dst, parameters, input []float64, label int) float64 {
	sized("entries", len(dst), m.Parameters())
	scores, hidden := m.scores(parameters, input)
	l := loss(scores, label)
	outer(dst[m.first():], scores, hidden, 1)
	for j, h := range hidden {
		back := 0.0
		for k, s := range scores {
			back += s * parameters[m.first()+k*(m.hidden+1)+j]
		}
		hidden[j] = back * (1 - h*h)
	}
	outer(dst[:m.first()], hidden, input, bias)
	return l
}

func (m network) Classify(parameters, input []float64) int {
	scores, _ := m.scores(parameters, input)
	return largest(scores)
}
