package train

import "math"

// An optimizer steps the server's model along an estimate of the mean gradient.
type optimizer interface {
	step(parameters, gradient []float64)
}

// sgd is stochastic gradient descent with momentum: v = momentum v + g, p = p - rate v.
type sgd struct {
	rate, momentum float64
	velocity       []float64
}

func (o *sgd) step(p, g []float64) {
	for i, x := range g {
		o.velocity[i] = o.momentum*o.velocity[i] + x
		p[i] -= o.rate * o.velocity[i]
	}
}

// adam is Adam (Kingma and Ba 2015, algorithm 1).
type adam struct {
	rate, beta1, beta2, epsilon float64
	first, second               []float64 // moments
	steps                       int
}

func (o *adam) step(p, g []float64) {
	o.steps++
	c1, c2 := 1-math.Pow(o.beta1, float64(o.steps)), 1-math.Pow(o.beta2, float64(o.steps))
	for i, x := range g {
		o.first[i] = o.beta1*o.first[i] + (1-o.beta1)*x
		o.second[i] = o.beta2*o.second[i] + (1-o.beta2)*x*x
		p[i] -= o.rate * (o.first[i] / c1) / (math.Sqrt(o.second[i]/c2) + o.epsilon)
	}
}

// newOptimizer returns that of the options for a number of parameters.
func (o *Options) newOptimizer(parameters int) optimizer {
	zeros := func() []float64 { return make([]float64, parameters) }
	if o.Optimizer == Adam {
		// beta2 as in the paper; so large an epsilon would only matter for gradients of 0.
		return &adam{rate: o.Rate, beta1: o.Momentum, beta2: 0.999, epsilon: 1e-8, first: zeros(), second: zeros()}
	}
	return &sgd{rate: o.Rate, momentum: o.Momentum, velocity: zeros()}
}
