package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
)

func taskCommand() *command {
	return &command{
		name: "task", short: "Add, list, change and close tasks; hold one, let it go on, or give up what it keeps",
		sub: []*command{taskAdd(), taskList(), taskShow(), taskChange(), taskClose(), taskHold(), taskResume(false), taskResume(true)},
	}
}

// leaderFile is the leader that a command is about, and the tasks; none: all.
type leaderFile struct {
	aggregatorFile
	tasks []dap.TaskID
}

// taskFlags finds the leader that a command is about.
func taskFlags(flags *flag.FlagSet, name string) func(args []string) (*leaderFile, error) {
	id := flags.String("task", "", "the one task with this `ID`, as starling status prints it; all tasks if not given")
	return func(args []string) (*leaderFile, error) {
		if len(args) == 0 {
			args = []string{deploy.LeaderFile}
		}
		files, err := loadAggregators("task "+name, args)
		if err != nil {
			return nil, err
		}
		if len(files) != 1 || files[0].config.Role != dap.RoleLeader {
			return nil, failf(exitUsage, "starling task "+name+" leader.toml", "one leader's configuration is needed: a helper keeps nothing of what it refuses")
		}
		var tasks []dap.TaskID
		if *id != "" {
			task, err := dap.ParseTaskID(*id)
			if err != nil {
				return nil, failf(exitUsage, "starling status "+files[0].path+" prints the tasks' ids", "--task: %w", err)
			}
			tasks = append(tasks, task)
		}
		return &leaderFile{files[0], tasks}, nil
	}
}

// ofTask says what to do about an error of a leader's store.
func ofTask(err error, path string) error {
	if known := new(failure); errors.As(err, &known) {
		return err
	}
	if errors.Is(err, leader.ErrNoTask) {
		return failf(exitInput, "starling status "+path+" prints the tasks' ids", "%w", err)
	}
	return ofInput(err, "starling doctor "+path)
}

func taskHold() *command {
	return &command{
		name: "hold", args: "[--task ID] [--reason TEXT] [--json] [CONFIG]",
		short: "Stop a task for now: no uploads, no jobs, no results",
		long: `Clients are told to come again, what was acknowledged is kept and waits, and nothing is released, until starling task resume:
at once where the leader runs, and over its restarts.`,
		examples: [][2]string{{`starling task hold --reason "the helper moves" leader.toml`, "all tasks of the leader"}},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			find := taskFlags(flags, "hold")
			why := flags.String("reason", "no reason was given", "what starling why will say, in `TEXT`")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				f, err := find(args)
				if err != nil {
					return err
				}
				if *why == "" {
					return failf(exitUsage, "starling task hold --help", "--reason is empty")
				}
				done, _, err := decideTasks(ctx, f, status.HoldPath, *why, func() (d status.Decided, err error) {
					d.Tasks, err = f.config.HoldTask(ctx, *why, f.tasks...)
					return d, err
				})
				if err != nil {
					return ofTask(err, f.path)
				}
				if *asJSON {
					return e.json(map[string]any{"held": done.Tasks})
				}
				fmt.Fprintf(e.stdout, "%s held; starling task resume %s lets them go on\n", counted(done.Tasks, "task", "tasks"), f.path)
				return nil
			}
		},
	}
}

func taskResume(drop bool) *command {
	c := &command{
		name: "resume", args: "[--task ID] [--json] [CONFIG]",
		short: "Let a held task go on, and ask the helper again about what is kept",
		long: `A leader holds a task whose helper refuses one whole job after the other, or most reports for reasons of its own, and keeps
what was acknowledged: neither trying for ever nor giving it up is its own to decide. starling why names the task and
the reason. Once the side that is wrong is mended, type this: it takes uploads again and sends the same requests, at once where
it runs, and else at its next start.`,
		examples: [][2]string{{"starling task resume leader.toml", "all tasks of the leader"}},
	}
	if drop {
		c.name, c.short = "drop", "Let a held task go on, and give up what is kept of refused jobs"
		c.long = `Reports whose jobs the helper has refused as a whole count as report_dropped from then on, and their files go. Their batch may
differ from the helper's. Reports that were not refused stay and go on.`
		c.examples = [][2]string{{"starling task drop leader.toml", "all tasks of the leader"}}
	}
	c.setup = func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
		find := taskFlags(flags, c.name)
		asJSON := flags.Bool("json", false, "print one JSON object")
		return func(ctx context.Context, e *env, args []string) error {
			f, err := find(args)
			if err != nil {
				return err
			}
			path := status.ResumePath
			if drop {
				path = status.DropPath
			}
			done, running, err := decideTasks(ctx, f, path, "", func() (d status.Decided, err error) {
				d.Tasks, d.Reports, err = f.config.Resume(ctx, drop, f.tasks...)
				return d, err
			})
			if err != nil {
				return ofTask(err, f.path)
			}
			if *asJSON {
				return e.json(map[string]any{"resumed": done.Tasks, "reports": done.Reports, "dropped": drop})
			}
			writeResumed(e.stdout, done, drop)
			if !running && done != (status.Decided{}) {
				fmt.Fprintf(e.stdout, "now: starling serve leader %s\n", f.path)
			}
			return nil
		}
	}
	return c
}

func writeResumed(w io.Writer, done status.Decided, drop bool) {
	switch kept := counted(int(done.Reports), "report", "reports"); {
	case done == (status.Decided{}):
		fmt.Fprintln(w, "no task is held, and no report waits for a decision")
		return
	case done.Reports == 0:
	case drop:
		fmt.Fprintf(w, "%s given up; they count as report_dropped\n", kept)
	default:
		fmt.Fprintf(w, "%s will be sent to the helper again\n", kept)
	}
	if done.Tasks > 0 {
		fmt.Fprintf(w, "%s not held any more\n", counted(done.Tasks, "task", "tasks"))
	}
}
