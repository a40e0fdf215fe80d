package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/starling-agg/starling/anonymity/relay"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/prose"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
)

// An outer is a party that is no aggregator and no gateway, as status and doctor look at it.
type outer struct {
	kind, path string
	status     func(context.Context) (any, func(io.Writer), error)
	examine    func(context.Context) []finding
}

// loadOuter takes the configurations of such parties out of the arguments.
func loadOuter(command string, args []string) (all []outer, rest []string, err error) {
	for _, path := range args {
		role, err := roleOf(command, path)
		if err != nil {
			return nil, nil, err
		}
		var o outer
		switch role {
		case deploy.RelayRole:
			c, err := deploy.LoadRelay(path)
			if err != nil {
				return nil, nil, ofInput(err, "starling serve relay --help shows a configuration to begin with")
			}
			o = outerRelay(path, c)
		case deploy.LogRole:
			c, err := deploy.LoadLog(path)
			if err != nil {
				return nil, nil, ofInput(err, "starling serve log --help shows a configuration to begin with")
			}
			o = outerLog(path, c)
		case deploy.WitnessRole:
			c, err := deploy.LoadWitness(path)
			if err != nil {
				return nil, nil, ofInput(err, "starling serve witness --help shows a configuration to begin with")
			}
			o = outerWitness(path, c)
		case deploy.AttesterRole:
			c, err := deploy.LoadAttester(path)
			if err != nil {
				return nil, nil, ofInput(err, "starling serve attester --help shows a configuration to begin with")
			}
			o = outerAttester(path, c)
		case deploy.HopRole:
			c, err := deploy.LoadHop(path)
			if err != nil {
				return nil, nil, ofInput(err, "starling serve hop --help shows a configuration to begin with")
			}
			o = outerHop(path, c)
		case deploy.AnalyzerRole:
			c, err := deploy.LoadAnalyzer(path)
			if err != nil {
				return nil, nil, ofInput(err, "starling serve analyzer --help shows a configuration to begin with")
			}
			o = outerAnalyzer(path, c)
		case deploy.ControllerRole:
			c, err := deploy.LoadController(path)
			if err != nil {
				return nil, nil, ofInput(err, "starling serve controller --help shows a configuration to begin with")
			}
			o = outerController(path, c)
		case deploy.AgentRole:
			c, err := deploy.LoadAgent(path)
			if err != nil {
				return nil, nil, ofInput(err, "starling serve agent --help shows a configuration to begin with")
			}
			o = outerAgent(path, c)
		case deploy.CollectorRole:
			c, err := deploy.LoadCollector(path)
			if err != nil {
				return nil, nil, ofInput(err, noDeployment)
			}
			o = outerCollector(path, c)
		default:
			rest = append(rest, path)
			continue
		}
		all = append(all, o)
	}
	return all, rest, nil
}

func outerRelay(path string, c *deploy.Relay) outer {
	serve := "starling serve relay " + path
	read := func(ctx context.Context) (*relay.Status, *service.Readiness, error) {
		s := new(relay.Status)
		if err := readLocal(ctx, c.Local.Address, s); err != nil {
			return nil, nil, err
		}
		ready, err := readReady(ctx, c.Local.Address)
		return s, ready, err
	}
	return outer{"relay", path, func(ctx context.Context) (any, func(io.Writer), error) {
		s, ready, err := read(ctx)
		if err != nil {
			return nil, nil, failf(exitUnreachable, serve, "%s: the relay: %w", path, err)
		}
		return map[string]any{"status": s, "ready": ready}, func(w io.Writer) {
			fmt.Fprintf(w, "relay\n  requests   %s answered by the gateway\n", prose.Count(float64(s.Forwarded)))
			writeReasons(w, "refused", s.Refused)
			writeReady(w, ready)
		}, nil
	}, func(ctx context.Context) []finding {
		if err := c.Check(); err != nil {
			return []finding{{Check: "files", Found: err.Error(), Hint: hintOf(err)}}
		}
		all := []finding{{Check: "files", OK: true, Found: "configuration, certificate and token can be read"}}
		_, ready, err := read(ctx)
		switch {
		case errors.Is(err, errStopped):
			return append(all, finding{Check: "running", Found: "no: devices reach nobody; it keeps nothing, so nothing is lost", Hint: serve})
		case err != nil:
			return append(all, finding{Check: "running", Found: err.Error()})
		}
		all = append(all, finding{Check: "running", OK: true, Found: "it answers on its local listener"})
		return append(all, readyFindings(ready)...)
	}}
}

