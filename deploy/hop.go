package deploy

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/shuffle/hop"
	"github.com/starling-agg/starling/shuffle/onion"
)

// A Hop is the configuration of hop 1 or hop 2 of the shuffled path: hop.toml.
type Hop struct {
	// Party is "hop". Required.
	Party Role `toml:"role"`
	// Number is 1 for the hop that takes devices' envelopes, and 2 for the one that takes
	// hop 1's batches. Required.
	Number int `toml:"number"`
	// Public is where devices or their gateway come, or hop 1. Required.
	Public service.Listen `toml:"public"`
	// Local is where the operator looks. Required.
	Local Local `toml:"local"`
	// Data is the directory of keys and of rounds that are not done; made where it is
	// missing. It is in no backup: what is put back would mix a round anew whose order is
	// known, or open one whose key was destroyed. The issuer beside it keeps there which
	// requests it has answered. Required, and used by one process at a time.
	Data service.Path `toml:"data"`
	// Shuffles are the recipes that it mixes messages of. Required, at least one.
	Shuffles []HopShuffle `toml:"shuffles"`
	// Tokens are files of bearer tokens, of each who may bring something: the gateway to hop
	// 1, where none lets anybody, and hop 1 to hop 2, which wants one.
	Tokens []service.Secret `toml:"tokens"`
	// Issuer gives out the credentials that are shown to this hop. Required where a recipe is
	// of the mode tokens, and for no other.
	Issuer HopIssuer `toml:"issuer"`
	// Key is the file of the online key that signs keys and batches. Required.
	Key service.Secret `toml:"key"`
	// Delegation is the word of the hop's root, which the recipes name, for it. Required.
	Delegation service.Path `toml:"delegation"`
	// Policy is the file that devices have, of the transparency log in which recipes stand:
	// there the key of each round is put, and devices take it from nowhere else. Required
	// for recipes that name a log; the log's anchors know the hop's root.
	Policy service.Path `toml:"policy"`
	// Ahead is for how many rounds after the present one there are keys; for more where a
	// recipe collects in independent batches. Default 2.
	Ahead int `toml:"ahead"`
	// Hold is for how long after its time a round waits for the next party. Default "24h".
	Hold service.Duration `toml:"hold"`
	// Limits left out or zero take their defaults.
	Limits ShuffleLimits `toml:"limits"`
	// Log says how much is written to stderr. Default "info".
	Log Log `toml:"log"`
}

// A HopShuffle is a recipe that a hop serves.
type HopShuffle struct {
	// Recipe is its file. Required. It names the party that batches go to.
	Recipe service.Path `toml:"recipe"`
	// NextToken is the file of the token that this party knows the hop by. Required.
	NextToken service.Secret `toml:"next_token"`
}

// LoadHop reads and validates hop.toml, and none of the files that it names: [Hop.Check]
// does.
func LoadHop(path string) (*Hop, error) {
	c := &Hop{}
	if err := loadAs(path, HopRole, c, c.Validate); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Hop) mixing() mixing {
	return mixing{c.Public, c.Local, c.Data, c.Key, c.Delegation, c.Ahead, c.Hold, c.Limits}
}

// Name is the hop's in words.
func (c *Hop) Name() string { return fmt.Sprintf("hop %d", c.Number) }

// Validate says what is wrong with the configuration by itself.
func (c *Hop) Validate() error {
	var f Faults
	f.If(c.Number != 1 && c.Number != 2, "number: 1 or 2, as the recipe names the hop")
	c.mixing().validate(&f)
	f.If(len(c.Shuffles) == 0, "shuffles: at least one recipe is required")
	for i, s := range c.Shuffles {
		f.If(s.Recipe == "", "shuffles[%d].recipe: required", i)
		f.If(s.NextToken == "", "shuffles[%d].next_token: required; starling key token makes one", i)
	}
	f.If(c.Number == 2 && len(c.Tokens) == 0, "tokens: hop 2 wants that of hop 1")
	f.If(c.Issuer.used() && (c.Issuer.Keys == "" || c.Issuer.Manifests == ""), "issuer.keys, issuer.manifests: both are required; starling key issuer makes keys")
	return f.All()
}

