package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/fl/round"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe/account"
)

// noController is what to do where a controller has begun nothing.
func noController(path string) string { return "starling serve controller " + path }

// readTraining is how far the training of a controller is, whether it runs or not.
func readTraining(ctx context.Context, path string, c *deploy.Controller) (s *round.Status, running bool, err error) {
	s = new(round.Status)
	switch err := readLocal(ctx, c.Local.Address, s); {
	case err == nil:
		return s, true, nil
	case !errors.Is(err, errStopped):
		return nil, false, failf(exitUnreachable, "starling doctor "+path, "%s: the controller: %w", path, err)
	case lean:
		return nil, false, failf(exitUnreachable, noController(path), "%s: the controller: %w", path, errNoStore)
	}
	err = c.Stopped(ctx, func(r *round.Controller) error {
		s, err = r.Status()
		return err
	})
	if err != nil {
		return nil, false, ofInput(fmt.Errorf("%s: %w", path, err), noController(path))
	}
	return s, false, nil
}

// A spent is what rounds have cost.
type spent struct {
	Rounds  int     `json:"rounds"`
	Epsilon float64 `json:"epsilon"`
}

// curvePoints is how many points a curve has at most.
const curvePoints = 12

// curve is what the rounds that were announced have cost, one after the other: a device may
// have decided in each, whatever came of it.
func curve(ctx context.Context, c *deploy.Controller, announced int) (list []spent, delta float64, err error) {
	t, err := c.Read()
	if err != nil {
		return nil, 0, err
	}
	r := t.Recipe.Recipe()
	slots := int(r.Slots())
	_, err = compute(ctx, func() (struct{}, error) {
		for i := range min(announced, curvePoints) {
			n := ((i+1)*announced + min(announced, curvePoints) - 1) / min(announced, curvePoints)
			l, err := account.LossAfter(r, uint32(min((n+slots-1)/slots, int(r.DecisionRounds()))))
			if err != nil {
				return struct{}{}, err
			}
			list, delta = append(list, spent{n, l.Epsilon}), l.Delta
		}
		return struct{}{}, nil
	})
	return list, delta, err
}

func flStatusCommand() *command {
	return &command{
		name: "status", args: "[--json] [CONFIG]",
		short: "How far a training is, and what its rounds have cost",
		long: `Reads the controller's local listener, or its journal where it does not run. CONFIG is a controller's, ./controller.toml if none is
named. Epsilon counts every round that was announced: devices may have tossed a coin in each, whether its sum was released or not.`,
		examples: [][2]string{
			{"starling fl status controller.toml", "rounds, and epsilon after each"},
			{"starling fl status --json controller.toml", "for programs"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				path, c, err := oneController("fl status", args)
				if err != nil {
					return err
				}
				s, running, err := readTraining(ctx, path, c)
				if err != nil {
					return err
				}
				list, delta, err := curve(ctx, c, s.Begun)
				if err != nil {
					return ofInput(err, "starling check "+path)
				}
				if *asJSON {
					return e.json(map[string]any{"running": running, "training": s, "spent": slices.Clone(list), "delta": delta})
				}
				return writeTraining(e.stdout, s, running, list, delta)
			}
		},
	}
}

func oneController(command string, args []string) (string, *deploy.Controller, error) {
	path, err := oneFile(command, args, deploy.ControllerFile)
	if err != nil {
		return "", nil, err
	}
	c, err := deploy.LoadController(path)
	if err != nil {
		return "", nil, ofInput(err, "starling serve controller --help shows a configuration to begin with")
	}
	return path, c, nil
}

// lastRounds is how many rounds are shown one by one.
const lastRounds = 10

func writeTraining(w io.Writer, s *round.Status, running bool, list []spent, delta float64) error {
	state := "it runs"
	if !running {
		state = "it does not run"
	}
	if s.Ended != "" {
		state += "; " + s.Ended
	}
	fmt.Fprintf(w, "training %v: %s\n  rounds     %d of %d announced, %d stepped, %d skipped\n  norm       %.4g\n", s.Recipe, state, s.Begun, s.Of, s.Stepped, s.Skipped, s.Clip)
	for _, r := range s.Rounds[max(0, len(s.Rounds)-lastRounds):] {
		what := r.State
		switch {
		case r.Reason != "":
			what += ", " + r.Reason
		case r.State == round.Collected.String():
			what = fmt.Sprintf("%d reports", r.Reports)
		}
		fmt.Fprintf(w, "  %5d      from %s: %s\n", r.Index, r.Begin, what)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "  spent      nothing: no round was announced")
		return err
	}
	most := list[len(list)-1].Epsilon
	fmt.Fprintf(w, "  spent      epsilon %.4g at delta %.3g, for a device that decided in every round\n", most, delta)
	for _, p := range list {
		bar := ""
		if most > 0 && !math.IsInf(most, 0) {
			bar = strings.Repeat("#", int(math.Round(40*p.Epsilon/most)))
		}
		fmt.Fprintf(w, "  %5d      %-40s %.4g\n", p.Rounds, bar, p.Epsilon)
	}
	return nil
}

