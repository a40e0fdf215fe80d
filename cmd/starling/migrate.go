package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/starling-agg/starling/aggregator/database"
	"github.com/starling-agg/starling/deploy"
)

func migrateCommand() *command {
	return &command{
		name: "migrate", args: "[--finish] [--json] CONFIG",
		short: "Bring the database of a leader or helper to this version",
		long: `For engine = "postgres". It makes the schema where there is none, as the role in database.owner, or else in
database.file, and applies the migrations that this version of starling has and the schema lacks. Processes of the version
before go on meanwhile and afterwards, until they are replaced one by one. A migration that takes away what these need is
applied with --finish alone, when none of them runs any more. Again is harmless.`,
		examples: [][2]string{
			{"starling migrate helper.toml", "before the first process of a new version is started"},
			{"starling migrate leader.toml", "the same; leader and helper have a schema each"},
			{"starling migrate --finish helper.toml", "after the last one of the old version has stopped"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			finish := flags.Bool("finish", false, "apply what takes away from older versions, too")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				if len(args) != 1 {
					return failf(exitUsage, "starling migrate helper.toml", "name one configuration of a leader or helper")
				}
				files, err := loadAggregators("migrate", args)
				if err != nil {
					return err
				}
				before, after, err := files[0].config.Migrate(ctx, *finish)
				if errors.Is(err, deploy.ErrEmbedded) {
					return failf(exitInput, "nothing is to be done: starling serve, or set engine = \"postgres\" (docs/operating.md, \"Several processes\")",
						"%s: %w: its file is brought to this version by the start", files[0].path, err)
				}
				if err != nil {
					return err
				}
				if *asJSON {
					return e.json(map[string]any{"schema": after.Name, "before": before.Version, "version": after.Version,
						"least": after.Least, "newest": after.Newest})
				}
				fmt.Fprintln(e.stdout, migrated(before, after))
				return nil
			}
		},
	}
}

// migrated says how far a schema was and is.
func migrated(before, after database.Schema) string {
	text := fmt.Sprintf("%s: version %d", after.Name, after.Version)
	if before.Version != after.Version {
		text += fmt.Sprintf(", was %d", before.Version)
	}
	if after.Least < after.Version {
		text += fmt.Sprintf("; works with starling of version %d or newer of the schema", after.Least)
	}
	if after.Version < after.Newest {
		text += fmt.Sprintf("; migration %d is for --finish, when no older starling runs", after.Version+1)
	}
	return text
}