func (c *Hop) shown() (service.Listen, Agreement, string) { return c.Public, Agreement{}, "" }

// options reads the files that the configuration names, but for the directory of its own,
// and says what the issuer beside it goes by. A verifier of credentials is not in them
// yet.
func (c *Hop) options(log *slog.Logger) (hop.Options, *issues, error) {
	o := hop.Options{Number: c.Number, Ahead: c.Ahead, Hold: time.Duration(c.Hold), Limits: c.Limits.limits(), Log: log}
	var f Faults
	var err error
	o.Tokens, err = readTokens(c.Tokens, "tokens")
	f.Add("", err)
	if o.Signer, err = ReadSigner(c.Key, string(c.Delegation)); err != nil {
		f.Add("", err)
		return o, nil, f.All()
	}
	logs := make(publishers)
	var recipes []*recipe.Recipe
	for i, s := range c.Shuffles {
		token, err := s.NextToken.Text()
		f.Add(fmt.Sprintf("shuffles[%d].next_token: ", i), err)
		m, err := mix(s.Recipe, c.Number-1, o.Signer.Root())
		if err != nil {
			f.Add(fmt.Sprintf("shuffles[%d].recipe: ", i), err)
			continue
		}
		f.Add(fmt.Sprintf("shuffles[%d].recipe: ", i), logs.add(c.Policy, m.Recipe, m.recipe))
		recipes = append(recipes, m.recipe)
		o.Shuffles = append(o.Shuffles, hop.Shuffle{Shuffle: *m.Shuffle, Next: hop.Next{URL: m.parties[c.Number].URL, Token: token}})
	}
	o.Publish = logs.publish()
	issues, err := c.issues(recipes)
	f.Add("", err)
	if all := f.All(); all != nil {
		return o, nil, all
	}
	// The rest is checked with a directory that is not there yet, and an issuer that is not.
	check := o
	check.FS, check.Shuffles = new(disk.OSFS), slices.Clone(o.Shuffles)
	if issues != nil {
		for i, s := range check.Shuffles {
			if s.EnvelopeToken > 0 {
				check.Shuffles[i].Tokens = (&hopIssuer{}).tokens(0, &s.Shuffle)
			}
		}
	}
	return o, issues, check.Validate()
}

// Check reads every file that the configuration names, as starting would, and opens no
// directory or listener.
func (c *Hop) Check() error {
	var f Faults
	f.Add("public: ", c.Public.CheckFiles())
	_, _, err := c.options(slog.New(slog.DiscardHandler))
	f.Add("", err)
	return f.All()
}

// Parts returns the hop as components for [service.Run], in order: the hop with its
// directory, then the local listener, then the public one.
func (c *Hop) Parts(log *slog.Logger, open Listeners) []service.Part {
	log = log.With(slog.String("role", c.Name()))
	s := new(mixerSeat)
	var issuing atomic.Pointer[issuingHop]
	return s.parts(c.Name(), c.mixing(), log, open, func(at *files) (mixer, error) {
		issuing.Store(nil)
		o, r, err := c.options(log)
		if err != nil {
			return nil, err
		}
		o.FS = at.data
		if r == nil {
			return hop.New(o)
		}
		x, err := c.openIssuer(r, o.Signer.Root(), at.data, log)
		if err != nil {
			return nil, err
		}
		for i := range o.Shuffles {
			if o.Shuffles[i].EnvelopeToken > 0 {
				o.Shuffles[i].Tokens = x.tokens(onion.Role(c.Number), &o.Shuffles[i].Shuffle)
			}
		}
		h, err := hop.New(o)
		if err != nil {
			return nil, errors.Join(err, x.Close())
		}
		m := &issuingHop{h, x, log}
		issuing.Store(m)
		return m, nil
	}, c.hopCohort(&issuing))
}
