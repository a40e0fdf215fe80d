package aggregator

import (
	"errors"
	"fmt"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/recipe"
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
// aggregator: its noise, how that is correlated over releases, and which batches may be
// released when.
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
	t.Calendar = &Calendar{Units: r.BatchUnits(), Alone: r.Alone(), Grace: r.Grace()}
	return t, nil
}

// ofRecipe says whether a configuration is that of a recipe's task, by the length of its
// task_info. Of a recipe nothing but its id stands there: an attacker who made an
// aggregator take one for a task without a recipe would have its noise and rounds left
// out, on which devices count.
func ofRecipe(c *dap.TaskConfiguration) bool { return len(c.TaskInfo) == len(recipe.ID{}) }

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
	return t, nil
}
