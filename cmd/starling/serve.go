package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/lab/deploy"
	"github.com/starling-agg/starling/service"
)

func serveCommand() *command {
	return &command{
		name:  "serve",
		short: "Run a leader or a helper until SIGTERM",
		sub:   []*command{serveRole(dap.RoleLeader), serveRole(dap.RoleHelper)},
	}
}

func serveRole(role dap.Role) *command {
	name := role.String()
	what := map[dap.Role]string{
		dap.RoleLeader: "takes reports from clients, verifies them with the helper and answers the collector",
		dap.RoleHelper: "verifies reports with the leader and holds the other half of every sum",
	}[role]
	return &command{
		name: name, args: "[--check] [CONFIG]",
		short: "Run a " + name,
		long: fmt.Sprintf(`The %s %s.
CONFIG is a TOML file, ./%s.toml if none is named. Logs go to stderr, one JSON object a line; SIGTERM drains and exits 0.
The exit code is 0 after an orderly stop.`, name, what, name),
		examples: [][2]string{
			{"starling serve " + name + " --check " + name + ".toml", "read the configuration and all it names, start nothing"},
			{"starling serve " + name + " " + name + ".toml", "run"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			check := flags.Bool("check", false, "validate and exit")
			asJSON := flags.Bool("json", false, "with --check, print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				path, err := oneFile("serve "+name, args, name+".toml")
				if err != nil {
					return err
				}
				config, err := deploy.LoadAggregator(path, role)
				if err != nil {
					return err
				}
				if err := config.Check(); err != nil {
					return &failure{exitInput, fmt.Errorf("%s: %w", path, err), hintOf(err)}
				}
				if *check {
					if *asJSON {
						return e.json(map[string]any{"config": path, "valid": true, "tasks": len(config.Tasks)})
					}
					fmt.Fprintf(e.stdout, "%s is valid: %d task(s)\n", path, len(config.Tasks))
					return nil
				}
				log := service.NewLogger(e.stderr, config.Log.Level)
				started := func() { log.Info("started", slog.String("role", name), slog.String("version", thisBuild().Version)) }
				if err := service.Run(ctx, 0, started, config.Parts(log, deploy.Listeners{})...); err != nil {
					return err
				}
				log.Info("stopped", slog.String("role", name))
				return nil
			}
		},
	}
}

// oneFile takes the one argument of a command, or its default.
func oneFile(path string, args []string, or string) (string, error) {
	switch len(args) {
	case 0:
		return or, nil
	case 1:
		return args[0], nil
	}
	return "", failf(exitUsage, "starling "+path+" --help", "starling %s takes one file, not %d", path, len(args))
}

// hintOf is the hint that classify knows for an error inside another.
func hintOf(err error) string {
	_, hint := classify(err)
	return hint
}
