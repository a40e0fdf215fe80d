package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
	"github.com/starling-agg/starling/internal/prose"
	"github.com/starling-agg/starling/recipe"
)

// explain fills in the assumptions and the fallbacks.
func (p *Plan) explain() error {
	switch {
	case p.Goal.Randomizer == Noisy, p.Goal.Randomizer == Cloak:
		return nil // add has taken them from the recipe
	case p.Goal.Randomizer != Servers:
		return p.blur()
	case p.Goal.HideCount:
		return nil // hide has taken them from the recipe
	}
	return p.explainServers()
}

func (p *Plan) assume(format string, args ...any) {
	p.Assumptions = append(p.Assumptions, fmt.Sprintf(format, args...))
}

func (p *Plan) fallBack(when string, l recipe.Loss, format string, args ...any) {
	p.Fallbacks = append(p.Fallbacks, recipe.Fallback{When: when, Loss: l, Note: fmt.Sprintf(format, args...)})
}

func (p *Plan) explainServers() error {
	g := &p.Goal
	sampled := g.Population != 0
	p.assume("one of the leader and the helper, whichever it is, adds its noise and keeps its share and its noise to itself")
	if g.Rounds == 1 && !sampled {
		p.assume("one %s has one report at most, in one round, which the device counts", g.unit().Name)
	} else {
		p.assume("one %s has one report in each of at most %s, which the device counts", g.unit().Name, rounds(g.Rounds))
		p.assume("each round is released alone, after its end, which leader and helper each see to")
	}
	if g.Views != nil {
		p.assume("each round is released once in each view, after the end of that view's span, which leader and helper each see to")
	}
	if g.Batches > 0 {
		p.assume("any two of them are at least %d rounds apart; the device sees to that too", g.Separation)
	}
	switch {
	case !sampled:
		p.assume("it need not be hidden that a person takes part, only what they answer")
	default:
		p.assume("nobody learns whose reports are in a batch, though everyone may know how many are")
		p.Conditions = []string{fmt.Sprintf("there are %d people to be drawn from, and they are honest", g.Population)}
	}

	p.fallBack("one of the two servers gives everything away, or adds no noise", p.Loss, "nothing changes: only the other's noise was counted")
	p.fallBack("one of the two servers and the collector work together", p.Loss, "nothing changes: they know one share, one noise and the result")
	if sampled {
		open := *p
		open.Goal.Population = 0
		l, err := openLoss(&open)
		if err != nil {
			return err
		}
		p.Unconditional, p.UnconditionalNeighbours = l, release.ReplaceOne
		p.fallBack("somebody watches the network or the relay and learns who takes part", l, "being drawn no longer hides anybody, so every batch is counted in full")
		if l, err = p.crowded(2); err != nil {
			return err
		}
		p.fallBack("half the people are invented or work against the others", l, "there are half as many to be drawn from")
	} else {
		p.fallBack("somebody watches the network or the relay and learns who takes part", p.Loss, "nothing changes: that was never counted as hidden")
		p.fallBack("all other people are invented or work together against one", p.Loss, "nothing changes: the guarantee supposes it")
	}
	missing := fmt.Sprintf("nothing changes for a person; the error stays %s, which is %s of what is left", atMost(p.Error.Each), percent(2*p.Error.Part))
	if g.Query.Averages() {
		missing = fmt.Sprintf("nothing changes for a person; the error doubles to %s", atMost(2*p.Error.Each))
	}
	if g.People/2 < p.MinBatch {
		missing = fmt.Sprintf("nothing is released, because a batch needs %d", p.MinBatch)
	}
	p.fallBack("half the reports are missing", p.Loss, "%s", missing)
	p.fallBack("the leader and the helper put their shares together", recipe.NoPrivacy, "they can read every answer, because devices add no noise of their own")
	return p.persons()
}

