package deploy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/client/sender"
	"github.com/starling-agg/starling/client/training"
	"github.com/starling-agg/starling/fl/agent"
	"github.com/starling-agg/starling/internal/endpoint"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/signed"
)

// AgentFile is the name of an agent's configuration.
const AgentFile = "agent.toml"

// An Agent is the configuration of an agent, which takes part in trainings for processes of
// its machine: agent.toml. It is the policy of the machine's owner, and no process can change
// it.
type Agent struct {
	// Party is "agent". Required.
	Party Role `toml:"role"`
	// Socket is the unix socket at which processes contribute; who may open it, may do
	// that. Its directory must be open to nobody else. Required.
	Socket service.Path `toml:"socket"`
	// Receipts is a second unix socket, for a filter that runs as another user: it says
	// whether an update was taken for a task in a round, and does nothing else. It lies in a
	// directory of its own, which a group may enter, whose users then may connect. Optional.
	Receipts service.Path `toml:"receipts"`
	// Local is where the owner looks. Required.
	Local Local `toml:"local"`
	// Data is the directory of the ledger; made where it is missing. Required, and used by
	// one process at a time. It must not go back to a backup.
	Data service.Path `toml:"data"`
	// Counter is a file outside of Data, best on another disk: a ledger that was put back as
	// a whole is found out. Optional.
	Counter service.Path `toml:"counter"`
	// BudgetEpsilon bounds what all recipes together may cost, at BudgetDelta. Required.
	BudgetEpsilon float64 `toml:"budget_epsilon"`
	// BudgetDelta is the probability beside it, for all recipes together. Required.
	BudgetDelta float64 `toml:"budget_delta"`
	// Anchors is the file of root keys that came with the software. Required for recipes
	// that name signing keys.
	Anchors service.Path `toml:"anchors"`
	// AnyKeys also takes recipes that name none. Default false.
	AnyKeys bool `toml:"any_keys"`
	// Tasks are the recipes that are answered. Required, at least one.
	Tasks []AgentTask `toml:"tasks"`
	// Log says how much is written to stderr. Default "info".
	Log Log `toml:"log"`
}

// An AgentTask is a recipe that an agent answers, and on which terms.
type AgentTask struct {
	// Recipe is a recipe file with its certificate. Required.
	Recipe service.Path `toml:"recipe"`
	// Manifest names the relay that everything goes through, a file; for a recipe that names a
	// relay and no log.
	Manifest service.Path `toml:"manifest"`
	// Credentials is the directory that starling enrol and starling visit fill; for a recipe
	// that counts devices or names a log.
	Credentials service.Path `toml:"credentials"`
	// Policy is the file of the log that the recipe names, and its witnesses.
	Policy service.Path `toml:"policy"`
	// Models is the URL that models come from: a relay, or the training's controller. Default:
	// the recipe's relay; required for a training without one.
	Models string `toml:"models"`
	// MaxEpsilon is the largest epsilon of the recipe that is agreed to. Default: any that is
	// finite.
	MaxEpsilon float64 `toml:"max_epsilon"`
	// MinBatch is the smallest batch that is agreed to. Default: any that a recipe may have.
	MinBatch uint64 `toml:"min_batch"`
	// Controllers are root keys that may publish models, as the recipe names them. Default:
	// the recipe's.
	Controllers []string `toml:"controllers"`
	// Data are words of which a contribution must name one, as what it was made of. Default:
	// any.
	Data []string `toml:"data"`
	// Persons of the site may be in one contribution, each cut to the clipping norm and counted
	// as an equal part of it.
	// Default 1.
	Persons int `toml:"persons"`
	// Every is the least time from one contribution to the next. Default none.
	Every service.Duration `toml:"every"`
	// Trusted is for how long after its ledger was made the agent sits out. Default none.
	Trusted service.Duration `toml:"trusted"`
}

// LoadAgent reads and validates agent.toml, and none of the files that it names:
// [Agent.Check] does.
func LoadAgent(path string) (*Agent, error) {
	a := &Agent{}
	if err := loadAs(path, AgentRole, a, a.Validate); err != nil {
		return nil, err
	}
	return a, nil
}

