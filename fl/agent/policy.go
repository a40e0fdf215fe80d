package agent

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/signed"
)

// A Policy is what the owner of an agent agrees to of one recipe, beside what its
// client.Options say (epsilon, least batch, whose keys).
type Policy struct {
	// Controllers may publish the models of the training; none is anybody whom the recipe
	// names.
	Controllers []signed.PublicKey
	// Data are words of which a contribution must name one, as what it was made of; none is
	// any, or nothing. They are the processes' word, and keep mistakes out, not lies.
	Data []string
	// Persons of the site whose updates one contribution may have; 1 if zero. Where the
	// recipe is about one of several of a site (recipe.SharedSum), no more than it says, and
	// each counts the recipe's share, however many there are.
	Persons int
	// Every is the least time from one contribution to the next, to whatever recipe, in
	// this life of the agent.
	Every time.Duration
	// Trusted is for how long after its ledger was made anew an agent sits out: what was paid
	// before is not known.
	Trusted time.Duration
}

// maxPersons bounds [Policy.Persons].
const maxPersons = 1024

// Validate says what is wrong with a policy by itself.
func (p *Policy) Validate() error {
	switch {
	case p.Persons < 0 || p.Persons > maxPersons:
		return fmt.Errorf("agent: persons are %d, want 1 to %d", p.Persons, maxPersons)
	case p.Every < 0 || p.Trusted < 0:
		return errors.New("agent: every and trusted: negative")
	}
	return nil
}

func (p *Policy) persons() int { return max(1, p.Persons) }

// A PolicyError is what the agent's own file does not allow. Rule is of a closed set.
type PolicyError struct {
	Rule    string
	Problem string
}

func (e *PolicyError) Error() string { return "agent: the policy's " + e.Rule + ": " + e.Problem }

// allows says whether a recipe may be answered at all.
func (p *Policy) allows(r *recipe.Recipe) error {
	if n := r.Shares(); n > 0 && p.persons() > n {
		return &PolicyError{"persons", fmt.Sprintf("are %d, and a contribution of the recipe has %d at most", p.persons(), n)}
	}
	if t := r.Training; len(p.Controllers) > 0 {
		if t == nil {
			return &PolicyError{"controllers", "the recipe is of no training, and names none"}
		}
		if !slices.Contains(p.Controllers, t.Controller) {
			return &PolicyError{"controllers", "the recipe's is not among them"}
		}
	}
	return nil
}

// takes says whether a contribution may be made now.
func (p *Policy) takes(data string, persons int, born, last, now time.Time) error {
	switch {
	case len(p.Data) > 0 && !slices.Contains(p.Data, data):
		return &PolicyError{"data", fmt.Sprintf("a contribution must say that it is of one of %q", p.Data)}
	case persons > p.persons():
		return &PolicyError{"persons", fmt.Sprintf("a contribution of %d, and at most %d are allowed", persons, p.persons())}
	case now.Sub(born) < p.Trusted:
		return &PolicyError{"trusted", fmt.Sprintf("the ledger was made anew at %s; nothing is contributed before %s",
			born.UTC().Format(time.RFC3339), born.Add(p.Trusted).UTC().Format(time.RFC3339))}
	case !last.IsZero() && now.Sub(last) < p.Every:
		return &PolicyError{"every", fmt.Sprintf("the last contribution was %v ago, and they are %v apart", now.Sub(last).Round(time.Second), p.Every)}
	}
	return nil
}
