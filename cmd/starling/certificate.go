package main

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

func recipeCertificate() *command {
	return &command{
		name: "certificate", args: "[--json] [FILE]",
		short: "Make or check the certificate of a recipe's guarantee",
		long: `A recipe file is the recipe, over which its id is, and behind it its certificate: what devices check before they believe a
guarantee, with code that shares nothing with the accountant. recipe new writes both. This checks the certificate of FILE, or
makes the one of a recipe that has none and puts it there. FILE is recipe.starling by default. A recipe that claims nothing has none.`,
		examples: [][2]string{
			{"starling recipe certificate recipe.starling", "check it, or make it where there is none"},
			{"starling recipe certificate --json recipe.starling", "with the certificate in base64"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(_ context.Context, e *env, args []string) error {
				path, err := oneFile("recipe certificate", args, deploy.RecipeFile)
				if err != nil {
					return err
				}
				alone, b, err := deploy.ReadRecipe(path)
				if err != nil {
					return ofInput(err, noRecipe)
				}
				checked, err := recipe.Open(alone, account.Prover)
				if err != nil {
					return ofInput(fmt.Errorf("%s: %w", path, err), noRecipe)
				}
				r := checked.Recipe()
				made := len(b) == 0
				if made {
					if b, err = account.Certify(r); err != nil {
						return &failure{exitCheck, err, "starling recipe show " + path}
					}
				}
				proved, err := r.CheckCertificate(b)
				if err != nil {
					return &failure{exitCheck, fmt.Errorf("%s: %w", path, err), "get the recipe's file anew from its author: devices refuse this one"}
				}
				if made {
					if err := deploy.AddCertificate(path, b); err != nil {
						return ofInput(err, "name a file in a directory that can be written to")
					}
				}
				g := checked.Guarantee()
				if *asJSON {
					return e.json(struct {
						Proved        recipe.Loss `json:"proved"`
						Conditions    []string    `json:"conditions"`
						Unconditional recipe.Loss `json:"unconditional"`
						Certificate   []byte      `json:"certificate"`
						File          string      `json:"file"`
						Made          bool        `json:"made"`
					}{proved, append([]string{}, g.Conditions...), g.Unconditional, b, path, made})
				}
				verb := "checked"
				if made {
					verb = "wrote and checked"
				}
				fmt.Fprintf(e.stdout, "%s the certificate in %s, %d bytes\n", verb, path, len(b))
				holds := ""
				if len(g.Conditions) > 0 {
					fmt.Fprintf(e.stdout, "the recipe gives %s for one %s even where it is known who sent what\n", g.Unconditional, g.Unit)
					holds = ", which holds if " + strings.Join(g.Conditions, ", and ")
				}
				fmt.Fprintf(e.stdout, "it proves %s for one %s without the accountant%s\n", proved, g.Unit, holds)
				if g.PerPerson > 1 {
					fmt.Fprintf(e.stdout, "a person with at most %d of them has %s\n", g.PerPerson, g.Person)
				}
				return nil
			}
		},
	}
}