// persons computes what a person with several units has.
func (p *Plan) persons() error {
	delta, err := recipe.ParseDecimal(strconv.FormatFloat(p.Goal.Delta, 'g', -1, 64))
	if err != nil {
		return err
	}
	p.Person, err = recipe.Group(p.Goal.unit().PerPerson, delta, func(d recipe.Decimal) (recipe.Loss, error) {
		open := *p
		open.Goal.Population, open.Goal.Delta = 0, d.FloatDown()
		return openLoss(&open)
	})
	return err
}

// openLoss is the loss where it is known who takes part.
func openLoss(p *Plan) (recipe.Loss, error) {
	out, err := p.guarantee(release.Rational(p.parameter()), 1)
	switch {
	case errors.Is(err, release.ErrNoGuarantee):
		return recipe.NoPrivacy, nil
	case err != nil:
		return recipe.NoPrivacy, err
	}
	return recipe.Loss{Epsilon: out.Epsilon, Delta: out.Delta}, nil
}

// crowded is the loss where one person in crowd is honest.
func (p *Plan) crowded(crowd float64) (recipe.Loss, error) {
	out, err := p.guarantee(release.Rational(p.parameter()), crowd)
	if errors.Is(err, release.ErrNoGuarantee) || errors.Is(err, release.ErrParameter) {
		return recipe.NoPrivacy, nil
	}
	return recipe.Loss{Epsilon: out.Epsilon, Delta: out.Delta}, err
}

// over says what a loss covers.
func (g *Goal) over() string {
	if g.Views == nil {
		return rounds(g.Rounds)
	}
	return fmt.Sprintf("%s in all %d views", rounds(g.Rounds), 1+len(g.Views.Wider))
}

func rounds(n uint32) string {
	if n == 1 {
		return "1 round"
	}
	return fmt.Sprintf("%d rounds", n)
}

// sigma is the standard deviation of one server's noise.
func (p *Plan) sigma() float64 {
	if p.parameter().Den == 0 {
		return 0
	}
	return math.Sqrt(p.drawn())
}

// MarshalJSON writes the plan as one flat object; loss as epsilon and delta, null where
// nothing is proved.
func (p *Plan) MarshalJSON() ([]byte, error) {
	g := &p.Goal
	out := struct {
		Query       string              `json:"query"`
		People      uint64              `json:"people"`
		Population  uint64              `json:"population,omitempty"`
		Slots       uint32              `json:"slots,omitempty"`
		Within      float64             `json:"within,omitempty"`
		Confidence  float64             `json:"confidence"`
		Fits        bool                `json:"fits"`
		Needs       *Need               `json:"needs,omitempty"`
		Randomizer  Randomizer          `json:"randomizer"`
		Sampling    float64             `json:"sampling"`
		MinBatch    uint64              `json:"min_batch"`
		Sigma       float64             `json:"sigma,omitempty"`
		Variance    string              `json:"variance,omitempty"`
		Scale       string              `json:"scale,omitempty"`
		Epsilon0    float64             `json:"epsilon0,omitempty"`
		Dummies     float64             `json:"dummies,omitempty"`
		Allowance   uint64              `json:"allowance,omitempty"`
		Local       *recipe.Loss        `json:"local,omitempty"`
		Epsilon     *float64            `json:"epsilon"`
		Delta       float64             `json:"delta"`
		Conditions  []string            `json:"conditions"`
		Anyway      recipe.Loss         `json:"unconditional"`
		Unit        recipe.Unit         `json:"unit"`
		Person      *recipe.Loss        `json:"person,omitempty"`
		Rounds      uint32              `json:"rounds"`
		Neighbours  string              `json:"neighbours,omitempty"`
		Theorem     string              `json:"theorem"`
		Error       Error               `json:"error"`
		Assumptions []string            `json:"assumptions"`
		Fallbacks   []recipe.Fallback   `json:"fallbacks"`
		Instead     []Option            `json:"instead"`
		Proofs      []Proof             `json:"proofs,omitempty"`
		Projections []Shorter           `json:"projections,omitempty"`
		Proved      *recipe.ProvedBound `json:"proved_bound,omitempty"`
		Series      *SeriesError        `json:"correlated,omitempty"`
		Groups      *recipe.GroupErrors `json:"groups,omitempty"`
		Path        PathName            `json:"path,omitempty"`
		Mixed       []Mixed             `json:"cloaks,omitempty"`
		Schemes     []Asked             `json:"schemes,omitempty"`
	}{
		Query: g.Query.String(), People: g.People, Population: g.Population, Within: g.Within, Confidence: g.Confidence, Fits: p.Fits,
		Needs: p.Needs, Randomizer: g.Randomizer, Sampling: g.rate(), MinBatch: p.MinBatch, Sigma: p.sigma(), Epsilon0: p.Epsilon0,
		Dummies: p.Dummies, Allowance: p.Allowance, Delta: p.Loss.Delta, Rounds: g.Rounds, Theorem: p.Theorem, Error: p.Error,
		Conditions: append([]string{}, p.Conditions...), Anyway: p.stated().Unconditional, Unit: g.unit(),
		Assumptions: p.Assumptions, Fallbacks: p.Fallbacks, Instead: append([]Option{}, p.Instead...),
		Proofs: p.proofs(), Projections: p.projections(), Proved: p.Proved, Series: p.series(), Groups: p.groups(), Mixed: p.Mixed, Schemes: p.schemes(),
	}
	if g.Path != TwoServer {
		out.Path = g.Path
	}
	if c, ok := recipe.SlottingOf(g.CheckIn); ok {
		out.Slots = c.Slots
	}
	if p.Local.Finite() {
		out.Local = &p.Local
	}
	if p.Variance.Den != 0 {
		out.Variance = p.Variance.String()
	}
	if p.Scale.Den != 0 {
		out.Scale = p.Scale.String()
	}
	if g.unit().PerPerson > 0 {
		out.Person = &p.Person
	}
	if p.Loss.Finite() {
		out.Epsilon, out.Neighbours = &p.Loss.Epsilon, p.Neighbours.String()
	}
	return json.Marshal(out)
}

