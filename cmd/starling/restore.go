package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator/database"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/deploy"
)

func restoreCommand() *command {
	return &command{
		name: "restore", args: "--keys | --data-keys [--yes] | --from DIR [--yes] | --database [--yes] [--json] CONFIG",
		short: "Go on where files of a leader or helper are lost for good",
		long: `An aggregator whose files do not fit one another does not start, and says which. Put the files back from where they went,
if they are anywhere. With --keys, HPKE keys that are lost for good are replaced: what lies in the directory of keys is destroyed, the next
start makes new ones, clients come back with them, and what was acknowledged under the old ones and not yet folded counts as rejected.
With --data-keys, data keys whose files are lost for good are given up: nothing of their time is ever released by this server, which starts
again where its newest key is among them. With --from, a store that is lost is replaced by a backup (starling backup). A backup has forgotten what was released after it, so all
tasks of the backup and of CONFIG are closed for good: results that the backup has can still be asked for, nothing else is taken or released, HPKE
keys are destroyed, and reports that waited are lost. Publish each recipe again: starling recipe again. Without --yes the two say what they
would do. With --database, a database of engine = "postgres" that was put back with PostgreSQL's own means is taken for the aggregator's own
from now on, with the same consequences; stop all of its processes first. Where it is interrupted the aggregator does not start until the same command has ended.`,
		examples: [][2]string{
			{"starling restore --from /backups/leader leader.toml", "say what putting that backup back would do"},
			{"starling restore --from /backups/leader --yes leader.toml", "do it"},
			{"starling restore --database --yes helper.toml", "a database of PostgreSQL was put back"},
			{"starling restore --keys leader.toml", "new HPKE keys for a leader that is not running"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			keys := flags.Bool("keys", false, "replace HPKE keys that are lost for good")
			data := flags.Bool("data-keys", false, "give up data keys that are lost for good")
			from := flags.String("from", "", "put the backup in `DIR` back")
			base := flags.Bool("database", false, "take a database that was put back for the aggregator's own")
			yes := flags.Bool("yes", false, "with --from, --data-keys and --database: do it, for good")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				if len(args) != 1 {
					return failf(exitUsage, "starling restore --keys leader.toml", "name one configuration of a leader or a helper")
				}
				files, err := loadAggregators("restore", args)
				if err != nil {
					return err
				}
				what := 0
				for _, given := range []bool{*keys, *data, *from != "", *base} {
					if given {
						what++
					}
				}
				if what > 1 {
					return failf(exitUsage, "starling restore --help", "restore keys, data keys, a backup or a database, one of the four")
				}
				if *base {
					return restoreDatabase(ctx, e, &files[0], *yes, *asJSON)
				}
				if *data {
					return giveUpDataKeys(ctx, e, &files[0], *yes, *asJSON)
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

// giveUpDataKeys ends data keys that are lost, and says what depended on them.
func giveUpDataKeys(ctx context.Context, e *env, f *aggregatorFile, yes, asJSON bool) error {
	lost, err := f.config.LostDataKeys(ctx, yes)
	if err != nil {
		return stoppedFirst(err)
	}
	reports := uint64(0)
	if yes && len(lost) > 0 {
		s, err := f.config.StoppedStatus(ctx)
		if err != nil {
			return stoppedFirst(err)
		}
		reports = unreleased(s, lost)
	}
	if asJSON {
		if err := e.json(map[string]any{"lost_data_keys": lost, "given_up": yes, "reports": reports}); err != nil {
			return err
		}
	} else {
		for _, k := range lost {
			fmt.Fprintf(e.stdout, "%s: of reports from %s to %s\n", k.File, k.From.Format(time.RFC3339), k.Until.Format(time.RFC3339))
		}
	}
	switch {
	case len(lost) == 0 && !asJSON:
		fmt.Fprintln(e.stdout, "no data key is lost")
	case len(lost) > 0 && !yes:
		return failf(exitUsage, "put the files back, or starling restore --data-keys --yes "+f.path, "nothing was done: nothing of that time could ever be released")
	case !asJSON && yes:
		fmt.Fprintf(e.stdout, "given up, with %s of that time that were not released; start it with starling serve %v %s\n",
			counted(int(reports), "report", "reports"), f.config.Role, f.path)
	}
	return nil
}

// unreleased counts the reports of batches of the keys' times that are not released. A
// batch that is asked for in one with a later one has that one's key.
func unreleased(s *status.Status, lost []status.DataKey) (reports uint64) {
	for _, t := range s.Tasks {
		for _, b := range t.Batches {
			at := time.Unix(int64(b.Start*t.TimePrecision), 0)
			if b.State != "closed" && slices.ContainsFunc(lost, func(k status.DataKey) bool { return !at.Before(k.From) && at.Before(k.Until) }) {
				reports += b.Verified + b.Waiting
			}
		}
	}
	return reports
}

// restoreDatabase takes a database that was put back for the aggregator's own.
func restoreDatabase(ctx context.Context, e *env, f *aggregatorFile, yes, asJSON bool) error {
	if !yes {
		return failf(exitUsage, "stop all processes, then starling restore --database --yes "+f.path,
			"nothing was done: all tasks would close for good, and reports that wait would be lost")
	}
	done, err := f.config.RestoreDatabase(ctx)
	switch {
	case errors.Is(err, deploy.ErrEmbedded):
		return failf(exitUsage, "starling restore --from DIR "+f.path, "%w", err)
	case errors.Is(err, database.ErrNoMarks):
		return failf(exitInput, "publish its recipes anew, in a schema that is new (docs/recovery.md): what this one has released since the backup nobody knows", "%w", err)
	case err != nil:
		return stoppedFirst(err)
	}
	if asJSON {
		return e.json(done)
	}
	fmt.Fprintf(e.stdout, "restore epoch %d: %s closed, %s of waiting ones dropped, %s after the backup forgotten\n", done.Epoch,
		counted(done.Tasks, "task", "tasks"), counted(int(done.Reports), "report", "reports"), counted(done.Forgotten, "task", "tasks"))
	fmt.Fprintf(e.stdout, "start it with starling serve %v %s, and publish each recipe again: starling recipe again OLD NEW\n", f.config.Role, f.path)
	return nil
}
