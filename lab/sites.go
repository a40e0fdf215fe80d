package lab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/fl/optimizer"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// SitesOptions say how a lab runs whose devices are agents of sites, for training processes
// of somebody else.
type SitesOptions struct {
	Frame
	// Sites is how many there are, each with an agent, 2 to 200.
	Sites int
	// Dimension is how many parameters the model has.
	Dimension int
	// Clip is the norm to which updates are cut; 1 if zero.
	Clip float64
	// Rounds of the training; 10 if zero. The guarantee covers them all.
	Rounds int
	// Sample is the probability with which a site takes part in a round; 1 if zero. It counts
	// for a site's guarantee, and for nothing in one of its persons'.
	Sample recipe.Rational
	// Persons of a site whose updates one contribution may have; 1 if zero. With more the
	// recipe is about one of them, and sites are trusted to hold each to a share.
	Persons int
	// Ready is told once all parties run. Optional.
	Ready func(Sites)
}

// maxSites bounds [SitesOptions.Sites]: all are of one machine.
const maxSites = 200

// Sites are a lab's, as training processes find them. JSON keys are only added to.
type Sites struct {
	Task    recipe.ID `json:"task"`
	Control string    `json:"control"` // the controller's socket
	Agents  []string  `json:"agents"`  // sockets, one of each site
	Epsilon float64   `json:"epsilon"`
	Delta   float64   `json:"delta"`
	Round   float64   `json:"round_seconds"`
	Status  string    `json:"status"` // where an operator of the controller looks
}

const (
	agentsDir = "agents"
	// sitesPrecision is the length of their rounds: training processes take seconds to start.
	sitesPrecision = 10 * time.Second
	// sitesBits is the precision of what sites send, in binary places at norm 1; sharedBits
	// where it is shared by persons, beside whose part rounding is to be small.
	sitesBits, sharedBits = 14, 20
)

// WithDefaults fills in what is not said.
func (o SitesOptions) WithDefaults() SitesOptions {
	if o.Clip == 0 {
		o.Clip = 1
	}
	if o.Rounds == 0 {
		o.Rounds = 10
	}
	if o.Sample == (recipe.Rational{}) {
		o.Sample = recipe.Rational{Num: 1, Den: 1}
	}
	o.Persons = max(1, o.Persons)
	if o.Precision == 0 {
		o.Precision = sitesPrecision
	}
	if o.Delta == (recipe.Decimal{}) {
		o.Delta = decimal("0.00001")
	}
	o.Frame = o.Frame.withDefaults("4")
	o.relay, o.live = true, true
	return o
}

// Validate says what is wrong, once defaults are filled in.
func (o SitesOptions) Validate() error {
	if o.Persons < 0 {
		return fmt.Errorf("lab: %d persons in a contribution; want at least 1", o.Persons)
	}
	o = o.WithDefaults()
	switch {
	case o.Rounds < 1 || o.Rounds > recipe.MaxRounds:
		return fmt.Errorf("lab: %d rounds; want 1 to %d", o.Rounds, recipe.MaxRounds)
	case o.Sites < 2 || o.Sites > maxSites:
		return fmt.Errorf("lab: %d sites; want 2 to %d", o.Sites, maxSites)
	case o.Dimension < 1 || o.Dimension > session.MaxDimension:
		return fmt.Errorf("lab: a model of %d numbers; want 1 to %d", o.Dimension, session.MaxDimension)
	case o.Persons > recipe.MaxShares:
		return fmt.Errorf("lab: %d persons in a contribution; want at most %d", o.Persons, recipe.MaxShares)
	case o.Sample.Num < 1 || o.Sample.Num > o.Sample.Den || o.Sample.Den > math.MaxUint32:
		return fmt.Errorf("lab: sites take part with probability %v; want above 0, at most 1, with a denominator below 2^32", o.Sample)
	}
	if err := o.terms().Validate(); err != nil {
		return err
	}
	return o.Frame.validate()
}

func (o *SitesOptions) terms() *session.Terms {
	return &session.Terms{
		Layout:    []session.Tensor{{Name: "parameters", Shape: []uint32{uint32(o.Dimension)}}},
		Algorithm: session.FedAvg, LocalSteps: 1, LocalRate: 1, // how many, and of which rate, is the training processes' own
		Clipping: session.Clipping{Norm: o.Clip}, Rounds: uint32(o.Rounds),
	}
}

