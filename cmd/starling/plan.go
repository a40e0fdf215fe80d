package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/recipe/plan"
)

func recipePlan() *command {
	return &command{
		name: "plan", args: "--query QUERY --people N [--within PART] [--epsilon E] [flags]",
		short: "Work backwards from an accuracy, a privacy loss or both to a recipe",
		long: `QUERY is as for recipe new. PART is of the largest result that N people could give: 0.01 or 1%.
With an accuracy alone the noise is as wide as it allows; with a loss alone it is the least that gives the loss; with
both, the plan says whether they go together and, if not, how many people, which loss or which accuracy would do (and the
exit code is 6). The guarantee comes with what is left of it when an assumption fails.
--population draws the people of a batch from more, each by a secret coin; --dummies hides how many were drawn, as recipes
with coins want it. --checkin has them come to a secret slot of a round and toss a coin there; N is then of the answers in a slot. --randomizer rr and rappor blur answers on the device; E is then what a report by itself costs, whoever
reads it. --randomizer gaussian has devices add noise to vectors; E is what the sum costs.
--correlate has later batches take back noise of earlier ones: one batch is less accurate, and their mean more, for people who
answer every --separation rounds or less often.
On --path shuffled and direct devices blur; of whole numbers behind a shuffler the plan has the messages of each kind of cloak, and of
sums by group the bits and the mean square error of question & answer and of the randomized group, of which it takes the better one.
--out writes the plan as a recipe, with the same guarantee; coins need --relay and --gateway there.` + unitHelp,
		examples: [][2]string{
			{"starling recipe plan --query histogram:21 --people 20000 --within 1%", "each of 21 buckets within 1 % of 20,000 people, 95 %"},
			{"starling recipe plan --query histogram:21 --people 20000 --within 1% --epsilon 0.5 --out ages.starling " +
				"--name Ages --leader https://leader.example/ --helper https://helper.example/", "the same with a bound on the loss, as a recipe"},
			{"starling recipe plan --query histogram:21 --people 20000 --population 1000000 --within 1% --rounds 50", "a secret sample, fifty times"},
			{"starling recipe plan --query histogram:21 --people 2000 --population 20000 --dummies --within 6% --out ages.starling " +
				"--name Ages --leader https://leader.example/ --helper https://helper.example/ --relay https://relay.example/ " +
				"--gateway https://leader.example/gateway", "a secret sample of a hidden size, as a recipe"},
			{"starling recipe plan --query multihot:4:1 --people 20000 --epsilon 1 --rounds 20 --checkin fixed:1/2:8:1", "random check-ins at eight slots of a round"},
			{"starling recipe plan --query histogram:21 --people 2000 --epsilon 1 --rounds 6 --correlate 90 --separation 14",
				"ninety days, whose noise cancels over days; a person answers every fortnight"},
			{"starling recipe plan --query histogram:21 --people 1000000 --within 1% --randomizer rappor", "without trust in any server"},
			{"starling recipe plan --query groups:0:20:8 --people 100000 --path direct --epsilon 1", "sums by group, for which nobody is trusted: which scheme"},
			{"starling recipe plan --query sum:100 --people 10000 --path shuffled --epsilon 1", "a sum by way of a shuffler: messages of each kind of cloak"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			var g plan.Goal
			query := flags.String("query", "", "what is computed: `QUERY`")
			flags.Uint64Var(&g.People, "people", 0, "how many reports a batch is expected to hold: `N`")
			flags.Uint64Var(&g.Population, "population", 0, "draw them from `N` people, each by a secret coin")
			checkin := flags.String("checkin", "", "they check in at a secret slot, as for recipe new; how many follows, and they send dummies: `KIND`")
			flags.BoolVar(&g.HideCount, "dummies", false, "those not drawn send dummy reports, which hide how many were")
			within := flags.String("within", "", "the error that is wanted, as a `PART` of the largest result")
			confidence := flags.String("confidence", "95%", "how sure the error is to be kept, for each number: `C`")
			flags.Float64Var(&g.Epsilon, "epsilon", 0, "the largest loss `E` over all rounds")
			flags.Float64Var(&g.Delta, "delta", 1e-9, "the probability `D` beside it")
			rounds := flags.Uint("rounds", 1, "in how many batches one unit may be: `N`")
			flags.Uint64Var(&g.Batches, "correlate", 0, "correlate the servers' noise over `N` batches, of whose mean the error is meant")
			flags.Uint64Var(&g.Separation, "separation", 0, "with --correlate: people stay away `S` rounds from one answer to the next")
			randomizer := flags.String("randomizer", string(plan.Servers), "servers, rr, rappor, cloak, (groups) qa, randomized-group or (vectors) gaussian: `WHO` blurs")
			flags.BoolVar(&g.SumsAlone, "sums-alone", false, "of sums by group on path shuffled or direct: ask for no sizes, and so no means")
			flags.Uint64Var(&g.MinBatch, "min-batch", 0, "release nothing about fewer than `B` reports; chosen if not given")
			out := flags.String("out", "", "write the recipe to `FILE`, which must not exist")
			name := flags.String("name", "", "of the recipe: what is asked, in a few words: `TEXT`")
			names := flags.String("names", "", "of the recipe: names of a histogram's buckets or of groups, as for recipe new: `WORDS`")
			leader := flags.String("leader", "", "of the recipe: base `URL` of the leader")
			helper := flags.String("helper", "", "of the recipe: base `URL` of the helper")
			unit := newUnitFlags(flags)
			views := newViewFlags(flags)
			relay := flags.String("relay", "", "of a recipe with coins: `URL` of a relay that hides who sends")
			gateway := flags.String("gateway", "", "of a recipe with coins: `URL` of the gateway behind it")
			when := newRoundFlags(flags)
			keys := newKeyFlags(flags)
			way := newPathFlags(flags)
			return func(ctx context.Context, e *env, args []string) error {
				if err := noArgs("recipe plan", args); err != nil {
					return err
				}
				var err error
				var viewed account.Options
				if g.Query, err = parseQuery(*query); err != nil {
					return usageOf("recipe plan", err)
				}
				labels, err := parseNames(*names)
				switch {
				case err != nil:
					return usageOf("recipe plan", err)
				case labels != nil && *out == "":
					return usageOf("recipe plan", errors.New("--names go into the recipe that --out writes"))
				}
				if g.Unit, err = unit.unit(); err != nil {
					return usageOf("recipe plan", err)
				}
				if err := views.set(&viewed); err != nil {
					return usageOf("recipe plan", err)
				}
				g.Views = viewed.Views
				if *checkin != "" {
					if g.CheckIn, err = recipe.ParseCheckIn(*checkin); err != nil {
						return usageOf("recipe plan", fmt.Errorf("--checkin: %w", err))
					}
					if g.Population != 0 || g.HideCount {
						return usageOf("recipe plan", errors.New("--checkin says who takes part, and that there are dummies: --population and --dummies go without it"))
					}
				}
				if g.People == 0 {
					return usageOf("recipe plan", errors.New("--people is missing: how many reports a batch is expected to hold"))
				}
				if *within != "" {
					if g.Within, err = parsePart("within", *within); err != nil {
						return err
					}
				}
				if g.Confidence, err = parsePart("confidence", *confidence); err != nil {
					return err
				}
				if g.Query.Form() == recipe.Reals {
					if g.Speed, err = e.speed(); err != nil {
						return err
					}
				}
				if g.Delta == 0 {
					return usageOf("recipe plan", errors.New("--delta is 0, which no plan has: they are for Gaussian noise and blurred reports, with a delta above 0; "+
						"a recipe with delta 0 is made by `starling recipe new --noise discrete-laplace --delta 0`"))
				}
				g.Rounds, g.Randomizer, g.Path = uint32(min(*rounds, recipe.MaxRounds+1)), plan.Randomizer(*randomizer), plan.PathName(*way.path)
				switch elsewhere := g.Path == plan.Shuffled || g.Path == plan.Direct; {
				case elsewhere && g.Randomizer == plan.Servers && g.Query.Form() == recipe.Grouped:
					g.Randomizer = "" // whichever is better
				case g.Path == plan.Shuffled && g.Randomizer == plan.Servers && g.Query.Choices() == 0:
					g.Randomizer = plan.Cloak // the only one there is
				}
				p, err := compute(ctx, func() (*plan.Plan, error) { return plan.Make(g) })
				switch {
				case errors.Is(err, plan.ErrGoal):
					return usageOf("recipe plan", err)
				case errors.Is(err, release.ErrUnsupported):
					return failf(exitFailed, "starling recipe plan, without --population, --dummies or --checkin", "%w", err)
				case err != nil:
					return err
				}
				if *out != "" && p.Fits {
					if *name == "" || g.Path == plan.TwoServer && (*leader == "" || *helper == "") {
						return usageOf("recipe plan", errors.New("--out writes a recipe, which needs --name, --leader and --helper"))
					}
					if (*relay == "") != (*gateway == "") {
						return usageOf("recipe plan", errors.New("--relay and --gateway go together"))
					}
					o := account.Options{Name: *name, Leader: *leader, Helper: *helper, BatchMode: dap.TimeInterval, Labels: labels}
					if *relay != "" {
						o.Relay = &recipe.Relay{URL: *relay, Gateway: *gateway}
					}
					o.Participation = g.CheckIn
					if err := when.set(&o); err != nil {
						return usageOf("recipe plan", err)
					}
					if other, err := way.set(&o, keys); err != nil {
						return usageUnless("recipe plan", err)
					} else if !other {
						if err := keys.set(&o); err != nil {
							return err
						}
					}
					r, err := writePlan(p, o, *out)
					if err != nil {
						return err
					}
					defer func() {
						fmt.Fprintf(e.stderr, "wrote %s\n", *out)
						warnKeyless(e, r)
					}()
				}
				if *asJSON {
					err = e.json(p)
				} else {
					err = p.WriteText(e.stdout, e.prose())
				}
				if err == nil && !p.Fits {
					return failf(exitCheck, "the plan says what it would take", "the goal is out of reach of %d people", g.People)
				}
				return err
			}
		},
	}
}

// writePlan writes the recipe of a plan to a new file.
func writePlan(p *plan.Plan, o account.Options, path string) (*recipe.Recipe, error) {
	r, err := p.Recipe(o)
	if unsaid := new(plan.NotExpressibleError); errors.As(err, &unsaid) {
		return nil, failf(exitFailed, "starling recipe plan, "+cmp.Or(unsaid.Hint, "without --out"), "%w", err)
	} else if err != nil {
		return nil, usageOf("recipe plan", err)
	}
	_, err = writeRecipe(r, path)
	return r, err
}

// parsePart reads a part of a whole: 0.01 or 1%.
func parsePart(flag, s string) (float64, error) {
	text, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	x, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if percent {
		x /= 100
	}
	if err != nil || !(x > 0 && x < 1) {
		return 0, failf(exitUsage, "0.01 or 1% is one in a hundred", "--%s is %q, want a part between 0 and 1", flag, s)
	}
	return x, nil
}
