package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"strings"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/service"
)

// serveCommand is the group of commands that run a party, which whom names in words.
func serveCommand(whom string, sub ...*command) *command {
	return &command{name: "serve", short: "Run " + whom + " until SIGTERM", sub: sub}
}

// A server is a configuration that was read and can run.
type server struct {
	check  func() error // reads every file that the configuration names
	holds  string       // what a valid configuration holds, in words
	fields map[string]any
	level  slog.Level
	parts  func(*slog.Logger) ([]service.Part, error)
}

func serveRole(role dap.Role) *command {
	what := map[dap.Role]string{
		dap.RoleLeader: "takes reports from clients, verifies them with the helper and answers the collector",
		dap.RoleHelper: "verifies reports with the leader and holds the other half of every sum",
	}[role]
	return serveParty(role.String(), what, "", func(path string) (*server, error) {
		config, err := deploy.LoadAggregator(path, role)
		if err != nil {
			return nil, err
		}
		holds := counted(len(config.Tasks), "task", "tasks")
		if n := len(config.Tenants); n > 0 {
			holds += ", " + counted(n, "tenant", "tenants")
		}
		return &server{
			check: func() error { return errors.Join(config.Serves(), config.Check()) }, holds: holds,
			fields: map[string]any{"tasks": len(config.Tasks)}, level: config.Log.Level,
			parts: func(log *slog.Logger) ([]service.Part, error) { return config.Parts(log, deploy.Listeners{}), nil },
		}, nil
	})
}

// The least that a relay and a gateway behind it are told; a test reads both. No
// deployment of the lab has these files.
const (
	relayExample = `role = "relay"
gateway = "http://127.0.0.1:8002/" # https, where it is on another machine
[public]
address = "127.0.0.1:8001"         # where devices come
[local]
address = "127.0.0.1:9001"         # for the operator: /readyz /statusz /metrics`

	gatewayExample = `role = "gateway"
data = "gateway"                   # directory of what was opened before
epochs = "epochs"                  # directory; starling manifest new --key epochs/1.key --out epochs/1.manifest
targets = [{ url = "http://127.0.0.1:8000/" }] # the leader, as starling manifest show names it
[public]
address = "127.0.0.1:8002"         # where the relay comes
[local]
address = "127.0.0.1:9002"         # for the operator: /readyz /statusz /metrics`

	logExample = `role = "log"
data = "log"                       # directory of the entries
key = "log.key"                    # starling log key --name log.example --out log.key
policy = "log.policy"              # what devices have: log, witnesses, quorum; docs/log.md
anchors = "anchors.starling"       # the owners who may have something logged
[public]
address = "127.0.0.1:8003"         # where everybody comes
[local]
address = "127.0.0.1:9003"         # for the operator: /readyz /statusz /metrics`

	witnessExample = `role = "witness"
data = "witness"                   # directory of what was signed; never put it back
key = "witness.key"                # starling log key --witness --name witness.example --out witness.key
logs = ["KEY"]                     # the logs that are followed, as their policies name them
[public]
address = "127.0.0.1:8004"         # where logs come
[local]
address = "127.0.0.1:9004"         # for the operator: /readyz /statusz /metrics`

	agentExample = `role = "agent"
socket = "agent/agent.sock"        # where processes contribute; its directory is the owner's alone
# receipts = "receipts/agent.sock" # where a filter of another user asks; docs/agent.md
data = "agent/ledger"              # what was spent; it must not go back to a backup
budget_epsilon = 8                 # over all recipes, at budget_delta
budget_delta = 1e-4
anchors = "anchors.starling"       # came with the software
[[tasks]]
recipe = "recipe.starling"
manifest = "manifest.starling"     # of the relay
data = ["digits"]                  # what a contribution must say that it is made of
[local]
address = "127.0.0.1:9006"         # for the owner: /readyz /statusz /metrics`

	controllerExample = `role = "controller"
data = "controller"                # directory of the journal and of models
key = "controller.key"             # starling key root --out controller.key
terms = "training.toml"            # layout of the model, clipping, rounds; docs/learning.md
collector = "collector.toml"       # who asks for the rounds of the recipe
cohort = 1000                      # how many devices report in a round
[optimizer]
rate = 0.5
momentum = 0.9
[public]
address = "127.0.0.1:8005"         # where relays come, or devices where there is none
[local]
address = "127.0.0.1:9005"         # for the operator: /readyz /statusz /metrics`
)

func serveAgent() *command {
	const what = "takes part in trainings for processes of this machine: it has the ledger, the coin and the credentials, and sends when it is time"
	return serveParty("agent", what, agentExample, func(path string) (*server, error) {
		config, err := deploy.LoadAgent(path)
		if err != nil {
			return nil, err
		}
		return &server{
			check: config.Check, holds: fmt.Sprintf("%d recipes", len(config.Tasks)), level: config.Log.Level,
			parts: func(log *slog.Logger) ([]service.Part, error) { return config.Parts(log, deploy.Listeners{}), nil },
		}, nil
	})
}