// Validate says what is wrong with the configuration by itself.
func (a *Agent) Validate() error {
	var f Faults
	f.If(a.Socket == "", "socket: required")
	f.Add("socket: ", named(a.Socket))
	f.Add("receipts: ", named(a.Receipts))
	if a.Receipts != "" {
		dir, own := filepath.Dir(string(a.Receipts)), filepath.Dir(string(a.Socket))
		f.If(within(dir, own) || within(own, dir), "receipts: give it a directory of its own, apart from that of socket, which is its owner's alone")
		f.If(within(string(a.Data), dir), "receipts: give it a directory of its own: data lies in %s, which is for a group", dir)
		f.If(a.Counter != "" && within(string(a.Counter), dir), "receipts: give it a directory of its own: counter lies in %s, which is for a group", dir)
	}
	f.Add("local.address: ", service.Local{Address: a.Local.Address}.Validate())
	f.If(a.Data == "", "data: required")
	limits := a.limits()
	f.Add("budget_epsilon, budget_delta: ", limits.Validate())
	f.If(math.IsInf(a.BudgetEpsilon, 0), "budget_epsilon: infinite, which is no budget")
	f.If(len(a.Tasks) == 0 || len(a.Tasks) > agent.MaxTasks, "tasks: %d, want 1 to %d", len(a.Tasks), agent.MaxTasks)
	for i, t := range a.Tasks {
		at := fmt.Sprintf("tasks[%d].", i)
		f.If(t.Recipe == "", "%srecipe: required", at)
		f.If(t.Manifest != "" && t.Policy != "", "%smanifest, policy: the manifests of a recipe that names a log stand there", at)
		f.If(!(t.MaxEpsilon >= 0), "%smax_epsilon: want 0 or more", at)
		if t.Models != "" {
			f.Add(at+"models: ", endpoint.CheckPeer(t.Models))
		}
		for _, key := range t.Controllers {
			_, err := signed.ParsePublicKey(key)
			f.Add(at+"controllers: ", err)
		}
		p := t.policy()
		f.Add(at, p.Validate())
	}
	return f.All()
}

// named says whether a socket has a name in a directory, by which others are kept from it:
// one whose path begins with "@" has none.
func named(socket service.Path) error {
	if strings.HasPrefix(string(socket), "@") {
		return fmt.Errorf("%q is a name that everybody of this machine can reach: give it a directory", socket)
	}
	return nil
}

func (a *Agent) limits() participate.LedgerOptions {
	return participate.LedgerOptions{MaxEpsilon: a.BudgetEpsilon, MaxDelta: a.BudgetDelta}
}

// policy is that of a task whose keys were read before.
func (t *AgentTask) policy() agent.Policy {
	p := agent.Policy{Data: t.Data, Persons: t.Persons, Every: time.Duration(t.Every), Trusted: time.Duration(t.Trusted)}
	for _, key := range t.Controllers {
		if k, err := signed.ParsePublicKey(key); err == nil {
			p.Controllers = append(p.Controllers, k)
		}
	}
	return p
}

// Read reads the files that the configuration names, and says all that is wrong with them.
func (a *Agent) Read() (agent.Options, error) {
	o := agent.Options{Home: sender.Home{Dir: string(a.Data), Counter: string(a.Counter), Limits: a.limits()}}
	var f Faults
	var anchors *signed.Anchors
	var err error
	if a.Anchors != "" {
		anchors, err = ReadAnchors(string(a.Anchors))
		f.Add("", err)
	}
	for i := range a.Tasks {
		t, err := a.Tasks[i].read(a, anchors)
		f.Add(fmt.Sprintf("tasks[%d].", i), err)
		o.Tasks = append(o.Tasks, t)
	}
	if err := f.All(); err != nil {
		return o, err
	}
	return o, o.Validate()
}

func (t *AgentTask) read(a *Agent, anchors *signed.Anchors) (made agent.Task, err error) {
	checked, err := OpenCertified(string(t.Recipe))
	if err != nil {
		return made, err
	}
	r := checked.Recipe()
	var f Faults
	f.If(r.Keyed() && anchors == nil, "recipe: it names signing keys, and there are no anchors to hold them against")
	made = agent.Task{Policy: t.policy(), Sender: sender.Options{Client: client.Options{Checked: checked, MaxEpsilon: t.MaxEpsilon, MinBatch: t.MinBatch, AnyKeys: a.AnyKeys}}}
	if r.Keyed() {
		made.Sender.Client.Anchors = anchors
	}
	f.If(r.Relay != nil && r.Log == nil && t.Manifest == "", "manifest: required, for the recipe names a relay")
	f.If((r.Log != nil || r.Tokens != nil) && t.Credentials == "", "credentials: required, for the recipe counts devices or names a log")
	f.If(r.Log != nil && t.Policy == "", "policy: required, for the recipe names a log")
	if t.Manifest != "" {
		b, err := readFile(string(t.Manifest), ohttp.MaxManifest)
		if err == nil {
			var m *ohttp.Manifest
			if m, err = ohttp.ReadManifest(b); err == nil {
				made.Sender.Manifest = ohttp.Pin(m)
			}
		}
		f.Add("manifest: ", err)
	}
	if r.Training != nil {
		made.Remote = training.Remote{URL: t.Models, Client: &http.Client{Timeout: modelTime}}
		if made.Remote.URL == "" && r.Relay != nil {
			made.Remote.URL = r.Relay.URL
		}
		f.If(made.Remote.URL == "", "models: required, for the recipe names no relay")
	} else {
		f.If(t.Models != "", "models: the recipe is of no training")
	}
	if err := f.All(); err != nil || t.Credentials == "" {
		return made, err
	}
	var policy *tlog.Policy
	if t.Policy != "" {
		if policy, err = ReadPolicy(string(t.Policy)); err != nil {
			return made, fmt.Errorf("policy: %w", err)
		}
	}
	reader, err := sender.NewReader(sender.Purse{Dir: string(t.Credentials), Recipe: r}, policy, anchors)
	if err != nil {
		return made, fmt.Errorf("credentials: %w", err)
	}
	reader.Through(&made.Sender)
	return made, nil
}

