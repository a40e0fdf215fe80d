package outlook

import (
	"fmt"
	"io"
	"strings"

	"github.com/starling-agg/starling/internal/prose"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/vdaf/pine"
)

// An Instead is what another choice would bring, the others as they are.
type Instead struct {
	What string `json:"what"`
	*Outlook
}

// A Plan is a training that is asked for, with what would be otherwise. JSON keys are only
// added to.
type Plan struct {
	*Outlook
	Participation string    `json:"participation"`
	Instead       []Instead `json:"instead"`

	Recipe *recipe.Recipe `json:"-"`
}

// Make plans a training, and the same with twice the devices, half the rounds, and all
// devices in each round or a quarter of them. A choice of which no recipe can be made is
// left out.
func Make(o Options, speed *pine.Speed) (*Plan, error) {
	o = o.withDefaults()
	quarter, err := recipe.ParseBernoulli("1/4")
	if err != nil {
		return nil, fmt.Errorf("outlook: internal error: %w", err)
	}
	of := func(o Options) (*recipe.Recipe, *Outlook, error) {
		r, err := o.Recipe()
		if err != nil {
			return nil, nil, err
		}
		x, err := Of(r, speed)
		return r, x, err
	}
	r, x, err := of(o)
	if err != nil {
		return nil, err
	}
	p := &Plan{Outlook: x, Recipe: r, Participation: "always"}
	if o.Participation != nil {
		p.Participation = o.Participation.String()
	}
	for _, c := range []struct {
		what   string
		change func(*Options)
	}{
		{"twice the devices", func(o *Options) { o.Devices *= 2 }},
		{"half the rounds", func(o *Options) { o.Rounds = max(1, o.Rounds/2) }},
		{"all devices in each round", func(o *Options) { o.Participation = nil }},
		{"a quarter of them in each, by coins", func(o *Options) { o.Participation = quarter }},
	} {
		other := o
		other.MinBatch = 0 // what was asked may suit no other batch
		c.change(&other)
		if other.Participation == o.Participation && other.Devices == o.Devices && other.Rounds == o.Rounds {
			continue
		}
		// A choice that cannot be computed is none.
		if _, x, err := of(other); err == nil {
			p.Instead = append(p.Instead, Instead{c.what, x})
		}
	}
	return p, nil
}

// WriteText writes a plan for people, in lines of at most width columns, 0 for any.
func (p *Plan) WriteText(w io.Writer, width int) error {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		const column = 10
		for i, line := range prose.Wrap(fmt.Sprintf(format, args...), prose.Columns(width, 110)-column-2) {
			if i > 0 {
				name = ""
			}
			fmt.Fprintf(&b, "  %-*s%s\n", column, name, line)
		}
	}
	each := "round"
	if p.Releases > 1 {
		each = "slot"
	}
	fmt.Fprintf(&b, "A model of %d numbers, %d rounds, %d devices that decide in each (%s).\n\n", p.Dimension, p.Rounds, p.Devices, p.Participation)
	dummies := ""
	if d := p.Reports - p.Answers; d >= 0.5 {
		dummies = fmt.Sprintf(" and %.0f dummies", d)
	}
	row("Reports", "a %s is expected to have %.0f answers%s, and is released from %d on; it is skipped with probability %.2g.", each, p.Answers, dummies, p.Least, p.Skipped)
	row("Noise", "each server adds %.4g times the clipping norm to each entry of a sum, deviation; together that is %.3g of it in the mean.", p.Sigma, p.Deviation)
	row("Signal", "the mean is at most %.3g times as long as its noise, where all updates point the same way, and %.2g times where they have nothing in common. "+
		"Over all rounds an update outweighs the noise if it is %.2g %% of the clipping norm in the mean, the same each time.", p.Signal, p.Unrelated, 100*p.Agreement)
	cost := ""
	if p.ServerSeconds > 0 {
		cost = fmt.Sprintf("; %.2g s of a device like this machine, %.2g s of one core at each server for all of a %s, and a round takes %.0f s", p.DeviceSeconds, p.BusySeconds, each, p.RoundSeconds)
	}
	row("Cost", "%d bytes a report%s.", p.UploadBytes, cost)
	if p.Epsilon != nil {
		row("Privacy", "epsilon %.4g at delta %.3g for all rounds (%s neighbours), if one server is honest%s%s.", *p.Epsilon, p.Delta, p.Neighbours,
			also("if both are", p.BothHonest), also("if it is known who reports when", p.Known))
	}
	b.WriteString("\nAfter rounds  epsilon\n")
	for _, s := range p.Spent {
		fmt.Fprintf(&b, "%12d  %.4g\n", s.Rounds, s.Epsilon)
	}
	if len(p.Instead) > 0 {
		fmt.Fprintf(&b, "\n%-38s%10s%10s%10s\n", "Instead", "answers", "signal", "sigma")
		fmt.Fprintf(&b, "%-38s%10.0f%10.3g%10.4g\n", "as asked", p.Answers, p.Signal, p.Sigma)
		for _, x := range p.Instead {
			fmt.Fprintf(&b, "%-38s%10.0f%10.3g%10.4g\n", x.What, x.Answers, x.Signal, x.Sigma)
		}
	}
	for _, warning := range p.warnings(each) {
		fmt.Fprintln(&b)
		for _, line := range prose.Wrap(warning, prose.Columns(width, 110)) {
			fmt.Fprintln(&b, line)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func also(when string, epsilon *float64) string {
	if epsilon == nil {
		return ""
	}
	return fmt.Sprintf("; %.4g %s", *epsilon, when)
}

// often is how likely a skipped round is that is warned of.
const often = 0.01

func (p *Plan) warnings(each string) (list []string) {
	if p.Skipped > often {
		list = append(list, fmt.Sprintf("About one %s in %.0f will be skipped, though everybody is honest and there: ask for a smaller least batch, or more devices.", each, 1/p.Skipped))
	}
	if p.BusySeconds > p.RoundSeconds {
		list = append(list, fmt.Sprintf("One core verifies the reports of a %s in %.2g s, and a round takes %.0f: give servers more cores, or rounds more time.", each, p.BusySeconds, p.RoundSeconds))
	}
	if p.Agreement > 1 {
		list = append(list, "Little will be learned: the noise of all rounds is longer than any sum of updates. Ask for more devices, more epsilon or fewer parameters.")
	}
	return list
}
