package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/recipe"
)

func budgetCommand() *command {
	return &command{
		name: "budget", args: "[--log] [--recipe FILE] [--max-epsilon E] [--json] DIR",
		short: "Show what a device has spent of its privacy, and whether it can afford a recipe",
		long: `DIR holds a device's ledger. A device pays for a round of a recipe when it tosses the coin, heads or tails, so the ledger
does not say in what it took part. With --recipe it says what the next round of that recipe costs, and exits with 6 where
that is more than --max-epsilon leaves.`,
		examples: [][2]string{
			{"starling budget ~/.local/share/starling", "what is spent"},
			{"starling budget --log DIR", "every recipe this device has seen, and what became of it"},
			{"starling budget --recipe recipe.starling --max-epsilon 4 DIR", "whether a recipe still fits"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			all := flags.Bool("log", false, "list every recipe this device has seen")
			file := flags.String("recipe", "", "say whether the next round of the recipe in `FILE` can be paid for")
			most := flags.Float64("max-epsilon", 0, "the person's limit `E` over all recipes; 0 is none")
			return func(_ context.Context, e *env, args []string) error {
				if len(args) != 1 {
					return usageOf("budget", errors.New("starling budget needs the directory of a device's ledger"))
				}
				if !(*most >= 0) {
					return usageOf("budget", fmt.Errorf("--max-epsilon is %v, want 0 or more", *most))
				}
				b, err := readBudget(args[0], *most)
				if err != nil {
					return err
				}
				var refusal error
				if *file != "" {
					if refusal, err = b.afford(*file); err != nil {
						return err
					}
				}
				if *asJSON {
					if err := e.json(b); err != nil {
						return err
					}
				} else {
					b.print(e, *all)
				}
				return refusal
			}
		},
	}
}

// budgetView is what the command shows. An epsilon that is not bounded is null in JSON.
type budgetView struct {
	Epsilon    *float64            `json:"epsilon"`
	Delta      float64             `json:"delta"`
	Conditions []string            `json:"conditions"` // of both
	Anyway     recipe.Loss         `json:"unconditional"`
	Limit      float64             `json:"max_epsilon,omitempty"`
	Left       *float64            `json:"epsilon_left,omitempty"`
	Recipes    []participate.Entry `json:"recipes"`
	Next       *nextRound          `json:"next,omitempty"`
}

// nextRound is what deciding once more in a recipe would cost.
type nextRound struct {
	Recipe recipe.ID   `json:"recipe"`
	Name   string      `json:"name"`
	Rounds uint32      `json:"rounds_decided"`
	Most   uint32      `json:"rounds"`
	After  recipe.Loss `json:"loss_after"`
	Costs  *float64    `json:"epsilon_costs"`
	// Conditions are of both, and Anyway is what deciding costs if they do not hold.
	Conditions []string `json:"conditions"`
	Anyway     *float64 `json:"unconditional_epsilon_costs"`
	Affords    bool     `json:"affords"`
	Why        string   `json:"why,omitempty"`
}

// readBudget reads a ledger without changing it.
func readBudget(dir string, most float64) (*budgetView, error) {
	if info, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, failf(exitInput, "name the directory that starling send --ledger or the device's app keeps its ledger in", "there is no ledger in %s", dir)
	} else if err != nil {
		return nil, ofInput(err, "name the directory that the device's app keeps its ledger in")
	} else if !info.IsDir() {
		return nil, failf(exitInput, "name the directory, not the file in it", "%s is no directory", dir)
	}
	fsys, err := disk.OS(dir)
	if err != nil {
		return nil, ofInput(err, "name the directory that starling send --ledger keeps the ledger in")
	}
	defer fsys.Close()
	entries, spent, err := participate.ReadLedger(fsys)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, failf(exitInput, "a device makes its ledger with the first recipe it considers", "%s holds no ledger", dir)
	case errors.Is(err, participate.ErrLedger):
		return nil, &failure{exitCheck, err, "do not delete it: an empty ledger would forget what is spent; restore the whole device, " +
			"or let it take part in nothing"}
	case err != nil:
		return nil, err
	}
	b := &budgetView{Epsilon: finite(spent.Epsilon), Delta: spent.Delta, Conditions: participate.Conditions(entries),
		Anyway: recipe.Loss(participate.Unconditional(entries)), Limit: most, Recipes: entries}
	if most > 0 {
		b.Left = finite(max(0, most-spent.Epsilon))
	}
	return b, nil
}

// below writes an epsilon that is left with four digits, never above it.
func below(epsilon float64) string {
	s := strconv.FormatFloat(epsilon, 'g', 4, 64)
	if x, err := strconv.ParseFloat(s, 64); err != nil || x > epsilon {
		step := math.Pow10(int(math.Floor(math.Log10(epsilon))) - 3)
		s = strconv.FormatFloat(epsilon-step, 'g', 4, 64)
	}
	return s
}

