package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/anonymity/gateway"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/prose"
	"github.com/starling-agg/starling/internal/service"
)

// An aggregatorFile is a configuration and the role it was loaded for.
type aggregatorFile struct {
	path   string
	config *deploy.Aggregator
}

// roleOf is whose configuration a file of a command line is, as the file says.
func roleOf(command, path string) (deploy.Role, error) {
	if err := notDirectory(command, path, deploy.LeaderFile, deploy.HelperFile, deploy.GatewayFile, deploy.RelayFile, deploy.CollectorFile); err != nil {
		return "", err
	}
	role, err := deploy.RoleOf(path)
	if err != nil {
		return "", ofInput(err, noDeployment)
	}
	return role, nil
}

// loadAggregators reads the configurations named, or those in the working directory.
func loadAggregators(command string, args []string) ([]aggregatorFile, error) {
	if len(args) == 0 {
		for _, name := range []string{deploy.LeaderFile, deploy.HelperFile} {
			if _, err := os.Stat(name); err == nil {
				args = append(args, name)
			}
		}
		if len(args) == 0 {
			return nil, failf(exitUsage, "starling "+command+" DIR/leader.toml DIR/helper.toml",
				"there is no leader.toml or helper.toml here")
		}
	}
	var files []aggregatorFile
	for _, path := range args {
		is, err := roleOf(command, path)
		if err != nil {
			return nil, err
		}
		role := dap.RoleLeader
		switch is {
		case deploy.LeaderRole:
		case deploy.HelperRole:
			role = dap.RoleHelper
		case deploy.RelayRole:
			return nil, failf(exitUsage, "it answers on its local listener: curl http://ADDRESS/statusz, the address of [local] in "+path+
				"; for a result that is late: starling "+command+" "+filepath.Join(filepath.Dir(path), deploy.GatewayFile),
				"%s: a relay keeps nothing that a result could wait for", path)
		default:
			return nil, failf(exitUsage, "starling "+command+" leader.toml", "%s is a %s's configuration; a leader's or a helper's is wanted", path, is)
		}
		config, err := deploy.LoadAggregator(path, role)
		if err != nil {
			return nil, ofInput(err, noDeployment)
		}
		files = append(files, aggregatorFile{path, config})
	}
	return files, nil
}

// errStopped: nobody listens on an aggregator's local listener.
var errStopped = errors.New("it is not running")

// errNoStore: the lean build would have every engine of a store in it if it opened one.
var errNoStore = fmt.Errorf("%w, and this build reads no store", errStopped)

// localClient speaks to a local listener, be it a port or a unix socket.
func localClient(a service.Address) *http.Client {
	t := &http.Transport{DisableKeepAlives: true}
	if a.IsUnix() {
		path := strings.TrimPrefix(string(a), "unix:")
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	}
	return &http.Client{Transport: t, Timeout: 15 * time.Second}
}

// maxStatus bounds a status in bytes.
const maxStatus = 16 << 20

func readStatus(ctx context.Context, a service.Address) (*status.Status, error) {
	s := new(status.Status)
	return s, readLocal(ctx, a, s)
}

// readLocal reads the status of any party into what it is.
func readLocal(ctx context.Context, a service.Address, into any) error {
	host := string(a)
	if a.IsUnix() {
		host = "local"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/statusz", nil)
	if err != nil {
		return err
	}
	resp, err := localClient(a).Do(req)
	if op := new(net.OpError); errors.As(err, &op) && op.Op == "dial" {
		return errStopped
	} else if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxStatus))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers with status %d: %s", resp.StatusCode, strings.TrimSpace(string(b)))
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("its status cannot be read: %w", err)
	}
	return nil
}

// readAll reads the status of every aggregator; the first failure ends it. The store of
// one that is stopped is read where that is asked for and there is one.
func readAll(ctx context.Context, files []aggregatorFile, stopped bool) ([]*status.Status, error) {
	var all []*status.Status
	for _, f := range files {
		s, err := readStatus(ctx, f.config.Local.Address)
		switch unread := errors.Is(err, errStopped) && stopped; {
		case lean && unread:
			err = errNoStore
		case !lean && unread:
			if from, err2 := f.config.StoppedStatus(ctx); err2 == nil {
				from.Stopped = true
				s, err = from, nil
			} else if !errors.Is(err2, os.ErrNotExist) {
				err = fmt.Errorf("%w, and its store cannot be read: %w", err, err2)
			}
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			role := f.config.Role.String()
			return nil, failf(exitUnreachable, fmt.Sprintf("starling serve %s %s", role, f.path), "%s: the %s: %w", f.path, role, err)
		}
		all = append(all, s)
	}
	return all, nil
}