func serveRelay() *command {
	const what = "forwards sealed requests to one gateway, which then does not learn who sent them"
	return serveParty("relay", what, relayExample, func(path string) (*server, error) {
		config, err := deploy.LoadRelay(path)
		if err != nil {
			return nil, err
		}
		return &server{
			check: config.Check, holds: "one gateway", level: config.Log.Level,
			parts: func(log *slog.Logger) ([]service.Part, error) { return config.Parts(log, deploy.Listeners{}) },
		}, nil
	})
}

func serveGateway() *command {
	const what = "opens what a relay forwards, keeps the uploads and passes them on to the leader, many together and in a new order"
	return serveParty("gateway", what, gatewayExample, func(path string) (*server, error) {
		config, err := deploy.LoadGateway(path)
		if err != nil {
			return nil, err
		}
		keys := counted(len(config.Keys), "key", "keys")
		if config.Epochs != "" {
			keys = "a directory of keys"
		}
		return &server{
			check: config.Check, holds: fmt.Sprintf("%s, %d target(s)", keys, len(config.Targets)),
			fields: map[string]any{"keys": len(config.Keys), "targets": len(config.Targets)}, level: config.Log.Level,
			parts: func(log *slog.Logger) ([]service.Part, error) {
				return config.Parts(log, deploy.Listeners{}), nil
			},
		}, nil
	})
}

func serveLog() *command {
	const what = "keeps what owners have signed, recipes and keys, so that everybody sees the same, and shows only what its witnesses have signed too"
	return serveParty("log", what, logExample, func(path string) (*server, error) {
		config, err := deploy.LoadLog(path)
		if err != nil {
			return nil, err
		}
		return &server{
			check: config.Check, holds: "a transparency log", level: config.Log.Level,
			parts: func(log *slog.Logger) ([]service.Part, error) { return config.Parts(log, deploy.Listeners{}), nil },
		}, nil
	})
}

func serveWitness() *command {
	const what = "signs what logs show, if it continues what they have shown before; anybody can run one"
	return serveParty("witness", what, witnessExample, func(path string) (*server, error) {
		config, err := deploy.LoadWitness(path)
		if err != nil {
			return nil, err
		}
		return &server{
			check: config.Check, holds: "it follows " + counted(len(config.Logs), "log", "logs"), level: config.Log.Level,
			fields: map[string]any{"logs": len(config.Logs)},
			parts:  func(log *slog.Logger) ([]service.Part, error) { return config.Parts(log, deploy.Listeners{}), nil },
		}, nil
	})
}

func serveController() *command {
	const what = "announces which model each round of a training is for, has rounds collected and steps the model; it sees no report"
	return serveParty("controller", what, controllerExample, func(path string) (*server, error) {
		config, err := deploy.LoadController(path)
		if err != nil {
			return nil, err
		}
		return &server{
			check: config.Check, holds: "one training", level: config.Log.Level,
			parts: func(log *slog.Logger) ([]service.Part, error) { return config.Parts(log, deploy.Listeners{}), nil },
		}, nil
	})
}

// withArticle is a party in words.
func withArticle(name string) string {
	if strings.ContainsRune("aeiou", rune(name[0])) {
		return "an " + name
	}
	return "a " + name
}

// serveParty is the command that runs one party. example is a configuration; without one,
// the lab makes it.
func serveParty(name, what, example string, load func(path string) (*server, error)) *command {
	hint, shown := noDeployment, "\n\nstarling lab --keep DIR writes one to begin with; docs/operating.md says more."
	if example != "" {
		hint = "starling serve " + name + " --help shows a configuration to begin with"
		shown = "\n\nA configuration to begin with:\n\n  " + strings.ReplaceAll(example, "\n", "\n  ")
	}
	return &command{
		name: name, args: "[--check] [CONFIG]",
		short: "Run " + withArticle(name),
		long: fmt.Sprintf(`The %s %s.
CONFIG is a TOML file, ./%s.toml if none is named. Logs go to stderr, one JSON object a line; SIGTERM drains and exits 0.%s`, name, what, name, shown),
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
				s, err := load(path)
				if err != nil {
					return ofInput(err, hint)
				}
				if err := s.check(); err != nil {
					next := hintOf(err)
					if next == "" {
						next = fmt.Sprintf("put that right, and see: starling serve %s --check %s", name, path)
					}
					return &failure{exitInput, fmt.Errorf("%s: %w", path, err), next}
				}
				if *check {
					if *asJSON {
						fields := map[string]any{"config": path, "valid": true}
						maps.Copy(fields, s.fields)
						return e.json(fields)
					}
					fmt.Fprintf(e.stdout, "%s is valid: %s\n", path, s.holds)
					return nil
				}
				log := service.NewLogger(e.stderr, s.level)
				parts, err := s.parts(log)
				if err != nil {
					return err
				}
				started := func() { log.Info("started", slog.String("role", name), slog.String("version", thisBuild().Version)) }
				if err := service.Run(ctx, 0, started, parts...); err != nil {
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
		return args[0], notDirectory(path, args[0], or)
	}
	return "", failf(exitUsage, "starling "+path+" --help", "starling %s takes one file, not %d", path, len(args))
}

// hintOf is the hint that classify knows for an error inside another.
func hintOf(err error) string {
	_, hint := classify(err)
	return hint
}
