package main

import (
	"context"
	"flag"
	"fmt"
)

func restoreCommand() *command {
	return &command{
		name: "restore", args: "--keys [--json] CONFIG",
		short: "Go on where files of a leader or helper are lost for good",
		long: `An aggregator whose files do not fit one another does not start, and says which. Put the files back from where they went,
if they are anywhere. With --keys, HPKE keys that are lost for good are replaced: what lies in the directory of keys is destroyed, the next
start makes new ones, clients come back with them, and what was acknowledged under the old ones and not yet folded counts as rejected.`,
		examples: [][2]string{
			{"starling restore --keys leader.toml", "new HPKE keys for a leader that is not running"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			keys := flags.Bool("keys", false, "replace HPKE keys that are lost for good")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				if len(args) != 1 {
					return failf(exitUsage, "starling restore --keys leader.toml", "name one configuration of a leader or a helper")
				}
				files, err := loadAggregators("restore", args)
				if err != nil {
					return err
				}
				if !*keys {
					return failf(exitUsage, "starling restore --help", "say what to restore")
				}
				if err := files[0].config.ResetKeys(); err != nil {
					return ofInput(err, "stop the aggregator first, if it runs: its directories are one process's")
				}
				if *asJSON {
					return e.json(map[string]any{"keys": "reset"})
				}
				fmt.Fprintf(e.stdout, "the next start makes new keys: starling serve %v %s\n", files[0].config.Role, files[0].path)
				return nil
			}
		},
	}
}
