package lab

import (
	"context"
	"fmt"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/internal/prose"
	"github.com/starling-agg/starling/lab/internal/randhie"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/recipe/plan"
)

// unproved says whether devices send no proofs.
func (o *Options) unproved() bool {
	return o.cloaks() || o.Recipe == Groups && o.Path != "" && o.Path != string(plan.TwoServer)
}

// validateGroupsPath says what is wrong with path and randomizer.
func (o *Options) validateGroupsPath() error {
	switch {
	case o.cloaks():
		return nil
	case o.Path != string(plan.Shuffled) && o.Path != string(plan.Direct):
		return fmt.Errorf("lab: no path %q; want %s, %s or %s", o.Path, plan.TwoServer, plan.Shuffled, plan.Direct)
	}
	if _, err := o.groupRandomizers(); err != nil {
		return err
	}
	return nil
}

// groupRandomizers are those that are asked for, or both, calibrated to the lab's epsilon:
// of one answer on the direct path, and of the mixed ones behind hops.
func (o *Options) groupRandomizers() ([]recipe.GroupRandomizer, error) {
	all := map[plan.Randomizer]recipe.GroupRandomizer{
		plan.QA: recipe.QA{Asks: recipe.AskSizes}, plan.RandomizedGroup: recipe.RandomizedGroup{Asks: recipe.AskSizes},
	}
	if o.Randomizer == "" {
		return []recipe.GroupRandomizer{all[plan.QA], all[plan.RandomizedGroup]}, nil
	}
	z, ok := all[plan.Randomizer(o.Randomizer)]
	if !ok {
		return nil, fmt.Errorf("lab: no randomizer %q; want %s or %s", o.Randomizer, plan.QA, plan.RandomizedGroup)
	}
	return []recipe.GroupRandomizer{z}, nil
}

// runMixedGroups plays the lab that asks for groups where nobody is trusted with an answer,
// or one of two hops.
func runMixedGroups(ctx context.Context, o Options) (*Report, error) {
	rows := o
	rows.Rows = o.Population
	h := &histogram{o: rows, found: &Report{}}
	if err := h.askGroups(); err != nil {
		return nil, err
	}
	direct := o.Path == string(plan.Direct)
	c := &mixed{o: o, found: h.found}
	c.asks = mixedQuestion{
		direct:  direct,
		devices: len(h.values),
		value:   func(i int) client.Value { return h.value(h.values[i]) },
		choose: func(p *account.Options) error {
			healthRecipe(p)
			p.Query, p.Labels = groupsQuery(), randhie.HealthLabels
			return o.chooseRandomizer(p)
		},
		promise: func(f *frame) {
			if !direct {
				h.found.Honest = f.recipe.MinBatch
			}
			through := "through two hops; nobody knows whose any of them is"
			if direct {
				through = "to an analyzer, which knows no more than its blur leaves"
			}
			h.found.words.subtitle = fmt.Sprintf("RAND Health Insurance Experiment: %s devices, each of which sent one blurred answer %s", prose.Count(float64(o.Population)), through)
		},
		compare: func(x *collector.Result) { h.tabulate(x) },
	}
	return c.run(ctx)
}

// chooseRandomizer takes the one with the smaller error of sums.
func (o *Options) chooseRandomizer(p *account.Options) error {
	list, err := o.groupRandomizers()
	if err != nil {
		return err
	}
	least := 0.0
	for _, z := range list {
		trial := *p
		trial.Randomizer = z
		r, err := account.New(trial)
		if err != nil {
			return err
		}
		fitted, ok := r.Randomizer.(recipe.GroupRandomizer)
		if !ok {
			return fmt.Errorf("lab: internal error: %T blurs no groups", r.Randomizer)
		}
		e, err := fitted.Errors(groupsQuery(), recipe.Normal95, uint64(o.Population))
		if err != nil {
			return err
		}
		if least == 0 || e.Sum < least {
			least, p.Randomizer = e.Sum, fitted
		}
	}
	return nil
}
