package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/starling-agg/starling/aggregator/backup"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/deploy"
)

func backupCommand() *command {
	return &command{
		name: "backup", args: "--out DIR [--json] CONFIG",
		short: "Copy the store of a leader or helper, which may run",
		long: `DIR must be empty or not there. One that runs goes on meanwhile, and its backup is of one moment. The backup has counts, the ledger of releases, the results, and this server's share of the sums of
open batches: keep those of leader and helper apart, as the servers are. It has no keys, and no reports that wait. For the cost of a
restore see starling restore --help. With engine = "postgres" it makes none, and says what to type: PostgreSQL's own pg_dump copies the schema
at one moment, and its pg_restore puts it back; starling restore --database is next then.`,
		examples: [][2]string{
			{"starling backup --out /backups/leader leader.toml", "a backup of the leader as it is now"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			out := flags.String("out", "", "the directory of the backup: `DIR`")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				if len(args) != 1 || *out == "" {
					return failf(exitUsage, "starling backup --out DIR leader.toml", "name a directory and one configuration of a leader or a helper")
				}
				files, err := loadAggregators("backup", args)
				if err != nil {
					return err
				}
				if c := files[0].config; c.Engine == deploy.Postgres {
					return failf(exitUsage, c.DumpCommand(*out),
						"%s: what it has is in a database, whose own programs copy it, running or not, as a role that may read all", files[0].path)
				}
				m, err := backupRunning(ctx, files[0].config, *out)
				if errors.Is(err, errStopped) {
					m, err = files[0].config.Backup(ctx, *out)
				}
				if errors.Is(err, backup.ErrExists) {
					return failf(exitInput, "name another directory; a backup is never written over", "%s: %w", *out, err)
				}
				if err != nil {
					return stoppedFirst(err)
				}
				if *asJSON {
					return e.json(m)
				}
				fmt.Fprintf(e.stdout, "%s: the %s %s after %s, %d bytes\n", *out, m.Role, m.Party, counted(int(m.Releases), "release", "releases"), m.Size)
				return nil
			}
		},
	}
}

// backupRunning makes a backup of an aggregator that runs.
func backupRunning(ctx context.Context, c *deploy.Aggregator, out string) (*backup.Manifest, error) {
	return c.ReceiveBackup(func() (io.ReadCloser, error) {
		resp, err := operate(ctx, c, status.BackupPath, nil)
		if err != nil {
			return nil, err
		}
		return resp.Body, nil
	}, out)
}

func restoreBackup(ctx context.Context, e *env, f *aggregatorFile, from string, yes, asJSON bool) error {
	var plan *backup.Plan
	err := f.config.Restore(ctx, from, func(p *backup.Plan) error {
		plan = p
		if !asJSON {
			fmt.Fprintf(e.stderr, "the backup of %s has %s; the record knows of %d more, which are forgotten\n",
				p.Made.Format(time.RFC3339), counted(int(p.Releases), "release", "releases"), p.Forgotten)
			fmt.Fprintf(e.stderr, "all tasks close for good, waiting reports are lost: restore epoch %d\n", p.Next)
			if len(f.config.HPKEKeys) > 0 {
				fmt.Fprintf(e.stderr, "the files in hpke_keys are yours: make others, with other ids, before you start it again\n")
			}
		}
		if !yes {
			return failf(exitUsage, fmt.Sprintf("starling restore --from %s --yes %s", from, f.path), "nothing was done: say --yes")
		}
		return nil
	})
	switch {
	case errors.Is(err, backup.ErrDamaged):
		return failf(exitInput, "take another copy of the backup, or an older backup", "%w", err)
	case errors.Is(err, backup.ErrForeign):
		return failf(exitInput, "a backup is of one aggregator: name its own backup, or its own configuration", "%w", err)
	case errors.Is(err, backup.ErrRecord):
		return failf(exitInput, "put the `record` directory back; without it this store cannot go on: publish its recipes anew in empty directories", "%w", err)
	case err != nil:
		return stoppedFirst(err)
	}
	if asJSON {
		return e.json(map[string]any{"restore_epoch": plan.Next, "backup": plan.Manifest, "forgotten": plan.Forgotten})
	}
	fmt.Fprintf(e.stdout, "restored; start it with starling serve %v %s, and publish each recipe again: starling recipe again OLD NEW\n", f.config.Role, f.path)
	return nil
}

// stoppedFirst says what most often is wrong where no command has said.
func stoppedFirst(err error) error {
	if code, hint := classify(err); hint != "" || errors.As(err, new(*failure)) {
		if errors.As(err, new(*failure)) {
			return err
		}
		return &failure{code, err, hint}
	}
	return ofInput(err, "stop the aggregator first, if it runs: its directories are one process's")
}
