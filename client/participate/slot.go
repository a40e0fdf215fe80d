package participate

import (
	"context"
	"crypto/rand"
	"fmt"
	"math/big"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
)

// draw draws the slot of a round that was paid for, and writes it down before anything
// rests on it. After a crash in between the device sits the round out.
func (d *Device) draw(p *Plan, v client.Value, kind recipe.Answer, round, arrival uint64, now time.Time) (*Decision, error) {
	slots, _ := p.recipe.Slotted()
	slot, ok := d.schedule(slots).Draw(arrival)
	drawn := draw{slot: noSlot}
	if ok && slot < uint64(slots.Count) {
		drawn.slot = uint32(slot)
	}
	_, end, err := p.span(dap.Time(round*p.recipe.RoundUnits()), p.recipe.RoundUnits())
	if err != nil {
		return nil, err
	}
	drawn.end = end.Unix()
	key := drawKey{p.answers.RecipeID(), round}
	if err := d.Ledger.remember(key, drawn, now); err != nil {
		return nil, err
	}
	return d.appoint(p, v, kind, key, drawn, now)
}

// Resume goes on with what [Device.Decide] drew earlier, in this life of the device or
// another one, where a slot is waited for: nothing is drawn or charged again. The
// answer v, client.NoValue() if there is none, is given anew, as none is ever written
// down. A slot in which t lies is to be sent in at once; one that has passed is missed.
//
// It fails with [ErrNoDraw], and otherwise as Decide does.
func (d *Device) Resume(ctx context.Context, p *Plan, v client.Value, t time.Time) (*Decision, error) {
	kind, err := d.ready(p, v)
	if err != nil {
		return nil, err
	}
	key, drawn, ok := d.Ledger.drawn(p.answers.RecipeID(), t)
	if _, waits := p.recipe.Slotted(); !ok || !waits {
		return nil, ErrNoDraw
	}
	if err := p.fetch(ctx); err != nil {
		return nil, err
	}
	return d.appoint(p, v, kind, key, drawn, t)
}

// appoint makes the decision that waits for a slot.
func (d *Device) appoint(p *Plan, v client.Value, kind recipe.Answer, key drawKey, drawn draw, now time.Time) (*Decision, error) {
	slots, _ := p.recipe.Slotted()
	a := &appointment{ledger: d.Ledger, key: key, kind: kind, coin: d.coin.or()}
	first := dap.Time(key.round * p.recipe.RoundUnits())
	var err error
	if a.begin, a.end, err = p.span(first, p.recipe.RoundUnits()); err != nil {
		return nil, err
	}
	from, to := a.begin, a.end // what is left of the round, for who has no slot
	if drawn.slot < slots.Count {
		a.from, a.to, err = p.span(first+dap.Time(uint64(drawn.slot)*uint64(slots.Length)), uint64(slots.Length))
		if err != nil {
			return nil, err
		}
		if a.ok = now.Before(a.to); a.ok {
			from, to = a.from, a.to
		}
	}
	decision := &Decision{plan: p, appointment: a, value: v}
	if a.ok && !now.Before(from) {
		decision.at = now
		return decision, nil
	}
	if from.Before(now) {
		from = now
	}
	decision.at, err = between(from, to)
	return decision, err
}

// keep takes the slot and tosses its coins.
func (d *Decision) keep() error {
	a := d.appointment
	held, err := a.ledger.take(a.key, d.at)
	if err != nil {
		return err
	}
	what := a.coin.toss(d.plan.chances[a.kind], d.plan.recipe.Cover != nil)
	if !held || !a.ok {
		what = nothing
	}
	d.decide(what, d.value)
	return d.prepare(d.at)
}

// Pass does in a slot that is not the decision's what [Decision.Send] does on this device in
// the one that is: it fetches keys that have expired, and writes down again what was drawn,
// so that neither a time on the disk nor the number of changes in the mark tells in which slot
// the device took part. Nothing is taken, tossed or sent. A crash in the midst of it costs the
// slot, as one in Send does. It fails as [client.Client.Refresh], and with [ErrLedger].
func (d *Decision) Pass(ctx context.Context, now time.Time) error {
	a := d.appointment
	if a == nil {
		return nil
	}
	if err := d.plan.answers.Refresh(ctx); err != nil {
		return err
	}
	return a.ledger.again(a.key, now)
}

// span is the time of a run of units.
func (p *Plan) span(first dap.Time, units uint64) (from, to time.Time, err error) {
	if from, err = p.recipe.TimePrecision.Begin(first); err == nil {
		to, err = p.recipe.TimePrecision.Begin(first + dap.Time(units))
	}
	if err != nil {
		return from, to, fmt.Errorf("participate: time of the slot: %w", err)
	}
	return from, to, nil
}

// between is a random time before to, to the second.
func between(from, to time.Time) (time.Time, error) {
	seconds := max(1, int64(to.Sub(from)/time.Second))
	offset, err := rand.Int(rand.Reader, big.NewInt(seconds))
	if err != nil {
		return time.Time{}, fmt.Errorf("participate: time in the slot: %w", err)
	}
	return from.Add(time.Duration(offset.Int64()) * time.Second), nil
}
