package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/anonymity/gateway"
	"github.com/starling-agg/starling/anonymity/relay"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/internal/disk"
)

const (
	// inFlight is how many devices wait for an answer at one time. Relay and gateway keep
	// as many connections as that.
	inFlight = 240
	// frontWindow is the gateway's window in a lab.
	frontWindow = 20 * time.Millisecond
	// durableDevices keep the ledger of a real device, a file that is on the disk before
	// a coin is tossed. For all of them that would be some 60,000 directories and as many
	// waits for the disk; the others keep theirs in memory.
	durableDevices = 16
	devicesDir     = "devices"
	// ledgerRoom is by how much a device's budget is above what the recipe takes in all.
	ledgerRoom = 1.01
)

// A population is the scenario in which devices decide in secret whether to report, and
// send through a relay and a gateway.
type population struct {
	*histogram
	plan   *participate.Plan // of all devices; nil where each has a client of its own
	asked  [][]int           // the rounds of each device
	budget participate.LedgerOptions
	cpu    chan struct{} // held while a device computes
	tally  participate.Tally
	gauge  gauge         // of decisions
	sent   atomic.Uint64 // units that the gateway took
	busy   atomic.Int64  // nanoseconds of deciding
}

// answer implements scenario: each device pays, tosses its coins and sends what they say
// through the relay.
func (p *population) answer(ctx context.Context, f *frame) error {
	p.promise(f)
	if err := f.client.Refresh(ctx); err != nil {
		return err
	}
	like, err := f.client.Prepare(client.NoValue(), f.asked)
	if p.o.KnownSample {
		like, err = f.client.Prepare(p.o.question().value(-1), f.asked)
	}
	if err != nil {
		return err
	}
	p.asked, p.cpu = p.o.asked(), make(chan struct{}, f.o.Workers)
	p.budget = participate.LedgerOptions{MaxEpsilon: p.found.Epsilon * ledgerRoom, MaxDelta: min(1, p.found.Delta*ledgerRoom)}
	if f.counting == nil {
		if p.plan, err = participate.NewPlan(participate.PlanOptions{Client: f.client}); err != nil {
			return err
		}
	}
	for _, rounds := range p.asked {
		p.gauge.total += uint64(len(rounds))
	}
	p.gauge.behind = func() ([]Count, uint64) {
		reports := p.tally.Reports() + p.tally.Dummies()
		return []Count{{"answered", p.sent.Load(), reports + p.tally.NoOps()}}, reports
	}
	stop := f.watch(ctx, &p.gauge)
	defer stop()
	err = crowd(ctx, len(p.asked), inFlight, func(ctx context.Context, i int) error {
		if err := p.device(ctx, f, i); err != nil {
			return fmt.Errorf("device %d: %w", i, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	t, found := &p.tally, p.found
	found.Dummies, found.Answers, found.NoOps = t.Dummies(), t.Reports(), t.NoOps()
	found.Sent = found.Dummies + found.Answers
	found.Decisions = p.gauge.done.Load()
	f.sent, f.acknowledged = found.Sent, found.Sent
	found.MicrosecondsEach = float64(p.busy.Load()) / 1e3 / float64(max(1, found.Decisions))
	found.LeaderBytes = uint64(like.Size()) * found.Sent
	found.HelperBytes = uint64(len(like.Helper.Enc)+len(like.Helper.Payload)+len(like.PublicShare)) * found.Sent
	return p.readFront(ctx, f)
}

// device plays one device in all the rounds that it is asked in.
func (p *population) device(ctx context.Context, f *frame, i int) (err error) {
	if len(p.asked[i]) == 0 {
		return nil
	}
	ledger, closeLedger, err := p.ledger(f, i)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLedger()) }()
	d, plan := &participate.Device{Ledger: ledger}, p.plan
	if plan == nil {
		if plan, err = p.planOf(ctx, f, i); err != nil {
			return err
		}
	}
	answer := p.o.answer
	if answer == nil {
		value := p.o.question().value(p.values[i])
		answer = func(int, int) client.Value { return value }
	}
	for _, round := range p.asked[i] {
		p.cpu <- struct{}{}
		begin := time.Now()
		decision, err := d.Decide(ctx, plan, answer(i, round), f.roundTime(round, p.o.Rounds))
		p.busy.Add(int64(time.Since(begin)))
		<-p.cpu
		if err != nil {
			return err
		}
		p.tally.Add(decision)
		p.gauge.done.Add(1)
		if !decision.Uploads() {
			continue
		}
		if err := decision.Send(ctx); err != nil {
			return err
		}
		p.sent.Add(1)
	}
	return nil
}

// planOf is the plan of a device that shows credentials of its own.
func (p *population) planOf(ctx context.Context, f *frame, i int) (*participate.Plan, error) {
	p.cpu <- struct{}{}
	defer func() { <-p.cpu }()
	c, err := f.clientOf(ctx, i)
	if err != nil {
		return nil, err
	}
	return participate.NewPlan(participate.PlanOptions{Client: c})
}

// ledger opens the ledger of device i.
func (p *population) ledger(f *frame, i int) (*participate.Ledger, func() error, error) {
	if i >= durableDevices {
		l, err := participate.MemoryLedger(p.budget)
		return l, func() error { return nil }, err
	}
	fsys, err := disk.OS(filepath.Join(f.dir, devicesDir, strconv.Itoa(i)))
	if err != nil {
		return nil, nil, err
	}
	l, err := participate.OpenLedger(fsys, p.budget)
	if err != nil {
		return nil, nil, errors.Join(err, fsys.Close())
	}
	return l, func() error { return errors.Join(l.Close(), fsys.Close()) }, nil
}

// readFront waits until the gateway has passed on all that it holds, and takes down what
// relay and gateway counted.
func (p *population) readFront(ctx context.Context, f *frame) error {
	var ahead relay.Status
	var behind gateway.Status
	ticker := time.NewTicker(frontWindow)
	defer ticker.Stop()
	for {
		if err := f.readStatus(ctx, f.front.GatewayLocal.Addr().String(), &behind); err != nil {
			return err
		}
		if behind.Held == 0 {
			break
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := f.readStatus(ctx, f.front.RelayLocal.Addr().String(), &ahead); err != nil {
		return err
	}
	p.found.forwarded, p.found.joined = ahead.Forwarded, behind.Requests
	// A cover that was sent again after a late answer is opened and dropped again.
	if behind.Passed != p.found.Sent || behind.Covers < p.found.NoOps || len(behind.Verdicts)+len(behind.Lost) > 0 {
		return fmt.Errorf("the gateway passed on %d reports and dropped %d no-ops; devices sent %d and %d; of others %v, %v", behind.Passed,
			behind.Covers, p.found.Sent, p.found.NoOps, behind.Verdicts, behind.Lost)
	}
	if f.counting == nil {
		return nil
	}
	// Every unit, covers too, has shown the one token of its device and round.
	c := p.found.Counted
	c.Admitted = behind.Admission[gateway.TokenCounted]
	if units := p.found.Sent + p.found.NoOps; c.Admitted != units || behind.Admission[gateway.TokenNone] > 0 {
		return fmt.Errorf("the gateway let in %v by tokens; devices sent %d", behind.Admission, units)
	}
	return nil
}
