package deploy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/shuffle/analyzer"
)

// An Analyzer is the configuration of who reads the messages of the shuffled or the direct
// path: analyzer.toml.
type Analyzer struct {
	// Party is "analyzer". Required.
	Party Role `toml:"role"`
	// Public is where hop 2 comes, or devices and their gateway, and collectors. Required.
	Public service.Listen `toml:"public"`
	// Local is where the operator looks. Required.
	Local Local `toml:"local"`
	// Data is the directory of keys, of rounds that are not done and of results; made where
	// it is missing. It is in no backup: a copy may have keys that were destroyed.
	// Required, and used by one process at a time.
	Data service.Path `toml:"data"`
	// Recipes are the files of those whose messages it reads, all of one path. Required, at
	// least one.
	Recipes []service.Path `toml:"recipes"`
	// Tokens are files of bearer tokens, of each who may bring something: hop 2, which is
	// required, or on the direct path the gateway, where none lets anybody.
	Tokens []service.Secret `toml:"tokens"`
	// Readers are files of bearer tokens of collectors, who may have results. Required.
	Readers []service.Secret `toml:"readers"`
	// Key is the file of the online key that signs keys and results. Required.
	Key service.Secret `toml:"key"`
	// Delegation is the word of the analyzer's root, which the recipes name, for it. Required.
	Delegation service.Path `toml:"delegation"`
	// Policy is the file that devices have, of the transparency log in which recipes stand:
	// there the key of each round is put, and what both hops signed of a batch before it is
	// tallied. Required for recipes that name a log; the log's anchors know the three roots.
	Policy service.Path `toml:"policy"`
	// Ahead is for how many rounds after the present one there are keys; for more where a
	// recipe collects in independent batches. Default 2.
	Ahead int `toml:"ahead"`
	// Hold is for how long after its time a round waits for its batch. Default "24h".
	Hold service.Duration `toml:"hold"`
	// Limits left out or zero take their defaults.
	Limits ShuffleLimits `toml:"limits"`
	// Log says how much is written to stderr. Default "info".
	Log Log `toml:"log"`
}

// LoadAnalyzer reads and validates analyzer.toml, and none of the files that it names:
// [Analyzer.Check] does.
func LoadAnalyzer(path string) (*Analyzer, error) {
	c := &Analyzer{}
	if err := loadAs(path, AnalyzerRole, c, c.Validate); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Analyzer) mixing() mixing {
	return mixing{c.Public, c.Local, c.Data, c.Key, c.Delegation, c.Ahead, c.Hold, c.Limits}
}

// Validate says what is wrong with the configuration by itself.
func (c *Analyzer) Validate() error {
	var f Faults
	c.mixing().validate(&f)
	f.If(len(c.Recipes) == 0, "recipes: at least one is required")
	for i, r := range c.Recipes {
		f.If(r == "", "recipes[%d]: empty", i)
	}
	f.If(len(c.Readers) == 0, "readers: at least one is required: the token of a collector")
	return f.All()
}

func (c *Analyzer) shown() (service.Listen, Agreement, string) { return c.Public, Agreement{}, "" }

// options reads the files that the configuration names, but for the directory of its own.
func (c *Analyzer) options(log *slog.Logger) (analyzer.Options, error) {
	o := analyzer.Options{Ahead: c.Ahead, Hold: time.Duration(c.Hold), Limits: c.Limits.limits(), Log: log}
	var f Faults
	var err error
	o.Tokens, err = readTokens(c.Tokens, "tokens")
	f.Add("", err)
	o.Readers, err = readTokens(c.Readers, "readers")
	f.Add("", err)
	if o.Signer, err = ReadSigner(c.Key, string(c.Delegation)); err != nil {
		f.Add("", err)
		return o, f.All()
	}
	recipes, logs := make(tallies), make(publishers)
	for i, path := range c.Recipes {
		m, err := mix(path, -1, o.Signer.Root())
		if err != nil {
			f.Add(fmt.Sprintf("recipes[%d]: ", i), err)
			continue
		}
		f.Add(fmt.Sprintf("recipes[%d]: ", i), logs.add(c.Policy, m.Recipe, m.recipe))
		direct := m.Direct()
		f.If(len(o.Shuffles) > 0 && direct != o.Direct, "recipes[%d]: %s is on another path than the one before: run an analyzer for each", i, path)
		o.Direct, o.Shuffles, recipes[m.Recipe] = direct, append(o.Shuffles, *m.Shuffle), m
	}
	o.Tally, o.Publish = recipes.tally, logs.publish()
	if all := f.All(); all != nil {
		return o, all
	}
	// The rest is checked with a directory that is not there yet.
	check := o
	check.FS = new(disk.OSFS)
	return o, check.Validate()
}

// Check reads every file that the configuration names, as starting would, and opens no
// directory or listener.
func (c *Analyzer) Check() error {
	var f Faults
	f.Add("public: ", c.Public.CheckFiles())
	_, err := c.options(slog.New(slog.DiscardHandler))
	f.Add("", err)
	return f.All()
}

// Parts returns the analyzer as components for [service.Run], in order: the analyzer with
// its directory, then the local listener, then the public one.
func (c *Analyzer) Parts(log *slog.Logger, open Listeners) []service.Part {
	log = log.With(slog.String("role", "analyzer"))
	s := new(mixerSeat)
	return s.parts("analyzer", c.mixing(), log, open, func(at *files) (mixer, error) {
		o, err := c.options(log)
		if err != nil {
			return nil, err
		}
		o.FS = at.data
		return analyzer.New(o)
	})
}

// tallies are recipes by their id.
type tallies map[[32]byte]*mixed

// tally makes the result of a round, a [recipe.Outcome]. Messages that are wrong are a
// result too: they stay as they are, however often the analyzer asks.
func (t tallies) tally(ctx context.Context, b *analyzer.Batch) ([]byte, error) {
	m := t[b.Recipe]
	if m == nil {
		return nil, errors.New("deploy: internal error: a batch of another recipe")
	}
	n := b.Counts.Tallied()
	all := make([]byte, 0, n*uint64(m.Size)) // a message is valid until the next
	messages := make([][]byte, 0, n)
	for x := range b.Messages {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		all = append(all, x...)
		messages = append(messages, all[len(all)-len(x):len(all):len(all)])
	}
	return m.messenger.Outcome(messages, b.Counts.Missing()).Append(nil)
}
