package main

import (
	"context"
	"flag"
	"fmt"
)

func restoreCommand() *command {
	return &command{
		name: "restore", args: "--keys | --from DIR [--yes] [--json] CONFIG",
		short: "Go on where files of a leader or helper are lost for good",
		long: `An aggregator whose files do not fit one another does not start, and says which. Put the files back from where they went,
if they are anywhere. With --keys, HPKE keys that are lost for good are replaced: what lies in the directory of keys is destroyed, the next
start makes new ones, clients come back with them, and what was acknowledged under the old ones and not yet folded counts as rejected.
With --from, a store that is lost is replaced by a backup (starling backup). A backup has forgotten what was released after it, so all
tasks of the backup and of CONFIG are closed for good: results that the backup has can still be asked for, nothing else is taken or released, HPKE
keys are destroyed, and reports that waited are lost. Publish each recipe again: starling recipe again. Without --yes it says what it would
do. Where it is interrupted the aggregator does not start until the same command has ended.`,
		examples: [][2]string{
			{"starling restore --from /backups/leader leader.toml", "say what putting that backup back would do"},
			{"starling restore --from /backups/leader --yes leader.toml", "do it"},
			{"starling restore --keys leader.toml", "new HPKE keys for a leader that is not running"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			keys := flags.Bool("keys", false, "replace HPKE keys that are lost for good")
			from := flags.String("from", "", "put the backup in `DIR` back")
			yes := flags.Bool("yes", false, "with --from: do it, all tasks close for good")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				if len(args) != 1 {
					return failf(exitUsage, "starling restore --keys leader.toml", "name one configuration of a leader or a helper")
				}
				files, err := loadAggregators("restore", args)
				if err != nil {
					return err
				}
				if *keys && *from != "" {
					return failf(exitUsage, "starling restore --help", "restore keys or a backup, one of the two")
				}
				if *from != "" {
					return restoreBackup(ctx, e, &files[0], *from, *yes, *asJSON)
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
