package aggregator

import (
	"errors"
	"fmt"

	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/vdaf"
)

// Secrets are what an aggregator shares with others over a task, and the collector's
// public key; the fields are those of [Task].
type Secrets struct {
	VerifyKeys     map[uint8][vdaf.VerifyKeySize]byte
	PeerToken      string
	CollectorToken string // at the leader
	UploadToken    string // optional
	CollectorHPKE  dap.HpkeConfig
}

func (s Secrets) task() Task {
	return Task{VerifyKeys: s.VerifyKeys, PeerToken: s.PeerToken, CollectorToken: s.CollectorToken, UploadToken: s.UploadToken,
		CollectorHPKE: s.CollectorHPKE}
}

// TaskOf returns the task of a recipe, with all that the recipe's guarantee rests on at an
// aggregator: its noise, how that is correlated over releases, which batches may be
// released when, how many devices send, and whether reports show credentials.
func TaskOf(c *recipe.Checked, s Secrets) (t Task, err error) {
	t = s.task()
	r := c.Recipe()
	if _, ok := r.Path.(recipe.TwoServer); !ok {
		return t, errors.New("aggregator: the recipe does not go through a leader and a helper")
	}
	id, config := c.Task()
	t.Config, t.Version, t.ID = config.Bytes(), config.Version, id
	if t.Noise, err = r.Noise.Sampler(); err != nil {
		return t, fmt.Errorf("aggregator: recipe: noise: %w", err)
	}
	if n, ok := r.Correlated(); ok {
		t.Series = &Series{Series: n.Series, Units: r.RoundUnits()}
	}
	t.Suite = SuiteOf(r)
	switch d, err := DeploymentOf(r); {
	case err == nil:
		t.Deployment = &d
	case !errors.Is(err, recipe.ErrNoServerKeys):
		return t, fmt.Errorf("aggregator: recipe: %w", err)
	}
	t.Calendar = &Calendar{Units: r.BatchUnits(), Alone: r.Alone(), Grace: r.Grace()}
	if t.Calendar.Views, err = viewsOf(r); err != nil {
		return t, fmt.Errorf("aggregator: recipe: %w", err)
	}
	t.Rate = RateOf(r)
	if t.Credentials, err = CredentialsOf(r); err != nil {
		return t, fmt.Errorf("aggregator: recipe: %w", err)
	}
	return t, nil
}

// viewsOf are a recipe's wider views; nil where it has none.
func viewsOf(r *recipe.Recipe) (*Views, error) {
	if r.Views == nil {
		return nil, nil
	}
	v := &Views{Keep: uint64(r.Views.Keep)}
	for _, g := range r.Granularities()[1:] {
		sampler, err := g.Noise.Sampler()
		if err != nil {
			return nil, fmt.Errorf("noise of the view %s: %w", g.Name, err)
		}
		v.Wider = append(v.Wider, View{Rounds: uint64(g.Rounds), Noise: sampler})
	}
	return v, nil
}

// ofRecipe says whether a configuration is that of a recipe's task, by the length of its
// task_info. Of a recipe nothing but its id stands there: an attacker who made an
// aggregator take one for a task without a recipe would have its noise and rounds left
// out, on which devices count.
func ofRecipe(c *dap.TaskConfiguration) bool { return len(c.TaskInfo) == len(recipe.ID{}) }

// SuiteOf is the HPKE suite that a recipe's devices seal to.
func SuiteOf(r *recipe.Recipe) sealed.Suite {
	if r.KEM == recipe.XWing {
		return sealed.SuiteXWing
	}
	return sealed.SuiteX25519
}

// DeploymentOf is what a recipe says of its servers; [recipe.ErrNoServerKeys] if it names
// no keys of a leader and a helper.
func DeploymentOf(r *recipe.Recipe) (keyset.Deployment, error) {
	path, ok := r.Path.(recipe.TwoServer)
	if !ok || r.ServerKeys == nil {
		return keyset.Deployment{}, recipe.ErrNoServerKeys
	}
	id, err := r.Deployment()
	if err != nil {
		return keyset.Deployment{}, err
	}
	recipeID, err := r.ID()
	if err != nil {
		return keyset.Deployment{}, err
	}
	known := keyset.Recipe{ID: recipeID, MaxSending: r.MaxSending()}
	if r.Tokens != nil {
		known.Attester, known.Admission = r.Tokens.Key, r.Tokens.Admission
	}
	d := keyset.Deployment{
		ID: id, Epoch: r.ServerKeys.Epoch(), Leader: path.Leader, Helper: path.Helper,
		Roots:   ohttp.Roots{Leader: r.ServerKeys.Leader, Helper: r.ServerKeys.Helper, Gateway: r.ServerKeys.Gateway},
		Recipes: []keyset.Recipe{known},
	}
	if r.Relay != nil {
		d.Relay = r.Relay.URL
	}
	return d, nil
}

// ForeignTask returns a task that others made and that has no recipe: DAP's own rules are
// all that hold there. No noise is added, nothing is known of rounds, and no guarantee is
// claimed.
func ForeignTask(version dap.Version, config []byte, s Secrets) (t Task, err error) {
	t = s.task()
	c, err := dap.ReadTaskConfiguration(version, config)
	if err != nil {
		return t, fmt.Errorf("aggregator: no TaskConfiguration of %v: %w", version, err)
	}
	if err := c.Validate(); err != nil {
		return t, fmt.Errorf("aggregator: %w", err)
	}
	if ofRecipe(c) {
		return t, fmt.Errorf("aggregator: its task_info has %d bytes, as that of a recipe's task, which is named by the recipe", len(c.TaskInfo))
	}
	t.Config, t.Version, t.ID, t.Noise = config, version, c.TaskID(), noise.Zero{}
	t.Suite = sealed.SuiteX25519 // DAP's own
	return t, nil
}
