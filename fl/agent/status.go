package agent

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/client/training"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/recipe"
)

// A TaskStatus is what is known of a task. JSON keys are only added to.
type TaskStatus struct {
	Task    recipe.ID `json:"task"`
	Name    string    `json:"name"`
	Allowed bool      `json:"allowed"`
	Reason  string    `json:"reason,omitempty"` // why it is not, or not now
	// Round runs until Ends; an update is for it. Numbers are of a vector.
	Round   uint64    `json:"round"`
	Begins  time.Time `json:"begins"`
	Ends    time.Time `json:"ends"`
	Numbers int       `json:"numbers"`
	Bound   float64   `json:"bound"` // to which an update is cut: the clipping norm
	// Of a training: its session, the model that updates of Round are made on (none where
	// none is announced for it), and how devices compute.
	Session    *session.Hash `json:"session,omitempty"`
	Model      *session.Hash `json:"model,omitempty"`
	Algorithm  string        `json:"algorithm,omitempty"`
	LocalSteps uint32        `json:"local_steps,omitempty"`
	LocalRate  float64       `json:"local_rate,omitempty"`
	// Unit is whose data the guarantee is about. With more than one of Persons it holds for
	// the whole contribution, or where the recipe says so for each of them, and Trusts says
	// what more rests on.
	Unit    string   `json:"unit"`
	Persons int      `json:"persons"`
	Trusts  string   `json:"trusts,omitempty"`
	Data    []string `json:"data,omitempty"`
	// Epsilon, at Delta, is what the recipe costs over Rounds.
	Epsilon float64 `json:"epsilon"`
	Delta   float64 `json:"delta"`
	Rounds  uint32  `json:"rounds"`
}

// trusts is what a site's contribution rests on beside the recipe.
const trusts = "this site, to hold the update of each person to its share of the bound: the servers verify the sum alone"