// RunSites runs leader, helper, relay, gateway, a controller whose rounds begin at its
// socket, and an agent of each site, until ctx ends, which is no error. It is up to whoever
// speaks to the agents what sites train on, and how.
func RunSites(ctx context.Context, o SitesOptions) error {
	if err := o.Validate(); err != nil {
		return err
	}
	o = o.WithDefaults()
	f := newFrame(o.Frame)
	err := f.run(ctx, o.pose, act{"serve", func(ctx context.Context) error { return o.serve(ctx, f) }})
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// pose makes the recipe, with this lab's servers and hours, and the controller that it names.
func (o *SitesOptions) pose(f *frame, a *deploy.Addresses) (_ *recipe.Recipe, err error) {
	if f.conductor, err = newConductor(o.terms(), optimizer.Config{Kind: optimizer.SGD, Rate: 1}, make([]float32, o.Dimension)); err != nil {
		return nil, err
	}
	bits := uint8(sitesBits)
	if o.Persons > 1 {
		bits = sharedBits
	}
	q, err := recipe.NewVector(uint32(o.Dimension), 1, bits, 0)
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	sites := uint64(o.Sites)
	expected := max(1, sites*o.Sample.Num/o.Sample.Den)
	asked := account.Options{
		Name: "A model of several sites", Description: "How a model should change to fit a site's data, of which only the sum over all sites is released.",
		Population: &recipe.Population{Statement: fmt.Sprintf("%d sites of one machine", sites), Expected: sites},
		Query:      q, MinBatch: max(2, (expected+1)/2),
		Leader: a.LeaderURL(), Helper: a.HelperURL(), BatchMode: dap.TimeInterval, TimePrecision: dap.TimePrecision(o.Precision / time.Second), Grace: trainingGrace,
		Kind: account.GaussianNoise, Epsilon: o.Epsilon, Delta: o.Delta, Rounds: uint32(o.Rounds),
		Relay: &recipe.Relay{URL: f.front.RelayURL(), Gateway: f.front.GatewayURL()},
		Rate:  &recipe.Rate{Devices: sites, Units: 1},
	}
	if o.Persons > 1 {
		asked.Unit = &recipe.Unit{Name: recipe.UnitPerson, Records: uint32(o.Persons), Reduce: recipe.SharedSum}
	}
	if o.Sample.Num < o.Sample.Den {
		asked.MinBatch = max(asked.MinBatch, recipe.SampledBatchFloor)
		if asked.Participation, err = recipe.ParseBernoulli(o.Sample.String()); err != nil {
			return nil, fmt.Errorf("lab: %w", err)
		}
	}
	if asked.Training, err = f.conductor.names(); err != nil {
		return nil, err
	}
	if asked.Window, err = f.window(1); err != nil {
		return nil, err
	}
	return account.New(asked)
}

// serve runs the agents, beside the servers, until ctx ends.
func (o *SitesOptions) serve(ctx context.Context, f *frame) error {
	dir, err := filepath.Abs(f.dir)
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	shown := Sites{
		Task: f.client.Checked().ID(), Control: filepath.Join(dir, controlSocket), Epsilon: f.guarantee.Epsilon, Delta: f.guarantee.Delta, Round: o.Precision.Seconds(), Status: f.conductor.status,
	}
	var parts []service.Part
	for i := range o.Sites {
		a, open, err := o.agent(f, filepath.Join(dir, agentsDir, fmt.Sprint(i)))
		if err != nil {
			return err
		}
		defer open.Close() // where the agents never ran
		shown.Agents = append(shown.Agents, string(a.Socket))
		parts = append(parts, a.Parts(f.log, open)...)
	}
	for name, text := range map[string]string{
		"starling.toml": fmt.Sprintf("# For a server app of Flower: docs/flower.md\nmode = \"cross_silo\"\ncontrol = %q\n", controlSocket),
		"README.txt":    sitesReadme,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("lab: %w", err)
		}
	}
	err = service.Run(ctx, 0, func() {
		if o.Ready != nil {
			o.Ready(shown)
		}
	}, parts...)
	if err != nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause // a server failed
	}
	return nil
}

// agent writes a site's configuration and reads it as its owner's process would.
func (o *SitesOptions) agent(f *frame, dir string) (*deploy.Agent, deploy.Listeners, error) {
	var open deploy.Listeners
	var err error
	if open.Local, err = deploy.ListenLoopback(); err != nil {
		return nil, open, err
	}
	config := fmt.Sprintf(`# An agent of a lab: starling serve agent agent.toml
role = "agent"
socket = "agent.sock"
data = "ledger"
budget_epsilon = %s
budget_delta = %s
anchors = "../../%s"

[[tasks]]
recipe = "../../%s"
manifest = "../../%s"
persons = %d

[local]
address = %q
`, float(f.guarantee.Epsilon*ledgerRoom), float(min(1, f.guarantee.Delta*ledgerRoom)), deploy.AnchorsFile, deploy.RecipeFile, deploy.ManifestFile, o.Persons, open.Local.Addr())
	path := filepath.Join(dir, deploy.AgentFile)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(path, []byte(config), 0o600)); err != nil {
		open.Close()
		return nil, open, fmt.Errorf("lab: %w", err)
	}
	a, err := deploy.LoadAgent(path)
	if err != nil {
		open.Close()
	}
	return a, open, err
}

// sitesReadme lies in a deployment that is kept.
const sitesReadme = `A Starling deployment of some sites on loopback, made by "starling fl lab --keep". Each party again, in a terminal of its own:

    starling serve helper helper.toml
    starling serve leader leader.toml
    starling serve gateway gateway.toml
    starling serve relay relay.toml
    starling serve controller controller.toml
    starling serve agent agents/0/agent.toml      and so on, one for each site

and then

    starling fl status controller.toml            rounds, and what they have cost
    starling status agents/0/agent.toml           what a site has spent
    starling recipe show recipe.starling          what is asked, and what it guarantees

starling.toml is what Private of starling-flower reads. secrets/ has all keys, which in earnest lie at several owners.
`

// Text is for people.
func (s *Sites) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "task       %v\ncontroller %s\n", s.Task, s.Control)
	for i, a := range s.Agents {
		fmt.Fprintf(&b, "site %-5d %s\n", i, a)
	}
	fmt.Fprintf(&b, "rounds of  %v s; all of them cost epsilon %.4g at delta %.1g\n", s.Round, s.Epsilon, s.Delta)
	return b.String()
}