// WriteText writes the plan for people, at most width columns wide; 108 if 0 or more.
func (p *Plan) WriteText(w io.Writer, width int) error {
	g := &p.Goal
	var b strings.Builder
	line := func(label, format string, args ...any) {
		for _, s := range prose.Wrap(fmt.Sprintf(format, args...), prose.Columns(width, 108)-16) {
			b.WriteString(strings.TrimRight(fmt.Sprintf("%-16s%s", label, s), " ") + "\n")
			label = ""
		}
	}
	items := func(label string, list []string) {
		for _, s := range list {
			line(label, "- %s", s)
			label = ""
		}
	}
	line("Wanted", "%s", p.wanted())
	line("Asked", "%s", g.Query)
	if q := p.query(); q.String() != g.Query.String() {
		line("As a recipe", "%s", q)
	}
	if g.Path != TwoServer {
		line("Path", "%s", g.Path)
	}
	line("Protects", "%s", g.unit())
	if g.CheckIn != nil {
		line("Taking part", "%s: about %d answers a slot, of %d people a round", g.CheckIn, g.People, g.Population)
	} else if g.Population != 0 {
		line("Taking part", "each of %d people by a secret coin, with probability %.4g: about %d a batch", g.Population, g.rate(), g.People)
	} else {
		line("Taking part", "about %d people a batch", g.People)
	}
	switch g.Randomizer {
	case Servers:
		if p.laplace {
			line("Noise", "each server adds whole-number Laplace noise of standard deviation %s (scale %s), narrower here than Gaussian noise", number(p.sigma()), p.Scale)
		} else {
			line("Noise", "each server adds whole-number Gaussian noise of standard deviation %s (variance %s)", number(p.sigma()), p.Variance)
		}
		if g.Views != nil {
			line("", "and as much to each batch of each of %d views: each report counts in one of every view, and the loss below is that of all of them; the error is of a round, "+
				"and in units of a sum the same in every view", 1+len(g.Views.Wider))
		}
		if s := p.series(); s != nil {
			line("", "of these draws, each of which reaches %d batches, later batches take back a part: %d batches, in the order of time", s.Bands, s.Batches)
		}
	case Noisy:
		line("On the device", "whole-number Gaussian noise of standard deviation %s (variance %s) is added to each number", number(p.sigma()), p.Variance)
		if b := p.Proved; b != nil {
			line("", "and vector and noise are proved to be at most %.4g times as long as a vector; %s", b.Ratio, redraws(b))
		}
	case Cloak:
		line("On the device", "%s", p.cloak)
		for i, m := range p.Mixed {
			label := "Messages"
			if i > 0 {
				label = ""
			}
			line(label, "%s", m.words())
		}
	case QA, RandomizedGroup:
		if z, err := g.asked(g.Randomizer, p.perBit); err == nil {
			line("On the device", "%s; one report by itself has epsilon %.4g", z, p.Epsilon0)
		}
		list := p.schemes()
		for i := range list {
			line(map[bool]string{true: "Schemes"}[i == 0], "%s", list[i].words())
		}
		line("Chosen", "%s", p.chosen(list))
		if hint := p.hint(); hint != "" {
			line("", "%s", hint)
		}
	default:
		line("On the device", "%s; one report by itself has epsilon %.4g", p.device(), p.Epsilon0)
		if b := p.Proved; b != nil {
			line("", "and at most %d ones are proved; %s", b.Bound, redraws(b))
		}
	}
	for i, proof := range p.proofs() {
		label := "Proofs"
		if i > 0 {
			label = ""
		}
		line(label, "%s", proof.words())
	}
	for i, shorter := range p.projections() {
		label := "Projected"
		if i > 0 {
			label = ""
		}
		line(label, "%s", shorter.words())
	}
	if g.HideCount {
		others := "not drawn"
		if g.CheckIn != nil {
			others = "who do not report in their slot"
		}
		line("Hidden count", "of those %s, a part of %.3g sends a dummy, which adds nothing", others, p.Dummies)
	}
	line("Batches", "nothing is released about fewer than %d reports", p.MinBatch+p.Allowance)
	if g.HideCount {
		line("", "(%d answers, and up to %d dummies)", p.MinBatch, p.Allowance)
	}
	b.WriteByte('\n')
	verdict := "yes"
	if !p.Fits {
		verdict = "no"
	}
	line("Within reach", "%s", verdict)
	if p.Needs != nil {
		items("It would take", p.Needs.words(g))
	}
	line("Error", "each number is within %s of the truth with %.4g %% confidence, %s of all there could be", atMost(p.Error.Each), 100*g.Confidence,
		percent(p.Error.Part))
	if s := p.series(); s != nil {
		for _, words := range s.words() {
			line("", "%s", words)
		}
	}
	if e := p.groups(); e != nil {
		line("", "%s", groupWords(e))
	}
	if n := p.results(); n > 1 {
		line("", "all %d numbers at once are within %s", n, atMost(p.Error.All))
	}
	b.WriteByte('\n')
	if p.Local.Finite() {
		line("Nobody trusted", "%s, over %s, for replace neighbours: whoever reads the reports", p.Local, rounds(g.Rounds))
	}
	if p.Loss.Finite() {
		stated := p.stated()
		stated.Describe(line, g.over())
	} else {
		line("Guarantee", "%s, over %s", p.Loss, g.over())
	}
	items("Assuming that", p.Assumptions)
	var otherwise []string
	for _, f := range p.Fallbacks {
		otherwise = append(otherwise, fmt.Sprintf("if %s: %s (%s)", f.When, f.Loss, f.Note))
	}
	items("Otherwise", otherwise)
	var instead []string
	for _, o := range p.Instead {
		s := fmt.Sprintf("%s: %s, each number within %s", ways[o.Randomizer], o.Loss, atMost(o.Error.Each))
		if !o.Fits {
			s += "; out of reach"
			if o.Needs != nil && o.Needs.People > g.People {
				s += fmt.Sprintf(" with fewer than %d people", o.Needs.People)
			}
		}
		instead = append(instead, s)
	}
	items("Instead", instead)
	_, err := io.WriteString(w, b.String())
	return err
}

