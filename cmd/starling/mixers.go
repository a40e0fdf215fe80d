package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/shuffle/hop"
)

const (
	hopExample = `role = "hop"
number = 1                         # or 2, as recipes name it
data = "hop"                       # directory of keys and rounds; in no backup
shuffles = [{ recipe = "recipe.starling", next_token = "next.token" }]
tokens = ["gateway.token"]         # of who brings something: the gateway, or hop 1; starling key token
key = "hop.online"                 # starling key online --root hop.root --out hop.online
delegation = "hop.online.delegation"
[public]
address = "127.0.0.1:8006"         # where the gateway comes, or hop 1, and devices for keys
[local]
address = "127.0.0.1:9006"         # for the operator: /readyz /statusz /metrics`

	analyzerExample = `role = "analyzer"
data = "analyzer"                  # directory of keys, rounds and results
recipes = ["recipe.starling"]
tokens = ["hop2.token"]            # of who brings something: hop 2, or the gateway; starling key token
readers = ["collector.token"]      # of collectors, who may have results
key = "analyzer.online"            # starling key online --root analyzer.root --out analyzer.online
delegation = "analyzer.online.delegation"
[public]
address = "127.0.0.1:8007"         # where hop 2 comes, collectors, and devices for keys
[local]
address = "127.0.0.1:9007"         # for the operator: /readyz /statusz /metrics`
)

func serveHop() *command {
	const what = "mixes the messages of all devices of a round, hop 1 as they come and hop 2 once more, so that the analyzer knows of none whose it is"
	return serveParty("hop", what, hopExample, func(path string) (*server, error) {
		config, err := deploy.LoadHop(path)
		if err != nil {
			return nil, err
		}
		return &server{
			check: config.Check, holds: config.Name() + " of " + counted(len(config.Shuffles), "recipe", "recipes"), level: config.Log.Level,
			fields: map[string]any{"number": config.Number, "recipes": len(config.Shuffles)},
			parts:  func(log *slog.Logger) ([]service.Part, error) { return config.Parts(log, deploy.Listeners{}), nil },
		}, nil
	})
}

func serveAnalyzer() *command {
	const what = "reads the messages of a round, behind two hops in no order that means anything, and makes the result of them"
	return serveParty("analyzer", what, analyzerExample, func(path string) (*server, error) {
		config, err := deploy.LoadAnalyzer(path)
		if err != nil {
			return nil, err
		}
		return &server{
			check: config.Check, holds: counted(len(config.Recipes), "recipe", "recipes"), level: config.Log.Level,
			fields: map[string]any{"recipes": len(config.Recipes)},
			parts:  func(log *slog.Logger) ([]service.Part, error) { return config.Parts(log, deploy.Listeners{}), nil },
		}, nil
	})
}

// A mixerFile is the configuration of a hop or an analyzer, as why looks at it.
type mixerFile struct {
	kind, name, path string
	local            service.Address
}

// loadMixers takes the configurations of hops and analyzers out of the arguments.
func loadMixers(command string, args []string) (mixers []mixerFile, rest []string, err error) {
	for _, path := range args {
		role, err := roleOf(command, path)
		if err != nil {
			return nil, nil, err
		}
		switch role {
		case deploy.HopRole:
			c, err := deploy.LoadHop(path)
			if err != nil {
				return nil, nil, ofInput(err, "starling serve hop --help shows a configuration to begin with")
			}
			mixers = append(mixers, mixerFile{"hop", c.Name(), path, c.Local.Address})
		case deploy.AnalyzerRole:
			c, err := deploy.LoadAnalyzer(path)
			if err != nil {
				return nil, nil, ofInput(err, "starling serve analyzer --help shows a configuration to begin with")
			}
			mixers = append(mixers, mixerFile{"analyzer", "analyzer", path, c.Local.Address})
		default:
			rest = append(rest, path)
		}
	}
	return mixers, rest, nil
}

// A blockedRecipe is what keeps results of a recipe at a hop or an analyzer.
type blockedRecipe struct {
	Role    string          `json:"role"`
	Recipe  string          `json:"recipe"`
	Reasons []status.Reason `json:"reasons"`
}

// why reads what keeps results of the party's recipes. A party that is stopped is a reason of
// its own.
func (m mixerFile) why(ctx context.Context) (all []blockedRecipe, err error) {
	s := new(hop.Status)
	if err := readLocal(ctx, m.local, s); err != nil {
		return nil, failf(exitUnreachable, "starling serve "+m.kind+" "+m.path, "%s: %s: %w", m.path, m.name, err)
	}
	for i := range s.Shuffles {
		x := &s.Shuffles[i]
		b := blockedRecipe{m.name, x.Recipe, []status.Reason{}}
		if s.Trouble != "" {
			b.Reasons = append(b.Reasons, status.Reason{Blocks: "its disk fails: " + s.Trouble, Do: "starling doctor " + m.path})
		}
		b.Reasons = append(b.Reasons, whyShuffle(x, s.Now, m.path)...)
		all = append(all, b)
	}
	return all, nil
}

// lostRounds are the outcomes of which no result comes, as [hop.Outcomes] has them.
var lostRounds = []struct{ outcome, means, do string }{
	{"few", "had fewer contributions than the least batch, and nothing of them is left", "reach more devices, or plan for fewer: starling recipe plan --path shuffled --people N"},
	{"expired", "were not taken by the next party in time, and nothing of them is left", "starling doctor of the next party's file, and see that both have each other's tokens"},
}

