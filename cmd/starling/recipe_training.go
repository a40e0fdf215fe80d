package main

import (
	"errors"
	"flag"
	"fmt"

	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
)

// trainingFlags are those of recipe new about a training.
type trainingFlags struct{ controller, terms *string }

func newTrainingFlags(flags *flag.FlagSet) *trainingFlags {
	return &trainingFlags{
		controller: flags.String("controller", "", "with --terms: rounds are steps of a training, whose models the holder of this key publishes; its digits, as starling key root prints them: `KEY`"),
		terms:      flags.String("terms", "", "what devices must know of the training: layout of the model, clipping, rounds; a `FILE` as docs/learning.md describes it"),
	}
}

// set fills in the options' training.
func (f *trainingFlags) set(o *account.Options) error {
	if *f.controller == "" && *f.terms == "" {
		return nil
	}
	if *f.controller == "" || *f.terms == "" {
		return errors.New("--controller and --terms go together")
	}
	key, err := signed.ParsePublicKey(*f.controller)
	if err != nil {
		return fmt.Errorf("--controller: %w", err)
	}
	terms, err := deploy.ReadTerms(*f.terms)
	if err != nil {
		return ofInput(err, "docs/learning.md shows a terms file")
	}
	hash, err := terms.Hash()
	if err != nil {
		return err
	}
	o.Training = &recipe.Training{Controller: key, Terms: hash}
	if want := session.Entries(&recipe.Recipe{Query: o.Query, Projection: o.Projection}); want != terms.Entries() {
		return fmt.Errorf("--query: devices would report %d numbers of the model in %s, and the query takes %d", terms.Entries(), *f.terms, want)
	}
	return nil
}
