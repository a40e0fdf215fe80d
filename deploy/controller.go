package deploy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"time"

	"github.com/starling-agg/starling/fl/optimizer"
	"github.com/starling-agg/starling/fl/outlook"
	"github.com/starling-agg/starling/fl/round"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/internal/endpoint"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/signed"
)

// Names of a training's files.
const (
	ControllerFile = "controller.toml"
	TermsFile      = "training.toml"
)

// A Controller is the configuration of the controller of a training: controller.toml.
type Controller struct {
	// Party is "controller". Required.
	Party Role `toml:"role"`
	// Public is where devices come without a relay, and relays with one. Required.
	Public service.Listen `toml:"public"`
	// Local is where the operator looks. Required.
	Local Local `toml:"local"`
	// Data is the directory of the journal and of models, where Engine is not "postgres", and
	// of what was asked of the leader; made where it is missing. Required, and used by one
	// process at a time.
	Data service.Path `toml:"data"`
	// Record is the directory of what must not go back when the journal does, as to a backup:
	// the newest announcement. Best on another disk; with engine "postgres" in no backup of the
	// database, and of all machines on which the controller may start. Default: Data with
	// ".record" behind its name.
	Record service.Path `toml:"record"`
	// Engine is where the journal and models are: "embedded", in Data, or "postgres", in a
	// Database that another machine can go on with. Default "embedded".
	Engine Engine `toml:"engine"`
	// Database is the schema of PostgreSQL where the journal and models are. Required with
	// engine "postgres".
	Database ControllerDatabase `toml:"database"`
	// Control is the unix socket at which a training process of this machine begins rounds
	// and reads aggregates; who may open it, may do that. Optional.
	Control service.Path `toml:"control"`
	// Key is the controller's signing key, which recipes name: of starling key root.
	// Required.
	Key service.Secret `toml:"key"`
	// Collector is the collector's configuration: whose recipe is trained, and who asks for
	// its rounds. Nobody else may collect them. Required.
	Collector service.Path `toml:"collector"`
	// Terms is the terms file whose hash the recipe has. Required.
	Terms service.Path `toml:"terms"`
	// Initial is a file of the first model's parameters, as little-endian binary32, one after
	// the other. Default: zeros.
	Initial service.Path `toml:"initial"`
	// Cohort is how many devices are expected to report in a round, or in a slot, dummies not
	// counted: what sums are divided by. Default: what fl plan says of the recipe; required
	// where that states no rate.
	Cohort float64 `toml:"cohort"`
	// Optimizer steps the model. Required.
	Optimizer Optimizer `toml:"optimizer"`
	// Batch is of how many rounds one step is. Default 1.
	Batch int `toml:"batch"`
	// Ahead is how many rounds may be announced that the model was not stepped with yet: with
	// more than Batch rounds follow each other without a pause, as slots have to, and models
	// lag behind. Default Batch.
	Ahead int `toml:"ahead"`
	// Late is how far into a round its model may still be announced. Default a tenth of a
	// round.
	Late service.Duration `toml:"late"`
	// Patience is how long after a round, and its grace, its sum is waited for. Default 1h.
	Patience service.Duration `toml:"patience"`
	// Poll is the wait between two questions about a sum. Default 1s.
	Poll service.Duration `toml:"poll"`
	// Manual rounds begin at Control alone. Default false.
	Manual bool `toml:"manual"`
	// Average is the last share of the training's rounds whose models are averaged, as fl
	// model --average writes it: 0 to 1. Default 0, none.
	Average float64 `toml:"average"`
	// Keep is of how many rounds models and sums are kept once the model was stepped with
	// them. Default 16.
	Keep int `toml:"keep"`
	// Published are URLs of relays that hand out this training, all of which are asked for the
	// newest announcement before another is signed: a journal that was put back is found out.
	// Optional; https unless it stays on this machine.
	Published []string `toml:"published"`
	// Log says how much is written to stderr. Default "info".
	Log Log `toml:"log"`
}

// Optimizer is how a model is stepped.
type Optimizer struct {
	// Kind is "sgd" or "adam". Default "sgd".
	Kind string `toml:"kind"`
	// Rate is the learning rate. Required.
	Rate float64 `toml:"rate"`
	// Momentum of sgd, and beta1 of adam. Default 0.
	Momentum float64 `toml:"momentum"`
}

func (o Optimizer) config() optimizer.Config {
	c := optimizer.Config{Kind: o.Kind, Rate: o.Rate, Momentum: o.Momentum}
	if c.Kind == "" {
		c.Kind = optimizer.SGD
	}
	return c
}

// LoadController reads and validates controller.toml, and none of the files that it names:
// [Controller.Check] does.
func LoadController(path string) (*Controller, error) {
	c := &Controller{}
	if err := loadAs(path, ControllerRole, c, c.Validate); err != nil {
		return nil, err
	}
	return c, nil
}

