package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/service"
)

// oneAggregator loads the leader or helper that a command is about.
func oneAggregator(name string, args []string) (*aggregatorFile, error) {
	files, err := loadAggregators("task "+name, args)
	if err != nil {
		return nil, err
	}
	if len(files) != 1 {
		return nil, failf(exitUsage, "starling task "+name+" leader.toml", "one configuration is needed: each aggregator has tasks of its own")
	}
	return &files[0], nil
}

// instruct has an aggregator do something, where it runs, and else opens its store for stopped.
func instruct[T any](ctx context.Context, f *aggregatorFile, path string, body any, stopped func() (T, error)) (done T, err error) {
	if err = operateJSON(ctx, f.config, path, body, &done); errors.Is(err, errStopped) {
		done, err = stopped()
	}
	return done, err
}

// ofRegistry says what to do about a task that was refused.
func ofRegistry(err error, next string) error {
	if errors.As(err, new(*status.BadRequest)) {
		return failf(exitInput, next, "%w", err)
	}
	return err
}

// whoami is who adds or closes a task, where nobody says.
func whoami() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "operator"
}

// verifyKeys are flags of the form ID=FILE.
type verifyKeys []deploy.VerifyKey

func (v *verifyKeys) String() string { return "" }

func (v *verifyKeys) Set(text string) error {
	id, file, ok := strings.Cut(text, "=")
	n, err := strconv.ParseUint(id, 10, 8)
	if !ok || err != nil || file == "" {
		return errors.New("want ID=FILE, an id from 0 to 255")
	}
	*v = append(*v, deploy.VerifyKey{ID: uint8(n), File: service.Secret(file)})
	return nil
}

// expected is a flag of the form REPORTS[/UNITS].
type expected deploy.Expected

func (x *expected) String() string { return "" }

func (x *expected) Set(text string) (err error) {
	reports, units, spans := strings.Cut(text, "/")
	if x.Reports, err = strconv.ParseUint(reports, 10, 64); err == nil && spans {
		x.Units, err = strconv.ParseUint(units, 10, 64)
	}
	if err != nil || x.Reports == 0 {
		return errors.New("want REPORTS, or REPORTS/UNITS of the recipe's time precision")
	}
	return nil
}

// termsOf are the flags of what an aggregator adds to a recipe or a configuration.
func termsOf(flags *flag.FlagSet, t *deploy.Task) {
	flags.TextVar(&t.Framing, "framing", t.Framing, "how the other aggregator and the collector `FRAME` what they say: standard or janus")
	flags.Var((*verifyKeys)(&t.VerifyKeys), "verify-key", "a verification key, as `ID=FILE`; may be given several times")
	flags.StringVar((*string)(&t.VerifyKeyInit), "verify-key-init", "", "the `FILE` of a secret that leader and helper share for many tasks, in place of verification keys")
	flags.StringVar((*string)(&t.PeerToken), "peer-token", "", "the `FILE` of the token between leader and helper")
	flags.StringVar((*string)(&t.CollectorToken), "collector-token", "", "the `FILE` of the token between leader and collector")
	flags.StringVar((*string)(&t.CollectorHPKE), "collector-hpke", "", "the `FILE` of the collector's public key")
	flags.Var((*expected)(&t.Expected), "expected", "hold batches with more than twice as many as `REPORTS[/UNITS]`; by default the recipe's rate, if it states one")
}

func taskAdd() *command {
	return &command{
		name: "add", args: "--recipe FILE [--json] [CONFIG]",
		short: "Add a task to a leader or helper, whether it runs or not",
		long: `The task is kept in the aggregator's store, and takes reports at once where it runs. Add it at both aggregators, in either
order: until both have it nothing is lost. The same add again is the same task. Where the configuration has an [agreement], keys and tokens
follow from it; else name their files, which stay where they are. --invitation is for a task with another helper, leader or collector than
those that were joined: the file stays where it is, and is pinned.`,
		examples: [][2]string{
			{"starling task add --recipe clicks.starling leader.toml", "at the leader"},
			{"starling task add --recipe clicks.starling helper.toml", "at the helper"},
			{"starling task add --recipe other.starling --invitation cleo.invitation --fingerprint " + exampleFingerprint + " leader.toml",
				"with another helper than the one that was joined"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			var t deploy.Task
			flags.StringVar((*string)(&t.Recipe), "recipe", "", "the recipe's `FILE`")
			flags.StringVar((*string)(&t.Configuration), "configuration", "", "the `FILE` of the TaskConfiguration of a task of others, in place of a recipe")
			flags.StringVar(&t.ID, "id", "", "`ID` of a task of others; by default what its configuration tells")
			flags.TextVar(&t.DAP, "dap", t.DAP, "the `DRAFT` that a task of others speaks")
			flags.BoolVar(&t.Advertise, "advertise", false, "bring the task to the helper, which takes it if its [[taskprov]] allows that; for a task of others, at its leader")
			termsOf(flags, &t)
			var invitations, fingerprints several
			flags.Var(&invitations, "invitation", "the invitation in this `FILE` is the other aggregator's or the collector's, for this task alone; may be given several times")
			flags.Var(&fingerprints, "fingerprint", "what its owner has read out to you: `F`; one for each --invitation")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				f, err := oneAggregator("add", args)
				if err != nil {
					return err
				}
				for _, file := range invitations {
					t.Invitations = append(t.Invitations, deploy.Invited{File: file})
				}
				in, err := f.config.NewTask(&t, whoami(), fingerprints...)
				if err != nil {
					return ofInput(err, "starling task add --help")
				}
				done, err := instruct(ctx, f, status.AddTaskPath, in, func() (status.Added, error) { return f.config.AddTask(ctx, in) })
				if err != nil {
					return ofRegistry(err, "starling task list "+f.path)
				}
				if *asJSON {
					return e.json(done)
				}
				if !done.New {
					fmt.Fprintf(e.stdout, "task %s was there\n", done.Task)
					return nil
				}
				if t.Advertise {
					fmt.Fprintf(e.stdout, "task %s added; the helper is offered it\n", done.Task)
					return nil
				}
				fmt.Fprintf(e.stdout, "task %s added; the other aggregator needs it too\n", done.Task)
				return nil
			}
		},
	}
}