func flModelCommand() *command {
	return &command{
		name: "model", args: "--out FILE [--average] [--json] [CONFIG]",
		short: "Write the newest model of a training",
		long: `FILE gets the parameters, as little-endian binary32 in the order of the terms' tensors. They are of the newest step, whether that
model is announced yet or not; with --average the mean of those of the last steps, where the configuration says average. Of a controller that runs they are read at its control socket, else from its directory.`,
		examples: [][2]string{{"starling fl model --out model.f32 controller.toml", "the parameters alone"}},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			out := flags.String("out", "", "write to this `FILE`, which must not exist; required")
			average := flags.Bool("average", false, "the mean of the models after the last steps")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				path, c, err := oneController("fl model", args)
				if err != nil {
					return err
				}
				if *out == "" {
					return usageOf("fl model", errors.New("starling fl model needs --out"))
				}
				list, err := readModel(ctx, path, c, *average)
				if errors.Is(err, round.ErrNone) {
					return failf(exitFailed, "starling fl status "+path, "%s: %w; average in the configuration says of which steps", path, err)
				}
				if err != nil {
					return err
				}
				if err := writeNew(*out, 0o644, session.AppendFloats(nil, list)); err != nil {
					return err
				}
				if *asJSON {
					return e.json(map[string]any{"model": *out, "parameters": len(list)})
				}
				_, err = fmt.Fprintf(e.stdout, "%s: %d parameters\n", *out, len(list))
				return err
			}
		},
	}
}

// readModel is the newest model of a controller, whether it runs or not.
func readModel(ctx context.Context, path string, c *deploy.Controller, average bool) (list []float32, err error) {
	_, running, err := readTraining(ctx, path, c)
	if err != nil {
		return nil, err
	}
	if !lean && !running {
		err := c.Stopped(ctx, func(r *round.Controller) error {
			if list, _, err = r.Parameters(); average {
				list, err = r.Average()
			}
			return err
		})
		return list, err
	}
	if c.Control == "" {
		return nil, failf(exitInput, "stop it, or give it a control socket: control = \"controller/control.sock\" in "+path,
			"%s: the controller runs, and hands out models to devices alone", path)
	}
	resource := "/v1/model"
	if average {
		resource = "/v1/average"
	}
	b, err := askController(ctx, path, c, http.MethodGet, resource, nil)
	if err != nil {
		return nil, err
	}
	return session.ReadFloats(b)
}

// askController makes one request at a control socket.
func askController(ctx context.Context, path string, c *deploy.Controller, method, resource string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://local"+resource, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := localClient(service.Address("unix:" + string(c.Control))).Do(req)
	if err != nil {
		return nil, failf(exitUnreachable, noController(path), "%s: the control socket: %w", path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 4*session.MaxDimension+1))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		var said struct {
			Error string `json:"error"`
		}
		_ = json.Unmarshal(b, &said) // what is no JSON says nothing
		return nil, failf(exitFailed, "starling fl status "+path, "%s: the controller answered with status %d: %s", path, resp.StatusCode, said.Error)
	}
	return b, nil
}

func flStartCommand() *command {
	return &command{
		name: "start", args: "[--model FILE] [--json] [CONFIG]",
		short: "Begin a round of a training whose rounds begin by hand",
		long: `Asks the controller, at its control socket, to announce the next round, with the optimizer's model or with the one in FILE. Its
configuration says manual = true, and control. CONFIG is a controller's, ./controller.toml if none is named.`,
		examples: [][2]string{
			{"starling fl start controller.toml", "with the optimizer's model"},
			{"starling fl start --model model.f32 controller.toml", "with another, as fl model writes them"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			file := flags.String("model", "", "parameters, little-endian binary32, in this `FILE`")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				path, c, err := oneController("fl start", args)
				if err != nil {
					return err
				}
				if c.Control == "" {
					return failf(exitInput, "control = \"controller/control.sock\" and manual = true in "+path, "%s: the controller has no control socket", path)
				}
				var body []byte
				if *file != "" {
					if body, err = os.ReadFile(*file); err != nil {
						return ofInput(err, "starling fl model --out FILE writes one")
					}
					if len(body) == 0 || len(body) > 4*session.MaxDimension {
						return failf(exitInput, "starling fl model --out FILE writes one", "%s: %d bytes are no model", *file, len(body))
					}
				}
				b, err := askController(ctx, path, c, http.MethodPost, "/v1/rounds", body)
				if err != nil {
					return err
				}
				var r round.Round
				if err := json.Unmarshal(b, &r); err != nil {
					return err
				}
				if *asJSON {
					return e.json(r)
				}
				_, err = fmt.Fprintf(e.stdout, "round %d, from %s to %s\n", r.Index, r.Begin, r.End)
				return err
			}
		},
	}
}

// outerController is a controller as status and doctor show it.
func outerController(path string, c *deploy.Controller) outer {
	return outer{"controller", path, func(ctx context.Context) (any, func(io.Writer), error) {
		s, running, err := readTraining(ctx, path, c)
		if err != nil {
			return nil, nil, err
		}
		var ready *service.Readiness
		if running {
			if ready, err = readReady(ctx, c.Local.Address); err != nil {
				return nil, nil, failf(exitUnreachable, noController(path), "%s: the controller: %w", path, err)
			}
		}
		return map[string]any{"training": s, "ready": ready}, func(w io.Writer) {
			fmt.Fprintf(w, "controller\n  rounds     %d of %d announced, %d stepped, %d skipped\n", s.Begun, s.Of, s.Stepped, s.Skipped)
			if ready != nil {
				writeReady(w, ready)
			}
		}, nil
	}, func(ctx context.Context) []finding {
		if err := c.Check(); err != nil {
			return []finding{{Check: "files", Found: err.Error(), Hint: hintOf(err)}}
		}
		all := []finding{{Check: "files", OK: true, Found: "configuration, key, terms and the collector's files can be read"}}
		ready, err := readReady(ctx, c.Local.Address)
		switch {
		case errors.Is(err, errStopped):
			return append(all, finding{Check: "running", Found: "no: no round is announced, and none is collected", Hint: noController(path)})
		case err != nil:
			return append(all, finding{Check: "running", Found: err.Error()})
		}
		all = append(all, finding{Check: "running", OK: true, Found: "it answers on its local listener"})
		return append(all, readyFindings(ready)...)
	}}
}
