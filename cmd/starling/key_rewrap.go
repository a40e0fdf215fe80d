package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/starling-agg/starling/aggregator/database"
	"github.com/starling-agg/starling/deploy"
)

// keyListCommand lists what wraps the keys that lie in a database.
func keyListCommand() *command {
	return &command{
		name: "list", args: "[--json] CONFIG",
		short: "List the keys that wrap what processes keep in a database that they share",
		long: `For engine = "postgres": each wrapping key that this machine's wrapping_keys and kms name or that the database knows, and how many of
the aggregator's own keys it wraps.`,
		examples: [][2]string{{"starling key list helper.toml", "before a wrapping key ends"}},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				file, err := oneOfDatabase("key list", args)
				if err != nil {
					return err
				}
				list, err := file.config.WrappingKeys(ctx)
				if err != nil {
					return ofWrapping(file, err)
				}
				if *asJSON {
					keys := []map[string]any{}
					for _, k := range list {
						keys = append(keys, map[string]any{"key": k.Name, "wraps": k.Wraps, "here": k.Here, "keys": k.Keys, "ended": k.Ended})
					}
					return e.json(map[string]any{"keys": keys})
				}
				for _, k := range list {
					fmt.Fprintf(e.stdout, "%s: %s\n", k.Name, describeWrapping(k))
				}
				return nil
			}
		},
	}
}

// describeWrapping says what a wrapping key does, and whether it is here.
func describeWrapping(k database.WrappingKey) string {
	var words []string
	if k.Wraps {
		words = append(words, "the newest")
	}
	if k.Keys > 0 || !k.Ended {
		words = append(words, fmt.Sprintf("wraps %d keys", k.Keys))
	}
	if k.Ended {
		words = append(words, "has ended")
	}
	switch {
	case !k.Here && k.Keys > 0:
		words = append(words, "NOT on this machine")
	case k.Here && k.Ended:
		words = append(words, "still on this machine: starling key rewrap --end destroys it")
	}
	return strings.Join(words, ", ")
}

// keyRewrapCommand wraps the keys that lie in a database by the newest wrapping key.
func keyRewrapCommand() *command {
	return &command{
		name: "rewrap", args: "[--end] [--json] CONFIG",
		short: "Wrap what processes keep in their database by the newest wrapping key",
		long: `For engine = "postgres". Its processes may run or not; all of them must have the newest wrapping key. Where it is stopped, type it
again. With --end the older wrapping keys that wrap nothing any more end: none is used again by any process, their files here
are overwritten and removed, and backups of the database from before open to nobody. Type it on each machine that has the files.`,
		examples: [][2]string{
			{"starling key rewrap helper.toml", "after a newer wrapping key was copied to all processes"},
			{"starling key rewrap --end helper.toml", "on each machine, when no backup from before is needed"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			end := flags.Bool("end", false, "end the older wrapping keys, and destroy their files here")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				file, err := oneOfDatabase("key rewrap", args)
				if err != nil {
					return err
				}
				done, err := file.config.Rewrap(ctx, *end)
				if err != nil && done.Keys > 0 {
					err = fmt.Errorf("%d keys were wrapped again, and then: %w", done.Keys, err)
				}
				if err != nil {
					return ofWrapping(file, err)
				}
				if *asJSON {
					return e.json(map[string]any{"key": done.Key, "keys": done.Keys, "ended": done.Ended, "service": done.Service})
				}
				fmt.Fprintf(e.stdout, "%d keys were wrapped again: %s wraps all\n", done.Keys, done.Key)
				for _, name := range done.Ended {
					fmt.Fprintf(e.stdout, "ended: %s\n", name)
				}
				for _, name := range done.Service {
					fmt.Fprintf(e.stdout, "%s is not a file that this command destroys: take it out of [database], and destroy it where it is\n", name)
				}
				return nil
			}
		},
	}
}

// oneOfDatabase reads the configuration that a command is given.
func oneOfDatabase(name string, args []string) (*aggregatorFile, error) {
	if len(args) != 1 {
		return nil, failf(exitUsage, "starling "+name+" helper.toml", "name one configuration of a leader or helper")
	}
	files, err := loadAggregators(name, args)
	if err != nil {
		return nil, err
	}
	return &files[0], nil
}

// ofWrapping says what to type after an error about wrapping keys.
func ofWrapping(file *aggregatorFile, err error) error {
	if errors.Is(err, deploy.ErrEmbedded) {
		return failf(exitInput, "nothing is to be done: its keys are files, of which docs/operating.md says more under \"HPKE keys\"",
			"%s: %w: nothing wraps its keys", file.path, err)
	}
	return err
}
