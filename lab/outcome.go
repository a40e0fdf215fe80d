package lab

import "fmt"

// An Outcome is what every lab found. Its JSON keys are only added to.
type Outcome struct {
	// Sent counts honest and malicious reports; Accepted those in released batches;
	// Rejected the others, by the reason that the servers gave.
	Sent     uint64            `json:"reports_sent"`
	Accepted uint64            `json:"reports_accepted"`
	Rejected map[string]uint64 `json:"reports_rejected"`

	// Epsilon and Delta are computed from the recipe, as each client computes them before
	// it answers, and Guarantee says them in words.
	Epsilon   float64 `json:"epsilon"`
	Delta     float64 `json:"delta"`
	Guarantee string  `json:"guarantee"`
	// Conditions are the author's word that Epsilon counts on; see [recipe.Guarantee].
	Conditions []string `json:"conditions"`
	RecipeID   string   `json:"recipe_id"`

	SecondsTotal  float64            `json:"seconds_total"`
	SecondsByStep map[string]float64 `json:"seconds_by_step"`

	Table string `json:"table"`
	Kept  string `json:"kept,omitempty"`
}

// promised takes down what the recipe promises; the words are the lab's own.
func (f *frame) promised(o *Outcome, words string) {
	g := f.guarantee
	o.Epsilon, o.Delta, o.Guarantee = g.Epsilon, g.Delta, words+f.certified
	o.Conditions, o.RecipeID = append([]string{}, g.Conditions...), f.client.RecipeID().String()
}

// ended takes down what is known at the end of a lab.
func (f *frame) ended(o *Outcome) {
	o.Rejected, o.SecondsTotal, o.SecondsByStep, o.Kept = f.rejected, f.total, f.seconds, f.o.Keep
}

// rejected is the number of rejected reports.
func (o *Outcome) rejected() (n uint64) {
	for _, x := range o.Rejected {
		n += x
	}
	return n
}

// A Shape says of how many vectors a lab is made, and how long they are.
type Shape struct {
	// Devices take part, 100 to 2,019. Each has one vector, made of ten rows of the table.
	Devices int
	// Dimension of a vector, 2 to 100,000 and even.
	Dimension int
}

// withDefaults fills in what is not said.
func (v Shape) withDefaults(devices, dimension int) Shape {
	if v.Devices == 0 {
		v.Devices = devices
	}
	if v.Dimension == 0 {
		v.Dimension = dimension
	}
	return v
}

// validate says what is wrong with a shape that is filled in.
func (v Shape) validate() error {
	switch {
	case v.Devices < minVectors || v.Devices > maxVectors:
		return fmt.Errorf("lab: %d vectors; want %d to %d", v.Devices, minVectors, maxVectors)
	case v.Dimension < 2 || v.Dimension > maxVectorDim || v.Dimension%2 != 0:
		return fmt.Errorf("lab: dimension %d; want an even number from 2 to %d", v.Dimension, maxVectorDim)
	}
	return nil
}
