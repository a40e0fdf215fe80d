package sender

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
)

// Crowd plays devices that are made up, one for each value, each with its own coins and a
// ledger that ends with it. Where devices donate at a random time it waits for all of
// them. It fails as [Person.Decide] and participate.Decision.Send do.
func Crowd(ctx context.Context, o Options, values []client.Value) error {
	unlimited := participate.LedgerOptions{MaxEpsilon: math.Inf(1), MaxDelta: 1}
	device := func() (*participate.Device, error) {
		ledger, err := participate.MemoryLedger(unlimited)
		return &participate.Device{Ledger: ledger, Attributes: o.Attributes}, err
	}
	answering, err := o.client(client.Forgetful())
	if err != nil {
		return err
	}
	first, err := device()
	if err != nil {
		return err
	}
	plan, err := o.plan(ctx, answering, first)
	if err != nil {
		return err
	}
	decisions := make([]*participate.Decision, len(values))
	err = atOnce(ctx, len(values), func(ctx context.Context, i int) error {
		d, err := device()
		if err == nil {
			decisions[i], err = d.Decide(ctx, plan, values[i], time.Now())
		}
		if err != nil || o.donates() {
			return err
		}
		return decisions[i].Send(ctx)
	})
	if err != nil || !o.donates() {
		return err
	}
	slices.SortFunc(decisions, func(a, b *participate.Decision) int { return cmp.Compare(a.At().Unix(), b.At().Unix()) })
	return atOnce(ctx, len(values), func(ctx context.Context, i int) error {
		if err := sleepUntil(ctx, decisions[i].At()); err != nil {
			return err
		}
		return decisions[i].Send(ctx)
	})
}

// crowded is how many devices are at work at a time: they wait for the gateway, which
// gathers.
const crowded = 32

// atOnce does work for each of n devices, in order and some at once, until one fails.
func atOnce(ctx context.Context, n int, work func(ctx context.Context, i int) error) error {
	devices, inside := errgroup.WithContext(ctx)
	devices.SetLimit(crowded)
	for i := 0; i < n && inside.Err() == nil; i++ {
		devices.Go(func() error { return work(inside, i) })
	}
	if err := devices.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}
