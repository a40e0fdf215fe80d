package participate

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/contribute"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
)

// Errors to branch on with errors.Is.
var (
	// ErrNotAsked: the recipe is for devices with other attributes. Nothing was charged.
	ErrNotAsked = errors.New("participate: this device is not asked")
	// ErrCertificate: nothing shows that enough devices fit a targeted recipe.
	ErrCertificate = errors.New("participate: the recipe's targeting is not certified")
	// ErrSent: a decision is carried out once.
	ErrSent = errors.New("participate: sent already")
)

// PlanOptions say how decisions about one recipe are carried out.
type PlanOptions struct {
	// Client answers the recipe; required, or Contributor. It fetches keys, for every
	// device alike. Where the recipe names a relay it must go through it
	// ([client.Options.Via]), for keys too: a leader that is asked can give each device a
	// list of its own, tell by it who reports, and sees who asks. The manifest that shows
	// the way is held against the recipe before each decision.
	Client *client.Client
	// Contributor answers a recipe of the shuffled or the direct path, in place of Client.
	Contributor *contribute.Contributor
	// Certificate verifies the evidence of a targeted recipe: that the log holds the
	// entry and that its result has the lower bound. Nil takes those whose count stands in the
	// log that Client follows ([client.Options.Log]), and no others.
	Certificate func(*recipe.Targeting) error
}

// Validate says whether a plan can be made.
func (o *PlanOptions) Validate() error {
	switch {
	case (o.Client == nil) == (o.Contributor == nil):
		return errors.New("participate: no client, or two: set Client or Contributor")
	case o.answers().Recipe().Relay != nil && o.answers().Source() == nil:
		return errors.New("participate: the recipe names a relay, and Client goes through none")
	}
	return nil
}

func (o *PlanOptions) answers() answers {
	if o.Contributor != nil {
		return contributions{o.Contributor}
	}
	return reports{o.Client}
}

// chances of one kind of answer.
type chances = recipe.Chances

// A Plan is what all devices that are asked by one recipe have in common. It is safe for
// concurrent use.
type Plan struct {
	o       PlanOptions
	answers answers
	checked *recipe.Checked
	recipe  *recipe.Recipe // that was checked
	chances [recipe.OtherAnswer + 1]chances
}

// NewPlan makes a plan. It fails with [ErrCertificate] for a targeted recipe whose
// certificate is not verified.
func NewPlan(o PlanOptions) (*Plan, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	by := o.answers()
	r := by.Recipe()
	if r.Targeting != nil {
		certified := func() error { return by.Counted() }
		if o.Certificate != nil {
			certified = func() error { return o.Certificate(r.Targeting) }
		}
		if err := certified(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCertificate, err)
		}
	}
	p := &Plan{o: o, answers: by, checked: by.Checked(), recipe: r}
	for kind := range p.chances {
		p.chances[kind] = r.Chances(recipe.Answer(kind))
	}
	return p, nil
}

// A Device takes part in recipes.
type Device struct {
	// Ledger is its account; required.
	Ledger *Ledger
	// Attributes are what it declares to targeted recipes.
	Attributes map[recipe.Attribute]string

	coin coin // nil is crypto/rand
}

// Consider reads a recipe and checks what a device checks before it agrees, as
// [client.New]. It records in the ledger that the recipe was seen and, when it is
// refused, why. Bytes that are no recipe are not recorded.
func (d *Device) Consider(ctx context.Context, o client.Options, now time.Time) (*client.Client, error) {
	c, err := client.New(o)
	if err := d.considered(ctx, &o, err, now); err != nil {
		return nil, err
	}
	return c, nil
}

// ConsiderContribution is [Device.Consider] for recipes of the shuffled and the direct path,
// and [contribute.New].
func (d *Device) ConsiderContribution(ctx context.Context, o contribute.Options, now time.Time) (*contribute.Contributor, error) {
	c, err := contribute.New(o)
	if err := d.considered(ctx, &o.Client, err, now); err != nil {
		return nil, err
	}
	return c, nil
}