// stated is the plan's loss as a recipe's.
func (p *Plan) stated() recipe.Guarantee {
	g := recipe.Guarantee{Loss: p.Loss, Neighbours: p.Neighbours, Theorem: p.Theorem, Conditions: p.Conditions,
		Unconditional: p.Loss, UnconditionalNeighbours: p.Neighbours,
		Unit: p.Goal.unit().Name, PerPerson: p.Goal.unit().PerPerson, Person: p.Person}
	if len(p.Conditions) > 0 {
		g.Unconditional, g.UnconditionalNeighbours = p.Unconditional, p.UnconditionalNeighbours
	}
	return g
}

var ways = map[Randomizer]string{
	Servers: "noise of the servers (one must be honest)",
	RR:      "randomized response (nobody is trusted)",
	RAPPOR:  "RAPPOR (nobody is trusted)",
	Cloak:   "a cloak (one of two hops must be honest)",
	QA:      "question & answer (nobody is trusted)",

	RandomizedGroup: "the randomized group (nobody is trusted)",

	Noisy: "noise of the devices (the servers' shares must stay apart)",
}

// redraws says what happens to draws beyond what is proved.
func redraws(b *recipe.ProvedBound) string {
	if b.Redraw == 0 {
		return "there cannot be more"
	}
	return fmt.Sprintf("draws beyond are drawn again, once in %.3g times at most, which costs %.3g of delta in each batch", 1/b.Redraw, b.Delta)
}

