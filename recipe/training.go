package recipe

import (
	"crypto/sha256"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/signed"
)

// Training makes rounds of a [Vector] steps of the training of a model: a device's vector
// is what the model that was announced for the round becomes on its data, and counts in
// that round or in none. See package fl/session.
type Training struct {
	// Controller is whose models devices take, and nobody else's: the Ed25519 key that
	// signs which model is for which round.
	Controller signed.PublicKey
	// Terms is the SHA-256 of what else devices must know of the training: layout of the
	// model, clipping, number of rounds. With it a recipe has one training, and nobody can
	// tell two devices two.
	Terms [sha256.Size]byte
}

func readTraining(d *decoder) *Training {
	t := new(Training)
	d.field("training", func() bool { return d.s.CopyBytes(t.Controller[:]) && d.s.CopyBytes(t.Terms[:]) })
	return t
}

// describeTraining says whose models devices report on.
func (r *Recipe) describeTraining(line func(label, format string, args ...any)) {
	t := r.Training
	if t == nil {
		return
	}
	line("Training", "each round is a step: devices report what the model of that round becomes on their data. Models are taken from the controller, "+
		"fingerprint %s, and from nobody else", t.Controller.Fingerprint())
	line("", "the controller sees what is released, as everybody does, and no report; who has its key decides which model devices compute with, "+
		"so that a model chosen in bad faith asks another question, at the same price and behind the same noise")
	line("", "its terms are those of SHA-256 %x", t.Terms[:])
}

// training refuses a training of anything but vectors in rounds, and a controller that is a
// server.
func (v *validator) training(r *Recipe) {
	t := r.Training
	if t == nil {
		return
	}
	if _, ok := r.Vector(); !ok {
		v.add("training", "goes with the query vector")
	}
	if p, ok := r.Path.(TwoServer); ok && p.BatchMode != dap.TimeInterval {
		v.add("training", "goes with time-interval batches: a report counts in the round of its model")
	}
	if r.Views != nil {
		v.add("training", "goes without views: a model is made of one round")
	}
	if err := t.Controller.Validate(); err != nil {
		v.add("training.controller", "%v", err)
	}
	for _, s := range r.signers() {
		if s.key == t.Controller {
			v.add("training.controller", "is the key of the %s: who publishes models is another party", s.name)
		}
	}
	if t.Terms == ([sha256.Size]byte{}) {
		v.add("training.terms", "are missing: the SHA-256 of the training's terms")
	}
}