func taskChange() *command {
	return &command{
		name: "change", args: "--task ID [--json] [CONFIG]",
		short: "Change what a leader or helper adds to a task's recipe: its files of keys and tokens, what it expects",
		long: `What is not named stays as it is; --verify-key, once or several times, names all of them. A task in use goes on as it was
until the aggregator is started again, which reads what is new.`,
		examples: [][2]string{
			{"starling task change --task ID --expected 9000/24 leader.toml", "after which a batch that was held is released"},
			{"starling task change --task ID --verify-key 1=old.key --verify-key 2=new.key helper.toml", "the helper first, then the leader"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			var t deploy.Task
			var named status.Named
			flags.StringVar(&named.Task, "task", "", "the task's `ID`, as starling task list prints it")
			termsOf(flags, &t)
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				f, err := oneAggregator("change", args)
				if err != nil {
					return err
				}
				if named.Task == "" {
					return failf(exitUsage, "starling task list "+f.path+" prints the tasks' ids", "--task is needed")
				}
				there, err := instruct(ctx, f, status.ShowTaskPath, named, func() (status.RegisteredTask, error) { return f.config.ShowTask(ctx, &named) })
				if err != nil {
					return ofRegistry(err, "starling task list "+f.path)
				}
				in, err := f.config.Amended(&there, &t)
				if err != nil {
					return ofInput(err, "starling task show --task "+named.Task+" "+f.path)
				}
				done, err := instruct(ctx, f, status.AmendTaskPath, in, func() (status.Amended, error) { return f.config.AmendTask(ctx, in) })
				if err != nil {
					return ofRegistry(err, "starling task show --task "+named.Task+" "+f.path)
				}
				if *asJSON {
					return e.json(done)
				}
				if done.Now {
					fmt.Fprintf(e.stdout, "task %s is changed\n", done.Task)
				} else {
					fmt.Fprintf(e.stdout, "task %s is changed; the %s uses that from its next start on\n", done.Task, f.config.Role)
				}
				return nil
			}
		},
	}
}

func taskShow() *command {
	return &command{
		name: "show", args: "--task ID [--recipe OUT] [--json] [CONFIG]",
		short:    "Show what a leader or helper has of a task",
		long:     `Who added it and when, what it was made of, and which files of secrets it names; what they hold is not there.`,
		examples: [][2]string{{"starling task show --task ID --recipe again.starling leader.toml", "and write the file that it was made of"}},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			var named status.Named
			flags.StringVar(&named.Task, "task", "", "the task's `ID`, as starling task list prints it")
			out := flags.String("recipe", "", "write the recipe, or configuration, to a new file `OUT`")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				f, err := oneAggregator("show", args)
				if err != nil {
					return err
				}
				if named.Task == "" {
					return failf(exitUsage, "starling task list "+f.path+" prints the tasks' ids", "--task is needed")
				}
				t, err := instruct(ctx, f, status.ShowTaskPath, named, func() (status.RegisteredTask, error) { return f.config.ShowTask(ctx, &named) })
				if err != nil {
					return ofRegistry(err, "starling task list "+f.path)
				}
				if *out != "" {
					if len(t.Made) == 0 {
						return failf(exitInput, "starling task list "+f.path, "the task is retired, and what it was made of is erased")
					}
					file, err := os.OpenFile(*out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
					if err != nil {
						return ofInput(err, "name a file that is not there yet")
					}
					if _, err := file.Write(t.Made); err != nil {
						return errors.Join(err, file.Close())
					}
					if err := file.Close(); err != nil {
						return err
					}
				}
				if *asJSON {
					return e.json(t)
				}
				fmt.Fprintf(e.stdout, "task %s, of a %s with SHA-256 %s\n%s, added %s by %s\n", t.Task, t.Form, t.Sum, stateOf(&t.Registered),
					t.Added.Format(time.RFC3339), t.By)
				if !t.Begins.IsZero() {
					fmt.Fprintf(e.stdout, "reports of %s and later\n", t.Begins.Format(time.RFC3339))
				}
				if !t.Ends.IsZero() {
					fmt.Fprintf(e.stdout, "no report after %s\n", t.Ends.Format(time.RFC3339))
				}
				fmt.Fprintf(e.stdout, "here: %s\n", t.Terms)
				return nil
			}
		},
	}
}

