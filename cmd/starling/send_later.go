package main

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/client/sender"
)

// donate carries out a decision of a recipe whose devices donate at a random time.
func (x *sending) donate(ctx context.Context, e *env, p *sender.Person, decision *participate.Decision) error {
	_, end := decision.Round()
	_, _, ok := decision.Slot()
	if !*x.flags.wait {
		due, sent := p.SendDue(ctx, decision)
		if due && *x.flags.tell {
			return x.report(e, p.Ledger(), decision, sent)
		}
		return x.later(e, p.Ledger(), decision) // the same words, whether or not something was sent
	}
	if !x.asJSON {
		if _, err := fmt.Fprintf(e.stdout, "waiting for the time that was drawn, if there is one, until %s\n", clock(end)); err != nil {
			return err
		}
	}
	if *x.flags.tell && !ok {
		return x.later(e, p.Ledger(), decision)
	}
	sent, err := p.SendInTime(ctx, decision, !*x.flags.tell)
	if err != nil {
		return x.refusal(ctx, err)
	}
	return x.report(e, p.Ledger(), decision, sent)
}

// later says when to run the command again: to --tell the time that was drawn, to all
// others only the round.
func (x *sending) later(e *env, ledger *participate.Ledger, d *participate.Decision) error {
	begin, end := d.Round()
	from, to, ok := d.Slot()
	if x.asJSON {
		out := x.paid(ledger, "")
		out["round"] = [2]time.Time{begin, end}
		if *x.flags.tell && ok {
			out["slot"] = [2]time.Time{from, to}
		} else if *x.flags.tell {
			out["slot"] = nil
		}
		return e.json(out)
	}
	x.printPaid(e, ledger)
	var err error
	switch {
	case !*x.flags.tell:
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

// simulate plays devices that are made up, one for each value.
func (x *sending) simulate(ctx context.Context, e *env, values []client.Value) error {
	if err := x.open(); err != nil {
		return err
	}
	if err := sender.Crowd(ctx, x.options, values); err != nil {
		return x.refusal(ctx, err)
	}
	if x.asJSON {
		return e.json(map[string]any{"devices_decided": len(values)})
	}
	_, err := fmt.Fprintf(e.stdout, "%d made-up devices decided, each by its own coin\n", len(values))
	return err
}