// considered records that a recipe was seen, and with which error it was refused, which it
// returns.
func (d *Device) considered(ctx context.Context, o *client.Options, err error, now time.Time) error {
	b := o.Recipe
	if o.Checked != nil {
		b = o.Checked.Bytes()
	} else if o.Prover == nil {
		if alone, _, split := recipe.SplitFile(b); split == nil {
			b = alone
		}
	}
	id := recipe.ID(sha256.Sum256(append([]byte(recipe.IDDomain), b...)))
	var refused *client.RefusedError
	if err != nil && (!errors.As(err, &refused) || refused.Reason == client.ReasonMalformed) {
		return err
	}
	if seen := d.Ledger.See(ctx, id, b, now); seen != nil {
		return seen
	}
	if err != nil {
		return errors.Join(err, d.Ledger.Refuse(ctx, id, err.Error(), now))
	}
	return nil
}

// A Decision is what a device's coins said about one round. It says so to nobody but
// through what it sends, and prints nothing.
type Decision struct {
	plan        *Plan
	at          time.Time
	appointment *appointment // nil but where a slot is waited for

	mu    sync.Mutex
	what  outcome
	value client.Value // of what is still to be made; none once it is
	unit  *unit
	sent  bool
}

// An appointment is a slot that is still to come, whose coins are tossed then.
type appointment struct {
	ledger     *Ledger
	key        drawKey
	kind       recipe.Answer
	coin       coin
	from, to   time.Time // of the slot
	ok         bool      // there is one
	begin, end time.Time // of the round
}

func (*Decision) String() string               { return "redacted" }
func (*Decision) MarshalText() ([]byte, error) { return []byte("redacted"), nil }

// At is when to send. Where a slot is waited for it is a random time in it; a device that
// has none has a random time too.
func (d *Decision) At() time.Time { return d.at }

// Slot returns the slot that was drawn for a recipe whose devices wait for one; false if the
// device sits the round out. To act on it is to reveal it.
func (d *Decision) Slot() (from, to time.Time, ok bool) {
	if a := d.appointment; a != nil && a.ok {
		return a.from, a.to, true
	}
	return time.Time{}, time.Time{}, false
}

// Round returns the round of all slots of a recipe whose devices wait for one, which is no
// secret; zero times for any other recipe.
func (d *Decision) Round() (begin, end time.Time) {
	if d.appointment == nil {
		return time.Time{}, time.Time{}
	}
	return d.appointment.begin, d.appointment.end
}

// Uploads says whether there is anything to send; where one is waited for, whether there is a
// slot, as long as its coins are not tossed. To act on it is to reveal it to who watches
// the device.
func (d *Decision) Uploads() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.appointment != nil && !d.sent {
		return d.appointment.ok
	}
	return d.what != nothing
}

// Decide charges the ledger for the round in which t lies and tosses the round's coins
// for an answer given at t; v is client.NoValue() if the device has none, which takes
// part all the same. Where devices wait for slots the round is the next one, so that all its
// slots are ahead, or for sliding windows the one that runs, of which the next slots are
// in the window; the slot is drawn and written down, and its coins are tossed when it
// comes ([Device.Resume]). The package comment has the order of events.
//
// It fails with [ErrNotAsked], [ErrDecided], *[SeparationError], *[BudgetError],
// [ErrLedger], *[ManifestError], *[client.ValueError], client.ErrWindow,
// client.ErrNoCredentials and as [client.Client.Refresh] does, in each case before any coin
// was tossed; without credentials of the round nothing is charged either.
func (d *Device) Decide(ctx context.Context, p *Plan, v client.Value, t time.Time) (*Decision, error) {
	c, r := p.answers, p.recipe
	kind, err := d.ready(p, v)
	if err != nil {
		return nil, err
	}
	unit, err := r.TimePrecision.At(t)
	if err != nil {
		return nil, fmt.Errorf("participate: time of the decision: %w", err)
	}
	round, last := r.Round(unit), unit
	slots, waits := r.Slotted()
	var arrival uint64 // of the round's slots, the first that may be drawn
	switch begin := dap.Time(round * r.RoundUnits()); {
	case waits && slots.Window > 0:
		arrival = uint64(unit-begin)/uint64(slots.Length) + 1
		last = begin + dap.Time(r.RoundUnits()) - 1
	case waits:
		round++
		unit = begin + dap.Time(r.RoundUnits())
		last = unit + dap.Time(r.RoundUnits()) - 1
	}
	if w, ok := r.Window.(recipe.Between); ok && (unit < w.Start || last >= w.End) {
		return nil, client.ErrWindow
	}
	if err := p.fetch(ctx); err != nil {
		return nil, err
	}
	if begin, err := r.TimePrecision.Begin(unit); err != nil {
		return nil, fmt.Errorf("participate: time of the decision: %w", err)
	} else if err := c.creditable(begin); err != nil {
		return nil, err
	}
	if err := d.Ledger.See(ctx, c.RecipeID(), p.checked.Bytes(), t); err != nil {
		return nil, err
	}
	if err := d.Ledger.Charge(ctx, c.RecipeID(), round, r.DeviceRule(), t, PriceOf(p.checked)); err != nil {
		return nil, err
	}
	if waits {
		return d.draw(p, v, kind, round, arrival, t)
	}
	decision := &Decision{plan: p, at: t}
	decision.decide(d.coin.or().toss(p.chances[kind], r.Cover != nil), v)
	return decision, decision.prepare(t)
}