// whyShuffle names what keeps results of one recipe.
func whyShuffle(x *hop.ShuffleStatus, now time.Time, path string) (all []status.Reason) {
	for _, r := range x.Rounds {
		if r.Unlogged != "" {
			all = append(all, status.Reason{Blocks: fmt.Sprintf("the key of round %d is not in the log, and devices take it from nowhere else: %s", r.Round, r.Unlogged),
				Do: "see that the log takes entries: starling log verify, and starling status of its log.toml"})
		}
		switch {
		case r.Trouble != "":
			all = append(all, status.Reason{Blocks: fmt.Sprintf("round %d waits: %s", r.Round, r.Trouble), Do: "starling doctor " + path})
		case r.Have > 0 && r.Flush.After(now):
			all = append(all, status.Reason{Blocks: fmt.Sprintf("round %d is handed on at %s, whole; %d are here", r.Round, r.Flush.Format(time.RFC3339), r.Have),
				Do: "wait " + span(r.Flush.Sub(now))})
		}
	}
	for _, lost := range lostRounds {
		if n := x.Totals.Rounds[lost.outcome]; n > 0 {
			all = append(all, status.Reason{Blocks: fmt.Sprintf("%s so far %s", counted(int(n), "round", "rounds"), lost.means), Do: lost.do})
		}
	}
	return all
}

// outerHop is a hop, as status and doctor look at it.
func outerHop(path string, c *deploy.Hop) outer {
	return outerMixer("hop", c.Name(), path, c.Local.Address, c.Check, "contributions wait at the gateway or hop 1, for as long as these hold them")
}

// outerAnalyzer is an analyzer.
func outerAnalyzer(path string, c *deploy.Analyzer) outer {
	return outerMixer("analyzer", "analyzer", path, c.Local.Address, c.Check, "batches wait at hop 2, or contributions at the gateway, for as long as these hold them")
}

func outerMixer(kind, name, path string, at service.Address, check func() error, stopped string) outer {
	serve := "starling serve " + kind + " " + path
	read := func(ctx context.Context) (*hop.Status, *service.Readiness, error) {
		s := new(hop.Status)
		if err := readLocal(ctx, at, s); err != nil {
			return nil, nil, err
		}
		ready, err := readReady(ctx, at)
		return s, ready, err
	}
	return outer{kind, path, func(ctx context.Context) (any, func(io.Writer), error) {
		s, ready, err := read(ctx)
		if err != nil {
			return nil, nil, failf(exitUnreachable, serve, "%s: %s: %w", path, name, err)
		}
		return map[string]any{"status": s, "ready": ready}, func(w io.Writer) {
			for _, x := range s.Shuffles {
				writeShuffle(w, name, &x)
			}
			writeReady(w, ready)
		}, nil
	}, func(ctx context.Context) []finding {
		if err := check(); err != nil {
			return []finding{{Check: "files", Found: err.Error(), Hint: hintOf(err)}}
		}
		all := []finding{{Check: "files", OK: true, Found: "configuration, recipes, tokens and key can be read"}}
		_, ready, err := read(ctx)
		switch {
		case errors.Is(err, errStopped):
			return append(all, finding{Check: "running", Found: "no: " + stopped, Hint: serve})
		case err != nil:
			return append(all, finding{Check: "running", Found: err.Error()})
		}
		return append(append(all, finding{Check: "running", OK: true, Found: "it answers on its local listener"}), readyFindings(ready)...)
	}}
}

// writeShuffle says where a hop or an analyzer stands with one recipe.
func writeShuffle(w io.Writer, name string, x *hop.ShuffleStatus) {
	fmt.Fprintf(w, "%s, recipe %.16s\n", name, x.Recipe)
	for _, r := range x.Rounds {
		if r.Unlogged != "" {
			fmt.Fprintf(w, "  unlogged   the key of round %d is not in the log, and devices take it from nowhere else: %s\n", r.Round, r.Unlogged)
		}
		if r.Have == 0 && r.Trouble == "" && r.Contributions == 0 {
			continue // a round to come, or one of which nothing has come
		}
		fmt.Fprintf(w, "  round      %d, whose time is %s: %s, %d here", r.Round, r.Flush.Format(time.RFC3339), r.Stage, r.Have)
		if r.Contributions > 0 {
			fmt.Fprintf(w, "; %d contributions of %d messages go on", r.Contributions, r.Messages)
		}
		if r.Trouble != "" {
			fmt.Fprintf(w, "; it waits: %s", r.Trouble)
		}
		fmt.Fprintln(w)
	}
	for _, word := range hop.Outcomes() {
		if n := x.Totals.Rounds[word]; n > 0 {
			fmt.Fprintf(w, "  rounds     %d %s\n", n, word)
		}
	}
	fmt.Fprintf(w, "  went on    %d contributions, %d messages\n", x.Totals.Contributions, x.Totals.Messages)
	for _, lost := range []struct {
		what string
		n    uint64
	}{{"envelopes that did not open", x.Totals.Refused}, {"messages that did not open", x.Totals.Dropped}, {"messages that came again", x.Totals.Doubled}, {"left over", x.Totals.LeftOver}} {
		if lost.n > 0 {
			fmt.Fprintf(w, "  dropped    %d %s\n", lost.n, lost.what)
		}
	}
	for _, shown := range []struct{ word, what string }{{"unproved", "since the start, of which no credential holds"}, {"spent", "since the start, whose credential was counted before"}} {
		if n := x.Requests[shown.word]; n > 0 {
			fmt.Fprintf(w, "  of these   %d %s\n", n, shown.what)
		}
	}
}
