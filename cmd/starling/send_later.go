package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/recipe"
)

// donate takes part in a recipe with donation times: it goes on with the time that was drawn, or draws one for the next round.
func (c *coinDevice) donate(ctx context.Context, e *env, device *participate.Device, plan *participate.Plan, v client.Value, asJSON bool) error {
	decision, err := device.Resume(ctx, plan, v, time.Now())
	if errors.Is(err, participate.ErrNoDraw) {
		decision, err = device.Decide(ctx, plan, v, time.Now())
	}
	if err != nil {
		return c.refusal(ctx, err)
	}
	_, end := decision.Round()
	from, to, ok := decision.Slot()
	now := time.Now()
	if !*c.flags.wait {
		due := ok && !now.Before(from) && now.Before(to)
		var sent error
		if due {
			sent = decision.Send(ctx)
		}
		if due && *c.flags.tell {
			return c.report(e, device.Ledger, decision, sent, asJSON)
		}
		return c.later(e, device.Ledger, decision, asJSON) // the same words, whether or not something was sent
	}
	if !asJSON {
		if _, err := fmt.Fprintf(e.stdout, "waiting for the time that was drawn, if there is one, until %s\n", clock(end)); err != nil {
			return err
		}
	}
	if *c.flags.tell && !ok {
		return c.later(e, device.Ledger, decision, asJSON)
	}
	if err := sleepUntil(ctx, decision.At()); err != nil {
		return err
	}
	// Who slept through the slot, as a computer does with its lid closed, has missed it.
	var sent error
	if !ok || time.Now().Before(to) {
		sent = decision.Send(ctx)
	}
	if !*c.flags.tell {
		if err := sleepUntil(ctx, end); err != nil {
			return err
		}
	}
	return c.report(e, device.Ledger, decision, sent, asJSON)
}

// later says when to run the command again: to --tell the time that was drawn, to all others only the round.
func (c *coinDevice) later(e *env, ledger *participate.Ledger, d *participate.Decision, asJSON bool) error {
	begin, end := d.Round()
	from, to, ok := d.Slot()
	if asJSON {
		out := c.paid(ledger, "")
		out["round"] = [2]time.Time{begin, end}
		if *c.flags.tell && ok {
			out["slot"] = [2]time.Time{from, to}
		} else if *c.flags.tell {
			out["slot"] = nil
		}
		return e.json(out)
	}
	c.printPaid(e, ledger)
	var err error
	switch {
	case !*c.flags.tell:
		_, err = fmt.Fprintf(e.stdout, "the time: one from %s to %s was drawn, or none; which, and what was sent, is not told here; --tell tells you\n"+
			"next: run this again now and then until %[2]s, or once with --wait\n", clock(begin), clock(end))
	case ok:
		_, err = fmt.Fprintf(e.stdout, "the time: from %s to %s\nnext: run this again then, or with --wait now\n", clock(from), clock(to))
	default:
		_, err = fmt.Fprintf(e.stdout, "the time: none, or past; nothing more is sent in the round that ends at %s\n", clock(end))
	}
	return err
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// sleepUntil waits by the clock on the wall, which goes on while the computer sleeps.
func sleepUntil(ctx context.Context, t time.Time) error {
	const look = time.Minute
	for {
		left := time.Until(t.Round(0))
		if left <= 0 {
			return nil
		}
		timer := time.NewTimer(min(left, look))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return &failure{exitInterrupted, ctx.Err(), "the time that was drawn is kept: run this again"}
		}
	}
}

// simulate plays devices that are made up, each with its own coins and an account that ends with it.
func (c *coinDevice) simulate(ctx context.Context, e *env, values []client.Value, asJSON bool) error {
	attributes, err := readAttributes(*c.flags.attributes)
	if err != nil {
		return err
	}
	unlimited := participate.LedgerOptions{MaxEpsilon: math.Inf(1), MaxDelta: 1}
	ledger, err := participate.MemoryLedger(unlimited)
	if err != nil {
		return err
	}
	if err := c.way(client.Forgetful()); err != nil {
		return c.refusal(ctx, err)
	}
	plan, err := c.plan(ctx, &participate.Device{Ledger: ledger, Attributes: attributes})
	if err != nil {
		return c.refusal(ctx, err)
	}
	_, donates := c.recipe.Participation.(recipe.DonationTime)
	decisions := make([]*participate.Decision, len(values))
	err = crowd(ctx, len(values), func(ctx context.Context, i int) error {
		ledger, err := participate.MemoryLedger(unlimited)
		if err != nil {
			return err
		}
		decisions[i], err = (&participate.Device{Ledger: ledger, Attributes: attributes}).Decide(ctx, plan, values[i], time.Now())
		if err != nil || donates {
			return err
		}
		return decisions[i].Send(ctx)
	})
	if err == nil && donates {
		slices.SortFunc(decisions, func(a, b *participate.Decision) int { return cmp.Compare(a.At().Unix(), b.At().Unix()) })
		err = crowd(ctx, len(values), func(ctx context.Context, i int) error {
			if err := sleepUntil(ctx, decisions[i].At()); err != nil {
				return err
			}
			return decisions[i].Send(ctx)
		})
	}
	if err != nil {
		return c.refusal(ctx, err)
	}
	if asJSON {
		return e.json(map[string]any{"devices_decided": len(values)})
	}
	_, err = fmt.Fprintf(e.stdout, "%d made-up devices decided, each by its own coin\n", len(values))
	return err
}

// crowd does work for each of n devices, in order and some at once, until one fails.
func crowd(ctx context.Context, n int, work func(ctx context.Context, i int) error) error {
	const atOnce = 32 // devices wait for the gateway, which gathers
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var devices sync.WaitGroup
	for range min(atOnce, n) {
		devices.Go(func() {
			for i := range next {
				if err := work(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	devices.Wait()
	return context.Cause(ctx)
}
