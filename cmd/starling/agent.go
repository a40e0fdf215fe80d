package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/fl/agent"
	"github.com/starling-agg/starling/internal/service"
)

func outerAgent(path string, c *deploy.Agent) outer {
	serve := "starling serve agent " + path
	read := func(ctx context.Context) (*agent.Status, *service.Readiness, error) {
		s := new(agent.Status)
		if err := readLocal(ctx, c.Local.Address, s); err != nil {
			return nil, nil, err
		}
		ready, err := readReady(ctx, c.Local.Address)
		return s, ready, err
	}
	return outer{"agent", path, func(ctx context.Context) (any, func(io.Writer), error) {
		s, ready, err := read(ctx)
		if err != nil {
			return nil, nil, failf(exitUnreachable, serve, "%s: the agent: %w", path, err)
		}
		return map[string]any{"status": s, "ready": ready}, func(w io.Writer) {
			fmt.Fprintf(w, "agent\n  recipes    %d\n  spent      epsilon %.4g of %.4g, delta %.3g of %.3g\n", s.Tasks, s.Spent.Epsilon, c.BudgetEpsilon, s.Spent.Delta, c.BudgetDelta)
			for _, name := range slices.Sorted(maps.Keys(s.Refused)) {
				fmt.Fprintf(w, "  refused    %s: %s\n", name, s.Refused[name])
			}
			writeReasons(w, "asked", s.Contributions)
			writeReady(w, ready)
		}, nil
	}, func(ctx context.Context) []finding {
		if err := c.Check(); err != nil {
			return []finding{{Check: "files", Found: err.Error(), Hint: hintOf(err)}}
		}
		all := []finding{{Check: "files", OK: true, Found: "configuration, recipes and anchors can be read"}}
		s, ready, err := read(ctx)
		switch {
		case errors.Is(err, errStopped):
			return append(all, finding{Check: "running", Found: "no: nothing is contributed", Hint: serve})
		case err != nil:
			return append(all, finding{Check: "running", Found: err.Error()})
		}
		all = append(all, finding{Check: "running", OK: true, Found: "it answers on its local listener"})
		for _, name := range slices.Sorted(maps.Keys(s.Refused)) {
			all = append(all, finding{Check: "recipes", Found: name + ": " + s.Refused[name], Hint: "starling check " + path})
		}
		return append(all, readyFindings(ready)...)
	}}
}
