package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/dp/certificate"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// certificateSuffix is added to a recipe's file for its certificate.
const certificateSuffix = ".certificate"

// readCertificate reads the certificate beside a recipe's file, nil if there is none.
func readCertificate(recipeFile string) ([]byte, error) {
	f, err := os.Open(recipeFile + certificateSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, certificate.MaxSize+1))
	if err == nil && (len(b) == 0 || len(b) > certificate.MaxSize) {
		err = fmt.Errorf("%s has %d bytes or more, want 1 to %d", f.Name(), len(b), certificate.MaxSize)
	}
	return b, err
}

func recipeCertificate() *command {
	return &command{
		name: "certificate", args: "[--json] [FILE]",
		short: "Make or check the certificate of a recipe's guarantee",
		long: "Writes the certificate to FILE.certificate, or checks the one that is there. Devices check it with code that shares nothing\n" +
			"with the accountant, and starling send does so before it sends. FILE is recipe.starling by default. Whatever a recipe claims has\n" +
			"a certificate: what the servers' noise gives, devices' coins and dummies, and randomized reports among others.",
		examples: [][2]string{
			{"starling recipe certificate recipe.starling", "make it, and check it from then on"},
			{"starling recipe certificate --json recipe.starling", "with the certificate in base64"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(_ context.Context, e *env, args []string) error {
				path, err := oneFile("recipe certificate", args, deploy.RecipeFile)
				if err != nil {
					return err
				}
				checked, err := deploy.OpenRecipe(path)
				if err != nil {
					return ofInput(err, noRecipe)
				}
				r := checked.Recipe()
				b, err := readCertificate(path)
				if err != nil {
					return ofInput(err, "move the file away to make it anew")
				}
				made := b == nil
				if made {
					if b, err = account.Certify(r); err != nil {
						return &failure{exitCheck, err, "every device computes the guarantee all the same: starling recipe show " + path}
					}
				}
				proved, err := r.CheckCertificate(b)
				if err != nil {
					return &failure{exitCheck, err, "starling recipe show " + path}
				}
				if made {
					if err := os.WriteFile(path+certificateSuffix, b, 0o644); err != nil {
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
					}{proved, append([]string{}, g.Conditions...), g.Unconditional, b, path + certificateSuffix, made})
				}
				verb := "checked"
				if made {
					verb = "wrote and checked"
				}
				fmt.Fprintf(e.stdout, "%s %s%s, %d bytes\n", verb, path, certificateSuffix, len(b))
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
