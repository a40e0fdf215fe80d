package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"

	"github.com/starling-agg/starling/deploy"
)

func recipeAgain() *command {
	return &command{
		name: "again", args: "[--json] OLD NEW",
		short: "Make a recipe anew whose servers lost what they knew of it",
		long: `NEW is OLD with an epoch that is one higher: it asks the same with the same guarantee, and has an id and a task of its own.
It is for a recipe whose leader or helper lost its store, and must release nothing more of it. Answers given under OLD count in
devices' budgets as before, and those under NEW count beside them. NEW must not exist.`,
		examples: [][2]string{
			{"starling recipe again recipe.starling recipe-1.starling", "publish a recipe again"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print the recipe as one JSON object")
			return func(_ context.Context, e *env, args []string) error {
				if len(args) != 2 {
					return usageOf("recipe again", errors.New("name a recipe, and the file to make"))
				}
				checked, err := deploy.OpenRecipe(args[0])
				if err != nil {
					return ofInput(err, noRecipe)
				}
				again := *checked.Recipe()
				r := &again
				if r.Epoch == math.MaxUint32 {
					return failf(exitInput, "starling recipe new --help", "%s: its epoch is the last one", args[0])
				}
				r.Epoch++
				size, err := writeRecipe(r, args[1])
				if err != nil {
					return err
				}
				if *asJSON {
					return e.showRecipe(r, true)
				}
				id, err := r.ID()
				if err != nil {
					return err
				}
				fmt.Fprintf(e.stdout, "epoch %d: %s\n", r.Epoch, id)
				fmt.Fprintf(e.stderr, "wrote %s, %d bytes; starling task add --recipe %s at leader and helper, name it in the collector's configuration, and give it to the devices\n", args[1], size, args[1])
				return nil
			}
		},
	}
}
