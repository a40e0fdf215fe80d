package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/starling-agg/starling/anonymity/gateway"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/prose"
)

// A gatewayFile is the configuration of a gateway.
type gatewayFile struct {
	path   string
	config *deploy.Gateway
}

// loadParties reads the configurations named of leaders, helpers and gateways. Where none
// is named it is those of a leader and a helper in the working directory, or else of a
// gateway.
func loadParties(command string, args []string) (aggregators []aggregatorFile, gateways []gatewayFile, err error) {
	named := len(args) > 0
	if !named {
		for _, name := range []string{deploy.LeaderFile, deploy.HelperFile} {
			if _, err := os.Stat(name); err == nil {
				named = true
			}
		}
		if _, err := os.Stat(deploy.GatewayFile); err == nil && !named {
			args = []string{deploy.GatewayFile}
		}
	}
	var rest []string
	for _, path := range args {
		role, err := roleOf(command, path)
		if err != nil {
			return nil, nil, err
		}
		if role != deploy.GatewayRole {
			rest = append(rest, path)
			continue
		}
		config, err := deploy.LoadGateway(path)
		if err != nil {
			return nil, nil, ofInput(err, "starling serve gateway --help shows a configuration to begin with")
		}
		gateways = append(gateways, gatewayFile{path, config})
	}
	if len(rest) > 0 || len(gateways) == 0 {
		aggregators, err = loadAggregators(command, rest)
	}
	return aggregators, gateways, err
}

// readGateways reads the status of every gateway; the first failure ends it.
func readGateways(ctx context.Context, files []gatewayFile) ([]*deploy.GatewayStatus, error) {
	all := []*deploy.GatewayStatus{}
	for _, f := range files {
		s := &deploy.GatewayStatus{Status: new(gateway.Status)}
		if err := readLocal(ctx, f.config.Local.Address, s); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, failf(exitUnreachable, "starling serve gateway "+f.path, "%s: the gateway: %w", f.path, err)
		}
		all = append(all, s)
	}
	return all, nil
}

func writeGateway(w io.Writer, s *deploy.GatewayStatus) {
	n := func(v uint64) string { return prose.Count(float64(v)) }
	fmt.Fprintf(w, "gateway, %s or more requests of a task together\n", n(uint64(s.MinRound)))
	fmt.Fprintf(w, "  uploads    %s taken by the leader, %s held", n(s.Passed), n(uint64(s.Held)))
	if s.Oldest != nil {
		fmt.Fprintf(w, ", the oldest for %s", span(time.Duration(s.HeldSeconds*float64(time.Second))))
	}
	fmt.Fprintf(w, "\n  others     %s covers and %s that had come before, answered alike\n", n(s.Covers), n(s.Known))
	fmt.Fprintf(w, "  room       %s of %s requests\n", n(uint64(s.Charged)), n(uint64(s.Room)))
	if s.Unknown > 0 {
		fmt.Fprintf(w, "  unknown    %s of them are of tasks that the leader says it has not\n", n(uint64(s.Unknown)))
	}
	writeReasons(w, "tokens", s.Admission)
	writeReasons(w, "orders", s.Orders)
	writeReasons(w, "lost", s.Lost)
	writeReasons(w, "verdict", s.Verdicts)
	writeReasons(w, "refused", s.Refused)
	for _, k := range s.Keys {
		state := ""
		if !k.Usable {
			state = "; past its time"
		}
		fmt.Fprintf(w, "  key        %3d: %s of %s requests opened%s\n", k.ID, n(uint64(k.Opened)), n(uint64(k.Max)), state)
	}
}

// examineGateway runs all checks of one gateway.
func examineGateway(ctx context.Context, f gatewayFile) []finding {
	err := f.config.Check()
	if err != nil {
		return []finding{{Check: "files", Found: err.Error(), Hint: hintOf(err)}}
	}
	all := []finding{{Check: "files", OK: true, Found: "configuration, keys and tokens can be read"}}
	s := &deploy.GatewayStatus{Status: new(gateway.Status)}
	switch err := readLocal(ctx, f.config.Local.Address, s); {
	case errors.Is(err, errStopped):
		return append(all, finding{Check: "running", Found: "no: what it holds waits on its disk, and devices are refused", Hint: "starling serve gateway " + f.path})
	case err != nil:
		return append(all, finding{Check: "running", Found: err.Error()})
	}
	all = append(all, finding{Check: "running", OK: true, Found: "it answers on its local listener"})
	if ready, err := readReady(ctx, f.config.Local.Address); err != nil {
		all = append(all, finding{Check: "ready", Found: err.Error()})
	} else {
		all = append(all, readyFindings(ready)...)
	}
	troubles := s.Troubles()
	for _, x := range troubles {
		all = append(all, finding{Check: "uploads", Found: x.Blocks, Hint: x.Do})
	}
	if len(troubles) == 0 {
		all = append(all, finding{Check: "uploads", OK: true, Found: "none is lost or late"})
	}
	if len(s.Keys) == 0 || !slices.ContainsFunc(s.Keys, func(k gateway.KeyStatus) bool { return k.Usable }) {
		all = append(all, finding{Check: "keys", Found: "none that devices may use", Hint: "starling manifest new"})
	} else {
		all = append(all, finding{Check: "keys", OK: true, Found: counted(len(s.Keys), "key", "keys")})
	}
	return all
}

// writeTroubles says what keeps uploads back.
func writeTroubles(w io.Writer, troubles []gateway.Trouble) {
	if len(troubles) == 0 {
		fmt.Fprintln(w, "gateway: nothing blocks it")
	}
	for _, x := range troubles {
		fmt.Fprintf(w, "gateway: %s\n    do: %s\n", x.Blocks, x.Do)
	}
}