func outerCollector(path string, c *deploy.Collector) outer {
	return outer{"collector", path, func(context.Context) (any, func(io.Writer), error) {
		s, err := c.Standing()
		if err != nil {
			return nil, nil, ofInput(err, "starling doctor "+path)
		}
		return s, func(w io.Writer) { fmt.Fprintf(w, "collector\n  %s\n", collectorLine(s)) }, nil
	}, func(ctx context.Context) []finding {
		checked, token, key, err := c.Read()
		if err != nil {
			return []finding{{Check: "files", Found: err.Error(), Hint: hintOf(err)}}
		}
		all := []finding{{Check: "files", OK: true, Found: "configuration, recipe, token and key can be read"}}
		s, err := c.Standing()
		if err != nil {
			return append(all, finding{Check: "state", Found: err.Error(),
				Hint: "keep the file aside and ask again from when the last result ended: starling collect --from"})
		}
		all = append(all, finding{Check: "state", OK: true, Found: collectorLine(s)})
		two, ok := checked.Recipe().Path.(recipe.TwoServer)
		if !ok {
			return all
		}
		found, err := knock(ctx, c.Agreement, two.Leader)
		if err != nil {
			return append(all, finding{Check: "leader answers", Found: err.Error(),
				Hint: cmp.Or(hintOfCertificate(err), "starling serve leader, or ask who runs it")})
		}
		all = append(all, finding{Check: "leader answers", OK: true, Found: found})
		f := finding{Check: "token", OK: true, Found: "the leader takes it"}
		if err := tryToken(ctx, c.Agreement, collector.Options{Checked: checked, Token: token, Key: key}); err != nil {
			f = finding{Check: "token", Found: err.Error(), Hint: "give leader and collector the same file: collector_token in leader.toml, token in " + path}
		}
		return append(all, f)
	}}
}

// tryToken says whether the leader takes a collector's token.
func tryToken(ctx context.Context, agreed deploy.Agreement, o collector.Options) error {
	client, err := agreed.Client(10 * time.Second)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	o.HTTP = client
	c, err := collector.New(o)
	if err != nil {
		return err
	}
	return c.Known(ctx)
}

// collectorLine is where a collector stands, in words.
func collectorLine(s *deploy.CollectorStanding) string {
	line := "nothing was asked yet"
	switch {
	case s.Pending && !s.To.IsZero():
		line = "a result up to " + s.To.Format(time.RFC3339) + " is asked for; starling collect goes on with it"
	case s.Pending:
		line = "a result is asked for; starling collect goes on with it"
	case s.Done:
		line = "the last result that was asked for was read"
	}
	if !s.Next.IsZero() {
		line += "; results are read up to " + s.Next.Format(time.RFC3339)
	}
	return line
}

// readReady reads what a running party can do.
func readReady(ctx context.Context, a service.Address) (*service.Readiness, error) {
	host := string(a)
	if a.IsUnix() {
		host = "local"
	}
	u := url.URL{Scheme: "http", Host: host, Path: "/readyz", RawQuery: "json"}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := localClient(a).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	r := new(service.Readiness)
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxStatus)).Decode(r); err != nil {
		return nil, fmt.Errorf("its readiness cannot be read: %w", err)
	}
	return r, nil
}

// abilities are what a party can do, by name.
func abilities(r *service.Readiness) (names []string, all []*service.Ability) {
	names, all = []string{"take"}, []*service.Ability{&r.Take}
	if r.Verify != nil {
		names, all = append(names, "verify"), append(all, r.Verify)
	}
	return append(names, "release"), append(all, &r.Release)
}

// writeReady says what a party cannot do, and why.
func writeReady(w io.Writer, r *service.Readiness) {
	names, all := abilities(r)
	for i, a := range all {
		for _, why := range a.Reasons {
			fmt.Fprintf(w, "  cannot     %s: %s\n", names[i], why.Why)
		}
	}
}

// readyFindings are doctor's of the same.
func readyFindings(r *service.Readiness) (found []finding) {
	names, all := abilities(r)
	for i, a := range all {
		for _, why := range a.Reasons {
			found = append(found, finding{Check: names[i], Found: why.Why, Hint: readyHint(why.Code)})
		}
	}
	if len(found) == 0 {
		found = []finding{{Check: "ready", OK: true, Found: "it can " + strings.Join(names, ", ")}}
	}
	return found
}

// readyHint is what to do about a reason.
func readyHint(code string) string {
	switch code {
	case service.ReasonDisk:
		return "make room on the disk; it goes on by itself"
	case service.ReasonBacklog:
		return "wait, or see to the helper; it goes on by itself"
	case service.ReasonQuota:
		return "starling why says what is used up, and what makes place"
	case service.ReasonConnections:
		return "see starling_connections_shed_total; max_connections and max_per_address are the limits"
	case service.ReasonPeer:
		return "check that the other party runs and can be reached; it goes on by itself"
	case service.ReasonHeld:
		return "starling why"
	case service.ReasonKeys:
		return "starling manifest new"
	}
	return ""
}

// outerStatus is what one of them says.
type outerStatus struct {
	kind  string
	value any
	write func(io.Writer)
}

// readOuters reads all; the first failure ends it.
func readOuters(ctx context.Context, outers []outer) (all []outerStatus, err error) {
	for _, o := range outers {
		value, write, err := o.status(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, outerStatus{o.kind, value, write})
	}
	return all, nil
}

// writeReadyOf says what a party cannot do; of one that cannot be asked, nothing more.
func writeReadyOf(ctx context.Context, w io.Writer, role string, stopped bool, a service.Address) {
	if stopped {
		fmt.Fprintf(w, "  cannot     take, verify, release: the %s is not running; this is what its store says\n", role)
		return
	}
	if r, err := readReady(ctx, a); err == nil {
		writeReady(w, r)
	}
}
