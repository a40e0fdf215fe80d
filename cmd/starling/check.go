package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/starling-agg/starling/deploy"
)

func checkCommand() *command {
	return &command{
		name: "check", args: "[--json] FILE...",
		short: "Say all that is wrong with configurations, recipes, invitations, manifests and anchors",
		long: `Each FILE is taken for what it says that it is. Of a configuration the files that it names are read too, as starting would; nothing
is started or changed. Of an invitation it shows the fingerprint, for its owner to read out. Where an anchors file is among the files,
the signatures of each manifest are verified: as a device does where its recipe is among them too.`,
		examples: [][2]string{
			{"starling check leader.toml recipe.starling", "one line for each fault; exit code 6 where there is one"},
			{"starling check manifest.starling recipe.starling anchors.starling", "the manifest's signatures too"},
			{"starling check invitations/leader.invitation", "whose it is, and its fingerprint"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(_ context.Context, e *env, args []string) error {
				if len(args) == 0 {
					return usageOf("check", errors.New("starling check needs files"))
				}
				all, faults := deploy.CheckFiles(args, time.Now()), 0
				for _, c := range all {
					path := c.File
					faults += len(c.Faults)
					if *asJSON {
						continue
					}
					for _, fault := range c.Faults {
						if !strings.HasPrefix(fault, path+":") { // else with its line
							fault = path + ": " + fault
						}
						fmt.Fprintln(e.stdout, "FAULT "+fault)
					}
					if len(c.Faults) == 0 {
						fmt.Fprintf(e.stdout, "ok    %s: %s: %s\n", path, c.Kind, c.Found)
					}
				}
				if *asJSON {
					if err := e.json(map[string]any{"files": all, "faults": faults}); err != nil {
						return err
					}
				}
				if faults > 0 {
					return failf(exitCheck, "correct them, and starling check again", "%s found", counted(faults, "fault", "faults"))
				}
				return nil
			}
		},
	}
}