// Quote says what one more round would cost, and charges nothing.
func (d *Device) Quote(p *Plan) (Quote, error) {
	return d.Ledger.Quote(p.answers.RecipeID(), p.recipe.DeviceRule(), PriceOf(p.checked))
}

// ready says whether this device may answer the recipe with v, before anything is fetched
// or charged.
func (d *Device) ready(p *Plan, v client.Value) (recipe.Answer, error) {
	r := p.recipe
	if r.Targeting != nil && !r.Targeting.Holds(d.Attributes) {
		return 0, ErrNotAsked
	}
	kind, err := p.answers.Kind(v)
	if err == nil && kind == recipe.NoAnswer && r.Dummies == nil {
		switch {
		case r.Whole():
			err = &client.ValueError{Want: "an answer: this recipe counts on each contribution to have one"}
		case !r.Randomized():
			err = &client.ValueError{Want: "an answer: this recipe has no dummies"}
		}
	}
	return kind, err
}

// fetch holds the relay's manifest against the recipe, and fetches the keys of both
// aggregators.
func (p *Plan) fetch(ctx context.Context) error {
	if p.recipe.Relay != nil {
		m, err := p.answers.Source().Manifest(ctx)
		if err != nil {
			return fmt.Errorf("participate: manifest: %w", err)
		}
		if err := CheckManifest(p.recipe, m); err != nil {
			return err
		}
		if err := p.answers.Lasts(m); err != nil {
			return err
		}
	}
	return p.answers.Refresh(ctx)
}

// decide takes down what the coins said.
func (d *Decision) decide(what outcome, v client.Value) {
	d.what, d.value = what, client.NoValue()
	if what == report {
		d.value = v
	}
}

// prepare makes the unit; a decision that sends none makes one all the same and drops it.
func (d *Decision) prepare(t time.Time) error {
	made, err := d.plan.answers.make(d.value, t)
	if err != nil {
		return err
	}
	d.value = client.Value{}
	if d.what != nothing {
		d.unit = &unit{made, d.what == noOp}
	}
	return nil
}

// A unit is the one request of a device: a report or a contribution, or a no-op in place
// of it.
type unit struct {
	carrier
	noOp bool
}

// take returns what to upload, once, or nil if there is nothing. Where a slot is waited for it
// takes the slot durably, and only then tosses its coins: after a restart nothing is
// tossed again.
func (d *Decision) take() (*unit, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sent {
		return nil, ErrSent
	}
	d.sent = true
	if d.appointment != nil {
		if err := d.keep(); err != nil {
			return nil, err
		}
	}
	return d.unit, nil
}

// Send uploads the unit, if there is one: through a relay as [client.Tries] says, alike
// for units of all kinds, and to a leader with the repeats that the client allows. A
// report is known by its id and counts once. Send does not wait until [Decision.At]; for
// slots that are waited for it takes the slot durably before it tosses the slot's coins, and fetches
// keys anew that have expired until then. It fails with [ErrSent], with dap.ReportError
// if a leader that was asked without a relay refuses the report, and as
// [client.Client.Refresh], [client.Client.Upload] and [client.Client.Cover], or their like of
// package contribute.
func (d *Decision) Send(ctx context.Context) error {
	if d.appointment != nil {
		if err := d.plan.answers.Refresh(ctx); err != nil {
			return err
		}
	}
	u, err := d.take()
	switch {
	case u == nil || err != nil:
		return err
	case u.noOp:
		return u.cover(ctx)
	}
	return u.send(ctx)
}
