package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/starling-agg/starling/dap"
)

func resumeCommand() *command {
	return &command{
		name: "resume", args: "[--drop] [--json] [CONFIG]",
		short: "Decide over reports that a leader keeps after a helper's wrong answer",
		long: `Where a helper answers for other reports than it was asked about, or refuses a whole job, the leader ends that job and
keeps its reports, for neither trying for ever nor giving them up is its own to decide; starling why names them. Stop
the leader first. The same request is then sent at the next start, which is right once the helper is mended. With --drop they count as
report_dropped, and their batch may differ from the helper's.`,
		examples: [][2]string{
			{"starling resume leader.toml", "ask the helper again, once the leader runs"},
			{"starling resume --drop leader.toml", "give the reports up"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			drop := flags.Bool("drop", false, "give the reports up")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				if len(args) == 0 {
					args = []string{"leader.toml"}
				}
				files, err := loadAggregators("resume", args)
				if err != nil {
					return err
				}
				if len(files) != 1 || files[0].config.Role != dap.RoleLeader {
					return failf(exitUsage, "starling resume leader.toml", "one leader's configuration is needed")
				}
				n, err := files[0].config.Resume(ctx, *drop)
				if err != nil {
					return ofInput(err, "stop the leader first, if it runs: its store is one process's")
				}
				if *asJSON {
					return e.json(map[string]any{"reports": n, "dropped": *drop})
				}
				switch {
				case n == 0:
					fmt.Fprintln(e.stdout, "no report waits for a decision")
				case *drop:
					fmt.Fprintf(e.stdout, "%s given up; they count as report_dropped\n", counted(int(n), "report", "reports"))
				default:
					fmt.Fprintf(e.stdout, "%s will be sent to the helper again: starling serve leader %s\n", counted(int(n), "report", "reports"), files[0].path)
				}
				return nil
			}
		},
	}
}
