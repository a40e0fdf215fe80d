package plan

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
)

// Cloak: each device splits its number among messages that a shuffler mixes, with its share
// of the noise. One of the two hops must be honest, and MinBatch of the devices.
const Cloak Randomizer = "cloak"

// A PathName is how reports travel.
type PathName string

const (
	TwoServer PathName = "two-server"
	Shuffled  PathName = "shuffled" // for RR, RAPPOR, QA, RandomizedGroup and Cloak
	Direct    PathName = "direct"   // for RR, RAPPOR, QA and RandomizedGroup
)

// A Mixed is what one kind of cloak costs a device, and how far off a sum is, at the epsilon
// and delta of the plan's rounds.
type Mixed struct {
	Kind recipe.CloakKind `json:"-"`
	Name string           `json:"kind"`
	// Messages that a device sends, of Bytes each before they are sealed; 0 where no number
	// of messages will do. Contribution is the length of all of them, sealed, about.
	Messages     int   `json:"messages"`
	Bytes        int   `json:"bytes"`
	Contribution int   `json:"contribution_bytes"`
	Error        Error `json:"error"`
	// Exact: the sum has no noise, and no guarantee for one device.
	Exact bool   `json:"exact,omitempty"`
	Why   string `json:"why,omitempty"` // there are none
}

// checkPath says whether path and randomizer go together.
func (g *Goal) checkPath() error {
	switch g.Path {
	case "", TwoServer:
		if g.Randomizer == Cloak {
			return wrong("a cloak goes behind a shuffler: the path shuffled")
		}
		return nil
	case Shuffled, Direct:
	default:
		return wrong("there is no path %q: want two-server, shuffled or direct", g.Path)
	}
	switch g.Randomizer {
	case RR, RAPPOR, QA, RandomizedGroup:
	case "":
		if !g.asks() {
			return wrong("on the path %s devices randomize: want rr, rappor or, behind a shuffler, cloak", g.Path)
		}
	case Cloak:
		if g.Path == Direct {
			return wrong("a cloak goes behind a shuffler: the path shuffled")
		}
		if g.Query.Form() == recipe.Reals {
			return wrong("a cloak is for whole numbers, and hides what moves little in all: want l1 or sumvec")
		}
	default:
		return wrong("on the path %s devices randomize: want rr, rappor, for sums by group qa or randomized-group or, behind a shuffler, cloak", g.Path)
	}
	if g.Population != 0 {
		return wrong("on the path %s all people answer, none by a coin", g.Path)
	}
	return nil
}

// parties stand for those whom a plan does not know; a guarantee does not depend on their
// names.
func (g *Goal) parties() account.Options {
	o := account.Options{Name: "plan", Leader: "https://leader.example/", Helper: "https://helper.example/"}
	analyzer := standIn("analyzer")
	switch g.Path {
	case Shuffled:
		o.Path = recipe.Shuffled{First: standIn("first"), Second: standIn("second"), Analyzer: analyzer, Mode: recipe.CountedMode}
	case Direct:
		o.Path = recipe.Direct{Analyzer: analyzer}
	default:
		o.Relay = &recipe.Relay{URL: "https://relay.example/", Gateway: "https://leader.example/gateway"}
	}
	return o
}

func standIn(name string) recipe.Party {
	seed := sha256.Sum256([]byte(name))
	var key signed.PublicKey
	copy(key[:], ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey))
	return recipe.Party{URL: "https://" + name + ".example/", Key: key}
}

