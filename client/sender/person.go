package sender

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/internal/disk"
)

// A Home is where a person's device keeps what it must not forget.
type Home struct {
	// Dir holds the ledger and the memory of manifests; made where there is none. Required.
	Dir string
	// Counter is a file outside of Dir, which is not put back with it: a ledger that was
	// put back as a whole is found out. Optional.
	Counter string
	// Limits bound what all recipes together may cost; required.
	Limits participate.LedgerOptions
}

// Validate says what is wrong with a home.
func (h *Home) Validate() error {
	if h.Dir == "" {
		return errors.New("a home without a directory")
	}
	if err := h.Limits.Validate(); err != nil || h.Counter == "" {
		return err
	}
	path, err := filepath.Rel(h.Dir, h.Counter)
	if err == nil && filepath.IsLocal(path) {
		return errors.New("the counter is inside of the ledger's directory, with which it would be put back")
	}
	return nil
}

// A DirError: a directory of a person's device cannot be opened.
type DirError struct{ Err error }

func (e *DirError) Error() string { return e.Err.Error() }
func (e *DirError) Unwrap() error { return e.Err }

// A BusyError: another process answers out of the directory.
type BusyError struct {
	Dir string
	Err error
}

func (e *BusyError) Error() string { return fmt.Sprintf("%s: %v", e.Dir, e.Err) }
func (e *BusyError) Unwrap() error { return e.Err }

// An Account is a person's home that was opened. It holds the home's lock.
type Account struct {
	ledger *participate.Ledger
	memory *client.Memory
	opened []func() error
}

// A Person answers one recipe, round after round.
type Person struct {
	device  *participate.Device
	plan    *participate.Plan
	donates bool
	account *Account // its own; nil where others answer from it too
}

// OpenPerson opens a person's home and holds the recipe and the manifest against what is
// known there. It fails as [Home.Open] and [Account.Answer].
func OpenPerson(ctx context.Context, o Options, h Home) (*Person, error) {
	a, err := h.Open()
	if err != nil {
		return nil, err
	}
	p, err := a.Answer(ctx, o)
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	p.account = a
	return p, nil
}

// Open opens a home. It fails with *[DirError], *[BusyError], and as [Home.Validate],
// participate.OpenLedger and client.OpenMemory do.
func (h Home) Open() (_ *Account, err error) {
	if err := h.Validate(); err != nil {
		return nil, fmt.Errorf("sender: %w", err)
	}
	p := new(Account)
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	fsys, err := disk.OS(h.Dir)
	if err != nil {
		return nil, &DirError{err}
	}
	p.opened = append(p.opened, fsys.Close)
	if err := fsys.Lock(); err != nil {
		return nil, &BusyError{h.Dir, err}
	}
	if h.Counter != "" {
		outside, err := disk.OS(filepath.Dir(h.Counter))
		if err != nil {
			return nil, &DirError{err}
		}
		p.opened = append(p.opened, outside.Close)
		h.Limits.Counter = participate.FileCounter{FS: outside, Name: filepath.Base(h.Counter)}
	}
	if p.ledger, err = participate.OpenLedger(fsys, h.Limits); err != nil {
		return nil, err
	}
	p.opened = append(p.opened, p.ledger.Close)
	p.memory, err = client.OpenMemory(fsys)
	return p, err
}

// Answer holds a recipe and its manifest against what is known of them. It fails as
// client.NewManifests, participate.Device.Consider and participate.NewPlan do.
func (a *Account) Answer(ctx context.Context, o Options) (*Person, error) {
	answering, err := o.client(a.memory)
	if err != nil {
		return nil, err
	}
	p := &Person{donates: o.donates(), device: &participate.Device{Ledger: a.ledger, Attributes: o.Attributes}}
	p.plan, err = o.plan(ctx, answering, p.device)
	return p, err
}

// Ledger is the home's.
func (a *Account) Ledger() *participate.Ledger { return a.ledger }

// Close ends the ledger and leaves the directory to others.
func (a *Account) Close() error {
	var err error
	for i := len(a.opened) - 1; i >= 0; i-- {
		err = errors.Join(err, a.opened[i]())
	}
	return err
}

// Close closes the home that was opened for the person alone.
func (p *Person) Close() error {
	if p.account == nil {
		return nil
	}
	return p.account.Close()
}

// Ledger is the person's.
func (p *Person) Ledger() *participate.Ledger { return p.device.Ledger }

// Decide decides the round that runs, or where devices donate at a random time, goes on
// with the time that was drawn, or draws one of the next round. It fails as
// participate.Device.Decide does, always before a coin is tossed.
func (p *Person) Decide(ctx context.Context, v client.Value) (*participate.Decision, error) {
	return p.DecideAt(ctx, v, time.Now())
}

// DecideAt is Decide at a time that was taken before, of an answer that is of no other round.
func (p *Person) DecideAt(ctx context.Context, v client.Value, at time.Time) (*participate.Decision, error) {
	if p.donates {
		decision, err := p.device.Resume(ctx, p.plan, v, at)
		if !errors.Is(err, participate.ErrNoDraw) {
			return decision, err
		}
	}
	return p.device.Decide(ctx, p.plan, v, at)
}

// DecideNext decides the round after the one that runs, where devices wait for slots of all of
// a round and d, of [Person.DecideAt] at the same time, is of one that runs: so a device can
// take part in each round, and not in every second. Elsewhere, and where that was decided, it
// does nothing. It fails as participate.Device.Decide does.
func (p *Person) DecideNext(ctx context.Context, v client.Value, d *participate.Decision, at time.Time) error {
	if begin, _ := d.Round(); !p.donates || at.Before(begin) {
		return nil
	}
	_, err := p.device.Decide(ctx, p.plan, v, at)
	if errors.Is(err, participate.ErrDecided) {
		return nil
	}
	return err
}

// Quote is what one more round of the recipe would cost; nothing is charged.
func (p *Person) Quote() (participate.Quote, error) { return p.device.Quote(p.plan) }

// SendDue sends a decision if its slot is now, and else does what leaves the same on the disk
// ([participate.Decision.Pass]). Due says whether it is, and the error what either said.
func (p *Person) SendDue(ctx context.Context, d *participate.Decision) (due bool, sent error) {
	from, to, ok := d.Slot()
	if now := time.Now(); !ok || now.Before(from) || !now.Before(to) {
		return false, d.Pass(ctx, now)
	}
	return true, d.Send(ctx)
}

// SendInTime waits for a decision's time and sends it then. Where it is hidden whether
// there was a slot, and when, it returns at the end of the round whatever was drawn. Sent
// is what sending said; err is *[WaitError] if the wait was ended.
func (p *Person) SendInTime(ctx context.Context, d *participate.Decision, hidden bool) (sent, err error) {
	if err := sleepUntil(ctx, d.At()); err != nil {
		return nil, err
	}
	// A computer whose lid was closed may have slept through the slot, and has missed it.
	if _, to, ok := d.Slot(); !ok || time.Now().Before(to) {
		sent = d.Send(ctx)
	}
	if hidden {
		_, end := d.Round()
		err = sleepUntil(ctx, end)
	}
	return sent, err
}

// A WaitError: the wait for a time that was drawn was ended early; the time is kept.
type WaitError struct{ Err error }

func (e *WaitError) Error() string { return e.Err.Error() }
func (e *WaitError) Unwrap() error { return e.Err }

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
			return &WaitError{ctx.Err()}
		}
	}
}
