package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/starling-agg/starling/aggregator/status"
)

func repairCommand() *command {
	return &command{
		name: "repair", args: "[--json] [CONFIG...]",
		short: "Check the replay protection of leader and helper, and mend it",
		long: `Reads the files of report ids that keep a report from counting twice, every byte, and makes those that are damaged or
lost again from the ids that the other aggregator holds. Leader and helper do that by themselves; this does it now and says how it
stands. Reports whose ids may be in such a file wait meanwhile, and nothing of them is lost. The leader fetches what it needs
and brings the helper what that needs, so the helper has to run; it may be run for a leader that is stopped.`,
		examples: [][2]string{
			{"starling repair leader.toml", "mend what can be mended, here and at the helper"},
			{"starling repair --json leader.toml helper.toml", "the same of both, as one JSON object"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				if len(args) == 0 {
					args = []string{"leader.toml"}
				}
				files, err := loadAggregators("repair", args)
				if err != nil {
					return err
				}
				return repair(ctx, e, files, *asJSON)
			}
		},
	}
}

// repaired is how an aggregator stands after a repair.
type repaired struct {
	Config string       `json:"config"`
	Role   string       `json:"role"`
	Tasks  []brokenTask `json:"tasks"` // with damage; none is good
}

type brokenTask struct {
	ID      string           `json:"id"`
	Damaged []status.Damaged `json:"damaged,omitempty"`
	// files of the helper's, as the leader hears
	Peer   int    `json:"peer_damaged,omitempty"`
	Giving string `json:"giving,omitempty"`
}

func repair(ctx context.Context, e *env, files []aggregatorFile, asJSON bool) error {
	var all []repaired
	left := 0
	for _, f := range files {
		s := new(status.Status)
		err := operateJSON(ctx, f.config, status.RepairPath, nil, s)
		if errors.Is(err, errStopped) {
			s, err = f.config.Repair(ctx)
		}
		if err != nil {
			return ofInput(fmt.Errorf("%s: %w", f.path, err), "starling doctor "+f.path)
		}
		r := repaired{Config: f.path, Role: f.config.Role.String(), Tasks: []brokenTask{}}
		for _, t := range s.Tasks {
			b := brokenTask{ID: t.ID, Damaged: t.Damaged}
			if t.Peer != nil {
				b.Peer, b.Giving = t.Peer.Damaged, t.Peer.Giving
			}
			if len(b.Damaged) > 0 || b.Peer > 0 {
				r.Tasks = append(r.Tasks, b)
				left++
			}
		}
		all = append(all, r)
	}
	if asJSON {
		if err := e.json(map[string]any{"aggregators": all}); err != nil {
			return err
		}
	} else {
		for _, r := range all {
			r.print(e.stdout)
		}
	}
	if left > 0 {
		return failf(exitCheck, "docs/recovery.md says what is left to do; starling repair tries again", "the replay protection is not whole")
	}
	return nil
}

func (r *repaired) print(w io.Writer) {
	if len(r.Tasks) == 0 {
		fmt.Fprintf(w, "%s: the replay protection is whole\n", r.Config)
	}
	for _, t := range r.Tasks {
		for _, d := range t.Damaged {
			fmt.Fprintf(w, "%s: task %s: %d report ids are lost (%s): %s\n", r.Config, t.ID, d.IDs, d.Why, d.Tried)
		}
		if t.Peer > 0 {
			why := t.Giving
			if why == "" {
				why = "this leader brings the ids"
			}
			fmt.Fprintf(w, "%s: task %s: the helper lacks %s of report ids: %s\n", r.Config, t.ID, counted(t.Peer, "file", "files"), why)
		}
	}
}