// TaskStatus is what is known of a task. Of a training it looks for the newest
// announcement, as every device does. It fails with [ErrUnknown].
func (a *Agent) TaskStatus(ctx context.Context, id recipe.ID) (*TaskStatus, error) {
	t := a.tasks[id]
	if t == nil {
		return nil, ErrUnknown
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.status()
	if err != nil {
		return nil, err
	}
	if t.refused != nil {
		s.Allowed, s.Reason = false, t.refused.Error()
		return s, nil
	}
	if err := t.training(ctx, s); err != nil {
		s.Allowed, s.Reason = false, err.Error()
	}
	return s, nil
}

// status is what the recipe says.
func (t *task) status() (*TaskStatus, error) {
	g := t.Sender.Client.Checked.Guarantee()
	s := &TaskStatus{Task: t.id, Name: t.recipe.Name, Allowed: true, Numbers: t.entries(nil), Unit: t.recipe.PrivacyUnit().Name, Persons: t.Policy.persons(),
		Data: t.Policy.Data, Epsilon: g.Epsilon, Delta: g.Delta, Rounds: g.Rounds}
	if math.IsInf(s.Epsilon, 0) {
		s.Epsilon = -1 // no privacy, which JSON has no number for
	}
	if t.shares() > 1 {
		s.Trusts = trusts
	}
	q, _ := t.recipe.Vector()
	s.Bound = q.Norm()
	unit, err := t.recipe.TimePrecision.At(time.Now())
	if err != nil {
		return nil, err
	}
	s.Round = session.Round(t.recipe, unit)
	length := t.recipe.BatchUnits()
	if s.Begins, err = t.recipe.TimePrecision.Begin(dap.Time(s.Round * length)); err == nil {
		s.Ends, err = t.recipe.TimePrecision.Begin(dap.Time((s.Round + 1) * length))
	}
	return s, err
}

// training adds what the session says, and the round's model.
func (t *task) training(ctx context.Context, s *TaskStatus) error {
	if t.follower == nil {
		return nil
	}
	of, err := t.follower.Session(ctx)
	if err != nil {
		return err
	}
	hash, err := of.Hash()
	if err != nil {
		return err
	}
	s.Session, s.Numbers, s.Bound = &hash, of.Terms.Dimension(), of.Terms.Clipping.Norm
	s.Algorithm, s.LocalSteps, s.LocalRate = of.Terms.Algorithm.String(), of.Terms.LocalSteps, of.Terms.LocalRate
	m, _, err := t.current(ctx, s.Round)
	if errors.Is(err, ErrNoModel) {
		return nil // none is announced for the round that runs
	}
	if err != nil {
		return err
	}
	s.Model, s.Bound = &t.newest.Model, m.Clip
	return nil
}

// Model is the one that a task's updates are made on, by its hash: [ErrNoModel] for any
// other. It waits for nobody: another task's relay may be slow.
func (a *Agent) Model(h session.Hash) (*session.Model, error) {
	for _, id := range a.order {
		if s := a.tasks[id].shown.Load(); s != nil && s.name == h {
			return s.model, nil
		}
	}
	return nil, ErrNoModel
}

// A named model is the newest one of a task.
type named struct {
	name  session.Hash
	model *session.Model
}

// A LedgerStatus is what was spent of the agent's budget over all recipes.
type LedgerStatus struct {
	Epsilon    float64       `json:"epsilon"`
	Delta      float64       `json:"delta"`
	MaxEpsilon float64       `json:"max_epsilon"`
	MaxDelta   float64       `json:"max_delta"`
	Tasks      []TaskLedger  `json:"tasks"`
	Others     []LedgerEntry `json:"others,omitempty"` // recipes that the agent no longer answers
}

// A LedgerEntry is what a recipe cost.
type LedgerEntry struct {
	Task   recipe.ID   `json:"task"`
	Name   string      `json:"name"`
	Rounds uint32      `json:"rounds"`
	Loss   recipe.Loss `json:"loss"`
}

// A TaskLedger is what a task cost, and what one more round of it would.
type TaskLedger struct {
	LedgerEntry
	Next        recipe.Loss `json:"next"`
	WouldExceed bool        `json:"would_exceed"`
	Reason      string      `json:"reason,omitempty"`
}

// taskLedger says what a task has cost and what one more round of it would: no coin is
// tossed, and nothing is charged. It fails with [ErrUnknown], and where the recipe is
// refused with the reason.
func (a *Agent) taskLedger(id recipe.ID) (*TaskLedger, error) {
	t := a.tasks[id]
	switch {
	case t == nil:
		return nil, ErrUnknown
	case t.refused != nil:
		return nil, t.refused
	}
	q, err := t.person.Quote()
	if err != nil {
		return nil, err
	}
	l := &TaskLedger{LedgerEntry: LedgerEntry{t.id, t.recipe.Name, q.Rounds, q.Loss}, Next: q.Next, WouldExceed: q.Over || q.Exceeds}
	switch {
	case q.Over:
		l.Reason = "the recipe has no more rounds"
	case q.Exceeds:
		l.Reason = "the budget has no room for one more round"
	}
	return l, nil
}

// Ledger says what was spent.
func (a *Agent) Ledger() (*LedgerStatus, error) {
	ledger := a.account.Ledger()
	spent, budget := ledger.Spent(), ledger.Budget()
	s := &LedgerStatus{Epsilon: spent.Epsilon, Delta: spent.Delta, MaxEpsilon: budget.MaxEpsilon, MaxDelta: budget.MaxDelta, Tasks: []TaskLedger{}}
	for _, e := range ledger.Entries() {
		t := a.tasks[e.Recipe]
		if t == nil || t.refused != nil {
			s.Others = append(s.Others, LedgerEntry{e.Recipe, e.Name, e.Rounds, e.Loss})
			continue
		}
		l, err := a.taskLedger(e.Recipe)
		if err != nil {
			return nil, err
		}
		s.Tasks = append(s.Tasks, *l)
	}
	return s, nil
}

// A Status is how an agent is. JSON keys are only added to.
type Status struct {
	Tasks   int               `json:"tasks"`
	Refused map[string]string `json:"refused"` // by the recipe's name
	// Contributions by outcome, since the agent began; "accepted" says nothing of what was
	// sent.
	Contributions map[string]uint64 `json:"contributions"`
	Born          time.Time         `json:"ledger_made"`
	Spent         participate.Spent `json:"spent"`
}

// Status is how the agent is.
func (a *Agent) Status() *Status {
	s := &Status{Tasks: len(a.order), Refused: make(map[string]string), Born: a.born, Spent: a.account.Ledger().Spent()}
	for _, t := range a.tasks {
		if t.refused != nil {
			s.Refused[t.recipe.Name] = t.refused.Error()
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s.Contributions = maps.Clone(a.counts)
	return s
}

// Outcomes are those by which contributions are counted, a closed set.
var Outcomes = []string{"accepted", "unknown_task", "round_over", "round_not_begun", "already_contributed", "no_model", "bad_model", "contradiction", "bad_vector",
	"policy", "over_budget", "no_rounds", "too_soon", "no_credentials", "refused", "ledger", "unavailable"}

// lies are errors of what was fetched of a training and is not what the recipe, the
// controller's signature or the announcement say: of another hash, shape, length or form.
var lies = []error{session.ErrSession, session.ErrTerms, session.ErrAnnouncement, session.ErrModel, training.ErrTooLarge}

// outcomeOf names what came of a contribution.
func outcomeOf(err error) string {
	var round *RoundError
	var policy *PolicyError
	var vector *VectorError
	var budget *participate.BudgetError
	var apart *participate.SeparationError
	var refused *client.RefusedError
	var old *session.OldError
	var lie *session.ContradictionError
	var blob *session.BlobError
	var late *training.LateError
	switch {
	case err == nil:
		return "accepted"
	case errors.Is(err, ErrUnknown):
		return "unknown_task"
	case errors.As(err, &round) && round.Asked > round.Now:
		return "round_not_begun"
	case errors.As(err, &round), errors.As(err, &late):
		return "round_over"
	case errors.Is(err, ErrContributed):
		return "already_contributed"
	case errors.Is(err, ErrNoRounds):
		return "no_rounds"
	case errors.As(err, &lie):
		return "contradiction"
	case errors.As(err, &blob), slices.ContainsFunc(lies, func(e error) bool { return errors.Is(err, e) }):
		return "bad_model"
	case errors.Is(err, ErrNoModel), errors.As(err, &old):
		return "no_model"
	case errors.As(err, &vector):
		return "bad_vector"
	case errors.As(err, &policy):
		return "policy"
	case errors.As(err, &budget):
		return "over_budget"
	case errors.As(err, &apart):
		return "too_soon"
	case errors.Is(err, client.ErrNoCredentials):
		return "no_credentials"
	case errors.As(err, &refused), errors.Is(err, client.ErrWindow), errors.Is(err, participate.ErrManifest):
		return "refused"
	case errors.Is(err, participate.ErrLedger):
		return "ledger"
	}
	return "unavailable"
}