// Validate says what is wrong with the configuration by itself.
func (c *Controller) Validate() error {
	var f Faults
	f.Add("public: ", c.Public.Validate())
	f.Add("local.address: ", service.Local{Address: c.Local.Address}.Validate())
	for _, x := range []struct{ key, value string }{
		{"data", string(c.Data)}, {"key", string(c.Key)}, {"collector", string(c.Collector)}, {"terms", string(c.Terms)},
	} {
		f.If(x.value == "", "%s: required", x.key)
	}
	f.If(c.Data != "" && !apart(c.Data, c.Record), "%w", errRecord)
	f.Add("", c.validateStore())
	f.Add("control: ", named(c.Control))
	f.If(c.Manual && c.Control == "", "manual: rounds begin at the control socket, and there is none")
	f.Add("optimizer: ", c.Optimizer.config().Validate())
	f.If(c.Batch < 0 || c.Ahead < 0 || c.Late < 0 || c.Patience < 0 || c.Poll < 0 || c.Keep < 0 || c.Cohort < 0, "batch, ahead, late, patience, poll, keep, cohort: negative")
	f.If(!(c.Average >= 0 && c.Average <= 1), "average: %v, want a share from 0 to 1", c.Average)
	f.If(c.Ahead > 0 && c.Ahead < c.Batch, "ahead: fewer than batch, so that a step would never be full")
	for i, u := range c.Published {
		f.Add(fmt.Sprintf("published[%d]: ", i), endpoint.CheckPeer(u))
	}
	return f.All()
}

// Trained is what a controller's files say, read and held together.
type Trained struct {
	Recipe    *recipe.Checked
	Session   *session.Session
	key       *signed.PrivateKey
	collector *Collector
	initial   []float32
	cohort    float64
}

// Read reads the files that the configuration names, and says all that is wrong with them.
func (c *Controller) Read() (*Trained, error) {
	t := new(Trained)
	var f Faults
	b, err := c.Key.Read()
	if err == nil {
		t.key, err = signed.ParsePrivateKey(b)
	}
	f.Add("key: ", err)
	t.collector, err = LoadCollector(string(c.Collector))
	f.Add("collector: ", err)
	if t.collector != nil {
		t.Recipe, _, _, err = t.collector.Read()
		f.Add("collector: ", err)
	}
	terms, err := ReadTerms(string(c.Terms))
	f.Add("terms: ", err)
	if err == nil && t.Recipe != nil {
		t.Session, err = session.Of(t.Recipe.Recipe(), terms)
		f.Add("terms: ", err)
	}
	if t.Recipe != nil && t.Recipe.Recipe().Training != nil && t.key != nil {
		f.If(t.key.Public() != t.Recipe.Recipe().Training.Controller, "key: %s is not the one that the recipe names as the controller's", c.Key)
	}
	if c.Initial != "" {
		t.initial, err = readParameters(string(c.Initial), terms.Dimension())
		f.Add("initial: ", err)
	}
	if t.Recipe != nil {
		t.cohort = c.Cohort
		if t.cohort == 0 {
			t.cohort, err = cohortOf(t.Recipe.Recipe())
			f.Add("cohort: ", err)
		}
		f.If(t.Recipe.Recipe().Projection != nil && t.Recipe.Recipe().Slots() > 1, "collector: the recipe has slots and a projection: which of them a sum is of is not undone")
	}
	return t, f.All()
}

// cohortOf is how many devices report in a round of a recipe that states that.
func cohortOf(r *recipe.Recipe) (float64, error) {
	o, err := outlook.Of(r, nil)
	if errors.Is(err, outlook.ErrRecipe) {
		return 0, errors.New("required: the recipe does not say how many devices report in a round")
	} else if err != nil {
		return 0, err
	}
	return o.Answers, nil
}

// reporting is the probability with which a device reports in a round.
func reporting(r *recipe.Recipe) *big.Rat {
	chances := r.Chances(recipe.OtherAnswer)
	return new(big.Rat).Mul(chances.Cover, chances.Report)
}

// readParameters reads a file of binary32 numbers.
func readParameters(path string, n int) ([]float32, error) {
	b, err := readFile(path, 4*session.MaxDimension)
	if err != nil {
		return nil, err
	}
	list, err := session.ReadFloats(b)
	if err == nil && len(list) != n {
		err = fmt.Errorf("%d numbers, and models have %d", len(list), n)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

// Check reads every file that the configuration names, as starting would, and opens no
// directory or listener.
func (c *Controller) Check() error {
	var f Faults
	f.Add("public: ", c.Public.CheckFiles())
	if c.Engine == Postgres {
		_, err := c.Database.File.Text()
		f.Add("database.file: ", err)
	}
	_, err := c.Read()
	f.Add("", err)
	return f.All()
}

func (c *Controller) shown() (service.Listen, Agreement, string) { return c.Public, Agreement{}, "" }

// options are those of the controller, but for directories, source and log.
func (c *Controller) options(t *Trained) round.Options {
	return round.Options{Session: t.Session, Recipe: t.Recipe.Recipe(), Key: t.key, Initial: t.initial, Optimizer: c.Optimizer.config(), Cohort: t.cohort,
		Batch: c.Batch, Ahead: c.Ahead, Late: time.Duration(c.Late), Patience: time.Duration(c.Patience), Manual: c.Manual, Average: c.Average, Keep: c.Keep}
}

// Stopped opens the journal of a controller that is not running, and has use read it. It
// fails with what wraps [round.ErrHeld] where the journal lies in a database and the controller
// runs on another machine.
func (c *Controller) Stopped(ctx context.Context, use func(*round.Controller) error) (err error) {
	t, err := c.Read()
	if err != nil {
		return err
	}
	f, err := openFiles(c.Data, c.Record)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	o := c.options(t)
	o.Record, o.Source = f.record, noSource{}
	if o.Store, err = c.store(ctx, f, slog.New(slog.DiscardHandler), true); err != nil {
		return err
	}
	r, err := round.Open(ctx, o)
	if err != nil {
		return err
	}
	return errors.Join(use(r), r.Close())
}