// wanted says the goal.
func (p *Plan) wanted() string {
	g := &p.Goal
	var parts []string
	if g.Within != 0 {
		what, full := g.Query.Part(), g.full(float64(g.People))*g.Query.Unit()
		if g.Query.Averages() {
			full = g.largest()
		}
		if g.Batches > 0 {
			what += fmt.Sprintf(", in the mean of %d batches,", g.Batches)
		}
		parts = append(parts, fmt.Sprintf("%s within %.4g %% of %s, with %.4g %% confidence", what, 100*g.Within, number(full), 100*g.Confidence))
	}
	if g.Epsilon != 0 {
		parts = append(parts, fmt.Sprintf("epsilon at most %.4g at delta %s", g.Epsilon, recipe.Above(g.Delta)))
	}
	return strings.Join(parts, "; ")
}

// device says what a device does.
func (p *Plan) device() string {
	g := &p.Goal
	if g.Randomizer == RAPPOR {
		return fmt.Sprintf("each of %d bits is flipped with probability %.4g", g.buckets(), 1/(math.Exp(p.Epsilon0/2)+1))
	}
	k := float64(g.buckets())
	return fmt.Sprintf("the true one of %d answers is sent with probability %.4g, else any other", g.buckets(), math.Exp(p.Epsilon0)/(math.Exp(p.Epsilon0)+k-1))
}

func (n *Need) words(g *Goal) []string {
	var list []string
	if n.People > g.People {
		list = append(list, fmt.Sprintf("%d people a batch", n.People))
	}
	if n.Epsilon > 0 {
		list = append(list, "or epsilon "+recipe.Above(n.Epsilon))
	}
	return append(list, "or an accuracy of "+percent(n.Within))
}

// number writes a number of people or of units.
func number(x float64) string {
	if x >= 1e4 {
		return fmt.Sprintf("%.0f", outward.Whole(x))
	}
	return fmt.Sprintf("%.4g", x)
}

// atMost writes an error, rounded up.
func atMost(x float64) string {
	if x >= 1e4 {
		return number(x)
	}
	return recipe.Above(x)
}

// percent writes a part of a whole, rounded up.
func percent(part float64) string { return recipe.Above(100*part) + " %" }