func statusCommand() *command {
	return &command{
		name: "status", args: "[--watch] [--json] [CONFIG...]",
		short: "Say where each party stands",
		long: "Reads each party's local listener, as its configuration names it: leader.toml and helper.toml here by default, or\n" +
			"gateway.toml; relay.toml and collector.toml where they are named. Of a leader or helper that is stopped it reads the\n" +
			"store, of a collector the file of its state.",
		examples: [][2]string{
			{"starling status leader.toml helper.toml", "once"},
			{"starling status gateway.toml", "what a gateway holds, passed on and refused"},
			{"starling status --watch", "every second, until interrupted"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object; with --watch, one a second")
			watch := flags.Bool("watch", false, "repeat every second")
			return func(ctx context.Context, e *env, args []string) error {
				outers, rest, err := loadOuter("status", args)
				if err != nil {
					return err
				}
				var files []aggregatorFile
				var fronts []gatewayFile
				if len(rest) > 0 || len(outers) == 0 {
					if files, fronts, err = loadParties("status", rest); err != nil {
						return err
					}
				}
				for {
					// A store that is opened every second could not be started from.
					all, err := readAll(ctx, files, !*watch)
					var gateways []*deploy.GatewayStatus
					if err == nil {
						gateways, err = readGateways(ctx, fronts)
					}
					var others []outerStatus
					if err == nil {
						others, err = readOuters(ctx, outers)
					}
					if err != nil {
						if *watch && ctx.Err() != nil {
							return nil
						}
						return err
					}
					if *asJSON {
						out := map[string]any{"aggregators": all}
						if len(gateways) > 0 {
							out["gateways"] = gateways
						}
						for _, o := range others {
							list, _ := out[o.kind+"s"].([]any)
							out[o.kind+"s"] = append(list, o.value)
						}
						if err := e.json(out); err != nil {
							return err
						}
					} else {
						if *watch && e.width > 0 {
							fmt.Fprint(e.stdout, "\x1b[H\x1b[2J")
						}
						for i, s := range all {
							writeStatus(e.stdout, s)
							writeReadyOf(ctx, e.stdout, s.Role, s.Stopped, files[i].config.Local.Address)
						}
						for i, s := range gateways {
							writeGateway(e.stdout, s)
							writeReadyOf(ctx, e.stdout, "gateway", false, fronts[i].config.Local.Address)
						}
						for _, o := range others {
							o.write(e.stdout)
						}
					}
					if !*watch {
						for i, s := range all {
							if s.Stopped { // what was printed is its store's; it is said all the same
								return failf(exitUnreachable, fmt.Sprintf("starling serve %s %s", s.Role, files[i].path), "%s: the %s: %w", files[i].path, s.Role, errStopped)
							}
						}
						return nil
					}
					select {
					case <-ctx.Done():
						return nil
					case <-time.After(time.Second):
					}
				}
			}
		},
	}
}

func writeStatus(w io.Writer, s *status.Status) {
	n := func(v uint64) string { return prose.Count(float64(v)) }
	for _, t := range s.Tasks {
		fmt.Fprintf(w, "%s, task %s: %s, %s batches of %s or more\n", s.Role, t.ID, t.Phase, t.BatchMode, n(t.MinBatch))
		switch {
		case t.Phase == status.Retired:
			fmt.Fprintf(w, "  retired    all but what follows is erased\n")
		case !t.RetiresAt.IsZero():
			fmt.Fprintf(w, "  kept until %s; then all but the counts is erased\n", t.RetiresAt.Format(time.RFC3339))
		}
		if c := t.Closed; c != nil && t.Phase != status.Retired {
			fmt.Fprintf(w, "  closed     %s by %s: %s\n", c.At.Format(time.RFC3339), c.By, c.Why)
		}
		fmt.Fprintf(w, "  reports    %s done of %s", n(t.Done), n(t.Total))
		switch {
		case t.Peer != nil:
			fmt.Fprintf(w, "; the helper %s of %s", n(t.Peer.Done), n(t.Peer.Total))
		case t.PeerSilent:
			fmt.Fprintf(w, "; this helper does not report progress")
		}
		if t.ReportsPerSec > 0 {
			fmt.Fprintf(w, "; %s a second", prose.Count(t.ReportsPerSec))
		}
		if t.SecondsLeft > 0 {
			fmt.Fprintf(w, "; %s left", time.Duration(t.SecondsLeft*float64(time.Second)).Round(time.Second))
		}
		fmt.Fprintf(w, "\n  ledger     %s acknowledged = %s aggregated + %s rejected + %s waiting; %s collected\n",
			n(t.Counts.Acknowledged), n(t.Counts.Aggregated), n(total(t.Counts.Rejected)), n(t.Counts.Waiting), n(t.Counts.Collected))
		writeReasons(w, "rejected", t.Counts.Rejected)
		writeReasons(w, "refused", t.Counts.Refused)
		if line := agreementLine(&t, s.Now); line != "" {
			fmt.Fprintf(w, "  compared   %s\n", line)
		}
		for _, b := range t.Stops {
			fmt.Fprintf(w, "  stopped    %s: %s\n", strings.Join(b.Stops, ", "), b.Why)
		}
		if t.Rate != nil {
			fmt.Fprintf(w, "  last batch %s\n", t.Rate.Words())
		}
		for _, h := range t.Held {
			fmt.Fprintf(w, "  held       %s\n", h.Why())
		}
		for _, b := range t.Batches {
			name := b.ID
			if name == "" && t.TimePrecision > 0 {
				name = time.Unix(int64(b.Start*t.TimePrecision), 0).UTC().Format(time.RFC3339)
			}
			kept := ""
			if b.Kept {
				kept = "; its sum is kept for other views"
			}
			fmt.Fprintf(w, "  batch      %s %s: %s verified, %s waiting%s\n", name, b.State, n(b.Verified), n(b.Waiting), kept)
		}
	}
	for _, r := range s.Reasons() {
		fmt.Fprintf(w, "%s: %s\n    do: %s\n", s.Role, r.Blocks, r.Do)
	}
	if s.Lost != nil && !s.Lost.Reports() {
		fmt.Fprintf(w, "%s, lost: %s\n", s.Role, s.Lost.Why())
	}
	writeReasons(w, "requests", s.RefusedRequests)
	writeReplicas(w, s)
	writeKeys(w, s)
	if len(s.Quotas) > 0 {
		fmt.Fprintf(w, "%s, quotas: %s\n", s.Role, status.QuotaWords(s.Quotas))
	}
	if s.Published != nil {
		fmt.Fprintf(w, "%s, log: %s\n", s.Role, s.Published.Words())
	}
	if s.NoiseKeys != nil {
		fmt.Fprintf(w, "%s, data keys: %s\n", s.Role, s.NoiseKeys.Words())
	}
}

// agreementLine says how leader and helper stand, where that is known.
func agreementLine(t *status.Task, now time.Time) string {
	a := t.Agreement
	if a == nil || t.Phase == status.Retired {
		return ""
	}
	line := ""
	switch a.State {
	case status.NoAgreement:
		return "the helper does not say what it holds: it is another implementation's"
	case status.NotCompared:
		if line = "not compared since the start"; a.Failed == "" {
			return line
		}
	case status.Agreed:
		line = "leader and helper hold the same, as of " + span(now.Sub(a.At)) + " ago"
	case status.StoreBehind:
		line = "a store is behind, as of " + span(now.Sub(a.At)) + " ago"
	default:
		line = "leader and helper do not hold the same, as of " + span(now.Sub(a.At)) + " ago"
	}
	if a.Failed != "" {
		line += "; the last try failed: " + a.Failed
	}
	return line
}

// writeKeys tells how the keys stand; that the older ones end as they should is worth a
// line, and is seen in their number.
func writeKeys(w io.Writer, s *status.Status) {
	if len(s.Keys) == 0 {
		return
	}
	fmt.Fprintf(w, "%s, HPKE keys\n", s.Role)
	for i := range s.Keys {
		fmt.Fprintf(w, "  %-10s %s\n", s.Keys[i].State, keyLine(&s.Keys[i], s.Now))
	}
}

// keyLine is a key in words, without its state.
func keyLine(k *status.Key, now time.Time) string {
	line := fmt.Sprintf("%3d %s", k.ID, k.KEM)
	if !k.Created.IsZero() {
		line += ", " + span(now.Sub(k.Created)) + " old"
	}
	switch k.State {
	case status.KeyCurrent:
		line += "; the next one in " + span(k.Until.Sub(now))
	case status.KeyAccepted:
		line += "; takes uploads for " + span(k.Until.Sub(now))
	case status.KeyRetiring:
		if line += "; kept"; k.Until.After(now) {
			line += " for " + span(k.Until.Sub(now))
		}
		if k.Why != "" {
			line += ": " + k.Why
		}
	case status.KeyDestroyed:
		line += "; destroyed " + span(now.Sub(k.Until)) + " ago"
	}
	return line
}

// span is a duration in words that are short enough for a line: at most two units.
func span(d time.Duration) string {
	d = max(0, d)
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	case d >= time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return d.Round(time.Second).String()
}

func writeReasons(w io.Writer, what string, counts map[string]uint64) {
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(w, "  %-10s %s %s\n", what, prose.Count(float64(counts[reason])), reason)
	}
}

