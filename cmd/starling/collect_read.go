//go:build !lean

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe"
)

// proves says whether a recipe is of a path with proofs, which leader and helper answer for;
// it checks nothing else.
func proves(file string) (bool, error) {
	alone, _, err := deploy.ReadRecipe(file)
	if err != nil {
		return false, err
	}
	r, err := recipe.Read(alone)
	if err != nil {
		return false, err
	}
	return r.Path.Proofs(), nil
}

// A reading is one run of starling collect that asks an analyzer.
type reading struct {
	e        *env
	line     *progress
	file     string // the configuration
	from, to string // as typed
	timeout  time.Duration
	skip     bool
	reader   *collector.Reader
}

// run reads one round after the other and shows what came of each.
func (x *reading) run(ctx context.Context, config *deploy.Collector, one func(n int) error, show func(*recipe.Recipe, *collector.Result) error) error {
	checked, token, _, err := config.Read()
	if err == nil {
		x.reader, err = collector.NewReader(collector.ReaderOptions{Checked: checked, Token: token})
	}
	if err != nil {
		return &failure{exitInput, fmt.Errorf("%s: %w", x.file, err), hintOf(err)}
	}
	rounds, err := x.rounds(time.Now())
	if err == nil {
		err = one(len(rounds))
	}
	if err != nil {
		return err
	}
	shown := 0
	for _, begin := range rounds {
		result, err := x.wait(ctx, begin)
		if x.skip && ctx.Err() == nil && errors.Is(err, collector.ErrNoResult) {
			_, _, end, _ := x.reader.RoundAt(begin)
			fmt.Fprintf(x.e.stderr, "left out the round up to %s: there is no result of it\n", clock(end))
			continue
		}
		if err != nil {
			return x.failure(ctx, err)
		}
		shown++
		if err := show(checked.Recipe(), result); err != nil {
			return err
		}
	}
	if shown == 0 {
		return failf(exitNotYet, "starling send, then collect again after the end of the round and its grace", "no round has a result")
	}
	return nil
}

// rounds are the beginnings of those that are asked for: from --from to --to, or of the last
// one that ends, with its grace, before the timeout.
func (x *reading) rounds(now time.Time) ([]time.Time, error) {
	if x.from == "" && x.to == "" {
		_, begin, _, due := x.reader.RoundAt(now)
		for due.After(now.Add(x.timeout)) {
			_, begin, _, due = x.reader.RoundAt(begin.Add(-time.Second))
		}
		return []time.Time{begin}, nil
	}
	var span [2]time.Time
	for i, text := range []string{x.from, x.to} {
		var err error
		if span[i], err = time.Parse(time.RFC3339, text); err != nil {
			return nil, usageOf("collect", errors.New("--from and --to go together, and are times such as 2026-01-31T00:00:00Z"))
		}
	}
	numbers, err := x.reader.Rounds(span[0], span[1])
	if err != nil {
		return nil, usageOf("collect", err)
	}
	list, next := make([]time.Time, 0, len(numbers)), span[0]
	for range numbers {
		list = append(list, next)
		_, _, next, _ = x.reader.RoundAt(next)
	}
	return list, nil
}

// again is how long after an answer that there is no result yet it is asked for again.
const again = 2 * time.Second

// wait asks for a round until it is there, or the timeout is over.
func (x *reading) wait(ctx context.Context, begin time.Time) (*collector.Result, error) {
	n, _, _, due := x.reader.RoundAt(begin)
	asked := time.Now()
	limit := asked.Add(x.timeout)
	if due.After(limit) {
		return nil, failf(exitNotYet, "the same after that time, or with a longer --timeout",
			"nothing of the round from %s on is released before %s: nothing was asked", clock(begin), clock(due))
	}
	for {
		pause := time.Until(due)
		if pause <= 0 {
			result, err := x.reader.Round(ctx, n)
			if !errors.Is(err, collector.ErrNoResult) || time.Now().Add(again).After(limit) {
				x.line.end()
				return result, err
			}
			pause = again
		}
		x.line.tell(fmt.Sprintf("waiting %s: the round is not over yet, or its grace, or hops and analyzer are at work on it", time.Since(asked).Round(time.Second)))
		timer := time.NewTimer(min(pause, again))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// failure gives exit codes and hints to what ends a run.
func (x *reading) failure(ctx context.Context, err error) error {
	problem, coded := new(dap.Problem), new(failure)
	switch {
	case errors.As(err, &coded):
		return err
	case ctx.Err() != nil:
		return &failure{exitInterrupted, errors.New("interrupted; nothing is lost"), "starling collect asks again"}
	case errors.Is(err, collector.ErrNoResult):
		return &failure{exitNotYet, err, "fewer than the least batch may have contributed: then nothing will ever come of the round, and --skip passes it; else ask again"}
	case errors.As(err, new(*collector.RuinedError)):
		return &failure{exitCheck, err, "the messages are destroyed, and asking again changes nothing: collect another round. Who would lose less collects in independent batches: --randomizer cloak:modern:USERS:HONEST::10 in a new recipe"}
	case errors.As(err, &problem) && problem.HTTPStatus() == http.StatusUnauthorized:
		return failf(exitCheck, "give analyzer and collector the same token", "the analyzer does not take this collector's token: %w", err)
	case errors.As(err, &problem), errors.Is(err, collector.ErrAnswer):
		return &failure{exitCheck, err, "who runs the analyzer and the hops sees more in their logs"}
	}
	return &failure{exitUnreachable, err, "who runs the analyzer sees whether it runs"}
}
