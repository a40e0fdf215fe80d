package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/recipe"
)

// maxSkew is how far two clocks may be apart before it is a fault: half of what uploads
// may be early by default.
const maxSkew = 150 * time.Second

// A finding is one check of doctor.
type finding struct {
	Config string `json:"config"`
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Found  string `json:"found"`
	Hint   string `json:"hint,omitempty"`
}

func doctorCommand() *command {
	return &command{
		name: "doctor", args: "[--json] [--take-back] [--clock-is-right] [CONFIG...]",
		short: "Check configuration, keys, clocks, peers and stores",
		long: `For each configuration: what it names can be read and is private where it must be; the recipes' guarantees hold; leader
and helper answer, publish their keys and have about the same time. A running aggregator is asked what is stuck and
which keys should have ended; the store of a stopped one is audited. A gateway is asked what it has lost and what it holds; a relay
whether it passes on; of a collector its state and its leader are looked at.`,
		examples: [][2]string{
			{"starling doctor leader.toml helper.toml gateway.toml", "one line a check; exit code 6 where something is wrong"},
			{"starling doctor --clock-is-right leader.toml", "after a long absence: what ends by time goes on; stop the leader first"},
			{"starling doctor --take-back leader.toml", "put acknowledged reports in again that lie in lost/; stop the leader first"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			back := flags.Bool("take-back", false, "before the checks, put lost reports in again as work")
			right := flags.Bool("clock-is-right", false, "before the checks, have one aggregator take this machine's clock for right")
			return func(ctx context.Context, e *env, args []string) error {
				if *right {
					if err := confirmClock(ctx, e, args, *asJSON); err != nil {
						return err
					}
				}
				if *back {
					if err := takeBack(ctx, e, args, *asJSON); err != nil {
						return err
					}
				}
				outers, rest, err := loadOuter("doctor", args)
				if err != nil {
					return err
				}
				var files []aggregatorFile
				var fronts []gatewayFile
				if len(rest) > 0 || len(outers) == 0 {
					if files, fronts, err = loadParties("doctor", rest); err != nil {
						return err
					}
				}
				var all []finding
				faults := 0
				show := func(path string, found []finding) {
					for _, x := range found {
						x.Config = path
						all = append(all, x)
						if !x.OK {
							faults++
						}
						if *asJSON {
							continue
						}
						mark := "ok   "
						if !x.OK {
							mark = "FAULT"
						}
						fmt.Fprintf(e.stdout, "%s %s: %s: %s\n", mark, path, x.Check, x.Found)
						if x.Hint != "" {
							fmt.Fprintf(e.stdout, "      hint: %s\n", x.Hint)
						}
					}
				}
				for _, f := range files {
					show(f.path, examine(ctx, f))
				}
				for _, f := range fronts {
					show(f.path, examineGateway(ctx, f))
				}
				for _, o := range outers {
					show(o.path, o.examine(ctx))
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if *asJSON {
					if err := e.json(map[string]any{"findings": all, "faults": faults}); err != nil {
						return err
					}
				}
				if faults > 0 {
					return failf(exitCheck, "each FAULT says what to change, docs/recovery.md more of it; then starling doctor again", "%d of %d checks found a fault", faults, len(all))
				}
				return nil
			}
		},
	}
}

// examine runs all checks of one aggregator.
func examine(ctx context.Context, f aggregatorFile) []finding {
	var all []finding
	add := func(check string, err error, found, hint string) bool {
		if err != nil {
			all = append(all, finding{Check: check, Found: err.Error(), Hint: hint})
		} else {
			all = append(all, finding{Check: check, OK: true, Found: found})
		}
		return err == nil
	}
	err := f.config.Check()
	if !add("files", err, "configuration, keys and tokens can be read", hintOf(err)) {
		return all
	}
	recipes, err := f.config.Recipes()
	if !add("recipes", err, "", "") {
		return all
	}
	all = all[:len(all)-1]
	if until, signs, err := f.config.SigningUntil(); err != nil || signs {
		if err == nil {
			err = endsSoon(until, time.Now())
		}
		add("signing", err, "the online key signs until "+until.Format(time.RFC3339), "starling key online --root ROOT --out "+string(f.config.Signing.Key)+".next")
	}
	s, err := readStatus(ctx, f.config.Local.Address)
	stopped := errors.Is(err, errStopped)
	switch {
	case stopped && f.config.Engine == deploy.Postgres:
		add("running", nil, "no; its database is looked at, as other processes have it", "")
	case stopped:
		add("running", nil, "no; so its store can be audited", "")
		if !f.config.Used() {
			add("store", nil, "none yet; it is made at the first start", "")
			break
		}
		faults, standing, err := f.config.Inspect(ctx)
		if err == nil && len(faults) > 0 {
			err = errors.New(strings.Join(faults, "; "))
		}
		if errors.Is(err, disk.ErrLocked) {
			add("store", err, "", "it is in use: stop the process that has it, or name that one's configuration")
			break
		}
		if errors.Is(err, keyset.ErrDamaged) {
			add("keys", err, "", hintOf(err))
			break
		}
		hint := "keep the store as it is and report this"
		if known := hintOf(err); known != "" {
			hint = known
		}
		if add("store", err, "all invariants hold", hint) {
			add("keys", nil, keysFound(standing.Keys), "") // none is made or ends while nothing runs
			all = append(all, standingFound(standing)...)
		}
	case add("running", err, "it answers on its local listener", ""):
		add("keys", overdue(s), keysFound(s.Keys), "starling status "+f.path+" says what it is needed for; starling why "+f.path+" what holds that up")
		all = append(all, standingFound(s)...)
		if ready, err := readReady(ctx, f.config.Local.Address); add("ready", err, "", "") {
			all = append(all[:len(all)-1], readyFindings(ready)...)
		}
		for i := range s.Tasks {
			if found, err := compared(&s.Tasks[i], s.Now); found != "" || err != nil {
				add("agreement "+s.Tasks[i].ID, err, found, "starling why "+f.path+" says what to do about each")
			}
			if rate := s.Tasks[i].Rate; rate != nil {
				add("rate "+s.Tasks[i].ID, unlikely(rate), rate.Words(), "starling why "+f.path)
			}
			add("task "+s.Tasks[i].ID, stuck(&s.Tasks[i]), kept(&s.Tasks[i]), "starling why "+f.path)
		}
	}
	if f.config.Engine == deploy.Postgres {
		all = append(all, examineDatabase(ctx, f, stopped)...)
	}
	asked := map[string]bool{}
	for _, checked := range recipes {
		r := checked.Recipe()
		add("guarantee", nil, fmt.Sprintf("%q gives %s", r.Name, checked.Guarantee().Summary()), "")
		path := r.Path.(recipe.TwoServer) // Recipes has read it as one
		for _, peer := range []struct{ role, url string }{{"leader", path.Leader}, {"helper", path.Helper}} {
			if asked[peer.url] || (stopped && peer.role == f.config.Role.String()) {
				continue
			}
			asked[peer.url] = true
			found, err := knock(ctx, f.config.Agreement, peer.url)
			add(peer.role+" answers", err, found, cmp.Or(hintOfCertificate(err), "starling serve "+peer.role+", or ask who runs it"))
		}
	}
	return all
}

// standingFound are the findings about an aggregator as a whole.
func standingFound(s *status.Status) (all []finding) {
	for _, r := range s.Reasons() {
		all = append(all, finding{Check: "state", Found: r.Blocks, Hint: r.Do})
	}
	if len(s.Quotas) > 0 {
		all = append(all, finding{Check: "quotas", OK: true, Found: status.QuotaWords(s.Quotas)})
	}
	if p := s.Published; p != nil && p.Failing == "" && p.Alarms() == 0 { // else it is among the reasons
		all = append(all, finding{Check: "log", OK: true, Found: p.Words()})
	}
	if s.NoiseKeys != nil {
		all = append(all, finding{Check: "data keys", OK: true, Found: s.NoiseKeys.Words()})
	}
	if s.Lost != nil && !s.Lost.Reports() {
		all = append(all, finding{Check: "lost", OK: true,
			Found: s.Lost.Why() + "; a crash leaves such files; they come back when a row names them, and go with their keys"})
	}
	return all
}

// confirmClock has a stopped aggregator take the machine's clock for right.
func confirmClock(ctx context.Context, e *env, args []string, quiet bool) error {
	files, err := loadAggregators("doctor --clock-is-right", args)
	if err != nil {
		return err
	}
	if len(files) != 1 {
		return failf(exitUsage, "starling doctor --clock-is-right leader.toml", "one aggregator's configuration is needed")
	}
	at, err := files[0].config.ConfirmClock(ctx)
	if err != nil {
		return ofInput(err, "stop it first, if it runs: its store is one process's")
	}
	if !quiet {
		fmt.Fprintf(e.stdout, "%s takes %s for the time; tasks and keys end by it from now on\n", files[0].config.Role, at.Format(time.RFC3339))
	}
	return nil
}

// takeBack puts the lost reports of a stopped leader in again.
func takeBack(ctx context.Context, e *env, args []string, quiet bool) error {
	files, err := loadAggregators("doctor --take-back", args)
	if err != nil {
		return err
	}
	if len(files) != 1 || files[0].config.Role != dap.RoleLeader {
		return failf(exitUsage, "starling doctor --take-back leader.toml", "one leader's configuration is needed")
	}
	n, reports, err := files[0].config.TakeBack(ctx, slog.New(slog.NewTextHandler(e.stderr, nil)))
	if err != nil {
		return ofInput(err, "stop the leader first, if it runs: its store is one process's")
	}
	if !quiet {
		fmt.Fprintf(e.stdout, "%s of %s taken back; they are worked on when the leader runs: starling serve leader %s\n",
			counted(int(reports), "report", "reports"), counted(n, "file", "files"), files[0].path)
	}
	return nil
}

// soon is how long before the end of an online key somebody should make the next.
const soon = 7 * 24 * time.Hour

// endsSoon is an error where an online key has ended, or will before a manifest could.
func endsSoon(until, now time.Time) error {
	if until.Sub(now) >= soon {
		return nil
	}
	return fmt.Errorf("the online key ends at %s, and with it key lists and manifests", until.Format(time.RFC3339))
}

// kept says that nothing of a task is stuck, and how long results can be asked for.
func kept(t *status.Task) string {
	switch {
	case t.Phase == status.Retired:
		return "retired: all but its counts and the ledger is erased"
	case t.RetiresAt.IsZero():
		return "nothing is stuck; kept for ever, for it has no end or the configuration says so"
	}
	left := 0
	for _, b := range t.Batches {
		if b.State != "closed" && b.Verified >= t.MinBatch {
			left++
		}
	}
	found := "nothing is stuck; kept until " + t.RetiresAt.Format(time.RFC3339)
	if t.Phase == status.Over && left > 0 {
		found += fmt.Sprintf(", and then erased with %d batches that nobody collected", left)
	}
	return found
}

// overdue is an error where a key should have ended, or have been followed by another,
// long ago.
func overdue(s *status.Status) error {
	var errs []error
	for i := range s.Keys {
		errs = append(errs, s.Keys[i].Overdue(s.Now))
	}
	return errors.Join(errs...)
}

// keysFound counts the keys by state, in the order of a key's life.
func keysFound(keys []status.Key) string {
	count := make(map[string]int)
	for _, k := range keys {
		count[k.State]++
	}
	var words []string
	for _, state := range []string{status.KeyCurrent, status.KeyAccepted, status.KeyRetiring, status.KeyDestroyed, status.KeyConfigured} {
		if n := count[state]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(words, ", ")
}

// compared says how leader and helper stand, and is an error where they do not hold the
// same; both are empty where there is nothing to say.
func compared(t *status.Task, now time.Time) (found string, err error) {
	if a := t.Agreement; a == nil || a.State != status.Differs && a.State != status.StoreBehind {
		return agreementLine(t, now), nil
	}
	var why []string
	for _, s := range t.Stops {
		why = append(why, s.Why)
	}
	return "", errors.New(strings.Join(why, "; "))
}

// unlikely is an error where the last batch is not what was to come.
func unlikely(r *status.Rate) error {
	if r.Verdict == status.AsExpected {
		return nil
	}
	return errors.New(r.Words())
}

// stuck is an error where work of a task fails or was set aside, or the helper cannot be
// asked.
func stuck(t *status.Task) error {
	if len(t.Damaged) > 0 {
		d := t.Damaged[0]
		return fmt.Errorf("the replay protection has a damaged file of %d report ids (%s), and reports that may be among them wait: %s; starling repair", d.IDs, d.Why, d.Tried)
	}
	if t.Peer != nil && t.Peer.Damaged > 0 {
		return fmt.Errorf("the helper's replay protection has %d damaged files; starling repair leader.toml", t.Peer.Damaged)
	}
	for _, s := range t.Stops {
		if s.From == status.FromHold {
			return errors.New(s.Why)
		}
	}
	for _, s := range t.Stuck {
		if s.Quarantined {
			return fmt.Errorf("%d reports were set aside: %s", s.Reports, s.Why)
		}
	}
	for _, s := range t.Stuck {
		if s.Parked {
			return fmt.Errorf("%d acknowledged reports are kept until you decide: %s", s.Reports, s.Why)
		}
	}
	if len(t.Stuck) > 0 {
		s := t.Stuck[0]
		return fmt.Errorf("%d reports wait after %d attempts: %s", s.Reports, s.Attempts, s.Why)
	}
	if t.PeerUnreadable != "" {
		return fmt.Errorf("the helper does not tell how far it is: %s", t.PeerUnreadable)
	}
	return nil
}

// knock asks an aggregator for its keys, as any client does, and compares clocks. It
// trusts those with whom it has an agreement.
func knock(ctx context.Context, agreed deploy.Agreement, base string) (found string, err error) {
	u, err := url.Parse(base)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, dap.ResourceURL(u, dap.HpkeConfigPath).String(), nil)
	if err != nil {
		return "", err
	}
	client, err := agreed.Client(10 * time.Second)
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	begin := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	took := time.Since(begin)
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("it answers with status %d", resp.StatusCode)
	}
	keys, err := dap.ReadHpkeConfigList(b)
	if err != nil {
		return "", fmt.Errorf("its keys cannot be read: %w", err)
	}
	if _, err := keys.Choose(); err != nil {
		return "", fmt.Errorf("its keys cannot be used: %w", err)
	}
	there, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return fmt.Sprintf("%s in %s; it does not tell the time", counted(len(keys), "key", "keys"), took.Round(time.Millisecond)), nil
	}
	// Date counts whole seconds, so up to one second of what is seen is not skew.
	if skew := time.Since(there).Abs(); skew > maxSkew {
		return "", fmt.Errorf("its clock is %s off ours; reports would be refused as too early", skew.Round(time.Second))
	}
	return fmt.Sprintf("%s in %s, clocks agree", counted(len(keys), "key", "keys"), took.Round(time.Millisecond)), nil
}