// byCloak plans a cloak: the least epsilon of a round that the accuracy allows, or the most
// that the loss does.
func (p *Plan) byCloak() error {
	g := &p.Goal
	affordable := recipe.NoPrivacy
	if g.Within != 0 {
		// A sum of n shares of 1/h is off by sqrt(2n/h) of what an answer moves, over epsilon.
		moved, err := g.contribution().Sensitivity(release.ReplaceOne)
		if err != nil {
			return wrong("%v", err)
		}
		wanted := g.Within * g.full(float64(g.People)) / g.tail(g.Confidence)
		each := outward.Up(math.Sqrt(2*float64(g.People)/float64(p.MinBatch)*p.ofMean()) * moved.L1 / wanted)
		epsilon, err := recipe.DecimalAbove(each, 4)
		if err != nil {
			return wrong("within %v of the largest result is out of reach of any cloak: %v", g.Within, err)
		}
		if err := p.cloakOf(recipe.Cloak{Kind: recipe.ModernCloak, Epsilon: epsilon}, recipe.Decimal{}); err != nil {
			return err
		}
		if g.Epsilon == 0 || p.Loss.Epsilon <= g.Epsilon {
			p.Fits = true
			return nil
		}
		affordable = p.Loss
	}
	whole, err := recipe.ParseDecimal(strconv.FormatFloat(g.Epsilon, 'g', -1, 64))
	if err != nil {
		return err
	}
	if err := p.cloakOf(recipe.Cloak{Kind: recipe.ModernCloak}, whole); err != nil {
		return err
	}
	if p.Fits = g.Within == 0; p.Fits {
		return nil
	}
	// Errors stay as they are when more people answer, half of them honest, and grow with
	// the root of the number where as many are honest as before.
	more := p.Error.Part / g.Within
	if g.MinBatch != 0 {
		more *= more
	}
	people := uint64(math.Ceil(outward.Up(float64(g.People) * more)))
	p.Needs = &Need{People: people + people%2, Within: outward.Up(p.Error.Part)}
	if affordable.Finite() {
		p.Needs.Epsilon = affordable.Epsilon
	}
	return nil
}

// tail is how many standard deviations Laplace noise, or a sum of shares of it, stays within
// with a confidence.
func (g *Goal) tail(confidence float64) float64 {
	return math.Max(z(confidence), -math.Log(1-confidence)/math.Sqrt2)
}

// cloakOf takes loss, words and cost from the recipe of a cloak, of which epsilon is
// calibrated to a loss where it is zero.
func (p *Plan) cloakOf(c recipe.Cloak, whole recipe.Decimal) error {
	g := &p.Goal
	c.Users = max(2*p.MinBatch, g.People)
	o, err := p.choose(g.parties())
	if err != nil {
		return err
	}
	o.Randomizer, o.Epsilon = c, whole
	r, err := account.New(o)
	if invalid := new(recipe.InvalidError); errors.As(err, &invalid) {
		return fmt.Errorf("%w: %w", ErrGoal, err)
	} else if err != nil {
		return err
	}
	if err := p.followRecipe(r); err != nil {
		return err
	}
	claim := r.Claim.(recipe.ApproxDP)
	p.cloak, p.claim = r.Randomizer.(recipe.Cloak), claim.Epsilon
	p.Loss.Epsilon = claim.Epsilon.FloatUp()
	p.Mixed = nil
	for _, kind := range recipe.CloakKinds {
		p.Mixed = append(p.Mixed, p.mixed(kind))
	}
	p.Error = p.Mixed[0].Error
	return nil
}

// mixed is what a kind of cloak costs.
func (p *Plan) mixed(kind recipe.CloakKind) Mixed {
	g := &p.Goal
	c := p.cloak
	m := Mixed{Kind: kind, Name: kind.String(), Exact: kind == recipe.SumPreservingCloak}
	if kind != c.Kind {
		c.Messages, c.Modulus, c.Block = 0, 0, 1
	}
	// Large noise of a few needs to know how many devices there are.
	if kind == recipe.SingleUserCloak {
		c.Users = g.People
	}
	c.Kind = kind
	fitted, err := c.Fit(g.Query, p.MinBatch, 0)
	if err != nil {
		m.Why = "no number of messages up to 512 does for as many people"
		return m
	}
	rms, err := fitted.RMS(g.Query)
	if err != nil {
		m.Why = err.Error()
		return m
	}
	m.Messages, m.Bytes, m.Contribution = fitted.Sizes(g.Query)
	deviation := rms * math.Sqrt(p.ofMean()*float64(g.People)/float64(fitted.Users))
	each := g.tail(g.Confidence) * deviation
	m.Error = Error{Each: each, All: g.tail(1-(1-g.Confidence)/float64(p.results())) * deviation, Part: each / g.full(float64(g.People))}
	if g.Query.Averages() {
		m.Error.Each, m.Error.All = each/float64(g.People), each/float64(g.People)
	}
	return m
}

// words are the kind in a line.
func (m *Mixed) words() string {
	if m.Why != "" {
		return fmt.Sprintf("%s: none, %s", m.Name, m.Why)
	}
	what := fmt.Sprintf("%s: %d messages of %d bytes a device, sealed %.3g kB", m.Name, m.Messages, m.Bytes, float64(m.Contribution)/1000)
	if m.Exact {
		return what + "; the sum is exact, which is no privacy of one device's"
	}
	return fmt.Sprintf("%s; within %s", what, atMost(m.Error.Each))
}