// modelTime is how long a model may take.
const modelTime = 2 * time.Minute

// Check reads every file that the configuration names, as starting would, looks at the
// directories of the sockets, and opens no ledger or listener.
func (a *Agent) Check() error {
	var f Faults
	f.Add("", a.checkDirs())
	_, err := a.Read()
	f.Add("", err)
	return f.All()
}

func (a *Agent) shown() (service.Listen, Agreement, string) {
	return service.Listen{Address: service.Address("unix:" + string(a.Socket))}, Agreement{}, ""
}

// An OpenError is the directory of a socket, which others may enter or write than are to.
type OpenError struct {
	Key  string // of the socket: "socket" or "receipts"
	Dir  string
	Mode os.FileMode
}

func (e *OpenError) Error() string {
	if e.Key == receiptsKey {
		return fmt.Sprintf("receipts: %s has mode %#o, so that others than a group could ask, or the group put a socket of its own there: chmod 2750 %s", e.Dir, e.Mode, e.Dir)
	}
	return fmt.Sprintf("socket: %s has mode %#o, so others of this machine could contribute: chmod 700 %s", e.Dir, e.Mode, e.Dir)
}

// receiptsKey is the name of [Agent.Receipts] in the file.
const receiptsKey = "receipts"

// checkDirs holds the socket's directory, once it is there, to be the owner's alone, and that
// of the receipts to be written by the owner and entered by a group at most.
func (a *Agent) checkDirs() error {
	var f Faults
	if err := checkDir("socket", a.Socket, 0o077); !errors.Is(err, fs.ErrNotExist) {
		f.Add("", err)
	}
	if a.Receipts == "" {
		return f.All()
	}
	err := checkDir(receiptsKey, a.Receipts, 0o027)
	if errors.Is(err, fs.ErrNotExist) { // of which group it is only the owner knows
		err = fmt.Errorf("%w: install -d -m 2750 -o AGENT -g GROUP %s", err, filepath.Dir(string(a.Receipts)))
	}
	f.Add("", err)
	return f.All()
}

// checkDir refuses a socket's directory whose mode has a bit that it must not have.
func checkDir(key string, socket service.Path, without os.FileMode) error {
	dir := filepath.Dir(string(socket))
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if mode := info.Mode().Perm(); mode&without != 0 && runtime.GOOS != "windows" {
		return &OpenError{key, dir, mode}
	}
	return nil
}

// Parts returns the agent as components for [service.Run], in order: the agent with its
// ledger, then the local listener, the socket, and that of the receipts.
func (a *Agent) Parts(log *slog.Logger, open Listeners) []service.Part {
	log = log.With(slog.String("role", "agent"))
	metrics := service.BareMetrics() // bytes sent, or goroutines, would tell coins
	var running atomic.Pointer[agent.Agent]
	ready := func() service.Readiness {
		if running.Load() == nil {
			return service.Unready(service.ReasonStopping, errNotStarted)
		}
		return service.Ready(false)
	}
	metrics.Counts("starling_agent_contributions_total", "Contributions by what became of them; accepted says nothing of what was sent.",
		service.Label{Name: "outcome", Values: agent.Outcomes}, func(name string) float64 {
			if x := running.Load(); x != nil {
				return float64(x.Status().Contributions[name])
			}
			return 0
		})
	listen, _, _ := a.shown()
	parts := publicParty("agent", listen, a.Local, log, open, metrics, ready,
		func(ctx context.Context, ready func()) error { return a.work(ctx, log, ready, &running) },
		func() http.Handler {
			if x := running.Load(); x != nil {
				return x
			}
			return nil
		},
		func() any {
			if x := running.Load(); x != nil {
				return x.Status()
			}
			return nil
		})
	if a.Receipts != "" {
		parts = append(parts, service.Server{
			Name: "agent receipts listener", Log: log,
			Listen: service.Listen{Address: service.Address("unix:" + string(a.Receipts)), SocketMode: 0o660},
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if x := running.Load(); x != nil {
					x.Receipts(w, r)
					return
				}
				http.Error(w, "not started", http.StatusServiceUnavailable)
			}),
		}.Part())
	}
	return parts
}

func (a *Agent) work(ctx context.Context, log *slog.Logger, ready func(), running *atomic.Pointer[agent.Agent]) error {
	if err := os.MkdirAll(filepath.Dir(string(a.Socket)), 0o700); err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	if err := a.checkDirs(); err != nil {
		return err
	}
	o, err := a.Read()
	if err != nil {
		return err
	}
	o.Log = log
	x, err := agent.Open(ctx, o)
	if err != nil {
		return err
	}
	running.Store(x)
	ready()
	select {
	case <-ctx.Done():
		err = nil
	case err = <-x.Failed():
	}
	running.Store(nil)
	return errors.Join(err, x.Close())
}