func total(counts map[string]uint64) uint64 {
	var sum uint64
	for _, n := range counts {
		sum += n
	}
	return sum
}

// readEach reads what can be read of every aggregator, be it of the store of one that is
// stopped. The error is of the first of which nothing is known.
func readEach(ctx context.Context, files []aggregatorFile) (all []*status.Status, err error) {
	for _, f := range files {
		s, failed := readAll(ctx, []aggregatorFile{f}, true)
		if failed != nil && err == nil {
			err = failed
		}
		all = append(all, s...)
	}
	return all, err
}

// ofParty are the reasons that are no single task's.
func ofParty(s *status.Status) (rs []status.Reason) {
	if s.Stopped {
		rs = append(rs, status.Reason{Blocks: "it is not running; what is said of it was read of its store",
			Do: fmt.Sprintf("starling serve %s %s.toml", s.Role, s.Role)})
	}
	return append(append(rs, s.Reasons()...), s.Strays()...)
}

func whyCommand() *command {
	return &command{
		name: "why", args: "[--json] [CONFIG...]",
		short: "Name what keeps a task from its result, and what to do",
		long:  "Of a leader or helper that is stopped it reads the store; of one that does not answer at all it says so last, after what the others say.",
		examples: [][2]string{
			{"starling why leader.toml", "one line for each thing that blocks"},
			{"starling why gateway.toml", "what keeps uploads from the leader"},
			{"starling why hop1.toml analyzer.toml", "what keeps results of the shuffled path"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				mixers, args, err := loadMixers("why", args)
				if err != nil {
					return err
				}
				var files []aggregatorFile
				var fronts []gatewayFile
				if len(args) > 0 || len(mixers) == 0 {
					if files, fronts, err = loadParties("why", args); err != nil {
						return err
					}
				}
				all, silent := readEach(ctx, files)
				var recipes []blockedRecipe
				for _, m := range mixers {
					blocked, err := m.why(ctx)
					if err != nil && silent == nil {
						silent = err
					}
					recipes = append(recipes, blocked...)
				}
				gateways, err := readGateways(ctx, fronts)
				if err != nil && silent == nil {
					silent = err
				}
				type blocked struct {
					Role    string          `json:"role"`
					Task    string          `json:"task"`
					Reasons []status.Reason `json:"reasons"`
				}
				list := []blocked{}
				for _, s := range all {
					for i := range s.Tasks {
						reasons := status.Why(&s.Tasks[i])
						if reasons == nil {
							reasons = []status.Reason{}
						}
						list = append(list, blocked{s.Role, s.Tasks[i].ID, reasons})
					}
				}
				if *asJSON {
					out := map[string]any{"tasks": list}
					parties := map[string][]status.Reason{}
					for _, s := range all {
						if rs := ofParty(s); len(rs) > 0 {
							parties[s.Role] = rs
						}
					}
					if len(parties) > 0 {
						out["parties"] = parties
					}
					if len(mixers) > 0 {
						out["recipes"] = append([]blockedRecipe{}, recipes...)
					}
					if len(gateways) > 0 {
						troubles := [][]gateway.Trouble{}
						for _, s := range gateways {
							troubles = append(troubles, append([]gateway.Trouble{}, s.Troubles()...))
						}
						out["gateways"] = troubles
					}
					return errors.Join(e.json(out), silent)
				}
				for _, s := range gateways {
					writeTroubles(e.stdout, s.Troubles())
				}
				for _, s := range all {
					for _, r := range ofParty(s) {
						fmt.Fprintf(e.stdout, "%s: %s\n    do: %s\n", s.Role, r.Blocks, r.Do)
					}
				}
				for _, b := range list {
					if len(b.Reasons) == 0 {
						fmt.Fprintf(e.stdout, "%s, task %s: nothing blocks it\n", b.Role, b.Task)
					}
					for _, r := range b.Reasons {
						fmt.Fprintf(e.stdout, "%s, task %s: %s\n    do: %s\n", b.Role, b.Task, r.Blocks, r.Do)
					}
				}
				for _, b := range recipes {
					if len(b.Reasons) == 0 {
						fmt.Fprintf(e.stdout, "%s, recipe %.16s: nothing blocks it\n", b.Role, b.Recipe)
					}
					for _, r := range b.Reasons {
						fmt.Fprintf(e.stdout, "%s, recipe %.16s: %s\n    do: %s\n", b.Role, b.Recipe, r.Blocks, r.Do)
					}
				}
				return silent
			}
		},
	}
}