// stateOf says whether a task is live.
func stateOf(t *status.Registered) string {
	if c := t.Closed; c != nil {
		return fmt.Sprintf("closed %s by %s: %s", c.At.Format("2006-01-02"), c.By, c.Why)
	}
	return "live"
}

func taskList() *command {
	return &command{
		name: "list", args: "[--json] [CONFIG]",
		short:    "List the tasks of a leader or helper",
		long:     `Live and closed ones, in the order of their last changes; starling status has how far each is.`,
		examples: [][2]string{{"starling task list leader.toml", "live and closed ones"}},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				f, err := oneAggregator("list", args)
				if err != nil {
					return err
				}
				tasks, err := instruct(ctx, f, status.ListTasksPath, struct{}{}, func() ([]status.Registered, error) { return f.config.Registered(ctx) })
				if err != nil {
					return ofRegistry(err, "starling doctor "+f.path)
				}
				if *asJSON {
					return e.json(map[string]any{"tasks": tasks})
				}
				w := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
				for i := range tasks {
					io.WriteString(w, listed(&tasks[i]))
				}
				return w.Flush()
			}
		},
	}
}

// listed is a task's line, with tabs between its columns.
func listed(t *status.Registered) string {
	came := "added"
	if t.Source == "in band" {
		came = "brought in band"
	}
	return fmt.Sprintf("%s\t%s\t%s %s by %s\t%s\n", t.Task, t.Form, came, t.Added.Format("2006-01-02"), t.By, stateOf(t))
}

func taskClose() *command {
	return &command{
		name: "close", args: "--task ID --reason TEXT [--drop] [--json] [CONFIG]",
		short: "End a task of a leader or helper for new reports, for good",
		long: `Uploads are refused from then on. Acknowledged reports are verified all the same, and batches that have their minimum can be
collected until the task is retired. Closed at one of the two, it is closed at the other when they compare themselves next, with the same
reason. A task that was closed never opens: make its recipe again instead.

With --drop, at a leader, reports that wait are not verified but given up: they count as report_dropped, and nobody ever sees them. Those that
the helper was asked about end with its answer. A task that is closed already is taken too, and where the command fails, type it
again.`,
		examples: [][2]string{
			{`starling task close --task ID --reason "the study is over" leader.toml`, "as starling task list prints the ID"},
			{`starling task close --task ID --reason "the office withdraws" helper.toml`, "at the other of the two"},
			{`starling task close --task ID --reason "asked by mistake" --drop leader.toml`, "no further report is verified"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			c := status.Closing{By: whoami()}
			flags.StringVar(&c.Task, "task", "", "the task's `ID`, as starling task list prints it")
			flags.StringVar(&c.Why, "reason", "", "why, in `TEXT`")
			drop := flags.Bool("drop", false, "give up the reports that wait, at the leader")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(ctx context.Context, e *env, args []string) error {
				f, err := oneAggregator("close", args)
				if err != nil {
					return err
				}
				if *drop && f.config.Role == dap.RoleHelper {
					return failf(exitUsage, "starling task close --drop at the leader", "--drop is for a leader: a helper keeps no reports that wait")
				}
				if c.Task == "" || c.Why == "" {
					return failf(exitUsage, "starling task list "+f.path+" prints the tasks' ids", "--task and --reason are needed")
				}
				path, stopped := status.CloseTaskPath, f.config.CloseTask
				if *drop {
					path, stopped = status.GiveUpTaskPath, f.config.GiveUpTask
				}
				done, err := instruct(ctx, f, path, c, func() (status.Closed, error) { return stopped(ctx, &c) })
				if err != nil {
					return ofRegistry(err, "starling task list "+f.path)
				}
				if *asJSON {
					return e.json(done)
				}
				fmt.Fprintf(e.stdout, "closed at %s by %s: %s\n", done.At.Format("2006-01-02 15:04:05Z"), done.By, done.Why)
				if f.config.Role == dap.RoleHelper {
					fmt.Fprintln(e.stdout, "its leader closes it too when the two compare themselves next; jobs of what it has acknowledged are taken until then and after")
					return nil
				}
				if *drop {
					fmt.Fprintf(e.stdout, "%s given up, which count as report_dropped\n", counted(int(done.Dropped), "report", "reports"))
				}
				fmt.Fprintf(e.stdout, "%s to be verified, %s that can be collected, %s in batches below their minimum\n",
					counted(int(done.Waiting), "report", "reports"), counted(int(done.Ready), "report", "reports"), counted(int(done.Short), "report", "reports"))
				return nil
			}
		},
	}
}