func finite(x float64) *float64 {
	if math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// afford works out the next round of a recipe. The first error says why the device would
// not decide.
func (b *budgetView) afford(file string) (refusal, err error) {
	checked, err := openCertified(file)
	if err != nil {
		return nil, err
	}
	r := checked.Recipe()
	id := checked.ID()
	n := &nextRound{Recipe: id, Name: r.Name, Most: r.DecisionRounds()}
	b.Next = n
	var before recipe.Loss
	for _, entry := range b.Recipes {
		if entry.Recipe == id {
			n.Rounds, before = entry.Rounds, entry.Loss
		}
	}
	if n.Rounds >= n.Most {
		n.Why = fmt.Sprintf("it has decided in all %d rounds of this recipe", n.Most)
		return failf(exitCheck, "nothing more can be asked under this recipe; a new one has a new id", "%s: %s", n.Name, n.Why), nil
	}
	if n.After, err = checked.LossAfter(n.Rounds + 1); err != nil {
		return nil, err
	}
	n.Costs = finite(n.After.Epsilon - before.Epsilon)
	n.Conditions = append([]string{}, r.Conditions()...)
	if n.Anyway, err = unconditionalCost(checked, n.Rounds); err != nil {
		return nil, err
	}
	switch {
	case b.Limit == 0:
	case n.Costs == nil || b.Left == nil:
		n.Why = "no limit leaves room for a recipe without differential privacy"
	case *n.Costs > *b.Left:
		n.Why = fmt.Sprintf("the next round costs %s; %s of %.4g is left", n.price(), below(*b.Left), b.Limit)
	}
	if n.Why != "" {
		return failf(exitCheck, "the device tosses no coin and nothing is charged; choose a larger --max-epsilon, or a recipe that costs less",
			"%s: %s", n.Name, n.Why), nil
	}
	n.Affords = true
	return nil, nil
}

// unconditionalCost is what deciding once more costs on none of the recipe's conditions;
// nil is without bound.
func unconditionalCost(c *recipe.Checked, decided uint32) (*float64, error) {
	after, err := c.UnconditionalAfter(decided + 1)
	if err != nil || decided == 0 {
		return finite(after.Epsilon), err
	}
	before, err := c.UnconditionalAfter(decided)
	if err != nil || !after.Finite() || !before.Finite() {
		return nil, err
	}
	return finite(after.Epsilon - before.Epsilon), nil
}

// anyhow stands behind a loss that counts on nobody's word, where there is one that does.
const anyhow = ", even where it is known who sent what"

// price says what the next round costs, what counts on nobody's word first.
func (n *nextRound) price() string {
	epsilon := func(x *float64) string {
		if x == nil {
			return "an answer without differential privacy"
		}
		return "epsilon " + above(*x)
	}
	if len(n.Conditions) == 0 {
		return epsilon(n.Costs)
	}
	return fmt.Sprintf("%s%s; %s holds if %s", epsilon(n.Anyway), anyhow, epsilon(n.Costs), strings.Join(n.Conditions, ", and "))
}

func (b *budgetView) print(e *env, all bool) {
	decided, conditional := 0, 0
	for _, entry := range b.Recipes {
		if entry.Rounds > 0 {
			decided++
			if len(entry.Conditions) > 0 {
				conditional++
			}
		}
	}
	fmt.Fprintf(e.stdout, "%s seen, decided in %d of them\n", counted(len(b.Recipes), "recipe", "recipes"), decided)
	spent, left := "no bound: a recipe without differential privacy was answered", ""
	if b.Epsilon != nil {
		spent = fmt.Sprintf("epsilon %s, delta %s", above(*b.Epsilon), recipe.Above(b.Delta))
		if b.Left != nil {
			left = fmt.Sprintf("; %s of %.4g is left", below(*b.Left), b.Limit)
		}
	}
	if conditional > 0 && b.Epsilon != nil {
		fmt.Fprintf(e.stdout, "spent: %s%s\n       %s%s, holds if what the authors of %d of these recipes say is true: starling budget --log\n",
			b.Anyway, anyhow, spent, left, conditional)
	} else {
		fmt.Fprintf(e.stdout, "spent: %s%s\n", spent, left)
	}
	fmt.Fprintln(e.stdout, "(for lives that differ, in each recipe, by one answer; paid for coins, heads or tails)")
	if all && len(b.Recipes) > 0 {
		fmt.Fprintln(e.stdout)
		for _, entry := range b.Recipes {
			what := "not decided"
			if entry.Rounds > 0 {
				what = fmt.Sprintf("decided %s, %s", counted(int(entry.Rounds), "time", "times"), lossOf(&entry))
			}
			if entry.Refused != "" {
				what += "; refused: " + entry.Refused
			}
			fmt.Fprintf(e.stdout, "%s  %s  %s\n    %s\n", entry.First.Format("2006-01-02"), entry.Recipe, entry.Name, what)
		}
	}
	if n := b.Next; n != nil && n.Affords {
		fmt.Fprintf(e.stdout, "\n%s: the next round (%d of %d) costs %s\n", n.Name, n.Rounds+1, n.Most, n.price())
	}
}

// lossOf is what a recipe has cost, what counts on nobody's word first.
func lossOf(entry *participate.Entry) string {
	if len(entry.Conditions) == 0 {
		return entry.Loss.String()
	}
	anyway := recipe.Loss(participate.Unconditional([]participate.Entry{*entry}))
	return fmt.Sprintf("%s%s; %s, holds if %s", anyway, anyhow, entry.Loss, strings.Join(entry.Conditions, ", and "))
}
